//! `dissect`: cuts a text into fields at fixed delimiters.
//!
//! Captures are views into the text; only what is appended to something is copied. See [`pattern`] for how a text is cut.

mod pattern;

use std::collections::BTreeMap;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::data_type::DataType;
use crate::keyed::{Keyed, ValueLocation};
use crate::names::{below, field, overlap, target};
use crate::text::{Texts, Trim, part};
use pattern::{Capture, Output, Pattern};

const FAILURE_TAG: &str = "_dissectfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "dissect",
    aliases: &[],
    summary: "Splits text into fields at fixed delimiters.",
    description: "A pattern consists of keys and the delimiters between them: `%{ip} - %{user} [%{time}]`. A key captures the text up to the \
                  next occurrence of its delimiter; the last key captures the rest. There is no backtracking, which makes `dissect` the \
                  fastest way to parse lines of a fixed format; use `grok` for everything else.\n\n\
                  | key | meaning |\n| --- | --- |\n\
                  | `%{name}`, `%{a.b}`, `%{[a][b]}` | the field |\n\
                  | `%{}`, `%{?name}` | captured and left out |\n\
                  | `%{+name}` | appended to `name`, with the delimiter before the key (a space if there is none) between |\n\
                  | `%{+name/2}` | appended in the order of the numbers |\n\
                  | `%{name->}` | the delimiter after it may come several times in a row |\n\
                  | `%{*name}`, `%{&name}` | the text captured by the first is the name of a field, that of the second its value; `%{?name}` and `%{name}` can stand for the first |\n\
                  | `%{name\\|integer}` | converted, as with `convert_datatype` |\n\n\
                  A delimiter is all of the text up to the next key. In `%{level->} [%{thread}]` it is a blank and a \
                  bracket, which come once in `INFO  [main]`, so that `->` has nothing to pass over and `level` is \
                  `INFO ` with a blank, as with Logstash and Filebeat. `trim_values=right` removes such blanks.\n\n\
                  The text must begin with whatever precedes the first key. If the pattern ends with a delimiter, the text after it is \
                  ignored. An empty capture sets an empty string. Existing fields are replaced. Those whose names are captured come last, in alphabetical order.\n\n\
                  `convert_datatype` takes any field: one that the pattern captures, one whose name is captured \
                  (`%{*name}` and `%{&name}`), or one that the event has already, below `target` where that is set. A field that is absent or null is skipped. Unlike Logstash, which cuts `12.5` down to 12, an `int` \
                  takes whole numbers only.\n\n\
                  If the text does not match the pattern, or a value cannot be converted, the event fails with `_dissectfailure` and keeps its \
                  fields. If the field is absent or null, nothing happens.",
    positional: Positional::fields(&["pattern", "field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A line of a log",
            stage: r#"dissect "%{ts->} %{level} [%{thread.name}] %{msg}" line"#,
            input: r#"{"line":"12:30:01   WARN [main] no disk left"}"#,
            output: r#"{"line":"12:30:01   WARN [main] no disk left","ts":"12:30:01","level":"WARN","thread":{"name":"main"},"msg":"no disk left"}"#,
        },
        Example {
            title: "A column that is padded up to a bracket",
            stage: r#"dissect "%{ts} %{level} [%{thread}] %{msg}" line trim_values=right"#,
            input: r#"{"line":"12:30:01 INFO  [main] ready"}"#,
            output: r#"{"line":"12:30:01 INFO  [main] ready","ts":"12:30:01","level":"INFO","thread":"main","msg":"ready"}"#,
        },
        Example {
            title: "Appending, skipping and converting",
            stage: r#"dissect "%{at} %{+at} %{} %{took}ms" line convert_datatype.took=int"#,
            input: r#"{"line":"2026-11-21 12:30:01 GET 17ms"}"#,
            output: r#"{"line":"2026-11-21 12:30:01 GET 17ms","at":"2026-11-21 12:30:01","took":17}"#,
        },
        Example {
            title: "A name and its value",
            stage: r#"dissect "%{*key}=%{&key}" line"#,
            input: r#"{"line":"colour=blue"}"#,
            output: r#"{"line":"colour=blue","colour":"blue"}"#,
        },
        Example {
            title: "A name, its value and their type",
            stage: r#"dissect "%{?key}=%{&key}ms" line convert_datatype.took=int convert_datatype.size=int"#,
            input: r#"{"line":"took=17ms","size":"512"}"#,
            output: r#"{"line":"took=17ms","size":512,"took":17}"#,
        },
        Example {
            title: "Text that does not match",
            stage: r#"dissect "%{a},%{b}" line"#,
            input: r#"{"line":"x;y"}"#,
            output: r#"{"line":"x;y","tags":["_dissectfailure"],"error":{"message":"line: no `,` after byte 0, where %{a} begins"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `dissect`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The pattern: keys such as `%{name}` with the delimiters between them.
    pattern: String,
    /// The field to split.
    #[serde(default = "message")]
    field: String,
    /// The field that gets the captured fields. Default: none; they become fields of the event.
    #[serde(default)]
    target: Option<String>,
    /// Types for fields, captured or not: `int`, `float` or `bool`. Default: text.
    #[serde(default)]
    convert_datatype: BTreeMap<String, DataType>,
    /// At which ends captures lose the characters of `trim_chars`.
    #[serde(default)]
    trim_values: Trim,
    /// The characters that `trim_values` removes; ASCII.
    #[serde(default = "space")]
    trim_chars: String,
}

fn message() -> String {
    "message".into()
}

fn space() -> String {
    " ".into()
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = target(node, config.target.as_deref())?;
    let pattern_node = node.nearest("pattern");
    let mut pattern = Pattern::parse(&config.pattern).map_err(|error| {
        pattern_node
            .error(error.to_string())
            .pointing_at_range(error.at)
    })?;
    let mut kinds = Vec::new();
    for output in &pattern.outputs {
        let kind = output.kind.as_ref().map(|(name, at)| {
            DataType::named(name).ok_or_else(|| {
                let error = pattern_node
                    .error(format!("there is no type `{name}`"))
                    .pointing_at_range(at.clone());
                error.accepted(["int", "float", "bool"]).closest_to(name)
            })
        });
        kinds.push(kind.transpose()?);
    }
    let others = others(node, &config.convert_datatype, &pattern, &mut kinds)?;
    if !config.trim_chars.is_ascii() {
        return Err(node
            .nearest("trim_chars")
            .error("`trim_chars` must be ASCII characters"));
    }
    let below_target = |path: &FieldPath| below(target.as_ref(), path.keys().iter().cloned());
    for output in &mut pattern.outputs {
        output.path = below_target(&output.path);
    }
    let others = others.into_iter().map(|other| Other {
        path: below_target(&other.path),
        ..other
    });
    let tag = context.tag_or(FAILURE_TAG);
    Ok(Box::new(Dissect {
        plan: Arc::new(Plan {
            pattern,
            kinds,
            others: others.collect(),
            source,
            target,
            trim: config.trim_values,
            trim_chars: config.trim_chars,
        }),
        tag,
    }))
}

/// The types that `convert_datatype` gives to fields that the pattern does not name; those of its fields go to `kinds`.
fn others(
    node: &Node,
    types: &BTreeMap<String, DataType>,
    pattern: &Pattern,
    kinds: &mut [Option<DataType>],
) -> Result<Vec<Other>, ConfigError> {
    let mut others = Vec::new();
    for (name, kind) in types {
        let path = field(node, &format!("convert_datatype.{name}"), name)?;
        let outputs = &pattern.outputs;
        if let Some(index) = outputs.iter().position(|output| output.path == path) {
            kinds[index] = Some(*kind);
            continue;
        }
        if let Some(output) = outputs.iter().find(|output| overlap(&output.path, &path)) {
            let message = format!(
                "{path} cannot be converted beside {}, which the pattern captures: one lies in the other",
                output.path
            );
            return Err(node.nearest("convert_datatype").error(message));
        }
        others.push(Other {
            name: name.as_bytes().into(),
            path,
            kind: *kind,
        });
    }
    Ok(others)
}

#[derive(Clone)]
struct Dissect {
    plan: Arc<Plan>,
    tag: Arc<str>,
}

/// A field to convert that the pattern does not name.
struct Other {
    /// Its name as a text may capture it.
    name: Box<[u8]>,
    path: FieldPath,
    kind: DataType,
}

/// What the settings come down to.
struct Plan {
    pattern: Pattern,
    /// The types of the pattern's outputs.
    kinds: Vec<Option<DataType>>,
    others: Vec<Other>,
    source: FieldPath,
    target: Option<FieldPath>,
    trim: Trim,
    trim_chars: String,
}

impl Processor for Dissect {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let plan = &*self.plan;
        let (trim, characters) = (plan.trim, &*plan.trim_chars);
        let texts = Texts::of(batch, &plan.source, rows);
        let new_column = || texts.builder(batch.len());
        let mut columns: Vec<ColumnBuilder> =
            plan.pattern.outputs.iter().map(|_| new_column()).collect();
        let mut named = Keyed::new(batch.len(), &texts, |name: &[u8]| match name {
            [] => None,
            name => Some(String::from_utf8_lossy(name).into_owned()),
        });
        let mut others = OtherColumns::new(batch, rows, &plan.others);
        let mut failures = Failures::none();
        let mut captures = Vec::new();
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            let cut = plan.pattern.captures(text, &mut captures);
            captures
                .iter_mut()
                .for_each(|capture| *capture = trim.range(text, *capture, characters));
            let done = cut
                .and_then(|()| plan.add_pairs(text, &captures, &mut named))
                .and_then(|()| others.read(row, |name| plan.names(text, &captures, name)))
                .and_then(|()| plan.put(row, span, text, &captures, &mut columns));
            match done {
                Ok(()) => {
                    others.put(row);
                    named.end_row(row, span, text, false);
                }
                Err(reason) => {
                    named.forget_row();
                    failures.push(row, &self.tag, &format!("{}: {reason}", plan.source).into());
                }
            }
        }
        let mut edit = Edit::new();
        for (output, column) in plan.pattern.outputs.iter().zip(columns) {
            if !column.is_untouched() {
                edit.set(output.path.clone(), column.finish());
            }
        }
        others.finish(&mut edit);
        named.finish(plan.target.as_ref(), &mut edit);
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
    /// Adds the fields whose names are captured, converted where that is asked for.
    #[inline]
    fn add_pairs<N: Fn(&[u8]) -> Option<String>>(
        &self,
        text: &[u8],
        captures: &[Capture],
        named: &mut Keyed<'_, N>,
    ) -> Result<(), String> {
        for pair in &self.pattern.pairs {
            let ((from, to), (start, end)) = (captures[pair.name], captures[pair.value]);
            let name = &text[from..to];
            let other = self.others.iter().find(|other| *other.name == *name);
            let value = match other {
                None => ValueLocation::Text(start, end),
                Some(other) => {
                    let from = named.changed.len();
                    let value = &text[start..end];
                    if !other.kind.write_json(value, &mut named.changed) {
                        return Err(other.unconverted(value));
                    }
                    ValueLocation::Json(from, named.changed.len())
                }
            };
            named.add(text, captures[pair.name], value);
        }
        Ok(())
    }

    /// Whether a text captures the name of a field.
    #[inline]
    fn names(&self, text: &[u8], captures: &[Capture], name: &[u8]) -> bool {
        let mut pairs = self.pattern.pairs.iter();
        pairs.any(|pair| text[captures[pair.name].0..captures[pair.name].1] == *name)
    }

    /// Sets a row of all columns, or none of them when a capture cannot be converted.
    #[inline]
    fn put(
        &self,
        row: usize,
        span: Span,
        text: &[u8],
        captures: &[Capture],
        columns: &mut [ColumnBuilder],
    ) -> Result<(), String> {
        for (index, output) in self.pattern.outputs.iter().enumerate() {
            let column = &mut columns[index];
            let cell = match (output.parts.as_slice(), self.kinds[index]) {
                ([(step, _)], None) => Cell::Text(part(span, captures[*step].0, captures[*step].1)),
                ([(step, _)], Some(kind)) => {
                    let (start, end) = captures[*step];
                    match kind.convert(&text[start..end], part(span, start, end)) {
                        Some(cell) => cell,
                        None => {
                            return Err(unconverted(
                                row,
                                &text[start..end],
                                kind,
                                output,
                                &mut columns[..index],
                            ));
                        }
                    }
                }
                (_, kind) => {
                    let joined = joined(text, captures, output);
                    let span = column.append(|out| out.extend_from_slice(&joined));
                    match kind.map_or(Some(Cell::Text(span)), |kind| kind.convert(&joined, span)) {
                        Some(cell) => cell,
                        None => {
                            let kind = kind.unwrap_or(DataType::Int);
                            return Err(unconverted(
                                row,
                                &joined,
                                kind,
                                output,
                                &mut columns[..index],
                            ));
                        }
                    }
                }
            };
            column.set(row, cell);
        }
        Ok(())
    }
}

impl Other {
    #[cold]
    fn unconverted(&self, text: &[u8]) -> String {
        let refusal = self.kind.refusal(text);
        let text = String::from_utf8_lossy(text);
        format!("`{text}`, the value of {}, {refusal}", self.path)
    }
}

/// The fields to convert that the events have already.
struct OtherColumns<'p> {
    others: &'p [Other],
    texts: Vec<Texts>,
    columns: Vec<ColumnBuilder>,
    /// The converted values of the row at work.
    cells: Vec<Cell>,
}

impl<'p> OtherColumns<'p> {
    fn new(batch: &Batch, rows: &Bitmap, others: &'p [Other]) -> Self {
        let text = |other: &Other| Texts::of(batch, &other.path, rows);
        let texts: Vec<Texts> = others.iter().map(text).collect();
        let columns = texts.iter().map(|texts| texts.builder(batch.len()));
        Self {
            columns: columns.collect(),
            cells: vec![Cell::Keep; others.len()],
            others,
            texts,
        }
    }

    /// Converts the values of a row. Fields that the row's text names get their value from there.
    #[inline]
    fn read(&mut self, row: usize, is_named: impl Fn(&[u8]) -> bool) -> Result<(), String> {
        for ((other, texts), cell) in self.others.iter().zip(&self.texts).zip(&mut self.cells) {
            *cell = match texts.get(row) {
                Some((span, text)) if !is_named(&other.name) => {
                    let converted = other.kind.convert(text, span);
                    converted.ok_or_else(|| other.unconverted(text))?
                }
                _ => Cell::Keep,
            };
        }
        Ok(())
    }

    /// Sets what was read last.
    #[inline]
    fn put(&mut self, row: usize) {
        for (column, cell) in self.columns.iter_mut().zip(&self.cells) {
            column.set(row, *cell);
        }
    }

    fn finish(self, edit: &mut Edit) {
        for (other, column) in self.others.iter().zip(self.columns) {
            if !column.is_untouched() {
                edit.set(other.path.clone(), column.finish());
            }
        }
    }
}

/// The text of an output of several captures.
fn joined(text: &[u8], captures: &[Capture], output: &Output) -> Vec<u8> {
    let mut joined = Vec::new();
    for (step, before) in &output.parts {
        joined.extend_from_slice(before);
        joined.extend_from_slice(&text[captures[*step].0..captures[*step].1]);
    }
    joined
}

/// Takes back what was set in a row and says which capture is at fault.
#[cold]
fn unconverted(
    row: usize,
    text: &[u8],
    kind: DataType,
    output: &Output,
    set: &mut [ColumnBuilder],
) -> String {
    set.iter_mut()
        .for_each(|column| column.set(row, Cell::Keep));
    let refusal = kind.refusal(text);
    let text = String::from_utf8_lossy(text);
    format!("`{text}`, captured as {}, {}", output.path, refusal)
}

#[cfg(test)]
mod tests;
