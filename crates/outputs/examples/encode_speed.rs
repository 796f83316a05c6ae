//! Times the rendering of Apache-like events with about 20 fields as JSON lines, as outputs do it.
//!
//! `cargo run --release -p outputs --example encode_speed`
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, Column, Edit, Encoding, FieldPath, HostInfo, JsonWriter,
    Span, Stream,
};

const ROWS: usize = 3000;
const ROUNDS: usize = 400;

/// The parts of a line, and the fields that they are.
const PARTS: [(&str, &str, &str); 9] = [
    ("clientip", "203.0.113.77", " "),
    ("ident", "-", " "),
    ("auth", "frank", " ["),
    ("timestamp", "29/Feb/2024:12:34:56 +0000", "] \""),
    ("verb", "GET", " "),
    (
        "request",
        "/presentations/logstash-monitorama-2013/images/kibana-search.png",
        " HTTP/",
    ),
    ("httpversion", "1.1", "\" "),
    ("response", "200", " "),
    ("bytes", "203023", " "),
];
const TAIL: &str = "\"http://example.com/presentations/\" \"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36\"";

fn lines(fields: &mut Vec<(FieldPath, Vec<Span>)>) -> (String, Vec<Span>) {
    let mut text = String::new();
    let mut lines = Vec::new();
    let span = |start: usize, end: usize| Span {
        buffer: 0,
        start: start as u32,
        len: (end - start) as u32,
    };
    for (name, _, _) in PARTS {
        fields.push((FieldPath::from_keys([name]), Vec::new()));
    }
    fields.push((FieldPath::from_keys(["referrer"]), Vec::new()));
    fields.push((FieldPath::from_keys(["agent"]), Vec::new()));
    for _ in 0..ROWS {
        let begin = text.len();
        for (index, (_, part, after)) in PARTS.iter().enumerate() {
            let start = text.len();
            text.push_str(part);
            fields[index].1.push(span(start, text.len()));
            text.push_str(after);
        }
        let start = text.len();
        text.push_str(TAIL);
        let middle = start + TAIL.find("\" \"").expect("two quoted parts");
        fields[PARTS.len()].1.push(span(start, middle + 1));
        fields[PARTS.len() + 1]
            .1
            .push(span(middle + 3, text.len() - 1));
        lines.push(span(begin, text.len()));
    }
    (text, lines)
}

fn batch(nested: bool) -> (Batch, usize) {
    let host = Arc::new(HostInfo {
        name: "host.example".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, 1_709_210_096_000_000_000, false);
    builder.stream(&Arc::new(Stream::file(1, "/var/log/apache2/access.log")));
    let mut fields = Vec::new();
    let (text, lines) = lines(&mut fields);
    let line = lines[0].len as usize;
    let buffer = bytes::Bytes::from(text);
    builder.buffer(buffer.clone());
    for span in &lines {
        builder.push(
            *span,
            u64::from(span.start),
            u64::from(span.start + span.len) + 1,
        );
    }
    let mut batch = builder.finish();
    let buffers: Arc<[bytes::Bytes]> = [buffer].into();
    let mut edit = Edit::new();
    for (path, spans) in fields {
        edit.set(
            path,
            Column::new(spans.into_iter().map(Cell::Text).collect(), buffers.clone()),
        );
    }
    let times =
        (0..ROWS as i64).map(|row| Cell::Time(1_709_210_096_000_000_000 + row * 1_000_000_000));
    edit.set(
        FieldPath::from_keys(["@timestamp"]),
        Column::new(times.collect(), Arc::new([])),
    );
    if nested {
        let names: Arc<[bytes::Bytes]> = ["Mac OS X Chrome Amsterdam Netherlands NL".into()].into();
        let word = |start, len| {
            move |_: usize| {
                Cell::Text(Span {
                    buffer: 0,
                    start,
                    len,
                })
            }
        };
        let words = [
            ("ua.os.name", 0, 8),
            ("ua.name", 9, 6),
            ("geo.city_name", 16, 9),
            ("geo.country_name", 26, 11),
            ("geo.iso", 38, 2),
        ];
        for (path, start, len) in words {
            let cells = (0..ROWS).map(word(start, len)).collect();
            edit.set(
                FieldPath::parse(path).expect("a path"),
                Column::new(cells, names.clone()),
            );
        }
        for (path, number) in [("geo.location.lat", 52.374), ("geo.location.lon", 4.8897)] {
            // Most addresses are known, some are not.
            let cells = (0..ROWS).map(|row| {
                if row % 8 == 0 {
                    Cell::Keep
                } else {
                    Cell::Float(number)
                }
            });
            edit.set(
                FieldPath::parse(path).expect("a path"),
                Column::new(cells.collect(), Arc::new([])),
            );
        }
    }
    assert!(batch.apply(edit).is_empty());
    (batch, line)
}

fn main() {
    for nested in [false, true] {
        let (batch, line) = batch(nested);
        let rows = Bitmap::all(ROWS);
        let mut out = Vec::new();
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            out.clear();
            let begin = Instant::now();
            let writer = JsonWriter::new(&batch);
            for row in rows.iter() {
                writer.write(row, &mut out);
                out.push(b'\n');
            }
            best = best.min(begin.elapsed().as_nanos() as f64 / ROWS as f64);
            black_box(&out);
        }
        let end = out.iter().position(|&byte| byte == b'\n').expect("a line");
        println!(
            "{}\nnested {nested}: {line} B a line, {} B a document, {best:.0} ns an event",
            String::from_utf8_lossy(&out[..end]),
            out.len() / ROWS
        );
    }
}
