//! Quantities as people write them: sizes (`1GiB`), periods (`1h30m`) and counts (`10M`).
//!
//! All three read a text or an integer, refuse what is negative, fractional in the end or too large, and display in a
//! form that reads back as the same value.
//!
//! Libraries read other things: of 16 durations humantime sums `5s1h`, which is a typing error, and jiff refuses `1d`, which is no fixed time to
//! it, and `0`; bytesize takes a size that is too large as the largest, and its errors name no units (`bench/libraries/run units`).

mod count;
mod number;
mod period;
mod positive;
mod size;

pub use count::Count;
pub use period::Period;
pub use positive::{Positive, Quantity};
pub use size::Size;

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};

/// Reads a quantity from text, or from an integer as its decimal text.
struct QuantityVisitor<T>(&'static str, PhantomData<T>);

impl<T> QuantityVisitor<T> {
    /// `expected` completes "expected ...".
    fn new(expected: &'static str) -> Self {
        Self(expected, PhantomData)
    }
}

impl<T: FromStr<Err = String>> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}

/// Implements what the three quantities share: reading and writing as text through serde, and a JSON Schema of a
/// string or an integer. `format` names the quantity for those who show the schema.
macro_rules! quantity {
    ($type:ident, format: $format:literal, expected: $expected:literal, examples: $examples:tt) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(super::QuantityVisitor::new($expected))
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": ["string", "integer"],
                    "format": $format,
                    "minimum": 0,
                    "examples": $examples,
                })
            }
        }
    };
}
use quantity;
