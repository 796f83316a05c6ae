//! Files that are renamed, compressed and deleted while they are read.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use component::{FileLedger, FileStatus};

use crate::common::Receipts;
use crate::run;
use crate::world::{ALL, FOLLOWED, LIVE, Mode, SEPARATE, World, gzip, zstd};

#[test]
fn rotating() {
    run(&[
        ("renamed while written", ALL, renamed_while_written),
        ("chain to gz", ALL, |world| chain(world, gzip, "gz")),
        ("chain to zst", ALL, |world| chain(world, zstd, "zst")),
        ("small chain to gz", FOLLOWED, small_chain),
        ("compressed with unread rest", SEPARATE, unread_rest),
        ("three generations unread", SEPARATE, generations),
        ("gz written slowly", FOLLOWED, slow_gz),
        ("gz kept beside", ALL, kept_gz),
        ("deleted while written", LIVE, deleted_while_written),
        ("renamed out of the patterns", LIVE, renamed_away),
        ("moved to another folder and back", ALL, moved),
        ("renamed out of sight while stopped", SEPARATE, out_of_sight),
    ]);
}

fn open(world: &World, name: &str) -> File {
    let mut options = OpenOptions::new();
    let options = options.create(true).append(true);
    options.open(world.path(name)).expect("opened")
}

fn write(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).expect("written");
}

fn renamed_while_written(world: &mut World) {
    for round in 0..5 {
        let mut writer = open(world, "app.log");
        let text = world.text(30);
        write(&mut writer, &text);
        if round % 2 == 0 {
            world.settle();
        }
        fs::rename(
            world.path("app.log"),
            world.path(&format!("app.log.{round}")),
        )
        .expect("renamed");
        let text = world.text(30);
        write(&mut writer, &text);
        if round % 3 != 2 {
            world.append("app.log", 5);
            world.settle();
        }
        let text = world.text(30);
        write(&mut writer, &text);
        world.settle();
    }
    assert_eq!(world.ids().len(), 5 + 1);
}

/// One file as `app.log`, `app.log.1`, `app.log.1.gz`: one id, one position.
fn chain(world: &mut World, pack: fn(&[u8]) -> Vec<u8>, extension: &str) {
    let packed = format!("app.log.1.{extension}");
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 60);
    world.rename("app.log", "app.log.1");
    world.settle();
    world.append("app.log", 60);
    world.settle();
    if world.mode != Mode::Once {
        world.wait("the new name", |world| world.file("app.log.1").is_some());
    }
    let position = world.file("app.log.1").expect("known").position;
    let id = world.file("app.log.1").expect("known").id;
    let content = fs::read(world.path("app.log.1")).expect("read");
    world.raw(&packed, &pack(&content));
    world.age(&packed);
    world.delete("app.log.1");
    world.scan();
    world.append("app.log", 5);
    world.settle();
    if world.mode != Mode::Restarts {
        world.wait("the packed one", |world| world.file(&packed).is_some());
        let file = world.file(&packed).expect("just seen");
        assert_eq!((file.id, file.position), (id, position));
    }
    // Once more, and the packed one gets another name.
    world.rename(&packed, &format!("app.log.2.{extension}"));
    world.append("app.log", 5);
    world.settle();
}

/// Less than a fingerprint.
fn small_chain(world: &mut World) {
    world.append("app.log", 3);
    world.settle();
    world.rename("app.log", "app.log.1");
    world.append("app.log", 3);
    world.settle();
    let content = fs::read(world.path("app.log.1")).expect("read");
    world.raw("app.log.1.gz", &gzip(&content));
    world.delete("app.log.1");
    world.scan();
    world.append("app.log", 3);
    world.settle();
}

fn unread_rest(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    // All of this happens while nobody reads.
    world.append("app.log", 2000);
    let content = fs::read(world.path("app.log")).expect("read");
    world.raw("app.log.1.gz", &gzip(&content));
    world.age("app.log.1.gz");
    world.delete("app.log");
    world.append("app.log", 60);
    world.settle();
    world.append("app.log", 60);
    world.settle();
    assert_eq!(
        world
            .files()
            .iter()
            .filter(|file| file.position > 0)
            .count(),
        2
    );
}

fn generations(world: &mut World) {
    world.append("app.log", 60);
    world.settle();
    for _ in 0..3 {
        for generation in (1..4).rev() {
            let from = format!("app.log.{generation}.gz");
            if world.path(&from).exists() {
                world.rename(&from, &format!("app.log.{}.gz", generation + 1));
            }
        }
        world.append("app.log", 60);
        let content = fs::read(world.path("app.log")).expect("read");
        world.raw("app.log.1.gz", &gzip(&content));
        world.delete("app.log");
        world.append("app.log", 60);
    }
    // Packed a moment ago, so that it may still be being written.
    world.settle();
    world.settle();
}

fn slow_gz(world: &mut World) {
    world.append("app.log", 3000);
    world.rename("app.log", "app.log.1");
    world.append("app.log", 3);
    world.settle();
    let packed = gzip(&fs::read(world.path("app.log.1")).expect("read"));
    for piece in packed.chunks(packed.len() / 4 + 1) {
        world.raw("app.log.1.gz", piece);
        world.scan();
    }
    world.delete("app.log.1");
    world.scan();
    world.append("app.log", 3);
    world.settle();
}

/// As `gzip -k` does, which keeps the times too.
fn kept_gz(world: &mut World) {
    world.append("app.log.1", 600);
    world.settle();
    world.raw(
        "app.log.1.gz",
        &gzip(&fs::read(world.path("app.log.1")).expect("read")),
    );
    world.age("app.log.1.gz");
    world.scan();
    world.append("app.log", 3);
    world.settle();
    world.delete("app.log.1");
    world.scan();
    world.scan();
    if world.mode != Mode::Restarts {
        world.wait("the packed one", |world| {
            world.file("app.log.1.gz").is_some()
        });
    }
}

fn deleted_while_written(world: &mut World) {
    let mut writer = open(world, "app.log");
    let text = world.text(30);
    write(&mut writer, &text);
    world.settle();
    world.delete("app.log");
    let text = world.text(30);
    write(&mut writer, &text);
    world.append("app.log", 30);
    world.settle();
}

fn renamed_away(world: &mut World) {
    let mut writer = open(world, "app.log");
    let text = world.text(30);
    write(&mut writer, &text);
    world.settle();
    world.rename("app.log", "old.txt");
    let text = world.text(30);
    write(&mut writer, &text);
    world.append("app.log", 30);
    world.settle();
}

fn moved(world: &mut World) {
    world.paths(&["**/*.log*"]);
    world.append("app.log", 60);
    world.append("old/x.log", 1);
    world.settle();
    world.rename("app.log", "old/app.log.1");
    world.append("old/app.log.1", 3);
    world.append("app.log", 3);
    world.settle();
    // Elsewhere, where nobody looks, and back.
    world.rename("old/app.log.1", "away");
    world.scan();
    world.raw("away", b"");
    world.append("away", 3);
    world.rename("away", "app.log.1");
    world.settle();
    assert_eq!(
        world
            .files()
            .iter()
            .filter(|file| file.position > 2000)
            .count(),
        1
    );
}

/// What was not read of it is told, and its state says that it is gone.
fn out_of_sight(world: &mut World) {
    world.append("app.log", 60);
    world.append("other.log", 1);
    world.sink.release(Receipts::Later);
    world.follow();
    world.wait("the lines", |world| world.count() == 61);
    // Nothing was acknowledged, so all of it is still to be delivered.
    let _ = world.stop();
    world.sink.release(Receipts::AtOnce);
    world.rename("app.log", "app.old");
    world.may_repeat = true;
    let lost = fs::read_to_string(world.path("app.old")).expect("read");
    lost.lines().for_each(|line| world.forget(line));
    world.settle();
    let told = |warning: &&String| {
        warning.contains("app.log: has disappeared")
            && warning.contains("bytes of it were not read")
    };
    let warnings = world.warnings();
    assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
    let gone = |file: &&FileLedger| file.path.ends_with("app.log");
    let file = world.files().into_iter().find(|file| gone(&file));
    assert_eq!(file.expect("known").state, FileStatus::Gone);
    // It is told once.
    world.scan();
    let warnings = world.warnings();
    assert_eq!(warnings.iter().filter(told).count(), 1, "{warnings:?}");
    world.is_final = false;
}
