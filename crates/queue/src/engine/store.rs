//! Writing and syncing what came in: the steps that make receipts resolve.

use std::io;
use std::sync::atomic::Ordering::SeqCst;

use super::commit::Resolved;
use super::{Disk, Queue};
use crate::Durability;
use crate::log::Block;
use crate::streams::Streams;

/// The most that is written at once, in bytes.
const WRITE_MAX: u64 = 4 << 20;

impl Queue {
    /// Writes what waits to be written, up to a group; whether there was anything. Nothing is lost when it fails: it is
    /// tried again by the next call.
    ///
    /// # Errors
    /// The log could not be written, for instance because the disk is full.
    pub fn write_step(&self) -> io::Result<bool> {
        let Some(disk) = &self.disk else {
            return Ok(false);
        };
        let is_full = |failure: &io::Error| failure.kind() == io::ErrorKind::StorageFull;
        let group = disk.settings.group_bytes.0.min(WRITE_MAX);
        let written = match self.write_group(disk, group) {
            // There may be room for one batch where there is none for a group.
            Err(failure) if is_full(&failure) && group > 0 => self.write_group(disk, 0),
            written => written,
        };
        if let Err(failure) = &written {
            self.pause(failure);
        }
        written
    }

    /// Writes batches of up to `size_max` bytes, at least one.
    fn write_group(&self, disk: &Disk, size_max: u64) -> io::Result<bool> {
        let blocks = self.lock().commit.start_writing(size_max);
        if blocks.is_empty() {
            return Ok(false);
        }
        let prepared = disk.make_room(&blocks);
        if let Err(failure) = prepared.and_then(|()| self.make_cursors(disk)) {
            self.lock().commit.give_up_writing();
            return Err(failure);
        }
        if let Err(failure) = disk.log.append(&blocks) {
            self.lock().commit.give_up_writing();
            // Where there was no room for a segment, what was written before is as good as it was.
            if failure.kind() != io::ErrorKind::StorageFull {
                self.abandon(disk, &failure);
            }
            return Err(failure);
        }
        let stored: u64 = blocks.iter().map(Block::stored_size).sum();
        self.metrics.bytes(stored as usize);
        let (resolved, wakes) = {
            let mut state = self.lock();
            state.commit.finish_writing(stored);
            disk.account(&state);
            let resolved = match disk.settings.durability {
                Durability::Interval => state.commit.trust_written(),
                Durability::Fsync => Resolved::new(),
            };
            (resolved, state.snapshots.is_some())
        };
        self.resolve(resolved);
        if wakes {
            self.bell.ring();
        }
        self.resume();
        Ok(true)
    }

    /// Syncs what was written; whether there was anything. After a failure it is all written again, to a new segment.
    ///
    /// # Errors
    /// The system did not say that everything is on disk.
    pub fn sync_step(&self) -> io::Result<bool> {
        let Some(disk) = &self.disk else {
            return Ok(false);
        };
        let (is_due, left_out) = {
            let state = self.lock();
            let left_out = state.streams.as_ref().is_some_and(Streams::has_left_out);
            (state.commit.has_unsynced(), left_out)
        };
        if !is_due && !left_out {
            return Ok(false);
        }
        if disk.found_is_used.load(SeqCst) {
            self.sync_found(disk)?;
        }
        if left_out {
            let resolved = self.lock().streams.as_mut().map(Streams::take_left_out);
            self.resolve(resolved.unwrap_or_default());
        }
        if !is_due {
            return Ok(true);
        }
        if let Err(failure) = disk.log.sync() {
            self.abandon(disk, &failure);
            return Err(failure);
        }
        self.metrics.count("syncs", 1);
        let (resolved, wakes, end) = {
            let mut state = self.lock();
            let state = &mut *state;
            let resolved = state.commit.finish_sync(state.streams.as_mut());
            let wakes = state.somebody_reads() || state.snapshots.is_some();
            (resolved, wakes, state.commit.readable())
        };
        disk.synced.advance(&*disk.storage, end);
        self.resolve(resolved);
        self.resume();
        self.room.notify_waiters();
        if wakes {
            self.bell.ring();
        }
        Ok(true)
    }

    fn resolve(&self, receipts: Resolved) {
        for (issuer, delivery) in receipts {
            issuer.resolve(delivery);
        }
    }

    /// Nothing that is not synced counts as written any more.
    fn abandon(&self, disk: &Disk, failure: &io::Error) {
        self.lock().commit.forget_written();
        disk.log.abandon();
        self.metrics.count("write_failures", 1);
        self.pause(failure);
    }

    fn pause(&self, failure: &io::Error) {
        let is_news = self.lock().commit.pause();
        if is_news {
            self.diagnostics.warn(&format!(
                "events cannot be stored: {failure}; inputs wait while Millpond retries"
            ));
        }
    }

    fn resume(&self) {
        let was_paused = self.lock().commit.resume();
        if was_paused {
            self.diagnostics.info("events can be stored again");
            self.room.notify_waiters();
        }
    }
}

impl Disk {
    /// Refuses to make a segment where room is to be left.
    fn make_room(&self, blocks: &[Block]) -> io::Result<()> {
        let size: u64 = blocks.iter().map(Block::stored_size).sum();
        if size <= self.log.room() {
            return Ok(());
        }
        let more = self.settings.segment_bytes.0.max(size);
        let free = self.storage.free()?;
        if free < self.settings.min_free_bytes.0.saturating_add(more) {
            let text = format!(
                "the file system has {free} bytes free; {more} are needed, and min_free_bytes reserves {}",
                self.settings.min_free_bytes.0
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        Ok(())
    }
}
