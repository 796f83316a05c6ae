//! Times as messages write them.
//!
//! ```text
//! RFC 3339   2003-10-11T22:14:15[.003][Z / +02:00 / +0200 / +02]           a blank for `T`, no seconds
//! basic      20031011T221415[.003][Z / +02:00 / +0200 / +02]
//! epoch      1065910455[.003]                                              behind a priority
//! RFC 3164   [* / .][2003 ]Oct 11 [2003 ]22:14:15[.003][ 2003]     a day below ten has one or two spaces before it, or a zero
//! ```
//! In RFC 3164 an hour below ten may have one digit, and seconds may be missing.

use datetime::civil::days_in_month;
use datetime::zone;

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
        [b'0'..=b'9', _, _, _, b'-', ..] => rfc3339(line, at, Seconds::Optional),
        [b'0'..=b'9', _, _, _, _, _, _, _, b'T', ..] => basic(line, at),
        [b'0'..=b'9', _, _, _, b' ', ..] => match year(line, at) {
            Some(year) => rfc3164(line, at + 5, Some(year)),
            None => Err(Problem::new(NEITHER, at)),
        },
        _ => rfc3164(line, at, None),
    }
}

/// Whether a time of day may do without seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seconds {
    Required,
    Optional,
}

/// Reads a time of RFC 3339 at `at`, and gives where it ends.
#[inline]
pub(super) fn rfc3339(line: &[u8], at: usize, seconds: Seconds) -> Result<(Stamp, usize), Problem> {
    let text = &line[at..];
    let (Some(year), Some([b'-', _, _, b'-', _, _, b'T' | b' '])) =
        (number(text, 0, 4), text.get(4..11))
    else {
        return Err(Problem::new(NO_TIME, at));
    };
    let year = i64::from(year);
    let month = month_number(line, at + 5)?;
    let day = day_of(line, at + 8, year, month)?;
    let (second_of_day, end) = match seconds {
        Seconds::Required => time_of_day(line, at + 11)?,
        Seconds::Optional => loose_time_of_day(line, at + 11)?,
    };
    zoned(line, end, (year, month, day), second_of_day)
}

/// Reads what follows the seconds of a time with a full date, at `at`: the fraction and the zone. Gives where they end.
#[inline]
fn zoned(
    line: &[u8],
    at: usize,
    (year, month, day): (i64, u32, u32),
    second_of_day: u32,
) -> Result<(Stamp, usize), Problem> {
    let (nanos, end) = fraction(line, at)?;
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

#[inline]
fn month_number(line: &[u8], at: usize) -> Result<u32, Problem> {
    let month = number(line, at, 2).filter(|month| (1..=12).contains(month));
    month.ok_or(Problem::new("no month", at))
}

#[inline]
fn day_of(line: &[u8], at: usize, year: i64, month: u32) -> Result<u32, Problem> {
    let day = number(line, at, 2).filter(|day| (1..=days_in_month(year, month)).contains(day));
    day.ok_or(Problem::new("expected a day of the month", at))
}

/// Reads a time in the basic format of ISO 8601 at `at`, and gives where it ends.
#[cold]
fn basic(line: &[u8], at: usize) -> Result<(Stamp, usize), Problem> {
    let year = number(line, at, 4).ok_or(Problem::new(NEITHER, at))?.into();
    let month = month_number(line, at + 4)?;
    let day = day_of(line, at + 6, year, month)?;
    let wrong = Problem::new("expected a time of day", at + 9);
    let part = |offset| number(line, at + offset, 2).ok_or(wrong);
    let (Some(second_of_day), end) = (seconds_of(part(9)?, part(11)?, part(13)?), at + 15) else {
        return Err(wrong);
    };
    zoned(line, end, (year, month, day), second_of_day)
}

/// Reads seconds since 1970 at `at`, in ten digits with or without a fraction and with a blank behind them: nanoseconds, and where
/// they end.
pub(super) fn epoch(line: &[u8], at: usize) -> Option<(i64, usize)> {
    let seconds = i64::from(number(line, at, 5)?) * 100_000 + i64::from(number(line, at + 5, 5)?);
    let (nanos, end) = fraction(line, at + 10).ok()?;
    let is_epoch = line[at] != b'0' && line.get(end) == Some(&b' ');
    let seconds = seconds.checked_mul(1_000_000_000).filter(|_| is_epoch)?;
    Some((seconds.checked_add(nanos.into())?, end))
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
    let (second_of_day, end) = loose_time_of_day(line, next)?;
    let (nanos, mut end) = fraction(line, end)?;
    if known.is_none()
        && let Some((year, year_end)) = year_behind(line, end)
    {
        known = Some(year);
        end = year_end;
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

/// The year that stands behind a time or its zone, and where it ends. The beginning of an address such as `2001:db8::1` is none.
#[inline]
pub(super) fn year_behind(line: &[u8], at: usize) -> Option<(i64, usize)> {
    let is_alone = matches!(
        line.get(at + 5..)?,
        [] | [b' ', ..] | [b':'] | [b':', b' ', ..]
    );
    let year = (line.get(at) == Some(&b' ') && is_alone).then(|| year(line, at + 1));
    Some((year??, at + 5))
}

/// As [`time_of_day`], with an hour of one digit or without seconds too.
#[inline]
fn loose_time_of_day(line: &[u8], at: usize) -> Result<(u32, usize), Problem> {
    time_of_day(line, at).or_else(|problem| short_time_of_day(line, at).ok_or(problem))
}

#[cold]
fn short_time_of_day(line: &[u8], at: usize) -> Option<(u32, usize)> {
    let digits = 1 + usize::from(line.get(at + 1)? != &b':');
    let hour = number(line, at, digits)?;
    let minute_at = at + digits + 1;
    let minute = number(line, minute_at, 2).filter(|_| line[minute_at - 1] == b':')?;
    let end = minute_at + 2;
    let (second, end) = match line.get(end) {
        Some(b':') => (number(line, end + 1, 2)?, end + 3),
        None | Some(b' ' | b'Z' | b'+' | b'-' | b']') if digits == 2 => (0, end),
        _ => return None,
    };
    Some((seconds_of(hour, minute, second)?, end))
}

#[inline]
fn seconds_of(hour: u32, minute: u32, second: u32) -> Option<u32> {
    match (hour, minute, second) {
        (0..24, 0..60, 0..=60) => Some(hour * 3600 + minute * 60 + second),
        _ => None,
    }
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
    match line.get(at) {
        Some(b'Z') => Ok((Some(0), at + 1)),
        Some(b'+' | b'-') => match zone::offset(&line[at..]) {
            // Digits behind it are minutes that no hour has.
            Some((seconds, length))
                if !matches!(
                    line[at + length..],
                    [b'0'..=b'9', ..] | [b':', b'0'..=b'9', ..]
                ) =>
            {
                Ok((Some(seconds), at + length))
            }
            _ => Err(Problem::new("expected an offset such as `+02:00`", at)),
        },
        _ => Ok((None, at)),
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
