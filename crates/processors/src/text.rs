//! The texts of a field, for processors that read text.
//!
//! Text and the digits of a number are used where they lie; other values (truth values, computed numbers, times, arrays
//! and objects) are written out once into a buffer of their own. So a capture is always a span of one list of buffers.

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, FieldPath, Span, Value, json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The texts of a field in some rows of a batch.
pub(crate) struct Texts(Arc<Column>);

impl Texts {
    /// Reads the field at `path` in `rows`.
    pub fn of(batch: &Batch, path: &FieldPath, rows: &Bitmap) -> Self {
        let column = batch.column(path);
        if rows.iter().all(|row| has_text(column.cell(row))) {
            return Self(column);
        }
        let mut texts = ColumnBuilder::over(batch.len(), column.buffers().clone());
        for row in rows.iter() {
            let cell = match column.cell(row) {
                cell if has_text(cell) => cell,
                cell => Cell::Text(texts.append(|out| column.value_of(cell).write_text(out))),
            };
            texts.set(row, cell);
        }
        Self(Arc::new(texts.finish()))
    }

    /// The text of a row and where it lies; none where the field is absent or null.
    #[inline]
    pub fn get(&self, row: usize) -> Option<(Span, &[u8])> {
        let span = self.0.cell(row).span()?;
        Some((span, self.0.bytes(span)))
    }

    /// A builder for `len` rows whose cells may hold the spans of these texts.
    pub fn builder(&self, len: usize) -> ColumnBuilder {
        ColumnBuilder::over(len, self.0.buffers().clone())
    }
}

/// Whether the cell can be used as it is: its bytes are its text, or it has none.
fn has_text(cell: Cell) -> bool {
    matches!(
        cell,
        Cell::Text(_) | Cell::Number(_) | Cell::Json(_) | Cell::Null
    ) || cell.is_absent()
}

/// Appends bytes in small hexadecimal digits.
pub(crate) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// At which ends a text is trimmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trim {
    #[default]
    None,
    Left,
    Right,
    All,
}

impl Trim {
    /// A range of a text without the given characters at its ends.
    #[inline]
    pub fn range(
        self,
        text: &[u8],
        (mut start, mut end): (usize, usize),
        characters: &str,
    ) -> (usize, usize) {
        if self == Self::None || characters.is_empty() {
            return (start, end);
        }
        let (left, right) = (self != Self::Right, self != Self::Left);
        if characters.is_ascii() {
            let cut = |byte: u8| characters.as_bytes().contains(&byte);
            while left && start < end && cut(text[start]) {
                start += 1;
            }
            while right && start < end && cut(text[end - 1]) {
                end -= 1;
            }
        } else if let Ok(mut rest) = std::str::from_utf8(&text[start..end]) {
            let cut = |c: char| characters.contains(c);
            if left {
                rest = rest.trim_start_matches(cut);
                start = end - rest.len();
            }
            if right {
                end = start + rest.trim_end_matches(cut).len();
            }
        }
        (start, end)
    }
}

/// The part of a span from `start` to `end`.
#[inline]
pub(crate) fn part(span: Span, start: usize, end: usize) -> Span {
    Span {
        start: span.start + start as u32,
        len: (end - start) as u32,
        ..span
    }
}

/// The cell of a JSON value that needs no change.
pub(crate) fn plain_cell(kind: json::Kind, value: &[u8], span: Span) -> Cell {
    match kind {
        json::Kind::Null => Cell::Null,
        json::Kind::Bool => Cell::Bool(value == b"true"),
        json::Kind::Number => Cell::Number(span),
        json::Kind::String | json::Kind::Object | json::Kind::Array => Cell::Json(span),
    }
}

/// The first value of an array, and every other value itself.
#[inline]
pub(crate) fn first_of(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Json(text) if text.first() == Some(&b'[') => first_element(text),
        value => value,
    }
}

fn first_element(text: &[u8]) -> Value<'_> {
    match json::elements(text).next() {
        Some(at)
            if json::kind(&text[at.clone()]) == json::Kind::String
                && !json::has_escape(&text[at.clone()]) =>
        {
            Value::Text(&text[at.start + 1..at.end - 1])
        }
        Some(at) => Value::Json(&text[at]),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::batch_of;

    #[test]
    fn every_value_has_its_text() {
        let table = [
            (r#"{"a":"x y"}"#, Some("x y")),
            (r#"{"a":"\u0041\n"}"#, Some("A\n")),
            (r#"{"a":1.50}"#, Some("1.50")),
            (r#"{"a":true}"#, Some("true")),
            (r#"{"a":[1, 2]}"#, Some("[1, 2]")),
            (r#"{"a":""}"#, Some("")),
            (r#"{"a":null}"#, None),
            (r#"{"b":1}"#, None),
        ];
        let batch = batch_of(table.iter().map(|row| row.0));
        let texts = Texts::of(&batch, &FieldPath::from_keys(["a"]), batch.alive());
        for (row, (event, expected)) in table.iter().enumerate() {
            assert_eq!(
                texts.get(row).map(|(_, text)| text),
                expected.map(str::as_bytes),
                "{event}"
            );
        }
    }
}
