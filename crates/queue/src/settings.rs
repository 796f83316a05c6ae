//! The settings of a pipeline's queue: what they are, what they mean together, and which are refused.
//!
//! The doc comments of the settings are their reference.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use config::{ConfigError, Count, Node, Period, Size};
use disk::PAGE;
use kafka::queue::KafkaQueue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::log::Compression;

/// The smallest segment.
const SEGMENT_SIZE_MIN: Size = Size(64 << 10);

/// A queue has room for so many segments at least: with fewer, nothing can be given back before nearly all is read.
const SEGMENTS_MIN: u64 = 4;

/// The smallest disk queue.
pub const DISK_SIZE_MIN: Size = Size(SEGMENT_SIZE_MIN.0 * SEGMENTS_MIN);

/// The longest name of a file that every common file system takes.
const FILE_NAME_MAX: usize = 255;

/// What of a queue is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    Everything,
    /// What memory has no room for.
    Overflow,
}

/// How much a queue holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of documents, with 32 bytes for each event.
    pub size_max: usize,
    /// Events.
    pub events_max: usize,
}

/// The queue of a pipeline.
#[derive(Debug, Clone)]
pub enum QueueSettings {
    /// Events wait in memory; what does not fit may go to disk.
    Memory(MemoryQueueSettings),
    /// Every event goes to disk.
    Disk(DiskSettings),
    /// Events go to a topic that several machines may share.
    Kafka(Box<KafkaQueue>),
}

/// Settings of a memory queue.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryQueueSettings {
    /// The maximum size of events that are waiting or being processed, including 32 bytes for each event.
    pub max_bytes: Size,
    /// The maximum number of events that are waiting or being processed.
    pub max_events: Count,
    /// What happens when the queue is full: with `none` the inputs wait; with `disk`, or `disk:` with its settings,
    /// events that do not fit are written to a disk queue.
    pub overflow: Overflow,
}

/// What happens when a memory queue is full.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Inputs wait.
    #[default]
    None,
    /// What does not fit goes to disk.
    Disk(DiskSettings),
}

/// Settings of a disk queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSettings {
    /// The directory of the queue; each queue needs its own, and only one process at a time can use it. Default: a
    /// directory named after the pipeline in `queue` in `data_dir`, such as `/var/lib/millpond/queue/apache`.
    #[serde(default, deserialize_with = "config::paths")]
    pub path: Option<PathBuf>,
    /// The maximum disk space for the queue: segments including their preallocated space. At least 256KiB; batches of
    /// up to 1 MiB are stored whole, so a queue needs several MiB to hold much.
    /// Quarantined data has a separate limit.
    pub max_bytes: Size,
    /// The maximum number of events that wait for any output. Default: no limit.
    pub max_events: Option<Count>,
    /// Events that have waited longer than this are dropped, counted and reported, a block at a time. Default: no limit.
    pub max_age: Option<Period>,
    /// What happens when `max_bytes` or `max_events` is reached: with `block` the inputs wait; with `drop_newest`
    /// incoming events are dropped; with `drop_oldest` the oldest events are dropped, one segment at a time. Dropped
    /// events are counted and reported. A full file system always makes the inputs wait.
    pub when_full: WhenFull,
    /// When events are safe for their input, which may then discard them or confirm them to the sender. With `fsync`:
    /// when the disk has confirmed them; neither a crash of the process nor a power failure loses any. With
    /// `interval`: when they are written to the operating system; a crash of the process loses nothing, a crash of
    /// the machine or a power failure loses at most the events of the last `sync_interval`, and the sender will not
    /// send them again.
    pub durability: Durability,
    /// With `durability: interval`: how often written data is synced to disk. With 0, every batch is synced
    /// separately before its input is notified, as with `durability: fsync`.
    pub sync_interval: Period,
    /// With `durability: fsync`: the maximum size of a group of batches that share an fsync. With 0, every batch has
    /// its own fsync.
    pub group_bytes: Size,
    /// With `durability: fsync`: how long the first batch of a group waits for others to share its fsync. With 0,
    /// every batch has its own fsync.
    pub group_time: Period,
    /// How blocks are compressed: `none`, `lz4` (fast) or `zstd` (smaller). Blocks that would not become smaller are
    /// written uncompressed. It may be changed at any time: each block records its compression.
    pub compression: Compression,
    /// The size of a segment, a file of the queue: disk space is freed one segment at a time. At least 64KiB; limited
    /// to a quarter of `max_bytes`.
    pub segment_bytes: Size,
    /// The maximum size of waiting events that are kept in memory as well, so that nothing is read from disk while
    /// outputs keep up; counted as in the memory queue. With `overflow`, the limits of the memory queue are used
    /// instead.
    pub cache_bytes: Size,
    /// Disk space that the queue leaves free on its file system. When there is less, the inputs wait, this is logged,
    /// and the queue continues automatically when there is space again.
    pub min_free_bytes: Size,
    /// Where a new output starts: with `oldest` it receives everything that is still in the queue, with `now` only
    /// events that arrive later.
    pub new_output: NewOutput,
    /// How long the queue keeps the events that an output had not accepted when it is removed from the configuration.
    /// If the output is added again within this time, it resumes where it was; with 0, its position is dropped at
    /// once.
    pub orphan_retention: Period,
    /// Whether a stop waits until the outputs have accepted everything in the queue, for at most `shutdown_deadline`.
    /// Otherwise, events on disk remain there for the next run.
    pub drain: bool,
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

impl Default for MemoryQueueSettings {
    fn default() -> Self {
        Self {
            // Small enough that a batch is still in the cores' caches when its turn comes: 16 MiB cost 4 % more CPU.
            max_bytes: Size(4 << 20),
            max_events: Count(1_000_000),
            overflow: Overflow::None,
        }
    }
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            path: None,
            max_bytes: Size(1 << 30),
            max_events: None,
            max_age: None,
            when_full: WhenFull::default(),
            durability: Durability::default(),
            sync_interval: Period::from_secs(1),
            group_bytes: Size(4 << 20),
            group_time: Period::from_millis(5),
            compression: Compression::default(),
            segment_bytes: Size(64 << 20),
            cache_bytes: Size(4 << 20),
            min_free_bytes: Size(64 << 20),
            new_output: NewOutput::default(),
            orphan_retention: Period::from_secs(24 * 60 * 60),
            drain: false,
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self::Memory(MemoryQueueSettings::default())
    }
}

impl QueueSettings {
    /// Reads the setting `queue` of a pipeline.
    ///
    /// # Errors
    /// There is no such queue, or one of its settings cannot be taken.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let (name, settings) = node.component("a queue")?;
        match name.as_str() {
            Some("memory") => {
                let memory: MemoryQueueSettings = settings.deserialize()?;
                memory.check(&settings)?;
                Ok(Self::Memory(memory))
            }
            Some("disk") => {
                let disk: DiskSettings = settings.deserialize()?;
                disk.check(&settings)?;
                Ok(Self::Disk(disk))
            }
            Some("kafka") => Ok(Self::Kafka(Box::new(KafkaQueue::read(&settings)?))),
            other => {
                let word = other.unwrap_or_default();
                let error = name.error(format!("unknown queue `{word}`"));
                Err(error.accepted(["memory", "disk", "kafka"]).closest_to(word))
            }
        }
    }

    /// The settings of its disk queue, or of the one that it flows over into; none where nothing goes to disk.
    pub fn disk(&self) -> Option<&DiskSettings> {
        match self {
            Self::Disk(disk) => Some(disk),
            Self::Memory(memory) => memory.overflow_disk(),
            Self::Kafka(_) => None,
        }
    }

    /// A queue without a disk that holds as much in memory.
    pub fn in_memory(&self) -> Self {
        let limits = self.limits();
        Self::Memory(MemoryQueueSettings {
            max_bytes: Size(limits.size_max as u64),
            max_events: Count(limits.events_max as u64),
            overflow: Overflow::None,
        })
    }

    /// What may wait or be worked on in memory.
    pub fn limits(&self) -> Limits {
        match self {
            Self::Memory(memory) => memory.limits(),
            Self::Disk(disk) => Limits {
                size_max: disk.cache_bytes.bytes(),
                ..MemoryQueueSettings::default().limits()
            },
            Self::Kafka(_) => MemoryQueueSettings::default().limits(),
        }
    }

    /// Where `node`, the setting `queue` of a pipeline, says most about the folder on disk.
    pub fn place<'n>(&self, node: &'n Node) -> &'n Node {
        match self {
            Self::Memory(_) => node.nearest("memory.overflow.disk.path"),
            Self::Disk(_) => node.nearest("disk.path"),
            Self::Kafka(_) => node,
        }
    }
}

impl MemoryQueueSettings {
    /// The queue's limits.
    pub fn limits(&self) -> Limits {
        Limits {
            size_max: self.max_bytes.bytes(),
            events_max: usize::try_from(self.max_events.0).unwrap_or(usize::MAX),
        }
    }

    /// The settings of the disk queue that takes what does not fit.
    pub fn overflow_disk(&self) -> Option<&DiskSettings> {
        match &self.overflow {
            Overflow::None => None,
            Overflow::Disk(disk) => Some(disk),
        }
    }

    fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let zeros = [
            ("max_bytes", self.max_bytes.0),
            ("max_events", self.max_events.0),
        ];
        refuse_zeros(node, &zeros)?;
        let Overflow::Disk(disk) = &self.overflow else {
            return Ok(());
        };
        let settings = node.nearest("overflow.disk");
        if let Some((name, _)) = settings.entry("cache_bytes") {
            let error = name.error("an overflow queue uses the memory limits of the memory queue");
            return Err(error.note("set `max_bytes` of the memory queue instead"));
        }
        disk.check(settings)
    }
}

impl DiskSettings {
    /// The settings that take effect together, in a queue that has `share` of the disk space that all queues share. Without
    /// time to wait for other batches, or room for them, each batch is synced by itself; to sync all the time is the same.
    /// A segment consists of whole pages, and a few segments fit.
    #[must_use]
    pub fn effective(&self, share: Option<u64>) -> Self {
        let mut settings = self.clone();
        let is_each_synced = match self.durability {
            Durability::Interval => self.sync_interval.is_zero(),
            Durability::Fsync => self.group_bytes.0 == 0 || self.group_time.is_zero(),
        };
        if is_each_synced {
            settings.durability = Durability::Fsync;
            settings.group_bytes = Size(0);
            settings.group_time = Period::default();
        }
        let room = self.max_bytes.0.min(share.unwrap_or(u64::MAX));
        let largest = (room / SEGMENTS_MIN).max(SEGMENT_SIZE_MIN.0);
        let page = PAGE as u64;
        settings.segment_bytes = Size(self.segment_bytes.0.min(largest) / page * page);
        settings
    }

    /// The queue's folder; none where neither a path is set nor a data directory known.
    pub fn folder(&self, data_dir: Option<&Path>, pipeline: &str) -> Option<PathBuf> {
        let by_name = || Some(data_dir?.join("queue").join(file_name(pipeline)));
        self.path.clone().or_else(by_name)
    }

    fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let zeros = [
            ("max_events", self.max_events.map_or(1, |count| count.0)),
            ("cache_bytes", self.cache_bytes.0),
        ];
        refuse_zeros(node, &zeros)?;
        if self.max_age.is_some_and(|age| age.is_zero()) {
            let error = node.nearest("max_age");
            return Err(error
                .error("a `max_age` of 0 would drop every event")
                .note("omit the setting to let events wait indefinitely"));
        }
        for (name, size, min) in [
            ("max_bytes", self.max_bytes, DISK_SIZE_MIN),
            ("segment_bytes", self.segment_bytes, SEGMENT_SIZE_MIN),
        ] {
            if size < min {
                let error = node.nearest(name);
                return Err(error.error(format!("`{name}` of a disk queue must be at least {min}")));
            }
        }
        if self
            .path
            .as_ref()
            .is_some_and(|path| path.as_os_str().is_empty())
        {
            return Err(node.nearest("path").error("the path of the queue is empty"));
        }
        Ok(())
    }
}

/// Refuses a limit of nothing.
fn refuse_zeros(node: &Node, limits: &[(&str, u64)]) -> Result<(), ConfigError> {
    match limits.iter().find(|(_, limit)| *limit == 0) {
        Some((name, _)) => Err(node
            .nearest(name)
            .error(format!("`{name}` must be greater than 0"))),
        None => Ok(()),
    }
}

/// Refuses a pipeline whose default folder no file system would take. `name` is its name in the configuration.
pub fn check_file_name(name: &Node) -> Result<(), ConfigError> {
    if file_name(name.as_str().unwrap_or_default()).len() <= FILE_NAME_MAX {
        return Ok(());
    }
    let error = name.error("the name of the pipeline is too long for a directory name");
    Err(error.note("give the queue a `path`"))
}

/// A name as the name of a file: what may not stand there, and what would look odd there, is percent-encoded. Different
/// names never become the same.
fn file_name(name: &str) -> String {
    if name.is_empty() {
        return "%".to_owned();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let mut encoded = String::with_capacity(name.len() + 8);
    for (index, byte) in name.bytes().enumerate() {
        // A name that begins with a dot would be hidden, or mean this folder or the one above.
        if is_plain(byte) && !(index == 0 && byte == b'.') {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The ways to write a name with settings: the name alone, or the settings below it.
fn named<T: JsonSchema>(name: &str, generator: &mut SchemaGenerator) -> [Schema; 2] {
    let settings = generator.subschema_for::<T>();
    [
        json_schema!({ "const": name }),
        json_schema!({
            "type": "object",
            "properties": { name: { "anyOf": [settings, { "type": "null" }] } },
            "required": [name],
            "additionalProperties": false,
        }),
    ]
}

impl JsonSchema for QueueSettings {
    fn schema_name() -> Cow<'static, str> {
        "QueueSettings".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let [memory, with_memory] = named::<MemoryQueueSettings>("memory", generator);
        let [disk, with_disk] = named::<DiskSettings>("disk", generator);
        // Not without its brokers.
        let [_, with_kafka] = named::<KafkaQueue>("kafka", generator);
        json_schema!({ "anyOf": [memory, disk, with_memory, with_disk, with_kafka] })
    }
}

impl JsonSchema for Overflow {
    fn schema_name() -> Cow<'static, str> {
        "Overflow".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let [disk, with_disk] = named::<DiskSettings>("disk", generator);
        json_schema!({ "anyOf": [{ "const": "none" }, disk, with_disk] })
    }
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    fn read(text: &str) -> Result<QueueSettings, ConfigError> {
        let root = parse_yaml(&Source::new("t.yaml", format!("queue: {text}\n"))).expect(text);
        QueueSettings::read(root.nearest("queue"))
    }

    fn disk(settings: &str) -> DiskSettings {
        let queue = read(&format!("{{ disk: {{ {settings} }} }}")).expect(settings);
        queue.disk().expect("a disk queue").effective(None)
    }

    #[test]
    fn every_spelling_is_read() {
        for (text, has_disk) in [
            ("memory", false),
            ("{ memory: }", false),
            ("{ memory: { overflow: none } }", false),
            ("{ memory: { max_bytes: 1MiB, overflow: disk } }", true),
            (
                "{ memory: { overflow: { disk: { max_bytes: 1MiB } } } }",
                true,
            ),
            ("disk", true),
            ("{ disk: }", true),
            ("{ disk: { max_bytes: 10GiB } }", true),
        ] {
            let queue = read(text).expect(text);
            assert_eq!(queue.disk().is_some(), has_disk, "{text}");
        }
    }

    #[test]
    fn a_zero_means_an_fsync_for_each_batch() {
        for (settings, durability, group_size) in [
            ("", Durability::Fsync, 4 << 20),
            ("group_bytes: 0", Durability::Fsync, 0),
            ("group_time: 0", Durability::Fsync, 0),
            ("group_bytes: 1MiB", Durability::Fsync, 1 << 20),
            ("sync_interval: 0", Durability::Fsync, 4 << 20),
            ("durability: interval", Durability::Interval, 4 << 20),
            (
                "durability: interval, group_bytes: 0",
                Durability::Interval,
                0,
            ),
            (
                "durability: interval, sync_interval: 0",
                Durability::Fsync,
                0,
            ),
        ] {
            let read = disk(settings);
            assert_eq!(
                (read.durability, read.group_bytes),
                (durability, Size(group_size)),
                "{settings}"
            );
        }
    }

    #[test]
    fn a_few_segments_always_fit() {
        for (settings, size) in [
            ("", 64 << 20),
            ("max_bytes: 100MiB", 25 << 20),
            ("max_bytes: 256KiB", 64 << 10),
            ("segment_bytes: 1MiB", 1 << 20),
            ("segment_bytes: 100KB", 98_304),
        ] {
            assert_eq!(disk(settings).segment_bytes, Size(size), "{settings}");
        }
    }

    #[test]
    fn names_become_different_names_of_files() {
        for (name, expected) in [
            ("apache", "apache"),
            ("a.b-c_1", "a.b-c_1"),
            ("a/b", "a%2Fb"),
            ("a%2Fb", "a%252Fb"),
            ("..", "%2E."),
            (".", "%2E"),
            ("", "%"),
            ("%", "%25"),
            ("zwölf", "zw%C3%B6lf"),
        ] {
            assert_eq!(file_name(name), expected, "{name}");
        }
    }

    #[test]
    fn the_folder_is_the_path_or_below_the_data_directory() {
        let queue = read("disk").expect("valid");
        let settings = queue.disk().expect("a disk queue");
        let data_dir = Some(Path::new("/data"));
        assert_eq!(
            settings.folder(data_dir, "a/b"),
            Some("/data/queue/a%2Fb".into())
        );
        assert_eq!(settings.folder(None, "a"), None);
        let queue = read("{ disk: { path: /here } }").expect("valid");
        let settings = queue.disk().expect("a disk queue");
        assert_eq!(settings.folder(None, "a"), Some("/here".into()));
    }
}
