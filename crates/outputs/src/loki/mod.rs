//! `loki` sends events to Grafana Loki, as JSON push requests.
//!
//! [`streams`] says of which stream an event is, [`entry`] what a request holds of it. Each request holds entries of one stream, whose
//! labels are the name of its destination, so that the engine keeps the entries of a stream in order: one request to each
//! stream is in flight.
//!
//! **Partly accepted requests.** Loki validates and stores entries one by one, and answers 400 with the reasons when it has rejected some; the
//! others are stored (`pkg/ingester/stream.go`, `pkg/distributor/distributor.go` of <https://github.com/grafana/loki>). The answer names some of
//! the rejected entries at most. The engine therefore sends each half on its own, down to single entries: those that are stored already
//! are exact duplicates, which Loki drops.
//!
//! Limits: HTTP/1.1; JSON, not protobuf.

mod entry;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use bytes::Bytes;
use component::{
    Build, BuildContext, Compression, Encoded, Example, Output, Request, RequestLimits,
    RequestOrder, Requests, Rows, SendError, Sender, Sent, Spec, Warning, parse,
};
use config::{ConfigError, Count, Node, Positional, setting_names};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use net::client::reqwest::Url;
use net::{Client, ClientSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::entry::{Entry, FRAMING};
use self::streams::{Streams, parts};
use crate::answer::{foreign, is_page, text, wait, without_secrets};
use crate::compression::CompressionName;
use crate::failover::{Failed, HostVerdict, Round};
use crate::hosts::{Hosts, Turn, below};
use crate::members::Members;
use crate::partition::encode_groups;
use crate::schema::with_client;

/// The status with which Loki says that it drops everything (`block_ingestion_status_code`).
const BLOCKED: u16 = 260;

/// What Loki says of every entry when it is not to store structured metadata.
const NO_METADATA: &str = "includes structured metadata, but this feature is disallowed";

/// The description of `loki`.
pub const SPEC: Spec = Spec {
    name: "loki",
    aliases: &[],
    summary: "Sends events to Grafana Loki.",
    description: concat!("\
Works with Loki 2.4 and later, and with other servers that have `/loki/api/v1/push`. `hosts` and `labels` are required.

**Streams.** `labels` gives each label a text, which may contain fields and times: ", expr::template_syntax!(), " Events with the same values of all labels form a stream. A label whose text is empty, \
because its field is absent, is left out; an event without any label is rejected, because Loki does not accept it. Use labels for a few values that describe the source of events, such as host \
and application; values that differ from event to event, such as a request id, belong in `structured_metadata` (Loki 2.9 and later) or in the line. \
`max_streams` limits the number of different streams that have had an event within the last hour. An event of another stream is rejected (it becomes a dead letter) and counted as \
`streams_over_limit`.

`tenant` is sent as `X-Scope-OrgID`, and may contain fields. Events of different tenants never share a request. An event whose tenant is empty or contains characters that Loki does not accept is rejected.

**Entries.** The line is the whole event as a JSON object, or the text of `template`, such as `%{message}`. The time of an entry is `@timestamp`, or the time at which the event was received, in nanoseconds. \
The entries of a stream arrive in the order of the events, also those with the same time: one request for each stream is in flight. Many streams are sent at the same time (`concurrency`). A request \
contains entries of one stream, and is complete with 3 MiB, 20,000 events, or a second after its first event, unless `batch` specifies other limits. Bodies are compressed with gzip at level 1; `compression: none` saves \
most of the CPU time if the network is fast.

**Responses.** The status determines what happens to a request:

| status | what happens |
| --- | --- |
| 2xx except 260 | its events are delivered |
| 400, 413, 422 | it is sent again in two halves, down to single events; an event that Loki does not accept alone is rejected. Loki responds with 400 if some entries are too old, too far in the future, too far behind their stream, or too long, or if a label is; it has stored the others |
| 429, 503 | it is retried after the time in `Retry-After`, or after a delay: a rate limit, too many streams in Loki |
| 408, other 5xx | it is retried after a delay |
| 260 (ingestion is blocked), 3xx, any other 4xx; 400 if structured metadata is not allowed | it is retried until the cause is fixed; a one-line pipeline ends at once |

An unreachable server, a timeout and a broken connection are retried as well.

**Repeats.** An event may be sent twice: after a lost response, after a restart following a crash, and when a request is split. Loki stores only one of several entries with the same stream, time and line that are in the same chunk, and queries \
return only one of those in different chunks, so that a repeated event is seen once if all three are the same. They are, unless the event has no `@timestamp` of its own (a line of text that no `date` processor has handled: its time is the time of \
reading, which differs after a restart) or the line contains something that differs when it is read again. For the same reason, two different events with the same stream, time and line are seen as one; with \
`template` a line may be less distinct than the event. Structured metadata does not make entries different in all versions.

**Hosts.** Requests are distributed over all hosts. If a host does not respond or responds with an error for a whole request, requests to it are paused for a second, then for twice as long each time, up to a minute, or as long as its \
`Retry-After` says; the others receive its requests. The URL of a host may have a path, for a proxy.

Certificates, keys and secrets are read at the start: one that cannot be used ends Millpond with exit code 2. A server that is unreachable or rejects the credentials causes a warning and is retried."),
    positional: Positional::list(&["hosts"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Lines of files, with the host and the file as labels",
            stage: "loki http://loki.example:3100 labels.host='%{host.name}' labels.file='%{log.file.path}' template='%{message}'",
            input: "",
            output: "",
        },
        Example {
            title: "Whole events as JSON, a trace id as structured metadata, with credentials",
            stage: "loki https://logs.example labels.app='%{service.name}' structured_metadata.trace_id='%{trace.id}' auth.basic.user=shipper auth.basic.password='${PASSWORD}'",
            input: "",
            output: "",
        },
        Example {
            title: "A tenant for each customer",
            stage: "loki http://loki.example:3100 labels.job=millpond tenant='%{customer}'",
            input: "",
            output: "",
        },
    ],
    schema: with_client::<Config>,
    build: Build::Sender(build),
};

/// The settings of `loki`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The URLs of one or more servers, such as `http://loki.example:3100`, without `/loki/api/v1/push`.
    hosts: Vec<String>,
    /// The labels, each with its text, which may contain `%{field}`.
    labels: BTreeMap<String, String>,
    /// Names with texts that are stored with an entry without being labels; a text may contain `%{field}`.
    #[serde(default)]
    structured_metadata: BTreeMap<String, String>,
    /// The text of a line, which may contain `%{field}` and `%{+time format}`. Default: the whole event as a JSON object.
    template: Option<String>,
    /// The tenant. May contain `%{field}`.
    tenant: Option<String>,
    /// The maximum number of different streams.
    #[serde(default = "max_streams")]
    max_streams: Count,
    /// The zone of times in `%{+time format}`: an IANA name such as `Europe/Berlin`, or an offset such as `+02:00`. Default: UTC.
    #[serde(default)]
    #[allow(dead_code, reason = "read from the tree, for its place")]
    timezone: Option<String>,
    /// How bodies are compressed.
    #[serde(default)]
    compression: BodyCompression,
    /// The compression level, 0 to 9. Default: 1.
    compression_level: Option<i32>,
}

/// How bodies are compressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum BodyCompression {
    /// Gzip.
    #[default]
    Gzip,
    /// No.
    None,
}

struct Loki {
    hosts: Hosts<Url>,
    streams: Streams,
    entry: Entry,
    compression: Compression,
    settings: ClientSettings,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    client: OnceLock<Client>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let names = setting_names::<ClientSettings>();
    let (client, own) = node.divide(names);
    let client = client.map(|client| parse::<ClientSettings>(&client));
    let settings = client.transpose()?.unwrap_or_default();
    let config: Config = parse(&own).map_err(|error| error.accepted_beside(&own, names))?;
    if config.hosts.is_empty() {
        return Err(node.error("`hosts` is missing: the URLs of servers"));
    }
    let items = node.nearest("hosts").items();
    let labels: Vec<_> = config.labels.clone().into_iter().collect();
    let max = usize::try_from(config.max_streams.0).unwrap_or(usize::MAX);
    Ok(Arc::new(Loki {
        hosts: Hosts::at_urls(items.iter().zip(config.hosts.iter().cloned()))?,
        streams: Streams::new(node, &labels, config.tenant.as_deref(), max)?,
        entry: entry(&config, node)?,
        compression: match config.compression {
            BodyCompression::None => {
                CompressionName::None.with_level(node, config.compression_level)
            }
            BodyCompression::Gzip => {
                CompressionName::Gzip.with_level(node, Some(config.compression_level.unwrap_or(1)))
            }
        }?,
        settings,
        node: node.clone(),
        client: OnceLock::new(),
    }))
}

fn max_streams() -> Count {
    Count(1000)
}

fn entry(config: &Config, node: &Node) -> Result<Entry, ConfigError> {
    let mut metadata = Members::default();
    let at = node.nearest("structured_metadata");
    for (name, text) in &config.structured_metadata {
        if !streams::is_name(name) {
            let error = at.error(format!(
                "`{name}` cannot be the name of structured metadata"
            ));
            return Err(
                error.note("a name consists of letters, digits and `_`, and begins with a letter")
            );
        }
        metadata.add(node, at.get(name).unwrap_or(at), name, text)?;
    }
    let text = config.template.as_deref();
    let text = text.map(|text| crate::codec::template(node, node.nearest("template"), text));
    Ok(Entry {
        text: text.transpose()?,
        metadata,
    })
}

impl Loki {
    /// Sends a request to one host.
    async fn send_to(&self, turn: &Turn<'_, Url>, request: &Request) -> Result<Sent, Failed> {
        let client = self.client.get().ok_or_else(Failed::not_open)?;
        let origin = turn.name();
        let failed = |error| Failed::unanswered(origin, error);
        let url = below(turn.endpoint(), &["loki", "api", "v1", "push"]);
        let message = client.request(Method::POST, url).map_err(failed)?;
        let json = HeaderValue::from_static("application/json");
        let mut message = message.header(CONTENT_TYPE, json);
        if self.compression != Compression::None {
            message = message.header(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let (_, Some(tenant)) = parts(&request.destination) {
            message = message.header("x-scope-orgid", tenant);
        }
        let message = message.body(net::client::body(request.body.clone()));
        let mut answer = client.send(message).await.map_err(failed)?;
        let (status, after) = (answer.status(), wait(answer.headers(), SystemTime::now()));
        if status.is_success() && status.as_u16() != BLOCKED {
            let is_page = is_page(answer.headers());
            // Read to the end, so that the connection can be used again.
            text(&mut answer).await;
            return match is_page {
                false => Ok(Sent::default()),
                true => Err(Failed::unbelieved(foreign(origin, status))),
            };
        }
        let said = text(&mut answer).await;
        let error = without_secrets(client, judge(status, &said, origin, after), None);
        Err(match error {
            // The entries are wrong, or too many, and the host is not.
            SendError::Unfit(_) => Failed {
                error,
                goes_on: false,
                host: HostVerdict::Works,
            },
            error => Failed::answered(status, error),
        })
    }
}

/// What is to be done about a request that was not taken, or not as a whole.
fn judge(status: StatusCode, said: &str, origin: &str, after: Option<Duration>) -> SendError {
    let reason = match said.is_empty() {
        true => format!("{origin} responded with {status}"),
        false => format!("{origin} responded with {status}: {said}"),
    };
    match status.as_u16() {
        400 if said.contains(NO_METADATA) => SendError::Blocked(reason),
        400 | 413 | 422 => SendError::Unfit(reason),
        429 | 503 => SendError::Later { reason, after },
        408 | 500..=599 if after.is_some() => SendError::Later { reason, after },
        408 | 500..=599 => SendError::Retry(reason),
        _ => SendError::Blocked(reason),
    }
}

#[async_trait]
impl Output for Loki {
    async fn open(&self) -> Result<(), ConfigError> {
        let client = Client::build(&self.settings, &self.node, self.hosts.any_https())?;
        // Called once.
        let _ = self.client.set(client);
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.streams.reads().chain(self.entry.reads()).collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let groups = self.streams.groups(batch, rows);
        encode_groups(groups, encoded, |_, rows, encoded| {
            self.entry.write(batch, rows, encoded);
        });
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        match self.streams.take_rejected() {
            0 => Vec::new(),
            rejected => vec![("streams_over_limit", rejected)],
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let client = self.client.get().map(Client::take_warnings);
        let client = client.unwrap_or_default().into_iter().map(Warning::from);
        client.chain(self.hosts.take_warnings()).collect()
    }
}

#[async_trait]
impl Sender for Loki {
    fn requests(&self) -> Requests {
        Requests {
            framing: FRAMING,
            // That of `pack`.
            compression: Compression::None,
            limits: RequestLimits {
                // Only one request of a stream is in flight, so that a stream gets one of them a round trip. By default, Loki accepts messages of
                // 4 MiB between its parts, and bursts of 6 MB.
                size_max: 3 << 20,
                rows_max: 20_000,
                age_max: Duration::from_secs(1),
                is_filled: false,
            },
            order: RequestOrder::ByDestination,
        }
    }

    fn pack(&self, rows: &mut Rows<'_>) -> io::Result<Option<Bytes>> {
        let (labels, _) = parts(rows.destination);
        entry::pack(labels, rows.text, self.compression).map(Some)
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let mut round = Round::new(&self.hosts);
        while let Some(turn) = round.next() {
            match self.send_to(&turn, request).await {
                Ok(sent) => {
                    turn.succeeded();
                    return Ok(sent);
                }
                Err(failed) => round.failed(turn, failed)?,
            }
        }
        Err(round.into_error())
    }
}
