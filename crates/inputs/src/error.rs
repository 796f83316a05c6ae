//! Why an input ends early.

use std::io;

use component::InputError;
use config::ConfigError;
use nix::errno::Errno;
use registry::RegistryError;

/// Why an input ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// It was not opened before, and cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What is remembered of earlier runs cannot be read.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The system refuses the thread that it reads on.
    #[error("cannot create a reader thread: {0}")]
    ReaderThread(#[source] io::Error),
    /// The system refuses one of the threads that it reads on.
    #[error("cannot create reader threads: {0}")]
    ReaderThreads(#[source] io::Error),
    /// The system refuses a thread that decodes messages.
    #[error("the system cannot create another thread: {0}")]
    BatcherThread(#[source] io::Error),
    /// The system does not say where it listens.
    #[error("the local address cannot be determined: {0}")]
    LocalAddress(#[source] io::Error),
    /// The system gives no more datagrams.
    #[error("datagrams cannot be received: {0}")]
    Datagrams(#[source] Errno),
}

impl From<RunError> for InputError {
    fn from(error: RunError) -> Self {
        Self::new(error.to_string())
    }
}
