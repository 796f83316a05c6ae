//! What is known of one file: where it is, what identifies it, and what became of its bytes.
//!
//! Readers, the acknowledging task and the tracker share it, each behind the file's own lock for a moment.
//!
//! # Invariants
//! - `read = acknowledged + dropped + in flight` in source bytes, what is still being assembled included.
//! - `position` moves only when the receipts of everything before it have resolved; `sent` is ahead of it by what is in
//!   flight. After a restart both are the same.

use std::collections::VecDeque;
use std::fs::File as Opened;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use batch::fnv::Fnv128;
use codec::compress::{Checkpoint, Format};
use codec::{CHECK_BYTES, Check, Resume};
use component::{Dropped, FileLedger, FileStatus};
use parking_lot::{Mutex, MutexGuard};

use super::pread::read_exact_at;
use super::trail::Trail;
use crate::paths::meta::Meta;

/// Device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DeviceInode {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl DeviceInode {
    /// Where the file is that was found.
    pub(crate) fn of(meta: &Meta) -> Self {
        Self {
            device: meta.device,
            inode: meta.inode,
        }
    }
}

/// What the system said of the file when it was looked at last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) born_ns: Option<i64>,
    /// Bytes on disk.
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
}

impl FileStat {
    /// What was found.
    pub(crate) fn of(meta: &Meta) -> Self {
        Self {
            born_ns: meta.born_ns,
            size: meta.size,
            modified_ns: meta.modified_ns,
        }
    }
}

/// What a file is found again by: all of its first bytes, as far as they are known.
pub(crate) fn fingerprint(head: &[u8]) -> Check {
    let mut hasher = Fnv128::new();
    hasher.add(head);
    Check {
        len: head.len() as u16,
        hash: hasher.value(),
    }
}

/// Why a file is at no place any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Its inode is somewhere else or deleted.
    Gone,
    /// Its inode was truncated and holds something else now.
    Truncated,
}

/// A known file.
#[derive(Debug)]
pub(crate) struct File {
    /// 128 random bits.
    pub(crate) id: u128,
    state: Mutex<FileState>,
}

/// What is known of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    pub(crate) place: Option<DeviceInode>,
    pub(crate) lost: Option<Lost>,
    /// Where it was truncated: what is there now is another file, however alike.
    pub(crate) left: Option<DeviceInode>,
    /// Where it, or a copy of it, is known to have ended.
    pub(crate) ends: KnownEnds,
    /// What was passed of a plain file in this run.
    pub(crate) trail: Trail,
    /// Where it ends at its place, if that is before the position: it is a copy that was made before the last lines were
    /// written, which were read from the original.
    pub(crate) short_end: Option<(u64, Check)>,
    pub(crate) look: FileStat,
    /// It was looked at in this run, and nothing has happened since that needs another look.
    pub(crate) is_seen: bool,
    pub(crate) format: Option<Format>,
    /// Bytes of the disk that were read.
    pub(crate) disk_offset: u64,
    pub(crate) fingerprint: Check,
    /// The one it had at first, where the file was shorter then: a copy may have been made then.
    pub(crate) first_fingerprint: Option<Check>,
    pub(crate) position: Resume,
    pub(crate) sent: Resume,
    /// Up to where an earlier run that was killed had sent events at least: their ids belong to those bytes.
    pub(crate) given: (u64, Check),
    /// The place that the registry notes for that.
    pub(crate) given_noted: Option<u64>,
    pub(crate) status: FileStatus,
    /// Why it cannot be read further.
    pub(crate) problem: Option<String>,
    /// Its id is not durable yet: it is not read.
    pub(crate) awaits_id: bool,
    /// It was renamed, in this run or an earlier one.
    pub(crate) is_renamed: bool,
    /// Something was not delivered: the position stays where it is until the next run.
    pub(crate) is_frozen: bool,
    /// A copy that may take its place is being compared with it.
    pub(crate) is_claimed: bool,
    /// When it was noticed that it is gone, in seconds since 1970.
    pub(crate) lost_since: Option<u64>,
    pub(crate) counts: Counts,
    /// Checkpoints, ascending by place. One at most lies at or before `position`.
    pub(crate) checkpoints: VecDeque<StoredCheckpoint>,
    /// The place of the checkpoint that the registry has.
    pub(crate) saved_checkpoint: Option<u64>,
    /// It waits to be written to the registry.
    pub(crate) is_dirty: bool,
}

/// Bytes that must be the same before a file is taken for a copy: fewer are alike by chance.
pub(crate) const LIKENESS_MIN: u16 = 32;

/// Ends of each kind that are remembered.
const ENDS_MAX: usize = 8;

/// Where a file is known to have ended, with the bytes before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownEnds {
    /// When it was read to its end: a copy may have been made then.
    pub(crate) read: VecDeque<(u64, Check)>,
    /// Where copies of it end.
    pub(crate) copies: VecDeque<(u64, Check)>,
}

impl KnownEnds {
    /// Notes that the file was read to an end.
    pub(crate) fn note_read(&mut self, end: u64, check: Check) {
        remember(&mut self.read, (end, check));
    }

    /// Notes where a copy of the file ends.
    pub(crate) fn note_copy(&mut self, end: u64, check: Check) {
        remember(&mut self.copies, (end, check));
    }

    /// Whether a copy of this size was seen beside it.
    pub(crate) fn has_copy_of(&self, size: u64) -> bool {
        self.copies.iter().any(|(end, _)| *end == size)
    }

    /// Whether it is known to have ended at `end`, with `tail` before.
    pub(crate) fn holds(&self, end: u64, tail: &[u8]) -> bool {
        let mut ends = self.read.iter().chain(&self.copies);
        ends.any(|(known, check)| *known == end && check.matches(tail))
    }
}

fn remember(ends: &mut VecDeque<(u64, Check)>, end: (u64, Check)) {
    if !ends.contains(&end) {
        if ends.len() == ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back(end);
    }
}

/// A place of the registry's checkpoint that none has: whatever is needed is written.
pub(crate) const UNKNOWN_PLACE: u64 = u64::MAX;

/// A checkpoint as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredCheckpoint {
    /// The decompressed offset where it goes on.
    pub(crate) place: u64,
    /// The compressed bytes right before it: where these differ it is of no use.
    check: Check,
    encoded: Vec<u8>,
}

impl StoredCheckpoint {
    /// Keeps a checkpoint of a file.
    ///
    /// # Errors
    /// The compressed bytes before it cannot be read.
    pub(crate) fn new(checkpoint: &Checkpoint, file: &Opened) -> io::Result<Self> {
        Ok(Self {
            place: checkpoint.output,
            check: check_before(file, checkpoint.input)?,
            encoded: checkpoint.encode(),
        })
    }

    /// Keeps a checkpoint of an object, whose bytes never change.
    pub(crate) fn of_object(checkpoint: &Checkpoint) -> Self {
        Self {
            place: checkpoint.output,
            check: Check::default(),
            encoded: checkpoint.encode(),
        }
    }

    /// The checkpoint of an object; none where it is damaged.
    pub(crate) fn unchecked(&self) -> Option<Checkpoint> {
        Checkpoint::decode(&self.encoded)
    }

    /// The checkpoint, if the file has the same compressed bytes before it as it had.
    pub(crate) fn checkpoint(&self, file: &Opened) -> Option<Checkpoint> {
        let checkpoint = Checkpoint::decode(&self.encoded)?;
        let is_same = check_before(file, checkpoint.input).is_ok_and(|check| check == self.check);
        is_same.then_some(checkpoint)
    }

    /// Length and hash of the check, little-endian, then the checkpoint.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.check.len.to_le_bytes().to_vec();
        bytes.extend(self.check.hash.to_le_bytes());
        bytes.extend(&self.encoded);
        bytes
    }

    /// What was encoded; none where it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (hash, encoded) = rest.split_first_chunk()?;
        Some(Self {
            place: Checkpoint::decode(encoded)?.output,
            check: Check {
                len: u16::from_le_bytes(*len),
                hash: u128::from_le_bytes(*hash),
            },
            encoded: encoded.to_vec(),
        })
    }
}

/// The check of the bytes on disk before `offset`.
fn check_before(file: &Opened, offset: u64) -> io::Result<Check> {
    let len = offset.min(CHECK_BYTES as u64);
    let mut bytes = vec![0; len as usize];
    let read = read_exact_at(file, &mut bytes, offset - len)?;
    Ok(Check::of(&bytes[..read]))
}

/// What became of the bytes and events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) read_bytes: u64,
    pub(crate) acknowledged_bytes: u64,
    pub(crate) read_events: u64,
    pub(crate) acknowledged_events: u64,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) dead_letters: u64,
    /// In chunks that were taken and not resolved.
    pub(crate) in_flight_bytes: u64,
    pub(crate) in_flight_events: u64,
    /// Read and not yet in any chunk.
    pub(crate) pending_bytes: u64,
}

impl Counts {
    /// Counts what was dropped.
    pub(crate) fn drop_rows(&mut self, reason: &str, events: u64, bytes: u64) {
        if let Some(known) = self.dropped.iter_mut().find(|known| known.reason == reason) {
            known.events += events;
            known.bytes += bytes;
        } else {
            self.dropped.push(Dropped {
                reason: reason.to_owned(),
                events,
                bytes,
            });
        }
    }

    /// Bytes that were dropped.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped.iter().map(|dropped| dropped.bytes).sum()
    }

    /// Counts what was on its way as not read.
    fn forget_in_flight(&mut self) {
        self.read_bytes = self.acknowledged_bytes + self.dropped_bytes();
        let dropped: u64 = self.dropped.iter().map(|dropped| dropped.events).sum();
        self.read_events = self.acknowledged_events + dropped;
        (
            self.in_flight_bytes,
            self.in_flight_events,
            self.pending_bytes,
        ) = (0, 0, 0);
    }
}

impl File {
    /// A file in this state.
    pub(crate) fn new(id: u128, state: FileState) -> Arc<Self> {
        Arc::new(Self {
            id,
            state: Mutex::new(state),
        })
    }

    /// What is known of it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock()
    }
}

impl FileState {
    /// Bytes of the disk that were not read yet.
    pub(crate) fn lag_bytes(&self) -> u64 {
        match self.format {
            Some(_) if self.status == FileStatus::Done => 0,
            Some(_) => self.look.size.saturating_sub(self.disk_offset),
            None => self.look.size.saturating_sub(self.counts.read_bytes),
        }
    }

    /// Whether there may be something to read.
    pub(crate) fn wants_reading(&self) -> bool {
        match (self.format, self.status) {
            (_, FileStatus::Done | FileStatus::Broken) => false,
            (None, _) => self.look.size > self.sent.offset,
            (Some(_), _) => true,
        }
    }

    /// Whether so little of it was read that others are alike by chance. An earlier run that was killed may have read more than
    /// the fingerprint tells.
    pub(crate) fn is_tiny(&self) -> bool {
        let read = self.sent.offset.max(self.given.0);
        self.fingerprint.len < LIKENESS_MIN && read < u64::from(LIKENESS_MIN)
    }

    /// Notes that it was read to its end as it is now.
    pub(crate) fn note_end(&mut self) {
        self.ends.note_read(self.sent.offset, self.sent.check);
    }

    /// Forgets what was on its way when a run ended: it is read again, also of a file that was read to its end.
    pub(crate) fn forget_in_flight(&mut self) {
        if self.counts.in_flight_bytes > 0
            && matches!(self.status, FileStatus::Done | FileStatus::Broken)
        {
            self.status = FileStatus::Idle;
        }
        self.counts.forget_in_flight();
    }

    /// Drops the checkpoints that are no longer needed: all but the newest one at or before the position, and what follows.
    pub(crate) fn prune_checkpoints(&mut self) {
        while self
            .checkpoints
            .get(1)
            .is_some_and(|kept| kept.place <= self.position.offset)
        {
            self.checkpoints.pop_front();
        }
    }

    /// What a person may see of it. `now_ns` is nanoseconds since 1970.
    pub(crate) fn ledger(&self, scope: &str, id: u128, now_ns: i64) -> FileLedger {
        let (pipeline, input) = scope.split_once('/').unwrap_or((scope, ""));
        let lag_bytes = self.lag_bytes();
        let age = now_ns.saturating_sub(self.look.modified_ns) / 1_000_000_000;
        FileLedger {
            pipeline: pipeline.to_owned(),
            input: input.to_owned(),
            path: self.path.to_string_lossy().into_owned(),
            id: format!("{id:032x}"),
            device: self.place.map_or(0, |place| place.device),
            inode: self.place.map_or(0, |place| place.inode),
            size: self.look.size,
            position: self.position.offset,
            lag_bytes,
            lag_seconds: if lag_bytes > 0 { age.max(0) as u64 } else { 0 },
            read_bytes: self.counts.read_bytes,
            acknowledged_bytes: self.counts.acknowledged_bytes,
            dropped_bytes: self.counts.dropped_bytes(),
            in_flight_bytes: self.counts.in_flight_bytes + self.counts.pending_bytes,
            read_events: self.counts.read_events,
            acknowledged_events: self.counts.acknowledged_events,
            dropped: self.counts.dropped.clone(),
            dead_letters: self.counts.dead_letters,
            in_flight_events: self.counts.in_flight_events,
            state: if self.lost.is_some() {
                FileStatus::Gone
            } else {
                self.status
            },
            checkpoints: self.checkpoints.len() as u64,
        }
    }
}

/// What tells whether a file's content is what was read from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Likeness {
    pub(crate) look: FileStat,
    pub(crate) format: Option<Format>,
    pub(crate) fingerprint: Check,
    pub(crate) sent: (u64, Check),
    pub(crate) given: (u64, Check),
    pub(crate) short_end: Option<(u64, Check)>,
}

impl From<&FileState> for Likeness {
    fn from(state: &FileState) -> Self {
        Self {
            look: state.look,
            format: state.format,
            fingerprint: state.fingerprint,
            sent: (state.sent.offset, state.sent.check),
            given: state.given,
            short_end: state.short_end,
        }
    }
}

/// When something happened to a file that is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) opened: Instant,
    /// When bytes came last.
    pub(crate) data: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_tiny_until_enough_of_it_was_read_in_any_run() {
        let mut state = FileState {
            fingerprint: fingerprint(b"header\n"),
            ..FileState::default()
        };
        assert!(state.is_tiny());
        state.given.0 = 500;
        assert!(!state.is_tiny(), "it grew before the last run was killed");
        state.given.0 = 0;
        state.sent.offset = 500;
        assert!(!state.is_tiny());
    }
}
