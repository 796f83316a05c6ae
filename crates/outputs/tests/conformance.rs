//! Every output does what all outputs must do.

use testkit::conformance::output::{OutputCase, check};
use testkit::http::{Answer, HttpServer};
use testkit::receiver::{Receiver, Speaks};

static CASES: &[OutputCase] = &[
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
        name: "logstash",
        settings: |place| format!("hosts: '127.0.0.1:{}'", place.port),
        remote: Some(|place| {
            let server = Receiver::start(place.port, Speaks::Lumberjack);
            Box::new(move || server.events())
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
        name: "stdout",
        settings: |_| "{}".to_owned(),
        // It is the test's own.
        remote: None,
    },
];

#[test]
fn every_output_conforms() {
    check(outputs::SPECS, CASES);
}
