//! A load of the Forward protocol.
//!
//! - `forward_load records COUNT` prints MessagePack records of about 700 bytes, as Fluent Bit sends them from containers.
//! - `forward_load convert FILE` prints the lines of FILE, which are JSON documents, as such records.
//! - `forward_load send ADDRESS FILE EVENTS MODE [CONNECTIONS [SIZE]]` sends the records of FILE again and again until EVENTS of
//!   them were sent, SIZE (2048) in a message, over CONNECTIONS (1). MODE is `packed`, `gzip`, `zstd`, `forward` or `message`.
//!
//! Messages are made before the first one is sent. Every connection keeps two of them unacknowledged; in the mode `message`,
//! two times SIZE, of which the last one asks for an acknowledgement. Prints how many events were acknowledged.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use batch::msgpack::{
    from_json, value_len, write_array_header, write_bin, write_ext, write_map_header, write_str,
};
use flate2::Compression;
use flate2::write::GzEncoder;

/// How many different messages are made at most.
const MESSAGES_MAX: usize = 16;

/// How many messages a connection sends before it waits for the first one.
const IN_FLIGHT: usize = 2;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["records", count] => count.parse().map_err(Failure::from).and_then(records),
        ["convert", file] => convert(file),
        ["send", address, file, events, mode, rest @ ..] => load(address, file, events, mode, rest),
        _ => Err("see the head of this program for its arguments".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "forward_load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn records(count: u64) -> Result<(), Failure> {
    let mut out = Vec::new();
    (0..count).for_each(|number| from_json(record(number).as_bytes(), &mut out));
    Ok(std::io::stdout().write_all(&out)?)
}

fn convert(file: &str) -> Result<(), Failure> {
    let mut out = Vec::new();
    for line in fs::read_to_string(file)?.lines() {
        batch::json::validate(line.as_bytes())?;
        from_json(line.as_bytes(), &mut out);
    }
    Ok(std::io::stdout().write_all(&out)?)
}

/// A line of a container's log with what Fluent Bit's filter `kubernetes` adds.
fn record(number: u64) -> String {
    let mut hash = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    let (a, b, c) = (hash & 15, hash >> 8 & 255, hash >> 16 & 4095);
    let level = ["info", "info", "warn", "error"][(hash >> 40 & 3) as usize];
    format!(
        r#"{{"log":"{level} http.server request finished method=GET path=/products/{c}/reviews?page={b} status={} bytes={} user=u{hash:x}","stream":"stdout","level":"{level}","status":{},"duration_ms":{}.{},"kubernetes":{{"pod_name":"shop-web-6c9fd5d4b8-{a:04x}","namespace_name":"shop","pod_id":"5c9c9a33-93d5-4b8c-8c5a-{a:012x}","labels":{{"app":"shop-web","pod-template-hash":"6c9fd5d4b8","tier":"frontend"}},"host":"node-{a}.example","container_name":"web","docker_id":"{a:032x}{a:032x}","container_hash":"registry.example/shop/web@sha256:9f2c","container_image":"registry.example/shop/web:2026.11.3","annotations":{{"checksum/config":"4f2a9c0e{b:08x}","prometheus.io/scrape":"true"}}}},"cluster":"production-1"}}"#,
        200 + a,
        c * 17,
        200 + a,
        b,
        c,
    )
}

fn load(address: &str, file: &str, events: &str, mode: &str, rest: &[&str]) -> Result<(), Failure> {
    let number = |place: usize, otherwise: usize| -> Result<usize, Failure> {
        Ok(rest.get(place).map_or(Ok(otherwise), |text| text.parse())?)
    };
    let (connections, size) = (number(0, 1)?, number(1, 2048)?);
    let data = fs::read(file)?;
    let messages: Arc<[Vec<u8>]> = messages(&data, mode, size)?.into();
    let each = events.parse::<usize>()?.div_ceil(size * connections);
    let threads: Vec<_> = (0..connections)
        .map(|number| {
            let (messages, address) = (messages.clone(), address.to_owned());
            // Thousands of them need little room each.
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || send(&address, &messages, number, each))
        })
        .collect();
    for thread in threads {
        thread?.join().map_err(|_| "a connection panicked")??;
    }
    writeln!(std::io::stdout(), "{}", each * size * connections)?;
    Ok(())
}

/// Sends so many messages over one connection.
fn send(address: &str, messages: &[Vec<u8>], from: usize, count: usize) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    let mut in_flight = 0;
    for message in messages.iter().cycle().skip(from).take(count) {
        stream.write_all(message)?;
        in_flight += 1;
        if in_flight == IN_FLIGHT {
            acknowledged(&mut stream, &mut received)?;
            in_flight -= 1;
        }
    }
    (0..in_flight).try_for_each(|_| acknowledged(&mut stream, &mut received))
}

/// Waits for an acknowledgement.
fn acknowledged(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<(), Failure> {
    let mut piece = [0; 256];
    loop {
        if let Ok(len) = value_len(received, 0) {
            received.drain(..len);
            return Ok(());
        }
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err("the connection was closed without an acknowledgement".into());
        }
        received.extend_from_slice(&piece[..read]);
    }
}

/// Messages of `size` records each, with different records as far as there are enough.
fn messages(data: &[u8], mode: &str, size: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let len = value_len(data, at)?;
        records.push(&data[at..at + len]);
        at += len;
    }
    if records.is_empty() || size == 0 {
        return Err("there are no records to send".into());
    }
    let count = (records.len() / size).clamp(1, MESSAGES_MAX);
    let mut records = records.into_iter().cycle();
    (0..count)
        .map(|_| message(mode, records.by_ref().take(size)))
        .collect()
}

fn message<'a>(mode: &str, records: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, Failure> {
    let records: Vec<&[u8]> = records.collect();
    let mut out = Vec::new();
    if mode == "message" {
        for (place, record) in records.iter().enumerate() {
            let is_last = place + 1 == records.len();
            write_array_header(&mut out, 3 + usize::from(is_last));
            write_str(&mut out, b"kube.shop");
            write_time(&mut out);
            out.extend_from_slice(record);
            if is_last {
                write_option(&mut out, &[]);
            }
        }
        return Ok(out);
    }
    let mut entries = Vec::new();
    for record in &records {
        write_array_header(&mut entries, 2);
        write_time(&mut entries);
        entries.extend_from_slice(record);
    }
    write_array_header(&mut out, 3);
    write_str(&mut out, b"kube.shop");
    match mode {
        "packed" => {
            write_bin(&mut out, &entries);
            write_option(&mut out, &[]);
        }
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&entries)?;
            write_bin(&mut out, &encoder.finish()?);
            write_option(&mut out, &[(b"compressed", b"gzip")]);
        }
        "zstd" => {
            write_bin(&mut out, &zstd::bulk::compress(&entries, 3)?);
            write_option(&mut out, &[(b"compressed", b"zstd")]);
        }
        "forward" => {
            write_array_header(&mut out, records.len());
            out.extend_from_slice(&entries);
            write_option(&mut out, &[]);
        }
        _ => return Err(format!("unknown mode: {mode}").into()),
    }
    Ok(out)
}

/// An event time.
fn write_time(out: &mut Vec<u8>) {
    let mut time = 1_795_000_000_u32.to_be_bytes().to_vec();
    time.extend(123_456_789_u32.to_be_bytes());
    write_ext(out, 0, &time);
}

/// The option of a message that is to be acknowledged.
fn write_option(out: &mut Vec<u8>, others: &[(&[u8], &[u8])]) {
    write_map_header(out, 1 + others.len());
    write_str(out, b"chunk");
    write_str(out, b"p8n9gmxTQVC8/nh2wlKKeQ==");
    for (key, value) in others {
        write_str(out, key);
        write_str(out, value);
    }
}
