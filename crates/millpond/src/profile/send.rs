//! Sends profiles as OTLP over HTTP to a collector, or to a Millpond that receives them.
//!
//! Profiles are joined for [`EVERY`] and get names in a process of their own, as for the store, because only this machine has the files.
//! Sending has a thread of its own: a collector that is slow or away delays nothing. What it rejects, and what finds no room in the
//! queue of [`WAITING_MAX`] profiles, is reported and lost here; the store keeps it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use component::thread::Work;
use component::{Diagnostics, Limit};
use net::client::reqwest::Url;
use net::{Client, RequestError};
use profiler::{Profile, otlp, pprof};

use super::settings::Profiling;
use super::upkeep::own_program;

/// How much time profiles that are sent cover.
const EVERY: Duration = Duration::from_secs(300);

/// How many profiles wait while another one is sent.
const WAITING_MAX: usize = 12;

/// How long a profile is sent again that was not accepted.
const RETRY_TIME: Duration = Duration::from_secs(600);

/// The pause after the first failure; each further one is twice as long, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often a pause looks whether the service stops.
const LOOK: Duration = Duration::from_millis(100);

/// The path of profiles at a collector that is named without one.
pub const PATH: &str = "/v1development/profiles";

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The thread that sends.
pub struct Sending {
    queue: SyncSender<Profile>,
    thread: Work<()>,
    stops: Arc<AtomicBool>,
    joined: Profile,
    since: Instant,
}

impl Sending {
    /// Begins, where the settings ask for it.
    ///
    /// # Errors
    /// A setting cannot be used, or the system refuses a thread.
    pub fn start(profiling: &Profiling, diagnostics: &Diagnostics) -> anyhow::Result<Option<Self>> {
        let Some(settings) = &profiling.settings.send else {
            return Ok(None);
        };
        let node = profiling.node.nearest("send");
        let mut url = net::client::url(node.nearest("url"), &settings.url)?;
        if url.path() == "/" {
            url.set_path(PATH);
        }
        let client = Client::build(&settings.client(), node, url.scheme() == "https")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the system refuses an event loop to send profiles")?;
        let (queue, waiting) = sync_channel(WAITING_MAX);
        let stops: Arc<AtomicBool> = Arc::default();
        let sender = Sender {
            client,
            url,
            runtime,
            stops: stops.clone(),
            diagnostics: diagnostics.clone(),
        };
        let thread = component::thread::start("profile-send", move || sender.run(&waiting));
        Ok(Some(Self {
            queue,
            thread: thread.context("cannot create the thread that sends profiles")?,
            stops,
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

    /// Sends what has gathered, each profile once more at most, and ends.
    pub fn stop(mut self, diagnostics: &Diagnostics) {
        self.stops.store(true, Ordering::Release);
        self.pass_on(diagnostics);
        drop(self.queue);
        // A panic there has been reported.
        let _ = self.thread.join();
    }
}

/// What the thread works with.
struct Sender {
    client: Client,
    url: Url,
    runtime: tokio::runtime::Runtime,
    stops: Arc<AtomicBool>,
    diagnostics: Diagnostics,
}

impl Sender {
    fn run(&self, waiting: &Receiver<Profile>) {
        for profile in waiting {
            let named = named(&profile).unwrap_or_else(|error| {
                self.diagnostics
                    .warn_limited(Limit::events("profile_names"), || {
                        format!("profiles are sent with addresses instead of names: {error:#}")
                    });
                profile
            });
            self.send(&otlp::write(&named, env!("CARGO_PKG_VERSION")));
        }
    }

    /// Sends a message until it is accepted or rejected.
    fn send(&self, message: &[u8]) {
        let (begun, mut pause) = (Instant::now(), PAUSE);
        loop {
            let failed = match self.runtime.block_on(self.attempt(message)) {
                Ok(()) => return,
                Err(failed) => failed,
            };
            let again = failed.may_succeed && begun.elapsed() < RETRY_TIME;
            self.diagnostics
                .warn_limited(Limit::events("profile_send"), || {
                    let what = match again {
                        true => "will be sent again",
                        false => "is not sent again",
                    };
                    format!(
                        "a profile was not accepted by {}, and {what}: {:#}",
                        self.url, failed.error
                    )
                });
            if !again || !self.rest(failed.after.unwrap_or(pause)) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits; whether the service goes on.
    fn rest(&self, pause: Duration) -> bool {
        let end = Instant::now() + pause.min(PAUSE_MAX);
        while Instant::now() < end {
            if self.stops.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    async fn attempt(&self, message: &[u8]) -> Result<(), Failed> {
        let request = self
            .client
            .request(http::Method::POST, self.url.clone())
            .map_err(Failed::by)?
            .header("content-type", "application/x-protobuf")
            .body(message.to_vec());
        let mut response = self.client.send(request).await.map_err(Failed::by)?;
        let status = response.status();
        let after = response.headers().get("retry-after");
        let after = after.and_then(|value| value.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        while let Some(piece) = response
            .chunk()
            .await
            .map_err(|error| Failed::by(error.into()))?
        {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_BYTES_MAX {
                break;
            }
        }
        if status.is_success() {
            return self.answered(&body);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        Err(Failed {
            // As the specification of OTLP says.
            may_succeed: matches!(status.as_u16(), 429 | 502 | 503 | 504),
            after: after.map(Duration::from_secs),
            error: anyhow!("{status} {}", self.client.without_secrets(text).trim()),
        })
    }

    /// Reports what a collector says of a message that it has.
    fn answered(&self, body: &[u8]) -> Result<(), Failed> {
        let answer = otlp::read_response(body).unwrap_or_default();
        if answer.rejected > 0 {
            self.diagnostics
                .warn_limited(Limit::events("profile_rejected"), || {
                    let (url, text) = (&self.url, &answer.message);
                    format!("{url} rejected {} profiles: {text}", answer.rejected)
                });
        }
        Ok(())
    }
}

/// Why a message was not accepted.
struct Failed {
    may_succeed: bool,
    /// When the server wants it again.
    after: Option<Duration>,
    error: anyhow::Error,
}

impl Failed {
    fn by(error: RequestError) -> Self {
        Self {
            may_succeed: !matches!(
                error,
                RequestError::Redirect { .. } | RequestError::NoHeader(_)
            ),
            after: None,
            error: error.into(),
        }
    }
}

/// A profile with names, which a process of its own gives it.
fn named(profile: &Profile) -> anyhow::Result<Profile> {
    let mut child = Command::new(own_program())
        .args(["profile", "symbolize", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start `millpond profile symbolize`")?;
    let bytes = pprof::write(profile);
    // It reads everything before it writes.
    let written = child.stdin.take().map(|mut input| input.write_all(&bytes));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("`millpond profile symbolize` ended with {}", output.status);
    }
    written.transpose()?;
    Ok(pprof::read(&output.stdout)?)
}
