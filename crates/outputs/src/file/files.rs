//! The open files of one `file` output, by path.
//!
//! At most so many are open at once, and fewer where the system has no more descriptors; to open another one, the one that
//! was not used for longest is finished and closed. Whatever the reason for closing a file, it is made durable first.
//! Before every piece a file is looked at: it is rotated when that is due, and opened anew when somebody else renamed or
//! removed it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use component::{Warning, WriteError, WrittenFiles, plural};
use rustix::io::Errno;

use super::notes::Notes;
use super::open::OpenFile;
use super::recover::{ExistingFile, examine, holds_nothing};
use super::rotate;
use super::settings::Settings;
use super::storage::{Storage, Stored, is_device, seconds};
use crate::sink::{failure, write_rest};

/// The open files of one output.
pub struct Files {
    storage: Box<dyn Storage>,
    settings: Settings,
    /// What every new file begins with.
    header: Box<[u8]>,
    notes: Notes,
    open: HashMap<Arc<str>, OpenFile>,
    uses: u64,
    /// Every file that was opened.
    written: Arc<WrittenFiles>,
    pub warnings: Vec<Warning>,
    pub counters: Vec<(&'static str, u64)>,
}

/// Why a piece was not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The path cannot be written to, whatever one tries; others may be fine.
    Path(String),
    /// Anything else.
    Write(WriteError),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// What an error of the system means for a path.
fn path_failure(path: &str, error: &io::Error) -> Failure {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => {
            Failure::Path(format!("{path}: {error}"))
        }
        Some(Errno::WOULDBLOCK) => {
            let message = format!("{path}: another process or output is writing to this file");
            Failure::Write(WriteError::Retry(message))
        }
        Some(Errno::NOENT) => Failure::Write(WriteError::Blocked(format!(
            "{path}: the directory does not exist"
        ))),
        _ => Failure::Write(failure(path, error)),
    }
}

impl Files {
    /// No open files yet.
    pub fn new(
        storage: Box<dyn Storage>,
        settings: Settings,
        header: Box<[u8]>,
        notes: Notes,
        written: Arc<WrittenFiles>,
    ) -> Self {
        Self {
            storage,
            settings,
            header,
            notes,
            open: HashMap::new(),
            uses: 0,
            written,
            warnings: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Mends files that an earlier run had open when it was killed.
    pub fn mend_noted(&mut self) {
        let mended = self.notes.mend();
        self.warnings.extend(mended.warnings);
        if mended.bytes_cut > 0 {
            self.count("torn_bytes_cut", mended.bytes_cut);
        }
    }

    /// What a user should hear.
    pub fn warn(&mut self, text: String) {
        self.warnings.push(text.into());
    }

    /// Appends a piece to a file: all of it or nothing.
    pub fn append(&mut self, path: &Arc<str>, bytes: &[u8]) -> Result<(), Failure> {
        self.let_go_if_gone(path)?;
        loop {
            if !self.open.contains_key(path) {
                self.make_room()?;
                let file = self.open(path)?;
                self.open.insert(path.clone(), file);
            }
            if !self.rotate_if_due(path, bytes.len())? {
                break;
            }
        }
        self.uses += 1;
        let Some(file) = self.open.get_mut(path) else {
            return Ok(());
        };
        file.used = self.uses;
        if std::mem::take(&mut file.lacks_header) {
            let written = file.append(&self.header);
            file.lacks_header = written.is_err();
            written?;
        }
        Ok(file.append(bytes)?)
    }

    /// Writes out everything taken so far.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.open
            .values_mut()
            .try_for_each(|file| file.flush(self.settings.sync))
    }

    /// Writes out everything taken so far, makes it durable and closes all files.
    pub fn close(&mut self) -> Result<(), WriteError> {
        self.open
            .values_mut()
            .try_for_each(|file| file.flush(true))?;
        self.open.clear();
        self.notes.end();
        Ok(())
    }

    fn open(&mut self, path: &Arc<str>) -> Result<OpenFile, Failure> {
        let failed = |error: io::Error| path_failure(path, &error);
        self.mend_noted();
        let is_kept = !is_device(Path::new(&**path));
        let noted = match is_kept {
            true => self.notes.opening(path),
            false => Ok(()),
        };
        let mut stored = self.open_stored(path)?;
        let metadata = stored.file().metadata().map_err(failed)?;
        self.written.note(&metadata);
        if metadata.is_file() && metadata.len() > 0 && !self.mend(path, &mut *stored)? {
            drop(stored);
            stored = self.open_stored(path)?;
        }
        let metadata = stored.file().metadata().map_err(failed)?;
        self.written.note(&metadata);
        let noted = noted.and_then(|()| match is_kept {
            true => self.notes.opened(path, &metadata),
            false => Ok(()),
        });
        if let Err(error) = noted {
            self.warnings.push(self.notes.failed(path, &error));
        }
        let time = match metadata.modified() {
            Ok(time) if metadata.len() > 0 => seconds(time),
            _ => self.storage.now(),
        };
        if self.settings.sync && metadata.len() == 0 && metadata.is_file() {
            self.with_descriptors(path, |_| sync_directory(Path::new(&**path)))?;
        }
        let interval = self.settings.rotation.interval_of(time);
        let compression = self.settings.compression;
        let is_new = holds_nothing(stored.file(), compression).map_err(failed)?;
        let mut file =
            OpenFile::new(stored, Path::new(&**path), compression, interval).map_err(failed)?;
        file.lacks_header = is_new && !self.header.is_empty();
        Ok(file)
    }

    fn open_stored(&mut self, path: &Arc<str>) -> Result<Box<dyn Stored>, Failure> {
        self.with_descriptors(path, |files| {
            files
                .storage
                .open(Path::new(&**path), files.settings.options)
        })
    }

    /// Makes a call that needs a descriptor. Where the system has none left, trying later would not help as long as this
    /// output itself holds them, so that files are closed until the call gets one or none is left to close.
    fn with_descriptors<T>(
        &mut self,
        path: &str,
        call: impl Fn(&Self) -> io::Result<T>,
    ) -> Result<T, Failure> {
        loop {
            match call(self) {
                Err(error) if is_out_of_descriptors(&error) && self.close_oldest()? => {}
                other => return other.map_err(|error| path_failure(path, &error)),
            }
        }
    }

    /// Cuts a torn end or ends the last line. False when the file was put aside because it is damaged.
    fn mend(&mut self, path: &Arc<str>, stored: &mut dyn Stored) -> Result<bool, Failure> {
        let failed = |error: io::Error| path_failure(path, &error);
        let file = stored.file();
        let found =
            examine(file, self.settings.compression, self.settings.lines).map_err(failed)?;
        match found {
            ExistingFile::Whole => Ok(true),
            ExistingFile::Torn { keep } => {
                let cut = file.metadata().map_err(failed)?.len() - keep;
                file.set_len(keep).map_err(failed)?;
                self.count("torn_bytes_cut", cut);
                self.warn(format!(
                    "{path}: removed an incomplete write of {} at the end, left by an interrupted run",
 plural(cut, "byte")
                ));
                Ok(true)
            }
            ExistingFile::Unended { keep } => {
                file.set_len(keep).map_err(failed)?;
                write_rest(stored, b"\n", &mut 0).map_err(failed)?;
                self.warn(format!(
                    "{path}: the last line had no newline; it has been kept, and a newline added"
                ));
                Ok(true)
            }
            ExistingFile::Damaged { at } => {
                let now = self.storage.now();
                let aside =
                    self.with_descriptors(path, |_| rotate::put_aside(Path::new(&**path), now))?;
                self.count("damaged_files", 1);
                self.warn(format!(
                    "{path}: the data is damaged from byte {at} on; the file has been renamed to {}, and a new one started",
                    aside.display()
                ));
                Ok(false)
            }
            ExistingFile::Foreign => Err(Failure::Path(format!(
                "{path}: the file contains data in a different format; move it away or choose another path"
            ))),
        }
    }

    fn let_go_if_gone(&mut self, path: &Arc<str>) -> Result<(), WriteError> {
        let Some(file) = self.open.get_mut(path) else {
            return Ok(());
        };
        if file.is_gone_from(Path::new(&**path)) {
            file.flush(true)?;
            self.forget(path);
        }
        Ok(())
    }

    /// Whether the file was put aside, so that it has to be opened again.
    fn rotate_if_due(&mut self, path: &Arc<str>, bytes: usize) -> Result<bool, Failure> {
        let failed = |error: io::Error| path_failure(path, &error);
        let rotation = self.settings.rotation;
        let now = self.storage.now();
        let Some(file) = self.open.get_mut(path).filter(|file| file.is_regular) else {
            return Ok(false);
        };
        let is_full = match rotation.size {
            Some(size) => file.is_full(size, bytes).map_err(failed)?,
            None => false,
        };
        let is_old = file.interval != rotation.interval_of(now);
        if !is_full && !is_old {
            return Ok(false);
        }
        file.flush(true)?;
        let is_empty = file.len().map_err(failed)? == 0;
        if is_empty {
            file.interval = rotation.interval_of(now);
            return Ok(false);
        }
        self.with_descriptors(path, |_| rotate::put_aside(Path::new(&**path), now))?;
        self.forget(path);
        self.count("files_rotated", 1);
        if let Some(keep) = rotation.keep {
            // Old files that cannot be removed are no reason to stop writing.
            match rotate::prune(Path::new(&**path), keep) {
                Ok(removed) => self.count("files_removed", removed as u64),
                Err(error) => self.warn(format!(
                    "{path}: old rotated files cannot be removed: {error}"
                )),
            }
        }
        Ok(true)
    }

    /// Closes files until a further one may be open.
    fn make_room(&mut self) -> Result<(), WriteError> {
        while self.open.len() >= self.settings.open_max && self.close_oldest()? {}
        Ok(())
    }

    /// Makes the file that was not used for longest durable and closes it. False when none is open.
    fn close_oldest(&mut self) -> Result<bool, WriteError> {
        let oldest = self.open.iter_mut().min_by_key(|(_, file)| file.used);
        let Some((path, file)) = oldest else {
            return Ok(false);
        };
        file.flush(true)?;
        let path = path.clone();
        self.forget(&path);
        Ok(true)
    }

    /// Closes a file that is whole.
    fn forget(&mut self, path: &Arc<str>) {
        self.open.remove(path);
        self.notes.closed(path);
    }

    fn count(&mut self, name: &'static str, by: u64) {
        match self.counters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += by,
            None => self.counters.push((name, by)),
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Makes a new file's name durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}
