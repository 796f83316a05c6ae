//! `reduce`: one event of those that belong together.
//!
//! It is ordered: the result is the same with any number of workers. What is kept of events is in [`open`].

mod open;

use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, JsonWriter,
    Value, json,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::{EventTimes, Expr};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::{Derived, event_builder, push_event};
use crate::names::{field, overlap};
use crate::remembered::{default_max_keys, default_time, max_keys, write_values};
use crate::text::plain_cell;
use open::{Ended, Group, OpenGroups};

const TAG: &str = "_reducetimeout";

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
{"@timestamp":"2026-05-01T13:00:00Z","user":"ann","page":"/"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","user":"joe","page":["/","/cart"],"reduced":{"events":2,"duration_ms":1200000.0}}
{"@timestamp":"2026-05-01T13:00:00Z","user":"ann","page":["/"],"reduced":{"events":1,"duration_ms":0.0}}"#,
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

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let by = component::fields(node, "fields", &config.fields, "name at least one field")?;
    let mut kept = Vec::new();
    for (setting, names, is_list) in [
        ("collect", &config.collect, true),
        ("last", &config.last, false),
    ] {
        for (index, name) in names.iter().enumerate() {
            let path = component::field(node, &format!("{setting}[{index}]"), name)?;
            kept.push(KeptField { path, is_list });
        }
    }
    let target = field(node, "target", &config.target)?;
    let mut taken = by.clone();
    taken.push(target.clone());
    for one in &kept {
        if let Some(other) = taken.iter().find(|other| overlap(other, &one.path)) {
            let is_key = by.contains(other);
            let error = node.error(format!("`{}` is written twice", one.path));
            return Err(error.note(match is_key {
                true => "it is one of the fields that say which events belong together, and has one value",
                false => "a field is collected, or its last value counts, or it is the target",
            }));
        }
        taken.push(one.path.clone());
    }
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
        max_keys: max_keys(node, config.max_keys)?,
        tag: context.tag_or(TAG),
        reason: SPEC.name.into(),
        derived: Derived::default(),
        ended: Vec::new(),
        key: Vec::new(),
        counts: Counts::default(),
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
    max_keys: usize,
    /// The tag of groups that no event ended, where one should.
    tag: Arc<str>,
    reason: Arc<str>,
    derived: Derived,
    /// Groups that have ended and are to be told of.
    ended: Vec<(Group, Ended)>,
    key: Vec<u8>,
    counts: Counts,
}

impl Processor for Reduce {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let columns = |paths: &mut dyn Iterator<Item = &FieldPath>| -> Vec<Arc<Column>> {
            paths.map(|path| batch.column(path)).collect()
        };
        let keys = columns(&mut self.by.iter());
        let values = columns(&mut self.kept.iter().map(|kept| &kept.path));
        let holds = |condition: &Option<Expr>| {
            let condition = condition.as_ref();
            condition.map_or_else(
                || Bitmap::none(batch.len()),
                |it| it.filter(batch, rows).holds,
            )
        };
        let (starts, ends) = (holds(&self.start), holds(&self.end));
        let times = EventTimes::in_field(batch, &self.time);
        let writer = JsonWriter::new(batch);
        let mut joined = rows.clone();
        for row in rows.iter() {
            if !write_values(&keys, row, &mut self.key) {
                self.counts.without_key += 1;
                joined.remove(row);
                continue;
            }
            let time = times.nanos(row);
            if starts.contains(row) {
                self.finish(Ended::ByEvent);
            }
            let first = || {
                let mut text = Vec::new();
                batch.origin().write_id(row, &mut text);
                let id_len = text.len();
                writer.write(row, &mut text);
                (text, id_len)
            };
            let is_full = self.join(time, first, &values, row);
            if ends.contains(row) {
                self.finish(Ended::ByEvent);
            } else if is_full {
                self.finish(Ended::ForRoom);
            }
            self.open.reach(time, batch.received());
        }
        drop(writer);
        batch.drop_rows(&joined, &self.reason);
        let over = self.open.take_over(self.timeout);
        self.ended
            .extend(over.into_iter().map(|group| (group, Ended::ByTime)));
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
        let kept = self.kept.iter().map(|kept| &kept.path);
        let paths = self.by.iter().chain(kept).cloned();
        let conditions = self.start.iter().chain(&self.end);
        let conditions = conditions.flat_map(|condition| condition.reads().to_vec());
        let fields = paths.map(|path| Arc::new(FieldRead::always(path)));
        fields.chain(conditions).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let counts = std::mem::take(&mut self.counts);
        vec![
            ("events_without_key", counts.without_key),
            ("groups_timed_out", counts.timed_out),
            ("groups_ended_for_room", counts.for_room),
        ]
    }
}

impl Reduce {
    /// Ends the group of the key at hand.
    fn finish(&mut self, how: Ended) {
        let group = self.open.remove(&self.key);
        self.ended.extend(group.map(|group| (group, how)));
    }

    /// Joins an event with its group, which is opened if there is none. Whether it has no room for more.
    fn join(
        &mut self,
        time: i64,
        first: impl FnOnce() -> (Vec<u8>, usize),
        values: &[Arc<Column>],
        row: usize,
    ) -> bool {
        if self.open.get_mut(&self.key).is_none() {
            if self.open.len() >= self.max_keys {
                let oldest = self.open.remove_oldest();
                self.ended
                    .extend(oldest.map(|group| (group, Ended::ForRoom)));
            }
            let (text, id_len) = first();
            self.open
                .open(&self.key, text, id_len, time, self.kept.len());
        }
        let Some(group) = self.open.get_mut(&self.key) else {
            return false;
        };
        group.events += 1;
        group.earliest = group.earliest.min(time);
        group.latest = group.latest.max(time);
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
        group.events >= self.max_events
    }

    /// Makes events of the groups that have ended.
    fn tell(&mut self, behind: &Batch) {
        if self.ended.is_empty() {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        let mut builder = event_builder(behind.host(), behind.received());
        let mut columns: Vec<ColumnBuilder> = self
            .kept
            .iter()
            .map(|_| ColumnBuilder::new(ended.len()))
            .collect();
        let mut summaries = ColumnBuilder::new(ended.len());
        let mut late = Bitmap::none(ended.len());
        for (row, (group, how)) in ended.iter().enumerate() {
            push_event(&mut builder, &group.text, group.id_len);
            for ((kept, values), column) in self.kept.iter().zip(&group.values).zip(&mut columns) {
                if !values.is_empty() {
                    set_json(column, row, values, kept.is_list);
                }
            }
            let duration = group.latest.saturating_sub(group.earliest) as f64 / 1e6;
            let span = summaries.append(|out| {
                out.extend_from_slice(b"{\"events\":");
                json::write_u64(out, group.events);
                out.extend_from_slice(b",\"duration_ms\":");
                json::write_f64(out, duration);
                out.push(b'}');
            });
            summaries.set(row, Cell::Json(span));
            match how {
                Ended::ByTime => {
                    self.counts.timed_out += 1;
                    if self.end.is_some() {
                        late.insert(row);
                    }
                }
                Ended::ForRoom => self.counts.for_room += 1,
                Ended::ByEvent | Ended::AtEnd => {}
            }
        }
        let mut edit = Edit::new();
        for (kept, column) in self.kept.iter().zip(columns) {
            edit.set(kept.path.clone(), column.finish());
        }
        edit.set(self.target.clone(), summaries.finish());
        let mut batch = builder.finish();
        // What a first event has in the way of a result stays, and the result is left out.
        let refused = batch.apply(edit);
        if !refused.is_empty() {
            let mut failures = Failures::none();
            failures.extend_refused(refused, &"_reducefailure".into());
            batch.mark_failed(&failures, false);
        }
        batch.add_tag(&late, &self.tag);
        self.derived.push(batch);
    }
}

/// Writes JSON values to a row: a list of them, or the only one.
fn set_json(column: &mut ColumnBuilder, row: usize, values: &[u8], is_list: bool) {
    if is_list {
        let span = column.append(|out| {
            out.push(b'[');
            out.extend_from_slice(values);
            out.push(b']');
        });
        return column.set(row, Cell::Json(span));
    }
    let cell = match json::kind(values) {
        json::Kind::String => {
            let body = &values[1..values.len() - 1];
            Cell::Text(column.append(|out| json::unescape(body, out)))
        }
        kind => {
            let span = column.append(|out| out.extend_from_slice(values));
            plain_cell(kind, values, span)
        }
    };
    column.set(row, cell);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, build_yaml, check_errors, lines_of, process};

    fn given(processor: &mut dyn Processor, lines: &[String]) -> Vec<String> {
        let mut batch = batch_of(lines.iter().map(String::as_str));
        process(processor, &mut batch);
        let mut told = lines_of(&batch);
        told.extend(processor.take_derived().iter().flat_map(lines_of));
        told
    }

    fn ended(processor: &mut dyn Processor) -> Vec<String> {
        processor.end(&batch_of([]));
        processor.take_derived().iter().flat_map(lines_of).collect()
    }

    #[test]
    fn groups_end_by_events_by_time_and_for_room() {
        let settings = "{ fields: [k], collect: [m], start: \"m == 'a'\", end: \"m == 'z'\", timeout: 10s, max_keys: 2, max_events: 3, time: t }";
        let mut processor = build_yaml(&SPEC, settings).expect("right");
        let mut given = |key: &str, message: &str, second: u64| {
            let line = format!(
                "{{\"t\":\"1969-05-01T12:00:{second:02}Z\",\"k\":\"{key}\",\"m\":\"{message}\"}}"
            );
            let told = given(processor.as_mut(), &[line]);
            let short = |line: String| -> serde_json::Value {
                let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
                serde_json::json!([event["k"], event["m"], event["tags"]])
            };
            told.into_iter()
                .map(short)
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        };
        assert!(given("x", "a", 0).is_empty());
        assert!(given("x", "b", 1).is_empty());
        assert_eq!(given("x", "z", 2), [r#"["x",["a","b","z"],null]"#]);
        assert!(given("x", "b", 3).is_empty());
        assert_eq!(given("x", "a", 4), [r#"["x",["b"],null]"#]);
        assert!(given("y", "b", 5).is_empty());
        assert_eq!(given("v", "b", 6), [r#"["x",["a"],null]"#]);
        assert!(given("v", "c", 7).is_empty());
        assert_eq!(given("v", "d", 8), [r#"["v",["b","c","d"],null]"#]);
        assert!(given("w", "b", 15).is_empty());
        assert_eq!(given("w", "b", 16), [r#"["y",["b"],["_reducetimeout"]]"#]);
        let counters = processor.take_counters();
        assert_eq!(
            counters[1..],
            [("groups_timed_out", 1), ("groups_ended_for_room", 2)]
        );
    }

    #[test]
    fn what_was_saved_goes_on_whatever_the_batches() {
        let stage = "reduce k collect=[n] last=[s] timeout=1h time=@metadata.timestamp";
        let mut number = crate::testing::numbers(4);
        let lines: Vec<String> = (0..2_000)
            .map(|n| {
                let (key, text) = (number(300), number(9));
                format!("{{\"k\":{key},\"n\":{n},\"s\":\"\\\"{text}\"}}")
            })
            .collect();
        let mut whole = build(&SPEC, stage).expect("right");
        assert!(given(whole.as_mut(), &lines).is_empty());
        let expected = ended(whole.as_mut());
        let mut parts = build(&SPEC, stage).expect("right");
        for lines in lines.chunks(170) {
            assert!(given(parts.as_mut(), lines).is_empty());
            let saved = parts.save();
            parts = build(&SPEC, stage).expect("right");
            parts.restore(&saved).expect("it is right");
            assert!(parts.restore(&saved[..saved.len() - 3]).is_err());
        }
        assert_eq!(ended(parts.as_mut()), expected);
        assert_eq!(expected.len(), 300);
    }

    #[test]
    fn events_without_a_key_pass_and_the_first_event_gives_its_id() {
        let mut processor = build(&SPEC, "reduce k last=[a.b]").expect("right");
        let lines = [
            r#"{"x":1}"#,
            r#"{"k":1,"a":{"b":1}}"#,
            r#"{"k":1,"a":{"b":[2,"y"]}}"#,
        ];
        let mut batch = batch_of(lines);
        process(processor.as_mut(), &mut batch);
        assert_eq!(lines_of(&batch), [lines[0]]);
        processor.end(&batch_of([]));
        let derived = processor.take_derived();
        assert_eq!(
            lines_of(&derived[0]),
            [r#"{"k":1,"a":{"b":[2,"y"]},"reduced":{"events":2,"duration_ms":0.0}}"#]
        );
        assert_eq!(derived[0].origin().shown_id(0), batch.origin().shown_id(1));
    }

    #[test]
    fn slips_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("reduce k collect=[k]", "`k` is written twice"),
                ("reduce k collect=[a] last=[a.b]", "`a.b` is written twice"),
                ("reduce k collect=[reduced.x]", "is written twice"),
                ("reduce k end='a =='", "expected a value"),
            ],
        );
    }
}
