//! Wire formats without input or output: bytes in, batches out.
//!
//! | module | holds |
//! | --- | --- |
//! | [`chunk`] | [`Chunker`]: collects what was read into buffers that hold whole records, [`Chunk`]s |
//! | [`decoder`] | [`Decoder`]: makes batches of chunks, as lines of text, JSON or MessagePack documents |
//! | [`compress`] | [`Decompressor`]: gzip and zstd as they are found in the wild, with places to resume at |
//!
//! The two halves of reading are apart so that they can run on two threads: chunking needs the bytes in sequence and
//! little time, decoding does the work and needs only its chunk.

pub mod chunk;
pub mod compress;
pub mod decoder;
mod error;
mod lines;
mod msgpack;
mod rows;

pub use chunk::{Chunk, Chunker, Framing};
pub use compress::{Checkpoint, Decompressor};
pub use decoder::{Counts, Decoder, Firsts, Settings};
pub use error::CodecError;

/// The most events a batch has.
pub const BATCH_EVENTS_MAX: usize = 4096;

/// A batch takes no further event once its documents have so many bytes.
pub const BATCH_BYTES_MAX: usize = 900 * 1024;
