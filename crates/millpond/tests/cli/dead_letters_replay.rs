//! Dead letters in trouble: queues that drop, stores that are damaged, requests that wait for each other.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::dead_letters::World;
use crate::program::command;
use crate::running::{append, numbered};

fn poison(count: usize) -> String {
    (0..count).map(|n| format!("poison {n}\n")).collect()
}

#[test]
fn a_queue_that_drops_what_comes_leaves_the_letters() {
    let mut world = World::new(&poison(5));
    let queue = "queue: { disk: { when_full: drop_newest, max_events: 50 } }";
    let mut service = world.start(&world.yaml(queue, ""));
    service.until("the letters", || world.list().len() == 5);
    world.server = world.server.stopped();
    append(&world.folder.path("app.log"), &numbered("a", 0..400));
    service.until("the queue is full", || world.lines().len() >= 50);
    thread::sleep(Duration::from_millis(500));
    let replayed = world.letters(&["replay"]).expect(1);
    assert!(
        replayed.out.contains("0 accepted by the disk queue")
            && replayed.out.contains("5 left")
            && replayed.err.contains("5 dead letters were kept"),
        "{replayed:?}"
    );
    assert_eq!(world.list().len(), 5);
    service.kill();
}

/// A pipeline that gets each event by two ways, so that there are two of each id.
#[test]
fn events_of_one_id_have_a_letter_each() {
    let world = World::new(&(poison(10) + "fine\n"));
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  source:
    input: {{ file: {{ paths: ['{log}'] }} }}
    outputs:
      - pipeline: {{ to: deliver, name: a, processors: ['set kind = \"a\"'] }}
      - pipeline: {{ to: deliver, name: b, processors: ['set kind = \"b\"'] }}
  deliver:
    input: pipeline
    output: {{ http: {{ name: web, url: '{url}', batch: {{ max_events: 20 }} }} }}
",
        data = world.data,
        log = world.folder.path("app.log"),
        url = world.server.url(),
    );
    let yaml = world.folder.write("service.yaml", yaml);
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 20);
    world.mend();
    let replayed = world.letters(&["replay"]).expect(0);
    assert!(replayed.out.contains("20 delivered"), "{}", replayed.out);
    service.until("all events", || world.taken().len() == 22);
    service.stop();
}

#[test]
fn a_letter_that_was_refused_again_is_known_after_a_kill() {
    let world = World::new(&poison(10));
    world.yaml("", "");
    // An output that takes nothing, so that the file is read again after the kill.
    let text = world.folder.read("service.yaml").replace(
        "    retry:",
        "      - http: { name: away, url: 'http://127.0.0.1:9/' }\n    retry:",
    );
    let yaml = world.folder.write("service.yaml", text);
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 10);
    let again = world.letters(&["replay"]).expect(1);
    assert!(
        again.out.contains("10 became dead letters again"),
        "{again:?}"
    );
    service.kill();
    let mut service = world.start(&yaml);
    service.until("the file again", || world.lines().len() >= 20);
    thread::sleep(Duration::from_millis(1000));
    let attempts: Vec<Value> = world
        .list()
        .iter()
        .map(|letter| letter["attempts"].clone())
        .collect();
    assert_eq!(attempts, vec![Value::from(2); 10]);
    service.kill();
}

#[test]
fn a_purge_waits_for_no_replay() {
    let mut world = World::new(&poison(3));
    let mut service = world.start(&world.yaml("", ""));
    service.until("the letters", || world.list().len() == 3);
    world.server = world.server.stopped();
    let replay = command(&["dead-letters", "replay", "--data-dir", &world.data]).spawn();
    let replay = replay.expect("it runs");
    let requests = PathBuf::from(&world.data).join("dead-letters/one/requests");
    service.until("the replay has begun", || {
        let entries = fs::read_dir(&requests).into_iter().flatten();
        let mut names = entries.map(|entry| entry.expect("an entry").path());
        names.any(|name| name.extension().is_some_and(|kind| kind == "result"))
    });
    let purged = world.letters(&["purge", "--number", "1"]).expect(0);
    assert!(
        purged.out.contains("1 dead letter was removed"),
        "{purged:?}"
    );
    // It counts what was there.
    let purged = world.letters(&["purge", "--number", "1"]).expect(0);
    assert!(purged.out.contains("nothing was removed"), "{purged:?}");
    assert_eq!(world.list().len(), 2);
    service.kill();
    drop(replay.wait_with_output());
}

#[test]
fn letters_that_are_gone_are_not_left() {
    let world = World::new(&poison(2));
    let yaml = world.yaml("", "");
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 2);
    service.stop();
    world.mend();
    // Two requests for the same.
    world.letters(&["replay"]).expect(1);
    world.letters(&["replay"]).expect(1);
    let requests = PathBuf::from(&world.data).join("dead-letters/one/requests");
    let mut service = world.start(&yaml);
    let outcomes = || -> Vec<Value> {
        let entries = fs::read_dir(&requests).expect("a folder");
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "result"))
            .collect();
        paths.sort();
        let read = |path: &PathBuf| serde_json::from_slice(&fs::read(path).ok()?).ok();
        paths.iter().filter_map(read).collect()
    };
    let is_done = |outcome: &Value| outcome["is_done"] == true;
    service.until("both are done", || {
        let outcomes = outcomes();
        outcomes.len() == 2 && outcomes.iter().all(is_done)
    });
    service.stop();
    let counts: Vec<_> = outcomes()
        .iter()
        .map(|outcome| (outcome["delivered"].clone(), outcome["gone"].clone()))
        .collect();
    assert_eq!(counts, [(2.into(), 0.into()), (0.into(), 2.into())]);
}

#[test]
fn damage_is_told_until_it_is_purged() {
    let world = World::new(&poison(4));
    let yaml = world.yaml("", "");
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 4);
    append(&world.folder.path("app.log"), "poison last\n");
    service.until("the last letter", || world.list().len() == 5);
    service.stop();
    let segment = fs::read_dir(PathBuf::from(&world.data).join("dead-letters/one"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|kind| kind == "log"))
        .expect("a segment");
    let mut bytes = fs::read(&segment).expect("it is read");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("a block");
    bytes[end - 10] ^= 0xff;
    fs::write(&segment, bytes).expect("written");
    let listed = world.letters(&["list"]).expect(1);
    assert!(
        listed.err.contains("1 dead letter was lost") && listed.out.contains("4 dead letters"),
        "{listed:?}"
    );
    let service = world.start(&yaml);
    thread::sleep(Duration::from_millis(500));
    let exported = world.letters(&["export"]).expect(1);
    assert_eq!(exported.events().len(), 4);
    let purged = world.letters(&["purge", "--all"]).expect(0);
    assert!(
        purged.out.contains("4 dead letters were removed")
            && purged
                .out
                .contains("1 damaged or missing range was cleared"),
        "{purged:?}"
    );
    world.letters(&["list"]).expect(0);
    let said = service.stop();
    assert!(said.contains("is damaged at offset"), "{said}");
    assert!(
        PathBuf::from(&world.data)
            .join("dead-letters/one/quarantine")
            .exists()
    );
    world.letters(&["list"]).expect(0);
}

#[test]
fn letters_are_chosen_by_parts_of_names_and_dates() {
    let world = World::new("1 ok\nbroken\n");
    world.yaml("", "");
    let text = world.folder.read("service.yaml").replace(
        "max_events: 20 } }",
        "max_events: 20 }, processors: [{ grok: { name: og, pattern: '^%{NUMBER:n:int} ok', on_failure: dead_letter } }] }",
    );
    let second = text.split("  one:").nth(1).expect("a pipeline");
    let second = second.replace("out.ndjson", "other.ndjson");
    let text = format!("{text}  two:{second}");
    let yaml = world.folder.write("service.yaml", text);
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 2);
    let count = |args: &[&str]| {
        let args = [&["list", "--json"], args].concat();
        world.letters(&args).expect(0).events().len()
    };
    for name in ["web", "og", "web/og"] {
        assert_eq!(count(&["--component", name]), 2, "{name}");
    }
    assert_eq!(count(&["--since", "2020-01-01"]), 2);
    assert_eq!(count(&["--until", "2020-01-01"]), 0);
    for command in ["list", "export", "replay"] {
        let refused = world.letters(&[command, "--component", "nope"]).expect(2);
        assert!(
            refused
                .err
                .contains("components with dead letters: `web/og`"),
            "{refused:?}"
        );
    }
    let none = world.letters(&["list", "--reason", "nope"]).expect(0);
    assert!(none.out.contains("no dead letter matches"), "{none:?}");
    let none = world.letters(&["export", "--reason", "nope"]).expect(0);
    assert!(none.err.contains("no dead letter matches"), "{none:?}");
    // A number is one of a single pipeline.
    for command in ["purge", "replay"] {
        let refused = world.letters(&[command, "--number", "0"]).expect(2);
        assert!(
            refused
                .err
                .contains("select one with --pipeline: `one`, `two`"),
            "{refused:?}"
        );
    }
    let purge = ["purge", "--number", "0", "--pipeline", "two"];
    assert!(
        world
            .letters(&purge)
            .expect(0)
            .out
            .contains("1 dead letter")
    );
    assert_eq!(count(&["--pipeline", "one"]), 1);
    service.stop();
}
