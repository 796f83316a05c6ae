//! `discard` takes every event and does nothing with it: for measuring what comes before it.

use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap};
use component::{
    Build, BuildContext, Encoded, Example, Output, Spec, WriteError, Writer, Written, parse,
};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

/// The description of `discard`.
pub const SPEC: Spec = Spec {
    name: "discard",
    aliases: &[],
    summary: "Accepts every event and discards it.",
    description: "For measurements: events are neither rendered nor written, and count as delivered immediately.",
    positional: Positional::NONE,
    one_line: &[],
    examples: &[Example {
        title: "Measure a pipeline without its output",
        stage: "discard",
        input: "",
        output: "",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Writer {
        ordered: false,
        build,
    },
};

/// `discard` has no settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {}

struct Discard;

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Writer>, ConfigError> {
    let Config {} = parse(node)?;
    Ok(Arc::new(Discard))
}

#[async_trait]
impl Output for Discard {
    fn encode(&self, _: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        encoded.rows = rows.count();
    }
}

#[async_trait]
impl Writer for Discard {
    async fn write(&self, _: &Encoded) -> Result<Written, WriteError> {
        Ok(Written::default())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing;

    #[test]
    fn everything_is_taken_and_nothing_rendered() {
        let output = testing::build(&super::SPEC, "{}").expect("no settings are fine");
        let encoded = testing::encode(&*output, &testing::lines(&["a", "b"]));
        assert_eq!((encoded.rows, encoded.bytes.len()), (2, 0));
        let written = testing::wait(output.write(&encoded)).expect("nothing can fail");
        assert!(!written.until_flush && written.refused.is_empty());
        assert!(testing::build(&super::SPEC, "path: x").is_err());
    }
}
