//! Files that this process writes, so that none of its inputs reads what comes out of it.
//!
//! A pipeline that reads its own output never ends and fills the disk. An output states where it writes before anything starts,
//! which refuses what can be seen then, and notes the identity of every file that it opens, which covers what only shows while it
//! runs: paths with fields in them, links, renamed files.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

/// The files that one output writes.
#[derive(Debug, Default)]
pub struct WrittenFiles {
    /// A path that it may write, where that is known at the start.
    path: Option<PathBuf>,
    is_used: AtomicBool,
    /// When each was made, by device and inode.
    files: Mutex<HashMap<(u64, u64), Option<i64>>>,
}

/// What tells a file from all others. An inode is used again after its file was deleted; the time of its birth tells them apart,
/// where the file system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970.
    pub born_ns: Option<i64>,
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        let born = metadata.created().ok();
        let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born_ns: born.and_then(|time| i64::try_from(time.as_nanos()).ok()),
        }
    }
}

impl WrittenFiles {
    /// Of an output that writes to this path, or to ones like it.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// A path that the output writes; one of several where fields decide.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The output has this file open. To be called before anything is written to it.
    pub fn note(&self, metadata: &Metadata) {
        if !metadata.is_file() {
            return;
        }
        let file = FileIdentity::from(metadata);
        let mut files = self.files.lock();
        files.insert((file.device, file.inode), file.born_ns);
        self.is_used.store(true, Ordering::Release);
    }

    /// Whether it has opened any file.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Whether the output writes this file, or has written it.
    pub fn has(&self, file: &FileIdentity) -> bool {
        if !self.is_used() {
            return false;
        }
        let files = self.files.lock();
        let known = files.get(&(file.device, file.inode));
        known.is_some_and(|born| {
            let births = born.zip(file.born_ns);
            births.is_none_or(|(one, other)| one == other)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_what_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, "1").expect("written");
        std::fs::write(&other, "2").expect("written");
        let meta = |path: &Path| path.metadata().expect("it exists");
        let written = WrittenFiles::default();
        assert!(!written.has(&(&meta(&one)).into()));
        written.note(&meta(&one));
        written.note(&meta(&one));
        written.note(&meta(folder.path()));
        let moved = folder.path().join("moved");
        std::fs::rename(&one, &moved).expect("renamed");
        assert!(written.has(&(&meta(&moved)).into()));
        assert!(!written.has(&(&meta(&other)).into()));
        assert!(!written.has(&(&meta(folder.path())).into()));
        let known = FileIdentity::from(&meta(&moved));
        let later = FileIdentity {
            born_ns: known.born_ns.map(|born| born + 1),
            ..known
        };
        assert_eq!(written.has(&later), known.born_ns.is_none());
    }
}
