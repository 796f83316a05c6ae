//! `redis` appends events to lists and streams of Redis and its relatives.
//!
//! A request is a call of a script ([`protocol`]), which appends its events and remembers the request's id, both or none: a request that is sent
//! again because its answer was lost is recognised. Connections, hosts and time-outs are [`crate::exchange`]'s.

mod protocol;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning,
};
use config::{ConfigError, Node, Period, Positional, Positive};
use expr::Template;
use net::Secret;
use net::redis::{Login, PORT, write_bulk};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::protocol::{Append, Redis};
use crate::codec::{ABSENT, Codec, CodecName, CodecSettings};
use crate::exchange::{ConnectionSettings, Exchange};
use crate::partition::{encode_groups, partition};
use crate::schema::{codec_beside, with};

/// How long a key may be.
const KEY_BYTES_MAX: usize = 1024;

/// The description of `redis`.
pub const SPEC: Spec = Spec {
    name: "redis",
    aliases: &[],
    summary: "Appends events to lists or streams of Redis, Valkey or another server that speaks their protocol.",
    description: concat!("\
Each event is appended to the end of the list `key` (`RPUSH`), or with `data_type: stream` to the stream `key` as an entry with one field (`XADD`). `key` may contain fields and times: ", expr::template_syntax!(), " A field that \
is absent or null is written as `-`. `codec` determines how an event is written (page [codecs](codecs.md)). An event whose key is longer than 1,024 bytes or not valid UTF-8 is rejected.

The events of a key arrive in order: one request is in flight to each key. A request has at most 1 MiB, 10,000 events, or what has come within 200 ms, unless `batch` specifies other limits.

**What arrives twice.** A request is a script that the server runs as a whole: it appends the events and remembers the request under `millpond:request:ID` for `remember_requests`. A request that is sent again because the connection broke before its answer is recognised, \
and its events are not appended twice, also after a crash of the server if it writes its append-only file with `appendfsync always`. Events arrive twice if Millpond is killed while their request is in flight and a disk queue or an input repeats them; with several `hosts`, if a request is sent to \
another one because the answer of the first was lost; and with `remember_requests: 0s`. The user of Redis needs the commands `EVAL`, `EXISTS`, `SET`, and `RPUSH` or `XADD`, for the keys that are used and `millpond:request:*`.

**What the server stores.** An event is delivered when the server has answered. Whether it survives a crash of the server is a matter of its settings: `appendonly yes` and `appendfsync always` (the default, `everysec`, may lose the last second). A list or a stream grows until somebody takes \
events from it; `max_length` keeps only the newest entries of a stream, and what was not read of the others by then is lost.

| the server | what happens |
| --- | --- |
| refuses the password or a command, or the key has another type | it is retried until the cause is fixed; a one-line pipeline ends at once |
| has no memory left, loads its data, or only reads | it is retried |
| is part of a Redis Cluster and does not have the key | as a refused command: clusters are not supported |

With several `hosts`, requests are distributed over all of them, and each has a part of the events. A host that cannot be reached is paused for a second, then for twice as long each time, up to a minute; the others receive its requests."),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example { title: "A list that Logstash or a worker takes events from", stage: "redis localhost key=logs", input: "", output: "" },
        Example {
            title: "A stream for each service, with the last million entries",
            stage: "redis redis.example:6379 key='logs:%{service.name}' data_type=stream max_length=1M",
            input: "",
            output: "",
        },
        Example {
            title: "TLS, a user and a password",
            stage: "redis redis.example:6380 key=logs tls.ca=ca.pem user=shipper password=file:/run/secrets/redis",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = with::<Config, ConnectionSettings>(generator);
        codec_beside(own, generator, CodecName::Json)
    },
    build: Build::Sender(build),
};

/// The settings of `redis`, without those of connections and of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The key of the list or stream. May contain `%{field}` and `%{+time format}`.
    key: String,
    /// Whether `key` is a list or a stream.
    #[serde(default)]
    data_type: DataType,
    /// The field of an entry of a stream that holds the event.
    #[serde(default = "default_field")]
    field: String,
    /// About how many entries of a stream are kept, the newest. Default: all.
    max_length: Option<Positive<config::Count>>,
    /// The number of the database.
    #[serde(default)]
    db: u32,
    /// The user (`AUTH`). Requires `password`. Default: the server's default user.
    user: Option<String>,
    /// The password, or `file:PATH` for the content of a file.
    password: Option<Secret>,
    /// How long the server remembers a request, so that it takes it once. `0s` for not at all.
    #[serde(default = "default_memory")]
    remember_requests: Period,
}

fn default_field() -> String {
    "event".to_owned()
}

fn default_memory() -> Period {
    Period(Duration::from_secs(600))
}

/// Where a key's events are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DataType {
    /// A list, the newest at its end.
    #[default]
    List,
    /// A stream.
    Stream,
}

struct RedisOutput {
    key: Template,
    codec: Codec,
    exchange: Exchange<Redis>,
    /// The output's settings, for errors with their place.
    node: Node,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide(node)?;
    let (connections, config) = ConnectionSettings::read::<Config>(&own)?;
    let key = crate::codec::template(node, node.nearest("key"), &config.key)?;
    if config.key.is_empty() {
        return Err(node.nearest("key").error("the key is empty"));
    }
    let codec = codec.codec(node, CodecName::Json)?;
    let protocol = Redis {
        login: config.login(node)?,
        append: config.append(node)?,
        memory: config.remember_requests.0,
    };
    Ok(Arc::new(RedisOutput {
        key,
        codec,
        exchange: Exchange::new(protocol, connections, PORT),
        node: node.clone(),
    }))
}

impl Config {
    fn login(&self, node: &Node) -> Result<Login, ConfigError> {
        if self.user.is_some() && self.password.is_none() {
            return Err(node.nearest("user").error("`user` requires `password`"));
        }
        Ok(Login {
            user: self.user.clone(),
            password: self.password.clone(),
            db: self.db,
        })
    }

    fn append(&self, node: &Node) -> Result<Append, ConfigError> {
        match self.data_type {
            DataType::Stream if self.field.is_empty() => Err(node
                .nearest("field")
                .error("the name of the field is empty")),
            DataType::Stream => Ok(Append::Stream {
                field: self.field.clone(),
                max_length: self.max_length.as_ref().map(|count| count.get().0),
            }),
            DataType::List => {
                let of_streams = ["max_length", "field"].into_iter();
                match of_streams.clone().find(|name| node.get(name).is_some()) {
                    Some(name) => {
                        let error = format!("`{name}` requires `data_type: stream`");
                        Err(node.nearest(name).error(error))
                    }
                    None => Ok(Append::List),
                }
            }
        }
    }
}

impl RedisOutput {
    /// Appends rows, each as an argument of the script.
    fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut events = self.codec.bind(batch);
        let mut event = Vec::new();
        for row in rows.iter() {
            event.clear();
            events.write(row, &mut event);
            write_bulk(&event, &mut encoded.bytes);
            encoded.end_row(row);
        }
    }
}

/// A key that is used, or why it is not.
fn checked(key: &[u8]) -> Result<Arc<str>, Arc<str>> {
    if key.len() > KEY_BYTES_MAX {
        let len = key.len();
        return Err(format!("the key has {len} bytes; at most {KEY_BYTES_MAX} are allowed").into());
    }
    let text = std::str::from_utf8(key).map_err(|_| "the key is not valid UTF-8")?;
    Ok(text.into())
}

#[async_trait]
impl Output for RedisOutput {
    async fn open(&self) -> Result<(), ConfigError> {
        self.exchange.open(&self.node)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.key.reads().chain(self.codec.reads()).collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut key = self.key.bind(batch, ABSENT);
        let render = |row: usize, out: &mut Vec<u8>| key.write(row, out);
        let groups = partition(batch, rows, render, checked);
        encode_groups(groups, encoded, |_, rows, encoded| {
            self.write(batch, rows, encoded);
        });
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.exchange.take_warnings()
    }
}

#[async_trait]
impl Sender for RedisOutput {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: Compression::None,
            limits: RequestLimits {
                size_max: 1 << 20,
                rows_max: 10_000,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::ByDestination,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        self.exchange.send(request).await
    }
}
