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

    /// Waits for the next attempt; an error when the time is over or the run is to end.
    pub async fn wait(&mut self, phases: &Phases, reason: &str) -> Result<(), String> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let over = self
            .settings
            .give_up_after
            .is_some_and(|limit| since.elapsed() >= limit.0);
        if over || phases.now() == Phase::Aborted {
            return Err(reason.to_owned());
        }
        let pause = self.next();
        // Waiting ends early when the run is to end: one more attempt, then the error above. A queue that is left to ends it
        // too, which whoever waits looks at.
        let _ = tokio::time::timeout(pause, phases.reached(Phase::Leaving)).await;
        Ok(())
    }
}

/// The pause after so many others: each is twice as long as the one before, less a random part of up to half.
pub fn pause(settings: &RetrySettings, pauses: u32) -> Duration {
    let longest = settings.max.get().0;
    let pause = settings.initial.saturating_mul(1 << pauses.min(24));
    pause.min(longest).mul_f64(1.0 - fastrand::f64() / 2.0)
}

/// Runs a future to its end; the text of its panic where it panics.
pub async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let poll = || future.as_mut().poll(context);
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(text(&*panic))),
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
