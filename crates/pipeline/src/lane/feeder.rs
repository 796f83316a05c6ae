//! A lane whose output is another pipeline: it hands batches to that pipeline's queue.
//!
//! Batches are handed over in sequence, one at a time; while the other queue is full, the lane waits with one, and its own pipeline's
//! queue fills. A batch is *released* when the other queue has it, which counts it from then on. It is passed when its receipt
//! resolves: when the other pipeline's outputs have it, or its disk queue.
//!
//! Where a receipt does not resolve, the events count as not delivered in both pipelines, and a queue in memory goes on. With a disk
//! queue the output fails, because its cursor could not move beyond them: they stay for the next start.
//!
//! The lane stops feeding as soon as it has nothing more to send, before the receipts are there: the other pipeline ends then, and
//! with it what waits there for more events to come.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use component::{Delivery, Phase, Receipt, Sink, Stopped, Waiting, activity};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use queue::{Inlet, Ticket};

use super::offers::{Item, Next};
use super::{Common, Ending, LAST_ATTEMPT, next_phase, until};
use crate::intake::Intake;
use crate::senders::Sending;
use crate::tap::TappedSink;

/// What is special about such a lane.
pub struct FeederLane {
    intake: Arc<Intake>,
    inlet: TappedSink<Inlet>,
    feeding: Mutex<Option<Sending>>,
    /// Batches that may wait for the lane.
    waiting_max: usize,
}

/// A batch on its way into the other queue.
struct Handing<'l> {
    ticket: Arc<Ticket>,
    rows: usize,
    waiting: Waiting<'l>,
    sending: Pin<Box<dyn Future<Output = Result<Receipt, Stopped>> + Send + 'l>>,
}

/// What the thread of a lane knows while it runs.
#[derive(Default)]
struct Course<'l> {
    /// As long as there may be something to hand over. Afterwards the other pipeline may end.
    feeding: Option<Sending>,
    handing: Option<Handing<'l>>,
    /// Batches that the other queue took, until their receipts are there.
    answers: FuturesUnordered<Pin<Box<dyn Future<Output = Answer>>>>,
    /// Receipts are not waited for beyond this.
    stop_by: Option<Instant>,
}

/// What became of a batch that the other queue took.
struct Answer {
    ticket: Arc<Ticket>,
    rows: usize,
    result: Result<Delivery, Stopped>,
}

impl FeederLane {
    pub fn new(intake: &Arc<Intake>, common: &Common, can_wait: bool, workers: usize) -> Self {
        let (feeding, inlet) = intake.feed(&common.queue, can_wait);
        Self {
            intake: intake.clone(),
            inlet,
            feeding: Mutex::new(Some(feeding)),
            waiting_max: 2 * workers,
        }
    }

    /// Whether another batch may wait.
    pub fn has_room(&self, common: &Common) -> bool {
        common.offers.waiting() < self.waiting_max
    }

    /// Hands over what is offered until the lane is closed and empty, and waits for the receipts.
    pub async fn run(&self, common: &Common, ended: &(dyn Fn() + Sync)) {
        let mut course = Course {
            // Gone with this call, also where it panics.
            feeding: lock(&self.feeding).take(),
            ..Course::default()
        };
        loop {
            if course.feeding.is_some() && self.intake.is_closed() {
                self.close(common);
            }
            if course.stop_by.is_some_and(|by| by <= Instant::now()) {
                if common.works() {
                    common.fail("no receipt by the deadline of the stop");
                }
                // Their tickets go without being passed, so that their events count as not delivered, or stay in the queue.
                course.answers.clear();
            }
            if !common.works() {
                if let Some(handing) = course.handing.take() {
                    common.decline(&handing.ticket);
                }
                ended();
                common.queue.wake_workers();
            }
            let is_over = self.take(common, &mut course);
            if is_over || !common.works() {
                drop(course.feeding.take());
            }
            if is_over && course.answers.is_empty() {
                return;
            }
            self.wait(common, &mut course).await;
            common.queue.note_cursors();
        }
    }

    /// Takes what is offered, up to a batch that is to be handed over. Whether there will be nothing more.
    fn take<'l>(&'l self, common: &'l Common, course: &mut Course<'l>) -> bool {
        while course.handing.is_none() {
            match common.offers.take(true, |_| true) {
                Next::Item(item) => course.handing = self.hand_over(common, item),
                Next::Wait => return false,
                Next::End => return true,
            }
            common.queue.wake_workers();
        }
        false
    }

    /// Waits until there is something to do.
    async fn wait(&self, common: &Common, course: &mut Course<'_>) {
        let Course {
            feeding,
            handing,
            answers,
            stop_by,
        } = course;
        let phase = common.phases.now();
        let is_handing = handing.is_some();
        tokio::select! {
            sent = sent(handing), if is_handing => {
                answers.extend(self.sent(common, handing.take(), sent));
            }
            Some(answer) = answers.next(), if !answers.is_empty() => {
                self.settle(common, answer);
            }
            () = common.offered.notified(), if !is_handing => {}
            () = self.intake.closed(), if feeding.is_some() => {}
            () = until(*stop_by), if stop_by.is_some_and(|by| by > Instant::now()) => {}
            () = common.phases.reached(next_phase(phase)), if phase < Phase::Aborted => {
                match common.phases.now() {
                    // The queue has it. The other pipeline still delivers what it took.
                    Phase::Leaving if is_handing => common.end(Ending::Left),
                    Phase::Aborted => *stop_by = Some(Instant::now() + LAST_ATTEMPT),
                    Phase::Running | Phase::Draining | Phase::Leaving => {}
                }
            }
        }
    }

    /// Begins to hand a batch over, unless nobody wants it.
    fn hand_over<'l>(&'l self, common: &'l Common, item: Item) -> Option<Handing<'l>> {
        if item.rows.is_empty() {
            item.ticket.pass(common.index);
            return None;
        }
        if !common.works() {
            common.decline(&item.ticket);
            return None;
        }
        activity::charge();
        let begin = Instant::now();
        let batch = item.batch.handed_on(&item.rows);
        common.metrics.busy(begin.elapsed());
        Some(Handing {
            ticket: item.ticket,
            rows: batch.len(),
            waiting: common.metrics.waiting(),
            sending: self.inlet.send(batch),
        })
    }

    /// The other queue has a batch, or takes no more.
    fn sent(
        &self,
        common: &Common,
        handing: Option<Handing<'_>>,
        sent: Result<Receipt, Stopped>,
    ) -> Option<Pin<Box<dyn Future<Output = Answer>>>> {
        let Handing {
            ticket,
            rows,
            waiting,
            ..
        } = handing?;
        drop(waiting);
        let Ok(receipt) = sent else {
            self.close(common);
            common.decline(&ticket);
            return None;
        };
        self.intake.metrics().events(rows, rows);
        ticket.release(common.index);
        Some(Box::pin(async move {
            Answer {
                ticket,
                rows,
                result: receipt.delivered().await,
            }
        }))
    }

    /// The other pipeline is done with a batch.
    fn settle(&self, common: &Common, answer: Answer) {
        let Answer {
            ticket,
            rows,
            result,
        } = answer;
        match result {
            Ok(delivery) => {
                common.metrics.events(rows, rows);
                ticket.count_dead(&delivery);
                ticket.pass_released(common.index);
            }
            // What it wants no more is as good as delivered.
            Err(Stopped) if self.intake.is_satisfied() => ticket.pass_released(common.index),
            Err(Stopped) => {
                if common.works() && common.queue.is_on_disk() {
                    let name = self.intake.pipeline();
                    common.fail(&format!(
                        "pipeline `{name}` did not deliver events that it took"
                    ));
                }
                if !matches!(common.ending.get(), Some(Ending::Left)) {
                    ticket.let_go_released(common.index);
                }
            }
        }
    }

    /// The other pipeline takes no more.
    fn close(&self, common: &Common) {
        if self.intake.is_satisfied() {
            return common.end(Ending::Gone);
        }
        let name = self.intake.pipeline();
        match self.intake.is_aborted() {
            true => common.fail(&format!(
                "pipeline `{name}` did not take everything by the deadline of the stop"
            )),
            false => common.fail(&format!("pipeline `{name}` takes no more events")),
        }
    }
}

/// Waits until a batch is in the other queue.
async fn sent(handing: &mut Option<Handing<'_>>) -> Result<Receipt, Stopped> {
    match handing {
        Some(handing) => handing.sending.as_mut().await,
        None => std::future::pending().await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
