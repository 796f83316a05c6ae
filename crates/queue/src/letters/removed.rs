//! Which letters are gone.
//!
//! The file `removed` holds a CRC-32 in 8 hexadecimal digits, a space, and a JSON object, over which the CRC goes: `version` (1);
//! `removed`, ranges of numbers, begin and end, that are gone; `replaced`, pairs of numbers, the first of which is gone if the
//! letter of the second is there; `lost`, ranges of numbers of letters that were written and cannot be found; `cleared`, damaged parts of
//! segments that a person has seen and purged: segment, offset, length. It is written as a new file, synced, and renamed, so that it is there whole or as before. Where it
//! cannot be read, letters come back that were gone: they are never lost for it.

use std::io;
use std::ops::Range;

use disk::Storage;
use serde::{Deserialize, Serialize};

use crate::spans::Spans;

/// The file's name, and that of a new one.
pub(crate) const NAME: &str = "removed";
const NEW: &str = "removed.new";
const DAMAGED: &str = "removed.damaged";

const VERSION: u32 = 1;

/// The letters that are gone.
#[derive(Debug, Default, Clone)]
pub(crate) struct Removed {
    spans: Spans,
    /// The first is gone if the second is there.
    replaced: Vec<(u64, u64)>,
    /// Letters that were written and cannot be found; nobody has purged them yet.
    lost: Spans,
    /// Damaged parts that were purged.
    cleared: Vec<DamagedRange>,
}

/// A damaged part: segment, offset, length.
pub(crate) type DamagedRange = (u64, u64, u64);

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    removed: Vec<(u64, u64)>,
    replaced: Vec<(u64, u64)>,
    #[serde(default)]
    lost: Vec<(u64, u64)>,
    #[serde(default)]
    cleared: Vec<DamagedRange>,
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
            cleared: content.cleared,
            ..Self::default()
        };
        for (start, end) in content.removed {
            removed.spans.insert(start..end);
        }
        for (start, end) in content.lost {
            removed.lost.insert(start..end);
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
        let pairs = |spans: &Spans| {
            let ranges = spans.iter();
            ranges.map(|range| (range.start, range.end)).collect()
        };
        let content = Content {
            version: VERSION,
            removed: pairs(&self.spans),
            replaced: self.replaced.clone(),
            lost: pairs(&self.lost),
            cleared: self.cleared.clone(),
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

    /// Decides what was replaced, by whether the letters are there that take the place.
    pub fn settle(&mut self, is_there: impl Fn(u64) -> bool) {
        for (old, new) in std::mem::take(&mut self.replaced) {
            if is_there(new) {
                self.spans.insert(old..old + 1);
            }
        }
    }

    /// A letter is gone if another one is there.
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

    /// The numbers of a range that are not gone.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.spans.gaps(range)
    }

    /// Letters cannot be found, and are gone.
    pub fn lose(&mut self, range: Range<u64>) {
        self.lost.insert(range.clone());
        self.spans.insert(range);
    }

    /// Letters that cannot be found.
    pub fn lost(&self) -> Vec<Range<u64>> {
        self.lost.iter().collect()
    }

    /// What is damaged or cannot be found is reported no more.
    pub fn clear(&mut self, parts: &[DamagedRange]) {
        self.lost = Spans::default();
        let is_new = |part: &&DamagedRange| !self.cleared.contains(part);
        let new: Vec<DamagedRange> = parts.iter().filter(is_new).copied().collect();
        self.cleared.extend(new);
    }

    pub fn is_cleared(&self, segment: u64, offset: u64) -> bool {
        let is_of = |(of, start, length): &DamagedRange| {
            *of == segment && (*start..start.saturating_add(*length)).contains(&offset)
        };
        self.cleared.iter().any(is_of)
    }

    /// Of segments that are not there any more nothing is known.
    pub fn forget_cleared(&mut self, is_there: impl Fn(u64) -> bool) {
        self.cleared.retain(|(segment, ..)| is_there(*segment));
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
