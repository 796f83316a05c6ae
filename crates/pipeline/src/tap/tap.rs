//! What one looker gets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batch::{Batch, Bitmap};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::budget::TapBudget;
use super::event::TapEvent;
use super::pace::Pace;
use super::{BYTES_MAX, EVENTS_MAX, PATIENCE, TapSettings};

/// How soon somebody is told again that events are too large.
const LARGE_PAUSE: Duration = Duration::from_secs(1);

/// Events that were picked at a point and wait for whoever looks.
#[derive(Debug)]
pub struct Tap {
    settings: TapSettings,
    state: Mutex<TapState>,
    /// Rung when there is something to be fetched.
    changed: Notify,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct TapState {
    pace: Pace,
    waiting: VecDeque<TapEvent>,
    /// The room that these take.
    bytes: usize,
    /// The number of the last event.
    last: u64,
    passed: u64,
    looked_at: u64,
    matched: u64,
    skipped: u64,
    too_large: u64,
    /// When somebody was last told of one that is too large.
    large_told: Option<Instant>,
    status: TapStatus,
    /// Whether a change of the status, or an event that is too large, is worth an answer that was not given yet.
    is_news: bool,
    /// Since when nobody asks; none while somebody does.
    alone_since: Option<Instant>,
    asking: usize,
}

/// Whether the point of a tap is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapStatus {
    /// It is.
    Open,
    /// The pipeline has ended, and may start again after a reload.
    Waiting,
    /// It is not, for this reason, and will not come back.
    Gone(String),
}

/// What is fetched.
#[derive(Debug, Clone)]
pub struct TapPoll {
    /// Events, oldest first.
    pub events: Vec<TapEvent>,
    /// How many events have passed the point since the tap was opened.
    pub passed: u64,
    /// On how many of these the condition was evaluated: on all but those that passed while it had taken too much time.
    pub looked_at: u64,
    /// For how many of these it holds.
    pub matched: u64,
    /// How many were picked and left out, because too many waited.
    pub skipped: u64,
    /// How many were picked and left out, because they are larger than [`BYTES_MAX`].
    pub too_large: u64,
    /// Whether the point is there.
    pub status: TapStatus,
}

impl Tap {
    /// A tap that nobody has asked yet.
    pub(super) fn new(settings: TapSettings, now: Instant) -> Self {
        let state = TapState {
            pace: Pace::new(settings.rate),
            waiting: VecDeque::new(),
            bytes: 0,
            last: 0,
            passed: 0,
            looked_at: 0,
            matched: 0,
            skipped: 0,
            too_large: 0,
            large_told: None,
            status: TapStatus::Open,
            is_news: false,
            alone_since: Some(now),
            asking: 0,
        };
        Self {
            settings,
            state: Mutex::new(state),
            changed: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// What is tapped.
    pub fn settings(&self) -> &TapSettings {
        &self.settings
    }

    /// Nobody looks any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether nobody looks any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_forgotten = || {
            let alone_since = self.state.lock().alone_since;
            alone_since.is_some_and(|since| now.saturating_duration_since(since) > PATIENCE)
        };
        self.is_closed.load(Ordering::Relaxed) || is_forgotten()
    }

    /// Counts rows that pass, and picks some of those for which the condition holds: as many as may be shown now, spread over all. A condition
    /// that cannot be evaluated does not hold. Where conditions have taken too much time, rows pass and are not looked at.
    pub(super) fn pick(
        &self,
        batch: &Batch,
        rows: &Bitmap,
        budget: &TapBudget,
        now: Instant,
    ) -> Vec<usize> {
        let passed = rows.count() as u64;
        let Some(condition) = &self.settings.condition else {
            return self.take(rows, passed, now);
        };
        match budget.spend(|| condition.filter(batch, rows).holds) {
            Some(holds) => self.take(&holds, passed, now),
            None => {
                self.state.lock().passed += passed;
                Vec::new()
            }
        }
    }

    /// Takes some of the rows that are wanted, of so many that were looked at.
    fn take(&self, wanted: &Bitmap, looked_at: u64, now: Instant) -> Vec<usize> {
        let count = wanted.count();
        let mut state = self.state.lock();
        state.passed += looked_at;
        state.looked_at += looked_at;
        state.matched += count as u64;
        let allowed = state.pace.take(now, count);
        let taken = allowed.min(EVENTS_MAX.saturating_sub(state.waiting.len()));
        state.skipped += (allowed - taken) as u64;
        drop(state);
        spread(wanted, count, taken)
    }

    /// Has an event wait; counts it instead where there is no room.
    pub(super) fn push(&self, mut event: TapEvent) {
        let mut state = self.state.lock();
        let size = event.size();
        if size > BYTES_MAX {
            state.too_large += 1;
            let now = Instant::now();
            let since = |told: Instant| now.saturating_duration_since(told);
            if state
                .large_told
                .is_none_or(|told| since(told) >= LARGE_PAUSE)
            {
                state.large_told = Some(now);
                state.is_news = true;
                drop(state);
                self.changed.notify_waiters();
            }
            return;
        }
        if state.waiting.len() >= EVENTS_MAX || state.bytes + size > BYTES_MAX {
            state.skipped += 1;
            return;
        }
        state.last += 1;
        event.number = state.last;
        state.bytes += size;
        state.waiting.push_back(event);
        drop(state);
        self.changed.notify_waiters();
    }

    /// So many that were picked cannot be shown.
    pub(super) fn skip(&self, events: usize) {
        self.state.lock().skipped += events as u64;
    }

    /// The point is there, or not. One that is gone stays so.
    pub(crate) fn set_status(&self, status: TapStatus) {
        let mut state = self.state.lock();
        if matches!(state.status, TapStatus::Gone(_)) || state.status == status {
            return;
        }
        state.status = status;
        state.is_news = true;
        drop(state);
        self.changed.notify_waiters();
    }

    /// The events behind number `after`, which says that those up to it have arrived and are not wanted again. Waits until there is
    /// something new, but no longer than `wait`.
    pub async fn poll(&self, after: u64, wait: Duration) -> TapPoll {
        let _asking = Asking::begin(self);
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            // Before the look, so that what comes between the two is not missed.
            let changed = self.changed.notified();
            let (poll, is_news) = self.fetch(after);
            if is_news || timeout_at(deadline, changed).await.is_err() {
                return poll;
            }
        }
    }

    /// What there is, and whether it is worth an answer.
    fn fetch(&self, after: u64) -> (TapPoll, bool) {
        let mut state = self.state.lock();
        while let Some(event) = state.waiting.pop_front_if(|event| event.number <= after) {
            state.bytes -= event.size();
        }
        let is_news = std::mem::take(&mut state.is_news)
            || matches!(state.status, TapStatus::Gone(_))
            || !state.waiting.is_empty();
        let poll = TapPoll {
            events: state.waiting.iter().cloned().collect(),
            passed: state.passed,
            looked_at: state.looked_at,
            matched: state.matched,
            skipped: state.skipped,
            too_large: state.too_large,
            status: state.status.clone(),
        };
        (poll, is_news)
    }
}

/// That somebody asks.
struct Asking<'a>(&'a Tap);

impl<'a> Asking<'a> {
    fn begin(tap: &'a Tap) -> Self {
        let mut state = tap.state.lock();
        state.asking += 1;
        state.alone_since = None;
        Self(tap)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.asking -= 1;
        if state.asking == 0 {
            state.alone_since = Some(Instant::now());
        }
    }
}

/// `wanted` of `count` rows, at even distances.
fn spread(rows: &Bitmap, count: usize, wanted: usize) -> Vec<usize> {
    let mut spread = Vec::with_capacity(wanted);
    for (index, row) in rows.iter().enumerate() {
        if spread.len() == wanted {
            break;
        }
        if index == spread.len() * count / wanted {
            spread.push(row);
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::TapSide;

    fn tap(rate: usize) -> Tap {
        let settings = TapSettings {
            pipeline: "p".to_owned(),
            operator: None,
            side: TapSide::After,
            condition: None,
            rate,
            with_metadata: false,
        };
        Tap::new(settings, Instant::now())
    }

    fn event(bytes: usize) -> TapEvent {
        TapEvent {
            after: Some(vec![b' '; bytes]),
            ..TapEvent::new("id".to_owned())
        }
    }

    fn numbers(poll: &TapPoll) -> Vec<u64> {
        poll.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn rows_are_spread() {
        let all = Bitmap::all(10);
        let some = Bitmap::from_fn(10, |row| row >= 8);
        for (rows, wanted, expected) in [
            (&all, 0, vec![]),
            (&all, 1, vec![0]),
            (&all, 3, vec![0, 3, 6]),
            (&all, 10, (0..10).collect()),
            (&some, 1, vec![8]),
            (&some, 2, vec![8, 9]),
        ] {
            assert_eq!(spread(rows, rows.count(), wanted), expected, "{wanted}");
        }
    }

    #[tokio::test]
    async fn events_stay_until_they_have_arrived() {
        let tap = tap(10);
        (0..3).for_each(|_| tap.push(event(10)));
        let none = Duration::ZERO;
        assert_eq!(numbers(&tap.poll(0, none).await), [1, 2, 3]);
        assert_eq!(numbers(&tap.poll(0, none).await), [1, 2, 3], "not arrived");
        assert_eq!(numbers(&tap.poll(2, none).await), [3]);
        assert!(numbers(&tap.poll(3, none).await).is_empty());
        assert_eq!(tap.state.lock().bytes, 0);
        tap.push(event(10));
        assert_eq!(numbers(&tap.poll(3, none).await), [4]);
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let tap = tap(10);
        let wait = Duration::from_secs(60);
        let later = async {
            tokio::task::yield_now().await;
            tap.push(event(10));
        };
        let (poll, ()) = tokio::join!(tap.poll(0, wait), later);
        assert_eq!(numbers(&poll), [1]);
        let later = async {
            tokio::task::yield_now().await;
            tap.set_status(TapStatus::Waiting);
        };
        let (poll, ()) = tokio::join!(tap.poll(1, wait), later);
        assert_eq!(poll.status, TapStatus::Waiting);
        tap.set_status(TapStatus::Gone("why".to_owned()));
        tap.set_status(TapStatus::Open);
        let poll = tap.poll(1, wait).await;
        assert_eq!(poll.status, TapStatus::Gone("why".to_owned()));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let slow = tap(1000);
        let rows = Bitmap::all(4000);
        let start = Instant::now();
        let picked = slow.take(&rows, 5000, start);
        assert_eq!(picked.len(), 1000);
        picked.iter().for_each(|_| slow.push(event(10)));
        slow.push(event(10));
        let later = start + Duration::from_secs(2);
        assert!(slow.take(&rows, 4000, later).is_empty());
        let (poll, _) = slow.fetch(0);
        assert_eq!(poll.events.len(), EVENTS_MAX);
        assert_eq!((poll.passed, poll.matched), (9000, 8000));
        assert_eq!(poll.skipped, 1001);

        let large = tap(10);
        large.push(event(BYTES_MAX));
        large.push(event(BYTES_MAX / 2));
        large.push(event(BYTES_MAX / 2));
        let (poll, _) = large.fetch(0);
        assert_eq!((poll.events.len(), poll.skipped, poll.too_large), (1, 1, 1));
    }

    #[tokio::test]
    async fn whoever_waits_is_told_at_once_of_events_that_are_too_large() {
        let tap = tap(10);
        let later = async {
            tokio::task::yield_now().await;
            tap.push(event(BYTES_MAX));
        };
        let (poll, ()) = tokio::join!(tap.poll(0, Duration::from_secs(60)), later);
        assert_eq!((poll.events.len(), poll.too_large), (0, 1));
        // Not of each.
        tap.push(event(BYTES_MAX));
        let (poll, is_news) = tap.fetch(0);
        assert_eq!((poll.too_large, is_news), (2, false));
    }

    #[tokio::test]
    async fn a_tap_that_nobody_asks_is_over() {
        let tap = tap(10);
        let now = Instant::now();
        assert!(!tap.is_over(now));
        assert!(tap.is_over(now + PATIENCE * 2));
        {
            let mut asking = std::pin::pin!(tap.poll(0, PATIENCE));
            let answered = timeout_at(tokio::time::Instant::now(), &mut asking).await;
            assert!(answered.is_err());
            assert!(!tap.is_over(now + PATIENCE * 2), "somebody asks");
        }
        assert!(tap.is_over(Instant::now() + PATIENCE * 2));
        tap.close();
        assert!(tap.is_over(now));
    }
}
