//! Requests to servers that acknowledge what they took, over connections that stay open: what Lumberjack, Forward, Redis and NATS have in common.
//!
//! A [`Protocol`] says how a connection begins, what is written for a request, and what an answer says. An [`Exchange`] keeps the
//! connections: to each host at most `connections`, with at most `pipelining` requests in flight on each. A connection is a task
//! of its own ([`connection`]), so that giving up a request harms no other one. Hosts are chosen as in [`crate::hosts`]; a request
//! that was not written at all goes to the next host at once.
//!
//! A connection that breaks fails every request that was in flight on it. What the server had acknowledged of them until then is
//! taken; the rest is sent again, so that the server may get it twice.

mod connection;
mod settings;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use component::{Request, SendError, Sent, Warning};
use config::{ConfigError, Node};
use net::redis::LoginError;
use net::{DialError, Dialed, Dialer, Endpoint};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::connection::{Connection, Job};
pub use self::settings::ConnectionSettings;
use crate::failover::{Failed, Round};
use crate::hosts::{Hosts, Turn};

/// How a server is spoken to.
pub trait Protocol: Send + Sync + 'static {
    /// Makes a connection.
    fn dial(
        &self,
        dialer: &Dialer,
        endpoint: &Endpoint,
    ) -> impl Future<Output = Result<Dialed, DialError>> + Send {
        dialer.dial(endpoint)
    }

    /// Does what comes before the first request of a connection.
    fn greet(&self, stream: &mut Dialed) -> impl Future<Output = Result<(), GreetError>> + Send;

    /// What is written for a request, one piece after the other.
    fn message(&self, request: &Request) -> [Bytes; 3];

    /// Reads the next answer at the beginning of what a server sent: what it says, and how many bytes it has. None where it is
    /// not complete.
    ///
    /// # Errors
    /// It is none.
    fn answer(&self, received: &[u8]) -> Result<Option<(Answer, usize)>, String>;
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is still at work.
    KeepAlive,
    /// So many rows of the oldest request in flight are safe.
    Rows(usize),
    /// All rows of the request with this id are safe.
    Request(u128),
    /// The oldest request in flight was not taken.
    Failed(SendError),
    /// What became of a row of the request with this id. [`SendError::Refused`] is for a row that is never taken; after another error it is
    /// sent again.
    Row {
        /// The request.
        request: u128,
        /// The row, counted from 0.
        row: usize,
        /// Whether it is safe.
        result: Result<(), SendError>,
    },
    /// Nothing of a request: the server wants this for an answer.
    Reply(&'static [u8]),
}

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The server refuses the client: a person must mend something.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl From<LoginError> for GreetError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Refused(reason) => Self::Refused(reason),
            LoginError::Broken(error) => Self::Broken(error),
        }
    }
}

/// How a request ended on a connection.
pub type Outcome = Result<Sent, Failed>;

/// How often a request gets another connection because one ended before it was written.
const CONNECTIONS_TRIED: usize = 5;

/// The connections of an output.
pub struct Exchange<P> {
    protocol: Arc<P>,
    settings: ConnectionSettings,
    hosts: Hosts<Endpoint>,
    /// Made when the output opens.
    dialer: OnceLock<Dialer>,
    /// The open connections of each host, by its number.
    open: Mutex<HashMap<usize, Vec<Arc<Line>>>>,
}

/// A connection, as seen by those who have requests for it.
struct Line {
    jobs: mpsc::Sender<Job>,
    in_flight: AtomicUsize,
}

/// Counts a request in flight on a connection while it lives.
struct InFlight(Arc<Line>);

impl InFlight {
    fn on(line: &Arc<Line>) -> Self {
        line.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(line.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Protocol> Exchange<P> {
    /// No connection is made before the first request.
    pub fn new(protocol: P, settings: ConnectionSettings, port: u16) -> Self {
        let endpoints = settings.hosts.iter().cloned();
        let endpoints = endpoints.map(|endpoint| endpoint.or_port(port));
        let hosts = endpoints.map(|endpoint| {
            let name = endpoint.to_string();
            (endpoint, name)
        });
        Self {
            protocol: Arc::new(protocol),
            hosts: Hosts::new(hosts),
            settings,
            dialer: OnceLock::new(),
            open: Mutex::default(),
        }
    }

    /// How servers are spoken to.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Reads certificates. `node` holds the settings of the output.
    ///
    /// # Errors
    /// A file that cannot be used, at the place of its setting.
    pub fn open(&self, node: &Node) -> Result<(), ConfigError> {
        let ConnectionSettings {
            tls,
            connect_timeout,
            ..
        } = &self.settings;
        let dialer = Dialer::new(tls.as_ref(), connect_timeout.get().0, node)?;
        // Called once.
        let _ = self.dialer.set(dialer);
        Ok(())
    }

    /// What a person should hear since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        let dialer = self.dialer.get().map(Dialer::take_warnings);
        let dialer = dialer.unwrap_or_default().into_iter().map(Warning::from);
        dialer.chain(self.hosts.take_warnings()).collect()
    }

    /// Sends a request to one of the hosts, and waits until it is acknowledged.
    ///
    /// # Errors
    /// What became of the request as a whole.
    pub async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        let mut round = Round::new(&self.hosts);
        while let Some(turn) = round.next() {
            match self.send_to(&turn, request).await {
                Ok(sent) => {
                    match &sent.because {
                        None => turn.succeeded(),
                        Some(error) => turn.failed(&error.to_string(), None),
                    }
                    return Ok(sent);
                }
                Err(failed) => round.failed(turn, failed)?,
            }
        }
        Err(round.into_error())
    }

    async fn send_to(&self, turn: &Turn<'_, Endpoint>, request: &Request) -> Outcome {
        for _ in 0..CONNECTIONS_TRIED {
            let line = self.line(turn)?;
            let in_flight = InFlight::on(&line);
            let (answer, answered) = oneshot::channel();
            let job = Job {
                request: request.clone(),
                answer,
            };
            if line.jobs.send(job).await.is_err() {
                continue;
            }
            let outcome = answered.await;
            drop(in_flight);
            // Without an outcome, the connection ended before the request was written.
            if let Ok(outcome) = outcome {
                return outcome;
            }
        }
        let reason = format!("{}: connections end at once", turn.name());
        Err(Failed::broken(reason))
    }

    /// A connection to a host: the one with the fewest requests in flight, or a new one where all have as many as they may.
    fn line(&self, turn: &Turn<'_, Endpoint>) -> Result<Arc<Line>, Failed> {
        let dialer = self.dialer.get().ok_or_else(Failed::not_open)?;
        let mut open = self.open.lock();
        let lines = open.entry(turn.index()).or_default();
        lines.retain(|line| !line.jobs.is_closed());
        let load = |line: &&Arc<Line>| line.in_flight.load(Ordering::Relaxed);
        let idle = lines.iter().min_by_key(load);
        let is_free = |line: &&Arc<Line>| {
            load(line) < self.settings.pipelining || lines.len() >= self.settings.connections
        };
        if let Some(line) = idle.filter(is_free) {
            return Ok(line.clone());
        }
        let (jobs, inbox) = mpsc::channel(self.settings.pipelining);
        let connection = Connection {
            protocol: self.protocol.clone(),
            dialer: dialer.clone(),
            endpoint: turn.endpoint().clone(),
            pipelining: self.settings.pipelining,
            connect_timeout: self.settings.connect_timeout.get().0,
            patience: self.settings.timeout.get().0,
            inbox,
        };
        tokio::spawn(connection.run());
        let line = Arc::new(Line {
            jobs,
            in_flight: AtomicUsize::new(0),
        });
        lines.push(line.clone());
        Ok(line)
    }
}
