//! `drop`: ends events.
//!
//! It drops every row it is given; which ones that are, its `if` says, which the engine evaluates for every processor.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "drop",
    aliases: &[],
    summary: "Drops events.",
    description: "Drops the events for which the expression (`if`) is true; `drop true` drops every event. The counters of the pipeline \
                  tell dropped events from delivered ones. `where` is the opposite: it keeps the events for which its \
                  expression is true. Events that failed in an earlier processor can be dropped too.",
    positional: Positional::whole(&["if"], Shape::Expression),
    one_line: &[],
    examples: &[
        Example {
            title: "Drop what health checks leave behind",
            stage: r#"drop path == "/health""#,
            input: "{\"path\":\"/health\"}\n{\"path\":\"/cart\"}",
            output: r#"{"path":"/cart"}"#,
        },
        Example {
            title: "Drop everything",
            stage: "drop true",
            input: "{\"a\":1}\n{\"a\":2}",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: true,
        build,
    },
};

/// `drop` has no settings of its own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let Config {} = parse(node)?;
    Ok(Box::new(Drop {
        reason: SPEC.name.into(),
    }))
}

#[derive(Clone)]
struct Drop {
    reason: Arc<str>,
}

impl Processor for Drop {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        batch.drop_rows(rows, &self.reason);
        Failures::none()
    }

    fn needs_condition(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process_rows};

    #[test]
    fn the_given_rows_go_and_only_they() {
        let mut drop = build(&SPEC, "drop").expect("it builds").fork();
        let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#]);
        process_rows(
            drop.as_mut(),
            &mut batch,
            &Bitmap::from_fn(3, |row| row == 1),
        );
        assert_eq!(lines_of(&batch), [r#"{"a":1}"#, r#"{"a":3}"#]);
        assert_eq!(&*batch.drops()[0].reason, "drop");
    }

    #[test]
    fn it_has_no_settings() {
        check_errors(
            &SPEC,
            &[
                (
                    "drop a == 1 tag=b",
                    "`tag` cannot be set behind an expression",
                ),
                (
                    "drop if=level==\"DEBUG\"",
                    "`drop` does not accept the setting `if`",
                ),
            ],
        );
    }
}
