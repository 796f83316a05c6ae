//! Lengths of time.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use datetime::span;

use super::number::Number;

/// A length of time, written as `100ms`, `5s`, `1.5s`, `1h30m` or `1d`; a thin wrapper of [`Duration`] that reads and
/// displays so. A number without a unit is refused, since nobody could say of `5` whether it means seconds or
/// milliseconds; only `0` needs none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

super::quantity!(
    Period,
    format: "duration",
    expected: "a duration, such as 100ms, 5s, 1h30m or 1d",
    examples: ["100ms", "5s", "1h30m", "1d"]
);

impl Period {
    /// Whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Whole milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }
}

impl Deref for Period {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl From<Duration> for Period {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("`{text}` is not a duration: use 100ms, 5s, 1h30m or 1d");
        if text == "0" {
            return Ok(Self::default());
        }
        let mut total: u128 = 0;
        let mut last_unit = u128::MAX;
        let mut rest = text;
        while !rest.is_empty() {
            let (number, name, after) = span::take(rest);
            let number = Number::take(number).filter(|(_, rest)| rest.is_empty());
            let (number, _) = number.ok_or_else(refused)?;
            if name.is_empty() && after.is_empty() {
                return Err(format!(
                    "`{text}` has no unit: use {text}s for seconds or {text}ms for milliseconds"
                ));
            }
            let unit = span::unit(name).map(|nanos| nanos as u128);
            // Each unit comes once, longest first, so that `1m30m` and `5s1h` are not silently summed.
            let unit = unit
                .filter(|nanos| *nanos < last_unit)
                .ok_or_else(refused)?;
            total = number
                .times(unit)
                .and_then(|nanos| total.checked_add(nanos))
                .ok_or_else(refused)?;
            (last_unit, rest) = (unit, after.trim_start());
        }
        if text.trim().is_empty() {
            return Err(refused());
        }
        let nanos = u64::try_from(total)
            .map_err(|_| format!("`{text}` is too long: the maximum is 500 years"))?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for Period {
    /// The units that are needed, longest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (unit, length) in span::UNITS {
            let length = length as u128;
            if nanos >= length {
                write!(f, "{}{unit}", nanos / length)?;
                nanos %= length;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_displays() {
        for (text, nanos, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("100ms", 100_000_000, "100ms"),
            ("1h30m", 5_400_000_000_000, "1h30m"),
            ("1h 30m", 5_400_000_000_000, "1h30m"),
            ("24h", 86_400_000_000_000, "1d"),
            ("1d", 86_400_000_000_000, "1d"),
            ("1.5s", 1_500_000_000, "1s500ms"),
            ("2µs", 2_000, "2us"),
            ("7ns", 7, "7ns"),
        ] {
            let period: Period = text.parse().expect(text);
            assert_eq!(
                (period.as_nanos(), period.to_string().as_str()),
                (nanos, shown),
                "{text}"
            );
            assert_eq!(period.to_string().parse(), Ok(period));
        }
    }

    #[test]
    fn refuses() {
        for (text, part) in [
            ("", "not a duration"),
            (" ", "not a duration"),
            ("5", "`5` has no unit: use 5s for seconds"),
            ("-5s", "not a duration"),
            ("5 s", "not a duration"),
            ("5y", "not a duration"),
            ("5s1h", "not a duration"),
            ("1m30m", "not a duration"),
            ("300000d", "too long"),
            ("99999999999999999999999999999d", "not a duration"),
        ] {
            let error = text.parse::<Period>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
