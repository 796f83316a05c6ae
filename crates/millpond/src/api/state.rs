//! What the API shows, and where it comes from.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use component::Stop;
use parking_lot::RwLock;
use pipeline::{Changes, View};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::configuration::Configuration;
use super::metrics::MetricsPage;
use super::process::Process;
use super::stats::Readiness;
use super::windows::Watching;

/// A configuration on its way into force, and what it changed.
pub type Reloading = Pin<Box<dyn Future<Output = anyhow::Result<Changes>> + Send>>;

type Reload = Box<dyn Fn(&'static str) -> Reloading + Send + Sync>;

/// Where profiles are, or why there are none.
#[derive(Debug, Clone)]
pub enum Profiles {
    Store(PathBuf),
    None(&'static str),
}

/// Nothing is sampled.
pub const NOT_SAMPLED: &str =
    "nothing is sampled: set `data_dir`, or `profile.store`, and leave `profile.enabled` true";

/// What a process is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Starting,
    Running,
    Stopping,
}

impl Status {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
        }
    }
}

/// What the API shows.
pub struct ApiState {
    /// The pipelines.
    pub view: View,
    pub(super) host: String,
    /// The same for every run of this host.
    pub(super) id: String,
    /// That of this process.
    pub(super) ephemeral_id: String,
    pub(super) workers: usize,
    pub(super) process: Process,
    configuration: RwLock<Arc<Configuration>>,
    has_started: RwLock<bool>,
    stop: OnceLock<Stop>,
    /// What loads the configuration anew, where that can be done.
    reload: OnceLock<Reload>,
    failed_reloads: AtomicU64,
    pub(super) profiles: Profiles,
    pub(super) profiling: tokio::sync::Mutex<()>,
    pub(super) metrics: MetricsPage,
    pub(super) watching: Watching,
    address: OnceLock<SocketAddr>,
}

impl ApiState {
    /// What is shown of a process on that host, which has so many workers.
    pub fn new(host: &str, workers: usize, profiles: Profiles) -> Arc<Self> {
        let [random, more] = [(); 2].map(|()| RandomState::new().hash_one(0).to_string());
        Arc::new(Self {
            view: View::default(),
            host: host.to_owned(),
            id: uuid(&["millpond", host]),
            ephemeral_id: uuid(&[&random, &more]),
            workers,
            process: Process::new(),
            configuration: RwLock::default(),
            has_started: RwLock::new(false),
            stop: OnceLock::new(),
            reload: OnceLock::new(),
            failed_reloads: AtomicU64::new(0),
            profiles,
            profiling: tokio::sync::Mutex::new(()),
            metrics: MetricsPage::default(),
            watching: Watching::new(workers),
            address: OnceLock::new(),
        })
    }

    /// This configuration is in force.
    pub fn configure(&self, configuration: Configuration) {
        *self.configuration.write() = Arc::new(configuration);
    }

    /// The configuration in force.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.configuration.read().clone()
    }

    /// `stop` stops the pipelines.
    pub fn stops_by(&self, stop: &Stop) {
        let _ = self.stop.set(stop.clone());
    }

    /// The configuration can be loaded anew by calling this, with what the log says of why.
    pub fn reloads_by(&self, reload: impl Fn(&'static str) -> Reloading + Send + Sync + 'static) {
        let _ = self.reload.set(Box::new(reload));
    }

    /// Loads the configuration anew; none where that cannot be done.
    pub fn reload(&self, why: &'static str) -> Option<Reloading> {
        self.reload.get().map(|reload| reload(why))
    }

    /// It is listened on there.
    pub fn listens_at(&self, address: SocketAddr) {
        let _ = self.address.set(address);
    }

    /// The configuration could not be loaded anew.
    pub fn reload_failed(&self) {
        self.failed_reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Every pipeline has started.
    pub fn started(&self) {
        *self.has_started.write() = true;
    }

    /// What the process is at.
    pub fn status(&self) -> Status {
        match (*self.has_started.read(), self.stop.get()) {
            (_, Some(stop)) if stop.is_stopped() => Status::Stopping,
            (true, _) => Status::Running,
            (false, _) => Status::Starting,
        }
    }

    /// Whether it can do its work.
    pub(super) fn readiness(&self) -> Readiness {
        match self.status() {
            Status::Running => Readiness::of(&self.view.look(false)),
            Status::Starting => Readiness::because(vec!["the pipelines are starting".to_owned()]),
            Status::Stopping => Readiness::because(vec!["the process is stopping".to_owned()]),
        }
    }

    /// How often the configuration was loaded anew, in the form of Logstash.
    pub(super) fn reloads(&self) -> Value {
        let loaded = self.configuration().version.number;
        let failed = self.failed_reloads.load(Ordering::Relaxed);
        json!({ "successes": loaded.saturating_sub(1), "failures": failed })
    }

    /// The port that it listens on.
    pub(super) fn port(&self) -> Option<u16> {
        self.address.get().map(SocketAddr::port)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> String {
        self.address
            .get()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// A UUID of these names, always the same (version 8 of RFC 9562).
pub(super) fn uuid(names: &[&str]) -> String {
    let hash = Sha256::digest(names.join("/"));
    let mut bytes: [u8; 16] = std::array::from_fn(|place| hash[place]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_of_their_own() {
        let one = uuid(&["a", "b"]);
        assert_eq!(one, uuid(&["a", "b"]));
        assert_ne!(one, uuid(&["a", "c"]));
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(one[14..].starts_with('8'), "{one}");
    }
}
