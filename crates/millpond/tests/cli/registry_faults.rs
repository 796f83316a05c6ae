//! What happens to a run when its data directory fails: damaged, of a newer version, shared, on a full disk.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::program::{Folder, millpond};
use crate::running::{Mount, Place, Service, append, numbered};

/// A way to spoil a file.
type Spoil = (&'static str, fn(Vec<u8>) -> Vec<u8>);

/// What may happen to a registry.
const SPOILS: [Spoil; 11] = [
    ("cut in the middle", |mut bytes| {
        bytes.truncate(bytes.len() / 2);
        bytes
    }),
    ("cut inside its first frame", |mut bytes| {
        bytes.truncate(50);
        bytes
    }),
    ("cut inside its header", |mut bytes| {
        bytes.truncate(10);
        bytes
    }),
    ("one byte short", |mut bytes| {
        bytes.pop();
        bytes
    }),
    ("empty", |_| Vec::new()),
    ("a bit flipped in its header", |mut bytes| {
        bytes[3] ^= 1;
        bytes
    }),
    ("a bit flipped in the middle", |mut bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        bytes
    }),
    ("a bit flipped at its end", |mut bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 0x80;
        bytes
    }),
    ("zeros in the middle", |mut bytes| {
        let third = bytes.len() / 3;
        bytes[third..third * 2].fill(0);
        bytes
    }),
    ("zeros alone", |bytes| vec![0; bytes.len()]),
    ("something else", |bytes| {
        b"what is this?"
            .iter()
            .copied()
            .cycle()
            .take(bytes.len())
            .collect()
    }),
];

fn registry(place: &Place) -> String {
    format!("{}/registry", place.data)
}

/// A place whose files were read in several runs, and then written to.
fn with_history() -> (Place, String) {
    let place = Place::new();
    let mut written = String::new();
    for run in 0..4 {
        for name in ["a", "b", "c"] {
            let lines = numbered(name, run * 100..(run + 1) * 100);
            append(&place.log(name), &lines);
            written.push_str(&lines);
        }
        if run < 3 {
            place.read_once().expect(0);
        }
    }
    (place, written)
}

#[test]
fn a_damaged_registry_is_told_of_and_nothing_is_passed_over() {
    for (how, spoil) in SPOILS {
        let (place, written) = with_history();
        let bytes = std::fs::read(registry(&place)).expect("read");
        std::fs::write(registry(&place), spoil(bytes)).expect("written");
        let ended = place.read_once().expect(0);
        assert!(
            ended.err.starts_with("warning: ") && ended.err.lines().count() == 1,
            "{how}: {:?}",
            ended.err
        );
        assert!(
            ended.err.contains(&registry(&place)),
            "{how}: {}",
            ended.err
        );
        // What was read before may come again, under another id.
        let messages: BTreeSet<String> = place.delivered().into_values().collect();
        let expected: BTreeSet<String> = written.lines().map(str::to_owned).collect();
        assert_eq!(messages, expected, "{how}");
        let before = place.count();
        let ended = place.read_once().expect(0);
        assert!(
            ended.err.contains("nothing new") && ended.err.lines().count() == 1,
            "{how}: {}",
            ended.err
        );
        assert_eq!(place.count(), before, "{how}");
        let rows = place.ledger();
        assert!(
            rows.iter().all(|row| row["lag_bytes"] == 0),
            "{how}: {rows:?}"
        );
    }
}

#[test]
fn a_registry_of_a_newer_version_is_refused_and_left_alone() {
    let (place, _) = with_history();
    let mut bytes = std::fs::read(registry(&place)).expect("read");
    // Magic, version, zero, the log's number, then the CRC of these.
    bytes[8] += 1;
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.sum().to_le_bytes());
    std::fs::write(registry(&place), &bytes).expect("written");
    let before = place.count();
    let files = ["files", "--data-dir", &place.data];
    for ended in [place.read_once(), millpond(&files)] {
        let ended = ended.expect(2);
        assert!(ended.err.contains("has version 2"), "{}", ended.err);
        assert!(ended.err.contains(&registry(&place)), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    assert_eq!(std::fs::read(registry(&place)).expect("read"), bytes);
    assert_eq!(place.count(), before);
}

#[test]
fn a_second_instance_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    append(&place.log("a.log"), &numbered("a", 0..100));
    let mut service = place.follow();
    service.until("what is there", || place.count() == 100);
    let second = [
        "run",
        &format!("file {} | stdout", place.log("a.log")),
        "--data-dir",
        &place.data,
    ];
    let refused = millpond(&second).expect(2);
    let said = format!(
        "the data directory {} is in use by process {}",
        place.data,
        service.id()
    );
    assert!(refused.err.contains(&said), "{}", refused.err);
    assert_eq!((refused.out.as_str(), refused.err.lines().count()), ("", 1));
    append(&place.log("a.log"), &numbered("a", 100..200));
    service.until("more", || place.count() == 200);
    assert_eq!(service.said(), "");
    service.kill();
    append(&place.log("a.log"), &numbered("a", 200..300));
    let ended = place.read_once().expect(0);
    assert_eq!(ended.err, "");
    place.expect_lines(&numbered("a", 0..300));
}

#[test]
fn a_data_directory_that_cannot_be_used_is_named() {
    let folder = Folder::new();
    let log = folder.write("x.log", "x\n");
    let file = folder.write("file", "x");
    for (directory, said) in [
        (file.clone(), "is not a directory"),
        (format!("{file}/below"), "Not a directory"),
        (
            "/proc/millpond".to_owned(),
            "cannot create the data directory",
        ),
    ] {
        let pipeline = format!("file {log} | stdout");
        let ended = millpond(&["run", &pipeline, "--data-dir", &directory]).expect(2);
        assert!(
            ended.err.contains(said) && ended.err.contains(&directory),
            "{}",
            ended.err
        );
        assert!(ended.err.starts_with("error: "), "{}", ended.err);
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1));
        // The cause is named once.
        let cause = ended.err.trim_end().rsplit(": ").next().expect("a cause");
        assert_eq!(ended.err.matches(cause).count(), 1, "{}", ended.err);
    }
}

/// Files, so many that what is to be remembered of all does not fit into what is left of the registry's last page.
const MANY: usize = 30;

/// Appends to every file `NAME-N.log`.
fn append_to_many(place: &Place, name: &str, lines: std::ops::Range<usize>) -> String {
    let mut all = String::new();
    for number in 0..MANY {
        let lines = numbered(&format!("{name}-{number}"), lines.clone());
        append(&place.log(&format!("{name}-{number}.log")), &lines);
        all.push_str(&lines);
    }
    all
}

/// Waits until so many lines begin so.
fn until_delivered(service: &mut Service, place: &Place, name: &str, count: usize) {
    service.until(&format!("{count} lines of {name}"), || {
        let delivered = place.delivered();
        let of_name = delivered.values().filter(|line| line.starts_with(name));
        of_name.count() == count
    });
}

#[test]
fn a_service_outlives_a_full_data_directory() {
    let Some(disk) = Mount::memory("512k") else {
        return;
    };
    let place = Place::with_data(disk.path("data"));
    let mut written = append_to_many(&place, "known", 0..10);
    let mut service = place.follow();
    until_delivered(&mut service, &place, "known", MANY * 10);
    let filler = disk.fill();
    // What is known goes on; new files wait.
    written.push_str(&append_to_many(&place, "new", 0..10));
    service.until_said("positions cannot be saved; new files are not read until they can be: ");
    for round in 1..4 {
        written.push_str(&append_to_many(
            &place,
            "known",
            round * 10..(round + 1) * 10,
        ));
        until_delivered(&mut service, &place, "known", MANY * (round + 1) * 10);
    }
    let of_new = || {
        let delivered = place.delivered();
        delivered
            .values()
            .filter(|line| line.starts_with("new"))
            .count()
    };
    assert!(of_new() < MANY * 10, "{} were delivered", of_new());
    assert!(
        service.said().contains("No space left"),
        "{}",
        service.said()
    );
    std::fs::remove_file(filler).expect("removed");
    service.until_said("positions can be saved again");
    until_delivered(&mut service, &place, "new", MANY * 10);
    service.until("the positions", || {
        let rows = place.ledger();
        let is_done = |row: &Value| row["position"] == row["size"];
        rows.len() == 2 * MANY && rows.iter().all(is_done)
    });
    let said = service.said();
    assert_eq!(said.matches("cannot be saved").count(), 1, "{said}");
    assert_eq!(said.matches("saved again").count(), 1, "{said}");
    // After a crash everything is known, under the ids that were delivered.
    service.kill();
    written.push_str(&append_to_many(&place, "new", 10..11));
    assert_eq!(place.read_once().expect(0).err, "");
    place.expect_lines(&written);
}

#[test]
fn a_service_that_ends_with_a_full_data_directory_delivers_again_under_the_same_ids() {
    let Some(disk) = Mount::memory("512k") else {
        return;
    };
    let place = Place::with_data(disk.path("data"));
    let mut written = append_to_many(&place, "known", 0..10);
    let mut service = place.follow();
    until_delivered(&mut service, &place, "known", MANY * 10);
    let filler = disk.fill();
    written.push_str(&append_to_many(&place, "known", 10..20));
    until_delivered(&mut service, &place, "known", MANY * 20);
    service.until_said("positions cannot be saved");
    service.kill();
    std::fs::remove_file(filler).expect("removed");
    assert_eq!(place.read_once().expect(0).err, "");
    place.expect_lines(&written);
}

/// Nothing of what becomes of files is remembered, so new ones must wait: their places are still those of others.
#[test]
fn files_that_are_rotated_beside_a_full_data_directory_keep_their_ids() {
    let Some(disk) = Mount::memory("512k") else {
        return;
    };
    let place = Place::with_data(disk.path("data"));
    let mut written = append_to_many(&place, "known", 0..10);
    let mut service = place.follow();
    until_delivered(&mut service, &place, "known", MANY * 10);
    let filler = disk.fill();
    written.push_str(&append_to_many(&place, "known", 10..20));
    until_delivered(&mut service, &place, "known", MANY * 20);
    for number in 0..MANY {
        let log = place.log(&format!("known-{number}.log"));
        let old = format!("{log}.1");
        if number % 2 == 0 {
            std::fs::rename(&log, &old).expect("renamed");
        } else {
            std::fs::copy(&log, &old).expect("copied");
            std::fs::File::create(&log).expect("truncated");
        }
    }
    written.push_str(&append_to_many(&place, "known", 20..25));
    service.until_said("new files are not read until they can be: ");
    std::thread::sleep(std::time::Duration::from_secs(1));
    service.kill();
    std::fs::remove_file(filler).expect("removed");
    let mut service = place.follow();
    until_delivered(&mut service, &place, "known", MANY * 25);
    service.until("all files to be known and read", || {
        let rows = place.ledger();
        rows.len() == MANY * 2 && rows.iter().all(|row| row["position"] == row["size"])
    });
    service.stop();
    place.expect_lines(&written);
}

#[test]
fn reading_once_with_a_full_data_directory_fails_and_loses_nothing() {
    let Some(disk) = Mount::memory("512k") else {
        return;
    };
    let place = Place::with_data(disk.path("data"));
    let mut written = append_to_many(&place, "known", 0..10);
    place.read_once().expect(0);
    let filler = disk.fill();
    written.push_str(&append_to_many(&place, "known", 10..20));
    let ended = place.read_once().expect(1);
    assert!(
        ended
            .err
            .contains("error: pipeline one: input file: file positions cannot be saved"),
        "{}",
        ended.err
    );
    place.expect_lines(&written);
    written.push_str(&append_to_many(&place, "new", 0..10));
    let ended = place.read_once().expect(1);
    let said = "error: pipeline one: input file: the ids of new files cannot be saved, so these files are not read";
    assert!(ended.err.contains(said), "{}", ended.err);
    assert!(ended.err.contains("No space left"), "{}", ended.err);
    std::fs::remove_file(filler).expect("removed");
    assert_eq!(place.read_once().expect(0).err, "");
    place.expect_lines(&written);
}

#[test]
fn a_full_disk_without_a_data_directory_is_refused() {
    let Some(disk) = Mount::memory("64k") else {
        return;
    };
    disk.fill();
    let place = Place::with_data(disk.path("data"));
    append(&place.log("a.log"), "a\n");
    let ended = place.read_once();
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    assert!(ended.err.contains("No space left"), "{}", ended.err);
    assert_eq!(place.count(), 0);
}
