//! Logs damaged in every way: the registry opens, says what it lost, and gives nothing that was never committed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use common::{
    History, Map, apply, entries_unlocked, history, key, log, open_with, put, quick_directory,
};
use registry::{Change, Registry, RegistryError, read};

/// Every commit leaves something of its own, so that it is seen whether it was lost.
fn commits() -> Vec<Vec<Change>> {
    vec![
        vec![put(1, "one"), put(2, "two")],
        vec![put(3, ""), put(1, "uno")],
        vec![Change::Delete(key(2)), put(4, "four")],
        vec![put(5, vec![5; 40])],
        vec![put(6, "six"), put(1, "eins"), Change::Delete(key(3))],
    ]
}

/// What all commits but one give.
fn without(lost: usize) -> Map {
    let mut map = Map::new();
    for (number, changes) in commits().iter().enumerate() {
        if number != lost {
            apply(&mut map, changes);
        }
    }
    map
}

fn damaged_copies(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("registry.damaged"))
        .collect();
    names.sort();
    names
}

struct Case {
    name: &'static str,
    damage: fn(&History) -> Vec<u8>,
    /// The number of a lost commit, if the others are all there; otherwise nothing is.
    lost: Option<usize>,
    says: &'static str,
}

/// The header ends at 24; a frame's payload begins at its 32nd byte.
const CASES: [Case; 12] = [
    Case {
        name: "zero length",
        damage: |_| Vec::new(),
        lost: None,
        says: "contained nothing readable in its 0 bytes: inputs start as if for the first time; the damaged log has been kept as ",
    },
    Case {
        name: "garbage",
        damage: |_| b"not a registry, but somebody's notes\n".repeat(9),
        lost: None,
        says: "contained nothing readable in its 333 bytes",
    },
    Case {
        name: "all zeros",
        damage: |it| vec![0; it.bytes.len()],
        lost: None,
        says: "contained nothing readable",
    },
    Case {
        name: "cut in the header",
        damage: |it| it.bytes[..23].to_vec(),
        lost: None,
        says: "contained nothing readable in its 23 bytes",
    },
    Case {
        name: "header of zeros",
        damage: |it| [&[0; 24], &it.bytes[24..]].concat(),
        lost: Some(99),
        says: "was damaged: 24 bytes were unreadable and no commit lost",
    },
    Case {
        name: "cut in a frame's header",
        damage: |it| it.bytes[..it.states[4].0 + 9].to_vec(),
        lost: Some(4),
        says: "was interrupted by a crash: its 9 bytes were discarded",
    },
    Case {
        name: "cut in a payload",
        damage: |it| it.bytes[..it.bytes.len() - 1].to_vec(),
        lost: Some(4),
        says: "was interrupted by a crash",
    },
    Case {
        name: "zeros at the end",
        damage: |it| [&it.bytes[..it.states[4].0], &[0; 5000]].concat(),
        lost: Some(4),
        says: "was interrupted by a crash: its 5000 bytes were discarded",
    },
    Case {
        name: "garbage between frames",
        damage: |it| {
            let (before, after) = it.bytes.split_at(it.states[2].0);
            [before, &b"\xF7mP\x1A garbage ".repeat(50_000), after].concat()
        },
        lost: Some(99),
        says: "was damaged: 650000 bytes were unreadable and no commit lost",
    },
    Case {
        name: "a frame of zeros",
        damage: |it| {
            let mut bytes = it.bytes.clone();
            bytes[it.states[2].0..it.states[3].0].fill(0);
            bytes
        },
        lost: Some(2),
        says: "and 1 commit lost, so inputs may read some data again",
    },
    Case {
        name: "a frame cut out",
        damage: |it| [&it.bytes[..it.states[1].0 + 7], &it.bytes[it.states[2].0..]].concat(),
        lost: Some(1),
        says: "was damaged: 7 bytes were unreadable and 1 commit lost",
    },
    Case {
        name: "garbage at the end",
        damage: |it| [&it.bytes[..it.states[4].0], &[b'x'; 100]].concat(),
        lost: Some(4),
        says: "was damaged: 100 bytes were unreadable and at least 1 commit lost",
    },
];

#[test]
fn every_damage_is_survived_and_told() {
    let history = history(&commits());
    for case in CASES {
        let directory = tempfile::tempdir().unwrap();
        let bytes = (case.damage)(&history);
        let (map, said) = open_with(directory.path(), &bytes);
        let expected = case.lost.map_or_else(Map::new, without);
        assert_eq!(map, expected, "{}", case.name);
        assert_eq!(said.len(), 1, "{}: {said:?}", case.name);
        assert!(said[0].contains(case.says), "{}: {}", case.name, said[0]);
        let is_torn = said[0].contains("by a crash");
        let copies = damaged_copies(directory.path());
        if is_torn {
            assert_eq!(copies, Vec::<String>::new(), "{}", case.name);
        } else {
            assert_eq!(copies, ["registry.damaged.1"], "{}", case.name);
            let kept = fs::read(directory.path().join(&copies[0])).unwrap();
            assert!(
                kept == bytes,
                "{}: the damaged log has been kept",
                case.name
            );
        }
    }
}

#[test]
fn any_flipped_bit_loses_at_most_its_own_commit() {
    let history = history(&commits());
    let committed: HashSet<_> = history.states.iter().flat_map(|(_, map)| map).collect();
    let directory = quick_directory();
    let mut bytes = history.bytes.clone();
    for place in 0..bytes.len() {
        // The commit whose frame holds the byte; none for the header.
        let hit = history
            .states
            .iter()
            .rposition(|(length, _)| *length <= place);
        for bit in 0..8 {
            bytes[place] ^= 1 << bit;
            fs::write(log(directory.path()), &bytes).unwrap();
            let (unlocked, _) = entries_unlocked(directory.path());
            bytes[place] ^= 1 << bit;
            assert!(unlocked.iter().all(|entry| committed.contains(&entry)));
            assert_eq!(
                unlocked,
                without(hit.unwrap_or(99)),
                "byte {place}, bit {bit}"
            );
        }
        bytes[place] ^= 0x10;
        let (map, said) = open_with(directory.path(), &bytes);
        bytes[place] ^= 0x10;
        assert_eq!(map, without(hit.unwrap_or(99)), "byte {place}");
        assert_eq!(said.len(), 1, "byte {place}: {said:?}");
    }
    let copies = damaged_copies(directory.path());
    assert_eq!(copies.len(), 3, "the newest three are kept: {copies:?}");
}

#[test]
fn a_newer_version_is_refused_and_untouched() {
    let mut bytes = history(&commits()).bytes;
    bytes[8..10].copy_from_slice(&2_u16.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(b"whatever that version holds");
    let directory = tempfile::tempdir().unwrap();
    fs::write(log(directory.path()), &bytes).unwrap();
    let refusals = [
        Registry::open(directory.path()).map(drop).unwrap_err(),
        read(directory.path(), &mut |_, _| ()).unwrap_err(),
    ];
    for refused in refusals {
        assert!(matches!(refused, RegistryError::NewerVersion { .. }));
        let path = log(directory.path());
        let expected = format!(
            "the registry {} has version 2, and this release reads up to version 1: use the release that wrote it, or \
             another data directory",
            path.display()
        );
        assert_eq!(refused.to_string(), expected);
    }
    assert!(fs::read(log(directory.path())).unwrap() == bytes);
    assert_eq!(damaged_copies(directory.path()), Vec::<String>::new());
}

#[test]
fn a_registry_within_a_value_does_not_come_to_life() {
    let foreign = history(&vec![vec![put(8, "foreign")]; 9]).bytes;
    let directory = tempfile::tempdir().unwrap();
    let (registry, _) = Registry::open(directory.path()).unwrap();
    registry.commit(&[put(1, "before")], true).unwrap();
    registry.commit(&[put(2, "present")], true).unwrap();
    registry.commit(&[put(2, "latest")], true).unwrap();
    let own = fs::read(log(directory.path())).unwrap();
    let start = own.len();
    registry
        .commit(&[put(9, [foreign, own].concat())], true)
        .unwrap();
    registry.commit(&[put(4, "after")], true).unwrap();
    drop(registry);
    let mut bytes = fs::read(log(directory.path())).unwrap();
    bytes[start + 5] ^= 1;
    let (map, said) = open_with(directory.path(), &bytes);
    let expected = [put(1, "before"), put(2, "latest"), put(4, "after")];
    let mut map_expected = Map::new();
    apply(&mut map_expected, &expected);
    assert_eq!(map, map_expected);
    assert!(said[0].contains("1 commit lost"), "{said:?}");
}

/// Reading resumes wherever the next frame begins, also across the end of what is read at a time.
#[test]
fn damage_of_any_length_ends_at_the_next_frame() {
    let history = history(&commits());
    let (before, after) = history.bytes.split_at(history.states[2].0);
    let directory = quick_directory();
    for length in (1..40).chain((256 << 10) - 40..(256 << 10) + 40) {
        let garbage = vec![0xF7; length];
        let (map, said) = open_with(directory.path(), &[before, &garbage, after].concat());
        assert_eq!(map, without(99), "{length} bytes");
        let expected = format!("was damaged: {length} bytes were unreadable and no commit lost");
        assert!(said[0].contains(&expected), "{said:?}");
    }
}
