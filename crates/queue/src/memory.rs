//! The memory queue: bounded in bytes and events, nothing survives the process.
//!
//! Invariants: what is counted as held is what was accepted and has not been passed by every output; a batch larger than
//! the limits is let in alone; nothing is accepted after [`MemoryQueue::close`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use batch::Batch;
use component::input::Issuer;
use component::{Delivery, Receipt, Sink, Stopped, receipt};
use tokio::sync::Notify;

/// How much a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of documents, with 32 bytes for each event.
    pub size_max: usize,
    /// Events.
    pub events_max: usize,
}

/// A queue in memory.
#[derive(Debug)]
pub struct MemoryQueue {
    limits: Limits,
    cursors: usize,
    state: Mutex<State>,
    /// Wakes workers: there is a batch, or there will be none.
    ready: Condvar,
    /// Wakes inputs: there is room.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    next_sequence: u64,
    held_size: usize,
    held_events: usize,
    closed: bool,
}

/// A batch with its place in the queue.
#[derive(Debug)]
pub struct Entry {
    /// Sequence number; the first is 0, none is left out.
    pub sequence: u64,
    /// The events.
    pub batch: Batch,
    /// To be passed by every output.
    pub ticket: Arc<Ticket>,
}

/// What a batch holds of the queue until every output has passed it.
#[derive(Debug)]
pub struct Ticket {
    queue: Arc<MemoryQueue>,
    size: usize,
    events: usize,
    cursors_behind: AtomicUsize,
    outcome: Mutex<(Option<Issuer>, Delivery)>,
}

impl MemoryQueue {
    /// An empty queue for so many outputs.
    pub fn new(limits: Limits, cursors: usize) -> Arc<Self> {
        Arc::new(Self {
            limits,
            cursors,
            state: Mutex::default(),
            ready: Condvar::new(),
            room: Notify::new(),
        })
    }

    /// The next batch in sequence, waiting until there is one; `None` when the queue is closed and empty.
    pub fn take(&self) -> Option<Entry> {
        let mut state = self.lock();
        loop {
            if let Some(entry) = state.waiting.pop_front() {
                return Some(entry);
            }
            if state.closed {
                return None;
            }
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts nothing more; what is held still leaves.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
        self.room.notify_waiters();
    }

    /// Closes the queue and forgets the batches that no worker has taken, because nobody wants them. Their receipts say
    /// that they were not delivered.
    pub fn forget(&self) {
        for entry in self.abandon() {
            self.give_back(&entry.ticket);
        }
    }

    /// Closes the queue and gives the batches that no worker has taken. They stay counted as held.
    pub fn abandon(&self) -> VecDeque<Entry> {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        self.ready.notify_all();
        self.room.notify_waiters();
        waiting
    }

    /// Events accepted and not yet passed by every output, and their bytes.
    pub fn held(&self) -> (usize, usize) {
        let state = self.lock();
        (state.held_events, state.held_size)
    }

    /// Takes the batch if there is room; `None` when the sender has to wait.
    fn accept(self: &Arc<Self>, waiting: &mut Option<Batch>) -> Option<Result<Receipt, Stopped>> {
        let mut state = self.lock();
        if state.closed {
            return Some(Err(Stopped));
        }
        let batch = waiting.take()?;
        let (size, events) = (batch.size(), batch.len());
        let fits = state.held_size + size <= self.limits.size_max
            && state.held_events + events <= self.limits.events_max;
        if !fits && state.held_events > 0 {
            *waiting = Some(batch);
            return None;
        }
        let (issuer, receipt) = receipt();
        let ticket = Ticket {
            queue: self.clone(),
            size,
            events,
            cursors_behind: AtomicUsize::new(self.cursors),
            outcome: Mutex::new((Some(issuer), Delivery::default())),
        };
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        state.held_size += size;
        state.held_events += events;
        state.waiting.push_back(Entry {
            sequence,
            batch,
            ticket: Arc::new(ticket),
        });
        drop(state);
        self.ready.notify_one();
        Some(Ok(receipt))
    }

    fn give_back(&self, ticket: &Ticket) {
        let mut state = self.lock();
        state.held_size -= ticket.size;
        state.held_events -= ticket.events;
        drop(state);
        self.room.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a queue that inputs send to.
#[derive(Debug, Clone)]
pub struct Inlet(pub Arc<MemoryQueue>);

#[async_trait]
impl Sink for Inlet {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        let mut waiting = Some(batch);
        loop {
            let room = self.0.room.notified();
            tokio::pin!(room);
            // Listening starts before looking, so that room made in between is not missed.
            room.as_mut().enable();
            if let Some(answer) = self.0.accept(&mut waiting) {
                return answer;
            }
            room.await;
        }
    }
}

impl Ticket {
    /// Says what became of the batch's rows, as far as processors decided it.
    pub fn account(&self, delivery: Delivery) {
        self.lock().1 = delivery;
    }

    /// What the queue counts for the batch, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The events of the batch.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Whether an input waits for the receipt, so that accounting is worth it.
    pub fn is_awaited(&self) -> bool {
        self.lock()
            .0
            .as_ref()
            .is_some_and(|issuer| !issuer.is_abandoned())
    }

    /// One output's cursor has passed. The last one gives the room back and resolves the receipt.
    pub fn pass(&self) {
        if self.cursors_behind.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (issuer, delivery) = {
            let mut outcome = self.lock();
            (outcome.0.take(), std::mem::take(&mut outcome.1))
        };
        if let Some(issuer) = issuer {
            issuer.resolve(delivery);
        }
        self.queue.give_back(self);
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Issuer>, Delivery)> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batch::{BatchBuilder, Encoding, HostInfo, Span, Stream};

    use super::*;

    fn batch(events: usize) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
        let buffer = builder.buffer(bytes::Bytes::from_static(b"0123456789"));
        builder.stream(&Arc::new(Stream { id: 1, path: None }));
        for row in 0..events as u64 {
            builder.push(
                Span {
                    buffer,
                    start: 0,
                    len: 10,
                },
                row,
                row + 1,
            );
        }
        builder.finish()
    }

    fn limits(events_max: usize) -> Limits {
        Limits {
            size_max: 1 << 20,
            events_max,
        }
    }

    #[tokio::test]
    async fn batches_leave_in_sequence_and_resolve_when_every_cursor_passed() {
        let queue = MemoryQueue::new(limits(100), 2);
        let receipt = Inlet(queue.clone())
            .send(batch(3))
            .await
            .expect("the queue is open");
        Inlet(queue.clone())
            .send(batch(1))
            .await
            .expect("the queue is open");
        let first = queue.take().expect("a batch waits");
        let second = queue.take().expect("a batch waits");
        assert_eq!((first.sequence, second.sequence), (0, 1));
        first.ticket.pass();
        assert_eq!(queue.held().0, 4);
        first.ticket.pass();
        assert_eq!(queue.held().0, 1);
        receipt.delivered().await.expect("both cursors passed");
    }

    #[tokio::test]
    async fn a_full_queue_makes_the_sender_wait() {
        let queue = MemoryQueue::new(limits(4), 1);
        Inlet(queue.clone())
            .send(batch(4))
            .await
            .expect("the queue is open");
        let sender = tokio::spawn({
            let queue = queue.clone();
            async move { Inlet(queue).send(batch(1)).await }
        });
        tokio::task::yield_now().await;
        assert!(!sender.is_finished());
        queue.take().expect("a batch waits").ticket.pass();
        assert!(sender.await.expect("no panic").is_ok());
    }

    #[tokio::test]
    async fn a_batch_beyond_the_limits_is_let_in_alone() {
        let queue = MemoryQueue::new(limits(4), 1);
        Inlet(queue.clone())
            .send(batch(9))
            .await
            .expect("an empty queue takes anything");
        assert_eq!(queue.held().0, 9);
    }

    #[tokio::test]
    async fn a_closed_queue_empties_and_takes_no_more() {
        let queue = MemoryQueue::new(limits(9), 1);
        Inlet(queue.clone())
            .send(batch(2))
            .await
            .expect("the queue is open");
        queue.close();
        assert_eq!(
            Inlet(queue.clone()).send(batch(1)).await.err(),
            Some(Stopped)
        );
        assert!(queue.take().is_some());
        assert!(queue.take().is_none());
    }

    #[tokio::test]
    async fn batches_that_leave_undelivered_tell_their_senders() {
        for (forget, held) in [(true, 0), (false, 2)] {
            let queue = MemoryQueue::new(limits(9), 1);
            let receipt = Inlet(queue.clone())
                .send(batch(2))
                .await
                .expect("the queue is open");
            if forget {
                queue.forget();
            } else {
                drop(queue.abandon());
            }
            assert_eq!(receipt.delivered().await.err(), Some(Stopped));
            assert_eq!(queue.held().0, held);
        }
    }
}
