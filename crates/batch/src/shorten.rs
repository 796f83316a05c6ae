//! Shortening the texts of events.
//!
//! Values stay where they are: a text of its own gets a shorter span, with a suffix a copy. A document, an object or a list
//! with a text that is too long is written anew once, as JSON; what is shorter as a whole than the limit is not looked into. So
//! events without long texts cost a comparison for each field that was written and one for the document.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::cell::{Cell, Span};
use crate::column::{Column, ColumnBuilder};
use crate::format::unescaped;
use crate::text_limit::TextLimit;
use crate::tree::{METADATA, Node};
use crate::{json, msgpack};

/// The field that holds the time of an event, which documents write as text.
const TIMESTAMP: &str = "@timestamp";

/// What was shortened.
#[derive(Debug)]
pub struct Shortened {
    /// The rows with a text that was too long.
    pub rows: Bitmap,
    /// The number of texts.
    pub texts: u64,
}

impl Shortened {
    /// Nothing, in a batch of `len` rows.
    pub fn none(len: usize) -> Self {
        Self {
            rows: Bitmap::none(len),
            texts: 0,
        }
    }
}

impl Batch {
    /// Shortens all texts of these events, also in objects and lists. `@timestamp` and what lies below `@metadata` stay.
    pub fn shorten_texts(&mut self, limit: &TextLimit, rows: &Bitmap) -> Shortened {
        let mut done = Shortened::none(self.len());
        let mut shortener = Shortener::new(limit, rows, &mut done);
        shortener.node(&mut self.root, true);
        if done.texts > 0 {
            self.forget_all();
        }
        done
    }

    /// Whether some of these events may have a text that is too long: what is known without a look into documents.
    pub fn may_exceed(&self, limit: &TextLimit, rows: &Bitmap) -> bool {
        fn exceeds(node: &Node, limit: &TextLimit, rows: &Bitmap) -> bool {
            let is_long = |own: &Column| match own.as_constant() {
                Some(cell) => !limit.fits(cell),
                None => rows.iter().any(|row| !limit.fits(own.cell(row))),
            };
            node.own.as_deref().is_some_and(is_long)
                || node
                    .children
                    .iter()
                    .any(|child| exceeds(child, limit, rows))
        }
        exceeds(&self.root, limit, rows)
    }
}

impl TextLimit {
    /// Whether a cell holds no long text for certain. Text of MessagePack that is not UTF-8 grows by up to three times.
    #[inline]
    fn fits(&self, cell: Cell) -> bool {
        match cell {
            Cell::Text(span) | Cell::Json(span) => span.len as usize <= self.bytes_max(),
            Cell::MsgPack(span) => span.len as usize <= self.bytes_max() / 3,
            _ => true,
        }
    }
}

impl Column {
    /// A column of edits that shortens the texts of these rows, also in objects and lists; none where all are short enough.
    pub fn shortened(
        &self,
        limit: &TextLimit,
        rows: &Bitmap,
        done: &mut Shortened,
    ) -> Option<Self> {
        let mut shortener = Shortener::new(limit, rows, done);
        let column = shortener.column(self, None, false)?;
        Some(column.finish())
    }
}

struct Shortener<'a> {
    limit: &'a TextLimit,
    rows: &'a Bitmap,
    done: &'a mut Shortened,
    /// The texts of a JSON value that are too long, quotes included.
    long: Vec<Range<usize>>,
    /// A text without its escapes.
    text: Vec<u8>,
}

impl<'a> Shortener<'a> {
    fn new(limit: &'a TextLimit, rows: &'a Bitmap, done: &'a mut Shortened) -> Self {
        Self {
            limit,
            rows,
            done,
            long: Vec::new(),
            text: Vec::new(),
        }
    }

    /// Shortens what was written at and below a node.
    fn node(&mut self, node: &mut Node, is_root: bool) {
        if let Some(own) = node.own.clone()
            && let Some(mut column) = self.column(&own, Some(node), is_root)
        {
            for row in 0..own.len() {
                if column.cell(row) == Cell::Keep {
                    column.set(row, own.cell(row));
                }
            }
            node.own = Some(Arc::new(column.finish()));
        }
        let stays = |child: &Node| is_root && matches!(&*child.key, METADATA | TIMESTAMP);
        for child in node.children.iter_mut().filter(|child| !stays(child)) {
            self.node(child, false);
        }
    }

    /// The cells that replace those of a column, which stands at `node` where edits may lie over it.
    fn column(
        &mut self,
        column: &Column,
        node: Option<&Node>,
        is_event: bool,
    ) -> Option<ColumnBuilder> {
        if column
            .as_constant()
            .is_some_and(|cell| self.limit.fits(cell))
        {
            return None;
        }
        let mut edit: Option<ColumnBuilder> = None;
        for row in self.rows.iter() {
            let cell = column.cell(row);
            if self.limit.fits(cell) {
                continue;
            }
            let over = node.map(|node| Over {
                node,
                row,
                is_event,
            });
            let edit = edit
                .get_or_insert_with(|| ColumnBuilder::over(column.len(), column.buffers().clone()));
            self.cell(column, row, over, edit);
        }
        edit.filter(|edit| !edit.is_untouched())
    }

    fn cell(
        &mut self,
        column: &Column,
        row: usize,
        over: Option<Over<'_>>,
        edit: &mut ColumnBuilder,
    ) {
        let limit = self.limit;
        let cell = match column.cell(row) {
            Cell::Text(span) => {
                let text = column.bytes(span);
                let kept = limit.kept_len(text);
                self.done.texts += 1;
                Cell::Text(match limit.suffix() {
                    "" => Span {
                        len: kept as u32,
                        ..span
                    },
                    suffix => edit.append(|out| {
                        out.extend_from_slice(&text[..kept]);
                        out.extend_from_slice(suffix.as_bytes());
                    }),
                })
            }
            Cell::Json(span) => match self.json(column.bytes(span), over, edit) {
                Some(span) => Cell::Json(span),
                None => return,
            },
            Cell::MsgPack(span) if has_long(column.bytes(span), limit.bytes_max()) => {
                let mut text = Vec::new();
                msgpack::to_json(column.bytes(span), &mut text);
                match self.json(&text, over, edit) {
                    Some(span) => Cell::Json(span),
                    None => return,
                }
            }
            _ => return,
        };
        self.done.rows.insert(row);
        edit.set(row, cell);
    }

    /// Writes a JSON value anew, with its texts shortened; nothing where all are short enough.
    fn json(
        &mut self,
        value: &[u8],
        over: Option<Over<'_>>,
        edit: &mut ColumnBuilder,
    ) -> Option<Span> {
        self.long.clear();
        self.find(value, 0..value.len(), over);
        if self.long.is_empty() {
            return None;
        }
        self.done.texts += self.long.len() as u64;
        let Self {
            limit, long, text, ..
        } = self;
        Some(edit.append(|out| {
            let mut copied = 0;
            for at in long.iter() {
                out.extend_from_slice(&value[copied..at.start]);
                copied = at.end;
                let body = &value[at.start + 1..at.end - 1];
                text.clear();
                json::unescape(body, text);
                text.truncate(limit.kept_len(text));
                text.extend_from_slice(limit.suffix().as_bytes());
                json::write_string(out, text);
            }
            out.extend_from_slice(&value[copied..]);
        }))
    }

    /// Collects the long texts of the value that lies at `at`.
    fn find(&mut self, all: &[u8], at: Range<usize>, over: Option<Over<'_>>) {
        let value = &all[at.clone()];
        let bytes_max = self.limit.bytes_max();
        if value.len() <= bytes_max {
            return;
        }
        let inner = |part: Range<usize>| at.start + part.start..at.start + part.end;
        match json::kind(value) {
            json::Kind::String => {
                let body = &value[1..value.len() - 1];
                if body.len() > bytes_max && self.unescaped_len(body) > bytes_max {
                    self.long.push(at);
                }
            }
            json::Kind::Array => {
                for element in json::elements(value) {
                    self.find(all, inner(element), None);
                }
            }
            json::Kind::Object => {
                for member in json::members(value) {
                    match over {
                        None => self.find(all, inner(member.value), None),
                        Some(over) => match over.member(&unescaped(member.key)) {
                            Member::Hidden => {}
                            Member::Shown(over) => self.find(all, inner(member.value), over),
                        },
                    }
                }
            }
            _ => {}
        }
    }

    fn unescaped_len(&mut self, body: &[u8]) -> usize {
        if !json::has_escape(body) {
            return body.len();
        }
        self.text.clear();
        json::unescape(body, &mut self.text);
        self.text.len()
    }
}

/// What was written over an object of a row.
#[derive(Clone, Copy)]
struct Over<'a> {
    node: &'a Node,
    row: usize,
    is_event: bool,
}

/// A member of an object as the event has it.
enum Member<'a> {
    /// It was replaced or removed, or is left alone.
    Hidden,
    /// It stays, with what was written over its members.
    Shown(Option<Over<'a>>),
}

impl<'a> Over<'a> {
    fn member(self, key: &[u8]) -> Member<'a> {
        if self.is_event && key == TIMESTAMP.as_bytes() {
            return Member::Hidden;
        }
        let child = self.node.child(key);
        match child.filter(|_| !(self.is_event && key == METADATA.as_bytes())) {
            Some(child) if child.cell(self.row) != Cell::Keep => Member::Hidden,
            Some(child) => Member::Shown(Some(Self {
                node: child,
                is_event: false,
                ..self
            })),
            None => Member::Shown(None),
        }
    }
}

/// Whether a MessagePack value may hold a text that is too long once it is written as JSON.
fn has_long(value: &[u8], bytes_max: usize) -> bool {
    if value.len() <= bytes_max / 3 {
        return false;
    }
    match msgpack::read(value, 0).0 {
        msgpack::Value::Str(text) => {
            text.len() > bytes_max
                || text.len() > bytes_max / 3 && simdutf8::basic::from_utf8(text).is_err()
        }
        msgpack::Value::Bin(_) | msgpack::Value::Ext(..) => true,
        msgpack::Value::Array(_) => {
            msgpack::elements(value).any(|at| has_long(&value[at], bytes_max))
        }
        msgpack::Value::Map(_) => {
            msgpack::members(value).any(|member| has_long(&value[member.value], bytes_max))
        }
        _ => false,
    }
}
