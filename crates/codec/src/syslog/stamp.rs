//! Times as messages write them.
//!
//! ```text
//! RFC 3339   2003-10-11T22:14:15[.003][Z / +02:00 / +0200]                 a blank for `T`
//! RFC 3164   [* / .][2003 ]Oct 11 [2003 ]22:14:15[.003][ 2003]     a day below ten has one or two spaces before it, or a zero
//! ```

use super::Problem;

/// A time as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub year: Option<i64>,
    /// 1 to 12.
    pub month: u32,
    /// A day that the month has, in leap years if the year is not known.
    pub day: u32,
    /// 0 to 86,400: a leap second counts on.
    pub second_of_day: u32,
    pub nanos: u32,
    /// Seconds east of Greenwich.
    pub offset: Option<i32>,
}

const NO_TIME: &str = "expected a time in RFC 3339 format";
const NEITHER: &str = "expected a priority or a time";

/// Reads a time in any form at `at`, and gives where it ends.
#[inline]
pub(super) fn any(line: &[u8], at: usize) -> Result<(Stamp, usize), Problem> {
    // A device's mark: its clock is not set, or not in step.
    let at = at + usize::from(matches!(line.get(at), Some(b'*' | b'.')));
    match &line[at..] {
        [b'0'..=b'9', _, _, _, b'-', ..] => rfc3339(line, at),
        [b'0'..=b'9', _, _, _, b' ', ..] => match year(line, at) {
            Some(year) => rfc3164(line, at + 5, Some(year)),
            None => Err(Problem::new(NEITHER, at)),
        },
        _ => rfc3164(line, at, None),
    }
}

/// Reads a time of RFC 3339 at `at`, and gives where it ends.
#[inline]
pub(super) fn rfc3339(line: &[u8], at: usize) -> Result<(Stamp, usize), Problem> {
    let text = &line[at..];
    let (Some(year), Some([b'-', _, _, b'-', _, _, b'T' | b' '])) =
        (number(text, 0, 4), text.get(4..11))
    else {
        return Err(Problem::new(NO_TIME, at));
    };
    let year = i64::from(year);
    let month = number(text, 5, 2).unwrap_or(0);
    if !(1..=12).contains(&month) {
        return Err(Problem::new("no month", at + 5));
    }
    let day = number(text, 8, 2).unwrap_or(0);
    if !(1..=days_in_month(year, month)).contains(&day) {
        return Err(Problem::new("expected a day of the month", at + 8));
    }
    let (second_of_day, end) = time_of_day(line, at + 11)?;
    let (nanos, end) = fraction(line, end)?;
    let (offset, end) = offset(line, end)?;
    let stamp = Stamp {
        year: Some(year),
        month,
        day,
        second_of_day,
        nanos,
        offset,
    };
    Ok((stamp, end))
}

/// Reads a time of RFC 3164 from the month's name on, and gives where it ends.
#[inline]
fn rfc3164(line: &[u8], at: usize, mut known: Option<i64>) -> Result<(Stamp, usize), Problem> {
    let text = &line[at..];
    let (Some(month), Some(b' ')) = (month(text), text.get(3)) else {
        return Err(Problem::new(NEITHER, at));
    };
    let day_at = at + 4 + usize::from(text.get(4) == Some(&b' '));
    let (day, mut next) = match (number(line, day_at, 2), number(line, day_at, 1)) {
        (Some(day), _) => (day, day_at + 2),
        (None, Some(day)) => (day, day_at + 1),
        _ => return Err(Problem::new("expected a day of the month", day_at)),
    };
    if line.get(next) != Some(&b' ') {
        return Err(Problem::new("expected a day of the month", day_at));
    }
    next += 1;
    if known.is_none()
        && line.get(next + 4) == Some(&b' ')
        && let Some(year) = year(line, next)
    {
        known = Some(year);
        next += 5;
    }
    let (second_of_day, end) = time_of_day(line, next)?;
    let (nanos, mut end) = fraction(line, end)?;
    if known.is_none()
        && line.get(end) == Some(&b' ')
        && matches!(line.get(end + 5), None | Some(b' ' | b':'))
        && let Some(year) = year(line, end + 1)
    {
        known = Some(year);
        end += 5;
    }
    // A year that is not known may be a leap year.
    if !(1..=days_in_month(known.unwrap_or(0), month)).contains(&day) {
        return Err(Problem::new("expected a day of the month", day_at));
    }
    let stamp = Stamp {
        year: known,
        month,
        day,
        second_of_day,
        nanos,
        offset: None,
    };
    Ok((stamp, end))
}

/// The number of a month by the three letters at the start of `text`.
#[inline]
pub(super) fn month(text: &[u8]) -> Option<u32> {
    let name = text.first_chunk::<3>()?.map(|byte| byte | 0x20);
    Some(match &name {
        b"jan" => 1,
        b"feb" => 2,
        b"mar" => 3,
        b"apr" => 4,
        b"may" => 5,
        b"jun" => 6,
        b"jul" => 7,
        b"aug" => 8,
        b"sep" => 9,
        b"oct" => 10,
        b"nov" => 11,
        b"dec" => 12,
        _ => return None,
    })
}

/// A year that a log of today may hold, so that other numbers of four digits are not taken for one.
#[inline]
fn year(line: &[u8], at: usize) -> Option<i64> {
    let year = number(line, at, 4)?;
    (1970..2200).contains(&year).then_some(year.into())
}

/// `22:14:15` in seconds, and where it ends.
#[inline]
fn time_of_day(line: &[u8], at: usize) -> Result<(u32, usize), Problem> {
    let wrong = Problem::new("expected a time of day", at);
    let Some([_, _, b':', _, _, b':', _, _]) = line.get(at..at + 8) else {
        return Err(wrong);
    };
    match (
        number(line, at, 2),
        number(line, at + 3, 2),
        number(line, at + 6, 2),
    ) {
        (Some(hour @ 0..24), Some(minute @ 0..60), Some(second @ 0..=60)) => {
            Ok((hour * 3600 + minute * 60 + second, at + 8))
        }
        _ => Err(wrong),
    }
}

/// The nanoseconds of `.003` or `,003` at `at`, and where it ends; nothing there is zero.
#[inline]
fn fraction(line: &[u8], at: usize) -> Result<(u32, usize), Problem> {
    if !matches!(line.get(at), Some(b'.' | b',')) {
        return Ok((0, at));
    }
    let digits = &line[at + 1..];
    let len = digits.iter().position(|byte| !byte.is_ascii_digit());
    let len = len.unwrap_or(digits.len());
    if len == 0 {
        return Err(Problem::new(
            "expected a digit after the decimal point of the seconds",
            at + 1,
        ));
    }
    const SCALES: [u32; 10] = [
        1_000_000_000,
        100_000_000,
        10_000_000,
        1_000_000,
        100_000,
        10_000,
        1_000,
        100,
        10,
        1,
    ];
    let counted = len.min(9);
    let value = digits[..counted]
        .iter()
        .fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
    Ok((value * SCALES[counted], at + 1 + len))
}

/// The offset at `at`, and where it ends.
#[inline]
fn offset(line: &[u8], at: usize) -> Result<(Option<i32>, usize), Problem> {
    let sign = match line.get(at) {
        Some(b'Z') => return Ok((Some(0), at + 1)),
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Ok((None, at)),
    };
    let minutes_at = at + 3 + usize::from(line.get(at + 3) == Some(&b':'));
    match (number(line, at + 1, 2), number(line, minutes_at, 2)) {
        (Some(hours @ 0..24), Some(minutes @ 0..60)) => {
            let seconds = (hours * 3600 + minutes * 60) as i32;
            Ok((Some(sign * seconds), minutes_at + 2))
        }
        _ => Err(Problem::new("expected an offset such as `+02:00`", at)),
    }
}

/// The number that `len` digits at `at` make; none when something there is no digit.
#[inline]
fn number(text: &[u8], at: usize, len: usize) -> Option<u32> {
    let digits = text.get(at..at + len)?;
    digits.iter().try_fold(0, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value * 10 + u32::from(digit))
    })
}

/// Whether the year has a 29th of February.
#[inline]
pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[inline]
fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
