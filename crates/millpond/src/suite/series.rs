//! CPU time and memory over time, at even distances.

use super::measure::Sample;

/// The shortest span of time: CPU time is counted in ticks of 10 ms.
const SPAN_SECONDS_MIN: f64 = 0.05;

/// Values at even distances, from the start of a run to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub values: Vec<f64>,
    /// How long the process lived.
    pub seconds: f64,
}

impl Series {
    /// How many CPUs were in use, in up to `count` spans of time.
    pub fn cpus(samples: &[Sample], count: usize) -> Self {
        Self::of(samples, count, |samples, from, to| {
            let used =
                at(samples, to, |it| it.cpu_seconds) - at(samples, from, |it| it.cpu_seconds);
            used.max(0.0) / (to - from).max(1e-9)
        })
    }

    /// Bytes of memory, the most in each of up to `count` spans of time.
    pub fn memory(samples: &[Sample], count: usize) -> Self {
        Self::of(samples, count, |samples, from, to| {
            let inside = samples
                .iter()
                .filter(|it| (from..=to).contains(&it.at_seconds));
            let most = inside.map(|it| it.memory_bytes).max();
            most.map_or_else(
                || at(samples, to, |it| it.memory_bytes as f64),
                |bytes| bytes as f64,
            )
        })
    }

    fn of(samples: &[Sample], count: usize, value: impl Fn(&[Sample], f64, f64) -> f64) -> Self {
        // A process that has ended has no memory any more.
        let alive = samples.iter().rposition(|it| it.memory_bytes > 0);
        let samples = &samples[..alive.map_or(0, |last| last + 1)];
        let seconds = samples.last().map_or(0.0, |last| last.at_seconds);
        let spans = (seconds / SPAN_SECONDS_MIN) as usize;
        let count = count.min(spans).min(samples.len().saturating_sub(1));
        let edge = |index: usize| seconds * index as f64 / count.max(1) as f64;
        Self {
            values: (0..count)
                .map(|index| value(samples, edge(index), edge(index + 1)))
                .collect(),
            seconds,
        }
    }

    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    /// A line of blocks, from 0 to the largest value.
    pub fn blocks(&self) -> String {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let max = self.max().max(1e-12);
        let block = |value: &f64| BLOCKS[((value / max * 8.0) as usize).min(7)];
        self.values.iter().map(block).collect()
    }
}

/// A value at a moment between two samples.
fn at(samples: &[Sample], seconds: f64, value: impl Fn(&Sample) -> f64) -> f64 {
    let behind = samples.partition_point(|it| it.at_seconds < seconds);
    let (before, after) = (samples.get(behind.wrapping_sub(1)), samples.get(behind));
    match (before, after) {
        (Some(before), Some(after)) => {
            let span = (after.at_seconds - before.at_seconds).max(1e-9);
            let share = (seconds - before.at_seconds) / span;
            value(before) + share * (value(after) - value(before))
        }
        (Some(only), None) | (None, Some(only)) => value(only),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time() {
        let sample = |at_seconds, cpu_seconds, memory_bytes| Sample {
            at_seconds,
            cpu_seconds,
            memory_bytes,
        };
        let samples = [
            sample(0.0, 0.0, 10),
            sample(1.0, 2.0, 80),
            sample(2.0, 3.0, 40),
            sample(2.1, 3.0, 0),
        ];
        let cpus = Series::cpus(&samples, 60);
        assert_eq!(cpus.values, [2.0, 1.0]);
        assert_eq!(cpus.blocks(), "█▅");
        assert_eq!(cpus.seconds, 2.0);
        assert_eq!(Series::memory(&samples, 2).values, [80.0, 80.0]);
        assert_eq!(Series::cpus(&[], 60).blocks(), "");
    }
}
