//! The input `splunk_hec`, written to as clients do.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::posting::{Service, request};
use crate::program::{Folder, gzip};
use crate::resending::{Connection, Work, line, numbers, one_by_one, survives};

const INPUT: &str = "splunk_hec";
const EVENT: &str = "/services/collector/event";

fn to_file(folder: &Folder) -> String {
    format!("    output: {{file: {{path: {}}}}}\n", folder.path("out"))
}

fn events(folder: &Folder) -> Vec<Value> {
    let text = folder.read("out");
    let events = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    events.collect()
}

/// The body of an answer.
fn body(text: &str) -> Value {
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn envelopes_of_known_clients_become_events() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, "", &to_file(&folder));
    let docker = br#"{"event":{"line":"hello","source":"stdout","tag":"3f2e"},"time":"1447828325.062000","host":"docker1"}"#;
    for (target, headers, body) in [
        // Fluent Bit.
        (
            EVENT,
            "Content-Encoding: gzip\r\n",
            &gzip(br#"{"time":1447828325.123456789,"event":{"log":"a","n":1.000}}{"time":1447828326.0,"event":{"log":"b"}}"#)[..],
        ),
        // Vector and the OpenTelemetry Collector.
        (
            EVENT,
            "",
            b"{\"event\":\"text\",\"fields\":{\"k\":\"v\"},\"time\":1447828325,\"host\":\"h\",\"source\":\"s\",\"sourcetype\":\"t\",\"index\":\"i\"}\n{\"event\":{\"a\":{\"b\":[1,null]}}}\n",
        ),
        ("/services/collector/event/1.0", "", docker),
        (
            "/services/collector/raw?host=r&sourcetype=st&time=1447828325&channel=c",
            "",
            b"first \"line\"\r\n\nsecond",
        ),
    ] {
        let answer = service.post(target, headers, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.text.contains(r#"{"text":"Success","code":0"#), "{answer:?}");
        assert_eq!(answer.text.contains("ackId"), target.contains("channel"), "{answer:?}");
    }
    service.stop();
    let text = folder.read("out");
    assert!(
        text.contains(r#"{"log":"a","n":1.000,"#),
        "digits stay: {text}"
    );
    let mut events = events(&folder);
    // The one without a time.
    let received = events[3]["@timestamp"].take();
    assert!(
        received.as_str().is_some_and(|time| time.starts_with("20")),
        "{received}"
    );
    let raw = |message: &str| json!({"message": message, "@timestamp": "2015-11-18T06:32:05.000Z", "host": {"name": "r"}, "splunk": {"sourcetype": "st"}});
    let expected = [
        json!({"log": "a", "n": 1.0, "@timestamp": "2015-11-18T06:32:05.123456789Z"}),
        json!({"log": "b", "@timestamp": "2015-11-18T06:32:06.000Z"}),
        json!({"message": "text", "@timestamp": "2015-11-18T06:32:05.000Z", "host": {"name": "h"}, "splunk": {"source": "s", "sourcetype": "t", "index": "i", "fields": {"k": "v"}}}),
        json!({"a": {"b": [1, null]}, "@timestamp": null}),
        json!({"line": "hello", "source": "stdout", "tag": "3f2e", "@timestamp": "2015-11-18T06:32:05.062Z", "host": {"name": "docker1"}}),
        raw("first \"line\""),
        raw("second"),
    ];
    for (event, expected) in events.iter_mut().zip(&expected) {
        // Numbers are compared by value.
        if event["log"] == "a" {
            event["n"] = json!(1.0);
        }
        assert_eq!(event, expected);
    }
    assert_eq!(events.len(), expected.len());
}

#[test]
fn requests_that_are_not_taken_leave_nothing() {
    let folder = Folder::new();
    folder.write("token", "t0ken\n");
    let settings = format!(
        ", tokens: [other, \"file:{}\"], max_request_bytes: 1KiB, acknowledgements: false",
        folder.path("token")
    );
    let service = Service::with(&folder, INPUT, &settings, &to_file(&folder));
    let good = "Authorization: Splunk t0ken\r\n";
    let gzipped = format!("{good}Content-Encoding: gzip\r\n");
    let zipped = format!("{good}Content-Encoding: br\r\n");
    let bomb = gzip(&vec![b' '; 1_000_000]);
    let large = vec![b' '; 1025];
    for (status, code, headers, target, body) in [
        (401, 2, "", EVENT, &br#"{"event":"x"}"#[..]),
        (401, 3, "Authorization: Bearer t0ken\r\n", EVENT, b"{}"),
        (403, 4, "Authorization: Splunk no\r\n", EVENT, b"{}"),
        (400, 5, good, EVENT, b""),
        (400, 6, good, EVENT, b"{\"event\":1}{"),
        (400, 6, good, EVENT, b"{\"event\":\"\xff\"}"),
        (400, 6, good, EVENT, br#"{"event":"a"}[{"event":"b"}]"#),
        (400, 6, &gzipped, EVENT, b"{\"event\":1}"),
        (400, 11, good, "/services/collector?channel=a%20b", b"{}"),
        (400, 12, good, EVENT, br#"{"event":"a"}{"evnt":"b"}"#),
        (400, 13, good, EVENT, br#"{"event":""}"#),
        (400, 14, good, "/services/collector/ack?channel=a", b"{}"),
        (400, 15, good, EVENT, br#"{"event":"a","fields":[]}"#),
        (404, 404, good, "/services/other", b"{}"),
        (413, 27, good, EVENT, &large),
        (413, 27, &gzipped, EVENT, &bomb),
        (415, 6, &zipped, EVENT, b"x"),
    ] {
        let answer = service.post(target, headers, body);
        assert_eq!(answer.status, status, "{code}: {answer:?}");
        assert_eq!(self::body(&answer.text)["code"], code, "{answer:?}");
    }
    let wrong = service.post(
        EVENT,
        good,
        br#"{"event":"a"}{"event":"b"}{"event":"c","time":{}}"#,
    );
    assert_eq!(body(&wrong.text)["invalid-event-number"], 2, "{wrong:?}");
    let get =
        service.raw(b"GET /services/collector HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(get.status, 405, "{get:?}");
    for (method, path) in [
        ("GET", "/services/collector/health"),
        ("OPTIONS", "/services/collector/event/1.0"),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert_eq!(service.raw(head.as_bytes()).status, 200, "{method} {path}");
    }
    let basic = "Authorization: Basic eDp0MGtlbg==\r\nX-Splunk-Request-Channel: c\r\n";
    let answer = service.raw(&request(
        "/services/collector",
        basic,
        br#"{"event":"good"}"#,
    ));
    assert_eq!(body(&answer.text), json!({"text": "Success", "code": 0}));
    let said = service.stop().err;
    assert!(said.contains("Event field is required, event 1"), "{said}");
    let events = events(&folder);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["message"], "good");
}

#[test]
fn an_acknowledgement_comes_when_events_are_safe() {
    let folder = Folder::new();
    let output = format!(
        "    output: {{file: {{path: {}, create_dirs: false}}}}\n",
        folder.path("gone/out")
    );
    let service = Service::with(&folder, INPUT, "", &output);
    let channel = "X-Splunk-Request-Channel: c1\r\n";
    let answer = service.post(EVENT, channel, br#"{"event":"x"}"#);
    let number = body(&answer.text)["ackId"].as_u64().expect("a number");
    let ask = |headers: &str| {
        let question = format!("{{\"acks\":[{number},1]}}");
        body(
            &service
                .post("/services/collector/ack", headers, question.as_bytes())
                .text,
        )
    };
    let unsafe_yet = json!({"acks": {"1": false, number.to_string(): false}});
    assert_eq!(ask(channel), unsafe_yet, "the output fails");
    std::fs::create_dir(folder.path("gone")).expect("a directory");
    let begin = Instant::now();
    while ask(channel) == unsafe_yet {
        assert!(begin.elapsed() < Duration::from_secs(20), "it becomes safe");
        assert_eq!(ask("X-Splunk-Request-Channel: c2\r\n"), unsafe_yet);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(channel), unsafe_yet, "that is said once");
    assert_eq!(ask("")["code"], 10);
    service.stop();
}

/// The body of a request.
fn envelopes(request: usize) -> Vec<u8> {
    let envelope = |number: usize| {
        let line = line(number);
        format!(
            "{{\"time\":1764065472.{:03},\"host\":\"web1\",\"event\":\"{line}\",\"fields\":{{\"event_id\":\"e-{number}\"}}}}",
            number % 1000
        )
    };
    numbers(request)
        .map(envelope)
        .collect::<String>()
        .into_bytes()
}

#[test]
fn requests_that_were_answered_survive_kills() {
    survives(
        "splunk_hec: {address: PORT, id_field: event_id}",
        |port, work| {
            one_by_one(port, work, |connection, number| {
                let (status, _) = connection.post(EVENT, "", &envelopes(number))?;
                assert!(matches!(status, 200 | 503), "{status}");
                Ok(status == 200)
            });
        },
    );
}

/// Sends requests, four of which may wait for their acknowledgements.
fn acknowledged(port: u16, work: &Work, waiting: &mut HashMap<u64, usize>) -> io::Result<()> {
    let channel = format!(
        "X-Splunk-Request-Channel: {:?}\r\n",
        std::thread::current().id()
    );
    let mut connection = Connection::new(port)?;
    let mut is_last = false;
    while !waiting.is_empty() || !is_last {
        while waiting.len() < 4 {
            let Some(number) = work.next() else {
                is_last = true;
                break;
            };
            let sent = connection.post(EVENT, &channel, &envelopes(number));
            let (_, text) = sent.inspect_err(|_| work.again(number))?;
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let known = waiting.insert(answer["ackId"].as_u64().expect("a number"), number);
            assert_eq!(known, None, "a number is given once");
        }
        let numbers: Vec<&u64> = waiting.keys().collect();
        let question = json!({"acks": numbers}).to_string();
        let (_, text) =
            connection.post("/services/collector/ack", &channel, question.as_bytes())?;
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        for (number, is_safe) in answer["acks"].as_object().expect("an object") {
            if is_safe == &json!(true) {
                waiting.remove(&number.parse().expect("a number"));
                work.done();
            }
        }
    }
    Ok(())
}

#[test]
fn requests_that_were_acknowledged_survive_kills() {
    survives(
        "splunk_hec: {address: PORT, id_field: event_id}",
        |port, work| {
            let mut waiting = HashMap::new();
            // What was not acknowledged when the connection broke is sent again.
            let _ = acknowledged(port, work, &mut waiting);
            waiting.into_values().for_each(|number| work.again(number));
        },
    );
}
