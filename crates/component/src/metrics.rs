//! Counters of one operator, shared by its instances.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::series::Metric;

/// Counters of one input, processor or output. All but the lag only grow.
#[derive(Debug, Default)]
pub struct OperatorMetrics {
    events_in: AtomicU64,
    events_out: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    dropped: AtomicU64,
    dead_letters: AtomicU64,
    cpu_ns: AtomicU64,
    busy_ns: AtomicU64,
    waits: Mutex<Waits>,
    named: Mutex<BTreeMap<&'static str, u64>>,
    lag: Mutex<Option<u64>>,
    /// What the operator measures of events.
    metric: OnceLock<Arc<Metric>>,
}

/// Waits: those that are over, and those under way so far.
#[derive(Debug, Default)]
struct Waits {
    time: Duration,
    under_way: u32,
    /// Until when those under way are counted.
    counted: Option<Instant>,
}

impl Waits {
    fn count(&mut self) {
        let now = Instant::now();
        let since = self.counted.replace(now).unwrap_or(now);
        self.time += now.saturating_duration_since(since) * self.under_way;
    }
}

/// That an operator waits, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Waiting<'m>(&'m OperatorMetrics);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits.lock();
        waits.count();
        waits.under_way -= 1;
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Events that came in.
    pub events_in: u64,
    /// Events that left.
    pub events_out: u64,
    /// Source bytes read, or bytes written.
    pub bytes: u64,
    /// Events that failed here.
    pub failures: u64,
    /// Events that were dropped here.
    pub dropped: u64,
    /// Events that became dead letters here.
    pub dead_letters: u64,
    /// CPU time, all threads together.
    pub cpu: Duration,
    /// Time at work by the wall clock, all instances together.
    pub busy: Duration,
    /// Time spent waiting: on the queue, on the budget, on the destination.
    pub wait: Duration,
    /// Further counters by name.
    pub named: BTreeMap<&'static str, u64>,
    /// Events of the source that were not delivered, where that is known.
    pub lag: Option<u64>,
}

impl Snapshot {
    /// What was counted since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Self {
        let named = self.named.iter().map(|(name, count)| {
            let before = earlier.named.get(name).copied().unwrap_or(0);
            (*name, count.saturating_sub(before))
        });
        Self {
            events_in: self.events_in.saturating_sub(earlier.events_in),
            events_out: self.events_out.saturating_sub(earlier.events_out),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            failures: self.failures.saturating_sub(earlier.failures),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            dead_letters: self.dead_letters.saturating_sub(earlier.dead_letters),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            busy: self.busy.saturating_sub(earlier.busy),
            wait: self.wait.saturating_sub(earlier.wait),
            named: named.collect(),
            lag: self.lag,
        }
    }
}

impl OperatorMetrics {
    /// Counts events that came in and left.
    pub fn events(&self, events_in: usize, events_out: usize) {
        self.events_in.fetch_add(events_in as u64, Relaxed);
        self.events_out.fetch_add(events_out as u64, Relaxed);
    }

    /// Counts bytes read or written.
    pub fn bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts events that failed.
    pub fn failures(&self, failures: usize) {
        self.failures.fetch_add(failures as u64, Relaxed);
    }

    /// Counts events that were dropped.
    pub fn dropped(&self, dropped: usize) {
        self.dropped.fetch_add(dropped as u64, Relaxed);
    }

    /// Counts events that became dead letters.
    pub fn dead_letters(&self, letters: u64) {
        self.dead_letters.fetch_add(letters, Relaxed);
    }

    /// Counts CPU time. Whoever is called through an [`crate::Activity`] is charged by it.
    pub fn cpu(&self, time: Duration) {
        self.cpu_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Counts time at work by the wall clock.
    pub fn busy(&self, time: Duration) {
        self.busy_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Begins to wait. The time is counted while it passes: a wait may last longer than anybody looks.
    pub fn waiting(&self) -> Waiting<'_> {
        let mut waits = self.waits.lock();
        waits.count();
        waits.under_way += 1;
        Waiting(self)
    }

    /// Counts a wait that is over.
    pub fn waited(&self, time: Duration) {
        self.waits.lock().time += time;
    }

    fn wait_so_far(&self) -> Duration {
        let mut waits = self.waits.lock();
        waits.count();
        waits.time
    }

    /// Says how many events its source has that it has not delivered, for inputs whose source tells.
    pub fn set_lag(&self, events: u64) {
        *self.lag.lock() = Some(events);
    }

    /// The operator makes this metric of events.
    pub fn makes(&self, metric: Arc<Metric>) {
        let _ = self.metric.set(metric);
    }

    /// The metric that the operator makes of events.
    pub fn metric(&self) -> Option<Arc<Metric>> {
        self.metric.get().cloned()
    }

    /// Adds to a named counter. Names are lower-case words joined by underscores, in reports and in metrics alike.
    pub fn count(&self, name: &'static str, by: u64) {
        debug_assert!(is_counter_name(name), "the name of a counter: {name}");
        *self.named.lock().entry(name).or_default() += by;
    }

    /// The counters at this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            events_in: self.events_in.load(Relaxed),
            events_out: self.events_out.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            dead_letters: self.dead_letters.load(Relaxed),
            cpu: Duration::from_nanos(self.cpu_ns.load(Relaxed)),
            busy: Duration::from_nanos(self.busy_ns.load(Relaxed)),
            wait: self.wait_so_far(),
            named: self.named.lock().clone(),
            lag: *self.lag.lock(),
        }
    }
}

/// Whether a counter may have this name: `[a-z][a-z0-9]*(_[a-z0-9]+)*`.
fn is_counter_name(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

/// How far a finite input is, in bytes of its source.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Adds to the bytes there are in all.
    pub fn add_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    /// Adds to the bytes read.
    pub fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// Bytes read, and bytes there are in all; the latter is 0 where nobody knows.
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_while_it_lasts() {
        const STEP: Duration = Duration::from_millis(20);
        let metrics = OperatorMetrics::default();
        let one = metrics.waiting();
        std::thread::sleep(STEP);
        let so_far = metrics.snapshot().wait;
        assert!(so_far >= STEP, "{so_far:?}");
        let other = metrics.waiting();
        std::thread::sleep(STEP);
        drop((one, other));
        let both = metrics.snapshot().wait;
        assert!(both >= so_far + 2 * STEP, "{both:?}");
        std::thread::sleep(STEP);
        assert_eq!(metrics.snapshot().wait, both);
        metrics.waited(STEP);
        assert_eq!(metrics.snapshot().wait, both + STEP);
    }

    #[test]
    fn counters_are_spelt_in_one_way() {
        for (name, is_right) in [
            ("lost", true),
            ("invalid_utf8_lines", true),
            ("expression errors", false),
            ("expression-errors", false),
            ("expressionErrors", false),
            ("_lost", false),
            ("lost_", false),
            ("8_lost", false),
            ("", false),
        ] {
            assert_eq!(is_counter_name(name), is_right, "{name:?}");
        }
    }
}
