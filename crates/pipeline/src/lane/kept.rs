//! Batches that are kept while their rows are in requests.

use std::sync::Arc;

use batch::{Batch, Bitmap};
use component::Encoded;

/// A batch that is kept while its rows are in requests, so that a row that is refused can become a letter.
pub struct Kept {
    pub batch: Arc<Batch>,
    rows: Rendered,
}

/// Which rows were rendered, in the order of their bytes.
enum Rendered {
    /// Ascending.
    Set(Bitmap),
    List(Vec<u32>),
}

impl Kept {
    /// The batch of what was rendered; `wanted` are the rows that were to be.
    pub fn new(batch: &Arc<Batch>, wanted: Bitmap, encoded: &Encoded) -> Self {
        let rows = encoded.ends.iter();
        // Rows of one part come in their order, so no list is made of them.
        let is_whole = encoded.parts.is_empty()
            && encoded.refused.is_empty()
            && wanted.count() == encoded.ends.len();
        Self {
            batch: batch.clone(),
            rows: match is_whole {
                true => Rendered::Set(wanted),
                false => Rendered::List(rows.map(|end| end.row).collect()),
            },
        }
    }

    /// What it counts for, in bytes.
    pub fn cost(&self) -> usize {
        self.batch.size()
    }

    /// The row of the batch that was rendered as the one of that number.
    pub fn row(&self, rendered: usize) -> Option<usize> {
        match &self.rows {
            Rendered::Set(rows) => rows.iter().nth(rendered),
            Rendered::List(rows) => rows.get(rendered).map(|row| *row as usize),
        }
    }
}
