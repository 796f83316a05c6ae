//! The settings of `beats`.

use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::connections::settings::{
    check_connections, check_depth, check_size, connections_default, depth_default,
    message_size_default, timeout_default,
};

/// Settings of the input `beats`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The address to listen on: `5044` is that port on this machine only (127.0.0.1), `:5044` the port on every
    /// address of the machine, `HOST:5044` or `[::1]:5044` the port on one address.
    pub(super) address: Address,
    /// Enables TLS; with `client_ca`, clients need a certificate. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// The maximum time without a frame from the client, not counting the time in which it waits for an acknowledgement, and
    /// the maximum time in which a client reads nothing of what it is sent. After that, the connection is closed; a Beat
    /// connects again when it has events.
    #[serde(default = "timeout_default")]
    pub(super) idle_timeout: Positive<Period>,
    /// The maximum time for a client to send a frame, not counting the wait for memory. After that, the connection is
    /// closed.
    #[serde(default = "timeout_default")]
    pub(super) frame_timeout: Positive<Period>,
    /// The maximum size of a frame: of an event, or of compressed events as sent. A larger frame closes the connection. At
    /// most 1GiB.
    #[serde(default = "message_size_default")]
    pub(super) max_frame_bytes: Positive<Size>,
    /// The maximum size of a compressed frame when it is decompressed. A larger one closes the connection. Decompressed
    /// events are processed while the rest is decompressed, so that this is not the memory for a frame. At most 1GiB.
    #[serde(default = "inflated_size_default")]
    pub(super) max_inflated_bytes: Positive<Size>,
    /// The maximum number of events in a window, which is `bulk_max_size` of a Beat. A larger window closes the connection.
    #[serde(default = "window_default")]
    #[schemars(range(min = 1))]
    pub(super) max_window: u32,
    /// The maximum depth to which an event may nest. A deeper event closes the connection. At most 1024.
    #[serde(default = "depth_default")]
    #[schemars(range(min = 1, max = 1024))]
    pub(super) max_depth: usize,
}

fn inflated_size_default() -> Positive<Size> {
    Positive::from_bytes(64 << 20)
}

fn window_default() -> u32 {
    65_536
}

impl Config {
    /// Refuses settings that cannot work.
    pub(super) fn check(&self, node: &Node) -> Result<(), ConfigError> {
        check_connections(self.max_connections, node)?;
        check_depth(self.max_depth, node)?;
        check_size("max_frame_bytes", &self.max_frame_bytes, node)?;
        check_size("max_inflated_bytes", &self.max_inflated_bytes, node)?;
        if self.max_window == 0 {
            let setting = node.nearest("max_window");
            return Err(setting.error("at least 1 is expected"));
        }
        Ok(())
    }
}
