//! Where a batch enters a pipeline, when that is not its beginning.
//!
//! Dead letters are handed to their pipeline again as ordinary batches, so that they pass the queue like all others. What
//! they have gone through already they do not go through twice: the batch itself says where it goes on, also in its stored form.

use std::fmt;
use std::sync::Arc;

/// Where a batch that was handed to its pipeline again goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reentry {
    /// At the beginning: it goes through everything.
    Start,
    /// At a processor, and from there to all outputs.
    Processor {
        /// Its place among the pipeline's processors, counted from 0.
        index: u32,
        /// The component's name.
        name: Arc<str>,
    },
    /// At one output, behind all processors; the others do not get it.
    Output {
        /// The output's name.
        name: Arc<str>,
    },
    /// At a processor of one output, and from there to this output; the others do not get it.
    OutputProcessor {
        /// The output's name.
        output: Arc<str>,
        /// Its place among the output's processors, counted from 0.
        index: u32,
        /// The component's name.
        name: Arc<str>,
    },
}

impl fmt::Display for Reentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("the beginning"),
            Self::Processor { index, name } => write!(f, "processor {name} (number {})", index + 1),
            Self::Output { name } => write!(f, "output {name}"),
            Self::OutputProcessor {
                output,
                index,
                name,
            } => write!(
                f,
                "processor {name} (number {}) of output {output}",
                index + 1
            ),
        }
    }
}
