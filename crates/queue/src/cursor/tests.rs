//! Tests of the cursor files, on a simulated disk.

use std::io;
use std::sync::Arc;

use disk::simulation::{Kind, SimDisk};
use proptest::prelude::*;

use super::*;

/// Makes every sync fail until the disk is healed.
fn fail_syncs(disk: &SimDisk) {
    (0..100).for_each(|others| disk.fail(Kind::Sync, others));
}

fn folder() -> (SimDisk, Arc<dyn Storage>) {
    let disk = SimDisk::new(1);
    (disk.clone(), Arc::new(disk))
}

fn saved(output: &str, sequence: u64) -> Saved {
    Saved {
        output: output.to_owned(),
        sequence,
        ordinal: sequence * 100,
        passed: Passed::default(),
        end: LogEnd::default(),
        retired: None,
        outputs: vec![output.to_owned(), "other".to_owned()],
    }
}

fn load(storage: &Arc<dyn Storage>) -> (Vec<Saved>, Vec<String>) {
    let loaded = Cursors::load(storage).unwrap();
    let cursors = loaded.cursors.iter();
    (
        cursors.map(|cursor| cursor.saved().clone()).collect(),
        loaded.notes,
    )
}

/// A file with the generations 1 and 2.
fn two_saves(storage: &Arc<dyn Storage>) {
    let mut cursor = CursorFile::create(storage, &saved("es", 1)).unwrap();
    cursor.save(saved("es", 2)).unwrap();
}

#[test]
fn what_was_saved_is_loaded() {
    let (disk, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &saved("es", 1)).unwrap();
    assert_eq!(load(&storage), (vec![saved("es", 1)], vec![]));
    for sequence in 2..9 {
        cursor.save(saved("es", sequence)).unwrap();
        assert_eq!(cursor.saved(), &saved("es", sequence));
        assert_eq!(load(&storage), (vec![saved("es", sequence)], vec![]));
    }
    let retired = Saved {
        end: LogEnd::default(),
        retired: Some(1_700_000_000),
        outputs: vec![],
        ..saved("es", 9)
    };
    cursor.save(retired.clone()).unwrap();
    assert_eq!(load(&storage), (vec![retired], vec![]));
    assert_eq!(disk.bytes("cursor-es").len(), 2 * PAGE);
    cursor.remove().unwrap();
    assert!(disk.names().is_empty());
}

#[test]
fn a_loaded_cursor_goes_on() {
    let (_, storage) = folder();
    two_saves(&storage);
    for sequence in 3..6 {
        let mut cursor = Cursors::load(&storage).unwrap().cursors.remove(0);
        cursor.save(saved("es", sequence)).unwrap();
        cursor.save(saved("es", sequence * 10)).unwrap();
        assert_eq!(load(&storage), (vec![saved("es", sequence * 10)], vec![]));
    }
}

#[test]
fn an_unchanged_save_writes_nothing_but_what_was_read_is_synced_once() {
    let (disk, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &saved("es", 1)).unwrap();
    disk.start_trace();
    let writes = || {
        let lines = disk.trace();
        lines.iter().filter(|line| line.contains(" Write ")).count()
    };
    cursor.save(saved("es", 1)).unwrap();
    assert_eq!(writes(), 0);
    let mut loaded = Cursors::load(&storage).unwrap().cursors.remove(0);
    for _ in 0..2 {
        loaded.save(saved("es", 1)).unwrap();
        assert_eq!(writes(), 1);
    }
    fail_syncs(&disk);
    let mut loaded = Cursors::load(&storage).unwrap().cursors.remove(0);
    loaded.save(saved("es", 1)).unwrap_err();
}

#[test]
fn every_flipped_byte_of_a_slot_leaves_the_older_one() {
    let (disk, storage) = folder();
    two_saves(&storage);
    let whole = disk.bytes("cursor-es");
    for offset in (PAGE..PAGE + 200).chain([2 * PAGE - 1]) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x10;
        disk.plant("cursor-es", &bytes);
        assert_eq!(load(&storage), (vec![saved("es", 1)], vec![]), "{offset}");
    }
    for length in [PAGE, PAGE + 1, PAGE + 100] {
        disk.plant("cursor-es", &whole[..length]);
        assert_eq!(load(&storage), (vec![saved("es", 1)], vec![]), "{length}");
    }
    // The next save goes into the damaged slot.
    let mut cursor = Cursors::load(&storage).unwrap().cursors.remove(0);
    cursor.save(saved("es", 3)).unwrap();
    assert_eq!(disk.bytes("cursor-es")[..PAGE], whole[..PAGE]);
    assert_eq!(load(&storage), (vec![saved("es", 3)], vec![]));
}

#[test]
fn a_file_without_a_valid_slot_is_set_aside() {
    let garbage: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + 1) as u8).collect();
    let (disk, storage) = folder();
    two_saves(&storage);
    let mut flipped = disk.bytes("cursor-es");
    flipped[100] ^= 1;
    flipped[PAGE + 100] ^= 1;
    for bytes in [&garbage[..], &garbage[..50], &flipped, &flipped[..PAGE]] {
        let (disk, storage) = folder();
        disk.plant("cursor-es", bytes);
        let (cursors, notes) = load(&storage);
        assert!(cursors.is_empty());
        assert_eq!(notes.len(), 1);
        assert!(notes[0].ends_with("it was moved to quarantine/cursor-es.1"));
        assert_eq!(disk.names(), ["quarantine/cursor-es.1"]);
        assert_eq!(disk.bytes("quarantine/cursor-es.1"), bytes);
        CursorFile::create(&storage, &saved("es", 5)).unwrap();
        assert_eq!(load(&storage), (vec![saved("es", 5)], vec![]));
    }
}

#[test]
fn a_file_that_was_never_written_is_removed() {
    for length in [0, 10, PAGE, 2 * PAGE, 5 * PAGE] {
        let (disk, storage) = folder();
        disk.plant("cursor-es", vec![0; length]);
        let (cursors, notes) = load(&storage);
        assert!(cursors.is_empty());
        assert_eq!(
            notes,
            ["cursor-es was made and never written; it was removed"]
        );
        assert!(disk.names().is_empty());
    }
}

#[test]
fn quarantine_keeps_the_last_files_of_a_name() {
    let (disk, storage) = folder();
    for round in 0..12 {
        disk.plant("cursor-es", &[b'x'; 100][..50 + round]);
        load(&storage);
    }
    let kept: Vec<_> = (5..=12)
        .map(|number| format!("quarantine/cursor-es.{number}"))
        .collect();
    let mut names = disk.names();
    names.sort_by_key(|name| name.rsplit_once('.').unwrap().1.parse::<u32>().unwrap());
    assert_eq!(names, kept);
    assert_eq!(disk.bytes("quarantine/cursor-es.12").len(), 61);
}

#[test]
fn of_two_files_for_one_output_the_lower_sequence_counts() {
    for (first, second, winner) in [("a", "b", "a"), ("b", "a", "b")] {
        let (disk, storage) = folder();
        CursorFile::create(&storage, &saved("es", 50)).unwrap();
        disk.plant(&format!("cursor-copy-{second}"), disk.bytes("cursor-es"));
        disk.plant("cursor-es", []);
        load(&storage);
        CursorFile::create(&storage, &saved("es", 40)).unwrap();
        disk.plant(&format!("cursor-copy-{first}"), disk.bytes("cursor-es"));
        disk.plant("cursor-es", []);
        let (cursors, notes) = load(&storage);
        assert_eq!(cursors, [saved("es", 40)]);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains(&format!("cursor-copy-{winner} with sequence 40 counts")));
        assert!(notes[0].contains(&format!("cursor-copy-{second} with sequence 50 does not")));
        assert!(
            disk.names()
                .contains(&format!("quarantine/cursor-copy-{second}.1"))
        );
        let (cursors, notes) = load(&storage);
        assert_eq!((cursors, notes), (vec![saved("es", 40)], vec![]));
    }
}

/// Gives the first slot of a file another version, with a checksum that holds.
fn with_version(bytes: &mut [u8], version: u32) {
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..PAGE]);
    bytes[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
}

#[test]
fn a_damaged_file_tells_by_its_name_whose_it_was() {
    let (disk, storage) = folder();
    let long = "x".repeat(300);
    for name in ["es", "a b/c", "es~2", &long] {
        disk.plant(&format!("cursor-{}", encode(name)), b"garbage");
    }
    disk.plant("cursor-es~2", b"garbage");
    disk.plant("cursor-new", [0; 2 * PAGE]);
    let mut damaged = Cursors::load(&storage).unwrap().damaged;
    damaged.sort_unstable();
    assert_eq!(damaged, ["a b/c", "es", "es", "es~2"]);
}

#[test]
fn a_later_version_is_refused_and_nothing_is_touched() {
    let (disk, storage) = folder();
    two_saves(&storage);
    disk.plant("cursor-damaged", b"garbage");
    disk.plant("cursor-blank", []);
    let mut bytes = disk.bytes("cursor-es");
    with_version(&mut bytes, 3);
    disk.plant("cursor-es", &bytes);
    let error = Cursors::load(&storage).unwrap_err();
    assert!(
        matches!(
            &error,
            QueueError::Newer {
                version: 3,
                known: 2,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("cursor-es"), "{error}");
    assert_eq!(
        disk.names(),
        ["cursor-blank", "cursor-damaged", "cursor-es"]
    );
    assert_eq!(disk.bytes("cursor-es"), bytes);
    // The number alone, without a checksum that holds, is damage.
    bytes[8] = 4;
    disk.plant("cursor-es", &bytes);
    assert_eq!(load(&storage).0, [saved("es", 2)]);
}

#[test]
fn a_version_that_never_was_is_damage() {
    let (disk, storage) = folder();
    two_saves(&storage);
    let mut bytes = disk.bytes("cursor-es");
    with_version(&mut bytes, 0);
    disk.plant("cursor-es", &bytes[..PAGE]);
    let (cursors, notes) = load(&storage);
    assert!(cursors.is_empty());
    assert!(notes[0].contains("has an unknown version"), "{notes:?}");
}

#[test]
fn a_full_disk_takes_saves() {
    let (disk, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &saved("es", 1)).unwrap();
    disk.set_capacity(Some(0));
    for sequence in 2..6 {
        cursor.save(saved("es", sequence)).unwrap();
    }
    assert_eq!(disk.bytes("cursor-es").len(), 2 * PAGE);
    assert_eq!(load(&storage), (vec![saved("es", 5)], vec![]));
    let full = CursorFile::create(&storage, &saved("new", 1)).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.names(), ["cursor-es"]);
}

#[test]
fn a_failed_save_leaves_what_was_saved_before() {
    let (disk, storage) = folder();
    two_saves(&storage);
    let mut cursor = Cursors::load(&storage).unwrap().cursors.remove(0);
    cursor.save(saved("es", 3)).unwrap();
    let slot = |index: usize| disk.bytes("cursor-es")[index * PAGE..][..PAGE].to_vec();
    let counts = slot(0);
    fail_syncs(&disk);
    for sequence in [4, 5, 6] {
        cursor.save(saved("es", sequence)).unwrap_err();
        assert_eq!(cursor.saved(), &saved("es", 3));
        assert_eq!(slot(0), counts, "the slot that was synced is not touched");
    }
    disk.heal();
    // Also what was saved before is written again: the disk may hold what failed.
    cursor.save(saved("es", 3)).unwrap();
    assert_eq!(load(&storage), (vec![saved("es", 3)], vec![]));
    assert_eq!(slot(0), counts);
    cursor.save(saved("es", 7)).unwrap();
    assert_eq!(load(&storage), (vec![saved("es", 7)], vec![]));
}

#[test]
fn a_slot_that_may_be_in_the_page_cache_alone_is_synced_before_the_other_goes() {
    let (disk, storage) = folder();
    two_saves(&storage);
    let mut cursor = Cursors::load(&storage).unwrap().cursors.remove(0);
    fail_syncs(&disk);
    let before = disk.bytes("cursor-es");
    cursor.save(saved("es", 3)).unwrap_err();
    assert_eq!(disk.bytes("cursor-es"), before);
    disk.heal();
    cursor.save(saved("es", 3)).unwrap();
    assert_eq!(load(&storage), (vec![saved("es", 3)], vec![]));
}

#[test]
fn a_note_counts_and_the_slot_that_was_synced_stays() {
    let (disk, storage) = folder();
    two_saves(&storage);
    let mut cursor = Cursors::load(&storage).unwrap().cursors.remove(0);
    cursor.save(saved("es", 3)).unwrap();
    let slot = |index: usize| disk.bytes("cursor-es")[index * PAGE..][..PAGE].to_vec();
    let synced = slot(0);
    fail_syncs(&disk);
    for sequence in [4, 5] {
        cursor.note(saved("es", sequence)).unwrap();
        assert_eq!(load(&storage), (vec![saved("es", sequence)], vec![]));
        assert_eq!(cursor.saved(), &saved("es", 3));
        assert_eq!(slot(0), synced);
    }
    let noted = slot(1);
    cursor.note(saved("es", 5)).unwrap();
    assert_eq!(slot(1), noted, "an unchanged note writes nothing");
    disk.heal();
    cursor.save(saved("es", 5)).unwrap();
    assert_eq!(cursor.saved(), &saved("es", 5));
    cursor.note(saved("es", 6)).unwrap();
    assert_eq!(load(&storage), (vec![saved("es", 6)], vec![]));
}

#[test]
fn any_name_of_an_output_has_a_file() {
    let long = "x".repeat(300);
    let longer = format!("{long}y");
    let wide = "日志/".repeat(80);
    let names = [
        "",
        ".",
        "..",
        "a/b",
        "a%2Fb",
        "../../etc",
        "*",
        "a b",
        "Ünïcödé",
        "日志",
        "a.b",
        "\0\n",
        "cursor-",
        "~",
        &long,
        &longer,
        &wide,
    ];
    let (disk, storage) = folder();
    for name in names {
        CursorFile::create(&storage, &saved(name, 7)).unwrap();
    }
    let (cursors, notes) = load(&storage);
    assert_eq!((cursors.len(), notes.len()), (names.len(), 0));
    for name in names {
        assert!(cursors.contains(&saved(name, 7)), "{name}");
    }
    for name in disk.names() {
        assert!(name.len() < 200 && name.starts_with("cursor-"), "{name}");
        assert!(!name.contains('/'), "{name}");
    }
}

#[test]
fn names_of_files_stay_the_same_for_ever() {
    let long = "é".repeat(100);
    let cut = format!("{}~b1c912a8e533f4b5", "%C3%A9".repeat(23) + "%C3");
    for (name, file) in [
        ("es", "es"),
        ("", "%"),
        (".", "%2E"),
        ("..", "%2E."),
        ("a/b c", "a%2Fb%20c"),
        ("Logs_1-2.x", "Logs_1-2.x"),
        ("日", "%E6%97%A5"),
        (&long, &cut),
    ] {
        assert_eq!(encode(name), file);
    }
}

#[test]
fn a_name_that_is_taken_by_something_else_gets_a_number() {
    let (disk, storage) = folder();
    disk.plant("cursor-es", b"");
    CursorFile::create(&storage, &saved("es", 4)).unwrap();
    assert_eq!(disk.names(), ["cursor-es", "cursor-es~2"]);
    let (cursors, notes) = load(&storage);
    assert_eq!((cursors, notes.len()), (vec![saved("es", 4)], 1));
}

#[test]
fn names_of_other_outputs_that_do_not_fit_are_left_out() {
    let (_, storage) = folder();
    let outputs: Vec<String> = (0..200)
        .map(|n| format!("a rather long name {n}"))
        .collect();
    let full = Saved {
        outputs: outputs.clone(),
        ..saved("es", 1)
    };
    CursorFile::create(&storage, &full).unwrap();
    let (cursors, _) = load(&storage);
    let kept = cursors[0].outputs.len();
    assert!((150..200).contains(&kept), "{kept}");
    assert_eq!(cursors[0].outputs, outputs[..kept]);
    assert_eq!(cursors[0].sequence, 1);
}

#[test]
fn a_name_beyond_a_page_is_refused() {
    let (disk, storage) = folder();
    let error = CursorFile::create(&storage, &saved(&"x".repeat(5000), 1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(disk.names().is_empty());
}

#[test]
fn examining_changes_nothing() {
    let (disk, storage) = folder();
    two_saves(&storage);
    disk.plant("cursor-damaged", b"garbage");
    disk.plant("cursor-blank", []);
    let found = Cursors::examine(&*storage).unwrap();
    let files: Vec<_> = found.iter().map(|found| &*found.file).collect();
    assert_eq!(files, ["cursor-blank", "cursor-damaged", "cursor-es"]);
    assert!(found[0].is_blank() && found[0].current().is_none());
    assert!(!found[1].is_blank() && found[1].current().is_none());
    assert_eq!(found[2].current(), Some(&saved("es", 2)));
    assert_eq!(disk.names(), files);
}

/// Files of earlier versions are read for ever: the sample is never written anew.
#[test]
fn the_sample_of_version_1_is_read() {
    let (disk, storage) = folder();
    disk.plant("cursor-es", include_bytes!("../../tests/data/cursor-v1"));
    let (cursors, notes) = load(&storage);
    let expected = Saved {
        output: "elasticsearch/日志".to_owned(),
        sequence: 12_345_678_901,
        ordinal: 49_382_715_604,
        passed: Passed::default(),
        end: LogEnd::default(),
        retired: Some(1_760_000_000),
        outputs: vec!["elasticsearch/日志".to_owned(), "file".to_owned()],
    };
    assert_eq!((cursors, notes), (vec![expected], vec![]));
}

/// A cursor with sequences beyond it that were passed.
fn ahead(sequence: u64, runs: impl IntoIterator<Item = std::ops::Range<u64>>) -> Saved {
    let mut passed = Passed::default();
    runs.into_iter().for_each(|run| passed.insert(run));
    Saved {
        passed,
        end: LogEnd {
            sequence: 1 << 40,
            ordinal: 1 << 50,
        },
        ..saved("es", sequence)
    }
}

/// That version is written as ever, too.
#[test]
fn the_sample_of_version_2_is_read() {
    let (disk, storage) = folder();
    disk.plant("cursor-es", include_bytes!("../../tests/data/cursor-v2"));
    let expected = ahead(100, [101..103, 104..105, 1000..1200]);
    assert_eq!(load(&storage), (vec![expected], vec![]));
}

#[test]
fn only_a_slot_that_says_more_is_of_version_2() {
    let (disk, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &saved("es", 1)).unwrap();
    cursor.save(ahead(1, std::iter::once(3..4))).unwrap();
    cursor.save(saved("es", 4)).unwrap();
    cursor.save(ahead(4, std::iter::once(6..7))).unwrap();
    let bytes = disk.bytes("cursor-es");
    assert_eq!((bytes[8], bytes[PAGE + 8]), (1, 2));
}

#[test]
fn a_damaged_set_falls_back_to_the_slot_before() {
    let (disk, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &ahead(5, std::iter::once(7..8))).unwrap();
    cursor.save(ahead(5, std::iter::once(7..9))).unwrap();
    let whole = disk.bytes("cursor-es");
    let set = whole.windows(8).rposition(|bytes| bytes == b"\"passed\"");
    for bit in 0..8 {
        let mut bytes = whole.clone();
        bytes[set.unwrap() + 10] ^= 1 << bit;
        disk.plant("cursor-es", &bytes);
        assert_eq!(load(&storage).0, [ahead(5, std::iter::once(7..8))]);
    }
}

#[test]
fn what_is_no_set_is_damage() {
    for pairs in [
        "[[7,0]]",
        "[[18446744073709551615,1]]",
        "[[1,-1]]",
        "[[1]]",
        "7",
    ] {
        let (disk, storage) = folder();
        CursorFile::create(&storage, &ahead(5, std::iter::once(7..8))).unwrap();
        let bytes = disk.bytes("cursor-es");
        let body = String::from_utf8(bytes[28..PAGE].to_vec()).unwrap();
        let body = body.trim_end_matches('\0');
        let other = body.replace("[[7,1]]", pairs);
        assert_ne!(body, other);
        let mut page = bytes[..24].to_vec();
        page.extend((other.len() as u32).to_le_bytes());
        page.extend(other.as_bytes());
        page.resize(PAGE, 0);
        with_version(&mut page, 2);
        disk.plant("cursor-es", &page);
        let (cursors, notes) = load(&storage);
        assert!(cursors.is_empty(), "{pairs}");
        assert!(notes[0].contains("holds no cursor"), "{notes:?}");
    }
}

/// The lowest runs count; names of outputs go before none of these.
#[test]
fn a_set_is_cut_to_what_may_be_said() {
    let even =
        |from: u64, count: u64| (0..count).map(move |one| from + 2 * one..from + 2 * one + 1);
    let (_, storage) = folder();
    let mut cursor = CursorFile::create(&storage, &ahead(5, even(7, 600))).unwrap();
    assert_eq!(load(&storage).0, [ahead(5, even(7, RUNS_MAX as u64))]);
    // Nothing that was not synced, and nothing below the cursor.
    let mut early = ahead(8, [2..3, 6..10, 12..20]);
    early.end.sequence = 15;
    cursor.save(early.clone()).unwrap();
    early.passed = ahead(8, [8..10, 12..15]).passed;
    assert_eq!(load(&storage).0, [early]);
    let outputs: Vec<String> = (0..140)
        .map(|n| format!("a rather long name {n}"))
        .collect();
    let full = Saved {
        outputs: outputs.clone(),
        ..ahead(8, even(10, 128))
    };
    cursor.save(full).unwrap();
    let kept = load(&storage).0.remove(0);
    assert_eq!(kept.outputs, outputs);
    let runs = kept.passed.runs().len();
    assert!((1..128).contains(&runs), "{runs}");
    assert_eq!(kept.passed, ahead(8, even(10, runs as u64)).passed);
}

proptest! {
    #[test]
    fn encoded_names_are_safe_and_come_back(name in any::<String>()) {
        let encoded = encode(&name);
        prop_assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.%~".contains(&b)));
        prop_assert!(!encoded.starts_with('.') && !encoded.is_empty() && encoded.len() <= 160);
        if !encoded.contains('~') {
            prop_assert_eq!(decode(&encoded), Some(name));
        }
    }

    #[test]
    fn any_bytes_load(bytes in proptest::collection::vec(any::<u8>(), 0..9000), start in 0..3usize) {
        let (disk, storage) = folder();
        two_saves(&storage);
        let mut whole = disk.bytes("cursor-es");
        let from = (start * PAGE).min(whole.len());
        let length = bytes.len().min(whole.len() - from);
        whole[from..from + length].copy_from_slice(&bytes[..length]);
        disk.plant("cursor-es", &whole);
        let (cursors, notes) = load(&storage);
        prop_assert_eq!(cursors.len() + notes.len(), 1);
    }
}
