//! The serialised form of a batch, as a queue on disk keeps it.
//!
//! [`Batch::freeze`] gives a head and the documents; a payload is the head followed by the documents, byte after byte.
//! [`Batch::thaw`] makes an equal batch whose cells point into the payload. Freezing copies no documents: they are slices
//! of the buffers that the batch holds. Only where its cells use less than half of the range that they span, their bytes
//! are copied together. What was read before (the cache of columns) is not kept.
//!
//! # Versions
//! Version 2 knows what a stream is beside a file, and ids that do not follow from places. A batch that has neither is
//! written as version 1, which programs of before can read. Version 3 knows where a batch goes on that is handed to its
//! pipeline again, and is written for such batches alone. All of them are read. [`Frozen::version`] says which one it is, so that
//! whatever keeps the bytes can refuse those of a later version before it touches anything. Version 4 knows the processors of
//! a single output as such a place, and is written for batches that go on there alone.
//!
//! # Layout
//! What version 1 does not have is marked. Numbers are little-endian. A *text* is its length (u32) and UTF-8. A *bitmap* is 0 for no row, 1 for all rows, or 2
//! followed by one bit a row in words of u64; a batch of no rows has bitmaps of all rows.
//!
//! | field | holds |
//! | --- | --- |
//! | version u16 | 1 to 4; its place stays for ever |
//! | flags u16 | bits 0 and 1: encoding (0 text, 1 JSON, 2 MessagePack); bit 2: some key holds a dot; from version 2 on, bit 3: there are ids; from version 3 on, bit 4: there is a re-entry |
//! | head length u32 | where the documents begin in the payload |
//! | rows u32, size u64, received i64, host's name text | as the batch gives them |
//! | streams | count u32; each: id u128, then a *source* |
//! | runs of streams | count u32; each: first row u32, stream u32, start of that row u64 (0 for a run of no rows) |
//! | starts | series: of each row that is no run's first, its start less the end of the row before |
//! | ends | series: of each row, its end less its start |
//! | alive, sealed | bitmaps |
//! | drops | count u32; each: reason text, bitmap |
//! | regions | count u32; the length u64 of each; they are the documents, one after the other |
//! | buffer lists | count u32; each: count u32, then a u32 each: 0 for an empty buffer, else a region's number plus 1 |
//! | ids | from version 2 on, where the flag says so: a column of texts, or keep where the id's base is the place; then a series of 0, or for a part its index plus 1, of each row |
//! | re-entry | from version 3 on, where the flag says so: u8 0 the beginning; 1 a processor: index u32, name text; 2 an output: name text; in version 4 also 3 a processor of an output: name text of the output, then as 1 |
//! | nodes | from the root on, a node before what lies below it: key text, children u32, column |
//!
//! A *source* is a u8 and what belongs to it: 0 has no name; 1 a file: path text; from version 2 on also 2 a connection: peer text,
//! listener text; 3 a topic: name text, partition u32; 4 what Millpond makes itself.
//!
//! A *column* begins with one byte that says how it is kept:
//! * 0: there is none.
//! * 1: one cell for all rows: buffer list u32, tag u8, and 8 bytes of a number or a span (buffer, start, length: u32 each).
//! * 2: a cell for each row: buffer list u32; a tag u8 for all rows, or 0xFF and the tag of each row; the numbers, 8
//!   bytes each; the spans.
//! * 3: the starts of the rows.
//!
//! *Tags*: 0 keep, 1 missing, 2 null, 3 false, 4 true; with a number: 5 i64, 6 u64, 7 f64, 8 time; with a span: 9 text,
//! 10 number, 11 JSON, 12 MessagePack. *Spans*: count u32 of runs in one buffer, each of rows u32, buffer u32 (in the list),
//! start u32; then two series: of each span that is no run's first, its start less the end of the span before; the lengths.
//!
//! A *series* is a width u8 (0, 1, 2, 4 or 8 bytes), a base i64, and of each value its difference to the base in that
//! width; sums wrap around. So what is the same in all rows takes no room: a batch of lines takes two to four bytes a row.
//!
//! # Limits
//! Nodes nest [`DEPTH_MAX`](crate::json::DEPTH_MAX) deep at most. What a payload makes [`Batch::thaw`] allocate is bounded
//! by 64 MiB and 64 times its length. Everything that is read is checked: spans lie in their buffers, texts are UTF-8,
//! JSON begins and ends as such. The inside of JSON and MessagePack is trusted as its walkers do, which never panic.

mod columns;
mod freeze;
mod input;
mod regions;
mod series;
#[cfg(test)]
mod tests;
mod thaw;

use bytes::Bytes;

use crate::batch::Batch;

/// The version that is written where it suffices.
const VERSION_1: u8 = 1;

/// The version that knows sources other than files, and ids of rows.
const VERSION_2: u8 = 2;

/// The version that knows where a batch goes on in its pipeline.
const VERSION_3: u8 = 3;

/// The version that knows the processors of an output as a place to go on at.
const VERSION_4: u8 = 4;

/// The latest version that is known.
const VERSION_MAX: u8 = VERSION_4;

/// The flag of a batch in which some key holds a dot.
const DOTTED: u16 = 1 << 2;

/// The flag of a batch in which some id does not follow from its row's place.
const IDS: u16 = 1 << 3;

/// The flag of a batch that goes on somewhere in its pipeline.
const REENTRY: u16 = 1 << 4;

/// What a stream is.
mod source {
    pub const UNNAMED: u8 = 0;
    pub const FILE: u8 = 1;
    pub const CONNECTION: u8 = 2;
    pub const TOPIC: u8 = 3;
    pub const GENERATED: u8 = 4;
}

/// Where a batch goes on.
mod reentry {
    pub const START: u8 = 0;
    pub const PROCESSOR: u8 = 1;
    pub const OUTPUT: u8 = 2;
    pub const OUTPUT_PROCESSOR: u8 = 3;
}

/// How a column is kept.
mod kept {
    pub const NONE: u8 = 0;
    pub const CONSTANT: u8 = 1;
    pub const ROWS: u8 = 2;
    pub const STARTS: u8 = 3;
}

/// How a bitmap is kept.
mod rows {
    pub const NONE: u8 = 0;
    pub const ALL: u8 = 1;
    pub const SOME: u8 = 2;
}

/// What a cell is. Tags from [`tag::INT`] on carry a number, those from [`tag::TEXT`] on a span.
mod tag {
    pub const KEEP: u8 = 0;
    pub const MISSING: u8 = 1;
    pub const NULL: u8 = 2;
    pub const FALSE: u8 = 3;
    pub const TRUE: u8 = 4;
    pub const INT: u8 = 5;
    pub const UINT: u8 = 6;
    pub const FLOAT: u8 = 7;
    pub const TIME: u8 = 8;
    pub const TEXT: u8 = 9;
    pub const NUMBER: u8 = 10;
    pub const JSON: u8 = 11;
    pub const MSGPACK: u8 = 12;
    /// The rows have tags of their own.
    pub const MIXED: u8 = 0xFF;
}

/// A batch as bytes: its payload is the head followed by all documents.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The version of the format, as the head says it, too.
    pub version: u8,
    /// Everything but the documents.
    pub head: Vec<u8>,
    /// The bytes that cells point into, in order; none of them empty.
    pub documents: Vec<Bytes>,
}

/// Why bytes cannot be made a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A later version of the program wrote them.
    #[error(
        "the batch was written by a newer version: its format is {version}, known up to {VERSION_MAX}"
    )]
    Newer {
        /// The format's version.
        version: u16,
    },
    /// They are not what [`Batch::freeze`] gives.
    #[error("the batch is damaged: {0}")]
    Damaged(&'static str),
}

impl Batch {
    /// The batch as bytes. Documents are shared, not copied, where most of their buffer is used.
    pub fn freeze(&self) -> Frozen {
        freeze::freeze(self)
    }

    /// The batch of a payload, the head and the documents of [`Batch::freeze`] one after the other. Its cells point into
    /// `bytes`.
    ///
    /// # Errors
    /// The payload is damaged, or of a newer version.
    #[expect(clippy::needless_pass_by_value, reason = "the batch keeps it alive")]
    pub fn thaw(bytes: Bytes) -> Result<Self, WireError> {
        thaw::thaw(&bytes)
    }
}
