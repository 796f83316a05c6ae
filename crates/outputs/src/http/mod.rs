//! `http` sends events to an HTTP server: many in a request, or one each.
//!
//! [`target`] says where requests go, [`body`] what they hold, [`answer`] what an answer means. Requests are cut, joined,
//! compressed, kept in flight and repeated by the engine; TLS, proxies, time-outs and credentials are [`net::client`]'s.
//!
//! Limits: HTTP/1.1; redirects are not followed. Nothing that is said holds a path, a query or a header: they may be secret.

mod answer;
mod body;
mod target;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, Encoded, Example, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning, parse,
};
use config::{ConfigError, Node, Positional, setting_names};
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use net::{Client, ClientSettings, RequestError, Secret};
use schemars::JsonSchema;
use serde::Deserialize;

use self::answer::{Judge, Statuses};
use self::body::{BodyName, Rendering};
use self::target::{Target, is_template};
use crate::answer::{text, unanswered};
use crate::codec::{Codec, CodecName, CodecSettings};
use crate::compression::CompressionName;
use crate::partition::encode_groups;
use crate::schema::{codec_beside, with_client};

/// The description of `http`.
pub const SPEC: Spec = Spec {
    name: "http",
    aliases: &[],
    summary: "Sends events to an HTTP server.",
    description: concat!("\
`url`, `template` and the values of `headers` may contain fields and times: ", expr::template_syntax!(), " A field that is absent or null is written as `-`. Only events with the same URL and the same headers share a request. In a URL, fields and times \
are allowed in the path and the query, not in the host; the value of a field is percent-encoded, so that it cannot change the structure of the \
URL. An event whose URL is longer than 8,000 bytes is rejected; the others are sent. The value of a header without `%{` is \
sent as it is, or is the content of a file if it starts with `file:`.

`codec` determines how an event is written (page [codecs](codecs.md)), and `body` what a request contains: `lines` is many events, each with a newline behind it (with \
`msgpack`, nothing); `array` is a JSON array of many, with `codec: json` or a template that gives JSON; `single` is one event without a newline. Unless \
`headers` sets it, `Content-Type` is `application/x-ndjson`, `application/json`, `text/csv`, `application/vnd.msgpack` or `text/plain` accordingly.

A request is complete with 1 MiB, 10,000 events, or 200 ms after its first event, unless `batch` specifies other limits. Many requests are in \
flight at the same time (`concurrency`), so that they may arrive in a different order than the events.

The status of the response determines what happens to a request:

| status | what happens |
| --- | --- |
| 2xx | its events are delivered |
| 408, 429, 5xx | it is retried; after the time in `Retry-After`, if present: seconds or a date, at most an hour |
| 400, 413, 422 | its events are sent again in two halves, down to single events; an event that the server does not accept alone is rejected |
| 401, 403, 407, 415, 3xx | it is retried until the cause is fixed; a one-line pipeline ends at once |
| 404, 405, 410 | the same if `url` contains no fields and times; otherwise its events are rejected |
| any other | its events are rejected |

`retry_status` replaces the second row: the statuses it lists are retried, and for a status of that row that it does not list, the events are rejected. \
Rejected events are counted and not sent again. An unreachable server, a timeout and a broken connection are retried as \
well, in a service without a time limit, in a one-line pipeline for 30 seconds (`retry`).

If several requests in a row to one URL fail, or the server asks for a delay, requests to that URL are paused: for a while nothing is sent to it, then one request at a time until one is accepted. Other URLs of the same output continue, as long as the memory for requests is not filled by waiting requests. If five \
URLs fail one after the other, the whole output is paused.

Nothing is lost, but events may arrive twice: if a response is lost, it is unknown whether the events were accepted, and they are sent \
again; so are events that were in flight when Millpond was killed. After a restart, a disk queue repeats every batch that was not delivered \
completely: if the events of a batch go to several URLs, and one of them accepted none, the events accepted by the others are sent again. The id of an event, `%{@metadata.id}`, stays the same, so that \
a server that stores it can detect duplicates.

Certificates, keys and secrets are read at the start; if one of them is invalid, Millpond ends with exit code 2. A server that is \
unreachable or rejects the credentials causes a warning and is retried. Messages show the name of the server and the beginning of its response, \
without path, query and secrets."),
    positional: Positional::fields(&["url"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example { title: "JSON lines to a server", stage: "http https://logs.example/ingest", input: "", output: "" },
        Example {
            title: "A compressed JSON array, with a token from the environment",
            stage: "http https://logs.example/ingest body=array compression=zstd auth.bearer='${TOKEN}'",
            input: "",
            output: "",
        },
        Example {
            title: "Each event to its own URL, so that an event that is sent twice is stored once",
            stage: "http https://store.example/events/%{@metadata.id} method=PUT body=single",
            input: "",
            output: "",
        },
        Example {
            title: "A chat message for each event",
            stage: r#"http https://chat.example/hook body=single codec=template escape=json template='{"text": "%{host.name}: %{message}"}'"#,
            input: "",
            output: "",
        },
        Example {
            title: "A tenant in a header, requests of at most 100 events",
            stage: "http https://logs.example/push headers.X-Scope-OrgID=%{tenant} batch.max_events=100",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = with_client::<Config>(generator);
        codec_beside(own, generator, CodecName::Json)
    },
    build: Build::Sender(build),
};

/// The settings of `http`, without those of the client.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The `http` or `https` URL of requests. The path and the query may contain `%{field}` and `%{+time format}`.
    url: String,
    /// The HTTP method.
    #[serde(default)]
    method: MethodName,
    /// What the body of a request holds: `lines` is one event per line, `array` a JSON array, `single` one event.
    #[serde(default)]
    body: BodyName,
    /// With `codec: template`: how the values of fields are escaped.
    #[serde(default)]
    escape: EscapeName,
    /// How bodies are compressed.
    #[serde(default)]
    compression: CompressionName,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd.
    compression_level: Option<i32>,
    /// Headers for every request. A value may contain `%{field}` and `%{+time format}`, or be `file:PATH` for the
    /// content of a file. `Content-Type` is determined by `codec` and `body` unless it is set here.
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    /// The statuses after which a request is retried: from 300 to 599, or `3xx`, `4xx`, `5xx`.
    #[schemars(default = "retried_default")]
    retry_status: Option<Vec<Statuses>>,
}

fn retried_default() -> Vec<Statuses> {
    answer::RETRIED.to_vec()
}

/// The HTTP method.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum MethodName {
    /// POST.
    #[default]
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
}

/// How what fields give is escaped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EscapeName {
    /// No.
    #[default]
    None,
    /// As in a JSON string.
    Json,
}

struct Http {
    method: Method,
    target: Target,
    rendering: Rendering,
    compression: Compression,
    judge: Judge,
    settings: ClientSettings,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    client: OnceLock<Client>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    Ok(Arc::new(Http::new(node)?))
}

impl Http {
    fn new(node: &Node) -> Result<Self, ConfigError> {
        let names = setting_names::<ClientSettings>().iter().copied();
        let names: Vec<&str> = names.filter(|name| *name != "headers").collect();
        let (client, own) = node.divide(&names);
        let client = client.map(|client| parse::<ClientSettings>(&client));
        let mut settings = client.transpose()?.unwrap_or_default();
        let (codec, own) = CodecSettings::divide(&own)?;
        let config: Config = codec
            .parse_rest(&own)
            .map_err(|error| error.accepted_beside(&own, &names))?;
        let target = Target::new(node, &config.url)?;
        let rendering = rendering(&codec, &config, node)?;
        let compression = config
            .compression
            .with_level(node, config.compression_level)?;
        let judge = Judge {
            retried: config.retry_status.unwrap_or_else(retried_default),
            has_fixed_url: target.has_fixed_url(),
        };
        settings.headers = config.headers;
        complete(&mut settings, node, rendering.content_type(), compression)?;
        Ok(Self {
            method: match config.method {
                MethodName::Post => Method::POST,
                MethodName::Put => Method::PUT,
                MethodName::Patch => Method::PATCH,
            },
            target,
            rendering,
            compression,
            judge,
            settings,
            node: node.clone(),
            client: OnceLock::new(),
        })
    }
}

/// How events stand in bodies.
fn rendering(
    settings: &CodecSettings,
    config: &Config,
    node: &Node,
) -> Result<Rendering, ConfigError> {
    let mut codec = settings.codec(node, CodecName::Json)?;
    match &mut codec {
        Codec::Template { escapes, .. } => *escapes = config.escape == EscapeName::Json,
        _ if config.escape == EscapeName::Json => {
            let message = "`escape` requires `codec: template`";
            return Err(node.nearest("escape").error(message));
        }
        _ => {}
    }
    Rendering::new(codec, config.body, node)
}

/// Takes templates out of the headers, which [`Target`] has, and adds what follows from the other settings.
fn complete(
    settings: &mut ClientSettings,
    node: &Node,
    content_type: &str,
    compression: Compression,
) -> Result<(), ConfigError> {
    let given = node.get("headers").and_then(Node::as_map);
    let mut known = Vec::new();
    for (key, value) in given.unwrap_or_default() {
        let (Some(name), Some(text)) = (key.as_str(), value.as_str()) else {
            continue;
        };
        let header = HeaderName::try_from(name).ok();
        if header.as_ref() == Some(&AUTHORIZATION) && settings.auth.is_some() {
            let error = key.error("`auth` and a header `Authorization` exclude each other");
            return Err(error);
        }
        known.extend(header);
        if is_template(text) {
            settings.headers.remove(name);
        }
    }
    let encoding = match compression {
        Compression::None => None,
        Compression::Gzip(_) => Some("gzip"),
        Compression::Zstd(_) => Some("zstd"),
    };
    for (name, value) in [
        (CONTENT_TYPE, Some(content_type)),
        (CONTENT_ENCODING, encoding),
    ] {
        if let Some(value) = value.filter(|_| !known.contains(&name)) {
            let value = Secret::new(value);
            settings.headers.insert(name.to_string(), value);
        }
    }
    Ok(())
}

#[async_trait]
impl Output for Http {
    async fn open(&self) -> Result<(), ConfigError> {
        let client = Client::build(&self.settings, &self.node, self.target.is_https())?;
        // Called once.
        let _ = self.client.set(client);
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let mut reads = self.target.reads();
        reads.extend(self.rendering.codec().reads());
        reads
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let Target::ByEvent(target) = &self.target else {
            return self.rendering.write(batch, rows, encoded);
        };
        encode_groups(target.groups(batch, rows), encoded, |_, rows, encoded| {
            self.rendering.write(batch, rows, encoded);
        });
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let warnings = self.client.get().map(Client::take_warnings);
        let warnings = warnings.unwrap_or_default();
        warnings.into_iter().map(Warning::from).collect()
    }
}

#[async_trait]
impl Sender for Http {
    fn requests(&self) -> Requests {
        Requests {
            framing: self.rendering.framing(),
            compression: self.compression,
            limits: RequestLimits {
                size_max: 1 << 20,
                rows_max: if self.rendering.is_single() {
                    1
                } else {
                    10_000
                },
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let origin = self.target.origin();
        let failed = |error: RequestError| unanswered(&origin, error);
        let (Some(client), Some((url, headers))) =
            (self.client.get(), self.target.resolve(&request.destination))
        else {
            return Err(SendError::Fatal("internal error: it is not open".into()));
        };
        let message = client.request(self.method.clone(), url).map_err(failed)?;
        let message = message
            .headers(headers)
            .body(net::client::body(request.body.clone()));
        let mut answer = client.send(message).await.map_err(failed)?;
        let text = client.without_secrets(text(&mut answer).await);
        let status = answer.status();
        let reason = match text.is_empty() {
            true => format!("{origin} responded with {status}"),
            false => format!("{origin} responded with {status}: {text}"),
        };
        self.judge.judge(status, answer.headers(), reason)
    }
}
