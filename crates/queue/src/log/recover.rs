//! Opens a log in whatever state its files are.
//!
//! Read are the first page of each segment, and the segments from the newest back to one that a later mark says to be
//! durable. Written is nothing; room behind the last block of those segments is given back, and they are synced, so that
//! what was found there is durable from now on.

use std::ops::Range;
use std::sync::Arc;

use disk::{PAGE, Storage, StoredFile};

use super::format::{BlockHeader, SegmentPage, Torn, segment_name};
use super::index::{Index, Segment};
use super::scan::{First, Head, Item, ScanOptions, Scanner, newer_block, read_heads};
use super::{LogEnd, LogPosition, LogSettings, Recovered};
use crate::QueueError;
use crate::spans::Spans;

/// Places that are kept until it is known whether they were durable.
const FLAWS_MAX: usize = 10_000;

/// A log as it was found.
pub(super) struct Opened {
    pub(super) index: Index,
    pub(super) recovered: Recovered,
    /// The number of the next segment.
    pub(super) next_number: u64,
    pub(super) damaged_headers: Vec<DamagedHeader>,
}

/// A segment without a header.
pub(super) struct DamagedHeader {
    pub(super) file: Arc<dyn StoredFile>,
    pub(super) place: LogPosition,
    pub(super) length: u64,
    pub(super) reason: &'static str,
    /// Whether there is anything to keep.
    pub(super) copied: bool,
}

pub(super) fn open(storage: &dyn Storage, settings: LogSettings) -> Result<Opened, QueueError> {
    let mut examined = Examined::read(storage, settings.synced, settings.passed)?;
    examined.tail.trim(storage, &mut examined.heads);
    // Some are gone.
    let limits = limits(&examined.heads);
    let index = examined.index(&limits);
    let Examined { heads, tail, .. } = examined;
    Ok(Opened {
        damaged_headers: damaged_headers(&heads, &limits),
        recovered: tail.recovered(&heads, &limits),
        index,
        next_number: examined.next_number,
    })
}

/// What is known of a log before anything of it is changed.
pub(super) struct Examined {
    pub(super) heads: Vec<Head>,
    tail: Tail,
    /// Where what a crash left behind begins.
    torn_from: Option<LogPosition>,
    next_number: u64,
}

impl Examined {
    /// `synced` is where the caller knows it to have been synced, `passed` what all readers have passed.
    pub(super) fn read(
        storage: &dyn Storage,
        synced: LogEnd,
        passed: LogEnd,
    ) -> Result<Self, QueueError> {
        let heads = read_heads(storage)?;
        let limits = limits(&heads);
        let mut tail = Tail::of(&heads, synced, passed);
        for (index, head) in heads.iter().enumerate().rev() {
            let following = heads[index + 1..].iter().find_map(|head| head.first);
            tail.scan(head, limits[index], following)?;
            if head
                .first
                .is_some_and(|first| first.sequence <= tail.durable)
            {
                break;
            }
        }
        let torn_from = tail.judge();
        tail.leave_out_torn();
        Ok(Self {
            next_number: heads.last().map_or(1, |head| head.number + 1),
            heads,
            tail,
            torn_from,
        })
    }

    /// All sequences below it were synced at some time.
    pub(super) fn durable(&self) -> u64 {
        self.tail.durable
    }

    /// Where the log ends, as far as can be seen.
    pub(super) fn end(&self) -> LogEnd {
        LogEnd {
            sequence: self.tail.next_sequence,
            ordinal: self.tail.next_ordinal,
        }
    }

    pub(super) fn index(&self, limits: &[u64]) -> Index {
        build(
            &self.heads,
            limits,
            &self.tail,
            self.torn_from,
            self.next_number,
        )
    }
}

/// For each segment: the sequence from which on a later segment counts instead.
pub(super) fn limits(heads: &[Head]) -> Vec<u64> {
    let mut limit = u64::MAX;
    let mut limits: Vec<_> = heads
        .iter()
        .rev()
        .map(|head| {
            let own = limit;
            let first = head.first.map_or(u64::MAX, |first| first.sequence);
            limit = limit.min(first);
            own
        })
        .collect();
    limits.reverse();
    limits
}

/// What is unreadable, until it is known whether it was durable.
#[derive(Debug)]
struct Flaw {
    place: LogPosition,
    length: u64,
    /// No sequence that may have been lost is below it.
    least: u64,
    /// All sequences that may have been lost are below it.
    below: u64,
}

/// What was learned from the end of the log.
#[derive(Debug, Default)]
struct Tail {
    /// What the caller knows of it.
    synced: LogEnd,
    durable: u64,
    next_sequence: u64,
    next_ordinal: u64,
    flaws: Vec<Flaw>,
    /// Events in blocks that count and are whole.
    there: Spans,
    /// Sequences with the ordinal at which each begins.
    begins: Vec<(u64, u64)>,
    /// Events that never were durable: what segments say, and in the end what is torn as well.
    never_durable: Spans,
    vague_until: u64,
    /// Scanned segments, with the end of what is in them.
    ends: Vec<(u64, u64)>,
    torn_bytes: u64,
    notes: Vec<String>,
}

impl Tail {
    fn of(heads: &[Head], synced: LogEnd, passed: LogEnd) -> Self {
        let mut tail = Self {
            synced,
            durable: synced.sequence,
            begins: vec![(passed.sequence, passed.ordinal)],
            ..Self::default()
        };
        for head in heads {
            if let Some(first) = head.first {
                tail.next_sequence = tail.next_sequence.max(first.sequence.saturating_add(1));
                tail.next_ordinal = tail.next_ordinal.max(first.ordinal);
            }
            if let SegmentPage::Valid(header) = &head.page {
                tail.next_sequence = tail.next_sequence.max(header.next_sequence);
                tail.durable = tail.durable.max(header.durable);
                match &header.never_durable {
                    Some(ranges) => ranges.iter().for_each(|range| {
                        tail.never_durable.insert(range.clone());
                    }),
                    None => {
                        let ends = header.torn.iter().map(|torn| torn.until);
                        tail.vague_until = ends.fold(tail.vague_until, u64::max);
                    }
                }
            }
        }
        tail
    }

    /// Reads a segment to its end.
    fn scan(
        &mut self,
        head: &Head,
        limit: u64,
        following: Option<First>,
    ) -> Result<(), QueueError> {
        let Some(file) = &head.file else {
            return Ok(());
        };
        let options = ScanOptions {
            from: PAGE as u64,
            verify_payload: true,
        };
        let Ok(scanner) = Scanner::new(&**file, head.number, options) else {
            return Ok(());
        };
        let mut scanner = scanner.pass_unreadable();
        let mut segment = Scanned::new(head, limit);
        let first = head.first.filter(|first| first.sequence < limit);
        let begin = first.map(|first| (first.sequence, first.ordinal));
        self.begins.extend(begin);
        loop {
            match scanner.next_item() {
                Ok(Some(item)) => self.take(&mut segment, item)?,
                Ok(None) => break,
                Err(failure) => {
                    let name = segment_name(head.number);
                    self.notes
                        .push(format!("{name} cannot be read to the end: {failure}"));
                    segment.end = head.length;
                    break;
                }
            }
        }
        let below = following.map_or(u64::MAX, |first| first.sequence);
        segment.close_flaws(below);
        let room = FLAWS_MAX.saturating_sub(self.flaws.len());
        self.flaws.extend(segment.flaws.into_iter().take(room));
        self.ends.push((head.number, segment.end));
        Ok(())
    }

    fn take(&mut self, segment: &mut Scanned, item: Item) -> Result<(), QueueError> {
        match item {
            Item::Free(_) => (),
            Item::Block {
                offset,
                header,
                payload_ok,
            } => {
                self.see(segment, &header);
                self.durable = self.durable.max(header.durable);
                if payload_ok && header.sequence < segment.limit {
                    self.there.insert(header.ordinals());
                }
                segment.close_flaws(header.sequence);
                let end = offset + header.length();
                if !payload_ok {
                    segment.flaw(offset..end, header.sequence, header.sequence + 1);
                }
                segment.least = header.sequence + 1;
                segment.end = end;
            }
            Item::Damage {
                newer: Some(version),
                ..
            } => return Err(newer_block(segment.number, version)),
            Item::Damage { range, cut, .. } => {
                let mut least = segment.least;
                if let Some(header) = cut {
                    self.see(segment, &header);
                    least = header.sequence;
                }
                segment.end = range.end;
                segment.flaw(range, least, u64::MAX);
            }
        }
        Ok(())
    }

    /// Learns from a header, whatever became of its payload.
    fn see(&mut self, segment: &Scanned, header: &BlockHeader) {
        self.next_sequence = self.next_sequence.max(header.sequence + 1);
        if header.sequence < segment.limit {
            self.next_ordinal = self.next_ordinal.max(header.ordinals().end);
            let next = (header.sequence + 1, header.ordinals().end);
            let begins = [(header.sequence, header.ordinal), next].into_iter();
            self.begins
                .extend(begins.filter(|one| one.0 >= self.durable));
        }
    }

    /// Finds what a crash left behind: where it begins.
    fn judge(&mut self) -> Option<LogPosition> {
        let (durable, next) = (self.durable, self.next_sequence);
        let torn = self.flaws.iter().filter(|flaw| {
            // Of a segment in which nothing can be read it is not known where it began. Where synced blocks are missing it
            // may have held them.
            let is_unknown = flaw.least == u64::MAX && flaw.below == u64::MAX;
            let least = if is_unknown { next } else { flaw.least };
            flaw.below > durable && least >= durable
        });
        self.torn_bytes = torn.clone().map(|flaw| flaw.length).sum();
        torn.map(|flaw| flaw.place).min()
    }

    /// Finds which events a crash tore: those behind all that was durable that are in no block.
    fn leave_out_torn(&mut self) {
        let behind = self.synced_ordinal()..self.next_ordinal;
        for torn in self.there.gaps(&behind) {
            self.never_durable.insert(torn);
        }
    }

    /// The events that were durable, ever. Where neither the caller knows their number nor the last of their blocks or the first
    /// one behind is there, what is missing there counts as one of them.
    fn synced_ordinal(&self) -> u64 {
        if self.synced.sequence >= self.durable {
            return self.synced.ordinal;
        }
        let behind = self.begins.iter().filter(|one| one.0 >= self.durable);
        let first = behind.map(|(_, ordinal)| *ordinal).min();
        first.unwrap_or(self.next_ordinal).max(self.synced.ordinal)
    }

    /// Gives back what is unused, and makes what was found durable. What does not succeed costs room only.
    fn trim(&mut self, storage: &dyn Storage, heads: &mut Vec<Head>) {
        for (number, end) in &self.ends {
            let Some(head) = heads.iter_mut().find(|head| head.number == *number) else {
                continue;
            };
            let Some(file) = &head.file else { continue };
            let is_empty = *end == 0 && head.page == SegmentPage::Zeros;
            let end = end.next_multiple_of(PAGE as u64);
            let name = segment_name(*number);
            if is_empty && storage.remove(&name).is_ok() {
                heads.retain(|head| head.number != *number);
                continue;
            }
            if end < head.length {
                match file.cut(end) {
                    Ok(()) => head.length = end,
                    Err(failure) => self
                        .notes
                        .push(format!("{name} cannot be truncated: {failure}")),
                }
            }
            if let Err(failure) = file.sync() {
                self.notes
                    .push(format!("{name} cannot be synced: {failure}"));
            }
        }
        // A process that was killed may have left names that are not on disk yet.
        if !self.ends.is_empty()
            && let Err(failure) = storage.sync_folder("")
        {
            let note = format!("the directory of the queue cannot be synced: {failure}");
            self.notes.push(note);
        }
    }

    fn recovered(mut self, heads: &[Head], limits: &[u64]) -> Recovered {
        for head in heads {
            let what = match &head.page {
                SegmentPage::Valid(_) | SegmentPage::Newer(_) => continue,
                SegmentPage::Zeros => "has no header",
                SegmentPage::Damaged(reason) => reason,
            };
            let name = segment_name(head.number);
            self.notes.push(format!("{name}: {what}"));
        }
        let mut live = heads.iter().zip(limits).filter_map(|(head, limit)| {
            let first = head.first?;
            (first.sequence < *limit).then_some(first)
        });
        let oldest = live.next().unwrap_or(First {
            sequence: self.next_sequence,
            ordinal: self.next_ordinal,
            time: 0,
        });
        Recovered {
            oldest_sequence: oldest.sequence,
            oldest_ordinal: oldest.ordinal,
            next_sequence: self.next_sequence,
            next_ordinal: self.next_ordinal,
            torn_bytes: self.torn_bytes,
            notes: self.notes,
        }
    }
}

/// A segment while it is scanned.
struct Scanned {
    number: u64,
    limit: u64,
    /// The lowest sequence that may come next; unknown before the first block of a segment without a header.
    least: u64,
    /// The end of what is in it.
    end: u64,
    flaws: Vec<Flaw>,
}

impl Scanned {
    fn new(head: &Head, limit: u64) -> Self {
        let mut scanned = Self {
            number: head.number,
            limit,
            least: u64::MAX,
            end: 0,
            flaws: Vec::new(),
        };
        match &head.page {
            SegmentPage::Valid(header) => {
                scanned.least = header.first_sequence;
                scanned.end = PAGE as u64;
            }
            SegmentPage::Zeros if head.first.is_none() => (),
            _ => {
                let first = head.first.map_or(u64::MAX, |first| first.sequence);
                scanned.end = head.length.min(PAGE as u64);
                scanned.flaw(0..scanned.end, first, u64::MAX);
            }
        }
        scanned
    }

    fn flaw(&mut self, range: Range<u64>, least: u64, below: u64) {
        // What does not count any more cannot be lost.
        let is_headless = self.least == u64::MAX;
        let counts = least < self.limit || is_headless;
        if counts && self.flaws.len() < FLAWS_MAX {
            self.flaws.push(Flaw {
                place: LogPosition {
                    segment: self.number,
                    // The header was lost together with what follows it.
                    offset: if is_headless { 0 } else { range.start },
                },
                length: range.end - range.start,
                least,
                below,
            });
        }
    }

    /// What is lost before a block has a lower sequence.
    fn close_flaws(&mut self, below: u64) {
        for flaw in &mut self.flaws {
            flaw.below = flaw.below.min(below.max(flaw.least.saturating_add(1)));
        }
    }
}

fn build(
    heads: &[Head],
    limits: &[u64],
    tail: &Tail,
    torn_from: Option<LogPosition>,
    next_number: u64,
) -> Index {
    let mark = match torn_from {
        Some(_) => tail.durable,
        None => tail.next_sequence,
    };
    let mut index = Index::ending_at(tail.next_sequence, mark);
    index.never_durable = tail.never_durable.clone();
    index.vague_until = tail.vague_until;
    for (head, limit) in heads.iter().zip(limits) {
        if let SegmentPage::Valid(header) = &head.page {
            for torn in &header.torn {
                index.add_torn(*torn);
            }
        }
        let segment = Segment {
            first: head.first,
            limit: *limit,
            written: head.length,
            length: head.length,
            synced: head.length,
            named: true,
            abandoned: false,
            file: None,
        };
        index.segments.insert(head.number, segment);
    }
    if let Some(from) = torn_from {
        index.add_torn(Torn {
            from,
            until: next_number,
        });
    }
    index
}

/// Headers that are missing where a block counts. Other segments without a header are what a crash leaves of those that
/// were abandoned; what else is in them is reported when it is read.
fn damaged_headers(heads: &[Head], limits: &[u64]) -> Vec<DamagedHeader> {
    let damaged = heads.iter().zip(limits).filter_map(|(head, limit)| {
        if head.first.is_none_or(|first| first.sequence >= *limit) {
            return None;
        }
        let (reason, copied) = match &head.page {
            SegmentPage::Zeros if head.length > 0 => ("the segment header is all zeros", false),
            SegmentPage::Damaged(reason) => (*reason, true),
            _ => return None,
        };
        Some(DamagedHeader {
            file: head.file.clone()?,
            place: LogPosition {
                segment: head.number,
                offset: 0,
            },
            length: head.length.min(PAGE as u64),
            reason,
            copied,
        })
    });
    damaged.collect()
}
