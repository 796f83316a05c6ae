//! Wire formats without input or output: bytes in, batches out.
//!
//! | module | holds |
//! | --- | --- |
//! | [`chunk`] | [`Chunker`]: collects what was read into buffers that hold whole records, [`Chunk`]s |
//! | [`decoder`] | [`Decoder`]: makes batches of chunks, as lines of text, JSON or MessagePack documents |
//! | [`settings`] | [`Settings`]: how the events of a stream are written |
//! | [`body`] | [`Documents`]: the events of a message that is received as a whole |
//! | [`lumberjack`] | the frames of Lumberjack, the protocol of Beats, and their events |
//! | [`resume`] | [`Resume`]: where a later run goes on, and how it knows that the stream is the same |
//! | [`multiline`], [`container`], [`filter`] | which lines belong together, what containers add to lines, what is left out |
//! | [`layout`] | whether JSON documents are one per line |
//! | [`charset`](mod@charset), [`terminator`] | other encodings than UTF-8, and what ends a line |
//! | [`compress`] | [`Decompressor`]: gzip and zstd as they are found in the wild, with places to resume at |
//! | [`forward`] | messages of the Fluent Forward protocol |
//! | [`otlp`] | log records of OpenTelemetry |
//! | [`csv`] | [`Csv`]: the fields of CSV rows in lines of text; [`RowParser`] takes any row apart |
//! | [`syslog`] | [`syslog::Syslog`]: the fields of syslog messages in lines of text |
//!
//! The two halves of reading are apart so that they can run on two threads: chunking needs the bytes in sequence and
//! little time, decoding does the work and needs only its chunk.

pub mod body;
mod charset;
pub mod chunk;
pub mod compress;
mod container;
mod csv;
pub mod decoder;
mod error;
mod filter;
pub mod forward;
mod layout;
mod lines;
pub mod lumberjack;
mod msgpack;
mod multiline;
pub mod otlp;
mod records;
mod resume;
mod rows;
mod settings;
pub mod syslog;
mod terminator;

pub use body::{BodyError, BodyFormat, Documents};
pub use charset::charset;
pub use chunk::{Chunk, Chunker};
pub use compress::{Checkpoint, Decompressor};
pub use container::ContainerFormat;
pub use csv::{Csv, Header, OpenQuote, Quoting, RowField, RowParser, csv_delimiter};
pub use decoder::{Counts, Decoder, Firsts};
pub use error::CodecError;
pub use filter::Dropped;
pub use layout::{LAYOUT_BYTES, Layout};
pub use multiline::{Match, Multiline, MultilineConfig, MultilineError};
pub use resume::{CHECK_BYTES, Check, Resume, Skip};
pub use settings::Settings;
pub use terminator::LineEnding;

/// The most events a batch has.
pub const BATCH_EVENTS_MAX: usize = 4096;

/// A batch takes no further event once its documents have so many bytes.
pub const BATCH_BYTES_MAX: usize = 900 * 1024;
