//! The log on a real folder: what is appended comes back, over rotations, restarts and failures.

use std::sync::Arc;

use bytes::Bytes;
use disk::{FolderStorage, PagePool, Storage};
use queue::log::{Block, Compression, Log, LogEnd, LogSettings, Payload, Recovered};

const SETTINGS: LogSettings = LogSettings {
    segment_size: 256 * 1024,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

fn open(folder: &tempfile::TempDir) -> (Log, Recovered) {
    let storage: Arc<dyn Storage> =
        Arc::new(FolderStorage::open(folder.path()).expect("a free folder"));
    Log::open(storage, SETTINGS).expect("it opens")
}

fn content(sequence: u64) -> Vec<u8> {
    let length = 1 + (sequence * 7919) % 30_000;
    (0..length)
        .map(|at| (at / 7 * (sequence + 1)) as u8)
        .collect()
}

fn block(sequence: u64, compression: Compression) -> Block {
    let bytes = Bytes::from(content(sequence));
    let (head, rest) = (bytes.slice(..1), bytes.slice(1..));
    Block {
        sequence,
        ordinal: sequence * 10,
        events: 10,
        time: 1_000_000 + sequence as i64,
        payload: Payload::new(vec![head, rest], compression),
    }
}

fn append(log: &Log, sequences: std::ops::Range<u64>, compression: Compression) {
    let blocks: Vec<_> = sequences.map(|s| block(s, compression)).collect();
    log.append(&blocks).expect("there is room");
}

fn read(log: &Log, from: u64) -> Vec<u64> {
    let (mut reader, pool) = (log.reader(from), PagePool::default());
    let mut sequences = Vec::new();
    while let Some(found) = reader.next().expect("it can be read") {
        assert_eq!(found.ordinal, found.sequence * 10);
        let payload = log.load(&found, &pool).expect("it is whole");
        assert_eq!(payload, content(found.sequence), "{}", found.sequence);
        sequences.push(found.sequence);
    }
    sequences
}

#[test]
fn what_is_appended_comes_back() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        let (log, recovered) = open(&folder);
        assert_eq!(recovered, Recovered::default());
        for start in (0..100).step_by(5) {
            append(&log, start..start + 5, compression);
        }
        assert_eq!(read(&log, 0), Vec::from_iter(0..100));
        assert_eq!(read(&log, 57), Vec::from_iter(57..100));
        log.sync().unwrap();
        drop(log);
        let (log, recovered) = open(&folder);
        assert_eq!(recovered.next_sequence, 100);
        assert_eq!(recovered.next_ordinal, 1000);
        assert_eq!(recovered.torn_bytes, 0);
        assert_eq!(recovered.notes, Vec::<String>::new());
        append(&log, 100..120, compression);
        assert_eq!(read(&log, 0), Vec::from_iter(0..120));
        assert_eq!(log.take_damage(), []);
    }
}

/// What a later batch needs is known before it is appended, so that limits of the log's size hold.
#[test]
fn a_segment_is_not_appended_to_that_does_not_allow_the_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = open(&folder);
    append(&log, 0..2, Compression::None);
    assert!(log.room() > 100_000);
    log.expect(1);
    assert!(log.room() > 100_000);
    log.expect(2);
    assert_eq!(log.room(), 0);
    let before = log.first_of_segments().len();
    append(&log, 2..4, Compression::None);
    assert_eq!(log.first_of_segments().len(), before + 1);
    assert!(log.room() > 100_000);
    append(&log, 4..6, Compression::None);
    assert_eq!(log.first_of_segments().len(), before + 1);
    assert_eq!(read(&log, 0), [0, 1, 2, 3, 4, 5]);
}
