//! Outputs that failed for good, or take nothing for now, or little: the others go on, nothing is held for a failed one in
//! memory, and what is stored stays for it. Each test drives the steps of the queue itself, without a thread.

use std::path::Path;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::Receipt;
use config::{Period, Size};
use disk::FolderStorage;
use queue::log::Compression;
use queue::{
    DiskOptions, DiskSettings, Durability, Limits, Mode, NewOutput, Queue, QueuePhase, Taken,
    WhenFull,
};

const EVENTS: u64 = 3;

fn batch(number: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    let buffer = builder.buffer(bytes::Bytes::from_static(b"an event"));
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for _ in 0..EVENTS {
        let span = Span {
            buffer,
            start: 0,
            len: 8,
        };
        builder.push(span, number, number + 1);
    }
    builder.finish()
}

fn open(folder: &Path, mode: Mode, may_part: bool) -> Arc<Queue> {
    let settings = DiskSettings {
        max_bytes: Size(16 << 20),
        max_events: None,
        max_age: None,
        when_full: WhenFull::Block,
        durability: Durability::Fsync,
        sync_interval: Period::from_secs(1),
        group_bytes: Size(0),
        group_time: Period::default(),
        compression: Compression::None,
        segment_bytes: Size(64 << 10),
        cache_bytes: Size(4 << 10),
        min_free_bytes: Size(0),
        new_output: NewOutput::Oldest,
        orphan_retention: Period::from_secs(3600),
        ..DiskSettings::default()
    };
    let options = DiskOptions {
        mode,
        may_part,
        // It stands still: nothing happens because time went by.
        steady: Arc::new(|| 0),
        ..DiskOptions::new(settings, &["good", "bad"])
    };
    let storage = FolderStorage::open(folder).expect("a folder");
    Queue::open_on(Arc::new(storage), options).expect("a queue always opens")
}

fn send(queue: &Arc<Queue>, numbers: std::ops::Range<u64>) -> Vec<Receipt> {
    let sent = numbers.map(|number| {
        let receipt = queue.try_send(batch(number), false);
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
        receipt.expect("there is room")
    });
    sent.collect()
}

/// The numbers of the batches that each output gets. The first one passes them; the second lets them go where it `failed`,
/// and passes them otherwise.
fn deliver(queue: &Arc<Queue>, failed: bool) -> [Vec<u64>; 2] {
    let mut got = [Vec::new(), Vec::new()];
    while let Some(taken) = queue.try_take(&|_| true).expect("it is read") {
        let Taken::Batch(entry, batch) = taken else {
            panic!("nothing is damaged")
        };
        for place in &entry.lanes {
            got[place.lane].push(batch.origin().start(0));
            match place.lane == 1 && failed {
                true => entry.ticket.let_go(1),
                false => entry.ticket.pass(place.lane),
            }
        }
    }
    got
}

fn delivered(receipts: Vec<Receipt>) -> Vec<bool> {
    let mut receipts = receipts;
    let known = receipts.iter_mut().map(Receipt::try_delivered);
    let known = known.map(|known| known.expect("it is resolved").is_ok());
    known.collect()
}

#[test]
fn in_memory_the_others_go_on_and_nothing_it_missed_counts_as_delivered() {
    let limits = Limits {
        size_max: 1 << 20,
        events_max: 10,
    };
    let queue = Queue::memory(limits, 2, Arc::default());
    let mut receipts = send(&queue, 0..1);
    assert_eq!(deliver(&queue, false), [[0], [0]]);
    receipts.extend(send(&queue, 1..3));
    queue.fail(1);
    assert_eq!(deliver(&queue, true), [[1, 2], [1, 2]]);
    assert_eq!(queue.held().memory_events, 0, "the room is given back");
    for number in 3..2000 {
        receipts.extend(send(&queue, number..number + 1));
        assert_eq!(deliver(&queue, true), [[number], [number]]);
    }
    assert_eq!(queue.held().unsafe_events, 1999 * EVENTS);
    // What does not concern it is delivered.
    receipts.extend(send(&queue, 2000..2001));
    assert_eq!(deliver(&queue, false), [[2000], [2000]]);
    let delivered = delivered(receipts);
    assert!(delivered[0] && delivered[2000]);
    assert!(delivered[1..2000].iter().all(|delivered| !delivered));
    queue.close(QueuePhase::Draining);
    assert!(queue.take(&|_| true).is_none());
}

#[test]
fn on_disk_what_it_did_not_take_stays_for_its_next_run() {
    for may_part in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let queue = open(folder.path(), Mode::Everything, may_part);
        send(&queue, 0..2);
        deliver(&queue, false);
        send(&queue, 2..4);
        let Some(Taken::Batch(entry, _)) = queue.try_take(&|_| true).expect("it is read") else {
            panic!("there is a batch")
        };
        queue.fail(1);
        entry.ticket.let_go(1);
        entry.ticket.pass(0);
        drop(entry);
        assert_eq!(deliver(&queue, true), [vec![3], vec![]]);
        // More than any output may hold, and more than fits in memory.
        for from in (4..1500).step_by(11) {
            let receipts = send(&queue, from..from + 11);
            assert!(delivered(receipts).iter().all(|delivered| *delivered));
            let [good, bad] = deliver(&queue, true);
            assert!(good.into_iter().eq(from..from + 11) && bad.is_empty());
            assert_eq!(queue.held().memory_events, 0, "nothing is held for it");
        }
        let held = queue.held();
        assert_eq!((held.unsafe_events, held.stored_events), (0, 1498 * EVENTS));
        queue.close(QueuePhase::Draining);
        assert!(queue.take(&|_| true).is_none(), "nobody waits for it");
        queue.upkeep_step();
        drop(queue);
        let queue = open(folder.path(), Mode::Everything, may_part);
        let [good, bad] = deliver(&queue, false);
        assert!(good.is_empty() && bad.into_iter().eq(2..1500));
    }
}

#[test]
fn with_overflow_everything_is_stored_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), Mode::Overflow, true);
    let in_memory = send(&queue, 0..2);
    queue.fail(1);
    let stored = send(&queue, 2..4);
    assert_eq!(deliver(&queue, true), [vec![0, 1, 2, 3], vec![0, 1]]);
    assert_eq!(delivered(in_memory), [false, false]);
    assert_eq!(delivered(stored), [true, true]);
    let held = queue.held();
    assert_eq!(
        (held.unsafe_events, held.stored_events),
        (2 * EVENTS, 2 * EVENTS)
    );
    queue.upkeep_step();
    drop(queue);
    let queue = open(folder.path(), Mode::Overflow, true);
    assert_eq!(deliver(&queue, false), [vec![], vec![2, 3]]);
}

#[test]
fn a_queue_whose_outputs_have_all_failed_goes_on_storing() {
    for mode in [Mode::Everything, Mode::Overflow] {
        let folder = tempfile::tempdir().expect("a folder");
        let queue = open(folder.path(), mode, true);
        let before = send(&queue, 0..1);
        queue.fail(0);
        queue.fail(1);
        let after = send(&queue, 1..500);
        assert!(delivered(after).iter().all(|delivered| *delivered));
        let mut let_go = 0;
        while let Some(Taken::Batch(entry, _)) = queue.try_take(&|_| true).expect("it is read") {
            let_go += 1;
            entry
                .lanes
                .iter()
                .for_each(|place| entry.ticket.let_go(place.lane));
        }
        let is_safe = mode == Mode::Everything;
        assert_eq!(let_go, usize::from(!is_safe), "what is in memory alone");
        assert_eq!(delivered(before), [is_safe]);
        queue.close(QueuePhase::Draining);
        assert!(queue.take(&|_| true).is_none());
        assert_eq!(queue.held().unsafe_events, u64::from(!is_safe) * EVENTS);
    }
}

/// How many of `ticks` batches the good output has got at each tick if the bad one passes one batch every `pace` ticks, and holds
/// so many at most that it would take another.
fn beside_a_slow_one(mode: Mode, pace: usize) -> (Arc<Queue>, tempfile::TempDir) {
    const TICKS: u64 = 3000;
    const ROOM: usize = 4;
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), mode, true);
    let mut held = Vec::new();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut ticks = 0;
    while (good.len() as u64) < TICKS {
        ticks += 1;
        assert!(
            ticks <= TICKS + 20,
            "{mode:?}, {pace}: {} batches",
            good.len()
        );
        // A file: it waits where that is worth it.
        let sent = queue.try_send(batch(good.len() as u64), true);
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
        assert!(sent.is_ok() || !held.is_empty());
        let count = held.len();
        let mut room = ROOM.saturating_sub(count);
        while let Some(taken) = queue
            .try_take(&|lane| lane == 0 || room > 0)
            .expect("it is read")
        {
            let Taken::Batch(entry, batch) = taken else {
                panic!("nothing is damaged")
            };
            for place in &entry.lanes {
                let number = batch.origin().start(0);
                if place.lane == 0 {
                    good.push(number);
                    entry.ticket.pass(0);
                } else {
                    bad.push(number);
                    held.push(entry.ticket.clone());
                    room = ROOM.saturating_sub(held.len());
                }
            }
        }
        if ticks % pace as u64 == 0 && !held.is_empty() {
            held.remove(0).pass(1);
        }
    }
    assert!(good.into_iter().eq(0..TICKS));
    assert!(bad.iter().copied().eq(0..bad.len() as u64));
    (queue, folder)
}

/// An output with nothing left to do does not wait for one that holds what there is room for in memory, not even when its
/// input is a file.
#[test]
fn an_output_that_takes_nothing_holds_up_nobody() {
    for mode in [Mode::Everything, Mode::Overflow] {
        let (queue, _folder) = beside_a_slow_one(mode, usize::MAX);
        let counters = queue.metrics().snapshot().named;
        let read_back = counters.get("read_back").copied().unwrap_or(0);
        if mode == Mode::Everything {
            assert!(read_back <= 2 * EVENTS, "{read_back} events are read back");
        }
    }
}

#[test]
fn a_slow_output_holds_up_nobody() {
    for mode in [Mode::Everything, Mode::Overflow] {
        for pace in [10, 100] {
            beside_a_slow_one(mode, pace);
        }
    }
}
