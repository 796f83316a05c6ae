//! A lane whose output collects: its batches are safe only when something that it makes of many of them is complete.
//!
//! A batch is *released* as soon as the output has taken it, and passed, in sequence, when the output says that it is safe.
//!
//! Bounds: the output is told to hurry when three quarters of the batches wait that it may be ahead, or half of what the disk queue takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use component::{Collector, Encoded};
use queue::{AHEAD_MAX, Ticket};

use super::letters::{self, Stored};
use super::offers::{Item, Next};
use super::writer::{Outcome, WriterLane, come_to, rendered};
use super::{Common, Ending};

/// How long the output may be idle before it is asked what is safe.
const TEND_AFTER: Duration = Duration::from_millis(200);

/// How many batches more than other outputs it may be ahead: it holds nothing of them but their tickets.
const AHEAD_MORE: usize = 63 * AHEAD_MAX;

/// With so many batches it is told to hurry.
const HURRY_BATCHES: usize = (AHEAD_MAX + AHEAD_MORE) / 4 * 3;

/// Takes what is offered until the lane is closed and empty, then closes the output.
pub async fn run(
    lane: &WriterLane,
    collector: &dyn Collector,
    common: &Common,
    ended: &(dyn Fn() + Sync),
) {
    let bytes_max = common.queue.disk_bytes_max().map(|max| max / 2);
    let mut taken = Collected {
        bytes_max: bytes_max.unwrap_or(u64::MAX),
        ..Collected::default()
    };
    common.queue.let_ahead(common.index, AHEAD_MORE);
    let anchor = common.queue.anchor(common.index);
    let begun = lane.attempt(common, "begin", || collector.begin(anchor.clone()));
    if let Outcome::Ended(ending) = begun.await {
        come_to(common, ending);
    }
    loop {
        let waiting = (!taken.tickets.is_empty()).then_some(TEND_AFTER);
        let mut is_whole = true;
        let next = tokio::select! {
            biased;
            next = lane.next(common, waiting) => next,
            () = collector.changed(), if waiting.is_some() => None,
        };
        match next {
            Some(Next::Item(item)) => {
                is_whole = item.behind_count == 0;
                deliver(lane, collector, common, item, &mut taken).await;
            }
            Some(Next::End) => break,
            Some(Next::Wait) | None => {}
        }
        if is_whole && common.works() {
            tend(lane, collector, common, &mut taken).await;
        }
        common.report();
        if common.has_failed() {
            taken.let_go(common.index);
        }
        if common.is_gone() || common.has_failed() {
            ended();
            common.queue.wake_workers();
        }
        common.queue.note_cursors();
    }
    if common.works() {
        let writer = &lane.writer;
        match lane.attempt(common, "close", || writer.close()).await {
            // What could not be completed stays in the queue.
            Outcome::Done(()) => tend(lane, collector, common, &mut taken).await,
            Outcome::Ended(ending) => come_to(common, ending),
        }
    }
    if common.has_failed() {
        taken.let_go(common.index);
    }
}

async fn deliver(
    lane: &WriterLane,
    collector: &dyn Collector,
    common: &Common,
    mut item: Item,
    taken: &mut Collected,
) {
    let sequence = item.ticket.sequence();
    let is_empty = item.rows.is_empty();
    let Some((encoded, is_counted)) = rendered(common, &mut item) else {
        if is_empty && common.works() {
            // It learns how far the queue is.
            let none = Encoded::default();
            let told = lane.attempt(common, "collect", || collector.collect(&none, sequence));
            if let Outcome::Ended(ending) = told.await {
                come_to(common, ending);
            }
        }
        return;
    };
    let collected = lane.attempt(common, "collect", || collector.collect(&encoded, sequence));
    match collected.await {
        Outcome::Done(written) => {
            let stored = lane.settle_rows(common, &item, &encoded, &written);
            item.ticket.release(common.index);
            taken.push(&item.ticket, stored);
        }
        Outcome::Ended(ending) => {
            come_to(common, ending);
            common.decline(&item.ticket);
        }
    }
    common.give_back(is_counted.then_some(encoded));
}

async fn tend(
    lane: &WriterLane,
    collector: &dyn Collector,
    common: &Common,
    taken: &mut Collected,
) {
    let hurry = taken.is_too_much();
    match lane.attempt(common, "tend", || collector.tend(hurry)).await {
        Outcome::Done(safe) => taken.pass_below(safe, common).await,
        Outcome::Ended(ending) => come_to(common, ending),
    }
}

/// Batches that the output has taken and that are not safe, in sequence.
#[derive(Default)]
struct Collected {
    tickets: VecDeque<(Arc<Ticket>, Option<Stored>)>,
    bytes: u64,
    bytes_max: u64,
}

impl Collected {
    fn push(&mut self, ticket: &Arc<Ticket>, stored: Option<Stored>) {
        self.bytes += ticket.size() as u64;
        self.tickets.push_back((ticket.clone(), stored));
    }

    fn is_too_much(&self) -> bool {
        self.tickets.len() >= HURRY_BATCHES || self.bytes >= self.bytes_max
    }

    fn pop_below(&mut self, sequence: u64) -> Option<(Arc<Ticket>, Option<Stored>)> {
        let first = self.tickets.front();
        first.filter(|(ticket, _)| ticket.sequence() < sequence)?;
        let first = self.tickets.pop_front();
        self.bytes -= first.as_ref().map_or(0, |(ticket, _)| ticket.size() as u64);
        first
    }

    /// Passes the batches before a sequence, each when the dead letters of its rows are on disk.
    async fn pass_below(&mut self, sequence: u64, common: &Common) {
        while let Some((ticket, stored)) = self.pop_below(sequence) {
            let is_stored = match stored {
                Some(stored) => common.stored(letters::outcome(stored).await),
                None => true,
            };
            match (is_stored, common.ending.get()) {
                (true, _) => ticket.pass_released(common.index),
                (false, Some(Ending::Failed(_))) => ticket.let_go_released(common.index),
                (false, _) => {}
            }
        }
    }

    fn let_go(&mut self, output: usize) {
        for (ticket, _) in self.tickets.drain(..) {
            ticket.let_go_released(output);
        }
        self.bytes = 0;
    }
}
