//! The settings of `otlp`.

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Auth, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_depth, check_size, connections_default, depth_default, timeout_default,
};

/// Settings of the input `otlp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on, for HTTP and for gRPC: `4317` is that port on this machine only (127.0.0.1), `:4317` the port on every
    /// address of the machine, `HOST:4317` or `[::1]:4317` the port on one address.
    #[serde(default = "address_default")]
    pub(super) address: Address,
    /// The credentials that clients need: `basic` with `user` and `password`, or `bearer` with a token. Requests
    /// without them are answered with 401 or UNAUTHENTICATED. Default: none.
    pub(super) auth: Option<Auth>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum size of a request, both as sent and decompressed. Larger ones are answered with 413 or RESOURCE_EXHAUSTED. At most 1GiB.
    #[serde(default = "request_size_default")]
    pub(super) max_request_bytes: Positive<Size>,
    /// The maximum depth to which the attributes and the body of a log record may nest. A request with a deeper one is refused. At most
    /// 1024.
    #[serde(default = "depth_default")]
    #[schemars(range(min = 1, max = 1024))]
    pub(super) max_depth: usize,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// The maximum time in which a client sends nothing after a response, or not the complete header of a request that it
    /// began, or reads nothing of a response. After that, the connection is closed.
    #[serde(default = "idle_timeout_default")]
    pub(super) idle_timeout: Positive<Period>,
    /// The maximum time for a client to send a request, not counting the wait for memory. After that, the response is
    /// 503 or UNAVAILABLE.
    #[serde(default = "timeout_default")]
    pub(super) body_timeout: Positive<Period>,
    /// How long a request waits for memory, and then for its events to be safe. After that, the response is 503 or UNAVAILABLE, and
    /// clients try again. Should be shorter than the timeout of the clients, which is 5 seconds for Collectors and 10 seconds for SDKs.
    #[serde(default = "ack_timeout_default")]
    pub(super) ack_timeout: Positive<Period>,
}

fn address_default() -> Address {
    Address::loopback(4318)
}

fn request_size_default() -> Positive<Size> {
    Positive::from_bytes(20 << 20)
}

fn idle_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(300)
}

fn ack_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(4)
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        check_depth(self.max_depth, node)?;
        check_size("max_request_bytes", &self.max_request_bytes, node)?;
        check_connections(self.max_connections, node)
    }
}
