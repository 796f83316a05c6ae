//! Every input does what all inputs must do.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use batch::{BatchBuilder, Encoding, HostInfo, Reentry, Span, Stream};
use component::own::LogEntry;
use component::{Diagnostics, Phases};
use parking_lot::Mutex;
use queue::letters::{self, Dead, DeadLetters, Draft, LetterSettings};
use testkit::conformance::input::{InputCase, check};
use testkit::lumberjack;
use testkit::nats_server::{NatsServer, PublishReply};
use testkit::redis_server::{CallReply, RedisServer};

/// Posts a body, and waits for the end of the connection. Where the input is stopped before, or takes nothing, there is no
/// answer.
fn post(port: u16, path: &str, body: &str) {
    post_as(port, path, "", body);
}

/// As [`post`], with a further header.
fn post_as(port: u16, path: &str, header: &str, body: &str) {
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all((head + body).as_bytes());
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Brokers for the workspace with this port, which live as long as the process.
#[cfg(feature = "kafka")]
fn brokers(port: u16) -> String {
    use std::collections::HashMap;

    use kafka::rdkafka::mocking::MockCluster;

    static BROKERS: Mutex<Option<HashMap<u16, String>>> = Mutex::new(None);
    let mut known = BROKERS.lock();
    let start = || {
        let cluster = MockCluster::new(1).expect("brokers");
        cluster.create_topic("t", 3, 1).expect("a topic");
        let brokers = cluster.bootstrap_servers();
        std::mem::forget(cluster);
        brokers
    };
    let known = known.get_or_insert_default();
    known.entry(port).or_insert_with(start).clone()
}

/// Sends records to all partitions.
#[cfg(feature = "kafka")]
fn produce(brokers: &str, events: usize) {
    use std::time::Duration;

    use kafka::rdkafka::ClientConfig;
    use kafka::rdkafka::producer::{BaseProducer, BaseRecord, Producer};

    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    let producer: BaseProducer = config.create().expect("a producer");
    for event in 0..events {
        let value = format!("line {event}");
        let record = BaseRecord::<(), _>::to("t").payload(&value);
        let sent = producer.send(record.partition((event % 3) as i32));
        sent.map_err(|(error, _)| error).expect("it is taken");
    }
    producer.flush(Duration::from_secs(10)).expect("delivered");
}

#[cfg(not(feature = "kafka"))]
fn brokers(_: u16) -> String {
    unreachable!("this build is without Kafka")
}

#[cfg(not(feature = "kafka"))]
fn produce(_: &str, _: usize) {
    unreachable!("this build is without Kafka")
}

/// A server of NATS for the workspace with this port, which lives as long as the process.
fn nats(port: u16) -> Arc<NatsServer> {
    static SERVERS: Mutex<BTreeMap<u16, Arc<NatsServer>>> = Mutex::new(BTreeMap::new());
    let start = || Arc::new(NatsServer::start(0, |_| PublishReply::Take));
    SERVERS.lock().entry(port).or_insert_with(start).clone()
}

/// A Redis for the workspace with this port, which lives as long as the process.
fn redis(port: u16) -> Arc<RedisServer> {
    static SERVERS: Mutex<BTreeMap<u16, Arc<RedisServer>>> = Mutex::new(BTreeMap::new());
    let start = || Arc::new(RedisServer::start(0, |_| CallReply::Take));
    SERVERS.lock().entry(port).or_insert_with(start).clone()
}

/// Dead letters of a pipeline that does not run.
fn dead_letters(data_dir: &Path, events: usize) {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::file(7, "/log")));
    for event in 0..events as u64 {
        let text = format!("{{\"n\":{event}}}");
        let span = Span {
            buffer: 0,
            start: 0,
            len: text.len() as u32,
        };
        let buffer = builder.buffer(text.into());
        builder.push(Span { buffer, ..span }, event, event + 1);
    }
    let dead = |row: usize| Dead {
        row,
        reason: "refused".into(),
        tag: None,
    };
    let draft = Draft {
        batch: Arc::new(builder.finish()),
        original: None,
        at: Arc::new(Reentry::Output { name: "es".into() }),
        sequence: 0,
        rows: (0..events).map(dead).collect(),
    };
    let letters = DeadLetters::open(letters::Options {
        folder: letters::folder(data_dir, "other"),
        pipeline: "other".into(),
        settings: LetterSettings::default(),
        phases: Phases::default(),
        give_up_after: None,
        diagnostics: Diagnostics::silent(),
    });
    let letters = letters.expect("a store");
    let (sender, written) = std::sync::mpsc::sync_channel(1);
    letters.put(draft, Box::new(move |result| drop(sender.send(result))));
    let written = written.recv().expect("an answer");
    assert_eq!(written, Ok(events as u64));
    letters.close();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(letters.ended());
}

static CASES: &[InputCase] = &[
    InputCase {
        name: "dead_letters",
        settings: |_| "{}".to_owned(),
        feed: |place, events| dead_letters(&place.path("data"), events),
        reads: true,
    },
    InputCase {
        name: "elasticsearch",
        settings: |place| format!("address: {}", place.port),
        feed: |place, events| {
            let body: String = (0..events)
                .map(|event| format!("{{\"create\":{{}}}}\n{{\"n\":{event}}}\n"))
                .collect();
            post(place.port, "/logs/_bulk", &body);
        },
        reads: false,
    },
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
        name: "forward",
        settings: |place| format!("{{address: {}}}", place.port),
        feed: |place, events| {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", place.port)) {
                for event in 0..events {
                    // `["t", 1, {"n": event}]`
                    let event = (event as u16).to_be_bytes();
                    let message = [&b"\x93\xA1t\x01\x81\xA1n\xCD"[..], &event].concat();
                    let _ = stream.write_all(&message);
                }
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        },
        reads: false,
    },
    InputCase {
        name: "metrics",
        settings: |_| "{every: 1s}".to_owned(),
        feed: |place, events| place.told.store(events, Ordering::SeqCst),
        reads: false,
    },
    InputCase {
        name: "internal_log",
        settings: |_| "{}".to_owned(),
        feed: |place, events| {
            for event in 0..events {
                place.own.log().tell(LogEntry {
                    time_ns: event as i64,
                    level: "info",
                    pipeline: None,
                    component: None,
                    message: format!("message {event}"),
                });
            }
        },
        reads: false,
    },
    InputCase {
        name: "generate",
        settings: |_| "{format: apache, count: 300}".to_owned(),
        feed: |_, _| {},
        reads: true,
    },
    InputCase {
        name: "http",
        settings: |place| format!("{{address: {}, codec: text}}", place.port),
        feed: |place, events| {
            let body: String = (0..events).map(|event| format!("line {event}\n")).collect();
            post(place.port, "/", &body);
        },
        reads: false,
    },
    InputCase {
        name: "journald",
        settings: |place| format!("{{program: {}}}", place.path("journalctl").display()),
        feed: |place, events| {
            let path = place.path("journalctl");
            let mut program = File::create(&path).expect("a file");
            let entries: String = (0..events)
                .map(|event| format!("__CURSOR=s=1;i={event}\nMESSAGE=entry {event}\n\n"))
                .collect();
            let script =
                format!("#!/bin/sh\n[ \"$1\" = --version ] || cat <<'END'\n{entries}END\n");
            program.write_all(script.as_bytes()).expect("written");
            let mode = Permissions::from_mode(0o755);
            program.set_permissions(mode).expect("its own file");
        },
        reads: true,
    },
    InputCase {
        name: "kafka",
        settings: |place| {
            let brokers = brokers(place.port);
            format!("{{brokers: '{brokers}', topics: t, group: g, until: end, codec: text}}")
        },
        feed: |place, events| produce(&brokers(place.port), events),
        reads: true,
    },
    InputCase {
        name: "loki",
        settings: |place| format!("{{address: {}}}", place.port),
        feed: |place, events| {
            let entries: Vec<String> = (0..events)
                .map(|event| format!("[\"{event}\",\"line {event}\"]"))
                .collect();
            let entries = entries.join(",");
            let body = format!(r#"{{"streams":[{{"stream":{{"a":"b"}},"values":[{entries}]}}]}}"#);
            let head = "/loki/api/v1/push HTTP/1.1\r\nContent-Type: application/json\r\nX:";
            post(place.port, head, &body);
        },
        reads: false,
    },
    InputCase {
        name: "nats",
        settings: |place| {
            let address = nats(place.port).address();
            format!("{{hosts: '{address}', stream: S, consumer: c, until: end, codec: text}}")
        },
        feed: |place, events| {
            let server = nats(place.port);
            (0..events).for_each(|event| server.append(format!("line {event}")));
        },
        reads: true,
    },
    InputCase {
        name: "object_store",
        settings: |place| {
            let url = place.path("objects");
            format!("{{url: '{}', follow: false, codec: text}}", url.display())
        },
        feed: |place, events| {
            std::fs::create_dir_all(place.path("objects/a")).expect("folders");
            for (number, name) in ["objects/a/1.log", "objects/2.log"].iter().enumerate() {
                let mut file = File::create(place.path(name)).expect("a file");
                let own = (0..events).filter(|event| event % 2 == number);
                own.for_each(|event| writeln!(file, "line {event}").expect("written"));
            }
        },
        reads: true,
    },
    InputCase {
        name: "otlp",
        settings: |place| format!("address: {}", place.port),
        feed: |place, events| {
            let records = vec![r#"{"body":{"stringValue":"line"}}"#; events].join(",");
            let body =
                format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#);
            post_as(
                place.port,
                "/v1/logs",
                "Content-Type: application/json\r\n",
                &body,
            );
        },
        reads: false,
    },
    InputCase {
        name: "profile",
        settings: |place| {
            let path = place.path("a.folded");
            format!("{{paths: {}, rows: samples}}", path.display())
        },
        feed: |place, events| {
            let mut file = File::create(place.path("a.folded")).expect("a file");
            (0..events).for_each(|event| writeln!(file, "main;f{event} 1").expect("written"));
        },
        reads: true,
    },
    InputCase {
        name: "redis",
        settings: |place| {
            let address = redis(place.port).address();
            format!("{{hosts: '{address}', key: logs, until: end, codec: text}}")
        },
        feed: |place, events| {
            let server = redis(place.port);
            (0..events).for_each(|event| server.append("logs", format!("line {event}")));
        },
        reads: true,
    },
    InputCase {
        name: "splunk_hec",
        settings: |place| format!("{{address: {}}}", place.port),
        feed: |place, events| {
            let body: String = (0..events)
                .map(|event| format!("{{\"event\":\"event {event}\"}}"))
                .collect();
            post(place.port, "/services/collector/event", &body);
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
    InputCase {
        name: "syslog",
        settings: |place| format!("{{transport: tcp, address: {}}}", place.port),
        feed: |place, events| {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", place.port)) {
                for event in 0..events {
                    let _ = writeln!(stream, "<13>1 - host app - - - event {event}");
                }
            }
        },
        reads: false,
    },
    InputCase {
        name: "tcp",
        settings: |place| format!("{{address: {}}}", place.port),
        feed: |place, events| {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", place.port)) {
                let text: String = (0..events).map(|event| format!("line {event}\n")).collect();
                let _ = stream.write_all(text.as_bytes());
            }
        },
        reads: false,
    },
    InputCase {
        name: "udp",
        settings: |place| format!("{{address: {}}}", place.port),
        feed: |place, events| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            for event in 0..events {
                let text = format!("datagram {event}");
                let _ = socket.send_to(text.as_bytes(), ("127.0.0.1", place.port));
            }
        },
        reads: false,
    },
    InputCase {
        name: "unix",
        settings: |place| format!("path: {}", place.path("socket").display()),
        feed: |place, events| {
            if let Ok(mut stream) = UnixStream::connect(place.path("socket")) {
                let text: String = (0..events).map(|event| format!("line {event}\n")).collect();
                let _ = stream.write_all(text.as_bytes());
            }
        },
        reads: false,
    },
];

#[test]
fn every_input_conforms() {
    check(inputs::SPECS, CASES, inputs::ABSENT);
}
