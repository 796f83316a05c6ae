//! Times freezing and thawing batches, as a queue on disk does.
//!
//! `cargo run --release -p batch --example wire_speed`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use bytes::Bytes;

const ROWS: usize = 3_400;

fn batch(line: impl Fn(usize) -> String, encoding: Encoding) -> Batch {
    let host = Arc::new(HostInfo {
        name: "host-1".into(),
    });
    let stream = Arc::new(Stream::file(7, "/var/log/access.log"));
    let mut builder = BatchBuilder::new(encoding, &host, 1_709_210_096_000_000_000, false);
    builder.stream(&stream);
    let (mut text, mut spans) = (Vec::new(), Vec::new());
    for row in 0..ROWS {
        let start = text.len() as u32;
        text.extend_from_slice(line(row).as_bytes());
        spans.push((start, text.len() as u32 - start));
        text.push(b'\n');
    }
    let buffer = builder.buffer(text.into());
    for (start, len) in spans {
        let end = u64::from(start + len) + 1;
        builder.push(Span { buffer, start, len }, u64::from(start), end);
    }
    builder.finish()
}

/// Nanoseconds a row, the median of many turns.
fn time<T>(mut turn: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..400)
        .map(|_| {
            let start = Instant::now();
            black_box(turn());
            start.elapsed().as_secs_f64() * 1e9 / ROWS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let filler = |row: usize, len: usize| "abcdefghij ".repeat(40)[..len + row % 9].to_owned();
    let cases: [(&str, Batch); 4] = [
        ("text", batch(|row| filler(row, 236), Encoding::Text)),
        (
            "text, not ASCII",
            batch(|row| format!("é{}", filler(row, 234)), Encoding::Text),
        ),
        ("short text", batch(|row| filler(row, 20), Encoding::Text)),
        (
            "JSON",
            batch(
                |row| format!("{{\"n\":{row},\"text\":\"{}\"}}", filler(row, 214)),
                Encoding::Json,
            ),
        ),
    ];
    for (name, batch) in cases {
        let frozen = batch.freeze();
        let mut payload = frozen.head.clone();
        frozen
            .documents
            .iter()
            .for_each(|part| payload.extend_from_slice(part));
        let payload = Bytes::from(payload);
        let freeze = time(|| batch.freeze());
        let thaw = time(|| Batch::thaw(payload.clone()).is_ok());
        // Payloads that no cache holds.
        let payloads: Vec<Bytes> = (0..150).map(|_| Bytes::copy_from_slice(&payload)).collect();
        let mut turns = payloads.iter().cycle();
        let cold = time(|| {
            turns
                .next()
                .map(|payload| Batch::thaw(payload.clone()).is_ok())
        });
        let head = frozen.head.len() as f64 / ROWS as f64;
        println!(
            "{name:<16} freeze {freeze:6.2} ns, thaw {thaw:6.2} ns, from memory {cold:6.2} ns an event; head {head:.2} bytes an event"
        );
    }
}
