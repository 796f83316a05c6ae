//! `millpond bench suite`: scenarios measured in turn, several times each, against a baseline.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the suite file |
//! | [`data`] | files that scenarios read, generated and kept |
//! | [`attempt`] | one run of a scenario |
//! | [`process`], [`measure`] | its processes, and what they use |
//! | [`child`] | the process of a pipeline |
//! | [`results`] | medians, spread, comparison with a baseline |
//! | [`series`], [`report`], [`page`] | charts and tables, in the terminal and as a page |
//!
//! Every run is a process of its own, so that memory and CPU time are its own. All scenarios are run once before any is run again: what
//! disturbs the machine for a while then disturbs all of them.

mod attempt;
pub mod child;
mod data;
mod measure;
mod page;
mod process;
mod report;
mod results;
mod series;
pub mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use component::grouped;
use config::closest;

use self::attempt::Attempt;
use self::child::ChildArgs;
use self::data::{Scaled, cache, sweep};
use self::results::{Measured, Results, compare};
use self::settings::{Scenario, Suite, Work};
use crate::console::{can_write, print, say};
use crate::interruption::Interruption;
use crate::load::host;
use crate::log;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Measures the scenarios of a file in turn, several times each: pipelines, and other programs that send to Millpond.
    Suite(SuiteArgs),
    /// One run of a pipeline, for `suite`.
    #[command(hide = true)]
    SuiteRun(ChildArgs),
}

#[derive(Args)]
pub struct SuiteArgs {
    /// The suite, a YAML file.
    #[arg(value_name = "SUITE.yaml")]
    suite: PathBuf,
    /// How often each scenario is run, in place of the suite's `runs`.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Generates so much of the files: 0.01 is a hundredth of them.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Runs only these scenarios.
    #[arg(long, value_name = "SCENARIO", num_args = 1..)]
    only: Vec<String>,
    /// Saves the results in this file, as JSON.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compares the results with those that were saved in this file; exits with 1 if one is worse.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Writes the results as a page with charts into this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where generated files are kept, and runs write. Default: `millpond/bench` in the user's cache directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok();
    let scale = scale.filter(|scale: &f64| (1e-9..=1e6).contains(scale));
    scale.ok_or_else(|| "a number above 0, such as 0.01".to_owned())
}

/// Runs a command below `bench`.
pub fn run(command: &BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Suite(args) => suite(args),
        BenchCommand::SuiteRun(args) => child::run(args),
    }
}

fn suite(args: &SuiteArgs) -> anyhow::Result<ExitCode> {
    let suite = Suite::read(&args.suite)?;
    let baseline = args.baseline.as_deref();
    let baseline = baseline
        .map(|path| baseline_of(path, args.scale))
        .transpose()?;
    let chosen = chosen(&suite, &args.only)?;
    for path in [&args.save, &args.html].into_iter().flatten() {
        can_write(path)?;
    }
    let cache = args.data.clone().unwrap_or_else(cache);
    sweep(&cache);
    let work = cache.join(format!(".work.{}", std::process::id()));
    let interruption = Interruption::listen()?;
    let attempts = prepare(&chosen, args.scale, &cache, &work, &interruption);
    let runs = args.runs.map_or(suite.runs, usize::from);
    let measured = attempts.and_then(|attempts| measure(&attempts, runs));
    let _ = std::fs::remove_dir_all(&work);
    if interruption.has_come() {
        log::fail("the suite was interrupted, so that there are no results");
        return Ok(ExitCode::FAILURE);
    }
    let scenarios = match measured? {
        Ok(scenarios) => scenarios,
        Err(error) => {
            log::fail(&format!("{error:#}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    let results = Results {
        scenarios,
        ..Results::new(&host().name, args.scale)
    };
    if let Some(path) = &args.save {
        results.save(path)?;
    }
    if let Some(path) = &args.html {
        let title = args.suite.file_stem().unwrap_or_default();
        let page = page::page(&title.to_string_lossy(), &results);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(report::text(&results).as_bytes())?;
    let mut is_worse = false;
    if let Some(baseline) = &baseline {
        let changes = compare(&results, baseline, suite.tolerance);
        is_worse = changes.iter().any(|change| change.is_regression);
        print(report::changes(&changes, &results, baseline).as_bytes())?;
    }
    Ok(ExitCode::from(u8::from(is_worse)))
}

fn baseline_of(path: &Path, scale: f64) -> anyhow::Result<Results> {
    let baseline = Results::read(path)?;
    if baseline.scale != scale {
        let (name, before) = (path.display(), baseline.scale);
        bail!(
            "{name} was measured with `--scale {before}`, and this is {scale}: they cannot be compared"
        );
    }
    Ok(baseline)
}

/// The scenarios that are wanted.
fn chosen<'s>(suite: &'s Suite, only: &[String]) -> anyhow::Result<Vec<&'s Scenario>> {
    let names = || suite.scenarios.iter().map(|scenario| &*scenario.name);
    if let Some(wrong) = only.iter().find(|only| !names().any(|name| name == **only)) {
        let hint = closest(wrong, names()).map(|word| format!("; did you mean `{word}`?"));
        let accepted = names().collect::<Vec<_>>().join(", ");
        bail!(
            "there is no scenario `{wrong}`{}\naccepted: {accepted}",
            hint.unwrap_or_default()
        );
    }
    let is_wanted = |scenario: &&Scenario| only.is_empty() || only.contains(&scenario.name);
    Ok(suite.scenarios.iter().filter(is_wanted).collect())
}

/// Checks every scenario, and makes its files.
fn prepare<'s>(
    scenarios: &[&'s Scenario],
    scale: f64,
    cache: &Path,
    work: &Path,
    interruption: &'s Interruption,
) -> anyhow::Result<Vec<Attempt<'s>>> {
    let mut attempts = Vec::new();
    for scenario in scenarios {
        let settings = &scenario.settings;
        let files = settings
            .files
            .as_ref()
            .map(|files| Scaled::new(files, scale));
        let set = files.as_ref().map(|files| files.set(cache));
        let counted = set.as_ref().map_or(0, |set| set.events);
        let attempt = Attempt {
            scenario,
            files: set.map(|set| set.folder),
            work: work.join(&scenario.name),
            events: settings.events.as_ref().map_or(counted, |events| events.0),
            interruption,
        };
        attempt.check()?;
        attempts.push((attempt, files));
    }
    let made = attempts.into_iter().map(|(attempt, files)| {
        if let Some(files) = files {
            files.make(cache, interruption)?;
        }
        Ok(attempt)
    });
    made.collect()
}

/// Runs everything; an error within is one of a run.
fn measure(attempts: &[Attempt<'_>], runs: usize) -> anyhow::Result<anyhow::Result<Vec<Measured>>> {
    let mut all: Vec<Measured> = attempts.iter().map(Measured::empty).collect();
    for number in 1..=runs {
        for (attempt, measured) in attempts.iter().zip(&mut all) {
            let name = &attempt.scenario.name;
            let outcome = match attempt.make() {
                Ok(outcome) => outcome,
                Err(error) => {
                    return Ok(Err(
                        error.context(format!("scenario {name}, run {number} of {runs}"))
                    ));
                }
            };
            say(&format!(
                "run {number} of {runs}: {name}: {} events/s, {:.3} CPU-seconds per million events",
                grouped(outcome.events_per_second() as u64),
                outcome.cpu_per_million(),
            ));
            measured.runs.push(outcome);
        }
    }
    Ok(Ok(all))
}

impl Measured {
    fn empty(attempt: &Attempt<'_>) -> Self {
        let what = match &attempt.scenario.work {
            Work::Line(line) => line.split_whitespace().collect::<Vec<_>>().join(" "),
            Work::Configured(node) => config::to_yaml(node),
            Work::Foreign { command, .. } => {
                let words: Vec<&str> = command
                    .items()
                    .iter()
                    .flat_map(|word| word.as_str())
                    .collect();
                words.join(" ")
            }
        };
        Self {
            name: attempt.scenario.name.clone(),
            what,
            runs: Vec::new(),
        }
    }
}
