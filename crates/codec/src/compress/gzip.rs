//! One member of gzip, RFC 1952: a header, deflate blocks, the CRC-32 and the length of the content.

use crc32fast::Hasher;

use super::checkpoint::Inside;
use super::raw::{Inflate, Outcome};
use super::{Event, Progress};

/// How a member starts.
pub(super) const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// The only method of compression there is.
const DEFLATE: u8 = 8;

const HEADER_BYTES: usize = 10;
const TRAILER_BYTES: usize = 8;

/// Flags of the header: what follows its fixed part.
const HAS_SUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// Reads members, one after the other.
pub(super) struct Member {
    part: MemberState,
    /// The flags of the header whose part was not read yet.
    flags: u8,
    /// Bytes of a part of fixed size, until it is complete.
    held: [u8; HEADER_BYTES],
    held_bytes: usize,
    /// Of the header first, then of the content.
    crc: Hasher,
    /// Length of the content.
    length: u64,
    /// The last byte that was inflated, which the next block may share.
    last_byte: u8,
    inflate: Inflate,
}

/// Where in a member.
enum MemberState {
    Fixed,
    ExtraLength,
    Extra {
        left: usize,
    },
    /// Name or comment, which end with a zero.
    Text,
    Sum,
    Blocks,
    Trailer,
}

impl Member {
    /// Behind the magic number of a member; none without memory.
    pub(super) fn new() -> Option<Self> {
        let mut member = Self {
            part: MemberState::Fixed,
            flags: 0,
            held: [0; HEADER_BYTES],
            held_bytes: 0,
            crc: Hasher::new(),
            length: 0,
            last_byte: 0,
            inflate: Inflate::new()?,
        };
        member.start();
        Some(member)
    }

    /// Goes behind the magic number of another member.
    pub(super) fn start(&mut self) {
        self.part = MemberState::Fixed;
        self.held[..MAGIC.len()].copy_from_slice(&MAGIC);
        self.held_bytes = MAGIC.len();
        self.crc = Hasher::new();
        self.length = 0;
        self.inflate.reset();
    }

    /// Goes to a boundary of blocks; none without memory.
    pub(super) fn resume(at: &Inside) -> Option<Self> {
        let mut member = Self::new()?;
        member.part = MemberState::Blocks;
        member.held_bytes = 0;
        member.crc = Hasher::new_with_initial_len(at.crc, at.length);
        member.length = at.length;
        member
            .inflate
            .resume(at.bits, at.value, &at.window)
            .then_some(member)
    }

    /// Reads on within the member. Stops at the next boundary of blocks where `to_boundary` asks for it.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8], to_boundary: bool) -> Progress {
        if let MemberState::Blocks = self.part {
            return self.blocks(input, output, to_boundary);
        }
        let mut rest = input;
        let result = match self.part {
            MemberState::Trailer => self.trailer(&mut rest),
            _ => self.header(&mut rest),
        };
        Progress {
            consumed: input.len() - rest.len(),
            produced: 0,
            event: result.unwrap_or_else(|reason| Event::Failed(reason.to_owned())),
        }
    }

    /// What it takes to go on from this boundary, with so many bits left over.
    pub(super) fn capture(&self, bits: u8) -> Inside {
        Inside {
            bits,
            value: self
                .last_byte
                .checked_shr(8 - u32::from(bits))
                .unwrap_or_default(),
            crc: self.sum(),
            length: self.length,
            window: self.inflate.window(),
        }
    }

    fn blocks(&mut self, input: &[u8], output: &mut [u8], to_boundary: bool) -> Progress {
        let done = self.inflate.step(input, output, to_boundary);
        self.crc.update(&output[..done.produced]);
        self.length += done.produced as u64;
        if let Some(last) = done.consumed.checked_sub(1) {
            self.last_byte = input[last];
        }
        let event = match done.outcome {
            Outcome::Going if done.consumed == 0 && done.produced == 0 => Event::Stuck,
            Outcome::Going | Outcome::Boundary { bits: None } => Event::Going,
            Outcome::Boundary { bits: Some(bits) } => Event::Boundary { bits },
            Outcome::End => {
                self.part = MemberState::Trailer;
                Event::Going
            }
            Outcome::Failed(reason) => Event::Failed(reason),
        };
        Progress {
            consumed: done.consumed,
            produced: done.produced,
            event,
        }
    }

    /// Reads parts of the header until one is not complete.
    fn header(&mut self, rest: &mut &[u8]) -> Result<Event, &'static str> {
        loop {
            let is_complete = match self.part {
                MemberState::Fixed => self.fixed(rest)?,
                MemberState::ExtraLength => {
                    if let Some(length) = self.hold::<2>(rest) {
                        self.crc.update(&length);
                        let left = u16::from_le_bytes(length).into();
                        self.part = MemberState::Extra { left };
                        continue;
                    }
                    false
                }
                MemberState::Extra { left } => {
                    let left = left - self.pass(rest, left);
                    self.part = MemberState::Extra { left };
                    left == 0
                }
                MemberState::Text => {
                    let end = memchr::memchr(0, rest);
                    self.pass(rest, end.map_or(usize::MAX, |end| end + 1));
                    end.is_some()
                }
                MemberState::Sum => match self.hold(rest) {
                    Some(told) if u16::from_le_bytes(told) != self.sum() as u16 => {
                        return Err("header crc mismatch");
                    }
                    told => told.is_some(),
                },
                MemberState::Blocks | MemberState::Trailer => return Ok(Event::Going),
            };
            if !is_complete {
                return Ok(Event::Stuck);
            }
            self.next_part();
        }
    }

    /// Reads the part that every header has; whether it is complete.
    fn fixed(&mut self, rest: &mut &[u8]) -> Result<bool, &'static str> {
        let Some(fixed) = self.hold::<HEADER_BYTES>(rest) else {
            return Ok(false);
        };
        let [_, _, method, flags, ..] = fixed;
        if method != DEFLATE {
            return Err("unknown compression method");
        }
        if flags & RESERVED != 0 {
            return Err("unknown header flags set");
        }
        self.crc.update(&fixed);
        self.flags = flags;
        Ok(true)
    }

    /// Goes to the next part of the header that is there, or behind it.
    fn next_part(&mut self) {
        let parts = [
            (HAS_EXTRA, MemberState::ExtraLength),
            (HAS_NAME, MemberState::Text),
            (HAS_COMMENT, MemberState::Text),
            (HAS_SUM, MemberState::Sum),
        ];
        for (flag, part) in parts {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                self.part = part;
                return;
            }
        }
        self.part = MemberState::Blocks;
        self.crc = Hasher::new();
    }

    fn trailer(&mut self, rest: &mut &[u8]) -> Result<Event, &'static str> {
        let Some(told) = self.hold::<TRAILER_BYTES>(rest) else {
            return Ok(Event::Stuck);
        };
        let (sum, length) = told.split_at(4);
        if sum != self.sum().to_le_bytes() {
            return Err("incorrect data check");
        }
        // The length is told modulo 2^32.
        if length != (self.length as u32).to_le_bytes() {
            return Err("incorrect length check");
        }
        Ok(Event::End)
    }

    fn sum(&self) -> u32 {
        self.crc.clone().finalize()
    }

    /// Collects a part of fixed size; none until it is complete.
    fn hold<const N: usize>(&mut self, rest: &mut &[u8]) -> Option<[u8; N]> {
        let before = self.held_bytes;
        let taken = rest.len().min(N - before);
        self.held[before..before + taken].copy_from_slice(&rest[..taken]);
        *rest = &rest[taken..];
        self.held_bytes += taken;
        if self.held_bytes < N {
            return None;
        }
        self.held_bytes = 0;
        self.held.first_chunk().copied()
    }

    /// Passes over at most so many bytes of the header; how many there were.
    fn pass(&mut self, rest: &mut &[u8], bytes_max: usize) -> usize {
        let (taken, left) = rest.split_at(rest.len().min(bytes_max));
        self.crc.update(taken);
        *rest = left;
        taken.len()
    }
}
