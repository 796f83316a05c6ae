//! Connections without answers: TCP and stream sockets of Unix.
//!
//! A connection that is idle holds no memory of the budget: its next bytes are read into [`SMALL`] bytes of its own first. Then memory is
//! reserved, as much as the last reads needed, and what is there is read without waiting. Half a line that is longer than
//! [`KEPT_MAX`] stays charged, and the rest of it must come within `line_timeout`.
//!
//! A connection whose [`AHEAD_MAX`] last messages are not safe is not read on, nor is one that waits for memory: its client then
//! finds that it cannot write.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use batch::Stream;
use codec::Chunker;
use component::InputContext;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::SetOnce;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

use super::decode::{Decoding, Message};
use crate::connections::answer::{Awaited, answer};
use crate::connections::batcher::Inbox;
use crate::connections::closing::{Ending, Fault};

/// How many buffers of what has arrived are read at a stop. No system holds more for a connection.
const LAST_READS_MAX: usize = 64;

/// Bytes of a connection that are read before memory is reserved.
const SMALL: usize = 1024;

/// The smallest room to read into.
const ROOM_MIN: usize = 4 << 10;

/// How much larger the next buffer is where one was too small for what is there. Each buffer is a message of its own: where a client
/// begins with 50 KB, growing by half took seven of them.
const ROOM_GROWTH: usize = 4;

/// How much of half a record is kept without being charged.
const KEPT_MAX: usize = 4 << 10;

/// Messages of a connection that may be under way.
const AHEAD_MAX: usize = 16;

/// Limits on the time that a client may take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    /// Between messages; none where it may be silent for ever.
    pub(super) idle: Option<Duration>,
    /// For the rest of a record.
    pub(super) line: Duration,
}

/// Reads one connection.
pub(super) struct Conversation<R> {
    pub(super) io: R,
    pub(super) stream: Arc<Stream>,
    pub(super) chunker: Chunker,
    pub(super) inbox: Inbox<Decoding>,
    pub(super) ctx: InputContext,
    pub(super) patience: Patience,
    state: StreamState,
}

/// What a client writes.
pub(super) trait ClientBytes: AsyncRead + Unpin {
    /// Refuses what the client writes from now on, so that it knows; what it wrote before can be read to its end. Gives whether that can be
    /// done: with TCP it cannot, and what arrives too late is lost.
    fn refuse_more(&self) -> bool {
        false
    }
}

/// How far it is.
struct StreamState {
    /// How much room the next buffer has.
    room: usize,
    /// Messages under way.
    ahead: VecDeque<Awaited<Infallible>>,
    broken: Arc<SetOnce<String>>,
    /// When the record that has begun must be there.
    deadline: Option<Instant>,
    has_ended: bool,
}

impl<R: ClientBytes> Conversation<R> {
    pub(super) fn new(
        io: R,
        stream: Arc<Stream>,
        settings: &codec::Settings,
        inbox: Inbox<Decoding>,
        ctx: InputContext,
        patience: Patience,
    ) -> Self {
        Self {
            io,
            stream,
            chunker: Chunker::new(settings),
            inbox,
            ctx,
            patience,
            state: StreamState {
                room: ROOM_MIN,
                ahead: VecDeque::new(),
                broken: Arc::default(),
                deadline: None,
                has_ended: false,
            },
        }
    }

    /// Reads until the client has gone, is at fault, or `stop` completes, and waits until what was read is safe. What has arrived when
    /// `stop` completes is read first: the client cannot know that nobody would.
    pub(super) async fn read(mut self, stop: impl Future<Output = ()>) -> Ending {
        let mut stop = std::pin::pin!(stop);
        let ending = self.converse(stop.as_mut()).await;
        // The last record may lack its end.
        while let Some(chunk) = self.chunker.finish() {
            self.put(chunk);
        }
        for outcome in std::mem::take(&mut self.state.ahead) {
            // Nobody can be told what was not delivered.
            let _ = outcome.await;
        }
        // What came last may be at fault, such as half a document.
        let decoded = self.state.broken.get().map(String::as_str);
        match (ending, decoded.or(self.chunker.fault())) {
            (Ending::Usual, Some(reason)) => Fault::malformed(reason).into(),
            (ending, _) => ending,
        }
    }

    async fn converse(&mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Ending {
        let mut small = [0; SMALL];
        let mut is_first = true;
        // Reads after the stop; none before it.
        let mut last_reads = None;
        // Whether they come to an end.
        let mut is_refused = false;
        loop {
            let broken = self.state.broken.clone();
            if last_reads.is_none() && now_or_never(stop.as_mut()).await {
                (last_reads, is_refused) = (Some(0), self.io.refuse_more());
            }
            let read = match &mut last_reads {
                Some(LAST_READS_MAX) => return Ending::Usual,
                Some(count) if is_refused => {
                    *count += 1;
                    Some(self.wait(&mut small).await)
                }
                Some(count) => {
                    *count += 1;
                    tokio::select! {
                        biased;
                        read = self.wait(&mut small) => Some(read),
                        () = ready(()) => None,
                    }
                }
                None => tokio::select! {
                    biased;
                    read = self.wait(&mut small) => Some(read),
                    () = stop.as_mut() => {
                        (last_reads, is_refused) = (Some(0), self.io.refuse_more());
                        continue;
                    }
                    _ = broken.wait() => None,
                },
            };
            let read = match read {
                None | Some(Ok(0)) => return Ending::Usual,
                Some(Ok(read)) => read,
                Some(Err(ending)) => return ending,
            };
            if std::mem::take(&mut is_first)
                && let Some(fault) = Fault::tls(&small[..read])
            {
                return fault.into();
            }
            // From here to the next wait nothing is cancelled: what was read is not lost.
            if let Err(error) = self.fill(&small[..read]).await {
                return Fault::cut(&error).into();
            }
            while let Some(chunk) = self.chunker.take() {
                self.put(chunk);
            }
            // Why it is broken may be known only once it was decoded.
            if self.chunker.is_broken() || self.state.has_ended {
                return Ending::Usual;
            }
            self.rest();
            self.make_way().await;
        }
    }

    /// Waits for the next bytes.
    async fn wait(&mut self, small: &mut [u8]) -> Result<usize, Ending> {
        let idle = self.patience.idle.map(|idle| Instant::now() + idle);
        let read = self.io.read(small);
        let read = match self.state.deadline.or(idle) {
            Some(deadline) => match timeout_at(deadline, read).await {
                Ok(read) => read,
                Err(_) if self.state.deadline.is_some() => {
                    let reason = "the rest of a message did not arrive in time";
                    return Err(Fault::new("line_timeouts", reason).into());
                }
                Err(_) => return Err(Ending::Idle),
            },
            None => read.await,
        };
        read.map_err(|error| Fault::cut(&error).into())
    }

    /// How large a buffer is that has `least` bytes to begin with and room for `first` ones and what usually follows, as far as an
    /// ordinary buffer has it.
    fn sized(&self, least: usize, first: usize) -> usize {
        let (pool, room) = (&self.ctx.pool, self.state.room);
        let usual = match least + first <= room {
            // A size of which the pool keeps buffers.
            true => room.next_power_of_two(),
            // A record that is too long is known when it fills its buffer: that is no larger than needed.
            false => least + room,
        };
        let size = usual.min(pool.buffer_size()).max(least + first);
        match size > pool.buffer_size() / 2 {
            true => pool.reused_size(size).max(size),
            false => size,
        }
    }

    /// Takes the bytes that were read, and what else there is.
    async fn fill(&mut self, first: &[u8]) -> io::Result<()> {
        let mut given = 0;
        let mut total = 0;
        loop {
            if self.chunker.is_full() {
                while let Some(chunk) = self.chunker.take() {
                    self.put(chunk);
                }
                // There is more than usual.
                self.state.room = (self.state.room * ROOM_GROWTH).min(self.ctx.pool.buffer_size());
            }
            if let Some(least) = self.chunker.least() {
                let size = self.sized(least, first.len() - given);
                let _at_work = net::at_work();
                let _waiting = self.ctx.metrics.waiting();
                let mut reservation = self.ctx.pool.reserve(size).await;
                self.chunker.give(reservation.take(size));
            }
            let space = self.chunker.space();
            if given < first.len() {
                let bytes = space.len().min(first.len() - given);
                space[..bytes].copy_from_slice(&first[given..given + bytes]);
                given += bytes;
                total += bytes;
                self.ctx.metrics.bytes(bytes);
                self.chunker.advance(bytes);
                continue;
            }
            let read = tokio::select! {
                biased;
                read = self.io.read(space) => read?,
                // There is no more for now.
                () = ready(()) => break,
            };
            if read == 0 {
                self.state.has_ended = true;
                break;
            }
            total += read;
            self.ctx.metrics.bytes(read);
            self.chunker.advance(read);
            if total >= self.ctx.pool.buffer_size() {
                break;
            }
        }
        self.state.room = total.clamp(ROOM_MIN, self.ctx.pool.buffer_size());
        Ok(())
    }

    /// Gives back what is not needed while the client is silent, and sets the time for half a record.
    fn rest(&mut self) {
        let begun = self.chunker.unfinished();
        if begun <= KEPT_MAX {
            self.chunker.release();
        }
        self.state.deadline = match self.state.deadline {
            _ if begun <= KEPT_MAX => None,
            Some(deadline) => Some(deadline),
            None => Some(Instant::now() + self.patience.line),
        };
    }

    fn put(&mut self, chunk: codec::Chunk) {
        let (answer, outcome) = answer();
        let message = Message {
            stream: self.stream.clone(),
            chunk,
            broken: Some(self.state.broken.clone()),
        };
        self.inbox.put(message, answer);
        self.state.ahead.push_back(outcome);
        // A record came: the next one has its own time.
        self.state.deadline = None;
    }

    /// Forgets messages that are safe; waits while too many are not.
    async fn make_way(&mut self) {
        let ahead = &mut self.state.ahead;
        loop {
            let is_ahead = ahead.len() > AHEAD_MAX;
            let Some(first) = ahead.front_mut() else {
                return;
            };
            if is_ahead {
                // Nobody can be told what was not delivered.
                let _ = first.await;
            } else if first.try_recv() == Err(TryRecvError::Empty) {
                return;
            }
            ahead.pop_front();
        }
    }
}

/// Whether a future is complete already.
async fn now_or_never(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    tokio::select! {
        biased;
        () = future => true,
        () = ready(()) => false,
    }
}

#[cfg(test)]
mod tests {
    use batch::{Budget, Encoding};
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::connections::batcher::Batcher;
    use crate::connections::testing::reading_context;

    impl ClientBytes for tokio::io::DuplexStream {}

    #[tokio::test]
    async fn what_is_there_comes_in_few_buffers_of_sizes_that_are_used_again() {
        let pool = Budget::new(16 << 20).pool(0, 256 << 10);
        let ctx = reading_context(pool);
        let settings = codec::Settings::new(Encoding::Text, 1 << 20);
        let batcher = Batcher::start_ordered(&ctx, || Decoding::new(&settings, &ctx));
        let batcher = batcher.expect("threads");
        let (ours, mut client) = duplex(1 << 20);
        let stream = Arc::new(Stream::unnamed(1));
        let (inbox, patience) = (batcher.inboxes()(0), Patience::default());
        let mut conversation = Conversation::new(ours, stream, &settings, inbox, ctx, patience);
        let line = [&[b'x'; 199][..], b"\n"].concat();
        // Rounds with so many lines: 50 KB, twice, then 10 KB and 200 bytes.
        for (lines, messages, room) in [
            (250, 3, 50_000),
            (250, 1, 50_000),
            (50, 1, 10_000),
            (1, 1, 4096),
        ] {
            client
                .write_all(&line.repeat(lines))
                .await
                .expect("written");
            let mut small = [0; SMALL];
            let read = conversation.wait(&mut small).await.expect("it is there");
            conversation
                .fill(&small[..read])
                .await
                .expect("it is there");
            while let Some(chunk) = conversation.chunker.take() {
                conversation.put(chunk);
            }
            let ahead = std::mem::take(&mut conversation.state.ahead).len();
            assert_eq!(
                (ahead, conversation.state.room),
                (messages, room),
                "{lines}"
            );
            conversation.rest();
            let size = conversation.sized(0, SMALL);
            assert!(size.is_power_of_two() && size >= room, "{size}");
        }
        assert_eq!(conversation.sized(66 << 10, SMALL), (66 << 10) + ROOM_MIN);
        batcher.finish().await;
    }
}
