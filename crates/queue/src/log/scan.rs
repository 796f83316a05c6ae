//! Reads a segment from one end to the other, changing nothing: for recovery and for tools.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crc32fast::Hasher;
use disk::{Listed, PAGE, Storage, StoredFile, Window};

use super::SegmentInfo;
use super::format::{BlockHeader, SegmentHeader, SegmentPage, segment_name, segment_number};
use super::walk::{NextBlock, Walk};
use crate::QueueError;
use crate::log::format::{BLOCK_HEADER, BLOCK_VERSION, VERSION};

/// Read at once while every byte is looked at.
const WINDOW: usize = 1024 * 1024;

/// Read at once while only headers are looked at.
const HOP_WINDOW: usize = 64 * 1024;

/// How a segment is scanned.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScanOptions {
    /// Where a block begins, or 0: from the segment's header on.
    pub from: u64,
    /// Whether payloads are read and their CRC is checked.
    pub verify_payload: bool,
}

/// A part of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A block.
    Block {
        /// Where it begins.
        offset: u64,
        /// What its header says.
        header: BlockHeader,
        /// Whether the payload is what was written; true when it was not looked at.
        payload_ok: bool,
    },
    /// What holds no block that can be read.
    Damage {
        /// Where in the segment.
        range: Range<u64>,
        /// Why.
        reason: String,
        /// The header of a block whose payload is cut off.
        cut: Option<BlockHeader>,
        /// A later version of Millpond wrote it: which format it has.
        newer: Option<u32>,
    },
    /// Zeros up to the end: room that was never used.
    Free(Range<u64>),
}

/// Reads a segment's items one by one.
pub struct Scanner<'a> {
    file: &'a dyn StoredFile,
    walk: Walk,
    end: u64,
    verify_payload: bool,
    header_due: bool,
}

impl<'a> Scanner<'a> {
    /// At the beginning of what is to be scanned.
    ///
    /// # Errors
    /// The system does not say how long the file is.
    pub fn new(file: &'a dyn StoredFile, number: u64, options: ScanOptions) -> io::Result<Self> {
        let capacity = if options.verify_payload {
            WINDOW
        } else {
            HOP_WINDOW
        };
        let mut walk = Walk::new(capacity, number);
        walk.offset = options.from.max(PAGE as u64);
        Ok(Self {
            file,
            walk,
            end: file.len()?,
            verify_payload: options.verify_payload,
            header_due: options.from == 0,
        })
    }

    /// Takes pages that cannot be read as damage.
    pub fn pass_unreadable(mut self) -> Self {
        self.walk.window.passes_unreadable = true;
        self
    }

    /// The next item; `None` at the end.
    ///
    /// # Errors
    /// The system refused; the next call tries again.
    pub fn next_item(&mut self) -> io::Result<Option<Item>> {
        if self.header_due {
            let found = self.header()?;
            self.header_due = false;
            if found.is_some() {
                return Ok(found);
            }
        }
        let start = self.walk.offset;
        let item = match self.walk.step(self.file, self.end)? {
            NextBlock::End => return Ok(None),
            NextBlock::Free(range) => Item::Free(range),
            NextBlock::Block { offset, header } => Item::Block {
                offset,
                header,
                payload_ok: self
                    .check(offset, &header)
                    .inspect_err(|_| self.walk.offset = start)?,
            },
            NextBlock::Damage {
                range,
                reason,
                cut,
                newer,
                is_zero: _,
            } => Item::Damage {
                range,
                reason: reason.to_owned(),
                cut,
                newer,
            },
        };
        Ok(Some(item))
    }

    /// What is wrong with the segment's header, if anything is.
    fn header(&mut self) -> io::Result<Option<Item>> {
        let page = PAGE as u64;
        let bytes = self.walk.window.get(self.file, 0, PAGE, PAGE, self.end)?;
        let (reason, newer) = match SegmentHeader::decode(bytes, self.walk.number) {
            SegmentPage::Valid(_) => return Ok(None),
            SegmentPage::Zeros if self.end <= page => return Ok(Some(Item::Free(0..self.end))),
            SegmentPage::Zeros => ("the segment header is all zeros", None),
            SegmentPage::Damaged(reason) => (reason, None),
            SegmentPage::Newer(version) => ("a segment written by a later version", Some(version)),
        };
        Ok(Some(Item::Damage {
            range: 0..page.min(self.end),
            reason: reason.to_owned(),
            cut: None,
            newer,
        }))
    }

    /// Whether a payload is what was written.
    fn check(&mut self, offset: u64, header: &BlockHeader) -> io::Result<bool> {
        if !self.verify_payload {
            return Ok(true);
        }
        let mut hasher = Hasher::new();
        let mut at = offset + BLOCK_HEADER as u64;
        let end = offset + header.length();
        while at < end {
            let size = (self.walk.window.capacity() - PAGE).min((end - at) as usize);
            // Reading ahead up to the end of the file keeps the windows large where blocks are small.
            let ahead = self.walk.window.capacity();
            let bytes = self.walk.window.get(self.file, at, size, ahead, self.end)?;
            if bytes.is_empty() {
                return Ok(false);
            }
            hasher.update(bytes);
            at += bytes.len() as u64;
        }
        Ok(hasher.finalize() == header.payload_crc)
    }
}

/// Reads a segment, giving everything that is in it in its order.
///
/// # Errors
/// The system refused.
pub fn scan_segment(
    file: &dyn StoredFile,
    number: u64,
    options: ScanOptions,
    visit: &mut dyn FnMut(Item),
) -> io::Result<()> {
    let mut scanner = Scanner::new(file, number, options)?;
    while let Some(item) = scanner.next_item()? {
        visit(item);
    }
    Ok(())
}

/// What is known about a segment from its first page, or from its first good block when that page is damaged.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) length: u64,
    pub(super) file: Option<Arc<dyn StoredFile>>,
    pub(super) page: SegmentPage,
    pub(super) first: Option<First>,
}

/// Where a segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct First {
    pub(super) sequence: u64,
    pub(super) ordinal: u64,
    pub(super) time: i64,
}

/// The heads of all segments, the oldest first. What is wrong with one of them never is an error, unless a later version
/// wrote it.
pub(super) fn read_heads(storage: &dyn Storage) -> Result<Vec<Head>, QueueError> {
    let listed = storage
        .list("")
        .map_err(QueueError::io("list", "the queue's folder"))?;
    let mut heads: Vec<_> = listed
        .into_iter()
        .filter_map(|Listed { name, length }| Some((segment_number(&name)?, length)))
        .map(|(number, length)| read_page(storage, number, length))
        .collect();
    heads.sort_unstable_by_key(|head| head.number);
    // All versions are known before the first segment is searched, which takes longer.
    for head in &heads {
        require_known(head.number, &head.page)?;
    }
    for head in &mut heads {
        head.first = match &head.page {
            SegmentPage::Valid(header) => Some(First {
                sequence: header.first_sequence,
                ordinal: header.first_ordinal,
                time: header.first_time,
            }),
            _ => first_block(head)?,
        };
    }
    Ok(heads)
}

fn read_page(storage: &dyn Storage, number: u64, length: u64) -> Head {
    let mut window = Window::new(PAGE);
    let opened = storage.open(&segment_name(number));
    let page = match &opened {
        Err(_) => SegmentPage::Damaged("the segment cannot be opened"),
        Ok(file) => match window.get(&**file, 0, PAGE, PAGE, PAGE as u64) {
            Ok(bytes) => SegmentHeader::decode(bytes, number),
            Err(_) => SegmentPage::Damaged("the segment header cannot be read"),
        },
    };
    Head {
        number,
        length,
        file: opened.ok(),
        page,
        first: None,
    }
}

fn first_block(head: &Head) -> Result<Option<First>, QueueError> {
    let options = ScanOptions {
        from: PAGE as u64,
        verify_payload: false,
    };
    let Some(file) = &head.file else {
        return Ok(None);
    };
    let Ok(scanner) = Scanner::new(&**file, head.number, options) else {
        return Ok(None);
    };
    let mut scanner = scanner.pass_unreadable();
    while let Ok(Some(item)) = scanner.next_item() {
        match item {
            Item::Block { header, .. } => {
                return Ok(Some(First {
                    sequence: header.sequence,
                    ordinal: header.ordinal,
                    time: header.time,
                }));
            }
            Item::Damage {
                newer: Some(version),
                ..
            } => return Err(newer_block(head.number, version)),
            Item::Damage { .. } | Item::Free(_) => (),
        }
    }
    Ok(None)
}

fn require_known(number: u64, page: &SegmentPage) -> Result<(), QueueError> {
    match page {
        SegmentPage::Newer(version) => Err(newer(number, *version, VERSION)),
        _ => Ok(()),
    }
}

/// A block of a later version lies in a segment that should hold none.
pub(super) fn newer_block(number: u64, version: u32) -> QueueError {
    newer(number, version, BLOCK_VERSION.into())
}

fn newer(number: u64, version: u32, known: u32) -> QueueError {
    QueueError::Newer {
        file: segment_name(number).into(),
        version,
        known,
    }
}

/// The segments of a folder, the oldest first, without changing anything.
///
/// # Errors
/// The folder cannot be read, or a later version wrote a segment.
pub fn list_segments(storage: &dyn Storage) -> Result<Vec<SegmentInfo>, QueueError> {
    Ok(segments(&read_heads(storage)?))
}

pub(super) fn segments(heads: &[Head]) -> Vec<SegmentInfo> {
    // A last one of which nothing is known takes nothing from those before it.
    let end = First {
        sequence: u64::MAX,
        ..First::default()
    };
    let segments = heads
        .iter()
        .map(|head| (head.number, head.length, head.first));
    infos(segments, end)
}

/// Where nothing is known about a segment's beginning, it is that of the next one, or `end` for the last.
pub(super) fn infos(
    segments: impl DoubleEndedIterator<Item = (u64, u64, Option<First>)>,
    end: First,
) -> Vec<SegmentInfo> {
    let mut next = end;
    let mut infos: Vec<_> = segments
        .rev()
        .map(|(number, length, first)| {
            next = first.unwrap_or(next);
            SegmentInfo {
                number,
                first_sequence: next.sequence,
                first_ordinal: next.ordinal,
                first_time: next.time,
                length,
            }
        })
        .collect();
    infos.reverse();
    infos
}
