//! Numbers, addresses, quoted strings and names.

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
    let (mut at, mut fits) = (start, true);
    for part in 0..4 {
        let (length, valid, next) = octet(four_bytes(text, at));
        fits &= valid & (part == 3 || next == b'.');
        at += length + 1;
    }
    fits.then_some(at - 1)
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
#[inline]
pub(in crate::fast) fn number(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && matches!(text[start - 1], b'0'..=b'9' | b'.' | b'+' | b'-') {
        return None;
    }
    if let Some(chunk) = text.get(start..)?.first_chunk::<8>() {
        // Nearly all numbers are a few digits and something else than a point.
        let word = u64::from_le_bytes(*chunk);
        let bits = no_digits(word).trailing_zeros() & !7;
        if bits.wrapping_sub(8) < 56 && (word >> bits) as u8 != b'.' {
            return Some(start + bits as usize / 8);
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
#[inline]
pub(in crate::fast) fn quoted(text: &[u8], start: usize) -> Option<usize> {
    let quote = *text.get(start)?;
    if !matches!(quote, b'"' | b'\'' | b'`') || (start > 0 && text[start - 1] == b'\\') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at = quote_or_backslash(text, at, quote)?;
        if text[at] == quote {
            return Some(at + 1);
        }
        // An escaped line feed is no item: the dot does not take it.
        if *text.get(at + 1)? == b'\n' {
            return None;
        }
        at += 2;
    }
}

/// The first quote or backslash at or after `from`. Many quoted strings are so short that the call of a search
/// would cost more than they do.
#[inline(always)]
fn quote_or_backslash(text: &[u8], from: usize, quote: u8) -> Option<usize> {
    let rest = text.get(from..)?;
    if let Some(chunk) = rest.first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let ends =
            zeros(word ^ (ONES * u64::from(quote))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if ends != 0 {
            return Some(from + ends.trailing_zeros() as usize / 8);
        }
    }
    memchr::memchr2(quote, b'\\', rest).map(|found| from + found)
}

/// The top bit of the first byte of `word` that is zero, and maybe of bytes after it.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES * 0x80)
}
