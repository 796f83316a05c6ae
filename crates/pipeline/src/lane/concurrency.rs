//! How many requests are in flight.
//!
//! An adaptive limit starts low and doubles with each round trip, as long as answers come as fast as the fastest of late. When
//! they take twice as long, requests only wait at the other end: it then drops to the part of it that was answered quickly, and
//! grows by one a round trip from there. It returns to what was fast so that the fastest time is measured again, and does not
//! drift upwards with the waiting time. A request that failed, or was told to come later, costs a third, once a round trip.

use std::time::{Duration, Instant};

use crate::settings::Concurrency;

/// Where an adaptive limit starts.
const START: f64 = 2.0;

/// The most requests of one output that an adaptive limit allows.
const ADAPTIVE_MAX: f64 = 128.0;

/// Answers that take longer than this times the fastest are slow.
const SLOW: f64 = 2.0;

/// Differences below this are noise.
const NOISE: Duration = Duration::from_millis(5);

/// The most that one slow answer takes away.
const LEAST: f64 = 0.3;

/// How much the fastest round trip is forgotten with each answer, so that a route that became longer is not slow for ever.
const FORGETTING: f64 = 1.002;

/// How many requests may be in flight.
#[derive(Debug)]
pub struct Limiter {
    limit: f64,
    /// When more was to be sent than may be, for the last time.
    reached: Option<Instant>,
    adapts: Option<Adaptive>,
}

#[derive(Debug, Default)]
struct Adaptive {
    /// The fastest round trip of late, in seconds.
    fastest: Option<f64>,
    /// No answer was slow yet.
    has_met_the_limit: bool,
    /// Answers to requests from before this say nothing new.
    changed: Option<Instant>,
}

impl Limiter {
    pub fn new(concurrency: Concurrency) -> Self {
        match concurrency {
            Concurrency::Fixed(limit) => Self {
                limit: limit as f64,
                reached: None,
                adapts: None,
            },
            Concurrency::Adaptive => Self {
                limit: START,
                reached: None,
                adapts: Some(Adaptive::default()),
            },
        }
    }

    /// The limit, at least 1.
    pub fn limit(&self) -> usize {
        (self.limit as usize).max(1)
    }

    /// Whether one more may be sent while so many are in flight, `tries` of which only try whether a destination is back. Those
    /// take no place of the others, for as long as they are not answered; a fixed limit is one for all of them.
    pub fn has_room(&self, in_flight: usize, tries: usize) -> bool {
        match self.adapts {
            Some(_) => in_flight - tries < self.limit(),
            None => in_flight < self.limit(),
        }
    }

    /// Whether one more may try whether a destination is back.
    pub fn has_room_to_try(&self, in_flight: usize, tries: usize) -> bool {
        let is_one_of_many = tries < (self.limit() / 2).max(1);
        is_one_of_many && (self.adapts.is_some() || in_flight < self.limit())
    }

    /// More is to be sent than may be.
    pub fn holds_back(&mut self, now: Instant) {
        self.reached = Some(now);
    }

    /// A request was answered that was sent at `sent`.
    pub fn answered(&mut self, sent: Instant, now: Instant) {
        // More would have been sent while it was on its way.
        let was_reached = self.reached.is_some_and(|reached| reached >= sent);
        let Some(adaptive) = &mut self.adapts else {
            return;
        };
        let took = now.duration_since(sent).as_secs_f64();
        let fastest = adaptive
            .fastest
            .map_or(took, |fastest| took.min(fastest * FORGETTING));
        adaptive.fastest = Some(fastest);
        let is_slow = took > fastest * SLOW + NOISE.as_secs_f64();
        let is_new = adaptive.changed.is_none_or(|changed| sent >= changed);
        if is_slow {
            if is_new {
                adaptive.has_met_the_limit = true;
                adaptive.changed = Some(now);
                // To where answers came quickly: so the fastest is measured again, and does not creep up with the wait.
                self.limit = (self.limit * (fastest / took).max(LEAST)).max(1.0);
            }
        } else if was_reached {
            // Each answer adds its part, so that a round trip adds 1, or doubles the limit.
            let more = match adaptive.has_met_the_limit {
                true => 1.0 / self.limit,
                false => 1.0,
            };
            self.limit = (self.limit + more).min(ADAPTIVE_MAX);
        }
    }

    /// A request that was sent at `sent` failed, or was told to come later.
    pub fn failed(&mut self, sent: Instant, now: Instant) {
        let Some(adaptive) = &mut self.adapts else {
            return;
        };
        if adaptive.changed.is_none_or(|changed| sent >= changed) {
            adaptive.has_met_the_limit = true;
            adaptive.changed = Some(now);
            self.limit = (self.limit * 2.0 / 3.0).max(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A server that takes `latency`, and works on `parallel` requests at a time, `work` each. What the limit is after so
    /// many answers, and how many requests a second there were in the last half.
    fn run(latency: f64, work: f64, parallel: usize, answers: usize) -> (usize, f64) {
        let origin = Instant::now();
        let at = |seconds: f64| origin + Duration::from_secs_f64(seconds);
        let mut limiter = Limiter::new(Concurrency::Adaptive);
        let mut free_at = vec![0.0_f64; parallel];
        let mut flying: VecDeque<(f64, f64)> = VecDeque::new();
        let (mut now, mut half) = (0.0, 0.0);
        for answer in 0..answers {
            while flying.len() < limiter.limit() {
                free_at.sort_by(f64::total_cmp);
                let done = free_at[0].max(now) + work;
                free_at[0] = done;
                flying.push_back((now, done + latency));
            }
            limiter.holds_back(at(now));
            let first = (0..flying.len())
                .min_by(|&a, &b| flying[a].1.total_cmp(&flying[b].1))
                .expect("something flies");
            let (sent, done) = flying.remove(first).expect("it is there");
            now = done;
            limiter.answered(at(sent), at(now));
            if answer == answers / 2 {
                half = now;
            }
        }
        (limiter.limit(), answers as f64 / 2.0 / (now - half))
    }

    #[test]
    fn the_limit_doubles_with_each_round_trip_at_first() {
        // 2 + 4 + 8 + 16 + 32 answers, all sent before the first of the next round trip.
        let (limit, _) = run(0.2, 0.0, 64, 62);
        assert!((60..=64).contains(&limit), "{limit}");
    }

    #[test]
    fn a_long_way_is_filled() {
        let (limit, rate) = run(0.2, 0.001, 64, 4000);
        assert!(limit >= 100, "{limit}");
        assert!(rate >= 500.0, "{rate} a second");
    }

    #[test]
    fn a_server_that_is_busy_is_not_given_more() {
        let (limit, rate) = run(0.0, 0.02, 4, 4000);
        assert!((4..=12).contains(&limit), "{limit}");
        assert!(rate >= 180.0, "{rate} a second of 200");
    }

    #[test]
    fn failures_cost_once_a_round_trip() {
        let origin = Instant::now();
        let mut limiter = Limiter::new(Concurrency::Adaptive);
        limiter.limit = 30.0;
        let later = origin + Duration::from_millis(100);
        for _ in 0..10 {
            limiter.failed(origin, later);
        }
        assert_eq!(limiter.limit(), 20);
        limiter.failed(later, later + Duration::from_millis(100));
        assert_eq!(limiter.limit(), 13);
    }

    #[test]
    fn a_fixed_limit_stays() {
        let mut limiter = Limiter::new(Concurrency::Fixed(7));
        let now = Instant::now();
        limiter.failed(now, now);
        limiter.holds_back(now);
        limiter.answered(now, now + Duration::from_secs(9));
        assert_eq!(limiter.limit(), 7);
    }
}
