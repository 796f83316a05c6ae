//! Following files as a service, and reading on where a run ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{Ended, Folder, gzip, millpond};
use crate::running::{Mount, Place, Service, append, ledger, numbered};

#[test]
fn a_service_stops_on_a_signal_and_goes_on_where_it_was() {
    let place = Place::new();
    append(&place.log("a.log"), &numbered("a", 0..5000));
    let mut service = place.follow();
    service.until("what is there", || place.count() == 5000);
    append(&place.log("a.log"), &numbered("a", 5000..5100));
    append(&place.log("new.log"), &numbered("new", 0..10));
    service.until("what was appended", || place.count() == 5110);
    let said = service.stop();
    assert_eq!(said.lines().count(), 1, "{said}");
    let rows = place.ledger();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["lag_bytes"], 0, "{row}");
        assert_eq!(row["position"], row["size"], "{row}");
        assert_eq!(row["in_flight_bytes"], 0, "{row}");
    }
    append(&place.log("a.log"), &numbered("a", 5100..5200));
    let mut service = place.follow();
    service.until("what was appended meanwhile", || place.count() == 5210);
    service.stop();
    place.expect_lines(&(numbered("a", 0..5200) + &numbered("new", 0..10)));
    // Nothing came twice, not even under the same id.
    assert_eq!(place.folder.read("out.ndjson").lines().count(), 5210);
}

#[test]
fn a_service_that_is_killed_again_and_again_delivers_each_line_under_one_id() {
    let place = Place::new();
    let mut written = 0;
    for round in 0..5 {
        let end = written + 20_000;
        append(&place.log("a.log"), &numbered("a", written..end));
        written = end;
        let before = place.count();
        let mut service = place.follow();
        // At another stage each time, the first times before anything was delivered.
        service.until("some of it", || {
            round < 2 || place.count() > before + round * 1000
        });
        service.kill();
    }
    let mut service = place.follow();
    service.until("the rest", || place.count() == written);
    service.stop();
    place.expect_lines(&numbered("a", 0..written));
    assert_eq!(place.ledger()[0]["position"], place.ledger()[0]["size"]);
}

/// With fewer descriptors than files are kept open by default, and with hardly any.
#[test]
fn few_descriptors_lose_no_line() {
    const FILES: usize = 300;
    for limit in [256, 60] {
        let place = Place::new();
        let write = |numbers: std::ops::Range<usize>| {
            for file in 0..FILES {
                let name = format!("f{file}");
                append(
                    &place.log(&format!("{name}.log")),
                    &numbered(&name, numbers.clone()),
                );
            }
        };
        write(0..2);
        let mut command = std::process::Command::new("prlimit");
        command
            .arg(format!("--nofile={limit}:{limit}"))
            .arg(env!("CARGO_BIN_EXE_millpond"))
            .args(["run", &place.yaml("follow: true")]);
        let mut service = Service::spawn(&place.folder, command);
        service.until("what is there", || place.count() == FILES * 2);
        write(2..3);
        service.until("what was appended", || place.count() == FILES * 3);
        let said = service.stop();
        assert!(!said.contains("has disappeared"), "{said}");
        for row in place.ledger() {
            assert_eq!(row["lag_bytes"], 0, "{row}");
        }
    }
}

/// Runs a one-line pipeline that remembers.
fn remembering(pipeline: &str, data: &str) -> Ended {
    millpond(&["run", pipeline, "--data-dir", data])
}

#[test]
fn a_one_line_pipeline_gives_only_what_is_new() {
    let folder = Folder::new();
    let (log, data) = (folder.path("x.log"), folder.path("data"));
    let pipeline = format!("file {log} {log}.gz | stdout codec=text");
    append(&log, "one\ntwo\nhal");
    std::fs::write(format!("{log}.gz"), gzip(b"packed\n")).expect("written");
    let ended = remembering(&pipeline, &data).expect(0);
    assert!(ended.out.starts_with("one\ntwo\n"), "{}", ended.out);
    assert!(ended.out.contains("packed\n"), "{}", ended.out);
    let first = ended.out.lines().count();
    let ended = remembering(&pipeline, &data).expect(0);
    assert_eq!(ended.out, "");
    let nothing_new = "input file: nothing new: 2 files were already read to the end by an earlier run with this data directory\n";
    assert_eq!(ended.err, nothing_new);
    append(&log, "f\nthree\n");
    let ended = remembering(&pipeline, &data).expect(0);
    // Half a line at the end of a file that is read once is given; its rest is a line then.
    let expected = if first == 4 {
        "f\nthree\n"
    } else {
        "half\nthree\n"
    };
    assert_eq!((ended.out.as_str(), ended.err.as_str()), (expected, ""));
}

#[test]
fn what_head_leaves_out_is_accounted_for() {
    let folder = Folder::new();
    let (log, data) = (folder.path("x.log"), folder.path("data"));
    append(&log, &numbered("x", 0..100_000));
    let head = format!("file {log} | head 10 | stdout codec=text");
    let ended = remembering(&head, &data).expect(0);
    assert_eq!(ended.out, numbered("x", 0..10));
    // The next run goes on behind what was delivered, or dropped by `head` together with it. What is not acknowledged by
    // then comes again.
    let row = &ledger(&data)[0];
    let dropped: u64 = row["dropped"]
        .as_array()
        .expect("a list")
        .iter()
        .inspect(|dropped| assert_eq!(dropped["reason"], "head", "{row}"))
        .filter_map(|dropped| dropped["events"].as_u64())
        .sum();
    let delivered = row["acknowledged_events"].as_u64().expect("a number");
    assert!(delivered <= 10, "{row}");
    let rest = remembering(&format!("file {log} | stdout codec=text"), &data).expect(0);
    let left = usize::try_from(delivered + dropped).expect("few");
    assert_eq!(rest.out, numbered("x", left..100_000));
}

#[test]
fn what_cannot_be_written_is_not_acknowledged() {
    let Some(disk) = Mount::memory("128k") else {
        return;
    };
    let place = Place::new();
    append(&place.log("a.log"), &numbered("a", 0..100));
    let yaml = place.yaml("follow: true");
    let out = disk.path("out.ndjson");
    let text = place.folder.read("service.yaml");
    let text = text.replace(&place.folder.path("out.ndjson"), &out);
    place.folder.write("service.yaml", text);
    let delivered = || {
        let lines = std::fs::read_to_string(&out).unwrap_or_default();
        lines.matches('\n').count()
    };
    let mut service = Service::start(&place.folder, &["run", &yaml]);
    service.until("what is there", || delivered() == 100);
    service.until("the position", || {
        place
            .ledger()
            .first()
            .is_some_and(|row| row["acknowledged_events"] == 100)
    });
    let position = place.ledger()[0]["position"].clone();
    let filler = disk.fill();
    append(&place.log("a.log"), &numbered("a", 100..200));
    service.until_said("No space left");
    service.until("the ledger", || place.ledger()[0]["read_events"] != 100);
    let row = &place.ledger()[0];
    assert_eq!(
        (&row["position"], &row["acknowledged_events"]),
        (&position, &100.into())
    );
    service.kill();
    std::fs::remove_file(filler).expect("removed");
    let mut service = Service::start(&place.folder, &["run", &yaml]);
    service.until("the rest", || delivered() >= 200);
    service.stop();
    let _ = std::fs::copy(&out, place.folder.path("out.ndjson"));
    place.expect_lines(&numbered("a", 0..200));
}

/// Checks that nothing was said but the stop and true losses: of short-lived files that were deleted when their size was
/// known and before they were read. Whether that happens to one of them is a matter of microseconds.
fn expect_losses_told(said: &str, delivered: &BTreeMap<String, String>) {
    let mut lines: Vec<&str> = said.lines().collect();
    let last = lines.pop().expect("it tells of the stop");
    assert!(last.starts_with("SIGTERM"), "{said}");
    let mut lost = BTreeSet::new();
    for line in lines {
        let (_, file) = line.rsplit_once("/logs/").expect("it names a file");
        let (name, loss) = file.split_once(".log: ").expect("it names a file");
        let event = match name.split('-').collect::<Vec<_>>()[..] {
            ["short" | "moved", number, part] => format!("short {number} {part}"),
            _ => panic!("only short-lived files are lost: {line}"),
        };
        let bytes = event.len() + 1;
        let expected = format!(
            "has disappeared (deleted, or renamed to a name that `paths` does not match), and {bytes} bytes of it were not read"
        );
        assert_eq!(loss, expected);
        assert!(
            delivered.values().all(|line| *line != event),
            "it was read: {line}"
        );
        assert!(lost.insert(event), "told twice: {line}");
    }
}

#[test]
fn files_that_come_and_go_disturb_nobody() {
    let place = Place::new();
    let mut service = place.follow();
    append(&place.log("steady.log"), "steady line 0\n");
    service.until("the first line", || place.count() == 1);
    let begin = Instant::now();
    let mut steady = 1;
    for number in 0.. {
        if begin.elapsed() > Duration::from_secs(3) {
            break;
        }
        for part in 0..20 {
            let path = place.log(&format!("short-{number}-{part}.log"));
            std::fs::write(&path, format!("short {number} {part}\n")).expect("written");
            if part % 2 == 0 {
                std::fs::remove_file(&path).expect("removed");
            } else {
                std::fs::rename(&path, place.log(&format!("moved-{number}-{part}.log")))
                    .expect("renamed");
                let _ = std::fs::remove_file(place.log(&format!("moved-{number}-{part}.log")));
            }
        }
        append(
            &place.log("steady.log"),
            &numbered("steady", steady..steady + 1),
        );
        append(
            &place.log(&format!("stays-{number}.log")),
            &numbered("stays", number..number + 1),
        );
        steady += 1;
    }
    let stays = steady - 1;
    service.until("what stays", || {
        let delivered = place.delivered();
        let of = |name: &str| {
            delivered
                .values()
                .filter(|line| line.starts_with(name))
                .count()
        };
        of("stays") == stays && of("steady") == steady
    });
    let said = service.stop();
    let delivered = place.delivered();
    expect_losses_told(&said, &delivered);
    let whole = delivered.values().filter(|line| line.starts_with("stays"));
    assert_eq!(whole.count(), stays, "each once");
    assert!(!Path::new(&place.data).join("registry.tmp").exists());
}

#[test]
fn what_is_not_there_yet_is_reported_once() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("empty")).expect("created");
    let yaml = format!(
        "pipelines:\n  one:\n    input: {{ file: {{ paths: [{0}/missing.log, {0}/empty, {0}/none/*.log, {0}/here.log] }} }}\n    output: {{ file: {0}/out.ndjson }}\n",
        folder.path("").trim_end_matches('/')
    );
    folder.write("here.log", "one\n");
    let path = folder.write("p.yaml", yaml);
    let checked = millpond(&["check", &path]).expect(0);
    let mut service = Service::start(&folder, &["run", &path]);
    service.until("it runs", || {
        Path::new(&folder.path("out.ndjson")).exists() && !folder.read("out.ndjson").is_empty()
    });
    std::fs::write(folder.path("missing.log"), "two\n").expect("written");
    service.until("the file is read", || {
        folder.read("out.ndjson").lines().count() == 2
    });
    let said = service.stop();
    for part in [
        "missing.log: no such file",
        "empty: no files in this folder",
        "no file matches",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{part} in {said}");
        assert_eq!(
            checked.err.matches(part).count(),
            1,
            "{part} in {}",
            checked.err
        );
    }
    assert_eq!(said.matches("yet; waiting for it").count(), 3, "{said}");
    assert!(!said.contains("here.log"), "{said}");
}

/// Each file is a little longer than what is read of it in one go, so that the read that crosses that place is a short one. Those that wait for
/// their turn in this moment hold no memory: the others need it.
#[test]
fn many_files_are_read_with_little_memory() {
    const FILES: usize = 20;
    const LINES: usize = 22_000;
    let place = Place::new();
    let line = format!("{:x<199}\n", "a line");
    for number in 0..FILES {
        std::fs::write(place.log(&format!("{number}.log")), line.repeat(LINES)).expect("written");
    }
    let out = place.folder.path("out.ndjson");
    let yaml = format!(
        "max_memory_bytes: 1MiB\npipelines:\n  one:\n    input:\n      file: {{ paths: ['{}'], follow: true }}\n    outputs:\n      - file: {{ path: '{out}', codec: text }}\n",
        place.log("*")
    );
    let yaml = place.folder.write("service.yaml", yaml);
    let mut service = Service::start(&place.folder, &["run", &yaml]);
    let bytes = (FILES * LINES * line.len()) as u64;
    service.until("everything is delivered", || {
        std::fs::metadata(&out).is_ok_and(|data| data.len() == bytes)
    });
    service.stop();
}
