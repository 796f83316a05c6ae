//! `forward`: takes events from Fluentd, Fluent Bit and their client libraries, and acknowledges them when they are safe.
//!
//! # Guarantees
//! - The acknowledgement of a chunk comes after the receipts of all its events. A message is taken as a whole or not at all.
//! - Records stay the MessagePack documents that they were; time and tag are laid over them.
//! - The events of a chunk have the same ids whenever and on whichever connection the chunk is sent again.
//! - A malformed message closes its connection, after everything that came before has been acknowledged.
//!
//! # Parts
//! [`handshake`] checks who a client is, [`messages`] finds messages in what a connection sends, [`speaker`] reads and answers,
//! [`decode`] makes events on the threads of a [`Batcher`], [`fields`] makes fields of times and tags. The format is in
//! [`codec::forward`].

mod decode;
mod fields;
mod handshake;
mod messages;
pub(crate) mod probe;
mod settings;
mod speaker;

use std::net::SocketAddr;
use std::sync::Arc;

use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::{Address, Listener, ServerTls};

use self::decode::Decoding;
use self::settings::Config;
use self::speaker::Forward as Speaker;
use crate::connections::batcher::Batcher;
use crate::connections::framed;
use crate::connections::server::{self, Server};

/// The component.
pub const SPEC: Spec = Spec {
    name: "forward",
    aliases: &[],
    summary: "Receives events from Fluentd, Fluent Bit and Fluent's client libraries, and acknowledges them when they are safe.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "From Fluent Bit on this machine",
            stage: "forward",
            input: "",
            output: "",
        },
        Example {
            title: "From other machines, with a shared key",
            stage: "forward :24224 shared_key=file:/run/secrets/fluent",
            input: "",
            output: "",
        },
        Example {
            title: "TLS, with certificates of clients",
            stage: "forward 0.0.0.0:24224 tls.cert=server.pem tls.key=server.key tls.client_ca=ca.pem",
            input: "",
            output: "",
        },
        Example {
            title: "Records without fields of Millpond, to write them as they came",
            stage: "forward :24224 add_fields=false",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    config.check(node)?;
    server::input("forward", config, node, context)
}

impl Server for Config {
    fn place(&self) -> (&Address, Option<&ServerTls>, usize) {
        (&self.address, self.tls.as_ref(), self.max_connections)
    }

    fn check_secrets(&self, node: &Node) -> Result<(), ConfigError> {
        self.check_keys(node)
    }

    async fn serve(
        self,
        listener: Listener,
        local: SocketAddr,
        ctx: &InputContext,
    ) -> Result<(), InputError> {
        let message_max = self.max_message_bytes.bytes();
        let (max_depth, add_fields) = (self.max_depth, self.add_fields);
        let decoding = || Decoding::new(message_max, max_depth, add_fields);
        let batcher = Batcher::start_ordered(ctx, decoding)?;
        let write_timeout = self.message_timeout.get().0;
        let speaker = Speaker::new(self, ctx.clone(), local, batcher.inboxes());
        framed::serve(listener, Arc::new(speaker), write_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
