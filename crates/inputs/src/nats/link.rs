//! A connection to a server: requests and their answers, and messages that came.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use batch::{Stream, json};
use bytes::{Buf, BytesMut};
use datetime::rfc3339::write_rfc3339;
use net::Dialed;
use net::nats::{Frame, Message, PONG, frame, unique_inbox};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::messages::gather::Gathered;
use crate::messages::working::ServerError;

/// What is read at once, at least.
const READ_BYTES: usize = 64 << 10;

/// The number of the subscription.
const SUBSCRIPTION: &str = "1";

/// A message that was delivered: where it is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeliveredMessage {
    pub(super) reply: Box<str>,
}

/// What a subject for an acknowledgement tells about its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delivery {
    /// Its number in the stream.
    pub(super) number: u64,
    /// When the stream got it, in nanoseconds since 1970.
    pub(super) nanos: i64,
    /// How many messages the consumer has not delivered.
    pub(super) pending: u64,
}

impl Delivery {
    /// Reads `$JS.ACK.STREAM.CONSUMER.TIMES.NUMBER.PLACE.TIME.PENDING`, or the longer form with a domain and an account before the stream.
    pub(super) fn read(reply: &str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let from = match tokens.len() {
            7 => 0,
            9.. => 2,
            _ => return None,
        };
        Some(Self {
            number: tokens[from + 3].parse().ok()?,
            nanos: tokens[from + 5].parse().ok()?,
            pending: tokens[from + 6].parse().ok()?,
        })
    }
}

/// A connection.
pub(super) struct Link {
    stream: Dialed,
    received: BytesMut,
    outgoing: Vec<u8>,
    patience: Duration,
    inbox: String,
    /// How many requests were made.
    requests: u64,
    /// What came.
    pub(super) mail: Mail,
}

/// What came over a connection, and nobody has taken.
pub(super) struct Mail {
    /// The stream of the messages, known before any of them comes.
    pub(super) stream: Option<Arc<Stream>>,
    pub(super) gathered: Gathered<DeliveredMessage>,
    /// What the last message said that is pending.
    pub(super) pending: Option<u64>,
    /// How many messages are on their way, at most.
    pub(super) asked: usize,
    /// The answer to the last request.
    answer: Option<Vec<u8>>,
    pongs: usize,
    /// What the server says that is wrong.
    error: Option<String>,
}

impl Link {
    /// Over a connection that was made just now.
    pub(super) async fn new(stream: Dialed, patience: Duration) -> Result<Self, ServerError> {
        let mut link = Self {
            stream,
            received: BytesMut::new(),
            outgoing: Vec::new(),
            patience,
            inbox: unique_inbox(),
            requests: 0,
            mail: Mail {
                stream: None,
                gathered: Gathered::new(),
                pending: None,
                asked: 0,
                answer: None,
                pongs: 0,
                error: None,
            },
        };
        let subscribe = format!("SUB {}.> {SUBSCRIPTION}\r\n", link.inbox);
        link.outgoing.extend_from_slice(subscribe.as_bytes());
        link.write().await?;
        Ok(link)
    }

    /// Writes down a message; `to` names where an answer goes, below the subject of this connection.
    pub(super) fn publish(&mut self, subject: &str, to: Option<&str>, payload: &[u8]) {
        let reply = to.map(|to| format!("{}.{to} ", self.inbox));
        let reply = reply.unwrap_or_default();
        let head = format!("PUB {subject} {reply}{}\r\n", payload.len());
        self.outgoing.extend_from_slice(head.as_bytes());
        self.outgoing.extend_from_slice(payload);
        self.outgoing.extend_from_slice(b"\r\n");
    }

    /// Writes what was written down.
    pub(super) async fn write(&mut self) -> Result<(), ServerError> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let written = async {
            self.stream.write_all(&self.outgoing).await?;
            self.stream.flush().await
        };
        match timeout(self.patience, written).await {
            Ok(Ok(())) => self.outgoing.clear(),
            Ok(Err(error)) => return Err(broken(&error)),
            Err(_) => return Err(self.late()),
        }
        Ok(())
    }

    /// Asks the server's API; the answer is JSON.
    ///
    /// # Errors
    /// There is none, or it is another one than is expected.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        subject: &str,
        payload: &[u8],
    ) -> Result<T, ServerError> {
        self.requests += 1;
        self.mail.answer = None;
        let to = format!("a.{}", self.requests);
        self.publish(&format!("$JS.API.{subject}"), Some(&to), payload);
        self.write().await?;
        let patience = self.patience;
        let answered = async {
            loop {
                if let Some(answer) = self.mail.answer.take() {
                    return Ok(answer);
                }
                self.receive().await?;
            }
        };
        let answer = match timeout(patience, answered).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.late()),
        };
        if answer.is_empty() {
            let text = "the server has no JetStream, or it is not ready".to_owned();
            return Err(ServerError::Broken(text));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            ServerError::Broken(format!(
                "the answer to {subject} is not understood: {error}"
            ))
        })
    }

    /// Writes what was written down, and waits until the server has read all of it.
    pub(super) async fn settle(&mut self) -> Result<(), ServerError> {
        self.outgoing.extend_from_slice(b"PING\r\n");
        let before = self.mail.pongs;
        self.write().await?;
        let patience = self.patience;
        let answered = async {
            while self.mail.pongs == before {
                self.receive().await?;
            }
            Ok(())
        };
        match timeout(patience, answered).await {
            Ok(settled) => settled,
            Err(_) => Err(self.late()),
        }
    }

    /// Waits for bytes, and sorts what they are. Safe to cancel.
    pub(super) async fn receive(&mut self) -> Result<(), ServerError> {
        self.received.reserve(READ_BYTES);
        let read = self.stream.read_buf(&mut self.received).await;
        if read.map_err(|error| broken(&error))? == 0 {
            return Err(closed());
        }
        let mut taken = 0;
        let mut has_ping = false;
        while let Some((frame, len)) =
            frame(&self.received[taken..]).map_err(ServerError::Broken)?
        {
            taken += len;
            match frame {
                Frame::Ping => has_ping = true,
                Frame::Error(error) => {
                    self.mail.error = Some(format!("NATS answered: {error}"));
                }
                Frame::Message(message) => self.mail.sort(&message, &self.inbox),
                Frame::Pong => self.mail.pongs += 1,
                Frame::Other => {}
            }
        }
        self.received.advance(taken);
        if has_ping {
            self.outgoing.extend_from_slice(PONG);
        }
        match self.mail.error.take() {
            Some(error) => Err(ServerError::Refused(error)),
            None => Ok(()),
        }
    }

    fn late(&self) -> ServerError {
        let patience = config::Period(self.patience);
        ServerError::Broken(format!("no answer within {patience}"))
    }
}

impl Mail {
    fn sort(&mut self, message: &Message<'_>, inbox: &str) {
        let delivery = Delivery::read(message.reply);
        if let (Some(delivery), Some(stream)) = (delivery, &self.stream) {
            let token = DeliveredMessage {
                reply: message.reply.into(),
            };
            self.asked = self.asked.saturating_sub(1);
            self.pending = Some(delivery.pending);
            let value = |out: &mut Vec<u8>| out.extend_from_slice(message.payload);
            let about = |out: &mut Vec<u8>| write_metadata(message, &delivery, out);
            let place = (stream, delivery.number);
            return self.gathered.push(place, token, value, about);
        }
        let to = message.subject.strip_prefix(inbox);
        match to.and_then(|to| to.strip_prefix('.')) {
            Some(to) if to.starts_with("a.") => self.answer = Some(message.payload.to_vec()),
            // The server answers no more to what was asked.
            Some(_) => self.asked = 0,
            None => {}
        }
    }
}

/// Writes `{"subject":"…","timestamp":"…","headers":{…}}`.
fn write_metadata(message: &Message<'_>, delivery: &Delivery, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"subject\":");
    json::write_string(out, message.subject.as_bytes());
    out.extend_from_slice(b",\"timestamp\":\"");
    write_rfc3339(out, delivery.nanos);
    out.push(b'"');
    if !message.headers.is_empty() {
        let mut known: Vec<&str> = Vec::new();
        out.extend_from_slice(b",\"headers\":{");
        for (name, value) in message.fields() {
            // Of several with the same name the first counts.
            if known.contains(&name) {
                continue;
            }
            if !known.is_empty() {
                out.push(b',');
            }
            known.push(name);
            json::write_string(out, name.as_bytes());
            out.push(b':');
            json::write_string(out, value.as_bytes());
        }
        out.push(b'}');
    }
    out.push(b'}');
}

fn closed() -> ServerError {
    ServerError::Broken("the server closed the connection".to_owned())
}

fn broken(error: &io::Error) -> ServerError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => closed(),
        _ => ServerError::Broken(format!("the connection failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_for_acknowledgements_tell_about_messages() {
        let expected = Delivery {
            number: 12,
            nanos: 1_700_000_000_000_000_000,
            pending: 5,
        };
        for reply in [
            "$JS.ACK.S.c.1.12.3.1700000000000000000.5",
            "$JS.ACK._.hash.S.c.1.12.3.1700000000000000000.5",
            "$JS.ACK.hub.hash.S.c.1.12.3.1700000000000000000.5.random",
        ] {
            assert_eq!(Delivery::read(reply), Some(expected), "{reply}");
        }
        for other in ["", "_INBOX.a.1", "$JS.ACK.S.c", "$JS.ACK.S.c.1.x.3.4.5"] {
            assert_eq!(Delivery::read(other), None, "{other}");
        }
    }
}
