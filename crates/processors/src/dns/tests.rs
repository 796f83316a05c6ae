//! The processor over batches, with name servers that answer as a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
use testkit::name_server::{NameRecord, NameReply, NameServer};

/// Long enough for a machine that is busy with other tests.
const PATIENT: &str = "timeout=5s";

fn named(name: &'static str) -> NameReply {
    NameReply::Records(300, vec![NameRecord::Name(name)])
}

/// The stage that asks this server.
fn stage(server: &NameServer, settings: &str) -> String {
    format!("dns a b servers={} {settings}", server.address())
}

fn events(processor: &mut dyn Processor, events: &[&str]) -> Vec<String> {
    let mut batch = batch_of(events.iter().copied());
    process(processor, &mut batch);
    lines_of(&batch)
}

fn counters(processor: &mut dyn Processor) -> String {
    let counters = processor.take_counters();
    let counters = counters
        .iter()
        .map(|(name, count)| format!("{name}={count}"));
    counters.collect::<Vec<_>>().join(" ")
}

/// A batch of events with distinct addresses.
fn distinct(seed: u8, count: u16) -> Batch {
    let event = |n: u16| format!("{{\"a\":\"10.{seed}.{}.{}\"}}", n >> 8, n & 255);
    let events: Vec<String> = (0..count).map(event).collect();
    batch_of(events.iter().map(String::as_str))
}

#[test]
fn every_answer_has_its_result() {
    let server = NameServer::start(|name| match name {
        "1.2.0.192.in-addr.arpa" => NameReply::Records(
            300,
            vec![
                NameRecord::Name("web-2.example"),
                NameRecord::Name("Web-1.example"),
            ],
        ),
        "2.2.0.192.in-addr.arpa" => NameReply::NoName,
        "3.2.0.192.in-addr.arpa" => NameReply::ServerFailure,
        "4.2.0.192.in-addr.arpa" => NameReply::Records(300, Vec::new()),
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa" => {
            named("six.example")
        }
        other => panic!("asked for {other}"),
    });
    let mut processor = build(&SPEC, &stage(&server, PATIENT)).unwrap();
    let table = [
        (
            r#"{"a":"192.0.2.1"}"#,
            r#"{"a":"192.0.2.1","b":"Web-1.example"}"#,
        ),
        (
            r#"{"a":"192.0.2.1","b":7}"#,
            r#"{"a":"192.0.2.1","b":"Web-1.example"}"#,
        ),
        (
            r#"{"a":["192.0.2.1","192.0.2.2"]}"#,
            r#"{"a":["192.0.2.1","192.0.2.2"],"b":"Web-1.example"}"#,
        ),
        (
            r#"{"a":"2001:DB8::1"}"#,
            r#"{"a":"2001:DB8::1","b":"six.example"}"#,
        ),
        (r#"{"a":"192.0.2.2","b":7}"#, r#"{"a":"192.0.2.2","b":7}"#),
        (
            r#"{"a":"192.0.2.3"}"#,
            r#"{"a":"192.0.2.3","tags":["_dns_failure"]}"#,
        ),
        (r#"{"a":"192.0.2.4"}"#, r#"{"a":"192.0.2.4"}"#),
        (r#"{"a":""}"#, r#"{"a":"","tags":["_dns_failure"]}"#),
        (r#"{"a":192}"#, r#"{"a":192,"tags":["_dns_failure"]}"#),
        (r#"{"a":[]}"#, r#"{"a":[],"tags":["_dns_failure"]}"#),
        (r#"{"a":null}"#, r#"{"a":null}"#),
        (r#"{"c":1}"#, r#"{"c":1}"#),
    ];
    let (inputs, outputs): (Vec<_>, Vec<_>) = table.into_iter().unzip();
    assert_eq!(events(processor.as_mut(), &inputs), outputs);
    assert_eq!(
        counters(processor.as_mut()),
        "cache_hits=0 cache_misses=7 without_record=2 failures=4 queries=5"
    );
    // Another instance has the same cache.
    let mut second = processor.fork();
    assert_eq!(events(second.as_mut(), &inputs), outputs);
    assert_eq!(
        counters(second.as_mut()),
        "cache_hits=7 cache_misses=0 without_record=2 failures=4"
    );
    let lines = events(processor.as_mut(), &[r#"{"a":"192.0.2.1","b":1}"#]);
    assert_eq!(lines, [r#"{"a":"192.0.2.1","b":"Web-1.example"}"#]);
}

#[test]
fn a_name_has_a_list_of_addresses() {
    let server = NameServer::start(|name| match name {
        "web.example" => NameReply::Records(
            300,
            ["10.0.0.2", "2001:db8::1", "10.0.0.1"]
                .map(|address| NameRecord::Address(address.parse().unwrap()))
                .into(),
        ),
        _ => NameReply::NoName,
    });
    let mut processor = build(&SPEC, &stage(&server, "type=forward timeout=5s")).unwrap();
    let table = [
        (
            r#"{"a":"WEB.example"}"#,
            r#"{"a":"WEB.example","b":["10.0.0.1","10.0.0.2","2001:db8::1"]}"#,
        ),
        (r#"{"a":"db.example."}"#, r#"{"a":"db.example."}"#),
        (
            r#"{"a":"10.0.0.9"}"#,
            r#"{"a":"10.0.0.9","b":["10.0.0.9"]}"#,
        ),
        (r#"{"a":"a b"}"#, r#"{"a":"a b","tags":["_dns_failure"]}"#),
        (
            r#"{"a":"localhost"}"#,
            r#"{"a":"localhost","b":["127.0.0.1","::1"]}"#,
        ),
    ];
    let (inputs, outputs): (Vec<_>, Vec<_>) = table.into_iter().unzip();
    assert_eq!(events(processor.as_mut(), &inputs), outputs);
    assert!(!server.asked().contains(&"localhost".to_owned()));
}

#[test]
fn a_target_that_cannot_be_written_fails() {
    let server = NameServer::start(|_| named("x.example"));
    let mut processor = build(
        &SPEC,
        &format!("dns a b.c servers={} {PATIENT}", server.address()),
    )
    .unwrap();
    let lines = events(processor.as_mut(), &[r#"{"a":"192.0.2.1","b":7}"#]);
    let expected = r#"{"a":"192.0.2.1","b":7,"tags":["_dns_failure"],"error""#;
    assert!(lines[0].starts_with(expected), "{}", lines[0]);
}

#[test]
fn questions_of_a_batch_are_asked_at_the_same_time() {
    let delay = Duration::from_millis(50);
    let server = NameServer::start(move |_| NameReply::After(delay, Box::new(named("x.example"))));
    let mut processor = build(&SPEC, &stage(&server, PATIENT)).unwrap();
    let start = Instant::now();
    let mut batch = distinct(1, 1000);
    process(processor.as_mut(), &mut batch);
    let lines = lines_of(&batch);
    assert!(lines.iter().all(|line| line.contains("x.example")));
    // One after the other they take 50 seconds.
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        counters(processor.as_mut()),
        "cache_hits=0 cache_misses=1000 queries=1000"
    );
}

#[test]
fn a_late_answer_is_there_for_later_events() {
    let delay = Duration::from_millis(300);
    let server = NameServer::start(move |_| NameReply::After(delay, Box::new(named("x.example"))));
    let mut processor = build(&SPEC, &stage(&server, "timeout=10ms")).unwrap();
    let event = [r#"{"a":"192.0.2.1"}"#];
    let late = [r#"{"a":"192.0.2.1","tags":["_dns_timeout"]}"#];
    assert_eq!(events(processor.as_mut(), &event), late);
    let start = Instant::now();
    while events(processor.as_mut(), &event) == late {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    let named = [r#"{"a":"192.0.2.1","b":"x.example"}"#];
    assert_eq!(events(processor.as_mut(), &event), named);
    let mut own_tag = build(&SPEC, &stage(&server, "timeout=0s tag=_late")).unwrap();
    let tagged = [r#"{"a":"192.0.2.1","tags":["_late"]}"#];
    assert_eq!(events(own_tag.as_mut(), &event), tagged);
}

/// Every batch has addresses of its own, and none is answered.
#[test]
fn a_server_that_never_answers_costs_little() {
    let is_up = Arc::new(AtomicBool::new(false));
    let up = is_up.clone();
    let server = NameServer::start(move |_| match up.load(Ordering::Relaxed) {
        true => named("x.example"),
        false => NameReply::Nothing,
    });
    let mut processor = build(&SPEC, &stage(&server, "timeout=200ms")).unwrap();
    let start = Instant::now();
    for seed in 0..200 {
        let mut batch = distinct(seed, 100);
        process(processor.as_mut(), &mut batch);
        assert!(
            lines_of(&batch)
                .iter()
                .all(|line| line.contains("_dns_timeout"))
        );
    }
    // Were each waited for, they would take 40 seconds.
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    let warnings = processor.take_warnings();
    assert_eq!(warnings.len(), 1);
    let text = format!("no name server answers ({});", server.address());
    assert!(warnings[0].text.starts_with(&text), "{:?}", warnings[0]);
    let counted = counters(processor.as_mut());
    let expected = "cache_hits=0 cache_misses=20000 timeouts=20000 queries=";
    assert!(counted.starts_with(expected), "{counted}");

    is_up.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let event = [r#"{"a":"192.0.2.1"}"#];
    while !events(processor.as_mut(), &event)[0].contains("x.example") {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let warnings = processor.take_warnings();
    assert!(warnings[0].text.starts_with("name servers answer again"));
}

/// A question that nobody answers keeps only the batch waiting that asked it, while others are answered.
#[test]
fn a_question_is_waited_for_once() {
    let server = NameServer::start(|name| match name {
        "1.2.0.192.in-addr.arpa" => NameReply::Nothing,
        _ => named("x.example"),
    });
    let mut processor = build(&SPEC, &stage(&server, "timeout=400ms")).unwrap();
    let start = Instant::now();
    for n in 2..100 {
        let other = format!(r#"{{"a":"192.0.2.{n}"}}"#);
        let lines = events(processor.as_mut(), &[r#"{"a":"192.0.2.1"}"#, &other]);
        assert!(lines[0].contains("_dns_timeout"), "{}", lines[0]);
    }
    // Were it waited for each time, it would take 39 seconds.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

/// The number of the event of [`distinct`] for whose address a server is asked.
fn number(name: &str) -> u16 {
    let mut labels = name.split('.').map_while(|label| label.parse().ok());
    labels.next().unwrap_or(0) + 256 * labels.next().unwrap_or(0)
}

/// Addresses that nobody answers leave the others their names, also when they come first and are more than can be asked at a time.
#[test]
fn silent_addresses_do_not_hold_up_the_others() {
    let server = NameServer::start(|name| match number(name) {
        0..200 => NameReply::Nothing,
        _ => named("x.example"),
    });
    let mut processor = build(&SPEC, &stage(&server, "timeout=2s")).unwrap();
    let mut batch = distinct(1, 1000);
    process(processor.as_mut(), &mut batch);
    let lines = lines_of(&batch);
    assert!(lines[200..].iter().all(|line| line.contains("x.example")));
    assert!(lines[..200].iter().all(|line| line.contains("_timeout")));

    let server = NameServer::start(|name| match number(name) {
        0..900 => NameReply::Nothing,
        _ => named("x.example"),
    });
    let mut processor = build(&SPEC, &stage(&server, "timeout=4s")).unwrap();
    let mut batch = distinct(1, 1000);
    process(processor.as_mut(), &mut batch);
    let lines = lines_of(&batch);
    assert!(lines[900..].iter().all(|line| line.contains("x.example")));
}

/// Those that take longer than their turn are asked anew while others wait, and have their names in the end.
#[test]
fn slow_answers_come_too() {
    let delay = Duration::from_millis(600);
    let server = NameServer::start(move |_| NameReply::After(delay, Box::new(named("x.example"))));
    let mut processor = build(&SPEC, &stage(&server, "timeout=0s")).unwrap();
    let start = Instant::now();
    loop {
        let mut batch = distinct(1, 1000);
        process(processor.as_mut(), &mut batch);
        let lines = lines_of(&batch);
        if lines.iter().all(|line| line.contains("x.example")) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(40));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What is answered without a server says nothing about servers, and does not wait for them.
#[test]
fn local_names_say_nothing_of_servers() {
    let server = NameServer::start(|_| NameReply::Nothing);
    let mut processor = build(&SPEC, &stage(&server, "timeout=300ms")).unwrap();
    let start = Instant::now();
    let mut n = 0;
    let mut warnings = Vec::new();
    while warnings.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20));
        n += 1;
        let silent = format!(r#"{{"a":"10.0.0.{n}"}}"#);
        let lines = events(processor.as_mut(), &[r#"{"a":"127.0.0.5"}"#, &silent]);
        assert_eq!(lines[0], r#"{"a":"127.0.0.5","b":"localhost"}"#);
        warnings = processor.take_warnings();
    }
    let lines = events(processor.as_mut(), &[r#"{"a":"127.0.0.6"}"#]);
    assert_eq!(lines, [r#"{"a":"127.0.0.6","b":"localhost"}"#]);
    assert!(!counters(processor.as_mut()).contains("cache_hits=1"));
}

/// Addresses of one kind are the answer when those of the other do not come.
#[test]
fn one_kind_of_addresses_is_enough() {
    let server = NameServer::start_by_kind(|name, kind| match (name, kind) {
        ("only4.x", 28) | ("only6.x", 1) => NameReply::Nothing,
        ("broken.x", 28) => NameReply::ServerFailure,
        _ => NameReply::Records(
            300,
            ["10.0.0.2", "2001:db8::1"]
                .map(|address| NameRecord::Address(address.parse().unwrap()))
                .into(),
        ),
    });
    let mut processor = build(&SPEC, &stage(&server, "type=forward timeout=3s")).unwrap();
    let table = [
        (r#"{"a":"only4.x"}"#, r#"{"a":"only4.x","b":["10.0.0.2"]}"#),
        (
            r#"{"a":"only6.x"}"#,
            r#"{"a":"only6.x","b":["2001:db8::1"]}"#,
        ),
        (
            r#"{"a":"broken.x"}"#,
            r#"{"a":"broken.x","b":["10.0.0.2"]}"#,
        ),
    ];
    let (inputs, outputs): (Vec<_>, Vec<_>) = table.into_iter().unzip();
    assert_eq!(events(processor.as_mut(), &inputs), outputs);
}

#[test]
fn records_are_remembered_for_their_time() {
    let record = |ttl| NameReply::Records(ttl, vec![NameRecord::Name("x.example")]);
    // How often the server is asked in two batches of an event, and in a third one a while later.
    let table = [
        ("min_ttl=0s", record(1), [1, 2]),
        ("min_ttl=0s", record(0), [2, 3]),
        ("min_ttl=1m", record(1), [1, 1]),
        ("min_ttl=0s max_ttl=1s", record(9), [1, 2]),
        ("negative_ttl=1s", NameReply::NoName, [1, 2]),
        ("negative_ttl=0s", NameReply::NoName, [2, 3]),
        ("", NameReply::NoName, [1, 1]),
    ];
    let event = [r#"{"a":"192.0.2.1"}"#];
    let cases = table.map(|(settings, reply, asked)| {
        let server = NameServer::start(move |_| reply.clone());
        let stage = stage(&server, &format!("{PATIENT} {settings}"));
        let mut processor = build(&SPEC, &stage).unwrap();
        for _ in 0..2 {
            events(processor.as_mut(), &event);
        }
        assert_eq!(server.asked().len(), asked[0], "{stage}");
        (server, processor, stage, asked[1])
    });
    std::thread::sleep(Duration::from_millis(1100));
    for (server, mut processor, stage, asked) in cases {
        events(processor.as_mut(), &event);
        assert_eq!(server.asked().len(), asked, "{stage}");
    }
}

/// A batch gets all of its answers, however few of them can be remembered.
#[test]
fn the_cache_is_bounded() {
    let server = NameServer::start(|_| named("x.example"));
    let mut processor = build(&SPEC, &stage(&server, "timeout=5s cache_entries=5")).unwrap();
    for round in 0..2 {
        let mut batch = distinct(9, 100);
        process(processor.as_mut(), &mut batch);
        assert!(
            lines_of(&batch)
                .iter()
                .all(|line| line.contains("x.example")),
            "{round}"
        );
    }
    // Of the first batch, five are remembered.
    assert!(server.asked().len() >= 195);
}

#[test]
fn what_is_no_address_is_tagged_as_asked() {
    for (tag, tags) in [
        ("", r#","tags":["_dns_failure"]"#),
        ("tag=_x", r#","tags":["_x"]"#),
        ("tag=''", ""),
    ] {
        let stage = format!("dns a b servers=127.0.0.1 {tag}");
        let expected = format!(r#"{{"a":"x"{tags}}}"#);
        check(&SPEC, &[(&stage, r#"{"a":"x"}"#, &expected)]);
    }
}

#[test]
fn what_cannot_be_used_is_refused() {
    check_errors(
        &SPEC,
        &[
            ("dns a", "target"),
            ("dns a b type=ptr", "ptr"),
            (
                "dns a b servers=dns.example",
                "`dns.example` is not the address of a name server",
            ),
            (
                "dns a b servers=[10.0.0.1, 10.0.0.2:]",
                "`10.0.0.2:` is not",
            ),
            ("dns a b servers=[2001:db8::1:53]:0", "is not the address"),
            ("dns a b servers=[]", "name at least one name server"),
            ("dns a b servers=10.0.0.1 timeout=5001ms", "from 0s to 5s"),
            (
                "dns a b servers=10.0.0.1 min_ttl=2h",
                "must not be longer than `max_ttl`: 2h and 1h",
            ),
            ("dns a b servers=10.0.0.1 cache_entries=0", "room for one"),
            (
                "dns a b servers=10.0.0.1 cache_entries=10000001",
                "from 1 to 10,000,000",
            ),
            ("dns lower(a) c servers=10.0.0.1", "not a field name"),
        ],
    );
}

#[test]
fn who_waits_for_a_long_time_out_is_said() {
    let error = build(&SPEC, "dns a b timeout=10m").err().expect("refused");
    let error = error.to_string();
    assert!(
        error.contains("workers that the pipeline has for itself"),
        "{error}"
    );
}
