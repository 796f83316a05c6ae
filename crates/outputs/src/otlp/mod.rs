//! `otlp` sends events to an OpenTelemetry Collector, or whatever else receives logs over OTLP.
//!
//! [`record`] makes a log record of an event, [`origin`] says of which resource requests are, [`answer`] what an answer means. Requests are cut,
//! joined, compressed, kept in flight and repeated by the engine; TLS, proxies, time-outs and credentials are [`net::client`]'s.
//!
//! # Measurements
//! See `bench/otlp-logs`.
//!
//! Limits: one server; OTLP/HTTP with Protocol Buffers, not with JSON.

mod answer;
mod attributes;
mod origin;
pub(crate) mod probe;
mod record;
mod settings;

#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use bytes::Bytes;
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning,
};
use config::{ConfigError, Node, Positional};
use expr::Template;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, TE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt, Full, Limited};
use net::client::reqwest::{Body, RequestBuilder, Url};
use net::{Client, ClientSettings, RequestError, grpc};
use parking_lot::Mutex;

use self::answer::Taken;
use self::origin::{ALONE, Head, gzip_length};
use self::record::{Mapping, RecordWriter};
use self::settings::{Config, Protocol, Settings};
use crate::answer::unanswered;
use crate::schema::with_client;

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The description of `otlp`.
pub const SPEC: Spec = Spec {
    name: "otlp",
    aliases: &[],
    summary: "Sends events to an OpenTelemetry Collector, or another receiver of OTLP logs.",
    description: concat!(
        include_str!("description.md"),
        "\nTexts with fields and times, in `resource`: ",
        expr::template_syntax!(),
    ),
    positional: Positional::fields(&["url"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "To a collector, over HTTP",
            stage: "otlp http://collector.example:4318",
            input: "",
            output: "",
        },
        Example {
            title: "Over gRPC, with the name of the service",
            stage: "otlp https://collector.example:4317 protocol=grpc resource.service.name=web auth.bearer='${TOKEN}'",
            input: "",
            output: "",
        },
        Example {
            title: "Attributes as the semantic conventions name them, and a resource for each host",
            stage: "otlp http://collector.example:4318 objects=flatten resource.host.name='%{host.name}'",
            input: "",
            output: "",
        },
    ],
    schema: with_client::<Config>,
    build: Build::Sender(build),
};

struct Otlp {
    url: Url,
    protocol: Protocol,
    compression: Compression,
    mapping: Mapping,
    headers: HeaderMap,
    settings: ClientSettings,
    /// The output's settings, for errors with their place.
    node: Node,
    /// Made when the output opens.
    client: OnceLock<Client>,
    said: Mutex<Said>,
}

/// What servers said of requests that they took, since somebody asked.
#[derive(Default)]
struct Said {
    rejected: u64,
    warning: Option<String>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    Ok(Arc::new(Otlp::new(Settings::read(node)?, node)))
}

/// An answer: its head, its body and its trailers.
type Answer = (Parts, Bytes, Option<HeaderMap>);

impl Otlp {
    fn new(settings: Settings, node: &Node) -> Self {
        let header = HeaderValue::from_static;
        let mut headers = HeaderMap::new();
        let encoding = match settings.protocol {
            Protocol::Http => {
                headers.insert(CONTENT_TYPE, header("application/x-protobuf"));
                CONTENT_ENCODING
            }
            Protocol::Grpc => {
                headers.insert(CONTENT_TYPE, grpc::MEDIA_TYPE);
                headers.insert(TE, header("trailers"));
                GRPC_ENCODING
            }
        };
        if settings.compression != Compression::None {
            headers.insert(encoding, header("gzip"));
        }
        Self {
            url: settings.url,
            protocol: settings.protocol,
            compression: settings.compression,
            mapping: settings.mapping,
            headers,
            settings: settings.client,
            node: node.clone(),
            client: OnceLock::new(),
            said: Mutex::default(),
        }
    }

    /// Scheme, host and port.
    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Renders the rows of a destination: those with a resource of their own alone, the others as records.
    fn write(&self, destination: &str, rows: &Bitmap, batch: &Batch, encoded: &mut Encoded) {
        let mut writer = RecordWriter::new(&self.mapping, batch);
        let mut others = Vec::new();
        let mut first_is_alone = None;
        encoded.ends.reserve(rows.count());
        for row in rows.iter() {
            writer.load(row);
            let is_alone = writer.has_origin();
            if first_is_alone.is_none() {
                begin(is_alone, destination, encoded);
            }
            if *first_is_alone.get_or_insert(is_alone) != is_alone {
                others.push(row);
                continue;
            }
            write_row(&mut writer, is_alone, destination, encoded);
        }
        let Some(&first) = others.first() else { return };
        writer.load(first);
        let is_alone = writer.has_origin();
        begin(is_alone, destination, encoded);
        for row in others {
            writer.load(row);
            write_row(&mut writer, is_alone, destination, encoded);
        }
    }

    /// The body of a request, in parts.
    fn body(&self, request: &Request) -> Result<Vec<Bytes>, SendError> {
        let body = request.body.clone();
        let is_compressed = self.compression != Compression::None;
        let mut parts = match &*request.destination {
            ALONE => vec![body],
            destination => {
                let scope = self.mapping.origins.scope();
                let head = |records| Head::new(destination, scope, records);
                match is_compressed {
                    false => head(body.len()).before(body),
                    true => head(gzip_length(&body)).before_gzip(&body).ok_or_else(|| {
                        SendError::Fatal("internal error: the request is not gzip".into())
                    })?,
                }
            }
        };
        if self.protocol == Protocol::Grpc {
            let length = parts.iter().map(Bytes::len).sum();
            let head = grpc::head(is_compressed, length);
            let head = head.map_err(|failure| SendError::Unfit(failure.message))?;
            parts.insert(0, Bytes::copy_from_slice(&head));
        }
        Ok(parts)
    }

    /// Sends a message and reads its answer.
    async fn exchange(
        &self,
        client: &Client,
        message: RequestBuilder,
    ) -> Result<Answer, SendError> {
        let origin = self.origin();
        let failed = |error: RequestError| unanswered(&origin, error);
        let answer = client.send(message).await.map_err(failed)?;
        let (head, body) = http::Response::<Body>::from(answer).into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            SendError::Retry(format!("{origin}: the response cannot be read: {error}"))
        })?;
        let trailers = body.trailers().cloned();
        Ok((head, body.to_bytes(), trailers))
    }

    /// What a server says of a request that it took.
    async fn taken(&self, (head, body, trailers): Answer) -> Result<Taken, SendError> {
        let origin = self.origin();
        let status = match self.protocol {
            Protocol::Http => None,
            Protocol::Grpc => grpc::status(&head.headers, trailers.as_ref()),
        };
        match status {
            Some((0, _)) => {
                let is_gzip = grpc::is_gzip(&head.headers).unwrap_or(false);
                let message = grpc::message(Full::new(body), is_gzip, ANSWER_BYTES_MAX).await;
                Ok(message.map_or_else(|_| Taken::default(), |message| Taken::read(&message)))
            }
            Some((code, text)) => {
                let (headers, trailers) = (&head.headers, trailers.as_ref());
                Err(answer::of_grpc(&origin, (code, &text), headers, trailers))
            }
            None if head.status.is_success() => match self.protocol {
                Protocol::Http => Taken::of_http(&origin, &head, &body),
                Protocol::Grpc => Err(SendError::Retry(format!(
                    "{origin}: the response has no gRPC status"
                ))),
            },
            None => Err(answer::of_http(&origin, &head, &body)),
        }
    }

    /// Notes what a server said of a request that it took, as far as nothing else is done about it.
    fn note(&self, taken: &Taken, rows: usize) {
        if taken.rejected == 0 && taken.message.is_empty() {
            return;
        }
        let origin = self.origin();
        let mut said = self.said.lock();
        said.rejected += taken.rejected;
        said.warning = Some(match taken.rejected {
            0 => format!(
                "{origin} accepted a request with a warning: {}",
                taken.message
            ),
            rejected => format!(
                "{origin} rejected {rejected} of {rows} events of a request and does not say which; they are lost there: {}",
                taken.message
            ),
        });
    }
}

fn begin(is_alone: bool, destination: &str, encoded: &mut Encoded) {
    encoded.begin_part(if is_alone { ALONE } else { destination }.into());
}

fn write_row(
    writer: &mut RecordWriter<'_>,
    is_alone: bool,
    destination: &str,
    encoded: &mut Encoded,
) {
    let row = writer.row();
    match is_alone {
        true => writer.write_alone(destination, &mut encoded.bytes),
        false => writer.write(&mut encoded.bytes),
    }
    encoded.end_row(row);
}

/// An error without what was sent as a secret, should the server have said it back.
fn without_secrets(client: &Client, error: SendError) -> SendError {
    match error {
        SendError::Retry(text) => SendError::Retry(client.without_secrets(text)),
        SendError::Blocked(text) => SendError::Blocked(client.without_secrets(text)),
        SendError::Unfit(text) => SendError::Unfit(client.without_secrets(text)),
        SendError::Refused(text) => SendError::Refused(client.without_secrets(text)),
        SendError::Later { reason, after } => SendError::Later {
            reason: client.without_secrets(reason),
            after,
        },
        SendError::Fatal(text) => SendError::Fatal(text),
    }
}

#[async_trait]
impl Output for Otlp {
    async fn open(&self) -> Result<(), ConfigError> {
        let is_https = self.url.scheme() == "https";
        let client = match self.protocol {
            Protocol::Http => Client::build(&self.settings, &self.node, is_https)?,
            Protocol::Grpc => Client::build_http2(&self.settings, &self.node, is_https)?,
        };
        // Called once.
        let _ = self.client.set(client);
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let templates = self.mapping.origins.templates();
        templates.flat_map(Template::reads).collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        for group in self.mapping.origins.groups(batch, rows) {
            if let Ok(destination) = &group.destination {
                self.write(destination, &group.rows, batch, encoded);
            }
        }
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        match std::mem::take(&mut self.said.lock().rejected) {
            0 => Vec::new(),
            rejected => vec![("rejected_by_server", rejected)],
        }
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let client = self.client.get().map(Client::take_warnings);
        let said = self.said.lock().warning.take();
        let warnings = client.unwrap_or_default().into_iter().chain(said);
        warnings.map(Warning::from).collect()
    }
}

#[async_trait]
impl Sender for Otlp {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: self.compression,
            limits: RequestLimits {
                // Servers accept 4 MiB over gRPC unless they are told otherwise.
                size_max: 2 << 20,
                rows_max: 5_000,
                age_max: Duration::from_secs(1),
                is_filled: false,
            },
            order: RequestOrder::Free,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let Some(client) = self.client.get() else {
            return Err(SendError::Fatal("internal error: it is not open".into()));
        };
        let message = client
            .request(Method::POST, self.url.clone())
            .map_err(|error| unanswered(&self.origin(), error))?
            .headers(self.headers.clone())
            .body(net::client::joined_body(self.body(request)?));
        let answer = self.exchange(client, message).await?;
        let taken = self.taken(answer).await;
        let mut taken = taken.map_err(|error| without_secrets(client, error))?;
        taken.message = client.without_secrets(taken.message);
        let sent = taken.judge(&self.origin(), request.rows)?;
        self.note(&taken, request.rows);
        Ok(sent)
    }
}
