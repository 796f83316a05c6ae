//! `loki`: takes entries of clients that push to Grafana Loki, and answers when they are safe.
//!
//! # Guarantees
//! - The answer comes after the receipt: 204 means that a disk queue has synced every event, or that every output has taken
//!   them. A request is taken as a whole or not at all, but for one whose answer is lost.
//! - Lines, labels and structured metadata stay as they were sent, times keep their nanoseconds.
//! - Memory is reserved before a body is read, and again for what it decompresses to and for its documents.
//!
//! # Parts
//! [`service`] reads requests on the reactor and answers them. On the threads of a [`Batcher`], [`json_form`] and [`proto`] read
//! [`item`]s of bodies, [`labels`] reads labels of the latter, [`entry`] writes documents and [`decode`] adds them to batches.
//!
//! The protocol is that of "Ingest logs" in Loki's HTTP API, and of `push.proto` in its sources.

mod decode;
mod entry;
mod item;
mod json_form;
mod labels;
pub(crate) mod probe;
mod proto;
mod service;
mod settings;

use std::net::SocketAddr;

use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::{Address, Listener, ServerTls};

use self::decode::Decoding;
use self::service::Service;
use self::settings::Config;
use crate::connections::batcher::Batcher;
use crate::connections::request;
use crate::connections::server::{self, Server};

/// The component.
pub const SPEC: Spec = Spec {
    name: "loki",
    aliases: &[],
    summary: "Receives entries from clients of Grafana Loki, such as Promtail, Grafana Alloy, Fluent Bit and Vector.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "From clients on this machine, which push to `http://localhost:3100/loki/api/v1/push`",
            stage: "loki",
            input: "",
            output: "",
        },
        Example {
            title: "From other machines, with TLS and a password",
            stage: "loki 0.0.0.0:3100 auth.basic.user=agent auth.basic.password='file:/run/secrets/password' tls.cert=server.pem tls.key=server.key",
            input: "",
            output: "",
        },
        Example {
            title: "Ids that Millpond's output sent as the structured metadata `event_id`",
            stage: "loki :3100 id_field=event_id",
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
    server::input("loki", config, node, context)
}

impl Server for Config {
    fn place(&self) -> (&Address, Option<&ServerTls>, usize) {
        (&self.address, self.tls.as_ref(), self.max_connections)
    }

    fn check_secrets(&self, node: &Node) -> Result<(), ConfigError> {
        match &self.auth {
            Some(auth) => auth.check(node.nearest("auth")),
            None => Ok(()),
        }
    }

    async fn serve(
        self,
        listener: Listener,
        local: SocketAddr,
        ctx: &InputContext,
    ) -> Result<(), InputError> {
        let body_max = self.max_request_bytes.bytes();
        let decoding = || Decoding::new(body_max, self.id_field.as_deref());
        let batcher = Batcher::start(ctx, decoding)?;
        let idle_timeout = self.idle_timeout.get().0;
        let service = Service::new(self, ctx.clone(), local, batcher.inbox());
        request::serve(listener, service, idle_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
