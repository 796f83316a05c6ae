//! The columns that an expression reads, fetched when the first row asks: what short-circuits never costs an extraction.

use std::cell::OnceCell;
use std::sync::Arc;

use batch::{Batch, Column, FieldRead};

/// A batch as one evaluation sees it.
pub(crate) struct Columns<'b> {
    batch: Option<&'b Batch>,
    reads: &'b [Arc<FieldRead>],
    fetched: Vec<OnceCell<Arc<Column>>>,
    nothing: Column,
}

impl<'b> Columns<'b> {
    pub fn new(batch: &'b Batch, reads: &'b [Arc<FieldRead>]) -> Self {
        let fetched = reads.iter().map(|_| OnceCell::new()).collect();
        Self {
            batch: Some(batch),
            reads,
            fetched,
            nothing: Column::constant(batch::Cell::Missing, batch.len()),
        }
    }

    /// No batch, for expressions without fields.
    pub fn none() -> Self {
        Self {
            batch: None,
            reads: &[],
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
        cell.get_or_init(|| {
            let read = &self.reads[field];
            let column = batch.column(read.path());
            read.note(&column, batch.alive());
            column
        })
    }

    /// When the batch was received, in nanoseconds since 1970.
    pub fn received(&self) -> i64 {
        self.batch.map_or(0, Batch::received)
    }
}
