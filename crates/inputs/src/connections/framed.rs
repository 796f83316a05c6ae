//! Connections of protocols that are no HTTP: the handshake, the two directions, the report and the end of each.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use component::InputContext;
use net::{Guarded, Incoming, Listener, Peer, Stopping};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};

use super::closing::{Ending, Fault, report, watch};

/// How long a stop waits for a client to read what it was sent last.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// The directions of a connection.
pub(crate) type ConnectionReader = ReadHalf<Guarded>;
pub(crate) type ConnectionWriter = WriteHalf<Guarded>;

/// Speaks a protocol.
pub(crate) trait Speaker: Send + Sync + 'static {
    /// Whether clients are answered. Those that are get time to read the last answer, in which what they still send is read over;
    /// the others hear at once that nothing more is taken.
    const ANSWERS: bool = true;

    /// Speaks with one client until it goes, is at fault, or `stopping` begins and everything that was received is answered.
    fn speak(
        &self,
        peer: Peer,
        reader: &mut ConnectionReader,
        writer: &mut ConnectionWriter,
        stopping: Stopping,
    ) -> impl Future<Output = Ending> + Send;
}

/// Serves clients until the input is to stop and every connection has ended. A client that takes nothing of what it is sent
/// for `write_timeout` loses its connection.
pub(crate) async fn serve<S: Speaker>(
    listener: Listener,
    speaker: Arc<S>,
    write_timeout: Duration,
    ctx: &InputContext,
) {
    let connection = |incoming: Incoming, peer: Peer, stopping| {
        let (speaker, ctx) = (speaker.clone(), ctx.clone());
        async move {
            let say = |ending: &Ending| report(&ctx, peer.address, ending);
            converse(incoming, peer, &*speaker, write_timeout, stopping, say).await;
        }
    };
    net::accept(listener, connection, ctx.stop.stopped(), watch(ctx)).await;
}

async fn converse<S: Speaker>(
    incoming: Incoming,
    peer: Peer,
    speaker: &S,
    write_timeout: Duration,
    mut stopping: Stopping,
    report: impl Fn(&Ending),
) {
    let connection = tokio::select! {
        // First, because a client without TLS may have sent something already.
        biased;
        // Boxed, as it is large and soon over.
        done = Box::pin(incoming.handshake()) => match done {
            Ok(Some(connection)) => connection,
            Ok(None) => return,
            Err(error) => {
                let reason = format!("the TLS handshake failed: {error}");
                return report(&Fault::new("failed_handshakes", reason).into());
            }
        },
        () = stopping.begun() => return,
    };
    let (mut reader, mut writer) = split(Guarded::new(connection, write_timeout));
    let ending = speaker
        .speak(peer, &mut reader, &mut writer, stopping.clone())
        .await;
    report(&ending);
    if !S::ANSWERS || stopping.is_for_another() {
        return;
    }
    // The client is given time to read what it was sent. Where it is gone, there is nothing to close.
    let mut connection = reader.unsplit(writer);
    let close = connection.shutdown();
    let _ = tokio::select! {
        closed = close => closed,
        () = async {
            stopping.begun().await;
            tokio::time::sleep(LAST_BYTES).await;
        } => Ok(()),
    };
}
