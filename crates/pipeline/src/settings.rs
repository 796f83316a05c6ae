//! The settings that belong to no component: of the process, of a pipeline, and those that every component takes. Those
//! of queues are in [`crate::queue_settings`].

use std::path::PathBuf;

use config::{Period, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::queue_settings::{DiskQueueSettings, MemoryQueueSettings, Overflow, QueueSettings};

/// Settings of the process, at the top of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessSettings {
    /// Memory for events in flight, all pipelines together. Inputs wait when it is used up.
    pub memory: Size,
    /// The most that the disk queues of all pipelines together take on disk; each has its `max_size` as well. When it is
    /// used up, a queue that wants more does what its `when_full` says. Default: no common limit.
    pub disk: Option<Size>,
    /// Worker threads of each pipeline; 0 means one a core.
    pub workers: usize,
    /// The directory where inputs remember how far they are, so that a later run goes on there, and where disk queues have
    /// their folders. One process at a time uses it. By default nothing is remembered.
    pub data_dir: Option<PathBuf>,
    /// How long a stop may take: what is not delivered by then is reported.
    pub shutdown_deadline: Period,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            memory: Size(256 << 20),
            disk: None,
            workers: 0,
            data_dir: None,
            shutdown_deadline: Period::from_secs(30),
        }
    }
}

/// How a pipeline repeats writes that failed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySettings {
    /// The first pause; each further one is twice as long. Pauses vary by a random part, so that many senders do not
    /// come back at once.
    pub initial: Period,
    /// The longest pause.
    pub max: Period,
    /// When to give up, counted from the first failure: the output then takes nothing more until the next start, and what it
    /// has not taken stays in the disk queue, or is reported as not delivered. By default never in a service, and after 30 s
    /// in a one-line pipeline.
    pub give_up_after: Option<Period>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            initial: Period::from_millis(100),
            max: Period::from_secs(10),
            give_up_after: None,
        }
    }
}

/// What happens to an event that a processor cannot handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is tagged, skips the later processors that write, and is published in its last good form.
    #[default]
    Publish,
    /// It is tagged and goes on through the later processors.
    Continue,
    /// It is dropped and counted.
    Drop,
    /// It goes to the dead letters. Not available yet.
    DeadLetter,
}

/// Settings that every processor takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorSettings {
    /// An expression: the processor handles the events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// What happens to an event that the processor cannot handle.
    pub on_failure: OnFailure,
    /// The tag for events that the processor cannot handle, or finds nothing for; each processor has its own default.
    pub tag: Option<String>,
}

/// Settings that every output takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// The output's name in reports; the component's name by default. A second one of a kind must set it.
    pub name: Option<String>,
    /// An expression: the output takes the events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
}

/// Settings that every input takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InputSettings {
    /// The input's name in reports; the component's name by default. A second one of a kind must set it.
    pub name: Option<String>,
}
