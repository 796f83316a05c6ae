//! What is found, and how.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::paths::meta::Meta;

/// A file that a pattern stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundFile {
    /// Absolute: as it is written, or below the real path of its folder where a relative path is written.
    pub(crate) path: Arc<Path>,
    /// As it was during the scan; of the target, if the path is a link.
    pub(crate) meta: Meta,
}

impl FoundFile {
    /// Opens it, if it is still there.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] where another file is at its path by now: the next scan finds it.
    pub(crate) fn open(&self) -> io::Result<File> {
        let opened = File::open(&self.path)?;
        let meta = Meta::of_fd(&opened)?;
        if (meta.device, meta.inode) == (self.meta.device, self.meta.inode) {
            Ok(opened)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// How changes are learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// From the kernel; by polling on file systems of which it does not tell everything.
    Auto,
    /// From the kernel on every file system.
    Inotify,
    /// By polling.
    Poll,
}
