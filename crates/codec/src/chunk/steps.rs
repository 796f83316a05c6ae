//! From a line to a record: decoding (where lines are not in UTF-8), taking the container's fields off, joining the parts of
//! a line that the container cut, joining the lines of a record.

use std::borrow::Cow;
use std::ops::Range;

use crate::charset;
use crate::container::{self, ContainerFormat, Origin};
use crate::resume::Check;

use super::LineFormat;
use super::assembler::{Assembler, Record};
use super::held::{Held, HeldText, Piece};
use super::window::Window;

impl Assembler {
    /// Takes the line whose text stands at `text` in the window and which has `source` bytes.
    pub(super) fn line(
        &mut self,
        window: &Window,
        text: Range<usize>,
        source: usize,
        format: LineFormat,
    ) {
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
    pub(super) fn decode(&mut self, window: &Window, mut piece: Piece<'_>, format: LineFormat) {
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
        let attrs = line.attrs.clone();
        let attrs = attrs.map(|attrs| self.attrs_number(&piece.text[attrs]));
        piece.origin = Some(line.origin(attrs));
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
    pub(super) fn joined_line(&mut self, window: &Window, lane: usize, held: &Held) {
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
        let ends_too_long = multiline.ends_too_long();
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
        if step.ends || (ends_too_long && record.is_too_long(&self.limits)) {
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

    pub(super) fn give_held(&mut self, held: &Held) {
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
