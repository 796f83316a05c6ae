//! The `http` output against servers that are slow, busy, away, or cut off: nothing is lost, and numbers count it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::authority::Authority;
use testkit::cutter::Cutter;
use testkit::http::{Answer, HttpServer, Taken};

use crate::program::{Folder, command, ended, millpond, run};
use crate::running::{Service, append, eventually, numbered};

/// How often each numbered line arrived, as requests had them that were answered with 200.
fn counted<'a>(servers: impl IntoIterator<Item = &'a HttpServer>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in servers.into_iter().flat_map(HttpServer::lines) {
        let event: Value = serde_json::from_str(&line).expect("a JSON line");
        let message = event["message"].as_str().expect("text").to_owned();
        *counts.entry(message).or_default() += 1;
    }
    counts
}

/// Checks that exactly these lines arrived; how many came more than once.
fn expect_lines(counts: &BTreeMap<String, usize>, lines: &str) -> usize {
    let lost: Vec<_> = lines
        .lines()
        .filter(|line| !counts.contains_key(*line))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost, {:?} to {:?}",
        lost.len(),
        lines.lines().count(),
        lost.first(),
        lost.last()
    );
    assert_eq!(counts.len(), lines.lines().count(), "something else came");
    counts.values().filter(|&&count| count > 1).count()
}

/// A service that follows a log and sends it to a server through a disk queue.
struct Place {
    folder: Folder,
    written: String,
}

impl Place {
    fn new() -> Self {
        let (folder, written) = (Folder::new(), String::new());
        Self { folder, written }
    }

    fn write(&mut self, count: usize) {
        let from = self.written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&self.folder.path("app.log"), &lines);
        self.written.push_str(&lines);
    }

    /// With these settings of the output and these further outputs.
    fn start(&self, settings: &str, others: &str) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'] }}
    queue: {{ disk: {{ segment_bytes: 64KiB, min_free_bytes: 0, cache_bytes: 64KiB }} }}
    outputs:
      - http: {{ {settings}, batch: {{ max_events: 100, max_age: 20ms }} }}
{others}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = self.folder.path("data"),
            log = self.folder.path("app.log"),
        );
        let path = self.folder.write("service.yaml", yaml);
        Service::start(&self.folder, &["run", &path])
    }
}

fn fine() -> HttpServer {
    HttpServer::start(|_, _| Answer::new(200))
}

#[test]
fn a_run_that_remembers_files_does_not_wait_for_a_full_request() {
    let server = fine();
    let folder = Folder::new();
    let log = folder.write("app.log", numbered("app", 0..10));
    let pipeline = format!("file {log} | http {} batch.max_age=10m", server.url());
    let begin = Instant::now();
    let state = folder.path("state");
    millpond(&["run", &pipeline, "--data-dir", &state]).expect(0);
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(
        expect_lines(&counted([&server]), &numbered("app", 0..10)),
        0
    );
}

#[test]
fn a_log_arrives_as_standard_output_would_show_it() {
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("a", 0..20_000));
    for settings in ["", "compression=gzip", "compression=zstd concurrency=1"] {
        let server = fine();
        let url = server.url();
        run(&format!("file {log} | http {url}/in {settings}")).expect(0);
        let mut sent = server.lines();
        let shown = run(&format!("file {log} | stdout")).expect(0).out;
        // Requests may overtake each other; times of reading differ.
        let messages = |lines: &mut dyn Iterator<Item = &str>| {
            let read = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
            let mut messages: Vec<String> = lines
                .map(|line| read(line)["message"].to_string())
                .collect();
            messages.sort();
            messages
        };
        assert_eq!(
            messages(&mut sent.iter().map(String::as_str)),
            messages(&mut shown.lines())
        );
        sent.truncate(1);
        let event: Value = serde_json::from_str(&sent[0]).expect("JSON");
        assert_eq!(event["log"]["file"]["path"], log.as_str());
        let (most, taken) = (1 << 20, server.taken());
        assert!(taken.iter().all(|taken| taken.text().len() <= most));
    }
}

#[test]
fn a_server_that_is_killed_and_started_again_gets_everything() {
    let mut place = Place::new();
    let first = fine();
    let port = first.address().port();
    let mut service = place.start(&format!("url: 'http://127.0.0.1:{port}/'"), "");
    place.write(1000);
    service.until("the first lines", || counted([&first]).len() == 1000);
    // What was taken is acknowledged by now.
    std::thread::sleep(Duration::from_millis(300));
    let acknowledged = counted([&first]);
    let mut servers = vec![first.stopped()];
    for _ in 0..3 {
        place.write(5000);
        service.until_said("retrying");
        let server = HttpServer::start_at(port, None, |_, _| {
            Answer::new(200).after(Duration::from_millis(5))
        });
        service.until("lines after a start", || server.taken().len() > 20);
        servers.push(server.stopped());
    }
    // What is in the queue outlives Millpond too.
    service.kill();
    place.write(1000);
    let last = HttpServer::start_at(port, None, |_, _| Answer::new(200));
    servers.push(last);
    let mut service = place.start(&format!("url: 'http://127.0.0.1:{port}/'"), "");
    let count = place.written.lines().count();
    service.until("every line", || counted(&servers).len() == count);
    let said = service.stop();
    assert!(!said.contains("error: "), "{said}");
    let counts = counted(&servers);
    expect_lines(&counts, &place.written);
    // Only what was on its way comes twice.
    let doubled = acknowledged.keys().filter(|line| counts[*line] > 1).count();
    assert!(doubled == 0, "{doubled} acknowledged lines came again");
}

#[test]
fn a_busy_server_gets_the_time_that_it_asks_for() {
    for status in [429, 503] {
        let folder = Folder::new();
        let log = folder.write("a.log", numbered("a", 0..5000));
        let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let (seen, refused) = (asked.clone(), Arc::<Mutex<Option<Instant>>>::default());
        let since = refused.clone();
        let server = HttpServer::start(move |_, number| {
            seen.lock().push(Instant::now());
            match number {
                3 => {
                    *since.lock() = Some(Instant::now());
                    Answer::new(status)
                        .header("retry-after", "1")
                        .body("slow down")
                }
                _ => Answer::new(200),
            }
        });
        let url = server.url();
        let done = run(&format!(
            "file {log} | http {url} batch.max_events=100 concurrency=1"
        ));
        let done = done.expect(0);
        assert!(done.err.contains(": slow down; retrying"), "{}", done.err);
        assert_eq!(expect_lines(&counted([&server]), &folder.read("a.log")), 0);
        let refused = refused.lock().expect("it was busy");
        let asked = asked.lock();
        let next = asked
            .iter()
            .find(|at| **at > refused)
            .expect("it came again");
        let pause = next.duration_since(refused);
        assert!(pause >= Duration::from_millis(990), "{pause:?}");
    }
}

#[test]
fn connections_that_are_cut_anywhere_lose_nothing() {
    for (seed, bytes_max, settings) in [
        (1, 200_000, ""),
        (2, 30_000, "compression=gzip"),
        (3, 200_000, "concurrency=8"),
    ] {
        let folder = Folder::new();
        let log = folder.write("a.log", numbered("a", 0..20_000));
        let server = fine();
        let cutter = Cutter::start(server.address(), seed, bytes_max);
        let url = format!("http://{}/in", cutter.address());
        let pipeline = format!("file {log} | http {url} batch.max_bytes=32KiB {settings}");
        let done = run(&pipeline).expect(0);
        let doubled = expect_lines(&counted([&server]), &folder.read("a.log"));
        assert!(cutter.cut() > 2, "{} cuts: {}", cutter.cut(), done.err);
        assert!(doubled < 20_000, "everything came twice");
    }
}

#[test]
fn one_bad_event_is_found_and_the_others_are_taken() {
    let folder = Folder::new();
    let mut lines = numbered("a", 0..3000);
    lines.push_str("poison\n");
    lines.push_str(&numbered("b", 0..3000));
    let log = folder.write("a.log", &lines);
    for (status, body) in [(400, "lines"), (413, "array"), (422, "lines")] {
        let server =
            HttpServer::start(
                move |taken: &Taken, _| match taken.text().contains("poison") {
                    true => Answer::new(status).body("cannot be read"),
                    false => Answer::new(200),
                },
            );
        let url = server.url();
        let done = run(&format!("file {log} | http {url} body={body}"));
        assert!(done.err.contains("an event was rejected"), "{}", done.err);
        assert!(done.err.contains("cannot be read"), "{}", done.err);
        let mut taken = Vec::new();
        for request in server.taken().iter().filter(|taken| taken.status == 200) {
            let text = request.text();
            let events: Vec<Value> = match body {
                "array" => serde_json::from_str(&text).expect("an array"),
                _ => {
                    let lines = text.lines();
                    lines
                        .map(|line| serde_json::from_str(line).expect("JSON"))
                        .collect()
                }
            };
            taken.extend(
                events
                    .iter()
                    .map(|event| event["message"].as_str().expect("text").to_owned()),
            );
        }
        taken.sort();
        let mut expected: Vec<&str> = lines.lines().filter(|line| *line != "poison").collect();
        expected.sort_unstable();
        assert_eq!(taken, expected, "{status}");
    }
}

#[test]
fn a_dead_output_does_not_hold_up_the_other() {
    let mut place = Place::new();
    let server = HttpServer::start(|_, _| Answer::new(500).body("broken"));
    let others = format!(
        "      - file: {{ path: '{}' }}",
        place.folder.path("good.ndjson")
    );
    let mut service = place.start(&format!("url: '{}/x'", server.url()), &others);
    place.write(50_000);
    let good = place.folder.path("good.ndjson");
    let count = || {
        std::fs::read_to_string(&good)
            .unwrap_or_default()
            .lines()
            .count()
    };
    service.until("the good output", || count() == 50_000);
    service.until_said("responded with 500 Internal Server Error: broken");
    let said = service.stop();
    assert!(said.contains("remain in the disk queue"), "{said}");
    assert_eq!(said.matches("output http: ").count(), 1, "{said}");
}

#[test]
fn refused_credentials_wait_for_a_person() {
    let mut place = Place::new();
    let is_known = Arc::new(AtomicBool::new(false));
    let known = is_known.clone();
    let server = HttpServer::start(move |_, _| match known.load(Ordering::Relaxed) {
        true => Answer::new(200),
        false => Answer::new(401).body("who are you?"),
    });
    let settings = format!("url: '{}', auth: {{ bearer: hunter2 }}", server.url());
    let mut service = place.start(&settings, "");
    place.write(500);
    service.until_said("responded with 401 Unauthorized: who are you?; retrying");
    is_known.store(true, Ordering::Relaxed);
    service.until("every line", || counted([&server]).len() == 500);
    let said = service.stop();
    assert!(
        !said.contains("hunter2") && !said.contains("error: "),
        "{said}"
    );
    // Nobody is there to mend anything for a one-line pipeline.
    is_known.store(false, Ordering::Relaxed);
    let begin = Instant::now();
    let url = server.url();
    let done = run(&format!("generate apache count=10 | http {url}")).expect(1);
    assert!(done.err.contains("responded with 401"), "{}", done.err);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_is_read() {
    let authority = Authority::new();
    authority.issue("client", "shipper");
    let (cert, key) = (authority.path("client.pem"), authority.path("client.key"));
    std::fs::write(authority.path("torn.key"), "-----BEGIN PRIVATE KEY-----\n").expect("written");
    let torn = authority.path("torn.key");
    for (settings, place) in [
        ("tls.ca=/nowhere/ca.pem".to_owned(), "/nowhere/ca.pem"),
        (
            format!("tls.cert=/nowhere/client.pem tls.key={}", key.display()),
            "/nowhere/client.pem",
        ),
        (
            format!("tls.cert={} tls.key={}", cert.display(), torn.display()),
            "torn.key",
        ),
        (
            "auth.bearer=file:/nowhere/token".to_owned(),
            "/nowhere/token",
        ),
    ] {
        let refused = run(&format!(
            "generate apache count=10 | http https://localhost:1/ {settings}"
        ));
        let refused = refused.expect(2);
        assert!(refused.err.contains(place), "{}", refused.err);
    }
    let folder = Folder::new();
    let yaml = "pipelines:\n  one:\n    input: stdin\n    output:\n      http:\n        url: https://localhost:1/\n        tls: { ca: /nowhere/ca.pem }\n";
    let path = folder.write("bad.yaml", yaml);
    let refused = millpond(&["run", &path]).expect(2);
    assert!(refused.err.contains("bad.yaml:7:20"), "{}", refused.err);
    millpond(&["check", &path]).expect(0);
}

#[test]
fn a_host_that_nobody_knows_is_tried_again_until_the_time_is_over() {
    let folder = Folder::new();
    let yaml = "pipelines:
  one:
    input: { generate: { format: apache, count: 10 } }
    output: { http: { url: 'http://no-such-host.invalid/' } }
    retry: { initial: 50ms, max: 200ms, give_up_after: 1s }
";
    let path = folder.write("a.yaml", yaml);
    let begin = Instant::now();
    let done = millpond(&["run", &path]).expect(1);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(
        done.err
            .contains("http://no-such-host.invalid: cannot connect: ")
            && done.err.contains("; retrying"),
        "{}",
        done.err
    );
    assert!(done.err.contains("10 events"), "{}", done.err);
    // A one-line pipeline has its own time for that, and is still at it.
    let mut child = command(&[
        "run",
        "generate apache count=10 | http http://no-such-host.invalid/",
    ])
    .spawn()
    .expect("it runs");
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("a child").is_none(), "it gave up");
    child.kill().expect("it runs");
    let killed = ended(child.wait_with_output().expect("it ends"));
    assert!(killed.err.contains("retrying"), "{}", killed.err);
}

#[test]
fn many_requests_are_in_flight_to_a_server_that_is_far_away() {
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("a", 0..40_000));
    let flying = Arc::new(AtomicUsize::new(0));
    let count = flying.clone();
    let server = HttpServer::start(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Answer::new(200).after(Duration::from_millis(200))
    });
    let url = server.url();
    let begin = Instant::now();
    run(&format!("file {log} | http {url} batch.max_events=500")).expect(0);
    let took = begin.elapsed();
    // One after the other, 80 requests would take 16 s.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert_eq!(expect_lines(&counted([&server]), &folder.read("a.log")), 0);
    eventually("all requests", || flying.load(Ordering::Relaxed) == 80);
}

#[test]
fn at_the_end_the_ledger_counts_as_acknowledged_what_was_delivered() {
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("a", 0..5000));
    let size = std::fs::metadata(&log).expect("it is there").len();
    let server = HttpServer::start(|_, _| {
        std::thread::sleep(Duration::from_millis(30));
        Answer::new(200)
    });
    let pipeline = format!("file {log} | http {}", server.url());
    for data_dir in [None, Some(folder.path("state"))] {
        let mut arguments = vec!["run", &pipeline, "--metrics"];
        if let Some(data_dir) = &data_dir {
            arguments.extend(["--data-dir", data_dir]);
        }
        let said = millpond(&arguments).expect(0).err;
        let row = said.lines().find(|line| line.starts_with(&log));
        let row: Vec<String> = row
            .expect(&said)
            .split_whitespace()
            .map(|cell| cell.replace(',', ""))
            .collect();
        // Size, position, lag, read, acknowledged, dropped, in flight.
        let size = size.to_string();
        let expected = [&*size, &size, "0", "5000", "5000", "0", "0"];
        assert_eq!(row[2..9], expected, "{said}");
    }
}

#[test]
fn a_server_that_hangs_at_a_stop_is_named() {
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("a", 0..100));
    let seen = Arc::new(AtomicBool::new(false));
    let sees = seen.clone();
    let server = HttpServer::start(move |_, _| {
        sees.store(true, Ordering::Relaxed);
        Answer::new(200).after(Duration::from_secs(20))
    });
    let url = server.url();
    let yaml = folder.write(
        "service.yaml",
        format!(
            "shutdown_deadline: 1s\npipelines:\n  one:\n    input: file {log}\n    output:\n      http: {{ url: {url} }}\n"
        ),
    );
    let child = command(&["run", &yaml])
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    eventually("a request", || seen.load(Ordering::Relaxed));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("kill").success());
    let ended = ended(child.wait_with_output().expect("it ends"));
    let said = ended.expect(1).err;
    assert!(
        said.contains("output http: no response by the shutdown deadline"),
        "{said}"
    );
}

#[test]
fn a_client_hears_at_a_stop_that_its_events_are_not_safe() {
    let folder = Folder::new();
    let server = HttpServer::start(|_, _| Answer::new(200).after(Duration::from_secs(20)));
    let url = server.url();
    let port = testkit::ports::free_port();
    let yaml = folder.write(
        "service.yaml",
        format!(
            "shutdown_deadline: 1s\npipelines:\n  one:\n    input:\n      http: {{ address: '127.0.0.1:{port}', ack_timeout: 60s }}\n    output:\n      http: {{ url: {url} }}\n"
        ),
    );
    let child = command(&["run", &yaml])
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
    eventually("the port", || connect().is_some());
    let mut client = connect().expect("it listens");
    let body = "{\"a\":1}\n";
    let request = format!(
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).expect("sent");
    std::thread::sleep(Duration::from_millis(600));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("kill").success());
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let said = ended(child.wait_with_output().expect("it ends"))
        .expect(1)
        .err;
    assert!(said.contains("output http: no response"), "{said}");
    assert!(!said.contains("did not stop in time"), "{said}");
}
