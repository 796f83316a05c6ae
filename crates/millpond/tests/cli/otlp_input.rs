//! The input `otlp`: what it answers over HTTP and gRPC, and that it answers when events are safe.

use std::time::Duration;

use bytes::Bytes;
use codec::otlp::Status;
use codec::otlp::any::write_pair;
use codec::otlp::wire::{bytes_tag, write_bytes};
use config::{Node, Source, parse_yaml};
use http::Method;
use http_body_util::{BodyExt, Full};
use net::client::reqwest::Body;
use net::{Client, ClientSettings, grpc};

use crate::posting::{Answer, Service, written};
use crate::program::{Folder, gzip};

const METHOD: &str = "opentelemetry.proto.collector.logs.v1.LogsService/Export";

const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";
const JSON: &str = "Content-Type: application/json\r\n";

/// A request with so many records.
fn request(records: usize) -> Vec<u8> {
    let mut scope = Vec::new();
    for number in 0..records {
        let mut record = Vec::new();
        let (text, mut any) = (format!("line {number}"), Vec::new());
        write_bytes(&mut any, bytes_tag(1), text.as_bytes());
        write_bytes(&mut record, bytes_tag(5), &any);
        let id = format!("id-{number}");
        write_pair(&mut record, bytes_tag(6), b"log.record.uid", id.as_bytes());
        write_bytes(&mut scope, bytes_tag(2), &record);
    }
    let (mut logs, mut request) = (Vec::new(), Vec::new());
    write_bytes(&mut logs, bytes_tag(2), &scope);
    write_bytes(&mut request, bytes_tag(1), &logs);
    request
}

fn start(folder: &Folder, settings: &str) -> Service {
    let pipeline = format!(
        "    processors:\n      - set: {{ fields: {{ id: '@metadata.id' }} }}\n    output: {{file: {{path: {}}}}}\n",
        folder.path("out")
    );
    Service::with(folder, "otlp", settings, &pipeline)
}

/// What a call was answered: status, text, and the time to wait.
fn call(port: u16, path: &str, headers: &str, body: Vec<u8>) -> (u32, String, Option<Duration>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let node: Node = parse_yaml(&Source::new("t.yaml", headers)).expect("YAML");
    let settings: ClientSettings = node.deserialize().expect("settings");
    let client = Client::build_http2(&settings, &node, false).expect("a client");
    runtime.block_on(async {
        let url = net::client::url(&node, &format!("http://127.0.0.1:{port}/{path}"));
        let request = client
            .request(Method::POST, url.expect("a URL"))
            .expect("a request");
        let request = request.header("content-type", grpc::MEDIA_TYPE).body(body);
        let answer = client.send(request).await.expect("an answer");
        let (head, body) = http::Response::<Body>::from(answer).into_parts();
        let body = body.collect().await.expect("a whole answer");
        let trailers = body.trailers().cloned();
        let (code, text) = grpc::status(&head.headers, trailers.as_ref()).expect("a status");
        let details = grpc::details(&head.headers, trailers.as_ref());
        let delay = details.and_then(|details| Status::read(&details).ok()?.retry_delay);
        if code == 0 {
            let message = grpc::message(Full::new(body.to_bytes()), false, 100).await;
            assert_eq!(message, Ok(Bytes::new()));
        }
        (code, text, delay)
    })
}

fn framed(is_compressed: bool, message: &[u8]) -> Vec<u8> {
    let head = grpc::head(is_compressed, message.len()).expect("small");
    [&head[..], message].concat()
}

#[test]
fn records_arrive_in_every_form() {
    let folder = Folder::new();
    let service = start(&folder, "");
    let json = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"json"},"attributes":[{"key":"a.b","value":{"intValue":"7"}}]}]}]}]}"#;
    let zstd = zstd::encode_all(&request(2)[..], 3).expect("compressed");
    for (headers, body) in [
        (PROTOBUF.to_owned(), request(3)),
        (
            format!("{PROTOBUF}Content-Encoding: gzip\r\n"),
            gzip(&request(2)),
        ),
        (format!("{PROTOBUF}Content-Encoding: zstd\r\n"), zstd),
        (JSON.to_owned(), json.to_vec()),
        (format!("{JSON}Content-Encoding: gzip\r\n"), gzip(json)),
        (PROTOBUF.to_owned(), Vec::new()),
    ] {
        let answer = service.post("/v1/logs", &headers, &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let kind = headers.split("\r\n").next().expect("a line").to_lowercase();
        assert!(answer.text.contains(&kind), "{}", answer.text);
    }
    let port = service.port;
    let done = (0, String::new(), None);
    assert_eq!(call(port, METHOD, "{}", framed(false, &request(2))), done);
    let headers = "headers: {grpc-encoding: gzip}";
    let compressed = framed(true, &gzip(&request(1)));
    assert_eq!(call(port, METHOD, headers, compressed), done);
    service.stop();
    let out = folder.read("out");
    assert_eq!(out.lines().count(), 12, "{out}");
    assert_eq!(
        out.matches(r#""message":"line 0","id":"id-0""#).count(),
        5,
        "{out}"
    );
    assert_eq!(
        out.matches(r#"{"message":"json","a.b":7,"id":""#).count(),
        2,
        "{out}"
    );
}

#[test]
fn refusals_say_why_in_the_form_of_the_request() {
    let folder = Folder::new();
    let settings = ", max_request_bytes: 10KiB, max_depth: 3, auth: {bearer: secret}";
    let service = start(&folder, settings);
    let auth = "Authorization: Bearer secret\r\n";
    let deep = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"arrayValue":{"values":[{"arrayValue":{"values":[{"arrayValue":{"values":[{"arrayValue":{"values":[]}}]}}]}}]}}}]}]}]}"#;
    let large = vec![0; 11 << 10];
    for (target, headers, body, status, expected) in [
        (
            "/v1/logs",
            PROTOBUF,
            &b""[..],
            401,
            "wrong or missing credentials",
        ),
        (
            "/v1/traces",
            &format!("{auth}{PROTOBUF}"),
            b"",
            404,
            "logs are received at /v1/logs",
        ),
        (
            "/v1/logs",
            auth,
            b"",
            415,
            "the Content-Type is not supported",
        ),
        (
            "/v1/logs",
            &format!("{auth}{PROTOBUF}Content-Encoding: br\r\n"),
            b"",
            415,
            "the Content-Encoding is not supported",
        ),
        (
            "/v1/logs",
            &format!("{auth}{PROTOBUF}"),
            b"\x0A\x09",
            400,
            "the message ends within a field",
        ),
        (
            "/v1/logs",
            &format!("{auth}{PROTOBUF}"),
            &large,
            413,
            "the body is larger than 10KiB",
        ),
        (
            "/v1/logs",
            &format!("{auth}{JSON}"),
            b"[]",
            400,
            r#"{"code":3,"message":"the request is not valid JSON"#,
        ),
        (
            "/v1/logs",
            &format!("{auth}{JSON}"),
            deep.as_bytes(),
            400,
            "values are nested too deeply",
        ),
    ] {
        let answer = service.post(target, headers, body);
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.text.contains(expected), "{}", answer.text);
    }
    let answer = service.raw(b"GET /v1/logs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.status, 405, "{}", answer.text);
    let port = service.port;
    let known = "auth: {bearer: secret}";
    let packed = "{auth: {bearer: secret}, headers: {grpc-encoding: snappy}}";
    for (path, headers, body, code) in [
        (METHOD, "{}", framed(false, b""), 16),
        ("other.Service/Export", known, framed(false, b""), 12),
        (METHOD, packed, framed(true, b""), 12),
        (METHOD, known, framed(true, b""), 3),
        (METHOD, known, framed(false, &[0x0A, 9]), 3),
        (METHOD, known, framed(false, &[0; 11 << 10]), 8),
        (METHOD, known, vec![0, 0, 0, 0, 9], 3),
        (METHOD, known, Vec::new(), 3),
    ] {
        let (answer, text, delay) = call(port, path, headers, body);
        assert_eq!((answer, delay), (code, None), "{text}");
    }
    service.stop();
    assert_eq!(written(&folder), 0);
}

#[test]
fn clients_are_told_to_come_back_while_events_are_not_safe() {
    let folder = Folder::new();
    // Nobody listens there: nothing is ever delivered.
    let pipeline = format!(
        "    output: {{http: {{url: 'http://127.0.0.1:{}/'}}}}\n",
        testkit::ports::free_port()
    );
    let service = Service::with(&folder, "otlp", ", ack_timeout: 300ms", &pipeline);
    let answer: Answer = service.post("/v1/logs", PROTOBUF, &request(1));
    assert_eq!(answer.status, 503);
    let lower = answer.text.to_lowercase();
    assert!(lower.contains("retry-after: 5"), "{}", answer.text);
    let (code, text, delay) = call(service.port, METHOD, "{}", framed(false, &request(1)));
    assert_eq!((code, delay), (14, Some(Duration::from_secs(5))), "{text}");
}
