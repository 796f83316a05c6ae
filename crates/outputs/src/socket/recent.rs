//! What was sent last on a connection, and may not have been read by the server's process.
//!
//! That the server's system has acknowledged bytes does not say that its process has read them: the system holds as much as its
//! receive buffer does, 6 MiB by default (`net.ipv4.tcp_rmem`). So the last requests are kept, and sent again if the connection
//! turns out to have broken. If the server has closed it in the usual way, its process had read everything that its system held;
//! what it then had in memory, or what a proxy had taken, may still be lost: therefore what is younger than [`YOUNG`] is sent
//! again, and the rest is forgotten.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How long what was sent may wait in a server or proxy that reads without delay.
const YOUNG: Duration = Duration::from_secs(5);

/// How often a request is sent again at most: on a network that breaks every connection after a while, requests would otherwise be
/// sent again and again, and none would get further.
const REPEATS_MAX: u32 = 2;

/// The last requests on a connection, and those that are to be sent again on the next one.
#[derive(Debug)]
pub struct Recent {
    sent: VecDeque<SentRequest>,
    /// In their order, those that are still to be sent again.
    due: VecDeque<SentRequest>,
    size_max: usize,
}

/// A request that the server's system has acknowledged.
#[derive(Debug)]
struct SentRequest {
    at: Instant,
    body: Bytes,
    repeats: u32,
}

impl Recent {
    /// None yet, and later the last `size_max` bytes, in whole requests.
    pub fn new(size_max: usize) -> Self {
        Self {
            sent: VecDeque::new(),
            due: VecDeque::new(),
            size_max,
        }
    }

    /// A request that the server's system has acknowledged.
    pub fn push(&mut self, body: &Bytes, at: Instant) {
        if self.size_max == 0 {
            return;
        }
        self.sent.push_back(SentRequest {
            at,
            body: body.clone(),
            repeats: 0,
        });
        let mut size: usize = self.sent.iter().map(|sent| sent.body.len()).sum();
        while let Some(first) = self.sent.front() {
            size -= first.body.len();
            if size < self.size_max {
                break;
            }
            self.sent.pop_front();
        }
    }

    /// The connection broke, or may have: what was sent is to be sent again.
    pub fn broken(&mut self) {
        while let Some(last) = self.sent.pop_back() {
            if last.repeats < REPEATS_MAX {
                self.due.push_front(last);
            }
        }
    }

    /// The server has closed the connection.
    pub fn closed(&mut self, now: Instant) {
        let is_young = |sent: &SentRequest| now.saturating_duration_since(sent.at) < YOUNG;
        self.sent.retain(is_young);
        self.broken();
    }

    /// Whether nothing is to be sent again, and what was sent is so old that it has been read as far as is known.
    pub fn is_settled(&self, now: Instant) -> bool {
        let is_old = |sent: &SentRequest| now.saturating_duration_since(sent.at) >= YOUNG;
        self.due.is_empty() && self.sent.iter().all(is_old)
    }

    /// What is to be sent again next.
    pub fn due(&self) -> Option<Bytes> {
        self.due.front().map(|first| first.body.clone())
    }

    /// That was sent again, and the server's system has acknowledged it.
    pub fn repeated(&mut self, at: Instant) {
        if let Some(SentRequest { body, repeats, .. }) = self.due.pop_front() {
            let repeats = repeats + 1;
            self.sent.push_back(SentRequest { at, body, repeats });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(length: usize) -> Bytes {
        vec![0; length].into()
    }

    fn repeat(recent: &mut Recent, now: Instant) -> Vec<usize> {
        let next = |recent: &mut Recent| {
            let due = recent.due()?;
            recent.repeated(now);
            Some(due.len())
        };
        std::iter::from_fn(|| next(recent)).collect()
    }

    #[test]
    fn the_last_bytes_are_kept() {
        let mut recent = Recent::new(10);
        let now = Instant::now();
        (1..=6).for_each(|length| recent.push(&body(length), now));
        assert_eq!(repeat(&mut recent, now), [0; 0], "nothing happened");
        recent.broken();
        assert_eq!(repeat(&mut recent, now), [5, 6]);
        recent.push(&body(100), now);
        recent.broken();
        assert_eq!(repeat(&mut recent, now), [100], "even if it is large");
        let mut none = Recent::new(0);
        none.push(&body(1), now);
        none.broken();
        assert_eq!(repeat(&mut none, now), [0; 0]);
    }

    #[test]
    fn what_is_old_has_been_read_when_a_server_closes() {
        let mut recent = Recent::new(100);
        let begin = Instant::now();
        recent.push(&body(1), begin);
        recent.push(&body(2), begin + YOUNG);
        recent.closed(begin + YOUNG);
        assert_eq!(repeat(&mut recent, begin + YOUNG), [2]);
        assert!(!recent.is_settled(begin + YOUNG));
        assert!(recent.is_settled(begin + YOUNG * 2));
        recent.closed(begin + YOUNG * 2);
        assert_eq!(recent.due(), None);
    }

    #[test]
    fn connections_that_break_again_get_further() {
        let mut recent = Recent::new(100);
        let now = Instant::now();
        (1..=4).for_each(|length| recent.push(&body(length), now));
        let mut sent = Vec::new();
        // Each connection breaks after two requests.
        for _ in 0..5 {
            recent.broken();
            for _ in 0..2 {
                sent.extend(recent.due().map(|body| body.len()));
                recent.repeated(now);
            }
        }
        assert_eq!(sent, [1, 2, 1, 2, 3, 4, 3, 4]);
    }
}
