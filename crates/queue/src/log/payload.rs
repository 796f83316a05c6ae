//! Payloads: compressed and summed before any lock is taken, checked and decompressed after reading.
//!
//! Limits: a payload is smaller than 4 GiB, which the log checks when it is appended.

use std::io::{self, Read};

use batch::Frozen;
use bytes::Bytes;
use crc32fast::Hasher;
use disk::PagePool;

use super::compression::Compression;
use super::format::{BLOCK_VERSION_FIRST, BlockHeader};

/// What is wrong with a payload that is not what was written.
pub(crate) const WRONG_CHECKSUM: &str = "the checksum of the payload does not match";

/// The fastest level that still finds the repetitions of logs.
const ZSTD_LEVEL: i32 = 1;

/// LZ4 cannot make more of a byte than this.
const LZ4_RATIO_MAX: u64 = 255;

/// A zstd payload that claims to be larger is decompressed bit by bit, so that the claim alone takes no memory.
const TRUSTED_LEN: u32 = 64 * 1024 * 1024;

/// What a block carries, as it is stored. A clone shares the bytes.
#[derive(Debug, Clone)]
pub struct Payload {
    parts: Vec<Bytes>,
    stored_len: usize,
    raw_len: usize,
    crc: u32,
    compression: Compression,
    version: u8,
}

impl Payload {
    /// The stored form of a batch.
    pub fn of(frozen: Frozen, compression: Compression) -> Self {
        let parts = std::iter::once(frozen.head.into()).chain(frozen.documents);
        Self {
            version: frozen.version,
            ..Self::new(parts.collect(), compression)
        }
    }

    /// Compresses the parts, which are read back as one piece, and sums them. The plain form is kept when compression
    /// does not make it smaller. Their version is 1.
    pub fn new(parts: Vec<Bytes>, compression: Compression) -> Self {
        let raw_len = parts.iter().map(Bytes::len).sum();
        let (parts, compression) = match compress(&parts, raw_len, compression) {
            Some(packed) if packed.len() < raw_len => (vec![Bytes::from(packed)], compression),
            _ => (parts, Compression::None),
        };
        let mut hasher = Hasher::new();
        for part in &parts {
            hasher.update(part);
        }
        Self {
            stored_len: parts.iter().map(Bytes::len).sum(),
            raw_len,
            crc: hasher.finalize(),
            parts,
            compression,
            version: BLOCK_VERSION_FIRST,
        }
    }

    /// The version of the batch's stored form.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The bytes as they are stored, in parts.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Bytes as stored.
    pub fn stored_len(&self) -> usize {
        self.stored_len
    }

    /// Bytes when decompressed.
    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// The CRC of the stored bytes.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// How the stored bytes are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }
}

/// The compressed form; nothing when there is none.
fn compress(parts: &[Bytes], raw_len: usize, compression: Compression) -> Option<Vec<u8>> {
    if compression == Compression::None || raw_len == 0 {
        return None;
    }
    let joined;
    let raw: &[u8] = match parts {
        [only] => only,
        _ => {
            joined = parts.concat();
            &joined
        }
    };
    match compression {
        Compression::None => None,
        Compression::Lz4 => Some(lz4_flex::block::compress(raw)),
        Compression::Zstd => zstd::bulk::compress(raw, ZSTD_LEVEL).ok(),
    }
}

/// Decompresses a stored payload whose CRC is right; `None` when it is not what its header says.
pub(crate) fn decompress(header: &BlockHeader, stored: &[u8], pool: &PagePool) -> Option<Bytes> {
    let raw_len = header.raw_len as usize;
    match header.compression {
        Compression::None => Some(Bytes::copy_from_slice(stored)),
        Compression::Lz4 => {
            if u64::from(header.raw_len) > (stored.len() as u64 + 1) * LZ4_RATIO_MAX {
                return None;
            }
            let mut raw = pool.take(raw_len);
            let length = lz4_flex::block::decompress_into(stored, &mut raw[..raw_len]).ok()?;
            (length == raw_len).then(|| raw.freeze(0..raw_len))
        }
        Compression::Zstd if header.raw_len > TRUSTED_LEN => stream_zstd(stored, raw_len).ok(),
        Compression::Zstd => {
            let mut raw = pool.take(raw_len);
            let length = zstd::bulk::decompress_to_buffer(stored, &mut raw[..raw_len]).ok()?;
            (length == raw_len).then(|| raw.freeze(0..raw_len))
        }
    }
}

/// Decompresses with no more memory than there is content.
fn stream_zstd(stored: &[u8], raw_len: usize) -> io::Result<Bytes> {
    let mut raw = Vec::new();
    let decoder = zstd::stream::Decoder::with_buffer(stored)?;
    decoder.take(raw_len as u64 + 1).read_to_end(&mut raw)?;
    if raw.len() != raw_len {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Bytes::from(raw))
}
