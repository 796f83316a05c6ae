//! Giving events up for others: for some of their fields, or for documents that were made of them.
//!
//! Fields that are kept become columns of their own, whose cells point to where the values stand; documents are given up.

use std::sync::Arc;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::cell::Cell;
use crate::column::{Column, ColumnBuilder};
use crate::path::FieldPath;
use crate::read;
use crate::tree::{METADATA, Node};
use crate::walk::{DOTTED_KEYS_MAX, dotted_spellings};

/// A field under the keys that an event spells it with.
type Kept = (Vec<Box<str>>, Arc<Column>);

impl Batch {
    /// Removes from `rows` all fields but these and what was written below `@metadata`. A field that an event spells with
    /// dots in its key keeps that key.
    pub fn keep(&mut self, fields: &[FieldPath], rows: &Bitmap) {
        let mut kept: Vec<Kept> = Vec::with_capacity(fields.len());
        for field in fields.iter().filter(|field| &*field.keys()[0] != METADATA) {
            self.find_kept(field, rows, &mut kept);
        }
        // Outer fields first: a write clears what lies below it.
        kept.sort_by_key(|(keys, _)| keys.len());
        self.forget_all();
        if *rows == self.alive {
            self.root.own = None;
            visible(&mut self.root).for_each(hollow);
        } else {
            self.clear_rows(rows);
        }
        for (keys, column) in kept {
            let node = self.root.descend_or_insert(&keys);
            match &node.own {
                None => node.own = Some(column),
                Some(_) => node.write((*column).clone()),
            }
        }
    }

    /// Replaces events by JSON objects, where `documents` has one: all of their fields but what was written below `@metadata`.
    /// `dotted_keys` says whether some key in them holds a dot.
    pub fn replace(&mut self, documents: Column, dotted_keys: bool) {
        let is_replaced = |row: &usize| documents.cell(*row) != Cell::Keep;
        let rows: Vec<usize> = (0..self.len()).filter(is_replaced).collect();
        self.forget_all();
        self.dotted |= dotted_keys;
        if self.alive.iter().all(|row| is_replaced(&row)) {
            self.root.children.retain(|node| &*node.key == METADATA);
        } else {
            visible(&mut self.root).for_each(|node| node.clear(&rows));
        }
        self.root.lay_under(documents);
    }

    /// Collects the column of a field, one for each spelling that some event has.
    fn find_kept(&self, field: &FieldPath, rows: &Bitmap, kept: &mut Vec<Kept>) {
        let keys = field.keys();
        if !self.dotted || keys.len() < 2 || keys.len() > DOTTED_KEYS_MAX {
            kept.extend(masked(&self.column(field), rows).map(|column| (keys.to_vec(), column)));
            return;
        }
        let mut rest = rows.clone();
        for spelling in dotted_spellings(keys) {
            let column = read::extract(&self.root, &spelling, &rest, false);
            if let Some(column) = masked(&column, &rest) {
                let found = |row: usize| column.cell(row) != Cell::Keep;
                rest.and_not(&Bitmap::from_fn(rows.len(), found));
                kept.push((spelling, column));
            }
        }
    }

    /// Makes events empty, while others of the batch stay as they are.
    fn clear_rows(&mut self, rows: &Bitmap) {
        if let Some(documents) = &self.root.own {
            let mut empty = ColumnBuilder::new(rows.len());
            let span = empty.append(|out| out.extend_from_slice(b"{}"));
            rows.iter().for_each(|row| empty.set(row, Cell::Json(span)));
            self.root.own = Some(Arc::new(documents.overlaid(&empty.finish())));
        }
        let rows: Vec<usize> = rows.iter().collect();
        visible(&mut self.root).for_each(|node| node.clear(&rows));
    }
}

/// The fields that are part of the event.
fn visible(root: &mut Node) -> impl Iterator<Item = &mut Node> {
    let nodes = root.children.iter_mut();
    nodes.filter(|node| &*node.key != METADATA)
}

/// Takes back what was written at and below a node. It keeps its place in the order of fields.
fn hollow(node: &mut Node) {
    node.own = None;
    node.children.iter_mut().for_each(hollow);
}

/// The column with nothing but what these rows have; none where they have nothing.
fn masked(column: &Arc<Column>, rows: &Bitmap) -> Option<Arc<Column>> {
    if column.as_constant().is_some_and(|cell| !cell.is_absent()) && rows.is_full() {
        return Some(column.clone());
    }
    let mut part = ColumnBuilder::over(column.len(), column.buffers().clone());
    let mut is_empty = true;
    for row in rows.iter() {
        let cell = column.cell(row);
        if !cell.is_absent() {
            part.set(row, cell);
            is_empty = false;
        }
    }
    (!is_empty).then(|| Arc::new(part.finish()))
}
