//! The limit itself: a bucket for each key (a token bucket, as GCRA is).
//!
//! A full bucket has room for `burst` events; each event that passes takes one of them, and one comes back after every `interval`. What is
//! remembered is how long the bucket takes to be full again, and from when on that counts: the *clock* of the key.
//!
//! The clock is the latest time of the key's events, so that events which are a little late find the bucket as it is and do not fill it.
//! An event that is earlier by more than `late` sets the clock back to its own time and fills nothing either: otherwise, one event with
//! a wrong time far ahead would keep the bucket from filling until then. So a wrong time lets at most `burst` further events of its key pass, and
//! keeps the bucket from filling for `late` at most.
//!
//! The state is the secret, the buckets in the order in which their keys came, and two numbers: plain data. It is saved as numbers of 8
//! bytes, little-endian: the version, the two parts of the secret, the place and the time in the fields below, and four for each bucket.

use crate::remembered::{Fingerprint, Fingerprinted, SENSELESS, SipKey, SlotTable, saved_parts};

/// The version of what is saved.
const VERSION: u64 = 1;

/// How many buckets are looked at to find one that can go.
const LOOKED_AT: usize = 8;

/// How much passes. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The time after which one more event may pass.
    pub interval: u64,
    /// The time in which an empty bucket becomes full: `burst` intervals. Less than 2^63.
    pub fill: u64,
    /// By how much an event may be earlier than the latest one.
    pub late: u64,
}

/// What is remembered of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    fingerprint: Fingerprint,
    /// The clock: nanoseconds since 1970.
    time: i64,
    /// How long after that the bucket is full. At most `fill`.
    owed: u64,
}

impl Fingerprinted for Bucket {
    #[inline]
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    #[inline]
    fn read(&self) -> u64 {
        self.fingerprint[0] ^ self.fingerprint[1] ^ self.owed
    }
}

impl Bucket {
    /// How long the bucket takes to be full, at a time.
    #[inline]
    fn owed_at(&self, time: i64) -> u64 {
        match time > self.time {
            true => self.owed.saturating_sub(time.abs_diff(self.time)),
            false => self.owed,
        }
    }

    /// Whether an event passes. If so, it takes its part.
    #[inline]
    fn take(&mut self, time: i64, pace: &Pace) -> bool {
        self.owed = self.owed_at(time);
        if time > self.time || time.abs_diff(self.time) > pace.late {
            self.time = time;
        }
        let owed = self.owed + pace.interval;
        if owed > pace.fill {
            return false;
        }
        self.owed = owed;
        true
    }
}

/// The buckets of all keys.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    pace: Pace,
    secret: SipKey,
    /// At most `max_keys`.
    buckets: Vec<Bucket>,
    /// Where a bucket that can go is looked for next.
    hand: usize,
    /// The time of the event before, of whatever key.
    before: i64,
    max_keys: usize,
    index: SlotTable,
    /// Keys that were forgotten before their buckets were full.
    forgotten: u64,
}

impl Buckets {
    /// Every bucket is full.
    pub fn new(max_keys: usize, pace: Pace) -> Self {
        Self {
            pace,
            secret: SipKey::random(),
            buckets: Vec::new(),
            hand: 0,
            before: i64::MAX,
            max_keys,
            index: SlotTable::new(),
            forgotten: 0,
        }
    }

    /// What is remembered of a key with these values.
    #[inline]
    pub fn fingerprint(&self, values: &[u8]) -> Fingerprint {
        self.secret.hash(values)
    }

    /// Reads where the next calls of [`Self::lets_through`] are going to read, for at most [`PREPARED_KEYS`](crate::remembered::PREPARED_KEYS).
    pub fn prepare(&self, keys: &[(usize, Fingerprint)]) {
        let is_full = self.buckets.len() == self.max_keys;
        let next = if is_full {
            self.hand
        } else {
            self.buckets.len()
        };
        self.index.prepare(&self.buckets, keys, next);
    }

    /// Whether an event passes.
    #[inline]
    pub fn lets_through(&mut self, fingerprint: Fingerprint, time: i64) -> bool {
        let passes = match self.index.find(&self.buckets, &fingerprint) {
            Some((_, place)) => self.buckets[place].take(time, &self.pace),
            None => {
                self.add(fingerprint, time);
                true
            }
        };
        self.before = time;
        passes
    }

    /// What another run needs to go on.
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::with_capacity(8 * (5 + 4 * self.buckets.len()));
        saved.extend(VERSION.to_le_bytes());
        saved.extend(self.secret.to_bytes().as_flattened());
        saved.extend((self.hand as u64).to_le_bytes());
        saved.extend(self.before.to_le_bytes());
        for bucket in &self.buckets {
            saved.extend(bucket.fingerprint[0].to_le_bytes());
            saved.extend(bucket.fingerprint[1].to_le_bytes());
            saved.extend(bucket.time.to_le_bytes());
            saved.extend(bucket.owed.to_le_bytes());
        }
        saved
    }

    /// Goes on from what was saved with the same settings.
    ///
    /// # Errors
    /// It cannot be read, and why.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let ([first, second, hand, before], keys) = saved_parts::<4, 4>(saved, VERSION)?;
        let hand = u64::from_le_bytes(*hand) as usize;
        if keys.len() > self.max_keys || hand >= keys.len().max(1) {
            return Err(SENSELESS.to_owned());
        }
        let mut restored = Self::new(self.max_keys, self.pace);
        restored.secret = SipKey::from_bytes([*first, *second]);
        restored.hand = hand;
        restored.before = i64::from_le_bytes(*before);
        for [first, second, time, owed] in keys {
            let bucket = Bucket {
                fingerprint: [first, second].map(|part| u64::from_le_bytes(*part)),
                time: i64::from_le_bytes(*time),
                owed: u64::from_le_bytes(*owed),
            };
            if bucket.owed > self.pace.fill {
                return Err(SENSELESS.to_owned());
            }
            restored.push(bucket);
        }
        *self = restored;
        Ok(())
    }

    /// How many keys were forgotten too early since the last call.
    pub fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// Remembers a new key, of which an event has passed.
    fn add(&mut self, fingerprint: Fingerprint, time: i64) {
        let bucket = Bucket {
            fingerprint,
            time,
            owed: self.pace.interval,
        };
        if self.buckets.len() < self.max_keys {
            self.push(bucket);
            return;
        }
        // A single time far ahead does not make every bucket look full.
        let place = self.free_place(time.min(self.before));
        self.buckets[place] = bucket;
        self.index.put_new(&fingerprint, place);
    }

    fn push(&mut self, bucket: Bucket) {
        self.index.make_room(&mut self.buckets, self.max_keys);
        self.index.put_new(&bucket.fingerprint, self.buckets.len());
        self.buckets.push(bucket);
    }

    /// Forgets one of the next keys: the first whose bucket is full, or else the one whose bucket will be full first.
    fn free_place(&mut self, now: i64) -> usize {
        let len = self.buckets.len();
        let mut least = u64::MAX;
        let mut found = self.hand;
        for _ in 0..LOOKED_AT.min(len) {
            let place = self.hand;
            self.hand = (place + 1) % len;
            let owed = self.buckets[place].owed_at(now);
            if owed < least {
                (least, found) = (owed, place);
            }
            if owed == 0 {
                break;
            }
        }
        self.forgotten += u64::from(least > 0);
        let old = self.buckets[found].fingerprint;
        if let Some((slot, _)) = self.index.find(&self.buckets, &old) {
            self.index.remove(slot);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::testing::numbers;

    const SECOND: i64 = 1_000_000_000;

    /// `burst` events, one of which comes back every second; events are late by a minute at most.
    fn a_second(burst: u64) -> Pace {
        let interval = SECOND as u64;
        Pace {
            interval,
            fill: burst * interval,
            late: 60 * interval,
        }
    }

    /// The same by definition: how much of a full bucket is left, and since when.
    struct Model {
        left: HashMap<u64, (i64, u64)>,
        pace: Pace,
    }

    impl Model {
        fn lets_through(&mut self, key: u64, time: i64) -> bool {
            let full = (time, self.pace.fill);
            let (clock, left) = self.left.entry(key).or_insert(full);
            if time > *clock {
                *left = left
                    .saturating_add(time.abs_diff(*clock))
                    .min(self.pace.fill);
                *clock = time;
            } else if clock.abs_diff(time) > self.pace.late {
                *clock = time;
            }
            let passes = *left >= self.pace.interval;
            if passes {
                *left -= self.pace.interval;
            }
            passes
        }
    }

    /// Saves, and goes on with another instance.
    fn restart(buckets: &mut Buckets) {
        let mut other = Buckets::new(buckets.max_keys, buckets.pace);
        other.restore(&buckets.save()).expect("it was saved");
        other.forgotten = buckets.take_forgotten();
        *buckets = other;
    }

    #[test]
    fn it_does_what_its_definition_says() {
        for (seed, (keys, interval, burst, late)) in [
            (1, 10, 1, 50),
            (3, 7, 5, 20),
            (40, 1_000, 3, 2_000),
            (3_000, 60_000, 2, 100),
            (3_000, 3, 1, 0),
        ]
        .into_iter()
        .enumerate()
        {
            let mut number = numbers(seed as u64);
            let fill = interval * burst;
            let pace = Pace {
                interval,
                fill,
                late,
            };
            let left = HashMap::new();
            let mut model = Model { left, pace };
            let mut buckets = Buckets::new(keys as usize, pace);
            let mut passed = 0;
            for at in 0..30_000_i64 {
                if number(900) == 0 {
                    restart(&mut buckets);
                }
                let wrong = match number(50) {
                    0 => 1 << 40,
                    1 => -(1 << 40),
                    2 => i64::MAX - at,
                    3 => i64::MIN,
                    _ => 0,
                };
                let right = at + number(30) as i64;
                let (key, time) = (number(keys), right.saturating_add(wrong));
                let expected = model.lets_through(key, time);
                let got = buckets.lets_through([key, 5], time);
                assert_eq!(got, expected, "event {at} of {pace:?}");
                passed += u64::from(got);
            }
            assert!((100..29_900).contains(&passed), "{passed} passed");
            assert_eq!(buckets.take_forgotten(), 0);
        }
    }

    #[test]
    fn a_wrong_time_neither_blocks_a_key_nor_opens_it() {
        let year = 365 * 86_400 * SECOND;
        for (burst, wrong) in [
            (1, year),
            (5, year),
            (5, -year),
            (5, i64::MAX),
            (5, i64::MIN),
            (5, 59 * SECOND),
            (5, -59 * SECOND),
        ] {
            let pace = a_second(burst);
            // Four events a second, of which one in a hundred has a wrong time.
            let passing = |wrong: i64| {
                let mut buckets = Buckets::new(1, pace);
                let mut passed: Vec<i64> = Vec::new();
                for at in 1..=4_000 {
                    let right = at * SECOND / 4;
                    let time = match at == 2_000 {
                        true => right.saturating_add(wrong),
                        false => right,
                    };
                    if buckets.lets_through([1, 1], time) {
                        passed.push(at);
                    }
                }
                passed
            };
            let (without, with) = (passing(0), passing(wrong));
            let is_near = wrong == 59 * SECOND;
            let fewer = if is_near { 59 } else { 1 };
            assert!(
                with.len() + fewer >= without.len()
                    && with.len() as u64 <= without.len() as u64 + burst + 1,
                "{wrong}: {} instead of {}",
                with.len(),
                without.len()
            );
            // An event passes in every second, but in those after a time that is less than a minute ahead.
            let gap = with.windows(2).map(|two| two[1] - two[0]).max();
            let longest = if is_near { 4 * 60 } else { 4 * 2 };
            assert!(gap.is_some_and(|gap| gap <= longest), "{wrong}: {gap:?}");
        }
    }

    #[test]
    fn no_more_pass_in_any_time_than_the_bucket_allows() {
        let mut number = numbers(3);
        let pace = a_second(10);
        let mut buckets = Buckets::new(1, pace);
        let mut time = 0;
        let mut passed = Vec::new();
        for _ in 0..5_000 {
            time += number(400_000_000) as i64 * i64::from(number(60) > 0)
                + number(2) as i64 * 10 * SECOND * i64::from(number(50) == 0);
            if buckets.lets_through([1, 1], time) {
                passed.push(time);
            }
        }
        assert!(passed.len() > 900);
        for (at, first) in passed.iter().enumerate() {
            for (more, last) in passed[at..].iter().enumerate() {
                let allowed = 10 + (last - first) / SECOND;
                assert!((more as i64) < allowed, "from {first} to {last}");
            }
        }
    }

    #[test]
    fn keys_with_a_full_bucket_go_first_and_are_not_counted() {
        let pace = a_second(3);
        let mut buckets = Buckets::new(4, pace);
        let known = |buckets: &Buckets| {
            let keys = buckets.buckets.iter().map(|bucket| bucket.fingerprint[0]);
            keys.collect::<Vec<_>>()
        };
        for key in [1, 1, 1, 2, 3, 3, 4] {
            assert!(buckets.lets_through([key, 0], 0));
        }
        // At first none is full: of the two with the most left, the one that came first goes.
        assert!(buckets.lets_through([5, 0], SECOND / 2));
        assert_eq!((known(&buckets), buckets.forgotten), (vec![1, 5, 3, 4], 1));
        // The fourth is full a second after its event.
        assert!(buckets.lets_through([1, 0], SECOND));
        assert!(buckets.lets_through([6, 0], SECOND));
        assert_eq!((known(&buckets), buckets.forgotten), (vec![1, 5, 3, 6], 1));
        // A single time far ahead makes no other one look full.
        assert!(buckets.lets_through([7, 0], 1_000 * SECOND));
        assert_eq!((known(&buckets), buckets.forgotten), (vec![1, 7, 3, 6], 2));
        // The one that is at its limit still is.
        assert!(!buckets.lets_through([1, 0], SECOND));
        // All are full here, but the one from the future, and the one that had an event just now.
        assert!(buckets.lets_through([3, 0], 900 * SECOND));
        for key in [8, 9] {
            assert!(buckets.lets_through([key, 0], 900 * SECOND));
        }
        assert_eq!((known(&buckets), buckets.forgotten), (vec![8, 7, 3, 9], 2));
    }

    #[test]
    fn a_later_run_goes_on_the_same_at_the_limit_of_keys() {
        let mut number = numbers(12);
        let pace = a_second(2);
        let mut one = Buckets::new(300, pace);
        let mut other = one.clone();
        for at in 0..50_000 {
            let key = [number(900), 1];
            let time = at * 4_000_000 + number(3) as i64 * SECOND;
            if number(500) == 0 {
                restart(&mut other);
            }
            assert_eq!(one.lets_through(key, time), other.lets_through(key, time));
        }
        assert!(one.forgotten > 0);
        assert_eq!(one.forgotten, other.forgotten);
        assert_eq!(one.save(), other.save());
    }

    #[test]
    fn what_cannot_have_been_saved_is_refused() {
        let mut buckets = Buckets::new(3, a_second(2));
        for key in 0..5 {
            buckets.lets_through([key, key], 0);
        }
        let saved = buckets.save();
        for length in 0..saved.len() {
            // Buckets are not counted.
            let is_whole = [40, 72, 104].contains(&length);
            let cut = buckets.clone().restore(&saved[..length]);
            assert_eq!(cut.is_ok(), is_whole, "with {length} bytes");
        }
        // The version, the place, and what the first key owes.
        for at in [0, 24, 40 + 31] {
            let mut other = saved.clone();
            other[at] = 9;
            assert!(buckets.clone().restore(&other).is_err(), "with 9 at {at}");
        }
        assert!(Buckets::new(2, a_second(2)).restore(&saved).is_err());
        let mut other = Buckets::new(3, a_second(2));
        other.restore(&saved).expect("it was saved");
        assert_eq!(other.save(), saved);
    }

    #[test]
    fn a_key_takes_no_more_memory_than_the_page_says() {
        for max_keys in [1_000_usize, 786_433, 1_000_000] {
            let mut buckets = Buckets::new(max_keys, a_second(1));
            for key in 0..max_keys as u64 + 1_000 {
                buckets.lets_through([key, 0], 0);
            }
            let list = buckets.buckets.capacity() * size_of::<Bucket>();
            let index = buckets.index.bytes();
            assert!(
                list + index <= max_keys * 54,
                "{max_keys} keys take {list} + {index} bytes"
            );
            assert_eq!(buckets.take_forgotten(), 1_000);
        }
    }
}
