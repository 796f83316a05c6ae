//! A connection to a server: commands and their answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use codec::BATCH_EVENTS_MAX;
use component::InputContext;
use net::redis::{AnswerEnd, Failure, LoginError, Value, Values, write_command};
use net::{Dialed, Dialer, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::settings::RedisSettings;
use super::warn_of_tls;
use crate::messages::batches::not_sending;
use crate::messages::working::ServerError;

/// The longest answer: what comes in one is held in memory.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// What is read at once, at least.
const READ_BYTES: usize = 64 << 10;

/// How many bytes of events are asked for at a time.
pub(super) const BYTES_AT_ONCE: usize = 512 << 10;

/// How many events are asked for at first. More are as soon as it is known how long they are.
const EVENTS_AT_FIRST: usize = 100;

/// How many are at most.
const EVENTS_AT_ONCE: usize = 2000;
const _: () = assert!(EVENTS_AT_ONCE <= BATCH_EVENTS_MAX);

/// The pauses between two questions while there is nothing.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// A server, and what both kinds of keys have in common.
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    pub(super) settings: Arc<RedisSettings>,
    pub(super) ctx: InputContext,
    /// The name of this reader.
    pub(super) consumer: String,
    dialer: Dialer,
    /// How many events are asked for.
    pub(super) count: usize,
    pause: Duration,
}

impl Server {
    pub(super) fn new(
        endpoint: &Endpoint,
        settings: &Arc<RedisSettings>,
        dialer: Dialer,
        ctx: &InputContext,
    ) -> Self {
        let own = settings.own.consumer.clone();
        Self {
            endpoint: endpoint.clone(),
            settings: settings.clone(),
            ctx: not_sending(ctx),
            consumer: own.unwrap_or_else(|| ctx.host.name.to_string()),
            dialer,
            count: EVENTS_AT_FIRST,
            pause: PAUSE_MIN,
        }
    }

    /// A connection that is logged in.
    pub(super) async fn link(&self) -> Result<Link, ServerError> {
        let own = &self.settings.own;
        warn_of_tls(&self.dialer, &self.ctx);
        let dialed = self.dialer.dial(&self.endpoint).await;
        let mut stream = dialed.map_err(|error| ServerError::Broken(error.to_string()))?;
        let greeted = self.settings.login.greet(&mut stream);
        match timeout(own.connect_timeout.get().0, greeted).await {
            Ok(Ok(())) => {}
            Ok(Err(LoginError::Refused(reason))) => return Err(ServerError::Refused(reason)),
            Ok(Err(LoginError::Broken(error))) => return Err(broken(&error)),
            Err(_) => return Err(late(own.connect_timeout.get().0)),
        }
        Ok(Link {
            stream,
            received: BytesMut::new(),
            outgoing: Vec::new(),
            patience: own.timeout.get().0,
        })
    }

    /// Learns from an answer how many events to ask for; `bytes` of them came.
    pub(super) fn learn(&mut self, events: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(events) {
            self.pause = PAUSE_MIN;
            let fitting = BYTES_AT_ONCE / each.max(1);
            // What follows may be longer.
            let most = (self.count * 2).min(EVENTS_AT_ONCE);
            self.count = fitting.clamp(1, most);
        }
    }

    /// Waits while there is nothing.
    pub(super) async fn rest(&mut self) {
        tokio::select! {
            () = sleep(self.pause) => {}
            () = self.ctx.stop.stopped() => {}
        }
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// A connection.
pub(super) struct Link {
    stream: Dialed,
    received: BytesMut,
    outgoing: Vec<u8>,
    patience: Duration,
}

impl Link {
    /// Writes down a command, which the next [`Self::answer`] sends.
    pub(super) fn command(&mut self, texts: &[&[u8]]) {
        write_command(texts, 0, &mut self.outgoing);
    }

    /// The next answer, which is no error.
    ///
    /// # Errors
    /// It is one, or the connection broke.
    pub(super) async fn answer(&mut self) -> Result<Bytes, ServerError> {
        let answer = self.any_answer().await?;
        match Values::new(&answer).next() {
            Some(Value::Error(text)) => Err(failed(text)),
            _ => Ok(answer),
        }
    }

    /// The next answer, be it an error.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn any_answer(&mut self) -> Result<Bytes, ServerError> {
        let patience = self.patience;
        let answered = timeout(patience, self.received()).await;
        answered.unwrap_or_else(|_| Err(late(patience)))
    }

    async fn received(&mut self) -> Result<Bytes, ServerError> {
        if !self.outgoing.is_empty() {
            let written = self.stream.write_all(&self.outgoing).await;
            written.map_err(|error| broken(&error))?;
            self.stream.flush().await.map_err(|error| broken(&error))?;
            self.outgoing.clear();
        }
        let mut end = AnswerEnd::default();
        loop {
            let found = end.find(&self.received).map_err(ServerError::Broken)?;
            if let Some(len) = found {
                return Ok(self.received.split_to(len).freeze());
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                let text = "the server sent an answer of more than 1 GiB";
                return Err(ServerError::Broken(text.to_owned()));
            }
            self.received.reserve(READ_BYTES);
            let read = self.stream.read_buf(&mut self.received).await;
            if read.map_err(|error| broken(&error))? == 0 {
                return Err(closed());
            }
        }
    }
}

/// What an error of the server means.
pub(super) fn failed(text: &[u8]) -> ServerError {
    let failure = Failure::new(text);
    match failure.is_passing {
        true => ServerError::Broken(failure.reason),
        false => ServerError::Refused(failure.reason),
    }
}

fn closed() -> ServerError {
    ServerError::Broken("the server closed the connection".to_owned())
}

fn late(patience: Duration) -> ServerError {
    let patience = config::Period(patience);
    ServerError::Broken(format!("no answer within {patience}"))
}

fn broken(error: &io::Error) -> ServerError {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => closed(),
        _ => ServerError::Broken(format!("the connection failed: {error}")),
    }
}
