//! The log by itself: what was synced and not released is read back in order, and nothing else is taken for a block.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use disk::simulation::seeds::{Stage, for_each_seed};
use disk::simulation::{Kind, SimDisk};
use disk::{PAGE, PagePool};
use fastrand::Rng;
use queue::QueueError;
use queue::log::{
    BLOCK_HEADER, Block, BlockReader, Compression, FoundBlock, LoadError, Log, LogEnd, LogSettings,
    Payload, Recovered,
};

#[test]
fn the_log_keeps_what_it_synced() {
    for_each_seed(|seed, stage| Life::new(seed, stage.clone()).run());
}

/// How far a block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// To be written; copies of earlier attempts may lie about.
    Pending,
    /// Written.
    Written,
    /// Written and synced.
    Synced,
}

#[derive(Debug)]
struct Kept {
    ordinal: u64,
    events: u32,
    payload: Bytes,
    fate: Fate,
    /// Not synced when a sync failed, and not written again since: nobody knows what is on disk.
    is_doubtful: bool,
    /// This process wrote it, and will write it again if it must.
    is_ours: bool,
    /// A bit of it was flipped.
    is_hurt: bool,
    /// Segment, first byte and byte behind the last, once it was found.
    range: Option<(u64, u64, u64)>,
}

/// A reader and the sequence that it gave last.
struct Reading {
    reader: BlockReader,
    from: u64,
}

/// One machine with its disk, over its crashes.
struct Life {
    random: Rng,
    disk: SimDisk,
    stage: Stage,
    settings: LogSettings,
    pool: PagePool,
    log: Option<Log>,
    readers: Vec<Reading>,
    /// What was appended and may still be there, by sequence.
    kept: BTreeMap<u64, Kept>,
    next_sequence: u64,
    next_ordinal: u64,
    /// Sequences below it may be gone.
    released: u64,
    /// Bits were flipped, or a process ended after a sync that failed, so that the next one took for written what was not.
    is_unsure: bool,
    /// Segments were removed that may be there again after a crash.
    may_reappear: bool,
}

impl Life {
    fn new(seed: u64, stage: Stage) -> Self {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(random.u64(..));
        let pages = random.u64(3..20);
        Self {
            stage,
            disk,
            settings: LogSettings {
                segment_size: pages * PAGE as u64,
                quarantine_size_max: random.u64(..20) * PAGE as u64,
                synced: LogEnd::START,
                passed: LogEnd::START,
            },
            random,
            pool: PagePool::default(),
            log: None,
            readers: Vec::new(),
            kept: BTreeMap::new(),
            next_sequence: 0,
            next_ordinal: 0,
            released: 0,
            is_unsure: false,
            may_reappear: false,
        }
    }

    fn run(&mut self) {
        self.open(false);
        for _ in 0..self.random.usize(2..7) {
            if self.random.u8(..4) == 0 {
                let capacity = self.random.usize(10..200) * PAGE;
                self.disk.set_capacity(Some(capacity));
            }
            if self.random.bool() {
                let operations = self.random.u64(..200);
                self.disk.stop_after(Some(operations));
            }
            for _ in 0..self.random.usize(5..60) {
                if self.disk.is_down() {
                    break;
                }
                self.step();
            }
            self.end();
        }
    }

    fn step(&mut self) {
        match self.random.u8(..100) {
            0..40 => self.append(),
            40..60 => self.sync(),
            60..80 => self.read(),
            80..85 => self.release(),
            85..88 => self.add_reader(),
            88..91 => self.fail_something(),
            91..93 if self.random.bool() => self.flip(),
            93..95 => self.disk.set_capacity(None),
            _ => {}
        }
        self.check_damage();
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("the log is open")
    }

    fn fail_something(&mut self) {
        let kinds = [
            Kind::Sync,
            Kind::Sync,
            Kind::Write,
            Kind::Create,
            Kind::SyncFolder,
            Kind::Remove,
            Kind::Cut,
        ];
        let kind = kinds[self.random.usize(..kinds.len())];
        self.disk.fail(kind, self.random.u64(..5));
    }

    /// Makes a new block.
    fn make(&mut self) {
        self.next_sequence += match self.random.u8(..10) {
            0 => self.random.u64(1..5),
            _ => 0,
        };
        let length = match self.random.u8(..20) {
            0 => self.random.usize(..30 * PAGE),
            1..5 => self.random.usize(..3 * PAGE),
            5 => 0,
            _ => self.random.usize(..600),
        };
        let mut payload = vec![0; length];
        match self.random.u8(..3) {
            0 => self.random.fill(&mut payload),
            _ => payload.fill(self.random.u8(..)),
        }
        // No two are alike, so that one that comes back from the dead is noticed.
        let unique = self.random.u64(..).to_le_bytes();
        payload.extend_from_slice(&unique);
        let events = self.random.u32(..50);
        let made = Kept {
            ordinal: self.next_ordinal,
            events,
            payload: payload.into(),
            fate: Fate::Pending,
            is_doubtful: false,
            is_ours: true,
            is_hurt: false,
            range: None,
        };
        self.kept.insert(self.next_sequence, made);
        self.next_sequence += 1;
        self.next_ordinal += u64::from(events);
    }

    fn block(&mut self, sequence: u64) -> Block {
        let kept = &self.kept[&sequence];
        let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
        let middle = self.random.usize(..=kept.payload.len());
        let parts = vec![kept.payload.slice(..middle), kept.payload.slice(middle..)];
        Block {
            sequence,
            ordinal: kept.ordinal,
            events: kept.events,
            time: sequence.cast_signed(),
            payload: Payload::new(parts, compressions[self.random.usize(..3)]),
        }
    }

    fn with_fate(&self, fate: Fate) -> Vec<u64> {
        let kept = self.kept.iter();
        let kept = kept.filter(|(_, kept)| kept.fate == fate);
        kept.map(|(sequence, _)| *sequence).collect()
    }

    fn append(&mut self) {
        for _ in 0..self.random.usize(..5) {
            self.make();
        }
        let mut group = self.with_fate(Fate::Pending);
        group.truncate(self.random.usize(1..8));
        let blocks: Vec<_> = group.iter().map(|sequence| self.block(*sequence)).collect();
        self.disk.note(|| format!("append {group:?}"));
        if let Err(failure) = self.log().append(&blocks) {
            self.disk.note(|| format!("append failed: {failure}"));
            self.abandon();
            return;
        }
        for sequence in group {
            let kept = self.kept.get_mut(&sequence).expect("it was made");
            kept.fate = Fate::Written;
            kept.is_doubtful = false;
            kept.is_hurt = false;
            kept.range = None;
        }
    }

    fn sync(&mut self) {
        self.disk.note(|| "sync".to_owned());
        if let Err(failure) = self.log().sync() {
            self.disk.note(|| format!("sync failed: {failure}"));
            self.abandon();
            return;
        }
        for kept in self.kept.values_mut() {
            if kept.fate == Fate::Written && !kept.is_doubtful {
                kept.fate = Fate::Synced;
            }
        }
    }

    fn abandon(&mut self) {
        self.log().abandon();
        for kept in self.kept.values_mut() {
            if kept.fate == Fate::Written {
                kept.is_doubtful = true;
                if kept.is_ours {
                    kept.fate = Fate::Pending;
                }
            }
        }
    }

    fn release(&mut self) {
        let before = self.random.u64(self.released..=self.next_sequence);
        let first_unsynced = self.kept.iter().find(|(_, kept)| kept.fate != Fate::Synced);
        // Cursors do not pass what is not written before that is known; so this is all that may go.
        let before = first_unsynced.map_or(before, |(first, _)| before.min(*first));
        self.released = self.released.max(before);
        self.disk.note(|| format!("release below {before}"));
        let size = self.log().size();
        let Ok(freed) = self.log().release(before) else {
            return;
        };
        assert_eq!(self.log().size() + freed, size);
        self.may_reappear |= freed > 0;
    }

    fn add_reader(&mut self) {
        let from = self.random.u64(self.released..=self.next_sequence);
        let reader = self.log().reader(from);
        self.disk.note(|| format!("reader from {from}"));
        self.readers.push(Reading { reader, from });
        if self.readers.len() > 3 {
            self.readers.remove(0);
        }
    }

    /// A reader goes on by some blocks.
    fn read(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let index = self.random.usize(..self.readers.len());
        let mut reading = self.readers.swap_remove(index);
        for _ in 0..self.random.usize(..6) {
            let found = match reading.reader.next() {
                Ok(found) => found,
                Err(_) if self.disk.is_down() => return,
                Err(failure) => panic!("a reader failed: {failure}"),
            };
            self.check_next(reading.from, found.as_ref());
            let Some(found) = found else { break };
            if self.check_found(&found).is_err() {
                return;
            }
            reading.from = found.sequence + 1;
        }
        self.readers.push(reading);
    }

    /// What a reader gives next leaves nothing out that has to be there.
    fn check_next(&self, from: u64, found: Option<&FoundBlock>) {
        let from = from.max(self.released);
        let found = found.map_or(u64::MAX, |found| found.sequence);
        let left_out = self
            .kept
            .range(from..)
            .find(|(_, kept)| kept.must_be_there());
        if let Some((sequence, _)) = left_out {
            assert!(
                *sequence >= found,
                "{sequence} is left out, {found} was given"
            );
        }
    }

    /// What was found is what was written.
    fn check_found(&mut self, found: &FoundBlock) -> Result<(), ()> {
        let below = self.kept.range(..found.durable);
        let unsynced = below.filter(|(_, kept)| kept.is_ours && kept.fate != Fate::Synced);
        let unsynced: Vec<_> = unsynced.map(|(sequence, _)| sequence).collect();
        assert!(unsynced.is_empty(), "{found:?} before {unsynced:?}");
        let loaded = self.log().load(found, &self.pool);
        let kept = self.kept.get_mut(&found.sequence);
        let Some(kept) = kept else {
            // Where a segment's header is damaged, an abandoned copy before it may count again, of what nobody was told is safe.
            assert!(self.is_unsure, "{found:?} never was");
            return Ok(());
        };
        let bytes = match loaded {
            Ok(bytes) => bytes,
            Err(LoadError::Damaged { .. }) => {
                assert!(kept.is_hurt || kept.is_doubtful, "{found:?} is damaged");
                kept.is_hurt = true;
                return Ok(());
            }
            Err(LoadError::Io(_)) if self.disk.is_down() => return Err(()),
            Err(LoadError::Io(failure)) => panic!("{found:?} cannot be read: {failure}"),
        };
        assert!(bytes == kept.payload, "{found:?} has other content");
        assert_eq!(found.ordinal, kept.ordinal);
        assert_eq!(found.events, kept.events);
        assert_eq!(found.time, found.sequence.cast_signed());
        let end = found.place.offset + (BLOCK_HEADER + found.stored_len()) as u64;
        kept.range = Some((found.place.segment, found.place.offset, end));
        Ok(())
    }

    /// Flips a bit and notes what that costs.
    fn flip(&mut self) {
        // Where everything lies is known once it was read.
        if self.read_everything().is_err() {
            return;
        }
        let names = self.disk.names();
        let segments: Vec<_> = names
            .iter()
            .filter(|name| name.starts_with("segment-"))
            .collect();
        if segments.is_empty() {
            return;
        }
        let name = segments[self.random.usize(..segments.len())];
        let length = self.disk.bytes(name).len();
        if length == 0 {
            return;
        }
        let offset = self.random.usize(..length);
        self.disk.flip(name, offset, self.random.u8(..8));
        self.is_unsure = true;
        let number = u64::from_str_radix(&name[8..24], 16).expect("a number");
        for kept in self.kept.values_mut() {
            let is_hurt = kept.range.is_none_or(|(segment, from, end)| {
                segment == number && (from..end).contains(&(offset as u64))
            });
            kept.is_hurt |= is_hurt;
        }
    }

    /// Reads all that was not released; which sequences there were.
    fn read_everything(&mut self) -> Result<Vec<u64>, ()> {
        let mut from = self.released;
        let mut reader = self.log().reader(from);
        let mut sequences = Vec::new();
        loop {
            let found = match reader.next() {
                Ok(found) => found,
                Err(_) if self.disk.is_down() => return Err(()),
                Err(failure) => panic!("a reader failed: {failure}"),
            };
            self.check_next(from, found.as_ref());
            let Some(found) = found else { break };
            assert!(found.sequence >= from, "{found:?} comes too late");
            self.check_found(&found)?;
            from = found.sequence + 1;
            sequences.push(found.sequence);
        }
        Ok(sequences)
    }

    /// A crash alone is no reason for an alarm.
    fn check_damage(&mut self) {
        for damage in self.log().take_damage() {
            self.disk.note(|| format!("{damage:?}"));
            assert!(
                damage.torn || self.is_unsure || self.may_reappear,
                "an alarm: {damage:?}"
            );
        }
    }

    /// The machine or the process ends, and the next one begins.
    fn end(&mut self) {
        self.readers.clear();
        self.log = None;
        let mut is_power_cut = self.disk.is_down() || self.random.bool();
        self.disk = if is_power_cut {
            self.disk.crash()
        } else {
            self.is_unsure |= self.kept.values().any(|kept| kept.is_doubtful);
            self.disk.restart()
        };
        // It may stop again while it recovers.
        while self.random.u8(..4) == 0 {
            self.stage.show(&self.disk);
            self.disk.stop_after(Some(self.random.u64(..30)));
            let opened = Log::open(Arc::new(self.disk.clone()), self.settings);
            assert!(opened.is_ok() || self.disk.is_down(), "{opened:?}");
            drop(opened);
            self.disk = self.disk.crash();
            is_power_cut = true;
        }
        self.open(is_power_cut);
    }

    fn open(&mut self, is_power_cut: bool) {
        self.stage.show(&self.disk);
        let opened: Result<(Log, Recovered), QueueError> =
            Log::open(Arc::new(self.disk.clone()), self.settings);
        let (log, recovered) = opened.expect("it always starts");
        self.disk.note(|| format!("{recovered:?}"));
        self.log = Some(log);
        for kept in self.kept.values_mut() {
            kept.is_doubtful |=
                kept.fate == Fate::Pending || is_power_cut && kept.fate == Fate::Written;
        }
        let found = self.read_everything().expect("the machine is up");
        self.check_damage();
        self.check_recovered(&recovered);
        // What was not found is gone for good.
        self.kept.retain(|sequence, _| found.contains(sequence));
        for kept in self.kept.values_mut() {
            kept.is_ours = false;
            kept.is_doubtful &= !is_power_cut;
            kept.fate = match kept.fate {
                _ if is_power_cut => Fate::Synced,
                Fate::Pending => Fate::Written,
                other => other,
            };
        }
        // As cursors say that lie ahead of the log.
        self.next_sequence = recovered.next_sequence.max(self.released);
        self.next_ordinal = recovered.next_ordinal;
    }

    fn check_recovered(&self, recovered: &Recovered) {
        let must = self.kept.range(self.released..);
        let mut must = must.filter(|(_, kept)| kept.must_be_there());
        if let Some((first, kept)) = must.next() {
            assert!(recovered.oldest_sequence <= *first, "{recovered:?}");
            assert!(recovered.oldest_ordinal <= kept.ordinal, "{recovered:?}");
        }
        if let Some((last, kept)) = must.last() {
            assert!(recovered.next_sequence > *last, "{recovered:?}");
            let end = kept.ordinal + u64::from(kept.events);
            assert!(recovered.next_ordinal >= end, "{recovered:?}");
        }
    }
}

impl Kept {
    fn must_be_there(&self) -> bool {
        self.fate != Fate::Pending && !self.is_doubtful && !self.is_hurt
    }
}
