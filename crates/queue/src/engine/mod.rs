//! The queue: a log with one cursor for each output.
//!
//! # Where a batch is
//! Every batch that comes in gets a sequence number. It *waits in memory* for the workers, or it is *stored* in the log on
//! disk, or both. [`Mode`] says which: without a disk everything waits in memory; with one everything is stored, and waits in
//! memory as well while there is room and nothing older has to be read back first; with overflow a batch is stored only
//! when memory is full. Whoever takes batches therefore takes what waits in memory first, then reads back what was only
//! stored, then goes on from memory.
//!
//! # Receipts
//! A receipt resolves when its batch is safe. A batch that is stored is safe when its log was synced (or written, by setting:
//! [`crate::Durability`]), see `store.rs`; one that only waits in memory, when every output has passed it, see `ticket.rs`. After
//! a write or a sync that failed nothing counts as stored: the batches are still in memory and are written again to a new
//! segment, and their receipts wait.
//!
//! Receipts of stored batches do not wait for processors: an event that a processor drops later counts as accepted.
//!
//! # Positions
//! Outputs go through the log together, at the *front*, so that a batch is processed once for all of them. An output that
//! falls behind by more than what may be kept in memory goes on *alone*: it reads the log at its own position, its batches are
//! processed again, and it joins the front when it has caught up. Its *cursor* is the lowest sequence that it has not
//! passed; cursors are saved four times a second and before a segment is removed. What an output has passed beyond its cursor is
//! saved with it, as far as it is synced and in so many runs at most ([`crate::cursor::RUNS_MAX`]): a later run reads over it.
//!
//! Where a pipeline has an ordered processor, outputs begin a run together, and the batches between are processed again for those
//! that have not passed them. An output that goes on alone takes a copy of the processor with it, as it is right before the first
//! batch that the output gets alone, and gives it up when it joins ([`Entry::parting`], [`Queue::has_parted`], [`Entry::joined`]). Where that is not possible
//! ([`DiskOptions::may_part`]), as with `head`, the others wait for one that holds more than may be kept in memory.
//!
//! An output that *failed* gets nothing more in this run ([`Queue::fail`]): its cursor stays, and nobody waits for it.
//!
//! Where such a processor remembers what it saw (`dedupe`), that is kept on disk from time to time, and a restart goes on from there: see
//! `snapshots.rs`.
//!
//! # Loss
//! Every event that was stored has an ordinal. What lies between two blocks that an output reads one after the other, or is in
//! a block whose payload is damaged, is lost, unless the log knows that it never was on disk ([`Log::lost_of`]). So that the
//! log knows this of its last blocks too, each sync is noted in the file `synced` before receipts resolve. What is lost is
//! counted and reported, and the run ends with exit code 1.
//!
//! # Repeats
//! What an input sends again after a crash, because it does not know that it was stored, is left out: see `streams.rs` of this crate.
//!
//! # Bounds
//! In memory are: what waits (`memory`), what workers and outputs hold (an output goes on alone when it holds more than
//! `memory`, and never holds more than [`AHEAD_MAX`] batches beyond its cursor), and what is not synced yet
//! ([`Queue::unsynced_max`]). An output that collects batches without holding them may be further ahead ([`Queue::let_ahead`]).
//!
//! # The state
//! It has three parts, each in a file of its own with its invariant: the *front* (`front.rs`: what waits and is held in memory,
//! and where the outputs are that go on together), the *commit* (`commit.rs`: what is on its way into the log, and where
//! what may be read back ends) and the *lanes* (`lanes.rs`, `lane.rs`: each output's position and cursor, who goes on alone, who
//! has failed, what is dropped). How far the queue is on its way to its end is one [`QueuePhase`]. What takes more than one of
//! them is in `state.rs`.
//!
//! # Waiting for room
//! Inputs that find none stand in line (`line.rs`): only the first one looks again when the queue has changed.
//!
//! # Locks
//! One lock guards the state and is never held during a disk operation, nor while a batch is serialised, compressed or
//! summed, which the input's thread does. Whoever reads back locks the reader first, then the state. Nothing here needs a
//! thread or a clock of its own: the writer's work is three steps ([`Queue::write_step`], [`Queue::sync_step`],
//! [`Queue::upkeep_step`]), which a thread calls in a loop and a simulation in any order.

mod anchor;
mod bell;
mod commit;
mod depth;
mod front;
mod lane;
mod lanes;
mod limits;
mod line;
mod open;
mod phase;
mod repeats;
mod send;
mod snapshots;
mod state;
mod store;
mod take;
#[cfg(test)]
mod tests;
mod ticket;
mod upkeep;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use component::thread::Work;
use component::{Diagnostics, Limit, OperatorMetrics};
use disk::{PagePool, Storage};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

pub use bell::Bell;
pub use depth::Depth;
pub use lanes::{Joined, LaneTurn};
pub use open::DiskOptions;
pub use phase::QueuePhase;
pub use send::{Inlet, Offer, Refused, was_dropped};
pub use state::Held;
pub use take::{Entry, Next, Taken};
pub use ticket::Ticket;

use crate::budget::DiskBudget;
use crate::log::Log;
use crate::settings::{DiskSettings, Limits, Mode};
use crate::snapshot::ProcessorState;
use crate::spans::Spans;
use crate::synced::SyncedMark;
use lane::ReaderSlot;
use line::Line;
use state::QueueState;
use upkeep::Upkeep;

/// How many batches an output may hold beyond its cursor.
pub const AHEAD_MAX: usize = 1024;

/// Nanoseconds: since 1970, or since any moment where only differences count.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A queue between inputs and outputs.
pub struct Queue {
    limits: Limits,
    disk: Option<Disk>,
    state: Mutex<QueueState>,
    /// Wakes workers: there may be a batch for them, or there will be none.
    bell: Arc<Bell>,
    /// The log is not read before this, by the steady clock, because reading failed.
    read_again: AtomicI64,
    /// Wakes the first input of each line: there may be room.
    room: Notify,
    /// Where inputs wait for room, by what they wait for.
    lines: [Line; 2],
    /// Wakes the writer.
    work: Condvar,
    /// Whether the writer is asleep, so that waking it is worth a call of the system.
    writer_sleeps: AtomicBool,
    writer: Mutex<Option<Work<()>>>,
    metrics: Arc<OperatorMetrics>,
    diagnostics: Diagnostics,
    /// The time of day, for what is written.
    clock: Clock,
    /// What never goes back, for what is due.
    steady: Clock,
}

/// The part of a queue that is on disk.
struct Disk {
    storage: Arc<dyn Storage>,
    log: Log,
    mode: Mode,
    settings: DiskSettings,
    /// Whether outputs may go on alone. Not where a processor needs every batch once, in sequence.
    may_part: bool,
    /// Whether a processor gets every batch once, in sequence.
    is_ordered: bool,
    pool: PagePool,
    front: ReaderSlot,
    upkeep: Mutex<Upkeep>,
    /// Whether some stream may not have come as far as earlier runs stored it.
    knows_streams: AtomicBool,
    /// Whether rows were left out because of what was found in the log at the start.
    found_is_used: AtomicBool,
    /// Whether that is known to be on disk.
    found_is_synced: AtomicBool,
    /// An output passed something since the cursors were written.
    is_note_due: AtomicBool,
    synced: SyncedMark,
    /// Stored events that were counted as lost, each once however many outputs miss it.
    lost: Mutex<Spans>,
    /// What processors remembered where this run goes on, until somebody takes it.
    remembered: Mutex<Vec<ProcessorState>>,
    budget: Option<Arc<DiskBudget>>,
    /// What the budget counts for this queue, in bytes.
    accounted: AtomicU64,
}

impl Queue {
    /// An empty queue in memory for so many outputs.
    pub fn memory(limits: Limits, outputs: usize, bell: Arc<Bell>) -> Arc<Self> {
        let state = QueueState::new(outputs, steady_clock());
        let clocks: [Clock; 2] = [Arc::new(wall_clock), Arc::new(steady_clock)];
        let diagnostics = Diagnostics::silent();
        Arc::new(Self::assemble(
            limits,
            None,
            state,
            Arc::default(),
            diagnostics,
            clocks,
            bell,
        ))
    }

    fn assemble(
        limits: Limits,
        disk: Option<Disk>,
        state: QueueState,
        metrics: Arc<OperatorMetrics>,
        diagnostics: Diagnostics,
        [clock, steady]: [Clock; 2],
        bell: Arc<Bell>,
    ) -> Self {
        Self {
            limits,
            disk,
            state: Mutex::new(state),
            bell,
            read_again: AtomicI64::new(i64::MIN),
            room: Notify::new(),
            lines: Default::default(),
            work: Condvar::new(),
            writer_sleeps: AtomicBool::new(false),
            writer: Mutex::new(None),
            metrics,
            diagnostics,
            clock,
            steady,
        }
    }

    /// What the queue counts.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.metrics
    }

    /// Whether anything is kept on disk.
    pub fn is_on_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether a stop waits until the queue is empty: always, where it would otherwise be lost.
    pub fn drains(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.settings.drain)
    }

    /// What the queue holds.
    pub fn held(&self) -> Held {
        self.lock().held()
    }

    /// Whether events cannot be stored for now, because the disk is full or fails.
    pub fn is_paused(&self) -> bool {
        self.lock().commit.is_paused()
    }

    /// Stored events that could not be read back because of damage.
    pub fn lost(&self) -> u64 {
        let counters = self.metrics.snapshot().named;
        counters.get(take::LOST).copied().unwrap_or(0)
    }

    /// From now on inputs do not wait long: what they have in hand is let in beyond the limits. Where the disk does not take
    /// it, it is refused, and its source keeps it.
    pub fn take_the_last(&self) {
        self.close(QueuePhase::LastCall);
    }

    /// Whether what finds no room is not to wait for it: there is none, and it is too late to wait.
    fn refuses(&self) -> bool {
        let state = self.lock();
        state.phase.is_last_call() && state.commit.is_paused()
    }

    /// Goes on to a phase, never back. What waits in memory alone and will not leave stays counted as held.
    pub fn close(&self, phase: QueuePhase) {
        let forgotten = self.lock().advance(phase);
        self.wake_all();
        drop(forgotten);
    }

    /// Nobody takes anything any more, because nobody wants it or an output gave up. A queue that stores everything goes on
    /// storing what inputs have in hand: were it refused, they would send again what was stored of it.
    pub fn stop_giving(&self) {
        let stores_all = self
            .disk
            .as_ref()
            .is_some_and(|disk| disk.mode == Mode::Everything);
        let forgotten = {
            let mut state = self.lock();
            match stores_all {
                true => state.advance(QueuePhase::Storing),
                false => state.forget(),
            }
        };
        self.wake_all();
        drop(forgotten);
    }

    /// An output has failed for good: it takes nothing more in this run, and holds up nobody. What is stored stays for its
    /// next run. It lets go of what it holds, and of what it still gets because that is in memory alone
    /// ([`Ticket::let_go`]).
    pub fn fail(&self, output: usize) {
        self.lock().lanes.fail(output, self.disk.is_some());
        self.wake_all();
    }

    /// Lets workers look again: an output has room.
    pub fn wake_workers(&self) {
        self.bell.ring();
    }

    /// What processors remembered before the first batch of this run. Nothing the second time.
    pub fn take_remembered(&self) -> Vec<ProcessorState> {
        let disk = self.disk.as_ref();
        disk.map_or_else(Vec::new, |disk| std::mem::take(&mut disk.remembered.lock()))
    }

    /// The processors of these outputs, which [`Entry::parting`] named, have parted from those of the others, so that workers find them: now
    /// the outputs may get batches alone.
    pub fn has_parted(&self, parting: &[LaneTurn]) {
        if !parting.is_empty() {
            self.lock().lanes.has_parted(parting);
            self.bell.ring();
        }
    }

    /// What processors remember after the batch for which [`Entry::asks_snapshot`] holds; none where they cannot say.
    pub fn keep_snapshot(&self, sequence: u64, states: Option<Vec<ProcessorState>>) {
        let mut state = self.lock();
        let Some(snapshots) = &mut state.snapshots else {
            return;
        };
        let is_small = match states {
            Some(states) => snapshots.take(sequence + 1, states),
            None => {
                snapshots.forgo();
                true
            }
        };
        drop(state);
        self.warn_of_size(is_small);
    }

    fn warn_of_size(&self, is_small: bool) {
        if !is_small {
            self.diagnostics
                .warn_limited(Limit::events("snapshot_size"), || {
                    "what processors remember takes more than 2 GiB and is not kept on disk: the queue grows until it is less".to_owned()
                });
        }
    }

    /// Keeps what processors remember where nothing more will be processed in this run.
    pub fn keep_last_snapshot(&self, states: impl FnOnce() -> Vec<ProcessorState>) {
        let position = {
            let state = self.lock();
            let (position, lowest) = (state.front.sequence(), state.lowest_cursor());
            let is_wanted = |it: &snapshots::Snapshots| it.wants_last(position, lowest);
            state
                .snapshots
                .as_ref()
                .is_some_and(is_wanted)
                .then_some(position)
        };
        let Some(position) = position else { return };
        let states = states();
        let mut state = self.lock();
        // What was dropped lies before it as well.
        let ordinal = state.lanes.ordinal_at(position);
        let is_small = match &mut state.snapshots {
            Some(snapshots) => snapshots.take_last(position, ordinal, states),
            None => true,
        };
        drop(state);
        self.warn_of_size(is_small);
    }

    fn wake_all(&self) {
        self.bell.ring();
        self.room.notify_waiters();
        self.work.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// Nanoseconds since the first call: a clock that never goes back.
pub(crate) fn steady_clock() -> i64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// The time of the system, in nanoseconds since 1970.
pub(crate) fn wall_clock() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
