//! `internal_log`: the messages of Millpond's own log.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use component::own::LogEntry;
use component::{
    Build, BuildContext, Example, Input, InputContext, InputError, Limit, Spec, Stopped, plural,
};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_id;
use crate::connections::settings::check_unending;
use crate::reading::filling::Filling;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "internal_log",
    aliases: &[],
    summary: "Makes events of the messages of Millpond's own log.",
    description: include_str!("log.md"),
    positional: Positional::NONE,
    one_line: &[],
    examples: &[Example {
        title: "What goes wrong in other pipelines",
        stage: "internal_log",
        input: "",
        output: "",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// How soon a stop is noticed.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// Settings of the input `internal_log`: there are none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let Config {} = component::parse(node)?;
    check_unending("internal_log", node, context)?;
    Ok(Box::new(InternalLog))
}

struct InternalLog;

/// An event.
#[derive(Serialize)]
struct Document<'a> {
    host: Host<'a>,
    #[serde(flatten)]
    entry: &'a LogEntry,
}

#[derive(Serialize)]
struct Host<'a> {
    name: &'a str,
}

#[async_trait]
impl Input for InternalLog {
    fn can_wait(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, |ctx| {
            // Stopping is no fault.
            let _ = tell(ctx);
            Vec::new()
        })
        .await
    }
}

fn tell(ctx: &InputContext) -> Result<(), Stopped> {
    let mut tail = ctx.own.log().listen(&ctx.scope);
    let mut filling = Filling::new(ctx, run_id(ctx));
    let (pipeline, _) = ctx.scope.split_once('/').unwrap_or((&ctx.scope, ""));
    while !ctx.stop.is_stopped() {
        let (entries, lost) = tail.take(STOP_WAIT);
        let start = Instant::now();
        if lost > 0 {
            ctx.metrics.count("lost_messages", lost);
            ctx.diagnostics
                .warn_limited(Limit::events("lost_messages"), || {
                    let lost = plural(lost, "message");
                    format!("{lost} of the log came faster than the pipeline takes them, and are not among its events")
                });
        }
        // What is said of those that get the events, such as that an output fails, would be followed by more of the same.
        let left_out = ctx.own.log().downstream(pipeline);
        for entry in &entries {
            let of = entry.pipeline.as_deref();
            if of.is_none_or(|of| !left_out.contains(of)) {
                let name = &ctx.host.name;
                let document = Document {
                    host: Host { name },
                    entry,
                };
                filling.push(entry.time_ns, &document)?;
            }
        }
        filling.flush()?;
        tail.settle();
        if !entries.is_empty() {
            ctx.metrics.busy(start.elapsed());
        }
    }
    Ok(())
}
