//! What a batch holds of the queue until the outputs that got it have passed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use batch::Batch;
use component::Delivery;
use component::input::Issuer;
use parking_lot::{Mutex, MutexGuard};

use super::state::QueueState;
use super::{AHEAD_MAX, Queue};

/// To be passed by every output that got the batch.
#[derive(Debug)]
pub struct Ticket {
    pub(super) queue: Arc<Queue>,
    pub(super) sequence: u64,
    pub(super) size: usize,
    pub(super) events: usize,
    pub(super) outputs_behind: AtomicUsize,
    /// Outputs that have neither released nor passed it.
    pub(super) outputs_holding: AtomicUsize,
    /// Some output failed and did not take the batch.
    pub(super) is_failed: AtomicBool,
    /// Whether the queue counts the batch as held in memory.
    pub(super) is_held: bool,
    pub(super) is_stored: bool,
    /// Not one that a single output gets again.
    pub(super) is_first_pass: bool,
    pub(super) outcome: Mutex<(Option<Issuer>, Delivery)>,
    /// Outputs that got the batch in several parts.
    pub(super) parted: Mutex<Vec<Parted>>,
    /// Whether there are any.
    pub(super) has_parted: AtomicBool,
}

/// What an output got of a batch in several parts, each of which it releases, passes or lets go.
#[derive(Debug)]
pub(super) struct Parted {
    output: usize,
    /// Parts that it holds.
    held: usize,
    /// Parts that it has neither passed nor let go.
    left: usize,
    /// It holds nothing of the batch any more.
    is_released: bool,
    /// It let one of them go.
    is_let_go: bool,
}

impl Parted {
    /// A part is held no more; whether it was the last one, unless that was said before.
    fn drop_hold(&mut self) -> bool {
        self.held -= 1;
        let is_last = self.held == 0 && !self.is_released;
        self.is_released |= is_last;
        is_last
    }
}

impl Ticket {
    /// Says what became of the batch's rows, as far as processors decided it.
    pub fn account(&self, delivery: Delivery) {
        self.lock().1 = delivery;
    }

    /// Says which rows of the batch became dead letters since.
    pub fn bury(&self, batch: &Batch, rows: impl Iterator<Item = usize>) {
        let mut outcome = self.lock();
        rows.for_each(|row| outcome.1.bury(batch, row));
    }

    /// Counts rows that became dead letters in a pipeline to which the batch was handed.
    pub fn count_dead(&self, elsewhere: &Delivery) {
        self.lock().1.add_dead(elsewhere);
    }

    /// The batch's sequence in its queue.
    pub fn sequence(&self) -> u64 {
        self.sequence
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

    /// The output gets the batch in so many parts, and is done with it when it is done with all of them. Said before it gets the first one.
    pub fn part(&self, output: usize, parts: usize) {
        self.parted.lock().push(Parted {
            output,
            held: parts,
            left: parts,
            is_released: false,
            is_let_go: false,
        });
        self.has_parted.store(true, Ordering::Release);
    }

    /// An output is done with one of several parts: whether that was the last one and it has let one of them go; none where it is not the
    /// last. `held` where it was not released.
    fn leave_part(&self, output: usize, held: bool, lets_go: bool) -> Option<Left> {
        let mut parted = self.parted.lock();
        let Some(of_output) = parted.iter_mut().find(|one| one.output == output) else {
            return Some(Left {
                is_let_go: lets_go,
                is_held: held,
            });
        };
        of_output.is_let_go |= lets_go;
        of_output.left -= 1;
        let is_last = of_output.left == 0;
        let was_released = of_output.is_released;
        let drops = held && of_output.drop_hold();
        let left = Left {
            is_let_go: of_output.is_let_go,
            is_held: !was_released,
        };
        drop(parted);
        if !is_last && drops {
            self.release_whole(output);
        }
        is_last.then_some(left)
    }

    /// An output holds nothing of the batch any more, because it has made requests of it, which are counted elsewhere. The
    /// batch then counts neither as held in memory nor as what the output lags behind with. It is still to be passed, by
    /// [`Ticket::pass_released`], or let go.
    pub fn release(&self, output: usize) {
        if self.has_parted.load(Ordering::Acquire) {
            let mut parted = self.parted.lock();
            let of_output = parted.iter_mut().find(|one| one.output == output);
            if of_output.is_some_and(|one| !one.drop_hold()) {
                return;
            }
        }
        self.release_whole(output);
    }

    fn release_whole(&self, output: usize) {
        let is_last = self.drop_hold();
        let queue = &self.queue;
        let is_idle = {
            let mut state = queue.lock();
            if is_last {
                self.give_back_room(&mut state);
            }
            state.lanes.release(output, self.sequence)
        };
        if is_last || is_idle {
            queue.room.notify_waiters();
        }
    }

    /// An output is done with the batch: it will not ask for it again. The last one gives the room back and resolves the
    /// receipt.
    pub fn pass(&self, output: usize) {
        self.settle(output, true, false);
    }

    /// As [`Ticket::pass`], for a batch that the output has released.
    pub fn pass_released(&self, output: usize) {
        self.settle(output, false, false);
    }

    fn settle(&self, output: usize, is_held: bool, is_let_go: bool) {
        let mut left = Left { is_let_go, is_held };
        if self.has_parted.load(Ordering::Acquire) {
            match self.leave_part(output, is_held, is_let_go) {
                Some(last) => left = last,
                None => return,
            }
        }
        let holds_last = left.is_held && self.drop_hold();
        match left.is_let_go {
            true => self.abandon(output, holds_last),
            false => self.finish(output, holds_last),
        }
    }

    fn finish(&self, output: usize, holds_last: bool) {
        let is_last = self.leave();
        let queue = &self.queue;
        let (may_hold_again, makes_room) = {
            let mut guard = queue.lock();
            let state = &mut *guard;
            let now = (queue.steady)();
            let may_hold_again = state.lanes.pass(output, self.sequence, now);
            if holds_last {
                self.give_back_room(state);
            }
            if is_last {
                self.account_end(state);
            }
            let makes_room = state.commit.is_starving() && {
                let lowest = state.lowest_needed();
                state.commit.wants_release(lowest)
            };
            (may_hold_again, makes_room)
        };
        if makes_room {
            queue.wake_writer();
        }
        if may_hold_again {
            queue.bell.ring();
        }
        if let Some(disk) = queue.disk.as_ref().filter(|_| self.is_stored) {
            disk.is_note_due.store(true, Ordering::SeqCst);
        }
        if is_last {
            self.end();
        }
        queue.room.notify_waiters();
    }

    /// An output failed and will not take the batch in this run. The others get it all the same, and its room is given back
    /// after the last of them. What is stored stays for the output; of the rest the receipt never resolves, and its events
    /// count as not delivered.
    pub fn let_go(&self, output: usize) {
        self.settle(output, true, true);
    }

    /// As [`Ticket::let_go`], for a batch that the output has released.
    pub fn let_go_released(&self, output: usize) {
        self.settle(output, false, true);
    }

    fn abandon(&self, output: usize, holds_last: bool) {
        // Before leaving: whoever is last has to see it.
        self.is_failed.store(true, Ordering::Release);
        let is_last = self.leave();
        let queue = &self.queue;
        {
            let mut state = queue.lock();
            if !self.is_stored {
                state.lanes.let_go(output, self.sequence);
            }
            if holds_last {
                self.give_back_room(&mut state);
            }
            if is_last {
                self.account_end(&mut state);
            }
        }
        queue.bell.ring();
        if is_last {
            self.end();
        }
        queue.room.notify_waiters();
    }

    /// Whether that was the last output.
    fn leave(&self) -> bool {
        self.outputs_behind.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether nobody holds anything of the batch any more.
    fn drop_hold(&self) -> bool {
        self.outputs_holding.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn give_back_room(&self, state: &mut QueueState) {
        if self.is_held {
            state.front.give_back(self.size, self.events);
        }
    }

    fn account_end(&self, state: &mut QueueState) {
        if self.is_held && !self.is_stored {
            state.front.settle_unstored(self.events);
        }
        if self.is_failed() && !self.is_stored {
            state.front.count_failed(self.events);
        }
    }

    /// Every output has left: the receipt resolves, unless one of them failed.
    fn end(&self) {
        let (issuer, delivery) = {
            let mut outcome = self.lock();
            (outcome.0.take(), std::mem::take(&mut outcome.1))
        };
        if self.is_failed() {
            return;
        }
        if self.is_first_pass {
            self.queue.metrics.events(0, self.events);
        }
        if let Some(issuer) = issuer {
            issuer.resolve(delivery);
        }
    }

    fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Issuer>, Delivery)> {
        self.outcome.lock()
    }
}

/// How an output is done with a batch.
#[derive(Debug, Clone, Copy)]
struct Left {
    is_let_go: bool,
    /// It had not released the batch.
    is_held: bool,
}

const _: () = assert!(
    AHEAD_MAX > 1,
    "an output holds a batch while it writes another"
);
