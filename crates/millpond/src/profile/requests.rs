//! Requests with profiles: OTLP over HTTP (`/v1development/profiles`) and over gRPC ([`METHOD`]).
//!
//! A request is answered with success when its profiles are on disk. Profiles that are not about processor time are counted in the answer.
//! A profile whose resource names no host is stored under the address of its client.
//!
//! # Limits
//! A message has up to `max_request_bytes` as it is sent and decompressed; [`BODIES_MAX`] of them are in memory at the same time. Protobuf only, no
//! JSON; compressed with gzip or not.

use std::io::ErrorKind;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use component::{Diagnostics, Limit};
use flate2::read::GzDecoder;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use net::grpc::{self, AnswerBody, Code, Failure};
use net::{Auth, ConnectionError, Handler, Peer};
use profiler::otlp::{self, Answer};
use profiler::store::Store;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::post::{METHOD, PATH};
use super::settings::ReceiveSettings;

/// How many messages are read at the same time; others wait, with nothing but their heads and what their connections hold in memory.
const BODIES_MAX: usize = 4;

/// How long a client may take for a message.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Seconds after which a client may send again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("30");

/// Answers requests.
pub struct Service {
    auth: Option<Auth>,
    max_bytes: usize,
    body_timeout: Duration,
    bodies: Semaphore,
    store: Store,
    diagnostics: Diagnostics,
}

/// Why a request is not accepted.
struct Refusal {
    status: StatusCode,
    reason: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            header: None,
        }
    }

    fn later(reason: impl Into<String>) -> Self {
        Self {
            header: Some((RETRY_AFTER, RETRY_SECONDS)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, reason)
        }
    }

    fn too_large(max_bytes: usize) -> Self {
        let reason = format!("the body is larger than {max_bytes} bytes (`max_request_bytes`)");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.status {
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
            StatusCode::PAYLOAD_TOO_LARGE => Code::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            StatusCode::NOT_FOUND | StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::Unimplemented,
            _ => Code::InvalidArgument,
        };
        Self::new(code, refusal.reason)
    }
}

impl Service {
    /// Stores in `store` what it receives.
    pub fn new(settings: &ReceiveSettings, store: Store, diagnostics: Diagnostics) -> Self {
        Self {
            auth: settings.auth.clone(),
            max_bytes: usize::try_from(settings.max_request_bytes.get().0).unwrap_or(usize::MAX),
            body_timeout: BODY_TIMEOUT,
            bodies: Semaphore::new(BODIES_MAX),
            store,
            diagnostics,
        }
    }

    /// Where it reports what is wrong.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    fn authenticate(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(auth) = &self.auth else {
            return Ok(());
        };
        match auth.admits(headers) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal {
                header: Some((WWW_AUTHENTICATE, auth.challenge())),
                ..Refusal::new(StatusCode::UNAUTHORIZED, "wrong or missing credentials")
            }),
            Err(error) => {
                self.diagnostics
                    .warn_limited(Limit::events("profile_auth"), || {
                        format!("profiles are refused with 503: {error}")
                    });
                Err(Refusal::later(
                    "credentials cannot be checked at the moment",
                ))
            }
        }
    }

    /// Checks what is known before the body is read; whether it is compressed.
    fn admit(&self, head: &http::request::Parts) -> Result<bool, Refusal> {
        if head.uri.path() != PATH {
            let reason = format!("profiles are received at {PATH}");
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
        }
        if head.method != http::Method::POST {
            let reason = "profiles are sent with POST";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, reason));
        }
        self.authenticate(&head.headers)?;
        let text = |name| {
            let value: Option<&HeaderValue> = head.headers.get(name);
            value.map_or(&b""[..], HeaderValue::as_bytes)
        };
        if text(CONTENT_TYPE).starts_with(b"application/json") {
            let reason = "profiles are received as application/x-protobuf, not as JSON";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        match text(CONTENT_ENCODING) {
            b"" | b"identity" => Ok(false),
            b"gzip" => Ok(true),
            _ => {
                let reason = "the Content-Encoding is not supported: gzip or none";
                Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason))
            }
        }
    }

    async fn body(&self, body: Incoming) -> Result<Bytes, Refusal> {
        let body = Limited::new(body, self.max_bytes).collect();
        let Ok(read) = timeout(self.body_timeout, body).await else {
            let reason = "the body did not arrive in time";
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, reason));
        };
        match read {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large(self.max_bytes)),
            Err(_) => {
                let reason = "the connection ended in the middle of the body";
                Err(Refusal::new(StatusCode::BAD_REQUEST, reason))
            }
        }
    }

    fn decompressed(&self, body: &[u8]) -> Result<Bytes, Refusal> {
        let mut plain = Vec::new();
        let limit = self.max_bytes as u64 + 1;
        let read = GzDecoder::new(body).take(limit).read_to_end(&mut plain);
        read.map_err(|error| {
            let reason = format!("the gzip body is damaged: {error}");
            Refusal::new(StatusCode::BAD_REQUEST, reason)
        })?;
        match plain.len() > self.max_bytes {
            true => Err(Refusal::too_large(self.max_bytes)),
            false => Ok(plain.into()),
        }
    }

    /// Handles a request over HTTP.
    async fn accept(&self, peer: &Peer, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (head, body) = request.into_parts();
        let is_compressed = self.admit(&head)?;
        let _permit = self.bodies.acquire().await;
        let body = self.body(body).await?;
        let body = match is_compressed {
            true => self.decompressed(&body)?,
            false => body,
        };
        self.keep(peer, body)
    }

    /// Handles a call over gRPC.
    async fn accept_call(
        &self,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> Result<Answer, Failure> {
        let (head, body) = request.into_parts();
        if head.uri.path() != METHOD {
            let reason = format!("profiles are received by {METHOD}");
            return Err(Failure::new(Code::Unimplemented, reason));
        }
        self.authenticate(&head.headers)?;
        let is_gzip = grpc::is_gzip(&head.headers)?;
        let _permit = self.bodies.acquire().await;
        let message = grpc::message(body, is_gzip, self.max_bytes);
        let Ok(message) = timeout(self.body_timeout, message).await else {
            let reason = "the message did not arrive in time";
            return Err(Failure::new(Code::DeadlineExceeded, reason));
        };
        Ok(self.keep(peer, message?)?)
    }

    /// Stores the profiles of a message.
    fn keep(&self, peer: &Peer, message: Bytes) -> Result<Answer, Refusal> {
        let received = otlp::read(&message);
        let received =
            received.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        drop(message);
        if !received.profile.is_empty() {
            let host = peer.address.ip().to_string();
            let stored = self.store.write(&received.profile, &host);
            stored.map_err(|error| {
                if error.kind() == ErrorKind::InvalidFilename {
                    let reason = "the name of a host is too long for a folder";
                    return Refusal::new(StatusCode::BAD_REQUEST, reason.to_owned());
                }
                let folder = self.store.folder().display();
                let text = format!("profiles cannot be stored in {folder}: {error}");
                self.diagnostics
                    .warn_limited(Limit::events("profile_store"), || text);
                Refusal::later("the profiles cannot be stored at the moment; send them again")
            })?;
        }
        Ok(match received.rejected {
            0 => Answer::default(),
            rejected => Answer {
                rejected,
                message: "only profiles of processor time are stored".to_owned(),
            },
        })
    }

    fn warn(&self, peer: &Peer, reason: &str) {
        let address = peer.address.ip().to_string();
        let limit = Limit::peer("profile_requests", &address);
        self.diagnostics.warn_limited(limit, || {
            format!("a profile of {address} was refused: {reason}")
        });
    }
}

impl Handler for Service {
    type Session = Peer;
    const SPEAKS_HTTP2: bool = true;

    fn begin(&self, peer: Peer) -> Peer {
        peer
    }

    fn refused(&self, peer: Peer, reason: &ConnectionError) {
        if !matches!(reason, ConnectionError::Idle) {
            self.warn(&peer, &reason.to_string());
        }
    }

    async fn handle(&self, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
        match self.accept(peer, request).await {
            Ok(answer) => {
                let body = otlp::response(&answer);
                let mut response = Response::new(Full::from(body));
                let kind = HeaderValue::from_static("application/x-protobuf");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            Err(refusal) => {
                self.warn(peer, &refusal.reason);
                let mut response = Response::new(Full::from(refusal.reason + "\n"));
                *response.status_mut() = refusal.status;
                let headers = response.headers_mut();
                headers.extend(refusal.header);
                // The rest of the body may be unread.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        }
    }

    async fn call(&self, peer: &Peer, request: Request<Incoming>) -> Response<AnswerBody> {
        match self.accept_call(peer, request).await {
            Ok(answer) => grpc::answer(Ok(&otlp::response(&answer))),
            Err(failure) => {
                self.warn(peer, &failure.message);
                grpc::answer(Err(failure))
            }
        }
    }
}

#[cfg(test)]
mod tests;
