//! `tcp` sends events over a TCP connection, with or without TLS.

use std::sync::Arc;

use component::{Build, BuildContext, Example, Sender, Spec};
use config::{ConfigError, Node, Period, Positional, Positive, Size};
use net::ClientTls;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codec::{CodecName, CodecSettings};
use crate::schema::with_codec;
use crate::socket::channel::{Channel, servers};
use crate::socket::framing::FramingName;
use crate::socket::output::{Events, SocketOutput};
use crate::socket::settings::{duration, resend_default, timeout_default, write_timeout_default};
use crate::socket::stream::{StreamClient, StreamSettings};

/// The description of `tcp`.
pub const SPEC: Spec = Spec {
    name: "tcp",
    aliases: &[],
    summary: "Sends events to a server over TCP or TLS.",
    description: concat!(
        "\
Events go over one connection, in their order, as `codec` writes them and with what `framing` puts between them. The connection is made when the \
first event is sent, and made again when it has ended.

",
        include_str!("socket/stream.md")
    ),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON lines to a server",
            stage: "tcp logs.example:5170",
            input: "",
            output: "",
        },
        Example {
            title: "The original lines, over TLS, to a server with a certificate of its own authority",
            stage: "tcp logs.example:5170 codec=text tls.ca=ca.pem",
            input: "",
            output: "",
        },
        Example {
            title: "To a second server if the first one cannot be reached",
            stage: "tcp address=[one.example:5170, two.example:5170]",
            input: "",
            output: "",
        },
        Example {
            title: "Messages of several lines, each with its length before it",
            stage: "tcp logs.example:5170 codec=text framing=octet_counted",
            input: "",
            output: "",
        },
    ],
    schema: |generator| with_codec::<Config>(generator, CodecName::Json),
    build: Build::Sender(build),
};

/// The settings of `tcp`, without those of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The server: `HOST:PORT`. Of several, events go to the first one that can be reached, and to the next one if that fails.
    address: Vec<String>,
    /// What separates events. Default: `lf`; with `codec: msgpack`, `none`.
    framing: Option<FramingName>,
    /// Enables TLS. Default: disabled.
    tls: Option<ClientTls>,
    /// The maximum time to establish a connection, including TLS.
    #[serde(default = "timeout_default")]
    connect_timeout: Positive<Period>,
    /// How long the server may read nothing. After that, the connection is closed, and what was not delivered is sent again.
    #[serde(default = "write_timeout_default")]
    write_timeout: Positive<Period>,
    /// How many bytes of what was sent last are kept, and sent again if the connection breaks, because the server may not have read
    /// them; 0 for none.
    #[serde(default = "resend_default")]
    max_resend_bytes: Size,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide(node)?;
    let config: Config = codec.parse_rest(&own)?;
    codec.refuse_idle_zone(node)?;
    let codec = codec.codec(node, CodecName::Json)?;
    let settings = StreamSettings {
        target: servers(&config.address, None, node)?,
        tls: config.tls,
        connect_timeout: duration(&config.connect_timeout),
        write_timeout: duration(&config.write_timeout),
        resend_bytes_max: config.max_resend_bytes.bytes(),
    };
    let framing = FramingName::of(config.framing, &codec, node)?;
    let channel = Channel::Stream(StreamClient::new(settings, node));
    let messages = Events { codec, framing };
    Ok(Arc::new(SocketOutput { messages, channel }))
}
