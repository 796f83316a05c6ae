//! Samples of Millpond itself, with the pipeline and the component that each thread worked for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use component::Activities;
use parking_lot::Mutex;
use pipeline::Handled;
use profiler::Profile;
use profiler::profile::label;
use profiler::sampling::{Background, Options, Purposes, Recorded, Target};

use super::files::names;

/// What is said where timers sample the process.
pub const BY_TIMERS: &str = "the kernel allows no performance events, so that timers sample Millpond: time in the kernel counts for the functions that call it";

/// How long a piece of the profile is, which is joined with the others.
const SLICE: Duration = Duration::from_secs(10);

/// The profile of this process, as it grows.
pub struct OwnProfile {
    activities: Activities,
    background: Background,
    profile: Arc<Mutex<Profile>>,
    handled: Arc<OnceLock<Handled>>,
}

impl OwnProfile {
    /// Begins to sample this process and the threads that it starts from now on.
    ///
    /// # Errors
    /// Neither the kernel nor timers can sample.
    pub fn start(frequency_hz: u32) -> anyhow::Result<Self> {
        let activities = Activities::noted();
        let profile: Arc<Mutex<Profile>> = Arc::default();
        let whole = profile.clone();
        let each = move |slice: Recorded| whole.lock().merge(&slice.profile, |_| true);
        let options = Options::new(Target::This, frequency_hz);
        let purposes = purposes(&activities);
        let background = Background::start(&options, Some(purposes), SLICE, each);
        Ok(Self {
            background: background.context("cannot sample this process")?,
            activities,
            profile,
            handled: Arc::default(),
        })
    }

    /// Where threads note what they work for.
    pub fn activities(&self) -> Activities {
        self.activities.clone()
    }

    /// Whether the kernel's functions are missing.
    pub fn is_by_timers(&self) -> bool {
        self.background.is_by_timers()
    }

    /// Counts the events of a run.
    pub fn count(&self, handled: Handled) {
        let _ = self.handled.set(handled);
    }

    /// Ends sampling. The profile has names, and the events that each operator handled.
    pub fn finish(self) -> Profile {
        self.background.stop();
        let profile = std::mem::take(&mut *self.profile.lock());
        let mut profile = names().name(&profile);
        if let Some(handled) = self.handled.get() {
            for (pipeline, component, events) in handled() {
                count(&mut profile, &pipeline, &component.to_string(), events);
            }
        }
        profile
    }
}

/// Counts the events of an operator.
pub fn count(profile: &mut Profile, pipeline: &str, operator: &str, events: u64) {
    if events > 0 {
        let labels = [(label::PIPELINE, pipeline), (label::OPERATOR, operator)];
        let labels = profile.labels(&labels);
        profile.count_events(labels, events);
    }
}

/// What threads worked for, as the profiler asks.
pub fn purposes(activities: &Activities) -> Purposes {
    let activities = activities.clone();
    Box::new(move |thread, time_ns| {
        let purpose = activities.at(thread, time_ns)?;
        Some((purpose.pipeline, purpose.operator))
    })
}
