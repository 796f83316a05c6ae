//! `splunk_hec`: takes events of clients that send to Splunk's HTTP Event Collector, and answers as it does.
//!
//! # Guarantees
//! - Without a channel, the answer comes after the receipt: 200 means that a disk queue has synced every event, or that every
//!   output has taken them. With one, the answer to a question for its number says so.
//! - A request is taken as a whole or not at all, but for one whose answer is lost. (Splunk takes the events before a wrong one.)
//! - Everything that an envelope says is in the document, as it came.
//! - Memory is reserved before a body is read, and again for what it decompresses to and for its documents.
//!
//! # Parts
//! [`service`] reads requests on the reactor and answers them; [`route`] says what they ask for, [`token`] who may send, [`acks`]
//! which requests are safe. On the threads of a [`Batcher`], [`envelope`] reads bodies, [`document`] writes documents and
//! [`decode`] adds them to batches.
//!
//! The protocol is that of Splunk's REST API reference, "services/collector", and of "Format events for HTTP Event Collector".

mod acks;
mod decode;
mod document;
mod envelope;
mod failure;
pub(crate) mod probe;
mod route;
mod service;
mod settings;
mod time;
mod token;

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
    name: "splunk_hec",
    aliases: &[],
    summary: "Receives events from clients of Splunk's HTTP Event Collector, such as Fluent Bit, Vector and the OpenTelemetry Collector.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]),
    one_line: &[],
    examples: &[
        Example {
            title: "From clients on this machine, which send to `http://localhost:8088`",
            stage: "splunk_hec",
            input: "",
            output: "",
        },
        Example {
            title: "From other machines, with TLS and a token",
            stage: "splunk_hec 0.0.0.0:8088 tokens='file:/run/secrets/hec' tls.cert=server.pem tls.key=server.key",
            input: "",
            output: "",
        },
        Example {
            title: "Ids that Millpond's output sent as the indexed field `event_id`, and responses that come only when events are safe",
            stage: "splunk_hec :8088 id_field=event_id acknowledgements=false",
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
    server::input("splunk_hec", config, node, context)
}

impl Server for Config {
    fn place(&self) -> (&Address, Option<&ServerTls>, usize) {
        (&self.address, self.tls.as_ref(), self.max_connections)
    }

    fn check_secrets(&self, node: &Node) -> Result<(), ConfigError> {
        token::check_settings(&self.tokens, node)
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
