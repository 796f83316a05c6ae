//! The output and the input `kafka` with a real broker.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use testkit::authority::Authority;
use testkit::kafka::KafkaBroker;

use crate::program::{Folder, millpond, run};
use crate::running::{Service, append, eventually, numbered};

/// A service that follows `app.log` and sends its lines to the topic `app`.
fn send(folder: &Folder, broker: &KafkaBroker) -> Service {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'] }}
    outputs:
      - kafka: {{ brokers: '{broker}', topic: app, key: '%{{log.file.path}}', event_ids: true, batch: {{ max_events: 200, max_age: 20ms }} }}
    retry: {{ initial: 20ms, max: 200ms }}
",
        data = folder.path("sender"),
        log = folder.path("app.log"),
        broker = broker.address(),
    );
    let path = folder.write("sender.yaml", yaml);
    Service::start(folder, &["run", &path])
}

/// A service that reads the topic `app` into a file, with the ids of the events.
fn receive(folder: &Folder, broker: &KafkaBroker) -> Service {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input:
      kafka: {{ brokers: '{broker}', topics: '^app$', group: test, event_ids: true, options: {{ session.timeout.ms: 6000 }} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{out}' }}
",
        data = folder.path("receiver"),
        out = folder.path("out.ndjson"),
        broker = broker.address(),
    );
    let path = folder.write("receiver.yaml", yaml);
    Service::start(folder, &["run", &path])
}

/// A field of all events in the file, each value once.
fn values(folder: &Folder, field: &str) -> BTreeSet<String> {
    let out = std::fs::read_to_string(folder.path("out.ndjson")).unwrap_or_default();
    // The last line may be half written.
    let whole = out.rfind('\n').map_or("", |end| &out[..end]);
    let value = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("a JSON line");
        event[field].as_str().expect("text").to_owned()
    };
    whole.lines().map(value).collect()
}

#[test]
fn every_line_is_in_the_topic_once_and_comes_back_after_kills() {
    let Some(mut broker) = KafkaBroker::start() else {
        return;
    };
    let folder = Folder::new();
    let mut written = String::new();
    let mut write = |count: usize| {
        let from = written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&folder.path("app.log"), &lines);
        written.push_str(&lines);
        written.lines().count()
    };
    write(2000);
    let sender = send(&folder, &broker);
    // The broker is killed under load, and is away for a while.
    for _ in 0..2 {
        write(3000);
        std::thread::sleep(Duration::from_millis(300));
        broker.kill();
        write(2000);
        std::thread::sleep(Duration::from_secs(1));
        broker.start_again();
    }
    let count = write(1000);
    let receiver = receive(&folder, &broker);
    eventually("some events", || !values(&folder, "id").is_empty());
    receiver.kill();
    let mut receiver = receive(&folder, &broker);
    receiver.until("every event", || values(&folder, "message").len() == count);
    let said = sender.stop();
    assert!(!said.contains("not delivered"), "{said}");
    let said = receiver.stop();
    assert!(!said.contains("not delivered"), "{said}");
    assert_eq!(broker.count("app"), count as u64, "each once");
    let expected: BTreeSet<String> = written.lines().map(str::to_owned).collect();
    assert_eq!(values(&folder, "message"), expected);
    assert_eq!(values(&folder, "id").len(), count, "each has one id");
    // Everything was committed.
    let rest = run(&format!(
        "kafka {} topics=app group=test until=end | stdout",
        broker.address()
    ));
    assert_eq!(rest.expect(0).events(), Vec::<Value>::new());
}

/// The settings `tls` and `sasl` of a client with a certificate.
fn secured(authority: &Authority, sasl: &str) -> String {
    let tls = "tls: { ca: 'DIR/ca.pem', cert: 'DIR/client.pem', key: 'DIR/client.key' }";
    format!("{}, sasl: {{ {sasl} }}", authority.with_folder(tls))
}

#[test]
fn clients_prove_who_they_are_over_tls_in_every_way() {
    let authority = Authority::new();
    let Some(broker) = KafkaBroker::start_secure(&authority) else {
        return;
    };
    authority.issue("client", "shipper");
    let folder = Folder::new();
    let address = broker.secure_address();
    append(&folder.path("app.log"), &numbered("app", 0..50));
    let log = folder.path("app.log");
    let user = |password: &str| format!("user: shipper, password: {password}");
    // {"alg":"none"}, {"sub":"shipper","exp":4102444800} and no signature.
    let token =
        "token: eyJhbGciOiJub25lIn0.eyJzdWIiOiJzaGlwcGVyIiwiZXhwIjo0MTAyNDQ0ODAwfQ.".to_owned();
    for (index, (mechanism, proof)) in [
        ("PLAIN", user("secret")),
        ("SCRAM-SHA-256", user("secret")),
        ("SCRAM-SHA-512", user("secret")),
        ("OAUTHBEARER", token),
    ]
    .into_iter()
    .enumerate()
    {
        let client = secured(&authority, &format!("mechanism: {mechanism}, {proof}"));
        let out = folder.path(&format!("out{index}.ndjson"));
        let common = format!("brokers: '{address}', {client}");
        let yaml = format!(
            "pipelines:
  to:
    input: {{ file: {{ paths: ['{log}'], follow: false }} }}
    output: {{ kafka: {{ topic: t{index}, {common} }} }}
"
        );
        let path = folder.write(&format!("to{index}.yaml"), yaml);
        millpond(&["run", &path]).expect(0);
        let yaml = format!(
            "pipelines:
  from:
    input: {{ kafka: {{ topics: t{index}, group: g, until: end, {common} }} }}
    output: {{ file: '{out}' }}
"
        );
        let path = folder.write(&format!("from{index}.yaml"), yaml);
        millpond(&["run", &path]).expect(0);
        let read = std::fs::read_to_string(&out).expect("events");
        assert_eq!(read.lines().count(), 50, "{mechanism}");
    }
    // A wrong password, and no certificate of its own.
    let wrong = secured(
        &authority,
        &format!("mechanism: SCRAM-SHA-512, {}", user("guess")),
    );
    let without = authority.with_folder(
        "tls: { ca: 'DIR/ca.pem' }, sasl: { mechanism: PLAIN, user: shipper, password: secret }",
    );
    for (client, part) in [(wrong, "uthentication failed"), (without, "certificate")] {
        let yaml = format!(
            "pipelines:
  to:
    input: {{ file: {{ paths: ['{log}'], follow: false }} }}
    output: {{ kafka: {{ topic: never, brokers: '{address}', {client} }} }}
    retry: {{ initial: 20ms, max: 200ms }}
"
        );
        let path = folder.write("refused.yaml", yaml);
        let service = Service::start(&folder, &["run", &path]);
        eventually("the refusal", || service.said().contains(part));
        service.kill();
    }
    assert_eq!(broker.count("t0"), 50);
}

#[test]
fn a_broker_that_is_away_is_reported_and_a_stop_ends_soon() {
    let folder = Folder::new();
    let port = testkit::ports::free_port();
    let settings = format!("brokers: '127.0.0.1:{port}'");
    for (name, component) in [
        (
            "in",
            format!(
                "input: {{ kafka: {{ {settings}, topics: t, group: g }} }}\n    output: discard"
            ),
        ),
        (
            "out",
            format!(
                "input: {{ generate: {{ format: apache, rate: 10 }} }}\n    output: {{ kafka: {{ {settings}, topic: t }} }}"
            ),
        ),
    ] {
        let yaml = format!("shutdown_deadline: 1s\npipelines:\n  one:\n    {component}\n");
        let path = folder.write(&format!("{name}.yaml"), yaml);
        let mut service = Service::start(&folder, &["run", &path]);
        service.until_said("Connection refused");
        let begin = std::time::Instant::now();
        service.signal(rustix::process::Signal::TERM);
        service.end();
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(10), "{name}: {took:?}");
    }
}

#[test]
fn options_are_checked_before_anything_runs() {
    let pipeline = "generate apache count=1 | kafka b topic=t options.linger=3";
    let said = millpond(&["check", pipeline]).expect(2).err;
    assert!(said.contains("linger"), "{said}");
}
