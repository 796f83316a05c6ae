//! The parts of a graph: pipelines, and the components in them.

use std::sync::Arc;

use component::{AnyOutput, Input, Order, Processor, WrittenFiles};
use expr::Expr;
use queue::QueueSettings;

use crate::settings::{OnFailure, RetrySettings, SendingSettings};

/// One pipeline, ready to run.
pub struct PipelineGraph {
    /// Its name.
    pub name: String,
    /// Its inputs.
    pub inputs: Vec<InputNode>,
    /// What its input is called where other pipelines feed it; it has no others then.
    pub fed: Option<String>,
    /// Its queue.
    pub queue: QueueSettings,
    /// Its processors, in order.
    pub stages: Vec<StageNode>,
    /// Its outputs.
    pub outputs: Vec<OutputNode>,
    /// A number that changes with what the configuration says of it.
    pub fingerprint: u64,
    /// How failed writes are repeated.
    pub retry: RetrySettings,
    /// What outputs write that its events go to, in this pipeline and in others.
    pub written: Arc<[Arc<WrittenFiles>]>,
    /// Whether the last output only shows what the others get, so that it does not count where events go to none.
    pub is_watched: bool,
    /// Whether it has only some of the outputs that its events are for, so that events that go to none of these are no surprise.
    pub is_part: bool,
}

/// An input with its name.
pub struct InputNode {
    /// Unique among the pipeline's inputs.
    pub name: String,
    /// The component.
    pub component: Box<dyn Input>,
}

/// A processor with the settings that every processor takes.
pub struct StageNode {
    /// Unique among the pipeline's processors: the name it was given, or one made of the component's.
    pub name: String,
    /// Whether the name was given.
    pub is_named: bool,
    /// The component's name.
    pub kind: &'static str,
    /// Of its settings, the same in every run and version: what was kept for another one cannot be used.
    pub fingerprint: u64,
    /// The component.
    pub component: Box<dyn Processor>,
    /// Whether it needs the batches in sequence.
    pub order: Order,
    /// Whether it gets sealed rows.
    pub sees_sealed: bool,
    /// Which events it handles.
    pub condition: Option<Expr>,
    /// What happens to events it cannot handle.
    pub on_failure: OnFailure,
    /// Whether they are dropped only because there is no data directory here, and become dead letters where there is one.
    pub would_bury: bool,
}

/// An output with the settings that every output takes.
pub struct OutputNode {
    /// Unique among the pipeline's outputs.
    pub name: String,
    /// The component.
    pub component: AnyOutput,
    /// Whether it needs the batches in sequence, where it is a writer.
    pub ordered: bool,
    /// How its requests are made, where it is a sender.
    pub sending: SendingSettings,
    /// Which events it takes.
    pub condition: Option<Expr>,
    /// The conditions of the other outputs, where it takes the events for which none of them holds.
    pub otherwise: Vec<Expr>,
    /// Processors that only its events go through, behind the pipeline's own.
    pub stages: Vec<StageNode>,
}

impl PipelineGraph {
    /// The pipelines that it feeds.
    pub fn targets(&self) -> Vec<String> {
        let targets = self.outputs.iter().filter_map(OutputNode::target);
        targets.map(str::to_owned).collect()
    }

    /// Whether a processor may keep a worker waiting.
    pub fn may_wait(&self) -> bool {
        let below = self.outputs.iter().flat_map(|output| &output.stages);
        let mut all = self.stages.iter().chain(below);
        all.any(|stage| stage.component.may_wait())
    }
}

impl OutputNode {
    /// The pipeline that it feeds, if it feeds one.
    pub fn target(&self) -> Option<&str> {
        match &self.component {
            AnyOutput::Feeder(feeder) => Some(feeder.pipeline()),
            _ => None,
        }
    }
}
