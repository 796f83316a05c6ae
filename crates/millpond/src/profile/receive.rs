//! Receives profiles of other machines as OTLP, over HTTP or gRPC, and stores them.
//!
//! The server has a thread and an event loop of its own: decoding and writing block nothing else. Requests are therefore handled
//! one after the other, which suits hosts that send every few minutes; how many was not measured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use component::thread::Work;
use component::{Diagnostics, Limit, Stop};
use net::{Listener, Notice};
use profiler::store::Store;

use super::requests::Service;
use super::settings::Profiling;
use super::upkeep::Upkeep;

/// How long a client may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// How often what is stored is looked after.
const LOOK: Duration = Duration::from_secs(30);

/// How long a stop waits for answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread that receives.
pub struct Receiving {
    stop: Stop,
    thread: Work<()>,
}

impl Receiving {
    /// Begins to listen, where the settings ask for it.
    ///
    /// # Errors
    /// The address cannot be had, a setting cannot be used, or the system refuses a thread.
    pub fn start(
        profiling: &Profiling,
        store: &Store,
        upkeep: Upkeep,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<Option<Self>> {
        let Some(settings) = &profiling.settings.receive else {
            return Ok(None);
        };
        let node = profiling.node.nearest("receive");
        if let Some(auth) = &settings.auth {
            auth.check(node.nearest("auth"))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the system refuses an event loop to receive profiles")?;
        let tls = settings.tls.as_ref();
        let tls = tls.map(|tls| tls.open_with_http2(node.nearest("tls")));
        let tls = tls.transpose()?;
        let tcp = runtime.block_on(settings.address.bind(node.nearest("address")))?;
        let listener = Listener::new(tcp, tls, settings.max_connections);
        let local = listener
            .local_addr()
            .context("the address of `receive` is unknown")?;
        diagnostics.info(&format!("receiving profiles on {local}"));
        let handler = Arc::new(Service::new(settings, store.clone(), diagnostics.clone()));
        let stop = Stop::default();
        let stopped = stop.clone();
        let serve = move || {
            runtime.block_on(serve(listener, handler, stopped, upkeep));
        };
        let thread = component::thread::start("profile-receive", serve)
            .context("cannot create the thread that receives profiles")?;
        Ok(Some(Self { stop, thread }))
    }

    /// Closes the port, and answers what has been received, which takes up to [`STOP_TIMEOUT`].
    pub fn begin_stop(&self) {
        self.stop.stop();
    }

    /// Waits until that is done.
    pub fn stop(self) {
        self.begin_stop();
        // A panic there has been reported.
        let _ = self.thread.join();
    }
}

async fn serve(listener: Listener, handler: Arc<Service>, stop: Stop, mut upkeep: Upkeep) {
    let diagnostics = handler.diagnostics().clone();
    let warnings = diagnostics.clone();
    let notice = move |notice: Notice<'_>| {
        if let Notice::Warning(text) = notice {
            warnings.warn_limited(Limit::events("profile_listener"), || text.to_owned());
        }
    };
    let serving = net::serve(listener, handler, IDLE_TIMEOUT, stop.stopped(), notice);
    let ending = async {
        stop.stopped().await;
        tokio::time::sleep(STOP_TIMEOUT).await;
    };
    let looking = async {
        loop {
            upkeep.look(&diagnostics);
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = ending => {}
        () = looking => {}
    }
}
