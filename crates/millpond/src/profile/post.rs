//! One message with profiles to a server, as OTLP over HTTP or over gRPC.

use std::fmt;
use std::time::Duration;

use anyhow::anyhow;
use config::{ConfigError, Node};
use http::header::{CONTENT_TYPE, RETRY_AFTER, TE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use net::client::reqwest::{Body, RequestBuilder, Url};
use net::grpc::{self, Failure};
use net::{Client, RequestError};
use profiler::otlp::{self, Answer};

use super::settings::{Protocol, SendSettings};

/// The path of profiles at a collector that is named without one.
pub const PATH: &str = "/v1development/profiles";

/// The same for gRPC: the method of the collector's service.
pub const METHOD: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The most bytes of an error's text that are shown.
const TEXT_BYTES_MAX: usize = 200;

/// Statuses with which a message is sent again, as the specification of OTLP says.
const AGAIN: [u16; 4] = [429, 502, 503, 504];

/// Statuses that are of the message's content: bad request, too large, unsupported media type, content that cannot be processed.
const OF_CONTENT: [u16; 4] = [400, 413, 415, 422];

/// The same for gRPC: invalid argument, resource exhausted (too large).
const OF_CONTENT_GRPC: [u32; 2] = [3, 8];

/// Statuses of gRPC with which a message is sent again: cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
const AGAIN_GRPC: [u32; 6] = [1, 4, 10, 11, 14, 15];

/// Where messages are sent to.
pub struct Destination {
    client: Client,
    url: Url,
    protocol: Protocol,
}

/// Why a message was not accepted.
pub struct Failed {
    /// Whether it may be accepted when it is sent again.
    pub may_succeed: bool,
    /// Whether the server does not take this message, whereas it may take others.
    pub is_of_content: bool,
    /// When the server wants it again.
    pub after: Option<Duration>,
    /// What is wrong.
    pub error: anyhow::Error,
}

impl Failed {
    fn for_ever(error: anyhow::Error) -> Self {
        Self {
            may_succeed: false,
            is_of_content: false,
            after: None,
            error,
        }
    }
}

impl From<RequestError> for Failed {
    fn from(error: RequestError) -> Self {
        Self {
            may_succeed: !matches!(
                error,
                RequestError::Redirect { .. } | RequestError::NoHeader(_)
            ),
            is_of_content: false,
            after: None,
            error: error.into(),
        }
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::for_ever(failure.into())
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Destination {
    /// Reads certificates and checks the settings, which `node` holds.
    ///
    /// # Errors
    /// A setting cannot be used.
    pub fn open(settings: &SendSettings, node: &Node) -> Result<Self, ConfigError> {
        let mut url = net::client::url(node.nearest("url"), &settings.url)?;
        let is_https = url.scheme() == "https";
        let (build, path): (fn(&_, &_, _) -> _, _) = match settings.protocol {
            Protocol::Http => (Client::build, PATH),
            Protocol::Grpc => (Client::build_http2, METHOD),
        };
        if url.path() == "/" {
            url.set_path(path);
        }
        Ok(Self {
            client: build(&settings.client(), node, is_https)?,
            url,
            protocol: settings.protocol,
        })
    }

    /// Sends a message once; what the server says of one that it has.
    ///
    /// # Errors
    /// It was not accepted.
    pub async fn send(&self, message: &[u8]) -> Result<Answer, Failed> {
        let request = self.client.request(Method::POST, self.url.clone())?;
        match self.protocol {
            Protocol::Http => self.post(request, message).await,
            Protocol::Grpc => self.call(request, message).await,
        }
    }

    async fn post(&self, request: RequestBuilder, message: &[u8]) -> Result<Answer, Failed> {
        let request = request
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(message.to_vec());
        let (head, body, _) = self.exchange(request).await?;
        match head.status.is_success() {
            true => Ok(otlp::read_response(&body).unwrap_or_default()),
            false => Err(self.refused(&head, &body)),
        }
    }

    async fn call(&self, request: RequestBuilder, message: &[u8]) -> Result<Answer, Failed> {
        let request = request
            .header(CONTENT_TYPE, grpc::MEDIA_TYPE)
            .header(TE, "trailers")
            .body(grpc::framed(message)?);
        let (head, body, trailers) = self.exchange(request).await?;
        match grpc::status(&head.headers, trailers.as_ref()) {
            Some((0, _)) => {
                let is_gzip = grpc::is_gzip(&head.headers)?;
                let message = grpc::message(Full::new(body.into()), is_gzip, ANSWER_BYTES_MAX);
                Ok(otlp::read_response(&message.await?).unwrap_or_default())
            }
            Some((code, text)) => Err(Failed {
                may_succeed: AGAIN_GRPC.contains(&code),
                is_of_content: OF_CONTENT_GRPC.contains(&code),
                after: None,
                error: anyhow!(
                    "{} (gRPC status {code}): {}",
                    grpc::name(code),
                    self.shown(text.as_bytes())
                ),
            }),
            None => Err(self.refused(&head, &body)),
        }
    }

    /// Sends a request and reads its answer: head, body and trailers.
    async fn exchange(
        &self,
        request: RequestBuilder,
    ) -> Result<(http::response::Parts, Vec<u8>, Option<HeaderMap>), Failed> {
        let response = self.client.send(request).await?;
        let (head, body) = http::Response::<Body>::from(response).into_parts();
        let answer = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let answer = answer.map_err(|error| Failed {
            may_succeed: true,
            is_of_content: false,
            after: None,
            error: anyhow!("the answer cannot be read: {error}"),
        })?;
        let trailers = answer.trailers().cloned();
        Ok((head, answer.to_bytes().to_vec(), trailers))
    }

    /// An answer with a status of HTTP.
    fn refused(&self, head: &http::response::Parts, body: &[u8]) -> Failed {
        let status: StatusCode = head.status;
        let after = head.headers.get(RETRY_AFTER);
        let after = after.and_then(|value| value.to_str().ok()?.parse().ok());
        Failed {
            may_succeed: AGAIN.contains(&status.as_u16()),
            is_of_content: OF_CONTENT.contains(&status.as_u16()),
            after: after.map(Duration::from_secs),
            error: anyhow!("{status} {}", self.shown(body)),
        }
    }

    /// The beginning of a text of the server's.
    fn shown(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
        let text = self.client.without_secrets(text.into_owned());
        text.trim().to_owned()
    }
}
