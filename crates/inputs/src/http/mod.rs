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
mod refusal;
mod service;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::Listener;

use self::decode::Decoding;
use self::service::Service;
use self::settings::Config;
use crate::connections::batcher::Batcher;
use crate::connections::settings as listening;

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
            stage: "http :8080 path=/logs format=ndjson auth.bearer=file:/run/secrets/token",
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
    listening::check_effects("http", node, context)?;
    Ok(Box::new(Http {
        config,
        node: node.clone(),
        listener: None,
    }))
}

struct Http {
    config: Config,
    /// The settings, for the places of errors.
    node: Node,
    listener: Option<Listener>,
}

#[async_trait]
impl Input for Http {
    async fn open(&mut self) -> Result<(), ConfigError> {
        if let Some(auth) = &self.config.auth {
            auth.check(self.node.nearest("auth"))?;
        }
        self.config.check_secrets(&self.node)?;
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
        let (body_max, add_fields) = (
            self.config.max_request_bytes.bytes(),
            self.config.add_fields,
        );
        let batcher = Batcher::start(&ctx, || Decoding {
            body_max,
            add_fields,
            documents: codec::Documents::default(),
        })?;
        let idle_timeout = self.config.idle_timeout.get().0;
        let service = Service::new(self.config, ctx.clone(), local, batcher.inbox());
        let stop = ctx.stop.clone();
        ctx.diagnostics.info(&format!("listening on {local}"));
        let warn = |warning: &str| ctx.diagnostics.warn(warning);
        net::serve(
            listener,
            Arc::new(service),
            idle_timeout,
            stop.stopped(),
            warn,
        )
        .await;
        batcher.finish().await;
        Ok(())
    }
}
