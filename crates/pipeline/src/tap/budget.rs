//! How much time conditions of taps may take from a point.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The share of the time that may be spent: one part of so many.
const SHARE: u32 = 100;

/// The most that may be spent at once, after a time in which nothing was.
const BURST: Duration = Duration::from_millis(5);

/// The time that the taps of one point may spend on their conditions: 1 % of the time that passes, and at most [`BURST`] of what was not
/// spent before. What costs more than there is left is paid back before anything else is done.
#[derive(Debug, Default)]
pub struct TapBudget(Mutex<Spent>);

#[derive(Debug, Default)]
struct Spent {
    /// What is not paid back yet.
    time: Duration,
    /// Up to when.
    at: Option<Instant>,
}

impl TapBudget {
    /// Does a piece of work and takes what it cost; none where nothing is left.
    pub fn spend<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let begin = Instant::now();
        if !self.0.lock().has_some_left(begin) {
            return None;
        }
        // Without the lock: other threads of the pipeline wait for nobody.
        let done = work();
        self.0.lock().time += begin.elapsed();
        Some(done)
    }
}

impl Spent {
    fn has_some_left(&mut self, now: Instant) -> bool {
        let passed = self.at.map(|at| now.saturating_duration_since(at));
        self.time = { self.time }.saturating_sub(passed.unwrap_or_default() / SHARE);
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        self.time < BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_of_a_hundred_is_spent_and_little_at_once() {
        let mut spent = Spent::default();
        let start = Instant::now();
        for (at_ms, has_some_left, cost_ms) in [
            (0, true, 4),
            (0, true, 21),
            // 25 ms are spent, of which 20 and a little are paid back.
            (1, false, 0),
            (1990, false, 0),
            (2010, true, 105),
            (12_000, false, 0),
            // What nobody spends is not kept.
            (1_000_000, true, 4),
            (1_000_000, true, 1),
            (1_000_000, false, 0),
        ] {
            let now = start + Duration::from_millis(at_ms);
            assert_eq!(spent.has_some_left(now), has_some_left, "at {at_ms} ms");
            spent.time += Duration::from_millis(cost_ms);
        }
    }

    #[test]
    fn what_is_done_is_measured() {
        let budget = TapBudget::default();
        assert_eq!(budget.spend(|| 1), Some(1));
        budget.spend(|| std::thread::sleep(BURST * 2));
        assert_eq!(budget.spend(|| 2), None);
    }
}
