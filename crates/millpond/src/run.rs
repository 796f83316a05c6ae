//! `millpond run`: from the command line to the exit code.

use std::io::{ErrorKind, Write};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use component::{Diagnostics, Stop, standard};
use pipeline::report::{PipelineReport, grouped};
use pipeline::{Graph, Report, Run, RunOptions, StartError};
use registry::{Registry, RegistryError};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::{host, load};
use crate::progress::Bar;

/// Exit code of a run whose user would not wait for it to stop.
const INTERRUPTED: i32 = 130;

/// Signals that come so soon after the first one are part of the same request: `timeout` signals the process and its group.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// The answer to SIGHUP.
const HANGUP: &str = "SIGHUP: Millpond runs on unchanged; it cannot reload its configuration yet, restart it to apply changes";

/// Runs a pipeline to its end.
pub fn run(pipeline: &str, data_dir: Option<PathBuf>, metrics: bool) -> anyhow::Result<ExitCode> {
    let loaded = load(pipeline)?;
    let finite = loaded.finite;
    let host = host();
    let graph = loaded.build(&host, data_dir)?;
    let registry = open_registry(graph.process.data_dir.as_deref())?;
    let report = execute(graph, finite, &host, registry, metrics, true)?;
    if metrics {
        say(report.table().trim_end());
    }
    Ok(conclude(&report))
}

/// Opens what inputs remember, and says what of it was lost.
fn open_registry(data_dir: Option<&Path>) -> anyhow::Result<Option<Arc<Registry>>> {
    let Some(directory) = data_dir else {
        return Ok(None);
    };
    let (registry, losses) = Registry::open(directory).map_err(|error| sentence(&error))?;
    for loss in losses {
        say(&format!("warning: {loss}"));
    }
    Ok(Some(Arc::new(registry)))
}

/// An error whose text names its cause, so that the cause is not printed once more.
pub fn sentence(error: &RegistryError) -> anyhow::Error {
    anyhow!("{error}")
}

/// Says what went wrong and gives the exit code.
pub fn conclude(report: &Report) -> ExitCode {
    for PipelineReport {
        name,
        problems,
        undelivered,
        queued,
        ..
    } in &report.pipelines
    {
        let place = if report.pipelines.len() > 1 {
            format!("pipeline {name}: ")
        } else {
            String::new()
        };
        for problem in problems {
            say(&format!("error: {place}{problem}"));
        }
        if *undelivered > 0 {
            say(&format!(
                "error: {place}{} events were read and not delivered",
                grouped(*undelivered)
            ));
        }
        if *queued > 0 {
            say(&queued_note(name, *queued));
        }
    }
    if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Says what a pipeline leaves in its disk queue.
fn queued_note(pipeline: &str, events: u64) -> String {
    let stay = if events == 1 {
        "event stays"
    } else {
        "events stay"
    };
    let events = grouped(events);
    format!("pipeline {pipeline}: {events} {stay} in the disk queue for the next run")
}

/// Runs every pipeline of the graph until it ends or a signal stops it.
pub fn execute(
    graph: Graph,
    finite: bool,
    host: &Arc<batch::HostInfo>,
    registry: Option<Arc<Registry>>,
    ledger: bool,
    interactive: bool,
) -> anyhow::Result<Report> {
    let bar = Bar::new(finite && interactive, graph.uses_standard_output());
    let options = RunOptions {
        host: host.clone(),
        diagnostics: Diagnostics::new({
            let bar = bar.clone();
            move |warning| bar.say(&format!("warning: {warning}"))
        }),
        finite,
        stop: Stop::default(),
        registry,
        ledger,
    };
    let runtime = runtime()?;
    let report = runtime.block_on(async {
        let stop = options.stop.clone();
        let signals = tokio::spawn(watch_signals(stop, bar.clone()));
        let run = match Run::start(graph, options).await {
            // It is told like one that is found while the configuration is read.
            Err(StartError::Setting(error)) => return Err(error.into()),
            started => started?,
        };
        let drawing = tokio::spawn(bar.clone().draw(run.progress(), run.events()));
        let report = run.finish().await;
        drawing.abort();
        signals.abort();
        anyhow::Ok(report)
    });
    bar.clear();
    // Blocking reads of a terminal or a pipe may still be under way: the process ends without waiting for them.
    runtime.shutdown_background();
    report
}

/// Lets the process open as many files as it may: the limit that it begins with is meant for programs that use `select`.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // Where that is refused, the limit stays as it is, and inputs keep to it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// The runtime for inputs and signals.
fn runtime() -> anyhow::Result<Runtime> {
    // The runtime panics where the system refuses it a thread, and then waits for ever for those that it has. Nothing else
    // runs yet, so that the process can end here.
    let tell = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        say(&format!(
            "error: {}",
            StartError::Threads(Errno::AGAIN.into())
        ));
        std::process::exit(1);
    }));
    let runtime = Runtime::new();
    panic::set_hook(tell);
    runtime.context("cannot start the runtime")
}

/// The first SIGINT or SIGTERM stops the inputs; a second one, [`ONE_REQUEST`] later or more, ends the process at once.
/// SIGHUP, which by convention asks a service to reload, ends nothing.
async fn watch_signals(stop: Stop, bar: Bar) {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ) else {
        return bar.say("warning: signals cannot be watched; stopping will not be graceful");
    };
    let mut asked: Option<Instant> = None;
    loop {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hangup.recv() => {
                bar.say(HANGUP);
                continue;
            }
        };
        match asked {
            Some(first) if first.elapsed() < ONE_REQUEST => continue,
            Some(_) => std::process::exit(INTERRUPTED),
            None => asked = Some(Instant::now()),
        }
        bar.say(&format!(
            "{name}: delivering what was read; once more to stop at once"
        ));
        stop.stop();
    }
}

/// Prints to standard output; a reader that is gone is no error.
pub fn print(text: &[u8]) -> anyhow::Result<()> {
    if let Some(fault) = standard::stdout_fault() {
        bail!("{fault}");
    }
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Says something to the person on standard error.
pub fn say(text: &str) {
    // Where standard error is gone there is nobody left to tell.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_in_a_queue_is_no_failure() {
        for (queued, said) in [
            (
                1,
                "pipeline one: 1 event stays in the disk queue for the next run",
            ),
            (
                1234,
                "pipeline one: 1,234 events stay in the disk queue for the next run",
            ),
        ] {
            assert_eq!(queued_note("one", queued), said);
            let pipeline = PipelineReport {
                name: "one".into(),
                operators: Vec::new(),
                files: Vec::new(),
                problems: Vec::new(),
                undelivered: 0,
                queued,
            };
            let report = Report {
                pipelines: vec![pipeline],
                wall: Duration::ZERO,
                workers: 1,
            };
            assert!(report.is_clean());
        }
    }
}
