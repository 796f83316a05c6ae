//! Leaving out what earlier runs stored: see `streams.rs` of this crate.

use std::io;
use std::sync::atomic::Ordering::SeqCst;

use batch::Batch;
use component::{Delivery, Receipt, receipt};

use super::commit::Pending;
use super::send::Offer;
use super::state::QueueState;
use super::upkeep::Upkeep;
use super::{Disk, Queue};

/// The counter of events that were not stored because they were stored already.
pub const REPEATED: &str = "repeated";

impl Queue {
    /// Leaves out what earlier runs have stored of a batch. The receipt of one of which nothing is left resolves as soon as it is
    /// certain that it stays.
    ///
    /// # Errors
    /// Something is left, which is to be sent.
    pub fn leave_out(&self, batch: Batch) -> Result<Receipt, Box<Offer>> {
        let Some(disk) = self
            .disk
            .as_ref()
            .filter(|it| it.knows_streams.load(SeqCst))
        else {
            return Err(Box::new(batch.into()));
        };
        let mut state = self.lock();
        let Some(streams) = &mut state.streams else {
            return Err(Box::new(batch.into()));
        };
        let new = streams.new_rows(&batch);
        disk.knows_streams.store(streams.has_known(), SeqCst);
        let Some(new) = new else {
            return Err(Box::new(batch.into()));
        };
        self.metrics
            .count(REPEATED, (batch.len() - new.len()) as u64);
        disk.found_is_used.store(true, SeqCst);
        let delivery = Delivery::accepted(&batch);
        if new.is_empty() {
            let (issuer, receipt) = receipt();
            streams.leave_out(issuer, delivery);
            drop(state);
            self.wake_writer();
            return Ok(receipt);
        }
        drop(state);
        Err(Box::new(Offer::part(batch.pick(&new), delivery)))
    }

    /// What was found in the log at the start is on disk afterwards.
    pub(super) fn sync_found(&self, disk: &Disk) -> io::Result<()> {
        if disk.found_is_synced.load(SeqCst) {
            return Ok(());
        }
        let synced = disk.log.sync_found();
        match synced {
            Ok(()) => disk.found_is_synced.store(true, SeqCst),
            // A second sync that succeeds says nothing of what the first one failed with. Who waits for it keeps what it has.
            Err(_) => self.lock().streams = None,
        }
        synced
    }

    /// Writes how far streams are stored, where that is due: segments with what is below `needed` are about to be removed.
    pub(super) fn write_streams(
        &self,
        disk: &Disk,
        upkeep: &mut Upkeep,
        needed: u64,
    ) -> io::Result<()> {
        let first_kept = disk.log.first_of_segments().into_iter().rev();
        let mut first_kept = first_kept.map(|one| one.first_sequence);
        let first_kept = first_kept.find(|&first| first <= needed);
        let table = {
            let mut state = self.lock();
            let QueueState {
                streams, commit, ..
            } = &mut *state;
            let Some(streams) = streams else {
                return Ok(());
            };
            // What all outputs have passed, as their cursors on disk say, may go before it is synced.
            let passed = commit.unsynced_below(needed);
            let end = passed.last().map_or(commit.readable(), Pending::end);
            let passed = commit.unsynced_below(needed);
            let passed = passed.map(|one| (one.block.sequence, &one.parts[..]));
            streams.take_due(end, needed, first_kept, passed)
        };
        let Some(table) = table else {
            return Ok(());
        };
        self.sync_found(disk)?;
        upkeep.streams.write(&*disk.storage, &table)?;
        upkeep.streams.keep_last();
        Ok(())
    }
}
