//! What the process uses, from `/proc/self`.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proc_status::ProcStatus;

/// How long what was found counts: with many files open, listing them takes a while.
const FRESH: Duration = Duration::from_millis(500);

/// What the process uses.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStats {
    /// Its number.
    pub pid: u32,
    /// Its CPU time so far, in seconds.
    pub cpu_seconds: f64,
    /// Memory that is in use, in bytes.
    pub resident_memory_bytes: u64,
    /// Address space, in bytes.
    pub virtual_memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files and sockets.
    pub open_files: u64,
    /// How many there may be; none where there is no limit.
    pub open_files_max: Option<u64>,
}

/// Looks at the process.
pub struct Process {
    started: SystemTime,
    begun: Instant,
    last: Mutex<Option<(Instant, ProcessStats)>>,
}

impl Process {
    /// Of a process that has just started.
    pub fn new() -> Self {
        Self {
            started: SystemTime::now(),
            begun: Instant::now(),
            last: Mutex::new(None),
        }
    }

    /// When it started.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// How long it has been running.
    pub fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// What it uses, half a second old at most; the CPU time is that of now.
    pub fn stats(&self) -> ProcessStats {
        let mut last = self.last.lock();
        let is_fresh = |(at, _): &(Instant, ProcessStats)| at.elapsed() < FRESH;
        let known = last.take().filter(is_fresh);
        let (at, mut stats) = known.unwrap_or_else(|| (Instant::now(), read()));
        *last = Some((at, stats.clone()));
        let time = clock_gettime(ClockId::ProcessCPUTime);
        stats.cpu_seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        stats
    }
}

fn read() -> ProcessStats {
    let status = ProcStatus::own();
    // One of the entries is the listing itself.
    let files = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1));
    ProcessStats {
        pid: std::process::id(),
        cpu_seconds: 0.0,
        resident_memory_bytes: status.resident(),
        virtual_memory_bytes: status.bytes("VmSize"),
        threads: status.number("Threads"),
        open_files: files as u64,
        open_files_max: getrlimit(Resource::Nofile).current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_something() {
        let process = Process::new();
        let stats = process.stats();
        assert_eq!(stats.pid, std::process::id());
        assert!(stats.resident_memory_bytes > 1 << 20 && stats.threads > 0);
        assert!(stats.virtual_memory_bytes > stats.resident_memory_bytes);
        assert!(stats.open_files > 2 && stats.cpu_seconds > 0.0);
    }
}
