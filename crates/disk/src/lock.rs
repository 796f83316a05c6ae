//! The lock on a directory of data, a registry's or a queue's: `flock` on the file `lock`, which holds the process id for people and messages.
//!
//! The kernel gives the lock back when the process ends, however it ends; what the file says afterwards is no obstacle.
//! A folder in the file's place is set aside, so that it stops nobody. Asking who holds a lock takes a shared lock for an instant, so whoever wants the lock tries for a while.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// So many folders are set aside at most.
const ASIDE_MAX: u32 = 100;

/// The lock, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    aside: Option<PathBuf>,
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another instance has it.
    #[error("{} is locked by {holder}", .path.display())]
    InUse {
        /// Who: `process 12`, or `another process` when the lock file names none.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn path(directory: &Path) -> PathBuf {
    directory.join("lock")
}

impl Lock {
    /// Takes the lock or says who has it.
    ///
    /// # Errors
    /// Another instance has it, or the system refused.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let path = path(directory);
        let failed = |doing: &'static str, source: io::Error| LockError::Io {
            doing,
            path: path.clone(),
            source,
        };
        let aside =
            set_folder_aside(&path).map_err(|source| failed("rename the directory", source))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options
            .open(&path)
            .map_err(|source| failed("open", source))?;
        for attempt in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if attempt < ATTEMPTS => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let holder = process_id(&file);
                    let holder = holder.map(|pid| format!("process {pid}"));
                    let holder = holder.unwrap_or_else(|| "another process".into());
                    return Err(LockError::InUse { holder, path });
                }
                Err(Errno::INTR) => {}
                Err(other) => return Err(failed("lock", other.into())),
            }
        }
        // The number is for messages only: a full disk, which may refuse it, is no reason not to start.
        let _ = write_process_id(&file);
        Ok(Self { _file: file, aside })
    }

    /// A warning, where a folder had the lock file's name and was set aside.
    pub fn warning(&self) -> Option<String> {
        let aside = self.aside.as_ref()?;
        Some(format!(
            "a directory had the name of the lock file; it has been renamed to {}",
            aside.display()
        ))
    }
}

/// Gives the folder at that path another name, if there is one; which name it is.
fn set_folder_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    // A link is left to whoever made it.
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(None);
    }
    for number in 1..=ASIDE_MAX {
        let aside = path.with_extension(number.to_string());
        match fs::create_dir(&aside) {
            Err(failure) if failure.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        // Only a folder takes the place of an empty folder: had another process been faster, this would fail rather than
        // move its lock.
        return match fs::rename(path, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(failure) => {
                // It is empty, and was made here.
                let _ = fs::remove_dir(&aside);
                match fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
                    true => Err(failure),
                    false => Ok(None),
                }
            }
        };
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn write_process_id(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
}

fn process_id(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The process that holds the lock, if any does; 0 when it left no number.
pub fn holder(directory: &Path) -> Option<u32> {
    let file = File::open(path(directory)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(process_id(&file).unwrap_or(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_the_place_of_the_file_is_set_aside() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 1..3 {
            let inside = path(folder.path()).join("something");
            fs::create_dir_all(&inside).expect("made");
            assert_eq!(holder(folder.path()), None);
            let lock = Lock::take(folder.path()).expect("nobody has it");
            let aside = folder.path().join(format!("lock.{number}"));
            assert!(aside.join("something").is_dir());
            let warning = lock.warning().expect("it is said");
            assert!(warning.contains(&aside.display().to_string()), "{warning}");
            assert!(matches!(
                Lock::take(folder.path()),
                Err(LockError::InUse { .. })
            ));
            drop(lock);
            let again = Lock::take(folder.path()).expect("nobody has it");
            assert_eq!(again.warning(), None);
            fs::remove_file(path(folder.path())).expect("removed");
        }
    }
}
