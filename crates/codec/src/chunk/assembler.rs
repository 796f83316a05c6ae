//! Records whose lines have to be looked at one by one: those of several lines, and those of container logs.
//!
//! Lines go through the [`super::steps`] as soon as they are whole; here is what waits in between, and what becomes of
//! the records. Each of a container's two streams has a *lane* of its own.
//!
//! # Invariants
//! - The text of a record stands in the window where its lines lie next to each other, with a line feed between them;
//!   otherwise it is copied to the side.
//! - A lane keeps nothing between two records, so that whoever resumes at the start of one gets the same records.

use std::sync::Arc;

use bytes::Bytes;

use crate::container::ContainerFormat;
use crate::multiline::Multiline;
use crate::resume::{Resume, Skip};
use crate::settings::Settings;

use super::held::{Held, Limits, Piece};
use super::window::{SPACE_MIN, Window};
use super::{Chunk, LineFormat, LongLine};

pub(crate) use crate::container::Origin;

/// The records of a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) list: Vec<Record>,
    /// Texts that do not stand in the chunk as they are.
    pub(crate) side: Bytes,
    /// What containers say of records, see [`Origin`].
    pub(crate) attrs: Vec<Arc<[u8]>>,
    /// Bytes that belong to no record: a byte order mark, and what separates JSON documents.
    pub(crate) blank: u64,
}

/// A record of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Where its text starts: in the chunk's bytes or in the side. While the chunk is being made, an offset of the stream.
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) in_side: bool,
    pub(crate) is_cut: bool,
    /// Something was replaced by U+FFFD.
    pub(crate) replaced: bool,
    /// Offset of its first line.
    pub(crate) start: u64,
    /// `start` and the bytes of all its lines: where other lines stand in between, this is not where the last one ends.
    pub(crate) end: u64,
    /// What the container says.
    pub(crate) origin: Option<Origin>,
}

/// What of one of a container's streams is not whole. Without containers, the first lane is for all lines.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Parts of a line.
    pub(super) line: Option<Held>,
    /// Lines of a record.
    pub(super) record: Option<Held>,
}

impl Lane {
    fn held(&self) -> impl Iterator<Item = &Held> {
        self.record.iter().chain(&self.line)
    }

    /// Where what it holds starts.
    fn start(&self) -> Option<u64> {
        self.held().map(|held| held.start).next()
    }
}

/// Makes records of lines.
#[derive(Debug)]
pub(super) struct Assembler {
    pub(super) multiline: Option<Arc<Multiline>>,
    pub(super) container: Option<ContainerFormat>,
    pub(super) limits: Limits,
    /// Offset behind the last line that was looked at.
    pub(super) scanned: u64,
    /// Offset up to which there is no further terminator.
    searched: u64,
    pub(super) lanes: [Lane; 2],
    pub(super) records: Vec<Record>,
    pub(super) side: Vec<u8>,
    /// Attributes of records since the last chunk, and of those that are not whole.
    attrs: Vec<Arc<[u8]>>,
    pub(super) blank: u64,
    pub(super) skip: Skip,
    pub(super) skipped: u64,
    pub(super) scratch: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(settings: &Settings, resume: &Resume) -> Self {
        let of_csv = |csv| Arc::new(Multiline::of_csv(csv));
        let multiline = settings.multiline.clone();
        let multiline = multiline.or(settings.csv.as_ref().map(of_csv));
        let lines_max = multiline
            .as_ref()
            .map_or(1, |multiline| multiline.lines_max());
        Self {
            multiline,
            container: settings.container,
            limits: Limits {
                bytes_max: settings.record_max,
                lines_max,
            },
            scanned: resume.offset,
            searched: resume.offset,
            lanes: Default::default(),
            records: Vec::new(),
            side: Vec::new(),
            attrs: Vec::new(),
            blank: 0,
            skip: resume.skip.unwrap_or_default(),
            skipped: 0,
            scratch: Vec::new(),
        }
    }

    /// Bytes of a line at most: a container's line is longer than what it holds.
    pub(super) fn line_max(&self) -> usize {
        match self.container {
            Some(_) => 2 * self.limits.bytes_max + SPACE_MIN,
            None => self.limits.bytes_max,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.records.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.lanes.iter().any(|lane| lane.start().is_some())
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Looks at the whole lines of the window.
    pub(super) fn scan(&mut self, window: &Window, format: LineFormat) {
        let (bytes, start) = (window.bytes(), window.start());
        let terminator = format.terminator;
        while let Some(at) = terminator.find(bytes, (self.searched - start) as usize, start) {
            let line = (self.scanned - start) as usize..at;
            let is_line = self.container.is_none();
            let text = if is_line {
                let text = &bytes[line.clone()];
                line.start..line.start + terminator.without_return(text)
            } else {
                line.clone()
            };
            let source = at + terminator.len() - line.start;
            self.line(window, text, source, format);
            self.searched = self.scanned;
        }
        // The last byte may be half a terminator.
        let half = (terminator.len() - 1) as u64;
        self.searched = (window.end() - half.min(window.end())).max(self.scanned);
    }

    /// Takes a line that was too long for the window and ends `end` bytes behind its start.
    pub(super) fn long_line(
        &mut self,
        window: &Window,
        long: &LongLine,
        end: usize,
        format: LineFormat,
    ) {
        let end = window.start() + end as u64;
        let piece = Piece {
            text: &long.text,
            at: None,
            start: long.start,
            source: end - long.start,
            is_cut: true,
            replaced: false,
            origin: None,
            check: Some(long.check),
        };
        self.decode(window, piece, format);
        (self.scanned, self.searched) = (end, end);
    }

    /// Gives everything that waits, as if nothing followed.
    pub(super) fn complete_all(&mut self, window: &Window) {
        let mut order = [0, 1];
        order.sort_by_key(|lane| self.lanes[*lane].start());
        for lane in order {
            if let Some(line) = self.lanes[lane].line.take() {
                self.joined_line(window, lane, &line);
            }
            if let Some(record) = self.lanes[lane].record.take() {
                self.give_held(&record);
            }
        }
    }

    /// The records so far as a chunk.
    pub(super) fn take(
        &mut self,
        window: &mut Window,
        long: Option<&LongLine>,
        format: LineFormat,
    ) -> Option<Chunk> {
        self.is_ready().then(|| self.chunk(window, long, format))
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(
        &mut self,
        window: &mut Window,
        long: Option<LongLine>,
        format: LineFormat,
    ) -> Option<Chunk> {
        let len = window.bytes().len();
        if let Some(long) = long {
            self.long_line(window, &long, len, format);
            window.forget(len);
        } else if self.scanned < window.end() {
            let from = (self.scanned - window.start()) as usize;
            self.line(window, from..len, len - from, format);
            self.searched = self.scanned;
        }
        self.complete_all(window);
        (self.is_ready() || self.blank > 0).then(|| self.chunk(window, None, format))
    }

    /// Takes what is not needed any more out of the window; whether there was any.
    pub(super) fn forget(&mut self, window: &mut Window) -> bool {
        let kept = self.kept(window);
        let in_window = self.records.iter().any(|record| !record.in_side);
        if kept == 0 || in_window {
            return false;
        }
        self.fix_checks(window);
        window.forget(kept);
        true
    }

    /// Keeps as little memory as what waits needs.
    pub(super) fn release(&mut self) {
        self.scratch = Vec::new();
        for lane in &mut self.lanes {
            for held in lane.record.iter_mut().chain(&mut lane.line) {
                held.shrink();
            }
        }
    }

    /// Takes the lines of a record out of the window, so that its last line may fill it; whether there were any.
    pub(super) fn unpin(&mut self, window: &mut Window) -> bool {
        for lane in &mut self.lanes {
            if let Some(record) = &mut lane.record {
                record.own(&self.limits, window);
            }
        }
        self.forget(window)
    }

    fn chunk(&mut self, window: &mut Window, long: Option<&LongLine>, format: LineFormat) -> Chunk {
        self.fix_checks(window);
        let after = self.resume(window, long);
        let mut list = std::mem::take(&mut self.records);
        let mut in_window = false;
        for record in list.iter_mut().filter(|record| !record.in_side) {
            record.at -= window.start();
            in_window = true;
        }
        let kept = self.kept(window);
        let bytes = if in_window {
            window.cut_off(kept)
        } else {
            window.forget(kept);
            Bytes::new()
        };
        let blank = std::mem::take(&mut self.blank);
        let records = Records {
            attrs: self.take_attrs(),
            side: std::mem::take(&mut self.side).into(),
            blank,
            list,
        };
        let starts = records.list.iter().map(|record| record.start);
        let ends = records.list.iter().map(|record| record.end);
        let source: u64 = records.list.iter().map(|r| r.end - r.start).sum();
        Chunk {
            bytes,
            start: starts.min().unwrap_or(0),
            end: ends.max().unwrap_or(blank),
            source_bytes: source + blank,
            after,
            position: 0,
            is_utf8: None,
            format,
            records: Some(Box::new(records)),
            header: None,
        }
    }

    /// The number of the attributes in this text. A container has the same ones on every line.
    pub(super) fn attrs_number(&mut self, text: &[u8]) -> u32 {
        if self.attrs.last().is_none_or(|last| **last != *text) {
            self.attrs.push(text.into());
        }
        self.attrs.len() as u32 - 1
    }

    /// The attributes so far. Those of records that are not whole are kept, under new numbers.
    fn take_attrs(&mut self) -> Vec<Arc<[u8]>> {
        let all = std::mem::take(&mut self.attrs);
        for lane in &mut self.lanes {
            for held in lane.record.iter_mut().chain(&mut lane.line) {
                if let Some(Origin::Written {
                    attrs: Some(number),
                    ..
                }) = &mut held.origin
                {
                    self.attrs.push(all[*number as usize].clone());
                    *number = self.attrs.len() as u32 - 1;
                }
            }
        }
        all
    }

    /// Where to go on when all records were delivered that are whole.
    fn resume(&mut self, window: &Window, long: Option<&LongLine>) -> Resume {
        let scanned = self.scanned;
        let first = self.lanes.iter_mut().flat_map(|lane| {
            let held = lane.record.as_mut().or(lane.line.as_mut());
            held.map(|held| (held.start, held.fix_check(window)))
        });
        let (offset, check) = first.min_by_key(|(start, _)| *start).unwrap_or_else(|| {
            let check = match long {
                Some(long) => long.check,
                None => window.check((scanned - window.start()) as usize),
            };
            (scanned, check)
        });
        let given = |lane: &Lane, before: u64| lane.start().unwrap_or(scanned).max(before);
        let skip = Skip {
            stdout: given(&self.lanes[0], self.skip.stdout),
            stderr: given(&self.lanes[1], self.skip.stderr),
            other: scanned.max(self.skip.other),
        };
        let is_ahead = skip.stdout.max(skip.stderr).max(skip.other) > offset;
        Resume {
            offset,
            skip: (self.container.is_some() && is_ahead).then_some(skip),
            check,
            big_endian: None,
        }
    }

    /// Where in the window begins what is still needed.
    fn kept(&self, window: &Window) -> usize {
        let pinned = self.lanes.iter().flat_map(Lane::held).map(Held::pinned);
        let kept = pinned.flatten().fold(self.scanned, u64::min);
        // A line that is too long began before the window.
        kept.saturating_sub(window.start()) as usize
    }

    fn fix_checks(&mut self, window: &Window) {
        for lane in &mut self.lanes {
            for held in lane.record.iter_mut().chain(&mut lane.line) {
                held.fix_check(window);
            }
        }
    }
}
