//! Indexer acknowledgement: an event counts as delivered when Splunk has indexed it, not when it was received.
//!
//! Every request names a channel, and is answered with an `ackId` that is its number on this channel. `/services/collector/ack` says of
//! numbers whether they are indexed, and forgets those of which it said so. Whoever waits for a number asks for all numbers
//! that are waited for on the channel, as often as the interval says; the others wait for that answer.
//! Source: <https://docs.splunk.com/Documentation/Splunk/latest/Data/AboutHECIDXAck>.
//!
//! A server that was restarted has forgotten what it was asked to index, and counts from 0 again. A number from before that could
//! then be taken for that of a later request. Each host therefore has a channel of its own, which is given up, with all that waits
//! on it, when a number comes up a second time, or when the host does not answer; what waited is sent again on a new channel.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::SendError;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;

/// A channel holds no more numbers than this; the next one begins at 0.
const CHANNEL_REQUESTS_MAX: usize = 10_000;

/// The channels, one for each host, in their order.
#[derive(Debug)]
pub struct Channels {
    current: Vec<Mutex<Arc<Channel>>>,
    /// A channel that the settings name, for all hosts and for good.
    fixed: Option<Arc<str>>,
}

/// A channel of one host.
#[derive(Debug)]
pub struct Channel {
    /// Its GUID.
    pub id: Arc<str>,
    numbers: Mutex<Numbers>,
    /// Held by whoever asks: when that was done last.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Numbers {
    seen: HashSet<u64>,
    /// What is waited for, and whether it is indexed.
    waiting: HashMap<u64, bool>,
    /// Whether nothing that waits here will be heard of.
    is_over: bool,
}

/// The body of a question, and of its answer.
#[derive(Deserialize)]
struct Answer {
    acks: HashMap<String, bool>,
}

impl Channels {
    /// Channels for so many hosts, of this name where the settings have one.
    pub fn new(hosts: usize, fixed: Option<&str>) -> Self {
        let fixed: Option<Arc<str>> = fixed.map(Arc::from);
        let new = |_| Mutex::new(Arc::new(Channel::new(fixed.clone())));
        Self {
            current: (0..hosts).map(new).collect(),
            fixed,
        }
    }

    /// The channel of a host for the next request.
    pub fn of(&self, host: usize) -> Arc<Channel> {
        let channel = self.current[host].lock().clone();
        let requests = channel.numbers.lock().seen.len();
        match requests < CHANNEL_REQUESTS_MAX {
            true => channel,
            false => self.replace(host, &channel),
        }
    }

    /// Gives up a channel: what waits on it is sent again.
    pub fn give_up(&self, host: usize, channel: &Arc<Channel>) {
        channel.numbers.lock().is_over = true;
        self.replace(host, channel);
    }

    /// Another channel in the place of this one, unless somebody else has put one there.
    fn replace(&self, host: usize, channel: &Arc<Channel>) -> Arc<Channel> {
        let mut current = self.current[host].lock();
        if Arc::ptr_eq(&current, channel) {
            *current = Arc::new(Channel::new(self.fixed.clone()));
        }
        current.clone()
    }
}

/// What a request that waits does next.
enum Next {
    Wait,
    Ask(Vec<u64>),
    Done(bool),
}

impl Channel {
    fn new(id: Option<Arc<str>>) -> Self {
        Self {
            id: id.unwrap_or_else(|| guid().into()),
            numbers: Mutex::default(),
            asking: tokio::sync::Mutex::new(None),
        }
    }

    /// Begins to wait for a number; false where the channel had it before, which says that the server was restarted.
    pub fn expect(&self, number: u64) -> bool {
        let mut numbers = self.numbers.lock();
        let is_new = numbers.seen.insert(number) && !numbers.is_over;
        if is_new {
            numbers.waiting.insert(number, false);
        }
        is_new
    }

    /// Waits until the number is indexed; false where that will not be heard any more. `ask` sends a question and gives the body
    /// of its answer.
    ///
    /// # Errors
    /// What `ask` fails with.
    pub async fn wait<F: Future<Output = Result<Vec<u8>, SendError>>>(
        &self,
        number: u64,
        interval: Duration,
        ask: impl Fn(String) -> F,
    ) -> Result<bool, SendError> {
        loop {
            tokio::time::sleep(interval).await;
            let mut asked = self.asking.lock().await;
            let numbers = match self.next(number, *asked, interval) {
                Next::Wait => continue,
                Next::Done(is_indexed) => return Ok(is_indexed),
                Next::Ask(numbers) => numbers,
            };
            let list: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let answer = ask(format!("{{\"acks\":[{}]}}", list.join(","))).await?;
            *asked = Some(Instant::now());
            drop(asked);
            self.note(&answer);
            if let Next::Done(is_indexed) = self.next(number, None, interval) {
                return Ok(is_indexed);
            }
        }
    }

    fn next(&self, number: u64, asked: Option<Instant>, interval: Duration) -> Next {
        let numbers = self.numbers.lock();
        match numbers.waiting.get(&number) {
            Some(true) => Next::Done(true),
            _ if numbers.is_over => Next::Done(false),
            None => Next::Done(false),
            // Somebody else has just asked for this number too.
            Some(false) if asked.is_some_and(|at| at.elapsed() < interval / 2) => Next::Wait,
            Some(false) => {
                let waiting = numbers
                    .waiting
                    .iter()
                    .filter(|(_, is_indexed)| !**is_indexed);
                Next::Ask(waiting.map(|(number, _)| *number).collect())
            }
        }
    }

    /// Takes in what an answer says. One that cannot be read says nothing.
    fn note(&self, answer: &[u8]) {
        let Ok(answer) = serde_json::from_slice::<Answer>(answer) else {
            return;
        };
        let mut numbers = self.numbers.lock();
        // Those that the server has forgotten since they were asked for may be another request's by now.
        if numbers.is_over {
            return;
        }
        for (number, is_indexed) in answer.acks {
            let waiting = number
                .parse()
                .ok()
                .and_then(|number| numbers.waiting.get_mut(&number));
            if let Some(known) = waiting.filter(|_| is_indexed) {
                *known = true;
            }
        }
    }

    /// Nobody waits for the number any more.
    pub fn forget(&self, number: u64) {
        self.numbers.lock().waiting.remove(&number);
    }
}

/// A random GUID (RFC 9562, version 4).
fn guid() -> String {
    let mut bytes = [0; 16];
    // A system without random numbers starts no TLS either; the channel need only differ from those of others.
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bytes = u128::from(std::process::id()).to_be_bytes();
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_twice_ends_a_channel() {
        let channels = Channels::new(2, None);
        let first = channels.of(0);
        assert_ne!(first.id, channels.of(1).id, "each host has its own");
        assert_eq!(first.id.len(), 36);
        assert!(first.expect(0) && first.expect(1));
        assert!(!first.expect(0), "the server counts from 0 again");
        channels.give_up(0, &first);
        channels.give_up(0, &first);
        let second = channels.of(0);
        assert_ne!(first.id, second.id);
        assert!(second.expect(0));
        assert!(!first.expect(7), "nothing waits on what was given up");
        assert!(matches!(
            first.next(1, None, Duration::ZERO),
            Next::Done(false)
        ));
    }

    #[test]
    fn a_channel_ends_when_it_has_had_many_requests() {
        let channels = Channels::new(1, None);
        let first = channels.of(0);
        for number in 0..CHANNEL_REQUESTS_MAX as u64 {
            assert!(first.expect(number));
        }
        assert_ne!(channels.of(0).id, first.id);
        first.note(br#"{"acks":{"3":true}}"#);
        assert!(matches!(
            first.next(3, None, Duration::ZERO),
            Next::Done(true)
        ));
    }

    #[tokio::test]
    async fn one_question_is_for_all_that_wait() {
        let channel = Channel::new(None);
        assert!((0..3).all(|number| channel.expect(number)));
        let questions = Mutex::new(Vec::new());
        let ask = |question: String| {
            let mut questions = questions.lock();
            questions.push(question);
            // The first answer is none, the second names one number, the third all.
            let answer = match questions.len() {
                1 => "busy",
                2 => r#"{"acks":{"0":false,"1":true,"2":false}}"#,
                _ => r#"{"acks":{"0":true,"2":true}}"#,
            };
            std::future::ready(Ok(answer.as_bytes().to_vec()))
        };
        let wait = |number| channel.wait(number, Duration::from_millis(20), ask);
        let all = tokio::join!(wait(0), wait(1), wait(2));
        assert_eq!(all, (Ok(true), Ok(true), Ok(true)));
        let questions = questions.lock();
        assert!(questions.len() <= 4, "{questions:?}");
        let mut first: Vec<u64> =
            serde_json::from_str(&questions[0][8..questions[0].len() - 1]).expect("a list");
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
    }
}
