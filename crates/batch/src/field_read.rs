//! Whether any event had a field that the configuration reads: a name that no event knows is likely a slip.
//!
//! It costs an atomic load a batch once an event had the field, and until then a look at the cells of one column.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::{Bitmap, Column, FieldPath};

/// A field that an expression or a processor reads. Shared by all instances of the reader.
#[derive(Debug)]
pub struct FieldRead {
    path: FieldPath,
    /// Whether the configuration says that events may do without it, as `has(x)` does.
    may_be_absent: bool,
    /// Whether the reader calls [`FieldRead::note`] itself, because it does not look at the field for every event.
    notes_itself: bool,
    state: AtomicU8,
}

const UNKNOWN: u8 = 0;
const MISSING: u8 = 1;
const SEEN: u8 = 2;

impl FieldRead {
    /// A field that the reader looks at in every event that it gets.
    pub fn always(path: FieldPath) -> Self {
        Self {
            path,
            may_be_absent: false,
            notes_itself: false,
            state: AtomicU8::new(UNKNOWN),
        }
    }

    /// A field that the reader looks at where it comes to it, and notes then.
    pub fn lazily(path: FieldPath) -> Self {
        Self {
            notes_itself: true,
            ..Self::always(path)
        }
    }

    /// Whether events may do without the field.
    pub fn may_be_absent(mut self, may_be_absent: bool) -> Self {
        self.may_be_absent = may_be_absent;
        self
    }

    /// The field.
    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// Whether events are said to do without the field now and then.
    pub fn is_optional(&self) -> bool {
        self.may_be_absent
    }

    /// Whether an expression reads it, where a text without quotes is read as a field.
    pub fn is_in_expression(&self) -> bool {
        self.notes_itself
    }

    /// Whether somebody else has to call [`FieldRead::note`]; not any more once an event had the field.
    pub fn waits_for_note(&self) -> bool {
        !self.notes_itself && self.state.load(Relaxed) != SEEN
    }

    /// Looks at these rows of the field's column.
    #[inline]
    pub fn note(&self, column: &Column, rows: &Bitmap) {
        if self.state.load(Relaxed) != SEEN && !rows.is_empty() {
            let is_there = match column.as_constant() {
                Some(cell) => !cell.is_absent(),
                None => rows.iter().any(|row| !column.cell(row).is_absent()),
            };
            // Another worker may have seen it meanwhile.
            self.state
                .fetch_max(if is_there { SEEN } else { MISSING }, Relaxed);
        }
    }

    /// Whether it was looked for and no event had it.
    pub fn is_missing(&self) -> bool {
        self.state.load(Relaxed) == MISSING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cell;

    #[test]
    fn a_field_is_missing_until_one_event_has_it() {
        let read = FieldRead::always(FieldPath::from_keys(["a"]));
        let (all, second) = (
            Bitmap::from_fn(2, |_| true),
            Bitmap::from_fn(2, |row| row == 1),
        );
        let column = |cells: [Cell; 2]| Column::new(cells.to_vec(), Vec::new().into());
        read.note(&column([Cell::Null; 2]), &Bitmap::none(2));
        assert!(!read.is_missing(), "nothing was looked at");
        read.note(&column([Cell::Null, Cell::Missing]), &second);
        assert!(read.is_missing() && read.waits_for_note());
        read.note(&column([Cell::Null, Cell::Missing]), &all);
        assert!(
            !read.is_missing() && !read.waits_for_note(),
            "null is a value"
        );
        read.note(&Column::constant(Cell::Missing, 2), &all);
        assert!(!read.is_missing());
        assert!(!FieldRead::lazily(read.path().clone()).waits_for_note());
    }
}
