//! The consumer: what is asked for, and when the end is reached.
//!
//! Messages are asked for some hundreds at a time, and again when half of them have come. What is asked for and does not come within a
//! while is asked for anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Source, Stream};
use codec::BATCH_EVENTS_MAX;
use component::InputContext;
use datetime::rfc3339::write_rfc3339;
use net::{DialError, Dialer};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::link::{DeliveredMessage, Link};
use super::settings::NatsSettings;
use super::warn_of_tls;
use crate::messages::batches::not_sending;
use crate::messages::gather::Gathered;
use crate::messages::in_flight::InFlight;
use crate::messages::settings::Start;
use crate::messages::working::{MessageServer, ServerError};
use crate::reading::identity::Identity;

/// How many messages are asked for at a time, and how many bytes.
const MESSAGES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 1 << 20;

/// How much is gathered before it becomes a batch.
const GATHERED_BYTES: usize = 512 << 10;

/// How long the server may take for what is asked.
const EXPIRES: Duration = Duration::from_secs(5);

/// How long messages are waited for, and how long one waits for others to go with it.
const IDLE_MAX: Duration = Duration::from_millis(100);
const AGE_MAX: Duration = Duration::from_millis(5);

/// How many messages of a new consumer may be in flight.
const IN_FLIGHT_MAX: u32 = 65_536;

/// What a consumer that is not there is called.
const NO_CONSUMER: u32 = 10014;

/// An answer of the API.
#[derive(Debug, Deserialize)]
struct ApiAnswer<T> {
    error: Option<ApiError>,
    #[serde(flatten)]
    content: Option<T>,
}

/// An error of the API.
#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(default)]
    description: String,
}

impl ApiError {
    fn meaning(&self, of: &str) -> ServerError {
        let text = format!(
            "{of}: JetStream answered: {} ({})",
            self.description, self.code
        );
        match self.code {
            500.. => ServerError::Broken(text),
            _ => ServerError::Refused(text),
        }
    }
}

/// What is known of the stream.
#[derive(Debug, Deserialize)]
struct StreamInfo {
    created: String,
    state: StreamState,
}

/// How far the stream goes.
#[derive(Debug, Deserialize)]
struct StreamState {
    last_seq: u64,
}

/// What is known of the consumer.
#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    config: ConsumerConfig,
    delivered: DeliveredUpTo,
    num_ack_pending: u64,
    num_pending: u64,
}

/// What of its configuration counts here.
#[derive(Debug, Deserialize)]
struct ConsumerConfig {
    /// In nanoseconds.
    #[serde(default)]
    ack_wait: u64,
    #[serde(default)]
    ack_policy: String,
    #[serde(default)]
    deliver_subject: String,
}

/// The last message that was delivered.
#[derive(Debug, Deserialize)]
struct DeliveredUpTo {
    #[serde(default)]
    stream_seq: u64,
}

/// A server, or a cluster of them, with the stream.
pub(super) struct ConsumerServer {
    settings: NatsSettings,
    dialer: Dialer,
    ctx: InputContext,
    /// Which of the hosts is used, and whether it could not be reached.
    host: usize,
    has_failed: bool,
    /// The longest message that the server takes.
    payload_max: usize,
    /// Whether messages were in flight when the input began, which come again.
    has_left: bool,
    /// The number of the last message at the start; none before that.
    end: Option<u64>,
    ack_wait: Duration,
    kept: Instant,
    asked: Instant,
}

impl ConsumerServer {
    pub(super) fn new(settings: NatsSettings, dialer: Dialer, ctx: &InputContext) -> Self {
        Self {
            ack_wait: settings.own.ack_wait.get().0,
            settings,
            dialer,
            ctx: not_sending(ctx),
            host: 0,
            has_failed: false,
            payload_max: 0,
            has_left: false,
            end: None,
            kept: Instant::now(),
            asked: Instant::now(),
        }
    }

    /// The part of subjects of the API that names the consumer.
    fn path(&self) -> String {
        let own = &self.settings.own;
        format!("{}.{}", own.stream, own.consumer)
    }

    async fn link(&mut self) -> Result<Link, ServerError> {
        if std::mem::take(&mut self.has_failed) {
            self.host += 1;
        }
        let own = &self.settings.own;
        warn_of_tls(&self.dialer, &self.ctx);
        let hosts = &self.settings.hosts;
        let endpoint = &hosts[self.host % hosts.len()];
        let patience = own.connect_timeout.get().0;
        let connected = self
            .settings
            .login
            .connect(&self.dialer, endpoint, patience);
        match connected.await {
            Ok((stream, info)) => {
                self.payload_max = info.max_payload;
                Link::new(stream, own.timeout.get().0).await
            }
            Err(error) => {
                self.has_failed = true;
                Err(match error {
                    DialError::Refused(reason) => ServerError::Refused(reason),
                    other => ServerError::Broken(other.to_string()),
                })
            }
        }
    }

    async fn stream(&self, link: &mut Link) -> Result<StreamInfo, ServerError> {
        let name = &self.settings.own.stream;
        let answer: ApiAnswer<StreamInfo> = link.ask(&format!("STREAM.INFO.{name}"), b"").await?;
        content(answer, &format!("stream `{name}`"))
    }

    async fn consumer(&self, link: &mut Link) -> Result<ConsumerInfo, ServerError> {
        let path = self.path();
        let asked: ApiAnswer<ConsumerInfo> =
            link.ask(&format!("CONSUMER.INFO.{path}"), b"").await?;
        let is_missing = |error: &ApiError| error.err_code == NO_CONSUMER;
        let of = format!("consumer `{}`", self.settings.own.consumer);
        if !asked.error.as_ref().is_some_and(is_missing) {
            return content(asked, &of);
        }
        let request =
            json!({"stream_name": self.settings.own.stream, "config": self.configuration()});
        let subject = format!("CONSUMER.DURABLE.CREATE.{path}");
        let made: ApiAnswer<ConsumerInfo> =
            link.ask(&subject, request.to_string().as_bytes()).await?;
        content(made, &of)
    }

    /// What a new consumer is like.
    fn configuration(&self) -> serde_json::Value {
        let own = &self.settings.own;
        let mut config = json!({
            "durable_name": own.consumer,
            "ack_policy": "explicit",
            "ack_wait": own.ack_wait.get().0.as_nanos() as u64,
            "max_ack_pending": IN_FLIGHT_MAX,
            "replay_policy": "instant",
        });
        config["deliver_policy"] = match self.settings.start {
            Start::Beginning => json!("all"),
            Start::End => json!("new"),
            Start::Time(millis) => {
                let mut time = Vec::new();
                write_rfc3339(&mut time, millis.saturating_mul(1_000_000));
                config["opt_start_time"] = json!(String::from_utf8_lossy(&time));
                json!("by_start_time")
            }
        };
        if let Some(subject) = &own.subject {
            config["filter_subject"] = json!(subject);
        }
        config
    }

    /// Asks for messages, if few of those that were asked for are on their way.
    async fn ask(&mut self, link: &mut Link) -> Result<(), ServerError> {
        if self.asked.elapsed() > EXPIRES {
            link.mail.asked = 0;
        }
        if link.mail.asked <= MESSAGES_AT_ONCE / 2 {
            let request = json!({
                "batch": MESSAGES_AT_ONCE,
                // A message that is longer would not come at all.
                "max_bytes": BYTES_AT_ONCE.max(self.payload_max + (64 << 10)),
                "expires": EXPIRES.as_nanos() as u64,
            });
            let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}", self.path());
            link.publish(&subject, Some("p"), request.to_string().as_bytes());
            link.mail.asked += MESSAGES_AT_ONCE;
            self.asked = Instant::now();
        }
        link.write().await
    }

    /// Whether there is nothing left of what was there at the start, and nothing that others may give back.
    async fn is_at_end(&self, link: &mut Link, own: usize) -> Result<bool, ServerError> {
        let info = self.consumer(link).await?;
        let is_read = info.num_pending == 0 || Some(info.delivered.stream_seq) >= self.end;
        Ok(is_read && info.num_ack_pending <= own as u64 && link.mail.gathered.is_empty())
    }
}

/// What an answer says, if it is no error.
fn content<T>(answer: ApiAnswer<T>, of: &str) -> Result<T, ServerError> {
    match answer {
        ApiAnswer {
            error: Some(error), ..
        } => Err(error.meaning(of)),
        ApiAnswer {
            content: Some(content),
            ..
        } => Ok(content),
        _ => Err(ServerError::Broken(format!(
            "{of}: the answer of JetStream is not understood"
        ))),
    }
}

/// Writes down what is told about messages.
fn tell<'m>(
    link: &mut Link,
    messages: impl Iterator<Item = &'m DeliveredMessage>,
    what: &[u8],
) -> bool {
    let mut has_any = false;
    for message in messages {
        link.publish(&message.reply, None, what);
        has_any = true;
    }
    has_any
}

impl MessageServer for ConsumerServer {
    type Token = DeliveredMessage;
    type Link = Link;

    fn name(&self) -> String {
        let hosts = &self.settings.hosts;
        hosts[self.host % hosts.len()].to_string()
    }

    async fn connect(&mut self, _: &mut InFlight<DeliveredMessage>) -> Result<Link, ServerError> {
        let mut link = self.link().await?;
        let stream = self.stream(&mut link).await?;
        let consumer = self.consumer(&mut link).await?;
        let config = &consumer.config;
        if config.ack_policy != "explicit" || !config.deliver_subject.is_empty() {
            return Err(ServerError::Refused(format!(
                "consumer `{}`: a pull consumer with the acknowledgement policy `explicit` is needed",
                self.settings.own.consumer
            )));
        }
        self.ack_wait = Duration::from_nanos(config.ack_wait);
        if self.end.is_none() {
            self.end = Some(stream.state.last_seq);
            self.has_left = consumer.num_ack_pending > 0;
        }
        let name = &self.settings.own.stream;
        let parts = [&b"nats"[..], name.as_bytes(), stream.created.as_bytes()];
        let source = Source::Topic {
            name: name.as_str().into(),
            partition: 0,
        };
        let identity = Identity::new(parts);
        link.mail.stream = Some(Arc::new(Stream::new(identity.id(), source)));
        Ok(link)
    }

    async fn read(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<DeliveredMessage>,
        in_flight: &InFlight<DeliveredMessage>,
        gathered: &mut Gathered<DeliveredMessage>,
    ) -> Result<bool, ServerError> {
        let has_told = tell(link, safe.iter(), b"+ACK");
        self.ask(link).await?;
        safe.clear();
        let begin = Instant::now();
        loop {
            let waiting = &link.mail.gathered;
            if waiting.len() >= BATCH_EVENTS_MAX || waiting.values.len() >= GATHERED_BYTES {
                break;
            }
            let most = if waiting.is_empty() {
                IDLE_MAX
            } else {
                AGE_MAX
            };
            let left = most.saturating_sub(begin.elapsed());
            if left.is_zero() || self.ctx.stop.is_stopped() {
                break;
            }
            match timeout(left, link.receive()).await {
                Ok(received) => received?,
                Err(_) => break,
            }
            self.ask(link).await?;
        }
        *gathered = std::mem::replace(&mut link.mail.gathered, Gathered::new());
        if let Some(last) = gathered.messages.last() {
            return Ok(Some(last.number) >= self.end && !self.has_left);
        }
        if self.settings.own.until.is_none() {
            return Ok(false);
        }
        if has_told {
            link.settle().await?;
        }
        self.is_at_end(link, in_flight.tokens().count()).await
    }

    async fn acknowledge(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<DeliveredMessage>,
    ) -> Result<(), ServerError> {
        if tell(link, safe.iter(), b"+ACK") {
            link.settle().await?;
            safe.clear();
        }
        Ok(())
    }

    async fn keep(
        &mut self,
        link: &mut Link,
        in_flight: &InFlight<DeliveredMessage>,
    ) -> Result<(), ServerError> {
        if self.kept.elapsed() < self.ack_wait / 3 {
            // Reads what has come: a server gives clients up that do not.
            return link.settle().await;
        }
        self.kept = Instant::now();
        let waiting = link
            .mail
            .gathered
            .messages
            .iter()
            .map(|one| one.token.clone());
        let waiting: Vec<DeliveredMessage> = waiting.collect();
        let all = in_flight.tokens().chain(&waiting);
        tell(link, all, b"+WPI");
        link.settle().await
    }

    async fn lag(&mut self, link: &mut Link) -> Result<Option<u64>, ServerError> {
        let info = self.consumer(link).await?;
        Ok(Some(info.num_pending + info.num_ack_pending))
    }
}
