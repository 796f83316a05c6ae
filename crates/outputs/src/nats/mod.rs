//! `nats` publishes events to streams of NATS JetStream.
//!
//! Each event is a message with a subject for its acknowledgement ([`protocol`]), and with its id in a header, by which the server
//! recognises what it has already. Connections, hosts and time-outs are [`crate::exchange`]'s.

mod message;
mod protocol;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Build, BuildContext, Compression, Encoded, Example, Framing, Output, Request, RequestLimits,
    RequestOrder, Requests, SendError, Sender, Sent, Spec, Warning, parse,
};
use config::{ConfigError, Node, Positional, setting_names};
use expr::Template;
use net::nats::{NatsLogin, PORT, unique_inbox};
use schemars::JsonSchema;
use serde::Deserialize;

use self::message::{MessageFormat, messages};
use self::protocol::Nats;
use crate::codec::{ABSENT, CodecName, CodecSettings};
use crate::exchange::{ConnectionSettings, Exchange};
use crate::partition::{encode_groups, partition};
use crate::schema::{codec_beside, with};

/// How long a subject may be.
const SUBJECT_BYTES_MAX: usize = 1024;

/// The description of `nats`.
pub const SPEC: Spec = Spec {
    name: "nats",
    aliases: &[],
    summary: "Publishes events to streams of NATS JetStream.",
    description: include_str!("nats.md"),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example {
            title: "One subject",
            stage: "nats localhost subject=logs",
            input: "",
            output: "",
        },
        Example {
            title: "A subject for each service, with a header",
            stage: "nats nats.example:4222 subject='logs.%{service.name}' headers.Level=%{log.level}",
            input: "",
            output: "",
        },
        Example {
            title: "TLS, and the credentials of a user",
            stage: "nats nats.example:4222 subject=logs tls.ca=ca.pem credentials=/etc/millpond/shipper.creds",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = with::<Config, ConnectionSettings>(generator);
        let own = component::beside(own, NatsLogin::json_schema(generator));
        codec_beside(own, generator, CodecName::Json)
    },
    build: Build::Sender(build),
};

/// The settings of `nats`, without those of connections, of the client and of the codec.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The subject. May contain `%{field}` and `%{+time format}`.
    pub subject: String,
    /// Headers of a message, each with its text, which may contain `%{field}`. A header whose text is empty is left out.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether messages carry the ids of their events, in the header `Nats-Msg-Id`, each with the subject. Streams drop what comes again with
    /// the same id and subject within their `duplicate_window`.
    #[serde(default = "ids_default")]
    pub event_ids: bool,
}

fn ids_default() -> bool {
    true
}

struct NatsOutput {
    subject: Template,
    format: MessageFormat,
    exchange: Exchange<Nats>,
    /// The output's settings, for errors with their place.
    node: Node,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Sender>, ConfigError> {
    let (codec, own) = CodecSettings::divide(node)?;
    let (login, own) = own.divide(setting_names::<NatsLogin>());
    let login = login.map(|login| parse::<NatsLogin>(&login)).transpose()?;
    let login = login.unwrap_or_default();
    login.check(node)?;
    let (connections, config) = ConnectionSettings::read::<Config>(&own)?;
    let at = node.nearest("subject");
    let subject = crate::codec::template(node, at, &config.subject)?;
    if let Some(constant) = subject.constant() {
        named(constant.as_bytes()).map_err(|reason| at.error(reason.to_string()))?;
    }
    let protocol = Nats {
        login,
        connect_timeout: connections.connect_timeout.get().0,
        inbox: unique_inbox(),
        payload_max: AtomicUsize::new(0),
    };
    Ok(Arc::new(NatsOutput {
        subject,
        format: MessageFormat::new(codec.codec(node, CodecName::Json)?, &config, node)?,
        exchange: Exchange::new(protocol, connections, PORT),
        node: node.clone(),
    }))
}

/// A subject that fields gave, or why it is not used.
fn checked(subject: &[u8]) -> Result<Arc<str>, Arc<str>> {
    let subject = named(subject)?;
    match subject.starts_with('$') {
        true => Err(format!(
            "`{subject}` begins with `$`: such subjects are commands to the server, which events cannot give"
        )
        .into()),
        false => Ok(subject),
    }
}

/// A subject that is used, or why it is not.
fn named(subject: &[u8]) -> Result<Arc<str>, Arc<str>> {
    if subject.len() > SUBJECT_BYTES_MAX {
        let len = subject.len();
        let reason =
            format!("the subject has {len} bytes; at most {SUBJECT_BYTES_MAX} are allowed");
        return Err(reason.into());
    }
    let text = std::str::from_utf8(subject).map_err(|_| "the subject is not valid UTF-8")?;
    let is_token = |token: &str| {
        let is_wild = matches!(token, "*" | ">");
        !token.is_empty() && !is_wild && !token.contains([' ', '\t', '\r', '\n', '\0'])
    };
    match text.split('.').all(is_token) {
        true => Ok(text.into()),
        false => {
            let reason = format!(
                "`{text}` cannot be a subject: its parts between dots are not empty, not `*` or `>`, and without blanks"
            );
            Err(reason.into())
        }
    }
}

impl NatsOutput {
    /// Refuses what the server would close the connection for.
    fn check_lengths(&self, request: &Request) -> Result<(), SendError> {
        let most = self.exchange.protocol().payload_max.load(Ordering::Relaxed);
        let lens = messages(&request.body).map(|(headers, payload)| headers.len() + payload.len());
        match lens.max() {
            Some(longest) if most > 0 && longest > most => Err(SendError::Unfit(format!(
                "the message has {longest} bytes; the server takes at most {most} (`max_payload`)"
            ))),
            _ => Ok(()),
        }
    }
}

/// An error, with the subject that it is about.
fn with_subject(error: SendError, subject: &str) -> SendError {
    match error {
        SendError::Blocked(reason) => SendError::Blocked(format!("subject `{subject}`: {reason}")),
        SendError::Retry(reason) => SendError::Retry(format!("subject `{subject}`: {reason}")),
        error => error,
    }
}

#[async_trait]
impl Output for NatsOutput {
    async fn open(&self) -> Result<(), ConfigError> {
        self.exchange.open(&self.node)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.subject.reads().chain(self.format.reads()).collect()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut subject = self.subject.bind(batch, ABSENT);
        let render = |row: usize, out: &mut Vec<u8>| subject.write(row, out);
        let groups = partition(batch, rows, render, checked);
        encode_groups(groups, encoded, |subject, rows, encoded| {
            self.format.write(batch, rows, subject, encoded);
        });
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.exchange.take_warnings()
    }
}

#[async_trait]
impl Sender for NatsOutput {
    fn requests(&self) -> Requests {
        Requests {
            framing: Framing::default(),
            compression: Compression::None,
            limits: RequestLimits {
                size_max: 1 << 20,
                rows_max: 5_000,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::ByDestination,
        }
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        self.check_lengths(request)?;
        let mut sent = self.exchange.send(request).await?;
        let subject = &request.destination;
        sent.because = sent.because.map(|error| with_subject(error, subject));
        Ok(sent)
    }
}
