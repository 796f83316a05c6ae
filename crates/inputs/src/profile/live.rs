//! Samples this machine: an interval after the other.
//!
//! The thread that samples never waits. What it gives waits in a [`Mailbox`] for the input's thread, which looks up names and
//! sends events. Where that thread waits for the queue, intervals are joined to one, up to [`STACKS_MAX`] stacks; what is beyond is
//! dropped and counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use component::{InputContext, Limit, Stopped, plural};
use config::Period;
use parking_lot::{Condvar, Mutex};
use profiler::Profile;
use profiler::profile::FrameKind;
use profiler::sampling::background::BackgroundError;
use profiler::sampling::{Background, Hint, Options, Recorded};
use profiler::symbols::Symbols;
use profiler::symbols::kernel::KernelError;

use super::documents::Layout;
use super::sending::send;
use crate::reading::identity::Identity;

/// How many distinct stacks wait at most.
const STACKS_MAX: usize = 200_000;

/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// What was sampled and not yet taken.
#[derive(Debug, Default)]
struct Waiting {
    profile: Option<Profile>,
    /// Intervals that were added to one before them.
    merged: u64,
    /// Samples that found no room.
    dropped: u64,
    /// What would show more of programs.
    hints: Vec<Hint>,
}

impl Waiting {
    fn add(&mut self, profile: Profile, stacks_max: usize) {
        match &mut self.profile {
            _ if profile.is_empty() && profile.lost == 0 => {}
            None => self.profile = Some(profile),
            Some(waiting) if waiting.len() + profile.len() <= stacks_max => {
                waiting.merge(&profile, |_| true);
                self.merged += 1;
            }
            Some(_) => self.dropped += profile.total().samples,
        }
    }
}

/// Where profiles wait.
#[derive(Debug, Default)]
struct Mailbox {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

impl Mailbox {
    fn put(&self, recorded: Recorded) {
        let mut waiting = self.waiting.lock();
        waiting.add(recorded.profile, STACKS_MAX);
        waiting.hints.extend(recorded.hints);
        drop(waiting);
        self.filled.notify_one();
    }

    /// What waits, or comes soon.
    fn take(&self) -> Waiting {
        let mut waiting = self.waiting.lock();
        if waiting.profile.is_none() {
            // Nothing may have come by then.
            let _ = self.filled.wait_for(&mut waiting, LOOK);
        }
        std::mem::take(&mut *waiting)
    }
}

/// The machine that is being sampled.
#[derive(Debug)]
pub(super) struct Sampler {
    background: Background,
    mailbox: Arc<Mailbox>,
}

impl Sampler {
    /// Begins to sample.
    ///
    /// # Errors
    /// The kernel refuses, or a process is not there.
    pub(super) fn start(options: &Options, every: Period) -> Result<Self, BackgroundError> {
        let mailbox: Arc<Mailbox> = Arc::default();
        let to = mailbox.clone();
        let each = move |recorded| to.put(recorded);
        Ok(Self {
            background: Background::start(options, None, every.0, each)?,
            mailbox,
        })
    }

    /// Sends events until it is time to stop or the pipeline takes no more.
    pub(super) fn work(self, layout: &Layout, ctx: &InputContext) {
        let Self {
            background,
            mailbox,
        } = self;
        let mut naming = Naming::new(layout, ctx);
        while !ctx.stop.is_stopped() {
            if naming.emit(mailbox.take()).is_err() {
                return;
            }
        }
        background.stop();
        // A pipeline that takes no more has been told to end.
        let _ = naming.emit(mailbox.take());
    }
}

/// Looks up names and sends events.
struct Naming<'c> {
    layout: &'c Layout,
    ctx: &'c InputContext,
    symbols: Symbols,
    /// Why the kernel's functions have no names.
    refused: Option<KernelError>,
}

impl<'c> Naming<'c> {
    fn new(layout: &'c Layout, ctx: &'c InputContext) -> Self {
        let (symbols, refused) = Symbols::of_this_machine();
        Self {
            layout,
            ctx,
            symbols,
            refused,
        }
    }

    fn emit(&mut self, waiting: Waiting) -> Result<(), Stopped> {
        self.count(&waiting);
        for hint in &waiting.hints {
            self.ctx.diagnostics.warn(&hint.to_string());
        }
        let Some(profile) = waiting.profile else {
            return Ok(());
        };
        let start = Instant::now();
        let profile = self.symbols.name(&profile);
        self.ctx.metrics.busy(start.elapsed());
        self.warn(&profile);
        let id = Identity::new([
            self.ctx.host.name.as_bytes(),
            b"profile",
            self.ctx.scope.as_bytes(),
            self.layout.identity().as_bytes(),
            &profile.window.start_ns.to_le_bytes(),
        ]);
        send(&profile, self.layout, id.id(), None, self.ctx)
    }

    fn count(&self, waiting: &Waiting) {
        let lost = waiting.profile.as_ref().map_or(0, |profile| profile.lost);
        for (name, count, what) in [
            (
                "lost_samples",
                lost,
                "found no room in the kernel's buffers",
            ),
            (
                "dropped_samples",
                waiting.dropped,
                "were dropped, because the pipeline takes events too slowly",
            ),
        ] {
            if count > 0 {
                self.ctx.metrics.count(name, count);
                let text = || format!("{} {what}", plural(count, "sample"));
                self.ctx.diagnostics.warn_limited(Limit::events(name), text);
            }
        }
        if waiting.merged > 0 {
            self.ctx.metrics.count("merged_intervals", waiting.merged);
        }
    }

    /// Says once why functions of the kernel have no names, where there are any.
    fn warn(&self, profile: &Profile) {
        let Some(error) = &self.refused else {
            return;
        };
        let is_kernel = |kind: FrameKind| kind == FrameKind::Kernel;
        if profile.frames().any(|(_, frame)| is_kernel(frame.kind())) {
            let text = || format!("functions of the kernel are shown as addresses: {error}");
            self.ctx
                .diagnostics
                .warn_limited(Limit::once("kernel_names"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler::profile::{Frame, Weight, Window};
    use profiler::sampling::Stats;

    use super::*;

    fn profile(function: &'static str, start_ns: i64) -> Profile {
        let window = Window {
            start_ns,
            duration_ns: 10,
        };
        let mut profile = Profile::new(window, 20.0);
        let stack = profile.stack([Frame::function(function, "/bin/a")]);
        let labels = profile.labels(&[]);
        let weight = Weight {
            samples: 2,
            cpu_ns: 100,
        };
        profile.add(stack, labels, weight);
        profile
    }

    #[test]
    fn intervals_that_wait_are_joined_up_to_a_limit() {
        let mut waiting = Waiting::default();
        waiting.add(Profile::default(), 2);
        assert!(waiting.profile.is_none(), "nothing was sampled");
        for (function, start_ns) in [("a", 100), ("b", 110), ("c", 120)] {
            waiting.add(profile(function, start_ns), 2);
        }
        assert_eq!((waiting.merged, waiting.dropped), (1, 2));
        let joined = waiting.profile.unwrap();
        assert_eq!(joined.total().samples, 4);
        assert_eq!((joined.window.start_ns, joined.window.end_ns()), (100, 120));
    }

    #[test]
    fn what_waits_is_taken_once() {
        let mailbox = Mailbox::default();
        mailbox.put(Recorded {
            profile: profile("a", 1),
            stats: Stats::default(),
            hints: Vec::new(),
        });
        assert!(mailbox.take().profile.is_some());
        assert!(mailbox.take().profile.is_none());
    }
}
