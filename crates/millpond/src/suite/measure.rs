//! What a process and its children use, from `/proc`.
//!
//! The CPU time of a process includes that of its children: of those that it has waited for as the kernel adds it up, of the others as they
//! stand. Times are in ticks of 10 ms. A process that has ended keeps its times until it is waited for.

use std::fs::read_to_string;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proc_status::ProcStatus;

/// Clock ticks in a second, in the files of `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// The most processes of a tree that are looked at.
const PROCESSES_MAX: usize = 1000;

/// What a process and its children had used at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the start of the run.
    pub at_seconds: f64,
    /// CPU time so far.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub memory_bytes: u64,
}

/// What a process and its children use now.
pub fn sample(process: u32, since_start: Duration) -> Sample {
    let mut sample = Sample {
        at_seconds: since_start.as_secs_f64(),
        ..Sample::default()
    };
    let mut waiting = vec![process];
    let mut seen = 0;
    while let Some(process) = waiting.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            break;
        }
        let stat = read_to_string(format!("/proc/{process}/stat"));
        sample.cpu_seconds += stat.map_or(0.0, |stat| cpu_seconds(&stat));
        sample.memory_bytes += ProcStatus::of(process).resident();
        waiting.extend(children(process));
    }
    sample
}

/// The processes that threads of a process started.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .map(|thread| thread.path().join("children"));
    let lists = lists.flat_map(read_to_string);
    let all: String = lists.collect();
    all.split_whitespace().flat_map(str::parse).collect()
}

/// CPU time of a process and of those of its children that it has waited for.
fn cpu_seconds(stat: &str) -> f64 {
    // The name before it may hold anything.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let fields = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = fields.flat_map(str::parse::<u64>).sum();
    ticks as f64 / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_counts_with_its_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 200 0 0 12 30 5 3 20 0 1 0 5 6 7";
        assert_eq!(cpu_seconds(stat), 0.5);
        let script =
            "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; sleep 60' & wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let alone = cpu_seconds(&read_to_string(format!("/proc/{}/stat", child.id())).unwrap());
        let both = sample(child.id(), Duration::from_secs(1));
        assert_eq!(both.at_seconds, 1.0);
        assert!(both.cpu_seconds > alone, "{both:?}");
        let inner = children(child.id());
        assert!(!inner.is_empty());
        for process in inner {
            assert!(both.memory_bytes > sample(process, Duration::ZERO).memory_bytes);
            let _ = Command::new("kill").arg(process.to_string()).status();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
