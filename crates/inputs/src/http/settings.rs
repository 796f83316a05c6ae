//! The settings of `http`.

use std::collections::BTreeMap;

use codec::BodyFormat;
use config::{ConfigError, Node, Period, Positive, Size};
use http::{HeaderName, Method, StatusCode};
use net::{Address, Auth, Secret, ServerTls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connections::settings::{
    check_connections, check_size, connections_default, message_size_default, timeout_default,
};

/// Settings of the input `http`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `8080` is that port on this machine only (127.0.0.1), `:8080` the port on every
    /// address of the machine, `HOST:8080` or `[::1]:8080` the port on one address.
    pub(super) address: Address,
    /// The paths that are accepted; a path that ends with `*` accepts all paths with that prefix. Others are answered
    /// with 404. Default: every path.
    #[serde(default)]
    pub(super) path: Vec<String>,
    /// The methods that are accepted. Others are answered with 405.
    #[serde(default = "methods_default")]
    pub(super) method: Vec<String>,
    /// How events are written in requests.
    #[serde(default)]
    pub(super) codec: BodyCodec,
    /// The maximum size of a body, both as sent and decompressed. Larger bodies are answered with 413. At most 1GiB.
    #[serde(default = "message_size_default")]
    pub(super) max_request_bytes: Positive<Size>,
    /// The credentials that clients need: `basic` with `user` and `password`, or `bearer` with a token. Requests
    /// without them are answered with 401. Default: none.
    pub(super) auth: Option<Auth>,
    /// Headers that a request must have, with their values, such as an API key. Other requests are answered with 403.
    /// A value may be `${VARIABLE}` or `file:PATH`.
    #[serde(default)]
    pub(super) require_headers: BTreeMap<String, Secret>,
    /// Headers that become fields: `X-Team` becomes `http.headers.x-team`.
    #[serde(default)]
    pub(super) headers: Vec<String>,
    /// Query parameters that become fields: `source` becomes `http.query.source`.
    #[serde(default)]
    pub(super) query: Vec<String>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ServerTls>,
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
    /// 408.
    #[serde(default = "timeout_default")]
    pub(super) body_timeout: Positive<Period>,
    /// How long a request waits for memory, and then for its events to be safe. After that, the response is 503 with
    /// `Retry-After`. Should be shorter than the timeout of the clients.
    #[serde(default = "ack_timeout_default")]
    pub(super) ack_timeout: Positive<Period>,
    /// The status of a successful response, from 200 to 299.
    #[serde(default = "code_default")]
    #[schemars(range(min = 200, max = 299))]
    pub(super) response_code: u16,
    /// Adds `@timestamp` and `host.name` to JSON events that do not have these fields; lines of text always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
}

/// The codecs of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum BodyCodec {
    /// Depends on `Content-Type`: `application/x-ndjson` is `ndjson`, `application/json` is `json`, `text/plain` is
    /// `text`. With any other type, or none, `json` if the first character is `{` or `[`, otherwise `text`.
    #[default]
    Auto,
    /// One JSON object per line. Blank lines are ignored.
    Ndjson,
    /// JSON objects or arrays of objects, one after the other, on any number of lines.
    Json,
    /// Each line is an event with the line as `message`.
    Text,
}

impl BodyCodec {
    /// The format of a request; none where its first character says.
    pub(super) fn of(self, content_type: Option<&[u8]>) -> Option<BodyFormat> {
        match self {
            Self::Ndjson => Some(BodyFormat::Ndjson),
            Self::Json => Some(BodyFormat::Json),
            Self::Text => Some(BodyFormat::Lines),
            Self::Auto => {
                let media = content_type?.split(|byte| *byte == b';').next()?;
                match media.trim_ascii().to_ascii_lowercase().as_slice() {
                    b"application/x-ndjson"
                    | b"application/ndjson"
                    | b"application/jsonl"
                    | b"application/x-jsonlines" => Some(BodyFormat::Ndjson),
                    b"application/json" => Some(BodyFormat::Json),
                    b"text/plain" => Some(BodyFormat::Lines),
                    _ => None,
                }
            }
        }
    }
}

fn methods_default() -> Vec<String> {
    vec!["POST".into(), "PUT".into()]
}

fn ack_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(20)
}

fn code_default() -> u16 {
    200
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let refused = |setting: &str, message: &str| Err(node.nearest(setting).error(message));
        for (index, path) in self.path.iter().enumerate() {
            if !path.starts_with('/') {
                return refused(&format!("path[{index}]"), "a path must start with `/`");
            }
        }
        for (index, method) in self.method.iter().enumerate() {
            if Method::from_bytes(method.as_bytes()).is_err() {
                return refused(&format!("method[{index}]"), "not a method, such as POST");
            }
        }
        for (index, name) in self.headers.iter().enumerate() {
            if HeaderName::try_from(name).is_err() {
                return refused(&format!("headers[{index}]"), "not the name of a header");
            }
        }
        for name in self.require_headers.keys() {
            if HeaderName::try_from(name).is_err() {
                let message = format!("`{name}` is not the name of a header");
                return Err(node
                    .nearest("require_headers")
                    .error(message)
                    .hiding_value());
            }
        }
        if self.method.is_empty() {
            return refused("method", "at least one method is required");
        }
        check_size("max_request_bytes", &self.max_request_bytes, node)?;
        check_connections(self.max_connections, node)?;
        if self.status().is_none() {
            return refused("response_code", "a status from 200 to 299 is expected");
        }
        Ok(())
    }

    /// Whether secrets can be read.
    pub(super) fn check_keys(&self, node: &Node) -> Result<(), ConfigError> {
        for (name, secret) in &self.require_headers {
            secret.reveal().map_err(|error| {
                let setting = node.nearest("require_headers").get(name);
                let setting = setting.unwrap_or(node);
                setting.error(error.to_string()).hiding_value()
            })?;
        }
        Ok(())
    }

    /// The status of the answer when all is well.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let status = StatusCode::from_u16(self.response_code).ok();
        status.filter(StatusCode::is_success)
    }
}
