//! `reduce`: one event of those that belong together.
//!
//! It is ordered: the result is the same with any number of workers. What is kept of events is in [`open`].

mod open;
mod tell;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Failures, FieldPath, FieldRead, JsonWriter, Value};
use component::{Build, BuildContext, Example, Limit, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive, Size};
use expr::{EventTimes, Expr};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::Derived;
use crate::names::{field, overlap};
use crate::remembered::{default_max_keys, default_time, max_keys, reads, write_values};
use crate::setting_words::{is_no_field, refuse_words};
use open::{BoundedTime, Ended, Group, OpenGroups};

const TAG: &str = "_reducetimeout";

/// What counts events for which a condition fails.
const ERRORS: &str = "expression_errors";

/// The most that a group may take: batches of results have to stay far below 4 GiB.
const BYTES_MAX: u64 = 1 << 30;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "reduce",
    aliases: &[],
    summary: "Joins events that belong together, such as those of a request, into one.",
    description: include_str!("reduce.md"),
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The lines of a request, until the one that says that it is done",
            stage: "reduce request collect=[message] last=[status] end=\"message == 'done'\"",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","request":1,"message":"begin"}
{"@timestamp":"2026-05-01T12:00:01Z","request":2,"message":"begin"}
{"@timestamp":"2026-05-01T12:00:01.5Z","request":1,"message":"done","status":200}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","request":1,"message":["begin","done"],"status":200,"reduced":{"events":2,"duration_ms":1500.0}}
{"@timestamp":"2026-05-01T12:00:01Z","request":2,"message":["begin"],"reduced":{"events":1,"duration_ms":0.0}}"#,
        },
        Example {
            title: "Sessions: what a user does without a pause of half an hour",
            stage: "reduce user collect=[page] timeout=30m",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","user":"joe","page":"/"}
{"@timestamp":"2026-05-01T12:20:00Z","user":"joe","page":"/cart"}
{"@timestamp":"2026-05-01T13:00:00Z","user":"ann","page":"/"}
{"@timestamp":"2026-05-01T13:10:00Z","user":"joe","page":"/"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","user":"joe","page":["/","/cart"],"reduced":{"events":2,"duration_ms":1200000.0}}
{"@timestamp":"2026-05-01T13:00:00Z","user":"ann","page":["/"],"reduced":{"events":1,"duration_ms":0.0}}
{"@timestamp":"2026-05-01T13:10:00Z","user":"joe","page":["/"],"reduced":{"events":1,"duration_ms":0.0}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: false,
        build,
    },
};

/// Settings of `reduce`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields whose values say which events belong together.
    fields: Vec<String>,
    /// Fields of which all values are collected in a list.
    #[serde(default)]
    collect: Vec<String>,
    /// Fields of which the last value counts.
    #[serde(default)]
    last: Vec<String>,
    /// The condition of an event with which a group begins: one that is open ends before it.
    start: Option<String>,
    /// The condition of an event with which a group ends.
    end: Option<String>,
    /// A group ends when no event of it came for so long, by the times of events.
    #[serde(default = "default_timeout")]
    timeout: Positive<Period>,
    /// The field that gets the number of events and their duration.
    #[serde(default = "default_target")]
    target: String,
    /// The field with the time of an event; `@metadata.timestamp` is the time at which it was received.
    #[serde(default = "default_time")]
    time: String,
    /// How many events a group has at most.
    #[serde(default = "default_max_events")]
    max_events: Positive<Count>,
    /// How much a group's first event and the values kept of all of them take, at most 1GiB; the event that reaches it is the group's last.
    #[serde(default = "default_max_bytes")]
    max_bytes: Positive<Size>,
    /// How many groups are open at most, from 1 to 1G.
    #[serde(default = "default_max_keys")]
    max_keys: Count,
}

fn default_timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(30)
}

fn default_target() -> String {
    "reduced".to_owned()
}

fn default_max_events() -> Positive<Count> {
    Positive::<Count>::from_count(10_000)
}

fn default_max_bytes() -> Positive<Size> {
    Positive::<Size>::from_bytes(16 << 20)
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "start" | "end" => is_no_field(value),
        "timeout" => value.parse::<Period>().is_ok(),
        "max_events" | "max_keys" => value.parse::<Count>().is_ok(),
        "max_bytes" => value.parse::<Size>().is_ok(),
        _ => false,
    }
}

/// The fields whose values are kept. No two of them, the target and the key's fields may overlap.
fn kept_fields(
    node: &Node,
    config: &Config,
    by: &[FieldPath],
    target: &FieldPath,
) -> Result<Vec<KeptField>, ConfigError> {
    let twice = |at: &Node, path: &FieldPath, is_key: bool| {
        let error = at.error(format!("`{path}` is written twice"));
        error.note(match is_key {
            true => {
                "it is one of the fields that say which events belong together, and has one value"
            }
            false => "a field is collected, or its last value counts, or it is the target",
        })
    };
    if by.iter().any(|key| overlap(key, target)) {
        return Err(twice(node.nearest("target"), target, true));
    }
    let mut kept: Vec<KeptField> = Vec::new();
    for (setting, names, is_list) in [
        ("collect", &config.collect, true),
        ("last", &config.last, false),
    ] {
        for (index, name) in names.iter().enumerate() {
            let setting = format!("{setting}[{index}]");
            let path = component::field(node, &setting, name)?;
            let is_key = by.iter().any(|key| overlap(key, &path));
            let is_taken = overlap(target, &path) || kept.iter().any(|it| overlap(&it.path, &path));
            if is_key || is_taken {
                return Err(twice(node.nearest(&setting), &path, is_key));
            }
            kept.push(KeptField { path, is_list });
        }
    }
    Ok(kept)
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &["target", "collect", "last"])?;
    let config: Config = parse(node)?;
    if config.max_bytes.bytes() as u64 > BYTES_MAX {
        let error = node.nearest("max_bytes");
        return Err(error.error("`max_bytes` must be at most 1GiB"));
    }
    let by = component::fields(node, "fields", &config.fields, "name at least one field")?;
    let target = field(node, "target", &config.target)?;
    let kept = kept_fields(node, &config, &by, &target)?;
    let condition = |name: &str, text: Option<&String>| {
        let parsed = text.map(|text| {
            Expr::parse_condition(text).map_err(|error| error.in_setting(node.nearest(name)))
        });
        parsed.transpose()
    };
    Ok(Box::new(Reduce {
        open: OpenGroups::default(),
        by,
        kept,
        start: condition("start", config.start.as_ref())?,
        end: condition("end", config.end.as_ref())?,
        timeout: i64::try_from(config.timeout.as_nanos()).unwrap_or(i64::MAX),
        target,
        time: field(node, "time", &config.time)?,
        max_events: config.max_events.0,
        max_bytes: config.max_bytes.bytes(),
        max_keys: max_keys(node, config.max_keys)?,
        tag: context.tag_or(TAG),
        reason: SPEC.name.into(),
        derived: Derived::default(),
        ended: Vec::new(),
        key: Vec::new(),
        counts: Counts::default(),
        warning: None,
    }))
}

/// A field whose values are kept beside the first event.
#[derive(Debug, Clone)]
struct KeptField {
    path: FieldPath,
    /// All of them; else the last one.
    is_list: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    without_key: u64,
    timed_out: u64,
    for_room: u64,
    /// Conditions that failed.
    errors: u64,
}

#[derive(Clone)]
struct Reduce {
    open: OpenGroups,
    by: Vec<FieldPath>,
    kept: Vec<KeptField>,
    start: Option<Expr>,
    end: Option<Expr>,
    timeout: i64,
    target: FieldPath,
    time: FieldPath,
    max_events: u64,
    max_bytes: usize,
    max_keys: usize,
    /// The tag of groups that no event ended, where one should.
    tag: Arc<str>,
    reason: Arc<str>,
    derived: Derived,
    /// Groups that have ended and are to be told of.
    ended: Vec<(Group, Ended)>,
    key: Vec<u8>,
    counts: Counts,
    warning: Option<Warning>,
}

impl Processor for Reduce {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let kept = self.kept.iter().map(|kept| &kept.path);
        let columns = batch.columns(self.by.iter().chain(kept));
        let (keys, values) = columns.split_at(self.by.len());
        let starts = self.filter("start", batch, rows);
        let ends = self.filter("end", batch, rows);
        let times = EventTimes::in_field(batch, &self.time);
        let writer = JsonWriter::new(batch);
        let mut joined = rows.clone();
        for row in rows.iter() {
            if !write_values(keys, row, &mut self.key) {
                self.counts.without_key += 1;
                joined.remove(row);
                continue;
            }
            let time = times.nanos(row);
            let at = BoundedTime {
                time,
                bounded: time.min(batch.received()),
            };
            let group = self.open.get(&self.key);
            if group.is_some_and(|group| group.is_apart(time, self.timeout)) {
                self.finish(Ended::ByTime);
            } else if starts.contains(row) {
                self.finish(Ended::ByEvent);
            }
            let first = || {
                let mut text = Vec::new();
                batch.origin().write_id(row, &mut text);
                let id_len = text.len();
                writer.write(row, &mut text);
                (text, id_len)
            };
            let is_full = self.join(at, first, values, row);
            if ends.contains(row) {
                self.finish(Ended::ByEvent);
            } else if is_full {
                self.finish(Ended::ForRoom);
            }
            let over = self.open.advance(at, self.timeout);
            self.ended
                .extend(over.into_iter().map(|group| (group, Ended::ByTime)));
        }
        drop(writer);
        batch.drop_rows(&joined, &self.reason);
        self.tell(batch);
        Failures::none()
    }

    fn take_derived(&mut self) -> Vec<Batch> {
        self.derived.take()
    }

    fn makes_at_end(&self) -> bool {
        true
    }

    fn end(&mut self, last: &Batch) {
        let all = self.open.take_all();
        self.ended
            .extend(all.into_iter().map(|group| (group, Ended::AtEnd)));
        self.tell(last);
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        self.open.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.open = OpenGroups::restore(saved, self.kept.len())?;
        Ok(())
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let kept = self.kept.iter().map(|kept| kept.path.clone());
        let paths: Vec<FieldPath> = self.by.iter().cloned().chain(kept).collect();
        let conditions = self.start.iter().chain(&self.end);
        let conditions = conditions.flat_map(|condition| condition.reads().to_vec());
        let fields = reads(Some(&paths), Some(&self.time));
        fields.into_iter().chain(conditions).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let counts = std::mem::take(&mut self.counts);
        let mut counters = vec![
            ("events_without_key", counts.without_key),
            ("groups_timed_out", counts.timed_out),
            ("groups_ended_for_room", counts.for_room),
        ];
        if counts.errors > 0 {
            counters.push((ERRORS, counts.errors));
        }
        counters
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.warning.take().into_iter().collect()
    }
}

impl Reduce {
    /// The events for which the condition `start` or `end` is true. Those for which it fails are counted.
    fn filter(&mut self, name: &str, batch: &Batch, rows: &Bitmap) -> Bitmap {
        let condition = match name {
            "start" => &self.start,
            _ => &self.end,
        };
        let Some(condition) = condition else {
            return Bitmap::none(batch.len());
        };
        let found = condition.filter(batch, rows);
        self.counts.errors += found.errors as u64;
        if let Some((row, reason)) = found.first_error {
            let id = batch.origin().shown_id(row);
            let text = format!("the condition `{name}` failed for event {id}: {reason}");
            self.warning = Some(Warning::limited(Limit::events(ERRORS), text));
        }
        found.holds
    }

    /// Ends the group of the key at hand.
    fn finish(&mut self, how: Ended) {
        let group = self.open.remove(&self.key);
        self.ended.extend(group.map(|group| (group, how)));
    }

    /// Joins an event with its group, which is opened if there is none. Whether it has no room for more.
    fn join(
        &mut self,
        at: BoundedTime,
        first: impl FnOnce() -> (Vec<u8>, usize),
        values: &[Arc<Column>],
        row: usize,
    ) -> bool {
        if self.open.get(&self.key).is_none() {
            if self.open.len() >= self.max_keys {
                let oldest = self.open.remove_oldest();
                self.ended
                    .extend(oldest.map(|group| (group, Ended::ForRoom)));
            }
            self.open.open(&self.key, first(), at, self.kept.len());
        }
        let Some(group) = self.open.join(&self.key, at) else {
            return false;
        };
        for ((kept, column), values) in self.kept.iter().zip(values).zip(&mut group.values) {
            let value = column.value(row);
            if value.is_missing() || value == Value::Null {
                continue;
            }
            match kept.is_list {
                true if !values.is_empty() => values.push(b','),
                true => {}
                false => values.clear(),
            }
            value.write_json(values);
        }
        group.events >= self.max_events || group.size() >= self.max_bytes
    }
}
