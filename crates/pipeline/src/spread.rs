//! A pipeline whose queue several machines share, as the pipelines that a machine runs of it.
//!
//! What lies before the queue is a pipeline of its own, with the name of the whole: its inputs, and an output that puts batches into the queue.
//! What lies behind it is one for each output, `NAME.OUTPUT`, or with `shared` one for all, `NAME.process`: an input that takes batches from
//! the queue, the processors, and the output. All of them have a queue in memory; receipts say what is safe, so that nothing of the engine is
//! different. Which of them a machine runs is a matter of its roles.

use std::collections::BTreeSet;
use std::sync::Arc;

use component::{AnyOutput, Order, Writer};
use config::{ConfigError, Node};
use kafka::queue::{KafkaQueue, QueueRole};
use queue::QueueSettings;

use crate::graph::{InputNode, OutputNode, PipelineGraph, StageNode};
use crate::registry::Registry;
use crate::settings::{RetrySettings, SendingSettings};

/// What the part that processes for all outputs is called, behind the name of the pipeline.
const PROCESS: &str = "process";

/// The output and the inputs that stand on the two sides of a queue.
const KIND: &str = "kafka_queue";

/// Builds the processors and outputs of the pipeline once more.
pub type Again<'b> = dyn FnMut() -> Result<(Vec<StageNode>, Vec<OutputNode>), ConfigError> + 'b;

/// Divides a pipeline. `node` holds what the configuration says of it.
///
/// # Errors
/// Something in the pipeline works on one machine only, or a setting of the queue cannot be used, at its place.
pub fn spread(
    registry: &Registry,
    pipeline: PipelineGraph,
    queue: &KafkaQueue,
    node: &Node,
    again: &mut Again<'_>,
) -> Result<Vec<PipelineGraph>, ConfigError> {
    check(&pipeline, queue, node)?;
    let PipelineGraph {
        name,
        inputs,
        fed,
        stages,
        outputs,
        ..
    } = pipeline;
    let part = |part_name| empty(part_name, pipeline.retry, pipeline.fingerprint);
    let mut parts = Vec::new();
    // Also where it is not used: a wrong setting is wrong on all machines.
    let to_queue = (registry.queue_output)(queue, &name)?;
    if queue.has(QueueRole::Receive) {
        parts.push(PipelineGraph {
            inputs,
            fed,
            outputs: vec![before(to_queue)],
            ..part(name.clone())
        });
    }
    let behind = |output: Option<&str>| -> Result<Vec<InputNode>, ConfigError> {
        let group = queue.group(&name, output)?;
        Ok(vec![InputNode {
            name: KIND.to_owned(),
            component: (registry.queue_input)(queue, &name, group)?,
        }])
    };
    if queue.own.shared {
        let inputs = behind(None)?;
        if queue.has(QueueRole::Process) {
            parts.push(PipelineGraph {
                inputs,
                stages,
                outputs,
                ..part(format!("{name}.{PROCESS}"))
            });
        }
        return Ok(parts);
    }
    let names: Vec<String> = outputs.iter().map(|output| output.name.clone()).collect();
    let mut built = Some((stages, outputs));
    for (index, output) in names.iter().enumerate() {
        let inputs = behind(Some(output))?;
        if !queue.has(QueueRole::Process) {
            continue;
        }
        let (stages, mut outputs) = match built.take() {
            Some(built) => built,
            None => again()?,
        };
        parts.push(PipelineGraph {
            inputs,
            stages,
            outputs: vec![outputs.swap_remove(index)],
            is_part: names.len() > 1,
            ..part(format!("{name}.{output}"))
        });
    }
    Ok(parts)
}

/// A part of a pipeline, with nothing in it yet.
fn empty(name: String, retry: RetrySettings, fingerprint: u64) -> PipelineGraph {
    PipelineGraph {
        name,
        inputs: Vec::new(),
        fed: None,
        queue: QueueSettings::default(),
        stages: Vec::new(),
        outputs: Vec::new(),
        fingerprint,
        retry,
        written: Arc::default(),
        is_watched: false,
        is_part: false,
    }
}

/// The output in front of the queue.
fn before(queue: Arc<dyn Writer>) -> OutputNode {
    OutputNode {
        name: KIND.to_owned(),
        component: AnyOutput::Writer(queue),
        ordered: true,
        sending: SendingSettings::default(),
        condition: None,
        otherwise: Vec::new(),
        stages: Vec::new(),
    }
}

/// Refuses what works on one machine only.
fn check(pipeline: &PipelineGraph, queue: &KafkaQueue, node: &Node) -> Result<(), ConfigError> {
    let below = pipeline.outputs.iter().flat_map(|output| &output.stages);
    let ordered = |stage: &&StageNode| stage.order == Order::Ordered;
    if let Some(stage) = pipeline.stages.iter().chain(below).find(ordered) {
        let error = node.nearest("processors").error(format!(
            "`{}` needs all events in sequence, and with `queue: kafka` each machine has only some of them",
            stage.kind
        ));
        return Err(error.note(
            "have the pipeline write to another one on a single machine, which has the processor and `queue: disk`",
        ));
    }
    let measures = |stage: &&StageNode| stage.component.metric().is_some();
    if pipeline.outputs.len() > 1
        && !queue.own.shared
        && let Some(stage) = pipeline.stages.iter().find(measures)
    {
        let error = node.nearest("processors").error(format!(
            "`{}` would count each event once for each output",
            stage.kind
        ));
        return Err(
            error.note("set `shared: true` in the queue, or put it below one of the outputs")
        );
    }
    Ok(())
}

/// Checks that no two pipelines have the same name.
///
/// # Errors
/// Two have, at the name of one of them.
pub fn check_names(pipelines: &[(PipelineGraph, Node)]) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for (pipeline, place) in pipelines {
        let name = &pipeline.name;
        if !names.insert(name) {
            return Err(place.error(format!(
                "a part of another pipeline with `queue: kafka` is called `{name}`, too"
            )));
        }
    }
    Ok(())
}
