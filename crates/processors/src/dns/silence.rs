//! Whether name servers answer at all.
//!
//! They count as silent when [`BATCHES`] batches in a row ended without a single answer and [`QUIET_MIN`] has passed since the first question
//! that nothing followed. From then on no batch waits, and only [`PROBES`] questions are asked in each [`PROBE_EVERY`], until one is answered.
//! A server that is gone therefore costs a few batches their time-out, and after that next to nothing.

use std::time::{Duration, Instant};

/// How many batches in a row end without an answer before servers count as silent.
const BATCHES: u32 = 3;

/// How long nothing must have been heard.
const QUIET_MIN: Duration = Duration::from_secs(1);

/// How often silent servers are asked.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How many questions they are asked then: there are single ones that nobody answers.
const PROBES: u32 = 3;

/// What is known of the servers.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When something was asked for the first time since the last answer.
    quiet_since: Option<Instant>,
    /// How many batches have ended without an answer since then.
    batches: u32,
    answers: u64,
    probing: Option<Probing>,
}

/// How silent servers are asked.
#[derive(Debug)]
struct Probing {
    since: Instant,
    next: Instant,
    left: u32,
}

impl Silence {
    /// Whether the servers count as silent.
    pub fn is_on(&self) -> bool {
        self.probing.is_some()
    }

    /// How many answers there were.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Whether a question may be asked now; if so, it is.
    pub fn asks(&mut self, now: Instant) -> bool {
        if let Some(probing) = &mut self.probing {
            if now >= probing.next {
                probing.next = now + PROBE_EVERY;
                probing.left = PROBES;
            }
            if probing.left == 0 {
                return false;
            }
            probing.left -= 1;
        }
        self.quiet_since.get_or_insert(now);
        true
    }

    /// A server answered. How long they had been silent, where this ends it.
    pub fn answered(&mut self, now: Instant) -> Option<Duration> {
        self.answers += 1;
        self.quiet_since = None;
        self.batches = 0;
        let probing = self.probing.take()?;
        Some(now.duration_since(probing.since))
    }

    /// A batch that asked something ended; `answers` is how many answers there were when it began. Whether servers count as silent from now on.
    pub fn batch_ended(&mut self, answers: u64, now: Instant) -> bool {
        if self.is_on() || self.answers > answers {
            return false;
        }
        self.batches += 1;
        let Some(since) = self.quiet_since else {
            return false;
        };
        let begins = self.batches >= BATCHES && now.duration_since(since) >= QUIET_MIN;
        if begins {
            self.probing = Some(Probing {
                since,
                next: now + PROBE_EVERY,
                left: 0,
            });
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_never_answer_are_asked_now_and_then() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        for (began, ended, begins) in [
            (0.0, 0.1, false),
            (0.1, 0.2, false),
            (0.2, 0.3, false),
            (0.9, 1.0, true),
        ] {
            assert!(silence.asks(at(began)));
            assert_eq!(silence.batch_ended(0, at(ended)), begins, "{ended}");
        }
        let mut asked = Vec::new();
        for tenth in 10..40 {
            if silence.asks(at(f64::from(tenth) / 10.0)) {
                asked.push(tenth);
            }
        }
        assert_eq!(asked, [20, 21, 22, 30, 31, 32]);
        assert_eq!(silence.answered(at(4.0)), Some(Duration::from_secs(4)));
        assert!(!silence.is_on() && silence.asks(at(4.0)));
    }

    #[test]
    fn an_answer_counts_for_all_batches() {
        let (start, mut silence) = (Instant::now(), Silence::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..10 {
            let answers = silence.answers();
            assert!(silence.asks(at(second)));
            if second % 3 == 2 {
                assert_eq!(silence.answered(at(second)), None);
            }
            assert!(!silence.batch_ended(answers, at(second + 1)));
        }
    }
}
