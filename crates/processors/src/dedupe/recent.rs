//! The keys of the events that were let through last.
//!
//! The keys lie in a ring in the order in which their events were let through; when it is full, the next one takes the place of the
//! oldest. An index (open addressing, linear probing) finds a key in the ring. An entry of it has the place in the ring and 32 bits of
//! the fingerprint, so that a key is only looked at if it is almost certainly the right one, and a slot can be moved without looking at
//! its key. Fingerprints come from a secret hash, so that nobody can choose keys that meet in the index.
//!
//! The state is the secret, the ring and the place of its oldest key: plain data. The index follows from it. It is saved as numbers of 8
//! bytes, little-endian: the version, the two parts of the secret, the place of the oldest key, and three for each key.

use super::sip::{Fingerprint, SipKey};

/// The most keys that can be remembered: a place in the ring plus one has 32 bits.
pub(super) const KEYS_MAX: u64 = 1_000_000_000;

/// The version of what is saved.
const VERSION: u64 = 1;

/// How many keys there is room for at first.
const FIRST_KEYS: usize = 1024;

/// An index with fewer slots stays in the caches of the processor.
const CACHED_SLOTS: usize = 1 << 16;

/// An event that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PassedKey {
    fingerprint: Fingerprint,
    /// Nanoseconds since 1970; 0 where there is no window.
    time: i64,
}

/// What remembers events that were let through.
#[derive(Clone, Debug)]
pub(super) struct RecentKeys {
    secret: SipKey,
    /// At most `max_keys`. A key that was let through again has an older place too, which nothing refers to any more.
    ring: Vec<PassedKey>,
    /// The place that is taken next when the ring is full.
    oldest: usize,
    max_keys: usize,
    /// How far apart in time two events of one key must be for both to be let through, in nanoseconds; none if they never are.
    window: Option<u64>,
    index: SlotTable,
    /// Keys that were forgotten although an event of the same key and the same time would still have been dropped.
    forgotten: u64,
}

impl RecentKeys {
    /// Nothing is remembered yet.
    pub fn new(max_keys: usize, window: Option<u64>) -> Self {
        Self {
            secret: SipKey::random(),
            ring: Vec::new(),
            oldest: 0,
            max_keys,
            window,
            index: SlotTable::new(FIRST_KEYS),
            forgotten: 0,
        }
    }

    /// What is remembered of an event with these values.
    #[inline]
    pub fn fingerprint(&self, values: &[u8]) -> Fingerprint {
        self.secret.hash(values)
    }

    /// Reads where the next calls of [`Self::lets_through`] are going to read. In a table larger than the caches of the processor, these reads
    /// then happen at the same time instead of one after the other.
    pub fn prepare(&self, keys: &[(usize, Fingerprint)]) {
        if self.index.slots.len() < CACHED_SLOTS {
            return;
        }
        let mut seen = 0;
        for (_, fingerprint) in keys {
            seen ^= self.index.first(hash_of_key(fingerprint));
        }
        for (_, fingerprint) in keys {
            let value = self.index.first(hash_of_key(fingerprint));
            if value != 0 && hash_of(value) == hash_of_key(fingerprint) {
                seen ^= self.ring[place_of(value)].fingerprint[0];
            }
        }
        if self.ring.len() == self.max_keys {
            // These are forgotten next.
            for passed in self.ring.iter().skip(self.oldest).take(keys.len()) {
                seen ^= self.index.first(hash_of_key(&passed.fingerprint));
            }
        }
        std::hint::black_box(seen);
    }

    /// Whether an event is let through. If so, it is remembered.
    #[inline]
    pub fn lets_through(&mut self, fingerprint: Fingerprint, time: i64) -> bool {
        let hash = hash_of_key(&fingerprint);
        let known = self.index.find(hash, &self.ring, &fingerprint);
        if known.is_some_and(|(_, place)| self.is_near(place, time)) {
            return false;
        }
        self.remember(hash, fingerprint, time);
        true
    }

    /// What another run needs to go on.
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::with_capacity(8 * (4 + 3 * self.ring.len()));
        saved.extend(VERSION.to_le_bytes());
        saved.extend(self.secret.to_bytes().as_flattened());
        saved.extend((self.oldest as u64).to_le_bytes());
        for PassedKey { fingerprint, time } in &self.ring {
            saved.extend(fingerprint[0].to_le_bytes());
            saved.extend(fingerprint[1].to_le_bytes());
            saved.extend(time.to_le_bytes());
        }
        saved
    }

    /// Goes on from what was saved with the same settings.
    ///
    /// # Errors
    /// It cannot be read, and why.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let (numbers, rest) = saved.as_chunks::<8>();
        let ([version, first, second, oldest, keys @ ..], []) = (numbers, rest) else {
            return Err("what was kept is too short".to_owned());
        };
        if *version != VERSION.to_le_bytes() {
            return Err("it was kept by a later version of Millpond".to_owned());
        }
        let (keys, rest) = keys.as_chunks::<3>();
        let oldest = u64::from_le_bytes(*oldest) as usize;
        if !rest.is_empty() || keys.len() > self.max_keys || oldest >= keys.len().max(1) {
            return Err("what was kept makes no sense".to_owned());
        }
        *self = Self::new(self.max_keys, self.window);
        self.secret = SipKey::from_bytes([*first, *second]);
        for [first, second, time] in keys {
            let fingerprint = [first, second].map(|part| u64::from_le_bytes(*part));
            let time = i64::from_le_bytes(*time);
            self.make_room();
            self.ring.push(PassedKey { fingerprint, time });
        }
        self.oldest = oldest;
        // From the oldest to the newest, so that a key is found at its newest place.
        for place in (oldest..keys.len()).chain(0..oldest) {
            let hash = hash_of_key(&self.ring[place].fingerprint);
            self.index.put(hash, &self.ring, place);
        }
        Ok(())
    }

    /// How many keys were forgotten too early since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    #[inline]
    fn is_near(&self, place: usize, time: i64) -> bool {
        let near = |window| self.ring[place].time.abs_diff(time) < window;
        self.window.is_none_or(near)
    }

    fn remember(&mut self, hash: u32, fingerprint: Fingerprint, time: i64) {
        let passed = PassedKey { fingerprint, time };
        let place = if self.ring.len() < self.max_keys {
            self.make_room();
            self.ring.push(passed);
            self.ring.len() - 1
        } else {
            let place = self.oldest;
            self.forget(place, time);
            self.ring[place] = passed;
            self.oldest = (place + 1) % self.max_keys;
            place
        };
        self.index.put(hash, &self.ring, place);
    }

    /// Takes the key at a place of the ring out of the index, unless it is there with a newer place.
    fn forget(&mut self, place: usize, now: i64) {
        let old = self.ring[place].fingerprint;
        let hash = hash_of_key(&old);
        match self.index.find(hash, &self.ring, &old) {
            Some((slot, known)) if known == place => self.index.remove(slot),
            _ => return,
        }
        self.forgotten += u64::from(self.is_near(place, now));
    }

    /// Makes room for one more key: the ring never has room for more than `max_keys`.
    fn make_room(&mut self) {
        let len = self.ring.len();
        if len == self.ring.capacity() {
            let wanted = (2 * len).clamp(FIRST_KEYS.min(self.max_keys), self.max_keys);
            self.ring.reserve_exact(wanted - len);
        }
        if self.index.is_full_at(len + 1) {
            // The old one goes first, so that both never take memory at the same time.
            self.index.reset(2 * self.index.slots.len());
            for place in 0..len {
                let hash = hash_of_key(&self.ring[place].fingerprint);
                self.index.put(hash, &self.ring, place);
            }
        }
    }
}

/// Finds places in a ring by fingerprint.
#[derive(Clone, Debug)]
struct SlotTable {
    /// A hash in the upper half and a place plus one in the lower one; 0 where there is nothing. Their number is a power of two.
    slots: Vec<u64>,
}

impl SlotTable {
    fn new(slots: usize) -> Self {
        Self {
            slots: vec![0; slots.next_power_of_two()],
        }
    }

    /// What is in the slot where a search begins.
    #[inline]
    fn first(&self, hash: u32) -> u64 {
        self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Forgets everything, and has this number of slots.
    fn reset(&mut self, slots: usize) {
        self.slots = Vec::new();
        self.slots = vec![0; slots];
    }

    /// Whether so many keys are more than three quarters of the slots.
    fn is_full_at(&self, keys: usize) -> bool {
        keys > self.slots.len() / 4 * 3
    }

    /// The slot of a fingerprint, and its place in the ring.
    #[inline]
    fn find(
        &self,
        hash: u32,
        ring: &[PassedKey],
        fingerprint: &Fingerprint,
    ) -> Option<(usize, usize)> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let value = self.slots[slot];
            if value == 0 {
                return None;
            }
            let place = place_of(value);
            if hash_of(value) == hash && ring[place].fingerprint == *fingerprint {
                return Some((slot, place));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Has the key at a place of the ring found there; an older place of it is forgotten.
    fn put(&mut self, hash: u32, ring: &[PassedKey], place: usize) {
        let value = u64::from(hash) << 32 | (place as u64 + 1);
        if let Some((slot, _)) = self.find(hash, ring, &ring[place].fingerprint) {
            self.slots[slot] = value;
            return;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = value;
    }

    /// Empties a slot. Those behind it move up, so that no search ends too early.
    fn remove(&mut self, slot: usize) {
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

fn hash_of(value: u64) -> u32 {
    (value >> 32) as u32
}

fn place_of(value: u64) -> usize {
    value as u32 as usize - 1
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Numbers without an order to the eye, the same in every run.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        }
    }

    /// The same by definition: the events let through last, newest at the end.
    struct Model {
        passed: VecDeque<PassedKey>,
        max_keys: usize,
        window: Option<u64>,
        forgotten: u64,
    }

    impl Model {
        fn lets_through(&mut self, fingerprint: Fingerprint, time: i64) -> bool {
            let is_same = |passed: &&PassedKey| passed.fingerprint == fingerprint;
            let last = self.passed.iter().rev().find(is_same);
            let is_near =
                |passed: &PassedKey| self.window.is_none_or(|w| passed.time.abs_diff(time) < w);
            if last.is_some_and(is_near) {
                return false;
            }
            if self.passed.len() == self.max_keys
                && let Some(old) = self.passed.pop_front()
            {
                let mut later = self.passed.iter();
                let is_last = !later.any(|passed| passed.fingerprint == old.fingerprint);
                let counts = is_last && self.window.is_none_or(|w| old.time.abs_diff(time) < w);
                self.forgotten += u64::from(counts);
            }
            self.passed.push_back(PassedKey { fingerprint, time });
            true
        }
    }

    #[test]
    fn it_does_what_its_definition_says() {
        for (seed, (max_keys, window, keys)) in [
            (1, None, 3),
            (2, Some(10), 3),
            (7, Some(40), 12),
            (50, Some(100), 60),
            (50, None, 70),
            (2_000, Some(3_000), 1_500),
            (3_000, None, 20_000),
        ]
        .into_iter()
        .enumerate()
        {
            let mut number = numbers(seed as u64);
            let mut recent = RecentKeys::new(max_keys, window);
            let passed = VecDeque::new();
            let mut model = Model {
                passed,
                max_keys,
                window,
                forgotten: 0,
            };
            for at in 0..12_000_i64 {
                if number(900) == 0 {
                    let saved = recent.save();
                    let forgotten = recent.take_forgotten();
                    recent = RecentKeys::new(max_keys, window);
                    recent.restore(&saved).expect("it was saved");
                    recent.forgotten = forgotten;
                }
                let key = [number(keys), 5];
                let time = at + number(30) as i64 - 15;
                let expected = model.lets_through(key, time);
                let got = recent.lets_through(key, time);
                assert_eq!(got, expected, "event {at} of {max_keys} {window:?}");
            }
            assert_eq!(recent.take_forgotten(), model.forgotten, "{max_keys}");
            assert_eq!(recent.take_forgotten(), 0);
        }
    }

    #[test]
    fn what_cannot_have_been_saved_is_refused() {
        let mut recent = RecentKeys::new(3, None);
        for key in 0..5 {
            recent.lets_through([key, key], 0);
        }
        let saved = recent.save();
        for length in 0..saved.len() {
            let cut = recent.clone().restore(&saved[..length]);
            assert!(cut.is_err(), "with {length} bytes");
        }
        for at in [0, 24] {
            let mut other = saved.clone();
            other[at] = 9;
            assert!(recent.clone().restore(&other).is_err(), "with 9 at {at}");
        }
        assert!(RecentKeys::new(2, None).restore(&saved).is_err());
        let mut other = RecentKeys::new(3, None);
        other.restore(&saved).expect("it was saved");
        assert_eq!((&other.secret, &other.ring), (&recent.secret, &recent.ring));
    }

    #[test]
    fn slots_move_up_where_one_is_emptied() {
        let mut number = numbers(9);
        let mut table = SlotTable::new(8);
        let mut ring: Vec<PassedKey> = Vec::new();
        let mut kept: Vec<(u32, usize)> = Vec::new();
        for _ in 0..20_000 {
            if kept.len() < 6 && number(2) == 0 {
                // Hashes that meet, also at the end of the table.
                let hash = 5 + number(4) as u32;
                let fingerprint = [ring.len() as u64, 0];
                ring.push(PassedKey {
                    fingerprint,
                    time: 0,
                });
                table.put(hash, &ring, ring.len() - 1);
                kept.push((hash, ring.len() - 1));
            } else if !kept.is_empty() {
                let (hash, place) = kept.swap_remove(number(kept.len() as u64) as usize);
                let found = table.find(hash, &ring, &ring[place].fingerprint);
                table.remove(found.expect("it was put there").0);
            }
            for (hash, place) in &kept {
                let found = table.find(*hash, &ring, &ring[*place].fingerprint);
                assert_eq!(found.map(|(_, found)| found), Some(*place));
            }
            let taken = table.slots.iter().filter(|slot| **slot != 0).count();
            assert_eq!(taken, kept.len());
        }
    }

    #[test]
    fn a_key_takes_no_more_memory_than_the_page_says() {
        for max_keys in [1_000_usize, 786_433, 1_000_000] {
            let mut recent = RecentKeys::new(max_keys, None);
            for key in 0..max_keys as u64 + 1_000 {
                recent.lets_through([key, 0], 0);
            }
            let ring = recent.ring.capacity() * size_of::<PassedKey>();
            let index = recent.index.slots.len() * size_of::<u64>();
            assert!(
                ring + index <= max_keys * 46,
                "{max_keys} keys take {ring} + {index} bytes"
            );
            assert_eq!(recent.take_forgotten(), 1_000);
        }
    }
}
