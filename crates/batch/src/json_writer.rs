//! Merging a batch's documents and edits into JSON.
//!
//! A document that nobody changed is copied byte for byte. Where something was written, the document is walked once:
//! members nobody touched are copied, the others replaced or left out, new ones appended. Lines of text have no document
//! below their edits, so their fields are laid out once a batch and then written row after row.

use crate::batch::{Batch, METADATA};
use crate::cell::{Cell, Value};
use crate::column::Column;
use crate::read::Found;
use crate::tree::Node;
use crate::{json, msgpack};

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
            let document = Found::Nothing.under(self.root, row).value();
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

/// Appends the value that `row` has at `node` as JSON, given the value it inherits there. At the root, metadata that was
/// written is left out.
pub(crate) fn render(
    node: &Node,
    inherited: Value<'_>,
    row: usize,
    out: &mut Vec<u8>,
    is_root: bool,
) {
    let base = match &node.own {
        Some(own) => match own.cell(row) {
            Cell::Keep => inherited,
            cell => own.value_of(cell),
        },
        None => inherited,
    };
    let visible = |child: &Node| !(is_root && &*child.key == METADATA);
    if !node
        .children
        .iter()
        .any(|child| visible(child) && child.touches(row))
    {
        return match base {
            Value::Missing => out.extend_from_slice(b"{}"),
            base => base.write_json(out),
        };
    }
    let mut object = ObjectMerge {
        node,
        row,
        out,
        seen: vec![false; node.children.len()],
        first: true,
    };
    if is_root && let Some(hidden) = node.children.iter().position(|child| !visible(child)) {
        object.seen[hidden] = true;
    }
    object.out.push(b'{');
    match base {
        Value::Json(text) => {
            for member in json::members(text) {
                object.json_member(member.key, &text[member.value]);
            }
        }
        Value::MsgPack(bytes) => {
            for member in msgpack::members(bytes) {
                object.msgpack_member(member.key, &bytes[member.value]);
            }
        }
        _ => {}
    }
    object.added();
}

/// The key that a JSON document spells as `raw`; `plain` holds it where it had to be unescaped.
pub(crate) fn unescaped_key<'a>(raw: &'a [u8], plain: &'a mut Vec<u8>) -> &'a [u8] {
    if !json::has_escape(raw) {
        return raw;
    }
    json::unescape(raw, plain);
    plain
}

/// An object being written: the members of a document with a node's children laid over them.
struct ObjectMerge<'a> {
    node: &'a Node,
    row: usize,
    out: &'a mut Vec<u8>,
    /// Which children met their member.
    seen: Vec<bool>,
    first: bool,
}

impl<'a> ObjectMerge<'a> {
    fn comma(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn key(&mut self, key: &[u8]) {
        self.comma();
        json::write_string(self.out, key);
        self.out.push(b':');
    }

    /// A member of a JSON document: its key is copied as it stands.
    fn json_member(&mut self, raw_key: &[u8], value: &[u8]) {
        let mut plain = Vec::new();
        let node = self.child(unescaped_key(raw_key, &mut plain));
        if node.is_some_and(|node| !node.gives(self.row, true)) {
            return;
        }
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(raw_key);
        self.out.extend_from_slice(b"\":");
        self.value(node, Value::Json(value));
    }

    fn msgpack_member(&mut self, key: &[u8], value: &[u8]) {
        let node = self.child(key);
        if node.is_none_or(|node| node.gives(self.row, true)) {
            self.key(key);
            self.value(node, Value::MsgPack(value));
        }
    }

    fn value(&mut self, node: Option<&Node>, value: Value<'_>) {
        match node {
            Some(node) => render(node, value, self.row, self.out, false),
            None => value.write_json(self.out),
        }
    }

    /// The edits of a member, marked as met. A hidden child was marked before: the document's member stays as it came.
    fn child(&mut self, key: &[u8]) -> Option<&'a Node> {
        let node = self.node;
        let index = node
            .children
            .iter()
            .position(|child| child.key.as_bytes() == key)?;
        let met = std::mem::replace(&mut self.seen[index], true);
        if met {
            None
        } else {
            Some(&node.children[index])
        }
    }

    fn added(mut self) {
        for (index, child) in self.node.children.iter().enumerate() {
            if !self.seen[index] && child.gives(self.row, false) {
                self.key(child.key.as_bytes());
                render(child, Value::Missing, self.row, self.out, false);
            }
        }
        self.out.push(b'}');
    }
}
