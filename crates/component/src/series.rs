//! Metrics that a processor makes of events, for `/metrics` and the input `metrics`.
//!
//! Instances of a processor share one [`Metric`]. Each sums up its batch first and then merges that in one go, so that the lock is taken once a batch.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// The value of every label of the series that takes what found no room.
pub const OTHER: &str = "_other";

/// The most bytes of a label's value; longer ones are cut.
pub const LABEL_LEN_MAX: usize = 1024;

/// What a metric is called, and how it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricDefinition {
    /// Its name, without the `_total` of counters.
    pub name: String,
    /// One sentence.
    pub help: String,
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: Vec<String>,
}

/// How a metric is measured.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// The last value.
    Gauge,
    /// How many values are at most so large, for these bounds in ascending order.
    Histogram(Vec<f64>),
}

/// Measurements of the events of a batch, of one series.
#[derive(Debug)]
pub enum Measurement<'m> {
    /// What to add to a counter.
    Add(f64),
    /// The value of a gauge at a time in nanoseconds since 1970.
    Set(f64, i64),
    /// The sum of values, and how many of them are in each bucket: up to each bound, and above the last one.
    Observe(f64, &'m [u64]),
}

/// A series at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The values of the labels, in their order.
    pub labels: Vec<String>,
    pub value: SampleValue,
}

/// What a series is at.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// Of a counter or a gauge.
    Number(f64),
    /// The sum of the values, and how many of them are in each bucket: up to each bound, and above the last one.
    Distribution { sum: f64, buckets: Vec<u64> },
}

/// A metric with a series for each combination of values of its labels.
#[derive(Debug)]
pub struct Metric {
    definition: MetricDefinition,
    max_series: usize,
    /// A series that no event has touched for so long leaves.
    expire: Option<Duration>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    series: HashMap<Box<[u8]>, Series>,
    /// When it was last looked for room: that takes long where there are many.
    looked: Option<Instant>,
}

/// A metric of which several series are changed.
pub struct Merging<'m> {
    metric: &'m Metric,
    table: MutexGuard<'m, Table>,
    now: Instant,
}

#[derive(Debug)]
struct Series {
    value: SampleValue,
    /// The time of a gauge's value.
    time: i64,
    touched: Instant,
}

impl MetricKind {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl MetricDefinition {
    /// The names of the samples that it may have in the Prometheus text format and in OpenMetrics.
    pub fn sample_names(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            MetricKind::Counter => &["_total", "_created"],
            MetricKind::Gauge => &[""],
            MetricKind::Histogram(_) => &["_bucket", "_sum", "_count", "_created"],
        };
        let name = |suffix: &&str| format!("{}{suffix}", self.name);
        suffixes.iter().map(name).collect()
    }
}

impl Metric {
    /// A metric of so many series at most, beside the one for what finds no room.
    pub fn new(definition: MetricDefinition, max_series: usize, expire: Option<Duration>) -> Self {
        let metric = Self {
            definition,
            max_series,
            expire,
            table: Mutex::default(),
        };
        // What is known before the first event begins with 0.
        if metric.definition.labels.is_empty() && metric.definition.kind != MetricKind::Gauge {
            let series = metric.zero(Instant::now());
            metric.table.lock().series.insert(Box::default(), series);
        }
        metric
    }

    /// What it is called, and how it is measured.
    pub fn definition(&self) -> &MetricDefinition {
        &self.definition
    }

    /// Begins to change series.
    pub fn merge(&self) -> Merging<'_> {
        Merging {
            metric: self,
            table: self.table.lock(),
            now: Instant::now(),
        }
    }

    /// All series, in the order of their labels.
    pub fn samples(&self) -> Vec<Sample> {
        let mut merging = self.merge();
        merging.expire();
        let samples = merging.table.series.iter().map(|(key, series)| Sample {
            labels: labels_of(key),
            value: series.value.clone(),
        });
        let mut samples: Vec<Sample> = samples.collect();
        drop(merging);
        samples.sort_by(|one, other| one.labels.cmp(&other.labels));
        samples
    }

    /// Whether no event has touched a series for too long. What is known before the first event stays.
    fn is_over(&self, series: &Series, now: Instant) -> bool {
        let expire = self.expire.filter(|_| !self.definition.labels.is_empty());
        expire.is_some_and(|expire| now.saturating_duration_since(series.touched) >= expire)
    }

    fn zero(&self, now: Instant) -> Series {
        let value = match &self.definition.kind {
            MetricKind::Counter | MetricKind::Gauge => SampleValue::Number(0.0),
            MetricKind::Histogram(bounds) => SampleValue::Distribution {
                sum: 0.0,
                buckets: vec![0; bounds.len() + 1],
            },
        };
        Series {
            value,
            time: i64::MIN,
            touched: now,
        }
    }
}

impl Merging<'_> {
    /// Takes measurements of the series with these labels ([`add_label`]). Whether it had room: if not, they count for the series in which every label is [`OTHER`], but those of a gauge,
    /// which has no sensible value for several series, are left out.
    pub fn add(&mut self, labels: &[u8], measurement: &Measurement<'_>) -> bool {
        let (metric, now) = (self.metric, self.now);
        if let Some(series) = self.table.series.get_mut(labels) {
            if metric.is_over(series, now) {
                *series = metric.zero(now);
            }
            series.add(measurement, now);
            return true;
        }
        let mut has_room = self.table.series.len() < metric.max_series;
        if !has_room && self.is_worth_a_look() {
            self.expire();
            has_room = self.table.series.len() < metric.max_series;
        }
        let mut other = Vec::new();
        let key = match has_room {
            true => labels,
            false if metric.definition.kind == MetricKind::Gauge => return false,
            false => {
                for _ in &metric.definition.labels {
                    add_label(&mut other, OTHER.as_bytes());
                }
                &other
            }
        };
        let series = self.table.series.entry(key.into());
        series
            .or_insert_with(|| metric.zero(now))
            .add(measurement, now);
        has_room
    }

    /// Whether a part of the time in which series expire has passed since it was last looked for room.
    fn is_worth_a_look(&self) -> bool {
        self.metric.expire.is_some_and(|expire| {
            let looked = self.table.looked;
            looked.is_none_or(|looked| self.now.saturating_duration_since(looked) >= expire / 16)
        })
    }

    /// Takes out what no event has touched for too long.
    fn expire(&mut self) {
        let (metric, now) = (self.metric, self.now);
        if metric.expire.is_some() {
            self.table.looked = Some(now);
            self.table.series.retain(|_, it| !metric.is_over(it, now));
        }
    }
}

impl Series {
    fn add(&mut self, measurement: &Measurement<'_>, now: Instant) {
        self.touched = now;
        match (&mut self.value, measurement) {
            (SampleValue::Number(number), Measurement::Add(more)) => {
                *number = sum_of(*number, *more);
            }
            (SampleValue::Number(number), Measurement::Set(value, time)) => {
                if *time >= self.time {
                    (*number, self.time) = (*value, *time);
                }
            }
            (SampleValue::Distribution { sum, buckets }, Measurement::Observe(more, counts)) => {
                *sum = sum_of(*sum, *more);
                for (bucket, count) in buckets.iter_mut().zip(*counts) {
                    *bucket += count;
                }
            }
            _ => debug_assert!(false, "measured in another way: {measurement:?}"),
        }
    }
}

/// A sum that stays a number.
fn sum_of(sum: f64, more: f64) -> f64 {
    (sum + more).clamp(f64::MIN, f64::MAX)
}

/// Appends the value of the next label to those of a series: its length and its text, which is cut where it is too long.
#[inline]
pub fn add_label(labels: &mut Vec<u8>, value: &[u8]) {
    let mut len = value.len().min(LABEL_LEN_MAX);
    if len < value.len() {
        // Not within a character.
        while len > LABEL_LEN_MAX - 4 && value[len] & 0xC0 == 0x80 {
            len -= 1;
        }
    }
    labels.extend_from_slice(&(len as u32).to_le_bytes());
    labels.extend_from_slice(&value[..len]);
}

fn labels_of(mut key: &[u8]) -> Vec<String> {
    let mut labels = Vec::new();
    while let Some((len, rest)) = key.split_first_chunk() {
        let len = u32::from_le_bytes(*len) as usize;
        let (value, rest) = rest.split_at(len.min(rest.len()));
        labels.push(String::from_utf8_lossy(value).into_owned());
        key = rest;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(kind: MetricKind, labels: &[&str], max: usize, expire: Option<Duration>) -> Metric {
        let definition = MetricDefinition {
            name: "m".to_owned(),
            help: String::new(),
            kind,
            labels: labels.iter().map(ToString::to_string).collect(),
        };
        Metric::new(definition, max, expire)
    }

    fn key(values: &[&str]) -> Vec<u8> {
        let mut key = Vec::new();
        for value in values {
            add_label(&mut key, value.as_bytes());
        }
        key
    }

    fn numbers(metric: &Metric) -> Vec<(String, f64)> {
        let samples = metric.samples().into_iter();
        samples
            .map(|it| match it.value {
                SampleValue::Number(number) => (it.labels.join(","), number),
                SampleValue::Distribution { sum, .. } => (it.labels.join(","), sum),
            })
            .collect()
    }

    #[test]
    fn what_finds_no_room_counts_for_one_series_and_nothing_is_lost() {
        let metric = metric(MetricKind::Counter, &["a", "b"], 2, None);
        let mut merging = metric.merge();
        assert!(merging.add(&key(&["x", "1"]), &Measurement::Add(1.0)));
        assert!(merging.add(&key(&["x", "2"]), &Measurement::Add(2.0)));
        assert!(!merging.add(&key(&["y", "3"]), &Measurement::Add(4.0)));
        assert!(!merging.add(&key(&["z", ""]), &Measurement::Add(8.0)));
        assert!(merging.add(&key(&["x", "1"]), &Measurement::Add(16.0)));
        drop(merging);
        let expected = [("_other,_other", 12.0), ("x,1", 17.0), ("x,2", 2.0)];
        assert_eq!(numbers(&metric), expected.map(|(it, n)| (it.to_owned(), n)));
    }

    #[test]
    fn a_gauge_has_the_value_of_the_latest_time_and_none_for_other_series() {
        let metric = metric(MetricKind::Gauge, &["a"], 1, None);
        let mut merging = metric.merge();
        assert!(merging.add(&key(&["x"]), &Measurement::Set(5.0, 20)));
        assert!(merging.add(&key(&["x"]), &Measurement::Set(4.0, 10)));
        assert!(!merging.add(&key(&["y"]), &Measurement::Set(3.0, 30)));
        drop(merging);
        assert_eq!(numbers(&metric), [("x".to_owned(), 5.0)]);
    }

    #[test]
    fn a_counter_without_labels_begins_with_zero_and_never_expires() {
        for kind in [MetricKind::Counter, MetricKind::Histogram(vec![1.0])] {
            let metric = metric(kind, &[], 1, Some(Duration::ZERO));
            assert_eq!(numbers(&metric), [(String::new(), 0.0)]);
        }
        let gauge = metric(MetricKind::Gauge, &[], 1, None);
        assert!(gauge.samples().is_empty());
    }

    #[test]
    fn an_old_series_gives_its_place_away() {
        let metric = metric(MetricKind::Counter, &["a"], 1, Some(Duration::ZERO));
        let mut merging = metric.merge();
        assert!(merging.add(&key(&["x"]), &Measurement::Add(1.0)));
        assert!(merging.add(&key(&["y"]), &Measurement::Add(1.0)));
        drop(merging);
        assert!(metric.samples().is_empty());
    }

    #[test]
    fn a_series_that_is_over_begins_with_zero_without_anybody_looking() {
        let metric = metric(
            MetricKind::Counter,
            &["a"],
            9,
            Some(Duration::from_millis(1)),
        );
        let add = || metric.merge().add(&key(&["x"]), &Measurement::Add(1.0));
        add();
        std::thread::sleep(Duration::from_millis(5));
        add();
        let table = metric.table.lock();
        let values: Vec<&SampleValue> = table.series.values().map(|it| &it.value).collect();
        assert_eq!(values, [&SampleValue::Number(1.0)]);
    }

    #[test]
    fn a_full_table_is_not_searched_again_and_again() {
        let expire = Duration::from_secs(3600);
        let metric = metric(MetricKind::Counter, &["a"], 1, Some(expire));
        let mut merging = metric.merge();
        merging.add(&key(&["x"]), &Measurement::Add(1.0));
        assert!(merging.is_worth_a_look());
        merging.add(&key(&["y"]), &Measurement::Add(1.0));
        assert!(!merging.is_worth_a_look());
        merging.now += expire / 10;
        assert!(merging.is_worth_a_look());
    }

    #[test]
    fn a_sum_stays_a_number() {
        let metric = metric(MetricKind::Counter, &[], 1, None);
        for more in [f64::MAX, f64::MAX, f64::INFINITY] {
            metric.merge().add(&[], &Measurement::Add(more));
        }
        assert_eq!(numbers(&metric), [(String::new(), f64::MAX)]);
    }

    #[test]
    fn buckets_add_up() {
        let metric = metric(MetricKind::Histogram(vec![1.0, 2.0]), &["a"], 1, None);
        let mut merging = metric.merge();
        merging.add(&key(&["x"]), &Measurement::Observe(3.5, &[1, 0, 1]));
        merging.add(&key(&["x"]), &Measurement::Observe(1.5, &[0, 1, 0]));
        drop(merging);
        let value = SampleValue::Distribution {
            sum: 5.0,
            buckets: vec![1, 1, 1],
        };
        assert_eq!(metric.samples()[0].value, value);
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let text = format!("a{}", "é".repeat(600));
        let labels = labels_of(&key(&[&text]));
        assert_eq!(labels, [format!("a{}", "é".repeat(511))]);
        assert_eq!(labels_of(&key(&["", "b"])), ["", "b"]);
    }
}
