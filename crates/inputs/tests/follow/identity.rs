//! Files that look like others.

use std::fs;

use crate::run;
use crate::world::{ALL, LIVE, SEPARATE, World};

#[test]
fn identity() {
    run(&[
        ("an inode is used again", ALL, |world| {
            inode_again(world, 2000);
        }),
        ("an inode is used again for a small file", ALL, |world| {
            inode_again(world, 20);
        }),
        ("an offset beyond the end", ALL, beyond_the_end),
        ("the same first kilobyte", ALL, same_first_kilobyte),
        (
            "the same first kilobyte, one after the other",
            ALL,
            same_one_after_the_other,
        ),
        ("twins", ALL, |world| twins(world, 60)),
        ("small twins", ALL, |world| twins(world, 2)),
        ("deleted and written again", ALL, |world| {
            written_again(world, 2);
        }),
        (
            "deleted and written again while nobody looks",
            SEPARATE,
            |world| unseen_again(world),
        ),
        ("deleted and written again, a long one", ALL, |world| {
            written_again(world, 60);
        }),
        ("swapped names", ALL, swapped),
        ("replaced by a rename", ALL, replaced_by_rename),
        ("edited in the middle", LIVE, edited),
    ]);
}

fn inode_again(world: &mut World, len: usize) {
    let start = "x".repeat(len);
    world.raw("a.log", format!("{start} one\n").as_bytes());
    world.expect(&format!("{start} one"));
    world.append("a.log", 1);
    world.settle();
    let inode = world.inode("a.log");
    world.delete("a.log");
    // Files that are kept take the other inodes that are free.
    for spare in 0..500 {
        world.raw("a.log", b"");
        if world.inode("a.log") == inode {
            break;
        }
        world.rename("a.log", &format!("spare{spare}"));
    }
    world.raw("a.log", format!("{start} two\n").as_bytes());
    world.append("a.log", 3);
    world.expect(&format!("{start} two"));
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// What is left is read again rather than passed over.
fn beyond_the_end(world: &mut World) {
    world.append("a.log", 100);
    world.settle();
    let content = fs::read_to_string(world.path("a.log")).expect("read");
    let half: String = content.split_inclusive('\n').take(50).collect();
    world.truncate("a.log", half.len() as u64);
    for line in half.lines() {
        world.expect(line);
    }
    world.settle();
    world.append("a.log", 3);
    world.settle();
}

fn same_first_kilobyte(world: &mut World) {
    let start = "x".repeat(1500);
    for name in ["a.log", "b.log", "c.log"] {
        world.raw(name, format!("{start} {name}\n").as_bytes());
        world.expect(&format!("{start} {name}"));
        world.append(name, 3);
    }
    world.settle();
    for name in ["a.log", "d.log", "c.log"] {
        world.raw(name, format!("{start} {name} again\n").as_bytes());
        world.expect(&format!("{start} {name} again"));
        world.append(name, 3);
        world.settle();
    }
    assert_eq!(world.ids().len(), 4);
}

fn same_one_after_the_other(world: &mut World) {
    let start = "x".repeat(1500);
    for n in 0..4 {
        world.raw("a.log", format!("{start} {n}\n").as_bytes());
        world.expect(&format!("{start} {n}"));
        world.append("a.log", 3);
        world.settle();
        world.rename("a.log", "a.log.1");
        if n % 2 == 0 {
            world.settle();
        } else {
            world.delete("a.log.1");
        }
    }
    world.settle();
    assert_eq!(world.ids().len(), 4);
}

fn twins(world: &mut World, count: usize) {
    let text = world.text(count);
    text.lines().for_each(|line| world.expect(line));
    world.raw("a.log", text.as_bytes());
    world.raw("b.log", text.as_bytes());
    world.settle();
    world.append("a.log", 3);
    world.append("b.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

fn written_again(world: &mut World, count: usize) {
    let text = world.text(count);
    world.raw("a.log", text.as_bytes());
    for _ in 0..2 {
        world.settle();
        world.delete("a.log");
        world.scan();
        text.lines().for_each(|line| world.expect(line));
        world.raw("a.log", text.as_bytes());
    }
    world.settle();
}

fn unseen_again(world: &mut World) {
    let text = world.text(2);
    world.raw("a.log", text.as_bytes());
    world.settle();
    world.delete("a.log");
    world.raw("b.log", b"");
    world.raw("a.log", text.as_bytes());
    text.lines().for_each(|line| world.expect(line));
    world.settle();
}

fn swapped(world: &mut World) {
    world.append("a.log", 60);
    world.append("b.log", 3);
    world.settle();
    world.rename("a.log", "x");
    world.rename("b.log", "a.log");
    world.rename("x", "b.log");
    world.append("a.log", 3);
    world.append("b.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

fn replaced_by_rename(world: &mut World) {
    world.append("a.log", 60);
    world.settle();
    world.append("new.txt", 60);
    world.rename("new.txt", "a.log");
    world.settle();
    world.append("a.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// Foreign bytes before the position: what the file holds is another one.
fn edited(world: &mut World) {
    world.append("a.log", 60);
    world.settle();
    let content = fs::read_to_string(world.path("a.log")).expect("read");
    let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
    let last = lines.len() - 1;
    lines[last] = lines[last].replace("words", "other words, and more");
    lines.push("one more".to_owned());
    for line in &lines {
        world.expect(line);
    }
    fs::write(world.path("a.log"), lines.join("\n") + "\n").expect("written");
    world.settle();
}
