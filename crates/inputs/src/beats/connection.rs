//! One connection: frames are read and answers written, each without waiting for the other.
//!
//! The reading side finds where frames end, and hands over what it read whole: a compressed frame, or a run of frames that
//! came together. It reads [`MESSAGES_AHEAD`] messages ahead of the answers, and waits for memory before it reads a frame. The
//! writing side has the messages in the order in which they came. It acknowledges their parts as their receipts come,
//! several with one write where they come together, and says every [`KEEP_ALIVE`] that a message is still being worked on.
//!
//! Clients of version 1 take any acknowledgement for one of the whole window: they get that alone.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use batch::{Source, Stream};
use codec::lumberjack::{Extent, Frame, Limits, Scanner, WINDOW_BYTES, acknowledgement};
use component::InputContext;
use net::{Peer, Stopping};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::decode::{ConnectionState, Decoding, Message, Session, Unanswered};
use super::parts::{PARTS_MAX, WINDOWS_MAX, WindowPart};
use crate::connections::answer::{Answer, Awaited, Outcome, answer};
use crate::connections::batcher::Inbox;
use crate::connections::closing::{Ending, Fault};
use crate::connections::framed::{ConnectionReader, ConnectionWriter, Speaker};
use crate::connections::intake::{Intake, Load};
use crate::reading::identity::Identity;

/// How often a client hears that its events are being worked on. Beats wait 30 seconds for a sign.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How many messages are read and not answered.
const MESSAGES_AHEAD: usize = 8;

/// How many bytes of frames make a message, where that many have come.
const MESSAGE_BYTES: usize = 128 << 10;

/// Speaks Lumberjack.
pub(super) struct Beats<I> {
    pub(super) ctx: InputContext,
    pub(super) limits: Limits,
    pub(super) idle_timeout: Duration,
    pub(super) frame_timeout: Duration,
    pub(super) keep_alive: Duration,
    /// Where it listens, and a number that no other run has.
    pub(super) listener: Arc<str>,
    pub(super) run: u128,
    pub(super) inboxes: I,
}

/// A message that is being read or worked on.
pub(super) struct InFlight {
    version: u8,
    pub(super) parts: mpsc::Receiver<WindowPart>,
    pub(super) outcome: Awaited<Fault>,
}

impl<I> Beats<I> {
    fn session(&self, peer: Peer) -> Arc<Session> {
        let id = Identity::new([
            self.ctx.host.name.as_bytes(),
            b"beats",
            self.listener.as_bytes(),
            &self.run.to_le_bytes(),
            &peer.connection.to_le_bytes(),
        ]);
        let source = Source::Connection {
            peer: peer.address.to_string().into(),
            listener: self.listener.clone(),
        };
        Arc::new(Session {
            peer: peer.address,
            stream: Arc::new(Stream::new(id.id(), source)),
            state: Mutex::new(ConnectionState::default()),
            unanswered: Mutex::default(),
        })
    }
}

impl<I: Fn(u64) -> Inbox<Decoding> + Send + Sync + 'static> Speaker for Beats<I> {
    async fn speak(
        &self,
        peer: Peer,
        reader: &mut ConnectionReader,
        writer: &mut ConnectionWriter,
        mut stopping: Stopping,
    ) -> Ending {
        let (in_flight, messages) = mpsc::channel(MESSAGES_AHEAD);
        let session = self.session(peer);
        let mut acknowledger = Acknowledger {
            writer,
            ctx: &self.ctx,
            session: &session,
            keep_alive: self.keep_alive,
            version: b'2',
            out: Vec::new(),
            replaces: false,
        };
        let mut answered = pin!(acknowledger.run(messages));
        let read = {
            let receiver = Receiver {
                intake: Intake::new(
                    reader,
                    self.ctx.clone(),
                    self.idle_timeout,
                    self.frame_timeout,
                ),
                limits: self.limits,
                session: session.clone(),
                inbox: (self.inboxes)(peer.connection),
                in_flight,
                version: b'2',
            };
            tokio::select! {
                biased;
                ended = receiver.run() => ended,
                ended = &mut answered => return ended,
                () = stopping.begun() => Ending::Usual,
            }
        };
        // What was received whole is answered, whatever came behind it.
        match answered.await {
            Ending::Usual if read == Ending::Usual && !stopping.has_begun() => session.ended(),
            Ending::Usual => read,
            other => other,
        }
    }
}

impl Session {
    /// How the connection ends when its client closes it and everything is answered.
    fn ended(&self) -> Ending {
        match self.state.lock().is_within_window() {
            true => incomplete().into(),
            false => Ending::Usual,
        }
    }

    /// The client waits for one more answer.
    fn waits(&self) {
        self.unanswered().messages += 1;
    }

    /// A message was answered.
    fn answered(&self) {
        let mut unanswered = self.unanswered();
        unanswered.messages -= 1;
        unanswered.since = Instant::now();
    }

    /// Since when the client has all answers; none while it waits for one.
    fn idle_since(&self) -> Option<Instant> {
        let unanswered = self.unanswered();
        (unanswered.messages == 0).then_some(unanswered.since)
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock()
    }
}

fn incomplete() -> Fault {
    let reason = "the connection ended before the events of a window came";
    Fault::new("cut_connections", reason)
}

/// Reads messages.
pub(super) struct Receiver<R> {
    pub(super) intake: Intake<R>,
    pub(super) limits: Limits,
    pub(super) session: Arc<Session>,
    pub(super) inbox: Inbox<Decoding>,
    pub(super) in_flight: mpsc::Sender<InFlight>,
    /// That of the last window.
    pub(super) version: u8,
}

/// Where a message goes when it is read.
struct MessageReply {
    answer: Answer<Fault>,
    parts: mpsc::Sender<WindowPart>,
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// Reads until the client closes its side or is at fault.
    pub(super) async fn run(mut self) -> Ending {
        match self.receive().await {
            Ok(()) => Ending::Usual,
            Err(ending) => ending,
        }
    }

    async fn receive(&mut self) -> Result<(), Ending> {
        // A window is not worth a message until its events come.
        let mut window = None;
        while self.begin().await? {
            let head = self.intake.need(2).await?;
            let extent = Scanner::default().extent(head, self.limits);
            let extent = extent.map_err(Fault::from)?;
            if head[1] != b'W' {
                self.message(window.take(), extent).await?;
                continue;
            }
            if window.is_some() {
                self.put_window(window.take()).await?;
            }
            let frame = self.intake.need(WINDOW_BYTES).await?;
            let parsed = Frame::parse(frame, self.limits).map_err(Fault::from)?;
            self.intake.skip(WINDOW_BYTES);
            if let Some((Frame::Window { version, events }, _)) = parsed {
                self.version = version;
                window = Some((version, events));
                if events == 0 {
                    self.put_window(window.take()).await?;
                }
            }
        }
        match window {
            Some(_) => Err(incomplete().into()),
            None => Ok(()),
        }
    }

    /// Waits for the next frame. A client is idle while it has nothing to wait for.
    async fn begin(&mut self) -> Result<bool, Ending> {
        let patience = self.intake.idle_timeout();
        let mut until = Instant::now() + patience;
        loop {
            match self.intake.begin_by(until).await {
                Err(Ending::Idle) => {}
                begun => return begun,
            }
            let idle_since = self.session.idle_since();
            if idle_since.is_some_and(|since| since + patience <= until) {
                return Err(Ending::Idle);
            }
            until = idle_since.unwrap_or_else(Instant::now) + patience;
        }
    }

    /// Waits for a place among the messages that are worked on. The client gets signs of life from then on.
    async fn place(&mut self) -> Result<MessageReply, Ending> {
        let (answer, outcome) = answer();
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let in_flight = InFlight {
            version: self.version,
            parts: received,
            outcome,
        };
        // Whoever answers has ended only with the connection.
        let sent = self.in_flight.send(in_flight).await;
        sent.map_err(|_| Ending::Usual)?;
        self.session.waits();
        Ok(MessageReply { answer, parts })
    }

    fn put(&self, place: MessageReply, window: Option<(u8, u32)>, load: Option<Load>) {
        let message = Message {
            window,
            frames: load.map(Load::finish),
            session: self.session.clone(),
            parts: place.parts,
        };
        self.inbox.put(message, place.answer);
    }

    async fn put_window(&mut self, window: Option<(u8, u32)>) -> Result<(), Ending> {
        let place = self.place().await?;
        self.put(place, window, None);
        Ok(())
    }

    /// Reads a frame and those that came with it.
    async fn message(&mut self, window: Option<(u8, u32)>, extent: Extent) -> Result<(), Ending> {
        let place = self.place().await?;
        let known = match extent {
            Extent::Whole(bytes) => bytes,
            // Heads and small frames need no more than was read ahead.
            Extent::AtLeast(bytes) => bytes.max(self.intake.ahead().len()),
        };
        let mut load = self.intake.reserve(known).await;
        self.frame(&mut load).await?;
        let mut windows = usize::from(window.is_some());
        while !load.is_divided() && load.len() < MESSAGE_BYTES {
            let Some(len) = self.whole_ahead() else {
                if self.intake.top_up().await {
                    continue;
                }
                break;
            };
            if self.intake.ahead()[1] == b'W' {
                if windows == WINDOWS_MAX {
                    break;
                }
                windows += 1;
                self.version = self.intake.ahead()[0];
            }
            self.intake.load(&mut load, len).await?;
        }
        self.put(place, window, Some(load));
        Ok(())
    }

    /// Reads one frame to its end.
    async fn frame(&mut self, load: &mut Load) -> Result<(), Ending> {
        let mut scanner = Scanner::default();
        let ahead = self.intake.ahead();
        let mut extent = scanner.extent(ahead, self.limits).map_err(Fault::from)?;
        loop {
            let bytes = match extent {
                Extent::Whole(bytes) | Extent::AtLeast(bytes) => bytes,
            };
            let missing = bytes - load.len();
            if let Some(b'C') = load.bytes().get(1)
                && let Extent::Whole(_) = extent
            {
                self.intake.load_divided(load, missing).await?;
                return Ok(());
            }
            self.intake.load(load, missing).await?;
            if let Extent::Whole(_) = extent {
                return Ok(());
            }
            extent = scanner
                .extent(load.bytes(), self.limits)
                .map_err(Fault::from)?;
        }
    }

    /// The length of the next frame, if it was read ahead whole. One that is at fault shows when it is the first.
    fn whole_ahead(&self) -> Option<usize> {
        let ahead = self.intake.ahead();
        match Frame::parse(ahead, self.limits) {
            Ok(Some((_, len))) => Some(len),
            _ => None,
        }
    }
}

/// Writes acknowledgements.
struct Acknowledger<'a, W> {
    writer: &'a mut W,
    ctx: &'a InputContext,
    session: &'a Session,
    keep_alive: Duration,
    /// In which keep-alives are written.
    version: u8,
    /// What was not written yet.
    out: Vec<u8>,
    /// The last acknowledgement in it may be replaced by the next one, of the same window.
    replaces: bool,
}

impl<W: AsyncWrite + Unpin> Acknowledger<'_, W> {
    /// Answers every message.
    async fn run(&mut self, mut messages: mpsc::Receiver<InFlight>) -> Ending {
        match self.answer(&mut messages).await {
            Ok(()) => Ending::Usual,
            Err(ending) => ending,
        }
    }

    async fn answer(&mut self, messages: &mut mpsc::Receiver<InFlight>) -> Result<(), Ending> {
        // While nothing is worked on, nothing is said.
        while let Some(mut message) = self.wait(messages.recv(), false).await? {
            self.version = message.version;
            while let Some(part) = self.wait(message.parts.recv(), true).await? {
                if let Some(awaited) = part.awaited {
                    let _at_work = net::at_work();
                    let outcome = self.wait(awaited, true).await?;
                    self.check(outcome.unwrap_or(Outcome::NotDelivered)).await?;
                }
                self.acknowledge(part.version, part.sequence, part.ends_window);
            }
            let outcome = self.wait(message.outcome, true).await?;
            self.check(outcome.unwrap_or(Outcome::NotDelivered)).await?;
            self.session.answered();
        }
        self.flush().await
    }

    /// Goes on where a message or a part of it was delivered.
    async fn check(&mut self, outcome: Outcome<Fault>) -> Result<(), Ending> {
        let ending = match outcome {
            Outcome::Delivered => return Ok(()),
            // The client sends it again.
            Outcome::NotDelivered => Ending::Usual,
            Outcome::Rejected(fault) => fault.into(),
            Outcome::Failed => Fault::internal().into(),
        };
        self.flush().await?;
        Err(ending)
    }

    fn acknowledge(&mut self, version: u8, sequence: u32, ends_window: bool) {
        if version == b'1' && !ends_window {
            return;
        }
        if self.replaces {
            self.out.truncate(self.out.len() - WINDOW_BYTES);
        }
        self.out.extend(acknowledgement(version, sequence));
        self.replaces = !ends_window;
    }

    /// Waits for something. Where that takes time, what was to be said is said before, and, if the client is to hear signs of
    /// life, they are sent.
    async fn wait<T>(
        &mut self,
        future: impl Future<Output = T>,
        is_at_work: bool,
    ) -> Result<T, Ending> {
        let mut future = pin!(future);
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Ok(done);
        }
        self.flush().await?;
        if !is_at_work || self.version == b'1' {
            return Ok(future.await);
        }
        loop {
            match timeout(self.keep_alive, &mut future).await {
                Ok(done) => return Ok(done),
                Err(_) => {
                    self.ctx.metrics.count("keep_alives", 1);
                    self.out.extend(acknowledgement(self.version, 0));
                    self.flush().await?;
                }
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Ending> {
        if !self.out.is_empty() {
            let written = self.writer.write_all(&self.out).await;
            written.map_err(|error| Fault::cut(&error))?;
            let flushed = self.writer.flush().await;
            flushed.map_err(|error| Fault::cut(&error))?;
            self.out.clear();
            self.replaces = false;
        }
        Ok(())
    }
}
