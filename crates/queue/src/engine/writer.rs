//! The thread that writes, syncs and saves cursors.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::commit::WRITE_SIZE;
use super::phase::QueuePhase;
use super::state::QueueState;
use super::upkeep::DROPPED_OLDEST;
use super::{Disk, Queue};
use crate::Durability;
use crate::streams::Streams;

/// How often cursors are saved, if they moved: what comes again after a crash is what was passed since.
const UPKEEP_EVERY: Duration = Duration::from_millis(250);

/// The first and the longest pause after a write that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What the writer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Write,
    Sync,
    Upkeep,
    End,
}

/// What the writer remembers, times by the steady clock.
struct Plan {
    next_upkeep: i64,
    /// Nothing is written before this, because the last attempt failed.
    not_before: i64,
    pause: Duration,
}

impl Queue {
    /// Starts the writer of a queue on disk.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub(super) fn start_writer(self: &Arc<Self>) -> io::Result<()> {
        let queue = self.clone();
        let thread = component::thread::start("queue", move || queue.run_writer())?;
        *self.writer.lock() = Some(thread);
        Ok(())
    }

    /// Ends the writer: what came in is written and synced if that is possible at once, and cursors are saved. Nothing is
    /// accepted afterwards.
    pub fn shut(&self) {
        self.close(QueuePhase::Shut);
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // A writer that panicked has said so; what it had not synced counts as unsafe.
            let _ = writer.join();
        }
        let lost = self.lock().lanes.take_dropped_in_hand();
        self.count_dropped(DROPPED_OLDEST, lost);
    }

    pub(super) fn wake_writer(&self) {
        if self.writer_sleeps.load(SeqCst) {
            drop(self.lock());
            self.work.notify_one();
        }
    }

    fn run_writer(&self) {
        let Some(disk) = &self.disk else { return };
        let mut plan = Plan {
            // Cursors exist before anything is passed.
            next_upkeep: (self.steady)(),
            not_before: 0,
            pause: PAUSES.0,
        };
        loop {
            component::activity::charge();
            let work = self.next_work(disk, &plan);
            let waiting = self.metrics.waiting();
            let done = match work {
                Work::Write => self.write_step(),
                Work::Sync => self.sync_step(),
                Work::Upkeep => {
                    drop(waiting);
                    plan.next_upkeep = (self.steady)() + nanos(UPKEEP_EVERY);
                    self.upkeep_step();
                    continue;
                }
                Work::End => break,
            };
            drop(waiting);
            match done {
                Ok(_) => plan.pause = PAUSES.0,
                Err(_) if self.lock().phase == QueuePhase::Shut => break,
                Err(_) => {
                    // Where the disk is full, removing segments is what makes room.
                    plan.next_upkeep = (self.steady)();
                    plan.not_before = plan.next_upkeep + nanos(plan.pause);
                    plan.pause = (plan.pause * 2).min(PAUSES.1);
                }
            }
        }
        self.upkeep_step();
    }

    /// Waits until there is something to do.
    fn next_work(&self, disk: &Disk, plan: &Plan) -> Work {
        let mut state = self.lock();
        loop {
            let now = (self.steady)();
            let due = match due(&state, disk, plan, self.unsynced_max(), now) {
                Ok(work) => return work,
                Err(due) => due,
            };
            // Inputs wake a writer only where it says that it sleeps.
            self.writer_sleeps.store(true, SeqCst);
            let wait = Duration::from_nanos(due.saturating_sub(now).max(0) as u64);
            self.work.wait_for(&mut state, wait);
            self.writer_sleeps.store(false, SeqCst);
        }
    }
}

/// What is due, or when something will be.
fn due(
    state: &QueueState,
    disk: &Disk,
    plan: &Plan,
    unsynced_max: usize,
    now: i64,
) -> Result<Work, i64> {
    let commit = &state.commit;
    let settings = &disk.settings;
    let left_out = state.streams.as_ref().is_some_and(Streams::has_left_out);
    if state.phase == QueuePhase::Shut {
        return Ok(
            match (commit.has_pending(), commit.has_unsynced() || left_out) {
                (true, _) => Work::Write,
                (false, true) => Work::Sync,
                (false, false) => Work::End,
            },
        );
    }
    if now >= plan.next_upkeep || commit.is_room_wanted() {
        return Ok(Work::Upkeep);
    }
    if left_out && now >= plan.not_before {
        return Ok(Work::Sync);
    }
    if commit.size() == 0 {
        return Err(plan.next_upkeep);
    }
    let group_end = commit.since() + nanos(settings.group_time.0);
    let unsynced = (commit.size() - commit.pending_size()) as u64;
    let (size_max, sync_at) = match settings.durability {
        Durability::Fsync => (settings.group_bytes.0, group_end),
        // What was not synced is not read back.
        Durability::Interval if state.somebody_reads() => (settings.group_bytes.0, group_end),
        Durability::Interval => (u64::MAX, commit.since() + nanos(settings.sync_interval.0)),
    };
    let size_max = size_max.min(unsynced_max as u64 / 2);
    if unsynced > 0 && unsynced >= size_max {
        return Ok(Work::Sync);
    }
    let has_pending = commit.has_pending();
    let is_large = commit.pending_size() >= WRITE_SIZE;
    // After a failure nothing is written for a while; what was written before is synced all the same.
    let write_at = plan.not_before.max(if is_large { now } else { group_end });
    if has_pending && now >= write_at {
        return Ok(Work::Write);
    }
    if unsynced > 0 && now >= sync_at {
        return Ok(Work::Sync);
    }
    let mut next = plan.next_upkeep;
    if has_pending {
        next = next.min(write_at);
    }
    if unsynced > 0 {
        next = next.min(sync_at);
    }
    Err(next)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 4)
}
