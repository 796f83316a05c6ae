//! What Millpond wrote to disk: damage is found, and costs no more than what it touches.
//!
//! A fuzzer does not guess checksums. So the sums of what looks like a header are put right before the bytes are read, unless
//! the first byte says otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{Batch, JsonWriter, MsgPackWriter};
use bytes::Bytes;
use disk::simulation::SimDisk;
use disk::{PAGE, PagePool, Storage};
use queue::log::{Item, Log, LogEnd, LogSettings, ScanOptions, scan_segment, segment_name};

use crate::choice;

/// A batch as the queue keeps it.
pub(crate) fn batch(bytes: &[u8]) {
    if let Ok(batch) = Batch::thaw(Bytes::copy_from_slice(bytes)) {
        let again = Batch::thaw(payload(&batch)).expect("what was read can be stored");
        assert_eq!(again.len(), batch.len());
        assert_eq!(payload(&again), payload(&batch), "and is the same");
        write(&batch);
    }
}

/// Writes all rows. The inside of documents is not looked at when a batch is read: what comes out may be anything.
fn write(batch: &Batch) {
    let (text, packed) = (JsonWriter::new(batch), MsgPackWriter::new(batch));
    let mut out = Vec::new();
    for row in batch.alive().iter() {
        out.clear();
        text.write(row, &mut out);
        packed.write(row, &mut out);
        batch.origin().write_id(row, &mut out);
    }
}

fn payload(batch: &Batch) -> Bytes {
    let frozen = batch.freeze();
    let parts = [&frozen.head[..], &frozen.documents.concat()].concat();
    parts.into()
}

const BLOCK_MAGIC: [u8; 8] = [0x9b, 0x6d, 0x70, 0x42, 0x4c, 0x4b, 0xf4, 0x0a];

/// What stands in front of the blocks of a segment in the bytes of the fuzzer; zeros follow up to a page.
const HEADER_BYTES: usize = 80;

/// A segment of a queue. What can be read of it is what a scan finds, and a second time as well.
pub(crate) fn queue(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let (header, blocks) = bytes.split_at(bytes.len().min(HEADER_BYTES));
    let mut segment = header.to_vec();
    segment.resize(PAGE, 0);
    segment.extend_from_slice(blocks);
    segment.resize(segment.len().next_multiple_of(PAGE), 0);
    if choice % 4 != 0 {
        put_right(&mut segment);
    }
    let disk = SimDisk::new(0);
    disk.plant(&segment_name(1), segment);
    let scanned = scan(&disk);
    let first = read(&disk);
    // Opening sets aside what is damaged, and takes nothing else away.
    let second = read(&disk);
    assert_eq!(first, second);
    assert!(first.as_ref().map_or(0, Vec::len) <= scanned);
}

/// Puts the sums of a segment right: of its header, and of each block.
fn put_right(segment: &mut [u8]) {
    let sum = crc32fast::hash(&segment[12..PAGE]);
    segment[8..12].copy_from_slice(&sum.to_le_bytes());
    let mut at = PAGE;
    while let Some(found) = find(&segment[at..], &BLOCK_MAGIC) {
        at += found;
        let Some(header) = segment[at..].first_chunk::<64>() else {
            return;
        };
        let length = u32::from_le_bytes([header[52], header[53], header[54], header[55]]) as usize;
        if let Some(payload) = segment.get(at + 64..(at + 64).saturating_add(length)) {
            let sum = crc32fast::hash(payload);
            segment[at + 60..at + 64].copy_from_slice(&sum.to_le_bytes());
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&segment[at + 12..at + 64]);
        hasher.update(&1u64.to_le_bytes());
        hasher.update(&(at as u64).to_le_bytes());
        segment[at + 8..at + 12].copy_from_slice(&hasher.finalize().to_le_bytes());
        at += 64;
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// How many blocks a scan of the segment finds.
fn scan(disk: &SimDisk) -> usize {
    let file = disk.open(&segment_name(1)).expect("it was put there");
    let options = ScanOptions {
        from: 0,
        verify_payload: true,
    };
    let mut blocks = 0;
    let mut visit = |item: Item| blocks += usize::from(matches!(item, Item::Block { .. }));
    scan_segment(&*file, 1, options, &mut visit).expect("memory can be read");
    blocks
}

/// The sequences of the blocks that can be read; none where the log is of a later version.
fn read(disk: &SimDisk) -> Option<Vec<u64>> {
    let settings = LogSettings {
        segment_size: 16 * PAGE as u64,
        quarantine_size_max: 1 << 20,
        synced: LogEnd::START,
        passed: LogEnd::START,
    };
    let (log, _) = Log::open(Arc::new(disk.clone()), settings).ok()?;
    let (mut reader, pool) = (log.reader(0), PagePool::default());
    let mut sequences = Vec::new();
    while let Some(found) = reader.next().expect("memory can be read") {
        if let Some(before) = sequences.last() {
            assert!(found.sequence > *before, "each once, ascending");
        }
        sequences.push(found.sequence);
        let Ok(payload) = log.load(&found, &pool) else {
            continue;
        };
        assert_eq!(payload.len(), found.raw_len());
        if let Ok(batch) = Batch::thaw(payload) {
            write(&batch);
        }
    }
    log.take_damage();
    Some(sequences)
}

/// The log of a registry. Damage never keeps it from opening, and what it sets aside costs no entry that was read before.
pub(crate) fn registry(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else {
        return;
    };
    let mut log = Vec::from(*b"\xF7mpreg\r\n\x01\0\0\0\x01\0\0\0\0\0\0\0");
    log.extend_from_slice(&crc32fast::hash(&log).to_le_bytes());
    log.extend_from_slice(body);
    match choice % 4 {
        0 => log = body.to_vec(),
        _ => put_frames_right(&mut log),
    }
    let memory = std::path::Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let folder = folder.expect("a temporary folder");
    std::fs::write(folder.path().join("registry"), &log).expect("written");
    let before = entries(folder.path());
    let Ok((registry, _)) = registry::Registry::open(folder.path()) else {
        return;
    };
    drop(registry);
    assert_eq!(entries(folder.path()), before, "the same entries");
}

type Entries = BTreeMap<(u8, u128), Vec<u8>>;

fn entries(folder: &std::path::Path) -> Option<Entries> {
    let mut entries = Entries::new();
    let mut each = |key: registry::Key, value: &[u8]| {
        entries.insert((key.kind, key.id), value.to_vec());
    };
    registry::read(folder, &mut each).ok()?;
    Some(entries)
}

/// Puts the sums of frames right, and their log's number.
fn put_frames_right(log: &mut [u8]) {
    let mut at = 24;
    while let Some(found) = find(&log[at..], b"\xF7mP\x1A") {
        at += found;
        let Some(header) = log[at..].first_chunk::<32>() else {
            return;
        };
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        log[at + 8..at + 16].copy_from_slice(&1u64.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&log[at..at + 28]);
        if let Some(payload) = log.get(at + 32..(at + 32).saturating_add(length)) {
            hasher.update(payload);
        }
        log[at + 28..at + 32].copy_from_slice(&hasher.finalize().to_le_bytes());
        at += 32;
    }
}
