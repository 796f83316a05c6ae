//! Dates in their usual spelling: only where the definition's first choice is the whole date, whatever follows.

use super::value::{ONES, digit, digits_end};

/// Whether the low three bytes are the usual short name of a month.
#[inline(always)]
fn is_month(name: u32) -> bool {
    const fn month(name: &[u8; 3]) -> u32 {
        u32::from_le_bytes([name[0], name[1], name[2], 0])
    }
    const NAMES: [u32; 12] = [
        month(b"Jan"),
        month(b"Feb"),
        month(b"Mar"),
        month(b"Apr"),
        month(b"May"),
        month(b"Jun"),
        month(b"Jul"),
        month(b"Aug"),
        month(b"Sep"),
        month(b"Oct"),
        month(b"Nov"),
        month(b"Dec"),
    ];
    NAMES
        .iter()
        .fold(false, |found, &known| found | (known == name & 0xff_ffff))
}

/// What eight bytes have to be, tested at once.
struct Shape {
    base: u64,
    add: u64,
    mask: u64,
}

impl Shape {
    /// `0` to `9` stand for a digit up to this one, `?` for any byte, everything else for itself.
    const fn new(spec: &[u8; 8]) -> Shape {
        let (mut base, mut add, mut mask) = ([0; 8], [0; 8], [0; 8]);
        let mut at = 0;
        while at < 8 {
            match spec[at] {
                b'?' => {}
                largest @ b'0'..=b'9' => {
                    (base[at], add[at], mask[at]) = (b'0', 0x7f - (largest - b'0'), 0x80);
                }
                byte => (base[at], add[at], mask[at]) = (byte, 0x7f, 0x80),
            }
            at += 1;
        }
        Shape {
            base: u64::from_le_bytes(base),
            add: u64::from_le_bytes(add),
            mask: u64::from_le_bytes(mask),
        }
    }

    /// Gives 0 when the word has the shape. A byte that is too large, or has its top bit set, leaves a bit.
    #[inline(always)]
    fn misfits(&self, word: u64) -> u64 {
        let low = word ^ self.base;
        (((low & (ONES * 0x7f)) + self.add) | low) & self.mask
    }
}

/// The number that the digits at two bytes of a word are.
#[inline(always)]
fn two_at(word: u64, byte: u32) -> u32 {
    let pair = (word >> (8 * byte)) as u32 & 0x0f0f;
    (pair & 0xff) * 10 + (pair >> 8)
}

#[inline(always)]
fn word_at(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..)?
        .first_chunk::<8>()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

/// Two digits as a number; something above 99 for anything else.
fn two(tens: u8, ones: u8) -> u32 {
    let (tens, ones) = (
        u32::from(tens.wrapping_sub(b'0')),
        u32::from(ones.wrapping_sub(b'0')),
    );
    if ones > 9 { 1000 } else { tens * 10 + ones }
}

/// `dd/Mon/yyyy:hh:mm:ss +hhmm`.
#[inline(always)]
pub(super) fn http_date(text: &[u8], start: usize) -> Option<usize> {
    const DAY_TO_YEAR: Shape = Shape::new(b"39/???/9");
    const YEAR_TO_MINUTE: Shape = Shape::new(b"999:29:5");
    const MINUTE_TO_ZONE: Shape = Shape::new(b":59:59 ?");
    let day = word_at(text, start)?;
    let hour = word_at(text, start + 8)?;
    let second = word_at(text, start + 14)?;
    let misfits =
        DAY_TO_YEAR.misfits(day) | YEAR_TO_MINUTE.misfits(hour) | MINUTE_TO_ZONE.misfits(second);
    let fits = (misfits == 0)
        & (two_at(day, 0).wrapping_sub(1) < 31)
        & (two_at(hour, 4) < 24)
        & is_month((day >> 24) as u32);
    if !fits {
        return None;
    }
    // A zone of four digits leaves nothing to compute, so that what follows the date need not wait for it.
    const ZONE: Shape = Shape::new(b"??9999??");
    if let Some(zone) = word_at(text, start + 19)
        && ZONE.misfits(zone) == 0
        && matches!((zone >> 8) as u8, b'+' | b'-')
        && !((zone >> 48) as u8).is_ascii_digit()
    {
        return Some(start + 26);
    }
    let zone = start + 21 + usize::from(matches!((second >> 56) as u8, b'+' | b'-'));
    let end = digits_end(text, zone);
    (end > zone).then_some(end)
}

/// `yyyy-mm-ddThh:mm:ss.fff+hh:mm`; fraction and zone may be missing.
#[inline(always)]
pub(super) fn iso8601(text: &[u8], start: usize) -> Option<usize> {
    const YEAR_TO_MONTH: Shape = Shape::new(b"9999-19-");
    const DAY_TO_MINUTE: Shape = Shape::new(b"39?29:59");
    const HOUR_TO_SECOND: Shape = Shape::new(b"29:59:59");
    let month = word_at(text, start)?;
    let day = word_at(text, start + 8)?;
    let hour = word_at(text, start + 11)?;
    let misfits =
        YEAR_TO_MONTH.misfits(month) | DAY_TO_MINUTE.misfits(day) | HOUR_TO_SECOND.misfits(hour);
    let fits = (misfits == 0)
        & (two_at(month, 5).wrapping_sub(1) < 12)
        & (two_at(day, 0).wrapping_sub(1) < 31)
        & matches!((day >> 16) as u8, b'T' | b' ')
        & (two_at(hour, 0) < 24);
    if !fits {
        return None;
    }
    let end = fraction_end(text, start + 19);
    match text.get(end) {
        Some(b'Z') => Some(end + 1),
        Some(b'+' | b'-') => {
            let hour: &[u8; 2] = text.get(end + 1..end + 3)?.try_into().ok()?;
            let at = end + 3 + usize::from(text.get(end + 3) == Some(&b':'));
            let minute: &[u8; 2] = text.get(at..at + 2)?.try_into().ok()?;
            (two(hour[0], hour[1]) < 24 && two(minute[0], minute[1]) < 60).then_some(at + 2)
        }
        _ => Some(end),
    }
}

/// The end of `[:.,][0-9]+`, if it stands at `at`; otherwise `at`.
fn fraction_end(text: &[u8], at: usize) -> usize {
    if matches!(text.get(at), Some(b':' | b'.' | b',')) && digit(text, at + 1) {
        return digits_end(text, at + 1);
    }
    at
}

/// `Mon dd hh:mm:ss`.
pub(super) fn syslog_time(text: &[u8], start: usize) -> Option<usize> {
    if start > 0
        && !(text[start - 1].is_ascii()
            && !text[start - 1].is_ascii_alphanumeric()
            && text[start - 1] != b'_')
    {
        return None;
    }
    let [m1, m2, m3, b' '] = *<&[u8; 4]>::try_from(text.get(start..start + 4)?).ok()? else {
        return None;
    };
    let mut at = start + 4;
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    let length = digits_end(text, at) - at;
    let day = match length {
        1 => two(b'0', text[at]),
        2 => two(text[at], text[at + 1]),
        _ => 1000,
    };
    at += length;
    let [b' ', h, i, b':', m, n, b':', s, t] = *<&[u8; 9]>::try_from(text.get(at..at + 9)?).ok()?
    else {
        return None;
    };
    let fits = is_month(u32::from_le_bytes([m1, m2, m3, 0]))
        & (1..=31).contains(&day)
        & (two(h, i) < 24)
        & (two(m, n) < 60)
        & (two(s, t) < 60);
    let end = fraction_end(text, at + 9);
    (fits && !digit(text, end)).then_some(end)
}
