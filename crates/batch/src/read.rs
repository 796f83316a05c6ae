//! Reading a field of a batch into a column.
//!
//! Where the walk along the path ends in an object that edits changed, the column holds that object merged. Cells point
//! into the buffers they were found in; only text that had to be unescaped or merged is copied.

use std::sync::Arc;

use bytes::Bytes;

use crate::bitmap::Block;
use crate::cell::{Cell, Span};
use crate::column::Column;
use crate::format::Json;
use crate::json::SharedNesting;
use crate::render::render;
use crate::tree::Node;
use crate::walk::{DOTTED_KEYS_MAX, DocumentPath, PathValue, chain, dotted_spellings, walk};
use crate::{Bitmap, json, msgpack};

/// Reads the field at `keys` for the rows in `rows`; the others are absent.
pub(crate) fn extract(root: &Node, keys: &[Box<str>], rows: &Bitmap, dotted: bool) -> Arc<Column> {
    match Reading::begin(root, keys, rows, dotted) {
        Begun::Done(column) => column,
        Begun::Open(mut reading) => {
            for block in rows.blocks() {
                reading.prepare(block.clone());
                for row in block {
                    reading.read(row, None);
                }
            }
            reading.finish()
        }
    }
}

/// Reads several fields, in one pass over the documents.
pub(crate) fn extract_all(
    root: &Node,
    paths: &[&[Box<str>]],
    rows: &Bitmap,
    dotted: bool,
) -> Vec<Arc<Column>> {
    let begin = |keys: &&'_ [Box<str>]| Reading::begin(root, keys, rows, dotted);
    let mut begun: Vec<Begun<'_>> = paths.iter().map(begin).collect();
    let mut shared = SharedNesting::default();
    for block in rows.blocks() {
        for reading in &begun {
            if let Begun::Open(reading) = reading {
                reading.prepare(block.clone());
            }
        }
        for row in block {
            shared.restart();
            for reading in &mut begun {
                if let Begun::Open(reading) = reading {
                    reading.read(row, Some(&mut shared));
                }
            }
        }
    }
    let finish = |begun| match begun {
        Begun::Done(column) => column,
        Begun::Open(reading) => reading.finish(),
    };
    begun.into_iter().map(finish).collect()
}

/// A field that is being read.
enum Begun<'a> {
    /// It was found without a look at documents.
    Done(Arc<Column>),
    Open(Box<Reading<'a>>),
}

/// One that is looked for in every row.
struct Reading<'a> {
    documents: Option<&'a Column>,
    /// Each way to write its path, with the edits along it.
    spellings: Vec<(DocumentPath, Vec<&'a Node>)>,
    column: Assembler<'a>,
}

impl<'a> Reading<'a> {
    fn begin(root: &'a Node, keys: &[Box<str>], rows: &Bitmap, dotted: bool) -> Begun<'a> {
        let nodes = chain(root, keys);
        if let Some(own) = plain_column(&nodes, keys, rows) {
            return Begun::Done(own);
        }
        let is_nowhere = nodes.len() <= keys.len() && nodes.iter().all(|node| node.own.is_none());
        if is_nowhere && !dotted {
            return Begun::Done(Arc::new(Column::constant(Cell::Missing, rows.len())));
        }
        let mut spellings = vec![(DocumentPath::new(keys.to_vec()), nodes)];
        if dotted && keys.len() > 1 && keys.len() <= DOTTED_KEYS_MAX {
            spellings.extend(dotted_spellings(keys).into_iter().skip(1).map(|keys| {
                let nodes = chain(root, &keys);
                (DocumentPath::new(keys), nodes)
            }));
        }
        if let Some(places) = root.own.as_ref().and_then(|own| own.places()) {
            places.want();
        }
        Begun::Open(Box::new(Self {
            documents: root.own.as_deref(),
            spellings,
            column: Assembler::new(rows.len()),
        }))
    }

    /// Reads where rows are probably going to be read. The documents were written by another core: here, they are waited for
    /// at the same time instead of one after the other.
    fn prepare(&self, rows: Block) {
        let (Some(documents), Some((path, _))) = (self.documents, self.spellings.first()) else {
            return;
        };
        let Some(places) = documents.places() else {
            return;
        };
        let mut members = [Span::default(); Block::ROWS];
        let mut len = 0;
        for row in rows {
            if let Some(member) = path.likely_member(documents, places, row) {
                members[len] = member;
                len += 1;
            }
        }
        // In a loop of few instructions, so that the processor has many of these reads under way.
        let mut seen = 0;
        for member in &members[..len] {
            let buffer = &documents.buffers()[member.buffer as usize];
            seen ^= buffer[member.start as usize];
            seen ^= buffer[(member.start + member.len - 1) as usize];
        }
        std::hint::black_box(seen);
    }

    /// Reads a row; the first spelling that leads somewhere counts.
    #[inline]
    fn read(&mut self, row: usize, mut shared: Option<&mut SharedNesting>) {
        for (path, nodes) in &mut self.spellings {
            let found = match self.documents {
                Some(documents) if !path.is_written_over(nodes, row) => {
                    path.find(documents, row, shared.as_deref_mut())
                }
                _ => walk(nodes, path.keys(), row),
            };
            let node = nodes.get(path.keys().len()).copied();
            if self.column.put(row, found, node) {
                break;
            }
        }
    }

    fn finish(self) -> Arc<Column> {
        Arc::new(self.column.finish())
    }
}

/// The column that was written at exactly this path, if nothing lies below it, and nothing above it shows through.
fn plain_column(nodes: &[&Node], keys: &[Box<str>], rows: &Bitmap) -> Option<Arc<Column>> {
    let (last, above) = nodes.split_last()?;
    if nodes.len() <= keys.len() || !last.children.is_empty() {
        return None;
    }
    let own = last.own.as_ref()?;
    let is_alone = above.iter().all(|node| node.own.is_none());
    // Where a field was removed, another spelling of its name may be meant.
    let is_written = || match own.as_constant() {
        Some(cell) => !cell.is_absent(),
        None => rows.iter().all(|row| !own.cell(row).is_absent()),
    };
    (is_alone || is_written()).then(|| own.clone())
}

/// Collects cells that point into several columns' buffers.
struct Assembler<'a> {
    cells: Vec<Cell>,
    /// Text of its own; buffer 0.
    own: Vec<u8>,
    buffers: Vec<Bytes>,
    /// The columns whose buffers were taken over, with the index of their first.
    sources: Vec<(&'a Column, u32)>,
}

impl<'a> Assembler<'a> {
    fn new(len: usize) -> Self {
        Self {
            cells: vec![Cell::Missing; len],
            own: Vec::new(),
            buffers: vec![Bytes::new()],
            sources: Vec::new(),
        }
    }

    /// Sets a row from what was found, merged with the edits below `node`; false where there is nothing.
    fn put(&mut self, row: usize, found: PathValue<'a>, node: Option<&Node>) -> bool {
        if let Some(node) = node
            && node.touches_below(row)
        {
            if found.is_nothing() && !node.children.iter().any(|child| child.gives(row, false)) {
                return false;
            }
            let start = self.own.len();
            render::<Json>(node, found.value(), row, &mut self.own, false);
            self.cells[row] = Cell::Json(self.own_since(start));
            return true;
        }
        self.cells[row] = match found {
            PathValue::Nothing => return false,
            PathValue::Cell(column, cell) => match cell.span() {
                Some(_) => cell.rebased(self.base_of(column)),
                None => cell,
            },
            PathValue::Json(column, span) => self.json_cell(column, span),
            PathValue::MsgPack(column, span) => self.msgpack_cell(column, span),
        };
        true
    }

    fn own_since(&self, start: usize) -> Span {
        Span {
            buffer: 0,
            start: start as u32,
            len: (self.own.len() - start) as u32,
        }
    }

    fn base_of(&mut self, column: &'a Column) -> u32 {
        if let Some((_, base)) = self
            .sources
            .iter()
            .find(|(known, _)| std::ptr::eq(*known, column))
        {
            return *base;
        }
        let base = self.buffers.len() as u32;
        self.buffers.extend(column.buffers().iter().cloned());
        self.sources.push((column, base));
        base
    }

    fn json_cell(&mut self, column: &'a Column, span: Span) -> Cell {
        let text = column.bytes(span);
        let moved = Span {
            buffer: span.buffer + self.base_of(column),
            ..span
        };
        match json::kind(text) {
            json::Kind::Null => Cell::Null,
            json::Kind::Bool => Cell::Bool(text[0] == b't'),
            json::Kind::Number => Cell::Number(moved),
            json::Kind::Array | json::Kind::Object => Cell::Json(moved),
            json::Kind::String => {
                let body = Span {
                    start: moved.start + 1,
                    len: moved.len - 2,
                    ..moved
                };
                let buffer = &column.buffers()[span.buffer as usize];
                if json::has_escape_at(buffer, body.start as usize, body.len as usize) {
                    let start = self.own.len();
                    json::unescape(&text[1..text.len() - 1], &mut self.own);
                    return Cell::Text(self.own_since(start));
                }
                Cell::Text(body)
            }
        }
    }

    fn msgpack_cell(&mut self, column: &'a Column, span: Span) -> Cell {
        let bytes = column.bytes(span);
        let base = self.base_of(column);
        let moved = Span {
            buffer: span.buffer + base,
            ..span
        };
        let (value, _) = msgpack::read(bytes, 0);
        match value {
            msgpack::Value::Nil => Cell::Null,
            msgpack::Value::Bool(value) => Cell::Bool(value),
            msgpack::Value::Int(n) => Cell::Int(n),
            msgpack::Value::UInt(n) => i64::try_from(n).map_or(Cell::UInt(n), Cell::Int),
            msgpack::Value::F64(n) => Cell::Float(n),
            msgpack::Value::Array(_) | msgpack::Value::Map(_) => Cell::MsgPack(moved),
            msgpack::Value::Str(text) if simdutf8::basic::from_utf8(text).is_err() => {
                let start = self.own.len();
                let text = String::from_utf8_lossy(text);
                self.own.extend_from_slice(text.as_bytes());
                Cell::Text(self.own_since(start))
            }
            msgpack::Value::Str(text) => {
                let (skip, len) = ((bytes.len() - text.len()) as u32, text.len() as u32);
                Cell::Text(Span {
                    start: moved.start + skip,
                    len,
                    ..moved
                })
            }
            msgpack::Value::Bin(_) | msgpack::Value::Ext(..) => {
                let mut quoted = Vec::new();
                msgpack::to_json(bytes, &mut quoted);
                let start = self.own.len();
                json::unescape(&quoted[1..quoted.len() - 1], &mut self.own);
                Cell::Text(self.own_since(start))
            }
        }
    }

    fn finish(mut self) -> Column {
        self.buffers[0] = Bytes::from(self.own);
        Column::new(self.cells, self.buffers.into())
    }
}
