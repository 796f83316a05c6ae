//! Objects on their way to the store: a task for each.
//!
//! A task sends the parts of its object one after the other, and repeats what fails until it works. Meanwhile [`Traffic::trouble`] says
//! why, which makes the engine report it and give the output nothing more. An object becomes visible only after [`Sending::complete`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use component::WriteError;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::store::{Parts, Store};

/// How many requests are in flight.
const REQUESTS_MAX: usize = 16;

/// How many bytes wait to be sent or are in flight, before nothing more is taken.
const QUEUED_MAX: usize = 64 << 20;

/// How many pieces of one object wait: more than those bytes are in parts, and the rest.
const PIECES_MAX: usize = 256;

/// The first pause after a failure; each one is twice as long as the one before, up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(15)];

/// All objects on their way.
#[derive(Clone)]
pub struct Traffic {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<Store>,
    queued: AtomicUsize,
    sent: AtomicU64,
    changed: Notify,
    requests: Semaphore,
    state: Mutex<TrafficState>,
}

#[derive(Default)]
struct TrafficState {
    next: u64,
    complete: Vec<u64>,
    troubles: BTreeMap<u64, WriteError>,
}

/// An object on its way. Dropped before it is complete, its parts are forgotten.
pub struct Sending {
    /// Its number.
    pub id: u64,
    shared: Arc<Shared>,
    pieces: mpsc::Sender<Piece>,
}

enum Piece {
    Part(Bytes),
    Last(Bytes),
}

impl Traffic {
    pub fn new(store: Arc<Store>) -> Self {
        let shared = Shared {
            store,
            queued: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            changed: Notify::new(),
            requests: Semaphore::new(REQUESTS_MAX),
            state: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Begins an object. To be called within a runtime.
    pub fn begin(&self, key: String) -> Sending {
        let id = {
            let mut state = self.shared.state.lock();
            state.next += 1;
            state.next
        };
        let (pieces, received) = mpsc::channel(PIECES_MAX);
        let shared = self.shared.clone();
        tokio::spawn(async move { Task { shared, id, key }.run(received).await });
        Sending {
            id,
            shared: self.shared.clone(),
            pieces,
        }
    }

    /// Whether more may be sent.
    pub fn has_room(&self) -> bool {
        self.shared.queued.load(Ordering::Acquire) < QUEUED_MAX
    }

    /// Waits until something has changed, for a while at most.
    pub async fn changed(&self) {
        let changed = self.shared.changed.notified();
        let _ = tokio::time::timeout(Duration::from_millis(20), changed).await;
    }

    /// Why something does not get to the store at the moment.
    pub fn trouble(&self) -> Option<WriteError> {
        self.shared.state.lock().troubles.values().next().cloned()
    }

    /// The numbers of objects that are complete, since the last call.
    pub fn take_complete(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.state.lock().complete)
    }

    /// Bytes that were sent since the last call.
    pub fn take_sent(&self) -> u64 {
        self.shared.sent.swap(0, Ordering::Relaxed)
    }
}

impl Sending {
    /// Sends a part of the object.
    pub fn part(&self, bytes: Bytes) {
        self.hand_on(Piece::Part(bytes));
    }

    /// Sends the rest, and makes the object visible.
    pub fn complete(&self, rest: Bytes) {
        self.hand_on(Piece::Last(rest));
    }

    fn hand_on(&self, piece: Piece) {
        let (Piece::Part(bytes) | Piece::Last(bytes)) = &piece;
        self.shared.queued.fetch_add(bytes.len(), Ordering::AcqRel);
        // The task has ended only where the output has failed for good.
        if let Err(TrySendError::Full(_)) = self.pieces.try_send(piece) {
            let reason = "internal error: too many parts of an object wait to be sent";
            let mut state = self.shared.state.lock();
            state
                .troubles
                .insert(self.id, WriteError::Fatal(reason.to_owned()));
        }
    }
}

struct Task {
    shared: Arc<Shared>,
    id: u64,
    key: String,
}

impl Task {
    async fn run(self, mut pieces: mpsc::Receiver<Piece>) {
        let mut parts = None;
        while let Some(piece) = pieces.recv().await {
            let is_last = matches!(piece, Piece::Last(_));
            let (Piece::Part(bytes) | Piece::Last(bytes)) = piece;
            let is_sent = match is_last && parts.is_none() {
                true => self.put(&bytes).await,
                false => self.send(&mut parts, &bytes, is_last).await,
            };
            self.shared.queued.fetch_sub(bytes.len(), Ordering::AcqRel);
            if !is_sent {
                return;
            }
            let bytes = bytes.len() as u64;
            self.shared.sent.fetch_add(bytes, Ordering::Relaxed);
            if is_last {
                self.shared.state.lock().complete.push(self.id);
            }
            self.shared.changed.notify_waiters();
            if is_last {
                return;
            }
        }
        if let Some(parts) = parts {
            self.shared.store.abort(&self.key, parts).await;
        }
    }

    /// Whether it was put; not where that will never work.
    async fn put(&self, bytes: &Bytes) -> bool {
        let mut pauses = Pauses::default();
        loop {
            let put = {
                let _permit = self.shared.requests.acquire().await;
                self.shared.store.put(&self.key, bytes.clone()).await
            };
            if let Some(outcome) = self.outcome(put, &mut pauses).await {
                return outcome;
            }
        }
    }

    async fn send(&self, parts: &mut Option<Parts>, bytes: &Bytes, is_last: bool) -> bool {
        let mut pauses = Pauses::default();
        let mut is_sent = bytes.is_empty();
        loop {
            let sent = {
                let _permit = self.shared.requests.acquire().await;
                self.try_send(parts, bytes, &mut is_sent, is_last).await
            };
            if let Some(outcome) = self.outcome(sent, &mut pauses).await {
                return outcome;
            }
        }
    }

    async fn try_send(
        &self,
        parts: &mut Option<Parts>,
        bytes: &Bytes,
        is_sent: &mut bool,
        is_last: bool,
    ) -> Result<(), WriteError> {
        let store = &self.shared.store;
        let parts = match parts {
            Some(parts) => parts,
            None => parts.insert(store.begin(&self.key).await?),
        };
        if !*is_sent {
            store.send(&self.key, parts, bytes).await?;
            *is_sent = true;
        }
        match is_last {
            true => store.complete(&self.key, parts).await,
            false => Ok(()),
        }
    }

    /// Whether it worked, or never will; nothing where it is to be tried again, after the pause.
    async fn outcome(&self, result: Result<(), WriteError>, pauses: &mut Pauses) -> Option<bool> {
        let Err(error) = result else {
            self.shared.state.lock().troubles.remove(&self.id);
            return Some(true);
        };
        let is_fatal = matches!(error, WriteError::Fatal(_));
        self.shared.state.lock().troubles.insert(self.id, error);
        self.shared.changed.notify_waiters();
        if is_fatal {
            return Some(false);
        }
        tokio::time::sleep(pauses.next()).await;
        None
    }
}

#[derive(Default)]
struct Pauses(Option<Duration>);

impl Pauses {
    fn next(&mut self) -> Duration {
        let [first, last] = PAUSES;
        let next = self.0.map_or(first, |before| (2 * before).min(last));
        self.0 = Some(next);
        next
    }
}
