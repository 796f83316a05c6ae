//! Results as text.

use std::fmt::Write;
use std::time::Duration;

use component::{grouped, plural_were};
use pipeline::report::{bytes, time};

use super::results::{Change, Measured, Results};
use super::series::Series;

/// Columns of a chart.
const CHART: usize = 60;

/// Tables and charts.
pub fn text(results: &Results) -> String {
    let names = results.scenarios.iter().map(|measured| measured.name.len());
    let width = names.max().unwrap_or(0).max("scenario".len());
    let mut text = format!(
        "\n{:<width$}  {:>22}  {:>17}  {:>17}\n",
        "scenario", "events/s", "CPU-s/M events", "peak memory"
    );
    for measured in &results.scenarios {
        let (rate, cpu, memory) = (measured.throughput(), measured.cpu(), measured.memory());
        let _ = writeln!(
            text,
            "{:<width$}  {:>14} ±{:>4.0} %  {:>9.3} ±{:>4.0} %  {:>9} ±{:>4.0} %",
            measured.name,
            grouped(rate.median as u64),
            rate.percent(),
            cpu.median,
            cpu.percent(),
            bytes(memory.median as u64),
            memory.percent(),
        );
    }
    let runs = results.scenarios.iter().map(|measured| measured.runs.len());
    if runs.max().unwrap_or(0) > 1 {
        text += "medians; ± half of the distance between the best and the worst run\n";
    }
    for measured in &results.scenarios {
        write_charts(&mut text, measured);
    }
    text
}

fn write_charts(text: &mut String, measured: &Measured) {
    let Some(run) = measured.typical() else {
        return;
    };
    let (cpus, memory) = (
        Series::cpus(&run.samples, CHART),
        Series::memory(&run.samples, CHART),
    );
    let took = time(Duration::from_secs_f64(run.wall_seconds));
    let _ = writeln!(
        text,
        "\n{}: {} events in {took}",
        measured.name,
        grouped(run.events)
    );
    if cpus.values.len() > 1 {
        let _ = writeln!(
            text,
            "  CPU     {}  up to {:.2} CPUs",
            cpus.blocks(),
            cpus.max()
        );
        let _ = writeln!(
            text,
            "  memory  {}  up to {}",
            memory.blocks(),
            bytes(memory.max() as u64)
        );
    }
    if let Some(cpu) = run.receiver_cpu_seconds {
        let _ = writeln!(text, "  Millpond, which received: {cpu:.2} CPU-seconds");
    }
    if let Some(verdict) = &run.verdict {
        for line in verdict.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    if let Some((runs, most)) = measured.disturbed() {
        let _ = writeln!(
            text,
            "  {} disturbed: other programs and the kernel's own work used up to {most:.1} CPUs",
            plural_were(runs as u64, "run"),
        );
    }
}

/// What has changed since the baseline.
pub fn changes(changes: &[Change], now: &Results, baseline: &Results) -> String {
    let mut text = "\ncompared with the baseline:\n".to_owned();
    if baseline.cpus != now.cpus || baseline.host != now.host {
        let _ = writeln!(
            text,
            "  it was measured on another machine: {} with {} CPUs, now {} with {}",
            baseline.host, baseline.cpus, now.host, now.cpus
        );
    }
    for change in changes {
        let words = match change.worse_percent {
            worse if worse >= 0.0 => format!("{worse:.1} % worse"),
            better => format!("{:.1} % better", -better),
        };
        let mark = if change.is_regression {
            "  REGRESSION"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  {}: {}: {words}{mark}",
            change.scenario, change.figure
        );
    }
    for measured in &now.scenarios {
        if !changes
            .iter()
            .any(|change| change.scenario == measured.name)
        {
            let _ = writeln!(text, "  {}: not in the baseline", measured.name);
        }
    }
    text
}
