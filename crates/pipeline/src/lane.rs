//! One output at work.
//!
//! Workers offer every batch to every lane. A lane that keeps up takes it already encoded, so that rendering uses all
//! cores; one that lags keeps the batch and encodes it later, so that it holds nobody up. The lane's own thread writes:
//! in sequence where the output asks for it, again after a pause where a write failed, and passes the batch's ticket when
//! its rows are safe.
//!
//! An output *fails* for good when it says so ([`WriteError::Fatal`]), panics, or has failed for longer than retries may take.
//! It is not called again, closing included: what it holds unflushed is not delivered, and would come twice if it were
//! written after all. Its lane then lets go of every batch, so that nobody waits for it.
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
use crate::report::time;
use crate::retry::{Pause, caught, text};
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
    /// Whether it failed for good.
    has_failed: AtomicBool,
    /// Why.
    failure: Mutex<Option<String>>,
    is_finite: bool,
}

/// What the lanes of a pipeline have in common.
pub struct Shared {
    /// Number of workers: how many encoded batches may wait follows from it.
    pub workers: usize,
    /// The queue's limits.
    pub limits: Limits,
    /// How failed writes are repeated.
    pub retry: RetrySettings,
    /// Whether the run ends with its inputs, so that nobody is there to mend what is in an output's way.
    pub is_finite: bool,
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
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            is_finite: shared.is_finite,
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

    /// Whether the output has failed for good.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// Why the output has failed.
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

    /// Whether it failed or left: what is offered goes without being passed, so that nobody takes it for delivered.
    fn takes_nothing(&self) -> bool {
        self.left.load(Ordering::SeqCst) || self.has_failed()
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
        if !item.rows.is_empty() && !self.is_gone() && !self.takes_nothing() {
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
                    ticket.let_go(self.index);
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
        if let Err(panic) = caught(self.output.start()).await {
            self.fail(panicked("`start`", &panic));
        }
        // What there is to say of the start does not wait for an event.
        self.report();
        loop {
            let waiting = (!unflushed.tickets.is_empty()).then_some(FLUSH_AFTER);
            match self.next(waiting).await {
                Next::Item(item) => self.deliver(item, &mut unflushed).await,
                Next::Idle => self.flush(&mut unflushed).await,
                Next::End => break,
            }
            self.report();
            if self.has_failed() {
                unflushed.let_go(self.index);
            }
            if self.is_gone() || self.has_failed() {
                ended();
                self.queue.wake_workers();
            }
            if unflushed.reaches(self.unflushed_max) {
                self.flush(&mut unflushed).await;
            }
        }
        if !self.has_failed() {
            let output = &self.output;
            let closing = self.attempt("close", || output.close()).await;
            self.settle_flush(closing, &mut unflushed);
            self.report();
        }
    }

    /// Passes on what the output counted and what it has to say.
    fn report(&self) {
        if self.has_failed() {
            return;
        }
        let take = || (self.output.take_counters(), self.output.take_warnings());
        let (counters, warnings) = match catch_unwind(AssertUnwindSafe(take)) {
            Ok(taken) => taken,
            Err(panic) => return self.fail(panicked("its counters", &text(&*panic))),
        };
        for (name, count) in counters {
            self.metrics.count(name, count);
        }
        for warning in warnings {
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
            self.give_back(item.encoded.take());
            return self.let_go(&item.ticket);
        }
        let counted = item.encoded.is_some();
        let ready = item.encoded.take();
        let Some(mut encoded) = ready.or_else(|| self.encode(&item, Encoded::default())) else {
            return item.ticket.let_go(self.index);
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
            Outcome::Failed(reason) => {
                self.fail(reason);
                self.let_go(&item.ticket);
            }
            Outcome::Left => self.left.store(true, Ordering::SeqCst),
            Outcome::Lost => item.ticket.let_go(self.index),
        }
        self.give_back(counted.then_some(encoded));
    }

    /// Not delivered. One that left goes without a word, so that the queue still counts the events.
    fn let_go(&self, ticket: &Ticket) {
        if self.has_failed() {
            ticket.let_go(self.index);
        }
    }

    /// Writes a batch; rows that are to be repeated are encoded again on their own.
    async fn write(&self, item: &mut Item, encoded: &mut Encoded) -> Outcome {
        let mut refused = Vec::new();
        let mut pause = Pause::new(self.retry);
        loop {
            let output = &self.output;
            let mut written = match self.attempt("write", || output.write(encoded)).await {
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
        name: &str,
        call: impl Fn() -> F,
    ) -> Outcome {
        let mut pause = Pause::new(self.retry);
        loop {
            let begin = Instant::now();
            let result = caught(async { call().await }).await;
            self.metrics.waited(begin.elapsed());
            let reason = match result {
                Ok(Ok(written)) => {
                    self.say_recovery(&pause);
                    return Outcome::Done(written.into());
                }
                Ok(Err(WriteError::Closed)) => return Outcome::Gone,
                Ok(Err(WriteError::Fatal(reason))) => return Outcome::Failed(reason),
                Ok(Err(WriteError::Blocked(reason))) if self.is_finite => {
                    return Outcome::Failed(reason);
                }
                Ok(Err(WriteError::Blocked(reason) | WriteError::Retry(reason))) => reason,
                Err(panic) => return Outcome::Failed(panicked(&format!("`{name}`"), &panic)),
            };
            if pause.is_news(&reason) {
                let meanwhile = self.meanwhile();
                self.diagnostics.warn(&format!(
                    "output {}: {reason}; trying again{meanwhile}",
                    self.name
                ));
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

    /// What happens while writes are tried again.
    fn meanwhile(&self) -> &'static str {
        match (self.retry.give_up_after, self.queue.is_on_disk()) {
            (Some(_), _) => "",
            (None, true) => " until it works; meanwhile its events gather in the disk queue",
            (None, false) => " until it works; inputs wait once the queue is full",
        }
    }

    fn say_recovery(&self, pause: &Pause) {
        if let Some(since) = pause.failing_since() {
            let after = time(since.elapsed());
            self.diagnostics
                .warn(&format!("output {}: works again after {after}", self.name));
        }
    }

    async fn flush(&self, unflushed: &mut Unflushed) {
        let output = &self.output;
        let outcome = self.attempt("flush", || output.flush()).await;
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
                self.fail(reason);
                unflushed.let_go(self.index);
            }
        }
    }

    /// The output has failed for good.
    fn fail(&self, reason: String) {
        if self.has_failed() {
            return;
        }
        // At the end of a run its report says it.
        if !self.is_finite && !self.abort.is_stopped() {
            let consequence = match self.queue.is_on_disk() {
                true => "what it has not taken stays in the disk queue",
                false => {
                    "what it has not taken counts as not delivered, and files are read again from there"
                }
            };
            self.diagnostics.warn(&format!(
                "output {}: {reason}; it takes nothing more until Millpond is started again: {consequence}",
                self.name
            ));
        }
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        self.has_failed.store(true, Ordering::SeqCst);
        self.queue.fail(self.index);
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

    fn let_go(&mut self, output: usize) {
        std::mem::take(self)
            .tickets
            .iter()
            .for_each(|ticket| ticket.let_go(output));
    }
}

/// Why an output has failed that panicked.
fn panicked(place: &str, panic: &str) -> String {
    format!("internal error: it panicked in {place}: {panic}")
}

enum Next {
    Item(Item),
    Idle,
    End,
}
