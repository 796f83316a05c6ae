//! The accept loop of everything that listens, and the end of its connections.
//!
//! Each connection runs as a task of its own. Stopping closes the port at once and tells every task; the loop returns when
//! the last one has ended. How long that may take is up to the tasks.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;

use tokio::sync::watch;

use crate::listen::{Incoming, Listener};

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The number of its connection: 0 for the first one of the listener.
    pub connection: u64,
}

/// Tells a connection when to stop. The loop waits until all of them are dropped.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits until it is time to stop. Safe to cancel, and completes again when asked again.
    pub async fn begun(&mut self) {
        // Without a sender the loop is gone, which means the same.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    /// Whether it is time to stop.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// What happens at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A person should hear this.
    Warning(&'a str),
    /// A connection was accepted.
    Accepted,
    /// A connection has ended.
    Ended,
    /// There are as many connections as are allowed: clients wait until one of them ends.
    Full,
}

/// Accepts connections until `stop` completes and every connection has ended. `connection` makes the task of each, which
/// keeps its [`Stopping`] until it ends. What happens goes to `notice`.
pub async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: Listener,
    mut connection: impl FnMut(Incoming, Peer, Stopping) -> F,
    stop: impl Future<Output = ()>,
    notice: impl Fn(Notice<'_>) + Clone + Send + 'static,
) {
    let (stopping, stopped) = watch::channel(false);
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
        notice(Notice::Accepted);
        let peer = Peer {
            address: incoming.peer(),
            connection: number,
        };
        number += 1;
        let connection = connection(incoming, peer, Stopping(stopped.clone()));
        let notice = notice.clone();
        tokio::spawn(async move {
            connection.await;
            notice(Notice::Ended);
        });
    }
    drop(listener);
    drop(stopped);
    // Fails where nobody is connected, which is as well.
    let _ = stopping.send(true);
    stopping.closed().await;
}
