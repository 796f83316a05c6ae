//! Locks, directories, and several threads and processes at one registry.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{entries, entries_unlocked, key, log, put};
use registry::{Registry, read};

fn refusal(directory: &Path) -> String {
    Registry::open(directory).map(drop).unwrap_err().to_string()
}

#[test]
fn the_second_instance_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // What a crash left: a number that means nothing any more, and no lock.
    fs::write(path.join("lock"), "4194304999\n").unwrap();
    let (registry, _) = Registry::open(path).unwrap();
    assert_eq!(registry.directory(), path);
    registry.commit(&[put(1, "one")], false).unwrap();
    let pid = std::process::id();
    let expected = format!(
        "the data directory {0} is in use by process {pid} (PID file {0}/lock): two instances cannot share it",
        path.display()
    );
    assert_eq!(refusal(path), expected);
    let reading = read(path, &mut |found, value| {
        assert_eq!((found, value), (key(1), &b"one"[..]));
    });
    assert_eq!(reading.unwrap().is_locked_by, Some(pid));
    drop(registry);
    let reading = read(path, &mut |_, _| ()).unwrap();
    assert_eq!((reading.is_locked_by, reading.problems), (None, vec![]));
    let (registry, _) = Registry::open(path).unwrap();
    assert_eq!(entries(&registry).len(), 1);
}

/// Every commit writes two entries alike; whoever reads at any time finds them alike.
#[test]
fn readers_see_whole_commits_also_across_compactions() {
    let directory = tempfile::tempdir().unwrap();
    let (registry, _) = Registry::open(directory.path()).unwrap();
    let commit = |round: u32| {
        let value = round.to_le_bytes().repeat(2_000);
        registry.commit(
            &[put(1, value.clone()), put(2, value)],
            round.is_multiple_of(100),
        )
    };
    commit(0).unwrap();
    let is_done = AtomicBool::new(false);
    let until_done = |read: &dyn Fn()| {
        while !is_done.load(Ordering::Relaxed) {
            read();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            until_done(&|| {
                let (map, problems) = entries_unlocked(directory.path());
                assert_eq!(problems, Vec::<String>::new());
                assert_eq!(map[&key(1)], map[&key(2)]);
            });
        });
        scope.spawn(|| {
            until_done(&|| {
                let mut values = Vec::new();
                registry
                    .for_each(1, &mut |_, value| values.push(value.to_vec()))
                    .unwrap();
                assert_eq!((values.len(), &values[0]), (2, &values[1]));
                let value = registry.get(key(1)).unwrap().unwrap();
                assert_eq!(value[..4].repeat(2_000), value);
            });
        });
        // 32 MB into a log that is compacted beyond 1 MiB.
        for round in 1..2_000 {
            commit(round).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_directory_is_created_for_its_owner_alone() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("a/b");
    drop(Registry::open(&directory).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&root.path().join("a")), 0o700);
    assert_eq!(mode(&log(&directory)), 0o600);
}

#[test]
fn what_is_no_data_directory_is_said() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let shown = root.display();
    fs::write(root.join("file"), "").unwrap();
    assert_eq!(
        refusal(&root.join("file")),
        format!("the data directory {shown}/file is not a directory")
    );
    assert_eq!(
        refusal(&root.join("file/below")),
        format!("cannot use the data directory {shown}/file/below: Not a directory (os error 20)")
    );
    fs::create_dir_all(root.join("odd/registry")).unwrap();
    assert_eq!(
        refusal(&root.join("odd")),
        format!("cannot open the registry {shown}/odd/registry: Is a directory (os error 21)")
    );
    // Nobody may create a directory there, root included.
    let refused = refusal(Path::new("/proc/registry"));
    assert!(
        refused.starts_with("cannot create the data directory /proc/registry: "),
        "{refused}"
    );
    let missing = read(&root.join("none"), &mut |_, _| ()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("there is no registry in the data directory {shown}/none")
    );
}

/// The kernel refuses a file beyond a limit as it does on a full disk: after taking a part of the write.
#[test]
fn a_full_disk_fails_the_commit_and_nothing_else() {
    if let Some(directory) = std::env::var_os("REGISTRY_TEST_FULL_DISK") {
        return fill(Path::new(&directory));
    }
    let directory = tempfile::tempdir().unwrap();
    let status = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; ulimit -f 100; exec "$@""#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_fails_the_commit_and_nothing_else"])
        .env("REGISTRY_TEST_FULL_DISK", directory.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    let (registry, said) = Registry::open(directory.path()).unwrap();
    assert_eq!(said, Vec::<String>::new());
    let map = entries(&registry);
    assert!(map.contains_key(&key(0)), "what was committed is there");
    assert_eq!(
        map[&key(1)],
        b"small",
        "also what was committed after the failure"
    );
}

fn fill(directory: &Path) {
    let (registry, _) = Registry::open(directory).unwrap();
    let mut written = common::Map::new();
    let refused = loop {
        let change = put(written.len() as u128, vec![7; 3_000]);
        match registry.commit(std::slice::from_ref(&change), false) {
            Ok(()) => common::apply(&mut written, &[change]),
            Err(refused) => break refused.to_string(),
        }
    };
    let path = log(directory);
    let expected = format!(
        "cannot write to the registry {}: File too large",
        path.display()
    );
    assert!(refused.starts_with(&expected), "{refused}");
    assert!(written.len() > 10, "the disk took some");
    assert_eq!(entries(&registry), written);
    let small = [put(1, "small")];
    registry.commit(&small, true).unwrap();
    common::apply(&mut written, &small);
    assert_eq!(entries(&registry), written);
}
