//! The data directory and its files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Storage, StoredFile};

use crate::error::{self, RegistryError};

/// The log.
pub(crate) const LOG: &str = "registry";
/// The next log while it is written.
pub(crate) const TMP: &str = "registry.tmp";
/// How many damaged logs are kept.
const DAMAGED_MAX: usize = 3;
const DAMAGED: &str = "registry.damaged.";
/// Copied at once, in bytes.
const COPY_SIZE: usize = 256 << 10;

/// A data directory.
#[derive(Debug)]
pub(crate) struct Folder {
    pub directory: PathBuf,
    pub storage: Arc<dyn Storage>,
}

impl Folder {
    pub fn new(directory: &Path, storage: Arc<dyn Storage>) -> Self {
        Self {
            directory: directory.to_owned(),
            storage,
        }
    }

    /// The path of the log, for messages.
    pub fn log(&self) -> PathBuf {
        self.directory.join(LOG)
    }

    /// The path of the next log, for messages.
    pub fn tmp(&self) -> PathBuf {
        self.directory.join(TMP)
    }

    /// Keeps the log under a numbered name, as it is now, and gives that name. The oldest beyond three are removed.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let mut numbers = self.damaged()?;
        numbers.sort_unstable();
        let next = numbers.last().map_or(1, |last| last + 1);
        let copy = damaged_name(next);
        // A second name takes no room on a disk that may be full; not every file system has them.
        if self.storage.link(LOG, &copy).is_err() {
            self.copy(&copy)?;
        }
        let surplus = (numbers.len() + 1).saturating_sub(DAMAGED_MAX);
        for number in &numbers[..surplus] {
            self.storage.remove(&damaged_name(*number))?;
        }
        Ok(self.directory.join(copy))
    }

    fn copy(&self, name: &str) -> io::Result<()> {
        let log = self.storage.open(LOG)?;
        let copy = self.storage.create(name, 0)?;
        let (mut buffer, mut at) = (vec![0; COPY_SIZE], 0);
        loop {
            let read = log.read_at(&mut buffer, at)?;
            if read == 0 {
                return copy.sync();
            }
            copy.write_at(&buffer[..read], at)?;
            at += read as u64;
        }
    }

    fn damaged(&self) -> io::Result<Vec<u64>> {
        let listed = self.storage.list("")?.into_iter();
        let numbers = listed.filter_map(|file| file.name.strip_prefix(DAMAGED)?.parse().ok());
        Ok(numbers.collect())
    }

    /// Opens the log, to write as well; `None` when there is none.
    pub fn open_log(&self) -> Result<Option<Arc<dyn StoredFile>>, RegistryError> {
        match self.storage.open(LOG) {
            Ok(file) => Ok(Some(file)),
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(failure) => Err(error::io("open the registry", &self.log())(failure)),
        }
    }
}

fn damaged_name(number: u64) -> String {
    format!("{DAMAGED}{number}")
}
