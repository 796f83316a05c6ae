//! Times reading syslog messages from a batch of lines.
//!
//! `cargo run --release -p codec --example syslog_speed`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use bytes::Bytes;
use codec::syslog::{Format, Syslog};
use datetime::Zone;

const ROWS: usize = 4096;
const ROUNDS: usize = 300;
/// 2003-10-12T00:00:00Z.
const RECEIVED: i64 = 1_065_916_800_000_000_000;

/// Makes the line of a row.
type Shape = fn(usize) -> String;

const SHAPES: [(&str, Shape); 5] = [
    ("rfc5424", |row| {
        format!(
            "<{}>1 2003-10-11T22:14:{:02}.{:03}Z web-{} sshd {} - - Accepted publickey for root",
            row % 192,
            row / 100 % 60,
            row % 1000,
            row % 7,
            1000 + row % 999,
        )
    }),
    ("data", |row| {
        format!(
            "<165>1 2003-10-11T22:14:{:02}.003Z web evntslog - ID47 [exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"{row}\"] An application event log entry",
            row / 100 % 60,
        )
    }),
    ("rfc3164", |row| {
        format!(
            "<{}>Oct 11 22:14:{:02} web-{} sshd[{}]: Accepted publickey for root",
            row % 192,
            row / 100 % 60,
            row % 7,
            1000 + row % 999,
        )
    }),
    ("file", |row| {
        format!(
            "Oct 11 22:{:02}:{:02} web-{} sshd[{}]: Accepted publickey for root",
            row / 600 % 60,
            row / 10 % 60,
            row % 7,
            1000 + row % 999,
        )
    }),
    ("none", |row| format!("line {row} is no syslog message")),
];

fn lines(lines: &[String]) -> Batch {
    let host = Arc::new(HostInfo {
        name: "host".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, RECEIVED, false);
    builder.stream(&Arc::new(Stream::file(1, "/var/log/syslog")));
    let buffer = builder.buffer(Bytes::from(lines.concat()));
    let mut start = 0;
    for line in lines {
        let len = line.len() as u32;
        builder.push(
            Span { buffer, start, len },
            start.into(),
            (start + len).into(),
        );
        start += len;
    }
    builder.finish()
}

fn main() {
    for zone in ["UTC", "Europe/Berlin"] {
        let syslog = Syslog::new(
            Format::Auto,
            Zone::named(zone).expect("the zone exists everywhere"),
        );
        for (name, shape) in SHAPES {
            let texts: Vec<String> = (0..ROWS).map(shape).collect();
            let mut best = Duration::MAX;
            for _ in 0..ROUNDS {
                let mut batch = lines(&texts);
                let start = Instant::now();
                black_box(syslog.apply(&mut batch));
                best = best.min(start.elapsed());
            }
            let nanos = best.as_nanos() as f64 / ROWS as f64;
            println!(
                "{zone:13} {name:8} {:4} bytes: {nanos:6.1} ns/line, {:5.2} M lines/s",
                texts[0].len(),
                1000.0 / nanos
            );
        }
    }
}
