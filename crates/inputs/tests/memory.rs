//! Memory that the input `file` takes. On its own, because the peak is that of the whole process.

mod common;

use std::fs;
use std::io::Write;

use common::{Bench, build, events};

#[test]
fn a_line_of_100_mb_takes_bounded_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut file =
        std::io::BufWriter::new(fs::File::create(folder.path().join("log")).expect("created"));
    for _ in 0..100 {
        file.write_all(&[b'x'; 1_000_000]).expect("written");
    }
    file.write_all(b"\nnext\n").expect("written");
    file.into_inner().expect("written");

    let paths = format!("paths: {:?}", folder.path().join("log"));
    let input = build("file", &paths).expect("valid settings");
    // Buffers beyond the budget are let in only alone: this would wait for ever if more than one were held.
    let bench = Bench {
        budget: 3 << 20,
        ..Bench::default()
    };
    let run = bench.run(input, events);
    let seen: Vec<_> = run.batches.iter().flatten().collect();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].message.as_ref().map(Vec::len), Some(1 << 20));
    assert_eq!(
        (seen[0].end, seen[1].start, seen[1].end),
        (100_000_001, 100_000_001, 100_000_006)
    );
    assert_eq!(seen[0].tags, "[\"_truncated\"]");
    // The program itself takes up to 20 MiB, with all that inputs are linked with.
    assert!(peak_memory() < 32 << 20, "{} bytes", peak_memory());
}

/// The most memory that this process had, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("Linux tells the peak");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<u64>().expect("a number") << 10
}
