//! What chunking and decoding cost an event or a line, best of several runs: `cargo run --release -p codec --example
//! record_speed`.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use batch::{Budget, BufferPool, Encoding, HostInfo, Stream};
use codec::{
    Chunker, ContainerFormat, Decoder, Multiline, MultilineConfig, MultilineError, Settings,
};

const LINES: usize = 400_000;
const ROUNDS: usize = 7;

/// A name, the content, and how it is written.
type Case = (&'static str, Vec<u8>, Settings);

fn main() -> Result<(), MultilineError> {
    for (name, content, settings) in cases()? {
        let pool = Budget::new(64 << 20).pool(64 << 20, 256 << 10);
        let mut best = f64::MAX;
        let mut events = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            events = read(&settings, &content, &pool);
            best = best.min(start.elapsed().as_secs_f64());
        }
        let nanos = best * 1e9 / LINES as f64;
        let bytes = content.len() / LINES;
        println!("{name:20} {nanos:6.1} ns a line of {bytes} bytes, {events} events");
    }
    Ok(())
}

fn cases() -> Result<Vec<Case>, MultilineError> {
    let text = Settings::new(Encoding::Text, 1 << 20);
    let json = Settings::new(Encoding::Json, 1 << 20);
    let container = Settings {
        container: Some(ContainerFormat::Auto),
        ..text.clone()
    };
    let config = MultilineConfig {
        pattern: Some("^[ \t]".to_owned()),
        ..MultilineConfig::default()
    };
    let multiline = Some(Arc::new(Multiline::new(&config)?));
    let with = |settings: &Settings| Settings {
        multiline: multiline.clone(),
        ..settings.clone()
    };
    let charset = |label| Settings {
        charset: codec::charset(label),
        ..text.clone()
    };
    let access: Vec<u8> = lines(access_line);
    let wide = String::from_utf8_lossy(&access)
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    Ok(vec![
        ("text", access.clone(), text.clone()),
        ("json", lines(json_line), json),
        ("multiline", lines(trace_line), with(&text)),
        ("cri", lines(|n| cri(n, &access_line(n))), container.clone()),
        (
            "cri, multiline",
            lines(|n| cri(n, &trace_line(n))),
            with(&container),
        ),
        (
            "docker",
            lines(|n| docker(&access_line(n))),
            container.clone(),
        ),
        ("latin1", access, charset("latin1")),
        ("utf-16", wide, charset("utf-16")),
    ])
}

fn lines(line: impl Fn(usize) -> String) -> Vec<u8> {
    (0..LINES).flat_map(|n| line(n).into_bytes()).collect()
}

fn access_line(n: usize) -> String {
    format!(
        "10.0.{}.{} - - [16/Oct/2026:00:17:09 +0000] \"GET /item/{n} HTTP/1.1\" 200 {} \"http://example.com/start\" \
         \"Mozilla/5.0 (X11; Linux x86_64) Firefox/115.0 and some more words that make it long\"\n",
        n % 256,
        n % 251,
        n * 7
    )
}

fn json_line(n: usize) -> String {
    format!(
        "{{\"id\":{n},\"host\":\"web-{}\",\"request\":{{\"method\":\"GET\",\"path\":\"/item/{n}\"}},\"status\":200,\
         \"agent\":\"Mozilla/5.0 (X11; Linux x86_64)\",\"bytes\":{}}}\n",
        n % 17,
        n * 3
    )
}

/// Every eighth line begins a record.
fn trace_line(n: usize) -> String {
    if n.is_multiple_of(8) {
        format!(
            "2026-10-16T00:17:09.123Z ERROR request {n} failed: java.lang.IllegalStateException\n"
        )
    } else {
        format!(
            "\tat com.example.service.Handler.handle{n}(Handler.java:{})\n",
            n % 900
        )
    }
}

fn cri(n: usize, line: &str) -> String {
    format!("2026-10-06T00:17:09.{:09}Z stdout F {line}", n * 97)
}

fn docker(line: &str) -> String {
    let text = line.trim_end().replace('"', "\\\"");
    format!(
        "{{\"log\":\"{text}\\n\",\"stream\":\"stdout\",\"time\":\"2026-10-06T00:17:09.123456789Z\"}}\n"
    )
}

fn read(settings: &Settings, content: &[u8], pool: &BufferPool) -> usize {
    let host = Arc::new(HostInfo { name: "h".into() });
    let stream = Arc::new(Stream::unnamed(1));
    let (mut chunker, mut decoder) = (Chunker::new(settings), Decoder::new(settings, &host));
    let (mut rest, mut events) = (content, 0);
    loop {
        if let Some(size) = chunker.needs() {
            chunker.give(pool.take_sized(size));
        }
        let space = chunker.space();
        let len = space.len().min(rest.len());
        space[..len].copy_from_slice(&rest[..len]);
        chunker.advance(len);
        rest = &rest[len..];
        let is_over = rest.is_empty();
        let chunk = if is_over {
            chunker.finish()
        } else if chunker.is_full() {
            chunker.take()
        } else {
            continue;
        };
        let Some(mut chunk) = chunk else {
            return events;
        };
        while let Ok(Some(batch)) = decoder.next_batch(&stream, &mut chunk, 0) {
            events += batch.len();
        }
    }
}
