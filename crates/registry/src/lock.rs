//! The lock on a data directory: `flock` on the file `lock`, which holds the process id for people and messages.
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

use crate::error::{self, RegistryError};

const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(5);

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

fn path(directory: &Path) -> PathBuf {
    directory.join("lock")
}

impl Lock {
    /// Takes the lock or says who has it.
    pub fn take(directory: &Path) -> Result<Self, RegistryError> {
        let path = path(directory);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.open(&path).map_err(error::io("open", &path))?;
        for attempt in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if attempt < ATTEMPTS => thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    return Err(RegistryError::InUse {
                        directory: directory.to_owned(),
                        holder: process_id(&file)
                            .map_or("another process".into(), |pid| format!("process {pid}")),
                        lock: path,
                    });
                }
                Err(Errno::INTR) => {}
                Err(other) => return Err(error::io("lock", &path)(other.into())),
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
pub(crate) fn holder(directory: &Path) -> Option<u32> {
    let file = File::open(path(directory)).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(process_id(&file).unwrap_or(0)),
        _ => None,
    }
}
