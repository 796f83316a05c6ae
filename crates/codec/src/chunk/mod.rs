//! Collects what was read into chunks: shared buffers that hold whole records and nothing else.
//!
//! | module | holds |
//! | --- | --- |
//! | [`window`] | what was read and not yet given, in a buffer of the pool |
//! | [`assembler`] | records of several lines and container logs: which lines belong together |
//! | [`steps`] | what is done with each of their lines |
//! | [`held`] | what of them is not whole yet |
//! | [`documents`] | JSON documents that are not one per line |
//! | [`counted`] | messages with their length before them, and syslog messages in streams |
//!
//! Whoever reads asks for [`Chunker::space`], reads into it and says how much with [`Chunker::advance`]; [`Chunker::take`]
//! gives the whole records so far. What follows the last of them, the *tail*, is copied to the front of the next
//! buffer, so that no record ever spans buffers. Nothing else is copied, but for the records of the assembler whose parts
//! do not lie next to each other.
//!
//! Records are split here, where bytes are collected, multi-line and container records included, because only the chunker knows
//! for each chunk where a later run resumes ([`Chunk::after`]). A container log with two interleaved streams resumes at one
//! offset, with an offset for each stream up to which its lines were given already ([`crate::Skip`]); positions store
//! all of them.
//!
//! # Invariants
//! - Every byte belongs to one chunk: what the chunks account for ([`Chunk::source_bytes`]), [`Chunker::pending`] and
//!   [`Chunker::skipped`] are together what was read. But for container logs, a chunk starts where the one before it ended.
//! - Where a chunk ends and what is in a record depends on the stream alone, not on how it was read: whoever resumes at
//!   [`Chunk::after`] gets the same records with the same offsets.
//! - A line longer than the limit is given once its end is known, as a chunk of its own that holds its first bytes;
//!   the rest is read over. So its offsets, and its event id, do not depend on how it was read.
//!
//! # Limits
//! A buffer grows, by doubling, to the limit of a record and 64 KiB. While it grows, no buffer is held: somebody who
//! waits for memory never holds any.

mod assembler;
mod counted;
mod documents;
mod held;
mod steps;
mod window;

use std::sync::Arc;

use batch::{Encoding, PooledBuffer, msgpack};
use bytes::Bytes;

use crate::charset;
use crate::csv::{Header, HeaderSlot};
use crate::layout::Layout;
use crate::resume::{Check, Resume};
use crate::settings::Settings;
use crate::terminator::{LineEnding, Terminator};

use assembler::Assembler;
pub(crate) use assembler::{Origin, Record, Records};
use counted::Counted;
use documents::Documents;
use window::{SPACE_MIN, Window};

/// Whole records that follow each other in a stream.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The records.
    pub bytes: Bytes,
    /// Offset of the first record in its stream.
    pub start: u64,
    /// Offset behind the last record. Larger than `start` and the length of `bytes` together where the last record
    /// was cut.
    pub end: u64,
    /// Bytes of the stream that the chunk accounts for: those of its rows, and those that the decoder drops.
    pub source_bytes: u64,
    /// Where to go on once everything up to this chunk was delivered.
    pub after: Resume,
    /// How far a decoder is, and what it knows: see [`crate::Decoder::next_batch`]. Counts bytes, or records where there
    /// are any.
    pub(crate) position: usize,
    pub(crate) is_utf8: Option<bool>,
    pub(crate) format: LineFormat,
    /// The records, where they are not simply the lines of `bytes`.
    pub(crate) records: Option<Box<Records>>,
    /// The header of the stream, where its rows have one.
    pub(crate) header: Option<Arc<HeaderSlot>>,
}

/// How the lines of a stream are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineFormat {
    pub(crate) terminator: Terminator,
    /// The encoding, unless it is UTF-8.
    pub(crate) charset: Option<&'static encoding_rs::Encoding>,
}

impl Chunk {
    /// Records that lie in `bytes`, at `start` in their stream: MessagePack documents, or lines of UTF-8 that end with a
    /// line feed.
    pub fn new(bytes: Bytes, start: u64) -> Self {
        let end = start + bytes.len() as u64;
        let after = Resume {
            offset: end,
            check: Check::of(&bytes),
            ..Resume::default()
        };
        let format = LineFormat {
            terminator: Terminator::new(LineEnding::Lf, None),
            charset: None,
        };
        Self::cut(bytes, start, after, format)
    }

    /// Messages that were received each for itself, such as datagrams: the ranges of `bytes` where they are. In their stream, the
    /// first one is number `first`.
    pub fn of_messages(bytes: Bytes, messages: &[std::ops::Range<usize>], first: u64) -> Self {
        Self::of_numbered(bytes, messages.iter().cloned().zip(first..))
    }

    /// As [`Self::of_messages`], with the number of each message.
    pub fn of_numbered(
        bytes: Bytes,
        messages: impl IntoIterator<Item = (std::ops::Range<usize>, u64)>,
    ) -> Self {
        let record = |(message, number): (std::ops::Range<usize>, u64)| Record {
            at: message.start as u64,
            len: message.len(),
            in_side: false,
            is_cut: false,
            replaced: false,
            start: number,
            end: number.saturating_add(1),
            origin: None,
        };
        let list: Vec<Record> = messages.into_iter().map(record).collect();
        let mut chunk = Self::new(bytes, 0);
        chunk.start = list.first().map_or(0, |record| record.start);
        chunk.end = list.last().map_or(0, |record| record.end);
        chunk.source_bytes = list.len() as u64;
        chunk.records = Some(Box::new(Records {
            list,
            side: Bytes::new(),
            attrs: Default::default(),
            blank: 0,
        }));
        chunk
    }

    /// Where a decoder is at the end.
    pub(crate) fn positions(&self) -> usize {
        match &self.records {
            Some(records) => records.list.len(),
            None => self.bytes.len(),
        }
    }

    /// Records of which the last may have more bytes than those at hand.
    fn cut(bytes: Bytes, start: u64, after: Resume, format: LineFormat) -> Self {
        let end = after.offset;
        Self {
            bytes,
            start,
            end,
            source_bytes: end - start,
            after,
            position: 0,
            is_utf8: None,
            format,
            records: None,
            header: None,
        }
    }
}

/// How a stream is cut into records.
#[derive(Debug)]
enum Framing {
    /// Each line is one. The last one may lack its terminator.
    Lines,
    /// MessagePack values, one after the other.
    MsgPack,
    /// Lines have to be looked at one by one.
    Assembled(Box<Assembler>),
    /// JSON documents, on any number of lines.
    Documents(Box<Documents>),
    /// JSON documents whose layout is not known yet.
    Undecided,
    /// Messages with their length before them; those of syslog may be lines.
    Counted(Counted),
}

/// A line that is too long: its first bytes. Those behind them are read over.
#[derive(Debug)]
struct LongLine {
    text: Vec<u8>,
    start: u64,
    /// The check of `start`.
    check: Check,
}

/// Collects what was read into chunks.
#[derive(Debug)]
pub struct Chunker {
    framing: Framing,
    format: LineFormat,
    /// The order of bytes is not known yet.
    awaits_mark: bool,
    /// Bytes of a line, or of a MessagePack value, that are kept at most.
    line_max: usize,
    window: Window,
    /// Bytes of the window that are whole records.
    complete: usize,
    long: Option<LongLine>,
    /// A line that was too long.
    cut: Option<Chunk>,
    broken: bool,
    /// Where this chunker began.
    origin: u64,
    /// Bytes that chunks accounted for.
    covered: u64,
    after: Resume,
    header: Option<Arc<HeaderSlot>>,
}

impl Chunker {
    /// A chunker at the start of a stream.
    pub fn new(settings: &Settings) -> Self {
        Self::resume(settings, &Resume::default(), &[])
    }

    /// A chunker that goes on where an earlier one said. `tail` are the bytes of the stream right before, those that the
    /// check was made of.
    pub fn resume(settings: &Settings, resume: &Resume, tail: &[u8]) -> Self {
        let set = charset::foreign(settings.charset);
        let charset = match resume.big_endian {
            Some(big_endian) if charset::is_utf16(set) => Some(charset::utf16(big_endian)),
            _ => set,
        };
        let format = LineFormat {
            terminator: Terminator::new(settings.line_ending, charset),
            charset,
        };
        let (framing, line_max) = if settings.encoding == Encoding::MsgPack {
            (Framing::MsgPack, settings.record_max)
        } else if settings.is_counted {
            let counted = Counted::new(
                settings.record_max,
                resume.offset,
                settings.syslog.is_some(),
            );
            (Framing::Counted(counted), settings.record_max)
        } else if settings.is_assembled() {
            let assembler = Assembler::new(settings, resume);
            let line_max = assembler.line_max();
            (Framing::Assembled(Box::new(assembler)), line_max)
        } else if settings.has_layout() && resume.offset == 0 {
            (Framing::Undecided, settings.record_max)
        } else {
            (Framing::Lines, settings.record_max)
        };
        Self {
            framing,
            format,
            awaits_mark: resume.offset == 0 && charset::is_utf16(charset),
            line_max,
            window: Window::new(resume.offset, tail),
            complete: 0,
            long: None,
            cut: None,
            broken: false,
            origin: resume.offset,
            covered: 0,
            after: resume.clone(),
            header: settings.header_slot(),
        }
    }

    /// Says which header the stream has, if that is known: one that goes on in its middle cannot learn it from its first row.
    pub fn set_header(&mut self, header: Option<Arc<Header>>) {
        if let Some(slot) = &self.header {
            // Only the first one counts.
            let _ = slot.set(header);
        }
    }

    /// Says how the JSON documents of the stream are laid out, to a chunker that goes on in its middle and has read nothing: one at
    /// the start finds out by itself.
    pub fn set_layout(&mut self, layout: Layout) {
        let offset = self.window.end();
        match (&self.framing, layout) {
            (Framing::Lines, Layout::Documents) if offset == self.origin => {
                let documents = Documents::new(offset, self.window.before());
                self.framing = Framing::Documents(Box::new(documents));
            }
            _ => {}
        }
    }

    /// How large a buffer it needs, at least, before there is [`Self::space`]; none when it has one.
    pub fn needs(&self) -> Option<usize> {
        self.window.needs()
    }

    /// How large the smallest buffer is that it could do with, to which room for what is read next is to be added; none when it
    /// has one. For streams that are read in small pieces: no chunk should lie in a buffer far larger than itself.
    pub fn least(&self) -> Option<usize> {
        self.window.least()
    }

    /// Bytes that were read and belong to no whole record yet, once what there is was taken.
    pub fn unfinished(&self) -> usize {
        self.window.bytes().len()
    }

    /// Takes the buffer that it needs.
    ///
    /// # Panics
    /// The buffer is smaller than [`Self::least`] says.
    pub fn give(&mut self, buffer: PooledBuffer) {
        self.window.give(buffer);
        self.make_room();
    }

    /// Where to read to. Empty while it needs a buffer, and when it is full.
    pub fn space(&mut self) -> &mut [u8] {
        self.window.space()
    }

    /// Says that so many bytes were read into [`Self::space`].
    pub fn advance(&mut self, read: usize) {
        let from = self.window.bytes().len();
        self.window.advance(read);
        if self.awaits_mark && !self.read_mark() {
            return;
        }
        if matches!(self.framing, Framing::Undecided) {
            self.decide(false);
        } else {
            self.scan(from);
        }
        self.make_room();
    }

    /// Whether there is something to take.
    pub fn is_ready(&self) -> bool {
        self.cut.is_some() || self.has_records()
    }

    /// Whether what there is must be taken before more is read.
    pub fn is_full(&self) -> bool {
        self.cut.is_some() || (self.window.is_full() && self.has_records())
    }

    /// Whether nothing that follows can be read: [`Self::fault`] says why, or the decoder will.
    pub fn is_broken(&self) -> bool {
        self.broken || self.fault().is_some()
    }

    /// Why nothing that follows can be read, where no decoder can know it.
    pub fn fault(&self) -> Option<&str> {
        match &self.framing {
            Framing::Counted(counted) => counted.fault(),
            _ => None,
        }
    }

    /// Bytes that were read and that no chunk accounts for yet.
    pub fn pending(&self) -> u64 {
        self.window.end() - self.origin - self.covered - self.skipped()
    }

    /// Bytes that were read again although the chunks of an earlier run account for them: the lines of [`crate::Skip`].
    pub fn skipped(&self) -> u64 {
        match &self.framing {
            Framing::Assembled(assembler) => assembler.skipped(),
            _ => 0,
        }
    }

    /// Whether whole lines wait for those that may belong to the same record: [`Self::flush`] gives them.
    pub fn has_pending_record(&self) -> bool {
        match &self.framing {
            Framing::Assembled(assembler) => assembler.is_waiting(),
            _ => false,
        }
    }

    /// The whole records so far; none when there are none.
    pub fn take(&mut self) -> Option<Chunk> {
        let big_endian = self.after.big_endian;
        let chunk = if let Some(cut) = self.cut.take() {
            cut
        } else if let Framing::Assembled(assembler) = &mut self.framing {
            assembler.take(&mut self.window, self.long.as_ref(), self.format)?
        } else if let Framing::Documents(documents) = &mut self.framing {
            documents.take(&mut self.window, self.format)?
        } else if let Framing::Counted(counted) = &mut self.framing {
            counted.take(&mut self.window, self.format)?
        } else if self.complete > 0 {
            let at = std::mem::take(&mut self.complete);
            self.cut_off(at)
        } else {
            return None;
        };
        Some(self.given(chunk, big_endian))
    }

    /// Gives records that wait for more lines as if there were none, and everything before them. A last line without its
    /// terminator stays.
    pub fn flush(&mut self) -> Option<Chunk> {
        if let Framing::Assembled(assembler) = &mut self.framing {
            assembler.complete_all(&self.window);
        }
        self.take()
    }

    /// What is left at the end of the stream: first as [`Self::take`], then the last record, whole or not.
    pub fn finish(&mut self) -> Option<Chunk> {
        if matches!(self.framing, Framing::Undecided) {
            self.decide(true);
        }
        if let Some(chunk) = self.take() {
            return Some(chunk);
        }
        let big_endian = self.after.big_endian;
        let chunk = if let Framing::Assembled(assembler) = &mut self.framing {
            assembler.finish(&mut self.window, self.long.take(), self.format)?
        } else if let Framing::Documents(documents) = &mut self.framing {
            documents.finish(&mut self.window, self.format)?
        } else if let Framing::Counted(counted) = &mut self.framing {
            counted.end(&mut self.window);
            counted.take(&mut self.window, self.format)?
        } else if let Some(long) = self.long.take() {
            let rest = self.window.bytes().len();
            self.window.forget(rest);
            let after = self.after_window();
            Chunk::cut(long.text.into(), long.start, after, self.format)
        } else if self.window.bytes().is_empty() {
            return None;
        } else {
            self.cut_off(self.window.bytes().len())
        };
        Some(self.given(chunk, big_endian))
    }

    /// Gives the buffer back, and keeps what is in it in as little memory as it needs. For streams that nothing is read
    /// from for a while.
    pub fn release(&mut self) {
        match &mut self.framing {
            Framing::Assembled(assembler) => {
                assembler.forget(&mut self.window);
                assembler.release();
            }
            Framing::Documents(documents) => {
                documents.forget(&mut self.window);
            }
            _ => {}
        }
        self.window.release();
    }

    fn has_records(&self) -> bool {
        match &self.framing {
            Framing::Assembled(assembler) => assembler.is_ready(),
            Framing::Documents(documents) => documents.is_ready(),
            Framing::Counted(counted) => counted.is_ready(),
            _ => self.complete > 0,
        }
    }

    /// Counts a chunk that is given now.
    fn given(&mut self, mut chunk: Chunk, big_endian: Option<bool>) -> Chunk {
        chunk.after.big_endian = big_endian;
        chunk.header = self.header.clone();
        self.covered += chunk.source_bytes;
        self.after = chunk.after.clone();
        chunk
    }

    /// The first bytes of the window as a chunk.
    fn cut_off(&mut self, at: usize) -> Chunk {
        let start = self.window.start();
        let bytes = self.window.cut_off(at);
        Chunk::cut(bytes, start, self.after_window(), self.format)
    }

    /// Where to go on when everything before the window was delivered.
    fn after_window(&self) -> Resume {
        Resume {
            offset: self.window.start(),
            check: self.window.check(0),
            ..Resume::default()
        }
    }

    /// Looks for the byte order mark that a stream in UTF-16 may start with; whether enough was read for that.
    fn read_mark(&mut self) -> bool {
        let first = self.window.bytes();
        if first.len() < 2 {
            return false;
        }
        self.awaits_mark = false;
        let marked = [false, true]
            .into_iter()
            .find(|big_endian| charset::mark_len(first, Some(charset::utf16(*big_endian))) > 0);
        if let Some(big_endian) = marked {
            let charset = Some(charset::utf16(big_endian));
            self.format.terminator = self.format.terminator.in_charset(charset);
            self.format.charset = charset;
            self.after.big_endian = marked;
        }
        true
    }

    /// Looks for whole records in what was read from `from` on.
    fn scan(&mut self, from: usize) {
        if self.long.is_some() {
            return self.read_over();
        }
        match &mut self.framing {
            Framing::Lines => {
                let terminator = self.format.terminator;
                if let Some(end) =
                    terminator.last_end(self.window.bytes(), from, self.window.start())
                {
                    self.complete = end;
                }
            }
            Framing::MsgPack => self.walk_values(),
            Framing::Assembled(assembler) => assembler.scan(&self.window, self.format),
            Framing::Documents(documents) => documents.scan(&self.window),
            Framing::Undecided => {}
            Framing::Counted(counted) => counted.scan(&mut self.window),
        }
    }

    /// Finds out how JSON documents are laid out, if the first bytes tell; at the end of the stream they always do.
    fn decide(&mut self, is_end: bool) {
        self.framing = match Layout::of(self.window.bytes(), is_end) {
            None => return,
            Some(Layout::Lines) => Framing::Lines,
            Some(Layout::Documents) => Framing::Documents(Box::new(Documents::new(0, &[]))),
        };
        self.scan(0);
    }

    /// Moves `complete` over the whole values that were read.
    fn walk_values(&mut self) {
        let bytes = self.window.bytes();
        while self.complete < bytes.len() && !self.broken {
            match msgpack::value_len(bytes, self.complete) {
                Ok(len) => self.complete += len,
                Err(error) => {
                    self.broken = error.kind != msgpack::MsgPackErrorKind::Truncated;
                    break;
                }
            }
        }
    }

    /// Where the window is full and holds no whole record: takes a larger one, or gives the line up.
    fn make_room(&mut self) {
        if !self.window.is_full() || self.is_ready() {
            return;
        }
        let has_forgotten = match &mut self.framing {
            Framing::Assembled(assembler) => assembler.forget(&mut self.window),
            Framing::Documents(documents) => documents.forget(&mut self.window),
            _ => false,
        };
        if has_forgotten {
            return;
        }
        let kept = self.kept();
        let limit = kept + SPACE_MIN;
        if self.window.bytes().len() < limit {
            self.window.grow(limit);
        } else if matches!(self.framing, Framing::MsgPack) {
            self.broken = true;
        } else if let Framing::Assembled(assembler) = &mut self.framing
            && assembler.unpin(&mut self.window)
        {
            // The lines before this one have moved out of the window.
        } else if let Framing::Documents(documents) = &mut self.framing {
            documents.give_up(&mut self.window, kept);
        } else {
            self.give_up_line();
        }
    }

    /// Bytes that are kept of a line that is too long.
    fn kept(&self) -> usize {
        // Those beyond the limit may be a carriage return, and show that the line is longer for sure. An even number
        // cuts no character of UTF-16 in two.
        (self.line_max + 2 * self.format.terminator.len()).next_multiple_of(2)
    }

    /// Keeps the first bytes of the line that fills the window.
    fn give_up_line(&mut self) {
        let text = self.window.bytes()[..self.kept()].to_vec();
        let (start, check) = (self.window.start(), self.window.check(0));
        self.long = Some(LongLine { text, start, check });
        self.read_over();
        // The buffer was a large one.
        self.window.release();
    }

    /// Looks for the end of a line that is too long in the window.
    fn read_over(&mut self) {
        let Some(long) = &self.long else { return };
        let (bytes, start) = (self.window.bytes(), self.window.start());
        let Some(at) = self.format.terminator.find(bytes, 0, start) else {
            // Half a terminator may be there.
            let is_half = self.format.terminator.len() == 2 && !self.window.end().is_multiple_of(2);
            let passed = bytes.len().saturating_sub(usize::from(is_half));
            return self.window.forget(passed);
        };
        let end = at + self.format.terminator.len();
        if let Framing::Assembled(assembler) = &mut self.framing {
            assembler.long_line(&self.window, long, end, self.format);
            self.long = None;
        } else if let Some(long) = self.long.take() {
            self.window.forget(end);
            let after = self.after_window();
            self.cut = Some(Chunk::cut(long.text.into(), long.start, after, self.format));
        }
        self.scan(0);
    }
}
