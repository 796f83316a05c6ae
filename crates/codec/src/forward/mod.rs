//! Messages of the Fluent Forward protocol, version 1: what Fluentd, Fluent Bit and their client libraries send.
//!
//! | mode | message |
//! | --- | --- |
//! | Message | `[tag, time, record, option?]` |
//! | Forward | `[tag, [entry, …], option?]` |
//! | PackedForward | `[tag, string or binary data of entries, option?]` |
//! | CompressedPackedForward | the same, compressed as `option.compressed` says: `gzip` or `zstd` |
//! | heartbeat | nil |
//!
//! An entry is `[time, record]`, or `[[time, metadata], record]` as Fluent Bit from version 2.1 on writes it. A time is whole
//! seconds, seconds with a fraction, or an event time: extension 0 with seconds and nanoseconds, 32 bits each.
//!
//! [`Message::read`] reads what stands around the entries, [`Events`] lists and checks these. Both trust nothing: lengths and
//! counts are compared with the bytes that are there before they are used, and nothing is allocated for them. A large message
//! lies in several buffers; [`Cuts`] finds where it may be divided.
//!
//! The specification: <https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1>.

mod buffers;
mod events;
mod message;

use batch::msgpack::{MsgPackError, MsgPackErrorKind};

pub use buffers::{Cuts, Position, pieces};
pub use events::{EventTime, Events};
pub use message::{CHUNK_BYTES_MAX, Chunk, Compression, Content, Message};

/// What is wrong with a message, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {offset}")]
pub struct ForwardError {
    /// Bytes from the first one of what was read.
    pub offset: usize,
    /// What is wrong there.
    pub fault: ForwardFault,
}

/// What can be wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardFault {
    /// The bytes are no MessagePack, or a record is not a map.
    #[error("{0}")]
    MsgPack(MsgPackErrorKind),
    /// Another value is expected.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A compression that is unknown.
    #[error("the compression {0:?} is not supported; gzip and zstd are")]
    Compression(String),
    /// The message holds no logs.
    #[error("only logs are accepted, not metrics or traces (`fluent_signal` is {0})")]
    Signal(i64),
}

impl From<MsgPackError> for ForwardError {
    fn from(error: MsgPackError) -> Self {
        Self {
            offset: error.offset,
            fault: ForwardFault::MsgPack(error.kind),
        }
    }
}

impl ForwardError {
    /// The same error where so many bytes more lie before it.
    fn behind(self, bytes: usize) -> Self {
        Self {
            offset: self.offset + bytes,
            ..self
        }
    }

    fn expected(offset: usize, what: &'static str) -> Self {
        Self {
            offset,
            fault: ForwardFault::Expected(what),
        }
    }
}
