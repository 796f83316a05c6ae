//! Times of envelopes: seconds since 1970, with or without a fraction.

/// From here on a whole number counts milliseconds: as seconds it would lie beyond the year 2400.
const MILLISECONDS_FROM: i128 = 13_569_465_600;

/// From here on a whole number counts nanoseconds: as milliseconds it would lie beyond the year 9999.
const NANOSECONDS_FROM: i128 = 253_402_300_800_000;

/// Digits of a number that count before its point; more are no time.
const DIGITS_MAX: usize = 20;

/// The time that a number says, in nanoseconds since 1970. Digits beyond nanoseconds are left out. Whole numbers that are no likely
/// seconds are milliseconds or nanoseconds, as some clients send them. None for what is no such number, or beyond 1678 to 2262.
pub(super) fn nanos(text: &[u8]) -> Option<i64> {
    if text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return scientific(text);
    }
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &b""[..]),
    };
    if whole.is_empty() || whole.len() > DIGITS_MAX || point.is_some() && fraction.is_empty() {
        return None;
    }
    let whole = number(whole)?;
    let nanos = match point {
        None if whole >= NANOSECONDS_FROM => whole,
        None if whole >= MILLISECONDS_FROM => whole * 1_000_000,
        _ => whole * 1_000_000_000 + of_fraction(fraction)?,
    };
    i64::try_from(if is_negative { -nanos } else { nanos }).ok()
}

fn number(digits: &[u8]) -> Option<i128> {
    digits.iter().try_fold(0, |value: i128, byte| {
        let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'));
        Some(value * 10 + digit?)
    })
}

/// Nanoseconds of the digits behind a point.
fn of_fraction(digits: &[u8]) -> Option<i128> {
    let kept = &digits[..digits.len().min(9)];
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then_some(number(kept)? * 10_i128.pow(9 - kept.len() as u32))
}

fn scientific(text: &[u8]) -> Option<i64> {
    let seconds: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let nanos = seconds * 1e9;
    // The range of 64 bits.
    (nanos.abs() < 9.2e18).then_some(nanos as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_all_their_digits() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1447828325", Some(1_447_828_325_000_000_000)),
            ("1447828325.062", Some(1_447_828_325_062_000_000)),
            ("1447828325.123456789", Some(1_447_828_325_123_456_789)),
            ("1447828325.1234567891", Some(1_447_828_325_123_456_789)),
            ("-1.5", Some(-1_500_000_000)),
            ("1447828325062", Some(1_447_828_325_062_000_000)),
            ("1447828325062000001", Some(1_447_828_325_062_000_001)),
            ("1.447828325e9", Some(1_447_828_325_000_000_000)),
            ("", None),
            ("1.", None),
            (".5", None),
            ("1,5", None),
            ("yesterday", None),
            ("1.5x", None),
            ("1.1234567890x", None),
            ("99999999999999999999999", None),
            ("1e300", None),
            ("12345678901.5", None),
        ] {
            assert_eq!(nanos(text.as_bytes()), expected, "{text}");
        }
    }
}
