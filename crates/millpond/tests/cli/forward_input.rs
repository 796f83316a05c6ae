//! The input `forward`, sent to as Fluentd, Fluent Bit and their client libraries do.

use std::collections::BTreeMap;
use std::fs::{File, create_dir, read_to_string};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use batch::msgpack::{
    Value, elements, find, read, value_len, write_array_header, write_bin, write_i64,
    write_map_header, write_str,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use testkit::ports::free_port;

use crate::program::{Ended, Folder, command, ended, gzip};
use crate::running::eventually;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running pipeline that takes messages.
struct Service {
    child: Option<Child>,
    port: u16,
}

impl Service {
    fn start(mut command: Command, port: u16) -> Self {
        let child = command.spawn().expect("the executable runs");
        let service = Self {
            child: Some(child),
            port,
        };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "it listens");
            sleep(Duration::from_millis(10));
        }
        service
    }

    /// A one-line pipeline behind the input.
    fn run(settings: &str, rest: &str) -> Self {
        let port = free_port();
        let pipeline = format!("forward {port} {settings} | {rest}");
        Self::start(command(&["run", &pipeline]), port)
    }

    fn connect(&self) -> Client {
        Client::connect(self.port)
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

    /// Stops it; gives what it wrote to standard output.
    fn stop(mut self) -> Vec<u8> {
        self.signal(Signal::TERM);
        let child = self.child.take().expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        output.stdout
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

/// A client of the protocol.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self {
            stream,
            received: Vec::new(),
        }
    }

    fn send(&mut self, message: &[u8]) {
        self.stream.write_all(message).expect("sent");
    }

    /// The next message of the server; none at the end of the connection.
    fn message(&mut self) -> Option<Vec<u8>> {
        let mut space = [0; 4096];
        loop {
            if let Ok(len) = value_len(&self.received, 0) {
                return Some(self.received.drain(..len).collect());
            }
            match self.stream.read(&mut space) {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.received.extend_from_slice(&space[..len]),
            }
        }
    }

    /// The next acknowledged chunk.
    fn ack(&mut self) -> Option<String> {
        let message = self.message()?;
        let at = find(&message, b"ack").expect("an acknowledgement");
        let (Value::Str(text) | Value::Bin(text), _) = read(&message, at.start) else {
            panic!("{message:x?}")
        };
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Ends sending; gives the acknowledgements that still come.
    fn finish(mut self) -> Vec<String> {
        // A server that has closed the connection is fine.
        let _ = self.stream.shutdown(Shutdown::Write);
        std::iter::from_fn(|| self.ack()).collect()
    }
}

fn value(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn text(text: &str) -> Vec<u8> {
    value(|out| write_str(out, text.as_bytes()))
}

fn array(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = value(|out| write_array_header(out, elements.len()));
    elements.iter().for_each(|one| out.extend_from_slice(one));
    out
}

fn map(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = value(|out| write_map_header(out, members.len()));
    for (key, value) in members {
        out.extend_from_slice(&text(key));
        out.extend_from_slice(value);
    }
    out
}

/// A record with a number, and with text that is not UTF-8.
fn record(number: i64) -> Vec<u8> {
    let number = value(|out| write_i64(out, number));
    let log = value(|out| write_str(out, b"caf\xE9"));
    map(&[("n", &number), ("log", &log)])
}

const TIME: &[u8] = b"\xD7\x00\x65\xDF\xB0\x20\x00\x00\x00\x07";

fn entries(numbers: std::ops::Range<i64>) -> Vec<u8> {
    let entry = |number| array(&[TIME, &record(number)]);
    numbers.flat_map(entry).collect()
}

/// A message of packed entries with these members of the option.
fn packed(entries: &[u8], option: &[(&str, &str)]) -> Vec<u8> {
    let entries = value(|out| write_bin(out, entries));
    let option: Vec<(&str, Vec<u8>)> = option
        .iter()
        .map(|(key, value)| (*key, text(value)))
        .collect();
    let option: Vec<(&str, &[u8])> = option
        .iter()
        .map(|(key, value)| (*key, &value[..]))
        .collect();
    array(&[&text("app.web"), &entries, &map(&option)])
}

/// A message of every mode, events 0 to 6, with the chunk of each.
fn every_mode() -> Vec<(Vec<u8>, &'static str)> {
    let tag = text("app.web");
    let option = |chunk| map(&[("chunk", &text(chunk))]);
    let zstd = zstd::encode_all(&entries(5..6)[..], 3).expect("compressed");
    let members = [gzip(&entries(4..5)), gzip(b"")].concat();
    let metadata = array(&[TIME, &map(&[("k", &text("v"))])]);
    vec![
        (array(&[&tag, TIME, &record(0), &option("a")]), "a"),
        (
            array(&[
                &tag,
                &array(&[&entries(1..2), &entries(2..3)]),
                &option("b"),
            ]),
            "b",
        ),
        (packed(&entries(3..4), &[("chunk", "c")]), "c"),
        (
            packed(&members, &[("chunk", "d"), ("compressed", "gzip")]),
            "d",
        ),
        (
            packed(&zstd, &[("compressed", "zstd"), ("chunk", "e")]),
            "e",
        ),
        (vec![0xC0], ""),
        (
            packed(&array(&[&metadata, &record(6)]), &[("chunk", "f")]),
            "f",
        ),
    ]
}

#[test]
fn every_mode_is_acknowledged_and_becomes_events() {
    let service = Service::run("", "stdout codec=json");
    let mut client = service.connect();
    for (message, chunk) in every_mode() {
        client.send(&message);
        if !chunk.is_empty() {
            assert_eq!(client.ack().as_deref(), Some(chunk));
        }
    }
    // Without an acknowledgement, and all at once.
    let all: Vec<u8> = (7..40)
        .flat_map(|n| packed(&entries(n..n + 1), &[]))
        .collect();
    client.send(&all);
    assert!(client.finish().is_empty());
    let out = String::from_utf8(service.stop()).expect("UTF-8");
    let events: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(events.len(), 40);
    for (n, event) in events.iter().enumerate() {
        let mut expected = json!({
            "n": n, "log": "caf\u{fffd}", "@timestamp": "2024-02-28T22:13:52.000000007Z", "fluent": {"tag": "app.web"},
        });
        if n == 6 {
            expected["fluent"]["metadata"] = json!({"k": "v"});
        }
        assert_eq!(*event, expected);
    }
}

#[test]
fn messagepack_leaves_byte_for_byte_as_it_came() {
    let service = Service::run("add_fields=false", "stdout codec=msgpack");
    let mut client = service.connect();
    for (message, _) in every_mode() {
        client.send(&message);
    }
    assert_eq!(client.finish(), ["a", "b", "c", "d", "e", "f"]);
    let expected: Vec<u8> = (0..7).flat_map(record).collect();
    assert_eq!(service.stop(), expected);
}

/// A record with every kind of value, also in encodings longer than need be.
fn unusual_record() -> Vec<u8> {
    let values: [&[u8]; 16] = [
        b"\xC0",
        b"\xC3",
        b"\xD3\x00\x00\x00\x00\x00\x00\x00\x05",
        b"\xCE\x00\x00\x00\x05",
        b"\xD0\xFF",
        b"\xCF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        b"\xCA\x3F\xC0\x00\x00",
        b"\xCB\x7F\xF8\x00\x00\x00\x00\x00\x01",
        b"\xC6\x00\x00\x00\x02\xC1\x00",
        b"\xDB\x00\x00\x00\x03\xE9t\xE9",
        b"\xD4\x07\x01",
        b"\xC7\x03\xFE\x01\x02\x03",
        b"\xDD\x00\x00\x00\x02\x90\x80",
        b"\xDE\x00\x01\xD9\x01k\xDF\x00\x00\x00\x00",
        b"\xD7\x00\x65\xDF\xB0\x20\x00\x00\x00\x07",
        b"\xA0",
    ];
    let mut record = vec![0xDF, 0, 0, 0, values.len() as u8];
    for (number, value) in values.iter().enumerate() {
        let key = format!("key.{number}");
        record.extend([0xDA, 0, key.len() as u8]);
        record.extend(key.as_bytes());
        record.extend(*value);
    }
    record
}

#[test]
fn values_of_every_kind_leave_as_they_came_in_every_mode() {
    let service = Service::run("add_fields=false", "stdout codec=msgpack");
    let mut client = service.connect();
    let (tag, record) = (text("t"), unusual_record());
    // Together less than a pipe holds, which is read at the end.
    let entries = array(&[TIME, &record]).repeat(60);
    let listed = [value(|out| write_array_header(out, 60)), entries.clone()].concat();
    client.send(&array(&[&tag, &listed]));
    client.send(&packed(&entries, &[]));
    client.send(&packed(&gzip(&entries), &[("compressed", "gzip")]));
    client.send(&array(&[&tag, TIME, &record]).repeat(19));
    client.send(&array(&[
        &tag,
        TIME,
        &record,
        &map(&[("chunk", &text("c"))]),
    ]));
    assert_eq!(client.finish(), ["c"]);
    let out = service.stop();
    assert_eq!(out.len(), 200 * record.len());
    assert!(out.chunks(record.len()).all(|one| one == record));
}

#[test]
fn each_limit_is_a_setting_and_is_counted() {
    let port = free_port();
    let pipeline = format!(
        "forward {port} max_message_bytes=4KiB max_depth=3 idle_timeout=3s message_timeout=1s | stdout codec=json"
    );
    let service = Service::start(command(&["run", &pipeline, "--metrics"]), port);
    let nested = |levels: usize| [&b"\x81\xA1a".repeat(levels)[..], &[0xC0]].concat();
    let option = map(&[("chunk", &text("deep"))]);
    let deep = |levels| array(&[&text("t"), TIME, &nested(levels), &option]);
    let bomb = gzip(&[0; 64 << 10]);
    let refused = [
        deep(4),
        packed(&array(&[TIME, &nested(9)]), &[]),
        b"\x92\xA1t\xC6\xFF\xFF\xFF\xFF".to_vec(),
        packed(&bomb, &[("compressed", "gzip")]),
        // Half a message, and nothing.
        deep(3)[..9].to_vec(),
        Vec::new(),
    ];
    for message in refused {
        let mut client = service.connect();
        client.send(&message);
        assert_eq!(client.message(), None, "it is closed");
    }
    let mut client = service.connect();
    client.send(&deep(3));
    assert_eq!(client.finish(), ["deep"]);
    service.signal(Signal::TERM);
    let ended = service.ended().expect(0);
    assert_eq!(ended.events().len(), 1);
    let text = &ended.err;
    assert!(
        text.contains("a record nests deeper than 3 levels (`max_depth`) at byte"),
        "{text}"
    );
    for counter in [
        "deep_messages 2",
        "oversized_frames 2",
        "frame_timeouts 1",
        "idle_timeouts 1",
    ] {
        assert!(text.contains(counter), "{counter}: {text}");
    }
}

#[test]
fn a_client_more_than_allowed_waits_until_one_leaves() {
    let port = free_port();
    let pipeline = format!("forward {port} max_connections=2 | stdout codec=json");
    let folder = Folder::new();
    let errors = folder.path("err");
    let mut run = command(&["run", &pipeline, "--metrics"]);
    run.stderr(File::create(&errors).expect("a writable folder"));
    let service = Service::start(run, port);
    let (message, _) = &every_mode()[0];
    let mut two = [service.connect(), service.connect()];
    for client in &mut two {
        client.send(message);
        assert_eq!(client.ack().as_deref(), Some("a"));
    }
    let mut third = service.connect();
    third.send(message);
    let full = "as many clients are connected as `max_connections` allows";
    eventually(full, || {
        read_to_string(&errors).is_ok_and(|said| said.contains(full))
    });
    let [first, _second] = two;
    assert_eq!(first.finish(), [""; 0]);
    assert_eq!(third.finish(), ["a"]);
    service.signal(Signal::TERM);
    let ended = service.ended().expect(0);
    assert_eq!(ended.events().len(), 3);
    let said = read_to_string(&errors).expect("a readable file");
    assert!(said.contains("connection_limits "), "{said}");
}

#[test]
fn a_client_that_waits_for_an_acknowledgement_is_not_idle() {
    let (folder, port) = (Folder::new(), free_port());
    let config = format!(
        "data_dir: {}\npipelines: {{p: {{input: {{forward: {{address: {port}, idle_timeout: 300ms}}}}, \
         output: {{file: {{path: {}, create_dirs: false}}}}}}}}\n",
        folder.path("state"),
        folder.path("gone/out"),
    );
    let config = folder.write("c.yaml", config);
    let service = Service::start(command(&["run", &config]), port);
    let mut client = service.connect();
    client.send(&every_mode()[0].0);
    sleep(Duration::from_secs(1));
    create_dir(folder.path("gone")).expect("created");
    assert_eq!(client.ack().as_deref(), Some("a"));
    assert_eq!(client.message(), None, "it is idle now");
    assert_eq!(folder.read("gone/out").lines().count(), 1);
}

/// A message that is malformed, and what the log says of it.
fn malformed() -> Vec<(Vec<u8>, &'static str)> {
    let packed = |entries: &[u8], option: &[(&str, &str)]| packed(entries, option);
    let bomb = gzip(&[0; 2 << 20]);
    let cut = gzip(&entries(0..9));
    let zstd_bomb = zstd::encode_all(&[0; 2 << 20][..], 3).expect("compressed");
    let mut wrong_sum = gzip(&entries(0..9));
    let sum = wrong_sum.len() - 8;
    wrong_sum[sum] ^= 1;
    let behind = [&gzip(&entries(0..9))[..], b"more"].concat();
    let nested = [&b"\x92\x01\x81\xA1a"[..], &[0x91; 1100], b"\x01"].concat();
    let signal = map(&[("fluent_signal", &[1])]);
    vec![
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "malformed message: expected an array or nil as a message, not text (does the client speak HTTP?) at byte 0",
        ),
        (
            vec![0xC1],
            "malformed message: reserved MessagePack byte at byte 0",
        ),
        (
            array(&[&text("t"), &[1], &[1]]),
            "malformed message: not a MessagePack map at byte 4",
        ),
        (
            packed(&[0x92, 1, 1], &[("chunk", "x")]),
            "malformed message: not a MessagePack map at byte 13",
        ),
        (
            packed(&entries(0..1)[..9], &[]),
            "malformed message: unexpected end of MessagePack",
        ),
        (
            packed(b"no gzip", &[("compressed", "gzip")]),
            "the entries of a message cannot be decompressed",
        ),
        (
            packed(&cut[..cut.len() - 9], &[("compressed", "gzip")]),
            "the entries of a message cannot be decompressed",
        ),
        (
            packed(&bomb, &[("compressed", "gzip")]),
            "the decompressed entries of a message are longer than 1048576 bytes",
        ),
        (
            packed(&wrong_sum, &[("compressed", "gzip")]),
            "the entries of a message cannot be decompressed",
        ),
        (
            packed(&behind, &[("compressed", "gzip")]),
            "the entries of a message cannot be decompressed: there is other data after",
        ),
        (
            packed(&zstd_bomb, &[("compressed", "zstd")]),
            "the decompressed entries of a message are longer than 1048576 bytes",
        ),
        (
            packed(&zstd_bomb[..40], &[("compressed", "zstd")]),
            "the entries of a message cannot be decompressed",
        ),
        (
            packed(b"no zstd", &[("compressed", "zstd")]),
            "the entries of a message cannot be decompressed",
        ),
        (
            packed(&gzip(&[0x92, 1, 1]), &[("compressed", "gzip")]),
            "malformed entries of a compressed message: not a MessagePack map at byte 2",
        ),
        (
            packed(&nested, &[]),
            "a record nests deeper than 1024 levels (`max_depth`)",
        ),
        (
            b"\x92\xA1t\xDD\xFF\xFF\xFF\xFF".to_vec(),
            "a message is longer than 1048576 bytes (`max_message_bytes`)",
        ),
        (
            // A record that says it has more members than there are.
            b"\x92\xA1t\xC4\x05\x92\x01\x8F\xA1n".to_vec(),
            "malformed message: unexpected end of MessagePack",
        ),
        (b"\x90".to_vec(), "expected 2 to 4 elements in a message"),
        (
            b"\x92\x01\x90".to_vec(),
            "malformed message: expected a string as the tag at byte 1",
        ),
        (
            b"\x93\xA1t\xC4\x00\x01".to_vec(),
            "malformed message: expected a map as the option",
        ),
        (
            packed(b"", &[("chunk", &"c".repeat(1025))]),
            "expected 1024 bytes at most as `chunk`",
        ),
        (
            packed(b"", &[("compressed", "lz4")]),
            "the compression \"lz4\" is not supported",
        ),
        (
            array(&[&text("t"), &text(""), &signal]),
            "only logs are accepted",
        ),
        (
            b"\x92\xA1t\xC6\xFF\xFF\xFF\xFF".to_vec(),
            "a message is longer than 1048576 bytes (`max_message_bytes`)",
        ),
        (
            packed(&entries(0..9), &[])[..50].to_vec(),
            "the connection ended in the middle of a frame",
        ),
    ]
}

#[test]
fn malformed_messages_close_their_connection_only() {
    for (message, reason) in malformed() {
        let service = Service::run("max_message_bytes=1MiB", "stdout codec=json");
        let (mut other, mut bad) = (service.connect(), service.connect());
        other.send(&packed(&entries(0..1), &[])[..20]);
        // What came before it is safe and acknowledged, in one piece with it or not.
        bad.send(&packed(&entries(1..2), &[("chunk", "before")]));
        assert_eq!(bad.ack().as_deref(), Some("before"));
        let together = [packed(&entries(2..3), &[("chunk", "beside")]), message].concat();
        bad.send(&together);
        assert_eq!(bad.finish(), ["beside"], "{reason}");
        other.send(&packed(&entries(0..1), &[])[20..]);
        other.send(&packed(&entries(3..4), &[("chunk", "after")]));
        assert_eq!(other.finish(), ["after"]);
        service.signal(Signal::TERM);
        let ended = service.ended().expect(0);
        let line = ended.err.lines().find(|line| line.contains(reason));
        let line = line.unwrap_or_else(|| panic!("no line with {reason}:\n{}", ended.err));
        assert!(
            line.starts_with("warning: ") && line.contains("127.0.0.1:"),
            "{line}"
        );
        assert!(line.contains("the connection was closed"), "{line}");
        let mut numbers: Vec<u64> = ended
            .events()
            .iter()
            .filter_map(|event| event["n"].as_u64())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3], "{reason}");
    }
}

/// The hexadecimal SHA-512 of these parts, as another program computes it.
fn digest(parts: &[&[u8]]) -> Vec<u8> {
    let mut child = Command::new("sha512sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sha512sum is part of every Linux");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(&parts.concat()).expect("written");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    output.stdout[..128].to_vec()
}

/// The texts of a message, numbers and truth values left out.
fn texts(message: &[u8]) -> Vec<Vec<u8>> {
    let text = |at: std::ops::Range<usize>| match read(message, at.start).0 {
        Value::Str(text) | Value::Bin(text) => Some(text.to_vec()),
        _ => None,
    };
    elements(message).filter_map(text).collect()
}

#[test]
fn clients_without_the_key_and_the_password_are_refused() {
    let service = Service::run(
        "shared_key=key users.alice=secret self_hostname=server",
        "stdout codec=json",
    );
    for (key, password, is_admitted) in [
        ("key", "secret", true),
        ("wrong", "secret", false),
        ("key", "wrong", false),
    ] {
        let mut client = service.connect();
        let helo = client.message().expect("HELO");
        assert_eq!(texts(&helo), [b"HELO".to_vec()]);
        let options = &helo[6..];
        let option =
            |key: &[u8]| match read(options, find(options, key).expect("it is there").start).0 {
                Value::Str(text) => text.to_vec(),
                other => panic!("{other:?}"),
            };
        let (nonce, auth) = (option(b"nonce"), option(b"auth"));
        let mine = digest(&[b"salt", b"client", &nonce, key.as_bytes()]);
        let password = digest(&[&auth, b"alice", password.as_bytes()]);
        let texts_of_ping: [&[u8]; 6] = [b"PING", b"client", b"salt", &mine, b"alice", &password];
        let ping = value(|out| {
            write_array_header(out, 6);
            texts_of_ping.iter().for_each(|text| write_str(out, text));
        });
        client.send(&ping);
        let pong = client.message().expect("PONG");
        if is_admitted {
            let theirs = digest(&[b"salt", b"server", &nonce, key.as_bytes()]);
            assert_eq!(texts(&pong), [&b"PONG"[..], b"", b"server", &theirs]);
            client.send(&packed(&entries(1..2), &[("chunk", "x")]));
            assert_eq!(client.finish(), ["x"]);
        } else {
            assert_eq!(read(&pong, 6).0, Value::Bool(false));
            // It is not listened to any more.
            let _ = client
                .stream
                .write_all(&packed(&entries(2..3), &[("chunk", "y")]));
            assert!(client.finish().is_empty());
        }
    }
    service.signal(Signal::TERM);
    let ended = service.ended().expect(0);
    assert_eq!(ended.events().len(), 1);
    assert!(
        ended
            .err
            .contains("the client was refused: shared_key mismatch"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("secret"), "{}", ended.err);
}

#[test]
fn clients_that_hang_hold_up_nobody() {
    let service = Service::run(
        "message_timeout=1s max_message_bytes=1MiB",
        "stdout codec=json",
    );
    let whole = packed(&entries(0..1), &[("chunk", "x")]);
    // One of each: silent, in the middle of a message, and with a message that is announced only.
    let _silent = service.connect();
    let mut halfway = service.connect();
    halfway.send(&whole[..20]);
    let mut announced = service.connect();
    announced.send(b"\x92\xA1t\xC6\x00\x0F\xFF\xFF");
    let mut good = service.connect();
    for _ in 0..5 {
        good.send(&whole);
        assert_eq!(good.ack().as_deref(), Some("x"));
        sleep(Duration::from_millis(300));
    }
    assert_eq!(halfway.message(), None, "it is closed");
    assert_eq!(announced.message(), None, "it is closed");
    drop(good);
    service.signal(Signal::TERM);
    let ended = service.ended().expect(0);
    assert_eq!(ended.events().len(), 5);
    assert!(
        ended.err.contains("a frame did not arrive in time"),
        "{}",
        ended.err
    );
}

#[test]
fn a_client_that_reads_no_acknowledgement_is_not_read_on() {
    let service = Service::run("message_timeout=30s", "discard");
    let mut client = service.connect();
    let patience = Some(Duration::from_secs(1));
    client.stream.set_write_timeout(patience).expect("set");
    let message = packed(&entries(0..1), &[("chunk", &"c".repeat(1000))]);
    let messages = message.repeat(100);
    let mut sent = 0;
    let error = loop {
        match client.stream.write(&messages) {
            Ok(written) => sent += written,
            Err(error) => break error,
        }
        assert!(sent < 100 << 20, "more is taken than sockets hold");
    };
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    // What it sent before is acknowledged when it reads.
    for _ in 0..1000 {
        assert_eq!(client.ack(), Some("c".repeat(1000)));
    }
}

/// How many chunks are sent, and how many events each has.
const CHUNKS: i64 = 300;
const EVENTS: i64 = 20;

/// Sends chunks, as many as can be acknowledged until the connection ends; gives which were.
fn send_chunks(port: u16, from: i64, enough: i64) -> i64 {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return from;
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut client = Client {
        stream,
        received: Vec::new(),
    };
    let mut acknowledged = from;
    let mut sent = from;
    while acknowledged < enough {
        // Three are on their way.
        while sent < CHUNKS && sent < acknowledged + 3 {
            let first = sent * EVENTS;
            let message = packed(
                &entries(first..first + EVENTS),
                &[("chunk", &sent.to_string())],
            );
            if client.stream.write_all(&message).is_err() {
                return acknowledged;
            }
            sent += 1;
        }
        match client.ack() {
            Some(chunk) => assert_eq!(chunk, acknowledged.to_string()),
            None => return acknowledged,
        }
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn chunks_that_were_acknowledged_survive_kills_and_others_keep_their_ids() {
    let folder = Folder::new();
    let port = free_port();
    let config = format!(
        "data_dir: {}\npipelines:\n  p:\n    input: {{ forward: {port} }}\n    processors: [set id = @metadata.id]\n    queue: disk\n    \
         output: {{ file: {{ path: {} }} }}\n",
        folder.path("state"),
        folder.path("out"),
    );
    let config = folder.write("c.yaml", config);
    let mut acknowledged = 0;
    for kill in 1..4 {
        let service = Service::start(command(&["run", &config]), port);
        acknowledged = send_chunks(port, acknowledged, kill * CHUNKS / 4);
        // Some chunks are on their way, of which nobody knows what becomes.
        service.signal(Signal::KILL);
        assert_eq!(service.ended().code, None);
    }
    let service = Service::start(command(&["run", &config]), port);
    acknowledged = send_chunks(port, acknowledged, CHUNKS);
    assert_eq!(acknowledged, CHUNKS);
    service.signal(Signal::TERM);
    service.ended().expect(0);
    let mut ids = BTreeMap::<i64, Vec<String>>::new();
    for line in folder.read("out").lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let number = event["n"].as_i64().expect("a number");
        let id = event["id"].as_str().expect("an id").to_owned();
        ids.entry(number).or_default().push(id);
    }
    let expected: Vec<i64> = (0..CHUNKS * EVENTS).collect();
    assert_eq!(
        ids.keys().copied().collect::<Vec<_>>(),
        expected,
        "all are there"
    );
    let different: std::collections::BTreeSet<&String> = ids.values().flatten().collect();
    assert_eq!(
        different.len(),
        expected.len(),
        "an event that is sent again has its id"
    );
    for (number, ids) in &ids {
        assert!(ids.len() <= 4, "{number} came {} times", ids.len());
    }
}
