//! A load of Lumberjack: `beats_load ADDRESS FILE EVENTS [CONNECTIONS [WINDOW [LEVEL]]]`.
//!
//! Sends the lines of FILE, which are JSON documents, again and again until EVENTS of them were sent, in windows of WINDOW (2048)
//! over CONNECTIONS (1), each compressed at LEVEL (3; 0 for none). Windows are made before the clock starts. Every connection
//! keeps two windows in flight, as Filebeat does. Prints how many events were acknowledged, and in how many seconds.

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use testkit::lumberjack::{Client, json, window};

/// How many different windows are made at most.
const WINDOWS_MAX: usize = 32;

/// How many windows a connection sends before it waits for the first one.
const IN_FLIGHT: usize = 2;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    match load() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "beats_load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load() -> Result<(), Failure> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [address, file, events, rest @ ..] = args.as_slice() else {
        return Err("usage: beats_load ADDRESS FILE EVENTS [CONNECTIONS [WINDOW [LEVEL]]]".into());
    };
    let number = |place: usize, otherwise: u32| -> Result<u32, Failure> {
        Ok(rest.get(place).map_or(Ok(otherwise), |text| text.parse())?)
    };
    let (connections, size, level) = (number(0, 1)?, number(1, 2048)?, number(2, 3)?);
    let events: u64 = events.parse()?;
    let windows: Arc<[Vec<u8>]> = windows(&fs::read_to_string(file)?, size, level)?.into();
    let each = events.div_ceil(u64::from(size) * u64::from(connections));
    let begin = Instant::now();
    let threads: Vec<_> = (0..connections as usize)
        .map(|number| {
            let (windows, address) = (windows.clone(), address.clone());
            thread::spawn(move || send(&address, &windows, number, each, size))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a connection panicked")??;
    }
    let sent = each * u64::from(size) * u64::from(connections);
    let seconds = begin.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{sent} events in {seconds:.3} s")?;
    Ok(())
}

/// Sends windows over one connection.
fn send(
    address: &str,
    windows: &[Vec<u8>],
    from: usize,
    count: u64,
    size: u32,
) -> Result<(), Failure> {
    let mut client = Client::connect(address)?;
    let mut in_flight = VecDeque::new();
    for window in windows.iter().cycle().skip(from).take(count as usize) {
        client.send(window)?;
        in_flight.push_back(());
        if in_flight.len() == IN_FLIGHT {
            client.acknowledged(b'2', size)?;
            in_flight.pop_front();
        }
    }
    for () in in_flight {
        client.acknowledged(b'2', size)?;
    }
    Ok(())
}

fn windows(text: &str, size: u32, level: u32) -> Result<Vec<Vec<u8>>, Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let count = (lines.len() / size as usize).clamp(1, WINDOWS_MAX);
    let mut documents = lines.iter().cycle();
    let mut made = Vec::new();
    for _ in 0..count {
        let events: Vec<Vec<u8>> = (1..=size)
            .zip(&mut documents)
            .map(|(sequence, document)| json(sequence, document))
            .collect();
        let events = events.concat();
        let mut frames = window(b'2', size);
        if level == 0 {
            frames.extend(events);
        } else {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(&events)?;
            let content = encoder.finish()?;
            frames.extend(b"2C");
            frames.extend((content.len() as u32).to_be_bytes());
            frames.extend(content);
        }
        made.push(frames);
    }
    Ok(made)
}
