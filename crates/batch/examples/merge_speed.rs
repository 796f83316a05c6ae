//! Times laying JSON objects over whole events, as the `json` processor does with lines of text.
//!
//! `cargo run --release -p batch --example merge_speed`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{
    Batch, BatchBuilder, Cell, Column, ColumnBuilder, Edit, Encoding, FieldPath, HostInfo, Span,
    Stream, json,
};
use bytes::Bytes;

const ROWS: usize = 2048;
const ROUNDS: usize = 200;

/// Makes the object of a row.
type Shape = fn(usize) -> String;

const SHAPES: [(&str, Shape); 3] = [("flat", flat), ("nested", nested), ("logger", logger)];

/// The objects of a flat access log, some 180 bytes each.
fn flat(row: usize) -> String {
    format!(
        r#"{{"time":"2024-02-29T10:00:{:02}Z","client":"10.0.{}.{}","verb":"GET","path":"/cart/{row}","status":{},"bytes":{},"took":0.0{},"agent":"curl/8.5.0","referrer":"https://example.net/"}}"#,
        row % 60,
        row % 256,
        row % 251,
        200 + row % 3,
        row * 37,
        row % 97,
    )
}

/// Nested objects of an intrusion detection system, some 480 bytes each.
fn nested(row: usize) -> String {
    format!(
        r#"{{"timestamp":"2024-02-29T10:00:{:02}.123456+0000","flow_id":{},"in_iface":"eth0","event_type":"alert","src_ip":"10.0.{}.{}","src_port":{},"dest_ip":"192.168.1.1","dest_port":443,"proto":"TCP","alert":{{"action":"allowed","gid":1,"signature_id":{},"rev":3,"signature":"ET POLICY curl User-Agent Outbound","category":"Misc activity","severity":3}},"http":{{"hostname":"www.example.net","url":"/index.php?id={row}","status":200,"length":{}}},"tx_id":{}}}"#,
        row % 60,
        row * 7_919,
        row % 256,
        row % 251,
        row % 65_536,
        2_000_000 + row,
        row * 31,
        row % 5,
    )
}

/// What an event of a logger that writes ECS looks like: it names fields that every event of text has.
fn logger(row: usize) -> String {
    format!(
        r#"{{"@timestamp":"2024-02-29T10:00:{:02}Z","log":{{"level":"INFO","logger":"org.example.Cart"}},"message":"item {row} was put into the cart","service":{{"name":"cart"}},"process":{{"thread":{{"name":"main"}}}}}}"#,
        row % 60,
    )
}

/// Lines of text read from a file.
fn lines(lines: &[String]) -> (Batch, Column) {
    let host = Arc::new(HostInfo {
        name: "host".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 0, false);
    builder.stream(&Arc::new(Stream::file(1, "/var/log/app.log")));
    let buffer = builder.buffer(Bytes::from(lines.concat()));
    let mut cells = Vec::new();
    let mut start = 0;
    for line in lines {
        let len = line.len() as u32;
        let span = Span { buffer, start, len };
        builder.push(span, start.into(), (start + len).into());
        cells.push(Cell::Json(span));
        start += len;
    }
    let batch = builder.finish();
    let text = batch.column(&FieldPath::from_keys(["message"]));
    let mut objects = ColumnBuilder::over(lines.len(), text.buffers().clone());
    for (row, cell) in cells.into_iter().enumerate() {
        objects.set(row, cell);
    }
    (batch, objects.finish())
}

/// The fastest of several rounds, in nanoseconds a row; only `work` is timed.
fn fastest<T>(mut prepare: impl FnMut() -> T, mut work: impl FnMut(T) -> T) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let given = prepare();
        let start = Instant::now();
        let kept = black_box(work(given));
        best = best.min(start.elapsed());
        drop(kept);
    }
    best.as_nanos() as f64 / ROWS as f64
}

fn main() {
    for (name, shape) in SHAPES {
        let texts: Vec<String> = (0..ROWS).map(shape).collect();
        let validate = fastest(
            || (),
            |()| {
                for text in &texts {
                    black_box(json::validate_object(text.as_bytes()).is_ok());
                }
            },
        );
        let merge = |remove: bool| {
            fastest(
                || lines(&texts),
                |(mut batch, objects)| {
                    let mut edit = Edit::new();
                    if remove {
                        edit.remove(FieldPath::from_keys(["message"]), batch.alive());
                    }
                    edit.merge(None, objects.clone(), false);
                    assert!(batch.apply(edit).is_empty());
                    (batch, objects)
                },
            )
        };
        println!(
            "{name:8} {:4} bytes: validate {validate:6.1}, merge {:6.1}, message removed and merge {:6.1} ns/event",
            texts[0].len(),
            merge(false),
            merge(true),
        );
    }
}
