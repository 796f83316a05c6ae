//! The output and the input `nats` with a real server, which is killed, and whose connections are cut, while Millpond is killed too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::cutter::Cutter;
use testkit::ports::free_port;
use testkit::rights::leave_out;

use crate::program::{Folder, millpond, run};
use crate::running::{Service, append, eventually, numbered};

/// A server with JetStream, whose data survive a kill.
struct Nats {
    port: u16,
    folder: String,
    child: Child,
}

/// Debian installs it where only root looks.
const PROGRAMS: [&str; 2] = ["nats-server", "/usr/sbin/nats-server"];

impl Nats {
    /// None where it is not installed: the test is left out.
    fn start(folder: &Folder) -> Option<Self> {
        let runs = |program: &&str| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok()
        };
        if !PROGRAMS.iter().any(runs) {
            leave_out("nats-server is missing (package nats-server)");
            return None;
        }
        let (port, folder) = (free_port(), folder.path("nats"));
        let child = Self::spawn(port, &folder);
        let nats = Self {
            port,
            folder,
            child,
        };
        nats.until_ready();
        Some(nats)
    }

    fn spawn(port: u16, folder: &str) -> Child {
        let start = |program: &&str| {
            let mut command = Command::new(program);
            command
                .args(["-a", "127.0.0.1", "-p", &port.to_string()])
                .args(["-js", "-sd", folder])
                .args(["--user", "u", "--pass", "secret"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().ok()
        };
        PROGRAMS
            .iter()
            .find_map(start)
            .expect("nats-server is installed")
    }

    fn until_ready(&self) {
        eventually("the server answers", || {
            self.ask("INFO", "").contains("memory")
        });
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Kills it, and starts it again.
    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = Self::spawn(self.port, &self.folder);
        self.until_ready();
    }

    /// What the API answers; nothing where there is no server.
    fn ask(&self, subject: &str, payload: &str) -> String {
        self.asked(subject, payload).unwrap_or_default()
    }

    fn asked(&self, subject: &str, payload: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let text = format!(
            "CONNECT {{\"user\":\"u\",\"pass\":\"secret\",\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\n\
             SUB in 1\r\nPUB $JS.API.{subject} in {}\r\n{payload}\r\n",
            payload.len()
        );
        stream.write_all(text.as_bytes())?;
        let mut received = String::new();
        let mut piece = [0; 4096];
        loop {
            let begin = received.find("MSG in 1 ");
            let message = begin.and_then(|begin| received[begin..].split_once("\r\n"));
            if let Some((head, rest)) = message
                && let Some(len) = head.rsplit(' ').next().and_then(|len| len.parse().ok())
                && rest.len() >= len
            {
                return Ok(rest[..len].to_owned());
            }
            match stream.read(&mut piece)? {
                0 => return Ok(String::new()),
                len => received += &String::from_utf8_lossy(&piece[..len]),
            }
        }
    }

    fn create_stream(&self, name: &str) {
        let config = format!(
            "{{\"name\":\"{name}\",\"subjects\":[\"{name}.>\"],\"storage\":\"file\",\"retention\":\"limits\",\"num_replicas\":1}}"
        );
        let made = self.ask(&format!("STREAM.CREATE.{name}"), &config);
        assert!(made.contains("created"), "{made}");
    }

    /// How many messages a stream has.
    fn count(&self, name: &str) -> u64 {
        let info: Value =
            serde_json::from_str(&self.ask(&format!("STREAM.INFO.{name}"), "")).unwrap_or_default();
        info["state"]["messages"].as_u64().unwrap_or_default()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(own: &Folder, input: &str, output: &str) -> Service {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input:
      {input}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - {output}
    retry: {{ initial: 20ms, max: 200ms }}
",
        data = own.path("data"),
    );
    let path = own.write("service.yaml", yaml);
    Service::start(own, &["run", &path])
}

/// The ids of each message in a file; lines that a kill has left half written do not count.
fn ids(path: &str, field: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let out = std::fs::read_to_string(path).unwrap_or_default();
    let whole = out.rfind('\n').map_or("", |end| &out[..end]);
    for line in whole.lines() {
        let event: Value = serde_json::from_str(line).expect("a JSON line");
        let text = |field: &str| event[field].as_str().expect("text").to_owned();
        ids.entry(text("message")).or_default().insert(text(field));
    }
    ids
}

#[test]
fn every_line_is_in_the_stream_once_and_comes_back_through_kills_and_cuts() {
    let folder = Folder::new();
    let Some(mut nats) = Nats::start(&folder) else {
        return;
    };
    nats.create_stream("logs");
    let (log, out) = (folder.path("app.log"), folder.path("out.ndjson"));
    append(&log, &numbered("app", 0..20_000));
    let to = Cutter::start(nats.address(), 7, 2_000_000);
    let from = Cutter::start(nats.address(), 8, 2_000_000);
    let login = "user: u, password: secret";
    let file = format!("file: {{ paths: ['{log}'], follow: true }}");
    let publish = format!(
        "nats: {{ hosts: '{}', subject: logs.app, {login}, batch: {{ max_events: 500 }} }}",
        to.address()
    );
    let take = format!(
        "nats: {{ hosts: '{}', stream: logs, consumer: c, ack_wait: 2s, {login} }}",
        from.address()
    );
    let write = format!("file: {{ path: '{out}' }}");
    let (sending, receiving) = (Folder::new(), Folder::new());
    for share in 1..4 {
        let sender = start(&sending, &file, &publish);
        let receiver = start(&receiving, &take, &write);
        let least = share * 4_000;
        eventually("a part is stored", || nats.count("logs") >= least);
        if share == 2 {
            nats.kill();
        }
        let least = least as usize / 2;
        eventually("a part has arrived", || ids(&out, "id").len() >= least);
        sender.kill();
        receiver.kill();
    }
    append(&log, &numbered("app", 20_000..30_000));
    let sender = start(&sending, &file, &publish);
    let mut receiver = start(&receiving, &take, &write);
    receiver.until("every event", || ids(&out, "id").len() == 30_000);
    receiver.stop();
    sender.stop();
    // What was on its way at the stop comes again.
    let rest = format!(
        "nats {} stream=logs consumer=c user=u password=secret until=end | set id=@metadata.id | file {out}",
        nats.address()
    );
    run(&rest).expect(0);
    assert_eq!(nats.count("logs"), 30_000, "each once");
    let arrived = ids(&out, "id");
    let messages: BTreeSet<&str> = arrived.keys().map(String::as_str).collect();
    let expected = numbered("app", 0..30_000);
    assert_eq!(messages, expected.lines().collect());
    let different: BTreeSet<&String> = arrived.values().flatten().collect();
    assert_eq!(different.len(), 30_000, "each has one id of its own");
    assert!(to.cut() > 0 && from.cut() > 0, "no connection was cut");
    let info = nats.ask("CONSUMER.INFO.logs.c", "");
    assert!(info.contains("\"num_pending\":0"), "{info}");
    assert!(info.contains("\"num_ack_pending\":0"), "{info}");
}

#[test]
fn a_run_ends_at_the_end_and_knows_about_messages() {
    let folder = Folder::new();
    let Some(nats) = Nats::start(&folder) else {
        return;
    };
    nats.create_stream("logs");
    let login = "user=u password=secret";
    let host = format!("127.0.0.1:{}", nats.port);
    let log = folder.write("log", "{ \"n\" : 1 }\n{\"n\":2}\ntext\n");
    let to = format!("nats {host} subject=logs.%{{n}} headers.From=x {login}");
    run(&format!("file {log} codec=json | {to}")).expect(0);
    let from = |settings: &str| format!("nats {host} stream=logs {login} until=end {settings}");
    let first = from("consumer=a subject=logs.1");
    let fields = "set s=@metadata.nats.subject, f=@metadata.nats.headers.From";
    let ended = run(&format!("{first} | {fields} | stdout")).expect(0);
    assert_eq!(ended.out, "{\"n\":1,\"s\":\"logs.1\",\"f\":\"x\"}\n");
    assert_eq!(run(&format!("{first} | stdout")).expect(0).out, "");
    let all = run(&format!("{} | stdout", from("consumer=b"))).expect(0);
    // Each subject is sent for itself.
    for line in ["{ \"n\" : 1 }", "{\"n\":2}", "_jsonparsefailure"] {
        assert!(all.out.contains(line), "{line}: {}", all.out);
    }
    assert_eq!(all.out.lines().count(), 3);
    let new = run(&format!("{} | stdout", from("consumer=d start=end"))).expect(0);
    assert_eq!(new.out, "");
}

#[test]
fn an_event_may_go_to_several_subjects_of_a_stream_but_gives_no_commands() {
    let folder = Folder::new();
    let Some(nats) = Nats::start(&folder) else {
        return;
    };
    nats.create_stream("logs");
    let host = format!("127.0.0.1:{}", nats.port);
    let log = folder.write("log", numbered("app", 0..10));
    let to = |subject: &str| format!("nats {host} subject={subject} user=u password=secret");
    // The third one repeats the first, so that the stream drops it.
    for (subject, count) in [("logs.one", 10), ("logs.two", 20), ("logs.one", 20)] {
        run(&format!("file {log} | {}", to(subject))).expect(0);
        assert_eq!(nats.count("logs"), count, "{subject}");
    }
    let command = folder.write("command", "{\"s\":\"$JS.API.STREAM.PURGE.logs\"}\n");
    let ended = run(&format!("file {command} codec=json | {}", to("'%{s}'")));
    assert!(ended.err.contains("begins with `$`"), "{}", ended.err);
    assert_eq!(nats.count("logs"), 20);
}

#[test]
fn what_must_be_mended_ends_a_run_and_is_said() {
    let folder = Folder::new();
    let Some(nats) = Nats::start(&folder) else {
        return;
    };
    let log = folder.write("log", numbered("app", 0..10));
    let host = format!("127.0.0.1:{}", nats.port);
    for (settings, said) in [
        (
            "subject=none user=u password=secret",
            "no stream of JetStream takes this subject",
        ),
        (
            "subject=logs.a user=u password=wrong",
            "Authorization Violation",
        ),
        (
            "subject=logs.a user=u password=secret tls.verify=false",
            "does not use TLS",
        ),
    ] {
        let ended = millpond(&["run", &format!("file {log} | nats {host} {settings}")]).expect(1);
        assert!(ended.err.contains(said), "{settings}: {}", ended.err);
    }
    for (settings, said) in [
        (
            "stream=none consumer=c user=u password=secret",
            "stream not found",
        ),
        ("stream=none consumer=c", "Authorization Violation"),
    ] {
        let pipeline = format!("nats {host} until=end {settings} | stdout");
        let ended = millpond(&["run", &pipeline]).expect(1);
        assert!(ended.err.contains(said), "{settings}: {}", ended.err);
    }
}
