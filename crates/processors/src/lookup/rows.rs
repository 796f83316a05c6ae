//! The rows of a table in one text, so that a row takes no allocation of its own.
//!
//! A row is its key, if it is looked up by one, the number of its values, and the values in the order of the columns:
//!
//! | part | bytes |
//! | --- | --- |
//! | key | for each column of it, a length and the text |
//! | number of values | a number; columns behind these have no value |
//! | value | a number, `length * 4 + kind`, and the bytes of the value |
//!
//! | kind | value |
//! | --- | --- |
//! | 0 | text, unescaped |
//! | 1 | the digits of a number |
//! | 2 | a JSON array or object |
//! | 3 | without bytes; the length says which: 0 none, 1 `false`, 2 `true` |
//!
//! Numbers and lengths are written seven bits a byte, the lowest first; the eighth bit says that more follow. A row is
//! named by the offset at which it begins. Values become cells that point into the text: nothing is copied.

use batch::{Cell, Span, Value};

/// The most bytes of all rows of a table: a cell's span has 32 bits.
pub(super) const TEXT_BYTES_MAX: usize = u32::MAX as usize - 1;

const TEXT: u32 = 0;
const NUMBER: u32 = 1;
const JSON: u32 = 2;
const OTHER: u32 = 3;

/// Appends a number.
pub(super) fn write_number(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number at `at`, and where it ends.
#[inline]
fn number(text: &[u8], mut at: usize) -> (u32, usize) {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = text[at];
        at += 1;
        number |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (number, at);
        }
        shift += 7;
    }
}

/// Appends a part of a key; `false`, and nothing, where there is no value.
#[inline]
pub(super) fn write_key(value: Value<'_>, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Missing | Value::Null => return false,
        Value::Text(text) | Value::Number(text) => write_key_text(text, out),
        other => {
            let mut text = Vec::new();
            other.write_text(&mut text);
            write_key_text(&text, out);
        }
    }
    true
}

#[inline]
fn write_key_text(text: &[u8], out: &mut Vec<u8>) {
    write_number(text.len() as u32, out);
    out.extend_from_slice(text);
}

/// Appends a value.
pub(super) fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    let mut write = |kind, bytes: &[u8]| {
        write_number((bytes.len() as u32) << 2 | kind, out);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Text(text) => write(TEXT, text),
        Value::Number(digits) => write(NUMBER, digits),
        Value::Json(json) => write(JSON, json),
        Value::Bool(truth) => write_number((1 + u32::from(truth)) << 2 | OTHER, out),
        _ => write_number(OTHER, out),
    }
}

/// The length of `parts` parts of a key at `at`.
pub(super) fn key_len(text: &[u8], at: usize, parts: usize) -> usize {
    let end = (0..parts).fold(at, |at, _| {
        let (len, start) = number(text, at);
        start + len as usize
    });
    end - at
}

/// The values of a row, as cells over a list with the text as its first buffer; [`Cell::Keep`] where there is none.
pub(super) struct RowCells<'t> {
    text: &'t [u8],
    at: usize,
    left: u32,
}

impl<'t> RowCells<'t> {
    /// The values that begin at `at`, behind the key.
    #[inline]
    pub fn new(text: &'t [u8], at: usize) -> Self {
        let (left, at) = number(text, at);
        Self { text, at, left }
    }
}

impl Iterator for RowCells<'_> {
    type Item = Cell;

    #[inline]
    fn next(&mut self) -> Option<Cell> {
        self.left = self.left.checked_sub(1)?;
        let (head, start) = number(self.text, self.at);
        let (kind, len) = (head & 3, head >> 2);
        self.at = start;
        if kind == OTHER {
            return Some(match len {
                0 => Cell::Keep,
                truth => Cell::Bool(truth == 2),
            });
        }
        self.at += len as usize;
        let span = Span {
            buffer: 0,
            start: start as u32,
            len,
        };
        Some(match kind {
            TEXT => Cell::Text(span),
            NUMBER => Cell::Number(span),
            _ => Cell::Json(span),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::Column;
    use bytes::Bytes;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let long = "x".repeat(20_000);
        let values = [
            Value::Text(b""),
            Value::Missing,
            Value::Text(long.as_bytes()),
            Value::Bool(true),
            Value::Number(b"1.50"),
            Value::Null,
            Value::Bool(false),
            Value::Json(b"[1]"),
        ];
        let mut text = b"before".to_vec();
        assert!(write_key(Value::Int(-12), &mut text));
        assert!(write_key(Value::Text(long.as_bytes()), &mut text));
        assert!(!write_key(Value::Null, &mut text));
        let behind_key = text.len();
        assert_eq!(key_len(&text, 6, 2), behind_key - 6);
        assert_eq!(&text[6..10], b"\x03-12");
        write_number(values.len() as u32, &mut text);
        values
            .iter()
            .for_each(|value| write_value(*value, &mut text));
        let cells: Vec<Cell> = RowCells::new(&text, behind_key).collect();
        let column = Column::new(cells, [Bytes::from(text)].into());
        for (row, value) in values.iter().enumerate() {
            let expected = match value {
                Value::Null => Value::Missing,
                value => *value,
            };
            assert_eq!(column.value(row), expected, "{row}");
        }
        assert_eq!(column.len(), values.len());
    }
}
