//! A thread that records one profile after the other.
//!
//! Each profile is of a *slice* of time, whose length divides the day: those of all hosts begin at the same times.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mio::Waker;

use super::{Options, Purposes, Recorded, Recorder, SamplingError};

/// How often the buffers of other processes are emptied.
const LOOK: Duration = Duration::from_millis(200);

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The kernel refuses.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The system refuses another thread.
    #[error("cannot create the thread that records: {0}")]
    Thread(#[from] io::Error),
}

/// The thread. It ends when this is stopped or dropped.
#[derive(Debug)]
pub struct Background {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    waker: Option<Arc<Waker>>,
    is_by_timers: bool,
}

impl Background {
    /// Begins to record. Threads that the caller starts from now on are sampled too. `each` gets what was recorded
    /// in each slice; the last one when it is stopped.
    ///
    /// # Errors
    /// The kernel refuses to sample, or the system to create a thread.
    pub fn start(
        options: &Options,
        purposes: Option<Purposes>,
        slice: Duration,
        mut each: impl FnMut(Recorded) + Send + 'static,
    ) -> Result<Self, BackgroundError> {
        let mut recorder = Recorder::start(options)?;
        if let Some(purposes) = purposes {
            recorder.label_own(purposes);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (waker, is_by_timers) = (recorder.waker(), recorder.is_by_timers());
        let look = if options.wakes { slice } else { LOOK };
        let over = is_over.clone();
        let run = move || {
            let mut end = slice_end(SystemTime::now(), slice);
            while !over.load(Ordering::Acquire) {
                let now = SystemTime::now();
                if now >= end {
                    end = slice_end(now, slice);
                    each(recorder.take());
                }
                let rest = end.duration_since(now).unwrap_or_default();
                recorder.wait(look.min(rest));
                recorder.drain();
            }
            recorder.stop();
            recorder.drain();
            each(recorder.take());
        };
        Ok(Self {
            thread: Some(Builder::new().name("profile".to_owned()).spawn(run)?),
            is_over,
            waker,
            is_by_timers,
        })
    }

    /// Whether the kernel's functions are missing, because timers take the samples.
    pub fn is_by_timers(&self) -> bool {
        self.is_by_timers
    }

    /// Ends recording and waits until the last profile was given.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(waker) = &self.waker {
            // One that cannot be woken ends with its slice.
            let _ = waker.wake();
        }
        if let Some(thread) = self.thread.take() {
            // A panic there has been said.
            let _ = thread.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

/// When the slice of a time ends.
fn slice_end(now: SystemTime, slice: Duration) -> SystemTime {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let slice_ns = slice.as_nanos().max(1);
    let rest_ns = slice_ns - since.as_nanos() % slice_ns;
    now + Duration::from_nanos(u64::try_from(rest_ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_end_at_multiples_of_their_length() {
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        for (now, end) in [(0, 1000), (1, 1000), (999, 1000), (1000, 2000)] {
            assert_eq!(slice_end(at(now), Duration::from_secs(1)), at(end), "{now}");
        }
    }
}
