//! One output's place in the queue.
//!
//! Invariant: the cursor is the lowest sequence that the output has not passed, the position the next one that it gets. What lies
//! between is in flight, or was dropped, or was passed in an earlier run: this it does not get again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::AHEAD_MAX;
use crate::cursor::Passed;
use crate::log::BlockReader;

/// A reader of the log, made when it is first needed, and the sequence that it gives next.
pub type ReaderSlot = Arc<Mutex<Option<(BlockReader, u64)>>>;

/// One output's place.
#[derive(Default)]
pub struct Lane {
    /// The output's name.
    name: Arc<str>,
    /// The next sequence that the output gets.
    position: u64,
    /// How many batches it got: it knows by this number which one comes next.
    turn: u64,
    /// Batches it got and has not passed, and later ones that it has.
    in_flight: BTreeMap<u64, Flight>,
    /// Batches beyond the cursor that it passed in an earlier run.
    passed_before: Passed,
    /// Batches it holds that were dropped under its hands, with their events: it may still pass them.
    dropped_in_hand: BTreeMap<u64, u64>,
    /// Bytes of the batches that it has neither released nor passed.
    in_flight_size: usize,
    /// Events stored before the cursor.
    passed_ordinal: u64,
    /// Events stored before the position.
    next_ordinal: u64,
    /// Set while it goes on alone.
    alone: Option<ReaderSlot>,
    /// The number of the first batch that it got alone.
    parted_at: u64,
    /// It takes nothing more in this run: its cursor stays, and it gets only what no later run would give it.
    has_failed: bool,
    /// How many batches more than usual it may hold beyond its cursor.
    ahead_more: usize,
}

/// What a batch counts for.
#[derive(Debug, Clone, Copy)]
pub struct Weight {
    /// Bytes.
    pub size: usize,
    pub events: u64,
}

struct Flight {
    passed: bool,
    /// Nothing of it counts as held any more.
    released: bool,
    size: usize,
    events: u64,
    /// Events stored up to the end of the batch, where it is stored.
    ordinal_end: Option<u64>,
}

impl Flight {
    /// What it counted for until now, in bytes.
    fn release(&mut self) -> usize {
        match std::mem::replace(&mut self.released, true) {
            true => 0,
            false => self.size,
        }
    }
}

impl Lane {
    /// An output that goes on at `position`, before which so many events were stored, and has passed some batches beyond it.
    pub fn new(name: Arc<str>, position: u64, ordinal: u64, passed: Passed) -> Self {
        Self {
            name,
            position,
            passed_before: passed,
            passed_ordinal: ordinal,
            next_ordinal: ordinal,
            ..Self::default()
        }
    }

    /// The output's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next sequence that it gets.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the batches that it has neither released nor passed.
    pub fn in_flight_size(&self) -> usize {
        self.in_flight_size
    }

    /// Its reader, where it goes on alone.
    pub fn alone(&self) -> Option<&ReaderSlot> {
        self.alone.as_ref()
    }

    /// Whether it goes on alone, or would if it had not failed, so that it needs everything to be stored.
    pub fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// It goes on alone.
    pub fn part(&mut self) {
        if self.alone.is_none() {
            self.alone = Some(ReaderSlot::default());
            self.parted_at = self.turn;
        }
    }

    /// How many batches it had got when it went on alone.
    pub fn parted_at(&self) -> u64 {
        self.parted_at
    }

    /// It goes on with the others again.
    pub fn join(&mut self) {
        self.alone = None;
    }

    /// How many batches it got.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Whether there are batches beyond its position that it passed in an earlier run.
    pub fn has_passed_before(&self) -> bool {
        !self.passed_before.is_empty()
    }

    /// Whether it takes nothing more in this run.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// It takes nothing more in this run.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// The lowest sequence that it has not passed.
    pub fn cursor(&self) -> u64 {
        let first = self.in_flight.first_key_value();
        first.map_or(self.position, |(sequence, _)| *sequence)
    }

    /// Whether it is to get a batch. One that was further in an earlier run does not get it again.
    pub fn wants(&self, sequence: u64) -> bool {
        self.position <= sequence && !self.passed_before.contains(sequence)
    }

    /// The stored batches beyond its cursor that it has passed.
    pub fn passed(&self) -> Passed {
        let mut passed = self.passed_before.clone();
        let mut run = 0..0;
        let flights = self.in_flight.iter();
        for (&sequence, _) in flights.filter(|(_, flight)| flight.passed && flight.events > 0) {
            if run.end != sequence {
                passed.insert(std::mem::replace(&mut run, sequence..sequence));
            }
            run.end = sequence + 1;
        }
        passed.insert(run);
        passed
    }

    /// Events stored before its cursor, ever.
    pub fn ordinal(&self) -> u64 {
        // What was missing before the batch at the cursor is behind it, too.
        let first = self.in_flight.first_key_value();
        let begin = first.and_then(|(_, flight)| Some(flight.ordinal_end? - flight.events));
        self.passed_ordinal.max(begin.unwrap_or(0))
    }

    /// Events stored before its position, ever: what the next stored batch begins with, if none is missing.
    pub fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }

    /// Whether it may hold one more batch.
    pub fn may_hold(&self) -> bool {
        self.in_flight.len() < AHEAD_MAX + self.ahead_more
    }

    /// It may hold so many batches more than usual.
    pub fn let_ahead(&mut self, more: usize) {
        self.ahead_more = more;
    }

    /// Whether it holds more than this, in bytes, or as many batches as it may.
    pub fn is_behind(&self, size_max: usize) -> bool {
        self.in_flight_size >= size_max || !self.may_hold()
    }

    /// Whether it holds nothing and takes what it is given.
    pub fn is_idle(&self) -> bool {
        self.in_flight_size == 0 && self.may_hold()
    }

    /// It gets a batch; the number of its turn.
    pub fn give(&mut self, sequence: u64, what: Weight, ordinal_end: Option<u64>) -> u64 {
        let Weight { size, events } = what;
        self.position = sequence + 1;
        self.next_ordinal = ordinal_end.unwrap_or(self.next_ordinal);
        let flight = Flight {
            passed: false,
            released: false,
            size,
            events,
            ordinal_end,
        };
        self.in_flight.insert(sequence, flight);
        self.in_flight_size += size;
        self.turn += 1;
        self.turn - 1
    }

    /// It has failed and would get a batch. What is stored waits for its next run; it gets what is in memory alone, and lets
    /// it go: the number of its turn.
    pub fn offer_failed(&mut self, is_stored: bool) -> Option<u64> {
        if is_stored {
            return None;
        }
        self.turn += 1;
        Some(self.turn - 1)
    }

    /// It has passed a batch.
    pub fn pass(&mut self, sequence: u64) {
        let Some(flight) = self.in_flight.get_mut(&sequence) else {
            self.dropped_in_hand.remove(&sequence);
            return;
        };
        flight.passed = true;
        self.in_flight_size -= flight.release();
        self.move_cursor();
    }

    /// It holds nothing of a batch any more, which it is still to pass.
    pub fn release(&mut self, sequence: u64) {
        if let Some(flight) = self.in_flight.get_mut(&sequence) {
            self.in_flight_size -= flight.release();
        }
    }

    fn move_cursor(&mut self) {
        while let Some(first) = self.in_flight.first_entry() {
            if !first.get().passed {
                break;
            }
            let flight = first.remove();
            self.passed_ordinal = flight.ordinal_end.unwrap_or(self.passed_ordinal);
        }
        self.passed_before.forget_below(self.cursor());
    }

    /// It goes on with this sequence, before which so many events were stored, ever: what lies between is gone.
    pub fn skip(&mut self, sequence: u64, ordinal: u64) {
        if self.position >= sequence {
            return;
        }
        let gap = Flight {
            passed: true,
            released: true,
            size: 0,
            events: 0,
            ordinal_end: Some(ordinal),
        };
        self.in_flight.insert(sequence - 1, gap);
        self.position = sequence;
        self.next_ordinal = self.next_ordinal.max(ordinal);
        self.move_cursor();
    }

    /// What is stored below the floor is dropped, and the output goes on at `position` or later; how many stored events that
    /// it had not got. `last` are the ordinals of the batch right below the floor. Batches that it holds and that are in memory only
    /// are not dropped.
    pub fn raise(&mut self, floor: u64, position: u64, last: &Range<u64>) -> u64 {
        let ordinal = last.end;
        let passed = match floor
            .checked_sub(1)
            .is_some_and(|last| self.passed_before.contains(last))
        {
            true => last.end - last.start.clamp(self.next_ordinal.min(last.end), last.end),
            false => 0,
        };
        let dropped = self
            .in_flight
            .extract_if(..floor, |_, flight| flight.ordinal_end.is_some());
        for (sequence, mut flight) in dropped.filter(|(_, flight)| !flight.passed) {
            self.in_flight_size -= flight.release();
            self.dropped_in_hand.insert(sequence, flight.events);
        }
        self.position = self.position.max(position);
        self.move_cursor();
        // What it holds may still be written.
        let dropped = ordinal.saturating_sub(self.next_ordinal + passed);
        self.passed_ordinal = self.passed_ordinal.max(ordinal);
        self.next_ordinal = self.next_ordinal.max(ordinal);
        dropped
    }

    /// Events that were dropped under its hands and that it has not passed by the end.
    pub fn take_dropped_in_hand(&mut self) -> u64 {
        let dropped = std::mem::take(&mut self.dropped_in_hand);
        dropped.into_values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_before_the_batch_at_the_cursor_is_behind_the_cursor() {
        let mut lane = Lane::new("es".into(), 2, 10, Passed::default());
        let five = Weight { size: 1, events: 5 };
        lane.give(2, five, Some(15));
        // 34 events are missing.
        lane.give(8, five, Some(54));
        assert_eq!((lane.cursor(), lane.ordinal()), (2, 10));
        lane.pass(2);
        assert_eq!((lane.cursor(), lane.ordinal()), (8, 49));
        lane.pass(8);
        assert_eq!((lane.cursor(), lane.ordinal()), (9, 54));
    }
}
