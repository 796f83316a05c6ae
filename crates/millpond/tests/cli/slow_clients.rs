//! Clients that send a byte at a time, never read what they are sent, or vanish, at every input that clients connect to.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use testkit::lumberjack::{json, window};

use crate::posting::{Service, listening, written};
use crate::program::{Folder, plain};
use crate::running::eventually;

/// How long anything may take.
const SOON: Duration = Duration::from_secs(30);

/// The settings that end slow connections early, and the beginnings of what never ends, with what is said of each; nothing where
/// nothing is.
fn beginnings(input: &str) -> (&'static str, Vec<(Vec<u8>, &'static str)>) {
    let late = "a frame did not arrive in time";
    match input {
        "beats" => {
            let event = [window(b'2', 1), json(1, "x".repeat(5000))].concat();
            let compressed = [&window(b'2', 1)[..], b"2C\0\0\x20\0\x78"].concat();
            (
                ", frame_timeout: 700ms",
                vec![(event[..30].to_vec(), late), (compressed, late)],
            )
        }
        "forward" => {
            let entries = b"\x92\xA1t\xC6\0\0\x20\0";
            (
                ", message_timeout: 700ms",
                vec![(entries.to_vec(), late), (vec![0x94], late)],
            )
        }
        "elasticsearch" | "http" | "otlp" | "loki" | "splunk_hec" => {
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nX: ";
            let body = b"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n";
            (
                ", idle_timeout: 700ms, body_timeout: 700ms",
                vec![(head.to_vec(), ""), (body.to_vec(), "")],
            )
        }
        _ => {
            let reason = "the rest of a message did not arrive in time";
            (", line_timeout: 700ms", vec![(vec![b'x'; 5000], reason)])
        }
    }
}

/// Sends a byte every tenth of a second until the connection is closed.
fn trickle(mut stream: TcpStream, beginning: &[u8]) {
    let patience = Some(Duration::from_millis(100));
    stream.set_read_timeout(patience).expect("set");
    stream.write_all(beginning).expect("sent");
    let begin = Instant::now();
    while stream.write_all(b"\xc0").is_ok() {
        assert!(begin.elapsed() < SOON, "it is disconnected");
        match stream.read(&mut [0; 1024]) {
            Ok(0) => return,
            // An answer that says what is wrong.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[test]
fn a_byte_at_a_time_costs_a_connection_and_holds_up_nobody() {
    thread::scope(|scope| {
        for case in listening() {
            scope.spawn(move || {
                let (settings, beginnings) = beginnings(case.input);
                let folder = Folder::new();
                let service = case.start(&folder, settings);
                case.send_event(&mut service.connect());
                thread::scope(|scope| {
                    for (beginning, _) in &beginnings {
                        let stream = service.connect();
                        scope.spawn(move || trickle(stream, beginning));
                    }
                    case.send_event(&mut service.connect());
                });
                case.send_event(&mut service.connect());
                eventually("the events", || written(&folder) >= 3);
                let log = plain(&service.stop().err);
                for (_, reason) in beginnings {
                    assert!(log.contains(reason), "{}: {log}", case.input);
                }
            });
        }
    });
}

/// What is answered with much, and the setting that limits how long an answer may wait for its client.
fn questions(input: &str) -> Option<(&'static str, Vec<u8>)> {
    match input {
        "beats" => Some((", idle_timeout: 1s", window(b'2', 0).repeat(10_000))),
        "forward" => {
            let name = "c".repeat(60_000);
            let head = b"\x94\xa1t\x01\x81\xa1n\x01\x81\xa5chunk\xda\xea\x60";
            Some((
                ", message_timeout: 1s",
                [&head[..], name.as_bytes()].concat(),
            ))
        }
        "elasticsearch" | "http" => {
            let question = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
            Some((", idle_timeout: 1s", question))
        }
        _ => None,
    }
}

#[test]
fn a_client_that_reads_no_answers_loses_its_connection_only() {
    thread::scope(|scope| {
        for case in listening() {
            let Some((settings, question)) = questions(case.input) else {
                continue;
            };
            scope.spawn(move || {
                let folder = Folder::new();
                let service = case.start(&folder, settings);
                let mut deaf = service.connect();
                deaf.set_write_timeout(Some(SOON)).expect("set");
                let begin = Instant::now();
                let error = loop {
                    if let Err(error) = deaf.write_all(&question) {
                        break error;
                    }
                    assert!(begin.elapsed() < SOON, "{}: it waits", case.input);
                };
                // What does not go on would be `WouldBlock`.
                let is_closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(is_closed.contains(&error.kind()), "{}: {error}", case.input);
                case.send_event(&mut service.connect());
                service.stop();
            });
        }
    });
}

/// Whether the system asks silent clients whether they are still there: what it waits for on a connection is in the sixth column.
#[test]
fn the_system_notices_clients_that_have_vanished() {
    for case in listening() {
        let folder = Folder::new();
        let service = case.start(&folder, "");
        let client = service.connect();
        let port = client.local_addr().expect("an address").port();
        let ends = format!(":{:04X} 0100007F:{port:04X} 01 ", service.port);
        let is_asked = || {
            let table = fs::read_to_string("/proc/net/tcp").expect("the connections");
            let line = table.lines().find(|line| line.contains(&ends));
            let timer = line.and_then(|line| line.split_whitespace().nth(5));
            timer.is_some_and(|timer| timer.starts_with("02:"))
        };
        eventually(case.input, is_asked);
        service.stop();
    }
}

/// More than half of an event of a megabyte, for inputs that can have it sent again; none for others.
fn half(input: &str) -> Option<Vec<u8>> {
    let length = 1_000_000_u32.to_be_bytes();
    let head = match input {
        "beats" => [&window(b'2', 1)[..], b"2J\0\0\0\x01", &length].concat(),
        "forward" => [b"\x93\xA1t\x01\x81\xA1m\xDB", &length[..]].concat(),
        "elasticsearch" | "http" => {
            b"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".to_vec()
        }
        _ => return None,
    };
    Some([head, vec![b' '; 600_000]].concat())
}

/// Half of what they announced fills the memory; the usual time for the rest is a minute.
#[test]
fn clients_that_stop_half_way_give_way_to_those_that_send() {
    thread::scope(|scope| {
        for case in listening() {
            let Some(half) = half(case.input) else {
                continue;
            };
            scope.spawn(move || {
                let folder = Folder::new();
                let out = folder.path("out");
                let pipeline =
                    format!("    output: {{file: {{path: {out}}}}}\nmax_memory_bytes: 8MiB\n");
                let service = Service::with(&folder, case.input, case.settings, &pipeline);
                let stopped: Vec<TcpStream> = (0..12)
                    .map(|_| {
                        let stream = service.connect();
                        stream.set_nonblocking(true).expect("set");
                        // As much as is taken.
                        let _ = (&stream).write(&half);
                        stream
                    })
                    .collect();
                thread::sleep(Duration::from_secs(1));
                let mut other = service.connect();
                other.write_all(&case.event).expect("sent");
                eventually("the event", || written(&folder) >= 1);
                drop((stopped, other));
                let log = plain(&service.stop().err);
                let reason = "while other";
                assert!(log.contains(reason), "{}: {log}", case.input);
            });
        }
    });
}
