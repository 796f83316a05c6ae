//! How connections come and go, why they are closed, and how that is reported.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use component::{InputContext, Limit};
use net::Notice;

/// What is wrong with a connection, so that it is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The counter that counts it.
    pub(crate) counter: &'static str,
    /// What is wrong, for the log.
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(counter: &'static str, reason: impl Into<String>) -> Self {
        Self {
            counter,
            reason: reason.into(),
        }
    }

    /// What the client sent does not follow the protocol.
    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::new("malformed_frames", reason)
    }

    /// The client speaks TLS to a port without it, if the first bytes it sent are those of a handshake.
    pub(crate) fn tls(first: &[u8]) -> Option<Self> {
        let reason = "the client speaks TLS, which is not enabled here";
        first
            .starts_with(&[0x16, 3])
            .then(|| Self::malformed(reason))
    }

    /// Something is larger than a limit.
    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Self::new("oversized_frames", reason)
    }

    /// The connection broke.
    pub(crate) fn cut(error: &io::Error) -> Self {
        // Ours: the system's has a number.
        if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
            let reason = "the client read nothing of what was sent to it for too long";
            return Self::new("write_timeouts", reason);
        }
        Self::new("cut_connections", format!("the connection broke: {error}"))
    }

    /// Decoding panicked; the log says more.
    pub(crate) fn internal() -> Self {
        Self::new(
            "failed_messages",
            "an internal error while a frame was decoded",
        )
    }
}

/// How a connection ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should: the client closed it, or it was told to stop.
    Usual,
    /// The client was silent for too long, which is nothing to report.
    Idle,
    Fault(Fault),
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Counts connections that come and go, and reports what happens at a listener that allows `max_connections`.
pub(crate) fn watch(ctx: &InputContext) -> impl Fn(Notice<'_>) + Clone + Send + use<> {
    let ctx = ctx.clone();
    move |notice| match notice {
        Notice::Warning(warning) => ctx.diagnostics.warn(warning),
        Notice::Accepted => ctx.metrics.count("connections", 1),
        Notice::Ended => ctx.metrics.count("ended_connections", 1),
        Notice::Full => {
            ctx.metrics.count("connection_limits", 1);
            let text = "as many clients are connected as `max_connections` allows, and none has been silent for long; others wait until one of them leaves";
            let limit = Limit::once("connection_limits");
            ctx.diagnostics.warn_limited(limit, || text.to_owned());
        }
        Notice::Displaced(peer) => {
            let counter = "displaced_connections";
            ctx.metrics.count(counter, 1);
            let text = || {
                format!(
                    "{peer}: the client was silent, and its connection was closed for another one: as many are connected as `max_connections` allows"
                )
            };
            ctx.diagnostics.warn_limited(Limit::events(counter), text);
        }
    }
}

/// Counts how a connection ended, and reports a fault in one line with the peer. Of each peer, a kind of fault is reported a few
/// times a minute.
pub(crate) fn report(ctx: &InputContext, peer: SocketAddr, ending: &Ending) {
    report_as(ctx, &peer, &peer.ip(), ending);
}

/// As [`report`], for a peer that is shown so; `address` is what several connections of the same one have in common.
pub(crate) fn report_as(
    ctx: &InputContext,
    peer: &dyn Display,
    address: &dyn Display,
    ending: &Ending,
) {
    match ending {
        Ending::Usual => {}
        Ending::Idle => ctx.metrics.count("idle_timeouts", 1),
        Ending::Fault(Fault { counter, reason }) => {
            ctx.metrics.count(counter, 1);
            let address = address.to_string();
            let text = || format!("{peer}: {reason}; the connection was closed");
            ctx.diagnostics
                .warn_limited(Limit::peer(counter, &address), text);
        }
    }
}
