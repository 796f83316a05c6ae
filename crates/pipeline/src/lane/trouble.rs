//! What an output says of requests that fail: the first reason at once, others and the same one after a while, and when it works again.

use std::time::{Duration, Instant};

use super::Common;
use crate::report::time;

/// How long a reason that was said is not said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How long another reason is not said: every answer of a server may have another text.
const SAY_ANOTHER: Duration = Duration::from_secs(5);

/// How long an output must have failed for it to be worth saying that it works again.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// What failed and was said.
#[derive(Default)]
pub struct Trouble(Option<Said>);

struct Said {
    /// When it began to fail; none while it works.
    since: Option<Instant>,
    reason: String,
    at: Instant,
}

impl Trouble {
    /// What was said last.
    pub fn reason(&self) -> Option<&str> {
        self.0.as_ref().map(|said| &*said.reason)
    }

    /// Says why requests fail, unless that was said a short while ago.
    pub fn say(&mut self, common: &Common, reason: &str) {
        common.gauges.failed(reason, false);
        let now = Instant::now();
        let is_known = self.0.as_ref().is_some_and(|said| {
            let quiet = match said.reason == reason {
                true => SAY_AGAIN,
                false => SAY_ANOTHER,
            };
            now.duration_since(said.at) < quiet
        });
        let since = match &mut self.0 {
            Some(said) => *said.since.get_or_insert(now),
            None => now,
        };
        if is_known {
            return;
        }
        let meanwhile = common.meanwhile();
        common
            .diagnostics
            .warn(&format!("{reason}; retrying{meanwhile}"));
        self.0 = Some(Said {
            since: Some(since),
            reason: reason.to_owned(),
            at: now,
        });
    }

    /// Nothing fails any more: says so where something did for a while.
    pub fn recover(&mut self, common: &Common) {
        common.gauges.recovered();
        let since = self.0.as_mut().and_then(|said| said.since.take());
        if let Some(since) = since.filter(|since| since.elapsed() >= WORTH_SAYING) {
            let after = time(since.elapsed());
            common
                .diagnostics
                .info(&format!("works again after {after}"));
        }
    }
}
