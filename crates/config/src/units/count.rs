//! Counts of things.

use std::fmt;
use std::str::FromStr;

use super::number::Number;

/// A number of things, written as `4096`, `1_000_000`, `10k` or `1.5M`. The units are `k` (a thousand), `M` (a
/// million) and `G` (a thousand million), in either case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(
    /// How many.
    pub u64,
);

super::quantity!(
    Count,
    format: "count",
    expected: "a count, such as 4096, 10k or 1.5M",
    examples: [4096, "10k", "1.5M"]
);

const UNITS: [(&str, u128); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not a count: use a whole number such as 4096, or k, M or G, as in 10k or 1.5M"
            )
        };
        let (number, unit) = Number::take(text).ok_or_else(refused)?;
        let factor = match unit {
            "" => Some(1),
            unit => {
                let known = UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit));
                known.map(|(_, factor)| *factor)
            }
        };
        let count = factor
            .and_then(|factor| number.times_exactly(factor))
            .ok_or_else(refused)?;
        let count = u64::try_from(count).map_err(|_| format!("the count `{text}` is too large"))?;
        Ok(Self(count))
    }
}

impl fmt::Display for Count {
    /// The largest unit that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = u128::from(self.0);
        match UNITS
            .iter()
            .find(|(_, factor)| count > 0 && count.is_multiple_of(*factor))
        {
            Some((unit, factor)) => write!(f, "{}{unit}", count / factor),
            None => write!(f, "{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_displays() {
        for (text, count, shown) in [
            ("0", 0, "0"),
            ("4096", 4096, "4096"),
            ("10M", 10_000_000, "10M"),
            ("10k", 10_000, "10k"),
            ("10K", 10_000, "10k"),
            ("1.5M", 1_500_000, "1500k"),
            ("1_000_000", 1_000_000, "1M"),
            ("2g", 2_000_000_000, "2G"),
            ("18446744073709551615", u64::MAX, "18446744073709551615"),
        ] {
            let value: Count = text.parse().expect(text);
            assert_eq!(
                (value.0, value.to_string().as_str()),
                (count, shown),
                "{text}"
            );
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for text in [
            "",
            "-1",
            "1.5",
            "0.0001k",
            "10 M",
            "10Mi",
            "18446744073709551616",
            "1e6",
            "1__0",
        ] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }
}
