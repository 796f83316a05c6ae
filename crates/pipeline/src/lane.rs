//! One output at work.
//!
//! Workers offer every batch to every lane. A lane that keeps up takes it already encoded, so that rendering uses all
//! cores; one that lags keeps the batch and encodes it later, so that it holds nobody up. The lane's own thread writes:
//! in sequence where the output asks for it, again after a pause where a write failed, and passes the batch's ticket when
//! its rows are safe.
//!
//! Bounds: at most [`Lane::encoded_max`] encoded batches wait; batches that wait without being encoded are counted by the
//! queue, whose limits bound them. The queue numbers the batches of each output: every turn must be offered exactly once.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use batch::{Batch, Bitmap};
use component::{Diagnostics, Encoded, OperatorMetrics, Output, Stop, WriteError, Written};
use expr::Expr;
use queue::{Limits, Queue, Ticket};
use tokio::sync::Notify;

use crate::graph::OutputNode;
use crate::settings::RetrySettings;
use crate::stage::report_expression_errors;

/// How long an output may be idle before it is flushed.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// The part of the queue that may wait for a flush before one is forced. The rest keeps the workers busy meanwhile.
const UNFLUSHED_PART: usize = 4;

/// One output of a pipeline.
pub struct Lane {
    name: String,
    /// The output's number in the queue.
    index: usize,
    queue: Arc<Queue>,
    output: Arc<dyn Output>,
    ordered: bool,
    condition: Option<Expr>,
    encoded_max: usize,
    unflushed_max: Limits,
    retry: RetrySettings,
    metrics: Arc<OperatorMetrics>,
    diagnostics: Diagnostics,
    state: Mutex<State>,
    /// Wakes the lane's thread.
    offered: Notify,
    /// The reader is gone: what is offered passes unwritten.
    gone: AtomicBool,
    /// Asked to end at once: retries end.
    pub(crate) abort: Stop,
    /// Asked not to wait for what fails: the queue keeps it.
    leave: Stop,
    /// It did so, and takes nothing more.
    left: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// What the lanes of a pipeline have in common.
pub struct Shared {
    /// Number of workers: how many encoded batches may wait follows from it.
    pub workers: usize,
    /// The queue's limits.
    pub limits: Limits,
    /// How failed writes are repeated.
    pub retry: RetrySettings,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// Where batches come from.
    pub queue: Arc<Queue>,
    /// Asks the lanes to end at once.
    pub abort: Stop,
    /// Asks the lanes not to wait for what fails: the queue keeps it.
    pub leave: Stop,
}

#[derive(Default)]
struct State {
    /// `None` stands for a batch that was lost to an internal error.
    items: BTreeMap<u64, Option<Item>>,
    next: u64,
    /// Encoded batches that wait or are being written.
    encoded: usize,
    spare: Vec<Encoded>,
    closed: bool,
}

/// A batch offered to a lane.
struct Item {
    batch: Arc<Batch>,
    rows: Bitmap,
    ticket: Arc<Ticket>,
    encoded: Option<Encoded>,
}

/// How a write ended.
enum Outcome {
    Done(Written),
    /// The reader is gone.
    Gone,
    /// Given up, with the reason.
    Failed(String),
    /// Left to the queue.
    Left,
    /// Lost to an internal error.
    Lost,
}

impl Lane {
    /// A lane for an output.
    pub fn new(index: usize, node: OutputNode, shared: &Shared) -> Arc<Self> {
        Arc::new(Self {
            name: node.name,
            index,
            queue: shared.queue.clone(),
            output: node.component,
            ordered: node.ordered,
            condition: node.condition,
            encoded_max: 2 * shared.workers,
            unflushed_max: Limits {
                size_max: shared.limits.size_max / UNFLUSHED_PART,
                events_max: shared.limits.events_max / UNFLUSHED_PART,
            },
            retry: shared.retry,
            metrics: Arc::default(),
            diagnostics: shared.diagnostics.clone(),
            state: Mutex::default(),
            offered: Notify::new(),
            gone: AtomicBool::new(false),
            abort: shared.abort.clone(),
            leave: shared.leave.clone(),
            left: AtomicBool::new(false),
            failure: Mutex::default(),
        })
    }

    /// The output's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The output's counters.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.metrics
    }

    /// Whether the reader is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Why the output gave up.
    pub fn failure(&self) -> Option<String> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether another encoded batch may wait, or whatever is offered is let go.
    pub fn has_room(&self) -> bool {
        self.lock().encoded < self.encoded_max || self.is_gone() || self.takes_nothing()
    }

    /// Whether it gave up or left: what is offered goes without being passed, so that nobody takes it for delivered.
    fn takes_nothing(&self) -> bool {
        self.left.load(Ordering::SeqCst) || self.failure().is_some()
    }

    fn pass(&self, ticket: &Ticket) {
        ticket.pass(self.index);
    }

    /// Offers a processed batch. Called once for every turn.
    pub fn offer(&self, turn: u64, batch: &Arc<Batch>, ticket: &Arc<Ticket>) {
        let rows = self.rows(batch);
        let mut item = Item {
            batch: batch.clone(),
            rows,
            ticket: ticket.clone(),
            encoded: None,
        };
        if !item.rows.is_empty() && !self.is_gone() {
            let spare = {
                let mut state = self.lock();
                let room = state.encoded < self.encoded_max;
                state.encoded += usize::from(room);
                room.then(|| state.spare.pop().unwrap_or_default())
            };
            if let Some(spare) = spare {
                item.encoded = self.encode(&item, spare);
                if item.encoded.is_none() {
                    self.give_back(Some(Encoded::default()));
                    return self.skip(turn);
                }
            }
        }
        self.lock().items.insert(turn, Some(item));
        self.offered.notify_one();
    }

    /// Goes on without a batch that was lost, unless it was offered before that.
    pub fn skip(&self, turn: u64) {
        let mut state = self.lock();
        if turn >= state.next {
            state.items.entry(turn).or_insert(None);
        }
        drop(state);
        self.offered.notify_one();
    }

    /// No batch will be offered any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.offered.notify_one();
    }

    fn rows(&self, batch: &Batch) -> Bitmap {
        let Some(condition) = &self.condition else {
            return batch.alive().clone();
        };
        let filtered = condition.filter(batch, batch.alive());
        report_expression_errors(
            &self.metrics,
            &self.diagnostics,
            &self.name,
            batch,
            filtered.errors,
            filtered.first_error,
        );
        filtered.holds
    }

    /// Renders a batch; `None` when that ended in a panic, which loses the batch and nothing else.
    fn encode(&self, item: &Item, mut encoded: Encoded) -> Option<Encoded> {
        let begin = Instant::now();
        encoded.clear();
        let render = || self.output.encode(&item.batch, &item.rows, &mut encoded);
        let rendered = catch_unwind(AssertUnwindSafe(render));
        self.metrics.busy(begin.elapsed());
        if rendered.is_err() {
            let name = &self.name;
            self.diagnostics.warn(&format!(
                "output {name}: internal error; a batch is lost and counted as not delivered"
            ));
            return None;
        }
        Some(encoded)
    }

    /// Writes what is offered until the lane is closed and empty, then closes the output. `ended` is called when the
    /// lane wants no more.
    pub async fn run(&self, ended: &(dyn Fn() + Sync)) {
        let mut unflushed = Unflushed::default();
        loop {
            let waiting = (!unflushed.tickets.is_empty()).then_some(FLUSH_AFTER);
            match self.next(waiting).await {
                Next::Item(item) => self.deliver(item, &mut unflushed).await,
                Next::Idle => self.flush(&mut unflushed).await,
                Next::End => break,
            }
            self.report();
            if self.is_gone() || self.failure().is_some() {
                ended();
                self.queue.wake_workers();
            }
            if unflushed.reaches(self.unflushed_max) {
                self.flush(&mut unflushed).await;
            }
        }
        let output = &self.output;
        let closing = self.attempt(|| output.close()).await;
        self.settle_flush(closing, &mut unflushed);
        self.report();
    }

    /// Passes on what the output counted and what it has to say.
    fn report(&self) {
        for (name, count) in self.output.take_counters() {
            self.metrics.count(name, count);
        }
        for warning in self.output.take_warnings() {
            self.diagnostics
                .warn(&format!("output {}: {warning}", self.name));
        }
    }

    async fn next(&self, wait: Option<Duration>) -> Next {
        loop {
            {
                let mut state = self.lock();
                let first = state.items.first_key_value().map(|(turn, _)| *turn);
                if let Some(turn) = first.filter(|&turn| !self.ordered || turn == state.next) {
                    state.next = turn + 1;
                    match state.items.remove(&turn) {
                        Some(Some(item)) => return Next::Item(item),
                        _ => continue,
                    }
                }
                if state.closed && state.items.is_empty() {
                    return Next::End;
                }
            }
            match wait {
                None => self.offered.notified().await,
                Some(wait) => {
                    if tokio::time::timeout(wait, self.offered.notified())
                        .await
                        .is_err()
                    {
                        return Next::Idle;
                    }
                }
            }
        }
    }

    async fn deliver(&self, mut item: Item, unflushed: &mut Unflushed) {
        if item.rows.is_empty() || self.is_gone() {
            self.give_back(item.encoded.take());
            return self.pass(&item.ticket);
        }
        if self.takes_nothing() {
            // Not delivered: the ticket goes without being passed, so the queue still counts the events.
            return self.give_back(item.encoded.take());
        }
        let counted = item.encoded.is_some();
        let ready = item.encoded.take();
        let Some(mut encoded) = ready.or_else(|| self.encode(&item, Encoded::default())) else {
            return;
        };
        // Counted before writing: rows that are repeated are encoded again on their own.
        let (rows, bytes) = (encoded.rows, encoded.bytes.len());
        let refused = std::mem::take(&mut encoded.refused);
        let outcome = self.write(&mut item, &mut encoded).await;
        match outcome {
            Outcome::Done(written) => {
                self.metrics
                    .events(rows, rows.saturating_sub(written.refused.len()));
                self.metrics.bytes(bytes);
                self.refuse(&refused);
                self.refuse(&written.refused);
                if written.until_flush {
                    unflushed.push(&item.ticket);
                } else {
                    self.pass(&item.ticket);
                }
            }
            Outcome::Gone => {
                self.gone.store(true, Ordering::SeqCst);
                self.pass(&item.ticket);
            }
            Outcome::Failed(reason) => self.fail(reason),
            Outcome::Left => self.left.store(true, Ordering::SeqCst),
            Outcome::Lost => {}
        }
        self.give_back(counted.then_some(encoded));
    }

    /// Writes a batch; rows that are to be repeated are encoded again on their own.
    async fn write(&self, item: &mut Item, encoded: &mut Encoded) -> Outcome {
        let mut refused = Vec::new();
        let mut pause = self.pause();
        loop {
            let output = &self.output;
            let mut written = match self.attempt(|| output.write(encoded)).await {
                Outcome::Done(written) => written,
                other => return other,
            };
            refused.append(&mut written.refused);
            if written.retry.is_empty() {
                written.refused = refused;
                return Outcome::Done(written);
            }
            item.rows = Bitmap::none(item.batch.len());
            written.retry.iter().for_each(|&row| item.rows.insert(row));
            if let Err(ended) = self.wait(&mut pause, "rows were refused for now").await {
                return ended;
            }
            match self.encode(item, std::mem::take(encoded)) {
                Some(again) => *encoded = again,
                None => return Outcome::Lost,
            }
        }
    }

    /// Calls the output until it succeeds, the reader is gone, or the time for retries is over.
    async fn attempt<'a, T: Into<Written>, F: Future<Output = Result<T, WriteError>> + 'a>(
        &self,
        call: impl Fn() -> F,
    ) -> Outcome {
        let mut pause = self.pause();
        loop {
            let begin = Instant::now();
            let result = call().await;
            self.metrics.waited(begin.elapsed());
            let reason = match result {
                Ok(written) => return Outcome::Done(written.into()),
                Err(WriteError::Closed) => return Outcome::Gone,
                Err(WriteError::Fatal(reason)) => return Outcome::Failed(reason),
                Err(WriteError::Retry(reason)) => reason,
            };
            if pause.is_first() {
                self.diagnostics
                    .warn(&format!("output {}: {reason}; trying again", self.name));
            }
            self.metrics.count("retries", 1);
            if let Err(ended) = self.wait(&mut pause, &reason).await {
                return ended;
            }
        }
    }

    /// Waits for the next attempt; how it ends when there will be none.
    async fn wait(&self, pause: &mut Pause, reason: &str) -> Result<(), Outcome> {
        tokio::select! {
            () = self.leave.stopped() => Err(Outcome::Left),
            waited = pause.wait(&self.abort, reason) => waited.map_err(Outcome::Failed),
        }
    }

    fn pause(&self) -> Pause {
        Pause {
            settings: self.retry,
            next: self.retry.initial.0,
            since: None,
        }
    }

    async fn flush(&self, unflushed: &mut Unflushed) {
        let output = &self.output;
        let outcome = self.attempt(|| output.flush()).await;
        self.settle_flush(outcome, unflushed);
    }

    fn settle_flush(&self, outcome: Outcome, unflushed: &mut Unflushed) {
        match outcome {
            Outcome::Done(_) => unflushed.pass(self.index),
            Outcome::Gone => {
                self.gone.store(true, Ordering::SeqCst);
                unflushed.pass(self.index);
            }
            Outcome::Lost => {}
            Outcome::Left => {
                *unflushed = Unflushed::default();
                self.left.store(true, Ordering::SeqCst);
            }
            Outcome::Failed(reason) => {
                *unflushed = Unflushed::default();
                self.fail(reason);
            }
        }
    }

    fn fail(&self, reason: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(reason);
    }

    fn refuse(&self, refused: &[component::Refused]) {
        const COUNTER: &str = "refused";
        let Some(first) = refused.first() else { return };
        if !self.metrics.snapshot().named.contains_key(COUNTER) {
            let reason = &first.reason;
            self.diagnostics.warn(&format!(
                "output {}: an event is refused: {reason} (further ones are only counted)",
                self.name
            ));
        }
        self.metrics.count(COUNTER, refused.len() as u64);
        self.metrics.failures(refused.len());
    }

    fn give_back(&self, encoded: Option<Encoded>) {
        let Some(encoded) = encoded else { return };
        {
            let mut state = self.lock();
            state.encoded -= 1;
            if state.spare.len() < self.encoded_max {
                state.spare.push(encoded);
            }
        }
        self.queue.wake_workers();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tickets of batches that are written and safe only after the next flush.
#[derive(Default)]
struct Unflushed {
    tickets: Vec<Arc<Ticket>>,
    size: usize,
    events: usize,
}

impl Unflushed {
    fn push(&mut self, ticket: &Arc<Ticket>) {
        self.size += ticket.size();
        self.events += ticket.events();
        self.tickets.push(ticket.clone());
    }

    fn reaches(&self, limits: Limits) -> bool {
        self.size >= limits.size_max || self.events >= limits.events_max
    }

    fn pass(&mut self, output: usize) {
        std::mem::take(self)
            .tickets
            .iter()
            .for_each(|ticket| ticket.pass(output));
    }
}

enum Next {
    Item(Item),
    Idle,
    End,
}

/// Pauses between attempts, each twice as long as the one before, with a random part of up to half.
struct Pause {
    settings: RetrySettings,
    next: Duration,
    since: Option<Instant>,
}

impl Pause {
    fn is_first(&self) -> bool {
        self.since.is_none()
    }

    /// Waits for the next attempt; an error when the time is over or the run is to end.
    async fn wait(&mut self, abort: &Stop, reason: &str) -> Result<(), String> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let over = self
            .settings
            .give_up_after
            .is_some_and(|limit| since.elapsed() >= limit.0);
        if over || abort.is_stopped() {
            return Err(reason.to_owned());
        }
        let pause = self.next.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.next = (self.next * 2).min(self.settings.max.0);
        // Waiting ends early when the run is to end: one more attempt, then the error above.
        let _ = tokio::time::timeout(pause, abort.stopped()).await;
        Ok(())
    }
}
