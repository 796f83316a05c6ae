//! Compressed data with members, headers, blocks and frames of every kind, made anew for tests.

use std::io::{Read, Write};

use codec::compress::Format;
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

/// Numbers that look random, always the same for a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % limit
    }
}

/// What is compressed, with its length in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// Text that compresses well.
    Lines(usize),
    /// Bytes that do not compress.
    Noise(usize),
    /// One byte.
    Same(usize),
}

impl Content {
    pub fn bytes(self, seed: u64) -> Vec<u8> {
        let mut random = Random(seed);
        match self {
            Self::Lines(length) => {
                let mut text = Vec::with_capacity(length + 50);
                while text.len() < length {
                    let (id, status) = (random.below(100_000), 200 + random.below(4) * 100);
                    text.extend(format!("GET /item/{id} {status} {}\n", id % 977).bytes());
                }
                text.truncate(length);
                text
            }
            Self::Noise(length) => (0..length).map(|_| random.below(256) as u8).collect(),
            Self::Same(length) => vec![seed as u8; length],
        }
    }
}

/// How the compressor is told to end a piece.
#[derive(Debug, Clone, Copy)]
pub enum Flush {
    None,
    /// Ends a block and leaves bits of the last byte open.
    Partial,
    /// Ends a block at a byte.
    Sync,
    /// The same, and nothing later refers to what lies before.
    Full,
}

/// A member of gzip or a frame of zstd.
#[derive(Debug, Clone)]
pub struct Unit {
    pieces: Vec<(Content, Flush)>,
    level: u32,
    /// Flags of a gzip header. For zstd, the first one says whether there is a checksum.
    flags: u8,
    seed: u64,
}

impl Unit {
    /// Lines of text, with a checksum.
    pub fn simple(seed: u64, length: usize) -> Self {
        Self {
            pieces: vec![(Content::Lines(length), Flush::None)],
            level: 6,
            flags: 0,
            seed,
        }
    }

    /// The same with these flags of a gzip header.
    pub fn flagged(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    fn parts(&self) -> impl Iterator<Item = (Vec<u8>, Flush)> {
        let seeds = self.seed..;
        let pieces = self.pieces.iter().zip(seeds);
        pieces.map(|((content, flush), seed)| (content.bytes(seed), *flush))
    }

    pub fn content(&self) -> Vec<u8> {
        self.parts().flat_map(|(content, _)| content).collect()
    }
}

pub fn unit() -> impl Strategy<Value = Unit> {
    let length = || prop_oneof![Just(0usize), 1..300usize, 1..70_000usize];
    let content = prop_oneof![
        3 => length().prop_map(Content::Lines),
        2 => length().prop_map(Content::Noise),
        1 => length().prop_map(Content::Same),
    ];
    let flush = prop_oneof![
        Just(Flush::None),
        Just(Flush::Partial),
        Just(Flush::Sync),
        Just(Flush::Full)
    ];
    let pieces = prop::collection::vec((content, flush), 0..6);
    (pieces, 0..10u32, 0..32u8, any::<u32>()).prop_map(|(pieces, level, flags, seed)| Unit {
        pieces,
        level,
        flags,
        seed: seed.into(),
    })
}

/// A member of gzip.
pub fn member(unit: &Unit) -> Vec<u8> {
    let mut data = header(unit.flags);
    let mut compress = Compress::new(Compression::new(unit.level), false);
    for (content, flush) in unit.parts() {
        let flush = match flush {
            Flush::None => FlushCompress::None,
            Flush::Partial => FlushCompress::Partial,
            Flush::Sync => FlushCompress::Sync,
            Flush::Full => FlushCompress::Full,
        };
        deflate(&mut compress, &content, flush, &mut data);
    }
    deflate(&mut compress, &[], FlushCompress::Finish, &mut data);
    let content = unit.content();
    data.extend(crc32fast::hash(&content).to_le_bytes());
    data.extend((content.len() as u32).to_le_bytes());
    data
}

/// A member with this content and nothing special.
pub fn plain(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}

/// A header with everything that the flags say.
fn header(flags: u8) -> Vec<u8> {
    let mut header = vec![0x1F, 0x8B, 8, flags, 1, 2, 3, 4, 0, 3];
    if flags & 4 != 0 {
        let extra = [7; 300];
        header.extend((extra.len() as u16).to_le_bytes());
        header.extend(extra);
    }
    if flags & 8 != 0 {
        header.extend(b"access.log\0");
    }
    if flags & 16 != 0 {
        header.extend(b"a comment\0");
    }
    if flags & 2 != 0 {
        header.extend((crc32fast::hash(&header) as u16).to_le_bytes());
    }
    header
}

fn deflate(compress: &mut Compress, content: &[u8], flush: FlushCompress, data: &mut Vec<u8>) {
    let before = compress.total_in();
    loop {
        data.reserve(1 << 16);
        let consumed = (compress.total_in() - before) as usize;
        let status = compress.compress_vec(&content[consumed..], data, flush);
        status.expect("deflate takes everything");
        let is_consumed = (compress.total_in() - before) as usize == content.len();
        if is_consumed && data.len() < data.capacity() {
            return;
        }
    }
}

/// A frame of zstd.
pub fn frame(unit: &Unit) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), unit.level as i32).expect("an encoder");
    let has_sum = unit.flags & 1 == 0;
    encoder.include_checksum(has_sum).expect("a setting");
    for (content, flush) in unit.parts() {
        encoder.write_all(&content).expect("a vector takes it");
        if !matches!(flush, Flush::None) {
            encoder.flush().expect("a vector takes it");
        }
    }
    encoder.finish().expect("a vector takes it")
}

/// A frame of zstd that is to be skipped.
pub fn skippable(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_le_bytes();
    [&[0x5A, 0x2A, 0x4D, 0x18], &length[..], content].concat()
}

/// Where the headers of the blocks of one frame are.
pub fn zstd_blocks(frame: &[u8]) -> Vec<usize> {
    let descriptor = frame[4];
    let is_single = descriptor & 0x20 != 0;
    let length_bytes = match descriptor >> 6 {
        0 => usize::from(is_single),
        size => 1 << size,
    };
    let mut at = 5 + usize::from(!is_single) + length_bytes;
    let mut blocks = Vec::new();
    loop {
        let header = u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], 0]);
        blocks.push(at);
        let size = if (header >> 1) & 3 == 1 {
            1
        } else {
            header >> 3
        };
        at += 3 + size as usize;
        if header & 1 == 1 {
            return blocks;
        }
    }
}

/// How much content other readers get out of data that ends too early.
pub fn readable(format: Format, data: &[u8]) -> usize {
    let mut content = Vec::new();
    let mut reader: Box<dyn Read> = match format {
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(data)),
        Format::Zstd => Box::new(zstd::Decoder::with_buffer(data).expect("a decoder")),
    };
    let mut buffer = [0; 1000];
    while let Ok(read) = reader.read(&mut buffer) {
        if read == 0 {
            break;
        }
        content.extend_from_slice(&buffer[..read]);
    }
    content.len()
}
