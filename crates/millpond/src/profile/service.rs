//! The profiler as part of a service: it samples Millpond or the machine, and keeps and sends profiles.
//!
//! Every minute a profile is written to the store, with addresses: to name them, files of hundreds of megabytes are read, which would not be in
//! proportion to what a service needs otherwise. Names are given by a process of its own, `millpond profile compact`, once an hour, when minutes are
//! joined to hours; who asks before that gets them in the process that asks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use component::{Activities, Diagnostics, Limit, plural_were};
use pipeline::Handled;
use profiler::Profile;
use profiler::profile::label;
use profiler::sampling::{Background, Options, Recorded, Target};
use profiler::store::Store;

use super::ending::Ending;
use super::own;
use super::receive::Receiving;
use super::send::Sending;
use super::settings::Profiling;
use super::upkeep::Upkeep;

/// How long a profile is.
const SLICE: Duration = Duration::from_secs(60);

/// The profiler at work.
pub struct ProfileService {
    activities: Activities,
    background: Option<Background>,
    receiving: Option<Receiving>,
    handled: Arc<OnceLock<Handled>>,
    ending: Ending,
    is_by_timers: bool,
}

impl ProfileService {
    /// Begins what the settings ask for; threads that start later are sampled too.
    ///
    /// # Errors
    /// The store cannot be made, the machine cannot be sampled though the settings ask for it, or a setting cannot be used.
    pub fn start(
        profiling: &Profiling,
        data_dir: Option<&Path>,
        host: &str,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<Self> {
        let settings = &profiling.settings;
        let store = profiling.store(data_dir)?;
        let store = store.map(|folder| open(&folder)).transpose()?;
        let mut service = Self {
            activities: Activities::default(),
            background: None,
            receiving: None,
            handled: Arc::default(),
            ending: Ending::default(),
            is_by_timers: false,
        };
        if let Some(store) = &store {
            // Where others send theirs, the profiles of all hosts are looked after.
            let upkeep = Upkeep::new(store.clone(), settings, None)?;
            service.receiving = Receiving::start(profiling, store, upkeep, diagnostics)?;
        }
        if let (true, Some(store)) = (settings.enabled, store) {
            service.sample(profiling, store, host, diagnostics)?;
        }
        Ok(service)
    }

    fn sample(
        &mut self,
        profiling: &Profiling,
        store: Store,
        host: &str,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<()> {
        let settings = &profiling.settings;
        let has_upkeep = settings.receive.is_none();
        let upkeep = || Upkeep::new(store.clone(), settings, Some(host));
        let mut keeper = Keeper {
            upkeep: has_upkeep.then(upkeep).transpose()?,
            sending: Sending::start(profiling, &store, host, &self.ending, diagnostics)?,
            store,
            ending: self.ending.clone(),
            host: host.to_owned(),
            handled: self.handled.clone(),
            counted: HashMap::new(),
            lost: 0,
            diagnostics: diagnostics.clone(),
        };
        let target = if settings.host {
            Target::All
        } else {
            Target::This
        };
        let mut options = Options::new(target, settings.frequency);
        options.attaches &= settings.attach;
        let activities = Activities::noted();
        let purposes = own::purposes(&activities);
        let each = move |recorded| keeper.keep(recorded);
        match Background::start(&options, Some(purposes), SLICE, each) {
            Ok(background) => {
                self.is_by_timers = background.is_by_timers();
                self.background = Some(background);
                self.activities = activities;
                Ok(())
            }
            Err(error) if settings.host => {
                Err(error).context("`host: true` of `profile` cannot work")
            }
            Err(error) => {
                diagnostics.warn(&format!("Millpond does not sample itself: {error}"));
                Ok(())
            }
        }
    }

    /// Whether the kernel's functions are missing, because timers take the samples.
    pub fn is_by_timers(&self) -> bool {
        self.is_by_timers
    }

    /// Where threads note what they work for.
    pub fn activities(&self) -> Activities {
        self.activities.clone()
    }

    /// Counts the events of a run.
    pub fn count(&self, handled: Handled) {
        let _ = self.handled.set(handled);
    }

    /// Ends sampling and receiving; the last profile is kept, and sent as far as [`send`](super::send) has time for it.
    pub fn stop(self) {
        self.ending.begin();
        if let Some(receiving) = &self.receiving {
            receiving.begin_stop();
        }
        if let Some(background) = self.background {
            background.stop();
        }
        if let Some(receiving) = self.receiving {
            receiving.stop();
        }
    }
}

/// The store in a folder.
///
/// # Errors
/// The folder cannot be made.
pub fn open(folder: &Path) -> anyhow::Result<Store> {
    Store::create(folder).with_context(|| format!("cannot store profiles in {}", folder.display()))
}

/// Keeps one profile after the other.
struct Keeper {
    store: Store,
    upkeep: Option<Upkeep>,
    sending: Option<Sending>,
    ending: Ending,
    host: String,
    handled: Arc<OnceLock<Handled>>,
    /// The events of each operator that are in profiles already.
    counted: HashMap<(Arc<str>, String), u64>,
    /// The lost samples that were told.
    lost: u64,
    diagnostics: Diagnostics,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take() {
            sending.stop();
        }
    }
}

impl Keeper {
    fn keep(&mut self, recorded: Recorded) {
        let Recorded {
            mut profile,
            stats,
            hints,
        } = recorded;
        for hint in hints {
            self.diagnostics.info(&format!("profile: {hint}"));
        }
        if stats.lost > self.lost {
            let lost = plural_were(stats.lost - self.lost, "sample");
            self.lost = stats.lost;
            self.diagnostics
                .warn_limited(Limit::events("profile_lost"), || {
                    format!("profile: {lost} lost, because the buffers for them were full")
                });
        }
        if profile.is_empty() {
            return;
        }
        self.count(&mut profile);
        match self.store.write(&profile, &self.host) {
            Ok(files) => {
                if let Some(sending) = &self.sending {
                    for file in &files {
                        sending.take(file, &self.diagnostics);
                    }
                }
            }
            Err(error) => self
                .diagnostics
                .warn_limited(Limit::events("profile_store"), || {
                    let folder = self.store.folder().display();
                    format!("a profile is lost, because it cannot be stored in {folder}: {error}")
                }),
        }
        if let Some(upkeep) = &mut self.upkeep
            && !self.ending.has_begun()
        {
            upkeep.look(&self.diagnostics);
        }
    }

    /// Adds how many events each operator handled since the last time.
    fn count(&mut self, profile: &mut Profile) {
        let Some(handled) = self.handled.get() else {
            return;
        };
        for (pipeline, component, events) in handled() {
            let operator = component.to_string();
            let key = (pipeline.clone(), operator.clone());
            let before = self.counted.insert(key, events).unwrap_or(0);
            // A pipeline that was reloaded begins to count anew.
            let new = events.checked_sub(before).unwrap_or(events);
            if new > 0 {
                let labels = [
                    (label::HOST, &*self.host),
                    (label::PIPELINE, &*pipeline),
                    (label::OPERATOR, &*operator),
                ];
                let labels = profile.labels(&labels);
                profile.count_events(labels, new);
            }
        }
    }
}
