//! What the queue and the registry ask of a disk.
//!
//! They never touch a file by themselves, so that the same code runs on a simulated disk (`simulation`) that loses unsynced
//! data page by page, tears writes, returns errors and flips bits. The work of the queue's writer consists of three steps, which
//! its simulation also calls during each other's disk operations. It found eight bugs that no other test had found.
//!
//! Names are relative to the storage's folder; `quarantine/x` is the file `x` in its folder `quarantine`.
//!
//! What a crash may do: of writes since a file's last [`StoredFile::sync`] any subset of pages is lost; of names made,
//! renamed or removed since the last [`Storage::sync_folder`] any subset is undone. A sync that failed says nothing about
//! what is on disk, and a later one that succeeds does not say it either.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// The unit in which a disk tears writes, in bytes. Reads and writes whose offset, length and address in memory are
/// multiples of it may go past the page cache.
pub const PAGE: usize = 4096;

/// A folder on a disk.
pub trait Storage: Send + Sync + Debug {
    /// The files of a folder, in any order; `""` is the storage's own. A folder that is not there has none.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>>;

    /// Makes a folder, unless it is there.
    ///
    /// # Errors
    /// The system refused.
    fn make_folder(&self, folder: &str) -> io::Result<()>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system refused.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StoredFile>>;

    /// Makes a file with room for `reserve` bytes, which read as zeros until they are written. Where the room was given,
    /// writing into it does not fail for want of room.
    ///
    /// # Errors
    /// The name is taken, there is no room ([`io::ErrorKind::StorageFull`]; then there is no file), or the system refused.
    fn create(&self, name: &str, reserve: u64) -> io::Result<Arc<dyn StoredFile>>;

    /// Gives a file a second name, which takes no room; what is written under one name is seen under both.
    ///
    /// # Errors
    /// The name is taken, or the file system has no such names.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file another name; what had that name is gone.
    ///
    /// # Errors
    /// The system refused.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The system refused.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once the folder's names are on disk.
    ///
    /// # Errors
    /// They may not be.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Bytes that may still be written to the file system.
    ///
    /// # Errors
    /// The system does not say.
    fn free(&self) -> io::Result<u64>;
}

/// A file of a [`Storage`].
pub trait StoredFile: Send + Sync + Debug {
    /// Its length in bytes, reserved room included.
    ///
    /// # Errors
    /// The system does not say.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As for [`StoredFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads from `offset` on until `buffer` is full or the file ends; how many bytes it was.
    ///
    /// # Errors
    /// The system refused.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes everything. On failure any part of it may be there.
    ///
    /// # Errors
    /// The system refused.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns once the file's bytes and length are on disk.
    ///
    /// # Errors
    /// They may not be, also after a later success.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file to `length` bytes and gives the room behind them back.
    ///
    /// # Errors
    /// The system refused.
    fn cut(&self, length: u64) -> io::Result<()>;
}

/// A file in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name, without the folder's.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
}
