//! The work of an input that takes messages from a server.
//!
//! It connects, reads, sends what it has read, and tells the server what is safe. When the connection breaks it begins again, without
//! end. While the queue is full nothing is read, and the server is told again and again that the messages are still worked at.

use std::time::{Duration, Instant};

use component::{InputContext, Limit, Stopped};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::batches::MessageBatches;
use super::gather::Gathered;
use super::in_flight::InFlight;

/// How long nothing is tried after the first failure; after each further one twice as long, up to the longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often it is looked what is safe while there is nothing else to do.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often messages in flight are kept.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// How often the lag is asked for.
const LAG_EVERY: Duration = Duration::from_secs(5);

/// How many times a connection is tried for nothing but telling what is safe.
const LAST_TRIES: usize = 3;

/// Why there is nothing from a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerError {
    /// It cannot be reached, or it is not ready.
    #[error("{0}")]
    Broken(String),
    /// It refuses what is asked: a person must mend something.
    #[error("{0}")]
    Refused(String),
    /// There is no point in asking again.
    #[error("{0}")]
    Ended(String),
}

/// A server that has messages.
pub(crate) trait MessageServer {
    /// What it is told about a message that is safe.
    type Token;
    /// A connection to it.
    type Link;

    /// What it is called in warnings.
    fn name(&self) -> String;

    /// Connects, and makes ready to read. What is in flight was read before, over another connection.
    async fn connect(
        &mut self,
        in_flight: &mut InFlight<Self::Token>,
    ) -> Result<Self::Link, ServerError>;

    /// Tells which messages are safe, and reads the next ones, or waits a moment where there are none; whether the end is reached at
    /// which a run is to end. What was told is taken from `safe`.
    async fn read(
        &mut self,
        link: &mut Self::Link,
        safe: &mut Vec<Self::Token>,
        in_flight: &InFlight<Self::Token>,
        gathered: &mut Gathered<Self::Token>,
    ) -> Result<bool, ServerError>;

    /// Tells which messages are safe, without reading, and takes them from `safe`.
    async fn acknowledge(
        &mut self,
        link: &mut Self::Link,
        safe: &mut Vec<Self::Token>,
    ) -> Result<(), ServerError>;

    /// Tells that messages are still worked at.
    async fn keep(
        &mut self,
        link: &mut Self::Link,
        in_flight: &InFlight<Self::Token>,
    ) -> Result<(), ServerError>;

    /// How many messages the server has that are not known to be safe, if it tells.
    async fn lag(&mut self, link: &mut Self::Link) -> Result<Option<u64>, ServerError>;
}

/// An input at work with one server.
pub(crate) struct MessageWork<S: MessageServer> {
    server: S,
    ctx: InputContext,
    batches: MessageBatches,
    in_flight: InFlight<S::Token>,
    /// What is safe, and not told.
    safe: Vec<S::Token>,
    is_finite: bool,
    /// Everything was read that is to be.
    is_complete: bool,
    kept: Instant,
    asked_lag: Option<Instant>,
    pause: Duration,
}

impl<S: MessageServer> MessageWork<S> {
    /// `is_finite` says whether the run is to end at the end of what there is.
    pub(crate) fn new(
        server: S,
        batches: MessageBatches,
        is_finite: bool,
        ctx: InputContext,
    ) -> Self {
        Self {
            server,
            ctx,
            batches,
            in_flight: InFlight::new(),
            safe: Vec::new(),
            is_finite,
            is_complete: false,
            kept: Instant::now(),
            asked_lag: None,
            pause: PAUSE_MIN,
        }
    }

    /// Works until it is to stop, or everything was read; gives what went wrong.
    pub(crate) async fn run(mut self) -> Option<String> {
        let mut tries = 0;
        loop {
            let error = match self.connected().await {
                Ok(()) => return None,
                Err(error) => error,
            };
            let text = format!("{}: {error}", self.server.name());
            let is_final = match &error {
                ServerError::Ended(_) => true,
                ServerError::Refused(_) => self.is_finite && !self.is_over(),
                ServerError::Broken(_) => false,
            };
            if is_final {
                return Some(text);
            }
            if self.is_over() {
                tries += 1;
                self.ctx.end_sending();
                self.settle().await;
                if self.safe.is_empty() || tries > LAST_TRIES {
                    return None;
                }
            }
            let limit = Limit::once_for("connection", &text);
            self.ctx.diagnostics.warn_limited(limit, || text.clone());
            let stop = self.ctx.stop.clone();
            tokio::select! {
                () = sleep(self.pause) => {}
                () = stop.stopped(), if !self.is_over() => {}
            }
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_over(&self) -> bool {
        self.ctx.stop.is_stopped() || self.is_complete || self.in_flight.has_ended()
    }

    /// Works over one connection.
    async fn connected(&mut self) -> Result<(), ServerError> {
        let is_idle = !self.in_flight.is_waiting() && self.safe.is_empty();
        let mut link = tokio::select! {
            link = self.server.connect(&mut self.in_flight) => link?,
            () = self.ctx.stop.stopped(), if is_idle => return Ok(()),
        };
        while !self.is_over() {
            self.in_flight.take_safe(&mut self.safe);
            if self.in_flight.has_ended() {
                break;
            }
            let mut gathered = Gathered::new();
            let is_end = self
                .server
                .read(&mut link, &mut self.safe, &self.in_flight, &mut gathered)
                .await?;
            self.pause = PAUSE_MIN;
            if !gathered.is_empty() {
                self.send(&mut link, gathered).await?;
            }
            self.is_complete = is_end && self.is_finite;
            self.look(&mut link).await?;
        }
        self.finish(&mut link).await
    }

    /// Sends messages, and keeps them meanwhile.
    async fn send(
        &mut self,
        link: &mut S::Link,
        gathered: Gathered<S::Token>,
    ) -> Result<(), ServerError> {
        let mut lost = None;
        for made in self.batches.make(gathered) {
            let ctx = self.ctx.clone();
            let is_sent = Notify::new();
            let sending = async {
                let sent = ctx.send(made.batch).await;
                is_sent.notify_one();
                sent
            };
            // What was begun is to be polled until it is done.
            let (sent, kept) = tokio::join!(biased; sending, self.keep_until(&is_sent, link));
            lost = lost.or(kept.err());
            match sent {
                Ok(receipt) => self.in_flight.push(receipt, made.messages),
                Err(Stopped) => {
                    self.in_flight.end();
                    break;
                }
            }
        }
        lost.map_or(Ok(()), Err)
    }

    async fn keep_until(
        &mut self,
        is_sent: &Notify,
        link: &mut S::Link,
    ) -> Result<(), ServerError> {
        loop {
            tokio::select! {
                biased;
                () = is_sent.notified() => return Ok(()),
                () = sleep(KEEP_EVERY) => {}
            }
            self.in_flight.take_safe(&mut self.safe);
            self.server.acknowledge(link, &mut self.safe).await?;
            self.keep(link).await?;
        }
    }

    async fn keep(&mut self, link: &mut S::Link) -> Result<(), ServerError> {
        self.kept = Instant::now();
        self.server.keep(link, &self.in_flight).await
    }

    /// Does what is due.
    async fn look(&mut self, link: &mut S::Link) -> Result<(), ServerError> {
        if self.kept.elapsed() >= KEEP_EVERY {
            self.keep(link).await?;
        }
        if self
            .asked_lag
            .is_none_or(|asked| asked.elapsed() >= LAG_EVERY)
        {
            self.asked_lag = Some(Instant::now());
            if let Some(lag) = self.server.lag(link).await? {
                self.ctx.metrics.set_lag(lag);
            }
        }
        Ok(())
    }

    /// Waits until everything that was sent is safe, and tells that.
    async fn finish(&mut self, link: &mut S::Link) -> Result<(), ServerError> {
        self.ctx.end_sending();
        loop {
            self.in_flight.take_safe(&mut self.safe);
            if !self.safe.is_empty() {
                self.server.acknowledge(link, &mut self.safe).await?;
            }
            if !self.in_flight.is_waiting() {
                return Ok(());
            }
            if self.kept.elapsed() >= KEEP_EVERY {
                self.keep(link).await?;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until it is known what became of everything that was sent.
    async fn settle(&mut self) {
        loop {
            self.in_flight.take_safe(&mut self.safe);
            if !self.in_flight.is_waiting() {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
