//! A connection as the stream of its events.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use batch::{Source, Stream};
use component::{InputContext, Limit};
use net::Peer;

use crate::reading::identity::Identity;

/// What is kept of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// The stream that its events belong to.
    pub(crate) stream: Arc<Stream>,
    /// The number of its next event.
    next: AtomicU64,
    /// How large its last request was in bytes.
    last_bytes: AtomicUsize,
}

impl Session {
    /// How large the last request was in bytes.
    pub(crate) fn last_bytes(&self) -> usize {
        self.last_bytes.load(Ordering::Relaxed)
    }

    /// Says how large a request was in bytes.
    pub(crate) fn note_bytes(&self, bytes: usize) {
        self.last_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says something of the client, as often as that may be said of one.
    pub(crate) fn warn(
        &self,
        ctx: &InputContext,
        kind: &'static str,
        text: impl FnOnce() -> String,
    ) {
        let peer = self.stream.source.peer().unwrap_or_default();
        let address = peer.rsplit_once(':').map_or(peer, |(address, _)| address);
        let warning = || format!("{peer}: {}", text());
        ctx.diagnostics
            .warn_limited(Limit::peer(kind, address), warning);
    }

    /// The numbers of so many events: the first of them.
    pub(crate) fn numbers(&self, events: usize) -> u64 {
        self.next.fetch_add(events as u64, Ordering::Relaxed)
    }
}

/// Makes the sessions of a listener. Their streams have ids that no other run has.
#[derive(Debug)]
pub(crate) struct Sessions {
    host: Arc<str>,
    protocol: &'static str,
    listener: Arc<str>,
    run: u128,
}

impl Sessions {
    /// The sessions of a protocol on an address of this host.
    pub(crate) fn new(host: &Arc<str>, protocol: &'static str, local: SocketAddr) -> Self {
        Self {
            host: host.clone(),
            protocol,
            listener: local.to_string().into(),
            run: fastrand::u128(..),
        }
    }

    /// The session of a connection that begins.
    pub(crate) fn begin(&self, peer: Peer) -> Arc<Session> {
        let id = Identity::new([
            self.host.as_bytes(),
            self.protocol.as_bytes(),
            self.listener.as_bytes(),
            &self.run.to_le_bytes(),
            &peer.connection.to_le_bytes(),
        ]);
        let source = Source::Connection {
            peer: peer.address.to_string().into(),
            listener: self.listener.clone(),
        };
        Arc::new(Session {
            stream: Arc::new(Stream::new(id.id(), source)),
            next: AtomicU64::new(0),
            last_bytes: AtomicUsize::new(0),
        })
    }
}
