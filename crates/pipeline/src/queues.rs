//! Every pipeline's queue, opened before anything runs.

use std::path::Path;
use std::sync::Arc;

use component::{Order, Role};
use queue::{Bell, DiskBudget, DiskOptions, Mode, Queue, QueueError, QueueSettings};

use crate::graph::{PipelineGraph, StageNode};
use crate::start::RunOptions;

/// The queues of pipelines, in order. Each rings the bell of its workers. `shared` is the disk that those without a size of their own
/// share, and the share of each.
///
/// # Errors
/// A disk queue cannot be used.
pub fn open_queues(
    pipelines: &[PipelineGraph],
    data_dir: Option<&Path>,
    shared: Option<&(Arc<DiskBudget>, u64)>,
    options: &RunOptions,
    bells: &[Arc<Bell>],
) -> Result<Vec<Arc<Queue>>, QueueError> {
    let open = |(pipeline, bell): (&PipelineGraph, &Arc<Bell>)| {
        let limits = pipeline.queue.limits();
        let disk = pipeline.queue.disk();
        let folder = disk.and_then(|disk| disk.folder(data_dir, &pipeline.name));
        let (Some(disk), Some(folder)) = (disk, folder) else {
            return Ok(Queue::memory(limits, pipeline.outputs.len(), bell.clone()));
        };
        let names: Vec<&str> = pipeline
            .outputs
            .iter()
            .map(|output| &*output.name)
            .collect();
        let settings = disk.effective(shared.map(|(_, share)| *share));
        let mode = match &pipeline.queue {
            QueueSettings::Disk(_) => Mode::Everything,
            QueueSettings::Memory(_) | QueueSettings::Kafka(_) => Mode::Overflow,
        };
        let stages = pipeline.stages.iter();
        let ordered: Vec<&StageNode> = stages.filter(|it| it.order == Order::Ordered).collect();
        let remembers = |stage: &&StageNode| stage.component.remembers();
        let is_stored = mode == Mode::Everything;
        let diagnostics = options
            .diagnostics
            .for_pipeline(&pipeline.name)
            .for_component(Role::Queue, "disk");
        // What the queue does is its own work, on its own thread.
        let metrics = Arc::default();
        let _entered = options.activities.of(&diagnostics, &metrics).enter();
        let options = DiskOptions {
            mode,
            limits,
            // What ends with a number of events, as `head` does, ends for all outputs at once.
            may_part: ordered.is_empty() || (is_stored && ordered.iter().all(remembers)),
            is_ordered: !ordered.is_empty(),
            keeps_snapshots: is_stored && ordered.iter().any(remembers),
            budget: shared.map(|(budget, _)| budget.clone()),
            share: shared.map_or(u64::MAX, |(_, share)| *share),
            bell: bell.clone(),
            metrics,
            diagnostics,
            ..DiskOptions::new(settings, &names)
        };
        Queue::open(&folder, options)
    };
    pipelines.iter().zip(bells).map(open).collect()
}
