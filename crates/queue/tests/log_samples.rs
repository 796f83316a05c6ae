//! Segments as every version of the format wrote them are read for ever.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::Frozen;
use bytes::Bytes;
use disk::{FolderStorage, PagePool, Storage};
use queue::log::{
    Block, Compression, Item, Log, LogEnd, LogSettings, Payload, Recovered, ScanOptions,
    SegmentInfo, list_segments, scan_segment, segment_name,
};

const SETTINGS: LogSettings = LogSettings {
    segment_size: 4 * 4096,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

/// In version 2 headers of segments say more; blocks are as they were. In version 3 blocks may be of version 2.
const SAMPLES: [(&str, Compression); 5] = [
    ("v1-plain", Compression::None),
    ("v1-lz4", Compression::Lz4),
    ("v1-zstd", Compression::Zstd),
    ("v2-plain", Compression::None),
    ("v3-plain", Compression::None),
];

/// In that sample, blocks from this one on are of version 2.
const FIRST_OF_VERSION_2: u64 = 10;

fn samples(name: &str) -> PathBuf {
    Path::new("tests/data").join(name)
}

/// What every sample holds: 12 blocks, of which the last ones were never synced; one number is left out.
fn content(sequence: u64) -> String {
    let line = format!(r#"{{"message":"line of batch {sequence}","level":"info"}}"#);
    vec![line; 10 + sequence as usize].join("\n")
}

const SEQUENCES: [u64; 12] = [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15];

/// A block whose payload is of version 2.
fn newer(block: &Block) -> Block {
    let frozen = Frozen {
        version: 2,
        head: content(block.sequence).into(),
        documents: Vec::new(),
    };
    Block {
        payload: Payload::of(frozen, Compression::None),
        ..block.clone()
    }
}

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

/// Writes a sample: with groups of several blocks, more than one segment, and a log that was abandoned once.
fn write(log: &Log, first_of_version_2: u64) {
    let blocks: Vec<_> = (0..SEQUENCES.len())
        .map(|index| match block(index, Compression::None) {
            new if new.sequence >= first_of_version_2 => newer(&new),
            old => old,
        })
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
        let (mut reader, pool) = (log.reader(0), PagePool::default());
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
fn versions_2_and_3_are_written_as_ever() {
    for (name, first_of_version_2) in [("v2-plain", u64::MAX), ("v3-plain", FIRST_OF_VERSION_2)] {
        let folder = tempfile::tempdir().unwrap();
        let storage = FolderStorage::open(folder.path()).unwrap();
        let (log, _) = Log::open(Arc::new(storage), SETTINGS).unwrap();
        write(&log, first_of_version_2);
        drop(log);
        let known = samples(name);
        let mut count = 0;
        for entry in fs::read_dir(&known).unwrap() {
            let file = entry.unwrap().file_name();
            let (now, then) = (folder.path().join(&file), known.join(&file));
            assert!(
                fs::read(now).unwrap() == fs::read(then).unwrap(),
                "{name}: {file:?}"
            );
            count += 1;
        }
        assert!(count >= 3, "{name}");
        let written = list_segments(&FolderStorage::open(folder.path()).unwrap());
        assert_eq!(written.unwrap().len(), count, "{name}");
    }
}

/// The versions of a sample's segments, and of the blocks in each.
fn versions(name: &str) -> Vec<(u32, Vec<u8>)> {
    let folder = tempfile::tempdir().expect("a folder");
    copy(&samples(name), folder.path());
    let storage = FolderStorage::open(folder.path()).expect("a free folder");
    let segments = list_segments(&storage).expect("known versions");
    let version = |segment: &SegmentInfo| {
        let name = segment_name(segment.number);
        let file = storage.open(&name).expect("it is there");
        let mut page = vec![0; 4096];
        file.read_at(&mut page, 0).expect("it can be read");
        let version = u32::from_le_bytes(page[12..16].try_into().expect("four bytes"));
        let mut blocks = Vec::new();
        let options = ScanOptions::default();
        scan_segment(&*file, segment.number, options, &mut |item| {
            if let Item::Block { header, .. } = item {
                blocks.push(header.version);
            }
        })
        .expect("it can be read");
        (version, blocks)
    };
    segments.iter().map(version).collect()
}

/// A program that knows version 2 refuses the folder by the header of a segment, before it meets a block.
#[test]
fn only_segments_of_version_3_hold_blocks_of_version_2() {
    let expected: [(&str, &[u32]); 3] = [
        ("v1-plain", &[1, 1, 1]),
        ("v2-plain", &[2, 2, 2]),
        ("v3-plain", &[2, 3, 3]),
    ];
    for (name, segments) in expected {
        let found = versions(name);
        let of_segments: Vec<u32> = found.iter().map(|(version, _)| *version).collect();
        assert_eq!(of_segments, segments, "{name}: {found:?}");
        for (segment, blocks) in found {
            let latest = blocks.iter().copied().max().unwrap_or(1);
            assert_eq!(latest, if segment == 3 { 2 } else { 1 }, "{name}");
        }
    }
}
