//! Writes groups, syncs them, and gives segments back.
//!
//! A segment is preallocated where the file system can do that, so that a full disk is noticed when a segment is created, never
//! in the middle of a block.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{PAGE, PageBuffer, StoredFile};

use super::format::{BlockHeader, SegmentHeader, Torn, segment_name};
use super::index::{Index, Segment};
use super::scan::First;
use super::{Block, LogPosition, Shared};

/// Written at once.
const BUFFER: usize = 1024 * 1024;

/// The end of the log that grows.
#[derive(Debug)]
pub(super) struct Writer {
    active: Option<Active>,
    buffer: PageBuffer,
    segment_size: u64,
    /// The number of the next segment.
    next_number: u64,
}

#[derive(Debug, Clone)]
struct Active {
    number: u64,
    file: Arc<dyn StoredFile>,
    /// Where the next group begins.
    at: u64,
    length: u64,
    /// No block of it may have a later version.
    block_version: u8,
}

/// Blocks that go into one segment.
struct Piece {
    blocks: Range<usize>,
    target: Active,
    /// The header, when the segment is new.
    header: Option<SegmentHeader>,
}

impl Writer {
    pub(super) fn new(segment_size: u64, next_number: u64) -> Self {
        let page = PAGE as u64;
        Self {
            active: None,
            buffer: PageBuffer::new(BUFFER),
            segment_size: segment_size.next_multiple_of(page).max(2 * page),
            next_number,
        }
    }

    pub(super) fn append(&mut self, shared: &Shared, blocks: &[Block]) -> io::Result<()> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Ok(());
        };
        let (durable, highest) = {
            let mut index = shared.index();
            check(&index, first, blocks)?;
            let versions = blocks.iter().map(|block| block.payload.version());
            index.block_version = versions.fold(index.block_version, u8::max);
            (index.mark, index.highest_sequence)
        };
        let mut pieces = self.make_pieces(shared, blocks, durable, highest)?;
        // Also when the write fails, something of it may be found later.
        shared.index().highest_sequence = highest.max(last.sequence + 1);
        for piece in &mut pieces {
            if let Err(failure) = self.write(piece, blocks, durable) {
                self.clear_up(shared, &pieces);
                return Err(failure);
            }
        }
        self.active = pieces.last().map(|piece| piece.target.clone());
        publish(&mut shared.index(), pieces, last.sequence + 1);
        Ok(())
    }

    /// After a failed append: the rest of the segment is not used, because a page of it may have been written, and the
    /// new segments are removed, which a crash may undo.
    fn clear_up(&mut self, shared: &Shared, pieces: &[Piece]) {
        let made = pieces.iter().find(|piece| piece.header.is_some());
        let made = made.map(|piece| (piece.target.number, 0));
        let begun = self.active.take().map(|active| (active.number, active.at));
        let Some((segment, offset)) = begun.or(made) else {
            return;
        };
        shared.index().add_torn(Torn {
            from: LogPosition { segment, offset },
            until: self.next_number,
        });
        remove_new(shared, pieces);
    }

    /// Takes back what was not synced.
    pub(super) fn abandon(&mut self, shared: &Shared) {
        self.active = None;
        let mut index = shared.index();
        let index = &mut *index;
        index.active = None;
        index.is_failed = false;
        index.epoch += 1;
        let durable = index.durable();
        index.next_sequence = durable;
        let useless = index.superseded();
        let mut torn_from = None;
        for (number, segment) in &mut index.segments {
            segment.limit = segment.limit.min(durable);
            if segment.synced < segment.written && !segment.abandoned {
                segment.abandoned = true;
                let offset = segment.synced;
                torn_from = torn_from.or(Some(LogPosition {
                    segment: *number,
                    offset,
                }));
            }
        }
        if let Some(from) = torn_from {
            index.add_torn(Torn {
                from,
                until: self.next_number,
            });
        }
        // Otherwise a disk on which every sync fails would fill with copies.
        remove_useless(shared, index, &useless);
    }

    /// Spreads blocks over segments and makes those that are missing, all of them or none.
    fn make_pieces(
        &mut self,
        shared: &Shared,
        blocks: &[Block],
        durable: u64,
        highest_sequence: u64,
    ) -> io::Result<Vec<Piece>> {
        let page = PAGE as u64;
        let whole = group_length(blocks);
        let block_version = shared.index().block_version;
        if let Some(active) = &self.active
            && active.length - active.at >= whole
            && active.block_version >= block_version
        {
            return Ok(vec![Piece {
                blocks: 0..blocks.len(),
                target: active.clone(),
                header: None,
            }]);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for range in ranges(blocks, self.segment_size - page) {
            let number = self.next_number;
            // A number is never used twice, also when its file could not be made.
            self.next_number += 1;
            let length = (page + group_length(&blocks[range.clone()])).max(self.segment_size);
            let file = match shared.storage.create(&segment_name(number), length) {
                Ok(file) => file,
                Err(failure) => {
                    if !pieces.is_empty() {
                        self.clear_up(shared, &pieces);
                    }
                    return Err(failure);
                }
            };
            let first = &blocks[range.start];
            let (torn, never_durable) = {
                let mut index = shared.index();
                (index.torn(), Some(index.never_durable()))
            };
            pieces.push(Piece {
                blocks: range,
                target: Active {
                    number,
                    file,
                    at: 0,
                    length,
                    block_version,
                },
                header: Some(SegmentHeader {
                    number,
                    first_sequence: first.sequence,
                    first_ordinal: first.ordinal,
                    first_time: first.time,
                    durable,
                    next_sequence: highest_sequence.max(first.sequence),
                    torn,
                    never_durable,
                    block_version,
                }),
            });
        }
        Ok(pieces)
    }

    fn write(&mut self, piece: &mut Piece, blocks: &[Block], durable: u64) -> io::Result<()> {
        let mut output = Output {
            buffer: &mut self.buffer,
            used: 0,
            file: &*piece.target.file,
            at: piece.target.at,
        };
        if let Some(header) = &piece.header {
            header.encode(&mut output.buffer[..PAGE]);
            output.used = PAGE;
        }
        for block in &blocks[piece.blocks.clone()] {
            let place = LogPosition {
                segment: piece.target.number,
                offset: output.at + output.used as u64,
            };
            output.put(&header_of(block, durable)?.encode(place))?;
            for part in block.payload.parts() {
                output.put(part)?;
            }
        }
        piece.target.at = output.finish()?;
        Ok(())
    }
}

/// Collects bytes into writes of whole pages.
struct Output<'a> {
    buffer: &'a mut PageBuffer,
    used: usize,
    file: &'a dyn StoredFile,
    at: u64,
}

impl Output<'_> {
    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.used == self.buffer.len() {
                self.flush()?;
            }
            let size = bytes.len().min(self.buffer.len() - self.used);
            let (now, later) = bytes.split_at(size);
            self.buffer[self.used..][..size].copy_from_slice(now);
            self.used += size;
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer[..self.used], self.at)?;
        self.at += self.used as u64;
        self.used = 0;
        Ok(())
    }

    /// Fills the last page with zeros; where the group ends.
    fn finish(mut self) -> io::Result<u64> {
        let end = self.used.next_multiple_of(PAGE);
        self.buffer[self.used..end].fill(0);
        self.used = end;
        if end > 0 {
            self.flush()?;
        }
        Ok(self.at)
    }
}

fn group_length(blocks: &[Block]) -> u64 {
    let length: u64 = blocks.iter().map(Block::stored_size).sum();
    length.next_multiple_of(PAGE as u64)
}

/// Cuts blocks into ranges of at most so many bytes, each with one block at least.
fn ranges(blocks: &[Block], room: u64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut length) = (0, 0);
    for (index, block) in blocks.iter().enumerate() {
        let more = block.stored_size();
        if index > start && length + more > room {
            ranges.push(start..index);
            (start, length) = (index, 0);
        }
        length += more;
    }
    ranges.push(start..blocks.len());
    ranges
}

fn header_of(block: &Block, durable: u64) -> io::Result<BlockHeader> {
    let length = |length: usize| {
        let refused = |_| invalid("a payload of 4 GiB or more cannot be written");
        u32::try_from(length).map_err(refused)
    };
    Ok(BlockHeader {
        version: block.payload.version(),
        compression: block.payload.compression(),
        sequence: block.sequence,
        ordinal: block.ordinal,
        time: block.time,
        durable,
        events: block.events,
        stored_len: length(block.payload.stored_len())?,
        raw_len: length(block.payload.raw_len())?,
        payload_crc: block.payload.crc(),
    })
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// Refuses blocks that would break the log.
fn check(index: &Index, first: &Block, blocks: &[Block]) -> io::Result<()> {
    let ascending = blocks
        .windows(2)
        .all(|pair| pair[0].sequence < pair[1].sequence);
    let sound =
        first.sequence >= index.next_sequence && blocks.iter().all(|b| b.sequence < u64::MAX);
    if !ascending || !sound {
        return Err(invalid("sequence numbers do not ascend"));
    }
    for block in blocks {
        header_of(block, 0)?;
    }
    if index.is_failed {
        return Err(unsynced());
    }
    Ok(())
}

fn unsynced() -> io::Error {
    io::Error::other(
        "a sync failed; everything written since the last successful sync must be written again",
    )
}

/// Removes the files that were made for an append that failed.
fn remove_new(shared: &Shared, pieces: &[Piece]) {
    for piece in pieces.iter().filter(|piece| piece.header.is_some()) {
        // What stays counts as little as if it were gone: the next segment supersedes it.
        drop(shared.storage.remove(&segment_name(piece.target.number)));
    }
}

/// Shows readers what was written.
fn publish(index: &mut Index, pieces: Vec<Piece>, next_sequence: u64) {
    for Piece { target, header, .. } in pieces {
        if let Some(header) = header {
            index.supersede(target.number, header.first_sequence);
            let segment = Segment {
                first: Some(First {
                    sequence: header.first_sequence,
                    ordinal: header.first_ordinal,
                    time: header.first_time,
                }),
                limit: u64::MAX,
                written: 0,
                length: target.length,
                synced: 0,
                named: false,
                abandoned: false,
                file: Some(target.file),
            };
            index.segments.insert(target.number, segment);
        }
        if let Some(segment) = index.segments.get_mut(&target.number) {
            segment.written = target.at;
        }
        index.active = Some(target.number);
        index.active_block_version = target.block_version;
    }
    index.next_sequence = next_sequence;
}

/// What one sync has to do.
struct Pending {
    files: Vec<(u64, Arc<dyn StoredFile>, u64)>,
    folder: bool,
    epoch: u64,
    next_sequence: u64,
}

pub(super) fn sync(shared: &Shared) -> io::Result<()> {
    let pending = pending(&shared.index())?;
    let synced = sync_files(shared, &pending);
    let mut index = shared.index();
    if index.epoch != pending.epoch {
        return Err(io::Error::other("the log has been abandoned"));
    }
    if let Err(failure) = synced {
        index.is_failed = true;
        return Err(failure);
    }
    for (number, _, written) in &pending.files {
        if let Some(segment) = index.segments.get_mut(number) {
            segment.synced = *written;
            segment.named = true;
        }
    }
    // Before the first block of this run there is no header yet that says what was torn.
    if pending.next_sequence > index.floor {
        index.mark = index.mark.max(pending.next_sequence);
    }
    // All that was taken back is there again.
    if index.mark >= index.highest_sequence {
        let useless = index.superseded();
        remove_useless(shared, &mut index, &useless);
    }
    drop(index);
    cut_full(shared);
    Ok(())
}

fn pending(index: &Index) -> io::Result<Pending> {
    if index.is_failed {
        return Err(unsynced());
    }
    let unsynced = index.segments.iter().filter(|(_, segment)| {
        !segment.abandoned && (segment.synced < segment.written || !segment.named)
    });
    let files: Vec<_> = unsynced
        .filter_map(|(number, segment)| Some((*number, segment.file.clone()?, segment.written)))
        .collect();
    let mut segments = index.segments.values();
    Ok(Pending {
        folder: segments.any(|segment| !segment.named && !segment.abandoned),
        files,
        epoch: index.epoch,
        next_sequence: index.next_sequence,
    })
}

fn sync_files(shared: &Shared, pending: &Pending) -> io::Result<()> {
    for (_, file, _) in &pending.files {
        file.sync()?;
    }
    if pending.folder {
        shared.storage.sync_folder("")?;
    }
    Ok(())
}

/// Gives the room back that full segments do not use. When that fails, the room goes with the segment.
fn cut_full(shared: &Shared) {
    let full: Vec<_> = {
        let mut index = shared.index();
        let active = index.active;
        let done = index.segments.iter_mut().filter(|(number, segment)| {
            Some(**number) != active && (segment.abandoned || segment.synced == segment.written)
        });
        done.filter_map(|(number, segment)| {
            let file = segment.file.take()?;
            (segment.length > segment.written).then_some((*number, file, segment.written))
        })
        .collect()
    };
    for (number, file, written) in full {
        if file.cut(written).is_ok()
            && let Some(segment) = shared.index().segments.get_mut(&number)
        {
            segment.length = written;
        }
    }
}

/// Removes segments of which no block counts. When that fails, they go when they are released.
fn remove_useless(shared: &Shared, index: &mut Index, numbers: &[u64]) {
    for number in numbers {
        if shared.storage.remove(&segment_name(*number)).is_ok() {
            index.forget(*number);
        }
    }
}

pub(super) fn remove(shared: &Shared, number: u64) -> io::Result<u64> {
    let length = {
        let index = shared.index();
        let is_newest = index
            .segments
            .last_key_value()
            .is_none_or(|(newest, _)| *newest == number);
        match index.segments.get(&number) {
            Some(segment) if !is_newest => segment.length,
            _ => return Ok(0),
        }
    };
    shared.storage.remove(&segment_name(number))?;
    shared.index().forget(number);
    Ok(length)
}

pub(super) fn release(shared: &Shared, before: u64) -> io::Result<u64> {
    let mut freed = 0;
    loop {
        let (number, length) = {
            let index = shared.index();
            let oldest = index.segments.first_key_value();
            match oldest {
                Some((number, segment)) if segment.limit <= before && index.segments.len() > 1 => {
                    (*number, segment.length)
                }
                _ => return Ok(freed),
            }
        };
        shared.storage.remove(&segment_name(number))?;
        shared.index().forget(number);
        freed += length;
    }
}
