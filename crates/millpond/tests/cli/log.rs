//! What a service writes to its log, and what a one-line pipeline says instead.

use std::process::Output;

use serde_json::Value;

use crate::program::{Folder, command, plain};
use crate::running::Service;

/// A service that ends by itself: one pipeline whose file is there, one whose input reads a broken line.
const SERVICE: &str = "\
data_dir: STATE
LOG
api: false
pipelines:
  web:
    input: { generate: { format: apache, count: 5 } }
    queue: disk
    processors:
      - where: { condition: \"message + 1 > 2\" }
    outputs: [{ discard: { name: one } }, { discard: { name: two } }]
  broken:
    input: { file: { paths: [FILE], follow: false, codec: json, name: lines } }
    output: discard
";

/// Writes the service's configuration with these settings of the log and runs it to its end.
fn run(folder: &Folder, log: &str, variable: Option<&str>) -> Output {
    let file = folder.write("a.ndjson", "{\"a\":1}\nbroken\n");
    let settings = SERVICE.replace("STATE", &folder.path("state"));
    let settings = settings.replace("FILE", &file).replace("LOG", log);
    let path = folder.write("service.yaml", settings);
    let mut command = command(&["run", &path]);
    if let Some(value) = variable {
        command.env("RUST_LOG", value);
    }
    command.output().expect("the executable runs")
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_service_says_what_it_runs_what_happens_and_why_it_ends() {
    let folder = Folder::new();
    let output = run(&folder, "", None);
    let lines = lines(&output);
    assert_eq!(output.status.code(), Some(0), "{lines:#?}");
    let messages: Vec<&str> = lines
        .iter()
        .map(|line| line.split_at_checked(25).expect("a time").1)
        .collect();
    let state = folder.path("state");
    let version = env!("CARGO_PKG_VERSION");
    let starts = [
        format!(
            "INFO  Millpond {version} started; configuration {}; data directory {state}",
            folder.path("service.yaml")
        ),
        format!(
            "INFO  pipeline web: started: generate | where | one, two; queue: disk, at most 1GiB, in {state}/queue/web"
        ),
        "INFO  pipeline broken: started: lines | discard; queue: memory".to_owned(),
    ];
    assert_eq!(messages[..3], starts);
    let end = "INFO  Millpond stopped because every pipeline has ended; exit code 0";
    assert_eq!(messages.last(), Some(&end));
    let mut between = messages[3..messages.len() - 1].to_vec();
    between.sort_unstable();
    let [input, count, processor] = between[..] else {
        panic!("three warnings: {between:#?}");
    };
    assert_eq!(
        count,
        "WARN  pipeline web: processor where: the condition could not be evaluated for 5 of 5 events and counts as false for them"
    );
    let file = folder.path("a.ndjson");
    assert_eq!(
        input,
        format!(
            "WARN  pipeline broken: input lines: {file}: the line at byte 8 is not a JSON object: it was kept as text (further occurrences are only counted for an hour)"
        )
    );
    let start = "WARN  pipeline web: processor where: the condition failed for event ";
    assert!(processor.starts_with(start), "{processor}");
    // What tests of other things compare.
    let text = plain(&(lines.join("\n") + "\n"));
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with("warning: pipeline "))
    );
}

#[test]
fn json_lines_hold_time_level_pipeline_component_and_message() {
    let folder = Folder::new();
    let output = run(&folder, "log: { format: json }", None);
    let lines = lines(&output);
    let mut warnings = Vec::new();
    for line in &lines {
        let value: Value = serde_json::from_str(line).expect(line);
        let text = |key: &str| value[key].as_str().unwrap_or("-").to_owned();
        assert!(
            text("time").ends_with('Z') && text("time").len() == 24,
            "{line}"
        );
        assert_ne!(text("message"), "-", "{line}");
        if text("level") == "warn" {
            warnings.push([text("pipeline"), text("component")]);
        } else {
            assert_eq!(text("level"), "info", "{line}");
        }
    }
    warnings.sort_unstable();
    let expected = [
        ["broken", "input lines"],
        ["web", "processor where"],
        ["web", "processor where"],
    ];
    assert_eq!(warnings, expected, "{lines:#?}");
    assert_eq!(
        lines.len(),
        7,
        "three for the start, one for the end: {lines:#?}"
    );
}

#[test]
fn level_and_rust_log_say_how_much_is_written() {
    let cases = [
        ("log: { level: info }", None, 7),
        ("log: { level: warn }", None, 3),
        ("log: { level: error }", None, 0),
        ("log: { level: error }", Some("warn"), 3),
        ("log: { level: warn }", Some("millpond=info"), 7),
        ("log: { level: warn }", Some("hyper=trace"), 3),
        ("log: { level: warn }", Some(""), 3),
        ("", Some("off"), 0),
    ];
    for (log, variable, expected) in cases {
        let lines = lines(&run(&Folder::new(), log, variable));
        assert_eq!(lines.len(), expected, "{log} {variable:?}: {lines:#?}");
    }
}

#[test]
fn wrong_settings_of_the_log_are_refused() {
    let folder = Folder::new();
    let cases: [(&str, Option<&str>, &[&str]); 6] = [
        (
            "log: { format: jsn }",
            None,
            &[
                "service.yaml:2:16",
                "accepted: text, json",
                "did you mean `json`?",
            ],
        ),
        (
            "log: { level: trace }",
            None,
            &["service.yaml:2:15", "accepted: error, warn, info, debug"],
        ),
        (
            "log: { levle: info }",
            None,
            &["service.yaml:2:8", "did you mean `level`?"],
        ),
        ("log: json", None, &["service.yaml:2:6"]),
        (
            "",
            Some("inof"),
            &[
                "error: RUST_LOG is invalid: `inof` is not a level",
                "`info`",
            ],
        ),
        ("", Some("hyper=loud"), &["error: RUST_LOG is invalid: "]),
    ];
    for (log, variable, said) in cases {
        let output = run(&folder, log, variable);
        let text = lines(&output).join("\n");
        assert_eq!(output.status.code(), Some(2), "{log} {variable:?}: {text}");
        for part in said {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!folder.as_ref().join("state").exists(), "nothing was begun");
    }
}

#[test]
fn a_one_line_pipeline_says_no_time_unless_rust_log_is_set() {
    let folder = Folder::new();
    let missing = folder.path("none.log");
    let pipeline = format!("file {missing} | discard");
    let error = format!("input file: {missing}: no such file\n");
    for (variable, is_logged) in [(None, false), (Some(""), false), (Some("info"), true)] {
        let mut command = command(&["run", &pipeline]);
        if let Some(value) = variable {
            command.env("RUST_LOG", value);
        }
        let output = command.output().expect("the executable runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{said}");
        match is_logged {
            false => assert_eq!(said, format!("error: {error}")),
            true => assert_eq!(said[25..], format!("ERROR pipeline main: {error}")),
        }
    }
}

#[test]
fn a_stop_names_its_signal() {
    let folder = Folder::new();
    let settings = "pipelines: { one: { input: { generate: { format: apache, rate: 100 } }, output: discard } }\n";
    let path = folder.write("service.yaml", settings);
    let mut service = Service::start(&folder, &["run", &path]);
    service.until_said("no data directory: positions are not saved for the next run");
    service.until_said("pipeline one: started: generate | discard; queue: memory");
    std::thread::sleep(std::time::Duration::from_millis(300));
    service.stop();
    let log = folder.read("err");
    let last = log.lines().last().expect("a line");
    assert!(
        last.ends_with(" INFO  Millpond stopped after SIGTERM; exit code 0"),
        "{log}"
    );
}

#[test]
fn errors_at_the_end_name_their_pipeline_and_component() {
    let folder = Folder::new();
    let missing = folder.path("none.log");
    let settings = format!(
        "log: {{ format: json, level: error }}\npipelines:\n  one:\n    input: {{ file: {{ paths: [{missing}], follow: false, name: logs }} }}\n    output: discard\n"
    );
    let path = folder.write("service.yaml", settings);
    let output = command(&["run", &path])
        .output()
        .expect("the executable runs");
    let lines = lines(&output);
    assert_eq!(output.status.code(), Some(1), "{lines:#?}");
    let [line] = &lines[..] else {
        panic!("one error: {lines:#?}");
    };
    let value: Value = serde_json::from_str(line).expect(line);
    let message = format!("{missing}: no such file");
    let expected = [
        ("level", "error"),
        ("pipeline", "one"),
        ("component", "input logs"),
        ("message", &*message),
    ];
    for (key, text) in expected {
        assert_eq!(value[key], text, "{line}");
    }
}
