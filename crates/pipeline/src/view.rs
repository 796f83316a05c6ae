//! Running pipelines as they are seen from outside, by the API and by inputs that report on the process itself.
//!
//! A run puts each of its pipelines into a [`View`] when its inputs start. The view looks at the counters that the pipelines keep
//! anyway, so that it costs nothing until somebody looks. Of a pipeline that has ended the last look is kept, and nothing of the
//! pipeline itself: its queue may be opened again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use component::metrics::Snapshot;
use component::{Component, FileLedger, Ledger, OperatorMetrics, Phase, Progress};
use parking_lot::RwLock;
use queue::Depth;

pub use crate::lane::{OutputState, OutputView};
use crate::report::{OperatorReport, Role};
use crate::tap::{Tap, TapError, TapPoint, TapSettings, TapSide, Taps};
use crate::worker::Parts;

/// The pipelines of a process. Clones show the same; pipelines may come and go.
#[derive(Clone, Default)]
pub struct View(Arc<Shown>);

#[derive(Default)]
struct Shown {
    pipelines: RwLock<Vec<Seen>>,
    taps: Taps,
}

enum Seen {
    Running(Arc<Viewed>),
    Ended(Box<PipelineView>),
}

/// What is looked at of a pipeline.
pub(crate) struct Viewed {
    pub(crate) name: String,
    pub(crate) is_fed: bool,
    /// Whether it may start again once it has ended: a service may reload its configuration.
    pub(crate) starts_again: bool,
    pub(crate) started: SystemTime,
    pub(crate) operators: Vec<(Component, Arc<OperatorMetrics>)>,
    pub(crate) progress: Vec<Arc<Progress>>,
    pub(crate) ledgers: Vec<Arc<Ledger>>,
    /// Where the events that each input sends can be seen.
    pub(crate) taps: Vec<(String, Arc<TapPoint>)>,
    pub(crate) parts: Arc<Parts>,
}

/// That a pipeline is in a view.
pub(crate) struct Showing {
    view: View,
    viewed: Arc<Viewed>,
}

/// What a pipeline is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineState {
    /// Events come in and leave.
    Running,
    /// Its inputs end, and what they have sent leaves.
    Stopping,
    /// It has ended.
    Ended,
}

/// One pipeline at one moment. All counters began at its start.
#[derive(Debug, Clone)]
pub struct PipelineView {
    /// Its name.
    pub name: String,
    /// Whether other pipelines feed it, so that its events are theirs.
    pub is_fed: bool,
    /// When it started.
    pub started: SystemTime,
    /// What it is at.
    pub state: PipelineState,
    /// Its own work, which is that of no component: CPU time, and how long workers waited because outputs had no room.
    pub own: Snapshot,
    /// Its inputs, its queue where that is on disk, its processors and outputs, in the order of the flow.
    pub operators: Vec<OperatorReport>,
    /// Whether its queue is on disk, all of it or what memory does not hold.
    pub is_on_disk: bool,
    /// How far its finite inputs are: bytes read, bytes in all.
    pub progress: (u64, u64),
    /// What its queue holds.
    pub queue: Depth,
    /// What its outputs are doing.
    pub outputs: Vec<OutputView>,
    /// Events that went to no output, because the `if` of none was true.
    pub unclaimed: u64,
    /// Events that outputs refused and that are lost, because there are no dead letters.
    pub refused: u64,
    /// The files that its inputs read, where they were asked for.
    pub files: Vec<FileLedger>,
}

impl View {
    /// The pipelines at this moment. `with_files` says whether their files are looked at, of which there may be many.
    pub fn look(&self, with_files: bool) -> Vec<PipelineView> {
        // Under the lock, so that nobody holds anything of a pipeline once it has left.
        let shown = self.0.pipelines.read();
        let look = |one: &Seen| match one {
            Seen::Running(viewed) => viewed.look(with_files),
            Seen::Ended(last) => (**last).clone(),
        };
        shown.iter().map(look).collect()
    }

    /// Takes a pipeline in, in the place of one with this name that has ended.
    pub(crate) fn show(&self, viewed: Viewed) -> Showing {
        let viewed = Arc::new(viewed);
        let new = Seen::Running(viewed.clone());
        let mut shown = self.0.pipelines.write();
        let is_its_last = |one: &Seen| matches!(one, Seen::Ended(last) if last.name == viewed.name);
        match shown.iter().position(is_its_last) {
            Some(place) => shown[place] = new,
            None => shown.push(new),
        }
        let attach = |tap: &Arc<Tap>| viewed.attach(tap);
        self.0.taps.started(&viewed.name, attach);
        drop(shown);
        Showing {
            view: self.clone(),
            viewed,
        }
    }

    /// Leaves out a pipeline that has ended.
    pub fn forget(&self, name: &str) {
        let is_other = |one: &Seen| !matches!(one, Seen::Ended(last) if last.name == name);
        self.0.pipelines.write().retain(is_other);
        let reason = format!("the pipeline `{name}` is no longer in the configuration");
        self.0.taps.gone(name, &reason);
    }

    /// Opens a tap; its key.
    ///
    /// # Errors
    /// There is no such point, or there are too many taps.
    pub fn open_tap(&self, settings: TapSettings) -> Result<String, TapError> {
        let shown = self.0.pipelines.read();
        let name = settings.pipeline.clone();
        let found = shown.iter().find(|one| one.name() == name);
        let viewed = match found {
            Some(Seen::Running(viewed)) => viewed,
            Some(Seen::Ended(_)) => return Err(TapError::Ended(name)),
            None => {
                let known = shown.iter().map(|one| one.name().to_owned()).collect();
                return Err(TapError::NoPipeline { name, known });
            }
        };
        self.0.taps.open(settings, |tap| viewed.attach(tap))
    }

    /// The tap of a key.
    ///
    /// # Errors
    /// There is none, or there is none any more.
    pub fn tap(&self, key: &str) -> Result<Arc<Tap>, TapError> {
        self.0.taps.get(key)
    }

    /// Ends all taps, for this reason, so that nobody waits for events any more.
    pub fn end_taps(&self, reason: &str) {
        self.0.taps.end(reason);
    }

    /// Closes the tap of a key.
    ///
    /// # Errors
    /// There is none, or there is none any more.
    pub fn close_tap(&self, key: &str) -> Result<(), TapError> {
        self.0.taps.close(key)
    }
}

impl Seen {
    fn name(&self) -> &str {
        match self {
            Self::Running(viewed) => &viewed.name,
            Self::Ended(last) => &last.name,
        }
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        let mut shown = self.view.0.pipelines.write();
        let is_it = |one: &Seen| matches!(one, Seen::Running(it) if Arc::ptr_eq(it, &self.viewed));
        if let Some(place) = shown.iter().position(is_it) {
            let mut last = self.viewed.look(false);
            last.state = PipelineState::Ended;
            shown[place] = Seen::Ended(Box::new(last));
            let (taps, name) = (&self.view.0.taps, &self.viewed.name);
            match self.viewed.starts_again {
                true => taps.ended(name),
                false => taps.gone(name, &TapError::Ended(name.clone()).to_string()),
            }
        }
    }
}

impl Viewed {
    /// Puts a tap at its point.
    ///
    /// # Errors
    /// There is none of this name.
    fn attach(&self, tap: &Arc<Tap>) -> Result<(), TapError> {
        let settings = tap.settings();
        let Some(operator) = &settings.operator else {
            self.parts.tap.attach(tap);
            return Ok(());
        };
        let points = self.points();
        let found: Vec<&TappedOperator<'_>> = points
            .iter()
            .filter(|point| point.is_called(operator))
            .collect();
        let point = match found.as_slice() {
            [] => {
                return Err(TapError::NoOperator {
                    pipeline: self.name.clone(),
                    name: operator.clone(),
                    known: points.into_iter().map(|point| point.name).collect(),
                });
            }
            [only] => only,
            several => {
                return Err(TapError::Ambiguous {
                    pipeline: self.name.clone(),
                    name: operator.clone(),
                    choices: several.iter().map(|point| point.full_name()).collect(),
                });
            }
        };
        if settings.side == TapSide::Both && point.role != Role::Processor {
            return Err(TapError::NothingChanges(operator.clone()));
        }
        point.tap.attach(tap);
        Ok(())
    }

    /// Where its events can be seen.
    fn points(&self) -> Vec<TappedOperator<'_>> {
        let parts = &self.parts;
        let point = |role, name: &str, tap| TappedOperator {
            role,
            name: name.to_owned(),
            tap,
        };
        let mut points = Vec::new();
        for (name, tap) in &self.taps {
            points.push(point(Role::Input, name, &**tap));
        }
        for stage in &parts.stages {
            points.push(point(Role::Processor, stage.name(), stage.tap()));
        }
        for lane in &parts.lanes {
            for stage in lane.stages() {
                let name = format!("{}/{}", lane.name(), stage.name());
                points.push(point(Role::Processor, &name, stage.tap()));
            }
            points.push(point(Role::Output, lane.name(), lane.tap()));
        }
        points
    }

    fn look(&self, with_files: bool) -> PipelineView {
        let parts = &self.parts;
        let operators = self.operators.iter().map(|(component, metrics)| {
            let counts = metrics.snapshot();
            OperatorReport {
                role: component.role,
                name: component.name.to_string(),
                counts,
                metric: metrics.metric(),
            }
        });
        let ledgers = self.ledgers.iter().filter(|_| with_files);
        PipelineView {
            name: self.name.clone(),
            is_fed: self.is_fed,
            started: self.started,
            state: match parts.phases.now() {
                Phase::Running => PipelineState::Running,
                _ => PipelineState::Stopping,
            },
            own: parts.own.snapshot(),
            operators: operators.collect(),
            is_on_disk: parts.queue.is_on_disk(),
            progress: sum(self.progress.iter().map(|input| input.get())),
            queue: parts.queue.depth(),
            outputs: parts.lanes.iter().map(|lane| lane.view()).collect(),
            unclaimed: parts.unclaimed.load(Ordering::Relaxed),
            refused: parts.lanes.iter().map(|lane| lane.lost()).sum(),
            files: ledgers.flat_map(|ledger| ledger.files()).collect(),
        }
    }
}

impl PipelineView {
    /// Events that its inputs have sent so far.
    pub fn events(&self) -> u64 {
        let inputs = self.operators.iter().filter(|it| it.role == Role::Input);
        inputs.map(|input| input.counts.events_out).sum()
    }
}

/// An operator that can be tapped.
struct TappedOperator<'a> {
    role: Role,
    name: String,
    tap: &'a TapPoint,
}

impl TappedOperator<'_> {
    /// Its name with its role, which no other operator of the pipeline has.
    fn full_name(&self) -> String {
        format!("{}:{}", self.role.word(), self.name)
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.full_name() == name
    }
}

/// How far several inputs are together.
pub(crate) fn sum(progress: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    progress.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

impl PipelineState {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }
}
