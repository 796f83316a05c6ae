//! How many events a second may be picked.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);

/// Lets at most so many events pass within any second.
#[derive(Debug)]
pub struct Pace {
    rate: usize,
    /// When how many passed, within the last second.
    passed: VecDeque<(Instant, usize)>,
    /// How many these are.
    sum: usize,
}

impl Pace {
    /// So many a second.
    pub fn new(rate: usize) -> Self {
        Self {
            rate,
            passed: VecDeque::new(),
            sum: 0,
        }
    }

    /// How many of `wanted` events may pass now.
    pub fn take(&mut self, now: Instant, wanted: usize) -> usize {
        while let Some((at, count)) = self.passed.front()
            && now.saturating_duration_since(*at) >= WINDOW
        {
            self.sum -= count;
            self.passed.pop_front();
        }
        let taken = wanted.min(self.rate - self.sum);
        if taken > 0 {
            self.sum += taken;
            self.passed.push_back((now, taken));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_has_more_than_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(10);
        for (at_ms, wanted, expected) in [
            (0, 4, 4),
            (500, 100, 6),
            (600, 1, 0),
            (999, 1, 0),
            (1000, 100, 4),
            (1499, 1, 0),
            (1500, 3, 3),
            (1501, 100, 3),
            (9000, 100, 10),
        ] {
            let now = start + Duration::from_millis(at_ms);
            assert_eq!(pace.take(now, wanted), expected, "at {at_ms} ms");
        }
    }
}
