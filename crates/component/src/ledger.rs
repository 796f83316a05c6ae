//! What became of every file's bytes and events.
//!
//! Bytes are those of the decompressed source, terminators included. For every file and at any moment:
//! read = acknowledged + dropped + in flight. What is still being assembled, such as half a line, is in flight.

use std::fmt;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileLedger {
    /// The pipeline that reads it.
    pub pipeline: String,
    /// The input that reads it.
    pub input: String,
    /// Where it is, or was last.
    pub path: String,
    /// Its id, in hexadecimal: the first part of its events' ids.
    pub id: String,
    /// The device it lies on.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its size on disk in bytes.
    pub size: u64,
    /// Where a later run would go on, in decompressed bytes: everything before it is acknowledged or dropped.
    pub position: u64,
    /// Bytes of the file, on disk, that were not read yet.
    pub lag_bytes: u64,
    /// Seconds since something was written that was not read yet; 0 where everything was read.
    pub lag_seconds: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes of events that every output has taken.
    pub acknowledged_bytes: u64,
    /// Bytes that were dropped.
    pub dropped_bytes: u64,
    /// Bytes that are on their way.
    pub in_flight_bytes: u64,
    /// Events that were read.
    pub read_events: u64,
    /// Events that every output has taken.
    pub acknowledged_events: u64,
    /// Events that became dead letters, once for each component that has one: among those acknowledged, where an output refused
    /// them, or those dropped. Where the pipeline has a disk queue these are not known here.
    pub dead_letters: u64,
    /// Events and bytes that were dropped, by reason.
    pub dropped: Vec<Dropped>,
    /// Events that are on their way.
    pub in_flight_events: u64,
    /// What the file is at.
    pub state: FileStatus,
    /// Places inside compressed data where reading can go on at once.
    pub checkpoints: u64,
}

impl FileLedger {
    /// Counts what is on its way as not read.
    pub fn forget_in_flight(&mut self) {
        self.read_events -= self.in_flight_events;
        self.read_bytes -= self.in_flight_bytes;
        (self.in_flight_events, self.in_flight_bytes) = (0, 0);
    }
}

/// Events and bytes that were dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dropped {
    /// The reason: the name of a processor, or a rule of the input.
    pub reason: String,
    /// Events.
    pub events: u64,
    /// Bytes of the source.
    pub bytes: u64,
}

/// What a file is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileStatus {
    /// It is open.
    Open,
    /// It is closed and looked at when it changes.
    #[default]
    Idle,
    /// It is compressed and was read to its end.
    Done,
    /// It is not where it was and nothing has taken its place.
    Gone,
    /// It cannot be read further until it changes.
    Broken,
}

impl fmt::Display for FileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Gone => "gone",
            Self::Broken => "broken",
        })
    }
}

type Rows = Box<dyn Fn() -> Vec<FileLedger> + Send + Sync>;

/// Where an input that reads files says how to see its ledger.
#[derive(Default)]
pub struct Ledger(Mutex<Option<Rows>>);

impl Ledger {
    /// Says how to see it.
    pub fn provide(&self, rows: impl Fn() -> Vec<FileLedger> + Send + Sync + 'static) {
        *self.0.lock() = Some(Box::new(rows));
    }

    /// The ledger at this moment; nothing for inputs that read no files.
    pub fn files(&self) -> Vec<FileLedger> {
        let rows = self.0.lock();
        rows.as_ref().map_or_else(Vec::new, |rows| rows())
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}
