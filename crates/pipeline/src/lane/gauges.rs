//! What an output is doing at the moment, for whoever looks from outside. The lane's thread writes it, and never waits for a reader.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What an output is doing.
#[derive(Debug, Default)]
pub struct Gauges {
    in_flight: AtomicU64,
    waiting: AtomicU64,
    is_paused: AtomicBool,
    /// Whether something failed of late, so that a lane that works looks at no lock.
    is_failing: AtomicBool,
    failing: Mutex<Option<(Instant, String)>>,
}

/// How an output is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputView {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: OutputState,
    /// Why it fails or failed, where it does.
    pub reason: Option<String>,
    /// How long it has been failing.
    pub failing_for: Option<Duration>,
    /// Requests that were sent and not answered; none for outputs that write in one place.
    pub in_flight: u64,
    /// Complete requests that wait to be sent, or to be sent again.
    pub waiting: u64,
}

/// What an output is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputState {
    /// It takes events.
    Working,
    /// Something failed and is tried again, while others go on.
    Retrying,
    /// It failed so often that it waits before it tries again, or its destination asked for time.
    Paused,
    /// It failed for good: it takes nothing more in this run.
    Failed,
    /// It has come to its end, because nobody wants more or the run stops.
    Ended,
}

impl Gauges {
    /// What is under way at this moment.
    pub fn set(&self, in_flight: usize, waiting: usize, is_paused: bool) {
        self.in_flight.store(in_flight as u64, Relaxed);
        self.waiting.store(waiting as u64, Relaxed);
        self.is_paused.store(is_paused, Relaxed);
    }

    /// Something failed, and nothing is tried before a pause is over where it `pauses`.
    pub fn failed(&self, reason: &str, pauses: bool) {
        if pauses {
            self.is_paused.store(true, Relaxed);
        }
        let mut failing = self.failing.lock();
        match &mut *failing {
            Some((_, said)) if said == reason => {}
            Some((_, said)) => reason.clone_into(said),
            None => *failing = Some((Instant::now(), reason.to_owned())),
        }
        self.is_failing.store(true, Relaxed);
    }

    /// Everything works again.
    pub fn recovered(&self) {
        if self.is_failing.swap(false, Relaxed) {
            *self.failing.lock() = None;
            self.is_paused.store(false, Relaxed);
        }
    }

    /// How it is, as long as it has not ended.
    pub fn view(&self, name: &str) -> OutputView {
        let failing = self.failing.lock().clone();
        let state = match (self.is_paused.load(Relaxed), &failing) {
            (true, _) => OutputState::Paused,
            (false, Some(_)) => OutputState::Retrying,
            (false, None) => OutputState::Working,
        };
        OutputView {
            name: name.to_owned(),
            state,
            failing_for: failing.as_ref().map(|(since, _)| since.elapsed()),
            reason: failing.map(|(_, reason)| reason),
            in_flight: self.in_flight.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
        }
    }
}

impl OutputState {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Retrying => "retrying",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_until_it_is_over() {
        let gauges = Gauges::default();
        let state = || gauges.view("one").state;
        assert_eq!(state(), OutputState::Working);
        gauges.failed("refused", false);
        gauges.failed("timed out", false);
        assert_eq!(state(), OutputState::Retrying);
        gauges.set(0, 3, true);
        let view = gauges.view("one");
        assert_eq!((view.state, view.waiting), (OutputState::Paused, 3));
        assert_eq!(view.reason.as_deref(), Some("timed out"));
        assert!(view.failing_for.is_some());
        gauges.set(2, 0, false);
        gauges.recovered();
        let view = gauges.view("one");
        assert_eq!((view.state, view.in_flight), (OutputState::Working, 2));
        assert_eq!((view.reason, view.failing_for), (None, None));
    }
}
