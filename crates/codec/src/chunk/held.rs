//! Lines and records that are not whole yet.

use std::ops::Range;

use crate::resume::Check;

use super::assembler::Origin;
use super::window::Window;

/// A line, or a part of one, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'t> {
    /// Its text without terminator, decoded where it was not in UTF-8.
    pub(super) text: &'t [u8],
    /// Offset of the text in the stream, where it stands in the window just as it is.
    pub(super) at: Option<u64>,
    /// Offset of the line.
    pub(super) start: u64,
    /// Bytes of the line, terminator included.
    pub(super) source: u64,
    pub(super) is_cut: bool,
    /// Something was replaced by U+FFFD.
    pub(super) replaced: bool,
    pub(super) origin: Option<Origin>,
    /// The check of `start`, where it cannot be made any more.
    pub(super) check: Option<Check>,
}

/// A record, or a line of several pieces, that waits for what follows.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) text: HeldText,
    pub(super) start: u64,
    pub(super) source: u64,
    pub(super) is_cut: bool,
    pub(super) replaced: bool,
    pub(super) origin: Option<Origin>,
    pub(super) check: Option<Check>,
    lines: usize,
}

#[derive(Debug)]
pub(super) enum HeldText {
    /// A range of the stream that stays in the window.
    InWindow(Range<u64>),
    Owned(Vec<u8>),
}

/// What bounds a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of its text.
    pub(super) bytes_max: usize,
    pub(super) lines_max: usize,
}

impl Limits {
    /// As much of `text` as fits behind `len` bytes: one byte more than the limit shows that it was longer, and whether a
    /// character ends at the limit.
    pub(super) fn fitting<'t>(&self, len: usize, text: &'t [u8]) -> &'t [u8] {
        &text[..text.len().min((self.bytes_max + 1).saturating_sub(len))]
    }
}

impl Held {
    /// A record that begins with `piece`, which may stay where it is or is copied.
    pub(super) fn new(piece: &Piece<'_>, in_place: bool, limits: &Limits) -> Self {
        let text = match piece.at {
            Some(at) if in_place && piece.text.len() <= limits.bytes_max => {
                HeldText::InWindow(at..at + piece.text.len() as u64)
            }
            _ => HeldText::Owned(limits.fitting(0, piece.text).to_vec()),
        };
        Self {
            text,
            start: piece.start,
            source: piece.source,
            is_cut: piece.is_cut || piece.text.len() > limits.bytes_max + 1,
            replaced: piece.replaced,
            origin: piece.origin,
            check: piece.check,
            lines: 1,
        }
    }

    /// Adds a part of the same line.
    pub(super) fn join(&mut self, piece: &Piece<'_>, limits: &Limits, window: &Window) {
        self.count(piece);
        self.push(piece.text, limits, window);
    }

    /// Adds a line.
    pub(super) fn append(
        &mut self,
        piece: &Piece<'_>,
        in_place: bool,
        limits: &Limits,
        window: &Window,
    ) {
        self.count(piece);
        self.lines += 1;
        if self.lines > limits.lines_max {
            self.is_cut = true;
            self.own(limits, window);
            return;
        }
        if let HeldText::InWindow(range) = &mut self.text
            && in_place
            && piece.at == Some(range.end + 1)
        {
            range.end += 1 + piece.text.len() as u64;
            if range.end - range.start > limits.bytes_max as u64 {
                self.own(limits, window);
            }
            return;
        }
        self.push(b"\n", limits, window);
        self.push(piece.text, limits, window);
    }

    fn push(&mut self, text: &[u8], limits: &Limits, window: &Window) {
        let own = self.own(limits, window);
        let fitting = limits.fitting(own.len(), text);
        own.extend_from_slice(fitting);
        self.is_cut |= fitting.len() < text.len();
    }

    /// Copies the text, unless that was done.
    pub(super) fn own(&mut self, limits: &Limits, window: &Window) -> &mut Vec<u8> {
        if let HeldText::InWindow(range) = &self.text {
            let index = |offset: u64| (offset - window.start()) as usize;
            let text = &window.bytes()[index(range.start)..index(range.end)];
            self.text = HeldText::Owned(limits.fitting(0, text).to_vec());
        }
        match &mut self.text {
            HeldText::Owned(text) => text,
            HeldText::InWindow(_) => unreachable!("it was copied right before"),
        }
    }

    /// Whether it has more text than a record may have.
    pub(super) fn is_too_long(&self, limits: &Limits) -> bool {
        let len = match &self.text {
            HeldText::InWindow(range) => (range.end - range.start) as usize,
            HeldText::Owned(text) => text.len(),
        };
        self.is_cut || len > limits.bytes_max
    }

    /// Keeps as little memory as the text needs.
    pub(super) fn shrink(&mut self) {
        if let HeldText::Owned(text) = &mut self.text {
            text.shrink_to_fit();
        }
    }

    /// Makes the check of its start, before the bytes in front of it are gone.
    pub(super) fn fix_check(&mut self, window: &Window) -> Check {
        *self
            .check
            .get_or_insert_with(|| window.check((self.start - window.start()) as usize))
    }

    /// Where its text starts, if that has to stay in the window.
    pub(super) fn pinned(&self) -> Option<u64> {
        match &self.text {
            HeldText::InWindow(range) => Some(range.start),
            HeldText::Owned(_) => None,
        }
    }

    fn count(&mut self, piece: &Piece<'_>) {
        self.source += piece.source;
        self.is_cut |= piece.is_cut;
        self.replaced |= piece.replaced;
    }
}
