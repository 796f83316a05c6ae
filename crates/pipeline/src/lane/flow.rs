//! Whether a destination may be sent to at all: a circuit breaker.
//!
//! After several failures in a row the circuit *opens*: nothing is sent for a pause. Then one request tries (*half open*);
//! when it succeeds, the circuit *closes* and everything goes on, else the next pause is twice as long. A destination that asks
//! for time gets it in the same way.

use std::time::{Duration, Instant};

use crate::retry::Pause;
use crate::settings::RetrySettings;

/// So many failures in a row open the circuit.
const FAILURES_MAX: u32 = 5;

/// The circuit of one destination.
pub struct Breaker {
    settings: RetrySettings,
    state: Circuit,
    /// Pauses while it does not close.
    pause: Pause,
    /// Failures since the last success.
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Circuit {
    Closed,
    /// Nothing is sent before this.
    Open(Instant),
    /// One request tries.
    HalfOpen,
}

impl Breaker {
    pub fn new(settings: RetrySettings) -> Self {
        Self {
            settings,
            state: Circuit::Closed,
            pause: Pause::new(settings),
            failures: 0,
        }
    }

    /// Whether one more may be sent while so many are in flight.
    pub fn allows(&self, in_flight: usize, now: Instant) -> bool {
        match self.state {
            Circuit::Closed => true,
            Circuit::Open(until) => now >= until && in_flight == 0,
            Circuit::HalfOpen => in_flight == 0,
        }
    }

    /// One is sent, as [`Self::allows`] has said; whether it is the one that tries.
    pub fn send(&mut self) -> bool {
        if let Circuit::Open(_) = self.state {
            self.state = Circuit::HalfOpen;
        }
        !self.is_closed()
    }

    /// When to look again, where nothing may be sent before.
    pub fn opens_at(&self) -> Option<Instant> {
        match self.state {
            Circuit::Open(until) => Some(until),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state == Circuit::Closed
    }

    /// Whether nothing failed of late.
    pub fn is_calm(&self) -> bool {
        self.is_closed() && self.failures == 0
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
        // What was sent before the circuit opened says nothing of now.
        if self.state == Circuit::HalfOpen {
            self.state = Circuit::Closed;
            self.pause = Pause::new(self.settings);
        }
    }

    /// Opens the circuit, however few failures there were; whether it was closed.
    pub fn open(&mut self, after: Option<Duration>, now: Instant) -> bool {
        self.failures += FAILURES_MAX;
        self.failed(after, now)
    }

    /// A request failed, and the destination asked for so much time; whether that opened the circuit.
    pub fn failed(&mut self, after: Option<Duration>, now: Instant) -> bool {
        self.failures += 1;
        let was_closed = self.is_closed();
        let pause = match (self.state, after) {
            (Circuit::Closed, None) if self.failures < FAILURES_MAX => return false,
            // Those that were in flight fail one after the other.
            (Circuit::Open(_), None) => return false,
            (_, Some(after)) => after,
            _ => self.pause.next(),
        };
        let until = now + pause;
        self.state = match self.state {
            Circuit::Open(before) => Circuit::Open(before.max(until)),
            _ => Circuit::Open(until),
        };
        was_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_and_lets_one_try() {
        let mut breaker = Breaker::new(RetrySettings::default());
        let now = Instant::now();
        for failure in 1..FAILURES_MAX {
            assert!(!breaker.failed(None, now), "failure {failure}");
            assert!(breaker.allows(3, now));
        }
        assert!(breaker.failed(None, now));
        assert!(!breaker.allows(0, now), "it is open");
        let later = breaker.opens_at().expect("it is open");
        assert!(!breaker.allows(1, later), "others are still in flight");
        assert!(breaker.allows(0, later), "one tries");
        assert!(breaker.send());
        assert!(!breaker.allows(1, later), "only one");
        assert!(!breaker.failed(None, later), "it was not closed");
        let again = breaker.opens_at().expect("it is open");
        assert!(again > later && breaker.allows(0, again));
        assert!(breaker.send());
        breaker.succeeded();
        assert!(breaker.is_calm() && breaker.allows(9, again));
        assert!(!breaker.send());
    }

    #[test]
    fn the_time_asked_for_is_given() {
        let mut breaker = Breaker::new(RetrySettings::default());
        let now = Instant::now();
        assert!(breaker.failed(Some(Duration::from_secs(7)), now));
        assert!(!breaker.failed(Some(Duration::from_secs(3)), now));
        breaker.succeeded();
        assert!(!breaker.allows(0, now + Duration::from_millis(6999)));
        assert!(breaker.allows(0, now + Duration::from_secs(7)));
    }
}
