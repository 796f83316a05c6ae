//! The lock on a directory of data, a registry's or a queue's: `flock` on the file `lock`, which holds the process id for people and messages.
//!
//! The kernel gives the lock back when the process ends, however it ends; what the file says afterwards is no obstacle.
//! Asking who holds a lock takes a shared lock for an instant, so whoever wants the lock tries for a while.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// The lock, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another instance has it.
    InUse {
        /// Who: `process 12`, or `another process` when the lock file names none.
        holder: String,
        /// The lock file.
        path: PathBuf,
    },
    /// The system refused.
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
        Ok(Self { _file: file })
    }
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
