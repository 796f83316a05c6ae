//! Merging one document, or a value in it, with its edits.
//!
//! A document that nobody changed is copied byte for byte where it is in the format to write. Where something was
//! written, the document is walked once: members nobody touched are copied, the others replaced or left out, new ones
//! appended.

use std::marker::PhantomData;

use crate::cell::{Cell, Value};
use crate::format::{EventFormat, unescaped};
use crate::json::Member;
use crate::tree::{METADATA, Node};
use crate::{json, msgpack};

/// Appends the value that `row` has at `node`, given the value it inherits there. At the root, metadata that was written
/// is left out.
pub(crate) fn render<F: EventFormat>(
    node: &Node,
    inherited: Value<'_>,
    row: usize,
    out: &mut Vec<u8>,
    is_root: bool,
) {
    let (base, places) = match &node.own {
        Some(own) => match own.cell(row) {
            Cell::Keep => (inherited, None),
            cell => (own.value_of(cell), own.places()),
        },
        None => (inherited, None),
    };
    let visible = |child: &Node| !(is_root && &*child.key == METADATA);
    if !node
        .children
        .iter()
        .any(|child| visible(child) && child.touches(row))
    {
        return match base {
            Value::Missing => F::close(F::open(out), 0, out),
            base => F::value(base, out),
        };
    }
    let mut object = ObjectMerge {
        node,
        row,
        start: F::open(out),
        out,
        seen: vec![false; node.children.len()],
        members: 0,
        is_event: is_root,
        format: PhantomData::<F>,
    };
    if is_root && let Some(hidden) = node.children.iter().position(|child| !visible(child)) {
        object.seen[hidden] = true;
    }
    match base {
        Value::Json(text) => {
            let mut add = |member: Member<'_>| object.json_member(member.key, &text[member.value]);
            match places.map_or(&[][..], |places| places.of(row)) {
                [] => json::members(text).for_each(&mut add),
                places => json::members_noted(text, places).for_each(&mut add),
            }
        }
        Value::MsgPack(bytes) => {
            for member in msgpack::members(bytes) {
                object.msgpack_member(member.key, &bytes[member.value]);
            }
        }
        _ => {}
    }
    object.finish();
}

/// An object being written: the members of a document with a node's children laid over them.
struct ObjectMerge<'a, F> {
    node: &'a Node,
    row: usize,
    start: usize,
    out: &'a mut Vec<u8>,
    /// Which children met their member.
    seen: Vec<bool>,
    members: usize,
    is_event: bool,
    format: PhantomData<F>,
}

impl<'a, F: EventFormat> ObjectMerge<'a, F> {
    /// A member of a JSON document.
    fn json_member(&mut self, raw_key: &[u8], value: &[u8]) {
        let node = self.child(&unescaped(raw_key));
        if node.is_none_or(|node| node.gives(self.row, true)) {
            let start = F::begin(self.is_event, self.out);
            F::json_key(raw_key, self.out);
            self.value(start, node, Value::Json(value));
        }
    }

    fn msgpack_member(&mut self, key: &[u8], value: &[u8]) {
        let node = self.child(key);
        if node.is_none_or(|node| node.gives(self.row, true)) {
            let start = F::begin(self.is_event, self.out);
            F::key(key, self.out);
            self.value(start, node, Value::MsgPack(value));
        }
    }

    /// The value of the member that was begun at `start`, and its end.
    fn value(&mut self, start: usize, node: Option<&Node>, value: Value<'_>) {
        self.members += 1;
        match node {
            Some(node) => render::<F>(node, value, self.row, self.out, false),
            None => F::value(value, self.out),
        }
        F::end(start, self.out);
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

    fn finish(mut self) {
        for (index, child) in self.node.children.iter().enumerate() {
            if !self.seen[index] && child.gives(self.row, false) {
                let start = F::begin(self.is_event, self.out);
                F::key(child.key.as_bytes(), self.out);
                self.value(start, Some(child), Value::Missing);
            }
        }
        F::close(self.start, self.members, self.out);
    }
}
