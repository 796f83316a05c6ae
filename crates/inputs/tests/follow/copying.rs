//! Files that are copied and truncated in place.

use std::fs;
use std::time::Duration;

use crate::run;
use crate::world::{ALL, FOLLOWED, LIVE, Mode, SEPARATE, World, gzip};

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
        ("a line between copy and truncation", FOLLOWED, |world| {
            line_between(world, 300);
        }),
        (
            "a line between copy and truncation, a long log",
            LIVE,
            |world| {
                line_between(world, 20_000);
            },
        ),
        (
            "a line between copy and truncation, tiny",
            FOLLOWED,
            |world| {
                line_between(world, 2);
            },
        ),
        ("seconds between copy and truncation", LIVE, seconds_between),
        ("a copy that nobody saw, compressed", LIVE, unseen_copy),
        ("copied again and again", LIVE, copied_often),
        ("one rotation behind", FOLLOWED, |world| {
            rotation_behind(world, "a-copy.log");
        }),
        ("one rotation behind, usual name", FOLLOWED, |world| {
            rotation_behind(world, "app.log.1");
        }),
        ("half a line and a copy that comes slowly", LIVE, slow_copy),
        (
            "a copy that is made while many files are taken in",
            LIVE,
            copied_meanwhile,
        ),
        (
            "a copy at the inode that its original had",
            FOLLOWED,
            inode_again,
        ),
        (
            "a compressed copy that is found before its original",
            LIVE,
            |world| copy_found_first(world, false),
        ),
        (
            "a compressed copy that is found before its original by an earlier run",
            LIVE,
            |world| copy_found_first(world, true),
        ),
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

/// What was written after the copy was read, and is nowhere else.
fn line_between(world: &mut World, count: usize) {
    for round in 1..4 {
        world.append("app.log", count);
        world.settle();
        let copy = format!("app.log.{round}");
        world.copy("app.log", &copy);
        world.append("app.log", 1);
        world.settle();
        world.truncate("app.log", 0);
        world.append("app.log", 2);
        world.settle();
        // Compressed, the copy is still what it was.
        let content = fs::read(world.path(&copy)).expect("read");
        world.raw(&format!("{copy}.gz"), &gzip(&content));
        world.delete(&copy);
        world.append("app.log", 1);
        world.settle();
        assert_eq!(world.ids().len(), round + 1);
    }
}

fn seconds_between(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    world.copy("app.log", "app.log.1");
    std::thread::sleep(Duration::from_secs(5));
    world.truncate("app.log", 0);
    world.append("app.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// The copy is made where nobody looks, long before the position, and at no end that is remembered.
fn unseen_copy(world: &mut World) {
    world.append("app.log", 3000);
    let content = fs::read(world.path("app.log")).expect("read");
    world.append("app.log", 5);
    world.settle();
    for _ in 0..20 {
        world.append("app.log", 1);
        world.settle();
    }
    world.truncate("app.log", 0);
    world.append("app.log", 3);
    world.settle();
    world.raw("app.log.1.gz", &gzip(&content));
    world.append("app.log", 1);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// Each copy begins like all the others.
fn copied_often(world: &mut World) {
    let header = "a header that is written to every file anew\n".repeat(40);
    for round in 1..8 {
        header.lines().for_each(|line| world.expect(line));
        world.raw("app.log", header.as_bytes());
        world.append("app.log", 20);
        world.settle();
        world.copy("app.log", &format!("app.log.{round}"));
        world.append("app.log", 1);
        world.settle();
        world.truncate("app.log", 0);
    }
    world.append("app.log", 2);
    world.settle();
    assert_eq!(world.ids().len(), 8);
}

/// Log and copy are both unknown when they are seen together.
fn rotation_behind(world: &mut World, copy: &str) {
    world.append("app.log", 60);
    world.settle();
    let _ = world.stop();
    world.truncate("app.log", 0);
    world.append("app.log", 70);
    // The copy is the younger one, as far as clocks can tell.
    std::thread::sleep(Duration::from_millis(20));
    world.copy("app.log", copy);
    world.append("app.log", 2);
    world.settle();
    world.truncate("app.log", 0);
    world.append("app.log", 4);
    world.settle();
    assert_eq!(world.ids().len(), 3);
}

/// The copy that goes on with half a line is compressed so slowly that the line could be given up meanwhile.
fn slow_copy(world: &mut World) {
    world.append("app.log", 3000);
    world.raw("app.log", b"half");
    world.settle();
    let mut content = fs::read(world.path("app.log")).expect("read");
    content.extend(b" a line\n");
    world.truncate("app.log", 0);
    world.append("app.log", 3);
    world.settle();
    let packed = gzip(&content);
    for piece in packed.chunks(packed.len() / 9 + 1) {
        world.raw("app.log.1.gz", piece);
        std::thread::sleep(Duration::from_secs(1));
    }
    world.expect("half a line");
    world.settle();
    assert_eq!(world.ids().len(), 2);
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

/// Where files are renamed while a folder is listed, the list may have the copy and not the original.
fn copy_found_first(world: &mut World, is_restarted: bool) {
    let text = world.text(3000);
    world.raw("original.tmp", text.as_bytes());
    // Birth times have the resolution of the kernel's clock tick.
    std::thread::sleep(Duration::from_millis(30));
    let packed = gzip(text.as_bytes());
    let (first, rest) = packed.split_at(packed.len() / 2);
    world.raw("app.log.1.gz", first);
    world.follow();
    world.wait("lines of the copy", |world| world.count() > 0);
    if is_restarted {
        let _ = world.stop();
    }
    world.rename("original.tmp", "app.log.1");
    world.settle();
    world.raw("app.log.1.gz", rest);
    world.delete("app.log.1");
    world.append("app.log", 10);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// What is told of a copy while it is written comes before the turn of its original.
fn copied_meanwhile(world: &mut World) {
    for number in 0..6_000 {
        world.append(&format!("a-{number}.log"), 1);
    }
    let lines = world.text(100_000);
    world.raw("app.log", lines.as_bytes());
    world.raw("app.log.1", &lines.as_bytes()[..10_000]);
    world.follow();
    for part in lines.as_bytes()[10_000..].chunks(10_000) {
        world.raw("app.log.1", part);
        std::thread::sleep(Duration::from_millis(1));
    }
    world.truncate("app.log", 0);
    world.settle();
}

/// The number of an inode is used again, by the copy of what was truncated there.
fn inode_again(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    let lines = fs::read(world.path("app.log")).expect("read");
    world.truncate("app.log", 0);
    world.append("app.log", 3);
    world.settle();
    let inode = world.inode("app.log");
    world.delete("app.log");
    // Not every file system gives it again.
    let made = (0..100).map(|number| {
        let name = format!("made-{number}");
        world.raw(&name, &gzip(&lines));
        name
    });
    let made: Vec<String> = made.collect();
    let again = made.iter().find(|name| world.inode(name) == inode);
    world.rename(again.unwrap_or(&made[0]), "app.log.1.gz");
    world.scan();
    std::thread::sleep(Duration::from_secs(3));
    world.settle();
}
