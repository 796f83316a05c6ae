//! Disk queues on disks that lose power, refuse to write, or are full. Needs root, loop devices, and
//! `mkfs` for ext4 and xfs; where these are missing the tests fail under `CI=true` and are left out by a developer's `./test`,
//! which names them (`testkit::rights`).
//!
//! The queue lies on the failing disk, while the registry, the log and the outputs lie elsewhere. So what the registry says
//! is acknowledged is what the queue must still have: the file is not read again from before that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::queue_place::{LoopDisk, QueuePlace, SMALL, on_small_disk};
use crate::running::{append, numbered};

/// Appends lines to the log all the time.
struct Load {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(place: &QueuePlace) -> Self {
        let (stop, written) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let log = place.place.log("app");
        let (ends, counts) = (stop.clone(), written.clone());
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let from = counts.load(Ordering::SeqCst);
                append(&log, &numbered("app", from..from + 200));
                counts.store(from + 200, Ordering::SeqCst);
                // About 100,000 lines a second: more than a slow test machine can check is no use.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self {
            stop,
            written,
            thread,
        }
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    /// Everything that was written.
    fn stop(self) -> String {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("it writes");
        numbered("app", 0..self.written.load(Ordering::SeqCst))
    }
}

/// Settings with which power is lost.
const POWER: [&str; 4] = [
    "segment_bytes: 256KiB",
    "segment_bytes: 64KiB, group_bytes: 0",
    "segment_bytes: 1MiB, compression: lz4, group_time: 20ms",
    "segment_bytes: 256KiB, compression: zstd, cache_bytes: 16MiB",
];

fn lose_power_under_load(kind: &str) {
    for settings in POWER {
        let Some(mut disk) = LoopDisk::new(kind) else {
            return;
        };
        let settings = format!("min_free_bytes: 0, {settings}");
        let mut place = QueuePlace::elsewhere(disk.path("queue"), &settings);
        place.two.down();
        let mut service = place.follow();
        let load = Load::start(&place);
        place.until_acknowledged(&mut service, 20_000);
        if !disk.lose_power() {
            return;
        }
        // Nothing is acknowledged from here on but what was durable before.
        service.until_said("queue: events cannot be stored");
        let at_loss = load.written();
        service.until("more lines", || load.written() > at_loss + 2000);
        service.kill();
        let written = load.stop();
        let acknowledged = place.acknowledged();
        assert!(acknowledged >= 20_000, "{settings}: {acknowledged}");
        assert_eq!(place.two.count(), 0);
        disk.remount();
        place.folder = disk.path("queue");
        place.two.up();
        let ended = place.deliver().expect(0);
        assert!(
            !ended.err.contains("damaged"),
            "{kind}, {settings}: {}",
            ended.err
        );
        // What was durable may come again: nobody was told any more that it was.
        place.one.expect_lines(&written);
        place.two.expect_lines(&written);
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power_of_ext4() {
    lose_power_under_load("ext4");
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power_of_xfs() {
    lose_power_under_load("xfs");
}

#[test]
fn by_interval_a_power_cut_loses_the_interval_at_most() {
    for kind in ["ext4", "xfs"] {
        let Some(mut disk) = LoopDisk::new(kind) else {
            return;
        };
        let settings =
            "min_free_bytes: 0, segment_bytes: 256KiB, durability: interval, sync_interval: 300ms";
        let mut place = QueuePlace::elsewhere(disk.path("queue"), settings);
        place.two.down();
        let mut service = place.follow();
        let load = Load::start(&place);
        place.until_acknowledged(&mut service, 5000);
        let safe = place.acknowledged();
        // The promise: after the interval these are durable. As much again for a machine with other work.
        let since = Instant::now();
        service.until("the interval", || {
            since.elapsed() > Duration::from_millis(600)
        });
        if !disk.lose_power() {
            return;
        }
        service.until_said("queue: events cannot be stored");
        service.kill();
        let written = load.stop();
        disk.remount();
        place.folder = disk.path("queue");
        place.two.up();
        let ended = place.deliver().expect(0);
        assert!(!ended.err.contains("damaged"), "{kind}: {}", ended.err);
        let (delivered, _) = place.two.delivered();
        let numbers = delivered.values().map(|line| {
            let number = line.rsplit(' ').next().expect("a number");
            number.parse::<usize>().expect("a number")
        });
        let numbers: std::collections::BTreeSet<usize> = numbers.collect();
        let first_lost = (0..written.lines().count()).find(|number| !numbers.contains(number));
        assert!(
            first_lost.is_none_or(|lost| lost >= safe),
            "{kind}: line {first_lost:?} was lost, {safe} were safe: {}",
            ended.err
        );
    }
}

#[test]
fn a_disk_whose_writes_fail_loses_nothing_acknowledged() {
    let Some(mut disk) = LoopDisk::hollow("ext4", "12m") else {
        return;
    };
    let mut place =
        QueuePlace::elsewhere(disk.path("queue"), "min_free_bytes: 0, segment_bytes: 1MiB");
    place.two.down();
    let mut service = place.follow();
    let load = Load::start(&place);
    service.until_said("queue: events cannot be stored");
    let at_failure = place.acknowledged();
    let written_then = load.written();
    service.until("more lines", || load.written() > written_then + 20_000);
    let written = load.stop();
    assert!(
        place.acknowledged() < written.lines().count(),
        "{at_failure}"
    );
    disk.fill_up();
    // Where the file system itself survived the errors the queue goes on; else the stop says what was not delivered.
    let (code, said) = service.end();
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {said}");
    assert_eq!(said.matches("events cannot be stored").count(), 1, "{said}");
    let acknowledged = place.acknowledged();
    if acknowledged < written.lines().count() && code == Some(1) {
        assert!(said.contains("were read but not delivered"), "{said}");
    }
    // No event is both.
    let count = |what: &str| {
        let line = said.lines().find(|line| line.contains(what));
        let words = line.iter().flat_map(|line| line.split(' '));
        let mut numbers = words.filter_map(|word| word.replace(',', "").parse::<usize>().ok());
        numbers.next().unwrap_or(0)
    };
    let (lost, kept) = (
        count("were read but not delivered"),
        count("remain in the disk queue"),
    );
    assert!(lost + kept <= written.lines().count(), "{said}");
    assert_eq!(place.two.count(), 0);
    disk.remount();
    place.folder = disk.path("queue");
    place.two.up();
    place.deliver().expect(0);
    place.one.expect_lines(&written);
    place.two.expect_lines(&written);
}

#[test]
fn a_full_disk_pauses_the_inputs_and_nothing_else() {
    let Some((disk, mut place, mut service)) = on_small_disk("4m", SMALL) else {
        return;
    };
    let filler = disk.fill();
    let written = place.write(0..0) + &numbered("app", 0..200) + &place.write(200..20_000);
    service.until_said("queue: events cannot be stored");
    // Outputs go on.
    place.two.up();
    service.until("the backlog", || place.two.count() >= 200);
    let stored = place.acknowledged();
    assert!(stored < 20_000, "{stored}");
    std::fs::remove_file(filler).expect("removed");
    service.until("everything", || {
        place.two.count() == 20_000 && place.one.count() == 20_000
    });
    service.until_said("queue: events can be stored again");
    place.until_acknowledged(&mut service, 20_000);
    let said = service.stop();
    for text in ["events cannot be stored", "events can be stored again"] {
        assert_eq!(said.matches(text).count(), 1, "{said}");
    }
    assert!(
        said.contains("has 0 bytes free") || said.contains("No space left"),
        "{said}"
    );
    place.one.expect_once(&written);
    place.two.expect_once(&written);
}

#[test]
fn a_service_that_ends_on_a_full_disk_loses_nothing() {
    for kill in [true, false] {
        let Some((disk, mut place, mut service)) = on_small_disk("4m", SMALL) else {
            return;
        };
        let filler = disk.fill();
        let written = numbered("app", 0..200) + &place.write(200..20_000);
        service.until_said("queue: events cannot be stored");
        if kill {
            service.kill();
        } else {
            let (code, said) = service.end();
            assert!(matches!(code, Some(0 | 1)), "{code:?}: {said}");
        }
        // It starts on the full disk too.
        let mut service = place.follow();
        place.two.up();
        service.until("the backlog", || place.two.count() >= 200);
        std::fs::remove_file(filler).expect("removed");
        place.until_acknowledged(&mut service, 20_000);
        service.until("everything", || {
            let (delivered, _) = place.two.delivered();
            delivered.len() == 20_000
        });
        service.stop();
        place.one.expect_lines(&written);
        let repeats = place.two.expect_lines(&written);
        assert!(kill || repeats == 0, "{repeats} came again");
    }
}
