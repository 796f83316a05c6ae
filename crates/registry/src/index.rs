//! Where each live value lies in the log.
//!
//! A slot of the table takes 27 bytes, as neither id nor place is aligned: 500,000 entries are 27 MiB. The tables are kept
//! by kind, so that one kind is listed without passing over the others.

use std::collections::{BTreeMap, HashMap};

use crate::Key;
use crate::format::{Changes, FrameChange, PUT_BYTES};

/// Where a value lies: six bytes of offset, four of length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValuePosition([u8; 10]);

impl ValuePosition {
    pub fn new(offset: u64, length: usize) -> Self {
        let length = u32::try_from(length).expect("values are at most 16 MiB");
        let mut bytes = [0; 10];
        bytes[..6].copy_from_slice(&offset.to_le_bytes()[..6]);
        bytes[6..].copy_from_slice(&length.to_le_bytes());
        Self(bytes)
    }

    pub fn offset(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.0[..6]);
        u64::from_le_bytes(bytes)
    }

    pub fn length(self) -> usize {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d]) as usize
    }
}

type Table = HashMap<[u8; 16], ValuePosition, foldhash::fast::RandomState>;

/// The live entries.
#[derive(Debug, Default)]
pub(crate) struct Index {
    kinds: BTreeMap<u8, Table>,
    live_bytes: u64,
}

impl Index {
    /// Takes over the changes of a frame that lies at this offset of the log.
    pub fn apply(&mut self, frame: &[u8], offset: u64) {
        for change in Changes::new(frame) {
            let (key, new) = match change {
                FrameChange::Put { key, at, value } => (
                    key,
                    Some(ValuePosition::new(offset + at as u64, value.len())),
                ),
                FrameChange::Delete { key } => (key, None),
            };
            let table = self.kinds.entry(key.kind).or_default();
            let id = key.id.to_le_bytes();
            let old = match new {
                Some(place) => {
                    self.live_bytes += cost(place);
                    table.insert(id, place)
                }
                None => table.remove(&id),
            };
            self.live_bytes -= old.map_or(0, cost);
        }
    }

    pub fn get(&self, key: Key) -> Option<ValuePosition> {
        let table = self.kinds.get(&key.kind)?;
        table.get(&key.id.to_le_bytes()).copied()
    }

    /// Whether the value at this offset is the entry's present one.
    pub fn is_live(&self, key: Key, offset: u64) -> bool {
        self.get(key).is_some_and(|place| place.offset() == offset)
    }

    pub fn len(&self) -> usize {
        self.kinds.values().map(Table::len).sum()
    }

    /// Bytes of the log that hold live entries.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub fn kinds(&self) -> impl Iterator<Item = u8> {
        self.kinds.keys().copied()
    }

    /// The entries of a kind in the order of the log.
    pub fn in_log_order(&self, kind: u8) -> Vec<(u128, ValuePosition)> {
        let table = self.kinds.get(&kind).into_iter().flatten();
        let entry = |(id, place): (&[u8; 16], &ValuePosition)| (u128::from_le_bytes(*id), *place);
        let mut entries: Vec<_> = table.map(entry).collect();
        entries.sort_unstable_by_key(|(_, place)| place.offset());
        entries
    }

    /// Gives every entry the offset at which a new log holds it: pairs of old and new, ascending.
    pub fn relocate(&mut self, moved: &[(u64, u64)]) {
        for place in self.kinds.values_mut().flat_map(Table::values_mut) {
            let found = moved.binary_search_by_key(&place.offset(), |(old, _)| *old);
            let (_, new) = moved[found.expect("a compaction moves every live entry")];
            *place = ValuePosition::new(new, place.length());
        }
    }
}

fn cost(place: ValuePosition) -> u64 {
    (PUT_BYTES + place.length()) as u64
}
