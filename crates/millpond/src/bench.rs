//! `millpond bench`: what a pipeline costs, and what limits it.
//!
//! Costs are the whole process's: user and system CPU time from the start of the run to its end, and the peak of its
//! resident memory.
//!
//! Outputs render, and join and compress their requests, but write nothing unless that is asked for; the data directory is not
//! touched in any case. So a service's file can be measured as it is, also while the service runs.

use std::process::ExitCode;
use std::time::Duration;

use component::{Effects, grouped};
use pipeline::report::{PipelineReport, Problem, bytes, time};
use pipeline::{Report, verdict};
use profiler::cost::Rates;
use serde_json::{Value, json};

use crate::console::print;
use crate::load::{host, load};
use crate::profile::operators::{OperatorCost, operators, operators_text};
use crate::profile::own::OwnProfile;
use crate::run::Session;
use crate::{BenchArgs, profile};

/// How often a second a core is sampled: a run is short.
const PROFILE_HZ: u32 = 997;

/// Runs a pipeline to the end and prints what it cost.
pub fn bench(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let host = host();
    let effects = match args.real_outputs {
        true => Effects::Outputs,
        false => Effects::Nothing,
    };
    let graph = load(args.source.pipeline()?)?.build_trial(&host, effects)?;
    let to_stdout = graph.uses_standard_output();
    let before = cpu_time();
    let mut session = Session::begin(&graph, true, false)?;
    if args.profile.is_some() {
        session = session.sampled(OwnProfile::start(PROFILE_HZ)?);
    }
    let report = session.execute(graph, true, &host, None, false)?;
    let costs = Costs {
        cpu: cpu_time() - before,
        peak_memory: peak_memory(),
        writes: args.real_outputs,
    };
    let profile = session.profile();
    if let (Some(profile), Some(Some(path))) = (&profile, &args.profile) {
        profile::write(profile, path)?;
    }
    let operators = profile.map(|profile| operators(&profile, &Rates::here()));
    let text = if args.json {
        format!("{}\n", costs.json(&report, operators.as_deref()))
    } else {
        costs.text(&report) + &operators.map_or_else(String::new, |all| operators_text(&all))
    };
    // The figures go to standard error when the events themselves go to standard output.
    if to_stdout {
        crate::console::say(text.trim_end());
    } else {
        print(text.as_bytes())?;
    }
    Ok(session.conclude(&report).into())
}

/// What the figures leave out where nothing was written.
const UNWRITTEN: &str =
    "outputs rendered and compressed, and wrote nothing (--real-outputs makes them write)\n\n";

struct Costs {
    cpu: Duration,
    peak_memory: u64,
    /// Whether outputs wrote what they rendered.
    writes: bool,
}

impl Costs {
    fn cpu_per_million(&self, report: &Report) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / report.events().max(1) as f64
    }

    fn text(&self, report: &Report) -> String {
        let events = report.events();
        let rate = events as f64 / report.wall.as_secs_f64().max(1e-9);
        let mut text = format!(
            "{} events in {}: {} events/s\n{:.3} CPU-seconds per million events ({:.2} M events per CPU-second)\npeak memory {}\n\n",
            grouped(events),
            time(report.wall),
            grouped(rate as u64),
            self.cpu_per_million(report),
            events as f64 / 1e6 / self.cpu.as_secs_f64().max(1e-9),
            bytes(self.peak_memory),
        );
        if !self.writes {
            text += UNWRITTEN;
        }
        for pipeline in &report.pipelines {
            if report.pipelines.len() > 1 {
                text += &format!("pipeline {}\n", pipeline.name);
            }
            text += &shares(pipeline);
            text += &format!("\n{}\n", verdict(pipeline, report.wall, report.workers));
        }
        text
    }

    fn json(&self, report: &Report, operators: Option<&[OperatorCost]>) -> Value {
        let events = report.events();
        let mut value = json!({
            "events": events,
            "wall_seconds": report.wall.as_secs_f64(),
            "events_per_second": events as f64 / report.wall.as_secs_f64().max(1e-9),
            "cpu_seconds": self.cpu.as_secs_f64(),
            "cpu_seconds_per_million_events": self.cpu_per_million(report),
            "peak_memory_bytes": self.peak_memory,
            "workers": report.workers,
            "real_outputs": self.writes,
            "pipelines": report.pipelines.iter().map(|pipeline| json!({
                "name": pipeline.name,
                "operators": pipeline.operators.iter().map(|operator| json!({
                    "role": operator.role.word(),
                    "name": operator.name,
                    "events_in": operator.counts.events_in,
                    "events_out": operator.counts.events_out,
                    "dropped": operator.counts.dropped,
                    "failures": operator.counts.failures,
                    "bytes": operator.counts.bytes,
                    "busy_seconds": operator.counts.busy.as_secs_f64(),
                    "wait_seconds": operator.counts.wait.as_secs_f64(),
                    "counters": operator.counts.named,
                })).collect::<Vec<_>>(),
                "problems": pipeline.problems.iter().map(Problem::to_string).collect::<Vec<_>>(),
                "undelivered": pipeline.undelivered,
                "queued": pipeline.queued,
                "verdict": verdict(pipeline, report.wall, report.workers),
            })).collect::<Vec<_>>(),
        });
        if let Some(operators) = operators {
            value["profile"] = operators.iter().map(OperatorCost::json).collect();
        }
        value
    }
}

/// Every operator's share of the busy time, as a table.
fn shares(pipeline: &PipelineReport) -> String {
    let total: f64 = pipeline
        .operators
        .iter()
        .map(|operator| operator.counts.busy.as_secs_f64())
        .sum();
    let width = pipeline
        .operators
        .iter()
        .map(|operator| operator.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for operator in &pipeline.operators {
        let counts = &operator.counts;
        let busy = counts.busy.as_secs_f64();
        text += &format!(
            "{:<width$}  {:>5.1} %  {:>7.1} ns/event  {:>11} in  {:>11} out\n",
            operator.name,
            100.0 * busy / total.max(1e-12),
            busy * 1e9 / counts.events_in.max(1) as f64,
            grouped(counts.events_in),
            grouped(counts.events_out),
        );
    }
    text
}

/// User and system CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The largest resident memory of this process so far, in bytes; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}
