//! Why a request is not taken, as its client hears it: a status of HTTP with a `google.rpc.Status` in the form of the request, or a status of
//! gRPC.
//!
//! Clients of OTLP send a request again after 429, 502, 503, 504 and a few statuses of gRPC, and drop it after all others. So what is only a matter
//! of time is 503 or UNAVAILABLE. Source: <https://opentelemetry.io/docs/specs/otlp/#failures>.

use std::time::Duration;

use bytes::Bytes;
use codec::otlp::Status;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use net::grpc::{Code, Failure};

use crate::connections::request::{Fault, REFUSED};

/// After how long a client may try again.
const RETRY_SECONDS: u64 = 5;

/// The form of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Protocol Buffers.
    Protobuf,
    /// JSON.
    Json,
}

impl Form {
    /// An answer in this form.
    pub(super) fn response(
        self,
        status: StatusCode,
        body: impl Into<Bytes>,
    ) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(body.into()));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static(match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        });
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}

/// Why a request is not taken.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: Code,
    pub(super) reason: String,
    /// The counter that counts it.
    pub(super) counter: &'static str,
    header: Option<(HeaderName, HeaderValue)>,
    /// The rest of the body is not read, so that no other request can follow.
    closes: bool,
}

impl Refusal {
    /// One with a status of HTTP and its counterpart in gRPC.
    pub(super) fn new(status: StatusCode, code: Code, reason: impl Into<String>) -> Self {
        Self {
            status,
            code,
            reason: reason.into(),
            counter: REFUSED,
            header: None,
            closes: false,
        }
    }

    /// The request is no request of OTLP.
    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::InvalidArgument, reason)
    }

    /// Nobody takes requests there.
    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::Unimplemented, reason)
    }

    /// The form of the request, or its compression, is not read.
    pub(super) fn unsupported(reason: impl Into<String>) -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, Code::Unimplemented, reason)
    }

    /// The request, or what it holds, is too large.
    pub(super) fn too_large(reason: impl Into<String>) -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::new(status, Code::ResourceExhausted, reason)
    }

    /// Requests are posted.
    pub(super) fn method() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self {
            header: Some((ALLOW, HeaderValue::from_static("POST"))),
            ..Self::new(status, Code::Unimplemented, "logs are sent with POST")
        }
    }

    /// The same, with a body that was not read to its end.
    pub(super) fn leaving_body(self, leaves_body: bool) -> Self {
        Self {
            closes: leaves_body,
            ..self
        }
    }

    /// Whether the client is at fault.
    pub(super) fn is_of_client(&self) -> bool {
        self.status.is_client_error()
    }

    /// What is said of it, beside its status.
    fn said(&self) -> Status {
        let is_later = self.status == StatusCode::SERVICE_UNAVAILABLE;
        Status {
            code: self.code as u32,
            message: self.reason.clone(),
            retry_delay: is_later.then_some(Duration::from_secs(RETRY_SECONDS)),
        }
    }

    /// The answer over HTTP.
    pub(super) fn response(self, form: Form) -> Response<Full<Bytes>> {
        let said = self.said();
        let body = match form {
            Form::Protobuf => said.write(),
            Form::Json => {
                let object = serde_json::json!({ "code": said.code, "message": said.message });
                object.to_string().into_bytes()
            }
        };
        let mut response = form.response(self.status, body);
        let headers = response.headers_mut();
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if said.retry_delay.is_some() {
            headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
        }
        headers.extend(self.header);
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let said = refusal.said();
        let failure = Self::new(refusal.code, refusal.reason);
        match said.retry_delay {
            Some(_) => failure.with_details(said.write()),
            None => failure,
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let (reason, counter) = (fault.to_string(), fault.counter());
        let refusal = match fault {
            Fault::Coding => Self::unsupported(reason),
            Fault::TooLarge(_) | Fault::InflatesTooLarge => Self::too_large(reason),
            Fault::Incomplete | Fault::Malformed(_) | Fault::Damaged(_) => Self::malformed(reason),
            Fault::Panicked => Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, reason),
            Fault::Unauthorized(challenge) => Self {
                header: Some((WWW_AUTHENTICATE, challenge)),
                ..Self::new(StatusCode::UNAUTHORIZED, Code::Unauthenticated, reason)
            },
            Fault::Late
            | Fault::NoMemory
            | Fault::Stalled
            | Fault::Stopping
            | Fault::NotDelivered
            | Fault::NotInTime
            | Fault::Unchecked => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, reason)
            }
        };
        Self { counter, ..refusal }
    }
}
