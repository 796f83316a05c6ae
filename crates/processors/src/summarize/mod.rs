//! `summarize`: counts, sums and other functions of events, by keys and time.
//!
//! It is ordered: the result is the same with any number of workers. Groups are in [`windows`], functions in [`functions`].

mod distinct;
mod functions;
mod sketch;
#[cfg(test)]
mod tests;
mod windows;

use std::cmp::Reverse;
use std::sync::Arc;

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, Column, ColumnBuilder, Edit, Encoding, Failures, FieldPath,
    FieldRead, Source, Span as TextSpan, Stream, fnv::fnv128,
};
use bytes::Bytes;
use component::{Build, BuildContext, Example, Limit, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::derived::Derived;
use crate::names::{field, overlap};
use crate::remembered::{TIME, default_max_keys, default_time, max_keys, write_values};
use crate::setting_words::refuse_words_of_functions;
use functions::Plan;
use windows::{Span, Window, Windows};

/// The tag of the row of events whose keys found no room.
const TAG: &str = "_other_keys";

/// The counter of events whose stretch of time has been told of.
const LATE: &str = "events_late";

/// Rows of a batch of results at most.
const ROWS_MAX: usize = 4096;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "summarize",
    aliases: &[],
    summary: "Counts events and works out sums, averages, percentiles and more, by keys and time.",
    description: include_str!("summarize.md"),
    positional: Positional::list(&["functions"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Requests and bytes of each client",
            stage: "summarize count(), sum(bytes) by=[client]",
            input: r#"{"client":"a","bytes":10}
{"client":"b","bytes":5}
{"client":"a","bytes":20}
{"client":"a"}"#,
            output: r#"{"client":"a","count":3,"bytes_sum":30}
{"client":"b","count":1,"bytes_sum":5}"#,
        },
        Example {
            title: "Events of each minute",
            stage: "summarize count() every=1m",
            input: r#"{"@timestamp":"2026-05-01T12:00:10Z"}
{"@timestamp":"2026-05-01T12:01:10Z"}
{"@timestamp":"2026-05-01T12:00:50Z"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00.000Z","count":2}
{"@timestamp":"2026-05-01T12:01:00.000Z","count":1}"#,
        },
        Example {
            title: "How long requests take, under names of one's own",
            stage: "summarize 'slowest = max(ms)', median(ms), avg(ms), 'users = distinct(user)' by=[path]",
            input: r#"{"path":"/","ms":3,"user":"joe"}
{"path":"/","ms":5,"user":"ann"}
{"path":"/","ms":4.5,"user":"joe"}
{"path":"/x","user":"joe"}"#,
            output: r#"{"path":"/","slowest":5,"ms_median":4.527,"ms_avg":4.166666666666667,"users":2}
{"path":"/x","slowest":null,"ms_median":null,"ms_avg":null,"users":1}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Ordered,
        sees_sealed: true,
        build,
    },
};

/// Settings of `summarize`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// What to work out: `count()`, `sum(bytes)`, `total = sum(bytes)`.
    pub(crate) functions: Vec<String>,
    /// The fields whose values make a group. Default: all events are one group.
    pub(crate) by: Option<Vec<String>>,
    /// How long a window of time is, from 1ms to 365d. Default: one window, for all events up to the end of the run.
    pub(crate) every: Option<Positive<Period>>,
    /// How long after its end a window is open for late events. Default: 1m in a service, and until the end of the run where the pipeline ends with its inputs.
    pub(crate) lateness: Option<Period>,
    /// The field with the time of an event, for `every`; `@metadata.timestamp` is the time at which it was received.
    #[serde(default = "default_time")]
    pub(crate) time: String,
    /// How many groups are remembered in all windows together, from 1 to 1G.
    #[serde(default = "default_max_keys")]
    pub(crate) max_keys: Count,
}

const EVERY_MAX: Period = Period::from_secs(365 * 86_400);
const LATENESS: Period = Period::from_secs(60);

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words_of_functions(node, is_setting)?;
    let config: Config = parse(node)?;
    if config.functions.is_empty() {
        return Err(node
            .nearest("functions")
            .error("name at least one function, such as count()"));
    }
    let by = config.by.as_deref().map(|by| {
        let empty = "name at least one field, or leave `by` out for one group of all events";
        component::fields(node, "by", by, empty)
    });
    let by = by.transpose()?.unwrap_or_default();
    Ok(Box::new(make(node, &config, by, context)?))
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "every" | "lateness" => value.parse::<Period>().is_ok(),
        "max_keys" => value.parse::<Count>().is_ok(),
        _ => false,
    }
}

/// A processor that summarizes by these fields; `config.by` counts for nothing.
pub(crate) fn make(
    node: &Node,
    config: &Config,
    by: Vec<FieldPath>,
    context: &BuildContext,
) -> Result<Summarize, ConfigError> {
    let mut plan = Plan::default();
    for (index, text) in config.functions.iter().enumerate() {
        plan.add(node.nearest(&format!("functions[{index}]")), text)?;
    }
    let is_time = |path: &FieldPath| *path == FieldPath::from_keys(["@timestamp"]);
    for function in &plan.functions {
        let target = &function.target;
        let is_taken = by.iter().any(|path| overlap(path, target))
            || (config.every.is_some() && is_time(target));
        if is_taken {
            return Err(node
                .nearest("functions")
                .error(format!(
                    "a result goes to `{target}`, which is something else already"
                ))
                .note("give it another name: NAME = FUNCTION"));
        }
    }
    if config.every.is_some() && by.iter().any(is_time) {
        return Err(node
            .nearest("by")
            .error("`@timestamp` is the beginning of the window where `every` is set"));
    }
    let span = span(node, config, context)?;
    let time = Some(field(node, "time", &config.time)?);
    let settings = format!("{:?} {by:?} {span:?}", config.functions);
    Ok(Summarize {
        windows: Windows::new(span, max_keys(node, config.max_keys)?),
        plan: Arc::new(plan),
        by,
        time: time.filter(|_| span.every.is_some()),
        limit: None,
        operator: settings,
        tag: context.tag_or(TAG),
        reason: SPEC.name.into(),
        derived: Derived::default(),
        key: Vec::new(),
        text: Vec::new(),
        counts: Counts::default(),
        crowded_out: false,
    })
}

fn span(node: &Node, config: &Config, context: &BuildContext) -> Result<Span, ConfigError> {
    let Some(every) = config.every.as_ref().map(|every| **every) else {
        if config.lateness.is_some() {
            return Err(node
                .nearest("lateness")
                .error("`lateness` has no effect without `every`"));
        }
        if config.time != TIME {
            return Err(node
                .nearest("time")
                .error("`time` has no effect without `every`")
                .note("add how long a stretch of time is, for example: every=1m"));
        }
        return Ok(Span {
            every: None,
            lateness: None,
        });
    };
    if every < Period::from_millis(1) || every > EVERY_MAX {
        return Err(node
            .nearest("every")
            .error("`every` must be from 1ms to 365d"));
    }
    let nanos = |period: Period| i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
    let default = (!context.finite).then_some(LATENESS);
    Ok(Span {
        every: Some(nanos(every)),
        lateness: config.lateness.or(default).map(nanos),
    })
}

/// What is counted since the counters were asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    late: u64,
    other_keys: u64,
    no_numbers: u64,
}

#[derive(Clone)]
pub(crate) struct Summarize {
    plan: Arc<Plan>,
    by: Vec<FieldPath>,
    /// Where the time of events is, if there are windows.
    time: Option<FieldPath>,
    windows: Windows,
    /// So many groups are told of, those with the highest count; none where all are.
    limit: Option<usize>,
    /// What it is called in the ids of results.
    operator: String,
    /// The tag of the row of events whose keys found no room.
    tag: Arc<str>,
    reason: Arc<str>,
    derived: Derived,
    /// The key of one event. Kept for its memory, as is the next.
    key: Vec<u8>,
    text: Vec<u8>,
    counts: Counts,
    /// Events came late because their window had been closed to have room for others; not yet told.
    crowded_out: bool,
}

impl Processor for Summarize {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let paths = self.by.iter().chain(&self.plan.fields);
        let columns = batch.columns(paths.chain(&self.time));
        let (keys, fields) = columns.split_at(self.by.len());
        let times = self.time.as_ref();
        let times = times.map(|path| EventTimes::in_field(batch, path));
        let received = batch.received();
        let mut last = None;
        for row in rows.iter() {
            last = Some(row);
            let time = times.as_ref().map_or(0, |times| times.nanos(row));
            write_values(keys, row, &mut self.key);
            let first = || batch.origin().hash(row);
            let found = self.windows.works(&self.plan, time, &self.key, first);
            let Some((works, is_other)) = found else {
                self.counts.late += 1;
                self.crowded_out |= self.windows.was_crowded_out(time);
                continue;
            };
            self.counts.other_keys += u64::from(is_other);
            for (task, work) in self.plan.tasks.iter().zip(works) {
                let value = match task.field {
                    Some(field) => fields[field].value(row),
                    None => batch::Value::Missing,
                };
                let is_used = task.add(work, value, &mut self.text);
                self.counts.no_numbers += u64::from(!is_used);
            }
            self.windows.reach(time, received);
        }
        if let Some(last) = last.filter(|_| self.time.is_none()) {
            self.windows.extend(rows.count(), batch.origin().hash(last));
        }
        batch.drop_rows(rows, &self.reason);
        for window in self.windows.take_closed() {
            self.tell(&window, batch);
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
        for window in self.windows.take_all() {
            self.tell(&window, last);
        }
    }

    fn stand_at(&mut self, place: &str) {
        self.operator = format!("{place} {}", self.operator);
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        self.windows.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.windows.restore(&self.plan, saved)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.by.iter().chain(&self.plan.fields).cloned();
        let time = self.time.iter().map(|time| {
            let is_default = time.to_string() == TIME;
            FieldRead::always(time.clone()).may_be_absent(is_default)
        });
        let fields = fields.map(FieldRead::always);
        fields.chain(time).map(Arc::new).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let counts = std::mem::take(&mut self.counts);
        vec![
            (LATE, counts.late),
            ("events_of_other_keys", counts.other_keys),
            ("values_without_number", counts.no_numbers),
        ]
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        let text = "more than 10,000 stretches of time were open: the earliest were told of, and events of these that came later are not counted; a longer `every` avoids it";
        let warning = || Warning::limited(Limit::events(LATE), text.to_owned());
        let is_new = std::mem::take(&mut self.crowded_out);
        is_new.then(warning).into_iter().collect()
    }
}

impl Summarize {
    /// It tells only of so many groups, those with the highest counts, and has another name.
    pub(crate) fn limited(self, limit: usize, name: &str) -> Self {
        Self {
            limit: Some(limit),
            operator: format!("{name} {limit} {}", self.operator),
            reason: name.into(),
            ..self
        }
    }

    /// Makes events of a window's groups, behind those of a batch.
    fn tell(&mut self, window: &Window, behind: &Batch) {
        let mut rows: Vec<usize> = (0..window.len()).collect();
        if let Some(limit) = self.limit {
            // Equal ones stay in the order in which they came first.
            rows.sort_by_key(|&row| Reverse(window.count(row, self.plan.tasks.len())));
            rows.truncate(limit);
        }
        for rows in rows.chunks(ROWS_MAX) {
            let batch = self.rows(window, rows, behind);
            self.derived.push(batch);
        }
    }

    fn rows(&self, window: &Window, rows: &[usize], behind: &Batch) -> Batch {
        let mut builder =
            BatchBuilder::new(Encoding::Json, behind.host(), behind.received(), false);
        builder.reserve(rows.len());
        let mut operator = format!("{} {:016x}", self.operator, window.first);
        if self.time.is_none() {
            // Another selection of events is another result.
            let (events, last) = window.extent;
            operator += &format!(" {events} {last:016x}");
        }
        let id = fnv128(operator.as_bytes());
        let operator = batch::Window::operator(&operator);
        builder.stream(&Arc::new(Stream::new(id, Source::Generated)));
        let buffer = builder.buffer(Bytes::from_static(b"{}"));
        let document = TextSpan {
            buffer,
            start: 0,
            len: 2,
        };
        let len = rows.len();
        let mut keys: Vec<ColumnBuilder> =
            self.by.iter().map(|_| ColumnBuilder::new(len)).collect();
        let functions = self.plan.functions.iter();
        let mut results: Vec<ColumnBuilder> = functions.map(|_| ColumnBuilder::new(len)).collect();
        let mut others = Bitmap::none(len);
        let (start, end) = (window.start, self.windows.end(window));
        for (index, &row) in rows.iter().enumerate() {
            let (key, works) = window.row(row, self.plan.tasks.len());
            builder.push(document, row as u64, row as u64 + 1);
            builder.window_last(&batch::Window {
                operator,
                key: key.unwrap_or(b"other keys"),
                start,
                end,
            });
            match key {
                Some(key) => set_key(&mut keys, index, key),
                None => others.insert(index),
            }
            for (function, column) in self.plan.functions.iter().zip(&mut results) {
                column.set(index, function.result(&works[function.task]));
            }
        }
        let mut edit = Edit::new();
        if self.time.is_some() {
            let time = Column::constant(Cell::Time(start), len);
            edit.set(FieldPath::from_keys(["@timestamp"]), time);
        }
        for (path, column) in self.by.iter().zip(keys) {
            edit.set(path.clone(), column.finish());
        }
        for (function, column) in self.plan.functions.iter().zip(results) {
            edit.set(function.target.clone(), column.finish());
        }
        let mut batch = builder.finish();
        // Documents without fields refuse nothing.
        batch.apply(edit);
        batch.add_tag(&others, &self.tag);
        batch
    }
}

/// Writes the values of a key, as [`write_values`] has them, to a row.
fn set_key(columns: &mut [ColumnBuilder], row: usize, mut key: &[u8]) {
    for column in columns {
        let Some((length, rest)) = key.split_first_chunk() else {
            return;
        };
        let length = u32::from_le_bytes(*length) as usize;
        let (value, rest) = rest.split_at(length.min(rest.len()));
        key = rest;
        let cell = match value {
            [] => continue,
            [b'"', text @ ..] => Cell::Text(column.append(|out| out.extend_from_slice(text))),
            b"null" => Cell::Null,
            b"true" => Cell::Bool(true),
            b"false" => Cell::Bool(false),
            [b'{' | b'[', ..] => Cell::Json(column.append(|out| out.extend_from_slice(value))),
            _ => Cell::Number(column.append(|out| out.extend_from_slice(value))),
        };
        column.set(row, cell);
    }
}
