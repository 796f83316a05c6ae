//! The process of one run: a pipeline to its end, which tells its parent how many events there were so far.
//!
//! It prints lines of JSON: `{"events":N}` when it has started and whenever there are more, and at the end what the run cost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use pipeline::verdict::Span;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::console::print;
use crate::load::{host, load};
use crate::proc_status::ProcStatus;
use crate::run::{Session, lock};

/// How often the number of events is looked at.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Args)]
pub struct ChildArgs {
    /// The pipeline, or its file.
    pipeline: String,
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

/// A line of the child.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// Events that inputs have read.
    pub events: u64,
    /// At the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// What a run cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct End {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub memory_peak_bytes: u64,
    pub verdict: String,
}

/// Runs a pipeline that ends when its inputs end, whether it is one line or a file.
pub fn run(args: &ChildArgs) -> anyhow::Result<ExitCode> {
    // A receiver would wait for a sender for ever. Where the system does not know this signal, nothing is lost.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let host = host();
    let mut loaded = load(std::slice::from_ref(&args.pipeline))?;
    loaded.finite = true;
    let graph = loaded.build(&host, args.data_dir.clone())?;
    if graph.uses_standard_output() {
        bail!("a suite cannot measure the output `stdout`; `discard` or a file can take its place");
    }
    let mut session = Session::begin(&graph, true, false)?;
    session.watch = Some(watch);
    let data_dir = lock(graph.process.data_dir.as_deref())?;
    let report = session.execute(graph, true, &host, data_dir, false)?;
    let code = session.conclude(&report);
    let verdicts = report.pipelines.iter();
    let verdicts = verdicts.map(|pipeline| Span::of_run(pipeline, &report.usage).verdict().text);
    tell(&Told {
        events: report.events(),
        end: Some(End {
            wall_seconds: report.usage.wall.as_secs_f64(),
            cpu_seconds: report.usage.cpu.as_secs_f64(),
            memory_peak_bytes: ProcStatus::own().peak(),
            verdict: verdicts.collect::<Vec<_>>().join("\n"),
        }),
    });
    Ok(code.into())
}

/// Tells the number of events from now on.
fn watch(events: Arc<dyn Fn() -> u64 + Send + Sync>) {
    tokio::spawn(async move {
        let mut last = None;
        loop {
            let events = events();
            if last != Some(events) {
                last = Some(events);
                tell(&Told { events, end: None });
            }
            tokio::time::sleep(LOOK).await;
        }
    });
}

/// A parent that is gone wants to know nothing.
fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        let _ = print(format!("{line}\n").as_bytes());
    }
}
