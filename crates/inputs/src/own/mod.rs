//! What Millpond tells of itself as events: `metrics` and `internal_log`; and the events that it could not deliver: `dead_letters`.
//!
//! Numbers and messages come from [`component::Own`]. Of these, nothing is remembered across runs, and events that were made and not delivered
//! when the process is killed are lost, unless the pipeline has a disk queue.

pub(crate) mod letters;
pub(crate) mod log;
pub(crate) mod metrics;

use component::InputContext;

use crate::reading::emitter::now;
use crate::reading::identity::Identity;

/// An id of this run of an input.
fn run_id(ctx: &InputContext) -> u128 {
    let (host, began) = (ctx.host.name.as_bytes(), now().to_le_bytes());
    let process = std::process::id().to_le_bytes();
    Identity::new([host, ctx.scope.as_bytes(), &process, &began]).id()
}
