//! Reads blocks by sequence, and their payloads.
//!
//! A reader goes from header to header and looks at no payload; [`load`] reads one, with no lock held.
//!
//! Payloads are read past the page cache where the storage can do that. Measured with blocks of 900 KiB and events of 240
//! bytes: 32 ns of CPU an event, against 110 to 320 through a cold page cache; a warm one is faster (48 against 280 ns of
//! wall time, which is the disk's), but what was written past it is not in it.
//!
//! When the system does not give a page, the call fails and the next one tries again; at the third failure in a row the
//! page is taken as damaged, so that a reader never stands still for ever. How often a payload is tried is the caller's
//! decision.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use disk::{PAGE, PagePool, StoredFile};

use super::format::{BLOCK_HEADER, BlockHeader, segment_name};
use super::payload::{WRONG_CHECKSUM, decompress};
use super::walk::{NextBlock, Walk};
use super::{Compression, LogPosition, Shared};

/// Read at once at most. Small blocks are read many at a time, payloads included.
const WINDOW: usize = 1024 * 1024;

/// Failures in a row at one place before it counts as damaged.
const ATTEMPTS: u32 = 3;

/// A block that was found, with which its payload is loaded. It stays loadable when its segment is released.
#[derive(Debug, Clone)]
pub struct FoundBlock {
    /// Where it begins.
    pub place: LogPosition,
    /// Its sequence.
    pub sequence: u64,
    /// Events written to the log before it, ever.
    pub ordinal: u64,
    /// Its events.
    pub events: u32,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
    /// All sequences below it were synced when it was written.
    pub durable: u64,
    header: BlockHeader,
    file: Arc<dyn StoredFile>,
    /// The payload as stored, when it was read along with its neighbours. It keeps their memory, too.
    stored: Option<Bytes>,
}

impl FoundBlock {
    /// Events written to the log up to its end, ever.
    pub fn ordinal_end(&self) -> u64 {
        self.ordinals().end
    }

    /// The ordinals of its events.
    pub fn ordinals(&self) -> Range<u64> {
        self.header.ordinals()
    }

    /// The length of the payload as stored, in bytes.
    pub fn stored_len(&self) -> usize {
        self.header.stored_len as usize
    }

    /// The length of the payload decompressed, in bytes.
    pub fn raw_len(&self) -> usize {
        self.header.raw_len as usize
    }
}

/// Why a payload was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The system refused, which may pass.
    #[error("cannot read a block of the queue: {0}")]
    Io(#[from] io::Error),
    /// The payload is not what was written. It was reported and quarantined.
    #[error("block at offset {} of {} is damaged: {reason}", .place.offset, segment_name(.place.segment))]
    Damaged {
        /// Where the block begins.
        place: LogPosition,
        /// Why.
        reason: String,
    },
}

/// Reads blocks in the order of their sequences.
#[derive(Debug)]
pub struct BlockReader {
    shared: Arc<Shared>,
    /// The lowest sequence that was not given.
    next: u64,
    /// Whether the walk stands in a segment.
    is_placed: bool,
    walk: Walk,
    file: Option<Arc<dyn StoredFile>>,
    failures: u32,
}

/// A segment as far as it may be read now.
struct View {
    file: Option<Arc<dyn StoredFile>>,
    end: u64,
    limit: u64,
}

impl BlockReader {
    pub(super) fn new(shared: Arc<Shared>, next: u64) -> Self {
        Self {
            shared,
            next,
            is_placed: false,
            walk: Walk::new(WINDOW, 0),
            file: None,
            failures: 0,
        }
    }

    /// The lowest sequence that was not given yet.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next block; `None` when there is none yet.
    ///
    /// # Errors
    /// The system refused; the next call tries again.
    // It is no iterator: after `None` there may be more.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Option<FoundBlock>> {
        loop {
            let Some(view) = self.view() else {
                self.walk.window.rest();
                return Ok(None);
            };
            let found = self.open(&view).and_then(|file| match file {
                Some(file) => self.read(&file, &view),
                None => Ok(None),
            });
            match found {
                Ok(found) => {
                    self.failures = 0;
                    self.walk.window.passes_unreadable = false;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Err(failure) => self.tolerate(&view, failure)?,
            }
        }
    }

    /// Where there is something to read: goes to the next segment behind the end of one.
    fn view(&mut self) -> Option<View> {
        let shared = self.shared.clone();
        let index = shared.index();
        if !self.is_placed {
            self.enter(index.start_for(self.next)?);
            self.is_placed = true;
        }
        loop {
            let number = self.walk.number;
            let segment = index
                .segments
                .get(&number)
                .filter(|segment| self.next < segment.limit && self.walk.offset < segment.written);
            if let Some(segment) = segment {
                return Some(View {
                    file: segment.file.clone(),
                    end: segment.written,
                    limit: segment.limit,
                });
            }
            // Only the newest segment grows, so there is nothing to come in this one.
            let (later, _) = index.segments.range(number + 1..).next()?;
            self.enter(*later);
        }
    }

    fn enter(&mut self, number: u64) {
        self.walk.enter(number);
        self.file = None;
        self.failures = 0;
    }

    /// The segment's file; `None` when it was removed meanwhile, or by somebody.
    fn open(&mut self, view: &View) -> io::Result<Option<Arc<dyn StoredFile>>> {
        if let Some(file) = &self.file {
            return Ok(Some(file.clone()));
        }
        let name = segment_name(self.walk.number);
        let opened = match &view.file {
            Some(file) => Ok(file.clone()),
            None => self.shared.storage.open(&name),
        };
        let file = match opened {
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
                self.walk.offset = u64::MAX;
                return Ok(None);
            }
            opened => opened?,
        };
        self.file = Some(file.clone());
        Ok(Some(file))
    }

    /// Takes one step.
    fn read(&mut self, file: &Arc<dyn StoredFile>, view: &View) -> io::Result<Option<FoundBlock>> {
        match self.walk.step(&**file, view.end)? {
            NextBlock::End | NextBlock::Free(_) => {
                self.walk.offset = self.walk.offset.max(view.end);
            }
            NextBlock::Damage {
                range,
                reason,
                is_zero,
                ..
            } => {
                let from = LogPosition {
                    segment: self.walk.number,
                    offset: range.start,
                };
                let file = Some(&**file).filter(|_| !is_zero);
                self.damage(file, from, range.end - range.start, reason);
            }
            // Copies that do not count, and so are all that follow.
            NextBlock::Block { header, .. } if header.sequence >= view.limit => {
                self.walk.offset = u64::MAX;
            }
            NextBlock::Block { header, .. } if header.sequence < self.next => (),
            NextBlock::Block { offset, header } => {
                let stored = self.walk.payload(&**file, offset, &header, view.end);
                // The walk is behind the block already, so it is given; its payload is read when it is loaded.
                let stored = stored.unwrap_or_default();
                self.next = header.sequence + 1;
                return Ok(Some(FoundBlock {
                    place: LogPosition {
                        segment: self.walk.number,
                        offset,
                    },
                    sequence: header.sequence,
                    ordinal: header.ordinal,
                    events: header.events,
                    time: header.time,
                    durable: header.durable,
                    header,
                    file: file.clone(),
                    stored,
                }));
            }
        }
        Ok(None)
    }

    /// Reports a damage, unless the segment was abandoned or released meanwhile.
    fn damage(&self, file: Option<&dyn StoredFile>, from: LogPosition, length: u64, reason: &str) {
        let superseded = self.shared.index().is_superseded(from, self.next);
        if !superseded {
            self.shared.lost(file, from, length, reason);
        }
    }

    /// Takes what cannot be read as damaged when it is not the first time.
    fn tolerate(&mut self, view: &View, failure: io::Error) -> io::Result<()> {
        self.failures += 1;
        if self.failures < ATTEMPTS {
            return Err(failure);
        }
        self.failures = 0;
        match self.file.clone() {
            Some(_) if !self.walk.window.passes_unreadable => {
                self.walk.window.passes_unreadable = true;
            }
            file => self.skip_segment(file.as_deref(), view, &failure),
        }
        Ok(())
    }

    /// Goes on behind a segment that cannot be read at all.
    fn skip_segment(&mut self, file: Option<&dyn StoredFile>, view: &View, failure: &io::Error) {
        let from = LogPosition {
            segment: self.walk.number,
            offset: self.walk.offset,
        };
        let reason = format!("cannot be read: {failure}");
        let length = view.end.saturating_sub(from.offset);
        self.shared.lost(file, from, length, &reason);
        self.walk.offset = u64::MAX;
    }
}

/// Reads a payload.
pub(super) fn load(
    shared: &Arc<Shared>,
    found: &FoundBlock,
    pool: &PagePool,
) -> Result<Bytes, LoadError> {
    let reason = match read_payload(found, pool) {
        Ok(Ok(payload)) => return Ok(payload),
        failed if is_superseded(shared, found) => return load_again(shared, found, pool, failed),
        Ok(Err(reason)) => reason,
        Err(failure) => return Err(LoadError::Io(failure)),
    };
    damaged(shared, found, reason);
    Err(LoadError::Damaged {
        place: found.place,
        reason: reason.to_owned(),
    })
}

fn is_superseded(shared: &Shared, found: &FoundBlock) -> bool {
    let index = shared.index();
    index.is_superseded(found.place, found.sequence)
}

/// Loads the copy that counts of a block whose segment was abandoned after it was found.
fn load_again(
    shared: &Arc<Shared>,
    found: &FoundBlock,
    pool: &PagePool,
    failed: io::Result<Result<Bytes, &'static str>>,
) -> Result<Bytes, LoadError> {
    let mut reader = BlockReader::new(shared.clone(), found.sequence);
    let again = reader.next()?;
    let again = again.filter(|again| again.sequence == found.sequence);
    match again {
        Some(again) if again.place != found.place => load(shared, &again, pool),
        _ => {
            failed?.ok();
            let waiting =
                "the block was withdrawn after a failed sync and has not been written again yet";
            Err(io::Error::new(io::ErrorKind::WouldBlock, waiting).into())
        }
    }
}

/// Reports a block whose payload cannot be had.
pub(super) fn damaged(shared: &Shared, found: &FoundBlock, reason: &str) {
    let length = found.header.length();
    shared.lost(Some(&*found.file), found.place, length, reason);
}

/// The payload of a block, or why it is not what was written.
fn read_payload(found: &FoundBlock, pool: &PagePool) -> io::Result<Result<Bytes, &'static str>> {
    if let Some(stored) = &found.stored {
        let payload = check(&found.header, stored, pool);
        return Ok(payload.map(|raw| raw.unwrap_or_else(|| Bytes::copy_from_slice(stored))));
    }
    let page = PAGE as u64;
    let begin = found.place.offset + BLOCK_HEADER as u64;
    let start = begin - begin % page;
    let from = (begin - start) as usize;
    let until = from + found.stored_len();
    let mut buffer = pool.take(until);
    let read = found.file.read_at(&mut buffer, start)?;
    if read < until {
        return Ok(Err("the segment ends within the payload"));
    }
    let payload = check(&found.header, &buffer[from..until], pool);
    Ok(payload.map(|raw| raw.unwrap_or_else(|| buffer.freeze(from..until))))
}

/// The payload decompressed; nothing when it is stored as it is.
fn check(
    header: &BlockHeader,
    stored: &[u8],
    pool: &PagePool,
) -> Result<Option<Bytes>, &'static str> {
    if crc32fast::hash(stored) != header.payload_crc {
        return Err(WRONG_CHECKSUM);
    }
    if header.compression == Compression::None {
        return Ok(None);
    }
    let raw = decompress(header, stored, pool);
    raw.map(Some).ok_or("the payload cannot be decompressed")
}
