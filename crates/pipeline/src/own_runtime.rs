//! A runtime for the thread of one output.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// A runtime for one thread. Dropping it does not wait for what it still does, such as looking up a host's name, so that it may be
/// dropped anywhere.
pub struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    /// A runtime with timers and network.
    ///
    /// # Errors
    /// The system refuses what it needs.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// Does work on the caller's thread until it is done.
    pub fn block_on(&self, work: impl Future<Output = ()>) {
        if let Some(runtime) = &self.0 {
            runtime.block_on(work);
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
