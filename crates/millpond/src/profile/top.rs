//! `millpond profile top`: the costliest functions, with what they cost a year.

use std::fmt::Write;
use std::process::ExitCode;

use component::{grouped, plural};
use profiler::Profile;
use profiler::advice;
use profiler::cost::{Cost, Rates};
use profiler::filter::Filter;
use profiler::profile::Weight;
use profiler::top::{Group, Table, table};
use serde_json::json;

use super::{TopArgs, files, group};
use crate::console::print;

pub fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let (filter, rates) = (args.filter.filter()?, args.rates.rates()?);
    let group = group(&args.by)?;
    let profile = files::read_all(&args.files)?;
    let mut table = table(&profile, &filter, &group);
    if args.total {
        table.rows.sort_by_key(|row| std::cmp::Reverse(row.total));
    }
    table.rows.truncate(args.rows);
    let sheet = Sheet {
        table,
        window_ns: profile.window.duration_ns,
        rates,
    };
    let text = match args.json {
        true => sheet.json(),
        false => head(&profile, &sheet.table) + &sheet.text(&group) + &advice(&profile, &filter),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn head(profile: &Profile, table: &Table) -> String {
    let seconds = profile.window.duration_ns as f64 / 1e9;
    let mut text = format!(
        "{} at {} Hz in {seconds:.1} s: {:.2} s of processor time",
        plural(table.all.samples, "sample"),
        profile.frequency_hz,
        table.all.cpu_ns as f64 / 1e9
    );
    if profile.lost > 0 {
        let _ = write!(text, "; {} lost", plural(profile.lost, "sample"));
    }
    text + "\n\n"
}

/// What to look at.
fn advice(profile: &Profile, filter: &Filter) -> String {
    let mut text = String::new();
    for finding in advice::summary(profile, filter) {
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
    table: Table,
    window_ns: u64,
    rates: Rates,
}

impl Sheet {
    fn cost(&self, weight: Weight) -> Cost {
        Cost::a_year(weight, self.window_ns, &self.rates)
    }

    fn share(&self, weight: Weight) -> f64 {
        weight.cpu_ns as f64 * 100.0 / self.table.all.cpu_ns.max(1) as f64
    }

    fn text(&self, group: &Group) -> String {
        let what = match group {
            Group::Function => "function",
            Group::Label(name) => name,
        };
        let mut text = format!(
            "{:>7} {:>9} {:>7} {:>9} {:>9} {:>12} {:>10} {:>9}  {what}\n",
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
            let cost = self.cost(row.own);
            let _ = writeln!(
                text,
                "{:>6.2}% {:>9.2} {:>6.2}% {:>9.2} {:>9} {:>12.1} {:>10.2} {:>9.4}  {}",
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
        for row in &self.table.rows {
            let cost = self.cost(row.own);
            let object = json!({
                "name": row.name,
                "binary": row.binary,
                "self": { "samples": row.own.samples, "cpu_ns": row.own.cpu_ns, "share": self.share(row.own) / 100.0 },
                "total": { "samples": row.total.samples, "cpu_ns": row.total.cpu_ns, "share": self.share(row.total) / 100.0 },
                "kind": advice::of_names(&row.name, &row.binary).map(|rule| rule.title),
                "a_year": { "core_hours": cost.core_hours, "usd": cost.usd, "co2_tonnes": cost.co2_tonnes },
            });
            let _ = writeln!(text, "{object}");
        }
        text
    }
}

/// A function with its binary, where the name does not say that.
pub(super) fn shown(name: &str, binary: &str) -> String {
    let name = if name.is_empty() { "(none)" } else { name };
    match binary.rsplit('/').next().unwrap_or_default() {
        "" => name.to_owned(),
        binary if name.starts_with(binary) => name.to_owned(),
        binary => format!("{name}  ({binary})"),
    }
}
