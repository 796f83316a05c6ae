//! Reading frames from a connection into memory of the budget.
//!
//! An [`Intake`] reads ahead by [`AHEAD_BYTES`], which are not charged: enough for heads, for small frames and for waiting
//! without holding memory. They are freed while the client is silent. Frames go into a [`Load`], which reserves memory before
//! it is filled and follows what comes, not what a head announces: it begins with [`FIRST_BYTES`] and doubles, in sizes of which the pool
//! keeps buffers. A connection whose last load was large begins with a buffer that
//! has room for as much, so that a steady flow of large frames moves nothing and touches no fresh memory. A frame that may be
//! divided anywhere, such as a compressed one, takes several buffers of the pool instead ([`Intake::load_divided`]), and so may
//! others that can be divided at certain places ([`Intake::divide`]).
//!
//! The wait for the first byte of a frame ends after the idle time-out, that for the others after the frame time-out, in
//! which waits for memory do not count, or earlier where others wait for the memory that it holds. Everything is safe to
//! cancel, but what was read of a frame is lost then.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use batch::{BufferPool, PooledBuffer, Reservation};
use bytes::Bytes;
use component::InputContext;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, timeout_at};

use super::closing::{Ending, Fault};

/// How much is read ahead.
pub(crate) const AHEAD_BYTES: usize = 8 << 10;

/// What a load begins with.
const FIRST_BYTES: usize = 16 << 10;

/// How long a client that holds memory may send nothing while others wait for it.
pub(crate) const STALLED: Duration = Duration::from_secs(5);

/// How long others must have waited.
const HELD_UP: Duration = Duration::from_secs(1);

/// Reads a connection.
pub(crate) struct Intake<R> {
    io: R,
    ctx: InputContext,
    idle_timeout: Duration,
    frame_timeout: Duration,
    /// Bytes that were read ahead, and how many of them are used.
    ahead: Vec<u8>,
    used: usize,
    /// When the frame must be there.
    deadline: Instant,
    /// How large the last load was.
    last: usize,
}

/// Bytes of frames that were read, in charged memory.
pub(crate) struct Load {
    reservation: Reservation,
    /// Those of a divided frame that lie before the last one.
    before: Vec<Filled>,
    last: Filled,
}

/// A buffer, and how much of it is filled.
pub(crate) struct Filled {
    buffer: PooledBuffer,
    filled: usize,
}

/// A place in a load: so many buffers lie before it, and so many bytes of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadPosition {
    pub(crate) buffers: usize,
    pub(crate) bytes: usize,
}

/// A load that was read whole.
pub(crate) struct Loaded {
    /// The buffers of a divided frame that lie before the last one; none where there is only one.
    pub(crate) before: Vec<Filled>,
    pub(crate) last: Filled,
    /// In which it may be decompressed.
    pub(crate) reservation: Reservation,
}

impl<R: AsyncRead + Unpin> Intake<R> {
    pub(crate) fn new(
        io: R,
        ctx: InputContext,
        idle_timeout: Duration,
        frame_timeout: Duration,
    ) -> Self {
        Self {
            io,
            ctx,
            idle_timeout,
            frame_timeout,
            ahead: Vec::new(),
            used: 0,
            deadline: Instant::now(),
            last: 0,
        }
    }

    /// How long a client may be silent.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// What was read ahead and is not used.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead[self.used..]
    }

    /// Uses bytes that were read ahead.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.ahead.len());
        if self.used == self.ahead.len() {
            self.ahead.clear();
            self.used = 0;
        }
    }

    /// Waits for the first byte of a frame; gives whether there is one, or the client has closed its side. The time for the
    /// frame begins.
    pub(crate) async fn begin(&mut self) -> Result<bool, Ending> {
        self.begin_by(Instant::now() + self.idle_timeout).await
    }

    /// As [`Self::begin`], where the idle time ends at `until`. If it does, this can be called again.
    pub(crate) async fn begin_by(&mut self, until: Instant) -> Result<bool, Ending> {
        if self.ahead().is_empty() {
            let filled = timeout_at(until, poll_fn(|cx| self.poll_fill(cx))).await;
            let filled = filled.map_err(|_| Ending::Idle)?;
            if filled.map_err(|error| Fault::cut(&error))? == 0 {
                return Ok(false);
            }
        }
        self.renew();
        Ok(true)
    }

    /// Begins the time for a frame.
    pub(crate) fn renew(&mut self) {
        self.deadline = Instant::now() + self.frame_timeout;
    }

    /// Waits until at least `bytes` of a frame are read ahead, which are [`AHEAD_BYTES`] at most.
    pub(crate) async fn need(&mut self, bytes: usize) -> Result<&[u8], Fault> {
        debug_assert!(bytes <= AHEAD_BYTES, "more than is read ahead: {bytes}");
        while self.ahead().len() < bytes {
            let filled = timeout_at(self.deadline, poll_fn(|cx| self.poll_fill(cx))).await;
            whole(filled)?;
        }
        Ok(self.ahead())
    }

    /// Reads more ahead if it is there already; gives whether it was.
    pub(crate) async fn top_up(&mut self) -> bool {
        poll_fn(|cx| {
            let filled = match self.ahead().len() < AHEAD_BYTES {
                true => self.poll_fill(cx),
                false => Poll::Pending,
            };
            // An end or an error comes again with the next read.
            Poll::Ready(matches!(filled, Poll::Ready(Ok(1..))))
        })
        .await
    }

    /// Reserves memory for a frame, or several, of which `bytes` are known to come. Waits for it without holding any.
    pub(crate) async fn reserve(&mut self, bytes: usize) -> Load {
        let pool = self.ctx.pool.clone();
        let first = match self.last > FIRST_BYTES {
            true => pool.fitting(self.last),
            false => bytes.clamp(1, FIRST_BYTES),
        };
        let mut reservation = self.for_memory(pool.reserve(first)).await;
        let buffer = reservation.take(first);
        Load {
            reservation,
            before: Vec::new(),
            last: Filled { buffer, filled: 0 },
        }
    }

    /// Reads more into a load that what was read ahead is in: at least `least` bytes, and up to `most` if they are there.
    pub(crate) async fn load_more(
        &mut self,
        load: &mut Load,
        least: usize,
        most: usize,
    ) -> Result<(), Fault> {
        let begin = load.last.filled;
        while load.last.filled < begin + least {
            let missing = begin + least - load.last.filled;
            if load.last.room() == 0 {
                self.grow(load, missing).await;
            }
            let (room, deadline) = (begin + most - load.last.filled, self.deadline);
            let pool = load.reservation.pool();
            let read = poll_fn(|cx| self.poll_load(load, room, cx));
            load.last.filled += arrived(read, deadline, &pool).await?;
        }
        self.last = load.most();
        Ok(())
    }

    /// Reads up to `most` bytes more into a load if some are there already; gives whether there were.
    pub(crate) async fn load_ready(&mut self, load: &mut Load, most: usize) -> bool {
        if load.last.room() == 0 {
            self.grow(load, most).await;
        }
        let read = poll_fn(|cx| {
            // An end or an error comes again with the next read.
            Poll::Ready(match self.poll_load(load, most, cx) {
                Poll::Ready(Ok(read)) => read,
                _ => 0,
            })
        });
        let read = read.await;
        load.last.filled += read;
        self.last = load.most();
        read > 0
    }

    /// Takes what lies behind the first `at` bytes of the last buffer of a load as the beginning of the next one, for which the time begins. None
    /// where there is no memory for that at the moment.
    pub(crate) fn split(&mut self, load: &mut Load, at: usize) -> Option<Load> {
        let pool = &self.ctx.pool;
        let rest = &load.bytes()[at..];
        let least = rest.len().max(FIRST_BYTES);
        let most = load
            .before
            .iter()
            .map(Filled::len)
            .max()
            .unwrap_or(0)
            .max(at);
        let usual = if most > pool.buffer_size() / 2 {
            least.max(pool.reused_size(most))
        } else {
            least
        };
        let reserved = pool.try_reserve(usual).map(|done| (done, usual));
        let reserved = reserved.or_else(|| Some((pool.try_reserve(least)?, least)));
        let (mut reservation, size) = reserved?;
        let mut buffer = reservation.take(size);
        buffer[..rest.len()].copy_from_slice(rest);
        let filled = rest.len();
        (load.last.filled, self.last) = (at, most);
        self.renew();
        Some(Load {
            reservation,
            before: Vec::new(),
            last: Filled { buffer, filled },
        })
    }

    /// Keeps what lies behind the first `at` bytes of a load as read ahead, where it is little enough; gives whether it was.
    pub(crate) fn unread(&mut self, load: &mut Load, at: usize) -> bool {
        let rest = &load.bytes()[at..];
        let fits = self.ahead().is_empty() && rest.len() <= AHEAD_BYTES;
        if fits {
            self.ahead.clear();
            self.ahead.extend_from_slice(rest);
            (self.used, load.last.filled) = (0, at);
        }
        fits
    }

    /// Reads into the room of a load, up to `most` bytes; gives how many there were.
    fn poll_load(
        &mut self,
        load: &mut Load,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = most.min(load.last.room());
        let mut space = ReadBuf::new(load.last.space(room));
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut space))?;
        Poll::Ready(Ok(space.filled().len()))
    }

    /// Reads exactly `bytes` more into a load.
    pub(crate) async fn load(&mut self, load: &mut Load, bytes: usize) -> Result<(), Fault> {
        let mut left = bytes;
        while left > 0 {
            if load.last.room() == 0 {
                self.grow(load, left).await;
            }
            left -= self.read(&mut load.last, left).await?;
        }
        self.last = load.last.filled;
        Ok(())
    }

    /// As [`Self::load`], for a frame that may be divided anywhere: what does not fit into a buffer of the pool lies in
    /// further ones.
    pub(crate) async fn load_divided(
        &mut self,
        load: &mut Load,
        bytes: usize,
    ) -> Result<(), Fault> {
        let pooled = self.ctx.pool.buffer_size();
        let size = load.last.buffer.len().max(pooled);
        let mut left = bytes;
        let begins = left.min(size.saturating_sub(load.last.filled));
        self.load(load, begins).await?;
        left -= begins;
        while left > 0 {
            if load.last.room() == 0 {
                self.divide(load, load.len(), pooled).await;
            }
            left -= self.read(&mut load.last, left).await?;
        }
        self.last = self.last.min(pooled);
        Ok(())
    }

    /// Ends the last buffer of a load behind `at` bytes: what lies behind is moved to a new one, which has room for `size` bytes or
    /// as many as the largest buffer of the pool.
    pub(crate) async fn divide(&mut self, load: &mut Load, at: usize, size: usize) {
        // After a buffer that is larger than those, more may lie behind.
        let size = self.ctx.pool.reused_size(size).max(load.len() - at);
        self.for_memory(load.reservation.grow(size)).await;
        let mut buffer = load.reservation.take(size);
        let rest = &load.bytes()[at..];
        buffer[..rest.len()].copy_from_slice(rest);
        let filled = rest.len();
        load.last.filled = at;
        let next = Filled { buffer, filled };
        load.before.push(std::mem::replace(&mut load.last, next));
    }

    /// How much more the last buffer of a load can take without becoming larger than the largest of the pool.
    pub(crate) fn room(&self, load: &Load) -> usize {
        let largest = self.ctx.pool.largest_size();
        load.last.buffer.len().max(largest) - load.last.filled
    }

    /// Reads up to `most` bytes of a frame into the room of a buffer: one at least, or more ahead.
    async fn read(&mut self, into: &mut Filled, most: usize) -> Result<usize, Fault> {
        let room = most.min(into.room());
        if self.ahead().is_empty() && room < AHEAD_BYTES {
            let (deadline, pool) = (self.deadline, self.ctx.pool.clone());
            arrived(poll_fn(|cx| self.poll_fill(cx)), deadline, &pool).await?;
        }
        let space = into.space(room);
        let ahead = &self.ahead[self.used..];
        let read = if ahead.is_empty() {
            let io = &mut self.io;
            let mut space = ReadBuf::new(space);
            let read = poll_fn(|cx| {
                ready!(Pin::new(&mut *io).poll_read(cx, &mut space))?;
                Poll::Ready(Ok(space.filled().len()))
            });
            arrived(read, self.deadline, &self.ctx.pool).await?
        } else {
            let read = room.min(ahead.len());
            space[..read].copy_from_slice(&ahead[..read]);
            self.skip(read);
            read
        };
        into.filled += read;
        Ok(read)
    }

    /// Makes room for some of `more` bytes.
    async fn grow(&mut self, load: &mut Load, more: usize) {
        let last = &mut load.last;
        // Twice what came, in sizes that are kept for the next load: what is announced may never come.
        let filled = last.filled;
        let size = (filled + more).min((2 * filled).max(FIRST_BYTES));
        let more = self.ctx.pool.fitting(size).max(filled + 1) - filled;
        self.for_memory(load.reservation.grow(more)).await;
        load.reservation.extend(&mut last.buffer, more);
    }

    /// Waits for memory, which is not the client's time.
    async fn for_memory<T>(&mut self, memory: impl Future<Output = T>) -> T {
        let begin = Instant::now();
        let _at_work = net::at_work();
        let _waiting = self.ctx.metrics.waiting();
        let memory = memory.await;
        self.deadline += begin.elapsed();
        memory
    }

    /// Reads ahead; gives how many bytes there were.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); AHEAD_BYTES];
        let mut space = ReadBuf::uninit(&mut space[..AHEAD_BYTES - self.ahead().len()]);
        let read = Pin::new(&mut self.io).poll_read(cx, &mut space);
        if self.ahead.is_empty() && read.is_pending() {
            // Thousands of clients may be silent.
            self.ahead = Vec::new();
        }
        ready!(read)?;
        self.ahead.drain(..self.used);
        self.used = 0;
        self.ahead.extend_from_slice(space.filled());
        Poll::Ready(Ok(space.filled().len()))
    }
}

/// How many bytes were read in the middle of a frame: at least one. The wait ends before the deadline where the client sends
/// nothing for [`STALLED`] while others wait for the memory of half-read frames.
async fn arrived(
    read: impl Future<Output = io::Result<usize>>,
    deadline: Instant,
    pool: &BufferPool,
) -> Result<usize, Fault> {
    let mut read = pin!(read);
    loop {
        let until = deadline.min(Instant::now() + STALLED);
        let read = timeout_at(until, &mut read).await;
        if read.is_err() && until < deadline {
            if !is_held_up(pool) {
                continue;
            }
            let reason =
                "the client stopped in the middle of a frame while others waited for memory";
            return Err(Fault::new("frame_timeouts", reason));
        }
        return whole(read);
    }
}

/// Whether clients wait for memory that half-read frames of others hold.
pub(crate) fn is_held_up(pool: &BufferPool) -> bool {
    let shortage = pool.shortage();
    shortage.is_some_and(|shortage| shortage.longest >= HELD_UP && shortage.is_of_half_read())
}

/// What was read in the middle of a frame: at least a byte.
fn whole(read: Result<io::Result<usize>, tokio::time::error::Elapsed>) -> Result<usize, Fault> {
    let cut = "the connection ended in the middle of a frame";
    match read {
        Ok(Ok(0)) => Err(Fault::new("cut_connections", cut)),
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(Fault::cut(&error)),
        Err(_) => {
            let reason = "a frame did not arrive in time";
            Err(Fault::new("frame_timeouts", reason))
        }
    }
}

impl Load {
    /// What was read; of a divided frame, what lies in its last buffer.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.last.bytes()
    }

    /// Forgets what lies behind a place.
    pub(crate) fn truncate(&mut self, to: LoadPosition) {
        self.before.truncate(to.buffers + 1);
        if self.before.len() > to.buffers
            && let Some(last) = self.before.pop()
        {
            self.last = last;
        }
        self.last.filled = self.last.filled.min(to.bytes);
    }

    /// The place behind the first `bytes` of the last buffer.
    pub(crate) fn place(&self, bytes: usize) -> LoadPosition {
        let buffers = self.before.len();
        LoadPosition { buffers, bytes }
    }

    /// How many bytes are in the buffer in which most are.
    fn most(&self) -> usize {
        let before = self.before.iter().map(Filled::len).max();
        before.unwrap_or(0).max(self.len())
    }

    /// How many bytes [`Self::bytes`] are.
    pub(crate) fn len(&self) -> usize {
        self.last.filled
    }

    /// Whether a frame is divided.
    pub(crate) fn is_divided(&self) -> bool {
        !self.before.is_empty()
    }

    /// Ends reading.
    pub(crate) fn finish(mut self) -> Loaded {
        // Others may wait for what it holds.
        self.reservation.settle();
        Loaded {
            before: self.before,
            last: self.last,
            reservation: self.reservation,
        }
    }
}

impl Filled {
    /// What it is filled with.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    fn len(&self) -> usize {
        self.filled
    }

    /// Ends writing; what is not filled may be given back.
    pub(crate) fn freeze(self) -> Bytes {
        self.buffer.freeze_fitting(self.filled)
    }

    /// The buffer, and how much of it is filled.
    pub(crate) fn into_parts(self) -> (PooledBuffer, usize) {
        (self.buffer, self.filled)
    }

    fn room(&self) -> usize {
        self.buffer.len() - self.filled
    }

    /// The first `bytes` behind what is filled.
    fn space(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.buffer[self.filled..self.filled + bytes]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::Budget;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::connections::testing::reading_context;

    const POOLED: usize = 64 << 10;

    fn intake(budget: &Arc<Budget>, timeout_ms: u64) -> (Intake<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(4 << 20);
        let pool = budget.pool(0, POOLED);
        let ctx = reading_context(pool);
        let timeout = Duration::from_millis(timeout_ms);
        (Intake::new(ours, ctx, timeout, timeout), theirs)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|place| (place % 251) as u8).collect()
    }

    #[tokio::test]
    async fn frames_of_any_size_come_whole() {
        let budget = Budget::new(16 << 20);
        for len in [
            0,
            1,
            700,
            AHEAD_BYTES,
            FIRST_BYTES + 1,
            POOLED,
            5 * POOLED + 3,
        ] {
            let (mut intake, mut client) = intake(&budget, 20_000);
            let sent = [&bytes(len)[..], b"next"].concat();
            client.write_all(&sent).await.expect("written");
            assert_eq!(intake.begin().await, Ok(true));
            for _ in 0..2 {
                let mut load = intake.reserve(len).await;
                intake.load(&mut load, len).await.expect("it comes");
                assert_eq!((load.len(), load.bytes()), (len, &sent[..len]), "{len}");
                let loaded = load.finish();
                drop(loaded.reservation);
                assert!(budget.used() >= len && budget.used() <= 2 * len + POOLED);
                drop(loaded.last);
                assert_eq!(budget.used(), 0, "{len}");
                assert_eq!(intake.need(4).await.expect("it comes")[..4], *b"next");
                intake.skip(4);
                // The second one begins with a buffer of the pool, where the first was large.
                client.write_all(&sent).await.expect("written");
                assert_eq!(intake.begin().await, Ok(true));
            }
        }
    }

    #[tokio::test]
    async fn a_frame_that_may_be_divided_takes_buffers_of_the_pool_only() {
        let budget = Budget::new(16 << 20);
        let (mut intake, mut client) = intake(&budget, 20_000);
        for len in [10, POOLED, POOLED + 1, 5 * POOLED + 3, 700, 3 * POOLED] {
            let sent = bytes(len);
            client.write_all(&sent).await.expect("written");
            client.write_all(b"next").await.expect("written");
            assert_eq!(intake.begin().await, Ok(true));
            let mut load = intake.reserve(len).await;
            intake.load(&mut load, 6).await.expect("it comes");
            let divided = intake.load_divided(&mut load, len - 6).await;
            divided.expect("it comes");
            assert_eq!(load.is_divided(), len > POOLED);
            let Loaded { before, last, .. } = load.finish();
            let sizes = before.iter().chain([&last]).map(|one| one.buffer.len());
            assert!(sizes.max() <= Some(POOLED), "{len}");
            assert!(budget.used() <= len.div_ceil(POOLED) * POOLED, "{len}");
            let came = before.iter().chain([&last]).map(Filled::bytes);
            assert_eq!(came.collect::<Vec<_>>().concat(), sent);
            assert_eq!(intake.need(4).await.expect("it comes")[..4], *b"next");
            intake.skip(4);
            drop((before, last));
            assert_eq!(budget.used(), 0, "{len}");
        }
    }

    #[tokio::test]
    async fn a_client_that_announces_much_and_sends_little_takes_little() {
        let budget = Budget::new(16 << 20);
        let (mut intake, mut client) = intake(&budget, 20_000);
        let mut load = intake.reserve(1 << 30).await;
        assert_eq!(budget.used(), FIRST_BYTES);
        client.write_all(&bytes(11)).await.expect("written");
        assert_eq!(intake.begin().await, Ok(true));
        for sent in [0, 20_000] {
            client.write_all(&bytes(sent)).await.expect("written");
            let all = intake.load(&mut load, 1 << 30);
            let read = timeout_at(Instant::now() + Duration::from_millis(50), all).await;
            assert!(read.is_err(), "it goes on");
            assert!(
                budget.used() <= 2 * load.len().max(FIRST_BYTES),
                "{}",
                budget.used()
            );
        }
    }

    #[tokio::test]
    async fn what_is_there_already_is_read_without_waiting() {
        let budget = Budget::new(1 << 20);
        let (mut intake, mut client) = intake(&budget, 20_000);
        assert!(!intake.top_up().await);
        client.write_all(b"ab").await.expect("written");
        assert_eq!(intake.begin().await, Ok(true));
        assert_eq!(intake.ahead(), b"ab");
        client.write_all(b"cd").await.expect("written");
        assert!(intake.top_up().await);
        intake.skip(1);
        assert_eq!(intake.ahead(), b"bcd");
        assert!(!intake.top_up().await);
    }

    #[tokio::test]
    async fn a_load_takes_what_is_there_already() {
        let budget = Budget::new(1 << 20);
        let (mut intake, mut client) = intake(&budget, 20_000);
        client.write_all(b"ab").await.expect("written");
        assert_eq!(intake.begin().await, Ok(true));
        let mut load = intake.reserve(2).await;
        intake.load(&mut load, 2).await.expect("it is there");
        assert!(!intake.load_ready(&mut load, 100).await);
        client.write_all(b"cdefgh").await.expect("written");
        intake
            .load_more(&mut load, 2, 4)
            .await
            .expect("it is there");
        assert_eq!(load.bytes(), b"abcdef");
        assert!(intake.load_ready(&mut load, 100).await);
        assert_eq!(load.bytes(), b"abcdefgh");
    }

    #[tokio::test]
    async fn what_belongs_to_the_next_load_is_taken_off() {
        let budget = Budget::new(1 << 20);
        let (mut intake, mut client) = intake(&budget, 20_000);
        for len in [10, 3 * POOLED] {
            let sent = bytes(len);
            client.write_all(&sent).await.expect("written");
            let mut load = intake.reserve(0).await;
            intake.load_more(&mut load, len, len).await.expect("there");
            let rest = intake.split(&mut load, len - 7).expect("there is memory");
            assert_eq!(
                (load.bytes(), rest.bytes()),
                (&sent[..len - 7], &sent[len - 7..])
            );
            // No memory: only a little can be kept.
            let taken = intake.ctx.pool.take_sized((1 << 20) - budget.used());
            assert!(intake.split(&mut load, len - 9).is_none());
            assert!(intake.unread(&mut load, len - 9));
            assert_eq!(intake.ahead(), &sent[len - 9..len - 7]);
            assert!(!intake.unread(&mut load, 1), "something is kept already");
            intake.skip(2);
            assert_eq!(intake.unread(&mut load, 0), len <= AHEAD_BYTES);
            intake.skip(AHEAD_BYTES);
            drop((taken, load, rest));
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn an_end_and_a_silence_are_told_apart() {
        let budget = Budget::new(1 << 20);
        let (mut silent, mut client) = intake(&budget, 20);
        assert_eq!(silent.begin().await, Err(Ending::Idle));
        client.write_all(b"ab").await.expect("written");
        assert_eq!(silent.begin().await, Ok(true));
        let late = silent.need(3).await.map(<[u8]>::to_vec);
        assert_eq!(late.expect_err("late").counter, "frame_timeouts");
        drop(client);
        let cut = silent.need(3).await.map(<[u8]>::to_vec);
        assert_eq!(cut.expect_err("cut").counter, "cut_connections");
        let mut load = silent.reserve(3).await;
        let cut = silent.load(&mut load, 3).await;
        assert_eq!(cut.expect_err("cut").counter, "cut_connections");
        assert_eq!(silent.begin().await, Ok(false));
    }
}
