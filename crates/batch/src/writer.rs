//! Merging a batch's documents and edits into JSON.
//!
//! `render.rs` merges a document with its edits. Lines of text have no document below their edits, so their fields are
//! laid out once a batch and then written row after row.

use crate::batch::Batch;
use crate::cell::{Cell, Value};
use crate::column::Column;
use crate::json;
use crate::render::render;
use crate::tree::{METADATA, Node};
use crate::walk::PathValue;

/// Writes the events of one batch as JSON objects.
#[derive(Debug)]
pub struct JsonWriter<'a> {
    root: &'a Node,
    /// The fields of events without a document.
    plan: Option<Vec<Item<'a>>>,
}

/// A field of the plan, with the bytes that stand before its value: a comma and the key.
#[derive(Debug)]
enum Item<'a> {
    /// Fields that are the same in every row.
    Constant(Vec<u8>),
    Leaf {
        key: Vec<u8>,
        column: &'a Column,
    },
    /// An object of which nothing but fields was written; it is there where one of them is.
    Object {
        key: Vec<u8>,
        fields: Vec<Item<'a>>,
    },
    /// A value that was written, with fields written below it.
    Merged {
        key: Vec<u8>,
        node: &'a Node,
    },
}

impl<'a> JsonWriter<'a> {
    /// A writer for the events of `batch`.
    pub fn new(batch: &'a Batch) -> Self {
        let root = batch.root();
        let plan = root
            .own
            .is_none()
            .then(|| plan(root.children.iter().filter(|node| &*node.key != METADATA)));
        Self { root, plan }
    }

    /// Appends the event of `row` as one JSON object, without a newline.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        let Some(plan) = &self.plan else {
            let document = PathValue::Nothing.under(self.root, row).value();
            return render(self.root, document, row, out, true);
        };
        let start = out.len();
        for item in plan {
            write_item(item, row, out);
        }
        if !close_object(start, out) {
            out.extend_from_slice(b"{}");
        }
    }
}

/// Makes the fields written from `start` on an object; false where there is none. Every field begins with a comma, and
/// the first one's gives way to the brace.
#[inline]
fn close_object(start: usize, out: &mut Vec<u8>) -> bool {
    let Some(first) = out.get_mut(start) else {
        return false;
    };
    *first = b'{';
    out.push(b'}');
    true
}

/// The plan of an object's fields. Neighbours that never change become one piece.
fn plan<'a>(nodes: impl Iterator<Item = &'a Node>) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> = Vec::new();
    for node in nodes {
        match (item(node), items.last_mut()) {
            (Item::Constant(bytes), _) if bytes.is_empty() => {}
            (Item::Constant(bytes), Some(Item::Constant(before))) => {
                before.extend_from_slice(&bytes);
            }
            (item, _) => items.push(item),
        }
    }
    items
}

fn item(node: &Node) -> Item<'_> {
    let mut key = vec![b','];
    json::write_string(&mut key, node.key.as_bytes());
    key.push(b':');
    let Some(own) = &node.own else {
        let mut fields = plan(node.children.iter());
        return match fields.as_mut_slice() {
            [] => Item::Constant(Vec::new()),
            [Item::Constant(bytes)] => {
                let start = key.len();
                key.append(bytes);
                close_object(start, &mut key);
                Item::Constant(key)
            }
            _ => Item::Object { key, fields },
        };
    };
    match own.as_constant() {
        _ if !node.children.is_empty() => Item::Merged { key, node },
        None => Item::Leaf { key, column: own },
        Some(cell) if cell.is_absent() => Item::Constant(Vec::new()),
        Some(cell) => {
            own.value_of(cell).write_json(&mut key);
            Item::Constant(key)
        }
    }
}

#[inline]
fn write_item(item: &Item<'_>, row: usize, out: &mut Vec<u8>) {
    match item {
        Item::Constant(bytes) => out.extend_from_slice(bytes),
        Item::Leaf { key, column } => {
            match column.cell(row) {
                Cell::Keep | Cell::Missing => {}
                // By far the most fields are text, so that it pays to ask for it first.
                Cell::Text(span) => {
                    out.extend_from_slice(key);
                    json::write_string(out, column.bytes(span));
                }
                cell => {
                    out.extend_from_slice(key);
                    column.value_of(cell).write_json(out);
                }
            }
        }
        Item::Object { key, fields } => {
            let before = out.len();
            out.extend_from_slice(key);
            let start = out.len();
            for item in fields {
                write_item(item, row, out);
            }
            if !close_object(start, out) {
                out.truncate(before);
            }
        }
        Item::Merged { key, node } => {
            if node.gives(row, false) {
                out.extend_from_slice(key);
                render(node, Value::Missing, row, out, false);
            }
        }
    }
}
