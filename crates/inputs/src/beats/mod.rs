//! `beats`: takes events that Beats and other clients send with Lumberjack, and acknowledges them when they are safe.
//!
//! # Guarantees
//! - An acknowledgement comes after the receipts of the events that it covers, and in their order.
//! - Memory is reserved before a frame is read; a connection that waits for it holds nothing but its small buffers.
//! - Documents stay as they were sent, but for `@metadata`, which becomes the event's.
//! - The events of a connection keep their order.
//!
//! # Parts
//! [`connection`] reads frames and writes acknowledgements, [`decode`] makes events of frames on the threads of a [`Batcher`],
//! [`parts`] tells the connection of them. The frames themselves are in [`codec::lumberjack`].

mod connection;
mod decode;
mod parts;
pub(crate) mod probe;
mod settings;

use std::net::SocketAddr;
use std::sync::Arc;

use codec::lumberjack::Limits;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::{Address, Listener, ServerTls};

use self::connection::{Beats, KEEP_ALIVE};
use self::decode::Decoding;
use self::settings::Config;
use crate::connections::batcher::Batcher;
use crate::connections::framed;
use crate::connections::server::{self, Server};

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
    server::input("beats", config, node, context)
}

impl Server for Config {
    fn place(&self) -> (&Address, Option<&ServerTls>, usize) {
        (&self.address, self.tls.as_ref(), self.max_connections)
    }

    async fn serve(
        self,
        listener: Listener,
        local: SocketAddr,
        ctx: &InputContext,
    ) -> Result<(), InputError> {
        let limits = Limits {
            frame_bytes_max: self.max_frame_bytes.bytes(),
            window_events_max: self.max_window,
        };
        let (inflated_max, max_depth) = (self.max_inflated_bytes.bytes(), self.max_depth);
        let decoding = || Decoding::new(limits, inflated_max, max_depth, ctx);
        let batcher = Batcher::start_ordered(ctx, decoding)?;
        let idle_timeout = self.idle_timeout.get().0;
        let speaker = Beats {
            ctx: ctx.clone(),
            limits,
            idle_timeout,
            frame_timeout: self.frame_timeout.get().0,
            keep_alive: KEEP_ALIVE,
            listener: local.to_string().into(),
            run: fastrand::u128(..),
            inboxes: batcher.inboxes(),
        };
        framed::serve(listener, Arc::new(speaker), idle_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
