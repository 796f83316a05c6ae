//! The outputs' places in the queue.
//!
//! Invariant: positions, cursors and the floor only go up. Nothing that is stored below the floor is given out or kept for
//! anybody. An output goes through the queue with the others or alone, never both; one that failed keeps its cursor, and is
//! given only what is in memory alone, so that it lets it go.

use std::ops::Range;

use super::lane::{Lane, ReaderSlot, Weight};
use crate::cursor::Passed;

/// That an output gets a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneTurn {
    /// The output.
    pub lane: usize,
    /// How many batches it got before this one.
    pub turn: u64,
}

/// That an output that went on alone goes on with the others again, or takes nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// The output.
    pub lane: usize,
    /// The number of the first batch that it got alone.
    pub first: u64,
    /// The number of the one after those.
    pub end: u64,
}

/// How near to the front an output that goes on alone is waited for, in batches, so that it joins.
const NEAR: u64 = 8;

/// How long outputs count as making progress after one of them passed something.
const PATIENCE_NS: i64 = 1_000_000_000;

/// Who gets the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    Front,
    Alone(usize),
}

impl Recipient {
    fn is(self, index: usize, lane: &Lane) -> bool {
        match self {
            Self::Front => !lane.is_alone(),
            Self::Alone(alone) => index == alone,
        }
    }
}

/// Where an output is, to be saved.
pub struct LanePlace {
    /// The output's name.
    pub name: String,
    /// The lowest sequence that it has not passed.
    pub cursor: u64,
    /// Events stored before that, ever.
    pub ordinal: u64,
    /// What it has passed beyond the cursor.
    pub passed: Passed,
}

/// The outputs' places.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Sequences below it are dropped.
    floor: u64,
    /// When an output last passed something, by the steady clock.
    last_progress: i64,
    /// Outputs that go on alone from the next batch of the front on: their processors part from those of the front right before it.
    parting: Vec<usize>,
    /// Outputs whose processors a worker parts from those of the front at this moment.
    copying: Vec<LaneTurn>,
    /// Outputs that have joined since the last batch of the front, or failed.
    joined: Vec<Joined>,
}

impl Lanes {
    pub fn new(lanes: Vec<Lane>, now: i64) -> Self {
        Self {
            lanes,
            floor: 0,
            last_progress: now,
            parting: Vec::new(),
            copying: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// An output's place.
    pub fn of(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// The outputs that go on together.
    pub fn together(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lanes.len()).filter(|&lane| !self.lanes[lane].is_alone())
    }

    /// The outputs that go on alone, with their readers.
    pub fn alone(&self) -> Vec<(usize, ReaderSlot)> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter(|(index, _)| self.may_read_alone(*index))
            .filter_map(|(lane, place)| Some((lane, place.alone()?.clone())))
            .collect()
    }

    /// Whether an output goes on alone, and its processors have parted from those of the others.
    pub fn may_read_alone(&self, lane: usize) -> bool {
        let place = &self.lanes[lane];
        let has_parted =
            !self.parting.contains(&lane) && self.copying.iter().all(|one| one.lane != lane);
        place.is_alone() && !place.has_failed() && has_parted
    }

    /// Whether some output goes on alone, so that it needs everything to be stored.
    pub fn is_somebody_alone(&self) -> bool {
        self.lanes.iter().any(Lane::is_alone)
    }

    /// Whether an output that goes on alone has something to read before a sequence.
    pub fn is_somebody_behind(&self, end: u64) -> bool {
        let mut alone = self.lanes.iter().filter(|lane| lane.is_alone());
        alone.any(|lane| !lane.has_failed() && lane.position() < end)
    }

    /// Whether an output that goes on alone is so near to the front that it is waited for.
    pub fn joins_soon(&self, lane: usize, front: u64) -> bool {
        self.lanes[lane].position() + NEAR >= front
    }

    /// Lets those join again that have caught up with the front. One that does not take a batch yet would be left behind again
    /// at once.
    pub fn join(&mut self, front: u64, has_room: &dyn Fn(usize) -> bool) {
        for index in 0..self.lanes.len() {
            let lane = &mut self.lanes[index];
            let has_caught_up = lane.is_alone() && lane.position() >= front;
            if has_caught_up && !lane.has_failed() && lane.may_hold() && has_room(index) {
                lane.join();
                self.leave_alone(index);
            }
        }
    }

    /// An output needs processors of its own no more, or never did.
    fn leave_alone(&mut self, lane: usize) {
        match self.parting.iter().position(|parting| *parting == lane) {
            Some(place) => drop(self.parting.swap_remove(place)),
            None => self.joined.push(Joined {
                lane,
                first: self.lanes[lane].parted_at(),
                end: self.lanes[lane].turn(),
            }),
        }
    }

    /// Lets those of the `full` outputs go on alone that are at the front and hold more than this, in bytes. The log has
    /// everything from there on. With processors that are `ordered`, the outputs go on alone from the next batch of the front on.
    pub fn part(&mut self, full: &[usize], front: u64, size_max: usize, ordered: bool) {
        for &index in full {
            let lane = &mut self.lanes[index];
            let may_part = lane.position() == front && !(ordered && lane.has_passed_before());
            if may_part && lane.is_behind(size_max) {
                lane.part();
                if ordered {
                    self.parting.push(index);
                }
            }
        }
    }

    /// Whether some of these outputs go on together and hold more than this, in bytes.
    pub fn is_one_behind(&self, those: &[usize], size_max: usize) -> bool {
        let mut those = those.iter().map(|&lane| &self.lanes[lane]);
        those.any(|lane| !lane.is_alone() && lane.is_behind(size_max))
    }

    /// Who parts from the outputs that go on together right before the batch that these get now, with the number of the first
    /// batch that it gets alone, which is not before [`Lanes::has_parted`], and who has joined them.
    pub fn take_changes(&mut self) -> (Vec<LaneTurn>, Vec<Joined>) {
        let parting = std::mem::take(&mut self.parting);
        let turn = |lane: usize| LaneTurn {
            lane,
            turn: self.lanes[lane].turn(),
        };
        let parting: Vec<LaneTurn> = parting.into_iter().map(turn).collect();
        self.copying.extend(&parting);
        (parting, std::mem::take(&mut self.joined))
    }

    /// The processors of these outputs have parted from those of the front.
    pub fn has_parted(&mut self, those: &[LaneTurn]) {
        self.copying.retain(|one| !those.contains(one));
    }

    /// An output takes nothing more in this run. On a disk its cursor stays where it is.
    pub fn fail(&mut self, lane: usize, is_on_disk: bool) {
        if self.lanes[lane].is_alone() && !self.lanes[lane].has_failed() {
            self.leave_alone(lane);
        }
        let lane = &mut self.lanes[lane];
        lane.fail();
        if is_on_disk {
            // Like one that goes on alone it needs everything to be stored from now on.
            lane.part();
        }
    }

    /// An output may hold so many batches more than usual.
    pub fn let_ahead(&mut self, lane: usize, more: usize) {
        self.lanes[lane].let_ahead(more);
    }

    /// Whether no output takes anything any more.
    pub fn have_all_failed(&self) -> bool {
        self.lanes.iter().all(Lane::has_failed)
    }

    /// Gives a batch to those that are to get it: their turns. `ordinal_end` says how many events are stored up to its end, where
    /// it is stored.
    pub fn give(
        &mut self,
        recipient: Recipient,
        sequence: u64,
        weight: Weight,
        ordinal_end: Option<u64>,
    ) -> Vec<LaneTurn> {
        let is_stored = ordinal_end.is_some();
        let mut turns = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            // One that failed lets go of what is in memory alone.
            let lets_go = recipient == Recipient::Front && !is_stored && lane.has_failed();
            if !recipient.is(index, lane) && !lets_go {
                continue;
            }
            let turn = if lane.has_failed() {
                lane.offer_failed(is_stored)
            } else {
                let wants = lane.wants(sequence);
                if let Some(ordinal) = ordinal_end.filter(|_| !wants) {
                    lane.skip(sequence + 1, ordinal);
                }
                wants.then(|| lane.give(sequence, weight, ordinal_end))
            };
            turns.extend(turn.map(|turn| LaneTurn { lane: index, turn }));
        }
        turns
    }

    /// An output holds nothing of a batch any more, which it is still to pass; whether it holds nothing at all now.
    pub fn release(&mut self, lane: usize, sequence: u64) -> bool {
        self.lanes[lane].release(sequence);
        self.lanes[lane].is_idle()
    }

    /// An output has passed a batch; whether it may hold one more now and could not before.
    pub fn pass(&mut self, lane: usize, sequence: u64, now: i64) -> bool {
        self.last_progress = now;
        let lane = &mut self.lanes[lane];
        let was_held_up = !lane.may_hold();
        lane.pass(sequence);
        was_held_up && lane.may_hold()
    }

    /// An output that failed has let go of a batch that is in memory alone.
    pub fn let_go(&mut self, lane: usize, sequence: u64) {
        self.lanes[lane].pass(sequence);
    }

    /// Whether an output passed something not long ago.
    pub fn make_progress(&self, now: i64) -> bool {
        now - self.last_progress < PATIENCE_NS
    }

    /// Nobody had anything to make progress with.
    pub fn excuse(&mut self, now: i64) {
        self.last_progress = now;
    }

    /// The most bytes that an output at the front holds.
    pub fn held_at_front(&self) -> usize {
        let together = self.lanes.iter().filter(|lane| !lane.is_alone());
        together.map(Lane::in_flight_size).max().unwrap_or(0)
    }

    /// Whether some output at the front has nothing to do.
    pub fn is_somebody_idle(&self) -> bool {
        let mut together = self.lanes.iter().filter(|lane| !lane.is_alone());
        together.any(Lane::is_idle)
    }

    /// Whether a batch is to be given to some of these outputs.
    pub fn is_wanted(&self, recipient: Recipient, sequence: u64) -> bool {
        let mut lanes = self.these(recipient);
        sequence >= self.floor && lanes.any(|lane| lane.wants(sequence))
    }

    /// Events stored before the next batch of these outputs, if none is missing.
    pub fn expected_ordinal(&self, recipient: Recipient) -> u64 {
        let ordinals = self.these(recipient).map(Lane::next_ordinal);
        ordinals.min().unwrap_or(u64::MAX)
    }

    /// Events that were stored before a sequence, ever, as far as outputs know that get it next.
    pub fn ordinal_at(&self, sequence: u64) -> u64 {
        let there = self.lanes.iter().filter(|it| it.position() == sequence);
        there.map(Lane::next_ordinal).max().unwrap_or(0)
    }

    fn these(&self, recipient: Recipient) -> impl Iterator<Item = &Lane> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter(move |(index, lane)| recipient.is(*index, lane))
            .map(|(_, lane)| lane)
    }

    /// These outputs go on with this sequence, before which so many events were stored, ever.
    pub fn skip_to(&mut self, recipient: Recipient, sequence: u64, ordinal: u64) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let is_parting = recipient == Recipient::Front && self.parting.contains(&index);
            if recipient.is(index, lane) || is_parting {
                lane.skip(sequence, ordinal);
            }
        }
    }

    /// What is stored below `floor` is dropped, and the outputs go on at `position` or later; the most events that this costs
    /// one of them. `last` are the ordinals of the batch right below the floor.
    pub fn raise(&mut self, floor: u64, position: u64, last: &Range<u64>) -> u64 {
        self.floor = self.floor.max(floor);
        let lanes = self.lanes.iter_mut();
        let dropped = lanes.map(|lane| lane.raise(floor, position, last));
        dropped.max().unwrap_or(0)
    }

    /// Sequences below it are dropped.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The lowest sequence that some output has not passed.
    pub fn lowest_cursor(&self) -> Option<u64> {
        let lowest = self.lanes.iter().map(Lane::cursor).min();
        lowest.map(|lowest| lowest.max(self.floor))
    }

    /// Events that were stored before the lowest cursor, ever.
    pub fn slowest_ordinal(&self) -> Option<u64> {
        self.lanes.iter().map(Lane::ordinal).min()
    }

    /// Where every output is.
    pub fn places(&self) -> Vec<LanePlace> {
        let place = |lane: &Lane| LanePlace {
            name: lane.name().to_owned(),
            // Below the floor an output can only hold what is in memory alone.
            cursor: lane.cursor().max(self.floor),
            ordinal: lane.ordinal(),
            passed: lane.passed(),
        };
        self.lanes.iter().map(place).collect()
    }

    /// Events that were dropped under the hands of an output and that it has not passed by the end: the most of one.
    pub fn take_dropped_in_hand(&mut self) -> u64 {
        let lanes = self.lanes.iter_mut();
        lanes.map(Lane::take_dropped_in_hand).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(positions: [u64; 2]) -> Lanes {
        let lane = |position| Lane::new("es".into(), position, position * 10, Passed::default());
        Lanes::new(positions.map(lane).into(), 0)
    }

    #[test]
    fn an_output_that_is_about_to_part_skips_what_is_lost_with_the_others() {
        let mut lanes = two([5, 5]);
        lanes.part(&[1], 5, 0, true);
        assert!(lanes.of(1).is_alone() && !lanes.may_read_alone(1));
        lanes.skip_to(Recipient::Front, 9, 90);
        assert_eq!(lanes.of(1).position(), 9);
        lanes.join(9, &|_| true);
        assert!(!lanes.of(1).is_alone());
        assert!(lanes.take_changes().0.is_empty());
    }

    #[test]
    fn what_lies_before_a_sequence_is_known_from_those_that_get_it_next() {
        let mut lanes = two([5, 7]);
        assert_eq!([5, 6, 7].map(|at| lanes.ordinal_at(at)), [50, 0, 70]);
        lanes.fail(0, true);
        lanes.fail(1, true);
        assert_eq!(lanes.ordinal_at(5), 50);
    }
}
