//! The files that an input knows: by where they are, by how they begin, by id.
//!
//! With a registry, a file at which nothing happens is *asleep*: only its place (device and inode) and its fingerprint are in
//! memory, and the rest is read from the registry when something happens to it. 500,000 known files load in half a second.
//! Without a registry everything stays in memory.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use batch::fnv::Fnv128;
use codec::Check;
use parking_lot::{Mutex, MutexGuard};
use registry::{Registry, RegistryError};

use super::record;
use super::state::{DeviceInode, File, FileState, LIKENESS_MIN, Lost, StoredCheckpoint};

/// The files in memory, shared with whoever looks at the ledger.
pub(crate) type Awake = Arc<Mutex<HashMap<u128, Arc<File>>>>;

/// The files that an input knows.
pub(crate) struct Known {
    registry: Option<Arc<Registry>>,
    scope: Arc<str>,
    awake: Awake,
    by_place: HashMap<DeviceInode, Seen>,
    by_fingerprint: HashMap<u64, Packed>,
    /// Further ones with the same fingerprint.
    twins: HashMap<u64, Vec<u128>>,
    /// How many fingerprints have each length.
    lengths: BTreeMap<u16, usize>,
    /// Files at no place, which no scan finds.
    lost: Vec<u128>,
    /// The number of the last scan.
    scan: u32,
    /// An earlier run has looked at the files.
    has_looked: bool,
}

/// An id that is aligned to 8 bytes: maps with hundreds of thousands of them are a third smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packed(u64, u64);

impl From<u128> for Packed {
    fn from(id: u128) -> Self {
        Self((id >> 64) as u64, id as u64)
    }
}

impl From<Packed> for u128 {
    fn from(id: Packed) -> Self {
        Self::from(id.0) << 64 | Self::from(id.1)
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    id: Packed,
    /// The scan that found it last.
    scan: u32,
    /// It is known to be gone from there.
    is_gone: bool,
}

impl Known {
    /// What the registry knows of the input called `scope`.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub(crate) fn load(
        registry: Option<Arc<Registry>>,
        scope: &Arc<str>,
    ) -> Result<Self, RegistryError> {
        let mut known = Self {
            registry: registry.clone(),
            scope: scope.clone(),
            awake: Awake::default(),
            by_place: HashMap::new(),
            by_fingerprint: HashMap::new(),
            twins: HashMap::new(),
            lengths: BTreeMap::new(),
            lost: Vec::new(),
            scan: 0,
            has_looked: false,
        };
        if let Some(registry) = registry {
            known.has_looked = registry.get(record::looked_key(scope))?.is_some();
            registry.for_each(record::FILE, &mut |id, bytes| {
                if let Some((of, state)) = record::decode(bytes)
                    && *of == **scope
                {
                    known.index(id, &state);
                }
            })?;
        }
        Ok(known)
    }

    fn index(&mut self, id: u128, state: &FileState) {
        match state.place {
            Some(place) => {
                let seen = Seen {
                    id: id.into(),
                    scan: self.scan,
                    is_gone: state.lost.is_some(),
                };
                if let Some(other) = self.by_place.insert(place, seen)
                    && other.id != id.into()
                {
                    self.lost.push(other.id.into());
                }
            }
            None => self.lost.push(id),
        }
        self.index_fingerprint(id, state.fingerprint);
        if let Some(first) = state.first_fingerprint {
            self.index_fingerprint(id, first);
        }
    }

    fn index_fingerprint(&mut self, id: u128, fingerprint: Check) {
        *self.lengths.entry(fingerprint.len).or_default() += 1;
        let key = short(fingerprint);
        match self.by_fingerprint.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(id.into())),
            Entry::Occupied(_) => self.twins.entry(key).or_default().push(id),
        }
    }

    fn unindex_fingerprint(&mut self, id: u128, fingerprint: Check) {
        if let Some(count) = self.lengths.get_mut(&fingerprint.len) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&fingerprint.len);
            }
        }
        let key = short(fingerprint);
        let next = self.twins.get_mut(&key).and_then(|twins| {
            match twins.iter().position(|twin| *twin == id) {
                Some(place) => {
                    twins.swap_remove(place);
                    None
                }
                // It is the first one, whose place another takes.
                None => twins.pop(),
            }
        });
        if self.by_fingerprint.get(&key) == Some(&id.into()) {
            match next {
                Some(next) => drop(self.by_fingerprint.insert(key, next.into())),
                None => drop(self.by_fingerprint.remove(&key)),
            }
        }
        if self.twins.get(&key).is_some_and(Vec::is_empty) {
            self.twins.remove(&key);
        }
    }

    /// Whether an earlier run has looked at the files.
    pub(crate) fn has_looked(&self) -> bool {
        self.has_looked
    }

    /// Begins a scan of all files.
    pub(crate) fn begin_scan(&mut self) {
        self.scan += 1;
    }

    /// The file at a place, which is found there now.
    pub(crate) fn find(&mut self, place: DeviceInode) -> Option<Arc<File>> {
        let scan = self.scan;
        let id = self.by_place.get_mut(&place).map(|seen| {
            seen.scan = scan;
            seen.is_gone = false;
            seen.id.into()
        })?;
        self.get(id)
    }

    fn has_at(&self, place: DeviceInode, id: u128) -> bool {
        self.by_place
            .get(&place)
            .is_some_and(|seen| seen.id == id.into())
    }

    /// Whether the last scan found the file where it was.
    pub(crate) fn is_in_place(&self, file: &File) -> bool {
        let place = file.lock().place;
        place.is_some_and(|place| {
            self.by_place
                .get(&place)
                .is_some_and(|seen| seen.id == file.id.into() && seen.scan == self.scan)
        })
    }

    /// The file of an id, which is awake from now on.
    pub(crate) fn get(&mut self, id: u128) -> Option<Arc<File>> {
        if let Some(file) = self.lock_awake().get(&id) {
            return Some(file.clone());
        }
        let registry = self.registry.as_ref()?;
        let bytes = registry.get(record::file_key(id)).ok()??;
        let (_, mut state) = record::decode(&bytes)?;
        state.forget_in_flight();
        if state.place.is_some_and(|place| !self.has_at(place, id)) {
            // Another one is at its inode, which was not noted before the last run was killed.
            state.left = state.place.take();
            state.lost = Some(Lost::Truncated);
        }
        if let Ok(Some(bytes)) = registry.get(record::checkpoint_key(id))
            && let Some(kept) = StoredCheckpoint::decode(&bytes)
        {
            state.saved_checkpoint = Some(kept.place);
            state.checkpoints.push_back(kept);
        }
        if let Ok(Some(bytes)) = registry.get(record::given_key(id))
            && let Some(given) = record::decode_given(&bytes)
        {
            state.given_noted = Some(given.0);
            if given.0 > state.position.offset {
                state.given = given;
                state.ends.note_read(given.0, given.1);
            }
        }
        let file = File::new(id, state);
        self.lock_awake().insert(id, file.clone());
        Some(file)
    }

    /// Files that begin as `head` does, as far as their fingerprints go: those first of which most was read. Where many files
    /// have a header in common, one of which no more was read goes on in any of them, and would take the place of the right one.
    pub(crate) fn beginning_with(&mut self, head: &[u8]) -> Vec<Arc<File>> {
        let mut found = Vec::new();
        let mut hasher = Fnv128::new();
        let mut hashed = 0;
        for &len in self.lengths.keys() {
            let Some(more) = head.get(hashed..usize::from(len)) else {
                break;
            };
            if more.is_empty() {
                // Nothing at all is no likeness.
                continue;
            }
            hasher.add(more);
            hashed = usize::from(len);
            let check = Check {
                len,
                hash: hasher.value(),
            };
            let key = short(check);
            let first = self.by_fingerprint.get(&key).map(|id| u128::from(*id));
            let twins = self.twins.get(&key).into_iter().flatten().copied();
            found.extend(first.into_iter().chain(twins).map(|id| (id, check)));
        }
        // Where the same was read, the longest fingerprint is the surest.
        found.reverse();
        let mut files: Vec<Arc<File>> = found
            .into_iter()
            .filter_map(|(id, check)| {
                let file = self.get(id)?;
                let agrees = {
                    let state = file.lock();
                    state.fingerprint == check || state.first_fingerprint == Some(check)
                };
                agrees.then_some(file)
            })
            .collect();
        files.sort_by_cached_key(|file| {
            let state = file.lock();
            Reverse(state.sent.offset.max(state.given.0))
        });
        files
    }

    /// Takes a file in.
    pub(crate) fn insert(&mut self, file: &Arc<File>) {
        let state = file.lock().clone();
        self.index(file.id, &state);
        self.lock_awake().insert(file.id, file.clone());
    }

    /// Says where a file is now.
    pub(crate) fn set_place(&mut self, file: &Arc<File>, place: Option<DeviceInode>) {
        let before = std::mem::replace(&mut file.lock().place, place);
        if let Some(before) = before
            && self.has_at(before, file.id)
        {
            self.by_place.remove(&before);
        }
        self.lost.retain(|id| *id != file.id);
        let scan = self.scan;
        match place {
            Some(place) => {
                let seen = Seen {
                    id: file.id.into(),
                    scan,
                    is_gone: false,
                };
                self.by_place.insert(place, seen);
            }
            None => self.lost.push(file.id),
        }
        self.lock_awake().insert(file.id, file.clone());
    }

    /// Gives a file that has grown a longer fingerprint. It is found by its first one, too, unless that says too little: a
    /// copy may have been made while the file was shorter.
    pub(crate) fn set_fingerprint(&mut self, file: &Arc<File>, fingerprint: Check) {
        let mut state = file.lock();
        let before = std::mem::replace(&mut state.fingerprint, fingerprint);
        let is_first = state.first_fingerprint.is_none() && before.len >= LIKENESS_MIN;
        if is_first {
            state.first_fingerprint = Some(before);
        }
        drop(state);
        if !is_first {
            self.unindex_fingerprint(file.id, before);
        }
        self.index_fingerprint(file.id, fingerprint);
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: &Arc<File>) {
        let (place, fingerprint, first) = {
            let state = file.lock();
            (state.place, state.fingerprint, state.first_fingerprint)
        };
        if let Some(place) = place
            && self.has_at(place, file.id)
        {
            self.by_place.remove(&place);
        }
        self.lost.retain(|id| *id != file.id);
        self.unindex_fingerprint(file.id, fingerprint);
        if let Some(first) = first {
            self.unindex_fingerprint(file.id, first);
        }
        self.lock_awake().remove(&file.id);
    }

    /// The files in memory.
    pub(crate) fn awake(&self) -> Vec<Arc<File>> {
        self.lock_awake().values().cloned().collect()
    }

    /// The files in memory, as they come and go.
    pub(crate) fn shared(&self) -> Awake {
        self.awake.clone()
    }

    fn lock_awake(&self) -> MutexGuard<'_, HashMap<u128, Arc<File>>> {
        self.awake.lock()
    }

    /// Ids of files that the last scan did not find where they were, unless they are known to be gone. Whoever asks again is
    /// told only of others.
    pub(crate) fn newly_missing(&mut self) -> Vec<u128> {
        let scan = self.scan;
        let unseen = self.by_place.values_mut();
        let unseen = unseen.filter(|seen| seen.scan != scan && !seen.is_gone);
        unseen
            .map(|seen| {
                seen.is_gone = true;
                seen.id.into()
            })
            .collect()
    }

    /// Ids of files that the last scan did not find where they were, and of those that are at no place.
    pub(crate) fn missing(&self) -> Vec<u128> {
        let unseen = self.by_place.values().filter(|seen| seen.scan != self.scan);
        unseen
            .map(|seen| seen.id.into())
            .chain(self.lost.iter().copied())
            .collect()
    }

    /// Lets files sleep that nothing happens to and that the registry has.
    pub(crate) fn sleep(&mut self, may_sleep: impl Fn(&File) -> bool) {
        if self.registry.is_some() {
            self.lock_awake()
                .retain(|_, file| Arc::strong_count(file) > 1 || !may_sleep(file));
        }
    }

    /// Pipeline and input.
    pub(crate) fn scope(&self) -> &Arc<str> {
        &self.scope
    }
}

/// Length and hash in 64 bits: what the index is kept by.
fn short(check: Check) -> u64 {
    (check.hash as u64) ^ (check.hash >> 64) as u64 ^ u64::from(check.len) << 48
}

#[cfg(test)]
mod tests {
    use super::super::state::fingerprint;
    use super::*;

    fn file(id: u128, inode: u64, head: &[u8]) -> Arc<File> {
        let state = FileState {
            place: Some(DeviceInode { device: 1, inode }),
            fingerprint: fingerprint(head),
            ..FileState::default()
        };
        File::new(id, state)
    }

    #[test]
    fn files_are_found_by_place_and_by_beginning() {
        let mut known = Known::load(None, &"a/b".into()).expect("no registry to read");
        let (short, long, twin) = (
            file(1, 1, b"abc"),
            file(2, 2, b"abcdef"),
            file(3, 3, b"abc"),
        );
        for file in [&short, &long, &twin] {
            known.insert(file);
        }
        let mut ids = |head: &[u8]| {
            let found = known.beginning_with(head);
            found.iter().map(|file| file.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(b"abcdefgh"), [2, 3, 1]);
        assert_eq!(ids(b"abcxx"), [3, 1]);
        assert!(ids(b"ab").is_empty());

        let ids = |known: &mut Known| {
            let found = known.beginning_with(b"abcdefgh");
            found.iter().map(|file| file.id).collect::<Vec<_>>()
        };
        short.lock().sent.offset = 7;
        assert_eq!(ids(&mut known), [1, 2, 3], "most was read of it");
        twin.lock().given.0 = 8;
        assert_eq!(ids(&mut known), [3, 1, 2], "or was given, at least");
        short.lock().sent.offset = 0;
        twin.lock().given.0 = 0;

        known.set_fingerprint(&short, fingerprint(b"abcd"));
        let (first, grown) = ([b'x'; 40], [b'x'; 80]);
        let growing = file(4, 4, &first);
        known.insert(&growing);
        for len in [50, 60] {
            known.set_fingerprint(&growing, fingerprint(&grown[..len]));
        }
        for (len, times) in [(39, 0), (45, 1), (55, 1), (70, 2)] {
            assert_eq!(known.beginning_with(&grown[..len]).len(), times, "{len}");
        }
        known.forget(&growing);
        assert!(known.beginning_with(&grown).is_empty());
        known.forget(&twin);
        let found = known.beginning_with(b"abcdefgh");
        assert_eq!(found.iter().map(|file| file.id).collect::<Vec<_>>(), [2, 1]);

        known.begin_scan();
        assert!(!known.is_in_place(&long));
        let place = DeviceInode {
            device: 1,
            inode: 2,
        };
        assert_eq!(known.find(place).map(|file| file.id), Some(2));
        assert!(known.is_in_place(&long));
        assert_eq!(known.missing(), [1]);
        known.set_place(&long, None);
        assert!(known.find(place).is_none());
        assert_eq!(known.missing().len(), 2);
    }
}
