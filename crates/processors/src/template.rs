//! Texts with references to fields: `%{user} from %{[source][ip]}`.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, FieldPath, Value};

/// A text with references to fields.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(Box<str>),
    Field {
        path: FieldPath,
        /// The reference as it stands in the template.
        reference: Box<str>,
    },
}

/// Why a text is no template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct TemplateError {
    pub message: String,
    pub at: Range<usize>,
}

impl Template {
    /// Whether a text has a reference in it.
    pub fn is_template(text: &str) -> bool {
        text.contains("%{")
    }

    /// Parses a text.
    ///
    /// # Errors
    /// A reference that is not closed or names no field.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut pos = 0;
        while let Some(open) = text[pos..].find("%{") {
            let start = pos + open;
            let Some(length) = text[start..].find('}') else {
                let message = "this reference is not closed with `}`".to_owned();
                return Err(TemplateError {
                    message,
                    at: start..text.len(),
                });
            };
            let end = start + length + 1;
            let name = &text[start + 2..end - 1];
            let path = FieldPath::parse(name).map_err(|error| TemplateError {
                message: format!("`{name}` is not a field name: {error}"),
                at: start..end,
            })?;
            if open > 0 {
                parts.push(Part::Text(text[pos..start].into()));
            }
            parts.push(Part::Field {
                path,
                reference: text[start..end].into(),
            });
            pos = end;
        }
        if pos < text.len() {
            parts.push(Part::Text(text[pos..].into()));
        }
        Ok(Self { parts })
    }

    /// Sets the rows of a column to the template's text. A reference to a field that is absent or null stays as it is
    /// written.
    pub fn fill(&self, batch: &Batch, rows: &Bitmap, column: &mut ColumnBuilder) {
        let fields: Vec<Option<Arc<Column>>> =
            self.parts.iter().map(|part| part.column(batch)).collect();
        for row in rows.iter() {
            let span = column.append(|out| {
                for (part, values) in self.parts.iter().zip(&fields) {
                    part.write(values.as_deref().map(|values| values.value(row)), out);
                }
            });
            column.set(row, Cell::Text(span));
        }
    }
}

impl Part {
    fn column(&self, batch: &Batch) -> Option<Arc<Column>> {
        match self {
            Self::Text(_) => None,
            Self::Field { path, .. } => Some(batch.column(path)),
        }
    }

    fn write(&self, value: Option<Value<'_>>, out: &mut Vec<u8>) {
        match (self, value) {
            (Self::Text(text), _) => out.extend_from_slice(text.as_bytes()),
            (Self::Field { reference, .. }, None | Some(Value::Missing | Value::Null)) => {
                out.extend_from_slice(reference.as_bytes());
            }
            (Self::Field { .. }, Some(value)) => value.write_text(out),
        }
    }
}
