//! `sort`: gives the events of a run in order, at its end.
//!
//! Events are kept as JSON with their ids and the values to sort by. Behind the last event they follow each other in order; those that are equal, as they came.

mod key;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Failures, FieldPath, FieldRead, JsonWriter};
use component::{Build, BuildContext, Example, Limit, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Node, Positional, Positive, Size};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::{Derived, event_builder, push_event};
use crate::names;
use crate::remembered::{SENSELESS, SavedBytes, TIME, save_text};
use crate::setting_words::refuse_words;
use key::SortKey;

/// Rows of a batch at most.
const ROWS_MAX: usize = 4096;

/// What counts how often events were given before the end.
const PARTS: &str = "parts_sorted_alone";

const VERSION: u64 = 1;

/// What an event takes beside its document and its id.
const EVENT_OVERHEAD: usize = size_of::<KeptEvent>() + 64;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "sort",
    aliases: &[],
    summary: "Gives all events in order, at the end of the run.",
    description: include_str!("sort.md"),
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
    let is_setting = |name: &str, value: &str| name == "max_bytes" && value.parse::<Size>().is_ok();
    refuse_words(node, is_setting, &[])?;
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
        let is_time = [TIME, "@metadata.timestamp"].contains(&path.to_string().as_str());
        fields.push(SortField {
            path,
            is_reversed,
            is_time,
        });
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
    /// It holds when events happened, and is sorted by time.
    is_time: bool,
}

/// A field of a batch to sort by.
struct SortColumn {
    column: Arc<Column>,
    times: Option<EventTimes>,
}

impl SortColumn {
    fn of(batch: &Batch, field: &SortField) -> Self {
        let times = || EventTimes::in_field(batch, &field.path);
        Self {
            column: batch.column(&field.path),
            times: field.is_time.then(times),
        }
    }

    fn key(&self, row: usize) -> SortKey {
        let time = self.times.as_ref().and_then(|times| times.own_nanos(row));
        time.map_or_else(|| SortKey::of(self.column.value(row)), SortKey::Time)
    }
}

/// An event until its turn.
#[derive(Debug, Clone)]
struct KeptEvent {
    keys: Box<[SortKey]>,
    /// Its id, and behind that its document.
    text: Box<[u8]>,
    id_len: usize,
    /// It failed in an earlier processor.
    is_sealed: bool,
}

impl KeptEvent {
    /// What was saved of an event, with so many keys.
    fn read(saved: &mut SavedBytes<'_>, keys: usize) -> Option<Self> {
        let id_len = saved.len()?;
        let is_sealed = saved.byte()? != 0;
        let text: Box<[u8]> = saved.text()?.into();
        let keys = (0..keys).map(|_| SortKey::read(saved));
        let keys = keys.collect::<Option<Box<[_]>>>()?;
        (id_len <= text.len()).then_some(Self {
            keys,
            text,
            id_len,
            is_sealed,
        })
    }
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
        let columns = self.fields.iter();
        let columns: Vec<_> = columns.map(|it| SortColumn::of(batch, it)).collect();
        let writer = JsonWriter::new(batch);
        for row in rows.iter() {
            let mut text = Vec::new();
            batch.origin().write_id(row, &mut text);
            let id_len = text.len();
            writer.write(row, &mut text);
            self.keep(KeptEvent {
                keys: columns.iter().map(|column| column.key(row)).collect(),
                text: text.into(),
                id_len,
                is_sealed: batch.sealed().contains(row),
            });
        }
        drop(writer);
        batch.drop_rows(rows, &self.reason);
        if self.size > self.max_bytes {
            self.parts += 1;
            let text = "the events take max_bytes in memory: those so far are given in order, and sorting begins anew";
            self.warning = Some(Warning::limited(Limit::events(PARTS), text.to_owned()));
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

    /// The version, and for each event the length of its id, whether it failed, its text and its keys.
    fn save(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size);
        out.extend(VERSION.to_le_bytes());
        for event in &self.events {
            out.extend((event.id_len as u64).to_le_bytes());
            out.push(u8::from(event.is_sealed));
            save_text(&event.text, &mut out);
            event.keys.iter().for_each(|key| key.save(&mut out));
        }
        out
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        let mut saved = SavedBytes(saved);
        if saved.number() != Some(VERSION) {
            return Err("it was kept by another version of Millpond".to_owned());
        }
        let mut events = Vec::new();
        while !saved.0.is_empty() {
            events.push(KeptEvent::read(&mut saved, self.fields.len()).ok_or(SENSELESS)?);
        }
        // All of it or nothing.
        events.into_iter().for_each(|event| self.keep(event));
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().map(|field| field.path.clone());
        fields
            .map(|path| Arc::new(FieldRead::always(path)))
            .collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![(PARTS, std::mem::take(&mut self.parts))]
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.warning.take().into_iter().collect()
    }
}

impl Sort {
    fn keep(&mut self, event: KeptEvent) {
        let texts: usize = event.keys.iter().map(SortKey::text_size).sum();
        let keys = event.keys.len() * size_of::<SortKey>();
        self.size += event.text.len() + texts + keys + EVENT_OVERHEAD;
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
        let mut events = events.into_iter();
        while events.len() > 0 {
            let mut builder = event_builder(behind.host(), behind.received());
            let mut sealed = Bitmap::none(events.len().min(ROWS_MAX));
            for (row, event) in events.by_ref().take(ROWS_MAX).enumerate() {
                if event.is_sealed {
                    sealed.insert(row);
                }
                push_event(&mut builder, event.text, event.id_len);
            }
            let mut batch = builder.finish();
            batch.seal(&sealed);
            self.derived.push(batch);
        }
    }
}
