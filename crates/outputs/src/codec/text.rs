//! The codec `text`: one field as it is. An event without the field is written as JSON, so that nothing is lost.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, FieldRead, JsonWriter, Value};

use super::json::write_one;

/// The field that is the text of an event.
#[derive(Debug, Clone)]
pub struct TextField {
    path: FieldPath,
    /// The settings name the field, so that events are expected to have it.
    is_named: bool,
}

impl TextField {
    /// A field that the settings name.
    pub fn named(path: FieldPath) -> Self {
        Self {
            path,
            is_named: true,
        }
    }

    /// The field, to find out whether any event has it.
    pub fn read(&self) -> Arc<FieldRead> {
        let read = FieldRead::always(self.path.clone());
        Arc::new(read.may_be_absent(!self.is_named))
    }

    /// The field in the columns of one batch.
    pub fn bind<'a>(&self, batch: &'a Batch) -> BoundText<'a> {
        BoundText {
            column: batch.column(&self.path),
            batch,
            json: None,
        }
    }
}

impl Default for TextField {
    fn default() -> Self {
        Self {
            path: FieldPath::from_keys(["message"]),
            is_named: false,
        }
    }
}

/// The texts of one batch.
#[derive(Debug)]
pub struct BoundText<'a> {
    column: Arc<Column>,
    batch: &'a Batch,
    /// Made for the first event without the field.
    json: Option<JsonWriter<'a>>,
}

impl BoundText<'_> {
    /// Appends the text of a row.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        match self.column.value(row) {
            Value::Missing | Value::Null => {
                let json = self.json.get_or_insert_with(|| JsonWriter::new(self.batch));
                write_one(json, row, out);
            }
            value => value.write_text(out),
        }
    }
}
