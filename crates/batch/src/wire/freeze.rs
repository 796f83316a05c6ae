//! Writing: see the layout in the parent module.

use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::regions::{self, Regions};
use super::{
    DOTTED, Frozen, IDS, REENTRY, VERSION_1, VERSION_2, VERSION_3, VERSION_4, kept, reentry, rows,
    series, source, tag,
};
use crate::batch::{Batch, Encoding};
use crate::bitmap::Bitmap;
use crate::cell::{Cell, Span};
use crate::column::{Cells, Column};
use crate::ids::Ids;
use crate::origin::{Origin, Source, Stream};
use crate::reentry::Reentry;
use crate::tree::Node;

/// Where the length of the head stands.
const HEAD_LEN_AT: usize = 4;

/// See [`Batch::freeze`].
pub(super) fn freeze(batch: &Batch) -> Frozen {
    let ids = batch.origin.ids();
    let regions = regions::regions(ids.map(Ids::bases), batch.root());
    let mut writer = Writer {
        out: Vec::with_capacity(512 + 8 * batch.len()),
        origin: &batch.origin,
        regions,
        gaps: Vec::with_capacity(batch.len()),
        lens: Vec::with_capacity(batch.len()),
        runs: Vec::new(),
    };
    let encoding = match batch.encoding {
        Encoding::Text => 0,
        Encoding::Json => 1,
        Encoding::MsgPack => 2,
    };
    let dotted = if batch.dotted { DOTTED } else { 0 };
    let flags = encoding | dotted | if ids.is_some() { IDS } else { 0 };
    let flags = flags | if batch.reentry.is_some() { REENTRY } else { 0 };
    let version = version(batch);
    writer
        .out
        .extend_from_slice(&u16::from(version).to_le_bytes());
    writer.out.extend_from_slice(&flags.to_le_bytes());
    writer.u32(0);
    writer.count(batch.len());
    writer.u64(batch.size as u64);
    writer.u64(batch.received as u64);
    writer.text(&batch.host.name);
    writer.origin();
    writer.bitmap(&batch.alive);
    writer.bitmap(&batch.sealed);
    writer.count(batch.drops.len());
    for drops in &batch.drops {
        writer.text(&drops.reason);
        writer.bitmap(&drops.rows);
    }
    writer.lists();
    if let Some(ids) = ids {
        writer.ids(ids, batch.len());
    }
    if let Some(reentry) = &batch.reentry {
        writer.reentry(reentry);
    }
    writer.node(batch.root());
    let mut head = writer.out;
    let len = (head.len() as u32).to_le_bytes();
    head[HEAD_LEN_AT..HEAD_LEN_AT + len.len()].copy_from_slice(&len);
    Frozen {
        version,
        head,
        documents: writer.regions.documents,
    }
}

/// The earliest version that can say all of it.
fn version(batch: &Batch) -> u8 {
    match batch.reentry.as_deref() {
        Some(Reentry::OutputProcessor { .. }) => return VERSION_4,
        Some(_) => return VERSION_3,
        None => {}
    }
    let origin = &batch.origin;
    let is_old = |source: &Source| matches!(source, Source::File { .. } | Source::Unnamed);
    let mut streams = origin.streams();
    match origin.ids().is_none() && streams.all(|(_, stream)| is_old(&stream.source)) {
        true => VERSION_1,
        false => VERSION_2,
    }
}

struct Writer<'a> {
    out: Vec<u8>,
    origin: &'a Origin,
    regions: Regions<'a>,
    /// Used again for each series, to spare allocations.
    gaps: Vec<i64>,
    lens: Vec<i64>,
    /// Runs of spans in one buffer: how many, the buffer, where the first begins.
    runs: Vec<[u32; 3]>,
}

impl Writer<'_> {
    fn u32(&mut self, n: u32) {
        self.out.extend_from_slice(&n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.out.extend_from_slice(&n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        self.u32(n as u32);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    fn bitmap(&mut self, set: &Bitmap) {
        if set.is_full() {
            self.out.push(rows::ALL);
        } else if set.is_empty() {
            self.out.push(rows::NONE);
        } else {
            self.out.push(rows::SOME);
            set.words().iter().for_each(|&word| self.u64(word));
        }
    }

    fn origin(&mut self) {
        let (starts, ends) = (self.origin.starts(), self.origin.ends());
        let (streams, runs) = streams(self.origin);
        self.count(streams.len());
        for stream in streams {
            self.out.extend_from_slice(&stream.id.to_le_bytes());
            self.source(&stream.source);
        }
        self.count(runs.len());
        self.gaps.clear();
        for StreamRun { rows, stream } in runs {
            self.count(rows.start);
            self.u32(stream);
            let (starts, ends) = (&starts[rows.clone()], &ends[rows]);
            self.u64(starts.first().copied().unwrap_or(0));
            let gaps = starts.iter().skip(1).zip(ends);
            self.gaps
                .extend(gaps.map(|(start, before)| start.wrapping_sub(*before) as i64));
        }
        self.lens.clear();
        let both = starts.iter().zip(ends);
        self.lens
            .extend(both.map(|(start, end)| end.wrapping_sub(*start) as i64));
        series::write(&mut self.out, &self.gaps);
        series::write(&mut self.out, &self.lens);
    }

    fn source(&mut self, what: &Source) {
        match what {
            Source::Unnamed => self.out.push(source::UNNAMED),
            Source::File { path } => {
                self.out.push(source::FILE);
                self.text(path);
            }
            Source::Connection { peer, listener } => {
                self.out.push(source::CONNECTION);
                self.text(peer);
                self.text(listener);
            }
            Source::Topic { name, partition } => {
                self.out.push(source::TOPIC);
                self.text(name);
                self.u32(*partition);
            }
            Source::Generated => self.out.push(source::GENERATED),
        }
    }

    fn reentry(&mut self, place: &Reentry) {
        match place {
            Reentry::Start => self.out.push(reentry::START),
            Reentry::Processor { index, name } => {
                self.out.push(reentry::PROCESSOR);
                self.u32(*index);
                self.text(name);
            }
            Reentry::Output { name } => {
                self.out.push(reentry::OUTPUT);
                self.text(name);
            }
            Reentry::OutputProcessor {
                output,
                index,
                name,
            } => {
                self.out.push(reentry::OUTPUT_PROCESSOR);
                self.text(output);
                self.u32(*index);
                self.text(name);
            }
        }
    }

    fn lists(&mut self) {
        let Self { out, regions, .. } = self;
        let mut u32 = |n: usize| out.extend_from_slice(&(n as u32).to_le_bytes());
        u32(regions.documents.len());
        for region in &regions.documents {
            out.extend_from_slice(&(region.len() as u64).to_le_bytes());
        }
        let mut u32 = |n: usize| out.extend_from_slice(&(n as u32).to_le_bytes());
        u32(regions.lists.len());
        for list in &regions.lists {
            u32(list.len());
            list.iter().for_each(|&region| u32(region as usize));
        }
    }

    fn ids(&mut self, ids: &Ids, len: usize) {
        self.column(ids.bases());
        let part = |row| ids.part(row).map_or(0, |index| i64::from(index) + 1);
        let parts: Vec<i64> = (0..len).map(part).collect();
        series::write(&mut self.out, &parts);
    }

    fn node(&mut self, node: &Node) {
        self.text(&node.key);
        self.count(node.children.len());
        match &node.own {
            Some(own) => self.column(own),
            None => self.out.push(kept::NONE),
        }
        for child in &node.children {
            self.node(child);
        }
    }

    fn column(&mut self, column: &Column) {
        let list = self.regions.list(column);
        match column.cells() {
            Cells::Constant(cell, _) => {
                self.out.push(kept::CONSTANT);
                self.u32(list);
                self.out.push(tag_of(cell));
                self.number(cell);
                if let Some(span) = cell.span() {
                    let start = self.regions.places(column).start(span, 0);
                    self.u32(span.buffer);
                    self.u32(start as u32);
                    self.u32(span.len);
                }
            }
            Cells::Offsets(starts) if Arc::ptr_eq(starts, self.origin.starts()) => {
                self.out.push(kept::STARTS);
            }
            Cells::Offsets(_) => {
                let cells: Vec<Cell> = (0..column.len()).map(|row| column.cell(row)).collect();
                self.rows(column, list, &cells);
            }
            Cells::Rows(cells) => self.rows(column, list, cells),
        }
    }

    fn rows(&mut self, column: &Column, list: u32, cells: &[Cell]) {
        self.out.push(kept::ROWS);
        self.u32(list);
        let first = cells.first().map_or(tag::KEEP, tag_of);
        let uniform = cells.iter().all(|cell| tag_of(cell) == first);
        if uniform {
            self.out.push(first);
        } else {
            self.out.push(tag::MIXED);
            self.out.extend(cells.iter().map(tag_of));
        }
        if !uniform || (tag::INT..tag::TEXT).contains(&first) {
            cells.iter().for_each(|cell| self.number(cell));
        }
        if !uniform || first >= tag::TEXT {
            self.spans(column, cells.iter().filter_map(|cell| cell.span()));
        }
    }

    /// Appends the number of a cell that has one.
    fn number(&mut self, cell: &Cell) {
        match *cell {
            Cell::Int(n) | Cell::Time(n) => self.u64(n as u64),
            Cell::UInt(n) => self.u64(n),
            Cell::Float(n) => self.u64(n.to_bits()),
            _ => {}
        }
    }

    fn spans(&mut self, column: &Column, spans: impl Iterator<Item = Span>) {
        let places = self.regions.places(column);
        let (runs, gaps, lens) = (&mut self.runs, &mut self.gaps, &mut self.lens);
        runs.clear();
        gaps.clear();
        lens.clear();
        let mut end = 0;
        for span in spans {
            let start = match runs.last_mut() {
                Some([rows, buffer, _]) if *buffer == span.buffer => {
                    *rows += 1;
                    let start = places.start(span, end);
                    gaps.push(start as i64 - end as i64);
                    start
                }
                _ => {
                    let start = places.start(span, 0);
                    runs.push([1, span.buffer, start as u32]);
                    start
                }
            };
            lens.push(i64::from(span.len));
            end = start + u64::from(span.len);
        }
        self.out
            .extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for n in self.runs.as_flattened() {
            self.out.extend_from_slice(&n.to_le_bytes());
        }
        series::write(&mut self.out, &self.gaps);
        series::write(&mut self.out, &self.lens);
    }
}

/// Rows from one stream.
struct StreamRun {
    rows: Range<usize>,
    stream: u32,
}

/// The streams, each once, and the runs of rows from one of them.
fn streams(origin: &Origin) -> (Vec<&Arc<Stream>>, Vec<StreamRun>) {
    let mut streams = Vec::new();
    let mut known: HashMap<usize, u32, FixedState> = HashMap::default();
    let runs = origin.streams().map(|(rows, stream)| {
        let fresh = streams.len() as u32;
        let number = *known.entry(Arc::as_ptr(stream).addr()).or_insert(fresh);
        if number == fresh {
            streams.push(stream);
        }
        StreamRun {
            rows,
            stream: number,
        }
    });
    let runs = runs.collect();
    (streams, runs)
}

#[inline]
fn tag_of(cell: &Cell) -> u8 {
    match cell {
        Cell::Keep => tag::KEEP,
        Cell::Missing => tag::MISSING,
        Cell::Null => tag::NULL,
        Cell::Bool(false) => tag::FALSE,
        Cell::Bool(true) => tag::TRUE,
        Cell::Int(_) => tag::INT,
        Cell::UInt(_) => tag::UINT,
        Cell::Float(_) => tag::FLOAT,
        Cell::Time(_) => tag::TIME,
        Cell::Text(_) => tag::TEXT,
        Cell::Number(_) => tag::NUMBER,
        Cell::Json(_) => tag::JSON,
        Cell::MsgPack(_) => tag::MSGPACK,
    }
}
