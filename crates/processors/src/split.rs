//! `split`: an event for each element of a list, or for each piece of a text.

use std::ops::Range;
use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Value, json,
    msgpack,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::Derived;
use crate::names::field;
use crate::text::plain_cell;

/// Rows of a batch of parts at most.
const ROWS_MAX: usize = 4096;
/// Bytes of the events of a batch of parts at most, about as an output would write them; one event may have more.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "split",
    aliases: &[],
    summary: "Makes an event of each element of a list, or of each piece of a text.",
    description: "Each new event has all fields of the event, and in `field` the element in place of the list; the event itself is dropped. With `target`, the element goes there, and the field with the \
                  list is removed. A text is split where `separator` stands, which is no part of the pieces; empty pieces are left out.\n\n\
                  An event without a list in the field passes unchanged, and so does one whose list is empty, and one whose text has no `separator`, or without one in the settings. A text of nothing but separators passes too. If the target lies below something \
                  that is no object, the event fails with `_splitfailure`.\n\n\
                  In each batch, the new events come behind those that passed unchanged, in the order of the events that they were. They are written as JSON, in batches of at most 4,096 events and about 4 MiB, so that a list of many elements in a long event does not become one batch of any size. \
                  How many events a list makes is not limited: each of them repeats all other fields, so keep those that are long out of it with `remove` in front of `split`. Where `head` behind `split` ends the input, a later run does not go on in the middle of a batch: it reads the batch again, or with a disk queue begins with the next one.\n\n\
                  The counters `events_split` and `events_made` have how many events were split, and how many came of them. The id of a new event is that of the event it comes from, `-` and its index in hexadecimal: \
                  the same whenever the event is processed again.\n\n\
                  The new events are counted and rejected each by itself; one that an output rejects becomes a dead letter of its own. For an input, the event that was split counts as dropped by `split`.",
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A list of objects",
            stage: "split records",
            input: r#"{"account":"x","records":[{"n":1},{"n":2}]}"#,
            output: r#"{"account":"x","records":{"n":1}}
{"account":"x","records":{"n":2}}"#,
        },
        Example {
            title: "Into another field",
            stage: "split users target=user.name",
            input: r#"{"users":["joe","ann"],"ok":true}
{"users":[],"ok":false}"#,
            output: r#"{"users":[],"ok":false}
{"ok":true,"user":{"name":"joe"}}
{"ok":true,"user":{"name":"ann"}}"#,
        },
        Example {
            title: "The lines of a text",
            stage: r"split message separator='\n'",
            input: r#"{"message":"one\ntwo\n\nthree","host":"a"}"#,
            output: r#"{"message":"one","host":"a"}
{"message":"two","host":"a"}
{"message":"three","host":"a"}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `split`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field with the list or the text.
    field: String,
    /// What stands between the pieces of a text; `\n` and `\t` stand for a line feed and a tab. Default: texts are not split.
    separator: Option<String>,
    /// The field that gets the element. Default: `field`.
    target: Option<String>,
}

const TAG: &str = "_splitfailure";

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let separator = config
        .separator
        .map(|text| text.replace("\\n", "\n").replace("\\t", "\t"));
    if separator.as_deref() == Some("") {
        return Err(node
            .nearest("separator")
            .error("`separator` must not be empty"));
    }
    let path = field(node, "field", &config.field)?;
    let target = config
        .target
        .as_deref()
        .map(|text| field(node, "target", text));
    let target = target.transpose()?;
    Ok(Box::new(Split {
        target: target.unwrap_or_else(|| path.clone()),
        field: path,
        separator: separator.map(String::into_bytes),
        tag: context.tag_or(TAG),
        reason: SPEC.name.into(),
        derived: Derived::default(),
        split: 0,
        made: 0,
    }))
}

#[derive(Clone)]
struct Split {
    field: FieldPath,
    target: FieldPath,
    separator: Option<Vec<u8>>,
    tag: Arc<str>,
    reason: Arc<str>,
    derived: Derived,
    split: u64,
    made: u64,
}

impl Processor for Split {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let column = batch.column(&self.field);
        let mut parts = Parts {
            rows: Vec::new(),
            cells: Vec::new(),
            appended: Vec::new(),
        };
        let mut failures = Failures::none();
        let mut done = Bitmap::none(batch.len());
        for row in rows.iter() {
            let before = parts.rows.len();
            self.take_apart(batch, &column, row, &mut parts);
            if parts.rows.len() > before {
                done.insert(row);
            }
            if parts.rows.len() >= ROWS_MAX {
                self.make(batch, &column, &mut parts, &mut failures);
            }
        }
        self.make(batch, &column, &mut parts, &mut failures);
        for failure in failures.rows() {
            done.remove(failure.row);
        }
        self.split += done.count() as u64;
        batch.drop_rows(&done, &self.reason);
        failures
    }

    fn take_derived(&mut self) -> Vec<Batch> {
        self.derived.take()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("events_split", std::mem::take(&mut self.split)),
            ("events_made", std::mem::take(&mut self.made)),
        ]
    }
}

/// Parts of events, until they are made.
struct Parts {
    /// The row of each, and its index among the parts of that row.
    rows: Vec<(usize, u32)>,
    /// Their values: in the buffers of the column, or in `appended`.
    cells: Vec<PartCell>,
    appended: Vec<u8>,
}

/// The value of a part.
#[derive(Clone, Copy)]
enum PartCell {
    /// As the column has it.
    Own(Cell),
    /// A text without its escapes, from and to a byte of what was appended.
    Text(usize, usize),
    /// An element of MessagePack as JSON, likewise.
    Json(usize, usize),
}

impl Split {
    /// Adds the parts of a row.
    fn take_apart(&self, batch: &Batch, column: &Column, row: usize, parts: &mut Parts) {
        let cell = column.cell(row);
        let Some(span) = cell.span() else { return };
        let mut index = 0;
        let mut add = |parts: &mut Parts, cell: PartCell| {
            parts.rows.push((row, index));
            parts.cells.push(cell);
            index += 1;
        };
        match (column.value(row), &self.separator) {
            (Value::Json(text), _) if text.first() == Some(&b'[') => {
                for element in batch.elements(row, text) {
                    let at = element.start;
                    let value = &text[element];
                    let cell = parts.element(value, crate::text::part(span, at, at + value.len()));
                    add(parts, cell);
                }
            }
            (Value::MsgPack(bytes), _) => {
                let msgpack::Value::Array(_) = msgpack::read(bytes, 0).0 else {
                    return;
                };
                for element in msgpack::elements(bytes) {
                    let from = parts.appended.len();
                    msgpack::to_json(&bytes[element], &mut parts.appended);
                    add(parts, PartCell::Json(from, parts.appended.len()));
                }
            }
            (Value::Text(text), Some(separator)) => {
                let finder = memchr::memmem::Finder::new(separator);
                let mut ends: Vec<usize> = finder.find_iter(text).collect();
                if ends.is_empty() {
                    return;
                }
                ends.push(text.len());
                let mut from = 0;
                for until in ends {
                    if until > from {
                        let piece = crate::text::part(span, from, until);
                        add(parts, PartCell::Own(Cell::Text(piece)));
                    }
                    from = until + separator.len();
                }
            }
            _ => {}
        }
    }

    /// Makes events of the parts. Rows of which the target cannot be written have failed.
    fn make(&mut self, batch: &Batch, column: &Column, parts: &mut Parts, failures: &mut Failures) {
        if parts.rows.is_empty() {
            return;
        }
        let rows = std::mem::take(&mut parts.rows);
        let mut parents: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
        parents.dedup();
        // The list is not to be read again with every part: the documents are written once without it.
        let mut base = batch.pick(&parents);
        let mut edit = Edit::new();
        match self.target == self.field {
            // The place that the element gets.
            true => edit.set(self.field.clone(), Column::constant(Cell::Null, base.len())),
            false => edit.remove(self.field.clone(), base.alive()),
        };
        base.apply(edit);
        let base = base.rewritten();
        let mut place = 0;
        let of_base = rows.iter().map(|(row, index)| {
            while parents[place] != *row {
                place += 1;
            }
            (place, *index)
        });
        let of_base: Vec<(usize, u32)> = of_base.collect();
        let mut from = 0;
        while from < rows.len() {
            let until = from + batch_len(&base, &of_base[from..], &parts.cells[from..]);
            let made = base.parts(&of_base[from..until]);
            let values = parts.values(from..until, column);
            self.push(made, values, &rows[from..until], failures);
            from = until;
        }
        parts.cells.clear();
        parts.appended.clear();
    }

    /// Writes the values of parts, which are made of these rows, and gives the batch to the engine.
    fn push(
        &mut self,
        mut made: Batch,
        values: Column,
        rows: &[(usize, u32)],
        failures: &mut Failures,
    ) {
        let mut edit = Edit::new();
        edit.set(self.target.clone(), values);
        let refused = made.apply(edit);
        if !refused.is_empty() {
            let mut left: Vec<usize> = (0..rows.len()).collect();
            left.retain(|part| refused.binary_search_by_key(part, |(row, _)| *row).is_err());
            made = made.pick(&left);
            for (part, reason) in refused {
                let row = rows[part].0;
                if failures.rows().last().is_none_or(|last| last.row != row) {
                    failures.push(row, &self.tag, &reason);
                }
            }
        }
        self.made += made.len() as u64;
        if !made.is_empty() {
            self.derived.push(made);
        }
    }
}

/// How many of these parts become a batch: at least one.
fn batch_len(base: &Batch, of_base: &[(usize, u32)], cells: &[PartCell]) -> usize {
    let mut bytes = 0;
    let mut parts = of_base.iter().zip(cells).take(ROWS_MAX);
    let full = parts.position(|((row, _), cell)| {
        let is_first = bytes == 0;
        bytes += base.document_len(*row) + cell.len();
        bytes > BYTES_MAX && !is_first
    });
    full.unwrap_or(of_base.len().min(ROWS_MAX))
}

impl PartCell {
    /// About the bytes that it is written in.
    fn len(self) -> usize {
        match self {
            Self::Own(cell) => cell.span().map_or(0, |span| span.len as usize),
            Self::Text(from, until) | Self::Json(from, until) => until - from,
        }
    }
}

impl Parts {
    /// The values of some of the parts.
    fn values(&self, range: Range<usize>, column: &Column) -> Column {
        let mut values = ColumnBuilder::over(range.len(), column.buffers().clone());
        for (row, cell) in self.cells[range].iter().enumerate() {
            match *cell {
                PartCell::Own(cell) => values.set(row, cell),
                PartCell::Text(from, until) => values.set_text(row, &self.appended[from..until]),
                PartCell::Json(from, until) => {
                    let text = &self.appended[from..until];
                    let kind = json::kind(text);
                    let span = values.append(|out| out.extend_from_slice(text));
                    values.set(row, plain_cell(kind, text, span));
                }
            }
        }
        values.finish()
    }

    /// The value of an element of a JSON list, which stands at `span`.
    fn element(&mut self, value: &[u8], span: batch::Span) -> PartCell {
        let kind = json::kind(value);
        if kind != json::Kind::String {
            return PartCell::Own(plain_cell(kind, value, span));
        }
        let body = &value[1..value.len() - 1];
        if !json::has_escape(body) {
            let inner = crate::text::part(span, 1, value.len() - 1);
            return PartCell::Own(Cell::Text(inner));
        }
        let from = self.appended.len();
        json::unescape(body, &mut self.appended);
        PartCell::Text(from, self.appended.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process};

    fn split(stage: &str, input: &str) -> (Vec<String>, Vec<String>) {
        let mut processor = build(&SPEC, stage).expect("right");
        let mut batch = batch_of(input.lines());
        process(processor.as_mut(), &mut batch);
        let derived = processor.take_derived();
        let made = derived.iter().flat_map(lines_of).collect();
        (lines_of(&batch), made)
    }

    #[test]
    fn elements_of_all_kinds_become_values() {
        let (left, made) = split(
            "split a.b",
            r#"{"a":{"b":[1,-2.50,"x","a\"b\u00e4\n",null,true,[1,2],{"c":{}}]},"n":7}"#,
        );
        assert!(left.is_empty());
        let values = [
            "1",
            "-2.50",
            "\"x\"",
            "\"a\\\"bä\\n\"",
            "null",
            "true",
            "[1,2]",
            "{\"c\":{}}",
        ];
        let expected = values.map(|value| format!("{{\"a\":{{\"b\":{value}}},\"n\":7}}"));
        assert_eq!(made, expected);
    }

    #[test]
    fn what_is_no_list_passes() {
        let input = r#"{"a":1}
{"a":{"b":[1]}}
{"b":[1]}
{"a":"x,y"}
{"a":[]}"#;
        let (left, made) = split("split a", input);
        assert_eq!(left.join("\n"), input);
        assert!(made.is_empty());
    }

    #[test]
    fn parts_have_ids_of_their_own_that_repeat() {
        let ids = |batches: &[Batch]| -> Vec<String> {
            let of_batch = |batch: &Batch| -> Vec<String> {
                let rows = 0..batch.len();
                rows.map(|row| batch.origin().shown_id(row)).collect()
            };
            batches.iter().flat_map(of_batch).collect()
        };
        let mut lists = build(&SPEC, "split a").expect("right");
        let mut batch = batch_of([r#"{"a":[[1,2],[3]]}"#, r#"{"a":[4]}"#]);
        process(lists.as_mut(), &mut batch);
        let mut derived = lists.take_derived();
        let id = "00000000000000000000000000000001-0-12";
        let of_first = |index: &str| format!("{id}-{index}");
        let first = ids(&derived);
        assert_eq!(first[..2], [of_first("0"), of_first("1")]);
        // Parts of parts.
        process(lists.as_mut(), &mut derived[0]);
        let second = ids(&lists.take_derived());
        assert_eq!(second, [of_first("0-0"), of_first("0-1"), of_first("1-0")]);
    }

    #[test]
    fn long_lists_come_in_several_batches() {
        let list: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let line = format!("{{\"a\":[{}]}}", list.join(","));
        let mut processor = build(&SPEC, "split a target=n").expect("right");
        let mut batch = batch_of([&*line, &*line]);
        process(processor.as_mut(), &mut batch);
        let derived = processor.take_derived();
        let lines: Vec<String> = derived.iter().flat_map(lines_of).collect();
        assert_eq!(lines.len(), 20_000);
        assert_eq!(lines[19_999], "{\"n\":9999}");
        let sizes: Vec<usize> = derived.iter().map(Batch::len).collect();
        assert_eq!(sizes, [4096, 4096, 1808, 4096, 4096, 1808]);
    }

    #[test]
    fn parts_of_a_long_event_come_in_batches_of_few_bytes() {
        let list = vec!["1"; 500].join(",");
        let long = "k".repeat(100_000);
        let line = format!("{{\"m\":[{list}],\"big\":\"{long}\"}}");
        let mut processor = build(&SPEC, "split m").expect("right");
        let mut batch = batch_of([r#"{"m":[0]}"#, &*line]);
        process(processor.as_mut(), &mut batch);
        let derived = processor.take_derived();
        let sizes: Vec<usize> = derived.iter().map(Batch::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 501);
        for batch in &derived {
            let bytes: usize = lines_of(batch).iter().map(String::len).sum();
            assert!(bytes <= BYTES_MAX + BYTES_MAX / 64, "{bytes}");
        }
        assert_eq!(sizes[..2], [42, 41]);
        // An event that is longer than a batch comes alone.
        let longer = "k".repeat(BYTES_MAX);
        let line = format!("{{\"m\":[1,2],\"big\":\"{longer}\"}}");
        process(processor.as_mut(), &mut batch_of([&*line]));
        let derived = processor.take_derived();
        let sizes: Vec<usize> = derived.iter().map(Batch::len).collect();
        assert_eq!(sizes, [1, 1]);
    }

    #[test]
    fn a_target_below_a_value_fails() {
        let (left, made) = split(
            "split a target=b.c",
            r#"{"a":[1,2],"b":2}
{"a":[1,2]}"#,
        );
        assert_eq!(made, [r#"{"b":{"c":1}}"#, r#"{"b":{"c":2}}"#]);
        let made = left;
        assert_eq!(made.len(), 1);
        assert!(
            made[0].contains("\"tags\":[\"_splitfailure\"]"),
            "{}",
            made[0]
        );
    }

    #[test]
    fn slips_are_refused() {
        check_errors(&SPEC, &[("split a separator=''", "must not be empty")]);
    }
}
