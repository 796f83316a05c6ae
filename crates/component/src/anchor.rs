//! What an output that collects has to know of the queue, so that nothing comes twice after a crash.
//!
//! In a disk queue, a batch has the same sequence in every run, and what an output has not passed comes again. Before something with rows of
//! a range of batches becomes visible, the output writes down the range and the name ([`Anchor::write`]). When the batches come again
//! after a crash, it makes the same thing of the same range once more, or leaves the rows out if it knows that the thing was complete.
//! Two limits hold: a range is written down only when its batches are safe in the log ([`Anchor::settled`]), because their sequences could
//! otherwise belong to other batches after a crash; and what was written down may be forgotten only when the batches do not come
//! again ([`Anchor::passed`]).

use std::io;

/// What a queue on disk tells an output about the batches that it gets, and where the output keeps what it has to know after a crash.
pub trait Anchor: Send + Sync {
    /// Batches with a sequence below this have the same sequence in every later run.
    fn settled(&self) -> u64;

    /// Batches with a sequence below this do not come again, in this run or a later one.
    fn passed(&self) -> u64;

    /// What was written last; nothing if nothing was.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Replaces what was written. It is on disk afterwards.
    ///
    /// # Errors
    /// The system refused; then what was written before is still there.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;
}
