//! Merging a batch's documents and edits into the format of an output.
//!
//! `render.rs` merges a document with its edits. Lines of text have no document below their edits, so their fields are
//! laid out once a batch and then written row after row.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Range;

use crate::batch::Batch;
use crate::cell::{Cell, Span, Value};
use crate::column::Column;
use crate::format::{EventFormat, Json, MsgPack};
use crate::render::render;
use crate::tree::{METADATA, Node};

/// Writes the events of one batch as JSON objects.
pub type JsonWriter<'a> = EventWriter<'a, Json>;

/// Writes the events of one batch as MessagePack maps. Documents of MessagePack that nobody changed are copied byte for
/// byte; JSON values are transcoded (whole numbers stay whole if 64 bits hold them, and become
/// texts otherwise; other numbers become 64-bit floats).
pub type MsgPackWriter<'a> = EventWriter<'a, MsgPack>;

/// Writes the events of one batch.
#[derive(Debug)]
pub struct EventWriter<'a, F> {
    shape: Shape<'a>,
    format: PhantomData<F>,
}

/// What the events of a batch are made of.
#[derive(Debug)]
enum Shape<'a> {
    /// Fields alone.
    Fields(Vec<Item<'a>>),
    /// Documents alone.
    Documents(&'a Column),
    /// Documents and fields that were written.
    Merged(&'a Node),
}

/// Writes some fields of the events of one batch, which have no documents.
#[derive(Debug)]
pub struct FieldsWriter<'a, F> {
    plan: Vec<Item<'a>>,
    format: PhantomData<F>,
}

/// A field of the plan, with its key as the format writes it.
#[derive(Debug)]
enum Item<'a> {
    /// Fields that are the same in every row.
    Constant { fields: Vec<u8>, members: usize },
    Leaf {
        key: Vec<u8>,
        column: &'a Column,
        repeats: Option<Repeats>,
    },
    /// An object of which nothing but fields was written; it is there where one of them is.
    Object { key: Vec<u8>, fields: Vec<Item<'a>> },
    /// A value that was written, with fields written below it.
    Merged { key: Vec<u8>, node: &'a Node },
}

impl<'a, F: EventFormat> EventWriter<'a, F> {
    /// A writer for the events of `batch`.
    pub fn new(batch: &'a Batch) -> Self {
        let root = batch.root();
        let shape = match &root.own {
            None => Shape::Fields(plan::<F>(visible(root), true)),
            Some(own) if visible(root).next().is_none() => Shape::Documents(own),
            Some(_) => Shape::Merged(root),
        };
        Self {
            shape,
            format: PhantomData,
        }
    }

    /// Appends the event of `row` as one object, without anything that ends it, such as a newline.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.shape {
            Shape::Fields(plan) => {
                write_object::<F>(plan, row, true, out);
            }
            Shape::Documents(own) => match own.cell(row) {
                Cell::Json(span) => F::value(Value::Json(own.bytes(span)), out),
                Cell::MsgPack(span) => F::value(Value::MsgPack(own.bytes(span)), out),
                cell if cell.is_absent() => F::close(F::open(out), 0, out),
                cell => F::value(own.value_of(cell), out),
            },
            Shape::Merged(root) => render::<F>(root, Value::Missing, row, out, true),
        }
    }
}

impl<'a> JsonWriter<'a> {
    /// The document of `row`, if [`Self::write`] would write it as it stands.
    pub fn document(&self, row: usize) -> Option<&'a [u8]> {
        match &self.shape {
            Shape::Documents(own) => match own.cell(row) {
                Cell::Json(span) => Some(own.bytes(span)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl<'a, F: EventFormat> FieldsWriter<'a, F> {
    /// A writer for the fields of events whose names are wanted; none where events have documents.
    pub fn new(batch: &'a Batch, mut is_wanted: impl FnMut(&str) -> bool) -> Option<Self> {
        let root = batch.root();
        let wanted = visible(root).filter(|node| is_wanted(&node.key));
        root.own.is_none().then(|| Self {
            plan: plan::<F>(wanted, true),
            format: PhantomData,
        })
    }

    /// Appends the fields that `row` has as an object.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) {
        write_object::<F>(&self.plan, row, true, out);
    }

    /// Appends the fields that `row` has as members, without an object around them.
    pub fn write_members(&self, row: usize, out: &mut Vec<u8>) {
        write_members::<F>(&self.plan, row, true, out);
    }
}

/// The fields of events that are written.
fn visible(root: &Node) -> impl Iterator<Item = &Node> {
    root.children.iter().filter(|node| &*node.key != METADATA)
}

/// The plan of an object's fields. Neighbours that never change become one piece.
fn plan<'a, F: EventFormat>(
    nodes: impl Iterator<Item = &'a Node>,
    is_event: bool,
) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> = Vec::new();
    for node in nodes {
        match (item::<F>(node, is_event), items.last_mut()) {
            (Item::Constant { members: 0, .. }, _) => {}
            (
                Item::Constant { fields, members },
                Some(Item::Constant {
                    fields: before,
                    members: count,
                }),
            ) => {
                before.extend_from_slice(&fields);
                *count += members;
            }
            (item, _) => items.push(item),
        }
    }
    items
}

fn item<F: EventFormat>(node: &Node, is_event: bool) -> Item<'_> {
    let mut key = Vec::new();
    F::key(node.key.as_bytes(), &mut key);
    let constant = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut fields = Vec::new();
        let start = F::begin(is_event, &mut fields);
        fields.extend_from_slice(&key);
        write(&mut fields);
        F::end(start, &mut fields);
        Item::Constant { fields, members: 1 }
    };
    let nothing = Item::Constant {
        fields: Vec::new(),
        members: 0,
    };
    let Some(own) = &node.own else {
        let fields = plan::<F>(node.children.iter(), false);
        return match fields.as_slice() {
            [] => nothing,
            [Item::Constant { .. }] => constant(&|out| {
                write_object::<F>(&fields, 0, false, out);
            }),
            _ => Item::Object { key, fields },
        };
    };
    match own.as_constant() {
        _ if !node.children.is_empty() => Item::Merged { key, node },
        None => Item::Leaf {
            key,
            column: own,
            repeats: Repeats::of::<F>(own),
        },
        Some(cell) if cell.is_absent() => nothing,
        Some(cell) => constant(&|out| F::value(own.value_of(cell), out)),
    }
}

/// Writes an object of these fields, and says how many of them the row has.
#[inline]
fn write_object<F: EventFormat>(
    items: &[Item<'_>],
    row: usize,
    is_event: bool,
    out: &mut Vec<u8>,
) -> usize {
    let start = F::open(out);
    let members = write_members::<F>(items, row, is_event, out);
    F::close(start, members, out);
    members
}

#[inline]
fn write_members<F: EventFormat>(
    items: &[Item<'_>],
    row: usize,
    is_event: bool,
    out: &mut Vec<u8>,
) -> usize {
    let mut members = 0;
    for item in items {
        members += write_item::<F>(item, row, is_event, out);
    }
    members
}

/// Writes a field, and says how many members of its object that are.
#[inline]
fn write_item<F: EventFormat>(
    item: &Item<'_>,
    row: usize,
    is_event: bool,
    out: &mut Vec<u8>,
) -> usize {
    let key = match item {
        Item::Constant { fields, members } => {
            out.extend_from_slice(fields);
            return *members;
        }
        Item::Leaf { column, .. } if column.cell(row).is_absent() => return 0,
        Item::Merged { node, .. } if !node.gives(row, false) => return 0,
        Item::Leaf { key, .. } | Item::Object { key, .. } | Item::Merged { key, .. } => key,
    };
    let before = out.len();
    let start = F::begin(is_event, out);
    out.extend_from_slice(key);
    match item {
        Item::Constant { .. } => {}
        Item::Leaf {
            column, repeats, ..
        } => match column.cell(row) {
            // By far the most fields are text, so that it pays to ask for it first.
            Cell::Text(span) => F::text(column.bytes(span), out),
            Cell::Json(span) => match repeats.as_ref().and_then(|repeats| repeats.get(span)) {
                Some(written) => out.extend_from_slice(written),
                None => F::value(Value::Json(column.bytes(span)), out),
            },
            cell => F::value(column.value_of(cell), out),
        },
        Item::Object { fields, .. } => {
            if write_object::<F>(fields, row, false, out) == 0 {
                out.truncate(before);
                return 0;
            }
        }
        Item::Merged { node, .. } => render::<F>(node, Value::Missing, row, out, false),
    }
    F::end(start, out);
    1
}

/// The JSON values that many rows of a column share, as a format writes them: what is known of an address or a user agent.
#[derive(Debug)]
struct Repeats {
    places: HashMap<(u32, u32), Range<usize>, foldhash::fast::RandomState>,
    written: Vec<u8>,
}

/// So many values of a column tell whether rows share them, which one in ten has to.
const SAMPLE: usize = 256;

impl Repeats {
    fn of<F: EventFormat>(column: &Column) -> Option<Self> {
        if !F::REWRITES_JSON || !column.has_containers() {
            return None;
        }
        let mut repeats = Self {
            places: HashMap::default(),
            written: Vec::new(),
        };
        let spans = (0..column.len()).filter_map(|row| match column.cell(row) {
            Cell::Json(span) => Some(span),
            _ => None,
        });
        for (index, span) in spans.enumerate() {
            if index == SAMPLE && repeats.places.len() * 10 > SAMPLE * 9 {
                return None;
            }
            let Self { places, written } = &mut repeats;
            places.entry((span.buffer, span.start)).or_insert_with(|| {
                let start = written.len();
                F::value(Value::Json(column.bytes(span)), written);
                start..written.len()
            });
        }
        Some(repeats)
    }

    fn get(&self, span: Span) -> Option<&[u8]> {
        let place = self.places.get(&(span.buffer, span.start))?;
        self.written.get(place.clone())
    }
}
