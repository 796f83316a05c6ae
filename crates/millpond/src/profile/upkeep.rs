//! Looks after a store: old profiles are deleted, and minutes joined to hours and days by a process of its own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use component::{Diagnostics, Limit};
use profiler::store::Store;

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
}

impl Upkeep {
    pub fn new(store: Store, settings: &ProfileSettings, host: Option<&str>) -> Self {
        Self {
            store,
            host: host.map(str::to_owned),
            max_bytes: settings.max_bytes.0,
            max_age: settings.max_age.0,
            last: None,
            compacting: None,
        }
    }

    /// Does what there is to do, if it is time.
    pub fn look(&mut self, diagnostics: &Diagnostics) {
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
        if let Err(error) = self.compact(diagnostics) {
            diagnostics.warn_limited(Limit::events("profile_compact"), || {
                format!("profiles are not joined to hours: {error:#}")
            });
        }
    }

    /// Starts the process that joins profiles, unless the last one is still at work.
    fn compact(&mut self, diagnostics: &Diagnostics) -> anyhow::Result<()> {
        if let Some(child) = &mut self.compacting {
            let Some(status) = child.try_wait()? else {
                return Ok(());
            };
            self.compacting = None;
            if !status.success() {
                diagnostics.warn_limited(Limit::events("profile_compact"), || {
                    format!("profiles were not joined to hours: `millpond profile compact` ended with {status}")
                });
            }
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
