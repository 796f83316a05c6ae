//! Which requests are safe, for clients that ask ("HTTP Event Collector indexer acknowledgment").
//!
//! Numbers are drawn from one counter for all channels, which begins anywhere in each run: a number that a client was given before a
//! crash is never given to another request after it, so that nobody hears that something else is safe.
//!
//! A number is forgotten when its client has heard that its events are safe. Of those that nobody asks for, the last
//! [`UNASKED_MAX`] are kept; a client that asks for an older one hears that it is not safe, and sends it again.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

/// How many safe requests are kept for clients that may ask.
const UNASKED_MAX: usize = 100_000;

/// The largest number to begin with. All numbers of a run are exact in JavaScript, up to 2⁵³.
const FIRST_MAX: u64 = 1 << 52;

/// What became of requests with a number.
#[derive(Debug)]
pub(super) struct Acks {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    next: u64,
    requests: HashMap<u64, Request>,
    /// Those that were safe, in this order. Some have been asked for.
    safe: VecDeque<u64>,
}

#[derive(Debug)]
struct Request {
    /// The hash of its channel.
    channel: u64,
    is_safe: bool,
}

impl Acks {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            known: Mutex::new(Known {
                next: fastrand::u64(..FIRST_MAX),
                requests: HashMap::new(),
                safe: VecDeque::new(),
            }),
        }
    }

    /// A number for a request of a channel.
    pub(super) fn begin(&self, channel: &str) -> u64 {
        let channel = self.hasher.hash_one(channel);
        let mut known = self.known.lock();
        let number = known.next;
        known.next += 1;
        let request = Request {
            channel,
            is_safe: false,
        };
        known.requests.insert(number, request);
        number
    }

    /// Says what became of a request.
    pub(super) fn end(&self, number: u64, is_safe: bool) {
        let mut known = self.known.lock();
        if !is_safe {
            known.requests.remove(&number);
            return;
        }
        if let Some(request) = known.requests.get_mut(&number) {
            request.is_safe = true;
            known.safe.push_back(number);
        }
        if known.safe.len() > UNASKED_MAX
            && let Some(oldest) = known.safe.pop_front()
        {
            known.requests.remove(&oldest);
        }
    }

    /// Whether a request of a channel is safe. One that is can be asked for once.
    pub(super) fn ask(&self, channel: &str, number: u64) -> bool {
        let channel = self.hasher.hash_one(channel);
        let mut known = self.known.lock();
        let request = known.requests.get(&number);
        let is_safe = request.is_some_and(|request| request.is_safe && request.channel == channel);
        if is_safe {
            known.requests.remove(&number);
        }
        is_safe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_hears_once_that_its_request_is_safe() {
        let acks = Acks::new();
        let (first, second) = (acks.begin("a"), acks.begin("b"));
        assert_ne!(first, second);
        assert!(!acks.ask("a", first));
        acks.end(first, true);
        acks.end(second, false);
        assert!(!acks.ask("b", first), "it is of another channel");
        assert!(acks.ask("a", first));
        assert!(!acks.ask("a", first), "it was forgotten");
        assert!(!acks.ask("b", second), "it was not delivered");
    }

    #[test]
    fn those_that_nobody_asks_for_are_bounded() {
        let acks = Acks::new();
        let first = acks.begin("a");
        acks.end(first, true);
        for _ in 0..UNASKED_MAX {
            acks.end(acks.begin("a"), true);
        }
        let known = acks.known.lock();
        assert_eq!(known.requests.len(), UNASKED_MAX);
        assert!(!known.requests.contains_key(&first));
    }
}
