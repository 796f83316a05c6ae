//! What is known about the segments: shared by the writer and all readers, behind a lock that is held for an instant.
//!
//! Invariants: only the newest segment that is listed here grows; `written` ends with a group. A sequence counts in the
//! last segment whose beginning is not above it, so of two copies of a block the one in the later segment counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use disk::StoredFile;

use super::format::{NEVER_DURABLE_MAX, TORN_MAX, Torn};
use super::scan::First;
use super::{Damage, LogPosition};
use crate::spans::Spans;

/// Damages that nobody has asked for yet. What is found beyond is added to the last one.
const PENDING_MAX: usize = 1024;

/// Damages that are remembered, so that a second reader does not report them again.
const KNOWN_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct Segment {
    /// Nothing is known about a segment without a header and without a block.
    pub(super) first: Option<First>,
    /// Sequences from here on do not count in this segment.
    pub(super) limit: u64,
    /// Readers may go up to here.
    pub(super) written: u64,
    /// The file's length.
    pub(super) length: u64,
    /// What was synced successfully.
    pub(super) synced: u64,
    /// Whether the folder was synced since the file was made.
    pub(super) named: bool,
    /// Whether a sync or a write failed, so that nothing beyond `synced` is believed.
    pub(super) abandoned: bool,
    /// Kept for the segments that this process writes, until they are synced and cut.
    pub(super) file: Option<Arc<dyn StoredFile>>,
}

impl Segment {
    /// Whether no block of it counts.
    pub(super) fn is_superseded(&self) -> bool {
        self.first.is_some_and(|first| self.limit <= first.sequence)
    }
}

/// The block behind a place at which events are missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    /// Its segment.
    pub(crate) segment: u64,
    /// All sequences below it were synced when it was written.
    pub(crate) durable: u64,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) segments: BTreeMap<u64, Segment>,
    /// The segment that the writer appends to, if there is one.
    pub(super) active: Option<u64>,
    /// What its header says: no block of it has a later version.
    pub(super) active_block_version: u8,
    /// Where the log ends: above the last sequence that counts.
    pub(super) next_sequence: u64,
    /// Above every sequence that was ever written.
    pub(super) highest_sequence: u64,
    /// Sequences below it are on disk, or known to be torn: what blocks say. What was found torn at the start counts only
    /// after the first good sync, with which the header that says so is on disk.
    pub(super) mark: u64,
    /// Sequences below it were there when the log was opened.
    pub(super) floor: u64,
    /// The latest version of blocks that this run has to write. A segment whose header does not allow it is not appended to.
    pub(super) block_version: u8,
    /// How often the log was abandoned.
    pub(super) epoch: u64,
    /// A sync failed and the log was not abandoned since.
    pub(super) is_failed: bool,
    /// Events that are in no block and never were durable.
    pub(super) never_durable: Spans,
    /// Of what was torn before that segment the events are not known: it was found before version 2.
    pub(super) vague_until: u64,
    /// The newest ranges in which what is unreadable never was durable.
    torn: BTreeSet<Torn>,
    pending: Vec<Damage>,
    known: BTreeSet<LogPosition>,
}

impl Index {
    /// Without segments.
    pub(super) fn ending_at(next_sequence: u64, mark: u64) -> Self {
        Self {
            next_sequence,
            highest_sequence: next_sequence,
            mark,
            floor: next_sequence,
            ..Self::default()
        }
    }

    /// Sequences below it are never taken back.
    pub(super) fn durable(&self) -> u64 {
        self.mark.max(self.floor)
    }

    /// Remembers a range in which what is unreadable never was durable.
    pub(super) fn add_torn(&mut self, torn: Torn) {
        self.torn.insert(torn);
        if self.torn.len() > TORN_MAX {
            self.torn.pop_first();
        }
    }

    /// For the header of the next segment.
    pub(super) fn torn(&self) -> Vec<Torn> {
        self.torn.iter().copied().collect()
    }

    /// For the header of the next segment.
    pub(super) fn never_durable(&mut self) -> Vec<Range<u64>> {
        self.never_durable.keep_highest(NEVER_DURABLE_MAX);
        self.never_durable.iter().collect()
    }

    /// Of events that are missing, those that were on disk once. They were looked for from a sequence on; `behind` is the block
    /// behind them, `None` at the end.
    pub(super) fn lost_of(
        &self,
        missing: Range<u64>,
        from_sequence: u64,
        behind: Option<Behind>,
    ) -> Vec<Range<u64>> {
        // Of what was found torn before version 2, only the place is known. There a block says what was synced before it.
        let may_be_torn = behind.is_some_and(|behind| {
            behind.segment <= self.vague_until && behind.durable <= from_sequence
        });
        match may_be_torn {
            true => Vec::new(),
            false => self.never_durable.gaps(&missing),
        }
    }

    pub(super) fn is_torn(&self, place: LogPosition) -> bool {
        let mut ranges = self.torn.iter();
        ranges.any(|torn| torn.from <= place && place.segment < torn.until)
    }

    /// Lowers the limits of the segments before `number`, because a segment begins there.
    pub(super) fn supersede(&mut self, number: u64, first: u64) {
        for (_, segment) in self.segments.range_mut(..number) {
            segment.limit = segment.limit.min(first);
        }
    }

    /// Segments of which no block counts. The newest never is one of them, because it says how far the log went.
    pub(super) fn superseded(&self) -> Vec<u64> {
        let mut segments = self.segments.iter();
        segments.next_back();
        let superseded = segments.filter(|(_, segment)| segment.is_superseded());
        superseded.map(|(number, _)| *number).collect()
    }

    /// Where a reader begins that wants a sequence: no segment before it has any that counts.
    pub(super) fn start_for(&self, sequence: u64) -> Option<u64> {
        let begun = self.segments.iter().rev().find(|(_, segment)| {
            let first = segment.first;
            first.is_some_and(|first| first.sequence <= sequence)
        });
        let start = begun.or_else(|| self.segments.first_key_value());
        start.map(|(number, _)| *number)
    }

    /// Whether a block at that place may have been written again elsewhere.
    pub(super) fn is_superseded(&self, place: LogPosition, sequence: u64) -> bool {
        let segment = self.segments.get(&place.segment);
        segment.is_none_or(|segment| segment.limit <= sequence)
    }

    /// Whether a damage is new.
    pub(super) fn learn(&mut self, place: LogPosition) -> bool {
        if self.known.contains(&place) {
            return false;
        }
        if self.known.len() < KNOWN_MAX {
            self.known.insert(place);
        }
        true
    }

    pub(super) fn report(&mut self, damage: Damage) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push(damage);
        } else if let Some(last) = self.pending.last_mut() {
            last.length += damage.length;
            last.torn &= damage.torn;
            last.reason = "many damages".to_owned();
        }
    }

    pub(super) fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.pending)
    }

    /// Forgets a segment, and what was known about it alone.
    pub(super) fn forget(&mut self, number: u64) {
        self.segments.remove(&number);
        let Some((&oldest, segment)) = self.segments.first_key_value() else {
            return;
        };
        if let Some(first) = segment.first {
            self.never_durable.forget_below(first.ordinal);
        }
        self.torn.retain(|torn| torn.until > oldest);
        let oldest = LogPosition {
            segment: oldest,
            offset: 0,
        };
        self.known = self.known.split_off(&oldest);
    }
}
