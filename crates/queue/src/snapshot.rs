//! What processors remember of the batches before a position: two files, written in turn.
//!
//! A processor that remembers something, as `dedupe` does, gets every batch once and in sequence. A run that goes on at a
//! position needs what the processor remembered there, or else it would decide otherwise about the same batches. So
//! the states of all such processors are kept together, each as it was after the last batch before the position.
//!
//! `snapshot-a` and `snapshot-b` are written in place, always the one that is not needed, so that no room is needed on a full disk as
//! long as states do not grow. A file, integers little-endian:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `mpstates` |
//! | 8 | 4 | version, now 1 |
//! | 12 | 4 | CRC-32 (IEEE) of the bytes 0 to 12 and 16 to the end of the states |
//! | 16 | 8 | the position: a sequence |
//! | 24 | 8 | the events in the log before that position, ever |
//! | 32 | 8 | length of the states in bytes |
//! | 40 | | the states; what is behind them is left from before |
//!
//! A state: length of its processor's name (4 bytes) and the name, the fingerprint of its configuration (8), length of the
//! rest (8) and the rest, which is the processor's own.
//!
//! The table of streams (`streams.rs`) is kept in the same way, in two files of its own.
//!
//! Magic, version, CRC and length stay where they are in every version, so that a file of a later version is told from a damaged one.
//!
//! Recovery: a file that cannot be read, whatever it holds, counts as not written. Limits: a state has at most 4 GiB.

use std::io;
use std::sync::Arc;

use disk::{Storage, StoredFile};

use crate::QueueError;

/// The latest version that is known.
pub(crate) const VERSION: u32 = 1;

/// The files' names.
pub(crate) const NAMES: [&str; 2] = ["snapshot-a", "snapshot-b"];

/// The most that is read of a file, in bytes.
pub(crate) const STATE_BYTES_MAX: u64 = 4 << 30;

const MAGIC: &[u8; 8] = b"mpstates";
const HEAD: usize = 40;

/// What a processor remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorState {
    /// The processor's name in its pipeline.
    pub name: String,
    /// Of its configuration. One of another configuration cannot use what is here.
    pub fingerprint: u64,
    /// The processor's own.
    pub bytes: Vec<u8>,
}

/// What processors remember of all batches before a position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The sequence of the first batch that they have not seen.
    pub position: u64,
    /// The events in the log before it, ever.
    pub ordinal: u64,
    /// One of each processor that remembers something.
    pub states: Vec<ProcessorState>,
}

impl Snapshot {
    /// Bytes of its states.
    pub fn size(&self) -> usize {
        self.states.iter().map(|state| state.bytes.len()).sum()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes.reserve(self.size() + 64 * self.states.len());
        for state in &self.states {
            bytes.extend((state.name.len() as u32).to_le_bytes());
            bytes.extend(state.name.as_bytes());
            bytes.extend(state.fingerprint.to_le_bytes());
            bytes.extend((state.bytes.len() as u64).to_le_bytes());
            bytes.extend(&state.bytes);
        }
        let length = (bytes.len() - HEAD) as u64;
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.position.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[32..40].copy_from_slice(&length.to_le_bytes());
        let crc = crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// None where something is missing.
    fn decode(position: u64, ordinal: u64, mut rest: &[u8]) -> Option<Self> {
        let mut states = Vec::new();
        while !rest.is_empty() {
            let name_length = u32::from_le_bytes(take(&mut rest)?) as usize;
            let (name, after) = rest.split_at_checked(name_length)?;
            rest = after;
            let fingerprint = u64::from_le_bytes(take(&mut rest)?);
            let length = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
            let (bytes, after) = rest.split_at_checked(length)?;
            rest = after;
            states.push(ProcessorState {
                name: String::from_utf8(name.to_vec()).ok()?,
                fingerprint,
                bytes: bytes.to_vec(),
            });
        }
        Some(Self {
            position,
            ordinal,
            states,
        })
    }
}

/// The next bytes, if there are so many.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SnapshotFile {
    /// A snapshot.
    Good(Snapshot),
    /// There is no file, or it was never written.
    Blank,
    /// Something else. A crash while it was written leaves this, too.
    Damaged,
    /// A snapshot of a later version of the format.
    Newer(u32),
}

fn read(storage: &dyn Storage, name: &str) -> io::Result<SnapshotFile> {
    let file = match storage.open(name) {
        Ok(file) => file,
        Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
            return Ok(SnapshotFile::Blank);
        }
        Err(failure) => return Err(failure),
    };
    let mut head = [0; HEAD];
    let there = file.read_at(&mut head, 0)?;
    if head == [0; HEAD] {
        return Ok(SnapshotFile::Blank);
    }
    if there < HEAD || !head.starts_with(MAGIC) {
        return Ok(SnapshotFile::Damaged);
    }
    let number = |at: usize| {
        let field = head[at..].first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(field)
    };
    let length = number(32);
    if length > STATE_BYTES_MAX || file.len()? < HEAD as u64 + length {
        return Ok(SnapshotFile::Damaged);
    }
    let mut bytes = vec![0; HEAD + length as usize];
    if file.read_at(&mut bytes, 0)? < bytes.len() {
        return Ok(SnapshotFile::Damaged);
    }
    if head[12..16] != crc(&bytes).to_le_bytes() {
        return Ok(SnapshotFile::Damaged);
    }
    let version = number(8) as u32;
    if version > VERSION {
        return Ok(SnapshotFile::Newer(version));
    }
    Ok(
        match Snapshot::decode(number(16), number(24), &bytes[HEAD..]) {
            Some(snapshot) => SnapshotFile::Good(snapshot),
            None => SnapshotFile::Damaged,
        },
    )
}

/// Writes two files in turn.
#[derive(Debug)]
pub(crate) struct SnapshotFiles {
    names: [&'static str; 2],
    /// The number of the file that is written next.
    next: usize,
    open: [Option<Arc<dyn StoredFile>>; 2],
}

impl SnapshotFiles {
    /// Files of which one holds the snapshot that a restart needs.
    pub(crate) fn keeping(names: [&'static str; 2], needed: Option<usize>) -> Self {
        Self {
            names,
            next: needed.map_or(0, |needed| 1 - needed),
            open: [None, None],
        }
    }

    /// Writes a snapshot over the one that is not needed. When it returns it is on disk. A file that cannot be written is removed, so that it
    /// takes no room on a disk that is full.
    pub(crate) fn write(&mut self, storage: &dyn Storage, snapshot: &Snapshot) -> io::Result<()> {
        let written = self.try_write(storage, snapshot);
        if written.is_err() {
            self.open[self.next] = None;
            // One that stays counts as not written.
            let _ = storage.remove(self.names[self.next]);
        }
        written
    }

    fn try_write(&mut self, storage: &dyn Storage, snapshot: &Snapshot) -> io::Result<()> {
        let name = self.names[self.next];
        let bytes = snapshot.encode();
        let slot = &mut self.open[self.next];
        let file = match slot {
            Some(file) => file,
            None => slot.insert(open_or_create(storage, name, bytes.len() as u64)?),
        };
        file.write_at(&bytes, 0)?;
        file.sync()
    }

    /// What was written last is the one that is needed from now on.
    pub(crate) fn keep_last(&mut self) {
        self.next = 1 - self.next;
    }
}

fn open_or_create(
    storage: &dyn Storage,
    name: &str,
    length: u64,
) -> io::Result<Arc<dyn StoredFile>> {
    match storage.open(name) {
        Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
            let file = storage.create(name, length)?;
            storage.sync_folder("")?;
            Ok(file)
        }
        opened => opened,
    }
}

/// The snapshots that are there.
#[derive(Debug, Default)]
pub(crate) struct FoundSnapshots {
    /// In the order of their files.
    found: [Option<Snapshot>; 2],
    /// Whether a file cannot be read, as a crash leaves it that was just being written.
    is_damaged: bool,
}

impl FoundSnapshots {
    /// Reads what is there.
    ///
    /// # Errors
    /// A file has the format of a later version, or cannot be opened.
    pub(crate) fn load(
        storage: &dyn Storage,
        names: [&'static str; 2],
    ) -> Result<Self, QueueError> {
        let mut loaded = Self::default();
        for (index, name) in names.into_iter().enumerate() {
            match read(storage, name).map_err(QueueError::io("read", name))? {
                SnapshotFile::Good(snapshot) => loaded.found[index] = Some(snapshot),
                SnapshotFile::Blank => {}
                SnapshotFile::Damaged => loaded.is_damaged = true,
                SnapshotFile::Newer(version) => {
                    return Err(QueueError::Newer {
                        file: name.into(),
                        version,
                        known: VERSION,
                    });
                }
            }
        }
        Ok(loaded)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.iter().all(Option::is_none)
    }

    /// Whether there is something that cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The processors that the latest one is of.
    pub(crate) fn processors(&self) -> Option<String> {
        let found = self.found.iter().flatten();
        let latest = found.max_by_key(|snapshot| snapshot.position)?;
        let names: Vec<String> = latest
            .states
            .iter()
            .map(|state| format!("`{}`", state.name))
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The highest position that there is, whatever it is worth.
    pub(crate) fn highest(&self) -> u64 {
        let found = self.found.iter().flatten();
        found.map(|snapshot| snapshot.position).max().unwrap_or(0)
    }

    /// The latest one of a position that no output has yet to come to, with the number of its file.
    pub(crate) fn at_most(self, lowest_cursor: u64) -> Option<(usize, Snapshot)> {
        let those = self.numbered();
        those
            .filter(|(_, found)| found.position <= lowest_cursor)
            .max_by_key(|(_, found)| found.position)
    }

    /// The earlier one, with the number of its file: every output has come to its position, also those of which nothing is known.
    pub(crate) fn earliest(self) -> Option<(usize, Snapshot)> {
        let is_sure = !self.is_damaged;
        let those = self.numbered().filter(|_| is_sure);
        those.min_by_key(|(_, found)| found.position)
    }

    fn numbered(self) -> impl Iterator<Item = (usize, Snapshot)> {
        let found = self.found.into_iter().enumerate();
        found.filter_map(|(index, found)| Some((index, found?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::FolderStorage;

    fn snapshot(position: u64, size: usize) -> Snapshot {
        Snapshot {
            position,
            ordinal: 10 * position,
            states: vec![
                ProcessorState {
                    name: "dedupe".to_owned(),
                    fingerprint: 7,
                    bytes: vec![position as u8; size],
                },
                ProcessorState {
                    name: "empty".to_owned(),
                    fingerprint: u64::MAX,
                    bytes: Vec::new(),
                },
            ],
        }
    }

    #[test]
    fn the_latest_that_is_not_beyond_the_cursors_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a queue's folder");
        let found = |lowest| {
            let found = FoundSnapshots::load(&storage, NAMES).expect("they are read");
            found.at_most(lowest)
        };
        assert_eq!(found(u64::MAX), None);
        let mut files = SnapshotFiles::keeping(NAMES, None);
        for (position, size) in [(3, 10_000), (8, 100), (20, 50), (31, 0)] {
            files
                .write(&storage, &snapshot(position, size))
                .expect("written");
            files.keep_last();
            let (_, latest) = found(position).expect("it is there");
            assert_eq!(latest, snapshot(position, size));
        }
        assert_eq!(found(30).map(|(_, found)| found), Some(snapshot(20, 50)));
        assert_eq!(found(19), None);
        // Another run goes on from the older one, and does not write over it.
        let (kept, _) = found(30).expect("it is there");
        let mut files = SnapshotFiles::keeping(NAMES, Some(kept));
        files.write(&storage, &snapshot(25, 1)).expect("written");
        assert_eq!(found(24).map(|(_, found)| found), Some(snapshot(20, 50)));
        assert_eq!(found(25).map(|(_, found)| found), Some(snapshot(25, 1)));
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a queue's folder");
        let mut files = SnapshotFiles::keeping(NAMES, None);
        files.write(&storage, &snapshot(1, 40)).expect("written");
        let path = folder.path().join(NAMES[0]);
        let whole = std::fs::read(&path).expect("it is there");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).expect("written");
            let found = read(&storage, NAMES[0]).expect("it is read");
            assert_eq!(found, SnapshotFile::Damaged, "with damage at {at}");
            std::fs::write(&path, &whole[..at]).expect("written");
            let cut = read(&storage, NAMES[0]).expect("it is read");
            assert!(!matches!(cut, SnapshotFile::Good(_)), "cut to {at}");
        }
    }
}
