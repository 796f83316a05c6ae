//! `millpond bench suite`: scenarios with tiny files.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::search::root;

use crate::program::{Ended, Folder, command, ended, millpond};
use crate::running::eventually;

/// Runs a suite that keeps its files in the folder.
fn suite(folder: &Folder, text: &str, args: &[&str]) -> Ended {
    let path = folder.write("suite.yaml", text);
    let data = folder.path("data");
    let mut all = vec!["bench", "suite", &path, "--data", &data];
    all.extend(args);
    millpond(&all)
}

fn saved(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&folder.read(name)).expect("JSON")
}

#[test]
fn pipelines_and_programs_are_measured_in_turn() {
    let folder = Folder::new();
    let text = "
runs: 2
scenarios:
  line:
    files: { count: 3, size: 50KB }
    pipeline: file ${FILES} | grok \"%{COMBINEDAPACHELOG}\" | discard
  disk:
    files: { count: 2, size: 50KB, compression: gzip }
    pipeline: { input: 'file ${FILES}', queue: disk, output: 'file ${WORK}/out' }
  generated:
    events: 1000
    pipeline: generate syslog count=1000 | discard
  sender:
    files: { count: 1, size: 50KB, format: suricata }
    command: ['${MILLPOND}', run, 'file ${FILES} | forward 127.0.0.1:${PORT}']
    receive: forward ${PORT}
  stubborn:
    files: { count: 1, size: 50KB }
    command: [bash, '${WORK}/send']
    receive: tcp ${PORT}
    write: { send: 'cat $FILES/* > /dev/tcp/127.0.0.1/$PORT; exec sleep 600' }
  reader:
    files: { count: 2, size: 50KB }
    command: [sh, -c, 'sleep 0.2; test $(cat $FILES/* | wc -l) = $EVENTS']
";
    let args = [
        "--save",
        &folder.path("saved.json"),
        "--html",
        &folder.path("page.html"),
    ];
    let ended = suite(&folder, text, &args).expect(0);
    let said: Vec<&str> = ended
        .err
        .lines()
        .filter(|line| line.starts_with("run "))
        .collect();
    let names = ["line", "disk", "generated", "sender", "stubborn", "reader"];
    assert_eq!(said.len(), 12, "{}", ended.err);
    for (index, name) in names.iter().chain(&names).enumerate() {
        let expected = format!("run {} of 2: {name}: ", index / 6 + 1);
        assert!(said[index].starts_with(&expected), "{}", ended.err);
        assert!(ended.out.contains(&format!("\n{name} ")), "{}", ended.out);
    }
    let results = saved(&folder, "saved.json");
    let events = [633, 422, 1000, 71, 210, 420];
    for ((scenario, name), events) in results["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .zip(names)
        .zip(events)
    {
        assert_eq!(scenario["name"], name);
        let runs = scenario["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            let near = run["events"].as_u64().unwrap().abs_diff(events);
            assert!(near < 10, "{name}: {run}");
            assert!(run["wall_seconds"].as_f64().unwrap() > 0.0);
            assert!(
                run["memory_peak_bytes"].as_u64().unwrap() > 100_000,
                "{name}: {run}"
            );
            assert_eq!(
                run["verdict"].is_null(),
                events == 71 || name == "stubborn" || name == "reader"
            );
        }
    }
    let page = folder.read("page.html");
    for part in [
        "<title>suite</title>",
        "prefers-color-scheme",
        "<h2>stubborn</h2>",
        "</html>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
    // The files stay, and what runs wrote is gone.
    let mut left: Vec<_> = fs::read_dir(folder.path("data"))
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    left.sort();
    let kept = [
        "apache-1x210-plain",
        "apache-2x210-gzip",
        "apache-2x210-plain",
        "apache-3x210-plain",
        "suricata-1x71-plain",
    ];
    assert_eq!(left, kept);
}

const ONE: &str = "
runs: 1
scenarios:
  one: { files: { count: 4, size: 20KB }, pipeline: 'file ${FILES} | discard' }
";

#[test]
fn a_regression_is_told_by_the_exit_code() {
    let folder = Folder::new();
    let path = folder.path("baseline.json");
    suite(&folder, ONE, &["--save", &path]).expect(0);
    let mut baseline = saved(&folder, "baseline.json");
    for (memory, code, words) in [
        (1u64 << 40, 0, "% better"),
        (1000, 1, "% worse  REGRESSION"),
    ] {
        let run = &mut baseline["scenarios"][0]["runs"][0];
        run["memory_peak_bytes"] = json!(memory);
        // Nothing that a busy machine could make worse.
        run["wall_seconds"] = json!(1e6);
        run["cpu_seconds"] = json!(1e6);
        folder.write("baseline.json", baseline.to_string());
        let ended = suite(&folder, ONE, &["--baseline", &path]).expect(code);
        let line = ended
            .out
            .lines()
            .find(|line| line.starts_with("  one: memory: "));
        assert!(
            line.is_some_and(|line| line.ends_with(words)),
            "{}",
            ended.out
        );
        assert!(ended.out.contains("  one: events/s: "));
    }
    let refused = suite(&folder, ONE, &["--baseline", &path, "--scale", "0.5"]).expect(2);
    assert!(
        refused.err.contains("`--scale 1`, and this is 0.5"),
        "{}",
        refused.err
    );
    let other = folder.write("other.json", "{}");
    let refused = suite(&folder, ONE, &["--baseline", &other]).expect(2);
    assert!(
        refused.err.contains("holds no results of a suite"),
        "{}",
        refused.err
    );
    let renamed = ONE.replace("one:", "two:");
    let ended = suite(&folder, &renamed, &["--baseline", &path]).expect(0);
    assert!(
        ended.out.contains("two: not in the baseline"),
        "{}",
        ended.out
    );
}

#[test]
fn files_are_scaled_and_made_once() {
    let folder = Folder::new();
    let ended = suite(&folder, ONE, &["--scale", "0.5"]).expect(0);
    assert!(ended.err.contains("generating"));
    let set = folder.path("data/apache-2x84-plain");
    assert_eq!(fs::read_dir(&set).unwrap().count(), 2);
    let again = suite(&folder, ONE, &["--scale", "0.5"]).expect(0);
    assert!(!again.err.contains("generating"), "{}", again.err);
}

#[test]
fn what_an_interrupted_suite_left_is_removed() {
    let folder = Folder::new();
    let text = "scenarios:\n  one: { events: 1, command: [sleep, '60'], receive: 'tcp ${PORT}' }\n";
    let path = folder.write("suite.yaml", text);
    let data = folder.path("data");
    let mut child = command(&["bench", "suite", &path, "--data", &data])
        .spawn()
        .expect("runs");
    let work = format!("{data}/.work.{}", child.id());
    let begin = Instant::now();
    while !Path::new(&work).join("one/output.log").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    // The receiver ends with it.
    let is_receiver = |process: &str| {
        let line = fs::read_to_string(format!("/proc/{process}/environ")).unwrap_or_default();
        let args = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.contains(&work) && args.contains("suite-run")
    };
    while fs::read_dir("/proc")
        .unwrap()
        .any(|it| is_receiver(&it.unwrap().file_name().to_string_lossy()))
    {
        assert!(begin.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10));
    }
    assert!(Path::new(&work).exists());
    let text = "scenarios:\n  one: { events: 1, pipeline: 'generate apache count=1 | discard' }\n";
    suite(&folder, text, &["--runs", "1"]).expect(0);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

/// Processes that have this in their environment.
fn processes_with(word: &str) -> usize {
    let has_it = |process: &str| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(word)
    };
    fs::read_dir("/proc")
        .expect("processes")
        .filter(|it| has_it(&it.as_ref().expect("one").file_name().to_string_lossy()))
        .count()
}

#[test]
fn nothing_of_an_interrupted_suite_is_left() {
    for (number, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let folder = Folder::new();
        // One that the shell waits for, and one that it leaves behind.
        let script = "(sleep 61; true) & touch ready; sleep 62; true";
        let text = format!(
            "scenarios:\n  one: {{ events: 1, command: [sh, -c, '{script}'], receive: 'tcp ${{PORT}}' }}\n"
        );
        let path = folder.write("suite.yaml", &text);
        let (data, saved) = (folder.path("data"), folder.path("saved.json"));
        let child = command(&["bench", "suite", &path, "--data", &data, "--save", &saved])
            .spawn()
            .expect("runs");
        let work = format!("{data}/.work.{}", child.id());
        eventually("the program", || {
            Path::new(&work).join("one/ready").exists()
        });
        assert!(
            processes_with(&work) >= 4,
            "the shell, two more and the receiver"
        );
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let said = ended(child.wait_with_output().expect("it ends")).expect(1);
        assert!(
            said.err.contains("error: the suite was interrupted"),
            "{number}: {}",
            said.err
        );
        assert_eq!(processes_with(&work), 0);
        assert!(!Path::new(&work).exists() && !Path::new(&saved).exists());
    }
}

#[test]
fn children_of_a_program_end_with_its_run() {
    // After a time-out, and when a program has ended and left one behind that does not listen.
    for (script, code) in [("sleep 61; true", 1), ("sleep 62 & exit 0", 0)] {
        let folder = Folder::new();
        let text = format!(
            "runs: 1\nscenarios:\n  one: {{ events: 1, timeout: 500ms, command: [sh, -c, '{script}'] }}\n"
        );
        suite(&folder, &text, &[]).expect(code);
        assert_eq!(processes_with(&folder.path("data")), 0, "{script}");
    }
}

#[test]
fn results_are_written_to_what_is_there() {
    let folder = Folder::new();
    let target = folder.write("target.json", "");
    let (link, pipe) = (folder.path("link.json"), "/dev/stderr");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    let text = "runs: 1\nscenarios:\n  one: { events: 1, pipeline: 'generate apache count=1 | discard' }\n";
    suite(&folder, text, &["--save", &link, "--html", pipe]).expect(0);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(saved(&folder, "target.json")["scenarios"][0]["name"], "one");
    let ended = suite(&folder, text, &["--save", pipe]).expect(0);
    assert!(ended.err.contains("\"scenarios\":["), "{}", ended.err);
}

#[test]
fn a_run_that_goes_wrong_fails() {
    for (scenario, words) in [
        (
            "{ events: 11, pipeline: 'generate apache count=10 | discard' }",
            "10 events were counted, 11 were expected",
        ),
        (
            "{ events: 1, command: [sh, -c, 'echo no such thing >&2; exit 3'] }",
            "exit status: 3\n  no such thing",
        ),
        (
            "{ events: 5, command: ['true'], receive: 'tcp ${PORT}' }",
            "the program ended, and 0 events arrived of 5",
        ),
        (
            "{ events: 1, command: [bash, -c, 'printf \"a\\nb\\n\" > /dev/tcp/127.0.0.1/$PORT'], receive: 'tcp ${PORT}' }",
            "2 events were counted, 1 were expected",
        ),
        (
            "{ events: 1, timeout: 100ms, command: [sleep, '60'] }",
            "run 1 of 5: it took longer than 100ms",
        ),
        (
            "{ events: 1, timeout: 100ms, pipeline: 'generate apache | discard' }",
            "it took longer than 100ms",
        ),
        (
            "{ events: 1, pipeline: 'generate apache count=1 | stdout' }",
            "cannot measure the output `stdout`",
        ),
        (
            "{ events: 1, pipeline: 'file ${WORK}/nothing | discard' }",
            "no such file",
        ),
        (
            "{ events: 1, command: [/nothing/there] }",
            "cannot start /nothing/there",
        ),
    ] {
        let folder = Folder::new();
        let ended = suite(&folder, &format!("scenarios:\n  one: {scenario}\n"), &[]).expect(1);
        assert!(
            ended.err.contains("error: scenario one, run 1 of 5: "),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(words), "{scenario}: {}", ended.err);
    }
}

#[test]
fn a_wrong_suite_is_refused_at_its_place() {
    let folder = Folder::new();
    for (text, line, words) in [
        ("scenarois: {}", 1, "did you mean `scenarios`?"),
        ("runs: 3", 1, "a suite needs `scenarios`"),
        ("runs: 0\nscenarios: {}", 1, "runs"),
        ("scenarios: {}", 1, "`scenarios` is empty"),
        ("scenarios: [a]", 1, "`scenarios` is a map"),
        (
            "scenarios:\n  a/b: { events: 1, pipeline: x }",
            2,
            "the name of a scenario",
        ),
        (
            "scenarios:\n  a: { pipeline: x }",
            2,
            "needs `files`, or `events`",
        ),
        (
            "scenarios:\n  a: { events: 1 }",
            2,
            "needs a `pipeline` or a `command`",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    pipelin: x",
            4,
            "did you mean `pipeline`?",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    pipeline: x\n    command: [y]",
            5,
            "cannot have a `command`",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    pipeline: x\n    receive: y",
            5,
            "is for a `command`",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    command: []",
            4,
            "is empty",
        ),
        (
            "scenarios:\n  a:\n    files: { count: 1, size: 1MB, format: apach }\n    pipeline: x",
            3,
            "apache",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    command: [y]\n    write: { a/b: c }",
            5,
            "`a/b` is not a file name",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    pipeline: generate apache | gork | discard",
            4,
            "did you mean `grok`",
        ),
        (
            "scenarios:\n  a:\n    events: 1\n    command: [x]\n    receive: beets 5044",
            5,
            "did you mean `beats`",
        ),
    ] {
        let ended = suite(&folder, text, &[]).expect(2);
        let place = format!("suite.yaml:{line}:");
        assert!(
            ended.err.contains(&place) && ended.err.contains(words),
            "{text}\n{}",
            ended.err
        );
    }
    let one = "scenarios:\n  plain: { events: 1, pipeline: 'generate apache count=1 | discard' }";
    let ended = suite(&folder, one, &["--only", "plane"]).expect(2);
    assert!(ended.err.contains("did you mean `plain`?"), "{}", ended.err);
    let nowhere = folder.path("nothing/page.html");
    let ended = suite(&folder, one, &["--html", &nowhere]).expect(2);
    assert!(ended.err.contains("cannot write"), "{}", ended.err);
    for scale in ["0", "-1", "x", "nan"] {
        suite(&folder, one, &["--scale", scale]).expect(2);
    }
    let missing = millpond(&["bench", "suite", &folder.path("nothing.yaml")]).expect(2);
    assert!(
        missing.err.starts_with("error: cannot read "),
        "{}",
        missing.err
    );
}

#[test]
fn suites_of_the_source_are_valid() {
    let suites = root().join("bench/suites").display().to_string();
    let folder = Folder::new();
    // Files of 5 events, so that everything is run once.
    let path = format!("{suites}/files.yaml");
    let args = [
        "bench",
        "suite",
        &path,
        "--runs",
        "1",
        "--scale",
        "0.000001",
        "--data",
        &folder.path("data"),
    ];
    let ended = millpond(&args).expect(0);
    assert_eq!(ended.err.matches("run 1 of 1").count(), 16, "{}", ended.err);
    let path = format!("{suites}/shippers.yaml");
    let names = [
        "millpond-elasticsearch",
        "millpond-elasticsearch-uncompressed",
        "millpond-logstash",
    ];
    let mut args = vec![
        "bench", "suite", &path, "--runs", "1", "--scale", "0.0001", "--data",
    ];
    let data = folder.path("data");
    args.extend([&*data, "--only"]);
    args.extend(names);
    let ended = millpond(&args).expect(0);
    assert_eq!(ended.err.matches("run 1 of 1").count(), 3, "{}", ended.err);
}
