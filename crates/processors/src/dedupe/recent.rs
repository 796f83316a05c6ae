//! The keys of the events that were let through last.
//!
//! The keys lie in a ring in the order in which their events were let through; when it is full, the next one takes the place of the
//! oldest. An index ([`SlotTable`]) finds a key in the ring.
//!
//! The state is the secret, the ring and the place of its oldest key: plain data. The index follows from it. It is saved as numbers of 8
//! bytes, little-endian: the version, the two parts of the secret, the place of the oldest key, and three for each key.

use crate::remembered::{Fingerprint, Fingerprinted, SENSELESS, SipKey, SlotTable, saved_parts};

/// The version of what is saved.
const VERSION: u64 = 2;

/// An event that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PassedKey {
    fingerprint: Fingerprint,
    /// Nanoseconds since 1970; 0 where there is no window.
    time: i64,
}

impl Fingerprinted for PassedKey {
    #[inline]
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    #[inline]
    fn read(&self) -> u64 {
        self.fingerprint[0] ^ self.fingerprint[1] ^ self.time.cast_unsigned()
    }
}

/// What of an event is compared with others.
#[derive(Clone, Copy)]
pub(super) enum Compared<'a> {
    /// The text of the only field. It differs from everything written.
    Text(&'a [u8]),
    /// What was written, so that it is the same for the same events only.
    Written(&'a [u8]),
}

/// What remembers events that were let through.
#[derive(Clone, Debug)]
pub(super) struct RecentKeys {
    secret: SipKey,
    /// What follows from it for single texts.
    text_secret: SipKey,
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
        Self::with_secret(SipKey::random(), max_keys, window)
    }

    fn with_secret(secret: SipKey, max_keys: usize, window: Option<u64>) -> Self {
        Self {
            text_secret: secret.derived(),
            secret,
            ring: Vec::new(),
            oldest: 0,
            max_keys,
            window,
            index: SlotTable::new(),
            forgotten: 0,
        }
    }

    /// What is remembered of an event.
    #[inline]
    pub fn fingerprint(&self, event: Compared<'_>) -> Fingerprint {
        let (key, bytes) = self.keyed(event);
        key.hash(bytes)
    }

    /// What is remembered of two events.
    #[inline]
    pub fn fingerprints(&self, events: [Compared<'_>; 2]) -> [Fingerprint; 2] {
        SipKey::hash_pair(events.map(|event| self.keyed(event)))
    }

    #[inline]
    fn keyed<'a>(&self, event: Compared<'a>) -> (&SipKey, &'a [u8]) {
        match event {
            Compared::Text(text) => (&self.text_secret, text),
            Compared::Written(bytes) => (&self.secret, bytes),
        }
    }

    /// Reads where the next calls of [`Self::lets_through`] are going to read, for at most [`PREPARED_KEYS`](crate::remembered::PREPARED_KEYS).
    pub fn prepare(&self, keys: &[(usize, Fingerprint)]) {
        let is_full = self.ring.len() == self.max_keys;
        let next = if is_full {
            self.oldest
        } else {
            self.ring.len()
        };
        self.index.prepare(&self.ring, keys, next);
    }

    /// Whether an event is let through. If so, it is remembered.
    #[inline]
    pub fn lets_through(&mut self, fingerprint: Fingerprint, time: i64) -> bool {
        let known = self.index.find(&self.ring, &fingerprint);
        if known.is_some_and(|(_, place)| self.is_near(place, time)) {
            return false;
        }
        self.remember(fingerprint, time, known.is_some());
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
        let ([first, second, oldest], keys) = saved_parts::<3, 3>(saved, VERSION)?;
        let oldest = u64::from_le_bytes(*oldest) as usize;
        if keys.len() > self.max_keys || oldest >= keys.len().max(1) {
            return Err(SENSELESS.to_owned());
        }
        let secret = SipKey::from_bytes([*first, *second]);
        *self = Self::with_secret(secret, self.max_keys, self.window);
        for [first, second, time] in keys {
            let fingerprint = [first, second].map(|part| u64::from_le_bytes(*part));
            let time = i64::from_le_bytes(*time);
            self.index.make_room(&mut self.ring, self.max_keys);
            self.ring.push(PassedKey { fingerprint, time });
        }
        self.oldest = oldest;
        // From the oldest to the newest, so that a key is found at its newest place.
        for place in (oldest..keys.len()).chain(0..oldest) {
            self.index.put(&self.ring, place);
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

    fn remember(&mut self, fingerprint: Fingerprint, time: i64, is_known: bool) {
        let passed = PassedKey { fingerprint, time };
        let place = if self.ring.len() < self.max_keys {
            self.index.make_room(&mut self.ring, self.max_keys);
            self.ring.push(passed);
            self.ring.len() - 1
        } else {
            let place = self.oldest;
            self.forget(place, time);
            self.ring[place] = passed;
            self.oldest = (place + 1) % self.max_keys;
            place
        };
        match is_known {
            true => self.index.put(&self.ring, place),
            false => self.index.put_new(&fingerprint, place),
        }
    }

    /// Takes the key at a place of the ring out of the index, unless it is there with a newer place.
    fn forget(&mut self, place: usize, now: i64) {
        let old = self.ring[place].fingerprint;
        match self.index.find(&self.ring, &old) {
            Some((slot, known)) if known == place => self.index.remove(slot),
            _ => return,
        }
        self.forgotten += u64::from(self.is_near(place, now));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::testing::numbers;

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
    fn a_key_takes_no_more_memory_than_the_page_says() {
        for max_keys in [1_000_usize, 786_433, 1_000_000] {
            let mut recent = RecentKeys::new(max_keys, None);
            for key in 0..max_keys as u64 + 1_000 {
                recent.lets_through([key, 0], 0);
            }
            let ring = recent.ring.capacity() * size_of::<PassedKey>();
            let index = recent.index.bytes();
            assert!(
                ring + index <= max_keys * 46,
                "{max_keys} keys take {ring} + {index} bytes"
            );
            assert_eq!(recent.take_forgotten(), 1_000);
        }
    }
}
