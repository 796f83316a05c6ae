//! Putting a changed configuration in force while a service runs: on SIGHUP, when its files change (`--watch`), or when the API asks.
//!
//! The files are read and checked first; what is wrong with them changes nothing. Reloads come one after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use batch::HostInfo;
use component::Diagnostics;
use component::thread;
use pipeline::{Changes, Reloader};
use tokio::sync::{Mutex, Notify};
use tokio::time::sleep;

use crate::api::configuration::Configuration;
use crate::api::state::{ApiState, Reloading};
use crate::load::load;
use crate::notify::Notifier;
use crate::sources::Seen;

/// How often it is looked whether files have changed. A change takes effect when two looks in a row find the same.
const LOOK: Duration = Duration::from_secs(1);

/// What a service needs to read its configuration again.
pub struct Origin {
    /// What the command line names.
    pub source: Vec<String>,
    /// The files and folders that it was read from.
    pub files: Vec<Seen>,
    /// Whether they are watched.
    pub watches: bool,
    pub data_dir: Option<PathBuf>,
    pub host: Arc<HostInfo>,
}

/// Reloads of a service.
pub struct Reloads {
    origin: Origin,
    reloader: Reloader,
    diagnostics: Diagnostics,
    /// What is in force.
    state: Arc<ApiState>,
    /// The service manager, where there is one.
    manager: Option<Arc<Notifier>>,
    /// Held by the reload that is under way.
    turn: Mutex<()>,
    /// The files and folders that the configuration was read from.
    files: parking_lot::Mutex<Vec<Seen>>,
}

impl Reloads {
    /// The configuration has just been put in force for the first time.
    pub fn new(
        mut origin: Origin,
        reloader: Reloader,
        diagnostics: &Diagnostics,
        state: &Arc<ApiState>,
        manager: Option<Arc<Notifier>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            files: parking_lot::Mutex::new(std::mem::take(&mut origin.files)),
            origin,
            reloader,
            diagnostics: diagnostics.clone(),
            state: state.clone(),
            manager,
            turn: Mutex::default(),
        })
    }

    /// Reads the configuration again and puts it in force. Says what came of it; `why` begins the message, such as `SIGHUP received`.
    ///
    /// # Errors
    /// It cannot be put in force; the one before is.
    pub async fn reload(&self, why: &str) -> anyhow::Result<Changes> {
        let _turn = self.turn.lock().await;
        let before = self.state.configuration().version.number;
        let manager = self.manager.as_deref();
        if let Some(manager) = manager {
            manager.reloading();
        }
        let (changes, mut configuration) = match self.put_in_force().await {
            Ok(reloaded) => reloaded,
            Err(error) => {
                self.state.reload_failed();
                if let Some(manager) = manager {
                    manager.kept(before, &format!("{error:#}"));
                }
                self.diagnostics.error(&format!(
                    "{why}: the configuration was not reloaded, version {before} stays in force: {error:#}"
                ));
                return Err(error);
            }
        };
        let version = before + 1;
        configuration.version.number = version;
        let what = summary(&changes);
        self.diagnostics.info(&format!(
            "{why}: configuration reloaded, version {version}: {what}"
        ));
        let is_new = |name: &String| changes.changed.contains(name) || changes.added.contains(name);
        configuration.introduce(&self.diagnostics, is_new);
        self.state.configure(configuration);
        if let Some(manager) = manager {
            let lists = [&changes.added, &changes.changed, &changes.unchanged];
            manager.running(lists.map(Vec::len).iter().sum());
        }
        Ok(changes)
    }

    /// [`Self::reload`], for who does not know this.
    pub fn asked(self: Arc<Self>, why: &'static str) -> Reloading {
        Box::pin(async move { self.reload(why).await })
    }

    async fn put_in_force(&self) -> anyhow::Result<(Changes, Configuration)> {
        let (source, data_dir) = (self.origin.source.clone(), self.origin.data_dir.clone());
        let host = self.origin.host.clone();
        // Patterns take a while to compile.
        let building = thread::start("reload", move || {
            let loaded = load(&source)?;
            let files = loaded.files.clone();
            let (graph, beside) = loaded.build_service(&host, data_dir)?;
            anyhow::Ok((graph, beside, files))
        })?;
        let built = building.ended().await;
        let (graph, beside, files) =
            built.map_err(|_| anyhow!("internal error: reading it panicked"))??;
        *self.files.lock() = files;
        let configuration = Configuration::new(&beside.written, &graph);
        let changes = self.reloader.reload(graph).await?;
        Ok((changes, configuration))
    }

    /// Reloads on every hangup, and where that is asked for whenever the files have changed.
    pub async fn when_asked(self: Arc<Self>, hangup: Arc<Notify>) {
        let on_hangup = async {
            loop {
                hangup.notified().await;
                // What came of it has been said.
                let _ = self.reload("SIGHUP received").await;
            }
        };
        match self.origin.watches {
            true => tokio::join!(on_hangup, self.watch()).0,
            false => on_hangup.await,
        }
    }

    /// Reloads whenever the files have changed.
    async fn watch(&self) {
        let mut tried = None;
        let mut pending = None;
        loop {
            sleep(LOOK).await;
            let read = self.files.lock().clone();
            let now: Vec<Seen> = read.iter().map(Seen::again).collect();
            if now == read || tried.as_ref() == Some(&now) {
                pending = None;
            } else if pending.as_ref() == Some(&now) {
                pending = None;
                // What came of it has been said. What failed is not tried again until something changes.
                let _ = self.reload("its files have changed").await;
                tried = Some(now);
            } else {
                pending = Some(now);
            }
        }
    }
}

/// What changed, in words.
fn summary(changes: &Changes) -> String {
    let kinds = [
        ("changed", &changes.changed),
        ("added", &changes.added),
        ("removed", &changes.removed),
        ("unchanged", &changes.unchanged),
    ];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let words = kinds.map(|(kind, names)| format!("{kind} {}", names.join(", ")));
    words.collect::<Vec<_>>().join("; ")
}
