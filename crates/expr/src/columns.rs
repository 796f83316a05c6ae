//! The columns that an expression reads, fetched when the first row asks: what short-circuits never costs an extraction.

use std::cell::OnceCell;
use std::sync::Arc;

use batch::{Batch, Column, FieldPath};

/// A batch as one evaluation sees it.
pub(crate) struct Columns<'b> {
    batch: Option<&'b Batch>,
    fields: &'b [FieldPath],
    fetched: Vec<OnceCell<Arc<Column>>>,
    nothing: Column,
}

impl<'b> Columns<'b> {
    pub fn new(batch: &'b Batch, fields: &'b [FieldPath]) -> Self {
        let fetched = fields.iter().map(|_| OnceCell::new()).collect();
        Self {
            batch: Some(batch),
            fields,
            fetched,
            nothing: Column::constant(batch::Cell::Missing, batch.len()),
        }
    }

    /// No batch, for expressions without fields.
    pub fn none() -> Self {
        Self {
            batch: None,
            fields: &[],
            fetched: Vec::new(),
            nothing: Column::constant(batch::Cell::Missing, 0),
        }
    }

    /// The column of the expression's field with this number.
    #[inline]
    pub fn column(&self, field: usize) -> &Column {
        let (Some(batch), Some(cell)) = (self.batch, self.fetched.get(field)) else {
            return &self.nothing;
        };
        cell.get_or_init(|| batch.column(&self.fields[field]))
    }

    /// When the batch was received, in nanoseconds since 1970.
    pub fn received(&self) -> i64 {
        self.batch.map_or(0, Batch::received)
    }
}
