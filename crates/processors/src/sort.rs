//! `sort`: gives the events of a run in order, at its end.
//!
//! Events are kept as JSON with their ids and the values to sort by. Behind the last event they follow each other in order; those that are equal, as they came.

use std::cmp::Ordering;
use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldPath, FieldRead, HostInfo, JsonWriter, Value};
use component::{Build, BuildContext, Example, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Node, Positional, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::{Derived, event_builder, push_event};
use crate::names;
use crate::remembered::{SENSELESS, SavedBytes, save_text};

/// Rows of a batch at most.
const ROWS_MAX: usize = 4096;

/// What an event takes beside its document and its id.
const EVENT_OVERHEAD: usize = size_of::<KeptEvent>() + 64;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "sort",
    aliases: &[],
    summary: "Gives all events in order, at the end of the run.",
    description: "Events are sorted by the first field; those that are equal there by the second one, and so on, and otherwise stay as they came. `desc` behind a name, as in `sort count desc`, sorts \
                  from the largest value to the smallest, `asc` the other way, as without a word; in YAML, `fields: [count desc, name]`. Numbers come before texts, `false` before `true` and both before numbers; texts are compared by their bytes. Events that lack the field, or have null \
                  in it, come last in both directions.\n\n\
                  Nothing passes before the end of the run, so this is for inputs that end, and behind `summarize`, whose results are few. In a service, the end is its stop. With a disk queue the events are kept over restarts \
                  and crashes, and a stop is no end.\n\n\
                  **Memory.** Events are kept as JSON in memory; when they take `max_bytes`, those so far are given in order and sorting begins anew, with a warning. They keep their ids, but nothing else below `@metadata`, and not the form of MessagePack. \
                  `sort count desc | head 10` keeps all events as well; `top` counts values without keeping events.",
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "By one field",
            stage: "sort n",
            input: r#"{"n":3}
{"n":"x"}
{"m":1}
{"n":1.5}
{"n":20}"#,
            output: r#"{"n":1.5}
{"n":3}
{"n":20}
{"n":"x"}
{"m":1}"#,
        },
        Example {
            title: "The largest first, equal ones by name",
            stage: "sort count desc, name",
            input: r#"{"name":"b","count":1}
{"name":"c","count":7}
{"name":"a","count":1}"#,
            output: r#"{"name":"c","count":7}
{"name":"a","count":1}
{"name":"b","count":1}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

/// Settings of `sort`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields to sort by; from the largest value to the smallest with `desc` behind the name.
    fields: Vec<String>,
    /// What the events may take in memory.
    #[serde(default = "default_max_bytes")]
    max_bytes: Positive<Size>,
}

fn default_max_bytes() -> Positive<Size> {
    Positive::<Size>::from_bytes(512 << 20)
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    if config.fields.is_empty() {
        return Err(node.nearest("fields").error("name at least one field"));
    }
    let mut fields: Vec<SortField> = Vec::new();
    for (index, text) in config.fields.iter().enumerate() {
        let at = node.nearest(&format!("fields[{index}]"));
        // In a one-line pipeline, the word is a value of its own.
        if let (Some(is_reversed), Some(last)) = (direction(text), fields.last_mut()) {
            last.is_reversed = is_reversed;
            continue;
        }
        let worded = text.rsplit_once(' ');
        let worded = worded.and_then(|(name, word)| Some((name.trim_end(), direction(word)?)));
        let (name, is_reversed) = worded.unwrap_or((text, false));
        let path = names::path(at, name)?;
        fields.push(SortField { path, is_reversed });
    }
    Ok(Box::new(Sort {
        fields,
        max_bytes: config.max_bytes.bytes(),
        events: Vec::new(),
        size: 0,
        reason: SPEC.name.into(),
        derived: Derived::default(),
        warning: None,
        parts: 0,
    }))
}

/// Whether a word says that the largest value comes first; none where it is no such word.
fn direction(word: &str) -> Option<bool> {
    match word {
        "asc" => Some(false),
        "desc" => Some(true),
        _ => None,
    }
}

#[derive(Debug, Clone)]
struct SortField {
    path: FieldPath,
    is_reversed: bool,
}

/// A value to sort by, in the order of values.
#[derive(Debug, Clone, PartialEq)]
enum SortKey {
    Bool(bool),
    Number(f64),
    Text(Box<[u8]>),
    Missing,
}

impl SortKey {
    fn of(value: Value<'_>) -> Self {
        let number = |text: &[u8]| {
            let text = std::str::from_utf8(text).ok();
            text.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
        };
        match value {
            Value::Missing | Value::Null => Self::Missing,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(whole) => Self::Number(whole as f64),
            Value::UInt(whole) => Self::Number(whole as f64),
            Value::Float(broken) => Self::Number(broken),
            Value::Number(text) => Self::Number(number(text)),
            Value::Time(_) | Value::Text(_) => {
                let mut text = Vec::new();
                value.write_text(&mut text);
                Self::Text(text.into())
            }
            Value::Json(_) | Value::MsgPack(_) => {
                let mut text = Vec::new();
                value.write_json(&mut text);
                Self::Text(text.into())
            }
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + size_of::<Self>(),
            _ => size_of::<Self>(),
        }
    }

    fn order(&self, other: &Self, is_reversed: bool) -> Ordering {
        let rank = |key: &Self| match key {
            Self::Bool(_) => 0,
            Self::Number(_) => 1,
            Self::Text(_) => 2,
            Self::Missing => 3,
        };
        let order = match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => return rank(self).cmp(&rank(other)),
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Number(one), Self::Number(other)) => one.total_cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => rank(self).cmp(&rank(other)),
        };
        match is_reversed {
            true => order.reverse(),
            false => order,
        }
    }
}

/// An event until its turn.
#[derive(Debug, Clone)]
struct KeptEvent {
    keys: Box<[SortKey]>,
    /// Its id, and behind that its document.
    text: Box<[u8]>,
    id_len: usize,
}

#[derive(Clone)]
struct Sort {
    fields: Vec<SortField>,
    max_bytes: usize,
    events: Vec<KeptEvent>,
    /// What they take, in bytes.
    size: usize,
    reason: Arc<str>,
    derived: Derived,
    warning: Option<Warning>,
    /// How often events were given before the end, since the counter was asked for.
    parts: u64,
}

impl Processor for Sort {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let columns = self.fields.iter().map(|field| batch.column(&field.path));
        let columns: Vec<_> = columns.collect();
        let writer = JsonWriter::new(batch);
        for row in rows.iter() {
            let mut text = Vec::new();
            batch.origin().write_id(row, &mut text);
            let id_len = text.len();
            writer.write(row, &mut text);
            let keys = columns.iter().map(|column| SortKey::of(column.value(row)));
            self.keep(KeptEvent {
                keys: keys.collect(),
                text: text.into(),
                id_len,
            });
        }
        drop(writer);
        batch.drop_rows(rows, &self.reason);
        if self.size > self.max_bytes {
            self.parts += 1;
            let text = "the events take max_bytes in memory: those so far are given in order, and sorting begins anew";
            self.warning = Some(Warning {
                text: text.to_owned(),
                limit: None,
            });
            self.give(batch);
        }
        Failures::none()
    }

    fn take_derived(&mut self) -> Vec<Batch> {
        self.derived.take()
    }

    fn makes_at_end(&self) -> bool {
        true
    }

    fn end(&mut self, last: &Batch) {
        self.give(last);
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size);
        for event in &self.events {
            out.extend((event.id_len as u64).to_le_bytes());
            save_text(&event.text, &mut out);
        }
        out
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let mut saved = SavedBytes(saved);
        let mut texts = Vec::new();
        while !saved.0.is_empty() {
            let event = saved.len().zip(saved.text());
            let (id_len, text) = event.ok_or(SENSELESS)?;
            if id_len > text.len() {
                return Err(SENSELESS.to_owned());
            }
            texts.push((text, id_len));
        }
        for texts in texts.chunks(ROWS_MAX) {
            let mut builder = event_builder(&Arc::new(HostInfo { name: "".into() }), 0);
            texts
                .iter()
                .for_each(|(text, id_len)| push_event(&mut builder, (*text).into(), *id_len));
            let batch = builder.finish();
            let columns = self.fields.iter().map(|field| batch.column(&field.path));
            let columns: Vec<_> = columns.collect();
            for (row, (text, id_len)) in texts.iter().enumerate() {
                let keys = columns.iter().map(|column| SortKey::of(column.value(row)));
                self.keep(KeptEvent {
                    keys: keys.collect(),
                    text: (*text).into(),
                    id_len: *id_len,
                });
            }
        }
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().map(|field| field.path.clone());
        fields
            .map(|path| Arc::new(FieldRead::always(path)))
            .collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("parts_sorted_alone", std::mem::take(&mut self.parts))]
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.warning.take().into_iter().collect()
    }
}

impl Sort {
    fn keep(&mut self, event: KeptEvent) {
        let keys: usize = event.keys.iter().map(SortKey::size).sum();
        self.size += event.text.len() + keys + EVENT_OVERHEAD;
        self.events.push(event);
    }

    /// Gives all events in order.
    fn give(&mut self, behind: &Batch) {
        self.size = 0;
        let mut events = std::mem::take(&mut self.events);
        events.sort_by(|one, other| {
            let pairs = one.keys.iter().zip(&other.keys).zip(&self.fields);
            let orders = pairs.map(|((one, other), field)| one.order(other, field.is_reversed));
            orders.fold(Ordering::Equal, Ordering::then)
        });
        for events in events.chunks(ROWS_MAX) {
            let mut builder = event_builder(behind.host(), behind.received());
            for event in events {
                push_event(&mut builder, event.text.clone(), event.id_len);
            }
            self.derived.push(builder.finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process};

    fn ended(processor: &mut dyn Processor) -> Vec<String> {
        processor.end(&batch_of([]));
        processor.take_derived().iter().flat_map(lines_of).collect()
    }

    #[test]
    fn equal_events_stay_as_they_came_and_ids_stay() {
        let mut processor = build(&SPEC, "sort a.k asc, b desc").expect("right");
        let lines = [
            r#"{"a":{"k":2},"b":1,"n":0}"#,
            r#"{"a":{"k":1},"b":1,"n":1}"#,
            r#"{"a":{"k":1},"b":2,"n":2}"#,
            r#"{"b":2,"n":3}"#,
            r#"{"a":{"k":1},"n":4}"#,
            r#"{"a":{"k":2},"b":1,"n":5}"#,
            r#"{"a":{"k":true},"n":6}"#,
            r#"{"a":{"k":"1"},"x.y":{"z":1},"n":7}"#,
        ];
        let mut batch = batch_of(lines);
        process(processor.as_mut(), &mut batch);
        assert!(batch.alive().is_empty());
        processor.end(&batch_of([]));
        let derived = processor.take_derived();
        let order = [6, 2, 1, 4, 0, 5, 7, 3];
        assert_eq!(lines_of(&derived[0]), order.map(|n| lines[n].to_owned()));
        let ids = |batch: &Batch, row: usize| batch.origin().shown_id(row);
        for (row, n) in order.into_iter().enumerate() {
            assert_eq!(ids(&derived[0], row), ids(&batch, n));
        }
    }

    #[test]
    fn what_was_saved_goes_on_and_memory_is_bounded() {
        let mut number = crate::testing::numbers(1);
        let lines: Vec<String> = (0..9_000)
            .map(|_| format!("{{\"n\":{}}}", number(1_000_000)))
            .collect();
        let mut expected = lines.clone();
        expected.sort_by_key(|line| line[5..line.len() - 1].parse::<u64>().expect("a number"));
        let mut processor = build(&SPEC, "sort n").expect("right");
        for lines in lines.chunks(2_500) {
            process(
                processor.as_mut(),
                &mut batch_of(lines.iter().map(String::as_str)),
            );
            let saved = processor.save();
            processor = build(&SPEC, "sort n").expect("right");
            processor.restore(&saved).expect("it is right");
            assert!(processor.restore(&saved[..saved.len() - 1]).is_err());
        }
        assert_eq!(ended(processor.as_mut()), expected);
        let mut small = build(&SPEC, "sort n max_bytes=64KiB").expect("right");
        for lines in lines.chunks(100) {
            process(
                small.as_mut(),
                &mut batch_of(lines.iter().map(String::as_str)),
            );
        }
        assert!(small.take_counters()[0].1 > 5);
        assert_eq!(small.take_warnings().len(), 1);
        let early: usize = small.take_derived().iter().map(Batch::len).sum();
        assert_eq!(early + ended(small.as_mut()).len(), 9_000);
    }

    #[test]
    fn slips_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("sort 'a b'", "is not a field name"),
                ("sort -a", "`-a` is not a value of `sort`"),
            ],
        );
    }
}
