//! Laying objects over what is there.
//!
//! Members of the new object replace those of the old one, objects member by member. A merge that meets no object needs
//! no joining: the new objects become the node's own cells, and what was written below it stays unless they mention it.
//! That is the usual case, lines of text that hold JSON, and it costs one look at each text for the keys written before.

use std::ops::Range;

use crate::cell::{Cell, Span, Value};
use crate::column::{Column, ColumnBuilder};
use crate::format::Json;
use crate::json::{self, Member};
use crate::render::render;
use crate::tree::Node;
use crate::walk::{chain, walk};

/// The objects to write at `keys`: as they are where nothing is there yet, else joined with what is.
pub(crate) fn joined(root: &Node, keys: &[Box<str>], objects: Column) -> Column {
    let nodes = chain(root, keys);
    let at = nodes.get(keys.len()).copied();
    let meets_objects =
        nodes.iter().any(|node| node.own.is_some()) || at.is_some_and(Node::may_have_object_below);
    if !meets_objects {
        return objects;
    }
    let mut joined = ColumnBuilder::over(objects.len(), objects.buffers().clone());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for row in 0..objects.len() {
        let cell = objects.cell(row);
        if cell.is_absent() {
            joined.set(row, cell);
            continue;
        }
        let found = walk(&nodes, keys, row);
        if found.is_nothing() && !at.is_some_and(|node| node.has_object_below(row)) {
            joined.set(row, cell);
            continue;
        }
        old.clear();
        match at {
            Some(node) => render::<Json>(node, found.value(), row, &mut old, false),
            None => found.value().write_json(&mut old),
        }
        new.clear();
        objects.value_of(cell).write_json(&mut new);
        let span = joined.append(|out| join_objects(&old, &new, out));
        joined.set(row, Cell::Json(span));
    }
    joined.finish()
}

/// Writes merged objects at a node: edits below it stay unless an object has a member of that name.
pub(crate) fn keep_unmentioned(node: &mut Node, column: Column) {
    let mentions = mentions(node, &column);
    for (child, mentions) in node.children.iter_mut().zip(mentions) {
        if !mentions.is_empty() {
            replace_mentioned(child, &column, &mentions);
        }
    }
    node.lay_under(column);
}

/// For each child, the rows in which it holds something and an object has a member of its name, with the member's place.
fn mentions(node: &Node, column: &Column) -> Vec<Vec<(usize, Range<usize>)>> {
    let children = &node.children;
    let mut mentions = vec![Vec::new(); children.len()];
    if children.is_empty() {
        return mentions;
    }
    let keys = json::Keys::new(children.iter().map(|child| {
        let mut key = Vec::new();
        json::write_string_body(&mut key, child.key.as_bytes());
        key
    }));
    for row in 0..column.len() {
        if let Value::Json(text) = column.value(row) {
            keys.find_each(text, |child, at| {
                if children[child].touches(row) {
                    mentions[child].push((row, at));
                }
            });
        }
    }
    mentions
}

/// Makes room for members that objects have. One that is an object is laid over the child's fields, one level down;
/// anything else replaces them.
fn replace_mentioned(child: &mut Node, column: &Column, mentions: &[(usize, Range<usize>)]) {
    let mut deeper = ColumnBuilder::over(column.len(), column.buffers().clone());
    let mut cleared = Vec::new();
    for (row, at) in mentions {
        let Cell::Json(span) = column.cell(*row) else {
            continue;
        };
        if column.bytes(span).get(at.start) == Some(&b'{') && child.cell(*row) == Cell::Keep {
            let inner = Span {
                start: span.start + at.start as u32,
                len: at.len() as u32,
                ..span
            };
            deeper.set(*row, Cell::Json(inner));
        } else {
            cleared.push(*row);
        }
    }
    if !cleared.is_empty() {
        child.clear(&cleared);
    }
    if !deeper.is_untouched() {
        keep_unmentioned(child, deeper.finish());
    }
}

/// Joins two JSON objects: the members of `new` replace those of `old`, objects member by member.
fn join_objects(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    let is_object = |text: &[u8]| text.first() == Some(&b'{');
    let old_members: Vec<Member<'_>> = json::members(old).collect();
    let new_members: Vec<Member<'_>> = json::members(new).collect();
    let named = |members: &[Member<'_>], key: &[u8]| {
        let member = members.iter().find(|member| member.key == key);
        member.map(|member| member.value.clone())
    };
    let mut before = b'{';
    let mut key = |raw: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(&[std::mem::replace(&mut before, b','), b'"']);
        out.extend_from_slice(raw);
        out.extend_from_slice(b"\":");
    };
    for member in &old_members {
        key(member.key, out);
        let value = &old[member.value.clone()];
        match named(&new_members, member.key).map(|by| &new[by]) {
            Some(by) if is_object(value) && is_object(by) => join_objects(value, by, out),
            Some(by) => out.extend_from_slice(by),
            None => out.extend_from_slice(value),
        }
    }
    for member in &new_members {
        if named(&old_members, member.key).is_none() {
            key(member.key, out);
            out.extend_from_slice(&new[member.value.clone()]);
        }
    }
    if before == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
}

impl Node {
    /// Whether an object was written somewhere below this node in a row, so that a merge has to join objects.
    fn has_object_below(&self, row: usize) -> bool {
        self.children.iter().any(|child| {
            let own = child
                .own
                .as_ref()
                .is_some_and(|own| own.value(row).is_object());
            own || child.has_object_below(row)
        })
    }

    /// Whether [`Self::has_object_below`] may hold for some row, asked once a column.
    fn may_have_object_below(&self) -> bool {
        self.children.iter().any(|child| {
            let own = child.own.as_ref().is_some_and(|own| own.has_containers());
            own || child.may_have_object_below()
        })
    }
}
