//! Ranges of ordinals, which of the events ever written to a log, or of sequences.
//!
//! Invariant: ranges are not empty and do not touch each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of ordinals, by its ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(BTreeMap<u64, u64>);

impl Spans {
    /// Adds a range; how many of its ordinals are new.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let new = self.outside(&range);
        let (mut start, mut end) = (range.start, range.end);
        // Those that begin behind the end do not touch it; of those before it the last ones may.
        while let Some((&from, &until)) = self.0.range(..=end).next_back() {
            if until < start {
                break;
            }
            (start, end) = (start.min(from), end.max(until));
            self.0.remove(&from);
        }
        self.0.insert(start, end);
        new
    }

    /// The parts of a range that are not in the set, ascending.
    pub(crate) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        if range.is_empty() {
            return gaps;
        }
        let mut at = range.start;
        let before = self.0.range(..range.start).next_back();
        for (&from, &until) in before.into_iter().chain(self.0.range(range.clone())) {
            if from > at {
                gaps.push(at..from);
            }
            at = at.max(until);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// How many ordinals of a range are not in the set.
    pub(crate) fn outside(&self, range: &Range<u64>) -> u64 {
        let gaps = self.gaps(range).into_iter();
        gaps.map(|gap| gap.end - gap.start).sum()
    }

    /// Whether it is in the set.
    pub(crate) fn contains(&self, ordinal: u64) -> bool {
        let before = self.0.range(..=ordinal).next_back();
        before.is_some_and(|(_, until)| ordinal < *until)
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Forgets the ranges that end at or below an ordinal.
    pub(crate) fn forget_below(&mut self, ordinal: u64) {
        while let Some(first) = self.0.first_entry() {
            if *first.get() > ordinal {
                break;
            }
            first.remove();
        }
    }

    /// Forgets the lowest ranges until there are no more than so many.
    pub(crate) fn keep_highest(&mut self, count: usize) {
        while self.0.len() > count {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ranges in prop::collection::vec((0u64..60, 0u64..12), 0..20), probe in (0u64..60, 0u64..20)) {
            let (mut spans, mut model) = (Spans::default(), BTreeSet::new());
            for (start, length) in ranges {
                let range = start..start + length;
                let new = range.clone().filter(|one| model.insert(*one)).count() as u64;
                prop_assert_eq!(spans.insert(range), new);
            }
            let all: Vec<u64> = spans.iter().flatten().collect();
            prop_assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
            let ends: Vec<_> = spans.iter().collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start));
            let range = probe.0..probe.0 + probe.1;
            prop_assert!((0..80).all(|one| spans.contains(one) == model.contains(&one)));
            let outside: Vec<u64> = range.clone().filter(|one| !model.contains(one)).collect();
            let gaps = spans.gaps(&range);
            prop_assert!(gaps.iter().all(|gap| !gap.is_empty()));
            prop_assert_eq!(gaps.into_iter().flatten().collect::<Vec<_>>(), outside);
        }
    }
}
