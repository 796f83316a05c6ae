//! What a process tells of itself, of which the inputs `metrics` and `internal_log` make events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::Serialize;

/// How many messages that came before the first input listened are kept for it.
const EARLY_MAX: usize = 1000;

/// JSON objects that say what everything is at.
type Metrics = Arc<dyn Fn() -> Vec<Vec<u8>> + Send + Sync>;

/// What a process tells of itself. Clones tell the same.
#[derive(Clone, Default)]
pub struct Own {
    metrics: Option<Metrics>,
    log: LogTails,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

impl Own {
    /// `metrics` gives JSON objects each time it is called.
    pub fn new(metrics: impl Fn() -> Vec<Vec<u8>> + Send + Sync + 'static, log: LogTails) -> Self {
        Self {
            metrics: Some(Arc::new(metrics)),
            log,
        }
    }

    /// What everything is at now: a JSON object for the process, and for each pipeline, operator, queue and output.
    pub fn metrics(&self) -> Vec<Vec<u8>> {
        self.metrics.as_ref().map_or_else(Vec::new, |all| all())
    }

    /// The log.
    pub fn log(&self) -> &LogTails {
        &self.log
    }
}

/// A message of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LogEntry {
    /// When, in nanoseconds since 1970.
    #[serde(skip)]
    pub time_ns: i64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// The pipeline that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The component, with its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// The library that says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// What it says.
    pub message: String,
}

/// Everybody who reads the log. Clones are the same.
#[derive(Clone, Default)]
pub struct LogTails(Arc<Mutex<Listeners>>);

#[derive(Default)]
struct Listeners {
    tails: Vec<Weak<LogTail>>,
    /// What came before anybody listened.
    early: VecDeque<LogEntry>,
    was_heard: bool,
}

impl fmt::Debug for LogTails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTails").finish_non_exhaustive()
    }
}

impl LogTails {
    /// What is said from now on, of which `max` messages are kept until they are taken. The first one who listens also hears what was said
    /// before.
    pub fn listen(&self, max: usize) -> Arc<LogTail> {
        let mut listeners = self.0.lock();
        listeners.was_heard = true;
        let tail = Arc::new(LogTail {
            max,
            state: Mutex::new(Tail {
                entries: std::mem::take(&mut listeners.early),
                lost: 0,
            }),
            arrived: Condvar::new(),
        });
        listeners.tails.push(Arc::downgrade(&tail));
        tail
    }

    /// Tells everybody.
    pub fn tell(&self, entry: &LogEntry) {
        let mut listeners = self.0.lock();
        if !listeners.was_heard {
            if listeners.early.len() == EARLY_MAX {
                listeners.early.pop_front();
            }
            listeners.early.push_back(entry.clone());
            return;
        }
        listeners.tails.retain(|tail| match tail.upgrade() {
            Some(tail) => {
                tail.put(entry);
                true
            }
            None => false,
        });
    }
}

/// Messages of the log that were not taken yet.
#[derive(Debug)]
pub struct LogTail {
    max: usize,
    state: Mutex<Tail>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Tail {
    entries: VecDeque<LogEntry>,
    lost: u64,
}

impl LogTail {
    fn put(&self, entry: &LogEntry) {
        let mut state = self.state.lock();
        if state.entries.len() >= self.max {
            // Whoever logs never waits for whoever reads.
            state.lost += 1;
            return;
        }
        state.entries.push_back(entry.clone());
        self.arrived.notify_one();
    }

    /// What has come, waiting so long for it, and how many messages found no room since the last call.
    pub fn take(&self, patience: Duration) -> (VecDeque<LogEntry>, u64) {
        let mut state = self.state.lock();
        if state.entries.is_empty() {
            self.arrived.wait_for(&mut state, patience);
        }
        (
            std::mem::take(&mut state.entries),
            std::mem::take(&mut state.lost),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(message: &str) -> LogEntry {
        LogEntry {
            time_ns: 0,
            level: "info",
            pipeline: None,
            component: None,
            library: None,
            message: message.to_owned(),
        }
    }

    fn taken(tail: &LogTail) -> (Vec<String>, u64) {
        let (entries, lost) = tail.take(Duration::ZERO);
        let messages = entries.into_iter().map(|it| it.message);
        (messages.collect(), lost)
    }

    #[test]
    fn the_first_hears_what_was_said_before_and_nobody_waits() {
        let log = LogTails::default();
        for number in 0..=EARLY_MAX {
            log.tell(&entry(&number.to_string()));
        }
        let first = log.listen(2 * EARLY_MAX);
        let other = log.listen(2);
        let (messages, lost) = taken(&first);
        assert_eq!((messages.len(), lost), (EARLY_MAX, 0));
        assert_eq!(messages[0], "1");
        for message in ["a", "b", "c"] {
            log.tell(&entry(message));
        }
        assert_eq!(taken(&other), (vec!["a".to_owned(), "b".to_owned()], 1));
        assert_eq!(taken(&other), (Vec::new(), 0));
        assert_eq!(taken(&first).0.len(), 3);
        drop(first);
        log.tell(&entry("d"));
        assert_eq!(log.0.lock().tails.len(), 1);
    }
}
