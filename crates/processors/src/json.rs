//! `json`: parses a JSON string into fields.
//!
//! The text is validated once, as a JSON document that arrives is, and then *laid over* the event as it stands: nothing
//! is parsed into values and no digit changes. Only texts with duplicate or escaped keys are rewritten.

use std::sync::Arc;

use batch::json::{self, Kind, Scan};
use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::{field, target};
use crate::text::{Texts, part};

const FAILURE_TAG: &str = "_jsonparsefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "json",
    aliases: &[],
    summary: "Parses a JSON string into fields.",
    description: "Without a `target`, the text must be a JSON object, and its members become fields of the event. Existing fields are replaced; \
                  objects are merged member by member. With a `target`, the text may be any JSON value, which replaces that field; \
                  `target` may be the field that is read.\n\n\
                  Numbers keep every digit, and if a key occurs twice, its last value is used. `@timestamp` becomes a string; add a \
                  `date` processor to parse it.\n\n\
                  Text that is not valid JSON, or is not an object when there is no target, fails with \
                  `_jsonparsefailure` and a message that gives the position of the error. With `skip_on_invalid_json: true`, text that is not JSON is left unchanged instead, for \
                  fields that only sometimes contain JSON; JSON that is not an object still fails. If the field is absent or null, nothing happens. The \
                  source field is kept unless `keep_source: false` is set.\n\n\
                  Inputs with `codec: json` already parse events as JSON and do not need this processor.",
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A line of JSON",
            stage: "json keep_source=false",
            input: r#"  {"level": "warn", "took": 1.50}"#,
            output: r#"{"level":"warn","took":1.50}"#,
        },
        Example {
            title: "Into a field of its own",
            stage: "json body target=order",
            input: r#"{"body":"{\"id\":7,\"items\":[\"a\"]}"}"#,
            output: r#"{"body":"{\"id\":7,\"items\":[\"a\"]}","order":{"id":7,"items":["a"]}}"#,
        },
        Example {
            title: "A field that sometimes contains JSON",
            stage: "json body target=order skip_on_invalid_json=true",
            input: "{\"body\":\"{\\\"id\\\":7}\"}\n{\"body\":\"no order\"}",
            output: "{\"body\":\"{\\\"id\\\":7}\",\"order\":{\"id\":7}}\n{\"body\":\"no order\"}",
        },
        Example {
            title: "Text that is not JSON",
            stage: "json body",
            input: r#"{"body":"{\"id\":}"}"#,
            output: r#"{"body":"{\"id\":}","tags":["_jsonparsefailure"],"error":{"message":"body: unexpected character at byte 6"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `json`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The field that gets the value. Default: none; the fields of the object become fields of the event.
    target: Option<String>,
    /// Whether the field that was read stays.
    keep_source: bool,
    /// Whether text that is not JSON is left unchanged instead of failing.
    skip_on_invalid_json: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: None,
            keep_source: true,
            skip_on_invalid_json: false,
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = target(node, config.target.as_deref())?;
    let remove = !config.keep_source && target.as_ref() != Some(&source);
    Ok(Box::new(Json {
        source,
        target,
        remove,
        skip_invalid: config.skip_on_invalid_json,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Json {
    source: FieldPath,
    target: Option<FieldPath>,
    /// Whether the source is removed.
    remove: bool,
    /// Whether what is not JSON is no failure.
    skip_invalid: bool,
    tag: Arc<str>,
}

impl Processor for Json {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.source, rows);
        let mut read = Read::new(batch.len(), &texts);
        let mut failures = Failures::none();
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            let scan = match &self.target {
                Some(_) => json::validate(text),
                None => json::validate_object(text),
            };
            match scan {
                Ok(scan) => read.put(row, span, text, scan),
                Err(_) if self.skip_invalid && json::validate(text).is_err() => {}
                Err(error) => {
                    failures.push(row, &self.tag, &format!("{}: {error}", self.source).into());
                }
            }
        }
        if !read.rows.is_empty() {
            let refused = batch.apply(self.edit(read));
            failures.extend_refused(refused, &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.source.clone()))]
    }
}

impl Json {
    fn edit(&self, read: Read) -> Edit {
        let mut edit = Edit::new();
        if self.remove {
            edit.remove(self.source.clone(), &read.rows);
        }
        match &self.target {
            None => {
                edit.merge(None, read.values.finish(), read.dotted);
            }
            Some(target) => {
                edit.set(target.clone(), read.values.finish());
                if read.dotted {
                    edit.dotted_keys();
                }
            }
        }
        edit
    }
}

/// The values that were read from a batch.
struct Read {
    values: ColumnBuilder,
    /// The rows that have one.
    rows: Bitmap,
    /// Whether some key in them holds a dot.
    dotted: bool,
}

impl Read {
    fn new(len: usize, texts: &Texts) -> Self {
        Self {
            values: texts.builder(len),
            rows: Bitmap::none(len),
            dotted: false,
        }
    }

    /// Sets a row to the value of a valid text.
    fn put(&mut self, row: usize, span: Span, text: &[u8], scan: Scan) {
        let start = text.len() - text.trim_ascii_start().len();
        let end = text.trim_ascii_end().len();
        let value = &text[start..end];
        self.rows.insert(row);
        let cell = if scan.rewrite {
            Cell::Json(self.values.append(|out| json::normalise(value, out)))
        } else {
            self.cell(part(span, start, end), value)
        };
        self.values.set(row, cell);
        self.dotted |= scan.dotted_keys;
    }

    fn cell(&mut self, span: Span, value: &[u8]) -> Cell {
        match json::kind(value) {
            Kind::Null => Cell::Null,
            Kind::Bool => Cell::Bool(value == b"true"),
            Kind::Number => Cell::Number(span),
            Kind::Array | Kind::Object => Cell::Json(span),
            Kind::String => {
                let body = &value[1..value.len() - 1];
                if json::has_escape(body) {
                    return Cell::Text(self.values.append(|out| json::unescape(body, out)));
                }
                Cell::Text(part(span, 1, value.len() - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process, text_batch};
    use proptest::prelude::*;

    #[test]
    fn objects_become_fields() {
        check(
            &SPEC,
            &[
                (
                    "json b",
                    r#"{"a":1,"b":"{\"a\":2,\"c\":{\"x\":1e400}}"}"#,
                    r#"{"a":2,"b":"{\"a\":2,\"c\":{\"x\":1e400}}","c":{"x":1e400}}"#,
                ),
                (
                    "json b keep_source=false",
                    r#"{"b":"{\"b\":\"new\"}"}"#,
                    r#"{"b":"new"}"#,
                ),
                (
                    "json b keep_source=false",
                    r#"{"o":{"x":1,"y":2},"b":"{\"o\":{\"y\":3}}"}"#,
                    r#"{"o":{"x":1,"y":3}}"#,
                ),
                ("json b keep_source=false", r#"{"b":" {} "}"#, "{}"),
                (
                    "json b keep_source=false",
                    r#"{"b":"{\"k\":1,\"\\u006b\":2}"}"#,
                    r#"{"k":2}"#,
                ),
                ("json b", r#"{"b":null}"#, r#"{"b":null}"#),
                ("json b", r#"{"c":1}"#, r#"{"c":1}"#),
                ("json b keep_source=false", r#"{"b":{"c":1}}"#, r#"{"c":1}"#),
            ],
        );
    }

    #[test]
    fn a_target_takes_any_value() {
        for (text, value) in [
            ("{}", "{}"),
            (" [1, 2] ", "[1, 2]"),
            ("1.50", "1.50"),
            ("true", "true"),
            (" false", "false"),
            ("null", "null"),
            (r#""a""#, r#""a""#),
            (r#""\u0041\n""#, r#""A\n""#),
            (r#"{"k":1,"k":2}"#, r#"{"k":2}"#),
        ] {
            let mut batch = text_batch([text]);
            process(
                build(&SPEC, "json target=message")
                    .expect("it builds")
                    .as_mut(),
                &mut batch,
            );
            let mut found = Vec::new();
            batch
                .column(&FieldPath::from_keys(["message"]))
                .value(0)
                .write_json(&mut found);
            assert_eq!(String::from_utf8_lossy(&found), value, "{text}");
        }
    }

    #[test]
    fn failures_say_where_and_why() {
        for (stage, text, reason) in [
            ("json", "nothing", "message: not a JSON object at byte 0"),
            ("json", "[1]", "message: not a JSON object at byte 0"),
            (
                "json",
                r#"{"a":1} x"#,
                "message: unexpected characters after the JSON value at byte 8",
            ),
            (
                "json",
                r#"{"a":"#,
                "message: unexpected end of JSON at byte 5",
            ),
            (
                "json target=t",
                "[1,]",
                "message: unexpected character at byte 3",
            ),
            (
                "json target=message.x",
                "{}",
                "cannot write message.x: there is a value above it that is not an object",
            ),
        ] {
            let mut batch = text_batch([r#"{"fine":1}"#, text]);
            let failures = process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
            let last = failures.rows().last().expect("a failure");
            assert_eq!(
                (last.row, &*last.tag, &*last.reason),
                (1, FAILURE_TAG, reason),
                "{stage} {text}"
            );
            assert!(
                lines_of(&batch)[1].contains(&serde_json::json!(text).to_string()),
                "the text stays"
            );
        }
    }

    #[test]
    fn what_is_not_json_can_be_passed_over() {
        for settings in ["", "target=t", "keep_source=false"] {
            for event in [
                r#"{"b":"nothing"}"#,
                r#"{"b":"{\"a\":"}"#,
                r#"{"b":""}"#,
                r#"{"b":"{} x"}"#,
            ] {
                let stage = format!("json b {settings} skip_on_invalid_json=true");
                check(&SPEC, &[(&stage, event, event)]);
            }
        }
        let lines = crate::testing::run(
            &SPEC,
            "json b skip_on_invalid_json=true",
            "{\"b\":\"[1]\"}\n{\"b\":\"{\\\"c\\\":1}\"}",
        );
        assert!(lines[0].contains(FAILURE_TAG), "no object: {}", lines[0]);
        assert!(lines[1].ends_with(r#","c":1}"#), "{}", lines[1]);
    }

    #[test]
    fn dotted_keys_are_found_afterwards() {
        for (stage, path) in [
            ("json b", "x.y"),
            ("json b target=t", "t.x.y"),
            ("json b target=b", "b.x.y"),
        ] {
            let mut batch = batch_of([r#"{"b":"{\"x.y\":5}"}"#, r#"{"b":"{\"x\":{\"y\":6}}"}"#]);
            process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
            let column = batch.column(&FieldPath::parse(path).expect(path));
            let text = |row| {
                let mut out = Vec::new();
                column.value(row).write_text(&mut out);
                out
            };
            assert_eq!(
                (text(0), text(1)),
                (b"5".to_vec(), b"6".to_vec()),
                "{stage}"
            );
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("json a..b", "`a..b` is not a field name"),
                ("json a target='[a'", "not a field name"),
                ("json a keep_source=perhaps", "expected true or false"),
                ("json a b", "accepts one value"),
                ("json a remove_field=true", "remove_field"),
            ],
        );
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "[a-z\"\\\\\n\u{e9}]{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map("[a-d.]{1,3}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_survive(values in prop::collection::vec(any_json(), 1..5)) {
            let texts: Vec<String> = values.iter().map(|value| serde_json::to_string_pretty(value).unwrap()).collect();
            let events: Vec<String> = texts.iter().map(|text| serde_json::json!({ "text": text }).to_string()).collect();
            let mut batch = batch_of(events.iter().map(String::as_str));
            process(build(&SPEC, "json text target=text").unwrap().as_mut(), &mut batch);
            for (line, value) in lines_of(&batch).iter().zip(&values) {
                prop_assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), serde_json::json!({ "text": value }));
            }
        }
    }
}
