//! The outputs `logstash` and `forward`: to strict receivers, and to another Millpond, through kills, cuts and refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use testkit::authority::Authority;
use testkit::cutter::Cutter;
use testkit::ports::free_port;
use testkit::receiver::{Arrived, Receiver, Reply, Speaks};

use crate::program::{Ended, Folder, millpond, run};
use crate::running::{Service, append, eventually, numbered};

/// An output with the input of another Millpond that receives from it.
struct Pair {
    speaks: Speaks,
    output: &'static str,
    input: &'static str,
    /// What makes the output carry ids.
    ids: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        speaks: Speaks::Lumberjack,
        output: "logstash",
        input: "beats",
        ids: "",
    },
    Pair {
        speaks: Speaks::Forward,
        output: "forward",
        input: "forward",
        ids: ", event_ids: true",
    },
];

/// The message of an event that arrived.
fn message(event: &Arrived) -> String {
    let document: Value = serde_json::from_str(&event.document).expect("JSON");
    document["message"].as_str().expect("text").to_owned()
}

/// How often each message arrived. Every message has one id, whichever attempt it came with.
fn counted(events: &[Arrived], has_ids: bool) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for event in events {
        let message = message(event);
        if has_ids {
            let id = event.id.as_ref().expect("an id");
            let before = ids.insert(id, message.clone());
            assert!(before.is_none_or(|before| before == message), "{id}");
        }
        *counts.entry(message).or_default() += 1;
    }
    assert!(!has_ids || ids.len() == counts.len(), "one id a message");
    counts
}

fn expect_all(counts: &BTreeMap<String, usize>, lines: &str) {
    let lost = lines.lines().filter(|line| !counts.contains_key(*line));
    assert_eq!(lost.count(), 0, "lost");
    assert_eq!(counts.len(), lines.lines().count(), "nothing else came");
}

/// Sends a log once, and gives up soon.
fn run_briefly(folder: &Folder, log: &str, output: &str) -> Ended {
    let yaml = format!(
        "pipelines: {{ one: {{ input: {{ file: {{ paths: ['{log}'], follow: false }} }}, output: {{ {output} }},
          retry: {{ initial: 20ms, give_up_after: 300ms }} }} }}"
    );
    let path = folder.write("briefly.yaml", yaml);
    millpond(&["run", &path])
}

#[test]
fn every_event_arrives_once_with_its_id() {
    let folder = Folder::new();
    let lines = numbered("a", 0..30_000);
    let log = folder.write("a.log", &lines);
    for Pair { speaks, output, .. } in PAIRS {
        for settings in [
            "",
            "connections=1 pipelining=1 batch.max_events=1000",
            match speaks {
                Speaks::Lumberjack => "compression_level=0",
                Speaks::Forward => "compression=zstd event_ids=true",
            },
            match speaks {
                Speaks::Lumberjack => "event_ids=false",
                Speaks::Forward => "compression=gzip tag=app.web",
            },
        ] {
            let receiver = Receiver::start(0, speaks);
            let to = receiver.address();
            run(&format!("file {log} | {output} {to} {settings}")).expect(0);
            assert_eq!(receiver.faults(), Vec::<String>::new());
            let arrived = receiver.arrived();
            let has_ids = match speaks {
                Speaks::Lumberjack => !settings.contains("event_ids=false"),
                Speaks::Forward => settings.contains("event_ids=true"),
            };
            let counts = counted(&arrived, has_ids);
            expect_all(&counts, &lines);
            assert!(counts.values().all(|&count| count == 1), "{settings}");
            let tag = match (speaks, settings.contains("tag=")) {
                (Speaks::Lumberjack, _) => "",
                (Speaks::Forward, true) => "app.web",
                (Speaks::Forward, false) => "millpond",
            };
            assert!(arrived.iter().all(|event| event.tag == tag));
        }
    }
}

#[test]
fn acknowledgements_in_steps_and_keep_alives_are_understood() {
    let folder = Folder::new();
    let lines = numbered("a", 0..5000);
    let log = folder.write("a.log", &lines);
    let receiver = Receiver::with(0, Speaks::Lumberjack, |number| match number % 3 {
        0 => Reply::InSteps(7),
        1 => Reply::KeepAlives(3),
        _ => Reply::Acknowledge,
    });
    let to = receiver.address();
    // Shorter than it takes until all keep-alives were sent.
    let settings = "timeout=120ms connections=1 batch.max_events=500";
    run(&format!("file {log} | logstash {to} {settings}")).expect(0);
    assert_eq!(receiver.faults(), Vec::<String>::new());
    let counts = counted(&receiver.arrived(), true);
    expect_all(&counts, &lines);
    assert!(counts.values().all(|&count| count == 1));
}

#[test]
fn what_was_acknowledged_of_a_window_is_not_sent_again() {
    let folder = Folder::new();
    let lines = numbered("a", 0..2000);
    let log = folder.write("a.log", &lines);
    let receiver = Receiver::with(0, Speaks::Lumberjack, |number| match number % 2 {
        0 => Reply::CloseAfter(60),
        _ => Reply::Acknowledge,
    });
    let to = receiver.address();
    let settings = "connections=1 pipelining=1 batch.max_events=100 concurrency=1";
    run(&format!("file {log} | logstash {to} {settings}")).expect(0);
    assert_eq!(receiver.faults(), Vec::<String>::new());
    let arrived = receiver.arrived();
    expect_all(&counted(&arrived, true), &lines);
    let mut acknowledged = BTreeSet::new();
    for event in &arrived {
        assert!(
            !acknowledged.contains(&event.id),
            "{:?} was sent again",
            event.id
        );
        if event.is_acknowledged {
            acknowledged.insert(event.id.clone());
        }
    }
    assert!(receiver.connections() > 5, "connections were closed");
}

#[test]
fn a_receiver_that_is_silent_or_talks_nonsense_is_left() {
    let folder = Folder::new();
    let lines = numbered("a", 0..3000);
    let log = folder.write("a.log", &lines);
    for Pair { speaks, output, .. } in PAIRS {
        let receiver = Receiver::with(0, speaks, |number| match number {
            1 => Reply::Silence,
            3 => Reply::Nonsense,
            5 => Reply::CloseAfter(0),
            _ => Reply::Acknowledge,
        });
        let to = receiver.address();
        let settings = "timeout=300ms batch.max_events=200";
        let ended = run(&format!("file {log} | {output} {to} {settings}")).expect(0);
        assert_eq!(receiver.faults(), Vec::<String>::new());
        expect_all(&counted(&receiver.arrived(), false), &lines);
        assert!(
            ended.err.contains("no acknowledgement within 300ms")
                || ended.err.contains("the server"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn another_host_gets_what_one_does_not_take() {
    let folder = Folder::new();
    let lines = numbered("a", 0..20_000);
    let log = folder.write("a.log", &lines);
    for Pair { speaks, output, .. } in PAIRS {
        let receivers = [Receiver::start(0, speaks), Receiver::start(0, speaks)];
        let [a, b] = [0, 1].map(|host| receivers[host].address());
        let away = free_port();
        let hosts = format!("{a} 127.0.0.1:{away} {b}");
        run(&format!(
            "file {log} | {output} {hosts} batch.max_events=500"
        ))
        .expect(0);
        let both: Vec<Arrived> = receivers.iter().flat_map(Receiver::arrived).collect();
        let counts = counted(&both, false);
        expect_all(&counts, &lines);
        assert!(counts.values().all(|&count| count == 1));
        for receiver in &receivers {
            let share = receiver.events() as f64 / 20_000.0;
            assert!((0.3..0.7).contains(&share), "{output}: {share}");
        }
    }
}

#[test]
fn a_run_to_nobody_says_so_and_fails() {
    let folder = Folder::new();
    let log = folder.write("a.log", "one\n");
    for Pair { output, .. } in PAIRS {
        let port = free_port();
        let to = format!("{output}: {{ hosts: '127.0.0.1:{port}' }}");
        let ended = run_briefly(&folder, &log, &to).expect(1);
        let expected = format!("127.0.0.1:{port}: cannot connect: Connection refused");
        assert!(ended.err.contains(&expected), "{}", ended.err);
    }
}

/// An agent that follows a log and ships it to an aggregator, both with disk queues.
struct Tiers {
    agent: Folder,
    aggregator: Folder,
    port: u16,
    written: String,
}

impl Tiers {
    fn new() -> Self {
        Self {
            agent: Folder::new(),
            aggregator: Folder::new(),
            port: free_port(),
            written: String::new(),
        }
    }

    fn write(&mut self, count: usize) {
        let from = self.written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&self.agent.path("app.log"), &lines);
        self.written.push_str(&lines);
    }

    fn start_agent(&self, pair: &Pair, to: SocketAddr) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  ship:
    input:
      file: {{ paths: ['{log}'], follow: true }}
    queue: {{ disk: {{ segment_bytes: 64KiB, min_free_bytes: 0 }} }}
    outputs:
      - {output}: {{ hosts: '{to}', timeout: 5s, batch: {{ max_events: 300, max_age: 20ms }}{ids} }}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = self.agent.path("data"),
            log = self.agent.path("app.log"),
            output = pair.output,
            ids = pair.ids,
        );
        let path = self.agent.write("agent.yaml", yaml);
        Service::start(&self.agent, &["run", &path])
    }

    fn start_aggregator(&self, pair: &Pair) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  collect:
    input:
      {input}: {{ address: {port} }}
    queue: {{ disk: {{ segment_bytes: 64KiB, min_free_bytes: 0 }} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{out}' }}
",
            data = self.aggregator.path("data"),
            input = pair.input,
            port = self.port,
            out = self.aggregator.path("out.ndjson"),
        );
        let path = self.aggregator.write("aggregator.yaml", yaml);
        Service::start(&self.aggregator, &["run", &path])
    }

    /// Messages by id, as the aggregator wrote them. An id stands for one message, and a message has one id.
    fn arrived(&self) -> BTreeMap<String, String> {
        let out = std::fs::read_to_string(self.aggregator.path("out.ndjson")).unwrap_or_default();
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        let mut events = BTreeMap::new();
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let text = |field: &str| event[field].as_str().expect("text").to_owned();
            let before = events.insert(text("id"), text("message"));
            assert!(before.is_none_or(|before| before == text("message")));
        }
        events
    }
}

/// Kills of both tiers at random, and connections that are cut all the time: nothing is missing, and each line has one id.
fn survives_kills(pair: &Pair, kills: u64) {
    let seed = fastrand::u64(1..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tiers = Tiers::new();
    let aggregator_at = SocketAddr::from(([127, 0, 0, 1], tiers.port));
    let cutter = Cutter::start(aggregator_at, seed, 400_000);
    let mut aggregator = tiers.start_aggregator(pair);
    for kill in 0..kills {
        tiers.write(2000);
        let agent = tiers.start_agent(pair, cutter.address());
        std::thread::sleep(Duration::from_millis(random.u64(20..500)));
        if kill % 3 == 1 {
            aggregator.kill();
            std::thread::sleep(Duration::from_millis(random.u64(0..200)));
            aggregator = tiers.start_aggregator(pair);
        }
        agent.kill();
    }
    tiers.write(2000);
    let agent = tiers.start_agent(pair, cutter.address());
    let count = tiers.written.lines().count();
    eventually("every line", || tiers.arrived().len() >= count);
    agent.stop();
    aggregator.stop();
    let arrived = tiers.arrived();
    let messages: BTreeSet<&String> = arrived.values().collect();
    let lines: BTreeSet<String> = tiers.written.lines().map(str::to_owned).collect();
    assert!(lines.iter().eq(messages), "seed {seed}: exactly the lines");
    assert_eq!(arrived.len(), count, "seed {seed}: one id a line");
}

#[test]
fn two_tiers_survive_kills_with_lumberjack() {
    survives_kills(&PAIRS[0], 8);
}

#[test]
fn two_tiers_survive_kills_with_forward() {
    survives_kills(&PAIRS[1], 8);
}

#[test]
fn both_sides_can_require_certificates() {
    let authority = Authority::new();
    authority.issue("server", "localhost");
    authority.issue("agent", "agent");
    let stranger = Authority::new();
    for Pair { output, input, .. } in PAIRS {
        let folder = Folder::new();
        let log = folder.write("a.log", numbered("a", 0..100));
        let port = free_port();
        let out = folder.path("out.ndjson");
        let tls = authority
            .with_folder("tls.cert=DIR/server.pem tls.key=DIR/server.key tls.client_ca=DIR/ca.pem");
        let pipeline = format!("{input} {port} {tls} | file {out}");
        let mut service = Service::start(&folder, &["run", &pipeline]);
        service.until("it listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let send = |tls: &str| {
            let tls = authority.with_folder(tls);
            let to = format!("{output}: {{ hosts: 'localhost:{port}'{tls} }}");
            run_briefly(&folder, &log, &to)
        };
        let certificate = "cert: DIR/agent.pem, key: DIR/agent.key";
        send(&format!(", tls: {{ ca: DIR/ca.pem, {certificate} }}")).expect(0);
        let ended = send(", tls: { ca: DIR/ca.pem }").expect(1);
        assert!(
            ended.err.contains("closed the connection")
                || ended.err.contains("CertificateRequired"),
            "{}",
            ended.err
        );
        let foreign = stranger.path("ca.pem");
        let ended = send(&format!(
            ", tls: {{ ca: {}, {certificate} }}",
            foreign.display()
        ))
        .expect(1);
        assert!(ended.err.contains("UnknownIssuer"), "{}", ended.err);
        let ended = send("").expect(1);
        assert!(ended.err.contains("expects TLS"), "{}", ended.err);
        service.stop();
        let arrived = folder.read("out.ndjson");
        assert_eq!(arrived.lines().count(), 100, "those of the right client");
    }
}

#[test]
fn a_shared_key_is_proved_by_both_sides() {
    let folder = Folder::new();
    let log = folder.write("a.log", numbered("a", 0..100));
    let port = free_port();
    let out = folder.path("out.ndjson");
    let yaml = format!(
        "pipelines: {{ one: {{ input: {{ forward: {{ address: {port}, shared_key: secret-of-both, users: {{ agent: password }} }} }},
          output: {{ file: {{ path: '{out}' }} }} }} }}"
    );
    let path = folder.write("service.yaml", yaml);
    let mut service = Service::start(&folder, &["run", &path]);
    service.until("it listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let send = |settings: &str| run(&format!("file {log} | forward 127.0.0.1:{port} {settings}"));
    send("shared_key=secret-of-both username=agent password=password").expect(0);
    for (settings, part) in [
        (
            "shared_key=wrong-key-here username=agent password=password",
            "refuses the credentials: shared_key mismatch",
        ),
        (
            "shared_key=secret-of-both username=agent password=wrong",
            "refuses the credentials: username/password mismatch",
        ),
        ("shared_key=secret-of-both", "set `username` and `password`"),
    ] {
        let ended = send(settings).expect(1);
        assert!(ended.err.contains(part), "{}", ended.err);
        assert!(!ended.err.contains("wrong-key-here"), "{}", ended.err);
    }
    service.stop();
    assert_eq!(folder.read("out.ndjson").lines().count(), 100);
}

#[test]
fn records_of_forward_pass_untouched_with_their_tag_and_time() {
    let (a, b) = (Folder::new(), free_port());
    let receiver = Receiver::start(0, Speaks::Forward);
    let pipeline = format!(
        "forward {b} add_fields=false | forward {}",
        receiver.address()
    );
    let mut service = Service::start(&a, &["run", &pipeline]);
    service.until("it listens", || {
        std::net::TcpStream::connect(("127.0.0.1", b)).is_ok()
    });
    let log = a.write("a.ndjson", "{\"a\":1.50,\"b\":[{}]}\n{\"message\":\"x\"}\n");
    let set = "set @timestamp = timestamp('2026-01-02T03:04:05Z')";
    let to = format!("forward 127.0.0.1:{b} tag=app");
    millpond(&[
        "run",
        &format!("file {log} add_fields=false | {set} | {to}"),
    ])
    .expect(0);
    service.stop();
    assert_eq!(receiver.faults(), Vec::<String>::new());
    let arrived = receiver.arrived();
    let documents: Vec<&str> = arrived.iter().map(|event| &*event.document).collect();
    assert_eq!(
        documents,
        [
            r#"{"a":1.5,"b":[{}],"@timestamp":"2026-01-02T03:04:05.000Z"}"#,
            r#"{"message":"x","@timestamp":"2026-01-02T03:04:05.000Z"}"#
        ]
    );
    assert!(arrived.iter().all(|event| event.tag == "app"));
}
