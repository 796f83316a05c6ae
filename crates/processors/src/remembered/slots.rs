//! An index of keys: open addressing, linear probing.
//!
//! It finds the place of a key in a list of entries. A slot has the place and 32 bits of the fingerprint, so that an entry is only
//! looked at if it is almost certainly the right one, and a slot can be moved without looking at its entry. Fingerprints come from a secret
//! hash, so that nobody can choose keys that meet in the index.

use super::Fingerprint;

/// How many keys there is room for at first.
const FIRST_KEYS: usize = 1024;

/// An index with fewer slots stays in the caches of the processor.
const CACHED_SLOTS: usize = 1 << 16;

/// How many keys are prepared at once: what is read for them stays in the smallest cache until they are looked for.
pub(crate) const PREPARED_KEYS: usize = 128;

/// What is remembered of a key.
pub(crate) trait Fingerprinted {
    /// The hash of the key.
    fn fingerprint(&self) -> &Fingerprint;

    /// Any number, for which all of the entry is read: it may lie in two lines of a cache.
    #[inline]
    fn read(&self) -> u64 {
        self.fingerprint()[0] ^ self.fingerprint()[1]
    }
}

/// Finds places in a list of entries by fingerprint.
#[derive(Clone, Debug)]
pub(crate) struct SlotTable {
    /// A hash in the upper half and a place plus one in the lower one; 0 where there is nothing. Their number is a power of two.
    slots: Vec<u64>,
}

impl SlotTable {
    /// Nothing is in it.
    pub fn new() -> Self {
        Self::with_slots(FIRST_KEYS)
    }

    /// The same, for a list of which there are many with few keys.
    pub fn small() -> Self {
        Self::with_slots(16)
    }

    fn with_slots(slots: usize) -> Self {
        Self {
            slots: vec![0; slots],
        }
    }

    /// How much memory it takes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    /// Reads where the next searches are going to read, and where new keys are going to take the places from `next` on. In a table larger
    /// than the caches of the processor, these reads then happen at the same time instead of one after the other, as long as they are
    /// no more than [`PREPARED_KEYS`].
    pub fn prepare<E: Fingerprinted>(
        &self,
        entries: &[E],
        keys: &[(usize, Fingerprint)],
        next: usize,
    ) {
        if self.slots.len() < CACHED_SLOTS {
            return;
        }
        let mut seen = 0;
        for (_, fingerprint) in keys {
            seen ^= self.first(fingerprint);
        }
        for (_, fingerprint) in keys {
            let value = self.first(fingerprint);
            // Without a branch, which would often be guessed wrong: any entry will do where it is another key's slot.
            let is_known = value != 0 && hash_of(value) == hash_of_key(fingerprint);
            let place = if is_known { place_of(value) } else { 0 };
            if let Some(entry) = entries.get(place) {
                seen ^= entry.read();
            }
        }
        for entry in entries.iter().skip(next).take(keys.len()) {
            seen ^= self.first(entry.fingerprint());
        }
        std::hint::black_box(seen);
    }

    /// What is in the slot where a search begins.
    #[inline]
    fn first(&self, fingerprint: &Fingerprint) -> u64 {
        self.slots[hash_of_key(fingerprint) as usize & (self.slots.len() - 1)]
    }

    /// Makes room for one more key in a list and here: the list never has room for more than `max_keys`.
    pub fn make_room<E: Fingerprinted>(&mut self, entries: &mut Vec<E>, max_keys: usize) {
        let len = entries.len();
        if len == entries.capacity() {
            let wanted = (2 * len).clamp(FIRST_KEYS.min(max_keys), max_keys);
            entries.reserve_exact(wanted - len);
        }
        self.make_slots(len);
    }

    /// Makes room here for one more key than `len`.
    pub fn make_slots(&mut self, len: usize) {
        // At most three quarters of the slots are taken.
        if len + 1 > self.slots.len() / 4 * 3 {
            self.grow();
        }
    }

    /// Doubles the slots, where they are. The key of a slot goes to that slot, a little before it, or about as far in the new half: memory
    /// is passed in its order, and the list is not looked at.
    fn grow(&mut self) {
        let old = self.slots.len();
        self.slots.reserve_exact(old);
        self.slots.resize(2 * old, 0);
        let is_empty = |value: &u64| *value == 0;
        let empty = self.slots[..old].iter().position(is_empty);
        let empty = empty.expect("a quarter of the slots is empty");
        // From behind an empty slot on, every key finds those before it at their new slots, and its own old slot free.
        for slot in (empty + 1..old).chain(0..empty) {
            let value = std::mem::take(&mut self.slots[slot]);
            if value != 0 {
                self.insert(value);
            }
        }
    }

    /// The slot of a fingerprint, and its place in the list.
    #[inline]
    pub fn find<E: Fingerprinted>(
        &self,
        entries: &[E],
        fingerprint: &Fingerprint,
    ) -> Option<(usize, usize)> {
        let hash = hash_of_key(fingerprint);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let value = self.slots[slot];
            if value == 0 {
                return None;
            }
            let place = place_of(value);
            if hash_of(value) == hash && entries[place].fingerprint() == fingerprint {
                return Some((slot, place));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Has the key at a place of the list found there; an older place of it is forgotten.
    pub fn put<E: Fingerprinted>(&mut self, entries: &[E], place: usize) {
        let fingerprint = entries[place].fingerprint();
        match self.find(entries, fingerprint) {
            Some((slot, _)) => self.slots[slot] = value_of(fingerprint, place),
            None => self.put_new(fingerprint, place),
        }
    }

    /// Has a key that is not found yet found at a place of the list.
    #[inline]
    pub fn put_new(&mut self, fingerprint: &Fingerprint, place: usize) {
        self.insert(value_of(fingerprint, place));
    }

    #[inline]
    fn insert(&mut self, value: u64) {
        let mask = self.slots.len() - 1;
        let mut slot = hash_of(value) as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = value;
    }

    /// Empties a slot. Those behind it move up, so that no search ends too early.
    pub fn remove(&mut self, slot: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = slot;
        let mut next = (slot + 1) & mask;
        while self.slots[next] != 0 {
            let first = hash_of(self.slots[next]) as usize & mask;
            let from_first = next.wrapping_sub(first) & mask;
            let from_hole = next.wrapping_sub(hole) & mask;
            if from_first >= from_hole {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = 0;
    }
}

fn hash_of_key(fingerprint: &Fingerprint) -> u32 {
    fingerprint[0] as u32
}

fn value_of(fingerprint: &Fingerprint, place: usize) -> u64 {
    u64::from(hash_of_key(fingerprint)) << 32 | (place as u64 + 1)
}

fn hash_of(value: u64) -> u32 {
    (value >> 32) as u32
}

fn place_of(value: u64) -> usize {
    value as u32 as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::numbers;

    impl Fingerprinted for Fingerprint {
        fn fingerprint(&self) -> &Fingerprint {
            self
        }
    }

    #[test]
    fn every_key_is_found_after_the_slots_have_grown() {
        for seed in 0..200 {
            let mut number = numbers(seed);
            let mut table = SlotTable::with_slots(8);
            let mut entries: Vec<Fingerprint> = Vec::new();
            // Hashes that meet, at the end of the table too, and differ in a bit that counts once it has grown.
            let few = 1 + number(20);
            for place in 0..3_000_u64 {
                let hash = match number(3) {
                    0 => number(few) << 16 | 0xfff8 | number(8),
                    1 => u64::from(u32::MAX) - number(few),
                    _ => number(1 << 32),
                };
                entries.push([hash, place]);
                table.make_slots(place as usize);
                table.put_new(&entries[place as usize], place as usize);
                if place % 97 == 0 || place.count_ones() == 1 {
                    for (place, key) in entries.iter().enumerate() {
                        let found = table.find(&entries, key);
                        assert_eq!(found.map(|(_, found)| found), Some(place), "seed {seed}");
                    }
                }
            }
            assert_eq!(table.find(&entries, &[5, 3_000]), None);
            let taken = table.slots.iter().filter(|slot| **slot != 0).count();
            assert_eq!(taken, entries.len());
        }
    }

    #[test]
    fn slots_move_up_where_one_is_emptied() {
        let mut number = numbers(9);
        let mut table = SlotTable::with_slots(8);
        let mut entries: Vec<Fingerprint> = Vec::new();
        let mut kept: Vec<usize> = Vec::new();
        for _ in 0..20_000 {
            if kept.len() < 6 && number(2) == 0 {
                // Hashes that meet, also at the end of the table.
                entries.push([5 + number(4), entries.len() as u64]);
                table.put(&entries, entries.len() - 1);
                kept.push(entries.len() - 1);
            } else if !kept.is_empty() {
                let place = kept.swap_remove(number(kept.len() as u64) as usize);
                let found = table.find(&entries, &entries[place]);
                table.remove(found.expect("it was put there").0);
            }
            for place in &kept {
                let found = table.find(&entries, &entries[*place]);
                assert_eq!(found.map(|(_, found)| found), Some(*place));
            }
            let taken = table.slots.iter().filter(|slot| **slot != 0).count();
            assert_eq!(taken, kept.len());
        }
    }
}
