//! One pass over the segments of a queue that nobody needs to have opened.

use std::fs;
use std::io;
use std::ops::{self, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use disk::lock::holder;
use disk::{PAGE, StoredFile};

use super::missing::{Gaps, Judge, Marks, Pending};
use super::range::Range;
use super::{Damage, InspectError, PayloadError, QueueFolder, SegmentReport, age};
use crate::log::{
    BLOCK_HEADER, BlockHeader, Compression, Item, LogEnd, LogPosition, ScanOptions, Scanner,
    SegmentInfo, Survey, WRONG_CHECKSUM, decompress, outlines, segment_name, segment_number,
};
use crate::{QueueError, synced};

/// Read at once for the sake of payloads.
const AHEAD: usize = 1024 * 1024;

/// A block in its segment.
#[derive(Debug)]
pub struct Block {
    /// The segment's number.
    pub segment: u64,
    /// Where the block begins in the segment.
    pub offset: u64,
    /// What its header says.
    pub header: BlockHeader,
    /// Whether its payload is what was written; true when that was not looked at.
    pub payload_ok: bool,
    /// Whether a later segment holds it again. Such a block does not count.
    pub superseded: bool,
    file: Arc<dyn StoredFile>,
}

impl Block {
    /// The name of the segment's file.
    pub fn file_name(&self) -> String {
        segment_name(self.segment)
    }

    fn payload_offset(&self) -> u64 {
        self.offset + BLOCK_HEADER as u64
    }

    /// Bytes of header and payload.
    pub fn size(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.header.stored_len)
    }
}

/// A part of a segment that was read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    segment: u64,
    start: u64,
    bytes: Bytes,
}

impl QueueFolder {
    /// The payload of a block, its checksum verified: a batch as it was frozen. Blocks that follow one another are read
    /// many at a time.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn load(&self, block: &Block) -> Result<Bytes, PayloadError> {
        let is_right = |stored: &Bytes| crc32fast::hash(stored) == block.header.payload_crc;
        // What was read ahead may be older than the block.
        let stored = match self.known(block).filter(is_right) {
            Some(stored) => stored,
            None => self.read(block)?,
        };
        if stored.len() < block.header.stored_len as usize || !is_right(&stored) {
            return Err(PayloadError::Checksum);
        }
        if block.header.compression == Compression::None {
            return Ok(stored);
        }
        let raw = decompress(&block.header, &stored, &self.pool);
        raw.ok_or(PayloadError::Compression)
    }

    /// The stored payload, where it was read ahead.
    fn known(&self, block: &Block) -> Option<Bytes> {
        let ahead = self.ahead.lock();
        let ahead = ahead.as_ref()?;
        let from = block.payload_offset().checked_sub(ahead.start)? as usize;
        let until = from.checked_add(block.header.stored_len as usize)?;
        let is_there = ahead.segment == block.segment && until <= ahead.bytes.len();
        is_there.then(|| ahead.bytes.slice(from..until))
    }

    /// Reads the stored payload and what follows it, from page to page, as direct I/O wants it.
    fn read(&self, block: &Block) -> io::Result<Bytes> {
        let from = block.payload_offset();
        let skipped = (from % PAGE as u64) as usize;
        let stored = block.header.stored_len as usize;
        let mut buffer = self.pool.take((skipped + stored).max(AHEAD));
        let start = from - skipped as u64;
        let read = block.file.read_at(&mut buffer, start)?;
        let bytes = buffer.freeze(0..read);
        let payload = bytes.slice(skipped.min(read)..(skipped + stored).min(read));
        let ahead = Ahead {
            segment: block.segment,
            start,
            bytes,
        };
        *self.ahead.lock() = Some(ahead);
        Ok(payload)
    }
}

/// What a pass found.
#[derive(Debug, Default)]
pub struct Scan {
    /// The segments that were read.
    pub segments: Vec<Segment>,
    /// What is no block in them, and blocks whose payload is damaged when payloads were read.
    pub damage: Vec<Damage>,
}

/// A segment, while its ages are still times.
#[derive(Debug)]
pub struct Segment {
    /// What was counted.
    pub report: SegmentReport,
    times: Option<(i64, i64)>,
}

impl Segment {
    fn new(info: &SegmentInfo) -> Self {
        Self {
            report: SegmentReport {
                number: info.number,
                first_sequence: None,
                last_sequence: None,
                blocks: 0,
                events: 0,
                superseded_blocks: 0,
                size_bytes: info.length,
                used_bytes: info.length,
                oldest_seconds: None,
                newest_seconds: None,
                list: None,
            },
            times: None,
        }
    }

    fn count(&mut self, block: &Block) {
        let (report, header) = (&mut self.report, &block.header);
        if block.superseded {
            report.superseded_blocks += 1;
            return;
        }
        report.blocks += 1;
        report.events += u64::from(header.events);
        report.first_sequence.get_or_insert(header.sequence);
        report.last_sequence = Some(header.sequence);
        let first = self.times.map_or(header.time, |(first, _)| first);
        self.times = Some((first, header.time));
    }

    pub(super) fn set_ages(&mut self, now: i64) {
        self.report.oldest_seconds = self.times.map(|(first, _)| age(first, now));
        self.report.newest_seconds = self.times.map(|(_, last)| age(last, now));
    }
}

/// Who sees the blocks. Breaking off ends the pass.
pub type Visit<'a> = dyn FnMut(&Block) -> ControlFlow<()> + 'a;

impl QueueFolder {
    /// Shows the blocks in their order, those included that a later segment holds again. Segments that hold nothing of
    /// the range are left out, and so is damage that cannot have held anything of it.
    ///
    /// # Errors
    /// The folder cannot be read, or a later version wrote in it.
    pub fn scan(
        &self,
        range: Range,
        verify_payload: bool,
        visit: &mut Visit<'_>,
    ) -> Result<Scan, InspectError> {
        // A run writes while this reads: what was there is read before the pass, what all outputs have passed behind it.
        let was_in_use = holder(&self.path).is_some();
        let early = self.marks()?;
        let passed = early.lowest.unwrap_or_default();
        let survey = Survey::read(&*self.storage, early.end, passed).map_err(self.wrong())?;
        let mut taken = self
            .taken_names()
            .map_err(self.wrong())?
            .into_iter()
            .peekable();
        let mut pass = Pass {
            range,
            verify_payload,
            last: None,
            survey: &survey,
            gaps: Gaps::default(),
            is_whole: true,
            pending: Vec::new(),
            scan: Scan::default(),
        };
        for (info, end) in survey.segments() {
            let end = *end;
            if end <= range.from {
                pass.gaps.begins_late = true;
                continue;
            }
            while let Some(number) = taken.next_if(|number| *number < info.number) {
                pass.note_taken(number, info.first_sequence);
            }
            let name = segment_name(info.number);
            let file = match self.storage.open(&name) {
                // All outputs have passed it since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file
                    .map_err(QueueError::io("open", name))
                    .map_err(self.wrong())?,
            };
            let flow = pass.segment(info, end, &file, visit);
            let flow = flow.map_err(QueueError::io("read", segment_name(info.number)));
            if flow.map_err(self.wrong())?.is_break() {
                pass.is_whole = false;
                break;
            }
        }
        for number in taken.filter(|_| pass.is_whole).collect::<Vec<_>>() {
            pass.note_taken(number, u64::MAX);
        }
        let late = self.marks()?;
        // What a running process wrote behind its last sync it may take back at any time, to write it again elsewhere.
        let is_in_use = was_in_use || holder(&self.path).is_some();
        let may_take_back = is_in_use && survey.durable() < survey.end().sequence;
        let end = if may_take_back {
            early.end
        } else {
            survey.end()
        };
        Ok(pass.finish(&late, end))
    }

    /// The block with that sequence that counts, by its header and without looking for damage.
    ///
    /// # Errors
    /// The folder cannot be read, or a segment of it is of a later version.
    pub fn block(&self, sequence: u64) -> Result<Option<Block>, InspectError> {
        let outlines = outlines(&*self.storage).map_err(self.wrong())?;
        let holds =
            |(info, end): &&(SegmentInfo, u64)| info.first_sequence <= sequence && sequence < *end;
        let Some((info, _)) = outlines.iter().rev().find(holds) else {
            return Ok(None);
        };
        let name = segment_name(info.number);
        let find = || -> io::Result<Option<Block>> {
            let file = self.storage.open(&name)?;
            let scanner = Scanner::new(&*file, info.number, ScanOptions::default())?;
            let mut scanner = scanner.pass_unreadable();
            while let Some(item) = scanner.next_item()? {
                match item {
                    Item::Block { offset, header, .. } if header.sequence == sequence => {
                        return Ok(Some(Block {
                            segment: info.number,
                            offset,
                            header,
                            payload_ok: true,
                            superseded: false,
                            file: Arc::clone(&file),
                        }));
                    }
                    _ => (),
                }
            }
            Ok(None)
        };
        match find() {
            // All outputs have passed it since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found
                .map_err(QueueError::io("read", &name))
                .map_err(self.wrong()),
        }
    }

    fn marks(&self) -> Result<Marks, InspectError> {
        let synced = synced::read(&*self.storage).end();
        Ok(Marks::of(&self.cursors()?.0, synced))
    }

    /// The numbers of segments whose names something has that is no file.
    fn taken_names(&self) -> Result<Vec<u64>, QueueError> {
        let failed = || QueueError::io("list", &self.path);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let number = entry.file_name().to_str().and_then(segment_number);
            // What is gone again was a segment.
            let is_taken = entry.file_type().is_ok_and(|kind| !kind.is_file());
            numbers.extend(number.filter(|_| is_taken));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

struct Pass<'a> {
    survey: &'a Survey,
    range: Range,
    verify_payload: bool,
    /// The sequence of the last block that counts.
    last: Option<u64>,
    gaps: Gaps,
    /// Whether nobody broke it off.
    is_whole: bool,
    pending: Vec<Pending>,
    scan: Scan,
}

impl Pass<'_> {
    /// Blocks of the segment count below `end`.
    fn segment(
        &mut self,
        info: &SegmentInfo,
        end: u64,
        file: &Arc<dyn StoredFile>,
        visit: &mut Visit<'_>,
    ) -> io::Result<ControlFlow<()>> {
        let options = ScanOptions {
            from: 0,
            verify_payload: self.verify_payload,
        };
        let mut scanner = Scanner::new(&**file, info.number, options)?.pass_unreadable();
        let mut segment = Segment::new(info);
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue()
            && let Some(item) = scanner.next_item()?
        {
            match item {
                Item::Block {
                    offset,
                    header,
                    payload_ok,
                } => {
                    let block = Block {
                        segment: info.number,
                        offset,
                        header,
                        payload_ok,
                        superseded: header.sequence >= end
                            || self.last.is_some_and(|last| header.sequence <= last),
                        file: Arc::clone(file),
                    };
                    flow = self.block(&block, &mut segment, visit);
                }
                Item::Damage { range, reason, .. } => {
                    let first = self.last.map(|last| last + 1);
                    let first = first.unwrap_or(match info.first_sequence {
                        u64::MAX => 0,
                        known => known,
                    });
                    let length = range.end - range.start;
                    self.note(
                        (info.number, range.start),
                        length,
                        reason,
                        (first, end.saturating_sub(1)),
                    );
                }
                Item::Free(range) => segment.report.used_bytes = range.start,
            }
        }
        self.scan.segments.push(segment);
        Ok(flow)
    }

    fn block(
        &mut self,
        block: &Block,
        segment: &mut Segment,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let sequence = block.header.sequence;
        if !block.superseded {
            self.limit(sequence);
            let place = LogPosition {
                segment: block.segment,
                offset: block.offset,
            };
            self.gaps.see(place, &block.header, self.pending.len());
            if sequence > self.range.to {
                return ControlFlow::Break(());
            }
            self.last = Some(sequence);
        }
        segment.count(block);
        if !block.payload_ok && !block.superseded {
            let place = (block.segment, block.offset);
            let reason = WRONG_CHECKSUM.to_owned();
            self.note(place, block.size(), reason, (sequence, sequence));
            if let Some(pending) = self.pending.last_mut() {
                pending.ordinals = Some(block.header.ordinals());
            }
            // What is missing behind it is another matter.
            self.gaps.pass(self.pending.len());
        }
        if self.range.holds(sequence) {
            return visit(block);
        }
        ControlFlow::Continue(())
    }

    /// A block shows that what is missing before it has lower sequences.
    fn limit(&mut self, sequence: u64) {
        for pending in self.pending.iter_mut().rev() {
            if pending.last < sequence {
                break;
            }
            pending.last = sequence.saturating_sub(1);
        }
    }

    fn note(
        &mut self,
        (segment, offset): (u64, u64),
        length: u64,
        reason: String,
        (first, last): (u64, u64),
    ) {
        self.pending.push(Pending {
            place: LogPosition { segment, offset },
            damage: Damage {
                file: segment_name(segment),
                offset,
                length,
                reason,
                torn: false,
                events: 0,
                first_sequence: Some(first),
                last_sequence: None,
            },
            first,
            last,
            ordinals: None,
        });
    }

    /// The name of a segment is taken by something else.
    fn note_taken(&mut self, number: u64, end: u64) {
        let first = self.last.map_or(0, |last| last + 1);
        let reason = "it is not a file".to_owned();
        self.note((number, 0), 0, reason, (first, end.saturating_sub(1)));
    }

    /// `late` is what cursors say after the pass, `end` where the log has to end.
    fn finish(mut self, late: &Marks, end: LogEnd) -> Scan {
        for pending in &mut self.pending {
            let lost_of =
                |events: ops::Range<u64>| self.survey.lost_of(events, pending.first, None);
            let events = pending.ordinals.clone().unwrap_or_default();
            let was_torn = match events.is_empty() {
                true => self.survey.is_torn(pending.place),
                false => lost_of(events.clone()) == 0,
            };
            // What every output has passed is no loss.
            pending.damage.events = lost_of(events.start.max(late.passed())..events.end);
            let is_taken = pending.place.offset == 0 && pending.damage.length == 0;
            let is_behind = pending.first >= self.survey.durable();
            pending.damage.torn = !is_taken && (is_behind || was_torn);
            pending.damage.last_sequence = (pending.last < u64::MAX - 1).then_some(pending.last);
        }
        let judge = Judge {
            late,
            end,
            survey: self.survey,
            range: self.range,
            is_whole: self.is_whole,
        };
        judge.count(self.gaps, &mut self.pending);
        self.pending.sort_by_key(|pending| pending.place);
        let damages = self.pending.into_iter().map(|pending| pending.damage);
        self.scan.damage.extend(damages);
        self.scan
    }
}
