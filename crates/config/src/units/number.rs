//! The number of a quantity, exactly.

/// A non-negative decimal number that was written with a unit: `digits` over ten to the power of `scale`.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) struct Number {
    digits: u128,
    scale: u32,
}

/// More fraction digits than this are refused: they could not matter.
const SCALE_MAX: u32 = 12;

impl Number {
    /// Takes a number from the start of a text (digits, underscores between digits, a fraction) and gives the rest.
    pub(super) fn take(text: &str) -> Option<(Self, &str)> {
        let (digits, rest) = take_digits(text, 0)?;
        let Some(fraction) = rest.strip_prefix('.') else {
            return Some((Self { digits, scale: 0 }, rest));
        };
        let (digits, after) = take_digits(fraction, digits)?;
        let scale = u32::try_from(fraction.len() - after.len()).ok()?;
        let plain = fraction[..fraction.len() - after.len()]
            .bytes()
            .all(|byte| byte != b'_');
        (plain && scale <= SCALE_MAX).then_some((Self { digits, scale }, after))
    }

    /// The number times a unit, rounded down; none when it is beyond 128 bits.
    pub(super) fn times(self, unit: u128) -> Option<u128> {
        Some(self.digits.checked_mul(unit)? / 10_u128.pow(self.scale))
    }

    /// The number times a unit when that is whole; none when it is not, or beyond 128 bits.
    pub(super) fn times_exactly(self, unit: u128) -> Option<u128> {
        let product = self.digits.checked_mul(unit)?;
        let divisor = 10_u128.pow(self.scale);
        product.is_multiple_of(divisor).then_some(product / divisor)
    }
}

/// Appends the digits at the start of a text to `value`. At least one must be there, and it comes first.
fn take_digits(text: &str, mut value: u128) -> Option<(u128, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty()
        || digits.starts_with('_')
        || digits.ends_with('_')
        || digits.contains("__")
    {
        return None;
    }
    for digit in digits.bytes().filter(u8::is_ascii_digit) {
        value = value
            .checked_mul(10)?
            .checked_add(u128::from(digit - b'0'))?;
    }
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_numbers() {
        for (text, expected) in [
            ("12x", Some((12, 0, "x"))),
            ("1.50 M", Some((150, 2, " M"))),
            ("1_000", Some((1000, 0, ""))),
            ("_1", None),
            ("1_", None),
            ("1.", None),
            (".5", None),
            ("-1", None),
            ("", None),
            ("1.0000000000001", None),
            ("999999999999999999999999999999999999999999", None),
        ] {
            let expected = expected.map(|(digits, scale, rest)| (Number { digits, scale }, rest));
            assert_eq!(Number::take(text), expected, "{text}");
        }
    }
}
