//! What there is room for.

use std::sync::atomic::Ordering::SeqCst;

use component::{Limit, plural_were};
use disk::PAGE;

use super::commit::Wanted;
use super::state::QueueState;
use super::{Disk, Queue};
use crate::settings::Mode;

/// The least that may wait to be synced.
const UNSYNCED_MIN: usize = 8 << 20;

/// So many groups at most are made of what is pending.
const GROUPS_MAX: u64 = 64;

/// Why the log takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// So many events may wait.
    Events,
    /// So many bytes may be stored.
    Size,
    /// The disk that queues share is used up.
    Shared,
}

impl Queue {
    /// Whether a batch may wait in memory. A batch beyond the limits is let in alone, and on disk for an output that has nothing
    /// else to do as well: once the one that fills the memory holds more than that, it goes on alone.
    pub(super) fn fits_in_memory(&self, state: &QueueState, size: usize, events: usize) -> bool {
        let everything = self
            .disk
            .as_ref()
            .filter(|disk| disk.mode == Mode::Everything);
        if let Some(disk) = everything {
            let held = state.front_size();
            let memory = disk.settings.cache_bytes.bytes();
            let fits = held == 0 || held + size <= memory;
            return !state.front.has_backlog()
                && (fits || (held < memory && disk.somebody_starves(state)));
        }
        let (held_size, held_events) = state.front.held();
        let fits = held_size + size <= self.limits.size_max
            && held_events + events <= self.limits.events_max;
        !state.front.has_backlog() && (fits || held_events == 0)
    }

    /// Whether a batch for which memory has no room waits for the outputs at the front, instead of being stored only: while they
    /// make progress, and none of them waits for another output.
    pub(super) fn waits_for_outputs(&self, state: &QueueState, disk: &Disk, size: usize) -> bool {
        let is_held_by_others = state.lanes.is_somebody_alone()
            && !state.front.has_backlog()
            && state.front_size() + size <= self.limits.size_max;
        state.lanes.make_progress((self.steady)())
            && !disk.somebody_starves(state)
            && !is_held_by_others
    }

    /// Whether one more batch may wait to be written and synced.
    pub(super) fn fits_unsynced(&self, state: &QueueState, size: usize) -> bool {
        state.commit.size() == 0 || state.commit.size() + size <= self.unsynced_max()
    }

    /// The most bytes that wait to be written and synced; one batch more where it alone is larger.
    pub fn unsynced_max(&self) -> usize {
        let group = self
            .disk
            .as_ref()
            .map_or(0, |disk| disk.settings.group_bytes.0);
        UNSYNCED_MIN.max(2 * group.min(1 << 30) as usize)
    }

    /// Counts events that the queue's limits cost, and says it the first time.
    pub(super) fn count_dropped(&self, reason: &'static str, events: u64) {
        if events == 0 {
            return;
        }
        self.diagnostics.warn_limited(Limit::events(reason), || {
            let events = plural_were(events, "event");
            let limit = match reason {
                "dropped_by_age" => "older than `max_age`",
                "dropped_oldest" => "the oldest in the queue, which is full",
                _ => "the newest, because the queue is full",
            };
            format!("{events} dropped: {limit}")
        });
        self.metrics.count(reason, events);
        self.metrics.dropped(events as usize);
    }
}

impl Disk {
    /// Whether an output got everything while another one fills the memory that may go on alone: it need not wait for that one.
    fn somebody_starves(&self, state: &QueueState) -> bool {
        self.may_part && state.front.is_at_end() && state.lanes.is_somebody_idle()
    }

    /// Whether the log has no room for a batch, and why.
    pub(super) fn is_full(&self, state: &QueueState, wanted: Wanted) -> Option<Full> {
        let Wanted { stored, events } = wanted;
        let held = state.behind();
        let events_max = self.settings.max_events.map_or(u64::MAX, |count| count.0);
        if held > 0 && held + events as u64 > events_max {
            return Some(Full::Events);
        }
        // Where nothing waits and nothing can be removed, a batch is let in whatever its size, or it would wait for ever.
        let is_idle = held == 0 && state.commit.pending_stored() == 0;
        if is_idle && self.log.first_of_segments().len() <= 1 {
            return None;
        }
        let size = self.size_with(state, stored);
        if size > self.log.size() && size > self.settings.max_bytes.0 {
            return Some(Full::Size);
        }
        let more = size.saturating_sub(self.accounted.load(SeqCst));
        let shared = self.budget.as_ref().filter(|budget| budget.free() < more);
        shared.map(|_| Full::Shared)
    }

    /// What the log will take with what is pending and so many bytes more.
    fn size_with(&self, state: &QueueState, stored: u64) -> u64 {
        let commit = &state.commit;
        if commit.pending_stored() + stored == 0 {
            return self.log.size();
        }
        // Each group ends with a page that it does not fill.
        let groups = (commit.unwritten() as u64 + 1).min(GROUPS_MAX);
        let wanted = commit.pending_stored() + stored + groups * PAGE as u64;
        if wanted <= self.log.room() {
            return self.log.size();
        }
        // A group is not cut at the end of a segment, and each segment has a page of its own.
        let segment = self.settings.segment_bytes.0;
        self.log.size() + wanted.div_ceil(segment - PAGE as u64) * segment
    }

    /// Keeps the common budget in step with what the log takes and will take.
    pub(super) fn account(&self, state: &QueueState) {
        let Some(budget) = &self.budget else { return };
        let size = self.size_with(state, 0);
        let before = self.accounted.swap(size, SeqCst);
        match size >= before {
            true => budget.grow(size - before),
            false => budget.shrink(before - size),
        }
    }
}
