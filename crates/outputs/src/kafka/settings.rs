//! The settings of `kafka`.

use std::collections::BTreeMap;

use ::kafka::{BrokerSettings, RecordCompression};
use config::{ConfigError, Node, Period, Positive};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::codec::{CodecName, CodecSettings};
use crate::schema::{codec_beside, with};

/// The settings of `kafka`, without those of the client and of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only checked"))]
pub struct Config {
    /// The topic. May contain `%{field}` and `%{+time format}`; a field that is absent or null is written as `-`.
    pub topic: String,
    /// The key of a record, which may contain `%{field}`. Records with the same key go to the same partition. An event that lacks one of the
    /// fields gets no key. Default: no key.
    pub key: Option<String>,
    /// A field with the number of the partition. An event without it goes where its key or the partitioner says.
    pub partition: Option<String>,
    /// A field with the time of a record. An event without it gets the time of sending. Default: the time of sending.
    pub timestamp: Option<String>,
    /// Headers of a record, each with its text, which may contain `%{field}`. A header whose text is empty is left out.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether records carry the ids of their events, in the header `event_id`.
    #[serde(default)]
    pub event_ids: bool,
    /// How batches of records are compressed.
    #[serde(default)]
    pub compression: RecordCompression,
    /// Who must have a record before it counts as delivered.
    #[serde(default)]
    pub acks: Acks,
    /// Whether brokers drop what they get twice from this client. Requires `acks: all`. Default: `true` with `acks: all`.
    pub idempotent: Option<bool>,
    /// How long a request may wait for the brokers before that is reported. The client goes on sending it.
    #[serde(default = "timeout")]
    pub timeout: Positive<Period>,
}

fn timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(30)
}

/// Who must have a record.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Acks {
    /// All replicas that are in sync.
    #[default]
    #[serde(rename = "all")]
    All,
    /// The leader of the partition. A record is lost if the leader fails before others have it.
    #[serde(rename = "1")]
    Leader,
    /// Nobody: a record counts as delivered when it has been sent. What is lost on the way is not noticed.
    #[serde(rename = "0")]
    Nobody,
}

impl Acks {
    /// As librdkafka writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leader => "1",
            Self::Nobody => "0",
        }
    }
}

/// All settings of an output.
#[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only checked"))]
pub struct KafkaSettings {
    pub brokers: BrokerSettings,
    pub codec: CodecSettings,
    pub own: Config,
    pub is_idempotent: bool,
}

impl KafkaSettings {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let (brokers, rest) = BrokerSettings::divide(node)?;
        let (codec, rest) = CodecSettings::divide(&rest)?;
        let own: Config = BrokerSettings::parse_rest(&rest)?;
        let is_all = own.acks == Acks::All;
        if own.idempotent == Some(true) && !is_all {
            let name = own.acks.name();
            let error = node.nearest("idempotent");
            return Err(error.error(format!(
                "`idempotent` requires `acks: all`, not `acks: {name}`"
            )));
        }
        Ok(Self {
            is_idempotent: own.idempotent.unwrap_or(is_all),
            brokers,
            codec,
            own,
        })
    }
}

/// The schema of all settings.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    let own = with::<Config, BrokerSettings>(generator);
    codec_beside(own, generator, CodecName::Json)
}
