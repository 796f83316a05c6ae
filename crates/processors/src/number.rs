//! Numbers that processors reckon with.

use std::cmp::Ordering;

use batch::{Cell, Value};

/// A number, whole as long as that is possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// The number that a value is, also as a text with blanks around it.
    pub fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Int(whole) => Some(Self::Int(whole.into())),
            Value::UInt(whole) => Some(Self::Int(whole.into())),
            Value::Float(broken) => broken.is_finite().then_some(Self::Float(broken)),
            Value::Number(text) => Self::parse(text),
            Value::Text(text) => Self::parse(text.trim_ascii()),
            _ => None,
        }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        if digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit) {
            let number = |whole: i64, digit: &u8| 10 * whole + i64::from(digit - b'0');
            let whole = digits.iter().fold(0, number);
            let is_negative = digits.len() < text.len();
            return Some(Self::Int(if is_negative { -whole } else { whole }.into()));
        }
        let text = std::str::from_utf8(text).ok()?;
        if let Ok(whole) = text.parse::<i128>() {
            return Some(Self::Int(whole));
        }
        let broken: f64 = text.parse().ok()?;
        broken.is_finite().then_some(Self::Float(broken))
    }

    /// The order of two numbers as they are: a whole one is not rounded. `-0.0` is 0, and what is no number comes last.
    pub fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => one.cmp(&other),
            (Self::Int(whole), Self::Float(broken)) => order_whole(whole, broken),
            (Self::Float(broken), Self::Int(whole)) => order_whole(whole, broken).reverse(),
            (Self::Float(one), Self::Float(other)) => one
                .partial_cmp(&other)
                .unwrap_or_else(|| one.is_nan().cmp(&other.is_nan())),
        }
    }

    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(whole) => whole as f64,
            Self::Float(broken) => broken,
        }
    }

    pub fn cell(self) -> Cell {
        match self {
            Self::Int(whole) => match (i64::try_from(whole), u64::try_from(whole)) {
                (Ok(whole), _) => Cell::Int(whole),
                (_, Ok(whole)) => Cell::UInt(whole),
                _ => Cell::Float(whole as f64),
            },
            Self::Float(broken) => Cell::Float(broken),
        }
    }
}

fn order_whole(whole: i128, broken: f64) -> Ordering {
    /// 2^127, one more than the largest whole number.
    const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if broken.is_nan() || broken >= BEYOND {
        return Ordering::Less;
    }
    if broken < -BEYOND {
        return Ordering::Greater;
    }
    let fraction = broken.fract();
    let by_fraction = 0.0_f64.partial_cmp(&fraction).unwrap_or(Ordering::Equal);
    whole.cmp(&(broken.trunc() as i128)).then(by_fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers_with_blanks_around_them() {
        let of = |text: &str| Number::of(Value::Text(text.as_bytes()));
        assert_eq!(of(" 3 "), Some(Number::Int(3)));
        assert_eq!(of("\t-3.5\r\n"), Some(Number::Float(-3.5)));
        for text in ["", " ", "3 4", "- 3", "x", "1e999"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
