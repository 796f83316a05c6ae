//! What the queue's lock guards.

use std::collections::VecDeque;
use std::sync::Arc;

use batch::Batch;
use component::Delivery;
use component::input::Issuer;

use super::lane::{Lane, ReaderSlot};
use super::take::Who;
use crate::cursor::LogEnd;
use crate::log::Block;

/// So many bytes are written without waiting for more.
pub const WRITE_SIZE: usize = 256 << 10;

/// How a queue ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    /// It does not yet.
    Open,
    /// Nothing comes in any more; everything leaves.
    Drain,
    /// Nothing comes in any more; what is stored stays, the rest leaves.
    Leave,
    /// Nothing comes in or leaves any more.
    Abandoned,
}

/// What a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Events that were accepted and are in memory only: neither passed by every output nor stored.
    pub unsafe_events: u64,
    /// Events that are stored and that some output has not passed.
    pub stored_events: u64,
    /// Bytes of the batches that wait in memory or are being worked on.
    pub memory_size: usize,
    /// Their events.
    pub memory_events: usize,
}

/// A batch that waits in memory.
pub struct Waiting {
    pub sequence: u64,
    pub batch: Batch,
    /// What it counts for, in bytes.
    pub size: usize,
    pub events: usize,
    /// Who answers for it.
    pub kept: Kept,
}

impl Waiting {
    pub fn is_stored(&self) -> bool {
        matches!(self.kept, Kept::Stored(_))
    }
}

/// Who answers for a batch.
pub enum Kept {
    /// Memory only: the receipt waits for the outputs.
    InMemory(Issuer),
    /// The log. Events stored up to the end of the batch.
    Stored(u64),
}

/// A batch on its way into the log.
pub struct Pending {
    pub block: Block,
    /// What it counts for, in bytes.
    pub size: usize,
    /// When it came, by the steady clock.
    pub since: i64,
    /// Whether its input was told that it is safe.
    pub is_safe: bool,
    /// Gone once the receipt is resolved, or nobody waits for it any more.
    pub receipt: Option<(Issuer, Delivery)>,
}

/// Batches on their way into the log: first to be written, then to be synced.
#[derive(Default)]
pub struct Commit {
    /// Not written.
    pub pending: VecDeque<Pending>,
    /// Being written or written, and not synced.
    pub unsynced: VecDeque<Pending>,
    /// How many of `unsynced` are being written at this moment.
    pub writing: usize,
    /// Bytes of both.
    pub size: usize,
    /// Bytes that are not written.
    pub pending_size: usize,
    /// Bytes that these, and what is being written, will take in the log.
    pub pending_stored: u64,
    /// When the oldest of both came, by the steady clock.
    pub since: i64,
    /// Why nothing can be written for now.
    pub paused: Option<Arc<str>>,
    /// Events that were not written because it was too late.
    pub given_up: u64,
    /// Somebody waits for room that only upkeep can make: for a batch of so many bytes on disk and so
    /// many events.
    pub wants: Option<(u64, usize)>,
    /// An input waits for that room. As soon as all outputs have passed `release_at`, there will be some.
    pub starving: Option<(u64, usize)>,
    /// The sequence before which a segment ends that may be removed next.
    pub release_at: u64,
}

/// What the queue's lock guards.
pub struct State {
    /// What waits in memory, ascending.
    pub waiting: VecDeque<Waiting>,
    /// Bytes of what waits in memory.
    pub waiting_size: usize,
    pub lanes: Vec<Lane>,
    /// The next sequence for the outputs that go on together.
    pub front: u64,
    /// How many batches these got.
    pub front_turn: u64,
    /// The next sequence for a batch that comes in.
    pub next_sequence: u64,
    /// Events stored so far, ever.
    pub next_ordinal: u64,
    /// Sequences below it that do not wait in memory are stored only.
    pub stored_end: u64,
    /// Stored sequences below it may be read back: they are synced, so that no failure takes them back.
    pub readable_end: u64,
    /// Bytes of the batches in memory, until the outputs that got them together have released or passed them.
    held_size: usize,
    held_events: usize,
    /// Of these, events that are not stored.
    unstored_events: usize,
    /// Events that were not stored and that an output which failed did not take.
    pub failed_events: u64,
    pub closing: Closing,
    /// Nobody takes anything any more.
    pub gives_nothing: bool,
    /// What inputs have in hand is the last: it is let in beyond the limits, and where the disk does not take it refused, so
    /// that its source keeps it.
    pub is_impatient: bool,
    /// The writer is to end.
    pub is_shut: bool,
    pub commit: Commit,
    /// Events stored below it, ever.
    pub readable_ordinal: u64,
    /// What this run stores begins there.
    pub resumed: u64,
    /// Where what earlier runs synced ended, as far as cursors say.
    pub synced_before: LogEnd,
    /// Sequences below it are dropped.
    pub floor: u64,
    /// When an output last passed something, by the steady clock.
    pub last_progress: i64,
}

impl Commit {
    /// The disk takes nothing, and it is too late to wait. What all outputs have passed is delivered all the same; of the
    /// rest inputs learn that it is not, and nothing of it is written any more.
    fn give_up(&mut self, lowest_cursor: u64) {
        for mut pending in self.pending.drain(..).chain(self.unsynced.drain(..)) {
            let is_passed = pending.block.sequence < lowest_cursor;
            if !is_passed && !pending.is_safe {
                self.given_up += u64::from(pending.block.events);
            }
            if let Some((issuer, delivery)) = pending.receipt.take().filter(|_| is_passed) {
                issuer.resolve(delivery);
            }
        }
        (self.size, self.pending_size, self.pending_stored) = (0, 0, 0);
    }

    /// Takes a batch that is to be stored; whether the writer should know of it at once.
    pub fn push(&mut self, pending: Pending) -> bool {
        if self.size == 0 {
            self.since = pending.since;
        }
        let was_idle = self.size == 0;
        let before = self.pending_size;
        self.size += pending.size;
        self.pending_size += pending.size;
        self.pending_stored += pending.block.stored_size();
        self.pending.push_back(pending);
        was_idle || (before < WRITE_SIZE && self.pending_size >= WRITE_SIZE)
    }
}

impl State {
    pub fn new(outputs: usize, now: i64) -> Self {
        let lanes = (0..outputs).map(|_| Lane::new("".into(), 0, 0)).collect();
        Self::with_lanes(lanes, 0, 0, 0, now)
    }

    /// A state at the start: everything below `next_sequence` that is not passed is stored. Outputs begin at `front`, or later.
    pub fn with_lanes(
        lanes: Vec<Lane>,
        front: u64,
        next_sequence: u64,
        next_ordinal: u64,
        now: i64,
    ) -> Self {
        Self {
            waiting: VecDeque::new(),
            waiting_size: 0,
            front,
            lanes,
            front_turn: 0,
            next_sequence,
            next_ordinal,
            stored_end: next_sequence,
            readable_end: next_sequence,
            held_size: 0,
            held_events: 0,
            unstored_events: 0,
            failed_events: 0,
            closing: Closing::Open,
            gives_nothing: false,
            is_impatient: false,
            is_shut: false,
            commit: Commit::default(),
            readable_ordinal: next_ordinal,
            resumed: next_sequence,
            synced_before: LogEnd::default(),
            floor: 0,
            last_progress: now,
        }
    }

    /// Where what may be read back ends.
    pub fn readable(&self) -> LogEnd {
        LogEnd {
            sequence: self.readable_end,
            ordinal: self.readable_ordinal,
        }
    }

    /// Whether something has to be read back before a new batch has its turn.
    pub fn has_backlog(&self) -> bool {
        let next_in_memory = self.waiting.back().map(|waiting| waiting.sequence);
        self.stored_end > self.front && next_in_memory.is_none_or(|last| last < self.stored_end)
    }

    /// Bytes and events of the batches in memory that some output at the front has not passed.
    pub fn held_in_memory(&self) -> (usize, usize) {
        (self.held_size, self.held_events)
    }

    /// What has just come in and waits in memory counts as held until [`State::give_back`].
    pub fn hold(&mut self, size: usize, events: usize, is_stored: bool) {
        self.held_size += size;
        self.held_events += events;
        self.unstored_events += if is_stored { 0 } else { events };
    }

    /// No output holds anything of a batch any more.
    pub fn give_back(&mut self, size: usize, events: usize) {
        self.held_size -= size;
        self.held_events -= events;
    }

    /// Of events that are in memory alone, every output has passed these or let them go.
    pub fn settle_unstored(&mut self, events: usize) {
        self.unstored_events -= events;
    }

    /// Bytes that wait or that the slowest output at the front holds.
    pub fn front_size(&self) -> usize {
        let together = self.lanes.iter().filter(|lane| lane.alone.is_none());
        self.waiting_size + together.map(|lane| lane.in_flight_size).max().unwrap_or(0)
    }

    /// Whether some output goes on alone, so that it needs everything to be stored.
    pub fn somebody_is_alone(&self) -> bool {
        self.lanes.iter().any(|lane| lane.alone.is_some())
    }

    /// The outputs that go on together.
    pub fn together(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lanes.len()).filter(|&lane| self.lanes[lane].alone.is_none())
    }

    /// The outputs to which a batch is offered that is in memory alone: those that go on together, and those that failed,
    /// so that they let it go.
    pub fn together_or_failed(&self) -> impl Iterator<Item = usize> + '_ {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter(|(_, lane)| lane.alone.is_none() || lane.has_failed)
            .map(|(lane, _)| lane)
    }

    /// Whether no output takes anything any more.
    pub fn have_all_failed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.has_failed)
    }

    /// An output takes nothing more in this run. On a disk its cursor stays where it is.
    pub fn fail(&mut self, lane: usize, is_on_disk: bool) {
        let lane = &mut self.lanes[lane];
        lane.has_failed = true;
        if is_on_disk {
            // Like one that goes on alone it needs everything to be stored from now on.
            lane.alone.get_or_insert_default();
        }
    }

    /// The outputs that go on alone, with their readers.
    pub fn alone(&self) -> Vec<(usize, ReaderSlot)> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter(|(_, lane)| !lane.has_failed)
            .filter_map(|(lane, place)| Some((lane, place.alone.clone()?)))
            .collect()
    }

    /// Whether there is nothing more at the front.
    pub fn is_at_end(&self) -> bool {
        match self.closing {
            Closing::Leave => self.waiting.is_empty(),
            _ => self.front == self.next_sequence,
        }
    }

    /// Whether an output that goes on alone has something to read.
    pub fn somebody_is_behind(&self) -> bool {
        let lanes = self.lanes.iter();
        lanes
            .filter(|lane| lane.alone.is_some() && !lane.has_failed)
            .any(|lane| lane.position < self.next_sequence)
    }

    /// Whether some of these outputs has not got the batch yet.
    pub fn is_wanted(&self, who: Who, sequence: u64) -> bool {
        self.of(who).any(|lane| lane.position <= sequence)
    }

    /// Events stored before the next batch of these outputs, if none is missing.
    pub fn expected_ordinal(&self, who: Who) -> u64 {
        let ordinals = self.of(who).map(Lane::next_ordinal);
        ordinals.min().unwrap_or(u64::MAX)
    }

    /// These outputs go on with this sequence, before which so many events were stored, ever.
    pub fn skip_to(&mut self, who: Who, sequence: u64, ordinal: u64) {
        if who == Who::Front {
            self.front = self.front.max(sequence);
        }
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let goes_on = match who {
                Who::Front => lane.alone.is_none(),
                Who::Alone(alone) => index == alone,
            };
            if goes_on {
                lane.skip(sequence, ordinal);
            }
        }
    }

    fn of(&self, who: Who) -> impl Iterator<Item = &Lane> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter(move |(index, lane)| match who {
                Who::Front => lane.alone.is_none(),
                Who::Alone(alone) => *index == alone,
            })
            .map(|(_, lane)| lane)
    }

    /// Whether what is stored has to be read back soon.
    pub fn somebody_reads(&self) -> bool {
        self.has_backlog() || self.somebody_is_alone()
    }

    /// Puts a batch where workers find it.
    pub fn wait_in_memory(&mut self, waiting: Waiting) {
        self.hold(waiting.size, waiting.events, waiting.is_stored());
        self.waiting_size += waiting.size;
        self.waiting.push_back(waiting);
    }

    pub fn take_from_memory(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_size -= waiting.size;
        Some(waiting)
    }

    /// Closes the queue further; never opens it again. Gives the caller what waits in memory only and will not be taken,
    /// which stays counted as held. Copies of what is stored are forgotten.
    pub fn close(&mut self, closing: Closing) -> Vec<Waiting> {
        self.closing = self.closing.max(closing);
        if self.closing < Closing::Leave {
            return Vec::new();
        }
        if self.closing == Closing::Abandoned && self.commit.paused.is_some() {
            let lowest = self.lowest_cursor();
            self.commit.give_up(lowest);
        }
        let waiting = std::mem::take(&mut self.waiting);
        let (stored, mut unstored): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(Waiting::is_stored);
        for copy in &stored {
            self.waiting_size -= copy.size;
            self.give_back(copy.size, copy.events);
        }
        if self.closing == Closing::Leave {
            self.waiting.extend(unstored.drain(..));
        }
        self.waiting_size -= unstored.iter().map(|one| one.size).sum::<usize>();
        unstored
    }

    /// Closes the queue and gives back what is in memory only and was not taken, because nobody wants it: its receipts say
    /// that it was not delivered.
    pub fn forget(&mut self) -> Vec<Waiting> {
        let forgotten = self.close(Closing::Abandoned);
        for entry in &forgotten {
            self.give_back(entry.size, entry.events);
            self.settle_unstored(entry.events);
        }
        self.commit.given_up = 0;
        forgotten
    }

    /// What the queue holds.
    pub fn held(&self) -> Held {
        let lowest = self.lowest_cursor();
        let unsynced = self.commit.pending.iter().chain(&self.commit.unsynced);
        let unsafe_events: u64 = unsynced
            .filter(|pending| !pending.is_safe && pending.block.sequence >= lowest)
            .map(|pending| u64::from(pending.block.events))
            .sum();
        let slowest = self.lanes.iter().map(Lane::ordinal).min();
        let behind = self
            .next_ordinal
            .saturating_sub(slowest.unwrap_or(self.next_ordinal));
        Held {
            unsafe_events: unsafe_events
                + self.commit.given_up
                + self.unstored_events as u64
                + self.failed_events,
            stored_events: behind.saturating_sub(unsafe_events),
            memory_size: self.held_size,
            memory_events: self.held_events,
        }
    }
}
