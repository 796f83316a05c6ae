//! What the simulation knows of each batch, and what has to hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batch::Batch;
use component::Receipt;
use queue::cursor::Saved;
use queue::{Entry, Joined, LaneTurn, ProcessorState, Ticket};

use crate::support::batches::Content;

/// A batch that was accepted.
#[derive(Debug)]
pub struct Sent {
    pub content: Content,
    /// Its receipt resolved.
    pub is_acked: bool,
    /// A sync that began after the receipt had resolved succeeded.
    pub is_synced: bool,
    /// It may be missing: it was dropped by policy, or damaged.
    pub is_excused: bool,
    /// Its input went on behind it without sending it again.
    pub is_given_up: bool,
}

/// A batch that an output has and did not pass.
#[derive(Debug)]
pub struct Held {
    pub number: u64,
    pub ticket: Arc<Ticket>,
}

/// What is known of an output.
#[derive(Debug, Default)]
pub struct Output {
    /// Batches from this number on are its own.
    pub since: u64,
    /// What it passed in all runs.
    passed: BTreeSet<u64>,
    /// What it has not passed and may still have to get.
    missing: BTreeSet<u64>,
    pub held: VecDeque<Held>,
    /// What it was given last in this run.
    last_given: Option<u64>,
    next_turn: u64,
    /// Nothing below it is given again: it was passed before a clean stop, or a note and the end of the process.
    no_repeat_below: u64,
    /// What its cursor file says at the start of this run.
    saved: Option<Saved>,
    /// Batches that never came.
    missed: Vec<u64>,
    pub is_slow: bool,
}

/// Everything known.
#[derive(Debug, Default)]
pub struct Model {
    pub sent: BTreeMap<u64, Sent>,
    pub next_number: u64,
    pub receipts: Vec<(u64, Receipt)>,
    pub outputs: BTreeMap<String, Output>,
    /// The outputs of this run, by lane.
    pub lanes: Vec<String>,
    front_turn: u64,
    /// How many batches were given to outputs.
    pub given: u64,
    /// Events that policies dropped in earlier runs.
    pub dropped_before: u64,
    /// What a processor remembers.
    memory: Memory,
    /// What the copies remember that outputs have which go on alone, by output and the number of its first batch.
    apart: BTreeMap<(usize, u64), Memory>,
    /// Those of which the queue has not been told that the copies are there, with the number of the first batch of each.
    pub parting: Vec<LaneTurn>,
    /// What it remembered after each sequence, when it first got there, and which batch that was.
    remembered: BTreeMap<u64, (Memory, u64)>,
    /// The part of that which a power cut may have taken back.
    unsure: BTreeMap<u64, (Memory, u64)>,
}

/// What a processor remembers: all batches that it has seen, and in which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    /// The sequence after the last one.
    position: u64,
    /// A hash of their numbers.
    hash: u64,
}

impl Memory {
    fn state(self) -> ProcessorState {
        ProcessorState {
            name: "memory".to_owned(),
            fingerprint: 1,
            bytes: [self.position.to_le_bytes(), self.hash.to_le_bytes()].concat(),
        }
    }

    fn of(states: &[ProcessorState]) -> Self {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        states.first().map_or_else(Self::default, |state| Self {
            position: number(&state.bytes[..8]),
            hash: number(&state.bytes[8..]),
        })
    }
}

impl Model {
    /// A batch was accepted: for all outputs ever seen, or for those of this run alone.
    pub fn accept(&mut self, content: Content, receipt: Receipt, is_for_all: bool) {
        let number = content.number;
        let sent = Sent {
            content,
            is_acked: false,
            is_synced: false,
            is_excused: false,
            is_given_up: false,
        };
        self.sent.insert(number, sent);
        self.receipts.push((number, receipt));
        for (name, output) in &mut self.outputs {
            if is_for_all || self.lanes.contains(name) {
                output.missing.insert(number);
            }
        }
    }

    /// It was sent again and left out, because it is stored. `is_sure` where that excuses nothing any more.
    pub fn leave_out(&mut self, number: u64, receipt: Receipt, is_sure: bool) {
        if is_sure {
            let sent = self.sent.get_mut(&number).expect("it was sent");
            sent.is_excused = false;
        }
        self.receipts.push((number, receipt));
    }

    /// Whether it is certain that a batch is stored.
    pub fn is_stored(&self, number: u64) -> bool {
        let sent = &self.sent[&number];
        let was_seen = self.remembered.values().any(|(_, seen)| *seen == number);
        (sent.is_acked && !sent.is_excused) || was_seen
    }

    /// Looks which receipts have resolved; whether that means that the batch is synced.
    pub fn poll(&mut self, is_safe: bool) {
        let sent = &mut self.sent;
        self.receipts.retain_mut(|(number, receipt)| {
            let Some(resolved) = receipt.try_delivered() else {
                return true;
            };
            let sent = sent.get_mut(number).expect("it was sent");
            if let Ok(delivery) = resolved {
                sent.is_acked = true;
                sent.is_synced |= is_safe;
                let dropped = delivery.streams.iter().flat_map(|stream| &stream.dropped);
                sent.is_excused |= dropped.count() > 0;
            }
            false
        });
    }

    pub fn acked(&self) -> Vec<u64> {
        let acked = self.sent.iter().filter(|(_, sent)| sent.is_acked);
        acked.map(|(number, _)| *number).collect()
    }

    pub fn mark_synced(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(sent) = self.sent.get_mut(number) {
                sent.is_synced = true;
            }
        }
    }

    /// A batch was given to outputs. What they miss then comes no more.
    pub fn give(
        &mut self,
        batch: &Batch,
        Entry {
            sequence,
            lanes,
            turn,
            ticket,
            ..
        }: &Entry,
    ) {
        let sequence = *sequence;
        let content = Content::of(batch);
        let number = content.number;
        let sent = self.sent.get(&number).expect("it was sent");
        assert!(
            sent.content == content,
            "batch {number} has other documents"
        );
        self.check_turn(*turn);
        self.given += 1;
        for lane in lanes {
            let name = &self.lanes[lane.lane];
            let output = self.outputs.get_mut(name).expect("it is configured");
            output.take_turn(*lane);
            assert!(
                output.last_given.is_none_or(|last| last < number),
                "{name} got batch {number} after {:?}",
                output.last_given
            );
            assert!(
                number >= output.no_repeat_below,
                "{name} got batch {number} again after a clean stop or a note"
            );
            let is_due = |saved: &Saved| saved.is_due(sequence);
            assert!(
                output.saved.as_ref().is_none_or(is_due),
                "{name} got batch {number}, sequence {sequence}, which its cursor file says it had passed"
            );
            output.last_given = Some(number);
            output.pass_over(number, &self.sent);
            let ticket = Arc::clone(ticket);
            output.held.push_back(Held { number, ticket });
        }
    }

    /// Outputs go on alone, or together again.
    pub fn part_and_join(&mut self, entry: &Entry) {
        for Joined { lane, first, end } in &entry.joined {
            assert!(
                first <= end,
                "output {lane} joins at {end}, and parted at {first}"
            );
            let gone = self.apart.remove(&(*lane, *first));
            assert!(gone.is_some(), "output {lane} had gone on alone");
        }
        for place in &entry.parting {
            self.apart.insert((place.lane, place.turn), self.memory);
        }
        self.parting.extend(&entry.parting);
    }

    /// A processor that remembers what it saw gets a batch; `is_exact` where nothing can be missing from what it saw.
    pub fn remember(&mut self, entry: &Entry, number: u64, is_exact: bool) {
        let sequence = entry.sequence;
        self.part_and_join(entry);
        let memory = match (entry.turn, entry.lanes.first()) {
            (None, Some(LaneTurn { lane, turn })) => {
                let is_early = self.parting.iter().any(|place| place.lane == *lane);
                assert!(
                    !is_early,
                    "output {lane} gets {sequence} before it has parted"
                );
                let mut own = self.apart.range_mut((*lane, 0)..=(*lane, *turn));
                own.next_back().expect("it has a processor of its own").1
            }
            _ => &mut self.memory,
        };
        let Memory { position, hash } = *memory;
        assert!(position <= sequence, "{sequence} comes after {position}");
        *memory = Memory {
            position: sequence + 1,
            hash: (hash ^ (number + 1))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(17),
        };
        let new = (*memory, number);
        let first = *self.remembered.entry(sequence).or_insert(new);
        assert!(
            first == new || !is_exact,
            "after sequence {sequence} it remembers {new:?}, which was {first:?} before",
        );
    }

    /// What the processor remembers now.
    pub fn states(&self) -> Vec<ProcessorState> {
        vec![self.memory.state()]
    }

    /// What the processor remembers in a new run.
    pub fn recall(&mut self, states: &[ProcessorState], is_exact: bool) {
        self.memory = Memory::of(states);
        self.apart.clear();
        self.parting.clear();
        let position = self.memory.position;
        let unsure = std::mem::take(&mut self.unsure);
        let last = unsure.range(..position).next_back();
        if last.is_some_and(|(_, (memory, _))| *memory == self.memory) {
            // It was on disk.
            let there = unsure.range(..position);
            self.remembered
                .extend(there.map(|(sequence, one)| (*sequence, *one)));
        }
        let last = self.remembered.range(..position).next_back();
        let before = last.map_or_else(Memory::default, |(_, (memory, _))| *memory);
        assert!(
            before == self.memory || !is_exact,
            "it begins with {:?}, which was {before:?} before",
            self.memory
        );
        if !is_exact {
            self.remembered.clear();
        }
    }

    /// The processor was asked for what it remembers where there was no batch.
    pub fn at_rest(&mut self, turn: u64) -> Vec<ProcessorState> {
        self.check_turn(Some(turn));
        self.states()
    }

    /// In place of a batch its damage was given to outputs.
    pub fn give_lost(&mut self, turn: Option<u64>, lanes: &[LaneTurn]) {
        self.check_turn(turn);
        self.given += 1;
        for lane in lanes {
            let output = self.outputs.get_mut(&self.lanes[lane.lane]);
            output.expect("it is configured").take_turn(*lane);
        }
    }

    fn check_turn(&mut self, turn: Option<u64>) {
        if let Some(turn) = turn {
            assert_eq!(turn, self.front_turn, "turns of the front go one by one");
            self.front_turn += 1;
        }
    }

    pub fn output(&mut self, lane: usize) -> &mut Output {
        let output = self.outputs.get_mut(&self.lanes[lane]);
        output.expect("it is configured")
    }

    /// Nothing more comes in this run, and everything was given.
    pub fn expect_nothing_more(&mut self) {
        for name in &self.lanes {
            let output = self.outputs.get_mut(name).expect("it is configured");
            output.pass_over(self.next_number, &self.sent);
        }
    }

    /// What outputs missed is no more than what policies dropped.
    pub fn check_missed(&self, dropped: u64) {
        let dropped = self.dropped_before + dropped;
        for (name, output) in &self.outputs {
            let missed = output
                .missed
                .iter()
                .map(|number| self.sent[number].content.events);
            let missed: u64 = missed.sum();
            assert!(
                missed <= dropped,
                "{name} misses the batches {:?} of {missed} events, and {dropped} were dropped",
                output.missed
            );
        }
    }

    /// The outputs that the next run has. Ones never seen before begin with what is sent from then on: what others have not
    /// passed, they may get as well.
    /// `saved` is what their cursor files say.
    pub fn begin_run(&mut self, lanes: Vec<String>, mut saved: BTreeMap<String, Saved>) {
        for name in &lanes {
            let since = self.next_number;
            self.outputs.entry(name.clone()).or_insert_with(|| Output {
                since,
                ..Output::default()
            });
            if let Some(output) = self.outputs.get_mut(name) {
                output.saved = saved.remove(name);
            }
        }
        self.lanes = lanes;
        self.front_turn = 0;
    }

    /// What an output that is not configured had not taken may be dropped where the queue is full. Then its cursor is gone.
    pub fn forget_retired(&mut self, files: &[String]) {
        for (name, output) in &mut self.outputs {
            let has_cursor = files.contains(&format!("cursor-{name}"));
            if !self.lanes.contains(name) && !has_cursor {
                output.missing.clear();
                output.no_repeat_below = 0;
            }
        }
    }

    /// The run is over. After a clean one, and one that ended with a note, nothing that was passed comes again.
    pub fn end_run(&mut self, is_clean: bool, dropped: u64) {
        self.receipts.clear();
        self.dropped_before += dropped;
        // What was dropped under an output's hands is counted only where it has not passed it by the end.
        let events = |output: &Output| -> u64 {
            let held = output.held.iter();
            held.map(|held| self.sent[&held.number].content.events)
                .sum()
        };
        self.dropped_before += self.outputs.values().map(events).max().unwrap_or(0);
        for output in self.outputs.values_mut() {
            output.end_run(is_clean);
        }
    }

    /// The power was cut: what was not synced may be missing, and cursors may be older ones.
    pub fn cut_power(&mut self) {
        // What was read back before it was synced was seen, and may be gone.
        let is_unsynced = |(_, (_, number)): &(&u64, &(Memory, u64))| !self.sent[number].is_synced;
        let first = self.remembered.iter().find(is_unsynced);
        if let Some(first) = first.map(|(sequence, _)| *sequence) {
            self.unsure = self.remembered.split_off(&first);
        }
        self.excuse_unsynced();
        for output in self.outputs.values_mut() {
            output.no_repeat_below = 0;
        }
    }

    /// What was not synced may be missing.
    pub fn excuse_unsynced(&mut self) {
        for sent in self.sent.values_mut() {
            sent.is_excused |= !sent.is_synced;
        }
    }
}

impl Output {
    fn take_turn(&mut self, lane: LaneTurn) {
        assert_eq!(lane.turn, self.next_turn, "turns go one by one");
        self.next_turn += 1;
    }

    /// What lies below that batch and was not passed comes no more in this run.
    fn pass_over(&mut self, number: u64, sent: &BTreeMap<u64, Sent>) {
        let held: BTreeSet<u64> = self.held.iter().map(|held| held.number).collect();
        let over: Vec<u64> = self.missing.range(..number).copied().collect();
        for missed in over {
            if held.contains(&missed) {
                continue;
            }
            let one = &sent[&missed];
            // What was not acknowledged may still come after a restart, and then it is no surprise.
            if one.is_acked && !one.is_excused && missed >= self.since {
                self.missed.push(missed);
                self.missing.remove(&missed);
            }
        }
    }

    pub fn pass(&mut self, index: usize) -> Option<Held> {
        let held = self.held.remove(index)?;
        self.passed.insert(held.number);
        self.missing.remove(&held.number);
        Some(held)
    }

    fn end_run(&mut self, is_clean: bool) {
        let next = self.last_given.map_or(0, |last| last + 1);
        let cursor = self.held.iter().map(|held| held.number).min();
        let cursor = cursor.unwrap_or(next);
        self.no_repeat_below = if is_clean {
            cursor.max(self.no_repeat_below)
        } else {
            0
        };
        self.held.clear();
        self.last_given = None;
        self.next_turn = 0;
    }
}
