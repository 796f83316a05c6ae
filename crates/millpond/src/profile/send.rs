//! Sends profiles as OTLP to a collector, or to a Millpond that receives them.
//!
//! Profiles are joined for [`EVERY`] and get names in a process of their own, as for the store, because only this machine has the files.
//! Sending has a thread of its own: a collector that is slow or away delays nothing. What it rejects, and what finds no room in the
//! queue of [`WAITING_MAX`] profiles, is reported and lost here; the store keeps it.
//!
//! # Stopping
//! What has gathered is sent once more. Names may take half of `shutdown_deadline`, after which addresses are sent. At the deadline, what is
//! not sent is given up and reported.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use component::thread::Work;
use component::{Diagnostics, Limit, plural_were};
use profiler::otlp::Answer;
use profiler::store::Store;
use profiler::{Profile, otlp};
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::ending::Ending;
use super::naming;
use super::post::{Destination, Failed};
use super::settings::Profiling;

/// How much time profiles that are sent cover.
const EVERY: Duration = Duration::from_secs(300);

/// How many profiles wait while another one is sent.
const WAITING_MAX: usize = 12;

/// How long names of a profile may take.
const NAMING_TIME: Duration = Duration::from_secs(300);

/// How long a profile is sent again that was not accepted.
const RETRY_TIME: Duration = Duration::from_secs(600);

/// The pause after the first failure; each further one is twice as long, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The thread that sends.
pub struct Sending {
    queue: SyncSender<Profile>,
    thread: Work<()>,
    joined: Profile,
    since: Instant,
}

impl Sending {
    /// Begins, where the settings ask for it. `store` is what also keeps the profiles.
    ///
    /// # Errors
    /// A setting cannot be used, or the system refuses a thread.
    pub fn start(
        profiling: &Profiling,
        store: Option<&Store>,
        ending: &Ending,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<Option<Self>> {
        let Some(settings) = &profiling.settings.send else {
            return Ok(None);
        };
        let node = profiling.node.nearest("send");
        let destination = Destination::open(settings, node)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the system refuses an event loop to send profiles")?;
        let (queue, waiting) = sync_channel(WAITING_MAX);
        let sender = Sender {
            destination,
            store: store.map(|store| store.folder().to_owned()),
            symbolize: naming::symbolize,
            deadline: settings.shutdown_deadline.get().0,
            pause: PAUSE,
            ending: ending.clone(),
            diagnostics: diagnostics.clone(),
        };
        let send = move || sender.run(&waiting, &runtime);
        let thread = component::thread::start("profile-send", send);
        Ok(Some(Self {
            queue,
            thread: thread.context("cannot create the thread that sends profiles")?,
            joined: Profile::default(),
            since: Instant::now(),
        }))
    }

    /// Takes a profile, and passes on what has gathered if it is time.
    pub fn take(&mut self, profile: &Profile, diagnostics: &Diagnostics) {
        self.joined.merge(profile, |_| true);
        if self.since.elapsed() >= EVERY {
            self.pass_on(diagnostics);
        }
    }

    fn pass_on(&mut self, diagnostics: &Diagnostics) {
        self.since = Instant::now();
        let profile = std::mem::take(&mut self.joined);
        if !profile.is_empty() && self.queue.try_send(profile).is_err() {
            diagnostics.warn_limited(Limit::events("profile_send"), || {
                format!("a profile was not sent, because {WAITING_MAX} others wait already")
            });
        }
    }

    /// Sends what has gathered, until the deadline of a service that ends.
    pub fn stop(mut self, diagnostics: &Diagnostics) {
        self.pass_on(diagnostics);
        drop(self.queue);
        // A panic there has been reported.
        let _ = self.thread.join();
    }
}

/// What the thread works with.
struct Sender {
    destination: Destination,
    /// The store that also keeps the profiles.
    store: Option<PathBuf>,
    symbolize: fn() -> Command,
    /// How long a stop may take.
    deadline: Duration,
    /// The pause after the first failure.
    pause: Duration,
    ending: Ending,
    diagnostics: Diagnostics,
}

impl Sender {
    fn run(&self, waiting: &Receiver<Profile>, runtime: &Runtime) {
        let mut unsent = 0;
        for profile in waiting {
            if !runtime.block_on(self.deliver(profile)) {
                unsent += 1;
            }
        }
        if unsent > 0 {
            let (profiles, to) = (plural_were(unsent, "profile"), &self.destination);
            self.diagnostics.warn(&format!(
                "{profiles} not sent to {to} before the deadline of the stop (`shutdown_deadline`): {}",
                self.kept()
            ));
        }
    }

    /// Names and sends a profile; whether that ended before a stop took too long.
    async fn deliver(&self, profile: Profile) -> bool {
        let sending = async {
            let named = self.named(profile).await;
            let message = otlp::write(&named, env!("CARGO_PKG_VERSION"));
            drop(named);
            self.send(&message).await;
        };
        tokio::select! {
            biased;
            () = self.ending.after(self.deadline) => false,
            () = sending => true,
        }
    }

    /// The profile with names, or as it is where that fails or takes too long.
    async fn named(&self, profile: Profile) -> Profile {
        let too_long = || Err(anyhow!("`millpond profile symbolize` took too long"));
        let named = tokio::select! {
            named = naming::named((self.symbolize)(), &profile) => named,
            () = self.ending.after(self.deadline / 2) => too_long(),
            () = sleep(NAMING_TIME) => too_long(),
        };
        named.unwrap_or_else(|error| {
            self.diagnostics
                .warn_limited(Limit::events("profile_names"), || {
                    format!("profiles are sent with addresses instead of names: {error:#}")
                });
            profile
        })
    }

    /// Sends a message until it is accepted or rejected.
    async fn send(&self, message: &[u8]) {
        let (begun, mut pause) = (Instant::now(), self.pause);
        loop {
            let failed = match self.destination.send(message).await {
                Ok(answer) => return self.answered(&answer),
                Err(failed) => failed,
            };
            let is_in_time = begun.elapsed() < RETRY_TIME && !self.ending.has_begun();
            let again = failed.may_succeed && is_in_time;
            self.report(&failed, again);
            if !again {
                return;
            }
            // A stop ends the pause.
            tokio::select! {
                () = sleep(failed.after.unwrap_or(pause).min(PAUSE_MAX)) => {}
                () = self.ending.after(Duration::ZERO) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn report(&self, failed: &Failed, again: bool) {
        self.diagnostics
            .warn_limited(Limit::events("profile_send"), || {
                let what = match again {
                    true => "will be sent again".to_owned(),
                    false => format!("is not sent again ({})", self.kept()),
                };
                let (to, error) = (&self.destination, &failed.error);
                format!("a profile was not accepted by {to}, and {what}: {error:#}")
            });
    }

    /// What becomes of a profile that is not sent.
    fn kept(&self) -> String {
        match &self.store {
            Some(store) => format!("only the store {} has it", store.display()),
            None => "it is lost, as there is no store".to_owned(),
        }
    }

    /// Reports what a server rejects of a message that it has.
    fn answered(&self, answer: &Answer) {
        if answer.rejected > 0 {
            self.diagnostics
                .warn_limited(Limit::events("profile_rejected"), || {
                    let (to, text) = (&self.destination, &answer.message);
                    format!("{to} rejected {} profiles: {text}", answer.rejected)
                });
        }
    }
}

#[cfg(test)]
mod tests;
