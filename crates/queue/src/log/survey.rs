//! What a start would know of a log, without starting: so that the tools and a run count the same events as lost.

use std::ops::Range;

use disk::Storage;

use super::index::{Behind, Index};
use super::recover::{Examined, limits};
use super::scan::{Head, read_heads, segments};
use super::{LogEnd, LogPosition, SegmentInfo};
use crate::QueueError;

/// The segments, the oldest first, each with the sequence from which on later ones count instead.
pub(crate) fn outlines(storage: &dyn Storage) -> Result<Vec<(SegmentInfo, u64)>, QueueError> {
    let heads = read_heads(storage)?;
    Ok(with_limits(&heads, &limits(&heads)))
}

fn with_limits(heads: &[Head], limits: &[u64]) -> Vec<(SegmentInfo, u64)> {
    let segments = segments(heads).into_iter();
    segments.zip(limits.iter().copied()).collect()
}

/// What a start would know of a log.
#[derive(Debug)]
pub(crate) struct Survey {
    index: Index,
    segments: Vec<(SegmentInfo, u64)>,
    durable: u64,
    end: LogEnd,
}

impl Survey {
    /// `synced` and `passed` are what the cursors of the log say, as in [`super::LogSettings`].
    pub(crate) fn read(
        storage: &dyn Storage,
        synced: LogEnd,
        passed: LogEnd,
    ) -> Result<Self, QueueError> {
        let examined = Examined::read(storage, synced, passed)?;
        let limits = limits(&examined.heads);
        let end = examined.end();
        Ok(Self {
            segments: with_limits(&examined.heads, &limits),
            durable: examined.durable(),
            end: LogEnd {
                sequence: end.sequence.max(synced.sequence),
                ordinal: end.ordinal.max(synced.ordinal),
            },
            index: examined.index(&limits),
        })
    }

    /// As [`outlines`].
    pub(crate) fn segments(&self) -> &[(SegmentInfo, u64)] {
        &self.segments
    }

    /// All sequences below it were synced at some time.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Where it ends.
    pub(crate) fn end(&self) -> LogEnd {
        self.end
    }

    /// Whether what is unreadable at that place never was durable.
    pub(crate) fn is_torn(&self, place: LogPosition) -> bool {
        self.index.is_torn(place)
    }

    /// As [`super::Log::lost_of`]; what was written after the survey is none of it.
    pub(crate) fn lost_of(
        &self,
        missing: Range<u64>,
        from_sequence: u64,
        behind: Option<Behind>,
    ) -> u64 {
        let missing = missing.start..missing.end.min(self.end.ordinal);
        let lost = self.index.lost_of(missing, from_sequence, behind);
        lost.into_iter().map(|range| range.end - range.start).sum()
    }
}
