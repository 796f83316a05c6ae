//! `beats`: takes events that Beats and other clients send with Lumberjack, and acknowledges them when they are safe.
//!
//! # Guarantees
//! - An acknowledgement comes after the receipts of the events that it covers, and in their order.
//! - Memory is reserved before a frame is read; a connection that waits for it holds nothing but its small buffers.
//! - Documents stay as they were sent, but for `@metadata`, which becomes the event's.
//! - The events of a connection keep their order.
//!
//! # Parts
//! [`connection`] reads frames and writes acknowledgements, [`decode`] makes events of frames on the threads of a [`Batcher`]. The
//! frames themselves are in [`codec::lumberjack`].

mod connection;
mod decode;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use codec::lumberjack::Limits;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::Listener;

use self::connection::{Beats, KEEP_ALIVE};
use self::decode::Decoding;
use self::settings::Config;
use crate::connections::batcher::Batcher;
use crate::connections::{framed, settings as listening};

/// The component.
pub const SPEC: Spec = Spec {
    name: "beats",
    aliases: &["lumberjack"],
    summary: "Receives events from Beats and other clients of the Lumberjack protocol, and acknowledges them when they are safe.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Everything that Beats send to port 5044 of this machine",
            stage: "beats 5044",
            input: "",
            output: "",
        },
        Example {
            title: "From other machines, which need a certificate",
            stage: "beats :5044 tls.cert=server.pem tls.key=server.key tls.client_ca=ca.pem",
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
    listening::check_effects("beats", node, context)?;
    Ok(Box::new(BeatsInput {
        config,
        node: node.clone(),
        listener: None,
    }))
}

struct BeatsInput {
    config: Config,
    /// The settings, for the places of errors.
    node: Node,
    listener: Option<Listener>,
}

#[async_trait]
impl Input for BeatsInput {
    async fn open(&mut self) -> Result<(), ConfigError> {
        let (config, node) = (&self.config, &self.node);
        let tls = config.tls.as_ref();
        let listener = listening::listen(&config.address, tls, config.max_connections, node);
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
        let limits = Limits {
            frame_bytes_max: self.config.max_frame_bytes.bytes(),
            window_events_max: self.config.max_window,
        };
        let inflated_max = self.config.max_inflated_bytes.bytes();
        let decoding = || Decoding::new(limits, inflated_max, &ctx);
        let batcher = Batcher::start_ordered(&ctx, decoding)?;
        let idle_timeout = self.config.idle_timeout.get().0;
        let speaker = Beats {
            ctx: ctx.clone(),
            limits,
            idle_timeout,
            frame_timeout: self.config.frame_timeout.get().0,
            keep_alive: KEEP_ALIVE,
            listener: local.to_string().into(),
            run: fastrand::u128(..),
            inboxes: batcher.inboxes(),
        };
        ctx.diagnostics.info(&format!("listening on {local}"));
        framed::serve(listener, Arc::new(speaker), idle_timeout, &ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
