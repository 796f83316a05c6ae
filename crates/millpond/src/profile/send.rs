//! Sends profiles as OTLP to a collector, or to a Millpond that receives them.
//!
//! What is stored is put into an [`Outbox`] as well. Every [`EVERY`], a thread of its own sends what is in it, in several messages where a server was away:
//! a collector that is slow delays nothing. Profiles get names in a process of their own, as for the store, because only this machine has the files.
//! A profile is sent until the server has it, or refuses its content, which is reported; the store keeps it.
//!
//! # Stopping
//! What is left is sent once more. Names may take half of `shutdown_deadline`, after which addresses are sent. What is not sent until the deadline
//! is reported, and the next run sends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use component::thread::Work;
use component::{Diagnostics, Limit};
use profiler::otlp::Answer;
use profiler::store::Store;
use profiler::{Profile, otlp};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::ending::Ending;
use super::naming;
use super::outbox::Outbox;
use super::post::{Destination, Failed};
use super::settings::Profiling;

/// How often profiles are sent.
const EVERY: Duration = Duration::from_secs(300);

/// How long names of a profile may take.
const NAMING_TIME: Duration = Duration::from_secs(300);

/// The pause after the first failure; each further one is twice as long, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The thread that sends.
pub struct Sending {
    outbox: Outbox,
    thread: Work<()>,
    /// Dropped when nothing more comes.
    open: oneshot::Sender<()>,
}

impl Sending {
    /// Begins, where the settings ask for it, with what the last run of this host left. `store` is what keeps the profiles.
    ///
    /// # Errors
    /// A setting cannot be used, or the system refuses a folder or a thread.
    pub fn start(
        profiling: &Profiling,
        store: &Store,
        host: &str,
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
        let folder = store.folder().display();
        let outbox = || {
            Outbox::open(store, host)
                .with_context(|| format!("cannot keep what is to be sent in {folder}"))
        };
        let sender = Sender {
            destination,
            outbox: outbox()?,
            store: store.folder().to_owned(),
            symbolize: naming::symbolize,
            deadline: settings.shutdown_deadline.get().0,
            pause: PAUSE,
            ending: ending.clone(),
            diagnostics: diagnostics.clone(),
        };
        let (open, closed) = oneshot::channel();
        let send = move || runtime.block_on(sender.run(closed));
        let thread = component::thread::start("profile-send", send);
        Ok(Some(Self {
            outbox: outbox()?,
            thread: thread.context("cannot create the thread that sends profiles")?,
            open,
        }))
    }

    /// Takes a file of the store.
    pub fn take(&self, file: &Path, diagnostics: &Diagnostics) {
        if let Err(error) = self.outbox.put(file, diagnostics) {
            diagnostics.warn_limited(Limit::events("profile_send"), || {
                let file = file.display();
                format!("the profile {file} will not be sent: {error}")
            });
        }
    }

    /// Sends what is left, until the deadline of a service that ends.
    pub fn stop(self) {
        drop(self.open);
        // A panic there has been reported.
        let _ = self.thread.join();
    }
}

/// What the thread works with.
struct Sender {
    destination: Destination,
    outbox: Outbox,
    /// The store that also keeps the profiles.
    store: PathBuf,
    symbolize: fn() -> Command,
    /// How long a stop may take.
    deadline: Duration,
    /// The pause after the first failure.
    pause: Duration,
    ending: Ending,
    diagnostics: Diagnostics,
}

/// What became of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The server has it, or does not want it.
    Settled,
    /// It is sent the next time.
    Kept,
}

impl Sender {
    /// Sends until nothing more comes.
    async fn run(&self, mut closed: oneshot::Receiver<()>) {
        loop {
            self.send_all().await;
            tokio::select! {
                () = sleep(EVERY) => {}
                _ = &mut closed => break,
            }
        }
        if self.send_all().await == Fate::Kept {
            let to = &self.destination;
            let text = format!("not all profiles were sent to {to}: the next run sends them");
            self.diagnostics.warn(&text);
        }
    }

    /// Sends what is in the outbox; whether something stays.
    async fn send_all(&self) -> Fate {
        loop {
            let fate = match self.outbox.next() {
                Ok(None) => return Fate::Settled,
                Ok(Some(profile)) => self.deliver(profile).await,
                Err(error) => {
                    self.warn(&error);
                    Fate::Kept
                }
            };
            if fate == Fate::Kept {
                return fate;
            }
            if let Err(error) = self.outbox.done() {
                // What was sent would be sent for ever.
                self.warn(&error);
                return Fate::Kept;
            }
        }
    }

    /// Says that the outbox cannot be read or written.
    fn warn(&self, error: &std::io::Error) {
        self.diagnostics
            .warn_limited(Limit::events("profile_outbox"), || {
                let store = self.store.display();
                format!("profiles in {store} cannot be sent: {error}")
            });
    }

    /// Names and sends a profile, unless a stop takes too long.
    async fn deliver(&self, profile: Profile) -> Fate {
        let sending = async {
            let named = self.named(profile).await;
            let message = otlp::write(&named, env!("CARGO_PKG_VERSION"));
            drop(named);
            self.send(&message).await
        };
        tokio::select! {
            biased;
            () = self.ending.after(self.deadline) => Fate::Kept,
            fate = sending => fate,
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

    /// Sends a message until it is accepted, or refused in a way that time does not change.
    async fn send(&self, message: &[u8]) -> Fate {
        let mut pause = self.pause;
        loop {
            let failed = match self.destination.send(message).await {
                Ok(answer) => {
                    self.answered(&answer);
                    return Fate::Settled;
                }
                Err(failed) => failed,
            };
            self.report(&failed);
            if failed.is_of_content {
                return Fate::Settled;
            }
            if !failed.may_succeed || self.ending.has_begun() {
                return Fate::Kept;
            }
            // A stop ends the pause.
            tokio::select! {
                () = sleep(failed.after.unwrap_or(pause).min(PAUSE_MAX)) => {}
                () = self.ending.after(Duration::ZERO) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn report(&self, failed: &Failed) {
        self.diagnostics
            .warn_limited(Limit::events("profile_send"), || {
                let what = match failed.is_of_content {
                    true => format!(
                        "is not sent again (only the store {} has it)",
                        self.store.display()
                    ),
                    false => "will be sent again".to_owned(),
                };
                let (to, error) = (&self.destination, &failed.error);
                format!("a profile was not accepted by {to}, and {what}: {error:#}")
            });
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
