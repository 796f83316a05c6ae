//! What the tests of the registry share.

#![allow(dead_code, reason = "not every test uses all of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use registry::{Change, Key, Registry, read};

pub type Map = HashMap<Key, Vec<u8>>;

pub fn key(id: u128) -> Key {
    Key { kind: 1, id }
}

pub fn put(id: u128, value: impl Into<Vec<u8>>) -> Change {
    Change::Put(key(id), value.into())
}

pub fn log(directory: &Path) -> PathBuf {
    directory.join("registry")
}

/// A data directory in memory where there is one: there a sync costs nothing, and some tests open thousands of logs.
pub fn quick_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Everything of the kinds the tests use.
pub fn entries(registry: &Registry) -> Map {
    let mut map = Map::new();
    for kind in 0..4 {
        registry
            .for_each(kind, &mut |id, value| {
                let twice = map.insert(Key { kind, id }, value.to_vec());
                assert_eq!(twice, None, "an entry is given once");
            })
            .unwrap();
    }
    for (key, value) in &map {
        assert_eq!(registry.get(*key).unwrap().as_ref(), Some(value));
    }
    map
}

pub fn entries_unlocked(directory: &Path) -> (Map, Vec<String>) {
    let mut map = Map::new();
    let reading = read(directory, &mut |key, value| {
        map.insert(key, value.to_vec());
    });
    (map, reading.unwrap().problems)
}

pub fn apply(map: &mut Map, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(key, value) => drop(map.insert(*key, value.clone())),
            Change::Delete(key) => drop(map.remove(key)),
        }
    }
}

/// A log with its history: bytes, and after each commit the length and the entries. The first is the empty log.
pub struct History {
    pub bytes: Vec<u8>,
    pub states: Vec<(usize, Map)>,
}

pub fn history(commits: &[Vec<Change>]) -> History {
    let directory = tempfile::tempdir().unwrap();
    let (registry, lost) = Registry::open(directory.path()).unwrap();
    assert_eq!(lost, Vec::<String>::new());
    let length = || usize::try_from(fs::metadata(log(directory.path())).unwrap().len()).unwrap();
    let mut map = Map::new();
    let mut states = vec![(length(), map.clone())];
    for changes in commits {
        registry.commit(changes, false).unwrap();
        apply(&mut map, changes);
        states.push((length(), map.clone()));
    }
    let bytes = fs::read(log(directory.path())).unwrap();
    History { bytes, states }
}

/// Opens a data directory whose log is these bytes; then checks that it takes a commit and keeps all of it.
pub fn open_with(directory: &Path, bytes: &[u8]) -> (Map, Vec<String>) {
    fs::write(log(directory), bytes).unwrap();
    let (unlocked, _) = entries_unlocked(directory);
    let (registry, lost) = Registry::open(directory).unwrap();
    let map = entries(&registry);
    assert_eq!(unlocked, map, "reading without the lock gives the same");
    let more = [Change::Put(Key { kind: 3, id: 77 }, b"more".to_vec())];
    registry.commit(&more, true).unwrap();
    drop(registry);
    let (registry, lost_then) = Registry::open(directory).unwrap();
    assert_eq!(lost_then, Vec::<String>::new(), "it was made good");
    let mut expected = map.clone();
    apply(&mut expected, &more);
    assert_eq!(entries(&registry), expected);
    (map, lost)
}
