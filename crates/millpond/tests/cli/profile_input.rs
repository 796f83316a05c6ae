//! The input `profile`: sampling the whole machine needs the right to do so, which the gate has.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Folder, command, ended, millpond, run};
use crate::running::Busy;
use crate::unprivileged::Unprivileged;

const SOON: Duration = Duration::from_secs(60);

/// The events of a pipeline that samples into a file, stopped when there are events of so many intervals and `is_enough`.
fn sampled(stage: &str, intervals: usize) -> Vec<Value> {
    let folder = Folder::new();
    let path = folder.path("out.ndjson");
    let child = command(&["run", &format!("{stage} | file {path}")]).spawn();
    let child = child.expect("runs");
    let pid = child.id().to_string();
    let begin = Instant::now();
    let read = || -> Vec<Value> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    while windows(&read()).len() < intervals {
        assert!(begin.elapsed() < SOON, "{stage}: in vain waited for events");
        std::thread::sleep(Duration::from_millis(50));
    }
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let ended = ended(child.wait_with_output().expect("ends")).expect(0);
    assert!(!ended.err.contains("error"), "{}", ended.err);
    read()
}

/// When the intervals of events begin.
fn windows(events: &[Value]) -> Vec<&str> {
    let starts = events.iter().map(|event| &event["@timestamp"]);
    let mut starts: Vec<&str> = starts.filter_map(Value::as_str).collect();
    starts.dedup();
    starts
}

fn number(event: &Value, pointer: &str) -> f64 {
    let number = event.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("no {pointer} in {event}"))
}

#[test]
fn the_whole_machine_is_sampled() {
    let busy = Busy::new();
    let events = sampled("profile every=1s by=[pid, function] frequency=99", 3);
    let pid = u64::from(busy.pid());
    let of_busy = |event: &&Value| event["pid"].as_u64() == Some(pid);
    assert!(events.iter().filter(of_busy).count() > 1, "{events:?}");
    let starts = windows(&events);
    assert!(starts.len() >= 3, "{starts:?}");
    for start in starts {
        let rows: Vec<&Value> = events
            .iter()
            .filter(|event| event["@timestamp"] == start)
            .collect();
        let shares: f64 = rows.iter().map(|row| number(row, "/self/share")).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{start}: {shares}");
        assert!(rows.len() <= 101, "{start}: {}", rows.len());
        let host = rows[0].pointer("/host/name");
        assert!(host.is_some_and(Value::is_string), "{}", rows[0]);
    }
    // Only the first and the last interval may be shorter.
    let middle = windows(&events)[1];
    let row = events.iter().find(|event| event["@timestamp"] == middle);
    let seconds = number(row.expect("it is one of them"), "/window/seconds");
    assert!(seconds > 0.9, "{seconds}");
}

#[test]
fn stacks_of_a_process_are_events_and_can_be_filtered() {
    let busy = Busy::new();
    let pid = busy.pid();
    let stage = format!("profile rows=samples pid={pid} every=1s | where process == \"sh\"");
    let events = sampled(&stage, 2);
    for event in &events {
        assert_eq!(event["pid"].as_u64(), Some(u64::from(pid)), "{event}");
        let stack = event["stack"].as_array().expect("a list");
        assert_eq!(stack.last(), Some(&event["function"]), "{event}");
        assert!(number(event, "/samples") >= 1.0);
    }
}

#[test]
fn the_last_interval_is_sent_on_a_stop() {
    let folder = Folder::new();
    let path = folder.path("out.ndjson");
    let pipeline = format!("profile every=1h | file {path}");
    let child = command(&["run", &pipeline]).spawn().expect("runs");
    let pid = child.id().to_string();
    std::thread::sleep(Duration::from_secs(2));
    let killed = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    ended(child.wait_with_output().expect("ends")).expect(0);
    let text = folder.read("out.ndjson");
    assert!(text.contains("\"self\":"), "{text}");
}

#[test]
fn profiles_in_files_are_rows() {
    let folder = Folder::new();
    let one = folder.write("one.folded", "main;inflate_fast 30\nmain;wait 10\n");
    let two = folder.write("two.folded", "main 5\n");
    let pipeline = format!("profile {one} {two} | where self.share > 0.05 | stdout");
    let events = run(&pipeline).expect(0).events();
    let found: Vec<(&str, f64)> = events
        .iter()
        .map(|event| {
            let function = event["function"].as_str().expect("a name");
            (function, number(event, "/self/share"))
        })
        .collect();
    assert_eq!(
        found,
        [("inflate_fast", 0.75), ("wait", 0.25), ("main", 1.0)]
    );
    assert_eq!(events[0]["log"]["file"]["path"], *one);
    assert!(events[0]["advice"]["title"].is_string(), "{}", events[0]);
    let ids = || {
        let pipeline = format!(
            "profile {folder}/*.folded | set id=@metadata.id | stdout",
            folder = folder.path("")
        );
        let events = run(&pipeline).expect(0).events();
        let ids = events.iter().map(|event| event["id"].to_string());
        ids.collect::<std::collections::BTreeSet<String>>()
    };
    let first = ids();
    assert_eq!(first.len(), 4, "each event has an id of its own");
    assert_eq!(first, ids(), "the same in each run");
}

#[test]
fn recorded_profiles_of_all_formats_are_read() {
    let folder = Folder::new();
    let busy = Busy::new();
    let pid = busy.pid().to_string();
    let file = folder.path("busy.pb.gz");
    let words = [
        "profile",
        "record",
        "--pid",
        &pid,
        "--duration",
        "1s",
        "-o",
        &file,
    ];
    millpond(&words).expect(0);
    let events = run(&format!("profile {file} by=process | stdout"))
        .expect(0)
        .events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["process"], "sh");
    assert!(number(&events[0], "/a_year/usd") > 0.0);
    let start = events[0]["@timestamp"].as_str().expect("a time");
    assert!(start > "2026-01-01", "{start}");
}

#[test]
fn damaged_files_are_reported_and_the_others_are_read() {
    let folder = Folder::new();
    let good = folder.write("good.folded", "main 5\n");
    for (name, content) in [
        ("text.folded", &b"no stacks here"[..]),
        ("cut.pb.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc"),
        ("noise.pb", b"\0\xff\x01\xfe\x80\x80"),
        ("noise.otlp", b"\xff\xff\xff\xff"),
        ("script.txt", b"sh 7 what\n\tno frame\n"),
    ] {
        let bad = folder.write(name, content);
        let ended = run(&format!("profile {bad} {good} | stdout")).expect(1);
        let wanted = format!("{bad}: cannot be read as a profile: ");
        assert!(ended.err.contains(&wanted), "{name}: {}", ended.err);
        assert_eq!(ended.events().len(), 1, "{name}: the other file is read");
    }
    let missing = folder.path("missing.pb");
    let ended = run(&format!("profile {missing} {good} | stdout")).expect(1);
    assert!(
        ended.err.contains("missing.pb: no such file"),
        "{}",
        ended.err
    );
    assert_eq!(ended.events().len(), 1);
}

#[test]
fn wrong_settings_are_refused() {
    for (stage, part) in [
        ("profile every=10ms", "`every` must be between 1s and 1h"),
        ("profile a.pb every=1m", "has no effect with `paths`"),
        ("profile rows=samples by=host", "`by` is for `rows: top`"),
        ("profile by=proces", "process"),
        ("profile frequency=0", "`frequency` must be between"),
        ("profile pid=4194999", "there is no process 4194999"),
    ] {
        let ended = run(&format!("{stage} | stdout")).expect(2);
        assert!(ended.err.contains(part), "{stage}: {}", ended.err);
    }
}

#[test]
fn missing_rights_stop_the_start() {
    let folder = Folder::new();
    let user = Unprivileged::new(&folder);
    let output = user.command().args(["run", "profile | stdout"]).output();
    let ended = ended(output.expect("the executable runs")).expect(2);
    let parts = [
        "the kernel refuses to sample the whole machine",
        "CAP_PERFMON",
    ];
    for part in parts {
        assert!(ended.err.contains(part), "{}", ended.err);
    }
    assert_eq!(ended.out, "");
}
