//! A folder of the file system as [`Storage`].
//!
//! Accesses whose offset, length and address in memory are multiples of [`PAGE`] go past the page cache where the file
//! system takes that, through a second descriptor with `O_DIRECT`; all others, and those that it refuses, go through the
//! page cache. The kernel keeps the two coherent. Past the cache, into preallocated segments, an append costs 30 ns of CPU per
//! event of 240 bytes, syncs included, compared with 40 to 640 ns through the cache; and a backlog that is written once and read
//! once does not drive out what others have in it.
//!
//! Invariants: one process has the folder, by the lock on the file `lock`, which is not listed; nothing outside of the
//! folder is touched, whatever a name says. Folders are made with mode 0700, files with 0600.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, OFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::lock::Lock;
use crate::storage::{Listed, PAGE, Storage, StoredFile};
use crate::{FolderError, folders};

const LOCK: &str = "lock";

/// A folder that belongs to this process, or one that is only read.
#[derive(Debug)]
pub struct FolderStorage {
    root: PathBuf,
    /// `None`: nothing is written.
    lock: Option<Lock>,
}

impl FolderStorage {
    /// Takes a folder, which is made if it is not there.
    ///
    /// # Errors
    /// Another process has it, something else has its name, or the system refused.
    pub fn open(folder: &Path) -> Result<Self, FolderError> {
        match fs::metadata(folder) {
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => {
                folders::make(folder).map_err(failed("create", folder))?;
            }
            found => require_folder(folder, found)?,
        }
        Ok(Self {
            root: folder.to_owned(),
            lock: Some(Lock::take(folder)?),
        })
    }

    /// What a person should know of how the folder was taken.
    pub fn warning(&self) -> Option<String> {
        self.lock.as_ref()?.warning()
    }

    /// Reads a folder, also one that another process has. What would change it fails with
    /// [`io::ErrorKind::PermissionDenied`].
    ///
    /// # Errors
    /// It is not there, is no folder, or the system refused.
    pub fn read_only(folder: &Path) -> Result<Self, FolderError> {
        require_folder(folder, fs::metadata(folder))?;
        Ok(Self {
            root: folder.to_owned(),
            lock: None,
        })
    }

    /// Refuses what would change a folder that is only read.
    fn may_change(&self) -> io::Result<()> {
        may_change(self.lock.is_some())
    }

    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        match name {
            "" => Ok(self.root.clone()),
            name => self.path(name),
        }
    }

    /// Where a name lies: in the folder or in one below it.
    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if name.split('/').count() <= 2 && name.split('/').all(plain) && name != LOCK {
            return Ok(self.root.join(name));
        }
        let refused = format!("'{name}' is not a valid file name");
        Err(io::Error::new(io::ErrorKind::InvalidInput, refused))
    }

    fn stored(&self, file: File, path: &Path) -> Arc<dyn StoredFile> {
        let writable = self.lock.is_some();
        let mut options = OpenOptions::new();
        options.read(true).write(writable);
        let direct = options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        // A file system without direct I/O says so here or at the first use. Where another process may be at work, another file can have come to
        // the name since the first was opened.
        let direct = direct.open(path).ok();
        let direct = direct.filter(|direct| is_same_file(&file, direct));
        Arc::new(FolderFile {
            file,
            is_direct: AtomicBool::new(direct.is_some()),
            direct,
            writable,
        })
    }
}

fn is_same_file(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

fn may_change(writable: bool) -> io::Result<()> {
    if writable {
        return Ok(());
    }
    let refused = "the directory is open for reading only";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, refused))
}

fn require_folder(path: &Path, found: io::Result<fs::Metadata>) -> Result<(), FolderError> {
    match found.map_err(failed("open", path))?.is_dir() {
        true => Ok(()),
        false => Err(FolderError::NotADirectory(path.to_owned())),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

impl Storage for FolderStorage {
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>> {
        let entries = match fs::read_dir(self.folder(folder)?) {
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                // Gone in between: another process may be at work while this one only reads.
                Err(failure) if failure.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            // A name that is not UTF-8 is of somebody else.
            if let Ok(name) = entry.file_name().into_string()
                && metadata.is_file()
                && !(folder.is_empty() && name == LOCK)
            {
                let length = metadata.len();
                found.push(Listed { name, length });
            }
        }
        Ok(found)
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        self.may_change()?;
        folders::make(&self.folder(folder)?)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StoredFile>> {
        let path = self.path(name)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(self.lock.is_some()).open(&path)?;
        Ok(self.stored(file, &path))
    }

    fn create(&self, name: &str, reserve: u64) -> io::Result<Arc<dyn StoredFile>> {
        self.may_change()?;
        let path = self.path(name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        if let Err(failure) = make_room(&file, reserve) {
            let _ = fs::remove_file(&path);
            return Err(failure);
        }
        Ok(self.stored(file, &path))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.may_change()?;
        fs::hard_link(self.path(from)?, self.path(to)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.may_change()?;
        fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.may_change()?;
        match fs::remove_file(self.path(name)?) {
            Err(failure) if failure.kind() != io::ErrorKind::NotFound => Err(failure),
            _ => Ok(()),
        }
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.may_change()?;
        folders::sync(&self.folder(folder)?)
    }

    fn free(&self) -> io::Result<u64> {
        let found = statvfs(&self.root)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Gives a new file room for so many bytes, or at least that length where the file system cannot set room aside.
fn make_room(file: &File, reserve: u64) -> io::Result<()> {
    if reserve == 0 {
        return Ok(());
    }
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, reserve) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return file.set_len(reserve),
            Err(Errno::DQUOT) => return Err(io::ErrorKind::StorageFull.into()),
            done => return Ok(done?),
        }
    }
}

/// An open file.
#[derive(Debug)]
struct FolderFile {
    /// Through the page cache.
    file: File,
    /// Past it.
    direct: Option<File>,
    /// Whether `direct` is of use; the first refusal ends that.
    is_direct: AtomicBool,
    writable: bool,
}

impl FolderFile {
    /// One access by the descriptor that suits it.
    fn access(
        &self,
        (address, length, offset): (usize, usize, u64),
        mut act: impl FnMut(&File) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let page = PAGE as u64;
        let is_aligned =
            address % PAGE == 0 && length % PAGE == 0 && offset.is_multiple_of(page) && length > 0;
        if is_aligned
            && self.is_direct.load(Ordering::Relaxed)
            && let Some(direct) = &self.direct
        {
            match act(direct) {
                Err(failure) if is_refusal(&failure) => {
                    self.is_direct.store(false, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        act(&self.file)
    }
}

/// Whether the file system does not take direct I/O, or not with these addresses.
fn is_refusal(failure: &io::Error) -> bool {
    let number = Errno::from_io_error(failure);
    matches!(number, Some(Errno::INVAL | Errno::OPNOTSUPP))
}

fn is_interrupted(done: &io::Result<usize>) -> bool {
    matches!(done, Err(failure) if failure.kind() == io::ErrorKind::Interrupted)
}

impl StoredFile for FolderFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            // Past the cache a read ends where the file does; what is left then goes through the cache and finds nothing.
            let rest = &mut buffer[filled..];
            let at = offset + filled as u64;
            let place = (rest.as_ptr().addr(), rest.len(), at);
            let read = self.access(place, |file| file.read_at(rest, at));
            if is_interrupted(&read) {
                continue;
            }
            match read? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        may_change(self.writable)?;
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let at = offset + written as u64;
            let place = (rest.as_ptr().addr(), rest.len(), at);
            let done = self.access(place, |file| file.write_at(rest, at));
            if is_interrupted(&done) {
                continue;
            }
            match done? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => written += count,
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        may_change(self.writable)?;
        self.file.set_len(length)
    }
}

#[cfg(test)]
mod tests;
