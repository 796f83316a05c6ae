//! A lane whose output writes in one place: one batch after the other, again after a pause where a write failed.
//!
//! Bounds: so many encoded batches wait as [`super::Offers`] says, and a flush is forced when a part of the queue's limits waits for it.

use std::sync::Arc;
use std::time::Duration;

use component::{Collector, Encoded, Phase, WriteError, Writer, Written};
use queue::{Limits, Ticket};

use super::letters::{self, Stored};
use super::offers::{Item, Next};
use super::{Common, Ending};
use crate::report::time;
use crate::retry::{Pause, caught};

/// How long an output may be idle before it is flushed.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// The part of the queue that may wait for a flush before one is forced. The rest keeps the workers busy meanwhile.
const UNFLUSHED_PART: usize = 4;

/// What is special about such a lane.
pub struct WriterLane {
    pub(super) writer: Arc<dyn Writer>,
    ordered: bool,
    unflushed_max: Limits,
}

/// How a call of the output ended.
pub(super) enum Outcome<T> {
    Done(T),
    /// It comes to this end, with what was to be written.
    Ended(Ending),
}

impl WriterLane {
    pub fn new(writer: Arc<dyn Writer>, ordered: bool, limits: Limits) -> Self {
        Self {
            writer,
            ordered,
            unflushed_max: Limits {
                size_max: limits.size_max / UNFLUSHED_PART,
                events_max: limits.events_max / UNFLUSHED_PART,
            },
        }
    }

    /// The part of its output that collects.
    pub fn collector(&self) -> Option<&dyn Collector> {
        self.writer.collector()
    }

    /// Writes what is offered until the lane is closed and empty, then closes the output.
    pub async fn run(&self, common: &Common, ended: &(dyn Fn() + Sync)) {
        let mut unflushed = Unflushed::default();
        loop {
            let waiting = (!unflushed.tickets.is_empty()).then_some(FLUSH_AFTER);
            match self.next(common, waiting).await {
                Some(Next::Item(item)) => self.deliver(common, item, &mut unflushed).await,
                Some(Next::End) => break,
                Some(Next::Wait) | None => self.flush(common, &mut unflushed).await,
            }
            common.report();
            if common.has_failed() {
                unflushed.let_go(common.index);
            }
            if common.is_gone() || common.has_failed() {
                ended();
                common.queue.wake_workers();
            }
            if unflushed.reaches(self.unflushed_max) {
                self.flush(common, &mut unflushed).await;
            }
            common.queue.note_cursors();
        }
        if !common.has_failed() {
            let writer = &self.writer;
            let closing = self.attempt(common, "close", || writer.close()).await;
            self.settle_flush(common, closing, &mut unflushed).await;
        }
    }

    /// What there is to do; nothing when there was nothing for so long.
    pub(super) async fn next(&self, common: &Common, wait: Option<Duration>) -> Option<Next> {
        loop {
            match common.offers.take(self.ordered, |_| true) {
                Next::Wait => {}
                next => return Some(next),
            }
            let offered = common.offered.notified();
            match wait {
                None => offered.await,
                Some(wait) => tokio::time::timeout(wait, offered).await.ok()?,
            }
        }
    }

    async fn deliver(&self, common: &Common, mut item: Item, unflushed: &mut Unflushed) {
        let Some((encoded, is_counted)) = rendered(common, &mut item) else {
            return;
        };
        let writer = &self.writer;
        match self
            .attempt(common, "write", || writer.write(&encoded))
            .await
        {
            Outcome::Done(written) => {
                let stored = self.settle_rows(common, &item, &encoded, &written);
                match written.until_flush || stored.is_some() {
                    true => unflushed.push(&item.ticket, stored),
                    false => item.ticket.pass(common.index),
                }
            }
            Outcome::Ended(ending) => {
                come_to(common, ending);
                common.decline(&item.ticket);
            }
        }
        common.give_back(is_counted.then_some(encoded));
    }

    /// Counts the rows of a batch that was written, and has those that were refused written down.
    pub(super) fn settle_rows(
        &self,
        common: &Common,
        item: &Item,
        encoded: &Encoded,
        written: &Written,
    ) -> Option<Stored> {
        let taken = encoded.rows.saturating_sub(written.refused.len());
        common.metrics.events(encoded.rows, taken);
        common.metrics.bytes(encoded.bytes.len());
        common.refuse(&encoded.refused);
        common.refuse(&written.refused);
        let refused = [&encoded.refused[..], &written.refused].concat();
        let letters = common.letters.as_ref().filter(|_| !refused.is_empty());
        letters.map(|letters| letters.put(&item.batch, &item.ticket, refused))
    }

    /// Calls the output until it succeeds, the reader is gone, or the retry time limit (`give_up_after`) is reached.
    pub(super) async fn attempt<'a, T, F: Future<Output = Result<T, WriteError>> + 'a>(
        &self,
        common: &Common,
        name: &str,
        call: impl Fn() -> F,
    ) -> Outcome<T> {
        let mut pause = Pause::new(common.retry);
        // Also between attempts.
        let _waiting = common.metrics.waiting();
        loop {
            let result = caught(async { call().await }).await;
            let reason = match result {
                Ok(Ok(written)) => {
                    common.gauges.recovered();
                    say_recovery(common, &pause);
                    return Outcome::Done(written);
                }
                Ok(Err(WriteError::Closed)) => return Outcome::Ended(Ending::Gone),
                Ok(Err(WriteError::Fatal(reason))) => {
                    return Outcome::Ended(Ending::Failed(reason));
                }
                Ok(Err(WriteError::Blocked(reason))) if common.is_finite => {
                    return Outcome::Ended(Ending::Failed(reason));
                }
                Ok(Err(WriteError::Blocked(reason) | WriteError::Retry(reason))) => reason,
                Err(panic) => {
                    let reason = format!("internal error: it panicked in `{name}`: {panic}");
                    return Outcome::Ended(Ending::Failed(reason));
                }
            };
            common.gauges.failed(&reason, true);
            if pause.is_news(&reason) {
                let meanwhile = common.meanwhile();
                common
                    .diagnostics
                    .warn(&format!("{reason}; retrying{meanwhile}"));
            }
            common.metrics.count("retries", 1);
            if let Some(ending) = wait(common, &mut pause, &reason).await {
                return Outcome::Ended(ending);
            }
        }
    }

    async fn flush(&self, common: &Common, unflushed: &mut Unflushed) {
        let writer = &self.writer;
        let outcome = self.attempt(common, "flush", || writer.flush()).await;
        self.settle_flush(common, outcome, unflushed).await;
    }

    async fn settle_flush(&self, common: &Common, outcome: Outcome<()>, unflushed: &mut Unflushed) {
        let mut are_stored = true;
        if let Outcome::Done(_) = outcome {
            for stored in std::mem::take(&mut unflushed.letters) {
                are_stored &= common.stored(letters::outcome(stored).await);
            }
        }
        match outcome {
            Outcome::Done(_) if are_stored => unflushed.pass(common.index),
            Outcome::Done(_) => {
                for ticket in unflushed.take() {
                    common.decline(&ticket);
                }
            }
            Outcome::Ended(ending) => {
                come_to(common, ending);
                for ticket in unflushed.take() {
                    common.decline(&ticket);
                }
            }
        }
    }
}

/// What rows are rendered to, and whether its memory is counted; none where there is nothing to write, or nobody to write it.
pub(super) fn rendered(common: &Common, item: &mut Item) -> Option<(Encoded, bool)> {
    if item.rows.is_empty() || !common.works() {
        common.give_back(item.encoded.take());
        match item.rows.is_empty() {
            true => item.ticket.pass(common.index),
            false => common.decline(&item.ticket),
        }
        return None;
    }
    let is_counted = item.encoded.is_some();
    let ready = item.encoded.take();
    let encoded = ready.unwrap_or_else(|| common.encode(item, Encoded::default()));
    Some((encoded, is_counted))
}

/// Comes to an end.
pub(super) fn come_to(common: &Common, ending: Ending) {
    match ending {
        Ending::Failed(reason) => common.fail(&reason),
        ending => common.end(ending),
    }
}

/// Waits for the next attempt; how it ends when there will be none.
async fn wait(common: &Common, pause: &mut Pause, reason: &str) -> Option<Ending> {
    if common.phases.now() == Phase::Leaving {
        return Some(Ending::Left);
    }
    let is_tried_again = pause.wait(&common.phases).await;
    match common.phases.now() {
        Phase::Leaving => Some(Ending::Left),
        _ => (!is_tried_again).then(|| Ending::Failed(reason.to_owned())),
    }
}

fn say_recovery(common: &Common, pause: &Pause) {
    if let Some(since) = pause.failing_since() {
        let after = time(since.elapsed());
        common
            .diagnostics
            .info(&format!("works again after {after}"));
    }
}

/// Tickets of batches that are written and safe only after the next flush, or when their dead letters are on disk.
#[derive(Default)]
struct Unflushed {
    tickets: Vec<Arc<Ticket>>,
    /// Refused rows of theirs on the way to the dead letters.
    letters: Vec<Stored>,
    size: usize,
    events: usize,
}

impl Unflushed {
    fn push(&mut self, ticket: &Arc<Ticket>, stored: Option<Stored>) {
        self.letters.extend(stored);
        self.size += ticket.size();
        self.events += ticket.events();
        self.tickets.push(ticket.clone());
    }

    fn reaches(&self, limits: Limits) -> bool {
        self.size >= limits.size_max || self.events >= limits.events_max
    }

    fn take(&mut self) -> Vec<Arc<Ticket>> {
        std::mem::take(self).tickets
    }

    fn pass(&mut self, output: usize) {
        self.take().iter().for_each(|ticket| ticket.pass(output));
    }

    fn let_go(&mut self, output: usize) {
        self.take().iter().for_each(|ticket| ticket.let_go(output));
    }
}
