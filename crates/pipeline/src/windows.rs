//! What limited running pipelines over the last 1, 5 and 15 minutes.
//!
//! Counters only grow, so that two looks at them give what happened in between. A look is taken every [`LOOK_EVERY`] and those of the
//! longest window are kept: some 180 for 15 minutes, of a few hundred bytes for each operator.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use component::metrics::Snapshot;

use crate::report::{OperatorReport, Role};
use crate::usage::{Reading, Usage};
use crate::verdict::{Shares, Span, Verdict};

/// How often a look is to be taken.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The windows, shortest first.
pub const WINDOWS: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];

/// What a pipeline has counted since its start.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Its own work.
    pub own: Snapshot,
    /// Its operators, in the order of the flow.
    pub operators: Vec<OperatorReport>,
    /// How long ago the oldest event was read that is in its queue now.
    pub oldest: Duration,
}

/// A look at all pipelines, by their names.
#[derive(Debug, Clone)]
struct Moment {
    reading: Reading,
    pipelines: BTreeMap<String, Counted>,
}

/// The looks of the longest window.
#[derive(Debug)]
pub struct Windows {
    /// Oldest first.
    looks: VecDeque<Moment>,
    workers: usize,
}

/// What a pipeline did in one window.
#[derive(Debug, Clone)]
pub struct Window {
    /// The length that was asked for.
    pub length: Duration,
    /// What the process used; shorter than the length where the pipeline, or Millpond, has not run as long.
    pub usage: Usage,
    /// What was counted in it.
    pub counted: Counted,
    /// How each operator spent the time.
    pub shares: Vec<Shares>,
    /// What limited the pipeline.
    pub verdict: Verdict,
}

impl Windows {
    /// Nothing was looked at yet, of a process with so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            looks: VecDeque::new(),
            workers,
        }
    }

    /// Takes a look.
    pub fn look(&mut self, reading: Reading, pipelines: BTreeMap<String, Counted>) {
        self.looks.push_back(Moment { reading, pipelines });
        // The one before the beginning of the longest window is its beginning.
        while self.looks.get(1).is_some_and(|second| {
            reading.since(&second.reading, self.workers).wall >= WINDOWS[WINDOWS.len() - 1]
        }) {
            self.looks.pop_front();
        }
    }

    /// What a pipeline did in each of the windows until the last look; nothing where it was not there for two looks.
    pub fn of(&self, pipeline: &str) -> Vec<Window> {
        let Some(last) = self.looks.back() else {
            return Vec::new();
        };
        let Some(now) = last.pipelines.get(pipeline) else {
            return Vec::new();
        };
        let window = |length| {
            let candidates = self.looks.iter().rev().skip(1);
            let usable = candidates
                .map_while(|look| Some((look, look.pipelines.get(pipeline)?)))
                .take_while(|(_, then)| is_continued(then, now));
            let mut begin = None;
            for (look, then) in usable {
                let is_enough = begin.is_some_and(|(_, _, wall)| wall >= length);
                if is_enough {
                    break;
                }
                let wall = last.reading.since(&look.reading, self.workers).wall;
                begin = Some((look, then, wall));
            }
            let (look, then, _) = begin?;
            let usage = last.reading.since(&look.reading, self.workers);
            Some(Window::new(length, usage, now.since(then)))
        };
        WINDOWS.into_iter().filter_map(window).collect()
    }
}

/// Events that old are late, however long the window is.
const LATE: Duration = Duration::from_secs(30);

impl Window {
    fn new(length: Duration, usage: Usage, counted: Counted) -> Self {
        let span = Span {
            own: &counted.own,
            operators: &counted.operators,
            usage: &usage,
            lag: match counted.oldest >= LATE {
                true => usage.wall,
                false => counted.oldest,
            },
        };
        Self {
            shares: counted.operators.iter().map(|it| span.shares(it)).collect(),
            verdict: span.verdict(),
            length,
            usage,
            counted,
        }
    }
}

impl Counted {
    /// What was counted since an earlier look at the same pipeline.
    fn since(&self, earlier: &Self) -> Self {
        let operators = self.operators.iter().zip(&earlier.operators);
        Self {
            own: self.own.since(&earlier.own),
            oldest: self.oldest,
            operators: operators
                .map(|(now, then)| OperatorReport {
                    role: now.role,
                    name: now.name.clone(),
                    counts: now.counts.since(&then.counts),
                    metric: None,
                })
                .collect(),
        }
    }
}

/// Whether these are counters of one run of a pipeline: a reload begins to count anew.
fn is_continued(then: &Counted, now: &Counted) -> bool {
    let key = |it: &OperatorReport| -> (Role, String) { (it.role, it.name.clone()) };
    let is_same = then
        .operators
        .iter()
        .map(key)
        .eq(now.operators.iter().map(key));
    let has_grown = |(then, now): (&OperatorReport, &OperatorReport)| {
        let (then, now) = (&then.counts, &now.counts);
        then.events_in <= now.events_in && then.events_out <= now.events_out && then.cpu <= now.cpu
    };
    is_same && then.operators.iter().zip(&now.operators).all(has_grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A pipeline whose input was at work for so many seconds, and its processor for so many.
    fn counted(input: u64, processor: u64) -> BTreeMap<String, Counted> {
        let operator = |role, name: &str, seconds: u64| OperatorReport {
            role,
            name: name.to_owned(),
            counts: Snapshot {
                cpu: Duration::from_secs(seconds),
                busy: Duration::from_secs(seconds),
                events_in: seconds,
                ..Snapshot::default()
            },
            metric: None,
        };
        let counted = Counted {
            own: Snapshot::default(),
            oldest: Duration::ZERO,
            operators: vec![
                operator(Role::Input, "file", input),
                operator(Role::Processor, "grok", processor),
                operator(Role::Output, "discard", 0),
            ],
        };
        BTreeMap::from([("web".to_owned(), counted)])
    }

    fn limits(windows: &Windows) -> Vec<Option<String>> {
        let windows = windows.of("web").into_iter();
        let limits = windows.map(|it| it.verdict.limits.map(|component| component.to_string()));
        limits.collect()
    }

    #[test]
    fn each_window_has_what_limited_in_it() {
        let start = Reading::now();
        let at = |seconds: u64| start.later(Duration::from_secs(seconds));
        let mut windows = Windows::new(1);
        assert!(windows.of("web").is_empty());
        windows.look(at(0), counted(0, 0));
        assert!(windows.of("web").is_empty(), "one look tells nothing");
        // The processor limits for ten minutes, then the input for two.
        let (mut input, mut processor) = (0, 0);
        for step in 1..=144 {
            match step <= 120 {
                true => processor += 5,
                false => input += 5,
            }
            windows.look(at(5 * step), counted(input, processor));
        }
        let [short, middle, long] = &windows.of("web")[..] else {
            panic!("three windows");
        };
        assert_eq!(short.usage.wall, 60 * SECOND);
        assert_eq!(middle.usage.wall, 300 * SECOND);
        assert_eq!(long.usage.wall, 720 * SECOND, "as long as it runs");
        let named = ["input file", "processor grok", "processor grok"];
        assert_eq!(limits(&windows), named.map(|name| Some(name.to_owned())));
        assert!((short.shares[0].busy - 1.0).abs() < 1e-9, "{short:?}");
        assert_eq!(short.counted.operators[0].counts.events_in, 60);
        // What is older than the longest window is forgotten.
        for step in 145..=400 {
            input += 5;
            windows.look(at(5 * step), counted(input, processor));
        }
        assert_eq!(windows.looks.len(), 181);
        let long = &windows.of("web")[2];
        assert_eq!(long.usage.wall, 900 * SECOND);
    }

    #[test]
    fn a_pipeline_that_was_reloaded_is_looked_at_since_then() {
        let start = Reading::now();
        let at = |seconds: u64| start.later(Duration::from_secs(seconds));
        let mut windows = Windows::new(1);
        windows.look(at(0), counted(100, 7));
        windows.look(at(5), counted(105, 7));
        windows.look(at(10), counted(1, 2));
        assert!(windows.of("web").is_empty());
        windows.look(at(15), counted(1, 7));
        let window = &windows.of("web")[0];
        assert_eq!(window.usage.wall, 5 * SECOND);
        windows.look(at(20), BTreeMap::new());
        assert!(windows.of("web").is_empty(), "it is gone");
    }
}
