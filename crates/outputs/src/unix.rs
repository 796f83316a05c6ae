//! `unix` sends events to a program on the same machine over a socket of Unix.

use std::sync::Arc;

use component::{Build, BuildContext, Example, Sender, Spec};
use config::{ConfigError, Node, Period, Positional, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codec::{CodecName, CodecSettings};
use crate::schema::with_codec;
use crate::socket::channel::{Channel, local};
use crate::socket::datagrams::DatagramClient;
use crate::socket::framing::FramingName;
use crate::socket::output::{Events, SocketOutput};
use crate::socket::settings::{
    Kind, Oversized, datagrams, duration, refuse, resend_default, timeout_default,
    write_timeout_default,
};
use crate::socket::stream::{StreamClient, StreamSettings};

/// The description of `unix`.
pub const SPEC: Spec = Spec {
    name: "unix",
    aliases: &[],
    summary: "Sends events to a program on the same machine over a Unix domain socket.",
    description: include_str!("socket/unix.md"),
    positional: Positional::fields(&["path"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON lines to another program",
            stage: "unix /run/collector.sock",
            input: "",
            output: "",
        },
        Example {
            title: "The original lines, a datagram each, to a socket with an abstract name",
            stage: "unix @collector kind=datagram codec=text",
            input: "",
            output: "",
        },
    ],
    schema: |generator| with_codec::<Config>(generator, CodecName::Json),
    build: Build::Sender(build),
};

/// The settings of `unix`, without those of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The path of the socket, or `@` and its abstract name.
    path: String,
    /// The kind of socket.
    #[serde(default)]
    kind: Kind,
    /// With `kind: stream`: what separates events. Default: `lf`; with `codec: msgpack`, `none`.
    framing: Option<FramingName>,
    /// With `kind: datagram`: the maximum length of a datagram in bytes. Default: 65507.
    max_datagram_bytes: Option<Positive<Size>>,
    /// With `kind: datagram`: what happens to an event that is longer. Default: `reject`.
    oversized: Option<Oversized>,
    /// The maximum time to establish a connection.
    #[serde(default = "timeout_default")]
    connect_timeout: Positive<Period>,
    /// How long the other program may read nothing. After that, the connection is closed, and what was not delivered is sent again.
    #[serde(default = "write_timeout_default")]
    write_timeout: Positive<Period>,
    /// With `kind: stream`: how many bytes of what was sent last are kept, and sent again if the connection ends, because the other
    /// program may not have processed them; 0 for none. Default: 8MiB.
    max_resend_bytes: Option<Size>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide(node)?;
    let config: Config = codec.parse_rest(&own)?;
    codec.refuse_idle_zone(node)?;
    let codec = codec.codec(node, CodecName::Json)?;
    let target = local(&config.path, node.nearest("path"))?;
    let write_timeout = duration(&config.write_timeout);
    let (framing, channel) = match config.kind {
        Kind::Datagram => {
            refuse(node, &["framing", "max_resend_bytes"], "`kind: stream`")?;
            let framing = datagrams(config.max_datagram_bytes, config.oversized, node)?;
            let client = DatagramClient::new(target, write_timeout);
            (framing, Channel::Datagrams(client))
        }
        Kind::Stream => {
            refuse(
                node,
                &["max_datagram_bytes", "oversized"],
                "`kind: datagram`",
            )?;
            let settings = StreamSettings {
                target,
                tls: None,
                connect_timeout: duration(&config.connect_timeout),
                write_timeout,
                resend_bytes_max: config
                    .max_resend_bytes
                    .unwrap_or_else(resend_default)
                    .bytes(),
            };
            let framing = FramingName::of(config.framing, &codec, node)?;
            (framing, Channel::Stream(StreamClient::new(settings, node)))
        }
    };
    let messages = Events { codec, framing };
    Ok(Arc::new(SocketOutput { messages, channel }))
}
