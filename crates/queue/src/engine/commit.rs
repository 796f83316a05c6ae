//! Writing and syncing what came in: the steps that make receipts resolve.

use std::io;

use component::Delivery;
use component::input::Issuer;

use super::state::{Pending, State};
use super::{Disk, Queue};
use crate::Durability;
use crate::log::Block;

/// The most that is written at once, in bytes.
const WRITE_MAX: u64 = 4 << 20;

type Resolved = Vec<(Issuer, Delivery)>;

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
        let group = disk.settings.group_size.min(WRITE_MAX);
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
        let blocks = self.lock().start_writing(size_max);
        if blocks.is_empty() {
            return Ok(false);
        }
        let prepared = disk.make_room(&blocks);
        if let Err(failure) = prepared.and_then(|()| self.make_cursors(disk)) {
            self.lock().give_up_writing();
            return Err(failure);
        }
        if let Err(failure) = disk.log.append(&blocks) {
            self.lock().give_up_writing();
            // Where there was no room for a segment, what was written before is as good as it was.
            if failure.kind() != io::ErrorKind::StorageFull {
                self.abandon(disk, &failure);
            }
            return Err(failure);
        }
        let stored: u64 = blocks.iter().map(Block::stored_size).sum();
        self.metrics.bytes(stored as usize);
        let resolved = {
            let mut state = self.lock();
            state.commit.writing = 0;
            state.commit.pending_stored -= stored;
            disk.account(&state);
            match disk.settings.durability {
                Durability::Interval => state.commit.take_receipts(),
                Durability::Fsync => Resolved::new(),
            }
        };
        self.resolve(resolved);
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
        if self.lock().commit.unsynced.is_empty() {
            return Ok(false);
        }
        if let Err(failure) = disk.log.sync() {
            self.abandon(disk, &failure);
            return Err(failure);
        }
        self.metrics.count("syncs", 1);
        let (resolved, wakes, end) = {
            let mut state = self.lock();
            let resolved = state.finish_sync();
            (resolved, state.somebody_reads(), state.readable())
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
        self.lock().forget_written();
        disk.log.abandon();
        self.metrics.count("write_failures", 1);
        self.pause(failure);
    }

    fn pause(&self, failure: &io::Error) {
        let reason = failure.to_string();
        let mut state = self.lock();
        let is_news = state.commit.paused.is_none();
        state.commit.paused = Some(reason.as_str().into());
        drop(state);
        if is_news {
            self.diagnostics.warn(&format!(
                "events cannot be stored: {reason}; inputs wait, and it is tried again"
            ));
        }
    }

    fn resume(&self) {
        let paused = self.lock().commit.paused.take();
        if paused.is_some() {
            self.diagnostics.info("events are stored again");
            self.room.notify_waiters();
        }
    }
}

impl State {
    /// Up to `size_max` bytes of what is pending, at least one batch, count as being written.
    fn start_writing(&mut self, size_max: u64) -> Vec<Block> {
        let commit = &mut self.commit;
        let mut blocks = Vec::new();
        let mut size = 0;
        while let Some(pending) = commit.pending.pop_front() {
            if size > 0 && (size + pending.size) as u64 > size_max {
                commit.pending.push_front(pending);
                break;
            }
            size += pending.size;
            blocks.push(pending.block.clone());
            commit.unsynced.push_back(pending);
        }
        commit.writing = blocks.len();
        commit.pending_size -= size;
        blocks
    }

    /// What was being written is pending again.
    fn give_up_writing(&mut self) {
        for _ in 0..std::mem::take(&mut self.commit.writing) {
            self.commit.requeue_last();
        }
    }

    /// What was written is safe.
    fn finish_sync(&mut self) -> Resolved {
        let commit = &mut self.commit;
        let synced: Vec<Pending> = commit.unsynced.drain(..).collect();
        commit.size -= synced.iter().map(|one| one.size).sum::<usize>();
        if let Some(oldest) = commit.pending.front() {
            commit.since = oldest.since;
        }
        if let Some(last) = synced.last() {
            self.readable_end = last.block.sequence + 1;
            self.readable_ordinal = last.block.ordinal + u64::from(last.block.events);
        }
        synced.into_iter().filter_map(|one| one.receipt).collect()
    }

    /// What was written and is not synced is pending again. Nothing is being written.
    fn forget_written(&mut self) {
        while !self.commit.unsynced.is_empty() {
            let again = self.commit.requeue_last();
            self.commit.pending_stored += again;
        }
    }
}

impl super::state::Commit {
    /// What was taken last is pending again; what it takes in the log.
    fn requeue_last(&mut self) -> u64 {
        let Some(last) = self.unsynced.pop_back() else {
            return 0;
        };
        let stored = last.block.stored_size();
        self.pending_size += last.size;
        self.pending.push_front(last);
        stored
    }

    fn take_receipts(&mut self) -> Resolved {
        let written = self.unsynced.iter_mut();
        let safe = written.map(|one| {
            one.is_safe = true;
            one.receipt.take()
        });
        safe.flatten().collect()
    }
}

impl Disk {
    /// Refuses to make a segment where room is to be left.
    fn make_room(&self, blocks: &[Block]) -> io::Result<()> {
        let size: u64 = blocks.iter().map(Block::stored_size).sum();
        if size <= self.log.room() {
            return Ok(());
        }
        let more = self.settings.segment_size.max(size);
        let free = self.storage.free()?;
        if free < self.settings.min_free.saturating_add(more) {
            let text = format!(
                "the file system has {free} bytes left; {more} are needed, and min_free keeps {}",
                self.settings.min_free
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        Ok(())
    }
}
