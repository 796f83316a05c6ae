//! Reading a registry that may belong to a running instance, which is not disturbed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use disk::lock::holder;
use disk::{FolderError, FolderStorage};

use crate::error::RegistryError;
use crate::folder::Folder;
use crate::{Key, recover};

/// What was found besides the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The process that holds the data directory, if any does; 0 when it left no number.
    pub is_locked_by: Option<u32>,
    /// What could not be read, in sentences for a person.
    pub problems: Vec<String>,
}

/// Gives every entry, without the lock. An instance may be writing meanwhile: a torn frame at the end is ignored, and a
/// compaction leaves the log that is being read as it is. Nothing in the directory is changed.
///
/// # Errors
/// There is no registry; it has a newer version; the system refuses.
pub fn read(directory: &Path, each: &mut dyn FnMut(Key, &[u8])) -> Result<Reading, RegistryError> {
    let missing = || RegistryError::Missing {
        directory: directory.to_owned(),
    };
    let storage = FolderStorage::read_only(directory).map_err(|failure| match failure {
        FolderError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => missing(),
        other => other.into(),
    })?;
    let folder = Folder::new(directory, Arc::new(storage));
    let file = folder.open_log()?.ok_or_else(missing)?;
    let path = folder.log();
    let loaded = recover::load(&*file, &path)?;
    let mut problems = Vec::new();
    if loaded.damage.is_any() {
        problems.push(loaded.damage.describe(&path));
    }
    for kind in loaded.index.kinds() {
        let entries = loaded.index.in_log_order(kind);
        recover::each_value(&*file, &path, &entries, &mut |id, value| {
            each(Key { kind, id }, value);
        })?;
    }
    Ok(Reading {
        is_locked_by: holder(directory),
        problems,
    })
}
