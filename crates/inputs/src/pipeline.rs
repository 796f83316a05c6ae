//! `pipeline` takes what outputs of other pipelines hand over. The engine does it; here is its description.

use component::{Build, BuildContext, Example, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

/// The description of `pipeline`.
pub const SPEC: Spec = Spec {
    name: "pipeline",
    aliases: &[],
    summary: "Takes the events that other pipelines of the same configuration hand over.",
    description: "\
Outputs [`pipeline`](output-pipeline.md) of other pipelines name this one. A pipeline with this input has no other one, and at least one
output feeds it. It ends when all pipelines that feed it have ended.",
    positional: Positional::NONE,
    one_line: &[],
    examples: &[Example {
        title: "Take what other pipelines hand over",
        stage: "pipeline",
        input: "",
        output: "",
    }],
    schema: |generator| Config::json_schema(generator),
    build: Build::Fed(build),
};

/// `pipeline` has no settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {}

fn build(node: &Node, _: &BuildContext) -> Result<(), ConfigError> {
    let Config {} = parse(node)?;
    Ok(())
}
