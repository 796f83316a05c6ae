//! A run: threads, the end of the inputs, and stopping.
//!
//! Inputs and the signal handler live on one runtime; workers and lanes are threads of their own, because their work is
//! processing and blocking writes. A run ends when its inputs have ended and every output has taken everything, when
//! nobody wants more (an ordered processor is finished, or the reader is gone), or at the deadline after a stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use batch::{Budget, BufferPool, HostInfo};
use component::thread::{self, Work};
use component::{Diagnostics, FileLedger, InputContext, Ledger, OperatorMetrics, Progress, Stop};
use config::Period;
use queue::{Closing, Inlet, Queue, QueueError};
use registry::Registry;
use tokio::runtime::Handle;

use crate::graph::{Graph, InputNode, PipelineGraph};
use crate::lane::{Lane, Shared};
use crate::queues::open_queues;
use crate::report::{OperatorReport, PipelineReport, Report, Role, grouped};
use crate::settings::ProcessSettings;
use crate::stage::{Stage, make_stages};
use crate::worker::{Ends, Useful, Worker};

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

/// Why a run could not start. Nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A disk queue cannot be used.
    #[error(transparent)]
    Queue(QueueError),
    /// The system refuses threads.
    #[error(
        "the system refuses a thread: {0}; raise the limit on processes and threads (`ulimit -u`, `pids.max`, `TasksMax`), or set fewer `workers`"
    )]
    Threads(io::Error),
}

impl From<QueueError> for StartError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Thread(error) => Self::Threads(error),
            error => Self::Queue(error),
        }
    }
}

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
    waiting: Waiting,
    inputs: Vec<RunningInput>,
    workers: Vec<Work<()>>,
    writers: Vec<Work<()>>,
    /// Queue, processors and outputs.
    ends: Arc<Ends>,
    abort: Stop,
    leave: Stop,
}

/// What waits for its start.
struct Waiting {
    /// The processors of each worker.
    per_worker: Vec<Vec<Stage>>,
    inputs: Vec<InputNode>,
    pool: BufferPool,
    options: RunOptions,
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
    /// A disk queue cannot be used, or the system refuses a thread; then nothing was read.
    pub fn start(graph: Graph, options: RunOptions) -> Result<Self, StartError> {
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
        let useful = Useful::new(queues.len(), &options.stop, &options.diagnostics);
        let mut pipelines = Vec::new();
        let mut refused = None;
        for (pipeline, queue) in graph.pipelines.into_iter().zip(queues) {
            let pool = budget.pool(share, BUFFER_SIZE);
            let mut running = Running::new(pipeline, queue, pool, workers, &options, &useful);
            refused = refused.or(running.start_threads().err());
            pipelines.push(running);
        }
        if let Some(error) = refused {
            pipelines.into_iter().for_each(Running::call_off);
            return Err(StartError::Threads(error));
        }
        // Nothing is read before everything is there to take it.
        pipelines.iter_mut().for_each(Running::start_inputs);
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
    /// A pipeline with everything but its threads and inputs at work.
    fn new(
        graph: PipelineGraph,
        queue: Arc<Queue>,
        pool: BufferPool,
        workers: usize,
        options: &RunOptions,
        useful: &Arc<Useful>,
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
            is_finite: options.finite,
            diagnostics: options.diagnostics.clone(),
            queue: queue.clone(),
            abort: abort.clone(),
            leave: leave.clone(),
        };
        let outputs = graph.outputs.into_iter().enumerate();
        let lane = |(index, node)| Lane::new(index, node, &shared);
        let (per_worker, stages) = make_stages(graph.stages, workers, &options.diagnostics);
        let ends = Arc::new(Ends {
            diagnostics: options.diagnostics.clone(),
            queue,
            stages,
            lanes: outputs.map(lane).collect(),
            stop,
            is_finite: options.finite,
            useful: useful.clone(),
            is_retired: AtomicBool::new(false),
        });
        Self {
            name: graph.name,
            tells_of_files: options.ledger,
            waiting: Waiting {
                per_worker,
                inputs: graph.inputs,
                pool,
                options: options.clone(),
            },
            inputs: Vec::new(),
            workers: Vec::new(),
            writers: Vec::new(),
            ends,
            abort,
            leave,
        }
    }

    /// Starts the threads of workers and outputs.
    ///
    /// # Errors
    /// The system refuses one; those before it wait for work.
    fn start_threads(&mut self) -> io::Result<()> {
        for stages in std::mem::take(&mut self.waiting.per_worker) {
            let ends = self.ends.clone();
            let worker = Worker { stages, ends };
            self.workers
                .push(thread::start("worker", move || worker.run())?);
        }
        for lane in &self.ends.lanes {
            let (lane, ends, runtime) = (lane.clone(), self.ends.clone(), Handle::current());
            let run = move || runtime.block_on(lane.run(&|| ends.check()));
            self.writers.push(thread::start("output", run)?);
        }
        Ok(())
    }

    /// Starts the inputs.
    fn start_inputs(&mut self) {
        let waiting = &mut self.waiting;
        let options = &waiting.options;
        for node in std::mem::take(&mut waiting.inputs) {
            let context = InputContext {
                sink: Arc::new(Inlet {
                    queue: self.ends.queue.clone(),
                    can_wait: node.component.can_wait(),
                }),
                pool: waiting.pool.clone(),
                host: options.host.clone(),
                stop: self.ends.stop.clone(),
                metrics: Arc::default(),
                progress: Arc::default(),
                diagnostics: options.diagnostics.clone(),
                scope: format!("{}/{}", self.name, node.name).into(),
                registry: options.registry.clone(),
                ledger: Arc::default(),
            };
            self.inputs.push(RunningInput::start(node, context));
        }
    }

    /// Ends what was started before anything was read.
    fn call_off(self) {
        self.ends.queue.close(Closing::Abandoned);
        // A backlog of an earlier run may be on its way to the outputs that have their threads.
        self.abort.stop();
        // Panics there have been said.
        self.workers.into_iter().for_each(|worker| {
            let _ = worker.join();
        });
        self.ends.lanes.iter().for_each(|lane| lane.close());
        self.writers.into_iter().for_each(|writer| {
            let _ = writer.join();
        });
        self.ends.queue.shut();
    }

    /// Waits for the inputs to end, then for everything accepted to be delivered.
    async fn finish(mut self, outer: Stop, deadline: Duration) -> PipelineReport {
        let mut problems = Vec::new();
        let over = Stop::default();
        let stopping = tokio::spawn({
            let (stop, over, outer) = (self.ends.stop.clone(), over.clone(), outer.clone());
            let queue = self.ends.queue.clone();
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
                    self.ends.queue.close(Closing::Abandoned);
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
        let queue = self.ends.queue.clone();
        match thread::start("shut", move || queue.shut()) {
            // A panic there has been said; what was not safe by then counts as not delivered.
            Ok(shutting) => drop(shutting.ended().await),
            // No thread to be had: then it is done here, and who else has work on the runtime waits.
            Err(_) => self.ends.queue.shut(),
        }
        self.ends.retire();
        self.report(problems)
    }

    /// Waits until everything has left that is to leave before the end: all of it, or after a stop only what a disk queue
    /// does not keep.
    async fn deliver(&mut self, outer: &Stop, over: &Stop) {
        let mut may_leave = !self.ends.queue.drains();
        self.ends.queue.close(Closing::Drain);
        let (workers, writers) = (
            std::mem::take(&mut self.workers),
            std::mem::take(&mut self.writers),
        );
        let ends = self.ends.clone();
        let draining = drain(workers, writers, &ends.lanes);
        tokio::pin!(draining);
        loop {
            tokio::select! {
                () = &mut draining => return,
                () = outer.stopped(), if may_leave => {
                    may_leave = false;
                    self.ends.queue.close(Closing::Leave);
                    let (queue, leave) = (self.ends.queue.clone(), self.leave.clone());
                    tokio::spawn(leave_when_safe(queue, leave));
                }
                () = over.stopped() => {
                    self.abort.stop();
                    self.ends.queue.close(Closing::Abandoned);
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
        for lane in &self.ends.lanes {
            problems.extend(
                lane.failure()
                    .map(|reason| format!("output {}: {reason}", lane.name())),
            );
        }
        let held = self.ends.queue.held();
        let lost = self.ends.queue.lost();
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
        let queue = self.ends.queue.is_on_disk().then(|| {
            let metrics = self.ends.queue.metrics();
            operator(Role::Queue, "disk", metrics)
        });
        let stages = self
            .ends
            .stages
            .iter()
            .map(|stage| operator(Role::Processor, stage.name(), stage.metrics()));
        let lanes = self
            .ends
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
    fn start(node: InputNode, ctx: InputContext) -> Self {
        Self {
            name: node.name,
            metrics: ctx.metrics.clone(),
            progress: ctx.progress.clone(),
            ledger: ctx.ledger.clone(),
            task: Some(tokio::spawn(node.component.run(ctx))),
        }
    }
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

async fn drain(workers: Vec<Work<()>>, writers: Vec<Work<()>>, lanes: &[Arc<Lane>]) {
    for worker in workers {
        // A worker that panicked has said so; its batch counts as not delivered.
        let _ = worker.ended().await;
    }
    lanes.iter().for_each(|lane| lane.close());
    for writer in writers {
        let _ = writer.ended().await;
    }
}
