//! Files that begin like known ones, and are or are not what they look like.

use std::fs;

use crate::run;
use crate::world::{ALL, LIVE, Mode, SEPARATE, World, gzip};

#[test]
fn likeness() {
    run(&[
        (
            "compressed beside one that begins alike",
            ALL,
            compressed_beside,
        ),
        (
            "compressed, and files are gone of which only the header was read",
            SEPARATE,
            compressed_like_headers,
        ),
        ("grown, then compressed", ALL, grown_then_compressed),
        (
            "truncated, empty for a while, and written alike",
            ALL,
            truncated_and_alike,
        ),
        ("like one outside the paths", ALL, outside_the_paths),
        (
            "compressed before its last line",
            ALL,
            compressed_before_the_last_line,
        ),
        ("deleted as soon as it is compressed", LIVE, deleted_at_once),
        (
            "new files after a first look at the end",
            ALL,
            after_a_look_at_the_end,
        ),
    ]);
}

fn content(world: &World, name: &str) -> Vec<u8> {
    fs::read(world.path(name)).expect("read")
}

fn compress(world: &World, from: &str, to: &str) {
    world.raw(to, &gzip(&content(world, from)));
    world.delete(from);
}

/// Of several known files that begin alike, the last one compared is the right one.
fn compressed_beside(world: &mut World) {
    let head = "x".repeat(1500);
    for name in ["a.log", "b.log", "c.log"] {
        world.raw(name, format!("{head}\n").as_bytes());
        world.expect(&head);
        world.append(name, 10);
    }
    world.settle();
    for name in ["c.log", "a.log"] {
        compress(world, name, &format!("{name}.1.gz"));
        world.settle();
    }
    assert_eq!(world.ids().len(), 3);
}

/// Of a file of which no more was read than what all begin with, any other may be the continuation: the one of which more was
/// read comes first.
fn compressed_like_headers(world: &mut World) {
    let head: String = (0..30)
        .map(|number| format!("header line {number} {}\n", "x".repeat(40)))
        .collect();
    let others = ["a.log", "c.log", "d.log", "e.log"];
    for name in ["b.log"].iter().chain(&others) {
        head.lines().for_each(|line| world.expect(line));
        world.raw(name, head.as_bytes());
    }
    world.append("b.log", 20);
    // A file that is all of another's beginning may be a copy of it where files are followed, and waits.
    for name in others.iter().filter(|_| world.mode == Mode::Restarts) {
        world.raw(name, format!("{name} ends within a line").as_bytes());
    }
    world.settle();
    compress(world, "b.log", "b.log.1.gz");
    others.iter().for_each(|name| world.delete(name));
    world.settle();
    assert_eq!(world.ids().len(), 5);
}

fn grown_then_compressed(world: &mut World) {
    world.append("a.log", 4);
    world.settle();
    world.append("a.log", 1);
    compress(world, "a.log", "a.log.1.gz");
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn truncated_and_alike(world: &mut World) {
    for count in [3, 60] {
        let name = format!("{count}.log");
        let text = world.text(count);
        world.raw(&name, text.as_bytes());
        world.settle();
        world.truncate(&name, 0);
        world.scan();
        text.lines().for_each(|line| world.expect(line));
        world.raw(&name, text.as_bytes());
        world.append(&name, 1);
        world.settle();
    }
}

/// What is not looked for is not gone.
fn outside_the_paths(world: &mut World) {
    world.paths(&["a.log"]);
    let text = world.text(60);
    world.raw("a.log", text.as_bytes());
    world.settle();
    let _ = world.stop();
    world.paths(&["b.log"]);
    text.lines().for_each(|line| world.expect(line));
    world.raw("b.log", text.as_bytes());
    world.append("b.log", 5);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

fn compressed_before_the_last_line(world: &mut World) {
    world.append("a.log", 60);
    world.settle();
    let packed = gzip(&content(world, "a.log"));
    world.append("a.log", 1);
    world.settle();
    world.raw("a.log.1.gz", &packed);
    world.delete("a.log");
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

/// The last lines are read through the open descriptor while the compressed file is judged.
fn deleted_at_once(world: &mut World) {
    world.append("app.log", 2000);
    world.settle();
    for round in 0..5 {
        let name = format!("app.log.{round}");
        world.rename("app.log", &name);
        world.append(&name, 50);
        world.append("app.log", 1000);
        compress(world, &name, &format!("{name}.gz"));
        world.settle();
        assert_eq!(world.ids().len(), round + 2);
    }
}

fn after_a_look_at_the_end(world: &mut World) {
    world.set("start_at: end");
    world.raw("old.log", b"what was there at first\n");
    if world.mode != Mode::Once {
        world.follow();
        world.wait("a first look", |world| !world.files().is_empty());
    }
    world.settle();
    world.append("new.log", 3);
    world.append("old.log", 3);
    world.settle();
    world.rename("old.log", "old.log.1");
    world.append("old.log", 3);
    world.settle();
}
