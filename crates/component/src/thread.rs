//! Threads for blocking work.
//!
//! Not those of the runtime ([`tokio::task::spawn_blocking`]): where the system refuses one, the runtime panics, or leaves
//! the work waiting until another thread is free, which may be never. Here whoever asks is told.

use std::io;
use std::thread::{Builder, JoinHandle, Result};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::activity;

/// Work on a thread of its own. Dropping this leaves the thread to itself.
#[derive(Debug)]
pub struct Work<T> {
    thread: JoinHandle<T>,
    /// Closed when the thread is about to end, however it ends.
    ended: oneshot::Receiver<()>,
}

/// Starts work on a thread of its own, which knows the caller's runtime, and works for what the caller works for.
///
/// # Errors
/// The system refuses another thread; then the work is dropped undone.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Work<T>> {
    let runtime = Handle::try_current().ok();
    let activity = activity::current();
    let (ends, ended) = oneshot::channel::<()>();
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let _ends = ends;
        let _runtime = runtime.as_ref().map(Handle::enter);
        let _activity = activity.enter();
        work()
    })?;
    Ok(Work { thread, ended })
}

impl<T> Work<T> {
    /// Whether the work has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// What it panicked with.
    pub async fn ended(self) -> Result<T> {
        let _ = self.ended.await;
        self.thread.join()
    }

    /// As [`Work::ended`], blocking the caller's thread.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> Result<T> {
        self.thread.join()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_ends_with_its_result_or_its_panic() {
        let runtime = Handle::current().id();
        let work = start("test", || Handle::current().id()).expect("a thread");
        assert_eq!(work.ended().await.expect("no panic"), runtime);
        let work = start("test", || panic!("as asked")).expect("a thread");
        let panic = work.ended().await.expect_err("it panicked");
        assert_eq!(panic.downcast_ref(), Some(&"as asked"));
    }
}
