//! Changing the texts of events, one by one: shortening them, masking secrets in them.
//!
//! Values stay where they are: a text of its own becomes a shorter span or a new text. A document, an object or a list with a text
//! that changes is written anew once, as JSON; what cannot hold such a text is not looked into. So events in which nothing
//! changes cost a comparison for each field that was written and one for the document, or what [`TextChange`] needs to see that.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::cell::{Cell, Span};
use crate::column::{Column, ColumnBuilder};
use crate::edit::Edit;
use crate::format::unescaped;
use crate::path::FieldPath;
use crate::tree::{METADATA, Node};
use crate::{json, msgpack};

/// The field that holds the time of an event, which documents write as text.
const TIMESTAMP: &str = "@timestamp";

/// What is done to texts. All texts are UTF-8.
pub trait TextChange {
    /// Whether a text of so many bytes stays as it is, whatever it is. Then shorter ones do, too.
    fn leaves_len(&self, len: usize) -> bool;

    /// Whether no text of a JSON value changes for certain, which costs less than a look at each of them.
    fn leaves_json(&mut self, _value: &[u8]) -> bool {
        false
    }

    /// Whether a text changes, for texts that are changed later.
    fn would_change(&mut self, text: &[u8]) -> bool;

    /// Changes a text. `out` is empty.
    fn change(&mut self, text: &[u8], out: &mut Vec<u8>) -> NewText;
}

/// What becomes of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewText {
    /// It stays as it is.
    Same,
    /// Only this number of bytes is left of it, from its beginning.
    Start(usize),
    /// It was written anew.
    Written,
}

/// What was changed.
#[derive(Debug)]
pub struct ChangedTexts {
    /// The rows with a text that changed.
    pub rows: Bitmap,
    /// The number of texts.
    pub texts: u64,
}

impl ChangedTexts {
    /// Nothing, in a batch of `len` rows.
    pub fn none(len: usize) -> Self {
        Self {
            rows: Bitmap::none(len),
            texts: 0,
        }
    }
}

impl Batch {
    /// Changes all texts of these events, also in objects and lists. `@timestamp` and what lies below `@metadata` stay.
    pub fn change_texts(&mut self, change: &mut impl TextChange, rows: &Bitmap) -> ChangedTexts {
        let mut done = ChangedTexts::none(self.len());
        let mut changer = TextChanger::new(change, rows, &mut done);
        changer.node(&mut self.root, true, None);
        if done.texts > 0 {
            self.forget_all();
        }
        done
    }

    /// Changes the texts of these fields, also in objects and lists. A field is meant in all spellings of its name with dots, and so is
    /// what lies in it: `user` is also what `user.mail` holds.
    pub fn change_fields(
        &mut self,
        fields: &[FieldPath],
        change: &mut impl TextChange,
        rows: &Bitmap,
    ) -> ChangedTexts {
        let mut done = ChangedTexts::none(self.len());
        let is_own = |path: &FieldPath| matches!(&*path.keys()[0], METADATA | TIMESTAMP);
        let dotted = self.dotted;
        for path in fields.iter().filter(|path| !dotted || is_own(path)) {
            if let Some(column) = self.column(path).changed(change, rows, &mut done) {
                let mut edit = Edit::new();
                edit.set(path.clone(), column);
                let refused = self.apply(edit);
                debug_assert!(refused.is_empty(), "a value that is there can be replaced");
            }
        }
        if dotted {
            let others = fields.iter().filter(|path| !is_own(path));
            let others: Vec<&[Box<str>]> = others.map(FieldPath::keys).collect();
            let before = done.texts;
            TextChanger::new(change, rows, &mut done).node(&mut self.root, true, Some(&others));
            if done.texts > before {
                self.forget_all();
            }
        }
        done
    }

    /// Whether some of these events may have a text that changes: what is known from the sizes of values, without a look into them.
    pub fn may_change(&self, change: &impl TextChange, rows: &Bitmap) -> bool {
        fn may(node: &Node, change: &impl TextChange, rows: &Bitmap) -> bool {
            let may_own = |own: &Column| match own.as_constant() {
                Some(cell) => !leaves(change, cell),
                None => rows.iter().any(|row| !leaves(change, own.cell(row))),
            };
            node.own.as_deref().is_some_and(may_own)
                || node.children.iter().any(|child| may(child, change, rows))
        }
        may(&self.root, change, rows)
    }
}

/// Whether a cell holds no text that changes, by its size. Text of MessagePack that is not UTF-8 grows by up to three times.
#[inline]
fn leaves(change: &impl TextChange, cell: Cell) -> bool {
    match cell {
        Cell::Text(span) | Cell::Json(span) => change.leaves_len(span.len as usize),
        Cell::MsgPack(span) => change.leaves_len(grown(span.len as usize)),
        _ => true,
    }
}

/// The fields below an object that are looked into, each by the keys that lead to it; none for all.
type FieldKeys<'f> = Option<&'f [&'f [Box<str>]]>;

/// How much of a member of an object is looked into.
enum FieldShare<'f> {
    None,
    All,
    /// These fields below it.
    Below(Vec<&'f [Box<str>]>),
}

/// How much of a member lies in these fields. Its key may spell several keys with dots.
fn part_in<'f>(fields: &[&'f [Box<str>]], member: &[u8]) -> FieldShare<'f> {
    let mut further = Vec::new();
    for keys in fields {
        let mut rest = member;
        for (index, key) in keys.iter().enumerate() {
            let Some(after) = rest.strip_prefix(key.as_bytes()) else {
                break;
            };
            let is_last = index + 1 == keys.len();
            match after {
                [] | [b'.', ..] if is_last => return FieldShare::All,
                [] => further.push(&keys[index + 1..]),
                [b'.', after @ ..] => {
                    rest = after;
                    continue;
                }
                _ => {}
            }
            break;
        }
    }
    match further.is_empty() {
        true => FieldShare::None,
        false => FieldShare::Below(further),
    }
}

/// The most bytes that a text of MessagePack has as JSON.
fn grown(len: usize) -> usize {
    len.saturating_mul(3)
}

impl Column {
    /// A column of edits that changes the texts of these rows, also in objects and lists; none where all stay as they are.
    fn changed(
        &self,
        change: &mut impl TextChange,
        rows: &Bitmap,
        done: &mut ChangedTexts,
    ) -> Option<Self> {
        let mut changer = TextChanger::new(change, rows, done);
        let column = changer.column(self, None, false, None)?;
        Some(column.finish())
    }
}

struct TextChanger<'a, C> {
    change: &'a mut C,
    rows: &'a Bitmap,
    done: &'a mut ChangedTexts,
    /// The texts of a JSON value that change: where they lie, quotes included, and what replaces them, in `new`.
    changed: Vec<(Range<usize>, Range<usize>)>,
    new: Vec<u8>,
    /// A text without its escapes.
    unescaped: Vec<u8>,
    /// A text that was written anew.
    written: Vec<u8>,
}

impl<'a, C: TextChange> TextChanger<'a, C> {
    fn new(change: &'a mut C, rows: &'a Bitmap, done: &'a mut ChangedTexts) -> Self {
        Self {
            change,
            rows,
            done,
            changed: Vec::new(),
            new: Vec::new(),
            unescaped: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Changes what was written at and below a node.
    fn node(&mut self, node: &mut Node, is_root: bool, fields: FieldKeys<'_>) {
        if let Some(own) = node.own.clone()
            && let Some(mut column) = self.column(&own, Some(node), is_root, fields)
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
            match fields.map_or(FieldShare::All, |fields| {
                part_in(fields, child.key.as_bytes())
            }) {
                FieldShare::None => {}
                FieldShare::All => self.node(child, false, None),
                FieldShare::Below(further) => self.node(child, false, Some(&further)),
            }
        }
    }

    /// The cells that replace those of a column, which stands at `node` where edits may lie over it.
    fn column(
        &mut self,
        column: &Column,
        node: Option<&Node>,
        is_event: bool,
        fields: FieldKeys<'_>,
    ) -> Option<ColumnBuilder> {
        if let Some(cell) = column.as_constant()
            && self.leaves_constant(column, cell)
        {
            return None;
        }
        let mut edit: Option<ColumnBuilder> = None;
        for row in self.rows.iter() {
            let cell = column.cell(row);
            if leaves(self.change, cell) {
                continue;
            }
            let over = node.map(|node| Over {
                node,
                row,
                is_event,
            });
            self.cell(column, row, over, fields, &mut edit);
        }
        edit
    }

    /// Whether a value that many rows have stays as it is. What lies over its members is not looked at.
    fn leaves_constant(&mut self, column: &Column, cell: Cell) -> bool {
        leaves(self.change, cell)
            || match cell {
                Cell::Text(span) => !self.change.would_change(column.bytes(span)),
                Cell::Json(span) => self.change.leaves_json(column.bytes(span)),
                _ => false,
            }
    }

    fn cell(
        &mut self,
        column: &Column,
        row: usize,
        over: Option<Over<'_>>,
        fields: FieldKeys<'_>,
        edit: &mut Option<ColumnBuilder>,
    ) {
        let builder = || ColumnBuilder::over(column.len(), column.buffers().clone());
        let cell = match column.cell(row) {
            Cell::Text(span) if fields.is_none() => {
                self.written.clear();
                let len = match self.change.change(column.bytes(span), &mut self.written) {
                    NewText::Same => return,
                    NewText::Start(len) => Some(len as u32),
                    NewText::Written => None,
                };
                self.done.texts += 1;
                Cell::Text(match len {
                    Some(len) => Span { len, ..span },
                    None => edit
                        .get_or_insert_with(builder)
                        .append(|out| out.extend_from_slice(&self.written)),
                })
            }
            Cell::Json(span) => {
                let value = column.bytes(span);
                if self.change.leaves_json(value) || !self.finds(value, over, fields) {
                    return;
                }
                let edit = edit.get_or_insert_with(builder);
                Cell::Json(edit.append(|out| self.write(value, out)))
            }
            Cell::MsgPack(span) if self.may_hold(column.bytes(span)) => {
                let mut value = Vec::new();
                msgpack::to_json(column.bytes(span), &mut value);
                if !self.finds(&value, over, fields) {
                    return;
                }
                let edit = edit.get_or_insert_with(builder);
                Cell::Json(edit.append(|out| self.write(&value, out)))
            }
            _ => return,
        };
        self.done.rows.insert(row);
        edit.get_or_insert_with(builder).set(row, cell);
    }

    /// Collects the texts of a JSON value that change. Whether there are any.
    fn finds(&mut self, value: &[u8], over: Option<Over<'_>>, fields: FieldKeys<'_>) -> bool {
        self.changed.clear();
        self.new.clear();
        self.find(value, 0..value.len(), over, fields);
        self.done.texts += self.changed.len() as u64;
        !self.changed.is_empty()
    }

    /// Writes a JSON value anew, with the texts that were found.
    fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let mut copied = 0;
        for (at, new) in &self.changed {
            out.extend_from_slice(&value[copied..at.start]);
            copied = at.end;
            json::write_string(out, &self.new[new.clone()]);
        }
        out.extend_from_slice(&value[copied..]);
    }

    /// Collects the texts that change of the value that lies at `at`.
    fn find(
        &mut self,
        all: &[u8],
        at: Range<usize>,
        over: Option<Over<'_>>,
        fields: FieldKeys<'_>,
    ) {
        let value = &all[at.clone()];
        if self.change.leaves_len(value.len()) {
            return;
        }
        let inner = |part: Range<usize>| at.start + part.start..at.start + part.end;
        match json::kind(value) {
            json::Kind::String if fields.is_none() => {
                self.text(&value[1..value.len() - 1], at);
            }
            json::Kind::Array if fields.is_none() => {
                for element in json::elements(value) {
                    self.find(all, inner(element), None, None);
                }
            }
            json::Kind::Object => {
                for member in json::members(value) {
                    let over = match over.map(|over| over.member(&unescaped(member.key))) {
                        None => None,
                        Some(Member::Shown(over)) => over,
                        Some(Member::Hidden) => continue,
                    };
                    let value = inner(member.value);
                    let part = |fields| part_in(fields, &unescaped(member.key));
                    match fields.map_or(FieldShare::All, part) {
                        FieldShare::None => {}
                        FieldShare::All => self.find(all, value, over, None),
                        FieldShare::Below(further) => self.find(all, value, over, Some(&further)),
                    }
                }
            }
            _ => {}
        }
    }

    /// Changes a text of a JSON value, whose body may have escapes. It lies at `at`, quotes included.
    fn text(&mut self, body: &[u8], at: Range<usize>) {
        if self.change.leaves_len(body.len()) {
            return;
        }
        let text = if json::has_escape(body) {
            self.unescaped.clear();
            json::unescape(body, &mut self.unescaped);
            &self.unescaped
        } else {
            body
        };
        let start = self.new.len();
        self.written.clear();
        match self.change.change(text, &mut self.written) {
            NewText::Same => return,
            NewText::Start(len) => self.new.extend_from_slice(&text[..len]),
            NewText::Written => self.new.extend_from_slice(&self.written),
        }
        self.changed.push((at, start..self.new.len()));
    }

    /// Whether a MessagePack value may hold a text that changes once it is written as JSON.
    fn may_hold(&mut self, value: &[u8]) -> bool {
        if self.change.leaves_len(grown(value.len())) {
            return false;
        }
        match msgpack::read(value, 0).0 {
            msgpack::Value::Str(text) => {
                let is_text = simdutf8::basic::from_utf8(text).is_ok();
                !is_text || self.change.would_change(text)
            }
            msgpack::Value::Bin(_) | msgpack::Value::Ext(..) => true,
            msgpack::Value::Array(_) => {
                msgpack::elements(value).any(|at| self.may_hold(&value[at]))
            }
            msgpack::Value::Map(_) => {
                msgpack::members(value).any(|member| self.may_hold(&value[member.value]))
            }
            _ => false,
        }
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
