//! A server that speaks as much of NATS as the output and the input need: it acknowledges messages as JetStream does, and has a stream with
//! a consumer.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::serve_clients;

/// What it answers to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishReply {
    /// A stream has it.
    Take,
    /// JetStream does not take it: status, number of the error, description.
    Error(u16, u32, &'static str),
    /// No stream has its subject.
    NoStream,
}

/// A message that was published and taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Its subject.
    pub subject: String,
    /// Its headers, with the line before them.
    pub headers: String,
    /// What it says.
    pub payload: String,
}

impl Published {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.split("\r\n");
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

type Behaviour = dyn Fn(usize) -> PublishReply + Send + Sync;

#[derive(Default)]
struct Stored {
    published: Vec<Published>,
    messages: usize,
    /// The stream of the consumer.
    stream: Vec<String>,
    delivered: usize,
    acknowledged: BTreeSet<String>,
}

/// A server on this machine.
pub struct NatsServer {
    address: SocketAddr,
    stored: Arc<Mutex<Stored>>,
}

impl NatsServer {
    /// One that does with each message what the function says of its number. Port 0 has the system choose one.
    ///
    /// # Panics
    /// The port is taken.
    pub fn start(
        port: u16,
        behaviour: impl Fn(usize) -> PublishReply + Send + Sync + 'static,
    ) -> Self {
        let stored = Arc::<Mutex<Stored>>::default();
        let shared = stored.clone();
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        // A client may go at any time.
        let address = serve_clients(port, move |client| {
            drop(serve(client, &shared, &*behaviour));
        });
        Self { address, stored }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends a message to the stream.
    pub fn append(&self, payload: String) {
        self.stored.lock().stream.push(payload);
    }

    /// The messages that it took, in order.
    pub fn published(&self) -> Vec<Published> {
        self.stored.lock().published.clone()
    }
}

fn serve(client: TcpStream, stored: &Mutex<Stored>, behaviour: &Behaviour) -> io::Result<()> {
    let mut writer = client.try_clone()?;
    let mut reader = BufReader::new(client);
    writer.write_all(b"INFO {\"max_payload\":1048576,\"headers\":true}\r\n")?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["PING"] => writer.write_all(b"PONG\r\n")?,
            ["PUB", subject, len] => {
                let payload = payload(&mut reader, len)?;
                if payload == "+ACK" {
                    let mut stored = stored.lock();
                    stored.acknowledged.insert(subject.to_owned());
                }
            }
            ["PUB", subject, reply, len] => {
                payload(&mut reader, len)?;
                let answer = of_api(subject, reply, &mut stored.lock());
                writer.write_all(answer.as_bytes())?;
            }
            ["HPUB", subject, reply, headers_len, len] => {
                let text = payload(&mut reader, len)?;
                let headers_len = headers_len.parse().map_err(io::Error::other)?;
                let (headers, payload) = text.split_at(headers_len);
                let published = Published {
                    subject: subject.to_owned(),
                    headers: headers.to_owned(),
                    payload: payload.to_owned(),
                };
                writer.write_all(answer(published, reply, stored, behaviour).as_bytes())?;
            }
            _ => {}
        }
    }
}

fn payload(reader: &mut impl Read, len: &str) -> io::Result<String> {
    let len: usize = len.parse().map_err(io::Error::other)?;
    let mut bytes = vec![0; len + 2];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(len);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// What the API answers; to a request for messages those of the stream that were not delivered.
fn of_api(subject: &str, reply: &str, stored: &mut Stored) -> String {
    let (last, delivered) = (stored.stream.len(), stored.delivered);
    let content = if subject.starts_with("$JS.API.STREAM.INFO.") {
        format!(r#"{{"created":"then","state":{{"last_seq":{last}}}}}"#)
    } else if subject.starts_with("$JS.API.CONSUMER.INFO.") {
        let pending = delivered - stored.acknowledged.len();
        format!(
            r#"{{"config":{{"ack_wait":30000000000,"ack_policy":"explicit"}},"delivered":{{"stream_seq":{delivered}}},"num_ack_pending":{pending},"num_pending":{}}}"#,
            last - delivered
        )
    } else {
        stored.delivered = last;
        let message = |(index, payload): (usize, &String)| {
            let (number, left) = (index + 1, last - index - 1);
            let reply = format!("$JS.ACK.S.c.1.{number}.{number}.0.{left}");
            format!("MSG s 1 {reply} {}\r\n{payload}\r\n", payload.len())
        };
        let messages = stored.stream.iter().enumerate().skip(delivered);
        return messages.map(message).collect();
    };
    format!("MSG {reply} 1 {}\r\n{content}\r\n", content.len())
}

fn answer(
    published: Published,
    reply: &str,
    stored: &Mutex<Stored>,
    behaviour: &Behaviour,
) -> String {
    let number = {
        let mut stored = stored.lock();
        stored.messages += 1;
        stored.messages - 1
    };
    let payload = match behaviour(number) {
        PublishReply::NoStream => {
            let status = "NATS/1.0 503\r\n\r\n";
            let len = status.len();
            return format!("HMSG {reply} 1 {len} {len}\r\n{status}\r\n");
        }
        PublishReply::Error(code, err_code, description) => format!(
            r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{description}"}}}}"#
        ),
        PublishReply::Take => {
            stored.lock().published.push(published);
            format!(r#"{{"stream":"S","seq":{}}}"#, number + 1)
        }
    };
    format!("MSG {reply} 1 {}\r\n{payload}\r\n", payload.len())
}
