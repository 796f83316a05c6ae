//! `set`: gives a field a value.
//!
//! The value is a literal, a text with references to other fields, or what an expression computes. A literal is stored
//! once a batch and shared by all rows.

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath};
use component::{Build, BuildContext, Example, Order, Processor, Spec, field, parse};
use config::{ConfigError, Node, Positional};
use expr::{Absent, Expr, Template};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::literal::Literal;

const FAILURE_TAG: &str = "_setfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "set",
    summary: "Gives a field a value.",
    description: concat!(
        "The value is one of two:\n\n\
                  - `value`: what stands there. Unquoted `42`, `1.5`, `true` and `null` are numbers, a truth value and \
                  null, with every digit kept; what is quoted is text; lists and maps become arrays and objects. A text may hold fields and \
                  times: ",
        expr::template_syntax!(),
        " A reference to a field that is absent or null stays as it is written, as in Logstash.\n\
                  - `expression`: what the expression gives, with its type. Where that is absent, nothing happens. \
                  `expression: other` copies a field.\n\n\
                  A field that is there is replaced unless `overwrite: false` is given; a null counts as being there. \
                  Where the expression fails, or a value above the field is not an object, the event fails with \
                  `_setfailure`."
    ),
    positional: Positional::fields(&["field", "value"]).typed(),
    one_line: &[],
    examples: &[
        Example {
            title: "A number, whatever was there before",
            stage: "set retries 3",
            input: "{\"a\":1}\n{\"retries\":\"none\"}",
            output: "{\"a\":1,\"retries\":3}\n{\"retries\":3}",
        },
        Example {
            title: "A text made of fields",
            stage: "set summary '%{verb} %{url.path}'",
            input: r#"{"verb":"GET","url":{"path":"/a"}}"#,
            output: r#"{"verb":"GET","url":{"path":"/a"},"summary":"GET /a"}"#,
        },
        Example {
            title: "Something computed",
            stage: "set took.ms expression='took.s * 1000'",
            input: r#"{"took":{"s":2}}"#,
            output: r#"{"took":{"s":2,"ms":2000}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `set`. Either `value` or `expression` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field to set.
    field: String,
    /// The value: of any type, null included. A text may hold fields and times: `%{name}`, `%{+yyyy-MM-dd}`.
    #[serde(default)]
    value: Option<Literal>,
    /// An expression that gives the value.
    #[serde(default)]
    expression: Option<String>,
    /// Whether a field that is there already is replaced. Default: true.
    #[serde(default = "yes")]
    overwrite: bool,
}

fn yes() -> bool {
    true
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let path = field(node, "field", &config.field)?;
    // A null that is given is a value too.
    let given = node
        .get("value")
        .map(|_| config.value.unwrap_or(Literal::Null));
    let value = match (given, &config.expression) {
        (Some(Literal::Text(text)), None) => text_value(node, &text)?,
        (Some(literal), None) => SetTo::Literal(literal),
        (None, Some(text)) => SetTo::Expression(
            Expr::parse(text).map_err(|error| error.in_setting(node.nearest("expression")))?,
        ),
        (Some(_), Some(_)) => {
            return Err(node
                .nearest("expression")
                .error("give either `value` or `expression`, not both"));
        }
        (None, None) => {
            return Err(node.error("what to set is missing: give `value` or `expression`"));
        }
    };
    let overwrite = config.overwrite;
    let tag = context.tag_or(FAILURE_TAG);
    Ok(Box::new(Set {
        path,
        value,
        overwrite,
        tag,
    }))
}

/// A text, which is a literal where it has no field and no time in it.
fn text_value(node: &Node, text: &str) -> Result<SetTo, ConfigError> {
    let template =
        Template::parse(text).map_err(|error| error.in_setting(node.nearest("value")))?;
    Ok(match template.constant() {
        Some(text) => SetTo::Literal(Literal::Text(text.into())),
        None => SetTo::Template(template),
    })
}

#[derive(Clone)]
enum SetTo {
    Literal(Literal),
    Template(Template),
    Expression(Expr),
}

#[derive(Clone)]
struct Set {
    path: FieldPath,
    value: SetTo,
    overwrite: bool,
    tag: Arc<str>,
}

impl Processor for Set {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut rows = rows.clone();
        if !self.overwrite {
            let present = batch.column(&self.path);
            rows.and(&Bitmap::from_fn(batch.len(), |row| {
                present.cell(row).is_absent()
            }));
        }
        let mut failures = Failures::none();
        if rows.is_empty() {
            return failures;
        }
        let column = match &self.value {
            SetTo::Literal(literal) => literal.column(&rows),
            SetTo::Template(template) => {
                let mut column = ColumnBuilder::new(batch.len());
                let mut template = template.bind(batch, Absent::AsWritten);
                for row in rows.iter() {
                    let span = column.append(|out| template.write(row, out));
                    column.set(row, Cell::Text(span));
                }
                column.finish()
            }
            SetTo::Expression(expression) => {
                let found = expression.evaluate(batch, &rows);
                for (row, reason) in &found.errors {
                    failures.push(*row, &self.tag, reason);
                    rows.remove(*row);
                }
                let mut column = ColumnBuilder::over(batch.len(), found.column.buffers().clone());
                for row in rows.iter() {
                    let cell = found.column.cell(row);
                    column.set(row, if cell.is_absent() { Cell::Keep } else { cell });
                }
                column.finish()
            }
        };
        let mut edit = Edit::new();
        edit.set(self.path.clone(), column);
        failures.extend_refused(batch.apply(edit), &self.tag);
        failures
    }

    fn fork(&self) -> Box<dyn Processor> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        batch_of, build, build_yaml, check, check_errors, lines_of, process, process_rows,
        text_batch,
    };

    #[test]
    fn literals_have_the_type_they_look_like() {
        for (settings, value) in [
            ("{field: f, value: 42}", "42"),
            ("{field: f, value: -42}", "-42"),
            (
                "{field: f, value: 18446744073709551615}",
                "18446744073709551615",
            ),
            (
                "{field: f, value: 123456789012345678901234567890}",
                "123456789012345678901234567890",
            ),
            (
                "{field: f, value: 99999999999999999999999999999999999999999}",
                "99999999999999999999999999999999999999999",
            ),
            (
                "{field: f, value: -1.00000000000000000001}",
                "-1.00000000000000000001",
            ),
            (
                "{field: f, value: [1.50, {a: 18446744073709551616}]}",
                r#"[1.50,{"a":18446744073709551616}]"#,
            ),
            ("{field: f, value: +7}", "7"),
            ("{field: f, value: .5}", "0.5"),
            ("{field: f, value: 0x1F}", "31"),
            ("{field: f, value: '42'}", "\"42\""),
            ("{field: f, value: 1.5}", "1.5"),
            ("{field: f, value: true}", "true"),
            ("{field: f, value: 'true'}", "\"true\""),
            ("{field: f, value: null}", "null"),
            ("{field: f, value: }", "null"),
            ("{field: f, value: ''}", "\"\""),
            ("{field: f, value: a \"b\"}", r#""a \"b\"""#),
            ("{field: f, value: []}", "[]"),
            (
                "{field: f, value: [1, x, [true, null]]}",
                r#"[1,"x",[true,null]]"#,
            ),
            (
                "{field: f, value: {a: {b: 1.25}, 'c d': ~}}",
                r#"{"a":{"b":1.25},"c d":null}"#,
            ),
        ] {
            let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":1,"f":{"x":1}}"#]);
            process(
                build_yaml(&SPEC, settings).expect(settings).as_mut(),
                &mut batch,
            );
            let line = format!(r#"{{"a":1,"f":{value}}}"#);
            assert_eq!(lines_of(&batch), [line.clone(), line], "{settings}");
        }
    }

    #[test]
    fn values_come_from_fields() {
        check(
            &SPEC,
            &[
                (
                    "set f '%{a}-%{b.c}'",
                    r#"{"a":1.50,"b":{"c":"x"}}"#,
                    r#"{"a":1.50,"b":{"c":"x"},"f":"1.50-x"}"#,
                ),
                (
                    "set f '<%{a}>'",
                    r#"{"a":null}"#,
                    r#"{"a":null,"f":"<%{a}>"}"#,
                ),
                (
                    "set f '%{[b][c]}'",
                    r#"{"b":{"c":true}}"#,
                    r#"{"b":{"c":true},"f":"true"}"#,
                ),
                (
                    "set f '100%% of %{a} in %{+yyyy}'",
                    r#"{"a":1,"@timestamp":"2024-02-29T00:00:00Z"}"#,
                    r#"{"a":1,"@timestamp":"2024-02-29T00:00:00Z","f":"100% of 1 in 2024"}"#,
                ),
                (
                    "set f '%%{a} 100%'",
                    r#"{"a":1}"#,
                    r#"{"a":1,"f":"%{a} 100%"}"#,
                ),
                ("set f '%{f}!'", r#"{"f":"x"}"#, r#"{"f":"x!"}"#),
                (
                    "set f expression=a",
                    r#"{"a":1.50}"#,
                    r#"{"a":1.50,"f":1.50}"#,
                ),
                ("set f expression='a + 1'", r#"{"a":1}"#, r#"{"a":1,"f":2}"#),
                ("set f expression=gone", r#"{"f":1}"#, r#"{"f":1}"#),
                (
                    "set f 1 overwrite=false",
                    "{\"f\":null}\n{}",
                    "{\"f\":null}\n{\"f\":1}",
                ),
                ("set f null", "{}", r#"{"f":null}"#),
                ("set f 'null'", "{}", r#"{"f":"null"}"#),
                ("set f [1,'2', x,null]", "{}", r#"{"f":[1,"2","x",null]}"#),
                ("set f '[1]'", "{}", r#"{"f":"[1]"}"#),
                ("set f [1]x", "{}", r#"{"f":"[1]x"}"#),
                (
                    "set f 1.00000000000000000001",
                    "{\"a\":1}\n{}",
                    "{\"a\":1,\"f\":1.00000000000000000001}\n{\"f\":1.00000000000000000001}",
                ),
                ("set a.b 1", r#"{"a":{"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
                ("set @metadata.index x", r#"{"a":1}"#, r#"{"a":1}"#),
            ],
        );
    }

    #[test]
    fn failed_rows_keep_what_they_had() {
        let lines = crate::testing::run(
            &SPEC,
            "set f expression='a + 1'",
            "{\"a\":1}\n{\"f\":7,\"a\":[]}\n{\"a\":2}",
        );
        assert_eq!(
            (&*lines[0], &*lines[2]),
            (r#"{"a":1,"f":2}"#, r#"{"a":2,"f":3}"#)
        );
        assert!(
            lines[1].starts_with(r#"{"f":7,"a":[],"tags":["_setfailure"],"error":{"message":""#),
            "{}",
            lines[1]
        );
        let lines = crate::testing::run(&SPEC, "set a.b 1", "{\"a\":\"x\"}\n{}");
        assert!(lines[0].contains("cannot write a.b"), "{}", lines[0]);
        assert_eq!(lines[1], r#"{"a":{"b":1}}"#);
    }

    #[test]
    fn only_given_rows_are_set() {
        let mut batch = text_batch(["one", "two"]);
        let mut set = build(&SPEC, "set message same").expect("it builds").fork();
        process_rows(
            set.as_mut(),
            &mut batch,
            &Bitmap::from_fn(2, |row| row == 1),
        );
        assert_eq!(
            lines_of(&batch),
            [r#"{"message":"one"}"#, r#"{"message":"same"}"#]
        );
        process(
            build(&SPEC, "set message x").expect("it builds").as_mut(),
            &mut batch,
        );
        assert_eq!(
            lines_of(&batch),
            [r#"{"message":"x"}"#, r#"{"message":"x"}"#]
        );
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("set", "field"),
                ("set f", "what to set is missing"),
                ("set f 1 expression=a", "either `value` or `expression`"),
                ("set f..g 1", "`f..g` is not a field name"),
                ("set f '%{a'", "`%{` is not closed"),
                ("set f '%{}'", "`` is not a field name"),
                ("set f value=.nan", "infinity and NaN"),
                ("set f 1e999", "`1e999` is beyond"),
                ("set f expression='a +'", "expected a value, found the end"),
                ("set f expression='lenght(a)'", "lenght"),
            ],
        );
        let error = build(&SPEC, "set f '%{ok} %{a'").err().expect("a refusal");
        assert_eq!(
            error.column(),
            Some("in | set f '%{ok} ".len() + 1),
            "{error}"
        );
    }
}
