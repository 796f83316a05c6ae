//! `millpond profile diff`: what has changed from one profile to another.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use component::plural;
use profiler::cost::Rates;
use profiler::diff::{self, Change, Comparison, Normalise, compare};
use profiler::filter::Filter;
use profiler::flame;
use profiler::store::query::TableSum;
use profiler::top::Group;
use serde_json::json;

use super::files::{ALWAYS, Sources};
use super::flame::{is_picture, write};
use super::{DiffArgs, group, lost, ranges};
use crate::console::{print, say};

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
    sources: Sources,
    /// Which samples count.
    filter: Filter,
    /// The time of its files.
    range: Range<i64>,
    title: String,
}

impl Side {
    /// The samples of a path that a filter takes and these selections, given as an option: ranges of time, and labels.
    fn of(
        path: &Path,
        filter: &Filter,
        option: &str,
        selections: &[String],
    ) -> anyhow::Result<Self> {
        let (mut range, mut labels) = (ALWAYS, Vec::new());
        let mut title = path.display().to_string();
        for selection in selections {
            match selection.contains('=') {
                true => labels.push(Filter::parse_label(selection)?),
                false => range = ranges::parse(selection)?,
            }
            title = format!("{title} {selection}");
        }
        for (name, _) in &labels {
            // Values of one name are alternatives: together they would take more than each.
            if filter.labels.iter().any(|(known, _)| known == name) {
                bail!("`{name}` is given with both --filter and {option}: leave it out of one");
            }
        }
        Ok(Self {
            sources: Sources::new(&[path.to_owned()], &range)?,
            filter: Filter {
                labels: [&filter.labels[..], &labels].concat(),
                function: filter.function.clone(),
            },
            range,
            title,
        })
    }

    /// The table, all its rows in full, and the processor time of each host.
    fn table(&self, group: &Group) -> anyhow::Result<(diff::Side, BTreeMap<String, u64>)> {
        let (mut sum, mut hosts) = (TableSum::default(), BTreeMap::new());
        self.sources.tables(&self.filter, group, |host, scanned| {
            *hosts.entry(host.to_owned()).or_default() += scanned.table.all.cpu_ns;
            // What it costs is told of both sides alike, when they are compared.
            sum.add(scanned, &Rates::here());
        })?;
        let (table, window) = (sum.table(), sum.window);
        if table.rows.is_empty() {
            bail!("there are no samples to compare in {}", self.title);
        }
        let title = format!("{}: ", self.title);
        lost::warn(&title, &self.filter, table.all.samples, sum.lost);
        Ok((diff::Side { table, window }, hosts))
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
    let before = Side::of(&args.first, &filter, "--before", &args.before)?;
    let after = Side::of(second, &filter, "--after", &args.after)?;
    let is_apart = before.range.end <= after.range.start || after.range.end <= before.range.start;
    let shared = before.sources.shared(&after.sources);
    if is_apart && shared > 0 {
        let files = plural(shared as u64, "file");
        say(&format!(
            "warning: both ranges have a part of {files} of the store, each of which counts in both: the difference is too small"
        ));
    }
    let (of_before, _) = before.table(&group)?;
    let (of_after, hosts) = after.table(&group)?;
    let rates = tariff.mean_of(hosts.iter().map(|(host, cpu_ns)| (&**host, *cpu_ns)));
    let comparison = compare(of_before, of_after, normalise, &rates)?;
    let text = match args.json {
        true => lines(&comparison, args.rows),
        false => sheet(&comparison, args.rows),
    };
    print(text.as_bytes())?;
    if let Some(path) = &args.output {
        page(path, &before, &after, comparison.scale, rates)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the flame graph that compares both sides.
fn page(path: &Path, before: &Side, after: &Side, scale: f64, rates: Rates) -> anyhow::Result<()> {
    if is_picture(path) {
        bail!("a comparison is a page: give it a name that ends in .html");
    }
    let options = flame::Options {
        title: format!("{} → {}", before.title, after.title),
        rates,
    };
    let before = before.sources.graph(&before.filter)?;
    let after = after.sources.graph(&after.filter)?;
    let text = flame::html_diff(&before, &after, &Filter::default(), scale, &options);
    write(path, &text, &[&before, &after])
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
