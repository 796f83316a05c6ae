//! The settings that belong to no component: of the process, of a pipeline, and those that every component takes. Those
//! of queues and dead letters are in the crate `queue`.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use component::RequestLimits;
use config::{Count, Period, Positive, Size};
use queue::letters::LetterSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

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

/// What happens to an event that a processor cannot handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is tagged, skips the later processors that modify events, and is published as it was before the failure.
    #[default]
    Publish,
    /// It is tagged and continues through the later processors.
    Continue,
    /// It is dropped and counted.
    Drop,
    /// It becomes a dead letter, as it was before this processor, and leaves the pipeline. Requires a `data_dir`.
    DeadLetter,
}

/// Settings that every processor takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorSettings {
    /// The processor's name in counters, messages and dead letters; by default the component's, and from the second one of a kind
    /// on with its number, such as `grok #2`. Two processors of a pipeline cannot have one name.
    pub name: Option<String>,
    /// An expression: the processor only handles events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// What happens to an event that the processor cannot handle. Default: what the pipeline's `on_failure` says, `publish`
    /// without it.
    pub on_failure: Option<OnFailure>,
    /// The tag for events that the processor cannot handle, or for which a lookup has no result; each processor has
    /// its own default. An empty text means no tag.
    pub tag: Option<String>,
}

/// Settings that every output takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// The name of the output in reports. Default: the name of the component. Required if there are several outputs
    /// of the same kind.
    pub name: Option<String>,
    /// An expression: the output only receives events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// Whether the output receives the events for which the `if` of no other output of the pipeline is true. Default: false.
    pub otherwise: bool,
}

/// Settings that every output takes that sends requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingSettings {
    /// When a request is complete: as soon as it reaches one of these limits.
    pub batch: BatchSettings,
    /// The maximum number of requests in flight: `adaptive`, which grows while responses are fast and shrinks when
    /// requests fail, or a number.
    pub concurrency: Concurrency,
}

/// When a request is complete. The page of the output lists the defaults.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSettings {
    /// The maximum size of a request before compression. A larger event is sent in a separate request.
    pub max_bytes: Option<Positive<Size>>,
    /// The maximum number of events in a request.
    pub max_events: Option<Positive<Count>>,
    /// How long an event waits for others; 0 disables waiting.
    pub max_age: Option<Period>,
}

/// How many requests may be in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// As many as the destination answers quickly.
    #[default]
    Adaptive,
    /// So many.
    Fixed(usize),
}

/// The most requests in flight that may be set.
const CONCURRENCY_MAX: u64 = 1024;

impl SendingSettings {
    /// Puts what is set in the place of an output's own limits.
    pub fn apply(&self, limits: &mut RequestLimits) {
        let set = &self.batch;
        limits.size_max = set.max_bytes.map_or(limits.size_max, |size| size.bytes());
        if limits.rows_max > 1 {
            limits.rows_max = set.max_events.map_or(limits.rows_max, |count| {
                usize::try_from(count.0).unwrap_or(usize::MAX)
            });
        }
        limits.age_max = set.max_age.map_or(limits.age_max, |age| age.0);
    }
}

impl Serialize for Concurrency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Adaptive => serializer.serialize_str("adaptive"),
            Self::Fixed(limit) => serializer.serialize_u64(*limit as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expected;

        impl Visitor<'_> for Expected {
            type Value = Concurrency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`adaptive` or a number from 1 to {CONCURRENCY_MAX}")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Concurrency, E> {
                match value {
                    1..=CONCURRENCY_MAX => Ok(Concurrency::Fixed(value as usize)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(value), &self)),
                }
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Concurrency, E> {
                let unexpected = de::Unexpected::Signed(value);
                let value = u64::try_from(value).map_err(|_| E::invalid_value(unexpected, &self));
                value.and_then(|value| self.visit_u64(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Concurrency, E> {
                match text {
                    "adaptive" => Ok(Concurrency::Adaptive),
                    // The one-line notation knows texts only.
                    _ => match text.parse() {
                        Ok(value) => self.visit_u64(value),
                        Err(_) => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                    },
                }
            }
        }

        deserializer.deserialize_any(Expected)
    }
}

impl JsonSchema for Concurrency {
    fn schema_name() -> Cow<'static, str> {
        "Concurrency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [
                { "type": "string", "const": "adaptive" },
                { "type": "integer", "minimum": 1, "maximum": CONCURRENCY_MAX },
            ],
        })
    }
}

/// Settings that every input takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InputSettings {
    /// The name of the input in reports. Default: the name of the component. Required if there are several inputs of
    /// the same kind.
    pub name: Option<String>,
}
