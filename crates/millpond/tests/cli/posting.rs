//! A service that clients post to, and what they send byte by byte.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::lumberjack;
pub use testkit::ports::free_port;

use crate::program::{Ended, Folder, command, ended};

/// A service that takes requests.
pub struct Service {
    child: Option<Child>,
    pub port: u16,
}

impl Service {
    /// Runs what `command` says, and waits until the port is open.
    pub fn start(mut command: Command, port: u16) -> Self {
        let child = command.spawn().expect("the executable runs");
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "it listens");
            sleep(Duration::from_millis(10));
        }
        Self {
            child: Some(child),
            port,
        }
    }

    /// A pipeline with an input that has these settings, in YAML, into what `pipeline` says.
    pub fn with(folder: &Folder, input: &str, settings: &str, pipeline: &str) -> Self {
        Self::on(free_port(), folder, input, settings, pipeline)
    }

    /// The same on this port.
    pub fn on(port: u16, folder: &Folder, input: &str, settings: &str, pipeline: &str) -> Self {
        let text = format!(
            "data_dir: {}\npipelines:\n  p:\n    input:\n      {input}: {{address: {port}{settings}}}\n{pipeline}",
            folder.path("state")
        );
        let path = folder.write("c.yaml", text);
        Self::start(command(&["run", &path]), port)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("set");
        stream
    }

    /// Sends a request as it is and gives the answer, read to the end of the connection.
    pub fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses the head closes before everything is sent.
        let _ = stream.write_all(request);
        Answer::read(&mut stream)
    }

    /// Posts a body with these headers.
    pub fn post(&self, target: &str, headers: &str, body: &[u8]) -> Answer {
        self.raw(&request(target, headers, body))
    }

    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("signalled");
    }

    pub fn ended(mut self) -> Ended {
        let child = self.child.take().expect("it runs");
        ended(child.wait_with_output().expect("it ends"))
    }

    /// Stops the service, which must end well.
    pub fn stop(self) -> Ended {
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

/// A request that posts a body.
pub fn request(target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    pub fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A connection that is reset behind the answer has brought the answer.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("UTF-8");
        let status = text.get(9..12).and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or_else(|| panic!("no answer: {text:?}")),
            text,
        }
    }
}

/// An input that clients connect to.
pub struct Listening {
    pub input: &'static str,
    /// Settings without which it would not listen for connections, each behind a comma.
    pub settings: &'static str,
    /// What a client sends to have one event accepted.
    pub event: Vec<u8>,
    /// How the answer begins; nothing where there are none.
    pub reply: &'static [u8],
}

/// Every input that clients connect to over TCP.
pub fn listening() -> Vec<Listening> {
    let listening = |input, event: &[u8], reply| Listening {
        input,
        settings: if input == "syslog" {
            ", transport: tcp"
        } else {
            ""
        },
        event: event.to_vec(),
        reply,
    };
    let bulk = request("/l/_bulk", "", b"{\"create\":{}}\n{\"n\":1}\n");
    let post = request("/", "", b"{\"n\":1}");
    let logs = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}"#;
    let logs = request("/v1/logs", "Content-Type: application/json\r\n", logs);
    let chunk = b"\x94\xa1t\x01\x81\xa1n\x01\x81\xa5chunk\xa1c";
    let message = b"<13>1 2003-10-11T22:14:15.003Z host app - - - text\n";
    let window = lumberjack::numbered(1..2, true);
    let envelope = request("/services/collector", "", b"{\"event\":1}");
    let json = "Content-Type: application/json\r\n";
    let push = br#"{"streams":[{"stream":{},"values":[["1","a"]]}]}"#;
    let push = request("/loki/api/v1/push", json, push);
    vec![
        listening("beats", &window, b"2A\0\0\0\x01"),
        listening("forward", chunk, b"\x81\xa3ack\xa1c"),
        listening("elasticsearch", &bulk, b"HTTP/1.1 200"),
        listening("http", &post, b"HTTP/1.1 200"),
        listening("otlp", &logs, b"HTTP/1.1 200"),
        listening("loki", &push, b"HTTP/1.1 204"),
        listening("splunk_hec", &envelope, b"HTTP/1.1 200"),
        listening("tcp", b"line\n", b""),
        listening("syslog", message, b""),
    ]
}

impl Listening {
    /// Starts a service with these further settings of the input, which writes to the file `out`.
    pub fn start(&self, folder: &Folder, settings: &str) -> Service {
        let pipeline = format!("    output: {{file: {{path: {}}}}}\n", folder.path("out"));
        let settings = format!("{}{settings}", self.settings);
        Service::with(folder, self.input, &settings, &pipeline)
    }

    /// Sends an event and reads the answer.
    pub fn send_event(&self, stream: &mut (impl Read + Write)) {
        stream.write_all(&self.event).expect("sent");
        stream.flush().expect("sent");
        let mut answer = vec![0; self.reply.len()];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, self.reply, "{}", self.input);
    }
}

/// How many events are in the file `out`.
pub fn written(folder: &Folder) -> usize {
    let out = fs::read_to_string(folder.path("out")).unwrap_or_default();
    out.lines().count()
}
