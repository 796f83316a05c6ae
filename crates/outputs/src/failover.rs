//! A request that one host does not take goes to the next one, for outputs that may send it to any.

use std::time::Duration;

use component::SendError;
use http::StatusCode;
use net::RequestError;

use crate::answer::unanswered;
use crate::hosts::{Hosts, Turn};

/// The hosts that a request is sent to, one after the other.
pub struct Round<'h, E> {
    hosts: &'h Hosts<E>,
    tried: Vec<usize>,
    error: Option<SendError>,
}

impl<'h, E> Round<'h, E> {
    /// For one request.
    pub fn new(hosts: &'h Hosts<E>) -> Self {
        Self {
            hosts,
            tried: Vec::new(),
            error: None,
        }
    }

    /// The next host, none of those that had it before.
    pub fn next(&mut self) -> Option<Turn<'h, E>> {
        let turn = self.hosts.turn(&self.tried)?;
        self.tried.push(turn.index());
        Some(turn)
    }

    /// A host did not take it.
    ///
    /// # Errors
    /// No other host should get it now.
    pub fn failed(&mut self, turn: Turn<'h, E>, failed: Failed) -> Result<(), SendError> {
        match failed.host {
            HostVerdict::Works => turn.succeeded(),
            HostVerdict::Fails => turn.failed(&failed.error.to_string(), failed.after()),
            HostVerdict::Unknown => drop(turn),
        }
        if !failed.goes_on {
            return Err(failed.error);
        }
        self.error = Some(worse(self.error.take(), failed.error));
        Ok(())
    }

    /// What came of it when no host took it.
    pub fn into_error(self) -> SendError {
        let none = || SendError::Fatal("internal error: there is no host".into());
        self.error.unwrap_or_else(none)
    }
}

/// A request that was not taken.
pub struct Failed {
    /// What is to be done about it.
    pub error: SendError,
    /// Whether another host should get it at once.
    pub goes_on: bool,
    /// What it says of its host.
    pub host: HostVerdict,
}

/// What a request that was not taken says of its host.
pub enum HostVerdict {
    /// It works.
    Works,
    /// It does not, and rests.
    Fails,
    /// Nothing.
    Unknown,
}

impl Failed {
    /// What a host answered to the whole request: nothing of it was taken.
    pub fn answered(status: StatusCode, error: SendError) -> Self {
        // Its size says nothing of the host; everything else, wrong credentials included, may be this host's alone.
        let fails = status != StatusCode::PAYLOAD_TOO_LARGE;
        Self {
            error,
            goes_on: fails,
            host: match fails {
                true => HostVerdict::Fails,
                false => HostVerdict::Works,
            },
        }
    }

    /// A reply that cannot be believed.
    pub fn unbelieved(error: SendError) -> Self {
        Self {
            error,
            goes_on: false,
            host: HostVerdict::Fails,
        }
    }

    /// Its connection broke, so that the host may have taken it.
    pub fn broken(reason: String) -> Self {
        Self::unbelieved(SendError::Retry(reason))
    }

    /// Nothing of it was written, or taken.
    pub fn unsent(error: SendError) -> Self {
        Self {
            error,
            goes_on: true,
            host: HostVerdict::Fails,
        }
    }

    /// There was no answer.
    pub fn unanswered(origin: &str, error: RequestError) -> Self {
        Self {
            goes_on: matches!(
                error,
                RequestError::Connect(_) | RequestError::Redirect { .. }
            ),
            host: match &error {
                RequestError::Connect(_)
                | RequestError::Timeout(_)
                | RequestError::Broken(_)
                | RequestError::Redirect { .. } => HostVerdict::Fails,
                RequestError::Secret(_) | RequestError::NoHeader(_) => HostVerdict::Unknown,
            },
            error: unanswered(origin, error),
        }
    }

    /// The output was not opened.
    pub fn not_open() -> Self {
        Self {
            error: SendError::Fatal("internal error: it is not open".into()),
            goes_on: false,
            host: HostVerdict::Unknown,
        }
    }

    /// How long its host wants to be left alone.
    fn after(&self) -> Option<Duration> {
        match self.error {
            SendError::Later { after, .. } => after,
            _ => None,
        }
    }
}

/// Of what two hosts said of a request that neither took, what is to be done: the one that promises most.
fn worse(known: Option<SendError>, other: SendError) -> SendError {
    use SendError::{Later, Retry};
    match (known, other) {
        (None, other) => other,
        // The host that is free first.
        (
            Some(Later { reason, after }),
            Later {
                after: other,
                reason: text,
            },
        ) => match other < after {
            true => Later {
                reason: text,
                after: other,
            },
            false => Later { reason, after },
        },
        (Some(known @ Retry(_)), _) | (Some(known @ Later { .. }), SendError::Blocked(_)) => known,
        (_, other) => other,
    }
}
