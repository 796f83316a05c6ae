//! What the threads of an input share, and the one that saves positions and deletes objects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use component::{FileLedger, FileStatus, InputContext, Limit};
use parking_lot::Mutex;
use registry::{Change, RegistryError};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::known::{KnownObjects, checkpoint_key, object_key};
use super::listed::{Listed, StoreError};
use super::pool::{ObjectPool, WaitingObject};
use super::reader::{ObjectEnd, ObjectReader};
use super::store::SourceStore;
use crate::file::acknowledge::Dirty;
use crate::file::record::{self, OBJECT};
use crate::file::state::{File, UNKNOWN_PLACE};
use crate::reading::emitter::{ago, now};

/// How often positions are saved.
const SAVE_INTERVAL: Duration = Duration::from_millis(250);

/// How many requests delete objects at the same time.
const DELETIONS_MAX: usize = 16;

/// Changes that are committed at once.
const COMMIT_CHANGES: usize = 1000;

/// How many problems of an input that ends are told.
const PROBLEMS_MAX: usize = 100;

/// How often an object is tried again before an input that does not follow gives up.
const ATTEMPTS_MAX: u32 = 4;

/// What the threads share.
pub(super) struct Shared {
    pub(super) follow: bool,
    pub(super) delete_after: Option<Duration>,
    pub(super) known: Mutex<KnownObjects>,
    pub(super) pool: ObjectPool,
    pub(super) dirty: Arc<Dirty>,
    /// Sends nothing.
    pub(super) ctx: InputContext,
    pub(super) deletions: Mutex<VecDeque<(u128, Listed)>>,
    pub(super) problems: Mutex<Vec<String>>,
    pub(super) save_fails: AtomicBool,
}

impl Shared {
    /// Tells what went wrong: an input that follows as a warning, one that ends with its end.
    pub(super) fn report(&self, text: &str) {
        if self.follow {
            let limit = Limit::once_for("object", text);
            let warning = || text.to_owned();
            return self.ctx.diagnostics.warn_limited(limit, warning);
        }
        let mut problems = self.problems.lock();
        match problems.len() {
            PROBLEMS_MAX => problems.push("there are more such problems".to_owned()),
            count if count < PROBLEMS_MAX => problems.push(text.to_owned()),
            _ => {}
        }
    }

    /// Whether an object that was read is to be deleted now.
    pub(super) fn is_to_be_deleted(&self, listed: &Listed) -> bool {
        let is_due = |after| ago(listed.modified_ns) >= after;
        self.delete_after.is_some_and(is_due)
    }

    /// Deletes an object soon.
    pub(super) fn delete_later(&self, id: u128, listed: Listed) {
        let mut deletions = self.deletions.lock();
        if deletions.iter().all(|(other, _)| *other != id) {
            deletions.push_back((id, listed));
        }
    }

    /// Writes changes to the registry that need not be applied together.
    pub(super) fn commit(&self, changes: &[Change]) -> bool {
        let Some(registry) = &self.ctx.registry else {
            return true;
        };
        let mut parts = changes.chunks(COMMIT_CHANGES);
        self.note_outcome(parts.try_for_each(|part| registry.commit(part, false)))
    }

    fn note_outcome(&self, outcome: Result<(), RegistryError>) -> bool {
        let had_failed = self.save_fails.swap(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(()) if had_failed => self.ctx.diagnostics.info("positions can be saved again"),
            Err(error) if !had_failed => {
                let text = format!("positions cannot be saved: {error}");
                self.ctx.diagnostics.warn(&text);
            }
            _ => {}
        }
        !self.save_fails.load(Ordering::Relaxed)
    }

    /// Reads objects until there are no more, or it is time to stop.
    pub(super) fn read(&self, mut reader: ObjectReader) {
        while let Some(mut waiting) = self.pool.next() {
            let before = waiting.object.file.lock().sent.offset;
            let end = reader.read(&waiting.object);
            if waiting.object.file.lock().sent.offset > before {
                waiting.attempts = 0;
            }
            self.pool.done(self.ended(end, waiting));
        }
    }

    /// Whether an object is to be read again later.
    fn ended(&self, end: ObjectEnd, waiting: WaitingObject) -> Option<WaitingObject> {
        let (id, path) = {
            let file = &waiting.object.file;
            (file.id, file.lock().path.to_string_lossy().into_owned())
        };
        match end {
            ObjectEnd::Done { garbage_behind } => {
                if let Some(format) = garbage_behind {
                    self.ctx.diagnostics.warn(&format!(
                        "{path}: the data after the {format} data was ignored"
                    ));
                }
            }
            ObjectEnd::Broken(problem) => {
                self.ctx.metrics.count("broken_objects", 1);
                self.report(&format!("{path}: {problem}"));
            }
            ObjectEnd::Own => {
                self.known.lock().put_away(id, true);
                let limit = Limit::once("own");
                self.ctx.diagnostics.warn_limited(limit, || {
                    format!("{path}: an output of the pipeline writes it, so it is not read")
                });
            }
            // The next list has the new version, if there is one.
            ObjectEnd::Failed(error @ (StoreError::Gone | StoreError::Changed)) => {
                self.ctx.metrics.count("lost_objects", 1);
                self.report(&format!("{path}: {}", error.text()));
                let forgotten = self.known.lock().forget(id);
                self.commit(&forgotten);
            }
            ObjectEnd::Failed(error) => {
                if self.follow || waiting.attempts < ATTEMPTS_MAX {
                    if self.follow {
                        let limit = Limit::once_for("unread", &path);
                        let text = || format!("{path}: {}; trying again", error.text());
                        self.ctx.diagnostics.warn_limited(limit, text);
                    }
                    return Some(waiting);
                }
                self.report(&format!("{path}: {}", error.text()));
            }
            ObjectEnd::Stopped => {}
        }
        None
    }

    /// Saves positions and deletes objects, until `is_over` says that nothing more comes.
    pub(super) fn keep(&self, store: &SourceStore, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            self.save(false);
            if !self.delete_some(store) {
                std::thread::sleep(SAVE_INTERVAL);
            }
        }
        let mut open = self.known.lock().all_in_hand();
        for object in open.drain(..) {
            let mut state = object.file.lock();
            if state.counts.in_flight_bytes + state.counts.pending_bytes > 0 {
                state.forget_in_flight();
                self.dirty.note(&object.file, &mut state);
            }
        }
        if !self.save(true) {
            let text = "positions cannot be saved: the next run will deliver the most recent events again, with the same ids";
            self.problems.lock().push(text.to_owned());
        }
        while self.delete_some(store) {}
    }

    /// Writes the objects that changed to the registry; `durable` at the end. Puts those away of which everything is safe.
    fn save(&self, durable: bool) -> bool {
        let files = self.dirty.take();
        let mut changes = Vec::with_capacity(files.len());
        let mut settled = Vec::new();
        for file in &files {
            let mut state = file.lock();
            state.is_dirty = false;
            let counts = &state.counts;
            let is_safe = counts.in_flight_bytes + counts.pending_bytes == 0 && !state.is_frozen;
            let has_ended = matches!(state.status, FileStatus::Done | FileStatus::Broken);
            if is_safe && has_ended {
                settled.push((file.id, state.status == FileStatus::Broken));
                state.checkpoints.clear();
            }
            let put = record::encode(&self.ctx.scope, &state);
            changes.push(Change::Put(object_key(file.id), put));
            let needed = state.checkpoints.front();
            let needed = needed.filter(|kept| kept.place <= state.position.offset);
            let (key, place) = (checkpoint_key(file.id), needed.map(|kept| kept.place));
            if state.saved_checkpoint != place {
                changes.push(match needed {
                    Some(kept) => Change::Put(key, kept.encode()),
                    None => Change::Delete(key),
                });
                state.saved_checkpoint = place;
            }
        }
        let known = |file: &Arc<File>| self.known.lock().in_hand(file.id).is_some();
        if !files.iter().all(known) {
            // What was forgotten meanwhile is not written again.
            let gone = |change: &Change| {
                let (Change::Put(key, _) | Change::Delete(key)) = change;
                self.known.lock().in_hand(key.id).is_some()
            };
            changes.retain(gone);
        }
        let is_saved = self.commit(&changes) && self.sync(durable);
        if !is_saved {
            for file in &files {
                file.lock().saved_checkpoint = Some(UNKNOWN_PLACE);
            }
            self.dirty.put_back(files);
            return false;
        }
        for (id, is_broken) in settled {
            self.settle(id, is_broken);
        }
        true
    }

    fn sync(&self, durable: bool) -> bool {
        match &self.ctx.registry {
            Some(registry) if durable => self.note_outcome(registry.commit(&[], true)),
            _ => true,
        }
    }

    /// Everything of an object is safe.
    fn settle(&self, id: u128, is_broken: bool) {
        let object = {
            let mut known = self.known.lock();
            let object = known.in_hand(id);
            known.put_away(id, is_broken);
            object
        };
        if let Some(object) = object.filter(|_| !is_broken) {
            self.ctx.metrics.count("objects", 1);
            if self.is_to_be_deleted(&object.listed) {
                self.delete_later(id, object.listed.clone());
            }
        }
    }

    /// Deletes some of the objects that are to be deleted; whether there were any.
    fn delete_some(&self, store: &SourceStore) -> bool {
        let some: Vec<(u128, Listed)> = {
            let mut deletions = self.deletions.lock();
            let count = deletions.len().min(DELETIONS_MAX);
            deletions.drain(..count).collect()
        };
        if some.is_empty() {
            return false;
        }
        let mut requests = JoinSet::new();
        for (id, listed) in some {
            let store = store.clone();
            let request = async move { (id, store.delete(&listed).await, listed) };
            requests.spawn_on(component::activity::carry(request), &Handle::current());
        }
        let answers = Handle::current().block_on(requests.join_all());
        let mut changes = Vec::new();
        for (id, deleted, listed) in answers {
            match deleted {
                Ok(()) => {
                    self.ctx.metrics.count("objects_deleted", 1);
                    changes.extend(self.known.lock().forget(id));
                }
                Err(StoreError::Changed) => {}
                Err(error) => {
                    let path = store.shown(&listed.key);
                    let text = || format!("{path}: cannot be deleted: {}", error.text());
                    let limit = Limit::once("undeleted");
                    self.ctx.diagnostics.warn_limited(limit, text);
                }
            }
        }
        self.commit(&changes);
        true
    }

    /// Shows all known objects to whoever asks the input for its ledger.
    pub(super) fn show_ledger(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        self.ctx.ledger.provide(move || {
            let Some(shared) = shared.upgrade() else {
                return Vec::new();
            };
            let (scope, now) = (&shared.ctx.scope, now());
            let mut objects: BTreeMap<u128, FileLedger> = BTreeMap::new();
            if let Some(registry) = &shared.ctx.registry {
                let mut add = |id, bytes: &[u8]| {
                    if let Some((of, state)) = record::decode(bytes)
                        && *of == **scope
                    {
                        objects.insert(id, state.ledger(scope, id, now));
                    }
                };
                // Where the registry cannot be read, the objects in hand are what there is.
                let _ = registry.for_each(OBJECT, &mut add);
            }
            for object in shared.known.lock().all_in_hand() {
                let file = &object.file;
                objects.insert(file.id, file.lock().ledger(scope, file.id, now));
            }
            let mut objects: Vec<FileLedger> = objects.into_values().collect();
            objects.sort_by(|one, other| one.path.cmp(&other.path));
            objects
        });
    }
}
