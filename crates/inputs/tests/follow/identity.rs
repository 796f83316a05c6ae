//! Files that look like others.

use std::fs;
use std::io::Write;
use std::time::Duration;

use crate::common::Receipts;
use crate::run;
use crate::world::{ALL, LIVE, Mode, SEPARATE, World, gzip};

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
        ("moved to another file system", LIVE, moved),
        ("moved while nobody looks", SEPARATE, moved_unseen),
        ("copied and deleted at once", LIVE, copied_and_deleted),
        ("written anew behind a long header", SEPARATE, |world| {
            rewritten(world, |_, text| text.into_bytes());
        }),
        ("compressed anew behind a long header", SEPARATE, |world| {
            rewritten(world, |_, text| gzip(text.as_bytes()));
        }),
        (
            "others with the header of a truncated log",
            SEPARATE,
            others,
        ),
        ("a hot log beside thousands of files", LIVE, hot_log),
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

/// Copied piece by piece with its times, then deleted, as a move to another file system does.
fn moved(world: &mut World) {
    world.append("app.log", 3000);
    world.settle();
    let content = fs::read(world.path("app.log")).expect("read");
    for piece in content.chunks(content.len() / 4 + 1) {
        world.raw("moved.log", piece);
        std::thread::sleep(Duration::from_millis(300));
    }
    world.delete("app.log");
    world.append("moved.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn moved_unseen(world: &mut World) {
    world.append("app.log", 3000);
    world.settle();
    let old = fs::metadata(world.path("app.log")).expect("there");
    world.copy("app.log", "moved.log");
    let copy = fs::File::options()
        .write(true)
        .open(world.path("moved.log"));
    let time = old.modified().expect("a time");
    copy.and_then(|file| file.set_modified(time)).expect("set");
    world.delete("app.log");
    if world.mode != Mode::Once {
        // No line is missing, so that a run could end before it has looked.
        world.follow();
        world.wait("the new name", |world| world.file("moved.log").is_some());
    }
    world.settle();
    world.append("moved.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

/// The copy is seen when its original is gone already, which is still open.
fn copied_and_deleted(world: &mut World) {
    for name in ["a.log", "b.log", "c.log"] {
        world.append(name, 60);
    }
    world.settle();
    for name in ["a", "b", "c"] {
        world.copy(&format!("{name}.log"), &format!("{name}-moved.log"));
        std::thread::sleep(Duration::from_millis(20));
        world.delete(&format!("{name}.log"));
    }
    for name in ["a-moved.log", "b-moved.log", "c-moved.log"] {
        world.wait("the new name", |world| world.file(name).is_some());
    }
    world.append("a-moved.log", 3);
    world.settle();
    assert_eq!(world.ids().len(), 3);
}

/// A run is killed before any position was saved, and the file is written anew in place meanwhile.
fn rewritten(world: &mut World, pack: fn(&str, String) -> Vec<u8>) {
    let first = with_header(world);
    fs::write(world.path("a.log"), pack("a.log", first)).expect("written");
    send_only(world);
    let second = with_header(world);
    second.lines().for_each(|line| world.expect(line));
    fs::write(world.path("a.log"), pack("a.log", second)).expect("written");
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

/// 120 lines, half of them a header that is longer than a fingerprint.
fn with_header(world: &mut World) -> String {
    let header = "a header that all files have in common\n".repeat(60);
    (0..60).fold(header, |text, _| {
        text + &format!("line {} of a log\n", world.number())
    })
}

/// A run that sends 120 lines and ends before it hears of them.
fn send_only(world: &mut World) {
    world.sink.release(Receipts::Later);
    world.follow();
    world.wait("the lines", |world| world.count() == 120);
    let _ = world.stop();
    world.sink.release(Receipts::AtOnce);
}

/// Of files that begin like a log whose position was never saved, only its copy goes on with it.
fn others(world: &mut World) {
    let log = with_header(world);
    world.raw("a.log", log.as_bytes());
    send_only(world);
    world.may_repeat = true;
    for name in ["b.log.gz", "c.log.gz"] {
        let other = with_header(world);
        other.lines().for_each(|line| world.expect(line));
        world.raw(name, &gzip(other.as_bytes()));
        world.age(name);
    }
    log.lines().for_each(|line| world.expect(line));
    world.raw("d.log.gz", &gzip(log.as_bytes()));
    world.age("d.log.gz");
    world.truncate("a.log", 0);
    world.append("a.log", 2);
    world.settle();
    assert_eq!(world.ids().len(), 4);
}

/// What is known of the size of a log is older than what was read of it meanwhile.
fn hot_log(world: &mut World) {
    world.follow();
    let path = world.path("hot.log");
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::create(path).expect("made");
        for number in 0..4000 {
            writeln!(file, "hot line {number}").expect("written");
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    (0..4000).for_each(|number| world.expect(&format!("hot line {number}")));
    for number in 0..3000 {
        world.append(&format!("cold-{number}.log"), 1);
    }
    writer.join().expect("no panic");
    world.settle();
    assert_eq!(world.ids().len(), 3001);
}
