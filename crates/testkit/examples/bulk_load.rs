//! Writes documents as agents do: `bulk_load ADDRESS DOCUMENTS CONNECTIONS BATCH [gzip] [ids] [FORM]`, or `bulk_load file DOCUMENTS`,
//! which prints them as lines. FORM is `bulk` by default, for `elasticsearch`; `http` posts documents as lines; `hec` puts them into
//! envelopes, `hec-lines` as text into such; `loki` and `loki-protobuf` push them as lines of a stream.
//!
//! A document has about 700 bytes. Requests hold BATCH of them each and are made before anything is sent, so that little time is
//! spent here. Each connection sends one request after the other. At the end it says how many documents were taken.

use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        arguments
            .get(at)
            .and_then(|text| text.parse::<usize>().ok())
    };
    let (Some(target), Some(documents)) = (arguments.first(), number(1)) else {
        return ExitCode::from(2);
    };
    if target == "file" {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = (0..documents).try_for_each(|n| out.write_all(document(n).as_bytes()));
        return match written.and_then(|()| out.flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let (Some(connections), Some(batch)) = (number(2), number(3)) else {
        return ExitCode::from(2);
    };
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let forms = [
        Form::Http,
        Form::Hec,
        Form::HecLines,
        Form::Loki,
        Form::LokiProtobuf,
    ];
    let form = forms.into_iter().find(|form| has(form.name()));
    let form = form.unwrap_or(Form::Bulk {
        has_ids: has("ids"),
    });
    let request: Arc<[u8]> = form.request(batch, has("gzip")).into();
    let requests = documents.div_ceil(batch * connections);
    let threads: Vec<_> = (0..connections)
        .map(|_| {
            let (request, target) = (request.clone(), target.clone());
            // Thousands of them need little room each.
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || send(&target, &request, requests))
        })
        .collect();
    let mut taken = 0;
    for thread in threads {
        match thread.map(thread::JoinHandle::join) {
            Ok(Ok(Ok(count))) => taken += count * batch,
            failed => {
                let _ = writeln!(std::io::stderr(), "a connection failed: {failed:?}");
                return ExitCode::FAILURE;
            }
        }
    }
    let _ = writeln!(std::io::stdout(), "{taken}");
    ExitCode::SUCCESS
}

/// Sends so many requests over one connection; gives how many were taken as a whole.
fn send(target: &str, request: &[u8], requests: usize) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(target)?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::new();
    for _ in 0..requests {
        stream.write_all(request)?;
        read_answer(&mut stream, &mut answer)?;
        let has_errors = answer.ends_with(b"}") && !answer.ends_with(b"{\"errors\":false}");
        let is_taken = answer.ends_with(b"{\"text\":\"Success\",\"code\":0}");
        if !answer.starts_with(b"HTTP/1.1 20") || has_errors && !is_taken {
            let text = String::from_utf8_lossy(&answer).into_owned();
            return Err(std::io::Error::other(text));
        }
    }
    Ok(requests)
}

/// Reads an answer to the end of its body.
fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> std::io::Result<()> {
    answer.clear();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if length.is_none_or(|length: usize| body.len() >= length) || head.contains(" 204 ") {
            return Ok(());
        }
    }
}

/// How documents are sent.
#[derive(Clone, Copy)]
enum Form {
    Bulk { has_ids: bool },
    Http,
    Hec,
    HecLines,
    Loki,
    LokiProtobuf,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Bulk { .. } => "bulk",
            Self::Http => "http",
            Self::Hec => "hec",
            Self::HecLines => "hec-lines",
            Self::Loki => "loki",
            Self::LokiProtobuf => "loki-protobuf",
        }
    }

    /// Where documents are sent to, and their type.
    fn target(self) -> (&'static str, &'static str) {
        let (ndjson, json) = ("application/x-ndjson", "application/json");
        match self {
            Self::Bulk { .. } => (
                "/logs-bench-default/_bulk?filter_path=errors,items.*.error",
                ndjson,
            ),
            Self::Http => ("/", ndjson),
            Self::Hec | Self::HecLines => ("/services/collector/event", json),
            Self::Loki => ("/loki/api/v1/push", json),
            Self::LokiProtobuf => ("/loki/api/v1/push", "application/x-protobuf"),
        }
    }

    fn body(self, batch: usize) -> Vec<u8> {
        let quoted = |n: usize| {
            let text = document(n).trim_end().replace('\\', "\\\\");
            format!("\"{}\"", text.replace('"', "\\\""))
        };
        let time = |n: usize| 1_767_323_045_000_000_000 + n as u64;
        let documents = 0..batch;
        match self {
            Self::Bulk { has_ids: true } => documents
                .map(|n| {
                    let document = document(n);
                    format!("{{\"create\":{{\"_id\":\"document-{n:08}\"}}}}\n{document}")
                })
                .collect(),
            Self::Bulk { .. } => documents
                .map(|n| format!("{{\"create\":{{}}}}\n{}", document(n)))
                .collect(),
            Self::Http => documents.map(document).collect(),
            Self::Hec => documents
                .map(|n| {
                    format!(
                        "{{\"time\":1767323045.{:03},\"event\":{}}}",
                        n % 1000,
                        document(n).trim_end()
                    )
                })
                .collect(),
            Self::HecLines => documents
                .map(|n| {
                    format!(
                        "{{\"time\":1767323045.{:03},\"event\":{}}}",
                        n % 1000,
                        quoted(n)
                    )
                })
                .collect(),
            Self::Loki => {
                let values = documents.map(|n| format!("[\"{}\",{}]", time(n), quoted(n)));
                let values: Vec<String> = values.collect();
                let stream = "{\"job\":\"nginx\",\"env\":\"prod\"}";
                let values = values.join(",");
                format!("{{\"streams\":[{{\"stream\":{stream},\"values\":[{values}]}}]}}")
            }
            Self::LokiProtobuf => return pushed(documents.map(|n| (time(n), document(n)))),
        }
        .into_bytes()
    }

    fn request(self, batch: usize, is_gzip: bool) -> Vec<u8> {
        let mut body = self.body(batch);
        let mut coding = "";
        if is_gzip {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
            let written = encoder.write_all(&body);
            body = written.and_then(|()| encoder.finish()).unwrap_or_default();
            coding = "Content-Encoding: gzip\r\n";
        }
        let ((path, media), length) = (self.target(), body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {media}\r\n{coding}Content-Length: {length}\r\n\r\n"
        );
        [head.into_bytes(), body].concat()
    }
}

/// A push request of one stream in protobuf, compressed with snappy.
fn pushed(entries: impl Iterator<Item = (u64, String)>) -> Vec<u8> {
    let mut stream = field(1, b"{job=\"nginx\", env=\"prod\"}");
    for (nanos, line) in entries {
        let mut time = vec![1 << 3];
        varint(nanos / 1_000_000_000, &mut time);
        time.push(2 << 3);
        varint(nanos % 1_000_000_000, &mut time);
        let entry = [field(1, &time), field(2, line.trim_end().as_bytes())].concat();
        stream.extend(field(2, &entry));
    }
    let compressed = snap::raw::Encoder::new().compress_vec(&field(1, &stream));
    compressed.unwrap_or_default()
}

fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A line of an access log as Filebeat sends it, with its end.
fn document(n: usize) -> String {
    let mut hash = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    let (a, b, c) = (hash & 255, hash >> 8 & 255, hash >> 16 & 4095);
    format!(
        "{{\"@timestamp\":\"2026-01-02T03:04:{:02}.{:03}Z\",\"agent\":{{\"id\":\"5c9c9a33-93d5-4b8c-8c5a-000000000001\",\"name\":\"web-{a}\",\
         \"type\":\"filebeat\",\"version\":\"9.2.0\"}},\"ecs\":{{\"version\":\"8.0.0\"}},\"event\":{{\"dataset\":\"nginx.access\",\"module\":\"nginx\"}},\
         \"host\":{{\"name\":\"web-{a}\",\"architecture\":\"x86_64\"}},\"input\":{{\"type\":\"filestream\"}},\"log\":{{\"file\":{{\"path\":\"/var/log/nginx/access.log\",\
         \"inode\":\"{hash}\"}},\"offset\":{}}},\"message\":\"10.{a}.{b}.7 - - [02/Jan/2026:03:04:05 +0000] \\\"GET /products/{c}/reviews?page={b} HTTP/1.1\\\" \
         200 {} \\\"https://shop.example/products/{c}\\\" \\\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\\\"\",\"service\":{{\"type\":\"nginx\"}}}}\n",
        n % 60,
        n % 1000,
        n * 213,
        c * 17,
    )
}
