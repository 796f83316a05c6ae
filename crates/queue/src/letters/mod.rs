//! Dead letters: events that an output refused or a processor could not handle, kept until a person decides.
//!
//! Each pipeline has a store of its own, the folder `dead-letters/PIPELINE` in the data directory:
//!
//! | file | holds |
//! | --- | --- |
//! | `segment-*.log` | the letters, in the format of [`crate::log`]: one batch a block |
//! | `removed` | which of them are gone: see `removed.rs` |
//! | `synced` | how far they were synced: see [`crate::synced`] |
//! | `requests/` | what a running service is asked to do: see [`request`] |
//! | `lock` | held by the process that writes |
//!
//! # A letter
//! A letter is a row of such a batch: the event in its last good form, with its id and `@metadata`. Its *number* is its ordinal
//! in the log, which no other letter of the store ever has, so that removed letters are a set of ranges. Why it is here stands
//! in its `@metadata.dead_letter`: `pipeline`, `role`, `component`, `time`, `reason`, `tag` (the processor's tag for failures),
//! `attempts`. Where it goes on is the batch's [`Reentry`]: the output that refused it, or the processor that failed, of the
//! pipeline or of one output.
//!
//! A processor's letters have their *originals* with them, the events as they came: a second block of as many rows, in the same
//! order, right behind the first, whose re-entry is the beginning. The first says so in `original`. So the original of letter
//! `n` in a block of `k` letters has the number `n + k`.
//!
//! # Invariants
//! - Whoever hands letters over hears of it when they are synced, not before, and passes its batch only then. What cannot be
//!   written is tried again; it is never dropped.
//! - A letter is removed when what became of it is safe: its receipt resolved, or the letter that takes its place is written. The
//!   file of removed letters says "removed if letter N is there" before letter N is written, so that of the two exactly one
//!   counts after a crash at any point.
//! - An event has one letter for each component: a second pass over the same batch writes none, neither in the same run nor after a
//!   crash (`keys.rs`). Two events of the same id have two letters.
//! - A letter that is refused again where it was before is replaced. Where there is no room for the new one, the old one stays as it
//!   is: what is refused again waits for nobody. A letter that went on and is refused elsewhere is removed when its receipt has
//!   resolved, because other outputs may still be to get it.
//! - A segment is removed when all of its letters are, except the newest, which keeps numbers from being given twice.
//! - A damaged block costs its letters, never the start. It is copied to `quarantine/`. Letters below the mark in `synced` that are in
//!   no block and in `removed` neither are reported, until a person purges them: `removed` is saved before a segment goes.
//!
//! # Limits
//! Memory: 64 bytes for each of the newest [`KEYS_MAX`] letters of earlier runs, from the first letter that a run writes, and as much for
//! each that it writes itself; 16 bytes for each second in
//! which letters came, where an age limit is set; two numbers for each range of removed letters. `max_bytes` counts segments with
//! the room that they reserve; the last segment's worth of it is for what is refused again.

mod keeper;
mod keys;
mod read;
mod removal;
mod removed;
pub mod request;
mod rows;
mod store;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::{Batch, FieldPath, Reentry};
use component::plural;
use config::{Period, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use keeper::{DeadLetters, Done, Options};
pub use keys::KEYS_MAX;
pub use read::{Letter, LetterFolder, OriginalError, Page, Unreadable};
pub use removal::{RemovalError, remove};

use crate::cursor;

/// The folder of all stores in a data directory.
pub const FOLDER: &str = "dead-letters";

/// Where the store of a pipeline is.
pub fn folder(data_dir: &Path, pipeline: &str) -> PathBuf {
    data_dir.join(FOLDER).join(cursor::encode(pipeline))
}

/// What happens to new letters when the store has its largest size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenLettersFull {
    /// The output waits, and says so: nothing is lost.
    #[default]
    Block,
    /// The oldest letters are dropped and counted, a segment at a time.
    DropOldest,
}

/// How dead letters are stored. The limits apply to each pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LetterSettings {
    /// The maximum disk space for the dead letters of one pipeline.
    pub max_bytes: Size,
    /// How long dead letters are kept; older ones are dropped and counted. Default: until they are replayed or
    /// purged.
    pub max_age: Option<Period>,
    /// What happens when `max_bytes` is reached.
    pub when_full: WhenLettersFull,
}

impl Default for LetterSettings {
    fn default() -> Self {
        Self {
            max_bytes: Size(1 << 30),
            max_age: None,
            when_full: WhenLettersFull::default(),
        }
    }
}

/// What is removed, whatever becomes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Purge {
    /// The numbers of letters.
    pub letters: Vec<Range<u64>>,
    /// Numbers that go with them, and are not counted: those of originals.
    pub others: Vec<Range<u64>>,
    /// Damaged parts, which are reported no more, and with them letters that cannot be found: segment, offset, length.
    pub cleared: Option<Vec<(u64, u64, u64)>>,
}

impl Purge {
    /// These letters alone.
    pub fn of(letters: &[Range<u64>]) -> Self {
        Self {
            letters: letters.to_vec(),
            ..Self::default()
        }
    }
}

/// Rows of a batch that become dead letters.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The batch, with the rows in their last good form.
    pub batch: Arc<Batch>,
    /// The same rows as they came, where they can go through everything again.
    pub original: Option<Arc<Batch>>,
    /// Where they go on.
    pub at: Arc<Reentry>,
    /// The batch's sequence in the pipeline's queue.
    pub sequence: u64,
    /// Which rows, and why.
    pub rows: Vec<Dead>,
}

impl Draft {
    /// Whether these are letters that were refused again where they had been before.
    fn is_again(&self) -> bool {
        self.batch.reentry() == Some(&self.at)
    }
}

/// A row that becomes a dead letter.
#[derive(Debug, Clone)]
pub struct Dead {
    /// The row in its batch.
    pub row: usize,
    /// Why it was refused, or what failed.
    pub reason: Arc<str>,
    /// The tag of a processor for what failed.
    pub tag: Option<Arc<str>>,
}

/// The fields below `@metadata.dead_letter`.
mod field {
    pub const PIPELINE: &str = "pipeline";
    pub const ROLE: &str = "role";
    pub const COMPONENT: &str = "component";
    pub const TIME: &str = "time";
    pub const REASON: &str = "reason";
    pub const TAG: &str = "tag";
    pub const ATTEMPTS: &str = "attempts";
    /// Whether its original is in the next block.
    pub const ORIGINAL: &str = "original";
    /// The number of the letter, and of its original, while it is on its way again.
    pub const NUMBER: &str = "number";
    pub const ORIGINAL_NUMBER: &str = "original_number";
}

fn path(name: &str) -> FieldPath {
    FieldPath::from_keys(["@metadata", "dead_letter", name])
}

/// Numbers as ranges, ascending.
pub fn ranges<'n>(numbers: impl Iterator<Item = &'n u64>) -> Vec<Range<u64>> {
    let mut sorted: Vec<u64> = numbers.copied().collect();
    sorted.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

/// The kind and the name of the component that a letter is of.
fn component(at: &Reentry) -> (&'static str, Cow<'_, str>) {
    match at {
        Reentry::Start => ("input", "".into()),
        Reentry::Processor { name, .. } => ("processor", (&**name).into()),
        Reentry::Output { name } => ("output", (&**name).into()),
        Reentry::OutputProcessor { output, name, .. } => {
            ("processor", format!("{output}/{name}").into())
        }
    }
}

/// Letters that cannot be found, as people read it.
pub fn missing(numbers: &Range<u64>) -> String {
    match numbers.end - numbers.start {
        1 => format!("dead letter {} is missing", numbers.start),
        count => format!(
            "{} are missing, numbers {} to {}",
            plural(count, "dead letter"),
            numbers.start,
            numbers.end - 1
        ),
    }
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}
