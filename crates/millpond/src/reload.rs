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
use pipeline::{Changes, Graph, Reloader};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::api::configuration::Configuration;
use crate::api::state::{ApiState, Reloading};
use crate::load::{flow, load, queue};
use crate::sources::Seen;

/// How often it is looked whether files have changed. A change takes effect when two looks in a row find the same.
const LOOK: Duration = Duration::from_secs(1);

/// What a service needs to read its configuration again.
pub struct Origin {
    /// What the command line names.
    pub source: String,
    /// The files and folders that it was read from.
    pub files: Vec<Seen>,
    pub data_dir: Option<PathBuf>,
    pub host: Arc<HostInfo>,
}

/// Reloads of a service.
pub struct Reloads {
    origin: Origin,
    reloader: Reloader,
    diagnostics: Diagnostics,
    /// The version in force: 1 at the start, one more with every reload that succeeded. Held by the reload that is under way.
    version: Mutex<u64>,
    /// What the API shows, where there is one.
    api: Option<Arc<ApiState>>,
    /// The files and folders that the configuration was read from.
    files: parking_lot::Mutex<Vec<Seen>>,
}

impl Reloads {
    /// The configuration has just been put in force for the first time.
    pub fn new(
        origin: Origin,
        reloader: Reloader,
        diagnostics: &Diagnostics,
        api: Option<Arc<ApiState>>,
    ) -> Arc<Self> {
        let origin_files = origin.files.clone();
        Arc::new(Self {
            origin,
            reloader,
            diagnostics: diagnostics.clone(),
            version: Mutex::new(1),
            api,
            files: parking_lot::Mutex::new(origin_files),
        })
    }

    /// Reads the configuration again and puts it in force. Says what came of it; `why` begins the message, such as `SIGHUP received`.
    ///
    /// # Errors
    /// It cannot be put in force; the one before is.
    pub async fn reload(&self, why: &str) -> anyhow::Result<Changes> {
        let mut version = self.version.lock().await;
        let reloaded = self.put_in_force().await;
        match &reloaded {
            Ok((changes, _, _)) => {
                *version += 1;
                let what = summary(changes);
                let text = format!("{why}: configuration reloaded, version {version}: {what}");
                self.diagnostics.info(&text);
            }
            Err(error) => self.diagnostics.error(&format!(
                "{why}: the configuration was not reloaded, version {version} stays in force: {error:#}"
            )),
        }
        let (changes, flows, mut configuration) = match reloaded {
            Ok(reloaded) => reloaded,
            Err(error) => {
                self.api.iter().for_each(|api| api.reload_failed());
                return Err(error);
            }
        };
        configuration.version.number = *version;
        if let Some(api) = &self.api {
            api.configure(configuration);
        }
        for name in changes.changed.iter().chain(&changes.added) {
            let flow = flows.iter().find(|(pipeline, _)| pipeline == name);
            if let Some((_, flow)) = flow {
                self.diagnostics.for_pipeline(name).info(flow);
            }
        }
        Ok(changes)
    }

    /// [`Self::reload`], for who does not know this.
    pub fn asked(self: Arc<Self>, why: &'static str) -> Reloading {
        Box::pin(async move { self.reload(why).await })
    }

    async fn put_in_force(
        &self,
    ) -> anyhow::Result<(Changes, Vec<(String, String)>, Configuration)> {
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
        let flows = flows(&graph);
        let configuration = Configuration::new(&beside.written, &graph);
        let changes = self.reloader.reload(graph).await?;
        Ok((changes, flows, configuration))
    }

    /// Reloads whenever the files have changed.
    pub async fn watch(self: Arc<Self>) {
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

/// For each pipeline, what is said when it starts.
pub fn flows(graph: &Graph) -> Vec<(String, String)> {
    let data_dir = graph.process.data_dir.as_deref();
    let pipelines = graph.pipelines.iter();
    let started = pipelines.map(|pipeline| {
        let queue = queue(pipeline, data_dir);
        let queue = queue.unwrap_or_else(|| "memory".to_owned());
        let text = format!("started: {}; queue: {queue}", flow(pipeline));
        (pipeline.name.clone(), text)
    });
    started.collect()
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
