//! A batch as one of several outputs goes on with it.
//!
//! A branch shares documents, columns and what was read before with the batch that it comes from. What is written to one of the
//! two does not touch the other, so that a branch costs what is written to it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::budget::{Account, Charge};
use crate::cell::Cell;
use crate::column::{Cells, Column};
use crate::edit::Edit;
use crate::path::FieldPath;
use crate::tree::{METADATA, Node};

impl Batch {
    /// The batch as it is now, with these rows of its selection.
    #[must_use]
    pub fn branch(&self, rows: &Bitmap) -> Self {
        let mut branch = self.snapshot();
        branch.alive.and(rows);
        // Columns were read for a selection that holds this one.
        let cache = self.cache.lock();
        branch.cache = Mutex::new(cache.clone());
        branch
    }

    /// These rows as a batch that comes in to another pipeline: it goes through that one from its beginning, and nothing in it is sealed.
    #[must_use]
    pub fn handed_on(&self, rows: &Bitmap) -> Self {
        let mut batch = match rows.is_full() {
            true => self.snapshot(),
            false => self.pick(&rows.iter().collect::<Vec<_>>()),
        };
        batch.sealed = Bitmap::none(batch.len());
        if batch.reentry.take().is_some() {
            // What it was as a dead letter is nobody else's business.
            let mut edit = Edit::new();
            let path = FieldPath::from_keys([METADATA, "dead_letter"]);
            edit.remove(path, &Bitmap::all(batch.len()));
            batch.apply(edit);
        }
        batch
    }

    /// Charges what was written since the batch was branched off from `base`, until it is gone.
    pub fn charge_beyond(&mut self, base: &Self, account: &Arc<Account>) {
        let bytes = self.written_beyond(base);
        self.charge = (bytes > 0).then(|| Charge::new(account, bytes));
    }

    /// Bytes of the columns that were written since the batch was branched off from `base`, with the texts in them.
    pub fn written_beyond(&self, base: &Self) -> usize {
        let mut known = Vec::new();
        for_each_column(&base.root, &mut |column| add_buffers(column, &mut known));
        known.sort_unstable();
        known.dedup();
        let mut bytes = 0;
        written(&self.root, Some(&base.root), &mut |column| {
            bytes += cells_size(column);
            for buffer in column.buffers().iter() {
                if let Err(at) = known.binary_search(&place(buffer)) {
                    known.insert(at, place(buffer));
                    bytes += buffer.len();
                }
            }
        });
        bytes
    }
}

/// Calls `each` for every column below a node that is not the one in the same place below `base`.
fn written(node: &Node, base: Option<&Node>, each: &mut impl FnMut(&Column)) {
    if let Some(own) = &node.own {
        let before = base.and_then(|base| base.own.as_ref());
        if before.is_none_or(|before| !Arc::ptr_eq(before, own)) {
            each(own);
        }
    }
    for child in &node.children {
        let base = base.and_then(|base| base.child(child.key.as_bytes()));
        written(child, base, each);
    }
}

fn for_each_column(node: &Node, each: &mut impl FnMut(&Column)) {
    if let Some(own) = &node.own {
        each(own);
    }
    for child in &node.children {
        for_each_column(child, each);
    }
}

fn add_buffers(column: &Column, known: &mut Vec<(usize, usize)>) {
    known.extend(column.buffers().iter().map(place));
}

/// By which a buffer is known to be the same.
fn place(buffer: &Bytes) -> (usize, usize) {
    (buffer.as_ptr().addr(), buffer.len())
}

fn cells_size(column: &Column) -> usize {
    match column.cells() {
        Cells::Rows(cells) => size_of_val(&cells[..]),
        Cells::Constant(..) => size_of::<Cell>(),
        Cells::Offsets(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Encoding, HostInfo};
    use crate::budget::Budget;
    use crate::cell::{Span, Value};
    use crate::origin::Stream;
    use crate::writer::JsonWriter;

    fn lines(texts: &[&str]) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
        builder.stream(&Arc::new(Stream::unnamed(1)));
        for (row, text) in texts.iter().enumerate() {
            let span = Span {
                buffer: builder.buffer(Bytes::copy_from_slice(text.as_bytes())),
                start: 0,
                len: text.len() as u32,
            };
            builder.push(span, row as u64, row as u64 + 1);
        }
        builder.finish()
    }

    fn json(batch: &Batch, row: usize) -> String {
        let mut out = Vec::new();
        JsonWriter::new(batch).write(row, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn set(batch: &mut Batch, field: &str, text: &str) {
        let mut edit = Edit::new();
        let path = FieldPath::from_keys([field]);
        edit.set(path, Column::constant_text(text.as_bytes(), batch.len()));
        assert!(batch.apply(edit).is_empty());
    }

    #[test]
    fn a_branch_and_its_batch_do_not_touch_each_other() {
        let mut batch = lines(&["a", "b", "c"]);
        let message = FieldPath::from_keys(["message"]);
        let read = batch.column(&message);
        let before: Vec<String> = (0..3).map(|row| json(&batch, row)).collect();
        let mut branch = batch.branch(&Bitmap::from_fn(3, |row| row != 1));
        assert!(Arc::ptr_eq(&branch.column(&message), &read), "shared");
        assert_eq!(branch.alive().iter().collect::<Vec<_>>(), [0, 2]);
        assert!(branch.drops().is_empty());
        set(&mut branch, "message", "other");
        assert_eq!(branch.column(&message).value(0), Value::Text(b"other"));
        assert_eq!(batch.column(&message).value(0), Value::Text(b"a"));
        assert!(json(&branch, 2).contains("other"));
        let branch_before = json(&branch, 2);
        set(&mut batch, "more", "x");
        assert_eq!(json(&branch, 2), branch_before);
        assert!(json(&batch, 0).contains("more"));
        assert!(before[0].contains("\"a\""));
    }

    #[test]
    fn what_is_handed_on_begins_anew_with_its_id() {
        let mut batch = lines(&["a", "b", "c"]);
        batch.seal(&Bitmap::all(3));
        let at = Arc::new(crate::reentry::Reentry::Start);
        let mut edit = Edit::new();
        let text = |text: &str| Column::constant_text(text.as_bytes(), 3);
        edit.set(
            FieldPath::from_keys([METADATA, "dead_letter", "number"]),
            text("1"),
        );
        edit.set(FieldPath::from_keys([METADATA, "kept"]), text("yes"));
        assert!(batch.apply(edit).is_empty());
        let batch = batch.reentering(at);
        let value = |batch: &Batch, keys: [&str; 2], row: usize| {
            let column = batch.column(&FieldPath::from_keys(keys));
            match column.value(row) {
                Value::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            }
        };
        let id = value(&batch, [METADATA, "id"], 2);
        assert!(id.is_some());
        for rows in [Bitmap::all(3), Bitmap::from_fn(3, |row| row == 2)] {
            let handed = batch.handed_on(&rows);
            let last = handed.len() - 1;
            assert_eq!(handed.len(), rows.count());
            assert!(handed.sealed().is_empty() && handed.reentry().is_none());
            assert_eq!(handed.alive().count(), handed.len());
            assert_eq!(value(&handed, [METADATA, "id"], last), id);
            assert_eq!(
                value(&handed, [METADATA, "kept"], last).as_deref(),
                Some("yes")
            );
            let letter = FieldPath::from_keys([METADATA, "dead_letter"]);
            assert!(handed.column(&letter).value(last).is_missing());
        }
    }

    #[test]
    fn what_is_written_to_a_branch_is_charged_until_it_is_gone() {
        let batch = lines(&["a", "b", "c"]);
        let budget = Budget::new(1 << 20);
        let account = Arc::new(budget.account());
        let mut branch = batch.branch(batch.alive());
        branch.charge_beyond(&batch, &account);
        assert_eq!(budget.used(), 0, "it shares everything");
        let text = "x".repeat(1000);
        set(&mut branch, "note", &text);
        branch.charge_beyond(&batch, &account);
        let used = budget.used();
        assert!((1000..1200).contains(&used), "{used}");
        drop(branch);
        assert_eq!(budget.used(), 0);
    }
}
