//! `nats` takes messages from a stream of NATS JetStream, as a durable pull consumer.
//!
//! # Guarantees
//! - A message is acknowledged only when it is safe: when the receipts of its batch and of all before it have resolved.
//! - Messages in flight are kept: the server is told that they are worked at, so that it does not give them to others.
//! - A message that comes again, after a crash or because the connection broke, has the same id: that of its stream and its number.
//!
//! Connecting again, sending and telling what is safe is [`crate::messages::working`]'s.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings |
//! | [`link`] | a connection: requests and their answers, messages that came |
//! | [`consumer`] | the consumer: what is asked for, and when the end is reached |

mod consumer;
mod link;
mod settings;

use async_trait::async_trait;
use component::{
    Build, BuildContext, Effects, Example, Input, InputContext, InputError, Limit, Spec,
};
use config::{ConfigError, Node, Positional};
use net::Dialer;
use tokio::runtime::Handle;

use self::consumer::ConsumerServer;
use self::settings::NatsSettings;
use crate::connections::settings::check_unending;
use crate::error::RunError;
use crate::messages::batches::MessageBatches;
use crate::messages::working::MessageWork;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "nats",
    aliases: &[],
    summary: "Takes events from a stream of NATS JetStream.",
    description: include_str!("nats.md"),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A stream, shared with other readers that have the same consumer",
            stage: "nats nats.example stream=LOGS consumer=archive",
            input: "",
            output: "",
        },
        Example {
            title: "What is in a stream under one subject, to its end",
            stage: "nats localhost stream=LOGS consumer=export subject=logs.web until=end",
            input: "",
            output: "",
        },
    ],
    schema: settings::schema,
    build: Build::Input(build),
};

struct Nats {
    settings: NatsSettings,
    node: Node,
    /// Made when the input opens.
    dialer: Option<Dialer>,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let settings = NatsSettings::read(node)?;
    if settings.own.until.is_none() {
        check_unending("nats", node, context)?;
    }
    if context.effects == Effects::Nothing {
        let error =
            node.error("messages would be acknowledged, and here every event is thrown away");
        return Err(error.note(
            "run it with its outputs (`bench --real-outputs`) and a consumer for that purpose",
        ));
    }
    Ok(Box::new(Nats {
        settings,
        node: node.clone(),
        dialer: None,
    }))
}

#[async_trait]
impl Input for Nats {
    async fn open(&mut self) -> Result<(), ConfigError> {
        let own = &self.settings.own;
        let timeout = own.connect_timeout.get().0;
        self.dialer = Some(Dialer::new(own.tls.as_ref(), timeout, &self.node)?);
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.dialer.is_none() {
            self.open().await.map_err(RunError::from)?;
        }
        let Some(dialer) = self.dialer.take() else {
            return Ok(());
        };
        on_blocking_thread(ctx, move |ctx| {
            let batches = MessageBatches::new(&self.settings.codec, "nats", ctx);
            let is_finite = self.settings.own.until.is_some();
            let server = ConsumerServer::new(self.settings, dialer, ctx);
            let work = MessageWork::new(server, batches, is_finite, ctx.clone());
            ctx.end_sending();
            Handle::current().block_on(work.run()).into_iter().collect()
        })
        .await
    }

    fn can_wait(&self) -> bool {
        true
    }
}

/// Warns of certificates that were renewed and cannot be used.
fn warn_of_tls(dialer: &Dialer, ctx: &InputContext) {
    for warning in dialer.take_warnings() {
        let limit = Limit::events("tls");
        ctx.diagnostics.warn_limited(limit, || warning);
    }
}
