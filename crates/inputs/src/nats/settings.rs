//! The settings of `nats`.

use component::parse;
use config::{ConfigError, Node, Period, Positive, Size, setting_names};
use net::nats::{NatsLogin, PORT};
use net::{ClientTls, Endpoint};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::messages::settings::{MessageCodec, Start, Until, start_default};
use crate::reading::settings::line_size_default;

/// The settings of `nats`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The servers, `HOST` or `HOST:PORT`; the port is 4222 by default. They are servers of one cluster, of which one is used: the next one
    /// when that cannot be reached.
    pub(super) hosts: Vec<Endpoint>,
    /// The stream.
    pub(super) stream: String,
    /// The durable consumer, which shares the messages of the stream among all who use it. It is created if it does not exist.
    pub(super) consumer: String,
    /// The subject of the messages that a new consumer is for, which may contain `*` and `>`. Default: all of the stream.
    pub(super) subject: Option<String>,
    /// Where a new consumer begins: `beginning`, `end`, or an RFC 3339 time, for the first message of that time or a later one.
    #[serde(default = "start_default")]
    pub(super) start: String,
    /// Where to end: `end`, for the messages that are there at the start. Default: the input works until it is stopped.
    pub(super) until: Option<Until>,
    /// How long a new consumer waits for an acknowledgement before it gives a message again. Messages that Millpond holds for longer are
    /// kept.
    #[serde(default = "wait_default")]
    pub(super) ack_wait: Positive<Period>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ClientTls>,
    /// The maximum time to establish a connection, including TLS.
    #[serde(default = "connect_default")]
    pub(super) connect_timeout: Positive<Period>,
    /// The maximum time for an answer. After that, the connection is closed, and another one is made.
    #[serde(default = "timeout_default")]
    pub(super) timeout: Positive<Period>,
    /// The format of messages.
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

fn wait_default() -> Positive<Period> {
    Positive::<Period>::from_secs(30)
}

fn connect_default() -> Positive<Period> {
    Positive::<Period>::from_secs(10)
}

fn timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

/// All settings of an input.
pub(super) struct NatsSettings {
    pub(super) own: Config,
    pub(super) hosts: Vec<Endpoint>,
    pub(super) login: NatsLogin,
    pub(super) start: Start,
    pub(super) codec: codec::Settings,
}

impl NatsSettings {
    /// Reads the settings in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub(super) fn read(node: &Node) -> Result<Self, ConfigError> {
        let names = setting_names::<NatsLogin>();
        let (login, rest) = node.divide(names);
        let login = login.map(|login| parse::<NatsLogin>(&login)).transpose()?;
        let login = login.unwrap_or_default();
        login.check(node)?;
        let own: Config = parse(&rest).map_err(|error| error.accepted_beside(&rest, names))?;
        if own.hosts.is_empty() {
            let error = node.error("`hosts` is missing: the addresses of servers");
            return Err(error.note("set `hosts: HOST:PORT`, or a list of them"));
        }
        for (name, text) in [("stream", &own.stream), ("consumer", &own.consumer)] {
            let is_name = |byte: u8| byte.is_ascii_graphic() && !b".*>/\\".contains(&byte);
            if text.is_empty() || !text.bytes().all(is_name) {
                let error = format!("`{text}` cannot be the name of a {name}");
                return Err(node.nearest(name).error(error));
            }
        }
        let others = (own.add_fields, own.max_line_bytes, own.timezone.as_deref());
        let hosts = own.hosts.iter().cloned();
        Ok(Self {
            codec: own.codec.settings(others, node)?,
            start: Start::read(&own.start, node.nearest("start"))?,
            hosts: hosts.map(|host| host.or_port(PORT)).collect(),
            login,
            own,
        })
    }
}

/// The schema of all settings.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let own = Config::json_schema(generator);
    component::beside(own, NatsLogin::json_schema(generator))
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_at_their_place() {
        for (yaml, part) in [
            ("{stream: s, consumer: c}", "hosts"),
            ("{hosts: [], stream: s, consumer: c}", "`hosts` is missing"),
            ("{hosts: h, consumer: c}", "stream"),
            ("{hosts: h, stream: s}", "consumer"),
            ("{hosts: h, stream: a.b, consumer: c}", "name of a stream"),
            (
                "{hosts: h, stream: s, consumer: 'a b'}",
                "name of a consumer",
            ),
            (
                "{hosts: h, stream: s, consumer: c, password: p}",
                "requires `user`",
            ),
            (
                "{hosts: h, stream: s, consumer: c, start: now}",
                "`beginning`, `end`",
            ),
            (
                "{hosts: h, stream: s, consumer: c, group: g}",
                "unknown setting `group`",
            ),
        ] {
            let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
            let error = NatsSettings::read(&node).err().expect(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
