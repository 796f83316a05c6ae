//! The profiler of a service: what it stores of itself, what it sends and receives, and how stores are asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::ports::free_port;

use crate::program::{Folder, millpond};
use crate::running::Service;

/// A service that is busy with made-up lines, with these settings of `profile`.
fn busy(folder: &Folder, profile: &Value) -> String {
    let configuration = json!({
        "data_dir": folder.path("state"),
        "profile": profile,
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
        .count()
}

fn run_for_a_moment(folder: &Folder, configuration: &str) -> String {
    let mut service = Service::start(folder, &["run", configuration]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let pid = service.id().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.is_ok_and(|status| status.success()));
    // What is sent at the end gets its names first, for which a build without optimisation takes long where other tests run.
    service.until_ended(0)
}

#[test]
fn a_service_knows_what_its_operators_cost() {
    let folder = Folder::new();
    let configuration = busy(&folder, &json!({ "frequency": 199 }));
    run_for_a_moment(&folder, &configuration);
    let store = folder.path("state/profile");
    assert_eq!(files(&store), 1, "one is left at the end");
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
fn profiles_are_sent_to_one_store() {
    let (agent, tier) = (Folder::new(), Folder::new());
    let port = free_port();
    let configuration = json!({
        "data_dir": tier.path("state"),
        "profile": {
            "enabled": false,
            "receive": { "address": port, "auth": { "bearer": "secret" } },
        },
        "pipelines": { "idle": { "input": { "http": { "address": free_port() } }, "output": "discard" } },
    });
    let configuration = tier.write("tier.yaml", configuration.to_string());
    let mut receiver = Service::start(&tier, &["run", &configuration]);
    receiver.until_said("receiving profiles on");
    let send = |token: &str| {
        json!({
            "frequency": 199,
            "store": agent.path("own"),
            "send": { "url": format!("http://127.0.0.1:{port}"), "auth": { "bearer": token } },
        })
    };
    let said = run_for_a_moment(&agent, &busy(&agent, &send("wrong")));
    assert!(said.contains("is not sent again: 401"), "{said}");
    let store = tier.path("state/profile");
    assert_eq!(files(&store), 0);
    let said = run_for_a_moment(&agent, &busy(&agent, &send("secret")));
    assert!(!said.contains("WARN"), "{said}");
    assert_eq!(files(&store), 1);
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
fn requests_with_anything_else_are_refused() {
    let folder = Folder::new();
    let port = free_port();
    let configuration = busy(
        &folder,
        &json!({ "receive": { "address": port, "max_request_bytes": "1KiB" } }),
    );
    let mut service = Service::start(&folder, &["run", &configuration]);
    service.until_said("receiving profiles on");
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
