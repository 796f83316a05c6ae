//! `keep`: keeps some fields and removes all others.

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "keep",
    aliases: &[],
    summary: "Keeps some fields and removes all others.",
    description: "Each of `fields` stays as it is, with everything in it where it is an object; `http.request` keeps that \
                  object in `http` and nothing else of `http`. A field that an event does not have is not a failure; a name that no event had is reported at the end of the run. An event that has \
                  none of them becomes `{}` and is published like any other; `where has(a)` drops such events.\n\n\
                  `@timestamp`, `tags`, `host` and `log` are fields like all others: name those that are to stay. Without \
                  `@timestamp`, the time in the file names and index names of outputs is the time at which the event was read. The fields below \
                  `@metadata`, which are never written out, stay readable for later processors and outputs.\n\n\
                  An event that an earlier processor failed on is not handled, like by all processors that write: it leaves \
                  with all of its fields, its tag and `error.message`.",
    positional: Positional::whole(&["fields"], Shape::Names),
    one_line: &[],
    examples: &[
        Example {
            title: "Two fields",
            stage: "keep @timestamp, message",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","message":"hello","tags":["web"],"n":1}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","message":"hello"}"#,
        },
        Example {
            title: "A field in an object, and a whole object",
            stage: "keep http.status, user",
            input: r#"{"http":{"status":200,"version":"1.1"},"user":{"name":"ada","id":7},"took":1.50}"#,
            output: r#"{"user":{"name":"ada","id":7},"http":{"status":200}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `keep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields to keep.
    fields: Vec<String>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let empty = "name at least one field to keep";
    let fields = component::fields(node, "fields", &config.fields, empty)?;
    Ok(Box::new(Keep { fields }))
}

#[derive(Clone)]
struct Keep {
    fields: Vec<FieldPath>,
}

impl Processor for Keep {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        batch.keep(&self.fields, rows);
        Failures::none()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().cloned();
        let read = |path| Arc::new(FieldRead::always(path));
        fields.map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        batch_of, build, build_yaml, check, check_errors, lines_of, process, process_rows,
        text_batch,
    };
    use batch::{Column, Edit};

    #[test]
    fn only_these_fields_stay() {
        check(
            &SPEC,
            &[
                ("keep a", r#"{"a":null,"b":1}"#, r#"{"a":null}"#),
                ("keep a", r#"{"b":1,"a":1.50}"#, r#"{"a":1.50}"#),
                ("keep x", r#"{"a":1}"#, "{}"),
                ("keep a.b", r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":1}}"#),
                ("keep a.b.c", r#"{"a":"text"}"#, "{}"),
                ("keep a.b", r#"{"a.b":1,"c":2}"#, r#"{"a.b":1}"#),
                (
                    "keep a, a.b",
                    r#"{"a":{"b":1,"c":[{}]},"d":1}"#,
                    r#"{"a":{"b":1,"c":[{}]}}"#,
                ),
                ("keep a.b a", r#"{"a":7,"d":1}"#, r#"{"a":7}"#),
                (
                    "keep [a][x.y]",
                    r#"{"a":{"x.y":1,"z":2}}"#,
                    r#"{"a":{"x.y":1}}"#,
                ),
                (
                    "keep `user name`",
                    r#"{"user name":1,"z":2}"#,
                    r#"{"user name":1}"#,
                ),
                (
                    "keep b,a",
                    r#"{"a":"é\n","b":2,"c":3}"#,
                    r#"{"b":2,"a":"é\n"}"#,
                ),
            ],
        );
    }

    #[test]
    fn lines_of_text_lose_what_is_not_named() {
        let mut batch = text_batch(["one", "two"]);
        process(
            build(&SPEC, "keep message host.name")
                .expect("it builds")
                .as_mut(),
            &mut batch,
        );
        assert_eq!(
            lines_of(&batch),
            [
                r#"{"message":"one","host":{"name":"h"}}"#,
                r#"{"message":"two","host":{"name":"h"}}"#
            ]
        );
    }

    #[test]
    fn other_rows_keep_everything() {
        let mut batch = batch_of([r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#, "text"]);
        let path = FieldPath::from_keys(["c"]);
        let mut edit = Edit::new();
        edit.set(path, Column::constant_text(b"c", 3));
        batch.apply(edit);
        let mut keep = build_yaml(&SPEC, "fields: [a]").expect("it builds").fork();
        process_rows(
            keep.as_mut(),
            &mut batch,
            &Bitmap::from_fn(3, |row| row != 1),
        );
        assert_eq!(
            lines_of(&batch),
            [r#"{"a":1}"#, r#"{"a":2,"b":2,"c":"c"}"#, "{}"]
        );
    }

    #[test]
    fn metadata_stays_readable() {
        for rows in [2, 1] {
            let mut batch = batch_of([r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#]);
            let path = FieldPath::parse("@metadata.index").expect("a path");
            let mut edit = Edit::new();
            edit.set(path.clone(), Column::constant_text(b"logs", 2));
            batch.apply(edit);
            let mut keep = build(&SPEC, "keep a").expect("it builds");
            process_rows(
                keep.as_mut(),
                &mut batch,
                &Bitmap::from_fn(2, |row| row < rows),
            );
            assert_eq!(lines_of(&batch)[0], r#"{"a":1}"#);
            let column = batch.column(&path);
            assert_eq!(column.value(0), batch::Value::Text(b"logs"));
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("keep", "fields"),
                ("keep a b..c", "`b..c` is not a field name"),
                ("keep a why=x", "not a setting"),
            ],
        );
    }
}
