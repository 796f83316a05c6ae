//! What became of every file, live and from the registry.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use component::FileLedger;
use registry::{Reading, RegistryError};

use super::record;
use super::tracker::Tracker;
use crate::reading::emitter::now;

/// What a data directory knows of files.
#[derive(Debug)]
pub struct FileEntries {
    /// One for each file.
    pub files: Vec<FileLedger>,
    /// The registry's own state.
    pub reading: Reading,
}

/// What a data directory knows of files and objects, sorted by path, also while a run is using it.
///
/// # Errors
/// There is no registry, or it cannot be read.
pub fn read_ledger(directory: &Path) -> Result<FileEntries, RegistryError> {
    let mut files = Vec::new();
    let mut checkpoints = HashSet::new();
    let now = now();
    let reading = registry::read(directory, &mut |key, bytes| match key.kind {
        record::FILE | record::OBJECT => {
            if let Some((scope, state)) = record::decode(bytes) {
                files.push((key.id, state.ledger(&scope, key.id, now)));
            }
        }
        record::CHECKPOINT | record::OBJECT_CHECKPOINT => {
            checkpoints.insert(key.id);
        }
        _ => {}
    })?;
    for (id, file) in &mut files {
        file.checkpoints = u64::from(checkpoints.contains(id));
    }
    let mut files: Vec<FileLedger> = files.into_iter().map(|(_, file)| file).collect();
    files.sort_by(|one, other| (&one.path, &one.id).cmp(&(&other.path, &other.id)));
    Ok(FileEntries { files, reading })
}

impl Tracker {
    /// Shows all known files to whoever asks the input for its ledger.
    pub(crate) fn show_ledger(&self) {
        let (awake, scope) = (self.known.shared(), self.known.scope().clone());
        let registry = self.ctx.registry.clone();
        self.ctx.ledger.provide(move || {
            let now = now();
            let mut files = BTreeMap::new();
            if let Some(registry) = &registry {
                let mut add = |id, bytes: &[u8]| {
                    if let Some((of, state)) = record::decode(bytes)
                        && *of == *scope
                    {
                        files.insert(id, state.ledger(&scope, id, now));
                    }
                };
                // Where the registry cannot be read, the files in memory are what there is.
                let _ = registry.for_each(record::FILE, &mut add);
            }
            let awake = awake.lock();
            for (id, file) in &*awake {
                files.insert(*id, file.lock().ledger(&scope, *id, now));
            }
            let mut files: Vec<FileLedger> = files.into_values().collect();
            files.sort_by(|one, other| one.path.cmp(&other.path));
            files
        });
    }
}
