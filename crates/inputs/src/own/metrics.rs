//! `metrics`: what the process, its pipelines, operators, queues and outputs are at, every so often.

use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec, Stopped};
use config::{ConfigError, Node, Period, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use super::run_id;
use crate::connections::settings::check_unending;
use crate::reading::emitter::now;
use crate::reading::filling::Filling;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "metrics",
    aliases: &[],
    summary: "Makes events of Millpond's own counters.",
    description: include_str!("metrics.md"),
    positional: Positional::NONE,
    one_line: &[],
    examples: &[Example {
        title: "Every minute",
        stage: "metrics every=1m",
        input: "",
        output: "",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// The shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// How soon a stop is noticed.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// Settings of the input `metrics`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// How often the counters are read; from `1s` on.
    #[serde(default = "every")]
    every: Period,
}

fn every() -> Period {
    Period(Duration::from_secs(10))
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    if config.every.0 < EVERY_MIN {
        return Err(node.nearest("every").error("`every` is at least 1s"));
    }
    check_unending("metrics", node, context)?;
    Ok(Box::new(Metrics { config }))
}

struct Metrics {
    config: Config,
}

#[async_trait]
impl Input for Metrics {
    fn can_wait(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, move |ctx| {
            // Stopping is no fault.
            let _ = tell(self.config.every.0, ctx);
            Vec::new()
        })
        .await
    }
}

fn tell(every: Duration, ctx: &InputContext) -> Result<(), Stopped> {
    let mut filling = Filling::new(ctx, run_id(ctx));
    let mut next = Instant::now() + every;
    while !ctx.stop.is_stopped() {
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            thread::sleep(left.min(STOP_WAIT));
            continue;
        }
        let start = Instant::now();
        let time_ns = now();
        for document in ctx.own.metrics() {
            filling.push_text(time_ns, &document)?;
        }
        filling.flush()?;
        ctx.metrics.busy(start.elapsed());
        // A queue that was full for long is not followed by what it has missed.
        next = (next + every).max(Instant::now());
    }
    Ok(())
}
