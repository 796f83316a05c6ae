//! The settings of `elasticsearch`.

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Auth, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_depth, check_size, connections_default, depth_default, timeout_default,
};

/// Settings of the input `elasticsearch`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `9200` is that port on this machine only (127.0.0.1), `:9200` the port on every
    /// address of the machine, `HOST:9200` or `[::1]:9200` the port on one address.
    pub(super) address: Address,
    /// The version of Elasticsearch that clients are told. Beats may refuse a server that is older than they are. The default is newer than any release of version 9.
    #[serde(default = "version_default")]
    pub(super) version: String,
    /// The credentials that clients need: `api_key` with an API key, `basic` with `user` and `password`, or `bearer` with
    /// a token. Requests without them are answered with 401. Default: none.
    pub(super) auth: Option<Auth>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum size of a body, both as sent and decompressed. Larger bodies are answered with 413, upon which agents
    /// send less at a time. At most 1GiB. The default is that of Elasticsearch.
    #[serde(default = "request_size_default")]
    pub(super) max_request_bytes: Positive<Size>,
    /// The maximum number of actions in a request. Requests with more are answered with 413.
    #[serde(default = "actions_default")]
    #[schemars(range(min = 1))]
    pub(super) max_request_actions: usize,
    /// The maximum depth to which a document may nest. A deeper document is refused alone. At most 1024.
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
    /// The maximum time for a client to send a body, not counting the wait for memory. After that, the response is
    /// 408.
    #[serde(default = "timeout_default")]
    pub(super) body_timeout: Positive<Period>,
    /// How long a request waits for memory, and then for its events to be safe. After that, the response is 429, and
    /// clients try again. Should be shorter than the timeout of the clients.
    #[serde(default = "ack_timeout_default")]
    pub(super) ack_timeout: Positive<Period>,
}

fn version_default() -> String {
    "9.99.0".to_owned()
}

fn request_size_default() -> Positive<Size> {
    Positive::from_bytes(100 << 20)
}

fn actions_default() -> usize {
    100_000
}

fn idle_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(300)
}

fn ack_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(20)
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let refused = |setting: &str, message: &str| Err(node.nearest(setting).error(message));
        if !is_version(&self.version) {
            return refused("version", "a version such as 9.2.0 is expected");
        }
        if self.max_request_actions == 0 {
            return refused("max_request_actions", "at least 1 is expected");
        }
        check_depth(self.max_depth, node)?;
        check_size("max_request_bytes", &self.max_request_bytes, node)?;
        check_connections(self.max_connections, node)
    }
}

/// Whether a text is a version as clients read it: three numbers.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| {
        (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.split('.').count() == 3 && text.split('.').all(is_number)
}
