//! What waits in memory, and where the outputs are that go through the queue together.
//!
//! Invariant: the batches that wait have ascending sequences, none below the next one of the outputs that go on together and
//! all below the next one that comes in. What waits counts as held in memory, and so does what was taken until it is given back.

use std::collections::VecDeque;

use batch::Batch;
use component::input::Issuer;

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

/// What waits in memory, and where the outputs are that go on together.
pub struct Front {
    /// Ascending.
    waiting: VecDeque<Waiting>,
    /// Bytes of what waits.
    waiting_size: usize,
    /// The next sequence for the outputs that go on together.
    sequence: u64,
    /// How many batches these got.
    turn: u64,
    /// The next sequence for a batch that comes in.
    next_sequence: u64,
    /// Sequences below it that do not wait in memory are stored only.
    stored_end: u64,
    /// Bytes of the batches in memory, until the outputs that got them together have released or passed them.
    held_size: usize,
    held_events: usize,
    /// Of these, events that are not stored.
    unstored_events: usize,
    /// Events that were not stored and that an output which failed did not take.
    failed_events: u64,
}

impl Front {
    /// The outputs begin at `sequence`; everything from there to `next_sequence` is stored.
    pub fn new(sequence: u64, next_sequence: u64) -> Self {
        Self {
            waiting: VecDeque::new(),
            waiting_size: 0,
            sequence,
            turn: 0,
            next_sequence,
            stored_end: next_sequence,
            held_size: 0,
            held_events: 0,
            unstored_events: 0,
            failed_events: 0,
        }
    }

    /// The next sequence for the outputs that go on together.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The next sequence for a batch that comes in.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// The sequence of a batch that has just come in. It is to wait in memory, or to be stored only.
    pub fn number(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Puts the batch that was numbered last where workers find it. It counts as held until [`Front::give_back`].
    pub fn wait(&mut self, waiting: Waiting) {
        debug_assert_eq!(waiting.sequence + 1, self.next_sequence);
        debug_assert!(waiting.sequence >= self.sequence);
        self.held_size += waiting.size;
        self.held_events += waiting.events;
        if !waiting.is_stored() {
            self.unstored_events += waiting.events;
        }
        self.waiting_size += waiting.size;
        self.waiting.push_back(waiting);
    }

    /// The batch that was numbered last does not wait in memory: it has to be read back.
    pub fn store_only(&mut self) {
        self.stored_end = self.next_sequence;
    }

    /// Takes the first batch that waits, which stays counted as held.
    pub fn take(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_size -= waiting.size;
        Some(waiting)
    }

    /// The first batch that waits.
    pub fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Bytes of what waits.
    pub fn waiting_size(&self) -> usize {
        self.waiting_size
    }

    /// Whether something has to be read back before a new batch has its turn.
    pub fn has_backlog(&self) -> bool {
        let last = self.waiting.back().map(|waiting| waiting.sequence);
        self.stored_end > self.sequence && last.is_none_or(|last| last < self.stored_end)
    }

    /// Whether the next batch is in the log, and not in memory alone.
    pub fn is_next_stored(&self) -> bool {
        self.waiting.is_empty() && self.sequence < self.stored_end
    }

    /// Whether the outputs that go on together got everything.
    pub fn is_at_end(&self) -> bool {
        self.sequence == self.next_sequence
    }

    /// The outputs that go on together get a batch; the number of its turn.
    pub fn give(&mut self, sequence: u64) -> u64 {
        self.sequence = sequence + 1;
        self.turn += 1;
        self.turn - 1
    }

    /// The outputs that go on together go on with this sequence or a later one.
    pub fn skip_to(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Drops copies of what is stored below a sequence. Where everybody goes on then: what is in memory only is not dropped, and
    /// comes first.
    pub fn drop_below(&mut self, floor: u64) -> u64 {
        let is_below = |first: &Waiting| first.sequence < floor && first.is_stored();
        while self.waiting.front().is_some_and(is_below) {
            if let Some(gone) = self.take() {
                self.give_back(gone.size, gone.events);
            }
        }
        let position = self
            .waiting
            .front()
            .map_or(floor, |first| floor.min(first.sequence));
        self.skip_to(position);
        position
    }

    /// Forgets copies of what is stored.
    pub fn drop_copies(&mut self) {
        let (copies, unstored) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(Waiting::is_stored);
        self.waiting = unstored;
        for copy in copies {
            self.waiting_size -= copy.size;
            self.give_back(copy.size, copy.events);
        }
    }

    /// Takes everything that waits, which stays counted as held.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        self.waiting_size = 0;
        self.waiting.drain(..).collect()
    }

    /// Bytes and events of the batches in memory that some output at the front has not passed.
    pub fn held(&self) -> (usize, usize) {
        (self.held_size, self.held_events)
    }

    /// No output holds anything of a batch any more.
    pub fn give_back(&mut self, size: usize, events: usize) {
        self.held_size -= size;
        self.held_events -= events;
        debug_assert!(self.held_size >= self.waiting_size);
    }

    /// Of events that are in memory alone, every output has passed these or let them go.
    pub fn settle_unstored(&mut self, events: usize) {
        self.unstored_events -= events;
    }

    /// An output that failed did not take these events, which are not stored.
    pub fn count_failed(&mut self, events: usize) {
        self.failed_events += events as u64;
    }

    /// Events that are in memory alone, and those that were and that an output which failed did not take.
    pub fn unsafe_events(&self) -> u64 {
        self.unstored_events as u64 + self.failed_events
    }
}
