//! The file `synced`: where the log ended when it was last synced.
//!
//! What is behind the last mark that blocks and cursors carry may be a write that a crash tore, or what was acknowledged just
//! before it. This file tells the two apart. It is written after each successful sync, before anybody is told that the events
//! are safe, and is never synced itself, so it costs one write into the page cache. After the end of a process it is exact.
//! After a power cut it may be older than the last sync, or missing; then what was damaged behind it and behind the other
//! marks passes for torn. It never claims more than was synced.
//!
//! Two slots of a [`PAGE`] each are written in turn; the valid one with the higher sequence counts. A slot, integers
//! little-endian, the rest of its page zeros:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | magic `mpsynced` |
//! | 8 | 4 | version, now 1 |
//! | 12 | 4 | CRC-32 (IEEE) of the bytes 0 to 12 and 16 to 32 |
//! | 16 | 8 | the sequence behind the last synced block |
//! | 24 | 8 | the events written to the log up to there, ever |
//!
//! Recovery: a file that cannot be read, whatever has its name, is no obstacle: it then says nothing.

use std::io;
use std::sync::Arc;

use disk::{PAGE, Storage, StoredFile};
use parking_lot::Mutex;

use crate::log::LogEnd;

/// The file's name.
pub(crate) const NAME: &str = "synced";

const MAGIC: &[u8; 8] = b"mpsynced";
const VERSION: u32 = 1;
const LENGTH: usize = 32;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing: there is no file, or it was never written.
    Nothing,
    /// So far the log was synced at least.
    End(LogEnd),
    /// It was written and cannot be read.
    Damaged,
}

impl Said {
    /// Where the log ended, as far as it is known.
    pub(crate) fn end(self) -> LogEnd {
        match self {
            Self::End(end) => end,
            Self::Nothing | Self::Damaged => LogEnd::default(),
        }
    }
}

/// Reads the file of a folder, changing nothing.
pub(crate) fn read(storage: &dyn Storage) -> Said {
    match storage.open(NAME) {
        Ok(file) => read_slots(&*file).0,
        Err(failure) if failure.kind() == io::ErrorKind::NotFound => Said::Nothing,
        Err(_) => Said::Damaged,
    }
}

/// What the file says, and the slot that is written next.
fn read_slots(file: &dyn StoredFile) -> (Said, usize) {
    let slots = [0, 1].map(|slot| {
        let mut bytes = [0; LENGTH];
        match file.read_at(&mut bytes, (slot * PAGE) as u64) {
            Ok(_) if bytes == [0; LENGTH] => Said::Nothing,
            Ok(LENGTH) => decode(&bytes),
            Ok(_) | Err(_) => Said::Damaged,
        }
    });
    let [first, second] = slots;
    let next = usize::from(first.end() > second.end());
    match (first, second) {
        (Said::End(one), Said::End(other)) => (Said::End(one.max(other)), next),
        (Said::End(end), _) | (_, Said::End(end)) => (Said::End(end), next),
        (Said::Damaged, _) | (_, Said::Damaged) => (Said::Damaged, next),
        (Said::Nothing, Said::Nothing) => (Said::Nothing, next),
    }
}

fn decode(bytes: &[u8; LENGTH]) -> Said {
    let number = |at: usize| {
        let field = bytes[at..].first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(field)
    };
    let version_and_crc = number(8).to_le_bytes();
    let is_right = bytes.starts_with(MAGIC)
        && version_and_crc[..4] == VERSION.to_le_bytes()
        && version_and_crc[4..] == crc(bytes).to_le_bytes();
    match is_right {
        true => Said::End(LogEnd {
            sequence: number(16),
            ordinal: number(24),
        }),
        false => Said::Damaged,
    }
}

fn encode(end: LogEnd) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&end.sequence.to_le_bytes());
    bytes[24..32].copy_from_slice(&end.ordinal.to_le_bytes());
    let crc = crc(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn crc(bytes: &[u8; LENGTH]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// Writes the file.
#[derive(Debug, Default)]
pub(crate) struct SyncedMark {
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: Arc<dyn StoredFile>,
    slot: usize,
}

impl SyncedMark {
    /// Says that the log was synced up to there. A failure costs only that a later start knows less, so it is none.
    pub(crate) fn advance(&self, storage: &dyn Storage, end: LogEnd) {
        let mut open = self.open.lock();
        if open.is_none() {
            *open = open_or_create(storage).ok();
        }
        let Some(Open { file, slot }) = &mut *open else {
            return;
        };
        // Not a whole page: those go past the page cache, to the disk.
        if file.write_at(&encode(end), (*slot * PAGE) as u64).is_ok() {
            *slot = 1 - *slot;
        }
    }
}

fn open_or_create(storage: &dyn Storage) -> io::Result<Open> {
    let file = match storage.open(NAME) {
        Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
            storage.create(NAME, 2 * PAGE as u64)?
        }
        opened => opened?,
    };
    let (_, slot) = read_slots(&*file);
    Ok(Open { file, slot })
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::FolderStorage;

    fn end(sequence: u64) -> LogEnd {
        LogEnd {
            sequence,
            ordinal: sequence * 10,
        }
    }

    #[test]
    fn the_last_mark_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a queue's folder");
        assert_eq!(read(&storage), Said::Nothing);
        for run in 0..3 {
            let mark = SyncedMark::default();
            for sequence in run * 10..run * 10 + 3 {
                mark.advance(&storage, end(sequence + 1));
                assert_eq!(read(&storage), Said::End(end(sequence + 1)));
            }
        }
    }

    #[test]
    fn damage_to_a_slot_leaves_the_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = FolderStorage::open(folder.path()).expect("a queue's folder");
        let mark = SyncedMark::default();
        mark.advance(&storage, end(1));
        mark.advance(&storage, end(2));
        let file = storage.open(NAME).expect("it is there");
        for (slot, said) in [(1, Said::End(end(1))), (0, Said::Damaged)] {
            file.write_at(b"x", (slot * PAGE + 20) as u64)
                .expect("written");
            assert_eq!(read(&storage), said);
        }
        SyncedMark::default().advance(&storage, end(3));
        assert_eq!(read(&storage), Said::End(end(3)));
    }

    #[test]
    fn a_folder_of_that_name_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(NAME)).expect("made");
        let storage = FolderStorage::open(folder.path()).expect("a queue's folder");
        assert_eq!(read(&storage), Said::Damaged);
        SyncedMark::default().advance(&storage, end(3));
        assert_eq!(read(&storage), Said::Damaged);
    }
}
