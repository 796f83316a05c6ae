//! The input `loki`, pushed to as clients do.

use serde_json::{Value, json};

use crate::posting::Service;
use crate::program::{Folder, gzip};
use crate::resending::{line, numbers, one_by_one, survives};

const INPUT: &str = "loki";
const PUSH: &str = "/loki/api/v1/push";
const JSON: &str = "Content-Type: application/json\r\n";
const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";

fn to_file(folder: &Folder) -> String {
    format!(
        "    processors: [set tenant = @metadata.loki.tenant]\n    output: {{file: {{path: {}}}}}\n",
        folder.path("out")
    )
}

fn events(folder: &Folder) -> Vec<Value> {
    let text = folder.read("out");
    let events = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    events.collect()
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field that holds bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn entry(nanos: u64, line: &[u8], metadata: &[(&str, &str)]) -> Vec<u8> {
    let mut time = vec![1 << 3];
    varint(nanos / 1_000_000_000, &mut time);
    time.push(2 << 3);
    varint(nanos % 1_000_000_000, &mut time);
    let mut out = [field(1, &time), field(2, line)].concat();
    for (name, value) in metadata {
        let pair = [field(1, name.as_bytes()), field(2, value.as_bytes())].concat();
        out.extend(field(3, &pair));
    }
    out
}

/// A push request of one stream, in protobuf with snappy.
fn push(labels: &str, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = field(1, labels.as_bytes());
    entries
        .iter()
        .for_each(|entry| stream.extend(field(2, entry)));
    let request = field(1, &stream);
    snap::raw::Encoder::new()
        .compress_vec(&request)
        .expect("compressed")
}

#[test]
fn entries_in_both_forms_become_events() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, "", &to_file(&folder));
    let ready = service.raw(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!((ready.status, ready.text.ends_with("ready\n")), (200, true));
    let tenant = format!("X-Scope-OrgID: team a\r\n{JSON}");
    let zipped = format!("Content-Encoding: gzip\r\n{JSON}");
    let named = format!("Content-Encoding: snappy\r\n{PROTOBUF}");
    let first = entry(
        1_764_065_472_123_456_789,
        b"a \"b\"\n\xff",
        &[("trace", "t1"), ("event_id", "x")],
    );
    for (headers, body) in [
        (
            &tenant[..],
            &br#"{"streams":[{"values":[["1764065472123456789","line \"1\"",{"trace":"t"}],["1764065472123456790","line 2"]],"stream":{"job":"app","env":"prod"}},{"stream":{},"values":[]}]}"#[..],
        ),
        (
            &zipped,
            &gzip(br#"{"streams":[{"stream":{"a":"b"},"values":[["1","z",null]]}]}"#),
        ),
        (PROTOBUF, &push(r#"{job="x\"y", env="prod"}"#, &[first, entry(0, b"", &[])])),
        (&named, &push("{}", &[entry(1, b"named", &[])])),
        ("", &push("{}", &[])),
    ] {
        let answer = service.post(PUSH, headers, body);
        assert_eq!(answer.status, 204, "{answer:?}");
    }
    service.stop();
    let time = "2025-11-25T10:11:12.123456789Z";
    let epoch = "1970-01-01T00:00:00.000Z";
    let labels = json!({"job": "app", "env": "prod"});
    let expected = [
        json!({"@timestamp": time, "message": "line \"1\"", "labels": labels, "structured_metadata": {"trace": "t"}, "tenant": "team a"}),
        json!({"@timestamp": "2025-11-25T10:11:12.123456790Z", "message": "line 2", "labels": labels, "tenant": "team a"}),
        json!({"@timestamp": "1970-01-01T00:00:00.000000001Z", "message": "z", "labels": {"a": "b"}}),
        json!({"@timestamp": time, "message": "a \"b\"\n\u{fffd}", "labels": {"job": "x\"y", "env": "prod"}, "structured_metadata": {"trace": "t1", "event_id": "x"}}),
        json!({"@timestamp": epoch, "message": "", "labels": {"job": "x\"y", "env": "prod"}}),
        json!({"@timestamp": "1970-01-01T00:00:00.000000001Z", "message": "named"}),
    ];
    let mut events = events(&folder);
    for event in &mut events {
        if event["tenant"].is_null() {
            event.as_object_mut().expect("an object").remove("tenant");
        }
    }
    assert_eq!(events, expected);
}

#[test]
fn requests_that_are_not_taken_leave_nothing() {
    let folder = Folder::new();
    let settings = ", max_request_bytes: 1KiB, auth: {bearer: t0ken}";
    let service = Service::with(&folder, INPUT, settings, &to_file(&folder));
    let good = "Authorization: Bearer t0ken\r\n";
    let json = format!("{good}{JSON}");
    let coded = format!("{json}Content-Encoding: br\r\n");
    let nameless = format!("{json}X-Scope-OrgID: {}\r\n", "x".repeat(151));
    let bomb = snap::raw::Encoder::new()
        .compress_vec(&[0; 10_000])
        .expect("compressed");
    let cut = push("{}", &[entry(1, b"first", &[])]);
    let wrong = push("{a=1}", &[]);
    // Small, and 20 events with 500 bytes of labels each.
    let repeating = format!(
        r#"{{"streams":[{{"stream":{{"a":"{}"}},"values":[{}]}}]}}"#,
        "v".repeat(500),
        vec![r#"["1",""]"#; 20].join(",")
    );
    let timeless = push("{}", &[entry(1, b"a", &[]), field(2, b"b")]);
    for (status, part, target, headers, body) in [
        (401, "credentials", PUSH, JSON, &b"{}"[..]),
        (404, "/loki/api/v1/push", "/loki/api/v1/query", good, b""),
        (400, "X-Scope-OrgID", PUSH, &nameless, b"{}"),
        (400, "invalid JSON: ", PUSH, &json, b""),
        (400, "not UTF-8 at byte 2", PUSH, &json, b"{\"\xff\":1}"),
        (400, "`streams` is missing", PUSH, &json, b"{}"),
        (
            400,
            "stream 1: `stream` is missing",
            PUSH,
            &json,
            br#"{"streams":[{"stream":{},"values":[["1","a"]]},{"labels":"{}","entries":[]}]}"#,
        ),
        (
            400,
            "stream 0, entry 1: its timestamp is not",
            PUSH,
            &json,
            br#"{"streams":[{"stream":{},"values":[["1","a"],["2025-01-01","b"]]}]}"#,
        ),
        (
            400,
            "entry 0: its second element",
            PUSH,
            &json,
            br#"{"streams":[{"stream":{},"values":[["1",{"a":1}]]}]}"#,
        ),
        (
            400,
            "its structured metadata is not",
            PUSH,
            &json,
            br#"{"streams":[{"stream":{},"values":[["1","a",{"b":1}]]}]}"#,
        ),
        (400, "the body is empty", PUSH, good, b""),
        (
            400,
            "cannot be decompressed",
            PUSH,
            good,
            &cut[..cut.len() - 1],
        ),
        (400, "cannot be decompressed", "/api/prom/push", good, b"{}"),
        (
            400,
            "a quoted value is expected at byte 3",
            PUSH,
            good,
            &wrong,
        ),
        (
            400,
            "stream 0, entry 1: it has no timestamp",
            PUSH,
            good,
            &timeless,
        ),
        (413, "decompressed body is larger", PUSH, good, &bomb),
        (413, "larger than 1KiB", PUSH, good, &[b' '; 1025]),
        (
            413,
            "the labels of their streams are larger than 8 times",
            PUSH,
            &json,
            repeating.as_bytes(),
        ),
        (415, "Content-Encoding", PUSH, &coded, b"{}"),
    ] {
        let answer = service.post(target, headers, body);
        assert_eq!(answer.status, status, "{part}: {answer:?}");
        assert!(answer.text.contains(part), "{part}: {answer:?}");
    }
    let answer = service.post(
        "/api/prom/push",
        good,
        &push("{}", &[entry(1, b"good", &[])]),
    );
    assert_eq!(answer.status, 204, "{answer:?}");
    service.stop();
    let events = events(&folder);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["message"], "good");
}

/// The body of a request, the form of which depends on its number, and its headers.
fn pushed(request: usize) -> (&'static str, Vec<u8>) {
    let time = |number: usize| 1_764_065_472_000_000_000 + number as u64;
    if request.is_multiple_of(2) {
        let value = |number: usize| {
            let (time, line) = (time(number), line(number));
            format!(r#"["{time}","{line}",{{"event_id":"e-{number}"}}]"#)
        };
        let values: Vec<String> = numbers(request).map(value).collect();
        let values = values.join(",");
        let body = format!(r#"{{"streams":[{{"stream":{{"job":"web"}},"values":[{values}]}}]}}"#);
        return (JSON, body.into_bytes());
    }
    let entries = numbers(request).map(|number| {
        let line = line(number).replace("\\\"", "\"");
        entry(
            time(number),
            line.as_bytes(),
            &[("event_id", &format!("e-{number}"))],
        )
    });
    let entries: Vec<Vec<u8>> = entries.collect();
    (PROTOBUF, push(r#"{job="web"}"#, &entries))
}

#[test]
fn requests_that_were_answered_survive_kills() {
    survives("loki: {address: PORT, id_field: event_id}", |port, work| {
        one_by_one(port, work, |connection, number| {
            let (headers, body) = pushed(number);
            let (status, _) = connection.post(PUSH, headers, &body)?;
            assert!(matches!(status, 204 | 503), "{status}");
            Ok(status == 204)
        });
    });
}
