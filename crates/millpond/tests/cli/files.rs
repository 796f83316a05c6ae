//! `millpond files`.

use std::time::{Duration, Instant};

use crate::program::{Folder, gzip, millpond};
use crate::running::{Place, append, ledger, numbered};

/// What every object holds, in this order.
const FIELDS: [&str; 21] = [
    "pipeline",
    "input",
    "path",
    "id",
    "device",
    "inode",
    "size",
    "position",
    "lag_bytes",
    "lag_seconds",
    "read_bytes",
    "acknowledged_bytes",
    "dropped_bytes",
    "in_flight_bytes",
    "read_events",
    "acknowledged_events",
    "dead_letters",
    "dropped",
    "in_flight_events",
    "state",
    "checkpoints",
];

#[test]
fn every_file_is_an_object_a_line_sorted_by_path() {
    let place = Place::new();
    std::fs::write(place.log("b.log"), numbered("b", 0..100)).expect("written");
    std::fs::write(
        place.log("a.log.1.gz"),
        gzip(numbered("a", 0..50).as_bytes()),
    )
    .expect("written");
    std::fs::write(place.log("a.log"), "\nkept\n\n").expect("written");
    place.read_once().expect(0);
    let rows = place.ledger();
    let paths: Vec<&str> = rows.iter().filter_map(|row| row["path"].as_str()).collect();
    let expected = ["a.log", "a.log.1.gz", "b.log"].map(|name| place.log(name));
    assert_eq!(paths, expected);
    for row in &rows {
        let fields: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(fields, FIELDS);
        assert_eq!(row["pipeline"], "one");
        assert_eq!(row["input"], "file");
        assert_eq!(row["lag_bytes"], 0);
    }
    let bytes = numbered("b", 0..100).len();
    assert_eq!(rows[2]["position"], bytes);
    assert_eq!(rows[2]["size"], bytes);
    assert_eq!(rows[2]["acknowledged_events"], 100);
    assert_eq!(rows[1]["position"], numbered("a", 0..50).len());
    assert_eq!(rows[1]["state"], "done");
    let id = rows[2]["id"].as_str().expect("text");
    let of_b = place.delivered();
    let of_b = of_b.iter().filter(|(_, message)| message.starts_with("b "));
    assert!(of_b.clone().all(|(event, _)| event.starts_with(id)));
    assert_eq!(of_b.count(), 100);
}

#[test]
fn what_was_dropped_is_counted_with_the_reason() {
    let folder = Folder::new();
    let log = folder.write("x.log", "keep 1\ndrop 22\nkeep 3\nleft out\n");
    let data = folder.path("data");
    let pipeline =
        format!("file {log} exclude_lines='^left' | where message.startsWith(\"keep\") | stdout");
    let ended = millpond(&["run", &pipeline, "--data-dir", &data]).expect(0);
    assert_eq!(ended.events().len(), 2);
    let row = &ledger(&data)[0];
    assert_eq!(row["read_events"], 4, "{row}");
    assert_eq!(row["acknowledged_events"], 2, "{row}");
    assert_eq!(row["acknowledged_bytes"], 14, "{row}");
    let dropped = |reason: &str| {
        let all = row["dropped"].as_array().expect("a list");
        let one = all.iter().find(|dropped| dropped["reason"] == reason);
        let one = one.unwrap_or_else(|| panic!("{reason}: {row}"));
        (one["events"].as_u64(), one["bytes"].as_u64())
    };
    assert_eq!(dropped("where"), (Some(1), Some(8)));
    assert_eq!(dropped("exclude_lines"), (Some(1), Some(9)));
    let table = millpond(&["files", "--data-dir", &data]).expect(0).out;
    let line = table.lines().nth(1).expect("a row");
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        cells[..5],
        [log.as_str(), "idle", "31", "31", "0"],
        "{table}"
    );
    assert_eq!(cells[5..], ["4", "2", "2", "0", "0", "0"], "{table}");
}

#[test]
fn a_run_that_uses_the_directory_is_named_and_not_disturbed() {
    let place = Place::new();
    append(&place.log("a.log"), &numbered("a", 0..1000));
    let mut service = place.follow();
    service.until("what is there", || place.count() == 1000);
    let user = format!("in use by process {}", service.id());
    // Positions are written every second.
    service.until("the position", || {
        let table = millpond(&["files", "--data-dir", &place.data]);
        table.code == Some(0) && {
            assert!(table.out.contains(&user), "{}", table.out);
            place
                .ledger()
                .first()
                .is_some_and(|row| row["acknowledged_events"] == 1000)
        }
    });
    assert_eq!(place.ledger()[0]["state"], "open");
    append(&place.log("a.log"), &numbered("a", 1000..2000));
    service.until("more", || {
        place.ledger();
        place.count() == 2000
    });
    assert_eq!(service.stop().lines().count(), 1, "nothing but the signal");
    let table = millpond(&["files", "--data-dir", &place.data])
        .expect(0)
        .out;
    assert!(
        table.ends_with("1 file, 2,000 events read, 2,000 acknowledged, lag 0 bytes; not in use\n"),
        "{table}"
    );
    let rows = place.ledger();
    assert_eq!(rows[0]["state"], "idle");
    assert_eq!(rows[0]["in_flight_events"], 0);
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let folder = Folder::new();
    let file = folder.write("file", "x");
    std::fs::create_dir(folder.path("empty")).expect("made");
    for (directory, said) in [
        (
            folder.path("missing"),
            "there is no registry in the data directory",
        ),
        (
            folder.path("empty"),
            "there is no registry in the data directory",
        ),
        (file, "is not a directory"),
    ] {
        let ended = millpond(&["files", "--data-dir", &directory]).expect(2);
        assert!(
            ended.err.contains(said) && ended.err.contains(&directory),
            "{}",
            ended.err
        );
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1));
    }
    assert!(!std::path::Path::new(&folder.path("missing")).exists());
    let ended = millpond(&["files"]).expect(2);
    assert!(ended.err.contains("--data-dir <DIR>"), "{}", ended.err);
}

#[test]
fn a_damaged_registry_is_read_as_far_as_it_can_be() {
    let place = Place::new();
    for name in ["a", "b"] {
        append(&place.log(name), &numbered(name, 0..10));
        place.read_once().expect(0);
    }
    let registry = format!("{}/registry", place.data);
    let mut bytes = std::fs::read(&registry).expect("read");
    let last = bytes.len() - 1;
    let middle = last / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&registry, &bytes).expect("written");
    let ended = millpond(&["files", "--data-dir", &place.data, "--json"]).expect(0);
    assert!(
        ended.err.starts_with("warning: the registry") && ended.err.contains("was damaged"),
        "{}",
        ended.err
    );
    assert!(!ended.events().is_empty(), "{}", ended.err);
    assert_eq!(std::fs::read(&registry).expect("read"), bytes, "untouched");
    std::fs::write(&registry, vec![7; 5000]).expect("written");
    let ended = millpond(&["files", "--data-dir", &place.data]).expect(0);
    assert!(
        ended.err.contains("contained nothing readable"),
        "{}",
        ended.err
    );
    assert!(ended.out.contains("0 files"), "{}", ended.out);
}

#[test]
fn ten_thousand_files_are_listed_at_once() {
    let place = Place::new();
    for number in 0..10_000 {
        // Unlike the order in which they are made.
        let name = format!("{:05}.log", number * 7919 % 10_000);
        std::fs::write(place.log(&name), format!("line of {number}\n")).expect("written");
    }
    let ended = millpond(&["run", &place.yaml("follow: false"), "--metrics"]).expect(0);
    assert!(ended.err.lines().count() < 60, "the table stays readable");
    assert!(ended.err.contains(" more files\n"), "{}", ended.err);
    assert_eq!(place.count(), 10_000);
    let begin = Instant::now();
    let rows = millpond(&["files", "--data-dir", &place.data, "--json"]).expect(0);
    let took = begin.elapsed();
    let rows = rows.events();
    assert_eq!(rows.len(), 10_000);
    let path = |row: usize| rows[row]["path"].as_str().expect("text");
    assert!((1..rows.len()).all(|row| path(row - 1) < path(row)));
    // A release build takes 30 ms; this one is slower and shares its cores with other tests.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let begin = Instant::now();
    let table = millpond(&["files", "--data-dir", &place.data])
        .expect(0)
        .out;
    assert_eq!(table.lines().count(), 10_002);
    assert!(begin.elapsed() < Duration::from_secs(20), "{took:?}");
}
