//! The answers that all instances of a processor share, and the wait for those that are on their way.
//!
//! A question that is not in the cache is asked once, whoever needs its answer. A batch waits for it until the time-out has passed since it was
//! asked, by whichever batch: so no batch waits longer than the time-out, and none for a question that another one has waited for in vain.
//! What is answered later is cached too, and so is that a question was not answered at all.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use component::{Limit, Warning};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lru::LruCache;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::mpsc::Sender;

use super::question::{Answer, Question};
use super::resolver::Resolved;
use super::silence::Silence;

/// How many questions may be open; beyond, none is asked. Four batches may have that many.
pub(super) const OPEN_MAX: usize = 16_384;

/// How long answers are waited for and kept.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub timeout: Duration,
    pub min_ttl: Duration,
    pub max_ttl: Duration,
    pub negative_ttl: Duration,
}

/// What a batch gets for a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// From the cache.
    Cached(Answer),
    /// It came while the batch waited.
    Fresh(Answer),
    /// It did not come in time.
    Late,
}

/// Whether a question is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    Later,
    /// It was sent already, or nobody asks it any more.
    Never,
}

/// Answers, and questions that are open.
#[derive(Debug)]
pub(super) struct Answers {
    times: Times,
    entries_max: usize,
    /// The servers, for messages.
    servers: String,
    state: Mutex<AnswerState>,
    /// An answer came that a batch waits for.
    arrived: Condvar,
}

#[derive(Debug)]
struct AnswerState {
    cached: LruCache<Question, CachedAnswer, RandomState>,
    open: HashMap<Question, Arc<OpenQuestion>, RandomState>,
    silence: Silence,
    /// How many questions servers were asked since the counter was taken.
    queries: u64,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
struct CachedAnswer {
    answer: Answer,
    until: Instant,
}

/// A question whose answer is on its way.
#[derive(Debug)]
struct OpenQuestion {
    /// Until when batches wait for it.
    until: Instant,
    answer: OnceLock<Answer>,
    /// It was sent to a server.
    is_sent: AtomicBool,
    /// A batch sleeps until it is answered.
    is_awaited: AtomicBool,
}

impl Answers {
    /// No answers yet, and room for so many. `servers` is how messages call those that are asked.
    pub fn new(times: Times, entries_max: usize, servers: String) -> Self {
        let state = AnswerState {
            cached: LruCache::unbounded_with_hasher(RandomState::default()),
            open: HashMap::default(),
            silence: Silence::default(),
            queries: 0,
            warnings: Vec::new(),
        };
        Self {
            times,
            entries_max,
            servers,
            state: Mutex::new(state),
            arrived: Condvar::new(),
        }
    }

    /// Whether a batch may wait at all.
    pub fn may_wait(&self) -> bool {
        !self.times.timeout.is_zero()
    }

    /// The answers to different questions, in their order. Those that nobody knows yet go to `asker`.
    pub fn look_up(&self, questions: &[Question], asker: &Sender<Question>) -> Vec<Reply> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let mut awaited: Vec<(usize, Arc<OpenQuestion>)> = Vec::new();
        let mut replies = Vec::with_capacity(questions.len());
        for question in questions {
            let cached = state.cached(question, now);
            if cached.is_none()
                && let Some(open) = state.ask(question, now, self.times.timeout, asker)
                && now < open.until
            {
                awaited.push((replies.len(), open));
            }
            replies.push(cached.map_or(Reply::Late, Reply::Cached));
        }
        if !awaited.is_empty() && !state.silence.is_on() {
            let answers = state.silence.answers();
            self.wait(&mut state, &awaited);
            if state.silence.batch_ended(answers, Instant::now()) {
                state.begin_silence(&self.servers);
            }
        }
        for (at, open) in awaited {
            if let Some(answer) = open.answer.get() {
                replies[at] = Reply::Fresh(answer.clone());
            }
        }
        replies
    }

    /// Sleeps until all have an answer or are no longer waited for. Those that were asked last are looked at first: when they are answered,
    /// most of the others are.
    fn wait(
        &self,
        state: &mut MutexGuard<'_, AnswerState>,
        awaited: &[(usize, Arc<OpenQuestion>)],
    ) {
        for (_, open) in awaited.iter().rev() {
            while open.answer.get().is_none() && Instant::now() < open.until {
                open.is_awaited.store(true, Ordering::Relaxed);
                self.arrived.wait_until(state, open.until);
            }
        }
    }

    /// Whether a question is to be sent to a server now, by whoever asks; if so, it counts as sent. One that no batch waits for is sent later,
    /// unless `takes_late`.
    pub fn take_turn(&self, question: &Question, takes_late: bool) -> Turn {
        let mut state = self.state.lock();
        match state.open.get(question) {
            Some(open) if open.is_sent.load(Ordering::Relaxed) => return Turn::Never,
            Some(open) if !takes_late && Instant::now() >= open.until => return Turn::Later,
            Some(open) => open.is_sent.store(true, Ordering::Relaxed),
            None => return Turn::Never,
        }
        state.queries += 1;
        Turn::Now
    }

    /// Takes the answer to an open question.
    pub fn put(&self, question: Question, resolved: Resolved) {
        let Resolved {
            answer,
            ttl,
            is_heard,
        } = resolved;
        let now = Instant::now();
        let Times {
            min_ttl, max_ttl, ..
        } = self.times;
        let kept = match answer {
            Answer::Found(_) => ttl.clamp(min_ttl, max_ttl),
            _ => self.times.negative_ttl,
        };
        let mut state = self.state.lock();
        if is_heard && let Some(silent) = state.silence.answered(now) {
            state.end_silence(silent);
        }
        let open = state.open.remove(&question);
        if !kept.is_zero() {
            let until = now + kept;
            let answer = answer.clone();
            state.cached.put(question, CachedAnswer { answer, until });
            while state.cached.len() > self.entries_max {
                state.cached.pop_lru();
            }
        }
        if let Some(open) = open {
            // An open question is answered once: then it is open no longer.
            drop(open.answer.set(answer));
            if open.is_awaited.load(Ordering::Relaxed) {
                self.arrived.notify_all();
            }
        }
    }

    /// How many questions servers were asked, since the last call.
    pub fn take_queries(&self) -> u64 {
        std::mem::take(&mut self.state.lock().queries)
    }

    /// Something that a user should hear.
    pub fn warn(&self, warning: Warning) {
        self.state.lock().warnings.push(warning);
    }

    /// What a user should hear, since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.state.lock().warnings)
    }
}

impl AnswerState {
    fn cached(&mut self, question: &Question, now: Instant) -> Option<Answer> {
        let cached = self.cached.get(question)?;
        (now < cached.until).then(|| cached.answer.clone())
    }

    /// The question as it is open, asked if it was not; none if it cannot be asked now.
    fn ask(
        &mut self,
        question: &Question,
        now: Instant,
        timeout: Duration,
        asker: &Sender<Question>,
    ) -> Option<Arc<OpenQuestion>> {
        if let Some(open) = self.open.get(question) {
            return Some(open.clone());
        }
        if self.open.len() >= OPEN_MAX || !self.silence.asks(now) {
            return None;
        }
        asker.try_send(question.clone()).ok()?;
        let open = Arc::new(OpenQuestion {
            until: now + timeout,
            answer: OnceLock::new(),
            is_sent: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
        });
        self.open.insert(question.clone(), open.clone());
        Some(open)
    }

    /// What was not sent yet is not worth sending.
    fn begin_silence(&mut self, servers: &str) {
        self.open
            .retain(|_, open| open.is_sent.load(Ordering::Relaxed));
        let text = format!(
            "no name server answers ({servers}); until one does, events whose answer is not in the cache pass at once with the tag of time-outs"
        );
        self.warnings
            .push(Warning::limited(Limit::events("silent"), text));
    }

    /// What was not answered is worth asking again.
    fn end_silence(&mut self, silent: Duration) {
        self.cached
            .retain(|_, cached| cached.answer != Answer::Unanswered);
        let text = format!(
            "name servers answer again after {:.1} s",
            silent.as_secs_f64()
        );
        self.warnings
            .push(Warning::limited(Limit::events("answering"), text));
    }
}
