//! The bytes of a log: header, frames and changes. The layout stands in the crate's documentation.
//!
//! A frame is well formed when its CRC holds and its payload consists of exactly the changes it counts, so whoever walks
//! a frame that [`FrameHeader::verify`] accepted meets no error.

use crate::RegistryError;

/// Bytes a value may have.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Bytes the changes of one commit may have together, with 22 for each change.
pub const COMMIT_BYTES_MAX: usize = 64 << 20;

pub(crate) const VERSION: u16 = 1;
pub(crate) const HEADER_BYTES: usize = 24;
pub(crate) const FRAME_MAGIC: [u8; 4] = [0xF7, b'm', b'P', 0x1A];
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// What a put takes besides its value.
pub(crate) const PUT_BYTES: usize = 22;

const MAGIC: [u8; 8] = *b"\xF7mpreg\r\n";
const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_BYTES: usize = 18;

/// A key: what kind of thing, and its 128-bit id.
#[derive(Debug, Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What kind of thing; the inputs agree on the kinds among themselves.
    pub kind: u8,
    /// Which of them.
    pub id: u128,
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The entry has this value from now on.
    Put(Key, Vec<u8>),
    /// The entry is gone; one that never was is no error.
    Delete(Key),
}

/// What the first bytes of a log say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A log of this version, with this id.
    Valid { log: u64 },
    /// A log of a version yet unknown.
    Newer { version: u16 },
    /// No header, or a damaged one.
    Damaged,
}

impl Header {
    pub fn encode(log: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&log.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        if bytes.len() < HEADER_BYTES
            || bytes[..8] != MAGIC
            || crc32fast::hash(&bytes[..20]) != u32_at(bytes, 20)
        {
            return Self::Damaged;
        }
        match u16::from_le_bytes([bytes[8], bytes[9]]) {
            VERSION => Self::Valid {
                log: u64_at(bytes, 12),
            },
            version if version > VERSION => Self::Newer { version },
            _ => Self::Damaged,
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHeader {
    pub payload_bytes: usize,
    pub log: u64,
    pub sequence: u64,
    count: u32,
}

impl FrameHeader {
    /// Reads a header; `None` for bytes that begin no frame. Too few bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FRAME_HEADER_BYTES || bytes[..4] != FRAME_MAGIC {
            return None;
        }
        let header = Self {
            payload_bytes: u32_at(bytes, 4) as usize,
            log: u64_at(bytes, 8),
            sequence: u64_at(bytes, 16),
            count: u32_at(bytes, 24),
        };
        (header.payload_bytes <= COMMIT_BYTES_MAX).then_some(header)
    }

    /// Bytes of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload_bytes
    }

    /// Whether the bytes are this header's whole and well-formed frame.
    pub fn verify(&self, frame: &[u8]) -> bool {
        if frame.len() != self.frame_bytes() || crc(frame) != u32_at(frame, 28) {
            return false;
        }
        let mut walk = Changes::new(frame);
        let count = walk.by_ref().count();
        walk.rest.is_empty() && count == self.count as usize
    }
}

fn crc(frame: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame[..28]);
    crc.update(&frame[FRAME_HEADER_BYTES..]);
    crc.finalize()
}

/// A change in a frame.
#[derive(Debug)]
pub(crate) enum FrameChange<'a> {
    /// `at` is where the value begins, from the start of the frame.
    Put {
        key: Key,
        at: usize,
        value: &'a [u8],
    },
    Delete {
        key: Key,
    },
}

/// The changes of a frame, in order. Ends early at bytes that are no change.
pub(crate) struct Changes<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Changes<'a> {
    pub fn new(frame: &'a [u8]) -> Self {
        Self {
            rest: &frame[FRAME_HEADER_BYTES..],
            at: FRAME_HEADER_BYTES,
        }
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = FrameChange<'a>;

    fn next(&mut self) -> Option<FrameChange<'a>> {
        let op = *self.rest.first()?;
        let id = u128::from_le_bytes(self.rest.get(2..DELETE_BYTES)?.try_into().ok()?);
        let key = Key {
            kind: self.rest[1],
            id,
        };
        let (found, used) = match op {
            PUT => {
                let length = self.rest.get(DELETE_BYTES..PUT_BYTES)?.try_into().ok()?;
                let used = PUT_BYTES + u32::from_le_bytes(length) as usize;
                let value = self.rest.get(PUT_BYTES..used)?;
                let at = self.at + PUT_BYTES;
                (FrameChange::Put { key, at, value }, used)
            }
            DELETE => (FrameChange::Delete { key }, DELETE_BYTES),
            _ => return None,
        };
        self.rest = &self.rest[used..];
        self.at += used;
        Some(found)
    }
}

/// A frame being put together.
#[derive(Debug)]
pub(crate) struct FrameBuilder {
    bytes: Vec<u8>,
    count: u32,
}

impl FrameBuilder {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; FRAME_HEADER_BYTES],
            count: 0,
        }
    }

    /// The frame of a commit.
    pub fn of(changes: &[Change]) -> Result<Self, RegistryError> {
        let mut frame = Self::new();
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    if value.len() > VALUE_BYTES_MAX {
                        return Err(RegistryError::TooLarge {
                            what: "a value",
                            size: value.len(),
                            max: VALUE_BYTES_MAX,
                        });
                    }
                    frame.put(*key, value);
                }
                Change::Delete(key) => frame.change(DELETE, *key),
            }
            if frame.payload_bytes() > COMMIT_BYTES_MAX {
                return Err(RegistryError::TooLarge {
                    what: "a commit",
                    size: frame.payload_bytes(),
                    max: COMMIT_BYTES_MAX,
                });
            }
        }
        Ok(frame)
    }

    /// Adds a put; its value begins so many bytes from the start of the frame.
    pub fn put(&mut self, key: Key, value: &[u8]) -> usize {
        let length = u32::try_from(value.len()).expect("values are at most 16 MiB");
        self.change(PUT, key);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.len() - value.len()
    }

    fn change(&mut self, op: u8, key: Key) {
        self.bytes.extend_from_slice(&[op, key.kind]);
        self.bytes.extend_from_slice(&key.id.to_le_bytes());
        self.count += 1;
    }

    pub fn payload_bytes(&self) -> usize {
        self.bytes.len() - FRAME_HEADER_BYTES
    }

    /// Fills in the header: the bytes to append.
    pub fn finish(&mut self, log: u64, sequence: u64) -> &[u8] {
        let length = u32::try_from(self.payload_bytes()).expect("frames are at most 80 MiB");
        self.bytes[..4].copy_from_slice(&FRAME_MAGIC);
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&log.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        self.bytes[24..28].copy_from_slice(&self.count.to_le_bytes());
        let crc = crc(&self.bytes);
        self.bytes[28..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }

    /// Begins the next frame in the same memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(FRAME_HEADER_BYTES);
        self.count = 0;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
