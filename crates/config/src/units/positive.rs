//! Quantities that are more than nothing.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::{Count, Period, Size};

/// A quantity of which none at all makes no sense, such as a time-out: reading refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Positive<T>(T);

/// A quantity that can be nothing.
pub trait Quantity: Copy + Default + PartialEq {
    /// What is expected in the place of nothing.
    const EXPECTED: &'static str;
}

impl Quantity for Period {
    const EXPECTED: &'static str =
        "a duration greater than 0 is expected, such as 100ms, 5s, 1h30m or 1d";
}

impl Quantity for Size {
    const EXPECTED: &'static str = "at least 1B is expected, as in 512, 64KiB, 10MB or 1.5GiB";
}

impl Quantity for Count {
    const EXPECTED: &'static str = "at least 1 is expected, as in 4096, 10k or 1.5M";
}

impl<T: Quantity> Positive<T> {
    /// None where it is nothing.
    pub fn new(quantity: T) -> Option<Self> {
        (quantity != T::default()).then_some(Self(quantity))
    }

    /// The quantity.
    pub fn get(self) -> T {
        self.0
    }
}

impl Positive<Period> {
    /// Whole seconds.
    ///
    /// # Panics
    /// They are 0.
    pub const fn from_secs(seconds: u64) -> Self {
        assert!(seconds > 0, "a duration greater than 0");
        Self(Period::from_secs(seconds))
    }

    /// Whole milliseconds.
    ///
    /// # Panics
    /// They are 0.
    pub const fn from_millis(milliseconds: u64) -> Self {
        assert!(milliseconds > 0, "a duration greater than 0");
        Self(Period::from_millis(milliseconds))
    }
}

impl Positive<Size> {
    /// A number of bytes.
    ///
    /// # Panics
    /// It is 0.
    pub const fn from_bytes(bytes: u64) -> Self {
        assert!(bytes > 0, "a size of at least 1B");
        Self(Size(bytes))
    }
}

impl Positive<Count> {
    /// A count.
    ///
    /// # Panics
    /// It is 0.
    #[must_use]
    pub const fn from_count(count: u64) -> Self {
        assert!(count > 0, "a positive count");
        Self(Count(count))
    }
}

impl<T> Deref for Positive<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Display> fmt::Display for Positive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, T: Quantity + Deserialize<'de>> Deserialize<'de> for Positive<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantity = T::deserialize(deserializer)?;
        Self::new(quantity).ok_or_else(|| D::Error::custom(T::EXPECTED))
    }
}

impl<T: Serialize> Serialize for Positive<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Positive<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Positive{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.insert("minimum".to_owned(), 1.into());
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse_yaml};

    fn read<T: Quantity + for<'de> Deserialize<'de>>(text: &str) -> Result<Positive<T>, String> {
        let node = parse_yaml(&Source::new("t.yaml", text)).expect("YAML");
        node.deserialize()
            .map_err(|error: crate::ConfigError| error.to_string())
    }

    #[test]
    fn nothing_is_refused_however_it_is_written() {
        for text in ["0", "0s", "0ms", "0.0s"] {
            let error = read::<Period>(text).expect_err(text);
            assert!(error.contains("a duration greater than 0"), "{error}");
        }
        for text in ["0", "0B", "0KiB", "0.5"] {
            assert!(read::<Size>(text).is_err(), "{text}");
        }
        for text in ["0", "0k", "-1"] {
            assert!(read::<Count>(text).is_err(), "{text}");
        }
        assert_eq!(
            read("1ns"),
            Ok(Positive(Period(std::time::Duration::from_nanos(1))))
        );
        assert_eq!(read("1B"), Ok(Positive::from_bytes(1)));
        assert_eq!(read("2k"), Ok(Positive(Count(2000))));
    }
}
