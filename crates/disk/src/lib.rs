//! Data that survives a crash: what the queue and the registry ask of a disk, a directory as such a disk, and one that fails.
//!
//! | module | contents |
//! | --- | --- |
//! | [`Storage`], [`StoredFile`] | what is asked of a disk, and what a crash may do to it |
//! | [`FolderStorage`] | a directory of the file system, locked, past the page cache where accesses are aligned |
//! | [`lock`], [`folders`] | the lock of a directory; directories that are made durably |
//! | [`regular`] | opening files that others have named, without waiting for a pipe |
//! | [`Window`], [`PagePool`] | reading a file through page-aligned buffers, and finding where a record begins again behind damage |
//! | `simulation` | for tests (feature `simulation`): a disk that loses unsynced data and fails at any operation, by a seed |
//!
//! The `file` output does not use [`Storage`]: it appends to files at any path, which may be pipes and devices, through
//! descriptors that do not block.

mod error;
mod folder;
pub mod folders;
pub mod lock;
mod pages;
pub mod regular;
#[cfg(feature = "simulation")]
pub mod simulation;
mod storage;
mod window;

pub use error::FolderError;
pub use folder::FolderStorage;
pub use pages::{PageBuffer, PagePool};
pub use storage::{Listed, PAGE, Storage, StoredFile};
pub use window::{Window, is_zero};
