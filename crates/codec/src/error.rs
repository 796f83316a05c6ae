//! What can be wrong with a stream as a whole. What is wrong with one event becomes a tag of that event instead.

use crate::compress::Format;

/// Why a stream cannot be read further. Everything before has been delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The compressed data stops before its end.
    #[error("the {format} data is truncated at compressed byte {offset}")]
    Truncated {
        /// How it is compressed.
        format: Format,
        /// Length of the compressed data.
        offset: u64,
    },
    /// The compressed data contradicts itself.
    #[error("corrupt {format} data at compressed byte {offset}: {reason}")]
    Corrupt {
        /// How it is compressed.
        format: Format,
        /// Where it shows, in bytes from the start of the compressed data.
        offset: u64,
        /// What the decompressor says.
        reason: String,
    },
    /// What the decompressor needs cannot be allocated.
    #[error("not enough memory to decompress {format} data")]
    NoMemory {
        /// How it is compressed.
        format: Format,
    },
    /// Bytes that are no MessagePack map. The next one cannot be found, because maps carry no mark.
    #[error("invalid MessagePack at byte {offset}: {reason}; the rest cannot be read")]
    MsgPack {
        /// Where it shows, in bytes from the start of the stream.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A MessagePack map beyond the limit.
    #[error(
        "the MessagePack map at byte {offset} is larger than {bytes_max} bytes, the setting `max_line_bytes`"
    )]
    MsgPackTooLarge {
        /// Where the map starts, in bytes from the start of the stream.
        offset: u64,
        /// The limit.
        bytes_max: usize,
    },
}
