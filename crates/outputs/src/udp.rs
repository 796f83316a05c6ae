//! `udp` sends each event as a datagram.

use std::sync::Arc;

use component::{Build, BuildContext, Example, Sender, Spec};
use config::{ConfigError, Node, Period, Positional, Positive, Size};
use net::Endpoint;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codec::{CodecName, CodecSettings};
use crate::schema::with_codec;
use crate::socket::channel::Channel;
use crate::socket::datagrams::DatagramClient;
use crate::socket::output::{Events, SocketOutput};
use crate::socket::settings::{Oversized, datagrams, duration, write_timeout_default};
use crate::socket::stream::Target;

/// The description of `udp`.
pub const SPEC: Spec = Spec {
    name: "udp",
    aliases: &[],
    summary: "Sends each event as a datagram over UDP.",
    description: concat!(
        "\
Each event is a datagram, as `codec` writes it, without a line feed at its end.

",
        include_str!("socket/datagrams.md")
    ),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON documents to a server",
            stage: "udp logs.example:5170",
            input: "",
            output: "",
        },
        Example {
            title: "Metrics in the format of StatsD",
            stage: "udp localhost:8125 codec=template template='%{metric}:%{value}|c'",
            input: "",
            output: "",
        },
        Example {
            title: "Datagrams that fit into one packet, the rest cut off",
            stage: "udp logs.example:5170 codec=text max_datagram_bytes=1400 oversized=truncate",
            input: "",
            output: "",
        },
    ],
    schema: |generator| with_codec::<Config>(generator, CodecName::Json),
    build: Build::Sender(build),
};

/// The settings of `udp`, without those of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The server: `HOST:PORT`.
    address: Endpoint,
    /// The maximum length of a datagram in bytes. Default: 65507, the most that IPv4 allows.
    max_datagram_bytes: Option<Positive<Size>>,
    /// What happens to an event that is longer.
    #[serde(default)]
    oversized: Oversized,
    /// How long the system of this machine may accept no datagram.
    #[serde(default = "write_timeout_default")]
    write_timeout: Positive<Period>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide(node)?;
    let config: Config = codec.parse_rest(&own)?;
    codec.refuse_idle_zone(node)?;
    let codec = codec.codec(node, CodecName::Json)?;
    let address = config.address.with_port(node.nearest("address"))?;
    let framing = datagrams(config.max_datagram_bytes, Some(config.oversized), node)?;
    let timeout = duration(&config.write_timeout);
    let client = DatagramClient::new(Target::Servers(vec![address]), timeout);
    Ok(Arc::new(SocketOutput {
        messages: Events { codec, framing },
        channel: Channel::Datagrams(client),
    }))
}
