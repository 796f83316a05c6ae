//! Which of several hosts gets the next request.
//!
//! Requests go to all hosts in turn. One that cannot be reached, does not answer in time or answers with anything but a reply
//! to the request *rests*: a second at first, twice as long each time up to a minute, or as long as its `Retry-After` says,
//! while the others get its requests. Then a single request *tries* it; when that works the host *warms up*: its share of the
//! requests grows from a tenth to a full one within [`WARM_UP`], because a server that has just started has cold caches. When
//! every host rests, the one whose rest ends first is asked all the same: pausing is the engine's business. A single host
//! never rests.

use std::time::{Duration, Instant};

use component::Warning;
use config::{ConfigError, Node};
use net::client::{reqwest::Url, url};
use parking_lot::{Mutex, MutexGuard};

const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
const WARM_UP: Duration = Duration::from_secs(10);

/// The share of a host that has just come back.
const SHARE_MIN: f64 = 0.1;

/// How long it is not said again of a host that it rests.
const SAY_AGAIN: Duration = Duration::from_secs(300);

/// The hosts, all of the same cluster. `E` is what a request needs to reach one, such as its URL.
#[derive(Debug)]
pub struct Hosts<E> {
    hosts: Vec<Host<E>>,
    states: Mutex<Vec<HostState>>,
    warnings: Mutex<Vec<Warning>>,
}

#[derive(Debug)]
struct Host<E> {
    endpoint: E,
    /// Its name in messages, without secrets.
    name: String,
}

#[derive(Debug, Clone)]
struct HostState {
    health: Health,
    /// What the host has coming: its share is added at each request, and everybody's shares are taken off when it gets one.
    credit: f64,
    said_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Health {
    Fine,
    /// Gets nothing until then. The rest after the next failure is twice as long.
    Resting {
        until: Instant,
        rest: Duration,
    },
    /// One request finds out whether it works again.
    Trying {
        rest: Duration,
    },
    Warming {
        since: Instant,
    },
}

impl Health {
    /// The part of a full share that it gets of the requests.
    fn share(self, now: Instant) -> f64 {
        match self {
            Self::Fine => 1.0,
            Self::Resting { .. } | Self::Trying { .. } => 0.0,
            Self::Warming { since } => {
                let warm = now.duration_since(since).as_secs_f64() / WARM_UP.as_secs_f64();
                warm.clamp(SHARE_MIN, 1.0)
            }
        }
    }
}

/// A host that gets a request. It has to hear what came of it; where it does not, because the request was given up, nothing is
/// known about the host.
#[derive(Debug)]
pub struct Turn<'a, E> {
    hosts: &'a Hosts<E>,
    index: usize,
    is_settled: bool,
}

impl Hosts<Url> {
    /// Hosts with these URLs, each with the setting that it stands in. In messages they are named by scheme, host and port.
    ///
    /// # Errors
    /// An address cannot be used, at its place.
    pub fn at_urls<'n>(
        addresses: impl IntoIterator<Item = (&'n Node, String)>,
    ) -> Result<Self, ConfigError> {
        let host = |(node, address): (&Node, String)| {
            let url = url(node, &address)?;
            if url.query().is_some() || url.fragment().is_some() {
                let error = node.error("the URL of a host cannot contain `?` or `#`");
                return Err(error);
            }
            let origin = url.origin().ascii_serialization();
            Ok((url, origin))
        };
        let hosts: Vec<_> = addresses.into_iter().map(host).collect::<Result<_, _>>()?;
        Ok(Self::new(hosts))
    }

    /// Whether any of them speaks TLS.
    pub fn any_https(&self) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|host| host.endpoint.scheme() == "https")
    }
}

impl<E> Hosts<E> {
    /// Hosts at these endpoints, each with its name for messages.
    pub fn new(endpoints: impl IntoIterator<Item = (E, String)>) -> Self {
        let host = |(endpoint, name)| Host { endpoint, name };
        let hosts: Vec<_> = endpoints.into_iter().map(host).collect();
        let state = HostState {
            health: Health::Fine,
            credit: 0.0,
            said_at: None,
        };
        Self {
            states: Mutex::new(vec![state; hosts.len()]),
            hosts,
            warnings: Mutex::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// The host for the next request, none of those that it was sent to already.
    pub fn turn(&self, tried: &[usize]) -> Option<Turn<'_, E>> {
        let index = self.choose(tried, Instant::now())?;
        Some(Turn {
            hosts: self,
            index,
            is_settled: false,
        })
    }

    fn choose(&self, tried: &[usize], now: Instant) -> Option<usize> {
        let mut states = self.states();
        let open = || (0..self.hosts.len()).filter(|index| !tried.contains(index));
        if self.hosts.len() == 1 {
            return open().next();
        }
        for index in open() {
            match states[index].health {
                Health::Resting { until, rest } if until <= now => {
                    states[index].health = Health::Trying { rest };
                    return Some(index);
                }
                Health::Warming { since } if now.duration_since(since) >= WARM_UP => {
                    states[index].health = Health::Fine;
                }
                _ => {}
            }
        }
        let mut shares = 0.0;
        for index in open() {
            let share = states[index].health.share(now);
            states[index].credit += share;
            shares += share;
        }
        if shares == 0.0 {
            let ends = |index: &usize| match states[*index].health {
                Health::Resting { until, .. } => until,
                _ => now,
            };
            // Where a request was to several hosts already, it is better sent again later.
            return open().min_by_key(ends).filter(|_| tried.is_empty());
        }
        let works = open().filter(|index| states[*index].health.share(now) > 0.0);
        let next = works.max_by(|a, b| states[*a].credit.total_cmp(&states[*b].credit))?;
        states[next].credit -= shares;
        Some(next)
    }

    fn succeeded(&self, index: usize, now: Instant) {
        let state = &mut self.states()[index];
        if let Health::Trying { .. } | Health::Resting { .. } = state.health {
            state.health = Health::Warming { since: now };
            state.credit = 0.0;
        }
    }

    fn failed(&self, index: usize, reason: &str, after: Option<Duration>, now: Instant) {
        if self.hosts.len() == 1 {
            return;
        }
        let mut states = self.states();
        let state = &mut states[index];
        let asked = now + after.unwrap_or_default();
        let rest = match &mut state.health {
            Health::Fine | Health::Warming { .. } => REST_MIN,
            Health::Trying { rest } => (*rest * 2).min(REST_MAX),
            // A request that was on its way before: the host rests already.
            Health::Resting { until, .. } => {
                *until = asked.max(*until);
                return;
            }
        };
        let until = asked.max(now + rest);
        state.health = Health::Resting { until, rest };
        let is_known = |at: Instant| now.duration_since(at) < SAY_AGAIN;
        if state.said_at.is_none_or(|at| !is_known(at)) {
            state.said_at = Some(now);
            let name = &self.hosts[index].name;
            let text = format!("requests to {name} are paused: {reason}");
            self.warnings().push(text.into());
        }
    }

    /// Nothing is known of a request that was given up: the next one tries the host.
    fn forgotten(&self, index: usize, now: Instant) {
        let state = &mut self.states()[index];
        if let Health::Trying { rest } = state.health {
            state.health = Health::Resting { until: now, rest };
        }
    }

    /// What a person should hear since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings())
    }

    fn states(&self) -> MutexGuard<'_, Vec<HostState>> {
        self.states.lock()
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<Warning>> {
        self.warnings.lock()
    }
}

impl<'a, E> Turn<'a, E> {
    /// Which host it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where it is.
    pub fn endpoint(&self) -> &'a E {
        &self.hosts.hosts[self.index].endpoint
    }

    /// Its name in messages.
    pub fn name(&self) -> &'a str {
        &self.hosts.hosts[self.index].name
    }

    /// It has answered.
    pub fn succeeded(mut self) {
        self.is_settled = true;
        self.hosts.succeeded(self.index, Instant::now());
    }

    /// It cannot work, and wants to be left alone for so long.
    pub fn failed(mut self, reason: &str, after: Option<Duration>) {
        self.is_settled = true;
        self.hosts.failed(self.index, reason, after, Instant::now());
    }
}

impl<E> Drop for Turn<'_, E> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.hosts.forgotten(self.index, Instant::now());
        }
    }
}

/// An address below that of a host, whose own path stays.
pub fn below(host: &Url, path: &[&str]) -> Url {
    let mut url = host.clone();
    // An address of http or https always has a path.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: usize) -> Hosts<usize> {
        Hosts::new((0..count).map(|number| (number, format!("h{number}"))))
    }

    /// How many of a number of requests each host gets.
    fn spread(hosts: &Hosts<usize>, requests: usize, now: Instant) -> Vec<usize> {
        let mut counts = vec![0; hosts.hosts.len()];
        for _ in 0..requests {
            counts[hosts.choose(&[], now).expect("a host")] += 1;
        }
        counts
    }

    #[test]
    fn requests_go_to_all_hosts_in_turn() {
        let now = Instant::now();
        assert_eq!(spread(&hosts(3), 9, now), [3, 3, 3]);
        assert_eq!(spread(&hosts(1), 9, now), [9]);
    }

    #[test]
    fn a_host_that_fails_rests_is_tried_and_warms_up() {
        let hosts = hosts(3);
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        hosts.failed(1, "gone", None, at(0.0));
        assert_eq!(spread(&hosts, 10, at(0.9)), [5, 0, 5]);
        // One request tries it, and only one.
        let tried = spread(&hosts, 10, at(1.0));
        assert_eq!(tried[1], 1);
        hosts.failed(1, "gone", None, at(1.1));
        assert_eq!(spread(&hosts, 10, at(3.0))[1], 0, "it rests twice as long");
        assert_eq!(spread(&hosts, 10, at(3.2))[1], 1);
        hosts.succeeded(1, at(3.2));
        let early = spread(&hosts, 210, at(3.2))[1];
        let later = spread(&hosts, 250, at(8.2))[1];
        assert!((9..=11).contains(&early), "a tenth of a share: {early}");
        assert!((48..=52).contains(&later), "half a share: {later}");
        assert_eq!(spread(&hosts, 300, at(13.3)), [100, 100, 100]);
        assert_eq!(hosts.take_warnings().len(), 1, "said once");
    }

    #[test]
    fn rests_are_bounded_and_one_host_is_always_asked() {
        let (single, hosts) = (hosts(1), hosts(2));
        let mut now = Instant::now();
        for _ in 0..10 {
            hosts.failed(0, "gone", None, now);
            hosts.failed(1, "gone", None, now);
            assert!(hosts.choose(&[], now).is_some());
            assert_eq!(hosts.choose(&[0], now), None, "better later");
            now += REST_MAX;
            assert_eq!(spread(&hosts, 2, now), [1, 1], "both are tried");
        }
        single.failed(0, "gone", None, now);
        assert_eq!(single.choose(&[], now), Some(0));
        assert!(single.take_warnings().is_empty(), "the engine says it");
    }

    #[test]
    fn a_host_rests_as_long_as_it_asks_for() {
        let hosts = hosts(2);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        hosts.failed(0, "busy", Some(Duration::from_secs(20)), at(0));
        // Of a request that was on its way.
        hosts.failed(0, "busy", Some(Duration::from_secs(5)), at(1));
        assert_eq!(spread(&hosts, 10, at(19)), [0, 10]);
        hosts.failed(0, "busy", Some(Duration::from_secs(20)), at(19));
        assert_eq!(spread(&hosts, 10, at(38)), [0, 10]);
        assert_eq!(spread(&hosts, 10, at(39))[0], 1);
    }

    #[test]
    fn a_request_that_was_given_up_says_nothing_of_its_host() {
        let hosts = hosts(2);
        let now = Instant::now();
        hosts.failed(0, "gone", None, now - REST_MIN);
        let turn = hosts.turn(&[]).expect("a host");
        assert_eq!(turn.index(), 0, "it is tried");
        drop(turn);
        let again = hosts.turn(&[]).expect("a host");
        assert_eq!(again.index(), 0, "and tried again");
        again.succeeded();
        let health = hosts.states()[0].health;
        assert!(matches!(health, Health::Warming { .. }));
    }
}
