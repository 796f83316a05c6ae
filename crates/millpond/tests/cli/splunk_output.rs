//! The `splunk_hec` output against a strict double of the HTTP Event Collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use testkit::cutter::Cutter;
use testkit::http::{Answer, HttpServer};
use testkit::splunk::{Collector, TOKEN};

use crate::program::{Folder, millpond, run};
use crate::shipping::{apache, expect_lines, moody, with_kills};

/// The messages of what is indexed.
fn messages(collector: &Collector) -> Vec<String> {
    assert_eq!(collector.violations(), Vec::<String>::new());
    let indexed = collector.indexed();
    let text = |envelope: &Value| {
        let event = &envelope["event"];
        let message = event.as_str().or_else(|| event["message"].as_str());
        message.expect("a text").to_owned()
    };
    indexed.iter().map(text).collect()
}

#[test]
fn real_events_arrive_once_each() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 100_000);
    for settings in [
        "",
        "compression=gzip template='%{message}' sourcetype=access_combined fields.id='%{@metadata.id}'",
        "endpoint=raw compression=gzip",
    ] {
        let collector = Collector::new(&[], None);
        let double = collector.clone();
        let server = HttpServer::start(move |taken, _| double.answer(taken));
        let url = server.url();
        run(&format!(
            "file {log} | splunk_hec {url} token={TOKEN} {settings}"
        ))
        .expect(0);
        assert_eq!(expect_lines(&messages(&collector), &lines), 0, "{settings}");
        let first = collector.indexed().swap_remove(0);
        match settings {
            "" => {
                assert_eq!(first["source"], log.as_str());
                assert!(
                    first["host"].is_string() && first["time"].is_number(),
                    "{first}"
                );
            }
            _ if settings.starts_with("endpoint") => {
                let query = first["query"].as_str().expect("a query");
                assert!(
                    query.contains("source=") && query.contains("host="),
                    "{query}"
                );
            }
            _ => assert!(first["fields"]["id"].is_string(), "{first}"),
        }
    }
}

#[test]
fn acknowledged_events_arrive_once_each() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 20_000);
    let collector = Collector::new(&[], Some(Duration::from_millis(50)));
    let double = collector.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let url = server.url();
    let settings = "acknowledge=true acknowledge_interval=50ms batch.max_events=500";
    run(&format!(
        "file {log} | splunk_hec {url} token={TOKEN} {settings}"
    ))
    .expect(0);
    assert_eq!(expect_lines(&messages(&collector), &lines), 0);
}

#[test]
fn a_token_without_acknowledgement_is_found_before_anything_is_sent() {
    let collector = Collector::new(&[], None);
    let double = collector.clone();
    let server = HttpServer::start(move |taken, _| double.answer(taken));
    let url = server.url();
    let done = run(&format!(
        "generate apache count=10 | splunk_hec {url} token={TOKEN} acknowledge=true"
    ));
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err.contains("ACK is disabled (code 14)"),
        "{}",
        done.err
    );
    assert!(collector.indexed().is_empty());
}

#[test]
fn invalid_events_are_rejected_and_the_others_arrive() {
    let folder = Folder::new();
    let (log, mut lines) = apache(&folder, 3000);
    let is_bad = |line: &str| line.contains("#77 ") || line.contains("#1999 ");
    let done = |settings: &str, collector: &Collector| {
        let double = collector.clone();
        let server = HttpServer::start(move |taken, _| double.answer(taken));
        let url = server.url();
        run(&format!(
            "file {log} | {} token={TOKEN}",
            settings.replace("URL", &url)
        ))
    };
    // An index of which the token knows nothing, for two events.
    let collector = Collector::new(&["main"], None);
    let route = "set index = message.contains(\"#77 \") ? \"secret\" : message.contains(\"#1999 \") ? \"secret\" : \"main\" \
                 | splunk_hec URL index='%{index}'";
    let ended = done(route, &collector);
    assert!(
        ended.err.contains("Incorrect index (code 7)"),
        "{}",
        ended.err
    );
    lines.retain(|line| !is_bad(line));
    assert_eq!(expect_lines(&messages(&collector), &lines), 0);
    // A text that is blank is not sent at all.
    let collector = Collector::new(&[], None);
    let blank = "set text = message.contains(\"#77 \") ? \" \" : message.contains(\"#1999 \") ? \" \" : message \
                 | splunk_hec URL template='%{text}'";
    let ended = done(blank, &collector);
    assert!(
        ended.err.contains("the text of the event is empty"),
        "{}",
        ended.err
    );
    assert_eq!(expect_lines(&messages(&collector), &lines), 0);
}

#[test]
fn an_event_that_the_server_cannot_use_repeats_those_before_it() {
    let folder = Folder::new();
    let (log, mut lines) = apache(&folder, 2000);
    let collector = Collector::new(&[], None);
    let double = collector.clone();
    // The server finds a fault with one event, and keeps those before it.
    let server = HttpServer::start(move |taken, _| {
        let text = taken.text();
        let Some(bad) = text.lines().position(|line| line.contains("#1234 ")) else {
            return double.answer(taken);
        };
        let before: String = text
            .lines()
            .take(bad)
            .map(|line| format!("{line}\n"))
            .collect();
        if bad > 0 {
            let mut before_it = taken.clone();
            before_it.body = before.into();
            let _ = double.answer(&before_it);
        }
        let body =
            format!(r#"{{"text":"Invalid data format","code":6,"invalid-event-number":{bad}}}"#);
        Answer::new(400).body(body)
    });
    let url = server.url();
    let done = run(&format!(
        "file {log} | splunk_hec {url} token={TOKEN} batch.max_events=500"
    ));
    assert!(done.err.contains("an event was rejected"), "{}", done.err);
    lines.remove(1234);
    let repeats = expect_lines(&messages(&collector), &lines);
    assert!(
        (1..500).contains(&repeats),
        "those before it in its request: {repeats}"
    );
}

#[test]
fn cut_connections_and_moody_servers_lose_nothing() {
    let folder = Folder::new();
    let (log, lines) = apache(&folder, 20_000);
    for (seed, settings) in [
        (1, ""),
        (2, ", acknowledge: true, acknowledge_interval: 20ms"),
    ] {
        let after = (seed == 2).then_some(Duration::from_millis(10));
        let collector = Collector::new(&[], after);
        let double = collector.clone();
        let server = moody(0, move |taken| double.answer(taken));
        let cutter = Cutter::start(server.address(), seed, 400_000);
        let url = format!("http://{}", cutter.address());
        let batch = "batch: { max_bytes: 64KiB }";
        // A run of one line would give up where a request has bad luck for half a minute.
        let yaml = format!(
            "pipelines:\n  one:\n    input: {{ file: {{ paths: ['{log}'], follow: false }} }}\n    output: {{ splunk_hec: {{ hosts: '{url}', token: {TOKEN}, {batch}{settings} }} }}\n    retry: {{ initial: 20ms, max: 500ms }}\n"
        );
        let path = folder.write("moody.yaml", yaml);
        millpond(&["run", &path]).expect(0);
        let repeats = expect_lines(&messages(&collector), &lines);
        assert!(cutter.cut() > 2, "{} cuts", cutter.cut());
        assert!(repeats < lines.len(), "everything came twice");
    }
}

#[test]
fn kills_of_both_sides_lose_nothing() {
    for acknowledged in [false, true] {
        let folder = Folder::new();
        let (_, lines) = apache(&folder, 30_000);
        let after = acknowledged.then_some(Duration::from_millis(100));
        let collector = Collector::new(&[], after);
        let output = format!(
            "splunk_hec: {{ hosts: 'http://127.0.0.1:PORT', token: {TOKEN}, acknowledge: {acknowledged}, \
             acknowledge_interval: 30ms, acknowledge_timeout: 2s, batch: {{ max_events: 200, max_age: 20ms }} }}"
        );
        let restarts = Arc::new(AtomicBool::new(false));
        let seen = restarts.clone();
        let double = collector.clone();
        let start = move |port| {
            let double = double.clone();
            HttpServer::start_at(port, None, move |taken, _| {
                double.answer(taken).after(Duration::from_millis(5))
            })
        };
        let restarted = || {
            collector.restart();
            restarts.store(true, Ordering::SeqCst);
        };
        let count = lines.len();
        let is_done = || {
            let messages = messages(&collector);
            messages.len() >= count
                && messages
                    .iter()
                    .collect::<std::collections::BTreeSet<_>>()
                    .len()
                    == count
        };
        with_kills(&folder, &output, start, restarted, is_done);
        assert!(seen.load(Ordering::SeqCst));
        let repeats = expect_lines(&messages(&collector), &lines);
        assert!(repeats < count, "only what was in flight: {repeats}");
    }
}
