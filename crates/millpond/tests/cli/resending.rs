//! Clients that post numbered events, and send again what was not answered, while the service is killed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;

use crate::posting::Service;
use crate::program::{Folder, command};

/// How many events are sent, and how many a request has.
pub const EVENTS: usize = 100_000;
pub const REQUEST_EVENTS: usize = 500;

const REQUESTS: usize = EVENTS / REQUEST_EVENTS;
const CLIENTS: usize = 3;
const KILLS: usize = 6;

/// The line of an event, as a web server writes it.
pub fn line(number: usize) -> String {
    let (host, bytes) = (number % 254 + 1, number * 31 % 90_000);
    format!(
        r#"203.0.113.{host} - - [25/Nov/2026:10:11:12 +0000] \"GET /items/{number}?q=a%20b HTTP/1.1\" 200 {bytes} \"-\" \"curl/8.5.0\""#
    )
}

/// What is still to be sent, and how often each request was.
pub struct Work {
    waiting: Mutex<VecDeque<usize>>,
    tries: Vec<AtomicUsize>,
    done: AtomicUsize,
}

impl Work {
    fn new() -> Self {
        Self {
            waiting: Mutex::new((0..REQUESTS).collect()),
            tries: (0..REQUESTS).map(|_| AtomicUsize::new(0)).collect(),
            done: AtomicUsize::new(0),
        }
    }

    /// The next request, which counts as sent.
    pub fn next(&self) -> Option<usize> {
        let number = self.waiting.lock().pop_front()?;
        self.tries[number].fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// A request is to be sent again.
    pub fn again(&self, number: usize) {
        self.waiting.lock().push_back(number);
    }

    /// A request is safe.
    pub fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The numbers of the events of a request.
pub fn numbers(request: usize) -> std::ops::Range<usize> {
    request * REQUEST_EVENTS..(request + 1) * REQUEST_EVENTS
}

/// A connection that stays open.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn new(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Posts a body; gives the status and the body of the answer.
    pub fn post(&mut self, target: &str, headers: &str, body: &[u8]) -> io::Result<(u16, String)> {
        let length = body.len();
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        let stream = self.0.get_mut();
        stream.write_all(&[head.as_bytes(), body].concat())?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body).expect("text")))
    }
}

/// Sends requests until the connection breaks: `send` sends one, and says whether it is safe.
pub fn one_by_one(
    port: u16,
    work: &Work,
    send: impl Fn(&mut Connection, usize) -> io::Result<bool>,
) {
    let Ok(mut connection) = Connection::new(port) else {
        return;
    };
    while let Some(number) = work.next() {
        match send(&mut connection, number) {
            Ok(true) => work.done(),
            Ok(false) => work.again(number),
            Err(_) => return work.again(number),
        }
    }
}

/// Runs clients while the service is killed again and again, and checks that everything came out.
pub fn survives(input: &str, client: impl Fn(u16, &Work) + Sync) {
    let folder = Folder::new();
    let port = crate::posting::free_port();
    let (state, out) = (folder.path("state"), folder.path("out"));
    let config = format!(
        "data_dir: {state}\npipelines:\n  p:\n    input: {{ {input} }}\n    processors: [set id = @metadata.id]\n    queue: {{ disk: {{ drain: true }} }}\n    output: {{ file: {{ path: {out} }} }}\n"
    );
    let config = folder.write("c.yaml", config.replace("PORT", &port.to_string()));
    let work = Work::new();
    for kill in 1..=KILLS + 1 {
        let service = Service::start(command(&["run", &config]), port);
        let enough = REQUESTS * kill / (KILLS + 1);
        scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| scope.spawn(|| client(port, &work)))
                .collect();
            let begin = Instant::now();
            while work.done.load(Ordering::Relaxed) < enough {
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "requests are safe"
                );
                sleep(Duration::from_millis(1));
            }
            if kill <= KILLS {
                service.signal(Signal::KILL);
            }
            clients
                .into_iter()
                .for_each(|client| client.join().expect("no panic"));
        });
        match kill <= KILLS {
            true => assert_eq!(service.ended().code, None),
            false => drop(service.stop()),
        }
    }
    check(&folder.read("out"), &work);
}

/// Every event is there, with the id that its sender gave, and twice only if its request was sent twice, or where a kill fell between a write to
/// the file and the note of it.
fn check(out: &str, work: &Work) {
    let mut counts = BTreeMap::<usize, usize>::new();
    for line in out.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let id = event["id"].as_str().expect("an id");
        let number: usize = id
            .strip_prefix("e-")
            .expect("its own id")
            .parse()
            .expect("a number");
        let message = event["message"].as_str().expect("a line");
        assert_eq!(message, line_of(number), "{event}");
        *counts.entry(number).or_default() += 1;
    }
    assert_eq!(counts.len(), EVENTS, "every event is there");
    let mut repeated = 0;
    for (number, count) in counts {
        let tries = work.tries[number / REQUEST_EVENTS].load(Ordering::Relaxed);
        assert!(
            count <= tries + KILLS,
            "{number} was sent {tries} times, and came {count} times"
        );
        repeated += count - 1;
    }
    // Shown with `--nocapture`.
    let sent: usize = work
        .tries
        .iter()
        .map(|tries| tries.load(Ordering::Relaxed))
        .sum();
    let text = format!("{sent} requests for {REQUESTS}, {repeated} events repeated\n");
    let _ = io::stdout().write_all(text.as_bytes());
}

fn line_of(number: usize) -> String {
    line(number).replace("\\\"", "\"")
}
