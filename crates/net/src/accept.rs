//! The accept loop of everything that listens, and the end of its connections.
//!
//! Each connection runs as a task of its own. Stopping closes the port at once and tells every task; the loop returns when
//! the last one has ended. How long that may take is up to the tasks.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;

use component::activity::carry;

use crate::listen::{Incoming, Listener};
use crate::notice::Notice;
use crate::places::Stopping;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The number of its connection: 0 for the first one of the listener.
    pub connection: u64,
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
    tokio::spawn(carry(async move {
        stopping.scope(connection).await;
        if stopping.is_for_another() {
            notice(Notice::Displaced(&peer));
        }
        notice(Notice::Ended);
    }));
}
