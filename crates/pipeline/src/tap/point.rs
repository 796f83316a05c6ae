//! A place in a pipeline that can be tapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use batch::{Batch, Bitmap, Failures};
use component::{Receipt, Sink, Stopped};
use parking_lot::Mutex;

use super::TapSide;
use super::budget::TapBudget;
use super::event::{TapEvent, render};
use super::tap::Tap;

/// A place that batches pass.
#[derive(Debug, Default)]
pub struct TapPoint {
    /// Whether there are any taps: all that is looked at where there are none.
    is_tapped: AtomicBool,
    taps: Mutex<Vec<Arc<Tap>>>,
    /// What their conditions may cost, all of them together.
    budget: Arc<TapBudget>,
}

/// The events of a batch that are shown when it has passed.
#[must_use]
pub struct Picked {
    of_taps: Vec<PickedBy>,
    budget: Arc<TapBudget>,
}

struct PickedBy {
    tap: Arc<Tap>,
    /// The rows that were picked before the point.
    rows: Vec<usize>,
    before: Vec<Vec<u8>>,
}

impl TapPoint {
    /// Has a tap get events.
    pub(crate) fn attach(&self, tap: &Arc<Tap>) {
        let now = Instant::now();
        let mut taps = self.taps.lock();
        taps.retain(|tap| !tap.is_over(now));
        taps.push(tap.clone());
        self.is_tapped.store(true, Ordering::Relaxed);
    }

    /// Looks at a batch that a processor is about to handle, of which it handles these rows: the others pass it as they are. What is given
    /// is to be called when it has.
    #[inline]
    pub fn before(&self, batch: &Batch, rows: &Bitmap) -> Option<Picked> {
        match self.is_tapped.load(Ordering::Relaxed) {
            true => self.pick(batch, rows),
            false => None,
        }
    }

    /// Looks at rows of a batch where nothing changes them.
    #[inline]
    pub fn pass(&self, batch: &Batch, rows: &Bitmap) {
        if self.is_tapped.load(Ordering::Relaxed) {
            let now = Instant::now();
            for tap in self.taps(now) {
                show(&tap, batch, rows, &self.budget, now);
            }
        }
    }

    #[cold]
    fn pick(&self, batch: &Batch, rows: &Bitmap) -> Option<Picked> {
        let now = Instant::now();
        let mut picked = Vec::new();
        for tap in self.taps(now) {
            let (mut rows_of, mut before) = (Vec::new(), Vec::new());
            match tap.settings().side {
                TapSide::Before => {
                    show(&tap, batch, batch.alive(), &self.budget, now);
                    continue;
                }
                TapSide::After => {}
                TapSide::Both => {
                    rows_of = tap.pick(batch, rows, &self.budget, now);
                    before = rendered(&tap, batch, &rows_of);
                    rows_of.truncate(before.len());
                }
            }
            picked.push(PickedBy {
                tap,
                rows: rows_of,
                before,
            });
        }
        (!picked.is_empty()).then(|| Picked {
            of_taps: picked,
            budget: self.budget.clone(),
        })
    }

    /// The taps that somebody looks at; lets go of the others.
    #[cold]
    fn taps(&self, now: Instant) -> Vec<Arc<Tap>> {
        let mut taps = self.taps.lock();
        taps.retain(|tap| !tap.is_over(now));
        if taps.is_empty() {
            self.is_tapped.store(false, Ordering::Relaxed);
        }
        taps.clone()
    }
}

impl Picked {
    /// Shows what became of events: the processor has handled the batch and failed at some.
    pub fn after(self, batch: &Batch, failures: &Failures) {
        for PickedBy {
            tap,
            rows: picked,
            before,
        } in self.of_taps
        {
            if tap.settings().side == TapSide::After {
                show(&tap, batch, batch.alive(), &self.budget, Instant::now());
                continue;
            }
            let is_alive = |row: &usize| batch.alive().contains(*row);
            let alive: Vec<usize> = picked.iter().copied().filter(is_alive).collect();
            let after = rendered(&tap, batch, &alive);
            if after.len() < alive.len() {
                continue;
            }
            let mut after = after.into_iter();
            for (row, before) in picked.into_iter().zip(before) {
                let mut event = TapEvent::new(batch.origin().shown_id(row));
                event.before = Some(before);
                event.after = is_alive(&row).then(|| after.next()).flatten();
                event.settle(batch, row, failures);
                tap.push(event);
            }
        }
    }
}

/// Shows some of these rows in one form.
fn show(tap: &Tap, batch: &Batch, rows: &Bitmap, budget: &TapBudget, now: Instant) {
    let picked = tap.pick(batch, rows, budget, now);
    let events = rendered(tap, batch, &picked);
    for (row, shown) in picked.into_iter().zip(events) {
        let mut event = TapEvent::new(batch.origin().shown_id(row));
        match tap.settings().side {
            TapSide::Before => event.before = Some(shown),
            TapSide::After | TapSide::Both => event.after = Some(shown),
        }
        tap.push(event);
    }
}

/// Rows as JSON; nothing where they cannot be written.
fn rendered(tap: &Tap, batch: &Batch, rows: &[usize]) -> Vec<Vec<u8>> {
    if rows.is_empty() {
        return Vec::new();
    }
    render(batch, rows, tap.settings().with_metadata).unwrap_or_else(|| {
        tap.skip(rows.len());
        Vec::new()
    })
}

/// Where an input sends its batches: to the queue, past a point.
pub struct TappedSink<S> {
    /// The queue.
    pub sink: S,
    /// The point.
    pub point: Arc<TapPoint>,
}

#[async_trait]
impl<S: Sink> Sink for TappedSink<S> {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        self.point.pass(&batch, batch.alive());
        self.sink.send(batch).await
    }
}
