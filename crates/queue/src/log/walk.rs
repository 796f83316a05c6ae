//! Goes through the blocks of one segment, from header to header.
//!
//! Invariant: every byte from the place where the walk begins to its end is in exactly one step, or is padding of zeros
//! between the last block of a group and the next page.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use disk::{PAGE, StoredFile, Window, is_zero};
use memchr::memmem::Finder;

use super::LogPosition;
use super::format::{BLOCK_HEADER, BLOCK_MAGIC, BlockHeader, Flaw};

/// Blocks of up to this size are found by reading on; to the header behind a larger one the walk jumps.
pub(super) const JUMP: u64 = 256 * 1024;

/// What comes next in a segment.
#[derive(Debug)]
pub(super) enum NextBlock {
    /// The header of a block whose payload lies within the segment. The payload was not looked at.
    Block { offset: u64, header: BlockHeader },
    /// No block can be read here.
    Damage {
        range: Range<u64>,
        reason: &'static str,
        /// Whether there is nothing to keep of it.
        is_zero: bool,
        /// A header that is whole, but whose payload is cut off.
        cut: Option<BlockHeader>,
        /// Written by a later version, which is this.
        newer: Option<u32>,
    },
    /// Nothing but zeros up to the end.
    Free(Range<u64>),
    /// There is no more.
    End,
}

/// Why there is no block at a place.
#[derive(Debug, Clone, Copy, Default)]
struct Trouble {
    reason: &'static str,
    cut: Option<BlockHeader>,
    newer: Option<u32>,
}

enum Spot {
    Block(BlockHeader),
    Padding(u64),
    Trouble(Trouble),
    End,
}

/// A place in a segment.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) window: Window,
    pub(super) number: u64,
    pub(super) offset: u64,
    /// How much is read when a header is wanted.
    ahead: usize,
}

impl Walk {
    /// At the first block of a segment, with windows of at most so many bytes.
    pub(super) fn new(capacity: usize, number: u64) -> Self {
        Self {
            window: Window::new(capacity),
            number,
            offset: PAGE as u64,
            ahead: 2 * PAGE,
        }
    }

    /// Goes to the first block of another segment.
    pub(super) fn enter(&mut self, number: u64) {
        self.window.clear();
        self.number = number;
        self.offset = PAGE as u64;
    }

    /// What comes next before `end`. After an error the walk stands where it stood.
    pub(super) fn step(&mut self, file: &dyn StoredFile, end: u64) -> io::Result<NextBlock> {
        loop {
            match self.look(file, end)? {
                Spot::End => return Ok(NextBlock::End),
                Spot::Padding(next) => self.offset = next,
                Spot::Trouble(trouble) => return self.pass(file, end, trouble),
                Spot::Block(header) => {
                    let offset = self.offset;
                    self.offset += header.length();
                    let jumps = header.length() > JUMP;
                    self.ahead = if jumps { PAGE } else { self.window.capacity() };
                    return Ok(NextBlock::Block { offset, header });
                }
            }
        }
    }

    /// The payload of a block to which the walk does not jump, read along with its neighbours.
    pub(super) fn payload(
        &mut self,
        file: &dyn StoredFile,
        offset: u64,
        header: &BlockHeader,
        end: u64,
    ) -> io::Result<Option<Bytes>> {
        let length = header.length() as usize;
        if header.length() > JUMP || length + PAGE > self.window.capacity() {
            return Ok(None);
        }
        let block = self.window.share(file, offset, length, self.ahead, end)?;
        // A file that was cut shorter meanwhile is found out when the payload is loaded.
        Ok((block.len() == length).then(|| block.slice(BLOCK_HEADER..)))
    }

    fn place(&self, offset: u64) -> LogPosition {
        LogPosition {
            segment: self.number,
            offset,
        }
    }

    fn look(&mut self, file: &dyn StoredFile, end: u64) -> io::Result<Spot> {
        let page = PAGE as u64;
        let (offset, place) = (self.offset, self.place(self.offset));
        if offset >= end {
            return Ok(Spot::End);
        }
        let bytes = self
            .window
            .get(file, offset, BLOCK_HEADER, self.ahead, end)?;
        if bytes.is_empty() {
            return Ok(Spot::End);
        }
        let flaw = match BlockHeader::decode(bytes, place) {
            Ok(header) if offset + header.length() <= end => return Ok(Spot::Block(header)),
            Ok(header) => {
                return Ok(Spot::Trouble(Trouble {
                    reason: "the segment ends within a block",
                    cut: Some(header),
                    newer: None,
                }));
            }
            Err(flaw) => flaw,
        };
        let next = offset.next_multiple_of(page).min(end);
        if next > offset && bytes[0] == 0 {
            let rest = (next - offset) as usize;
            let rest = self.window.get(file, offset, rest, self.ahead, end)?;
            if is_zero(rest) {
                return Ok(Spot::Padding(next));
            }
        }
        let newer = match flaw {
            Flaw::Newer(version) => Some(version),
            _ => None,
        };
        Ok(Spot::Trouble(Trouble {
            reason: flaw.reason(),
            cut: None,
            newer,
        }))
    }

    /// Goes on to the next block, or to the end of what was written.
    fn pass(&mut self, file: &dyn StoredFile, end: u64, trouble: Trouble) -> io::Result<NextBlock> {
        let from = self.offset;
        let (next, data_end) = self.search(file, from, end)?;
        if data_end == from && next.is_none() {
            self.offset = end;
            return Ok(NextBlock::Free(from..end));
        }
        let until = next.unwrap_or_else(|| data_end.next_multiple_of(PAGE as u64).min(end));
        let is_zero = data_end == from;
        let reason = if is_zero {
            "nothing but zeros"
        } else {
            trouble.reason
        };
        self.offset = until;
        Ok(NextBlock::Damage {
            range: from..until,
            reason,
            is_zero,
            cut: trouble.cut,
            newer: trouble.newer,
        })
    }

    /// The next place behind `from` where a block begins, and the end of the last byte before it that is not zero.
    fn search(
        &mut self,
        file: &dyn StoredFile,
        from: u64,
        end: u64,
    ) -> io::Result<(Option<u64>, u64)> {
        let finder = Finder::new(&BLOCK_MAGIC);
        let (mut at, mut data_end) = (from, from);
        loop {
            let (found, data) = self.window.find(file, &finder, at, end)?;
            data_end = data_end.max(data);
            let Some(offset) = found else {
                return Ok((None, data_end));
            };
            let place = self.place(offset);
            let bytes = self
                .window
                .get(file, offset, BLOCK_HEADER, self.ahead, end)?;
            let header = BlockHeader::decode(bytes, place);
            if offset > from && header.is_ok_and(|header| offset + header.length() <= end) {
                return Ok((found, data_end));
            }
            at = offset + 1;
        }
    }
}
