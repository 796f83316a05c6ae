//! Values that events are sorted by.

use std::cmp::Ordering;

use batch::Value;

use crate::number::Number;
use crate::remembered::{SavedBytes, save_text};

/// A value to sort by, in the order of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SortKey {
    Bool(bool),
    Number(Number),
    /// A time, in nanoseconds since 1970, of a field that holds when events happened.
    Time(i64),
    Text(Box<[u8]>),
    Missing,
}

impl SortKey {
    /// What a field holds.
    pub fn of(value: Value<'_>) -> Self {
        match value {
            Value::Missing | Value::Null => Self::Missing,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Number(_) => {
                Self::Number(number(value))
            }
            Value::Time(_) | Value::Text(_) => {
                let mut text = Vec::new();
                value.write_text(&mut text);
                Self::Text(text.into())
            }
            Value::Json(_) | Value::MsgPack(_) => {
                let mut text = Vec::new();
                value.write_json(&mut text);
                Self::Text(text.into())
            }
        }
    }

    /// What it takes beside itself, in bytes.
    pub fn text_size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            _ => 0,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Number(_) => 1,
            Self::Time(_) => 2,
            Self::Text(_) => 3,
            Self::Missing => 4,
        }
    }

    /// The order of two values, from the smallest to the largest or reversed. What is missing comes last in both.
    pub fn order(&self, other: &Self, is_reversed: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => return self.rank().cmp(&other.rank()),
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Number(one), Self::Number(other)) => one.order(*other),
            (Self::Time(one), Self::Time(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        };
        match is_reversed {
            true => order.reverse(),
            false => order,
        }
    }

    /// Appends what [`SortKey::read`] reads: the rank, and the value behind it.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.push(self.rank());
        match self {
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Number(Number::Int(whole)) => {
                out.push(0);
                out.extend(whole.to_le_bytes());
            }
            Self::Number(Number::Float(broken)) => {
                out.push(1);
                out.extend(broken.to_le_bytes());
            }
            Self::Time(nanos) => out.extend(nanos.to_le_bytes()),
            Self::Text(text) => save_text(text, out),
            Self::Missing => {}
        }
    }

    /// What [`SortKey::save`] wrote.
    pub fn read(saved: &mut SavedBytes<'_>) -> Option<Self> {
        let key = match saved.byte()? {
            0 => Self::Bool(saved.byte()? != 0),
            1 => Self::Number(match saved.byte()? {
                0 => Number::Int(saved.wide()?),
                _ => Number::Float(f64::from_bits(saved.number()?)),
            }),
            2 => Self::Time(saved.number()?.cast_signed()),
            3 => Self::Text(saved.text()?.into()),
            4 => Self::Missing,
            _ => return None,
        };
        Some(key)
    }
}

/// The number that a value is, also where it is infinite or too large for any other form.
fn number(value: Value<'_>) -> Number {
    let infinite = || match value {
        Value::Float(broken) => broken,
        Value::Number(text) => {
            let text = std::str::from_utf8(text).ok();
            text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    };
    Number::of(value).unwrap_or_else(|| Number::Float(infinite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_values_is_total_and_survives_saving() {
        let numbers = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992.0",
            "-1.5",
            "-1",
            "-0.0",
            "0.5",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994.0",
            "18446744073709551615",
            "1e30",
            "1000000000000000019884624838657",
            "1e39",
            "1e400",
        ];
        let mut keys = vec![
            SortKey::of(Value::Bool(false)),
            SortKey::of(Value::Bool(true)),
        ];
        keys.extend(numbers.map(|text| SortKey::of(Value::Number(text.as_bytes()))));
        keys.push(SortKey::of(Value::Float(f64::NAN)));
        keys.push(SortKey::Time(5));
        keys.push(SortKey::of(Value::Text(b"1")));
        keys.push(SortKey::of(Value::Null));
        for (index, key) in keys.iter().enumerate() {
            let mut saved = Vec::new();
            key.save(&mut saved);
            let read = SortKey::read(&mut SavedBytes(&saved)).expect("it is right");
            for (place, other) in keys.iter().enumerate() {
                let order = index.cmp(&place);
                assert_eq!(key.order(other, false), order, "{key:?}, {other:?}");
                assert_eq!(read.order(other, false), order, "{read:?}, {other:?}");
            }
        }
        let zero = |text: &'static str| SortKey::of(Value::Number(text.as_bytes()));
        for (one, other) in [("0", "-0.0"), ("0.0", "-0"), ("0.0", "-0.0"), ("2", "2.0")] {
            assert_eq!(zero(one).order(&zero(other), true), Ordering::Equal);
        }
    }
}
