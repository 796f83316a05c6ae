//! The settings of `tcp`, `udp`, `unix` and `syslog`.

use codec::LineEnding;
use config::{ConfigError, Node, Period, Positive, Size};
use net::{Address, ServerTls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connections::settings::{connections_default, timeout_default};
use crate::reading::records::Records;
use crate::reading::settings::{Codec, line_size_default};

/// What ends a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Framing {
    /// A line feed, optionally preceded by a carriage return.
    #[default]
    Lf,
    /// A zero byte.
    Nul,
    /// The length of each message in bytes stands before it, in digits without leading zeros and followed by a space (RFC 6587,
    /// RFC 5425). A message that does not begin so ends the connection; with `codec: syslog`, it ends with a line feed or zero byte.
    OctetCounted,
}

/// How the events of a socket are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// Each message is an event with the message as `message`.
    #[default]
    Text,
    /// Each message is a JSON object. One that is not becomes an event of text with the tag `_jsonparsefailure`.
    Json,
    /// The same as `json`.
    Ndjson,
    /// MessagePack maps, one after the other. A broken one ends the connection. There is no `framing`.
    Msgpack,
    /// Each message is a syslog message, RFC 5424 or 3164: its parts become fields. One that is not becomes an event of text
    /// with the tag `_syslogparsefailure`.
    Syslog,
}

/// Settings of the input `tcp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TcpConfig {
    /// The address to listen on: `5170` is that port on this machine only (127.0.0.1), `:5170` the port on every
    /// address of the machine, `HOST:5170` or `[::1]:5170` the port on one address.
    pub(super) address: Address,
    /// What separates messages.
    #[serde(default)]
    pub(super) framing: Framing,
    /// The format of messages.
    #[serde(default)]
    pub(super) codec: Format,
    /// The maximum length of a message in bytes; longer ones are truncated and tagged `_truncated`. With `codec: msgpack`, a
    /// larger document ends the connection. At most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Adds `@timestamp` and `host.name` to JSON and MessagePack events that do not have these fields; events of text
    /// always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
    /// Enables TLS. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// How long a client may send nothing between two messages. After that, the connection is closed. Default: no limit,
    /// because clients of these protocols lose what they send first on a connection that was closed.
    pub(super) idle_timeout: Option<Positive<Period>>,
    /// How long the rest of a message may take to arrive, once more than 4KiB of it have. After that, the connection is
    /// closed.
    #[serde(default = "timeout_default")]
    pub(super) line_timeout: Positive<Period>,
}

/// Settings of the input `udp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UdpConfig {
    /// The address to receive on: `5170` is that port on this machine only (127.0.0.1), `:5170` the port on every
    /// address of the machine, `HOST:5170` or `[::1]:5170` the port on one address.
    pub(super) address: Address,
    /// The format of datagrams.
    #[serde(default)]
    pub(super) codec: Format,
    /// The maximum length of an event in bytes; longer ones are truncated and tagged `_truncated`. No datagram reaches the default.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Adds `@timestamp` and `host.name` to JSON events that do not have these fields; events of text
    /// always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
    /// How many bytes of datagrams the system is asked to hold until they are taken; its own limit (`net.core.rmem_max`) may be
    /// lower.
    #[serde(default = "receive_buffer_default")]
    pub(super) receive_buffer_bytes: Positive<Size>,
}

/// Settings of the input `unix`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnixConfig {
    /// The path of the socket. It is created, and removed at the end; a socket that nobody listens on any more is replaced.
    pub(super) path: String,
    /// The kind of socket.
    #[serde(default)]
    pub(super) kind: Kind,
    /// The permissions of the socket, in octal: who may write to it may send events.
    #[serde(default = "mode_default")]
    pub(super) mode: String,
    /// What separates messages of a stream socket.
    #[serde(default)]
    pub(super) framing: Framing,
    /// The format of messages.
    #[serde(default)]
    pub(super) codec: Format,
    /// The maximum length of a message in bytes; longer ones are truncated and tagged `_truncated`. At most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Adds `@timestamp` and `host.name` to JSON and MessagePack events that do not have these fields; events of text
    /// always get them.
    #[serde(default)]
    pub(super) add_fields: bool,
    /// The time zone of syslog times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// How long a client may send nothing between two messages. After that, the connection is closed. Default: no limit.
    pub(super) idle_timeout: Option<Positive<Period>>,
    /// How long the rest of a message may take to arrive, once more than 4KiB of it have. After that, the connection is
    /// closed.
    #[serde(default = "timeout_default")]
    pub(super) line_timeout: Positive<Period>,
    /// How many bytes of datagrams the system is asked to hold until they are taken.
    #[serde(default = "receive_buffer_default")]
    pub(super) receive_buffer_bytes: Positive<Size>,
}

/// Settings of the input `syslog`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SyslogConfig {
    /// The protocol that messages are received with.
    pub(super) transport: Transport,
    /// The address to listen on: `5514` is that port on this machine only (127.0.0.1), `:5514` the port on every
    /// address of the machine, `HOST:5514` or `[::1]:5514` the port on one address. With `transport: unix`, the path of the socket.
    #[schemars(with = "Address")]
    pub(super) address: String,
    /// The kind of socket, with `transport: unix`. Default: `datagram`, which is what `/dev/log` is.
    pub(super) kind: Option<Kind>,
    /// The permissions of the socket, in octal, with `transport: unix`. Default: `0666`, so that all programs of the machine can log.
    pub(super) mode: Option<String>,
    /// The time zone of times without one, such as `Europe/Berlin` or `+02:00`. Default: the local time
    /// zone of the machine.
    pub(super) timezone: Option<String>,
    /// The maximum length of a message in bytes; longer ones are truncated and tagged `_truncated`. At most 1GiB.
    #[serde(default = "line_size_default")]
    pub(super) max_line_bytes: Size,
    /// Enables TLS, with `transport: tcp`. Default: disabled.
    pub(super) tls: Option<ServerTls>,
    /// The maximum number of connected clients. If another one connects, a connection on which nothing arrived in its first
    /// second, or for 15 seconds, is closed for it; if there is none, the client waits.
    #[serde(default = "connections_default")]
    #[schemars(range(min = 1))]
    pub(super) max_connections: usize,
    /// How long a client may send nothing between two messages. After that, the connection is closed. Default: no limit,
    /// because syslog clients lose what they send first on a connection that was closed.
    pub(super) idle_timeout: Option<Positive<Period>>,
    /// How long the rest of a message may take to arrive, once more than 4KiB of it have. After that, the connection is
    /// closed.
    #[serde(default = "timeout_default")]
    pub(super) line_timeout: Positive<Period>,
    /// How many bytes of datagrams the system is asked to hold until they are taken; its own limit (`net.core.rmem_max`) may be
    /// lower.
    #[serde(default = "receive_buffer_default")]
    pub(super) receive_buffer_bytes: Positive<Size>,
}

/// How syslog messages are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transport {
    /// Each datagram is a message.
    Udp,
    /// Messages with their length before them, or one per line.
    Tcp,
    /// The messages of programs on the same machine, over a Unix domain socket.
    Unix,
}

/// Kinds of sockets of Unix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Connections, as with TCP.
    #[default]
    Stream,
    /// Each datagram is an event, as with UDP; this is what `/dev/log` is.
    Datagram,
}

fn receive_buffer_default() -> Positive<Size> {
    Positive::from_bytes(16 << 20)
}

fn mode_default() -> String {
    "0660".to_owned()
}

/// What says how messages become events.
pub(super) struct Messages<'c> {
    pub(super) codec: Format,
    pub(super) framing: Framing,
    pub(super) max_line_bytes: Size,
    pub(super) add_fields: bool,
    pub(super) timezone: Option<&'c str>,
}

impl Messages<'_> {
    /// What codecs make of it.
    ///
    /// # Errors
    /// A setting that cannot be taken, with its place.
    pub(super) fn settings(&self, node: &Node) -> Result<codec::Settings, ConfigError> {
        let records = Records {
            codec: match self.codec {
                Format::Text => Codec::Text,
                Format::Json | Format::Ndjson => Codec::Json,
                Format::Msgpack => Codec::Msgpack,
                Format::Syslog => Codec::Syslog,
            },
            add_fields: self.add_fields,
            max_line_bytes: self.max_line_bytes,
            timezone: self.timezone,
            line_ending: LineEnding::Lf,
            delimiter: b',',
            ..Records::default()
        };
        if self.codec == Format::Msgpack && self.framing != Framing::Lf {
            let reason =
                "`framing` does not apply to `codec: msgpack`: documents say where they end";
            return Err(node.nearest("framing").error(reason));
        }
        let mut settings = records.settings(node)?;
        match self.framing {
            Framing::Lf => {}
            Framing::Nul => settings.line_ending = LineEnding::Nul,
            Framing::OctetCounted => settings.is_counted = true,
        }
        Ok(settings)
    }
}
