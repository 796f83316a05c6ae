//! The HTTP API of a process.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings, and where the API may be reached from |
//! | [`guard`] | which requests are answered: tokens, names of this machine, pages of other sites; `neighbour`: which user a client is |
//! | [`routes`] | every path; `openapi`: their description; `reply`: requests and answers |
//! | [`state`] | what is shown, and where it comes from |
//! | [`stats`], [`logstash`] | statistics, also in the form of Logstash; [`windows`]: of the last minutes |
//! | [`metrics`], [`exposition`] | metrics as text; `process`: what the process uses |
//! | [`configuration`], `masked` | the configuration in force, without its secrets |
//! | [`profile`] | the processor time of the process itself |
//! | [`tap`] | events that pass a point of a pipeline |
//!
//! The server has a thread and an event loop of its own, so that it answers while inputs are busy and takes nothing from them. What
//! it shows comes from a [`View`], which looks at the counters that pipelines keep anyway.
//!
//! # Limits
//! Bodies of requests are not read. Connections: `max_connections`, of which a silent one gives way to another; heads of requests: 64
//! KiB; a client may be silent, or take for a head, [`IDLE_TIMEOUT`].

pub mod configuration;
mod exposition;
mod guard;
mod logstash;
mod masked;
mod metrics;
mod neighbour;
mod openapi;
pub mod process;
mod profile;
mod reply;
mod routes;
pub mod settings;
pub mod state;
pub mod stats;
pub mod tap;
pub mod windows;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use component::thread::Work;
use component::{Diagnostics, Limit, Stop};
use config::ConfigError;
use http::header::{CACHE_CONTROL, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use net::{ConnectionError, Handler, Listener, Notice, Peer};
use pipeline::StartError;
use pipeline::windows::LOOK_EVERY;
use tokio::time::{sleep, timeout};

use guard::Guard;
use settings::ApiConfig;
use state::ApiState;

/// How long a client may be silent, may take for the head of a request, and may take nothing of an answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a stop waits for answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a client at least has to read its last answer during a stop. Connections without a request are not waited for.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// The server.
pub struct ApiServer {
    state: Arc<ApiState>,
    stop: Stop,
    thread: Work<()>,
}

impl ApiServer {
    /// Begins to listen, where the configuration asks for it. Where it does not say so, and the port is taken, there is none.
    ///
    /// # Errors
    /// The address cannot be had, a setting cannot be used, or the system refuses a thread.
    pub fn start(
        config: &ApiConfig,
        state: &Arc<ApiState>,
        diagnostics: &Diagnostics,
    ) -> anyhow::Result<Option<Self>> {
        if !config.is_enabled {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the system refuses an event loop for the API")?;
        let listener = match runtime.block_on(listen(config)) {
            Ok(listener) => listener,
            Err(error) if config.is_explicit => return Err(error.into()),
            Err(error) => {
                let reason = error.message();
                diagnostics.warn(&format!(
                    "there is no API: {reason}; set another `api.address`, or `api: false`"
                ));
                return Ok(None);
            }
        };
        let local = listener
            .local_addr()
            .context("the address of the API is unknown")?;
        state.listens_at(local);
        diagnostics.info(&format!("API on {local}"));
        let handler = Arc::new(Api {
            guard: Guard::new(config.auth(), config.is_mutual()),
            state: state.clone(),
            diagnostics: diagnostics.clone(),
            at_work: Arc::default(),
        });
        let stop = Stop::default();
        let stopped = stop.clone();
        let serve = move || runtime.block_on(serve(listener, handler, stopped));
        let thread = component::thread::start("api", serve).map_err(StartError::Threads)?;
        Ok(Some(Self {
            state: state.clone(),
            stop,
            thread,
        }))
    }

    /// Closes the port, and waits for answers that are being sent.
    pub fn stop(self) {
        self.stop.stop();
        // Whoever waits for events gets an answer.
        self.state.view.end_taps("Millpond has stopped");
        // A panic there has been reported.
        let _ = self.thread.join();
    }
}

async fn listen(config: &ApiConfig) -> Result<Listener, ConfigError> {
    let settings = &config.settings;
    let tls = settings.tls.as_ref();
    let tls = tls
        .map(|tls| tls.open(config.node.nearest("tls")))
        .transpose()?;
    let tcp = settings
        .address
        .bind(config.node.nearest("address"))
        .await?;
    let is_guarded = settings.token.is_some() || config.is_mutual();
    // A name may lead anywhere.
    let is_near = tcp.local_addr().is_ok_and(|local| local.ip().is_loopback());
    if !is_guarded && !is_near {
        return Err(config.exposed());
    }
    Ok(Listener::new(tcp, tls, settings.max_connections))
}

async fn serve(listener: Listener, handler: Arc<Api>, stop: Stop) {
    let (diagnostics, state) = (handler.diagnostics.clone(), handler.state.clone());
    let notice = move |notice: Notice<'_>| {
        if let Notice::Warning(text) = notice {
            diagnostics.warn_limited(Limit::events("api_listener"), || format!("API: {text}"));
        }
    };
    let serving = net::serve(
        listener,
        handler.clone(),
        IDLE_TIMEOUT,
        stop.stopped(),
        notice,
    );
    let ending = async {
        stop.stopped().await;
        let _ = timeout(STOP_TIMEOUT, handler.answered()).await;
    };
    let looking = async {
        loop {
            state.watching.look(&state.view);
            sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = ending => {}
        () = looking => {}
    }
}

/// Answers requests.
struct Api {
    guard: Guard,
    state: Arc<ApiState>,
    diagnostics: Diagnostics,
    /// Shared with each request that is being answered.
    at_work: Arc<()>,
}

impl Handler for Api {
    type Session = Peer;

    fn begin(&self, peer: Peer) -> Peer {
        peer
    }

    fn refused(&self, peer: Peer, reason: &ConnectionError) {
        // A client that only came to look, as scanners and probes of ports do, is not worth a line.
        if let ConnectionError::Handshake(_) | ConnectionError::Tls = reason {
            let peer = peer.address.ip().to_string();
            self.diagnostics
                .warn_limited(Limit::peer("api_connection", &peer), || {
                    format!("API: {peer}: {reason}")
                });
        }
    }

    async fn handle(&self, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let _at_work = self.at_work.clone();
        let (head, _) = request.into_parts();
        let mut answer = self.answer(*peer, head).await;
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            http::header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        answer
    }
}

impl Api {
    /// Waits until no request is being answered, and the last answers have had time to leave.
    async fn answered(&self) {
        loop {
            sleep(LAST_BYTES).await;
            if Arc::strong_count(&self.at_work) == 1 {
                return;
            }
        }
    }

    async fn answer(&self, peer: Peer, head: http::request::Parts) -> reply::Answer {
        let found = routes::find(&head);
        let is_open = found.as_ref().is_ok_and(|route| route.is_open);
        if let Err(refusal) = self.guard.admit(&head, is_open) {
            return self.refuse(peer, &refusal);
        }
        let route = match found {
            Ok(route) => route,
            Err(answer) => return *answer,
        };
        if route.path == tap::PATH && self.guard.is_anonymous() {
            let port = self.state.port();
            if !port.is_some_and(|port| neighbour::is_own_user(peer.address, port)) {
                let reason = "without `api.token`, events are shown only to programs of the user that Millpond runs as, and of root";
                return self.refuse(peer, &guard::Refusal::new(StatusCode::FORBIDDEN, reason));
            }
        }
        let is_known = !is_open || self.guard.admit(&head, false).is_ok();
        let request = reply::Request { head, is_known };
        if let Err(answer) = request.check_parameters(route) {
            return *answer;
        }
        (route.handle)(&self.state, &request).await
    }

    fn refuse(&self, peer: Peer, refusal: &guard::Refusal) -> reply::Answer {
        let peer = peer.address.ip().to_string();
        self.diagnostics
            .warn_limited(Limit::peer("api_refused", &peer), || {
                format!("API: a request of {peer} is refused: {}", refusal.reason)
            });
        let mut answer = reply::failed(refusal.status, &refusal.reason);
        if let (StatusCode::UNAUTHORIZED, Some(challenge)) =
            (refusal.status, self.guard.challenge())
        {
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }
}
