//! Measures how long a registry of 500,000 entries takes to open and to read, and what its index takes of memory.
//!
//! `cargo run --release -p registry --example load_speed [entries] [value bytes]`

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use registry::{Change, Key, Registry};
use rustix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize, otherwise: u32| match arguments.get(place) {
        Some(text) => text.parse(),
        None => Ok(otherwise),
    };
    let (entries, value_bytes) = (number(1, 500_000)?, number(2, 250)?);
    if let Some(directory) = arguments.get(3) {
        return measure(Path::new(directory), entries, value_bytes);
    }
    let directory = std::env::temp_dir().join(format!("registry-speed-{}", std::process::id()));
    build(&directory, entries, value_bytes)?;
    // A process of its own, whose memory holds nothing else.
    let measured = Command::new(&arguments[0])
        .args([entries.to_string(), value_bytes.to_string()])
        .arg(&directory)
        .status()?;
    fs::remove_dir_all(&directory)?;
    match measured.success() {
        true => Ok(()),
        false => Err("the measurement failed".into()),
    }
}

fn build(directory: &Path, entries: u32, value_bytes: u32) -> Result<(), Box<dyn Error>> {
    let (registry, _) = Registry::open(directory)?;
    let started = (Instant::now(), cpu());
    for id in 0..entries {
        registry.commit(&[put(id, value_bytes)], false)?;
    }
    report("commits of one entry", started);
    let started = (Instant::now(), cpu());
    registry.commit(&[], true)?;
    report("sync of all of them", started);
    let length = fs::metadata(directory.join("registry"))?.len();
    println!("log: {:.1} MiB", length as f64 / f64::from(1 << 20));
    Ok(())
}

fn measure(directory: &Path, entries: u32, value_bytes: u32) -> Result<(), Box<dyn Error>> {
    memory("before opening");
    let started = (Instant::now(), cpu());
    let (registry, lost) = Registry::open(directory)?;
    report("open", started);
    memory("opened");
    let started = (Instant::now(), cpu());
    let (mut count, mut bytes) = (0, 0);
    registry.for_each(1, &mut |_, value| {
        count += 1;
        bytes += value.len() as u64;
    })?;
    report("for_each", started);
    memory("read");
    let expected = u64::from(entries) * u64::from(value_bytes);
    assert!(lost.is_empty() && count == entries && bytes == expected);

    let started = (Instant::now(), cpu());
    for id in 0..entries {
        registry.commit(&[put(id, value_bytes)], false)?;
    }
    report("commits of all entries again, with compactions", started);
    memory("written again");
    Ok(())
}

fn put(id: u32, value_bytes: u32) -> Change {
    // Odd multiples of a large odd number: ids that look random, and none twice.
    let id = u128::from(id).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    Change::Put(Key { kind: 1, id }, vec![0x61; value_bytes as usize])
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn report(what: &str, (wall, before): (Instant, Duration)) {
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    println!("{what}: {cpu:.3} s of CPU, {wall:.3} s");
}

fn memory(when: &str) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    let figures: Vec<String> = lines.map(|line| line.replace('\t', " ")).collect();
    println!("{when}: {}", figures.join(", "));
}
