//! The settings of `loki`.

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Auth, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_size, connections_default, message_size_default, timeout_default,
};

/// Settings of the input `loki`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `3100` is that port on this machine only (127.0.0.1), `:3100` the port on every
    /// address of the machine, `HOST:3100` or `[::1]:3100` the port on one address.
    #[serde(default = "address_default")]
    pub(super) address: Address,
    /// The credentials that clients need: `basic` with `user` and `password`, or `bearer` with a token. Requests
    /// without them are answered with 401. Default: none.
    pub(super) auth: Option<Auth>,
    /// The structured metadata that is the event's id, such as `event_id`. Default: ids are made of the connection and a
    /// number.
    pub(super) id_field: Option<String>,
    /// Enables TLS; with `client_ca`, clients need a certificate. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum size of a body, both as sent and decompressed. Larger bodies are answered with 413. At most 1GiB.
    #[serde(default = "message_size_default")]
    pub(super) max_request_bytes: Positive<Size>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// The maximum time in which a client sends nothing after a response, or not the complete header of a request that it
    /// began, or reads nothing of a response. After that, the connection is closed.
    #[serde(default = "timeout_default")]
    pub(super) idle_timeout: Positive<Period>,
    /// The maximum time for a client to send a body, not counting the wait for memory. After that, the response is
    /// 503.
    #[serde(default = "timeout_default")]
    pub(super) body_timeout: Positive<Period>,
    /// How long a request waits for memory, and then for its events to be safe. After that, the response is 503 with
    /// `Retry-After`. Should be shorter than the timeout of the clients, which is 10 seconds for Promtail and Alloy.
    #[serde(default = "ack_timeout_default")]
    pub(super) ack_timeout: Positive<Period>,
}

fn address_default() -> Address {
    Address::loopback(3100)
}

fn ack_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(8)
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        if self.id_field.as_deref() == Some("") {
            let setting = node.nearest("id_field");
            return Err(setting.error("the name of a field is expected"));
        }
        check_size("max_request_bytes", &self.max_request_bytes, node)?;
        check_connections(self.max_connections, node)
    }
}
