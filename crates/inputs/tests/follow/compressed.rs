//! Compressed files that grow, are cut short, or broken, and going on in their middle.

use std::fs;

use component::FileStatus;

use crate::common::Receipts;
use crate::run;
use crate::world::{ALL, LIVE, Mode, SEPARATE, World, gzip, zstd};

type Pack = fn(&[u8]) -> Vec<u8>;

#[test]
fn compressed() {
    run(&[
        ("members are appended to gz", ALL, |world| {
            members(world, gzip);
        }),
        ("frames are appended to zst", ALL, |world| {
            members(world, zstd);
        }),
        ("members end within lines", LIVE, |world| {
            ends_within_lines(world, gzip);
        }),
        ("frames end within lines", LIVE, |world| {
            ends_within_lines(world, zstd);
        }),
        ("half a line at the end of a gz", LIVE, half_line),
        ("a gz grows in pieces", ALL, |world| pieces(world, gzip)),
        ("a zst grows in pieces", ALL, |world| pieces(world, zstd)),
        ("a small gz grows in pieces", ALL, small_pieces),
        ("a broken gz", ALL, broken),
        ("a broken gz is mended", ALL, mended),
        ("garbage behind a gz", ALL, garbage),
        ("a gz is replaced", ALL, replaced),
        ("a gz resumes in the middle", SEPARATE, |world| {
            resumes(world, gzip, 1);
        }),
        ("a gz of members resumes in the middle", SEPARATE, |world| {
            resumes(world, gzip, 40);
        }),
        ("a zst of frames resumes in the middle", SEPARATE, |world| {
            resumes(world, zstd, 40);
        }),
        (
            "a zst of one frame resumes in the middle",
            SEPARATE,
            |world| {
                resumes(world, zstd, 1);
            },
        ),
    ]);
}

fn members(world: &mut World, pack: Pack) {
    for count in [5, 3000, 0, 1, 60] {
        let text = world.text(count);
        world.raw("a.log.gz", &pack(text.as_bytes()));
        world.settle();
        let text = world.text(1);
        world.raw("a.log.gz", &pack(text.as_bytes()));
        world.settle();
    }
    if world.mode != Mode::Restarts {
        world.wait("the end", |world| {
            world.file("a.log.gz").expect("known").state == FileStatus::Done
        });
    }
    assert_eq!(world.ids().len(), 1);
}

/// Each member ends within a line, and the next one comes when everything before it was read.
fn ends_within_lines(world: &mut World, pack: Pack) {
    let text = world.text(400);
    let lines_before = |end: usize| {
        text.as_bytes()[..end]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
    };
    let mut end = 0;
    for piece in text.as_bytes().chunks(text.len() / 30 + 7) {
        world.raw("a.log.gz", &pack(piece));
        world.follow();
        end += piece.len();
        let lines = lines_before(end);
        world.wait("whole lines", |world| world.count() == lines);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(world.count(), lines);
    }
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

/// It is given at once where nobody has written for a while, else when nobody did for a while.
fn half_line(world: &mut World) {
    let text = world.text(3);
    world.raw("old.log.gz", &gzip(format!("{text}old half").as_bytes()));
    world.age("old.log.gz");
    world.expect("old half");
    world.settle();
    let text = world.text(3);
    world.raw("new.log.gz", &gzip(format!("{text}new half").as_bytes()));
    world.settle();
    world.rename("new.log.gz", "new.log.2.gz");
    world.expect("new half");
    world.settle();
}

/// In each piece some whole lines come, which must be given before the file is whole.
fn pieces(world: &mut World, pack: Pack) {
    let text = world.text(30_000);
    let packed = pack(text.as_bytes());
    for piece in packed.chunks(packed.len() / 7 + 1) {
        let before = world.count();
        world.raw("a.log.gz", piece);
        if world.mode == Mode::Once {
            let _ = world.read_once();
        } else {
            world.follow();
            world.wait("more lines", |world| world.count() > before);
            if world.mode == Mode::Restarts {
                let _ = world.stop();
            }
        }
    }
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn small_pieces(world: &mut World) {
    let text = world.text(3);
    let packed = gzip(text.as_bytes());
    for piece in packed.chunks(9) {
        world.raw("a.log.gz", piece);
        if world.mode == Mode::Once {
            let _ = world.read_once();
        } else {
            world.follow();
            if world.mode == Mode::Restarts {
                let _ = world.stop();
            }
        }
    }
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

/// Two members of which the second is broken at its start, and as they were before.
fn broken_gzip(world: &mut World) -> (Vec<u8>, Vec<u8>) {
    let (first, second) = (world.text(30_000), "more\n".repeat(30_000));
    let (first, second) = (gzip(first.as_bytes()), gzip(second.as_bytes()));
    let mut bad = second.clone();
    // A block of a type that there is not.
    bad[10] = 0xFF;
    ([first.clone(), bad].concat(), [first, second].concat())
}

/// Has a broken file read.
fn read_broken(world: &mut World) {
    if world.mode == Mode::Once {
        let problems = world.read_once();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("corrupt gzip data"), "{problems:?}");
    } else {
        world.follow();
        world.wait("the state", |world| {
            let file = world.file("a.log.gz");
            file.is_some_and(|file| file.state == FileStatus::Broken && file.in_flight_bytes == 0)
        });
    }
    world.verify();
}

fn broken(world: &mut World) {
    let (bad, _) = broken_gzip(world);
    world.raw("a.log.gz", &bad);
    read_broken(world);
    let _ = world.stop();
    for _ in 0..2 {
        world.append("b.log", 1);
        world.settle();
        world.scan();
        let file = world
            .files()
            .into_iter()
            .find(|file| file.path.ends_with(".gz"));
        // Nothing happens to it, so it may sleep in the registry.
        if let Some(file) = file {
            assert_eq!(file.state, FileStatus::Broken);
            assert_eq!(file.acknowledged_events, 30_000);
        }
    }
    let told = |warning: &&String| warning.contains("corrupt gzip data");
    let warnings = world.warnings();
    let times = warnings.iter().filter(told).count();
    assert_eq!(times, usize::from(world.mode != Mode::Once), "{warnings:?}");
    assert!(
        !warnings.iter().any(|told| told.contains("bad state")),
        "{warnings:?}"
    );
}

/// What was given stays given; what follows is read when the file is whole.
fn mended(world: &mut World) {
    let (bad, good) = broken_gzip(world);
    world.raw("a.log.gz", &bad);
    read_broken(world);
    let _ = world.stop();
    fs::write(world.path("a.log.gz"), good).expect("written");
    (0..30_000).for_each(|_| world.expect("more"));
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn garbage(world: &mut World) {
    let text = world.text(60);
    world.raw("a.log.gz", &gzip(text.as_bytes()));
    world.raw("a.log.gz", b"this is no member");
    world.settle();
    world.scan();
    let told = |warning: &&String| warning.contains("a.log.gz: the data after");
    let warnings = world.warnings();
    assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
}

fn replaced(world: &mut World) {
    for count in [60, 3, 600] {
        let text = world.text(count);
        fs::write(world.path("a.log.gz"), gzip(text.as_bytes())).expect("written");
        world.settle();
    }
    assert_eq!(world.ids().len(), 3);
}

/// Stops after some events of a content of 24 MB, whatever was sent behind them, and goes on.
fn resumes(world: &mut World, pack: Pack, parts: usize) {
    const LINES: usize = 24_000;
    let mut packed = Vec::new();
    let mut lines = Vec::new();
    let mut state = 7_u64;
    for _ in 0..LINES {
        let mut line = String::new();
        while line.len() < 1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            line.push_str(&format!("{:016x} some words ", state >> 8));
        }
        world.expect(&line);
        lines.push(line + "\n");
    }
    for part in lines.chunks(LINES.div_ceil(parts)) {
        packed.extend(pack(part.concat().as_bytes()));
    }
    world.raw("a.log.gz", &packed);
    world.sink.release(Receipts::AtOnceUpTo(LINES * 4 / 5));
    world.may_repeat = true;
    world.follow();
    world.wait("the first part", |world| {
        world
            .taken()
            .iter()
            .filter(|(_, is_delivered)| *is_delivered)
            .count()
            > LINES * 3 / 4
            && world.taken().iter().any(|(_, is_delivered)| !is_delivered)
    });
    let _ = world.stop();
    let sent = world.taken().len();
    let file = world.file("a.log.gz").expect("known");
    let delivered = file.acknowledged_events as usize;
    assert!(delivered > LINES / 2, "{file:#?}");
    if parts > 1 || packed.starts_with(b"\x1F\x8B") {
        assert_eq!(file.checkpoints, 1, "{file:#?}");
    }
    world.sink.release(Receipts::AtOnce);
    world.settle();
    // Exactly the missing rest.
    let rest = world.taken().split_off(sent);
    assert_eq!(rest.len(), LINES - delivered);
    let texts = rest.iter().map(|(seen, _)| seen.text.as_str());
    assert!(
        texts.eq(lines[delivered..]
            .iter()
            .map(|line| line.trim_end_matches('\n')))
    );
}

#[test]
fn many_compressed() {
    run(&[
        ("two hundred gz", ALL, two_hundred),
        ("two hundred gz, again", LIVE, two_hundred),
    ]);
}

fn two_hundred(world: &mut World) {
    for n in 0..200 {
        let text = world.text(n);
        world.raw(&format!("{n}.log.gz"), &gzip(text.as_bytes()));
    }
    world.settle();
    for n in 0..200 {
        let text = world.text(3);
        world.raw(&format!("{n}.log.gz"), &gzip(text.as_bytes()));
    }
    world.settle();
}
