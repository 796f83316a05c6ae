//! The settings that every component of a kind takes beside its own. The engine reads them; their names are those of the
//! structs' fields.

use std::borrow::Cow;
use std::fmt;

use config::{Count, Period, Positive, Size, setting_names};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::output::RequestLimits;
use crate::spec::Build;

/// The setting that holds processors, of a pipeline and of an output.
pub const PROCESSORS: &str = "processors";

impl Build {
    /// The names of the settings that the engine reads from those of a component of this kind.
    pub fn common_settings(&self) -> Vec<&'static str> {
        let output = || [setting_names::<OutputSettings>(), &[PROCESSORS]].concat();
        match self {
            Self::Input(_) | Self::Fed(_) => setting_names::<InputSettings>().to_vec(),
            Self::Processor { .. } => setting_names::<ProcessorSettings>().to_vec(),
            Self::Writer { .. } | Self::Feeder(_) => output(),
            Self::Sender(_) => [&output(), setting_names::<SendingSettings>()].concat(),
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
    /// The processor's name in counters, messages and dead letters. Default: the name of the component, from the second one of a
    /// kind on with its number, such as `grok #2`. Two processors of a pipeline cannot have one name.
    pub name: Option<String>,
    /// An expression: the processor only handles events for which it is true.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// What happens to an event that the processor cannot handle. Default: what the pipeline's `on_failure` says, `publish`
    /// without it.
    pub on_failure: Option<OnFailure>,
    /// The tag for events that the processor cannot handle, for which a lookup has no result, or of which it cut a text; each
    /// processor has its own default. An empty text means no tag.
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
    /// Whether the output receives the events for which the `if` of no other output of the pipeline is true.
    pub otherwise: bool,
}

/// Settings that every output takes that sends requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendingSettings {
    /// When a request is complete: as soon as it reaches one of these limits. If neither `max_bytes` nor `max_events` is set, a request of 512 KiB
    /// or more may be complete earlier, which saves copying its events.
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
        // Who asks for a size is to get it.
        limits.is_filled |= set.max_bytes.is_some() || set.max_events.is_some();
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
