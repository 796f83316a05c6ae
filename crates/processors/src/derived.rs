//! Events that a processor makes of others, until the engine takes them.

use batch::Batch;

/// Batches to be handled right behind the one that the processor was given.
#[derive(Debug, Default)]
pub(crate) struct Derived(Vec<Batch>);

/// They are taken before a processor is cloned.
impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Derived {
    /// Adds one.
    pub fn push(&mut self, batch: Batch) {
        self.0.push(batch);
    }

    /// Gives all of them.
    pub fn take(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.0)
    }
}
