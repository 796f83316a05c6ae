//! Merging one document, or a value in it, with its edits into JSON.
//!
//! A document that nobody changed is copied byte for byte. Where something was written, the document is walked once:
//! members nobody touched are copied, the others replaced or left out, new ones appended.

use crate::cell::{Cell, Value};
use crate::tree::{METADATA, Node};
use crate::{json, msgpack};

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
fn unescaped_key<'a>(raw: &'a [u8], plain: &'a mut Vec<u8>) -> &'a [u8] {
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
