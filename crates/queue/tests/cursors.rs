//! Where outputs begin and go on: cursors that are missing, doubled or ahead of the log, outputs that come and go.
//!
//! Each test drives the steps of a queue on a real folder itself, without a thread.

use std::path::Path;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::Diagnostics;
use config::{Period, Size};
use disk::FolderStorage;
use parking_lot::Mutex;
use queue::log::Compression;
use queue::{DiskOptions, DiskSettings, Durability, NewOutput, Queue, QueueError, Taken, WhenFull};

fn batch(number: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    let buffer = builder.buffer(bytes::Bytes::from_static(b"an event"));
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let span = Span {
        buffer,
        start: 0,
        len: 8,
    };
    builder.push(span, number, number + 1);
    builder.finish()
}

fn settings() -> DiskSettings {
    DiskSettings {
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
        cache_bytes: Size(1 << 20),
        min_free_bytes: Size(0),
        new_output: NewOutput::Oldest,
        orphan_retention: Period::from_secs(3600),
        ..DiskSettings::default()
    }
}

/// A folder that queues are opened on, one after the other, and a clock.
struct Place {
    folder: tempfile::TempDir,
    settings: DiskSettings,
    now: Arc<Mutex<i64>>,
    said: Arc<Mutex<Vec<String>>>,
    next: u64,
    may_part: bool,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            settings: settings(),
            now: Arc::new(Mutex::new(1_000_000_000_000)),
            said: Arc::default(),
            next: 0,
            may_part: true,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, outputs: &[&str]) -> Arc<Queue> {
        self.try_open(outputs).expect("a queue always opens")
    }

    fn try_open(&self, outputs: &[&str]) -> Result<Arc<Queue>, QueueError> {
        let (now, said) = (self.now.clone(), self.said.clone());
        let options = DiskOptions {
            clock: Arc::new(move || *now.lock()),
            diagnostics: Diagnostics::new(move |text| {
                said.lock().push(text.to_owned());
            }),
            may_part: self.may_part,
            ..DiskOptions::new(self.settings.clone(), outputs)
        };
        Queue::open_on(Arc::new(FolderStorage::open(self.folder.path())?), options)
    }

    /// Stores so many more batches.
    fn store(&mut self, queue: &Queue, count: u64) {
        for _ in 0..count {
            let sent = queue.try_send(batch(self.next), false);
            sent.expect("there is room");
            self.next += 1;
            queue.write_step().expect("it is written");
            queue.sync_step().expect("it is synced");
        }
    }

    fn has_said(&self, text: &str) -> bool {
        let said = self.said.lock();
        said.iter().any(|line| line.contains(text))
    }
}

/// The numbers of the batches that each output gets now, at most so many; all are passed.
fn deliver(queue: &Arc<Queue>, outputs: usize, max: usize) -> Vec<Vec<u64>> {
    let mut got = vec![Vec::new(); outputs];
    for _ in 0..max {
        match queue.try_take(&|_| true).expect("it is read") {
            Some(Taken::Batch(entry, batch)) => {
                for place in &entry.lanes {
                    got[place.lane].push(batch.origin().start(0));
                    entry.ticket.pass(place.lane);
                }
            }
            Some(other) => panic!("nothing is damaged: {other:?}"),
            None => break,
        }
    }
    got
}

fn all(queue: &Arc<Queue>, outputs: usize) -> Vec<Vec<u64>> {
    deliver(queue, outputs, usize::MAX)
}

#[test]
fn outputs_go_on_at_their_cursors() {
    let mut place = Place::new();
    let queue = place.open(&["a"]);
    place.store(&queue, 5);
    assert_eq!(deliver(&queue, 1, 2), [[0, 1]]);
    queue.upkeep_step();
    drop(queue);
    assert_eq!(all(&place.open(&["a"]), 1), [[2, 3, 4]]);
}

#[test]
fn a_missing_cursor_begins_with_the_oldest() {
    let mut place = Place::new();
    place.settings.new_output = NewOutput::Now;
    let queue = place.open(&["a", "b"]);
    place.store(&queue, 3);
    deliver(&queue, 2, 2);
    queue.upkeep_step();
    drop(queue);
    std::fs::remove_file(place.path("cursor-b")).expect("it was saved");
    let queue = place.open(&["a", "b"]);
    // `b` is known from the other cursor: it is not taken for new, which would lose what it had not got.
    let mut got = all(&queue, 2);
    got[1].sort_unstable();
    assert_eq!(got, [vec![2], vec![0, 1, 2]]);
    assert!(place.has_said("output b has no cursor: it starts with the oldest event"));
}

#[test]
fn a_damaged_cursor_begins_with_the_oldest_also_where_only_a_removed_output_has_one() {
    let mut place = Place::new();
    place.settings.new_output = NewOutput::Now;
    let queue = place.open(&["b"]);
    place.store(&queue, 2);
    drop(queue);
    let queue = place.open(&["a"]);
    place.store(&queue, 2);
    queue.upkeep_step();
    drop(queue);
    std::fs::write(place.path("cursor-a"), "garbage").expect("it was saved");
    let queue = place.open(&["a"]);
    assert_eq!(all(&queue, 1), [[0, 1, 2, 3]]);
    assert!(place.has_said("output a has no cursor: it starts with the oldest event"));
}

#[test]
fn no_cursor_at_all_begins_with_the_oldest() {
    let mut place = Place::new();
    place.settings.new_output = NewOutput::Now;
    let queue = place.open(&["a"]);
    place.store(&queue, 3);
    deliver(&queue, 1, 2);
    queue.upkeep_step();
    drop(queue);
    std::fs::remove_file(place.path("cursor-a")).expect("it was saved");
    assert_eq!(all(&place.open(&["a"]), 1), [[0, 1, 2]]);
}

/// Takes everything; each output passes the batches whose numbers it `takes`.
fn pass_some(queue: &Arc<Queue>, takes: &dyn Fn(usize, u64) -> bool) -> [Vec<u64>; 2] {
    let mut got = [Vec::new(), Vec::new()];
    while let Some(taken) = queue.try_take(&|_| true).expect("it is read") {
        let Taken::Batch(entry, batch) = taken else {
            panic!("nothing is damaged")
        };
        let number = batch.origin().start(0);
        for place in &entry.lanes {
            got[place.lane].push(number);
            if takes(place.lane, number) {
                entry.ticket.pass(place.lane);
            }
        }
    }
    got
}

/// As an output does that sends requests, of which some fail: what was passed is not given again, the rest is.
#[test]
fn what_was_passed_beyond_the_cursor_is_not_given_again() {
    for may_part in [true, false] {
        let mut place = Place::new();
        place.may_part = may_part;
        let queue = place.open(&["a", "b"]);
        place.store(&queue, 60);
        let passed_first = |lane, number| number % [2, 3][lane] > 0;
        pass_some(&queue, &passed_first);
        // Passed from memory, and not written when the process was killed: those sequences are given to others.
        for number in 1000..1003 {
            queue.try_send(batch(number), false).expect("there is room");
        }
        pass_some(&queue, &|_, _| true);
        queue.upkeep_step();
        drop(queue);

        let queue = place.open(&["a", "b"]);
        place.store(&queue, 5);
        let expected = [0, 1].map(|lane| {
            let again = (0..60).filter(|number| !passed_first(lane, *number));
            again.chain(60..65).collect::<Vec<u64>>()
        });
        // Of what came again each holds some, so that not all of it is behind the cursor.
        let passed_then = |_, number| number % 5 > 0;
        assert_eq!(pass_some(&queue, &passed_then), expected);
        assert_eq!(queue.lost(), 0);
        queue.upkeep_step();
        drop(queue);

        let queue = place.open(&["a", "b"]);
        let expected = expected.map(|numbers| {
            let again = numbers.into_iter().filter(|number| number % 5 == 0);
            again.collect::<Vec<u64>>()
        });
        assert_eq!(pass_some(&queue, &|_, _| true), expected);
        assert_eq!((queue.lost(), queue.held().stored_events), (0, 0));
        assert!(place.said.lock().is_empty());
    }
}

/// What is dropped for its age counts for an output that is still to get it, not for one that has passed it.
#[test]
fn what_was_passed_beyond_the_cursor_is_not_dropped() {
    let mut place = Place::new();
    place.settings.max_age = Some(Period::from_secs(60));
    let queue = place.open(&["a"]);
    place.store(&queue, 10);
    pass_some(&queue, &|_, number| (2..8).contains(&number));
    queue.upkeep_step();
    drop(queue);
    *place.now.lock() += 61_000_000_000;
    let queue = place.open(&["a"]);
    queue.upkeep_step();
    let counters = queue.metrics().snapshot().named;
    assert_eq!(counters.get("dropped_by_age"), Some(&4));
    place.store(&queue, 1);
    assert_eq!(all(&queue, 1), [[10]]);
}

#[test]
fn a_cursor_ahead_of_the_log_skips_nothing_new() {
    let mut place = Place::new();
    let queue = place.open(&["a"]);
    place.store(&queue, 2);
    // Passed from memory, and not written when the process was killed.
    queue.try_send(batch(2), false).expect("there is room");
    queue.try_send(batch(3), false).expect("there is room");
    assert_eq!(all(&queue, 1), [[0, 1, 2, 3]]);
    queue.upkeep_step();
    drop(queue);
    place.next = 10;
    let queue = place.open(&["a"]);
    place.store(&queue, 3);
    assert_eq!(all(&queue, 1), [[10, 11, 12]]);
    queue.upkeep_step();
    drop(queue);
    // The same where all segments are gone.
    for file in std::fs::read_dir(place.folder.path()).expect("a folder") {
        let file = file.expect("a file").path();
        if file.to_string_lossy().contains("segment-") {
            std::fs::remove_file(file).expect("it is there");
        }
    }
    let queue = place.open(&["a"]);
    place.store(&queue, 2);
    drop(queue);
    assert_eq!(all(&place.open(&["a"]), 1), [[13, 14]]);
}

#[test]
fn of_two_cursors_the_lower_one_counts() {
    let mut place = Place::new();
    let queue = place.open(&["a"]);
    place.store(&queue, 4);
    deliver(&queue, 1, 1);
    queue.upkeep_step();
    std::fs::copy(place.path("cursor-a"), place.path("older")).expect("it was saved");
    deliver(&queue, 1, 2);
    queue.upkeep_step();
    drop(queue);
    std::fs::rename(place.path("older"), place.path("cursor-a2")).expect("it is there");
    assert_eq!(all(&place.open(&["a"]), 1), [[1, 2, 3]]);
    assert!(!place.said.lock().is_empty());
}

#[test]
fn a_new_output_begins_where_the_settings_say() {
    for (new_output, expected) in [
        (NewOutput::Oldest, vec![0, 1, 2, 3]),
        (NewOutput::Now, vec![3]),
    ] {
        let mut place = Place::new();
        place.settings.new_output = new_output;
        let queue = place.open(&["a"]);
        place.store(&queue, 3);
        queue.upkeep_step();
        drop(queue);
        let queue = place.open(&["a", "b"]);
        place.store(&queue, 1);
        let mut got = all(&queue, 2);
        got[0].sort_unstable();
        assert_eq!(got, [vec![0, 1, 2, 3], expected], "{new_output:?}");
        assert!(place.has_said("output b is new"));
    }
}

/// Whether segments are kept for an output that was removed, and for how long.
#[test]
fn a_removed_output_keeps_its_place_for_a_while() {
    let mut place = Place::new();
    let queue = place.open(&["a", "b"]);
    place.store(&queue, 3);
    assert_eq!(deliver(&queue, 2, 1), [[0], [0]]);
    queue.upkeep_step();
    drop(queue);
    let queue = place.open(&["a"]);
    assert_eq!(all(&queue, 1), [[1, 2]]);
    queue.upkeep_step();
    drop(queue);
    assert!(place.has_said("output b is no longer configured"));
    let queue = place.open(&["a", "b"]);
    assert_eq!(all(&queue, 2), [vec![], vec![1, 2]]);
    queue.upkeep_step();
    drop(queue);
    let queue = place.open(&["a"]);
    queue.upkeep_step();
    *place.now.lock() += 3_601_000_000_000;
    queue.upkeep_step();
    assert!(place.has_said("the events that output b had not acknowledged are dropped"));
    assert!(!place.path("cursor-b").exists());
}

#[test]
fn segments_stay_until_the_cursor_of_the_slowest_is_saved() {
    let mut place = Place::new();
    let queue = place.open(&["a", "b"]);
    place.store(&queue, 60);
    let segments = || {
        let files = std::fs::read_dir(place.folder.path()).expect("a folder");
        let names = files.map(|file| file.expect("a file").file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("segment-"))
            .count()
    };
    let before = segments();
    assert!(before > 2, "{before}");
    let mut tickets = Vec::new();
    while let Some(Taken::Batch(entry, _)) = queue.try_take(&|_| true).expect("it is read") {
        entry.ticket.pass(0);
        tickets.push(entry.ticket);
    }
    queue.upkeep_step();
    assert_eq!(segments(), before);
    tickets.iter().for_each(|ticket| ticket.pass(1));
    assert_eq!(segments(), before);
    queue.upkeep_step();
    assert_eq!(segments(), 1);
}

#[test]
fn a_folder_of_a_later_version_is_refused_and_nothing_touched() {
    let mut place = Place::new();
    let queue = place.open(&["a"]);
    place.store(&queue, 2);
    queue.upkeep_step();
    drop(queue);
    // What would be set aside, if the rest were not from a later version.
    std::fs::write(place.path("cursor-b"), "garbage").expect("it is written");
    let segment = place.path(&queue::log::segment_name(7));
    std::fs::write(&segment, newer_segment(7)).expect("it is written");
    let before = contents(place.folder.path());
    let refused = place.try_open(&["a"]).expect_err("it is newer");
    assert!(matches!(refused, QueueError::Newer { .. }), "{refused}");
    assert_eq!(contents(place.folder.path()), before);
}

/// The first page of a segment written by a later version: its checksum is right.
fn newer_segment(number: u64) -> Vec<u8> {
    let mut page = vec![0; disk::PAGE];
    page[..8].copy_from_slice(b"\x93mpSEG\xf2\n");
    page[12..16].copy_from_slice(&(queue::log::VERSION + 1).to_le_bytes());
    page[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&page[12..]);
    page[8..12].copy_from_slice(&sum.to_le_bytes());
    page
}

/// The names and contents of all files but the lock.
fn contents(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file"));
    let mut files: Vec<_> = files
        .filter(|file| file.file_name() != "lock")
        .map(|file| {
            (
                file.file_name(),
                std::fs::read(file.path()).expect("a file"),
            )
        })
        .collect();
    files.sort();
    files
}

/// What an output that was removed had not taken is no reason to hold up the others for long.
#[test]
fn a_removed_output_gives_way_when_the_queue_is_full() {
    let mut place = Place::new();
    place.settings.max_bytes = Size(256 << 10);
    let queue = place.open(&["a", "b"]);
    place.store(&queue, 20);
    queue.upkeep_step();
    drop(queue);
    let queue = place.open(&["a"]);
    let mut got = all(&queue, 1);
    while place.next < 200 {
        match queue.try_send(batch(place.next), false) {
            Ok(_) => place.next += 1,
            Err(_) => queue.upkeep_step(),
        }
        queue.write_step().expect("it is written");
        queue.sync_step().expect("it is synced");
        got[0].extend(all(&queue, 1).remove(0));
        assert!(size_on_disk(place.folder.path()) <= 256 << 10);
    }
    assert_eq!(got[0], (0..200).collect::<Vec<_>>());
    assert!(place.has_said(
        "the events that output b had not acknowledged are dropped: it is no longer configured"
    ));
}

fn size_on_disk(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file"));
    let segments = files.filter(|file| file.file_name().to_string_lossy().starts_with("segment-"));
    segments
        .map(|file| file.metadata().expect("a file").len())
        .sum()
}
