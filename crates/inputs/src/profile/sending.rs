//! Sends the events of a profile.

use component::{InputContext, Stopped};
use profiler::Profile;

use super::documents::Layout;
use crate::reading::emitter::now;
use crate::reading::filling::Filling;

/// Sends the events of a profile, waiting while the queue is full. Their ids consist of that of the stream, and their number.
///
/// # Errors
/// The pipeline takes no more.
pub(super) fn send(
    profile: &Profile,
    layout: &Layout,
    id: u128,
    path: Option<&str>,
    ctx: &InputContext,
) -> Result<(), Stopped> {
    let has_window = profile.window.duration_ns > 0;
    let time_ns = match has_window {
        true => profile.window.start_ns,
        false => now(),
    };
    let mut filling = Filling::new(ctx, id);
    layout.documents(profile, path, |document| filling.push(time_ns, document))?;
    filling.flush()
}
