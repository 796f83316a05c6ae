//! What is done about each failure of the disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Map, apply, entries, key, put};
use disk::simulation::{Kind, SimDisk};
use registry::{Change, Registry, RegistryError};

const KINDS: [Kind; 8] = [
    Kind::Create,
    Kind::Link,
    Kind::Rename,
    Kind::Remove,
    Kind::SyncFolder,
    Kind::Write,
    Kind::Sync,
    Kind::Cut,
];

fn open(disk: &SimDisk) -> Result<(Registry, Vec<String>), RegistryError> {
    Registry::open_on(Path::new("/data"), Arc::new(disk.clone()))
}

/// Makes all operations of that kind fail until the disk is healed.
fn fail_all(disk: &SimDisk, kind: Kind) {
    (0..100).for_each(|others| disk.fail(kind, others));
}

/// The kinds of the operations since that line of the trace that change the disk.
fn changes_of(disk: &SimDisk, from: usize) -> Vec<String> {
    let trace = disk.trace();
    let kinds = trace[from..]
        .iter()
        .filter_map(|line| line.split(' ').nth(1));
    let looks = ["Open", "Read", "Length", "List"];
    let changes = kinds.filter(|kind| !looks.contains(kind));
    changes.map(str::to_owned).collect()
}

fn length(disk: &SimDisk) -> usize {
    disk.bytes("registry").len()
}

/// Enough to compact the log twice.
fn workload() -> Vec<(Vec<Change>, bool)> {
    let commit = |round: u8| {
        let id = u128::from(round % 3);
        let mut changes = vec![put(id, vec![round; 100_000]), put(100 + id, vec![round])];
        if round.is_multiple_of(5) {
            changes.push(Change::Delete(key(100 + (id + 1) % 3)));
        }
        (changes, round.is_multiple_of(2))
    };
    (0..26).map(commit).collect()
}

#[test]
fn any_operation_may_fail_once() {
    for kind in KINDS {
        for others in 0.. {
            let disk = SimDisk::new(1);
            disk.fail(kind, others);
            let mut map = Map::new();
            if let Ok((registry, _)) = open(&disk) {
                for (changes, durable) in workload() {
                    if registry.commit(&changes, durable).is_ok() {
                        apply(&mut map, &changes);
                    }
                    assert_eq!(entries(&registry), map, "memory is as before or as after");
                }
            }
            let did_fail = disk.failures() > 0;
            let (registry, said) = open(&disk.restart()).unwrap();
            assert_eq!(entries(&registry), map, "{kind:?} {others}");
            assert!(said.is_empty(), "{kind:?} {others}: {said:?}");
            assert!(!disk.names().contains(&"registry.tmp".to_owned()) || !did_fail);
            if !did_fail {
                break;
            }
        }
    }
}

#[test]
fn after_a_failed_sync_a_durable_commit_writes_a_new_log() {
    let disk = SimDisk::new(1);
    let (registry, _) = open(&disk).unwrap();
    registry.commit(&[put(1, "1")], false).unwrap();
    fail_all(&disk, Kind::Sync);
    let refused = registry.commit(&[put(2, "2")], true).unwrap_err();
    let expected = "cannot sync the registry /data/registry: Input/output error (os error 5)";
    assert_eq!(refused.to_string(), expected);

    // Other commits go on; a durable one fails as long as the new log cannot be synced.
    registry.commit(&[put(3, "3")], false).unwrap();
    registry.commit(&[put(4, "4")], true).unwrap_err();
    disk.heal();
    fail_all(&disk, Kind::SyncFolder);
    registry.commit(&[put(4, "4")], true).unwrap_err();
    disk.heal();
    disk.start_trace();
    registry.commit(&[put(5, "5")], true).unwrap();
    let new_log = [
        "Remove",
        "Create",
        "Write",
        "Write",
        "Sync",
        "Rename",
        "SyncFolder",
    ];
    assert_eq!(
        changes_of(&disk, 0),
        [&new_log[..], &["Write", "Sync"]].concat()
    );
    let from = disk.trace().len();
    registry.commit(&[], true).unwrap();
    assert_eq!(
        changes_of(&disk, from),
        ["Sync"],
        "then the log is trusted again"
    );

    let expected: Map = [1, 3, 5]
        .map(|id: u8| (key(id.into()), id.to_string().into()))
        .into();
    assert_eq!(entries(&registry), expected);
    let (registry, said) = open(&disk.crash()).unwrap();
    assert_eq!((entries(&registry), said), (expected, vec![]));
}

#[test]
fn a_failed_compaction_is_tried_again_when_the_log_has_doubled() {
    let disk = SimDisk::new(1);
    let (registry, _) = open(&disk).unwrap();
    fail_all(&disk, Kind::Rename);
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    disk.set_hook(Some(Arc::new(move |kind, _| {
        counted.fetch_add(usize::from(kind == Kind::Rename), Ordering::Relaxed);
    })));
    while length(&disk) < 7 << 20 {
        registry.commit(&[put(1, vec![1; 10_000])], false).unwrap();
    }
    assert_eq!(tries.load(Ordering::Relaxed), 3, "beyond 1, 2 and 4 MiB");
    disk.heal();
    while length(&disk) > 1 << 20 {
        registry.commit(&[put(1, vec![2; 10_000])], false).unwrap();
        assert!(length(&disk) < 9 << 20, "it is tried again beyond 8 MiB");
    }
    assert_eq!(entries(&registry), Map::from([(key(1), vec![2; 10_000])]));
}

/// A log whose third frame is damaged, and what is left of it.
fn damaged() -> (Vec<u8>, Map) {
    let disk = SimDisk::new(1);
    let (registry, _) = open(&disk).unwrap();
    let (mut map, mut third) = (Map::new(), 0);
    for (number, (changes, _)) in workload()[..5].iter().enumerate() {
        match number {
            2 => third = length(&disk),
            _ => apply(&mut map, changes),
        }
        registry.commit(changes, false).unwrap();
    }
    let mut bytes = disk.bytes("registry");
    bytes[third + 50] ^= 1;
    (bytes, map)
}

#[test]
fn recovery_may_be_interrupted_at_any_operation() {
    let (bytes, map) = damaged();
    for operations in 0.. {
        let disk = SimDisk::new(operations);
        disk.plant("registry", bytes.clone());
        disk.stop_after(Some(operations));
        let done = open(&disk).map(|(registry, said)| {
            disk.stop_after(None);
            assert_eq!((entries(&registry), said.len()), (map.clone(), 1));
        });
        for next in [disk.copy().restart(), disk.crash()] {
            let (registry, _) = open(&next).unwrap();
            assert_eq!(entries(&registry), map, "stopped after {operations}");
        }
        match done {
            Ok(()) => break,
            Err(refused) => assert!(refused.to_string().contains("/data"), "{refused}"),
        }
    }
}

#[test]
fn a_damaged_log_is_copied_where_there_are_no_links() {
    let (bytes, map) = damaged();
    let disk = SimDisk::new(1);
    disk.plant("registry", bytes.clone());
    fail_all(&disk, Kind::Link);
    let (registry, said) = open(&disk).unwrap();
    assert_eq!(entries(&registry), map);
    assert!(
        said[0].ends_with("kept as /data/registry.damaged.1"),
        "{said:?}"
    );
    assert_eq!(disk.bytes("registry.damaged.1"), bytes);
}
