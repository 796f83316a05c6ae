//! What a reply of the HTTP Event Collector means.
//!
//! | code | text | what becomes of the request |
//! | --- | --- | --- |
//! | 0, 24, 25 | success; queue or acknowledgements near their limit | accepted |
//! | 1 to 4, 10, 11, 14, 16, 21, 22 | token, channel, acknowledgement | sent again once a person has mended something |
//! | 5, 6, 12, 13, 15 | an event cannot be used | see below |
//! | 7 | incorrect index | refused where the events name it, otherwise sent again once a person has mended something |
//! | 8 | internal error | sent again |
//! | 9, 18, 19, 20, 23, 26, 27 | busy, full, shutting down | sent again later |
//!
//! Source of the codes: <https://docs.splunk.com/Documentation/Splunk/latest/Data/TroubleshootHTTPEventCollector>, "Possible error codes".
//!
//! **Invalid events.** The server reads a request event by event and stops at the first that it cannot use, whose number,
//! from 0, is `invalid-event-number`. Splunk has indexed the events before it by then (<https://github.com/moby/moby/issues/35862>), and
//! so has it when it becomes busy in between. Other servers that speak the protocol accept such a request as a whole or not at all
//! (the receiver of the OpenTelemetry Collector), and nothing in the reply tells one from the other. Therefore the
//! event of that number is refused, and all others are sent again: nothing is lost, and Splunk stores those before it twice.

use std::time::Duration;

use component::{RowAnswer, SendError, Sent};
use http::StatusCode;
use serde::Deserialize;

use crate::answer::words;

/// What was asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub rows: usize,
    /// Whether the events have a say in the index.
    pub index_by_event: bool,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was accepted, with the number of its acknowledgement where there is one.
    Accepted(Option<u64>),
    /// It was read up to an invalid event.
    Partly(Sent),
    /// It was not.
    Failed(SendError),
}

/// The reply. The number of the event is ignored where it is no number.
#[derive(Debug, Default, Deserialize)]
struct Reply {
    code: Option<u32>,
    #[serde(default)]
    text: String,
    #[serde(rename = "ackId")]
    ack_id: Option<u64>,
    #[serde(rename = "invalid-event-number")]
    invalid_event: Option<i64>,
}

/// What the reply to a request for events means.
pub fn judge(
    status: StatusCode,
    body: &[u8],
    origin: &str,
    after: Option<Duration>,
    asked: Asked,
) -> Verdict {
    let reply = serde_json::from_slice::<Reply>(body).ok();
    let reason = reason(status, body, reply.as_ref(), origin);
    let reply = reply.unwrap_or_default();
    match (status.is_success(), reply.code) {
        (true, Some(0 | 24 | 25)) => Verdict::Accepted(reply.ack_id),
        (_, Some(5 | 6 | 12 | 13 | 15)) => invalid(&reply, reason, asked),
        (_, Some(7)) if asked.index_by_event => Verdict::Failed(SendError::Refused(reason)),
        (_, Some(code)) if code > 0 => Verdict::Failed(by_code(code, status, reason, after)),
        // A page of a proxy's.
        (true, _) => Verdict::Failed(SendError::Retry(reason)),
        _ => Verdict::Failed(by_status(status, reason, after)),
    }
}

/// What a reply other than one to events, such as one about acknowledgements, says of a failure.
pub fn failed(status: StatusCode, body: &[u8], origin: &str, after: Option<Duration>) -> SendError {
    let reply = serde_json::from_slice::<Reply>(body).ok();
    let reason = reason(status, body, reply.as_ref(), origin);
    match reply.and_then(|reply| reply.code).filter(|code| *code > 0) {
        Some(code) => by_code(code, status, reason, after),
        None => by_status(status, reason, after),
    }
}

fn invalid(reply: &Reply, reason: String, asked: Asked) -> Verdict {
    let number = reply
        .invalid_event
        .and_then(|number| usize::try_from(number).ok());
    match number.filter(|number| *number < asked.rows) {
        Some(number) if asked.rows > 1 => {
            let answer = |row| RowAnswer {
                row,
                reason: reason.as_str().into(),
            };
            let others = (0..asked.rows).filter(|row| *row != number);
            Verdict::Partly(Sent {
                retry: others.map(answer).collect(),
                refused: vec![answer(number)],
                because: None,
            })
        }
        // Each half is sent on its own, and a single event is refused.
        _ => Verdict::Failed(SendError::Unfit(reason)),
    }
}

fn by_code(code: u32, status: StatusCode, reason: String, after: Option<Duration>) -> SendError {
    match code {
        1..=4 | 7 | 10 | 11 | 14 | 16 | 21 | 22 => SendError::Blocked(reason),
        9 | 18..=20 | 23 | 26 | 27 => SendError::Later { reason, after },
        8 => SendError::Retry(reason),
        _ => by_status(status, reason, after),
    }
}

fn by_status(status: StatusCode, reason: String, after: Option<Duration>) -> SendError {
    match status.as_u16() {
        429 | 503 => SendError::Later { reason, after },
        408 | 500..=599 if after.is_some() => SendError::Later { reason, after },
        408 | 500..=599 | 200..=299 => SendError::Retry(reason),
        400 | 413 => SendError::Unfit(reason),
        _ => SendError::Blocked(reason),
    }
}

fn reason(status: StatusCode, body: &[u8], reply: Option<&Reply>, origin: &str) -> String {
    let text = match reply {
        Some(Reply {
            code: Some(code),
            text,
            ..
        }) => format!("{} (code {code})", words(text)),
        _ => words(&String::from_utf8_lossy(&body[..body.len().min(200)])),
    };
    match text.is_empty() {
        true => format!("{origin} responded with {status}"),
        false => format!("{origin} responded with {status}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, body: &str, rows: usize, index_by_event: bool) -> String {
        let status = StatusCode::from_u16(status).expect("a status");
        let asked = Asked {
            rows,
            index_by_event,
        };
        let after = Some(Duration::from_secs(7)).filter(|_| body.contains("9}"));
        match judge(status, body.as_bytes(), "o", after, asked) {
            Verdict::Accepted(None) => "accepted".into(),
            Verdict::Accepted(Some(ack)) => format!("accepted {ack}"),
            Verdict::Partly(sent) => {
                let rows = |answers: &[RowAnswer]| -> Vec<usize> {
                    answers.iter().map(|answer| answer.row).collect()
                };
                format!(
                    "{:?} again, {:?} refused",
                    rows(&sent.retry),
                    rows(&sent.refused)
                )
            }
            Verdict::Failed(error) => match error {
                SendError::Retry(_) => "retry".into(),
                SendError::Later { after, .. } => format!("later {after:?}"),
                SendError::Blocked(_) => "blocked".into(),
                SendError::Unfit(_) => "unfit".into(),
                SendError::Refused(_) => "refused".into(),
                SendError::Fatal(_) => "fatal".into(),
            },
        }
    }

    #[test]
    fn codes_say_what_becomes_of_a_request() {
        let code = |code: u32| format!(r#"{{"text":"t","code":{code}}}"#);
        for (status, codes, expected) in [
            (200, &[0, 24, 25][..], "accepted"),
            (403, &[1, 4], "blocked"),
            (401, &[2, 3], "blocked"),
            (400, &[7, 10, 11, 14, 16, 21, 22], "blocked"),
            (400, &[5, 6, 12, 13, 15], "unfit"),
            (500, &[8], "retry"),
            (503, &[18, 20, 23], "later None"),
            (503, &[9, 19], "later Some(7s)"),
            (429, &[26, 27], "later None"),
            // Codes that nobody knows yet.
            (400, &[99], "unfit"),
            (503, &[98], "later None"),
            (200, &[98], "retry"),
        ] {
            for number in codes {
                assert_eq!(
                    verdict(status, &code(*number), 3, false),
                    expected,
                    "{number}"
                );
            }
        }
        assert_eq!(verdict(400, &code(7), 3, true), "refused");
        let acknowledged = r#"{"text":"Success","code":0,"ackId":12}"#;
        assert_eq!(verdict(200, acknowledged, 3, false), "accepted 12");
    }

    #[test]
    fn an_invalid_event_is_refused_alone() {
        let at = |number: i64| {
            format!(r#"{{"text":"Invalid data format","code":6,"invalid-event-number":{number}}}"#)
        };
        for (number, rows, expected) in [
            (0, 3, "[1, 2] again, [0] refused"),
            (1, 3, "[0, 2] again, [1] refused"),
            (0, 1, "unfit"),
            // No event of this request's.
            (3, 3, "unfit"),
            (-1, 3, "unfit"),
        ] {
            assert_eq!(verdict(400, &at(number), rows, false), expected);
        }
        let busy = r#"{"text":"Server is busy","code":9,"invalid-event-number":1}"#;
        assert_eq!(verdict(503, busy, 3, false), "later None");
    }

    #[test]
    fn what_is_no_reply_of_a_collector_loses_nothing() {
        for (status, expected) in [
            (200, "retry"),
            (204, "retry"),
            (400, "unfit"),
            (413, "unfit"),
            (404, "blocked"),
            (407, "blocked"),
            (408, "retry"),
            (429, "later None"),
            (502, "retry"),
            (503, "later None"),
        ] {
            assert_eq!(verdict(status, "<html>Hello</html>", 3, false), expected);
        }
    }
}
