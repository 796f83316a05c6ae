//! The settings of `redis`.

use std::time::Duration;

use config::{ConfigError, Node, Period, Positive, Size};
use net::redis::{Login, PORT};
use net::{ClientTls, Endpoint, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::messages::settings::{MessageCodec, Start, Until, start_default};
use crate::reading::settings::line_size_default;

/// What a key holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DataType {
    /// A list: events are taken from its head.
    #[default]
    List,
    /// A stream, read as a member of the consumer group `group`.
    Stream,
}

/// The settings of `redis`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The servers, `HOST` or `HOST:PORT`; the port is 6379 by default. The key is read on each of them.
    pub(super) hosts: Vec<Endpoint>,
    /// The key of the list or stream.
    pub(super) key: String,
    /// Whether `key` is a list or a stream.
    #[serde(default)]
    pub(super) data_type: DataType,
    /// The consumer group of a stream, which shares its entries among its members. It is created if it does not exist.
    pub(super) group: Option<String>,
    /// The name of this reader, which has to be the same after a restart, and another one for each reader of the key. Default: the
    /// host name.
    pub(super) consumer: Option<String>,
    /// Where a group that does not exist yet begins: `beginning`, `end`, or an RFC 3339 time, for the first entry of that time or a
    /// later one.
    #[serde(default = "start_default")]
    pub(super) start: String,
    /// Where to end: `end`, for what is there at the start. Default: the input works until it is stopped.
    pub(super) until: Option<Until>,
    /// How long another consumer of the group may leave an entry that it has read before this one takes it over.
    #[serde(default = "claim_default")]
    pub(super) claim_after: Positive<Period>,
    /// The field of an entry of a stream that holds the event. An entry without it is read as a JSON object of all its fields.
    #[serde(default = "field_default")]
    pub(super) field: String,
    /// The number of the database.
    #[serde(default)]
    pub(super) db: u32,
    /// The user (`AUTH`). Requires `password`. Default: the server's default user.
    pub(super) user: Option<String>,
    /// The password, or `file:PATH` for the content of a file.
    pub(super) password: Option<Secret>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ClientTls>,
    /// The maximum time to establish a connection, including TLS.
    #[serde(default = "connect_default")]
    pub(super) connect_timeout: Positive<Period>,
    /// The maximum time for an answer. After that, the connection is closed, and another one is made.
    #[serde(default = "timeout_default")]
    pub(super) timeout: Positive<Period>,
    /// The format of events.
    #[serde(default)]
    pub(super) codec: MessageCodec,
    /// The maximum length of an event in bytes; longer ones are truncated and tagged `_truncated`. At most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Adds `@timestamp` and `host.name` to JSON events that do not have these fields; events of text
    /// always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
}

fn claim_default() -> Positive<Period> {
    Positive::<Period>::from_secs(600)
}

fn field_default() -> String {
    "event".to_owned()
}

fn connect_default() -> Positive<Period> {
    Positive::<Period>::from_secs(10)
}

fn timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

/// What `claim_after` must at least be: entries are kept every second.
const CLAIM_MIN: Duration = Duration::from_secs(5);

/// All settings of an input.
pub(super) struct RedisSettings {
    pub(super) own: Config,
    pub(super) hosts: Vec<Endpoint>,
    pub(super) login: Login,
    /// Empty for lists.
    pub(super) group: String,
    pub(super) start: Start,
    pub(super) codec: codec::Settings,
}

impl RedisSettings {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub(super) fn read(node: &Node) -> Result<Self, ConfigError> {
        let own: Config = component::parse(node)?;
        if own.hosts.is_empty() {
            let error = node.error("`hosts` is missing: the addresses of servers");
            return Err(error.note("set `hosts: HOST:PORT`, or a list of them"));
        }
        for (name, is_empty) in [
            ("key", own.key.is_empty()),
            ("group", own.group.as_deref() == Some("")),
            ("consumer", own.consumer.as_deref() == Some("")),
            ("field", own.field.is_empty()),
        ] {
            if is_empty {
                return Err(node.nearest(name).error(format!("`{name}` is empty")));
            }
        }
        if own.user.is_some() && own.password.is_none() {
            return Err(node.nearest("user").error("`user` requires `password`"));
        }
        check_data_type(&own, node)?;
        let others = (own.add_fields, own.max_line_bytes, own.timezone.as_deref());
        let hosts = own.hosts.iter().cloned();
        Ok(Self {
            codec: own.codec.settings(others, node)?,
            start: Start::read(&own.start, node.nearest("start"))?,
            hosts: hosts.map(|host| host.or_port(PORT)).collect(),
            group: own.group.clone().unwrap_or_default(),
            login: Login {
                user: own.user.clone(),
                password: own.password.clone(),
                db: own.db,
            },
            own,
        })
    }
}

fn check_data_type(own: &Config, node: &Node) -> Result<(), ConfigError> {
    match own.data_type {
        DataType::Stream if own.group.is_none() => {
            let error = node.error("`group` is missing: the consumer group of the stream");
            Err(error.note("readers of one group share the entries of the stream"))
        }
        DataType::Stream if own.claim_after.get().0 < CLAIM_MIN => {
            Err(node.nearest("claim_after").error("at least 5s is expected"))
        }
        DataType::Stream => Ok(()),
        DataType::List => {
            let mut of_streams = ["group", "start", "claim_after", "field"].into_iter();
            match of_streams.find(|name| node.get(name).is_some()) {
                None => Ok(()),
                Some(name) => {
                    let error = format!("`{name}` requires `data_type: stream`");
                    Err(node.nearest(name).error(error))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{key: k}", "hosts"),
            ("{hosts: h}", "key"),
            ("{hosts: [], key: k}", "`hosts` is missing"),
            ("{hosts: h, key: ''}", "`key` is empty"),
            ("{hosts: h, key: k, consumer: ''}", "`consumer` is empty"),
            ("{hosts: h, key: k, user: u}", "requires `password`"),
            (
                "{hosts: h, key: k, data_type: stream}",
                "`group` is missing",
            ),
            (
                "{hosts: h, key: k, group: g}",
                "requires `data_type: stream`",
            ),
            (
                "{hosts: h, key: k, start: end}",
                "requires `data_type: stream`",
            ),
            (
                "{hosts: h, key: k, data_type: stream, group: g, claim_after: 1s}",
                "at least 5s",
            ),
            (
                "{hosts: h, key: k, data_type: stream, group: g, start: now}",
                "`beginning`, `end`",
            ),
            ("{hosts: h, key: k, codec: csv}", "csv"),
            ("{hosts: h, key: k, topics: x}", "unknown setting `topics`"),
        ] {
            let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
            let error = RedisSettings::read(&node).err().expect(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
