//! An output with ordered processors that goes on alone, and joins the others again: it gets nothing alone as long as its
//! processors have not parted from those of the others, and nothing alone any more once it shares them again.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use config::Size;
use disk::simulation::{Kind, SimDisk};
use queue::{DiskOptions, DiskSettings, Entry, LaneTurn, Queue, Taken};

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

/// A queue with batches on disk, of which the good output gets those before `goods`, the bad one as many as it holds in memory,
/// and nobody more. Gives what was taken.
fn parted(disk: &SimDisk, goods: u64) -> (Arc<Queue>, Vec<Entry>) {
    let settings = DiskSettings {
        cache_bytes: Size(4 << 10),
        // A segment for each batch, so that each is read from the disk.
        segment_bytes: Size(8 << 10),
        min_free_bytes: Size(0),
        ..DiskSettings::default()
    };
    let options = DiskOptions {
        is_ordered: true,
        steady: Arc::new(|| 0),
        ..DiskOptions::new(settings, &["good", "bad"])
    };
    let queue = Queue::open_on(Arc::new(disk.clone()), options).expect("it opens");
    for number in 0..BATCHES {
        queue.try_send(batch(number), false).expect("there is room");
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
    }
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
        Some(Taken::Lost(_)) => panic!("nothing is lost"),
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
    let (queue, taken) = parted(&SimDisk::new(1), BATCHES);
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
fn what_was_being_read_when_the_output_joined_is_given_to_all() {
    let disk = SimDisk::new(1);
    let (queue, taken) = parted(&disk, 12);
    pass_bad(&taken);
    queue.has_parted(&parting(&taken).parting);
    let alone = parting(&taken).sequence..12;
    for sequence in alone.clone() {
        // Nobody joins while the others are ahead.
        let entry = take(&queue, &|lane| lane == BAD).expect("it goes on alone");
        assert_eq!((entry.sequence, entry.turn), (sequence, None));
        entry.ticket.pass(BAD);
    }
    // It has no room when it could join, gets some, and begins to read; while it reads, another worker lets it join.
    let (other, has_joined) = (queue.clone(), AtomicBool::new(false));
    disk.set_hook(Some(Arc::new(move |kind, _| {
        if kind == Kind::Read && !has_joined.swap(true, SeqCst) {
            let asked = Cell::new(false);
            let joins = |lane: usize| lane == BAD && !asked.replace(true);
            assert!(take(&other, &joins).is_none());
        }
    })));
    let asked = Cell::new(0);
    let reads = |lane: usize| {
        asked.set(asked.get() + usize::from(lane == BAD));
        lane == BAD && (2..=3).contains(&asked.get())
    };
    let early = take(&queue, &reads);
    disk.set_hook(None);
    assert!(early.is_none(), "{early:?}");
    let entry = take(&queue, &|_| true).expect("they go on together");
    assert_eq!((entry.sequence, entry.turn), (12, Some(12)));
    assert_eq!(
        entry.lanes,
        [GOOD, BAD].map(|lane| LaneTurn { lane, turn: 12 })
    );
    let [joined] = entry.joined[..] else {
        panic!("{:?}", entry.joined)
    };
    assert_eq!(
        (joined.lane, joined.first, joined.end),
        (BAD, alone.start, 12)
    );
}
