//! What a process and its machine used over a span of time.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

/// Clock ticks in a second, in the files of `/proc`: Linux gives programs this number whatever the kernel counts in.
const TICKS_PER_SECOND: u64 = 100;

/// CPU times at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    cpu: Duration,
    kernel_cpu: Duration,
    /// Of all processes, on the CPUs that this one may use; none where the system does not say.
    machine: Option<Duration>,
}

/// What was used between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Time by the wall clock.
    pub wall: Duration,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Worker threads.
    pub workers: usize,
    /// CPU time of the process.
    pub cpu: Duration,
    /// The part of it that the kernel used for the process, in ticks of 10 ms.
    pub kernel_cpu: Duration,
    /// CPU time of everything else on these CPUs, the time that a hypervisor took away included, in ticks of 10 ms.
    pub others_cpu: Duration,
}

impl Reading {
    /// The times now.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let stat = read_to_string("/proc/self/stat").unwrap_or_default();
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let machine = read_to_string("/proc/stat").ok();
        Self {
            at: Instant::now(),
            cpu: Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
            kernel_cpu: kernel_ticks(&stat).map_or(Duration::ZERO, of_ticks),
            machine: machine.and_then(|machine| {
                let ticks = busy_ticks(&machine, &allowed_cpus(&status)?)?;
                Some(of_ticks(ticks))
            }),
        }
    }

    /// What was used from then until now, with so many worker threads.
    pub fn usage(&self, workers: usize) -> Usage {
        Self::now().since(self, workers)
    }

    /// A reading so much later in which nothing was used.
    #[cfg(test)]
    pub(crate) fn later(&self, time: Duration) -> Self {
        Self {
            at: self.at + time,
            ..*self
        }
    }

    /// What was used between an earlier reading and this one.
    pub fn since(&self, earlier: &Self, workers: usize) -> Usage {
        let cpu = self.cpu.saturating_sub(earlier.cpu);
        let machine = self.machine.zip(earlier.machine);
        let machine = machine.map_or(cpu, |(now, then)| now.saturating_sub(then));
        Usage {
            wall: self.at.duration_since(earlier.at),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            workers,
            cpu,
            kernel_cpu: self.kernel_cpu.saturating_sub(earlier.kernel_cpu),
            others_cpu: machine.saturating_sub(cpu),
        }
    }
}

impl Usage {
    /// The share of the CPU time that there was, from 0 to 1, that a CPU time is.
    pub fn share(&self, cpu: Duration) -> f64 {
        let there = self.wall.as_secs_f64() * self.cpus as f64;
        (cpu.as_secs_f64() / there.max(1e-9)).clamp(0.0, 1.0)
    }

    /// Whether others used so much that the figures of this process are not those of a quiet machine, as a sentence.
    pub fn disturbance(&self) -> Option<String> {
        const NOTABLE: f64 = 0.05;
        (self.share(self.others_cpu) >= NOTABLE).then(|| {
            let used = self.others_cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
            format!(
                "other programs used {used:.1} of {} meanwhile, so that the times are longer than on a quiet machine",
                component::plural(self.cpus as u64, "CPU"),
            )
        })
    }
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// The system time in a `/proc/PID/stat`.
fn kernel_ticks(stat: &str) -> Option<u64> {
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(12)?.parse().ok()
}

/// The CPUs in a `/proc/PID/status`, such as `0-3,8`.
fn allowed_cpus(status: &str) -> Option<Vec<std::ops::RangeInclusive<u32>>> {
    let lines = &mut status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(range).collect()
}

/// The time in a `/proc/stat` that these CPUs did not idle, in ticks.
fn busy_ticks(stat: &str, cpus: &[std::ops::RangeInclusive<u32>]) -> Option<u64> {
    let of_cpu = |line: &str| -> Option<u64> {
        let (number, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        let number: u32 = number.parse().ok()?;
        cpus.iter().find(|range| range.contains(&number))?;
        let fields: Vec<u64> = fields
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        // user, nice, system, (idle, iowait,) irq, softirq, steal
        Some(
            [0, 1, 2, 5, 6, 7]
                .iter()
                .filter_map(|it| fields.get(*it))
                .sum(),
        )
    };
    let busy: Vec<u64> = stat.lines().filter_map(of_cpu).collect();
    (!busy.is_empty()).then(|| busy.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_system_are_understood() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 75 0 0 20";
        assert_eq!(kernel_ticks(stat), Some(75));
        assert_eq!(kernel_ticks("nonsense"), None);
        let status = "Name:\tx\nCpus_allowed_list:\t0-1,3\nx";
        let cpus = allowed_cpus(status).expect("a list");
        assert_eq!(cpus, [0..=1, 3..=3]);
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 100 4 5 6 0 0\ncpu2 1 1 1 1 1 1 1 1 0 0\ncpu3 10 0 0 7 7 0 0 0 0 0\nintr 5\n";
        assert_eq!(busy_ticks(stat, &cpus), Some(21 + 10));
        assert_eq!(busy_ticks("nonsense", &cpus), None);
    }

    #[test]
    fn others_are_told_apart_and_named() {
        let begin = Reading::now();
        let mut usage = begin.usage(1);
        assert!(usage.cpus > 0 && usage.wall > Duration::ZERO);
        let second = Duration::from_secs(1);
        (usage.wall, usage.cpus) = (second, 2);
        usage.others_cpu = second / 20;
        assert_eq!(usage.disturbance(), None);
        usage.others_cpu = second * 3 / 2;
        assert_eq!(usage.share(usage.others_cpu), 0.75);
        let said = usage.disturbance().expect("a sentence");
        assert!(said.contains("1.5 of 2 CPUs"), "{said}");
    }
}
