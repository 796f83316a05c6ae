//! `tcp`, `udp`, `unix` and `syslog`: messages from sockets, in protocols without acknowledgements.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings of the four inputs |
//! | [`stream`] | one connection: its bytes become records |
//! | [`datagram`] | one socket whose datagrams are records |
//! | [`identities`] | the streams of peers |
//! | [`local`] | sockets of Unix: their files and their connections |
//! | [`decode`] | records become events, on the threads of a [`Batcher`] |
//!
//! # Guarantees
//! - What was received is delivered as any other event. What the system holds for a client, or on the way, is not received:
//!   these protocols cannot say what arrived, so that a client that is cut off, or a restart, may lose that.
//! - A full queue stops reading: clients of connections wait, and the system drops datagrams and says how many.

mod datagram;
mod decode;
mod identities;
mod local;
mod settings;
pub(crate) mod specs;
mod stream;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use component::{Input, InputContext, InputError};
use config::{ConfigError, Node};
use net::{Address, Listener, Peer, ServerTls, Stopping};

use self::datagram::Receiver;
use self::decode::Decoding;
use self::identities::Identities;
use self::local::LocalListener;
use self::stream::{ClientBytes, Conversation, Patience};
use crate::connections::batcher::Batcher;
use crate::connections::closing::Ending;
use crate::connections::framed::{self, ConnectionReader, ConnectionWriter, Speaker};
use crate::connections::settings::listen;
use crate::error::RunError;

/// Where messages come from.
enum Endpoint {
    Tcp {
        address: Address,
        tls: Option<ServerTls>,
    },
    Udp(Address),
    Stream(local::Path),
    Datagrams(local::Path),
}

/// A place that was opened.
enum Opened {
    Tcp(Listener),
    Stream(LocalListener),
    Datagrams {
        socket: OwnedFd,
        /// Removed when it is dropped.
        file: Option<Arc<local::File>>,
        name: String,
        gather_time: Duration,
    },
}

/// The input.
struct Socket {
    name: &'static str,
    place: Endpoint,
    settings: codec::Settings,
    max_connections: usize,
    patience: Patience,
    receive_buffer_bytes: usize,
    /// The settings, for the places of errors.
    node: Node,
    opened: Option<Opened>,
    /// What the system did not grant.
    warning: Option<String>,
}

#[async_trait]
impl Input for Socket {
    async fn open(&mut self) -> Result<(), ConfigError> {
        let opened = match &self.place {
            Endpoint::Tcp { address, tls } => {
                let (limit, node) = (self.max_connections, &self.node);
                Opened::Tcp(listen(address, tls.as_ref(), limit, node).await?)
            }
            Endpoint::Udp(address) => {
                let node = self.node.nearest("address");
                let socket = address.bind_udp(node).await?;
                let local = socket.local_addr();
                let local = local.map_err(|error| node.error(error.to_string()))?;
                self.datagrams(socket.into(), None, local.to_string())?
            }
            Endpoint::Stream(path) => {
                let node = self.node.nearest("path");
                Opened::Stream(LocalListener::open(path, self.max_connections, node)?)
            }
            Endpoint::Datagrams(path) => {
                let (socket, file) = path.bind_datagrams(self.node.nearest("path"))?;
                let name = path.to_string();
                self.datagrams(socket, Some(file), name)?
            }
        };
        self.opened = Some(opened);
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.opened.is_none() {
            self.open().await.map_err(RunError::from)?;
        }
        let Some(opened) = self.opened.take() else {
            return Ok(());
        };
        if let Some(warning) = &self.warning {
            ctx.diagnostics.warn(warning);
        }
        // The messages of a connection stay in order.
        let batcher = Batcher::start_ordered(&ctx, || Decoding::new(&self.settings, &ctx))?;
        let outcome = match opened {
            Opened::Tcp(listener) => self.converse(listener, &batcher, &ctx).await,
            Opened::Stream(listener) => {
                ctx.diagnostics
                    .info(&format!("listening on {}", listener.name()));
                let identities = Identities::new(self.name, &ctx, listener.name());
                let (settings, patience) = (self.settings.clone(), self.patience);
                let inboxes = batcher.inboxes();
                let begin = {
                    let ctx = ctx.clone();
                    move |connection, number| {
                        let stream = identities.numbered(None, number);
                        let inbox = inboxes(number);
                        Conversation::new(
                            connection,
                            stream,
                            &settings,
                            inbox,
                            ctx.clone(),
                            patience,
                        )
                    }
                };
                listener.serve(begin, &ctx).await;
                Ok(())
            }
            Opened::Datagrams {
                socket,
                file,
                name,
                gather_time,
            } => {
                ctx.diagnostics.info(&format!("receiving on {name}"));
                let identities = Identities::new(self.name, &ctx, &name);
                let inbox = batcher.inboxes()(0);
                let receiver = Receiver::new(socket, inbox, ctx.clone(), identities, gather_time);
                let work = component::thread::start("datagrams", move || receiver.run());
                let ended = work.map_err(RunError::ReaderThread)?.ended().await;
                drop(file);
                match ended {
                    Ok(received) => received.map_err(InputError::from),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        };
        batcher.finish().await;
        outcome
    }
}

impl Socket {
    /// An input that takes no connections and no datagrams yet: what the place needs is for the caller to set.
    fn new(name: &'static str, place: Endpoint, settings: codec::Settings, node: &Node) -> Self {
        Self {
            name,
            place,
            settings,
            max_connections: 0,
            patience: Patience::default(),
            receive_buffer_bytes: 0,
            node: node.clone(),
            opened: None,
            warning: None,
        }
    }

    fn datagrams(
        &mut self,
        socket: OwnedFd,
        file: Option<Arc<local::File>>,
        name: String,
    ) -> Result<Opened, ConfigError> {
        let wanted = self.receive_buffer_bytes;
        let granted = Receiver::prepare(&socket, wanted).map_err(|error| {
            self.node
                .error(format!("the socket cannot be used: {error}"))
        })?;
        if granted < wanted {
            let (granted, wanted) = (config::Size(granted as u64), config::Size(wanted as u64));
            self.warning = Some(format!(
                "the system holds at most {granted} of datagrams until they are taken, not {wanted}: raise it with `sysctl net.core.rmem_max`, or lower `receive_buffer_bytes`"
            ));
        }
        let gather_time = match file {
            None => datagram::gather_time(granted),
            Some(_) => Duration::ZERO,
        };
        Ok(Opened::Datagrams {
            socket,
            file,
            name,
            gather_time,
        })
    }

    /// Reads connections of TCP until it is time to stop.
    async fn converse(
        &self,
        listener: Listener,
        batcher: &Batcher<Decoding>,
        ctx: &InputContext,
    ) -> Result<(), InputError> {
        let local = listener.local_addr().map_err(RunError::LocalAddress)?;
        ctx.diagnostics.info(&format!("listening on {local}"));
        let listening = Listening {
            identities: Identities::new(self.name, ctx, &local.to_string()),
            settings: self.settings.clone(),
            inboxes: Box::new(batcher.inboxes()),
            ctx: ctx.clone(),
            patience: self.patience,
        };
        let write_timeout = self.patience.line;
        framed::serve(listener, Arc::new(listening), write_timeout, ctx).await;
        Ok(())
    }
}

/// Reads connections of TCP.
struct Listening {
    identities: Identities,
    settings: codec::Settings,
    inboxes: Box<dyn Fn(u64) -> crate::connections::batcher::Inbox<Decoding> + Send + Sync>,
    ctx: InputContext,
    patience: Patience,
}

impl ClientBytes for &mut ConnectionReader {}

impl Speaker for Listening {
    const ANSWERS: bool = false;

    async fn speak(
        &self,
        peer: Peer,
        reader: &mut ConnectionReader,
        _: &mut ConnectionWriter,
        mut stopping: Stopping,
    ) -> Ending {
        let stream = self
            .identities
            .numbered(Some(&peer.address.to_string()), peer.connection);
        let inbox = (self.inboxes)(peer.connection);
        let (ctx, patience) = (self.ctx.clone(), self.patience);
        Conversation::new(reader, stream, &self.settings, inbox, ctx, patience)
            .read(stopping.begun())
            .await
    }
}
