//! Tests of the looks into folders that a log wrote.

use std::fs;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use super::*;
use crate::cursor::{CursorFile, LogEnd, Passed};
use crate::log::{self, Compression, Log, LogSettings, Payload, segment_name};

const SETTINGS: LogSettings = LogSettings {
    segment_size: 64 * 1024,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(FolderStorage::open(self.path()).unwrap())
    }

    /// A run that writes groups of these sequences and syncs each.
    fn write(&self, groups: &[&[u64]]) {
        let (log, _) = Log::open(self.storage(), SETTINGS).unwrap();
        for group in groups {
            log.append(&blocks(group)).unwrap();
            log.sync().unwrap();
        }
    }

    fn look(&self) -> QueueFolder {
        QueueFolder::open(self.path()).unwrap()
    }

    fn flip(&self, segment: u64, offset: u64) {
        let path = self.path().join(segment_name(segment));
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    /// Where the block of a sequence lies.
    fn find(&self, sequence: u64) -> (u64, u64) {
        let mut found = None;
        let mut visit = |block: &Block| {
            if block.header.sequence == sequence && !block.superseded {
                found = Some((block.segment, block.offset));
            }
            ControlFlow::Continue(())
        };
        self.look().scan(Range::ALL, false, &mut visit).unwrap();
        found.unwrap()
    }
}

/// Blocks of 10 events, whose payload says which sequence it is.
fn blocks(sequences: &[u64]) -> Vec<log::Block> {
    let block = |sequence: &u64| log::Block {
        sequence: *sequence,
        ordinal: sequence * 10,
        events: 10,
        time: *sequence as i64 * 1_000_000_000,
        payload: Payload::new(vec![payload(*sequence).into()], Compression::None),
    };
    sequences.iter().map(block).collect()
}

fn payload(sequence: u64) -> Vec<u8> {
    format!("{sequence} ").repeat(100).into_bytes()
}

/// The sequences of the blocks that count and can be read in a range.
fn sequences(queue: &QueueFolder, from: u64, to: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut visit = |block: &Block| {
        if !block.superseded
            && let Ok(loaded) = queue.load(block)
        {
            assert_eq!(loaded, payload(block.header.sequence));
            found.push(block.header.sequence);
        }
        ControlFlow::Continue(())
    };
    queue.scan(Range { from, to }, false, &mut visit).unwrap();
    found
}

#[test]
fn a_report_counts_what_is_there() {
    let place = Place::new();
    place.write(&[&[1, 2], &[3]]);
    place.write(&[&[4, 7]]);
    let saved = |output: &str, sequence| Saved {
        output: output.to_owned(),
        sequence,
        ordinal: 0,
        end: LogEnd::default(),
        passed: Passed::default(),
        retired: (output == "old").then_some(5),
        outputs: vec![],
    };
    let storage = place.storage();
    for (output, sequence) in [("a", 3), ("b", 8), ("old", 1)] {
        CursorFile::create(&storage, &saved(output, sequence)).unwrap();
    }
    let report = place.look().report(10_000_000_000, true).unwrap();
    assert_eq!((report.blocks, report.events), (5, 50));
    assert_eq!(report.process, Some(std::process::id()));
    assert!(report.damage.is_empty() && report.quarantine.is_empty());
    let [first, second] = &report.segments[..] else {
        panic!("{:?}", report.segments)
    };
    assert_eq!(
        (first.first_sequence, first.last_sequence),
        (Some(1), Some(3))
    );
    assert_eq!(
        (second.first_sequence, second.last_sequence),
        (Some(4), Some(7))
    );
    assert_eq!(
        (first.oldest_seconds, first.newest_seconds),
        (Some(9.0), Some(7.0))
    );
    assert!(first.used_bytes <= first.size_bytes);
    let listed: Vec<_> = second
        .list
        .iter()
        .flatten()
        .map(|block| block.sequence)
        .collect();
    assert_eq!(listed, [4, 7]);
    let lag = |cursor: &CursorReport| (cursor.lag_events, cursor.lag_seconds);
    let lags: Vec<_> = report.cursors.iter().map(lag).collect();
    assert_eq!(lags, [(30, Some(7.0)), (0, None), (50, Some(9.0))]);
    assert_eq!(report.cursors[2].retired, Some(5));
    let size = |sequence| 64 + payload(sequence).len() as u64;
    assert_eq!(report.cursors[0].lag_bytes, size(3) + size(4) + size(7));
    drop(storage);
    assert_eq!(place.look().report(0, false).unwrap().process, None);
}

#[test]
fn ranges_leave_out_what_lies_outside() {
    let place = Place::new();
    place.write(&[&[1, 2, 3]]);
    place.write(&[&[5, 6], &[8]]);
    let queue = place.look();
    for (from, to, expected) in [
        (0, u64::MAX, &[1, 2, 3, 5, 6, 8][..]),
        (3, 5, &[3, 5]),
        (4, 4, &[]),
        (6, 7, &[6]),
        (9, 20, &[]),
        (7, 3, &[]),
    ] {
        assert_eq!(sequences(&queue, from, to), expected, "{from} to {to}");
    }
}

#[test]
fn a_block_that_was_written_again_counts_once() {
    let place = Place::new();
    {
        let (log, _) = Log::open(place.storage(), SETTINGS).unwrap();
        log.append(&blocks(&[1, 2])).unwrap();
        log.sync().unwrap();
        log.append(&blocks(&[3, 4])).unwrap();
        log.abandon();
        log.append(&blocks(&[3, 4, 5])).unwrap();
        log.sync().unwrap();
    }
    let queue = place.look();
    assert_eq!(sequences(&queue, 0, u64::MAX), [1, 2, 3, 4, 5]);
    let report = queue.report(0, false).unwrap();
    assert_eq!((report.blocks, report.events), (5, 50));
    assert_eq!(report.segments[0].superseded_blocks, 2);
    assert!(queue.verify().unwrap().is_clean());
}

#[test]
fn every_kind_of_damage_is_found_where_it_is() {
    for (at, reason, is_payload) in [
        (0, "not a block header", false),
        (9, "checksum", false),
        (20, "checksum", false),
        (64, "checksum of the payload", true),
        (150, "checksum of the payload", true),
    ] {
        let place = Place::new();
        place.write(&[&[1, 2], &[3], &[4]]);
        let (segment, offset) = place.find(2);
        place.flip(segment, offset + at);
        let verified = place.look().verify().unwrap();
        let [damage] = &verified.damage[..] else {
            panic!("{at}: {:?}", verified.damage)
        };
        assert!(!damage.torn && !verified.is_clean(), "{damage:?}");
        assert_eq!(
            (&damage.file, damage.offset),
            (&segment_name(segment), offset)
        );
        assert!(damage.reason.contains(reason), "{damage:?}");
        assert_eq!(
            (damage.first_sequence, damage.last_sequence),
            (Some(2), Some(2))
        );
        assert_eq!(verified.blocks, 3);
        assert_eq!(sequences(&place.look(), 0, 9), [1, 3, 4]);
        // Without payloads the headers alone are looked at.
        let report = place.look().report(0, false).unwrap();
        assert_eq!(report.damage.is_empty(), is_payload);
        // Damage that holds nothing of a range is left out.
        let in_range = |from, to| {
            let scan = place
                .look()
                .scan(Range { from, to }, true, &mut |_| ControlFlow::Continue(()));
            scan.unwrap().damage.len()
        };
        assert_eq!([in_range(0, 1), in_range(1, 2), in_range(3, 9)], [0, 1, 0]);
    }
}

#[test]
fn what_a_crash_leaves_is_no_damage() {
    let place = Place::new();
    place.write(&[&[1], &[2], &[3, 4]]);
    let (segment, offset) = place.find(4);
    let path = place.path().join(segment_name(segment));
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0xaa; 30], offset + 70).unwrap();
    let verified = place.look().verify().unwrap();
    assert_eq!(verified.damage.len(), 1, "{:?}", verified.damage);
    assert!(verified.damage[0].torn && verified.is_clean());
    // It stays that when later runs write on.
    place.write(&[&[5], &[6], &[7]]);
    let verified = place.look().verify().unwrap();
    assert!(verified.is_clean(), "{:?}", verified.damage);
    assert_eq!(sequences(&place.look(), 0, 9), [1, 2, 3, 5, 6, 7]);
}

#[test]
fn damaged_and_surplus_cursors_are_said() {
    let place = Place::new();
    let storage = place.storage();
    let saved = |sequence| Saved {
        output: "es".to_owned(),
        sequence,
        ordinal: 0,
        end: LogEnd::default(),
        passed: Passed::default(),
        retired: None,
        outputs: vec![],
    };
    let mut cursor = CursorFile::create(&storage, &saved(3)).unwrap();
    let whole = fs::read(place.path().join("cursor-es")).unwrap();
    cursor.save(saved(4)).unwrap();
    assert!(place.look().verify().unwrap().damage.is_empty());
    // One slot: a torn save.
    let mut torn = fs::read(place.path().join("cursor-es")).unwrap();
    torn[PAGE + 40] ^= 1;
    fs::write(place.path().join("cursor-es"), &torn).unwrap();
    let verified = place.look().verify().unwrap();
    assert_eq!(verified.damage.len(), 1);
    assert!(verified.is_clean() && verified.cursors == 1);
    assert_eq!(verified.damage[0].offset, PAGE as u64);
    // A second file.
    fs::write(place.path().join("cursor-copy"), &whole).unwrap();
    let verified = place.look().verify().unwrap();
    assert!(!verified.is_clean());
    assert_eq!(place.look().cursor("es").unwrap().sequence, 3);
    // None that can be read.
    fs::write(place.path().join("cursor-es"), "garbage").unwrap();
    fs::write(place.path().join("cursor-copy"), "garbage").unwrap();
    let verified = place.look().verify().unwrap();
    assert_eq!((verified.cursors, verified.damage.len()), (0, 2));
    let missing = place.look().cursor("es").unwrap_err();
    assert!(
        matches!(missing, InspectError::NoCursor { .. }),
        "{missing}"
    );
}

#[test]
fn what_is_whole_in_quarantine_is_saved() {
    let place = Place::new();
    place.write(&[&[1, 2, 3], &[4]]);
    // The sequence in the header of one block, the payload of another.
    let (segment, offset) = place.find(1);
    place.flip(segment, offset + 17);
    let (segment, offset) = place.find(3);
    place.flip(segment, offset + 100);
    {
        let (log, _) = Log::open(place.storage(), SETTINGS).unwrap();
        let mut reader = log.reader(0);
        let pool = PagePool::default();
        let mut loaded = 0;
        while let Some(found) = reader.next().unwrap() {
            loaded += usize::from(log.load(&found, &pool).is_ok());
        }
        assert_eq!(loaded, 2);
        assert_eq!(log.take_damage().len(), 2);
    }
    fs::write(place.path().join("quarantine/cursor-es.1"), "garbage").unwrap();
    fs::write(place.path().join("quarantine/other"), "?").unwrap();
    let queue = place.look();
    let found = queue.quarantined().unwrap();
    assert_eq!(found.len(), 4, "{found:?}");
    let cursor = found[0].reason.as_deref().unwrap();
    assert!(cursor.contains("does not start like a cursor"), "{cursor}");
    assert_eq!((found[1].segment, &found[1].reason), (None, &None));
    assert_eq!((found[2].whole_blocks, found[2].whole_events), (1, 10));
    assert_eq!(found[3].whole_blocks, 0);
    let reason = found[3].reason.as_deref().unwrap();
    assert!(reason.contains("checksum of the payload"), "{reason}");
    let pieces = queue.salvage(&found[2]).unwrap();
    let [
        Salvaged::Block {
            sequence: None,
            payload: saved,
            ..
        },
    ] = &pieces[..]
    else {
        panic!("{pieces:?}")
    };
    assert_eq!(saved, &payload(1));
}

#[test]
fn folders_that_are_no_queue_are_refused() {
    let place = Place::new();
    let none = QueueFolder::find(place.path()).unwrap_err();
    assert!(matches!(none, InspectError::NotAQueue(_)), "{none}");
    let missing = QueueFolder::find(&place.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    // A data directory without a queue of its own.
    let data = place.path().join("data");
    for name in ["queue/b", "queue/a%2Fb", "queue/empty"] {
        fs::create_dir_all(data.join(name)).unwrap();
    }
    fs::write(data.join("lock"), "1").unwrap();
    assert!(matches!(
        QueueFolder::find(&data),
        Err(InspectError::NotAQueue(_))
    ));
    for name in ["queue/b", "queue/a%2Fb"] {
        fs::write(data.join(name).join("lock"), "").unwrap();
    }
    let found = QueueFolder::find(&data).unwrap();
    let reports = found.iter().map(|queue| queue.report(0, false).unwrap());
    let names: Vec<_> = reports.map(|report| report.pipeline).collect();
    assert_eq!(names, [Some("a/b".to_owned()), Some("b".to_owned())]);
}

#[test]
fn what_a_running_queue_takes_back_is_no_loss() {
    let place = Place::new();
    place.write(&[&[1], &[2]]);
    let (log, _) = Log::open(place.storage(), SETTINGS).unwrap();
    log.append(&blocks(&[3, 4])).unwrap();
    let (segment, _) = place.find(4);
    let mut seen = Vec::new();
    let mut visit = |block: &Block| {
        // As after a sync that failed; what was not synced would be written into another segment.
        if seen.is_empty() {
            fs::remove_file(place.path().join(segment_name(segment))).unwrap();
        }
        seen.push(block.header.sequence);
        ControlFlow::Continue(())
    };
    let scan = place.look().scan(Range::ALL, false, &mut visit).unwrap();
    assert_eq!(seen, [1, 2]);
    assert_eq!(scan.damage, []);
}

#[test]
fn what_a_running_queue_has_synced_is_missed() {
    let place = Place::new();
    place.write(&[&[1], &[2]]);
    let (log, _) = Log::open(place.storage(), SETTINGS).unwrap();
    log.append(&blocks(&[3, 4])).unwrap();
    log.sync().unwrap();
    log.append(&blocks(&[5])).unwrap();
    let (segment, offset) = place.find(2);
    let path = place.path().join(segment_name(segment));
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0xff; 64], offset).unwrap();
    let mut visit = |_: &Block| ControlFlow::Continue(());
    let scan = place.look().scan(Range::ALL, false, &mut visit).unwrap();
    let events: Vec<u64> = scan.damage.iter().map(|damage| damage.events).collect();
    assert_eq!(events, [10], "{:?}", scan.damage);
}

#[test]
fn a_block_is_found_by_its_sequence() {
    let place = Place::new();
    place.write(&[&[1, 2], &[3]]);
    {
        let (log, _) = Log::open(place.storage(), SETTINGS).unwrap();
        log.append(&blocks(&[5, 6])).unwrap();
        log.abandon();
        // Of two copies the later one counts.
        log.append(&blocks(&[5, 6, 7])).unwrap();
        log.sync().unwrap();
    }
    let queue = place.look();
    for sequence in [1, 2, 3, 5, 6, 7] {
        let block = queue.block(sequence).unwrap().unwrap();
        assert_eq!((block.segment, block.offset), place.find(sequence));
        assert_eq!(queue.load(&block).unwrap(), payload(sequence));
    }
    for sequence in [0, 4, 8] {
        assert!(queue.block(sequence).unwrap().is_none(), "{sequence}");
    }
    let (segment, offset) = place.find(2);
    place.flip(segment, offset);
    assert!(queue.block(2).unwrap().is_none());
    assert!(queue.block(3).unwrap().is_some());
}
