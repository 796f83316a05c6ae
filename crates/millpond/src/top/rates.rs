//! What happened in a second, from two looks at a process.

use crate::api::stats::{OperatorStats, PipelineStats, Stats};
use crate::api::windows::{OperatorShares, WindowStats};

/// Two looks at a process.
#[derive(Debug, Default)]
pub struct Looks {
    now: Option<Stats>,
    before: Option<Stats>,
}

/// What happened in a second; none where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    /// Events that came in.
    pub events_in: Option<f64>,
    /// Events that left.
    pub events_out: Option<f64>,
    /// Bytes that were read or written.
    pub bytes: Option<f64>,
    /// CPU time in seconds: how many CPUs were used.
    pub cpus: Option<f64>,
}

/// A pipeline.
#[derive(Debug)]
pub struct PipelineRow<'a> {
    /// Its counters.
    pub stats: &'a PipelineStats,
    /// What it did in a second.
    pub speed: Speed,
    /// What it did in the chosen window.
    pub window: Option<&'a WindowStats>,
    /// Its operators.
    pub operators: Vec<OperatorRow<'a>>,
}

/// An operator.
#[derive(Debug)]
pub struct OperatorRow<'a> {
    /// Its counters.
    pub stats: &'a OperatorStats,
    /// What it did in a second.
    pub speed: Speed,
    /// How it spent the chosen window.
    pub shares: Option<&'a OperatorShares>,
}

impl Looks {
    /// Takes a look.
    pub fn take(&mut self, stats: Stats) {
        // Another process may have taken the place of the one that was looked at.
        let is_same = |before: &Stats| before.started == stats.started;
        self.before = self.now.take().filter(is_same);
        self.now = Some(stats);
    }

    /// The last look.
    pub fn last(&self) -> Option<&Stats> {
        self.now.as_ref()
    }

    /// The time between the looks, in seconds.
    fn seconds(&self) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        Some(now.uptime_seconds - before.uptime_seconds).filter(|seconds| *seconds > 0.0)
    }

    /// How many CPUs the process used.
    pub fn cpus(&self) -> Option<f64> {
        let (now, before) = (self.now.as_ref()?, self.before.as_ref()?);
        Some((now.process.cpu_seconds - before.process.cpu_seconds) / self.seconds()?)
    }

    /// The pipelines, with the window that has this place among theirs.
    pub fn pipelines(&self, window: usize) -> Vec<PipelineRow<'_>> {
        let pipelines = self.now.iter().flat_map(|stats| &stats.pipelines);
        pipelines
            .map(|stats| self.pipeline(stats, window))
            .collect()
    }

    fn pipeline<'a>(&'a self, stats: &'a PipelineStats, window: usize) -> PipelineRow<'a> {
        let before = self.before.iter().flat_map(|before| &before.pipelines);
        // A reload begins to count anew.
        let before = { before }.find(|it| it.name == stats.name && it.started == stats.started);
        let since = before.zip(self.seconds());
        let window = stats.windows.get(window);
        let operators = stats.operators.iter().map(|operator| {
            let is_it = |it: &&OperatorStats| it.role == operator.role && it.name == operator.name;
            let before = before.and_then(|before| before.operators.iter().find(is_it));
            let shares = window.iter().flat_map(|window| &window.operators);
            let is_its =
                |it: &&OperatorShares| it.role == operator.role && it.name == operator.name;
            OperatorRow {
                stats: operator,
                speed: before
                    .zip(self.seconds())
                    .map_or_else(Speed::default, |(before, seconds)| {
                        Speed::of(operator, before, seconds)
                    }),
                shares: { shares }.find(is_its),
            }
        });
        let operators: Vec<OperatorRow<'_>> = operators.collect();
        let cpus = operators.iter().filter_map(|it| it.speed.cpus).sum::<f64>();
        let speed = since.map_or_else(Speed::default, |(before, seconds)| Speed {
            events_in: per_second(stats.events_in, before.events_in, seconds),
            events_out: per_second(stats.events_out, before.events_out, seconds),
            bytes: None,
            cpus: Some(cpus + (stats.cpu_seconds - before.cpu_seconds) / seconds),
        });
        PipelineRow {
            stats,
            speed,
            window,
            operators,
        }
    }
}

/// What a counter did in a second, from two looks at it.
fn per_second(now: u64, then: u64, seconds: f64) -> Option<f64> {
    Some(now.saturating_sub(then) as f64 / seconds)
}

impl Speed {
    fn of(now: &OperatorStats, before: &OperatorStats, seconds: f64) -> Self {
        Self {
            events_in: per_second(now.events_in, before.events_in, seconds),
            events_out: per_second(now.events_out, before.events_out, seconds),
            bytes: per_second(now.bytes, before.bytes, seconds),
            cpus: Some((now.cpu_seconds - before.cpu_seconds).max(0.0) / seconds),
        }
    }

    /// CPU time for each event that came in, or left where none come in, in nanoseconds.
    pub fn nanoseconds_per_event(&self) -> Option<f64> {
        let is_some = |events: &f64| *events >= 1.0;
        let events = self
            .events_in
            .filter(is_some)
            .or(self.events_out.filter(is_some))?;
        Some(self.cpus? * 1e9 / events)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    /// A look at a process after so many seconds, whose pipeline began then and has had so many events.
    pub fn look(uptime: f64, started: &str, events: u64) -> Stats {
        let operator = |role: &str, name: &str, cpu: f64| {
            json!({ "name": name, "role": role, "events_in": events, "events_out": events, "bytes": 10 * events,
                "failures": 0, "dropped": 3, "dead_letters": 0, "cpu_seconds": cpu, "busy_seconds": cpu, "wait_seconds": 0.0,
                "counters": {} })
        };
        let shares = |role: &str, name: &str, busy: f64, output: f64| {
            json!({ "role": role, "name": name, "cpus": busy, "busy_share": busy,
                "waiting_for_input_share": 1.0 - busy - output, "waiting_for_output_share": output })
        };
        let window = json!({ "seconds": 60, "wall_seconds": 30.0, "events_per_second": 1000.0,
            "verdict": "Processor grok limits this pipeline: it had 90 % of the time of both workers.",
            "limits": { "role": "processor", "name": "grok" },
            "operators": [shares("input", "file", 0.2, 0.8), shares("processor", "grok", 0.9, 0.0), shares("output", "http", 0.1, 0.0)] });
        let cpu = events as f64 * 1e-6;
        let file = json!({
            "pipeline": "web", "input": "file", "path": "/var/log/web.log", "id": "1", "device": 1, "inode": 2, "size": 100,
            "position": 50, "lag_bytes": 2048, "lag_seconds": 3, "read_bytes": 0, "acknowledged_bytes": 0, "dropped_bytes": 0,
            "in_flight_bytes": 0, "read_events": 0, "acknowledged_events": 0, "dead_letters": 0, "dropped": [],
            "in_flight_events": 0, "state": "open", "checkpoints": 0,
        });
        let output = json!({
            "name": "http", "state": "retrying", "reason": "connection refused", "failing_seconds": 12.0,
            "requests_in_flight": 3, "requests_waiting": 1,
        });
        let queue = json!({
            "kind": "disk", "events": 1200, "memory_bytes": 5 << 20, "disk_bytes": 64 << 20, "oldest_age_seconds": 4.2,
            "is_paused": false,
        });
        let operators = json!([
            operator("input", "file", cpu / 10.0),
            operator("processor", "grok", cpu),
            operator("output", "http", cpu / 5.0),
        ]);
        let pipeline = json!({
            "name": "web", "state": "running", "started": started, "is_fed": false, "events_in": events, "events_out": events,
            "unclaimed_events": 0, "refused_events": 0, "cpu_seconds": 0.0, "blocked_seconds": 0.0, "operators": operators,
            "queue": queue, "outputs": [output], "windows": [window], "connections": [], "files_total": 1, "files": [file],
        });
        let stats = json!({
            "version": "1.2.3", "host": "web-1", "started": "2026-01-01T00:00:00.000Z", "uptime_seconds": uptime,
            "status": "running",
            "configuration": { "path": "millpond.yaml", "number": 4, "hash": "00", "loaded": "2026-01-01T00:00:00.000Z" },
            "process": {
                "pid": 7, "cpu_seconds": 2.0 * cpu, "resident_memory_bytes": 84 << 20, "virtual_memory_bytes": 1 << 30,
                "threads": 9, "open_files": 12, "open_files_max": 1024,
            },
            "pipelines": [pipeline],
        });
        serde_json::from_value(stats).expect("what the API answers")
    }

    #[test]
    fn speed_is_what_happened_between_two_looks() {
        let mut looks = Looks::default();
        assert!(looks.pipelines(0).is_empty());
        looks.take(look(10.0, "a", 1000));
        assert_eq!(looks.pipelines(0)[0].speed, Speed::default());
        assert_eq!(looks.cpus(), None);
        looks.take(look(12.0, "a", 5000));
        let row = &looks.pipelines(0)[0];
        assert_eq!(row.speed.events_in, Some(2000.0));
        let grok = &row.operators[1];
        assert_eq!(grok.speed.bytes, Some(20_000.0));
        let each = grok.speed.nanoseconds_per_event().expect("events came in");
        assert!((each - 1000.0).abs() < 1e-6, "{each}");
        assert!((grok.shares.expect("a window").busy_share - 0.9).abs() < 1e-9);
        assert!((looks.cpus().expect("two looks") - 0.004).abs() < 1e-9);
        assert!(looks.pipelines(1)[0].window.is_none());
    }

    #[test]
    fn what_was_reloaded_or_restarted_counts_anew() {
        let mut looks = Looks::default();
        looks.take(look(10.0, "a", 5000));
        looks.take(look(12.0, "b", 100));
        assert_eq!(looks.pipelines(0)[0].speed, Speed::default());
        looks.take(look(14.0, "b", 300));
        assert_eq!(looks.pipelines(0)[0].speed.events_in, Some(100.0));
        let mut other = look(1.0, "b", 7);
        other.started = "later".to_owned();
        looks.take(other);
        assert_eq!(looks.cpus(), None);
    }
}
