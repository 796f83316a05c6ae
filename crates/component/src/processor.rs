//! Processors: they change or filter the events of a batch.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldRead};

use crate::diagnostics::Warning;
use crate::series::Metric;

/// Whether a processor needs the batches in sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Batches come in any order; each worker has an instance.
    Stateless,
    /// One instance gets the batches in sequence.
    Ordered,
}

/// Changes or filters the events of a batch.
///
/// Results depend on the batch, its sequence and the configuration alone: randomness comes from the event id, the
/// current time is the batch's.
pub trait Processor: Fork + Send {
    /// Handles the rows it is given and leaves the others as they are. A row that it reports as failed must have its
    /// values from before; [`Batch::apply`] sees to that when all writes are in one edit.
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures;

    /// Events that it made of those before, to be handled right behind the batch that it was given last, since the last call. Their ids follow
    /// from those of other events, or from what they sum up. Called after every batch.
    fn take_derived(&mut self) -> Vec<Batch> {
        Vec::new()
    }

    /// Whether it makes events at the end of a run, so that [`Processor::end`] is called. Asked once, at the start.
    fn makes_at_end(&self) -> bool {
        false
    }

    /// No event follows: what it has still to tell of those before is to be taken as derived. `last` is a batch without events. A run that is stopped
    /// and goes on later with what its processors remember does not call it.
    fn end(&mut self, _last: &Batch) {}

    /// Whether it may wait for something that it asks, so that the CPU is idle meanwhile. Its pipeline then has workers of its own, and others do not
    /// wait with it. Asked once, at the start.
    fn may_wait(&self) -> bool {
        false
    }

    /// Tells how many processors of its kind the events have gone through in this pipeline. Called once, before the first
    /// batch and before [`Fork::fork`].
    fn place(&mut self, _before: usize) {}

    /// Tells where it stands, as no other processor does: the pipeline, the output that it belongs to, and its number. For ids of what it derives.
    fn stand_at(&mut self, _place: &str) {}

    /// Whether it makes sense only with a condition (`if`).
    fn needs_condition(&self) -> bool {
        false
    }

    /// The fields that it reads, as the user named them, so that a run can tell of one that no event had. Asked once, at the
    /// start, for all instances.
    fn reads(&self) -> Vec<Arc<FieldRead>> {
        Vec::new()
    }

    /// Whether it needs no further event: the input may end. Only asked of ordered processors.
    fn is_finished(&self) -> bool {
        false
    }

    /// Whether what it makes of an event depends on events before it, so that a later run has to know what it remembers. Only
    /// asked of ordered processors.
    fn remembers(&self) -> bool {
        false
    }

    /// What it remembers of all batches so far. Called between two batches, now and then; it keeps workers waiting.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Goes on from what another run saved, of a processor with the same configuration. Called before the first batch.
    ///
    /// # Errors
    /// It cannot be used, and why. The processor then remembers nothing.
    fn restore(&mut self, _saved: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// The metric that it makes of events, which all instances share. Asked once, at the start.
    fn metric(&self) -> Option<Arc<Metric>> {
        None
    }

    /// Adds to its metric what it measured of the last batch. Called unless the batch was handled before, as for an output that lags behind.
    fn measure(&mut self) {}

    /// Named counters beside the events that the engine counts itself, such as cache hits, since the last call.
    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What a user should hear, such as the error of an expression with the id of its event, since the last call. Whoever
    /// calls passes it on, with the processor's name, as often as its limit allows.
    fn take_warnings(&mut self) -> Vec<Warning> {
        Vec::new()
    }
}

/// Gives each worker an instance of its own. Every processor that implements [`Clone`] has it.
pub trait Fork {
    /// Another instance with the same configuration, made before the first batch. Large data is shared.
    fn fork(&self) -> Box<dyn Processor>;
}

impl<P: Processor + Clone + 'static> Fork for P {
    fn fork(&self) -> Box<dyn Processor> {
        Box::new(self.clone())
    }
}
