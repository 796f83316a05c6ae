//! The names of processors: in counters, messages and dead letters, and what happens where a pipeline changes.

use crate::dead_letters::World;
use crate::program::{Folder, millpond, run_on};

#[test]
fn counters_messages_and_check_use_names() {
    let pipeline = "stdin | grok '%{INT:n:int}' name=numbers | grok '%{WORD:w}' | grok x if='message + 1 > 0' | stdout";
    let flow = millpond(&["check", pipeline]).expect(0).out;
    assert!(
        flow.contains("stdin | numbers | grok #2 | grok #3 | stdout"),
        "{flow}"
    );
    let folder = Folder::new();
    let log = folder.write("a.log", "1\n");
    let pipeline = pipeline.replace("stdin", &format!("file {log}"));
    let ended = millpond(&["run", &pipeline, "--metrics"]).expect(0);
    for name in ["numbers", "grok #2", "grok #3"] {
        let row = ended.err.lines().find(|line| line.starts_with(name));
        assert!(row.is_some(), "{name}: {}", ended.err);
    }
    assert!(
        ended
            .err
            .contains("processor grok #3: a condition could not be evaluated"),
        "{}",
        ended.err
    );
}

#[test]
fn a_name_is_given_once() {
    for (processors, name) in [
        (
            "{ remove: { name: x, fields: [a] } }, { keep: { name: x, fields: [a] } }",
            "x",
        ),
        (
            "{ keep: { name: remove, fields: [a] } }, remove a",
            "remove",
        ),
        (
            "remove a, remove b, { keep: { name: 'remove #2', fields: [a] } }",
            "remove #2",
        ),
    ] {
        let processors = processors
            .replace("remove a", "'remove a'")
            .replace("remove b", "'remove b'");
        let folder = Folder::new();
        let yaml = format!(
            "pipelines: {{ p: {{ processors: [{processors}], output: discard, input: stdin }} }}\n"
        );
        let yaml = folder.write("p.yaml", &yaml);
        let ended = millpond(&["check", &yaml]).expect(2);
        let message = format!("a second processor is called `{name}`");
        assert!(
            ended.err.contains(&message) && ended.err.contains("keep"),
            "{}",
            ended.err
        );
    }
    // Of another pipeline it may have the same name, and so may an output.
    run_on(b"", "stdin | head 1 name=stdout | stdout").expect(0);
}

#[test]
fn a_dead_letter_finds_its_processor_by_name() {
    let world = World::new("1 ok\nbroken\n");
    let grok = |name: &str, pattern: &str| {
        format!("{{ grok: {{ {name} pattern: '{pattern}', on_failure: dead_letter }} }}")
    };
    let failing = "^%{NUMBER:n:int} ok";
    let mut service = world.start(&world.yaml("", &grok("name: numbers,", failing)));
    service.until("the letter", || world.list().len() == 1);
    service.stop();
    assert_eq!(world.list()[0]["component"], "numbers");
    // Another grok stands in its place now.
    let others = [
        grok("", "."),
        grok("name: last,", "."),
        grok("name: numbers,", "broken"),
    ];
    let moved = world.yaml("", &others.join(", "));
    let replayed = world.letters(&["replay", &moved]).expect(0);
    assert!(
        replayed
            .out
            .contains("1 delivered, 0 became dead letters again, 0 left"),
        "{}",
        replayed.out
    );
}

#[test]
fn a_dead_letter_from_before_its_processor_had_a_name_is_delivered() {
    let world = World::new("1 ok\nbroken\n");
    let grok = |name: &str, pattern: &str| {
        format!("{{ grok: {{ {name} pattern: '{pattern}', on_failure: dead_letter }} }}")
    };
    let mut service = world.start(&world.yaml("", &grok("", "^%{NUMBER:n:int} ok")));
    service.until("the letter", || world.list().len() == 1);
    service.stop();
    assert_eq!(world.list()[0]["component"], "grok");
    let named = world.yaml("", &grok("name: numbers,", "broken"));
    let replayed = world.letters(&["replay", &named]).expect(0);
    assert!(replayed.out.contains("1 delivered"), "{}", replayed.out);
}
