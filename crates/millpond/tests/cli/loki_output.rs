//! The `loki` output against a strict double of Loki's push endpoint.

use testkit::cutter::Cutter;
use testkit::http::HttpServer;
use testkit::loki::Loki;

use crate::program::{Folder, run};
use crate::shipping::{apache, expect_lines, moody, with_kills};

/// The time of an event is that of its line, so that it is the same whenever the line is read.
const PARSE: &str = "grok '%{COMBINEDAPACHELOG}' | date timestamp 'dd/MMM/yyyy:HH:mm:ss Z'";

/// The lines of all streams; those of each are in the order of the file.
fn lines_in_order(loki: &Loki) -> Vec<String> {
    assert_eq!(loki.violations(), Vec::<String>::new());
    let mut all = Vec::new();
    for (name, entries) in loki.streams() {
        let number = |line: &str| -> usize {
            let digits = line.trim_start_matches('#').split(' ').next();
            digits
                .and_then(|digits| digits.parse().ok())
                .expect("a number")
        };
        let numbers: Vec<usize> = entries.iter().map(|entry| number(&entry.1)).collect();
        assert!(numbers.is_sorted(), "{name} is not in order");
        all.extend(entries.into_iter().map(|entry| entry.1));
    }
    all
}

#[test]
fn real_events_arrive_once_each_and_in_order() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 100_000);
    for settings in [
        "compression=none",
        "tenant='t-%{verb}' structured_metadata.ip='%{clientip}'",
    ] {
        let loki = Loki::default();
        let double = loki.clone();
        let server = HttpServer::start(move |taken, _| double.answer(taken));
        let url = server.url();
        let labels = "labels.job=web labels.status='%{response}'";
        run(&format!(
            "file {log} | {PARSE} | loki {url} {labels} template='%{{message}}' {settings}"
        ))
        .expect(0);
        assert_eq!(expect_lines(&lines_in_order(&loki), &lines), 0);
        assert_eq!(loki.repeats(), 0);
        let streams = loki.streams();
        assert!(streams.len() > 1, "{:?}", streams.keys());
        let (name, entries) = streams.first_key_value().expect("streams");
        match settings.starts_with("tenant") {
            false => assert!(name.starts_with("{job=\"web\", status=\""), "{name}"),
            true => {
                assert!(name.starts_with("t-"), "{name}");
                assert!(entries[0].2["ip"].is_string(), "{:?}", entries[0]);
            }
        }
    }
}

#[test]
fn entries_that_loki_does_not_accept_are_rejected_alone() {
    let folder = Folder::new();
    let (log, mut lines) = apache(&folder, 3000);
    let long = "x".repeat(3000);
    for number in [5, 1700, 1701] {
        lines[number] = format!("{} {long}", lines[number]);
    }
    let log = {
        std::fs::write(&log, lines.join("\n") + "\n").expect("a file");
        log
    };
    let mut loki = Loki::default();
    loki.line_bytes_max = Some(2000);
    let double = loki.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let url = server.url();
    let done = run(&format!(
        "file {log} | {PARSE} | loki {url} labels.job=web template='%{{message}}'"
    ));
    assert!(done.err.contains("Max entry size"), "{}", done.err);
    lines.retain(|line| !line.contains(&long));
    // Halves are sent again, and Loki knows their good entries.
    assert!(loki.repeats() > 0);
    assert_eq!(expect_lines(&lines_in_order(&loki), &lines), 0);
}

#[test]
fn streams_beyond_the_limit_are_rejected() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 1000);
    let loki = Loki::default();
    let double = loki.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let url = server.url();
    let done = run(&format!(
        "file {log} | {PARSE} | loki {url} labels.line='%{{message}}' max_streams=7"
    ));
    assert!(
        done.err.contains("more than 7 streams (`max_streams`)"),
        "{}",
        done.err
    );
    assert_eq!((loki.streams().len(), loki.count()), (7, 7));
    assert_eq!(lines.len(), 1000);
}

#[test]
fn cut_connections_and_moody_servers_lose_nothing() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 20_000);
    for (seed, settings) in [(1, "compression=none"), (2, "")] {
        let loki = Loki::default();
        let double = loki.clone();
        let server = moody(0, move |taken| double.answer(taken));
        let cutter = Cutter::start(server.address(), seed, 400_000);
        let url = format!("http://{}", cutter.address());
        let batch = "batch.max_bytes=64KiB";
        run(&format!(
            "file {log} | {PARSE} | loki {url} labels.job=web labels.verb='%{{verb}}' template='%{{message}}' {batch} {settings}"
        ))
        .expect(0);
        assert!(cutter.cut() > 0, "{} cuts", cutter.cut());
        // What came twice is the same entry.
        assert_eq!(expect_lines(&lines_in_order(&loki), &lines), 0);
    }
}

#[test]
fn kills_of_both_sides_lose_nothing_and_repeat_nothing() {
    let folder = Folder::new();
    let (_, lines) = apache(&folder, 30_000);
    let loki = Loki::default();
    let output = "loki: { hosts: 'http://127.0.0.1:PORT', labels: { job: web, verb: '%{verb}', status: '%{response}' }, \
                  template: '%{message}', batch: { max_events: 200, max_age: 20ms } }";
    let double = loki.clone();
    let start = move |port| {
        let double = double.clone();
        HttpServer::start_at(port, None, move |taken, _| double.answer(taken))
    };
    let is_done = || loki.count() >= lines.len();
    with_kills(&folder, output, start, || {}, is_done);
    assert_eq!(expect_lines(&lines_in_order(&loki), &lines), 0);
}
