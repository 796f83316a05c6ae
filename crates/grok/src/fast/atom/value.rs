//! Numbers, addresses, quoted strings and names.

use crate::fast::lanes::{self, Either};

pub(super) fn digit(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_digit)
}

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;

/// The top bit of every byte of `word` that is no digit.
#[inline(always)]
fn no_digits(word: u64) -> u64 {
    let low = word ^ (ONES * 0x30);
    (((low & (ONES * 0x7f)) + ONES * 0x76) | low) & (ONES * 0x80)
}

/// The end of the digits that begin at `at`.
#[inline(always)]
pub(super) fn digits_end(text: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(chunk) = text.get(end..).and_then(|rest| rest.first_chunk::<8>()) {
        let others = no_digits(u64::from_le_bytes(*chunk));
        if others != 0 {
            return end + others.trailing_zeros() as usize / 8;
        }
        end += 8;
    }
    while digit(text, end) {
        end += 1;
    }
    end
}

/// Whether `at` can begin an IPv6 address: a colon, or one to four hex digits and a colon.
#[inline(always)]
pub(in crate::fast) fn may_be_ipv6(text: &[u8], at: usize) -> bool {
    for offset in 0..5 {
        match text.get(at + offset) {
            Some(b':') => return true,
            Some(b) if b.is_ascii_hexdigit() => {}
            _ => return false,
        }
    }
    false
}

/// `IPV4`: four numbers up to 255, of up to three digits, with no digit before or after.
#[inline(always)]
pub(in crate::fast) fn ipv4(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && text[start - 1].is_ascii_digit() {
        return None;
    }
    if let Some(chunk) = text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        return ipv4_in(chunk).map(|length| start + length);
    }
    let (mut at, mut fits) = (start, true);
    for part in 0..4 {
        let (length, valid, next) = octet(four_bytes(text, at));
        fits &= valid & (part == 3 || next == b'.');
        at += length + 1;
    }
    fits.then_some(at - 1)
}

/// The length of the IPv4 address that 16 bytes begin with. Where the numbers end is found for all of them at
/// once, so that what follows the address need not wait for one number after the other.
#[inline(always)]
fn ipv4_in(chunk: &[u8; 16]) -> Option<usize> {
    let bytes = u128::from_le_bytes(*chunk);
    let (low, high) = (bytes as u64, (bytes >> 64) as u64);
    let others = top_bits(no_digits(low)) | top_bits(no_digits(high)) << 8;
    let points = top_bits(is_point(low)) | top_bits(is_point(high)) << 8;
    let first = others.trailing_zeros() as usize;
    let behind_first = others & others.wrapping_sub(1);
    let second = behind_first.trailing_zeros() as usize;
    let behind_second = behind_first & behind_first.wrapping_sub(1);
    let third = behind_second.trailing_zeros() as usize;
    let behind_third = behind_second & behind_second.wrapping_sub(1);
    let end = behind_third.trailing_zeros() as usize;
    let separators = others & !behind_third;
    // Later numbers are only within the bytes when the earlier ones have three digits at most.
    if first > 3 || second > 7 || third > 11 || end > 15 || separators & !points != 0 {
        return None;
    }
    let mut fits = true;
    for at in [0, first + 1, second + 1, third + 1] {
        fits &= octet(four_bytes(chunk, at)).1;
    }
    fits.then_some(end)
}

/// The top bits of eight bytes, of which nothing else is set.
#[inline(always)]
fn top_bits(word: u64) -> u32 {
    ((word >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

/// The top bit of every byte of `word` that is a point.
#[inline(always)]
fn is_point(word: u64) -> u64 {
    let low = word ^ (ONES * u64::from(b'.'));
    !(((low & (ONES * 0x7f)) + ONES * 0x7f) | low) & (ONES * 0x80)
}

/// Four bytes of the text, with zeros behind its end.
#[inline(always)]
fn four_bytes(text: &[u8], at: usize) -> u32 {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(chunk) => u32::from_le_bytes(*chunk),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u32::from(byte)),
    }
}

/// How many digits begin a word, whether they are a number up to 255 of up to three digits, and the byte after
/// them. There are no branches on lengths, which change from line to line.
#[inline(always)]
fn octet(word: u32) -> (usize, bool, u8) {
    let low = word ^ 0x3030_3030;
    let others = (((low & 0x7f7f_7f7f) + 0x7676_7676) | low) & 0x8080_8080;
    let length = others.trailing_zeros() / 8;
    // The digits behind zeros, the first one highest: numbers of three digits are ordered as their digits are.
    let digits = low.wrapping_shl(32 - 8 * length).swap_bytes();
    let valid = length.wrapping_sub(1) < 3 && digits <= 0x02_05_05;
    (length as usize, valid, word.wrapping_shr(8 * length) as u8)
}

/// `HTTPDUSER`: an account name that a blank follows, so no mail address begins here.
#[inline(always)]
pub(super) fn httpd_user(text: &[u8], start: usize) -> Option<usize> {
    if text[start..].starts_with(b"- ") {
        return Some(start + 1);
    }
    let name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let length = text[start..].iter().position(|b| !name(b))?;
    (length > 0 && text[start + length] == b' ').then_some(start + length)
}

/// `BASE10NUM`: an atomic group, so there is one choice only.
#[inline(always)]
pub(in crate::fast) fn number(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && matches!(text[start - 1], b'0'..=b'9' | b'.' | b'+' | b'-') {
        return None;
    }
    if let Some(chunk) = text.get(start..)?.first_chunk::<8>() {
        // Nearly all numbers are a few digits and something else than a point.
        let word = u64::from_le_bytes(*chunk);
        let others = no_digits(word);
        let bits = others.trailing_zeros() & !7;
        if bits.wrapping_sub(8) < 56 {
            if (word >> bits) as u8 != b'.' {
                return Some(start + bits as usize / 8);
            }
            let behind = (others & (others - 1)).trailing_zeros() & !7;
            if behind < 64 && behind > bits + 8 {
                return Some(start + behind as usize / 8);
            }
        }
    }
    let mut at = start;
    if matches!(text.get(at)?, b'+' | b'-') {
        at += 1;
    }
    let whole = digits_end(text, at.min(text.len()));
    if text.get(whole) == Some(&b'.') && digit(text, whole + 1) {
        return Some(digits_end(text, whole + 1));
    }
    (whole > at).then_some(whole)
}

/// `QUOTEDSTRING`: the innermost groups are atomic and no item begins with the quote, so there is one
/// choice only.
#[inline(always)]
pub(in crate::fast) fn quoted(text: &[u8], start: usize) -> Option<usize> {
    let quote = *text.get(start)?;
    if !matches!(quote, b'"' | b'\'' | b'`') || (start > 0 && text[start - 1] == b'\\') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at = lanes::find(text, at, Either(quote, b'\\'))?;
        if text[at] == quote {
            return Some(at + 1);
        }
        // Whatever is escaped is part of the item, also a line feed.
        text.get(at + 1)?;
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Blanks behind a text switch to the code that takes many bytes at once.
    const BLANKS: &str = "                ";

    proptest! {
        #[test]
        fn an_address_is_the_same_with_many_bytes_behind_it(
            text in "[0-9]{0,4}[.x]?[0-9]{1,3}[.][0-9]{1,4}[.][0-9]{1,3}[.: ]?[0-9]{0,2}",
        ) {
            let padded = text.clone() + BLANKS;
            prop_assert_eq!(ipv4(text.as_bytes(), 0), ipv4(padded.as_bytes(), 0));
        }

        #[test]
        fn a_number_is_the_same_with_many_bytes_behind_it(text in "[+-]?[0-9]{0,4}[.]{0,2}[0-9]{0,4}[.]?") {
            let padded = text.clone() + BLANKS;
            prop_assert_eq!(number(text.as_bytes(), 0), number(padded.as_bytes(), 0));
        }
    }
}
