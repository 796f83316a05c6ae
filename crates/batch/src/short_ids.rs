//! Short forms of event ids, for a store that keeps them as bytes.

use crate::origin::Origin;

/// Writes short forms of ids that follow from their place, in base64 for addresses (RFC 4648, without padding), so that a store
/// can keep them as bytes: the lower 120 bits of the stream id; a byte with the number of bytes of the start and of the length;
/// these, each without leading zero bytes. That is 22 to 42 letters, digits, `-` and `_`.
#[derive(Debug)]
pub struct ShortIds<'a> {
    origin: &'a Origin,
    stream: u128,
    /// The digits of the stream.
    prefix: [u8; 24],
}

impl<'a> ShortIds<'a> {
    /// Those of a batch.
    pub fn new(origin: &'a Origin) -> Self {
        let mut ids = Self {
            origin,
            stream: 0,
            prefix: [0; 24],
        };
        ids.turn_to(0);
        ids
    }

    fn turn_to(&mut self, stream: u128) {
        self.stream = stream;
        let pieces = [stream >> 72, stream >> 24, stream << 24];
        for (place, piece) in self.prefix.chunks_exact_mut(8).zip(pieces) {
            place.copy_from_slice(&base64(piece as u64));
        }
    }

    /// Appends the short form of a row's id; whether it has one. Ids that do not follow from a place have none. The same event has
    /// the same one in every batch.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) -> bool {
        let (stream, start, end) = self.origin.place(row);
        let len = end.wrapping_sub(start);
        let bytes_of = |number: u64| 8 - number.leading_zeros() / 8;
        let (start_bytes, len_bytes) = (bytes_of(start), bytes_of(len));
        if len_bytes > 7 || self.origin.has_own_id(row) {
            return false;
        }
        if stream != self.stream {
            self.turn_to(stream);
        }
        let head = u128::from(start_bytes << 4 | len_bytes);
        let head = (head << (8 * start_bytes)) | u128::from(start);
        let bits = 8 * (1 + start_bytes + len_bytes);
        let tail = ((head << (8 * len_bytes)) | u128::from(len)) << (128 - bits);
        let before = out.len();
        out.extend_from_slice(&[0; 44]);
        let text = &mut out[before..];
        text[..24].copy_from_slice(&self.prefix);
        text[20..28].copy_from_slice(&base64((tail >> 80) as u64));
        if bits > 48 {
            text[28..36].copy_from_slice(&base64((tail >> 32) as u64));
        }
        if bits > 96 {
            text[36..44].copy_from_slice(&base64((tail as u64) << 16));
        }
        out.truncate(before + 20 + bits.div_ceil(6) as usize);
        true
    }
}

/// The digits of the lower 48 bits in base64 for addresses, all at once.
fn base64(number: u64) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Each step halves the pieces, and leaves each half at the lower end of half the place.
    let mut digits = number & 0xffff_ffff_ffff;
    for (shift, upper, lower) in [
        (8, 0x0000_ffff_ff00_0000, 0x0000_0000_00ff_ffff),
        (4, 0x00ff_f000_00ff_f000, 0x0000_0fff_0000_0fff),
        (2, 0x0fc0_0fc0_0fc0_0fc0, 0x003f_003f_003f_003f),
    ] {
        digits = (digits & upper) << shift | digits & lower;
    }
    // 1 where the digit is at least that.
    let from = |least: u64| ((digits + (128 - least) * ONES) >> 7) & ONES;
    let text = digits + u64::from(b'A') * ONES + from(26) * u64::from(b'a' - b'Z' - 1)
        - from(52) * u64::from(b'z' + 1 - b'0')
        - from(62) * u64::from(b'9' + 1 - b'-')
        + from(63) * u64::from(b'_' - b'-' - 1);
    text.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::origin::Stream;

    #[test]
    fn short_places_are_base64_and_differ() {
        let numbers = [0, 1, 63, 64, 255, 256, 0xfff_ffff, u64::MAX / 300, u64::MAX];
        let mut seen = std::collections::HashSet::new();
        for (index, &start) in numbers.iter().enumerate() {
            for &len in &numbers {
                let stream = u128::MAX / 7 - index as u128;
                let mut out = b"x".to_vec();
                let end = start.wrapping_add(len);
                let place = (0, Arc::new(Stream::unnamed(stream)));
                let origin = Origin::new(vec![place], vec![start], vec![end]);
                let fits = ShortIds::new(&origin).write(0, &mut out);
                assert_eq!(fits, len < 1 << 56);
                if !fits {
                    assert_eq!(out, b"x");
                    continue;
                }
                let bytes = |number: u64| {
                    let bytes = number.to_be_bytes();
                    bytes[number.leading_zeros() as usize / 8..].to_vec()
                };
                let (from, long) = (bytes(start), bytes(len));
                let mut expected = stream.to_be_bytes()[1..].to_vec();
                expected.push((from.len() << 4 | long.len()) as u8);
                expected.extend(from.iter().chain(&long));
                assert_eq!(
                    str::from_utf8(&out[1..]).expect("ASCII"),
                    reference(&expected)
                );
                assert!(seen.insert(out));
            }
        }
        // Every digit.
        let mut all = Vec::new();
        for number in 0..8 {
            let digits = (0..8).fold(0, |bits, digit| bits << 6 | (number * 8 + digit));
            all.extend(base64(digits));
        }
        assert_eq!(all, DIGITS);
    }

    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    /// Bit by bit.
    fn reference(bytes: &[u8]) -> String {
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
        let digit = |at: usize| (at..at + 6).fold(0, |digit, at| digit << 1 | bit(at));
        let digits = (0..bytes.len() * 8).step_by(6).map(digit);
        digits
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect()
    }
}
