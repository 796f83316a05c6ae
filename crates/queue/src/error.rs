//! Why a disk queue cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use disk::FolderError;
use disk::lock::LockError;

/// Why a disk queue cannot be used. Damage is never a reason: it is set aside, said and counted.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Another process has the folder.
    #[error("{} is in use by {holder} (lock file {})", .folder.display(), .lock.display())]
    InUse {
        /// The queue's folder.
        folder: PathBuf,
        /// Who has it.
        holder: String,
        /// The lock file.
        lock: PathBuf,
    },
    /// A later version of Millpond wrote there; nothing was touched.
    #[error(
        "{} was written by a later version of Millpond (format {version}; this version reads up to {known}); nothing was changed", .file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        version: u32,
        /// The latest version that this program knows.
        known: u32,
    },
    /// The system refuses the thread that writes.
    #[error("the system cannot create another thread")]
    Thread(#[source] io::Error),
    /// The system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl QueueError {
    /// Names files with their folder, which a storage does not know.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        if let Self::Newer { file: path, .. } | Self::Io { path, .. } = &mut self {
            *path = folder.join(&*path);
        }
        self
    }

    /// An error of the system while doing something with a file.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl From<FolderError> for QueueError {
    fn from(failure: FolderError) -> Self {
        let (action, path, source) = match failure {
            FolderError::NotADirectory(path) => ("open", path, io::ErrorKind::NotADirectory.into()),
            FolderError::Io {
                action,
                path,
                source,
            } => (action, path, source),
            FolderError::Lock(LockError::InUse { holder, path }) => {
                return Self::InUse {
                    folder: path.parent().unwrap_or(&path).to_owned(),
                    holder,
                    lock: path,
                };
            }
            FolderError::Lock(LockError::Io {
                doing,
                path,
                source,
            }) => (doing, path, source),
        };
        Self::Io {
            action,
            path,
            source,
        }
    }
}
