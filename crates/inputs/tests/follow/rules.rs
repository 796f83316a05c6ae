//! The settings that say what is read, when files are closed or deleted, and which lines belong together.

use std::fs;
use std::time::Duration;

use component::FileStatus;

use crate::common::Receipts;
use crate::run;
use crate::world::{ALL, FOLLOWED, LIVE, Mode, World, gzip};

#[test]
fn rules() {
    run(&[
        ("start at the end", ALL, start_at_end),
        (
            "start at the end of compressed files",
            LIVE,
            start_at_end_of_gz,
        ),
        ("old files are ignored", ALL, ignore_older),
        ("deleted after acknowledgement", LIVE, delete_after),
        ("closed when inactive", LIVE, |world| {
            closing(world, "close: {inactive: 300ms}\n");
        }),
        ("closed after an interval", LIVE, |world| {
            closing(world, "close: {after: 300ms}\n");
        }),
        ("half a line of a removed file", LIVE, half_line_of_removed),
        ("few open files", FOLLOWED, few_open_files),
        ("the last line without end", &[Mode::Once], last_line),
    ]);
}

#[test]
fn records() {
    run(&[
        ("multiline", ALL, multiline),
        ("multiline by time-out", LIVE, multiline_timeout),
        ("multiline across a rotation", LIVE, multiline_rotated),
        (
            "multiline over restarts",
            &[Mode::Restarts],
            multiline_restarts,
        ),
        ("container and multiline", FOLLOWED, container_multiline),
        ("container in pieces", FOLLOWED, container_pieces),
        ("lines that are left out", ALL, left_out),
        ("only lines that are left out", ALL, all_left_out),
    ]);
}

fn start_at_end(world: &mut World) {
    world.set("start_at: end\n");
    world.raw("a.log", b"old\nold too\n");
    world.raw("long.log", &b"old line\n".repeat(1000));
    if world.mode != Mode::Once {
        world.follow();
        world.wait("both are known", |world| world.files().len() == 2);
    }
    world.settle();
    world.append("a.log", 3);
    world.append("long.log", 3);
    world.settle();
    let file = world
        .files()
        .into_iter()
        .find(|file| file.path.ends_with("long.log"));
    let file = file.expect("known");
    assert_eq!(
        (file.dropped_bytes, file.dropped[0].reason.as_str()),
        (9000, "start_at")
    );
    if LIVE.contains(&world.mode) {
        // What comes later is read from its beginning.
        world.append("b.log", 3);
        world.settle();
    }
}

fn start_at_end_of_gz(world: &mut World) {
    world.set("start_at: end\n");
    world.raw("a.log.gz", &gzip(&b"old line\n".repeat(1000)));
    world.follow();
    world.wait("it is passed over", |world| {
        world
            .file("a.log.gz")
            .is_some_and(|file| file.state == FileStatus::Done)
    });
    let text = world.text(3);
    world.raw("a.log.gz", &gzip(text.as_bytes()));
    world.settle();
}

fn ignore_older(world: &mut World) {
    world.set("ignore_older: 10m\n");
    world.raw("a.log", b"old\nold too\n");
    world.age("a.log");
    world.append("b.log", 3);
    world.settle();
    world.age("b.log");
    world.settle();
    world.append("b.log", 3);
    // Once it is written to, all of it is read.
    world.append("a.log", 3);
    world.expect("old");
    world.expect("old too");
    world.settle();
}

fn delete_after(world: &mut World) {
    world.set("delete_after: 200ms\n");
    world.sink.release(Receipts::Later);
    world.append("a.log", 60);
    let text = world.text(60);
    world.raw("b.log.gz", &gzip(text.as_bytes()));
    world.follow();
    world.wait("everything is sent", |world| world.taken().len() == 120);
    // Nothing is deleted long after its time, because nothing is acknowledged.
    let since = std::time::Instant::now();
    world.wait("time passes", |_| {
        since.elapsed() > Duration::from_millis(900)
    });
    assert!(world.path("a.log").exists() && world.path("b.log.gz").exists());
    world.raw("c.log", b"half a line");
    world.sink.release(Receipts::AtOnce);
    world.wait("both are deleted", |world| {
        !world.path("a.log").exists() && !world.path("b.log.gz").exists()
    });
    assert!(world.path("c.log").exists());
    world.raw("c.log", b" and the other\n");
    world.expect("half a line and the other");
    world.append("a.log", 3);
    world.settle();
    world.wait("all are deleted", |world| {
        !world.path("a.log").exists() && !world.path("c.log").exists()
    });
    let _ = world.stop();
    world.set("");
    world.raw("other.log", b"");
}

fn closing(world: &mut World, settings: &str) {
    world.set(settings);
    for round in 0..3 {
        world.append("a.log", 3);
        world.raw("a.log", format!("half {round}").as_bytes());
        world.expect(&format!("half {round}"));
        world.settle();
        world.wait("it is closed", |world| {
            world
                .file("a.log")
                .is_some_and(|file| file.state == FileStatus::Idle)
        });
    }
}

fn half_line_of_removed(world: &mut World) {
    world.append("a.log", 3);
    world.raw("a.log", b"half");
    world.settle();
    world.wait("half a line", |world| {
        world
            .file("a.log")
            .is_some_and(|file| file.in_flight_bytes == 4)
    });
    world.delete("a.log");
    world.expect("half");
    world.settle();
}

fn few_open_files(world: &mut World) {
    world.set("max_open_files: 2\n");
    for round in 0..3 {
        for n in 0..20 {
            let name = format!("{n}.log");
            world.append(&name, n);
            world.raw(&name, format!("half {n} {round}").as_bytes());
        }
        world.settle();
        for n in 0..20 {
            world.raw(&format!("{n}.log"), b" whole\n");
            world.expect(&format!("half {n} {round} whole"));
        }
        world.settle();
    }
}

fn last_line(world: &mut World) {
    world.append("a.log", 3);
    world.raw("a.log", b"no end");
    world.expect("no end");
    world.settle();
    world.raw("a.log", b", or is it\n");
    world.expect(", or is it");
    world.settle();
}

const TRACES: &str = "multiline: {pattern: '^ ', timeout: 30s}\n";

/// Records of several lines, of which only the last one waits.
fn multiline(world: &mut World) {
    world.set(TRACES);
    let mut text = String::new();
    let mut records = Vec::new();
    for n in 0..4000 {
        let mut record = format!("record {n}");
        for line in 0..n % 9 {
            record.push_str(&format!("\n  line {line} of it {}", "x".repeat(n % 500)));
        }
        text.push_str(&record);
        text.push('\n');
        records.push(record);
    }
    let last = records.pop().expect("there are some");
    records.iter().for_each(|record| world.expect(record));
    for piece in text.as_bytes().chunks(text.len() / 3 + 1) {
        world.raw("a.log", piece);
        if world.mode != Mode::Once {
            world.follow();
        }
    }
    if world.mode == Mode::Once {
        world.expect(&last);
        world.settle();
    } else {
        world.settle();
        // The last run gives it.
        world.expect(&last);
    }
}

fn multiline_timeout(world: &mut World) {
    world.set("multiline: {pattern: '^ ', timeout: 500ms}\n");
    for n in 0..3 {
        world.raw("a.log", format!("one {n}\n  two\n").as_bytes());
        world.expect(&format!("one {n}\n  two"));
        world.settle();
    }
    assert_eq!(world.ids().len(), 1);
}

fn multiline_rotated(world: &mut World) {
    world.set(TRACES);
    for n in 0..3 {
        world.raw("app.log", format!("one {n}\n  two\n").as_bytes());
        world.follow();
        world.wait("it was read", |world| {
            world
                .file("app.log")
                .is_some_and(|file| file.read_bytes == 12)
        });
        world.rename("app.log", &format!("app.log.{n}"));
        world.raw(&format!("app.log.{n}"), b"  three\n");
    }
    for n in 0..3 {
        world.expect(&format!("one {n}\n  two\n  three"));
    }
    world.settle();
}

fn multiline_restarts(world: &mut World) {
    world.set(TRACES);
    for n in 0..5 {
        world.raw("a.log", format!("record {n}\n").as_bytes());
        world.settle();
        world.raw("a.log", b"  first\n");
        world.settle();
        world.raw("a.log", b"  second\n");
        world.settle();
        world.raw("a.log", format!("next {n}\n").as_bytes());
        world.expect(&format!("record {n}\n  first\n  second"));
        world.settle();
        world.expect(&format!("next {n}"));
    }
}

fn container_multiline(world: &mut World) {
    world.is_interleaved = true;
    world.set("container: cri\nmultiline: {pattern: '^ ', timeout: 30s}\n");
    let line = |text: &str, stream: &str, tag: &str| {
        format!("2026-01-02T03:04:05.678901234Z {stream} {tag} {text}\n")
    };
    for n in 0..4 {
        let out = [
            line(&format!("out {n}"), "stdout", "F"),
            line(&format!("err {n}"), "stderr", "F"),
            line("  at on", "stdout", "P"),
            line("  at err", "stderr", "F"),
            line("e place", "stdout", "F"),
        ];
        for (part, piece) in out.iter().enumerate() {
            // The first line of a stream ends the record before it.
            match (n, part) {
                (1.., 0) => world.expect(&format!("out {}\n  at one place", n - 1)),
                (1.., 1) => world.expect(&format!("err {}\n  at err", n - 1)),
                _ => {}
            }
            world.raw("a.log", piece.as_bytes());
            world.settle();
        }
    }
    world.expect("out 3\n  at one place");
    world.expect("err 3\n  at err");
}

fn container_pieces(world: &mut World) {
    world.is_interleaved = true;
    world.set("container: cri\n");
    let line = |text: &str, stream: &str, tag: &str| {
        format!("2026-01-02T03:04:05.678901234Z {stream} {tag} {text}\n")
    };
    for n in 0..5 {
        world.raw(
            "a.log",
            line(&format!("one {n},"), "stdout", "P").as_bytes(),
        );
        world.settle();
        world.raw(
            "a.log",
            line(&format!("other {n}"), "stderr", "F").as_bytes(),
        );
        world.expect(&format!("other {n}"));
        world.settle();
        world.raw("a.log", line(" two", "stdout", "F").as_bytes());
        world.expect(&format!("one {n}, two"));
        world.settle();
    }
}

fn left_out(world: &mut World) {
    world.set("include_lines: ['^line', keep]\nexclude_lines: [secret]\n");
    world.append("a.log", 3);
    world.raw("a.log", b"other\nkeep it\nkeep a secret\n");
    world.expect("keep it");
    world.settle();
    world.append("a.log", 2);
    world.raw("a.log", b"other\n");
    world.settle();
    let size = fs::metadata(world.path("a.log")).expect("there").len();
    world.wait("the position", |world| {
        world
            .file("a.log")
            .is_some_and(|file| file.position == size)
    });
    let mut dropped = world.file("a.log").expect("known").dropped;
    dropped.sort_by(|one, other| one.reason.cmp(&other.reason));
    let dropped: Vec<_> = dropped
        .iter()
        .map(|dropped| (dropped.reason.as_str(), dropped.events, dropped.bytes))
        .collect();
    assert_eq!(
        dropped,
        [("exclude_lines", 1, 14), ("include_lines", 2, 12)]
    );
}

fn all_left_out(world: &mut World) {
    world.set("exclude_lines: ['']\n");
    world.raw("a.log", &b"a line\n".repeat(10_000));
    world.settle();
    if world.mode != Mode::Once && world.mode != Mode::Restarts {
        world.wait("the position", |world| {
            world
                .file("a.log")
                .is_some_and(|file| file.position == 70_000)
        });
    }
    world.raw("a.log", b"more\n");
    world.settle();
}
