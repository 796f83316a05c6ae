//! `top`: the most frequent values.
//!
//! It counts as `summarize` does, and tells of the groups with the highest counts.

use batch::FieldPath;
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::overlap;
use crate::remembered::{default_max_keys, default_time};
use crate::setting_words::refuse_words;
use crate::summarize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "top",
    aliases: &[],
    summary: "Tells which values are the most frequent, with their counts.",
    description: "Events are dropped, and the values of `fields` that most of them have give one event each, with `count`: the most frequent first, equal ones in the order in which they came first. It is the same as \
                  [`summarize`](processor-summarize.md) with `count()` and `by`, and tells only of the `limit` highest counts. Time, the end of a run, restarts and memory are as described there. The counts are exact: every value is \
                  counted, not only the frequent ones.\n\n\
                  The events of values beyond `max_keys` are counted together in an event without the fields, tagged `_other_keys` (or `tag`), which is told of if it is among the highest.",
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The most frequent client",
            stage: "top client limit=1",
            input: r#"{"client":"a"}
{"client":"b"}
{"client":"b"}"#,
            output: r#"{"client":"b","count":2}"#,
        },
        Example {
            title: "By two fields, of each minute",
            stage: "top client, path limit=2 every=1m",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","client":"a","path":"/"}
{"@timestamp":"2026-05-01T12:00:01Z","client":"a","path":"/x"}
{"@timestamp":"2026-05-01T12:00:02Z","client":"a","path":"/x"}
{"@timestamp":"2026-05-01T12:01:00Z","client":"b","path":"/"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00.000Z","client":"a","path":"/x","count":2}
{"@timestamp":"2026-05-01T12:00:00.000Z","client":"a","path":"/","count":1}
{"@timestamp":"2026-05-01T12:01:00.000Z","client":"b","path":"/","count":1}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

/// Settings of `top`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TopConfig")]
struct Config {
    /// The fields whose values are counted.
    fields: Vec<String>,
    /// How many are told of.
    #[serde(default = "default_limit")]
    limit: Positive<Count>,
    /// How long a stretch of time is, from 1ms to 365d. Default: one, for all events up to the end of the run.
    every: Option<Positive<Period>>,
    /// How long after its end a stretch of time is open for late events, as in `summarize`.
    lateness: Option<Period>,
    /// The field with the time of an event, for `every`; `@metadata.timestamp` is the time at which it was received.
    #[serde(default = "default_time")]
    time: String,
    /// How many values are remembered in all stretches of time together, from 1 to 1G.
    #[serde(default = "default_max_keys")]
    max_keys: Count,
}

fn default_limit() -> Positive<Count> {
    Positive::<Count>::from_count(10)
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &[])?;
    let config: Config = parse(node)?;
    let by = component::fields(node, "fields", &config.fields, "name at least one field")?;
    let count = FieldPath::from_keys(["count"]);
    if let Some(index) = by.iter().position(|path| overlap(path, &count)) {
        let place = node.nearest(&format!("fields[{index}]"));
        let message = "`count` gets how often a value came, and cannot be counted itself";
        let error = place.error(message);
        return Err(error.note("rename the field in front of `top`: rename count -> NAME"));
    }
    let limit = usize::try_from(config.limit.0).unwrap_or(usize::MAX);
    let settings = summarize::Config {
        functions: vec!["count()".to_owned()],
        by: None,
        every: config.every,
        lateness: config.lateness,
        time: config.time,
        max_keys: config.max_keys,
    };
    let counting = summarize::make(node, &settings, by, context)?;
    Ok(Box::new(counting.limited(limit, SPEC.name)))
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "limit" | "max_keys" => value.parse::<Count>().is_ok(),
        "every" | "lateness" => value.parse::<Period>().is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::SPEC;
    use crate::testing::check_errors;

    #[test]
    fn slips_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("top", "the setting `fields` is missing"),
                ("top a limit=0", "at least 1 is expected"),
                ("top a, count", "`count` gets how often a value came"),
                ("top count.x", "`count` gets how often a value came"),
                ("top a lateness=1s", "no effect without `every`"),
            ],
        );
    }
}
