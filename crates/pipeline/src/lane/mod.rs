//! One output at work.
//!
//! Workers offer every batch to every lane. A lane that keeps up takes it already encoded, so that rendering uses all
//! cores; one that lags keeps the batch and encodes it later, so that it holds nobody up. With a memory queue it keeps the batch
//! as processed, instead of having it processed again: what it keeps is bounded by the limits of that queue. When all lanes lag,
//! workers leave batches in the queue, and a full queue makes the inputs wait.
//!
//! What happens next depends on the output. Each lane has a thread and an async runtime of its own, and passes a batch's ticket
//! when its rows are safe.
//!
//! | module | holds |
//! | --- | --- |
//! | [`writer`] | hands the bytes of one batch after the other to the output, and flushes |
//! | [`collector`] | the same for an output that makes something of many batches |
//! | [`sender`] | makes requests of the bytes and keeps many in flight |
//! | [`feeder`] | hands the batches themselves to another pipeline |
//! | [`offers`] | what workers offer and the lane has not taken |
//! | [`request`], [`ids`], [`compress`](mod@compress), [`spare`] | rows become requests; their ids and compression; memory that is used again |
//! | [`schedule`] | which request is sent next, and when |
//! | [`concurrency`], [`flow`] | how many requests at a time; which destinations are paused |
//! | [`letters`], [`kept`], [`trouble`] | refused rows become dead letters; what is reported of failed requests |
//! | [`gauges`] | what the output is doing, as it is seen from outside |
//!
//! A lane works until it comes to its [`Ending`]. An output *fails* for good when it says so, panics, or has failed for
//! longer than retries may take. It is not called again, closing included: what it holds unflushed is not delivered, and would
//! come twice if it were written after all. Its lane then lets go of every batch, so that nobody waits for it.
//!
//! Processors below an output make a *branch* of each batch, on the worker that has it, before it is offered: it shares the
//! documents and what was written before, and what these processors write is charged to the memory budget until the output is
//! done with it. Each batch goes through them once in a run, in the sequence of the output, also where the output goes through
//! the queue alone. If rows of it become dead letters there, only the share of that output waits for them.
//!
//! The queue numbers the batches of each output: every turn must be offered exactly once.

mod collector;
mod compress;
mod concurrency;
mod feeder;
mod flow;
mod gauges;
mod ids;
mod kept;
mod letters;
mod offers;
mod request;
mod schedule;
mod sender;
mod spare;
mod trouble;
mod writer;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use batch::{Account, Batch, Bitmap, Budget, Reentry};
use component::words::without_error_numbers;
use component::{
    Activities, Activity, AnyOutput, Diagnostics, Encoded, Limit, OperatorMetrics, Output, Phase,
    Phases, Role, RowAnswer, activity,
};
use expr::Expr;
use queue::letters::DeadLetters;
use queue::{Limits, Queue, Ticket};
use tokio::sync::Notify;

use crate::findings::expression_errors;
use crate::graph::OutputNode;
use crate::intake::Intake;
use crate::reading::Reading;
use crate::retry::Panicked;
use crate::settings::RetrySettings;
use crate::stage::{
    BatchTurn, Buried, SharedStage, Stage, find_stage, is_end, make_stages,
    report_expression_errors,
};
use crate::tap::TapPoint;
pub(crate) use compress::compress;
use feeder::FeederLane;
use gauges::Gauges;
pub use gauges::{OutputState, OutputView};
use letters::LaneLetters;
use offers::{Item, Offers};
use sender::SenderLane;
use writer::WriterLane;

/// How long what is on its way is waited for when the deadline of a stop is over.
const LAST_ATTEMPT: Duration = Duration::from_millis(250);

/// One output of a pipeline.
pub struct Lane {
    common: Common,
    /// The processors below the output.
    stages: Vec<Arc<SharedStage>>,
    /// What these wrote to batches that are on their way.
    written: Arc<Account>,
    kind: Kind,
    /// It came to its end.
    has_ended: AtomicBool,
}

/// A batch as one output gets it.
pub struct Branch {
    batch: Arc<Batch>,
    /// The rows that it takes.
    rows: Bitmap,
}

/// What lanes of all kinds have.
struct Common {
    name: String,
    /// The output's number in the queue.
    index: usize,
    queue: Arc<Queue>,
    output: Arc<dyn Output>,
    condition: Option<Expr>,
    /// The conditions of the other outputs, where it takes the events for which none of them holds.
    otherwise: Vec<Expr>,
    /// What the condition reads.
    reading: Reading,
    /// What the output's templates read.
    template_reading: Reading,
    retry: RetrySettings,
    metrics: Arc<OperatorMetrics>,
    diagnostics: Diagnostics,
    activity: Activity,
    offers: Offers,
    /// Wakes the lane's thread.
    offered: Notify,
    phases: Phases,
    /// How it ended. Until then it works.
    ending: OnceLock<Ending>,
    is_finite: bool,
    /// Where refused rows go; without them they are lost.
    letters: Option<LaneLetters>,
    /// Refused rows that are lost.
    lost: AtomicU64,
    /// What it is doing at the moment.
    gauges: Gauges,
    /// Where the events that it is offered can be seen.
    tap: TapPoint,
}

/// Why a lane takes nothing more.
#[derive(Debug)]
enum Ending {
    /// The reader is gone: what is offered passes unwritten.
    Gone,
    /// It was not to wait for what fails: the queue keeps it.
    Left,
    /// The output failed for good, for this reason.
    Failed(String),
}

enum Kind {
    Writer(WriterLane),
    Sender(Box<SenderLane>),
    Feeder(FeederLane),
}

/// What the lanes of a pipeline have in common.
pub struct Shared {
    /// Number of workers: how many encoded batches may wait follows from it.
    pub workers: usize,
    /// The queue's limits.
    pub limits: Limits,
    /// What requests are charged to.
    pub budget: Arc<Budget>,
    /// The most bytes that one output's requests may take.
    pub in_flight_max: usize,
    /// How failed writes are repeated.
    pub retry: RetrySettings,
    /// Whether the run ends with its inputs, so that nobody is there to mend what is in an output's way.
    pub is_finite: bool,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// Where threads note what they work for.
    pub activities: Activities,
    /// Where batches come from.
    pub queue: Arc<Queue>,
    /// How far the pipeline is on its way to its end.
    pub phases: Phases,
    /// The pipeline's dead letters, where it has any.
    pub letters: Option<Arc<DeadLetters>>,
    /// Where pipelines take what others hand over, by their names.
    pub intakes: Arc<BTreeMap<String, Arc<Intake>>>,
    /// Whether the pipeline's events stay where they come from as long as they are not delivered, as in files.
    pub sources_wait: bool,
}

impl Lane {
    /// A lane for an output, and its processors for each worker.
    pub fn new(index: usize, node: OutputNode, shared: &Shared) -> (Arc<Self>, Vec<Vec<Stage>>) {
        let letters = shared.letters.clone();
        let letters = letters.map(|letters| LaneLetters::new(letters, &node.name));
        let reads = node.condition.as_ref().map_or(&[][..], Expr::reads);
        let diagnostics = shared.diagnostics.for_component(Role::Output, &node.name);
        let metrics = Arc::default();
        let common = Common {
            letters,
            lost: AtomicU64::new(0),
            gauges: Gauges::default(),
            tap: TapPoint::default(),
            activity: shared.activities.of(&diagnostics, &metrics),
            diagnostics,
            name: node.name,
            index,
            queue: shared.queue.clone(),
            output: node.component.output(),
            reading: Reading::new(reads.iter().cloned()),
            template_reading: Reading::new(node.component.output().reads()),
            condition: node.condition,
            otherwise: node.otherwise,
            retry: shared.retry,
            metrics,
            offers: Offers::new(2 * shared.workers),
            offered: Notify::new(),
            phases: shared.phases.clone(),
            ending: OnceLock::new(),
            is_finite: shared.is_finite,
        };
        let kind = match node.component {
            AnyOutput::Writer(writer) => {
                Kind::Writer(WriterLane::new(writer, node.ordered, shared.limits))
            }
            AnyOutput::Sender(sender) => Kind::Sender(Box::new(SenderLane::new(
                sender,
                &node.sending,
                shared.in_flight_max,
                shared.budget.account(),
            ))),
            AnyOutput::Feeder(feeder) => match shared.intakes.get(feeder.pipeline()) {
                Some(intake) => {
                    let can_wait = shared.sources_wait;
                    Kind::Feeder(FeederLane::new(intake, &common, can_wait, shared.workers))
                }
                None => unreachable!("the graph holds every pipeline that is fed"),
            },
        };
        let (per_worker, stages) = make_stages(
            node.stages,
            shared.workers,
            (&shared.diagnostics, &shared.activities),
            Some(&common.name),
        );
        let lane = Self {
            common,
            stages,
            written: Arc::new(shared.budget.account()),
            kind,
            has_ended: AtomicBool::new(false),
        };
        (Arc::new(lane), per_worker)
    }

    /// The output's name.
    pub fn name(&self) -> &str {
        &self.common.name
    }

    /// The processors below the output.
    pub fn stages(&self) -> &[Arc<SharedStage>] {
        &self.stages
    }

    /// The output's counters.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.common.metrics
    }

    /// Where the events that it is offered can be seen.
    pub fn tap(&self) -> &TapPoint {
        &self.common.tap
    }

    /// Whether it wants no more events: the reader is gone, or one of its processors lets nothing pass any more.
    pub fn is_satisfied(&self) -> bool {
        self.common.is_gone() || self.stages.iter().any(|stage| stage.is_finished())
    }

    /// Whether the output has failed for good.
    pub fn has_failed(&self) -> bool {
        self.common.has_failed()
    }

    /// Why the output has failed.
    pub fn failure(&self) -> Option<&str> {
        match self.common.ending.get() {
            Some(Ending::Failed(reason)) => Some(reason),
            _ => None,
        }
    }

    /// A sentence for every field that its condition or its templates read and that no event had, and one where the condition could
    /// not be evaluated.
    pub fn remarks(&self) -> Vec<String> {
        let Common {
            reading,
            template_reading,
            metrics,
            ..
        } = &self.common;
        let mut sentences = reading.missing();
        sentences.extend(template_reading.missing());
        sentences.dedup();
        sentences.extend(expression_errors(metrics, reading.events()));
        sentences
    }

    /// Refused events that are lost, because there are no dead letters.
    pub fn lost(&self) -> u64 {
        self.common.lost.load(Ordering::Relaxed)
    }

    /// What the output is doing.
    pub fn view(&self) -> OutputView {
        let common = &self.common;
        let view = common.gauges.view(&common.name);
        let (state, reason) = match common.ending.get() {
            None => (view.state, view.reason),
            Some(Ending::Failed(reason)) => (OutputState::Failed, Some(reason.clone())),
            Some(Ending::Gone | Ending::Left) => (OutputState::Ended, None),
        };
        OutputView {
            state,
            reason: reason.map(|text| without_error_numbers(&text)),
            ..view
        }
    }

    /// Whether another encoded batch may wait, or whatever is offered is let go.
    pub fn has_room(&self) -> bool {
        let has_room = match &self.kind {
            Kind::Feeder(feeder) => feeder.has_room(&self.common),
            Kind::Writer(_) | Kind::Sender(_) => self.has_room_for_encoded(),
        };
        !self.common.works() || has_room
    }

    fn has_room_for_encoded(&self) -> bool {
        match &self.kind {
            Kind::Writer(_) => self.common.offers.has_room(),
            Kind::Sender(sender) => sender.has_room(),
            // Nothing is rendered for it.
            Kind::Feeder(_) => false,
        }
    }

    /// Whether it takes only the events for which its `if` holds, or that of no other output.
    pub fn is_conditional(&self) -> bool {
        self.common.condition.is_some() || !self.common.otherwise.is_empty()
    }

    /// The rows of a processed batch that the output takes. To be called once for every turn.
    pub fn branch(&self, batch: &Arc<Batch>) -> Branch {
        Branch {
            batch: batch.clone(),
            rows: self.common.rows(batch),
        }
    }

    /// What the processors below the output make of its rows of a batch. Gives a batch of its own, and what becomes dead letters before
    /// that is offered. To be called for every turn where there are any.
    pub fn process(
        &self,
        stages: &mut [Stage],
        turn: u64,
        branches: Vec<Branch>,
    ) -> (Vec<Branch>, Vec<Buried>) {
        let has_rows = branches.iter().any(|branch| !branch.rows.is_empty());
        let first = match branches.first() {
            Some(branch) if self.common.works() && (has_rows || is_end(&branch.batch)) => {
                self.first_stage(&branch.batch)
            }
            _ => stages.len(),
        };
        let place = BatchTurn::plain(turn);
        self.stages[..first].iter().for_each(|it| it.skip(place));
        if first == stages.len() {
            return (branches, Vec::new());
        }
        let bases: Vec<Arc<Batch>> = branches.iter().map(|it| it.batch.clone()).collect();
        let own = branches.iter().map(|it| it.batch.branch(&it.rows));
        let mut own: Vec<Batch> = own.collect();
        let stages = stages[first..].iter_mut();
        let buried = stages.flat_map(|stage| stage.process(&mut own, place, &mut None));
        let buried = buried.collect();
        if let [only] = &mut own[..] {
            only.charge_beyond(&bases[0], &self.written);
        }
        let branch = |own: Batch| Branch {
            rows: own.alive().clone(),
            batch: Arc::new(own),
        };
        (own.into_iter().map(branch).collect(), buried)
    }

    /// The first of its processors that a batch goes through.
    fn first_stage(&self, batch: &Batch) -> usize {
        match batch.reentry().map(|at| &**at) {
            Some(Reentry::Output { .. }) => self.stages.len(),
            // Where it is not there any more the batch became dead letters again.
            Some(Reentry::OutputProcessor { index, name, .. }) => {
                find_stage(&self.stages, *index, name).unwrap_or(self.stages.len())
            }
            _ => 0,
        }
    }

    /// Offers what [`Lane::branch`] or [`Lane::process`] gave. Called once for every turn.
    pub fn offer(&self, turn: u64, branches: Vec<Branch>, ticket: &Arc<Ticket>) {
        if branches.len() > 1 {
            ticket.part(self.common.index, branches.len());
        }
        let mut next = None;
        for branch in branches.into_iter().rev() {
            let behind = next.take().map(Box::new);
            next = Some(self.item(branch, ticket, behind));
        }
        if let Some(first) = next {
            self.common.offers.insert(turn, first);
        }
        self.taken();
    }

    fn item(&self, branch: Branch, ticket: &Arc<Ticket>, behind: Option<Box<Item>>) -> Item {
        let common = &self.common;
        let Branch { batch, rows } = branch;
        common.tap.pass(&batch, &rows);
        let behind_count = behind.as_ref().map_or(0, |item| item.behind_count + 1);
        let mut item = Item {
            batch,
            rows,
            ticket: ticket.clone(),
            encoded: None,
            behind,
            behind_count,
        };
        if common.works() {
            common.note(&common.template_reading, &item.batch, &item.rows);
        }
        if !item.rows.is_empty() && common.works() && self.has_room_for_encoded() {
            let spare = common.offers.reserve();
            item.encoded = Some(common.encode(&item, spare));
        }
        item
    }

    /// Goes on without a batch that was lost, unless it was offered before that.
    pub fn skip(&self, turn: u64) {
        let place = BatchTurn::plain(turn);
        self.stages.iter().for_each(|stage| stage.skip(place));
        self.common.offers.skip(turn);
        self.taken();
    }

    fn taken(&self) {
        if let Kind::Sender(sender) = &self.kind {
            // On this worker: joining and compressing use all cores.
            sender.assemble(&self.common);
        }
        self.common.offered.notify_one();
    }

    /// No batch will be offered any more.
    pub fn close(&self) {
        self.common.offers.close();
        self.common.offered.notify_one();
    }

    /// Takes what is offered until the lane is closed and empty, then closes the output. `ended` is called when the lane
    /// wants no more.
    pub async fn run(&self, ended: &(dyn Fn() + Sync)) {
        let _entered = self.common.activity.enter();
        // What there is to say of the start does not wait for an event.
        self.common.report();
        match &self.kind {
            Kind::Writer(writer) => match writer.collector() {
                Some(output) => collector::run(writer, output, &self.common, ended).await,
                None => writer.run(&self.common, ended).await,
            },
            Kind::Sender(sender) => sender.run(&self.common, ended).await,
            Kind::Feeder(feeder) => feeder.run(&self.common, ended).await,
        }
        self.common.report();
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether it came to its end: it was not waited for beyond the deadline of a stop.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl Branch {
    /// The rows that the output takes.
    pub fn rows(&self) -> &Bitmap {
        &self.rows
    }
}

impl Common {
    fn works(&self) -> bool {
        self.ending.get().is_none()
    }

    fn is_gone(&self) -> bool {
        matches!(self.ending.get(), Some(Ending::Gone))
    }

    fn has_failed(&self) -> bool {
        matches!(self.ending.get(), Some(Ending::Failed(_)))
    }

    /// The rows that the output takes.
    fn rows(&self, batch: &Batch) -> Bitmap {
        if let Some(at) = batch.reentry()
            && let Reentry::Output { name } | Reentry::OutputProcessor { output: name, .. } = &**at
        {
            // It satisfied the condition when it came here first.
            return match **name == *self.name {
                true => batch.alive().clone(),
                false => Bitmap::none(batch.len()),
            };
        }
        let Some(condition) = &self.condition else {
            let mut rows = batch.alive().clone();
            for other in &self.otherwise {
                // Whoever has the condition reports what cannot be evaluated, and does not take it.
                let taken = other.filter(batch, &rows).holds;
                rows.and_not(&taken);
            }
            return rows;
        };
        self.note(&self.reading, batch, batch.alive());
        let filtered = condition.filter(batch, batch.alive());
        report_expression_errors(
            &self.metrics,
            &self.diagnostics,
            batch,
            filtered.errors,
            filtered.first_error,
        );
        filtered.holds
    }

    /// Looks at rows of a batch for the fields that are read.
    fn note(&self, reading: &Reading, batch: &Batch, rows: &Bitmap) {
        reading.note(batch, rows);
        reading.count(rows.count());
        for sentence in reading.missing_so_far(Instant::now()) {
            self.diagnostics.warn(&sentence);
        }
    }

    /// Renders a batch. Rows on which the output panics are refused, and the others rendered without them.
    fn encode(&self, item: &Item, mut encoded: Encoded) -> Encoded {
        let _entered = self.activity.enter();
        let begin = Instant::now();
        if let Err(panic) = self.render(&item.batch, &item.rows, &mut encoded) {
            let is_bad = |row: &usize| {
                let alone = Bitmap::from_fn(item.batch.len(), |other| other == *row);
                self.render(&item.batch, &alone, &mut Encoded::default())
                    .is_err()
            };
            let mut bad: Vec<usize> = item.rows.iter().filter(is_bad).collect();
            let mut good = item.rows.clone();
            bad.iter().for_each(|row| good.remove(*row));
            if self.render(&item.batch, &good, &mut encoded).is_err() {
                // It is no single row that it panics on.
                encoded.clear();
                bad = item.rows.iter().collect();
            }
            let reason: Arc<str> =
                format!("internal error: the output panicked while rendering: {panic}").into();
            encoded.refused.extend(bad.into_iter().map(|row| RowAnswer {
                row,
                reason: reason.clone(),
            }));
        }
        self.metrics.busy(begin.elapsed());
        encoded
    }

    /// Renders rows, unless the output panics.
    fn render(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) -> Result<(), Panicked> {
        encoded.clear();
        let render = || self.output.encode(batch, rows, encoded);
        catch_unwind(AssertUnwindSafe(render)).map_err(|panic| Panicked::new(&*panic))
    }

    /// What is done with a batch that is not written: it passes where nobody wants it, and is let go by an output that failed.
    /// One that left says nothing, so that the queue still counts the events.
    fn decline(&self, ticket: &Ticket) {
        match self.ending.get() {
            None | Some(Ending::Gone) => ticket.pass(self.index),
            Some(Ending::Failed(_)) => ticket.let_go(self.index),
            Some(Ending::Left) => {}
        }
    }

    /// Comes to an end that is no failure.
    fn end(&self, ending: Ending) {
        // Where it has ended already, that stands.
        let _ = self.ending.set(ending);
    }

    /// The output has failed for good.
    fn fail(&self, reason: &str) {
        if self.ending.set(Ending::Failed(reason.to_owned())).is_err() {
            return;
        }
        // At the end of a run its report says it.
        if !self.is_finite && self.phases.now() < Phase::Aborted {
            let consequence = match self.queue.is_on_disk() {
                true => "events that it has not accepted remain in the disk queue",
                false => {
                    "events that it has not accepted count as undelivered, and files will be read again from there"
                }
            };
            self.diagnostics.warn(&format!(
                "{reason}; it accepts no more events until Millpond is restarted: {consequence}"
            ));
        }
        self.queue.fail(self.index);
    }

    /// Fails with what a function of the output panicked with.
    fn fail_panicked(&self, place: &str, panic: &Panicked) {
        self.fail(&format!("internal error: it panicked in {place}: {panic}"));
    }

    /// Passes on what the output counted and what it has to say.
    fn report(&self) {
        activity::charge();
        if self.has_failed() {
            return;
        }
        let take = || (self.output.take_counters(), self.output.take_warnings());
        let (counters, warnings) = match catch_unwind(AssertUnwindSafe(take)) {
            Ok(taken) => taken,
            Err(panic) => return self.fail_panicked("its counters", &Panicked::new(&*panic)),
        };
        for (name, count) in counters {
            self.metrics.count(name, count);
        }
        for warning in warnings {
            self.diagnostics.pass_on(warning);
        }
    }

    /// Counts refused rows, and says the first.
    fn refuse(&self, refused: &[RowAnswer]) {
        const COUNTER: &str = "refused";
        let Some(first) = refused.first() else { return };
        let consequence = match &self.letters {
            Some(_) => {
                "it is kept as a dead letter, which `millpond dead-letters` shows and replays"
            }
            None => {
                self.lost.fetch_add(refused.len() as u64, Ordering::Relaxed);
                "it is lost, because `data_dir` is not set and dead letters cannot be kept"
            }
        };
        self.diagnostics.warn_limited(Limit::events(COUNTER), || {
            format!("an event was rejected: {}; {consequence}", first.reason)
        });
        self.metrics.count(COUNTER, refused.len() as u64);
        self.metrics.failures(refused.len());
    }

    /// Counts letters that are on disk; fails, or leaves its events to the queue, where they are not. Whether they are.
    fn stored(&self, stored: Result<u64, Arc<str>>) -> bool {
        match stored {
            Ok(letters) => {
                self.metrics.dead_letters(letters);
                return true;
            }
            Err(_) if self.phases.now() == Phase::Leaving => self.end(Ending::Left),
            Err(reason) => self.fail(&reason),
        }
        false
    }

    /// What happens while it is tried again.
    fn meanwhile(&self) -> &'static str {
        match (self.retry.give_up_after, self.queue.is_on_disk()) {
            (Some(_), _) => "",
            (None, true) => " until it works; meanwhile its events are kept in the disk queue",
            (None, false) => " until it works; inputs wait once the queue is full",
        }
    }

    /// Gives back what a batch was encoded to, and lets workers look again.
    fn give_back(&self, encoded: Option<Encoded>) {
        if self.offers.give_back(encoded) {
            self.queue.wake_workers();
        }
    }
}

/// Waits until a time; for ever where there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn next_phase(phase: Phase) -> Phase {
    match phase {
        Phase::Running => Phase::Draining,
        Phase::Draining => Phase::Leaving,
        Phase::Leaving | Phase::Aborted => Phase::Aborted,
    }
}
