//! HTTP requests of clients, from what is checked first to what became of their events.
//!
//! Nothing here blocks or decompresses: it runs on the reactor. What is checked before the body is read costs no memory, and
//! memory is reserved before a body is read into it. A [`Fault`] says what is wrong with a request; how its client hears of
//! it is the input's matter.

use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Reservation;
use bytes::Bytes;
use component::{InputContext, Limit};
use config::{Period, Positive, Size};
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use net::{Auth, ConnectionError, Handler, Listener, Peer, SecretError};
use tokio::time::timeout;

use super::answer::{Awaited, Outcome, answer};
use super::batcher::{Inbox, Joiner, Protocol};
use super::closing::{self, watch};
use super::inflate::{Coding, InflateError, inflate};
use super::intake::{STALLED, is_held_up};
use super::pages::{Cut, Pages, Take};
use super::session::Session;

/// What is reserved at first for a body of a client that nothing is known of.
const FIRST_BYTES: usize = 16 << 10;

/// The counter of requests that were read and not taken.
pub(crate) const REFUSED: &str = "refused_requests";

/// Why a request is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// It is compressed in a way that is not read.
    #[error("the Content-Encoding is not supported: gzip, zstd, deflate or none")]
    Coding,
    /// The body is too large.
    #[error("the body is larger than {0} (`max_request_bytes`)")]
    TooLarge(Positive<Size>),
    /// The connection ended in the body.
    #[error("the connection ended in the middle of the body")]
    Incomplete,
    /// The chunks that the body is sent in cannot be told apart.
    #[error("the body is not framed as HTTP demands: {0}")]
    Malformed(String),
    /// The body is too slow.
    #[error("the body did not arrive in time")]
    Late,
    /// Others wait for the memory that it holds.
    #[error("nothing of the body came for 5 s while other clients waited for memory")]
    Stalled,
    /// Others use all the memory.
    #[error("no memory is available for the body at the moment; send it again")]
    NoMemory,
    /// The input ends.
    #[error("Millpond is stopping; send the events again")]
    Stopping,
    /// The pipeline did not take the events.
    #[error("the events were not delivered; send them again")]
    NotDelivered,
    /// Nothing is known of the events yet.
    #[error("the events were not delivered in time; send them again")]
    NotInTime,
    /// Decoding the body panicked.
    #[error("an internal error, see Millpond's log; some of the events may have been accepted")]
    Panicked,
    /// The client is not who it should be. Holds the challenge.
    #[error("wrong or missing credentials")]
    Unauthorized(HeaderValue),
    /// The secret to compare with cannot be read.
    #[error("credentials cannot be checked at the moment")]
    Unchecked,
    /// What the body decompresses to is too large.
    #[error("the decompressed body is larger than `max_request_bytes` allows")]
    InflatesTooLarge,
    /// The compressed body is damaged.
    #[error("{0}")]
    Damaged(InflateError),
}

impl Fault {
    /// The counter that counts the request.
    pub(crate) fn counter(&self) -> &'static str {
        match self {
            Self::Incomplete => "cut_connections",
            Self::Malformed(_) => "malformed_requests",
            _ => REFUSED,
        }
    }

    /// Why a body could not be read.
    fn broken(error: &hyper::Error) -> Self {
        let source = error.source().and_then(|source| source.downcast_ref());
        // hyper's own have no cause; TLS has one.
        let is_of_chunks = |error: &&io::Error| {
            let kind = error.kind();
            kind == io::ErrorKind::InvalidInput
                || kind == io::ErrorKind::InvalidData && !net::is_of_tls(error)
        };
        match source.filter(is_of_chunks) {
            Some(error) => Self::Malformed(error.to_string()),
            None => Self::Incomplete,
        }
    }
}

impl From<InflateError> for Fault {
    fn from(error: InflateError) -> Self {
        match error {
            InflateError::TooLarge => Self::InflatesTooLarge,
            InflateError::Damaged(_) => Self::Damaged(error),
        }
    }
}

/// Limits of requests, and the input that takes them.
pub(crate) struct Requests {
    pub(crate) ctx: InputContext,
    pub(crate) max_bytes: Positive<Size>,
    pub(crate) body_timeout: Duration,
    /// How long a request waits for memory, and then for its events to be safe.
    pub(crate) ack_timeout: Duration,
}

/// A body that was read whole.
pub(crate) struct Received {
    pub(crate) pages: Vec<Bytes>,
    pub(crate) coding: Option<Coding>,
    /// Work in hand, which may grow.
    pub(crate) reservation: Reservation,
}

impl Received {
    /// Has `into` take the pages, those of a compressed body decompressed to `limit` bytes at most.
    pub(crate) fn read<M, R: Send + 'static>(
        &mut self,
        cut: Cut,
        limit: usize,
        joiner: &mut Joiner<M, R>,
        into: &mut impl Take,
    ) -> Result<(), InflateError> {
        let pages = std::mem::take(&mut self.pages);
        let mut grow = |reservation: &mut Reservation, more| joiner.grow(reservation, more);
        let reservation = &mut self.reservation;
        let Some(coding) = self.coding else {
            for page in pages {
                into.take(page, reservation, &mut grow);
            }
            return Ok(());
        };
        inflate(coding, &pages, (cut, limit), reservation, grow, into)
    }

    /// As [`Self::read`], of a body that was cut nowhere; gives it.
    pub(crate) fn whole<M, R: Send + 'static>(
        &mut self,
        limit: usize,
        joiner: &mut Joiner<M, R>,
    ) -> Result<Bytes, InflateError> {
        let mut pages = Vec::new();
        self.read(Cut::Nowhere, limit, joiner, &mut pages)?;
        Ok(pages.pop().unwrap_or_default())
    }
}

impl Requests {
    /// Reports a connection that is closed before a request of it could be handled.
    pub(crate) fn refused(&self, peer: Peer, reason: &ConnectionError) {
        let counter = match reason {
            ConnectionError::Handshake(_) => "failed_handshakes",
            ConnectionError::Tls | ConnectionError::Malformed(_) | ConnectionError::Http2(_) => {
                "malformed_requests"
            }
            ConnectionError::Cut => "cut_connections",
            ConnectionError::Late => "head_timeouts",
            ConnectionError::Unread => "write_timeouts",
            ConnectionError::Idle => {
                return closing::report(&self.ctx, peer.address, &closing::Ending::Idle);
            }
        };
        let fault = closing::Fault::new(counter, reason.to_string());
        closing::report(&self.ctx, peer.address, &fault.into());
    }

    /// Counts a request that is refused, and reports it.
    pub(crate) fn refuse(&self, session: &Session, counter: &'static str, reason: &str) {
        self.ctx.metrics.count(counter, 1);
        let text = || format!("a request was refused: {reason}");
        session.warn(&self.ctx, counter, text);
    }

    /// Checks what is known before the body is read; gives how it is compressed.
    pub(crate) fn admit(&self, head: &Parts, body: &Incoming) -> Result<Option<Coding>, Fault> {
        let mut codings = head.headers.get_all(CONTENT_ENCODING).iter();
        let coding = codings.next().map_or(&b""[..], HeaderValue::as_bytes);
        let (Ok(coding), None) = (Coding::of(coding), codings.next()) else {
            return Err(Fault::Coding);
        };
        match body.size_hint().lower() > self.max_bytes.0 {
            true => Err(Fault::TooLarge(self.max_bytes)),
            false => Ok(coding),
        }
    }

    /// Checks who the client is, where somebody is asked for.
    pub(crate) fn authenticate(
        &self,
        auth: Option<&Auth>,
        headers: &HeaderMap,
    ) -> Result<(), Fault> {
        match auth {
            Some(auth)
                if !auth
                    .admits(headers)
                    .map_err(|error| self.unreadable(&error))? =>
            {
                Err(Fault::Unauthorized(auth.challenge()))
            }
            _ => Ok(()),
        }
    }

    /// Warns of a secret that cannot be read.
    pub(crate) fn unreadable(&self, error: &SecretError) -> Fault {
        let limit = Limit::events("unreadable_secrets");
        let text = || format!("requests are answered with 503: {error}");
        self.ctx.diagnostics.warn_limited(limit, text);
        Fault::Unchecked
    }

    /// Reads a body into memory that is reserved before, cut into pages.
    pub(crate) async fn read(
        &self,
        session: &Session,
        mut body: Incoming,
        coding: Option<Coding>,
        cut: Cut,
    ) -> Result<Received, Fault> {
        let known = body.size_hint().exact().map(|length| length as usize);
        let mut reading = Reading::begin(self, session, known, coding, cut).await?;
        loop {
            let left = reading.deadline.saturating_duration_since(Instant::now());
            let patience = left.min(STALLED);
            let frame = tokio::select! {
                frame = timeout(patience, body.frame()) => frame,
                () = self.ctx.stop.stopped() => return Err(Fault::Stopping),
            };
            let data = match frame {
                Ok(None) => return Ok(reading.end(session)),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => return Err(Fault::broken(&error)),
                Err(_) if patience < left && !is_held_up(&self.ctx.pool) => continue,
                Err(_) if patience < left => {
                    self.refuse(session, REFUSED, &Fault::Stalled.to_string());
                    return Err(Fault::Stalled);
                }
                Err(_) => return Err(Fault::Late),
            };
            reading.add(&data).await?;
        }
    }

    /// Reads a body of which nothing is needed.
    pub(crate) async fn discard(&self, mut body: Incoming) -> Result<(), Fault> {
        let limit = self.max_bytes.bytes();
        let mut read = 0;
        let all = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| Fault::broken(&error))?;
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > limit {
                    return Err(Fault::TooLarge(self.max_bytes));
                }
            }
            Ok(())
        };
        tokio::select! {
            all = timeout(self.body_timeout, all) => all.unwrap_or(Err(Fault::Late)),
            () = self.ctx.stop.stopped() => Err(Fault::Stopping),
        }
    }

    /// Waits for memory, but not for ever.
    async fn for_memory<T>(&self, memory: impl Future<Output = T>) -> Result<T, Fault> {
        let _at_work = net::at_work();
        let _waiting = self.ctx.metrics.waiting();
        let waited = tokio::select! {
            memory = timeout(self.ack_timeout, memory) => memory,
            () = self.ctx.stop.stopped() => return Err(Fault::Stopping),
        };
        waited.map_err(|_| {
            self.postponed("memory_timeouts", "no memory was available for a body");
            Fault::NoMemory
        })
    }

    /// Has a message decoded, and waits until its events are safe.
    pub(crate) async fn deliver<P: Protocol>(
        &self,
        inbox: &Inbox<P>,
        message: P::Message,
    ) -> Result<(), P::Reason>
    where
        P::Reason: From<Fault>,
    {
        let (answer, outcome) = answer();
        inbox.put(message, answer);
        self.settle(outcome).await
    }

    /// Waits until the events of a message are safe.
    pub(crate) async fn settle<R: From<Fault>>(&self, outcome: Awaited<R>) -> Result<(), R> {
        let fault = match timeout(self.ack_timeout, outcome).await {
            Ok(Ok(Outcome::Delivered)) => return Ok(()),
            Ok(Ok(Outcome::Rejected(reason))) => return Err(reason),
            Ok(Ok(Outcome::Failed)) => Fault::Panicked,
            Ok(Ok(Outcome::NotDelivered) | Err(_)) => Fault::NotDelivered,
            Err(_) => {
                self.postponed("ack_timeouts", "the events of a request were not delivered");
                Fault::NotInTime
            }
        };
        Err(fault.into())
    }

    /// Counts and reports a request whose client is told to send it again.
    fn postponed(&self, counter: &'static str, reason: &str) {
        self.ctx.metrics.count(counter, 1);
        let waited = Period(self.ack_timeout);
        let text = || {
            format!("{reason} within {waited} (`ack_timeout`); the client is told to send it again")
        };
        let limit = Limit::events(counter);
        self.ctx.diagnostics.warn_limited(limit, text);
    }
}

/// A body that is being read.
pub(crate) struct Reading<'r> {
    requests: &'r Requests,
    reservation: Reservation,
    pages: Pages,
    coding: Option<Coding>,
    done: Vec<Bytes>,
    /// How much of hyper's buffer is charged, in bytes.
    charged: usize,
    /// When it must be there. Waits for memory do not count.
    deadline: Instant,
}

impl<'r> Reading<'r> {
    pub(crate) async fn begin(
        requests: &'r Requests,
        session: &Session,
        known: Option<usize>,
        coding: Option<Coding>,
        cut: Cut,
    ) -> Result<Self, Fault> {
        let limit = requests.max_bytes.bytes();
        let largest = known.unwrap_or(limit).min(limit);
        let cut = if coding.is_some() { Cut::Anywhere } else { cut };
        // What is announced may never come, unless the request before was as large.
        let likely = largest.min(session.last_bytes().max(FIRST_BYTES));
        let pool = &requests.ctx.pool;
        let first = Pages::first_bytes(cut, pool, likely);
        let mut reservation = requests.for_memory(pool.reserve(first)).await?;
        Ok(Self {
            pages: Pages::new(cut, (known, largest), first, &mut reservation),
            requests,
            reservation,
            coding,
            done: Vec::new(),
            charged: 0,
            deadline: Instant::now() + requests.body_timeout,
        })
    }

    /// Adds bytes that came.
    pub(crate) async fn add(&mut self, mut data: &[u8]) -> Result<(), Fault> {
        if data.len() > self.requests.max_bytes.bytes() - self.pages.len() {
            return Err(Fault::TooLarge(self.requests.max_bytes));
        }
        // hyper's buffer grows with a body that is as long.
        if self.charged == 0 && self.pages.len() >= net::BUFFER_BYTES_MAX {
            self.charged = net::BUFFER_BYTES_MAX;
            self.grow(self.charged).await?;
            self.reservation.spend(self.charged);
        }
        while !data.is_empty() {
            if self.pages.room().is_empty() {
                let plan = self.pages.plan();
                self.grow(plan.bytes).await?;
                let page = self.pages.turn(plan, &mut self.reservation);
                self.done.extend(page);
            }
            let room = self.pages.room();
            let count = data.len().min(room.len());
            room[..count].copy_from_slice(&data[..count]);
            self.pages.fill(count);
            data = &data[count..];
        }
        Ok(())
    }

    /// Reserves more.
    async fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let begin = Instant::now();
        let grow = self.reservation.grow(bytes);
        self.requests.for_memory(grow).await?;
        self.deadline += begin.elapsed();
        Ok(())
    }

    /// Says that all of it was added.
    pub(crate) fn end(mut self, session: &Session) -> Received {
        session.note_bytes(self.pages.len());
        self.done.push(self.pages.finish(&mut self.reservation));
        // Others may wait for what it holds.
        self.reservation.settle();
        Received {
            pages: self.done,
            coding: self.coding,
            reservation: self.reservation,
        }
    }
}

/// Serves requests until the input is to stop and all are answered. See [`net::serve`].
pub(crate) async fn serve(
    listener: Listener,
    handler: impl Handler,
    idle_timeout: Duration,
    ctx: &InputContext,
) {
    let (handler, stopped) = (Arc::new(handler), ctx.stop.stopped());
    net::serve(listener, handler, idle_timeout, stopped, watch(ctx)).await;
}

pub(crate) mod probe;
