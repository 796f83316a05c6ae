//! The lines in which inputs wait for room.
//!
//! Invariant: of those that wait in a line only the first one looks whether there is room, and they are first in the order in
//! which they came. Whoever comes while somebody waits goes to the end. One that leaves, let in or not, lets the next one look.
//! So however many wait, a change of the queue wakes one of a line, and a batch that is let in costs two looks.
//!
//! Inputs whose source keeps what was not read (`Input::can_wait`: `file`, `generate`, replays, and pipelines that are fed by
//! such inputs alone) stand in a line of their own where the queue is on disk: they wait for the outputs where the others only
//! wait for the disk, so either would hold up the other without need. While outputs make progress, a file input waits for space in
//! memory, because its source is already on disk; otherwise a long file would be written to disk a second time and read back. It
//! never waits for one output while another is idle (`Queue::waits_for_outputs`).

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::{Mutex, MutexGuard};

/// A line of inputs that wait for room.
#[derive(Default)]
pub struct Line {
    /// Held by the first. Those behind wait for it, and get it in turn.
    first: Mutex<()>,
    /// How many wait, the first included.
    length: AtomicUsize,
    /// How often somebody of the line looked.
    #[cfg(test)]
    pub looks: AtomicUsize,
}

/// The first place in a line, which is left when this is dropped.
pub struct First<'a> {
    _first: MutexGuard<'a, ()>,
    _place: Waiting<'a>,
}

/// A place in a line.
struct Waiting<'a>(&'a Line);

impl Line {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.length.load(SeqCst) == 0
    }

    /// Waits until everybody who came before has left. Whoever stops waiting leaves the line.
    pub async fn wait(&self) -> First<'_> {
        self.length.fetch_add(1, SeqCst);
        let place = Waiting(self);
        First {
            _first: self.first.lock().await,
            _place: place,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.length.fetch_sub(1, SeqCst);
    }
}
