//! `metric`: counts events, and keeps numbers of them, for `/metrics`.
//!
//! An instance sums up the events of a batch by their labels. The engine has it add the sums to the metric that all instances share, unless the batch was handled before.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Failures, FieldPath, FieldRead, Value};
use component::series::{Measurement, Metric, MetricDefinition, MetricKind, add_label};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::EventTimes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;
use crate::number::Number;
use crate::remembered::TIME;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "metric",
    aliases: &[],
    summary: "Counts events, and keeps numbers of them, for `/metrics`.",
    description: include_str!("metric.md"),
    positional: Positional::fields(&["metric"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Requests by status, which pass as they are",
            stage: "metric http_requests by=[status]",
            input: r#"{"status":200}
{"status":404}"#,
            output: r#"{"status":200}
{"status":404}"#,
        },
        Example {
            title: "The sum of bytes by client, under a label of another name",
            stage: "metric sent_bytes value=bytes by=['peer = client.ip'] help='Bytes sent to clients.'",
            input: r#"{"client":{"ip":"10.0.0.1"},"bytes":512}"#,
            output: r#"{"client":{"ip":"10.0.0.1"},"bytes":512}"#,
        },
        Example {
            title: "How long requests take",
            stage: "metric request_seconds type=histogram value=took buckets=[0.1, 1, 10] by=[method]",
            input: r#"{"method":"GET","took":0.25}"#,
            output: r#"{"method":"GET","took":0.25}"#,
        },
        Example {
            title: "The last temperature of each room",
            stage: "metric room_celsius type=gauge value=celsius by=[room]",
            input: r#"{"room":"kitchen","celsius":21.5}"#,
            output: r#"{"room":"kitchen","celsius":21.5}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: true,
        build,
    },
};

/// Settings of `metric`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MetricConfig")]
struct Config {
    /// The name of the metric: letters, digits and underscores.
    metric: String,
    /// How it is measured.
    #[serde(rename = "type", default)]
    kind: Type,
    /// The field with the number that is added, set or observed. Default: `counter` counts events; the others need it.
    value: Option<String>,
    /// The fields whose values are labels: `status`, `verb = http.request.method`.
    by: Option<Vec<String>>,
    /// The upper bounds of the buckets of a histogram, in ascending order. Default: from 0.005 to 10, as Prometheus clients have them.
    buckets: Option<Vec<f64>>,
    /// What the metric is, in a sentence.
    help: Option<String>,
    /// How many combinations of label values there may be, from 1 to 100k.
    #[serde(default = "default_max_series")]
    max_series: Count,
    /// After how long without events a combination of label values is forgotten. Default: never.
    expire: Option<Positive<Period>>,
    /// The field with the time of an event, for gauges. Default: `@timestamp`.
    time: Option<String>,
}

/// How a metric is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Type {
    /// It counts events, or adds up their values.
    #[default]
    Counter,
    /// The value of the latest event.
    Gauge,
    /// How the values are distributed.
    Histogram,
}

fn default_max_series() -> Count {
    Count(1_000)
}

const MAX_SERIES: u64 = 100_000;

/// The most lines that a metric takes on `/metrics`, about.
const SAMPLES_MAX: u64 = 250_000;

/// The most labels of a metric.
const LABELS_MAX: usize = 20;

/// The bounds that Prometheus clients use, in seconds.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

const BUCKETS_MAX: usize = 100;

/// What the names of Millpond's own metrics begin with.
const OWN: [&str; 2] = ["millpond_", "process_"];

/// Labels that a metric has anyway.
const TAKEN_LABELS: [&str; 2] = ["pipeline", "le"];

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let (labels, by) = labels(node, config.by.as_deref().unwrap_or_default())?;
    let kind = kind(node, &config)?;
    let max_series = config.max_series.0;
    if max_series == 0 || max_series > MAX_SERIES {
        let message = "`max_series` must be from 1 to 100k";
        return Err(node.nearest("max_series").error(message));
    }
    let samples = match &kind {
        MetricKind::Histogram(bounds) => bounds.len() as u64 + 3,
        _ => 1,
    };
    if max_series * samples > SAMPLES_MAX {
        let most = SAMPLES_MAX / samples;
        let message = format!("`max_series` must be at most {most} with so many buckets");
        return Err(node.nearest("max_series").error(message));
    }
    let value = config.value.as_deref();
    let value = value.map(|text| names::field(node, "value", text));
    if config.time.is_some() && kind != MetricKind::Gauge {
        let message = "`time` has no effect: only a gauge asks which event is the latest";
        return Err(node.nearest("time").error(message));
    }
    let time = names::field(node, "time", config.time.as_deref().unwrap_or(TIME))?;
    let definition = MetricDefinition {
        name: name(node, &config)?,
        help: help(node, &config)?,
        kind,
        labels,
    };
    let expire = config.expire.map(|it| (*it).0);
    let groups = Groups {
        bounds: match &definition.kind {
            MetricKind::Histogram(bounds) => bounds.as_slice().into(),
            _ => Arc::default(),
        },
        is_gauge: definition.kind == MetricKind::Gauge,
        ..Groups::default()
    };
    Ok(Box::new(MetricProcessor {
        metric: Arc::new(Metric::new(definition, max_series as usize, expire)),
        by,
        value: value.transpose()?,
        time,
        groups,
        no_numbers: 0,
        beyond: 0,
    }))
}

fn kind(node: &Node, config: &Config) -> Result<MetricKind, ConfigError> {
    if config.buckets.is_some() && config.kind != Type::Histogram {
        return Err(node
            .nearest("buckets")
            .error("`buckets` has no effect without type=histogram"));
    }
    if config.value.is_none() && config.kind != Type::Counter {
        let word = match config.kind {
            Type::Gauge => "gauge",
            _ => "histogram",
        };
        return Err(node
            .error(format!("a {word} needs the field with its values"))
            .note("add value=FIELD"));
    }
    Ok(match config.kind {
        Type::Counter => MetricKind::Counter,
        Type::Gauge => MetricKind::Gauge,
        Type::Histogram => {
            let bounds = config.buckets.as_deref().unwrap_or(&BUCKETS);
            let is_ascending = bounds.windows(2).all(|pair| pair[0] < pair[1]);
            let is_finite = bounds
                .iter()
                .all(|bound| bound.is_finite() && *bound >= 0.0);
            if !is_ascending || !is_finite || bounds.is_empty() || bounds.len() > BUCKETS_MAX {
                let message = format!(
                    "`buckets` must be 1 to {BUCKETS_MAX} numbers that are not negative, each larger than the one before"
                );
                let error = node.nearest("buckets").error(message);
                return Err(error.note("what is larger than the last one is counted as well"));
            }
            MetricKind::Histogram(bounds.to_vec())
        }
    })
}

fn name(node: &Node, config: &Config) -> Result<String, ConfigError> {
    let at = node.nearest("metric");
    let name = config.metric.as_str();
    if !is_name(name) {
        return Err(at
            .error(format!("`{name}` cannot be the name of a metric"))
            .note("it must consist of letters, digits and underscores, and not begin with a digit: http_requests"));
    }
    if let Some(own) = OWN.iter().find(|own| name.starts_with(**own)) {
        return Err(at.error(format!(
            "names of Millpond's own metrics begin with `{own}`: choose another one"
        )));
    }
    let bare = match config.kind {
        Type::Counter => name.strip_suffix("_total").unwrap_or(name),
        _ => name,
    };
    match bare {
        "" => Err(at.error("`_total` is added to the name of a counter: choose a name")),
        bare => Ok(bare.to_owned()),
    }
}

/// Whether a metric or a label can be called so.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part)
}

fn help(node: &Node, config: &Config) -> Result<String, ConfigError> {
    match &config.help {
        Some(help) if help.chars().any(char::is_control) => Err(node
            .nearest("help")
            .error("`help` must be a text of one line")),
        Some(help) => Ok(help.clone()),
        None => Ok(match (config.kind, &config.value) {
            (Type::Counter, None) => "Events.".to_owned(),
            (_, value) => format!("`{}` of events.", value.as_deref().unwrap_or_default()),
        }),
    }
}

/// The names of labels, and the fields that have their values.
fn labels(node: &Node, by: &[String]) -> Result<(Vec<String>, Vec<FieldPath>), ConfigError> {
    if by.len() > LABELS_MAX {
        let message = format!("a metric has at most {LABELS_MAX} labels");
        return Err(node.nearest("by").error(message));
    }
    let mut labels = Vec::with_capacity(by.len());
    let mut fields = Vec::with_capacity(by.len());
    let mut seen = BTreeSet::new();
    for (index, text) in by.iter().enumerate() {
        let at = node.nearest(&format!("by[{index}]"));
        // A field whose name has such a character is written in backticks or brackets.
        let named = text.split_once('=');
        let (label, field) = match named.filter(|_| !text.starts_with(['`', '['])) {
            Some((label, field)) => (label.trim().to_owned(), names::path(at, field.trim())?),
            None => {
                let field = names::path(at, text)?;
                (label_of(&field), field)
            }
        };
        let renamed =
            |error: ConfigError| error.note(format!("give it another name: NAME = {field}"));
        if !is_name(&label) || label.starts_with("__") {
            let message = format!("`{label}` cannot be the name of a label");
            return Err(renamed(at.error(message)));
        }
        if TAKEN_LABELS.contains(&&*label) {
            let message = format!("`{label}` is the name of a label that the metric has anyway");
            return Err(renamed(at.error(message)));
        }
        if !seen.insert(label.clone()) {
            return Err(renamed(
                at.error(format!("two labels are called `{label}`")),
            ));
        }
        labels.push(label);
        fields.push(field);
    }
    Ok((labels, fields))
}

/// What a label is called that has the values of a field.
fn label_of(field: &FieldPath) -> String {
    let words = field.keys().join("_");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let label: String = words
        .chars()
        .map(|c| if is_part(c) { c } else { '_' })
        .collect();
    // Labels that begin with two are those of Prometheus.
    let bare = label.trim_start_matches('_');
    match label.starts_with("__") || label.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{bare}"),
        false => label,
    }
}

#[derive(Clone)]
struct MetricProcessor {
    metric: Arc<Metric>,
    by: Vec<FieldPath>,
    /// The field with the number; none where events are counted.
    value: Option<FieldPath>,
    time: FieldPath,
    /// The events of the last batch.
    groups: Groups,
    /// Values that cannot be used, since the counter was asked for.
    no_numbers: u64,
    /// Events whose labels found no room, likewise.
    beyond: u64,
}

impl Processor for MetricProcessor {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        self.groups.clear();
        let columns = batch.columns(self.by.iter().chain(&self.value));
        let (by, values) = columns.split_at(self.by.len());
        let values = values.first();
        let is_gauge = self.groups.is_gauge;
        let times = is_gauge.then(|| EventTimes::in_field(batch, &self.time));
        for row in rows.iter() {
            let number = match &values {
                None => 1.0,
                Some(values) => match values.value(row) {
                    Value::Missing | Value::Null => continue,
                    value => match Number::of(value).map(Number::to_f64) {
                        Some(number) if number >= 0.0 || is_gauge => number,
                        _ => {
                            self.no_numbers += 1;
                            continue;
                        }
                    },
                },
            };
            let time = times.as_ref().map_or(0, |times| times.nanos(row));
            self.groups.add(by, row, number, time);
        }
        Failures::none()
    }

    fn metric(&self) -> Option<Arc<Metric>> {
        Some(self.metric.clone())
    }

    fn measure(&mut self) {
        let mut merging = self.metric.merge();
        for (index, group) in self.groups.found.iter().enumerate() {
            let key = &self.groups.keys[group.start..group.end];
            let measurement = self
                .groups
                .measurement(index, &self.metric.definition().kind);
            if !merging.add(key, &measurement) {
                self.beyond += group.events;
            }
        }
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.by.iter().chain(&self.value).cloned();
        let time = self.groups.is_gauge.then(|| {
            let is_default = self.time.to_string() == TIME;
            FieldRead::always(self.time.clone()).may_be_absent(is_default)
        });
        let fields = fields.map(FieldRead::always);
        fields.chain(time).map(Arc::new).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("events_of_other_series", std::mem::take(&mut self.beyond)),
            (
                "values_without_number",
                std::mem::take(&mut self.no_numbers),
            ),
        ]
    }
}

/// The events of a batch by their labels.
#[derive(Clone, Default)]
struct Groups {
    /// The bounds of a histogram's buckets.
    bounds: Arc<[f64]>,
    is_gauge: bool,
    hasher: RandomState,
    table: HashTable<usize>,
    found: Vec<Group>,
    /// The labels of all groups, one after the other.
    keys: Vec<u8>,
    /// The buckets of a histogram, of one group after the other.
    buckets: Vec<u64>,
    /// Kept for its memory.
    text: Vec<u8>,
}

#[derive(Clone)]
struct Group {
    /// Where its labels are.
    start: usize,
    end: usize,
    hash: u64,
    events: u64,
    /// The sum of the numbers; of a gauge, the latest one.
    number: f64,
    time: i64,
}

impl Groups {
    fn clear(&mut self) {
        self.table.clear();
        self.found.clear();
        self.keys.clear();
        self.buckets.clear();
    }

    fn add(&mut self, by: &[Arc<Column>], row: usize, number: f64, time: i64) {
        let start = self.keys.len();
        for column in by {
            match column.value(row) {
                Value::Text(text) | Value::Number(text) => add_label(&mut self.keys, text),
                value => {
                    self.text.clear();
                    value.write_text(&mut self.text);
                    add_label(&mut self.keys, &self.text);
                }
            }
        }
        let index = self.group(start);
        let group = &mut self.found[index];
        group.events += 1;
        if !self.is_gauge {
            group.number += number;
        } else if time >= group.time {
            (group.number, group.time) = (number, time);
        }
        if !self.bounds.is_empty() {
            let bucket = self.bounds.partition_point(|bound| *bound < number);
            self.buckets[index * (self.bounds.len() + 1) + bucket] += 1;
        }
    }

    /// The group with the labels that begin at `start`, which are kept if it is new.
    fn group(&mut self, start: usize) -> usize {
        let key = &self.keys[start..];
        let hash = self.hasher.hash_one(key);
        let is_it = |&index: &usize| {
            let group: &Group = &self.found[index];
            group.hash == hash && self.keys[group.start..group.end] == *key
        };
        if let Some(&index) = self.table.find(hash, is_it) {
            self.keys.truncate(start);
            return index;
        }
        let index = self.found.len();
        self.found.push(Group {
            start,
            end: self.keys.len(),
            hash,
            events: 0,
            number: 0.0,
            time: i64::MIN,
        });
        let found = &self.found;
        self.table
            .insert_unique(hash, index, |&index| found[index].hash);
        if !self.bounds.is_empty() {
            self.buckets
                .resize((index + 1) * (self.bounds.len() + 1), 0);
        }
        index
    }

    fn measurement(&self, index: usize, kind: &MetricKind) -> Measurement<'_> {
        let group = &self.found[index];
        match kind {
            MetricKind::Counter => Measurement::Add(group.number),
            MetricKind::Gauge => Measurement::Set(group.number, group.time),
            MetricKind::Histogram(bounds) => {
                let width = bounds.len() + 1;
                Measurement::Observe(group.number, &self.buckets[index * width..][..width])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use component::series::SampleValue;

    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process};

    /// The series that a stage makes of events, each in a batch of its own and all in one.
    fn measured(stage: &str, events: &[&str]) -> Vec<(String, SampleValue)> {
        let together = measured_in(stage, &[events]);
        let apart: Vec<&[&str]> = events.chunks(1).collect();
        assert_eq!(measured_in(stage, &apart), together, "{stage}");
        together
    }

    fn measured_in(stage: &str, batches: &[&[&str]]) -> Vec<(String, SampleValue)> {
        let mut one = build(&SPEC, stage).expect(stage);
        let mut other = one.fork();
        for (index, events) in batches.iter().enumerate() {
            let mut batch = batch_of(events.iter().copied());
            let instance = if index % 2 == 0 { &mut one } else { &mut other };
            process(instance.as_mut(), &mut batch);
            assert_eq!(lines_of(&batch), *events);
            instance.measure();
        }
        let metric = one.metric().expect("it makes one");
        let samples = metric.samples().into_iter();
        samples.map(|it| (it.labels.join(","), it.value)).collect()
    }

    fn numbers<const N: usize>(expected: [(&str, f64); N]) -> Vec<(String, SampleValue)> {
        let expected = expected.into_iter();
        expected
            .map(|(labels, number)| (labels.to_owned(), SampleValue::Number(number)))
            .collect()
    }

    #[test]
    fn a_counter_counts_events_or_adds_their_numbers_by_labels() {
        let events = [
            r#"{"a":"x","b":{"c":1},"n":2}"#,
            r#"{"a":"x","b":{"c":"1"},"n":"0.5"}"#,
            r#"{"a":"y","b":{"c":true},"n":-1}"#,
            r#"{"b":{"c":[1]},"n":null}"#,
            r#"{"a":null,"n":"z"}"#,
            r#"{"a":"x","b":{"c":1}}"#,
        ];
        let count = numbers([(",", 1.0), (",[1]", 1.0), ("x,1", 3.0), ("y,true", 1.0)]);
        assert_eq!(measured("metric m by=[a, b.c]", &events), count);
        assert_eq!(measured("metric m", &events), numbers([("", 6.0)]));
        let sum = numbers([("x", 2.5)]);
        assert_eq!(measured("metric m value=n by=a", &events), sum);
        let mut stage = build(&SPEC, "metric m value=n").expect("it builds");
        process(stage.as_mut(), &mut batch_of(events));
        let counters = stage.take_counters();
        assert!(
            counters.contains(&("values_without_number", 2)),
            "{counters:?}"
        );
    }

    #[test]
    fn a_gauge_has_the_number_of_the_latest_event() {
        let events = [
            r#"{"@timestamp":"2026-05-01T12:00:01Z","a":"x","n":-4}"#,
            r#"{"@timestamp":"2026-05-01T12:00:00Z","a":"x","n":9}"#,
            r#"{"@timestamp":"2026-05-01T12:00:00Z","a":"y","n":1}"#,
            r#"{"@timestamp":"2026-05-01T12:00:00Z","a":"y","n":2}"#,
        ];
        let stage = "metric m type=gauge value=n by=a";
        assert_eq!(measured(stage, &events), numbers([("x", -4.0), ("y", 2.0)]));
        let mut stage = build(&SPEC, &format!("{stage} max_series=1")).expect("it builds");
        process(stage.as_mut(), &mut batch_of(events));
        stage.measure();
        assert!(
            stage
                .take_counters()
                .contains(&("events_of_other_series", 2))
        );
    }

    #[test]
    fn a_histogram_counts_values_up_to_each_bound() {
        let events =
            ["0.5", "1", "1.5", "2", "7", "-1", "0"].map(|n| format!(r#"{{"a":"x","n":{n}}}"#));
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let stage = "metric m type=histogram value=n buckets=[1, 2] by=a";
        let value = SampleValue::Distribution {
            sum: 12.0,
            buckets: vec![3, 2, 1],
        };
        assert_eq!(measured(stage, &events), [("x".to_owned(), value)]);
    }

    #[test]
    fn a_batch_that_was_handled_before_adds_nothing() {
        let mut stage = build(&SPEC, "metric m").expect("it builds");
        for is_first in [true, false, true] {
            process(stage.as_mut(), &mut batch_of(["{}", "{}"]));
            if is_first {
                stage.measure();
            }
        }
        let metric = stage.metric().expect("it makes one");
        assert_eq!(metric.samples()[0].value, SampleValue::Number(4.0));
    }

    #[test]
    fn names_of_labels_follow_from_fields() {
        let stage = "metric a_total by=['verb = http.request.method', http.request.body, @metadata.x, '1a', \"['x-y']\", _index, ä_b, '`a=b`']";
        let metric = build(&SPEC, stage).expect("it builds").metric();
        let definition = metric.expect("it makes one").definition().clone();
        let labels = [
            "verb",
            "http_request_body",
            "_metadata_x",
            "_1a",
            "x_y",
            "_index",
            "_b",
            "a_b",
        ];
        assert_eq!(
            (&*definition.name, definition.labels),
            ("a", labels.map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        check_errors(
            &SPEC,
            &[
                ("metric a-b", "cannot be the name of a metric"),
                ("metric 1a", "cannot be the name of a metric"),
                ("metric millpond_x", "Millpond's own metrics"),
                ("metric a type=gauge", "a gauge needs the field"),
                ("metric a type=histogram", "a histogram needs the field"),
                ("metric a type=summary", "summary"),
                ("metric a buckets=[1]", "`buckets` has no effect"),
                (
                    "metric a type=histogram value=x buckets=[2, 1]",
                    "each larger",
                ),
                ("metric a type=histogram value=x buckets=[]", "each larger"),
                ("metric a by=[pipeline]", "anyway"),
                ("metric a by=[a.b, a_b]", "two labels are called `a_b`"),
                ("metric a by=['a-b = c']", "cannot be the name of a label"),
                ("metric a by=['__a = b']", "cannot be the name of a label"),
                (
                    "metric a type=histogram value=x buckets=[-1, 1]",
                    "not negative",
                ),
                (
                    "metric a type=histogram value=x max_series=20k",
                    "at most 17857 with so many buckets",
                ),
                (
                    "metric a by=[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u]",
                    "at most 20 labels",
                ),
                ("metric a max_series=0", "from 1 to 100k"),
                ("metric a max_series=1M", "from 1 to 100k"),
                ("metric a time=x", "`time` has no effect"),
            ],
        );
    }
}
