//! `elasticsearch`: takes the documents of clients that write to Elasticsearch, and answers as it does when they are safe.
//!
//! # Guarantees
//! - The answer comes after the receipt: a document with status 201 was synced by a disk queue, or taken by every output.
//! - Documents stay as they were sent; each was validated once.
//! - Memory is reserved before a body is read, and again for what it decompresses to and for the reply.
//! - Every request is answered, those that nothing is known of with an error in Elasticsearch's form.
//!
//! # Parts
//! [`service`] reads requests on the reactor and answers them; [`route`] says what they ask for, [`discovery`] answers what
//! clients ask before they send documents. On the threads of a [`Batcher`], [`bulk`] reads bodies, [`decode`] makes events
//! of them, [`target`] makes metadata of what actions say, [`reply`] writes the replies as far as [`filter`] wants them.
//!
//! # Limits
//! HTTP/1.1. Nothing but documents is kept: no templates, no pipelines, no searches.

mod bulk;
mod decode;
mod discovery;
mod failure;
mod filter;
pub(crate) mod probe;
mod reply;
mod route;
mod service;
mod settings;
mod target;

use std::net::SocketAddr;

use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use net::{Address, Listener, ServerTls};

use self::bulk::{Items, Limits};
use self::decode::Decoding;
use self::service::Service;
use self::settings::Config;
use crate::connections::batcher::Batcher;
use crate::connections::request;
use crate::connections::server::{self, Server};

/// The component.
pub const SPEC: Spec = Spec {
    name: "elasticsearch",
    aliases: &[],
    summary: "Receives documents from clients of Elasticsearch, such as Filebeat, Fluent Bit and Logstash.",
    description: include_str!("rules.md"),
    positional: Positional::fields(&["address"]).nested(&["auth.basic"]),
    one_line: &[],
    examples: &[
        Example {
            title: "What agents on this machine send to `http://localhost:9200`",
            stage: "elasticsearch 9200",
            input: "",
            output: "",
        },
        Example {
            title: "From other machines, with TLS and an API key",
            stage: "elasticsearch 0.0.0.0:9200 tls.cert=server.pem tls.key=server.key auth.api_key='file:/run/secrets/api-key'",
            input: "",
            output: "",
        },
        Example {
            title: "With a user and a password, as a server of version 8.19.0",
            stage: "elasticsearch :9200 version=8.19.0 auth.basic.user=agent auth.basic.password='file:/run/secrets/password'",
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
    server::input("elasticsearch", config, node, context)
}

/// What to do where the output of the same name was meant: a URL stands where the address should.
fn with_output(error: ConfigError, node: &Node) -> ConfigError {
    let address = node.get("address").and_then(Node::as_str);
    match address.is_some_and(|address| address.contains("://")) {
        true => error.note(
            "the first stage is the input `elasticsearch`; to send what comes on standard input, write `stdin | elasticsearch URL`",
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
        let body_max = self.max_request_bytes.bytes();
        let limits = Limits {
            items: self.max_request_actions,
            depth: self.max_depth,
        };
        let batcher = Batcher::start(ctx, || Decoding {
            body_max,
            items: Items::new(limits),
            draft: reply::Draft::default(),
        })?;
        let idle_timeout = self.idle_timeout.get().0;
        let service = Service::new(self, ctx.clone(), local, batcher.inbox());
        request::serve(listener, service, idle_timeout, ctx).await;
        batcher.finish().await;
        Ok(())
    }
}
