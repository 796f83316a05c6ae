//! The input `stdin`, in a process of its own: this test runs itself with something on standard input.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Bench, build, events};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Holds the settings that the other process gives to the input.
const SETTINGS: &str = "MILLPOND_TEST_STDIN_SETTINGS";

/// Makes the other process stop after so many milliseconds.
const STOP_MS: &str = "MILLPOND_TEST_STDIN_STOP_MS";

/// What the other process does: reads standard input and prints each event at once.
#[test]
fn the_other_process() {
    let Ok(settings) = std::env::var(SETTINGS) else {
        return;
    };
    let bench = Bench::default();
    if let Ok(time) = std::env::var(STOP_MS) {
        let stop = bench.stop.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(time.parse().expect("a number")));
            stop.stop();
        });
    }
    let run = bench.run(
        build("stdin", &settings).expect("valid settings"),
        |batch| {
            for seen in events(batch) {
                let text = seen
                    .message
                    .map_or(seen.json, |text| String::from_utf8(text).expect("UTF-8"));
                println!("event {text}{}", seen.tags);
            }
        },
    );
    for problem in run
        .result
        .err()
        .into_iter()
        .flat_map(|error| error.problems)
    {
        println!("problem {problem}");
    }
    println!("total {}", run.progress.get().1);
}

/// Starts the other process.
fn start(settings: &str, stop_ms: Option<u64>, stdin: Stdio) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(SETTINGS, settings);
    if let Some(time) = stop_ms {
        command.env(STOP_MS, time.to_string());
    }
    command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

/// What the other process prints, as it comes.
fn printed(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1024);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let ours = ["event ", "problem ", "total "]
                .iter()
                .any(|start| line.starts_with(start));
            if ours && sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Everything that the other process prints for this content of standard input.
fn read(settings: &str, content: &[u8]) -> Vec<String> {
    let mut child = start(settings, None, Stdio::piped());
    let mut stdin = child.stdin.take().expect("a pipe");
    let content = content.to_vec();
    let writer = thread::spawn(move || stdin.write_all(&content));
    let lines = printed(child.stdout.take().expect("a pipe"))
        .into_iter()
        .collect();
    writer.join().expect("no panic").expect("all was read");
    assert!(child.wait().expect("it ends").success());
    lines
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}

#[test]
fn everything_up_to_the_end() {
    let long = format!("{}\n", "x".repeat(300_000)).repeat(5);
    let packed = gzip(b"a\nb");
    let zstd = b"\x28\xB5\x2F\xFD\x04\x58\x19\0\0a\nb\x8E\x4E\x6C\x77";
    let cases: [(&str, &[u8], &[&str]); 10] = [
        ("", b"", &[]),
        ("", b"a\n\nb", &["event a", "event ", "event b"]),
        ("", b"\x1f", &["event \u{1f}"]),
        ("", b"(\n", &["event ("]),
        ("", &packed, &["event a", "event b"]),
        ("", zstd, &["event a", "event b"]),
        ("compression: zstd", zstd, &["event a", "event b"]),
        (
            "codec: json",
            b"{\"a\":1}\n\n{\n",
            &["event {\"a\":1}", "event {[\"_jsonparsefailure\"]"],
        ),
        (
            "codec: msgpack",
            b"\x80\x81\xA1a\x01",
            &["event {}", "event {\"a\":1}"],
        ),
        (
            "max_line_bytes: 3",
            long.as_bytes(),
            &["event xxx[\"_truncated\"]"; 5],
        ),
    ];
    for (settings, content, expected) in cases {
        let mut printed = read(settings, content);
        assert_eq!(
            printed.pop().as_deref(),
            Some("total 0"),
            "the size of a pipe is not known"
        );
        assert_eq!(printed, expected, "{settings}");
    }
    let half = &packed[..packed.len() - 9];
    let told = format!(
        "problem standard input: the gzip data is truncated at compressed byte {}",
        half.len()
    );
    assert!(read("", half).contains(&told));
    let told = "problem standard input: corrupt zstd data at compressed byte 0: not a zstd frame";
    assert!(read("compression: zstd", b"plain\n").contains(&told.to_owned()));
}

#[test]
fn a_file_as_standard_input() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"a\nb\n").expect("written");
    std::io::Seek::rewind(&mut file).expect("rewound");
    let mut child = start("", None, file.into());
    let lines: Vec<String> = printed(child.stdout.take().expect("a pipe"))
        .into_iter()
        .collect();
    assert_eq!(lines, ["event a", "event b", "total 4"]);
    child.wait().expect("it ends");
}

#[test]
fn what_comes_slowly_is_sent_soon() {
    let mut child = start("", None, Stdio::piped());
    let mut stdin = child.stdin.take().expect("a pipe");
    let printed = printed(child.stdout.take().expect("a pipe"));
    let next = || {
        printed
            .recv_timeout(Duration::from_secs(20))
            .expect("it comes while the pipe is open")
    };
    stdin.write_all(b"one\ntwo\nunfin").expect("written");
    assert_eq!([next(), next()], ["event one", "event two"]);
    stdin.write_all(b"ished\n").expect("written");
    assert_eq!(next(), "event unfinished");
    drop(stdin);
    assert_eq!(next(), "total 0");
    child.wait().expect("it ends");
}

#[test]
fn what_was_compressed_is_sent_before_more_comes() {
    let mut child = start("", None, Stdio::piped());
    let printed = printed(child.stdout.take().expect("a pipe"));
    let stdin = child.stdin.take().expect("a pipe");
    let mut encoder = GzEncoder::new(stdin, Compression::best());
    // Far more than a buffer takes, from a few KiB that are read at once.
    let line = "x".repeat(50_000);
    encoder
        .write_all(format!("{line}\n").repeat(40).as_bytes())
        .expect("written");
    encoder.flush().expect("written");
    for _ in 0..40 {
        let printed = printed.recv_timeout(Duration::from_secs(20));
        let printed = printed.expect("it comes while the pipe is open");
        assert!(printed == format!("event {line}"), "{}", printed.len());
    }
    drop(encoder.finish().expect("written"));
    assert_eq!(printed.recv().as_deref(), Ok("total 0"));
    child.wait().expect("it ends");
}

#[test]
fn stopping_needs_no_further_input() {
    let mut child = start("", Some(100), Stdio::piped());
    let stdin = child.stdin.take().expect("a pipe");
    let start = Instant::now();
    let lines: Vec<String> = printed(child.stdout.take().expect("a pipe"))
        .into_iter()
        .collect();
    assert_eq!(lines, ["total 0"]);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "the pipe is still open"
    );
    drop(stdin);
    child.wait().expect("it ends");
}
