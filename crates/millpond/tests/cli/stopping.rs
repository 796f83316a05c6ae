//! How runs end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{Folder, command, ended, run};

#[test]
fn head_gives_its_number_whatever_the_workers_and_ends_the_input() {
    let folder = Folder::new();
    for workers in [1, 2, 7] {
        let yaml = format!(
            "workers: {workers}\npipelines:\n  one:\n    input:\n      generate: {{ format: apache }}\n    processors:\n      - head: 10\n    outputs: [stdout]\n"
        );
        let yaml = yaml.replace("head: 10", "head: { count: 10 }");
        let path = folder.write("head.yaml", yaml);
        let ended = crate::program::millpond(&["run", &path]).expect(0);
        assert_eq!(ended.out.lines().count(), 10, "{workers} workers");
        assert_eq!(ended.err, "");
    }
}

#[test]
fn the_first_events_are_the_same_whatever_the_workers() {
    let first = run("generate apache seed=3 | head 5000 | stdout codec=text")
        .expect(0)
        .out;
    let again = run("generate apache seed=3 | head 5000 | stdout codec=text")
        .expect(0)
        .out;
    assert_eq!(first.lines().count(), 5000);
    assert_eq!(first, again);
}

#[test]
fn a_closed_pipe_ends_the_run_quietly() {
    let mut child = command(&["run", "generate apache | stdout"])
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()));
    drop(lines);
    let mut err = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut err)
        .expect("readable");
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{err}");
    assert_eq!(err, "");
}

#[test]
fn a_signal_stops_the_input_and_delivers_what_was_read() {
    for signal in ["INT", "TERM"] {
        let folder = Folder::new();
        let path = folder.path("out.log");
        let pipeline = format!("generate apache rate=20000 | file {path} codec=text");
        let child = command(&["run", &pipeline, "--metrics"])
            .spawn()
            .expect("runs");
        std::thread::sleep(Duration::from_millis(700));
        let killed = Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status()
            .expect("kill");
        assert!(killed.success());
        let ended = ended(child.wait_with_output().expect("ends")).expect(0);
        let generated = ended
            .err
            .lines()
            .find(|line| line.starts_with("generate"))
            .expect("the table")
            .to_owned();
        let count: usize = generated
            .split_whitespace()
            .nth(2)
            .expect("events out")
            .replace(',', "")
            .parse()
            .expect("a number");
        assert!(count > 1000, "{generated}");
        assert_eq!(
            folder.read("out.log").lines().count(),
            count,
            "{signal}: what was read was written"
        );
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    // Nobody reads the pipe: the output hangs, and so would a graceful stop until its deadline.
    let mut child = command(&["run", "generate apache | stdout"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    let signal = |id: u32, name: &str| {
        let sent = Command::new("kill").args([name, &id.to_string()]).status();
        assert!(sent.expect("kill").success());
    };
    // Two at once are one request, as `timeout` makes it.
    signal(child.id(), "-TERM");
    signal(child.id(), "-INT");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(child.try_wait().expect("a child"), None, "it still runs");
    signal(child.id(), "-INT");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(begin.elapsed() < Duration::from_secs(10));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("SIGINT again: stopped immediately"), "{said}");
}

#[test]
fn a_hangup_is_answered_and_ends_nothing() {
    let folder = Folder::new();
    let service = folder.write(
        "service.yaml",
        "pipelines:\n  one:\n    input:\n      generate: { format: apache, rate: 1000 }\n    output: discard\n",
    );
    for (pipeline, expected) in [
        (&*service, "configuration reloaded"),
        ("generate apache rate=1000 | discard", "SIGHUP is ignored"),
    ] {
        let mut child = command(&["run", pipeline]).spawn().expect("runs");
        let signal = |id: u32, name: &str| {
            let sent = Command::new("kill").args([name, &id.to_string()]).status();
            assert!(sent.expect("kill").success());
        };
        std::thread::sleep(Duration::from_millis(700));
        let mut answers = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        for _ in 0..2 {
            signal(child.id(), "-HUP");
            // A service has said at its start what it runs.
            let mut answers = answers.by_ref().map(|line| line.expect("readable"));
            let answer = answers.find(|line| line.contains("SIGHUP"));
            assert!(
                answer.is_some_and(|answer| answer.contains(expected)),
                "no answer"
            );
            assert_eq!(child.try_wait().expect("a child"), None, "it still runs");
        }
        signal(child.id(), "-TERM");
        let rest: Vec<String> = answers.map(|line| line.expect("readable")).collect();
        assert_eq!(child.wait().expect("ends").code(), Some(0), "{rest:?}");
        assert!(!rest.iter().any(|line| line.contains("SIGHUP")), "{rest:?}");
    }
}

#[test]
fn what_is_not_delivered_by_the_deadline_is_reported() {
    let folder = Folder::new();
    let path = folder.write(
        "slow.yaml",
        "shutdown_deadline: 500ms\npipelines:\n  one:\n    input:\n      generate: { format: apache }\n    outputs: [stdout]\n",
    );
    let child = command(&["run", &path]).spawn().expect("runs");
    std::thread::sleep(Duration::from_millis(500));
    Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .expect("kill");
    // Standard output is read only after the deadline.
    std::thread::sleep(Duration::from_millis(2500));
    let ended = ended(child.wait_with_output().expect("ends")).expect(1);
    assert!(
        ended.err.contains("events were read but not delivered"),
        "{}",
        ended.err
    );
    // The output is blocked; the input that waited for room is not to blame.
    assert!(!ended.err.contains("did not stop in time"), "{}", ended.err);
}

#[test]
fn waiting_standard_input_notices_a_stop() {
    let mut child = command(&["run", "stdin | stdout"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("runs");
    let pipe = child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(20));
    drop(pipe);
}

/// Makes a named pipe.
fn pipe(folder: &Folder, name: &str) -> String {
    let path = folder.path(name);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    path
}

#[test]
fn a_named_pipe_waits_for_its_writer_and_notices_a_stop() {
    let folder = Folder::new();
    let path = pipe(&folder, "pipe");
    for has_writer in [true, false] {
        let mut child = command(&["run", &format!("file {path} | stdout codec=text")])
            .spawn()
            .expect("runs");
        let mut told = String::new();
        let mut err = BufReader::new(child.stderr.take().expect("a pipe"));
        err.read_line(&mut told).expect("readable");
        assert!(
            told.starts_with("warning: ") && told.contains("waiting for one"),
            "{told}"
        );
        if has_writer {
            std::fs::write(&path, "one\ntwo\n").expect("writable");
        } else {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-INT", &id]).status();
            assert!(sent.expect("kill").success());
        }
        let begin = Instant::now();
        let ended = ended(child.wait_with_output().expect("ends")).expect(0);
        assert!(begin.elapsed() < Duration::from_secs(20));
        assert_eq!(ended.out, if has_writer { "one\ntwo\n" } else { "" });
    }
}

#[test]
fn a_pipe_that_only_a_wildcard_matches_is_passed_over() {
    let folder = Folder::new();
    pipe(&folder, "a.pipe");
    folder.write("b.log", "one\n");
    let ended = run(&format!("file {} | stdout codec=text", folder.path("*"))).expect(0);
    assert_eq!(ended.out, "one\n");
    assert!(
        ended.err.contains("a.pipe: is not a regular file"),
        "{}",
        ended.err
    );
}

#[test]
fn head_of_some_events_lets_the_others_pass() {
    let folder = Folder::new();
    let lines: String = (0..30_000).map(|n| format!("{}\n", n % 10)).collect();
    let log = folder.write("x.log", lines);
    for workers in [1, 4] {
        let yaml = format!(
            "workers: {workers}\npipelines:\n  one:\n    input:\n      file: {{ paths: ['{log}'], follow: false }}\n    processors:\n      - head: {{ count: 2, if: 'message == 7' }}\n    outputs: [stdout]\n"
        );
        let path = folder.write("head.yaml", yaml);
        let ended = crate::program::millpond(&["run", &path]).expect(0);
        assert_eq!(ended.out.lines().count(), 27_002, "{workers} workers");
    }
}
