//! When what processors remember is kept, and where a restart goes on.
//!
//! A run goes on from a snapshot on disk, the *base*: everything from its position on is processed again, in the same sequence,
//! and an output gets of that what it has not passed. So what processors make of a batch is the same however often a process
//! is killed. The base must therefore not lie beyond any output's cursor, and the log is kept from there on.
//!
//! A new snapshot is asked for when batches of so many bytes were given since the last one ([`Snapshots::ask`]): processors say what they
//! remember right after the batch at which they are asked. It becomes the base when it is on disk and every cursor, as it is on
//! disk, has reached it. Only then the next one is asked for. Where everything was given by then, no batch may come any more, because the log
//! is full up to the base: they are asked without one ([`Snapshots::is_due_at_rest`]).
//!
//! Nothing is given before it is safe in the log: what processors saw of a batch that a crash takes back would count twice, as
//! its source sends it again.

use std::sync::Arc;

use disk::PAGE;

use crate::snapshot::{ProcessorState, STATE_BYTES_MAX, Snapshot};

/// At least so many bytes of batches lie between two snapshots.
const APART: u64 = 8 << 20;

/// At least so many times the bytes of the last one.
const TIMES_ITS_SIZE: u64 = 4;

/// At most so much of what the log may take lies between two snapshots.
const OF_DISK: u64 = 8;

/// How far the next base is.
enum Next {
    /// It is to be asked for.
    Due,
    /// Processors are asked. Events in the log up to where they are, ever.
    Asked(u64),
    /// It is to be written.
    Taken(Arc<Snapshot>),
    /// It is on disk; its position.
    Written(u64),
}

/// The snapshots of a queue.
pub struct Snapshots {
    /// The position that a restart goes on from; none before the first one is on disk.
    base: Option<u64>,
    next: Next,
    /// Events in the log up to the end of what was given, ever.
    given_ordinal: u64,
    /// Bytes of batches that were given since the last one was asked for.
    given: u64,
    /// How many are asked for another.
    due_at: u64,
    /// The most of these, because of the disk.
    due_max: u64,
}

impl Snapshots {
    /// Goes on from a snapshot that is on disk.
    pub fn going_on(base: &Snapshot, disk_max: u64) -> Self {
        let mut snapshots = Self {
            base: Some(base.position),
            next: Next::Due,
            given_ordinal: base.ordinal,
            given: 0,
            due_at: 0,
            due_max: disk_max / OF_DISK,
        };
        snapshots.space_out(base.size());
        snapshots
    }

    /// Begins where nothing is remembered. That is to be written before anything is given.
    pub fn beginning(position: u64, ordinal: u64, disk_max: u64) -> Self {
        let empty = Snapshot {
            position,
            ordinal,
            states: Vec::new(),
        };
        let mut snapshots = Self::going_on(&empty, disk_max);
        snapshots.base = None;
        snapshots.next = Next::Taken(Arc::new(empty));
        snapshots
    }

    fn space_out(&mut self, size: usize) {
        let apart = APART.max(size as u64 * TIMES_ITS_SIZE);
        self.due_at = apart.min(self.due_max);
    }

    /// Whether a restart has something to go on from.
    pub fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// The position from which the log is needed.
    pub fn base(&self) -> u64 {
        self.base.unwrap_or(0)
    }

    /// A batch of so many bytes is given, up to whose end the log has so many events: whether processors are asked for what they
    /// remember after it.
    pub fn ask(&mut self, size: usize, ordinal_end: u64) -> bool {
        self.given_ordinal = self.given_ordinal.max(ordinal_end);
        // A small batch takes at least a page of the log.
        self.given += (size as u64).next_multiple_of(PAGE as u64);
        let asks = self.given >= self.due_at && matches!(self.next, Next::Due);
        if asks {
            self.given = 0;
            self.next = Next::Asked(ordinal_end);
        }
        asks
    }

    /// Everything was given that there is: whether processors are to be asked now. `makes_room` says that an input waits until segments go
    /// that only one more snapshot lets go, so that there may be no next batch to ask with.
    pub fn is_due_at_rest(&self, makes_room: bool) -> bool {
        let is_due = self.given >= self.due_at || (makes_room && self.given > 0);
        is_due && self.base.is_some() && matches!(self.next, Next::Due)
    }

    /// Processors are asked. Before what comes next, the log has at least so many events, ever.
    pub fn ask_at_rest(&mut self, ordinal: u64) {
        self.given_ordinal = self.given_ordinal.max(ordinal);
        self.given = 0;
        self.next = Next::Asked(self.given_ordinal);
    }

    /// They could not say it.
    pub fn forgo(&mut self) {
        if matches!(self.next, Next::Asked(_)) {
            self.next = Next::Due;
        }
    }

    /// As [`Snapshots::take`], where nothing more will be processed. Before the position, the log has at least so many events, ever.
    pub fn take_last(&mut self, position: u64, ordinal: u64, states: Vec<ProcessorState>) -> bool {
        self.next = Next::Due;
        self.given_ordinal = self.given_ordinal.max(ordinal);
        self.take(position, states)
    }

    /// They said it. Whether it is not too large to be kept.
    pub fn take(&mut self, position: u64, states: Vec<ProcessorState>) -> bool {
        let ordinal = match self.next {
            Next::Asked(ordinal) => ordinal,
            _ => self.given_ordinal,
        };
        let snapshot = Snapshot {
            position,
            ordinal,
            states,
        };
        self.space_out(snapshot.size());
        if snapshot.size() as u64 > STATE_BYTES_MAX / 2 {
            // One that could not be read again would be worse than an old one.
            self.next = Next::Due;
            return false;
        }
        self.next = Next::Taken(Arc::new(snapshot));
        true
    }

    /// Everything was processed that is going to be: whether what processors remember now is wanted. Outputs have passed everything below
    /// `lowest_cursor`.
    pub fn wants_last(&self, position: u64, lowest_cursor: u64) -> bool {
        let is_open = matches!(self.next, Next::Due | Next::Asked(_));
        self.base.is_some_and(|base| base < position) && (is_open || lowest_cursor >= position)
    }

    /// What is to be written, where everything before it may be read back.
    pub fn to_write(&self, readable_end: u64) -> Option<Arc<Snapshot>> {
        match &self.next {
            Next::Taken(snapshot) if snapshot.position <= readable_end => Some(snapshot.clone()),
            _ => None,
        }
    }

    /// That is on disk.
    pub fn written(&mut self, snapshot: &Snapshot) {
        if matches!(&self.next, Next::Taken(taken) if taken.position == snapshot.position) {
            self.next = Next::Written(snapshot.position);
        }
    }

    /// Every cursor on disk has reached this: whether what was written last is the base from now on.
    pub fn advance(&mut self, lowest_cursor: u64) -> bool {
        let Next::Written(position) = self.next else {
            return false;
        };
        let is_reached = position <= lowest_cursor;
        if is_reached {
            self.base = Some(position);
            self.next = Next::Due;
        }
        is_reached
    }
}
