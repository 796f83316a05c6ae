//! Every pipeline's queue, opened before anything runs.

use std::sync::Arc;

use component::{Order, Role};
use queue::{Bell, DiskBudget, DiskOptions, Mode, Queue, QueueError, QueueSettings};

use crate::graph::{Graph, PipelineGraph, StageNode};
use crate::start::RunOptions;

/// Every pipeline's queue, in order. They ring one bell for the workers.
pub fn open_queues(
    graph: &Graph,
    options: &RunOptions,
    bell: &Arc<Bell>,
) -> Result<Vec<Arc<Queue>>, QueueError> {
    let shared = graph.process.max_disk_bytes.map(|size| {
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
            return Ok(Queue::memory(limits, pipeline.outputs.len(), bell.clone()));
        };
        let names: Vec<&str> = pipeline
            .outputs
            .iter()
            .map(|output| &*output.name)
            .collect();
        let settings = disk.effective(shared.as_ref().map(|(_, share)| *share));
        let mode = match &pipeline.queue {
            QueueSettings::Disk(_) => Mode::Everything,
            QueueSettings::Memory(_) => Mode::Overflow,
        };
        let is_stateless = |stage: &StageNode| stage.order == Order::Stateless;
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
            may_part: pipeline.stages.iter().all(is_stateless),
            budget: shared.as_ref().map(|(budget, _)| budget.clone()),
            bell: bell.clone(),
            metrics,
            diagnostics,
            ..DiskOptions::new(settings, &names)
        };
        Queue::open(&folder, options)
    };
    graph.pipelines.iter().map(open).collect()
}
