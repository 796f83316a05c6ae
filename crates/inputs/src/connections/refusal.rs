//! Why a request is not taken, as the client hears it.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use super::request::{Fault, REFUSED};

/// Seconds after which a client may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Why a request is not taken.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    reason: String,
    /// The counter that counts it.
    pub(crate) counter: &'static str,
    header: Option<(HeaderName, HeaderValue)>,
    /// The rest of the body is not read, so that no other request can follow.
    closes: bool,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            counter: REFUSED,
            header: None,
            closes: false,
        }
    }

    /// The same, with a body that was not read to its end.
    pub(crate) fn leaving_body(self, leaves_body: bool) -> Self {
        Self {
            closes: leaves_body,
            ..self
        }
    }

    /// It may be sent again.
    fn later(reason: impl Into<String>) -> Self {
        Self {
            header: Some((RETRY_AFTER, RETRY_SECONDS)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, reason)
        }
    }

    fn unauthorized(challenge: HeaderValue) -> Self {
        Self {
            header: Some((WWW_AUTHENTICATE, challenge)),
            ..Self::new(StatusCode::UNAUTHORIZED, "wrong or missing credentials")
        }
    }

    pub(crate) fn method(allowed: HeaderValue) -> Self {
        Self {
            header: Some((ALLOW, allowed)),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed")
        }
    }

    /// The same, or that it may be sent again where the body was only too slow.
    pub(crate) fn later_if_slow(self) -> Self {
        match self.status {
            StatusCode::REQUEST_TIMEOUT => Self {
                closes: self.closes,
                ..Self::later(self.reason)
            },
            _ => self,
        }
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(format!("{}\n", self.reason).into()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some((name, value)) = self.header {
            headers.insert(name, value);
        }
        response
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let (reason, counter) = (fault.to_string(), fault.counter());
        let status = match fault {
            Fault::Coding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::TooLarge(_) | Fault::InflatesTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::Incomplete | Fault::Malformed(_) | Fault::Damaged(_) => StatusCode::BAD_REQUEST,
            Fault::Late => StatusCode::REQUEST_TIMEOUT,
            Fault::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Fault::Unauthorized(challenge) => return Self::unauthorized(challenge),
            Fault::NoMemory
            | Fault::Stalled
            | Fault::Stopping
            | Fault::NotDelivered
            | Fault::NotInTime
            | Fault::Unchecked => return Self::later(reason),
        };
        Self {
            counter,
            ..Self::new(status, reason)
        }
    }
}
