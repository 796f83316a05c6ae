//! Lengths of time as people and programs write them, in nanoseconds.
//!
//! ```text
//! duration = [ "-" ] part { part } / "0"
//! part     = digits [ "." digits ] unit
//! unit     = "d" / "h" / "m" / "s" / "ms" / "us" / "µs" / "ns"
//! ```
//! That is the grammar of CEL and Go, with days. What reads settings is stricter and says what is wrong (`config::Period`); it takes
//! the parts and the units from here.

use jiff::{Span, SpanRelativeTo};

use crate::{DAY, NANOS_PER_SECOND};

/// Units with their nanoseconds, from the longest. The first spelling of a unit is the one to write.
pub const UNITS: [(&str, i64); 9] = [
    ("d", DAY * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("s", NANOS_PER_SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ns", 1),
];

/// The nanoseconds of a unit.
pub fn unit(name: &str) -> Option<i64> {
    let unit = UNITS.iter().find(|(unit, _)| *unit == name);
    unit.map(|(_, nanos)| *nanos)
}

/// Splits a text behind its first part: the number, the unit and the rest. Each may be empty, and is to be checked.
pub fn take(text: &str) -> (&str, &str, &str) {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let end = rest.find(|c: char| !c.is_alphabetic());
    let (unit, rest) = rest.split_at(end.unwrap_or(rest.len()));
    (number, unit, rest)
}

/// Reads a duration: `90s`, `1h30m`, `1.5s`, `-250ms`, `2d`, `0`; in nanoseconds.
pub fn parse(text: &str) -> Option<i64> {
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
        let (number, name, after) = take(rest);
        total += scaled(number, unit(name)?)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Reads a duration in whichever way people write it, with days of 24 hours; in nanoseconds.
pub fn parse_loose(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(nanos) = parse(text) {
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
pub const TEXT_LEN_MAX: usize = 22;

/// A duration as CEL writes it: seconds with as many decimals as it takes.
pub fn text_of(nanos: i64, buffer: &mut [u8; TEXT_LEN_MAX]) -> &[u8] {
    use std::io::Write;
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, below) = (
        nanos.unsigned_abs() / 1_000_000_000,
        nanos.unsigned_abs() % 1_000_000_000,
    );
    let mut room = &mut buffer[..];
    write!(room, "{sign}{seconds}.{below:09}").expect("it has room for every duration");
    let mut len = TEXT_LEN_MAX - room.len();
    let digits = buffer[..len].iter().rev();
    len -= digits.take_while(|byte| **byte == b'0').count();
    if buffer[len - 1] == b'.' {
        len -= 1;
    }
    buffer[len] = b's';
    &buffer[..=len]
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
            assert_eq!(parse(text), nanos, "{text}");
            if let Some(nanos) = nanos {
                let mut buffer = [0; TEXT_LEN_MAX];
                assert_eq!(text_of(nanos, &mut buffer), written.as_bytes());
            }
        }
    }
}
