//! What the input `forward` is compared with: `forward_peer ADDRESS map|json` takes messages of the mode PackedForward, reads
//! every record into a map as programs do that work on maps, drops it, and acknowledges the message.
//!
//! - `map`: MessagePack is read into an [`rmpv::Value`].
//! - `json`: MessagePack is printed as JSON, with Millpond's own writer, and that is read into a [`serde_json::Value`].
//!
//! It does less than Millpond otherwise: no queue, no ids, no fields, no metrics, and one thread for each connection.

use std::error::Error;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;

use batch::msgpack::{Extent, Value, elements, find, read, to_json, value_len};

type Failure = Box<dyn Error + Send + Sync>;

/// How much is read at a time.
const PIECE_BYTES: usize = 256 << 10;

#[derive(Clone, Copy)]
enum Mode {
    Map,
    Json,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match arguments.as_slice() {
        [address, "map"] => serve(address, Mode::Map),
        [address, "json"] => serve(address, Mode::Json),
        _ => Err("usage: forward_peer ADDRESS map|json".into()),
    };
    if let Err(error) = served {
        let _ = writeln!(std::io::stderr(), "forward_peer: {error}");
    }
    ExitCode::FAILURE
}

fn serve(address: &str, mode: Mode) -> Result<(), Failure> {
    for stream in TcpListener::bind(address)?.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = converse(stream, mode) {
                let _ = writeln!(std::io::stderr(), "forward_peer: {error}");
            }
        });
    }
    Ok(())
}

/// Takes messages until the client closes the connection.
fn converse(mut stream: TcpStream, mode: Mode) -> Result<(), Failure> {
    let (mut received, mut filled) = (vec![0; PIECE_BYTES], 0);
    let mut extent = Extent::default();
    let mut text = Vec::new();
    loop {
        if let Some(len) = extent.advance(&received[..filled])? {
            take(&received[..len], mode, &mut text)?;
            stream.write_all(&acknowledgement(&received[..len])?)?;
            received.copy_within(len..filled, 0);
            filled -= len;
            extent = Extent::default();
            continue;
        }
        if received.len() - filled < PIECE_BYTES {
            received.resize(2 * received.len(), 0);
        }
        match stream.read(&mut received[filled..])? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// Reads the records of a message, and drops them.
fn take(message: &[u8], mode: Mode, text: &mut Vec<u8>) -> Result<(), Failure> {
    let Some((Value::Bin(entries), _)) = elements(message).nth(1).map(|at| read(message, at.start))
    else {
        return Err("only messages of the mode PackedForward are taken".into());
    };
    let mut at = 0;
    while at < entries.len() {
        let len = value_len(entries, at)?;
        let entry = &entries[at..at + len];
        at += len;
        let record = elements(entry).nth(1).ok_or("an entry without a record")?;
        let mut record = &entry[record];
        match mode {
            Mode::Map => drop(black_box(rmpv::decode::read_value(&mut record)?)),
            Mode::Json => {
                text.clear();
                to_json(record, text);
                drop(black_box(serde_json::from_slice::<serde_json::Value>(
                    text,
                )?));
            }
        }
    }
    Ok(())
}

/// The answer to a message.
fn acknowledgement(message: &[u8]) -> Result<Vec<u8>, Failure> {
    let option = elements(message).nth(2).ok_or("a message without option")?;
    let option = &message[option];
    let chunk = find(option, b"chunk").ok_or("an option without chunk")?;
    Ok([b"\x81\xA3ack", &option[chunk]].concat())
}
