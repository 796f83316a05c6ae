//! Reading a tree into Rust types through serde.
//!
//! What is asked for decides how a scalar reads: `80` is a number for a `u16` and text for a `String`. A quoted scalar
//! reads as a number or a truth value too when one is asked for, because the one-line form quotes as a shell does; only
//! where nothing is asked for (`deserialize_any`) are quotes a promise of text. A single scalar stands for a list of
//! one where a list is asked for, null for a map without entries where a struct is.
//!
//! Errors stand at the innermost node that was being read. Serde buffers what it reads for untagged enums and flattened
//! structs: errors from within these stand at the node around them.

mod access;
mod fault;
mod names;

#[cfg(test)]
mod tests;

use serde::Deserializer;
use serde::de::{DeserializeOwned, Error as _, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use crate::error::ConfigError;
use crate::node::{Node, NodeKind, resolve};
use crate::scalar::{self, Resolved};
use access::{Entries, Items, Variant};
use fault::Fault;

pub use names::setting_names;

/// The name by which a newtype asks for a number as it is written, so that no digit is lost. Where the value is an
/// unquoted number that JSON writes the same way, `visit_newtype_struct` gets its text. Another unquoted number, such as `007`, is
/// refused: it would become another text. Every other value is visited as by `deserialize_any`.
pub const NUMBER_AS_WRITTEN: &str = "$config::number_as_written";

impl Node {
    /// Reads this node as a type.
    pub fn deserialize<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        T::deserialize(NodeReader::new(self)).map_err(|fault| fault.into_error(self))
    }
}

/// Reads one node.
#[derive(Clone, Copy)]
struct NodeReader<'de> {
    node: &'de Node,
    /// Reads the node as if it were null: for the content of a variant that was given by its name alone.
    as_null: bool,
}

impl<'de> NodeReader<'de> {
    fn new(node: &'de Node) -> Self {
        Self {
            node,
            as_null: false,
        }
    }

    fn kind(&self) -> &'de NodeKind {
        if self.as_null {
            &NodeKind::Null
        } else {
            &self.node.kind
        }
    }

    /// The text of a scalar, or a refusal that says what was expected.
    fn text(&self, expected: &str) -> Result<&'de str, Fault> {
        match self.kind() {
            NodeKind::Scalar { text, .. } => Ok(text),
            _ => Err(self.mismatch(expected)),
        }
    }

    /// Whether it is an unquoted number that JSON writes the same way.
    fn is_plain_json_number(&self) -> bool {
        match self.kind() {
            NodeKind::Scalar {
                text,
                quoted: false,
            } => scalar::is_json_number(text),
            _ => false,
        }
    }

    /// The error for something else where a map of these settings belongs.
    fn no_map(&self, fields: &[&str]) -> ConfigError {
        let found = self.node.kind_name();
        let error = self
            .node
            .error(format!("expected a map of settings, found {found}"))
            .accepted(fields.iter().copied());
        match self.node.path().last_key() {
            Some(name) if self.node.source().is_command_line() => error.note(format!(
                "write {name}.SETTING=VALUE, with one of these settings"
            )),
            Some(name) => error.note(format!(
                "write {name}: {{ SETTING: VALUE }}, with one of these settings"
            )),
            None => error,
        }
    }

    /// The refusal of a number that would lose how it is written: `00123`, `+5`, `0x1F`, `.5`.
    fn renumbered(&self) -> Option<Fault> {
        let NodeKind::Scalar {
            text,
            quoted: false,
        } = self.kind()
        else {
            return None;
        };
        let value = match scalar::resolve(text) {
            Resolved::Integer(value) => value.to_string(),
            Resolved::Float(value) if value.is_finite() => value.to_string(),
            _ => return None,
        };
        Some(Fault::Wrong {
            message: format!(
                "`{text}` is the number {value}; put it in quotes to keep its text, or write the number as {value}"
            ),
            suggestion: Some(format!("\"{text}\"")),
        })
    }

    fn mismatch(&self, expected: &str) -> Fault {
        Fault::custom(format!(
            "expected {expected}, found {}",
            self.node.kind_name()
        ))
    }

    fn at<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| fault.at(self.node))
    }

    fn integer<V: Visitor<'de>>(self, visitor: V, min: i128, max: i128) -> Result<V::Value, Fault> {
        let text = self.text("a whole number")?;
        let Some(value) = scalar::read_integer(text) else {
            return Err(Fault::custom(format!(
                "expected a whole number, found `{text}`"
            )));
        };
        if value < min || value > max {
            return Err(Fault::custom(format!(
                "`{text}` is out of range: from {min} to {max}"
            )));
        }
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => visitor.visit_u64(value),
            (_, Ok(value)) => visitor.visit_i64(value),
            _ => visitor.visit_i128(value),
        }
    }

    fn float<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text("a number")?;
        match scalar::read_float(text) {
            Some(value) => visitor.visit_f64(value),
            None => Err(Fault::custom(format!("expected a number, found `{text}`"))),
        }
    }

    fn boolean<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text("true or false")?;
        if let Some(value) = scalar::read_bool(text) {
            return visitor.visit_bool(value);
        }
        let meant = match text.to_ascii_lowercase().as_str() {
            "yes" | "y" | "on" | "1" => Some("true"),
            "no" | "n" | "off" | "0" => Some("false"),
            _ => None,
        };
        let message = format!("expected true or false, found `{text}`");
        Err(Fault::Wrong {
            message,
            suggestion: meant.map(str::to_owned),
        })
    }

    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind() {
            NodeKind::Null => visitor.visit_unit(),
            NodeKind::List(items) => self.items(items, visitor),
            NodeKind::Map(entries) => visitor.visit_map(Entries::new(entries)),
            NodeKind::Scalar { text, quoted } => match resolve(text, *quoted) {
                Resolved::Bool(value) => visitor.visit_bool(value),
                Resolved::Integer(value) => match (u64::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => visitor.visit_u64(value),
                    (_, Ok(value)) => visitor.visit_i64(value),
                    // Few visitors take 128 bits; the text keeps every digit.
                    _ => visitor.visit_borrowed_str(text),
                },
                Resolved::Float(value) => visitor.visit_f64(value),
                Resolved::Text => visitor.visit_borrowed_str(text),
            },
        }
    }

    fn items<V: Visitor<'de>>(self, items: &'de [Node], visitor: V) -> Result<V::Value, Fault> {
        let mut access = Items::new(items);
        let value = visitor.visit_seq(&mut access)?;
        match access.next_item() {
            None => Ok(value),
            Some(extra) => {
                let taken = items.len() - access.len() - 1;
                Err(
                    Fault::custom(format!("expected {taken} values, found {}", items.len()))
                        .at(extra),
                )
            }
        }
    }

    fn sequence<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind() {
            NodeKind::List(items) => self.items(items, visitor),
            NodeKind::Scalar { .. } => self.items(std::slice::from_ref(self.node), visitor),
            _ => Err(self.mismatch("a list")),
        }
    }

    fn map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind() {
            NodeKind::Map(entries) => visitor.visit_map(Entries::new(entries)),
            NodeKind::Null => visitor.visit_map(Entries::new(&[])),
            _ => Err(self.mismatch("a map of settings")),
        }
    }

    fn variant<V: Visitor<'de>>(
        self,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let named = |name, value| Variant { name, value };
        match self.kind() {
            NodeKind::Scalar { .. } => visitor.visit_enum(named(self.node, None)),
            NodeKind::Map(entries) => match entries.as_slice() {
                [(name, value)] => visitor.visit_enum(named(name, Some(value))),
                _ => {
                    let message = format!("expected exactly one of {}", variants.join(", "));
                    Err(Fault::custom(message))
                }
            },
            _ => Err(self.mismatch(&format!("one of {}", variants.join(", ")))),
        }
    }
}

/// Methods that read an integer of a size.
macro_rules! integers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.at(self.integer(visitor, <$type>::MIN as i128, <$type>::MAX as i128))
        }
    )*};
}

/// Methods that hand over to one of the reader's own.
macro_rules! by {
    ($($method:ident($($argument:ident: $type:ty),*): $own:ident),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Fault> {
            self.at(self.$own(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for NodeReader<'de> {
    type Error = Fault;

    integers!(
        deserialize_u8: u8, deserialize_u16: u16, deserialize_u32: u32, deserialize_u64: u64,
        deserialize_i8: i8, deserialize_i16: i16, deserialize_i32: i32, deserialize_i64: i64,
        deserialize_i128: i128
    );

    by!(
        deserialize_any(): any,
        deserialize_bool(): boolean,
        deserialize_f32(): float,
        deserialize_f64(): float,
        deserialize_seq(): sequence,
        deserialize_tuple(_len: usize): sequence,
        deserialize_tuple_struct(_name: &'static str, _len: usize): sequence,
        deserialize_map(): map,
    );

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if let NodeKind::Scalar { .. } | NodeKind::List(_) = self.kind() {
            return Err(Fault::Located(self.no_map(fields)));
        }
        self.at(self.map(visitor))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // Texts beyond 127 bits are refused: no setting counts that far.
        self.at(self.integer(visitor, 0, i128::MAX))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text("text");
        self.at(text.and_then(|text| visitor.visit_borrowed_str(text)))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text("one character");
        self.at(text.and_then(|text| {
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(c), None) => visitor.visit_char(c),
                _ => Err(Fault::custom(format!(
                    "expected one character, found `{text}`"
                ))),
            }
        }))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind() {
            NodeKind::Null => self.at(visitor.visit_unit()),
            _ => self.at(Err(self.mismatch("nothing"))),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.kind() {
            NodeKind::Null => self.at(visitor.visit_none()),
            _ => self.at(visitor.visit_some(self)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if name == NUMBER_AS_WRITTEN && !self.is_plain_json_number() {
            return self.at(match self.renumbered() {
                Some(fault) => Err(fault),
                None => self.any(visitor),
            });
        }
        self.at(visitor.visit_newtype_struct(self))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.at(self.variant(variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text("text");
        self.at(text.and_then(|text| visitor.visit_borrowed_bytes(text.as_bytes())))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }
}

/// Reads a key: always text unless a type is asked for. Errors are left without a place for the map to add to.
#[derive(Clone, Copy)]
struct KeyReader<'de>(&'de Node);

impl<'de> KeyReader<'de> {
    fn text(self) -> &'de str {
        self.0.as_str().unwrap_or_default()
    }
}

impl<'de> Deserializer<'de> for KeyReader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_str(self.text())
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (name, value) = (self.0, None);
        visitor.visit_enum(Variant { name, value })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        NodeReader::new(self.0).deserialize_u64(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        NodeReader::new(self.0).deserialize_i64(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The words for what serde met, in messages.
fn found(unexpected: &Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Str(text) => format!("`{text}`"),
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("`{value}`"),
        Unexpected::Signed(value) => format!("`{value}`"),
        Unexpected::Float(value) => format!("`{value}`"),
        Unexpected::Char(value) => format!("`{value}`"),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}
