//! Messages that lie in several buffers.
//!
//! A message is divided behind entries, so that each entry, what stands before them and what stands behind them lie in one buffer.
//! Entries that are compressed are divided anywhere.

use std::ops::Range;

use batch::msgpack::{Extent, Head, bare_head};
use bytes::Bytes;

/// A place in buffers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the buffer.
    pub buffer: usize,
    /// The offset in it.
    pub at: usize,
}

impl Position {
    /// The same place: the beginning of a buffer instead of the end of the one before.
    pub(super) fn normal(mut self, buffers: &[Bytes]) -> Self {
        while self.buffer + 1 < buffers.len() && self.at >= buffers[self.buffer].len() {
            self.at -= buffers[self.buffer].len();
            self.buffer += 1;
        }
        self
    }
}

/// The place of an offset in the buffers as if they were one.
pub(super) fn position(buffers: &[Bytes], at: usize) -> Position {
    Position { buffer: 0, at }.normal(buffers)
}

/// How many bytes are in all of them.
pub(super) fn len(buffers: &[Bytes]) -> usize {
    buffers.iter().map(Bytes::len).sum()
}

/// The pieces of a range of buffers as if they were one.
pub fn pieces(buffers: &[Bytes], range: Range<usize>) -> impl Iterator<Item = &[u8]> {
    let mut before = 0;
    buffers.iter().map(move |buffer| {
        let within = |at: usize| at.saturating_sub(before).min(buffer.len());
        let piece = &buffer[within(range.start)..within(range.end)];
        before += buffer.len();
        piece
    })
}

/// Finds where a message may be divided while it comes.
#[derive(Debug, Default)]
pub struct Cuts {
    entries: Option<Entries>,
}

/// Entries of a message that is being read.
#[derive(Debug, Clone, Copy)]
struct Entries {
    /// Where the next one begins.
    next: usize,
    until: Until,
    /// They are no entries, or compressed: they may be divided anywhere.
    is_opaque: bool,
}

#[derive(Debug, Clone, Copy)]
enum Until {
    Count(u64),
    End(usize),
}

impl Cuts {
    /// For what is nothing but entries.
    pub fn of_entries() -> Self {
        Self {
            entries: Some(Entries {
                next: 0,
                until: Until::End(usize::MAX),
                is_opaque: false,
            }),
        }
    }

    /// The last place behind which the bytes may lie in another buffer; none where there is no entry before it. The next bytes
    /// are those behind it.
    pub fn cut(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.entries.is_none() {
            self.entries = Entries::begin(bytes);
        }
        let entries = self.entries.as_mut()?;
        let begin = entries.next;
        entries.advance(bytes);
        let at = entries.next;
        (at > begin).then(|| {
            entries.forget(at);
            at
        })
    }
}

impl Entries {
    /// The entries of a message that begins with these bytes; none where it has none, or they do not begin here.
    fn begin(bytes: &[u8]) -> Option<Self> {
        let (Head::Array(2..), tag) = bare_head(bytes, 0).ok()? else {
            return None;
        };
        let len = Extent::default().advance(&bytes[tag..]).ok()??;
        let (next, until) = match bare_head(bytes, tag + len).ok()? {
            (Head::Array(count), next) => (next, Until::Count(count as u64)),
            (Head::Str(len) | Head::Bin(len), next) => (next, Until::End(next + len)),
            _ => return None,
        };
        let is_packed = matches!(until, Until::End(_));
        // What is compressed does not begin like an entry.
        let is_entry = matches!(bytes.get(next)?, 0x92 | 0xDC | 0xDD);
        Some(Self {
            next,
            until,
            is_opaque: is_packed && !is_entry,
        })
    }

    /// Goes on to the last end of an entry.
    fn advance(&mut self, bytes: &[u8]) {
        while !self.is_opaque && !self.is_over() {
            match Extent::default().advance(&bytes[self.next..]) {
                Ok(Some(len)) => match &mut self.until {
                    Until::End(end) if self.next + len > *end => return,
                    Until::End(_) => self.next += len,
                    Until::Count(left) => {
                        *left -= 1;
                        self.next += len;
                    }
                },
                Ok(None) => return,
                // What is wrong with it shows when it is read.
                Err(_) => self.is_opaque = matches!(self.until, Until::End(_)),
            }
        }
        if let Until::End(end) = self.until
            && self.is_opaque
        {
            self.next = end.min(bytes.len());
        }
    }

    fn is_over(&self) -> bool {
        match self.until {
            Until::Count(left) => left == 0,
            Until::End(end) => self.next >= end,
        }
    }

    fn forget(&mut self, bytes: usize) {
        self.next -= bytes;
        if let Until::End(end) = &mut self.until {
            *end -= bytes;
        }
    }
}
