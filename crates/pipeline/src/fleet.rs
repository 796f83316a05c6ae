//! The pipelines of a run, and what they share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use batch::Budget;
use component::kept::{Attempt, Kept};
use component::{AnyOutput, Role, Stop, plural, plural_were};
use config::ConfigError;
use futures_util::future::select_all;
use parking_lot::Mutex;
use queue::{Bell, DiskBudget};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::graph::{Graph, PipelineGraph};
use crate::intake::Intake;
use crate::pool::Pool;
use crate::queues::open_queues;
use crate::reload::{Changes, ReloadError, Request, groups};
use crate::replay::open_letters;
use crate::report::{PipelineReport, Problem};
use crate::retry::{Panicked, caught};
use crate::running::{Resources, Running};
use crate::settings::ProcessSettings;
use crate::shortage;
use crate::start::{RunOptions, StartError};
use crate::view::View;
use crate::worker::{Parts, Useful};

/// Size of the buffers that inputs read into.
pub const BUFFER_SIZE: usize = 256 << 10;

/// How often it is looked whether workers have let go of a pipeline that has ended.
const FREE_CHECK: Duration = Duration::from_millis(1);

/// How long that may take: as long as a worker needs for a batch, and then some.
const FREE_MAX: Duration = Duration::from_secs(10);

/// What the pipelines of a process share.
pub struct Process {
    settings: ProcessSettings,
    /// The settings at the top of the configuration, as what they came to.
    fingerprints: BTreeMap<String, u64>,
    options: RunOptions,
    workers: usize,
    budget: Arc<Budget>,
    disk: Option<Arc<DiskBudget>>,
    pool: Arc<Pool>,
    useful: Arc<Useful>,
    kept: Arc<Kept>,
    /// What each pipeline may take, fixed by those that there were in the configuration.
    shares: Mutex<Shares>,
}

/// What each of the pipelines of a configuration may take.
#[derive(Debug, Clone, Copy)]
struct Shares {
    buffers: usize,
    in_flight: usize,
    disk: Option<u64>,
}

impl Shares {
    fn of(settings: &ProcessSettings, pipelines: &[PipelineGraph]) -> Self {
        let memory = settings.max_memory_bytes.bytes();
        let outputs = pipelines.iter().flat_map(|pipeline| &pipeline.outputs);
        let senders = outputs.filter(|output| matches!(output.component, AnyOutput::Sender(_)));
        let disk = pipelines.iter().filter(|it| it.queue.disk().is_some());
        let disk = disk.count().max(1) as u64;
        Self {
            // Half of the budget is shared out, a quarter is the most that requests may take, and the rest is for whoever needs it.
            buffers: memory / 2 / pipelines.len().max(1),
            in_flight: memory / 4 / senders.count().max(1),
            disk: settings.max_disk_bytes.map(|size| size.0 / disk),
        }
    }
}

impl Process {
    /// Says why inputs of a pipeline failed that has ended while others go on. The report at the end may be weeks away.
    fn tell_of_inputs(&self, report: &PipelineReport) {
        let diagnostics = self.options.diagnostics.for_pipeline(&report.name);
        let is_input = |problem: &&Problem| problem.component.role == Role::Input;
        for Problem { component, text } in report.problems.iter().filter(is_input) {
            let diagnostics = diagnostics.for_component(component.role, &component.name);
            diagnostics.warn(&format!("{text}; the pipeline has ended"));
        }
    }

    /// Says what a pipeline that a reload has ended could not do, and takes it out of its report: the end of the run may be weeks
    /// away, and the pipeline in its place may have done it by then.
    fn tell(&self, report: &mut PipelineReport) {
        let diagnostics = self.options.diagnostics.for_pipeline(&report.name);
        for Problem { component, text } in std::mem::take(&mut report.problems) {
            diagnostics
                .for_component(component.role, &component.name)
                .warn(&text);
        }
        let undelivered = std::mem::take(&mut report.undelivered);
        if undelivered > 0 {
            let events = plural_were(undelivered, "event");
            diagnostics.warn(&format!(
                "{events} read and not delivered before the pipeline was replaced or removed"
            ));
        }
        let queued = std::mem::take(&mut report.queued);
        if queued > 0 {
            let events = plural(queued, "event");
            diagnostics.info(&format!("{events} stayed in its disk queue"));
        }
    }

    /// What the pipelines of a configuration share, and these.
    pub fn new(graph: Graph, kept: Arc<Kept>, options: RunOptions) -> (Self, Vec<PipelineGraph>) {
        let settings = graph.process;
        let workers = settings.worker_threads();
        let limit = settings.max_memory_bytes;
        let budget = Budget::new(limit.bytes());
        shortage::watch(&budget, limit, &options.diagnostics);
        let disk = settings.max_disk_bytes;
        let process = Self {
            shares: Mutex::new(Shares::of(&settings, &graph.pipelines)),
            disk: disk.map(|size| Arc::new(DiskBudget::new(size.0))),
            settings,
            fingerprints: graph.fingerprints,
            workers,
            budget,
            pool: Pool::new(workers, Arc::<Bell>::default()),
            useful: Useful::new(&options.stop, &options.diagnostics),
            options,
            kept,
        };
        (process, graph.pipelines)
    }

    /// Worker threads.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The pipelines as they are seen from outside.
    pub fn view(&self) -> &View {
        &self.options.view
    }

    /// What workers share.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// CPU time of the async runtime and of workers between batches.
    pub fn runtime_cpu(&self) -> Duration {
        self.options.activities.runtime_cpu()
    }

    /// Opens the queues of pipelines whose components were opened, and has workers look after them.
    ///
    /// # Errors
    /// A disk queue or the dead letters cannot be used.
    pub fn set_up(&self, pipelines: Vec<PipelineGraph>) -> Result<Vec<Running>, StartError> {
        let options = &self.options;
        let shares = *self.shares.lock();
        let letters = open_letters(&pipelines, &self.settings, options)?;
        let disk = self.disk.clone().zip(shares.disk);
        let data_dir = self.settings.data_dir.as_deref();
        let own_pool = |pipeline: &PipelineGraph| {
            let needs_own = pipeline.may_wait();
            needs_own.then(|| Pool::new(self.workers, Arc::default()))
        };
        let own_pools: Vec<Option<Arc<Pool>>> = pipelines.iter().map(own_pool).collect();
        let bell = |own: &Option<Arc<Pool>>| own.as_ref().unwrap_or(&self.pool).bell().clone();
        let bells: Vec<Arc<Bell>> = own_pools.iter().map(bell).collect();
        let queues = open_queues(&pipelines, data_dir, disk.as_ref(), options, &bells)?;
        self.useful.add(pipelines.len());
        let opened: Vec<_> = queues.into_iter().zip(letters).collect();
        let both = pipelines.iter().zip(&opened);
        let fed = both.filter(|(pipeline, _)| pipeline.fed.is_some());
        let intakes = fed.map(|(pipeline, (queue, (phases, _)))| {
            let name = &pipeline.name;
            (name.clone(), Intake::new(name, queue, phases))
        });
        let intakes: Arc<BTreeMap<_, _>> = Arc::new(intakes.collect());
        let opened = opened.into_iter().zip(own_pools);
        let running = pipelines
            .into_iter()
            .zip(opened)
            .map(|(pipeline, (queue, own_pool))| {
                let pool = own_pool.clone().unwrap_or_else(|| self.pool.clone());
                let resources = Resources {
                    budget: self.budget.clone(),
                    pool: self.budget.pool(shares.buffers, BUFFER_SIZE),
                    workers: self.workers,
                    in_flight_max: shares.in_flight,
                    useful: self.useful.clone(),
                    intakes: intakes.clone(),
                    own_pool,
                };
                let (running, stages) = Running::new(pipeline, queue, resources, options);
                pool.add(running.job(), stages);
                running
            });
        Ok(running.collect())
    }

    /// Ends pipelines before anything was read.
    pub fn call_off(&self, pipelines: Vec<Running>) {
        pipelines.iter().for_each(Running::abort);
        self.pool.close();
        pipelines.into_iter().for_each(Running::call_off);
    }
}

/// Makes the components of pipelines ready: outputs, then inputs.
///
/// # Errors
/// One cannot work as it is set.
pub async fn open_components(
    pipelines: &mut [PipelineGraph],
    kept: &Arc<Kept>,
    attempt: &Arc<Attempt>,
) -> Result<(), StartError> {
    for pipeline in pipelines {
        let outputs = pipeline.outputs.iter();
        let outputs: Vec<_> = outputs.map(|node| node.component.output()).collect();
        for output in outputs {
            opened(caught(output.open()).await)?;
        }
        for input in &mut pipeline.inputs {
            let opening = kept.scope(&pipeline.name, attempt, input.component.open());
            opened(caught(opening).await)?;
        }
    }
    Ok(())
}

/// What opening a component came to.
fn opened(outcome: Result<Result<(), ConfigError>, Panicked>) -> Result<(), StartError> {
    match outcome {
        Ok(opened) => opened.map_err(StartError::Setting),
        Err(panic) => Err(StartError::Panic(panic.to_string())),
    }
}

/// A pipeline that runs on a task of its own.
struct Live {
    name: String,
    /// Where it comes in the report.
    number: usize,
    stop: Stop,
    parts: Weak<Parts>,
    task: JoinHandle<PipelineReport>,
}

/// What a configuration says of a pipeline, and of those that it is linked with.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    fingerprint: u64,
    /// It and those that it is linked with.
    group: BTreeSet<String>,
}

/// The pipelines of a run.
pub struct Fleet {
    process: Process,
    live: Vec<Live>,
    /// Every pipeline of the configuration, those that have ended by themselves included.
    known: BTreeMap<String, Known>,
    reports: Vec<(usize, PipelineReport)>,
    count: usize,
}

impl Fleet {
    /// No pipelines yet, of a configuration that says that of them.
    pub fn new(process: Process, known: BTreeMap<String, Known>) -> Self {
        Self {
            process,
            live: Vec::new(),
            known,
            reports: Vec::new(),
            count: 0,
        }
    }

    /// What the pipelines share.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Drives pipelines that have been started to their ends, each on a task of its own.
    pub fn add(&mut self, pipelines: Vec<Running>) {
        let deadline = self.process.settings.shutdown_deadline.0;
        for pipeline in pipelines {
            let stop = Stop::default();
            self.live.push(Live {
                name: pipeline.name().to_owned(),
                number: self.count,
                stop: stop.clone(),
                parts: Arc::downgrade(&pipeline.job().parts),
                task: tokio::spawn(pipeline.finish(stop, deadline)),
            });
            self.count += 1;
        }
    }

    /// Waits for the end of every pipeline, and meanwhile puts other configurations in place; what the pipelines did.
    pub async fn run(&mut self, requests: &mut mpsc::Receiver<Request>) -> Vec<PipelineReport> {
        let stop = self.process.options.stop.clone();
        let mut is_stopping = false;
        while !self.live.is_empty() {
            tokio::select! {
                ended = Self::one_ends(&mut self.live, &self.process) => {
                    if let (Some((_, report)), false) = (&ended, is_stopping || self.live.is_empty()) {
                        self.process.tell_of_inputs(report);
                    }
                    self.reports.extend(ended);
                }
                Some(request) = requests.recv(), if !is_stopping => {
                    let (graph, answer) = request.into_parts();
                    // Whoever asked may have gone.
                    let _ = answer.send(self.reload(graph).await);
                }
                () = stop.stopped(), if !is_stopping => {
                    is_stopping = true;
                    // Clients learn that nobody listens any more.
                    self.process.kept.forget();
                    self.live.iter().for_each(|live| live.stop.stop());
                }
            }
        }
        self.process.pool.close();
        self.reports.sort_by_key(|(number, _)| *number);
        let reports = std::mem::take(&mut self.reports);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// Waits until a pipeline has ended: its number, and what it did. None if it panicked, which is reported.
    async fn one_ends(live: &mut Vec<Live>, process: &Process) -> Option<(usize, PipelineReport)> {
        let tasks = live.iter_mut().map(|live| &mut live.task);
        let (ended, index, _) = select_all(tasks).await;
        let number = live.remove(index).number;
        match ended {
            Ok(report) => Some((number, report)),
            Err(error) => {
                let diagnostics = &process.options.diagnostics;
                diagnostics.warn(&format!("internal error: {error}"));
                None
            }
        }
    }

    /// Puts another configuration in place: pipelines that it does not change go on, the others end, and the new ones start.
    async fn reload(&mut self, graph: Graph) -> Result<Changes, ReloadError> {
        if let Some(setting) = changed_setting(&self.process.fingerprints, &graph.fingerprints) {
            return Err(ReloadError::Process(setting));
        }
        let known = known(&graph);
        let shares = Shares::of(&self.process.settings, &graph.pipelines);
        let is_same = |name: &str| self.known.get(name) == known.get(name);
        let (same, mut fresh): (Vec<_>, Vec<_>) = graph
            .pipelines
            .into_iter()
            .partition(|pipeline| is_same(&pipeline.name));
        let changes = Changes::new(&self.known, &known, same.iter().map(|it| &*it.name));
        drop(same);
        let ends: Vec<String> = changes.ended().cloned().collect();
        let attempt = Attempt::new(ends.clone());
        let opened = open_components(&mut fresh, &self.process.kept, &attempt).await;
        if let Err(error) = opened {
            drop(fresh);
            self.process.kept.prune();
            return Err(error.into());
        }
        // Nothing that the configuration says can be wrong from here on.
        self.process.kept.settle(&attempt);
        // The process does not end because these do.
        self.process.useful.add(1);
        self.end(&ends).await;
        self.known = known;
        let is_gone = |name: &&String| !self.known.contains_key(*name);
        for name in ends.iter().filter(is_gone) {
            self.process.view().forget(name);
        }
        *self.process.shares.lock() = shares;
        let started = self.start(fresh);
        self.process.useful.remove();
        started?;
        self.process.kept.prune();
        Ok(changes)
    }

    /// Ends pipelines, and waits until nobody has anything of them.
    async fn end(&mut self, names: &[String]) {
        let is_ending = |live: &mut Live| names.contains(&live.name);
        let mut ending: Vec<Live> = self.live.extract_if(.., is_ending).collect();
        ending.iter().for_each(|live| live.stop.stop());
        let parts: Vec<Weak<Parts>> = ending.iter().map(|live| live.parts.clone()).collect();
        while !ending.is_empty() {
            let mut ended = Self::one_ends(&mut ending, &self.process).await;
            if let Some((_, report)) = &mut ended {
                self.process.tell(report);
            }
            self.reports.extend(ended);
        }
        // Workers look for what is over when the bell rings.
        self.process.pool.bell().ring();
        let freed = async {
            while parts.iter().any(|parts| parts.strong_count() > 0) {
                sleep(FREE_CHECK).await;
            }
        };
        // What is held longer, by a processor that does not return, makes the queue of the new one refuse to open.
        let _ = timeout(FREE_MAX, freed).await;
    }

    /// Starts pipelines whose components are open.
    fn start(&mut self, fresh: Vec<PipelineGraph>) -> Result<(), StartError> {
        let mut pipelines = self.process.set_up(fresh)?;
        for pipeline in &mut pipelines {
            if let Err(error) = pipeline.start_threads() {
                pipelines.iter().for_each(Running::abort);
                pipelines.into_iter().for_each(Running::call_off);
                return Err(StartError::Threads(error));
            }
        }
        pipelines.iter_mut().for_each(Running::start_inputs);
        self.add(pipelines);
        Ok(())
    }
}

/// What a configuration says of its pipelines.
pub fn known(graph: &Graph) -> BTreeMap<String, Known> {
    let groups = groups(&graph.pipelines);
    let pipelines = graph.pipelines.iter().zip(groups);
    let known = pipelines.map(|(pipeline, group)| {
        let fingerprint = group
            .iter()
            .map(|index| graph.pipelines[*index].fingerprint)
            .fold(0, |all: u64, one| all.rotate_left(1) ^ one);
        let group = group
            .iter()
            .map(|index| graph.pipelines[*index].name.clone());
        let known = Known {
            fingerprint,
            group: group.collect(),
        };
        (pipeline.name.clone(), known)
    });
    known.collect()
}

/// The first setting at the top of the configuration that is another one.
fn changed_setting(old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>) -> Option<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = keys.into_iter().find(|key| old.get(*key) != new.get(*key));
    changed.cloned()
}
