//! One running pipeline: its inputs, queue, processors and outputs, from its start to its end.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use batch::{BatchBuilder, Budget, BufferPool, Encoding, HostInfo};
use component::thread::{self, Work};
use component::{
    Activities, Component, Diagnostics, FileLedger, InputContext, Ledger, OperatorMetrics, Phase,
    Phases, Progress, Sink, Stop, WrittenFiles, plural_were,
};
use queue::{Inlet, Queue, QueuePhase};

use crate::at_end::AtEnd;
use crate::graph::{InputNode, OutputNode, PipelineGraph};
use crate::intake::Intake;
use crate::lane::{Lane, Shared};
use crate::own_runtime::OwnRuntime;
use crate::pool::Pool;
use crate::remarks::remarks;
use crate::replay::{Opened, Replaying};
use crate::report::{OperatorReport, PipelineReport, Problem, Role};
use crate::senders::{CountedSink, Senders};
use crate::stage::{SharedStage, WorkerStages, make_stages};
use crate::start::RunOptions;
use crate::tap::{TapPoint, TappedSink};
use crate::view::{Showing, Viewed};
use crate::worker::{Job, Parts, Useful};

/// How long inputs and writes that were waiting may take to end when the deadline was over.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// What an output is told of that was still at work when the deadline of a stop was over.
const NOT_ENDED: &str =
    "it did not stop by the shutdown deadline, because its destination did not respond in time";

/// How long a stop waits for a disk that is full or fails.
const PAUSED_PATIENCE: Duration = Duration::from_secs(2);

/// How often the ledger is looked at, at most, for receipts that inputs have not looked at yet.
const LEDGER_LOOKS: usize = 20;

/// How long between two such looks: inputs look every 10 ms.
const LEDGER_PAUSE: Duration = Duration::from_millis(5);

/// How often a stop looks whether a disk queue has everything.
const LEAVE_CHECK: Duration = Duration::from_millis(20);

/// What the process gives a pipeline.
pub struct Resources {
    pub budget: Arc<Budget>,
    pub pool: BufferPool,
    pub workers: usize,
    pub in_flight_max: usize,
    pub useful: Arc<Useful>,
    pub intakes: Arc<BTreeMap<String, Arc<Intake>>>,
    /// Workers for it alone; none where those of the process look after it.
    pub own_pool: Option<Arc<Pool>>,
}

/// A running pipeline.
pub struct Running {
    name: String,
    tells_of_files: bool,
    /// What its input is called where other pipelines feed it.
    fed: Option<String>,
    /// What waits for its start.
    waiting: Waiting,
    inputs: Vec<RunningInput>,
    /// The inputs that may still send something.
    senders: Arc<Senders>,
    /// What looks whether dead letters are to be replayed.
    replaying: Option<Replaying>,
    writers: Vec<Work<()>>,
    /// Workers for it alone, until they have started.
    own_pool: Option<Arc<Pool>>,
    /// Queue, processors and outputs, as workers see them.
    job: Arc<Job>,
    phases: Phases,
    /// That it can be looked at, once it has started.
    showing: Option<Showing>,
}

/// What waits for its start.
struct Waiting {
    inputs: Vec<InputNode>,
    /// What outputs write that the inputs' events go to.
    written: Arc<[Arc<WrittenFiles>]>,
    pool: BufferPool,
    options: RunOptions,
}

impl Waiting {
    /// With these inputs, unless the run only replays dead letters.
    fn new(
        inputs: Vec<InputNode>,
        written: Arc<[Arc<WrittenFiles>]>,
        pool: BufferPool,
        options: &RunOptions,
    ) -> Self {
        Self {
            inputs: inputs.into_iter().filter(|_| !options.replays).collect(),
            written,
            pool,
            options: options.clone(),
        }
    }
}

type InputTask = tokio::task::JoinHandle<Result<(), component::InputError>>;

struct RunningInput {
    name: String,
    task: Option<InputTask>,
    metrics: Arc<OperatorMetrics>,
    progress: Arc<Progress>,
    ledger: Arc<Ledger>,
    /// Where the events that it sends can be seen.
    tap: Arc<TapPoint>,
}

/// Has processors go on from what an earlier run remembered.
fn recall(stages: &[Arc<SharedStage>], queue: &Queue, diagnostics: &Diagnostics) {
    let remembered = queue.take_remembered();
    stages.iter().for_each(|stage| stage.recall(&remembered));
    for gone in &remembered {
        if !stages.iter().any(|stage| stage.name() == gone.name) {
            diagnostics.warn(&format!(
                "what the processor `{}` remembered of events before this run is dropped: the pipeline has no such processor any more",
                gone.name
            ));
        }
    }
}

impl Running {
    /// A pipeline with everything but its threads and inputs at work, and the processors of each worker.
    pub fn new(
        graph: PipelineGraph,
        (queue, (phases, letters)): (Arc<Queue>, Opened),
        resources: Resources,
        options: &RunOptions,
    ) -> (Self, Vec<WorkerStages>) {
        let name = graph.name.clone();
        options.own.log().feeds(&name, graph.targets());
        let diagnostics = options.diagnostics.for_pipeline(&name);
        let shared = Shared {
            workers: resources.workers,
            limits: graph.queue.limits(),
            budget: resources.budget,
            in_flight_max: resources.in_flight_max,
            retry: options.retry(graph.retry),
            is_finite: options.finite,
            diagnostics: diagnostics.clone(),
            activities: options.activities.clone(),
            queue: queue.clone(),
            phases: phases.clone(),
            letters: letters.clone(),
            sources_wait: queue.is_on_disk() || can_all_wait(&graph),
            intakes: resources.intakes.clone(),
        };
        let whose = (&diagnostics, &options.activities);
        let (common, stages) = make_stages(graph.stages, resources.workers, whose, None);
        let mut per_worker: Vec<WorkerStages> = common.into_iter().map(Into::into).collect();
        recall(&stages, &queue, &diagnostics);
        let lanes = make_lanes(graph.outputs, &shared, &mut per_worker);
        let own = Arc::default();
        let parts = Arc::new(Parts {
            activity: options.activities.of(&diagnostics, &own),
            own,
            diagnostics,
            queue,
            stages,
            tap: TapPoint::default(),
            lanes,
            phases: phases.clone(),
            is_finite: options.finite,
            useful: resources.useful,
            letters,
            intake: resources.intakes.get(&name).cloned(),
            is_retired: AtomicBool::new(false),
            is_watched: graph.is_watched,
            is_part: graph.is_part,
            unclaimed: AtomicU64::new(0),
            at_end: AtEnd::default(),
        });
        let running = Self {
            name,
            tells_of_files: options.ledger,
            fed: graph.fed,
            waiting: Waiting::new(graph.inputs, graph.written, resources.pool, options),
            inputs: Vec::new(),
            senders: Arc::default(),
            replaying: None,
            writers: Vec::new(),
            own_pool: resources.own_pool,
            job: Job::new(parts),
            phases,
            showing: None,
        };
        (running, per_worker)
    }

    /// Starts the threads of outputs, and of its own workers.
    ///
    /// # Errors
    /// The system refuses one; those before it wait for work.
    pub fn start_threads(&mut self) -> io::Result<()> {
        if let Some(pool) = self.own_pool.take() {
            // Its workers end with the pipeline; one that is stuck in a processor is not waited for.
            pool.close();
            pool.start(&mut Vec::new())?;
        }
        for lane in &self.job.parts.lanes {
            let (lane, parts) = (lane.clone(), self.job.parts.clone());
            // Of its own, so that a request passes through no other thread on its way to the network and back.
            let runtime = OwnRuntime::new()?;
            let run = move || runtime.block_on(lane.run(&|| parts.check()));
            self.writers.push(thread::start("output", run)?);
        }
        Ok(())
    }

    /// Starts the inputs.
    pub fn start_inputs(&mut self) {
        let once = self.waiting.options.finite || self.waiting.options.replays;
        self.replaying = Replaying::start(&self.job.parts, &self.name, once);
        let waiting = &mut self.waiting;
        let options = &waiting.options;
        let registry = options.registry.as_ref();
        let data_dir = registry.map(|registry| Arc::from(registry.directory()));
        for node in std::mem::take(&mut waiting.inputs) {
            let tap: Arc<TapPoint> = Arc::default();
            let inlet = Inlet {
                queue: self.job.parts.queue.clone(),
                can_wait: node.component.can_wait(),
                repeats_in_order: node.component.repeats_in_order(),
            };
            let sink = TappedSink {
                sink: inlet,
                point: tap.clone(),
            };
            let context = InputContext {
                sink: Arc::new(CountedSink::new(sink, &self.senders)),
                pool: waiting.pool.clone(),
                host: options.host.clone(),
                stop: self.phases.clone().into(),
                metrics: Arc::default(),
                progress: Arc::default(),
                diagnostics: options
                    .diagnostics
                    .for_pipeline(&self.name)
                    .for_component(Role::Input, &node.name),
                scope: format!("{}/{}", self.name, node.name).into(),
                registry: options.registry.clone(),
                data_dir: data_dir.clone(),
                ledger: Arc::default(),
                written: waiting.written.clone(),
                own: options.own.clone(),
            };
            self.inputs.push(RunningInput::start(
                node,
                context,
                tap,
                &options.activities,
                &self.senders,
            ));
        }
        let view = self.waiting.options.view.clone();
        self.showing = Some(view.show(self.viewed()));
    }

    /// What is looked at of it from outside.
    fn viewed(&self) -> Viewed {
        Viewed {
            name: self.name.clone(),
            started: SystemTime::now(),
            operators: self.operators(),
            progress: self.inputs.iter().map(|it| it.progress.clone()).collect(),
            ledgers: self.inputs.iter().map(|it| it.ledger.clone()).collect(),
            is_fed: self.fed.is_some(),
            starts_again: !self.waiting.options.finite,
            taps: self.input_taps(),
            parts: self.job.parts.clone(),
        }
    }

    /// Where the events that come in can be seen.
    fn input_taps(&self) -> Vec<(String, Arc<TapPoint>)> {
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|input| (input.name.clone(), input.tap.clone()));
        let fed = self.fed.iter().zip(&self.job.parts.intake);
        let fed = fed.map(|(name, intake)| (name.clone(), intake.tap().clone()));
        inputs.chain(fed).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What workers have of it.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Ends it before anything was read.
    pub fn call_off(self) {
        let parts = &self.job.parts;
        parts.lanes.iter().for_each(|lane| lane.close());
        let writers = self.writers.into_iter();
        writers.for_each(|writer| drop(writer.join()));
        parts.queue.shut();
        if let Some(letters) = &parts.letters {
            letters.close();
        }
    }

    /// Has workers and outputs take no more of it.
    pub fn abort(&self) {
        self.job.parts.queue.close(QueuePhase::Aborted);
        // A backlog of an earlier run may be on its way to the outputs that have their threads.
        self.phases.advance(Phase::Aborted);
    }

    /// Waits until the inputs send nothing more, for everything accepted to be delivered, and for the inputs to end.
    pub async fn finish(mut self, outer: Stop, deadline: Duration) -> PipelineReport {
        let (queue, phases) = (self.job.parts.queue.clone(), self.phases.clone());
        let intake = self.job.parts.intake.clone();
        let stopping = stop_by(outer.clone(), phases, queue.clone(), intake, deadline);
        let stopping = tokio::spawn(stopping);
        let tasks = self.inputs.iter_mut();
        let tasks = tasks.filter_map(|input| Some((input.name.clone(), input.task.take()?)));
        let inputs = inputs_ended(tasks.collect(), self.phases.clone(), queue.clone());
        tokio::pin!(inputs);
        let ended = tokio::select! {
            problems = &mut inputs => Some(problems),
            () = self.senders.ended() => None,
        };
        self.feeders_ended(&outer).await;
        if let Some(replaying) = &mut self.replaying {
            if self.waiting.options.finite || self.waiting.options.replays {
                replaying.done(&self.phases).await;
            }
            replaying.stop();
        }
        let all_read = Instant::now();
        let host = self.waiting.options.host.clone();
        say_end(self.job.parts.clone(), host, &outer).await;
        self.deliver(&outer).await;
        let after_reading = all_read.elapsed();
        let problems = match ended {
            Some(problems) => problems,
            None => inputs.await,
        };
        stopping.abort();
        if self.job.has_ended() {
            self.job.parts.keep_last_snapshot();
        }
        let shut = queue.clone();
        match thread::start("shut", move || shut.shut()) {
            // A panic there has been said; what was not safe by then counts as not delivered.
            Ok(shutting) => drop(shutting.ended().await),
            // No thread to be had: then it is done here, and who else has work on the runtime waits.
            Err(_) => queue.shut(),
        }
        if let Some(replaying) = self.replaying.take() {
            replaying.ended().await;
        }
        if let Some(letters) = &self.job.parts.letters {
            letters.close();
            letters.ended().await;
        }
        self.job.parts.retire();
        self.settle_ledger().await;
        PipelineReport {
            after_reading,
            ..self.report(problems)
        }
    }

    /// Waits until no other pipeline hands anything over any more, or this one takes no more.
    async fn feeders_ended(&mut self, outer: &Stop) {
        let Some(intake) = &self.job.parts.intake else {
            return;
        };
        tokio::select! {
            () = intake.ended() => {}
            () = intake.closed() => {}
        }
        if outer.is_stopped() {
            self.phases.advance(Phase::Draining);
        }
    }

    /// Waits until inputs have looked at the last receipts, which they do every few milliseconds: what was delivered is to
    /// count as acknowledged. What was not delivered stays in flight.
    async fn settle_ledger(&mut self) {
        let is_in_flight = |file: &FileLedger| file.in_flight_events > 0;
        for _ in 0..LEDGER_LOOKS {
            if !self.ledger().iter().any(is_in_flight) {
                return;
            }
            tokio::time::sleep(LEDGER_PAUSE).await;
        }
    }

    /// Waits until everything has left that is to leave before the end: all of it, or after a stop only what a disk queue
    /// does not keep.
    async fn deliver(&mut self, outer: &Stop) {
        let queue = self.job.parts.queue.clone();
        let mut may_leave = !queue.drains();
        queue.close(QueuePhase::Draining);
        let draining = drain(&self.job, std::mem::take(&mut self.writers));
        tokio::pin!(draining);
        loop {
            tokio::select! {
                () = &mut draining => return,
                () = outer.stopped(), if may_leave => {
                    may_leave = false;
                    queue.close(QueuePhase::Leaving);
                    tokio::spawn(leave_when_safe(queue.clone(), self.phases.clone()));
                }
                () = self.phases.reached(Phase::Aborted) => {
                    queue.close(QueuePhase::Aborted);
                    // A last chance for writes that were waiting for their next attempt.
                    let _ = tokio::time::timeout(LAST_CHANCE, draining).await;
                    return;
                }
            }
        }
    }

    fn ledger(&self) -> Vec<FileLedger> {
        let inputs = self.inputs.iter().filter(|_| self.tells_of_files);
        inputs.flat_map(|input| input.ledger.files()).collect()
    }

    /// The ledger at the end. What was read ahead and is not wanted any more, as after `head`, was never taken by anybody: it
    /// counts as not read, and a later run reads it.
    fn last_ledger(&self, undelivered: u64) -> Vec<FileLedger> {
        let mut files = self.ledger();
        if self.job.parts.is_satisfied() && undelivered == 0 {
            files.iter_mut().for_each(FileLedger::forget_in_flight);
        }
        files
    }

    /// Its inputs, its queue on disk, its processors and outputs, in the order of the flow.
    fn operators(&self) -> Vec<(Component, Arc<OperatorMetrics>)> {
        let parts = &self.job.parts;
        let operator = |role, name: &str, metrics: &Arc<OperatorMetrics>| {
            (Component::new(role, name), metrics.clone())
        };
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|input| operator(Role::Input, &input.name, &input.metrics));
        let fed = self.fed.iter().zip(&parts.intake);
        let fed = fed.map(|(name, intake)| operator(Role::Input, name, intake.metrics()));
        let queue = parts.queue.is_on_disk();
        let queue = queue.then(|| operator(Role::Queue, "disk", parts.queue.metrics()));
        let stage =
            |name: &str, stage: &SharedStage| operator(Role::Processor, name, stage.metrics());
        let stages = parts.stages.iter().map(|it| stage(it.name(), it));
        let lanes = parts.lanes.iter().flat_map(|lane| {
            let name = |it: &SharedStage| format!("{}/{}", lane.name(), it.name());
            let below = lane.stages().iter().map(move |it| stage(&name(it), it));
            let output = operator(Role::Output, lane.name(), lane.metrics());
            below.chain([output])
        });
        inputs
            .chain(fed)
            .chain(queue)
            .chain(stages)
            .chain(lanes)
            .collect()
    }

    fn report(&self, mut problems: Vec<Problem>) -> PipelineReport {
        for lane in &self.job.parts.lanes {
            let failure = lane.failure().map(str::to_owned);
            let failure = failure.or_else(|| (!lane.has_ended()).then(|| NOT_ENDED.to_owned()));
            problems.extend(failure.map(|reason| Problem::new(Role::Output, lane.name(), reason)));
        }
        let held = self.job.parts.queue.held();
        let lost = self.job.parts.queue.lost();
        if lost > 0 {
            let text = format!(
                "{} lost because its files are damaged",
                plural_were(lost, "event")
            );
            problems.push(Problem::new(Role::Queue, "disk", text));
        }
        let undelivered = held.unsafe_events + self.job.parts.at_end.undelivered();
        let operators = self.operators().into_iter();
        let operators = operators.map(|(component, metrics)| OperatorReport {
            role: component.role,
            name: component.name.to_string(),
            counts: metrics.snapshot(),
            metric: metrics.metric(),
        });
        PipelineReport {
            name: self.name.clone(),
            is_fed: self.fed.is_some(),
            own: self.job.parts.own.snapshot(),
            operators: operators.collect(),
            after_reading: Duration::ZERO,
            files: self.last_ledger(undelivered),
            problems,
            remarks: remarks(&self.job.parts),
            unclaimed: self.job.parts.unclaimed.load(Ordering::Relaxed),
            undelivered,
            refused: self.job.parts.lanes.iter().map(|lane| lane.lost()).sum(),
            letters_dropped: self.job.parts.letters.as_ref().map_or(0, |letters| {
                let counts = letters.counts();
                counts.dropped + counts.expired
            }),
            queued: held.stored_events,
        }
    }
}

/// The lanes of a pipeline. The processors below its outputs are put with those of each worker.
fn make_lanes(
    outputs: Vec<OutputNode>,
    shared: &Shared,
    per_worker: &mut [WorkerStages],
) -> Vec<Arc<Lane>> {
    let lane = |(index, node)| {
        let (lane, stages) = Lane::new(index, node, shared);
        for (worker, stages) in per_worker.iter_mut().zip(stages) {
            worker.of_outputs.push(stages);
        }
        lane
    };
    outputs.into_iter().enumerate().map(lane).collect()
}

impl RunningInput {
    fn start(
        node: InputNode,
        ctx: InputContext,
        tap: Arc<TapPoint>,
        activities: &Activities,
        senders: &Arc<Senders>,
    ) -> Self {
        let activity = activities.of(&ctx.diagnostics, &ctx.metrics);
        let (diagnostics, stop) = (ctx.diagnostics.clone(), ctx.stop.clone());
        let others = senders.clone();
        Self {
            name: node.name,
            metrics: ctx.metrics.clone(),
            progress: ctx.progress.clone(),
            ledger: ctx.ledger.clone(),
            tap,
            task: Some(tokio::spawn(activity.carry(async move {
                let ended = node.component.run(ctx).await;
                // The report at the end may be weeks away.
                if let Err(error) = &ended
                    && others.is_any()
                    && !stop.is_stopped()
                {
                    for problem in &error.problems {
                        diagnostics.warn(&format!("{problem}; the input reads nothing more"));
                    }
                }
                ended
            }))),
        }
    }
}

/// Whether all inputs of a pipeline keep what was not taken.
fn can_all_wait(graph: &PipelineGraph) -> bool {
    let mut inputs = graph.inputs.iter();
    graph.fed.is_none() && inputs.all(|input| input.component.can_wait())
}

/// Sends an empty batch behind all others, where processors have something to tell at the end. Where a disk queue keeps what they remember, a run
/// that is stopped is not the end.
async fn say_end(parts: Arc<Parts>, host: Arc<HostInfo>, outer: &Stop) {
    if !parts.makes_at_end() || (parts.queue.is_on_disk() && outer.is_stopped()) {
        return;
    }
    let received = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let received = received.map_or(0, |time| time.as_nanos() as i64);
    let end = BatchBuilder::new(Encoding::Json, &host, received, false).finish();
    let inlet = Inlet {
        queue: parts.queue.clone(),
        can_wait: false,
        repeats_in_order: false,
    };
    tokio::select! {
        // A queue that takes nothing more gives nothing more either.
        sent = inlet.send(end) => {
            if let Some(receipt) = sent.ok().filter(|_| !parts.queue.is_on_disk()) {
                parts.at_end.sent(receipt);
            }
        }
        () = parts.phases.reached(Phase::Aborted) => {}
    }
}

/// When the run is asked to stop, has the inputs end, and aborts at the deadline. A pipeline that others feed takes what they still
/// have.
async fn stop_by(
    outer: Stop,
    phases: Phases,
    queue: Arc<Queue>,
    intake: Option<Arc<Intake>>,
    deadline: Duration,
) {
    outer.stopped().await;
    if intake.is_none() {
        phases.advance(Phase::Draining);
    }
    if !queue.drains() && intake.is_none_or(|intake| !intake.is_drained_into()) {
        queue.take_the_last();
    }
    let patience = PAUSED_PATIENCE.min(deadline);
    tokio::time::sleep(patience).await;
    // A disk that takes nothing is not waited for: the sources keep what it did not take.
    if !queue.is_paused() {
        tokio::time::sleep(deadline - patience).await;
    }
    phases.advance(Phase::Aborted);
}

/// Lets lanes go that wait for what fails, once the queue has everything on disk.
async fn leave_when_safe(queue: Arc<Queue>, phases: Phases) {
    while queue.held().unsafe_events > 0 {
        tokio::time::sleep(LEAVE_CHECK).await;
    }
    phases.advance(Phase::Leaving);
}

/// Waits for inputs to end; what went wrong.
async fn inputs_ended(
    tasks: Vec<(String, InputTask)>,
    phases: Phases,
    queue: Arc<Queue>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, mut task) in tasks {
        let ended = tokio::select! {
            ended = &mut task => Some(ended),
            () = phases.reached(Phase::Aborted) => {
                // An input that waits for room, or for receipts, learns that there will be none.
                queue.close(QueuePhase::Aborted);
                tokio::time::timeout(LAST_CHANCE, task).await.ok()
            }
        };
        problems.extend(match ended {
            Some(ended) => input_problems(&name, ended),
            None => vec![Problem::new(
                Role::Input,
                &name,
                "did not stop in time".to_owned(),
            )],
        });
    }
    problems
}

fn input_problems(
    name: &str,
    ended: Result<Result<(), component::InputError>, tokio::task::JoinError>,
) -> Vec<Problem> {
    let problem = |text| Problem::new(Role::Input, name, text);
    match ended {
        Ok(Ok(())) => Vec::new(),
        Ok(Err(error)) => error.problems.into_iter().map(problem).collect(),
        Err(error) => vec![problem(format!("internal error: {error}"))],
    }
}

/// Waits until workers and outputs are done with a pipeline.
async fn drain(job: &Job, writers: Vec<Work<()>>) {
    job.ended().await;
    job.parts.lanes.iter().for_each(|lane| lane.close());
    for writer in writers {
        // One that panicked has said so; what it held counts as not delivered.
        let _ = writer.ended().await;
    }
}
