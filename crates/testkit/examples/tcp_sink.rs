//! A TCP server that counts messages: `tcp_sink PORT lf|octet_counted [any]`.
//!
//! It says where it listens, and at the end of each connection how many messages and bytes came in it. Port 0 has the system choose one; with `any`
//! it listens on every address of the machine.

use std::io::{Read, Write, stdout};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;

/// As much as the caches of a core hold: whoever is measured beside this server should notice little of it.
const BUFFER_BYTES: usize = 64 << 10;

/// Counts messages.
enum Counter {
    Lines,
    Counted {
        /// The length that is being read.
        length: usize,
        /// Bytes of the message that are still to come.
        rest: usize,
    },
}

impl Counter {
    fn count(&mut self, bytes: &[u8]) -> usize {
        let Self::Counted { length, rest } = self else {
            return memchr::memchr_iter(b'\n', bytes).count();
        };
        let (mut at, mut messages) = (0, 0);
        while at < bytes.len() {
            if *rest > 0 {
                let here = (*rest).min(bytes.len() - at);
                at += here;
                *rest -= here;
                messages += usize::from(*rest == 0);
                continue;
            }
            match bytes[at] {
                b' ' => *rest = std::mem::take(length),
                digit => *length = *length * 10 + usize::from(digit & 15),
            }
            at += 1;
        }
        messages
    }
}

fn serve(mut connection: TcpStream, mut counter: Counter) {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut messages, mut size) = (0, 0);
    while let Ok(read @ 1..) = connection.read(&mut buffer) {
        messages += counter.count(&buffer[..read]);
        size += read;
    }
    let _ = writeln!(stdout(), "{messages} {size}");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|text| text.parse::<u16>().ok());
    let framing = arguments.next().unwrap_or_default();
    let (Some(port), "lf" | "octet_counted") = (port, framing.as_str()) else {
        return ExitCode::from(2);
    };
    let host = match arguments.next().as_deref() {
        Some("any") => Ipv4Addr::UNSPECIFIED,
        _ => Ipv4Addr::LOCALHOST,
    };
    let Ok(listener) = TcpListener::bind((host, port)) else {
        return ExitCode::FAILURE;
    };
    if let Ok(address) = listener.local_addr() {
        let _ = writeln!(stdout(), "{address}");
    }
    for connection in listener.incoming().flatten() {
        let counter = match framing.as_str() {
            "lf" => Counter::Lines,
            _ => Counter::Counted { length: 0, rest: 0 },
        };
        std::thread::spawn(move || serve(connection, counter));
    }
    ExitCode::SUCCESS
}
