//! `redis` takes events from lists and streams of Redis and its relatives.
//!
//! # Guarantees
//! - An element leaves the server, and an entry is acknowledged, only when it is safe: when the receipts of its batch and of all before
//!   it have resolved.
//! - An element or entry that comes again, after a crash or because the connection broke, has the same id.
//! - Two readers that use the same consumer of a list do not take elements from each other: the older one ends.
//!
//! [`list`] says how elements of a list are held and numbered, [`stream`] how entries of a stream are. Connecting again, sending and
//! telling what is safe is [`crate::messages::working`]'s. Each server has a thread of its own.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings |
//! | [`link`] | a connection: commands and answers |
//! | [`list`] | reads lists |
//! | [`stream`] | reads streams |

mod link;
mod list;
mod settings;
mod stream;

use std::panic::resume_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use component::thread::{self, Work};
use component::{
    Build, BuildContext, Effects, Example, Input, InputContext, InputError, Limit, Spec,
};
use config::{ConfigError, Node, Positional};
use net::Dialer;
use tokio::runtime::Handle;

use self::link::Server;
use self::list::ListServer;
use self::settings::{DataType, RedisSettings};
use self::stream::StreamServer;
use crate::connections::settings::check_unending;
use crate::error::RunError;
use crate::messages::batches::MessageBatches;
use crate::messages::working::{MessageServer, MessageWork};

/// The component.
pub const SPEC: Spec = Spec {
    name: "redis",
    aliases: &[],
    summary: "Takes events from lists or streams of Redis, Valkey or another server that speaks their protocol.",
    description: include_str!("redis.md"),
    positional: Positional::list(&["hosts"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON events of a list, as Filebeat, Logstash or Millpond append them",
            stage: "redis localhost key=logs",
            input: "",
            output: "",
        },
        Example {
            title: "A stream that is shared with other readers of the group `archive`",
            stage: "redis redis.example:6379 key=logs data_type=stream group=archive",
            input: "",
            output: "",
        },
        Example {
            title: "What is in a list, to its end, with TLS and a password",
            stage: "redis redis.example:6380 key=logs until=end tls.ca=ca.pem password=file:/run/secrets/redis",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<settings::Config>(),
    build: Build::Input(build),
};

struct Redis {
    settings: RedisSettings,
    node: Node,
    /// Made when the input opens.
    dialer: Option<Dialer>,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let settings = RedisSettings::read(node)?;
    if settings.own.until.is_none() {
        check_unending("redis", node, context)?;
    }
    if context.effects == Effects::Nothing {
        let error = node
            .error("events would be taken from the server, and here every event is thrown away");
        return Err(error.note("run it with its outputs (`bench --real-outputs`)"));
    }
    Ok(Box::new(Redis {
        settings,
        node: node.clone(),
        dialer: None,
    }))
}

#[async_trait]
impl Input for Redis {
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
        let settings = Arc::new(self.settings);
        let mut working = Vec::new();
        for endpoint in &settings.hosts {
            let server = Server::new(endpoint, &settings, dialer.clone(), &ctx);
            working.push(start(server, &settings, ctx.clone())?);
        }
        drop(ctx);
        let mut problems = Vec::new();
        for work in working {
            match work.ended().await {
                Ok(problem) => problems.extend(problem),
                Err(panic) => resume_unwind(panic),
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(InputError { problems }),
        }
    }

    fn can_wait(&self) -> bool {
        true
    }
}

/// Starts the thread of a server; gives what went wrong when it ends.
fn start(
    server: Server,
    settings: &Arc<RedisSettings>,
    ctx: InputContext,
) -> Result<Work<Option<String>>, InputError> {
    let settings = settings.clone();
    let work = move || match settings.own.data_type {
        DataType::List => read(ListServer::new(server), &settings, ctx),
        DataType::Stream => read(StreamServer::new(server), &settings, ctx),
    };
    let started = thread::start("redis", work).map_err(RunError::ReaderThread)?;
    Ok(started)
}

fn read(server: impl MessageServer, settings: &RedisSettings, ctx: InputContext) -> Option<String> {
    let batches = MessageBatches::new(&settings.codec, "redis", &ctx);
    let is_finite = settings.own.until.is_some();
    Handle::current().block_on(MessageWork::new(server, batches, is_finite, ctx).run())
}

/// Warns of certificates that were renewed and cannot be used.
fn warn_of_tls(dialer: &Dialer, ctx: &InputContext) {
    for warning in dialer.take_warnings() {
        let limit = Limit::events("tls");
        ctx.diagnostics.warn_limited(limit, || warning);
    }
}
