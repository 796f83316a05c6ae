//! Records whose lines have to be looked at one by one: those of several lines, and those of container logs.
//!
//! Lines go through up to four steps, as soon as they are whole: decoding (where they are not in UTF-8), taking the
//! container's fields off, joining the parts of a line that the container cut, joining the lines of a record. Each of a
//! container's two streams has a *lane* of its own for the last two steps.
//!
//! # Invariants
//! - The text of a record stands in the window where its lines lie next to each other, with a line feed between them;
//!   otherwise it is copied to the side.
//! - A lane keeps nothing between two records, so that whoever resumes at the start of one gets the same records.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::charset;
use crate::container::{self, ContainerFormat};
use crate::decoder::Settings;
use crate::multiline::Multiline;
use crate::resume::{Check, Resume, Skip};

use super::held::{Held, HeldText, Limits, Piece};
use super::window::{SPACE_MIN, Window};
use super::{Chunk, LineFormat, LongLine};

pub(crate) use crate::container::Origin;

/// The records of a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) list: Vec<Record>,
    /// Texts that do not stand in the chunk as they are.
    pub(crate) side: Bytes,
    /// Bytes of a byte order mark.
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
struct Lane {
    /// Parts of a line.
    line: Option<Held>,
    /// Lines of a record.
    record: Option<Held>,
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
    multiline: Option<Arc<Multiline>>,
    container: Option<ContainerFormat>,
    limits: Limits,
    /// Offset behind the last line that was looked at.
    scanned: u64,
    /// Offset up to which there is no further terminator.
    searched: u64,
    lanes: [Lane; 2],
    records: Vec<Record>,
    side: Vec<u8>,
    blank: u64,
    skip: Skip,
    skipped: u64,
    scratch: Vec<u8>,
}

impl Assembler {
    pub(super) fn new(settings: &Settings, resume: &Resume) -> Self {
        let multiline = settings.multiline.clone();
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
        }
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

    /// Takes the line whose text stands at `text` in the window and which has `source` bytes.
    fn line(&mut self, window: &Window, text: Range<usize>, source: usize, format: LineFormat) {
        let piece = Piece {
            text: &window.bytes()[text.clone()],
            at: Some(window.start() + text.start as u64),
            start: self.scanned,
            source: source as u64,
            is_cut: false,
            replaced: false,
            origin: None,
            check: None,
        };
        self.decode(window, piece, format);
        self.scanned += source as u64;
    }

    /// Passes over a byte order mark, cuts what is too long, and decodes.
    fn decode(&mut self, window: &Window, mut piece: Piece<'_>, format: LineFormat) {
        if piece.start == 0 {
            let mark = charset::mark_len(piece.text, format.charset);
            if mark > 0 {
                piece.check = Some(Check::of(&piece.text[..mark]));
                piece.text = &piece.text[mark..];
                piece.at = piece.at.map(|at| at + mark as u64);
                piece.start += mark as u64;
                piece.source -= mark as u64;
                self.blank += mark as u64;
            }
            if piece.source == 0 {
                return;
            }
        }
        let line_max = self.line_max();
        piece.is_cut |= piece.text.len() > line_max;
        let Some(charset) = format.charset else {
            // One byte more shows whether a character ends at the limit.
            piece.text = &piece.text[..piece.text.len().min(line_max + 1)];
            return self.decoded(window, piece, format);
        };
        if piece.is_cut {
            let even = line_max & !1;
            piece.text = &piece.text[..piece.text.len().min(even)];
        }
        let (text, replaced) = charset::decode(charset, piece.text, piece.is_cut);
        if let Cow::Owned(_) = text {
            piece.at = None;
        }
        let piece = Piece {
            text: text.as_bytes(),
            replaced,
            ..piece
        };
        self.decoded(window, piece, format);
    }

    fn decoded(&mut self, window: &Window, piece: Piece<'_>, format: LineFormat) {
        let in_place = format.terminator.is_plain_newline();
        match self.container {
            None => self.whole_line(window, 0, piece, in_place),
            Some(container) => self.container_line(window, piece, container),
        }
    }

    /// Takes a line that a container wrote.
    fn container_line(
        &mut self,
        window: &Window,
        mut piece: Piece<'_>,
        container: ContainerFormat,
    ) {
        let Some(line) = container::parse(container, piece.text) else {
            if piece.start < self.skip.other {
                self.skipped += piece.source;
                return;
            }
            piece.origin = Some(Origin::Other);
            piece.text = without_return(piece.text);
            return self.give(&piece);
        };
        let lane = usize::from(line.is_stderr);
        if piece.start < [self.skip.stdout, self.skip.stderr][lane] {
            self.skipped += piece.source;
            return;
        }
        piece.origin = Some(line.origin());
        if !line.is_escaped {
            piece.at = piece.at.map(|at| at + line.text.start as u64);
            piece.text = &piece.text[line.text];
            return self.content(window, lane, piece, line.is_partial);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        batch::json::unescape(&piece.text[line.text], &mut scratch);
        let content = Piece {
            text: &scratch,
            at: None,
            ..piece
        };
        self.content(window, lane, content, line.is_partial);
        self.scratch = scratch;
    }

    /// Takes what a container wrote: a line, or a part of one.
    fn content(&mut self, window: &Window, lane: usize, mut piece: Piece<'_>, is_partial: bool) {
        let held = match self.lanes[lane].line.take() {
            None if !is_partial => {
                piece.text = without_return(piece.text);
                return self.whole_line(window, lane, piece, false);
            }
            None => Held::new(&piece, false, &self.limits),
            Some(mut held) => {
                held.join(&piece, &self.limits, window);
                held
            }
        };
        if is_partial {
            self.lanes[lane].line = Some(held);
        } else {
            self.joined_line(window, lane, &held);
        }
    }

    /// Takes a line whose parts were joined.
    fn joined_line(&mut self, window: &Window, lane: usize, held: &Held) {
        let HeldText::Owned(text) = &held.text else {
            unreachable!("parts of lines are copied")
        };
        let piece = Piece {
            text: without_return(text),
            at: None,
            start: held.start,
            source: held.source,
            is_cut: held.is_cut,
            replaced: held.replaced,
            origin: held.origin,
            check: held.check,
        };
        self.whole_line(window, lane, piece, false);
    }

    /// Takes a line without what the container added: it is a record, or belongs to one.
    fn whole_line(&mut self, window: &Window, lane: usize, piece: Piece<'_>, in_place: bool) {
        let Some(multiline) = &self.multiline else {
            return self.give(&piece);
        };
        let record = self.lanes[lane].record.take();
        // No more than is kept of every line, however it was read.
        let seen = &piece.text[..piece.text.len().min(self.limits.bytes_max)];
        let step = multiline.step(seen, record.is_some());
        let record = match record {
            Some(record) if step.begins => {
                self.give_held(&record);
                None
            }
            record => record,
        };
        let record = match record {
            None if step.ends => return self.give(&piece),
            None => Held::new(&piece, in_place, &self.limits),
            Some(mut record) => {
                record.append(&piece, in_place, &self.limits, window);
                record
            }
        };
        if step.ends {
            self.give_held(&record);
        } else {
            self.lanes[lane].record = Some(record);
        }
    }

    /// Gives a line as a record.
    fn give(&mut self, piece: &Piece<'_>) {
        let (at, len, in_side) = match piece.at {
            Some(at) => (at, piece.text.len(), false),
            None => self.copy_aside(piece.text),
        };
        self.records.push(Record {
            at,
            len,
            in_side,
            is_cut: piece.is_cut,
            replaced: piece.replaced,
            start: piece.start,
            end: piece.start + piece.source,
            origin: piece.origin,
        });
    }

    fn give_held(&mut self, held: &Held) {
        let (at, len, in_side) = match &held.text {
            HeldText::InWindow(range) => (range.start, (range.end - range.start) as usize, false),
            HeldText::Owned(text) => self.copy_aside(text),
        };
        self.records.push(Record {
            at,
            len,
            in_side,
            is_cut: held.is_cut,
            replaced: held.replaced,
            start: held.start,
            end: held.start + held.source,
            origin: held.origin,
        });
    }

    fn copy_aside(&mut self, text: &[u8]) -> (u64, usize, bool) {
        let text = self.limits.fitting(0, text);
        let at = self.side.len() as u64;
        self.side.extend_from_slice(text);
        (at, text.len(), true)
    }
}

fn without_return(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\r").unwrap_or(text)
}
