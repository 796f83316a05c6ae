//! What a process tells of itself, of which the inputs `metrics` and `internal_log` make events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::Serialize;

/// How many messages are kept for those who read them.
pub const KEPT_MAX: usize = 1000;

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
    /// `error`, `warn` or `info`.
    pub level: &'static str,
    /// The pipeline that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The component, with its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What it says.
    pub message: String,
}

/// The last messages of the log, and how far everybody is who reads them. Clones are the same.
#[derive(Clone, Default)]
pub struct LogTails(Arc<SharedLog>);

#[derive(Default)]
struct SharedLog {
    kept: Mutex<Kept>,
    arrived: Condvar,
}

#[derive(Default)]
struct Kept {
    entries: VecDeque<LogEntry>,
    /// How many messages there have been in all.
    told: u64,
    /// How many of them the readers of these names are done with.
    read: BTreeMap<Arc<str>, u64>,
    /// The pipelines that pipelines feed.
    feeds: BTreeMap<String, Vec<String>>,
}

impl Kept {
    /// The number of the first message that is kept.
    fn first(&self) -> u64 {
        self.told - self.entries.len() as u64
    }
}

impl fmt::Debug for LogTails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTails").finish_non_exhaustive()
    }
}

impl LogTails {
    /// Reads on where the last reader of this name ended. Where there was none, it begins with the [`KEPT_MAX`] messages before.
    pub fn listen(&self, name: &Arc<str>) -> LogTail {
        let kept = self.0.kept.lock();
        LogTail {
            log: self.0.clone(),
            name: name.clone(),
            next: kept.read.get(name).copied().unwrap_or(kept.first()),
        }
    }

    /// Tells everybody. Whoever logs never waits for whoever reads.
    pub fn tell(&self, entry: LogEntry) {
        let mut kept = self.0.kept.lock();
        if kept.entries.len() == KEPT_MAX {
            kept.entries.pop_front();
        }
        kept.entries.push_back(entry);
        kept.told += 1;
        drop(kept);
        self.0.arrived.notify_all();
    }

    /// A pipeline feeds these others.
    pub fn feeds(&self, pipeline: &str, others: Vec<String>) {
        let mut kept = self.0.kept.lock();
        kept.feeds.insert(pipeline.to_owned(), others);
    }

    /// A pipeline and all that get its events.
    pub fn downstream(&self, pipeline: &str) -> BTreeSet<String> {
        let kept = self.0.kept.lock();
        let mut found = BTreeSet::new();
        let mut new = vec![pipeline];
        while let Some(name) = new.pop() {
            if found.insert(name.to_owned()) {
                new.extend(
                    kept.feeds
                        .get(name)
                        .into_iter()
                        .flatten()
                        .map(String::as_str),
                );
            }
        }
        found
    }
}

/// One who reads the log.
pub struct LogTail {
    log: Arc<SharedLog>,
    name: Arc<str>,
    /// The number of the next message.
    next: u64,
}

impl LogTail {
    /// What has come, waiting so long for it, and how many messages since the last call are no longer kept.
    pub fn take(&mut self, patience: Duration) -> (Vec<LogEntry>, u64) {
        let mut kept = self.log.kept.lock();
        if self.next == kept.told {
            self.log.arrived.wait_for(&mut kept, patience);
        }
        let first = kept.first().max(self.next);
        let lost = first - self.next;
        let passed = (first - kept.first()) as usize;
        self.next = kept.told;
        (kept.entries.iter().skip(passed).cloned().collect(), lost)
    }

    /// What was taken is not wanted again, not by the next reader of this name either.
    pub fn settle(&self) {
        let mut kept = self.log.kept.lock();
        kept.read.insert(self.name.clone(), self.next);
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
            message: message.to_owned(),
        }
    }

    fn taken(tail: &mut LogTail) -> (Vec<String>, u64) {
        let (entries, lost) = tail.take(Duration::ZERO);
        let messages = entries.into_iter().map(|it| it.message);
        (messages.collect(), lost)
    }

    #[test]
    fn everybody_hears_the_last_messages_and_reads_on_where_the_last_one_ended() {
        let log = LogTails::default();
        for number in 0..=KEPT_MAX {
            log.tell(entry(&number.to_string()));
        }
        let mut first = log.listen(&"first".into());
        let mut other = log.listen(&"other".into());
        for tail in [&mut first, &mut other] {
            let (messages, lost) = taken(tail);
            assert_eq!((messages.len(), &*messages[0], lost), (KEPT_MAX, "1", 0));
        }
        log.tell(entry("a"));
        assert_eq!(taken(&mut first), (vec!["a".to_owned()], 0));
        first.settle();
        log.tell(entry("b"));
        log.tell(entry("c"));
        assert_eq!(taken(&mut first).0, ["b", "c"]);
        // What it took last was not settled.
        let mut again = log.listen(&"first".into());
        assert_eq!(taken(&mut again), (vec!["b".to_owned(), "c".to_owned()], 0));
        assert_eq!(taken(&mut again), (Vec::new(), 0));
        for _ in 0..=KEPT_MAX {
            log.tell(entry("d"));
        }
        let (messages, lost) = taken(&mut again);
        assert_eq!((messages.len(), lost), (KEPT_MAX, 1));
    }

    #[test]
    fn pipelines_feed_others_through_others() {
        let log = LogTails::default();
        let feeds = |from: &str, to: &[&str]| {
            log.feeds(from, to.iter().map(|&it| it.to_owned()).collect());
        };
        feeds("a", &["b", "c"]);
        feeds("c", &["d", "a"]);
        feeds("e", &["f"]);
        let names = |of: &str| log.downstream(of).into_iter().collect::<Vec<_>>();
        assert_eq!(names("a"), ["a", "b", "c", "d"]);
        feeds("a", &["b"]);
        assert_eq!(names("a"), ["a", "b"]);
        assert_eq!(names("x"), ["x"]);
    }
}
