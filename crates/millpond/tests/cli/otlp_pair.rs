//! The output `otlp` of one Millpond sends to the input `otlp` of another, while both are killed and connections are cut.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use testkit::cutter::Cutter;
use testkit::ports::free_port;

use crate::program::{Folder, run};
use crate::running::{Service, eventually};

/// How many events are sent.
const EVENTS: usize = 100_000;

/// Two tiers in a folder: an agent that follows a log, and an aggregator.
struct Tiers {
    folder: Folder,
    agent: Folder,
    aggregator: Folder,
    port: u16,
}

impl Tiers {
    /// With a log of sample lines.
    fn new(events: usize) -> Self {
        let folder = Folder::new();
        let log = folder.path("access.log");
        let more = events + events / 10;
        run(&format!(
            "generate apache count={more} seed=7 | file {log} codec=text"
        ))
        .expect(0);
        // A line that is cut off has the time at which it is read, which is another one after a kill.
        let is_whole = |line: &&str| line.matches('"').count() == 6;
        let text = std::fs::read_to_string(&log).expect("lines");
        let lines = text.lines().filter(is_whole).take(events);
        let lines: String = lines.flat_map(|line| [line, "\n"]).collect();
        assert_eq!(lines.lines().count(), events);
        folder.write("access.log", lines);
        Self {
            folder,
            agent: Folder::new(),
            aggregator: Folder::new(),
            port: free_port(),
        }
    }

    /// Starts one of the two, which writes what it says into a folder of its own.
    fn start(own: &Folder, yaml: &str) -> Service {
        let path = own.write("service.yaml", yaml);
        Service::start(own, &["run", &path])
    }

    /// Parses lines and sends them to a port; writes what it sends to `sent.ndjson` as well.
    fn agent(&self, protocol: &str, port: u16) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'], follow: true }}
    queue: disk
    processors:
      - grok: {{ pattern: '%{{COMBINEDAPACHELOG}}' }}
      - date: {{ field: timestamp, formats: ['dd/MMM/yyyy:HH:mm:ss Z'] }}
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - otlp: {{ url: 'http://127.0.0.1:{port}', protocol: {protocol}, timeout: 5s, batch: {{ max_events: 500, max_age: 20ms }} }}
      - file: {{ path: '{sent}' }}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = self.agent.path("data"),
            log = self.folder.path("access.log"),
            sent = self.folder.path("sent.ndjson"),
        );
        Self::start(&self.agent, &yaml)
    }

    /// Writes what it receives to `received.ndjson`, with the ids of the events.
    fn aggregator(&self) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      otlp: {{ address: {port} }}
    queue: disk
    processors:
      - set: {{ fields: {{ received_id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{received}' }}
",
            data = self.aggregator.path("data"),
            port = self.port,
            received = self.folder.path("received.ndjson"),
        );
        Self::start(&self.aggregator, &yaml)
    }

    /// The events in a file by their ids, each of which stands for one event.
    fn events(&self, file: &str, id: &str) -> BTreeMap<String, Value> {
        let text = std::fs::read_to_string(self.folder.path(file)).unwrap_or_default();
        let mut events = BTreeMap::new();
        for line in text.lines() {
            // The last line may be half written.
            let Ok(mut event) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let id = event[id].as_str().expect("an id").to_owned();
            if let Some(object) = event.as_object_mut() {
                object.remove("received_id");
            }
            let before = events.insert(id, event.clone());
            assert!(before.is_none_or(|before| before == event), "{line}");
        }
        events
    }

    fn lines(&self, file: &str) -> usize {
        let text = std::fs::read(self.folder.path(file)).unwrap_or_default();
        text.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Waits until everything is there, and compares it.
    fn expect_all(&self, events: usize) {
        eventually("all events", || {
            self.lines("received.ndjson") >= events
                && self.lines("sent.ndjson") >= events
                && self.events("received.ndjson", "received_id").len() >= events
        });
        let received = self.events("received.ndjson", "received_id");
        let sent = self.events("sent.ndjson", "id");
        assert_eq!((received.len(), sent.len()), (events, events));
        for (id, event) in &sent {
            assert_eq!(received.get(id), Some(event), "{id}");
        }
    }
}

#[test]
fn every_event_arrives_once_with_its_id() {
    for protocol in ["http", "grpc"] {
        let tiers = Tiers::new(EVENTS);
        let aggregator = tiers.aggregator();
        let agent = tiers.agent(protocol, tiers.port);
        tiers.expect_all(EVENTS);
        agent.stop();
        aggregator.stop();
        assert_eq!(tiers.lines("received.ndjson"), EVENTS, "{protocol}");
    }
}

#[test]
fn nothing_is_missing_after_kills_of_both_and_cut_connections() {
    for protocol in ["http", "grpc"] {
        let tiers = Tiers::new(EVENTS);
        let address = SocketAddr::from(([127, 0, 0, 1], tiers.port));
        let cutter = Cutter::start(address, 11, 400_000);
        let mut aggregator = tiers.aggregator();
        let mut agent = tiers.agent(protocol, cutter.address().port());
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..6 {
            let before = tiers.lines("received.ndjson");
            eventually("some more events", || {
                tiers.lines("received.ndjson") > before || before >= EVENTS
            });
            std::thread::sleep(Duration::from_millis(random.u64(0..150)));
            if round % 2 == 0 {
                aggregator.kill();
                aggregator = tiers.aggregator();
            } else {
                agent.kill();
                agent = tiers.agent(protocol, cutter.address().port());
            }
        }
        tiers.expect_all(EVENTS);
        assert!(cutter.cut() > 0, "connections were cut");
        agent.stop();
        aggregator.stop();
    }
}
