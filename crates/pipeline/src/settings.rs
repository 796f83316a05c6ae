//! The settings that belong to no component: of the process, of a pipeline, and those that every component takes. Those
//! of queues are in [`crate::queue_settings`].

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use component::RequestLimits;
use config::{Count, Period, Positive, Size};
use queue::letters::{LetterSettings, WhenLettersFull};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

pub use crate::queue_settings::{DiskQueueSettings, MemoryQueueSettings, Overflow, QueueSettings};

/// Settings of the process, at the top of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessSettings {
    /// Memory for events in flight, all pipelines together. Inputs wait when it is used up.
    pub max_memory_bytes: Size,
    /// The most that the disk queues of all pipelines together take on disk; each has its `max_bytes` as well. When it is
    /// used up, a queue that wants more does what its `when_full` says. Default: no common limit.
    pub max_disk_bytes: Option<Size>,
    /// Worker threads, which all pipelines share; 0 means one a core.
    pub workers: usize,
    /// The directory where inputs remember how far they are, so that a later run goes on there, and where disk queues have
    /// their folders. One process at a time uses it. By default nothing is remembered.
    #[serde(default, deserialize_with = "config::paths")]
    pub data_dir: Option<PathBuf>,
    /// How dead letters are kept: events that an output refused, or that a processor with `on_failure: dead_letter` could not
    /// handle. They are kept below `data_dir`; without one, refused events are lost, and a run that had any ends with exit code 1.
    pub dead_letters: DeadLetterSettings,
    /// How long a stop may take: what is not delivered by then is reported.
    pub shutdown_deadline: Period,
    /// The log of a service, on standard error.
    pub log: LogSettings,
}

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            max_memory_bytes: Size(256 << 20),
            max_disk_bytes: None,
            workers: 0,
            data_dir: None,
            dead_letters: DeadLetterSettings::default(),
            shutdown_deadline: Period::from_secs(30),
            log: LogSettings::default(),
        }
    }
}

/// How dead letters are kept. Each pipeline has as much room as this says.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeadLetterSettings {
    /// The most that the dead letters of one pipeline take on disk.
    pub max_bytes: Size,
    /// How long they are kept; older ones are dropped and counted. By default until they are replayed or purged.
    pub max_age: Option<Period>,
    /// What happens to new ones when there are as many as `max_bytes` allows.
    pub when_full: WhenLettersFull,
}

/// The least room for dead letters.
pub(crate) const LETTERS_SIZE_MIN: Size = Size(1 << 20);

impl Default for DeadLetterSettings {
    fn default() -> Self {
        Self {
            max_bytes: Size(1 << 30),
            max_age: None,
            when_full: WhenLettersFull::default(),
        }
    }
}

impl DeadLetterSettings {
    /// As the store of a pipeline takes them.
    pub fn settings(&self) -> LetterSettings {
        LetterSettings {
            max_size: self.max_bytes.0,
            max_age: self.max_age.map(|age| age.0),
            when_full: self.when_full,
        }
    }
}

/// The log of a service, on standard error. A one-line pipeline, which a person watches, writes `warning: …` and `error: …`
/// without time.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
    /// Messages below this level are not written. The environment variable RUST_LOG overrides it.
    pub level: LogLevel,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Time, level, pipeline, component and message, as a line of text.
    #[default]
    Text,
    /// The same as a JSON object.
    Json,
}

/// The least level of messages that are written to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Something was lost, or could not be done.
    Error,
    /// Also: something was cut, replaced or skipped, or is tried again.
    Warn,
    /// Also: start and end, and what works again.
    #[default]
    Info,
    /// Also: the details that libraries log.
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

/// How a pipeline repeats writes that failed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetrySettings {
    /// The first pause; each further one is twice as long. Pauses vary by a random part, so that many senders do not
    /// come back at once.
    pub initial: Positive<Period>,
    /// The longest pause.
    pub max: Positive<Period>,
    /// When to give up, counted from the first failure of a write or a request, also when others succeed meanwhile: the output then takes nothing more until the next start, and what it
    /// has not taken stays in the disk queue, or is reported as not delivered. By default never in a service, and after 30 s
    /// in a one-line pipeline.
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
    /// It is tagged, skips the later processors that write, and is published in its last good form.
    #[default]
    Publish,
    /// It is tagged and goes on through the later processors.
    Continue,
    /// It is dropped and counted.
    Drop,
    /// It becomes a dead letter as it was before this processor, and leaves the pipeline. Needs a `data_dir`.
    DeadLetter,
}

/// Settings that every processor takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessorSettings {
    /// The processor's name in counters, messages and dead letters; by default the component's, and from the second one of a kind
    /// on with its number, such as `grok #2`. Two processors of a pipeline cannot have one name.
    pub name: Option<String>,
    /// An expression: the processor handles the events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// What happens to an event that the processor cannot handle. Default: what the pipeline's `on_failure` says, `publish`
    /// without it.
    pub on_failure: Option<OnFailure>,
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

/// Settings that every output takes that sends requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingSettings {
    /// When a request is complete: as soon as it reaches one of these.
    pub batch: BatchSettings,
    /// How many requests may be in flight: `adaptive`, which grows while answers come quickly and shrinks when requests fail,
    /// or a number.
    pub concurrency: Concurrency,
}

/// When a request is complete. The output's page says what each is by default.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSettings {
    /// The most bytes of a request, before it is compressed. A larger event makes a request of its own.
    pub max_bytes: Option<Positive<Size>>,
    /// The most events of a request.
    pub max_events: Option<Positive<Count>>,
    /// How long an event waits for others; 0 for not at all.
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
                write!(f, "`adaptive`, or a number from 1 to {CONCURRENCY_MAX}")
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
    /// The input's name in reports; the component's name by default. A second one of a kind must set it.
    pub name: Option<String>,
}
