//! The names of the settings that a struct declares.

use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

use super::fault::Fault;

/// The settings that a map needs to be read as the struct `T`, in the order of its declaration; for
/// [`Node::divide`](crate::Node::divide). Empty for any other type.
pub fn setting_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Reading ends as soon as the struct has named its fields.
    let _ = T::deserialize(NameReader(&mut names));
    names
}

struct NameReader<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for NameReader<'_> {
    type Error = Fault;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        Err(Fault::custom("there is no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
