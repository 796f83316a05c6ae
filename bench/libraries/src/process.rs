//! What a process has used so far, as Linux counts it.

use std::fs;

/// What this process has used.
#[derive(Clone, Copy)]
pub struct Used {
    /// Processor time of all threads, in clock ticks of 10 ms, system time included.
    pub cpu_ms: u64,
    /// Bytes that were handed to `write`.
    pub written: u64,
    /// The most memory that was resident, in KiB.
    pub peak_kib: u64,
}

impl Used {
    pub fn now() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
        // Behind the name in parentheses, which may hold anything.
        let fields = stat.rsplit(')').next().expect("a name").split_whitespace();
        let times = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>());
        Self {
            cpu_ms: times.map(|ticks| ticks.expect("ticks") * 10).sum(),
            written: field("/proc/self/io", "wchar:"),
            peak_kib: field("/proc/self/status", "VmHWM:"),
        }
    }
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect(name)
}
