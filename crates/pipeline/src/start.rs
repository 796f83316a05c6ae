//! What a run is started with, and why it may not start.

use std::io;
use std::sync::Arc;

use batch::HostInfo;
use component::{Activities, Diagnostics, Own, Stop};
use config::{ConfigError, Period};
use queue::QueueError;
use registry::Registry;

use crate::settings::RetrySettings;
use crate::view::View;

/// How retries of a one-line pipeline end when the configuration does not say.
const GIVE_UP_AFTER: Period = Period::from_secs(30);

/// Why a run could not start. Nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A disk queue cannot be used.
    #[error(transparent)]
    Queue(QueueError),
    /// A setting cannot work, such as a port that is taken.
    #[error(transparent)]
    Setting(ConfigError),
    /// A component panicked while it was made ready.
    #[error("internal error: {0}")]
    Panic(String),
    /// The system refuses threads.
    #[error(
        "the system cannot create another thread: {0}; raise the limit on processes and threads (`ulimit -u`, `pids.max`, `TasksMax`), or set fewer `workers`"
    )]
    Threads(io::Error),
}

impl From<QueueError> for StartError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Thread(error) => Self::Threads(error),
            error => Self::Queue(error),
        }
    }
}

/// What a run gets beside its configuration.
#[derive(Clone)]
pub struct RunOptions {
    /// Facts of this machine.
    pub host: Arc<HostInfo>,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
    /// Where threads note what they work for.
    pub activities: Activities,
    /// Whether the run is over when its inputs end: retries are then given up after a while.
    pub finite: bool,
    /// Asks the run to stop: inputs end, what was accepted is delivered.
    pub stop: Stop,
    /// What inputs remember across runs; none where nothing is remembered.
    pub registry: Option<Arc<Registry>>,
    /// Whether the report tells of every file.
    pub ledger: bool,
    /// Whether nothing is read: the run carries out what is asked for dead letters, and ends.
    pub replays: bool,
    /// Where the pipelines can be looked at while they run.
    pub view: View,
    /// What the process tells of itself, for inputs that make events of it.
    pub own: Own,
}

impl RunOptions {
    /// How writes of a pipeline are repeated.
    pub(crate) fn retry(&self, mut retry: RetrySettings) -> RetrySettings {
        if self.finite && retry.give_up_after.is_none() {
            retry.give_up_after = Some(GIVE_UP_AFTER);
        }
        retry
    }
}
