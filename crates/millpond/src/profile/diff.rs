//! `millpond profile diff`: what has changed from one profile to another.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use profiler::Profile;
use profiler::diff::{Change, Comparison, Normalise, compare};
use profiler::filter::Filter;
use profiler::flame;
use serde_json::json;

use super::files::{ALWAYS, Sources};
use super::flame::{is_picture, write};
use super::{DiffArgs, group, ranges};
use crate::console::print;

/// For the same amount of what profiles are compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Time that went by.
    Time,
    /// Processor time: shares.
    Samples,
    /// Work: numbers of events.
    Events,
}

/// One of the two sides.
struct Side {
    paths: Vec<PathBuf>,
    range: Range<i64>,
    labels: Filter,
    title: String,
}

impl Side {
    /// Paths, of which the samples count that these selections take: ranges of time, and labels.
    fn of(path: &Path, selections: &[String]) -> anyhow::Result<Self> {
        let mut side = Self {
            paths: vec![path.to_owned()],
            range: ALWAYS,
            labels: Filter::default(),
            title: path.display().to_string(),
        };
        for selection in selections {
            match selection.contains('=') {
                true => side.labels.labels.push(Filter::parse_label(selection)?),
                false => side.range = ranges::parse(selection)?,
            }
            side.title = format!("{} {selection}", side.title);
        }
        Ok(side)
    }

    fn profile(&self, filter: &Filter) -> anyhow::Result<Profile> {
        let whole = Filter {
            labels: [&filter.labels[..], &self.labels.labels].concat(),
            function: filter.function.clone(),
        };
        let sources = Sources::new(&self.paths, self.range.clone())?;
        let profile = sources.profile(&whole)?;
        let profile = match self.labels.is_empty() {
            true => profile,
            false => self.labels.part(&profile),
        };
        if profile.is_empty() {
            bail!("there are no samples to compare in {}", self.title);
        }
        Ok(profile)
    }
}

pub fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (filter, tariff) = (args.filter.filter()?, args.rates.tariff()?);
    let group = group(&args.by)?;
    let normalise = normalise(args)?;
    let second = args.second.as_ref().unwrap_or(&args.first);
    if args.second.is_none() && args.before.is_empty() && args.after.is_empty() {
        bail!(
            "two profiles are compared: give a second one, or say with --before and --after which parts of the first are, as a range of time (FROM..TO) or a label (NAME=VALUE)"
        );
    }
    let before_side = Side::of(&args.first, &args.before)?;
    let after_side = Side::of(second, &args.after)?;
    let (before, after) = (before_side.profile(&filter)?, after_side.profile(&filter)?);
    let rates = tariff.mean(&after);
    let comparison = compare(&before, &after, &filter, &group, normalise, &rates)?;
    let text = match args.json {
        true => lines(&comparison, args.rows),
        false => sheet(&comparison, args.rows),
    };
    print(text.as_bytes())?;
    if let Some(path) = &args.output {
        if is_picture(path) {
            bail!("a comparison is a page: give it a name that ends in .html");
        }
        let options = flame::Options {
            title: format!("{} → {}", before_side.title, after_side.title),
            rates,
        };
        let page = flame::html_diff(&before, &after, &filter, comparison.scale, &options);
        write(path, &page)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn normalise(args: &DiffArgs) -> anyhow::Result<Normalise> {
    match (args.normalise, &args.events[..]) {
        (By::Time, []) => Ok(Normalise::Time),
        (By::Samples, []) => Ok(Normalise::Samples),
        (By::Events, [before, after]) => Ok(Normalise::Events {
            before: *before,
            after: *after,
        }),
        (By::Events, _) => {
            bail!(
                "--normalise events needs --events BEFORE AFTER: how many there were while each profile was recorded"
            )
        }
        (_, _) => bail!("--events is for --normalise events"),
    }
}

fn lines(comparison: &Comparison, rows: usize) -> String {
    let mut text = String::new();
    for change in comparison.changes.iter().take(rows) {
        let object = json!({
            "name": change.name,
            "binary": change.binary,
            "self_ns": { "before": change.own_ns[0], "after": change.own_ns[1] },
            "total_ns": { "before": change.total_ns[0], "after": change.total_ns[1] },
            "gained_ns": change.gained_ns(),
        });
        let _ = writeln!(text, "{object}");
    }
    text
}

fn sheet(comparison: &Comparison, rows: usize) -> String {
    let [before, after] = comparison.all_ns;
    let seconds = |ns: f64| ns / 1e9;
    let mut text = format!(
        "processor time {:.2} s before, {:.2} s after ({:+.1} %)\n",
        seconds(before),
        seconds(after),
        (after / before - 1.0) * 100.0
    );
    if let Some([before, after]) = comparison.cost {
        let saved = before - after;
        let word = if saved.core_hours >= 0.0 {
            "saved"
        } else {
            "more"
        };
        let _ = writeln!(
            text,
            "{word} a year: {:.1} core-hours, {:.2} USD, {:.4} t CO2",
            saved.core_hours.abs(),
            saved.usd.abs(),
            saved.co2_tonnes.abs()
        );
    }
    let _ = writeln!(
        text,
        "\n{:>11} {:>11} {:>11} {:>8}  function",
        "self before", "self after", "change", "of all"
    );
    for change in comparison.changes.iter().take(rows) {
        let Change {
            own_ns: [was, is], ..
        } = change;
        let _ = writeln!(
            text,
            "{:>9.2} s {:>9.2} s {:>+9.2} s {:>+7.2}%  {}",
            seconds(*was),
            seconds(*is),
            seconds(change.gained_ns()),
            change.gained_ns() * 100.0 / before,
            super::top::shown(&change.name, &change.binary)
        );
    }
    text
}
