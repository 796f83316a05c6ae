//! The log on a disk that fails and loses power: what was synced comes back, once and in order, with no alarm.

mod support;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use disk::simulation::{Kind, SimDisk};
use disk::{PAGE, PagePool};
use fastrand::Rng;
use queue::log::{
    Block, BlockReader, Compression, LoadError, Log, LogEnd, LogSettings, Payload, Recovered,
};
use support::blocks;

const SETTINGS: LogSettings = LogSettings {
    segment_size: 8 * PAGE as u64,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

const SEEDS: u64 = 400;

fn content(sequence: u64) -> Vec<u8> {
    blocks::content(sequence, 1 + (sequence * 1471) % 9000)
}

fn block(sequence: u64) -> Block {
    blocks::block(sequence, content(sequence), Compression::Lz4)
}

fn open(disk: &SimDisk) -> (Log, Recovered) {
    Log::open(Arc::new(disk.clone()), SETTINGS).expect("it always opens")
}

/// A writer as the queue has one: it keeps what was not synced.
struct Model {
    log: Log,
    disk: SimDisk,
    random: Rng,
    /// Appended, or to be appended again, since the last good sync.
    open: Vec<Block>,
    next: u64,
    /// Of all blocks of this run.
    time: i64,
}

impl Model {
    fn begin(disk: SimDisk, seed: u64) -> Self {
        let (log, recovered) = open(&disk);
        Self {
            log,
            disk,
            random: Rng::with_seed(seed),
            open: Vec::new(),
            next: recovered.next_sequence,
            time: 0,
        }
    }

    /// Appends new blocks; on failure everything since the last sync is brought again, in other groups.
    fn append(&mut self) {
        let count = self.random.u64(1..6);
        let time = self.time;
        let new = |sequence| Block {
            time,
            ..block(sequence)
        };
        let blocks = Vec::from_iter((self.next..self.next + count).map(new));
        self.next += count;
        self.open.extend(blocks.iter().cloned());
        if self.log.append(&blocks).is_err() {
            self.bring_again();
        }
    }

    fn sync(&mut self) {
        while self.log.sync().is_err() {
            self.bring_again();
        }
        self.open.clear();
    }

    fn bring_again(&mut self) {
        loop {
            self.log.abandon();
            self.disk.set_capacity(None);
            let size = self.random.usize(1..5);
            if self
                .open
                .chunks(size)
                .all(|group| self.log.append(group).is_ok())
            {
                return;
            }
        }
    }

    fn fault(&mut self) {
        let kinds = [
            Kind::Write,
            Kind::Sync,
            Kind::SyncFolder,
            Kind::Create,
            Kind::Cut,
        ];
        let kind = kinds[self.random.usize(..kinds.len())];
        self.disk.fail(kind, self.random.u64(..3));
        if self.random.u8(..4) == 0 {
            self.disk.set_capacity(Some(self.disk.used() + 3 * PAGE));
        }
    }
}

/// What a reader gives until there is no more. A payload that was taken back and is not there again counts as given.
fn drain(log: &Log, reader: &mut BlockReader, into: &mut Vec<u64>) {
    let pool = PagePool::default();
    while let Some(found) = reader.next().expect("reads do not fail") {
        match log.load(&found, &pool) {
            Ok(payload) => assert_eq!(payload, content(found.sequence)),
            Err(LoadError::Io(failure)) => assert_eq!(failure.kind(), ErrorKind::WouldBlock),
            Err(LoadError::Damaged { .. }) => continue,
        }
        into.push(found.sequence);
    }
}

#[test]
fn readers_miss_nothing_and_get_nothing_twice_through_failures() {
    for seed in 0..SEEDS {
        let mut model = Model::begin(SimDisk::new(seed), seed);
        let mut readers = Vec::new();
        for _ in 0..60 {
            match model.random.u8(..10) {
                0..4 => model.append(),
                4..6 => model.sync(),
                6 => model.fault(),
                7 => readers.push((model.log.reader(0), Vec::new())),
                _ => {
                    if !readers.is_empty() {
                        let chosen = model.random.usize(..readers.len());
                        let (reader, given) = &mut readers[chosen];
                        drain(&model.log, reader, given);
                    }
                }
            }
        }
        model.disk.heal();
        model.sync();
        let all = Vec::from_iter(0..model.next);
        for (mut reader, mut given) in readers {
            drain(&model.log, &mut reader, &mut given);
            assert_eq!(given, all, "seed {seed}");
        }
        assert_eq!(model.log.take_damage(), [], "seed {seed}");
    }
}

/// Blocks by sequence, with the time that tells apart those that had the same one in different runs.
type Blocks = BTreeSet<(u64, i64)>;

fn readable(log: &Log) -> Blocks {
    let (mut reader, pool) = (log.reader(0), PagePool::default());
    let mut blocks = Vec::new();
    while let Some(found) = reader.next().expect("reads do not fail") {
        if let Ok(payload) = log.load(&found, &pool) {
            assert_eq!(payload, content(found.sequence));
            blocks.push((found.sequence, found.time));
        }
    }
    assert!(blocks.is_sorted_by(|a, b| a.0 < b.0));
    blocks.into_iter().collect()
}

fn known(blocks: &[Block]) -> impl Iterator<Item = (u64, i64)> {
    blocks.iter().map(|block| (block.sequence, block.time))
}

#[test]
fn what_was_synced_survives_failures_and_power_cuts() {
    for seed in 0..SEEDS {
        let mut disk = SimDisk::new(seed);
        let (mut synced, mut written) = (Blocks::new(), Blocks::new());
        for run in 0..4 {
            let mut model = Model::begin(disk, seed * 4 + run);
            model.time = run as i64;
            let given = readable(&model.log);
            assert!(synced.is_subset(&given), "seed {seed} run {run}");
            assert!(given.is_subset(&written), "seed {seed} run {run}");
            assert!(given.iter().all(|(sequence, _)| *sequence < model.next));
            let mut alarms = model.log.take_damage();
            alarms.retain(|damage| !damage.torn);
            assert_eq!(alarms, [], "seed {seed} run {run}");
            // What was found is durable from now on.
            synced = given;
            for _ in 0..model.random.u8(..30) {
                match model.random.u8(..10) {
                    0..6 => model.append(),
                    6..9 => {
                        written.extend(known(&model.open));
                        synced.extend(known(&model.open));
                        model.sync();
                    }
                    _ => model.fault(),
                }
            }
            written.extend(known(&model.open));
            disk = model.disk.crash();
        }
    }
}

#[test]
fn a_full_disk_leaves_the_log_as_it_was() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    log.append(&[block(1), block(2)]).unwrap();
    log.sync().unwrap();
    disk.set_capacity(Some(disk.used() + PAGE));
    let names = disk.names();
    // One that fits still goes in; larger ones need segments of which at most one can be made.
    log.append(&[block(3)]).unwrap();
    for blocks in [20, 2] {
        let blocks = Vec::from_iter((4..4 + blocks).map(|sequence| Block {
            payload: Payload::new(vec![Bytes::from(vec![7; 20_000])], Compression::None),
            ..block(sequence)
        }));
        let failure = log.append(&blocks).unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::StorageFull);
        assert_eq!(disk.names(), names);
    }
    disk.set_capacity(None);
    let blocks = Vec::from_iter((4..40).map(block));
    log.append(&blocks).unwrap();
    log.sync().unwrap();
    let mut given = Vec::new();
    drain(&log, &mut log.reader(0), &mut given);
    assert_eq!(given, Vec::from_iter(1..40));
    assert_eq!(log.take_damage(), []);
}

#[test]
fn a_payload_taken_back_is_loaded_from_where_it_is_written_again() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    log.append(&[block(0)]).unwrap();
    let found = log.reader(0).next().unwrap().unwrap();
    disk.fail(Kind::Sync, 0);
    log.sync().unwrap_err();
    // Nothing is synced before it is brought again.
    log.sync().unwrap_err();
    log.append(&[block(1)]).unwrap_err();
    log.abandon();
    let name = disk.names().remove(0);
    disk.flip(&name, found.place.offset as usize + 64 + 3, 0);
    let pool = PagePool::default();
    // The reader read the payload along with the header, so a second one has to come from the disk.
    assert_eq!(log.load(&found, &pool).unwrap(), content(0));
    assert!(log.reader(0).next().unwrap().is_none());
    log.append(&[block(0), block(1)]).unwrap();
    log.sync().unwrap();
    let mut given = Vec::new();
    drain(&log, &mut log.reader(0), &mut given);
    assert_eq!(given, [0, 1]);
    assert_eq!(log.take_damage(), []);
}

#[test]
fn a_page_that_cannot_be_read_costs_its_blocks_only() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    for sequence in 0..10 {
        log.append(&[block(sequence)]).unwrap();
    }
    log.sync().unwrap();
    let mut reader = log.reader(0);
    for _ in 0..2 {
        disk.fail(Kind::Read, 0);
        reader.next().unwrap_err();
    }
    // It passed.
    assert_eq!(reader.next().unwrap().unwrap().sequence, 0);
    let mut reader = log.reader(0);
    for _ in 0..2 {
        disk.fail(Kind::Read, 0);
        reader.next().unwrap_err();
    }
    // The third attempt fails, then the whole window, then its first page.
    for others in 0..3 {
        disk.fail(Kind::Read, others);
    }
    let first = reader.next().unwrap().unwrap();
    assert!(first.sequence > 0);
    let damage = log.take_damage();
    assert_eq!(damage.len(), 1);
    assert_eq!(damage[0].offset, PAGE as u64);
}

#[test]
fn release_gives_segments_back() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    for sequence in 0..40 {
        log.append(&[block(sequence)]).unwrap();
        log.sync().unwrap();
    }
    let segments = log.first_of_segments();
    assert!(segments.len() > 4);
    assert_eq!(segments[0].first_ordinal, 0);
    assert_eq!(log.size(), disk.used() as u64);
    assert_eq!(log.release(0).unwrap(), 0);
    assert_eq!(
        log.release(segments[2].first_sequence - 1).unwrap(),
        segments[0].length
    );
    let mut reader = log.reader(0);
    let found = reader.next().unwrap().unwrap();
    assert_eq!(found.sequence, segments[1].first_sequence);
    let freed = log.release(segments[3].first_sequence).unwrap();
    assert_eq!(freed, segments[1].length + segments[2].length);
    // The reader stands in a segment that is gone, and has the file still; then it goes on.
    let mut given = vec![found.sequence];
    drain(&log, &mut reader, &mut given);
    assert!(given.ends_with(&Vec::from_iter(segments[3].first_sequence..40)));
    log.release(u64::MAX).unwrap();
    assert_eq!(log.first_of_segments().len(), 1);
    assert_eq!(log.size(), disk.used() as u64);
    let (_, recovered) = open(&disk.restart());
    assert_eq!(recovered.next_sequence, 40);
    assert_eq!(recovered.next_ordinal, 400);
}
