//! Putting another configuration in the place of the one that runs.
//!
//! The new configuration is built and its components are opened before anything that runs is touched, so that what is wrong with it
//! changes nothing. A pipeline that is the same goes on untouched, unless it is linked with one that changes: pipelines that feed each
//! other change together. What changes or is gone ends as at a stop: its inputs end, its requests are settled, its cursors and
//! positions are saved. Then the new one opens the same folders and goes on from there. Sockets that both listen on stay open meanwhile
//! ([`component::kept`]).
//!
//! Settings at the top of the configuration are of the process and cannot change while it runs.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use crate::graph::{Graph, PipelineGraph};
use crate::start::StartError;

/// Requests that may wait.
const REQUESTS_MAX: usize = 16;

/// Why another configuration was not put in place.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A setting of the process is another one.
    #[error("`{0}` cannot change while Millpond runs; restart it")]
    Process(String),
    /// Something cannot start. If it is a setting, nothing has changed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The run is over, or about to be.
    #[error("Millpond is stopping")]
    Stopping,
}

/// What another configuration changed, by the names of pipelines in alphabetical order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that go on as before.
    pub unchanged: Vec<String>,
    /// Those that ended and started anew with other settings.
    pub changed: Vec<String>,
    /// Those that were not there before.
    pub added: Vec<String>,
    /// Those that are not there any more.
    pub removed: Vec<String>,
}

impl Changes {
    /// What there was, what is to be, and what of both is the same.
    pub(crate) fn new<'n, K>(
        old: &BTreeMap<String, K>,
        new: &BTreeMap<String, K>,
        same: impl Iterator<Item = &'n str>,
    ) -> Self {
        let mut unchanged: Vec<String> = same.map(str::to_owned).collect();
        unchanged.sort();
        let (changed, added) = new
            .keys()
            .filter(|name| !unchanged.contains(name))
            .cloned()
            .partition(|name| old.contains_key(name));
        let removed = old.keys().filter(|name| !new.contains_key(*name)).cloned();
        Self {
            unchanged,
            changed,
            added,
            removed: removed.collect(),
        }
    }

    /// The pipelines that end.
    pub(crate) fn ended(&self) -> impl Iterator<Item = &String> {
        self.changed.iter().chain(&self.removed)
    }
}

/// A configuration that is to be put in place.
pub(crate) struct Request {
    graph: Graph,
    answer: oneshot::Sender<Result<Changes, ReloadError>>,
}

impl Request {
    pub(crate) fn into_parts(self) -> (Graph, oneshot::Sender<Result<Changes, ReloadError>>) {
        (self.graph, self.answer)
    }
}

/// Puts other configurations in the place of the one that runs. Clones are the same.
#[derive(Clone)]
pub struct Reloader(mpsc::Sender<Request>);

impl Reloader {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (sender, receiver) = mpsc::channel(REQUESTS_MAX);
        (Self(sender), receiver)
    }

    /// Puts a configuration in place, and waits until it is.
    ///
    /// # Errors
    /// It cannot be put in place. Unless the disk or the system refuse something, everything goes on as before.
    pub async fn reload(&self, graph: Graph) -> Result<Changes, ReloadError> {
        let (answer, answered) = oneshot::channel();
        let request = Request { graph, answer };
        let sent = self.0.send(request).await;
        sent.map_err(|_| ReloadError::Stopping)?;
        answered.await.map_err(|_| ReloadError::Stopping)?
    }
}

/// For each pipeline, it and those that it is linked with in any way, as their places in ascending order.
pub(crate) fn groups(pipelines: &[PipelineGraph]) -> Vec<Vec<usize>> {
    let place = |name: &str| pipelines.iter().position(|pipeline| pipeline.name == name);
    let mut groups: Vec<usize> = (0..pipelines.len()).collect();
    for (index, pipeline) in pipelines.iter().enumerate() {
        for output in &pipeline.outputs {
            if let Some(fed) = output.target().and_then(place) {
                let (one, other) = (groups[index], groups[fed]);
                for group in &mut groups {
                    if *group == other {
                        *group = one;
                    }
                }
            }
        }
    }
    let of = |group: usize| {
        let places = groups.iter().enumerate();
        places
            .filter(|(_, other)| **other == group)
            .map(|(index, _)| index)
            .collect()
    };
    groups.iter().map(|group| of(*group)).collect()
}
