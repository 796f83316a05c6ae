//! A run: threads, the end of the inputs, and stopping.
//!
//! Inputs and the signal handler live on one runtime; workers and lanes are threads of their own, because their work is
//! processing and blocking writes. A run ends when its inputs have ended and every output has taken everything, when
//! nobody wants more (an ordered processor is finished, or the reader is gone), or at the deadline after a stop.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batch::{Budget, BufferPool, HostInfo};
use component::{Diagnostics, FileLedger, InputContext, Ledger, OperatorMetrics, Progress, Stop};
use config::Period;
use queue::{Closing, Inlet, Queue, QueueError};
use registry::Registry;

use crate::graph::{Graph, InputNode, PipelineGraph};
use crate::lane::{Lane, Shared};
use crate::queues::open_queues;
use crate::report::{OperatorReport, PipelineReport, Report, Role, grouped};
use crate::settings::ProcessSettings;
use crate::stage::{SharedStage, make_stages};
use crate::worker::{Ends, Worker};

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
