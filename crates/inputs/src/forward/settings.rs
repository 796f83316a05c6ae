//! The settings of `forward`.

use std::collections::BTreeMap;

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, Secret, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_depth, check_size, connections_default, depth_default, timeout_default,
};

/// Settings of the input `forward`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `24224` is that port on this machine only (127.0.0.1), `:24224` the port on every
    /// address of the machine, `HOST:24224` or `[::1]:24224` the port on one address.
    #[serde(default = "address_default")]
    pub(super) address: Address,
    /// A key that clients must know (`shared_key` in Fluentd's section `security`, `Shared_Key` in Fluent Bit). Only a digest
    /// of it is sent. A value may be `${VARIABLE}` or `file:PATH`. Default: none.
    pub(super) shared_key: Option<Secret>,
    /// Users with their passwords, of whom clients must be one. Needs `shared_key`. A password may be `${VARIABLE}` or
    /// `file:PATH`. Default: none.
    #[serde(default)]
    pub(super) users: BTreeMap<String, Secret>,
    /// The name with which Millpond introduces itself in the handshake of `shared_key`. Fluentd refuses a server with its
    /// own name. Default: the host name, with `millpond.` before it.
    pub(super) self_hostname: Option<String>,
    /// Adds the fields `@timestamp`, `fluent.tag`, and `fluent.metadata`, where the event came with metadata, to records that do
    /// not have them. With `false`, they are under `@metadata.fluent`, as `time`, `tag` and `metadata`, and records leave
    /// as they came.
    #[serde(default = "add_fields_default")]
    pub(super) add_fields: bool,
    /// The maximum size of a message, both as sent and decompressed. Larger ones close their connection. Should be larger
    /// than the chunks of clients (`chunk_limit_size` of Fluentd). At most 1GiB.
    #[serde(default = "message_size_default")]
    pub(super) max_message_bytes: Positive<Size>,
    /// How deep the maps and arrays of a record may nest. A message with a record that nests deeper closes its connection. At most
    /// 1024.
    #[serde(default = "depth_default")]
    #[schemars(range(min = 1, max = 1024))]
    pub(super) max_depth: usize,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// How long a client may send nothing before its connection is closed. Client libraries without acknowledgement lose a
    /// message when they write to a connection that was closed, so this should be long.
    #[serde(default = "idle_timeout_default")]
    pub(super) idle_timeout: Positive<Period>,
    /// The maximum time for a client to send a message, not counting the wait for memory, to answer the handshake, or to
    /// read an acknowledgement. After that, the connection is closed.
    #[serde(default = "timeout_default")]
    pub(super) message_timeout: Positive<Period>,
}

fn address_default() -> Address {
    Address::loopback(24_224)
}

fn add_fields_default() -> bool {
    true
}

fn message_size_default() -> Positive<Size> {
    Positive::from_bytes(64 << 20)
}

fn idle_timeout_default() -> Positive<Period> {
    Positive::<Period>::from_secs(3600)
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        check_size("max_message_bytes", &self.max_message_bytes, node)?;
        check_connections(self.max_connections, node)?;
        check_depth(self.max_depth, node)?;
        if !self.users.is_empty() && self.shared_key.is_none() {
            let error = node.nearest("users").error("`users` requires `shared_key`");
            return Err(error.hiding_value());
        }
        Ok(())
    }

    /// Whether secrets can be read; an empty one would let everybody in.
    pub(super) fn check_keys(&self, node: &Node) -> Result<(), ConfigError> {
        if let Some(key) = &self.shared_key {
            check_secret(key, node.nearest("shared_key"))?;
        }
        for (user, password) in &self.users {
            let setting = node.nearest("users").get(user).unwrap_or(node);
            check_secret(password, setting)?;
        }
        Ok(())
    }
}

fn check_secret(secret: &Secret, setting: &Node) -> Result<(), ConfigError> {
    let failed = |message: String| setting.error(message).hiding_value();
    let revealed = secret.reveal().map_err(|error| failed(error.to_string()))?;
    if revealed.is_empty() {
        return Err(failed("the secret is empty".to_owned()));
    }
    Ok(())
}
