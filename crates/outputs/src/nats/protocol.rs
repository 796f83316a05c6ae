//! What is written for a request, and what JetStream answers.
//!
//! A message is published with a subject for the answer: that of the output, the id of the request, and the number of the row.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use component::{Request, SendError};
use net::nats::{Frame, Message, NatsLogin, PONG, frame, write_message};
use net::{DialError, Dialed, Dialer, Endpoint};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use super::message::messages;
use crate::exchange::{Answer, GreetError, Protocol};

/// How servers are spoken to.
pub struct Nats {
    pub login: NatsLogin,
    pub connect_timeout: Duration,
    /// The subject below which answers are awaited.
    pub inbox: String,
    /// The longest message that servers take, as far as is known; 0 before the first connection.
    pub payload_max: AtomicUsize,
}

/// What JetStream says of a message.
#[derive(Debug, Deserialize)]
struct Acknowledgement {
    /// The stream that has it.
    stream: Option<String>,
    error: Option<JetStreamError>,
}

/// Why JetStream did not take a message.
#[derive(Debug, Deserialize)]
struct JetStreamError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

/// The message is longer than the stream takes.
const TOO_LONG: u32 = 10054;

impl Protocol for Nats {
    async fn dial(&self, dialer: &Dialer, endpoint: &Endpoint) -> Result<Dialed, DialError> {
        let connected = self.login.connect(dialer, endpoint, self.connect_timeout);
        let (mut stream, info) = connected.await?;
        self.payload_max.store(info.max_payload, Ordering::Relaxed);
        let subscribe = format!("SUB {}.> 1\r\n", self.inbox);
        let written = stream.write_all(subscribe.as_bytes()).await;
        written.map_err(DialError::Connect)?;
        Ok(stream)
    }

    async fn greet(&self, _: &mut Dialed) -> Result<(), GreetError> {
        Ok(())
    }

    fn message(&self, request: &Request) -> [Bytes; 3] {
        let mut out = Vec::with_capacity(request.body.len() + request.rows * 128);
        for (row, (headers, payload)) in messages(&request.body).enumerate() {
            let reply = format!("{}.{:032x}.{row}", self.inbox, request.id);
            write_message(&request.destination, &reply, headers, payload, &mut out);
        }
        [out.into(), Bytes::new(), Bytes::new()]
    }

    fn answer(&self, received: &[u8]) -> Result<Option<(Answer, usize)>, String> {
        let Some((frame, len)) = frame(received)? else {
            return Ok(None);
        };
        let answer = match frame {
            Frame::Ping => Answer::Reply(PONG),
            Frame::Pong | Frame::Other => Answer::KeepAlive,
            Frame::Error(error) => return Err(format!("NATS answered: {error}")),
            Frame::Message(message) => self.acknowledged(&message)?,
        };
        Ok(Some((answer, len)))
    }
}

impl Nats {
    fn acknowledged(&self, message: &Message<'_>) -> Result<Answer, String> {
        let wrong = || format!("an answer came to the subject `{}`", message.subject);
        let place = message.subject.strip_prefix(&self.inbox);
        let place = place.and_then(|place| place.strip_prefix('.')?.split_once('.'));
        let (request, row) = place.ok_or_else(wrong)?;
        Ok(Answer::Row {
            request: u128::from_str_radix(request, 16).map_err(|_| wrong())?,
            row: row.parse().map_err(|_| wrong())?,
            result: judge(message),
        })
    }
}

/// What an answer means for its message.
fn judge(message: &Message<'_>) -> Result<(), SendError> {
    if let Some((503, _)) = message.status() {
        let reason =
            "no stream of JetStream takes this subject; create one with it in its `subjects`";
        return Err(SendError::Blocked(reason.to_owned()));
    }
    let parsed: Result<Acknowledgement, _> = serde_json::from_slice(message.payload);
    match parsed {
        Ok(Acknowledgement {
            error: Some(error), ..
        }) => Err(error.meaning()),
        Ok(Acknowledgement {
            stream: Some(_), ..
        }) => Ok(()),
        _ => {
            let shown = String::from_utf8_lossy(&message.payload[..message.payload.len().min(60)]);
            Err(SendError::Blocked(format!(
                "something other than JetStream answers to this subject: {shown:?}"
            )))
        }
    }
}

impl JetStreamError {
    fn meaning(&self) -> SendError {
        let (code, description) = (self.code, &self.description);
        let reason = format!("JetStream answered: {description} ({code})");
        match (self.err_code, code) {
            (TOO_LONG, _) => SendError::Refused(reason),
            // Such as a stream that is full and discards what is new.
            (_, 500..) => SendError::Retry(reason),
            _ if description.contains("maximum") => SendError::Retry(reason),
            _ => SendError::Refused(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nats() -> Nats {
        Nats {
            login: NatsLogin::default(),
            connect_timeout: Duration::from_secs(1),
            inbox: "_INBOX.a".to_owned(),
            payload_max: AtomicUsize::new(0),
        }
    }

    #[test]
    fn answers_say_what_became_of_a_row() {
        let row = |text: &str, payload: &str| {
            let line = format!("MSG _INBOX.a.{text} 1 {}\r\n{payload}\r\n", payload.len());
            nats().answer(line.as_bytes())
        };
        let answer = row("ff.3", r#"{"stream":"S","seq":5,"duplicate":true}"#);
        let (answer, _) = answer.expect("an answer").expect("a whole one");
        let expected = Answer::Row {
            request: 255,
            row: 3,
            result: Ok(()),
        };
        assert_eq!(answer, expected);
        for nonsense in ["ff", "x.3", "ff.x"] {
            assert!(row(nonsense, "{}").is_err(), "{nonsense}");
        }
        let ping = nats().answer(b"PING\r\n");
        assert_eq!(ping, Ok(Some((Answer::Reply(PONG), 6))));
        assert!(nats().answer(b"-ERR 'Permissions Violation'\r\n").is_err());
    }

    #[test]
    fn errors_end_by_themselves_or_are_final_or_must_be_mended() {
        let judged = |headers: &'static str, payload: &'static str| {
            judge(&Message {
                subject: "s",
                reply: "",
                headers: headers.as_bytes(),
                payload: payload.as_bytes(),
            })
        };
        let error = |error: &'static str| judged("", error).expect_err("an error");
        let full =
            r#"{"error":{"code":400,"err_code":10077,"description":"maximum messages exceeded"}}"#;
        assert!(matches!(error(full), SendError::Retry(_)));
        let long = r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}"#;
        assert!(matches!(error(long), SendError::Refused(_)));
        let away = r#"{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}"#;
        assert!(matches!(error(away), SendError::Retry(_)));
        let none = judged("NATS/1.0 503\r\n\r\n", "");
        assert!(matches!(none, Err(SendError::Blocked(_))), "{none:?}");
        assert!(matches!(error("hello"), SendError::Blocked(_)));
    }
}
