//! What other codecs than JSON mean for files: headers, and ends that are torn.

use std::fs;
use std::path::Path;

use component::{Output, Writer};

use super::tests::{close, content, directory, names, output, write};
use crate::testing::{documents, encode, wait};

const CSV: &str = "codec: csv, csv: {columns: [a]}";

#[test]
fn every_new_file_begins_with_the_header_and_none_has_it_twice() {
    for ending in ["", ".gz", ".zst"] {
        let directory = directory();
        let yaml = format!("{{path: '$/%{{f}}.csv{ending}', max_open_files: 1, {CSV}}}");
        for _ in 0..2 {
            let (output, _) = output(&directory, &yaml);
            // With one open file, each is opened again and again.
            for file in ["x", "y", "x"] {
                let row = format!(r#"{{"f":"{file}","a":1}}"#);
                write(&output, &[&row]).expect("it writes");
            }
            close(&output);
        }
        for (name, rows) in [("x", 4), ("y", 2)] {
            let path = directory.path().join(format!("{name}.csv{ending}"));
            assert_eq!(content(path), format!("a\n{}", "1\n".repeat(rows)));
        }
    }
}

#[test]
fn a_file_without_content_gets_the_header_and_one_with_content_does_not() {
    let empty_archive = crate::testing::gzip(b"");
    let archive = crate::testing::gzip(b"5\n");
    for (name, before, expected) in [
        ("a.csv", b"".as_slice(), "a\n1\n"),
        ("a.csv", b"5\n", "5\n1\n"),
        ("a.csv.gz", &empty_archive, "a\n1\n"),
        ("a.csv.gz", &archive, "5\n1\n"),
        ("a.csv.zst", b"", "a\n1\n"),
    ] {
        let directory = directory();
        let path = directory.path().join(name);
        fs::write(&path, before).expect("it writes");
        let (output, _) = output(&directory, &format!("{{path: $/{name}, {CSV}}}"));
        write(&output, &[r#"{"a":1}"#]).expect("it writes");
        close(&output);
        assert_eq!(content(&path), expected, "{name} {before:?}");
    }
}

#[test]
fn rotated_files_begin_with_the_header_too() {
    let directory = directory();
    let yaml = format!("{{path: $/a.csv, rotate: {{max_bytes: 6B}}, {CSV}}}");
    let (output, _) = output(&directory, &yaml);
    for _ in 0..5 {
        write(&output, &[r#"{"a":1}"#]).expect("it writes");
    }
    close(&output);
    let names = names(&directory);
    let texts = names
        .iter()
        .map(|name| content(directory.path().join(name)));
    let texts: Vec<String> = texts.collect();
    assert_eq!(texts, ["a\n1\n1\n", "a\n1\n1\n", "a\n1\n"]);
}

#[test]
fn a_header_that_is_not_wanted_is_not_written() {
    let directory = directory();
    let yaml = "{path: $/a.csv, codec: csv, csv: {columns: [a], header: false}}";
    let (output, _) = output(&directory, yaml);
    write(&output, &[r#"{"a":1}"#]).expect("it writes");
    close(&output);
    assert_eq!(content(directory.path().join("a.csv")), "1\n");
}

#[test]
fn a_map_that_a_killed_process_left_torn_is_cut() {
    let yaml = "{path: $/a, codec: msgpack}";
    let map = |path: &Path, bytes: &[u8]| fs::write(path, bytes).expect("it writes");
    for (before, after, cut) in [
        (b"".as_slice(), b"\x81\xa1a\x01".as_slice(), 0),
        (b"\x80", b"\x80\x81\xa1a\x01", 0),
        (b"\x80\x81\xa1", b"\x80\x81\xa1a\x01", 2),
        (b"\x80\0\0\0", b"\x80\x81\xa1a\x01", 3),
    ] {
        let directory = directory();
        let path = directory.path().join("a");
        map(&path, before);
        let (output, _) = output(&directory, yaml);
        write(&output, &[r#"{"a":1}"#]).expect("it writes");
        close(&output);
        assert_eq!(fs::read(&path).expect("the file"), after, "{before:?}");
        let counters = output.take_counters();
        let counted = counters.iter().map(|(_, count)| *count).sum::<u64>();
        assert_eq!(counted, cut, "{before:?}");
    }
    // What is something else stays as it is.
    let directory = directory();
    let path = directory.path().join("a");
    map(&path, b"a letter");
    let (output, _) = output(&directory, yaml);
    let encoded = encode(&output, &documents(&["{}"]));
    let error = wait(output.write(&encoded)).expect_err("it must not be touched");
    assert!(error.to_string().contains("different format"), "{error}");
    assert_eq!(fs::read(&path).expect("the file"), b"a letter");
}
