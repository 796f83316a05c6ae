//! Why a request is not taken, as Splunk's collector says it. Texts and codes are those of its REST API reference
//! (`services/collector`, "Possible error codes" of "Troubleshoot HTTP Event Collector").

use batch::json;
use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::connections::request::{Fault, REFUSED};

/// Seconds after which a client may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Why a request is not taken.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    code: u16,
    text: &'static str,
    /// The number of the event that is wrong, from 0.
    event: Option<usize>,
    /// What exactly is wrong.
    reason: String,
    /// The counter that counts it.
    pub(super) counter: &'static str,
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
    /// The rest of the body is not read, so that no other request can follow.
    pub(super) closes: bool,
}

impl Failure {
    fn new(status: StatusCode, code: u16, text: &'static str) -> Self {
        Self {
            status,
            code,
            text,
            event: None,
            reason: String::new(),
            counter: REFUSED,
            header: None,
            closes: false,
        }
    }

    fn bad(code: u16, text: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, text)
    }

    pub(super) fn token_required() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, 2, "Token is required").challenging()
    }

    pub(super) fn invalid_authorization() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, 3, "Invalid authorization").challenging()
    }

    pub(super) fn invalid_token() -> Self {
        Self::new(StatusCode::FORBIDDEN, 4, "Invalid token")
    }

    pub(super) fn no_data() -> Self {
        Self::bad(5, "No data")
    }

    pub(super) fn invalid_format(reason: impl Into<String>) -> Self {
        Self::bad(6, "Invalid data format").because(reason)
    }

    pub(super) fn channel_missing() -> Self {
        Self::bad(10, "Data channel is missing")
    }

    pub(super) fn channel_invalid() -> Self {
        Self::bad(11, "Invalid data channel")
    }

    pub(super) fn event_required() -> Self {
        Self::bad(12, "Event field is required")
    }

    pub(super) fn event_blank() -> Self {
        Self::bad(13, "Event field cannot be blank")
    }

    pub(super) fn acks_disabled() -> Self {
        Self::bad(14, "ACK is disabled")
    }

    pub(super) fn fields(reason: impl Into<String>) -> Self {
        Self::bad(15, "Error in handling indexed fields").because(reason)
    }

    pub(super) fn not_found() -> Self {
        let text = "The requested URL was not found on this server.";
        Self::new(StatusCode::NOT_FOUND, 404, text)
    }

    pub(super) fn method(allowed: &'static str) -> Self {
        let text = "Method Not Allowed";
        let failure = Self::new(StatusCode::METHOD_NOT_ALLOWED, 405, text);
        failure.with(ALLOW, HeaderValue::from_static(allowed))
    }

    /// The same of the event with this number.
    pub(super) fn of_event(self, number: usize) -> Self {
        Self {
            event: Some(number),
            ..self
        }
    }

    /// The same, with a body that was not read to its end.
    pub(super) fn leaving_body(self, leaves_body: bool) -> Self {
        Self {
            closes: leaves_body,
            ..self
        }
    }

    pub(super) fn because(self, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            ..self
        }
    }

    fn with(self, name: HeaderName, value: HeaderValue) -> Self {
        Self {
            header: Some(Box::new((name, value))),
            ..self
        }
    }

    fn challenging(self) -> Self {
        self.with(WWW_AUTHENTICATE, HeaderValue::from_static("Splunk"))
    }

    /// What Millpond's log says of it.
    pub(super) fn shown(&self) -> String {
        let mut text = self.text.to_owned();
        if let Some(event) = self.event {
            text.push_str(&format!(", event {event}"));
        }
        if !self.reason.is_empty() {
            text.push_str(&format!(": {}", self.reason));
        }
        text
    }

    /// The body of the response. `reason` is Millpond's own.
    pub(super) fn body(&self) -> Bytes {
        let mut out = format!("{{\"text\":\"{}\",\"code\":{}", self.text, self.code).into_bytes();
        if let Some(event) = self.event {
            out.extend_from_slice(format!(",\"invalid-event-number\":{event}").as_bytes());
        }
        if !self.reason.is_empty() {
            out.extend_from_slice(b",\"reason\":");
            json::write_string(&mut out, self.reason.as_bytes());
        }
        out.push(b'}');
        out.into()
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let (reason, counter) = (fault.to_string(), fault.counter());
        let (status, code, text) = match fault {
            Fault::Coding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 6, "Invalid data format"),
            Fault::TooLarge(_) | Fault::InflatesTooLarge => {
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                (status, 27, "Request entity too large")
            }
            Fault::Incomplete | Fault::Malformed(_) | Fault::Damaged(_) => {
                (StatusCode::BAD_REQUEST, 6, "Invalid data format")
            }
            Fault::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                8,
                "Internal server error",
            ),
            Fault::Unauthorized(_) => return Self::invalid_authorization(),
            // Clients do not send again what was answered with 4xx.
            Fault::Late
            | Fault::NoMemory
            | Fault::Stalled
            | Fault::Stopping
            | Fault::NotDelivered
            | Fault::NotInTime
            | Fault::Unchecked => {
                let busy = Self::new(StatusCode::SERVICE_UNAVAILABLE, 9, "Server is busy");
                return busy.with(RETRY_AFTER, RETRY_SECONDS).because(reason);
            }
        };
        Self {
            counter,
            reason,
            ..Self::new(status, code, text)
        }
    }
}
