//! The profiler of a service: what it stores of itself, what it sends and receives, and how stores are asked.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api;
use crate::program::{Folder, millpond};
use crate::running::{Service, cpu_time};

/// A service that is busy with made-up lines, with these settings of `profile`.
fn busy(folder: &Folder, profile: &Value) -> String {
    let configuration = json!({
        "data_dir": folder.path("state"),
        "profile": profile,
        "api": { "address": "127.0.0.1:0" },
        "pipelines": { "web": {
            "input": { "generate": { "format": "apache" } },
            "processors": [{ "grok": { "pattern": "%{COMBINEDAPACHELOG}" } }],
            "output": "discard",
        } },
    });
    folder.write("busy.yaml", configuration.to_string())
}

/// Rows of `profile top`.
fn rows(words: &[&str]) -> Vec<Value> {
    let ended = millpond(&[&["profile", "top", "--json"], words].concat());
    let lines = ended.expect(0).out;
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The profiles in a store.
fn files(store: &str) -> usize {
    let hosts = fs::read_dir(store).into_iter().flatten().flatten();
    hosts
        .filter_map(|host| fs::read_dir(host.path()).ok())
        .flatten()
        .flatten()
        .filter(|file| file.file_name().to_string_lossy().ends_with(".pb.gz"))
        .count()
}

/// Checks that a store has what an agent stored in two runs. Files that wait are sent together, and are then one file.
fn expect_all(store: &str, own: &str) {
    let (stored, received) = (files(own), files(store));
    assert!(stored >= 2, "{stored}");
    assert!((1..=stored).contains(&received), "{received} of {stored}");
    assert_eq!(samples(store), samples(own));
}

/// Checks that no warning is about what is sent. A busy machine may lose samples, which is said as well.
fn expect_sent(said: &str) {
    let mut warnings = said.lines().filter(|line| line.starts_with("warning"));
    assert!(warnings.all(|line| !line.contains("sent")), "{said}");
}

/// Runs a service until it has used a second of processor time, however long that takes; what it said.
fn run_for_a_moment(folder: &Folder, configuration: &str) -> String {
    let mut service = Service::start(folder, &["run", configuration]);
    let pid = service.id();
    service.until("samples", || cpu_time(pid) > Duration::from_secs(1));
    service.signal(Signal::TERM);
    service.until_ended(0)
}

/// The port on which a service receives profiles.
fn receiving_port(service: &mut Service) -> u16 {
    let mut port = None;
    let said = service.said_in();
    service.until("the port", || {
        let said = fs::read_to_string(&said).unwrap_or_default();
        let line = said.split_once("receiving profiles on ");
        let address = line.and_then(|(_, rest)| rest.split_once('\n'));
        port = address.and_then(|(address, _)| address.rsplit(':').next()?.parse().ok());
        port.is_some()
    });
    port.expect("a port")
}

#[test]
fn a_service_knows_what_its_operators_cost() {
    let folder = Folder::new();
    let configuration = busy(&folder, &json!({ "frequency": 199 }));
    run_for_a_moment(&folder, &configuration);
    let store = folder.path("state/profile");
    // One for each minute of which the run has a part.
    assert!(files(&store) > 0, "one is left at the end");
    let operators = rows(&[&store, "--by", "operator", "--filter", "pipeline=web"]);
    let grok = operators.iter().find(|row| row["name"] == "processor grok");
    let grok = grok.unwrap_or_else(|| panic!("{operators:?}"));
    let per_event = grok["ns_per_event"].as_f64().expect("events were counted");
    assert!((10.0..100_000.0).contains(&per_event), "{grok}");
    let text = millpond(&["profile", "top", &store, "--by", "operator", "--over-time"]);
    let text = text.expect(0).out;
    assert!(text.contains("│ processor grok"), "{text}");
    assert!(text.contains("µs/event"), "{text}");
    let ended = millpond(&[
        "profile",
        "diff",
        &store,
        "--before",
        "operator=processor grok",
        "--after",
        "pipeline=web",
    ]);
    assert!(ended.expect(0).out.contains("processor time"));
    let none = millpond(&["profile", "top", &store, "--until", "2026-01-01"]);
    let said = none.expect(2).err;
    assert!(said.contains("holds no profiles of that time"), "{said}");
}

#[test]
fn the_api_gives_what_was_stored() {
    let folder = Folder::new();
    let configuration = busy(&folder, &json!({ "frequency": 199 }));
    run_for_a_moment(&folder, &configuration);
    let mut service = Service::start(&folder, &["run", &configuration]);
    let port = api::port(&mut service);
    let answer = api::get(port, "/api/v1/profile?seconds=3600");
    assert_eq!(answer.status, 200, "{}", answer.head);
    let file = folder.write("profile.pb", &answer.body);
    let operators = rows(&[&file, "--by", "operator", "--filter", "pipeline=web"]);
    let grok = operators.iter().find(|row| row["name"] == "processor grok");
    assert!(grok.is_some(), "{operators:?}");
    let answer = api::get(port, "/api/v1/profile?seconds=x");
    assert_eq!(answer.status, 400, "{}", answer.text());
    service.kill();
}

/// A service that only receives profiles, from those who know the secret; where its store is, and its port.
fn receiver(folder: &Folder) -> (Service, String, u16) {
    let configuration = json!({
        "data_dir": folder.path("state"),
        "profile": {
            "enabled": false,
            "receive": { "address": "127.0.0.1:0", "auth": { "bearer": "secret" } },
        },
    });
    let configuration = folder.write("tier.yaml", configuration.to_string());
    let mut receiver = Service::start(folder, &["run", &configuration]);
    let port = receiving_port(&mut receiver);
    (receiver, folder.path("state/profile"), port)
}

/// How many samples a store has.
fn samples(store: &str) -> u64 {
    let rows = rows(&[store, "--by", "host"]);
    let samples = rows.iter().map(|row| row["self"]["samples"].as_u64());
    samples.map(|samples| samples.expect("a number")).sum()
}

/// Settings of `profile` that send to this port.
fn sending(folder: &Folder, protocol: &str, port: u16, token: &str) -> Value {
    json!({
        "frequency": 199,
        "store": folder.path("own"),
        "send": {
            "url": format!("http://127.0.0.1:{port}"),
            "protocol": protocol,
            "auth": { "bearer": token },
            // Names take long in a build without optimisation while other tests run.
            "shutdown_deadline": "10m",
        },
    })
}

#[test]
fn profiles_are_sent_to_one_store() {
    let (agent, tier) = (Folder::new(), Folder::new());
    let (receiver, store, port) = receiver(&tier);
    let send = |token| busy(&agent, &sending(&agent, "http/protobuf", port, token));
    let said = run_for_a_moment(&agent, &send("wrong"));
    assert!(said.contains("and will be sent again: 401"), "{said}");
    assert!(said.contains("the next run sends them"), "{said}");
    assert_eq!(files(&store), 0);
    let said = run_for_a_moment(&agent, &send("secret"));
    expect_sent(&said);
    expect_all(&store, &agent.path("own"));
    let functions = rows(&[&store, "--filter", "operator=processor grok", "-n", "1000"]);
    assert!(!functions.is_empty());
    let own = |row: &&Value| {
        row["binary"]
            .as_str()
            .is_some_and(|it| it.ends_with("/millpond"))
    };
    let named = |row: &&Value| !row["name"].as_str().is_some_and(|it| it.contains("+0x"));
    let (all, with_names) = (
        functions.iter().filter(own),
        functions.iter().filter(own).filter(named),
    );
    let (all, with_names) = (all.count(), with_names.count());
    assert!(
        all > 0 && with_names * 10 >= all * 9,
        "names are given where the files are: {with_names} of {all}"
    );
    receiver.stop();
}

#[test]
fn profiles_are_sent_over_grpc() {
    let (agent, tier) = (Folder::new(), Folder::new());
    let (receiver, store, port) = receiver(&tier);
    let send = |token| busy(&agent, &sending(&agent, "grpc", port, token));
    let said = run_for_a_moment(&agent, &send("another"));
    assert!(said.contains("will be sent again"), "{said}");
    assert!(
        said.contains(": UNAUTHENTICATED (gRPC status 16): wrong or missing credentials"),
        "{said}"
    );
    assert_eq!(files(&store), 0);
    let said = run_for_a_moment(&agent, &send("secret"));
    expect_sent(&said);
    expect_all(&store, &agent.path("own"));
    assert!(!rows(&[&store, "--filter", "operator=processor grok"]).is_empty());
    receiver.stop();
}

#[test]
fn a_server_that_does_not_answer_cannot_hold_a_stop() {
    let folder = Folder::new();
    // Nobody accepts its connections.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let send = json!({ "url": url, "timeout": "10m" });
    let said = run_for_a_moment(&folder, &busy(&folder, &json!({ "send": send })));
    let store = folder.path("state/profile");
    let expected = format!(
        "not all profiles were sent to {url}/v1development/profiles: the next run sends them"
    );
    assert!(said.contains(&expected), "{said}");
    assert!(files(&store) > 0);
}

#[test]
fn a_directory_of_another_service_is_left_alone() {
    let folder = Folder::new();
    let mut first = Service::start(&folder, &["run", &busy(&folder, &json!({}))]);
    first.until_it_handles(Signal::TERM);
    let store = folder.path("other");
    let second = busy(&folder, &json!({ "store": store }));
    let said = millpond(&["run", &second]).expect(2).err;
    assert!(said.contains("is in use by process"), "{said}");
    assert!(!Path::new(&store).exists());
    first.stop();
}

#[test]
fn requests_with_anything_else_are_refused() {
    let folder = Folder::new();
    let configuration = busy(
        &folder,
        &json!({ "receive": { "address": "127.0.0.1:0", "max_request_bytes": "1KiB" } }),
    );
    let mut service = Service::start(&folder, &["run", &configuration]);
    let port = receiving_port(&mut service);
    service.until_it_handles(Signal::TERM);
    let post = |head: &str, body: &[u8]| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let length = body.len();
        let head = format!("{head} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        // A body that is too large is not read to its end.
        let _ = stream.write_all(body);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let path = "/v1development/profiles";
    for (head, body, status) in [
        (format!("POST {path}"), &b"junk"[..], "400"),
        (format!("GET {path}"), b"", "405"),
        ("POST /v1/logs".to_owned(), b"", "404"),
        (format!("POST {path}"), &[0; 4096], "413"),
        (
            format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\nx: "),
            b"{}",
            "415",
        ),
        (
            format!("POST {path} HTTP/1.1\r\ncontent-encoding: gzip\r\nx: "),
            b"\x1f\x8bjunk",
            "400",
        ),
    ] {
        let answer = post(&head, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
    }
    service.stop();
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = Folder::new();
    for (profile, expected) in [
        (
            json!({ "frequency": 0 }),
            "`frequency` must be from 1 to 1000",
        ),
        (
            json!({ "max_age": "1m" }),
            "`max_age` of `profile` must be at least 1h",
        ),
        (
            json!({ "rates": { "hosts": { "a": { "pue": -1 } } } }),
            "hosts.a.pue",
        ),
        (
            json!({ "send": { "url": "localhost" } }),
            "expected an http or https URL",
        ),
        (json!({ "hosts": true }), "did you mean `host`?"),
    ] {
        let configuration = busy(&folder, &profile);
        let said = millpond(&["check", &configuration]).expect(2).err;
        assert!(said.contains(expected), "{profile}: {said}");
    }
    let configuration = busy(&folder, &json!({ "receive": { "address": 4318 } }));
    let text = fs::read_to_string(&configuration).expect("it was written");
    let mut without: Value = serde_json::from_str(&text).expect("JSON");
    without.as_object_mut().expect("a map").remove("data_dir");
    folder.write("busy.yaml", without.to_string());
    let said = millpond(&["check", &configuration]).expect(2).err;
    assert!(said.contains("`receive` needs a `store`"), "{said}");
    assert!(Path::new(&configuration).exists());
}
