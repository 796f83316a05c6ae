//! What stands between the values of an event in its new form.
//!
//! Most events of a log have the same names in the same order. The layout of one is learned when the layout that is known did not fit twice in
//! a row; where it fits, values are all that is new, and no tree is made.
//!
//! A layout tells nothing of names in objects that are values: it is learned of events in which no object was taken apart, and fits only
//! those in which none has to be.

use std::ops::Range;

use batch::json::{self, Kind};

use super::rules::NestRules;
use super::tree::{NODES_KEPT, NameTree, NodeContent, ROOT, is_container, may_be_too_deep};
use crate::reshape::{close, write_key};

/// The layout of an event.
#[derive(Clone, Default)]
pub(super) struct NestLayout {
    /// The texts of names and pieces.
    text: Vec<u8>,
    /// The names of the event in their order; none where no layout is known.
    names: Vec<LayoutName>,
    /// The new form, but for what stands behind the last value.
    pieces: Vec<LayoutPiece>,
    /// Where that begins.
    end: usize,
    /// How deep its names lie.
    depth: usize,
    /// Where the values of the event at hand stand.
    values: Vec<Range<usize>>,
    /// How many events the layout did not fit since it last did, or since it was learned.
    misses: u32,
}

#[derive(Clone)]
struct LayoutName {
    name: Range<usize>,
    is_wanted: bool,
}

#[derive(Clone)]
struct LayoutPiece {
    /// The text before a value.
    before: Range<usize>,
    /// The number of the value.
    value: usize,
}

impl NestLayout {
    /// Whether an event has this layout. If so, [`Self::write`] can write it.
    pub fn fits(&mut self, rules: &NestRules, object: &[u8]) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let fits = self.take_values(rules, object);
        self.misses = if fits { 0 } else { self.misses + 1 };
        fits
    }

    fn take_values(&mut self, rules: &NestRules, object: &[u8]) -> bool {
        self.values.clear();
        let mut names = self.names.iter();
        let mut container_bytes_max = 0;
        for member in json::members(object) {
            let name = names.next();
            let Some(known) = name.filter(|it| self.text[it.name.clone()] == *member.key) else {
                return false;
            };
            let value = &object[member.value.clone()];
            if is_container(value) {
                container_bytes_max = value.len().max(container_bytes_max);
                let is_object = known.is_wanted && json::kind(value) == Kind::Object;
                if is_object && rules.has_names(value, false) {
                    return false;
                }
            }
            self.values.push(member.value);
        }
        names.next().is_none() && !may_be_too_deep(self.depth, container_bytes_max)
    }

    /// Appends the new form of the event that [`Self::fits`] was asked for.
    pub fn write(&self, object: &[u8], out: &mut Vec<u8>) {
        for piece in &self.pieces {
            out.extend_from_slice(&self.text[piece.before.clone()]);
            out.extend_from_slice(&object[self.values[piece.value].clone()]);
        }
        out.extend_from_slice(&self.text[self.end..]);
    }

    /// Takes the layout of an event, of which `tree` was made, if the one that is known is of no use.
    pub fn learn(&mut self, rules: &NestRules, tree: &NameTree, object: &[u8]) {
        if self.misses < 2 && !self.names.is_empty() {
            return;
        }
        let depth = tree.depth().filter(|_| tree.nodes.len() <= NODES_KEPT);
        let Some(depth) = depth else {
            return;
        };
        self.text.clear();
        self.names.clear();
        self.pieces.clear();
        self.values.clear();
        for member in json::members(object) {
            let start = self.text.len();
            self.text.extend_from_slice(member.key);
            self.names.push(LayoutName {
                name: start..self.text.len(),
                is_wanted: rules.wants(member.key, rules.first_part(member.key)),
            });
            self.values.push(member.value);
        }
        self.end = self.text.len();
        self.depth = depth;
        self.misses = 0;
        self.add_pieces(tree, ROOT, object);
    }

    /// Adds what stands before the values at and below a node, and behind the last of them.
    fn add_pieces(&mut self, tree: &NameTree, node: usize, object: &[u8]) {
        let node = &tree.nodes[node];
        match &node.content {
            NodeContent::New => {}
            NodeContent::Value(at) => {
                // Values stand in the order of the members.
                let value = self.values.partition_point(|value| value.start < at.start);
                let before = self.end..self.text.len();
                self.end = before.end;
                self.pieces.push(LayoutPiece { before, value });
            }
            NodeContent::Members => {
                let start = self.text.len();
                self.text.push(b'{');
                for member in tree.members(node.first) {
                    write_key(&object[tree.nodes[member].key.clone()], &mut self.text);
                    self.add_pieces(tree, member, object);
                    self.text.push(b',');
                }
                close(start, &mut self.text);
            }
        }
    }
}
