//! Connections without acknowledgements: TCP, TLS and stream sockets of Unix.
//!
//! A request is delivered when the system of the server has all of its bytes (over a socket of Unix: when its process has read them).
//! - Before each request, the connection is looked at: one that the server has closed or that broke is made anew, so that nothing is
//!   written into a connection whose end nobody reads. What [`Recent`] kept is sent again first.
//! - A server has some moments to say that it does not want a connection: one that speaks TLS may refuse a certificate when the client has
//!   already begun to send, and one that speaks something else closes the connection when it has read what it does not understand.
//! - A connection on which a request failed is closed, so that what follows does not continue a torn message. The next attempt sends
//!   the whole request.
//! - For some seconds after a request, the connection is looked at from time to time, also if no further request comes.
//! - What is lost all the same: what the server's process has read and not stored when it ends, if that is found out more than
//!   [`Recent`] keeps later, and what was sent last before Millpond ended.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use component::SendError;
use component::activity::carry;
use config::{ConfigError, Node};
use net::{ClientTls, DialError, Dialed, Dialer, Endpoint, Health};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::recent::Recent;

/// The shortest and the longest pause before the system is asked again what the server has.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a server has to say that it does not want a connection.
const FIRST_WORD: Duration = Duration::from_millis(100);

/// How often a connection is looked at while nothing is sent.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

/// How often it is asked without a pause: on one machine, the answer changes within microseconds.
const AT_ONCE: u32 = 4;

/// Where a connection goes.
#[derive(Debug, Clone)]
pub enum Target {
    /// Servers, of which one is sent to, and another one when it fails.
    Servers(Vec<Endpoint>),
    /// A socket of this machine, and its name for messages.
    Local(PathBuf, String),
}

/// How a connection is made.
pub struct StreamSettings {
    /// Where to.
    pub target: Target,
    /// How TLS is spoken, if it is.
    pub tls: Option<ClientTls>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long the server may read nothing.
    pub write_timeout: Duration,
    /// How much of what was sent is kept, to be sent again.
    pub resend_bytes_max: usize,
}

/// Sends requests over one connection, which is made when it is needed.
pub struct StreamClient {
    courier: Arc<Courier>,
    /// The output's settings, for errors with their place.
    node: Node,
}

/// What a client shares with the task that looks after its connection.
struct Courier {
    settings: StreamSettings,
    /// Made when the output opens.
    dialer: OnceLock<Dialer>,
    line: Mutex<Line>,
    counts: Counts,
}

/// The connection and what was sent on it.
struct Line {
    connection: Option<Connection>,
    recent: Recent,
    has_connected: bool,
    /// Which of the servers is next, counted on and on.
    server: usize,
    /// Whether a task looks after it.
    is_watched: bool,
}

#[derive(Default)]
struct Counts {
    reconnects: AtomicU64,
    resent: AtomicU64,
}

/// A connection that says goodbye.
struct Connection {
    dialed: Dialed,
    /// The server has taken something.
    is_wanted: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.dialed.goodbye();
    }
}

impl StreamClient {
    /// A client that has no connection yet.
    pub fn new(settings: StreamSettings, node: &Node) -> Self {
        let line = Line {
            connection: None,
            recent: Recent::new(settings.resend_bytes_max),
            has_connected: false,
            server: 0,
            is_watched: false,
        };
        let courier = Courier {
            settings,
            dialer: OnceLock::new(),
            line: Mutex::new(line),
            counts: Counts::default(),
        };
        Self {
            courier: Arc::new(courier),
            node: node.clone(),
        }
    }

    /// Reads the certificates.
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn open(&self) -> Result<(), ConfigError> {
        let settings = &self.courier.settings;
        let dialer = Dialer::new(settings.tls.as_ref(), settings.connect_timeout, &self.node)?;
        // Called once.
        let _ = self.courier.dialer.set(dialer);
        Ok(())
    }

    /// Delivers a request.
    ///
    /// # Errors
    /// It may not have arrived completely, and is to be sent again.
    pub async fn send(&self, body: &Bytes) -> Result<(), SendError> {
        let mut line = self.courier.line.lock().await;
        self.courier.send(&mut line, Some(body)).await?;
        if !line.recent.is_settled(Instant::now()) && !line.is_watched {
            line.is_watched = true;
            tokio::spawn(carry(watch(self.courier.clone())));
        }
        Ok(())
    }

    /// The counters since the last call.
    pub fn take_counters(&self) -> Vec<(&'static str, u64)> {
        let Counts { reconnects, resent } = &self.courier.counts;
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        vec![
            ("reconnects", take(reconnects)),
            ("resent_bytes", take(resent)),
        ]
    }

    /// What a user should hear since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        let dialer = self.courier.dialer.get();
        dialer.map_or_else(Vec::new, Dialer::take_warnings)
    }
}

/// Sends again what is due while no further request comes, until what was sent last has been read as far as is known.
async fn watch(courier: Arc<Courier>) {
    loop {
        sleep(WATCH_PAUSE).await;
        let mut line = courier.line.lock().await;
        if line.recent.is_settled(Instant::now()) {
            line.is_watched = false;
            return;
        }
        // The next look, or the next request, tries it again.
        let _ = courier.send(&mut line, None).await;
    }
}

impl Courier {
    /// Sends what is due, and a request.
    async fn send(&self, line: &mut Line, body: Option<&Bytes>) -> Result<(), SendError> {
        let mut connection = self.connected(line).await?;
        while let Some(due) = line.recent.due() {
            self.deliver(line, &mut connection, &due).await?;
            line.recent.repeated(Instant::now());
            self.counts
                .resent
                .fetch_add(due.len() as u64, Ordering::Relaxed);
        }
        if let Some(body) = body {
            self.deliver(line, &mut connection, body).await?;
            line.recent.push(body, Instant::now());
        }
        line.connection = Some(connection);
        Ok(())
    }

    /// A connection that is open as far as is known.
    async fn connected(&self, line: &mut Line) -> Result<Connection, SendError> {
        if let Some(mut connection) = line.connection.take() {
            match connection.dialed.health().await {
                Health::Open => return Ok(connection),
                Health::Closed => line.recent.closed(Instant::now()),
                Health::Broken(_) => {}
            }
        }
        // It broke, or the call that had it failed or was given up.
        line.recent.broken();
        let Some(dialer) = self.dialer.get() else {
            return Err(SendError::Fatal("internal error: it is not open".into()));
        };
        let target = &self.settings.target;
        let mut failed = None;
        for _ in 0..target.len() {
            match target.dial(line.server, dialer).await {
                Ok(dialed) => {
                    if std::mem::replace(&mut line.has_connected, true) {
                        self.counts.reconnects.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok(Connection {
                        dialed,
                        is_wanted: false,
                    });
                }
                Err(error) => {
                    failed = Some(target.failed(line.server, &error));
                    line.server += 1;
                }
            }
        }
        Err(failed.unwrap_or_else(|| SendError::Fatal("internal error: no server".into())))
    }

    async fn deliver(
        &self,
        line: &mut Line,
        connection: &mut Connection,
        body: &[u8],
    ) -> Result<(), SendError> {
        let patience = self.settings.write_timeout;
        let Connection { dialed, is_wanted } = connection;
        let delivered = async {
            if !*is_wanted && matches!(dialed, Dialed::Tls(_)) {
                wanted(dialed).await?;
            }
            write(dialed, body, patience).await?;
            confirmed(dialed, patience).await?;
            // A socket of Unix has said it: its process has read everything.
            if !*is_wanted && matches!(dialed, Dialed::Plain(_)) {
                wanted(dialed).await?;
            }
            *is_wanted = true;
            Ok(())
        };
        delivered.await.map_err(|error: io::Error| {
            let failed = self.settings.target.failed(line.server, &error);
            line.server += 1;
            failed
        })
    }
}

impl Target {
    /// How many servers there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Servers(servers) => servers.len(),
            Self::Local(..) => 1,
        }
    }

    /// The name of a server in messages.
    pub fn name(&self, server: usize) -> String {
        match self {
            Self::Servers(servers) => servers[server % servers.len()].to_string(),
            Self::Local(_, name) => name.clone(),
        }
    }

    async fn dial(&self, server: usize, dialer: &Dialer) -> Result<Dialed, DialError> {
        match self {
            Self::Servers(servers) => dialer.dial(&servers[server % servers.len()]).await,
            Self::Local(path, _) => dialer.dial_unix(path).await,
        }
    }

    fn failed(&self, server: usize, error: &dyn std::fmt::Display) -> SendError {
        SendError::Retry(format!("{}: {error}", self.name(server)))
    }
}

/// Waits for what a server does that does not want a connection: it says so, or closes it at once.
async fn wanted(connection: &mut Dialed) -> io::Result<()> {
    match connection.first_word(FIRST_WORD).await {
        Health::Open => Ok(()),
        Health::Closed => Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the server closed the connection at once",
        )),
        Health::Broken(error) => Err(error),
    }
}

/// Writes everything. The server may read nothing for as long as `patience`.
async fn write(
    connection: &mut (impl AsyncWrite + Unpin),
    mut body: &[u8],
    patience: Duration,
) -> io::Result<()> {
    while !body.is_empty() {
        match within(patience, connection.write(body)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => body = &body[written..],
        }
    }
    within(patience, connection.flush()).await
}

async fn within<T>(
    patience: Duration,
    writing: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(patience, writing)
        .await
        .unwrap_or_else(|_| Err(stuck(patience)))
}

fn stuck(patience: Duration) -> io::Error {
    let patience = config::Period(patience);
    let text = format!("the server has read nothing for {patience} (`write_timeout`)");
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Waits until the server's system has everything that was written.
async fn confirmed(connection: &Dialed, patience: Duration) -> io::Result<()> {
    let begin = Instant::now();
    let (mut least, mut since) = (usize::MAX, begin);
    for attempt in 0.. {
        let unconfirmed = connection.unconfirmed()?;
        if let Some(error) = connection.failure() {
            return Err(error);
        }
        if unconfirmed == 0 {
            return Ok(());
        }
        if unconfirmed < least {
            (least, since) = (unconfirmed, Instant::now());
        } else if since.elapsed() > patience {
            return Err(stuck(patience));
        }
        match attempt < AT_ONCE {
            true => yield_now().await,
            // A part of what it has taken so far, so that little is added to it.
            false => sleep((begin.elapsed() / 8).clamp(PAUSE_MIN, PAUSE_MAX)).await,
        }
    }
    Ok(())
}
