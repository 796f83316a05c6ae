//! The HTTP API: what it tells, and in which forms.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::ports::free_port;

use crate::program::{Folder, millpond};
use crate::running::{Service, append};

/// An answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.expect("a whole head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
        let status = head.split(' ').nth(1).expect("a status");
        Self {
            status: status.parse().expect("a number"),
            body: bytes[end + 4..].to_vec(),
            head,
        }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Sends a request with these headers over a connection of its own.
pub fn ask(port: u16, request: &str, headers: &str) -> Answer {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let host = match headers.contains("Host:") {
        true => String::new(),
        false => format!("Host: 127.0.0.1:{port}\r\n"),
    };
    let text = format!("{request} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n");
    connection.write_all(text.as_bytes()).expect("is sent");
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).expect("is answered");
    Answer::of(&bytes)
}

pub fn get(port: u16, path: &str) -> Answer {
    ask(port, &format!("GET {path}"), "")
}

/// The port on which a service answers.
pub fn port(service: &mut Service) -> u16 {
    let said = service.said_in();
    let mut port = None;
    service.until("the API", || {
        let said = std::fs::read_to_string(&said).unwrap_or_default();
        let behind = said
            .split("API on ")
            .nth(1)
            .and_then(|it| it.lines().next());
        port = behind.and_then(|it| it.rsplit(':').next()?.parse().ok());
        port.is_some()
    });
    port.expect("a port")
}

/// A service that follows a file into another one, with these settings of the API and more pipelines.
pub fn service(folder: &Folder, api: &Value, more: &Value) -> Service {
    let log = folder.write("log", "one\ntwo\n{broken\n");
    let mut configuration = json!({
        "data_dir": folder.path("state"),
        "api": api,
        "pipelines": { "main": {
            "input": { "file": { "paths": [log] } },
            "queue": "disk",
            "processors": [{ "set": { "fields": { "a": "1" } } }, { "drop": { "if": "message == 'two'" } }],
            "output": { "file": { "path": folder.path("out") } },
        } },
    });
    for (name, pipeline) in more.as_object().expect("an object") {
        configuration["pipelines"][name] = pipeline.clone();
    }
    let path = folder.write("service.yaml", configuration.to_string());
    Service::start(folder, &["run", &path])
}

pub fn on_a_free_port() -> Value {
    json!({ "address": "127.0.0.1:0" })
}

#[test]
fn statistics_are_those_of_the_events() {
    let folder = Folder::new();
    let listening =
        json!({ "web": { "input": { "tcp": { "address": "127.0.0.1:0" } }, "output": "discard" } });
    let mut service = service(&folder, &on_a_free_port(), &listening);
    let port = port(&mut service);
    let main = || get(port, "/api/v1/stats").json()["pipelines"][0].clone();
    service.until("events", || main()["events_out"] == json!(2));
    assert_eq!(get(port, "/health").json(), json!({ "status": "alive" }));
    let ready = get(port, "/ready");
    assert_eq!(
        (ready.status, ready.json()),
        (200, json!({ "status": "ready" }))
    );
    let stats = get(port, "/api/v1/stats").json();
    let names = |list: &Value, name: &str| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|one| one[name].as_str().expect("text").to_owned())
            .collect()
    };
    assert_eq!(names(&stats["pipelines"], "name"), ["main", "web"]);
    let main = &stats["pipelines"][0];
    assert_eq!(
        names(&main["operators"], "role"),
        ["input", "queue", "processor", "processor", "output"]
    );
    assert_eq!(
        names(&main["operators"], "name"),
        ["file", "disk", "set", "drop", "file"]
    );
    let counts = |place: usize| {
        let operator = &main["operators"][place];
        [
            &operator["events_in"],
            &operator["events_out"],
            &operator["dropped"],
        ]
        .map(|it| it.as_u64().expect("a number"))
    };
    assert_eq!(
        (counts(2), counts(3), counts(4)),
        ([3, 3, 0], [3, 2, 1], [2, 2, 0])
    );
    assert_eq!(
        (&main["events_in"], &main["state"]),
        (&json!(3), &json!("running"))
    );
    assert_eq!(main["queue"]["kind"], json!("disk"));
    assert_eq!(main["outputs"][0]["state"], json!("working"));
    let file = &main["files"][0];
    assert_eq!(
        (&file["read_events"], &file["size"]),
        (&json!(3), &json!(16))
    );
    assert_eq!(
        get(port, "/api/v1/stats?files=0").json()["pipelines"][0]["files"],
        json!([])
    );
    assert_eq!(get(port, "/api/v1/stats?files=x").status, 400);
    assert!(stats["process"]["resident_memory_bytes"].as_u64() > Some(1 << 20));
    assert_eq!(
        (&stats["status"], &stats["configuration"]["number"]),
        (&json!("running"), &json!(1))
    );
    assert_eq!(get(port, "/nothing").status, 404);
    let refused = ask(port, "DELETE /metrics", "");
    assert_eq!(refused.status, 405);
    assert!(
        refused.head.to_lowercase().contains("\r\nallow: get\r\n"),
        "{}",
        refused.head
    );
    service.signal(Signal::TERM);
    service.until_ended(0);
}

#[test]
fn connections_and_what_waits_are_counted() {
    let folder = Folder::new();
    // Nothing will answer there.
    let url = format!("http://127.0.0.1:{}", free_port());
    let input = ("127.0.0.1", free_port());
    let away = json!({ "away": {
        "input": { "tcp": { "address": input.1 } },
        "output": { "http": { "url": url } },
        "retry": { "initial": "10ms", "max": "20ms" },
    } });
    let mut service = service(&folder, &on_a_free_port(), &away);
    let port = port(&mut service);
    let mut client = None;
    service.until("the input", || {
        client = TcpStream::connect(input).ok();
        client.is_some()
    });
    let mut client = client.expect("connected");
    client.write_all(b"one\ntwo\n").expect("is sent");
    let stats = || get(port, "/api/v1/stats").json()["pipelines"][1].clone();
    service.until("a pause", || {
        stats()["outputs"][0]["state"] == json!("paused")
    });
    let seen = stats();
    let reason = seen["outputs"][0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("refused"), "{reason}");
    assert_eq!(seen["queue"]["events"], json!(2), "{seen:#}");
    assert!(
        seen["queue"]["oldest_age_seconds"].as_f64() > Some(0.0),
        "{seen:#}"
    );
    assert_eq!(
        seen["connections"],
        json!([{ "input": "tcp", "open": 1, "accepted": 1, "displaced": 0 }])
    );
    assert_eq!(get(port, "/ready").status, 200, "it goes on trying");
    drop(TcpStream::connect(input).expect("connected"));
    service.until("the end of a connection", || {
        let connections = &stats()["connections"][0];
        (&connections["accepted"], &connections["open"]) == (&json!(2), &json!(1))
    });
    service.kill();
}

#[test]
fn an_output_that_failed_makes_it_not_ready() {
    let folder = Folder::new();
    let full = json!({ "full": {
        "input": { "file": { "paths": [folder.path("log")] } },
        "output": { "file": { "path": folder.path("none/out") } },
        "retry": { "give_up_after": "10ms" },
    } });
    std::fs::write(folder.path("none"), "a file in the place of a folder").expect("is written");
    let mut service = service(&folder, &on_a_free_port(), &full);
    let port = port(&mut service);
    let reason = || get(port, "/ready").json()["reasons"][0].clone();
    service.until("a failure", || {
        let reason = reason();
        let text = reason.as_str().unwrap_or_default();
        text.starts_with("pipeline full: output file: ")
    });
    assert_eq!(get(port, "/ready").status, 503);
    let asked = |words: &[&str]| {
        let api = port.to_string();
        millpond(&[&["health", "--api", &api], words].concat())
    };
    assert_eq!(asked(&[]).expect(0).out, "alive\n");
    let not_ready = asked(&["--ready"]).expect(1).out;
    let words = "not ready\n  pipeline full: output file: ";
    assert!(not_ready.starts_with(words), "{not_ready}");
    let stats = get(port, "/api/v1/stats").json();
    assert_eq!(
        stats["pipelines"][1]["outputs"][0]["state"],
        json!("failed")
    );
    service.kill();
    let nobody = asked(&[]).expect(1);
    assert!(nobody.err.contains("no Millpond answers"), "{}", nobody.err);
}

/// What a strict reader finds wrong with a page of OpenMetrics: its samples by family.
fn open_metrics(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut families: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let (mut family, mut kind) = (String::new(), String::new());
    let mut seen = BTreeSet::new();
    let body = text.strip_suffix("# EOF\n").expect("an end");
    assert!(!body.contains("# EOF"), "one end");
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let [keyword, name, value]: [&str; 3] = rest
                .splitn(3, ' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("three words");
            match keyword {
                "HELP" => {
                    assert!(!families.contains_key(name), "{name} begins once");
                    families.insert(name.to_owned(), Vec::new());
                    (family, kind) = (name.to_owned(), String::new());
                }
                "TYPE" => {
                    assert_eq!(name, family);
                    kind = value.to_owned();
                    assert!(["counter", "gauge", "info"].contains(&value), "{line}");
                }
                "UNIT" => assert!(
                    name == family && name.ends_with(&format!("_{value}")),
                    "{line}"
                ),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        let suffix = name
            .strip_prefix(&*family)
            .unwrap_or_else(|| panic!("{line} is of {family}"));
        let expected = match &*kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        assert_eq!(suffix, expected, "{line}");
        assert!(seen.insert(series.to_owned()), "{series} comes twice");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let samples = families.get_mut(&family).expect("it began");
        samples.push((series.to_owned(), value));
    }
    families
}

#[test]
fn metrics_are_accepted_by_a_strict_reader_in_both_formats() {
    let folder = Folder::new();
    let odd = json!({ "odd \"name\" \\": {
        "input": { "tcp": { "address": "127.0.0.1:0" } },
        "output": "discard",
    } });
    let mut service = service(&folder, &on_a_free_port(), &odd);
    let port = port(&mut service);
    let open = || {
        ask(
            port,
            "GET /metrics",
            "Accept: application/openmetrics-text; version=1.0.0\r\n",
        )
    };
    let out = "millpond_operator_events_out_total{pipeline=\"main\",role=\"output\",operator=\"file\"} 2\n";
    service.until("events", || open().text().contains(out));
    let page = open();
    assert!(
        page.head
            .contains("application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{}",
        page.head
    );
    let families = open_metrics(page.text());
    assert!(
        families["millpond_queue_events"]
            .iter()
            .any(|(series, _)| series == r#"millpond_queue_events{pipeline="odd \"name\" \\"}"#)
    );
    for name in [
        "millpond_build",
        "process_cpu_seconds",
        "millpond_operator_cpu_seconds",
        "millpond_queue_oldest_age_seconds",
    ] {
        assert!(!families[name].is_empty(), "{name}");
    }
    let text = get(port, "/metrics");
    assert!(
        text.head
            .contains("text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        text.head
    );
    assert!(
        text.text()
            .contains("# TYPE millpond_operator_events_out_total counter\n")
    );
    assert!(
        text.text().contains(out)
            && !text.text().contains("# EOF")
            && !text.text().contains("# UNIT")
    );
    // Counters only grow.
    append(&folder.path("log"), "four\nfive\n");
    let more = out.replace(" 2\n", " 4\n");
    service.until("more events", || open().text().contains(&more));
    service.signal(Signal::TERM);
    service.until_ended(0);
}

#[test]
fn the_configuration_is_shown_without_secrets() {
    let folder = Folder::new();
    let secret = json!({ "out": {
        "input": { "http": { "address": "127.0.0.1:0", "auth": { "basic": { "user": "me", "password": "hunter2" } } } },
        "output": { "http": { "url": "http://127.0.0.1:1/", "headers": { "X-Key": "hunter4" } } },
    } });
    let token = folder.write("token", "hunter1\n");
    let api = json!({ "address": "127.0.0.1:0", "token": format!("file:{token}") });
    let mut service = service(&folder, &api, &secret);
    let port = port(&mut service);
    let known = |path: &str| {
        ask(
            port,
            &format!("GET {path}"),
            "Authorization: Bearer hunter1\r\n",
        )
    };
    service.until("a start", || known("/ready").status == 200);
    for path in [
        "/api/v1/pipelines",
        "/api/v1/stats",
        "/metrics",
        "/_node/stats",
        "/_node",
    ] {
        let answer = known(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text().contains("hunter"), "{}", answer.text());
    }
    let shown = known("/api/v1/pipelines").json();
    assert_eq!(
        shown["pipelines"][0]["flow"],
        json!("file | set | drop | file")
    );
    assert!(
        shown["pipelines"][0]["queue"]
            .as_str()
            .expect("text")
            .starts_with("disk")
    );
    assert_eq!(
        shown["pipelines"][1]["settings"]["input"]["http"]["auth"]["basic"]["user"],
        json!("me")
    );
    assert_eq!(
        shown["settings"]["api"]["token"],
        json!(format!("file:{token}"))
    );
    assert_eq!(
        shown["configuration"]["hash"].as_str().map(str::len),
        Some(64)
    );
    service.kill();
}

#[test]
fn every_path_is_described_and_answers_as_described() {
    let folder = Folder::new();
    let mut service = service(&folder, &on_a_free_port(), &json!({}));
    let port = port(&mut service);
    service.until("a start", || get(port, "/ready").status == 200);
    let description = get(port, "/api/v1/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 12, "{}", paths.len());
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| (path, method, operation))
    });
    for (path, method, operation) in methods {
        let request = format!("{} {path}", method.to_uppercase());
        let answer = ask(port, &request, "Content-Length: 0\r\n");
        expect_described(&description, path, operation, &answer);
    }
    service.kill();
}

/// Checks that an answer is one of those that the description has for an operation of a path.
pub fn expect_described(description: &Value, path: &str, operation: &Value, answer: &Answer) {
    let responses = &operation["responses"];
    let response = responses.get(answer.status.to_string());
    let response = response.unwrap_or_else(|| panic!("{path}: {}", answer.status));
    let content = response["content"].as_object().expect("types");
    let of_type = |name: &&String| answer.head.contains(name.as_str());
    let kind = content
        .keys()
        .find(of_type)
        .unwrap_or_else(|| panic!("{path}: {}", answer.head));
    let Some(schema) = content[kind].get("schema") else {
        return;
    };
    // References lead into the description.
    let mut schema = schema.clone();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("components".to_owned(), description["components"].clone());
    }
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let body = answer.json();
    let wrong: Vec<String> = validator
        .iter_errors(&body)
        .map(|error| format!("{error} at {}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{path}: {wrong:?}");
}

#[test]
fn a_reload_is_asked_for_and_its_version_shown() {
    let folder = Folder::new();
    let mut service = service(&folder, &on_a_free_port(), &json!({}));
    let port = port(&mut service);
    let post = || ask(port, "POST /api/v1/reload", "Content-Length: 0\r\n");
    service.until("a start", || post().status != 404);
    let before = get(port, "/api/v1/pipelines").json();
    let path = folder.path("service.yaml");
    let text = std::fs::read_to_string(&path).expect("readable");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    changed["pipelines"]["more"] =
        json!({ "input": { "tcp": { "address": "127.0.0.1:0" } }, "output": "discard" });
    folder.write("service.yaml", changed.to_string());
    let reloaded = post();
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let reloaded = reloaded.json();
    assert_eq!(
        (&reloaded["added"], &reloaded["unchanged"]),
        (&json!(["more"]), &json!(["main"]))
    );
    let after = get(port, "/api/v1/pipelines").json();
    assert_eq!(
        after["configuration"]["number"],
        json!(
            before["configuration"]["number"]
                .as_u64()
                .expect("a number")
                + 1
        )
    );
    assert_ne!(
        after["configuration"]["hash"],
        before["configuration"]["hash"]
    );
    let stats = || {
        get(port, "/api/v1/stats").json()["pipelines"]
            .as_array()
            .map(Vec::len)
    };
    assert_eq!(stats(), Some(2));
    folder.write("service.yaml", "pipelines: 7");
    let refused = post();
    assert_eq!(refused.status, 409);
    assert!(
        refused.text().contains("service.yaml"),
        "{}",
        refused.text()
    );
    folder.write("service.yaml", &text);
    assert_eq!(post().json()["removed"], json!(["more"]));
    assert_eq!(stats(), Some(1));
    let reloads = &get(port, "/_node/stats/pipelines").json()["pipelines"]["main"]["reloads"];
    assert_eq!(reloads["failures"], json!(1));
    service.signal(Signal::TERM);
    service.until_ended(0);
}

#[test]
fn monitors_of_logstash_read_it() {
    let folder = Folder::new();
    let mut service = service(&folder, &on_a_free_port(), &json!({}));
    let port = port(&mut service);
    let stats = || get(port, "/_node/stats/pipelines").json();
    service.until("events", || {
        stats()["pipelines"]["main"]["events"]["out"] == json!(2)
    });
    let all = stats();
    for name in [
        "host",
        "version",
        "http_address",
        "id",
        "name",
        "ephemeral_id",
        "status",
    ] {
        assert!(
            all[name].as_str().is_some_and(|text| !text.is_empty()),
            "{name}"
        );
    }
    assert!(all["pipeline"]["workers"].as_u64() > Some(0));
    let main = &all["pipelines"]["main"];
    let events = &main["events"];
    assert_eq!(
        [&events["in"], &events["filtered"], &events["out"]],
        [&json!(3), &json!(2), &json!(2)]
    );
    assert!(
        events["duration_in_millis"].is_u64() && events["queue_push_duration_in_millis"].is_u64()
    );
    let plugins = &main["plugins"];
    let names = ["inputs", "filters", "outputs"].map(|kind| {
        let plugins = plugins[kind].as_array().expect("a list").iter();
        plugins
            .map(|one| one["name"].as_str().expect("text"))
            .collect::<Vec<_>>()
            .join(",")
    });
    assert_eq!(names, ["file", "set,drop", "file"]);
    assert_eq!(
        (&main["queue"]["type"], &main["reloads"]["failures"]),
        (&json!("persisted"), &json!(0))
    );
    let node = get(port, "/_node/stats").json();
    assert!(node["jvm"]["mem"]["heap_used_in_bytes"].as_u64() > Some(0));
    assert!(node["process"]["open_file_descriptors"].as_u64() > Some(0));
    assert_eq!(
        get(port, "/_node").json()["jvm"]["pid"],
        json!(service.id())
    );
    service.kill();
}

#[test]
fn the_profile_of_the_process_is_given_or_why_there_is_none() {
    let folder = Folder::new();
    let text = "api: { address: '127.0.0.1:0' }\nprofile: { enabled: false }\npipelines:\n  one: { input: 'tcp 127.0.0.1:0', output: discard }\n";
    let mut service = Service::start(&folder, &["run", &folder.write("none.yaml", text)]);
    let port = port(&mut service);
    let answer = get(port, "/api/v1/profile");
    assert_eq!(answer.status, 404);
    assert!(
        answer.text().contains("nothing is sampled"),
        "{}",
        answer.text()
    );
    service.kill();
}
