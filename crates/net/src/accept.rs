//! The accept loop of everything that listens, and the end of its connections.
//!
//! Each connection runs as a task of its own. Stopping closes the port at once and tells every task; the loop returns when
//! the last one has ended. How long that may take is up to the tasks.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;

use crate::listen::{Incoming, Listener};
use crate::places::Stopping;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The number of its connection: 0 for the first one of the listener.
    pub connection: u64,
}

/// What happens at a listener.
#[derive(Clone, Copy)]
pub enum Notice<'a> {
    /// A person should hear this.
    Warning(&'a str),
    /// A connection was accepted.
    Accepted,
    /// A connection has ended.
    Ended,
    /// There are as many connections as are allowed, and none that is silent: a client waits until one of them ends.
    Full,
    /// The connection of this client is closed, because it was silent and another client needs its place.
    Displaced(&'a dyn fmt::Display),
}

/// Accepts connections until `stop` completes and every connection has ended. `connection` makes the task of each, which
/// keeps its [`Stopping`] until it ends. What happens goes to `notice`.
pub async fn accept<F: Future<Output = ()> + Send + 'static>(
    mut listener: Listener,
    mut connection: impl FnMut(Incoming, Peer, Stopping) -> F,
    stop: impl Future<Output = ()>,
    notice: impl Fn(Notice<'_>) + Clone + Send + 'static,
) {
    let mut stop = pin!(stop);
    let mut number = 0;
    loop {
        let incoming = tokio::select! {
            biased;
            () = &mut stop => break,
            incoming = listener.accept(&notice) => incoming,
        };
        listener
            .take_warnings()
            .iter()
            .for_each(|warning| notice(Notice::Warning(warning)));
        let peer = Peer {
            address: incoming.peer(),
            connection: number,
        };
        number += 1;
        let stopping = incoming.stopping();
        let connection = connection(incoming, peer, stopping.clone());
        spawn(connection, peer.address, stopping, notice.clone());
    }
    listener.close().await;
}

/// Runs the task of a connection that was accepted, and says how it went.
pub fn spawn(
    connection: impl Future<Output = ()> + Send + 'static,
    peer: impl fmt::Display + Send + 'static,
    stopping: Stopping,
    notice: impl Fn(Notice<'_>) + Send + 'static,
) {
    notice(Notice::Accepted);
    tokio::spawn(async move {
        stopping.scope(connection).await;
        if stopping.is_for_another() {
            notice(Notice::Displaced(&peer));
        }
        notice(Notice::Ended);
    });
}
