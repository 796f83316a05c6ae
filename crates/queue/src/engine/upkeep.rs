//! Saving cursors, removing segments, dropping what is too old or too much, and saying what was found damaged.

use component::plural;
use parking_lot::MutexGuard;
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::commit::Wanted;
use super::lanes::LanePlace;
use super::limits::Full;
use super::{Disk, Queue};
use crate::WhenFull;
use crate::cursor::{CursorFile, Saved};
use crate::log::{BlockReader, FoundBlock, LogEnd};
use crate::snapshot::SnapshotFiles;

/// The counter of events that made room for others.
pub const DROPPED_OLDEST: &str = "dropped_oldest";

/// The counter of events that waited for too long.
pub const DROPPED_BY_AGE: &str = "dropped_by_age";

/// What upkeep remembers.
pub struct Upkeep {
    /// For each output its cursor, where there is one.
    cursors: Vec<Option<CursorFile>>,
    /// Cursors of outputs that are not configured any more.
    retired: Vec<CursorFile>,
    /// Where what processors remember is written.
    snapshots: SnapshotFiles,
    /// Where it is written how far streams are stored.
    pub(super) streams: SnapshotFiles,
    /// Looks at the oldest batch that some output has not passed.
    sweeper: Option<Sweeper>,
    failed: bool,
}

/// A reader with the block that it stands at.
struct Sweeper {
    reader: BlockReader,
    found: Option<FoundBlock>,
}

impl Upkeep {
    pub fn new(
        cursors: Vec<Option<CursorFile>>,
        retired: Vec<CursorFile>,
        snapshots: SnapshotFiles,
        streams: SnapshotFiles,
    ) -> Self {
        Self {
            cursors,
            retired,
            snapshots,
            streams,
            sweeper: None,
            failed: false,
        }
    }
}

impl Queue {
    /// Saves cursors, removes the segments that all outputs have passed, and drops what is too old. Called a few times a second, at a
    /// clean stop, and when room is wanted.
    pub fn upkeep_step(&self) {
        let Some(disk) = &self.disk else { return };
        self.wake_readers();
        self.tidy_step(disk);
        self.note_cursors();
        self.say_damage();
    }

    fn tidy_step(&self, disk: &Disk) {
        let mut upkeep = disk.upkeep();
        let wanted = {
            let mut state = self.lock();
            let lacking = match disk.settings.when_full {
                // Nobody waits, but what comes next is dropped as well.
                WhenFull::DropNewest => state.commit.lacking(),
                WhenFull::Block | WhenFull::DropOldest => None,
            };
            state.commit.take_wanted().or(lacking)
        };
        let size_before = disk.log.size();
        let floor_before = self.lock().lanes.floor();
        match self.tidy(disk, &mut upkeep, wanted) {
            Ok(()) => {
                if std::mem::take(&mut upkeep.failed) {
                    self.diagnostics
                        .info("the files of the queue can be brought up to date again");
                }
            }
            Err(failure) => {
                upkeep.sweeper = None;
                if !std::mem::replace(&mut upkeep.failed, true) {
                    self.diagnostics.warn(&format!(
                        "the files of the queue cannot be brought up to date: {failure}; retrying"
                    ));
                }
            }
        }
        let segments = disk.log.first_of_segments();
        let release_at = segments.get(1).map_or(u64::MAX, |one| one.first_sequence);
        {
            let mut state = self.lock();
            state.commit.set_release_at(release_at);
            disk.account(&state);
        }
        // Who waits for room looks again only where there is some, or it would ask for upkeep without end.
        if disk.log.size() < size_before || self.lock().lanes.floor() > floor_before {
            self.room.notify_waiters();
        }
    }

    /// `wanted` is for what somebody wants room.
    fn tidy(&self, disk: &Disk, upkeep: &mut Upkeep, wanted: Option<Wanted>) -> io::Result<()> {
        // Where there is no room for it, segments that are removed may make some.
        let kept = self.write_snapshot(disk, upkeep);
        // What all outputs have passed goes before anything is dropped.
        self.save_cursors(disk, upkeep)?;
        if let Some(wanted) = wanted {
            self.forget_retired(disk, upkeep, wanted)?;
        }
        let floor_before = self.lock().lanes.floor();
        self.drop_old(disk, upkeep, wanted)?;
        if self.lock().lanes.floor() > floor_before {
            self.save_cursors(disk, upkeep)?;
        }
        kept.map_err(|failure| {
            let text = format!("what processors remember cannot be kept: {failure}");
            io::Error::new(failure.kind(), text)
        })
    }

    /// Says what the log found damaged since the last call, and counts it.
    pub(super) fn say_damage(&self) {
        let Some(disk) = &self.disk else { return };
        for damage in disk.log.take_damage() {
            if damage.torn {
                self.metrics.count("torn_bytes", damage.length);
                continue;
            }
            self.metrics.count("damaged_ranges", 1);
            self.diagnostics.warn(&format!(
                "segment {} is damaged: {} at offset {}: {}; the damaged data is kept in the queue's directory `quarantine`",
                damage.segment, plural(damage.length, "byte"), damage.offset, damage.reason
            ));
        }
    }

    /// Makes the cursors that are missing, before anything is stored: a new output that has none after a crash would begin
    /// somewhere else once more, and miss what came in between.
    pub(super) fn make_cursors(&self, disk: &Disk) -> io::Result<()> {
        let mut upkeep = disk.upkeep();
        if upkeep.cursors.iter().any(Option::is_none) {
            self.save_cursors(disk, &mut upkeep)?;
        }
        drop(upkeep);
        self.note_cursors();
        Ok(())
    }

    /// Writes how far the outputs have come, if they passed something that is stored, without a sync. Called by an output after
    /// everything that it passes at once: if the process is killed afterwards, none of it is sent again.
    pub fn note_cursors(&self) {
        let Some(disk) = &self.disk else { return };
        // Who holds what upkeep remembers looks again after giving it back, so nobody waits for anybody here.
        while disk.is_note_due.load(SeqCst) {
            let Some(mut upkeep) = disk.try_upkeep() else {
                return;
            };
            disk.is_note_due.store(false, SeqCst);
            let (places, end) = self.places();
            for (place, slot) in places.into_iter().zip(&mut upkeep.cursors) {
                let Some(file) = slot else { continue };
                let outputs = file.saved().outputs.clone();
                // Where it fails, the next save says so.
                let _ = file.note(saved(place, end, outputs));
            }
        }
    }

    /// Where the outputs are, and where what was synced ends.
    fn places(&self) -> (Vec<LanePlace>, LogEnd) {
        let state = self.lock();
        (state.lanes.places(), state.commit.synced_end())
    }

    fn save_cursors(&self, disk: &Disk, upkeep: &mut Upkeep) -> io::Result<()> {
        let now = (self.clock)();
        self.expire(disk, upkeep, now)?;
        let (places, end) = self.places();
        let retired = upkeep
            .retired
            .iter()
            .map(|file| file.saved().output.clone());
        let mut outputs: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        outputs.extend(retired);
        let mut lowest = upkeep
            .retired
            .iter()
            .map(|file| file.saved().sequence)
            .min();
        for (place, slot) in places.into_iter().zip(&mut upkeep.cursors) {
            lowest = Some(lowest.map_or(place.cursor, |lowest| lowest.min(place.cursor)));
            let saved = saved(place, end, outputs.clone());
            match slot {
                Some(file) => file.save(saved)?,
                None => *slot = Some(CursorFile::create(&disk.storage, &saved)?),
            }
        }
        if let Some(lowest) = lowest {
            let needed = {
                let mut state = self.lock();
                let is_new = state
                    .snapshots
                    .as_mut()
                    .is_some_and(|it| it.advance(lowest));
                if is_new {
                    upkeep.snapshots.keep_last();
                    // Nothing was given before there was one.
                    self.bell.ring();
                }
                state.lowest_needed()
            };
            let needed = lowest.min(needed);
            let written = self.write_streams(disk, upkeep, needed);
            // Where there is no room for the table, segments go all the same: that makes room.
            disk.log.release(needed)?;
            written?;
        }
        Ok(())
    }

    /// Writes what processors remember, where that is wanted.
    fn write_snapshot(&self, disk: &Disk, upkeep: &mut Upkeep) -> io::Result<()> {
        let (snapshot, synced_end) = {
            let state = self.lock();
            let snapshots = state.snapshots.as_ref();
            let snapshot = snapshots.and_then(|it| it.to_write(state.commit.readable().sequence));
            (snapshot, state.commit.synced_end().sequence)
        };
        let Some(snapshot) = snapshot else {
            return Ok(());
        };
        if snapshot.position > synced_end {
            self.sync_found(disk)?;
        }
        upkeep.snapshots.write(&*disk.storage, &snapshot)?;
        self.metrics.count("snapshots", 1);
        if let Some(snapshots) = &mut self.lock().snapshots {
            snapshots.written(&snapshot);
        }
        Ok(())
    }

    /// Marks the cursors of outputs that are not configured any more, and removes them after their time. A failure with one
    /// is no reason to forget the others, whose segments would go.
    fn expire(&self, disk: &Disk, upkeep: &mut Upkeep, now: i64) -> io::Result<()> {
        let mut done = Ok(());
        for file in std::mem::take(&mut upkeep.retired) {
            done = done.and(self.expire_one(disk, upkeep, file, now / 1_000_000_000));
        }
        done
    }

    fn expire_one(
        &self,
        disk: &Disk,
        upkeep: &mut Upkeep,
        mut file: CursorFile,
        seconds: i64,
    ) -> io::Result<()> {
        let retention = disk.settings.orphan_retention.0;
        let output = file.saved().output.clone();
        let Some(since) = file.saved().retired else {
            self.diagnostics.warn(&format!(
                "output {output} is no longer configured: the events that it has not acknowledged are kept for {retention:?}"
            ));
            let saved = Saved {
                retired: Some(seconds),
                ..file.saved().clone()
            };
            let marked = file.save(saved);
            upkeep.retired.push(file);
            return marked;
        };
        if seconds - since < retention.as_secs() as i64 {
            upkeep.retired.push(file);
            return Ok(());
        }
        self.diagnostics.warn(&format!(
            "the events that output {output} had not acknowledged are dropped: it has not been configured for {:?}",
            Duration::from_secs((seconds - since).max(0) as u64)
        ));
        file.remove()
    }

    /// Forgets what an output that is not configured any more had not taken, where its segments are in the way of new events.
    fn forget_retired(&self, disk: &Disk, upkeep: &mut Upkeep, wanted: Wanted) -> io::Result<()> {
        let is_full = |full| matches!(full, Some(Full::Size | Full::Shared));
        while is_full(disk.is_full(&self.lock(), wanted)) {
            let lowest = self.lock().lowest_cursor();
            let retired = upkeep.retired.iter().enumerate();
            let first = retired.min_by_key(|(_, file)| file.saved().sequence);
            let Some((index, _)) = first.filter(|(_, file)| file.saved().sequence < lowest) else {
                return Ok(());
            };
            let output = upkeep.retired[index].saved().output.clone();
            self.diagnostics.warn(&format!(
                "the events that output {output} had not acknowledged are dropped: it is no longer configured, and the queue is full"
            ));
            upkeep.retired.swap_remove(index).remove()?;
            self.save_cursors(disk, upkeep)?;
        }
        Ok(())
    }

    /// Raises the floor over what is too old, and where somebody wants room and the oldest may go, over that.
    fn drop_old(&self, disk: &Disk, upkeep: &mut Upkeep, wanted: Option<Wanted>) -> io::Result<()> {
        while disk.settings.max_age.is_some() {
            let oldest = self.oldest(disk, upkeep)?;
            match oldest.filter(|found| self.is_too_old(disk, found)) {
                Some(found) => self.drop_block(&found, DROPPED_BY_AGE),
                None => break,
            }
        }
        let may_drop = disk.settings.when_full == WhenFull::DropOldest;
        let Some(wanted) = wanted.filter(|_| may_drop) else {
            return Ok(());
        };
        let segments = disk.log.first_of_segments();
        let mut segment_end = None;
        loop {
            let full = disk.is_full(&self.lock(), wanted);
            let Some(found) = self.oldest(disk, upkeep)? else {
                return Ok(());
            };
            // What processors remember may need more than outputs do: then the oldest is not in the first segment.
            let end = *segment_end.get_or_insert_with(|| {
                let mut firsts = segments.iter().map(|one| one.first_sequence);
                firsts.find(|first| *first > found.sequence)
            });
            let goes = match full {
                None => false,
                Some(Full::Events) => true,
                Some(Full::Size | Full::Shared) => end.is_none_or(|end| found.sequence < end),
            };
            if !goes {
                return Ok(());
            }
            self.drop_block(&found, DROPPED_OLDEST);
        }
    }

    /// The oldest stored batch that some output has not passed.
    fn oldest(&self, disk: &Disk, upkeep: &mut Upkeep) -> io::Result<Option<FoundBlock>> {
        let (lowest, end) = {
            let state = self.lock();
            (state.lowest_cursor(), state.commit.readable().sequence)
        };
        let sweeper = upkeep.sweeper.get_or_insert_with(|| Sweeper {
            reader: disk.log.reader(lowest),
            found: None,
        });
        while sweeper
            .found
            .as_ref()
            .is_none_or(|found| found.sequence < lowest)
        {
            sweeper.found = sweeper.reader.next()?;
            if sweeper.found.is_none() {
                return Ok(None);
            }
        }
        Ok(sweeper.found.clone().filter(|found| found.sequence < end))
    }

    /// Whether a batch has waited for longer than it may.
    pub(super) fn is_too_old(&self, disk: &Disk, found: &FoundBlock) -> bool {
        disk.settings.max_age.is_some_and(|age| {
            let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            found.time < (self.clock)().saturating_sub(age)
        })
    }

    pub(super) fn drop_block(&self, found: &FoundBlock, reason: &'static str) {
        let dropped = self.lock().drop_to(found.sequence, &found.ordinals());
        self.count_dropped(reason, dropped);
        self.bell.ring();
    }
}

fn saved(place: LanePlace, end: LogEnd, outputs: Vec<String>) -> Saved {
    Saved {
        output: place.name,
        sequence: place.cursor,
        ordinal: place.ordinal,
        passed: place.passed,
        end,
        retired: None,
        outputs,
    }
}

impl Disk {
    /// The cursor of an output as it was last synced.
    pub(super) fn saved_cursor(&self, lane: usize) -> u64 {
        let upkeep = self.upkeep();
        let file = upkeep.cursors.get(lane).and_then(Option::as_ref);
        file.map_or(0, |file| file.saved().sequence)
    }

    fn try_upkeep(&self) -> Option<MutexGuard<'_, Upkeep>> {
        self.upkeep.try_lock()
    }

    fn upkeep(&self) -> MutexGuard<'_, Upkeep> {
        self.upkeep.lock()
    }
}
