//! `pipeline` feeds another pipeline of the same configuration. The engine hands the batches over; here are its settings.

use std::sync::Arc;

use component::{Build, BuildContext, Example, Feeder, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

/// The description of `pipeline`.
pub const SPEC: Spec = Spec {
    name: "pipeline",
    aliases: &[],
    summary: "Feeds another pipeline of the same configuration.",
    description: "\
The other pipeline has `input: pipeline`, and no other input; several outputs may feed it. It gets each event as this pipeline leaves it,
with its id and `@metadata`, and handles it like one that came in: an event that failed here has its tags there, and no processor skips it.

- An event counts as delivered here when the other pipeline has delivered it: when all of its outputs have it, or its disk queue.
  Positions of files and answers to senders wait for that. What the other pipeline drops, or keeps as a dead letter, is delivered.
- While the other pipeline's queue is full, this output waits, and this pipeline's queue fills.
- Pipelines must not feed each other in a circle; such a configuration is refused.
- On a stop the pipelines that feed another one end first, and `shutdown_deadline` holds for all of them together.
- When the other pipeline takes no more events because its outputs have failed, this output fails. When it wants none (`head`, a closed
  pipe), this output takes what still comes and drops it. Where events that it took are not delivered, they count as not delivered
  here as well; with a disk queue here this output then fails, and they stay in that queue for the next start.",
    positional: Positional {
        fields: &["to"],
        ..Positional::NONE
    },
    one_line: &[],
    examples: &[Example {
        title: "Hand events to the pipeline `archive`",
        stage: "pipeline archive",
        input: "",
        output: "",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Feeder(build),
};

/// Which pipeline is fed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The name of the pipeline.
    to: String,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<Feeder>, ConfigError> {
    let Config { to } = parse(node)?;
    Ok(Arc::new(Feeder::new(&to)))
}
