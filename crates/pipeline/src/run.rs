//! A run: threads, the end of the inputs, and stopping.
//!
//! Inputs and the signal handler live on one runtime; workers and lanes are threads of their own, because their work is
//! processing and blocking writes. A run ends when its inputs have ended and every output has taken everything, when
//! nobody wants more (an ordered processor is finished, or the reader is gone), or at the deadline after a stop.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batch::{Batch, Budget, BufferPool, HostInfo};
use component::{
    Delivery, Diagnostics, DroppedRows, FileLedger, InputContext, Ledger, OperatorMetrics, Order,
    Progress, Stop, StreamDelivery,
};
use config::Period;
use queue::{
    Closing, DiskBudget, DiskOptions, Entry, Inlet, LaneTurn, Mode, Queue, QueueError, Taken,
};
use registry::Registry;

use crate::graph::{Graph, InputNode, PipelineGraph, StageNode};
use crate::lane::{Lane, Shared};
use crate::queue_settings::QueueSettings;
use crate::report::{OperatorReport, PipelineReport, Report, Role, grouped};
use crate::settings::ProcessSettings;
use crate::stage::{SharedStage, Stage, make_stages};

/// Size of the buffers that inputs read into.
pub const BUFFER_SIZE: usize = 256 << 10;

/// How retries of a one-line pipeline end when the configuration does not say.
const GIVE_UP_AFTER: Period = Period::from_secs(30);

/// How long inputs and writes that were waiting may take to end when the deadline was over.
const LAST_CHANCE: Duration = Duration::from_millis(500);

/// How long a stop waits for a disk that is full or fails.
const PAUSED_PATIENCE: Duration = Duration::from_secs(2);

/// How often a stop looks whether a disk queue has everything.
const LEAVE_CHECK: Duration = Duration::from_millis(20);

/// How much workers give way to other threads: who reads and who writes is what a run waits for in the end, and workers
/// have the queue between. Reading gzip on two cores takes 9 % less time so, for the same CPU.
const WORKER_NICENESS: i32 = 5;

/// What a run gets beside its configuration.
#[derive(Clone)]
pub struct RunOptions {
    /// Facts of this machine.
    pub host: Arc<HostInfo>,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// Whether the run is over when its inputs end: retries are then given up after a while.
    pub finite: bool,
    /// Asks the run to stop: inputs end, what was accepted is delivered.
    pub stop: Stop,
    /// What inputs remember across runs; none where nothing is remembered.
    pub registry: Option<Arc<Registry>>,
    /// Whether the report tells of every file.
    pub ledger: bool,
}

/// A run in progress.
pub struct Run {
    pipelines: Vec<Running>,
    process: ProcessSettings,
    options: RunOptions,
    workers: usize,
    begin: Instant,
}

struct Running {
    name: String,
    tells_of_files: bool,
    inputs: Vec<RunningInput>,
    queue: Arc<Queue>,
    stages: Vec<Arc<SharedStage>>,
    lanes: Vec<Arc<Lane>>,
    workers: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<()>>,
    stop: Stop,
    abort: Stop,
    leave: Stop,
}

struct RunningInput {
    name: String,
    task: Option<tokio::task::JoinHandle<Result<(), component::InputError>>>,
    metrics: Arc<OperatorMetrics>,
    progress: Arc<Progress>,
    ledger: Arc<Ledger>,
}

impl Run {
    /// Starts every pipeline. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// A disk queue cannot be used; then nothing was started.
    pub fn start(graph: Graph, options: RunOptions) -> Result<Self, QueueError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = if graph.process.workers == 0 {
            cores
        } else {
            graph.process.workers
        };
        let memory = graph.process.memory.bytes();
        let budget = Budget::new(memory);
        // Half of the budget is shared out, the other half is for whoever needs it.
        let share = memory / 2 / graph.pipelines.len().max(1);
        let queues = open_queues(&graph, &options)?;
        let pipelines = graph
            .pipelines
            .into_iter()
            .zip(queues)
            .map(|(pipeline, queue)| {
                Running::start(
                    pipeline,
                    queue,
                    &budget.pool(share, BUFFER_SIZE),
                    workers,
                    &options,
                )
            })
            .collect();
        Ok(Self {
            pipelines,
            process: graph.process,
            options,
            workers,
            begin: Instant::now(),
        })
    }

    /// How far the finite inputs are: bytes read, bytes in all.
    pub fn progress(&self) -> Arc<dyn Fn() -> (u64, u64) + Send + Sync> {
        let inputs: Vec<_> = self
            .pipelines
            .iter()
            .flat_map(|run| &run.inputs)
            .map(|input| input.progress.clone())
            .collect();
        Arc::new(move || {
            inputs
                .iter()
                .map(|input| input.get())
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        })
    }

    /// Events that inputs have sent so far.
    pub fn events(&self) -> Arc<dyn Fn() -> u64 + Send + Sync> {
        let inputs: Vec<_> = self
            .pipelines
            .iter()
            .flat_map(|run| &run.inputs)
            .map(|input| input.metrics.clone())
            .collect();
        Arc::new(move || {
            inputs
                .iter()
                .map(|metrics| metrics.snapshot().events_out)
                .sum()
        })
    }

    /// Waits for the end of every pipeline and says what they did.
    pub async fn finish(mut self) -> Report {
        let deadline = self.process.shutdown_deadline.0;
        let mut reports = Vec::new();
        let endings: Vec<_> = self
            .pipelines
            .drain(..)
            .map(|running| running.finish(self.options.stop.clone(), deadline))
            .collect();
        // Pipelines end side by side: each is driven by a task of its own.
        let tasks: Vec<_> = endings.into_iter().map(tokio::spawn).collect();
        for task in tasks {
            match task.await {
                Ok(report) => reports.push(report),
                Err(error) => self
                    .options
                    .diagnostics
                    .warn(&format!("internal error: {error}")),
            }
        }
        Report {
            pipelines: reports,
            wall: self.begin.elapsed(),
            workers: self.workers,
        }
    }
}

impl Running {
    fn start(
        graph: PipelineGraph,
        queue: Arc<Queue>,
        pool: &BufferPool,
        workers: usize,
        options: &RunOptions,
    ) -> Self {
        let (stop, abort, leave) = (Stop::default(), Stop::default(), Stop::default());
        let mut retry = graph.retry;
        if options.finite && retry.give_up_after.is_none() {
            retry.give_up_after = Some(GIVE_UP_AFTER);
        }
        let shared = Shared {
            workers,
            limits: graph.queue.limits(),
            retry,
            diagnostics: options.diagnostics.clone(),
            queue: queue.clone(),
            abort: abort.clone(),
            leave: leave.clone(),
        };
        let outputs = graph.outputs.into_iter().enumerate();
        let lane = |(index, node)| Lane::new(index, node, &shared);
        let lanes: Vec<_> = outputs.map(lane).collect();
        let (per_worker, stages) = make_stages(graph.stages, workers, &options.diagnostics);
        let ends = Arc::new(Ends {
            diagnostics: options.diagnostics.clone(),
            queue: queue.clone(),
            stages: stages.clone(),
            lanes: lanes.clone(),
            stop: stop.clone(),
        });
        let worker = |stages| {
            let ends = ends.clone();
            let worker = Worker { stages, ends };
            thread("worker", move || worker.run())
        };
        let workers = per_worker.into_iter().map(worker).collect();
        let writers = lanes.iter().map(|lane| spawn_lane(lane, &ends)).collect();
        let context = |name: &str, can_wait: bool| InputContext {
            sink: Arc::new(Inlet {
                queue: queue.clone(),
                can_wait,
            }),
            pool: pool.clone(),
            host: options.host.clone(),
            stop: stop.clone(),
            metrics: Arc::default(),
            progress: Arc::default(),
            diagnostics: options.diagnostics.clone(),
            scope: format!("{}/{name}", graph.name).into(),
            registry: options.registry.clone(),
            ledger: Arc::default(),
        };
        let start = |node| RunningInput::start(node, context);
        let inputs = graph.inputs.into_iter().map(start).collect();
        Self {
            name: graph.name,
            tells_of_files: options.ledger,
            inputs,
            queue,
            stages,
            lanes,
            workers,
            writers,
            stop,
            abort,
            leave,
        }
    }

    /// Waits for the inputs to end, then for everything accepted to be delivered.
    async fn finish(mut self, outer: Stop, deadline: Duration) -> PipelineReport {
        let mut problems = Vec::new();
        let over = Stop::default();
        let stopping = tokio::spawn({
            let (stop, over, outer) = (self.stop.clone(), over.clone(), outer.clone());
            let queue = self.queue.clone();
            async move {
                outer.stopped().await;
                stop.stop();
                if !queue.drains() {
                    queue.take_the_last();
                }
                let patience = PAUSED_PATIENCE.min(deadline);
                tokio::time::sleep(patience).await;
                // A disk that takes nothing is not waited for: the sources keep what it did not take.
                if !queue.is_paused() {
                    tokio::time::sleep(deadline - patience).await;
                }
                over.stop();
            }
        });
        for input in &mut self.inputs {
            let Some(mut task) = input.task.take() else {
                continue;
            };
            let ended = tokio::select! {
                ended = &mut task => Some(ended),
                () = over.stopped() => {
                    // An input that waits for room, or for receipts, learns that there will be none.
                    self.abort.stop();
                    self.queue.close(Closing::Abandoned);
                    tokio::time::timeout(LAST_CHANCE, task).await.ok()
                }
            };
            problems.extend(match ended {
                Some(ended) => input_problems(&input.name, ended),
                None => vec![format!("input {}: did not stop in time", input.name)],
            });
        }
        self.deliver(&outer, &over).await;
        stopping.abort();
        let queue = self.queue.clone();
        // A panic there has been said; what was not safe by then counts as not delivered.
        let _ = tokio::task::spawn_blocking(move || queue.shut()).await;
        self.report(problems)
    }

    /// Waits until everything has left that is to leave before the end: all of it, or after a stop only what a disk queue
    /// does not keep.
    async fn deliver(&mut self, outer: &Stop, over: &Stop) {
        let mut may_leave = !self.queue.drains();
        self.queue.close(Closing::Drain);
        let (workers, writers) = (
            std::mem::take(&mut self.workers),
            std::mem::take(&mut self.writers),
        );
        let lanes = self.lanes.clone();
        let mut draining = tokio::task::spawn_blocking(move || drain(workers, writers, &lanes));
        loop {
            tokio::select! {
                _ = &mut draining => return,
                () = outer.stopped(), if may_leave => {
                    may_leave = false;
                    self.queue.close(Closing::Leave);
                    let (queue, leave) = (self.queue.clone(), self.leave.clone());
                    tokio::spawn(leave_when_safe(queue, leave));
                }
                () = over.stopped() => {
                    self.abort.stop();
                    self.queue.close(Closing::Abandoned);
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

    fn report(&self, mut problems: Vec<String>) -> PipelineReport {
        for lane in &self.lanes {
            problems.extend(
                lane.failure()
                    .map(|reason| format!("output {}: {reason}", lane.name())),
            );
        }
        let held = self.queue.held();
        let lost = self.queue.lost();
        if lost > 0 {
            problems.push(format!(
                "queue: {} events are lost to damage of its files",
                grouped(lost)
            ));
        }
        let operator = |role, name: &str, metrics: &OperatorMetrics| OperatorReport {
            role,
            name: name.to_owned(),
            counts: metrics.snapshot(),
        };
        let inputs = self
            .inputs
            .iter()
            .map(|input| operator(Role::Input, &input.name, &input.metrics));
        let queue = self.queue.is_on_disk().then(|| {
            let metrics = self.queue.metrics();
            operator(Role::Queue, "disk", metrics)
        });
        let stages = self
            .stages
            .iter()
            .map(|stage| operator(Role::Processor, stage.name(), stage.metrics()));
        let lanes = self
            .lanes
            .iter()
            .map(|lane| operator(Role::Output, lane.name(), lane.metrics()));
        PipelineReport {
            name: self.name.clone(),
            operators: inputs.chain(queue).chain(stages).chain(lanes).collect(),
            files: self.ledger(),
            problems,
            undelivered: held.unsafe_events,
            queued: held.stored_events,
        }
    }
}

impl RunningInput {
    fn start(node: InputNode, context: impl Fn(&str, bool) -> InputContext) -> Self {
        let ctx = context(&node.name, node.component.can_wait());
        Self {
            name: node.name,
            metrics: ctx.metrics.clone(),
            progress: ctx.progress.clone(),
            ledger: ctx.ledger.clone(),
            task: Some(tokio::spawn(node.component.run(ctx))),
        }
    }
}

/// Every pipeline's queue, in order.
fn open_queues(graph: &Graph, options: &RunOptions) -> Result<Vec<Arc<Queue>>, QueueError> {
    let shared = graph.process.disk.map(|size| {
        let queues = graph.pipelines.iter();
        let count = queues.filter(|pipeline| pipeline.queue.disk().is_some());
        (
            Arc::new(DiskBudget::new(size.0)),
            size.0 / count.count().max(1) as u64,
        )
    });
    let open = |pipeline: &PipelineGraph| {
        let limits = pipeline.queue.limits();
        let disk = pipeline.queue.disk();
        let folder =
            disk.and_then(|disk| disk.folder(graph.process.data_dir.as_deref(), &pipeline.name));
        let (Some(disk), Some(folder)) = (disk, folder) else {
            return Ok(Queue::memory(limits, pipeline.outputs.len()));
        };
        let names: Vec<&str> = pipeline
            .outputs
            .iter()
            .map(|output| &*output.name)
            .collect();
        let mut settings = disk.settings();
        if let Some((_, share)) = &shared {
            settings.limit_segments(*share);
        }
        let mode = match &pipeline.queue {
            QueueSettings::Disk(_) => Mode::Everything,
            QueueSettings::Memory(_) => Mode::Overflow,
        };
        let warn = options.diagnostics.clone();
        let name = pipeline.name.clone();
        let is_stateless = |stage: &StageNode| stage.order == Order::Stateless;
        let options = DiskOptions {
            mode,
            limits,
            may_part: pipeline.stages.iter().all(is_stateless),
            budget: shared.as_ref().map(|(budget, _)| budget.clone()),
            diagnostics: Diagnostics::new(move |text| {
                warn.warn(&format!("pipeline {name}: {text}"));
            }),
            ..DiskOptions::new(settings, &names)
        };
        Queue::open(&folder, options)
    };
    graph.pipelines.iter().map(open).collect()
}

/// Lets lanes go that wait for what fails, once the queue has everything on disk.
async fn leave_when_safe(queue: Arc<Queue>, leave: Stop) {
    while queue.held().unsafe_events > 0 {
        tokio::time::sleep(LEAVE_CHECK).await;
    }
    leave.stop();
}

fn input_problems(
    name: &str,
    ended: Result<Result<(), component::InputError>, tokio::task::JoinError>,
) -> Vec<String> {
    match ended {
        Ok(Ok(())) => Vec::new(),
        Ok(Err(error)) => error
            .problems
            .into_iter()
            .map(|problem| format!("input {name}: {problem}"))
            .collect(),
        Err(error) => vec![format!("input {name}: internal error: {error}")],
    }
}

fn drain(workers: Vec<JoinHandle<()>>, writers: Vec<JoinHandle<()>>, lanes: &[Arc<Lane>]) {
    for worker in workers {
        // A worker that panicked has said so; its batch counts as not delivered.
        let _ = worker.join();
    }
    lanes.iter().for_each(|lane| lane.close());
    for writer in writers {
        let _ = writer.join();
    }
}

/// What decides that nobody wants more.
struct Ends {
    diagnostics: Diagnostics,
    queue: Arc<Queue>,
    stages: Vec<Arc<SharedStage>>,
    lanes: Vec<Arc<Lane>>,
    stop: Stop,
}

impl Ends {
    /// Ends the inputs when nobody wants more: an ordered processor is finished, every reader is gone, or an output has
    /// given up and what it did not take must not be acknowledged.
    fn check(&self) {
        let finished = self.stages.iter().any(|stage| stage.is_finished());
        let gone = self.lanes.iter().all(|lane| lane.is_gone());
        let failed = self.lanes.iter().any(|lane| lane.failure().is_some());
        if finished || gone || failed {
            self.stop.stop();
        }
        match self.queue.is_on_disk() {
            // Other outputs still get what would be lost otherwise.
            false if failed && !finished && !gone => self.queue.close(Closing::Drain),
            _ if finished || gone || failed => self.queue.stop_giving(),
            _ => {}
        }
    }

    /// Goes on without a batch.
    fn skip(&self, turn: Option<u64>, lanes: &[LaneTurn]) {
        if let Some(turn) = turn {
            self.stages.iter().for_each(|stage| stage.skip(turn));
        }
        for place in lanes {
            self.lanes[place.lane].skip(place.turn);
        }
    }
}

/// Takes batches from the queue, processes them and offers them to the lanes.
struct Worker {
    stages: Vec<Stage>,
    ends: Arc<Ends>,
}

impl Worker {
    fn run(mut self) {
        // Where the system refuses, workers run like everybody else.
        let _ = rustix::process::nice(WORKER_NICENESS);
        let ends = self.ends.clone();
        // Before taking: a lane may be waiting for the very batch that a worker holds while later ones fill it.
        let has_room = |lane: usize| ends.lanes[lane].has_room();
        while let Some(taken) = ends.queue.take(&has_room) {
            match taken {
                Taken::Batch(entry, batch) => self.guarded(&entry, *batch),
                Taken::Lost(entry) => {
                    ends.skip(entry.turn, &entry.lanes);
                    for place in &entry.lanes {
                        entry.ticket.pass(place.lane);
                    }
                }
            }
        }
    }

    /// Handles a batch; a panic loses it and stops nothing else. Its ticket then goes without being passed, so that its
    /// events count as not delivered.
    fn guarded(&mut self, entry: &Entry, batch: Batch) {
        if catch_unwind(AssertUnwindSafe(|| self.handle(entry, batch))).is_err() {
            self.ends
                .diagnostics
                .warn("internal error; a batch is lost and counted as not delivered");
            self.ends.skip(entry.turn, &entry.lanes);
        }
    }

    fn handle(&mut self, entry: &Entry, mut batch: Batch) {
        for stage in &mut self.stages {
            stage.process(&mut batch, entry.turn);
        }
        if entry.ticket.is_awaited() {
            let stages = self.ends.stages.iter();
            let finished: Vec<&str> = stages
                .filter(|stage| stage.is_finished())
                .map(|stage| stage.name())
                .collect();
            entry.ticket.account(delivery(&batch, &finished));
        }
        let batch = Arc::new(batch);
        for place in &entry.lanes {
            self.ends.lanes[place.lane].offer(place.turn, &batch, &entry.ticket);
        }
        self.ends.check();
    }
}

/// What processors made of a batch's rows, for each of its streams. What was dropped by one of the `finished` processors,
/// and everything behind it, is as if it had not come.
fn delivery(batch: &Batch, finished: &[&str]) -> Delivery {
    let origin = batch.origin();
    let cut = batch
        .drops()
        .iter()
        .filter(|drops| finished.contains(&&*drops.reason))
        .filter_map(|drops| drops.rows.iter().next())
        .min();
    let streams = origin
        .streams()
        .filter(|(rows, _)| !rows.is_empty())
        .map(|(rows, stream)| {
            let end = rows.end.min(cut.unwrap_or(rows.end)).max(rows.start);
            let taken = rows.start..end;
            let dropped = batch
                .drops()
                .iter()
                .map(|drops| dropped_rows(batch, drops, taken.clone()))
                .filter(|dropped| dropped.rows > 0)
                .collect();
            let kept = if batch.drops().is_empty() {
                taken.len()
            } else {
                taken.filter(|&row| batch.alive().contains(row)).count()
            };
            StreamDelivery {
                stream: stream.clone(),
                end: origin.end(rows.end - 1),
                kept: kept as u64,
                dropped,
                cut: (end < rows.end).then(|| origin.start(end)),
            }
        });
    Delivery {
        streams: streams.collect(),
    }
}

/// The rows of a stream that were dropped for one reason.
fn dropped_rows(batch: &Batch, drops: &batch::Drops, rows: Range<usize>) -> DroppedRows {
    let origin = batch.origin();
    let dropped = rows.filter(|&row| drops.rows.contains(row));
    let (rows, bytes) = dropped.fold((0, 0), |(rows, bytes), row| {
        (rows + 1, bytes + (origin.end(row) - origin.start(row)))
    });
    DroppedRows {
        reason: drops.reason.clone(),
        rows,
        bytes,
    }
}

fn spawn_lane(lane: &Arc<Lane>, ends: &Arc<Ends>) -> JoinHandle<()> {
    let (lane, ends, runtime) = (
        lane.clone(),
        ends.clone(),
        tokio::runtime::Handle::current(),
    );
    thread("output", move || {
        runtime.block_on(lane.run(&|| ends.check()));
    })
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work);
    spawned.expect("the system has room for a few threads")
}
