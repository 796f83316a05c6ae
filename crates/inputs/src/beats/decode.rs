//! From frames to events, on the threads of the batcher.
//!
//! A message is a run of whole frames, or one compressed frame that lies in several buffers, which are given back as they are
//! read. Compressed frames are inflated piece by piece into buffers of the pool; a document that lies across the end of one is
//! moved to the next. So a frame takes several buffers and never one of its own size, unless a single document is larger than a
//! buffer.
//!
//! What stands before a fault is delivered. The messages behind it are not taken.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use batch::{Encoding, PooledBuffer, Reservation, Stream};
use bytes::Bytes;
use codec::lumberjack::{
    Buffers, COMPRESSED_HEAD_BYTES, Events, Frame, FrameError, Limits, Window,
};
use component::{InputContext, Limit};
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::parts::{Parts, WINDOWS_MAX, WindowPart};
use crate::connections::answer::{Answer, Awaited};
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::closing::Fault;
use crate::connections::inflate::{Coding, InflateError, Inflater};
use crate::connections::intake::{Filled, Loaded};

/// The least that a compressed frame is inflated into.
const INFLATED_BYTES_MIN: usize = 4 << 10;

/// What is kept of a connection.
pub(super) struct Session {
    /// The client, for warnings.
    pub(super) peer: SocketAddr,
    /// The stream that its events belong to.
    pub(super) stream: Arc<Stream>,
    /// Only one thread takes its messages. Poisoned where decoding one panicked.
    pub(super) state: Mutex<ConnectionState>,
    /// What the client waits for.
    pub(super) unanswered: Mutex<Unanswered>,
}

/// The messages of a connection that are not answered.
pub(super) struct Unanswered {
    pub(super) messages: usize,
    /// When the last one was answered, or the connection began.
    pub(super) since: Instant,
}

impl Default for Unanswered {
    fn default() -> Self {
        Self {
            messages: 0,
            since: Instant::now(),
        }
    }
}

/// How far a connection is.
#[derive(Default)]
pub(super) struct ConnectionState {
    window: Window,
    /// The number of its next event.
    next: u64,
    /// A frame was at fault: nothing behind it is taken.
    is_broken: bool,
}

impl ConnectionState {
    /// Whether events are to come that were announced.
    pub(super) fn is_within_window(&self) -> bool {
        !self.window.is_complete()
    }
}

/// Frames that were read whole.
pub(super) struct Message {
    /// The version and the size of a window that begins before the frames.
    pub(super) window: Option<(u8, u32)>,
    /// The frames.
    pub(super) frames: Option<Loaded>,
    pub(super) session: Arc<Session>,
    /// Where the connection hears of the parts, in order.
    pub(super) parts: Sender<WindowPart>,
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
    /// How many windows had begun in the message.
    window: usize,
}

/// What is left of a compressed frame.
struct Compressed<'a> {
    /// What lies in a buffer together with other frames.
    piece: &'a [u8],
    /// Or the buffers that are its own, and how much of the first one was read.
    buffers: VecDeque<Filled>,
    used: usize,
}

pub(super) type BeatsJoiner = Joiner<(), Fault>;

/// What goes with a message while it is decoded.
struct Work<'a> {
    session: &'a Session,
    parts: Parts<'a>,
    joiner: &'a mut BeatsJoiner,
}

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    type Reason = Fault;

    fn add(&mut self, message: Message, answer: Answer<Fault>, joiner: &mut BeatsJoiner) {
        let session = message.session;
        let mut state = session.state.lock();
        if state.is_broken {
            return;
        }
        // It stays so when this panics: nothing is decoded with half a state.
        state.is_broken = true;
        self.events.clear();
        self.marks.clear();
        self.windows = 0;
        let mut work = Work {
            session: &session,
            parts: Parts::new(&message.parts),
            joiner,
        };
        let begun = match message.window {
            Some((version, events)) => self.window(version, events, &mut state, &mut work),
            None => Ok(()),
        };
        let decoded = begun.and_then(|()| match message.frames {
            Some(frames) if frames.before.is_empty() => self.frames(frames, &mut state, &mut work),
            Some(frame) => self.divided_frame(frame, &mut state, &mut work),
            None => {
                self.send(&Buffers::default(), &mut state, &mut work);
                Ok(())
            }
        });
        work.parts.tell_held();
        match decoded {
            Ok(()) => {
                state.is_broken = false;
                answer.complete();
            }
            Err(fault) => answer.reject(fault),
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

    /// Takes a compressed frame that lies in several buffers.
    fn divided_frame(
        &mut self,
        frame: Loaded,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        let mut reservation = frame.reservation;
        let compressed = Compressed {
            piece: &[],
            buffers: frame.before.into_iter().chain([frame.last]).collect(),
            used: COMPRESSED_HEAD_BYTES,
        };
        let taken = self.inflate(compressed, &mut reservation, state, work);
        self.send(&Buffers::default(), state, work);
        taken
    }

    /// Takes the frames of a message, which lie in one buffer.
    fn frames(
        &mut self,
        frames: Loaded,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        let mut reservation = frames.reservation;
        let (mut buffer, filled) = frames.last.into_parts();
        let (mut at, mut taken) = (0, Ok(()));
        // Where the first event stands that was not delivered.
        let mut first = None;
        while at < filled && taken.is_ok() {
            taken = match Frame::parse(&buffer[at..filled], self.limits) {
                Ok(Some((Frame::Compressed(content), len))) => {
                    // Events before it go first.
                    let content = at + content.start..at + content.end;
                    at += len;
                    if let Some(first) = first.take() {
                        let events = first..content.start - COMPRESSED_HEAD_BYTES;
                        self.copy_out(&buffer, events, &mut reservation, state, work);
                    }
                    let compressed = Compressed::lying(&buffer[content]);
                    self.inflate(compressed, &mut reservation, state, work)
                }
                Ok(Some((frame, len))) => {
                    if !matches!(frame, Frame::Window { .. }) {
                        first.get_or_insert(at);
                    }
                    let taken = self.frame(frame, at, &mut buffer, &mut reservation, state, work);
                    at += len;
                    taken
                }
                Ok(None) => Err(Fault::malformed("a frame is not whole")),
                Err(error) => Err(error.into()),
            };
        }
        match first {
            Some(_) => self.deliver(buffer, filled, &mut reservation, state, work),
            None => self.send(&Buffers::default(), state, work),
        }
        taken
    }

    /// Delivers events that lie in a range of a buffer that is still needed.
    fn copy_out(
        &mut self,
        buffer: &PooledBuffer,
        range: Range<usize>,
        reservation: &mut Reservation,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) {
        self.events.move_back(range.start);
        let len = range.len();
        let copy = copy(&buffer[range], reservation, work);
        self.deliver(copy, len, reservation, state, work);
    }

    /// Takes a frame that is not compressed and stands at a place of a buffer.
    fn frame(
        &mut self,
        frame: Frame,
        at: usize,
        buffer: &mut [u8],
        reservation: &mut Reservation,
        state: &mut ConnectionState,
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
                let reserve = |bytes| work.reserve(reservation, bytes);
                let taken = self.events.json(buffer, range, sequence, reserve);
                taken.map_err(Fault::from)?;
                // Only now: what is at fault is not acknowledged.
                state.window = window;
            }
            Frame::Pairs {
                sequence,
                count,
                pairs,
            } => {
                state.window.event(sequence).map_err(Fault::from)?;
                let reserve = |bytes| work.reserve(reservation, bytes);
                self.events.pairs(buffer, within(pairs), count, reserve);
            }
            Frame::Compressed(_) => {
                return Err(Fault::malformed(
                    "a compressed frame within a compressed frame",
                ));
            }
        }
        if self.events.rewritten_len() >= self.pooled {
            let pooled = self.pooled;
            self.events
                .seal(|rewritten| work.keep(rewritten, pooled, reservation));
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
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        self.mark(state);
        self.windows += 1;
        if self.windows > WINDOWS_MAX {
            let reason = format!("more than {WINDOWS_MAX} windows begin in a compressed frame");
            return Err(Fault::malformed(reason));
        }
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
                window: self.windows,
            });
        }
        Ok(())
    }

    /// Marks that the events so far are acknowledged up to the last one.
    fn mark(&mut self, state: &ConnectionState) {
        let events = self.events.len();
        let marked = self.marks.last().map_or(0, |mark| mark.events);
        if events > marked {
            self.marks.push(Mark {
                events,
                version: state.window.version(),
                sequence: state.window.last(),
                ends_window: state.window.is_complete(),
                window: self.windows,
            });
        }
    }

    /// Inflates a compressed frame and takes the frames in it.
    fn inflate(
        &mut self,
        mut compressed: Compressed<'_>,
        reservation: &mut Reservation,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) -> Result<(), Fault> {
        self.inflater.restart_zlib();
        let first = compressed.left().len().saturating_mul(4);
        let first = first.clamp(INFLATED_BYTES_MIN.min(self.pooled), self.pooled);
        let mut buffer = take(first, reservation, work);
        let (mut filled, mut total) = (0, 0);
        loop {
            let before = filled;
            let goes_on = self.fill(&mut compressed, &mut buffer, &mut filled)?;
            total += filled - before;
            if total > self.inflated_max {
                return Err(self.too_large());
            }
            let (used, taken) = self.inner_frames(&mut buffer, filled, reservation, state, work);
            let rest = filled - used;
            if taken.is_err() || !goes_on {
                self.deliver_small(buffer, filled, reservation, state, work);
                taken?;
                return self.end(rest, compressed.left());
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

    /// Inflates into a buffer; gives whether there may be more behind the buffer.
    fn fill(
        &mut self,
        compressed: &mut Compressed<'_>,
        buffer: &mut PooledBuffer,
        filled: &mut usize,
    ) -> Result<bool, Fault> {
        while *filled < buffer.len() {
            let step = self
                .inflater
                .step(compressed.left(), &mut buffer[*filled..]);
            let (consumed, produced) = step.map_err(|error| match error {
                InflateError::TooLarge => self.too_large(),
                InflateError::Damaged(reason) => {
                    Fault::malformed(format!("a compressed frame is damaged: {reason}"))
                }
            })?;
            compressed.read(consumed);
            *filled += produced;
            if self.inflater.has_ended() || consumed == 0 && produced == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn too_large(&self) -> Fault {
        let most = self.inflated_max;
        Fault::too_large(format!(
            "a compressed frame has more than {most} bytes when it is decompressed (`max_inflated_bytes`)"
        ))
    }

    /// Takes the whole frames of an inflated buffer; gives how many bytes they are.
    fn inner_frames(
        &mut self,
        buffer: &mut [u8],
        filled: usize,
        reservation: &mut Reservation,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) -> (usize, Result<(), Fault>) {
        let mut at = 0;
        while at < filled {
            let taken = match Frame::parse(&buffer[at..filled], self.limits) {
                Ok(None) => break,
                Ok(Some((frame, len))) => self
                    .frame(frame, at, buffer, reservation, state, work)
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
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) {
        let body = match filled > buffer.len() / 4 {
            true => buffer,
            false => copy(&buffer[..filled], reservation, work),
        };
        self.deliver(body, filled, reservation, state, work);
    }

    /// Sends the events of a buffer on, and forgets them.
    fn deliver(
        &mut self,
        buffer: PooledBuffer,
        filled: usize,
        reservation: &mut Reservation,
        state: &mut ConnectionState,
        work: &mut Work<'_>,
    ) {
        work.joiner.ctx.metrics.bytes(filled);
        let pooled = self.pooled;
        let buffers = self.events.freeze(buffer.freeze(filled), |rewritten| {
            work.keep(rewritten, pooled, reservation)
        });
        self.send(&buffers, state, work);
    }

    /// Sends the events that lie in these buffers, or says where windows without events end.
    fn send(&mut self, buffers: &Buffers, state: &mut ConnectionState, work: &mut Work<'_>) {
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
        state: &ConnectionState,
        work: &mut Work<'_>,
    ) -> usize {
        if from == mark.events {
            work.parts.tell_held();
            work.parts.tell(part(None, mark, 0));
        }
        while from < mark.events {
            let (answer, awaited) = work.parts.answer(mark.window);
            let mut refused = 0;
            let stream = &work.session.stream;
            work.joiner
                .join((Encoding::Json, false), (), &answer, |builder| {
                    builder.stream(stream);
                    let range = from..mark.events;
                    (from, refused) = self.events.push(buffers, range, state.next, builder);
                });
            if refused > 0 {
                let what = "an event has an `@metadata._id` that is empty or longer than 512 bytes, and got another id";
                work.warn("refused_ids", refused, what);
            }
            let part = part(Some(awaited), mark, mark.events - from);
            work.parts.tell_or_hold(answer, part, mark.window);
        }
        from
    }
}

impl<'a> Compressed<'a> {
    /// What lies in one piece.
    fn lying(piece: &'a [u8]) -> Self {
        Self {
            piece,
            buffers: VecDeque::new(),
            used: 0,
        }
    }

    /// What is left, up to the end of its buffer; nothing at the end only.
    fn left(&self) -> &[u8] {
        match self.buffers.front() {
            Some(buffer) => &buffer.bytes()[self.used..],
            None => self.piece,
        }
    }

    /// Bytes were read. A buffer that was read to its end is given back.
    fn read(&mut self, bytes: usize) {
        match self.buffers.front() {
            None => self.piece = &self.piece[bytes..],
            Some(buffer) => {
                self.used += bytes;
                if self.used == buffer.bytes().len() {
                    self.buffers.pop_front();
                    self.used = 0;
                }
            }
        }
    }
}

impl Work<'_> {
    /// Sees to it that so many bytes are reserved for what is rewritten, before it is.
    fn reserve(&mut self, reservation: &mut Reservation, bytes: usize) {
        let missing = bytes.saturating_sub(reservation.left());
        if missing > 0 {
            self.joiner.grow(reservation, missing);
        }
    }

    /// What was rewritten, where it stays: the same memory if it is more than an ordinary buffer, and a copy otherwise.
    fn keep(
        &mut self,
        rewritten: &mut Vec<u8>,
        pooled: usize,
        reservation: &mut Reservation,
    ) -> Bytes {
        let len = rewritten.len();
        match len > pooled {
            true => reservation.adopt(std::mem::take(rewritten)).freeze(len),
            false => self.joiner.copy(reservation, rewritten).freeze(len),
        }
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

/// A part behind which `left` events stand before the mark.
fn part(awaited: Option<Awaited<Fault>>, mark: Mark, left: usize) -> WindowPart {
    WindowPart {
        awaited,
        version: mark.version,
        sequence: mark.sequence.wrapping_sub(left as u32),
        ends_window: mark.ends_window && left == 0,
    }
}

/// A copy beside what is reserved for rewritten documents.
fn copy(bytes: &[u8], reservation: &mut Reservation, work: &mut Work<'_>) -> PooledBuffer {
    let mut copy = take(bytes.len(), reservation, work);
    copy.copy_from_slice(bytes);
    copy
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

#[cfg(test)]
mod tests {
    use testkit::lumberjack::{compressed, json, window};

    use super::super::parts::{PARTS_MAX, PARTS_RESERVED};
    use super::super::probe::{beats, messages};
    use super::*;
    use crate::connections::batcher::probe::Bench;

    /// Documents that zlib makes little shorter.
    fn documents(count: u32) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(7);
        let document = |sequence| {
            let text: String = (0..300).map(|_| random.alphanumeric()).collect();
            json(sequence, format!(r#"{{"n":{sequence},"text":"{text}"}}"#))
        };
        (1..=count).flat_map(document).collect()
    }

    #[test]
    fn a_compressed_frame_may_lie_in_several_buffers() {
        // The buffers of the probe have 4 KiB.
        let (frames, begin) = (documents(150), window(b'2', 150));
        let content = compressed(b'2', &frames);
        assert!(content.len() > 30 << 10);
        let plain = beats(&[&begin[..], &frames].concat(), 1 << 20);
        assert_eq!((plain.events.len(), &plain.fault), (150, &None));
        for piece in [1000, 4 << 10, 1 << 20] {
            let frame = [&begin[..], &content].concat();
            assert_eq!(beats(&frame, piece), plain, "{piece}");
            // Twice on the same connection: the second one begins with a buffer of the pool.
            let twice = beats(&[&frame[..], &frame].concat(), piece);
            assert_eq!((twice.events.len(), twice.fault), (300, None));
        }
    }

    /// Nobody takes the parts here, as it is while a client reads nothing.
    #[test]
    fn few_parts_wait_however_many_buffers_a_message_takes() {
        let windows: u32 = 1 + WINDOWS_MAX as u32;
        let mut frames = [window(b'2', 3001), documents(3000)].concat();
        // The last event of the first window never comes.
        for _ in 2..windows {
            frames.extend([window(b'2', 2), documents(2)].concat());
        }
        let frame = compressed(b'2', &frames);
        let limits = Limits {
            frame_bytes_max: 16 << 20,
            window_events_max: 4096,
        };
        let decoded = Bench::run(|bench| {
            let (messages, ended) = messages(bench, &frame, 1 << 20, limits, 16 << 20);
            let [mut message] = <[_; 1]>::try_from(messages).ok().expect("one message");
            let mut parts = Vec::new();
            while let Ok(part) = message.parts.try_recv() {
                parts.push((part.sequence, part.ends_window));
            }
            let of_first = parts.len() - (windows as usize - 2);
            assert!((PARTS_RESERVED..=PARTS_MAX).contains(&parts.len()));
            assert!(parts[..of_first].is_sorted());
            assert_eq!(parts[of_first - 1], (3000, false));
            assert!(parts[of_first..].iter().all(|part| *part == (2, true)));
            ended
        });
        assert_eq!(decoded.events.len(), 3000 + 2 * (WINDOWS_MAX - 1));
        assert_eq!(decoded.fault, None);
    }

    #[test]
    fn plain_and_compressed_frames_take_turns() {
        let event = |n| json(n, format!(r#"{{"@metadata":{{"_id":"id{n}"}},"n":{n}}}"#));
        let mut frames = window(b'2', 20);
        for n in (1..=20).step_by(4) {
            frames.extend([event(n), event(n + 1)].concat());
            frames.extend(compressed(b'2', &event(n + 2)));
            frames.extend(compressed(b'2', &event(n + 3)));
        }
        for piece in [1, 100, 1 << 20] {
            let decoded = beats(&frames, piece);
            let expected = (1..=20).map(|n| format!(r#"id{n} {{"n":{n}}}"#));
            assert_eq!(decoded.events, expected.collect::<Vec<_>>());
            assert_eq!(decoded.fault, None);
        }
    }

    #[test]
    fn the_end_of_a_compressed_frame_in_several_buffers_is_checked() {
        let frames = [window(b'2', 150), documents(150)].concat();
        let content = &compressed(b'2', &frames)[6..];
        let framed = |content: &[u8]| {
            let length = (content.len() as u32).to_be_bytes();
            let frame = [b"2C", &length[..], content].concat();
            beats(&frame, 1 << 20)
        };
        for (content, reason) in [
            (&content[..content.len() - 5000], "ends unexpectedly"),
            (
                &[content, &[0; 5000]].concat(),
                "other data after the compressed data",
            ),
        ] {
            let fault = framed(content).fault.expect("refused");
            assert!(fault.contains(reason), "{fault}");
        }
    }
}
