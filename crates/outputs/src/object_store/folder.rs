//! A directory in the place of a store.
//!
//! An object is written to a file without a name, which is synced before it gets one, so that nothing incomplete is ever visible or left behind.
//! Where the file system has no such files, it has a name that begins with a dot.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component::{WriteError, WrittenFiles};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

/// A directory that holds objects.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    written: Arc<WrittenFiles>,
}

/// An object that is being written.
#[derive(Debug)]
pub struct Growing {
    file: File,
    path: PathBuf,
    /// Its hidden name, where it has one.
    hidden: Option<PathBuf>,
}

impl Folder {
    /// The directory. It is made when something is written.
    pub fn new(root: PathBuf, written: Arc<WrittenFiles>) -> Self {
        Self { root, written }
    }

    /// Makes the directory, if it is not there.
    ///
    /// # Errors
    /// The system refused.
    pub fn check(&self) -> Result<(), WriteError> {
        fs::create_dir_all(&self.root).map_err(|error| failed(&self.root, &error))
    }

    /// Begins an object.
    ///
    /// # Errors
    /// The system refused; the same for the other functions.
    pub fn begin(&self, key: &str) -> Result<Growing, WriteError> {
        let path = self.root.join(key);
        let begun = self.try_begin(&path);
        begun.map_err(|error| failed(&path, &error))
    }

    fn try_begin(&self, path: &Path) -> io::Result<Growing> {
        let folder = path.parent().unwrap_or(&self.root);
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
            let ancestors = folder.ancestors().skip(1);
            for ancestor in ancestors.take_while(|ancestor| ancestor.starts_with(&self.root)) {
                File::open(ancestor)?.sync_all()?;
            }
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let (file, hidden) = match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
            Ok(nameless) => (File::from(nameless), None),
            Err(_) => {
                let hidden = hidden(path);
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(true);
                (file.open(&hidden)?, Some(hidden))
            }
        };
        self.written.note(&file.metadata()?);
        Ok(Growing {
            file,
            path: path.to_owned(),
            hidden,
        })
    }
}

impl Growing {
    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| failed(&self.path, &error))
    }

    /// Makes the object visible, in the place of one that has its name.
    pub fn complete(&mut self) -> Result<(), WriteError> {
        let completed = self.try_complete();
        completed.map_err(|error| failed(&self.path, &error))
    }

    fn try_complete(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                let hidden = hidden(&self.path);
                let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let _ = fs::remove_file(&hidden);
                // It looked empty until now, and somebody may have removed it.
                if let Some(folder) = hidden.parent() {
                    fs::create_dir_all(folder)?;
                }
                linkat(CWD, nameless, CWD, &hidden, AtFlags::SYMLINK_FOLLOW)?;
                hidden
            }
        };
        fs::rename(hidden, &self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = fs::remove_file(hidden);
        }
    }
}

/// The name of an object that is not complete.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.writing"))
}

fn failed(path: &Path, error: &io::Error) -> WriteError {
    let reason = format!("cannot write {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ReadOnlyFilesystem => WriteError::Blocked(reason),
        _ => WriteError::Retry(reason),
    }
}
