//! Hands chunks over to a thread that makes batches of them: what is compressed is inflated by one thread and split by
//! another, where there is a second core, because inflating takes longer than the rest.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use component::thread::Work;

use super::emitter::End;

/// Chunks on their way, beside the one that each thread works on.
const CHUNKS_BETWEEN: usize = 4;

/// Why a chunk of a stream could not be sent, so that none behind it may be.
pub(crate) type Failure = OnceLock<End>;

/// What a thread splits and sends, in order.
enum Piece<T> {
    /// A chunk, with what its stream has failed with.
    Chunk(T, Arc<Failure>),
    /// Asks to be told when everything before it was sent.
    Mark(SyncSender<()>),
}

/// The way to the thread that splits.
pub(crate) struct Splitting<T>(SyncSender<Piece<T>>);

impl<T> Clone for Splitting<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + 'static> Splitting<T> {
    /// Starts a thread that sends chunks with `send`, until nobody hands any over.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub(crate) fn start(
        mut send: impl FnMut(T) -> Result<(), End> + Send + 'static,
    ) -> io::Result<(Self, Work<()>)> {
        let (pieces, received) = sync_channel(CHUNKS_BETWEEN);
        let split = move || {
            for piece in received {
                match piece {
                    Piece::Chunk(chunk, failure) => {
                        if failure.get().is_none()
                            && let Err(end) = send(chunk)
                        {
                            // This thread alone sets it.
                            let _ = failure.set(end);
                        }
                    }
                    // Who waits may have given up.
                    Piece::Mark(mark) => drop(mark.send(())),
                }
            }
        };
        let thread = component::thread::start("split", split)?;
        Ok((Self(pieces), thread))
    }

    /// Hands over a chunk of a stream.
    ///
    /// # Errors
    /// One before it could not be sent.
    pub(crate) fn send(&self, chunk: T, failure: &Arc<Failure>) -> Result<(), End> {
        if failure.get().is_some() {
            return Err(End::Stopped);
        }
        let sent = self.0.send(Piece::Chunk(chunk, failure.clone()));
        sent.map_err(|_| End::Stopped)
    }

    /// Waits until everything that was handed over is sent, so that what is read next follows it.
    pub(crate) fn wait(&self) {
        let (mark, done) = sync_channel(1);
        if self.0.send(Piece::Mark(mark)).is_ok() {
            let _ = done.recv();
        }
    }
}

/// Whether splitting on a thread of its own saves time.
pub(crate) fn is_worthwhile() -> bool {
    thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

/// Waits until a thread has ended.
pub(crate) fn join(thread: Work<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
