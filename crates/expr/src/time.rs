//! Points in time and spans between them, in nanoseconds.

use datetime::rfc3339::TimeReader;
use datetime::{NANOS_PER_SECOND, Zone};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Nanoseconds as seconds with decimals.
pub(crate) fn seconds(nanos: i64) -> f64 {
    let (seconds, below) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
    seconds as f64 + below as f64 / NANOS_PER_SECOND as f64
}

/// Reads an RFC 3339 time (also with an offset such as `+0200`), in nanoseconds since 1970.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    parse_next_time(text, &mut TimeReader::default())
}

/// The same, with a reader that may have read others.
#[inline]
pub(crate) fn parse_next_time(text: &[u8], reader: &mut TimeReader) -> Option<i64> {
    // Most texts are no times at all: a look at the first bytes saves the attempt.
    if !matches!(
        text,
        [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'0'..=b'9', b'-', ..]
    ) {
        return None;
    }
    reader.read(text).or_else(|| parse_unusual_time(text))
}

/// What a faster reader does not take.
#[cold]
fn parse_unusual_time(text: &[u8]) -> Option<i64> {
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

/// A part of a point in time or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimePart {
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

impl TimePart {
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

/// A zone by name, or an offset. CEL has those without a sign and with an hour of one digit too: `02:00`, `-9:30`.
pub(crate) fn zone_named(name: &str) -> Option<Zone> {
    let (sign, digits) = match name.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', name.strip_prefix('+').unwrap_or(name)),
    };
    match digits.as_bytes() {
        [b'0'..=b'9', b':', ..] => Zone::named(&format!("{sign}0{digits}")),
        [b'0'..=b'9', ..] => Zone::named(&format!("{sign}{digits}")),
        _ => Zone::named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_as_cel_has_them() {
        for (name, seconds) in [
            ("+02:00", Some(7_200)),
            ("02:00", Some(7_200)),
            ("2:00", Some(7_200)),
            ("-9:30", Some(-34_200)),
            ("+0530", Some(19_800)),
            ("02", Some(7_200)),
            ("24:00", None),
            ("02:60", None),
            ("+", None),
            ("", None),
        ] {
            assert_eq!(zone_named(name), seconds.map(Zone::Fixed), "{name}");
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
