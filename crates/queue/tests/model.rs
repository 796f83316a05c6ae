//! The log and the queue agree with a plain list in memory, whatever is done with them and in whatever order.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use config::{Count, Period, Size};
use disk::simulation::SimDisk;
use disk::{PAGE, PagePool};
use proptest::collection::vec;
use proptest::prelude::*;
use queue::log::{Block, BlockReader, Compression, Log, LogEnd, LogSettings, Payload};
use queue::{
    DiskOptions, DiskSettings, Durability, NewOutput, Queue, QueuePhase, Taken, Ticket, WhenFull,
};
use support::batches::{self, Content};

/// What is done with a log.
#[derive(Debug, Clone)]
enum LogStep {
    /// Blocks of so many bytes, each after a gap in the sequences.
    Append(Vec<(usize, u64)>),
    Sync,
    /// Everything since the last sync is written again.
    Abandon,
    /// The first or the second reader goes on.
    Read(bool),
    /// Up to so many parts of 256.
    Release(u8),
    Restart,
}

fn log_step() -> impl Strategy<Value = LogStep> {
    let block = (
        prop_oneof![4 => 0..500usize, 1 => 0..5 * PAGE],
        prop_oneof![4 => Just(0), 1 => 1..4u64],
    );
    prop_oneof![
        6 => vec(block, 0..5).prop_map(LogStep::Append),
        3 => Just(LogStep::Sync),
        1 => Just(LogStep::Abandon),
        6 => any::<bool>().prop_map(LogStep::Read),
        1 => any::<u8>().prop_map(LogStep::Release),
        1 => Just(LogStep::Restart),
    ]
}

struct LogModel {
    disk: SimDisk,
    log: Log,
    settings: LogSettings,
    compression: Compression,
    pool: PagePool,
    /// Ordinal and payload of all blocks that were not released.
    blocks: BTreeMap<u64, (u64, Bytes)>,
    synced: u64,
    released: u64,
    next_sequence: u64,
    next_ordinal: u64,
    /// Each with the sequence that it reaches next.
    readers: [(BlockReader, u64); 2],
}

impl LogModel {
    fn new(pages: u64, compression: Compression) -> Self {
        let disk = SimDisk::new(1);
        let settings = LogSettings {
            segment_size: pages * PAGE as u64,
            quarantine_size_max: 0,
            synced: LogEnd::START,
            passed: LogEnd::START,
        };
        let (log, _) = Log::open(Arc::new(disk.clone()), settings).unwrap();
        Self {
            readers: [(log.reader(0), 0), (log.reader(0), 0)],
            disk,
            log,
            settings,
            compression,
            pool: PagePool::default(),
            blocks: BTreeMap::new(),
            synced: 0,
            released: 0,
            next_sequence: 0,
            next_ordinal: 0,
        }
    }

    fn step(&mut self, step: LogStep) {
        match step {
            LogStep::Append(blocks) => self.append(&blocks),
            LogStep::Sync => {
                self.log.sync().unwrap();
                self.synced = self.next_sequence;
            }
            LogStep::Abandon => {
                self.log.abandon();
                let again: Vec<u64> = self.blocks.range(self.synced..).map(|b| *b.0).collect();
                self.write(&again);
            }
            LogStep::Read(first) => self.read(usize::from(first)),
            LogStep::Release(part) => {
                let before = self.synced * u64::from(part) / 256;
                self.log.release(before).unwrap();
                self.released = self.released.max(before);
            }
            LogStep::Restart => self.restart(),
        }
    }

    fn append(&mut self, blocks: &[(usize, u64)]) {
        let mut group = Vec::new();
        for (length, gap) in blocks {
            let sequence = self.next_sequence + gap;
            let payload = sequence.to_le_bytes().repeat(length / 8 + 1);
            let block = (self.next_ordinal, Bytes::from(payload));
            self.blocks.insert(sequence, block);
            group.push(sequence);
            self.next_sequence = sequence + 1;
            self.next_ordinal += 3;
        }
        self.write(&group);
    }

    fn write(&self, sequences: &[u64]) {
        let blocks = sequences.iter().map(|sequence| {
            let (ordinal, payload) = self.blocks[sequence].clone();
            let (head, rest) = (payload.slice(..8), payload.slice(8..));
            Block {
                sequence: *sequence,
                ordinal,
                events: 3,
                time: 5,
                payload: Payload::new(vec![head, rest], self.compression),
            }
        });
        self.log.append(&blocks.collect::<Vec<_>>()).unwrap();
    }

    fn read(&mut self, index: usize) {
        let (reader, next) = &mut self.readers[index];
        let from = (*next).max(self.released);
        let expected = self.blocks.range(from..).next();
        let found = loop {
            let found = reader.next().unwrap();
            // What was released may still be there.
            let is_released = |one: &queue::log::FoundBlock| one.sequence < self.released;
            if !found.as_ref().is_some_and(is_released) {
                break found;
            }
        };
        let sequence = found.as_ref().map(|found| found.sequence);
        assert_eq!(sequence, expected.map(|(sequence, _)| *sequence));
        if let (Some(found), Some((sequence, (ordinal, payload)))) = (found, expected) {
            assert_eq!(found.ordinal, *ordinal);
            assert_eq!(self.log.load(&found, &self.pool).unwrap(), *payload);
            *next = sequence + 1;
        }
    }

    fn restart(&mut self) {
        self.disk = self.disk.restart();
        let (log, recovered) = Log::open(Arc::new(self.disk.clone()), self.settings).unwrap();
        self.log = log;
        assert_eq!(recovered.next_sequence, self.next_sequence);
        assert_eq!(recovered.next_ordinal, self.next_ordinal);
        assert_eq!(recovered.torn_bytes, 0);
        assert_eq!(self.log.take_damage(), []);
        self.synced = self.next_sequence;
        for (reader, next) in &mut self.readers {
            *reader = self.log.reader(*next);
        }
    }
}

/// What is done with a queue.
#[derive(Debug, Clone, Copy)]
enum QueueStep {
    /// A batch of so many events with documents of so many bytes.
    Send(u64, usize),
    Take,
    /// An output passes one of the batches that it holds.
    Pass(u8, u8),
    Write,
    Sync,
    Upkeep,
    /// An output stops or goes on taking.
    Turn(u8),
    Restart,
}

fn queue_step() -> impl Strategy<Value = QueueStep> {
    let length = prop_oneof![4 => 0..300usize, 1 => 0..3000usize];
    prop_oneof![
        6 => (1..6u64, length).prop_map(|(events, length)| QueueStep::Send(events, length)),
        6 => Just(QueueStep::Take),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(lane, index)| QueueStep::Pass(lane, index)),
        3 => Just(QueueStep::Write),
        2 => Just(QueueStep::Sync),
        1 => Just(QueueStep::Upkeep),
        1 => any::<u8>().prop_map(QueueStep::Turn),
        1 => Just(QueueStep::Restart),
    ]
}

#[derive(Default)]
struct Output {
    /// The batch that it gets next.
    next: u64,
    /// Those that it has passed, which do not come again after a restart.
    passed: BTreeSet<u64>,
    held: VecDeque<(u64, Arc<Ticket>)>,
    is_closed: bool,
}

impl Output {
    /// Steps over what it has passed.
    fn go_on(&mut self) {
        while self.passed.contains(&self.next) {
            self.next += 1;
        }
    }
}

struct QueueModel {
    disk: SimDisk,
    queue: Arc<Queue>,
    settings: DiskSettings,
    may_part: bool,
    sent: Vec<Content>,
    outputs: Vec<Output>,
    receipts: Vec<component::Receipt>,
}

fn settings(memory: u64, pages: u64, compression: Compression) -> DiskSettings {
    DiskSettings {
        max_bytes: Size(1 << 40),
        max_events: Some(Count(1 << 40)),
        max_age: None,
        when_full: WhenFull::Block,
        durability: Durability::Fsync,
        sync_interval: Period::from_secs(1),
        group_bytes: Size(1 << 20),
        group_time: Period::default(),
        compression,
        segment_bytes: Size(pages * PAGE as u64),
        cache_bytes: Size(memory),
        min_free_bytes: Size(0),
        new_output: NewOutput::Oldest,
        orphan_retention: Period::default(),
        ..DiskSettings::default()
    }
}

impl QueueModel {
    fn new(settings: DiskSettings, outputs: usize, may_part: bool) -> Self {
        let disk = SimDisk::new(1);
        Self {
            queue: open(&disk, &settings, outputs, may_part),
            disk,
            settings,
            may_part,
            sent: Vec::new(),
            outputs: (0..outputs).map(|_| Output::default()).collect(),
            receipts: Vec::new(),
        }
    }

    fn step(&mut self, step: QueueStep) {
        match step {
            QueueStep::Send(events, length) => {
                let number = self.sent.len() as u64;
                let batch = batches::make(number, events, length, b'x');
                self.sent.push(Content::of(&batch));
                let receipt = self.queue.try_send(batch, false).unwrap();
                self.receipts.push(receipt);
            }
            QueueStep::Take => drop(self.take()),
            QueueStep::Pass(lane, index) => {
                let lane = usize::from(lane) % self.outputs.len();
                let held = &mut self.outputs[lane].held;
                let index = usize::from(index) % held.len().max(1);
                if let Some((number, ticket)) = held.remove(index) {
                    ticket.pass(lane);
                    self.outputs[lane].passed.insert(number);
                }
            }
            QueueStep::Write => drop(self.queue.write_step().unwrap()),
            QueueStep::Sync => drop(self.queue.sync_step().unwrap()),
            QueueStep::Upkeep => self.queue.upkeep_step(),
            QueueStep::Turn(lane) => {
                let lane = usize::from(lane) % self.outputs.len();
                self.outputs[lane].is_closed ^= true;
            }
            QueueStep::Restart => self.restart(),
        }
    }

    /// The next batch is the one that each of its outputs expects; whether there was one.
    fn take(&mut self) -> bool {
        let outputs = &self.outputs;
        let taken = self.queue.try_take(&|lane| !outputs[lane].is_closed);
        let (entry, batch) = match taken.unwrap() {
            Some(Taken::Batch(entry, batch)) => (entry, batch),
            Some(other) => panic!("{other:?}"),
            None => return false,
        };
        let content = Content::of(&batch);
        assert_eq!(content, self.sent[content.number as usize]);
        for lane in &entry.lanes {
            let output = &mut self.outputs[lane.lane];
            output.go_on();
            assert_eq!(output.next, content.number, "for output {}", lane.lane);
            output.next += 1;
            let held = (content.number, Arc::clone(&entry.ticket));
            output.held.push_back(held);
        }
        true
    }

    /// A clean stop and a start: each output gets what it had not passed, and nothing else.
    fn restart(&mut self) {
        self.queue.close(QueuePhase::Leaving);
        while self.queue.write_step().unwrap() {}
        self.queue.sync_step().unwrap();
        self.queue.upkeep_step();
        for mut receipt in self.receipts.drain(..) {
            let resolved = receipt.try_delivered();
            assert!(matches!(resolved, Some(Ok(_))), "everything was synced");
        }
        for output in &mut self.outputs {
            let first = output.held.iter().map(|(number, _)| *number).min();
            output.next = first.unwrap_or(output.next);
            output.held.clear();
        }
        self.disk = self.disk.restart();
        let outputs = self.outputs.len();
        self.queue = open(&self.disk, &self.settings, outputs, self.may_part);
    }

    /// Everything leaves.
    fn finish(&mut self) {
        for output in &mut self.outputs {
            output.is_closed = false;
        }
        while self.queue.write_step().unwrap() {}
        self.queue.sync_step().unwrap();
        loop {
            for (lane, output) in self.outputs.iter_mut().enumerate() {
                for (_, ticket) in output.held.drain(..) {
                    ticket.pass(lane);
                }
                output.go_on();
            }
            if !self.take() {
                break;
            }
        }
        let reached: BTreeSet<u64> = self.outputs.iter().map(|output| output.next).collect();
        assert_eq!(reached, BTreeSet::from([self.sent.len() as u64]));
        assert_eq!(self.queue.held().memory_size, 0);
        assert_eq!(self.queue.held().stored_events, 0);
    }
}

fn open(disk: &SimDisk, settings: &DiskSettings, outputs: usize, may_part: bool) -> Arc<Queue> {
    let names = ["one", "two", "three"];
    let options = DiskOptions {
        may_part,
        clock: Arc::new(|| 1),
        ..DiskOptions::new(settings.clone(), &names[..outputs])
    };
    Queue::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Zstd)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_log_is_a_list(
        pages in 2..12u64,
        compression in compression(),
        steps in vec(log_step(), 0..120),
    ) {
        let mut model = LogModel::new(pages, compression);
        for step in steps {
            model.step(step);
        }
    }

    #[test]
    fn the_queue_is_a_list_for_each_output(
        pages in 2..12u64,
        memory in prop_oneof![Just(1), Just(2000), Just(1 << 20)],
        outputs in 1..=3usize,
        may_part in any::<bool>(),
        compression in compression(),
        steps in vec(queue_step(), 0..200),
    ) {
        let mut model = QueueModel::new(settings(memory, pages, compression), outputs, may_part);
        for step in steps {
            model.step(step);
        }
        model.finish();
    }
}
