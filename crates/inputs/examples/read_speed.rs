//! How long reading takes: `cargo run --release -p inputs --example read_speed -- FILE [SETTING: VALUE]...`
//!
//! Reads a file into a sink that forgets every batch at once, and prints nanoseconds of CPU time for each event.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::Bench;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| usage());
    let settings: String = arguments.map(|setting| format!("{setting}\n")).collect();
    let buffer_size = std::env::var("BUFFER")
        .ok()
        .and_then(|size| size.parse().ok())
        .unwrap_or(256 << 10);
    let input = common::build("file", &format!("paths: [{path}]\n{settings}"))
        .unwrap_or_else(|error| panic!("{error}"));
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let run = Bench {
        buffer_size,
        ..Bench::default()
    }
    .run(input, batch::Batch::len);
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let events: usize = run.batches.iter().sum();
    let snapshot = run.metrics.snapshot();
    let per_event = |seconds: f64| seconds * 1e9 / events as f64;
    #[allow(clippy::print_stdout)]
    {
        println!("{:?}", run.result);
        println!(
            "{events} events in {} batches, {} bytes",
            run.batches.len(),
            snapshot.bytes
        );
        println!(
            "cpu {:.1} ns/event, wall {:.1}",
            per_event(cpu),
            per_event(wall)
        );
        println!(
            "busy {:.1} ns/event, wait {:.1}",
            per_event(snapshot.busy.as_secs_f64()),
            per_event(snapshot.wait.as_secs_f64())
        );
    }
}

fn usage() -> ! {
    panic!("read_speed FILE [SETTING: VALUE]...")
}

/// User and system time of the process.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
