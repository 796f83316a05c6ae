//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use super::number::Number;

/// A number of bytes, written as `512`, `64KiB`, `10MB` or `1.5GiB`. A unit with an `i` counts in steps of 1,024, one
/// without in steps of 1,000. A fraction of a byte is dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(
    /// Bytes.
    pub u64,
);

super::quantity!(
    Size,
    format: "size",
    expected: "a size, such as 512, 64KiB, 10MB or 1.5GiB",
    examples: ["64KiB", "10MB", "1.5GiB", 512]
);

const UNITS: [(&str, u128); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

impl Size {
    /// The size as a count of bytes in memory; sizes beyond the address space become its end.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not a size: use bytes, as in 512, or a unit, as in 64KiB, 10MB or 1.5GiB"
            )
        };
        let (number, unit) = Number::take(text).ok_or_else(refused)?;
        let bytes = match unit.trim_start() {
            "" => number.times_exactly(1),
            unit => {
                let known = UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit));
                let Some((_, factor)) = known else {
                    return Err(unknown_unit(text, unit));
                };
                number.times(*factor)
            }
        };
        let bytes = bytes.ok_or_else(refused)?;
        let bytes = u64::try_from(bytes).map_err(|_| format!("the size `{text}` is too large"))?;
        Ok(Self(bytes))
    }
}

fn unknown_unit(text: &str, unit: &str) -> String {
    let letter = unit.to_ascii_uppercase();
    match letter.as_str() {
        "K" | "M" | "G" | "T" => format!(
            "`{text}` is not a size: use {letter}iB for powers of 1024 or {letter}B for powers of 1000"
        ),
        _ => format!(
            "`{text}` is not a size: the units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB"
        ),
    }
}

impl fmt::Display for Size {
    /// The largest unit that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.0);
        let whole = |factor: u128| bytes > 0 && factor > 1 && bytes.is_multiple_of(factor);
        match UNITS.iter().find(|(_, factor)| whole(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", bytes / factor),
            None => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_displays() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("512", 512, "512"),
            ("64KiB", 65_536, "64KiB"),
            ("10 MB", 10_000_000, "10MB"),
            ("1.5GiB", 1_610_612_736, "1536MiB"),
            ("1gib", 1 << 30, "1GiB"),
            ("1_000B", 1000, "1KB"),
            ("0.3KiB", 307, "307"),
            (
                "16777215.99TiB",
                18_446_744_062_714_435_338,
                "18446744062714435338",
            ),
        ] {
            let size: Size = text.parse().expect(text);
            assert_eq!(
                (size.0, size.to_string().as_str()),
                (bytes, shown),
                "{text}"
            );
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn refuses() {
        for (text, part) in [
            ("", "not a size"),
            ("-1", "not a size"),
            ("1.5", "not a size"),
            ("10M", "use MiB for powers of 1024 or MB"),
            ("1 apple", "the units are"),
            ("16777216TiB", "too large"),
            ("99999999999999999999", "too large"),
            ("1e3", "the units are"),
        ] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn other_formats_give_and_take_it() {
        let sizes: Vec<Size> = serde_json::from_str(r#"[512, "1KiB"]"#).expect("valid");
        assert_eq!(sizes, [Size(512), Size(1024)]);
        assert_eq!(
            serde_json::to_string(&sizes).expect("text"),
            r#"["512","1KiB"]"#
        );
        let schema = schemars::schema_for!(Size);
        assert_eq!(
            schema.get("format").and_then(|format| format.as_str()),
            Some("size")
        );
    }
}
