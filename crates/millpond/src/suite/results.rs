//! What a suite found: figures of runs, medians and spread, saved and compared.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::measure::Sample;
use super::settings::Tolerance;

/// The version of the file that results are saved in.
const VERSION: u32 = 1;

/// CPUs that other programs may use on average before a run counts as disturbed.
const OTHERS_MAX: f64 = 0.1;

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Events that were read, or arrived.
    pub events: u64,
    pub wall_seconds: f64,
    /// CPU time of the process that is measured, and of its children.
    pub cpu_seconds: f64,
    pub memory_peak_bytes: u64,
    /// CPUs that everything else on the machine used, on average, the kernel's own work included.
    pub others_cpus: f64,
    /// CPU time of the Millpond that another program sends to.
    pub receiver_cpu_seconds: Option<f64>,
    /// What limited a pipeline.
    pub verdict: Option<String>,
    /// CPU time and memory in the course of the run.
    pub samples: Vec<Sample>,
}

impl Outcome {
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 / self.wall_seconds.max(1e-9)
    }

    pub fn cpu_per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.events.max(1) as f64
    }
}

/// The runs of a scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    pub name: String,
    /// What was run.
    pub what: String,
    pub runs: Vec<Outcome>,
}

/// A median, and between which values the runs were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of values, of which there is at least one.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => 0.0,
            count if count % 2 == 1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Self {
            median,
            min: values.first().copied().unwrap_or(0.0),
            max: values.last().copied().unwrap_or(0.0),
        }
    }

    /// Half of the distance between the smallest and the largest, in per cent of the median.
    pub fn percent(&self) -> f64 {
        50.0 * (self.max - self.min) / self.median.max(1e-12)
    }
}

impl Measured {
    pub fn throughput(&self) -> Spread {
        Spread::of(self.runs.iter().map(Outcome::events_per_second))
    }

    pub fn cpu(&self) -> Spread {
        Spread::of(self.runs.iter().map(Outcome::cpu_per_million))
    }

    pub fn memory(&self) -> Spread {
        Spread::of(self.runs.iter().map(|run| run.memory_peak_bytes as f64))
    }

    /// The run with the median of the CPU time, which stands for all in charts.
    pub fn typical(&self) -> Option<&Outcome> {
        let mut runs: Vec<&Outcome> = self.runs.iter().collect();
        runs.sort_by(|one, other| one.cpu_seconds.total_cmp(&other.cpu_seconds));
        runs.get(runs.len() / 2).copied()
    }

    /// How many runs others disturbed, and the most CPUs that they used.
    pub fn disturbed(&self) -> Option<(usize, f64)> {
        let others = self.runs.iter().map(|run| run.others_cpus);
        let others: Vec<f64> = others.filter(|cpus| *cpus > OTHERS_MAX).collect();
        let most = others.iter().copied().max_by(f64::total_cmp)?;
        Some((others.len(), most))
    }
}

/// What a suite found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub version: u32,
    pub millpond: String,
    pub host: String,
    pub cpus: usize,
    /// `--scale`.
    pub scale: f64,
    pub scenarios: Vec<Measured>,
}

impl Results {
    pub fn new(host: &str, scale: f64) -> Self {
        Self {
            version: VERSION,
            millpond: env!("CARGO_PKG_VERSION").to_owned(),
            host: host.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            scale,
            scenarios: Vec::new(),
        }
    }

    /// Reads what was saved.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let results: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{name} holds no results of a suite"))?;
        if results.version != VERSION {
            bail!("{name} is of version {}, not {VERSION}", results.version);
        }
        Ok(results)
    }

    /// Saves them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A figure beside that of the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub scenario: String,
    pub figure: &'static str,
    /// How much worse the median is, in per cent; better if negative.
    pub worse_percent: f64,
    pub is_regression: bool,
}

/// Compares the scenarios that both have.
///
/// A figure has become worse if its median is worse by more than the tolerance, and also its best run is worse than the worst
/// one of the baseline: then the spread of the runs does not explain it.
pub fn compare(now: &Results, baseline: &Results, tolerance: Tolerance) -> Vec<Change> {
    let mut changes = Vec::new();
    for measured in &now.scenarios {
        let of_name = |other: &&Measured| other.name == measured.name;
        let Some(before) = baseline.scenarios.iter().find(of_name) else {
            continue;
        };
        let figures = [
            (
                "events/s",
                measured.throughput(),
                before.throughput(),
                tolerance.throughput,
                true,
            ),
            ("CPU", measured.cpu(), before.cpu(), tolerance.cpu, false),
            (
                "memory",
                measured.memory(),
                before.memory(),
                tolerance.memory,
                false,
            ),
        ];
        for (figure, now, before, tolerance, more_is_better) in figures {
            let ratio = now.median / before.median.max(1e-12);
            let (worse, is_apart) = match more_is_better {
                true => (1.0 / ratio.max(1e-12) - 1.0, now.max < before.min),
                false => (ratio - 1.0, now.min > before.max),
            };
            changes.push(Change {
                scenario: measured.name.clone(),
                figure,
                worse_percent: 100.0 * worse,
                is_regression: 100.0 * worse > tolerance && is_apart,
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(cpu: &[f64]) -> Results {
        let run = |cpu: &f64| Outcome {
            events: 1_000_000,
            wall_seconds: 1.0,
            cpu_seconds: *cpu,
            memory_peak_bytes: 1 << 20,
            others_cpus: 0.0,
            receiver_cpu_seconds: None,
            verdict: None,
            samples: Vec::new(),
        };
        Results {
            scenarios: vec![Measured {
                name: "one".into(),
                what: String::new(),
                runs: cpu.iter().map(run).collect(),
            }],
            ..Results::new("h", 1.0)
        }
    }

    #[test]
    fn a_regression_is_beyond_tolerance_and_spread() {
        for (before, now, is_regression) in [
            (&[1.0, 1.0, 1.0][..], &[1.04, 1.04, 1.04][..], false),
            (&[1.0, 1.0, 1.0], &[1.06, 1.06, 1.06], true),
            // The runs overlap.
            (&[0.9, 1.0, 1.2], &[1.1, 1.2, 1.3], false),
            (&[0.9, 1.0, 1.2], &[1.21, 1.3, 1.4], true),
            (&[1.0], &[0.5], false),
        ] {
            let changes = compare(&results(now), &results(before), Tolerance::default());
            let [throughput, cpu, memory] = &changes[..] else {
                panic!("{changes:?}")
            };
            assert_eq!(cpu.is_regression, is_regression, "{before:?} {now:?}");
            assert!(!throughput.is_regression && !memory.is_regression);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()).median, 2.0);
        let four = Spread::of([4.0, 1.0, 2.0, 3.0].into_iter());
        assert_eq!((four.median, four.min, four.max), (2.5, 1.0, 4.0));
        assert_eq!(four.percent(), 60.0);
    }
}
