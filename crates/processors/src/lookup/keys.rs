//! Finds rows by their keys.
//!
//! A slot is 8 bytes: half of the hash of a key, and the row. The hash says in which slot the search begins, which goes on to
//! the next one until a slot is empty; one slot in three is, or more. A batch is looked up in steps, each over all of its
//! rows ([`KeyIndex::find_all`]): what a step reads from memory does not depend on what it read before, so that the processor
//! waits for many rows at once. With 1,000,000 rows, none of which is in a cache, that makes half of the time.

use std::hash::BuildHasher;

use batch::{Bitmap, Column};
use foldhash::fast::RandomState;
use std::sync::Arc;

use super::rows::{key_len, write_key};
use crate::text::first_of;

/// A slot without a row: no row begins so far behind.
const EMPTY: u64 = u64::MAX;

/// Rows by the texts of their keys.
#[derive(Debug)]
pub(super) struct KeyIndex {
    /// How many columns a key has.
    parts: usize,
    slots: Box<[u64]>,
    len: usize,
    state: RandomState,
}

/// What is looked up for a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    keys: Vec<u8>,
    probes: Vec<Probe>,
}

/// A row of a batch with its key.
#[derive(Clone, Debug)]
struct Probe {
    row: usize,
    /// Where the key ends; it begins where the one before ends.
    end: usize,
    hash: u32,
    /// The slot in which the search goes on.
    slot: usize,
    /// What that slot holds.
    held: u64,
}

impl KeyIndex {
    /// An index of no rows.
    pub fn new(parts: usize) -> Self {
        Self {
            parts,
            slots: vec![EMPTY; 16].into(),
            len: 0,
            state: RandomState::default(),
        }
    }

    /// The length of the key of a row.
    #[inline]
    pub fn key_len(&self, text: &[u8], row: usize) -> usize {
        key_len(text, row, self.parts)
    }

    /// Adds the row whose key is the end of `text` from `row` on. `false` where there is one with this key.
    pub fn insert(&mut self, text: &[u8], row: usize) -> bool {
        if 3 * (self.len + 1) > 2 * self.slots.len() {
            self.resize(2 * self.slots.len());
        }
        let key = &text[row..];
        let hash = self.hash(key);
        let mut slot = self.first_slot(hash);
        while self.slots[slot] != EMPTY {
            if hash_of(self.slots[slot]) == hash
                && text[row_of(self.slots[slot])..].starts_with(key)
            {
                return false;
            }
            slot = self.next_slot(slot);
        }
        self.slots[slot] = u64::from(hash) << 32 | row as u64;
        self.len += 1;
        true
    }

    /// Gives up the room for further rows.
    pub fn shrink(&mut self) {
        self.resize(self.len + self.len / 2 + 2);
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots].into());
        for held in old.into_iter().filter(|held| *held != EMPTY) {
            let mut slot = self.first_slot(hash_of(held));
            while self.slots[slot] != EMPTY {
                slot = self.next_slot(slot);
            }
            self.slots[slot] = held;
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u32 {
        (self.state.hash_one(key) >> 32) as u32
    }

    #[inline]
    fn first_slot(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next_slot(&self, slot: usize) -> usize {
        match slot + 1 {
            end if end == self.slots.len() => 0,
            next => next,
        }
    }

    /// Goes on to the next slot that may hold the key, or to an empty one.
    #[inline]
    fn search(&self, probe: &mut Probe) {
        loop {
            probe.held = self.slots[probe.slot];
            if probe.held == EMPTY || hash_of(probe.held) == probe.hash {
                return;
            }
            probe.slot = self.next_slot(probe.slot);
        }
    }

    /// Looks up what `columns` have in `rows`, a column for each part of a key. Calls `put` with each row of the batch that has
    /// a key, and the row of the table.
    pub fn find_all(
        &self,
        text: &[u8],
        columns: &[Arc<Column>],
        rows: &Bitmap,
        Probes { keys, probes }: &mut Probes,
        mut put: impl FnMut(usize, Option<u32>),
    ) {
        keys.clear();
        probes.clear();
        for row in rows.iter() {
            let start = keys.len();
            let mut parts = columns.iter().map(|column| first_of(column.value(row)));
            if !parts.all(|value| write_key(value, keys)) {
                keys.truncate(start);
                continue;
            }
            let hash = self.hash(&keys[start..]);
            probes.push(Probe {
                row,
                end: keys.len(),
                hash,
                slot: self.first_slot(hash),
                held: EMPTY,
            });
        }
        probes.iter_mut().for_each(|probe| self.search(probe));
        let found = probes.iter().filter(|probe| probe.held != EMPTY);
        touch(text, found.map(|probe| row_of(probe.held)));
        let mut start = 0;
        for probe in probes {
            let key = &keys[start..probe.end];
            start = probe.end;
            while probe.held != EMPTY && !text[row_of(probe.held)..].starts_with(key) {
                probe.slot = self.next_slot(probe.slot);
                self.search(probe);
            }
            let found = (probe.held != EMPTY).then_some(probe.held as u32);
            put(probe.row, found);
        }
    }
}

/// Reads a byte at each of these places, so that they are in the processor's cache when they are needed.
pub(super) fn touch(text: &[u8], places: impl Iterator<Item = usize>) {
    let sum = places.fold(0, |sum, place| sum ^ text[place]);
    std::hint::black_box(sum);
}

#[inline]
fn hash_of(held: u64) -> u32 {
    (held >> 32) as u32
}

#[inline]
fn row_of(held: u64) -> usize {
    held as u32 as usize
}
