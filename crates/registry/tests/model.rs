//! A registry against a plain map: random commits, reopening, compaction.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{Map, apply, entries, entries_unlocked, quick_directory};
use proptest::prelude::*;
use registry::{Change, Key, Registry};

#[derive(Debug, Clone)]
enum Action {
    Commit(Vec<Change>, bool),
    Reopen,
}

fn change() -> impl Strategy<Value = Change> {
    let key = (0..4_u8, 0..12_u128).prop_map(|(kind, id)| Key { kind, id });
    // Large values make the log pass the size at which it is compacted.
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 0..60_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop_oneof![
        3 => (key.clone(), value).prop_map(|(key, value)| Change::Put(key, value)),
        1 => key.prop_map(Change::Delete),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (prop::collection::vec(change(), 0..12), any::<bool>())
            .prop_map(|(changes, durable)| Action::Commit(changes, durable)),
        1 => Just(Action::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn behaves_like_a_map(actions in prop::collection::vec(action(), 1..80)) {
        let directory = quick_directory();
        let (mut registry, _) = Registry::open(directory.path()).unwrap();
        let mut map = Map::new();
        for action in actions {
            match action {
                Action::Commit(changes, durable) => {
                    registry.commit(&changes, durable).unwrap();
                    apply(&mut map, &changes);
                    for change in changes {
                        let (Change::Put(key, _) | Change::Delete(key)) = change;
                        prop_assert_eq!(registry.get(key).unwrap(), map.get(&key).cloned());
                    }
                }
                Action::Reopen => {
                    drop(registry);
                    let lost;
                    (registry, lost) = Registry::open(directory.path()).unwrap();
                    prop_assert_eq!(lost, Vec::<String>::new());
                    prop_assert_eq!(&entries(&registry), &map);
                }
            }
        }
        prop_assert_eq!(&entries(&registry), &map);
        prop_assert_eq!(entries_unlocked(directory.path()), (map, vec![]));
    }
}

#[test]
fn the_log_stays_within_twice_what_lives() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, _) = Registry::open(directory.path()).unwrap();
    let mut map = Map::new();
    let mut longest = 0;
    for round in 0..3_000_u32 {
        let key = Key {
            kind: 1,
            id: u128::from(round % 100),
        };
        let changes = [Change::Put(key, round.to_le_bytes().repeat(1_000))];
        registry.commit(&changes, false).unwrap();
        apply(&mut map, &changes);
        let length = fs::metadata(directory.path().join("registry")).unwrap();
        longest = longest.max(length.len());
    }
    assert!(
        longest < (1 << 20) + 5_000,
        "12 MB were written, and the log grew to {longest} bytes"
    );
    assert_eq!(entries(&registry), map);
    drop(registry);
    let (registry, lost) = Registry::open(directory.path()).unwrap();
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(entries(&registry), map);
}

#[test]
fn too_large_a_value_is_refused_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, _) = Registry::open(directory.path()).unwrap();
    let key = |id| Key { kind: 0, id };
    let small = Change::Put(key(1), vec![1]);
    let large = Change::Put(key(2), vec![2; registry::VALUE_BYTES_MAX + 1]);
    let refused = registry.commit(&[small.clone(), large], true).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a value of 16777217 bytes is too large for the registry, which takes up to 16777216 bytes"
    );
    let whole: Vec<_> = (0..4)
        .map(|id| Change::Put(key(id), vec![3; registry::VALUE_BYTES_MAX]))
        .collect();
    let refused = registry.commit(&whole, true).unwrap_err();
    assert!(refused.to_string().starts_with("a commit of "), "{refused}");
    assert_eq!(entries(&registry), Map::new());
    registry.commit(&[small], true).unwrap();
    registry.commit(&whole[..3], true).unwrap();
    drop(registry);
    let (registry, lost) = Registry::open(directory.path()).unwrap();
    assert_eq!(lost, Vec::<String>::new());
    assert_eq!(entries(&registry).len(), 3, "entry 1 was put again");
}
