//! The outputs `tcp`, `udp`, `unix` and `syslog` against the inputs of the same names, which are stopped, killed, slow, cut off and away.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use testkit::authority::Authority;
use testkit::cutter::Cutter;
use testkit::http::{Answer, HttpServer};
use testkit::ports::free_port;

use crate::program::{Folder, millpond, run};
use crate::running::{Service, append, eventually, numbered};

/// A service with one input, whose events go to `received.ndjson`.
struct Receiver {
    folder: Folder,
    input: String,
}

impl Receiver {
    fn new(input: impl Into<String>) -> Self {
        let (folder, input) = (Folder::new(), input.into());
        Self { folder, input }
    }

    fn start(&self) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input: {input}
    queue: {{ disk: {{ min_free_bytes: 0 }} }}
    outputs:
      - file: {{ path: '{out}' }}
",
            data = self.folder.path("data"),
            input = self.input,
            out = self.folder.path("received.ndjson"),
        );
        let path = self.folder.write("receiver.yaml", yaml);
        let mut service = Service::start(&self.folder, &["run", &path]);
        let err = service.said_in();
        service.until("a socket", || {
            let said = read_to_string(&err).unwrap_or_default();
            said.contains("listening on") || said.contains("receiving on")
        });
        service
    }

    fn text(&self) -> String {
        let path = self.folder.path("received.ndjson");
        let text = read_to_string(path).unwrap_or_default();
        // The last line may be half written.
        text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
    }

    fn events(&self) -> Vec<Value> {
        let events = self.text();
        let events = events.lines().map(serde_json::from_str);
        events.collect::<Result<_, _>>().expect("JSON lines")
    }

    fn messages(&self) -> Vec<String> {
        let events = self.events();
        let messages = events.iter().filter_map(|event| event["message"].as_str());
        messages.map(str::to_owned).collect()
    }

    fn until(&self, count: usize) {
        eventually("the events", || self.text().lines().count() >= count);
    }

    /// Waits until all lines have arrived; how many did so more than once.
    fn until_all(&self, lines: &str) -> usize {
        let mut counts = BTreeMap::new();
        let mut missing = Vec::new();
        let is_there = |counts: &mut BTreeMap<String, usize>, missing: &mut Vec<String>| {
            counts.clear();
            for message in self.messages() {
                *counts.entry(message).or_default() += 1;
            }
            let lost = lines.lines().filter(|line| !counts.contains_key(*line));
            *missing = lost.map(str::to_owned).collect();
            missing.is_empty()
        };
        for _ in 0..200 {
            if is_there(&mut counts, &mut missing) {
                return counts.values().filter(|&&count| count > 1).count();
            }
            sleep(Duration::from_millis(100));
        }
        let (first, last) = (missing.first(), missing.last());
        panic!("{} are missing, {first:?} to {last:?}", missing.len());
    }
}

/// A service that follows a log and sends it with an output, through a queue on disk.
struct Sending {
    folder: Folder,
    output: String,
    written: String,
}

impl Sending {
    fn new(output: impl Into<String>) -> Self {
        Self {
            folder: Folder::new(),
            output: output.into(),
            written: String::new(),
        }
    }

    fn write(&mut self, count: usize) {
        let from = self.written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&self.folder.path("app.log"), &lines);
        self.written.push_str(&lines);
    }

    fn start(&self) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'] }}
    queue: {{ disk: {{ segment_bytes: 64KiB, min_free_bytes: 0, cache_bytes: 64KiB }} }}
    output: {output}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = self.folder.path("data"),
            log = self.folder.path("app.log"),
            output = self.output,
        );
        let path = self.folder.write("service.yaml", yaml);
        Service::start(&self.folder, &["run", &path])
    }
}

/// Real lines: those of the Apache log that `generate` makes.
fn real_lines(folder: &Folder, count: usize) -> String {
    let log = folder.path("access.log");
    let pipeline = format!("generate apache count={count} seed=1 | file {log} codec=text");
    run(&pipeline).expect(0);
    log
}

#[test]
fn real_events_arrive_once_each_and_in_order() {
    let folder = Folder::new();
    let log = real_lines(&folder, 100_000);
    let lines = folder.read("access.log");
    let lines: Vec<&str> = lines.lines().collect();
    let tcp = |input: &str, output: &str| {
        let port = free_port();
        let fill = |text: &str, address: String| text.replace("ADDRESS", &address);
        (
            fill(input, port.to_string()),
            fill(output, format!("127.0.0.1:{port}")),
        )
    };
    let unix = |input: &str, output: &str| {
        let path = folder.path(&format!("{}.sock", free_port()));
        (
            input.replace("ADDRESS", &path),
            output.replace("ADDRESS", &path),
        )
    };
    for (input, output) in [
        tcp("{tcp: {address: ADDRESS, codec: json}}", "tcp ADDRESS"),
        tcp(
            "{tcp: {address: ADDRESS, framing: octet_counted}}",
            "tcp ADDRESS codec=text framing=octet_counted",
        ),
        tcp(
            "{tcp: {address: ADDRESS, codec: msgpack}}",
            "tcp ADDRESS codec=msgpack",
        ),
        tcp(
            "{syslog: {transport: tcp, address: ADDRESS}}",
            "syslog tcp ADDRESS",
        ),
        tcp(
            "{syslog: {transport: tcp, address: ADDRESS}}",
            "syslog tcp ADDRESS framing=lf standard=rfc3164",
        ),
        unix("{unix: {path: ADDRESS}}", "unix ADDRESS codec=text"),
        unix(
            "{unix: {path: ADDRESS, kind: datagram, codec: json}}",
            "unix ADDRESS kind=datagram",
        ),
        unix(
            "{syslog: {transport: unix, address: ADDRESS}}",
            "syslog unix ADDRESS",
        ),
    ] {
        let receiver = Receiver::new(input);
        let service = receiver.start();
        run(&format!("file {log} | {output}")).expect(0);
        receiver.until(lines.len());
        service.stop();
        let messages = receiver.messages();
        assert!(messages == lines, "{output}: {} events", messages.len());
    }
}

#[test]
fn datagrams_arrive() {
    for (input, output) in [
        ("udp: {address: PORT, codec: json}", "udp 127.0.0.1:PORT"),
        (
            "syslog: {transport: udp, address: PORT}",
            "syslog udp 127.0.0.1:PORT",
        ),
        (
            "syslog: {transport: udp, address: '[::1]:PORT'}",
            "syslog udp [::1]:PORT standard=rfc3164",
        ),
    ] {
        let port = free_port().to_string();
        let receiver = Receiver::new(format!("{{{}}}", input.replace("PORT", &port)));
        let service = receiver.start();
        let folder = Folder::new();
        // As many as the buffer of a receiver holds that is not asked for more.
        let log = folder.write("a.log", numbered("a", 0..200));
        let output = output.replace("PORT", &port);
        run(&format!("file {log} | {output}")).expect(0);
        receiver.until(200);
        service.stop();
        let lines = folder.read("a.log");
        assert!(receiver.messages().iter().eq(lines.lines()), "{output}");
    }
}

#[test]
fn an_event_that_no_datagram_holds_is_a_dead_letter_or_truncated() {
    let port = free_port();
    let receiver = Receiver::new(format!("{{udp: {port}}}"));
    let service = receiver.start();
    let folder = Folder::new();
    let lines = format!("short\n{}\nlast\n", "x".repeat(3000));
    let log = folder.write("a.log", lines);
    let output = format!("udp 127.0.0.1:{port} codec=text max_datagram_bytes=2KiB");
    let done = run(&format!("file {log} | {output}")).expect(1);
    assert!(
        done.err
            .contains("the message has 3000 bytes, and a datagram at most 2048"),
        "{}",
        done.err
    );
    receiver.until(2);
    assert_eq!(receiver.messages(), ["short", "last"]);
    run(&format!("file {log} | {output} oversized=truncate")).expect(0);
    receiver.until(5);
    assert_eq!(receiver.messages()[3], "x".repeat(2048));
    service.stop();
}

#[test]
fn what_the_syslog_input_has_read_arrives_as_it_was() {
    let folder = Folder::new();
    let messages = [
        "<34>1 2003-10-11T22:14:15.003123Z mymachine.example su 230 ID47 [exampleSDID@32473 iut=\"3\" eventSource=\"a\\\"\\\\\\]b\"][empty] 'su root' failed",
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - caf\u{e9} %% it's time",
        "<191>1 2024-02-29T23:59:59Z - - - - - ",
        "<0>Oct 11 22:14:15 oldhost su[7]: old message",
        "<13>Oct 11 22:14:15 oldhost no tag here",
    ];
    let log = folder.write("a.log", messages.map(|line| format!("{line}\n")).concat());
    let shown = run(&format!("file {log} codec=syslog timezone=UTC | stdout")).expect(0);
    for (transport, settings, input) in [
        ("tcp", "", ""),
        ("tcp", "framing=lf", ""),
        ("tcp", "bom=true", ""),
        ("udp", "", ""),
        (
            "tcp",
            "standard=rfc3164 timezone=+03:00",
            ", timezone: '+03:00'",
        ),
    ] {
        let port = free_port();
        let receiver = Receiver::new(format!(
            "{{syslog: {{transport: {transport}, address: {port}{input}}}}}"
        ));
        let service = receiver.start();
        let output = format!("syslog {transport} 127.0.0.1:{port} {settings}");
        run(&format!("file {log} codec=syslog timezone=UTC | {output}")).expect(0);
        receiver.until(messages.len());
        service.stop();
        let is_old = settings.contains("3164");
        for (before, after) in shown.events().iter().zip(receiver.events()) {
            for field in [
                "/message",
                "/log/syslog/priority",
                "/log/syslog/hostname",
                "/log/syslog/appname",
                "/log/syslog/procid",
                "/log/syslog/msgid",
                "/log/syslog/structured_data",
                "/@timestamp",
            ] {
                let (before, after) = (before.pointer(field), after.pointer(field));
                // The older standard has no place for some, and names a program always.
                let has_none = ["msgid", "data", "timestamp"]
                    .iter()
                    .any(|end| field.ends_with(end));
                let is_given = before.is_some() || !field.ends_with("name");
                if !is_old || (!has_none && is_given) {
                    // A host that was not named is this machine.
                    let is_filled = before.is_none() && field.ends_with("hostname");
                    assert!(
                        is_filled || before == after,
                        "{settings} {field}: {before:?} {after:?}"
                    );
                }
            }
        }
    }
}

/// Sends while the receiver ends in this way and starts again, several times; how many events arrived more than once.
fn across_restarts(input: &str, output: &str, end: fn(Service)) -> usize {
    let port = free_port().to_string();
    let receiver = Receiver::new(input.replace("PORT", &port));
    let mut service = receiver.start();
    let mut sending = Sending::new(output.replace("PORT", &port));
    sending.write(1000);
    let sender = sending.start();
    receiver.until(1);
    for _ in 0..4 {
        for _ in 0..10 {
            sending.write(700);
            sleep(Duration::from_millis(20));
        }
        end(service);
        sending.write(500);
        sleep(Duration::from_millis(100));
        service = receiver.start();
    }
    // What is sent again goes out with the next request.
    sending.write(1);
    let doubled = receiver.until_all(&sending.written);
    sender.stop();
    service.stop();
    doubled
}

#[test]
fn a_receiver_that_is_stopped_and_started_gets_everything() {
    let stop = |service: Service| drop(service.stop());
    let small = "batch: {max_events: 500, max_age: 10ms}";
    for (input, output) in [
        (
            "{syslog: {transport: tcp, address: PORT}}",
            format!("{{syslog: {{transport: tcp, address: '127.0.0.1:PORT', {small}}}}}"),
        ),
        (
            "{tcp: {address: PORT, codec: json}}",
            format!("{{tcp: {{address: '127.0.0.1:PORT', {small}}}}}"),
        ),
    ] {
        across_restarts(input, &output, stop);
    }
}

#[test]
fn a_receiver_that_is_killed_and_started_gets_everything() {
    let input = "{syslog: {transport: tcp, address: PORT}}";
    let output = "{syslog: {transport: tcp, address: '127.0.0.1:PORT', batch: {max_events: 500, max_age: 10ms}}}";
    across_restarts(input, output, Service::kill);
}

#[test]
fn a_sender_that_is_killed_loses_nothing() {
    let port = free_port();
    let receiver = Receiver::new(format!("{{tcp: {{address: {port}, codec: json}}}}"));
    let service = receiver.start();
    let output = format!(
        "{{tcp: {{address: '127.0.0.1:{port}', batch: {{max_events: 200, max_age: 10ms}}}}}}"
    );
    let mut sending = Sending::new(output);
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..8 {
        sending.write(2000);
        let sender = sending.start();
        sleep(Duration::from_millis(random.u64(50..500)));
        sender.kill();
    }
    let sender = sending.start();
    let doubled = receiver.until_all(&sending.written);
    assert!(doubled < 16_000, "everything came twice");
    sender.stop();
    service.stop();
}

#[test]
fn connections_that_are_cut_anywhere_lose_nothing() {
    for seed in [1, 2] {
        let port = free_port();
        let receiver = Receiver::new(format!("{{syslog: {{transport: tcp, address: {port}}}}}"));
        let service = receiver.start();
        let server = format!("127.0.0.1:{port}").parse().expect("an address");
        let cutter = Cutter::start(server, seed, 300_000);
        let address = cutter.address();
        let mut sending = Sending::new(format!(
            "{{syslog: {{transport: tcp, address: '{address}', batch: {{max_bytes: 32KiB, max_age: 10ms}}}}}}"
        ));
        let sender = sending.start();
        for _ in 0..40 {
            sending.write(500);
            sleep(Duration::from_millis(10));
        }
        let all = sending.written.clone();
        for _ in 0..20 {
            sending.write(1);
            sleep(Duration::from_millis(50));
        }
        receiver.until_all(&all);
        assert!(cutter.cut() > 2, "{} cuts", cutter.cut());
        sender.stop();
        service.stop();
    }
}

#[test]
fn a_server_that_reads_slowly_gets_everything_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reader = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        let (mut all, mut space) = (Vec::new(), vec![0; 256 << 10]);
        loop {
            match connection.read(&mut space).expect("bytes") {
                0 => return String::from_utf8(all).expect("UTF-8"),
                read => all.extend_from_slice(&space[..read]),
            }
            sleep(Duration::from_millis(5));
        }
    });
    let folder = Folder::new();
    let log = folder.write(
        "a.log",
        numbered("a line that is somewhat longer", 0..500_000),
    );
    run(&format!("file {log} | tcp {address} codec=text")).expect(0);
    let received = reader.join().expect("a reader");
    assert!(received == folder.read("a.log"), "{} bytes", received.len());
}

#[test]
fn servers_that_cannot_be_reached_are_named() {
    let authority = Authority::new();
    authority.issue("other", "other.example");
    let config = Some(authority.server("other"));
    let server = HttpServer::start_at(free_port(), config, |_, _| Answer::new(200));
    let with_tls = server.address();
    let plain = HttpServer::start(|_, _| Answer::new(200));
    let without_tls = plain.address();
    let ca = authority.path("ca.pem").display().to_string();
    let nobody = free_port();
    for (output, part) in [
        (
            "tcp: 'no-such-host.invalid:1'".to_owned(),
            "no-such-host.invalid:1: cannot connect: ",
        ),
        (format!("tcp: '127.0.0.1:{nobody}'"), "Connection refused"),
        (
            format!("tcp: {{address: '{with_tls}', tls: {{ca: '{ca}'}}}}"),
            "certificate",
        ),
        (
            format!("syslog: {{transport: tcp, address: '{without_tls}', tls: {{ca: '{ca}'}}}}"),
            "does not use TLS on this port",
        ),
        (
            format!("udp: '127.0.0.1:{nobody}'"),
            "nobody receives there",
        ),
        (
            "unix: /nowhere/socket".to_owned(),
            "/nowhere/socket: cannot connect: No such file",
        ),
        (
            "syslog: {transport: unix, address: /nowhere/log}".to_owned(),
            "/nowhere/log: cannot send there: No such file",
        ),
    ] {
        let yaml = format!(
            "pipelines:
  one:
    input: {{ generate: {{ format: apache, count: 10 }} }}
    output: {{ {output} }}
    retry: {{ initial: 50ms, max: 200ms, give_up_after: 500ms }}
"
        );
        let folder = Folder::new();
        let path = folder.write("a.yaml", yaml);
        let done = millpond(&["run", &path]).expect(1);
        assert!(done.err.contains(part), "{output}: {}", done.err);
        assert!(done.err.contains("10 events"), "{output}: {}", done.err);
    }
    let folder = Folder::new();
    let path = folder.write("no.pem", "no certificate");
    let done = run(&format!("generate apache count=1 | tcp h:1 tls.ca={path}")).expect(2);
    assert!(done.err.contains("no.pem"), "{}", done.err);
}

/// A receiver of those that have a certificate.
fn receiver_of_certified(authority: &Authority, port: u16) -> Receiver {
    authority.issue("server", "localhost");
    let path = |file: &str| authority.path(file).display().to_string();
    Receiver::new(format!(
        "{{syslog: {{transport: tcp, address: {port}, tls: {{cert: '{}', key: '{}', client_ca: '{}'}}}}}}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    ))
}

/// Whoever is not wanted is told so after the first bytes have been confirmed, which are not delivered then.
#[test]
fn a_server_that_does_not_want_the_connection_gets_nothing() {
    let authority = Authority::new();
    let path = |file: &str| authority.path(file).display().to_string();
    let port = free_port();
    let receiver = receiver_of_certified(&authority, port);
    let service = receiver.start();
    let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closes = closing.local_addr().expect("an address");
    let bannering = TcpListener::bind("127.0.0.1:0").expect("a port");
    let banners = bannering.local_addr().expect("an address");
    // These threads end with the process.
    std::thread::spawn(move || closing.incoming().for_each(drop));
    std::thread::spawn(move || {
        for connection in bannering.incoming() {
            let mut connection = connection.expect("a connection");
            let _ = connection.write_all(b"220 welcome\n");
            // Closed with what the client sent unread, which resets the connection.
            sleep(Duration::from_millis(20));
        }
    });
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("line", 0..20));
    let refused = |output: String, parts: &[&str]| {
        let done = run(&format!("file {log} | {output}")).expect(1);
        let says = |part: &&str| done.err.contains(part);
        assert!(parts.iter().any(says), "{output}: {}", done.err);
        assert!(done.err.contains("20 events"), "{output}: {}", done.err);
    };
    let with_tls = format!("syslog tcp localhost:{port} tls.ca={}", path("ca.pem"));
    // What the system calls it depends on what it was doing when the connection was closed.
    let closed = ["onnection", "Broken pipe"];
    // Each is tried for half a minute.
    std::thread::scope(|scope| {
        scope.spawn(|| refused(with_tls, &["CertificateRequired"]));
        scope.spawn(|| refused(format!("tcp localhost:{port}"), &closed));
        scope.spawn(|| refused(format!("tcp {closes}"), &closed));
        scope.spawn(|| refused(format!("tcp {banners}"), &closed));
    });
    service.stop();
}

#[test]
fn tls_reaches_a_server_with_certificates_on_both_sides() {
    let authority = Authority::new();
    authority.issue("client", "client");
    let path = |file: &str| authority.path(file).display().to_string();
    let port = free_port();
    let receiver = receiver_of_certified(&authority, port);
    let mut service = receiver.start();
    let mut sending = Sending::new(format!(
        "{{syslog: {{transport: tcp, address: 'localhost:{port}', tls: {{ca: '{}', cert: '{}', key: '{}'}}}}}}",
        path("ca.pem"),
        path("client.pem"),
        path("client.key")
    ));
    sending.write(20_000);
    let sender = sending.start();
    receiver.until(20_000);
    service.stop();
    sending.write(1000);
    service = receiver.start();
    receiver.until_all(&sending.written);
    sender.stop();
    let said = service.stop();
    assert!(!said.contains("connection broke"), "{said}");
}
