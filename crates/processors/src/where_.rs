//! `where`: keeps the events for which an expression is true.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldRead};
use component::{Build, BuildContext, Example, Limit, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Node, Positional, Shape};
use expr::Expr;
use schemars::JsonSchema;
use serde::Deserialize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "where",
    aliases: &[],
    summary: "Keeps the events for which an expression is true and drops the others.",
    description: "In a one-line pipeline the expression is the rest of the stage, without quotes of its own: \
                  `where status >= 500 && method != \"HEAD\"`.\n\n\
                  An event for which the expression is false, absent or null is dropped, and so is one for which it \
                  fails, as `message + 1` does for a text. Failures are counted as `expression_errors`, and the first \
                  one is logged with the id of its event, then one an hour; the end of the run reports their number. Events that failed in an earlier processor are filtered \
                  like all others. The `@timestamp` of one that failed in `grok` or `date` is the time at which it was read, so \
                  that a range of time keeps it: `where @timestamp > now() - duration(\"24h\") && !has(error.message)` does not.",
    positional: Positional::whole(&["condition"], Shape::Expression),
    one_line: &[],
    examples: &[
        Example {
            title: "Server errors",
            stage: r#"where status >= 500 && path != "/health""#,
            input: "{\"status\":500,\"path\":\"/a\"}\n{\"status\":\"503\",\"path\":\"/b\"}\n{\"status\":200}\n{\"status\":500,\"path\":\"/health\"}\n{}",
            output: "{\"status\":500,\"path\":\"/a\"}\n{\"status\":\"503\",\"path\":\"/b\"}",
        },
        Example {
            title: "Events with a field",
            stage: "where has(user.name)",
            input: "{\"user\":{\"name\":\"ann\"}}\n{\"user\":{}}",
            output: r#"{"user":{"name":"ann"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: true,
        build,
    },
};

/// What counts events for which the expression fails.
const COUNTER: &str = "expression_errors";

/// Settings of `where`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The expression that is true for the events to keep.
    condition: String,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let condition = Expr::parse_condition(&config.condition)
        .map_err(|error| error.in_setting(node.nearest("condition")))?;
    Ok(Box::new(Where {
        condition,
        reason: SPEC.name.into(),
        errors: 0,
        warning: None,
    }))
}

#[derive(Clone)]
struct Where {
    condition: Expr,
    reason: Arc<str>,
    /// Rows for which the expression failed, since the last look at the counters.
    errors: u64,
    warning: Option<Warning>,
}

impl Processor for Where {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let found = self.condition.filter(batch, rows);
        self.errors += found.errors as u64;
        if let Some((row, reason)) = found.first_error {
            let id = batch.origin().shown_id(row);
            let text = format!("the condition failed for event {id}: {reason}");
            self.warning = Some(Warning::limited(Limit::events(COUNTER), text));
        }
        let mut dropped = rows.clone();
        dropped.and_not(&found.holds);
        batch.drop_rows(&dropped, &self.reason);
        Failures::none()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.condition.reads().to_vec()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        match std::mem::take(&mut self.errors) {
            0 => Vec::new(),
            errors => vec![(COUNTER, errors)],
        }
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.warning.take().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process, process_rows};

    #[test]
    fn rows_for_which_it_holds_stay() {
        check(
            &SPEC,
            &[
                ("where a == 1", "{\"a\":1}\n{\"a\":2}\n{}", "{\"a\":1}"),
                ("where !has(a)", "{\"a\":1}\n{\"b\":2}", "{\"b\":2}"),
                (
                    "where a",
                    "{\"a\":true}\n{\"a\":false}\n{\"a\":null}\n{\"a\":\"true\"}",
                    "{\"a\":true}",
                ),
                ("where true", "{}", "{}"),
                (
                    "where a == 'x|y' || b > 1",
                    "{\"a\":\"x|y\"}\n{\"b\":2}\n{\"b\":1}",
                    "{\"a\":\"x|y\"}\n{\"b\":2}",
                ),
            ],
        );
    }

    #[test]
    fn failures_are_false_counted_and_told() {
        let mut filter = build(&SPEC, "where a + 1 > 1").expect("it builds");
        let events = [r#"{"a":1}"#, r#"{"a":[]}"#, r#"{"a":{}}"#];
        for _ in 0..2 {
            let mut batch = batch_of(events);
            process(filter.as_mut(), &mut batch);
            assert_eq!(lines_of(&batch), [r#"{"a":1}"#]);
            assert_eq!(filter.take_counters(), [("expression_errors", 2)]);
            assert!(filter.take_counters().is_empty());
            let warnings = filter.take_warnings();
            let start = "the condition failed for event 00000000000000000000000000000001-8-11: ";
            let [warning] = &warnings[..] else {
                panic!("one warning a batch at most: {warnings:?}");
            };
            assert!(warning.text.starts_with(start), "{warning:?}");
            assert_eq!(warning.limit, Some(Limit::events("expression_errors")));
            assert!(filter.take_warnings().is_empty());
        }
    }

    #[test]
    fn other_rows_pass() {
        let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":2}"#]);
        let mut filter = build(&SPEC, "where a > 5").expect("it builds").fork();
        process_rows(
            filter.as_mut(),
            &mut batch,
            &Bitmap::from_fn(2, |row| row == 0),
        );
        assert_eq!(lines_of(&batch), [r#"{"a":2}"#]);
        assert_eq!(&*batch.drops()[0].reason, "where");
    }

    #[test]
    fn bad_conditions_are_refused_with_their_place() {
        check_errors(
            &SPEC,
            &[
                ("where", "condition"),
                ("where a ==", "expected a value, found the end"),
                ("where lenght(a) > 1", "lenght"),
            ],
        );
        let error = build(&SPEC, "where a > 1 && && b")
            .err()
            .expect("a refusal");
        assert_eq!(
            error.column(),
            Some("in | where a > 1 && ".len() + 1),
            "{error}"
        );
    }
}
