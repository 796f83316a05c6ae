//! What a row costs: `cargo run --release -p expr --example speed`.
//!
//! Every condition runs over the same batch again and again, its columns already extracted, and the best round counts.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use batch::{Batch, BatchBuilder, Bitmap, Encoding, HostInfo, Span, Stream};
use bytes::Bytes;
use expr::Expr;

const ROWS: usize = 4096;
const ROUNDS: usize = 200;

const EXPRESSIONS: [&str; 15] = [
    "event_type == \"alert\"",
    "event_type != \"alert\"",
    "has(alert)",
    "event_type in [\"alert\", \"dns\", \"http\"]",
    "status >= 500",
    "text_status >= 500",
    "http.hostname == \"www.example.com\"",
    "agent.contains(\"curl\")",
    "agent.startsWith(\"Mozilla\")",
    "agent.matches(\"curl/[0-9]\")",
    "event_type == \"alert\" && status >= 500",
    "event_type == \"alert\" || status >= 500",
    "!(event_type == \"alert\")",
    "agent.lowerAscii() == \"curl/8.5.0\"",
    "status / 100 == 5",
];

fn main() {
    let batch = sample();
    let rows = Bitmap::all(ROWS);
    for text in EXPRESSIONS {
        let expr = Expr::parse(text).expect("the examples are valid");
        let first = expr.filter(&batch, &rows);
        let best = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                black_box(expr.filter(black_box(&batch), black_box(&rows)));
                start.elapsed().as_nanos()
            })
            .min()
            .unwrap_or(0);
        let row = best as f64 / ROWS as f64;
        println!(
            "{row:6.2} ns a row, {:4} of {ROWS} rows: {text}",
            first.holds.count()
        );
    }
}

/// Events as Suricata writes them, in one buffer.
fn sample() -> Batch {
    let host = Arc::new(HostInfo {
        name: "bench".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let kinds = ["flow", "dns", "http", "alert", "tls", "fileinfo", "stats"];
    let agents = [
        "curl/8.5.0",
        "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
    ];
    let mut text = String::new();
    let mut ends = Vec::new();
    // A multiplicative generator mixes the rows, so that no branch predictor learns their order.
    let mut state = 7u64;
    for _ in 0..ROWS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let pick = (state >> 33) as usize;
        let (kind, agent, status) = (
            kinds[pick % 7],
            agents[pick / 7 % 2],
            200 + pick / 14 % 4 * 101,
        );
        let alert = if kind == "alert" {
            r#","alert":{"severity":1}"#
        } else {
            ""
        };
        text.push_str(&format!(
            r#"{{"event_type":"{kind}","http":{{"hostname":"www.example.com"}},"agent":"{agent}","status":{status},"text_status":"{status}"{alert}}}"#
        ));
        ends.push(text.len());
    }
    let buffer = builder.buffer(Bytes::from(text));
    let mut start = 0;
    for end in ends {
        builder.push(
            Span {
                buffer,
                start: start as u32,
                len: (end - start) as u32,
            },
            start as u64,
            end as u64,
        );
        start = end;
    }
    builder.finish()
}
