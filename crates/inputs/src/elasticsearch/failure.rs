//! Why a request is not taken, in the form in which Elasticsearch says it.

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
    /// What Elasticsearch calls it.
    kind: &'static str,
    pub(super) reason: String,
    /// The counter that counts it.
    pub(super) counter: &'static str,
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
    /// The rest of the body is not read, so that no other request can follow.
    pub(super) closes: bool,
}

impl Failure {
    pub(super) fn new(status: StatusCode, kind: &'static str, reason: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            reason: reason.into(),
            counter: REFUSED,
            header: None,
            closes: false,
        }
    }

    /// A request that is wrong in itself.
    pub(super) fn bad(kind: &'static str, reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, kind, reason)
    }

    /// A method that a path does not have.
    pub(super) fn method(reason: String, allowed: &'static str) -> Self {
        let kind = "method_not_allowed_exception";
        let failure = Self::new(StatusCode::METHOD_NOT_ALLOWED, kind, reason);
        failure.with(ALLOW, HeaderValue::from_static(allowed))
    }

    /// The same, with a body that was not read to its end.
    pub(super) fn leaving_body(self, leaves_body: bool) -> Self {
        Self {
            closes: leaves_body,
            ..self
        }
    }

    fn with(self, name: HeaderName, value: HeaderValue) -> Self {
        Self {
            header: Some(Box::new((name, value))),
            ..self
        }
    }

    /// The body of the response.
    pub(super) fn body(&self) -> Bytes {
        let mut out = br#"{"error":{"root_cause":["#.to_vec();
        write_cause(self.kind, &self.reason, &mut out);
        out.extend_from_slice(b"],");
        let mut cause = Vec::new();
        write_cause(self.kind, &self.reason, &mut cause);
        out.extend_from_slice(&cause[1..]);
        out.extend_from_slice(format!(",\"status\":{}}}", self.status.as_u16()).as_bytes());
        out.into()
    }
}

/// Appends type and reason as an object.
pub(super) fn write_cause(kind: &str, reason: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":");
    json::write_string(out, kind.as_bytes());
    out.extend_from_slice(b",\"reason\":");
    json::write_string(out, reason.as_bytes());
    out.push(b'}');
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let (reason, counter) = (fault.to_string(), fault.counter());
        let (status, kind) = match fault {
            Fault::Coding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "media_type_header_exception",
            ),
            Fault::TooLarge(_) | Fault::InflatesTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "content_too_long_exception")
            }
            Fault::Incomplete | Fault::Malformed(_) | Fault::Damaged(_) => {
                (StatusCode::BAD_REQUEST, "parse_exception")
            }
            Fault::Late => (StatusCode::REQUEST_TIMEOUT, "timeout_exception"),
            Fault::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "exception"),
            Fault::Unauthorized(challenge) => {
                let failure = Self::new(StatusCode::UNAUTHORIZED, "security_exception", reason);
                return failure.with(WWW_AUTHENTICATE, challenge);
            }
            Fault::NoMemory | Fault::Stalled => {
                (StatusCode::TOO_MANY_REQUESTS, "circuit_breaking_exception")
            }
            Fault::NotDelivered | Fault::NotInTime => (
                StatusCode::TOO_MANY_REQUESTS,
                "es_rejected_execution_exception",
            ),
            Fault::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "node_closed_exception"),
            Fault::Unchecked => (StatusCode::SERVICE_UNAVAILABLE, "security_exception"),
        };
        let failure = Self {
            counter,
            ..Self::new(status, kind, reason)
        };
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                failure.with(RETRY_AFTER, RETRY_SECONDS)
            }
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_form_of_elasticsearch() {
        let failure = Failure::bad("parse_exception", "it is \"broken\"");
        let body: serde_json::Value = serde_json::from_slice(&failure.body()).expect("JSON");
        let cause = serde_json::json!({"type": "parse_exception", "reason": "it is \"broken\""});
        assert_eq!(body["error"]["root_cause"], serde_json::json!([cause]));
        assert_eq!(body["error"]["type"], cause["type"]);
        assert_eq!(body["error"]["reason"], cause["reason"]);
        assert_eq!(body["status"], 400);
    }

    #[test]
    fn what_may_be_sent_again_says_so() {
        for (fault, status, kind, retries) in [
            (
                Fault::NotInTime,
                429,
                "es_rejected_execution_exception",
                true,
            ),
            (
                Fault::NotDelivered,
                429,
                "es_rejected_execution_exception",
                true,
            ),
            (Fault::NoMemory, 429, "circuit_breaking_exception", true),
            (Fault::Stalled, 429, "circuit_breaking_exception", true),
            (Fault::Stopping, 503, "node_closed_exception", true),
            (Fault::Unchecked, 503, "security_exception", true),
            (Fault::Late, 408, "timeout_exception", false),
            (Fault::Incomplete, 400, "parse_exception", false),
            (
                Fault::Malformed(String::new()),
                400,
                "parse_exception",
                false,
            ),
            (
                Fault::InflatesTooLarge,
                413,
                "content_too_long_exception",
                false,
            ),
            (Fault::Coding, 415, "media_type_header_exception", false),
            (Fault::Panicked, 500, "exception", false),
        ] {
            let failure = Failure::from(fault);
            assert_eq!((failure.status.as_u16(), failure.kind), (status, kind));
            let header = failure.header.map(|header| header.0);
            assert_eq!(header == Some(RETRY_AFTER), retries, "{kind}");
        }
    }
}
