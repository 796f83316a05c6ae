//! What a look into a queue gives: for people and, as JSON, for programs.

use std::path::PathBuf;

use serde::Serialize;

use super::Quarantined;
use crate::log::Compression;

/// What a queue's folder holds. Times are ages in seconds.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The folder.
    pub folder: PathBuf,
    /// Whose queue it is, where the folder lies in a data directory.
    pub pipeline: Option<String>,
    /// The process that uses it; 0 when one does and its number is not known.
    pub process: Option<u32>,
    /// The size of all segments, room that is not used yet included.
    pub size_bytes: u64,
    /// Blocks that hold the queue's events.
    pub blocks: u64,
    /// Events in them, those included that all outputs have passed.
    pub events: u64,
    /// The segments, the oldest first.
    pub segments: Vec<SegmentReport>,
    /// The outputs.
    pub cursors: Vec<CursorReport>,
    /// What cannot be read.
    pub damage: Vec<Damage>,
    /// What was set aside.
    pub quarantine: Vec<Quarantined>,
}

/// A segment.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentReport {
    /// Its number.
    pub number: u64,
    /// The sequence of its first block.
    pub first_sequence: Option<u64>,
    /// The sequence of its last block that counts.
    pub last_sequence: Option<u64>,
    /// Blocks that count.
    pub blocks: u64,
    /// Events in them.
    pub events: u64,
    /// Blocks that a later segment holds again, because the disk failed in between.
    pub superseded_blocks: u64,
    /// Length of the file.
    pub size_bytes: u64,
    /// The part of it that was written.
    pub used_bytes: u64,
    /// Age of its first block.
    pub oldest_seconds: Option<f64>,
    /// Age of its last block.
    pub newest_seconds: Option<f64>,
    /// Its blocks, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<BlockReport>>,
}

/// A block.
#[derive(Debug, Clone, Serialize)]
pub struct BlockReport {
    /// Where it begins in the segment.
    pub offset: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Events written to the log before it, ever.
    pub ordinal: u64,
    /// Its events.
    pub events: u32,
    /// Length of its payload on disk.
    pub stored_bytes: u32,
    /// Length of its payload when decompressed.
    pub raw_bytes: u32,
    /// How its payload is compressed.
    pub compression: Compression,
    /// Its age.
    pub age_seconds: f64,
    /// Whether a later segment holds it again.
    pub superseded: bool,
}

/// How far an output is.
#[derive(Debug, Clone, Serialize)]
pub struct CursorReport {
    /// The output.
    pub output: String,
    /// The file.
    pub file: String,
    /// The lowest sequence that it has not passed.
    pub sequence: u64,
    /// Events that are still to come for it.
    pub lag_events: u64,
    /// The size of their blocks.
    pub lag_bytes: u64,
    /// Age of the oldest of them.
    pub lag_seconds: Option<f64>,
    /// Since when the output is not configured any more, in seconds since 1970.
    pub retired: Option<i64>,
}

/// A part of a file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it is.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// Whether a crash leaves that behind, without loss of anything that was safe.
    pub torn: bool,
    /// Events that are missing for it, as far as that can be told.
    pub events: u64,
    /// The sequences that may have been in it: of them all those up to `last_sequence`.
    pub first_sequence: Option<u64>,
    /// See `first_sequence`. Below it when nothing is missing.
    pub last_sequence: Option<u64>,
}

/// The result of [`QueueFolder::verify`].
#[derive(Debug)]
pub struct Verified {
    /// What is wrong, remains of crashes included.
    pub damage: Vec<Damage>,
    /// Segments that were read.
    pub segments: u64,
    /// Blocks whose checksums are right.
    pub blocks: u64,
    /// Events in them.
    pub events: u64,
    /// Cursors that were read.
    pub cursors: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Verified {
    /// Events that are missing for damage.
    pub fn events_missing(&self) -> u64 {
        let damages = self.damage.iter().filter(|damage| !damage.torn);
        damages.map(|damage| damage.events).sum()
    }

    /// Whether all is as it was written, remains of crashes aside.
    pub fn is_clean(&self) -> bool {
        self.damage.iter().all(|damage| damage.torn)
    }
}
