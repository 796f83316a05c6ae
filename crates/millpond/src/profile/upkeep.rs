//! Looks after a store: old profiles are deleted, minutes joined to hours and days by a process of its own, and days copied to an archive.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use component::{Diagnostics, Limit};
use config::ConfigError;
use profiler::store::Store;

use super::archive::Archiving;
use super::naming::own_program;
use super::settings::ProfileSettings;

/// How often what is stored is joined, and what is too old or too much deleted.
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Joins and deletes what is stored.
pub struct Upkeep {
    store: Store,
    /// Whose profiles are joined; none for those of all hosts.
    host: Option<String>,
    max_bytes: u64,
    max_age: Duration,
    last: Option<Instant>,
    compacting: Option<Child>,
    archiving: Option<Archiving>,
}

impl Upkeep {
    /// Makes ready.
    ///
    /// # Errors
    /// A setting of `archive` cannot be used, with its place.
    pub fn new(
        store: Store,
        settings: &ProfileSettings,
        host: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let archive = settings.archive.as_ref();
        let archiving = archive.map(|archive| Archiving::new(archive, &store, host));
        Ok(Self {
            archiving: archiving.transpose()?,
            store,
            host: host.map(str::to_owned),
            max_bytes: settings.max_bytes.0,
            max_age: settings.max_age.0,
            last: None,
            compacting: None,
        })
    }

    /// Does what there is to do, if it is time.
    pub fn look(&mut self, diagnostics: &Diagnostics) {
        self.check_compaction(diagnostics);
        if self.last.is_some_and(|last| last.elapsed() < UPKEEP_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let (age, bytes) = (Some(self.max_age), Some(self.max_bytes));
        if let Err(error) = self.store.expire(SystemTime::now(), age, bytes) {
            let folder = self.store.folder().display();
            diagnostics.warn_limited(Limit::events("profile_expire"), || {
                format!("old profiles in {folder} cannot be deleted: {error}")
            });
        }
        if let Err(error) = self.compact() {
            diagnostics.warn_limited(Limit::events("profile_compact"), || {
                format!("profiles are not joined to hours: {error:#}")
            });
        }
    }

    /// Whether the process that joins profiles has ended; after it, the archive gets what will not be joined any more.
    fn check_compaction(&mut self, diagnostics: &Diagnostics) {
        let ended = match &mut self.compacting {
            Some(child) => child.try_wait(),
            None => return,
        };
        let problem = match ended {
            Ok(None) => return,
            Ok(Some(status)) if status.success() => {
                if let Some(archiving) = &mut self.archiving {
                    archiving.begin(diagnostics);
                }
                None
            }
            Ok(Some(status)) => Some(format!("it ended with {status}")),
            Err(error) => Some(error.to_string()),
        };
        self.compacting = None;
        if let Some(problem) = problem {
            diagnostics.warn_limited(Limit::events("profile_compact"), || {
                format!(
                    "profiles were not joined to hours by `millpond profile compact`: {problem}"
                )
            });
        }
    }

    /// Starts the process that joins profiles, unless the last one is still at work.
    fn compact(&mut self) -> anyhow::Result<()> {
        if self.compacting.is_some() {
            return Ok(());
        }
        let mut command = Command::new(own_program());
        command
            .args(["profile", "compact"])
            .arg(self.store.folder());
        if let Some(host) = &self.host {
            command.args(["--host", host]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        self.compacting = Some(child.context("cannot start `millpond profile compact`")?);
        Ok(())
    }
}

impl Drop for Upkeep {
    /// Ends the process that joins profiles: a service leaves none behind, and the next one begins again where it was.
    fn drop(&mut self) {
        if let Some(mut child) = self.compacting.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
