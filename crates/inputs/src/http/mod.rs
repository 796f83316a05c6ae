//! `http`: takes events that clients post, and answers when they are safe.
//!
//! # Guarantees
//! - The answer comes after the receipt: 2xx means that a disk queue has synced every event, or that every output has taken
//!   them. A request is taken as a whole or not at all, but for one whose answer is lost.
//! - Memory is reserved before a body is read; a connection that waits for it holds nothing but its small buffers.
//! - Documents stay as they were sent.
//!
//! # Parts
//! [`service`] reads requests on the reactor and answers them, [`decode`] makes events of them on the threads of a
//! [`Batcher`], [`fields`] makes fields of headers and parameters.

mod decode;
mod fields;
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
    name: "http",
    aliases: &[],
    summary: "Receives events that clients post over HTTP, and responds when they are safe.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Everything posted to port 8080 of this machine",
            stage: "http 8080",
            input: "",
            output: "",
        },
        Example {
            title: "JSON lines from other machines, with a token",
            stage: "http :8080 path=/logs codec=ndjson auth.bearer=file:/run/secrets/token",
            input: "",
            output: "",
        },
        Example {
            title: "TLS, and the header `X-Team` as the field `http.headers.x-team`",
            stage: "http 0.0.0.0:8443 tls.cert=server.pem tls.key=server.key headers=X-Team",
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
    server::input("http", config, node, context)
}

impl Server for Config {
    fn place(&self) -> (&Address, Option<&ServerTls>, usize) {
        (&self.address, self.tls.as_ref(), self.max_connections)
    }

    fn check_secrets(&self, node: &Node) -> Result<(), ConfigError> {
        if let Some(auth) = &self.auth {
            auth.check(node.nearest("auth"))?;
        }
        self.check_keys(node)
    }

    async fn serve(
        self,
        listener: Listener,
        local: SocketAddr,
        ctx: &InputContext,
    ) -> Result<(), InputError> {
        let (body_max, add_fields) = (self.max_request_bytes.bytes(), self.add_fields);
        let batcher = Batcher::start(ctx, || Decoding {
            body_max,
            add_fields,
            documents: codec::Documents::default(),
        })?;
        let idle_timeout = self.idle_timeout.get().0;
        let service = Service::new(self, ctx.clone(), local, batcher.inbox());
        request::serve(listener, service, idle_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
