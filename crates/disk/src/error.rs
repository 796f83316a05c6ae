//! Why a directory cannot be used.

use std::io;
use std::path::PathBuf;

use crate::lock::LockError;

/// Why a directory cannot be used. Those who use it say it in their own words.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Something else has its name.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// It cannot be opened or created.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
}
