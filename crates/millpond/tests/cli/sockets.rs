//! The inputs `tcp`, `udp`, `unix` and `syslog`, with clients as they are.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use serde_json::{Value, json};

use testkit::ports::free_port;

use crate::program::{Folder, millpond};
use crate::running::Service;

/// A running one-liner from `input` to standard output.
struct Receiving {
    folder: Folder,
    service: Service,
}

impl Receiving {
    fn start(input: &str) -> Self {
        Self::with(Folder::new(), &format!("{input} | stdout"))
    }

    fn with(folder: Folder, pipeline: &str) -> Self {
        let mut service = Service::start(&folder, &["run", pipeline]);
        service.until("a socket", || {
            let said = fs::read_to_string(folder.path("err")).unwrap_or_default();
            said.contains("listening on") || said.contains("receiving on")
        });
        Self { folder, service }
    }

    fn until(&mut self, count: usize) {
        let out = self.folder.path("out");
        self.service.until("the events", || {
            let out = fs::read_to_string(&out).unwrap_or_default();
            out.lines().count() >= count && out.ends_with('\n')
        });
    }

    /// Ends it; the events, and what it said.
    fn stop(self) -> (Vec<Value>, String) {
        let Self { folder, service } = self;
        let said = service.stop();
        let out = fs::read_to_string(folder.path("out")).expect("a file");
        let lines = out.lines().map(serde_json::from_str);
        (lines.collect::<Result<_, _>>().expect("JSON lines"), said)
    }
}

fn messages(events: &[Value]) -> Vec<&str> {
    let message = |event| Value::pointer(event, "/message").and_then(Value::as_str);
    events.iter().filter_map(message).collect()
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("connected")
}

#[test]
fn every_number_of_many_connections_comes_once_and_in_order() {
    const CONNECTIONS: usize = 20;
    const NUMBERS: usize = 2_000;
    let port = free_port();
    let mut receiving = Receiving::start(&format!("tcp {port}"));
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|connection| {
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(connection as u64);
                let text: String = (0..NUMBERS)
                    .map(|number| {
                        format!(
                            "{connection} {number} {}\n",
                            "x".repeat(random.usize(..300))
                        )
                    })
                    .collect();
                let mut stream = connect(port);
                let mut left = text.as_bytes();
                while !left.is_empty() {
                    let piece = left.len().min(random.usize(1..20_000));
                    stream.write_all(&left[..piece]).expect("written");
                    left = &left[piece..];
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    receiving.until(CONNECTIONS * NUMBERS);
    let (events, _) = receiving.stop();
    let mut next = [0; CONNECTIONS];
    for message in messages(&events) {
        let mut words = message.split(' ').map(str::parse::<usize>);
        let (Some(Ok(connection)), Some(Ok(number))) = (words.next(), words.next()) else {
            panic!("{message}");
        };
        assert_eq!(number, next[connection], "of connection {connection}");
        next[connection] += 1;
    }
    assert_eq!(next, [NUMBERS; CONNECTIONS]);
}

#[test]
fn what_was_received_before_a_stop_is_delivered() {
    let port = free_port();
    let mut receiving = Receiving::start(&format!("tcp {port}"));
    let mut stream = connect(port);
    stream.write_all(b"one\ntwo\nhalf of thr").expect("written");
    receiving.until(2);
    let (events, said) = receiving.stop();
    assert_eq!(messages(&events), ["one", "two", "half of thr"], "{said}");
}

#[test]
fn a_full_queue_stops_reading() {
    let port = free_port();
    let folder = Folder::new();
    // Nobody takes what the output sends.
    let text = format!(
        "max_memory_bytes: 32MiB\npipelines:\n  p:\n    input:\n      tcp: {port}\n    outputs:\n      - http: http://127.0.0.1:{}/\n",
        free_port()
    );
    let path = folder.write("c.yaml", text);
    let mut service = Service::start(&folder, &["run", &path]);
    service.until_said("listening on");
    let mut stream = connect(port);
    let patience = Some(Duration::from_secs(2));
    stream.set_write_timeout(patience).expect("set");
    let line = [b'x'; 1023]
        .iter()
        .chain(b"\n")
        .copied()
        .collect::<Vec<u8>>();
    let mut sent = 0;
    let error = loop {
        match stream.write(&line) {
            Ok(written) => sent += written,
            // A signal of another test.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
        assert!(
            sent < 200 << 20,
            "it takes more than the queue and the memory hold"
        );
    };
    assert!(
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{error}"
    );
    service.kill();
}

#[test]
fn messages_that_cannot_be_read_close_their_connection_only() {
    let port = free_port();
    let mut receiving = Receiving::start(&format!("tcp {port} codec=msgpack"));
    let mut good = connect(port);
    good.write_all(b"\x81\xa1a\x01").expect("written");
    let mut bad = connect(port);
    bad.write_all(b"\x81\xa1b\x02\xc1").expect("written");
    let mut none = connect(port);
    none.write_all(b"\x93\x01\x02\x03").expect("written");
    receiving.service.until_said("the connection was closed");
    receiving.until(2);
    good.write_all(b"\x81\xa1c\x03").expect("written");
    receiving.until(3);
    let (events, said) = receiving.stop();
    let found: BTreeSet<String> = events.iter().map(Value::to_string).collect();
    let wanted = [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})];
    assert_eq!(found, wanted.iter().map(Value::to_string).collect());
    assert!(said.contains("127.0.0.1:"), "{said}");
}

/// What clients should not send.
struct Malformed {
    /// The input; PLACE stands for its port or path.
    input: &'static str,
    bytes: Vec<u8>,
    /// What the log says.
    said: &'static str,
    /// How many events are made of it.
    events: usize,
    /// Whether the connection is closed for it.
    closes: bool,
}

#[test]
fn a_client_that_is_not_read_on_hears_of_it() {
    let port = free_port();
    let receiving = Receiving::start(&format!("tcp {port} codec=msgpack"));
    let mut stream = connect(port);
    stream.write_all(&[0xC1]).expect("written");
    let mut sent = 0;
    while let Ok(written) = stream.write(&[0x80; 64 << 10]) {
        sent += written;
        assert!(sent < 48 << 20, "it is taken and thrown away");
    }
    let (events, said) = receiving.stop();
    assert_eq!(events.len(), 0, "{said}");
}

fn malformed() -> Vec<Malformed> {
    let row = |input, bytes: &[u8], said, events, closes| Malformed {
        input,
        bytes: bytes.to_vec(),
        said,
        events,
        closes,
    };
    let nested = [&b"\x81\xa1a"[..], &[0x91; 1100], b"\x01"].concat();
    let deep = format!("{{\"a\":{}{}}}\n", "[".repeat(1100), "]".repeat(1100));
    let long = [&[b'x'; 3000][..], b"\n"].concat();
    let packed = "tcp PLACE codec=msgpack max_line_bytes=2KiB";
    let json = "tcp PLACE codec=json";
    let not_json = "a message is not a JSON object: it was kept as text";
    let not_syslog = "what was received is not a syslog message";
    let cut = "a message is longer than `max_line_bytes`, or the connection ended within it, and was truncated";
    let not_utf8 = "a message is not valid UTF-8";
    vec![
        row(
            packed,
            b"\x81\xa1b\x02\xc1",
            "at byte 8: reserved MessagePack byte",
            1,
            true,
        ),
        row(
            packed,
            b"\x81\xa1b\xc1",
            "reserved MessagePack byte",
            0,
            true,
        ),
        row(
            packed,
            b"\x93\x01\x02\x03",
            "not a MessagePack map",
            0,
            true,
        ),
        row(packed, b"", "", 0, false),
        row(
            packed,
            b"\x81\xa1b\x02\x81\xa1c",
            "unexpected end of MessagePack",
            1,
            false,
        ),
        row(packed, &nested, "nested too deeply", 0, true),
        row(
            packed,
            &[&b"\x81\xa1a\xc6\xff\xff\xff\xff"[..], &[b'x'; 80 << 10]].concat(),
            "is larger than 2048 bytes",
            0,
            true,
        ),
        row(
            packed,
            &[&b"\xdf\xff\xff\xff\xff"[..], &[1; 80 << 10]].concat(),
            "is larger than 2048 bytes",
            0,
            true,
        ),
        row(json, b"{\"a\":\n", not_json, 1, false),
        row(json, deep.as_bytes(), not_json, 1, false),
        row(json, b"\n\n\n", "", 0, false),
        row("tcp PLACE", b"a\xffb\n", not_utf8, 1, false),
        row("tcp PLACE max_line_bytes=1KiB", &long, cut, 1, false),
        row(
            "tcp PLACE framing=nul max_line_bytes=1KiB",
            &long,
            cut,
            1,
            false,
        ),
        // A length that lies: the message is what came.
        row("syslog tcp PLACE", b"999999999 <13>x", cut, 1, false),
        row(
            "tcp PLACE framing=octet_counted",
            b"999999999 x",
            cut,
            1,
            false,
        ),
        // A length that can be none begins a line of syslog, and ends other connections.
        row(
            "syslog tcp PLACE",
            b"9999999999 <13>x",
            not_syslog,
            1,
            false,
        ),
        row(
            "tcp PLACE framing=octet_counted",
            b"1 a9999999999 x",
            "a message must begin with its length, digits up to 1073741824 and a space, and one begins with \"9999999999 x\"",
            1,
            true,
        ),
        row(
            "tcp PLACE codec=json framing=octet_counted",
            b"{\"a\":1}\n",
            "a message must begin with its length",
            0,
            true,
        ),
        row(
            "unix PLACE framing=octet_counted",
            b"007 agents",
            "a message must begin with its length",
            0,
            true,
        ),
        row(
            "syslog tcp PLACE",
            b"0 12345678901 x\n",
            not_syslog,
            1,
            false,
        ),
        row("syslog tcp PLACE", b"<999>1 x\n", not_syslog, 1, false),
        row("udp PLACE codec=json", b"{\"a\":", not_json, 1, false),
        row("udp PLACE", b"\xff\xfe", not_utf8, 1, false),
        row("udp PLACE", b"", "", 0, false),
        row("syslog udp PLACE", b"<1>1 - - x", not_syslog, 1, false),
        row(
            "unix PLACE codec=msgpack",
            b"\x81\xa1b\xc1",
            "reserved MessagePack byte",
            0,
            true,
        ),
        row(
            "unix PLACE kind=datagram codec=json",
            b"[1]",
            not_json,
            1,
            false,
        ),
    ]
}

#[test]
fn a_sender_is_shown_by_its_address_where_no_message_names_it() {
    for transport in ["tcp", "udp"] {
        let port = free_port();
        let input = format!("syslog {transport} :{port}");
        let mut receiving = Receiving::with(Folder::new(), &format!("{input} | stdout"));
        let mut client = client(&input, &port.to_string());
        client.send(b"<13>no host\n");
        client.send(b"no message\n");
        receiving.until(2);
        let (events, said) = receiving.stop();
        assert_eq!(events.len(), 2, "{said}");
        for event in events {
            assert_eq!(event["host"]["name"], "127.0.0.1", "{event}");
            assert!(event["agent"]["name"].is_string(), "{event}");
            let address = event["log"]["source"]["address"].as_str();
            assert!(
                address.is_some_and(|address| address.starts_with("127.0.0.1:")),
                "{event}"
            );
        }
    }
}

#[test]
fn malformed_messages_are_reported_and_concern_no_other() {
    for (number, bad) in malformed().into_iter().enumerate() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let port = free_port();
        let place = match bad.input.starts_with("unix") {
            true => path.clone(),
            false => port.to_string(),
        };
        let is_packed = bad.input.contains("msgpack");
        let (good, more) = match is_packed {
            true => (&b"\x81\xa1n\x01"[..], &b"\x81\xa1n\x02"[..]),
            false if bad.input.contains("octet_counted") => {
                (&b"7 {\"n\":1}"[..], &b"7 {\"n\":2}"[..])
            }
            false if bad.input.contains("json") => (&b"{\"n\":1}\n"[..], &b"{\"n\":2}\n"[..]),
            false => (
                &b"<13>Oct 11 22:14:15 h a: 1\n\0"[..],
                &b"<13>Oct 11 22:14:15 h a: 2\n\0"[..],
            ),
        };
        let strip = |text: &'static [u8]| match bad.input.contains("nul") {
            true => text,
            false => text.strip_suffix(b"\0").unwrap_or(text),
        };
        let (good, more) = (strip(good), strip(more));
        let input = bad.input.replace("PLACE", &place);
        let mut receiving = Receiving::with(folder, &format!("{input} | stdout"));
        let what = format!("row {number}, {input}");
        let connect = || client(bad.input, &place);
        let (mut other, mut client) = (connect(), connect());
        other.send(good);
        client.send(good);
        receiving.until(2);
        client.send(&bad.bytes);
        if bad.closes {
            assert!(client.is_closed(), "{what}");
        }
        drop(client);
        receiving.until(2 + bad.events);
        if !bad.said.is_empty() {
            receiving.service.until_said(bad.said);
        }
        other.send(more);
        receiving.until(3 + bad.events);
        let (events, said) = receiving.stop();
        assert_eq!(events.len(), 3 + bad.events, "{what}: {events:?}");
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("warning"))
            .collect();
        if bad.said.is_empty() {
            assert!(lines.is_empty(), "{what}: {said}");
            continue;
        }
        assert_eq!(lines.len(), 1, "{what}: {said}");
        let peer = match bad.input.starts_with("unix") {
            true => "unix",
            false => "127.0.0.1:",
        };
        assert!(
            lines[0].contains(peer) && lines[0].contains(bad.said),
            "{what}: {said}"
        );
        assert_eq!(
            lines[0].contains("the connection was closed"),
            bad.closes || bad.said.contains("end of"),
            "{what}: {said}"
        );
    }
}

/// A client of any of these inputs.
enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
    Udp(UdpSocket),
    Datagrams(UnixDatagram),
}

fn client(input: &str, place: &str) -> Client {
    if input.contains("datagram") {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(place).expect("connected");
        return Client::Datagrams(socket);
    }
    if input.starts_with("unix") {
        return Client::Unix(UnixStream::connect(place).expect("connected"));
    }
    let port = place.parse().expect("a port");
    if input.contains("udp") {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(("127.0.0.1", port)).expect("connected");
        return Client::Udp(socket);
    }
    Client::Tcp(connect(port))
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).expect("sent"),
            Self::Unix(stream) => stream.write_all(bytes).expect("sent"),
            Self::Udp(socket) => drop(socket.send(bytes).expect("sent")),
            Self::Datagrams(socket) => drop(socket.send(bytes).expect("sent")),
        }
    }

    /// Waits for the other side to close.
    fn is_closed(&mut self) -> bool {
        let patience = Some(Duration::from_secs(20));
        let mut space = [0; 1];
        let read = match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(patience).expect("set");
                stream.read(&mut space)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(patience).expect("set");
                stream.read(&mut space)
            }
            Self::Udp(_) | Self::Datagrams(_) => return false,
        };
        match read {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_client_that_does_not_go_on_loses_its_connection() {
    let port = free_port();
    let mut receiving =
        Receiving::start(&format!("tcp {port} line_timeout=300ms idle_timeout=600ms"));
    let mut slow = connect(port);
    slow.write_all(&[b'x'; 10_000]).expect("written");
    receiving.service.until_said("did not arrive in time");
    receiving.until(1);
    let idle = connect(port);
    idle.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    let read = Read::read(&mut &idle, &mut [0; 1]).expect("no error");
    assert_eq!(read, 0, "it was closed");
    let (events, _) = receiving.stop();
    assert_eq!(messages(&events)[0].len(), 10_000);
}

#[test]
fn octet_counted_messages_and_lines_are_syslog() {
    let port = free_port();
    let mut receiving = Receiving::start(&format!("syslog tcp {port}"));
    let mut stream = connect(port);
    let message = "<34>1 2003-10-11T22:14:15.003Z mymachine su - ID47 - two\nlines";
    write!(stream, "{} {message}", message.len()).expect("written");
    stream
        .write_all(b"<13>Oct 11 22:14:15 other app[7]: a line\n")
        .expect("written");
    stream.write_all(b"nothing of the kind\n").expect("written");
    receiving.until(3);
    let (events, said) = receiving.stop();
    assert_eq!(
        messages(&events),
        ["two\nlines", "a line", "nothing of the kind"]
    );
    let hosts: Vec<&Value> = events.iter().map(|event| &event["host"]["name"]).collect();
    assert_eq!(hosts, ["mymachine", "other", "127.0.0.1"]);
    let collectors: Vec<&Value> = events.iter().map(|event| &event["agent"]["name"]).collect();
    assert!(
        collectors
            .iter()
            .all(|name| **name == *collectors[0] && name.is_string())
    );
    assert_eq!(events[2]["tags"], json!(["_syslogparsefailure"]));
    assert!(said.contains("not a syslog message"), "{said}");
}

#[test]
fn local_programs_log_to_a_socket_of_unix() {
    let folder = Folder::new();
    let path = folder.path("log");
    let text = b"<13>Oct 11 22:14:15 app[7]: one";
    for kind in ["", " kind=datagram", " kind=stream"] {
        let mut receiving = Receiving::start(&format!("syslog unix {path}{kind}"));
        let mode = fs::metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "{kind}");
        if kind.contains("stream") {
            // As syslog(3) writes it.
            let mut stream = UnixStream::connect(&path).expect("connected");
            stream
                .write_all(&[&text[..], b"\0"].concat().repeat(2))
                .expect("written");
        } else {
            let socket = UnixDatagram::unbound().expect("a socket");
            for _ in 0..2 {
                socket.send_to(text, &path).expect("sent");
            }
        }
        receiving.until(2);
        let (events, said) = receiving.stop();
        assert_eq!(messages(&events), ["one", "one"], "{kind}: {said}");
        let name = &events[0]["log"]["syslog"]["appname"];
        assert_eq!(name, "app", "{}", events[0]);
        // The clients' own sockets have no name.
        let address = &events[0]["log"]["source"]["address"];
        assert_eq!(address, path.as_str(), "{}", events[0]);
    }
}

#[test]
fn every_datagram_is_an_event() {
    let port = free_port();
    let mut receiving = Receiving::start(&format!("udp {port}"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let send = |text: &[u8]| {
        socket.send_to(text, ("127.0.0.1", port)).expect("sent");
    };
    for number in 0..1_000 {
        send(format!("{number}\n").as_bytes());
        if number % 100 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    send(b"");
    send(b"two\nlines\n\0");
    send(&[b'x'; 65_000]);
    receiving.until(1_002);
    let (events, _) = receiving.stop();
    let found = messages(&events);
    let wanted: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    assert_eq!(found[..1_000], wanted);
    assert_eq!((found[1_000], found[1_001].len()), ("two\nlines", 65_000));
    let ids: BTreeSet<String> = events.iter().map(Value::to_string).collect();
    assert_eq!(ids.len(), 1_002);
    let address = socket.local_addr().expect("an address").to_string();
    assert_eq!(events[0]["log"]["source"]["address"], json!(address));
}

#[test]
fn a_json_document_of_several_lines_in_a_datagram_is_one_line_of_output() {
    let port = free_port();
    let mut receiving = Receiving::start(&format!("udp {port} codec=json"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for text in [
        "{\n \"a\": 1,\r\n \"b\": \"x\\ny\"}",
        "{\"a\": \"raw \n line\"}",
    ] {
        let sent = socket.send_to(text.as_bytes(), ("127.0.0.1", port));
        sent.expect("sent");
    }
    receiving.until(2);
    let (events, _) = receiving.stop();
    assert_eq!(events[0], json!({"a": 1, "b": "x\ny"}));
    assert_eq!(events[1]["tags"], json!(["_jsonparsefailure"]));
}

#[test]
fn sockets_of_unix_are_made_and_removed() {
    let folder = Folder::new();
    let path = folder.path("in.sock");
    for kind in ["stream", "datagram"] {
        let input = format!("unix {path} kind={kind} mode=0600");
        let mut receiving = Receiving::start(&input);
        let mode = fs::metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{kind}");
        let again = millpond(&["run", &format!("{input} | stdout")]).expect(2);
        assert!(again.err.contains("already listening on"), "{}", again.err);
        if kind == "stream" {
            let mut stream = UnixStream::connect(&path).expect("connected");
            stream.write_all(b"one\ntwo\n").expect("written");
        } else {
            let socket = UnixDatagram::unbound().expect("a socket");
            for text in ["one\n", "two"] {
                socket.send_to(text.as_bytes(), &path).expect("sent");
            }
        }
        receiving.until(2);
        let (events, _) = receiving.stop();
        assert_eq!(messages(&events), ["one", "two"], "{kind}");
        assert!(fs::symlink_metadata(&path).is_err(), "it was removed");
    }
    // A socket that a killed run left is replaced, an ordinary file is not.
    Receiving::start(&format!("unix {path}")).service.kill();
    assert!(fs::symlink_metadata(&path).is_ok(), "it is left");
    drop(Receiving::start(&format!("unix {path}")).stop());
    fs::write(&path, "mine").expect("written");
    let refused = millpond(&["run", &format!("unix {path} | stdout")]).expect(2);
    assert!(refused.err.contains("is not a socket"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&path).expect("there"), "mine");
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").port();
    let table = [
        (
            format!("tcp {taken} | stdout"),
            "another program is already listening there",
        ),
        ("syslog 5514 | stdout".to_owned(), "udp"),
        (
            "syslog udp 5514 tls.cert=a tls.key=b | stdout".to_owned(),
            "`tls` requires",
        ),
        (
            "syslog unix /tmp/x tls.cert=a tls.key=b | stdout".to_owned(),
            "`tls` requires",
        ),
        (
            "syslog udp 5514 mode=0600 | stdout".to_owned(),
            "`mode` requires `transport: unix`",
        ),
        ("syslog unix /tmp/x mode=9 | stdout".to_owned(), "in octal"),
        ("syslog udp /dev/log | stdout".to_owned(), "has no port"),
        (
            "udp 5514 codec=msgpack | stdout".to_owned(),
            "requires a connection",
        ),
        ("unix /tmp/x mode=9 | stdout".to_owned(), "in octal"),
        (
            "unix /tmp/x kind=datagram framing=nul | stdout".to_owned(),
            "`framing` requires",
        ),
        (
            "tcp 5514 codec=msgpack framing=nul | stdout".to_owned(),
            "`framing` does not apply to `codec: msgpack`",
        ),
        (
            "tcp 5514 timezone=UTC | stdout".to_owned(),
            "`timezone` requires",
        ),
    ];
    for (pipeline, wanted) in table {
        let ended = millpond(&["run", &pipeline]).expect(2);
        assert!(ended.err.contains(wanted), "{pipeline}: {}", ended.err);
    }
}
