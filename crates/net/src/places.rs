//! The places of a listener's clients, and who leaves where all are taken.
//!
//! A listener has places for `max_connections` clients. Where all are taken and another client comes, the one that has been
//! silent longest is told to leave in its favour, if it
//! - sent nothing since it connected, [`FIRST_BYTE`] ago or more, which comes first, or
//! - sent something, and nothing for [`SILENCE`].
//!
//! A client that waits for us ([`at_work`]) is not silent, whatever it sends. Where nobody can leave, the other client waits.
//!
//! Clients are looked through every [`LOOK_AGAIN`] at most, so that a flood of them costs little.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SetOnce, watch};
use tokio::time::sleep;

use crate::notice::Notice;

/// How long a client may take for its first byte while others wait.
const FIRST_BYTE: Duration = Duration::from_secs(1);

/// How long a client may be silent while others wait. Agents that send regularly do so every ten seconds or more often.
const SILENCE: Duration = Duration::from_secs(15);

/// How often clients are looked through.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long a stop goes on letting a connection settle on which bytes keep coming.
const SETTLE_MAX: Duration = Duration::from_millis(100);

/// Lets the event loop look at all sockets once. What arrived on one that was accepted a moment ago can only be read then: a read before it
/// finds nothing, and whoever stops at that would throw it away. A timer runs out only after a look; the look of the first one may
/// have begun before.
async fn settle() {
    for _ in 0..2 {
        sleep(Duration::from_millis(1)).await;
    }
}

tokio::task_local! {
    /// The client of the connection that a task is for.
    static CLIENT: Arc<Client>;
}

/// That the client of this task's connection waits for us: for memory, or for its events to be safe. Until it is dropped, the
/// client is not silent. None where a task is for no connection.
pub fn at_work() -> Option<AtWork> {
    CLIENT.try_with(|client| AtWork::begin(client.clone())).ok()
}

/// That a client waits for us.
#[derive(Debug)]
pub struct AtWork(Arc<Client>);

impl AtWork {
    fn begin(client: Arc<Client>) -> Self {
        client.at_work.fetch_add(1, Ordering::Relaxed);
        Self(client)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Its answer may come only now.
        self.0.heard();
        self.0.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of a client.
#[derive(Debug)]
struct Client {
    begun: Instant,
    /// Milliseconds from then to the last byte that came; 0 where none did.
    heard_ms: AtomicU64,
    /// What it waits for.
    at_work: AtomicU32,
    /// It has left its place.
    is_gone: AtomicBool,
    /// Why it is to leave, and since when.
    leave: SetOnce<(Reason, Instant)>,
}

/// Why a client is to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Stop,
    Another,
}

impl Client {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            heard_ms: AtomicU64::new(0),
            at_work: AtomicU32::new(0),
            is_gone: AtomicBool::new(false),
            leave: SetOnce::new(),
        }
    }

    /// Says that bytes came just now.
    fn heard(&self) {
        let elapsed_ms = self.begun.elapsed().as_millis() as u64;
        self.heard_ms.store(elapsed_ms.max(1), Ordering::Relaxed);
    }

    /// How long it has been silent, where that is long enough to leave for another one; those that never sent anything are
    /// greater.
    fn silence(&self, now: Instant) -> Option<(bool, Duration)> {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        let heard = self.begun + Duration::from_millis(heard_ms);
        let silence = now.saturating_duration_since(heard);
        let is_new = heard_ms == 0;
        let is_long = silence >= if is_new { FIRST_BYTE } else { SILENCE };
        let may_leave = is_long
            && self.at_work.load(Ordering::Relaxed) == 0
            && !self.is_gone.load(Ordering::Relaxed)
            && !self.leave.initialized();
        may_leave.then_some((is_new, silence))
    }

    fn leave(&self, reason: Reason) {
        // The first reason counts.
        let _ = self.leave.set((reason, Instant::now()));
    }
}

/// Tells a connection when to stop: because its input does, or because another client needs its place. The loop waits until all of
/// them are dropped.
#[derive(Debug, Clone)]
pub struct Stopping {
    client: Arc<Client>,
    has_settled: bool,
    _open: watch::Receiver<()>,
}

impl Stopping {
    /// Waits until it is time to stop, and the event loop knows of everything that arrived before. Safe to cancel, and completes again
    /// when asked again.
    pub async fn begun(&mut self) {
        let (reason, since) = *self.client.leave.wait().await;
        let is_urgent = reason == Reason::Another || since.elapsed() > SETTLE_MAX;
        if !self.has_settled && !is_urgent {
            settle().await;
        }
        self.has_settled = true;
    }

    /// Whether it is time to stop.
    pub fn has_begun(&self) -> bool {
        self.client.leave.initialized()
    }

    /// Whether that is because the client was silent and another one needs its place: nobody waits for an answer.
    pub fn is_for_another(&self) -> bool {
        matches!(self.client.leave.get(), Some((Reason::Another, _)))
    }

    /// Completes as the future does, in which [`at_work`] is about this client.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CLIENT.scope(self.client.clone(), future)
    }
}

/// The place of a client, which is free when this is dropped.
#[derive(Debug)]
pub struct ClientPermit {
    client: Arc<Client>,
    open: watch::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

impl ClientPermit {
    /// When the client is to leave.
    pub fn stopping(&self) -> Stopping {
        Stopping {
            client: self.client.clone(),
            has_settled: false,
            _open: self.open.clone(),
        }
    }

    /// Says that the client did something other than sending.
    pub(crate) fn heard(&self) {
        self.client.heard();
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.client.is_gone.store(true, Ordering::Relaxed);
    }
}

/// The places of a listener.
pub struct Places {
    permits: Arc<Semaphore>,
    clients: Vec<Arc<Client>>,
    /// Clients that were silent at the last look; the last one leaves next.
    silent: Vec<Arc<Client>>,
    looked: Option<Instant>,
    open: watch::Sender<()>,
}

impl Places {
    /// Places for so many clients, at least one.
    pub fn new(max_connections: usize) -> Self {
        let count = max_connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(count)),
            clients: Vec::new(),
            silent: Vec::new(),
            looked: None,
            open: watch::Sender::new(()),
        }
    }

    /// A place for a client that has come, once there is one.
    pub async fn take(&mut self, notice: &impl Fn(Notice<'_>)) -> ClientPermit {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.make_room(notice).await,
        };
        if self.clients.len() == self.clients.capacity() {
            let is_there = |client: &Arc<Client>| !client.is_gone.load(Ordering::Relaxed);
            self.clients.retain(is_there);
        }
        let client = Arc::new(Client::new());
        self.clients.push(client.clone());
        ClientPermit {
            client,
            open: self.open.subscribe(),
            _permit: permit,
        }
    }

    async fn make_room(&mut self, notice: &impl Fn(Notice<'_>)) -> OwnedSemaphorePermit {
        let mut said_full = false;
        loop {
            if !self.dismiss(Instant::now()) && !said_full {
                notice(Notice::Full);
                said_full = true;
            }
            tokio::select! {
                permit = self.permits.clone().acquire_owned() => match permit {
                    Ok(permit) => return permit,
                    // Nobody closes the semaphore.
                    Err(_) => std::future::pending().await,
                },
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Tells the client that has been silent longest to leave, if one may; gives whether one does.
    fn dismiss(&mut self, now: Instant) -> bool {
        let since = self.looked.map(|looked| now.duration_since(looked));
        if since.is_none_or(|since| since >= LOOK_AGAIN) {
            self.looked = Some(now);
            let silent = |client: &Arc<Client>| Some((client.silence(now)?, client.clone()));
            let mut silent: Vec<_> = self.clients.iter().filter_map(silent).collect();
            silent.sort_unstable_by_key(|(silence, _)| *silence);
            self.silent = silent.into_iter().map(|(_, client)| client).collect();
        }
        while let Some(client) = self.silent.pop() {
            if client.silence(now).is_some() {
                client.leave(Reason::Another);
                return true;
            }
        }
        false
    }

    /// Tells every client to leave, and waits until the last one has left.
    pub async fn close(self) {
        self.clear();
        self.open.closed().await;
    }

    fn clear(&self) {
        for client in &self.clients {
            client.leave(Reason::Stop);
        }
    }
}

/// Connections do not outlive what accepts them.
impl Drop for Places {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The bytes of a client, which has a place while this is there.
pub struct Watched<S> {
    stream: S,
    place: ClientPermit,
}

impl<S> Watched<S> {
    /// The bytes of the client with this place.
    pub fn new(stream: S, place: ClientPermit) -> Self {
        Self { stream, place }
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Whose it is.
    pub fn place(&self) -> &ClientPermit {
        &self.place
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.remaining() < before {
            self.place.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment so many seconds from now.
    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    async fn taken(places: &mut Places, count: usize) -> Vec<ClientPermit> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(places.take(&|_| {}).await);
        }
        taken
    }

    fn left(taken: &[ClientPermit]) -> Vec<bool> {
        let stopping = taken.iter().map(ClientPermit::stopping);
        stopping.map(|stopping| stopping.is_for_another()).collect()
    }

    #[tokio::test]
    async fn those_that_sent_nothing_leave_first_and_then_the_longest_silent() {
        let mut places = Places::new(4);
        let taken = taken(&mut places, 4).await;
        taken[0].heard();
        sleep(Duration::from_millis(20)).await;
        taken[1].heard();
        assert!(!places.dismiss(after(0)), "all of them just came");
        for expected in [
            [false, false, true, false],
            [false, false, true, true],
            [true, false, true, true],
            [true, true, true, true],
        ] {
            assert!(places.dismiss(after(20)));
            assert_eq!(left(&taken), expected);
        }
        assert!(!places.dismiss(after(21)), "they leave already");
    }

    #[tokio::test]
    async fn one_that_sends_regularly_or_waits_for_us_stays() {
        let mut places = Places::new(3);
        let mut taken = taken(&mut places, 3).await;
        taken.iter().for_each(ClientPermit::heard);
        assert!(!places.dismiss(after(10)), "silent for ten seconds");
        let waiting = taken[0].stopping();
        let at_work = waiting.scope(async { at_work() }).await;
        let Some(at_work) = at_work else {
            panic!("it is the task of a connection");
        };
        drop(taken.pop());
        assert!(places.dismiss(after(20)));
        assert_eq!(left(&taken), [false, true], "one waits, one has gone");
        assert!(!places.dismiss(after(30)));
        drop(at_work);
        assert!(places.dismiss(after(40)));
        assert_eq!(left(&taken), [true, true]);
        assert!(super::at_work().is_none(), "a task for no connection");
    }

    #[tokio::test]
    async fn a_place_is_free_when_one_has_left_and_closing_waits_for_all() {
        let mut places = Places::new(2);
        for _ in 0..100 {
            drop(places.take(&|_| {}).await);
        }
        assert!(places.clients.len() < 10, "those that left are forgotten");
        let place = places.take(&|_| {}).await;
        let mut stopping = place.stopping();
        drop(place);
        let closing = tokio::spawn(places.close());
        stopping.begun().await;
        assert!(stopping.has_begun() && !stopping.is_for_another());
        sleep(Duration::from_millis(10)).await;
        assert!(!closing.is_finished());
        drop(stopping);
        closing.await.expect("no panic");
    }
}
