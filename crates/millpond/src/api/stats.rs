//! `/api/v1/stats` and `/ready`: what every pipeline, operator, queue, output, connection and file is at.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use component::{FileLedger, Role};
use jiff::Timestamp;
use pipeline::OperatorReport;
use pipeline::view::{OutputState, OutputView, PipelineState, PipelineView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metrics::open_connections;
use super::process::ProcessStats;
use super::windows::WindowStats;

/// How many files of a pipeline are listed where nothing else is asked for.
pub const FILES_SHOWN: usize = 1000;

/// What the process is at.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// The version of the program.
    pub version: String,
    /// The name of the machine.
    pub host: String,
    /// When the process started.
    pub started: String,
    /// How long it has been running, in seconds.
    pub uptime_seconds: f64,
    /// Whether pipelines start, run or stop.
    pub status: String,
    /// The configuration in force.
    pub configuration: ConfigurationVersion,
    /// What the process uses.
    pub process: ProcessStats,
    /// The pipelines.
    pub pipelines: Vec<PipelineStats>,
}

/// Which configuration is in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationVersion {
    /// Where it was read.
    pub path: String,
    /// Its number: 1 at the start.
    pub number: u64,
    /// The SHA-256 of its text, variables not expanded, in hexadecimal.
    pub hash: String,
    /// When it was read.
    pub loaded: String,
}

/// What a pipeline is at. Counters begin at its start.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PipelineStats {
    /// Its name.
    pub name: String,
    /// `running`, `stopping` or `ended`.
    pub state: String,
    /// When it started.
    pub started: String,
    /// Whether other pipelines feed it.
    pub is_fed: bool,
    /// Events that its inputs brought in.
    pub events_in: u64,
    /// Events that its outputs took, all outputs together.
    pub events_out: u64,
    /// Events that went to no output, because the `if` of none was true.
    pub unclaimed_events: u64,
    /// Events that outputs refused and that are lost, because there are no dead letters.
    pub refused_events: u64,
    /// CPU time of its own work, which is that of no operator, in seconds.
    pub cpu_seconds: f64,
    /// How long workers waited because its outputs had no room, in seconds.
    pub blocked_seconds: f64,
    /// Its inputs, its queue where that is on disk, its processors and outputs, in the order of the flow.
    pub operators: Vec<OperatorStats>,
    /// What its queue holds.
    pub queue: QueueStats,
    /// What its outputs are doing.
    pub outputs: Vec<OutputStats>,
    /// What it did in the last 1, 5 and 15 minutes, and what limited it: those of them that have begun. Looked at every five seconds.
    pub windows: Vec<WindowStats>,
    /// The connections of its inputs that listen and have had some.
    pub connections: Vec<ConnectionStats>,
    /// How many files its inputs know.
    pub files_total: u64,
    /// Those of them that are furthest behind, as many as were asked for.
    pub files: Vec<FileLedger>,
}

/// What an operator did.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OperatorStats {
    /// Its name, unique among those of its role. That of a processor below an output begins with the output's.
    pub name: String,
    /// `input`, `queue`, `processor` or `output`.
    pub role: String,
    /// Events that came in.
    pub events_in: u64,
    /// Events that left.
    pub events_out: u64,
    /// Source bytes read, or bytes written.
    pub bytes: u64,
    /// Events that failed.
    pub failures: u64,
    /// Events that were dropped.
    pub dropped: u64,
    /// Events that became dead letters.
    pub dead_letters: u64,
    /// CPU time, all threads together, in seconds.
    pub cpu_seconds: f64,
    /// Time at work by the wall clock, all instances together, in seconds.
    pub busy_seconds: f64,
    /// Time spent waiting, in seconds.
    pub wait_seconds: f64,
    /// What else happened, by kind.
    pub counters: BTreeMap<String, u64>,
}

/// What a queue holds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueueStats {
    /// `memory` or `disk`.
    pub kind: String,
    /// Events that came in and that some output has not taken.
    pub events: u64,
    /// Memory of what waits or is being worked on, in bytes.
    pub memory_bytes: u64,
    /// Size of its files, reserved room included, in bytes.
    pub disk_bytes: u64,
    /// How long the oldest event has been in it, in seconds; null where it is empty.
    pub oldest_age_seconds: Option<f64>,
    /// Whether events cannot be stored, because the disk is full or fails.
    pub is_paused: bool,
}

/// What an output is doing.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct OutputStats {
    /// Its name.
    pub name: String,
    /// `working`, `retrying`, `paused` (it waits before it tries again), `failed` (for good) or `ended`.
    pub state: String,
    /// Why it fails or failed.
    pub reason: Option<String>,
    /// How long it has been failing, in seconds.
    pub failing_seconds: Option<f64>,
    /// Requests that were sent and not answered.
    pub requests_in_flight: u64,
    /// Requests that wait to be sent, or to be sent again.
    pub requests_waiting: u64,
}

/// The connections of an input.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionStats {
    /// The input.
    pub input: String,
    /// Those that are open.
    pub open: u64,
    /// Those that were accepted, ever.
    pub accepted: u64,
    /// Those that were closed for other ones, because `max_connections` were open.
    pub displaced: u64,
}

/// Whether the process can do its work.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `ready` or `not ready`.
    pub status: String,
    /// Why it is not ready. Left out for clients without the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A time as RFC 3339 has it.
pub fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

impl PipelineStats {
    /// Of a pipeline, with so many of its files.
    pub fn of(mut pipeline: PipelineView, windows: Vec<WindowStats>, files: usize) -> Self {
        let queue = pipeline.queue;
        let listed = std::mem::take(&mut pipeline.files);
        let outputs = pipeline.operators.iter();
        let outputs = outputs.filter(|it| it.role == Role::Output);
        let taken = outputs.map(|it| it.counts.events_out);
        Self {
            state: pipeline.state.word().to_owned(),
            windows,
            started: time(pipeline.started),
            is_fed: pipeline.is_fed,
            events_in: pipeline.events(),
            events_out: taken.sum(),
            unclaimed_events: pipeline.unclaimed,
            refused_events: pipeline.refused,
            cpu_seconds: pipeline.own.cpu.as_secs_f64(),
            blocked_seconds: pipeline.own.wait.as_secs_f64(),
            queue: QueueStats {
                kind: match pipeline.is_on_disk {
                    true => "disk".to_owned(),
                    false => "memory".to_owned(),
                },
                events: queue.events,
                memory_bytes: queue.memory_bytes,
                disk_bytes: queue.disk_bytes,
                oldest_age_seconds: seconds(queue.oldest),
                is_paused: queue.is_paused,
            },
            outputs: pipeline.outputs.into_iter().map(OutputStats::of).collect(),
            connections: connections(&pipeline.operators),
            operators: pipeline.operators.iter().map(OperatorStats::of).collect(),
            files_total: listed.len() as u64,
            files: furthest_behind(listed, files),
            name: pipeline.name,
        }
    }
}

impl OperatorStats {
    pub fn of(operator: &OperatorReport) -> Self {
        let counts = &operator.counts;
        Self {
            name: operator.name.clone(),
            role: operator.role.word().to_owned(),
            events_in: counts.events_in,
            events_out: counts.events_out,
            bytes: counts.bytes,
            failures: counts.failures,
            dropped: counts.dropped,
            dead_letters: counts.dead_letters,
            cpu_seconds: counts.cpu.as_secs_f64(),
            busy_seconds: counts.busy.as_secs_f64(),
            wait_seconds: counts.wait.as_secs_f64(),
            counters: counts
                .named
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        }
    }
}

impl OutputStats {
    fn of(output: OutputView) -> Self {
        Self {
            name: output.name,
            state: output.state.word().to_owned(),
            reason: output.reason,
            failing_seconds: seconds(output.failing_for),
            requests_in_flight: output.in_flight,
            requests_waiting: output.waiting,
        }
    }
}

fn connections(operators: &[OperatorReport]) -> Vec<ConnectionStats> {
    let of = |operator: &OperatorReport| {
        let named = &operator.counts.named;
        let count = |name| named.get(name).copied().unwrap_or(0);
        Some(ConnectionStats {
            input: operator.name.clone(),
            open: open_connections(operator)?,
            accepted: count("connections"),
            displaced: count("displaced_connections"),
        })
    };
    operators.iter().filter_map(of).collect()
}

/// Those with the most bytes that are unread or on their way, in the order of their paths.
fn furthest_behind(mut files: Vec<FileLedger>, max: usize) -> Vec<FileLedger> {
    if files.len() > max {
        files.sort_by_key(|file| Reverse(file.in_flight_bytes + file.lag_bytes));
        files.truncate(max);
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

impl Readiness {
    /// Of pipelines that have started.
    pub fn of(pipelines: &[PipelineView]) -> Self {
        let mut reasons = Vec::new();
        for pipeline in pipelines {
            let name = &pipeline.name;
            if pipeline.queue.is_paused && pipeline.state != PipelineState::Ended {
                reasons.push(format!(
                    "pipeline {name}: events cannot be stored, because the disk is full or fails"
                ));
            }
            for output in &pipeline.outputs {
                if output.state == OutputState::Failed {
                    let reason = output.reason.as_deref().unwrap_or("it failed");
                    reasons.push(format!("pipeline {name}: output {}: {reason}", output.name));
                }
            }
        }
        Self::because(reasons)
    }

    /// Not ready for these reasons; ready where there are none.
    pub fn because(reasons: Vec<String>) -> Self {
        let status = if reasons.is_empty() {
            "ready"
        } else {
            "not ready"
        };
        Self {
            status: status.to_owned(),
            reasons,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_are_furthest_behind_are_listed() {
        let file = |path: &str, lag_bytes| FileLedger {
            path: path.to_owned(),
            lag_bytes,
            ..FileLedger::default()
        };
        let files = || vec![file("c", 5), file("b", 0), file("a", 7)];
        let listed = |max| {
            let files = furthest_behind(files(), max).into_iter();
            files.map(|file| file.path).collect::<Vec<_>>().concat()
        };
        assert_eq!(
            (listed(9), listed(2), listed(0)),
            ("abc".into(), "ac".into(), String::new())
        );
    }

    #[test]
    fn times_have_milliseconds() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_500_250);
        assert_eq!(time(at), "1970-01-01T00:00:01.500Z");
    }
}
