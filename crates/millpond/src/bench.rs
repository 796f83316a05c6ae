//! `millpond bench`: what a pipeline costs, and what limits it.
//!
//! Costs are the whole process's: user and system CPU time from the start of the run to its end, and the peak of its
//! resident memory. The CPU time is shared out over the operators, the pipelines' own work, the async runtime, and the other threads.
//!
//! Outputs render, and join and compress their requests, but write nothing unless that is asked for; the data directory is not
//! touched in any case. So a service's file can be measured as it is, also while the service runs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use component::{Effects, grouped};
use pipeline::Report;
use pipeline::report::{OperatorReport, PipelineReport, Problem, bytes, time};
use pipeline::verdict::Span;
use profiler::cost::Rates;
use serde_json::{Value, json};

use crate::api::stats::OperatorStats;
use crate::console::print;
use crate::load::{host, load};
use crate::proc_status::ProcStatus;
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
    let source = args.source.as_ref();
    let source = source.context("bench needs a pipeline, or `suite` and a file")?;
    let graph = load(source.pipeline()?)?.build_trial(&host, effects)?;
    let to_stdout = graph.uses_standard_output();
    let mut session = Session::begin(&graph, true, false)?;
    if args.profile.is_some() {
        session = session.sampled(OwnProfile::start(PROFILE_HZ)?);
    }
    let report = session.execute(graph, true, &host, None, false)?;
    let costs = Costs {
        peak_memory: ProcStatus::own().peak(),
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
    peak_memory: u64,
    /// Whether outputs wrote what they rendered.
    writes: bool,
}

impl Costs {
    fn text(&self, report: &Report) -> String {
        let (events, usage) = (report.events(), &report.usage);
        let rate = events as f64 / usage.wall.as_secs_f64().max(1e-9);
        let mut text = format!(
            "{} events in {}: {} events/s\n{:.3} CPU-seconds per million events ({:.2} M events per CPU-second)\npeak memory {}\n",
            grouped(events),
            time(usage.wall),
            grouped(rate as u64),
            cpu_per_million(report),
            events as f64 / 1e6 / usage.cpu.as_secs_f64().max(1e-9),
            bytes(self.peak_memory),
        );
        if let Some(sentence) = usage.disturbance() {
            text += &sentence;
            text.push('\n');
        }
        text.push('\n');
        if !self.writes {
            text += UNWRITTEN;
        }
        text += &Table::new(report).text();
        text.push('\n');
        for pipeline in &report.pipelines {
            if report.pipelines.len() > 1 {
                text += &format!("{}: ", pipeline.name);
            }
            text += &format!("{}\n", Span::of_run(pipeline, usage).verdict().text);
        }
        text
    }

    fn json(&self, report: &Report, operators: Option<&[OperatorCost]>) -> Value {
        let (events, usage) = (report.events(), &report.usage);
        let verdicts = report
            .pipelines
            .iter()
            .map(|it| Span::of_run(it, usage).verdict().text);
        let mut value = json!({
            "events": events,
            "wall_seconds": usage.wall.as_secs_f64(),
            "events_per_second": events as f64 / usage.wall.as_secs_f64().max(1e-9),
            "cpu_seconds": usage.cpu.as_secs_f64(),
            "cpu_seconds_per_million_events": cpu_per_million(report),
            "kernel_cpu_seconds": usage.kernel_cpu.as_secs_f64(),
            "runtime_cpu_seconds": report.runtime_cpu.as_secs_f64(),
            "other_cpu_seconds": other_cpu(report).as_secs_f64(),
            "other_programs_cpu_seconds": usage.others_cpu.as_secs_f64(),
            "memory_peak_bytes": self.peak_memory,
            "cpus": usage.cpus,
            "workers": usage.workers,
            "real_outputs": self.writes,
            "pipelines": report.pipelines.iter().map(|it| pipeline_json(it, report)).collect::<Vec<_>>(),
            "verdict": verdicts.collect::<Vec<_>>().join("\n"),
        });
        if let Some(operators) = operators {
            value["profile"] = operators.iter().map(OperatorCost::json).collect();
        }
        value
    }
}

fn cpu_per_million(report: &Report) -> f64 {
    report.usage.cpu.as_secs_f64() * 1e6 / report.events().max(1) as f64
}

/// CPU time of threads that work for no pipeline, such as the one that waits for signals.
fn other_cpu(report: &Report) -> Duration {
    let pipelines = report.pipelines.iter();
    let of_pipelines = pipelines.flat_map(|pipeline| {
        let operators = pipeline.operators.iter();
        operators.map(|it| it.counts.cpu).chain([pipeline.own.cpu])
    });
    let known: Duration = of_pipelines.chain([report.runtime_cpu]).sum();
    report.usage.cpu.saturating_sub(known)
}

fn pipeline_json(pipeline: &PipelineReport, report: &Report) -> Value {
    let span = Span::of_run(pipeline, &report.usage);
    let operator = |operator: &OperatorReport| {
        let shares = span.shares(operator);
        let mut value = json!(OperatorStats::of(operator));
        value["busy_share"] = json!(shares.busy);
        value["waiting_for_input_share"] = json!(shares.waiting_for_input);
        value["waiting_for_output_share"] = json!(shares.waiting_for_output);
        value
    };
    json!({
        "name": pipeline.name,
        "own_cpu_seconds": pipeline.own.cpu.as_secs_f64(),
        "operators": pipeline.operators.iter().map(operator).collect::<Vec<_>>(),
        "problems": pipeline.problems.iter().map(Problem::to_string).collect::<Vec<_>>(),
        "undelivered": pipeline.undelivered,
        "queued": pipeline.queued,
        "verdict": span.verdict().text,
    })
}

/// Who used the CPU time of the process.
struct Table {
    cpu: Duration,
    kernel_cpu: Duration,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    cpu: Duration,
    /// How many events came in and left; none where that is not counted.
    events: Option<(u64, u64)>,
}

impl Table {
    fn new(report: &Report) -> Self {
        let mut rows = Vec::new();
        for pipeline in &report.pipelines {
            let prefix = match report.pipelines.len() {
                1 => String::new(),
                _ => format!("{}: ", pipeline.name),
            };
            rows.extend(pipeline.operators.iter().map(|operator| Row {
                name: format!("{prefix}{} {}", operator.role.word(), operator.name),
                cpu: operator.counts.cpu,
                events: Some((operator.counts.events_in, operator.counts.events_out)),
            }));
            rows.push(Row {
                name: format!("{prefix}the pipeline itself"),
                cpu: pipeline.own.cpu,
                events: None,
            });
        }
        for (name, cpu) in [
            ("workers between batches, async runtime", report.runtime_cpu),
            ("start, end, and other threads", other_cpu(report)),
        ] {
            rows.push(Row {
                name: name.to_owned(),
                cpu,
                events: None,
            });
        }
        Self {
            cpu: report.usage.cpu,
            kernel_cpu: report.usage.kernel_cpu,
            rows,
        }
    }

    /// The share of the CPU time of the process that a time is, in percent.
    fn percent(&self, cpu: Duration) -> f64 {
        100.0 * cpu.as_secs_f64() / self.cpu.as_secs_f64().max(1e-9)
    }

    fn text(&self) -> String {
        let names = self.rows.iter().map(|row| row.name.chars().count());
        let width = names.max().unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            let share = self.percent(row.cpu);
            text += &format!("{:<width$}  {share:>5.1} %", row.name);
            if let Some((events_in, events_out)) = row.events {
                let each = row.cpu.as_secs_f64() * 1e9 / events_in.max(1) as f64;
                text += &format!(
                    "  {each:>7.1} ns/event  {:>11} in  {:>11} out",
                    grouped(events_in),
                    grouped(events_out)
                );
            }
            text.push('\n');
        }
        text + &format!(
            "all: {} of CPU time, {:.0} % of it in the kernel\n",
            time(self.cpu),
            self.percent(self.kernel_cpu)
        )
    }
}
