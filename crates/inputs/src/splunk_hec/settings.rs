//! The settings of `splunk_hec`.

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Secret, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_size, connections_default, message_size_default, timeout_default,
};

/// Settings of the input `splunk_hec`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `8088` is that port on this machine only (127.0.0.1), `:8088` the port on every
    /// address of the machine, `HOST:8088` or `[::1]:8088` the port on one address.
    #[serde(default = "address_default")]
    pub(super) address: Address,
    /// The tokens of clients, one of which a request needs: `${VARIABLE}`, or `file:PATH` for the content of a file. Default:
    /// no token is needed.
    #[serde(default)]
    pub(super) tokens: Vec<Secret>,
    /// Gives requests with a channel an `ackId`, before their events are safe. With `false`, every response comes when the
    /// events are safe.
    #[serde(default = "acks_default")]
    pub(super) acknowledgements: bool,
    /// The member of `fields` that is the event's id, such as `event_id`. Default: ids are made of the connection and a
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
    /// `Retry-After`. Should be shorter than the timeout of the clients.
    #[serde(default = "ack_timeout_default")]
    pub(super) ack_timeout: Positive<Period>,
}

fn address_default() -> Address {
    Address::loopback(8088)
}

fn acks_default() -> bool {
    true
}

fn ack_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(20)
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
