//! Where a pipeline takes batches from other pipelines, instead of from inputs.
//!
//! It closes when the pipeline takes no more by its own doing: its outputs have failed, or want no more. The pipeline in turn ends
//! when everybody who feeds it has sent the last batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component::{OperatorMetrics, Phase, Phases};
use queue::{Inlet, Queue};

use crate::senders::{Senders, Sending};
use crate::tap::{TapPoint, TappedSink};

/// Where a pipeline takes batches from others.
pub struct Intake {
    pipeline: String,
    queue: Arc<Queue>,
    phases: Phases,
    metrics: Arc<OperatorMetrics>,
    /// Where the events that come in can be seen.
    tap: Arc<TapPoint>,
    is_satisfied: AtomicBool,
    /// Somebody who feeds it empties a disk queue into it at a stop.
    is_drained_into: AtomicBool,
    /// Those that still feed it.
    feeding: Arc<Senders>,
}

impl Intake {
    /// The intake of a pipeline that nobody feeds yet.
    pub fn new(pipeline: &str, queue: &Arc<Queue>, phases: &Phases) -> Arc<Self> {
        Arc::new(Self {
            pipeline: pipeline.to_owned(),
            queue: queue.clone(),
            phases: phases.clone(),
            metrics: Arc::default(),
            tap: Arc::default(),
            is_satisfied: AtomicBool::new(false),
            is_drained_into: AtomicBool::new(false),
            feeding: Arc::default(),
        })
    }

    /// Begins to feed it from the queue of another pipeline. `can_wait` says that what is not taken stays at its source.
    pub fn feed(self: &Arc<Self>, from: &Queue, can_wait: bool) -> (Sending, TappedSink<Inlet>) {
        if from.is_on_disk() && from.drains() {
            self.is_drained_into.store(true, Ordering::Relaxed);
        }
        let inlet = TappedSink {
            sink: Inlet {
                queue: self.queue.clone(),
                can_wait,
                repeats_in_order: false,
            },
            point: self.tap.clone(),
        };
        (self.feeding.begin(), inlet)
    }

    /// The pipeline's name.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// Where the events that come in can be seen.
    pub fn tap(&self) -> &Arc<TapPoint> {
        &self.tap
    }

    /// What came in.
    pub fn metrics(&self) -> &Arc<OperatorMetrics> {
        &self.metrics
    }

    /// Whether more may come at a stop than what feeders have in memory.
    pub fn is_drained_into(&self) -> bool {
        self.is_drained_into.load(Ordering::Relaxed)
    }

    /// Nobody in the pipeline wants more. To be said before the pipeline goes on to its end.
    pub fn satisfy(&self) {
        self.is_satisfied.store(true, Ordering::SeqCst);
    }

    /// Whether the pipeline takes no more because it wants no more.
    pub fn is_satisfied(&self) -> bool {
        self.is_satisfied.load(Ordering::SeqCst)
    }

    /// Whether the pipeline takes no more.
    pub fn is_closed(&self) -> bool {
        self.phases.now() >= Phase::Draining
    }

    /// Whether the pipeline has ended because the deadline of a stop was over.
    pub fn is_aborted(&self) -> bool {
        self.phases.now() == Phase::Aborted
    }

    /// Waits until the pipeline takes no more.
    pub async fn closed(&self) {
        self.phases.reached(Phase::Draining).await;
    }

    /// Waits until nobody feeds it any more.
    pub async fn ended(&self) {
        self.feeding.ended().await;
    }
}
