//! Calling an output: pauses between attempts, and panics that become errors.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use component::{Phase, Phases};

use crate::settings::RetrySettings;

/// Pauses between attempts.
pub struct Pause {
    settings: RetrySettings,
    /// Pauses so far.
    pauses: u32,
    since: Option<Instant>,
    /// The reason that was said last.
    said: Option<String>,
}

impl Pause {
    pub fn new(settings: RetrySettings) -> Self {
        Self {
            settings,
            pauses: 0,
            since: None,
            said: None,
        }
    }

    /// Whether a reason is news: the first one, or another one than before.
    pub fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.said.as_deref() != Some(reason);
        if is_news {
            self.said = Some(reason.to_owned());
        }
        is_news
    }

    /// Since when attempts fail, where a reason was said.
    pub fn failing_since(&self) -> Option<Instant> {
        self.since.filter(|_| self.said.is_some())
    }

    /// How long the next pause is.
    pub fn next(&mut self) -> Duration {
        self.pauses += 1;
        pause(&self.settings, self.pauses - 1)
    }

    /// Waits for the next attempt; whether there is one, as the time is not over and the run is not to end.
    pub async fn wait(&mut self, phases: &Phases) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let over = self
            .settings
            .give_up_after
            .is_some_and(|limit| since.elapsed() >= limit.0);
        if over || phases.now() == Phase::Aborted {
            return false;
        }
        let pause = self.next();
        // Waiting ends early when the run is to end: one more attempt, then none as above. A queue that is left to ends it
        // too, which whoever waits looks at.
        let _ = tokio::time::timeout(pause, phases.reached(Phase::Leaving)).await;
        true
    }
}

/// The pause after so many others: each is twice as long as the one before, less a random part of up to half.
pub fn pause(settings: &RetrySettings, pauses: u32) -> Duration {
    let longest = settings.max.get().0;
    let pause = settings.initial.saturating_mul(1 << pauses.min(24));
    pause.min(longest).mul_f64(1.0 - fastrand::f64() / 2.0)
}

/// That something panicked, and what the panic says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Panicked(String);

impl Panicked {
    /// By what `catch_unwind` gives.
    pub fn new(panic: &(dyn Any + Send)) -> Self {
        Self(text(panic))
    }
}

/// Runs a future to its end, unless it panics.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let poll = || future.as_mut().poll(context);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(Panicked::new(&*panic))),
        }
    })
    .await
}

/// What a panic says.
pub fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("unknown reason").to_owned()
}
