//! What can go wrong with a data directory, in sentences for a person.

use std::io;
use std::path::{Path, PathBuf};

use disk::FolderError;
use disk::lock::LockError;

/// Why a registry could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Another instance holds the data directory.
    #[error(
        "the data directory {} is in use by {holder} (PID file {}): two instances cannot share it",
        directory.display(), lock.display()
    )]
    InUse {
        /// The data directory.
        directory: PathBuf,
        /// The lock file.
        lock: PathBuf,
        /// Who holds it: `process 12`, or `another process` when the lock file names none.
        holder: String,
    },
    /// The log was written by a newer release. It is left as it is.
    #[error(
        "the registry {} has version {found}, and this release reads up to version {known}: use the release that wrote it, \
         or another data directory",
        path.display()
    )]
    NewerVersion {
        /// The log.
        path: PathBuf,
        /// Its version.
        found: u16,
        /// The newest version that can be read.
        known: u16,
    },
    /// The data directory is something else.
    #[error("the data directory {} is not a directory", path.display())]
    NotADirectory {
        /// The data directory.
        path: PathBuf,
    },
    /// There is no registry to read.
    #[error("there is no registry in the data directory {}", directory.display())]
    Missing {
        /// The data directory.
        directory: PathBuf,
    },
    /// A commit exceeds a limit. Nothing of it was written.
    #[error("{what} of {size} bytes is too large for the registry, which takes up to {max} bytes")]
    TooLarge {
        /// `a value` or `a commit`.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// What was read well before can no longer be read. A restart recovers what is left.
    #[error("the registry {} is damaged: some of its values can no longer be read", path.display())]
    Damaged {
        /// The log.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<FolderError> for RegistryError {
    fn from(failure: FolderError) -> Self {
        let (doing, path, source) = match failure {
            FolderError::NotADirectory(path) => return Self::NotADirectory { path },
            FolderError::Io {
                action: "create",
                path,
                source,
            } => ("create the data directory", path, source),
            FolderError::Io { path, source, .. } => ("use the data directory", path, source),
            FolderError::Lock(LockError::InUse { holder, path }) => {
                return Self::InUse {
                    directory: path.parent().unwrap_or(&path).to_owned(),
                    lock: path,
                    holder,
                };
            }
            FolderError::Lock(LockError::Io {
                doing,
                path,
                source,
            }) => (doing, path, source),
        };
        Self::Io {
            doing,
            path,
            source,
        }
    }
}

/// Makes an I/O error say what was done to which path.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RegistryError {
    move |source| RegistryError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}
