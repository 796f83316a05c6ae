//! Receipts that resolve late, in part, or say that nothing was delivered.

use crate::common::Receipts;
use crate::run;
use crate::world::{ALL, FOLLOWED, LIVE, SEPARATE, World, gzip};

#[test]
fn receipts() {
    run(&[
        ("late receipts", LIVE, late),
        ("failed receipts", SEPARATE, |world| failed(world, false)),
        ("failed receipts of a gz", SEPARATE, |world| {
            failed(world, true);
        }),
        (
            "failed receipts and a rotation",
            FOLLOWED,
            failed_and_rotated,
        ),
        ("nothing is ever delivered", ALL, never),
    ]);
}

/// Positions wait for receipts.
fn late(world: &mut World) {
    world.sink.release(Receipts::Later);
    world.append("a.log", 10_000);
    world.follow();
    world.wait("everything is sent", |world| world.count() == 10_000);
    world.wait("it is in flight", |world| {
        let file = world.file("a.log").expect("known");
        file.in_flight_events == 10_000
    });
    let file = world.file("a.log").expect("known");
    assert_eq!((file.position, file.acknowledged_events), (0, 0));
    world.sink.release(Receipts::AtOnce);
    world.settle();
}

/// The position stays before what failed, and the next run begins exactly there, with the same ids.
fn failed(world: &mut World, is_compressed: bool) {
    world.may_repeat = true;
    let text = world.text(180_000);
    if is_compressed {
        world.raw("a.log", &gzip(text.as_bytes()));
    } else {
        world.raw("a.log", text.as_bytes());
    }
    let mut position = 0;
    for part in 1..4 {
        let before = world.count();
        world.sink.release(Receipts::AtOnceUpTo(before + 40_000));
        world.follow();
        world.wait("some was delivered, some not", |world| {
            let taken = world.taken();
            taken.len() > before && taken.last().is_some_and(|(_, is_delivered)| !is_delivered)
        });
        let _ = world.stop();
        let file = world.file("a.log").expect("known");
        let acknowledged = file.acknowledged_events as usize;
        assert!(acknowledged <= part * 40_000, "{file:#?}");
        let lines = text.split_inclusive('\n').take(acknowledged);
        assert_eq!(file.position, lines.map(str::len).sum::<usize>() as u64);
        // The first event of this run began where the last one ended.
        let (first, _) = &world.taken()[before];
        let begin = first.id.split('-').nth(1).expect("an id has three parts");
        assert_eq!(begin, format!("{position:x}"));
        position = file.position;
    }
    assert!(position > 0);
    world.sink.release(Receipts::AtOnce);
    world.settle();
    assert_eq!(world.ids().len(), 1);
}

fn failed_and_rotated(world: &mut World) {
    world.may_repeat = true;
    world.append("app.log", 60);
    world.settle();
    let _ = world.stop();
    world.sink.release(Receipts::Never);
    let before = world.count();
    world.append("app.log", 60);
    world.follow();
    world.wait("it was sent", |world| world.count() >= before + 60);
    world.rename("app.log", "app.log.1");
    world.append("app.log", 60);
    world.wait("it was sent", |world| world.count() >= before + 120);
    let _ = world.stop();
    world.sink.release(Receipts::AtOnce);
    world.settle();
    assert_eq!(world.ids().len(), 2);
}

fn never(world: &mut World) {
    world.may_repeat = true;
    world.sink.release(Receipts::Never);
    world.append("a.log", 60);
    for _ in 0..3 {
        let before = world.count();
        world.follow();
        world.wait("it was sent", |world| world.count() == before + 60);
        let _ = world.stop();
        let file = world.file("a.log").expect("known");
        assert_eq!(
            (file.position, file.read_events, file.acknowledged_events),
            (0, 0, 0)
        );
    }
    world.sink.release(Receipts::AtOnce);
    world.settle();
}
