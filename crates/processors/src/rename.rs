//! `rename`: gives fields other names.
//!
//! Values are not touched: the new column has the old one's cells and buffers. What the field is renamed to must not be
//! there yet, so that no value is ever lost; an event where it is fails and keeps everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, json,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names;

const FAILURE_TAG: &str = "_renamefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "rename",
    aliases: &[],
    summary: "Renames fields.",
    description: "In a one-line pipeline: `rename NAME -> NEW, NAME -> NEW, …`. In YAML the same as one text, or \
                  as a map from present to new names, `fields`. Values do not change; numbers keep every digit. A field that an event does not have is not a failure. \
                  Elements of arrays have no names: `set sku = items[0].sku` takes a value out of one.\n\n\
                  Nothing is overwritten: an event that already has a field with the new name, even if it is null, fails with \
                  `_renamefailure` and keeps all of its names. To overwrite, `remove` the other field first.\n\n\
                  The new name may lie below the old one: `rename host -> host.name` moves a text into an object. The \
                  renames of one processor happen at once, so no name may take part in two of them; use a second \
                  `rename` for a chain.",
    positional: Positional::whole(&["fields"], Shape::Renames),
    one_line: &[],
    examples: &[
        Example {
            title: "Into an object",
            stage: "rename clientip -> source.ip",
            input: r#"{"clientip":"192.0.2.7","n":1}"#,
            output: r#"{"n":1,"source":{"ip":"192.0.2.7"}}"#,
        },
        Example {
            title: "Several fields",
            stage: "rename verb -> method, response -> status",
            input: r#"{"verb":"GET","response":200}"#,
            output: r#"{"method":"GET","status":200}"#,
        },
        Example {
            title: "A name that is taken",
            stage: "rename a -> b",
            input: r#"{"a":1,"b":2}"#,
            output: r#"{"a":1,"b":2,"tags":["_renamefailure"],"error":{"message":"cannot rename a to b: b is there already"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `rename`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Present names with their new names.
    #[allow(dead_code, reason = "read from the tree, for the places")]
    fields: BTreeMap<String, String>,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let _: Config = parse(node).map_err(|error| match node.get("from").or(node.get("to")) {
        Some(_) => error.note("`from` and `to` are now `fields: { PRESENT: NEW }`"),
        None => error,
    })?;
    let mut renames = Vec::new();
    for (from, to) in node
        .get("fields")
        .and_then(Node::as_map)
        .unwrap_or_default()
    {
        let rename = Rename::new(
            from.as_str().unwrap_or_default(),
            from,
            to.as_str().unwrap_or_default(),
            to,
        )?;
        if let Some(other) = renames
            .iter()
            .find(|other: &&Rename| other.conflicts(&rename))
        {
            return Err(from
                .error(format!("{rename} and {other} touch the same field"))
                .note("the renames of one processor happen at once; put one of them into a second `rename`"));
        }
        renames.push(rename);
    }
    if renames.is_empty() {
        return Err(node.error("nothing to rename"));
    }
    Ok(Box::new(Renames {
        renames,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

/// One field's old and new name.
#[derive(Debug, Clone)]
struct Rename {
    from: FieldPath,
    to: FieldPath,
    /// Where the new name lies below the old one: what stands around the value's JSON, before and after it.
    wrap: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Display for Rename {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

impl Rename {
    fn new(from: &str, from_node: &Node, to: &str, to_node: &Node) -> Result<Self, ConfigError> {
        if let Some(error) = conversion(from, from_node, to, to_node) {
            return Err(error);
        }
        let (from, to) = (names::path(from_node, from)?, names::path(to_node, to)?);
        if from == to {
            return Err(to_node.error(format!("`{to}` has that name already")));
        }
        if contains(&to, &from) {
            return Err(to_node.error(format!(
                "`{from}` is inside `{to}`, so that `{to}` exists already"
            )));
        }
        let wrap = contains(&from, &to).then(|| wrapping(&to.keys()[from.keys().len()..]));
        Ok(Self { from, to, wrap })
    }

    fn conflicts(&self, other: &Self) -> bool {
        let ours = [&self.from, &self.to];
        let theirs = [&other.from, &other.to];
        ours.iter().any(|a| theirs.iter().any(|b| clash(a, b)))
    }

    /// Adds the rename to an edit for the rows that have the field.
    fn add_to(&self, edit: &mut Edit, column: &Column, rows: &Bitmap) {
        match &self.wrap {
            None => {
                let mut moved = ColumnBuilder::over(column.len(), column.buffers().clone());
                rows.iter().for_each(|row| moved.set(row, column.cell(row)));
                edit.set(self.to.clone(), moved.finish());
                edit.remove(self.from.clone(), rows);
            }
            Some((before, after)) => {
                let mut objects = ColumnBuilder::new(column.len());
                for row in rows.iter() {
                    let span = objects.append(|out| {
                        out.extend_from_slice(before);
                        column.value(row).write_json(out);
                        out.extend_from_slice(after);
                    });
                    objects.set(row, Cell::Json(span));
                }
                edit.set(self.from.clone(), objects.finish());
            }
        }
    }
}

/// Refuses `status -> int(code)` and `int(status) -> code`, which are meant to convert.
fn conversion(from: &str, from_node: &Node, to: &str, to_node: &Node) -> Option<ConfigError> {
    let (at, wrong, assignment) = match (names::call(from), names::call(to)) {
        (Some(_), _) => (from_node, from, format!("{to} = {from}")),
        (None, Some((function, target))) => (to_node, to, format!("{target} = {function}({from})")),
        (None, None) => return None,
    };
    let error = at.error(format!("`{wrong}` is not a field name"));
    Some(error.note(format!("to convert a value: set {assignment}")))
}

/// Whether `inner` lies in the object at `outer`.
fn contains(outer: &FieldPath, inner: &FieldPath) -> bool {
    inner.keys().len() > outer.keys().len() && inner.keys().starts_with(outer.keys())
}

/// Whether two renames may not touch both paths: they are the same, or one lies in the other.
fn clash(a: &FieldPath, b: &FieldPath) -> bool {
    a.keys().starts_with(b.keys()) || b.keys().starts_with(a.keys())
}

/// What stands around a value that goes into nested objects.
fn wrapping(keys: &[Box<str>]) -> (Vec<u8>, Vec<u8>) {
    let mut before = Vec::new();
    for key in keys {
        before.push(b'{');
        json::write_string(&mut before, key.as_bytes());
        before.push(b':');
    }
    (before, vec![b'}'; keys.len()])
}

#[derive(Clone)]
struct Renames {
    renames: Vec<Rename>,
    tag: Arc<str>,
}

impl Processor for Renames {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut failures = Failures::none();
        let mut rows = rows.clone();
        let mut found = Vec::with_capacity(self.renames.len());
        for rename in &self.renames {
            let column = batch.column(&rename.from);
            let present = Bitmap::from_fn(batch.len(), |row| {
                rows.contains(row) && !column.cell(row).is_absent()
            });
            if rename.wrap.is_none() && !present.is_empty() {
                let taken = batch.column(&rename.to);
                for row in present.iter().filter(|row| !taken.cell(*row).is_absent()) {
                    let reason = format!("cannot rename {rename}: {} is there already", rename.to);
                    failures.push(row, &self.tag, &reason.into());
                    rows.remove(row);
                }
            }
            found.push((rename, column, present));
        }
        let mut edit = Edit::new();
        for (rename, column, mut present) in found {
            present.and(&rows);
            if !present.is_empty() {
                rename.add_to(&mut edit, &column, &present);
            }
        }
        let refused = batch.apply(edit);
        failures.extend_refused(refused, &self.tag);
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let sources = self.renames.iter().map(|rename| rename.from.clone());
        sources
            .map(|from| Arc::new(FieldRead::always(from)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn names_change_and_values_do_not() {
        check(
            &SPEC,
            &[
                (
                    "rename a -> b",
                    r#"{"a":1.50,"c":2}"#,
                    r#"{"c":2,"b":1.50}"#,
                ),
                ("rename a -> b", r#"{"a":null}"#, r#"{"b":null}"#),
                (
                    "rename a -> b",
                    r#"{"a":{"x": 123456789012345678901234567890}}"#,
                    r#"{"b":{"x": 123456789012345678901234567890}}"#,
                ),
                ("rename a -> b", r#"{"c":1}"#, r#"{"c":1}"#),
                (
                    "rename a.b -> c",
                    r#"{"a":{"b":1,"d":2}}"#,
                    r#"{"a":{"d":2},"c":1}"#,
                ),
                ("rename a -> a.b", r#"{"a":"x"}"#, r#"{"a":{"b":"x"}}"#),
                (
                    "rename a -> a.b.c",
                    r#"{"a":[1]}"#,
                    r#"{"a":{"b":{"c":[1]}}}"#,
                ),
                (
                    "rename a -> a.b",
                    r#"{"a":{"b":1}}"#,
                    r#"{"a":{"b":{"b":1}}}"#,
                ),
                (
                    "rename a -> c, b -> d",
                    r#"{"a":1,"b":2}"#,
                    r#"{"c":1,"d":2}"#,
                ),
            ],
        );
    }

    #[test]
    fn a_failed_row_keeps_all_of_its_names() {
        let error = |reason: &str| {
            format!(r#","tags":["_renamefailure"],"error":{{"message":"{reason}"}}}}"#)
        };
        for (event, reason) in [
            (
                r#"{"a":1,"b":null"#,
                "cannot rename a to b: b is there already",
            ),
            (
                r#"{"c":1,"a":1,"d":{"e":1}"#,
                "cannot rename c to d.e: d.e is there already",
            ),
            (
                r#"{"c":1,"a":1,"d":5"#,
                "cannot write d.e: there is a value above it that is not an object",
            ),
        ] {
            let lines =
                crate::testing::run(&SPEC, "rename a -> b, c -> d.e", &format!("{event}}}"));
            assert_eq!(lines, [format!("{event}{}", error(reason))]);
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("rename", "fields"),
                ("rename a", "expected `->` and the new name after `a`"),
                ("rename a b", "expected `->`"),
                ("rename to=a", "expected `->` and the new name after `to`"),
                ("rename a -> a", "`a` has that name already"),
                ("rename a.b -> a", "`a.b` is inside `a`"),
                ("rename a -> b..c", "`b..c` is not a field name"),
                (
                    "rename a -> b, b -> c",
                    "b to c and a to b touch the same field",
                ),
                ("rename a -> x, b -> x", "touch the same field"),
                ("rename a -> b, b -> c", "touch the same field"),
            ],
        );
    }

    proptest! {
        /// Against the same done with plain values.
        #[test]
        fn as_with_plain_values(events in prop::collection::vec(
            prop::collection::btree_map("[abx]", prop_oneof![any::<i32>().prop_map(Value::from), Just(Value::Null),
                prop::collection::btree_map("[abx]", any::<u8>(), 0..3).prop_map(|map| serde_json::json!(map))], 0..3), 1..8)
        ) {
            let model = |event: &BTreeMap<String, Value>| {
                let mut event: serde_json::Map<String, Value> = event.clone().into_iter().collect();
                if event.contains_key("a") && !event.contains_key("b") {
                    let value = event.shift_remove("a").unwrap();
                    event.insert("b".into(), value);
                }
                Value::Object(event)
            };
            let lines: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
            let mut batch = batch_of(lines.iter().map(String::as_str));
            let failures = process(build(&SPEC, "rename a -> b").unwrap().as_mut(), &mut batch);
            let failed: Vec<usize> = failures.rows().iter().map(|failure| failure.row).collect();
            for (row, (line, event)) in lines_of(&batch).iter().zip(&events).enumerate() {
                let mut found: Value = serde_json::from_str(line).unwrap();
                if failed.contains(&row) {
                    found.as_object_mut().unwrap().shift_remove("tags");
                    found.as_object_mut().unwrap().shift_remove("error");
                }
                prop_assert_eq!(found, model(event));
                prop_assert_eq!(failed.contains(&row), event.contains_key("a") && event.contains_key("b"));
            }
        }
    }
}
