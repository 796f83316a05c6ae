//! Every output does what all outputs must do.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::conformance::output::{Arrived, OutputCase, check};
use testkit::http::{Answer, HttpServer};
use testkit::nats_server::{NatsServer, PublishReply};
use testkit::receiver::{Receiver, Speaks};
use testkit::redis_server::{CallReply, RedisServer};

static CASES: &[OutputCase] = &[
    OutputCase {
        name: "clickhouse",
        settings: |place| format!("{{hosts: 'http://127.0.0.1:{}', table: t}}", place.port),
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| Answer::new(200));
            Box::new(move || server.lines().len())
        }),
    },
    OutputCase {
        name: "discard",
        settings: |_| "{}".to_owned(),
        remote: None,
    },
    OutputCase {
        name: "elasticsearch",
        settings: |place| {
            format!(
                "{{hosts: 'http://127.0.0.1:{}', compression: none}}",
                place.port
            )
        },
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| {
                Answer::new(200).body(r#"{"errors":false,"items":[{"create":{"status":201}}]}"#)
            });
            Box::new(move || server.lines().len() / 2)
        }),
    },
    OutputCase {
        name: "file",
        settings: |place| format!("path: {}", place.path("out.ndjson").display()),
        remote: Some(|place| {
            let path = place.path("out.ndjson");
            Box::new(move || {
                let text = std::fs::read_to_string(&path).expect("it was written");
                text.lines().count()
            })
        }),
    },
    OutputCase {
        name: "forward",
        settings: |place| format!("hosts: '127.0.0.1:{}'", place.port),
        remote: Some(|place| {
            let server = Receiver::start(place.port, Speaks::Forward);
            Box::new(move || server.events())
        }),
    },
    OutputCase {
        name: "http",
        settings: |place| format!("url: 'http://127.0.0.1:{}/events'", place.port),
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| Answer::new(200));
            Box::new(move || server.lines().len())
        }),
    },
    OutputCase {
        name: "kafka",
        // Brokers that librdkafka plays to itself.
        settings: |_| "{brokers: none, topic: t, options: {test.mock.num.brokers: 1}}".to_owned(),
        remote: None,
    },
    OutputCase {
        name: "logstash",
        settings: |place| format!("hosts: '127.0.0.1:{}'", place.port),
        remote: Some(|place| {
            let server = Receiver::start(place.port, Speaks::Lumberjack);
            Box::new(move || server.events())
        }),
    },
    OutputCase {
        name: "loki",
        settings: |place| {
            format!(
                "{{hosts: 'http://127.0.0.1:{}', labels: {{job: x}}, compression: none}}",
                place.port
            )
        },
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| Answer::new(204));
            Box::new(move || server.lines().len())
        }),
    },
    OutputCase {
        name: "object_store",
        settings: |place| {
            format!(
                "{{url: '{}', path: '', compression: none}}",
                place.path("lake").display()
            )
        },
        remote: Some(|place| {
            let lake = place.path("lake");
            Box::new(move || {
                let objects = std::fs::read_dir(&lake).expect("it was written");
                let lines = objects.map(|object| {
                    let path = object.expect("an object").path();
                    let text = std::fs::read_to_string(path).expect("it was written");
                    text.lines().count()
                });
                lines.sum()
            })
        }),
    },
    OutputCase {
        name: "otlp",
        settings: |place| {
            format!(
                "{{url: 'http://127.0.0.1:{}', compression: none}}",
                place.port
            )
        },
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| Answer::new(200));
            Box::new(move || {
                let mut count = 0;
                for request in server.taken() {
                    let read = codec::otlp::Documents::new(100).read(&request.body, |_| count += 1);
                    read.expect("a request of OTLP");
                }
                count
            })
        }),
    },
    OutputCase {
        name: "nats",
        settings: |place| format!("{{hosts: '127.0.0.1:{}', subject: s}}", place.port),
        remote: Some(|place| {
            let server = NatsServer::start(place.port, |_| PublishReply::Take);
            Box::new(move || server.published().len())
        }),
    },
    OutputCase {
        name: "redis",
        settings: |place| {
            format!(
                "{{hosts: '127.0.0.1:{}', key: k, remember_requests: 0s}}",
                place.port
            )
        },
        remote: Some(|place| {
            let server = RedisServer::start(place.port, |_| CallReply::Take);
            Box::new(move || server.events())
        }),
    },
    OutputCase {
        name: "splunk_hec",
        settings: |place| format!("{{hosts: 'http://127.0.0.1:{}', token: t}}", place.port),
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| {
                Answer::new(200).body(r#"{"text":"Success","code":0}"#)
            });
            Box::new(move || server.lines().len())
        }),
    },
    OutputCase {
        name: "stdout",
        settings: |_| "{}".to_owned(),
        // It is the test's own.
        remote: None,
    },
    OutputCase {
        name: "syslog",
        settings: |place| {
            format!(
                "{{transport: tcp, address: '127.0.0.1:{}', framing: lf}}",
                place.port
            )
        },
        remote: Some(|place| lines_over_tcp(place.port)),
    },
    OutputCase {
        name: "tcp",
        settings: |place| format!("address: '127.0.0.1:{}'", place.port),
        remote: Some(|place| lines_over_tcp(place.port)),
    },
    OutputCase {
        name: "udp",
        settings: |place| format!("address: '127.0.0.1:{}'", place.port),
        remote: Some(|place| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, place.port)).expect("a port");
            counting(move || socket.recv(&mut [0; 1000]).is_ok())
        }),
    },
    OutputCase {
        name: "unix",
        settings: |place| {
            let path = place.path("socket");
            format!("{{path: '{}', kind: datagram}}", path.display())
        },
        remote: Some(|place| {
            let socket = UnixDatagram::bind(place.path("socket")).expect("a socket");
            counting(move || socket.recv(&mut [0; 1000]).is_ok())
        }),
    },
];

/// Counts what arrives on a thread that lives as long as the test.
fn counting(next: impl Fn() -> bool + Send + 'static) -> Arrived {
    let count = Arc::new(AtomicUsize::new(0));
    let arrived = count.clone();
    thread::spawn(move || {
        while next() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    Box::new(move || arrived.load(Ordering::Relaxed))
}

/// Counts the lines of all connections.
fn lines_over_tcp(port: u16) -> Arrived {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
    let count = Arc::new(AtomicUsize::new(0));
    let arrived = count.clone();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let count = count.clone();
            thread::spawn(move || {
                for line in BufReader::new(connection).split(b'\n') {
                    count.fetch_add(usize::from(line.is_ok()), Ordering::Relaxed);
                }
            });
        }
    });
    Box::new(move || arrived.load(Ordering::Relaxed))
}

#[test]
fn every_output_conforms() {
    check(outputs::SPECS, CASES, outputs::ABSENT);
}
