//! Writes to the registry what is known of files.
//!
//! A new file is written, durably, before it is read. Positions follow four times a second and at the end; until then a crash
//! brings back the older ones, and events are sent again under the same ids.

use std::sync::Arc;
use std::time::Instant;

use registry::{Change, Registry, RegistryError};

use super::record;
use super::state::{File, UNKNOWN_PLACE};
use super::tracker::Tracker;

/// Changes that are committed at once: far below what a commit may hold, checkpoints included.
const COMMIT_CHANGES: usize = 1000;

/// Commits changes that need not be applied together.
fn commit_in_parts(
    registry: &Registry,
    changes: &[Change],
    durable: bool,
) -> Result<(), RegistryError> {
    for part in changes.chunks(COMMIT_CHANGES) {
        registry.commit(part, false)?;
    }
    if durable {
        registry.commit(&[], true)?;
    }
    Ok(())
}

impl Tracker {
    /// Makes the ids of new files durable; whether that worked.
    pub(super) fn save_new(&mut self) -> bool {
        let Some(registry) = self.ctx.registry.clone() else {
            return true;
        };
        let scope = self.known.scope().clone();
        let put = |file: &Arc<File>| {
            Change::Put(
                record::file_key(file.id),
                record::encode(&scope, &file.lock()),
            )
        };
        let changes: Vec<Change> = self.unsaved.iter().map(put).collect();
        let outcome = registry.commit(&changes, true);
        self.note_outcome(outcome)
    }

    /// Writes the files that changed; `durable` at the end. Whether everything is remembered.
    pub(crate) fn save(&mut self, durable: bool) -> bool {
        self.saved = Instant::now();
        let files = self.dirty.take();
        let Some(registry) = self.ctx.registry.clone() else {
            for file in files {
                file.lock().is_dirty = false;
            }
            return true;
        };
        if files.is_empty() && !durable {
            return true;
        }
        let scope = self.known.scope().clone();
        let mut changes = Vec::with_capacity(files.len());
        for file in &files {
            let mut state = file.lock();
            state.is_dirty = false;
            changes.push(Change::Put(
                record::file_key(file.id),
                record::encode(&scope, &state),
            ));
            // What is noted of it before it is sent is not needed once it is acknowledged, and nobody sends more.
            if !self.pool.has(file.id)
                && state
                    .given_noted
                    .is_some_and(|noted| noted <= state.position.offset)
            {
                state.given_noted = None;
                changes.push(Change::Delete(record::given_key(file.id)));
            }
            let needed = state
                .checkpoints
                .front()
                .filter(|kept| kept.place <= state.position.offset);
            let key = record::checkpoint_key(file.id);
            let place = needed.map(|kept| kept.place);
            if state.saved_checkpoint != place {
                changes.push(match needed {
                    Some(kept) => Change::Put(key, kept.encode()),
                    None => Change::Delete(key),
                });
                state.saved_checkpoint = place;
            }
        }
        let outcome = commit_in_parts(&registry, &changes, durable);
        if !self.note_outcome(outcome) {
            for file in &files {
                file.lock().saved_checkpoint = Some(UNKNOWN_PLACE);
            }
            self.dirty.put_back(files);
            return false;
        }
        // Small changes may find room where the ids of new files do not.
        if self.unsaved.is_empty() && std::mem::replace(&mut self.save_fails, false) {
            self.ctx.diagnostics.info("positions can be saved again");
        }
        true
    }

    /// Notes that the files that are there at first were looked at.
    pub(super) fn save_look(&mut self) {
        if let Some(registry) = self.ctx.registry.clone() {
            let scope = self.known.scope().clone();
            let change = Change::Put(record::looked_key(&scope), scope.as_bytes().to_vec());
            let outcome = registry.commit(&[change], true);
            self.note_outcome(outcome);
        }
    }

    /// Takes entries out of the registry.
    pub(super) fn remove(&mut self, changes: &[Change]) {
        if let Some(registry) = self.ctx.registry.clone()
            && !changes.is_empty()
        {
            let outcome = commit_in_parts(&registry, changes, false);
            self.note_outcome(outcome);
        }
    }

    /// Says when the registry cannot be written to.
    fn note_outcome(&mut self, outcome: Result<(), RegistryError>) -> bool {
        match outcome {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut self.save_fails, true) {
                    self.ctx.diagnostics.warn(&format!(
                        "positions cannot be saved; new files are not read until they can be: {error}"
                    ));
                }
                false
            }
        }
    }
}
