//! The settings of `kafka`.

#[cfg(feature = "kafka")]
use ::kafka::queue::KafkaQueue;
use ::kafka::{BrokerSettings, is_topic};
use config::{ConfigError, Node, Size};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::messages::settings::{MessageCodec, Start, Until, start_default};
use crate::reading::settings::line_size_default;

/// The settings of `kafka`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The topics: names, and POSIX extended regular expressions that begin with `^` and match the names of all topics that are read, also those that are created later.
    /// Where there is one, topics of brokers themselves, whose names begin with `__`, are not read.
    pub(super) topics: Vec<String>,
    /// The consumer group. The partitions of the topics are shared among its members; the brokers keep its offsets.
    pub(super) group: String,
    /// Where a partition is begun for which the group has no offset: `beginning`, `end`, or an RFC 3339 time, for the first record with that
    /// time or a later one.
    #[serde(default = "start_default")]
    pub(super) start: String,
    /// Where to end: `end`, for the records that are there at the start. Default: the input works until it is stopped.
    pub(super) until: Option<Until>,
    /// The format of records.
    #[serde(default)]
    pub(super) codec: MessageCodec,
    /// The maximum length of a record in bytes; longer ones are truncated and tagged `_truncated`. At most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Adds `@timestamp` and `host.name` to JSON events that do not have these fields; events of text
    /// always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
    /// Whether the header `event_id` of a record is the id of its event, as the output `kafka` writes it with the same setting.
    #[serde(default)]
    pub(super) event_ids: bool,
}

/// What the records of a topic hold.
#[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only checked"))]
pub(super) enum RecordForm {
    /// A document each.
    Documents {
        codec: Box<codec::Settings>,
        /// Whether a header has its id.
        event_ids: bool,
    },
    /// A batch each, in its stored form.
    Batches,
}

/// All settings of an input.
#[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only checked"))]
pub(super) struct KafkaSettings {
    pub(super) brokers: BrokerSettings,
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) start: Start,
    /// Whether it ends with the records that are there at the start.
    pub(super) is_finite: bool,
    pub(super) form: RecordForm,
}

impl KafkaSettings {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub(super) fn read(node: &Node) -> Result<Self, ConfigError> {
        let (brokers, rest) = BrokerSettings::divide(node)?;
        let own: Config = BrokerSettings::parse_rest(&rest)?;
        check_topics(&own.topics, node.nearest("topics"))?;
        if own.group.is_empty() {
            return Err(node
                .nearest("group")
                .error("the name of a group is expected"));
        }
        let start = Start::read(&own.start, node.nearest("start"))?;
        let others = (own.add_fields, own.max_line_bytes, own.timezone.as_deref());
        let codec = own.codec.settings(others, node)?;
        Ok(Self {
            brokers,
            topics: own.topics,
            group: own.group,
            start,
            is_finite: own.until.is_some(),
            form: RecordForm::Documents {
                codec: codec.into(),
                event_ids: own.event_ids,
            },
        })
    }

    /// Those of a member of a group that takes events from a queue.
    #[cfg(feature = "kafka")]
    pub(super) fn of_queue(queue: &KafkaQueue, topic: String, group: String) -> Self {
        Self {
            brokers: queue.brokers.clone(),
            topics: vec![topic],
            group,
            start: Start::Beginning,
            is_finite: false,
            form: RecordForm::Batches,
        }
    }
}

fn check_topics(topics: &[String], node: &Node) -> Result<(), ConfigError> {
    if topics.is_empty() {
        return Err(node.error("`topics` is missing: the names of topics"));
    }
    for (index, topic) in topics.iter().enumerate() {
        let at = node.items().get(index).unwrap_or(node);
        if topic.starts_with('^') {
            regex::Regex::new(topic).map_err(|error| {
                at.error(format!("`{topic}` is not a regular expression: {error}"))
            })?;
            // They are POSIX extended regular expressions for librdkafka.
            let mut escaped = topic.split('\\').skip(1);
            let is_class = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric());
            if topic.contains("(?") || escaped.any(is_class) {
                let error = at.error(format!(
                    "`{topic}` is not a POSIX extended regular expression, which has no `\\d`, `\\w`, `\\b` and `(?`"
                ));
                return Err(error.note("write `[0-9]` for `\\d`"));
            }
        } else if !is_topic(topic) {
            let error = at.error(format!("`{topic}` cannot be the name of a topic"));
            return Err(error.note("a regular expression begins with `^`"));
        }
    }
    Ok(())
}

/// The schema of all settings.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let own = Config::json_schema(generator);
    component::beside(own, BrokerSettings::json_schema(generator))
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    fn read(yaml: &str) -> Result<KafkaSettings, ConfigError> {
        let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
        KafkaSettings::read(&node)
    }

    #[test]
    fn a_start_is_an_end_or_a_time() {
        for (start, expected) in [
            ("beginning", Start::Beginning),
            ("end", Start::End),
            ("2026-01-02T03:04:05.678Z", Start::Time(1_767_323_045_678)),
        ] {
            let yaml = format!("{{brokers: b, topics: t, group: g, start: '{start}'}}");
            assert_eq!(read(&yaml).expect("settings").start, expected);
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{topics: t, group: g}", "`brokers` is missing"),
            ("{brokers: b, group: g}", "topics"),
            ("{brokers: b, topics: [], group: g}", "`topics` is missing"),
            ("{brokers: b, topics: t}", "group"),
            ("{brokers: b, topics: t, group: ''}", "the name of a group"),
            (
                "{brokers: b, topics: [t, 'a*'], group: g}",
                "begins with `^`",
            ),
            (
                "{brokers: b, topics: '^a(', group: g}",
                "not a regular expression",
            ),
            (
                "{brokers: b, topics: '^a\\d', group: g}",
                "not a POSIX extended",
            ),
            (
                "{brokers: b, topics: '^(?i)a', group: g}",
                "not a POSIX extended",
            ),
            (
                "{brokers: b, topics: t, group: g, start: now}",
                "`beginning`, `end`",
            ),
            (
                "{brokers: b, topics: t, group: g, topic: x}",
                "unknown setting `topic`",
            ),
            ("{brokers: b, topics: t, group: g, codec: csv}", "csv"),
        ] {
            let error = read(yaml).err().expect(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
