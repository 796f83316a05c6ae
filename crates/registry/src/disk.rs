//! The steps that change the disk, in one place so that tests can make each of them fail.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::folders;

/// A step that changes the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Write,
    Sync,
    Cut,
    Rename,
    Remove,
    SyncDirectory,
}

/// The disk, or in tests one that fails as planned.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub faults: crate::tests::Faults,
}

impl Disk {
    /// Whether the step may happen; always, but in tests.
    fn may(&self, step: Step) -> io::Result<()> {
        #[cfg(test)]
        self.faults.check(step)?;
        let _ = step;
        Ok(())
    }

    /// Creates a file, or empties the one that is there.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        self.may(Step::Create)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.mode(0o600).open(path)
    }

    /// Writes everything; on failure some of it may be there.
    pub fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Err(failure) = self.may(Step::Write) {
            // A full disk takes a part before it refuses.
            file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(failure);
        }
        file.write_all_at(bytes, offset)
    }

    /// Returns once the file's data and length are on disk.
    pub fn sync(&self, file: &File) -> io::Result<()> {
        self.may(Step::Sync)?;
        file.sync_data()
    }

    pub fn cut(&self, file: &File, length: u64) -> io::Result<()> {
        self.may(Step::Cut)?;
        file.set_len(length)
    }

    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.may(Step::Rename)?;
        fs::rename(from, to)
    }

    /// Removes a file; one that is not there is no error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.may(Step::Remove)?;
        match fs::remove_file(path) {
            Err(failure) if failure.kind() != io::ErrorKind::NotFound => Err(failure),
            _ => Ok(()),
        }
    }

    pub fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.may(Step::SyncDirectory)?;
        folders::sync(directory)
    }
}
