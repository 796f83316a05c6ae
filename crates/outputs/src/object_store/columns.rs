//! Columns of Parquet: what is taken of an event into a column of its type, and how rows are handed to whoever writes the file.
//!
//! A value that a column cannot represent stays in the rest of the event, which is a column of JSON, so that nothing is lost.
//!
//! Rows on their way: the number of rows (4 bytes, little-endian, like all), then for each column the length of what follows (4), a byte for each row,
//! 1 where there is a value, and the values: 8 bytes of a whole number, a time in microseconds or a float, 1 byte of a truth value, or the length (4)
//! and the bytes of a text.

use std::io;
use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Edit, FieldPath, FieldRead, JsonWriter, Value};
use config::{ConfigError, Node};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::Deserialize;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Texts, and numbers and truth values as they are written.
    Text,
    /// Whole numbers of 64 bits, also those in texts.
    Int,
    /// Numbers, as the nearest one of 64 bits, also those in texts.
    Float,
    /// Truth values, also `true` and `false` in texts.
    Bool,
    /// Times of RFC 3339, in microseconds.
    Timestamp,
    /// Any value, as JSON.
    Json,
}

/// A declared column.
#[derive(Debug, Clone)]
pub struct DeclaredColumn {
    /// Its name in the file.
    pub name: String,
    /// Its type.
    pub kind: ColumnType,
    path: FieldPath,
}

/// All columns of a file.
#[derive(Debug)]
pub struct Columns {
    /// Those of fields.
    pub declared: Vec<DeclaredColumn>,
    /// The name of the one that holds the rest, if there is one.
    pub rest: Option<String>,
}

/// Columns over one batch.
pub struct BoundColumns<'a> {
    columns: &'a Columns,
    values: Vec<(Arc<Column>, Option<EventTimes>)>,
    /// The rows of which each column has a value.
    taken: Vec<Bitmap>,
    /// The events without what the columns have.
    rest: Option<Batch>,
}

/// A value in the form of its column.
#[derive(Clone, Copy)]
enum Typed<'a> {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(Value<'a>),
    Json(Value<'a>),
}

impl Columns {
    /// The columns in a setting, a map of names to types, and the name of the column for the rest.
    ///
    /// # Errors
    /// A name is no field name, or two columns have one name, with its place.
    pub fn new(at: Option<&Node>, rest: &str) -> Result<Self, ConfigError> {
        let entries = at.and_then(Node::as_map).unwrap_or_default();
        let mut declared: Vec<DeclaredColumn> = Vec::new();
        for (key, kind) in entries {
            let text = key.as_str().unwrap_or_default();
            let path = component::field_at(key, text)?;
            let name = path.keys().join(".");
            let kind = kind.deserialize::<ColumnType>()?;
            if name == rest || declared.iter().any(|other| other.name == name) {
                return Err(key.error(format!("two columns are called `{name}`")));
            }
            declared.push(DeclaredColumn { name, kind, path });
        }
        if declared.is_empty() {
            let path = FieldPath::from_keys(["@timestamp"]);
            let (name, kind) = ("@timestamp".to_owned(), ColumnType::Timestamp);
            declared.push(DeclaredColumn { name, kind, path });
        }
        let rest = (!rest.is_empty()).then(|| rest.to_owned());
        Ok(Self { declared, rest })
    }

    /// The fields that columns name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let paths = self.declared.iter().map(|column| column.path.clone());
        paths.map(|path| Arc::new(FieldRead::always(path)))
    }

    /// The columns over these rows of a batch.
    pub fn bind<'a>(&'a self, batch: &Batch, rows: &Bitmap) -> BoundColumns<'a> {
        let read = batch.columns(self.declared.iter().map(|column| &column.path));
        let declared = self.declared.iter().zip(read);
        let values: Vec<_> = declared
            .map(|(column, values)| {
                let is_time = column.kind == ColumnType::Timestamp;
                let times = is_time.then(|| EventTimes::in_field(batch, &column.path));
                (values, times)
            })
            .collect();
        let has = |(column, (values, times)): (&DeclaredColumn, &(Arc<Column>, _))| {
            Bitmap::from_fn(batch.len(), |row| {
                rows.contains(row) && typed(column.kind, values, times, row).is_some()
            })
        };
        let taken: Vec<Bitmap> = self.declared.iter().zip(&values).map(has).collect();
        let rest = self.rest.as_ref().map(|_| {
            let mut rest = batch.branch(rows);
            let mut edit = Edit::new();
            for (column, taken) in self.declared.iter().zip(&taken) {
                if !taken.is_empty() {
                    edit.remove(column.path.clone(), taken);
                }
            }
            let refused = rest.apply(edit);
            debug_assert!(refused.is_empty(), "a removal is always possible");
            rest
        });
        BoundColumns {
            columns: self,
            values,
            taken,
            rest,
        }
    }
}

fn typed<'a>(
    kind: ColumnType,
    column: &'a Column,
    times: &Option<EventTimes>,
    row: usize,
) -> Option<Typed<'a>> {
    let value = column.value(row);
    match (kind, value) {
        (_, Value::Missing | Value::Null) => None,
        (ColumnType::Text, Value::Json(_) | Value::MsgPack(_)) => None,
        (ColumnType::Text, value) => Some(Typed::Text(value)),
        (ColumnType::Json, value) => Some(Typed::Json(value)),
        (ColumnType::Int, Value::Int(number)) => Some(Typed::Int(number)),
        (ColumnType::Int, Value::Number(text) | Value::Text(text)) => whole(text).map(Typed::Int),
        (ColumnType::Float, Value::Int(number)) => Some(Typed::Float(number as f64)),
        (ColumnType::Float, Value::UInt(number)) => Some(Typed::Float(number as f64)),
        (ColumnType::Float, Value::Float(number)) => Some(Typed::Float(number)),
        (ColumnType::Float, Value::Number(text) | Value::Text(text)) => {
            float(text).map(Typed::Float)
        }
        (ColumnType::Bool, Value::Bool(value)) => Some(Typed::Bool(value)),
        (ColumnType::Bool, Value::Text(b"true")) => Some(Typed::Bool(true)),
        (ColumnType::Bool, Value::Text(b"false")) => Some(Typed::Bool(false)),
        (ColumnType::Timestamp, _) => {
            let nanos = times.as_ref()?.own_nanos(row)?;
            Some(Typed::Int(nanos.div_euclid(1000)))
        }
        _ => None,
    }
}

/// The number in a text that is written in no other way.
fn whole(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_plain || digits.len() > 19 {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number in a text that begins and ends with a digit, as JSON has it.
fn float(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !digits.first()?.is_ascii_digit() || !digits.last()?.is_ascii_digit() {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

impl BoundColumns<'_> {
    /// Appends rows, as the module describes.
    pub fn write(&self, rows: &Bitmap, out: &mut Vec<u8>) {
        out.extend((rows.count() as u32).to_le_bytes());
        let declared = self.columns.declared.iter().zip(&self.values);
        for ((column, (values, times)), taken) in declared.zip(&self.taken) {
            sized(out, |out| {
                out.extend(rows.iter().map(|row| u8::from(taken.contains(row))));
                for row in rows.iter().filter(|row| taken.contains(*row)) {
                    write_value(typed(column.kind, values, times, row), out);
                }
            });
        }
        if let Some(rest) = &self.rest {
            let writer = JsonWriter::new(rest);
            sized(out, |out| {
                out.resize(out.len() + rows.count(), 1);
                for row in rows.iter() {
                    sized(out, |out| writer.write(row, out));
                }
            });
        }
    }
}

fn write_value(value: Option<Typed<'_>>, out: &mut Vec<u8>) {
    match value {
        None => {}
        Some(Typed::Int(number)) => out.extend(number.to_le_bytes()),
        Some(Typed::Float(number)) => out.extend(number.to_le_bytes()),
        Some(Typed::Bool(value)) => out.push(value.into()),
        Some(Typed::Text(Value::Text(text))) => sized(out, |out| out.extend_from_slice(text)),
        Some(Typed::Text(value)) => sized(out, |out| value.write_text(out)),
        Some(Typed::Json(value)) => sized(out, |out| value.write_json(out)),
    }
}

/// Appends something behind its length.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The rows of one column on their way.
#[derive(Debug)]
pub struct ColumnRows<'a> {
    /// 1 for each row with a value, else 0.
    pub levels: &'a [u8],
    values: &'a [u8],
}

/// The number of rows, and the columns one after the other, of what [`BoundColumns::write`] wrote.
///
/// # Errors
/// It is something else.
pub fn read(text: &[u8]) -> io::Result<(usize, impl Iterator<Item = io::Result<ColumnRows<'_>>>)> {
    let mut rest = text;
    let rows = length(&mut rest)?;
    let mut next = move || {
        let column = piece(&mut rest)?;
        let (levels, values) = column.split_at_checked(rows).ok_or_else(broken)?;
        Ok(ColumnRows { levels, values })
    };
    let mut left = text.len().saturating_sub(4);
    let columns = std::iter::from_fn(move || {
        // Every column has at least its length.
        (left >= 4).then(|| {
            let column = next();
            left = match &column {
                Ok(column) => left.saturating_sub(4 + column.levels.len() + column.values.len()),
                Err(_) => 0,
            };
            column
        })
    });
    Ok((rows, columns))
}

impl<'a> ColumnRows<'a> {
    /// The values of 8 bytes.
    pub fn eights(&self) -> impl Iterator<Item = [u8; 8]> {
        self.values.as_chunks().0.iter().copied()
    }

    /// The values of one byte.
    pub fn bytes(&self) -> &'a [u8] {
        self.values
    }

    /// The texts: where each lies in [`ColumnRows::bytes`].
    pub fn texts(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let values = self.values;
        let mut at = 0;
        std::iter::from_fn(move || {
            let (length, _) = values.get(at..)?.split_first_chunk::<4>()?;
            let start = at + 4;
            at = start + u32::from_le_bytes(*length) as usize;
            Some(start..at)
        })
    }
}

fn length(rest: &mut &[u8]) -> io::Result<usize> {
    let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
    *rest = behind;
    Ok(u32::from_le_bytes(*length) as usize)
}

fn piece<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = length(rest)?;
    let (piece, behind) = rest.split_at_checked(length).ok_or_else(broken)?;
    *rest = behind;
    Ok(piece)
}

fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "internal error: rows are not whole",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_are_those_that_are_written_so() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("007", None),
            ("-0", None),
            ("+1", None),
            ("1.0", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(whole(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("1.50", Some(1.5)),
            ("-2e3", Some(-2000.0)),
            ("1e999", None),
            ("inf", None),
            ("1.", None),
            ("", None),
        ] {
            assert_eq!(float(text.as_bytes()), expected, "{text}");
        }
    }
}
