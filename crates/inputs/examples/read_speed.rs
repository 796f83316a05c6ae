//! How long an input takes: `cargo run --release -p inputs --example read_speed -- FILE [SETTING: VALUE]...`
//!
//! Runs the input `file` (or `generate`, where that word stands in place of the file) into a sink that forgets every
//! batch at once, and prints nanoseconds of CPU time for each event. The environment variable `BUFFER` sets the size of
//! the buffers in bytes.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::Bench;

#[allow(clippy::print_stdout)]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().expect("a file, or `generate`");
    let (name, paths) = if source == "generate" {
        ("generate", String::new())
    } else {
        ("file", format!("paths: [{source:?}]\n"))
    };
    let settings: String = arguments.map(|setting| format!("{setting}\n")).collect();
    let buffer_size = std::env::var("BUFFER")
        .ok()
        .and_then(|size| size.parse().ok());
    let bench = Bench {
        buffer_size: buffer_size.unwrap_or(256 << 10),
        ..Bench::default()
    };
    let input = common::build(name, &(paths + &settings)).unwrap_or_else(|error| panic!("{error}"));
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let run = bench.run(input, batch::Batch::len);
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let events: usize = run.batches.iter().sum();
    let snapshot = run.metrics.snapshot();
    let per_event = |seconds: f64| seconds * 1e9 / events as f64;
    let (busy, wait) = (snapshot.busy.as_secs_f64(), snapshot.wait.as_secs_f64());
    println!("{:?}", run.result);
    println!(
        "{events} events in {} batches, {} bytes",
        run.batches.len(),
        snapshot.bytes
    );
    println!(
        "ns/event: cpu {:.1}, wall {:.1}, busy {:.1}, wait {:.1}",
        per_event(cpu),
        per_event(wall),
        per_event(busy),
        per_event(wait)
    );
}

/// User and system time of the process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
