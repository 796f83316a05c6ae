//! What the pipelines did in the last 1, 5 and 15 minutes, and what limited them.
//!
//! It is found once for each look, which is taken every five seconds, so that many requests cost no more than one.

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock};
use pipeline::View;
use pipeline::usage::Reading;
use pipeline::verdict::Shares;
use pipeline::view::{PipelineState, PipelineView};
use pipeline::windows::{Counted, Window, Windows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a pipeline did in one window.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WindowStats {
    /// Its length: 60, 300 or 900.
    pub seconds: u64,
    /// The time that was looked at, in seconds: less than the length where the pipeline, or Millpond, has not run as long.
    pub wall_seconds: f64,
    /// Events that its inputs brought in, in a second.
    pub events_per_second: f64,
    /// What limited the pipeline, and what would help.
    pub verdict: String,
    /// The operator that limited it; null where it was the machine, or nothing.
    pub limits: Option<OperatorName>,
    /// How its operators spent the time, in the order of the flow.
    pub operators: Vec<OperatorShares>,
}

/// Which operator.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OperatorName {
    /// `input`, `queue`, `processor` or `output`.
    pub role: String,
    /// Its name.
    pub name: String,
}

/// How an operator spent the time. The three shares add up to 1.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OperatorShares {
    /// `input`, `queue`, `processor` or `output`.
    pub role: String,
    /// Its name.
    pub name: String,
    /// CPU time, in seconds of CPU time a second.
    pub cpus: f64,
    /// The share of the time that it was at work.
    pub busy_share: f64,
    /// The share that it waited for what comes from the stage before it, or from its source.
    pub waiting_for_input_share: f64,
    /// The share that it waited for the stage behind it, for its destination or for the disk.
    pub waiting_for_output_share: f64,
}

/// Looks at the pipelines again and again.
pub struct Watching {
    windows: Mutex<Windows>,
    found: RwLock<BTreeMap<String, Vec<WindowStats>>>,
}

impl Watching {
    /// Of a process with so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            windows: Mutex::new(Windows::new(workers)),
            found: RwLock::default(),
        }
    }

    /// Takes a look.
    pub fn look(&self, view: &View) {
        let pipelines = view.look(false).into_iter();
        let running = pipelines.filter(|it| it.state != PipelineState::Ended);
        let counted: BTreeMap<_, _> = running.map(counted).collect();
        let names: Vec<String> = counted.keys().cloned().collect();
        let mut windows = self.windows.lock();
        windows.look(Reading::now(), counted);
        let found = names.into_iter().map(|name| {
            let of_it = windows.of(&name).iter().map(WindowStats::of).collect();
            (name, of_it)
        });
        let found = found.collect();
        drop(windows);
        *self.found.write() = found;
    }

    /// What was found of a pipeline, shortest window first. Empty until there were two looks at it.
    pub fn of(&self, pipeline: &str) -> Vec<WindowStats> {
        self.found.read().get(pipeline).cloned().unwrap_or_default()
    }
}

fn counted(pipeline: PipelineView) -> (String, Counted) {
    let counted = Counted {
        own: pipeline.own,
        operators: pipeline.operators,
        oldest: pipeline.queue.oldest.unwrap_or_default(),
    };
    (pipeline.name, counted)
}

impl WindowStats {
    fn of(window: &Window) -> Self {
        let wall = window.usage.wall.as_secs_f64().max(1e-9);
        let operators = &window.counted.operators;
        let inputs = operators.iter().filter(|it| it.role.word() == "input");
        let events: u64 = inputs.map(|it| it.counts.events_out).sum();
        let limits = window.verdict.limits.as_ref();
        Self {
            seconds: window.length.as_secs(),
            wall_seconds: wall,
            events_per_second: events as f64 / wall,
            verdict: window.verdict.text.clone(),
            limits: limits.map(|it| OperatorName {
                role: it.role.word().to_owned(),
                name: it.name.to_string(),
            }),
            operators: operators
                .iter()
                .zip(&window.shares)
                .map(|(operator, shares)| {
                    let Shares {
                        busy,
                        waiting_for_input,
                        waiting_for_output,
                    } = *shares;
                    OperatorShares {
                        role: operator.role.word().to_owned(),
                        name: operator.name.clone(),
                        cpus: operator.counts.cpu.as_secs_f64() / wall,
                        busy_share: busy,
                        waiting_for_input_share: waiting_for_input,
                        waiting_for_output_share: waiting_for_output,
                    }
                })
                .collect(),
        }
    }
}
