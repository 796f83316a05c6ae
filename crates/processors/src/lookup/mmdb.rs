//! Reads a database in the MaxMind format into a table.
//!
//! The tree of networks becomes a list of their borders, and each entry that networks share becomes one row with the columns that are
//! wanted. So nothing is decoded when an address is looked up, and the file itself is not kept.

use std::collections::HashMap;
use std::fmt;

use batch::json;
use ipnet::IpNet;
use maxminddb::{Reader, WithinOptions};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::builder::TableBuilder;
use super::error::TableError;
use super::objects::ObjectRows;
use super::plan::Plan;

/// Reads the bytes of a file into a table.
pub(super) fn read_database(
    plan: &Plan,
    bytes: Vec<u8>,
    builder: &mut TableBuilder<'_>,
) -> Result<(), TableError> {
    let reader = Reader::from_source(bytes)?;
    let mut objects = ObjectRows::new(plan, builder)?;
    let mut rows: HashMap<usize, u32, foldhash::fast::RandomState> = HashMap::default();
    for found in reader.networks(WithinOptions::default())? {
        let found = found?;
        let network = found.network()?;
        let network = IpNet::new(network.ip(), network.prefix());
        let (Some(offset), Ok(network)) = (found.offset(), network) else {
            continue;
        };
        let row = match rows.get(&offset) {
            Some(row) => *row,
            None => {
                let Entry(text) = found.decode()?.unwrap_or_default();
                if text.first() != Some(&b'{') {
                    return Err(TableError::NoObject(network));
                }
                let row = objects.put(plan, builder, 0, &text)?;
                rows.insert(offset, row);
                row
            }
        };
        builder.database_network(network, row);
    }
    Ok(())
}

/// A value of a database as JSON.
#[derive(Default)]
struct Entry(Vec<u8>);

impl<'de> serde::Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut out = Vec::new();
        JsonSeed(&mut out).deserialize(deserializer)?;
        Ok(Self(out))
    }
}

/// Appends a value as JSON. Bytes become text with their digits in pairs; what JSON has no number for becomes null.
struct JsonSeed<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for JsonSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        let text: &[u8] = if value { b"true" } else { b"false" };
        self.0.extend_from_slice(text);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        json::write_i64(self.0, value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        json::write_u64(self.0, value);
        Ok(())
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<(), E> {
        self.0.extend_from_slice(value.to_string().as_bytes());
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match value.is_finite() {
            true => json::write_f64(self.0, value),
            false => self.0.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn visit_f32<E: Error>(self, value: f32) -> Result<(), E> {
        // The shortest digits that give this number.
        match value.is_finite() {
            true => self.0.extend_from_slice(value.to_string().as_bytes()),
            false => self.0.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        json::write_string(self.0, value.as_bytes());
        Ok(())
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<(), E> {
        self.0.push(b'"');
        crate::text::write_hex(value, self.0);
        self.0.push(b'"');
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let mut is_first = true;
        loop {
            let end = self.0.len();
            if !is_first {
                self.0.push(b',');
            }
            if items.next_element_seed(JsonSeed(&mut *self.0))?.is_none() {
                self.0.truncate(end);
                break;
            }
            is_first = false;
        }
        self.0.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let mut is_first = true;
        while let Some(key) = entries.next_key::<std::borrow::Cow<'_, str>>()? {
            if !std::mem::replace(&mut is_first, false) {
                self.0.push(b',');
            }
            json::write_string(self.0, key.as_bytes());
            self.0.push(b':');
            entries.next_value_seed(JsonSeed(&mut *self.0))?;
        }
        self.0.push(b'}');
        Ok(())
    }
}
