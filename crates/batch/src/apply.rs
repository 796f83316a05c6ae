//! Applying a change to a batch.
//!
//! A change is checked before it is written: rows for which one of its writes is impossible, because something on the
//! way down is not an object, get none of them and are given back with the reason.

use std::sync::Arc;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::cell::{Cell, Value};
use crate::column::{Column, ColumnBuilder};
use crate::edit::{Change, Edit, Failures};
use crate::json;
use crate::mentions::Mentions;
use crate::merge;
use crate::path::FieldPath;
use crate::tree::Node;
use crate::walk::{DOTTED_KEYS_MAX, blocked, chain, dotted_spellings, walk};

/// A write at exactly these keys.
struct Placed {
    keys: Vec<Box<str>>,
    column: Column,
    merge: bool,
    dotted_keys: bool,
}

impl Batch {
    /// Applies a change, row by row as a whole, and gives the rows for which it was impossible, with the reason.
    pub fn apply(&mut self, edit: Edit) -> Vec<(usize, Arc<str>)> {
        let mut placed = Vec::with_capacity(edit.changes.len());
        let mut mentions = Mentions::default();
        for change in edit.changes {
            let (path, column, merge, dotted_keys) = match change {
                Change::Set(path, column) => (Some(path), column, false, false),
                Change::Merge {
                    at,
                    objects,
                    dotted_keys,
                } => (at, objects, true, dotted_keys),
            };
            let keys = path.map(|path| path.keys().to_vec()).unwrap_or_default();
            place(self, keys, column, &mut mentions, |keys, column| {
                placed.push(Placed {
                    keys,
                    column,
                    merge,
                    dotted_keys,
                });
            });
        }
        let refused = refusals(self, &placed, &mut mentions);
        self.dotted |= edit.dotted_keys;
        for mut write in placed {
            if !refused.is_empty() {
                write.column = write
                    .column
                    .with_cells(refused.iter().map(|(row, _)| *row), Cell::Keep);
            }
            perform(self, write);
        }
        refused
    }

    /// Appends a tag to `tags` in these rows; a single tag becomes an array.
    pub fn add_tag(&mut self, rows: &Bitmap, tag: &str) {
        if rows.is_empty() || tag.is_empty() {
            return;
        }
        let path = FieldPath::from_keys(["tags"]);
        let present = self.column(&path);
        let mut tags = ColumnBuilder::new(self.len());
        let fresh = tags.append(|out| append_to_array(Value::Missing, tag, out));
        for row in rows.iter() {
            let value = present.value(row);
            if matches!(value, Value::Missing | Value::Null) {
                tags.set(row, Cell::Json(fresh));
            } else if !has_tag(value, tag) {
                let span = tags.append(|out| append_to_array(value, tag, out));
                tags.set(row, Cell::Json(span));
            }
        }
        let mut edit = Edit::new();
        edit.set(path, tags.finish());
        self.apply(edit);
    }

    /// Gives the failed rows their tag and `error.message`, and seals them where `seal` says so. An `error` that is null becomes an
    /// object; where it is another value that is no object, the tag alone says it.
    pub fn mark_failed(&mut self, failures: &Failures, seal: bool) {
        let len = self.len();
        let mut tags: Vec<(Arc<str>, Bitmap)> = Vec::new();
        for failure in failures.rows() {
            let index = tags
                .iter()
                .position(|(tag, _)| *tag == failure.tag)
                .unwrap_or_else(|| {
                    tags.push((failure.tag.clone(), Bitmap::none(len)));
                    tags.len() - 1
                });
            tags[index].1.insert(failure.row);
        }
        for (tag, rows) in &tags {
            self.add_tag(rows, tag);
        }
        let refused = self.write_reasons(failures);
        if !refused.is_empty() {
            self.clear_null_errors(&refused);
            self.write_reasons(failures);
        }
        if seal {
            for failure in failures.rows() {
                self.sealed.insert(failure.row);
            }
        }
    }
}

impl Batch {
    /// Writes the reasons of failures to `error.message`, and gives the rows in which there is no place for it.
    fn write_reasons(&mut self, failures: &Failures) -> Vec<(usize, Arc<str>)> {
        let mut messages = ColumnBuilder::new(self.len());
        for failure in failures.rows() {
            messages.set_text(failure.row, failure.reason.as_bytes());
        }
        if messages.is_untouched() {
            return Vec::new();
        }
        let mut edit = Edit::new();
        edit.set(
            FieldPath::from_keys(["error", "message"]),
            messages.finish(),
        );
        self.apply(edit)
    }

    /// Makes objects of those `error`s in these rows that are null.
    fn clear_null_errors(&mut self, rows: &[(usize, Arc<str>)]) {
        let path = FieldPath::from_keys(["error"]);
        let present = self.column(&path);
        let mut objects = ColumnBuilder::new(self.len());
        let object = objects.append(|out| out.extend_from_slice(b"{}"));
        for (row, _) in rows {
            if matches!(present.value(*row), Value::Null) {
                objects.set(*row, Cell::Json(object));
            }
        }
        let mut edit = Edit::new();
        edit.set(path, objects.finish());
        self.apply(edit);
    }
}

/// Splits a write by how each row spells the path: where a document holds a literal dotted key, that key is written.
fn place(
    batch: &Batch,
    keys: Vec<Box<str>>,
    column: Column,
    mentions: &mut Mentions,
    mut put: impl FnMut(Vec<Box<str>>, Column),
) {
    if !batch.dotted || keys.len() < 2 || keys.len() > DOTTED_KEYS_MAX {
        return put(keys, column);
    }
    let mut rest: Vec<usize> = (0..column.len())
        .filter(|&row| column.cell(row) != Cell::Keep)
        .filter(|&row| mentions.may_have(&batch.root, &keys, row))
        .collect();
    let nested = chain(&batch.root, &keys);
    rest.retain(|&row| !exists(&nested, &keys, row));
    let mut moved = Vec::new();
    for spelling in dotted_spellings(&keys).into_iter().skip(1) {
        let nodes = chain(&batch.root, &spelling);
        let (here, others): (Vec<usize>, Vec<usize>) = rest
            .iter()
            .partition(|&&row| exists(&nodes, &spelling, row));
        if here.is_empty() {
            continue;
        }
        rest = others;
        let mut elsewhere = Bitmap::all(column.len());
        here.iter().for_each(|row| elsewhere.remove(*row));
        put(spelling, column.with_cells(elsewhere.iter(), Cell::Keep));
        moved.extend(here);
    }
    if moved.is_empty() {
        return put(keys, column);
    }
    put(keys, column.with_cells(moved.into_iter(), Cell::Keep));
}

/// Whether the row has something at `keys`, be it an object that only writes below it made.
fn exists(nodes: &[&Node], keys: &[Box<str>], row: usize) -> bool {
    !walk(nodes, keys, row).is_nothing()
        || nodes
            .get(keys.len())
            .is_some_and(|node| node.gives(row, false))
}

/// The rows for which some write is impossible.
fn refusals(batch: &Batch, writes: &[Placed], mentions: &mut Mentions) -> Vec<(usize, Arc<str>)> {
    let mut refused: Vec<(usize, Arc<str>)> = Vec::new();
    let mut known = Bitmap::none(batch.len());
    for write in writes {
        let depth = if write.merge {
            write.keys.len()
        } else {
            write.keys.len().saturating_sub(1)
        };
        let above = &write.keys[..depth];
        let nodes = chain(&batch.root, above);
        if above.is_empty() || nodes.iter().all(|node| node.own.is_none()) {
            continue;
        }
        for row in 0..write.column.len() {
            let writes_here = match write.column.cell(row) {
                Cell::Keep => false,
                Cell::Missing => write.merge,
                _ => true,
            };
            if writes_here
                && !known.contains(row)
                && mentions.may_have(&batch.root, above, row)
                && blocked(&nodes, above, row)
            {
                known.insert(row);
                let place = FieldPath::from_keys(write.keys.iter().cloned());
                refused.push((
                    row,
                    format!(
                        "cannot write {place}: there is a value above it that is not an object"
                    )
                    .into(),
                ));
            }
        }
    }
    refused.sort_by_key(|(row, _)| *row);
    refused
}

fn perform(batch: &mut Batch, write: Placed) {
    if write.keys.is_empty() {
        batch.forget_all();
    } else {
        batch.forget(&write.keys);
    }
    batch.dotted |= write.dotted_keys || write.keys.iter().any(|key| key.contains('.'));
    let column = if write.merge {
        merge::joined(&batch.root, &write.keys, write.column)
    } else {
        write.column
    };
    // In an event without a document, the trace of an idle removal shows where a value that is no object stands above.
    let shows = batch.root.own.is_some() || write.keys.len() > 1;
    let column = if shows {
        without_idle_removals(batch, &write.keys, column)
    } else {
        column
    };
    if write.keys.len() > 1 {
        keep_emptied_parents(batch, &write.keys, &column);
    }
    let node = batch.root.descend_or_insert(&write.keys);
    if write.merge {
        merge::keep_unmentioned(node, column);
    } else {
        node.write(column);
    }
}

/// Removing what is not there leaves no trace: a document stays as it came, byte for byte.
fn without_idle_removals(batch: &Batch, keys: &[Box<str>], column: Column) -> Column {
    let nodes = chain(&batch.root, keys);
    let touched = |row| nodes.get(keys.len()).is_some_and(|node| node.touches(row));
    let idle = |row: usize| {
        column.cell(row) == Cell::Missing && walk(&nodes, keys, row).is_nothing() && !touched(row)
    };
    let rows: Vec<usize> = (0..column.len()).filter(|&row| idle(row)).collect();
    if rows.is_empty() {
        column
    } else {
        column.with_cells(rows.into_iter(), Cell::Keep)
    }
}

/// Removing the last member of an object leaves an empty object, also where the object came from writes below it.
fn keep_emptied_parents(batch: &mut Batch, keys: &[Box<str>], column: &Column) {
    let removals: Vec<usize> = (0..column.len())
        .filter(|&row| column.cell(row) == Cell::Missing)
        .collect();
    for depth in 1..keys.len() {
        let above = &keys[..depth];
        let nodes = chain(&batch.root, above);
        let Some(node) = nodes.get(depth).filter(|_| !removals.is_empty()) else {
            return;
        };
        let implied =
            |row: &&usize| walk(&nodes, above, **row).is_nothing() && node.gives(**row, false);
        let rows: Vec<usize> = removals.iter().filter(implied).copied().collect();
        if !rows.is_empty() {
            let mut objects = ColumnBuilder::new(column.len());
            let span = objects.append(|out| out.extend_from_slice(b"{}"));
            rows.iter()
                .for_each(|&row| objects.set(row, Cell::Json(span)));
            batch
                .root
                .descend_or_insert(above)
                .lay_under(objects.finish());
        }
    }
}

fn has_tag(tags: Value<'_>, tag: &str) -> bool {
    let mut wanted = Vec::new();
    json::write_string(&mut wanted, tag.as_bytes());
    match tags {
        Value::Text(text) => text == tag.as_bytes(),
        Value::Json(array) if array.first() == Some(&b'[') => {
            json::elements(array).any(|at| array[at] == wanted)
        }
        _ => false,
    }
}

/// Appends the array that `tags` becomes with one more tag.
fn append_to_array(tags: Value<'_>, tag: &str, out: &mut Vec<u8>) {
    let mut old = Vec::new();
    if !matches!(tags, Value::Missing | Value::Null) {
        tags.write_json(&mut old);
    }
    out.push(b'[');
    if old.first() == Some(&b'[') {
        for at in json::elements(&old) {
            out.extend_from_slice(&old[at]);
            out.push(b',');
        }
    } else if !old.is_empty() {
        out.extend_from_slice(&old);
        out.push(b',');
    }
    json::write_string(out, tag.as_bytes());
    out.push(b']');
}
