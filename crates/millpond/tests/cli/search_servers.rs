//! The `elasticsearch` output with real servers: OpenSearch, and for `bench/elasticsearch-torture`, which is the long form of this,
//! Elasticsearch too.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testkit::cutter::Cutter;
use testkit::ports::free_port;
use testkit::search::SearchServer;

use crate::program::{Folder, run, run_on};
use crate::running::{Service, append, numbered};

/// A number of the environment, for runs that are longer than those of the gate.
fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(format!("TORTURE_{name}")).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

fn server_name() -> String {
    std::env::var("TORTURE_SERVER").unwrap_or_else(|_| "opensearch".to_owned())
}

#[expect(clippy::print_stdout, reason = "which is what the test runner keeps")]
fn report(text: &str) {
    println!("{text}");
}

/// A service that follows a log and sends it.
struct Place {
    folder: Folder,
    written: String,
}

impl Place {
    fn new() -> Self {
        let (folder, written) = (Folder::new(), String::new());
        Self { folder, written }
    }

    fn write(&mut self, count: usize) {
        let from = self.written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&self.folder.path("app.log"), &lines);
        self.written.push_str(&lines);
    }

    fn start(&self, queue: &str, settings: &str) -> Service {
        self.start_with(queue, &format!("elasticsearch: {{ {settings} }}"))
    }

    fn start_with(&self, queue: &str, output: &str) -> Service {
        let path = self.configure(queue, output);
        Service::start(&self.folder, &["run", &path])
    }

    /// Puts the configuration in its place, whole: a service that is starting may be about to read it. Gives its path.
    fn configure(&self, queue: &str, output: &str) -> String {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'] }}
    queue: {queue}
    outputs:
      - {output}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = self.folder.path("data"),
            log = self.folder.path("app.log"),
        );
        let (new, path) = (
            self.folder.write("service.yaml.new", yaml),
            self.folder.path("service.yaml"),
        );
        std::fs::rename(new, &path).expect("a writable folder");
        path
    }

    /// Checks that the index holds exactly the lines that were written, each once.
    fn expect_lines(&self, server: &SearchServer, index: &str) {
        let documents = server.documents(index, "log.offset");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for document in &documents {
            let message = document["message"].as_str().expect("text");
            *counts.entry(message).or_default() += 1;
        }
        let twice = counts.values().filter(|&&count| count > 1).count();
        let lines = self.written.lines();
        let lost = lines.filter(|line| !counts.contains_key(line)).count();
        let (found, written) = (counts.len(), self.written.lines().count());
        assert_eq!((lost, twice, found), (0, 0, written), "lost, twice, found");
    }
}

/// Disk queues with small segments, so that there are many of them.
const DISK: &str = "{ disk: { segment_bytes: 64KiB, min_free_bytes: 0, cache_bytes: 64KiB } }";

const MEMORY: &str = "{ memory: { max_bytes: 1MiB } }";

/// Kills of Millpond and of the server, reloads in between, and connections that are cut all the time: the index holds every line once.
fn survives(queue: &str, kills: u64, lines_each: usize) {
    let Some(mut server) = SearchServer::start(&server_name(), &[]) else {
        return;
    };
    let seed = setting("SEED", 0);
    let seed = if seed == 0 { fastrand::u64(1..) } else { seed };
    report(&format!("seed {seed}, queue {queue}"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut place = Place::new();
    let cutter = Cutter::start(server.address(), seed, 300_000);
    let settings = |max_events: u64| {
        format!(
            "hosts: 'http://{}', index: app, compression: none, timeout: 5s, \
             batch: {{ max_events: {max_events}, max_age: 20ms }}",
            cutter.address()
        )
    };
    let mut reloads = 0;
    let mut reload = |place: &Place, service: &mut Service, random: &mut fastrand::Rng| {
        reloads += 1;
        let output = format!("elasticsearch: {{ {} }}", settings(200 + reloads));
        place.configure(queue, &output);
        service.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(random.u64(0..200)));
    };
    for kill in 0..kills {
        place.write(lines_each);
        let mut service = place.start(queue, &settings(200));
        std::thread::sleep(Duration::from_millis(random.u64(20..600)));
        for _ in 0..random.u64(0..4) {
            reload(&place, &mut service, &mut random);
        }
        if kill % 5 == 1 {
            server.kill();
            std::thread::sleep(Duration::from_millis(random.u64(0..300)));
            server.start_again();
        }
        service.kill();
    }
    place.write(lines_each);
    let mut service = place.start(queue, &settings(200));
    for _ in 0..3 {
        reload(&place, &mut service, &mut random);
        service.until_said("configuration reloaded");
    }
    let count = place.written.lines().count() as u64;
    service.until("every line", || server.count("app") >= Some(count));
    let said = service.stop();
    assert!(!said.contains("refused"), "{said}");
    place.expect_lines(&server, "app");
    let cut = cutter.cut();
    report(&format!(
        "{count} lines, {kills} kills, {reloads} reloads, {cut} connections cut"
    ));
}

#[test]
fn the_index_holds_every_line_once_after_kills() {
    let kills = setting("KILLS", 4);
    survives(DISK, kills, setting("LINES", 1000) as usize);
}

#[test]
fn the_index_holds_every_line_once_after_kills_without_a_disk_queue() {
    let kills = setting("KILLS", 3);
    survives(MEMORY, kills, setting("LINES", 1000) as usize);
}

/// The aggregator of a chain: what agents forward to this port, into an index.
fn start_aggregator(folder: &Folder, port: u16, server: &SearchServer) -> Service {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  collect:
    input:
      forward: {{ address: {port} }}
    queue: {DISK}
    outputs:
      - elasticsearch: {{ hosts: '{url}', index: app, batch: {{ max_events: 200, max_age: 20ms }} }}
    retry: {{ initial: 20ms, max: 200ms }}
",
        data = folder.path("data"),
        url = server.url(),
    );
    let path = folder.write("service.yaml", yaml);
    Service::start(folder, &["run", &path])
}

#[test]
fn the_index_behind_two_tiers_holds_every_line_once_after_kills_of_both() {
    let Some(server) = SearchServer::start(&server_name(), &[]) else {
        return;
    };
    let kills = setting("KILLS", 4);
    let lines = setting("LINES", 1000) as usize;
    let seed = fastrand::u64(1..);
    report(&format!("seed {seed}"));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut agent, folder, port) = (Place::new(), Folder::new(), free_port());
    let cutter = Cutter::start(SocketAddr::from(([127, 0, 0, 1], port)), seed, 300_000);
    let output = format!(
        "forward: {{ hosts: '{}', event_ids: true, timeout: 5s, batch: {{ max_events: 200, max_age: 20ms }} }}",
        cutter.address()
    );
    let mut aggregator = start_aggregator(&folder, port, &server);
    for kill in 0..kills {
        agent.write(lines);
        let shipper = agent.start_with(DISK, &output);
        std::thread::sleep(Duration::from_millis(random.u64(20..600)));
        if kill % 2 == 1 {
            aggregator.kill();
            std::thread::sleep(Duration::from_millis(random.u64(0..200)));
            aggregator = start_aggregator(&folder, port, &server);
        }
        shipper.kill();
    }
    agent.write(lines);
    let mut shipper = agent.start_with(DISK, &output);
    let count = agent.written.lines().count() as u64;
    shipper.until("every line", || server.count("app") >= Some(count));
    shipper.stop();
    aggregator.stop();
    agent.expect_lines(&server, "app");
    report(&format!(
        "{count} lines, {kills} kills, {} cuts",
        cutter.cut()
    ));
}

#[test]
fn only_what_is_wrong_with_a_document_refuses_it() {
    let Some(server) = SearchServer::start("opensearch", &[]) else {
        return;
    };
    let url = server.url();
    server.ask(
        "PUT",
        "/typed",
        r#"{"mappings":{"properties":{"n":{"type":"long"}}}}"#,
    );
    let documents = b"{\"n\":1}\n{\"n\":\"one\"}\n{\"n\":{\"x\":1}}\n{\"n\":2}\n";
    let ended = run_on(
        documents,
        &format!("stdin codec=json | elasticsearch {url} index=typed"),
    );
    assert!(
        ended
            .err
            .contains("mapper_parsing_exception: failed to parse field [n] of type [long]"),
        "{}",
        ended.err
    );
    assert_eq!(server.count("typed"), Some(2));

    // What a person has to mend pauses, says why, and loses nothing.
    for (index, name, begin, end, cause) in [
        (
            "blocked",
            "/blocked/_settings",
            r#"{"index.blocks.write":true}"#,
            r#"{"index.blocks.write":false}"#,
            "cluster_block_exception: index [blocked] blocked by: [FORBIDDEN/8/index write (api)];",
        ),
        (
            "full",
            "/full/_settings",
            r#"{"index.blocks.read_only_allow_delete":true}"#,
            r#"{"index.blocks.read_only_allow_delete":null}"#,
            "disk usage exceeded flood-stage watermark",
        ),
        (
            "missing",
            "/_cluster/settings",
            r#"{"transient":{"action.auto_create_index":"false"}}"#,
            r#"{"transient":{"action.auto_create_index":null}}"#,
            "index_not_found_exception: no such index [missing]",
        ),
        (
            "many",
            "/_cluster/settings",
            r#"{"transient":{"cluster.max_shards_per_node":1}}"#,
            r#"{"transient":{"cluster.max_shards_per_node":null}}"#,
            "maximum shards open",
        ),
    ] {
        if name.starts_with(&format!("/{index}")) {
            server.ask("PUT", &format!("/{index}"), "");
        }
        server.ask("PUT", name, begin);
        let mut place = Place::new();
        place.write(500);
        let mut service = place.start(MEMORY, &format!("hosts: '{url}', index: {index}"));
        service.until_said(cause);
        server.ask("PUT", name, end);
        service.until("every line", || server.count(index) == Some(500));
        let said = service.stop();
        assert!(!said.contains("refuse"), "{said}");
        place.expect_lines(&server, index);
    }
}

#[test]
fn little_room_and_a_full_disk_lose_nothing() {
    let limit = "indexing_pressure.memory.limit=300kb";
    let quick = "cluster.info.update.interval=10s";
    let Some(server) = SearchServer::start(&server_name(), &[limit, quick]) else {
        return;
    };
    let mut place = Place::new();
    let mut count = setting("EVENTS", 10_000);
    place.write(count as usize);
    let settings = format!(
        "hosts: '{}', index: app, compression: none, concurrency: 16, \
         batch: {{ max_bytes: 100KiB, max_age: 20ms }}",
        server.url()
    );
    let mut service = place.start(DISK, &settings);
    // How many lines it takes until enough requests meet depends on the speed of both.
    while !service.said().contains("rejected_execution_exception") {
        assert!(count < 1_000_000, "{}", service.said());
        std::thread::sleep(Duration::from_millis(100));
        place.write(2_000);
        count += 2_000;
    }
    service.until("every line", || server.count("app") >= Some(count));
    let watermarks = |value: &str| {
        let marks = ["low", "high", "flood_stage"]
            .map(|mark| format!(r#""cluster.routing.allocation.disk.watermark.{mark}":{value}"#));
        let body = format!(r#"{{"transient":{{{}}}}}"#, marks.join(","));
        server.ask("PUT", "/_cluster/settings", &body);
    };
    // More than there is: the server finds its disk full when it looks next.
    watermarks(r#""900tb""#);
    service.until("a full disk", || {
        let settings = server.ask("GET", "/app/_settings/index.blocks.*", "");
        settings.to_string().contains("read_only_allow_delete")
    });
    place.write(1000);
    service.until_said("flood-stage watermark");
    // Whatever this machine has free.
    watermarks(r#""1mb""#);
    service.until("every line", || server.count("app") == Some(count + 1000));
    let said = service.stop();
    assert!(!said.contains("refuse"), "{said}");
    place.expect_lines(&server, "app");
}

#[test]
fn lines_of_a_web_server_arrive_once_in_each_index() {
    const STREAM: &str = "logs-generic-default";
    let name = server_name();
    let Some(server) = SearchServer::start(&name, &[]) else {
        return;
    };
    let folder = Folder::new();
    let log = std::env::var("TORTURE_LOG").unwrap_or_else(|_| {
        let log = folder.path("access.log");
        let count = setting("EVENTS", 10_000);
        run(&format!(
            "generate apache count={count} seed=1 | file {log} codec=text"
        ))
        .expect(0);
        log
    });
    // Elasticsearch 7 as it is here has no data streams.
    let has_streams = name != "elasticsearch7";
    let target = match has_streams {
        true => "template=default",
        false => "index=logs-generic-default",
    };
    let url = server.url();
    let parse = "grok '%{COMBINEDAPACHELOG}' | date timestamp 'dd/MMM/yyyy:HH:mm:ss Z'";
    // From the start each time, and under the same ids: as after a crash before any position was kept.
    let send = || {
        run(&format!(
            "file {log} | {parse} | elasticsearch {url} {target}"
        ))
        .expect(0)
    };
    send();
    let lines = std::fs::read_to_string(&log).expect("a log");
    let count = lines.lines().count() as u64;
    let documents = server.documents(STREAM, "log.offset");
    let messages = documents
        .iter()
        .map(|document| document["message"].as_str());
    let messages: Vec<&str> = messages.map(Option::unwrap_or_default).collect();
    assert!(
        messages.into_iter().eq(lines.lines()),
        "each line, once and in order"
    );
    let is_parsed = |document: &&Value| document["clientip"].is_string();
    // The generator cuts some lines short.
    let parsed = documents.iter().filter(is_parsed).count() as u64;
    assert!(parsed > count / 10 * 9, "{parsed} of {count} were parsed");
    send();
    assert_eq!(server.count(STREAM), Some(count), "a repeat is stored once");
    if has_streams {
        let template = server.ask("GET", &format!("/_index_template/millpond-{STREAM}"), "");
        assert!(template["index_templates"][0]["index_template"]["data_stream"].is_object());
        server.ask("POST", &format!("/{STREAM}/_rollover"), "");
        send();
        assert_eq!(server.count(STREAM), Some(2 * count), "once in each index");
    }
}
