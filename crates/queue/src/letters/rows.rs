//! What is written down of the rows that become letters, and what letters on their way again say of themselves.

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, FieldPath, Value};

use super::{Dead, Draft, component, field, now, path};

/// A batch of letters that are on their way again.
pub(super) struct Again {
    attempts: Arc<Column>,
    numbers: Arc<Column>,
    originals: Arc<Column>,
}

impl Again {
    pub fn of(batch: &Batch) -> Option<Self> {
        batch.reentry()?;
        Some(Self {
            attempts: batch.column(&path(field::ATTEMPTS)),
            numbers: batch.column(&path(field::NUMBER)),
            originals: batch.column(&path(field::ORIGINAL_NUMBER)),
        })
    }

    pub fn attempts(&self, row: usize) -> u64 {
        number(self.attempts.value(row)).unwrap_or(0)
    }

    pub fn number(&self, row: usize) -> Option<u64> {
        number(self.numbers.value(row))
    }

    pub fn numbers(&self, rows: &[usize]) -> Vec<u64> {
        rows.iter().filter_map(|&row| self.number(row)).collect()
    }

    /// The numbers of the originals, where all of these rows have one.
    pub fn originals(&self, rows: &[usize]) -> Option<Vec<u64>> {
        let numbers = rows.iter().map(|&row| number(self.originals.value(row)));
        numbers.collect()
    }

    pub fn replaced(&self, rows: &[usize]) -> Vec<(u64, u64, Option<u64>)> {
        let numbers = rows.iter().enumerate().filter_map(|(place, &row)| {
            let old = self.number(row)?;
            Some((place as u64, old, number(self.originals.value(row))))
        });
        numbers.collect()
    }
}

/// A whole number.
pub(super) fn number(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(n).ok(),
        Value::UInt(n) => Some(n),
        _ => None,
    }
}

/// Writes down what became of the rows of a batch that was picked.
pub(super) fn describe(
    batch: &mut Batch,
    pipeline: &str,
    draft: &Draft,
    rows: &[(&Dead, u64)],
    has_original: bool,
) {
    let len = rows.len();
    let (role, name) = component(&draft.at);
    let mut reasons = ColumnBuilder::new(len);
    let mut tags = ColumnBuilder::new(len);
    for (row, (dead, _)) in rows.iter().enumerate() {
        reasons.set_text(row, dead.reason.as_bytes());
        match &dead.tag {
            Some(tag) => tags.set_text(row, tag.as_bytes()),
            None => tags.set(row, Cell::Missing),
        }
    }
    let attempts = rows
        .iter()
        .map(|(_, attempts)| Cell::Int(attempts.cast_signed()));
    let text = |text: &str| Column::constant_text(text.as_bytes(), len);
    let none = || Column::constant(Cell::Missing, len);
    let columns = [
        (field::PIPELINE, text(pipeline)),
        (field::ROLE, text(role)),
        (field::COMPONENT, text(&name)),
        (field::TIME, Column::constant(Cell::Time(now()), len)),
        (field::REASON, reasons.finish()),
        (field::TAG, tags.finish()),
        (
            field::ATTEMPTS,
            Column::new(attempts.collect(), Arc::new([])),
        ),
        (
            field::ORIGINAL,
            Column::constant(Cell::Bool(has_original), len),
        ),
        (field::NUMBER, none()),
        (field::ORIGINAL_NUMBER, none()),
    ];
    let mut edit = Edit::new();
    for (name, column) in &columns {
        edit.set(path(name), column.clone());
    }
    let blocked = batch.apply(edit);
    if blocked.is_empty() {
        return;
    }
    // An event with an `@metadata` of its own that is no object.
    let rows: Vec<usize> = blocked.into_iter().map(|(row, _)| row).collect();
    let blocked = Bitmap::from_fn(len, |row| rows.contains(&row));
    let mut edit = Edit::new();
    edit.remove(FieldPath::from_keys(["@metadata"]), &blocked);
    batch.apply(edit);
    let mut edit = Edit::new();
    for (name, column) in columns {
        edit.set(path(name), column);
    }
    batch.apply(edit);
}
