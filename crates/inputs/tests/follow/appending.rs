//! Files that grow, and files that come.

use std::fs;
use std::os::unix::fs::symlink;

use crate::run;
use crate::world::{ALL, FOLLOWED, Mode, World};

#[test]
fn appending() {
    run(&[
        ("lines are appended", ALL, lines_are_appended),
        ("half lines are appended", FOLLOWED, half_lines),
        ("new files and folders", ALL, new_files_and_folders),
        ("excluded files", ALL, excluded_files),
        ("symlinks are followed", ALL, symlinks_on),
        ("symlinks are left out", ALL, symlinks_off),
        ("hard links are one file", ALL, hard_links),
        ("an empty file is filled", ALL, empty_file),
        ("room that is reserved and written to", ALL, |world| {
            reserved(world, 0);
        }),
        ("NULs that are written over", ALL, |world| {
            reserved(world, 64 << 10);
        }),
        ("from the end of reserved room", ALL, end_of_reserved),
    ]);
}

fn lines_are_appended(world: &mut World) {
    for count in [1, 3, 500, 1, 0, 20_000, 2] {
        world.append("a.log", count);
        world.settle();
    }
    assert_eq!(world.ids().len(), 1);
    let size = fs::metadata(world.path("a.log")).expect("there").len();
    world.wait("the position", |world| {
        world.file("a.log").expect("known").position == size
    });
}

fn half_lines(world: &mut World) {
    world.append("a.log", 2);
    for n in 0..3 {
        world.raw("a.log", format!("first of {n},").as_bytes());
        world.scan();
        world.raw("a.log", format!(" second of {n},").as_bytes());
        world.scan();
        world.raw("a.log", format!(" third of {n}\nnext").as_bytes());
        world.expect(&format!("first of {n}, second of {n}, third of {n}"));
        world.settle();
        world.raw("a.log", b"\n");
        world.expect("next");
        world.settle();
    }
}

fn new_files_and_folders(world: &mut World) {
    world.paths(&["**/*.log"]);
    world.append("a.log", 3);
    world.settle();
    for name in ["b.log", "sub/c.log", "sub/deep/er/d.log", "sub/deep/e.log"] {
        world.append(name, 3);
        world.append("a.log", 1);
        world.settle();
        world.append(name, 2);
        world.settle();
    }
    fs::rename(world.path("sub"), world.path("moved")).expect("renamed");
    world.append("moved/c.log", 2);
    world.append("sub/c.log", 2);
    world.settle();
    assert_eq!(world.ids().len(), 6);
}

fn excluded_files(world: &mut World) {
    world.paths(&["**/*.log"]);
    world.set("exclude: ['x*', '**/no/**']\n");
    world.raw("x.log", b"excluded\n");
    world.raw("no/a.log", b"excluded\n");
    world.raw("a.txt", b"not matched\n");
    world.append("a.log", 3);
    world.settle();
    world.raw("x.log", b"excluded too\n");
    world.scan();
    // A file that gets another name is read from its beginning.
    world.rename("a.txt", "now.log");
    world.expect("not matched");
    world.settle();
}

fn symlinks_on(world: &mut World) {
    world.append("real/a.txt", 3);
    symlink(world.path("real/a.txt"), world.path("link.log")).expect("linked");
    world.settle();
    world.append("real/a.txt", 3);
    world.settle();
    // What is also matched itself is read once.
    world.append("b.log", 3);
    symlink(world.path("b.log"), world.path("b2.log")).expect("linked");
    world.settle();
    world.append("b.log", 3);
    world.scan();
    // The link points at another file.
    world.append("real/c.txt", 3);
    fs::remove_file(world.path("link.log")).expect("deleted");
    symlink(world.path("real/c.txt"), world.path("link.log")).expect("linked");
    world.settle();
}

fn symlinks_off(world: &mut World) {
    world.set("follow_links: false\n");
    world.raw("real/a.txt", b"behind a link\n");
    symlink(world.path("real/a.txt"), world.path("link.log")).expect("linked");
    world.append("b.log", 3);
    world.settle();
    world.raw("real/a.txt", b"behind a link\n");
    world.scan();
}

fn hard_links(world: &mut World) {
    world.append("a.log", 3);
    fs::hard_link(world.path("a.log"), world.path("b.log")).expect("linked");
    world.settle();
    world.append("b.log", 3);
    world.settle();
    world.append("a.log", 3);
    world.settle();
    world.delete("a.log");
    world.append("b.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn empty_file(world: &mut World) {
    world.raw("a.log", b"");
    world.scan();
    world.append("a.log", 1);
    world.settle();
    if world.mode != Mode::Once {
        world.raw("b.log", b"h");
        world.scan();
        world.raw("b.log", b"alf\n");
        world.expect("half");
        world.settle();
    }
}

/// A file of which `nuls` are written, and the rest up to a MiB is a hole, is written to from its start.
fn reserved(world: &mut World, nuls: usize) {
    world.raw("app.log", &vec![0; nuls]);
    world.truncate("app.log", 1 << 20);
    let mut at = 0;
    for count in [1, 3, 200, 1] {
        let text = world.text(count);
        write_at(world, &text, at);
        at += text.len() as u64;
        world.settle();
    }
    world.truncate("app.log", at);
    world.append("app.log", 2);
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn end_of_reserved(world: &mut World) {
    world.set("start_at: end");
    world.raw("app.log", b"what was there at first\n");
    world.truncate("app.log", 1 << 20);
    if world.mode != Mode::Once {
        world.follow();
        world.wait("a first look", |world| !world.files().is_empty());
    }
    world.settle();
    let text = world.text(5);
    write_at(world, &text, 24);
    world.settle();
    world.truncate("app.log", 24 + text.len() as u64);
    world.settle();
}

fn write_at(world: &World, text: &str, at: u64) {
    let file = fs::File::options().write(true).open(world.path("app.log"));
    let file = file.expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), at).expect("written");
}
