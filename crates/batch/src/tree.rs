//! The edits of a batch as a tree of object keys.
//!
//! The root's own column holds the documents themselves (JSON objects, MessagePack maps, or nothing for lines of text);
//! every other node's own column holds what was written at its path. A node lies *over* what its parent's value has
//! under its key. Edits below a node are always younger than the node's own: writing a node clears, in the same rows,
//! what lies below it. So one rule reads, merges and writes everything: take the inherited value, let the node's own
//! cell replace it, let the children change its members.

use std::sync::Arc;

use crate::cell::Cell;
use crate::column::Column;

/// The object whose fields are usable everywhere and never written out.
pub(crate) const METADATA: &str = "@metadata";

/// One object key with what was written there and below.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    pub key: Box<str>,
    pub own: Option<Arc<Column>>,
    pub children: Vec<Node>,
}

impl Node {
    pub fn child(&self, key: &[u8]) -> Option<&Self> {
        self.children
            .iter()
            .find(|child| child.key.as_bytes() == key)
    }

    pub fn child_or_insert(&mut self, key: &str) -> &mut Self {
        let index = match self.children.iter().position(|child| &*child.key == key) {
            Some(index) => index,
            None => {
                self.children.push(Self {
                    key: key.into(),
                    ..Self::default()
                });
                self.children.len() - 1
            }
        };
        &mut self.children[index]
    }

    /// The node at `keys` below this one.
    pub fn descend(&self, keys: &[Box<str>]) -> Option<&Self> {
        keys.iter()
            .try_fold(self, |node, key| node.child(key.as_bytes()))
    }

    /// The node at `keys` below this one, made where it is not there yet.
    pub fn descend_or_insert(&mut self, keys: &[Box<str>]) -> &mut Self {
        keys.iter()
            .fold(self, |node, key| node.child_or_insert(key))
    }

    /// This node's own cell of a row; [`Cell::Keep`] where nothing was written.
    #[inline]
    pub fn cell(&self, row: usize) -> Cell {
        self.own.as_ref().map_or(Cell::Keep, |own| own.cell(row))
    }

    /// Whether anything at or below this node changes the row.
    pub fn touches(&self, row: usize) -> bool {
        self.cell(row) != Cell::Keep || self.touches_below(row)
    }

    /// Whether anything below this node changes the row.
    pub fn touches_below(&self, row: usize) -> bool {
        self.children.iter().any(|child| child.touches(row))
    }

    /// Whether the row has a value here, given whether it inherits one.
    pub fn gives(&self, row: usize, inherits: bool) -> bool {
        let present = match self.cell(row) {
            Cell::Keep => inherits,
            Cell::Missing => false,
            _ => true,
        };
        present || self.children.iter().any(|child| child.gives(row, false))
    }

    /// Takes back, for some rows, everything written below this node.
    pub fn clear_below(&mut self, rows: &[usize]) {
        for child in &mut self.children {
            child.clear(rows);
        }
    }

    /// Takes back, for some rows, everything written at and below this node.
    pub fn clear(&mut self, rows: &[usize]) {
        if let Some(own) = &self.own
            && rows.iter().any(|&row| own.cell(row) != Cell::Keep)
        {
            self.own = Some(Arc::new(own.with_cells(rows.iter().copied(), Cell::Keep)));
        }
        self.clear_below(rows);
    }

    /// Lays the touched cells of `edit` over what was written here before.
    pub fn write(&mut self, edit: Column) {
        if !self.children.is_empty() {
            let rows: Vec<usize> = (0..edit.len())
                .filter(|&row| edit.cell(row) != Cell::Keep)
                .collect();
            self.clear_below(&rows);
        }
        self.lay_under(edit);
    }

    /// Writes this node's own cells and leaves what lies below it.
    pub fn lay_under(&mut self, edit: Column) {
        self.own = Some(Arc::new(match &self.own {
            Some(own) => own.overlaid(&edit),
            None => edit,
        }));
    }
}
