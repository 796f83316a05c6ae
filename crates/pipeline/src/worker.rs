//! What workers do with a batch of a pipeline: they process it and offer it to the lanes.
//!
//! Processors below an output run on the same worker, behind those of the pipeline, so that rendering and they use all cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use batch::{Batch, Bitmap, Failures, Reentry};
use component::{Activity, Diagnostics, OperatorMetrics, Phase, Phases, Stop};
use parking_lot::Mutex;
use queue::letters::{Dead, DeadLetters, Draft};
use queue::{Entry, LaneTurn, Queue, QueuePhase, Taken};
use tokio::sync::watch;

use crate::account::delivery;
use crate::at_end::AtEnd;
use crate::intake::Intake;
use crate::lane::{Branch, Lane};
use crate::settings::DEAD_LETTER;
use crate::stage::{
    BatchTurn, Buried, Remembered, SharedStage, Stage, WorkerStages, find_stage, is_end,
};
use crate::tap::TapPoint;

/// How many pipelines of a service may still deliver something. When none does, it has nothing left to do and stops.
pub struct Useful {
    pipelines: AtomicUsize,
    stop: Stop,
    diagnostics: Diagnostics,
}

impl Useful {
    /// No pipelines yet; `stop` stops the service.
    pub fn new(stop: &Stop, diagnostics: &Diagnostics) -> Arc<Self> {
        Arc::new(Self {
            pipelines: AtomicUsize::new(0),
            stop: stop.clone(),
            diagnostics: diagnostics.clone(),
        })
    }

    /// There are so many more.
    pub fn add(&self, pipelines: usize) {
        self.pipelines.fetch_add(pipelines, Ordering::SeqCst);
    }

    /// There is one less; whether it was the last, so that the service stops.
    pub fn remove(&self) -> bool {
        let is_last = self.pipelines.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last {
            self.stop.stop();
        }
        is_last
    }
}

/// The parts of a running pipeline that its threads share.
pub struct Parts {
    pub diagnostics: Diagnostics,
    /// The pipeline's own work, which is that of no component.
    pub activity: Activity,
    /// What is counted of it.
    pub own: Arc<OperatorMetrics>,
    pub queue: Arc<Queue>,
    pub stages: Vec<Arc<SharedStage>>,
    /// Where the events around all of these can be seen.
    pub tap: TapPoint,
    pub lanes: Vec<Arc<Lane>>,
    pub phases: Phases,
    /// Whether the run ends with its inputs, and when one output has failed.
    pub is_finite: bool,
    pub useful: Arc<Useful>,
    /// The pipeline's dead letters, where it has any.
    pub letters: Option<Arc<DeadLetters>>,
    /// Where it takes what other pipelines hand over, where these feed it.
    pub intake: Option<Arc<Intake>>,
    /// Whether the pipeline does not count as useful any more.
    pub is_retired: AtomicBool,
    /// Whether the last output only shows what the others get.
    pub is_watched: bool,
    /// Whether its events are for other outputs as well, which are elsewhere.
    pub is_part: bool,
    /// Events that no output took, because the `if` of none was true.
    pub unclaimed: AtomicU64,
    pub at_end: AtEnd,
}

impl Parts {
    /// Ends the inputs when nobody wants more: an ordered processor is finished, or every reader is gone. So does an output
    /// that has failed, where the run is finite; in a service the other outputs go on until none is left.
    pub fn check(&self) {
        if self.is_satisfied() {
            if let Some(intake) = &self.intake {
                intake.satisfy();
            }
            self.phases.advance(Phase::Draining);
            // What was read goes on to the end where processors still have something to tell there.
            return match self.makes_at_end() {
                true => (),
                false => self.queue.stop_giving(),
            };
        }
        let mut lanes = self.lanes.iter();
        let has_failed = match self.is_finite {
            true => lanes.any(|lane| lane.has_failed()),
            false => lanes.all(|lane| lane.has_failed() || lane.is_satisfied()),
        };
        if has_failed {
            self.end_failed();
        }
    }

    /// Whether some processor makes events at the end of a run.
    pub fn makes_at_end(&self) -> bool {
        let below = self.lanes.iter().flat_map(|lane| lane.stages());
        let mut all = self.stages.iter().chain(below);
        all.any(|stage| stage.makes_at_end())
    }

    /// Whether nobody wants more: an ordered processor is finished, or every reader is gone.
    pub fn is_satisfied(&self) -> bool {
        let finished = self.stages.iter().any(|stage| stage.is_finished());
        finished || self.lanes.iter().all(|lane| lane.is_satisfied())
    }

    fn end_failed(&self) {
        match (self.queue.is_on_disk(), self.is_finite) {
            (false, _) => {
                self.phases.advance(Phase::Draining);
                // Other outputs still get what would be lost otherwise.
                self.queue.close(QueuePhase::Draining);
            }
            (true, true) => {
                self.phases.advance(Phase::Draining);
                self.queue.stop_giving();
            }
            // The queue takes what comes in for the next run, as long as the service runs.
            (true, false) => {}
        }
        if !self.is_finite && self.retire() {
            self.useful
                .diagnostics
                .warn("no output accepts events any more: Millpond stops");
        }
    }

    /// The pipeline delivers nothing any more. Whether it was the last one, so that the service stops.
    pub fn retire(&self) -> bool {
        if self.is_retired.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.useful.remove()
    }

    /// Keeps what processors remember after a batch, where the queue asks for it; none where a part of it is missing.
    fn keep_snapshot(&self, entry: &Entry, remembered: Remembered) {
        if entry.asks_snapshot {
            self.queue.keep_snapshot(entry.sequence, remembered);
        }
    }

    /// Has the processors pass a turn over that has no batch, and keeps what they remember then.
    fn remember_without_batch(&self, sequence: u64, place: BatchTurn<'_>) {
        let pass_over = || {
            let mut remembered = Some(Vec::new());
            let stages = self.stages.iter();
            stages.for_each(|stage| stage.pass_over(place, &mut remembered));
            remembered
        };
        let remembered = catch_unwind(AssertUnwindSafe(pass_over)).unwrap_or_default();
        if remembered.is_none() {
            self.stages.iter().for_each(|stage| stage.skip(place));
        }
        self.queue.keep_snapshot(sequence, remembered);
    }

    /// Keeps what processors remember at the end, when no worker has a batch.
    pub fn keep_last_snapshot(&self) {
        self.queue.keep_last_snapshot(|| {
            let mut remembered = Some(Vec::new());
            let stages = self.stages.iter();
            stages.for_each(|stage| stage.remember_last(&mut remembered));
            remembered.unwrap_or_default()
        });
    }

    /// Goes on without a batch.
    fn skip(&self, entry: &Entry) {
        if let Some(place) = BatchTurn::of(entry) {
            self.stages.iter().for_each(|stage| stage.skip(place));
        }
        self.queue.has_parted(&entry.parting);
        for place in &entry.lanes {
            self.lanes[place.lane].skip(place.turn);
        }
    }
}

/// One pipeline as the pool sees it.
pub struct Job {
    pub parts: Arc<Parts>,
    /// Workers that look after it at this moment, and batches that wait for their dead letters.
    at_work: AtomicUsize,
    /// Its queue gives nothing more.
    pub is_over: AtomicBool,
    /// Time that workers have spent on it, in nanoseconds.
    pub used: AtomicU64,
    has_ended: watch::Sender<bool>,
}

impl Job {
    pub fn new(parts: Arc<Parts>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            at_work: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            used: AtomicU64::new(0),
            has_ended: watch::Sender::new(false),
        })
    }

    /// Waits until the queue gives nothing more and no worker has anything of it in hand.
    pub async fn ended(&self) {
        // The sender is alive as long as this is.
        let _ = self.has_ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Whether no worker has anything of it.
    pub fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    pub fn begin(&self) -> AtWork<'_> {
        self.at_work.fetch_add(1, Ordering::SeqCst);
        AtWork(self)
    }

    fn leave(&self) {
        let is_last = self.at_work.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.is_over.load(Ordering::SeqCst) {
            self.has_ended.send_replace(true);
        }
    }
}

/// That a worker looks after a pipeline.
pub struct AtWork<'a>(&'a Job);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Job {
    pub fn handle(self: &Arc<Self>, stages: &mut WorkerStages, taken: Taken) {
        let _entered = self.parts.activity.enter();
        match taken {
            Taken::Batch(entry, batch) => self.guarded(stages, entry, *batch),
            Taken::Lost(entry) => {
                if let Some(place) = BatchTurn::of(&entry).filter(|_| entry.asks_snapshot) {
                    self.parts.remember_without_batch(entry.sequence, place);
                }
                // Turns that were taken stay so.
                self.parts.skip(&entry);
                for place in &entry.lanes {
                    entry.ticket.pass(place.lane);
                }
            }
            Taken::AtRest { sequence, turn } => {
                let place = BatchTurn::plain(turn);
                self.parts.remember_without_batch(sequence, place);
            }
        }
    }

    /// Handles a batch; a panic loses it and stops nothing else. Its ticket then goes without being passed, so that its
    /// events count as not delivered.
    fn guarded(self: &Arc<Self>, stages: &mut WorkerStages, mut entry: Entry, batch: Batch) {
        let parts = &self.parts;
        let process = || {
            let mut remembered = entry.asks_snapshot.then(Vec::new);
            let (processed, drafts) = parts.process(stages, &entry, batch, &mut remembered);
            parts.queue.has_parted(&entry.parting);
            parts.keep_snapshot(&entry, remembered);
            if !drafts.is_empty() {
                return Some((processed, drafts));
            }
            match processed.branches.iter().all(|way| way.drafts.is_empty()) {
                true => parts.offer(&entry, processed),
                false => self.part(&mut entry, processed),
            }
            None
        };
        match catch_unwind(AssertUnwindSafe(process)) {
            Ok(None) => {}
            // Nothing may pass before all of them are on disk.
            Ok(Some((mut processed, mut drafts))) => {
                for way in &mut processed.branches {
                    drafts.append(&mut way.drafts);
                }
                Burial::begin(self, entry, processed, drafts);
            }
            Err(_) => {
                parts.keep_snapshot(&entry, None);
                parts.lose(&entry, "internal error");
            }
        }
    }

    /// Offers a batch to those outputs whose processors made no dead letters of it, and to each of the others when these are on
    /// disk. The entry is that of the first from then on.
    fn part(self: &Arc<Self>, entry: &mut Entry, processed: Processed) {
        let Processed { mut branches } = processed;
        let is_buried = |way: &mut OwnWay| !way.drafts.is_empty();
        let buried: Vec<OwnWay> = branches.extract_if(.., is_buried).collect();
        let is_left = |place: &LaneTurn| !buried.iter().any(|way| way.place == *place);
        entry.lanes.retain(is_left);
        self.parts.offer(entry, Processed { branches });
        for mut way in buried {
            let own = Entry {
                sequence: entry.sequence,
                lanes: vec![way.place],
                turn: entry.turn,
                parting: Vec::new(),
                joined: Vec::new(),
                asks_snapshot: false,
                ticket: entry.ticket.clone(),
            };
            let drafts = std::mem::take(&mut way.drafts);
            let processed = Processed {
                branches: vec![way],
            };
            Burial::begin(self, own, processed, drafts);
        }
    }
}

/// What becomes dead letters, with the counters of the processor that failed.
type Drafts = Vec<(Draft, Arc<OperatorMetrics>)>;

/// A batch as processors left it, on its way to the lanes.
struct Processed {
    /// One for each of the entry's lanes, in their order.
    branches: Vec<OwnWay>,
}

/// What one output gets of a batch.
struct OwnWay {
    place: LaneTurn,
    /// Of the batch, and of what was derived from it.
    branches: Vec<Branch>,
    /// To be on disk before the output gets it.
    drafts: Drafts,
}

impl Parts {
    /// What processors make of a batch, and what becomes dead letters. The batch may be offered once these are on disk.
    fn process(
        &self,
        stages: &mut WorkerStages,
        entry: &Entry,
        mut batch: Batch,
        remembered: &mut Remembered,
    ) -> (Processed, Drafts) {
        let mut drafts = Vec::new();
        let Some(place) = BatchTurn::of(entry) else {
            let branches = Vec::new();
            return (Processed { branches }, drafts);
        };
        let first = self.first_stage(entry, &mut batch, &mut drafts);
        let mut batches = vec![batch];
        let picked = match entry.turn {
            Some(_) => self.tap.before(&batches[0], batches[0].alive()),
            None => None,
        };
        let is_whole = first == 0 && self.letters.is_some();
        let buries = is_whole && self.stages.iter().any(|stage| stage.buries());
        let original = buries.then(|| batches[0].snapshot());
        for (index, stage) in stages.common.iter_mut().enumerate() {
            if index < first {
                self.stages[index].pass_over(place, remembered);
                continue;
            }
            for buried in stage.process(&mut batches, place, remembered) {
                let original = original.as_ref().filter(|_| !buried.is_derived);
                drafts.push(draft(entry, buried, original));
            }
        }
        if entry.lanes.is_empty() {
            // All outputs have passed it in an earlier run, in which its dead letters were kept.
            drafts.clear();
        }
        if let Some(picked) = picked {
            picked.after(&batches[0], &Failures::none());
        }
        if entry.turn.is_some() {
            for derived in &batches[1..] {
                self.tap.pass(derived, derived.alive());
            }
        }
        if is_end(&batches[0]) {
            let told = batches.iter().map(|batch| batch.alive().count());
            self.at_end.told(told.sum());
        }
        let batches: Vec<Arc<Batch>> = batches.into_iter().map(Arc::new).collect();
        let (ways, unclaimed) = self.divide(entry, &batches);
        if entry.ticket.is_awaited() {
            let finished: Vec<&str> = self
                .stages
                .iter()
                .filter(|stage| stage.is_finished())
                .map(|stage| stage.kind())
                .collect();
            let unclaimed = unclaimed.as_ref();
            // Derived events are no part of what the input sent.
            let delivery = delivery(&batches[0], &finished, unclaimed);
            entry.ticket.account(delivery);
        }
        let branches = self.branch(&mut stages.of_outputs, entry, ways);
        (Processed { branches }, drafts)
    }

    /// What each output of an entry takes of a batch, the first, and of what was derived from it; which rows of the first nobody takes.
    fn divide(&self, entry: &Entry, batches: &[Arc<Batch>]) -> (Vec<Vec<Branch>>, Option<Bitmap>) {
        let mut unclaimed = None;
        let mut ways: Vec<Vec<Branch>> = entry.lanes.iter().map(|_| Vec::new()).collect();
        for (index, batch) in batches.iter().enumerate() {
            let branch = |place: &LaneTurn| self.lanes[place.lane].branch(batch);
            let branches: Vec<Branch> = entry.lanes.iter().map(branch).collect();
            let of_batch = self.unclaimed_rows(batch, &branches);
            if index == 0 {
                unclaimed = of_batch;
            }
            // A branch of the first one there is always, so that the turn is taken.
            for (way, branch) in ways.iter_mut().zip(branches) {
                if index == 0 || !branch.rows().is_empty() {
                    way.push(branch);
                }
            }
        }
        (ways, unclaimed)
    }

    /// Counts and gives the rows that no output takes, where each of them has a condition and all of them get this batch. Those of
    /// the outputs that go through a disk queue on their own are not known together.
    fn unclaimed_rows(&self, batch: &Batch, branches: &[Branch]) -> Option<Bitmap> {
        let own = &self.lanes[..self.lanes.len() - usize::from(self.is_watched)];
        let are_all = !self.is_part && branches.len() == self.lanes.len();
        if !are_all || !own.iter().all(|lane| lane.is_conditional()) {
            return None;
        }
        let mut rows = batch.alive().clone();
        for branch in &branches[..own.len()] {
            rows.and_not(branch.rows());
        }
        let count = rows.count();
        self.unclaimed.fetch_add(count as u64, Ordering::Relaxed);
        (count > 0).then_some(rows)
    }

    /// What the processors below outputs make of a batch.
    fn branch(
        &self,
        of_outputs: &mut [Vec<Stage>],
        entry: &Entry,
        branches: Vec<Vec<Branch>>,
    ) -> Vec<OwnWay> {
        let mut ways = Vec::with_capacity(branches.len());
        for (&place, branches) in entry.lanes.iter().zip(branches) {
            let (lane, stages) = (&self.lanes[place.lane], &mut of_outputs[place.lane]);
            let mut drafts = Vec::new();
            if stages.is_empty() {
                ways.push(OwnWay {
                    place,
                    branches,
                    drafts,
                });
                continue;
            }
            let (branches, buried) = lane.process(stages, place.turn, branches);
            for buried in buried {
                entry.ticket.bury(&buried.batch, 0..buried.batch.len());
                drafts.push(draft(entry, buried, None));
            }
            ways.push(OwnWay {
                place,
                branches,
                drafts,
            });
        }
        ways
    }

    fn offer(&self, entry: &Entry, processed: Processed) {
        for way in processed.branches {
            let lane = &self.lanes[way.place.lane];
            lane.offer(way.place.turn, way.branches, &entry.ticket);
        }
        self.check();
    }

    /// Goes on without a batch, whose events then count as not delivered.
    fn lose(&self, entry: &Entry, reason: &str) {
        self.diagnostics.warn(&format!(
            "{reason}; a batch is lost and counted as undelivered"
        ));
        self.skip(entry);
    }

    /// The processor at which a batch goes on. One whose place is not in the configuration any more becomes dead letters again.
    fn first_stage(&self, entry: &Entry, batch: &mut Batch, drafts: &mut Drafts) -> usize {
        let Some(at) = batch.reentry().cloned() else {
            return 0;
        };
        let reason = match self.place_of(&at) {
            Ok(place) => return place,
            Err(reason) => reason,
        };
        let rows: Vec<usize> = batch.alive().iter().collect();
        let reason: Arc<str> = reason.to_string().into();
        let dead = |row| Dead {
            row,
            reason: reason.clone(),
            tag: None,
        };
        let draft = Draft {
            batch: Arc::new(batch.snapshot()),
            original: None,
            at,
            sequence: entry.sequence,
            rows: rows.iter().map(|row| dead(*row)).collect(),
        };
        drafts.push((draft, Arc::default()));
        let all = batch.alive().clone();
        batch.drop_rows(&all, &DEAD_LETTER.into());
        self.stages.len()
    }

    /// The number of the first processor for what goes on there.
    ///
    /// # Errors
    /// It is not in the configuration any more.
    pub fn place_of(&self, at: &Reentry) -> Result<usize, Gone> {
        let gone = || Gone(at.clone());
        match at {
            Reentry::Start => Ok(0),
            Reentry::Output { name } => {
                let is_known = self.lanes.iter().any(|lane| lane.name() == &**name);
                is_known.then_some(self.stages.len()).ok_or_else(gone)
            }
            Reentry::Processor { index, name } => {
                find_stage(&self.stages, *index, name).ok_or_else(gone)
            }
            Reentry::OutputProcessor {
                output,
                index,
                name,
            } => {
                let mut lanes = self.lanes.iter();
                let lane = lanes.find(|lane| lane.name() == &**output);
                let place = lane.and_then(|lane| find_stage(lane.stages(), *index, name));
                place.map(|_| self.stages.len()).ok_or_else(gone)
            }
        }
    }
}

/// Where dead letters went on is not in the configuration any more.
#[derive(Debug, thiserror::Error)]
#[error("{0} is no longer in the configuration")]
pub struct Gone(Reentry);

/// What a processor could not handle, as it is written down.
fn draft(entry: &Entry, buried: Buried, original: Option<&Batch>) -> (Draft, Arc<OperatorMetrics>) {
    let draft = Draft {
        original: original.map(|original| Arc::new(original.pick(&buried.rows))),
        batch: Arc::new(buried.batch),
        at: buried.at,
        sequence: entry.sequence,
        rows: buried.dead,
    };
    (draft, buried.metrics)
}

/// A batch that is offered when its dead letters are on disk. The pipeline waits for it at its end.
struct Burial {
    job: Arc<Job>,
    entry: Entry,
    processed: Mutex<Option<Processed>>,
    left: AtomicUsize,
    failure: OnceLock<Arc<str>>,
}

impl Burial {
    fn begin(job: &Arc<Job>, entry: Entry, processed: Processed, drafts: Drafts) {
        let Some(letters) = &job.parts.letters else {
            return job.parts.lose(&entry, "dead letters need a `data_dir`");
        };
        job.at_work.fetch_add(1, Ordering::SeqCst);
        let burial = Arc::new(Self {
            job: job.clone(),
            entry,
            processed: Mutex::new(Some(processed)),
            left: drafts.len().into(),
            failure: OnceLock::new(),
        });
        for (draft, metrics) in drafts {
            let burial = burial.clone();
            let done = move |written: Result<u64, Arc<str>>| {
                match written {
                    Ok(letters) => metrics.dead_letters(letters),
                    // The first reason stands.
                    Err(reason) => drop(burial.failure.set(reason)),
                }
                if burial.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    burial.end();
                }
            };
            letters.put(draft, Box::new(done));
        }
    }

    fn end(&self) {
        let parts = &self.job.parts;
        match self.failure.get() {
            Some(reason) => parts.lose(&self.entry, reason),
            None => {
                let taken = self.processed.lock().take();
                let offer = || taken.map(|processed| parts.offer(&self.entry, processed));
                if catch_unwind(AssertUnwindSafe(offer)).is_err() {
                    parts.lose(&self.entry, "internal error");
                }
            }
        }
    }
}

impl Drop for Burial {
    fn drop(&mut self) {
        self.job.leave();
    }
}
