//! Figures of a process in `/proc/PID/status`.

use std::fs::read_to_string;

/// The lines of the file; none where the process has ended, or the system does not say.
pub struct ProcStatus(String);

impl ProcStatus {
    /// Of the process with that number.
    pub fn of(process: u32) -> Self {
        Self(read_to_string(format!("/proc/{process}/status")).unwrap_or_default())
    }

    /// Of this process.
    pub fn own() -> Self {
        Self::of(std::process::id())
    }

    /// A number by its name, such as `Threads`; 0 where it is not there.
    pub fn number(&self, name: &str) -> u64 {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = value.and_then(|value| value.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// A size by its name, in bytes; the file has KiB.
    pub fn bytes(&self, name: &str) -> u64 {
        self.number(name) * 1024
    }

    /// Resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        self.bytes("VmRSS")
    }

    /// The most resident memory so far, in bytes.
    pub fn peak(&self) -> u64 {
        self.bytes("VmHWM")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let text = "Name:\ta\nVmHWM:\t 90 kB\nVmRSS:\t   12 kB\nThreads:\t3\n";
        let status = ProcStatus(text.to_owned());
        assert_eq!((status.peak(), status.resident()), (90 << 10, 12 << 10));
        assert_eq!((status.number("Threads"), status.number("Thread")), (3, 0));
        assert!(ProcStatus::own().peak() > 1 << 20);
        assert_eq!(ProcStatus::of(u32::MAX).peak(), 0);
    }
}
