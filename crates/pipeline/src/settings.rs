//! The settings of the process and of a pipeline. Those of queues and dead letters are in the crate `queue`, those that
//! every component takes in [`component::settings`].

use std::path::PathBuf;

use config::{Period, Positive, Size};
use queue::letters::LetterSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use component::settings::{
    BatchSettings, Concurrency, InputSettings, OnFailure, OutputSettings, ProcessorSettings,
    SendingSettings,
};
pub use kafka::queue::KafkaQueue;
pub use queue::{DiskSettings, MemoryQueueSettings, Overflow, QueueSettings};

/// Settings of the process, at the top of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessSettings {
    /// The maximum memory for events in flight, for all pipelines together. Inputs wait when it is used up.
    pub max_memory_bytes: Size,
    /// The maximum disk space for the disk queues of all pipelines together; each also has its own `max_bytes`. When
    /// it is used up, a queue that needs more applies its `when_full`. Default: no common limit.
    pub max_disk_bytes: Option<Size>,
    /// The number of worker threads, which all pipelines share; 0 means one per core.
    pub workers: usize,
    /// The directory where inputs save their positions, so that a later run resumes there, and where disk queues are
    /// stored. Only one process at a time can use it. Default: no state is saved.
    #[serde(default, deserialize_with = "config::paths")]
    pub data_dir: Option<PathBuf>,
    /// How dead letters are stored: events that an output rejected, or that a processor with `on_failure:
    /// dead_letter` could not handle. They are stored in `data_dir`; without it, rejected events are lost, and the
    /// run ends with exit code 1 if there were any.
    pub dead_letters: LetterSettings,
    /// The maximum time for a stop; anything undelivered by then is reported.
    pub shutdown_deadline: Period,
    /// Logging of a service, on standard error.
    pub log: LogSettings,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            max_memory_bytes: Size(256 << 20),
            max_disk_bytes: None,
            workers: 0,
            data_dir: None,
            dead_letters: LetterSettings::default(),
            shutdown_deadline: Period::from_secs(30),
            log: LogSettings::default(),
        }
    }
}

impl ProcessSettings {
    /// Worker threads: one for each CPU, unless `workers` says otherwise.
    pub fn worker_threads(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

/// The reason under which events that became dead letters are counted as dropped.
pub(crate) const DEAD_LETTER: &str = "dead letter";

/// The least room for dead letters.
pub(crate) const LETTERS_SIZE_MIN: Size = Size(1 << 20);

/// Logging of a service, on standard error. A one-line pipeline writes `warning: …` and `error: …` without a time.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// The format of the log.
    pub format: LogFormat,
    /// The minimum level of messages. The environment variable RUST_LOG overrides it.
    pub level: LogLevel,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines of text with time, level, pipeline, component and message.
    #[default]
    Text,
    /// JSON objects with the same content.
    Json,
}

/// The minimum level of messages in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something was lost or failed.
    Error,
    /// Also: something was truncated, replaced, skipped or is being retried.
    Warn,
    /// Also: start and stop, and recovery.
    #[default]
    Info,
    /// Also: details logged by libraries.
    Debug,
}

impl LogLevel {
    /// This level, or one without what tells that all is well.
    #[must_use]
    pub fn without_info(self) -> Self {
        match self {
            Self::Error => Self::Error,
            Self::Warn | Self::Info | Self::Debug => Self::Warn,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// How a pipeline retries failed writes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySettings {
    /// The delay before the first retry; each further delay is twice as long. Delays vary randomly, so that many
    /// senders do not retry at the same time.
    pub initial: Positive<Period>,
    /// The maximum delay.
    pub max: Positive<Period>,
    /// The retry time limit, counted from the first failure of a write or a request, even if others succeed in the
    /// meantime. The output then accepts no more events until the next start, and events that it has not accepted
    /// remain in the disk queue or are reported as undelivered. Default: never in a service, 30 s in a one-line
    /// pipeline.
    pub give_up_after: Option<Period>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            initial: Positive::<Period>::from_millis(100),
            max: Positive::<Period>::from_secs(10),
            give_up_after: None,
        }
    }
}
