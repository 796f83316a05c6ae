//! The costliest rows over time, as a line of blocks for each.

use std::collections::HashMap;
use std::fmt::Write;

use profiler::pprof::Scanned;
use profiler::profile::Window;
use profiler::top::Row;
use serde_json::{Value, json};

use super::files::{length, shown};

/// How many columns a chart has.
const COLUMNS: usize = 60;

/// Heights from nothing to everything; the lowest one that is seen is more than nothing.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Processor time by row and column.
pub struct Chart {
    window: Window,
    rows: Vec<Line>,
    by_name: HashMap<(String, String), usize>,
    all: Line,
}

/// Cores that were busy in each column.
#[derive(Clone)]
struct Line([f64; COLUMNS]);

impl Line {
    fn max(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / COLUMNS as f64
    }

    fn blocks(&self) -> String {
        let max = self.max();
        let block = |cores: &f64| match *cores > 0.0 {
            true => BLOCKS[((cores / max * 8.0).ceil() as usize).clamp(1, 8)],
            false => BLOCKS[0],
        };
        self.0.iter().map(block).collect()
    }

    /// Spreads processor time over the columns that a window touches.
    fn add(&mut self, whole: Window, part: Window, cpu_ns: u64) {
        let column_ns = whole.duration_ns as f64 / COLUMNS as f64;
        let part_ns = (part.duration_ns as f64).max(1.0);
        let from = (part.start_ns.saturating_sub(whole.start_ns)) as f64;
        let to = from + part_ns;
        for (column, cores) in self.0.iter_mut().enumerate() {
            let (start, end) = (column as f64 * column_ns, (column + 1) as f64 * column_ns);
            let overlap = to.min(end) - from.max(start);
            if overlap > 0.0 {
                *cores += cpu_ns as f64 * overlap / part_ns / column_ns;
            }
        }
    }
}

impl Chart {
    /// A chart of some rows in a window, with nothing in it.
    pub fn new(window: Window, rows: &[Row]) -> Self {
        let key = |row: &Row| (row.name.clone(), row.binary.clone());
        let by_name = rows.iter().enumerate();
        Self {
            window,
            rows: vec![Line([0.0; COLUMNS]); rows.len()],
            by_name: by_name.map(|(index, row)| (key(row), index)).collect(),
            all: Line([0.0; COLUMNS]),
        }
    }

    /// Adds the table of a file.
    pub fn add(&mut self, scanned: Scanned) {
        let (whole, part) = (self.window, scanned.window);
        self.all.add(whole, part, scanned.table.all.cpu_ns);
        for row in scanned.table.rows {
            let cpu_ns = row.own.cpu_ns;
            if let Some(index) = self.by_name.get(&(row.name, row.binary)) {
                self.rows[*index].add(whole, part, cpu_ns);
            }
        }
    }

    /// The chart; `names` are those of the rows.
    pub fn text(&self, names: &[String]) -> String {
        let column = length(self.window.duration_ns / COLUMNS as u64);
        let mut text = format!(
            "cores that were busy, by self time: {}; a column is {column}, the highest block of a row its maximum\n\n{:>7} {:>7}\n",
            shown(self.window),
            "mean",
            "max"
        );
        let all = [(&self.all, "(all)")];
        let rows = self.rows.iter().zip(names.iter().map(String::as_str));
        for (line, name) in all.into_iter().chain(rows) {
            let (mean, max) = (line.mean(), line.max());
            let _ = writeln!(text, "{mean:>7.3} {max:>7.3} │{}│ {name}", line.blocks());
        }
        text + "\n"
    }

    /// What the chart has of a row.
    pub fn json(&self, row: usize) -> Value {
        json!({
            "start_unix_ns": self.window.start_ns,
            "column_seconds": self.window.duration_ns as f64 / 1e9 / COLUMNS as f64,
            "cores": self.rows[row].0.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler::profile::Weight;
    use profiler::top::Table;

    const SECOND_NS: u64 = 1_000_000_000;

    fn scanned(start: i64, seconds: u64, cpu_seconds: u64) -> Scanned {
        let weight = Weight {
            samples: 1,
            cpu_ns: cpu_seconds * SECOND_NS,
        };
        let row = Row {
            name: "work".to_owned(),
            binary: String::new(),
            kind: None,
            own: weight,
            total: weight,
        };
        Scanned {
            window: Window {
                start_ns: start * SECOND_NS as i64,
                duration_ns: seconds * SECOND_NS,
            },
            table: Table {
                rows: vec![row],
                all: weight,
            },
            ..Scanned::default()
        }
    }

    #[test]
    fn time_is_spread_over_the_columns_of_its_window() {
        let window = Window {
            start_ns: 0,
            duration_ns: 60 * SECOND_NS,
        };
        let rows = scanned(0, 1, 1).table.rows;
        let mut chart = Chart::new(window, &rows);
        chart.add(scanned(0, 1, 1));
        chart.add(scanned(30, 30, 60));
        let line = &chart.rows[0].0;
        assert!((line[0] - 1.0).abs() < 1e-9);
        assert_eq!(line[1], 0.0);
        assert!(line[30..].iter().all(|cores| (cores - 2.0).abs() < 1e-9));
        assert!((chart.all.mean() - 61.0 / 60.0).abs() < 1e-9);
        let text = chart.text(&["work".to_owned()]);
        let blocks = format!("│▄{}{}│ work", " ".repeat(29), "█".repeat(30));
        assert!(text.contains(&blocks), "{text}");
        assert!(text.contains("  1.017   2.000 │"), "{text}");
    }
}
