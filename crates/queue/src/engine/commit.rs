//! What is on its way into the log: first to be written, then to be synced.
//!
//! Invariant: what is not synced is here, in sequence: first what is written, then what is being written, then what is to be.
//! A failure only moves the border back, so that nothing that an input waits for is lost; only [`Commit::give_up`] lets go.
//! What may be read back ends where the last sync ended.

use std::collections::VecDeque;

use component::Delivery;
use component::input::Issuer;

use crate::cursor::LogEnd;
use crate::log::Block;
use crate::streams::{StreamParts, Streams};

/// So many bytes are written without waiting for more.
pub const WRITE_SIZE: usize = 256 << 10;

/// Receipts with what they resolve to.
pub type Resolved = Vec<(Issuer, Delivery)>;

/// A batch for which room is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Bytes that it takes in the log.
    pub stored: u64,
    pub events: usize,
}

/// A batch on its way into the log.
pub struct Pending {
    pub block: Block,
    /// What it counts for, in bytes.
    pub size: usize,
    /// When it came, by the steady clock.
    pub since: i64,
    /// Whether its input was told that it is safe.
    is_safe: bool,
    /// Its streams that may come again.
    pub parts: StreamParts,
    /// Gone once it is resolved.
    receipt: Option<(Issuer, Delivery)>,
}

impl Pending {
    pub fn new(
        block: Block,
        size: usize,
        since: i64,
        parts: StreamParts,
        receipt: (Issuer, Delivery),
    ) -> Self {
        Self {
            block,
            size,
            since,
            is_safe: false,
            parts,
            receipt: Some(receipt),
        }
    }

    /// Where it ends in the log.
    pub fn end(&self) -> LogEnd {
        LogEnd {
            sequence: self.block.sequence + 1,
            ordinal: self.block.ordinal + u64::from(self.block.events),
        }
    }
}

/// Batches on their way into the log.
pub struct Commit {
    /// Not written.
    pending: VecDeque<Pending>,
    /// Being written or written, and not synced.
    unsynced: VecDeque<Pending>,
    /// How many of `unsynced` are being written at this moment.
    writing: usize,
    /// Bytes of both.
    size: usize,
    /// Bytes that are not written.
    pending_size: usize,
    /// Bytes that these, and what is being written, will take in the log.
    pending_stored: u64,
    /// When the oldest of both came, by the steady clock.
    since: i64,
    /// Nothing can be written for now.
    is_paused: bool,
    /// Events that were not written because it was too late.
    given_up: u64,
    /// Somebody waits for room that only upkeep can make.
    wanted: Option<Wanted>,
    /// An input waits for that room. As soon as all outputs have passed `release_at`, there will be some.
    starving: Option<Wanted>,
    /// The sequence before which a segment ends that may be removed next.
    release_at: u64,
    /// Events given to the log so far, ever.
    next_ordinal: u64,
    /// What is stored below it may be read back: it is synced, so that no failure takes it back.
    readable: LogEnd,
    /// What is stored below it is safe, as receipts say.
    safe_end: u64,
    /// What this run stores begins there.
    resumed: u64,
    /// Where what earlier runs synced ended, as far as cursors say.
    synced_before: LogEnd,
}

impl Commit {
    /// The log goes on at `next`; what earlier runs synced ended at `synced_before`.
    pub fn new(next: LogEnd, synced_before: LogEnd) -> Self {
        Self {
            pending: VecDeque::new(),
            unsynced: VecDeque::new(),
            writing: 0,
            size: 0,
            pending_size: 0,
            pending_stored: 0,
            since: 0,
            is_paused: false,
            given_up: 0,
            wanted: None,
            starving: None,
            release_at: 0,
            next_ordinal: next.ordinal,
            readable: next,
            safe_end: next.sequence,
            resumed: next.sequence,
            synced_before,
        }
    }

    /// Events given to the log so far, ever.
    pub fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }

    /// Takes a batch that is to be stored; whether the writer should know of it at once.
    pub fn push(&mut self, pending: Pending) -> bool {
        debug_assert_eq!(pending.block.ordinal, self.next_ordinal);
        self.next_ordinal += u64::from(pending.block.events);
        self.starving = None;
        let was_idle = self.size == 0;
        if was_idle {
            self.since = pending.since;
        }
        let before = self.pending_size;
        self.size += pending.size;
        self.pending_size += pending.size;
        self.pending_stored += pending.block.stored_size();
        self.pending.push_back(pending);
        was_idle || (before < WRITE_SIZE && self.pending_size >= WRITE_SIZE)
    }

    /// Bytes that are not synced.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are not written.
    pub fn pending_size(&self) -> usize {
        self.pending_size
    }

    /// Bytes that what is not written will take in the log.
    pub fn pending_stored(&self) -> u64 {
        self.pending_stored
    }

    /// How many batches are not written.
    pub fn unwritten(&self) -> usize {
        self.pending.len() + self.writing
    }

    /// Whether something is to be written.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether something is written and not synced.
    pub fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// When the oldest batch came that is not synced, by the steady clock.
    pub fn since(&self) -> i64 {
        self.since
    }

    /// Up to `size_max` bytes of what is pending, at least one batch, count as being written.
    pub fn start_writing(&mut self, size_max: u64) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut size = 0;
        while let Some(pending) = self.pending.pop_front() {
            if size > 0 && (size + pending.size) as u64 > size_max {
                self.pending.push_front(pending);
                break;
            }
            size += pending.size;
            blocks.push(pending.block.clone());
            self.unsynced.push_back(pending);
        }
        self.writing = blocks.len();
        self.pending_size -= size;
        blocks
    }

    /// What was being written is pending again.
    pub fn give_up_writing(&mut self) {
        for _ in 0..std::mem::take(&mut self.writing) {
            self.requeue_last();
        }
    }

    /// What was being written is written, and takes so many bytes in the log.
    pub fn finish_writing(&mut self, stored: u64) {
        // Where it was given up meanwhile, nothing of it counts any more.
        if std::mem::take(&mut self.writing) > 0 {
            self.pending_stored -= stored;
        }
    }

    /// What is written counts as safe before it is synced: its receipts.
    pub fn trust_written(&mut self) -> Resolved {
        let last = self.unsynced.back().map(|last| last.block.sequence + 1);
        self.safe_end = self.safe_end.max(last.unwrap_or(0));
        let written = self.unsynced.iter_mut();
        let safe = written.map(|one| {
            one.is_safe = true;
            one.receipt.take()
        });
        safe.flatten().collect()
    }

    /// What was written is safe: its receipts. `streams` learns of it.
    pub fn finish_sync(&mut self, streams: Option<&mut Streams>) -> Resolved {
        let synced: Vec<Pending> = self.unsynced.drain(..).collect();
        self.size -= synced.iter().map(|one| one.size).sum::<usize>();
        if let Some(oldest) = self.pending.front() {
            self.since = oldest.since;
        }
        if let Some(last) = synced.last() {
            self.readable = last.end();
            self.safe_end = self.safe_end.max(self.readable.sequence);
        }
        if let Some(streams) = streams {
            for one in &synced {
                streams.stored(one.block.sequence, one.size, &one.parts);
            }
        }
        synced.into_iter().filter_map(|one| one.receipt).collect()
    }

    /// What was written and is not synced is pending again. Nothing is being written.
    pub fn forget_written(&mut self) {
        while let Some(stored) = self.requeue_last() {
            self.pending_stored += stored;
        }
    }

    /// What was taken last is pending again; what it takes in the log.
    fn requeue_last(&mut self) -> Option<u64> {
        let last = self.unsynced.pop_back()?;
        let stored = last.block.stored_size();
        self.pending_size += last.size;
        self.pending.push_front(last);
        Some(stored)
    }

    /// The disk takes nothing, and it is too late to wait. What all outputs have passed is delivered all the same; of the
    /// rest inputs learn that it is not, and nothing of it is written any more.
    pub fn give_up(&mut self, lowest_cursor: u64) {
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
        self.writing = 0;
    }

    /// Nobody wants what was given up.
    pub fn forget_given_up(&mut self) {
        self.given_up = 0;
    }

    /// What is not synced and lies below a sequence, in order.
    pub fn unsynced_below(&self, sequence: u64) -> impl Iterator<Item = &Pending> {
        let unsynced = self.unsynced.iter().chain(&self.pending);
        unsynced.take_while(move |one| one.block.sequence < sequence)
    }

    /// Events from a sequence on that are not safe yet.
    pub fn unsafe_events(&self, lowest_cursor: u64) -> u64 {
        let unsynced = self.pending.iter().chain(&self.unsynced);
        unsynced
            .filter(|pending| !pending.is_safe && pending.block.sequence >= lowest_cursor)
            .map(|pending| u64::from(pending.block.events))
            .sum()
    }

    /// Events that were not written because it was too late.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Whether nothing can be written for now.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Nothing can be written for now; whether this is new.
    pub fn pause(&mut self) -> bool {
        !std::mem::replace(&mut self.is_paused, true)
    }

    /// Something was written; whether it could not be before.
    pub fn resume(&mut self) -> bool {
        std::mem::take(&mut self.is_paused)
    }

    /// An input waits for room for a batch, which only upkeep can make.
    pub fn want(&mut self, wanted: Wanted) {
        self.wanted = Some(wanted);
        self.lack(wanted);
    }

    /// There is no room for a batch. Nobody waits, but when upkeep can make room, it is to do so.
    pub fn lack(&mut self, wanted: Wanted) {
        self.starving = Some(wanted);
    }

    /// Whether somebody waits for upkeep to make room.
    pub fn is_room_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// What upkeep is to make room for.
    pub fn take_wanted(&mut self) -> Option<Wanted> {
        self.wanted.take()
    }

    /// What there was no room for last.
    pub fn lacking(&self) -> Option<Wanted> {
        self.starving
    }

    /// The sequence before which a segment ends that may be removed next.
    pub fn set_release_at(&mut self, sequence: u64) {
        self.release_at = sequence;
    }

    /// Whether there was no room for the last batch.
    pub fn is_starving(&self) -> bool {
        self.starving.is_some()
    }

    /// Whether there was no room for the last batch, and a segment goes if nothing before a sequence is needed.
    pub fn wants_segment(&self, sequence: u64) -> bool {
        (self.is_starving() || self.is_room_wanted()) && sequence >= self.release_at
    }

    /// An output passed something: whether upkeep can make room now for what there was none for.
    pub fn wants_release(&mut self, lowest_needed: u64) -> bool {
        let makes_room = self.is_starving() && lowest_needed >= self.release_at;
        if makes_room {
            self.wanted = self.starving.take();
        }
        makes_room
    }

    /// Where what may be read back ends.
    pub fn readable(&self) -> LogEnd {
        self.readable
    }

    /// What is stored below it is safe, as receipts say.
    pub fn safe_end(&self) -> u64 {
        self.safe_end
    }

    /// Where the log is known to be synced, as cursors are to say. What a crash tore off lies below where this run began, and
    /// only its first sync puts on disk that this was torn. To say before that everything was synced would make damage of it.
    pub fn synced_end(&self) -> LogEnd {
        match self.readable.sequence == self.resumed {
            true => self.synced_before,
            false => self.readable,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use component::Stopped;
    use component::input::receipt;

    use super::*;
    use crate::log::{Compression, Payload};

    fn commit_of(batches: u64) -> (Commit, Vec<component::Receipt>) {
        let start = LogEnd::default();
        let mut commit = Commit::new(start, start);
        let receipts = (0..batches).map(|sequence| {
            let (issuer, receipt) = receipt();
            let host = Arc::new(batch::HostInfo { name: "h".into() });
            let batch = batch::BatchBuilder::new(batch::Encoding::Text, &host, 0, false).finish();
            let block = Block {
                sequence,
                ordinal: 2 * sequence,
                events: 2,
                time: 0,
                payload: Payload::of(batch.freeze(), Compression::None),
            };
            commit.push(Pending::new(
                block,
                10,
                7,
                Vec::new(),
                (issuer, Delivery::default()),
            ));
            receipt
        });
        let receipts = receipts.collect();
        (commit, receipts)
    }

    fn stored(blocks: &[Block]) -> u64 {
        blocks.iter().map(Block::stored_size).sum()
    }

    #[test]
    fn a_failure_moves_the_border_back() {
        let (mut commit, _receipts) = commit_of(3);
        let all = commit.pending_stored();
        let blocks = commit.start_writing(20);
        assert_eq!((blocks.len(), commit.pending_size()), (2, 10));
        commit.give_up_writing();
        assert_eq!((commit.pending_size(), commit.pending_stored()), (30, all));
        let blocks = commit.start_writing(20);
        commit.finish_writing(stored(&blocks));
        assert_eq!(commit.pending_stored(), all - stored(&blocks));
        commit.forget_written();
        assert_eq!((commit.pending_size(), commit.pending_stored()), (30, all));
        let again = commit.start_writing(u64::MAX);
        let sequences: Vec<u64> = again.iter().map(|block| block.sequence).collect();
        assert_eq!(sequences, [0, 1, 2]);
        commit.finish_writing(stored(&again));
        assert_eq!(commit.finish_sync(None).len(), 3);
        assert_eq!((commit.size(), commit.pending_stored()), (0, 0));
        let end = commit.readable();
        assert_eq!((end.sequence, end.ordinal), (3, 6));
    }

    #[test]
    fn what_is_given_up_while_it_is_written_does_not_count_twice() {
        let (mut commit, mut receipts) = commit_of(2);
        let blocks = commit.start_writing(u64::MAX);
        commit.give_up(1);
        commit.finish_writing(stored(&blocks));
        assert!(commit.finish_sync(None).is_empty());
        assert_eq!((commit.size(), commit.pending_stored()), (0, 0));
        assert_eq!((commit.given_up(), commit.unsafe_events(0)), (2, 0));
        let outcomes = receipts.iter_mut().map(component::Receipt::try_delivered);
        let outcomes: Vec<_> = outcomes.map(|one| one.map(Result::err)).collect();
        assert_eq!(outcomes, [Some(None), Some(Some(Stopped))]);
    }
}
