//! Every output does what all outputs must do.

use testkit::conformance::output::{OutputCase, check};
use testkit::http::{Answer, HttpServer};

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
        name: "http",
        settings: |place| format!("url: 'http://127.0.0.1:{}/events'", place.port),
        remote: Some(|place| {
            let server = HttpServer::start_at(place.port, None, |_, _| Answer::new(200));
            Box::new(move || server.lines().len())
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
];

#[test]
fn every_output_conforms() {
    check(outputs::SPECS, CASES);
}
