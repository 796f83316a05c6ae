//! The settings of a queue that is a topic.

use config::{ConfigError, Node, Size};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::is_topic;
use crate::settings::{BrokerSettings, RecordCompression};

/// The smallest limit for a record.
const RECORD_MIN: Size = Size(16 << 10);

/// The settings of a queue in Kafka, without those of the client.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaQueueSettings {
    /// The topic that holds the events. Each pipeline needs its own. Default: `millpond.` and the name of the pipeline.
    pub topic: Option<String>,
    /// The consumer group in which machines share the work for an output is this name, a dot and the name of the output; with `shared`, it is this
    /// name. Default: the name of the topic.
    pub group: Option<String>,
    /// What this machine does: `receive`: its inputs read, and put events into the topic; `process`: it takes events from the topic, processes
    /// them and writes them to the outputs. Both may also be written as a text, `receive,process`, such as that of a variable.
    #[serde(deserialize_with = "roles")]
    pub roles: Vec<QueueRole>,
    /// Whether all outputs share one position in the topic. Each batch is then processed once, and the slowest output sets the pace of all. Otherwise each output has a
    /// position, and each batch is processed once for each output.
    pub shared: bool,
    /// How records are compressed.
    pub compression: RecordCompression,
    /// The maximum size of a record before compression; a batch of events that is larger becomes several. If the topic has a lower
    /// `max.message.bytes`, that counts. At least 16KiB.
    pub max_record_bytes: Size,
    /// The maximum size of the records that brokers have not acknowledged. They need this memory in addition to `max_memory_bytes`.
    pub max_in_flight_bytes: Size,
    /// The number of partitions with which the topic is created if it does not exist: at most so many machines share the work for an output.
    pub partitions: u32,
    /// The number of replicas of each partition if the topic is created. Default: what brokers are set to.
    pub replicas: Option<u32>,
}

/// What a machine does for a queue that several share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueRole {
    /// Its inputs read, and put events into the queue.
    Receive,
    /// It takes events from the queue and processes them.
    Process,
}

/// A list, of which each text may name several roles.
fn roles<'de, D: Deserializer<'de>>(settings: D) -> Result<Vec<QueueRole>, D::Error> {
    let texts = Vec::<String>::deserialize(settings)?;
    let names = texts.iter().flat_map(|text| text.split(','));
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    let role = |name: &str| match name {
        "receive" => Ok(QueueRole::Receive),
        "process" => Ok(QueueRole::Process),
        _ => Err(D::Error::unknown_variant(name, &["receive", "process"])),
    };
    names.map(role).collect()
}

impl Default for KafkaQueueSettings {
    fn default() -> Self {
        Self {
            topic: None,
            group: None,
            roles: vec![QueueRole::Receive, QueueRole::Process],
            shared: false,
            compression: RecordCompression::None,
            // Brokers take 1 MiB unless they are told otherwise, with what they and the protocol add.
            max_record_bytes: Size(960 << 10),
            max_in_flight_bytes: Size(32 << 20),
            partitions: 12,
            replicas: None,
        }
    }
}

/// A queue in Kafka.
#[derive(Debug, Clone)]
pub struct KafkaQueue {
    /// Where the brokers are.
    pub brokers: BrokerSettings,
    /// The other settings.
    pub own: KafkaQueueSettings,
    /// Where the settings stand.
    pub node: Node,
}

impl KafkaQueue {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn read(node: &Node) -> Result<Self, ConfigError> {
        let (brokers, rest) = BrokerSettings::divide(node)?;
        let own: KafkaQueueSettings = BrokerSettings::parse_rest(&rest)?;
        if own.roles.is_empty() {
            let error = node.nearest("roles").error("a machine needs a role");
            return Err(error.accepted(["receive", "process"]));
        }
        if let Some(topic) = own.topic.as_deref().filter(|topic| !is_topic(topic)) {
            let at = node.nearest("topic");
            return Err(at.error(format!("`{topic}` cannot be the name of a topic")));
        }
        if own.group.as_deref() == Some("") {
            let at = node.nearest("group");
            return Err(at.error("the name of a group is expected"));
        }
        for (name, size) in [
            ("max_record_bytes", own.max_record_bytes),
            ("max_in_flight_bytes", own.max_in_flight_bytes),
        ] {
            if size < RECORD_MIN {
                let at = node.nearest(name);
                return Err(at.error(format!("`{name}` must be at least {RECORD_MIN}")));
            }
        }
        for (name, number) in [
            ("partitions", own.partitions),
            ("replicas", own.replicas.unwrap_or(1)),
        ] {
            if number == 0 {
                let at = node.nearest(name);
                return Err(at.error(format!("`{name}` must be greater than 0")));
            }
        }
        Ok(Self {
            brokers,
            own,
            node: node.clone(),
        })
    }

    /// Whether this machine does this.
    pub fn has(&self, role: QueueRole) -> bool {
        self.own.roles.contains(&role)
    }

    /// The topic of a pipeline.
    ///
    /// # Errors
    /// No topic is set, and the name of the pipeline cannot be a part of one.
    pub fn topic(&self, pipeline: &str) -> Result<String, ConfigError> {
        if let Some(topic) = &self.own.topic {
            return Ok(topic.clone());
        }
        let topic = format!("millpond.{pipeline}");
        match is_topic(&topic) {
            true => Ok(topic),
            false => {
                let error = self.node.error(format!(
                    "the name of the pipeline, `{pipeline}`, cannot be a part of the name of a topic"
                ));
                Err(error.note("set `topic`"))
            }
        }
    }

    /// The group for an output, or where all share one.
    ///
    /// # Errors
    /// As for [`Self::topic`].
    pub fn group(&self, pipeline: &str, output: Option<&str>) -> Result<String, ConfigError> {
        let group = match &self.own.group {
            Some(group) => group.clone(),
            None => self.topic(pipeline)?,
        };
        Ok(match output {
            Some(output) => format!("{group}.{output}"),
            None => group,
        })
    }
}

impl JsonSchema for KafkaQueue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KafkaQueue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let own = KafkaQueueSettings::json_schema(generator);
        component::beside(own, BrokerSettings::json_schema(generator))
    }
}

#[cfg(test)]
mod tests {
    use ::config::{Source, parse_yaml};

    use super::*;

    fn read(yaml: &str) -> Result<KafkaQueue, ConfigError> {
        let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
        KafkaQueue::read(&node)
    }

    #[test]
    fn topics_and_groups_follow_from_the_names_of_pipelines() {
        let queue = read("{brokers: a}").expect("settings");
        assert_eq!(queue.topic("web").expect("a name"), "millpond.web");
        let groups = [None, Some("es")].map(|it| queue.group("web", it).expect("a name"));
        assert_eq!(groups, ["millpond.web", "millpond.web.es"]);
        let error = queue.topic("a b").expect_err("a space").to_string();
        assert!(error.contains("set `topic`"), "{error}");
        let queue = read("{brokers: a, topic: t, group: g, roles: process}").expect("settings");
        assert_eq!(queue.topic("a b").expect("a name"), "t");
        assert_eq!(queue.group("a b", Some("es")).expect("a name"), "g.es");
        assert!(queue.has(QueueRole::Process) && !queue.has(QueueRole::Receive));
        let queue = read("{brokers: a, roles: 'receive, process'}").expect("settings");
        assert!(queue.has(QueueRole::Process) && queue.has(QueueRole::Receive));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{}", "`brokers` is missing"),
            ("{brokers: a, roles: []}", "needs a role"),
            ("{brokers: a, roles: [send]}", "send"),
            ("{brokers: a, roles: ''}", "needs a role"),
            ("{brokers: a, roles: 'receive,send'}", "send"),
            ("{brokers: a, topic: 'a b'}", "cannot be the name"),
            ("{brokers: a, group: ''}", "name of a group"),
            ("{brokers: a, max_record_bytes: 1KiB}", "at least 16KiB"),
            ("{brokers: a, partitions: 0}", "greater than 0"),
            ("{brokers: a, replicas: 0}", "greater than 0"),
            ("{brokers: a, acks: all}", "unknown setting `acks`"),
        ] {
            let error = read(yaml).expect_err(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
