//! What the stack of a sample has in common with that of the sample before.
//!
//! A day of a host has tens of thousands of stacks of some thirty frames each, most of which begin alike. Files of [`super::write`] hold them
//! in the order of their tree, so that a reader needs to look only at the frames that are new: two to ten of a stack. Whether the
//! other ones are the same is seen by comparing bytes. Files in any other order are read right as well.

use prost::encoding::decode_varint;

use super::file::PprofError;

/// Goes from stack to stack.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// The locations of the last stack, as they are in the file: from the innermost on.
    bytes: Vec<u8>,
    /// For each of its locations, from the outermost on, how far from the end of the bytes it begins.
    distances: Vec<usize>,
    /// New locations, from the innermost on, with their distances.
    fresh: Vec<(u64, usize)>,
}

impl Stacks {
    /// Goes to a stack. Gives how many of the last one's outermost locations it has as well.
    pub fn go_to(&mut self, bytes: &[u8]) -> Result<usize, PprofError> {
        let shared = shared(&self.bytes, bytes);
        while self.distances.last().is_some_and(|last| *last > shared) {
            self.distances.pop();
        }
        let kept = self.distances.len();
        self.fresh.clear();
        let mut rest = bytes;
        while rest.len() > shared {
            let distance = rest.len();
            self.fresh.push((decode_varint(&mut rest)?, distance));
        }
        let distances = self.fresh.iter().rev().map(|(_, distance)| *distance);
        self.distances.extend(distances);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        Ok(kept)
    }

    /// The other locations of the stack, from the outermost on.
    pub fn fresh(&self) -> impl Iterator<Item = u64> {
        self.fresh.iter().rev().map(|(location, _)| *location)
    }
}

/// How many bytes two lists of numbers end in that are the same, whole numbers of both.
fn shared(one: &[u8], other: &[u8]) -> usize {
    // Eight bytes at a time, then the last ones.
    let words = one.rchunks_exact(8).zip(other.rchunks_exact(8));
    let mut shared = 8 * words.take_while(|(one, other)| one == other).count();
    let rest = |bytes: &'_ [u8]| bytes.len() - shared;
    let (one_rest, other_rest) = (&one[..rest(one)], &other[..rest(other)]);
    let pairs = one_rest.iter().rev().zip(other_rest.iter().rev());
    shared += pairs.take_while(|(one, other)| one == other).count();
    // A number ends with the first byte below 128.
    let is_start = |bytes: &[u8], shared: usize| {
        let before = bytes[..bytes.len() - shared].last();
        before.is_none_or(|byte| *byte < 0x80)
    };
    while shared > 0 && !(is_start(one, shared) && is_start(other, shared)) {
        shared -= 1;
    }
    shared
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::encode_varint;

    use super::*;

    fn bytes(locations: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        // From the innermost on.
        for location in locations.iter().rev() {
            encode_varint(*location, &mut bytes);
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_new_make_the_stack(
            stacks in proptest::collection::vec(
                proptest::collection::vec(proptest::sample::select(vec![1_u64, 128, 129, 16_384, 300]), 0..6),
                0..12,
            ),
        ) {
            let (mut walk, mut known) = (Stacks::default(), Vec::new());
            for stack in stacks {
                let kept = walk.go_to(&bytes(&stack)).unwrap();
                let common = known.iter().zip(&stack).take_while(|(one, other)| one == other).count();
                prop_assert_eq!(kept, common);
                known.truncate(kept);
                known.extend(walk.fresh());
                prop_assert_eq!(&known, &stack);
            }
        }
    }

    #[test]
    fn a_number_that_does_not_end_is_an_error() {
        let mut stacks = Stacks::default();
        assert!(stacks.go_to(&[1, 0x80]).is_err());
        assert!(stacks.go_to(&[2, 0x80]).is_err());
    }
}
