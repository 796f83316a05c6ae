//! What is remembered of content that was passed: its last bytes, and hashes at many places before them.
//!
//! A copy may end anywhere in the content of its original, which is truncated by the time anybody can compare the two. So
//! hashes of a few bytes are taken at places all over the content and kept in memory: many of its beginning and of its last
//! part, fewer in between. Two contents whose hashes agree at all places that both have are the same but, at most, for the
//! bytes behind the last such place.
//!
//! A log is written to while it is copied, so its copy may end anywhere. A followed file therefore has in memory a hash of 64
//! bytes for every KiB of its first 128 KiB and of its last MiB, and for every 16 KiB of the 128 MiB before its end, which
//! take at most 37 KiB. The registry stores the ends at which the file or a copy of it was seen.

use std::collections::VecDeque;

use codec::CHECK_BYTES;

/// The distance of two places in bytes, at the beginning and in the last part.
const GRID: u64 = 1024;

/// Bytes before a place that are hashed.
const WINDOW: usize = 64;

/// How far the beginning reaches.
const FIRST_BYTES: u64 = 128 << 10;

/// Hashes that are kept of the last part: those of a MiB.
const LAST_MAX: usize = 1024;

/// The distance of two places in between.
const WIDE_GRID: u64 = 16 << 10;

/// Hashes that are kept in between: those of 128 MiB. A reader may get so far while a copy waits to be looked at.
const WIDE_MAX: usize = 8192;

/// Hashes that must agree. Fewer may all lie in a header that different files have in common.
const HASHES_MIN: usize = 4;

/// What is remembered of content up to some place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    /// Offset behind the last byte.
    end: u64,
    /// The last bytes, [`CHECK_BYTES`] at most.
    tail: Vec<u8>,
    /// Hashes at the multiples of [`GRID`] from the start on, where it is known, up to [`FIRST_BYTES`].
    first: Vec<u32>,
    /// Hashes at the multiples of [`GRID`] up to `end`, the newest last and none left out.
    last: VecDeque<u32>,
    /// The same at the multiples of [`WIDE_GRID`].
    wide: VecDeque<u32>,
}

impl Trail {
    /// The beginning of a trail at `end`, where `tail` are the bytes before.
    pub(crate) fn starting_at(end: u64, tail: &[u8]) -> Self {
        Self {
            end,
            tail: tail[tail.len().saturating_sub(CHECK_BYTES)..].to_vec(),
            ..Self::default()
        }
    }

    /// Offset behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The last bytes, [`CHECK_BYTES`] at most.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Takes the bytes at offset `at`. Where they do not follow what was taken before, that is forgotten.
    pub(crate) fn add(&mut self, at: u64, bytes: &[u8]) {
        if at != self.end {
            *self = Self::starting_at(at, &[]);
        }
        let end = at + bytes.len() as u64;
        let mut place = (at / GRID + 1) * GRID;
        while place <= end {
            match self.hash((place - at) as usize, bytes) {
                Some(hash) => self.keep(place, hash),
                // The content was joined right before this place.
                None => self.forget(),
            }
            place += GRID;
        }
        let kept = CHECK_BYTES.saturating_sub(bytes.len());
        self.tail.drain(..self.tail.len().saturating_sub(kept));
        let new = &bytes[bytes.len().saturating_sub(CHECK_BYTES)..];
        self.tail.extend_from_slice(new);
        self.end = end;
    }

    /// Hashes the window that ends behind the first `before` of `bytes`.
    fn hash(&self, before: usize, bytes: &[u8]) -> Option<u32> {
        if before >= WINDOW {
            return Some(crc32fast::hash(&bytes[before - WINDOW..before]));
        }
        let mut window = [0; WINDOW];
        window[WINDOW - before..].copy_from_slice(&bytes[..before]);
        let start = self.tail.len().checked_sub(WINDOW - before)?;
        window[..WINDOW - before].copy_from_slice(&self.tail[start..]);
        Some(crc32fast::hash(&window))
    }

    /// Keeps the hash at a place.
    fn keep(&mut self, place: u64, hash: u32) {
        if place <= FIRST_BYTES && place == (self.first.len() as u64 + 1) * GRID {
            self.first.push(hash);
        }
        keep_last(&mut self.last, LAST_MAX, hash);
        if place.is_multiple_of(WIDE_GRID) {
            keep_last(&mut self.wide, WIDE_MAX, hash);
        }
    }

    fn forget(&mut self) {
        self.first.clear();
        self.last.clear();
        self.wide.clear();
    }

    /// Whether a copy that ends earlier has the same content, as far as hashes tell: enough of it must be known.
    pub(crate) fn agrees_with(&self, copy: &Self) -> bool {
        let first = agreeing(self.first.iter().zip(&copy.first));
        // Where the copy is as long as the beginning or shorter, that says it all.
        let is_first = copy.end <= FIRST_BYTES && self.first.len() >= copy.first.len();
        let last = self.agreeing_last(copy, GRID, |trail| &trail.last);
        let wide = self.agreeing_last(copy, WIDE_GRID, |trail| &trail.wide);
        let (Some(first), Some(last), Some(wide)) = (first, last, wide) else {
            return false;
        };
        let first = if is_first { first } else { 0 };
        self.end >= copy.end && first.max(last).max(wide) >= HASHES_MIN
    }

    /// How many of the hashes before the end of a copy agree; none where one does not.
    fn agreeing_last(
        &self,
        copy: &Self,
        grid: u64,
        hashes: impl Fn(&Self) -> &VecDeque<u32>,
    ) -> Option<usize> {
        let ahead = (self.end / grid).saturating_sub(copy.end / grid);
        let known = hashes(self).iter().rev().skip(ahead as usize);
        agreeing(known.zip(hashes(copy).iter().rev()))
    }

    /// Where a trail must begin, so that it has all the hashes of the last part that it can have at `end`.
    pub(crate) fn start_before(end: u64) -> u64 {
        (end / GRID).saturating_sub(LAST_MAX as u64) * GRID
    }
}

/// How many hashes agree; none where one does not.
fn agreeing<'a>(mut pairs: impl Iterator<Item = (&'a u32, &'a u32)>) -> Option<usize> {
    pairs.try_fold(0, |count, (one, other)| (one == other).then_some(count + 1))
}

fn keep_last(hashes: &mut VecDeque<u32>, max: usize, hash: u32) {
    if hashes.len() == max {
        hashes.pop_front();
    }
    hashes.push_back(hash);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..len).map(|_| random.u8(..)).collect()
    }

    fn trail(content: &[u8], pieces: usize) -> Trail {
        let mut trail = Trail::default();
        for piece in content.chunks(pieces) {
            trail.add(trail.end(), piece);
        }
        trail
    }

    #[test]
    fn a_copy_that_ends_earlier_agrees_however_both_were_read() {
        let all = content(2_000_000);
        for pieces in [1_000_000, 4096, 700, 63, 1024] {
            let original = trail(&all, pieces);
            for end in [1_999_999, 1_950_000, 1_000_000] {
                assert!(original.agrees_with(&trail(&all[..end], 5_000)), "{end}");
            }
            // Few hashes prove nothing.
            assert!(!trail(&all[..5_000], pieces).agrees_with(&trail(&all[..4_000], 99)));
            assert!(trail(&all[..5_000], pieces).agrees_with(&trail(&all[..4_096], 99)));
        }
    }

    #[test]
    fn a_copy_agrees_however_far_the_original_went_on() {
        let all = content(9_000_000);
        let original = trail(&all, 100_000);
        for end in [5_000, 100_000, 131_072, 140_000, 1_000_000, 7_000_000] {
            let copy = trail(&all[..end], 9_000);
            assert!(original.agrees_with(&copy), "{end}");
            let mut other = all[..end].to_vec();
            for place in [
                1023,
                4 * 1024 - 20,
                end / WIDE_GRID as usize * WIDE_GRID as usize,
            ] {
                if place == 0 {
                    continue;
                }
                other[place - 1] ^= 1;
                assert!(
                    !original.agrees_with(&trail(&other, 9_000)),
                    "{end} {place}"
                );
                other[place - 1] ^= 1;
            }
        }
        // The last part of a copy that was not read from its start says enough, too.
        let mut copy = Trail::starting_at(6_000_000, &[]);
        copy.add(6_000_000, &all[6_000_000..7_000_000]);
        assert!(original.agrees_with(&copy));
        // And so does what is known of an original that was not.
        let mut rest = Trail::starting_at(50_000, &[]);
        rest.add(50_000, &all[50_000..]);
        assert!(rest.agrees_with(&trail(&all[..200_000], 9_000)));
        assert!(
            !rest.agrees_with(&trail(&all[..60_000], 9_000)),
            "nothing is known"
        );
    }

    #[test]
    fn other_content_does_not_agree() {
        let all = content(100_000);
        let original = trail(&all, 4096);
        let mut other = all[..50_000].to_vec();
        other[20 * GRID as usize - 1] ^= 1;
        assert!(!original.agrees_with(&trail(&other, 4096)));
        assert!(
            !trail(&all[..50_000], 4096).agrees_with(&original),
            "it is longer"
        );
    }

    #[test]
    fn a_trail_that_begins_in_the_middle_is_as_good_from_there_on() {
        let all = content(3_000_000);
        let original = trail(&all, 70_000);
        let end = 2_900_000;
        let start = Trail::start_before(end as u64);
        let mut copy = Trail::starting_at(start, &[]);
        copy.add(start, &all[start as usize..end]);
        assert_eq!(copy.last.len(), LAST_MAX);
        assert!(copy.first.is_empty());
        assert_eq!(copy.tail(), &all[end - CHECK_BYTES..end]);
        assert!(original.agrees_with(&copy));
        copy.add(start, &all[..10]);
        assert!(copy.last.is_empty(), "what does not follow begins anew");
    }
}
