//! `millpond profile record`: samples what the processors do, and writes a profile.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use component::plural;
use profiler::sampling::{Options, Recorder, Stats, Target};
use profiler::symbols::Symbols;

use super::{RecordArgs, files};
use crate::console::say;

/// How often the kernel's buffers are emptied.
const LOOK: Duration = Duration::from_millis(200);

/// How long JVMs may take to give the names of their functions at the end.
const NAMES_TIME_MAX: Duration = Duration::from_secs(2);

pub fn record(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    files::check_output(&args.output)?;
    let target = match args.pid.is_empty() {
        true => Target::All,
        false => Target::Processes(args.pid.clone()),
    };
    let mut options = Options::new(target, args.frequency);
    options.attaches &= !args.no_attach;
    let mut recorder = Recorder::start(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the system refuses timers")?;
    runtime.block_on(sample(&mut recorder, args.duration.0));
    recorder.stop();
    recorder.drain();
    recorder.ask_for_names(NAMES_TIME_MAX);
    let (mut symbols, refused) = Symbols::of_this_machine();
    if let Some(error) = refused {
        say(&format!("warning: {error}"));
    }
    let recorded = recorder.take();
    let profile = symbols.name(&recorded.profile);
    files::write(&profile, &args.output)?;
    say(&summary(&recorded.stats, profile.window.duration_ns));
    if profile.is_empty() {
        say("no samples were taken: nothing used the processors, or not for long enough");
    }
    for hint in recorded.hints {
        say(&hint.to_string());
    }
    say(&format!("written to {}", args.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Samples for so long, or until it is interrupted.
async fn sample(recorder: &mut Recorder, duration: Duration) {
    let end = Instant::now() + duration;
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        tokio::select! {
            _ = &mut interrupted => return,
            () = tokio::time::sleep(LOOK.min(rest)) => recorder.drain(),
        }
        if rest.is_zero() {
            return;
        }
    }
}

fn summary(stats: &Stats, duration_ns: u64) -> String {
    let percent = |count: u64| count as f64 * 100.0 / stats.samples.max(1) as f64;
    let mut text = format!(
        "{} in {:.1} s",
        plural(stats.samples, "sample"),
        duration_ns as f64 / 1e9
    );
    for (count, what) in [
        (stats.cut, "have a stack that is longer than its copy"),
        (
            stats.broken,
            "have a stack that ends where no caller was found",
        ),
    ] {
        if count > 0 {
            text.push_str(&format!("; {:.1} % {what}", percent(count)));
        }
    }
    if stats.lost > 0 {
        text.push_str(&format!("; {} lost", plural(stats.lost, "sample")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_is_missing() {
        let stats = Stats {
            samples: 1000,
            lost: 2,
            cut: 0,
            broken: 15,
        };
        assert_eq!(
            summary(&stats, 1_500_000_000),
            "1,000 samples in 1.5 s; 1.5 % have a stack that ends where no caller was found; 2 samples lost"
        );
    }
}
