//! Collects what was read into chunks: shared buffers that hold whole records and nothing else.
//!
//! Whoever reads asks for [`Chunker::space`], reads into it and says how much with [`Chunker::advance`]; [`Chunker::take`]
//! gives the whole records so far. What follows the last of them, the *tail*, is copied to the front of the next
//! buffer, so that no record ever spans buffers. Nothing else is copied.
//!
//! # Invariants
//! - Chunks follow each other without a gap: each starts at the offset where the one before it ended.
//! - A line longer than the limit is given once its end is known, as a chunk of its own that holds its first bytes;
//!   the rest is read over. So its offsets, and its event id, do not depend on how it was read.
//!
//! # Limits
//! A buffer grows, by doubling, to the limit of a record and 64 KiB. While it grows, no buffer is held: somebody who
//! waits for memory never holds any.

use batch::{PooledBuffer, msgpack};
use bytes::Bytes;

/// How a stream is cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Lines, each ended by a line feed. The last one may lack it.
    Lines,
    /// MessagePack values, one after the other.
    MsgPack,
}

/// Whole records that follow each other in a stream.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The records.
    pub bytes: Bytes,
    /// Offset of the first byte in its stream.
    pub start: u64,
    /// Offset behind the last record. Larger than `start` and the length of `bytes` together where the last record
    /// was cut.
    pub end: u64,
    /// How far a decoder is, and what it knows: see [`crate::Decoder::next_batch`].
    pub(crate) position: usize,
    pub(crate) is_utf8: Option<bool>,
}

impl Chunk {
    /// Records that lie in `bytes`, at `start` in their stream.
    pub fn new(bytes: Bytes, start: u64) -> Self {
        let end = start + bytes.len() as u64;
        Self::cut(bytes, start, end)
    }

    /// Records of which the last has more bytes than those at hand, up to `end`.
    fn cut(bytes: Bytes, start: u64, end: u64) -> Self {
        Self {
            bytes,
            start,
            end,
            position: 0,
            is_utf8: None,
        }
    }
}

/// Room that a buffer must have at least for the next read, and for reading over the rest of a long line.
const SPACE_MIN: usize = 64 * 1024;

/// Collects what was read into chunks.
#[derive(Debug)]
pub struct Chunker {
    framing: Framing,
    /// The longest record.
    record_max: usize,
    buffer: Option<PooledBuffer>,
    /// Bytes of the buffer that were read.
    filled: usize,
    /// Bytes of the buffer that are whole records.
    complete: usize,
    /// Offset of the buffer's first byte in the stream.
    start: u64,
    /// What goes to the front of the next buffer.
    carry: Vec<u8>,
    /// Size of the next buffer; 0 for the ordinary size.
    wanted: usize,
    /// The buffer holds the first bytes of a line that is too long, and so many of its bytes were read over.
    skipped: Option<u64>,
    /// A line that was too long.
    cut: Option<Chunk>,
    broken: bool,
}

impl Chunker {
    /// A chunker at the start of a stream, for records of at most `record_max` bytes.
    pub fn new(framing: Framing, record_max: usize) -> Self {
        Self {
            framing,
            record_max,
            buffer: None,
            filled: 0,
            complete: 0,
            start: 0,
            carry: Vec::new(),
            wanted: 0,
            skipped: None,
            cut: None,
            broken: false,
        }
    }

    /// How large a buffer it needs, at least, before there is [`Self::space`]; none when it has one.
    pub fn needs(&self) -> Option<usize> {
        match self.buffer {
            Some(_) => None,
            None if self.carry.is_empty() => Some(self.wanted),
            None => Some(self.wanted.max(self.carry.len() + SPACE_MIN)),
        }
    }

    /// Takes the buffer that it needs.
    ///
    /// # Panics
    /// The buffer is smaller than [`Self::needs`] says.
    pub fn give(&mut self, mut buffer: PooledBuffer) {
        let carry = std::mem::take(&mut self.carry);
        buffer[..carry.len()].copy_from_slice(&carry);
        self.buffer = Some(buffer);
        (self.filled, self.complete, self.wanted) = (0, 0, 0);
        self.advance(carry.len());
        // The memory of the tail is used again, unless it is that of a long line.
        self.carry = carry;
        self.carry.clear();
        self.carry.shrink_to(SPACE_MIN);
    }

    /// Where to read to. Empty while it needs a buffer, and when it is full.
    pub fn space(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer[self.filled..],
            None => &mut [],
        }
    }

    /// Says that so many bytes were read into [`Self::space`].
    pub fn advance(&mut self, read: usize) {
        let Some(buffer) = &self.buffer else { return };
        let (from, to) = (self.filled, self.filled + read);
        if self.skipped.is_some() {
            return self.skip(from, to);
        }
        self.filled = to;
        match self.framing {
            Framing::Lines => {
                if let Some(last) = memchr::memrchr(b'\n', &buffer[from..to]) {
                    self.complete = from + last + 1;
                }
            }
            Framing::MsgPack => self.walk_values(),
        }
        if self.complete == 0 && self.filled == self.buffer_len() {
            self.overflow();
        }
    }

    /// Whether there is something to take.
    pub fn is_ready(&self) -> bool {
        self.complete > 0 || self.cut.is_some()
    }

    /// Whether what there is must be taken before more is read.
    pub fn is_full(&self) -> bool {
        self.cut.is_some() || (self.complete > 0 && self.filled == self.buffer_len())
    }

    /// Whether nothing that follows can be read: the decoder will say why.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Offset in the stream behind everything that was taken: where a later run would go on.
    pub fn position(&self) -> u64 {
        self.cut.as_ref().map_or(self.start, |cut| cut.start)
    }

    /// The whole records so far; none when there are none.
    pub fn take(&mut self) -> Option<Chunk> {
        if let Some(cut) = self.cut.take() {
            return Some(cut);
        }
        if self.complete == 0 {
            return None;
        }
        let buffer = self.buffer.take()?;
        self.carry
            .extend_from_slice(&buffer[self.complete..self.filled]);
        let chunk = Chunk::new(buffer.freeze(self.complete), self.start);
        self.start = chunk.end;
        (self.filled, self.complete) = (0, 0);
        Some(chunk)
    }

    /// What is left at the end of the stream: first as [`Self::take`], then the last record, whole or not.
    pub fn finish(&mut self) -> Option<Chunk> {
        if let Some(chunk) = self.take() {
            return Some(chunk);
        }
        let skipped = self.skipped.take();
        let bytes = match self.buffer.take() {
            Some(buffer) if self.filled > 0 => buffer.freeze(self.filled),
            _ if !self.carry.is_empty() => Bytes::from(std::mem::take(&mut self.carry)),
            _ => return None,
        };
        let end = self.start + bytes.len() as u64 + skipped.unwrap_or(0);
        let chunk = Chunk::cut(bytes, self.start, end);
        (self.filled, self.complete, self.start) = (0, 0, end);
        Some(chunk)
    }

    fn buffer_len(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    /// Moves `complete` over the whole values that were read.
    fn walk_values(&mut self) {
        let Some(buffer) = &self.buffer else { return };
        let bytes = &buffer[..self.filled];
        while self.complete < self.filled && !self.broken {
            match msgpack::value_len(bytes, self.complete) {
                Ok(len) => self.complete += len,
                Err(error) => {
                    self.broken = error.kind != msgpack::MsgPackErrorKind::Truncated;
                    break;
                }
            }
        }
    }

    /// The buffer is full and holds no whole record: takes a larger one, or gives the record up.
    fn overflow(&mut self) {
        // One byte more than the limit may be a carriage return, one more shows that the line is longer for sure.
        let kept = self.record_max + 2;
        let limit = kept + SPACE_MIN;
        if self.filled < limit {
            let Some(buffer) = self.buffer.take() else {
                return;
            };
            self.carry.extend_from_slice(&buffer[..self.filled]);
            self.wanted = (2 * self.filled).min(limit);
            self.filled = 0;
        } else if self.framing == Framing::MsgPack {
            self.broken = true;
        } else {
            self.skipped = Some((self.filled - kept) as u64);
            self.filled = kept;
        }
    }

    /// Looks for the end of a line that is too long in what was read.
    fn skip(&mut self, from: usize, to: usize) {
        let (Some(skipped), Some(buffer)) = (&mut self.skipped, &self.buffer) else {
            return;
        };
        let Some(newline) = memchr::memchr(b'\n', &buffer[from..to]) else {
            *skipped += (to - from) as u64;
            return;
        };
        let end = self.start + from as u64 + *skipped + newline as u64 + 1;
        self.carry
            .extend_from_slice(&buffer[from + newline + 1..to]);
        if let Some(buffer) = self.buffer.take() {
            self.cut = Some(Chunk::cut(buffer.freeze(from), self.start, end));
        }
        self.skipped = None;
        (self.filled, self.complete, self.start) = (0, 0, end);
    }
}
