//! `dedupe`: drops events that repeat an earlier one.
//!
//! It is ordered, so that the result is the same with any number of workers. What is remembered of an event is its time and a hash
//! of its values with 128 bits ([`sip`]), keyed with a secret of this installation. With a million keys remembered, an event is mistaken for another one
//! with a probability of 10^6 / 2^128, about 3 in 10^33, also if somebody chooses the values who knows everything but the secret. The result therefore does not depend on the secret.

mod recent;
mod sip;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Encoding, Failures, FieldPath, FieldRead, Value};
use batch::{FieldsWriter, Json, JsonWriter};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::field;
use recent::{KEYS_MAX, RecentKeys};
use sip::Fingerprint;

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
or the text in it is not an RFC 3339 time, it is the time at which the event was received. `time=@metadata.timestamp` always uses the latter; all events that were read
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

const TIME: &str = "@timestamp";

fn default_time() -> String {
    TIME.to_owned()
}

fn default_max_keys() -> Count {
    Count(1_000_000)
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    if let Some(fields) = &config.fields {
        refuse_words(node, fields)?;
    }
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
    let max_keys = config.max_keys.0;
    if max_keys == 0 || max_keys > KEYS_MAX {
        return Err(node
            .nearest("max_keys")
            .error(format!("`max_keys` must be from 1 to {}", Count(KEYS_MAX))));
    }
    let nanos = |within: Positive<Period>| u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    let window = config.within.map(nanos);
    let time = field(node, "time", &config.time)?;
    Ok(Box::new(Dedupe {
        recent: RecentKeys::new(max_keys as usize, window),
        time: window.is_some().then_some(time),
        fields,
        without_key: 0,
        text: Vec::new(),
        keys: Vec::new(),
        reason: SPEC.name.into(),
    }))
}

/// Refuses `within 10m`, which would be two fields that no event has.
fn refuse_words(node: &Node, fields: &[String]) -> Result<(), ConfigError> {
    let is_setting = |pair: &[String]| match pair {
        [name, value] => match &**name {
            "within" => value.parse::<Period>().is_ok(),
            "max_keys" => value.parse::<Count>().is_ok(),
            _ => false,
        },
        _ => false,
    };
    let Some(index) = fields.windows(2).position(is_setting) else {
        return Ok(());
    };
    let (name, value) = (&fields[index], &fields[index + 1]);
    Err(node
        .nearest(&format!("fields[{index}]"))
        .error(format!("`{name}` is a setting, and stands here as a field"))
        .note(format!("write {name}={value}"))
        .note(format!(
            "a field of that name is written `{name}`, in backticks"
        )))
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
    /// The values of one event, one after the other. Kept for its memory, as is the next.
    text: Vec<u8>,
    /// The rows of a batch that have a key.
    keys: Vec<(usize, Fingerprint)>,
    reason: Arc<str>,
}

impl Processor for Dedupe {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        self.keys.clear();
        match &self.fields {
            Some(fields) => {
                let columns = fields.iter().map(|path| batch.column(path));
                self.take_values(&columns.collect::<Vec<_>>(), rows);
            }
            None => self.take_events(batch, rows),
        }
        let times = self.time.as_ref();
        let times = times.map(|path| EventTimes::in_field(batch, path));
        self.recent.prepare(&self.keys);
        let mut dropped = Bitmap::none(batch.len());
        for (row, fingerprint) in &self.keys {
            let time = times.as_ref().map_or(0, |times| times.nanos(*row));
            if !self.recent.lets_through(*fingerprint, time) {
                dropped.insert(*row);
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
        let fields = self.fields.iter().flatten().cloned();
        let fields = fields.map(FieldRead::always);
        // Only a field that was asked for has to be there.
        let time = self.time.iter().map(|path| {
            let is_default = path.to_string() == TIME;
            FieldRead::always(path.clone()).may_be_absent(is_default)
        });
        fields.chain(time).map(Arc::new).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("events_without_key", std::mem::take(&mut self.without_key)),
            ("keys_forgotten", self.recent.take_forgotten()),
        ]
    }
}

impl Dedupe {
    /// Makes the keys of rows from the values of some fields.
    fn take_values(&mut self, columns: &[Arc<Column>], rows: &Bitmap) {
        for row in rows.iter() {
            self.text.clear();
            let mut has_value = false;
            for column in columns {
                let value = column.value(row);
                has_value |= !matches!(value, Value::Missing | Value::Null);
                add_value(value, &mut self.text);
            }
            if has_value {
                self.keys.push((row, self.recent.fingerprint(&self.text)));
            } else {
                self.without_key += 1;
            }
        }
    }

    /// Makes the keys of rows from all that would be written.
    fn take_events(&mut self, batch: &Batch, rows: &Bitmap) {
        let is_text = batch.encoding() == Encoding::Text;
        let is_own = |name: &str| !is_text || !matches!(name, "@timestamp" | "host" | "log");
        let fields = FieldsWriter::<Json>::new(batch, is_own);
        let events = fields.is_none().then(|| JsonWriter::new(batch));
        for row in rows.iter() {
            self.text.clear();
            match (&fields, &events) {
                (Some(fields), _) => fields.write(row, &mut self.text),
                (None, Some(events)) => events.write(row, &mut self.text),
                (None, None) => {}
            }
            self.keys.push((row, self.recent.fingerprint(&self.text)));
        }
    }
}

/// Appends a value so that no two sequences of different values give the same bytes: its length, and what it is as JSON, but a text
/// without escapes and its last quote. Nothing else begins with a quote. Where the field is absent, the length is 0.
#[inline]
fn add_value(value: Value<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match value {
        Value::Missing => {}
        Value::Text(_) | Value::Time(_) => {
            out.push(b'"');
            value.write_text(out);
        }
        _ => value.write_json(out),
    }
    // Values lie in buffers of less than 4 GiB.
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}
