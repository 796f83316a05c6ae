//! What decompressing costs: `cargo run --release -p codec --example inflate_speed FILE.gz`.
//!
//! Prints the whole read with flate2 and with [`Decompressor`], taking, encoding, decoding and resuming a checkpoint, and
//! the memory of a decompressor within a member.

#![allow(clippy::print_stdout)]

use std::env::args;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use codec::compress::recognise;
use codec::{Checkpoint, Decompressor};
use flate2::{Decompress, FlushDecompress, Status};

/// Compressed bytes given at once, as inputs read them.
const INPUT_BYTES: usize = 32 << 10;

/// Room for content, like the buffers of inputs.
const OUTPUT_BYTES: usize = 1 << 20;

/// The interval of checkpoints in inputs, in bytes of content.
const INTERVAL_BYTES: u64 = 4 << 20;

const ROUNDS: usize = 4;

/// So many decompressors show what one takes.
const MANY: usize = 500;

fn main() {
    let path = args().nth(1).expect("the path of a compressed file");
    let data = fs::read(&path).expect("a readable file");
    let length = read(&data, u64::MAX, |_| {});
    let mebibytes = length as f64 / f64::from(1 << 20);
    println!("{mebibytes:.0} MiB of content in {} bytes", data.len());
    let tell = |what, time| println!("{what} {:8.0} us/MiB", micros(time) / mebibytes);
    let mut checkpoints = Vec::new();
    // In turn, so that what else the machine does falls on all of them.
    let mut times = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let works: [&mut dyn FnMut(); 3] = [
            &mut || read_flate2(&data),
            &mut || {
                read(&data, u64::MAX, |_| {});
            },
            &mut || {
                checkpoints.clear();
                read(&data, INTERVAL_BYTES, |taken| checkpoints.push(taken));
            },
        ];
        for (time, work) in times.iter_mut().zip(works) {
            *time = (*time).min(timed(work));
        }
    }
    tell("flate2         ", times[0]);
    tell("no checkpoints ", times[1]);
    tell("one every 4 MiB", times[2]);
    each_checkpoint(&data, &checkpoints);
    memory(&data, &checkpoints);
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Reads everything; the length of the content.
fn read(data: &[u8], interval: u64, mut take: impl FnMut(Checkpoint)) -> u64 {
    let format = recognise(data).expect("gzip or zstd");
    let mut decompressor = Decompressor::new(format).with_interval(interval);
    let mut output = vec![0; OUTPUT_BYTES];
    for mut input in data.chunks(INPUT_BYTES) {
        loop {
            let step = decompressor.step(input, &mut output);
            assert_eq!(step.failure, None, "the file is sound");
            input = &input[step.consumed..];
            if let Some(taken) = decompressor.take_checkpoint() {
                take(taken);
            }
            if step.produced == 0 && input.is_empty() {
                break;
            }
        }
    }
    assert_eq!(decompressor.finish(), Ok(()));
    decompressor.output_offset()
}

/// The same for one member of gzip, with the library that has no checkpoints.
fn read_flate2(data: &[u8]) {
    if !data.starts_with(&[0x1F, 0x8B]) {
        return;
    }
    let mut inflate = Decompress::new_gzip(15);
    let mut output = vec![0; OUTPUT_BYTES];
    for input in data.chunks(INPUT_BYTES) {
        let end = inflate.total_in() + input.len() as u64;
        loop {
            let rest = &input[input.len() - (end - inflate.total_in()) as usize..];
            let before = inflate.total_out();
            let status = inflate.decompress(rest, &mut output, FlushDecompress::None);
            let is_end = status.expect("the file is sound") == Status::StreamEnd;
            if is_end || (inflate.total_in() == end && inflate.total_out() == before) {
                break;
            }
        }
    }
}

fn each_checkpoint(data: &[u8], checkpoints: &[Checkpoint]) {
    let encoded: Vec<Vec<u8>> = checkpoints.iter().map(Checkpoint::encode).collect();
    let bytes: usize = encoded.iter().map(Vec::len).sum();
    let count = checkpoints.len();
    println!("{count} checkpoints of {} bytes, each", bytes / count);
    let mut output = [0; 4096];
    let tell = |what, mut work: Box<dyn FnMut(usize) + '_>| {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            best = best.min(timed(|| (0..count).for_each(&mut work)));
        }
        println!("{what} {:8.2} us", micros(best) / count as f64);
    };
    tell(
        "copy           ",
        Box::new(|n| drop(black_box(checkpoints[n].clone()))),
    );
    tell(
        "encode         ",
        Box::new(|n| drop(black_box(checkpoints[n].encode()))),
    );
    tell(
        "decode         ",
        Box::new(|n| drop(black_box(Checkpoint::decode(&encoded[n])))),
    );
    tell(
        "resume         ",
        Box::new(|n| drop(black_box(Decompressor::resume(&checkpoints[n])))),
    );
    tell(
        "resume, 4 KiB  ",
        Box::new(|n| drop(black_box(resumed(data, &checkpoints[n], &mut output)))),
    );
}

fn memory(data: &[u8], checkpoints: &[Checkpoint]) {
    let Some(inside) = checkpoints.iter().find(|taken| !taken.tail().is_empty()) else {
        return;
    };
    let before = resident_bytes();
    let many: Vec<Decompressor> = (0..MANY)
        .map(|_| resumed(data, inside, &mut [0; 4096]))
        .collect();
    let taken = resident_bytes().saturating_sub(before) / many.len();
    println!("memory          {taken:8} bytes a decompressor");
}

/// Resumes and reads a little.
fn resumed(data: &[u8], at: &Checkpoint, output: &mut [u8]) -> Decompressor {
    let mut resumed = Decompressor::resume(at).expect("memory");
    let start = at.input as usize;
    let step = resumed.step(&data[start..data.len().min(start + INPUT_BYTES)], output);
    assert_eq!(step.failure, None, "the file is sound");
    resumed
}

/// Memory of this process that is in use.
fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.unwrap_or(0) * 4096
}
