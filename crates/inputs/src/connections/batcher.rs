//! Joins the messages of many connections into batches.
//!
//! Messages that are read whole go into one list, in the order in which they came. A few threads, none of them one of the
//! reactor, take them from there, decode them and send batches, because sending to a disk queue compresses and sums. A
//! batch leaves when it is full, or [`AGE_MAX`] after its first event came. Each message hears what became of it when the
//! receipts of all its batches are there.
//!
//! Where the order of a connection's messages matters, each thread has a list of its own ([`Batcher::start_ordered`]), and
//! all messages of a connection go to the same one.
//!
//! The list has no limit of its own: each message in it is one that a connection waits for, and is charged to the memory
//! budget. One whose connection does not wait any more is not taken.
//!
//! Reading a bulk body of `elasticsearch` on the thread that received it, while it is in that processor's cache, was tried: the
//! documents take as long to validate there, and the system's share grows by 0.1 us an event.
//!
//! A message whose decoding panics fails alone: its connection is told so, the input warns, and the thread goes on. Where
//! events of it are in the batch already, the batch is given up, because nobody knows what is in it, and the others that
//! have events there hear that they were not delivered.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Batch, BatchBuilder, Encoding, PooledBuffer, Reservation};
use codec::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use component::thread::{self, Work};
use component::{Delivery, InputContext, Limit};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;

use super::answer::{Answer, MessagePart};
use crate::error::RunError;
use crate::reading::emitter::now;

/// How long an event waits for others to go with it.
const AGE_MAX: Duration = Duration::from_millis(5);

/// How many threads decode at most.
const THREADS_MAX: usize = 4;

/// How an input's messages become events.
pub(crate) trait Protocol: Send + 'static {
    /// A message that was read whole.
    type Message: Send + 'static;
    /// What the batch keeps of a message until it is complete.
    type Mark: Send;
    /// Why a message is refused.
    type Reason: Send + 'static;

    /// Adds the events of a message to batches.
    fn add(
        &mut self,
        message: Self::Message,
        answer: Answer<Self::Reason>,
        joiner: &mut Joiner<Self::Mark, Self::Reason>,
    );

    /// What completes a batch whose rows come from messages with given marks.
    fn completion(&self) -> Completion<Self::Mark>;
}

/// Completes a batch whose rows come from messages with these marks.
pub(crate) type Completion<M> = Box<dyn FnMut(&mut Batch, &[(Range<usize>, M)]) + Send>;

/// Takes messages and sends batches.
pub(crate) struct Batcher<P: Protocol> {
    /// One for all threads, or one for each.
    lists: Arc<[Arc<List<P>>]>,
    threads: Vec<Work<()>>,
}

struct List<P: Protocol> {
    state: Mutex<Waiting<P>>,
    changed: Condvar,
}

struct Waiting<P: Protocol> {
    messages: VecDeque<(P::Message, Answer<P::Reason>)>,
    is_closed: bool,
}

/// Where connections leave their messages.
pub(crate) struct Inbox<P: Protocol>(Arc<List<P>>);

impl<P: Protocol> Batcher<P> {
    /// Starts the threads, each with a protocol of its own. Messages are taken in any order.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(ctx: &InputContext, protocol: impl FnMut() -> P) -> Result<Self, RunError> {
        Self::start_with(1, ctx, protocol)
    }

    /// As [`Self::start`], but the messages of each inbox are taken in the order in which they came.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start_ordered(
        ctx: &InputContext,
        protocol: impl FnMut() -> P,
    ) -> Result<Self, RunError> {
        Self::start_with(thread_count(), ctx, protocol)
    }

    fn start_with(
        lists: usize,
        ctx: &InputContext,
        mut protocol: impl FnMut() -> P,
    ) -> Result<Self, RunError> {
        // Before its threads: where one is refused, dropping it ends those that run.
        let mut batcher = Self {
            lists: (0..lists).map(|_| Arc::new(List::new())).collect(),
            threads: Vec::new(),
        };
        for number in 0..thread_count() {
            let (ctx, protocol) = (ctx.clone(), protocol());
            let list = batcher.lists[number % lists].clone();
            let thread = thread::start("batcher", move || run(&list, ctx, protocol));
            batcher
                .threads
                .push(thread.map_err(RunError::BatcherThread)?);
        }
        Ok(batcher)
    }

    fn close(&self) {
        self.lists.iter().for_each(|list| list.close());
    }

    /// Gives where the messages of connection `number` go.
    pub(crate) fn inboxes(&self) -> impl Fn(u64) -> Inbox<P> + Send + Sync + use<P> {
        let lists = self.lists.clone();
        move |number| Inbox(lists[number as usize % lists.len()].clone())
    }

    /// Where messages go that may be taken in any order.
    pub(crate) fn inbox(&self) -> Inbox<P> {
        Inbox(self.lists[0].clone())
    }

    /// Waits until every message has been sent on.
    pub(crate) async fn finish(mut self) {
        self.close();
        for thread in std::mem::take(&mut self.threads) {
            if let Err(panic) = thread.ended().await {
                resume_unwind(panic);
            }
        }
    }
}

impl<P: Protocol> Drop for Batcher<P> {
    fn drop(&mut self) {
        self.close();
    }
}

/// How many threads decode.
fn thread_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(THREADS_MAX)
}

impl<P: Protocol> Clone for Inbox<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Protocol> Inbox<P> {
    /// Leaves a message. When everything has ended, its answer is dropped, which says that it was not delivered.
    pub(crate) fn put(&self, message: P::Message, answer: Answer<P::Reason>) {
        answer.is_awaited();
        let mut state = self.0.lock();
        if !state.is_closed {
            state.messages.push_back((message, answer));
            drop(state);
            self.0.changed.notify_one();
        }
    }
}

impl<P: Protocol> List<P> {
    fn new() -> Self {
        Self {
            state: Mutex::new(Waiting {
                messages: VecDeque::new(),
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// The next message; none when the list is closed, or at `until`.
    fn next(&self, until: Option<Instant>) -> Next<P> {
        let mut state = self.lock();
        loop {
            if let Some((message, answer)) = state.messages.pop_front() {
                return Next::Message(message, answer);
            }
            if state.is_closed {
                return Next::End;
            }
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Next::Late;
                    }
                    self.changed.wait_for(&mut state, left);
                }
            }
        }
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<P>> {
        self.state.lock()
    }
}

enum Next<P: Protocol> {
    Message(P::Message, Answer<P::Reason>),
    /// None came in time.
    Late,
    End,
}

/// A thread of the batcher.
fn run<P: Protocol>(list: &List<P>, ctx: InputContext, mut protocol: P) {
    let mut joiner = Joiner::new(ctx, protocol.completion());
    loop {
        let until = joiner.builder.is_some().then(|| joiner.began + AGE_MAX);
        match list.next(until) {
            Next::Message(_, answer) if answer.is_abandoned() => {
                joiner.ctx.metrics.count("abandoned_messages", 1);
            }
            Next::Message(message, answer) => {
                let start = Instant::now();
                joiner.waited = Duration::ZERO;
                take(&mut protocol, message, answer, &mut joiner);
                let busy = start.elapsed().saturating_sub(joiner.waited);
                joiner.ctx.metrics.busy(busy);
                if joiner.began.elapsed() >= AGE_MAX {
                    joiner.leave();
                }
            }
            Next::Late => joiner.leave(),
            Next::End => return joiner.leave(),
        }
    }
}

/// Takes a message. One that makes its decoder panic fails alone.
fn take<P: Protocol>(
    protocol: &mut P,
    message: P::Message,
    answer: Answer<P::Reason>,
    joiner: &mut Joiner<P::Mark, P::Reason>,
) {
    let fault = answer.fault();
    let joined = joiner.joined;
    let added = catch_unwind(AssertUnwindSafe(|| protocol.add(message, answer, joiner)));
    if let Err(panic) = added {
        if joiner.joined != joined {
            joiner.give_up();
        }
        fault.panicked();
        joiner.ctx.metrics.count("panics", 1);
        let warning = || {
            let text = text(&*panic);
            format!(
                "a request failed, because decoding it panicked: {text}; this is a bug in Millpond"
            )
        };
        let limit = Limit::events("panics");
        joiner.ctx.diagnostics.warn_limited(limit, warning);
    }
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown reason")
}

/// The batch that is being joined.
pub(crate) struct Joiner<M, R> {
    pub(crate) ctx: InputContext,
    builder: Option<(Encoding, BatchBuilder)>,
    /// When the first event of the batch came.
    began: Instant,
    marks: Vec<(Range<usize>, M)>,
    parts: Vec<MessagePart<R>>,
    complete: Completion<M>,
    /// How many parts were ever added.
    joined: u64,
    /// Time spent waiting since the last message came.
    waited: Duration,
}

impl<M, R: Send + 'static> Joiner<M, R> {
    fn new(ctx: InputContext, complete: Completion<M>) -> Self {
        Self {
            ctx,
            builder: None,
            began: Instant::now(),
            marks: Vec::new(),
            parts: Vec::new(),
            complete,
            joined: 0,
            waited: Duration::ZERO,
        }
    }

    /// Adds a part of a message: `push` adds rows to the batch.
    pub(crate) fn join(
        &mut self,
        kind: (Encoding, bool),
        mark: M,
        answer: &Answer<R>,
        push: impl FnOnce(&mut BatchBuilder),
    ) {
        self.join_with(kind, answer, |builder| {
            push(builder);
            mark
        });
    }

    /// Adds a part of a message: `push` adds rows to the batch, and gives their mark.
    pub(crate) fn join_with(
        &mut self,
        kind: (Encoding, bool),
        answer: &Answer<R>,
        push: impl FnOnce(&mut BatchBuilder) -> M,
    ) {
        self.extend_with(kind, answer, |builder, _| Some(push(builder)));
    }

    /// As [`Self::join_with`], but `push` is given the mark of the rows before, and gives none where that is the mark of the rows
    /// that it added too.
    pub(crate) fn extend_with(
        &mut self,
        (encoding, add_fields): (Encoding, bool),
        answer: &Answer<R>,
        push: impl FnOnce(&mut BatchBuilder, Option<&mut M>) -> Option<M>,
    ) {
        if self.builder.as_ref().is_some_and(|(of, _)| *of != encoding) {
            self.flush();
        }
        self.joined += 1;
        if self.builder.is_none() {
            self.began = Instant::now();
        }
        let host = &self.ctx.host;
        let new = || {
            (
                encoding,
                BatchBuilder::new(encoding, host, now(), add_fields),
            )
        };
        let (_, builder) = self.builder.get_or_insert_with(new);
        let before = builder.len();
        let last = self.marks.last_mut().map(|(_, mark)| mark);
        match (push(builder, last), self.marks.last_mut()) {
            (None, Some((rows, _))) => rows.end = builder.len(),
            (mark, _) => {
                let rows = before..builder.len();
                self.marks.extend(mark.map(|mark| (rows, mark)));
            }
        }
        if !self.parts.last().is_some_and(|part| part.is_of(answer)) {
            self.parts.push(answer.part());
        }
        if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
            self.flush();
        }
    }

    /// Reserves more memory for a message. Where that takes waiting, the batch so far leaves first: it may be what others
    /// wait for.
    pub(crate) fn grow(&mut self, reservation: &mut Reservation, more: usize) {
        if !reservation.try_grow(more) {
            self.flush();
            let start = Instant::now();
            let _waiting = self.ctx.metrics.waiting();
            reservation.grow_blocking(more);
            self.waited += start.elapsed();
        }
    }

    /// A copy of bytes in memory that is reserved for it, as far as that is not reserved already.
    pub(crate) fn copy(&mut self, reservation: &mut Reservation, bytes: &[u8]) -> PooledBuffer {
        let missing = bytes.len().saturating_sub(reservation.left());
        if missing > 0 {
            self.grow(reservation, missing);
        }
        let mut copy = reservation.take(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// Forgets the batch. Whoever has events in it hears that they were not delivered.
    fn give_up(&mut self) {
        self.builder = None;
        self.marks.clear();
        self.parts.clear();
    }

    /// Sends the batch. Where completing it panics, it is given up, and the input warns.
    fn leave(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.flush())) {
            self.ctx.metrics.count("panics", 1);
            let warning = || {
                let text = text(&*panic);
                format!(
                    "events were reported as not delivered, because processing their batch panicked: {text}; this is a bug in Millpond"
                )
            };
            let limit = Limit::events("panics");
            self.ctx.diagnostics.warn_limited(limit, warning);
        }
    }

    /// Sends the batch, waiting while the queue is full.
    pub(crate) fn flush(&mut self) {
        let Some((_, builder)) = self.builder.take() else {
            return;
        };
        let (marks, parts) = (
            std::mem::take(&mut self.marks),
            std::mem::take(&mut self.parts),
        );
        if builder.is_empty() {
            return parts.into_iter().for_each(MessagePart::delivered);
        }
        let mut batch = builder.finish();
        (self.complete)(&mut batch, &marks);
        // Dropped, the parts say that they were not delivered.
        let start = Instant::now();
        let sent = self.ctx.send_blocking(batch);
        self.waited += start.elapsed();
        let Ok(receipt) = sent else {
            return;
        };
        Handle::current().spawn(async move {
            if let Ok(delivery) = receipt.delivered().await
                && is_whole(&delivery)
            {
                parts.into_iter().for_each(MessagePart::delivered);
            }
        });
    }
}

/// Whether something answers for every row: none was left because the pipeline was finished.
fn is_whole(delivery: &Delivery) -> bool {
    delivery.streams.iter().all(|stream| stream.cut.is_none())
}

pub(crate) mod probe;
#[cfg(test)]
mod tests;
