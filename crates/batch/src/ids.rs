//! Ids of events that do not follow from their place.
//!
//! A row's id is its place in its stream ([`Origin`]) unless the sender gave one, or it was derived: a part of an event has the
//! parent's id and an index, what sums up a window has operator, key and window. So an id has two pieces: a *base*, which is
//! the place or a text, and for a part the index behind it. Texts are spans, like all text of a batch: those of senders
//! point into the documents' buffers. A batch in which every id follows from its place keeps nothing of this.
//!
//! Limits: a sender's id has 1 to [`SENDER_ID_BYTES_MAX`] bytes. Derived ids are as long as they become: about 9 bytes more for
//! each time that a part is taken apart again.

use bytes::Bytes;

use crate::cell::{Cell, Span, Value};
use crate::column::Column;
use crate::fnv::Fnv128;

/// The longest id that a sender may give, in bytes. Elasticsearch takes no longer `_id`.
pub const SENDER_ID_BYTES_MAX: usize = 512;

/// What is kept for a row in a batch with ids: a cell and an index.
pub(crate) const ID_OVERHEAD: usize = size_of::<Cell>() + size_of::<Option<u32>>();

/// Why what a sender gave is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// There is nothing in it.
    #[error("an event's id is empty")]
    Empty,
    /// It is too long.
    #[error("an event's id has {bytes} bytes; at most {SENDER_ID_BYTES_MAX} are taken")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is no text.
    #[error("an event's id is not UTF-8")]
    NotUtf8,
}

/// What sums up the events of a window. The same operator, key and window give the same id in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window<'a> {
    /// The operator, as [`Window::operator`] gives it.
    pub operator: Fnv128,
    /// What the events were grouped by, in a form that never changes.
    pub key: &'a [u8],
    /// Where the window begins, in nanoseconds since 1970.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
}

/// An event that others are parts of, as the builder of their batch knows it.
#[derive(Debug, Clone, Copy)]
pub struct Parent {
    /// Its stream's id, its start and its end.
    place: (u128, u64, u64),
    /// Its id, where that is a text.
    id: Option<Span>,
}

/// The ids of a batch in which some do not follow from their place.
#[derive(Debug)]
pub(crate) struct Ids {
    /// The base of each row's id; [`Cell::Keep`] where it is the row's place.
    bases: Column,
    /// For each row that is a part, which one; empty where none is.
    parts: Vec<Option<u32>>,
}

impl Ids {
    /// Ids of these bases and parts, as many of each, unless all of them follow from the rows' places.
    pub fn new(bases: Column, mut parts: Vec<Option<u32>>) -> Option<Self> {
        if parts.iter().all(Option::is_none) {
            parts.clear();
            if (0..bases.len()).all(|row| bases.cell(row) == Cell::Keep) {
                return None;
            }
        }
        Some(Self { bases, parts })
    }

    pub fn bases(&self) -> &Column {
        &self.bases
    }

    /// The text of a row's base, where it is not its place.
    pub fn base(&self, row: usize) -> Option<&[u8]> {
        match self.bases.value(row) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Which part a row is.
    pub fn part(&self, row: usize) -> Option<u32> {
        self.parts.get(row).copied().flatten()
    }

    /// The column of the ids, where the bases are all there is to them.
    pub fn whole(&self) -> Option<&Column> {
        let is_text = |row| matches!(self.bases.cell(row), Cell::Text(_));
        let is_whole = self.parts.is_empty() && (0..self.bases.len()).all(is_text);
        is_whole.then_some(&self.bases)
    }
}

/// The ids of a batch that is being built. Rows behind the last one that was set follow from their places.
#[derive(Debug, Default)]
pub(crate) struct IdsBuilder {
    cells: Vec<Cell>,
    parts: Vec<Option<u32>>,
    /// Texts that lie in no buffer of the batch. Their spans have the buffer [`OWN`] until all buffers are known.
    own: Vec<u8>,
}

/// Stands for the buffer that will be made of the builder's own texts.
const OWN: u32 = u32::MAX;

impl IdsBuilder {
    /// Gives a row its base, and makes it a part where an index is given.
    pub fn set(&mut self, row: usize, base: Cell, part: Option<u32>) {
        if row >= self.cells.len() {
            self.cells.resize(row + 1, Cell::Keep);
            self.parts.resize(row + 1, None);
        }
        self.cells[row] = base;
        self.parts[row] = part;
    }

    /// Bytes of texts that lie in no buffer of the batch.
    pub fn own_len(&self) -> usize {
        self.own.len()
    }

    /// Keeps a text of its own.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.own.len();
        write(&mut self.own);
        Span {
            buffer: OWN,
            start: start as u32,
            len: (self.own.len() - start) as u32,
        }
    }

    /// The ids of `len` rows, before the batch's buffers are made one list: cells, parts, and a buffer more where one is
    /// needed.
    pub fn finish(mut self, len: usize, buffers: &mut Vec<Bytes>) -> (Vec<Cell>, Vec<Option<u32>>) {
        self.cells.resize(len, Cell::Keep);
        self.parts.resize(len, None);
        if !self.own.is_empty() {
            let number = buffers.len() as u32;
            buffers.push(self.own.into());
            for cell in &mut self.cells {
                if let Cell::Text(span) = cell
                    && span.buffer == OWN
                {
                    span.buffer = number;
                }
            }
        }
        (self.cells, self.parts)
    }
}

/// Whether bytes may be the id that a sender gives.
pub(crate) fn check(id: &[u8]) -> Result<(), IdError> {
    match id.len() {
        0 => Err(IdError::Empty),
        1..=SENDER_ID_BYTES_MAX => {
            let checked = simdutf8::basic::from_utf8(id);
            checked.map(|_| ()).map_err(|_| IdError::NotUtf8)
        }
        bytes => Err(IdError::TooLong { bytes }),
    }
}

impl Parent {
    /// The event of a place, with its id where that does not follow from the place.
    pub(crate) fn new(place: (u128, u64, u64), id: Option<Span>) -> Self {
        Self { place, id }
    }

    /// What the id of a part at a place begins with: nothing, where it follows from the place as the parent's does.
    pub(crate) fn base(&self, place: (u128, u64, u64), ids: &mut IdsBuilder) -> Cell {
        match self.id {
            Some(id) => Cell::Text(id),
            None if place == self.place => Cell::Keep,
            None => Cell::Text(ids.append(|out| write_place(self.place, out))),
        }
    }
}

impl Window<'_> {
    /// An operator by its name in its pipeline. Its windows have it in common.
    pub fn operator(name: &str) -> Fnv128 {
        let mut hash = Fnv128::new();
        hash.add_part(name.as_bytes());
        hash
    }

    /// Appends the id: a hash of operator and key in hexadecimal, start and end, joined by `-`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut hash = self.operator;
        hash.add_part(self.key);
        for half in [(hash.value() >> 64) as u64, hash.value() as u64] {
            out.extend_from_slice(&hex(half));
        }
        for number in [self.start, self.end] {
            out.push(b'-');
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
    }
}

/// Appends the id that follows from a place: stream id, start and end, in hexadecimal, joined by `-`.
pub(crate) fn write_place((stream, start, end): (u128, u64, u64), out: &mut Vec<u8>) {
    // By hand, and straight into its place: every event has an id, a formatter takes several times as long, and a text that was
    // just put together can be copied only when all of its pieces have reached the cache.
    let before = out.len();
    out.extend_from_slice(&[0; 32 + 2 * 17]);
    let text = &mut out[before..];
    text[..16].copy_from_slice(&hex((stream >> 64) as u64));
    text[16..32].copy_from_slice(&hex(stream as u64));
    let mut len = 32;
    for number in [start, end] {
        let zeros = (number.leading_zeros() / 4).min(15);
        text[len] = b'-';
        text[len + 1..len + 17].copy_from_slice(&hex(number << (4 * zeros)));
        len += 17 - zeros as usize;
    }
    out.truncate(before + len);
}

/// Sixteen hexadecimal digits.
fn hex(number: u64) -> [u8; 16] {
    let mut text = [0; 16];
    text[..8].copy_from_slice(&hex_half((number >> 32) as u32));
    text[8..].copy_from_slice(&hex_half(number as u32));
    text
}

/// Eight hexadecimal digits, all at once.
fn hex_half(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut digits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
    ] {
        digits = (digits | digits << shift) & mask;
    }
    // 1 where the digit is a letter.
    let letters = ((digits + 6 * ONES) >> 4) & ONES;
    let gap = u64::from(b'a' - b'9' - 1);
    (digits + u64::from(b'0') * ONES + letters * gap).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Batch, BatchBuilder, Encoding, FieldPath, HostInfo, Stream};

    const TEXT: &str = "first\nsecond\nid-\u{e9}\n";
    const SENT: Span = Span {
        buffer: 0,
        start: 13,
        len: 5,
    };

    /// A batch of lines that all have the same place, whose ids are made so.
    fn batch_of(ids: &[&dyn Fn(&mut BatchBuilder)]) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
        builder.buffer(TEXT.into());
        builder.stream(&Arc::new(Stream::unnamed(0xabc)));
        for id in ids {
            let line = Span {
                buffer: 0,
                start: 0,
                len: 5,
            };
            builder.push(line, 10, 20);
            id(&mut builder);
        }
        builder.finish()
    }

    fn ids(batch: &Batch) -> Vec<String> {
        let column = batch.column(&FieldPath::from_keys(["@metadata", "id"]));
        let id = |row| {
            let mut id = Vec::new();
            batch.origin().write_id(row, &mut id);
            assert_eq!(column.value(row), Value::Text(&id), "the field is the id");
            String::from_utf8(id).expect("ids are UTF-8")
        };
        (0..batch.len()).map(id).collect()
    }

    const PLACE: &str = "00000000000000000000000000000abc-a-14";

    /// The hash of `summarize` and `web-1`, each behind its length, as another program computes it.
    const WINDOW: &str = "961f1439001683cf9ea6a01a9313fc48--5-60000000000";

    /// A batch of every form of id.
    fn forms() -> Batch {
        let parents = batch_of(&[&|_| {}, &|rows| rows.id_last(SENT).expect("a fine id")]);
        let part = |row: usize, index| {
            let origin = parents.origin();
            move |rows: &mut BatchBuilder| {
                let parent = rows.parent(origin, row);
                rows.part_last(&parent, index);
            }
        };
        let elsewhere = |rows: &mut BatchBuilder| {
            let parent = rows.parent(parents.origin(), 0);
            rows.stream(&Arc::new(Stream::unnamed(0xdef)));
            let line = Span::default();
            rows.push(line, 10, 20);
            rows.part_last(&parent, 1);
        };
        let window = |rows: &mut BatchBuilder| {
            rows.window_last(&Window {
                operator: Window::operator("summarize"),
                key: b"web-1",
                start: -5,
                end: 60_000_000_000,
            });
        };
        batch_of(&[
            &|_| {},
            &|rows| rows.id_last(SENT).expect("a fine id"),
            &part(0, 0),
            &part(0, 255),
            &part(1, u32::MAX),
            &window,
            &elsewhere,
        ])
    }

    #[test]
    fn every_form_has_its_text() {
        let batch = forms();
        let expected = [
            PLACE.to_owned(),
            "id-\u{e9}".to_owned(),
            format!("{PLACE}-0"),
            format!("{PLACE}-ff"),
            "id-\u{e9}-ffffffff".to_owned(),
            WINDOW.to_owned(),
            "00000000000000000000000000000abc-a-14".to_owned(),
            format!("{PLACE}-1"),
        ];
        assert_eq!(ids(&batch), expected);
        let hash = |row| batch.origin().hash(row);
        for row in 1..6 {
            assert_ne!(hash(row), hash(0), "row {row}");
        }
        assert_eq!(hash(6), hash(0), "the same id");
    }

    #[test]
    fn places_are_written_as_the_formatter_writes_them() {
        let numbers = [0, 1, 15, 16, 255, 256, 0xfff_ffff, u64::MAX / 3, u64::MAX];
        for (index, &start) in numbers.iter().enumerate() {
            for &end in &numbers {
                let stream = (u128::MAX / 7) >> (index * 14);
                let mut out = Vec::new();
                write_place((stream, start, end), &mut out);
                let expected = format!("{stream:032x}-{start:x}-{end:x}");
                assert_eq!(String::from_utf8_lossy(&out), expected);
            }
        }
    }

    #[test]
    fn parts_of_parts_have_an_index_more() {
        let parents = forms();
        let part = |row| {
            let origin = parents.origin();
            move |rows: &mut BatchBuilder| {
                let parent = rows.parent(origin, row);
                rows.part_last(&parent, 10);
            }
        };
        let rows: Vec<_> = (0..parents.len()).map(part).collect();
        let rows: Vec<&dyn Fn(&mut BatchBuilder)> = rows.iter().map(|row| row as _).collect();
        let expected: Vec<_> = ids(&parents).iter().map(|id| format!("{id}-a")).collect();
        assert_eq!(ids(&batch_of(&rows)), expected);
    }

    #[test]
    fn only_ids_of_their_own_take_room() {
        let plain = batch_of(&[&|_| {}, &|_| {}]);
        assert!(plain.origin().ids().is_none());
        let unused = batch_of(&[&|rows| {
            rows.parent(plain.origin(), 0);
        }]);
        assert!(unused.origin().ids().is_none());
        assert_eq!(unused.size(), plain.size() / 2);
        let sent = batch_of(&[&|rows| rows.id_last(SENT).expect("a fine id")]);
        assert_eq!(sent.size(), unused.size() + ID_OVERHEAD);
        let column = sent.column(&FieldPath::from_keys(["@metadata", "id"]));
        let kept = sent.origin().ids().expect("an id").bases();
        assert!(Arc::ptr_eq(column.buffers(), kept.buffers()), "no copy");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let long = "x".repeat(SENDER_ID_BYTES_MAX);
        let longer = "x".repeat(SENDER_ID_BYTES_MAX + 1);
        let cases: [(&[u8], Result<(), IdError>); 5] = [
            (b"a b\n", Ok(())),
            (long.as_bytes(), Ok(())),
            (longer.as_bytes(), Err(IdError::TooLong { bytes: 513 })),
            (b"", Err(IdError::Empty)),
            (b"\xff", Err(IdError::NotUtf8)),
        ];
        for (id, expected) in cases {
            let batch = batch_of(&[&|rows| {
                let buffer = rows.buffer(Bytes::copy_from_slice(id));
                let (start, len) = (0, id.len() as u32);
                let given = rows.id_last(Span { buffer, start, len });
                assert_eq!(given, expected, "{id:?}");
            }]);
            let is_kept = ids(&batch)[0].as_bytes() == id;
            assert_eq!(is_kept, expected.is_ok(), "{id:?}");
        }
    }

    #[test]
    fn messages_show_ids_without_control_characters() {
        let batch = batch_of(&[&|rows| {
            let buffer = rows.buffer("a\u{1b}[31m\u{e9}\n".into());
            let (start, len) = (0, 9);
            rows.id_last(Span { buffer, start, len })
                .expect("a fine id");
        }]);
        assert_eq!(batch.origin().shown_id(0), "a\\u{1b}[31m\u{e9}\\n");
    }
}
