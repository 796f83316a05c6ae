//! Values that stand in the configuration and become values of fields.

use std::fmt;

use batch::{Bitmap, Cell, Column, ColumnBuilder, json};
use config::NUMBER_AS_WRITTEN;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value of any type. Unquoted `42`, `1.5`, `true` and `null` have the type they look like; what is quoted is text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    /// A number that the types above would change, as JSON text.
    Number(String),
    Text(String),
    /// An array or object, as JSON text.
    Json(Vec<u8>),
}

impl Literal {
    /// A cell of a column that is being built. It may be set in any number of rows.
    pub fn cell(&self, column: &mut ColumnBuilder) -> Cell {
        match self {
            Self::Null => Cell::Null,
            Self::Bool(value) => Cell::Bool(*value),
            Self::Int(n) => Cell::Int(*n),
            Self::UInt(n) => Cell::UInt(*n),
            Self::Float(n) => Cell::Float(*n),
            Self::Text(text) => {
                Cell::Text(column.append(|out| out.extend_from_slice(text.as_bytes())))
            }
            Self::Number(text) => {
                Cell::Number(column.append(|out| out.extend_from_slice(text.as_bytes())))
            }
            Self::Json(text) => Cell::Json(column.append(|out| out.extend_from_slice(text))),
        }
    }

    /// A column that holds this value in `rows`.
    pub fn column(&self, rows: &Bitmap) -> Column {
        match self {
            Self::Text(text) if rows.is_full() => {
                Column::constant_text(text.as_bytes(), rows.len())
            }
            Self::Json(text) if rows.is_full() => Column::constant_json(text, rows.len()),
            _ => {
                let mut column = ColumnBuilder::new(rows.len());
                let cell = self.cell(&mut column);
                if rows.is_full() && cell.span().is_none() {
                    return Column::constant(cell, rows.len());
                }
                rows.iter().for_each(|row| column.set(row, cell));
                column.finish()
            }
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Int(n) => json::write_i64(out, *n),
            Self::UInt(n) => json::write_u64(out, *n),
            Self::Float(n) => json::write_f64(out, *n),
            Self::Text(text) => json::write_string(out, text.as_bytes()),
            Self::Number(text) => out.extend_from_slice(text.as_bytes()),
            Self::Json(text) => out.extend_from_slice(text),
        }
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NUMBER_AS_WRITTEN, AnyValue)
    }
}

/// A number of JSON: of the smallest type that writes it just so, else as its text.
fn number(text: &str) -> Literal {
    if let Ok(value) = text.parse() {
        return Literal::Int(value);
    }
    if let Ok(value) = text.parse() {
        return Literal::UInt(value);
    }
    let mut written = Vec::new();
    let float = text.parse().ok().filter(|value: &f64| value.is_finite());
    float
        .filter(|value| {
            json::write_f64(&mut written, *value);
            written == text.as_bytes()
        })
        .map_or_else(|| Literal::Number(text.to_owned()), Literal::Float)
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Literal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Literal, E> {
        Ok(Literal::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Literal, E> {
        Ok(Literal::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Literal, E> {
        Ok(Literal::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Literal, E> {
        Ok(i64::try_from(value).map_or(Literal::UInt(value), Literal::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Literal, E> {
        if !value.is_finite() {
            return Err(E::custom("a field cannot hold infinity or NaN"));
        }
        Ok(Literal::Float(value))
    }

    /// A number, as it is written.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, text: D) -> Result<Literal, D::Error> {
        let text = String::deserialize(text)?;
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(number(&text)),
            _ => Err(D::Error::custom(format!(
                "`{text}` is beyond the numbers of a field"
            ))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Literal, E> {
        Ok(Literal::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Literal, A::Error> {
        let mut out = vec![b'['];
        while let Some(item) = items.next_element::<Literal>()? {
            if out.len() > 1 {
                out.push(b',');
            }
            item.write_json(&mut out);
        }
        out.push(b']');
        Ok(Literal::Json(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Literal, A::Error> {
        let mut out = vec![b'{'];
        while let Some((key, value)) = entries.next_entry::<String, Literal>()? {
            if out.len() > 1 {
                out.push(b',');
            }
            json::write_string(&mut out, key.as_bytes());
            out.push(b':');
            value.write_json(&mut out);
        }
        out.push(b'}');
        Ok(Literal::Json(out))
    }
}

impl JsonSchema for Literal {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Literal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!(true)
    }
}
