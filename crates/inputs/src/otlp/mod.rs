//! `otlp`: takes log records from OpenTelemetry SDKs and Collectors, and answers when they are safe.
//!
//! # Guarantees
//! - The answer comes after the receipt, as for the input `http`. A request is taken as a whole or not at all, but for one whose answer is
//!   lost.
//! - Memory is reserved before a request is read, and for its documents before they are kept.
//!
//! # Parts
//! [`service`] reads requests of HTTP and calls of gRPC on the reactor and answers them ([`refusal`]); [`decode`] makes events of them on the threads of
//! a [`Batcher`], by way of [`codec::otlp`].

mod decode;
pub(crate) mod probe;
mod refusal;
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
    name: "otlp",
    aliases: &[],
    summary: "Receives logs over OTLP, from OpenTelemetry SDKs and Collectors.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "From programs on this machine, over HTTP and gRPC",
            stage: "otlp",
            input: "",
            output: "",
        },
        Example {
            title: "On the port of gRPC, from other machines, with a token",
            stage: "otlp :4317 auth.bearer=file:/run/secrets/token",
            input: "",
            output: "",
        },
        Example {
            title: "With TLS",
            stage: "otlp 0.0.0.0:4318 tls.cert=server.pem tls.key=server.key",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node).map_err(|error| with_output(error, node))?;
    config.check(node)?;
    server::input("otlp", config, node, context)
}

/// What to do where the output of the same name was meant: a URL stands where the address should.
fn with_output(error: ConfigError, node: &Node) -> ConfigError {
    let setting = |name| node.get(name).and_then(Node::as_str);
    let is_url = setting("url").is_some()
        || setting("address").is_some_and(|address| address.contains("://"));
    match is_url {
        true => error.note(
            "the first stage is the input `otlp`; to send what comes on standard input, write `stdin | otlp URL`",
        ),
        false => error,
    }
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
        let (body_max, depth_max) = (self.max_request_bytes.bytes(), self.max_depth);
        let batcher = Batcher::start(ctx, || Decoding::new(body_max, depth_max))?;
        let idle_timeout = self.idle_timeout.get().0;
        let service = Service::new(self, ctx.clone(), local, batcher.inbox());
        request::serve(listener, service, idle_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
