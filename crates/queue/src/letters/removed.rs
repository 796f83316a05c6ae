//! Which letters are gone.
//!
//! The file `removed` holds a CRC-32 in 8 hexadecimal digits, a space, and a JSON object, over which the CRC goes: `version` (1);
//! `removed`, ranges of numbers, begin and end, that are gone; `replaced`, pairs of numbers, the first of which is gone if the store
//! comes as far as the second. It is written as a new file, synced, and renamed, so that it is there whole or as before. Where it
//! cannot be read, letters come back that were gone: they are never lost for it.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::spans::Spans;
use crate::storage::Storage;

/// The file's name, and that of a new one.
pub(crate) const NAME: &str = "removed";
const NEW: &str = "removed.new";
const DAMAGED: &str = "removed.damaged";

const VERSION: u32 = 1;

/// The letters that are gone.
#[derive(Debug, Default, Clone)]
pub(crate) struct Removed {
    spans: Spans,
    /// The first is gone if the store comes as far as the second.
    replaced: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    removed: Vec<(u64, u64)>,
    replaced: Vec<(u64, u64)>,
}

impl Removed {
    /// Reads the file; `None` where it is there and says nothing.
    ///
    /// # Errors
    /// It cannot be read, or is of a later version.
    pub fn read(storage: &dyn Storage) -> io::Result<Option<Self>> {
        let file = match storage.open(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(Self::default()));
            }
            file => file?,
        };
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
        let length = file.read_at(&mut bytes, 0)?;
        bytes.truncate(length);
        let Some(content) = decode(&bytes) else {
            return Ok(None);
        };
        if content.version > VERSION {
            return Err(io::Error::other(format!(
                "the file `{NAME}` was written by a later version of Millpond (format {})",
                content.version
            )));
        }
        let mut removed = Self {
            replaced: content.replaced,
            ..Self::default()
        };
        for (start, end) in content.removed {
            removed.spans.insert(start..end);
        }
        Ok(Some(removed))
    }

    /// Sets a file aside that says nothing.
    pub fn set_aside(storage: &dyn Storage) -> io::Result<()> {
        storage.rename(NAME, DAMAGED)?;
        storage.sync_folder("")
    }

    /// Writes the file.
    pub fn save(&self, storage: &dyn Storage) -> io::Result<()> {
        let content = Content {
            version: VERSION,
            removed: self
                .spans
                .iter()
                .map(|range| (range.start, range.end))
                .collect(),
            replaced: self.replaced.clone(),
        };
        let json = serde_json::to_vec(&content)?;
        let mut bytes = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
        bytes.extend_from_slice(&json);
        storage.remove(NEW)?;
        let file = storage.create(NEW, 0)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        storage.rename(NEW, NAME)?;
        storage.sync_folder("")
    }

    /// Decides what was replaced, for a store that comes as far as `end`.
    pub fn settle(&mut self, end: u64) {
        for (old, new) in std::mem::take(&mut self.replaced) {
            if new < end {
                self.spans.insert(old..old + 1);
            }
        }
    }

    /// A letter is gone if the store comes as far as another one.
    pub fn replace(&mut self, old: u64, new: u64) {
        self.replaced.push((old, new));
    }

    /// Takes back what was not settled.
    pub fn forget_replaced(&mut self) {
        self.replaced.clear();
    }

    /// Removes letters; how many of them were there.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        self.spans.insert(range)
    }

    /// How many numbers of a range are not gone.
    pub fn left_in(&self, range: &Range<u64>) -> u64 {
        self.spans.outside(range)
    }

    pub fn contains(&self, number: u64) -> bool {
        self.spans.outside(&(number..number + 1)) == 0
    }

    pub fn has_replaced(&self) -> bool {
        !self.replaced.is_empty()
    }
}

fn decode(bytes: &[u8]) -> Option<Content> {
    let (crc, json) = bytes.split_at_checked(9)?;
    let crc = std::str::from_utf8(crc.strip_suffix(b" ")?).ok()?;
    let crc = u32::from_str_radix(crc, 16).ok()?;
    match crc32fast::hash(json) == crc {
        true => serde_json::from_slice(json).ok(),
        false => None,
    }
}
