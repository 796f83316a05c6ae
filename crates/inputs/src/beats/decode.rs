//! From frames to events, on the threads of the batcher.
//!
//! A message is a run of whole frames. Compressed frames are inflated piece by piece into buffers of the pool; a document that
//! lies across the end of one is moved to the next. So a frame takes several buffers and never one of its own size, unless a
//! single document is larger than a buffer.
//!
//! What stands before a fault is delivered. The messages behind it are not taken.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use batch::{Encoding, PooledBuffer, Reservation, Stream};
use codec::lumberjack::{Buffers, Events, Frame, FrameError, Limits, Window};
use component::{InputContext, Limit};
use tokio::sync::mpsc::UnboundedSender;

use super::connection::WINDOWS_MAX;
use crate::connections::answer::{Answer, Awaited, answer};
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::closing::Fault;
use crate::connections::inflate::{Coding, InflateError, Inflater};

/// The least that a compressed frame is inflated into.
const INFLATED_BYTES_MIN: usize = 4 << 10;

/// What is kept of a connection.
pub(super) struct Session {
    /// The client, for warnings.
    pub(super) peer: SocketAddr,
    /// The stream that its events belong to.
    pub(super) stream: Arc<Stream>,
    /// Only one thread takes its messages. Poisoned where decoding one panicked.
    pub(super) state: Mutex<State>,
}

/// How far a connection is.
#[derive(Default)]
pub(super) struct State {
    window: Window,
    /// The number of its next event.
    next: u64,
    /// A frame was at fault: nothing behind it is taken.
    is_broken: bool,
}

impl State {
    /// Whether events are to come that were announced.
    pub(super) fn is_within_window(&self) -> bool {
        !self.window.is_complete()
    }
}

/// Frames that were read whole.
pub(super) struct Message {
    /// The version and the size of a window that begins before the frames.
    pub(super) window: Option<(u8, u32)>,
    /// The frames, how many bytes of the buffer they are, and what they may be inflated in.
    pub(super) frames: Option<(PooledBuffer, usize, Reservation)>,
    pub(super) session: Arc<Session>,
    /// Where the connection hears of the parts, in order.
    pub(super) parts: UnboundedSender<Part>,
}

/// A part of a message, and what to tell the client when it is safe.
pub(super) struct Part {
    /// None where there are no events.
    pub(super) awaited: Option<Awaited<Fault>>,
    pub(super) version: u8,
    pub(super) sequence: u32,
    /// Its last event is the last one of the window.
    pub(super) ends_window: bool,
}

/// How frames become events.
pub(super) struct Decoding {
    limits: Limits,
    inflated_max: usize,
    pooled: usize,
    inflater: Inflater,
    events: Events,
    /// Where windows end in the events, or the buffer does.
    marks: Vec<Mark>,
    /// How many windows began in the message.
    windows: usize,
}

/// Up to where the events of a buffer are acknowledged together.
#[derive(Clone, Copy)]
struct Mark {
    /// The number of events before it in the buffer.
    events: usize,
    version: u8,
    sequence: u32,
    ends_window: bool,
}

pub(super) type BeatsJoiner = Joiner<(), Fault>;

/// What goes with a message while it is decoded.
struct Work<'a> {
    session: &'a Session,
    parts: &'a UnboundedSender<Part>,
    joiner: &'a mut BeatsJoiner,
}

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    type Reason = Fault;

    fn add(&mut self, message: Message, answer: Answer<Fault>, joiner: &mut BeatsJoiner) {
        let session = message.session;
        let Ok(mut state) = session.state.lock() else {
            return;
        };
        if state.is_broken {
            return;
        }
        self.events.clear();
        self.marks.clear();
        self.windows = 0;
        let mut work = Work {
            session: &session,
            parts: &message.parts,
            joiner,
        };
        let begun = match message.window {
            Some((version, events)) => self.window(version, events, &mut state, &mut work),
            None => Ok(()),
        };
        let decoded = begun.and_then(|()| match message.frames {
            Some((buffer, filled, reservation)) => {
                self.frames(buffer, filled, reservation, &mut state, &mut work)
            }
            None => {
                self.send(&Buffers::default(), &mut state, &mut work);
                Ok(())
            }
        });
        match decoded {
            Ok(()) => answer.complete(),
            Err(fault) => {
                state.is_broken = true;
                answer.reject(fault);
            }
        }
    }

    fn completion(&self) -> Completion<()> {
        Box::new(|_, _| {})
    }
}

impl Decoding {
    pub(super) fn new(
        limits: Limits,
        inflated_max: usize,
        max_depth: usize,
        ctx: &InputContext,
    ) -> Self {
        Self {
            limits,
            inflated_max,
            pooled: ctx.pool.buffer_size(),
            inflater: Inflater::new(Coding::Deflate, &[]),
            events: Events::new(max_depth),
            marks: Vec::new(),
            windows: 0,
        }
    }

    /// Takes the frames of a message.
    fn frames(
        &mut self,
        mut buffer: PooledBuffer,
        filled: usize,
        mut reservation: Reservation,
        state: &mut State,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        let (mut at, mut taken) = (0, Ok(()));
        let mut has_events = false;
        while at < filled && taken.is_ok() {
            taken = match Frame::parse(&buffer[at..filled], self.limits) {
                Ok(Some((Frame::Compressed(content), len))) => {
                    // Events before it go first.
                    let content = at + content.start..at + content.end;
                    at += len;
                    if has_events {
                        self.copy_out(&buffer, &mut reservation, state, work);
                        has_events = false;
                    }
                    self.inflate(&buffer[content], &mut reservation, state, work)
                }
                Ok(Some((frame, len))) => {
                    has_events |= !matches!(frame, Frame::Window { .. });
                    let taken = self.frame(frame, at, &mut buffer, state, work);
                    at += len;
                    taken
                }
                Ok(None) => Err(Fault::malformed("a frame is not whole")),
                Err(error) => Err(error.into()),
            };
        }
        match has_events {
            true => self.deliver(buffer, filled, &mut reservation, state, work),
            false => self.send(&Buffers::default(), state, work),
        }
        taken
    }

    /// Delivers events that lie in a buffer that is still needed.
    fn copy_out(
        &mut self,
        buffer: &PooledBuffer,
        reservation: &mut Reservation,
        state: &mut State,
        work: &mut Work<'_>,
    ) {
        let copy = work.joiner.copy(reservation, buffer);
        self.deliver(copy, buffer.len(), reservation, state, work);
    }

    /// Takes a frame that is not compressed and stands at a place of a buffer.
    fn frame(
        &mut self,
        frame: Frame,
        at: usize,
        buffer: &mut [u8],
        state: &mut State,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        let within = |range: Range<usize>| at + range.start..at + range.end;
        match frame {
            Frame::Window { version, events } => {
                return self.window(version, events, state, work);
            }
            Frame::Json { sequence, document } => {
                let mut window = state.window;
                window.event(sequence).map_err(Fault::from)?;
                let range = within(document);
                self.events
                    .json(buffer, range, sequence)
                    .map_err(Fault::from)?;
                // Only now: what is at fault is not acknowledged.
                state.window = window;
            }
            Frame::Pairs {
                sequence,
                count,
                pairs,
            } => {
                state.window.event(sequence).map_err(Fault::from)?;
                self.events.pairs(buffer, within(pairs), count);
            }
            Frame::Compressed(_) => {
                return Err(Fault::malformed(
                    "a compressed frame within a compressed frame",
                ));
            }
        }
        if state.window.is_complete() {
            self.mark(state);
        }
        Ok(())
    }

    /// A window begins.
    fn window(
        &mut self,
        version: u8,
        events: u32,
        state: &mut State,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        self.windows += 1;
        if self.windows > WINDOWS_MAX {
            let reason = format!("more than {WINDOWS_MAX} windows begin in a compressed frame");
            return Err(Fault::malformed(reason));
        }
        self.mark(state);
        let missing = state.window.begin(version, events);
        if missing > 0 {
            let what = format!("a window began before the last {missing} events of the one before");
            work.warn("incomplete_windows", 1, &what);
        }
        if events == 0 {
            self.marks.push(Mark {
                events: self.events.len(),
                version,
                sequence: 0,
                ends_window: true,
            });
        }
        Ok(())
    }

    /// Marks that the events so far are acknowledged up to the last one.
    fn mark(&mut self, state: &State) {
        let events = self.events.len();
        let marked = self.marks.last().map_or(0, |mark| mark.events);
        if events > marked {
            self.marks.push(Mark {
                events,
                version: state.window.version(),
                sequence: state.window.last(),
                ends_window: state.window.is_complete(),
            });
        }
    }

    /// Inflates a compressed frame and takes the frames in it.
    fn inflate(
        &mut self,
        mut compressed: &[u8],
        reservation: &mut Reservation,
        state: &mut State,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        self.inflater.restart_zlib();
        let first = compressed.len().saturating_mul(4);
        let first = first.clamp(INFLATED_BYTES_MIN.min(self.pooled), self.pooled);
        let mut buffer = take(first, reservation, work);
        let (mut filled, mut total) = (0, 0);
        loop {
            let before = filled;
            let (consumed, goes_on) = self.fill(compressed, &mut buffer, &mut filled)?;
            compressed = &compressed[consumed..];
            total += filled - before;
            if total > self.inflated_max {
                return Err(self.too_large());
            }
            let (used, taken) = self.inner_frames(&mut buffer, filled, state, work);
            let rest = filled - used;
            if taken.is_err() || !goes_on {
                self.deliver_small(buffer, filled, reservation, state, work);
                taken?;
                return self.end(rest, compressed);
            }
            let mut next = match used {
                // A document is larger than the buffer.
                0 => take(
                    buffer.len().saturating_mul(2).max(self.pooled),
                    reservation,
                    work,
                ),
                _ => take(self.pooled, reservation, work),
            };
            if rest > next.len() {
                next = take(rest.saturating_mul(2), reservation, work);
            }
            next[..rest].copy_from_slice(&buffer[used..filled]);
            if used > 0 {
                self.deliver(buffer, used, reservation, state, work);
            }
            (buffer, filled) = (next, rest);
        }
    }

    /// Inflates into a buffer; gives how many bytes were read, and whether there may be more behind the buffer.
    fn fill(
        &mut self,
        compressed: &[u8],
        buffer: &mut PooledBuffer,
        filled: &mut usize,
    ) -> Result<(usize, bool), Fault> {
        let mut read = 0;
        while *filled < buffer.len() {
            let step = self
                .inflater
                .step(&compressed[read..], &mut buffer[*filled..]);
            let (consumed, produced) = step.map_err(|error| match error {
                InflateError::TooLarge => self.too_large(),
                InflateError::Damaged(reason) => {
                    Fault::malformed(format!("a compressed frame is damaged: {reason}"))
                }
            })?;
            read += consumed;
            *filled += produced;
            if self.inflater.has_ended() || consumed == 0 && produced == 0 {
                return Ok((read, false));
            }
        }
        Ok((read, true))
    }

    fn too_large(&self) -> Fault {
        let most = self.inflated_max;
        Fault::too_large(format!(
            "a compressed frame has more than {most} bytes when it is decompressed"
        ))
    }

    /// Takes the whole frames of an inflated buffer; gives how many bytes they are.
    fn inner_frames(
        &mut self,
        buffer: &mut [u8],
        filled: usize,
        state: &mut State,
        work: &mut Work<'_>,
    ) -> (usize, Result<(), Fault>) {
        let mut at = 0;
        while at < filled {
            let taken = match Frame::parse(&buffer[at..filled], self.limits) {
                Ok(None) => break,
                Ok(Some((frame, len))) => self
                    .frame(frame, at, buffer, state, work)
                    .map(|()| at += len),
                Err(error) => Err(error.into()),
            };
            if taken.is_err() {
                return (at, taken);
            }
        }
        (at, Ok(()))
    }

    /// Checks the end of a compressed frame.
    fn end(&mut self, rest: usize, compressed: &[u8]) -> Result<(), Fault> {
        let damaged = |error: InflateError| {
            Fault::malformed(format!("a compressed frame is damaged: {error}"))
        };
        self.inflater.finish(compressed).map_err(damaged)?;
        match rest {
            0 => Ok(()),
            _ => Err(Fault::malformed(
                "a compressed frame ends in the middle of a frame",
            )),
        }
    }

    /// Delivers the events of a buffer that may be much larger than what is in it.
    fn deliver_small(
        &mut self,
        buffer: PooledBuffer,
        filled: usize,
        reservation: &mut Reservation,
        state: &mut State,
        work: &mut Work<'_>,
    ) {
        let body = match filled > buffer.len() / 4 {
            true => buffer,
            false => work.joiner.copy(reservation, &buffer[..filled]),
        };
        self.deliver(body, filled, reservation, state, work);
    }

    /// Sends the events of a buffer on, and forgets them.
    fn deliver(
        &mut self,
        buffer: PooledBuffer,
        filled: usize,
        reservation: &mut Reservation,
        state: &mut State,
        work: &mut Work<'_>,
    ) {
        work.joiner.ctx.metrics.bytes(filled);
        let buffers = self.events.freeze(buffer.freeze(filled), |rewritten| {
            let side = work.joiner.copy(reservation, rewritten);
            side.freeze(rewritten.len())
        });
        self.send(&buffers, state, work);
    }

    /// Sends the events that lie in these buffers, or says where windows without events end.
    fn send(&mut self, buffers: &Buffers, state: &mut State, work: &mut Work<'_>) {
        self.mark(state);
        let mut from = 0;
        for mark in &self.marks {
            from = self.deliver_up_to(*mark, from, buffers, state, work);
        }
        self.marks.clear();
        state.next += self.events.len() as u64;
        self.events.clear();
    }

    fn deliver_up_to(
        &self,
        mark: Mark,
        mut from: usize,
        buffers: &Buffers,
        state: &State,
        work: &mut Work<'_>,
    ) -> usize {
        if from == mark.events {
            work.tell(None, mark, 0);
        }
        while from < mark.events {
            let (part, awaited) = answer();
            let mut refused = 0;
            let stream = &work.session.stream;
            work.joiner
                .join((Encoding::Json, false), (), &part, |builder| {
                    builder.stream(stream);
                    let range = from..mark.events;
                    (from, refused) = self.events.push(buffers, range, state.next, builder);
                });
            part.complete();
            if refused > 0 {
                let what = "an event has an `@metadata._id` that is empty or longer than 512 bytes, and got another id";
                work.warn("refused_ids", refused, what);
            }
            work.tell(Some(awaited), mark, mark.events - from);
        }
        from
    }
}

impl Work<'_> {
    /// Tells the connection of a part behind which `left` events stand before the mark.
    fn tell(&self, awaited: Option<Awaited<Fault>>, mark: Mark, left: usize) {
        let part = Part {
            awaited,
            version: mark.version,
            sequence: mark.sequence.wrapping_sub(left as u32),
            ends_window: mark.ends_window && left == 0,
        };
        // A connection that is gone needs to hear nothing.
        let _ = self.parts.send(part);
    }

    /// Counts something that a client should not do, and reports it.
    fn warn(&self, counter: &'static str, count: usize, what: &str) {
        let ctx = &self.joiner.ctx;
        ctx.metrics.count(counter, count as u64);
        let peer = self.session.peer;
        let address = peer.ip().to_string();
        ctx.diagnostics
            .warn_limited(Limit::peer(counter, &address), || format!("{peer}: {what}"));
    }
}

/// A buffer out of what is reserved for a message.
fn take(len: usize, reservation: &mut Reservation, work: &mut Work<'_>) -> PooledBuffer {
    work.joiner.grow(reservation, len);
    reservation.take(len)
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        let reason = error.to_string();
        match error {
            FrameError::Malformed(_) => Self::malformed(reason),
            FrameError::TooLarge(_) => Self::too_large(reason),
            FrameError::Document { .. } => Self::new("invalid_documents", reason),
        }
    }
}
