//! The settings of connections, which outputs have among their own.

use component::parse;
use config::{ConfigError, Node, Period, Positive, setting_names};
use net::{ClientTls, Endpoint};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most connections to a host, and the most requests in flight on one.
const MANY: usize = 1000;

/// The settings of connections to servers that acknowledge.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionSettings {
    /// The servers, such as `collector.example:PORT`. Requests are distributed over all of them.
    pub hosts: Vec<Endpoint>,
    /// Enables TLS. Default: disabled.
    pub tls: Option<ClientTls>,
    /// The maximum number of connections to each host.
    #[schemars(range(min = 1, max = 1000))]
    pub connections: usize,
    /// The maximum number of requests in flight on each connection.
    #[schemars(range(min = 1, max = 1000))]
    pub pipelining: usize,
    /// The maximum time to establish a connection, including TLS and the handshake.
    pub connect_timeout: Positive<Period>,
    /// The maximum time in which a server that has requests to acknowledge sends nothing. After that, the connection is
    /// closed, and what it did not acknowledge is sent again.
    pub timeout: Positive<Period>,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            tls: None,
            connections: 2,
            pipelining: 8,
            connect_timeout: Positive::<Period>::from_secs(10),
            timeout: Positive::<Period>::from_secs(60),
        }
    }
}

impl ConnectionSettings {
    /// Reads the settings of connections and those of an output, which stand side by side in `node`.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn read<T: DeserializeOwned>(node: &Node) -> Result<(Self, T), ConfigError> {
        let names = setting_names::<Self>();
        let (mine, own) = node.divide(names);
        let mine = mine.map(|mine| parse::<Self>(&mine)).transpose()?;
        let mine = mine.unwrap_or_default();
        let own_settings = parse(&own).map_err(|error| error.accepted_beside(&own, names))?;
        if mine.hosts.is_empty() {
            let error = node.error("`hosts` is missing: the addresses of servers");
            return Err(error.note("set `hosts: HOST:PORT`, or a list of them"));
        }
        for (name, count) in [
            ("connections", mine.connections),
            ("pipelining", mine.pipelining),
        ] {
            if !(1..=MANY).contains(&count) {
                let setting = node.nearest(name);
                return Err(setting.error(format!("a number from 1 to {MANY} is expected")));
            }
        }
        Ok((mine, own_settings))
    }
}
