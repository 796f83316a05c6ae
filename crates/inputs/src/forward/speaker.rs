//! One connection: the handshake, reading and acknowledging at the same time.
//!
//! Loads of messages are acknowledged in the order in which they came, which is the order of their receipts. A client that only
//! closes its side of the connection still hears of what it sent; one that is gone is not told, but what it sent without
//! asking for an acknowledgement is delivered all the same.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use batch::{Source, Stream};
use component::InputContext;
use net::{Peer, Stopping};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::decode::{Decoding, Load, Never, Reply, Session};
use super::handshake::Security;
use super::messages::Messages;
use super::settings::Config;
use crate::connections::answer::{Awaited, Outcome, answer};
use crate::connections::batcher::Inbox;
use crate::connections::closing::{Ending, Fault};
use crate::connections::framed::{ConnectionReader, ConnectionWriter, Speaker};
use crate::connections::intake::{self, Filled, Intake};
use crate::reading::identity::Identity;

/// How many loads are read and not answered. What they are answered is not charged, and may be as long as they are.
const LOADS_AHEAD: usize = 8;

type Inboxes = Box<dyn Fn(u64) -> Inbox<Decoding> + Send + Sync>;

/// Speaks the Forward protocol.
pub(super) struct Forward {
    config: Config,
    security: Option<Security>,
    ctx: InputContext,
    /// Where it listens, and a number that no other run has.
    listener: Arc<str>,
    run: u128,
    inboxes: Inboxes,
}

/// A load that was left to the batcher: what becomes of it, and what the client is told then.
struct Pending {
    outcome: Awaited<Never>,
    reply: Arc<OnceLock<Reply>>,
    /// Shared by all that are pending, and by who reads.
    token: Arc<()>,
}

impl Forward {
    pub(super) fn new(
        config: Config,
        ctx: InputContext,
        local: SocketAddr,
        inboxes: impl Fn(u64) -> Inbox<Decoding> + Send + Sync + 'static,
    ) -> Self {
        let host = config.self_hostname.clone();
        let host = host.unwrap_or_else(|| format!("millpond.{}", ctx.host.name));
        let users = config.users.clone().into_iter().collect();
        let key = config.shared_key.clone();
        Self {
            security: key.map(|key| Security::new(key, users, host)),
            config,
            ctx,
            listener: local.to_string().into(),
            run: fastrand::u128(..),
            inboxes: Box::new(inboxes),
        }
    }

    fn session(&self, peer: Peer) -> Session {
        let id = Identity::new([
            self.ctx.host.name.as_bytes(),
            b"forward",
            self.listener.as_bytes(),
            &self.run.to_le_bytes(),
            &peer.connection.to_le_bytes(),
        ]);
        let source = Source::Connection {
            peer: peer.address.to_string().into(),
            listener: self.listener.clone(),
        };
        Session {
            stream: Arc::new(Stream::new(id.id(), source.clone())),
            next: AtomicU64::new(0),
            source,
        }
    }

    /// Checks who the client is.
    async fn admit<R: AsyncRead + Unpin>(
        &self,
        security: &Security,
        messages: &mut Messages<R>,
        writer: &mut ConnectionWriter,
    ) -> Result<(), Ending> {
        let refused = |reason: String| Fault::new("refused_clients", reason);
        let challenge = security
            .challenge()
            .ok_or_else(|| refused("the system gives no random numbers".to_owned()))?;
        write(writer, &challenge.helo()).await?;
        let patience = self.config.message_timeout.get().0;
        let ping = match timeout(patience, messages.next_small()).await {
            Ok(ping) => ping?.ok_or(Ending::Usual)?,
            Err(_) => {
                let reason = "the client did not answer the handshake in time";
                return Err(refused(reason.to_owned()).into());
            }
        };
        let verdict = security
            .judge(&challenge, &ping)
            .map_err(|error| refused(format!("the client's key cannot be checked: {error}")))?;
        write(writer, &verdict.pong).await?;
        match verdict.refusal {
            Some(reason) => Err(refused(reason).into()),
            None => Ok(()),
        }
    }

    /// Reads until the client closes its side or is at fault.
    async fn read<R: AsyncRead + Unpin>(
        &self,
        peer: Peer,
        mut messages: Messages<R>,
        pending: Sender<Pending>,
    ) -> Ending {
        let session = Arc::new(self.session(peer));
        let inbox = (self.inboxes)(peer.connection);
        let token = Arc::new(());
        loop {
            let load = match messages.next().await {
                Ok(Some(load)) => load,
                Ok(None) => return Ending::Usual,
                // Who waits for an acknowledgement is not idle.
                Err(Ending::Idle) if Arc::strong_count(&token) > 1 => continue,
                Err(ending) => return ending,
            };
            let (outcome, reply) = leave(load, &session, &inbox);
            let token = token.clone();
            let left = Pending {
                outcome,
                reply,
                token,
            };
            if pending.send(left).await.is_err() {
                // Nobody answers any more, and says why.
                return Ending::Usual;
            }
        }
    }
}

/// Leaves a load to the batcher.
pub(super) fn leave(
    load: intake::Load,
    session: &Arc<Session>,
    inbox: &Inbox<Decoding>,
) -> (Awaited<Never>, Arc<OnceLock<Reply>>) {
    let loaded = load.finish();
    let buffers = loaded.before.into_iter().chain([loaded.last]);
    let reply = Arc::<OnceLock<Reply>>::default();
    let load = Load {
        buffers: buffers.map(Filled::freeze).collect(),
        reservation: loaded.reservation,
        session: session.clone(),
        reply: reply.clone(),
    };
    let (answer, outcome) = answer();
    inbox.put(load, answer);
    (outcome, reply)
}

/// Acknowledges loads until there are no more, or one is at fault.
async fn acknowledge(
    mut pending: Receiver<Pending>,
    writer: &mut ConnectionWriter,
    ctx: &InputContext,
) -> Result<(), Fault> {
    // The token is kept until the answer is written.
    while let Some(Pending {
        outcome,
        reply,
        token: _token,
    }) = pending.recv().await
    {
        match outcome.await {
            Ok(Outcome::Delivered) => {}
            Ok(Outcome::NotDelivered) | Err(_) => {
                ctx.metrics.count("undelivered_messages", 1);
                let reason = "events were not delivered, and are not acknowledged";
                return Err(Fault::new("unacknowledged_loads", reason));
            }
            Ok(Outcome::Failed) => return Err(Fault::internal()),
            Ok(Outcome::Rejected(never)) => match never {},
        }
        let Some(reply) = reply.get() else {
            return Err(Fault::internal());
        };
        if !reply.acks.is_empty() {
            write(writer, &reply.acks).await?;
        }
        if let Some(fault) = &reply.fault {
            return Err(fault.clone());
        }
    }
    Ok(())
}

async fn write(writer: &mut ConnectionWriter, bytes: &[u8]) -> Result<(), Fault> {
    let written = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    };
    written.await.map_err(|error| Fault::cut(&error))
}

impl Speaker for Forward {
    async fn speak(
        &self,
        peer: Peer,
        reader: &mut ConnectionReader,
        writer: &mut ConnectionWriter,
        mut stopping: Stopping,
    ) -> Ending {
        let intake = Intake::new(
            reader,
            self.ctx.clone(),
            self.config.idle_timeout.get().0,
            self.config.message_timeout.get().0,
        );
        let mut messages = Messages::new(intake, self.config.max_message_bytes.bytes());
        if let Some(security) = &self.security {
            let admitted = tokio::select! {
                admitted = self.admit(security, &mut messages, writer) => admitted,
                () = stopping.begun() => return Ending::Usual,
            };
            if let Err(ending) = admitted {
                return ending;
            }
        }
        let (sender, receiver) = channel(LOADS_AHEAD);
        let reading = Box::pin(self.read(peer, messages, sender));
        let acknowledging = acknowledge(receiver, writer, &self.ctx);
        both(reading, acknowledging, stopping).await
    }
}

/// Reads and acknowledges until one of both is at fault, or reading ends, by itself or because it is time to stop, and everything
/// that was read is acknowledged.
async fn both(
    mut reading: impl Future<Output = Ending> + Unpin,
    acknowledging: impl Future<Output = Result<(), Fault>>,
    mut stopping: Stopping,
) -> Ending {
    let mut acknowledging = pin!(acknowledging);
    let ending = tokio::select! {
        ending = &mut reading => ending,
        acknowledged = &mut acknowledging => return ended(acknowledged, &stopping, Ending::Usual),
        () = stopping.begun() => Ending::Usual,
    };
    // With it, the list of what is acknowledged ends.
    drop(reading);
    ended(acknowledging.await, &stopping, ending)
}

/// How a connection ended, given how its acknowledgements did.
fn ended(acknowledged: Result<(), Fault>, stopping: &Stopping, reading: Ending) -> Ending {
    match acknowledged {
        Ok(()) => reading,
        // A pipeline that is stopped takes no more, which is nothing to report of a client.
        Err(fault) if fault.counter == "unacknowledged_loads" && stopping.has_begun() => {
            Ending::Usual
        }
        Err(fault) => fault.into(),
    }
}
