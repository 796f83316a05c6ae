//! The formats that have a name instead of letters.

use super::fields::{Fault, Fields, Moment, SecondPlace, Surroundings};
use super::read::TextReader;

/// A format with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    /// `2015-05-17T10:05:03.123+02:00` and its shorter forms.
    Iso8601,
    /// Seconds since 1970, with or without a fraction.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// `@` and 24 hexadecimal digits, as daemontools and qmail write.
    Tai64n,
}

impl Literal {
    /// The names.
    pub const NAMES: [&str; 4] = ["ISO8601", "UNIX", "UNIX_MS", "TAI64N"];

    /// The literal of this name.
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "ISO8601" => Some(Self::Iso8601),
            "UNIX" => Some(Self::Unix),
            "UNIX_MS" => Some(Self::UnixMs),
            "TAI64N" => Some(Self::Tai64n),
            _ => None,
        }
    }

    /// Reads the whole of a text.
    pub fn read(self, text: &[u8], around: &Surroundings<'_>) -> Result<Moment, Fault> {
        let nanos = match self {
            Self::Iso8601 => return iso8601(text).ok_or(Fault::Mismatch)?.moment(around),
            Self::Unix => decimal(text, 9),
            Self::UnixMs => decimal(text, 6),
            Self::Tai64n => tai64n(text),
        };
        let nanos = i64::try_from(nanos.ok_or(Fault::Mismatch)?).map_err(|_| Fault::OutOfRange)?;
        Ok(Moment {
            nanos,
            second: None,
        })
    }
}

/// A decimal number times 10 to the power of `scale`; what is left after the point is cut off.
fn decimal(text: &[u8], scale: i32) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (
            &text[..at],
            std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?,
        ),
        None => (text, 0i32),
    };
    let (mut digits, mut places, mut after_point, mut any) = (0i128, 0, false, false);
    for byte in mantissa {
        match byte {
            b'0'..=b'9' => {
                digits = digits
                    .checked_mul(10)?
                    .checked_add(i128::from(byte - b'0'))?;
                places += i32::from(after_point);
                any = true;
            }
            b'.' if !after_point => after_point = true,
            _ => return None,
        }
    }
    let power = exponent.checked_add(scale)?.checked_sub(places)?;
    let factor = 10i128.checked_pow(power.unsigned_abs());
    let scaled = match factor {
        Some(factor) if power >= 0 => digits.checked_mul(factor)?,
        Some(factor) => digits / factor,
        None if power < 0 || digits == 0 => 0,
        None => return None,
    };
    any.then_some(if negative { -scaled } else { scaled })
}

/// A TAI64N label: seconds counted from 2⁶² at 1970 TAI, and nanoseconds. TAI was 10 s ahead of UTC then; the leap seconds
/// that came later are not known here, as in Logstash.
fn tai64n(text: &[u8]) -> Option<i128> {
    let text = text.strip_prefix(b"@").unwrap_or(text);
    if text.len() != 24 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let seconds = u64::from_str_radix(&text[..16], 16).ok()?;
    let nanos = u32::from_str_radix(&text[16..], 16).ok()?;
    let seconds = i128::from(seconds) - (1 << 62) - 10;
    Some(seconds * 1_000_000_000 + i128::from(nanos))
}

/// ISO 8601 in its extended form: a date (by month, week or day of the year), then `T` or a space and a time with or
/// without a fraction (after a point or a comma) of its last part, then a zone or none.
fn iso8601(text: &[u8]) -> Option<Fields> {
    let mut reader = TextReader { text, at: 0 };
    let mut fields = Fields {
        year: Some(i64::from(reader.number(4, 4)?)),
        ..Fields::default()
    };
    date(&mut reader, &mut fields)?;
    if let Some(b'T' | b't' | b' ') = text.get(reader.at) {
        reader.at += 1;
        time(&mut reader, &mut fields)?;
        if reader.at < text.len() {
            // A space before the offset is common in logs.
            reader.at += usize::from(text[reader.at] == b' ');
            fields.zone = Some(reader.offset()?);
        }
    }
    (reader.at == text.len()).then_some(fields)
}

/// What follows the year of a date.
fn date(reader: &mut TextReader<'_>, fields: &mut Fields) -> Option<()> {
    if reader.text.get(reader.at) != Some(&b'-') {
        return Some(());
    }
    reader.at += 1;
    if reader.text.get(reader.at) == Some(&b'W') {
        reader.at += 1;
        fields.week = Some(reader.number(2, 2)?);
        if reader.text.get(reader.at) == Some(&b'-') {
            reader.at += 1;
            fields.weekday = reader.number(1, 1)?;
        }
        return Some(());
    }
    let start = reader.at;
    let number = reader.number(2, 3)?;
    if reader.at - start == 3 {
        fields.day_of_year = Some(number).filter(|day| *day > 0);
        return fields.day_of_year.map(drop);
    }
    fields.month = Some(number).filter(|month| (1..=12).contains(month))?;
    if reader.text.get(reader.at) == Some(&b'-') {
        reader.at += 1;
        fields.day = reader.number(2, 2).filter(|day| (1..=31).contains(day))?;
    }
    Some(())
}

fn time(reader: &mut TextReader<'_>, fields: &mut Fields) -> Option<()> {
    fields.hour = reader.number(2, 2).filter(|hour| *hour < 24)?;
    let mut unit = 3600;
    if reader.text.get(reader.at) == Some(&b':') {
        reader.at += 1;
        fields.minute = reader.number(2, 2).filter(|minute| *minute < 60)?;
        unit = 60;
        if reader.text.get(reader.at) == Some(&b':') {
            reader.at += 1;
            fields.place = Some(SecondPlace {
                at: reader.at,
                fraction_digits: 0,
            });
            fields.second = reader.number(2, 2).filter(|second| *second <= 60)?;
            unit = 1;
        }
    }
    if let Some(b'.' | b',') = reader.text.get(reader.at) {
        reader.at += 1;
        let start = reader.at;
        fields.nanos = reader.fraction(usize::MAX)? * unit;
        if let Some(place) = &mut fields.place {
            place.fraction_digits = reader.at - start;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datetime::Zone;

    fn read(literal: Literal, text: &str) -> Result<i64, Fault> {
        let around = Surroundings {
            zone: Some(&Zone::Fixed(3600)),
            received: 0,
        };
        literal
            .read(text.as_bytes(), &around)
            .map(|moment| moment.nanos)
    }

    #[test]
    fn iso8601_in_its_forms() {
        const S: i64 = 1_000_000_000;
        let base = 1_431_857_103 * S;
        for (text, expected) in [
            ("2015-05-17T10:05:03Z", base),
            ("2015-05-17T10:05:03.5Z", base + S / 2),
            ("2015-05-17T10:05:03,123456789+00:00", base + 123_456_789),
            ("2015-05-17T10:05:03.1234567891Z", base + 123_456_789),
            ("2015-05-17 10:05:03.123 +0000", base + 123_000_000),
            ("2015-05-17 12:05:03,123+02:00", base + 123_000_000),
            ("2015-05-17T11:05:03", base),
            ("2015-05-17T10:05Z", base - 3 * S),
            ("2015-05-17T10:05.05Z", base),
            ("2015-05-17T10Z", base - 303 * S),
            ("2015-05-17t10:05:03z", base),
            ("2015-137T10:05:03Z", base),
            ("2015-W20-7T10:05:03Z", base),
            ("2015-05-17", 1_431_817_200 * S),
            ("1970", -3600 * S),
            ("2016-12-31T23:59:60Z", 1_483_228_800 * S),
        ] {
            assert_eq!(read(Literal::Iso8601, text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "15-05-17",
            "2015-13-01",
            "2015-02-29",
            "2015-05-17T",
            "2015-05-17T24:00",
            "2015-05-17T10:60",
            "2015-05-17T10:05:61Z",
            "2015-05-17T10:05:03.Z",
            "2015-05-17T10:05:03Zx",
            "2015-05-17x",
            "2015-000",
            "2015-366",
            "2015-W54-1",
            "20150517",
        ] {
            assert_eq!(read(Literal::Iso8601, text), Err(Fault::Mismatch), "{text}");
        }
    }

    #[test]
    fn numbers_of_seconds_and_milliseconds() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("1431857103", Ok(1_431_857_103_000_000_000)),
            ("1431857103.123456789", Ok(1_431_857_103_123_456_789)),
            ("1431857103.1234567899", Ok(1_431_857_103_123_456_789)),
            ("-1.5", Ok(-1_500_000_000)),
            ("1.431857103e9", Ok(1_431_857_103_000_000_000)),
            ("1e-400", Ok(0)),
            ("9223372036.854775807", Ok(i64::MAX)),
            ("9223372036.854775808", Err(Fault::OutOfRange)),
            ("1431857103123456", Err(Fault::OutOfRange)),
            ("", Err(Fault::Mismatch)),
            (".", Err(Fault::Mismatch)),
            ("1.2.3", Err(Fault::Mismatch)),
            ("1e", Err(Fault::Mismatch)),
            ("1e99", Err(Fault::Mismatch)),
            ("12:00", Err(Fault::Mismatch)),
        ] {
            assert_eq!(read(Literal::Unix, text), expected, "{text}");
        }
        assert_eq!(
            read(Literal::UnixMs, "1431857103123"),
            Ok(1_431_857_103_123_000_000)
        );
    }

    #[test]
    fn tai64n_labels() {
        // The label of a test of Logstash: 2012-12-22T01:00:46.767Z.
        assert_eq!(
            read(Literal::Tai64n, "@4000000050d506482dbdf024"),
            Ok(1_356_138_046_767_422_500)
        );
        assert_eq!(
            read(Literal::Tai64n, "4000000050d506482dbdf024"),
            Ok(1_356_138_046_767_422_500)
        );
        assert_eq!(
            read(Literal::Tai64n, "@4000000050d506482dbdf02"),
            Err(Fault::Mismatch)
        );
        assert_eq!(
            read(Literal::Tai64n, "@4000000050d506482dbdf0zz"),
            Err(Fault::Mismatch)
        );
        assert_eq!(
            read(Literal::Tai64n, "@ffffffffffffffffffffffff"),
            Err(Fault::OutOfRange)
        );
    }
}
