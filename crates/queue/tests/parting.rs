//! An output with ordered processors that goes on alone, and joins the others again: it gets nothing alone as long as its
//! processors have not parted from those of the others, and nothing alone that the others have not got.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use config::Size;
use disk::simulation::SimDisk;
use queue::{DiskOptions, DiskSettings, Entry, Joined, LaneTurn, Queue, Taken, WhenFull};

const GOOD: usize = 0;
const BAD: usize = 1;
const BATCHES: u64 = 40;

fn batch(number: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    let buffer = builder.buffer(bytes::Bytes::from_static(&[b'x'; 600]));
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let span = Span {
        buffer,
        start: 0,
        len: 600,
    };
    builder.push(span, number, number + 1);
    builder.finish()
}

fn open(disk: &SimDisk, keeps_snapshots: bool) -> Arc<Queue> {
    let settings = DiskSettings {
        cache_bytes: Size(4 << 10),
        min_free_bytes: Size(0),
        ..DiskSettings::default()
    };
    open_with(disk, keeps_snapshots, settings)
}

fn open_with(disk: &SimDisk, keeps_snapshots: bool, settings: DiskSettings) -> Arc<Queue> {
    let options = DiskOptions {
        is_ordered: true,
        keeps_snapshots,
        steady: Arc::new(|| 0),
        ..DiskOptions::new(settings, &["good", "bad"])
    };
    Queue::open_on(Arc::new(disk.clone()), options).expect("it opens")
}

fn send(queue: &Arc<Queue>, batches: u64) {
    for number in 0..batches {
        queue.try_send(batch(number), false).expect("there is room");
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
    }
}

/// A queue with batches on disk, of which the good output has passed the first `goods`, and the bad one holds as many as go
/// into memory. Gives what was taken.
fn parted(goods: u64) -> (Arc<Queue>, Vec<Entry>) {
    let queue = open(&SimDisk::new(1), false);
    send(&queue, BATCHES);
    let mut taken = Vec::new();
    while taken.len() < goods as usize {
        taken.push(take(&queue, &|lane| lane == GOOD).expect("the good one goes on"));
    }
    for entry in &taken {
        entry.ticket.pass(GOOD);
    }
    (queue, taken)
}

fn take(queue: &Arc<Queue>, has_room: &dyn Fn(usize) -> bool) -> Option<Entry> {
    match queue.try_take(has_room).expect("it is read") {
        Some(Taken::Batch(entry, _)) => Some(entry),
        Some(other) => panic!("nothing is lost: {other:?}"),
        None => None,
    }
}

/// Where the bad output parts: the batch.
fn parting(taken: &[Entry]) -> &Entry {
    let mut parting = taken.iter().filter(|entry| !entry.parting.is_empty());
    let entry = parting.next().expect("the bad output holds too much");
    assert!(parting.next().is_none());
    let before = taken.iter().take_while(|it| it.sequence < entry.sequence);
    let turn = before.count() as u64;
    assert_eq!(entry.parting, [LaneTurn { lane: BAD, turn }]);
    entry
}

/// The bad output passes what it got with the others.
fn pass_bad(taken: &[Entry]) {
    let is_bad = |place: &LaneTurn| place.lane == BAD;
    for entry in taken.iter().filter(|it| it.lanes.iter().any(is_bad)) {
        entry.ticket.pass(BAD);
    }
}

#[test]
fn nothing_is_given_alone_before_the_processors_have_parted() {
    let (queue, taken) = parted(BATCHES);
    let parting = parting(&taken);
    pass_bad(&taken);
    assert!(take(&queue, &|_| true).is_none());
    // Another output, or an earlier parting.
    queue.has_parted(&[LaneTurn { lane: BAD, turn: 0 }]);
    assert!(take(&queue, &|_| true).is_none());
    queue.has_parted(&parting.parting);
    for sequence in parting.sequence..BATCHES {
        let entry = take(&queue, &|_| true).expect("it goes on alone");
        assert_eq!((entry.sequence, entry.turn), (sequence, None));
        let turn = sequence;
        assert_eq!(entry.lanes, [LaneTurn { lane: BAD, turn }]);
        entry.ticket.pass(BAD);
    }
}

#[test]
fn an_output_that_is_as_far_as_the_others_gets_nothing_alone() {
    let (queue, taken) = parted(12);
    pass_bad(&taken);
    queue.has_parted(&parting(&taken).parting);
    let first = parting(&taken).sequence;
    for sequence in first..12 {
        // Nobody joins while the others are ahead.
        let entry = take(&queue, &|lane| lane == BAD).expect("it goes on alone");
        assert_eq!((entry.sequence, entry.turn), (sequence, None));
        entry.ticket.pass(BAD);
    }
    // It has no room at the moment at which it could join, and room right after that.
    let asked = Cell::new(0);
    let room_comes = |lane: usize| {
        asked.set(asked.get() + usize::from(lane == BAD));
        lane == BAD && asked.get() > 1
    };
    let early = queue.try_take(&room_comes).expect("it is read");
    assert!(early.is_none() && asked.get() > 1, "{early:?}");
    let entry = take(&queue, &|_| true).expect("they go on together");
    let turn = 12;
    assert_eq!((entry.sequence, entry.turn), (12, Some(turn)));
    assert_eq!(entry.lanes, [GOOD, BAD].map(|lane| LaneTurn { lane, turn }));
    let joined = Joined {
        lane: BAD,
        first,
        end: turn,
    };
    assert_eq!(entry.joined, [joined]);
}

#[test]
fn the_processors_of_an_output_that_fails_are_given_up() {
    let (queue, taken) = parted(BATCHES / 2);
    let [LaneTurn { turn: first, .. }] = parting(&taken).parting[..] else {
        panic!("one output parts")
    };
    queue.fail(BAD);
    queue.fail(BAD);
    let entry = take(&queue, &|_| true).expect("the good one goes on");
    let (lane, end) = (BAD, first);
    assert_eq!(entry.joined, [Joined { lane, first, end }]);
}

#[test]
fn workers_are_woken_when_processors_have_parted() {
    let (queue, taken) = parted(BATCHES);
    pass_bad(&taken);
    let worker = std::thread::spawn({
        let queue = queue.clone();
        move || queue.take(&|_| true).is_some()
    });
    // It has looked by then, mostly.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!worker.is_finished());
    queue.has_parted(&parting(&taken).parting);
    within_time(worker);
}

/// What waits in the queue is given when there is a snapshot to go on from, also where nothing happens after that.
#[test]
fn workers_are_woken_when_there_is_a_first_snapshot() {
    let queue = open(&SimDisk::new(1), true);
    send(&queue, 1);
    let worker = std::thread::spawn({
        let queue = queue.clone();
        move || queue.take(&|_| true).is_some()
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!worker.is_finished());
    queue.upkeep_step();
    within_time(worker);
}

fn within_time(worker: JoinHandle<bool>) {
    let begin = Instant::now();
    while !worker.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it waits");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(worker.join().expect("no panic"));
}

/// The log is needed from where processors would go on, and so beyond the segment of the oldest batch that an output lacks.
#[test]
fn the_oldest_goes_also_where_processors_need_more_than_outputs() {
    let queue = open_with(
        &SimDisk::new(1),
        true,
        DiskSettings {
            max_bytes: Size(1 << 20),
            segment_bytes: Size(32 << 10),
            when_full: WhenFull::DropOldest,
            min_free_bytes: Size(0),
            ..DiskSettings::default()
        },
    );
    queue.upkeep_step();
    // Fewer bytes than lie between two snapshots.
    for _ in 0..20 {
        send(&queue, 1);
        let entry = take(&queue, &|_| true).expect("it is given");
        assert!(!entry.asks_snapshot);
        for lane in [GOOD, BAD] {
            entry.ticket.pass(lane);
        }
    }
    // Nobody passes anything more.
    let mut refused = 0;
    for number in 0..1_000 {
        while queue.try_send(batch(number), true).is_err() {
            refused += 1;
            assert!(refused < 1_000, "the queue takes no more after {number}");
            queue.upkeep_step();
        }
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
    }
    assert!(refused > 0, "the queue has not been full");
}
