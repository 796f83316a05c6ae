//! `forward` sends events to Fluentd, Fluent Bit or another Millpond, by the Forward protocol, version 1.
//!
//! A request is a message in the mode PackedForward: `[tag, entries, {size, chunk, compressed}]`. The entries are binary data in
//! which each event is `[time, record]`, or `[[time, {_id}], record]` where events carry their ids. The receiver acknowledges a
//! message with `{"ack": chunk}`. Records that are MessagePack and that nobody changed are copied byte for byte.
//!
//! The specification: <https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1>.

mod entries;
mod handshake;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::msgpack::{
    Extent, Value, read, write_array_header, write_map_header, write_str, write_u64,
};
use batch::{Batch, Bitmap, FieldRead};
use bytes::Bytes;
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning,
};
use config::{ConfigError, Node, Positional};
use net::{Dialed, Secret};
use schemars::JsonSchema;
use serde::Deserialize;

use self::entries::{Entries, Tag};
use self::handshake::Credentials;
use crate::compression::CompressionName;
use crate::exchange::{Answer, ConnectionSettings, Exchange, GreetError, Protocol};
use crate::schema::with;

/// The port of Forward inputs.
const PORT: u16 = 24224;

/// The description of `forward`.
pub const SPEC: Spec = Spec {
    name: "forward",
    aliases: &[],
    summary: "Sends events to Fluentd, Fluent Bit or another Millpond, which acknowledge them.",
    description: concat!("\
The receiver is a `forward` input of Fluentd or Fluent Bit, the input [forward](input-forward.md) of another Millpond, or any other receiver of version 1 of \
the Forward protocol. An event is delivered when the receiver has acknowledged the chunk that it is in. Fluentd acknowledges a chunk when it is in its buffer, Millpond \
when its events are safe: on disk with `queue: disk`, and otherwise delivered by its own outputs.

**Events.** An event is sent as MessagePack: a record that came as MessagePack and that no processor changed is copied byte for byte, a JSON event is converted: a whole number that 64 bits do not hold, and any number that is too \
large for a float of 64 bits, becomes the text of its digits; other numbers become floats. The time of the entry is the time \
that the input `forward` received it with (`@metadata.fluent.time`), otherwise `@timestamp`, otherwise the time of receipt; a record keeps its `@timestamp`. `tag` may contain fields and times: ",
expr::template_syntax!(), " A field that is absent or null is written as `-`. By default, an event that the input `forward` received keeps its tag, and others get the tag `millpond`. Only events with the same tag share a chunk.

A chunk has at most 2 MiB of entries or 10,000 events, or what has come within 200 ms, unless `batch` specifies other limits. `compression` compresses entries: Fluentd and Fluent Bit accept gzip, \
Fluent Bit from version 4 on and Fluentd from version 1.19 on also zstd.

**Hosts.** Chunks are distributed over all hosts, over up to `connections` connections to each, with up to `pipelining` chunks in flight on every one \
of them. They may arrive in a different order than the events. If a host cannot be reached, closes a connection or does not acknowledge within `timeout`, requests to it are paused for a second, \
then for twice as long each time, up to a minute; the others receive its chunks. When it works again, its share of the chunks grows within 10 seconds. \
The protocol has no way to say that a receiver is busy, so that `timeout` must be longer than it may take to make a chunk safe.

**Ids, and what arrives twice.** If a connection breaks, or `timeout` is over, chunks that were not acknowledged are sent again, with the same chunk id; a receiver may have taken them. Events that were in flight when Millpond was \
killed are sent again in other chunks. Fluentd stores what it receives twice. With `event_ids: true`, each entry carries the id of its event in its metadata, as `_id`: the input `forward` of Millpond \
makes it the id of the event again, so that a destination that knows ids, such as Elasticsearch, stores it once. Fluent Bit from version 2.1 on accepts entries with metadata, and Fluentd does not.

**Authentication.** `shared_key`, and `username` and `password` where the receiver asks for them, are proved in a handshake, and so is the key of the receiver. The handshake does not encrypt: \
`tls` does. `tls.ca` is the authority of the receiver's certificate, `tls.cert` and `tls.key` are for receivers that require a \
certificate of their clients. With `tls: {}` the authorities of the system are trusted. A receiver that refuses the credentials is retried until the cause is fixed; a one-line pipeline ends at once.

The protocol has no way to reject an event. A receiver that cannot read a chunk closes the connection, and the chunk is sent again and again."),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example { title: "To Fluentd, Fluent Bit or Millpond on another machine", stage: "forward collector.example:24224 tag=app.web", input: "", output: "" },
        Example {
            title: "To another Millpond, with a shared key and the ids of events",
            stage: "forward collector.example shared_key=file:/run/secrets/fluent event_ids=true",
            input: "",
            output: "",
        },
        Example {
            title: "Two receivers, with certificates of both sides, compressed",
            stage: "forward a.example b.example tag=%{service.name} compression=zstd tls.ca=ca.pem tls.cert=agent.pem tls.key=agent.key",
            input: "",
            output: "",
        },
    ],
    schema: with::<Config, ConnectionSettings>,
    build: Build::Sender(build),
};

/// The settings of `forward`, without those of connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The tag of events, which may contain `%{field}` and `%{+time format}`. Default: the tag that the event came with, or
    /// `millpond`.
    tag: Option<String>,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// Whether entries carry the ids of their events, for a receiver that is Millpond or Fluent Bit.
    event_ids: bool,
    /// How entries are compressed.
    compression: CompressionName,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd.
    compression_level: Option<i32>,
    /// The key that the receiver and its clients share. `${VARIABLE}` and `file:PATH` keep it out of the configuration.
    shared_key: Option<Secret>,
    /// The user, where the receiver asks for one. Needs `shared_key`.
    username: Option<String>,
    /// The password of the user.
    password: Option<Secret>,
    /// The name of this client in the handshake. Default: the host name of the machine.
    client_name: Option<String>,
}

struct Forward {
    entries: Entries,
    compression: Compression,
    exchange: Exchange<Chunks>,
    /// The output's settings, for errors with their place.
    node: Node,
}

fn build(node: &Node, context: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (connections, config) = ConnectionSettings::read::<Config>(node)?;
    // Also where no template needs it.
    expr::zone_setting(node)?;
    let tag = match &config.tag {
        None => Tag::Kept,
        Some(text) => {
            let setting = node.nearest("tag");
            Tag::Text(crate::codec::template(node, setting, text)?)
        }
    };
    let compression = config
        .compression
        .with_level(node, config.compression_level)?;
    let chunks = Chunks {
        compression: match compression {
            Compression::None => None,
            Compression::Gzip(_) => Some("gzip"),
            Compression::Zstd(_) => Some("zstd"),
        },
        credentials: credentials(config.shared_key, node, context, |shared_key, host| {
            Credentials {
                shared_key,
                host: config.client_name.unwrap_or(host),
                username: config.username,
                password: config.password,
            }
        })?,
    };
    Ok(Arc::new(Forward {
        entries: Entries {
            tag,
            carries_ids: config.event_ids,
        },
        compression,
        exchange: Exchange::new(chunks, connections, PORT),
        node: node.clone(),
    }))
}

/// What the handshake needs, where there is one.
fn credentials(
    shared_key: Option<Secret>,
    node: &Node,
    context: &BuildContext,
    make: impl FnOnce(Secret, String) -> Credentials,
) -> Result<Option<Credentials>, ConfigError> {
    let Some(shared_key) = shared_key else {
        let lonely = ["username", "password", "client_name"];
        let lonely = lonely.into_iter().find(|name| node.get(name).is_some());
        return match lonely {
            Some(name) => {
                let error = node.nearest(name);
                Err(error.error(format!("`{name}` requires a `shared_key`")))
            }
            None => Ok(None),
        };
    };
    if node.get("username").is_some() != node.get("password").is_some() {
        let error = node.error("`username` and `password` require each other");
        return Err(error);
    }
    Ok(Some(make(shared_key, context.host.name.to_string())))
}

#[async_trait]
impl Output for Forward {
    async fn open(&self) -> Result<(), ConfigError> {
        if let Some(credentials) = &self.exchange.protocol().credentials {
            credentials.check(&self.node)?;
        }
        self.exchange.open(&self.node)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.entries.reads()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.entries.write(batch, rows, encoded);
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.exchange.take_warnings()
    }
}

#[async_trait]
impl Sender for Forward {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: self.compression,
            limits: RequestLimits {
                size_max: 2 << 20,
                rows_max: 10_000,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        self.exchange.send(request).await
    }
}

/// What is sent and received.
struct Chunks {
    compression: Option<&'static str>,
    credentials: Option<Credentials>,
}

/// The id of a chunk, as text.
fn chunk_id(id: u128) -> String {
    format!("{id:032x}")
}

impl Protocol for Chunks {
    async fn greet(&self, stream: &mut Dialed) -> Result<(), GreetError> {
        match &self.credentials {
            Some(credentials) => credentials.prove(stream).await,
            None => Ok(()),
        }
    }

    fn message(&self, request: &Request) -> [Bytes; 3] {
        let mut head = Vec::with_capacity(request.destination.len() + 16);
        write_array_header(&mut head, 3);
        write_str(&mut head, request.destination.as_bytes());
        head.push(0xC6);
        head.extend_from_slice(&(request.body.len() as u32).to_be_bytes());
        let mut options = Vec::with_capacity(80);
        write_map_header(&mut options, 2 + usize::from(self.compression.is_some()));
        write_str(&mut options, b"size");
        write_u64(&mut options, request.rows as u64);
        write_str(&mut options, b"chunk");
        write_str(&mut options, chunk_id(request.id).as_bytes());
        if let Some(name) = self.compression {
            write_str(&mut options, b"compressed");
            write_str(&mut options, name.as_bytes());
        }
        [head.into(), request.body.clone(), options.into()]
    }

    fn answer(&self, received: &[u8]) -> Result<Option<(Answer, usize)>, String> {
        let Some(end) = whole(received)? else {
            return Ok(None);
        };
        if is_helo(received) {
            return Err("the server requires a key: set `shared_key`".to_owned());
        }
        let ack = match read(received, 0).0 {
            Value::Map(_) => batch::msgpack::find(&received[..end], b"ack"),
            _ => None,
        };
        let ack = ack.map(|at| read(received, at.start).0);
        let id = match ack {
            Some(Value::Str(text) | Value::Bin(text)) => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let id = id.and_then(|text| u128::from_str_radix(text, 16).ok());
        let id = id.ok_or("the server sent something other than an acknowledgement")?;
        Ok(Some((Answer::Request(id), end)))
    }
}

/// Whether the server begins with the handshake of those that have a shared key.
fn is_helo(received: &[u8]) -> bool {
    let name = batch::msgpack::elements(received).next();
    name.is_some_and(|at| read(received, at.start).0 == Value::Str(b"HELO"))
}

/// Where the first value ends; none where it is not complete.
fn whole(received: &[u8]) -> Result<Option<usize>, String> {
    let end = Extent::default().advance(received);
    end.map_err(|error| format!("the server sent what is no MessagePack: {error}"))
}
