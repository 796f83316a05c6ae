//! Points in time and spans between them, in nanoseconds.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, SpanRelativeTo, Timestamp, Zoned};

const UNITS: [(&str, i64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("d", 86_400 * NANOS_PER_SECOND),
];

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Nanoseconds as seconds with decimals.
pub(crate) fn seconds(nanos: i64) -> f64 {
    let (seconds, below) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
    seconds as f64 + below as f64 / NANOS_PER_SECOND as f64
}

/// Reads an RFC 3339 time (also with an offset such as `+0200`), in nanoseconds since 1970.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    // Most texts are no times at all: a look at the first bytes saves the attempt.
    if !matches!(
        text,
        [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..]
    ) {
        return None;
    }
    let time: Timestamp = std::str::from_utf8(text).ok()?.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// Whether this is an RFC 3339 time that [`parse_time`] has no nanoseconds for.
pub(crate) fn is_beyond(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let Some((Ok(local), zone)) = text
        .split_at_checked("2015-05-18T07:00:00".len())
        .map(|(local, zone)| (local.parse::<DateTime>(), zone))
    else {
        return false;
    };
    let is_year = |year: &i16| (1678..2262).contains(year);
    !is_year(&local.year()) && (zone.ends_with(['Z', 'z']) || zone.contains(['+', '-']))
}

/// Reads a duration: `90s`, `1h30m`, `1.5s`, `-250ms`, `2d`, `0`; in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i128;
    while !rest.is_empty() {
        let len = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(len);
        let unit_len = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let nanos = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        total += scaled(number, nanos)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Reads a duration in whichever way people write it, with days of 24 hours; in nanoseconds.
pub(crate) fn parse_loose_duration(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    // `1,500 ms` may be one and a half or fifteen hundred, and `5m ago` is no span but a point in time.
    let mut after_comma = text.split(',').skip(1);
    if after_comma.any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        || text.to_ascii_lowercase().ends_with("ago")
    {
        return None;
    }
    let span: Span = text.replace('μ', "µ").parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    i64::try_from(duration.as_nanos()).ok()
}

/// `number`, digits with perhaps a point in them, times `nanos`.
fn scaled(number: &str, nanos: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: i64 = whole.parse().ok()?;
    if fraction.len() > 18 {
        return None;
    }
    let parts: i64 = fraction.parse().ok()?;
    let below = i128::from(parts) * i128::from(nanos) / 10i128.pow(fraction.len() as u32);
    Some(i128::from(whole) * i128::from(nanos) + below)
}

/// The longest text of a duration is `-9223372036.854775808s`.
pub(crate) const DURATION_LEN_MAX: usize = 22;

/// A duration as CEL writes it: seconds with as many decimals as it takes.
pub(crate) fn duration_text(nanos: i64, buffer: &mut [u8; DURATION_LEN_MAX]) -> &[u8] {
    use std::io::Write;
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, below) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let mut room = &mut buffer[..];
    write!(room, "{sign}{seconds}.{below:09}").expect("it has room for every duration");
    let mut len = DURATION_LEN_MAX - room.len();
    let digits = buffer[..len].iter().rev();
    len -= digits.take_while(|byte| **byte == b'0').count();
    if buffer[len - 1] == b'.' {
        len -= 1;
    }
    buffer[len] = b's';
    &buffer[..=len]
}

/// A part of a point in time or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

impl Part {
    /// The part of a point in time, in a zone. As CEL counts: months, days of the week, of
    /// the month and of the year from zero, `Date` from one.
    pub fn of_time(self, nanos: i64, zone: &TimeZone) -> Option<i64> {
        let time = zoned(nanos, zone)?;
        Some(match self {
            Self::FullYear => time.year().into(),
            Self::Month => i64::from(time.month()) - 1,
            Self::Date => time.day().into(),
            Self::DayOfMonth => i64::from(time.day()) - 1,
            Self::DayOfWeek => time.weekday().to_sunday_zero_offset().into(),
            Self::DayOfYear => i64::from(time.day_of_year()) - 1,
            Self::Hours => time.hour().into(),
            Self::Minutes => time.minute().into(),
            Self::Seconds => time.second().into(),
            Self::Milliseconds => time.millisecond().into(),
        })
    }

    /// The whole duration in this unit, or its milliseconds below a second; nothing for parts of a date.
    pub fn of_duration(self, nanos: i64) -> Option<i64> {
        match self {
            Self::Hours => Some(nanos / (3_600 * NANOS_PER_SECOND)),
            Self::Minutes => Some(nanos / (60 * NANOS_PER_SECOND)),
            Self::Seconds => Some(nanos / NANOS_PER_SECOND),
            Self::Milliseconds => Some(nanos % NANOS_PER_SECOND / 1_000_000),
            _ => None,
        }
    }
}

/// A point in time in a zone.
pub(crate) fn zoned(nanos: i64, zone: &TimeZone) -> Option<Zoned> {
    let time = Timestamp::from_nanosecond(i128::from(nanos)).ok()?;
    Some(time.to_zoned(zone.clone()))
}

/// A zone of the time zone database, or an offset as CEL has it: `+02:00`, `-02:00`, `02:00`.
pub(crate) fn zone_named(name: &str) -> Option<TimeZone> {
    let is_offset = name.starts_with(|c: char| c.is_ascii_digit());
    let (sign, digits) = match name.strip_prefix(['+', '-']) {
        Some(digits) => (if name.starts_with('-') { -1 } else { 1 }, digits),
        None if is_offset => (1, name),
        None if name == "UTC" => return Some(TimeZone::UTC),
        None => return TimeZone::get(name).ok(),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    let offset = Offset::from_seconds(sign * (hours * 3_600 + minutes * 60)).ok()?;
    Some(offset.to_time_zone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write() {
        let s = NANOS_PER_SECOND;
        let cases = [
            ("90s", Some(90 * s), "90s"),
            ("1h30m", Some(5_400 * s), "5400s"),
            ("1.5s", Some(3 * s / 2), "1.5s"),
            ("-250ms", Some(-s / 4), "-0.25s"),
            ("2d", Some(172_800 * s), "172800s"),
            ("1µs", Some(1_000), "0.000001s"),
            ("0", Some(0), "0s"),
            ("0s", Some(0), "0s"),
            ("10s", Some(10 * s), "10s"),
            (
                "-9223372036.854775807s",
                Some(-i64::MAX),
                "-9223372036.854775807s",
            ),
            ("", None, ""),
            ("-", None, ""),
            ("5", None, ""),
            ("s", None, ""),
            ("5 s", None, ""),
            ("1.2.3s", None, ""),
            (".s", None, ""),
            ("5parsecs", None, ""),
            ("999999999d", None, ""),
        ];
        for (text, nanos, written) in cases {
            assert_eq!(parse_duration(text), nanos, "{text}");
            if let Some(nanos) = nanos {
                let mut buffer = [0; DURATION_LEN_MAX];
                assert_eq!(duration_text(nanos, &mut buffer), written.as_bytes());
            }
        }
    }

    #[test]
    fn times_read() {
        let cases = [
            ("1970-01-01T00:00:01Z", Some(NANOS_PER_SECOND)),
            (
                "1970-01-01T02:00:01.5+02:00",
                Some(3 * NANOS_PER_SECOND / 2),
            ),
            (
                "1970-01-01T02:00:01.500000+0200",
                Some(3 * NANOS_PER_SECOND / 2),
            ),
            ("1970-01-01T00:00:01", None),
            ("1970-01-01", None),
            ("1970-13-01T00:00:01Z", None),
            ("9999-01-01T00:00:00Z", None),
            ("soon", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_time(text.as_bytes()), nanos, "{text}");
        }
    }
}
