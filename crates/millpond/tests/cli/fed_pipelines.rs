//! Pipelines that feed each other: what is refused, receipts, stops, kills, failures and dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::http::{Answer, HttpServer};

use crate::program::{Ended, Folder, millpond};
use crate::running::{Service, append, eventually, ledger, numbered};

/// A log that pipeline `one` reads and hands to `two`, which sends it to a server.
struct World {
    folder: Folder,
    server: HttpServer,
    /// What the server answers.
    status: Arc<AtomicU16>,
    data: String,
}

impl World {
    fn new(log: &str) -> Self {
        let status = Arc::new(AtomicU16::new(200));
        let answer = status.clone();
        let folder = Folder::new();
        folder.write("app.log", log);
        let data = folder.path("data");
        std::fs::create_dir(&data).expect("a writable folder");
        Self {
            server: HttpServer::start(move |_, _| Answer::new(answer.load(SeqCst))),
            folder,
            status,
            data,
        }
    }

    fn yaml(&self, first: &str, second: &str, processors: &str) -> String {
        let yaml = format!(
            "data_dir: '{data}'
shutdown_deadline: 3s
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'] }} }}
    {first}
    processors:
      - set {{ id = @metadata.id }}
    output: pipeline two
    retry: {{ initial: 20ms, max: 100ms }}
  two:
    input: pipeline
    {second}
    processors: [{processors}]
    output:
      http: {{ url: '{url}', batch: {{ max_events: 200, max_age: 50ms }} }}
    retry: {{ initial: 20ms, max: 100ms }}
",
            data = self.data,
            log = self.folder.path("app.log"),
            url = self.server.url(),
        );
        let yaml = yaml.replace("set { id = @metadata.id }", "set id = @metadata.id");
        self.folder.write("service.yaml", yaml)
    }

    fn start(&self, yaml: &str) -> Service {
        Service::start(&self.folder, &["run", yaml])
    }

    /// What the server took: messages by id, each id with one message.
    fn taken(&self) -> BTreeMap<String, String> {
        let mut events = BTreeMap::new();
        for (id, message) in self.all() {
            let before = events.insert(id.clone(), message.clone());
            assert!(before.is_none_or(|before| before == message), "{id}");
        }
        events
    }

    /// All that the server took, with what came twice.
    fn all(&self) -> Vec<(String, String)> {
        let taken = self.server.taken().into_iter();
        let bodies = taken.filter(|taken| taken.status == 200);
        let events = bodies.flat_map(|taken| {
            let text = taken.text();
            let lines = text.lines().map(|line| {
                let event: Value = serde_json::from_str(line).expect("JSON");
                let field = |name: &str| event[name].as_str().expect("a text").to_owned();
                (field("id"), field("message"))
            });
            lines.collect::<Vec<_>>()
        });
        events.collect()
    }

    fn letters(&self, args: &[&str]) -> Ended {
        let (command, rest) = args.split_first().expect("a command");
        let all = ["dead-letters", command, "--data-dir", &self.data];
        millpond(&[&all[..], rest].concat())
    }

    fn row(&self) -> Value {
        ledger(&self.data).remove(0)
    }
}

#[test]
fn events_of_two_pipelines_go_on_in_a_third() {
    let folder = Folder::new();
    let a = folder.write("a.log", numbered("a", 0..3000));
    let b = folder.write("b.log", numbered("b", 0..2000));
    let yaml = format!(
        r#"
pipelines:
  one:
    input: file {a} follow=false
    processors:
      - '@metadata.from = "one"'
      - set kept = @metadata.id
    outputs:
      - pipeline: {{ to: all, name: rest, if: 'message != "a line 7"' }}
      - file: {{ path: "{seven}", if: 'message == "a line 7"' }}
  two: 'file {b} follow=false | set @metadata.from = "two", kept = @metadata.id | pipeline all'
  all:
    input: pipeline
    processors:
      - set from = @metadata.from, id = @metadata.id
      - grok: {{ pattern: "%{{WORD:w}} line %{{INT:n:int}}" }}
    output: file {out}
"#,
        seven = folder.path("seven.ndjson"),
        out = folder.path("out.ndjson"),
    );
    let yaml = yaml.replace("- '@metadata.from", "- set: '@metadata.from");
    let path = folder.write("all.yaml", yaml);
    let checked = millpond(&["check", &path]).expect(0);
    assert!(
        checked.out.contains("all: pipeline | set | grok | file"),
        "{}",
        checked.out
    );
    let ended = millpond(&["run", &path, "--metrics"]).expect(0);
    let text = folder.read("out.ndjson");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(events.len(), 4999);
    for (word, from, count) in [("a", "one", 2999), ("b", "two", 2000)] {
        let of: Vec<&Value> = events.iter().filter(|event| event["w"] == word).collect();
        assert_eq!(of.len(), count);
        assert!(
            of.iter()
                .all(|event| event["from"] == from && event["id"] == event["kept"])
        );
        let numbers: Vec<i64> = of.iter().filter_map(|event| event["n"].as_i64()).collect();
        assert!(numbers.is_sorted() && numbers.len() == count, "in order");
    }
    assert_eq!(folder.read("seven.ndjson").lines().count(), 1);
    let tables = ended
        .err
        .split("pipeline all\n")
        .nth(1)
        .expect("a table of its own");
    let row = tables
        .lines()
        .find(|line| line.trim_start().starts_with("pipeline"));
    assert!(
        row.is_some_and(|row| row.contains("4,999")),
        "{}",
        ended.err
    );
}

#[test]
fn links_that_cannot_work_are_refused() {
    let folder = Folder::new();
    let refused = |pipelines: &str, said: &str| {
        let path = folder.write("bad.yaml", format!("pipelines:\n{pipelines}"));
        let err = millpond(&["check", &path]).expect(2).err;
        assert!(
            err.contains(said) && err.contains("bad.yaml:"),
            "{said}: {err}"
        );
    };
    refused(
        "  one: { input: stdin, output: { pipeline: tow } }\n  two: { input: pipeline, output: stdout }\n",
        "there is no pipeline `tow`",
    );
    refused(
        "  one: { input: stdin, output: { pipeline: two } }\n  two: { input: generate apache, output: discard }\n",
        "pipeline `two` has inputs of its own",
    );
    refused(
        "  one: { input: stdin, output: stdout }\n  two: { input: pipeline, output: discard }\n",
        "no output feeds pipeline `two`",
    );
    refused(
        "  one: { input: stdin, output: { pipeline: two } }\n  two: { inputs: [pipeline, stdin], output: stdout }\n",
        "has no other input",
    );
    refused(
        "  one: { input: pipeline, output: { pipeline: one } }\n",
        "one -> one",
    );
    refused(
        "  a: { input: pipeline, output: { pipeline: b } }\n  b: { input: pipeline, output: { pipeline: c } }\n  c: { input: pipeline, outputs: [discard, { pipeline: a }] }\n",
        "pipelines feed each other in a circle: a -> b -> c -> a",
    );
    refused("  a: { input: stdin, output: pipeline }\n", "`to`");
}

#[test]
fn the_first_input_hears_of_events_when_the_last_output_has_them() {
    for second in ["", "queue: disk"] {
        let world = World::new(&numbered("a", 0..1000));
        world.status.store(503, SeqCst);
        let mut service = world.start(&world.yaml("", second, ""));
        service.until("requests", || world.server.taken().len() > 1);
        let number = |field: &str| world.row()[field].as_u64().expect("a number");
        if second.is_empty() {
            thread::sleep(Duration::from_millis(500));
            assert_eq!(number("acknowledged_events"), 0, "the server has nothing");
        } else {
            // The disk queue has them.
            eventually("the ledger", || number("acknowledged_events") == 1000);
        }
        world.status.store(200, SeqCst);
        service.until("the events", || world.taken().len() == 1000);
        eventually("the ledger", || number("acknowledged_events") == 1000);
        append(&world.folder.path("app.log"), &numbered("b", 0..500));
        service.until("more events", || world.taken().len() == 1500);
        service.stop();
        assert_eq!(world.all().len(), 1500, "none twice");
        // A later run has nothing to repeat.
        let service = world.start(&world.yaml("", second, ""));
        thread::sleep(Duration::from_millis(300));
        service.stop();
        assert_eq!(world.all().len(), 1500);
    }
}

#[test]
fn kills_lose_nothing_on_the_way_through_two_pipelines() {
    const COUNT: usize = 60_000;
    for (first, second) in [
        ("", ""),
        ("queue: disk", ""),
        ("", "queue: disk"),
        ("queue: disk", "queue: disk"),
    ] {
        let world = World::new(&numbered("a", 0..COUNT / 2));
        let yaml = world.yaml(first, second, "");
        for (round, pause) in [120, 250, 180, 300].into_iter().enumerate() {
            let service = world.start(&yaml);
            // The server is away for a part of the time.
            thread::sleep(Duration::from_millis(pause / 2));
            world.status.store([503, 200][round % 2], SeqCst);
            thread::sleep(Duration::from_millis(pause / 2));
            service.kill();
            let from = COUNT / 2 + round * COUNT / 8;
            let more = numbered("a", from..from + COUNT / 8);
            append(&world.folder.path("app.log"), &more);
        }
        world.status.store(200, SeqCst);
        let mut service = world.start(&yaml);
        service.until("the events", || world.taken().len() == COUNT);
        service.stop();
        let mut messages: Vec<String> = world.taken().into_values().collect();
        messages.sort();
        messages.dedup();
        assert_eq!(messages.len(), COUNT, "{first:?}, {second:?}");
    }
}

#[test]
fn a_stop_while_the_destination_is_away_loses_nothing() {
    for (first, second) in [("", ""), ("queue: disk", ""), ("", "queue: disk")] {
        let world = World::new(&numbered("a", 0..20_000));
        let yaml = world.yaml(first, second, "");
        world.status.store(503, SeqCst);
        let mut service = world.start(&yaml);
        service.until("requests", || world.server.taken().len() > 1);
        let (code, said) = service.end();
        // What is in a disk queue, the first or the second, is safe; the rest is told.
        match (first, second) {
            ("", "") => assert!(code == Some(1) && said.contains("not delivered"), "{said}"),
            _ => assert!(code.is_some(), "{said}"),
        }
        world.status.store(200, SeqCst);
        let mut service = world.start(&yaml);
        service.until("the events", || world.taken().len() == 20_000);
        service.stop();
    }
}

#[test]
fn a_run_ends_when_the_fed_pipeline_wants_no_more() {
    let folder = Folder::new();
    let yaml = folder.write(
        "some.yaml",
        format!(
            "pipelines:\n  one: generate apache count=100M | pipeline two\n  two: pipeline | head 5 | file {}\n",
            folder.path("out.ndjson"),
        ),
    );
    millpond(&["run", &yaml]).expect(0);
    assert_eq!(folder.read("out.ndjson").lines().count(), 5);
}

#[test]
fn dead_letters_of_both_pipelines_are_replayed_where_they_stopped() {
    let world = World::new("1 ok\nbroken\n2 ok\n");
    let strict = "{ grok: { pattern: '^%{NUMBER:n:int} ok', on_failure: dead_letter } }";
    let yaml = world.yaml("", "", strict);
    let mut service = world.start(&yaml);
    service.until("the others", || world.taken().len() == 2);
    let list = || world.letters(&["list", "--json"]).expect(0).events();
    service.until("the letter", || list().len() == 1);
    assert_eq!(list()[0]["pipeline"], "two");
    eventually("the ledger", || {
        let row = world.row();
        row["in_flight_events"] == 0 && row["dead_letters"] == 1
    });
    service.stop();
    // Another one that pipeline `one` keeps, goes to `two` by a replay, and stops there as well.
    let mut text = std::fs::read_to_string(&yaml).expect("it is there");
    text = text.replace(
        "- set id = @metadata.id",
        "- set id = @metadata.id\n      - grok: { pattern: '^[0-9b]', on_failure: dead_letter }",
    );
    world.folder.write("service.yaml", &text);
    append(&world.folder.path("app.log"), "odd\n");
    let mut service = world.start(&yaml);
    service.until("the letter", || list().len() == 2);
    service.stop();
    world
        .folder
        .write("service.yaml", text.replace("^[0-9b]", "."));
    world
        .letters(&["replay", "--pipeline", "one", &yaml])
        .expect(0);
    let letters = list();
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert!(
        letters
            .iter()
            .all(|letter| letter["pipeline"] == "two" && letter["attempts"] == 1)
    );
    let text = std::fs::read_to_string(&yaml).expect("it is there");
    world
        .folder
        .write("service.yaml", text.replace("^%{NUMBER:n:int} ok", "^."));
    world.letters(&["replay", &yaml]).expect(0);
    assert!(list().is_empty());
    let mut messages: Vec<String> = world.taken().into_values().collect();
    messages.sort();
    assert_eq!(messages, ["1 ok", "2 ok", "broken", "odd"]);
}
