//! An event as a tree of names, of which its new form is written.

use std::hash::BuildHasher;
use std::ops::Range;

use batch::json::{self, Kind};
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::rules::NestRules;
use crate::reshape::{called_twice, close, shown, write_key};

/// The first node of a tree.
pub(super) const ROOT: usize = 0;

/// A tree with more names finds them by hash.
pub(super) const NAMES_MAX: usize = 32;

/// The memory of more nodes is given back.
pub(super) const NODES_KEPT: usize = 4096;

/// The names of an event. Texts are places in it, so that the tree can be used for the next one.
#[derive(Clone, Default)]
pub(super) struct NameTree {
    pub nodes: Vec<NameNode>,
    /// Nodes by the node above and their name, if there are more than [`NAMES_MAX`].
    index: HashTable<usize>,
    state: RandomState,
    depth_max: usize,
    /// The length of the longest value that has values in it.
    container_bytes_max: usize,
    /// Whether some object was taken apart.
    is_opened: bool,
}

#[derive(Clone)]
pub(super) struct NameNode {
    pub key: Range<usize>,
    above: usize,
    depth: usize,
    pub content: NodeContent,
    /// The first and the last member, and the next member of the node above; [`ROOT`] for none.
    pub first: usize,
    last: usize,
    next: usize,
}

#[derive(Clone)]
pub(super) enum NodeContent {
    /// Nothing yet.
    New,
    /// A value that is not taken apart.
    Value(Range<usize>),
    /// The members of an object.
    Members,
}

impl NameTree {
    /// Leaves the root alone.
    fn clear(&mut self) {
        if self.nodes.capacity() > NODES_KEPT {
            *self = Self::default();
        }
        self.nodes.clear();
        self.nodes
            .push(NameNode::new(0..0, ROOT, 0, NodeContent::Members));
        self.index.clear();
        self.depth_max = 0;
        self.container_bytes_max = 0;
        self.is_opened = false;
    }

    /// Appends the new form of an event.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn write(
        &mut self,
        rules: &NestRules,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        self.clear();
        let mut event = NestedEvent {
            rules,
            text,
            tree: self,
        };
        event.add_members(ROOT, 0..text.len())?;
        event.write(ROOT, out);
        Ok(())
    }

    /// Whether what was written may be nested deeper than JSON may be.
    pub fn may_be_too_deep(&self) -> bool {
        may_be_too_deep(self.depth_max, self.container_bytes_max)
    }

    /// How deep names lie, if they are those of the event alone, and no object in it was taken apart.
    pub fn depth(&self) -> Option<usize> {
        (!self.is_opened).then_some(self.depth_max)
    }

    fn find(&self, text: &[u8], above: usize, key: &[u8]) -> Option<usize> {
        if self.nodes.len() > NAMES_MAX {
            let is_it = |node: &usize| {
                let node = &self.nodes[*node];
                node.above == above && text[node.key.clone()] == *key
            };
            let hash = self.state.hash_one((above, key));
            return self.index.find(hash, is_it).copied();
        }
        let NameNode { first, last, .. } = self.nodes[above];
        let is_it = |node: &usize| text[self.nodes[*node].key.clone()] == *key;
        // Names that begin in the same way mostly follow each other.
        if last != ROOT && is_it(&last) {
            return Some(last);
        }
        let mut members = self.members(first);
        members.find(is_it)
    }

    /// A member and those behind it.
    pub fn members(&self, first: usize) -> impl Iterator<Item = usize> {
        let some = |node: usize| (node != ROOT).then_some(node);
        std::iter::successors(some(first), move |node| some(self.nodes[*node].next))
    }

    fn add(&mut self, text: &[u8], node: NameNode) -> usize {
        let (at, above) = (self.nodes.len(), node.above);
        let before = self.nodes[above].last;
        match before {
            ROOT => self.nodes[above].first = at,
            before => self.nodes[before].next = at,
        }
        self.nodes[above].last = at;
        self.nodes.push(node);
        if self.nodes.len() > NAMES_MAX {
            let Self {
                nodes,
                index,
                state,
                ..
            } = self;
            let hash = |node: &usize| {
                let node = &nodes[*node];
                state.hash_one((node.above, &text[node.key.clone()]))
            };
            let first = if index.is_empty() { ROOT + 1 } else { at };
            for node in first..=at {
                index.insert_unique(hash(&node), node, hash);
            }
        }
        at
    }
}

impl NameNode {
    fn new(key: Range<usize>, above: usize, depth: usize, content: NodeContent) -> Self {
        Self {
            key,
            above,
            depth,
            content,
            first: ROOT,
            last: ROOT,
            next: ROOT,
        }
    }
}

/// An event that becomes a tree of names.
struct NestedEvent<'e> {
    rules: &'e NestRules,
    text: &'e [u8],
    tree: &'e mut NameTree,
}

impl NestedEvent<'_> {
    /// Adds the members of an object to a node.
    fn add_members(&mut self, at: usize, object: Range<usize>) -> Result<(), String> {
        let (text, rules) = (self.text, self.rules);
        self.tree.is_opened |= at != ROOT;
        for member in json::members(&text[object.clone()]) {
            let value = object.start + member.value.start..object.start + member.value.end;
            let start = object.start + member.start + 1;
            let first = rules.first_part(member.key);
            let is_wanted = at != ROOT || rules.wants(member.key, first);
            let mut node = at;
            let (mut from, mut end) = (0, member.key.len());
            if let Some(first) = first.filter(|_| is_wanted) {
                end = first;
                while end < member.key.len() {
                    node = self.member(node, start + from..start + end)?;
                    from = rules.behind(end);
                    end = rules.part_end(member.key, from);
                }
            }
            node = self.member(node, start + from..start + end)?;
            self.put(node, value, is_wanted)?;
        }
        Ok(())
    }

    /// The member of a node with this name.
    fn member(&mut self, above: usize, key: Range<usize>) -> Result<usize, String> {
        let name = &self.text[key.clone()];
        self.open(above, name)?;
        if let Some(node) = self.tree.find(self.text, above, name) {
            return Ok(node);
        }
        let depth = self.tree.nodes[above].depth + 1;
        self.tree.depth_max = self.tree.depth_max.max(depth);
        if depth > json::DEPTH_MAX {
            return Err(too_deep());
        }
        let node = NameNode::new(key, above, depth, NodeContent::New);
        Ok(self.tree.add(self.text, node))
    }

    /// Makes a node one with members, of which `key` will be one.
    fn open(&mut self, node: usize, key: &[u8]) -> Result<(), String> {
        match self.tree.nodes[node].content.clone() {
            NodeContent::Members => Ok(()),
            NodeContent::New => {
                self.tree.nodes[node].content = NodeContent::Members;
                Ok(())
            }
            NodeContent::Value(value) if self.is_object(&value) => {
                self.tree.nodes[node].content = NodeContent::Members;
                self.add_members(node, value)
            }
            NodeContent::Value(_) => Err(blocked(&[self.name(node), shown(key)].join("."))),
        }
    }

    /// Gives a node its value. An object is taken apart only where that is needed.
    fn put(&mut self, node: usize, value: Range<usize>, is_wanted: bool) -> Result<(), String> {
        let is_object = is_wanted && self.is_object(&value);
        match self.tree.nodes[node].content.clone() {
            NodeContent::New
                if is_object && self.rules.has_names(&self.text[value.clone()], false) =>
            {
                self.tree.nodes[node].content = NodeContent::Members;
                self.add_members(node, value)
            }
            NodeContent::New => {
                if is_container(&self.text[value.clone()]) {
                    let bytes_max = &mut self.tree.container_bytes_max;
                    *bytes_max = value.len().max(*bytes_max);
                }
                self.tree.nodes[node].content = NodeContent::Value(value);
                Ok(())
            }
            NodeContent::Members if is_object => self.add_members(node, value),
            NodeContent::Value(old) if is_object && self.is_object(&old) => {
                self.tree.nodes[node].content = NodeContent::Members;
                self.add_members(node, old)?;
                self.add_members(node, value)
            }
            NodeContent::Value(_) => Err(called_twice(&self.name(node))),
            NodeContent::Members => {
                let first = self.tree.nodes[node].first;
                let below = if first == ROOT { node } else { first };
                Err(blocked(&self.name(below)))
            }
        }
    }

    fn is_object(&self, value: &Range<usize>) -> bool {
        json::kind(&self.text[value.clone()]) == Kind::Object
    }

    /// The names above a node, and its own.
    fn name(&self, mut node: usize) -> String {
        let mut names = Vec::new();
        while node != ROOT {
            names.push(shown(&self.text[self.tree.nodes[node].key.clone()]));
            node = self.tree.nodes[node].above;
        }
        names.reverse();
        names.join(".")
    }

    fn write(&self, node: usize, out: &mut Vec<u8>) {
        let node = &self.tree.nodes[node];
        match &node.content {
            NodeContent::New => out.extend_from_slice(b"null"),
            NodeContent::Value(value) => out.extend_from_slice(&self.text[value.clone()]),
            NodeContent::Members => {
                let start = out.len();
                out.push(b'{');
                for member in self.tree.members(node.first) {
                    let key = self.tree.nodes[member].key.clone();
                    write_key(&self.text[key], out);
                    self.write(member, out);
                    out.push(b',');
                }
                close(start, out);
            }
        }
    }
}

/// Why an event fails that would be nested deeper than JSON may be.
pub(super) fn too_deep() -> String {
    format!("it would be nested deeper than {} levels", json::DEPTH_MAX)
}

/// Whether a value has values in it.
#[inline]
pub(super) fn is_container(value: &[u8]) -> bool {
    matches!(json::kind(value), Kind::Object | Kind::Array)
}

/// Whether names that lie so deep, and a value of so many bytes, may together be nested deeper than JSON may be.
pub(super) fn may_be_too_deep(depth: usize, container_bytes: usize) -> bool {
    depth + container_bytes / 2 > json::DEPTH_MAX
}

fn blocked(name: &str) -> String {
    format!("{name} cannot be nested: there is a value above it that is not an object")
}
