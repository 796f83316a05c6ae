//! Messages of components, engine and queue for the person who runs Millpond.
//!
//! A [`Diagnostics`] knows whose messages it carries: the engine gives every component one of its own
//! ([`Diagnostics::for_component`]), so that no message repeats the name. Where messages go, and how they look, is decided by
//! whoever made the first one.
//!
//! **Rate limiting happens here and nowhere else.** What may be said again and again has a [`Limit`]: its kind and how often
//! it may be said. Kinds belong to the component that says them. What was said is known for the whole run and by all clones;
//! of each message a hash is kept, and of kinds with many subjects [`SUBJECTS_MAX`] in all. A message that reports a change of
//! state, such as a disk that takes events again, is not limited.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::words::without_error_numbers;

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something was lost, or could not be done.
    Error,
    /// Something was cut, replaced, skipped, or is tried again.
    Warn,
    /// All is well.
    Info,
}

/// The kinds of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Brings events in.
    Input,
    /// Holds them until processors and outputs take them.
    Queue,
    /// Changes or filters them.
    Processor,
    /// Takes them out.
    Output,
}

impl Role {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Queue => "queue",
            Self::Processor => "processor",
            Self::Output => "output",
        }
    }
}

/// An operator of a pipeline, as messages name it: `output archive`, or `queue`, of which a pipeline has one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Component {
    /// What kind it is.
    pub role: Role,
    /// Its name among those of its kind.
    pub name: Arc<str>,
}

impl Component {
    /// The operator of that kind and name.
    pub fn new(role: Role, name: &str) -> Self {
        Self {
            role,
            name: name.into(),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Queue => f.write_str(self.role.word()),
            role => write!(f, "{} {}", role.word(), self.name),
        }
    }
}

/// Something to say.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// How much it matters.
    pub level: Level,
    /// The pipeline that it is about.
    pub pipeline: Option<&'a str>,
    /// The operator that it is about.
    pub component: Option<&'a Component>,
    /// One line, naming the file or peer and what happened, without error numbers of the operating system.
    pub text: &'a str,
}

/// The operator and the text.
impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(component) = self.component {
            write!(f, "{component}: ")?;
        }
        f.write_str(self.text)
    }
}

/// How often something may be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit<'a> {
    kind: &'static str,
    subject: &'a str,
    every: Option<Period>,
}

/// How often something may be said in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Period {
    times: u32,
    length: Duration,
    /// The words for its length.
    name: &'static str,
}

/// How often a kind of problem is reported for each peer.
const PEER_PERIOD: Period = Period {
    times: 10,
    length: Duration::from_secs(60),
    name: "a minute",
};

/// How often a kind of problem is reported that any number of events may have.
const EVENTS_PERIOD: Period = Period {
    times: 1,
    length: Duration::from_secs(3600),
    name: "an hour",
};

impl Limit<'static> {
    /// Once in a run.
    pub fn once(kind: &'static str) -> Self {
        Limit::once_for(kind, "")
    }

    /// A problem that any number of events may have, and that is counted: the first one is reported, and one an hour, with
    /// the number of those between. The text needs no such remark of its own.
    pub fn events(kind: &'static str) -> Self {
        Self {
            kind,
            subject: "",
            every: Some(EVENTS_PERIOD),
        }
    }
}

impl<'a> Limit<'a> {
    /// Once in a run for each subject, such as a path.
    pub fn once_for(kind: &'static str, subject: &'a str) -> Self {
        Self {
            kind,
            subject,
            every: None,
        }
    }

    /// A problem with a peer on the network, which may connect any number of times: ten a minute are reported for each kind and
    /// peer, with the number of those between.
    pub fn peer(kind: &'static str, address: &'a str) -> Self {
        Self {
            kind,
            subject: address,
            every: Some(PEER_PERIOD),
        }
    }
}

/// What a processor or an output has to say, for whoever calls it to pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// One line, without the component's name.
    pub text: String,
    /// How often it may be said; none where it is worth saying each time.
    pub limit: Option<Limit<'static>>,
}

impl Warning {
    /// A warning that may be said only so often.
    pub fn limited(limit: Limit<'static>, text: String) -> Self {
        Self {
            text,
            limit: Some(limit),
        }
    }
}

impl From<String> for Warning {
    fn from(text: String) -> Self {
        Self { text, limit: None }
    }
}

/// Where messages for the person who runs Millpond go. Cheap to clone.
#[derive(Clone)]
pub struct Diagnostics {
    shared: Arc<Shared>,
    pipeline: Option<Arc<str>>,
    component: Option<Component>,
}

struct Shared {
    sink: Box<dyn Fn(&Message<'_>) + Send + Sync>,
    limiter: Limiter,
}

impl Diagnostics {
    /// Messages go to this function as lines: the operator and the text.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self::to_sink(move |message| say(&message.to_string()))
    }

    /// Messages go to this function.
    pub fn to_sink(sink: impl Fn(&Message<'_>) + Send + Sync + 'static) -> Self {
        Self::with_clock(sink, Instant::now)
    }

    /// Messages go to this function, as often as the clock allows.
    pub fn with_clock(
        sink: impl Fn(&Message<'_>) + Send + Sync + 'static,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                sink: Box::new(sink),
                limiter: Limiter::new(clock),
            }),
            pipeline: None,
            component: None,
        }
    }

    /// Nobody hears the messages.
    pub fn silent() -> Self {
        Self::to_sink(|_| {})
    }

    /// For messages about this pipeline.
    pub fn for_pipeline(&self, name: &str) -> Self {
        Self {
            pipeline: Some(name.into()),
            component: None,
            ..self.clone()
        }
    }

    /// For messages about this operator.
    pub fn for_component(&self, role: Role, name: &str) -> Self {
        Self {
            component: Some(Component::new(role, name)),
            ..self.clone()
        }
    }

    /// The pipeline and the operator that messages are about.
    pub fn origin(&self) -> (Option<&str>, Option<&Component>) {
        (self.pipeline.as_deref(), self.component.as_ref())
    }

    /// Says that something was lost, or could not be done.
    pub fn error(&self, text: &str) {
        self.say(Level::Error, text);
    }

    /// Says something that a person should know: one line, naming the file or peer.
    pub fn warn(&self, text: &str) {
        self.say(Level::Warn, text);
    }

    /// Says that something is well, or well again.
    pub fn info(&self, text: &str) {
        self.say(Level::Info, text);
    }

    /// Warns, if that may be said now.
    pub fn warn_limited(&self, limit: Limit<'_>, text: impl FnOnce() -> String) {
        let scope = (&self.pipeline, &self.component);
        let Some(admitted) = self.shared.limiter.admit(scope, limit) else {
            return;
        };
        let text = text();
        match (admitted, limit.every) {
            (Admitted { held_back, .. }, _) if held_back > 0 => {
                self.warn(&format!("{text} ({held_back} more since the last report)"));
            }
            (Admitted { is_last: true, .. }, Some(Period { name, .. })) => {
                let note = format!("further occurrences are only counted for {name}");
                self.warn(&format!("{text} ({note})"));
            }
            _ => self.warn(&text),
        }
    }

    /// Passes on what a component has to say.
    pub fn pass_on(&self, warning: Warning) {
        match warning.limit {
            Some(limit) => self.warn_limited(limit, || warning.text),
            None => self.warn(&warning.text),
        }
    }

    fn say(&self, level: Level, text: &str) {
        (self.shared.sink)(&Message {
            level,
            pipeline: self.pipeline.as_deref(),
            component: self.component.as_ref(),
            text: &without_error_numbers(text),
        });
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Diagnostics");
        shown.field("pipeline", &self.pipeline);
        shown.field("component", &self.component);
        shown.finish_non_exhaustive()
    }
}

/// Subjects of messages that are remembered, all kinds together: who has been told of ten thousand broken files knows. Those
/// whose period is over make room for others.
const SUBJECTS_MAX: usize = 10_000;

/// How often it is looked which of them are over.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Whose message it is.
type Scope<'a> = (&'a Option<Arc<str>>, &'a Option<Component>);

/// Knows what was said.
struct Limiter {
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By the hash of scope, kind and subject.
    said: HashMap<u64, Said>,
    subjects: usize,
    /// When it was last looked which are over.
    looked: Option<Instant>,
}

/// What was said since a period began.
struct Said {
    since: Instant,
    times: u32,
    held_back: u64,
    /// How long it is remembered; for ever where it is said once.
    period: Option<Duration>,
    has_subject: bool,
}

/// That something may be said.
struct Admitted {
    /// How often it was not said before.
    held_back: u64,
    /// It will not be said again in this period.
    is_last: bool,
}

impl Limiter {
    fn new(clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self {
            clock: Box::new(clock),
            hasher: RandomState::new(),
            known: Mutex::default(),
        }
    }

    /// Whether something may be said now.
    fn admit(&self, scope: Scope<'_>, limit: Limit<'_>) -> Option<Admitted> {
        let key = self.hasher.hash_one((scope, limit.kind, limit.subject));
        let now = (self.clock)();
        let mut known = self.known.lock();
        if let Some(said) = known.said.get_mut(&key) {
            let period = limit.every?;
            if now.saturating_duration_since(said.since) >= period.length {
                (said.since, said.times) = (now, 0);
            }
            if said.times == period.times {
                said.held_back += 1;
                return None;
            }
            said.times += 1;
            return Some(Admitted {
                held_back: std::mem::take(&mut said.held_back),
                is_last: said.times == period.times,
            });
        }
        if !limit.subject.is_empty() {
            if known.subjects == SUBJECTS_MAX {
                known.forget(now);
            }
            if known.subjects == SUBJECTS_MAX {
                return None;
            }
            known.subjects += 1;
        }
        let said = Said {
            since: now,
            times: 1,
            held_back: 0,
            period: limit.every.map(|period| period.length),
            has_subject: !limit.subject.is_empty(),
        };
        known.said.insert(key, said);
        Some(Admitted {
            held_back: 0,
            is_last: limit.every.is_none_or(|period| period.times == 1),
        })
    }
}

impl Known {
    /// Forgets the subjects whose period is over.
    fn forget(&mut self, now: Instant) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.looked.is_some_and(|then| since(then) < FORGET_EVERY) {
            return;
        }
        self.looked = Some(now);
        let is_over = |said: &Said| {
            said.period
                .is_some_and(|period| since(said.since) >= period)
        };
        let before = self.said.len();
        self.said
            .retain(|_, said| !said.has_subject || !is_over(said));
        self.subjects -= before - self.said.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Diagnostics, what they said with its scope, and the clock's seconds.
    struct Bench {
        diagnostics: Diagnostics,
        said: Arc<Mutex<Vec<String>>>,
        seconds: Arc<Mutex<u64>>,
    }

    impl Bench {
        fn new() -> Self {
            let said = Arc::new(Mutex::new(Vec::new()));
            let seconds = Arc::new(Mutex::new(0));
            let sink = {
                let said = said.clone();
                move |message: &Message<'_>| {
                    let (level, pipeline) = (message.level, message.pipeline.unwrap_or("-"));
                    let line = format!("{level:?} {pipeline} {message}");
                    said.lock().push(line);
                }
            };
            let clock = {
                let (begin, seconds) = (Instant::now(), seconds.clone());
                move || begin + Duration::from_secs(*seconds.lock())
            };
            Self {
                diagnostics: Diagnostics::with_clock(sink, clock),
                said,
                seconds,
            }
        }

        fn said(&self) -> Vec<String> {
            std::mem::take(&mut *self.said.lock())
        }
    }

    #[test]
    fn messages_name_their_pipeline_and_component() {
        let bench = Bench::new();
        let pipeline = bench.diagnostics.for_pipeline("web");
        bench.diagnostics.info("a");
        pipeline.error("b");
        pipeline.for_component(Role::Output, "archive").warn("c");
        let queue = pipeline.for_component(Role::Queue, "disk");
        queue.warn("d");
        queue.for_component(Role::Processor, "grok").warn("e");
        queue.for_pipeline("mail").warn("f");
        assert_eq!(
            bench.said(),
            [
                "Info - a",
                "Error web b",
                "Warn web output archive: c",
                "Warn web queue: d",
                "Warn web processor grok: e",
                "Warn mail f",
            ]
        );
    }

    #[test]
    fn a_kind_is_said_once_by_each_component() {
        let bench = Bench::new();
        let one = bench.diagnostics.for_component(Role::Input, "one");
        let two = bench.diagnostics.for_component(Role::Input, "two");
        for diagnostics in [&one, &two, &one.clone(), &bench.diagnostics] {
            diagnostics.warn_limited(Limit::once("watch"), || "polled".into());
            diagnostics.warn_limited(Limit::once_for("file", "/a"), || "/a: broken".into());
            diagnostics.warn_limited(Limit::once_for("file", "/b"), || "/b: broken".into());
            *bench.seconds.lock() += 1_000_000;
        }
        let texts = ["polled", "/a: broken", "/b: broken"];
        let expected = ["input one: ", "input two: ", ""]
            .iter()
            .flat_map(|who| texts.map(|text| format!("Warn - {who}{text}")));
        assert_eq!(bench.said(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn problems_of_events_are_said_once_an_hour_with_the_number_between() {
        let bench = Bench::new();
        let refuse = || {
            let limit = Limit::events("refused");
            bench
                .diagnostics
                .warn_limited(limit, || "refused: too large".into());
            bench.said()
        };
        let texts = [
            (
                0,
                "Warn - refused: too large (further occurrences are only counted for an hour)",
            ),
            (1, ""),
            (3599, ""),
            (
                3600,
                "Warn - refused: too large (2 more since the last report)",
            ),
            (7199, ""),
            (
                7200,
                "Warn - refused: too large (1 more since the last report)",
            ),
            (
                20_000,
                "Warn - refused: too large (further occurrences are only counted for an hour)",
            ),
        ];
        for (second, text) in texts {
            *bench.seconds.lock() = second;
            assert_eq!(refuse().concat(), text, "after {second} s");
        }
    }

    #[test]
    fn a_handful_of_problems_of_a_peer_are_said_each_minute() {
        let bench = Bench::new();
        let malformed = |peer: &str, count: u64| {
            for number in 0..count {
                let text = || format!("{peer}: malformed {number}");
                let limit = Limit::peer("malformed", peer);
                bench.diagnostics.warn_limited(limit, text);
            }
            bench.said()
        };
        let few = malformed("a", 3);
        assert_eq!(few[2], "Warn - a: malformed 2");
        let many = malformed("b", 10_000);
        assert_eq!(many.len(), 10);
        assert_eq!(many[8], "Warn - b: malformed 8");
        assert_eq!(
            many[9],
            "Warn - b: malformed 9 (further occurrences are only counted for a minute)"
        );
        *bench.seconds.lock() = 60;
        assert_eq!(
            malformed("b", 2),
            [
                "Warn - b: malformed 0 (9990 more since the last report)",
                "Warn - b: malformed 1",
            ]
        );
    }

    #[test]
    fn texts_that_are_not_said_are_not_made() {
        let bench = Bench::new();
        let limit = Limit::once("costly");
        bench.diagnostics.warn_limited(limit, || "made".into());
        bench
            .diagnostics
            .warn_limited(limit, || panic!("nobody hears it"));
        assert_eq!(bench.said(), ["Warn - made"]);
    }

    #[test]
    fn subjects_whose_period_is_over_make_room() {
        let bench = Bench::new();
        let warn = |kind: Limit<'_>| bench.diagnostics.warn_limited(kind, || "broken".into());
        warn(Limit::once_for("file", "a"));
        for peer in 0..SUBJECTS_MAX {
            warn(Limit::peer("malformed", &peer.to_string()));
        }
        assert_eq!(bench.said().len(), SUBJECTS_MAX, "the last one is not said");
        *bench.seconds.lock() = 60;
        warn(Limit::peer("malformed", "another"));
        warn(Limit::once_for("file", "a"));
        warn(Limit::peer("malformed", "0"));
        assert_eq!(bench.said().len(), 2, "what is said once is remembered");
    }

    #[test]
    fn subjects_are_bounded_and_kinds_without_one_are_still_said() {
        let bench = Bench::new();
        for file in 0..SUBJECTS_MAX + 5 {
            let path = file.to_string();
            let limit = Limit::once_for("file", &path);
            bench.diagnostics.warn_limited(limit, || "broken".into());
        }
        assert_eq!(bench.said().len(), SUBJECTS_MAX);
        bench
            .diagnostics
            .warn_limited(Limit::once("watch"), || "polled".into());
        assert_eq!(bench.said(), ["Warn - polled"]);
    }

    #[test]
    fn warnings_keep_their_limit() {
        let bench = Bench::new();
        for _ in 0..2 {
            bench.diagnostics.pass_on("each time".to_owned().into());
            let warning = Warning::limited(Limit::once("kind"), "once".into());
            bench.diagnostics.pass_on(warning);
        }
        assert_eq!(
            bench.said(),
            ["Warn - each time", "Warn - once", "Warn - each time"]
        );
    }
}
