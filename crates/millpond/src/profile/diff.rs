//! `millpond profile diff`: what has changed from one profile to another.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use profiler::diff::{Change, Comparison, Normalise, compare};
use profiler::flame;
use serde_json::json;

use super::flame::{is_picture, write};
use super::{DiffArgs, files, group};
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

pub fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (filter, rates) = (args.filter.filter()?, args.rates.rates()?);
    let group = group(&args.by)?;
    let normalise = normalise(args)?;
    let (before, after) = (
        files::read_all(&[&args.before])?,
        files::read_all(&[&args.after])?,
    );
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
            title: format!("{} → {}", args.before.display(), args.after.display()),
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
