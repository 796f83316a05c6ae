//! What happens by time alone: closing, flushing, deleting, retrying, forgetting.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::FileStatus;
use registry::Change;

use super::order::Order;
use super::record;
use super::state::{DeviceInode, File, FileStat, Lost};
use super::task::{HALF_LINE_PATIENCE, Task};
use super::tracker::{Tracker, seconds_now};
use crate::paths::meta::Meta;
use crate::reading::emitter::ago;

/// How long a file that was renamed or deleted must not have been written to before it is finished: who wrote it may
/// do so until it is told of the rename.
const ROTATED_QUIET: Duration = Duration::from_secs(5);

/// How long a truncated file is kept in memory, because a copy of it may appear.
const COPIES_SECONDS: u64 = 600;

/// How often files that are gone are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

impl Tracker {
    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        self.handle_events();
        self.review_held();
        self.look_at_idle();
        self.pool.close_idle(self.following.open_files_max);
        self.try_again();
        self.meet_postponed();
        self.delete_finished();
        self.release_new();
        self.meet_backlog();
        if self.saved.elapsed() >= self.following.save_interval {
            self.save(false);
        }
        if self.swept.elapsed() >= SWEEP_EVERY.min(self.following.forget_after) {
            self.sweep();
        }
    }

    /// Does what is due while files are read once.
    pub(crate) fn tick_once(&mut self) {
        self.handle_events();
        self.review_held();
        self.release_new();
        self.meet_backlog();
        if self.save_fails && !self.unsaved.is_empty() {
            let message = "the ids of new files cannot be saved, so these files are not read";
            self.problems.push(message.to_owned());
            self.unsaved.clear();
        }
        if self.saved.elapsed() >= self.following.save_interval {
            self.save(false);
        }
    }

    /// Closes everything at the end of a run. What was read and not given will be read again.
    pub(crate) fn close_all(&mut self) {
        self.handle_events();
        self.pool.close_all();
        for (_, (task, _)) in self.orphans.drain() {
            task.suspend();
        }
        for file in self.known.awake() {
            let mut state = file.lock();
            if state.status == FileStatus::Open {
                state.status = FileStatus::Idle;
                self.dirty.note(&file, &mut state);
            }
        }
    }

    /// Writes everything at the end of a run, when nothing is on its way any more.
    pub(crate) fn save_last(&mut self) -> bool {
        for file in self.known.awake() {
            let mut state = file.lock();
            if state.counts.in_flight_bytes + state.counts.pending_bytes > 0 {
                state.forget_in_flight();
                self.dirty.note(&file, &mut state);
            }
        }
        self.save(true)
    }

    /// Flushes and closes what has been idle for long enough.
    fn look_at_idle(&mut self) {
        let mut orders: Vec<(Arc<File>, Order)> = Vec::new();
        self.pool.each_idle(|task| {
            if let Some(order) = self.order_for(task) {
                orders.push((task.file.clone(), order));
            }
        });
        for (file, order) in orders {
            self.pool.request(&file, order);
        }
    }

    fn order_for(&self, task: &Task) -> Option<Order> {
        let rules = &self.following.close;
        let quiet = task.times.data.elapsed();
        if quiet >= rules.inactive
            || (task.is_compressed() && quiet >= HALF_LINE_PATIENCE)
            || rules
                .after
                .is_some_and(|limit| task.times.opened.elapsed() >= limit)
        {
            return Some(Order::Close);
        }
        let is_rotated = {
            let state = task.file.lock();
            state.lost.is_some() || state.is_renamed
        };
        if is_rotated {
            let opened = Meta::of_fd(task.opened()).ok();
            let is_removed = opened.is_some_and(|meta| meta.links == 0);
            if task.has_more() {
                return Some(Order::Read);
            }
            let closes = if is_removed {
                rules.removed
            } else {
                rules.renamed
            };
            let waits_long = task.has_pending() || closes;
            if quiet >= ROTATED_QUIET && waits_long {
                return Some(Order::Close);
            }
        }
        let is_due = task.has_pending_record() && quiet >= self.following.record_timeout;
        is_due.then_some(Order::Flush)
    }

    /// Tries again to read what could not be read.
    fn try_again(&mut self) {
        let now = Instant::now();
        let due: Vec<u128> = self
            .retries
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.retries.remove(&id);
            if let Some(file) = self.known.get(id)
                && file.lock().place.is_some()
            {
                self.read(&file);
            }
        }
    }

    /// Deletes files of which everything is acknowledged and which were not written to for long enough.
    fn delete_finished(&mut self) {
        let Some(grace) = self.following.delete_after else {
            return;
        };
        let finished: Vec<Arc<File>> = self
            .known
            .awake()
            .into_iter()
            .filter(|file| self.is_deletable(file, grace))
            .collect();
        for file in finished {
            let (path, look, place) = {
                let state = file.lock();
                (state.path.clone(), state.look, state.place)
            };
            // Between this look and the deletion nothing may be written; that is as close as it gets.
            let is_same = Meta::of(&path).is_ok_and(|meta| {
                FileStat::of(&meta) == look && Some(DeviceInode::of(&meta)) == place
            });
            if !is_same {
                continue;
            }
            if let Some(task) = self.pool.take_idle(file.id) {
                task.suspend();
            }
            match fs::remove_file(&path) {
                Ok(()) => self.ctx.metrics.count("files_deleted", 1),
                Err(error) => {
                    self.warn_once(&format!("{}: cannot be deleted: {error}", path.display()));
                }
            }
        }
    }

    fn is_deletable(&self, file: &Arc<File>, grace: Duration) -> bool {
        if self.pool.is_busy(file.id) {
            return false;
        }
        let state = file.lock();
        let is_read = match state.format {
            None if state.short_end.is_some() => true,
            None => state.position.offset == state.look.size,
            Some(_) => state.status == FileStatus::Done,
        };
        let counts = &state.counts;
        let is_settled = counts.in_flight_bytes == 0 && counts.pending_bytes == 0;
        let age = ago(state.look.modified_ns);
        is_read
            && is_settled
            && !state.is_frozen
            && state.lost.is_none()
            && state.look.size > 0
            && age >= grace
    }

    /// Forgets files that have been gone for long enough, and lets others sleep.
    pub(super) fn sweep(&mut self) {
        self.swept = Instant::now();
        let limit = self.following.forget_after.as_secs();
        let mut changes = Vec::new();
        for id in self.known.missing() {
            let Some(file) = self.known.get(id) else {
                continue;
            };
            if self.pool.has(id) || self.orphans.contains_key(&id) {
                continue;
            }
            let mut state = file.lock();
            if state.lost_since.is_none() {
                state.lost_since = Some(seconds_now());
                self.dirty.note(&file, &mut state);
            }
            let since = state.lost_since.unwrap_or_default();
            if seconds_now().saturating_sub(since) < limit {
                continue;
            }
            drop(state);
            self.known.forget(&file);
            changes.push(Change::Delete(record::file_key(id)));
            changes.push(Change::Delete(record::checkpoint_key(id)));
            changes.push(Change::Delete(record::given_key(id)));
        }
        self.remove(&changes);
        self.let_sleep();
    }

    /// Lets files sleep that nothing happens to.
    pub(super) fn let_sleep(&mut self) {
        if self.following.delete_after.is_some() {
            // Those that may be deleted are looked at all the time.
            return;
        }
        let now = seconds_now();
        self.known.sleep(|file| {
            let state = file.lock();
            let counts = &state.counts;
            // Only in memory is enough known of it to tell its copies.
            let awaits_copy = state.lost == Some(Lost::Truncated)
                && now < state.lost_since.unwrap_or_default() + COPIES_SECONDS;
            !awaits_copy
                && !state.is_dirty
                && state.status != FileStatus::Open
                && counts.in_flight_bytes + counts.pending_bytes == 0
        });
    }
}
