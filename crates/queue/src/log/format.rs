//! Segments and blocks as bytes. The layout stands in the header of [`super`].

use std::ops::Range;

use crc32fast::Hasher;
use disk::PAGE;

use super::{Compression, LogPosition};

/// The latest version of the format of a segment that is known here. It is that of its header; its blocks have their own.
pub const VERSION: u32 = 5;

/// The first version of a segment whose header says what never was durable.
const VERSION_WITH_ORDINALS: u32 = 2;

/// The first version of a segment that may hold blocks of version 2.
const VERSION_WITH_BLOCKS_2: u32 = 3;

/// The first version of a segment that may hold blocks of version 3.
const VERSION_WITH_BLOCKS_3: u32 = 4;

/// The first version of a segment that may hold blocks of version 4.
const VERSION_WITH_BLOCKS_4: u32 = 5;

/// The version that every program knows, of a block and of the batch in it.
pub(super) const BLOCK_VERSION_FIRST: u8 = 1;

/// The latest version of a block. It is that of the batch in it; the header is the same in all of them.
pub(super) const BLOCK_VERSION: u8 = 4;

/// The length of a block's header, in bytes.
pub const BLOCK_HEADER: usize = 64;

/// Begins a segment. Neither magic is valid UTF-8.
const SEGMENT_MAGIC: [u8; 8] = *b"\x93mpSEG\xf2\n";

/// Begins a block.
pub(crate) const BLOCK_MAGIC: [u8; 8] = *b"\x9bmpBLK\xf4\n";

/// Where the CRC lies in both headers, and where what it covers begins. These two never change.
const CRC_AT: usize = 8;
const CRC_FROM: usize = 12;

/// The name of a segment's file.
pub fn segment_name(number: u64) -> String {
    format!("segment-{number:016x}.log")
}

/// No log comes so far. Files with higher numbers are not its own.
const NUMBER_MAX: u64 = 1 << 62;

/// The number of a segment by its file's name.
pub fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".log")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (number < NUMBER_MAX && segment_name(number) == name).then_some(number)
}

/// So many torn ranges are in a segment's header at most.
pub(super) const TORN_MAX: usize = 128;

/// Where the torn ranges lie in a segment's header: their number, then each in so many bytes.
const TORN_AT: usize = 64;
const TORN_LEN: usize = 24;

/// So many ranges of ordinals are in a segment's header at most.
pub(super) const NEVER_DURABLE_MAX: usize = 59;

/// Where they lie: their number, then each in so many bytes.
const NEVER_DURABLE_AT: usize = TORN_AT + 8 + TORN_MAX * TORN_LEN;
const NEVER_DURABLE_LEN: usize = 16;
const _: () = assert!(NEVER_DURABLE_AT + 8 + NEVER_DURABLE_MAX * NEVER_DURABLE_LEN == PAGE);

/// A part of the log in which what is unreadable never was durable: a crash or a failed sync left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Torn {
    /// Where it begins.
    pub from: LogPosition,
    /// The first segment behind it.
    pub until: u64,
}

/// What the first page of a segment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment's number.
    pub number: u64,
    /// The sequence of its first block. Copies of it and of later ones in earlier segments do not count.
    pub first_sequence: u64,
    /// The ordinal of its first block.
    pub first_ordinal: u64,
    /// The time of its first block, in nanoseconds since 1970.
    pub first_time: i64,
    /// All sequences below it were synced when the segment was made.
    pub durable: u64,
    /// Greater than every sequence written before, also where that does not count any more.
    pub next_sequence: u64,
    /// What was torn before it.
    pub torn: Vec<Torn>,
    /// Events that are in no block and never were durable, by their ordinals. `None` in version 1, which does not say it.
    pub never_durable: Option<Vec<Range<u64>>>,
    /// No block of it has a later version.
    pub block_version: u8,
}

/// What was found in the place of a segment's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentPage {
    /// A header.
    Valid(SegmentHeader),
    /// A header of a version that is not known here.
    Newer(u32),
    /// Nothing was written, or it was lost.
    Zeros,
    /// Something else; why.
    Damaged(&'static str),
}

impl SegmentHeader {
    /// Writes the header's page.
    pub(super) fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        page[..8].copy_from_slice(&SEGMENT_MAGIC);
        let version = match self.never_durable {
            _ if self.block_version >= BLOCK_VERSION => VERSION_WITH_BLOCKS_4,
            _ if self.block_version == BLOCK_VERSION - 1 => VERSION_WITH_BLOCKS_3,
            _ if self.block_version > BLOCK_VERSION_FIRST => VERSION_WITH_BLOCKS_2,
            Some(_) => VERSION_WITH_ORDINALS,
            None => VERSION_WITH_ORDINALS - 1,
        };
        page[12..16].copy_from_slice(&version.to_le_bytes());
        let fields = [
            self.number,
            self.first_sequence,
            self.first_ordinal,
            self.first_time.cast_unsigned(),
            self.durable,
            self.next_sequence,
            self.torn.len().min(TORN_MAX) as u64,
        ];
        let torn = self.torn.iter().take(TORN_MAX);
        let torn = torn.flat_map(|torn| [torn.from.segment, torn.from.offset, torn.until]);
        for (index, field) in fields.into_iter().chain(torn).enumerate() {
            page[16 + index * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        if let Some(ranges) = &self.never_durable {
            encode_ranges(ranges, &mut page[NEVER_DURABLE_AT..]);
        }
        let crc = crc32fast::hash(&page[CRC_FROM..]);
        page[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the first page of the segment with that number.
    pub(crate) fn decode(page: &[u8], number: u64) -> SegmentPage {
        if page.iter().all(|byte| *byte == 0) {
            return SegmentPage::Zeros;
        }
        if page.len() < PAGE {
            return SegmentPage::Damaged("the segment ends within its header");
        }
        if page[..8] != SEGMENT_MAGIC {
            return SegmentPage::Damaged("not a segment header");
        }
        if crc32fast::hash(&page[CRC_FROM..PAGE]) != u32_at(page, CRC_AT) {
            return SegmentPage::Damaged("the checksum of the segment header does not match");
        }
        let version = u32_at(page, 12);
        if version > VERSION {
            return SegmentPage::Newer(version);
        }
        let field = |index: usize| u64_at(page, 16 + index * 8);
        if field(0) != number {
            return SegmentPage::Damaged("the segment header belongs to another segment");
        }
        SegmentPage::Valid(Self {
            number,
            first_sequence: field(1),
            first_ordinal: field(2),
            first_time: field(3).cast_signed(),
            durable: field(4),
            next_sequence: field(5),
            torn: decode_torn(page),
            never_durable: (version >= VERSION_WITH_ORDINALS).then(|| decode_ranges(page)),
            block_version: match version {
                VERSION_WITH_BLOCKS_4.. => BLOCK_VERSION,
                VERSION_WITH_BLOCKS_3 => BLOCK_VERSION - 1,
                VERSION_WITH_BLOCKS_2 => BLOCK_VERSION_FIRST + 1,
                _ => BLOCK_VERSION_FIRST,
            },
        })
    }
}

fn encode_ranges(ranges: &[Range<u64>], bytes: &mut [u8]) {
    let ranges = &ranges[..ranges.len().min(NEVER_DURABLE_MAX)];
    let ends = ranges.iter().flat_map(|range| [range.start, range.end]);
    let fields = std::iter::once(ranges.len() as u64).chain(ends);
    for (field, bytes) in fields.zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
}

fn decode_ranges(page: &[u8]) -> Vec<Range<u64>> {
    let count = u64_at(page, NEVER_DURABLE_AT).min(NEVER_DURABLE_MAX as u64) as usize;
    let ranges = page[NEVER_DURABLE_AT + 8..PAGE].chunks_exact(NEVER_DURABLE_LEN);
    let decode = |range: &[u8]| u64_at(range, 0)..u64_at(range, 8);
    ranges.take(count).map(decode).collect()
}

fn decode_torn(page: &[u8]) -> Vec<Torn> {
    let count = u64_at(page, TORN_AT).min(TORN_MAX as u64) as usize;
    let ranges = page[TORN_AT + 8..PAGE].chunks_exact(TORN_LEN).take(count);
    let decode = |range: &[u8]| Torn {
        from: LogPosition {
            segment: u64_at(range, 0),
            offset: u64_at(range, 8),
        },
        until: u64_at(range, 16),
    };
    ranges.map(decode).collect()
}

/// What the header of a block says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The version of the batch's stored form.
    pub version: u8,
    /// How the payload is compressed.
    pub compression: Compression,
    /// The block's sequence.
    pub sequence: u64,
    /// Events written to the log before it, ever.
    pub ordinal: u64,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
    /// All sequences below it were synced when it was written.
    pub durable: u64,
    /// Its events.
    pub events: u32,
    /// The length of the payload as it is stored.
    pub stored_len: u32,
    /// The length of the payload when it is decompressed.
    pub raw_len: u32,
    /// The CRC of the payload as it is stored.
    pub payload_crc: u32,
}

/// Why bytes are not a block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The magic is missing.
    Magic,
    /// The CRC is wrong.
    Crc,
    /// A later version wrote it.
    Newer(u32),
    /// Written by a program that did not know what it did.
    Nonsense,
}

impl Flaw {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Magic => "not a block header",
            Self::Crc => "the checksum of the block header does not match",
            Self::Newer(_) => "a block written by a later version",
            Self::Nonsense => "the block header is inconsistent",
        }
    }
}

impl BlockHeader {
    /// The events of the block.
    pub(crate) fn ordinals(&self) -> Range<u64> {
        self.ordinal..self.ordinal.saturating_add(u64::from(self.events))
    }

    /// The length of header and payload.
    pub(super) fn length(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.stored_len)
    }

    /// The header's bytes for a block at that place.
    pub(super) fn encode(&self, place: LogPosition) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        bytes[..8].copy_from_slice(&BLOCK_MAGIC);
        bytes[12] = self.version;
        bytes[13] = self.compression.code();
        let long = [
            self.sequence,
            self.ordinal,
            self.time.cast_unsigned(),
            self.durable,
        ];
        for (index, field) in long.into_iter().enumerate() {
            bytes[16 + index * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        let short = [self.events, self.stored_len, self.raw_len, self.payload_crc];
        for (index, field) in short.into_iter().enumerate() {
            bytes[48 + index * 4..][..4].copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc_at(&bytes, place);
        bytes[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of a block at that place.
    pub(crate) fn decode(bytes: &[u8], place: LogPosition) -> Result<Self, Flaw> {
        if bytes.len() < BLOCK_HEADER || bytes[..8] != BLOCK_MAGIC {
            return Err(Flaw::Magic);
        }
        let bytes = &bytes[..BLOCK_HEADER];
        if crc_at(bytes, place) != u32_at(bytes, CRC_AT) {
            return Err(Flaw::Crc);
        }
        if bytes[12] > BLOCK_VERSION {
            return Err(Flaw::Newer(bytes[12].into()));
        }
        let header = Self::decode_unchecked(bytes).ok_or(Flaw::Nonsense)?;
        let plain = header.compression == Compression::None;
        if header.version == 0
            || header.sequence == u64::MAX
            || plain && header.stored_len != header.raw_len
        {
            return Err(Flaw::Nonsense);
        }
        Ok(header)
    }

    /// What the fields of a header say whose checksum may be wrong: to save a payload whose own checksum is right.
    pub(crate) fn decode_unchecked(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..BLOCK_HEADER)?;
        Some(Self {
            version: bytes[12],
            compression: Compression::of_code(bytes[13])?,
            sequence: u64_at(bytes, 16),
            ordinal: u64_at(bytes, 24),
            time: u64_at(bytes, 32).cast_signed(),
            durable: u64_at(bytes, 40),
            events: u32_at(bytes, 48),
            stored_len: u32_at(bytes, 52),
            raw_len: u32_at(bytes, 56),
            payload_crc: u32_at(bytes, 60),
        })
    }
}

/// The CRC of a block's header. Its place is in it, so that a block that was copied elsewhere is none.
fn crc_at(header: &[u8], place: LogPosition) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header[CRC_FROM..BLOCK_HEADER]);
    hasher.update(&place.segment.to_le_bytes());
    hasher.update(&place.offset.to_le_bytes());
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_the_earliest_version_that_may_hold_its_blocks() {
        for (block_version, version) in [(1, 2), (2, 3), (3, 4), (4, 5)] {
            let header = SegmentHeader {
                number: 7,
                first_sequence: 1,
                first_ordinal: 2,
                first_time: 3,
                durable: 0,
                next_sequence: 4,
                torn: Vec::new(),
                never_durable: Some(Vec::new()),
                block_version,
            };
            let mut page = vec![0; PAGE];
            header.encode(&mut page);
            assert_eq!(u32_at(&page, 12), version);
            let read = SegmentHeader::decode(&page, 7);
            assert_eq!(read, SegmentPage::Valid(header));
        }
    }
}
