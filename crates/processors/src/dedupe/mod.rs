//! `dedupe`: drops events that repeat an earlier one.
//!
//! It is ordered, so that the result is the same with any number of workers. What is remembered of an event is its time and the fingerprint
//! of its values ([`crate::remembered`]).

mod recent;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Encoding, Failures, FieldPath, FieldRead};
use batch::{FieldsWriter, Json, JsonWriter, Value};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::field;
use crate::remembered::{
    Fingerprint, PREPARED_KEYS, TIME, default_max_keys, default_time, max_keys, reads, write_values,
};
use crate::setting_words::refuse_words;
use recent::{Compared, RecentKeys};

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "dedupe",
    aliases: &[],
    summary: "Drops events that repeat an earlier one.",
    description: DESCRIPTION,
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "One event for each user and path in ten minutes",
            stage: "dedupe user, path within=10m",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","user":"eve","path":"/a"}
{"@timestamp":"2026-05-01T12:09:59Z","user":"eve","path":"/a"}
{"@timestamp":"2026-05-01T12:09:59Z","user":"eve","path":"/b"}
{"@timestamp":"2026-05-01T12:10:00Z","user":"eve","path":"/a"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","user":"eve","path":"/a"}
{"@timestamp":"2026-05-01T12:09:59Z","user":"eve","path":"/b"}
{"@timestamp":"2026-05-01T12:10:00Z","user":"eve","path":"/a"}"#,
        },
        Example {
            title: "Ids of which the last two are remembered; events without an id pass",
            stage: "dedupe id max_keys=2",
            input: "{\"id\":1}\n{\"id\":\"1\"}\n{\"id\":1}\n{\"n\":5}\n{\"n\":5}\n{\"id\":2}\n{\"id\":1}",
            output: "{\"id\":1}\n{\"id\":\"1\"}\n{\"n\":5}\n{\"n\":5}\n{\"id\":2}\n{\"id\":1}",
        },
        Example {
            title: "Whole lines",
            stage: "dedupe",
            input: "disk full\ndisk full\ndisk almost full",
            output: "{\"message\":\"disk full\"}\n{\"message\":\"disk almost full\"}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

const DESCRIPTION: &str = "\
An event is dropped if an event with the same values of `fields` was let through before: within the time `within`, or without it
among the last `max_keys` events that were let through. Dropped events are counted. Only events that were let through are
remembered, so that of events that repeat all the time one passes every `within`.

**Values** are the same if they are written the same as JSON: `1` and `\"1\"` differ, and so do `1` and `1.0`, or objects whose fields
come in another order. A time is the text that it is written as. A field that is absent and one that is null differ too. An event in which all of the fields are
absent or null passes and is not remembered; the counter `events_without_key` has their number. Events that failed in an earlier processor are handled like all
others: with `dedupe message`, a line that no pattern matches passes once.

**Without `fields`**, the whole event is compared, as it would be written at this point. Of an event that was read as a line of text, `@timestamp`, `host` and
`log` are left out, since the input adds them; where no processor did anything, this is the line. Inputs that add fields to documents (`add_fields`) make every event different: name
the fields there.

**Times.** `within` compares the times in the field `time`: by default `@timestamp`, so that reading a file again gives the same result. If an event has no such field,
or the text in it is not an RFC 3339 time of the years 1678 to 2261, it is the time at which the event was received. `time=@metadata.timestamp` always uses the latter; all events that were read
together have the same one. The clock plays no role while events are processed. An event is compared with the last one of the same values that was let through, and dropped if their times are less than `within` apart, whichever is earlier: a late
event is dropped beside a newer one if it is less than `within` older. If it is older than that, it passes and is the one to compare with from then on. A wrong time in one event therefore affects only events with
the same values, until the next of them passes.

**Memory.** A key takes up to 46 bytes, however long its values are: 46 MB with 1,000,000 keys. The memory is taken as keys come, and is not part of `max_memory_bytes`; while the table grows, it
can be 48 bytes. When there are `max_keys`, the next event that passes takes the place of the one that passed the longest ago, and a repeat of that one passes again.
Keys that were forgotten in this way are counted as `keys_forgotten`; with `within`, only those whose time was less than `within` away from that of the event that took their place. As long as it is
0 and times are in order, `max_keys` lets nothing pass that `within` would drop.

Of the values, a hash of 128 bits is remembered (SipHash with a key that is chosen at random when nothing is remembered yet). With 1,000,000 keys, an event is dropped by mistake with a probability of
3 in 10^33. Whoever can send events, but cannot read the memory of the process, cannot make that more likely.

**Order.** Events are compared in the order of the input, with the same result for any number of workers. What is remembered lasts over restarts, crashes and reloads where the pipeline has a disk queue (page
`queue`, \"What processors remember\"), and until the settings of `dedupe` change. Without one, and below an output, nothing is remembered across a restart or a reload that changes the pipeline.
With `if`, only the events for which it is true are compared and remembered.
";

/// Settings of `dedupe`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields whose values are compared. Default: the whole event.
    fields: Option<Vec<String>>,
    /// For how long an event that was let through stops those that repeat it. Default: as long as it is remembered.
    within: Option<Positive<Period>>,
    /// The field with the time that `within` refers to; `@metadata.timestamp` is the time at which an event was received.
    #[serde(default = "default_time")]
    time: String,
    /// How many events that were let through are remembered, from 1 to 1G.
    #[serde(default = "default_max_keys")]
    max_keys: Count,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &[])?;
    let config: Config = parse(node)?;
    let empty = "name at least one field, or leave `fields` out to compare whole events";
    let fields = config
        .fields
        .map(|fields| component::fields(node, "fields", &fields, empty))
        .transpose()?;
    if config.within.is_none() && config.time != TIME {
        return Err(node
            .nearest("time")
            .error("`time` has no effect without `within`")
            .note("add how long repeats are dropped, for example: within=10m"));
    }
    let max_keys = max_keys(node, config.max_keys)?;
    let nanos = |within: Positive<Period>| u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    let window = config.within.map(nanos);
    let time = field(node, "time", &config.time)?;
    Ok(Box::new(Dedupe {
        recent: RecentKeys::new(max_keys, window),
        time: window.is_some().then_some(time),
        fields,
        without_key: 0,
        texts: [Vec::new(), Vec::new()],
        keys: Vec::new(),
        reason: SPEC.name.into(),
    }))
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "within" => value.parse::<Period>().is_ok(),
        "max_keys" => value.parse::<Count>().is_ok(),
        _ => false,
    }
}

#[derive(Clone)]
struct Dedupe {
    /// The fields that are compared; none for whole events.
    fields: Option<Vec<FieldPath>>,
    /// Where the time is, if there is a window.
    time: Option<FieldPath>,
    recent: RecentKeys,
    /// Events without any of the fields, since the counter was asked for.
    without_key: u64,
    /// What is compared of two events. Kept for its memory, as is the next.
    texts: [Vec<u8>; 2],
    /// The rows of a batch that have a key.
    keys: Vec<(usize, Fingerprint)>,
    reason: Arc<str>,
}

impl Processor for Dedupe {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        self.keys.clear();
        match &self.fields {
            Some(fields) => {
                let columns = batch.columns(fields.iter().chain(&self.time));
                let compared = fields.len();
                self.take_values(&columns[..compared], rows);
            }
            None => self.take_events(batch, rows),
        }
        let times = self.time.as_ref();
        let times = times.map(|path| EventTimes::in_field(batch, path));
        let mut dropped = Bitmap::none(batch.len());
        for keys in self.keys.chunks(PREPARED_KEYS) {
            self.recent.prepare(keys);
            for (row, fingerprint) in keys {
                let time = times.as_ref().map_or(0, |times| times.nanos(*row));
                if !self.recent.lets_through(*fingerprint, time) {
                    dropped.insert(*row);
                }
            }
        }
        batch.drop_rows(&dropped, &self.reason);
        Failures::none()
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        self.recent.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.recent.restore(saved)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        reads(self.fields.as_deref(), self.time.as_ref())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("events_without_key", std::mem::take(&mut self.without_key)),
            ("keys_forgotten", self.recent.take_forgotten()),
        ]
    }
}

/// Where that stands which is compared of an event.
enum ComparedPlace<'a> {
    /// It was read: the text of the only field.
    Text(&'a [u8]),
    /// It was read: a document.
    Document(&'a [u8]),
    /// It was written: a time that is the only field, as text.
    WrittenText,
    /// It was written.
    Written,
}

impl<'a> ComparedPlace<'a> {
    #[inline]
    fn compared(self, written: &'a [u8]) -> Compared<'a> {
        match self {
            Self::Text(text) => Compared::Text(text),
            Self::Document(document) => Compared::Written(document),
            Self::WrittenText => Compared::Text(written),
            Self::Written => Compared::Written(written),
        }
    }
}

impl Dedupe {
    /// Makes the keys of rows from the values of some fields.
    fn take_values(&mut self, columns: &[Arc<Column>], rows: &Bitmap) {
        match columns {
            [column] => self.take(rows, |row, text| match column.value(row) {
                Value::Text(text) => Some(ComparedPlace::Text(text)),
                value @ Value::Time(_) => {
                    text.clear();
                    value.write_text(text);
                    Some(ComparedPlace::WrittenText)
                }
                _ => write_values(columns, row, text).then_some(ComparedPlace::Written),
            }),
            _ => self.take(rows, |row, text| {
                write_values(columns, row, text).then_some(ComparedPlace::Written)
            }),
        }
    }

    /// Makes the keys of rows from all that would be written.
    fn take_events(&mut self, batch: &Batch, rows: &Bitmap) {
        let is_text = batch.encoding() == Encoding::Text;
        let is_own = |name: &str| !is_text || !matches!(name, "@timestamp" | "host" | "log");
        let fields = FieldsWriter::<Json>::new(batch, is_own);
        let events = fields.is_none().then(|| JsonWriter::new(batch));
        self.take(rows, |row, text| {
            if let Some(document) = events.as_ref().and_then(|events| events.document(row)) {
                return Some(ComparedPlace::Document(document));
            }
            text.clear();
            match (&fields, &events) {
                (Some(fields), _) => fields.write(row, text),
                (None, Some(events)) => events.write(row, text),
                (None, None) => {}
            }
            Some(ComparedPlace::Written)
        });
    }

    /// Makes the keys of rows, two at a time, from what `place` gives or writes; a row without has no key.
    fn take<'a>(
        &mut self,
        rows: &Bitmap,
        mut place: impl FnMut(usize, &mut Vec<u8>) -> Option<ComparedPlace<'a>>,
    ) {
        let mut texts = std::mem::take(&mut self.texts);
        let mut before: Option<(usize, ComparedPlace<'_>)> = None;
        for row in rows.iter() {
            let Some(new) = place(row, &mut texts[usize::from(before.is_some())]) else {
                self.without_key += 1;
                continue;
            };
            let Some((first, old)) = before.take() else {
                before = Some((row, new));
                continue;
            };
            let pair = [old.compared(&texts[0]), new.compared(&texts[1])];
            let [one, other] = self.recent.fingerprints(pair);
            self.keys.extend([(first, one), (row, other)]);
        }
        if let Some((row, last)) = before {
            let key = self.recent.fingerprint(last.compared(&texts[0]));
            self.keys.push((row, key));
        }
        self.texts = texts;
    }
}
