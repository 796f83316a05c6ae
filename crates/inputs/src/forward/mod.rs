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
//! [`decode`] makes events on the threads of a [`Batcher`], [`fields`] makes fields of times and tags.

mod decode;
mod fields;
mod handshake;
mod messages;
mod settings;
mod speaker;

use std::sync::Arc;

use async_trait::async_trait;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::Listener;

use self::decode::Decoding;
use self::settings::Config;
use self::speaker::Forward as Speaker;
use crate::connections::batcher::Batcher;
use crate::connections::framed;
use crate::connections::settings::{check_effects, listen};

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
    check_effects("forward", node, context)?;
    Ok(Box::new(Forward {
        config,
        node: node.clone(),
        listener: None,
    }))
}

struct Forward {
    config: Config,
    /// The settings, for the places of errors.
    node: Node,
    listener: Option<Listener>,
}

#[async_trait]
impl Input for Forward {
    async fn open(&mut self) -> Result<(), ConfigError> {
        self.config.check_secrets(&self.node)?;
        let (config, node) = (&self.config, &self.node);
        let listener = listen(
            &config.address,
            config.tls.as_ref(),
            config.max_connections,
            node,
        );
        self.listener = Some(listener.await?);
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.listener.is_none() {
            self.open()
                .await
                .map_err(|error| InputError::new(error.to_string()))?;
        }
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let local = listener.local_addr().map_err(|error| {
            InputError::new(format!("the local address cannot be determined: {error}"))
        })?;
        let config = &self.config;
        let message_max = config.max_message_bytes.bytes();
        let (max_depth, add_fields) = (config.max_depth, config.add_fields);
        let decoding = || Decoding::new(message_max, max_depth, add_fields);
        let batcher = Batcher::start_ordered(&ctx, decoding)?;
        let metrics = ctx.metrics.clone();
        let listener = listener.on_full(move || metrics.count("full_connections", 1));
        let write_timeout = self.config.message_timeout.get().0;
        let speaker = Speaker::new(self.config, ctx.clone(), local, batcher.inboxes());
        ctx.diagnostics.info(&format!("listening on {local}"));
        framed::serve(listener, Arc::new(speaker), write_timeout, &ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
