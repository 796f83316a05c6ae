//! The output `otlp` against receivers that are busy, refuse requests, or accept parts of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::otlp::{Documents, Status};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use net::grpc::{self, AnswerBody, Code, Failure};
use net::{Address, ConnectionError, Handler, Listener, Peer};
use parking_lot::Mutex;
use serde_json::Value;
use testkit::http::{Answer, HttpServer};

use crate::program::{Folder, command, ended, millpond};
use crate::running::numbered;

/// The messages of the log records in a request.
fn messages(request: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    let read = Documents::new(100).read(request, |document| {
        assert!(document.id.is_some(), "every event has an id");
        let event: Value = serde_json::from_slice(document.text).expect("JSON");
        messages.push(event["message"].as_str().expect("text").to_owned());
    });
    read.expect("a request of OTLP");
    messages
}

/// The body of a request over HTTP.
fn body(taken: &testkit::http::Taken) -> Vec<u8> {
    assert_eq!(taken.path, "/v1/logs");
    assert_eq!(taken.header("content-type"), "application/x-protobuf");
    let mut plain = Vec::new();
    match taken.header("content-encoding") {
        "gzip" => {
            let mut decoder = flate2::read::GzDecoder::new(&*taken.body);
            std::io::Read::read_to_end(&mut decoder, &mut plain).expect("one gzip stream");
        }
        _ => plain.extend_from_slice(&taken.body),
    }
    plain
}

/// What answers calls, each with the number of those before it.
type Behaviour = dyn Fn(&[String], usize) -> Result<Vec<u8>, Failure> + Send + Sync;

/// A receiver of calls that does what a test wants, and is strict about what it gets.
struct Receiver {
    behaviour: Box<Behaviour>,
    calls: Mutex<Vec<Vec<String>>>,
}

impl Handler for Receiver {
    type Session = ();
    const SPEAKS_HTTP2: bool = true;

    fn begin(&self, _: Peer) {}

    fn refused(&self, _: Peer, _: &ConnectionError) {}

    async fn handle(&self, (): &(), request: Request<Incoming>) -> Response<Full<Bytes>> {
        panic!("not a call: {request:?}");
    }

    async fn call(&self, (): &(), request: Request<Incoming>) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        assert_eq!(
            head.uri.path(),
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
        );
        assert_eq!(head.headers["te"], "trailers");
        let is_gzip = grpc::is_gzip(&head.headers).expect("gzip or none");
        let message = grpc::message(body, is_gzip, 4 << 20).await;
        let messages = messages(&message.expect("one whole message"));
        let answer = {
            let mut calls = self.calls.lock();
            let answer = (self.behaviour)(&messages, calls.len());
            calls.push(match &answer {
                Ok(_) => messages,
                Err(_) => Vec::new(),
            });
            answer
        };
        match answer {
            Ok(body) => grpc::answer(Ok(&body)),
            Err(failure) => grpc::answer(Err(failure)),
        }
    }
}

/// Runs a receiver of calls while something is done with its address; what it accepted.
fn receiving(
    behaviour: impl Fn(&[String], usize) -> Result<Vec<u8>, Failure> + Send + Sync + 'static,
    during: impl FnOnce(SocketAddr),
) -> Vec<Vec<String>> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let receiver = Arc::new(Receiver {
        behaviour: Box::new(behaviour),
        calls: Mutex::default(),
    });
    let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
    let tcp = runtime.block_on(Address::loopback(0).bind(&node));
    let listener = Listener::new(tcp.expect("a port"), None, 100);
    let address = listener.local_addr().expect("an address");
    let forever = std::future::pending();
    let idle_timeout = Duration::from_secs(60);
    let serving = net::serve(listener, receiver.clone(), idle_timeout, forever, |_| {});
    runtime.spawn(serving);
    during(address);
    runtime.shutdown_background();
    receiver.calls.lock().clone()
}

fn log(folder: &Folder, lines: usize) -> String {
    folder.write("a.log", numbered("a", 0..lines))
}

/// Lines in order.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn expected(lines: usize) -> Vec<String> {
    sorted(numbered("a", 0..lines).lines().map(str::to_owned).collect())
}

#[test]
fn a_log_arrives_over_http() {
    let folder = Folder::new();
    let log = log(&folder, 20_000);
    for settings in ["", "compression=none resource.service.name=web"] {
        let server = HttpServer::start(|_, _| Answer::new(200));
        let url = server.url();
        let pipeline = format!("file {log} | otlp {url} {settings}");
        millpond(&["run", &pipeline]).expect(0);
        let taken = server.taken();
        let arrived = taken.iter().flat_map(|taken| messages(&body(taken)));
        assert_eq!(sorted(arrived.collect()), expected(20_000));
    }
}

#[test]
fn busy_servers_are_left_alone_and_get_everything() {
    let folder = Folder::new();
    let log = log(&folder, 2_000);
    let server = HttpServer::start(|_, number| match number {
        0 => Answer::new(429).header("retry-after", "1"),
        1 => Answer::new(503),
        2 => Answer::new(502),
        3 => Answer::new(504),
        _ => Answer::new(200),
    });
    let pipeline = format!("file {log} | otlp {} batch.max_events=500", server.url());
    millpond(&["run", &pipeline]).expect(0);
    let taken = server.taken();
    let good = taken.iter().filter(|taken| taken.status.is_success());
    let arrived = good.flat_map(|taken| messages(&body(taken)));
    assert_eq!(sorted(arrived.collect()), expected(2_000));
    assert!(taken.len() >= 8);
}

#[test]
fn calls_are_retried_as_their_status_says() {
    let folder = Folder::new();
    let log = log(&folder, 2_000);
    let calls = receiving(
        |_, number| {
            let status = Status {
                code: 8,
                message: "busy".to_owned(),
                retry_delay: Some(Duration::from_millis(200)),
            };
            match number {
                0 => {
                    Err(Failure::new(Code::ResourceExhausted, "busy").with_details(status.write()))
                }
                1 => Err(Failure::new(Code::Unavailable, "away")),
                2 => Err(Failure::new(Code::DeadlineExceeded, "late")),
                _ => Ok(Vec::new()),
            }
        },
        |address| {
            let pipeline =
                format!("file {log} | otlp http://{address} protocol=grpc batch.max_events=500");
            millpond(&["run", &pipeline]).expect(0);
        },
    );
    assert_eq!(sorted(calls.concat()), expected(2_000));
}

/// A configuration that reads a log to its end, with a place for dead letters.
fn with_letters(folder: &Folder, log: &str, settings: &str) -> String {
    let yaml = format!(
        "data_dir: '{}'
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'], follow: false }} }}
    output: {{ otlp: {{ {settings} }} }}
    retry: {{ initial: 10ms, max: 100ms }}
",
        folder.path("data")
    );
    folder.write("c.yaml", yaml)
}

#[test]
fn what_is_refused_becomes_a_dead_letter() {
    let is_bad = |messages: &[String]| messages.iter().any(|text| text.ends_with(" line 7"));
    let folder = Folder::new();
    let log = log(&folder, 100);
    // Over HTTP a request with the bad event is 400, over gRPC INVALID_ARGUMENT.
    let server = HttpServer::start(move |taken, _| match is_bad(&messages(&body(taken))) {
        true => Answer::new(400).body("bad event"),
        false => Answer::new(200),
    });
    let path = with_letters(&folder, &log, &format!("url: '{}'", server.url()));
    run_to_the_end(&path, &folder);
    let taken = server.taken();
    let good = taken.iter().filter(|taken| taken.status.is_success());
    let arrived: Vec<String> = good.flat_map(|taken| messages(&body(taken))).collect();
    assert_eq!(arrived.len(), 99);
    let folder = Folder::new();
    let log = self::log(&folder, 100);
    let calls = receiving(
        move |messages, _| match is_bad(messages) {
            true => Err(Failure::new(Code::InvalidArgument, "bad event")),
            false => Ok(Vec::new()),
        },
        |address| {
            let settings = format!("url: 'http://{address}', protocol: grpc");
            let path = with_letters(&folder, &log, &settings);
            run_to_the_end(&path, &folder);
        },
    );
    assert_eq!(calls.concat().len(), 99);
}

/// Reads the log to its end; afterwards one event is a dead letter that says why.
fn run_to_the_end(path: &str, folder: &Folder) {
    let ended = millpond(&["run", path]);
    let data = folder.path("data");
    let letters = |command: &str, more: &[&str]| {
        let all = ["dead-letters", command, "--data-dir", &data];
        millpond(&[&all[..], more].concat()).expect(0)
    };
    let list = letters("list", &["--json"]).events();
    assert_eq!(list.len(), 1, "{list:?}, {}", ended.err);
    assert!(list[0].to_string().contains("bad event"), "{list:?}");
    let events = letters("export", &[]).events();
    assert!(events[0].to_string().contains("line 7"), "{events:?}");
}

#[test]
fn a_part_that_is_not_accepted_is_reported() {
    let folder = Folder::new();
    let log = log(&folder, 10);
    let answer = profiler::otlp::Answer {
        rejected: 3,
        message: "too old".to_owned(),
    };
    let reply = profiler::otlp::response(&answer);
    let server = HttpServer::start(move |_, _| {
        Answer::new(200)
            .header("content-type", "application/x-protobuf")
            .body(reply.clone())
    });
    let pipeline = format!("file {log} | otlp {}", server.url());
    let output = command(&["run", &pipeline, "--metrics"]).output();
    let ended = ended(output.expect("the executable runs"));
    assert!(
        ended
            .err
            .contains("rejected 3 of 10 events of a request and does not say which"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("rejected_by_server"), "{}", ended.err);
    assert_eq!(server.taken().len(), 1, "it is not sent again");
}

#[test]
fn a_server_that_refuses_the_credentials_ends_a_run() {
    let folder = Folder::new();
    let log = log(&folder, 10);
    let server = HttpServer::start(|_, _| Answer::new(401).body("who are you"));
    let pipeline = format!("file {log} | otlp {} auth.bearer=secret", server.url());
    let ended = millpond(&["run", &pipeline]).expect(1);
    assert!(
        ended.err.contains("401 Unauthorized: who are you"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("secret"), "{}", ended.err);
}
