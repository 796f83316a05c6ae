//! A run: threads, the end of the inputs, and stopping.
//!
//! Inputs and the signal handler live on one runtime; workers, which all pipelines share, and lanes are threads of their own,
//! because their work is processing and blocking writes. How far a pipeline is on its way to its end is one
//! [`component::Phase`], which everybody watches. A run ends when its inputs have ended and every output has taken everything, when
//! nobody wants more (an ordered processor is finished, or the reader is gone), or at the deadline after a stop.
//!
//! Another configuration can take the place of the one that runs ([`Reloader`]).

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use component::Component;
use component::kept::{Attempt, Kept};
use component::thread::Work;
use tokio::sync::mpsc;

use crate::fleet::{Fleet, Known, Process, known, open_components};
use crate::graph::Graph;
use crate::reload::{Reloader, Request};
use crate::report::Report;
use crate::running::Running;
use crate::start::{RunOptions, StartError};
use crate::usage::Reading;
use crate::view::{PipelineView, sum};

/// How many events every operator has handled so far: its pipeline, the operator, events.
pub type Handled = Arc<dyn Fn() -> Vec<(Arc<str>, Component, u64)> + Send + Sync>;

/// A run in progress.
pub struct Run {
    process: Process,
    known: BTreeMap<String, Known>,
    pipelines: Vec<Running>,
    /// The pool.
    threads: Vec<Work<()>>,
    reloader: Reloader,
    requests: mpsc::Receiver<Request>,
    begin: Reading,
}

impl Run {
    /// Starts every pipeline.
    ///
    /// # Errors
    /// A setting cannot work, a disk queue cannot be used, or the system cannot create another thread; then nothing was read.
    pub async fn start(mut graph: Graph, options: RunOptions) -> Result<Self, StartError> {
        let begin = Reading::now();
        let known = known(&graph);
        let kept = Arc::<Kept>::default();
        open_components(&mut graph.pipelines, &kept, &Attempt::new(Vec::new())).await?;
        if options.finite {
            // It takes no other configuration.
            kept.forget();
        }
        let (process, pipelines) = Process::new(graph, kept, options);
        let mut pipelines = process.set_up(pipelines)?;
        let mut threads = Vec::new();
        if let Err(error) = start_threads(&process, &mut pipelines, &mut threads) {
            process.call_off(pipelines);
            // Panics there have been said.
            threads.into_iter().for_each(|worker| drop(worker.join()));
            return Err(StartError::Threads(error));
        }
        // Nothing is read before everything is there to take it.
        pipelines.iter_mut().for_each(Running::start_inputs);
        let (reloader, requests) = Reloader::new();
        Ok(Self {
            process,
            known,
            pipelines,
            threads,
            reloader,
            requests,
            begin,
        })
    }

    /// Puts other configurations in the place of the one that runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// How far the finite inputs are: bytes read, bytes in all.
    pub fn progress(&self) -> Arc<dyn Fn() -> (u64, u64) + Send + Sync> {
        let view = self.process.view().clone();
        Arc::new(move || sum(view.look(false).iter().map(|pipeline| pipeline.progress)))
    }

    /// Events that inputs have sent so far.
    pub fn events(&self) -> Arc<dyn Fn() -> u64 + Send + Sync> {
        let view = self.process.view().clone();
        Arc::new(move || {
            let pipelines = view.look(false);
            let read = pipelines.iter().filter(|pipeline| !pipeline.is_fed);
            read.map(PipelineView::events).sum()
        })
    }

    /// How many events every operator has handled so far.
    pub fn handled(&self) -> Handled {
        let view = self.process.view().clone();
        Arc::new(move || {
            let mut handled = Vec::new();
            for pipeline in view.look(false) {
                let name: Arc<str> = pipeline.name.into();
                handled.extend(pipeline.operators.into_iter().map(|operator| {
                    let component = Component::new(operator.role, &operator.name);
                    let counts = operator.counts;
                    let events = counts.events_in.max(counts.events_out);
                    (name.clone(), component, events)
                }));
            }
            handled
        })
    }

    /// Waits for the end of every pipeline and says what they did.
    pub async fn finish(mut self) -> Report {
        let mut fleet = Fleet::new(self.process, self.known);
        fleet.add(self.pipelines);
        let pipelines = fleet.run(&mut self.requests).await;
        // Workers that found no pipeline left have ended; one that is stuck in a processor is not waited for.
        drop(self.threads);
        Report {
            pipelines,
            usage: self.begin.usage(fleet.process().workers()),
            runtime_cpu: fleet.process().runtime_cpu(),
        }
    }
}

/// Starts the threads. Those of the pool are in `threads` also where the system refuses another one.
fn start_threads(
    process: &Process,
    pipelines: &mut [Running],
    threads: &mut Vec<Work<()>>,
) -> io::Result<()> {
    process.pool().start(threads)?;
    pipelines.iter_mut().try_for_each(Running::start_threads)
}
