//! What is remembered of content that was passed: its last bytes, and hashes at many places before them.
//!
//! A copy may end anywhere in the content of its original, which is truncated by the time anybody can compare the two. So
//! hashes of a few bytes are taken at every multiple of [`GRID`], and the newest of them are kept in memory. Two contents
//! whose hashes agree at all places that both have are the same but, at most, for the bytes behind the last such place.

use std::collections::VecDeque;

use codec::CHECK_BYTES;

/// The distance of two places in bytes.
const GRID: u64 = 1024;

/// Bytes before a place that are hashed.
const WINDOW: usize = 64;

/// Hashes that are kept: those of the last MiB, which is far more than is written between a copy and the truncation.
const HASHES_MAX: usize = 1024;

/// Hashes that must agree. Fewer may all lie in a header that different files have in common.
const HASHES_MIN: usize = 4;

/// What is remembered of content up to some place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trail {
    /// Offset behind the last byte.
    end: u64,
    /// The last bytes, [`CHECK_BYTES`] at most.
    tail: Vec<u8>,
    /// Hashes at the multiples of [`GRID`] up to `end`, the newest last and none left out.
    hashes: VecDeque<u32>,
}

impl Trail {
    /// The beginning of a trail at `end`, where `tail` are the bytes before.
    pub(crate) fn starting_at(end: u64, tail: &[u8]) -> Self {
        Self {
            end,
            tail: tail[tail.len().saturating_sub(CHECK_BYTES)..].to_vec(),
            hashes: VecDeque::new(),
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
            self.add_place((place - at) as usize, bytes);
            place += GRID;
        }
        let kept = CHECK_BYTES.saturating_sub(bytes.len());
        self.tail.drain(..self.tail.len().saturating_sub(kept));
        let new = &bytes[bytes.len().saturating_sub(CHECK_BYTES)..];
        self.tail.extend_from_slice(new);
        self.end = end;
    }

    /// Hashes the window that ends behind the first `before` of `bytes`.
    fn add_place(&mut self, before: usize, bytes: &[u8]) {
        let mut window = [0; WINDOW];
        let new = before.min(WINDOW);
        window[WINDOW - new..].copy_from_slice(&bytes[before - new..before]);
        let Some(start) = self.tail.len().checked_sub(WINDOW - new) else {
            // The content was joined right before this place.
            return self.hashes.clear();
        };
        window[..WINDOW - new].copy_from_slice(&self.tail[start..]);
        if self.hashes.len() == HASHES_MAX {
            self.hashes.pop_front();
        }
        self.hashes.push_back(crc32fast::hash(&window));
    }

    /// Whether a copy that ends earlier has the same content, as far as hashes tell: the last ones of the copy must be known.
    pub(crate) fn agrees_with(&self, copy: &Self) -> bool {
        let ahead = (self.end / GRID).checked_sub(copy.end / GRID);
        let Some(ahead) = ahead.and_then(|ahead| usize::try_from(ahead).ok()) else {
            return false;
        };
        let mut agree = 0;
        for (mine, other) in self
            .hashes
            .iter()
            .rev()
            .skip(ahead)
            .zip(copy.hashes.iter().rev())
        {
            if mine != other {
                return false;
            }
            agree += 1;
        }
        agree >= HASHES_MIN
    }

    /// Where a trail must begin, so that it has all the hashes it can have at `end`.
    pub(crate) fn start_before(end: u64) -> u64 {
        (end / GRID).saturating_sub(HASHES_MAX as u64) * GRID
    }
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
            // What lies too far back is not known, and few hashes prove nothing.
            assert!(!original.agrees_with(&trail(&all[..900_000], 5_000)));
            assert!(!trail(&all[..5_000], pieces).agrees_with(&trail(&all[..4_000], 99)));
            assert!(trail(&all[..5_000], pieces).agrees_with(&trail(&all[..4_096], 99)));
        }
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
        assert_eq!(copy.hashes.len(), HASHES_MAX);
        assert_eq!(copy.tail(), &all[end - CHECK_BYTES..end]);
        assert!(original.agrees_with(&copy));
        copy.add(start, &all[..10]);
        assert!(copy.hashes.is_empty(), "what does not follow begins anew");
    }
}
