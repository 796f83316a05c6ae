//! `remove`: removes fields.

use std::sync::Arc;

use batch::{Batch, Bitmap, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use schemars::JsonSchema;
use serde::Deserialize;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "remove",
    aliases: &[],
    summary: "Removes fields.",
    description: "Removes each of `fields`, with everything in them where they are objects. A field that an event does \
                  not have is not a failure. An object that loses its last field stays as an empty object. \
                  A name such as `items.price` does not reach into the elements of an array.",
    positional: Positional::whole(&["fields"], Shape::Names),
    one_line: &[],
    examples: &[
        Example {
            title: "Two fields, one of them inside an object",
            stage: "remove a, http.request",
            input: r#"{"a":1,"b":2,"http":{"request":{"body":"x"},"version":"1.1"}}"#,
            output: r#"{"b":2,"http":{"version":"1.1"}}"#,
        },
        Example {
            title: "A field that does not exist",
            stage: "remove nothing",
            input: r#"{"a":1.50}"#,
            output: r#"{"a":1.50}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `remove`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields to remove.
    fields: Vec<String>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let empty = "name at least one field to remove";
    let fields = component::fields(node, "fields", &config.fields, empty)?;
    Ok(Box::new(Remove { fields }))
}

#[derive(Clone)]
struct Remove {
    fields: Vec<FieldPath>,
}

impl Processor for Remove {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut edit = Edit::new();
        for path in &self.fields {
            let column = batch.column(path);
            let present = Bitmap::from_fn(batch.len(), |row| {
                rows.contains(row) && !column.cell(row).is_absent()
            });
            if !present.is_empty() {
                edit.remove(path.clone(), &present);
            }
        }
        let refused = batch.apply(edit);
        debug_assert!(refused.is_empty(), "a removal is always possible");
        Failures::none()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().cloned();
        let read = |path| Arc::new(FieldRead::always(path).may_be_absent(true));
        fields.map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        batch_of, build, check, check_errors, lines_of, process, process_rows, text_batch,
    };

    #[test]
    fn what_is_there_goes() {
        check(
            &SPEC,
            &[
                ("remove a", r#"{"a":null,"b":1}"#, r#"{"b":1}"#),
                ("remove a.b", r#"{"a":{"b":1}}"#, r#"{"a":{}}"#),
                ("remove a a.b", r#"{"a":{"b":1},"c":1}"#, r#"{"c":1}"#),
                ("remove a.b a", r#"{"a":{"b":1},"c":1}"#, r#"{"c":1}"#),
                ("remove a.b.c", r#"{"a":"text"}"#, r#"{"a":"text"}"#),
                ("remove a.b", r#"{"a.b":1,"c":2}"#, r#"{"c":2}"#),
                ("remove [a][x.y]", r#"{"a":{"x.y":1}}"#, r#"{"a":{}}"#),
            ],
        );
    }

    #[test]
    fn below_a_text_there_is_nothing_to_remove() {
        let mut batch = text_batch(["one", "two"]);
        process(
            build(&SPEC, "remove message.x host")
                .expect("it builds")
                .as_mut(),
            &mut batch,
        );
        let lines = lines_of(&batch);
        assert!(
            lines[0].starts_with(r#"{"@timestamp""#) && lines[0].ends_with(r#""message":"one"}"#),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn other_rows_keep_the_field() {
        let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":2}"#]);
        let mut remove = build(&SPEC, "remove a").expect("it builds").fork();
        process_rows(
            remove.as_mut(),
            &mut batch,
            &Bitmap::from_fn(2, |row| row == 0),
        );
        assert_eq!(lines_of(&batch), ["{}", r#"{"a":2}"#]);
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("remove", "fields"),
                ("remove", "fields"),
                ("remove a b..c", "`b..c` is not a field name"),
                ("remove a why=x", "not a setting"),
            ],
        );
    }
}
