//! When a watch does what: it keeps the cost of changes bounded, however fast they come.
//!
//! The first change after a quiet time is handled at once, the following ones together: events are taken from the kernel
//! every 20 ms, and scans take at most a tenth of the time, though one comes within half a second.

use std::time::{Duration, Instant};

/// Events are collected for so long before they are taken again.
const COLLECT: Duration = Duration::from_millis(20);
/// From the first sign of a new name to the scan: a rotation is a few calls, and one scan should see all of it.
const SETTLE: Duration = Duration::from_millis(5);
/// Between two scans because of changes, at least and at most.
const GAP_MIN: Duration = Duration::from_millis(50);
const GAP_MAX: Duration = Duration::from_millis(500);
/// Scans without a sign of change, in case the kernel does not tell of one.
const RESCAN: Duration = Duration::from_secs(30);
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// When a watch does what.
pub(super) struct Schedule {
    interval: Duration,
    pub(super) rescan: Duration,
    scan: Option<Instant>,
    scan_not_before: Option<Instant>,
    poll: Option<Instant>,
    events: Option<Instant>,
}

impl Schedule {
    /// The first scan is due.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval: interval.max(INTERVAL_MIN),
            rescan: RESCAN,
            scan: Some(Instant::now()),
            scan_not_before: None,
            poll: None,
            events: None,
        }
    }

    /// A scan is needed soon.
    pub(super) fn request_scan(&mut self, now: Instant) {
        let mut due = now + SETTLE;
        due = self.scan_not_before.map_or(due, |not| due.max(not));
        self.scan = Some(self.scan.map_or(due, |scan| scan.min(due)));
    }

    /// A scan is done, which found folders that are watched, that are polled, or both.
    pub(super) fn scanned(&mut self, started: Instant, has_watched: bool, has_polled: bool) {
        let now = Instant::now();
        let gap = ((now - started) * 10).clamp(GAP_MIN, GAP_MAX);
        self.scan_not_before = Some(now + gap);
        self.scan = has_watched.then(|| now + self.rescan);
        self.poll = has_polled.then(|| now + self.interval);
    }

    pub(super) fn polled(&mut self) {
        self.poll = Some(Instant::now() + self.interval);
    }

    pub(super) fn drained(&mut self) {
        self.events = Some(Instant::now() + COLLECT);
    }

    pub(super) fn is_scan_due(&self, now: Instant) -> bool {
        self.scan.is_some_and(|due| due <= now)
    }

    pub(super) fn is_poll_due(&self, now: Instant) -> bool {
        self.poll.is_some_and(|due| due <= now)
    }

    /// When something is due, and whether events are welcome before that.
    pub(super) fn next(&mut self, now: Instant) -> (Option<Instant>, bool) {
        if self.events.is_some_and(|pause| pause <= now) {
            self.events = None;
        }
        let due = [self.scan, self.poll, self.events].into_iter().flatten();
        (due.min(), self.events.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_is_handled_soon_and_the_next_ones_together() {
        let mut schedule = Schedule::new(Duration::from_secs(1));
        let start = Instant::now();
        assert!(schedule.is_scan_due(start), "the first scan");
        schedule.scanned(start, true, false);
        assert!(!schedule.is_scan_due(start + RESCAN - GAP_MAX));

        let later = Instant::now() + GAP_MAX;
        schedule.request_scan(later);
        assert!(schedule.is_scan_due(later + SETTLE));

        // This one took long.
        schedule.scanned(Instant::now() - Duration::from_secs(3), true, false);
        let now = Instant::now();
        for ms in 0..100 {
            schedule.request_scan(now + Duration::from_millis(ms));
        }
        assert!(!schedule.is_scan_due(now + GAP_MAX / 2));
        assert!(
            schedule.is_scan_due(now + GAP_MAX),
            "requests put nothing off"
        );
    }

    #[test]
    fn events_are_collected() {
        let mut schedule = Schedule::new(Duration::from_secs(1));
        schedule.scanned(Instant::now(), true, true);
        let (_, welcome) = schedule.next(Instant::now());
        assert!(welcome);
        schedule.drained();
        let now = Instant::now();
        let (due, welcome) = schedule.next(now);
        assert!(!welcome && due.is_some_and(|due| due <= now + COLLECT));
        let (due, welcome) = schedule.next(now + COLLECT);
        assert!(welcome && due.is_some_and(|due| due > now + COLLECT));
    }
}
