//! The objects that an input knows: those that were read, as few bytes each as there can be, and those that are being read.
//!
//! An object is one version of what a key names: written again, it is another object, with another id. An object that was read is known until it
//! has not been listed for `forget_after`, or, where names grow with time, until the frontier has passed it.

use std::collections::HashMap;
use std::sync::Arc;

use batch::fnv::fnv128;
use component::FileStatus;
use registry::{Change, Key, Registry, RegistryError};

use super::listed::Listed;
use crate::file::record::{self, FRONTIER, OBJECT, OBJECT_CHECKPOINT};
use crate::file::state::{File, FileState, Lost, StoredCheckpoint};

/// An object that is waiting to be read, or being read, or whose events are on their way.
pub(super) struct OpenObject {
    pub(super) file: Arc<File>,
    pub(super) listed: Listed,
}

/// What is known of an object.
enum Knowledge {
    /// It was read to its end, and all of its events are safe.
    Read,
    /// It cannot be read.
    Broken,
    /// An earlier run has begun it.
    Begun,
    /// It is in hand.
    Open(Arc<OpenObject>),
}

struct KnownObject {
    knowledge: Knowledge,
    /// The list that had it last.
    list: u32,
    /// When it was first missing in a list, in seconds since 1970; 0 where it was not.
    lost_since: u32,
}

/// What is to be done with an object of a list.
pub(super) enum Sighting {
    /// It is not known.
    New,
    /// An earlier run has begun it.
    Begun,
    /// It is in hand.
    Open,
    /// It was read.
    Read,
    /// It cannot be read.
    Broken,
}

/// The objects that an input knows.
pub(super) struct KnownObjects {
    registry: Option<Arc<Registry>>,
    scope: Arc<str>,
    objects: HashMap<u128, KnownObject>,
    /// The number of the list that is being read, or was last.
    list: u32,
    /// Up to this key everything was read; with the key that it has in the registry.
    frontier: Option<String>,
    frontier_key: Key,
}

impl KnownObjects {
    /// What the registry knows of the input called `scope`, which reads `url`.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub(super) fn load(
        registry: Option<Arc<Registry>>,
        scope: &Arc<str>,
        url: &str,
    ) -> Result<Self, RegistryError> {
        let frontier_key = Key {
            kind: FRONTIER,
            id: fnv128(
                [scope.as_bytes(), b"\0", url.as_bytes()]
                    .concat()
                    .as_slice(),
            ),
        };
        let mut known = Self {
            registry: registry.clone(),
            scope: scope.clone(),
            objects: HashMap::new(),
            list: 0,
            frontier: None,
            frontier_key,
        };
        if let Some(registry) = registry {
            let frontier = registry.get(frontier_key)?;
            known.frontier = frontier.and_then(|bytes| String::from_utf8(bytes).ok());
            registry.for_each(OBJECT, &mut |id, bytes| {
                if let Some((of, mut state)) = record::decode(bytes)
                    && *of == **scope
                {
                    known.index(id, &mut state);
                }
            })?;
        }
        Ok(known)
    }

    fn index(&mut self, id: u128, state: &mut FileState) {
        state.forget_in_flight();
        let knowledge = match state.status {
            FileStatus::Done => Knowledge::Read,
            FileStatus::Broken => Knowledge::Broken,
            _ => Knowledge::Begun,
        };
        let known = KnownObject {
            knowledge,
            list: 0,
            lost_since: state.lost_since.unwrap_or_default() as u32,
        };
        self.objects.insert(id, known);
    }

    /// Up to which key everything was read.
    pub(super) fn frontier(&self) -> Option<&str> {
        self.frontier.as_deref()
    }

    /// A new list begins.
    pub(super) fn begin_list(&mut self) {
        self.list += 1;
    }

    /// An object is in the list.
    pub(super) fn see(&mut self, id: u128) -> Sighting {
        let Some(known) = self.objects.get_mut(&id) else {
            return Sighting::New;
        };
        known.list = self.list;
        match known.knowledge {
            Knowledge::Read => Sighting::Read,
            Knowledge::Broken => Sighting::Broken,
            Knowledge::Begun => Sighting::Begun,
            Knowledge::Open(_) => Sighting::Open,
        }
    }

    /// Takes an object in hand, as an earlier run left it.
    pub(super) fn open(&mut self, id: u128, listed: Listed, shown: String) -> Arc<OpenObject> {
        let mut state = self.remembered(id).unwrap_or_default();
        state.path = shown.into();
        (state.lost, state.lost_since) = (None, None);
        state.look.size = listed.size;
        state.look.modified_ns = listed.modified_ns;
        state.status = FileStatus::Idle;
        let file = File::new(id, state);
        let object = Arc::new(OpenObject { file, listed });
        let known = KnownObject {
            knowledge: Knowledge::Open(object.clone()),
            list: self.list,
            lost_since: 0,
        };
        self.objects.insert(id, known);
        object
    }

    /// What the registry knows of an object that was begun.
    fn remembered(&self, id: u128) -> Option<FileState> {
        if !self.objects.contains_key(&id) {
            return None;
        }
        let registry = self.registry.as_ref()?;
        let bytes = registry.get(object_key(id)).ok()??;
        let (_, mut state) = record::decode(&bytes)?;
        state.forget_in_flight();
        let checkpoint = registry.get(checkpoint_key(id)).ok().flatten();
        if let Some(checkpoint) = checkpoint.and_then(|bytes| StoredCheckpoint::decode(&bytes)) {
            state.saved_checkpoint = Some(checkpoint.place);
            state.checkpoints.push_back(checkpoint);
        }
        Some(state)
    }

    /// An object that is in hand.
    pub(super) fn in_hand(&self, id: u128) -> Option<Arc<OpenObject>> {
        match &self.objects.get(&id)?.knowledge {
            Knowledge::Open(object) => Some(object.clone()),
            _ => None,
        }
    }

    /// All objects that are in hand.
    pub(super) fn all_in_hand(&self) -> Vec<Arc<OpenObject>> {
        let objects = self.objects.values();
        let open = objects.filter_map(|known| match &known.knowledge {
            Knowledge::Open(object) => Some(object.clone()),
            _ => None,
        });
        open.collect()
    }

    /// An object is no longer in hand: it was read, or cannot be.
    pub(super) fn put_away(&mut self, id: u128, is_broken: bool) {
        if let Some(known) = self.objects.get_mut(&id) {
            known.knowledge = match is_broken {
                true => Knowledge::Broken,
                false => Knowledge::Read,
            };
        }
    }

    /// Forgets an object; gives what is to be changed in the registry.
    pub(super) fn forget(&mut self, id: u128) -> [Change; 2] {
        self.objects.remove(&id);
        [
            Change::Delete(object_key(id)),
            Change::Delete(checkpoint_key(id)),
        ]
    }

    /// Everything up to a key was read, and needs not be remembered: `passed` are the objects up to there. Gives what is to be changed in the
    /// registry.
    pub(super) fn advance(&mut self, frontier: String, passed: &[u128]) -> Vec<Change> {
        let put = Change::Put(self.frontier_key, frontier.clone().into_bytes());
        self.frontier = Some(frontier);
        let forgotten = passed.iter().flat_map(|id| self.forget(*id));
        [put].into_iter().chain(forgotten).collect()
    }

    /// A list was read to its end. Notes which objects are missing since when, and forgets those that have been so for `forget_after_secs`; gives
    /// what is to be changed in the registry, and how many were forgotten that were not read to their end.
    pub(super) fn end_list(&mut self, now_secs: u64, forget_after_secs: u64) -> (Vec<Change>, u64) {
        let now = now_secs as u32;
        let (mut changed, mut forgotten, mut unread) = (Vec::new(), Vec::new(), 0);
        for (id, known) in &mut self.objects {
            if known.list == self.list {
                if std::mem::take(&mut known.lost_since) > 0 {
                    changed.push((*id, None));
                }
            } else if matches!(known.knowledge, Knowledge::Open(_)) {
                // Whoever reads it finds out.
            } else if known.lost_since == 0 && forget_after_secs > 0 {
                known.lost_since = now.max(1);
                changed.push((*id, Some(now_secs)));
            } else if now.saturating_sub(known.lost_since) as u64 >= forget_after_secs {
                unread += u64::from(matches!(known.knowledge, Knowledge::Begun));
                forgotten.push(*id);
            }
        }
        let mut changes = Vec::new();
        for (id, lost_since) in changed {
            changes.extend(self.note_lost(id, lost_since));
        }
        for id in forgotten {
            changes.extend(self.forget(id));
        }
        (changes, unread)
    }

    fn note_lost(&self, id: u128, since: Option<u64>) -> Option<Change> {
        if self.in_hand(id).is_some() {
            return None;
        }
        let registry = self.registry.as_ref()?;
        let bytes = registry.get(object_key(id)).ok()??;
        let (_, mut state) = record::decode(&bytes)?;
        state.lost = since.map(|_| Lost::Gone);
        state.lost_since = since;
        Some(Change::Put(
            object_key(id),
            record::encode(&self.scope, &state),
        ))
    }
}

/// The key of an object.
pub(super) fn object_key(id: u128) -> Key {
    Key { kind: OBJECT, id }
}

/// The key of an object's checkpoint.
pub(super) fn checkpoint_key(id: u128) -> Key {
    Key {
        kind: OBJECT_CHECKPOINT,
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn listed(key: &str) -> Listed {
        Listed {
            key: key.to_owned(),
            size: 10,
            modified_ns: 5,
            version: "v".to_owned(),
            has_etag: true,
        }
    }

    fn load(registry: &Arc<Registry>) -> KnownObjects {
        let scope: Arc<str> = "p/i".into();
        KnownObjects::load(Some(registry.clone()), &scope, "s3://a").expect("it is readable")
    }

    fn commit(registry: &Registry, changes: &[Change]) {
        registry.commit(changes, false).expect("committed");
    }

    /// Opens an object and saves it with a status.
    fn save(registry: &Registry, known: &mut KnownObjects, id: u128, status: FileStatus) {
        let object = known.open(id, listed("a"), "s3://a/a".to_owned());
        let mut state = object.file.lock();
        state.status = status;
        let put = Change::Put(object_key(id), record::encode("p/i", &state));
        commit(registry, &[put]);
    }

    #[test]
    fn a_later_run_knows_what_became_of_objects() {
        let folder = tempfile::tempdir().expect("a folder");
        let (registry, _) = Registry::open(folder.path()).expect("a registry");
        let registry = Arc::new(registry);
        let mut known = load(&registry);
        assert!(matches!(known.see(1), Sighting::New));
        save(&registry, &mut known, 1, FileStatus::Done);
        save(&registry, &mut known, 2, FileStatus::Broken);
        save(&registry, &mut known, 3, FileStatus::Idle);
        assert!(matches!(known.see(1), Sighting::Open));
        known.put_away(1, false);
        assert!(matches!(known.see(1), Sighting::Read));
        let mut known = load(&registry);
        assert!(matches!(known.see(1), Sighting::Read));
        assert!(matches!(known.see(2), Sighting::Broken));
        assert!(matches!(known.see(3), Sighting::Begun));
        assert!(matches!(known.see(4), Sighting::New));
    }

    #[test]
    fn what_is_not_listed_any_more_is_forgotten_after_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let (registry, _) = Registry::open(folder.path()).expect("a registry");
        let registry = Arc::new(registry);
        let mut known = load(&registry);
        for id in [1, 2, 3] {
            save(&registry, &mut known, id, FileStatus::Done);
        }
        save(&registry, &mut known, 4, FileStatus::Idle);
        // Each step is a run of its own.
        let step = |seen: &[u128], now: u64| {
            let mut known = load(&registry);
            known.begin_list();
            for id in seen {
                known.see(*id);
            }
            let (changes, unread) = known.end_list(now, DAY);
            commit(&registry, &changes);
            let mut ids: Vec<u128> = load(&registry).objects.into_keys().collect();
            ids.sort_unstable();
            (ids, unread)
        };
        let all = vec![1, 2, 3, 4];
        assert_eq!(step(&[1, 2, 3, 4], 1000), (all.clone(), 0));
        assert_eq!(step(&[1], 2000), (all.clone(), 0));
        assert_eq!(step(&[1, 2], 2000 + DAY - 1), (all, 0));
        assert_eq!(step(&[1], 2000 + DAY), (vec![1, 2], 1));
        assert_eq!(step(&[1], 2000 + 2 * DAY), (vec![1], 0));
    }

    #[test]
    fn what_a_frontier_has_passed_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let (registry, _) = Registry::open(folder.path()).expect("a registry");
        let registry = Arc::new(registry);
        let mut known = load(&registry);
        for id in [1, 2, 3] {
            save(&registry, &mut known, id, FileStatus::Done);
        }
        let mut known = load(&registry);
        assert_eq!(known.frontier(), None);
        let changes = known.advance("b".to_owned(), &[1, 2]);
        commit(&registry, &changes);
        let mut known = load(&registry);
        assert_eq!(known.frontier(), Some("b"));
        assert!(matches!(known.see(1), Sighting::New));
        assert!(matches!(known.see(3), Sighting::Read));
    }
}
