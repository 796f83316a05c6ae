//! `syslog` sends events as syslog messages.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings |
//! | [`message`] | a message as a whole |
//! | [`level`] | facility and severity |
//! | [`stamp`] | its time |
//! | [`header`] | what header fields may contain |
//! | [`choice`] | a part that comes from the first of several fields |
//! | [`data`] | structured data |
//!
//! Sources: RFC 5424 and 3164 for messages, RFC 6587 and 5425 for connections, RFC 5426 for UDP.

mod choice;
mod data;
mod header;
mod level;
mod message;
mod settings;
mod stamp;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use component::{Build, BuildContext, Encoded, Example, Sender, Spec};
use config::{ConfigError, Node, Positional};

use self::message::Rendering;
use self::settings::Config;
use crate::codec::{CodecName, CodecSettings};
use crate::schema::with_codec;
use crate::socket::output::{Messages, SocketOutput};

/// The description of `syslog`.
pub const SPEC: Spec = Spec {
    name: "syslog",
    aliases: &[],
    summary: "Sends events as syslog messages over TCP, TLS, UDP or a Unix domain socket.",
    description: include_str!("syslog.md"),
    positional: Positional::fields(&["transport", "address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "To a server, over TCP",
            stage: "syslog tcp logs.example:601",
            input: "",
            output: "",
        },
        Example {
            title: "Over TLS, with a certificate of our own",
            stage: "syslog tcp logs.example tls.ca=ca.pem tls.cert=client.pem tls.key=client.key",
            input: "",
            output: "",
        },
        Example {
            title: "To an old server, over UDP, with its local times",
            stage: "syslog udp logs.example standard=rfc3164 timezone=Europe/Berlin facility=local0",
            input: "",
            output: "",
        },
        Example {
            title: "The id of the event in structured data, so that repeats are recognised, and the whole event as JSON",
            stage: "syslog tcp logs.example:601 structured_data.event@32473.id=%{@metadata.id} codec=json",
            input: "",
            output: "",
        },
        Example {
            title: "To the syslog service of this machine",
            stage: "syslog unix /dev/log appname=shop severity=%{level}",
            input: "",
            output: "",
        },
    ],
    schema: |generator| with_codec::<Config>(generator, CodecName::Text),
    build: Build::Sender(build),
};

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide_without(node, &["timezone"])?;
    let config: Config = codec.parse_rest(&own)?;
    let (messages, channel) = config.parts(&codec, node)?;
    Ok(Arc::new(SocketOutput { messages, channel }))
}

impl Messages for Rendering {
    fn reads(&self) -> Vec<Arc<FieldRead>> {
        Self::reads(self)
    }

    fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        Self::write(self, batch, rows, encoded);
    }
}
