//! A crash at any instant: whatever part of the log is on disk, the state is that after a whole number of commits.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{History, entries, history, key, log, open_with, put, quick_directory};
use registry::{Change, Registry};

fn random_commits(random: &mut fastrand::Rng) -> Vec<Vec<Change>> {
    let mut change = || match random.u8(..4) {
        0 => Change::Delete(key(random.u128(..6))),
        _ => {
            let value: Vec<u8> = (0..random.usize(..30)).map(|_| random.u8(..)).collect();
            put(random.u128(..6), value)
        }
    };
    (0..8)
        .map(|number| (0..=number % 4).map(|_| change()).collect())
        .collect()
}

#[test]
fn a_log_cut_anywhere_gives_the_commits_before_the_cut() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let commits = random_commits(&mut fastrand::Rng::with_seed(seed));
    let History { bytes, states } = history(&commits);
    let directory = quick_directory();
    for cut in states[0].0..=bytes.len() {
        let (map, said) = open_with(directory.path(), &bytes[..cut]);
        // Every commit that was wholly written, durable or not, so the last durable one for certain.
        let (length, expected) = states.iter().rfind(|(length, _)| *length <= cut).unwrap();
        assert_eq!(&map, expected, "cut at {cut}");
        let expected_said = match cut - length {
            0 => vec![],
            torn => vec![format!(
                "the last write to the registry {} was interrupted by a crash: its {torn} bytes were discarded",
                log(directory.path()).display()
            )],
        };
        assert_eq!(said, expected_said, "cut at {cut}");
    }
}

#[test]
fn a_leftover_of_a_compaction_is_no_obstacle() {
    let whole = history(&[vec![put(1, "old"), put(2, "two")], vec![put(1, "new")]]);
    let other = history(&[vec![put(3, "never installed")]]);
    for leftover in [&[][..], &other.bytes[..30], &other.bytes, b"garbage"] {
        let directory = tempfile::tempdir().unwrap();
        let tmp = directory.path().join("registry.tmp");
        fs::write(&tmp, leftover).unwrap();
        let (map, said) = open_with(directory.path(), &whole.bytes);
        assert_eq!(map, whole.states[2].1);
        assert_eq!(said, Vec::<String>::new());
        assert!(!tmp.exists());

        // Without a log there never was one: creating one is a rename, too.
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("registry.tmp"), leftover).unwrap();
        let (registry, said) = Registry::open(directory.path()).unwrap();
        assert_eq!(said, Vec::<String>::new());
        assert!(entries(&registry).is_empty());
    }
}
