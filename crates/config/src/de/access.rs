//! Walking lists, maps and variants.

use serde::Deserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::fault::Fault;
use super::{KeyReader, NodeReader};
use crate::node::{Node, NodeKind};

/// The items of a list.
pub(super) struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> Items<'de> {
    pub(super) fn new(items: &'de [Node]) -> Self {
        Self(items.iter())
    }

    pub(super) fn next_item(&mut self) -> Option<&'de Node> {
        self.0.next()
    }

    /// How many are left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.next_item() else {
            return Ok(None);
        };
        let value = seed.deserialize(NodeReader::new(item));
        value.map(Some).map_err(|fault| fault.at(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// The entries of a map.
pub(super) struct Entries<'de> {
    entries: std::slice::Iter<'de, (Node, Node)>,
    value: Option<&'de Node>,
}

impl<'de> Entries<'de> {
    pub(super) fn new(entries: &'de [(Node, Node)]) -> Self {
        Self {
            entries: entries.iter(),
            value: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name = seed.deserialize(KeyReader(key));
        name.map(Some).map_err(|fault| fault.at(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(value) = self.value.take() else {
            return Err(Fault::custom("a value was requested before its key"));
        };
        seed.deserialize(NodeReader::new(value))
            .map_err(|fault| fault.at(value))
    }
}

/// A variant's name with its content, when it has any.
pub(super) struct Variant<'de> {
    pub(super) name: &'de Node,
    pub(super) value: Option<&'de Node>,
}

impl<'de> Variant<'de> {
    /// Reads the content; without any, as null.
    fn content(&self) -> NodeReader<'de> {
        NodeReader {
            as_null: self.value.is_none(),
            ..NodeReader::new(self.value.unwrap_or(self.name))
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name = seed.deserialize(KeyReader(self.name));
        let name = name.map_err(|fault| fault.at(self.name))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.value.map(|value| (value, &value.kind)) {
            None | Some((_, NodeKind::Null)) => Ok(()),
            Some((_, NodeKind::Map(entries))) if entries.is_empty() => Ok(()),
            Some((value, _)) => {
                let name = self.name.as_str().unwrap_or_default();
                Err(Fault::custom(format!("`{name}` accepts no settings")).at(value))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.content())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.content().deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.content().deserialize_map(visitor)
    }
}
