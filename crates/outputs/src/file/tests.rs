//! The output as the pipeline uses it, on a real file system whose writes can be made to fail.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tempfile::TempDir;

use super::storage::tests::Faulty;
use super::*;
use crate::testing::{self, documents, encode, wait};

pub(super) fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// An output in a directory; `$` in the settings stands for it.
pub(super) fn output(directory: &TempDir, yaml: &str) -> (FileOutput, Faulty) {
    let storage = Faulty::default();
    let yaml = yaml.replace('$', &directory.path().to_string_lossy());
    let node = config::parse_yaml(&config::Source::new("t.yaml", yaml)).expect("YAML");
    let service = BuildContext {
        finite: false,
        ..testing::context()
    };
    match FileOutput::new(&node, Box::new(storage.clone()), &service) {
        Ok(output) => (output, storage),
        Err(error) => panic!("{error}"),
    }
}

/// What `millpond bench` goes by, which compresses without writing.
#[test]
fn an_output_tells_how_it_compresses() {
    let directory = directory();
    for (yaml, expected) in [
        ("path: $/a", Compression::None),
        ("path: $/a.gz", Compression::Gzip(6)),
        (
            "{path: $/a, compression: zstd, compression_level: 7}",
            Compression::Zstd(7),
        ),
    ] {
        assert_eq!(output(&directory, yaml).0.compression(), expected, "{yaml}");
    }
}

fn refused(directory: &TempDir, yaml: &str) -> ConfigError {
    let yaml = yaml.replace('$', &directory.path().to_string_lossy());
    let Err(error) = testing::build(&SPEC, &yaml) else {
        panic!("{yaml} must be refused")
    };
    error
}

pub(super) fn write(output: &FileOutput, rows: &[&str]) -> Result<Written, WriteError> {
    wait(output.write(&encode(output, &documents(rows))))
}

pub(super) fn close(output: &FileOutput) {
    wait(output.close()).expect("it closes");
}

/// What a file holds, decompressed by its ending.
pub(super) fn content(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let bytes = fs::read(path).expect("the file is there");
    let mut text = String::new();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => {
            flate2::read::MultiGzDecoder::new(&*bytes)
                .read_to_string(&mut text)
                .expect("whole members");
        }
        Some("zst") => {
            zstd::stream::read::Decoder::new(&*bytes)
                .expect("a decoder")
                .read_to_string(&mut text)
                .expect("whole frames");
        }
        _ => text = String::from_utf8(bytes).expect("text"),
    }
    text
}

pub(super) fn names(directory: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory.path())
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn events_are_appended_in_every_compression() {
    for name in ["a.ndjson", "a.ndjson.gz", "a.ndjson.zst"] {
        let directory = directory();
        let path = directory.path().join("new/sub").join(name);
        for round in 0..2 {
            let (output, _) = output(&directory, &format!("path: $/new/sub/{name}"));
            let written = write(&output, &[&format!(r#"{{"a":{round}}}"#)]).expect("it writes");
            assert_eq!(written.until_flush, name != "a.ndjson");
            wait(output.flush()).expect("it flushes");
            assert!(
                content(&path).ends_with(&format!("{{\"a\":{round}}}\n")),
                "complete at a flush"
            );
            write(&output, &[r#"{"b":1}"#, r#"{"b":2}"#]).expect("it writes");
            close(&output);
        }
        let expected = "{\"a\":0}\n{\"b\":1}\n{\"b\":2}\n{\"a\":1}\n{\"b\":1}\n{\"b\":2}\n";
        assert_eq!(content(&path), expected, "{name}");
    }
}

#[test]
fn a_torn_end_is_cut_and_reported() {
    for name in ["a", "a.gz", "a.zst"] {
        let directory = directory();
        let path = directory.path().join(name);
        let (first, _) = output(&directory, &format!("path: $/{name}"));
        write(&first, &[r#"{"a":1}"#]).expect("it writes");
        wait(first.flush()).expect("it flushes");
        let keep = fs::metadata(&path).expect("the file").len();
        write(&first, &[r#"{"a":2}"#]).expect("it writes");
        close(&first);
        let bytes = fs::read(&path).expect("the file");
        fs::write(&path, &bytes[..bytes.len() - 3]).expect("it is torn");

        let (second, _) = output(&directory, &format!("path: $/{name}"));
        write(&second, &[r#"{"a":3}"#]).expect("it writes");
        close(&second);
        assert_eq!(content(&path), "{\"a\":1}\n{\"a\":3}\n", "{name}");
        assert_eq!(
            second.take_counters(),
            [("torn_bytes_cut", bytes.len() as u64 - 3 - keep)]
        );
        assert!(second.take_warnings()[0].text.contains("incomplete write"));
        assert!(second.take_warnings().is_empty() && second.take_counters().is_empty());
    }
}

#[test]
fn a_damaged_file_is_put_aside_and_a_foreign_one_left_alone() {
    let directory = directory();
    let (first, _) = output(&directory, "path: $/a.gz");
    write(&first, &[r#"{"a":1}"#]).expect("it writes");
    close(&first);
    let path = directory.path().join("a.gz");
    let mut bytes = fs::read(&path).expect("the file");
    let len = bytes.len();
    bytes[len - 6] ^= 1;
    bytes.extend_from_slice(b"and more");
    fs::write(&path, &bytes).expect("it is damaged");
    let (second, _) = output(&directory, "path: $/a.gz");
    write(&second, &[r#"{"a":2}"#]).expect("it writes");
    close(&second);
    assert_eq!(content(&path), "{\"a\":2}\n");
    assert_eq!(
        fs::read(directory.path().join("a-19700101T000000Z-000.gz")).expect("put aside"),
        bytes
    );
    assert!(second.take_warnings()[0].text.contains("damaged"));

    for (name, text) in [("a.gz", "no gzip"), ("b", "no newline at the end")] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("it writes");
        let (output, _) = output(&directory, &format!("path: $/{name}"));
        let error = write(&output, &["{}"]).expect_err("it must not be touched");
        assert!(
            matches!(&error, WriteError::Blocked(text) if text.contains("different format")),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).expect("the file"), text);
        fs::rename(&path, path.with_extension("mine"))
            .expect("it is moved away, as the error says");
        write(&output, &[r#"{"a":1}"#]).expect("it writes");
    }
}

#[test]
fn a_last_line_that_may_be_somebody_elses_is_kept() {
    let line = "{path: $/a, codec: template, template: '%{n}'}";
    let binary = "\u{1}\u{0}x".repeat(33_200);
    for (yaml, before, after) in [
        (line, "line one\nmy only copy", "1\n"),
        (line, binary.as_str(), "1\n"),
        ("path: $/a", r#"{"mine":true}"#, "{\"n\":1}\n"),
    ] {
        let directory = directory();
        let path = directory.path().join("a");
        fs::write(&path, before).expect("it writes");
        let (output, storage) = output(&directory, yaml);
        *storage.room.lock() = vec![0];
        write(&output, &[r#"{"n":1}"#]).expect_err("no room for the newline");
        assert_eq!(content(&path), before);
        assert!(output.take_warnings().is_empty());
        for _ in 0..2 {
            write(&output, &[r#"{"n":1}"#]).expect("it writes");
        }
        close(&output);
        assert_eq!(content(&path), format!("{before}\n{after}{after}"));
        let warnings = output.take_warnings();
        assert!(
            warnings.len() == 1 && warnings[0].text.contains("newline"),
            "{warnings:?}"
        );
        assert!(output.take_counters().is_empty(), "nothing was cut");
    }
}

#[test]
fn a_full_disk_leaves_whole_lines_and_doubles_nothing() {
    let directory = directory();
    let (output, storage) = output(&directory, "path: $/a");
    write(&output, &[r#"{"a":1}"#]).expect("it writes");
    *storage.room.lock() = vec![10, 3];
    let encoded = encode(&output, &documents(&[r#"{"a":2}"#, r#"{"a":3}"#]));
    for _ in 0..2 {
        let error = wait(output.write(&encoded)).expect_err("the disk is full");
        assert!(
            matches!(&error, WriteError::Retry(text) if text.contains("No space left")),
            "{error}"
        );
        assert_eq!(content(directory.path().join("a")), "{\"a\":1}\n");
    }
    wait(output.write(&encoded)).expect("there is free space again");
    assert_eq!(
        content(directory.path().join("a")),
        "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"
    );
}

#[test]
fn compressed_events_count_only_once_they_reached_the_disk() {
    let directory = directory();
    let (output, storage) = output(&directory, "path: $/a.gz");
    *storage.room.lock() = vec![0, 7, 0, 0];
    let mut failures = 0;
    for row in [r#"{"a":1}"#, r#"{"a":2}"#] {
        while write(&output, &[row])
            .map(|written| assert!(written.until_flush))
            .is_err()
        {
            failures += 1;
        }
    }
    while wait(output.flush()).is_err() {
        failures += 1;
    }
    assert!(failures > 0);
    assert_eq!(
        content(directory.path().join("a.gz")),
        "{\"a\":1}\n{\"a\":2}\n"
    );
}

#[test]
fn a_failed_sync_is_final() {
    let directory = directory();
    let (output, storage) = output(&directory, "{path: $/a, fsync: true}");
    assert!(write(&output, &["{}"]).expect("it writes").until_flush);
    *storage.sync_fails.lock() = true;
    let error = wait(output.flush()).expect_err("nobody knows what is on the disk");
    assert!(matches!(error, WriteError::Fatal(_)), "{error}");
}

#[test]
fn paths_follow_time_and_fields() {
    let directory = directory();
    let (output, _) = output(
        &directory,
        "{path: '$/%{host}/%{+yyyy-MM-dd}.log', codec: template, template: '%{n}'}",
    );
    let rows = [
        r#"{"@timestamp":"2024-01-01T23:59:59Z","host":"a","n":1}"#,
        r#"{"@timestamp":"2024-01-02T00:00:00Z","host":"a","n":2}"#,
        r#"{"@timestamp":"2024-01-01T00:00:00Z","host":"../b","n":3}"#,
        r#"{"@timestamp":"2024-01-01T00:00:00Z","host":"a","n":4}"#,
    ];
    assert!(!write(&output, &rows).expect("it writes").until_flush);
    for (path, expected) in [
        ("a/2024-01-01.log", "1\n4\n"),
        ("a/2024-01-02.log", "2\n"),
        (".._b/2024-01-01.log", "3\n"),
    ] {
        assert_eq!(content(directory.path().join(path)), expected);
    }
}

#[test]
fn one_bad_path_does_not_stop_the_others() {
    let directory = directory();
    fs::create_dir(directory.path().join("taken")).expect("a directory");
    let (output, storage) = output(&directory, "path: $/%{a}");
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(300));
    let batch = documents(&[
        r#"{"a":"x"}"#,
        r#"{"a":"taken"}"#,
        &long,
        r#"{"a":"y"}"#,
        r#"{"a":"taken"}"#,
    ]);
    let encoded = encode(&output, &batch);
    assert_eq!(
        encoded
            .refused
            .iter()
            .map(|refused| refused.row)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(encoded.rows, 4);
    // The disk is full after the bad path: the retry still knows which rows were refused.
    *storage.room.lock() = vec![10];
    wait(output.write(&encoded)).expect_err("the disk is full");
    let written = wait(output.write(&encoded)).expect("there is free space again");
    assert_eq!(
        written
            .refused
            .iter()
            .map(|refused| refused.row)
            .collect::<Vec<_>>(),
        [1, 4]
    );
    assert_eq!(content(directory.path().join("x")), "{\"a\":\"x\"}\n");
    assert_eq!(content(directory.path().join("y")), "{\"a\":\"y\"}\n");
}

#[test]
fn files_rotate_by_size_and_the_oldest_are_removed() {
    let directory = directory();
    let (output, storage) = output(
        &directory,
        "{path: $/a.log, rotate: {max_bytes: 20B, keep: 2}}",
    );
    for (time, row) in [
        r#"{"a":1}"#,
        r#"{"a":2}"#,
        r#"{"a":3}"#,
        r#"{"a":4}"#,
        r#"{"a":5}"#,
        r#"{"a":6}"#,
        r#"{"a":7}"#,
    ]
    .into_iter()
    .enumerate()
    {
        storage.clock.store(time as i64 / 4, Ordering::SeqCst);
        write(&output, &[row]).expect("it writes");
    }
    assert_eq!(
        names(&directory),
        [
            "a-19700101T000001Z-000.log",
            "a-19700101T000001Z-001.log",
            "a.log"
        ]
    );
    assert_eq!(
        content(directory.path().join("a-19700101T000001Z-001.log")),
        "{\"a\":5}\n{\"a\":6}\n"
    );
    assert_eq!(content(directory.path().join("a.log")), "{\"a\":7}\n");
    assert_eq!(
        output.take_counters(),
        [("files_rotated", 3), ("files_removed", 1)]
    );
}

#[test]
fn a_compressed_file_is_whole_after_its_rotation() {
    let directory = directory();
    let (output, _) = output(&directory, "{path: $/a.gz, rotate: {max_bytes: 1B}}");
    for row in [r#"{"a":1}"#, r#"{"a":2}"#] {
        write(&output, &[row]).expect("it writes");
        wait(output.flush()).expect("it flushes");
    }
    assert_eq!(
        content(directory.path().join("a-19700101T000000Z-000.gz")),
        "{\"a\":1}\n"
    );
    assert_eq!(content(directory.path().join("a.gz")), "{\"a\":2}\n");
}

#[test]
fn files_rotate_when_an_interval_has_ended() {
    let directory = directory();
    let (first, storage) = output(&directory, "{path: $/a, rotate: {interval: 1h}}");
    // The clock starts where the file's own time will be, so that a reopened file is of the same age.
    let now = storage::seconds(std::time::SystemTime::now()) / 3600 * 3600;
    for (time, row) in [
        (now, r#"{"a":1}"#),
        (now + 3599, r#"{"a":2}"#),
        (now + 3600, r#"{"a":3}"#),
    ] {
        storage.clock.store(time, Ordering::SeqCst);
        write(&first, &[row]).expect("it writes");
    }
    assert_eq!(names(&directory).len(), 2);
    assert_eq!(content(directory.path().join("a")), "{\"a\":3}\n");
    close(&first);
    let (second, storage) = output(&directory, "{path: $/a, rotate: {interval: 1h}}");
    storage.clock.store(now + 2 * 3600, Ordering::SeqCst);
    write(&second, &[r#"{"a":4}"#]).expect("it writes");
    assert_eq!(names(&directory).len(), 3);
    assert_eq!(content(directory.path().join("a")), "{\"a\":4}\n");
}

#[test]
fn a_file_that_was_renamed_or_removed_is_opened_anew() {
    let directory = directory();
    let (output, _) = output(&directory, "path: $/a");
    write(&output, &[r#"{"a":1}"#]).expect("it writes");
    fs::rename(directory.path().join("a"), directory.path().join("a.1")).expect("it renames");
    write(&output, &[r#"{"a":2}"#]).expect("it writes");
    fs::remove_file(directory.path().join("a")).expect("it removes");
    write(&output, &[r#"{"a":3}"#]).expect("it writes");
    assert_eq!(content(directory.path().join("a.1")), "{\"a\":1}\n");
    assert_eq!(content(directory.path().join("a")), "{\"a\":3}\n");
}

#[test]
fn the_file_unused_for_longest_is_closed() {
    let directory = directory();
    let (output, storage) = output(&directory, "{path: '$/%{a}.gz', max_open_files: 2}");
    for name in ["x", "y", "x", "z", "x", "y"] {
        write(&output, &[&format!(r#"{{"a":"{name}"}}"#)]).expect("it writes");
    }
    assert_eq!(*storage.opened.lock(), ["x.gz", "y.gz", "z.gz", "y.gz"]);
    close(&output);
    for (name, lines) in [("x", 3), ("y", 2), ("z", 1)] {
        assert_eq!(
            content(directory.path().join(format!("{name}.gz")))
                .lines()
                .count(),
            lines,
            "{name}"
        );
    }
}

#[test]
fn a_file_is_durable_whyever_it_was_closed() {
    let directory = directory();
    let (output, storage) = output(&directory, "{path: '$/%{a}', max_open_files: 1}");
    let syncs = || storage.syncs.load(Ordering::SeqCst);
    write(&output, &[r#"{"a":"x"}"#]).expect("it writes");
    wait(output.flush()).expect("it flushes");
    assert_eq!(syncs(), 0, "nothing was closed");
    write(&output, &[r#"{"a":"y"}"#]).expect("it writes");
    assert_eq!(syncs(), 1, "closed to make room");
    fs::remove_file(directory.path().join("y")).expect("it removes");
    write(&output, &[r#"{"a":"y"}"#]).expect("it writes");
    assert_eq!(syncs(), 2, "closed because it is gone");
    close(&output);
    assert_eq!(syncs(), 3, "closed at the end");
}

#[test]
fn without_descriptors_the_file_unused_for_longest_is_closed() {
    let directory = directory();
    let (first, storage) = output(&directory, "path: '$/%{a}'");
    storage.descriptors.store(2, Ordering::SeqCst);
    for name in ["x", "y", "x", "z", "x"] {
        write(&first, &[&format!(r#"{{"a":"{name}"}}"#)]).expect("room is made");
    }
    assert_eq!(*storage.opened.lock(), ["x", "y", "z"]);
    for (name, lines) in [("x", 3), ("y", 1), ("z", 1)] {
        let content = content(directory.path().join(name));
        assert_eq!(content.lines().count(), lines, "{name}");
    }
    // Descriptors that others hold may come free, so that trying again makes sense.
    close(&first);
    storage.held.store(2, Ordering::SeqCst);
    let error = write(&first, &[r#"{"a":"x"}"#]).expect_err("none is left to close");
    assert!(matches!(error, WriteError::Retry(_)), "{error}");
}

#[test]
fn a_file_has_one_writer() {
    let directory = directory();
    let (first, _) = output(&directory, "path: $/a");
    let (second, _) = output(&directory, "path: $/a");
    write(&first, &[r#"{"a":1}"#]).expect("it writes");
    let error = write(&second, &[r#"{"a":2}"#]).expect_err("the other one holds the file");
    assert!(
        matches!(&error, WriteError::Retry(text) if text.contains("another")),
        "{error}"
    );
    close(&first);
    write(&second, &[r#"{"a":2}"#]).expect("it writes");
}

#[test]
fn a_device_is_written_to_as_it_is() {
    let directory = directory();
    let (output, storage) = output(
        &directory,
        "{path: /dev/null, rotate: {max_bytes: 1B}, fsync: true}",
    );
    *storage.room.lock() = vec![3];
    let encoded = encode(&output, &documents(&[r#"{"a":1}"#]));
    wait(output.write(&encoded)).expect_err("it takes a part only");
    wait(output.write(&encoded)).expect("it takes the rest");
    close(&output);
}

#[test]
fn modes_apply_to_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let (output, _) = output(&directory, "{path: $/a, file_mode: 0600}");
    write(&output, &["{}"]).expect("it writes");
    let metadata = fs::metadata(directory.path().join("a")).expect("the file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_cannot_work_is_refused_at_the_start() {
    let directory = directory();
    fs::write(directory.path().join("plain"), "").expect("it writes");
    for (yaml, message) in [
        ("{}", "path"),
        ("path: ''", "names no file"),
        ("path: $/", "names no file"),
        ("path: $", "is a directory"),
        ("path: $/plain/a", "is not a directory"),
        ("{path: $/none/a, create_dirs: false}", "does not exist"),
        (
            "{path: '$/none/%{a}', create_dirs: false}",
            "does not exist",
        ),
        ("path: '$/%{a'", "not closed"),
        ("{path: $/a, template: x}", "requires `codec: template`"),
        ("{path: $/a, compression: lzma}", "lzma"),
        ("{path: $/a.gz, compression_level: 10}", "between 0 and 9"),
        (
            "{path: $/a, compression_level: 1}",
            "requires a `compression`",
        ),
        (
            "{path: $/a, rotate: {keep: 1}}",
            "requires `max_bytes` or `interval`",
        ),
        (
            "{path: $/a, rotate: {max_bytes: 1MB, keep: 0}}",
            "would remove",
        ),
        ("{path: $/a, rotate: {max_bytes: 0}}", "greater than 0"),
        (
            "{path: $/a, rotate: {interval: 1ms}}",
            "at least one second",
        ),
        ("{path: $/a, file_mode: 0o9}", "octal"),
        ("{path: $/a, max_open_files: 0}", "at least one"),
        ("{path: $/a, compresion: gzip}", "compresion"),
    ] {
        let error = refused(&directory, yaml);
        assert!(error.to_string().contains(message), "{yaml}: {error}");
    }
}

#[test]
fn a_directory_that_went_away_is_reported() {
    let directory = directory();
    fs::create_dir(directory.path().join("sub")).expect("a directory");
    let (output, _) = output(&directory, "{path: $/sub/a, create_dirs: false}");
    fs::remove_dir(directory.path().join("sub")).expect("it removes");
    let error = write(&output, &["{}"]).expect_err("there is not a directory");
    assert!(
        matches!(&error, WriteError::Blocked(text) if text.contains("does not exist")),
        "{error}"
    );
    fs::create_dir(directory.path().join("sub")).expect("a directory");
    write(&output, &["{}"]).expect("it is back");
}

#[test]
fn a_service_starts_where_it_cannot_write_yet_and_goes_on_once_it_can() {
    for (yaml, message) in [
        ("path: $/plain/a", "`$/plain` is not a directory"),
        ("path: '$/plain/%{a}'", "`$/plain` is not a directory"),
        ("path: '$/plain/x-%{a}.gz'", "`$/plain` is not a directory"),
        (
            "{path: $/none/a, create_dirs: false}",
            "the directory `$/none` does not exist",
        ),
    ] {
        let directory = directory();
        let plain = directory.path().join("plain");
        fs::write(&plain, "").expect("it writes");
        let (output, _) = output(&directory, yaml);
        let message = message.replace('$', &directory.path().to_string_lossy());
        let expected = format!("{message}; its events wait until this is fixed");
        assert_eq!(output.take_warnings(), [expected.into()], "{yaml}");
        let encoded = encode(&output, &documents(&[r#"{"a":"a"}"#]));
        for _ in 0..2 {
            let error = wait(output.write(&encoded)).expect_err("it cannot be written");
            assert!(matches!(&error, WriteError::Blocked(_)), "{yaml}: {error}");
        }
        fs::remove_file(&plain).expect("it removes");
        fs::create_dir(&plain).expect("a directory");
        fs::create_dir(directory.path().join("none")).expect("a directory");
        let written = wait(output.write(&encoded)).expect("it is mended");
        assert_eq!(written.refused, [], "{yaml}");
    }
}

#[test]
fn a_file_system_that_becomes_read_only_doubles_nothing() {
    for name in ["a", "a.gz"] {
        let directory = directory();
        let (output, storage) = output(&directory, &format!("path: $/{name}"));
        write(&output, &[r#"{"a":1}"#]).expect("it writes");
        storage.read_only.store(true, Ordering::SeqCst);
        let encoded = encode(&output, &documents(&[r#"{"a":2}"#]));
        let mut is_written = false;
        for _ in 0..3 {
            is_written = is_written || wait(output.write(&encoded)).is_ok();
            if is_written {
                let error = wait(output.flush()).expect_err("it cannot be written");
                assert!(matches!(error, WriteError::Blocked(_)), "{error}");
            }
        }
        storage.read_only.store(false, Ordering::SeqCst);
        if !is_written {
            wait(output.write(&encoded)).expect("it writes");
        }
        close(&output);
        let found = content(directory.path().join(name));
        assert_eq!(found, "{\"a\":1}\n{\"a\":2}\n", "{name}");
    }
}

/// What a pipeline does: a batch, or a flush.
#[derive(Debug, Clone)]
enum Act {
    Batch(Vec<u8>),
    Flush,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prop::collection::vec(0..3_u8, 1..8).prop_map(Act::Batch),
        1 => Just(Act::Flush),
    ]
}

fn until_done<T>(mut call: impl FnMut() -> Result<T, WriteError>) -> T {
    for _ in 0..1000 {
        match call() {
            Ok(value) => return value,
            Err(WriteError::Retry(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk never has room again")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_event_stands_in_its_file_once_whatever_fails(
        acts in prop::collection::vec(act(), 1..12),
        room in prop::collection::vec(0..60_usize, 0..40),
        ending in prop::sample::select(vec!["", ".gz", ".zst"]),
        by_field in any::<bool>(),
        rotate in prop::sample::select(vec!["{}", "{max_bytes: 50B}"]),
        open_max in 1..4_usize,
        codec in prop::sample::select(vec!["json", "csv, csv: {columns: [n]}"]),
    ) {
        let directory = directory();
        let name = if by_field { "f-%{a}" } else { "f-0" };
        let yaml = format!("{{path: '$/{name}{ending}', rotate: {rotate}, max_open_files: {open_max}, codec: {codec}}}");
        let (output, storage) = output(&directory, &yaml);
        *storage.room.lock() = room;
        let mut expected = vec![Vec::new(); 3];
        let mut number = 0;
        for act in acts {
            let Act::Batch(rows) = act else {
                until_done(|| wait(output.flush()));
                continue;
            };
            let mut texts = Vec::new();
            for file in rows {
                texts.push(format!(r#"{{"a":{file},"n":{number}}}"#));
                expected[if by_field { usize::from(file) } else { 0 }].push(number);
                number += 1;
            }
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let encoded = encode(&output, &documents(&texts));
            until_done(|| wait(output.write(&encoded)));
        }
        until_done(|| wait(output.close()));
        let mut found = vec![Vec::new(); 3];
        // Rotated files sort before the current one, by age.
        let mut names = names(&directory);
        names.sort_by_key(|name| (name.len() == 3 + ending.len(), name.clone()));
        for name in names {
            let file = usize::from(name.as_bytes()[2] - b'0');
            let text = content(directory.path().join(name));
            let mut lines = text.lines();
            let is_csv = codec != "json";
            prop_assert_eq!(is_csv.then(|| lines.next().expect("a header")), is_csv.then_some("n"));
            for line in lines {
                let event: serde_json::Value = serde_json::from_str(line).expect("a whole line");
                let number = if is_csv { &event } else { &event["n"] };
                found[file].push(number.as_u64().expect("a number"));
            }
        }
        prop_assert_eq!(found, expected);
    }
}
