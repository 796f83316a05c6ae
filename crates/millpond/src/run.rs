//! `millpond run`: from the command line to the exit code.

use std::io::IsTerminal;
use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use component::own::LogTails;
use component::{Activities, Diagnostics, Stop, plural, plural_were};
use pipeline::report::{PipelineReport, Problem};
use pipeline::usage::Reading;
use pipeline::{Graph, Report, Run, RunOptions, StartError};
use profiler::Profile;
use registry::{LockedDirectory, Registry, RegistryError};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::ApiServer;
use crate::api::configuration::Configuration;
use crate::api::settings::ApiConfig;
use crate::api::state::{ApiState, NOT_SAMPLED, Profiles};
use crate::console::say;
use crate::load::{Beside, host, load};
use crate::log;
use crate::notify::Notifier;
use crate::own_metrics;
use crate::profile::own::{self, OwnProfile};
use crate::profile::service::ProfileService;
use crate::profile::settings::Profiling;
use crate::progress::Bar;
use crate::reload::{Origin, Reloads};
use crate::{RunArgs, profile};

/// Exit code of a run whose user would not wait for it to stop.
const INTERRUPTED: i32 = 130;

/// Signals that come so soon after the first one are part of the same request: `timeout` signals the process and its group.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// The answer to SIGHUP where there is nothing to read again.
const HANGUP: &str = "SIGHUP is ignored: only the configuration of a service can be reloaded";

/// How often a second a core is sampled where the run's profile is asked for.
const PROFILE_HZ: u32 = 97;

/// Runs a pipeline to its end.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let pipeline = args.source.pipeline()?;
    let loaded = load(pipeline)?;
    let finite = loaded.finite;
    let files = loaded.files.clone();
    let host = host();
    let (mut graph, mut beside) = loaded.build_service(&host, args.data_dir.clone())?;
    if args.quiet {
        graph.process.log.level = graph.process.log.level.without_info();
    }
    if let Some(address) = &args.api {
        beside.api = ApiConfig::at(address)?;
    }
    let mut session = Session::begin(&graph, finite, !args.quiet)?;
    // Before profiles are stored in it.
    let data_dir = lock(graph.process.data_dir.as_deref())?;
    if args.profile.is_some() {
        session = session.sampled(OwnProfile::start(PROFILE_HZ)?);
    } else if !finite {
        session.serve_profiles(&beside.profiling, &graph, &host.name)?;
    }
    session.serve_api(&beside, &graph, &host.name)?;
    if !finite {
        let origin = Origin {
            source: pipeline.to_vec(),
            files,
            watches: args.watch,
            data_dir: args.data_dir.clone(),
            host: host.clone(),
        };
        session.origin = Some(origin);
        session.introduce(&graph, &pipeline.join(", "));
    } else if graph.reads_terminal() && !args.quiet {
        say(TERMINAL_HINT);
    }
    let report = session.execute(graph, finite, &host, data_dir, args.metrics);
    session.end_api();
    session.end_profiles();
    let report = report?;
    if let (Some(path), Some(profile)) = (&args.profile, session.profile()) {
        profile::write(&profile, path)?;
    }
    if args.metrics {
        say(report.table().trim_end());
    }
    let code = session.conclude(&report);
    if !finite {
        session.take_leave(code);
    } else if !args.quiet && std::io::stderr().is_terminal() {
        say(&summary(&report));
    }
    Ok(code.into())
}

/// What a run did, in a line: `10,000 events in 0.4 s, 2 dead letters`.
fn summary(report: &Report) -> String {
    let events = plural(report.events(), "event");
    let seconds = report.usage.wall.as_secs_f64();
    let letters = report.dead_letters();
    match letters {
        0 => format!("{events} in {seconds:.1} s"),
        _ => format!(
            "{events} in {seconds:.1} s, {}",
            plural(letters, "dead letter")
        ),
    }
}

/// Nobody who forgot the input would know that one is waited for.
const TERMINAL_HINT: &str = "reading events from the terminal, one per line; Ctrl-D ends them (to read a file: file PATH | …)";

/// A run that replays dead letters and reads nothing.
pub struct Replay {
    graph: Graph,
    host: Arc<batch::HostInfo>,
}

impl Replay {
    /// The pipelines of a YAML file.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn prepare(configuration: &str, data_dir: &Path) -> anyhow::Result<Self> {
        let loaded = load(&[configuration.to_owned()])?;
        if loaded.finite {
            bail!("{configuration} is not a YAML file");
        }
        let host = host();
        let graph = loaded.build(&host, Some(data_dir.to_owned()))?;
        Ok(Self { graph, host })
    }

    /// Whether there is a pipeline of that name.
    pub fn has_pipeline(&self, name: &str) -> bool {
        let mut pipelines = self.graph.pipelines.iter();
        pipelines.any(|pipeline| pipeline.name == name)
    }

    /// Carries out the requests that were left in the data directory; the exit code.
    ///
    /// # Errors
    /// The run cannot start.
    pub fn run(self) -> anyhow::Result<u8> {
        let mut session = Session::begin(&self.graph, true, true)?;
        session.replays = true;
        let data_dir = lock(self.graph.process.data_dir.as_deref())?;
        let report = session.execute(self.graph, true, &self.host, data_dir, false)?;
        Ok(session.conclude(&report))
    }
}

/// Locks the data directory, where there is one.
pub fn lock(data_dir: Option<&Path>) -> anyhow::Result<Option<LockedDirectory>> {
    let locked = data_dir.map(LockedDirectory::take).transpose();
    locked.map_err(|error| sentence(&error))
}

/// Opens what inputs remember, and says what of it was lost.
fn open_registry(
    data_dir: Option<LockedDirectory>,
    diagnostics: &Diagnostics,
) -> anyhow::Result<Option<Arc<Registry>>> {
    let Some(directory) = data_dir else {
        return Ok(None);
    };
    let (registry, losses) = directory.open().map_err(|error| sentence(&error))?;
    for loss in losses {
        diagnostics.warn(&loss.to_string());
    }
    Ok(Some(Arc::new(registry)))
}

/// An error whose text names its cause, so that the cause is not printed once more.
pub fn sentence(error: &RegistryError) -> anyhow::Error {
    anyhow!("{error}")
}

/// What is given the number of events so far, on the runtime.
pub type Watch = fn(Arc<dyn Fn() -> u64 + Send + Sync>);

/// A run from the first message to the last.
pub struct Session {
    diagnostics: Diagnostics,
    bar: Bar,
    /// The signal that asked for the end.
    signal: Arc<OnceLock<&'static str>>,
    /// Whether nothing is read, and dead letters are replayed alone.
    replays: bool,
    /// What watches how many events there were so far, once everything has started.
    pub watch: Option<Watch>,
    /// What samples this process, where that is wanted.
    own: Option<OwnProfile>,
    /// The profiler of a service.
    profiles: Option<ProfileService>,
    /// Who makes events of what is logged.
    tails: LogTails,
    /// Where a service reads its configuration again; none for what is no service.
    origin: Option<Origin>,
    /// What the API shows, where there is one.
    api: Option<Arc<ApiState>>,
    api_server: Option<ApiServer>,
}

impl Session {
    /// Begins to log. A finite run is one that a person watches; `is_interactive` says whether its progress is shown.
    ///
    /// # Errors
    /// RUST_LOG is wrong.
    pub fn begin(graph: &Graph, finite: bool, is_interactive: bool) -> anyhow::Result<Self> {
        let to_terminal = graph.uses_standard_output();
        let bar = Bar::new(finite && is_interactive, to_terminal);
        let names_pipelines = graph.pipelines.len() > 1;
        let tails = LogTails::default();
        let log = &graph.process.log;
        Ok(Self {
            diagnostics: log::start(log, finite, names_pipelines, &bar, &tails)?,
            tails,
            bar,
            signal: Arc::default(),
            replays: false,
            watch: None,
            own: None,
            profiles: None,
            origin: None,
            api: None,
            api_server: None,
        })
    }

    /// Samples this process while it runs.
    pub fn sampled(self, own: OwnProfile) -> Self {
        if own.is_by_timers() {
            self.diagnostics.info(own::BY_TIMERS);
        }
        Self {
            own: Some(own),
            ..self
        }
    }

    /// Begins what a service does about profiles.
    fn serve_profiles(
        &mut self,
        profiling: &Profiling,
        graph: &Graph,
        host: &str,
    ) -> anyhow::Result<()> {
        let data_dir = graph.process.data_dir.as_deref();
        let service = ProfileService::start(profiling, data_dir, host, &self.diagnostics)?;
        if service.is_by_timers() {
            self.diagnostics.info(own::BY_TIMERS);
        }
        self.profiles = Some(service);
        Ok(())
    }

    /// Begins to answer requests, where the configuration asks for it.
    fn serve_api(&mut self, beside: &Beside, graph: &Graph, host: &str) -> anyhow::Result<()> {
        let data_dir = graph.process.data_dir.as_deref();
        let is_sampled = self.profiles.is_some() && beside.profiling.settings.enabled;
        let profiles = match beside.profiling.store(data_dir)? {
            Some(folder) if is_sampled => Profiles::Store(folder),
            _ => Profiles::None(NOT_SAMPLED),
        };
        let state = ApiState::new(host, graph.process.worker_threads(), profiles);
        state.configure(Configuration::new(&beside.written, graph));
        self.api_server = ApiServer::start(&beside.api, &state, &self.diagnostics)?;
        self.api = Some(state);
        Ok(())
    }

    /// Waits for the stop where only profiles are of interest.
    async fn without_pipelines(&self, stop: &Stop) -> Report {
        let begun = Reading::now();
        self.started();
        self.notify(0, stop);
        stop.stopped().await;
        Report {
            pipelines: Vec::new(),
            usage: begun.usage(0),
            runtime_cpu: Duration::ZERO,
        }
    }

    /// Every pipeline has started.
    fn started(&self) {
        self.api.iter().for_each(|api| api.started());
    }

    /// Answers no more.
    fn end_api(&mut self) {
        if let Some(server) = self.api_server.take() {
            server.stop();
        }
    }

    /// Keeps the last profile.
    fn end_profiles(&mut self) {
        if let Some(service) = self.profiles.take() {
            service.stop();
        }
    }

    /// Where threads note what they work for.
    fn activities(&self) -> Activities {
        let own = self.own.as_ref().map(OwnProfile::activities);
        let service = self.profiles.as_ref().map(ProfileService::activities);
        own.or(service).unwrap_or_default()
    }

    /// What was sampled; none where nothing was to be.
    pub fn profile(&mut self) -> Option<Profile> {
        self.own.take().map(OwnProfile::finish)
    }

    /// Says what a service runs.
    fn introduce(&self, graph: &Graph, configuration: &str) {
        let version = env!("CARGO_PKG_VERSION");
        let data_dir = graph.process.data_dir.as_deref();
        let state = match data_dir {
            Some(path) => format!("data directory {}", path.display()),
            None => "no data directory: positions are not saved for the next run".to_owned(),
        };
        self.diagnostics.info(&format!(
            "Millpond {version} started; configuration {configuration}; {state}"
        ));
        if let Some(api) = &self.api {
            let all = |_: &String| true;
            api.configuration().introduce(&self.diagnostics, all);
        }
    }

    /// Says that a service ended, and why.
    fn take_leave(&self, code: u8) {
        let why = match self.signal.get() {
            Some(signal) => format!("after {signal}"),
            None => "because every pipeline has ended".to_owned(),
        };
        self.diagnostics
            .info(&format!("Millpond stopped {why}; exit code {code}"));
    }

    /// Tells the service manager, if there is one, that this many pipelines have started, and how it goes on, for as long as the runtime runs.
    fn notify(&self, pipelines: usize, stop: &Stop) -> Option<Arc<Notifier>> {
        self.origin.as_ref()?;
        let notifier = Notifier::from_environment(&self.diagnostics, stop);
        let notifier = notifier.unwrap_or_else(|error| {
            let words = format!("the service manager cannot be reached: {error}");
            self.diagnostics.warn(&words);
            None
        });
        let notifier = Arc::new(notifier?);
        tokio::spawn(notifier.clone().attend(pipelines));
        Some(notifier)
    }

    /// Runs every pipeline of the graph until it ends or a signal stops it. What inputs remember is in `memory`, where they are to.
    pub fn execute(
        &mut self,
        graph: Graph,
        finite: bool,
        host: &Arc<batch::HostInfo>,
        memory: Option<LockedDirectory>,
        ledger: bool,
    ) -> anyhow::Result<Report> {
        let runtime = runtime()?;
        let report = runtime.block_on(async {
            let stop = Stop::default();
            let hangup = Arc::<Notify>::default();
            // What ends with the run.
            let mut beside = JoinSet::new();
            let api = self.api.clone();
            api.iter().for_each(|api| api.stops_by(&stop));
            // Before anything that may take long, such as reading what a large registry holds.
            if let Some(signals) = signals(&self.diagnostics) {
                let first = self.signal.clone();
                let hangup = self.origin.is_some().then(|| hangup.clone());
                beside.spawn(signals.watch(stop.clone(), self.diagnostics.clone(), first, hangup));
            }
            let pipelines = graph.pipelines.len();
            if pipelines == 0 {
                return Ok(self.without_pipelines(&stop).await);
            }
            let view = api.as_ref().map(|api| api.view.clone());
            let view = view.unwrap_or_default();
            let options = RunOptions {
                own: own_metrics::own(&view, &host.name, &self.tails),
                view,
                host: host.clone(),
                registry: open_registry(memory, &self.diagnostics)?,
                diagnostics: self.diagnostics.clone(),
                activities: self.activities(),
                finite,
                stop: stop.clone(),
                ledger,
                replays: self.replays,
            };
            let run = match Run::start(graph, options).await {
                // It is told like one that is found while the configuration is read.
                Err(StartError::Setting(error)) => return Err(error.into()),
                started => started?,
            };
            if let Some(own) = &self.own {
                own.count(run.handled());
            }
            if let Some(service) = &self.profiles {
                service.count(run.handled());
            }
            self.started();
            let manager = self.notify(pipelines, &stop);
            if let Some(watch) = self.watch {
                watch(run.events());
            }
            if let (Some(origin), Some(api)) = (self.origin.take(), &api) {
                let reloads = Reloads::new(origin, run.reloader(), &self.diagnostics, api, manager);
                let asked = reloads.clone();
                api.reloads_by(move |why| asked.clone().asked(why));
                beside.spawn(reloads.when_asked(hangup));
            }
            beside.spawn(self.bar.clone().draw(run.progress(), run.events()));
            anyhow::Ok(run.finish().await)
        });
        self.bar.clear();
        // Blocking reads of a terminal or a pipe may still be under way: the process ends without waiting for them.
        runtime.shutdown_background();
        report
    }

    /// Says what went wrong and gives the exit code.
    pub fn conclude(&self, report: &Report) -> u8 {
        for PipelineReport {
            name,
            problems,
            remarks,
            unclaimed,
            undelivered,
            refused,
            letters_dropped,
            queued,
            ..
        } in &report.pipelines
        {
            let diagnostics = self.diagnostics.for_pipeline(name);
            for Problem { component, text } in problems {
                diagnostics
                    .for_component(component.role, &component.name)
                    .error(text);
            }
            // A few events that are replayed say nothing of those that come.
            for Problem { component, text } in remarks.iter().filter(|_| !self.replays) {
                diagnostics
                    .for_component(component.role, &component.name)
                    .warn(text);
            }
            if *unclaimed > 0 {
                let went = plural(*unclaimed, "event");
                diagnostics.warn(&format!(
                    "{went} went to no output, because no `if` was true"
                ));
            }
            if *undelivered > 0 {
                let events = plural_were(*undelivered, "event");
                diagnostics.error(&format!("{events} read but not delivered"));
            }
            if *refused > 0 {
                diagnostics.error(&refused_note(*refused));
            }
            if *letters_dropped > 0 {
                diagnostics.warn(&dropped_note(*letters_dropped));
            }
            if *queued > 0 {
                diagnostics.info(&queued_note(*queued));
            }
        }
        u8::from(!report.is_clean())
    }
}

/// What the settings of dead letters dropped.
fn dropped_note(letters: u64) -> String {
    let were = plural_were(letters, "dead letter");
    format!("{were} dropped because of `max_bytes` or `max_age` of `dead_letters`")
}

/// What outputs refused, where nothing keeps it.
fn refused_note(events: u64) -> String {
    let were = plural_were(events, "event");
    format!(
        "{were} rejected by outputs and lost; with a `data_dir`, rejected events are kept as dead letters that can be replayed"
    )
}

/// What a pipeline leaves in its disk queue.
fn queued_note(events: u64) -> String {
    let remain = if events == 1 { "remains" } else { "remain" };
    let events = plural(events, "event");
    format!("{events} {remain} in the disk queue for the next run")
}

/// Lets the process open as many files as it may: the limit that it begins with is meant for programs that use `select`.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // Where that is refused, the limit stays as it is, and inputs keep to it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// The runtime for inputs and signals. Half of the cores can receive for the other half, which decode: with a thread for each core,
/// those of the runtime wake each other more than they do at once.
pub fn runtime() -> anyhow::Result<Runtime> {
    // The runtime panics where the system refuses it a thread, and then waits for ever for those that it has. Nothing else
    // runs yet, so that the process can end here.
    let tell = panic::take_hook();
    panic::set_hook(Box::new(|_| {
        log::fail(&StartError::Threads(Errno::AGAIN.into()).to_string());
        std::process::exit(1);
    }));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.div_ceil(2))
        .enable_all()
        .build();
    panic::set_hook(tell);
    runtime.context("cannot start the runtime")
}

/// The signals that are watched.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// Takes signals from now on.
fn signals(diagnostics: &Diagnostics) -> Option<Signals> {
    let taken = || {
        std::io::Result::Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    };
    let taken = taken().ok();
    if taken.is_none() {
        diagnostics.warn("signals cannot be handled; a stop will not be graceful");
    }
    taken
}

impl Signals {
    /// The first SIGINT or SIGTERM stops the inputs; a second one, [`ONE_REQUEST`] later or more, ends the process at once.
    /// SIGHUP asks a service to reload its configuration, and ends nothing elsewhere.
    async fn watch(
        mut self,
        stop: Stop,
        diagnostics: Diagnostics,
        first: Arc<OnceLock<&'static str>>,
        hangup: Option<Arc<Notify>>,
    ) {
        let mut asked: Option<Instant> = None;
        loop {
            let name = tokio::select! {
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.hangup.recv() => {
                    match &hangup {
                        Some(hangup) => hangup.notify_one(),
                        None => diagnostics.info(HANGUP),
                    }
                    continue;
                }
            };
            match asked {
                Some(first) if first.elapsed() < ONE_REQUEST => continue,
                Some(_) => {
                    diagnostics.warn(&format!(
                        "{name} again: stopped immediately without delivering the events that were read; exit code {INTERRUPTED}"
                    ));
                    std::process::exit(INTERRUPTED);
                }
                None => asked = Some(Instant::now()),
            }
            let again = match name {
                "SIGINT" => "press Ctrl-C again",
                _ => "send it again",
            };
            diagnostics.info(&format!(
                "{name} received: delivering the events already read; {again} to stop immediately"
            ));
            let _ = first.set(name);
            stop.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_are_dropped_are_told() {
        let note = dropped_note(45_000);
        assert!(
            note.starts_with("45,000 dead letters were dropped"),
            "{note}"
        );
        assert!(dropped_note(1).starts_with("1 dead letter was dropped"));
    }

    #[test]
    fn what_stays_in_a_queue_is_no_failure() {
        for (queued, said) in [
            (1, "1 event remains in the disk queue for the next run"),
            (
                1234,
                "1,234 events remain in the disk queue for the next run",
            ),
        ] {
            assert_eq!(queued_note(queued), said);
            let pipeline = PipelineReport {
                unclaimed: 0,
                name: "one".into(),
                is_fed: false,
                own: Default::default(),
                operators: Vec::new(),
                after_reading: Duration::ZERO,
                files: Vec::new(),
                problems: Vec::new(),
                remarks: Vec::new(),
                undelivered: 0,
                refused: 0,
                letters_dropped: 0,
                queued,
            };
            let report = Report {
                pipelines: vec![pipeline],
                usage: Reading::now().usage(1),
                runtime_cpu: Duration::ZERO,
            };
            assert!(report.is_clean());
        }
    }
}
