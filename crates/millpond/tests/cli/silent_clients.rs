//! More clients than `max_connections`, most of which are silent, at every input that listens.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::ports::free_port;

use crate::program::Folder;
use crate::running::Service;

const HTTP: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{\"n\":1}";
const BULK: &[u8] = b"POST /l/_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"create\":{}}\n{\"n\":1}\n";

/// The first words of an input, and what a client sends as an event.
const INPUTS: [(&str, &[u8]); 7] = [
    ("tcp PORT", b"line\n"),
    ("unix PATH", b"line\n"),
    ("syslog tcp PORT", b"<13>Oct 11 22:14:15 host app: line\n"),
    (
        "forward PORT",
        b"\x94\xa1t\x01\x81\xa1n\x01\x81\xa5chunk\xa1c",
    ),
    ("beats PORT", b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x07{\"n\":1}"),
    ("http PORT", HTTP),
    ("elasticsearch PORT", BULK),
];

/// A client of TCP or of a socket of Unix.
trait Client: Read + Write {}

impl<T: Read + Write> Client for T {}

#[test]
fn silent_clients_leave_for_one_that_sends() {
    for (input, event) in INPUTS {
        let (folder, port) = (Folder::new(), free_port());
        let path = folder.path("socket");
        let input = input
            .replace("PORT", &port.to_string())
            .replace("PATH", &path);
        let pipeline = format!("{input} max_connections=10 | stdout");
        let mut service = Service::start(&folder, &["run", &pipeline, "--metrics"]);
        service.until_said("listening on");
        let connect = || -> Box<dyn Client> {
            match Path::new(&path).exists() {
                true => Box::new(UnixStream::connect(&path).expect("connected")),
                false => Box::new(TcpStream::connect(("127.0.0.1", port)).expect("connected")),
            }
        };
        let silent: Vec<_> = (0..10).map(|_| connect()).collect();
        sleep(Duration::from_millis(1000));
        let begin = Instant::now();
        let mut another = connect();
        another.write_all(event).expect("sent");
        let out = folder.path("out");
        service.until("the event", || {
            fs::read_to_string(&out).is_ok_and(|out| out.ends_with('\n'))
        });
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(2), "{input}: {took:?}");
        drop((silent, another));
        let said = service.stop();
        for part in [
            "the client was silent, and its connection was closed for another one",
            "displaced_connections 1",
        ] {
            assert!(said.contains(part), "{input}: {said}");
        }
    }
}

#[test]
fn requests_that_do_not_come_and_those_that_are_refused_are_counted_and_named() {
    for (input, request) in [("http", HTTP), ("elasticsearch", BULK)] {
        let (folder, port) = (Folder::new(), free_port());
        let pipeline = format!("{input} {port} idle_timeout=300ms | stdout");
        let mut service = Service::start(&folder, &["run", &pipeline, "--metrics"]);
        service.until_said("listening on");
        let talk = |sent: &[u8]| {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            client.write_all(sent).expect("sent");
            let mut answer = String::new();
            // It is closed by Millpond, which may be a reset.
            let _ = client.read_to_string(&mut answer);
            answer
        };
        assert_eq!(talk(b""), "");
        assert!(talk(request).starts_with("HTTP/1.1 200"), "{input}");
        let half = [request, &request[..20]].concat();
        assert!(talk(&half).starts_with("HTTP/1.1 200"), "{input}");
        talk(&request[..20]);
        let refused = talk(b"PATCH /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 40"), "{input}: {refused}");
        let said = service.stop();
        for part in [
            "idle_timeouts 3",
            "head_timeouts 2",
            "the head of a request did not arrive in time; the connection was closed",
            "refused_requests 1",
            ": a request was refused: ",
        ] {
            assert!(said.contains(part), "{input}, {part}: {said}");
        }
    }
}
