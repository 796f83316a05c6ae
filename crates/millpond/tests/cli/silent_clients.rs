//! More clients than `max_connections`, most of which are silent, at every input that listens.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::Folder;
use crate::running::Service;

const HTTP: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{\"n\":1}";
const BULK: &[u8] = b"POST /l/_bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"create\":{}}\n{\"n\":1}\n";

/// The first words of an input, its further settings, and what a client sends as an event.
const INPUTS: [(&str, &str, &[u8]); 7] = [
    ("tcp PORT", "", b"line\n"),
    ("unix PATH", "", b"line\n"),
    (
        "syslog PORT",
        "transport=tcp",
        b"<13>Oct 11 22:14:15 host app: line\n",
    ),
    (
        "forward PORT",
        "",
        b"\x94\xa1t\x01\x81\xa1n\x01\x81\xa5chunk\xa1c",
    ),
    (
        "beats PORT",
        "",
        b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x07{\"n\":1}",
    ),
    ("http PORT", "", HTTP),
    ("elasticsearch PORT", "", BULK),
];

/// A client of TCP or of a socket of Unix.
trait Client: Read + Write {}

impl<T: Read + Write> Client for T {}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn silent_clients_leave_for_one_that_sends() {
    for (input, settings, event) in INPUTS {
        let (folder, port) = (Folder::new(), free_port());
        let path = folder.path("socket");
        let input = input
            .replace("PORT", &port.to_string())
            .replace("PATH", &path);
        let pipeline = format!("{input} max_connections=10 {settings} | stdout");
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
