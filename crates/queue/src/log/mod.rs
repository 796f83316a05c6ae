//! The log of a disk queue: blocks in segments, appended in groups, read by sequence.
//!
//! A *block* holds one batch. A *group* is what one append writes: blocks one behind the other from the beginning of a page
//! on, with zeros up to the next page. A *segment* is a file of groups, `segment-%016x.log`, numbered upwards.
//!
//! # Layout, version 5
//!
//! All numbers are little-endian. A segment begins with a page (4096 bytes) of its own:
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic `93 6d 70 53 45 47 f2 0a` |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the end of the page; stays here in every version |
//! | 12 | 4 | version; 1 has zeros from 3144 on; in 1 and 2 all blocks are of version 1, in 3 none is later than 2, in 4 none later than 3 |
//! | 16 | 8 | number of the segment, as in its name |
//! | 24 | 8 | sequence of the first block; copies of it and of later ones in earlier segments do not count |
//! | 32 | 8 | ordinal of the first block |
//! | 40 | 8 | time of the first block, nanoseconds since 1970, signed |
//! | 48 | 8 | durable: all sequences below it were synced when the segment was made |
//! | 56 | 8 | above every sequence that was ever written before |
//! | 64 | 8 | how many torn ranges follow, 128 at most |
//! | 72 | 24 each | torn ranges: segment and offset of the begin, number of the first segment behind; what is unreadable there never was durable |
//! | 3144 | 8 | how many ranges of ordinals follow, 59 at most |
//! | 3152 | 16 each | ranges of ordinals, begin and end: events that are in no block and never were durable |
//! | | | zeros |
//!
//! A block begins at any offset:
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic `9b 6d 70 42 4c 4b f4 0a` |
//! | 8 | 4 | CRC-32 of the bytes 12 to 64, the segment's number and the block's offset (8 bytes each); stays here |
//! | 12 | 1 | version of the stored form of the batch that is the payload: 1 to 4 |
//! | 13 | 1 | compression: 0 none, 1 LZ4 block, 2 zstd frame |
//! | 14 | 2 | zeros |
//! | 16 | 8 | sequence |
//! | 24 | 8 | ordinal: events written to the log before, ever |
//! | 32 | 8 | time, nanoseconds since 1970, signed |
//! | 40 | 8 | durable: all sequences below it were synced when the block was written |
//! | 48 | 4 | events |
//! | 52 | 4 | length of the payload as stored |
//! | 56 | 4 | length of the payload decompressed |
//! | 60 | 4 | CRC-32 of the payload as stored |
//! | 64 | | payload |
//!
//! A segment is written as version 2 as long as all batches are of version 1, so that programs of before can read it. When the
//! first later one comes, a segment of version 3 begins, of version 4 for those of version 3, and of version 5 for those of
//! version 4: a program that does not know the batches refuses the folder by its
//! segments' headers, before it touches or counts anything.
//!
//! The place of a block is in its CRC, so that a block that was copied into a payload, or into another segment, is none.
//!
//! # Invariants
//!
//! - No page is written twice, and no segment of an earlier run is appended to: a crash during a write spoils nothing that
//!   was synced before.
//! - After a failed write or sync nothing behind the last good sync is believed. Its blocks are written again, into a new
//!   segment, with the same sequences; the header of that one says from which sequence on earlier copies do not count.
//! - Damage costs the blocks that it touches, never the start. Below `durable`, and below what the caller knows to have been
//!   synced, it is quarantined and reported; what is damaged behind, by a crash, is reported as torn and left where it is.
//! - A reader gives each sequence once, ascending.
//! - Every ordinal below the end is in a block that counts, or was lost, or is one of those that never were durable. Each start
//!   finds out which these are behind the last sync, and all segments that are made from then on say so. So of any gap it is
//!   known, now and after later runs, how many events in it were lost.
//!
//! # Limits
//!
//! A payload is smaller than 4 GiB. A segment is as long as the settings say, unless one block is longer. Memory: one
//! window of 1 MiB a reader that is not at the end, one buffer of 1 MiB for the writer, and what is loaded.

mod compression;
mod format;
mod index;
mod payload;
mod quarantine;
mod reader;
mod recover;
mod scan;
mod survey;
mod walk;
mod writer;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use disk::{PagePool, Storage, StoredFile};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

pub use compression::Compression;
pub(crate) use format::BLOCK_MAGIC;
pub use format::{
    BLOCK_HEADER, BlockHeader, SegmentHeader, SegmentPage, Torn, VERSION, segment_name,
    segment_number,
};
pub use payload::Payload;
pub(crate) use payload::{WRONG_CHECKSUM, decompress};
pub(crate) use quarantine::copy_place;
pub use quarantine::{FOLDER as QUARANTINE, copy_name};
pub use reader::{BlockReader, FoundBlock, LoadError};
pub use scan::{Item, ScanOptions, Scanner, list_segments, scan_segment};
pub(crate) use survey::{Survey, outlines};

use crate::QueueError;
pub(crate) use index::Behind;
use index::Index;
use quarantine::Quarantine;
use scan::First;
use writer::Writer;

/// How a log is kept. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// The length of a segment.
    pub segment_size: u64,
    /// The most that copies of damaged ranges take.
    pub quarantine_size_max: u64,
    /// So far the log is known to have been synced, besides what it says of that itself: what is damaged there is not what a
    /// crash left.
    pub synced: LogEnd,
    /// What all readers have passed, as far as the caller knows. What was lost below it is of no interest.
    pub passed: LogEnd,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct LogEnd {
    /// The next sequence.
    pub sequence: u64,
    /// The events written to the log, ever.
    pub ordinal: u64,
}

impl LogEnd {
    /// Of a log without blocks, or one of which nothing is known.
    pub const START: Self = Self {
        sequence: 0,
        ordinal: 0,
    };
}

/// Where a block begins.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LogPosition {
    /// The number of its segment.
    pub segment: u64,
    /// The offset in it, in bytes.
    pub offset: u64,
}

/// A batch to be written.
#[derive(Debug, Clone)]
pub struct Block {
    /// Its sequence: above that of every block before it.
    pub sequence: u64,
    /// Events written to the log before it, ever.
    pub ordinal: u64,
    /// Its events.
    pub events: u32,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
    /// What it carries.
    pub payload: Payload,
}

impl Block {
    /// What it takes in the log, in bytes.
    pub fn stored_size(&self) -> u64 {
        (BLOCK_HEADER + self.payload.stored_len()) as u64
    }
}

/// What was found when a log was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// The sequence of the oldest block; `next_sequence` when there is none.
    pub oldest_sequence: u64,
    /// The ordinal of the oldest block.
    pub oldest_ordinal: u64,
    /// Above every sequence that was ever written, as far as it can still be seen.
    pub next_sequence: u64,
    /// The events ever written, as far as that can still be seen.
    pub next_ordinal: u64,
    /// Bytes that a crash left unreadable; they never were durable.
    pub torn_bytes: u64,
    /// What a person may want to know.
    pub notes: Vec<String>,
}

impl Recovered {
    /// Whether no block was found, nor where one had been.
    pub fn is_empty(&self) -> bool {
        self.next_sequence == self.oldest_sequence
    }
}

/// A segment, from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub number: u64,
    /// The sequence of its first block; that of the next segment when nothing in it is readable, or the highest there can be.
    pub first_sequence: u64,
    /// The ordinal of its first block.
    pub first_ordinal: u64,
    /// The time of its first block, in nanoseconds since 1970.
    pub first_time: i64,
    /// The file's length in bytes, reserved room included.
    pub length: u64,
}

/// A part of a segment that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// How much of it, in bytes.
    pub length: u64,
    /// Why.
    pub reason: String,
    /// Left by a crash or a failed write; nobody was told that it was safe.
    pub torn: bool,
    /// Whether there is a copy in quarantine. Nothing torn is copied, and no zeros.
    pub quarantined: bool,
}

/// A log. Shared by one that writes and any number that read.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
    /// Held by the one that syncs.
    syncing: Mutex<()>,
    /// The numbers of the segments that were there when it was opened.
    found: Vec<u64>,
}

/// What the log and its readers have in common.
#[derive(Debug)]
struct Shared {
    storage: Arc<dyn Storage>,
    index: Mutex<Index>,
    quarantine: Quarantine,
}

impl Log {
    /// Opens the log of a folder. Whatever state the files are in, it opens; nothing but the first page of each segment
    /// and the end of the log is read.
    ///
    /// # Errors
    /// The folder cannot be read, or a later version of Millpond wrote there; then nothing was touched.
    pub fn open(
        storage: Arc<dyn Storage>,
        settings: LogSettings,
    ) -> Result<(Self, Recovered), QueueError> {
        let opened = recover::open(&*storage, settings)?;
        let found = opened.index.segments.keys().copied().collect();
        let shared = Shared {
            storage,
            index: Mutex::new(opened.index),
            quarantine: Quarantine::new(settings.quarantine_size_max),
        };
        for header in &opened.damaged_headers {
            let file = Some(&*header.file).filter(|_| header.copied);
            shared.lost(file, header.place, header.length, header.reason);
        }
        let log = Self {
            writer: Mutex::new(Writer::new(settings.segment_size, opened.next_number)),
            syncing: Mutex::default(),
            found,
            shared: Arc::new(shared),
        };
        Ok((log, opened.recovered))
    }

    /// Appends blocks as one group. Readers see them at once; they are on disk after the next [`Log::sync`].
    ///
    /// # Errors
    /// - [`io::ErrorKind::StorageFull`]: no room for a new segment. Nothing was written, and the append may be repeated.
    /// - [`io::ErrorKind::InvalidInput`]: a sequence does not ascend or a payload is too large. Nothing was written.
    /// - Otherwise the system refused; [`Log::abandon`] comes next. None of the blocks is seen by readers.
    pub fn append(&self, blocks: &[Block]) -> io::Result<()> {
        self.writer().append(&self.shared, blocks)
    }

    /// Returns once all that was appended before is on disk.
    ///
    /// # Errors
    /// It may not be; [`Log::abandon`] comes next, and until then this fails.
    pub fn sync(&self) -> io::Result<()> {
        let _alone = self.syncing.lock();
        writer::sync(&self.shared)
    }

    /// Takes back all blocks since the last good sync, after a failed append or sync. They are to be appended again, with
    /// the same sequences and ordinals, which makes a new segment.
    pub fn abandon(&self) {
        self.writer().abandon(&self.shared);
    }

    /// Reads from a sequence on.
    pub fn reader(&self, from_sequence: u64) -> BlockReader {
        BlockReader::new(self.shared.clone(), from_sequence)
    }

    /// Reads a block's payload. Holds no lock, so many threads load at once.
    ///
    /// # Errors
    /// The system refused, which may pass ([`Log::give_up`] when it does not), or the payload is damaged, which was
    /// reported and quarantined.
    pub fn load(&self, found: &FoundBlock, pool: &PagePool) -> Result<Bytes, LoadError> {
        reader::load(&self.shared, found, pool)
    }

    /// Takes a block as damaged whose payload the system does not give.
    pub fn give_up(&self, found: &FoundBlock, failure: &io::Error) {
        reader::damaged(&self.shared, found, &format!("cannot be read: {failure}"));
    }

    /// Removes the segments that hold only sequences below this one, except the newest; how many bytes that were.
    ///
    /// # Errors
    /// A file cannot be removed. Those before it are.
    pub fn release(&self, before_sequence: u64) -> io::Result<u64> {
        writer::release(&self.shared, before_sequence)
    }

    /// Removes one segment, whatever it holds, unless it is the newest; how many bytes that were. What is read meanwhile goes on
    /// behind it.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, number: u64) -> io::Result<u64> {
        writer::remove(&self.shared, number)
    }

    /// Bytes of all segments, reserved room included.
    pub fn size(&self) -> u64 {
        let index = self.shared.index();
        index.segments.values().map(|segment| segment.length).sum()
    }

    /// Blocks of this version will be appended, so that [`Log::room`] is what there is for them.
    pub fn expect(&self, version: u8) {
        let mut index = self.shared.index();
        index.block_version = index.block_version.max(version);
    }

    /// Bytes that may be appended before a new segment is needed.
    pub fn room(&self) -> u64 {
        let index = self.shared.index();
        let active = index
            .active
            .filter(|_| index.active_block_version >= index.block_version)
            .and_then(|number| index.segments.get(&number));
        active.map_or(0, |segment| segment.length - segment.written)
    }

    /// The segments, the oldest first.
    pub fn first_of_segments(&self) -> Vec<SegmentInfo> {
        let index = self.shared.index();
        let segments = index.segments.iter();
        let segments = segments.map(|(number, segment)| (*number, segment.length, segment.first));
        let end = First {
            sequence: index.next_sequence,
            ..First::default()
        };
        scan::infos(segments, end)
    }

    /// Syncs what was found when the log was opened, of which a process that was killed may not have synced the last part. Not what was
    /// appended since: after a failure [`Log::sync`] has to be the one that saw it.
    ///
    /// # Errors
    /// The system did not say that everything is on disk.
    pub fn sync_found(&self) -> io::Result<()> {
        let is_there = |number: &&u64| self.shared.index().segments.contains_key(number);
        for number in self.found.iter().filter(is_there) {
            match self.shared.storage.open(&segment_name(*number)) {
                Ok(file) => file.sync()?,
                // It was removed meanwhile.
                Err(failure) if failure.kind() == io::ErrorKind::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// These events never were on disk, and are not missed: the log goes on behind them. Said before the first append.
    pub fn leave_out(&self, ordinals: Range<u64>) {
        self.shared.index().never_durable.insert(ordinals);
    }

    /// Of events that are missing, those that were on disk once. They were looked for from a sequence on, and `found` is what
    /// was found behind them; `None` at the end.
    pub fn lost_of(
        &self,
        missing: Range<u64>,
        from_sequence: u64,
        found: Option<&FoundBlock>,
    ) -> Vec<Range<u64>> {
        let behind = found.map(|found| Behind {
            segment: found.place.segment,
            durable: found.durable,
        });
        let index = self.shared.index();
        index.lost_of(missing, from_sequence, behind)
    }

    /// The damages that were found since the last call.
    pub fn take_damage(&self) -> Vec<Damage> {
        self.shared.index().take_damage()
    }

    /// Sequences below it are on disk; what was found when the log was opened is among them.
    pub fn durable(&self) -> u64 {
        self.shared.index().durable()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// Reports a damage, unless it is known, and copies it aside if there is a file.
    fn lost(&self, file: Option<&dyn StoredFile>, from: LogPosition, length: u64, reason: &str) {
        let torn = {
            let mut index = self.index();
            if !index.learn(from) {
                return;
            }
            index.is_torn(from)
        };
        let file = file.filter(|_| !torn && length > 0);
        let copy = |file| self.quarantine.copy(&*self.storage, file, from, length);
        let quarantined = file.is_some_and(copy);
        self.index().report(Damage {
            segment: from.segment,
            offset: from.offset,
            length,
            reason: reason.to_owned(),
            torn,
            quarantined,
        });
    }
}
