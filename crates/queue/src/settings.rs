//! The settings of a disk queue, as the engine takes them.

use std::time::Duration;

use disk::PAGE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::log::Compression;

/// How a disk queue works. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSettings {
    /// The most that the queue's segments take on disk.
    pub size_max: u64,
    /// The most events that wait for some output.
    pub events_max: u64,
    /// Events that have waited longer are dropped.
    pub age_max: Option<Duration>,
    /// What happens to new events when the queue is full.
    pub when_full: WhenFull,
    /// When receipts resolve.
    pub durability: Durability,
    /// With [`Durability::Interval`]: how often the log is synced.
    pub sync_interval: Duration,
    /// With [`Durability::Fsync`]: so many bytes are synced together at most.
    pub group_size: u64,
    /// With [`Durability::Fsync`]: how long the first batch of a group waits for others.
    pub group_time: Duration,
    /// How blocks are compressed.
    pub compression: Compression,
    /// The size of a segment.
    pub segment_size: u64,
    /// Batches that wait in memory for the outputs, so that they need not be read back.
    pub memory: usize,
    /// Room that is left free on the file system.
    pub min_free: u64,
    /// Where an output begins that the queue has not seen before.
    pub new_output: NewOutput,
    /// How long what an output had not taken is kept when the output is not configured any more.
    pub orphan_retention: Duration,
    /// Whether a stop waits until the queue is empty.
    pub drain: bool,
}

/// Of the room that a queue has, a segment takes this part at most: otherwise little could be given back before all is read.
const SEGMENTS_MIN: u64 = 4;

/// The smallest segment.
const SEGMENT_SIZE_MIN: u64 = 64 << 10;

impl DiskSettings {
    /// Makes segments so small that a few fit into this room.
    pub fn limit_segments(&mut self, room: u64) {
        let page = PAGE as u64;
        let largest = (room / SEGMENTS_MIN).max(SEGMENT_SIZE_MIN) / page * page;
        self.segment_size = self.segment_size.min(largest);
    }
}

/// What happens to new events when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Inputs wait.
    #[default]
    Block,
    /// New events are dropped and counted.
    DropNewest,
    /// The oldest events are dropped and counted, a segment at a time.
    DropOldest,
}

/// When an input may take events as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// After an fsync: neither a crash nor a power cut loses them.
    #[default]
    Fsync,
    /// After the write: a crash of the process loses nothing, a power cut at most what came within the sync interval.
    Interval,
}

/// Where an output begins that a queue has not seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewOutput {
    /// With the oldest event that the queue still holds.
    #[default]
    Oldest,
    /// With the next event that comes in.
    Now,
}
