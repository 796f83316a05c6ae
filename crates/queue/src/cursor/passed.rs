//! What an output has passed beyond its cursor.
//!
//! In the body of a slot: an array of pairs, each how many sequences were not passed since the pair before it, or since zero,
//! and how many were passed then, which is never none. Such a set ends below 2⁶⁴; anything else makes the slot a damaged one.

use std::ops::Range;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::spans::Spans;

/// Runs of sequences that are kept at most, the lowest; what lies beyond them comes again after a restart.
pub const RUNS_MAX: usize = 128;

/// A set of sequences beyond a cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed(Spans);

impl Passed {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().len() == 0
    }

    /// Whether it has a sequence.
    pub fn contains(&self, sequence: u64) -> bool {
        self.0.contains(sequence)
    }

    /// Adds sequences.
    pub fn insert(&mut self, sequences: Range<u64>) {
        self.0.insert(sequences);
    }

    /// Its runs, ascending.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.0.iter()
    }

    /// Forgets runs that end at or below a sequence.
    pub(crate) fn forget_below(&mut self, sequence: u64) {
        self.0.forget_below(sequence);
    }

    /// What of it lies in a range: so many runs at most, the lowest.
    pub(crate) fn within(&self, range: &Range<u64>, runs_max: usize) -> Self {
        let mut within = Spans::default();
        let cut = self
            .runs()
            .map(|run| run.start.max(range.start)..run.end.min(range.end));
        for run in cut.filter(|run| !run.is_empty()).take(runs_max) {
            within.insert(run);
        }
        Self(within)
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut end = 0;
        self.runs().map(move |run| {
            let not_passed = run.start - std::mem::replace(&mut end, run.end);
            (not_passed, run.end - run.start)
        })
    }

    fn of_pairs(pairs: Vec<(u64, u64)>) -> Option<Self> {
        let mut spans = Spans::default();
        let mut end = 0u64;
        for (not_passed, passed) in pairs {
            let start = end.checked_add(not_passed)?;
            end = start.checked_add(passed).filter(|end| *end > start)?;
            spans.insert(start..end);
        }
        Some(Self(spans))
    }
}

impl Serialize for Passed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.pairs())
    }
}

impl<'de> Deserialize<'de> for Passed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::deserialize(deserializer)?;
        Self::of_pairs(pairs).ok_or_else(|| D::Error::custom("not a set of sequences"))
    }
}
