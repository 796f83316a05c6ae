//! Files that are copied and truncated in place.

use std::fs;

use crate::run;
use crate::world::{ALL, FOLLOWED, LIVE, Mode, SEPARATE, World};

#[test]
fn copying() {
    run(&[
        ("copytruncate", ALL, |world| copytruncate(world, 60)),
        ("copytruncate of tiny files", ALL, |world| {
            copytruncate(world, 3);
        }),
        ("copytruncate with unread rest", ALL, unread_rest),
        ("copytruncate of half a line", FOLLOWED, half_line),
        (
            "stopped between copy and truncation",
            &[Mode::Restarts],
            stopped_between,
        ),
        ("stopped after truncation", SEPARATE, stopped_after),
        ("truncated without a copy", ALL, truncated),
        ("truncated and longer than before", ALL, grown_again),
        ("truncated and longer at once", LIVE, rewritten_at_once),
        ("copied and not truncated", LIVE, copied_only),
    ]);
}

fn copytruncate(world: &mut World, count: usize) {
    for round in 1..4 {
        world.append("app.log", count);
        world.settle();
        for old in (1..round).rev() {
            world.rename(&format!("app.log.{old}"), &format!("app.log.{}", old + 1));
        }
        world.copy("app.log", "app.log.1");
        world.truncate("app.log", 0);
        world.append("app.log", count - 1);
        world.settle();
    }
    assert_eq!(world.ids().len(), 4);
}

fn unread_rest(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 3000);
    world.copy("app.log", "app.log.1");
    world.truncate("app.log", 0);
    world.append("app.log", 30);
    world.settle();
    world.append("app.log", 30);
    world.settle();
}

fn half_line(world: &mut World) {
    world.set("close: {inactive: 1s}\n");
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 1);
    world.raw("app.log", b"half");
    world.settle();
    world.copy("app.log", "app.log.1");
    world.truncate("app.log", 0);
    world.append("app.log", 30);
    world.settle();
    // Nobody will write its end to the copy.
    world.expect("half");
    world.settle();
}

fn stopped_between(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 3);
    world.copy("app.log", "app.log.1");
    world.scan();
    world.truncate("app.log", 0);
    world.scan();
    world.append("app.log", 3);
    world.settle();
}

fn stopped_after(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 3);
    world.copy("app.log", "app.log.1");
    world.truncate("app.log", 0);
    world.settle();
    world.append("app.log", 3);
    world.settle();
}

fn truncated(world: &mut World) {
    for count in [60, 3, 100, 1] {
        world.append("app.log", count);
        world.settle();
        world.truncate("app.log", 0);
        world.scan();
    }
    world.append("app.log", 5);
    world.settle();
}

fn grown_again(world: &mut World) {
    for count in [3, 10, 60, 600] {
        world.append("app.log", count);
        world.settle();
        world.truncate("app.log", 0);
        world.append("app.log", count * 3);
        world.settle();
    }
}

/// Truncated and written to in one go: the inode stays, and the file is longer than before at the next look.
fn rewritten_at_once(world: &mut World) {
    for count in [3, 60, 100] {
        world.append("app.log", count);
        world.settle();
        let text = world.text(count * 3);
        fs::write(world.path("app.log"), text).expect("written");
        world.settle();
    }
}

/// A copy that stays beside its original is a file of its own.
fn copied_only(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    let content = fs::read_to_string(world.path("app.log")).expect("read");
    world.copy("app.log", "copy.log");
    for line in content.lines() {
        world.expect(line);
    }
    world.settle();
}
