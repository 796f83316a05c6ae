//! What the queue's lock guards: three parts, each with an invariant of its own, and how far the queue is on its way to its end.
//! Here is what takes more than one of them.

use std::ops::Range;

use super::commit::Commit;
use super::depth::Arrivals;
use super::front::{Front, Waiting};
use super::lane::Lane;
use super::lanes::{Lanes, Recipient};
use super::phase::QueuePhase;
use super::snapshots::Snapshots;
use crate::cursor::LogEnd;
use crate::streams::Streams;

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

/// What the queue's lock guards.
pub struct QueueState {
    pub front: Front,
    pub commit: Commit,
    pub lanes: Lanes,
    /// When what is held came in.
    pub arrivals: Arrivals,
    pub phase: QueuePhase,
    /// Where processors remember what they saw.
    pub snapshots: Option<Snapshots>,
    /// How far streams are stored, where everything is.
    pub streams: Option<Streams>,
}

impl QueueState {
    /// Of a queue in memory.
    pub fn new(outputs: usize, now: i64) -> Self {
        let lanes = (0..outputs).map(|_| Lane::default()).collect();
        let start = LogEnd::default();
        Self::with_lanes(lanes, 0, start, start, now)
    }

    /// A state at the start: everything below `next` that is not passed is stored. Outputs begin at `front`, or later.
    pub fn with_lanes(
        lanes: Vec<Lane>,
        front: u64,
        next: LogEnd,
        synced_before: LogEnd,
        now: i64,
    ) -> Self {
        Self {
            front: Front::new(front, next.sequence),
            commit: Commit::new(next, synced_before),
            lanes: Lanes::new(lanes, now),
            arrivals: Arrivals::default(),
            phase: QueuePhase::default(),
            snapshots: None,
            streams: None,
        }
    }

    /// Bytes that wait or that the slowest output at the front holds.
    pub fn front_size(&self) -> usize {
        self.front.waiting_size() + self.lanes.held_at_front()
    }

    /// Whether there is nothing more at the front.
    pub fn is_at_end(&self) -> bool {
        match self.phase {
            QueuePhase::Leaving => self.front.first().is_none(),
            _ => self.front.is_at_end(),
        }
    }

    /// Whether what is stored has to be read back soon.
    pub fn somebody_reads(&self) -> bool {
        self.front.has_backlog() || self.lanes.is_somebody_alone()
    }

    /// Events that were stored and that some output has not passed.
    pub fn behind(&self) -> u64 {
        let next = self.commit.next_ordinal();
        next.saturating_sub(self.lanes.slowest_ordinal().unwrap_or(next))
    }

    /// The lowest sequence that some output has not passed.
    pub fn lowest_cursor(&self) -> u64 {
        let lowest = self.lanes.lowest_cursor();
        lowest.unwrap_or_else(|| self.front.next_sequence())
    }

    /// The lowest sequence that is needed of the log, by outputs or by what processors remember.
    pub fn lowest_needed(&self) -> u64 {
        let lowest = self.lowest_cursor();
        let base = self.snapshots.as_ref().map_or(lowest, Snapshots::base);
        // What is dropped is not processed again either.
        lowest.min(base.max(self.lanes.floor()))
    }

    /// Whether the next batch of the front may be given. Where processors remember what they saw, a restart has to have something to go on
    /// from, and what waits in memory has to be safe in the log.
    pub fn may_give(&self) -> bool {
        let is_safe = |first: &Waiting| first.sequence < self.commit.safe_end();
        self.snapshots
            .as_ref()
            .is_none_or(|snapshots| snapshots.has_base() && self.front.first().is_none_or(is_safe))
    }

    /// Whether processors are to be asked for what they remember although there is no batch.
    pub fn is_snapshot_due_at_rest(&self) -> bool {
        let is_at_rest = self.front.is_at_end() && self.phase.accepts();
        let makes_room = self.commit.wants_segment(self.front.sequence());
        let is_due = |snapshots: &Snapshots| snapshots.is_due_at_rest(makes_room);
        is_at_rest && self.snapshots.as_ref().is_some_and(is_due)
    }

    /// Processors are asked for what they remember after the last batch, whose sequence is given.
    pub fn ask_at_rest(&mut self) -> u64 {
        let position = self.front.sequence();
        let ordinal = self.lanes.ordinal_at(position);
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.ask_at_rest(ordinal);
        }
        position.saturating_sub(1)
    }

    /// The sequence with which these outputs go on; none where an output does not go on alone.
    pub fn reads_from(&self, recipient: Recipient) -> Option<u64> {
        match recipient {
            Recipient::Front => Some(self.front.sequence()),
            Recipient::Alone(lane) => {
                let may_read = self.lanes.may_read_alone(lane);
                may_read.then(|| self.lanes.of(lane).position())
            }
        }
    }

    /// These outputs go on with this sequence, before which so many events were stored, ever.
    pub fn skip_to(&mut self, recipient: Recipient, sequence: u64, ordinal: u64) {
        if recipient == Recipient::Front {
            self.front.skip_to(sequence);
        }
        self.lanes.skip_to(recipient, sequence, ordinal);
    }

    /// Drops what is stored up to a batch with these ordinals, which is included; the most events that this costs some output.
    pub fn drop_to(&mut self, sequence: u64, ordinals: &Range<u64>) -> u64 {
        let floor = sequence + 1;
        let position = self.front.drop_below(floor);
        self.lanes.raise(floor, position, ordinals)
    }

    /// Goes on to a phase, never back. Gives the caller what waits in memory only and will not be taken, which stays counted
    /// as held. Copies of what is stored are forgotten.
    pub fn advance(&mut self, phase: QueuePhase) -> Vec<Waiting> {
        let is_aborted = [self.phase, phase].contains(&QueuePhase::Aborted);
        self.phase = self.phase.advanced(phase);
        if is_aborted && self.commit.is_paused() {
            self.commit.give_up(self.lowest_cursor());
        }
        if self.phase >= QueuePhase::Leaving {
            self.front.drop_copies();
        }
        match self.phase >= QueuePhase::Aborted {
            true => self.front.take_all(),
            false => Vec::new(),
        }
    }

    /// Aborts and gives back what is in memory only and was not taken, because nobody wants it: its receipts say that it was
    /// not delivered.
    pub fn forget(&mut self) -> Vec<Waiting> {
        let forgotten = self.advance(QueuePhase::Aborted);
        for entry in &forgotten {
            self.front.give_back(entry.size, entry.events);
            self.front.settle_unstored(entry.events);
        }
        self.commit.forget_given_up();
        forgotten
    }

    /// What the queue holds.
    pub fn held(&self) -> Held {
        let unsynced = self.commit.unsafe_events(self.lowest_cursor()) + self.commit.given_up();
        let (memory_size, memory_events) = self.front.held();
        Held {
            unsafe_events: unsynced + self.front.unsafe_events(),
            stored_events: self.behind().saturating_sub(unsynced),
            memory_size,
            memory_events,
        }
    }
}
