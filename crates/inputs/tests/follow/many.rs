//! Many files, and a huge one beside small ones.

use std::time::{Duration, Instant};

use crate::run;
use crate::world::{LIVE, Mode, World, gzip};

#[test]
fn many() {
    run(&[
        ("a huge file and small ones", LIVE, |world| {
            huge(world, false);
        }),
        ("a huge gz and small ones", LIVE, |world| huge(world, true)),
        (
            "three thousand files",
            &[Mode::Inotify, Mode::Poll, Mode::Once],
            three_thousand,
        ),
        (
            "written to while they wait their turn",
            &[Mode::Inotify],
            written_in_turn,
        ),
    ]);
}

/// The small ones are delivered while most of the huge one is not.
fn huge(world: &mut World, is_compressed: bool) {
    const LINE: usize = 1000;
    const LINES: usize = 160_000;
    let line = "x".repeat(LINE - 1);
    let block = format!("{line}\n").repeat(LINES / 16);
    world.is_final = false;
    for _ in 0..16 {
        if is_compressed {
            world.raw("huge.log", &gzip(block.as_bytes()));
        } else {
            world.raw("huge.log", block.as_bytes());
        }
    }
    // A second of reading at least.
    world.sink.slow_down(Duration::from_millis(6));
    world.follow();
    world.wait("the huge one is being read", |world| world.count() > 0);
    let start = Instant::now();
    for n in 0..50 {
        world.append(&format!("small{n}.log"), 3);
    }
    let (mut small, mut all) = (0, 0);
    world.wait("the small ones", |world| {
        small = world.count_of(|text| text.starts_with("line "));
        all = world.count();
        small == 150
    });
    assert!(all < LINES, "{all} after {:?}", start.elapsed());
    let _ = world.stop();
}

fn three_thousand(world: &mut World) {
    world.set("max_open_files: 10\n");
    for n in 0..3000 {
        world.append(&format!("{n}.log"), 2);
    }
    world.settle();
    for n in (0..3000).step_by(3) {
        world.append(&format!("{n}.log"), 1);
    }
    world.settle();
    for n in (0..3000).step_by(100) {
        world.rename(&format!("{n}.log"), &format!("{n}.log.1"));
        world.append(&format!("{n}.log.1"), 1);
    }
    world.settle();
    assert_eq!(world.ids().len(), 3000);
}

/// A file that is taken in because it was written to is not taken in again when its turn comes, as a copy of itself. Copies
/// are held back for 10 seconds.
fn written_in_turn(world: &mut World) {
    for n in 0..3000 {
        world.append(&format!("{n}.log"), 2);
    }
    world.sink.slow_down(Duration::from_millis(1));
    world.follow();
    world.wait("the first ones", |world| world.count() > 0);
    for n in (0..3000).step_by(10) {
        world.append(&format!("{n}.log"), 1);
    }
    world.settle();
    std::thread::sleep(Duration::from_secs(11));
    world.settle();
    assert_eq!(world.ids().len(), 3000);
}
