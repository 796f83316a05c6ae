//! The simulated disk loses what it may lose, and nothing else.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::simulation::{Kind, SimDisk};
use disk::{PAGE, Storage};
use parking_lot::Mutex;

const SEEDS: u64 = 200;

fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE]
}

/// What is found after a crash, over many seeds.
fn outcomes<T: Ord>(scenario: impl Fn(&SimDisk), found: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let outcome = |seed| {
        let disk = SimDisk::new(seed);
        scenario(&disk);
        found(&disk.crash())
    };
    (0..SEEDS).map(outcome).collect()
}

fn first_bytes(disk: &SimDisk) -> Vec<u8> {
    let bytes = disk.bytes("x");
    bytes.chunks(PAGE).map(|page| page[0]).collect()
}

#[test]
fn what_was_synced_survives() {
    let scenario = |disk: &SimDisk| {
        let file = disk.create("x", 0).unwrap();
        file.write_at(&page(1), 0).unwrap();
        file.write_at(&page(2), PAGE as u64).unwrap();
        file.sync().unwrap();
        disk.sync_folder("").unwrap();
    };
    let found = outcomes(scenario, |disk| disk.bytes("x"));
    assert_eq!(found, BTreeSet::from([[page(1), page(2)].concat()]));
}

#[test]
fn any_subset_of_unsynced_pages_survives() {
    let scenario = |disk: &SimDisk| {
        let file = disk.create("x", 2 * PAGE as u64).unwrap();
        file.sync().unwrap();
        disk.sync_folder("").unwrap();
        file.write_at(&[page(1), page(2)].concat(), 0).unwrap();
    };
    let found = outcomes(scenario, first_bytes);
    assert_eq!(
        found,
        [[0, 0], [0, 2], [1, 0], [1, 2]].map(Vec::from).into()
    );
    let torn = outcomes(scenario, |disk| {
        let bytes = disk.bytes("x");
        bytes[..PAGE].iter().filter(|byte| **byte == 1).count()
    });
    assert!(torn.len() > 5 && torn.iter().all(|count| count % 512 == 0));
}

#[test]
fn an_overwritten_page_is_any_of_its_versions() {
    let scenario = |disk: &SimDisk| {
        let file = disk.create("x", 0).unwrap();
        disk.sync_folder("").unwrap();
        for version in 1..=3 {
            file.write_at(&page(version), 0).unwrap();
            if version == 1 {
                file.sync().unwrap();
            }
        }
    };
    let found = outcomes(scenario, first_bytes);
    assert_eq!(found, [[1], [2], [3]].map(Vec::from).into());
}

#[test]
fn lengths_are_any_since_the_sync() {
    let scenario = |disk: &SimDisk| {
        let file = disk.create("x", 8 * PAGE as u64).unwrap();
        file.write_at(&page(1), 0).unwrap();
        file.write_at(&page(2), 4 * PAGE as u64).unwrap();
        file.sync().unwrap();
        disk.sync_folder("").unwrap();
        file.cut(2 * PAGE as u64).unwrap();
        file.write_at(&page(3), 5 * PAGE as u64).unwrap();
    };
    let found = outcomes(scenario, first_bytes);
    assert!(found.contains(&vec![1, 0, 0, 0, 2, 0, 0, 0]));
    assert!(found.contains(&vec![1, 0]));
    assert!(found.contains(&vec![1, 0, 0, 0, 0, 3]));
    assert!(found.iter().all(|pages| pages[0] == 1));
    // Once synced, what was cut off does not come back.
    let scenario = |disk: &SimDisk| {
        scenario(disk);
        disk.open("x").unwrap().sync().unwrap();
    };
    let found = outcomes(scenario, first_bytes);
    assert_eq!(found, BTreeSet::from([vec![1, 0, 0, 0, 0, 3]]));
}

#[test]
fn names_are_undone_in_any_subset() {
    let scenario = |disk: &SimDisk| {
        for name in ["kept", "gone"] {
            disk.create(name, 0).unwrap();
        }
        disk.sync_folder("").unwrap();
        disk.make_folder("q").unwrap();
        disk.remove("gone").unwrap();
        disk.create("new", 0).unwrap().sync().unwrap();
        disk.rename("kept", "q/kept").unwrap();
    };
    let found = outcomes(scenario, SimDisk::names);
    assert_eq!(found.len(), 8, "{found:?}");
    for names in found {
        let kept = names.iter().filter(|name| name.ends_with("kept")).count();
        assert_eq!(kept, 1, "a renamed file has one of its names");
    }
    let synced = |disk: &SimDisk| {
        scenario(disk);
        disk.sync_folder("").unwrap();
    };
    let found = outcomes(synced, SimDisk::names);
    let expected = ["new", "q/kept"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from([expected.to_vec()]));
}

#[test]
fn after_a_failed_sync_pages_are_lost_unseen() {
    let scenario = |disk: &SimDisk| {
        let file = disk.create("x", PAGE as u64).unwrap();
        file.sync().unwrap();
        disk.sync_folder("").unwrap();
        file.write_at(&page(1), 0).unwrap();
        disk.fail(Kind::Sync, 0);
        file.sync().unwrap_err();
        assert_eq!(disk.bytes("x"), page(1));
        // It says that all is well.
        file.sync().unwrap();
        assert_eq!(disk.bytes("x"), page(1));
    };
    let found = outcomes(scenario, first_bytes);
    assert_eq!(found, [[0], [1]].map(Vec::from).into());
}

#[test]
fn a_process_that_ends_loses_nothing() {
    let disk = SimDisk::new(1);
    let file = disk.create("x", 0).unwrap();
    file.write_at(&page(1), 0).unwrap();
    let next = disk.restart();
    assert_eq!(next.bytes("x"), page(1));
    assert!(file.len().is_err() && disk.list("").is_err());
}

#[test]
fn room_is_counted_with_what_is_reserved() {
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        disk.set_capacity(Some(10 * PAGE));
        let reserved = disk.create("x", 6 * PAGE as u64).unwrap();
        let refused = disk.create("y", 5 * PAGE as u64).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert_eq!(disk.names(), ["x"]);
        assert_eq!(disk.free().unwrap(), 4 * PAGE as u64);
        let grown = disk.create("y", 0).unwrap();
        let refused = grown.write_at(&vec![7; 5 * PAGE], 0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert!(grown.len().unwrap() <= 4 * PAGE as u64);
        // Reserved room is there, whatever else takes.
        reserved.write_at(&vec![7; 6 * PAGE], 0).unwrap();
        reserved.cut(PAGE as u64).unwrap();
        grown.write_at(&vec![7; 5 * PAGE], 0).unwrap();
        disk.remove("y").unwrap();
        assert_eq!(disk.used(), PAGE);
    }
}

#[test]
fn the_machine_stops_where_it_is_told() {
    let disk = SimDisk::new(1);
    disk.start_trace();
    disk.stop_after(Some(2));
    let file = disk.create("x", 0).unwrap();
    file.write_at(&page(1), 0).unwrap();
    assert!(!disk.is_down());
    file.sync().unwrap_err();
    assert!(disk.is_down());
    file.len().unwrap_err();
    assert_eq!(disk.operations(), 2);
    assert_eq!(disk.crash().trace().len(), 4, "{:?}", disk.trace());
}

#[test]
fn planned_operations_fail() {
    let disk = SimDisk::new(1);
    let file = disk.create("x", 0).unwrap();
    disk.fail(Kind::Read, 1);
    disk.fail(Kind::Create, 0);
    file.read_at(&mut [0], 0).unwrap();
    assert_eq!(
        file.read_at(&mut [0], 0).unwrap_err().raw_os_error(),
        Some(5)
    );
    file.read_at(&mut [0], 0).unwrap();
    disk.create("y", 0).unwrap_err();
    assert_eq!(disk.names(), ["x"]);
}

#[test]
fn flipped_bits_stay() {
    let disk = SimDisk::new(1);
    disk.plant("q/x", page(0));
    disk.flip("q/x", 100, 3);
    assert_eq!(disk.bytes("q/x")[100], 8);
    assert_eq!(disk.crash().bytes("q/x")[100], 8);
}

#[test]
fn the_hook_may_use_the_disk() {
    let disk = SimDisk::new(1);
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    disk.set_hook(Some(Arc::new({
        let (disk, calls, seen) = (disk.clone(), calls.clone(), seen.clone());
        move |kind, _| {
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                seen.lock().push((kind, disk.names()));
                disk.create("within", 0).unwrap();
            }
        }
    })));
    disk.create("x", 0).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(*seen.lock(), [(Kind::Create, Vec::new())]);
    assert_eq!(disk.names(), ["within", "x"]);
}
