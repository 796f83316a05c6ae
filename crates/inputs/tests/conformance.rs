//! Every input does what all inputs must do.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::conformance::input::{InputCase, check};
use testkit::lumberjack;

static CASES: &[InputCase] = &[
    InputCase {
        name: "beats",
        settings: |place| format!("address: {}", place.port),
        feed: |place, events| {
            // Where it is stopped before, or takes nothing, there is no answer.
            if let Ok(mut client) = lumberjack::Client::connect(("127.0.0.1", place.port)) {
                let _ = client.send(&lumberjack::numbered(0..events as u64, true));
                let _ = client.acknowledged(b'2', events as u32);
            }
        },
        reads: false,
    },
    InputCase {
        name: "file",
        settings: |place| format!("paths: {}", place.path("*.log").display()),
        feed: |place, events| {
            let mut file = File::create(place.path("a.log")).expect("a file");
            (0..events).for_each(|event| writeln!(file, "line {event}").expect("written"));
        },
        reads: true,
    },
    InputCase {
        name: "generate",
        settings: |_| "{format: apache, count: 300}".to_owned(),
        feed: |_, _| {},
        reads: true,
    },
    InputCase {
        name: "http",
        settings: |place| format!("{{address: {}, format: lines}}", place.port),
        feed: |place, events| {
            // Where it is stopped before, or takes nothing, there is no answer.
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", place.port)) {
                let body: String = (0..events).map(|event| format!("line {event}\n")).collect();
                let head = format!(
                    "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes());
                let _ = stream.read_to_end(&mut Vec::new());
            }
        },
        reads: false,
    },
    InputCase {
        name: "stdin",
        settings: |_| "{}".to_owned(),
        // Standard input of this process: nobody else in this program reads it.
        feed: |place, events| {
            let mut file = File::create(place.path("stdin")).expect("a file");
            (0..events).for_each(|event| writeln!(file, "line {event}").expect("written"));
            let file = File::open(place.path("stdin")).expect("it was just made");
            rustix::stdio::dup2_stdin(file).expect("standard input");
        },
        reads: true,
    },
];

#[test]
fn every_input_conforms() {
    check(inputs::SPECS, CASES);
}
