//! How a queue on disk begins.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use component::{Diagnostics, OperatorMetrics};
use disk::{FolderStorage, PagePool, Storage};
use parking_lot::Mutex;

use super::bell::Bell;
use super::lane::Lane;
use super::lanes::Recipient;
use super::snapshots::Snapshots;
use super::state::QueueState;
use super::upkeep::Upkeep;
use super::{Clock, Disk, Queue, steady_clock, wall_clock};
use crate::budget::DiskBudget;
use crate::cursor::{CursorFile, Cursors, Loaded, LogEnd, Saved};
use crate::log::{Log, LogSettings, Recovered, list_segments};
use crate::settings::{Limits, Mode};
use crate::snapshot::{self, FoundSnapshots, ProcessorState, Snapshot, SnapshotFiles};
use crate::streams;
use crate::synced::{self, Said, SyncedMark};
use crate::{DiskSettings, NewOutput, QueueError, WhenFull};

/// What a queue on disk is made with.
pub struct DiskOptions {
    /// Its settings.
    pub settings: DiskSettings,
    /// What of it is on disk.
    pub mode: Mode,
    /// The most in memory, in mode [`Mode::Overflow`].
    pub limits: Limits,
    /// The names of the outputs, in order.
    pub outputs: Vec<String>,
    /// Whether outputs may go on alone.
    pub may_part: bool,
    /// Whether a processor gets every batch once, in sequence. Outputs then begin together; one that goes on alone takes a copy of the
    /// processor with it ([`Entry::parting`](super::Entry::parting)).
    pub is_ordered: bool,
    /// Whether what processors remember is kept for a later run, in mode [`Mode::Everything`]. They are ordered.
    pub keeps_snapshots: bool,
    /// The disk that several queues share.
    pub budget: Option<Arc<DiskBudget>>,
    /// What each of them may take of it if it is used equally, in bytes.
    pub share: u64,
    /// What the queue counts.
    pub metrics: Arc<OperatorMetrics>,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// The time of day.
    pub clock: Clock,
    /// A clock that never goes back.
    pub steady: Clock,
    /// Wakes the workers that take from the queue.
    pub bell: Arc<Bell>,
}

impl DiskOptions {
    /// Options with nothing shared, the time of the system, and no more in memory than the settings say.
    pub fn new(settings: DiskSettings, outputs: &[&str]) -> Self {
        Self {
            limits: Limits {
                size_max: settings.cache_bytes.bytes(),
                events_max: usize::MAX,
            },
            settings,
            mode: Mode::Everything,
            outputs: outputs.iter().map(|&name| name.to_owned()).collect(),
            may_part: true,
            is_ordered: false,
            keeps_snapshots: false,
            budget: None,
            share: u64::MAX,
            metrics: Arc::default(),
            diagnostics: Diagnostics::silent(),
            clock: Arc::new(wall_clock),
            steady: Arc::new(steady_clock),
            bell: Arc::default(),
        }
    }
}

/// What is set aside of damaged ranges at most, in bytes; further ones are only counted.
const QUARANTINE_SIZE_MAX: u64 = 256 << 20;

impl Queue {
    /// Opens the queue in a folder, which is made where it is not there, and starts its writer.
    ///
    /// # Errors
    /// Another process has the folder, a later version wrote there, or the system refused. Damage is no error.
    pub fn open(folder: &Path, options: DiskOptions) -> Result<Arc<Self>, QueueError> {
        let storage = FolderStorage::open(folder)?;
        if let Some(warning) = storage.warning() {
            options.diagnostics.warn(&warning);
        }
        let storage: Arc<dyn Storage> = Arc::new(storage);
        let queue = Self::open_on(storage, options).map_err(|error| error.within(folder))?;
        queue.start_writer().map_err(QueueError::Thread)?;
        Ok(queue)
    }

    /// Opens a queue on any storage. Nothing is written before somebody calls its steps.
    ///
    /// # Errors
    /// As for [`Queue::open`].
    pub fn open_on(
        storage: Arc<dyn Storage>,
        options: DiskOptions,
    ) -> Result<Arc<Self>, QueueError> {
        // Before anything is touched: a later version is refused wherever it is met.
        list_segments(&*storage)?;
        let loaded = Cursors::load(&storage)?;
        let snapshots = FoundSnapshots::load(&*storage, snapshot::NAMES)?;
        let table = streams::load(&*storage)?;
        let passed_end = passed(&loaded.cursors).sequence;
        let (log, recovered, synced) = open_log(&storage, &options, &loaded.cursors)?;
        for note in loaded.notes.iter().chain(&recovered.notes) {
            options.diagnostics.warn(note);
        }
        let now = (options.steady)();
        let mut start = Start::new(&options, loaded, snapshots, &recovered, synced, now);
        log.leave_out(start.never_written.clone());
        if options.mode == Mode::Everything {
            let table = table.as_ref().map(|(_, table)| table);
            start.state.streams = Some(streams::recover(table, &log, &recovered, passed_end));
        }
        let streams = SnapshotFiles::keeping(streams::NAMES, table.map(|(file, _)| file));
        if let Some(budget) = &options.budget {
            budget.grow(log.size());
        }
        let disk = Disk {
            upkeep: Mutex::new(Upkeep::new(
                start.cursors,
                start.retired,
                start.files,
                streams,
            )),
            remembered: Mutex::new(start.remembered),
            is_note_due: false.into(),
            knows_streams: true.into(),
            found_is_used: false.into(),
            found_is_synced: false.into(),
            synced: SyncedMark::default(),
            lost: Mutex::default(),
            accounted: log.size().into(),
            storage,
            log,
            mode: options.mode,
            settings: options.settings,
            may_part: options.may_part,
            is_ordered: options.is_ordered,
            pool: PagePool::default(),
            front: Arc::default(),
            budget: options.budget,
        };
        let queue = Self::assemble(
            options.limits,
            Some(disk),
            start.state,
            options.metrics,
            options.diagnostics,
            [options.clock, options.steady],
            options.bell,
        );
        queue.say_damage();
        queue.say_lost_at_start(start.lost);
        Ok(Arc::new(queue))
    }
}

/// Opens the log; where what was synced of it ended.
fn open_log(
    storage: &Arc<dyn Storage>,
    options: &DiskOptions,
    cursors: &[CursorFile],
) -> Result<(Log, Recovered, LogEnd), QueueError> {
    let said = synced::read(&**storage);
    if said == Said::Damaged {
        options.diagnostics.warn(&format!(
            "{} cannot be read: it is unknown whether the last events before a crash were stored",
            synced::NAME
        ));
    }
    let log_settings = LogSettings {
        segment_size: options.settings.segment_bytes.0,
        quarantine_size_max: QUARANTINE_SIZE_MAX,
        synced: log_end(cursors).max(said.end()),
        passed: passed(cursors),
    };
    let (log, recovered) = Log::open(storage.clone(), log_settings)?;
    Ok((log, recovered, log_settings.synced))
}

impl Queue {
    fn say_lost_at_start(&self, lost: Range<u64>) {
        if let Some(disk) = &self.disk {
            self.say_lost_end(disk.count_lost(disk.log.lost_of(lost, 0, None)));
        }
    }
}

/// Where what was synced of the log ended, as far as cursors say.
fn log_end(cursors: &[CursorFile]) -> LogEnd {
    let ends = cursors.iter().map(|file| file.saved().end);
    ends.max().unwrap_or_default()
}

/// What all outputs have passed, as far as cursors say.
fn passed(cursors: &[CursorFile]) -> LogEnd {
    let places = cursors.iter().map(|file| LogEnd {
        sequence: file.saved().sequence,
        ordinal: file.saved().ordinal,
    });
    places.min().unwrap_or_default()
}

/// Where everybody begins.
struct Start {
    state: QueueState,
    /// For each output its cursor, where there is one.
    cursors: Vec<Option<CursorFile>>,
    /// Cursors of outputs that are not configured any more.
    retired: Vec<CursorFile>,
    /// Where snapshots are written.
    files: SnapshotFiles,
    /// What processors remembered there.
    remembered: Vec<ProcessorState>,
    /// Events that were synced, are gone from the end of the log, and were not passed by every output.
    lost: Range<u64>,
    /// Events that some output passed before they were stored, which they never were: the log goes on behind them.
    never_written: Range<u64>,
}

impl Start {
    /// `end` is where what was synced of the log ended.
    fn new(
        options: &DiskOptions,
        loaded: Loaded,
        snapshots: FoundSnapshots,
        recovered: &Recovered,
        end: LogEnd,
        now: i64,
    ) -> Self {
        let found = loaded.cursors;
        let saved = || found.iter().map(CursorFile::saved);
        let next = next(saved(), &snapshots, recovered, end);
        let mut known = loaded.damaged;
        let has_cursor = |name: &String| saved().any(|saved| saved.output == *name);
        // The list of one that is not configured any more is as old as that.
        let current = saved().filter(|saved| saved.retired.is_none());
        let listed = current.flat_map(|saved| &saved.outputs);
        let misses_cursors = !known.iter().chain(listed).all(has_cursor);
        known.extend(saved().flat_map(|saved| saved.outputs.clone()));
        let remembered = Remembered::new(options, snapshots, &found, misses_cursors, recovered);
        let mut found = found;
        let mut cursors = Vec::new();
        let mut lanes = Vec::new();
        for name in &options.outputs {
            let at = found.iter().position(|file| file.saved().output == *name);
            let cursor = at.map(|at| found.swap_remove(at));
            let passed = cursor.as_ref().map(|file| file.saved().passed.clone());
            let (sequence, ordinal) = match &cursor {
                // Where segments are missing from there on, the reader finds out how much is.
                Some(file) => (file.saved().sequence, file.saved().ordinal),
                None => {
                    let is_new = !known.contains(name) && !known.is_empty();
                    first_place(options, name, is_new, recovered, next).max(remembered.place())
                }
            };
            let passed = passed.unwrap_or_default();
            lanes.push(Lane::new(name.as_str().into(), sequence, ordinal, passed));
            cursors.push(cursor);
        }
        let positions = lanes.iter().map(Lane::position);
        let parts = options.may_part && !options.is_ordered;
        let front = match parts {
            true => positions.max(),
            false => positions.min(),
        };
        let front = remembered.begins_at(front.unwrap_or(next.sequence));
        for lane in &mut lanes {
            if parts && lane.position() < front {
                lane.part();
            }
        }
        let behind = lanes.iter().filter(|lane| lane.position() < end.sequence);
        let there = behind.map(|lane| recovered.next_ordinal.max(lane.ordinal()));
        let lost = there.min().unwrap_or(end.ordinal)..end.ordinal;
        let mut state = QueueState::with_lanes(lanes, front, next, end, now);
        let (files, remembered) = remembered.put_into(&mut state, options);
        Self {
            lost,
            never_written: recovered.next_ordinal.max(end.ordinal)..next.ordinal,
            state,
            cursors,
            retired: found,
            files,
            remembered,
        }
    }
}

/// Where the log goes on. A cursor may be ahead of the log: what was passed from memory need not have been written before a crash. Its
/// sequences must not be given out again.
fn next<'a>(
    saved: impl Iterator<Item = &'a Saved> + Clone,
    snapshots: &FoundSnapshots,
    recovered: &Recovered,
    end: LogEnd,
) -> LogEnd {
    let sequences = saved.clone().map(|saved| saved.sequence);
    let ordinals = saved.map(|saved| saved.ordinal);
    LogEnd {
        sequence: sequences
            .chain([snapshots.highest()])
            .fold(recovered.next_sequence.max(end.sequence), u64::max),
        ordinal: ordinals.fold(recovered.next_ordinal.max(end.ordinal), u64::max),
    }
}

/// Where an output begins that has no cursor.
fn first_place(
    options: &DiskOptions,
    name: &str,
    is_new: bool,
    recovered: &Recovered,
    next: LogEnd,
) -> (u64, u64) {
    let from_now = is_new && options.settings.new_output == NewOutput::Now;
    say_begin(options, name, is_new, recovered, from_now);
    // Of a log that is gone as a whole nobody knows what of it this output had passed.
    match from_now || recovered.is_empty() {
        true => (next.sequence, next.ordinal),
        false => (recovered.oldest_sequence, recovered.oldest_ordinal),
    }
}

/// Where processors that remember what they saw go on.
struct Remembered {
    /// The snapshot, with the number of its file.
    base: Option<(usize, Snapshot)>,
    /// The lowest cursor, also of outputs that are not configured now: they may be again, and then need the same of processors.
    lowest: Option<LogEnd>,
}

impl Remembered {
    /// `misses_cursors` where an output had a cursor that is gone.
    fn new(
        options: &DiskOptions,
        snapshots: FoundSnapshots,
        cursors: &[CursorFile],
        misses_cursors: bool,
        recovered: &Recovered,
    ) -> Self {
        let lowest = (!cursors.is_empty()).then(|| passed(cursors));
        if !options.keeps_snapshots {
            let is_recent = lowest.is_some_and(|it| snapshots.highest() >= it.sequence);
            if let Some(names) = snapshots.processors().filter(|_| is_recent) {
                options.diagnostics.warn(&format!(
                    "what processors remembered of events before this run is dropped: the pipeline no longer has {names}"
                ));
            }
            return Self {
                base: None,
                lowest: None,
            };
        }
        let is_there = !snapshots.is_empty();
        let has_begun = cursors.iter().any(|file| file.saved().sequence > 0);
        match (is_there, snapshots.is_damaged()) {
            (false, true) => options.diagnostics.warn(
                "the files of what processors remembered are damaged: they remember nothing of events before this run",
            ),
            (false, false) if has_begun => options.diagnostics.warn(
                "processors remember nothing of events before this run: there was none that does, or the files `snapshot-a` and `snapshot-b` in the queue's directory are gone",
            ),
            _ => {}
        }
        let highest = lowest.map_or(u64::MAX, |lowest| lowest.sequence);
        let base = match misses_cursors {
            false => snapshots.at_most(highest),
            true => (snapshots.earliest()).filter(|(_, base)| base.position <= highest),
        };
        if is_there && base.is_none() {
            options.diagnostics.warn(
                "what processors remembered cannot be used, because an output has not come that far: they remember nothing now",
            );
        }
        let settings = &options.settings;
        let drops = settings.max_age.is_some() || settings.when_full == WhenFull::DropOldest;
        let is_early = |(_, base): &(usize, Snapshot)| base.position < recovered.oldest_sequence;
        if !drops && base.as_ref().is_some_and(is_early) {
            options.diagnostics.warn(
                "what processors remembered is older than what the queue still has, as its newest file is damaged or gone, or they were not in the configuration meanwhile: what they make of events before this run is incomplete",
            );
        }
        Self { base, lowest }
    }

    /// Its sequence and ordinal. What processors made of older batches is not known any more.
    fn place(&self) -> (u64, u64) {
        let place = |(_, base): &(usize, Snapshot)| (base.position, base.ordinal);
        self.base.as_ref().map(place).unwrap_or_default()
    }

    /// Where processors go on, if without it that were `front`.
    fn begins_at(&self, front: u64) -> u64 {
        match (&self.base, self.lowest) {
            (Some((_, base)), _) => base.position,
            (None, Some(lowest)) => front.min(lowest.sequence),
            (None, None) => front,
        }
    }

    /// Tells the queue of it; where the next ones are written, and the states.
    fn put_into(
        self,
        state: &mut QueueState,
        options: &DiskOptions,
    ) -> (SnapshotFiles, Vec<ProcessorState>) {
        let disk_max = options.settings.max_bytes.0.min(options.share);
        let files =
            SnapshotFiles::keeping(snapshot::NAMES, self.base.as_ref().map(|(file, _)| *file));
        if let Some((_, base)) = self.base {
            state.snapshots = Some(Snapshots::going_on(&base, disk_max));
            return (files, base.states);
        }
        if options.keeps_snapshots {
            let position = state.front.sequence();
            let expected = state.lanes.expected_ordinal(Recipient::Front);
            let ordinal = self
                .lowest
                .map_or(expected, |lowest| expected.min(lowest.ordinal));
            state.snapshots = Some(Snapshots::beginning(position, ordinal, disk_max));
        }
        (files, Vec::new())
    }
}

fn say_begin(
    options: &DiskOptions,
    name: &str,
    is_new: bool,
    recovered: &Recovered,
    from_now: bool,
) {
    if recovered.is_empty() {
        return;
    }
    let why = match is_new {
        true => "is new",
        false => "has no cursor",
    };
    let place = match from_now {
        true => "the next event that arrives",
        false => "the oldest event in the queue",
    };
    options
        .diagnostics
        .warn(&format!("output {name} {why}: it starts with {place}"));
}
