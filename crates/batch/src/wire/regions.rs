//! Which parts of a batch's buffers its cells use.
//!
//! Columns share buffers, as lists or one by one; each buffer is looked at once, by its address. The part between the
//! first and the last used byte becomes a region as it lies there. Only where less than half of it is used, the used
//! pieces are copied together.

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

use crate::cell::Span;
use crate::column::{Cells, Column};
use crate::tree::Node;

type Map<K> = HashMap<K, u32, FixedState>;

/// The regions of a batch, and where its spans lie in them.
#[derive(Default)]
pub(super) struct Regions<'a> {
    buffers: Vec<Buffer<'a>>,
    buffers_by_address: Map<(usize, usize)>,
    /// For each list of buffers that columns share, the numbers of its buffers.
    sources: Vec<Vec<u32>>,
    sources_by_address: Map<usize>,
    /// For each of `sources`, its number in `lists`.
    list_of_source: Vec<u32>,
    /// Region numbers plus 1; 0 is the empty buffer.
    pub lists: Vec<Vec<u32>>,
    pub documents: Vec<Bytes>,
}

struct Buffer<'a> {
    bytes: &'a Bytes,
    /// The used range; empty where `high` is 0.
    low: u64,
    high: u64,
    /// Bytes that one column uses, the one at hand and the one that uses most.
    used: u64,
    used_most: u64,
    /// The used pieces, ascending and apart from each other, where they are copied together.
    pieces: Option<Vec<Piece>>,
}

#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    /// Where the piece begins in its region.
    at: u64,
}

/// Spans in a row that lie in one buffer.
#[derive(Default)]
struct Run {
    buffer: u32,
    low: u64,
    high: u64,
    used: u64,
}

/// The regions that the column of ids and the columns at and below `root` need.
pub(super) fn regions<'a>(ids: Option<&'a Column>, root: &'a Node) -> Regions<'a> {
    let mut regions = Regions::default();
    ids.into_iter().for_each(|ids| regions.look_at(ids));
    each_column(root, &mut |column| regions.look_at(column));
    if regions.buffers.iter().any(Buffer::may_be_sparse) {
        ids.into_iter().for_each(|ids| regions.collect_pieces(ids));
        each_column(root, &mut |column| regions.collect_pieces(column));
    }
    regions.place();
    regions
}

fn each_column<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Column)) {
    if let Some(own) = &node.own {
        visit(own);
    }
    for child in &node.children {
        each_column(child, visit);
    }
}

fn each_span(column: &Column, mut visit: impl FnMut(Span)) {
    match column.cells() {
        Cells::Rows(cells) => cells.iter().filter_map(|cell| cell.span()).for_each(visit),
        Cells::Constant(cell, _) => {
            if let Some(span) = cell.span() {
                visit(span);
            }
        }
        Cells::Offsets(_) => {}
    }
}

impl<'a> Regions<'a> {
    /// Notes which bytes a column uses.
    fn look_at(&mut self, column: &'a Column) {
        let source = self.source(column.buffers());
        let mut run = Run::default();
        each_span(column, |span| {
            // Empty text uses nothing, wherever it is said to lie.
            if span.len == 0 {
                return;
            }
            let (start, end) = range(span);
            if run.used == 0 || run.buffer != span.buffer {
                self.note(source, &run);
                run = Run {
                    buffer: span.buffer,
                    low: start,
                    high: end,
                    used: 0,
                };
            }
            run.low = run.low.min(start);
            run.high = run.high.max(end);
            run.used += u64::from(span.len);
        });
        self.note(source, &run);
        for &buffer in &self.sources[source] {
            let buffer = &mut self.buffers[buffer as usize];
            buffer.used_most = buffer.used_most.max(std::mem::take(&mut buffer.used));
        }
    }

    fn note(&mut self, source: usize, run: &Run) {
        if run.used > 0 {
            let number = self.sources[source][run.buffer as usize];
            let buffer = &mut self.buffers[number as usize];
            buffer.low = buffer.low.min(run.low);
            buffer.high = buffer.high.max(run.high);
            buffer.used += run.used;
        }
    }

    /// The number of a list of buffers.
    fn source(&mut self, list: &'a Arc<[Bytes]>) -> usize {
        let fresh = self.sources.len() as u32;
        let number = *self
            .sources_by_address
            .entry(address(list))
            .or_insert(fresh);
        if number == fresh {
            let numbers = list.iter().map(|bytes| self.buffer(bytes)).collect();
            self.sources.push(numbers);
        }
        number as usize
    }

    fn buffer(&mut self, bytes: &'a Bytes) -> u32 {
        let fresh = self.buffers.len() as u32;
        let address = (bytes.as_ptr().addr(), bytes.len());
        let number = *self.buffers_by_address.entry(address).or_insert(fresh);
        if number == fresh {
            self.buffers.push(Buffer {
                bytes,
                low: u64::MAX,
                high: 0,
                used: 0,
                used_most: 0,
                pieces: None,
            });
        }
        number
    }

    /// Collects the used pieces of buffers that may be used sparsely.
    fn collect_pieces(&mut self, column: &'a Column) {
        let source = self.source(column.buffers());
        let (sources, buffers) = (&self.sources[source], &mut self.buffers);
        each_span(column, |span| {
            let buffer = &mut buffers[sources[span.buffer as usize] as usize];
            if span.len > 0 && buffer.may_be_sparse() {
                let (start, end) = range(span);
                let pieces = buffer.pieces.get_or_insert_default();
                pieces.push(Piece { start, end, at: 0 });
            }
        });
    }

    /// Makes the regions, and the lists of them.
    fn place(&mut self) {
        let mut numbers = Vec::with_capacity(self.buffers.len());
        for buffer in &mut self.buffers {
            numbers.push(match buffer.region() {
                Some(region) => {
                    self.documents.push(region);
                    self.documents.len() as u32
                }
                None => 0,
            });
        }
        // Lists that come out the same are one, so that freezing what was thawed gives the same bytes.
        let mut known: Map<Vec<u32>> = Map::default();
        for source in &self.sources {
            let list: Vec<u32> = source.iter().map(|&at| numbers[at as usize]).collect();
            let fresh = self.lists.len() as u32;
            let number = *known.entry_ref(&list).or_insert(fresh);
            if number == fresh {
                self.lists.push(list);
            }
            self.list_of_source.push(number);
        }
    }

    /// The number in `lists` of a column's buffers.
    pub fn list(&self, column: &Column) -> u32 {
        self.list_of_source[self.source_of(column)]
    }

    /// Where a column's spans lie.
    pub fn places(&self, column: &Column) -> Places<'_> {
        Places {
            buffers: &self.buffers,
            numbers: &self.sources[self.source_of(column)],
        }
    }

    fn source_of(&self, column: &Column) -> usize {
        let known = self.sources_by_address.get(&address(column.buffers()));
        *known.expect("every column was looked at") as usize
    }
}

fn address(list: &Arc<[Bytes]>) -> usize {
    Arc::as_ptr(list).addr()
}

fn range(span: Span) -> (u64, u64) {
    let start = u64::from(span.start);
    (start, start + u64::from(span.len))
}

impl Buffer<'_> {
    fn may_be_sparse(&self) -> bool {
        self.used_most < self.high.saturating_sub(self.low).div_ceil(2)
    }

    /// The bytes to keep; none where no byte is used.
    fn region(&mut self) -> Option<Bytes> {
        if self.high == 0 {
            return None;
        }
        if let Some(pieces) = self.pieces.take() {
            let (pieces, used) = joined(pieces);
            if used < (self.high - self.low).div_ceil(2) {
                let mut together = Vec::with_capacity(used as usize);
                for piece in &pieces {
                    together
                        .extend_from_slice(&self.bytes[piece.start as usize..piece.end as usize]);
                }
                self.pieces = Some(pieces);
                return Some(together.into());
            }
        }
        Some(self.bytes.slice(self.low as usize..self.high as usize))
    }

    /// Where a range lies in the region; none for an empty one outside of it.
    #[inline]
    fn find(&self, start: u64, end: u64) -> Option<u64> {
        if let Some(pieces) = &self.pieces {
            let after = pieces.partition_point(|piece| piece.start <= start);
            let piece = pieces.get(after.checked_sub(1)?)?;
            return (end <= piece.end).then(|| piece.at + (start - piece.start));
        }
        (self.low <= start && end <= self.high).then(|| start - self.low)
    }
}

/// The pieces in order, those that touch made one, and how long they are together.
fn joined(mut pieces: Vec<Piece>) -> (Vec<Piece>, u64) {
    pieces.sort_unstable_by_key(|piece| piece.start);
    let mut joined: Vec<Piece> = Vec::new();
    let mut used = 0;
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if piece.start <= last.end => {
                used += piece.end.saturating_sub(last.end);
                last.end = last.end.max(piece.end);
            }
            _ => {
                joined.push(Piece { at: used, ..piece });
                used += piece.end - piece.start;
            }
        }
    }
    (joined, used)
}

/// Where the spans of one column lie in the regions.
pub(super) struct Places<'a> {
    buffers: &'a [Buffer<'a>],
    numbers: &'a [u32],
}

impl Places<'_> {
    /// Where a span begins in its region. Empty text that lies outside goes to `otherwise`.
    #[inline]
    pub fn start(&self, span: Span, otherwise: u64) -> u64 {
        let (start, end) = range(span);
        self.buffers[self.numbers[span.buffer as usize] as usize]
            .find(start, end)
            .unwrap_or(otherwise)
    }
}
