//! What is missing between, before and behind the blocks that are left.
//!
//! Every block says how many events were written before it. Where that is more than those before it explain, the rest is
//! missing; what of it was ever safe is lost, by the rules of a start ([`Survey`]). What all outputs had passed is no loss.

use std::ops;

use super::range::Range;
use super::{CursorMap, Damage};
use crate::log::{BLOCK_HEADER, Behind, BlockHeader, LogEnd, LogPosition, Survey, segment_name};

/// Damage before it is known what was safe.
pub(super) struct Pending {
    pub(super) place: LogPosition,
    pub(super) damage: Damage,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The events of a block whose header is whole.
    pub(super) ordinals: Option<ops::Range<u64>>,
}

/// What the cursors of a queue and its file `synced` say of its log.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    /// Where what was synced ended.
    pub(super) end: LogEnd,
    /// What the output that is furthest behind has not passed yet; none where there are no cursors.
    pub(super) lowest: Option<LogEnd>,
    /// The file that says so.
    pub(super) file: String,
}

impl Marks {
    pub(super) fn of(cursors: &CursorMap, synced: LogEnd) -> Self {
        let place = |saved: &crate::cursor::Saved| LogEnd {
            sequence: saved.sequence,
            ordinal: saved.ordinal,
        };
        let lowest = cursors.values().min_by_key(|(_, saved)| place(saved));
        let ends = cursors.values().map(|(_, saved)| saved.end);
        Self {
            end: ends.fold(synced, LogEnd::max),
            lowest: lowest.map(|(_, saved)| place(saved)),
            file: lowest.map(|(file, _)| file.clone()).unwrap_or_default(),
        }
    }

    /// The ordinal below which all outputs have passed everything.
    pub(super) fn passed(&self) -> u64 {
        self.lowest.map_or(0, |lowest| lowest.ordinal)
    }
}

/// A block that counts, or the end of the log.
#[derive(Debug, Clone, Copy)]
struct Seen {
    begin: LogPosition,
    end: LogPosition,
    next: LogEnd,
}

/// Events that were written and are in no block that can be seen.
#[derive(Debug)]
struct Gap {
    /// The block before it; none at the beginning.
    before: Option<Seen>,
    /// Where the block behind it begins; none at the end.
    behind: Option<LogPosition>,
    from: LogEnd,
    until: LogEnd,
    /// What is below it was synced, as the block behind says.
    durable: u64,
    /// Something unreadable that lies there.
    flaw: Option<usize>,
}

impl Gap {
    fn behind(&self) -> Option<Behind> {
        self.behind.map(|place| Behind {
            segment: place.segment,
            durable: self.durable,
        })
    }
}

/// Goes along with a pass and finds the gaps.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    last: Option<Seen>,
    /// How much that is unreadable was seen up to the last block.
    flaws: usize,
    /// Whether what comes before the first block was left out.
    pub(super) begins_late: bool,
    found: Vec<Gap>,
    first: Option<Gap>,
}

impl Gaps {
    /// A block that counts, where so many unreadable places were seen.
    pub(super) fn see(&mut self, begin: LogPosition, header: &BlockHeader, flaws: usize) {
        let flaw = flaws.checked_sub(1).filter(|last| *last >= self.flaws);
        let from = self.last.map_or(LogEnd::default(), |last| last.next);
        let gap = Gap {
            before: self.last,
            behind: Some(begin),
            from,
            until: LogEnd {
                sequence: header.sequence,
                ordinal: header.ordinal,
            },
            durable: header.durable,
            flaw,
        };
        if self.last.is_none() {
            self.first = Some(gap);
        } else if header.ordinal > from.ordinal {
            self.found.push(gap);
        }
        self.last = Some(Seen {
            begin,
            end: LogPosition {
                offset: begin.offset + BLOCK_HEADER as u64 + u64::from(header.stored_len),
                ..begin
            },
            next: LogEnd {
                sequence: header.sequence + 1,
                ordinal: (header.ordinal + u64::from(header.events)).max(from.ordinal),
            },
        });
        self.flaws = flaws;
    }

    /// So many unreadable places are known to be none of what is missing behind the last block.
    pub(super) fn pass(&mut self, flaws: usize) {
        self.flaws = flaws;
    }

    /// All gaps before `end`. `late` is what cursors said after the pass: what outputs passed meanwhile may be gone.
    fn all(mut self, end: LogEnd, late: &Marks, flaws: usize, is_whole: bool) -> Vec<Gap> {
        if let Some(gap) = self.first.take()
            && let Some(lowest) = late.lowest
            && !self.begins_late
            && gap.until > lowest
        {
            let gap = Gap {
                from: lowest,
                ..gap
            };
            self.found.insert(0, gap);
        }
        if is_whole && (self.last.is_some() || !self.begins_late) {
            let from = self.last.map(|last| last.next).or(late.lowest);
            self.found.push(Gap {
                before: self.last,
                behind: None,
                from: from.unwrap_or_default(),
                until: end,
                durable: end.sequence,
                flaw: flaws.checked_sub(1).filter(|last| *last >= self.flaws),
            });
        }
        self.found
    }
}

/// What is judged by: the cursors, and what a start would know.
pub(super) struct Judge<'a> {
    pub(super) late: &'a Marks,
    /// Where the log has to end.
    pub(super) end: LogEnd,
    pub(super) survey: &'a Survey,
    pub(super) range: Range,
    /// Whether the pass went to the end.
    pub(super) is_whole: bool,
}

impl Judge<'_> {
    /// Counts what is missing: with what is unreadable there, or else as a damage of its own.
    pub(super) fn count(&self, gaps: Gaps, flaws: &mut Vec<Pending>) {
        for gap in gaps.all(self.end, self.late, flaws.len(), self.is_whole) {
            let events = match gap.until.sequence > gap.from.sequence {
                true => self.lost(&gap),
                false => 0,
            };
            if events == 0 {
                continue;
            }
            let flaw = gap.flaw.and_then(|index| flaws.get_mut(index));
            match flaw.filter(|flaw| !flaw.damage.torn) {
                Some(flaw) => flaw.damage.events += events,
                None => flaws.push(self.damage(&gap, events)),
            }
        }
        let range = self.range;
        flaws.retain(|flaw| flaw.last >= range.from && flaw.first <= range.to);
    }

    /// How many events of a gap some output had still to get, and were safe.
    fn lost(&self, gap: &Gap) -> u64 {
        let from = gap.from.ordinal.max(self.late.passed());
        let missing = from..gap.until.ordinal;
        self.survey
            .lost_of(missing, gap.from.sequence, gap.behind())
    }

    fn damage(&self, gap: &Gap, events: u64) -> Pending {
        let place = |at: LogPosition| (segment_name(at.segment), at.offset);
        let (file, offset, reason) = match (gap.before, gap.behind) {
            (Some(last), Some(next)) if next.segment > last.begin.segment + 1 => (
                segment_name(last.begin.segment + 1),
                0,
                "the segment is missing",
            ),
            (Some(last), Some(_)) => {
                let (file, offset) = place(last.end);
                (file, offset, "blocks are missing from here on")
            }
            (Some(last), None) => {
                let (file, offset) = place(last.end);
                (
                    file,
                    offset,
                    "the log continued after this point and has been truncated",
                )
            }
            (None, Some(next)) => {
                let (file, offset) = place(next);
                (file, offset, "blocks are missing before this")
            }
            (None, None) => (self.late.file.clone(), 0, "all segments are missing"),
        };
        let (first, last) = (gap.from.sequence, gap.until.sequence - 1);
        Pending {
            place: gap.before.map_or(LogPosition::default(), |last| last.end),
            first,
            last,
            damage: Damage {
                file,
                offset,
                length: 0,
                reason: reason.to_owned(),
                torn: false,
                events,
                first_sequence: Some(first),
                last_sequence: Some(last),
            },
            ordinals: None,
        }
    }
}
