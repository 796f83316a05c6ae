//! Which request is sent next, and when: how many may be in flight, which destinations rest, what is sent again.
//!
//! Each destination has a circuit of its own, so that one that is away, or asks for time, holds up no other one. The output has one
//! as well, for what all of them share, such as the server: failures of several destinations in a row open it, so that a server that
//! is away, or answers everything with 429, is not asked once for each of ten thousand addresses. When it closes, the destinations'
//! circuits close with it. Of a destination nothing is kept once none of its requests is under way and nothing failed of late.
//!
//! Invariant: every request that [`Schedule::next`] gave comes back once, through [`Schedule::ended`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::concurrency::Limiter;
use super::flow::Breaker;
use super::request::Ready;
use crate::settings::{Concurrency, RetrySettings};

/// So many destinations that fail one after the other, with none in between that takes anything, open the circuit of the output.
const DESTINATIONS_MAX: usize = 5;

/// What a lane knows of the requests that it sends.
pub struct Schedule {
    retry: RetrySettings,
    /// One at a time is in flight to each destination.
    is_in_order: bool,
    limiter: Limiter,
    /// The circuit of the output as a whole.
    output: Breaker,
    /// Destinations that failed since a request was taken, [`DESTINATIONS_MAX`] at most.
    failing: HashSet<Arc<str>>,
    routes: HashMap<Arc<str>, Route>,
    /// To be sent again.
    again: Vec<Ready>,
    in_flight: usize,
    /// Those in flight that try whether a destination is back.
    tries: usize,
}

/// What is known of a destination.
struct Route {
    breaker: Breaker,
    in_flight: usize,
    /// The one in flight tries whether the destination is back.
    is_tried: bool,
    /// A request is in flight or to be sent again, and no other one may come before it.
    is_busy: bool,
}

impl Schedule {
    pub fn new(concurrency: Concurrency, retry: RetrySettings, is_in_order: bool) -> Self {
        Self {
            retry,
            is_in_order,
            limiter: Limiter::new(concurrency),
            output: Breaker::new(retry),
            failing: HashSet::new(),
            routes: HashMap::new(),
            again: Vec::new(),
            in_flight: 0,
            tries: 0,
        }
    }

    /// The next request that may be sent: one that failed before, or of those that are `ready` the first.
    pub fn next(&mut self, ready: &mut VecDeque<Ready>, now: Instant) -> Option<Ready> {
        if ready.is_empty() && self.again.is_empty() {
            return None;
        }
        if !self.output.allows(self.in_flight, now) {
            return None;
        }
        let has_room = self.limiter.has_room(self.in_flight, self.tries);
        if !has_room || !self.limiter.has_room_to_try(self.in_flight, self.tries) {
            self.limiter.holds_back(now);
        }
        let is_due = |ready: &Ready| ready.due.is_none_or(|due| due <= now);
        let may_repeat = |ready: &Ready| is_due(ready) && self.may_send(ready, has_room, now);
        let may_begin = |ready: &Ready| {
            let route = self.routes.get(&ready.request.destination);
            route.is_none_or(|route| !route.is_busy) && self.may_send(ready, has_room, now)
        };
        let is_fresh = |ready: &Ready| !self.routes.contains_key(&ready.request.destination);
        // Whether the output works again is best tried where nothing failed yet.
        let fresh = match self.output.is_closed() {
            true => None,
            false => ready.iter().position(|one| is_fresh(one) && may_begin(one)),
        };
        let repeated = match fresh {
            Some(_) => None,
            None => self.again.iter().position(may_repeat),
        };
        let next = match repeated {
            Some(place) => self.again.swap_remove(place),
            None => {
                let place = fresh.or_else(|| ready.iter().position(may_begin))?;
                ready.remove(place)?
            }
        };
        self.sent(&next.request.destination);
        Some(next)
    }

    fn may_send(&self, ready: &Ready, has_room: bool, now: Instant) -> bool {
        match self.routes.get(&ready.request.destination) {
            Some(route) if !route.breaker.is_closed() => {
                route.breaker.allows(route.in_flight, now)
                    && self.limiter.has_room_to_try(self.in_flight, self.tries)
            }
            _ => has_room,
        }
    }

    fn sent(&mut self, destination: &Arc<str>) {
        if !self.routes.contains_key(destination) {
            self.routes
                .insert(destination.clone(), Route::new(self.retry));
        }
        let Some(route) = self.routes.get_mut(destination) else {
            return;
        };
        route.in_flight += 1;
        route.is_busy = self.is_in_order;
        let tries_output = self.output.send();
        route.is_tried = route.breaker.send() || tries_output;
        self.in_flight += 1;
        self.tries += usize::from(route.is_tried);
    }

    /// A request is in flight no more. What became of it is said next.
    pub fn ended(&mut self, destination: &Arc<str>) {
        self.in_flight -= 1;
        if let Some(route) = self.routes.get_mut(destination) {
            route.in_flight -= 1;
            self.tries -= usize::from(std::mem::take(&mut route.is_tried));
        }
    }

    /// The destination took a request that was sent at `sent`.
    pub fn succeeded(&mut self, destination: &Arc<str>, sent: Instant, now: Instant) {
        self.limiter.answered(sent, now);
        self.works(destination);
    }

    /// The destination works, although it did not take the request.
    pub fn works(&mut self, destination: &Arc<str>) {
        let was_closed = self.output.is_closed();
        self.failing.clear();
        self.output.succeeded();
        if !was_closed && self.output.is_closed() {
            for route in self.routes.values_mut() {
                route.breaker = Breaker::new(self.retry);
            }
        }
        if let Some(route) = self.routes.get_mut(destination) {
            route.breaker.succeeded();
        }
    }

    /// Too much was sent at a time, although the destination took a part of it.
    pub fn too_many(&mut self, sent: Instant, now: Instant) {
        self.limiter.failed(sent, now);
    }

    /// A request failed that was sent at `sent`, and the destination asked for so much time; whether that opened its circuit, or that
    /// of the output.
    pub fn failed(
        &mut self,
        destination: &Arc<str>,
        after: Option<Duration>,
        sent: Instant,
        now: Instant,
    ) -> bool {
        let Some(route) = self.routes.get_mut(destination) else {
            return false;
        };
        // What only tried says nothing of how much the others take.
        if route.breaker.is_closed() && self.output.is_closed() {
            self.limiter.failed(sent, now);
        }
        let opened = route.breaker.failed(after, now);
        if !self.output.is_closed() {
            self.output.failed(after, now);
            return opened;
        }
        if self.failing.len() < DESTINATIONS_MAX {
            self.failing.insert(destination.clone());
        }
        let all_rest = self.failing.len() == DESTINATIONS_MAX && self.output.open(after, now);
        opened || all_rest
    }

    /// A request is to be sent again when it is due.
    pub fn repeat(&mut self, ready: Ready) {
        self.again.push(ready);
    }

    /// A request has come to its end, or became others: the next one to its destination may be sent.
    pub fn finish(&mut self, destination: &Arc<str>) {
        let Some(route) = self.routes.get_mut(destination) else {
            return;
        };
        route.is_busy = false;
        if route.in_flight == 0 && route.breaker.is_calm() {
            self.routes.remove(destination);
        }
    }

    /// Whether nothing is to be sent again, and every destination works.
    pub fn is_calm(&self) -> bool {
        let mut routes = self.routes.values();
        self.again.is_empty()
            && self.output.is_closed()
            && routes.all(|route| route.breaker.is_closed())
    }

    /// How many are to be sent again.
    pub fn again(&self) -> usize {
        self.again.len()
    }

    /// Whether nothing may be sent but what tries whether a destination is back.
    pub fn is_paused(&self) -> bool {
        let mut routes = self.routes.values();
        // As long as nothing fails, nobody looks at the destinations: there may be many.
        !self.output.is_closed()
            || !self.failing.is_empty() && routes.all(|route| !route.breaker.is_closed())
    }

    /// Whether nothing is to be sent again.
    pub fn is_over(&self) -> bool {
        self.again.is_empty()
    }

    /// What was to be sent again.
    pub fn take(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.again)
    }

    /// Everything may be sent at once: for the last time.
    pub fn hurry(&mut self) {
        self.output = Breaker::new(self.retry);
        for route in self.routes.values_mut() {
            route.breaker = Breaker::new(self.retry);
        }
        self.again.iter_mut().for_each(|ready| ready.due = None);
    }

    /// When the first of those that are sent again failed for the first time.
    pub fn failing_since(&self) -> Option<Instant> {
        let since = self.again.iter().filter_map(|ready| ready.failing_since);
        since.min()
    }

    /// When something may be sent although nothing happens until then.
    pub fn wakes_at(&self, ready: &VecDeque<Ready>, now: Instant) -> Option<Instant> {
        let again = self.again.iter().map(|ready| {
            let route = self.routes.get(&ready.request.destination);
            let opens = route.and_then(|route| route.breaker.opens_at());
            let due = ready.due.unwrap_or(now);
            opens.map_or(due, |opens| due.max(opens))
        });
        let mut first = again.min();
        for ready in ready {
            let route = self.routes.get(&ready.request.destination);
            if route.is_some_and(|route| route.is_busy) {
                continue;
            }
            let opens = route.and_then(|route| route.breaker.opens_at());
            let at = opens.unwrap_or(now);
            first = Some(first.map_or(at, |first| first.min(at)));
            if at <= now {
                break;
            }
        }
        let opens = self.output.opens_at();
        let first = first.map(|at| opens.map_or(at, |opens| at.max(opens)));
        // What could be sent by now waits for an answer.
        first.filter(|at| *at > now || self.in_flight == 0)
    }
}

impl Route {
    fn new(retry: RetrySettings) -> Self {
        Self {
            breaker: Breaker::new(retry),
            in_flight: 0,
            is_tried: false,
            is_busy: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use component::Framing;

    use super::super::request::Growing;
    use super::*;

    const TAKEN: &str = "taken";

    fn schedule(concurrency: Concurrency, is_in_order: bool) -> Schedule {
        Schedule::new(concurrency, RetrySettings::default(), is_in_order)
    }

    fn ready(destinations: &[&str]) -> VecDeque<Ready> {
        let ready = destinations.iter().map(|destination| {
            let growing = Growing::empty(&Arc::from(*destination), Instant::now());
            let sealed = growing.seal(0, Framing::default(), |_| Ok(None));
            sealed.expect("nothing is compressed")
        });
        ready.collect()
    }

    /// Sends until nothing may be sent; where to.
    fn send(schedule: &mut Schedule, ready: &mut VecDeque<Ready>, now: Instant) -> Vec<Ready> {
        std::iter::from_fn(|| schedule.next(ready, now)).collect()
    }

    fn names(sent: &[Ready]) -> Vec<&str> {
        sent.iter().map(|one| &*one.request.destination).collect()
    }

    /// Every request to `away` fails, and every other one is taken; what is to be sent again is due at once.
    fn answer(schedule: &mut Schedule, sent: Vec<Ready>, away: &str, now: Instant) -> usize {
        let mut taken = 0;
        for one in sent {
            let destination = one.request.destination.clone();
            schedule.ended(&destination);
            if &*destination == away {
                schedule.failed(&destination, None, now, now);
                schedule.repeat(one);
            } else {
                schedule.succeeded(&destination, now, now);
                schedule.finish(&destination);
                taken += 1;
            }
        }
        taken
    }

    #[test]
    fn a_destination_that_is_away_does_not_hold_up_the_others() {
        for concurrency in [Concurrency::Adaptive, Concurrency::Fixed(4)] {
            let mut schedule = schedule(concurrency, false);
            let now = Instant::now();
            let mut waiting = ready(&["away"; 6]);
            waiting.extend(ready(&[TAKEN; 20]));
            let mut taken = 0;
            let mut later = now;
            for _ in 0..40 {
                let sent = send(&mut schedule, &mut waiting, later);
                taken += answer(&mut schedule, sent, "away", later);
                later += Duration::from_millis(10);
            }
            assert_eq!(taken, 20, "{concurrency:?}");
            let now = later;
            assert!(!schedule.is_calm() && schedule.output.is_closed());
            let wakes = schedule.wakes_at(&waiting, now).expect("it tries again");
            assert!(wakes > now, "nothing is to be done before");
            let tried = send(&mut schedule, &mut waiting, wakes);
            assert_eq!(names(&tried), ["away"], "one tries");
            // As long as that one is not answered, the others have all places.
            let mut more = ready(&[TAKEN; 20]);
            assert!(!send(&mut schedule, &mut more, wakes).is_empty());
        }
    }

    /// Every event has an address of its own, as with `/events/%{@metadata.id}`.
    #[test]
    fn a_server_that_is_away_is_not_asked_for_each_address() {
        let mut schedule = schedule(Concurrency::Adaptive, false);
        let now = Instant::now();
        let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut waiting = ready(&names);
        let after = Some(Duration::from_secs(20));
        let mut asked = 0;
        for _ in 0..100 {
            for one in send(&mut schedule, &mut waiting, now) {
                let destination = one.request.destination.clone();
                schedule.ended(&destination);
                schedule.failed(&destination, after, now, now);
                schedule.repeat(one);
                asked += 1;
            }
        }
        assert!(asked < 10, "{asked} requests");
        let wakes = schedule.wakes_at(&waiting, now).expect("it tries again");
        assert!(wakes >= now + Duration::from_secs(20));
        // Back again: the first success opens the way for all.
        let (mut taken, mut rounds, mut later) = (0, 0, wakes);
        while taken < 1000 {
            rounds += 1;
            assert!(rounds < 60, "{taken} taken");
            let sent = send(&mut schedule, &mut waiting, later);
            later += Duration::from_millis(200);
            for one in sent {
                let destination = one.request.destination.clone();
                schedule.ended(&destination);
                schedule.succeeded(&destination, later - Duration::from_millis(200), later);
                schedule.finish(&destination);
                taken += 1;
            }
        }
        assert!(schedule.is_calm() && schedule.routes.is_empty());
    }

    #[test]
    fn one_that_asks_for_time_gets_it_alone() {
        let mut schedule = schedule(Concurrency::Fixed(9), false);
        let now = Instant::now();
        let mut waiting = ready(&["a", "b"]);
        for one in send(&mut schedule, &mut waiting, now) {
            let destination = one.request.destination.clone();
            schedule.ended(&destination);
            match &*destination {
                "a" => {
                    let after = Some(Duration::from_secs(7));
                    assert!(schedule.failed(&destination, after, now, now));
                    schedule.repeat(one);
                }
                _ => schedule.finish(&destination),
            }
        }
        let mut waiting = ready(&["a", "b"]);
        let sent = send(&mut schedule, &mut waiting, now);
        assert_eq!(names(&sent), ["b"]);
        schedule.ended(&sent[0].request.destination);
        let wakes = schedule.wakes_at(&waiting, now);
        assert_eq!(wakes, Some(now + Duration::from_secs(7)));
    }

    #[test]
    fn in_order_a_destination_gets_one_at_a_time() {
        let mut schedule = schedule(Concurrency::Fixed(9), true);
        let now = Instant::now();
        let mut waiting = ready(&["a", "a", "b", "a"]);
        let sent = send(&mut schedule, &mut waiting, now);
        assert_eq!(names(&sent), ["a", "b"]);
        answer(&mut schedule, sent, "a", now);
        let sent = send(&mut schedule, &mut waiting, now);
        assert_eq!((names(&sent), waiting.len()), (vec!["a"], 2));
        answer(&mut schedule, sent, "", now);
        assert_eq!(send(&mut schedule, &mut waiting, now).len(), 1);
    }

    #[test]
    fn nothing_is_kept_of_those_that_work() {
        let mut schedule = schedule(Concurrency::Fixed(9), false);
        let now = Instant::now();
        let mut waiting = ready(&["a", "b", "c"]);
        let sent = send(&mut schedule, &mut waiting, now);
        answer(&mut schedule, sent, "", now);
        assert!(schedule.routes.is_empty() && schedule.is_calm());
    }
}
