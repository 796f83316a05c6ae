//! `millpond queue`, on folders that the queue's own code wrote.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use disk::{FolderStorage, PagePool, Storage};
use queue::cursor::{CursorFile, LogEnd, Passed, Saved};
use queue::log::{Block, Compression, Log, LogSettings, Payload, segment_name};
use serde_json::Value;

use crate::program::{Ended, Folder, command, ended, millpond};
use crate::queue_place::{SMALL, with_backlog};
use crate::reading_faults::Nobody;

const SETTINGS: LogSettings = LogSettings {
    segment_size: 256 * 1024,
    quarantine_size_max: 1 << 20,
    synced: LogEnd::START,
    passed: LogEnd::START,
};

/// Events of a block.
const EVENTS: u64 = 50;

fn document(number: u64) -> String {
    match number % 3 {
        0 => format!(r#"{{ "n" : {number}, "text":"caf\u00e9 {number}" }}"#),
        1 => format!(r#"{{"n":{number},"nested":{{"a":[1, 2.50]}}}}"#),
        _ => format!("{{\"n\":{number},\n \"big\":123456789012345678901234567890}}"),
    }
}

/// What is printed for an event.
fn line(number: u64) -> String {
    document(number).replace('\n', " ")
}

fn lines(sequences: impl IntoIterator<Item = u64>) -> String {
    let numbers = sequences
        .into_iter()
        .flat_map(|sequence| sequence * EVENTS..(sequence + 1) * EVENTS);
    numbers.map(|number| line(number) + "\n").collect()
}

fn batch(sequence: u64) -> Batch {
    let host = Arc::new(HostInfo {
        name: "test-host".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(7)));
    let documents = (sequence * EVENTS..(sequence + 1) * EVENTS).map(document);
    let documents: Vec<String> = documents.collect();
    let buffer = builder.buffer(documents.concat().into());
    let mut start = 0;
    for document in &documents {
        let len = document.len() as u32;
        let span = Span { buffer, start, len };
        builder.push(span, u64::from(start), u64::from(start + len));
        start += len;
    }
    builder.finish()
}

fn block(sequence: u64) -> Block {
    let kinds = [Compression::None, Compression::Lz4, Compression::Zstd];
    Block {
        sequence,
        ordinal: sequence * EVENTS,
        events: EVENTS as u32,
        time: 1_700_000_000_000_000_000,
        payload: Payload::of(batch(sequence).freeze(), kinds[(sequence % 3) as usize]),
    }
}

/// A queue's folder.
struct Queue {
    _folder: Folder,
    path: String,
}

impl Queue {
    /// With the blocks 0 to 9 of two runs and the cursors of `es`, at 6, and `file`, at the end.
    fn new() -> Self {
        Self::of(&[0..4, 4..10], 6, LogEnd::default())
    }

    /// With the blocks of some runs, each in a segment of its own, and the cursors of `es` and, at 10, `file`, which say where
    /// the log ended.
    fn of(runs: &[Range<u64>], es: u64, end: LogEnd) -> Self {
        let folder = Folder::new();
        let path = folder.path("web");
        let queue = Self {
            _folder: folder,
            path,
        };
        let storage = queue.storage();
        for run in runs {
            let (log, _) = Log::open(Arc::clone(&storage), SETTINGS).expect("a log");
            for sequence in run.clone() {
                log.append(&[block(sequence)]).expect("written");
                log.sync().expect("synced");
            }
        }
        for (output, sequence) in [("es", es), ("file", 10)] {
            let saved = Saved {
                output: output.to_owned(),
                sequence,
                ordinal: sequence * EVENTS,
                end,
                passed: Passed::default(),
                retired: None,
                outputs: vec![],
            };
            CursorFile::create(&storage, &saved).expect("a cursor");
        }
        queue
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(FolderStorage::open(Path::new(&self.path)).expect("a queue's folder"))
    }

    fn tool(&self, words: &[&str]) -> Ended {
        let (verb, options) = words.split_at(
            words
                .iter()
                .take_while(|word| !word.starts_with('-'))
                .count(),
        );
        millpond(&[&["queue"], verb, &[self.path.as_str()], options].concat())
    }

    /// The segment's file and the offset of a block, by `inspect`.
    fn find(&self, sequence: u64) -> (PathBuf, u64) {
        let report = json(&self.tool(&["inspect", "--json", "--blocks"]).expect(0));
        let segments = report["segments"].as_array().expect("segments");
        for segment in segments {
            let list = segment["list"].as_array().expect("blocks");
            if let Some(block) = list.iter().find(|block| block["sequence"] == sequence) {
                let number = segment["number"].as_u64().expect("a number");
                let offset = block["offset"].as_u64().expect("an offset");
                return (Path::new(&self.path).join(segment_name(number)), offset);
            }
        }
        panic!("no block {sequence}: {report}")
    }

    /// Flips a bit in the block of a sequence.
    fn flip(&self, sequence: u64, at: u64) -> (PathBuf, u64) {
        let (path, offset) = self.find(sequence);
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("a segment");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset + at).expect("read");
        file.write_all_at(&[byte[0] ^ 1], offset + at)
            .expect("written");
        (path, offset)
    }

    /// Reads everything as a run would, which sets damage aside.
    fn read_all(&self) {
        let (log, _) = Log::open(self.storage(), SETTINGS).expect("a log");
        let (pool, mut reader) = (PagePool::default(), log.reader(0));
        while let Some(found) = reader.next().expect("read") {
            // A damaged one is set aside by that.
            drop(log.load(&found, &pool));
        }
    }
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).expect("a JSON object")
}

#[test]
fn inspect_shows_segments_and_lag() {
    let queue = Queue::new();
    let report = json(&queue.tool(&["inspect", "--json"]).expect(0));
    assert_eq!(report["blocks"], 10, "{report}");
    assert_eq!(report["events"], 500);
    assert_eq!(report["process"], Value::Null);
    assert_eq!(report["damage"], Value::Array(vec![]));
    let segments = report["segments"].as_array().expect("segments");
    let ends = segments
        .iter()
        .map(|segment| [&segment["first_sequence"], &segment["last_sequence"]]);
    assert_eq!(ends.collect::<Vec<_>>(), [[0, 3], [4, 9]]);
    let cursors = report["cursors"].as_array().expect("cursors");
    let lags = cursors
        .iter()
        .map(|cursor| (cursor["output"].as_str(), cursor["lag_events"].as_u64()));
    assert_eq!(
        lags.collect::<Vec<_>>(),
        [(Some("es"), Some(200)), (Some("file"), Some(0))]
    );
    let text = queue.tool(&["inspect", "--blocks"]).expect(0).out;
    assert!(
        text.contains("2 segments") && text.contains("10 blocks with 500 events; not in use"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("es ") && line.contains("200 events")),
        "{text}"
    );
    assert!(text.contains("blocks of segment"), "{text}");
}

#[test]
fn the_process_that_uses_a_queue_is_named_and_not_disturbed() {
    let queue = Queue::new();
    let storage = queue.storage();
    let (log, _) = Log::open(Arc::clone(&storage), SETTINGS).expect("a log");
    log.append(&[block(10)]).expect("written");
    let report = json(&queue.tool(&["inspect", "--json"]).expect(0));
    assert_eq!(report["process"], std::process::id());
    assert_eq!(report["blocks"], 11);
    assert_eq!(queue.tool(&["export"]).expect(0).out, lines(0..11));
    queue.tool(&["verify"]).expect(0);
    log.append(&[block(11)]).expect("still writing");
    log.sync().expect("still syncing");
    log.release(4).expect("removes a segment");
    assert_eq!(queue.tool(&["export"]).expect(0).out, lines(4..12));
}

#[test]
fn nothing_is_touched_and_a_copy_will_do() {
    let snapshot = |path: &str| -> BTreeMap<PathBuf, (i64, i64, Vec<u8>)> {
        let entries = fs::read_dir(path)
            .expect("a folder")
            .map(|entry| entry.expect("an entry"));
        let files = entries.map(|entry| {
            let data = entry.metadata().expect("metadata");
            let bytes = fs::read(entry.path()).expect("a file");
            (entry.path(), (data.mtime(), data.mtime_nsec(), bytes))
        });
        files.collect()
    };
    let queue = Queue::new();
    queue.flip(2, 100);
    let before = snapshot(&queue.path);
    for words in [
        &["inspect", "--blocks"][..],
        &["verify"],
        &["export"],
        &["quarantine", "list"],
        &["quarantine", "export"],
    ] {
        queue.tool(words);
    }
    assert_eq!(snapshot(&queue.path), before);
    // Without the lock file, and with one segment missing in front.
    let copy = Folder::new();
    for path in before.keys().filter(|path| !path.ends_with("lock")) {
        fs::copy(path, copy.as_ref().join(path.file_name().expect("a name"))).expect("a copy");
    }
    let path = copy.as_ref().display().to_string();
    let ended = millpond(&["queue", "export", &path, "--from", "3"]).expect(0);
    assert_eq!(ended.out, lines(3..10));
    fs::remove_file(copy.as_ref().join(segment_name(1))).expect("removed");
    assert_eq!(
        millpond(&["queue", "export", &path]).expect(0).out,
        lines(4..10)
    );
    assert!(!copy.as_ref().join("lock").exists());
}

#[test]
fn export_prints_a_range_or_a_backlog() {
    let queue = Queue::new();
    for (options, expected) in [
        (&[][..], 0..10),
        (&["--from", "7"], 7..10),
        (&["--to", "2"], 0..3),
        (&["--from", "3", "--to", "4"], 3..5),
        (&["--from", "50"], 0..0),
        (&["--cursor", "es"], 6..10),
        (&["--cursor", "es", "--to", "7"], 6..8),
        (&["--cursor", "file"], 0..0),
    ] {
        let ended = queue.tool(&[&["export"], options].concat()).expect(0);
        assert_eq!(ended.out, lines(expected), "{options:?}");
        assert_eq!(ended.err, "");
    }
    let ended = queue.tool(&["export", "--cursor", "kafka"]).expect(2);
    assert!(
        ended
            .err
            .contains("no cursor of the output kafka; it has: es, file"),
        "{}",
        ended.err
    );
}

#[test]
fn export_adds_ids() {
    let queue = Queue::new();
    let events = queue
        .tool(&["export", "--ids", "--from", "4", "--to", "4"])
        .expect(0)
        .events();
    assert_eq!(events.len() as u64, EVENTS);
    for (number, event) in (4 * EVENTS..).zip(&events) {
        assert_eq!(event["n"], number);
        assert_eq!(event["@metadata"]["sequence"], 4);
        assert_eq!(event.as_object().map(serde_json::Map::len), Some(3));
    }
    let length = document(4 * EVENTS).len();
    let id = format!("{:032x}-0-{length:x}", 7);
    assert_eq!(events[0]["@metadata"]["id"], id.as_str());
}

#[test]
fn a_reader_that_goes_away_ends_an_export_quietly() {
    let queue = Queue::new();
    let (log, _) = Log::open(queue.storage(), SETTINGS).expect("a log");
    // Far more than a pipe takes.
    let more: Vec<Block> = (10..200).map(block).collect();
    log.append(&more).expect("written");
    let mut child = command(&["queue", "export", &queue.path])
        .spawn()
        .expect("it runs");
    let mut first = [0; 10];
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_exact(&mut first).expect("events");
    drop(pipe);
    let ended = ended(child.wait_with_output().expect("it ends")).expect(0);
    assert_eq!(ended.err, "");
}

#[test]
fn verify_says_each_damage() {
    let queue = Queue::new();
    let text = queue.tool(&["verify"]).expect(0).out;
    assert!(
        text.contains("10 blocks with 500 events, 2 cursors") && text.contains("no damage"),
        "{text}"
    );
    let (path, offset) = queue.flip(2, 200);
    let (header_path, header_offset) = queue.flip(5, 20);
    let text = queue.tool(&["verify"]).expect(1).out;
    let place = format!("damage: {} at offset {offset}, ", path.display());
    assert!(
        text.contains(&place) && text.contains("sequence 2 is missing"),
        "{text}"
    );
    let place = format!(
        "damage: {} at offset {header_offset}, ",
        header_path.display()
    );
    assert!(
        text.contains(&place) && text.contains("sequence 5 is missing"),
        "{text}"
    );
    assert!(
        text.contains("8 blocks with 400 events") && text.contains("2 damaged ranges"),
        "{text}"
    );
    let ended = queue.tool(&["export"]).expect(1);
    assert_eq!(ended.out, lines([0, 1, 3, 4, 6, 7, 8, 9]));
    assert!(
        ended
            .err
            .contains(&format!("{} at offset {offset}", path.display())),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("sequence 5 is missing"), "{}", ended.err);
    assert_eq!(queue.tool(&["export", "--from", "6"]).expect(0).err, "");
    let text = queue.tool(&["inspect"]).expect(0).out;
    assert!(text.contains("damage: segment-"), "{text}");
}

#[test]
fn a_torn_tail_is_said_and_no_damage() {
    let queue = Queue::new();
    queue.flip(9, 100);
    let text = queue.tool(&["verify"]).expect(0).out;
    assert!(
        text.contains("torn: ") && text.contains("no damage, 1 incomplete write"),
        "{text}"
    );
}

/// What befalls a queue with the segments 1 to 3.
#[derive(Debug)]
enum Fate {
    Remove(&'static [u64]),
    /// The last segment, so many bytes behind the beginning of a block.
    Truncate(u64, u64),
    Flip(u64, u64),
    Folder(u64),
    DanglingLink(u64),
}

impl Fate {
    fn befall(&self, queue: &Queue) {
        let path = |number: u64| Path::new(&queue.path).join(segment_name(number));
        let remove = |number: u64| fs::remove_file(path(number)).expect("removed");
        match *self {
            Self::Remove(numbers) => numbers.iter().copied().for_each(remove),
            Self::Truncate(sequence, behind) => {
                let (path, offset) = queue.find(sequence);
                let file = fs::File::options().write(true).open(path);
                let file = file.expect("a segment");
                file.set_len(offset + behind).expect("cut");
            }
            Self::Flip(sequence, at) => drop(queue.flip(sequence, at)),
            Self::Folder(number) => {
                remove(number);
                fs::create_dir(path(number)).expect("a folder");
            }
            Self::DanglingLink(number) => {
                remove(number);
                std::os::unix::fs::symlink("nothing", path(number)).expect("a link");
            }
        }
    }
}

#[test]
fn what_is_missing_is_damage_and_counted() {
    let end = LogEnd {
        sequence: 10,
        ordinal: 10 * EVENTS,
    };
    for (fate, lost, reason) in [
        (Fate::Remove(&[1]), 1..3, "blocks are missing before this"),
        (Fate::Remove(&[2]), 3..6, "the segment is missing"),
        (
            Fate::Remove(&[3]),
            6..10,
            "the log continued after this point",
        ),
        (Fate::Remove(&[1, 2, 3]), 1..10, "all segments are missing"),
        (
            Fate::Truncate(8, 0),
            8..10,
            "the log continued after this point",
        ),
        (Fate::Truncate(8, 100), 8..10, "the segment ends within"),
        (Fate::Flip(9, 20), 9..10, "checksum"),
        (Fate::Flip(9, 100), 9..10, "checksum"),
        (Fate::Flip(4, 20), 4..5, "checksum"),
        (Fate::Folder(2), 3..6, "it is not a file"),
        (Fate::DanglingLink(3), 6..10, "it is not a file"),
    ] {
        let queue = Queue::of(&[0..3, 3..6, 6..10], 1, end);
        queue.tool(&["verify"]).expect(0);
        fate.befall(&queue);
        let events = (lost.end - lost.start) * EVENTS;
        let text = queue.tool(&["verify"]).expect(1).out;
        let said = format!("1 damaged range, {events} events missing");
        assert!(
            text.contains(&said) && text.contains(reason),
            "{fate:?}: {text}"
        );
        // Where only a payload is wrong, its header does not show it.
        if !matches!(fate, Fate::Flip(_, 100)) {
            let report = json(&queue.tool(&["inspect", "--json"]).expect(0));
            assert_eq!(report["damage"][0]["events"], events, "{fate:?}: {report}");
            assert_eq!(report["damage"][0]["torn"], false);
            let text = queue.tool(&["inspect"]).expect(0).out;
            assert!(text.contains("damage: ") && text.contains(reason), "{text}");
        }
        // What an output has still to get is exported but for that.
        let ended = queue.tool(&["export", "--cursor", "es"]).expect(1);
        let left = (1..10).filter(|sequence| !lost.contains(sequence));
        assert_eq!(ended.out, lines(left), "{fate:?}");
        assert!(ended.err.contains("error: "), "{fate:?}: {}", ended.err);
    }
    // What every output has passed is no loss.
    let queue = Queue::of(&[0..3, 3..6, 6..10], 6, end);
    Fate::Remove(&[1]).befall(&queue);
    queue.tool(&["verify"]).expect(0);
    Fate::Remove(&[2]).befall(&queue);
    queue.tool(&["verify"]).expect(0);
}

#[test]
fn a_run_says_how_much_is_gone_with_a_segment() {
    for is_first in [true, false] {
        let (mut place, written) = with_backlog(SMALL, 20_000);
        let text = millpond(&["queue", "verify", &place.folder]).expect(0).out;
        assert!(text.contains("no damage"), "{text}");
        let segments = place.segments();
        assert!(segments.len() > 2, "{segments:?}");
        let gone = if is_first {
            segments.first()
        } else {
            segments.last()
        };
        fs::remove_file(gone.expect("a segment")).expect("removed");
        let text = millpond(&["queue", "verify", &place.folder]).expect(1).out;
        place.one.up();
        place.two.up();
        let ended = place.deliver().expect(1);
        let lost = 20_000 - place.one.count();
        assert!(lost > 0);
        let lines: Vec<&str> = written.split_inclusive('\n').collect();
        let left = match is_first {
            true => &lines[lost..],
            false => &lines[..lines.len() - lost],
        };
        place.one.expect_once(&left.concat());
        place.two.expect_once(&left.concat());
        let grouped = match lost {
            0..1000 => lost.to_string(),
            _ => format!("{},{:03}", lost / 1000, lost % 1000),
        };
        let said = format!("{grouped} events were lost because its files are damaged");
        assert!(ended.err.contains(&said), "{said}: {}", ended.err);
        // The tool had said the same.
        let said = format!("1 damaged range, {grouped} events missing");
        assert!(text.contains(&said), "{said}: {text}");
        // It is said once.
        let again = place.deliver().expect(0);
        assert!(!again.err.contains("lost"), "{}", again.err);
    }
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let queue = Queue::new();
    let ended = queue
        .tool(&["export", "--from", "5", "--to", "3"])
        .expect(2);
    assert_eq!(ended.err, "error: --from 5 is greater than --to 3\n");
    assert_eq!(ended.out, "");
}

#[test]
fn what_was_set_aside_is_listed_and_saved() {
    let queue = Queue::new();
    let none = queue.tool(&["quarantine", "list"]).expect(0).out;
    assert!(none.contains("nothing is quarantined"), "{none}");
    // The sequence in one header, which leaves the payload whole, and another's payload.
    let (_, offset) = queue.flip(1, 16);
    queue.flip(3, 300);
    queue.read_all();
    let listed = queue
        .tool(&["quarantine", "list", "--json"])
        .expect(0)
        .events();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!(listed[0]["offset"], offset);
    assert_eq!(listed[0]["whole_events"], EVENTS);
    assert_eq!(listed[1]["whole_events"], 0);
    assert_eq!(
        listed[1]["reason"],
        "the checksum of the payload does not match"
    );
    let text = queue.tool(&["quarantine", "list"]).expect(0).out;
    assert!(text.contains("2 files quarantined"), "{text}");
    let ended = queue.tool(&["quarantine", "export"]).expect(1);
    assert_eq!(ended.out, lines([1]));
    assert!(
        ended
            .err
            .contains("the checksum of the payload does not match"),
        "{}",
        ended.err
    );
    let first = listed[0]["file"].as_str().expect("a name");
    let ended = millpond(&["queue", "quarantine", "export", &queue.path, first]).expect(0);
    assert_eq!(ended.out, lines([1]));
    let ended = millpond(&["queue", "quarantine", "export", &queue.path, "nothing"]).expect(2);
    assert!(
        ended.err.contains("no quarantined file named nothing"),
        "{}",
        ended.err
    );
}

#[test]
fn of_a_data_directory_every_queue_is_shown() {
    let data = Folder::new();
    for name in ["a%2Fb", "web"] {
        let queue = Queue::new();
        fs::create_dir_all(data.path("queue")).expect("a folder");
        fs::rename(&queue.path, data.path(&format!("queue/{name}"))).expect("moved");
    }
    let path = data.path("");
    let reports = millpond(&["queue", "inspect", &path, "--json"])
        .expect(0)
        .events();
    let names: Vec<_> = reports
        .iter()
        .map(|report| report["pipeline"].as_str())
        .collect();
    assert_eq!(names, [Some("a/b"), Some("web")]);
    let text = millpond(&["queue", "verify", &path]).expect(0).out;
    assert_eq!(text.matches("no damage").count(), 2, "{text}");
    let ended = millpond(&["queue", "export", &path]).expect(2);
    assert!(ended.err.contains("several queues"), "{}", ended.err);
    fs::remove_dir_all(data.path("queue/a%2Fb")).expect("removed");
    assert_eq!(
        millpond(&["queue", "export", &path]).expect(0).out,
        lines(0..10)
    );
}

#[test]
fn what_is_no_queue_is_refused() {
    let folder = Folder::new();
    let file = folder.write("file", "text");
    let missing = folder.path("missing");
    let none = folder.path("");
    for words in [
        &["inspect"][..],
        &["verify"],
        &["export"],
        &["quarantine", "list"],
        &["quarantine", "export"],
    ] {
        for (path, reason) in [
            (&missing, "No such file or directory"),
            (&file, "Not a directory"),
            (
                &none,
                "neither the folder of a disk queue nor a data directory",
            ),
        ] {
            let ended = millpond(&[&["queue"], words, &[path.as_str()]].concat()).expect(2);
            assert!(
                ended.err.starts_with("error: ") && ended.err.contains(reason),
                "{}",
                ended.err
            );
            assert!(
                ended.err.contains(path.trim_end_matches('/')),
                "{}",
                ended.err
            );
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        }
    }
}

#[test]
fn a_queue_that_may_not_be_read_is_said() {
    let Some(nobody) = Nobody::new() else { return };
    // A temporary folder and what a queue makes in it are their owner's alone.
    let queue = Queue::new();
    for words in [&["inspect"][..], &["verify"], &["export"]] {
        let ended = nobody.run(&[&["queue"], words, &[queue.path.as_str()]].concat());
        let ended = ended.expect(2);
        assert!(ended.err.contains("Permission denied"), "{}", ended.err);
        assert!(ended.err.contains(&queue.path), "{}", ended.err);
    }
}

#[test]
fn a_later_version_is_refused() {
    let queue = Queue::new();
    let (path, _) = queue.find(0);
    let mut bytes = fs::read(&path).expect("a segment");
    bytes[12] = 99;
    let checksum = crc32(&bytes[12..4096]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).expect("written");
    for words in [&["inspect"][..], &["verify"], &["export"]] {
        let ended = queue.tool(words).expect(2);
        assert!(
            ended
                .err
                .contains("a later version of Millpond (format 99;"),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(&queue.path), "{}", ended.err);
        let count = ended.err.matches("a later version of Millpond").count();
        assert_eq!(count, 1, "{}", ended.err);
    }
}

/// CRC-32 as in IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: &u8| {
        let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        (0..8).fold(crc ^ u32::from(*byte), bit)
    };
    !bytes.iter().fold(!0, byte)
}
