//! Merging a batch's documents and edits into MessagePack.
//!
//! The same walk as the JSON writer's, with one difference: a map states its number of members first, so they are
//! counted before they are written. MessagePack documents that nobody changed are copied byte for byte; JSON values are
//! transcoded (whole numbers that fit 64 bits stay whole, other numbers become 64-bit floats).

use std::borrow::Cow;

use crate::batch::Batch;
use crate::cell::{Cell, Value};
use crate::tree::{METADATA, Node};
use crate::walk::PathValue;
use crate::{json, msgpack};

/// Writes the events of one batch as MessagePack maps.
#[derive(Debug)]
pub struct MsgPackWriter<'a> {
    root: &'a Node,
}

impl<'a> MsgPackWriter<'a> {
    /// A writer for the events of `batch`.
    pub fn new(batch: &'a Batch) -> Self {
        Self { root: batch.root() }
    }

    /// Appends the event of `row` as one map.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        let document = PathValue::Nothing.under(self.root, row).value();
        render(self.root, document, row, out, true);
    }
}

fn render(node: &Node, inherited: Value<'_>, row: usize, out: &mut Vec<u8>, is_root: bool) {
    let base = match &node.own {
        Some(own) => match own.cell(row) {
            Cell::Keep => inherited,
            cell => own.value_of(cell),
        },
        None => inherited,
    };
    let children: Vec<&Node> = node
        .children
        .iter()
        .filter(|child| !(is_root && &*child.key == METADATA))
        .collect();
    if !children.iter().any(|child| child.touches(row)) {
        return match base {
            Value::Missing => msgpack::write_map_header(out, 0),
            base => base.write_msgpack(out),
        };
    }
    let members = members(base);
    let child_of = |key: &[u8]| {
        children
            .iter()
            .copied()
            .find(|child| child.key.as_bytes() == key)
    };
    let kept = |(key, _): &&(Cow<'_, [u8]>, Value<'_>)| {
        child_of(key).is_none_or(|child| child.gives(row, true))
    };
    let is_new = |child: &&&Node| {
        child.gives(row, false)
            && !members
                .iter()
                .any(|(key, _)| **key == *child.key.as_bytes())
    };
    let count = members.iter().filter(kept).count() + children.iter().filter(is_new).count();
    msgpack::write_map_header(out, count);
    for (key, value) in members.iter().filter(kept) {
        msgpack::write_str(out, key);
        match child_of(key) {
            Some(child) => render(child, *value, row, out, false),
            None => value.write_msgpack(out),
        }
    }
    for child in children.iter().filter(is_new) {
        msgpack::write_str(out, child.key.as_bytes());
        render(child, Value::Missing, row, out, false);
    }
}

/// The members of an object; none where the value is something else.
fn members(base: Value<'_>) -> Vec<(Cow<'_, [u8]>, Value<'_>)> {
    match base {
        Value::Json(text) if text.first() == Some(&b'{') => json::members(text)
            .map(|member| (plain_key(member.key), Value::Json(&text[member.value])))
            .collect(),
        Value::MsgPack(bytes) => msgpack::members(bytes)
            .map(|member| {
                (
                    Cow::Borrowed(member.key),
                    Value::MsgPack(&bytes[member.value]),
                )
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn plain_key(raw: &[u8]) -> Cow<'_, [u8]> {
    if !json::has_escape(raw) {
        return Cow::Borrowed(raw);
    }
    let mut plain = Vec::new();
    json::unescape(raw, &mut plain);
    Cow::Owned(plain)
}
