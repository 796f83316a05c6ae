//! `head`: lets the first events pass and ends the input.
//!
//! It is ordered: one instance sees every batch in sequence, so that the result is the same with any number of workers.
//! Once the events have passed it reports itself finished, upon which the engine stops a finite input.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "head",
    aliases: &[],
    summary: "Keeps the first events and drops the rest.",
    description: "Counts the events that reach it, in the order of the input, and drops what comes after the first \
                  `count`. When they have passed, the input is stopped, so that `head 10` on a large file reads only \
                  its beginning. The count starts again with the process. With `if`, only the events for which it is \
                  true are counted or dropped, and the others pass.",
    positional: Positional::fields(&["count"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The first two events",
            stage: "head 2",
            input: "{\"a\":1}\n{\"a\":2}\n{\"a\":3}",
            output: "{\"a\":1}\n{\"a\":2}",
        },
        Example {
            title: "Up to ten million",
            stage: "head 10M",
            input: "{\"a\":1}",
            output: "{\"a\":1}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

/// Settings of `head`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// How many events pass.
    count: Count,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    Ok(Box::new(Head {
        left: config.count.0,
        reason: SPEC.name.into(),
    }))
}

#[derive(Clone)]
struct Head {
    left: u64,
    reason: Arc<str>,
}

impl Processor for Head {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let arrived = rows.count() as u64;
        if arrived > self.left {
            let mut beyond = rows.clone();
            rows.iter()
                .take(self.left as usize)
                .for_each(|row| beyond.remove(row));
            batch.drop_rows(&beyond, &self.reason);
        }
        self.left -= arrived.min(self.left);
        Failures::none()
    }

    fn is_finished(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process, process_rows};

    #[test]
    fn the_count_goes_on_over_batches() {
        for (count, passed) in [
            (0, [0, 0, 0]),
            (1, [1, 0, 0]),
            (3, [2, 1, 0]),
            (4, [2, 2, 0]),
            (5, [2, 2, 1]),
            (9, [2, 2, 2]),
        ] {
            let mut head = build(&SPEC, &format!("head {count}")).expect("it builds");
            assert_eq!(head.is_finished(), count == 0);
            let mut so_far = 0;
            for expected in passed {
                let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":2}"#]);
                process(head.as_mut(), &mut batch);
                assert_eq!(batch.alive().count(), expected, "of head {count}");
                so_far += expected;
                assert_eq!(head.is_finished(), so_far == count, "{so_far} of {count}");
            }
        }
    }

    #[test]
    fn only_given_rows_count() {
        let mut head = build(&SPEC, "head 1").expect("it builds");
        let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#, r#"{"a":4}"#]);
        process_rows(
            head.as_mut(),
            &mut batch,
            &Bitmap::from_fn(4, |row| row % 2 == 1),
        );
        assert_eq!(lines_of(&batch), [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#]);
        assert_eq!(&*batch.drops()[0].reason, "head");
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("head", "count"),
                ("head many", "`many` is not a count"),
                ("head -1", "not a count"),
                ("head 1 2", "accepts one value"),
            ],
        );
    }
}
