//! One processor at work: its condition, its failure policy and its counters.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use batch::{Batch, Bitmap, Failures, Reentry};
use component::{
    Activities, Activity, Diagnostics, Limit, OperatorMetrics, Order, Processor, Role,
};
use expr::Expr;
use parking_lot::{Condvar, Mutex, MutexGuard};
use queue::letters::Dead;
use queue::{Entry, Joined, LaneTurn, ProcessorState};

use crate::findings::{EXPRESSION_ERRORS, Findings};
use crate::graph::StageNode;
use crate::reading::Reading;
use crate::settings::{DEAD_LETTER, OnFailure};
use crate::tap::TapPoint;

/// What all workers share of a stage.
pub struct SharedStage {
    name: String,
    is_named: bool,
    kind: &'static str,
    /// Of its settings.
    fingerprint: u64,
    sees_sealed: bool,
    condition: Option<Expr>,
    /// What is worth a word at the end.
    findings: Findings,
    on_failure: OnFailure,
    /// Where its dead letters go on.
    at: Arc<Reentry>,
    /// The reason under which events dropped by the failure policy are counted.
    failed: Arc<str>,
    metrics: Arc<OperatorMetrics>,
    diagnostics: Diagnostics,
    activity: Activity,
    /// Where the events around it can be seen.
    tap: TapPoint,
    /// Whether its processor makes events at the end of a run.
    makes_at_end: bool,
    /// The one instance of an ordered processor.
    ordered: Option<Turns>,
}

/// An ordered processor: workers take turns in the batches' sequence.
struct Turns {
    state: Mutex<Turn>,
    moved: Condvar,
    finished: AtomicBool,
    /// Those of outputs that go on alone.
    apart: Mutex<Apart>,
}

/// The processors of outputs that go on alone.
#[derive(Default)]
struct Apart {
    /// By output and the number of the first batch that it got alone.
    turns: BTreeMap<(usize, u64), Arc<Turns>>,
    /// Outputs that have joined the others while a worker had a batch for them.
    joined: Vec<Joined>,
}

impl Apart {
    /// Who has the turn of a batch.
    fn find(&self, LaneTurn { lane, turn }: LaneTurn) -> Option<Arc<Turns>> {
        let mut own = self.turns.range((lane, 0)..=(lane, turn));
        own.next_back().map(|(_, turns)| turns.clone())
    }

    /// Forgets those whose output has joined, when no worker has a batch for them.
    fn forget(&mut self, joined: &[Joined]) {
        self.joined.extend(joined);
        for one in std::mem::take(&mut self.joined) {
            let key = (one.lane, one.first);
            let is_over = |turns: &Arc<Turns>| {
                let turn = turns.state.try_lock();
                turn.is_some_and(|turn| turn.next >= one.end)
            };
            match self.turns.get(&key) {
                Some(turns) if is_over(turns) => drop(self.turns.remove(&key)),
                Some(_) => self.joined.push(one),
                None => {}
            }
        }
    }
}

struct Turn {
    next: u64,
    processor: Box<dyn Processor>,
}

/// A batch's place among those that an ordered processor gets.
#[derive(Debug, Clone, Copy)]
pub enum BatchTurn<'a> {
    /// One for all outputs that go on together.
    Together {
        /// Its number.
        turn: u64,
        /// Outputs for which a copy of the processor goes on from right before it, with the number of the first batch of each.
        parting: &'a [LaneTurn],
        /// Outputs that need their copies no more.
        joined: &'a [Joined],
    },
    /// One for an output that goes on alone.
    Alone(LaneTurn),
}

impl<'a> BatchTurn<'a> {
    /// The place of a batch of the pipeline. None where an output that was alone has failed, and nobody gets it.
    pub fn of(entry: &'a Entry) -> Option<Self> {
        match entry.turn {
            Some(turn) => Some(Self::Together {
                turn,
                parting: &entry.parting,
                joined: &entry.joined,
            }),
            None => entry.lanes.first().copied().map(Self::Alone),
        }
    }

    /// The place of a batch before which no output parts or joins, as below an output.
    pub fn plain(turn: u64) -> Self {
        Self::Together {
            turn,
            parting: &[],
            joined: &[],
        }
    }

    /// Whether its rows have not been processed before.
    fn is_first(self) -> bool {
        matches!(self, Self::Together { .. })
    }
}

/// What the processors of a pipeline remember after one batch: none where nobody asks.
pub type Remembered = Option<Vec<ProcessorState>>;

/// What a processor made of a batch.
struct Handled {
    /// What becomes dead letters.
    buried: Option<Buried>,
    /// Events that follow right behind the batch.
    derived: Vec<Batch>,
}

/// Rows of a batch that a processor could not handle, on their way to the dead letters.
pub struct Buried {
    /// Whether the batch was derived from the one that the queue gave.
    pub is_derived: bool,
    /// These rows, as they were before the processor.
    pub batch: Batch,
    /// Why.
    pub dead: Vec<Dead>,
    /// Which rows of the whole batch they were.
    pub rows: Vec<usize>,
    /// Where they go on.
    pub at: Arc<Reentry>,
    /// Where they are counted.
    pub metrics: Arc<OperatorMetrics>,
}

/// A worker's own part of a stage.
pub struct Stage {
    shared: Arc<SharedStage>,
    /// The worker's instance, unless the processor is ordered.
    own: Option<Box<dyn Processor>>,
}

/// One worker's stages of a pipeline.
pub struct WorkerStages {
    /// Those that every event goes through.
    pub common: Vec<Stage>,
    /// Those below each output.
    pub of_outputs: Vec<Vec<Stage>>,
}

impl From<Vec<Stage>> for WorkerStages {
    fn from(common: Vec<Stage>) -> Self {
        Self {
            common,
            of_outputs: Vec::new(),
        }
    }
}

/// Makes every worker's stages, of a pipeline or below one of its outputs. `made[w][s]` is stage `s` of worker `w`.
pub fn make_stages(
    nodes: Vec<StageNode>,
    workers: usize,
    (diagnostics, activities): (&Diagnostics, &Activities),
    output: Option<&str>,
) -> (Vec<Vec<Stage>>, Vec<Arc<SharedStage>>) {
    let mut made: Vec<Vec<Stage>> = (0..workers).map(|_| Vec::new()).collect();
    let mut all = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        let mut instances: Vec<Box<dyn Processor>> = Vec::new();
        let condition = node.condition.as_ref().map_or(&[][..], Expr::reads);
        let mut findings = Findings::new(
            Reading::new(condition.iter().cloned()),
            Reading::new(node.component.reads()),
        );
        findings.would_bury = node.would_bury;
        let makes_at_end = node.component.makes_at_end();
        let metric = node.component.metric();
        let mut ordered = None;
        match node.order {
            Order::Stateless => {
                instances.extend((1..workers).map(|_| node.component.fork()));
                instances.push(node.component);
            }
            Order::Ordered => ordered = Some(Turns::new(node.component)),
        }
        let place_name = if node.is_named { &node.name } else { node.kind };
        let name = match output {
            None => node.name.clone(),
            Some(output) => format!("{output}/{}", node.name),
        };
        let diagnostics = diagnostics.for_component(Role::Processor, &name);
        let metrics = Arc::<OperatorMetrics>::default();
        if let Some(metric) = metric {
            metrics.makes(metric);
        }
        let shared = Arc::new(SharedStage {
            is_named: node.is_named,
            kind: node.kind,
            fingerprint: node.fingerprint,
            sees_sealed: node.sees_sealed,
            condition: node.condition,
            on_failure: node.on_failure,
            at: Arc::new(place(output, index, place_name)),
            failed: match node.on_failure {
                OnFailure::DeadLetter => DEAD_LETTER.into(),
                _ => format!("{place_name} failed").into(),
            },
            activity: activities.of(&diagnostics, &metrics),
            metrics,
            diagnostics,
            tap: TapPoint::default(),
            name: node.name,
            findings,
            makes_at_end,
            ordered,
        });
        for stages in &mut made {
            stages.push(Stage {
                shared: shared.clone(),
                own: instances.pop(),
            });
        }
        all.push(shared);
    }
    (made, all)
}

/// Where the dead letters of a processor go on.
fn place(output: Option<&str>, index: usize, name: &str) -> Reentry {
    let (index, name) = (index as u32, name.into());
    match output {
        None => Reentry::Processor { index, name },
        Some(output) => Reentry::OutputProcessor {
            output: output.into(),
            index,
            name,
        },
    }
}

/// The place of a processor that had this one when a dead letter was written. Where others were put before it or taken away,
/// it is known by its name, as long as it is the only one of that name.
pub fn find_stage(stages: &[Arc<SharedStage>], index: u32, name: &str) -> Option<usize> {
    let place = index as usize;
    // A processor that was given a name since is known by its place as long as it has not moved.
    let is_there = |stage: &Arc<SharedStage>| stage.is_called(name) || stage.kind() == name;
    if stages.get(place).is_some_and(is_there) {
        return Some(place);
    }
    let mut named = (0..stages.len()).filter(|place| stages[*place].is_called(name));
    match (named.next(), named.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

impl SharedStage {
    /// The name in counters and messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The component's name.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether dead letters call it so: by the name that it was given, or without one by the component's.
    pub fn is_called(&self, name: &str) -> bool {
        if self.is_named {
            self.name == name
        } else {
            self.kind == name
        }
    }

    /// How messages name the processor, and a sentence for every field that it read and that no event had, and for events
    /// that failed.
    pub fn remarks(&self) -> (&str, Vec<String>) {
        let sentences = self
            .findings
            .at_end(self.kind, self.on_failure, &self.metrics);
        (&self.name, sentences)
    }

    /// The stage's counters.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.metrics
    }

    /// Where the events around it can be seen.
    pub fn tap(&self) -> &TapPoint {
        &self.tap
    }

    /// Whether what it cannot handle becomes a dead letter.
    pub fn buries(&self) -> bool {
        self.on_failure == OnFailure::DeadLetter
    }

    /// Whether its processor makes events at the end of a run.
    pub fn makes_at_end(&self) -> bool {
        self.makes_at_end
    }

    /// Whether nothing gets past it any more, so that the inputs may end. With a condition, other events still do.
    pub fn is_finished(&self) -> bool {
        let finished = |turns: &Turns| turns.finished.load(Ordering::SeqCst);
        self.condition.is_none() && self.ordered.as_ref().is_some_and(finished)
    }

    /// Gives up the turn of a batch that never comes, unless it has come before.
    pub fn skip(&self, place: BatchTurn<'_>) {
        self.pass_over(place, &mut None);
    }

    /// As [`SharedStage::skip`], for a batch that does not go through this processor.
    pub fn pass_over(&self, place: BatchTurn<'_>, remembered: &mut Remembered) {
        let Some(turns) = &self.ordered else { return };
        turns.with(place, |turns, number| {
            let mut turn = turns.wait(number);
            if turn.next == number {
                turns.part_and_join(&turn, place);
                turn.next += 1;
                turns.moved.notify_all();
                self.remember(&*turn.processor, remembered);
            }
        });
    }

    /// Adds what its processor remembers, where somebody asks.
    fn remember(&self, processor: &dyn Processor, remembered: &mut Remembered) {
        if let Some(states) = remembered.as_mut().filter(|_| processor.remembers()) {
            states.push(ProcessorState {
                name: self.name.clone(),
                fingerprint: self.fingerprint,
                bytes: processor.save(),
            });
        }
    }

    /// Adds what its processor remembers at the end, when no worker has a batch.
    pub fn remember_last(&self, remembered: &mut Remembered) {
        if let Some(turns) = &self.ordered {
            self.remember(&*turns.state.lock().processor, remembered);
        }
    }

    /// Has its processor go on from what an earlier run remembered, of which `saved` is all there is of the pipeline.
    pub fn recall(&self, saved: &[ProcessorState]) {
        let Some(turns) = &self.ordered else { return };
        let processor = &mut turns.state.lock().processor;
        if saved.is_empty() || !processor.remembers() {
            return;
        }
        let is_own = |state: &&ProcessorState| {
            state.name == self.name && state.fingerprint == self.fingerprint
        };
        let reason = match saved
            .iter()
            .find(is_own)
            .map(|own| processor.restore(&own.bytes))
        {
            Some(Ok(())) => return,
            Some(Err(reason)) => reason,
            None => "it is new, or its settings have changed".to_owned(),
        };
        self.diagnostics.warn(&format!(
            "it remembers nothing of events before this run: {reason}"
        ));
    }

    /// The rows the processor is to handle.
    fn rows(&self, batch: &Batch, is_first: bool) -> Bitmap {
        let mut rows = batch.alive().clone();
        if !self.sees_sealed {
            rows.and_not(batch.sealed());
        }
        let rows = match &self.condition {
            None => rows,
            Some(condition) => {
                self.findings.note_condition(batch, &rows, is_first);
                let filtered = condition.filter(batch, &rows);
                if is_first {
                    self.count_errors(batch, filtered.errors, filtered.first_error);
                }
                filtered.holds
            }
        };
        self.findings.note_processor(batch, &rows, is_first);
        rows
    }

    fn count_errors(&self, batch: &Batch, errors: usize, first: Option<(usize, String)>) {
        report_expression_errors(&self.metrics, &self.diagnostics, batch, errors, first);
    }

    /// Lets a processor handle batches, one after the other, and puts behind each what it derives. Gives what becomes dead letters. Counts and
    /// warns unless they were handled before.
    fn handle_all(
        &self,
        processor: &mut dyn Processor,
        batches: &mut Vec<Batch>,
        is_first: bool,
    ) -> Vec<Buried> {
        let mut all = Vec::new();
        let mut index = 0;
        while let Some(batch) = batches.get_mut(index) {
            let Handled { buried, derived } = self.handle(processor, batch, is_first);
            all.extend(buried.map(|buried| Buried {
                is_derived: index > 0,
                ..buried
            }));
            let after = index + 1;
            index = after + derived.len();
            batches.splice(after..after, derived);
        }
        all
    }

    /// Has a processor tell at the end of a run what it still has to, behind the batches that others made at the end.
    fn end(&self, processor: &mut dyn Processor, batches: &mut Vec<Batch>) {
        let _entered = self.activity.enter();
        let end = || {
            processor.end(&batches[0]);
            processor.take_derived()
        };
        let derived = catch_unwind(AssertUnwindSafe(end)).unwrap_or_else(|_| {
            self.diagnostics
                .warn("internal error; what it was to tell at the end is lost");
            Vec::new()
        });
        self.count_derived(&derived);
        batches.extend(derived);
    }

    /// Counts events that were derived, and shows them.
    fn count_derived(&self, derived: &[Batch]) {
        for batch in derived {
            self.metrics.events(0, batch.alive().count());
            self.tap.pass(batch, batch.alive());
        }
    }

    /// Lets a processor handle a batch and applies the failure policy.
    fn handle(&self, processor: &mut dyn Processor, batch: &mut Batch, is_first: bool) -> Handled {
        let _entered = self.activity.enter();
        let begin = Instant::now();
        let before = batch.alive().count();
        let rows = self.rows(batch, is_first);
        let picked = match is_first {
            true => self.tap.before(batch, &rows),
            false => None,
        };
        let failures = if rows.is_empty() {
            Failures::none()
        } else {
            self.guarded(processor, batch, &rows)
        };
        let derived = processor.take_derived();
        // A second pass finds the letters of the first one there.
        let is_buried = is_first && self.buries() && !failures.is_empty();
        let buried = is_buried.then(|| self.bury(batch, &failures));
        self.settle(batch, &failures);
        self.metrics.busy(begin.elapsed());
        if let Some(picked) = picked {
            picked.after(batch, &failures);
        }
        if !is_first {
            processor.take_counters();
            processor.take_warnings();
            return Handled {
                buried: None,
                derived,
            };
        }
        if !rows.is_empty() {
            processor.measure();
        }
        self.count_derived(&derived);
        self.metrics.failures(failures.rows().len());
        self.findings.failed(&failures);
        for sentence in self.findings.so_far(begin, self.kind, self.on_failure) {
            self.diagnostics.warn(&sentence);
        }
        for (name, count) in processor.take_counters() {
            self.metrics.count(name, count);
        }
        for warning in processor.take_warnings() {
            self.diagnostics.pass_on(warning);
        }
        let after = batch.alive().count();
        self.metrics.events(before, after);
        self.metrics.dropped(before - after);
        Handled { buried, derived }
    }

    /// The rows that failed, as they were before.
    fn bury(&self, batch: &Batch, failures: &Failures) -> Buried {
        let limit = Limit::events("failed");
        if let Some(first) = failures.rows().first() {
            self.diagnostics.warn_limited(limit, || {
                let reason = &first.reason;
                format!("an event has become a dead letter: {reason}; `millpond dead-letters` shows and replays it")
            });
        }
        let rows: Vec<usize> = failures.rows().iter().map(|failure| failure.row).collect();
        let dead = failures.rows().iter().enumerate();
        let dead = dead.map(|(row, failure)| Dead {
            row,
            reason: failure.reason.clone(),
            tag: Some(failure.tag.clone()),
        });
        Buried {
            is_derived: false,
            batch: batch.pick(&rows),
            dead: dead.collect(),
            rows,
            at: self.at.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// Runs the processor; a panic in it fails the rows it was given and stops nothing else.
    fn guarded(&self, processor: &mut dyn Processor, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let attempt = catch_unwind(AssertUnwindSafe(|| processor.process(batch, rows)));
        attempt.unwrap_or_else(|_| {
            let limit = Limit::events("internal_error");
            self.diagnostics.warn_limited(limit, || {
                "internal error; the events of this batch are published as failed".to_owned()
            });
            let (tag, reason) = (
                "_internal_error".into(),
                format!("{}: internal error", self.name).into(),
            );
            let mut failures = Failures::none();
            rows.iter()
                .for_each(|row| failures.push(row, &tag, &reason));
            failures
        })
    }

    fn settle(&self, batch: &mut Batch, failures: &Failures) {
        if failures.is_empty() {
            return;
        }
        match self.on_failure {
            OnFailure::Publish => batch.mark_failed(failures, true),
            OnFailure::Continue => batch.mark_failed(failures, false),
            OnFailure::Drop | OnFailure::DeadLetter => {
                let mut rows = Bitmap::none(batch.len());
                failures
                    .rows()
                    .iter()
                    .for_each(|failure| rows.insert(failure.row));
                batch.drop_rows(&rows, &self.failed);
            }
        }
    }
}

/// Whether the batch is the one behind all others of a run, which has no events: processors tell then what they still have to.
pub fn is_end(batch: &Batch) -> bool {
    batch.is_empty()
}

/// Counts rows whose condition could not be evaluated and warns of one.
pub(crate) fn report_expression_errors(
    metrics: &OperatorMetrics,
    diagnostics: &Diagnostics,
    batch: &Batch,
    errors: usize,
    first: Option<(usize, String)>,
) {
    if errors == 0 {
        return;
    }
    metrics.count(EXPRESSION_ERRORS, errors as u64);
    if let Some((row, message)) = first {
        diagnostics.warn_limited(Limit::events(EXPRESSION_ERRORS), || {
            let id = batch.origin().shown_id(row);
            format!("a condition could not be evaluated, so that it counts as false: {message}; event {id}")
        });
    }
}

impl Stage {
    /// Handles the batch of this turn and what was derived from it; one without a turn was handled before, for other outputs.
    /// Gives what becomes dead letters.
    pub fn process(
        &mut self,
        batches: &mut Vec<Batch>,
        place: BatchTurn<'_>,
        remembered: &mut Remembered,
    ) -> Vec<Buried> {
        match (&mut self.own, &self.shared.ordered) {
            (Some(processor), _) => {
                self.shared
                    .handle_all(processor.as_mut(), batches, place.is_first())
            }
            (None, Some(turns)) => turns.process(&self.shared, batches, place, remembered),
            (None, None) => unreachable!("a stage has its own instance or takes turns"),
        }
    }
}

impl Turns {
    fn new(processor: Box<dyn Processor>) -> Self {
        Self {
            state: Mutex::new(Turn { next: 0, processor }),
            moved: Condvar::new(),
            finished: AtomicBool::new(false),
            apart: Mutex::default(),
        }
    }

    /// Finds whose turn it is: these turns, or those of an output that goes on alone; with its number. None where that output has joined
    /// the others since.
    fn with<R>(&self, place: BatchTurn<'_>, act: impl FnOnce(&Self, u64) -> R) -> Option<R> {
        match place {
            BatchTurn::Together { turn, .. } => Some(act(self, turn)),
            BatchTurn::Alone(place) => {
                let own = self.apart.lock().find(place);
                own.map(|turns| act(&turns, place.turn))
            }
        }
    }

    /// Copies the processor for outputs that go on alone from now on, and forgets the copies of those that have joined.
    fn part_and_join(&self, turn: &Turn, place: BatchTurn<'_>) {
        let BatchTurn::Together {
            parting, joined, ..
        } = place
        else {
            return;
        };
        self.apart.lock().forget(joined);
        for LaneTurn { lane, turn: first } in parting {
            let own = Self::new(turn.processor.fork());
            own.state.lock().next = *first;
            let key = (*lane, *first);
            self.apart.lock().turns.insert(key, Arc::new(own));
        }
    }

    /// Waits until the batches before this one have had their turns.
    fn wait(&self, number: u64) -> MutexGuard<'_, Turn> {
        let mut turn = self.state.lock();
        while turn.next < number {
            self.moved.wait(&mut turn);
        }
        turn
    }

    fn process(
        &self,
        shared: &SharedStage,
        batches: &mut Vec<Batch>,
        place: BatchTurn<'_>,
        remembered: &mut Remembered,
    ) -> Vec<Buried> {
        self.with(place, |turns, number| {
            let waiting = shared.metrics.waiting();
            let mut turn = turns.wait(number);
            drop(waiting);
            turns.part_and_join(&turn, place);
            // The turn passes on before the work, which the lock still keeps alone, so that it passes on after a panic too.
            turn.next += 1;
            turns.moved.notify_all();
            let is_first = place.is_first();
            let buried = shared.handle_all(turn.processor.as_mut(), batches, is_first);
            if batches.first().is_some_and(is_end) {
                shared.end(turn.processor.as_mut(), batches);
            }
            if turn.processor.is_finished() {
                turns.finished.store(true, Ordering::SeqCst);
            }
            shared.remember(&*turn.processor, remembered);
            buried
        })
        .expect("an output keeps its processors until it has its last batch of them")
    }
}
