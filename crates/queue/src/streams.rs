//! How far streams are stored, so that what is sent again after a crash is not stored twice.
//!
//! An input such as `file` saves its positions now and then. After a crash it sends again what it does not know to be safe, under
//! the same ids. The queue knows better: it notes up to where it has stored each stream ([`Streams`]), and a later run leaves out the rows
//! below that (`engine/repeats.rs`), where the input says that it sends the rows of a stream with ascending ends. So what a pipeline with a disk
//! queue counts is what was there, however often it is killed.
//!
//! A power cut may take a part of what was written last and leave what is behind it. Then a stream is stored with a gap ([`Extent`]), until
//! what its input sends again has filled it.
//!
//! The table is written to the files `streams-a` and `streams-b`, in turn, from time to time and before a segment is removed that it does
//! not cover; what was stored since then is read from the log at the start. It covers only what is synced, or was passed by all outputs. Where it is
//! damaged or cannot be written, events come twice, as they would without it: it never takes an event for stored that is not.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use batch::{Batch, Source};
use bytes::Bytes;
use component::Delivery;
use component::input::Issuer;
use disk::{PagePool, Storage};

use crate::QueueError;
use crate::log::{Log, LogEnd, Recovered};
use crate::snapshot::{FoundSnapshots, ProcessorState, Snapshot, take};

/// The files' names.
pub(crate) const NAMES: [&str; 2] = ["streams-a", "streams-b"];

/// Streams that are remembered at most: those that something was stored of last.
const STREAMS_MAX: usize = 1 << 16;

/// So many bytes of batches are stored before the table is written again: what a start reads.
const APART: u64 = 32 << 20;

/// At least so many times the table's size.
const TIMES_ITS_SIZE: u64 = 16;

/// Where there is no table, at most so many bytes of segments are read at the start.
const UNLISTED_MAX: u64 = 64 << 20;

/// About what a stream takes in a file: its id, the sequence, the number of its ranges and one of these.
const ENTRY: usize = 44;

/// What a batch has of its streams that may come again: the stream's id, where its first row starts and its last one ends.
pub type StreamParts = Vec<(u128, Range<u64>)>;

/// The streams of a batch that may come again. Those of connections never do, and dead letters are none.
pub fn stream_parts(batch: &Batch) -> StreamParts {
    if batch.reentry().is_some() {
        return StreamParts::new();
    }
    let origin = batch.origin();
    let streams = origin
        .streams()
        .filter(|(rows, stream)| !rows.is_empty() && matches!(stream.source, Source::File { .. }));
    let part = |rows: Range<usize>| origin.start(rows.start)..origin.end(rows.end - 1);
    streams
        .map(|(rows, stream)| (stream.id, part(rows)))
        .collect()
}

/// How far a stream is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Extent {
    /// Rows in these ranges are stored. The first one begins at 0, none touches the next.
    ranges: Vec<Range<u64>>,
    /// Of the last batch with a row of it.
    sequence: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |last| last.end)
    }

    /// Rows are stored, and everything that comes before them in the stream was stored before.
    fn add(&mut self, rows: &Range<u64>) {
        if rows.start >= self.end() {
            self.ranges.clear();
            self.ranges.push(0..rows.end);
            return;
        }
        let before = self.ranges.partition_point(|one| one.start <= rows.start);
        let Some(index) = before.checked_sub(1) else {
            return;
        };
        let end = rows.end.max(self.ranges[index].end);
        let reached = self.ranges.partition_point(|one| one.start <= end);
        let last = self.ranges[reached - 1].end;
        self.ranges[index].end = end.max(last);
        self.ranges.drain(index + 1..reached);
    }

    /// Rows are stored, and something before them may not be.
    fn add_behind_gap(&mut self, rows: &Range<u64>) {
        match (rows.start.cmp(&self.end()), self.ranges.last_mut()) {
            (Ordering::Less, _) => self.add(rows),
            (Ordering::Equal, Some(last)) => last.end = rows.end,
            _ => self.ranges.push(rows.clone()),
        }
    }

    fn has(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.partition_point(|one| one.start <= start);
        before
            .checked_sub(1)
            .is_some_and(|index| end <= self.ranges[index].end)
    }
}

/// How far streams are stored and synced.
#[derive(Debug, Default)]
pub struct Streams {
    extents: HashMap<u128, Extent>,
    /// What earlier runs stored, until a stream has come further.
    known: HashMap<u128, Extent>,
    /// The table on disk covers what is below this sequence.
    saved: u64,
    /// Bytes of batches stored since it was written.
    since: u64,
    /// Receipts of batches that were left out as a whole.
    left_out: Vec<(Issuer, Delivery)>,
}

impl Streams {
    /// A batch of so many bytes was synced.
    pub fn stored(&mut self, sequence: u64, size: usize, parts: &[(u128, Range<u64>)]) {
        self.since += size as u64;
        for (id, rows) in parts {
            let extent = self.extents.entry(*id).or_default();
            extent.add(rows);
            extent.sequence = sequence;
        }
        if self.extents.len() > STREAMS_MAX {
            self.forget_half();
        }
    }

    /// A batch was found in the log behind a gap.
    fn found_behind_gap(&mut self, sequence: u64, parts: &[(u128, Range<u64>)]) {
        for (id, rows) in parts {
            // Of a stream that was not known before, nobody knows what was in the gap.
            let extent = self.extents.entry(*id).or_insert_with(|| Extent {
                ranges: std::iter::once(0..0).collect(),
                sequence,
            });
            extent.add_behind_gap(rows);
            extent.sequence = sequence;
        }
    }

    /// Forgets the streams of which nothing was stored for the longest time.
    fn forget_half(&mut self) {
        let mut sequences: Vec<u64> = self.extents.values().map(|one| one.sequence).collect();
        let middle = sequences.len() / 2;
        let (_, middle, _) = sequences.select_nth_unstable(middle);
        let middle = *middle;
        self.extents.retain(|_, one| one.sequence >= middle);
    }

    /// Whether the table is to be written, where what it can cover ends at `end`, and what is below `needed` may be removed.
    fn is_due(&self, end: u64, needed: u64, first_kept: Option<u64>) -> bool {
        let apart = APART.max((self.extents.len() * ENTRY) as u64 * TIMES_ITS_SIZE);
        let goes = first_kept.is_some_and(|first| self.saved < first && first <= needed);
        self.saved < end && (self.since >= apart || goes)
    }

    fn encode(&self, end: LogEnd) -> Snapshot {
        let mut bytes = Vec::with_capacity(self.extents.len() * ENTRY);
        for (id, one) in &self.extents {
            bytes.extend(id.to_le_bytes());
            bytes.extend(one.sequence.to_le_bytes());
            bytes.extend((one.ranges.len() as u32).to_le_bytes());
            for range in &one.ranges {
                bytes.extend(range.start.to_le_bytes());
                bytes.extend(range.end.to_le_bytes());
            }
        }
        Snapshot {
            position: end.sequence,
            ordinal: end.ordinal,
            states: vec![ProcessorState {
                name: "streams".to_owned(),
                fingerprint: 0,
                bytes,
            }],
        }
    }

    fn decode(&mut self, table: &Snapshot) {
        self.saved = table.position;
        for state in &table.states {
            let mut rest = &state.bytes[..];
            while let Some((id, extent)) = decode_extent(&mut rest) {
                self.extents.insert(id, extent);
            }
        }
    }

    /// Which rows of a batch are not known to be stored; none where all are to be kept.
    pub fn new_rows(&mut self, batch: &Batch) -> Option<Vec<usize>> {
        let origin = batch.origin();
        let mut new = Vec::new();
        for (rows, stream) in origin.streams() {
            let Some(known) = self.known.get(&stream.id) else {
                new.extend(rows);
                continue;
            };
            // A row with an id of its own is one of several that end in the same place.
            let is_known =
                |row| known.has(origin.start(row), origin.end(row)) && !origin.has_own_id(row);
            let is_beyond = !rows.is_empty() && origin.start(rows.start) >= known.end();
            new.extend(rows.filter(|&row| !is_known(row)));
            if is_beyond {
                self.known.remove(&stream.id);
            }
        }
        (new.len() < batch.len()).then_some(new)
    }
}

fn decode_extent(rest: &mut &[u8]) -> Option<(u128, Extent)> {
    let id = u128::from_le_bytes(take(rest)?);
    let sequence = u64::from_le_bytes(take(rest)?);
    let count = u32::from_le_bytes(take(rest)?);
    let mut ranges = Vec::new();
    for _ in 0..count {
        let start = u64::from_le_bytes(take(rest)?);
        ranges.push(start..u64::from_le_bytes(take(rest)?));
    }
    Some((id, Extent { ranges, sequence }))
}

/// What an earlier run noted, with the number of its file.
///
/// # Errors
/// A file has the format of a later version, or cannot be opened.
pub fn load(storage: &dyn Storage) -> Result<Option<(usize, Snapshot)>, QueueError> {
    Ok(FoundSnapshots::load(storage, NAMES)?.at_most(u64::MAX))
}

/// How far streams are stored, by the table and what follows in the log.
/// Every output has passed what is below `passed`.
pub fn recover(table: Option<&Snapshot>, log: &Log, recovered: &Recovered, passed: u64) -> Streams {
    let mut streams = Streams::default();
    // Without a table, nobody knows what was before the first batch that is read, if it is not the first one ever.
    let mut expected = 0;
    match table {
        // A log that does not come so far has lost something, if it was needed: what is sent again of that is welcome.
        Some(table) if table.position <= recovered.next_sequence.max(passed) => {
            streams.decode(table);
            expected = table.ordinal;
        }
        _ => streams.saved = unlisted_from(log, recovered),
    }
    let mut reader = log.reader(streams.saved);
    let pool = PagePool::default();
    let mut is_behind_gap = false;
    // What cannot be read is not known to be stored.
    while let Ok(Some(found)) = reader.next() {
        is_behind_gap |= expected != found.ordinal;
        let loaded = log.load(&found, &pool).ok();
        let size = loaded.as_ref().map_or(0, Bytes::len);
        let Some(batch) = loaded.and_then(|payload| Batch::thaw(payload).ok()) else {
            continue;
        };
        expected = found.ordinal_end();
        let parts = stream_parts(&batch);
        match is_behind_gap {
            false => streams.stored(found.sequence, size, &parts),
            true => streams.found_behind_gap(found.sequence, &parts),
        }
    }
    streams.known = streams.extents.clone();
    streams
}

/// Where reading begins without a table.
fn unlisted_from(log: &Log, recovered: &Recovered) -> u64 {
    let mut from = recovered.next_sequence;
    let mut size = 0;
    for segment in log.first_of_segments().iter().rev() {
        size += segment.length;
        if size > UNLISTED_MAX && from < recovered.next_sequence {
            break;
        }
        from = from.min(segment.first_sequence);
    }
    from
}

impl Streams {
    /// Whether some stream may not have come as far as earlier runs stored it.
    pub fn has_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// A batch was left out as a whole, as this says.
    pub fn leave_out(&mut self, issuer: Issuer, delivery: Delivery) {
        self.left_out.push((issuer, delivery));
    }

    /// The table, where it is to be written: what is synced, or was passed by all outputs, ends at `end`, and what is below `needed` may be removed.
    /// `first_kept` is the first sequence of the segment that has that; `passed` is what is not synced of what ends at `end`. It counts as written.
    pub fn take_due<'a>(
        &mut self,
        end: LogEnd,
        needed: u64,
        first_kept: Option<u64>,
        passed: impl Iterator<Item = (u64, &'a [(u128, Range<u64>)])>,
    ) -> Option<Snapshot> {
        if !self.is_due(end.sequence, needed, first_kept) {
            return None;
        }
        for (sequence, parts) in passed {
            // Its size counts once it is synced.
            self.stored(sequence, 0, parts);
        }
        self.since = 0;
        self.saved = end.sequence;
        Some(self.encode(end))
    }

    /// Whether receipts of batches wait that were left out.
    pub fn has_left_out(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// The receipts of batches that were left out.
    pub fn take_left_out(&mut self) -> Vec<(Issuer, Delivery)> {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_filled_by_what_comes_again() {
        let mut extent = Extent::default();
        extent.add(&(0..10));
        extent.add(&(10..30));
        assert_eq!((extent.ranges.len(), extent.end()), (1, 30));
        extent.add_behind_gap(&(50..60));
        extent.add_behind_gap(&(60..70));
        extent.add_behind_gap(&(90..99));
        assert_eq!(extent.ranges, [0..30, 50..70, 90..99]);
        let has = |extent: &Extent, rows: &[(u64, u64)]| -> Vec<bool> {
            rows.iter()
                .map(|&(start, end)| extent.has(start, end))
                .collect()
        };
        let rows = [
            (20, 30),
            (30, 40),
            (40, 50),
            (50, 55),
            (60, 70),
            (70, 90),
            (98, 99),
        ];
        assert_eq!(
            has(&extent, &rows),
            [true, false, false, true, true, false, true]
        );
        // What is between 40 and 50 was no event.
        extent.add(&(30..40));
        assert_eq!(extent.ranges, [0..40, 50..70, 90..99]);
        extent.add(&(70..95));
        assert_eq!(extent.ranges, [0..40, 50..99]);
        extent.add(&(99..120));
        assert_eq!((extent.ranges.len(), extent.end()), (1, 120));
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut streams = Streams::default();
        streams.stored(7, 100, &[(1, 0..50), (u128::MAX, 20..60)]);
        streams.found_behind_gap(8, &[(1, 80..90)]);
        let end = LogEnd {
            sequence: 9,
            ordinal: 12,
        };
        let table = streams.encode(end);
        let mut read = Streams::default();
        read.decode(&table);
        assert_eq!((read.extents, read.saved), (streams.extents, 9));
    }

    #[test]
    fn what_all_outputs_passed_counts_as_stored_when_its_segment_goes() {
        let mut streams = Streams::default();
        streams.stored(0, 100, &[(1, 0..50)]);
        let end = LogEnd {
            sequence: 2,
            ordinal: 7,
        };
        let parts = [(1, 50..80)];
        let passed = || std::iter::once((1, &parts[..]));
        assert!(streams.take_due(end, 0, Some(0), passed()).is_none());
        let table = streams.take_due(end, 2, Some(2), passed());
        let mut read = Streams::default();
        read.decode(&table.expect("a segment goes"));
        assert_eq!((read.saved, read.extents[&1].has(50, 80)), (2, true));
    }

    #[test]
    fn the_streams_of_the_longest_silence_are_forgotten() {
        let mut streams = Streams::default();
        for number in 0..=STREAMS_MAX as u64 {
            streams.stored(number, 1, &[(number.into(), 0..1)]);
        }
        assert_eq!(streams.extents.len(), STREAMS_MAX / 2 + 1);
        assert!(streams.extents.contains_key(&(STREAMS_MAX as u128)));
        assert!(!streams.extents.contains_key(&0));
    }
}
