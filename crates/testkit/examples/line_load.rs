//! A load of lines and datagrams.
//!
//! - `line_load messages COUNT` prints syslog messages of RFC 5424, of about 240 bytes, as lines.
//! - `line_load TRANSPORT ADDRESS FILE EVENTS [CONNECTIONS [LINES]]` sends the lines of FILE again and again until EVENTS of them were
//!   sent over CONNECTIONS (1). TRANSPORT is `tcp`, `unix` or `udp`, or `octet` for TCP with the length of each message before it.
//!   Every write holds LINES (256) of them, every datagram one.
//!
//! What is written is made before the first connection. Nothing is acknowledged: over a connection, the load has been taken when the
//! server has read the end and closed its side, which is waited for; of datagrams nobody knows. Prints how many lines were sent.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

/// How many different writes are made at most.
const WRITES_MAX: usize = 256;

/// How many different datagrams are sent at most.
const DATAGRAMS_MAX: usize = 65_536;

type Failure = Box<dyn Error + Send + Sync>;

/// What is sent, and where to.
struct Load {
    transport: String,
    address: String,
    writes: Vec<Vec<u8>>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["messages", count] => count.parse().map_err(Failure::from).and_then(messages),
        [transport, address, file, events, rest @ ..] => {
            run(transport, address, file, events, rest)
        }
        _ => Err("see the head of this program for its arguments".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "line_load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn messages(count: u64) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for number in 0..count {
        writeln!(out, "{}", message(number))?;
    }
    Ok(out.flush()?)
}

/// What a web server writes to syslog, with structured data.
fn message(number: u64) -> String {
    let mut hash = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    let (a, b, c) = (hash & 15, hash >> 8 & 255, hash >> 16 & 4095);
    format!(
        r#"<{}>1 2026-01-02T{:02}:{:02}:{:02}.{:03}Z web-{a}.example nginx {} access [origin ip="10.0.{a}.{b}" software="nginx"][meta sequenceId="{}"] 10.{a}.{b}.7 "GET /products/{c}/reviews?page={b} HTTP/1.1" {} {} "Mozilla/5.0 (X11; Linux x86_64)""#,
        [134, 134, 132, 131][(hash >> 40 & 3) as usize],
        number / 3_600_000 % 24,
        number / 60_000 % 60,
        number / 1000 % 60,
        number % 1000,
        1000 + c,
        number + 1,
        200 + a,
        c * 17,
    )
}

fn run(
    transport: &str,
    address: &str,
    file: &str,
    events: &str,
    rest: &[&str],
) -> Result<(), Failure> {
    let number = |place: usize, otherwise: usize| -> Result<usize, Failure> {
        Ok(rest.get(place).map_or(Ok(otherwise), |text| text.parse())?)
    };
    let lines = if transport == "udp" {
        1
    } else {
        number(1, 256)?
    };
    let connections = number(0, 1)?;
    let load = Arc::new(Load {
        transport: transport.to_owned(),
        address: address.to_owned(),
        writes: writes(&fs::read(file)?, transport, lines)?,
    });
    let each = events.parse::<usize>()?.div_ceil(lines * connections);
    let threads: Vec<_> = (0..connections)
        .map(|number| {
            let load = load.clone();
            // Thousands of them need little room each.
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || load.send(number, each))
        })
        .collect();
    for thread in threads {
        thread?.join().map_err(|_| "a connection panicked")??;
    }
    writeln!(std::io::stdout(), "{}", each * lines * connections)?;
    Ok(())
}

/// Writes of `lines` lines each, with different lines as far as there are enough.
fn writes(text: &[u8], transport: &str, lines: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let all: Vec<&[u8]> = text
        .strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n')
        .collect();
    if all.iter().any(|line| line.is_empty()) || lines == 0 {
        return Err("there are no lines to send, or an empty one".into());
    }
    let max = match transport {
        "udp" => DATAGRAMS_MAX,
        _ => WRITES_MAX,
    };
    let count = (all.len() / lines).clamp(1, max);
    let mut all = all.into_iter().cycle();
    let write = |_| {
        let mut out = Vec::new();
        for line in all.by_ref().take(lines) {
            match transport {
                "octet" => write!(out, "{} ", line.len())?,
                "tcp" | "unix" | "udp" => {}
                _ => return Err(format!("unknown transport: {transport}").into()),
            }
            out.extend_from_slice(line);
            if matches!(transport, "tcp" | "unix") {
                out.push(b'\n');
            }
        }
        Ok(out)
    };
    (0..count).map(write).collect()
}

impl Load {
    /// Sends so many writes, over a connection or from a socket of its own.
    fn send(&self, from: usize, count: usize) -> Result<(), Failure> {
        let mut writes = self.writes.iter().cycle().skip(from).take(count);
        match self.transport.as_str() {
            "unix" => {
                let mut stream = UnixStream::connect(&self.address)?;
                writes.try_for_each(|write| stream.write_all(write))?;
                stream.shutdown(Shutdown::Write)?;
                until_closed(stream)
            }
            "udp" => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(&self.address)?;
                Ok(writes.try_for_each(|write| socket.send(write).map(drop))?)
            }
            _ => {
                let mut stream = TcpStream::connect(&self.address)?;
                writes.try_for_each(|write| stream.write_all(write))?;
                stream.shutdown(Shutdown::Write)?;
                until_closed(stream)
            }
        }
    }
}

/// Waits until the server closes the connection, which sends nothing.
fn until_closed(mut stream: impl Read) -> Result<(), Failure> {
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err("the server sent something".into()),
    }
}
