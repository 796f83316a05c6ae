//! The input `elasticsearch`, written to as agents do.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::cutter::Cutter;

use crate::posting::{Answer, Service, free_port, request};
use crate::program::{Folder, command, gzip, millpond};

const INPUT: &str = "elasticsearch";

/// What every answer says of itself.
const PRODUCT: &str = "x-elastic-product: Elasticsearch\r\n";

fn to_file(folder: &Folder) -> String {
    format!("    output: {{file: {{path: {}}}}}\n", folder.path("out"))
}

/// An output that fails until a directory is there.
fn to_missing(folder: &Folder) -> String {
    let path = folder.path("gone/out");
    format!("    output: {{file: {{path: {path}, create_dirs: false}}}}\n")
}

/// The body of an answer.
fn body(answer: &Answer) -> Value {
    assert!(answer.text.contains(PRODUCT), "{answer:?}");
    let (_, body) = answer.text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {answer:?}"))
}

/// Asks a question without a body.
fn ask(service: &Service, method: &str, path: &str, headers: &str) -> Answer {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    service.raw(head.as_bytes())
}

/// Puts a body.
fn put(service: &Service, path: &str, body: &str) -> Answer {
    let request = String::from_utf8(request(path, "", body.as_bytes())).expect("text");
    service.raw(request.replacen("POST", "PUT", 1).as_bytes())
}

/// The numbers in the documents of a file.
fn numbers(text: &str) -> Vec<u64> {
    let number = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("a JSON line");
        event["n"].as_u64().expect("a number")
    };
    text.lines().map(number).collect()
}

#[test]
fn what_is_posted_comes_out_as_it_came() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, "", &to_file(&folder));
    let zstd = zstd::encode_all(&b"{\"create\":{}}\n{\"n\":3}\n"[..], 3).expect("compressed");
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(b"{\"create\":{}}\n{\"n\":4}\n")
        .expect("compressed");
    let zlib = zlib.finish().expect("compressed");
    for (headers, body) in [
        (
            "Content-Type: application/x-ndjson\r\n",
            &b"{\"index\":{}}\n{\"n\":1.000, \"u\":\"\\u00e9\"}\n"[..],
        ),
        (
            "Content-Encoding: gzip\r\n",
            &gzip(b"{\"create\":{}}\n{\"n\":2}\n"),
        ),
        ("Content-Encoding: zstd\r\n", &zstd),
        ("Content-Encoding: deflate\r\n", &zlib),
    ] {
        let answer = service.post("/logs/_bulk", headers, body);
        assert_eq!(answer.status, 200, "{headers} {answer:?}");
    }
    let chunked = "POST /logs/_bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
        f\r\n{\"index\":{}}\n{\"\r\n6\r\nn\":5}\n\r\n0\r\n\r\n";
    assert_eq!(service.raw(chunked.as_bytes()).status, 200);
    service.stop();
    let expected = "{\"n\":1.000, \"u\":\"\\u00e9\"}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n{\"n\":5}\n";
    assert_eq!(folder.read("out"), expected);
}

#[test]
fn items_are_answered_one_by_one() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, "", &to_file(&folder));
    let text = concat!(
        "{\"create\":{\"_index\":\"a\",\"_id\":\"x\"}}\n{\"n\":1}\n",
        "{\"index\":{}}\n{\"n\":}\n",
        "{\"delete\":{\"_id\":\"x\"}}\n",
        "{\"update\":{\"_id\":\"y\"}}\n{\"doc\":{\"n\":2},\"doc_as_upsert\":true}\n",
        "{\"update\":{\"_id\":\"z\"}}\n{\"doc\":{\"n\":3}}\n",
        "{\"index\":{\"_id\":\"\"}}\n{\"n\":4}\n",
        "{\"index\":{}}\n{\"n\":5}\n",
    );
    let answer = service.post("/logs/_bulk", "", text.as_bytes());
    let body = body(&answer);
    assert_eq!((&body["errors"], answer.status), (&json!(true), 200));
    assert!(body["took"].is_u64(), "{body}");
    let items = body["items"].as_array().expect("items");
    let expected = [
        ("create", "a", 201, Value::Null),
        ("index", "logs", 400, json!("mapper_parsing_exception")),
        ("delete", "logs", 400, json!("illegal_argument_exception")),
        ("update", "logs", 201, Value::Null),
        ("update", "logs", 404, json!("document_missing_exception")),
        ("index", "logs", 400, json!("illegal_argument_exception")),
        ("index", "logs", 201, Value::Null),
    ];
    assert_eq!(items.len(), expected.len(), "{body}");
    for (item, (verb, index, status, kind)) in items.iter().zip(expected) {
        let item = &item[verb];
        let found = (&item["_index"], &item["status"], &item["error"]["type"]);
        assert_eq!(found, (&json!(index), &json!(status), &kind), "{item}");
    }
    assert_eq!(items[0]["create"]["_id"], "x");
    let said = service.stop().err;
    assert!(
        said.contains("4 of 7 documents of a request were refused") && said.contains("127.0.0.1:"),
        "{said}"
    );
    assert_eq!(folder.read("out"), "{\"n\":1}\n{\"n\":2}\n{\"n\":5}\n");
}

#[test]
fn single_documents_are_taken() {
    let folder = Folder::new();
    let output = to_file(&folder).replace(
        "    output",
        "    processors: [set: {fields: {id: '`@metadata`.id', op: '`@metadata`.op_type', to: '`@metadata`.index'}}]\n    output",
    );
    let service = Service::with(&folder, INPUT, "", &output);
    let made = service.post("/logs/_doc", "", b"{\n \"n\": 1\n}");
    assert_eq!(
        (made.status, &body(&made)["result"]),
        (201, &json!("created"))
    );
    assert_eq!(put(&service, "/logs/_doc/a%20b", "{\"n\":2}").status, 201);
    assert_eq!(put(&service, "/logs/_create/c", "{\"n\":3}").status, 201);
    assert_eq!(
        service
            .post("/logs/_doc?op_type=create", "", b"{\"n\":4}")
            .status,
        201
    );
    let bad = service.post("/logs/_doc", "", b"{\"n\":");
    assert_eq!(
        (bad.status, &body(&bad)["error"]["type"]),
        (400, &json!("mapper_parsing_exception"))
    );
    service.stop();
    let text = folder.read("out");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    assert_eq!(events[0]["id"], body(&made)["_id"]);
    let of = |event: &Value| json!([event["n"], event["id"], event["op"], event["to"]]);
    assert_eq!(of(&events[1]), json!([2, "a b", "index", "logs"]));
    assert_eq!(of(&events[2]), json!([3, "c", "create", "logs"]));
    assert_eq!(events[3]["op"], "create");
    assert_eq!(events.len(), 4);
}

#[test]
fn a_pipeline_between_agents_and_elasticsearch_keeps_index_and_id() {
    let folder = Folder::new();
    let (agents, server) = (free_port(), free_port());
    let store = Service::start(
        command(&[
            "run",
            &format!(
                "elasticsearch {server} | set id=`@metadata`.id, to=`@metadata`.index, p=`@metadata`.pipeline, r=`@metadata`.routing | file {}",
                folder.path("stored")
            ),
        ]),
        server,
    );
    let between = Service::start(
        command(&[
            "run",
            &format!(
                "elasticsearch {agents} | elasticsearch http://127.0.0.1:{server} index='%{{@metadata.index}}' pipeline='%{{@metadata.pipeline}}' routing='%{{@metadata.routing}}'"
            ),
        ]),
        agents,
    );
    let text = concat!(
        "{\"create\":{\"_index\":\"logs-a-b\",\"_id\":\"1\"}}\n{\"n\":1}\n",
        "{\"index\":{\"_index\":\"web\",\"_id\":\"\u{e9}\",\"pipeline\":\"own\",\"routing\":\"r\"}}\n{\"n\":2}\n",
        "{\"create\":{}}\n{\"n\":3}\n",
    );
    let answer = between.post("/other/_bulk?pipeline=p", "", text.as_bytes());
    let answer = body(&answer);
    assert_eq!(answer["errors"], false, "{answer}");
    between.stop();
    store.stop();
    let text = folder.read("stored");
    let mut events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    events.sort_by_key(|event| event["n"].as_u64());
    assert_eq!(
        events[0],
        json!({"n": 1, "id": "1", "to": "logs-a-b", "p": "p"})
    );
    assert_eq!(
        events[1],
        json!({"n": 2, "id": "\u{e9}", "to": "web", "p": "own", "r": "r"})
    );
    assert_eq!(
        (&events[2]["n"], &events[2]["to"]),
        (&json!(3), &json!("other"))
    );
    assert_eq!(events.len(), 3);
}

#[test]
fn requests_that_are_not_taken_leave_nothing() {
    let folder = Folder::new();
    let settings = ", max_request_bytes: 1KiB, max_request_actions: 3, auth: {api_key: 'id:key'}";
    let service = Service::with(&folder, INPUT, settings, &to_file(&folder));
    let good = "Authorization: ApiKey aWQ6a2V5\r\n";
    let gzipped = format!("{good}Content-Encoding: gzip\r\n");
    let line = "{\"index\":{}}\n{\"n\":1}\n";
    let bomb = gzip(&vec![b' '; 1_000_000]);
    let mut damaged = gzip(line.as_bytes());
    damaged[12] ^= 0xff;
    let chunks = "800\r\n".to_owned() + &" ".repeat(0x800) + "\r\n0\r\n\r\n";
    let head = "POST /l/_bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for (status, kind, part, request) in [
        (
            401,
            "security_exception",
            "www-authenticate: ApiKey",
            request("/l/_bulk", "", line.as_bytes()),
        ),
        (
            401,
            "security_exception",
            "credentials",
            request("/l/_bulk", "Authorization: ApiKey x\r\n", line.as_bytes()),
        ),
        (
            401,
            "security_exception",
            "credentials",
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
        ),
        (
            404,
            "no_handler_found_exception",
            "uri [/l/_search]",
            request("/l/_search", good, b"{}"),
        ),
        (
            405,
            "method_not_allowed_exception",
            "allow: POST, PUT",
            format!("GET /_bulk HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{good}\r\n").into(),
        ),
        (
            413,
            "content_too_long_exception",
            "larger than 1KiB",
            request("/l/_bulk", good, &[b' '; 1025]),
        ),
        (
            413,
            "content_too_long_exception",
            "larger than 1KiB",
            format!("{head}{good}Transfer-Encoding: chunked\r\n\r\n{chunks}").into(),
        ),
        (
            413,
            "content_too_long_exception",
            "is larger than `max_request_bytes` allows",
            request("/l/_bulk", &gzipped, &bomb[..1000]),
        ),
        (
            413,
            "content_too_long_exception",
            "more than 3 actions",
            request("/l/_bulk", good, line.repeat(4).as_bytes()),
        ),
        (
            400,
            "parse_exception",
            "cannot be decompressed",
            request("/l/_bulk", &gzipped, &damaged),
        ),
        (
            400,
            "parse_exception",
            "cannot be decompressed",
            request("/l/_bulk", &gzipped, line.as_bytes()),
        ),
        (
            400,
            "parse_exception",
            "request body is required",
            request("/l/_bulk", good, b""),
        ),
        (
            400,
            "illegal_argument_exception",
            "terminated by a newline",
            request("/l/_bulk", good, line.trim().as_bytes()),
        ),
        (
            400,
            "illegal_argument_exception",
            "line [3]",
            request("/l/_bulk", good, format!("{line}x\n{{}}\n").as_bytes()),
        ),
        (
            400,
            "action_request_validation_exception",
            "index is missing",
            request("/_bulk", good, line.as_bytes()),
        ),
        (
            415,
            "media_type_header_exception",
            "Content-Encoding",
            request("/l/_bulk", &format!("{good}Content-Encoding: br\r\n"), b"x"),
        ),
    ] {
        let answer = service.raw(&request);
        assert_eq!(answer.status, status, "{part}: {answer:?}");
        assert!(answer.text.contains(part), "{part}: {answer:?}");
        let body = body(&answer);
        assert_eq!(body["error"]["type"], kind, "{body}");
        assert_eq!(
            body["error"]["root_cause"][0]["reason"],
            body["error"]["reason"]
        );
        assert_eq!(body["status"], status);
    }
    let answer = service.post("/l/_bulk", good, b"{\"index\":{}}\n{\"good\":1}\n");
    assert_eq!(answer.status, 200);
    let said = service.stop().err;
    assert!(said.contains("a request was refused"), "{said}");
    assert_eq!(folder.read("out"), "{\"good\":1}\n");
}

/// Bytes on a connection, what the log says of them, and how many of their documents are taken.
fn malformed() -> Vec<(Vec<u8>, &'static str, usize)> {
    let bulk = |headers: &str, body: &[u8]| request("/l/_bulk", headers, body);
    let gzipped = "Content-Encoding: gzip\r\n";
    let line = b"{\"index\":{}}\n{\"n\":1}\n";
    let with = |document: &[u8]| {
        let line = [&line[..], b"{\"index\":{}}\n", document, b"\n"].concat();
        bulk("", &line)
    };
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(1024), "]".repeat(1024));
    let mut wrong_sum = gzip(line);
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    let cut = gzip(line);
    let long = bulk("", line);
    vec![
        (b"\x16\x03\x01\x02\0".to_vec(), "the client speaks TLS", 0),
        (b"2W\0\0\0\x01\n\r\n\r\n".to_vec(), "malformed request: ", 0),
        (
            b"POST /l/_bulk HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_vec(),
            "malformed request: ",
            0,
        ),
        (
            b"POST /l/_bulk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
                .to_vec(),
            "the body is not framed as HTTP demands: Invalid chunk size",
            0,
        ),
        (
            b"POST /l/_bulk HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec(),
            "the body is larger than 64KiB (`max_request_bytes`)",
            0,
        ),
        (
            bulk(gzipped, &gzip(&vec![b' '; 1_000_000])),
            "the decompressed body is larger than `max_request_bytes` allows",
            0,
        ),
        (
            bulk(gzipped, &wrong_sum),
            "the data cannot be decompressed",
            0,
        ),
        (
            bulk(gzipped, &cut[..cut.len() - 9]),
            "the data cannot be decompressed",
            0,
        ),
        (
            bulk(gzipped, &[&gzip(line)[..], b"more"].concat()),
            "there is other data after the compressed data",
            0,
        ),
        (bulk(gzipped, line), "the data cannot be decompressed", 0),
        (bulk("", b""), "request body is required", 0),
        (bulk("", &line[..12]), "must be terminated by a newline", 0),
        (
            bulk("", &line[..13]),
            "expected a document on the next line",
            0,
        ),
        (
            bulk("", b"{\"index\":{},\"create\":{}}\n{}\n"),
            "Malformed action/metadata line [1], expected one action",
            0,
        ),
        (
            bulk("", &[&line[..], &line[13..]].concat()),
            "Malformed action/metadata line [3]",
            0,
        ),
        (
            bulk("", format!("{{\"index\":{nested}}}\n{{}}\n").as_bytes()),
            "nested deeper than 1024 levels",
            0,
        ),
        (
            with(nested.as_bytes()),
            "1 of 2 documents of a request were refused, the first one because: failed to parse: invalid JSON: nested deeper",
            1,
        ),
        (
            with(b"{\"a\":\"\xff\"}"),
            "failed to parse: the document is not UTF-8",
            1,
        ),
        (
            with(b"{\"a\":[{\"b\":{}}]}"),
            "invalid JSON: nested deeper than 3 levels at byte 11",
            1,
        ),
        (with(b"[1]"), "invalid JSON: not a JSON object", 1),
        (with(b""), "invalid JSON: not a JSON object", 1),
        (
            long[..long.len() - 5].to_vec(),
            "the connection ended in the middle of the body",
            0,
        ),
    ]
}

#[test]
fn malformed_requests_are_reported_and_concern_no_other() {
    for (bytes, reason, taken) in malformed() {
        let folder = Folder::new();
        let settings = ", max_request_bytes: 64KiB, max_depth: 3";
        let service = Service::with(&folder, INPUT, settings, &to_file(&folder));
        let good = |number: u32| format!("{{\"index\":{{}}}}\n{{\"good\":{number}}}\n");
        assert_eq!(service.post("/l/_bulk", "", good(1).as_bytes()).status, 200);
        let mut bad = service.connect();
        let address = bad.local_addr().expect("an address");
        bad.write_all(&bytes).expect("sent");
        if reason.contains("ended in the middle") {
            bad.shutdown(Shutdown::Write).expect("closed");
        }
        let _ = bad.read_to_end(&mut Vec::new());
        drop(bad);
        assert_eq!(service.post("/l/_bulk", "", good(2).as_bytes()).status, 200);
        let said = service.stop().err;
        let line = said
            .lines()
            .find(|line| line.contains(&format!("{address}: ")));
        let line = line.unwrap_or_else(|| panic!("{reason}: {said}"));
        assert!(line.contains(reason), "{reason}: {line}");
        let out = folder.read("out");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2 + taken, "{reason}: {out}");
        assert_eq!(
            (lines[0], lines[lines.len() - 1]),
            ("{\"good\":1}", "{\"good\":2}")
        );
    }
}

#[test]
fn clients_learn_what_they_ask_before_they_send() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, ", version: 8.19.0", &to_file(&folder));
    for (path, pointer, expected) in [
        ("/", "/version/number", json!("8.19.0")),
        ("/?human=false", "/tagline", json!("You Know, for Search")),
        ("/", "/version/build_flavor", json!("default")),
        ("/_license", "/license/status", json!("active")),
        ("/_xpack", "/features/ilm/enabled", json!(true)),
        ("/_nodes/_all/http", "/_nodes/total", json!(1)),
        ("/_nodes/ingest", "/cluster_name", json!("millpond")),
        ("/_cluster/health", "/status", json!("green")),
        ("/_cat/indices?format=json", "", json!([])),
        ("/_ilm/status", "/operation_mode", json!("RUNNING")),
        ("/_data_stream", "/data_streams", json!([])),
    ] {
        let answer = ask(&service, "GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(body(&answer).pointer(pointer), Some(&expected), "{path}");
    }
    for (method, path, status) in [
        ("HEAD", "/", 200),
        ("GET", "/_cat/templates/x", 200),
        ("HEAD", "/_index_template/x", 404),
        ("GET", "/_component_template/x", 404),
        ("HEAD", "/_template/x", 404),
        ("GET", "/_ilm/policy/x", 404),
        ("GET", "/_ingest/pipeline/x", 404),
        ("GET", "/_data_stream/x", 404),
        ("HEAD", "/_alias/x", 404),
        ("HEAD", "/logs", 404),
    ] {
        let answer = ask(&service, method, path, "");
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.text.contains(PRODUCT), "{answer:?}");
        let is_empty = answer.text.ends_with("\r\n\r\n");
        assert_eq!(is_empty, method == "HEAD" || status == 200, "{answer:?}");
    }
    for path in [
        "/_index_template/x",
        "/_component_template/x",
        "/_template/x",
        "/_ilm/policy/x",
        "/_ingest/pipeline/x",
        "/_data_stream/x",
        "/%3Clogs-%7Bnow%2Fd%7D-000001%3E",
    ] {
        let large = format!("{{\"template\":\"{}\"}}", "x".repeat(300_000));
        let answer = put(&service, path, &large);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(body(&answer)["acknowledged"], true);
    }
    let accept = "Accept: application/vnd.elasticsearch+json; compatible-with=9\r\n";
    let answer = ask(&service, "GET", "/", accept);
    let named = "content-type: application/vnd.elasticsearch+json;compatible-with=9\r\n";
    assert!(answer.text.contains(named), "{answer:?}");
    let said = service.stop().err;
    let setups = said.matches("is acknowledged and not kept").count();
    assert_eq!(setups, 1, "{said}");
}

#[test]
fn clients_are_told_to_try_again_when_nothing_is_delivered() {
    let folder = Folder::new();
    let service = Service::with(&folder, INPUT, ", ack_timeout: 300ms", &to_missing(&folder));
    let one = b"{\"index\":{}}\n{\"n\":1}\n";
    let answer = service.post("/l/_bulk", "", one);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(answer.text.contains("retry-after: 5"), "{answer:?}");
    assert_eq!(
        body(&answer)["error"]["type"],
        "es_rejected_execution_exception"
    );
    fs::create_dir(folder.path("gone")).expect("created");
    let begin = Instant::now();
    while service.post("/l/_bulk", "", one).status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it works again");
    }
    service.stop();
    assert!(numbers(&folder.read("gone/out")).len() >= 2);
}

#[test]
fn slow_clients_and_a_stop_are_answered() {
    let folder = Folder::new();
    let settings = ", body_timeout: 300ms, idle_timeout: 300ms";
    let service = Service::with(&folder, INPUT, settings, &to_file(&folder));
    let whole = request("/l/_bulk", "", b"{\"index\":{}}\n{\"n\":1}\n");
    // A head that does not come, a body that does not, and a client that says nothing.
    let mut head = service.connect();
    head.write_all(&whole[..20]).expect("sent");
    let mut half = service.connect();
    half.write_all(&whole[..whole.len() - 3]).expect("sent");
    let mut silent = service.connect();
    // The others go on.
    assert_eq!(service.raw(&whole).status, 200);
    let late = Answer::read(&mut half);
    assert_eq!(
        (late.status, &body(&late)["error"]["type"]),
        (408, &json!("timeout_exception"))
    );
    let _ = head.read_to_end(&mut Vec::new());
    assert_eq!(silent.read_to_end(&mut Vec::new()).expect("closed"), 0);
    service.stop();

    let service = Service::with(&folder, INPUT, "", &to_file(&folder));
    let mut half = service.connect();
    half.write_all(&whole[..whole.len() - 3]).expect("sent");
    assert_eq!(service.raw(&whole).status, 200);
    service.signal(Signal::TERM);
    let stopped = Answer::read(&mut half);
    assert_eq!(
        (stopped.status, &body(&stopped)["error"]["type"]),
        (503, &json!("node_closed_exception"))
    );
    service.ended().expect(0);
    assert_eq!(numbers(&folder.read("out")), [1, 1]);
}

#[test]
fn a_one_line_pipeline_takes_documents_until_it_is_stopped() {
    let folder = Folder::new();
    let port = free_port();
    let out = folder.path("in.ndjson");
    let line = format!("elasticsearch {port} | file {out}");
    let service = Service::start(command(&["run", &line]), port);
    let answer = service.post("/_bulk", "", b"{\"index\":{\"_index\":\"x\"}}\n{\"a\":1}\n");
    assert_eq!(answer.status, 200);
    service.stop();
    assert_eq!(folder.read("in.ndjson"), "{\"a\":1}\n");
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let ended = millpond(&["check", "elasticsearch http://localhost:9200"]).expect(2);
    let note = "write `stdin | elasticsearch URL`";
    assert!(ended.err.contains(note), "{}", ended.err);
    for (settings, part) in [
        ("version=9", "a version such as 9.2.0"),
        ("version=9.2.0-SNAPSHOT", "a version such as 9.2.0"),
        ("max_request_bytes=2GiB", "at most 1GiB"),
        ("max_request_actions=0", "at least 1"),
        ("max_connections=0", "at least 1"),
        ("ack_timeout=0s", "a duration greater than 0"),
        ("paths=/x", "paths"),
    ] {
        let line = format!("elasticsearch 0 {settings} | stdout");
        let ended = millpond(&["check", &line]).expect(2);
        assert!(ended.err.contains(part), "{settings}: {}", ended.err);
    }
}

/// How often each number came out, with the id that it has.
fn came_out(text: &str) -> HashMap<u64, Vec<String>> {
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).expect("a JSON line");
        let id = event["id"].as_str().expect("an id").to_owned();
        found
            .entry(event["n"].as_u64().expect("a number"))
            .or_default()
            .push(id);
    }
    found
}

/// Sends a request once, and says whether all of it was answered with success.
fn send(address: SocketAddr, body: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    let request = request("/logs/_bulk?filter_path=errors", "", body.as_bytes());
    let mut answer = String::new();
    let is_sent = stream.write_all(&request).is_ok();
    let _ = stream.read_to_string(&mut answer);
    is_sent && answer.starts_with("HTTP/1.1 200") && answer.ends_with("{\"errors\":false}")
}

/// Clients send numbered documents through connections that are cut at random bytes, and repeat what was not answered, while
/// Millpond is killed and started again. Every number comes out; what was answered was taken once, and what was repeated has the
/// id that the client gave.
#[test]
fn what_is_answered_is_there_whatever_breaks() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 25;
    let folder = Folder::new();
    let pipeline = format!(
        "    queue: disk\n    processors: [set: {{fields: {{id: '`@metadata`.id'}}}}]\n{}",
        to_file(&folder)
    );
    let port = free_port();
    let mut service = Service::on(port, &folder, INPUT, "", &pipeline);
    let cutter = Cutter::start(([127, 0, 0, 1], port).into(), 7, 40_000);
    let address = cutter.address();
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let over = over.clone();
            thread::spawn(move || {
                let (mut requests, mut repeated) = (0, Vec::new());
                while !over.load(Ordering::Relaxed) || requests < 40 {
                    let first = (client * 1_000_000 + requests) * EACH;
                    let body: String = (first..first + EACH)
                        .map(|n| {
                            let pad = "x".repeat(n as usize % 200);
                            let id = match n % 2 {
                                0 => String::new(),
                                _ => format!("\"_id\":\"id-{n}\""),
                            };
                            format!("{{\"create\":{{{id}}}}}\n{{\"n\":{n},\"pad\":\"{pad}\"}}\n")
                        })
                        .collect();
                    if !send(address, &body) {
                        repeated.push(first);
                        while !send(address, &body) {
                            sleep(Duration::from_millis(20));
                        }
                    }
                    requests += 1;
                }
                (client, requests, repeated)
            })
        })
        .collect();
    for _ in 0..3 {
        sleep(Duration::from_millis(700));
        service.signal(Signal::KILL);
        service.ended();
        service = Service::on(port, &folder, INPUT, "", &pipeline);
    }
    over.store(true, Ordering::Relaxed);
    let sent: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a client"))
        .collect();
    let expected: u64 = sent.iter().map(|(_, requests, _)| requests * EACH).sum();
    let begin = Instant::now();
    while came_out(&folder.read("out")).len() < expected as usize {
        assert!(begin.elapsed() < Duration::from_secs(30), "all come out");
        sleep(Duration::from_millis(50));
    }
    service.stop();
    let found = came_out(&folder.read("out"));
    assert_eq!(found.len() as u64, expected);
    let mut repeats = 0;
    for (client, requests, repeated) in sent {
        repeats += repeated.len();
        for request in 0..requests {
            let first = (client * 1_000_000 + request) * EACH;
            for n in first..first + EACH {
                let ids = &found[&n];
                // The output may write again what it wrote last before it was killed: the same events, with the same ids. What
                // a client sends again without an id is another event.
                if n % 2 == 1 {
                    assert!(ids.iter().all(|id| *id == format!("id-{n}")), "{ids:?}");
                } else if !repeated.contains(&first) {
                    assert!(ids.iter().all(|id| *id == ids[0]), "{n}: {ids:?}");
                }
            }
        }
    }
    assert!(repeats > 0 && cutter.cut() > 0, "something was cut");
}
