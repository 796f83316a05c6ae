//! What a server answers to a request, over HTTP or gRPC.
//!
//! The specification says which requests may be sent again: <https://opentelemetry.io/docs/specs/otlp/#failures> and `#failures-1` there. It
//! leaves open what a client does with others. Here nothing is dropped: a request that may have one wrong event is divided, and what a person can mend is
//! tried until it is mended. The other events are rejected.

use std::time::{Duration, SystemTime};

use codec::otlp::Status;
use component::{SendError, Sent};
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, StatusCode};
use net::grpc;

use crate::answer::{foreign, is_page, wait, words};

/// The most bytes of a text that are shown.
const TEXT_BYTES_MAX: usize = 200;

/// What a server says of a request that it took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many events it does not take. It does not say which.
    pub rejected: u64,
    /// Why, or what else it has to say.
    pub message: String,
}

impl Taken {
    /// Reads the body of an answer. One that cannot be read says nothing.
    pub fn read(body: &[u8]) -> Self {
        Self::try_read(body).unwrap_or_default()
    }

    fn try_read(body: &[u8]) -> Option<Self> {
        // The answers for all kinds of data have the same fields.
        let answer = profiler::otlp::read_response(body).ok()?;
        Some(Self {
            rejected: answer.rejected,
            message: shown(&answer.message),
        })
    }

    /// Reads an answer over HTTP with a status of success.
    ///
    /// # Errors
    /// It is not that of a receiver of OTLP, such as a page to sign in: the events may be taken or not.
    pub fn of_http(origin: &str, head: &Parts, body: &[u8]) -> Result<Self, SendError> {
        let is_protobuf = is_protobuf(&head.headers);
        match Self::try_read(body) {
            Some(taken) if is_protobuf => Ok(taken),
            None if is_protobuf => Err(foreign(origin, head.status)),
            _ if is_page(&head.headers) => Err(foreign(origin, head.status)),
            // Servers need not answer in the form of the request; what such an answer says is not read.
            _ => Ok(Self::default()),
        }
    }

    /// What became of a request with so many events.
    ///
    /// # Errors
    /// None of them was taken.
    pub fn judge(&self, origin: &str, rows: usize) -> Result<Sent, SendError> {
        match self.rejected >= rows as u64 && rows > 0 {
            true => Err(SendError::Refused(format!(
                "{origin} rejected all {rows} events of a request: {}",
                self.message
            ))),
            false => Ok(Sent::default()),
        }
    }
}

/// What an answer with an error status of HTTP means.
pub fn of_http(origin: &str, head: &Parts, body: &[u8]) -> SendError {
    let status = head.status;
    let known = Status::read(body).unwrap_or_default();
    let text = match is_protobuf(&head.headers) {
        true => known.message,
        false => String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]).into_owned(),
    };
    let reason = reason(format!("{origin} responded with {status}"), &text);
    let after = wait(&head.headers, SystemTime::now());
    match status.as_u16() {
        429 | 502..=504 => match (after, status) {
            (None, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) => {
                SendError::Retry(reason)
            }
            _ => SendError::Later { reason, after },
        },
        400 | 413 | 422 => SendError::Unfit(reason),
        401 | 403..=405 | 407 | 415 | 300..=399 => SendError::Blocked(reason),
        _ => SendError::Refused(reason),
    }
}

/// What a status of gRPC that is no success means.
pub fn of_grpc(
    origin: &str,
    (code, text): (u32, &str),
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
) -> SendError {
    let details = grpc::details(headers, trailers);
    let details = details.and_then(|details| Status::read(&details).ok());
    let after = details.and_then(|details| details.retry_delay);
    let reason = reason(
        format!(
            "{origin} responded with {} (gRPC status {code})",
            grpc::name(code)
        ),
        text,
    );
    match (code, after) {
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        (1 | 4 | 10 | 11 | 14 | 15, None) => SendError::Retry(reason),
        // Also exhausted resources, if the server says that it will recover.
        (1 | 4 | 8 | 10 | 11 | 14 | 15, Some(after)) => SendError::Later {
            reason,
            after: Some(after.min(Duration::from_secs(3600))),
        },
        // Invalid argument; resources exhausted: as servers answer to what is too large.
        (3 | 8, _) => SendError::Unfit(reason),
        // Not found, permission denied, unimplemented, unauthenticated.
        (5 | 7 | 12 | 16, _) => SendError::Blocked(reason),
        _ => SendError::Refused(reason),
    }
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-protobuf"))
}

fn reason(answer: String, text: &str) -> String {
    match shown(text) {
        text if text.is_empty() => answer,
        text => format!("{answer}: {text}"),
    }
}

/// The beginning of a text, in one line.
fn shown(text: &str) -> String {
    words(&text.chars().take(TEXT_BYTES_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, RETRY_AFTER};

    use super::*;

    fn kind(error: &SendError) -> String {
        match error {
            SendError::Retry(_) => "retry".to_owned(),
            SendError::Later { after: None, .. } => "later".to_owned(),
            SendError::Later {
                after: Some(after), ..
            } => format!("after {}", after.as_secs_f32()),
            SendError::Blocked(_) => "blocked".to_owned(),
            SendError::Unfit(_) => "unfit".to_owned(),
            SendError::Refused(_) => "refused".to_owned(),
            SendError::Fatal(_) => "fatal".to_owned(),
        }
    }

    fn http(status: u16, after: Option<&str>, body: &[u8]) -> SendError {
        let mut response = http::Response::builder().status(status);
        if let Some(after) = after {
            response = response.header(RETRY_AFTER, after);
        }
        let response = response.header(CONTENT_TYPE, "application/x-protobuf");
        let (head, ()) = response.body(()).expect("a response").into_parts();
        of_http("http://x", &head, body)
    }

    #[test]
    fn statuses_of_http_say_what_to_do() {
        for (status, after, expected) in [
            (429, None, "later"),
            (429, Some("7"), "after 7"),
            (503, None, "later"),
            (502, None, "retry"),
            (504, Some("2"), "after 2"),
            (400, None, "unfit"),
            (413, None, "unfit"),
            (401, None, "blocked"),
            (404, None, "blocked"),
            (415, None, "blocked"),
            (302, None, "blocked"),
            (500, Some("2"), "refused"),
            (408, None, "refused"),
            (409, None, "refused"),
        ] {
            assert_eq!(kind(&http(status, after, b"")), expected, "{status}");
        }
        let status = Status {
            code: 3,
            message: "bad\ntime".to_owned(),
            retry_delay: None,
        };
        let text = http(400, None, &status.write()).to_string();
        assert_eq!(text, "http://x responded with 400 Bad Request: bad time");
    }

    #[test]
    fn statuses_of_grpc_say_what_to_do() {
        for code in 1..=17 {
            let expected = match code {
                1 | 4 | 10 | 11 | 14 | 15 => "retry",
                3 | 8 => "unfit",
                5 | 7 | 12 | 16 => "blocked",
                _ => "refused",
            };
            let error = of_grpc("x", (code, ""), &HeaderMap::new(), None);
            assert_eq!(kind(&error), expected, "{code}");
            let status = Status {
                code,
                message: String::new(),
                retry_delay: Some(Duration::from_millis(1500)),
            };
            let failure = grpc::Failure::new(grpc::Code::Unavailable, "");
            let answer = grpc::answer(Err(failure.with_details(status.write())));
            let trailers = crate::testing::wait(async {
                let body = http_body_util::BodyExt::collect(answer.into_body()).await;
                body.expect("a body").trailers().cloned()
            });
            let error = of_grpc("x", (code, ""), &HeaderMap::new(), trailers.as_ref());
            let expected = match expected {
                "retry" => "after 1.5",
                _ if code == 8 => "after 1.5",
                other => other,
            };
            assert_eq!(kind(&error), expected, "{code}");
        }
    }

    #[test]
    fn a_part_that_is_not_taken_is_counted() {
        let answer = profiler::otlp::Answer {
            rejected: 2,
            message: "too old".to_owned(),
        };
        let taken = Taken::read(&profiler::otlp::response(&answer));
        assert_eq!((taken.rejected, &*taken.message), (2, "too old"));
        assert_eq!(taken.judge("x", 3), Ok(Sent::default()));
        assert_eq!(
            taken.judge("x", 2),
            Err(SendError::Refused(
                "x rejected all 2 events of a request: too old".to_owned()
            ))
        );
        assert_eq!(Taken::read(b"{}"), Taken::default());
        assert_eq!(Taken::default().judge("x", 1), Ok(Sent::default()));
    }
}
