//! What stands around the entries of a message.

use std::ops::Range;

use batch::msgpack::{Head, MsgPackErrorKind, bare_head, head, value_len};
use bytes::Bytes;

use super::buffers::{self, Position};
use super::events::{Events, Until};
use super::{ForwardError, ForwardFault};

/// The longest id of a chunk, in bytes: it is sent back. Clients use 16 to 64.
pub const CHUNK_BYTES_MAX: usize = 1024;

/// A message, as ranges of the buffers that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The tag, in the first buffer: of any bytes.
    pub tag: Range<usize>,
    /// What it carries.
    pub content: Content,
    /// The id under which it is to be acknowledged, where it is.
    pub chunk: Option<Chunk>,
    /// Where it ends. At the end of a buffer, what follows is in the next one.
    pub end: Position,
}

/// The id of a message that is to be acknowledged, in the buffer in which the message ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its text.
    pub text: Range<usize>,
    /// The same as a MessagePack value, for the acknowledgement.
    pub value: Range<usize>,
}

/// What a message carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing: it shows that the client is there.
    Heartbeat,
    /// Events, which were read with the message.
    Listed,
    /// Entries one after the other, for [`Events::read_packed`]: a range of the buffers as if these were one.
    Packed(Range<usize>, Option<Compression>),
}

/// How entries are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Members of gzip, one or more.
    Gzip,
    /// Frames of zstd, one or more.
    Zstd,
}

/// What the option says.
#[derive(Debug, Default)]
struct Options {
    chunk: Option<Chunk>,
    compression: Option<Compression>,
}

impl Message {
    /// Reads the message that begins at `at` of the first buffer, and which must be there as a whole. Its events, unless they are
    /// packed, are then in `events` instead of those before.
    ///
    /// # Errors
    /// What is wrong with it, with the offset from the first byte of the buffers.
    pub fn read(buffers: &[Bytes], at: usize, events: &mut Events) -> Result<Self, ForwardError> {
        events.clear();
        let bytes = buffers.first().map_or(&[][..], |first| first);
        let (elements, mut next) = match head(bytes, at)? {
            (Head::Array(elements), next) => (elements, next),
            (Head::Nil, end) => return Ok(Self::heartbeat(buffers, end)),
            _ => {
                // Perhaps only the first byte is there. As MessagePack, a letter is a number.
                let is_text = bytes.get(at).is_some_and(u8::is_ascii_uppercase);
                let what = match is_text {
                    true => "an array or nil as a message, not text (does the client speak HTTP?)",
                    false => "an array or nil as a message",
                };
                return Err(ForwardError::expected(at, what));
            }
        };
        if !(2..=4).contains(&elements) {
            let what = "2 to 4 elements in a message";
            return Err(ForwardError::expected(at, what));
        }
        let tag;
        (tag, next) = text(bytes, next, "a string as the tag")?;
        let (mut packed, mut used) = (None, 2);
        let mut end = match bare_head(bytes, next)? {
            (Head::Array(count), first) => {
                let first = buffers::position(buffers, first);
                events.read(buffers, first, Until::Count(count as u64))?
            }
            (Head::Str(len) | Head::Bin(len), start) => {
                let (end, there) = (start.saturating_add(len), buffers::len(buffers));
                if end > there {
                    return Err(ForwardError {
                        offset: there,
                        fault: ForwardFault::MsgPack(MsgPackErrorKind::Truncated),
                    });
                }
                packed = Some(start..end);
                buffers::position(buffers, end)
            }
            _ => {
                next = events.read_one(bytes, next)?;
                used = 3;
                buffers::position(buffers, next)
            }
        };
        if elements < used {
            let what = "a record after the tag and the time";
            return Err(ForwardError::expected(next, what));
        }
        if elements > used + 1 {
            let what = "nothing after the option of a message";
            return Err(ForwardError::expected(at, what));
        }
        let mut options = Options::default();
        if elements > used {
            let number = end.buffer;
            let read = Options::read(&buffers[number], end.at);
            let before = || buffers::len(&buffers[..number]);
            (options, end.at) = read.map_err(|error| error.behind(before()))?;
        }
        Ok(Self {
            tag,
            content: packed.map_or(Content::Listed, |packed| {
                Content::Packed(packed, options.compression)
            }),
            chunk: options.chunk,
            end,
        })
    }

    fn heartbeat(buffers: &[Bytes], end: usize) -> Self {
        Self {
            tag: end..end,
            content: Content::Heartbeat,
            chunk: None,
            end: buffers::position(buffers, end),
        }
    }
}

impl Options {
    fn read(bytes: &[u8], at: usize) -> Result<(Self, usize), ForwardError> {
        let mut options = Self::default();
        let (members, mut next) = match head(bytes, at)? {
            (Head::Map(members), next) => (members, next),
            (Head::Nil, end) => return Ok((options, end)),
            _ => return Err(ForwardError::expected(at, "a map as the option")),
        };
        for _ in 0..members {
            let key = next;
            let value = key + value_len(bytes, key)?;
            next = value + value_len(bytes, value)?;
            if let (Head::Str(len) | Head::Bin(len), start) = head(bytes, key)? {
                options.set(bytes, &bytes[start..start + len], value..next)?;
            }
        }
        Ok((options, next))
    }

    fn set(&mut self, bytes: &[u8], key: &[u8], value: Range<usize>) -> Result<(), ForwardError> {
        match key {
            b"chunk" => {
                let (text, _) = text(bytes, value.start, "a string as `chunk`")?;
                if text.len() > CHUNK_BYTES_MAX {
                    let what = "1024 bytes at most as `chunk`";
                    return Err(ForwardError::expected(value.start, what));
                }
                self.chunk = Some(Chunk { text, value });
            }
            b"compressed" => {
                let (name, _) = text(bytes, value.start, "a string as `compressed`")?;
                self.compression = match &bytes[name.clone()] {
                    b"gzip" => Some(Compression::Gzip),
                    b"zstd" => Some(Compression::Zstd),
                    b"" | b"text" | b"none" => None,
                    name => {
                        return Err(ForwardError {
                            offset: value.start,
                            fault: ForwardFault::Compression(shown(name)),
                        });
                    }
                };
            }
            b"fluent_signal" => {
                if let (Head::Int(signal @ (..=-1 | 1..)), _) = head(bytes, value.start)? {
                    return Err(ForwardError {
                        offset: value.start,
                        fault: ForwardFault::Signal(signal),
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The string or binary data at `at`, and where it ends.
fn text(
    bytes: &[u8],
    at: usize,
    what: &'static str,
) -> Result<(Range<usize>, usize), ForwardError> {
    match head(bytes, at)? {
        (Head::Str(len) | Head::Bin(len), start) => Ok((start..start + len, start + len)),
        _ => Err(ForwardError::expected(at, what)),
    }
}

/// A name for a message: no longer than a name is.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(40)]).into_owned()
}
