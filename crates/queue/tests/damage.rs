//! A catalogue of damages to the log: each costs the blocks that it touches and nothing else, and the log always opens.

mod support;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use disk::simulation::SimDisk;
use disk::{PAGE, PagePool, Storage};
use queue::QueueError;
use queue::log::{
    Block, BlockHeader, Compression, Damage, Item, Log, LogEnd, LogSettings, Payload, Recovered,
    ScanOptions, VERSION, list_segments, scan_segment, segment_name,
};
use support::blocks;

const SETTINGS: LogSettings = LogSettings {
    segment_size: 16 * PAGE as u64,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

/// So many blocks are in the log that is damaged, in groups of three, in several segments.
const BLOCKS: u64 = 60;

/// A block in the first and one in the last segment, neither at the end of its group.
const EARLY: u64 = 4;
const LATE: u64 = BLOCKS - 2;

fn content(sequence: u64) -> Vec<u8> {
    blocks::content(sequence, 1500 + (sequence * 577) % 2500)
}

fn block(sequence: u64) -> Block {
    blocks::block(sequence, content(sequence), Compression::None)
}

fn open(disk: &SimDisk) -> (Log, Recovered) {
    Log::open(Arc::new(disk.clone()), SETTINGS).expect("it always opens")
}

/// A log that was written and synced group by group; the last group was synced, but nothing says so on disk.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    for start in (0..BLOCKS).step_by(3) {
        let blocks: Vec<_> = (start..start + 3).map(block).collect();
        log.append(&blocks).expect("there is room");
        log.sync().expect("nothing fails");
    }
    let disk = disk.restart();
    assert!(numbers(&disk).len() >= 3);
    disk
}

fn numbers(disk: &SimDisk) -> Vec<u64> {
    let segments = list_segments(disk).expect("they can be listed");
    segments.iter().map(|segment| segment.number).collect()
}

/// Where each block lies: segment, offset, header.
fn blocks(disk: &SimDisk) -> Vec<(u64, u64, BlockHeader)> {
    let mut found = Vec::new();
    for number in numbers(disk) {
        let file = disk.open(&segment_name(number)).expect("it is there");
        let mut visit = |item| {
            if let Item::Block { offset, header, .. } = item {
                found.push((number, offset, header));
            }
        };
        scan_segment(&*file, number, ScanOptions::default(), &mut visit).expect("it can be read");
    }
    found
}

fn place(disk: &SimDisk, sequence: u64) -> (u64, u64) {
    let all = blocks(disk);
    let found = all
        .iter()
        .find(|(_, _, header)| header.sequence == sequence);
    let (number, offset, _) = found.expect("it was written");
    (*number, *offset)
}

/// Changes a segment's bytes.
fn change(disk: &SimDisk, number: u64, how: impl FnOnce(&mut Vec<u8>)) {
    let name = segment_name(number);
    let mut bytes = disk.bytes(&name);
    how(&mut bytes);
    disk.plant(&name, bytes);
}

struct Outcome {
    recovered: Recovered,
    damage: Vec<Damage>,
}

impl Outcome {
    fn alarms(&self) -> usize {
        self.damage.iter().filter(|damage| !damage.torn).count()
    }
}

/// All blocks that can be read.
fn read(log: &Log) -> Vec<u64> {
    let (mut reader, pool) = (log.reader(0), PagePool::default());
    let mut sequences = Vec::new();
    while let Some(found) = reader.next().expect("no page is unreadable") {
        if let Ok(payload) = log.load(&found, &pool) {
            assert_eq!(payload, content(found.sequence), "{}", found.sequence);
            assert_eq!(found.ordinal, found.sequence * 10);
            sequences.push(found.sequence);
        }
    }
    sequences
}

fn without(end: u64, lost: &[u64]) -> Vec<u64> {
    (0..end)
        .filter(|sequence| !lost.contains(sequence))
        .collect()
}

/// Opens the log and expects all blocks but the lost ones, also after more was written and another restart.
#[track_caller]
fn expect_lost(disk: &SimDisk, lost: &[u64]) -> Outcome {
    let (log, recovered) = open(disk);
    assert_eq!(read(&log), without(BLOCKS, lost));
    let damage = log.take_damage();
    read(&log);
    assert_eq!(log.take_damage(), [], "a damage is reported once");
    let next = recovered.next_sequence;
    assert!(without(BLOCKS, lost).iter().all(|known| *known < next));
    log.append(&[block(BLOCKS)]).expect("there is room");
    log.sync().expect("nothing fails");
    drop(log);
    let (log, again) = open(&disk.restart());
    assert_eq!(again.next_sequence, BLOCKS + 1);
    assert_eq!(again.next_ordinal, (BLOCKS + 1) * 10);
    assert_eq!(read(&log), without(BLOCKS + 1, lost));
    let outcome = Outcome { recovered, damage };
    let alarms = log
        .take_damage()
        .iter()
        .filter(|damage| !damage.torn)
        .count();
    assert_eq!(alarms, outcome.alarms(), "what was torn stays torn");
    outcome
}

#[test]
fn nothing_is_lost_without_damage() {
    let outcome = expect_lost(&written(), &[]);
    assert_eq!(outcome.damage, []);
    let expected = Recovered {
        next_sequence: BLOCKS,
        next_ordinal: BLOCKS * 10,
        ..Recovered::default()
    };
    assert_eq!(outcome.recovered, expected);
}

/// The sequences in a segment.
fn within(disk: &SimDisk, number: u64) -> Vec<u64> {
    let all = blocks(disk);
    let inside = all.iter().filter(|(of, _, _)| *of == number);
    inside.map(|(_, _, header)| header.sequence).collect()
}

#[test]
fn zero_length_segment() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        let number = numbers(&disk)[index];
        let lost = within(&disk, number);
        change(&disk, number, Vec::clear);
        let outcome = expect_lost(&disk, &lost);
        assert_eq!(outcome.damage, []);
        let oldest = if index == 0 { lost.len() as u64 } else { 0 };
        assert_eq!(outcome.recovered.oldest_sequence, oldest);
        assert_eq!(outcome.recovered.oldest_ordinal, oldest * 10);
    }
}

#[test]
fn segment_header_of_zeros() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        change(&disk, numbers(&disk)[index], |bytes| bytes[..PAGE].fill(0));
        let outcome = expect_lost(&disk, &[]);
        assert_eq!(outcome.damage.len(), 1);
        assert_eq!(outcome.damage[0].length, PAGE as u64);
        assert!(!outcome.damage[0].quarantined);
        assert_eq!(outcome.recovered.oldest_sequence, 0);
        assert_eq!(outcome.recovered.next_sequence, BLOCKS);
    }
}

#[test]
fn block_header_of_zeros() {
    let disk = written();
    let (number, offset) = place(&disk, EARLY);
    change(&disk, number, |bytes| {
        bytes[offset as usize..][..64].fill(0);
    });
    let outcome = expect_lost(&disk, &[EARLY]);
    assert_eq!(outcome.alarms(), 1);
    assert!(outcome.damage[0].quarantined);
}

/// What a cut leaves out.
fn from_on(sequence: u64, until: Option<u64>) -> Vec<u64> {
    (sequence..until.unwrap_or(BLOCKS)).collect()
}

/// Cuts the segment of a block so many bytes behind the block's begin.
fn cut(sequence: u64, behind: u64) -> (SimDisk, Option<u64>) {
    let disk = written();
    let (number, offset) = place(&disk, sequence);
    let end = within(&disk, number).last().map(|last| last + 1);
    change(&disk, number, |bytes| {
        bytes.truncate((offset + behind) as usize);
    });
    (disk, end)
}

#[test]
fn cut_in_a_header() {
    for behind in [1, 8, 63] {
        let (disk, end) = cut(EARLY, behind);
        let outcome = expect_lost(&disk, &from_on(EARLY, end));
        assert_eq!(outcome.alarms(), 1);
        assert_eq!(outcome.recovered.next_sequence, BLOCKS);
        // What was in the last group was never said to be durable.
        let (disk, end) = cut(LATE, behind);
        let outcome = expect_lost(&disk, &from_on(LATE, end));
        assert_eq!(outcome.alarms(), 0);
        assert_eq!(outcome.recovered.next_sequence, LATE);
        assert_eq!(outcome.recovered.next_ordinal, LATE * 10);
        assert_eq!(outcome.recovered.torn_bytes, behind);
    }
}

#[test]
fn cut_in_a_payload() {
    for behind in [64, 65, 700] {
        let (disk, end) = cut(EARLY, behind);
        let outcome = expect_lost(&disk, &from_on(EARLY, end));
        assert_eq!(outcome.alarms(), 1);
        let (disk, end) = cut(LATE, behind);
        let outcome = expect_lost(&disk, &from_on(LATE, end));
        assert_eq!(outcome.alarms(), 0);
        // The header was still there, so its sequence is not given again.
        assert_eq!(outcome.recovered.next_sequence, LATE + 1);
        assert_eq!(outcome.recovered.next_ordinal, (LATE + 1) * 10);
    }
}

/// Magic, CRC, version, compression, what is unused, sequence, ordinal, time, durable, events, lengths, payload CRC.
const BLOCK_FIELDS: [u64; 13] = [0, 8, 12, 13, 14, 16, 24, 32, 40, 48, 52, 56, 60];

#[test]
fn flipped_bit_in_each_field_of_a_block_header() {
    for (field, bit) in BLOCK_FIELDS.into_iter().zip((0..8).cycle()) {
        for sequence in [0, EARLY, 5, LATE, BLOCKS - 1] {
            let disk = written();
            let (number, offset) = place(&disk, sequence);
            disk.flip(&segment_name(number), (offset + field) as usize, bit);
            let outcome = expect_lost(&disk, &[sequence]);
            assert_eq!(outcome.damage.len(), 1, "field at {field} of {sequence}");
            assert_eq!(outcome.damage[0].offset, offset);
            assert_eq!(outcome.damage[0].torn, sequence >= LATE - 1);
        }
    }
}

#[test]
fn flipped_bit_in_a_payload() {
    for sequence in [0, EARLY, LATE] {
        let disk = written();
        let (number, offset) = place(&disk, sequence);
        disk.flip(&segment_name(number), offset as usize + 1000, 3);
        let outcome = expect_lost(&disk, &[sequence]);
        assert_eq!(outcome.damage.len(), 1);
        assert_eq!(outcome.damage[0].torn, sequence == LATE);
        assert_eq!(outcome.damage[0].quarantined, sequence != LATE);
    }
}

#[test]
fn flipped_bit_in_each_field_of_a_segment_header() {
    let fields = [0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 3143, PAGE - 1];
    for (field, bit) in fields.into_iter().zip((0..8).cycle()) {
        for index in 0..numbers(&written()).len() {
            let disk = written();
            disk.flip(&segment_name(numbers(&disk)[index]), field, bit);
            let outcome = expect_lost(&disk, &[]);
            assert_eq!(outcome.damage.len(), 1, "field at {field}");
            assert_eq!(outcome.damage[0].offset, 0);
            assert_eq!(outcome.recovered.next_sequence, BLOCKS);
            assert_eq!(outcome.recovered.oldest_sequence, 0);
        }
    }
}

/// The zeros behind a group.
fn padding(disk: &SimDisk, last: u64) -> (u64, Range<usize>) {
    let (number, offset) = place(disk, last);
    let end = offset as usize + 64 + content(last).len();
    (number, end..end.next_multiple_of(PAGE))
}

#[test]
fn garbage_between_blocks() {
    for last in [2, 5, 8] {
        let disk = written();
        let (number, range) = padding(&disk, last);
        assert!(range.len() > 20);
        let at = range.start + 9;
        change(&disk, number, |bytes| bytes[at..at + 7].fill(0xf4));
        let outcome = expect_lost(&disk, &[]);
        assert_eq!(outcome.alarms(), 1);
        assert!(outcome.damage[0].quarantined);
    }
}

#[test]
fn pages_of_garbage() {
    let disk = written();
    let all = blocks(&disk);
    let (page, end) = (2 * PAGE as u64, 4 * PAGE as u64);
    let lost: Vec<_> = all
        .iter()
        .filter(|(number, offset, header)| {
            let until = offset + 64 + u64::from(header.stored_len);
            *number == all[0].0 && *offset < end && until > page
        })
        .map(|(_, _, header)| header.sequence)
        .collect();
    assert!(lost.len() > 2);
    change(&disk, all[0].0, |bytes| {
        let mut random = fastrand::Rng::with_seed(3);
        bytes[page as usize..end as usize].fill_with(|| random.u8(..));
    });
    let outcome = expect_lost(&disk, &lost);
    assert!(outcome.alarms() > 0);
}

#[test]
fn segment_of_garbage() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        let number = numbers(&disk)[index];
        let lost = within(&disk, number);
        let mut random = fastrand::Rng::with_seed(index as u64);
        change(&disk, number, |bytes| bytes.fill_with(|| random.u8(..)));
        expect_lost(&disk, &lost);
    }
}

#[test]
fn segment_of_zeros() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        let number = numbers(&disk)[index];
        let lost = within(&disk, number);
        change(&disk, number, |bytes| bytes.fill(0));
        expect_lost(&disk, &lost);
    }
}

#[test]
fn missing_segment_in_the_middle() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        let number = numbers(&disk)[index];
        let lost = within(&disk, number);
        disk.remove(&segment_name(number)).unwrap();
        disk.sync_folder("").unwrap();
        let outcome = expect_lost(&disk, &lost);
        assert_eq!(outcome.damage, []);
    }
}

#[test]
fn segment_with_the_name_of_another() {
    let disk = written();
    let [first, second, ..] = numbers(&disk)[..] else {
        panic!("there are several");
    };
    let lost = within(&disk, second);
    disk.plant(&segment_name(second), disk.bytes(&segment_name(first)));
    let outcome = expect_lost(&disk, &lost);
    assert!(outcome.alarms() > 0);
}

#[test]
fn torn_tail() {
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let (log, _) = open(&disk);
        let group = |from: u64| Vec::from_iter((from..from + 5).map(block));
        log.append(&group(0)).unwrap();
        log.sync().unwrap();
        log.append(&group(5)).unwrap();
        log.append(&group(10)).unwrap();
        let disk = disk.crash();
        let (log, recovered) = open(&disk);
        let found = read(&log);
        assert_eq!(found[..5], [0, 1, 2, 3, 4]);
        assert!(found.is_sorted() && found.iter().all(|sequence| *sequence < 15));
        assert!(found.iter().all(|known| *known < recovered.next_sequence));
        assert!(log.take_damage().iter().all(|damage| damage.torn));
        assert_eq!(
            disk.names()
                .iter()
                .filter(|name| name.contains('/'))
                .count(),
            0
        );
        let next = recovered.next_sequence;
        log.append(&[block(next)]).unwrap();
        log.sync().unwrap();
        let (log, recovered) = open(&disk.crash());
        assert_eq!(recovered.next_sequence, next + 1);
        assert_eq!(read(&log), [&found[..], &[next]].concat());
        // Nor is it an alarm when somebody reads it in a later run.
        assert!(log.take_damage().iter().all(|damage| damage.torn));
    }
}

#[test]
fn block_copied_inside_a_payload() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk);
    log.append(&[block(0)]).unwrap();
    let (number, offset) = place(&disk, 0);
    let copied = Bytes::from(disk.bytes(&segment_name(number))[offset as usize..].to_owned());
    let carrier = Block {
        payload: Payload::new(vec![copied.slice(..4000)], Compression::None),
        ..block(1)
    };
    log.append(&[carrier, block(2)]).unwrap();
    log.sync().unwrap();
    let disk = disk.restart();
    let (number, offset) = place(&disk, 1);
    // Without the header of the carrier, the copy is what a reader comes across first.
    disk.flip(&segment_name(number), offset as usize + 20, 1);
    let (log, recovered) = open(&disk);
    assert_eq!(recovered.next_sequence, 3);
    assert_eq!(read(&log), [0, 2]);
}

/// Makes a header say that a later version wrote it.
fn make_newer(bytes: &mut [u8]) {
    bytes[12] = VERSION as u8 + 1;
    let crc = crc32fast::hash(&bytes[12..PAGE]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn folder_from_a_newer_version() {
    for index in 0..numbers(&written()).len() {
        let disk = written();
        let number = numbers(&disk)[index];
        change(&disk, number, |bytes| make_newer(bytes));
        // Something that would be put right in a folder of this version.
        disk.plant(&segment_name(99), vec![0; PAGE]);
        let files = || {
            Vec::from_iter(
                disk.names()
                    .into_iter()
                    .map(|name| (disk.bytes(&name), name)),
            )
        };
        let before = files();
        let refused = Log::open(Arc::new(disk.clone()), SETTINGS);
        let message = refused.expect_err("it is newer").to_string();
        assert!(message.contains(&segment_name(number)), "{message}");
        assert!(
            message.contains("later version of Millpond (format 6; this version reads up to 5)"),
            "{message}"
        );
        assert!(message.contains("nothing was changed"), "{message}");
        assert_eq!(files(), before);
        let refused = list_segments(&disk);
        assert!(matches!(refused, Err(QueueError::Newer { version: 6, .. })));
    }
}

#[test]
fn quarantine_is_bounded() {
    let disk = written();
    for sequence in 0..30 {
        let (number, offset) = place(&written(), sequence);
        disk.flip(&segment_name(number), offset as usize + 100, 0);
    }
    let settings = LogSettings {
        quarantine_size_max: 10_000,
        ..SETTINGS
    };
    let (log, _) = Log::open(Arc::new(disk.clone()), settings).unwrap();
    assert_eq!(read(&log), Vec::from_iter(30..BLOCKS));
    let damage = log.take_damage();
    assert_eq!(damage.len(), 30);
    let kept = disk.list("quarantine").unwrap();
    let size: u64 = kept.iter().map(|file| file.length).sum();
    assert!(size <= 10_000 && size > 5_000, "{size}");
    let copied = damage.iter().filter(|damage| damage.quarantined).count();
    assert_eq!(copied, kept.len());
}

/// With what the caller knows to be synced.
fn known(sequence: u64) -> LogSettings {
    let ordinal = sequence * 10;
    LogSettings {
        synced: LogEnd { sequence, ordinal },
        ..SETTINGS
    }
}

#[test]
fn what_the_caller_knows_to_be_synced_is_not_torn() {
    let last = BLOCKS - 1;
    for (synced_below, is_alarm) in [(0, false), (last, false), (BLOCKS, true)] {
        // The magic, a field of the header, and the payload.
        for at in [0, 20, 64] {
            let disk = written();
            let (number, offset) = place(&disk, last);
            disk.flip(&segment_name(number), (offset + at) as usize, 0);
            let settings = known(synced_below);
            let (log, recovered) = Log::open(Arc::new(disk.clone()), settings).unwrap();
            assert_eq!(read(&log), without(BLOCKS, &[last]));
            let damage = log.take_damage();
            let [damage] = &damage[..] else {
                panic!("{synced_below}, {at}: {damage:?}");
            };
            assert_eq!((damage.torn, damage.quarantined), (!is_alarm, is_alarm));
            assert_eq!(recovered.torn_bytes == 0, is_alarm);
        }
        // A last segment of which nothing can be read.
        let disk = written();
        let number = numbers(&disk).pop().expect("there are several");
        let mut random = fastrand::Rng::with_seed(synced_below);
        change(&disk, number, |bytes| bytes.fill_with(|| random.u8(..)));
        let settings = known(synced_below);
        let (log, _) = Log::open(Arc::new(disk), settings).unwrap();
        read(&log);
        let alarms = log.take_damage().iter().any(|damage| !damage.torn);
        assert_eq!(alarms, synced_below > 0, "{synced_below}");
    }
}

#[test]
fn a_number_beyond_any_log_is_not_a_segment() {
    let disk = written();
    disk.plant(&segment_name(u64::MAX), vec![7; 5000]);
    let outcome = expect_lost(&disk, &[]);
    assert_eq!(outcome.alarms(), 0);
}
