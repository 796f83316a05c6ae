//! `millpond profile top`: the costliest functions, with what they cost a year.

use std::fmt::Write;
use std::process::ExitCode;

use component::terminal::escaped;
use component::{grouped, plural};
use profiler::advice::{self, Finding};
use profiler::filter::Filter;
use profiler::profile::Weight;
use profiler::store::query::TableSum;
use profiler::top::{Group, Row, Table};
use serde_json::json;

use super::chart::Chart;
use super::files::{Sources, length};
use super::{NO_SAMPLES, TopArgs, group, lost};
use crate::console::{print, say};

/// Advice needs whole stacks: of stores with more bytes it is left out.
const ADVICE_BYTES_MAX: u64 = 64 << 20;

pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let (filter, tariff) = (args.filter.filter()?, args.rates.tariff()?);
    let group = group(&args.by)?;
    let sources = Sources::new(&args.files, &args.range.range()?)?;
    let mut sum = TableSum::default();
    sources.tables(&filter, &group, |host, scanned| {
        sum.add(scanned, tariff.of(host));
    })?;
    let mut table = sum.table();
    if table.rows.is_empty() && !filter.is_empty() {
        say(NO_SAMPLES);
    }
    if args.total {
        table.rows.sort_by_key(|row| std::cmp::Reverse(row.total));
    }
    table.rows.truncate(args.rows);
    let mut sheet = Sheet {
        table,
        sum,
        chart: None,
    };
    if args.over_time {
        let mut chart = Chart::new(sheet.sum.window, &sheet.table.rows);
        sources.tables(&filter, &group, |_, scanned| chart.add(scanned))?;
        sheet.chart = Some(chart);
    }
    let text = match args.json {
        true => sheet.json(),
        false => sheet.head() + &sheet.text(&group) + &look_at(&sources, &filter)?,
    };
    print(text.as_bytes())?;
    lost::warn("", &filter, sheet.table.all.samples, sheet.sum.lost);
    Ok(ExitCode::SUCCESS)
}

/// What to look at, where that can be told.
fn look_at(sources: &Sources, filter: &Filter) -> anyhow::Result<String> {
    if sources.stored_bytes() > ADVICE_BYTES_MAX {
        let text = "\nWhat to look at is shown for less: choose a host with --filter host=NAME, or a time with --since.\n";
        return Ok(text.to_owned());
    }
    Ok(advice(&sources.advice(filter)?.findings()))
}

/// What to look at.
fn advice(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let functions: Vec<&str> = finding
            .functions
            .iter()
            .take(3)
            .map(|(name, _)| &**name)
            .collect();
        let _ = writeln!(
            text,
            "\n{:.1} % {}: {}\n       {}\n       {}",
            // With what they call: an allocation that enters the kernel takes its time there.
            finding.total_share * 100.0,
            finding.rule.title,
            functions.join(", "),
            finding.rule.advice,
            finding.rule.source_url
        );
    }
    text
}

struct Sheet {
    /// The rows that are shown.
    table: Table,
    sum: TableSum,
    chart: Option<Chart>,
}

impl Sheet {
    fn head(&self) -> String {
        let frequency = match self.sum.frequency_hz.unwrap_or_default() {
            (least, most) if least < most => format!("{least} to {most}"),
            (hz, _) => hz.to_string(),
        };
        let mut text = format!(
            "{} at {frequency} Hz in {}: {:.2} s of processor time",
            plural(self.table.all.samples, "sample"),
            length(self.sum.window.duration_ns),
            self.table.all.cpu_ns as f64 / 1e9
        );
        if self.sum.lost > 0 {
            let _ = write!(text, "; {} lost", plural(self.sum.lost, "sample"));
        }
        let cost = self.sum.cost();
        if cost.core_hours > 0.0 {
            let _ = write!(
                text,
                "\na year like this: {:.0} core-hours, {:.2} USD, {:.3} t CO2",
                cost.core_hours, cost.usd, cost.co2_tonnes
            );
        }
        text + "\n\n"
    }

    /// Processor time for each log event of a row, in nanoseconds; none where none were counted.
    fn ns_per_event(&self, row: &Row) -> Option<f64> {
        let events = *self.sum.events.get(&row.name)?;
        (events > 0).then(|| row.own.cpu_ns as f64 / events as f64)
    }

    fn share(&self, weight: Weight) -> f64 {
        weight.cpu_ns as f64 * 100.0 / self.table.all.cpu_ns.max(1) as f64
    }

    fn text(&self, group: &Group) -> String {
        let what = match group {
            Group::Function => "function",
            Group::Label(name) => name,
        };
        let mut text = String::new();
        if let Some(chart) = &self.chart {
            let rows = self.table.rows.iter();
            let names: Vec<String> = rows.map(|row| shown(&row.name, &row.binary)).collect();
            text += &chart.text(&names);
        }
        // Functions of any program have no events.
        let is_of_events = self
            .table
            .rows
            .iter()
            .any(|row| self.ns_per_event(row).is_some());
        let per_event = if is_of_events { "  µs/event" } else { "" };
        let _ = writeln!(
            text,
            "{:>7} {:>9} {:>7} {:>9} {:>9} {:>12} {:>10} {:>10}{per_event}  {what}",
            "self",
            "self s",
            "total",
            "total s",
            "samples",
            "core-h/year",
            "USD/year",
            "t CO2/year"
        );
        for row in &self.table.rows {
            // What a row costs is its own time, so that rows add up.
            let cost = self.sum.cost_of(row);
            let per_event = match (is_of_events, self.ns_per_event(row)) {
                (false, _) => String::new(),
                (true, None) => " ".repeat(10),
                (true, Some(ns)) => format!("{:>10.3}", ns / 1e3),
            };
            let _ = writeln!(
                text,
                "{:>6.2}% {:>9.2} {:>6.2}% {:>9.2} {:>9} {:>12.1} {:>10.2} {:>10.4}{per_event}  {}",
                self.share(row.own),
                row.own.cpu_ns as f64 / 1e9,
                self.share(row.total),
                row.total.cpu_ns as f64 / 1e9,
                grouped(row.own.samples),
                cost.core_hours,
                cost.usd,
                cost.co2_tonnes,
                shown(&row.name, &row.binary)
            );
        }
        text
    }

    fn json(&self) -> String {
        let mut text = String::new();
        for (index, row) in self.table.rows.iter().enumerate() {
            let cost = self.sum.cost_of(row);
            let mut object = json!({
                "name": named(&row.name),
                "binary": row.binary,
                "self": { "samples": row.own.samples, "cpu_ns": row.own.cpu_ns, "share": self.share(row.own) / 100.0 },
                "total": { "samples": row.total.samples, "cpu_ns": row.total.cpu_ns, "share": self.share(row.total) / 100.0 },
                "kind": advice::of_names(&row.name, &row.binary).map(|rule| rule.title),
                "a_year": { "core_hours": cost.core_hours, "usd": cost.usd, "co2_tonnes": cost.co2_tonnes },
            });
            if let Some(ns) = self.ns_per_event(row) {
                object["events"] = json!(self.sum.events[&row.name]);
                object["ns_per_event"] = json!(ns);
            }
            if let Some(chart) = &self.chart {
                object["over_time"] = chart.json(index);
            }
            let _ = writeln!(text, "{object}");
        }
        text
    }
}

/// A name; samples without a label have none.
fn named(name: &str) -> &str {
    if name.is_empty() { "(none)" } else { name }
}

/// A function with its binary, where the name does not say that. Names are those of any program: what would control the terminal is escaped.
pub(super) fn shown(name: &str, binary: &str) -> String {
    let name = named(name);
    let shown = match binary.rsplit('/').next().unwrap_or_default() {
        "" => name.to_owned(),
        binary if name.starts_with(binary) => name.to_owned(),
        binary => format!("{name}  ({binary})"),
    };
    escaped(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_control_the_terminal() {
        assert_eq!(shown("a\u{1b}[2J\nb", "/bin/c"), "a\\u{1b}[2J\\nb  (c)");
        assert_eq!(shown("", ""), "(none)");
        assert_eq!(shown("c+0x10", "/bin/c"), "c+0x10");
    }
}
