//! `assert`: lets events fail for which an expression is not true.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use expr::{Absent, Expr, Template};
use schemars::JsonSchema;
use serde::Deserialize;

const FAILURE_TAG: &str = "_assertfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "assert",
    aliases: &[],
    summary: "Lets events fail for which an expression is not true.",
    description: "In a one-line pipeline the expression is the rest of the stage, without quotes of its own: `assert has(user.id) && status < 600`. \
                  In YAML: `- assert: has(user.id)`, or with a message `- assert: { condition: has(user.id), message: \"no user in %{message}\" }`.\n\n\
                  An event for which the expression is false, absent or null fails with `_assertfailure` (or `tag`), and so does one for which it cannot be evaluated, \
                  as `message + 1` for a text. It keeps its values, and `on_failure` decides what becomes of it: with `on_failure: dead_letter` it is \
                  kept as a dead letter with the reason; with `drop` it is dropped. To drop events without counting them as failed, use [`where`](processor-where.md). \
                  Events that failed in an earlier processor are not looked at.\n\n\
                  The reason is in `error.message`: the text of `message`, or else the expression, with the error where it could not be evaluated.",
    positional: Positional::whole(&["condition"], Shape::Expression),
    one_line: &[],
    examples: &[
        Example {
            title: "What every event must have",
            stage: "assert has(user.id) && status < 600",
            input: "{\"user\":{\"id\":7},\"status\":200}\n{\"status\":200}\n{\"user\":{\"id\":7},\"status\":999}",
            output: "{\"user\":{\"id\":7},\"status\":200}\n\
                     {\"status\":200,\"tags\":[\"_assertfailure\"],\"error\":{\"message\":\"not true: has(user.id) && status < 600\"}}\n\
                     {\"user\":{\"id\":7},\"status\":999,\"tags\":[\"_assertfailure\"],\"error\":{\"message\":\"not true: has(user.id) && status < 600\"}}",
        },
        Example {
            title: "An expression that cannot be evaluated",
            stage: "assert size + 1 > 10",
            input: r#"{"size":"large"}"#,
            output: r#"{"size":"large","tags":["_assertfailure"],"error":{"message":"not true: size + 1 > 10 (`size + 1`: `+` does not work on string and int; int(…) or double(…) makes a number of a text, string(…) a text of a number)"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `assert`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The expression that must be true.
    condition: String,
    /// The reason in `error.message`, in which `%{field}` stands for the value of a field. Default: the expression.
    message: Option<String>,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let condition = Expr::parse_condition(&config.condition)
        .map_err(|error| error.in_setting(node.nearest("condition")))?;
    let message = config.message.map(|text| {
        Template::parse(&text).map_err(|error| error.in_setting(node.nearest("message")))
    });
    Ok(Box::new(Assert {
        condition,
        message: message.transpose()?,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Assert {
    condition: Expr,
    message: Option<Template>,
    tag: Arc<str>,
}

impl Processor for Assert {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let found = self.condition.filter(batch, rows);
        let mut failed = rows.clone();
        failed.and_not(&found.holds);
        let mut failures = Failures::none();
        if failed.is_empty() {
            return failures;
        }
        match &self.message {
            Some(message) => self.fail_with(message, batch, &failed, &mut failures),
            None => self.fail(batch, &failed, found.errors > 0, &mut failures),
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let message = self.message.iter().flat_map(Template::reads);
        self.condition
            .reads()
            .iter()
            .cloned()
            .chain(message)
            .collect()
    }
}

impl Assert {
    fn fail_with(
        &self,
        message: &Template,
        batch: &Batch,
        failed: &Bitmap,
        failures: &mut Failures,
    ) {
        let mut message = message.bind(batch, Absent::Text(""));
        let mut text = Vec::new();
        for row in failed.iter() {
            text.clear();
            message.write(row, &mut text);
            failures.push(row, &self.tag, &String::from_utf8_lossy(&text).into());
        }
    }

    fn fail(&self, batch: &Batch, failed: &Bitmap, has_errors: bool, failures: &mut Failures) {
        let reason = format!("not true: {}", self.condition.text());
        let plain: Arc<str> = reason.as_str().into();
        let errors = match has_errors {
            true => self.condition.evaluate(batch, failed).errors,
            false => Vec::new(),
        };
        let mut errors = errors.into_iter().peekable();
        for row in failed.iter() {
            match errors.next_if(|(at, _)| *at == row) {
                Some((_, error)) => {
                    failures.push(row, &self.tag, &format!("{reason} ({error})").into());
                }
                None => failures.push(row, &self.tag, &plain),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, build_yaml, check_errors, lines_of, process};

    /// The rows that fail, with their reasons.
    fn failed(processor: &mut dyn Processor, events: &[&str]) -> Vec<(usize, String)> {
        let mut batch = batch_of(events.iter().copied());
        let failures = process(processor, &mut batch);
        let rows = failures.rows().iter();
        rows.inspect(|failure| assert_eq!(&*failure.tag, FAILURE_TAG))
            .map(|failure| (failure.row, failure.reason.to_string()))
            .collect()
    }

    #[test]
    fn events_for_which_it_is_not_true_fail() {
        let mut processor = build(&SPEC, "assert a > 1 || b").expect("it builds");
        let events = [
            r#"{"a":2}"#,
            r#"{"a":1}"#,
            r#"{"a":0,"b":true}"#,
            r#"{"a":0,"b":null}"#,
            "{}",
            r#"{"b":"x"}"#,
        ];
        let found = failed(processor.as_mut(), &events);
        let rows: Vec<usize> = found.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [1, 3, 4, 5]);
        assert!(
            found[..3]
                .iter()
                .all(|(_, reason)| reason == "not true: a > 1 || b")
        );
        let error = &found[3].1;
        assert!(error.starts_with("not true: a > 1 || b ("), "{error}");
        let mut processor = build(&SPEC, "assert a == 1").expect("it builds");
        assert!(failed(processor.as_mut(), &[r#"{"a":1}"#]).is_empty());
    }

    #[test]
    fn the_message_may_have_fields() {
        let settings = r#"{ condition: a < 5, message: "a is %{a}, b is %{b}" }"#;
        let mut processor = build_yaml(&SPEC, settings).expect("it builds");
        let events = [
            r#"{"a":7,"b":"x"}"#,
            r#"{"a":4}"#,
            r#"{"a":8}"#,
            r#"{"a":[]}"#,
        ];
        let expected = [
            (0, "a is 7, b is x"),
            (2, "a is 8, b is "),
            (3, "a is [], b is "),
        ];
        let expected = expected.map(|(row, reason)| (row, reason.to_owned()));
        assert_eq!(failed(processor.as_mut(), &events), expected);
        let mut batch = batch_of(events);
        process(processor.as_mut(), &mut batch);
        let line =
            r#"{"a":7,"b":"x","tags":["_assertfailure"],"error":{"message":"a is 7, b is x"}}"#;
        assert_eq!(lines_of(&batch)[0], line);
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("assert", "condition"),
                ("assert 'x'", "never true"),
                ("assert a ==", "expected"),
            ],
        );
        let refused = build_yaml(&SPEC, "{ condition: a, message: '%{a' }").err();
        assert!(refused.is_some());
    }
}
