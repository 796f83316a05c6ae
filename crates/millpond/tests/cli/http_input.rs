//! The input `http`, posted to as clients do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::posting::{Answer, Service, free_port, request};
use crate::program::{Folder, command, ended, gzip, millpond};

fn lines(folder: &Folder, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.path(name)).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

fn to_file(folder: &Folder) -> String {
    format!("    output: {{file: {{path: {}}}}}\n", folder.path("out"))
}

#[test]
fn what_is_posted_comes_out_as_it_came() {
    let folder = Folder::new();
    let service = Service::with(&folder, "http", "", &to_file(&folder));
    let zstd = zstd::encode_all(&b"{\"n\":6}\n"[..], 3).expect("compressed");
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(b"[{\"n\":7}]").expect("compressed");
    let zlib = zlib.finish().expect("compressed");
    for (headers, body) in [
        ("", &b"{\"n\":1.000, \"u\":\"\\u00e9\"}"[..]),
        (
            "Content-Type: application/x-ndjson\r\n",
            b"{\"n\":2}\n\n{\"n\":3}\n",
        ),
        (
            "Content-Type: application/json; charset=utf-8\r\n",
            b"[\n{\"n\":4}\n]",
        ),
        ("Content-Encoding: gzip\r\n", &gzip(b"{\"n\":5}")),
        ("Content-Encoding: zstd\r\n", &zstd),
        ("Content-Encoding: deflate\r\n", &zlib),
        ("", b""),
    ] {
        let answer = service.post("/any/where", headers, body);
        assert_eq!(answer.status, 200, "{headers} {answer:?}");
    }
    let chunked = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\n{\"n\"\r\n3\r\n:8}\r\n0\r\n\r\n";
    assert_eq!(service.raw(chunked.as_bytes()).status, 200);
    service.stop();
    let text = folder.read("out");
    let expected = "{\"n\":1.000, \"u\":\"\\u00e9\"}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n{\"n\":5}\n{\"n\":6}\n{\"n\":7}\n{\"n\":8}\n";
    assert_eq!(text, expected);
}

#[test]
fn lines_headers_and_parameters_become_fields() {
    let folder = Folder::new();
    let settings = ", codec: text, headers: [X-Team], query: [src], response_code: 202";
    let service = Service::with(&folder, "http", settings, &to_file(&folder));
    let answer = service.post("/?src=a+%C3%A9", "X-Team: red\r\n", b"one\r\ntwo");
    assert_eq!(answer.status, 202);
    assert_eq!(service.post("/", "", b"three").status, 202);
    service.stop();
    let events = lines(&folder, "out");
    let http = json!({"headers": {"x-team": "red"}, "query": {"src": "a é"}});
    for (event, message, http) in [
        (&events[0], "one", Some(&http)),
        (&events[1], "two", Some(&http)),
        (&events[2], "three", None),
    ] {
        assert_eq!(event["message"], message);
        assert_eq!(event.get("http"), http, "{event}");
        assert!(event["@timestamp"].is_string(), "{event}");
    }
    assert_eq!(events.len(), 3);
}

#[test]
fn requests_that_are_not_taken_leave_nothing() {
    let folder = Folder::new();
    folder.write("key", "k3y\n");
    let settings = format!(
        ", path: [/in, /api/*], method: POST, max_request_bytes: 1KiB, auth: {{basic: {{user: u, password: p}}}}, require_headers: {{x-key: \"file:{}\"}}",
        folder.path("key")
    );
    let service = Service::with(&folder, "http", &settings, &to_file(&folder));
    let good = "Authorization: Basic dTpw\r\nX-Key: k3y\r\n";
    let gzipped = format!("{good}Content-Encoding: gzip\r\n");
    let json = format!("{good}Content-Type: application/json\r\n");
    let bomb = gzip(&vec![b' '; 1_000_000]);
    let large = vec![b' '; 1025];
    let mut damaged = gzip(b"{\"a\":1}");
    damaged[12] ^= 0xff;
    let chunks = "800\r\n".to_owned() + &" ".repeat(0x800) + "\r\n0\r\n\r\n";
    let head = "POST /in HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for (status, part, request) in [
        (
            401,
            "www-authenticate: Basic",
            request("/in", "X-Key: k3y\r\n", b"{}"),
        ),
        (
            401,
            "wrong or missing credentials",
            request("/in", "Authorization: Basic dTpx\r\nX-Key: k3y\r\n", b"{}"),
        ),
        (
            403,
            "x-key",
            request("/in", "Authorization: Basic dTpw\r\n", b"{}"),
        ),
        (404, "accepted at this path", request("/into", good, b"{}")),
        (
            405,
            "allow: POST",
            format!("GET /in HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{good}\r\n").into(),
        ),
        (413, "larger than 1KiB", request("/in", good, &large)),
        (
            413,
            "larger than 1KiB",
            format!("{head}{good}Transfer-Encoding: chunked\r\n\r\n{chunks}").into(),
        ),
        (
            413,
            "the decompressed body is larger",
            request("/in", &gzipped, &bomb[..1000]),
        ),
        (
            400,
            "cannot be decompressed",
            request("/in", &gzipped, &damaged),
        ),
        (
            400,
            "cannot be decompressed",
            request("/in", &gzipped, b"{\"a\":1}"),
        ),
        (
            400,
            "line 2: invalid JSON",
            request("/in", &json, b"{\"a\":1}\n{\"a\":}\n{\"a\":2}"),
        ),
        (
            400,
            "line 1: invalid JSON: not a JSON object",
            request("/in", &json, b"[1]"),
        ),
        (
            415,
            "Content-Encoding is not supported",
            request("/in", &format!("{good}Content-Encoding: br\r\n"), b"x"),
        ),
    ] {
        let answer = service.raw(&request);
        assert_eq!(answer.status, status, "{part}: {answer:?}");
        assert!(answer.text.contains(part), "{part}: {answer:?}");
    }
    assert_eq!(service.post("/api/x", good, b"{\"good\":1}").status, 200);
    service.stop();
    assert_eq!(folder.read("out"), "{\"good\":1}\n");
}

#[test]
fn what_cannot_be_opened_ends_the_start() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let read = folder.write("in.ndjson", "{\"a\":1}\n");
    let out = folder.path("out");
    // The first pipeline must not read anything either.
    let config = |settings: &str| {
        format!(
            "pipelines:\n  a: {{input: {{file: {{paths: [{read}], follow: false}}}}, output: {{file: {{path: {out}}}}}}}\n  b:\n    input:\n      http:\n        {settings}\n    output: discard\n"
        )
    };
    let port = free_port();
    let key = folder.write("key.pem", "not a key");
    for (settings, part, place) in [
        (
            format!("address: {address}"),
            "another program is already listening there",
            ":6:18",
        ),
        (
            format!("{{address: {port}, tls: {{cert: /nowhere.pem, key: {key}}}}}"),
            "cannot read /nowhere.pem",
            "http.tls.cert",
        ),
        (
            format!("{{address: {port}, auth: {{bearer: \"file:/nowhere\"}}}}"),
            "cannot read the secret in /nowhere",
            "http.auth.bearer",
        ),
    ] {
        let path = folder.write("c.yaml", config(&settings));
        let ended = millpond(&["run", &path]).expect(2);
        assert!(
            ended.err.contains(part) && ended.err.contains(place),
            "{}",
            ended.err
        );
        assert!(!fs::exists(&out).expect("a readable folder"));
        // Checking a configuration opens nothing.
        millpond(&["check", &path]).expect(0);
    }
    let ended = millpond(&["run", "http localhost | stdout"]).expect(2);
    assert!(ended.err.contains("use localhost:8080"), "{}", ended.err);
}

#[test]
fn a_one_line_pipeline_takes_requests_until_it_is_stopped() {
    let port = free_port();
    let service = Service::start(command(&["run", &format!("http {port} | stdout")]), port);
    assert_eq!(service.post("/", "", b"{\"a\":1}").status, 200);
    assert_eq!(service.stop().out, "{\"a\":1}\n");
}

/// An output that fails until a directory is there.
fn to_missing(folder: &Folder) -> String {
    let path = folder.path("gone/out");
    format!("    output: {{file: {{path: {path}, create_dirs: false}}}}\n")
}

#[test]
fn clients_are_told_to_try_again_when_nothing_is_delivered() {
    let folder = Folder::new();
    let service = Service::with(
        &folder,
        "http",
        ", ack_timeout: 300ms",
        &to_missing(&folder),
    );
    let begin = Instant::now();
    let answer = service.post("/", "", b"{\"a\":1}");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.text.contains("retry-after: 5"), "{answer:?}");
    assert!(begin.elapsed() >= Duration::from_millis(300));
    fs::create_dir(folder.path("gone")).expect("created");
    let begin = Instant::now();
    while service.post("/", "", b"{\"a\":2}").status != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "it works again");
    }
    service.stop();
    let text = folder.read("gone/out");
    assert!(
        text.contains("{\"a\":1}\n") && text.contains("{\"a\":2}\n"),
        "{text}"
    );
}

#[test]
fn a_disk_queue_answers_for_outputs_that_are_away() {
    let folder = Folder::new();
    let pipeline = format!("    queue: disk\n{}", to_missing(&folder));
    let service = Service::with(&folder, "http", "", &pipeline);
    for n in 0..20 {
        let answer = service.post("/", "", format!("{{\"n\":{n}}}").as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    service.signal(Signal::KILL);
    assert_eq!(service.ended().code, None);
    fs::create_dir(folder.path("gone")).expect("created");
    let service = Service::with(&folder, "http", "", &pipeline);
    let begin = Instant::now();
    while lines(&folder, "gone/out").len() < 20 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "they are delivered"
        );
        sleep(Duration::from_millis(20));
    }
    service.stop();
    let numbers: Vec<_> = lines(&folder, "gone/out")
        .iter()
        .map(|event| event["n"].as_u64())
        .collect();
    assert_eq!(numbers, (0..20).map(Some).collect::<Vec<_>>());
}

#[test]
fn a_stop_answers_what_was_read_and_refuses_the_rest() {
    let folder = Folder::new();
    let service = Service::with(&folder, "http", "", &to_file(&folder));
    let mut idle = service.connect();
    let mut half = service.connect();
    let whole = request("/", "", b"{\"half\":1}");
    half.write_all(&whole[..whole.len() - 3]).expect("sent");
    assert_eq!(service.post("/", "", b"{\"whole\":1}").status, 200);
    service.signal(Signal::TERM);
    let answer = Answer::read(&mut half);
    assert_eq!(answer.status, 503, "{answer:?}");
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).expect("closed"), 0);
    service.ended().expect(0);
    assert_eq!(folder.read("out"), "{\"whole\":1}\n");
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let folder = Folder::new();
    let settings = ", body_timeout: 200ms, idle_timeout: 200ms";
    let service = Service::with(&folder, "http", settings, &to_file(&folder));
    let mut half = service.connect();
    half.write_all(&request("/", "", b"{}")[..40])
        .expect("sent");
    let mut head = service.connect();
    head.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        .expect("sent");
    assert_eq!(Answer::read(&mut head).status, 408);
    let mut rest = Vec::new();
    // Closed, with or without an answer.
    let _ = half.read_to_end(&mut rest);
    service.stop();
}

#[test]
fn a_client_that_sends_everything_first_reads_that_it_is_too_much() {
    let folder = Folder::new();
    let service = Service::with(
        &folder,
        "http",
        ", max_request_bytes: 1MiB",
        &to_file(&folder),
    );
    let large = vec![b' '; 8 << 20];
    let mut announced = request("/", "", &large);
    // Without a length it is found out in the middle.
    let mut chunked =
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n".to_vec();
    chunked.extend_from_slice(&large);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    for request in [&mut announced, &mut chunked] {
        let mut stream = service.connect();
        stream.write_all(request).expect("all of it is taken");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("no reset");
        assert!(text.starts_with("HTTP/1.1 413"), "{text}");
        assert!(text.contains("connection: close"), "{text}");
        assert!(
            text.ends_with("larger than 1MiB (`max_request_bytes`)\n"),
            "{text}"
        );
    }
    assert_eq!(service.post("/", "", b"{\"a\":1}").status, 200);
    service.stop();
    assert_eq!(folder.read("out"), "{\"a\":1}\n");
}

#[test]
fn more_events_than_are_listed_at_once_arrive_once_each() {
    let folder = Folder::new();
    let service = Service::with(&folder, "http", "", &to_file(&folder));
    let body: String = (0..200_000).map(|n| format!("{{\"n\":{n}}}")).collect();
    assert_eq!(service.post("/", "", body.as_bytes()).status, 200);
    // Nothing of a body that is broken at its end.
    let broken = body + "{\"n\":";
    let answer = service.post("/", "", broken.as_bytes());
    assert_eq!(answer.status, 400, "{answer:?}");
    service.stop();
    let text = folder.read("out");
    let numbers = (0..200_000).map(|n| format!("{{\"n\":{n}}}\n"));
    assert!(text == numbers.collect::<String>(), "each once, in order");
}

#[test]
fn settings_that_cannot_be_meant_are_refused_at_their_place() {
    let folder = Folder::new();
    let time = "a duration greater than 0 is expected";
    let input = "http: {address: 0, ";
    let output = "http: {url: \"http://127.0.0.1:1\", ";
    for (of_input, of_output, top, part, place) in [
        (
            format!("{input}idle_timeout: 0s}}"),
            "discard".to_owned(),
            "",
            time,
            "idle_timeout",
        ),
        (
            format!("{input}body_timeout: 0}}"),
            "discard".into(),
            "",
            time,
            "body_timeout",
        ),
        (
            format!("{input}ack_timeout: 0ms}}"),
            "discard".into(),
            "",
            time,
            "ack_timeout",
        ),
        (
            format!("{input}max_request_bytes: 0}}"),
            "discard".into(),
            "",
            "at least 1B is expected",
            "max_request_bytes",
        ),
        (
            format!("{input}max_request_bytes: 2GiB}}"),
            "discard".into(),
            "",
            "at most 1GiB",
            "max_request_bytes",
        ),
        (
            format!("{input}max_connections: 0}}"),
            "discard".into(),
            "",
            "at least 1 is expected",
            "max_connections",
        ),
        (
            format!("{input}response_code: 404}}"),
            "discard".into(),
            "",
            "200 to 299",
            "response_code",
        ),
        (
            "stdin".into(),
            format!("{output}timeout: 0s}}"),
            "",
            time,
            "http.timeout",
        ),
        (
            "stdin".into(),
            format!("{output}connect_timeout: 0s}}"),
            "",
            time,
            "connect_timeout",
        ),
        (
            "stdin".into(),
            format!("{output}idle_timeout: 0s}}"),
            "",
            time,
            "idle_timeout",
        ),
        (
            "stdin".into(),
            format!("{output}batch: {{max_bytes: 0}}}}"),
            "",
            "at least 1B is expected",
            "batch.max_bytes",
        ),
        (
            "stdin".into(),
            format!("{output}batch: {{max_events: 0}}}}"),
            "",
            "at least 1 is expected",
            "batch.max_events",
        ),
        (
            "stdin".into(),
            format!("{output}batch: {{max_events: -1}}}}"),
            "",
            "not a count",
            "batch.max_events",
        ),
        (
            "stdin".into(),
            format!("{output}concurrency: 0}}"),
            "",
            "`adaptive` or a number from 1 to 1024",
            "concurrency",
        ),
        (
            "stdin".into(),
            format!("{output}compression: gzip, compression_level: 10}}"),
            "",
            "9",
            "compression_level",
        ),
        (
            "stdin".into(),
            format!("{output}retry_status: [200]}}"),
            "",
            "300",
            "retry_status",
        ),
        (
            "stdin".into(),
            "discard".into(),
            "    retry: {initial: 0s}\n",
            time,
            "retry.initial",
        ),
        (
            "stdin".into(),
            "discard".into(),
            "    retry: {max: 0s}\n",
            time,
            "retry.max",
        ),
    ] {
        let text = format!(
            "pipelines:\n  p:\n    input: {{{of_input}}}\n    output: {{{of_output}}}\n{top}"
        )
        .replace("{stdin}", "stdin")
        .replace("{discard}", "discard");
        let path = folder.write("c.yaml", text);
        let ended = millpond(&["check", &path]).expect(2);
        assert!(
            ended.err.contains(part) && ended.err.contains(place) && ended.err.contains("c.yaml:"),
            "{place}: {}",
            ended.err
        );
        assert!(!ended.err.contains("nonzero"), "{}", ended.err);
    }
}

#[test]
fn a_one_line_pipeline_names_a_user_and_a_password() {
    let port = free_port();
    let line =
        format!("http {port} auth.basic.user=u auth.basic.password='${{PASSWORD}}' | stdout");
    let mut run = command(&["run", &line]);
    run.env("PASSWORD", "p");
    let service = Service::start(run, port);
    assert_eq!(service.post("/", "", b"{\"a\":1}").status, 401);
    let folder = Folder::new();
    let events = folder.write("in.log", "from a file\n");
    let line = format!(
        "file {events} | http http://127.0.0.1:{port} auth.basic.user=u auth.basic.password='${{PASSWORD}}'"
    );
    let mut sent = command(&["run", &line]);
    sent.env("PASSWORD", "p");
    ended(sent.output().expect("it runs")).expect(0);
    assert!(service.stop().out.contains("from a file"));
    for (line, part) in [
        (
            "http 0 auth.basic.usr=u auth.basic.password=p | stdout",
            "usr",
        ),
        ("http 0 auth.basic.user=u | stdout", "password"),
        ("http 0 auth.basi.user=u | stdout", "basi"),
    ] {
        let ended = millpond(&["check", line]).expect(2);
        assert!(ended.err.contains(part), "{}", ended.err);
    }
}
