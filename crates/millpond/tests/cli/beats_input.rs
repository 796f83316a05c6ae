//! The input `beats`, sent to as Beats do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::authority::Authority;
use testkit::lumberjack::{Client, compressed, json, numbered, pairs, window};
use testkit::ports::free_port;

use crate::program::{Ended, Folder, command, ended, plain};

/// How long anything may take.
const SOON: Duration = Duration::from_secs(30);

/// A service that takes events.
struct Service {
    child: Option<Child>,
    port: u16,
}

impl Service {
    /// Runs what `command` says, and waits until the port is open.
    fn start(mut command: Command, port: u16) -> Self {
        let child = command.spawn().expect("the executable runs");
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < SOON, "it listens");
            sleep(Duration::from_millis(10));
        }
        Self {
            child: Some(child),
            port,
        }
    }

    /// A pipeline with these settings of the input, in YAML, into a file.
    fn with(folder: &Folder, port: u16, settings: &str, pipeline: &str) -> Self {
        let text = format!(
            "data_dir: {}\npipelines:\n  p:\n    input:\n      beats: {{address: {port}{settings}}}\n{pipeline}",
            folder.path("state")
        );
        let path = folder.write("c.yaml", text);
        Self::start(command(&["run", &path]), port)
    }

    /// One that writes to the file `out`.
    fn to_file(folder: &Folder, settings: &str) -> Self {
        let pipeline = format!("    output: {{file: {{path: {}}}}}\n", folder.path("out"));
        Self::with(folder, free_port(), settings, &pipeline)
    }

    fn client(&self) -> Client<TcpStream> {
        Client::connect(("127.0.0.1", self.port)).expect("connected")
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    fn ended(mut self) -> Ended {
        let child = self.child.take().expect("it runs");
        ended(child.wait_with_output().expect("it ends"))
    }

    /// Stops the service, which must end well.
    fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.ended().expect(0)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn every_kind_of_frame_comes_out_as_it_came() {
    let folder = Folder::new();
    let service = Service::to_file(&folder, "");
    let mut client = service.client();
    let mut expected = String::new();
    let mut document = |text: &str| {
        expected += &format!("{text}\n");
        text.as_bytes().to_vec()
    };
    let inner = [
        json(1, document(r#"{"a":1.000, "u":"\u00e9"}"#)),
        json(2, document(r#"{"n":12345678901234567890123}"#)),
    ];
    let plain = [
        window(b'2', 2),
        json(1, document("{}")),
        json(2, document("{\"x\":{}}")),
    ];
    let counted_on = [
        window(b'2', 1),
        json(77, document("{\"counts\":\"on\"}")),
        window(b'2', 0),
    ];
    let within = [
        window(b'2', 1),
        json(1, document("{\"window\":\"within\"}")),
    ];
    let old = pairs(5, &[(b"line", b"old \"one\""), (b"host", b"h")]);
    document(r#"{"line":"old \"one\"","host":"h"}"#);
    let old = [window(b'1', 1), compressed(b'1', &old)].concat();
    // Pipelined: everything is sent before the first answer is read.
    let frames = [
        window(b'2', 2),
        compressed(b'2', &inner.concat()),
        plain.concat(),
        counted_on.concat(),
        compressed(b'2', &within.concat()),
        old,
    ];
    client.send(&frames.concat()).expect("sent");
    for (version, sequence) in [
        (b'2', 2),
        (b'2', 2),
        (b'2', 77),
        (b'2', 0),
        (b'2', 1),
        (b'1', 5),
    ] {
        let mut came = client.acknowledgement(version).expect("acknowledged");
        while came < sequence {
            came = client.acknowledgement(version).expect("acknowledged");
        }
        assert_eq!(came, sequence);
    }
    service.stop();
    assert_eq!(client.rest(), b"");
    assert_eq!(folder.read("out"), expected);
}

#[test]
fn metadata_is_readable_and_not_written() {
    let folder = Folder::new();
    let pipeline = format!(
        "    processors: [set id = @metadata.id]\n    output: {{file: {{path: \"{}-%{{[@metadata][beat]}}\"}}}}\n",
        folder.path("out")
    );
    let service = Service::with(&folder, free_port(), "", &pipeline);
    let documents = [
        r#"{"@timestamp":"t","@metadata":{"beat":"filebeat","type":"_doc","_id":"own-1"},"message":"a"}"#,
        r#"{"@timestamp":"t","message":"b","@metadata":{"beat":"winlogbeat","_id":""}}"#,
    ];
    let frames = [
        window(b'2', 2),
        json(1, documents[0]),
        json(2, documents[1]),
    ];
    let mut client = service.client();
    client.send(&frames.concat()).expect("sent");
    client.acknowledged(b'2', 2).expect("acknowledged");
    let log = service.stop().err;
    assert_eq!(
        folder.read("out-filebeat"),
        "{\"@timestamp\":\"t\",\"message\":\"a\",\"id\":\"own-1\"}\n"
    );
    let other = folder.read("out-winlogbeat");
    assert!(
        other.starts_with("{\"@timestamp\":\"t\",\"message\":\"b\",\"id\":\"")
            && other.ends_with("-1-2\"}\n"),
        "{other}"
    );
    assert!(
        log.contains("an event has an `@metadata._id` that is empty"),
        "{log}"
    );
}

#[test]
fn what_does_not_follow_the_protocol_closes_its_connection_only() {
    let good = |number: u64| numbered([number], false);
    let one = |frames: &[u8]| [&window(b'2', 1), frames].concat();
    let mut damaged = compressed(b'2', &json(1, "{\"bad\":1}"));
    *damaged.last_mut().expect("bytes") ^= 1;
    // The length of the frame counts a byte behind the stream.
    let mut more = [&compressed(b'2', &json(1, "{\"bad\":1}"))[..], b"x"].concat();
    more[5] += 1;
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(1024), "]".repeat(1024));
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the client speaks HTTP"),
        (
            b"\x16\x03\x01\x02\0".to_vec(),
            "the client speaks TLS, which is not enabled here",
        ),
        (
            b"3W\0\0\0\x01".to_vec(),
            "a frame begins with its version, 1 or 2, and here stands `3`",
        ),
        (b"2X\0\0\0\x01".to_vec(), "unknown frame type `X`"),
        (b"2A\0\0\0\x01".to_vec(), "unknown frame type `A`"),
        (
            json(1, "{}"),
            "an event with sequence 1 belongs to no window",
        ),
        (
            one(&[json(1, "{}"), json(2, "{}")].concat()),
            "an event with sequence 2 belongs to no window",
        ),
        (
            [window(b'2', 2), json(1, "{}"), json(3, "{}")].concat(),
            "an event has sequence 3 and the one before 1",
        ),
        (
            window(b'2', 101),
            "a window has 101 events, and at most 100 are accepted",
        ),
        (
            one(&json(1, "{\"a\":}")),
            "the event with sequence 1: invalid JSON",
        ),
        (
            one(&json(1, "[1]")),
            "the event with sequence 1: invalid JSON: not a JSON object",
        ),
        (
            one(&json(1, "{\"a\":[{\"b\":{}}]}")),
            "the event with sequence 1: invalid JSON: nested deeper than 3 levels at byte 11",
        ),
        (
            one(&json(1, b"{\"a\":\"\xff\"}")),
            "the event with sequence 1: not UTF-8",
        ),
        (
            one(&json(1, "x".repeat(20_000))),
            "a frame has 20000 bytes or more, and at most 10240 are accepted",
        ),
        (
            one(b"2C\xff\xff\xff\xff"),
            "a frame has 4294967295 bytes or more",
        ),
        (
            one(b"1D\0\0\0\x01\xff\xff\xff\xff"),
            "bytes or more, and at most 10240 are accepted",
        ),
        (one(b"2C\0\0\0\x04abcd"), "a compressed frame is damaged"),
        (one(b"2C\0\0\0\0"), "a compressed frame is damaged"),
        (one(&more), "a compressed frame is damaged"),
        (
            one(b"2J\0\0\0\x01\0\0\0\0"),
            "the event with sequence 1: invalid JSON: not a JSON object at byte 0",
        ),
        (
            one(&json(1, nested)),
            "the event with sequence 1: invalid JSON: nested deeper than 3 levels",
        ),
        (
            one(&json(1, "{} {}")),
            "the event with sequence 1: invalid JSON: unexpected characters after",
        ),
        (
            one(b"1D\0\0\0\x01\xff\xff\xff\xff\0\0\0\0"),
            "bytes or more, and at most 10240 are accepted",
        ),
        (
            one(&compressed(b'2', b"2X\0\0\0\x01")),
            "unknown frame type `X`",
        ),
        (
            one(&compressed(b'2', &json(1, "{}").repeat(2))),
            "an event with sequence 1 belongs to no window",
        ),
        (one(&damaged), "a compressed frame is damaged"),
        (
            one(&compressed(b'2', &json(1, "{}")[..9])),
            "a compressed frame ends in the middle of a frame",
        ),
        (
            one(&compressed(b'2', &compressed(b'2', &json(1, "{}")))),
            "a compressed frame within a compressed frame",
        ),
        (
            compressed(b'2', &window(b'2', 0).repeat(65)),
            "more than 64 windows begin in a compressed frame",
        ),
        (
            [
                window(b'2', 100),
                compressed(
                    b'2',
                    &(1..=100)
                        .flat_map(|n| json(n, format!("{{\"z\":\"{}\"}}", "0".repeat(9000))))
                        .collect::<Vec<_>>(),
                ),
            ]
            .concat(),
            "a compressed frame has more than 102400 bytes when it is decompressed",
        ),
    ];
    for (frames, reason) in cases {
        let folder = Folder::new();
        let settings =
            ", max_window: 100, max_frame_bytes: 10KiB, max_inflated_bytes: 100KiB, max_depth: 3";
        let service = Service::to_file(&folder, settings);
        let mut other = service.client();
        let mut client = service.client();
        let address = client.stream().local_addr().expect("an address");
        client.send(&[good(1), frames].concat()).expect("sent");
        client
            .acknowledged(b'2', 1)
            .expect("what was good is acknowledged");
        client.rest();
        other.send(&good(2)).expect("sent");
        other.acknowledged(b'2', 1).expect("the others go on");
        let log = plain(&service.stop().err);
        let line = format!("{address}: ");
        let line = log.lines().find(|text| text.contains(&line));
        let line = line.unwrap_or_else(|| panic!("{reason}: {log}"));
        assert!(line.contains(reason), "{reason}: {line}");
        assert!(line.contains("the connection was closed"), "{line}");
        let out = folder.read("out");
        assert!(
            out.starts_with("{\"n\":1}\n") && out.ends_with("{\"n\":2}\n"),
            "{reason}: {out}"
        );
    }
}

#[test]
fn a_connection_that_ends_too_early_is_reported() {
    let event = json(1, "{\"bad\":1}");
    let cases: [(Vec<u8>, &str); 4] = [
        (
            b"2".to_vec(),
            "the connection ended in the middle of a frame",
        ),
        (
            window(b'2', 1)[..5].to_vec(),
            "the connection ended in the middle of a frame",
        ),
        (
            window(b'2', 1),
            "the connection ended before the events of a window came",
        ),
        (
            [&window(b'2', 1), &event[..event.len() - 1]].concat(),
            "the connection ended in the middle of a frame",
        ),
    ];
    for (frames, reason) in cases {
        let folder = Folder::new();
        let service = Service::to_file(&folder, "");
        let mut client = service.client();
        let address = client.stream().local_addr().expect("an address");
        client
            .send(&[numbered([1], true), frames].concat())
            .expect("sent");
        client.acknowledged(b'2', 1).expect("what came is safe");
        drop(client);
        let mut other = service.client();
        other.send(&numbered([2], false)).expect("sent");
        other.acknowledged(b'2', 1).expect("the others go on");
        let log = plain(&service.stop().err);
        let line = log
            .lines()
            .find(|line| line.contains(&format!("{address}: ")));
        let line = line.unwrap_or_else(|| panic!("{reason}: {log}"));
        assert!(line.contains(reason), "{reason}: {line}");
        assert_eq!(folder.read("out"), "{\"n\":1}\n{\"n\":2}\n", "{reason}");
    }
}

#[test]
fn events_before_a_fault_are_acknowledged() {
    let folder = Folder::new();
    let service = Service::to_file(&folder, "");
    for is_compressed in [false, true] {
        let mut client = service.client();
        let frames = [json(1, "{\"n\":1}"), json(2, "{\"n\":2}"), json(3, "{")].concat();
        let frames = match is_compressed {
            true => compressed(b'2', &frames),
            false => frames,
        };
        client
            .send(&[window(b'2', 3), frames].concat())
            .expect("sent");
        let mut last = 0;
        while let Ok(sequence) = client.acknowledgement(b'2') {
            last = sequence;
        }
        assert_eq!(last, 2, "compressed: {is_compressed}");
    }
    service.stop();
    assert_eq!(folder.read("out"), "{\"n\":1}\n{\"n\":2}\n".repeat(2));
}

#[test]
fn windows_of_one_event_are_answered_one_by_one() {
    let folder = Folder::new();
    let service = Service::to_file(&folder, "");
    let mut client = service.client();
    let windows = [window(b'2', 1), json(1, "{}")].concat().repeat(1000);
    client.send(&windows).expect("sent");
    for number in 0..1000 {
        let answered = client.acknowledgement(b'2');
        assert_eq!(answered.expect("an answer"), 1, "{number}");
    }
    service.stop();
    assert_eq!(folder.read("out"), "{}\n".repeat(1000));
}

#[test]
fn a_large_window_is_acknowledged_in_steps() {
    let folder = Folder::new();
    let service = Service::to_file(&folder, "");
    let mut client = service.client();
    let long = "x".repeat(3000);
    let events: Vec<u8> = (1..=3000)
        .flat_map(|n| json(n, format!("{{\"n\":{n},\"x\":\"{long}\"}}")))
        .collect();
    client
        .send(&[window(b'2', 3000), compressed(b'2', &events)].concat())
        .expect("sent");
    client.acknowledged(b'2', 3000).expect("acknowledged");
    assert!(client.partial > 0, "9 MB are several batches");
    // A document that is larger than a buffer of the pool, and a frame that is too.
    let large = format!("{{\"large\":\"{}\"}}", "y".repeat(1 << 20));
    let noise: String = (0..400_000).map(|_| fastrand::alphanumeric()).collect();
    let noise = format!("{{\"noise\":\"{noise}\"}}");
    let inner = [json(1, &large), json(2, &noise)].concat();
    let frames = [window(b'2', 3), compressed(b'2', &inner), json(3, &large)];
    client.send(&frames.concat()).expect("sent");
    client.acknowledged(b'2', 3).expect("acknowledged");
    service.stop();
    let out = folder.read("out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3003);
    for (n, line) in (1..=3000).zip(&lines) {
        assert!(
            line.starts_with(&format!("{{\"n\":{n},")),
            "in order: {}",
            &line[..20]
        );
    }
    assert_eq!(lines[3000..], [&large, &noise, &large]);
}

#[test]
fn clients_hear_that_they_are_waited_for_until_the_output_is_back() {
    let folder = Folder::new();
    let pipeline = format!(
        "    output: {{file: {{path: {}, create_dirs: false}}}}\n",
        folder.path("gone/out")
    );
    let service = Service::with(&folder, free_port(), "", &pipeline);
    let mut client = service.client();
    client.send(&numbered(0..10_u64, true)).expect("sent");
    assert_eq!(client.acknowledgement(b'2').expect("a keep-alive"), 0);
    fs::create_dir(folder.path("gone")).expect("created");
    client.acknowledged(b'2', 10).expect("acknowledged");
    service.stop();
    assert_eq!(folder.read("gone/out").lines().count(), 10);
}

#[test]
fn a_client_that_waits_for_an_acknowledgement_is_not_idle() {
    let folder = Folder::new();
    let pipeline = format!(
        "    output: {{file: {{path: {}, create_dirs: false}}}}\n",
        folder.path("gone/out")
    );
    let settings = ", idle_timeout: 300ms";
    let service = Service::with(&folder, free_port(), settings, &pipeline);
    let mut client = service.client();
    client.send(&numbered(0..10_u64, true)).expect("sent");
    sleep(Duration::from_secs(1));
    fs::create_dir(folder.path("gone")).expect("created");
    client.acknowledged(b'2', 10).expect("acknowledged");
    // The connection is still there.
    client.send(&numbered(10..20_u64, true)).expect("sent");
    client.acknowledged(b'2', 10).expect("acknowledged");
    assert_eq!(client.rest(), b"", "it is idle now");
    service.stop();
    assert_eq!(folder.read("gone/out").lines().count(), 20);
}

#[test]
fn a_document_that_grows_is_charged_before_it_is_written() {
    let folder = Folder::new();
    let port = free_port();
    let text = format!(
        "max_memory_bytes: 64MiB\npipelines:\n  p:\n    input:\n      beats: {{address: {port}}}\n    output: discard\n",
    );
    let path = folder.write("c.yaml", text);
    let service = Service::start(command(&["run", &path]), port);
    // Each byte becomes six.
    let frame = pairs(1, &[(b"line", &vec![1; 15 << 20])]);
    let frames = [window(b'1', 1), frame].concat();
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = service.client();
            let frames = &frames;
            scope.spawn(move || {
                client.send(frames).expect("sent");
                assert_eq!(client.acknowledgement(b'1').expect("acknowledged"), 1);
            });
        }
    });
    let child = service.child.as_ref().expect("it runs");
    let [peak, rest] = ["VmHWM", "VmRSS"].map(|name| memory_mib(child, name));
    service.stop();
    assert!(peak < 350 && rest < 150, "{peak} MiB, {rest} MiB stay");
}

/// A figure of a process's memory, in MiB.
fn memory_mib(child: &Child, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(name));
    let digits = line.expect("a figure").chars().filter(char::is_ascii_digit);
    let kib: u64 = digits.collect::<String>().parse().expect("a number");
    kib >> 10
}

#[test]
fn a_stop_answers_what_was_read() {
    let folder = Folder::new();
    let service = Service::to_file(&folder, "");
    let _idle = service.client();
    let mut half = service.client();
    let whole = numbered(0..10_u64, false);
    half.send(&whole[..whole.len() - 3]).expect("sent");
    sleep(Duration::from_millis(300));
    service.signal(Signal::TERM);
    let mut last = 0;
    while let Ok(sequence) = half.acknowledgement(b'2') {
        last = sequence;
    }
    assert_eq!(last, 9, "the last event is not whole");
    let begin = Instant::now();
    service.ended().expect(0);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(folder.read("out").lines().count(), 9);
}

#[test]
fn slow_and_silent_clients_lose_their_connections_and_others_go_on() {
    let folder = Folder::new();
    let settings = ", idle_timeout: 300ms, frame_timeout: 300ms";
    let service = Service::to_file(&folder, settings);
    let mut silent = service.client();
    let mut slow = service.client();
    slow.send(&window(b'2', 1)).expect("sent");
    slow.send(&json(1, "{\"a\":1}")[..12]).expect("sent");
    assert_eq!(silent.rest(), b"");
    assert_eq!(slow.rest(), b"");
    // One that never reads what it is sent, until it is disconnected.
    let mut deaf = service.client();
    deaf.stream().set_write_timeout(Some(SOON)).expect("set");
    let windows = window(b'2', 0).repeat(100_000);
    let begin = Instant::now();
    while deaf.send(&windows).is_ok() {
        assert!(begin.elapsed() < SOON, "it is disconnected");
    }
    let mut other = service.client();
    other.send(&numbered(0..1, true)).expect("sent");
    other.acknowledged(b'2', 1).expect("acknowledged");
    let log = plain(&service.stop().err);
    assert!(
        log.contains("a frame did not arrive in time; the connection was closed"),
        "{log}"
    );
}

#[test]
fn what_was_acknowledged_survives_kills_and_nothing_is_lost() {
    let folder = Folder::new();
    let port = free_port();
    let pipeline = format!(
        "    queue: disk\n    processors: [set id = @metadata.id]\n    output: {{file: {{path: {}}}}}\n",
        folder.path("out")
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..3_u64)
        .map(|client| {
            let (is_over, acknowledged) = (is_over.clone(), acknowledged.clone());
            thread::spawn(move || send_until(port, client * 1_000_000, &is_over, &acknowledged))
        })
        .collect();
    for _ in 0..3 {
        let service = Service::with(&folder, port, "", &pipeline);
        let before = acknowledged.load(Ordering::Relaxed);
        let begin = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < before + 2000 {
            assert!(begin.elapsed() < SOON, "clients are served");
            sleep(Duration::from_millis(5));
        }
        service.signal(Signal::KILL);
        assert_eq!(service.ended().code, None);
    }
    let service = Service::with(&folder, port, "", &pipeline);
    is_over.store(true, Ordering::Relaxed);
    let sent: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("no panic"))
        .collect();
    let begin = Instant::now();
    let mut ids = BTreeMap::new();
    let total: u64 = sent.iter().map(|sent| sent.events).sum();
    while ids.len() < total as usize {
        assert!(
            begin.elapsed() < SOON,
            "{} of {total} are delivered",
            ids.len()
        );
        sleep(Duration::from_millis(50));
        ids.clear();
        for line in folder.read("out").lines() {
            // The last line may not be complete.
            if let Ok(event) = serde_json::from_str::<Value>(line) {
                let number = event["n"].as_u64().expect("a number");
                let id = event["id"].as_str().expect("an id").to_owned();
                ids.entry(number).or_insert_with(BTreeSet::new).insert(id);
            }
        }
    }
    service.stop();
    for (client, sent) in sent.iter().enumerate() {
        let first = client as u64 * 1_000_000;
        for number in first..first + sent.events {
            // What the output writes again after a kill has the same id; what the client sends again has another.
            let count = ids[&number].len();
            let repeated = sent.repeated.iter().any(|window| window.contains(&number));
            assert!(
                count == 1 || repeated,
                "{number} has {count} ids and was acknowledged at once"
            );
        }
    }
}

/// What a client sent.
struct Sent {
    events: u64,
    /// The windows that it sent more than once.
    repeated: Vec<std::ops::Range<u64>>,
}

/// Sends windows of 50 numbers from `first` on, each again until it is acknowledged.
fn send_until(port: u16, first: u64, is_over: &AtomicBool, acknowledged: &AtomicU64) -> Sent {
    let mut sent = Sent {
        events: 0,
        repeated: Vec::new(),
    };
    let mut connection = None;
    let mut is_repeated = false;
    while !is_over.load(Ordering::Relaxed) || is_repeated {
        let start = first + sent.events;
        let client = match &mut connection {
            Some(client) => client,
            None => match Client::connect(("127.0.0.1", port)) {
                Ok(client) => connection.insert(client),
                Err(error) => {
                    // The kernel resets what waits to be accepted by a process that is killed.
                    let kinds = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
                    assert!(kinds.contains(&error.kind()), "{error}");
                    sleep(Duration::from_millis(10));
                    continue;
                }
            },
        };
        let is_compressed = start.is_multiple_of(100);
        let answered = client
            .send(&numbered(start..start + 50, is_compressed))
            .and_then(|()| client.acknowledged(b'2', 50));
        match answered {
            Ok(()) => {
                sent.events += 50;
                is_repeated = false;
                acknowledged.fetch_add(50, Ordering::Relaxed);
            }
            Err(_) => {
                connection = None;
                is_repeated = true;
                sent.repeated.push(start..start + 50);
            }
        }
    }
    sent
}

#[test]
fn clients_show_a_certificate_where_they_must() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.issue("server", "localhost");
    authority.issue("client", "beat");
    let folder = Folder::new();
    let tls = "tls: {cert: DIR/server.pem, key: DIR/server.key, client_ca: DIR/ca.pem}";
    let settings = format!(", {}", authority.with_folder(tls));
    let service = Service::to_file(&folder, &settings);
    let address = ("127.0.0.1", service.port);
    for (config, is_taken) in [
        (authority.client(Some("client")), true),
        (authority.client(None), false),
        (stranger.client(None), false),
    ] {
        let mut client = Client::connect_tls(address, config).expect("connected");
        let sent = client.send(&numbered(0..500, true));
        let answered = sent.and_then(|()| client.acknowledged(b'2', 500));
        assert_eq!(answered.is_ok(), is_taken, "{answered:?}");
    }
    let mut plain_text = service.client();
    plain_text.send(&numbered(0..1, true)).expect("sent");
    let answer = plain_text.rest();
    assert!(!answer.starts_with(b"2A"), "{answer:?}");
    let log = plain(&service.stop().err);
    assert!(log.contains(": the TLS handshake failed: "), "{log}");
    assert_eq!(folder.read("out").lines().count(), 500);
}

#[test]
fn a_one_line_pipeline_takes_events_until_it_is_stopped() {
    let port = free_port();
    let service = Service::start(
        command(&["run", &format!("lumberjack {port} | stdout")]),
        port,
    );
    let mut client = service.client();
    client.send(&numbered(7..8, true)).expect("sent");
    client.acknowledged(b'2', 1).expect("acknowledged");
    assert_eq!(service.stop().out, "{\"n\":7}\n");
}
