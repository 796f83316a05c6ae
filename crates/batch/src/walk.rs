//! The path of a field through the documents of a batch and their edits.
//!
//! The path is walked key by key: documents first, what was written over them at every step.

use std::borrow::Cow;
use std::ops::Range;

use crate::cell::{Cell, Span, Value};
use crate::column::Column;
use crate::json::{NotedKey, SharedNesting};
use crate::member_places::MemberPlaces;
use crate::tree::Node;
use crate::{json, msgpack};

/// A value on the way down a path: a cell of a column, or a value inside one of that column's documents.
#[derive(Clone, Copy)]
pub(crate) enum PathValue<'a> {
    Nothing,
    Cell(&'a Column, Cell),
    /// Any JSON value.
    Json(&'a Column, Span),
    /// Any MessagePack value.
    MsgPack(&'a Column, Span),
}

impl<'a> PathValue<'a> {
    /// The value that `key` has in this object.
    pub fn step(self, key: &str) -> Self {
        match self {
            Self::Json(column, span) | Self::Cell(column, Cell::Json(span)) => {
                let text = column.bytes(span);
                if text.first() != Some(&b'{') {
                    return Self::Nothing;
                }
                json::find(text, &spelled(key))
                    .map_or(Self::Nothing, |at| Self::Json(column, inside(span, at)))
            }
            Self::MsgPack(column, span) | Self::Cell(column, Cell::MsgPack(span)) => {
                let bytes = column.bytes(span);
                if !Value::MsgPack(bytes).is_object() {
                    return Self::Nothing;
                }
                msgpack::find(bytes, key.as_bytes())
                    .map_or(Self::Nothing, |at| Self::MsgPack(column, inside(span, at)))
            }
            _ => Self::Nothing,
        }
    }

    /// What a node's own cell makes of the inherited value.
    pub fn under(self, node: &'a Node, row: usize) -> Self {
        match &node.own {
            None => self,
            Some(own) => match own.cell(row) {
                Cell::Keep => self,
                Cell::Missing => Self::Nothing,
                cell => Self::Cell(own, cell),
            },
        }
    }

    pub fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// The value as a writer takes it: [`Value::Json`] and [`Value::MsgPack`] stand for any value of their kind.
    pub fn value(self) -> Value<'a> {
        match self {
            Self::Nothing => Value::Missing,
            Self::Cell(column, cell) => column.value_of(cell),
            Self::Json(column, span) => Value::Json(column.bytes(span)),
            Self::MsgPack(column, span) => Value::MsgPack(column.bytes(span)),
        }
    }
}

/// A key as it stands in JSON documents.
fn spelled(key: &str) -> Cow<'_, [u8]> {
    let is_plain = |byte| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if key.bytes().all(is_plain) {
        return Cow::Borrowed(key.as_bytes());
    }
    let mut out = Vec::new();
    json::write_string_body(&mut out, key.as_bytes());
    Cow::Owned(out)
}

/// A path through documents, where nothing was written over them.
pub(crate) struct DocumentPath {
    keys: Vec<Box<str>>,
    /// The keys as they stand in JSON.
    spelled: Vec<NotedKey>,
    /// Which member of the last document had the first key.
    member: usize,
}

impl DocumentPath {
    pub fn new(keys: Vec<Box<str>>) -> Self {
        let spelled = keys.iter().map(|key| spelled(key).into_owned());
        let spelled = spelled.map(NotedKey::new).collect();
        Self {
            keys,
            spelled,
            member: 0,
        }
    }

    pub fn keys(&self) -> &[Box<str>] {
        &self.keys
    }

    /// Whether more than the document counts on the way of a row; `nodes` are the edits along the path.
    pub fn is_written_over(&self, nodes: &[&Node], row: usize) -> bool {
        self.keys.is_empty() || nodes[1..].iter().any(|node| node.cell(row) != Cell::Keep)
    }

    /// Where the member with the first key probably is in a row's document, up to the next one.
    #[inline]
    pub fn likely_member(
        &self,
        documents: &Column,
        places: &MemberPlaces,
        row: usize,
    ) -> Option<Span> {
        let Cell::Json(document) = documents.cell(row) else {
            return None;
        };
        let places = places.of(row);
        let start = u32::from(*places.get(self.member)?);
        let next = places.get(self.member + 1);
        let end = next.map_or(document.len, |next| u32::from(*next));
        Some(Span {
            start: document.start + start,
            len: end - start,
            ..document
        })
    }

    /// The value in a row's document. `shared` is for other paths through the same document.
    #[inline]
    pub fn find<'a>(
        &mut self,
        documents: &'a Column,
        row: usize,
        shared: Option<&mut SharedNesting>,
    ) -> PathValue<'a> {
        match documents.cell(row) {
            Cell::Json(span) => {
                let places = documents.places().map_or(&[][..], |places| places.of(row));
                let at = self.find_json(documents.bytes(span), places, shared);
                at.map_or(PathValue::Nothing, |at| {
                    PathValue::Json(documents, inside(span, at))
                })
            }
            Cell::MsgPack(span) => {
                let at = self.find_msgpack(documents.bytes(span));
                at.map_or(PathValue::Nothing, |at| {
                    PathValue::MsgPack(documents, inside(span, at))
                })
            }
            _ => PathValue::Nothing,
        }
    }

    /// Where the value lies in a JSON document.
    #[inline]
    fn find_json(
        &mut self,
        document: &[u8],
        places: &[u16],
        shared: Option<&mut SharedNesting>,
    ) -> Option<Range<usize>> {
        let (first, rest) = self.spelled.split_first()?;
        let mut at = match shared {
            _ if !places.is_empty() => json::find_noted(document, first, places, &mut self.member),
            Some(shared) => shared.find(document, first.text()),
            None => json::find(document, first.text()),
        }?;
        for key in rest {
            let value = &document[at.clone()];
            if value.first() != Some(&b'{') {
                return None;
            }
            let below = json::find(value, key.text())?;
            at = at.start + below.start..at.start + below.end;
        }
        Some(at)
    }

    /// Where the value lies in a MessagePack document.
    fn find_msgpack(&self, document: &[u8]) -> Option<Range<usize>> {
        let mut at = 0..document.len();
        for key in &self.keys {
            let value = &document[at.clone()];
            let is_object = Value::MsgPack(value).is_object();
            let below = is_object.then(|| msgpack::find(value, key.as_bytes()))??;
            at = at.start + below.start..at.start + below.end;
        }
        Some(at)
    }
}

#[inline]
pub(crate) fn inside(span: Span, at: Range<usize>) -> Span {
    Span {
        start: span.start + at.start as u32,
        len: at.len() as u32,
        ..span
    }
}

/// The edits along a path: the nodes that exist, outermost first, as many as there are.
pub(crate) fn chain<'a>(root: &'a Node, keys: &[Box<str>]) -> Vec<&'a Node> {
    let mut nodes = vec![root];
    for key in keys {
        match nodes[nodes.len() - 1].child(key.as_bytes()) {
            Some(node) => nodes.push(node),
            None => break,
        }
    }
    nodes
}

/// Walks the path of `keys` for one row, edits included, dots in keys as they are.
pub(crate) fn walk<'a>(nodes: &[&'a Node], keys: &[Box<str>], row: usize) -> PathValue<'a> {
    // What was written last replaces what lies above it, which need not be looked at.
    let written = nodes.iter().rposition(|node| node.cell(row) != Cell::Keep);
    let Some(written) = written else {
        return PathValue::Nothing;
    };
    let mut found = PathValue::Nothing.under(nodes[written], row);
    for key in &keys[written..] {
        found = found.step(key);
    }
    found
}

/// Whether a value that is not an object stands on the way to `keys`.
pub(crate) fn is_blocked(root: &Node, keys: &[Box<str>], row: usize) -> bool {
    let above = &keys[..keys.len() - 1];
    blocked(&chain(root, above), above, row)
}

/// Whether a value at or above the end of `keys` is there and is not an object.
pub(crate) fn blocked(nodes: &[&Node], keys: &[Box<str>], row: usize) -> bool {
    let mut found = PathValue::Nothing.under(nodes[0], row);
    for (index, key) in keys.iter().enumerate() {
        found = found.step(key);
        if let Some(node) = nodes.get(index + 1) {
            found = found.under(node, row);
        }
        if !found.is_nothing() && !found.value().is_object() {
            return true;
        }
    }
    false
}

/// Every way to read `keys` with neighbours joined by dots, the ones with the shortest first keys first. The first one
/// is `keys` itself.
pub(crate) fn dotted_spellings(keys: &[Box<str>]) -> Vec<Vec<Box<str>>> {
    if keys.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for taken in 1..=keys.len() {
        let first: Box<str> = keys[..taken].join(".").into();
        for rest in dotted_spellings(&keys[taken..]) {
            all.push(std::iter::once(first.clone()).chain(rest).collect());
        }
    }
    all
}

/// How many keys a path may have for its dotted spellings to be looked for; their number doubles with each key.
pub(crate) const DOTTED_KEYS_MAX: usize = 8;
