//! How batches leave: which one is next, and for which outputs.

use component::plural_were;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use batch::Batch;
use component::input::Issuer;
use component::{Delivery, Limit};

use super::front::{Kept, Waiting};
use super::lane::{ReaderSlot, Weight};
use super::lanes::Joined;
use super::lanes::{LaneTurn, Recipient};
use super::state::QueueState;
use super::upkeep::DROPPED_BY_AGE;
use super::{Disk, Queue, Ticket};
use crate::log::{FoundBlock, LoadError, LogEnd};
use crate::settings::Mode;

/// The counter of stored events that could not be read back.
pub const LOST: &str = "lost";

/// Ranges of lost events that are remembered, so that a second output that misses them does not count them again.
const LOST_RANGES_MAX: usize = 65_536;

/// The pause after a read that failed.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// A batch with its place in the queue.
#[derive(Debug)]
pub struct Entry {
    /// Its sequence number.
    pub sequence: u64,
    /// The outputs that get it.
    pub lanes: Vec<LaneTurn>,
    /// How many batches the outputs that go on together got before it. None where one gets it alone, so that its rows have been
    /// processed once before.
    pub turn: Option<u64>,
    /// Outputs whose processors part from those of the others right before this batch, and the number of the first batch that each
    /// gets alone: [`Queue::has_parted`] waits for that.
    pub parting: Vec<LaneTurn>,
    /// Outputs that need processors of their own no more.
    pub joined: Vec<Joined>,
    /// Whether processors are asked for what they remember after it: [`Queue::keep_snapshot`] waits for that.
    pub asks_snapshot: bool,
    /// To be passed by every one of `lanes`.
    pub ticket: Arc<Ticket>,
}

/// What a worker took.
#[derive(Debug)]
pub enum Taken {
    /// A batch.
    Batch(Entry, Box<Batch>),
    /// Where a batch would be that is damaged. The outputs go on without it.
    Lost(Entry),
    /// No batch: processors are asked for what they remember after the last one, for [`Queue::keep_snapshot`].
    AtRest {
        /// The last batch's sequence.
        sequence: u64,
        /// As in [`Entry::turn`].
        turn: u64,
    },
}

/// What there is for a worker.
#[derive(Debug)]
pub enum Next {
    /// A batch, or the place of one.
    Taken(Taken),
    /// Nothing for now.
    Wait,
    /// Nothing, and there will be none.
    End,
}

/// What there is to do for a worker.
enum Choice {
    Take(Taken),
    Read(Recipient, ReaderSlot),
    Wait,
    End,
}

impl Queue {
    /// The next batch for outputs of which `has_room` holds, waiting until there is one; `None` when the queue is closed and
    /// nothing leaves any more.
    pub fn take(self: &Arc<Self>, has_room: &dyn Fn(usize) -> bool) -> Option<Taken> {
        loop {
            let seen = self.bell.rung();
            match self.next(has_room) {
                Next::Taken(taken) => return Some(taken),
                Next::End => return None,
                Next::Wait => self.bell.wait(seen),
            }
        }
    }

    /// As [`Queue::take`], without waiting. A read that failed is said, and tried again by a later call.
    pub fn next(self: &Arc<Self>, has_room: &dyn Fn(usize) -> bool) -> Next {
        loop {
            let choice = self.choose(&mut self.lock(), has_room);
            let (recipient, slot) = match choice {
                Choice::Take(taken) => return Next::Taken(taken),
                Choice::Wait => return Next::Wait,
                Choice::End => return Next::End,
                Choice::Read(recipient, slot) => (recipient, slot),
            };
            if (self.steady)() < self.read_again.load(Ordering::Relaxed) {
                return Next::Wait;
            }
            match self.read_back(recipient, &slot, has_room) {
                Ok(taken) => {
                    self.read_again.store(i64::MIN, Ordering::Relaxed);
                    if let Some(taken) = taken {
                        return Next::Taken(taken);
                    }
                }
                Err(failure) => {
                    self.say_read_failure(&failure);
                    let again = (self.steady)() + READ_AGAIN.as_nanos() as i64;
                    self.read_again.store(again, Ordering::Relaxed);
                }
            }
        }
    }

    /// Lets workers try again what could not be read.
    pub(super) fn wake_readers(&self) {
        if self.read_again.load(Ordering::Relaxed) > i64::MIN {
            self.bell.ring();
        }
    }

    /// As [`Queue::take`], without waiting.
    ///
    /// # Errors
    /// The log could not be read.
    pub fn try_take(
        self: &Arc<Self>,
        has_room: &dyn Fn(usize) -> bool,
    ) -> io::Result<Option<Taken>> {
        loop {
            let choice = self.choose(&mut self.lock(), has_room);
            match choice {
                Choice::Take(taken) => return Ok(Some(taken)),
                Choice::Wait | Choice::End => return Ok(None),
                Choice::Read(recipient, slot) => {
                    if let Some(taken) = self.read_back(recipient, &slot, has_room)? {
                        return Ok(Some(taken));
                    }
                }
            }
        }
    }

    fn choose(
        self: &Arc<Self>,
        state: &mut QueueState,
        has_room: &dyn Fn(usize) -> bool,
    ) -> Choice {
        if !state.phase.gives() {
            return Choice::End;
        }
        let may_read = state.phase.reads_back();
        let front = state.front.sequence();
        let readable_end = state.commit.readable().sequence;
        state.lanes.join(front, has_room);
        let takes =
            |state: &QueueState, lane: usize| state.lanes.of(lane).may_hold() && has_room(lane);
        let mut somebody_joins_soon = false;
        for (lane, slot) in state.lanes.alone() {
            if may_read && takes(state, lane) {
                // From the front on it gets what the others get.
                if state.lanes.of(lane).position() < readable_end.min(front) {
                    return Choice::Read(Recipient::Alone(lane), slot);
                }
                somebody_joins_soon |= state.lanes.joins_soon(lane, front);
            }
        }
        if state.is_snapshot_due_at_rest() {
            let sequence = state.ask_at_rest();
            let turn = state.front.give(sequence);
            return Choice::Take(Taken::AtRest { sequence, turn });
        }
        if state.is_at_end() {
            let end = state.front.next_sequence();
            let may_come = may_read && state.lanes.is_somebody_behind(end);
            return match state.phase.accepts() || may_come {
                true => Choice::Wait,
                false => Choice::End,
            };
        }
        if self.disk.is_some() && state.lanes.have_all_failed() {
            return self.choose_for_nobody(state);
        }
        let together = state.lanes.together();
        let (ready, full): (Vec<usize>, Vec<usize>) =
            together.partition(|&lane| takes(state, lane));
        if somebody_joins_soon || ready.is_empty() {
            return Choice::Wait;
        }
        let Some(disk) = &self.disk else {
            return self.give_waiting(state);
        };
        if !disk.part(state, &full) {
            return Choice::Wait;
        }
        if !state.may_give() {
            Choice::Wait
        } else if state.front.first().is_some() {
            self.give_waiting(state)
        } else if front < readable_end {
            Choice::Read(Recipient::Front, disk.front.clone())
        } else {
            Choice::Wait
        }
    }

    /// Every output of a queue on disk has failed: what is stored stays for a later run. Of what is in memory alone, which
    /// comes first, the outputs are told, because its receipts must not wait for ever.
    fn choose_for_nobody(self: &Arc<Self>, state: &mut QueueState) -> Choice {
        let in_memory_only = |first: &Waiting| !first.is_stored();
        if state.front.first().is_some_and(in_memory_only) {
            self.give_waiting(state)
        } else if state.phase.accepts() {
            Choice::Wait
        } else {
            Choice::End
        }
    }

    /// Gives the first batch that waits in memory to the outputs at the front.
    fn give_waiting(self: &Arc<Self>, state: &mut QueueState) -> Choice {
        let Some(waiting) = state.front.take() else {
            return Choice::Wait;
        };
        let Waiting {
            sequence,
            batch,
            size,
            events,
            kept,
        } = waiting;
        let (issuer, ordinal_end) = match kept {
            Kept::InMemory(issuer) => (Some(issuer), None),
            Kept::Stored(ordinal_end) => (None, Some(ordinal_end)),
        };
        let what = Given {
            sequence,
            size,
            events,
            ordinal_end,
            is_held: true,
        };
        let entry = self.give(state, Recipient::Front, &what, issuer);
        Choice::Take(Taken::Batch(entry, Box::new(batch)))
    }

    /// Gives a batch to the outputs that are to get it.
    fn give(
        self: &Arc<Self>,
        state: &mut QueueState,
        recipient: Recipient,
        what: &Given,
        issuer: Option<Issuer>,
    ) -> Entry {
        let weight = Weight {
            size: what.size,
            events: what.events as u64,
        };
        let lanes = state
            .lanes
            .give(recipient, what.sequence, weight, what.ordinal_end);
        let (parting, joined) = match recipient {
            Recipient::Front => state.lanes.take_changes(),
            Recipient::Alone(_) => Default::default(),
        };
        let turn = (recipient == Recipient::Front).then(|| state.front.give(what.sequence));
        let asks_snapshot = match (&mut state.snapshots, turn, what.ordinal_end) {
            (Some(snapshots), Some(_), Some(end)) => snapshots.ask(what.size, end),
            _ => false,
        };
        let ticket = Ticket {
            queue: self.clone(),
            sequence: what.sequence,
            size: what.size,
            events: what.events,
            outputs_behind: AtomicUsize::new(lanes.len()),
            outputs_holding: AtomicUsize::new(lanes.len()),
            is_failed: AtomicBool::new(false),
            is_held: what.is_held,
            is_stored: what.ordinal_end.is_some(),
            is_first_pass: turn.is_some(),
            outcome: Mutex::new((issuer, Delivery::default())),
            parted: Mutex::default(),
            has_parted: AtomicBool::new(false),
        };
        Entry {
            sequence: what.sequence,
            lanes,
            parting,
            joined,
            asks_snapshot,
            turn,
            ticket: Arc::new(ticket),
        }
    }

    /// Reads the next stored batch; none when somebody else was faster or there is none to read.
    fn read_back(
        self: &Arc<Self>,
        recipient: Recipient,
        slot: &ReaderSlot,
        has_room: &dyn Fn(usize) -> bool,
    ) -> io::Result<Option<Taken>> {
        let Some(disk) = &self.disk else {
            return Ok(None);
        };
        let mut reader = slot.lock();
        let Some((from, end)) = self.still(recipient, has_room) else {
            return Ok(None);
        };
        if reader.as_ref().is_none_or(|(_, next)| *next != from) {
            *reader = Some((disk.log.reader(from), from));
        }
        let Some((log_reader, next)) = reader.as_mut() else {
            return Ok(None);
        };
        let found = log_reader
            .next()?
            .filter(|found| found.sequence < end.sequence);
        if let Some(found) = found.as_ref().filter(|found| self.is_too_old(disk, found)) {
            self.drop_block(found, DROPPED_BY_AGE);
            return Ok(None);
        }
        let mut state = self.lock();
        if state.reads_from(recipient) != Some(from) {
            // It is dropped, or things have changed otherwise.
            *reader = None;
            return Ok(None);
        }
        let Some(found) = found else {
            // What should be there is lost.
            *reader = None;
            let missing = state.lanes.expected_ordinal(recipient)..end.ordinal;
            state.skip_to(recipient, end.sequence, end.ordinal);
            drop(state);
            self.say_lost_end(disk.count_lost(disk.log.lost_of(missing, from, None)));
            return Ok(None);
        };
        *next = found.sequence + 1;
        let missing = state.lanes.expected_ordinal(recipient)..found.ordinal;
        if !missing.is_empty() {
            self.say_lost_before(disk, missing, from, &found);
        }
        let what = Given {
            sequence: found.sequence,
            size: found.raw_len(),
            events: found.events as usize,
            ordinal_end: Some(found.ordinal_end()),
            is_held: false,
        };
        // Processors that remember what they saw get everything.
        let is_wanted = state.snapshots.is_some() && what.sequence >= state.lanes.floor();
        if !is_wanted && !state.lanes.is_wanted(recipient, what.sequence) {
            state.skip_to(recipient, found.sequence + 1, found.ordinal_end());
            return Ok(None);
        }
        let entry = self.give(&mut state, recipient, &what, None);
        drop(state);
        drop(reader);
        Ok(Some(self.load(disk, entry, &found)))
    }

    /// Where the next stored batch is looked for, and before what it must be; none when things have changed.
    fn still(
        &self,
        recipient: Recipient,
        has_room: &dyn Fn(usize) -> bool,
    ) -> Option<(u64, LogEnd)> {
        let state = self.lock();
        if !state.phase.reads_back() {
            return None;
        }
        let end = state.commit.readable();
        let from = state.reads_from(recipient)?;
        let takes = |lane: usize| state.lanes.of(lane).may_hold() && has_room(lane);
        let stands = match recipient {
            Recipient::Alone(lane) => from < state.front.sequence() && takes(lane),
            Recipient::Front => state.front.first().is_none() && state.lanes.together().any(takes),
        };
        (stands && from < end.sequence).then_some((from, end))
    }

    fn load(&self, disk: &Disk, entry: Entry, found: &FoundBlock) -> Taken {
        let mut attempts = 0;
        let bytes = loop {
            match disk.log.load(found, &disk.pool) {
                Ok(bytes) => break Some(bytes),
                Err(LoadError::Damaged { .. }) => break None,
                Err(LoadError::Io(failure)) => {
                    self.say_read_failure(&failure);
                    attempts += 1;
                    if attempts == READ_ATTEMPTS {
                        disk.log.give_up(found, &failure);
                        break None;
                    }
                    std::thread::sleep(READ_AGAIN);
                }
            }
        };
        let batch = bytes.and_then(|bytes| match Batch::thaw(bytes) {
            Ok(batch) => Some(batch),
            Err(reason) => {
                self.diagnostics.warn(&format!(
                    "batch {} cannot be read: {reason}",
                    entry.sequence
                ));
                None
            }
        });
        match batch {
            Some(batch) => {
                self.metrics.count("read_back", found.events.into());
                Taken::Batch(entry, Box::new(batch))
            }
            None => {
                let lost = disk.log.lost_of(found.ordinals(), found.sequence, None);
                self.metrics.count(LOST, disk.count_lost(lost));
                Taken::Lost(entry)
            }
        }
    }

    /// Counts events that are missing before what was found.
    fn say_lost_before(&self, disk: &Disk, missing: Range<u64>, from: u64, found: &FoundBlock) {
        let lost = disk.count_lost(disk.log.lost_of(missing, from, Some(found)));
        if lost > 0 {
            self.metrics.count(LOST, lost);
            self.diagnostics.warn(&format!(
                "{} lost because of damage before batch {}",
                plural_were(lost, "event"),
                found.sequence
            ));
        }
    }

    /// Counts events that are missing from the end of the log.
    pub(super) fn say_lost_end(&self, lost: u64) {
        if lost > 0 {
            self.metrics.count(LOST, lost);
            self.diagnostics.warn(&format!(
                "{} lost because of damage at the end of the log",
                plural_were(lost, "event")
            ));
        }
    }

    fn say_read_failure(&self, failure: &io::Error) {
        const COUNTER: &str = "read_failures";
        self.diagnostics.warn_limited(Limit::events(COUNTER), || {
            format!("reading the log failed: {failure}; retrying")
        });
        self.metrics.count(COUNTER, 1);
    }
}

impl Disk {
    /// Counts stored events as lost; how many were not before.
    pub(super) fn count_lost(&self, ordinals: Vec<Range<u64>>) -> u64 {
        let mut lost = self.lost.lock();
        let new = ordinals.into_iter().map(|range| lost.insert(range)).sum();
        lost.keep_highest(LOST_RANGES_MAX);
        new
    }

    /// Lets those of the `full` outputs go on alone that hold more than is kept in memory for them, where the log has
    /// everything from here on. Whether the others may go on: not where processors are ordered, and one that is that far behind does
    /// not go on alone.
    fn part(&self, state: &mut QueueState, full: &[usize]) -> bool {
        let is_stored = match self.mode {
            Mode::Everything => true,
            Mode::Overflow => state.front.is_next_stored(),
        };
        let size_max = self.settings.cache_bytes.bytes();
        if self.may_part && is_stored {
            let front = state.front.sequence();
            state.lanes.part(full, front, size_max, self.is_ordered);
        }
        !(self.is_ordered && state.lanes.is_one_behind(full, size_max))
    }
}

/// A batch that is given out.
struct Given {
    sequence: u64,
    size: usize,
    events: usize,
    /// Events stored up to its end, where it is stored.
    ordinal_end: Option<u64>,
    is_held: bool,
}

/// How often a block is tried to be read that the disk refuses to give.
const READ_ATTEMPTS: u32 = 5;
