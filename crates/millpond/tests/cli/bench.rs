//! `millpond bench` measures a service's file as it is and changes nothing outside the process.

use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::program::{Folder, millpond, run_on};

/// A service with everything that would leave traces: a data directory, a disk queue, dead letters, files that are deleted once
/// they are read, and outputs of every kind.
fn service(folder: &Folder, address: &str) -> String {
    folder.write("app.log", "{\"n\":1}\n{\"n\":2}\nnot JSON\n");
    let root = folder.as_ref().display();
    folder.write(
        "service.yaml",
        format!(
            "data_dir: {root}/state
pipelines:
  app:
    input: {{ file: {{ paths: [\"{root}/*.log\"], follow: true, start_at: end, delete_after: 0s }} }}
    queue: disk
    processors:
      - json: {{ field: message, on_failure: dead_letter }}
    outputs:
      - file: {{ path: \"{root}/missing/out-%{{n}}.ndjson.gz\" }}
      - http: {{ url: \"http://{address}/\", compression: gzip }}
      - stdout: {{}}
"
        ),
    )
}

fn operator<'j>(figures: &'j Value, role: &str, name: &str) -> &'j Value {
    let operators = figures["pipelines"][0]["operators"].as_array();
    let mut operators = operators.expect("operators").iter();
    let found = operators.find(|operator| operator["role"] == role && operator["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {figures}"))
}

#[test]
fn a_service_is_measured_and_nothing_is_changed() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("a port").to_string();
    let yaml = service(&folder, &address);
    let ended = millpond(&["bench", "--json", &yaml]).expect(0);
    let figures: Value = serde_json::from_str(&ended.out).expect("figures and no events");
    assert_eq!(figures["events"], 3);
    assert_eq!(figures["real_outputs"], false);
    assert_eq!(operator(&figures, "processor", "json")["dropped"], 1);
    for output in ["file", "http", "stdout"] {
        let counts = operator(&figures, "output", output);
        assert_eq!(
            (&counts["events_in"], &counts["events_out"]),
            (&2.into(), &2.into()),
            "{output}"
        );
        assert!(
            counts["bytes"].as_u64().is_some_and(|bytes| bytes > 0),
            "{output} renders"
        );
    }
    assert!(listener.accept().is_err(), "nothing was sent");
    let mut left: Vec<String> = std::fs::read_dir(folder.as_ref())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    left.sort();
    assert_eq!(left, ["app.log", "service.yaml"]);
    let text = millpond(&["bench", &yaml]).expect(0).out;
    assert!(
        text.contains("wrote nothing (--real-outputs makes them write)"),
        "{text}"
    );
}

#[test]
fn real_outputs_write_and_positions_stay() {
    let folder = Folder::new();
    let log = folder.write("app.log", "{\"n\":1}\n{\"n\":2}\n");
    let (state, out) = (folder.path("state"), folder.path("out.ndjson"));
    let yaml = folder.write(
        "service.yaml",
        format!(
            "data_dir: {state}
pipelines:
  app:
    input: {{ file: {{ paths: [\"{log}\"], codec: json, delete_after: 0s }} }}
    queue: disk
    output: {{ file: {{ path: \"{out}\" }} }}
"
        ),
    );
    for events in [2, 4] {
        let ended = millpond(&["bench", "--real-outputs", &yaml]).expect(0);
        assert!(!ended.out.contains("wrote nothing"), "{}", ended.out);
        assert_eq!(folder.read("out.ndjson").lines().count(), events);
    }
    assert!(Path::new(&log).exists() && !Path::new(&state).exists());
}

#[test]
fn events_of_clients_are_not_thrown_away() {
    let pipeline = "http 127.0.0.1:0 | stdout";
    let ended = millpond(&["bench", pipeline]).expect(2);
    assert!(ended.err.contains("--real-outputs"), "{}", ended.err);
}

#[test]
fn one_line_pipelines_write_nothing_either() {
    let folder = Folder::new();
    let (log, out) = (folder.write("a.log", "a\nb\n"), folder.path("out.ndjson"));
    let ended = millpond(&["bench", &format!("file {log} | file {out}")]).expect(0);
    assert!(ended.out.starts_with("2 events in"), "{}", ended.out);
    assert!(!Path::new(&out).exists());
    // `run` still does.
    run_on(b"a\n", &format!("stdin | file {out}")).expect(0);
    assert!(Path::new(&out).exists());
}
