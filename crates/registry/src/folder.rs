//! The data directory and its files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::error::{self, RegistryError};
use crate::folders;

/// How many damaged logs are kept.
const DAMAGED_MAX: usize = 3;
const DAMAGED: &str = "registry.damaged.";

/// A data directory.
#[derive(Debug)]
pub(crate) struct Folder {
    pub directory: PathBuf,
    /// The log.
    pub log: PathBuf,
    /// The next log while it is written.
    pub tmp: PathBuf,
    pub disk: Disk,
}

impl Folder {
    pub fn new(directory: &Path, disk: Disk) -> Self {
        Self {
            directory: directory.to_owned(),
            log: log(directory),
            tmp: directory.join("registry.tmp"),
            disk,
        }
    }

    /// Creates the directory and its parents where they are missing, for the owner alone.
    pub fn create(&self) -> Result<(), RegistryError> {
        let directory = &self.directory;
        match fs::metadata(directory) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => {
                return Err(RegistryError::NotADirectory {
                    path: directory.clone(),
                });
            }
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => {}
            Err(failure) => return Err(error::io("use the data directory", directory)(failure)),
        }
        folders::make(directory, |parent| self.disk.sync_directory(parent))
            .map_err(error::io("create the data directory", directory))
    }

    /// Keeps the log under a numbered name, as it is now, and gives that name. The oldest beyond three are removed.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let mut numbers = self.damaged()?;
        numbers.sort_unstable();
        let next = numbers.last().map_or(1, |last| last + 1);
        let copy = self.damaged_path(next);
        // A link takes no room on a disk that may be full; not every file system has them.
        if fs::hard_link(&self.log, &copy).is_err() {
            fs::copy(&self.log, &copy)?;
        }
        let surplus = (numbers.len() + 1).saturating_sub(DAMAGED_MAX);
        for number in &numbers[..surplus] {
            self.disk.remove(&self.damaged_path(*number))?;
        }
        Ok(copy)
    }

    fn damaged_path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{DAMAGED}{number}"))
    }

    fn damaged(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(DAMAGED));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    /// Opens the log, to write as well; `None` when there is none.
    pub fn open_log(&self) -> Result<Option<File>, RegistryError> {
        match File::options().read(true).write(true).open(&self.log) {
            Ok(file) => Ok(Some(file)),
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(failure) => Err(error::io("open the registry", &self.log)(failure)),
        }
    }
}

/// The path of the log.
pub(crate) fn log(directory: &Path) -> PathBuf {
    directory.join("registry")
}
