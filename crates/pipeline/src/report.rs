//! What a run did.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

pub use component::Role;
use component::metrics::Snapshot;
use component::series::{Metric, SampleValue};
use component::{Component, FileLedger, grouped};

use crate::usage::Usage;

/// What a run did, all pipelines.
#[derive(Debug, Clone)]
pub struct Report {
    /// The pipelines.
    pub pipelines: Vec<PipelineReport>,
    /// What the process used from the start to the end.
    pub usage: Usage,
    /// CPU time of the async runtime, and of the workers beside their work for pipelines.
    pub runtime_cpu: Duration,
}

/// What one pipeline did.
#[derive(Debug, Clone)]
pub struct PipelineReport {
    /// Its name.
    pub name: String,
    /// Whether other pipelines feed it, so that its events are theirs.
    pub is_fed: bool,
    /// Its own work, which is that of no component: CPU time, and how long workers waited because outputs had no room.
    pub own: Snapshot,
    /// Its inputs, its queue where that is reported, its processors and outputs, in the order of the flow.
    pub operators: Vec<OperatorReport>,
    /// How long it went on after its inputs had sent their last events.
    pub after_reading: Duration,
    /// What became of the files that its inputs read.
    pub files: Vec<FileLedger>,
    /// What went wrong.
    pub problems: Vec<Problem>,
    /// What is likely a slip of the configuration, such as a field that no event had. No failure.
    pub remarks: Vec<Problem>,
    /// Events that went to no output, because the `if` of none was true. No failure.
    pub unclaimed: u64,
    /// Events accepted and not delivered.
    pub undelivered: u64,
    /// Events that an output refused and that are lost, because there are no dead letters.
    pub refused: u64,
    /// Dead letters that were dropped because there were too many, or they were too old, as the settings say.
    pub letters_dropped: u64,
    /// Events that are left in the disk queue for a later run, which is no failure.
    pub queued: u64,
}

/// Something that went wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The operator.
    pub component: Component,
    /// One line.
    pub text: String,
}

impl Problem {
    /// A problem of the operator of that kind and name.
    pub fn new(role: Role, name: &str, text: String) -> Self {
        Self {
            component: Component::new(role, name),
            text,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.component, self.text)
    }
}

/// What one operator did.
#[derive(Debug, Clone)]
pub struct OperatorReport {
    /// What kind it is.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its counters.
    pub counts: Snapshot,
    /// What it measures of events.
    pub metric: Option<Arc<Metric>>,
}

impl Report {
    /// Whether everything was read and delivered.
    pub fn is_clean(&self) -> bool {
        self.pipelines.iter().all(|pipeline| {
            pipeline.problems.is_empty() && pipeline.undelivered + pipeline.refused == 0
        })
    }

    /// Events that the inputs brought in.
    pub fn events(&self) -> u64 {
        let read = self.pipelines.iter().filter(|pipeline| !pipeline.is_fed);
        let operators = read.flat_map(|pipeline| &pipeline.operators);
        operators
            .filter(|operator| operator.role == Role::Input)
            .map(|operator| operator.counts.events_out)
            .sum()
    }

    /// Events that became dead letters.
    pub fn dead_letters(&self) -> u64 {
        let operators = self.pipelines.iter().flat_map(|it| &it.operators);
        operators.map(|operator| operator.counts.dead_letters).sum()
    }

    /// A table of every operator's counters.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for pipeline in &self.pipelines {
            if self.pipelines.len() > 1 {
                let _ = writeln!(text, "pipeline {}", pipeline.name);
            }
            pipeline.write_table(&mut text);
            pipeline.write_metrics(&mut text);
            if !pipeline.files.is_empty() {
                text.push_str(&file_table(&pipeline.files, FILES_SHOWN));
            }
        }
        text
    }
}

/// Series of a metric that a report shows at most.
const SERIES_SHOWN: usize = 50;

/// Rows of files that a report shows at most.
const FILES_SHOWN: usize = 50;

/// A table of what became of files, with `max` rows at most: those with the most bytes on their way or unread first.
pub fn file_table(files: &[FileLedger], max: usize) -> String {
    let heads = [
        "file",
        "state",
        "size",
        "position",
        "lag",
        "read",
        "acknowledged",
        "dropped",
        "dead letters",
        "in flight",
        "checkpoints",
    ];
    let mut shown: Vec<&FileLedger> = files.iter().collect();
    if shown.len() > max {
        shown.sort_by_key(|file| std::cmp::Reverse(file.in_flight_bytes + file.lag_bytes));
        shown.truncate(max);
        shown.sort_by(|one, other| one.path.cmp(&other.path));
    }
    let cells = |file: &&FileLedger| {
        let dropped: u64 = file.dropped.iter().map(|dropped| dropped.events).sum();
        [
            file.path.clone(),
            file.state.to_string(),
            grouped(file.size),
            grouped(file.position),
            lag(file),
            grouped(file.read_events),
            grouped(file.acknowledged_events),
            grouped(dropped),
            grouped(file.dead_letters),
            grouped(file.in_flight_events),
            grouped(file.checkpoints),
        ]
    };
    let rows: Vec<[String; 11]> = shown.iter().map(cells).collect();
    let mut text = String::new();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads = heads.map(str::to_owned);
    for row in std::iter::once(&heads).chain(&rows) {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    if files.len() > shown.len() {
        let left = grouped((files.len() - shown.len()) as u64);
        let _ = writeln!(text, "and {left} more files");
    }
    text
}

/// How far a file is behind, in bytes and time.
fn lag(file: &FileLedger) -> String {
    match (file.lag_bytes, file.lag_seconds) {
        (0, _) => "0".to_owned(),
        (bytes, seconds) => format!("{} {seconds}s", grouped(bytes)),
    }
}

impl PipelineReport {
    fn write_table(&self, text: &mut String) {
        let heads = [
            "operator",
            "events in",
            "events out",
            "dropped",
            "failed",
            "dead letters",
            "bytes",
            "busy",
            "waiting",
        ];
        let mut rows: Vec<[String; 9]> = self.operators.iter().map(OperatorReport::cells).collect();
        if self.unclaimed > 0 {
            let mut cells = std::array::from_fn(|_| "-".to_owned());
            cells[0] = "(no output)".to_owned();
            cells[1] = grouped(self.unclaimed);
            rows.push(cells);
        }
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].len())
                .chain([heads[column].len()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let mut line = |cells: &[&str], note: &str| {
            for (column, cell) in cells.iter().enumerate() {
                let _ = if column == 0 {
                    write!(text, "{cell:<w$}", w = widths[0])
                } else {
                    write!(text, "  {cell:>w$}", w = widths[column])
                };
            }
            let _ = writeln!(text, "{note}");
        };
        line(&heads, "");
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let operator = self.operators.get(index);
            let named: Vec<String> = operator
                .into_iter()
                .flat_map(|operator| &operator.counts.named)
                .map(|(name, count)| format!("{name} {}", grouped(*count)))
                .collect();
            let note = if named.is_empty() {
                String::new()
            } else {
                format!("  ({})", named.join(", "))
            };
            line(&cells, &note);
        }
    }

    /// What processors measured of events.
    fn write_metrics(&self, text: &mut String) {
        for metric in self.operators.iter().filter_map(|it| it.metric.as_ref()) {
            let definition = metric.definition();
            let samples = metric.samples();
            for sample in samples.iter().take(SERIES_SHOWN) {
                text.push_str(&definition.name);
                let labels = definition.labels.iter().zip(&sample.labels);
                for (index, (name, value)) in labels.enumerate() {
                    let before = if index == 0 { "{" } else { "," };
                    let _ = write!(text, "{before}{name}={value:?}");
                }
                let after = if definition.labels.is_empty() {
                    ""
                } else {
                    "}"
                };
                let _ = match &sample.value {
                    SampleValue::Number(number) => writeln!(text, "{after} {number}"),
                    SampleValue::Distribution { sum, buckets } => {
                        let count: u64 = buckets.iter().sum();
                        writeln!(text, "{after} count {count} sum {sum}")
                    }
                };
            }
            if samples.len() > SERIES_SHOWN {
                let more = grouped((samples.len() - SERIES_SHOWN) as u64);
                let _ = writeln!(text, "{} … and {more} more", definition.name);
            }
        }
    }
}

impl OperatorReport {
    fn cells(&self) -> [String; 9] {
        let counts = &self.counts;
        [
            self.name.clone(),
            grouped(counts.events_in),
            grouped(counts.events_out),
            grouped(counts.dropped),
            grouped(counts.failures),
            grouped(counts.dead_letters),
            if counts.bytes == 0 {
                "-".to_owned()
            } else {
                bytes(counts.bytes)
            },
            time(counts.busy),
            time(counts.wait),
        ]
    }
}

/// Bytes in the unit that suits them.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// A time in the unit that suits it.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1 << 20), "1.0 MiB");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(time(Duration::from_micros(250)), "0.2 ms");
    }
}
