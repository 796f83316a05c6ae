//! Points in time as RFC 3339 text, written in UTC.
//!
//! The calendar is the proleptic Gregorian one. A count of nanoseconds in 64 bits reaches from 1677-09-21 to 2262-04-11, so
//! that years always have four digits.

use crate::civil::{date_of, days_from_civil, days_in_month};
use crate::zone::{offset, two_digits};
use crate::{DAY, NANOS_PER_SECOND};

/// Two decimal digits for each number below a hundred, with room up to a power of two, so that a mask replaces the
/// check of the bounds.
const PAIRS: [[u8; 2]; 128] = {
    let mut pairs = [[0; 2]; 128];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Appends a time in nanoseconds since 1970-01-01T00:00:00Z as `2024-02-29T12:34:56.789Z`: with milliseconds, and with
/// micro- or nanoseconds where these are not zero.
#[inline]
pub fn write_rfc3339(out: &mut Vec<u8>, nanos_since_epoch: i64) {
    let nanos = nanos_since_epoch.rem_euclid(NANOS_PER_SECOND) as u32;
    write_seconds_and_nanos(out, nanos_since_epoch.div_euclid(NANOS_PER_SECOND), nanos);
}

/// [`write_rfc3339`] for seconds since the epoch and the nanoseconds (below 10⁹) that come on top. `false`, and nothing
/// written, outside the years 0 to 9999, which RFC 3339 cannot express.
#[inline]
pub fn write_seconds_and_nanos(out: &mut Vec<u8>, seconds: i64, nanos: u32) -> bool {
    const FIRST: i64 = -62_167_219_200;
    const LAST: i64 = 253_402_300_799;
    if !(FIRST..=LAST).contains(&seconds) {
        return false;
    }
    let second = seconds.rem_euclid(DAY) as u32;
    let (year, month, day) = date_of(seconds.div_euclid(DAY));
    // The digits go straight to their places: to read them back right after writing them would stall.
    out.extend_from_slice(b"0000-00-00T00:00:00.000000000Z");
    let text = out
        .last_chunk_mut()
        .expect("as many bytes were just appended");
    pair(text, 0, year / 100);
    pair(text, 2, year % 100);
    pair(text, 5, month);
    pair(text, 8, day);
    pair(text, 11, second / 3600);
    pair(text, 14, second / 60 % 60);
    pair(text, 17, second % 60);
    let len = fraction(text, nanos);
    text[len] = b'Z';
    out.truncate(out.len() - 29 + len);
    true
}

/// Writes the digits after the point and returns where they end: three, six or nine of them.
#[inline]
fn fraction(text: &mut [u8; 30], nanos: u32) -> usize {
    let (millis, micros, nanos) = (nanos / 1_000_000, nanos / 1000 % 1000, nanos % 1000);
    triple(text, 20, millis);
    if micros | nanos == 0 {
        return 23;
    }
    triple(text, 23, micros);
    if nanos == 0 {
        return 26;
    }
    triple(text, 26, nanos);
    29
}

#[inline(always)]
fn pair(text: &mut [u8; 30], at: usize, number: u32) {
    [text[at], text[at + 1]] = PAIRS[(number & 127) as usize];
}

#[inline(always)]
fn triple(text: &mut [u8; 30], at: usize, number: u32) {
    text[at] = b'0' + (number / 100) as u8;
    pair(text, at + 1, number % 100);
}

/// Reads a time of the form `2024-02-29T12:34:56.789Z`, in nanoseconds since 1970. Behind the second there may be no digits or up to nine, and in the
/// place of `Z` an offset such as `+02:00` or `+0200`. None for every other form, and outside the years 1678 to 2261; most other times are times to
/// a slower reader.
#[inline]
pub fn read_rfc3339(text: &[u8]) -> Option<i64> {
    TimeReader::default().read(text)
}

/// Reads times as [`read_rfc3339`] does. A time in the same minute as the one before, as in most logs, costs less.
#[derive(Clone, Copy, Debug)]
pub struct TimeReader {
    /// The last date, hour and minute.
    minute: [u8; 16],
    /// Its seconds since 1970, in UTC.
    seconds: i64,
}

impl Default for TimeReader {
    fn default() -> Self {
        Self {
            minute: *b"1970-01-01T00:00",
            seconds: 0,
        }
    }
}

impl TimeReader {
    /// Reads a time.
    #[inline]
    pub fn read(&mut self, text: &[u8]) -> Option<i64> {
        let (minute, rest) = text.split_first_chunk()?;
        let (second, rest) = rest.split_first_chunk::<3>()?;
        let (nanos, zone) = split_fraction(rest)?;
        let offset = match zone {
            b"Z" | b"+0000" | b"+00:00" => 0,
            _ => offset(zone).filter(|(_, len)| *len == zone.len())?.0,
        };
        if *minute != self.minute {
            self.seconds = seconds_of(minute)?;
            self.minute = *minute;
        }
        let of_minute = two_digits(second, 1)?;
        if second[0] != b':' || of_minute > 59 {
            return None;
        }
        let seconds = self.seconds + i64::from(of_minute) - i64::from(offset);
        Some(seconds * NANOS_PER_SECOND + nanos)
    }
}

/// The seconds since 1970 of a minute, in UTC.
fn seconds_of(minute: &[u8; 16]) -> Option<i64> {
    for (at, byte) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':')] {
        if minute[at] != byte {
            return None;
        }
    }
    let number = |at: usize| two_digits(minute, at).map(i32::cast_unsigned);
    let year = i64::from(number(0)? * 100 + number(2)?);
    let (month, day) = (number(5)?, number(8)?);
    let (hour, minute) = (number(11)?, number(14)?);
    let is_date = (1678..2262).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day);
    let seconds = i64::from(hour * 3600 + minute * 60);
    (is_date && hour < 24 && minute < 60).then(|| days_from_civil(year, month, day) * DAY + seconds)
}

/// The nanoseconds that a point and up to nine digits stand for, zero if there is no point, and what stands behind them.
#[inline]
fn split_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', digits @ ..] = text else {
        return Some((0, text));
    };
    let (mut nanos, mut len) = (0, 0);
    for digit in digits.iter().take(10) {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        nanos = nanos * 10 + i64::from(digit);
        len += 1;
    }
    let unit = TENS.get(9_usize.checked_sub(len)?)?;
    Some((nanos * unit, &digits[len..]))
}

const TENS: [i64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(nanos: i64) -> String {
        let mut out = Vec::new();
        write_rfc3339(&mut out, nanos);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "Z",
            "2024-02-29",
            "2024-02-29T12:34:56",
            "2024-02-29t12:34:56Z",
            "2024-02-29T12:34:56z",
            "2024-02-29 12:34:56Z",
            "2024-02-29T12:34:56.Z",
            "2024-02-29T12:34:56,5Z",
            "2024-02-29T12:34:56.1234567891Z",
            "2024-02-29T12:34:56.12a4Z",
            "2024-02-29T12:34:56+24:00",
            "2024-02-29T12:34:56+02:60",
            "2024-02-29T12:34:56+2:00",
            "2024-02-29T12:34:56+02:",
            "2024-02-29T12:34:56+02:00Z ",
            "2024-02-29T12:34:56.+02:00",
            "2024-02-29T12:34:56-",
            "2024-02-29+02:00",
            "2023-02-29T12:34:56Z",
            "2024-00-01T12:34:56Z",
            "2024-13-01T12:34:56Z",
            "2024-04-31T12:34:56Z",
            "2024-04-00T12:34:56Z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T12:60:00Z",
            "2024-02-29T12:34:60Z",
            "2024-02-29T12:3/:56Z",
            "2024-02-29T12:3::56Z",
            "1677-12-31T00:00:00Z",
            "2262-01-01T00:00:00Z",
        ] {
            assert_eq!(read_rfc3339(text.as_bytes()), None, "{text}");
        }
        assert_eq!(
            read_rfc3339(b"2024-02-29T12:34:56.5Z"),
            Some(1_709_210_096_500_000_000)
        );
        let no_minute = [&[0; 16][..], b":00Z"].concat();
        assert_eq!(read_rfc3339(&no_minute), None);
    }

    proptest! {
        #[test]
        fn times_with_offsets_are_read_as_jiff_reads_them(
            nanos in -9_214_000_000_000_000_000i64..9_214_000_000_000_000_000,
            zone in "(Z|[+-][0-2][0-9](:?[0-6][0-9]){0,2}|[+-:0-9Zz ]{0,8})",
            digits in 19usize..30,
        ) {
            let text = text(nanos);
            let local = text.trim_end_matches('Z');
            let text = format!("{}{zone}", &local[..digits.min(local.len())]);
            let parsed = text.parse().map(jiff::Timestamp::as_nanosecond).ok();
            if let Some(read) = read_rfc3339(text.as_bytes()) {
                prop_assert_eq!(Some(i128::from(read)), parsed, "{}", text);
            }
            let is_less_than_a_day = zone.get(1..3).is_some_and(|hours| hours < "24");
            let is_usual = zone.starts_with(['+', '-']) && zone.len() > 4 && is_less_than_a_day;
            if is_usual && parsed.is_some() {
                prop_assert!(read_rfc3339(text.as_bytes()).is_some(), "{}", text);
            }
        }

        #[test]
        fn a_time_is_the_same_behind_any_other(
            texts in prop::collection::vec(
                "(1970-01-01|2024-02-(29|30))T(00|12):(00|59|6[0-9])(:[0-9]{2}|.{0,3})(\\.[0-9]{0,7})?(Z|[+-]0[0-9]:?00)?",
                1..20,
            ),
        ) {
            let mut reader = TimeReader::default();
            for text in texts {
                prop_assert_eq!(reader.read(text.as_bytes()), read_rfc3339(text.as_bytes()), "{}", text);
            }
        }

        #[test]
        fn what_is_written_is_read(
            nanos in -9_214_560_000_000_000_000i64..9_214_646_400_000_000_000,
            unit in prop::sample::select(vec![1, 1_000, 1_000_000, NANOS_PER_SECOND]),
        ) {
            let nanos = nanos / unit * unit;
            let text = text(nanos);
            prop_assert_eq!(read_rfc3339(text.as_bytes()), Some(nanos), "{}", text);
            let parsed: jiff::Timestamp = text.parse().expect("it is a time");
            prop_assert_eq!(parsed.as_nanosecond(), i128::from(nanos));
        }
    }

    #[test]
    fn known_times() {
        let s = NANOS_PER_SECOND;
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (-1_000, "1969-12-31T23:59:59.999999Z"),
            (-s, "1969-12-31T23:59:59.000Z"),
            (951_782_400 * s, "2000-02-29T00:00:00.000Z"),
            (951_868_800 * s, "2000-03-01T00:00:00.000Z"),
            (1_709_210_096 * s + 789_000_000, "2024-02-29T12:34:56.789Z"),
            (
                1_709_210_096 * s + 789_012_000,
                "2024-02-29T12:34:56.789012Z",
            ),
            (1_709_210_096 * s + 5, "2024-02-29T12:34:56.000000005Z"),
            (1_234_567_890 * s + 120_000_000, "2009-02-13T23:31:30.120Z"),
            (4_107_542_399 * s, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400 * s, "2100-03-01T00:00:00.000Z"),
            (-2_203_891_200 * s, "1900-03-01T00:00:00.000Z"),
            (-2_203_891_201 * s, "1900-02-28T23:59:59.000Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(text(nanos), expected, "{nanos}");
        }
    }

    #[test]
    fn years_of_four_digits_and_no_others() {
        let cases = [
            (-62_167_219_201, None),
            (-62_167_219_200, Some("0000-01-01T00:00:00.000Z")),
            (-62_162_035_201, Some("0000-02-29T23:59:59.000Z")),
            (-62_135_596_800, Some("0001-01-01T00:00:00.000Z")),
            (253_402_300_799, Some("9999-12-31T23:59:59.000Z")),
            (253_402_300_800, None),
            (i64::MIN, None),
            (i64::MAX, None),
        ];
        for (seconds, expected) in cases {
            let mut out = Vec::new();
            let written = write_seconds_and_nanos(&mut out, seconds, 0);
            assert_eq!(
                written
                    .then(|| String::from_utf8(out.clone()).unwrap())
                    .as_deref(),
                expected
            );
            assert_eq!(out.is_empty(), expected.is_none());
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1800, 1, 1);
        for number in -62_091..84_006i64 {
            let mut out = Vec::new();
            assert!(write_seconds_and_nanos(&mut out, number * 86_400, 0));
            assert_eq!(
                out,
                format!("{year:04}-{month:02}-{day:02}T00:00:00.000Z").into_bytes()
            );
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = [
                31,
                28 + i32::from(leap),
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ][month - 1];
            day += 1;
            if day > last {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!((year, month, day), (2200, 1, 1));
    }

    proptest! {
        #[test]
        fn texts_sort_as_the_times_do(a in any::<i64>(), b in any::<i64>()) {
            let cut = |text: String| text.trim_end_matches('Z').to_owned();
            prop_assert_eq!(cut(text(a)).cmp(&cut(text(b))), a.cmp(&b));
        }
    }
}
