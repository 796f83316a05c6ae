//! `csv`: makes fields of a text that is one row of CSV.
//!
//! Rows are taken apart by the parser of `codec: csv` ([`codec::RowParser`]). Values are views into the text; only those
//! with quotes in their text are copied.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span};
use codec::{OpenQuote, Quoting, RowField, RowParser};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::data_type::DataType;
use crate::names::{below, field, overlap, path, target};
use crate::text::{Texts, part};

const FAILURE_TAG: &str = "_csvparsefailure";

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// What `columns` holds in the place of a value that makes no field.
const SKIPPED: &str = "-";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "csv",
    aliases: &[],
    summary: "Parses a row of CSV into fields.",
    description: "Takes a text such as `17,\"Smith, Ann\",` apart, by RFC 4180, and gives its values the names in `columns`. A value may stand in quotes, where two quotes stand for one; a quote is one only as the first character of a value. Text between the closing quote and the next delimiter belongs to the value: `\"x\"y` gives `xy`. \
                  Values are strings, unless `convert_datatype` says otherwise; an empty value gives an empty string, or null where it would be \
                  converted. Existing fields are replaced. A byte order mark in front of the first value, as in the first line of a file, is passed over.\n\n\
                  The event fails with `_csvparsefailure` and keeps its fields if there are more or fewer values than columns (unless `strict: false` is set), a quote is not closed, a \
                  value cannot be converted, or there is a line end outside of quotes, other than at the end of the text. If the field is absent or null, nothing happens.\n\n\
                  Files of rows need no `csv`: `codec: csv` of an input reads them, with the names in their header.",
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A row with quotes, whose second value is left out",
            stage: "csv line columns=[id,-,user.name,note]",
            input: r#"{"line":"17,x,\"Smith, Ann\",\"says \"\"hi\"\"\""}"#,
            output: r#"{"line":"17,x,\"Smith, Ann\",\"says \"\"hi\"\"\"","id":"17","user":{"name":"Smith, Ann"},"note":"says \"hi\""}"#,
        },
        Example {
            title: "Types, another delimiter and a field for the result",
            stage: "csv line columns=[name,took,ok] delimiter=';' trim=true target=job convert_datatype.took=float convert_datatype.ok=bool",
            input: r#"{"line":"backup; 1.50 ;true"}"#,
            output: r#"{"line":"backup; 1.50 ;true","job":{"name":"backup","took":1.50,"ok":true}}"#,
        },
        Example {
            title: "Rows of different lengths",
            stage: "csv line columns=[a,b,c] strict=false",
            input: "{\"line\":\"1,2\"}\n{\"line\":\"1,2,3,4\"}",
            output: "{\"line\":\"1,2\",\"a\":\"1\",\"b\":\"2\"}\n{\"line\":\"1,2,3,4\",\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"}",
        },
        Example {
            title: "Text that is no such row",
            stage: "csv line columns=[a,b]",
            input: r#"{"line":"1,2,3"}"#,
            output: r#"{"line":"1,2,3","tags":["_csvparsefailure"],"error":{"message":"line: the number of values is 3, that of columns 2"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `csv`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field to parse.
    #[serde(default = "message")]
    field: String,
    /// The fields that get the values, in order. `-` or null leaves a value out.
    columns: Vec<Option<String>>,
    /// The field that gets the fields. Default: none; they become fields of the event.
    #[serde(default)]
    target: Option<String>,
    /// The character between values: one ASCII character, or `tab`.
    #[serde(default = "comma")]
    delimiter: String,
    /// The character around values that hold delimiters: one ASCII character. Empty: none, and quotes are text.
    #[serde(default = "double_quote")]
    quote: String,
    /// Whether blanks (spaces and tabs) around values, and around their quotes, are removed.
    #[serde(default)]
    trim: bool,
    /// Whether there must be as many values as columns. If not, columns without a value make no field, and values
    /// without a column are left out.
    #[serde(default = "yes")]
    strict: bool,
    /// Whether empty values make fields. If not, the event keeps what these fields hold.
    #[serde(default = "yes")]
    allow_empty_values: bool,
    /// Types for columns: `int`, `float` or `bool`. Default: text.
    #[serde(default)]
    convert_datatype: BTreeMap<String, DataType>,
}

fn message() -> String {
    "message".into()
}

fn comma() -> String {
    ",".into()
}

fn double_quote() -> String {
    "\"".into()
}

fn yes() -> bool {
    true
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = target(node, config.target.as_deref())?;
    let mut columns = columns(node, &config.columns)?;
    convert(node, &config.convert_datatype, &mut columns)?;
    for column in columns.iter_mut().flatten() {
        column.path = below(target.as_ref(), column.path.keys().iter().cloned());
    }
    Ok(Box::new(CsvFields {
        plan: Arc::new(Plan {
            source,
            columns,
            parser: row_parser(node, &config)?,
            is_strict: config.strict,
            allow_empty: config.allow_empty_values,
        }),
        tag: context.tag_or(FAILURE_TAG),
    }))
}

/// The columns that these names make; none for what is left out.
fn columns(node: &Node, names: &[Option<String>]) -> Result<Vec<Option<Column>>, ConfigError> {
    let mut columns: Vec<Option<Column>> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let Some(name) = name.as_ref().filter(|name| *name != SKIPPED) else {
            columns.push(None);
            continue;
        };
        let place = node.nearest(&format!("columns[{index}]"));
        let path = path(place, name)?;
        let mut others = columns.iter().flatten();
        if let Some(other) = others.find(|other| overlap(&other.path, &path)) {
            return Err(place.error(match other.path == path {
                true => format!("{path} is the name of two columns"),
                false => format!(
                    "{path} and {} cannot both be set: one lies in the other",
                    other.path
                ),
            }));
        }
        columns.push(Some(Column { path, kind: None }));
    }
    if columns.iter().flatten().next().is_none() {
        let error = node.nearest("columns").error("`columns` names no field");
        return Err(error.note("such as columns=[time, -, message]"));
    }
    Ok(columns)
}

/// Gives columns their types.
fn convert(
    node: &Node,
    types: &BTreeMap<String, DataType>,
    columns: &mut [Option<Column>],
) -> Result<(), ConfigError> {
    for (name, kind) in types {
        let setting = format!("convert_datatype.{name}");
        let path = field(node, &setting, name)?;
        let mut named = columns.iter_mut().flatten();
        match named.find(|column| column.path == path) {
            Some(column) => column.kind = Some(*kind),
            None => {
                let error = node
                    .nearest("convert_datatype")
                    .error(format!("`columns` has no {path}"));
                let names = columns.iter().flatten();
                let names = names.map(|column| column.path.to_string());
                return Err(error.accepted(names).closest_to(name));
            }
        }
    }
    Ok(())
}

fn row_parser(node: &Node, config: &Config) -> Result<RowParser, ConfigError> {
    let delimiter = codec::csv_delimiter(&config.delimiter).ok_or_else(|| {
        let place = node.nearest("delimiter");
        place.error("the delimiter is one ASCII character, or `tab`")
    })?;
    let quote = match config.quote.as_bytes() {
        [] => None,
        [byte] if byte.is_ascii() && !matches!(byte, b'\r' | b'\n') => Some(*byte),
        _ => {
            let place = node.nearest("quote");
            return Err(place.error("the quote is one ASCII character, or empty"));
        }
    };
    if quote == Some(delimiter) {
        let place = node.nearest("quote");
        return Err(place.error("the quote cannot be the delimiter"));
    }
    Ok(RowParser::new(delimiter, quote, config.trim))
}

#[derive(Clone)]
struct CsvFields {
    plan: Arc<Plan>,
    tag: Arc<str>,
}

/// What the settings come down to.
struct Plan {
    source: FieldPath,
    columns: Vec<Option<Column>>,
    parser: RowParser,
    is_strict: bool,
    allow_empty: bool,
}

/// A field that values make.
struct Column {
    path: FieldPath,
    kind: Option<DataType>,
}

/// Why a text is no such row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("the quote at byte {} is not closed", .0.offset)]
    OpenQuote(#[from] OpenQuote),
    #[error("there is a line end outside of quotes at byte {offset}")]
    LineEnd { offset: usize },
    #[error("the number of values is {count}, that of columns {wanted}")]
    Count { count: usize, wanted: usize },
    #[error("`{text}`, the value of {path}, {refusal}")]
    Type {
        text: String,
        path: FieldPath,
        refusal: &'static str,
    },
}

impl Processor for CsvFields {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let plan = &*self.plan;
        let texts = Texts::of(batch, &plan.source, rows);
        let column = |wanted: &Option<Column>| match wanted {
            Some(_) => texts.builder(batch.len()),
            None => ColumnBuilder::new(0),
        };
        let mut columns: Vec<ColumnBuilder> = plan.columns.iter().map(column).collect();
        let mut failures = Failures::none();
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            // The first row of a file may begin with a byte order mark.
            let mark = text.len() - text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).len();
            let (span, text) = (part(span, mark, text.len()), &text[mark..]);
            if let Err(problem) = plan.put(row, span, text, &mut columns) {
                plan.take_back(row, &mut columns);
                let reason = format!("{}: {problem}", plan.source);
                failures.push(row, &self.tag, &reason.into());
            }
        }
        let mut edit = Edit::new();
        for (column, values) in plan.columns.iter().zip(columns) {
            if let Some(column) = column
                && !values.is_untouched()
            {
                edit.set(column.path.clone(), values.finish());
            }
        }
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.plan.source.clone()))]
    }
}

impl Plan {
    /// The line end that a value holds outside of quotes.
    #[cold]
    fn line_end(&self, text: &[u8], field: RowField) -> Option<Problem> {
        let value = &text[field.start..field.end];
        let start = match field.quoting {
            Quoting::Plain => 0,
            Quoting::Quoted => return None,
            Quoting::Mixed => self.parser.enclosed_len(value),
        };
        let found = memchr::memchr2(b'\n', b'\r', &value[start..])?;
        let offset = field.start + start + found;
        Some(Problem::LineEnd { offset })
    }

    /// Sets a row of the columns to the values of its text. A row that fails may have some of them.
    #[inline]
    fn put(
        &self,
        row: usize,
        span: Span,
        text: &[u8],
        columns: &mut [ColumnBuilder],
    ) -> Result<(), Problem> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let has_line_ends = memchr::memchr2(b'\n', b'\r', text).is_some();
        let mut problem = None;
        let count = self.parser.parse(text, |index, field| {
            if has_line_ends && problem.is_none() {
                problem = self.line_end(text, field);
            }
            let Some(Some(column)) = self.columns.get(index) else {
                return;
            };
            if field.start == field.end && !self.allow_empty {
                return;
            }
            let values = &mut columns[index];
            // On its own: where this is one way of several to a cell, the compiler copies it in parts that the processor has to wait for.
            if field.quoting != Quoting::Mixed && column.kind.is_none() {
                return values.set(row, Cell::Text(part(span, field.start, field.end)));
            }
            let refused = self.put_value(row, (span, text), field, column, values);
            problem = problem.take().or(refused);
        })?;
        let wanted = self.columns.len();
        match problem {
            Some(problem) => Err(problem),
            None if count != wanted && self.is_strict => Err(Problem::Count { count, wanted }),
            None => Ok(()),
        }
    }

    /// Sets a row to a value that has quotes in its text or a type. Why it cannot have the type.
    #[inline(never)]
    fn put_value(
        &self,
        row: usize,
        (span, text): (Span, &[u8]),
        field: RowField,
        column: &Column,
        values: &mut ColumnBuilder,
    ) -> Option<Problem> {
        let place = match field.quoting {
            Quoting::Plain | Quoting::Quoted => part(span, field.start, field.end),
            Quoting::Mixed => values.append(|out| {
                self.parser.unquote(&text[field.start..field.end], out);
            }),
        };
        let Some(kind) = column.kind else {
            values.set(row, Cell::Text(place));
            return None;
        };
        let value = self.value(text, field);
        let cell = match field.start == field.end {
            true => Some(Cell::Null),
            false => kind.convert(&value, place),
        };
        values.set(row, cell.unwrap_or(Cell::Keep));
        cell.is_none().then(|| column.unconverted(&value, kind))
    }

    /// The text of a value.
    fn value<'t>(&self, text: &'t [u8], field: RowField) -> Cow<'t, [u8]> {
        let value = &text[field.start..field.end];
        match field.quoting {
            Quoting::Plain | Quoting::Quoted => value.into(),
            Quoting::Mixed => {
                let mut unquoted = Vec::new();
                self.parser.unquote(value, &mut unquoted);
                unquoted.into()
            }
        }
    }

    #[cold]
    fn take_back(&self, row: usize, columns: &mut [ColumnBuilder]) {
        for (column, values) in self.columns.iter().zip(columns) {
            if column.is_some() {
                values.set(row, Cell::Keep);
            }
        }
    }
}

impl Column {
    #[cold]
    fn unconverted(&self, text: &[u8], kind: DataType) -> Problem {
        Problem::Type {
            text: String::from_utf8_lossy(text).into_owned(),
            path: self.path.clone(),
            refusal: kind.refusal(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, build_yaml, check, check_errors, lines_of, process};
    use proptest::prelude::*;

    #[test]
    fn values_become_fields() {
        for (stage, text, fields) in [
            ("columns=[a,b]", "1,2", r#""a":"1","b":"2""#),
            ("columns=[a,b]", ",", r#""a":"","b":"""#),
            (
                "columns=[a,b]",
                "\u{feff}\"1,\",2\u{feff}",
                "\"a\":\"1,\",\"b\":\"2\u{feff}\"",
            ),
            ("columns=[a]", "", r#""a":"""#),
            ("columns=[a,b]", "1,2\r\n", r#""a":"1","b":"2""#),
            ("columns=[a,b]", "1,\"2\n3\"", r#""a":"1","b":"2\n3""#),
            (
                "columns=[a,b] delimiter=tab",
                "1\t2,3",
                r#""a":"1","b":"2,3""#,
            ),
            (
                "columns=[a,b] quote=\"'\"",
                "'1,\"',2",
                r#""a":"1,\"","b":"2""#,
            ),
            ("columns=[a,b] quote=''", "\"1,2", r#""a":"\"1","b":"2""#),
            (
                "columns=[a,b] trim=true",
                " 1 , \" 2 \" ",
                r#""a":"1","b":" 2 ""#,
            ),
            ("columns=[a,b] allow_empty_values=false", ",\"\"", ""),
            (
                "columns=[a,b] allow_empty_values=false strict=false",
                ",2,3",
                r#""b":"2""#,
            ),
            ("columns=[a,b,c] strict=false", "1", r#""a":"1""#),
            ("columns=[-,b]", "1,2", r#""b":"2""#),
            ("columns=[a.b,a.c]", "1,2", r#""a":{"b":"1","c":"2"}"#),
            (
                "columns=[a,b] target=t.u",
                "1,2",
                r#""t":{"u":{"a":"1","b":"2"}}"#,
            ),
            (
                "columns=[a,b,c] convert_datatype.a=int convert_datatype.b=float convert_datatype.c=bool",
                "17,\"1.50\",True",
                r#""a":17,"b":1.50,"c":true"#,
            ),
            (
                "columns=[a,b] convert_datatype.a=int",
                ",",
                r#""a":null,"b":"""#,
            ),
            ("columns=[é]", "ü", r#""é":"ü""#),
        ] {
            let event = serde_json::json!({ "line": text }).to_string();
            let comma = if fields.is_empty() { "" } else { "," };
            let expected = format!("{}{comma}{fields}}}", &event[..event.len() - 1]);
            check(&SPEC, &[(&format!("csv line {stage}"), &event, &expected)]);
        }
    }

    #[test]
    fn fields_are_replaced_and_absent_ones_left_alone() {
        check(
            &SPEC,
            &[
                (
                    "csv a columns=[a,b]",
                    r#"{"a":"1,2","b":{"x":1}}"#,
                    r#"{"a":"1","b":"2"}"#,
                ),
                ("csv a columns=[b]", r#"{"a":null}"#, r#"{"a":null}"#),
                ("csv a columns=[b]", r#"{"b":1}"#, r#"{"b":1}"#),
                (
                    "csv a columns=[b]",
                    r#"{"a":1.50}"#,
                    r#"{"a":1.50,"b":"1.50"}"#,
                ),
            ],
        );
        let yaml = "{ field: a, columns: [x, null, '-', y] }";
        let mut batch = batch_of([r#"{"a":"1,2,3,4"}"#]);
        process(build_yaml(&SPEC, yaml).unwrap().as_mut(), &mut batch);
        assert_eq!(lines_of(&batch), [r#"{"a":"1,2,3,4","x":"1","y":"4"}"#]);
    }

    #[test]
    fn failures_say_what_is_wrong_and_change_nothing() {
        for (stage, text, reason) in [
            (
                "columns=[a,b]",
                "1",
                "line: the number of values is 1, that of columns 2",
            ),
            (
                "columns=[a,b]",
                "1,2,3",
                "line: the number of values is 3, that of columns 2",
            ),
            (
                "columns=[a,b] strict=false",
                "1,\"2",
                "line: the quote at byte 2 is not closed",
            ),
            (
                "columns=[a,b]",
                "1,2\n3,4",
                "line: there is a line end outside of quotes at byte 3",
            ),
            (
                "columns=[a,b,c]",
                "1,\"x\"\"\n\"\n2,\"y\"",
                "line: there is a line end outside of quotes at byte 8",
            ),
            ("columns=[a,b] strict=false", "1,2\n", ""),
            (
                "columns=[a,b] convert_datatype.b=int",
                "1,\"\"\"2\"\"\"",
                "line: `\"2\"`, the value of b, is not a whole number",
            ),
            (
                "columns=[a,b] convert_datatype.b=int",
                "1,99999999999999999999",
                "line: `99999999999999999999`, the value of b, is too large for a whole number of 64 bits",
            ),
            (
                "columns=[a,b] target=line",
                "1,2",
                "cannot write line.a: there is a value above it that is not an object",
            ),
        ] {
            let event = serde_json::json!({ "a": "old", "line": text }).to_string();
            let mut batch = batch_of([r#"{"line":"x,7"}"#, &event]);
            let mut processor = build(&SPEC, &format!("csv line {stage}")).expect(stage);
            let rows = batch.alive().clone();
            let failures = processor.process(&mut batch, &rows);
            let last = failures.rows().last();
            assert_eq!(
                last.map_or("", |failure| &*failure.reason),
                reason,
                "{stage} {text}"
            );
            if let Some(last) = last {
                assert_eq!((last.row, &*last.tag), (1, FAILURE_TAG));
                assert_eq!(lines_of(&batch)[1], event, "{stage}");
            }
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("csv a", "columns"),
                ("csv a columns=[-]", "`columns` names no field"),
                ("csv a columns=[]", "`columns` names no field"),
                ("csv a columns=[b,c,b]", "b is the name of two columns"),
                ("csv a columns=[b,b.c]", "b.c and b cannot both be set"),
                ("csv a columns=[b..c]", "`b..c` is not a field name"),
                (
                    "csv a columns=[b] delimiter=';;'",
                    "one ASCII character, or `tab`",
                ),
                (
                    "csv a columns=[b] quote='é'",
                    "one ASCII character, or empty",
                ),
                ("csv a columns=[b] quote=','", "cannot be the delimiter"),
                (
                    "csv a columns=[b] convert_datatype.c=int",
                    "`columns` has no c",
                ),
                ("csv a columns=[b] convert_datatype.b=date", "date"),
            ],
        );
    }

    proptest! {
        #[test]
        fn written_values_come_back(rows in prop::collection::vec(prop::collection::vec("[a-c,\"\n é]{0,6}", 3), 1..6)) {
            let event = |values: &Vec<String>| {
                let quoted = values.iter().map(|value| format!("\"{}\"", value.replace('"', "\"\"")));
                serde_json::json!({ "row": quoted.collect::<Vec<_>>().join(",") }).to_string()
            };
            let events: Vec<String> = rows.iter().map(event).collect();
            let mut batch = batch_of(events.iter().map(String::as_str));
            process(build(&SPEC, "csv row columns=[a,b,c]").unwrap().as_mut(), &mut batch);
            for (line, values) in lines_of(&batch).iter().zip(&rows) {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                for (name, value) in ["a", "b", "c"].iter().zip(values) {
                    prop_assert_eq!(event[name].as_str(), Some(value.as_str()), "{}", line);
                }
            }
        }
    }
}
