//! The file system as the `file` output sees it. A trait, so that tests can fill the disk and set the clock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::sink::Sink;

/// Opens files and tells the time.
pub trait Storage: Send + Sync {
    /// Opens a file for appending and makes it where it is not there.
    ///
    /// # Errors
    /// What the system says; [`Errno::WOULDBLOCK`] where somebody else holds the file.
    fn open(&self, path: &Path, options: Options) -> io::Result<Box<dyn Stored>>;

    /// Seconds since 1970.
    fn now(&self) -> i64;
}

/// How files are opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Permissions of a new file, before the umask.
    pub mode: u32,
    /// Whether missing directories are made.
    pub create_dirs: bool,
}

/// An open file.
pub trait Stored: Sink {
    /// The file itself, for everything but writing.
    fn file(&self) -> &File;

    /// Makes the content durable.
    fn sync(&self) -> io::Result<()> {
        self.file().sync_all()
    }
}

/// The real file system.
#[derive(Debug)]
pub struct Disk;

impl Storage for Disk {
    fn open(&self, path: &Path, options: Options) -> io::Result<Box<dyn Stored>> {
        Ok(Box::new(open(path, options)?))
    }

    fn now(&self) -> i64 {
        seconds(SystemTime::now())
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_secs() as i64,
        Err(before) => -(before.duration().as_secs() as i64),
    }
}

pub fn open(path: &Path, options: Options) -> io::Result<File> {
    if is_device(path) {
        return OpenOptions::new().write(true).open(path);
    }
    let open = || {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(options.mode)
            .open(path)
    };
    let mut opened = open();
    if options.create_dirs
        && opened
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        opened = open();
    }
    let file = opened?;
    lock(&file)?;
    Ok(file)
}

/// Takes a file for this process. Two writers would cut each other's half-written lines. File systems without locks have to do
/// without.
///
/// # Errors
/// [`Errno::WOULDBLOCK`] where somebody else holds it.
pub fn lock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK.into()),
        _ => Ok(()),
    }
}

/// Whether something is there that takes bytes but keeps none, such as `/dev/null` or a named pipe.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
    })
}

impl Sink for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, bytes)?)
    }

    fn wait(&mut self) -> io::Result<()> {
        crate::sink::wait_writable(self.as_fd())
    }
}

impl Stored for File {
    fn file(&self) -> &File {
        self
    }
}

#[cfg(test)]
pub mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

    use super::*;

    /// A file system with a clock of its own, on which writes fail as told.
    #[derive(Clone, Default)]
    pub struct Faulty {
        pub clock: Arc<AtomicI64>,
        /// Room for each of the next writes; a write for which it does not suffice is cut, one after that finds the disk
        /// full. Once the list has ended there is always room.
        pub room: Arc<Mutex<Vec<usize>>>,
        pub opened: Arc<Mutex<Vec<String>>>,
        pub sync_fails: Arc<Mutex<bool>>,
        /// Whether every write is refused.
        pub read_only: Arc<AtomicBool>,
        /// How often a file was made durable.
        pub syncs: Arc<AtomicUsize>,
        /// How many files are open.
        pub held: Arc<AtomicUsize>,
        /// How many files may be open; any number where this is 0.
        pub descriptors: Arc<AtomicUsize>,
    }

    struct FaultyFile {
        file: File,
        storage: Faulty,
    }

    impl Storage for Faulty {
        fn open(&self, path: &Path, options: Options) -> io::Result<Box<dyn Stored>> {
            let descriptors = self.descriptors.load(Ordering::SeqCst);
            if descriptors > 0 && self.held.load(Ordering::SeqCst) >= descriptors {
                return Err(Errno::MFILE.into());
            }
            self.opened
                .lock()
                .push(path.file_name().unwrap().to_string_lossy().into_owned());
            let file = open(path, options)?;
            self.held.fetch_add(1, Ordering::SeqCst);
            let storage = self.clone();
            Ok(Box::new(FaultyFile { file, storage }))
        }

        fn now(&self) -> i64 {
            self.clock.load(Ordering::SeqCst)
        }
    }

    impl Drop for FaultyFile {
        fn drop(&mut self) {
            self.storage.held.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Sink for FaultyFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.storage.read_only.load(Ordering::SeqCst) {
                return Err(Errno::ROFS.into());
            }
            let mut room = self.storage.room.lock();
            let Some(left) = room.last_mut() else {
                return Sink::write(&mut self.file, bytes);
            };
            let len = bytes.len().min(*left);
            if len == 0 {
                room.pop();
                return Err(Errno::NOSPC.into());
            }
            *left -= len;
            Sink::write(&mut self.file, &bytes[..len])
        }

        fn wait(&mut self) -> io::Result<()> {
            self.file.wait()
        }
    }

    impl Stored for FaultyFile {
        fn file(&self) -> &File {
            &self.file
        }

        fn sync(&self) -> io::Result<()> {
            self.storage.syncs.fetch_add(1, Ordering::SeqCst);
            if *self.storage.sync_fails.lock() {
                Err(Errno::IO.into())
            } else {
                self.file.sync_all()
            }
        }
    }
}
