//! The streams of peers.

use std::sync::Arc;

use batch::{Source, Stream};
use component::InputContext;

use crate::reading::identity::Identity;

/// Makes streams for peers.
#[derive(Clone)]
pub(super) struct Identities {
    name: &'static str,
    host: Arc<str>,
    listener: Arc<str>,
    /// Something that no other run has.
    run: u128,
    next: u64,
}

impl Identities {
    pub(super) fn new(name: &'static str, ctx: &InputContext, listener: &str) -> Self {
        Self {
            name,
            host: ctx.host.name.clone(),
            listener: listener.into(),
            run: fastrand::u128(..),
            next: 0,
        }
    }

    /// The stream of the next peer.
    pub(super) fn stream(&mut self, peer: Option<&str>) -> Arc<Stream> {
        self.next += 1;
        self.numbered(peer, self.next - 1)
    }

    /// The stream of a connection.
    pub(super) fn numbered(&self, peer: Option<&str>, number: u64) -> Arc<Stream> {
        let identity = Identity::new([
            self.host.as_bytes(),
            self.name.as_bytes(),
            self.listener.as_bytes(),
            &self.run.to_le_bytes(),
            &number.to_le_bytes(),
        ]);
        let source = Source::Connection {
            peer: peer.unwrap_or(&self.listener).into(),
            listener: self.listener.clone(),
        };
        Arc::new(Stream::new(identity.id(), source))
    }
}
