//! Dead letters through kills: no event is lost, and none has two letters.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::dead_letters::World;
use crate::program::command;

/// Each third line cannot be handled.
fn lines(count: usize) -> String {
    let line = |number: usize| match number % 3 {
        0 => format!("broken {number}\n"),
        _ => format!("{number} ok\n"),
    };
    (0..count).map(line).collect()
}

#[test]
fn kills_while_letters_are_written_lose_nothing() {
    const COUNT: usize = 60_000;
    for queue in ["", "queue: disk"] {
        let world = World::new(&lines(COUNT));
        let yaml = world.yaml(
            queue,
            "{ set: id = @metadata.id }, { grok: { pattern: '^%{NUMBER:n:int} ok', on_failure: dead_letter } }",
        );
        // The server is not what this is about.
        let text = world.folder.read("service.yaml");
        let start = text.find("      - http").expect("the output");
        let end = text.find("      - file").expect("the output");
        world
            .folder
            .write("service.yaml", text[..start].to_owned() + &text[end..]);
        for pause in [150, 250, 200, 350] {
            let service = world.start(&yaml);
            thread::sleep(Duration::from_millis(pause));
            service.kill();
        }
        let mut service = world.start(&yaml);
        let delivered = || -> BTreeSet<String> {
            let text = |line: Value| line["message"].as_str().expect("a text").to_owned();
            world.lines().into_iter().map(text).collect()
        };
        service.until("the events", || delivered().len() == COUNT - COUNT / 3);
        service.until("the letters", || world.list().len() >= COUNT / 3);
        service.stop();
        let mut letters: BTreeMap<String, usize> = BTreeMap::new();
        for letter in world.list() {
            let message = letter["event"]["message"].as_str().expect("a text");
            assert!(message.starts_with("broken"), "{letter}");
            *letters.entry(message.to_owned()).or_default() += 1;
        }
        assert_eq!(letters.len(), COUNT / 3);
        let doubled: Vec<_> = letters.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "two letters for one event: {doubled:?}");
    }
}

#[test]
fn a_kill_during_a_replay_goes_on_at_the_next_start() {
    const COUNT: usize = 600;
    for queue in ["", "queue: disk"] {
        let log: String = (0..COUNT).map(|n| format!("poison {n}\n")).collect();
        let world = World::new(&log);
        let yaml = world.yaml(queue, "");
        let mut service = world.start(&yaml);
        service.until("the letters", || world.list().len() == COUNT);
        world.mend();
        let replay = command(&["dead-letters", "replay", "--data-dir", &world.data]).spawn();
        let replay = replay.expect("it runs");
        service.until("some", || !world.taken().is_empty());
        service.kill();
        // Whoever waits is told.
        let told = crate::program::ended(replay.wait_with_output().expect("it ends"));
        assert!(
            told.code == Some(0) || told.err.contains("when it starts again"),
            "{told:?}"
        );
        let mut service = world.start(&yaml);
        service.until("no letters", || world.list().is_empty());
        let taken = || world.taken().into_iter().collect::<BTreeSet<_>>();
        service.until("all events", || taken().len() == COUNT);
        service.stop();
        assert!(world.list().is_empty());
    }
}
