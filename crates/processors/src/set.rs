//! `set`: gives fields values.
//!
//! A value is what an expression computes, or a literal or a text with references to other fields. A literal is stored once a
//! batch and shared by all rows. All values are set at once and together: an event for which one is impossible keeps everything. An
//! expression that reads what the same stage sets would therefore see the value from before; it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Shape};
use expr::{Absent, Expr, Template};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::literal::Literal;

const FAILURE_TAG: &str = "_setfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "set",
    aliases: &[],
    summary: "Sets fields to the values of expressions.",
    description: concat!(
        "In a one-line pipeline: `set NAME = EXPRESSION, NAME = EXPRESSION, …`. In YAML the same as one text, or as maps:\n\n\
                  - `fields`: names with expressions. Text needs quotes of its own: `env: '\"prod\"'`; a bare name is a field, so that `copy: other` copies one. If an expression gives no value, nothing happens.\n\
                  - `values`: names with values as they stand. Unquoted `42`, `1.5`, `true` and `null` are numbers, a truth value and \
                  null, with every digit kept; what is quoted is text; lists and maps become arrays and objects. A text may hold fields and \
                  times: ",
        expr::template_syntax!(),
        " A reference to a field that is absent or null stays as it is written, as in Logstash.\n\n\
                  All fields are set at once, so an expression cannot read a field that the same `set` sets before it: use a second `set`. An existing \
                  field is replaced unless `overwrite: false` is set; a field that is null counts as existing. If an expression fails, or a value above the field is not an object, the event fails with \
                  `_setfailure`."
    ),
    positional: Positional::whole(&["fields"], Shape::Assignments),
    one_line: &[],
    examples: &[
        Example {
            title: "Something computed, and a text",
            stage: r#"set total = bytes_in + bytes_out, env = "prod""#,
            input: r#"{"bytes_in":200,"bytes_out":1300}"#,
            output: r#"{"bytes_in":200,"bytes_out":1300,"total":1500,"env":"prod"}"#,
        },
        Example {
            title: "A number, whatever was there before",
            stage: "set retries = 3",
            input: "{\"a\":1}\n{\"retries\":\"none\"}",
            output: "{\"a\":1,\"retries\":3}\n{\"retries\":3}",
        },
        Example {
            title: "A text made of fields, and a copy of a field",
            stage: r#"set summary = verb + " " + url.path, method = verb"#,
            input: r#"{"verb":"GET","url":{"path":"/a"}}"#,
            output: r#"{"verb":"GET","url":{"path":"/a"},"summary":"GET /a","method":"GET"}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `set`. Either `fields` or `values` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Fields with expressions that give their values.
    #[serde(default)]
    fields: BTreeMap<String, String>,
    /// Fields with values: of any type, null included. A text may hold fields and times: `%{name}`, `%{+yyyy-MM-dd}`.
    #[serde(default)]
    values: BTreeMap<String, Option<Literal>>,
    /// Whether an existing field is replaced.
    #[serde(default = "yes")]
    overwrite: bool,
}

fn yes() -> bool {
    true
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node).map_err(|error| renamed(node, error))?;
    let mut assignments = Vec::new();
    let entries = |name| {
        let entries = node.get(name).and_then(Node::as_map);
        entries.unwrap_or_default()
    };
    for (key, value) in entries("values") {
        let name = key.as_str().unwrap_or_default();
        let given = config.values.get(name).cloned().flatten();
        let to = match given.unwrap_or(Literal::Null) {
            Literal::Text(text) => text_value(value, &text)?,
            literal => SetTo::Literal(literal),
        };
        assignments.push(Assignment::new(key, to)?);
    }
    for (key, value) in entries("fields") {
        let name = key.as_str().unwrap_or_default();
        let text = config.fields.get(name).map_or("", String::as_str);
        let expression = Expr::parse(text).map_err(|error| error.in_setting(value))?;
        let earlier = assignments.iter().find(|earlier: &&Assignment| {
            let mut read = expression.fields();
            read.any(|field| earlier.path.overlaps(field.keys()))
        });
        if let Some(Assignment { path, .. }) = earlier {
            let error = value.error(format!(
                "`{path}`, which is read here, is set in the same stage"
            ));
            return Err(error.note(format!(
                "the values of one `set` are set at once, and `{path}` would be read as it was before: use a second `set`"
            )));
        }
        assignments.push(Assignment::new(key, SetTo::Expression(expression))?);
    }
    if assignments.is_empty() {
        let error = node.error("nothing to set");
        return Err(error.note("as in: set total = bytes_in + bytes_out, env = \"prod\""));
    }
    Ok(Box::new(Set {
        assignments,
        overwrite: config.overwrite,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

/// Says how settings of earlier versions are written now.
fn renamed(node: &Node, error: ConfigError) -> ConfigError {
    match node.get("field").and_then(Node::as_str) {
        Some(field) => error
            .note(format!(
                "`field` with `expression` is now `fields: {{ {field}: EXPRESSION }}`"
            ))
            .note(format!(
                "`field` with `value` is now `values: {{ {field}: VALUE }}`"
            )),
        None => error,
    }
}

/// A text, which is a literal where it has no field and no time in it.
fn text_value(node: &Node, text: &str) -> Result<SetTo, ConfigError> {
    let template = Template::parse(text).map_err(|error| error.in_setting(node))?;
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

/// A field and what it becomes.
#[derive(Clone)]
struct Assignment {
    path: FieldPath,
    value: SetTo,
}

#[derive(Clone)]
struct Set {
    assignments: Vec<Assignment>,
    overwrite: bool,
    tag: Arc<str>,
}

impl Assignment {
    fn new(key: &Node, value: SetTo) -> Result<Self, ConfigError> {
        let name = key.as_str().unwrap_or_default();
        let path = crate::names::path(key, name)?;
        Ok(Self { path, value })
    }

    /// The field's new cells for these rows, and which expressions failed.
    fn column(
        &self,
        batch: &Batch,
        rows: &Bitmap,
        set: &Set,
        failures: &mut Failures,
        failed: &mut Bitmap,
    ) -> Option<Column> {
        let mut wanted = rows.clone();
        if !set.overwrite {
            let present = batch.column(&self.path);
            wanted.and(&Bitmap::from_fn(batch.len(), |row| {
                present.cell(row).is_absent()
            }));
        }
        if wanted.is_empty() {
            return None;
        }
        Some(match &self.value {
            SetTo::Literal(literal) => literal.column(&wanted),
            SetTo::Template(template) => {
                let mut column = ColumnBuilder::new(batch.len());
                let mut template = template.bind(batch, Absent::AsWritten);
                for row in wanted.iter() {
                    let span = column.append(|out| template.write(row, out));
                    column.set(row, Cell::Text(span));
                }
                column.finish()
            }
            SetTo::Expression(expression) => {
                let found = expression.evaluate(batch, &wanted);
                for (row, reason) in &found.errors {
                    failures.push(*row, &set.tag, reason);
                    failed.insert(*row);
                    wanted.remove(*row);
                }
                let mut column = ColumnBuilder::over(batch.len(), found.column.buffers().clone());
                for row in wanted.iter() {
                    let cell = found.column.cell(row);
                    column.set(row, if cell.is_absent() { Cell::Keep } else { cell });
                }
                column.finish()
            }
        })
    }
}

impl Processor for Set {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut failures = Failures::none();
        let mut failed = Bitmap::from_fn(batch.len(), |_| false);
        let mut rows = rows.clone();
        let mut edit = Edit::new();
        let mut columns = Vec::with_capacity(self.assignments.len());
        for assignment in &self.assignments {
            let column = assignment.column(batch, &rows, self, &mut failures, &mut failed);
            failed.iter().for_each(|row| rows.remove(row));
            columns.push(column);
        }
        for (assignment, column) in self.assignments.iter().zip(columns) {
            let Some(column) = column else { continue };
            let column = match failed.is_empty() {
                true => column,
                false => without(&column, &failed),
            };
            edit.set(assignment.path.clone(), column);
        }
        failures.extend_refused(batch.apply(edit), &self.tag);
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let reads = self.assignments.iter().flat_map(|set| match &set.value {
            SetTo::Expression(expression) => expression.reads().to_vec(),
            SetTo::Template(template) => template.reads().collect(),
            SetTo::Literal(_) => Vec::new(),
        });
        reads.collect()
    }
}

/// The column, with these rows as they are.
fn without(column: &Column, rows: &Bitmap) -> Column {
    let mut kept = ColumnBuilder::over(column.len(), column.buffers().clone());
    for row in 0..column.len() {
        let cell = match rows.contains(row) {
            true => Cell::Keep,
            false => column.cell(row),
        };
        kept.set(row, cell);
    }
    kept.finish()
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
            ("{values: {f: 42}}", "42"),
            ("{values: {f: -42}}", "-42"),
            (
                "{values: {f: 18446744073709551615}}",
                "18446744073709551615",
            ),
            (
                "{values: {f: 123456789012345678901234567890}}",
                "123456789012345678901234567890",
            ),
            (
                "{values: {f: 99999999999999999999999999999999999999999}}",
                "99999999999999999999999999999999999999999",
            ),
            (
                "{values: {f: -1.00000000000000000001}}",
                "-1.00000000000000000001",
            ),
            (
                "{values: {f: [1.50, {a: 18446744073709551616}]}}",
                r#"[1.50,{"a":18446744073709551616}]"#,
            ),
            ("{values: {f: '42'}}", "\"42\""),
            ("{values: {f: 1.5}}", "1.5"),
            ("{values: {f: true}}", "true"),
            ("{values: {f: 'true'}}", "\"true\""),
            ("{values: {f: null}}", "null"),
            ("{values: {f: }}", "null"),
            ("{values: {f: ''}}", "\"\""),
            ("{values: {f: a \"b\"}}", r#""a \"b\"""#),
            ("{values: {f: []}}", "[]"),
            (
                "{values: {f: [1, x, [true, null]]}}",
                r#"[1,"x",[true,null]]"#,
            ),
            (
                "{values: {f: {a: {b: 1.25}, 'c d': ~}}}",
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
    fn a_number_that_would_lose_its_text_is_refused() {
        for number in ["+7", ".5", "0x1F", "007", "00123", "1.", "-01"] {
            for value in [number.to_owned(), format!("[1, {{a: {number}}}]")] {
                let settings = format!("{{values: {{f: {value}}}}}");
                let error = build_yaml(&SPEC, &settings).err().expect(&settings);
                let expected = format!("\"{number}\"");
                assert_eq!(error.suggestion(), Some(&*expected), "{settings}");
            }
        }
    }

    #[test]
    fn values_come_from_fields() {
        for (value, input, output) in [
            (
                "'%{a}-%{b.c}'",
                r#"{"a":1.50,"b":{"c":"x"}}"#,
                r#"{"a":1.50,"b":{"c":"x"},"f":"1.50-x"}"#,
            ),
            ("'<%{a}>'", r#"{"a":null}"#, r#"{"a":null,"f":"<%{a}>"}"#),
            (
                "'%{[b][c]}'",
                r#"{"b":{"c":true}}"#,
                r#"{"b":{"c":true},"f":"true"}"#,
            ),
            (
                "'100%% of %{a} in %{+yyyy}'",
                r#"{"a":1,"@timestamp":"2024-02-29T00:00:00Z"}"#,
                r#"{"a":1,"@timestamp":"2024-02-29T00:00:00Z","f":"100% of 1 in 2024"}"#,
            ),
            ("'%%{a} 100%'", r#"{"a":1}"#, r#"{"a":1,"f":"%{a} 100%"}"#),
            ("'%{f}!'", r#"{"f":"x"}"#, r#"{"f":"x!"}"#),
        ] {
            let settings = format!("values: {{ f: {value} }}");
            let mut batch = batch_of([input]);
            process(
                build_yaml(&SPEC, &settings).expect(value).as_mut(),
                &mut batch,
            );
            assert_eq!(lines_of(&batch), [output], "{value}");
        }
    }

    #[test]
    fn values_are_computed() {
        check(
            &SPEC,
            &[
                ("set f = a", r#"{"a":1.50}"#, r#"{"a":1.50,"f":1.50}"#),
                ("set f = a + 1", r#"{"a":1}"#, r#"{"a":1,"f":2}"#),
                ("set f = gone", r#"{"f":1}"#, r#"{"f":1}"#),
                ("set f = null", "{}", r#"{"f":null}"#),
                ("set f = \"null\"", "{}", r#"{"f":"null"}"#),
                ("set f = [1,'2', null]", "{}", r#"{"f":[1,"2",null]}"#),
                ("set f = '[1]'", "{}", r#"{"f":"[1]"}"#),
                ("set a.b = 1", r#"{"a":{"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
                ("set @metadata.index = 'x'", r#"{"a":1}"#, r#"{"a":1}"#),
                (
                    "set `x y` = 1, z = a",
                    r#"{"a":1}"#,
                    r#"{"a":1,"x y":1,"z":1}"#,
                ),
                ("set a = a + 1, b = 2", r#"{"a":1}"#, r#"{"a":2,"b":2}"#),
            ],
        );
    }

    #[test]
    fn fields_that_are_there_stay_where_that_is_asked_for() {
        let mut set =
            build_yaml(&SPEC, "{ fields: { f: '1', g: '2' }, overwrite: false }").expect("valid");
        let mut batch = batch_of([r#"{"f":null}"#, r#"{"x":1}"#]);
        process(set.as_mut(), &mut batch);
        assert_eq!(
            lines_of(&batch),
            [r#"{"f":null,"g":2}"#, r#"{"x":1,"f":1,"g":2}"#]
        );
    }

    #[test]
    fn failed_rows_keep_what_they_had() {
        for stage in ["set g = 1, f = a + 1", "set f = a + 1, g = 1"] {
            let lines =
                crate::testing::run(&SPEC, stage, "{\"a\":1}\n{\"f\":7,\"a\":[]}\n{\"a\":2}");
            assert!(lines[0].contains(r#""f":2"#) && lines[0].contains(r#""g":1"#));
            assert!(lines[2].contains(r#""f":3"#) && lines[2].contains(r#""g":1"#));
            assert!(
                lines[1]
                    .starts_with(r#"{"f":7,"a":[],"tags":["_setfailure"],"error":{"message":""#),
                "{}",
                lines[1]
            );
        }
        let lines = crate::testing::run(&SPEC, "set c = 1, a.b = 1", "{\"a\":\"x\"}\n{}");
        assert!(lines[0].contains("cannot write a.b"), "{}", lines[0]);
        assert!(!lines[0].contains(r#""c""#), "{}", lines[0]);
        assert_eq!(lines[1], r#"{"c":1,"a":{"b":1}}"#);
    }

    #[test]
    fn only_given_rows_are_set() {
        let mut batch = text_batch(["one", "two"]);
        let mut set = build(&SPEC, "set message = 'same'")
            .expect("it builds")
            .fork();
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
            build(&SPEC, "set message = 'x'")
                .expect("it builds")
                .as_mut(),
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
                ("set", "nothing to set"),
                ("set f 1", "expected `=` and an expression after `f`"),
                ("set f..g = 1", "`f..g` is not a field name"),
                ("set f = a +", "expected a value, found the end"),
                ("set f = lenght(a)", "lenght"),
                (
                    "set f = 1, g = f.x",
                    "`f`, which is read here, is set in the same stage",
                ),
                ("set f.x = 1, g = f", "`f.x`, which is read here"),
            ],
        );
        for (settings, part) in [
            ("values: { f: '%{a' }", "`%{` is not closed"),
            ("values: { f: '%{}' }", "`` is not a field name"),
            ("values: { f: .nan }", "infinity or NaN"),
            ("values: { f: 1e999 }", "`1e999` is beyond"),
            (
                "{ field: f, value: 1 }",
                "`field` with `value` is now `values: { f: VALUE }`",
            ),
        ] {
            let error = build_yaml(&SPEC, settings).err().expect(settings);
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = build(&SPEC, "set a = 1, f = a1 + ")
            .err()
            .expect("a refusal");
        assert_eq!(error.line(), Some(1), "{error}");
    }
}
