//! Segments as every version of the format wrote them are read for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use queue::disk::FolderStorage;
use queue::log::{Block, Compression, Log, LogEnd, LogSettings, Payload, Recovered};
use queue::pages::PagePool;

const SETTINGS: LogSettings = LogSettings {
    segment_size: 4 * 4096,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

/// In version 2 headers of segments say more; blocks are as they were.
const SAMPLES: [(&str, Compression); 4] = [
    ("v1-plain", Compression::None),
    ("v1-lz4", Compression::Lz4),
    ("v1-zstd", Compression::Zstd),
    ("v2-plain", Compression::None),
];

fn samples(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// What every sample holds: 12 blocks, of which the last ones were never synced; one number is left out.
fn content(sequence: u64) -> String {
    let line = format!(r#"{{"message":"line of batch {sequence}","level":"info"}}"#);
    vec![line; 10 + sequence as usize].join("\n")
}

const SEQUENCES: [u64; 12] = [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15];

fn block(index: usize, compression: Compression) -> Block {
    let sequence = SEQUENCES[index];
    let whole = Bytes::from(content(sequence));
    Block {
        sequence,
        ordinal: 1000 + index as u64 * 20,
        events: 20,
        time: 1_790_000_000_000_000_000 + sequence as i64,
        payload: Payload::new(vec![whole.slice(..7), whole.slice(7..)], compression),
    }
}

/// Writes the sample: with groups of several blocks, more than one segment, and a log that was abandoned once.
fn write(log: &Log, compression: Compression) {
    let blocks: Vec<_> = (0..SEQUENCES.len())
        .map(|index| block(index, compression))
        .collect();
    log.append(&blocks[..3]).expect("there is room");
    log.sync().expect("nothing fails");
    log.append(&blocks[3..4]).expect("there is room");
    log.append(&blocks[4..8]).expect("there is room");
    log.abandon();
    log.append(&blocks[3..6]).expect("there is room");
    log.sync().expect("nothing fails");
    log.append(&blocks[6..10]).expect("there is room");
    log.sync().expect("nothing fails");
    log.append(&blocks[10..]).expect("there is room");
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("it works") {
        let entry = entry.expect("it works");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("it works");
    }
}

#[test]
fn every_version_is_read() {
    for (name, compression) in SAMPLES {
        let folder = tempfile::tempdir().unwrap();
        copy(&samples(name), folder.path());
        let storage = FolderStorage::open(folder.path()).unwrap();
        let (log, recovered) = Log::open(Arc::new(storage), SETTINGS).unwrap();
        let expected = Recovered {
            oldest_sequence: 3,
            oldest_ordinal: 1000,
            next_sequence: 16,
            next_ordinal: 1240,
            ..Recovered::default()
        };
        assert_eq!(recovered, expected, "{name}");
        let (mut reader, pool) = (log.reader(0, None), PagePool::default());
        for (index, sequence) in SEQUENCES.into_iter().enumerate() {
            let found = reader.next().unwrap().unwrap();
            let expected = block(index, compression);
            assert_eq!(found.sequence, sequence, "{name}");
            assert_eq!(found.ordinal, expected.ordinal);
            assert_eq!(found.events, expected.events);
            assert_eq!(found.time, expected.time);
            assert_eq!(log.load(&found, &pool).unwrap(), content(sequence));
            let is_packed = found.stored_len() < found.raw_len();
            assert_eq!(is_packed, compression != Compression::None);
        }
        assert!(reader.next().unwrap().is_none());
        assert_eq!(log.take_damage(), []);
    }
}

/// The layout cannot change unseen: what is written plainly today is what was written then, byte for byte.
#[test]
fn version_2_is_written_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let storage = FolderStorage::open(folder.path()).unwrap();
    let (log, _) = Log::open(Arc::new(storage), SETTINGS).unwrap();
    write(&log, Compression::None);
    drop(log);
    let known = samples("v2-plain");
    let mut count = 0;
    for entry in fs::read_dir(&known).unwrap() {
        let name = entry.unwrap().file_name();
        let (now, then) = (folder.path().join(&name), known.join(&name));
        assert!(
            fs::read(now).unwrap() == fs::read(then).unwrap(),
            "{name:?}"
        );
        count += 1;
    }
    assert!(count >= 3);
}
