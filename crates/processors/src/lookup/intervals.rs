//! Ranges of numbers and networks of addresses, each with a row of the table.
//!
//! What covers a number, address or network is flattened when the table is read: a sorted list of *starts*, each with the
//! row that counts from there to the next start, or with none. So a network within another one costs nothing when an
//! address is looked up, which is one binary search. For IPv4 it is among the starts that share their first bits with the
//! address: about one ([`FourIntervals`]).
//!
//! Memory: each range or network makes at most two starts, one where it borders on the next. A start takes 10 to 12 bytes
//! for IPv4 addresses, and 20 bytes for IPv6 addresses and numbers.

/// Where no row counts.
const NONE: u32 = u32::MAX;

/// A range that was read, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub first: u128,
    pub last: u128,
    pub row: u32,
    /// Where it stands in the file.
    pub line: u32,
}

/// Two ranges of which one has to go: their lines, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub line: u32,
    pub earlier: u32,
}

/// Which ranges may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    /// None.
    Refused,
    /// One may lie in another, as networks do; the inner one counts. No two are the same.
    Allowed,
}

/// Starts in ascending order, with their rows.
#[derive(Debug, Default)]
pub(super) struct Starts(Vec<(u128, u32)>);

impl Starts {
    /// The starts of these ranges, in any order.
    ///
    /// # Errors
    /// Ranges that overlap and may not.
    pub fn of(mut intervals: Vec<Interval>, nesting: Nesting) -> Result<Self, Overlap> {
        intervals.sort_unstable_by_key(|it| (it.first, std::cmp::Reverse(it.last), it.line));
        let mut starts = Self::default();
        let mut around: Vec<Interval> = Vec::new();
        for interval in intervals {
            while let Some(inner) = around.pop_if(|inner| inner.last < interval.first) {
                starts.resume(inner.last + 1, around.last());
            }
            if let Some(outer) = around.last() {
                let is_same = (outer.first, outer.last) == (interval.first, interval.last);
                if is_same || nesting == Nesting::Refused {
                    return Err(Overlap {
                        line: outer.line.max(interval.line),
                        earlier: outer.line.min(interval.line),
                    });
                }
            }
            starts.set(interval.first, interval.row);
            around.push(interval);
        }
        while let Some(inner) = around.pop() {
            if let Some(next) = inner.last.checked_add(1) {
                starts.resume(next, around.last());
            }
        }
        Ok(starts)
    }

    /// Adds a range behind all others.
    pub fn push(&mut self, first: u128, last: u128, row: u32) {
        self.set(first, row);
        if let Some(next) = last.checked_add(1) {
            self.set(next, NONE);
        }
    }

    fn resume(&mut self, start: u128, outer: Option<&Interval>) {
        self.set(start, outer.map_or(NONE, |outer| outer.row));
    }

    fn set(&mut self, start: u128, row: u32) {
        if self.0.last().is_some_and(|(last, _)| *last == start) {
            self.0.pop();
        }
        let before = self.0.last().map_or(NONE, |(_, row)| *row);
        if before != row {
            self.0.push((start, row));
        }
    }
}

/// Ranges of numbers, or of IPv6 addresses.
#[derive(Debug)]
pub(super) struct Intervals {
    starts: Box<[u128]>,
    rows: Box<[u32]>,
}

impl From<Starts> for Intervals {
    fn from(Starts(starts): Starts) -> Self {
        Self {
            starts: starts.iter().map(|(start, _)| *start).collect(),
            rows: starts.iter().map(|(_, row)| *row).collect(),
        }
    }
}

impl Intervals {
    /// The row whose range holds the value.
    #[inline]
    pub fn find(&self, value: u128) -> Option<u32> {
        let behind = self.starts.partition_point(|start| *start <= value);
        let row = *self.rows.get(behind.checked_sub(1)?)?;
        (row != NONE).then_some(row)
    }
}

/// Ranges of IPv4 addresses.
#[derive(Debug)]
pub(super) struct FourIntervals {
    /// The starts, each with its row.
    starts: Box<[(u32, u32)]>,
    /// For each number that the first bits of an address can be, how many starts are below all addresses with these bits.
    below: Box<[u32]>,
    /// How many bits of an address are not among these first ones.
    shift: u32,
}

/// The most first bits by which starts are found.
const FIRST_BITS_MAX: u32 = 24;

impl From<Starts> for FourIntervals {
    fn from(Starts(starts): Starts) -> Self {
        // What begins behind the last address holds none.
        let starts = starts
            .into_iter()
            .filter_map(|(start, row)| Some((u32::try_from(start).ok()?, row)));
        let starts: Box<[(u32, u32)]> = starts.collect();
        let bits = starts.len().checked_ilog2().unwrap_or(0);
        let bits = bits.min(FIRST_BITS_MAX);
        let shift = 32 - bits;
        let below = |first: u64| {
            starts.partition_point(|(start, _)| u64::from(*start) >> shift < first) as u32
        };
        Self {
            below: (0..=1 << bits).map(below).collect(),
            starts,
            shift,
        }
    }
}

impl FourIntervals {
    /// The row whose range holds the address.
    #[inline]
    pub fn find(&self, address: u32) -> Option<u32> {
        let first = (u64::from(address) >> self.shift) as usize;
        let (low, high) = (self.below[first] as usize, self.below[first + 1] as usize);
        let within = &self.starts[low..high];
        let behind = low + within.partition_point(|(start, _)| *start <= address);
        let (_, row) = *self.starts.get(behind.checked_sub(1)?)?;
        (row != NONE).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intervals(ranges: &[(u128, u128)]) -> Vec<Interval> {
        let interval = |(index, (first, last)): (usize, &(u128, u128))| Interval {
            first: *first,
            last: *last,
            row: index as u32,
            line: index as u32 + 2,
        };
        ranges.iter().enumerate().map(interval).collect()
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        for (ranges, lines) in [
            (&[(1, 5), (6, 9)][..], None),
            (&[(1, 5), (5, 9)], Some((3, 2))),
            (&[(7, 9), (1, 20)], Some((3, 2))),
            (&[(4, 4), (1, 3), (4, 4)], Some((4, 2))),
            (&[(0, u128::MAX), (u128::MAX, u128::MAX)], Some((3, 2))),
        ] {
            let found = Starts::of(intervals(ranges), Nesting::Refused);
            let found = found.err().map(|overlap| (overlap.line, overlap.earlier));
            assert_eq!(found, lines, "{ranges:?}");
        }
        let same = intervals(&[(0, 7), (0, 3), (0, 7)]);
        let overlap = Starts::of(same, Nesting::Allowed).expect_err("two are the same");
        assert_eq!((overlap.line, overlap.earlier), (4, 2));
    }

    /// Networks in numbers of 32 bits, as a start and a length.
    fn networks() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let network =
            (any::<u32>(), 0..=32u32, any::<bool>()).prop_map(|(address, length, low)| {
                // Some lie close to each other.
                let address = if low { address % 64 } else { address };
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                (address & mask, length)
            });
        prop::collection::vec(network, 0..40)
    }

    proptest! {
        #[test]
        fn the_longest_prefix_counts(networks in networks(), addresses in prop::collection::vec(any::<u32>(), 0..40)) {
            let mut networks = networks;
            networks.sort();
            networks.dedup();
            let last = |(first, length): (u32, u32)| first | u32::MAX.checked_shr(length).unwrap_or(0);
            let ranges: Vec<(u128, u128)> = networks.iter().map(|it| (it.0.into(), last(*it).into())).collect();
            let starts = || Starts::of(intervals(&ranges), Nesting::Allowed).expect("no two are the same");
            prop_assert!(starts().0.len() <= 2 * networks.len());
            let (four, wide) = (FourIntervals::from(starts()), Intervals::from(starts()));
            // Both sides of every border, beside any addresses.
            let borders = networks.iter().flat_map(|it| [it.0.wrapping_sub(1), it.0, last(*it), last(*it).wrapping_add(1)]);
            for address in addresses.into_iter().chain(borders) {
                let inside = networks.iter().enumerate().filter(|(_, it)| (it.0..=last(**it)).contains(&address));
                let expected = inside.max_by_key(|(_, it)| it.1).map(|(row, _)| row as u32);
                prop_assert_eq!(four.find(address), expected);
                prop_assert_eq!(wide.find(address.into()), expected);
            }
        }
    }
}
