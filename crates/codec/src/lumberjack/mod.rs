//! Lumberjack, the protocol of Beats and of older forwarders, as bytes.
//!
//! # Layout
//! All numbers are big-endian. A frame begins with its version, `1` or `2`, and its type:
//!
//! | frame | behind the two bytes |
//! | --- | --- |
//! | `W` | u32: how many events follow until the next window |
//! | `J` | u32 sequence, u32 length, a JSON document |
//! | `D` | u32 sequence, u32 pairs; for each pair u32 length, key, u32 length, value |
//! | `C` | u32 length, a zlib stream of whole frames |
//! | `A` | u32 sequence: only from the receiver, an acknowledgement ([`acknowledgement`]) |
//!
//! Versions may be mixed; a receiver answers in that of the window. Sequences go up by one within a window. They begin with 1 in
//! clients of version 2; those of version 1 count on from window to window, so that any beginning is taken.
//!
//! # Parts
//! [`Scanner`] finds where a frame ends, for whoever reads a connection, and [`Frame`] what is in it. [`Window`] checks that
//! events are those that were announced. [`Events`] collects the documents of frames for batches.
//!
//! # Limits
//! [`Limits`]. What is compressed is not compressed again.

mod events;
mod metadata;

use std::ops::Range;

pub use self::events::{Buffers, Events};

/// How many bytes of a frame must be there before its kind and, but for pairs, its length are known.
pub const HEAD_BYTES: usize = 10;

/// What stands before the content of a compressed frame.
pub const COMPRESSED_HEAD_BYTES: usize = 6;

/// The length of a window frame.
pub const WINDOW_BYTES: usize = 6;

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame, its head not counted.
    pub frame_bytes_max: usize,
    /// The most events of a window.
    pub window_events_max: u32,
}

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It does not follow the protocol.
    #[error("{0}")]
    Malformed(String),
    /// It exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// Its document is none.
    #[error("the event with sequence {sequence}: {reason}")]
    Document {
        /// The event's sequence.
        sequence: u32,
        /// What is wrong with it.
        reason: String,
    },
}

/// A frame. Ranges are places in the bytes that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// So many events follow.
    Window {
        /// `b'1'` or `b'2'`.
        version: u8,
        /// How many.
        events: u32,
    },
    /// An event as JSON.
    Json {
        /// Its sequence.
        sequence: u32,
        /// Its document.
        document: Range<usize>,
    },
    /// An event as pairs of keys and values.
    Pairs {
        /// Its sequence.
        sequence: u32,
        /// How many pairs there are.
        count: u32,
        /// The pairs, each with its lengths.
        pairs: Range<usize>,
    },
    /// Compressed frames.
    Compressed(Range<usize>),
}

/// How long a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Whole(usize),
    /// At least so many, which are more than there are: ask again with them.
    AtLeast(usize),
}

/// Finds where a frame ends, from more and more of its bytes. For one frame.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Where the next length of the pairs stands, and how many lengths are left; none before the head is read.
    pairs: Option<(usize, u64)>,
}

impl Scanner {
    /// How long the frame is that these bytes begin with.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn extent(&mut self, bytes: &[u8], limits: Limits) -> Result<Extent, FrameError> {
        let at_least = |needed| Ok(Extent::AtLeast(needed));
        let &[version, kind, ..] = bytes else {
            if let [version] = bytes {
                check_version(*version, bytes)?;
            }
            return at_least(2);
        };
        check_version(version, bytes)?;
        match kind {
            b'W' => Ok(Extent::Whole(WINDOW_BYTES)),
            b'C' | b'J' => {
                let head = match kind {
                    b'C' => COMPRESSED_HEAD_BYTES,
                    _ => HEAD_BYTES,
                };
                let Some(length) = number(bytes, head - 4) else {
                    return at_least(head);
                };
                limits.check_length(length as usize)?;
                Ok(Extent::Whole(head + length as usize))
            }
            b'D' => self.pairs(bytes, limits),
            other => Err(FrameError::Malformed(format!(
                "unknown frame type {}",
                shown(other)
            ))),
        }
    }

    fn pairs(&mut self, bytes: &[u8], limits: Limits) -> Result<Extent, FrameError> {
        let (mut at, mut left) = match self.pairs {
            Some(progress) => progress,
            None => {
                let Some(count) = number(bytes, 6) else {
                    return Ok(Extent::AtLeast(HEAD_BYTES));
                };
                limits.check_length((count as usize).saturating_mul(8))?;
                (HEAD_BYTES, 2 * u64::from(count))
            }
        };
        while left > 0 {
            let length = number(bytes, at).map(|length| length as usize);
            // The lengths that must still come.
            let needed = at + length.unwrap_or(0) + 4 * left as usize;
            limits.check_length(needed - HEAD_BYTES)?;
            let Some(length) = length.filter(|_| needed <= bytes.len()) else {
                self.pairs = Some((at, left));
                return Ok(Extent::AtLeast(needed));
            };
            at += 4 + length;
            left -= 1;
        }
        self.pairs = Some((at, 0));
        Ok(Extent::Whole(at))
    }
}

impl Limits {
    fn check_length(self, length: usize) -> Result<(), FrameError> {
        let most = self.frame_bytes_max;
        if length > most {
            return Err(FrameError::TooLarge(format!(
                "a frame has {length} bytes or more, and at most {most} are accepted (`max_frame_bytes`)"
            )));
        }
        Ok(())
    }
}

impl Frame {
    /// The frame that these bytes begin with, and its length; none where it is not there whole.
    ///
    /// # Errors
    /// It is none, or too long.
    pub fn parse(bytes: &[u8], limits: Limits) -> Result<Option<(Self, usize)>, FrameError> {
        let end = match Scanner::default().extent(bytes, limits)? {
            Extent::Whole(end) if end <= bytes.len() => end,
            _ => return Ok(None),
        };
        let value = |at| number(bytes, at).unwrap_or_default();
        let frame = match bytes[1] {
            b'W' => Self::window(bytes[0], value(2), limits)?,
            b'J' => Self::Json {
                sequence: value(2),
                document: HEAD_BYTES..end,
            },
            b'D' => Self::Pairs {
                sequence: value(2),
                count: value(6),
                pairs: HEAD_BYTES..end,
            },
            _ => Self::Compressed(COMPRESSED_HEAD_BYTES..end),
        };
        Ok(Some((frame, end)))
    }

    fn window(version: u8, events: u32, limits: Limits) -> Result<Self, FrameError> {
        let most = limits.window_events_max;
        if events > most {
            return Err(FrameError::TooLarge(format!(
                "a window has {events} events, and at most {most} are accepted (`max_window`)"
            )));
        }
        Ok(Self::Window { version, events })
    }
}

/// The frame that acknowledges the events of a window up to a sequence. Sequence 0 says that they are being worked on.
pub fn acknowledgement(version: u8, sequence: u32) -> [u8; 6] {
    let [a, b, c, d] = sequence.to_be_bytes();
    [version, b'A', a, b, c, d]
}

/// The u32 at a place, if it is there.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

fn check_version(version: u8, bytes: &[u8]) -> Result<(), FrameError> {
    let reason = match (version, bytes.get(1)) {
        (b'1' | b'2', _) => return Ok(()),
        (0x16, None | Some(3)) => "the client speaks TLS, which is not enabled here".to_owned(),
        (b'G' | b'P' | b'H', Some(b'E' | b'O' | b'U')) => "the client speaks HTTP".to_owned(),
        _ => format!(
            "a frame begins with its version, 1 or 2, and here stands {}",
            shown(version)
        ),
    };
    Err(FrameError::Malformed(reason))
}

fn shown(byte: u8) -> String {
    match byte {
        b'!'..=b'~' => format!("`{}`", char::from(byte)),
        _ => format!("the byte {byte:#04x}"),
    }
}

/// How far the events of a connection's window are.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    version: u8,
    /// How many events of it are to come.
    left: u32,
    /// The sequence of the one before, in the same window.
    last: Option<u32>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            version: b'2',
            left: 0,
            last: None,
        }
    }
}

impl Window {
    /// A window begins; gives how many events of the one before did not come.
    pub fn begin(&mut self, version: u8, events: u32) -> u32 {
        let missing = self.left;
        *self = Self {
            version,
            left: events,
            last: None,
        };
        missing
    }

    /// An event comes.
    ///
    /// # Errors
    /// It is more than was announced, or its sequence is not the one behind the event before.
    pub fn event(&mut self, sequence: u32) -> Result<(), FrameError> {
        if self.left == 0 {
            return Err(FrameError::Malformed(format!(
                "an event with sequence {sequence} belongs to no window: none has begun, or all of its events are there"
            )));
        }
        if let Some(last) = self.last
            && sequence != last.wrapping_add(1)
        {
            return Err(FrameError::Malformed(format!(
                "an event has sequence {sequence} and the one before {last}"
            )));
        }
        self.left -= 1;
        self.last = Some(sequence);
        Ok(())
    }

    /// In which version it is acknowledged.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether every event has come.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The sequence of its last event so far; 0 where there is none.
    pub fn last(&self) -> u32 {
        self.last.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
