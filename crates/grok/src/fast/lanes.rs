//! Searches 64 bytes at a time, so that most fields need one step and no branch that depends on their length.
//!
//! Bits stand for bytes, the lowest for the first. The last step of a text takes its last 64 bytes once more and
//! shifts out those that lie before; texts that are shorter than that are searched byte by byte.

use wide::u8x16;

const WIDTH: usize = 64;

/// What is searched for.
pub(super) trait Wanted: Copy {
    /// All ones in the lanes of wanted bytes.
    fn lanes(self, bytes: u8x16) -> u8x16;
    /// Whether one byte is wanted.
    fn byte(self, byte: u8) -> bool;
}

/// Either of two bytes.
#[derive(Clone, Copy)]
pub(super) struct Either(pub u8, pub u8);

impl Wanted for Either {
    #[inline(always)]
    fn lanes(self, bytes: u8x16) -> u8x16 {
        bytes.simd_eq(u8x16::splat(self.0)) | bytes.simd_eq(u8x16::splat(self.1))
    }

    #[inline(always)]
    fn byte(self, byte: u8) -> bool {
        byte == self.0 || byte == self.1
    }
}

/// A byte up to this one.
#[derive(Clone, Copy)]
pub(super) struct AtMost(pub u8);

impl Wanted for AtMost {
    #[inline(always)]
    fn lanes(self, bytes: u8x16) -> u8x16 {
        bytes.min(u8x16::splat(self.0)).simd_eq(bytes)
    }

    #[inline(always)]
    fn byte(self, byte: u8) -> bool {
        byte <= self.0
    }
}

/// The first wanted byte at or after `from`.
#[inline(always)]
pub(super) fn find(text: &[u8], from: usize, wanted: impl Wanted) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk()) {
        let found = mask(chunk, wanted);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += WIDTH;
    }
    if at >= text.len() {
        return None;
    }
    let Some(chunk) = text.last_chunk() else {
        let rest = text[at..].iter().position(|&byte| wanted.byte(byte));
        return rest.map(|found| at + found);
    };
    let before = at - (text.len() - WIDTH);
    let found = mask(chunk, wanted) >> before;
    (found != 0).then(|| at + found.trailing_zeros() as usize)
}

/// The wanted bytes among 64.
#[inline(always)]
fn mask(chunk: &[u8; WIDTH], wanted: impl Wanted) -> u64 {
    let (parts, _) = chunk.as_chunks::<16>();
    let mut mask = 0;
    for (part, bytes) in parts.iter().enumerate() {
        let lanes = wanted.lanes(u8x16::new(*bytes));
        mask |= u64::from(lanes.to_bitmask()) << (16 * part);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_search_byte_by_byte() {
        for length in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
            for place in 0..=length {
                let mut text = vec![0xff; length];
                if let Some(byte) = text.get_mut(place) {
                    *byte = b' ';
                }
                for from in [0, 1, place.saturating_sub(1), place, length] {
                    let expected = (place >= from && place < length).then_some(place);
                    assert_eq!(find(&text, from, AtMost(b' ')), expected, "{length} {from}");
                    let either = Either(b'x', b' ');
                    assert_eq!(find(&text, from, either), expected, "{length} {from}");
                }
            }
        }
    }
}
