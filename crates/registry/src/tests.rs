//! A disk that fails at any step, once or for good: commits fail whole, and whatever is on disk opens.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, Step};
use crate::{Change, Key, Registry, RegistryError};

/// Which steps fail; shared with the disk that obeys it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Faults(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    taken: Vec<Step>,
    /// Steps of these numbers fail.
    numbers: Range<usize>,
    /// Steps of this kind fail.
    kind: Option<Step>,
}

impl Faults {
    pub fn check(&self, step: Step) -> io::Result<()> {
        let mut plan = self.0.lock().unwrap();
        plan.taken.push(step);
        let number = plan.taken.len() - 1;
        if plan.numbers.contains(&number) || plan.kind == Some(step) {
            // EIO
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn at(numbers: Range<usize>) -> Self {
        let faults = Self::default();
        faults.0.lock().unwrap().numbers = numbers;
        faults
    }

    fn every(&self, kind: Option<Step>) {
        self.0.lock().unwrap().kind = kind;
    }

    /// The steps since the last time.
    fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.0.lock().unwrap().taken)
    }

    fn open(&self, directory: &Path) -> Result<(Registry, Vec<String>), RegistryError> {
        let faults = self.clone();
        Registry::open_on(directory, Disk { faults })
    }
}

type Map = HashMap<u128, Vec<u8>>;

fn put(id: u128, value: Vec<u8>) -> Change {
    Change::Put(Key { kind: 1, id }, value)
}

fn entries(registry: &Registry) -> Map {
    let mut map = Map::new();
    let each = &mut |id, value: &[u8]| drop(map.insert(id, value.to_vec()));
    registry.for_each(1, each).unwrap();
    map
}

fn with(map: &Map, changes: &[Change]) -> Map {
    let mut map = map.clone();
    for change in changes {
        match change {
            Change::Put(key, value) => drop(map.insert(key.id, value.clone())),
            Change::Delete(key) => drop(map.remove(&key.id)),
        }
    }
    map
}

fn memory_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Enough to compact the log twice.
fn workload() -> Vec<(Vec<Change>, bool)> {
    let commit = |round: u8| {
        let id = u128::from(round % 3);
        let mut changes = vec![put(id, vec![round; 100_000]), put(100 + id, vec![round])];
        if round.is_multiple_of(5) {
            changes.push(Change::Delete(Key {
                kind: 1,
                id: 100 + (id + 1) % 3,
            }));
        }
        (changes, round.is_multiple_of(2))
    };
    (0..26).map(commit).collect()
}

/// Runs the workload on a failing disk. Gives the state, and the state that a crash may leave instead: a commit failed
/// and its bytes could not be taken back.
fn run(directory: &Path, faults: &Faults) -> (Map, Option<Map>) {
    let (mut map, mut maybe) = (Map::new(), None);
    let Ok((registry, said)) = faults.open(directory) else {
        return (map, maybe);
    };
    assert_eq!(said, Vec::<String>::new());
    for (changes, durable) in workload() {
        let new = with(&map, &changes);
        if registry.commit(&changes, durable).is_ok() {
            (map, maybe) = (new, None);
        } else {
            maybe = maybe.or(Some(new));
        }
        assert_eq!(entries(&registry), map, "memory is as before or as after");
    }
    (map, maybe)
}

#[test]
fn any_step_may_fail() {
    let healthy = Faults::default();
    let directory = memory_directory();
    run(directory.path(), &healthy);
    let steps = healthy.take();
    let compactions = steps.iter().filter(|step| **step == Step::Rename).count() - 1;
    assert_eq!(compactions, 2, "{steps:?}");
    for (number, step) in steps.iter().enumerate() {
        // Once; with what is done about it; for good, which is what a crash at this step leaves.
        for length in [1, 2, usize::MAX / 2] {
            let directory = memory_directory();
            let faults = Faults::at(number..number + length);
            let (map, maybe) = run(directory.path(), &faults);
            let (registry, said) = Registry::open(directory.path()).unwrap();
            let found = entries(&registry);
            let what = format!("step {number} ({step:?}) and {length} in all");
            assert!(found == map || Some(&found) == maybe.as_ref(), "{what}");
            let is_told = said
                .iter()
                .all(|said| said.contains("interrupted by a crash"));
            assert!(
                is_told && (length > 1 || said.is_empty()),
                "{what}: {said:?}"
            );
            if length == 1 {
                assert_eq!(found, map, "{what}");
            }
            let tmp = directory.path().join("registry.tmp");
            assert!(!tmp.exists(), "{what}: nothing is left behind");
        }
    }
}

#[test]
fn after_a_failed_sync_a_durable_commit_writes_a_new_log() {
    use Step::{Create, Rename, Sync, SyncDirectory, Write};
    let directory = memory_directory();
    let faults = Faults::default();
    let (registry, _) = faults.open(directory.path()).unwrap();
    registry.commit(&[put(1, vec![1])], false).unwrap();
    faults.every(Some(Sync));
    let refused = registry.commit(&[put(2, vec![2])], true).unwrap_err();
    let log = directory.path().join("registry");
    let expected = format!(
        "cannot sync the registry {}: Input/output error (os error 5)",
        log.display()
    );
    assert_eq!(refused.to_string(), expected);

    // Other commits go on; a durable one fails as long as the new log cannot be synced.
    registry.commit(&[put(3, vec![3])], false).unwrap();
    registry.commit(&[put(4, vec![4])], true).unwrap_err();
    faults.every(Some(SyncDirectory));
    registry.commit(&[put(4, vec![4])], true).unwrap_err();
    faults.every(None);
    faults.take();
    registry.commit(&[put(5, vec![5])], true).unwrap();
    let new_log = [Create, Write, Write, Sync, Rename, SyncDirectory];
    assert_eq!(faults.take(), [&new_log[..], &[Write, Sync]].concat());
    registry.commit(&[], true).unwrap();
    assert_eq!(faults.take(), [Sync], "and then the log is trusted again");

    let expected: Map = [1, 3, 5].map(|id| (u128::from(id), vec![id])).into();
    assert_eq!(entries(&registry), expected);
    drop(registry);
    let (registry, said) = Registry::open(directory.path()).unwrap();
    assert_eq!((entries(&registry), said), (expected, vec![]));
}

#[test]
fn a_failed_compaction_is_tried_again_when_the_log_has_doubled() {
    let directory = memory_directory();
    let faults = Faults::default();
    let (registry, _) = faults.open(directory.path()).unwrap();
    faults.every(Some(Step::Rename));
    faults.take();
    let length = || {
        fs::metadata(directory.path().join("registry"))
            .unwrap()
            .len()
    };
    while length() < 7 << 20 {
        registry.commit(&[put(1, vec![1; 10_000])], false).unwrap();
    }
    let tries = faults
        .take()
        .iter()
        .filter(|step| **step == Step::Rename)
        .count();
    assert_eq!(tries, 3, "beyond 1, 2 and 4 MiB");
    faults.every(None);
    while length() > 1 << 20 {
        registry.commit(&[put(1, vec![2; 10_000])], false).unwrap();
        assert!(length() < 9 << 20, "it is tried again beyond 8 MiB");
    }
    assert_eq!(entries(&registry), Map::from([(1, vec![2; 10_000])]));
}

#[test]
fn recovery_may_be_interrupted_at_any_step() {
    let directory = memory_directory();
    let (registry, _) = Registry::open(directory.path()).unwrap();
    let mut map = Map::new();
    let log = directory.path().join("registry");
    let mut start = 0;
    for (number, (changes, _)) in workload()[..5].iter().enumerate() {
        if number == 2 {
            start = usize::try_from(fs::metadata(&log).unwrap().len()).unwrap();
        } else {
            map = with(&map, changes);
        }
        registry.commit(changes, false).unwrap();
    }
    drop(registry);
    let mut bytes = fs::read(&log).unwrap();
    bytes[start + 50] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let healthy = Faults::default();
    let (registry, said) = healthy.open(directory.path()).unwrap();
    assert_eq!((entries(&registry), said.len()), (map.clone(), 1));
    let steps = healthy.take();
    assert!(steps.len() > 5, "{steps:?}");
    for (number, step) in steps.iter().enumerate() {
        for length in [1, usize::MAX / 2] {
            let directory = memory_directory();
            fs::write(directory.path().join("registry"), &bytes).unwrap();
            let refused = Faults::at(number..number + length).open(directory.path());
            let refused = refused.map(drop).unwrap_err().to_string();
            let shown = directory.path().display().to_string();
            assert!(refused.contains(&shown), "{refused}");
            let (registry, _) = Registry::open(directory.path()).unwrap();
            assert_eq!(entries(&registry), map, "step {number} ({step:?})");
        }
    }
}
