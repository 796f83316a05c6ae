//! Changes of a batch, and rows that failed.

use std::sync::Arc;

use crate::column::Column;
use crate::path::FieldPath;

/// A change of a batch that is applied as a whole, row by row: a row for which one of its writes is impossible gets
/// none of them. In each column, cells that are [`crate::Cell::Keep`] leave their row as it is.
#[derive(Debug, Default)]
pub struct Edit {
    pub(crate) changes: Vec<Change>,
    /// Some key in the objects that are set holds a dot.
    pub(crate) dotted_keys: bool,
}

#[derive(Debug)]
pub(crate) enum Change {
    /// Cells replace the field; [`crate::Cell::Missing`] removes it.
    Set(FieldPath, Column),
    /// JSON objects whose members replace the object's members of the same name, deeply. `None` is the event itself.
    Merge {
        at: Option<FieldPath>,
        objects: Column,
        dotted_keys: bool,
    },
}

impl Edit {
    /// An empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field to the column's cells.
    pub fn set(&mut self, path: FieldPath, column: Column) -> &mut Self {
        self.changes.push(Change::Set(path, column));
        self
    }

    /// Removes a field from the rows of `column` that are [`crate::Cell::Missing`].
    pub fn remove(&mut self, path: FieldPath, rows: &crate::Bitmap) -> &mut Self {
        let cell = |row| {
            if rows.contains(row) {
                crate::Cell::Missing
            } else {
                crate::Cell::Keep
            }
        };
        let cells = (0..rows.len()).map(cell).collect();
        self.set(path, Column::new(cells, Arc::new([])))
    }

    /// Merges a column of JSON objects into the object at `at`, or into the event itself. `dotted_keys` says whether
    /// some key in them holds a dot.
    pub fn merge(
        &mut self,
        at: Option<FieldPath>,
        objects: Column,
        dotted_keys: bool,
    ) -> &mut Self {
        self.changes.push(Change::Merge {
            at,
            objects,
            dotted_keys,
        });
        self
    }

    /// Says that some key in the objects that are set holds a dot, so that `a.b` has to find it. Dots in the keys of the
    /// paths themselves need no mention.
    pub fn dotted_keys(&mut self) -> &mut Self {
        self.dotted_keys = true;
        self
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// One row that a processor could not handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The row.
    pub row: usize,
    /// The tag it gets, such as `_grokparsefailure`.
    pub tag: Arc<str>,
    /// The reason, for `error.message`.
    pub reason: Arc<str>,
}

/// The rows that a processor could not handle, each at most once. Their values are those from before the processor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    rows: Vec<Failure>,
}

impl Failures {
    /// No row failed.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a row.
    pub fn push(&mut self, row: usize, tag: &Arc<str>, reason: &Arc<str>) {
        self.rows.push(Failure {
            row,
            tag: tag.clone(),
            reason: reason.clone(),
        });
    }

    /// Adds the rows whose edit was refused, all with one tag.
    pub fn extend_refused(&mut self, refused: Vec<(usize, Arc<str>)>, tag: &Arc<str>) {
        self.rows
            .extend(refused.into_iter().map(|(row, reason)| Failure {
                row,
                tag: tag.clone(),
                reason,
            }));
    }

    /// The failed rows.
    pub fn rows(&self) -> &[Failure] {
        &self.rows
    }

    /// Whether no row failed.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
