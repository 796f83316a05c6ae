//! A field over the whole batch.
//!
//! A column owns one cell for each row, or one cell for all of them, and shares the buffers that its cells point into.
//! Cloning a column's buffers is one reference count, so a capture of a line costs 16 bytes and no copy of its text.

use std::sync::Arc;

use bytes::Bytes;

use crate::cell::{Cell, Span, Value};
use crate::member_places::MemberPlaces;

/// A field over the whole batch: a cell for each row, and the buffers they point into.
#[derive(Clone, Debug)]
pub struct Column {
    cells: Cells,
    buffers: Arc<[Bytes]>,
    /// Where the members of its cells stand, if these are documents as they were read.
    places: Option<Arc<MemberPlaces>>,
}

/// How a column keeps its cells.
#[derive(Clone, Debug)]
pub(crate) enum Cells {
    Rows(Vec<Cell>),
    /// The same value in every row of a batch of this length.
    Constant(Cell, usize),
    /// Whole numbers that something else keeps anyway, such as the rows' offsets.
    Offsets(Arc<Vec<u64>>),
}

impl Column {
    /// A column of `cells` whose spans point into `buffers`.
    pub fn new(cells: Vec<Cell>, buffers: Arc<[Bytes]>) -> Self {
        Self::from_cells(Cells::Rows(cells), buffers)
    }

    /// A column of `len` rows that all hold `cell`, which points into no buffer.
    pub fn constant(cell: Cell, len: usize) -> Self {
        debug_assert!(
            cell.span().is_none(),
            "a constant with a span needs its buffer"
        );
        Self::from_cells(Cells::Constant(cell, len), no_buffers())
    }

    /// A column of `len` rows that all hold the same text.
    pub fn constant_text(text: &[u8], len: usize) -> Self {
        Self::constant_bytes(text, len, Cell::Text)
    }

    /// A column of `len` rows that all hold the same JSON array or object.
    pub fn constant_json(text: &[u8], len: usize) -> Self {
        Self::constant_bytes(text, len, Cell::Json)
    }

    fn constant_bytes(text: &[u8], len: usize, cell: impl Fn(Span) -> Cell) -> Self {
        let span = Span {
            buffer: 0,
            start: 0,
            len: text.len() as u32,
        };
        let buffers = [Bytes::copy_from_slice(text)].into();
        Self::from_cells(Cells::Constant(cell(span), len), buffers)
    }

    /// A column of whole numbers shared with whatever keeps them.
    pub(crate) fn offsets(offsets: Arc<Vec<u64>>) -> Self {
        Self::from_cells(Cells::Offsets(offsets), no_buffers())
    }

    /// A column of cells kept in any way, whose spans point into `buffers`.
    pub(crate) fn from_cells(cells: Cells, buffers: Arc<[Bytes]>) -> Self {
        Self {
            cells,
            buffers,
            places: None,
        }
    }

    /// This column with the places of its documents' members.
    pub(crate) fn with_places(self, places: Option<MemberPlaces>) -> Self {
        Self {
            places: places.map(Arc::new),
            ..self
        }
    }

    /// Where the members of its documents stand, if that was noted.
    pub(crate) fn places(&self) -> Option<&MemberPlaces> {
        self.places.as_deref()
    }

    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Rows(cells) => cells.len(),
            Cells::Constant(_, len) => *len,
            Cells::Offsets(offsets) => offsets.len(),
        }
    }

    /// Whether the column has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one cell of a constant column.
    pub fn as_constant(&self) -> Option<Cell> {
        match self.cells {
            Cells::Constant(cell, _) => Some(cell),
            _ => None,
        }
    }

    /// The cell of `row`.
    #[inline]
    pub fn cell(&self, row: usize) -> Cell {
        match &self.cells {
            Cells::Rows(cells) => cells[row],
            Cells::Constant(cell, _) => *cell,
            Cells::Offsets(offsets) => match i64::try_from(offsets[row]) {
                Ok(small) => Cell::Int(small),
                Err(_) => Cell::UInt(offsets[row]),
            },
        }
    }

    /// Whether some row holds an array or an object.
    pub(crate) fn has_containers(&self) -> bool {
        let is_container = |cell: &Cell| matches!(cell, Cell::Json(_) | Cell::MsgPack(_));
        match &self.cells {
            Cells::Rows(cells) => cells.iter().any(is_container),
            Cells::Constant(cell, _) => is_container(cell),
            Cells::Offsets(_) => false,
        }
    }

    /// The value of `row`; an untouched cell reads as absent.
    #[inline]
    pub fn value(&self, row: usize) -> Value<'_> {
        self.value_of(self.cell(row))
    }

    /// The value of a cell of this column.
    #[inline]
    pub fn value_of(&self, cell: Cell) -> Value<'_> {
        match cell {
            Cell::Keep | Cell::Missing => Value::Missing,
            Cell::Null => Value::Null,
            Cell::Bool(value) => Value::Bool(value),
            Cell::Int(n) => Value::Int(n),
            Cell::UInt(n) => Value::UInt(n),
            Cell::Float(n) => Value::Float(n),
            Cell::Time(nanos) => Value::Time(nanos),
            Cell::Text(span) => Value::Text(self.bytes(span)),
            Cell::Number(span) => Value::Number(self.bytes(span)),
            Cell::Json(span) => Value::Json(self.bytes(span)),
            Cell::MsgPack(span) => Value::MsgPack(self.bytes(span)),
        }
    }

    /// The bytes of a span of this column.
    #[inline]
    pub fn bytes(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        &self.buffers[span.buffer as usize][start..start + span.len as usize]
    }

    /// The buffers that cells point into.
    pub fn buffers(&self) -> &Arc<[Bytes]> {
        &self.buffers
    }

    /// This column with the touched cells of `edit` laid over it. Both have the same number of rows.
    pub(crate) fn overlaid(&self, edit: &Self) -> Self {
        if let Some(cell) = edit.as_constant()
            && cell != Cell::Keep
        {
            return edit.clone();
        }
        let shared = Arc::ptr_eq(&self.buffers, &edit.buffers);
        let base = if shared { 0 } else { self.buffers.len() as u32 };
        let cells = (0..self.len())
            .map(|row| match edit.cell(row) {
                Cell::Keep => self.cell(row),
                cell => cell.rebased(base),
            })
            .collect();
        let buffers = if shared || edit.buffers.is_empty() {
            self.buffers.clone()
        } else {
            self.buffers
                .iter()
                .chain(edit.buffers.iter())
                .cloned()
                .collect()
        };
        Self::new(cells, buffers)
    }

    /// This column with the cells of some rows replaced by cells that carry no span.
    pub(crate) fn with_cells(&self, rows: impl Iterator<Item = usize>, cell: Cell) -> Self {
        debug_assert!(cell.span().is_none());
        let mut cells: Vec<Cell> = (0..self.len()).map(|row| self.cell(row)).collect();
        for row in rows {
            cells[row] = cell;
        }
        Self::new(cells, self.buffers.clone())
    }
}

/// The empty buffer list, shared.
fn no_buffers() -> Arc<[Bytes]> {
    Arc::new([])
}

/// Builds a column row by row; rows that are not set stay [`Cell::Keep`].
#[derive(Debug)]
pub struct ColumnBuilder {
    cells: Vec<Cell>,
    buffers: Arc<[Bytes]>,
    own: Vec<u8>,
    /// Whether cells may point into `own`, be it at empty text.
    owns: bool,
}

impl ColumnBuilder {
    /// A builder for `len` rows whose cells may point into their own text only.
    pub fn new(len: usize) -> Self {
        Self::over(len, no_buffers())
    }

    /// A builder for `len` rows whose cells may point into `buffers` as well, with the same numbering.
    pub fn over(len: usize, buffers: Arc<[Bytes]>) -> Self {
        Self {
            cells: vec![Cell::Keep; len],
            buffers,
            own: Vec::new(),
            owns: false,
        }
    }

    /// Sets `row` to a cell whose span, if it has one, points into the shared buffers or came from [`Self::append`].
    #[inline]
    pub fn set(&mut self, row: usize, cell: Cell) {
        self.cells[row] = cell;
    }

    /// Sets `row` to a copy of `text`.
    pub fn set_text(&mut self, row: usize, text: &[u8]) {
        let span = self.append(|out| out.extend_from_slice(text));
        self.cells[row] = Cell::Text(span);
    }

    /// Sets `row` to a copy of any value.
    pub fn set_value(&mut self, row: usize, value: Value<'_>) {
        let mut copy = |bytes: &[u8]| self.append(|out| out.extend_from_slice(bytes));
        self.cells[row] = match value {
            Value::Missing => Cell::Missing,
            Value::Null => Cell::Null,
            Value::Bool(value) => Cell::Bool(value),
            Value::Int(n) => Cell::Int(n),
            Value::UInt(n) => Cell::UInt(n),
            Value::Float(n) => Cell::Float(n),
            Value::Time(nanos) => Cell::Time(nanos),
            Value::Text(text) => Cell::Text(copy(text)),
            Value::Number(text) => Cell::Number(copy(text)),
            Value::Json(text) => Cell::Json(copy(text)),
            Value::MsgPack(bytes) => Cell::MsgPack(copy(bytes)),
        };
    }

    /// Appends bytes to the builder's own text and gives their span, for use in a cell.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.own.len();
        self.owns = true;
        write(&mut self.own);
        // A span cannot name more. The engine fails the events of the batch then.
        let is_small = self.own.len() <= u32::MAX as usize;
        assert!(is_small, "a column has at most 4 GiB of text");
        Span {
            buffer: self.buffers.len() as u32,
            start: start as u32,
            len: (self.own.len() - start) as u32,
        }
    }

    /// The cell of `row` as set so far.
    pub fn cell(&self, row: usize) -> Cell {
        self.cells[row]
    }

    /// Whether no row was set.
    pub fn is_untouched(&self) -> bool {
        self.cells.iter().all(|cell| *cell == Cell::Keep)
    }

    /// The finished column.
    pub fn finish(self) -> Column {
        if !self.owns {
            return Column::new(self.cells, self.buffers);
        }
        let own = Bytes::from(self.own);
        let buffers = self.buffers.iter().cloned().chain([own]).collect();
        Column::new(self.cells, buffers)
    }
}
