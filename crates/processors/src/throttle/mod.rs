//! `throttle`: lets so many events pass in a time, for each key.
//!
//! It is ordered, so that the result is the same with any number of workers. How the limit works is said in [`buckets`]; what is remembered of
//! a key is its fingerprint ([`crate::remembered`]), a time, and how much of the limit is taken.

mod buckets;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use batch::{Batch, Bitmap, Column, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Period, Positional, Positive};
use expr::EventTimes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::field;
use crate::remembered::{
    Fingerprint, PREPARED_KEYS, default_max_keys, default_time, max_keys, reads, write_values,
};
use crate::setting_words::refuse_words_in;
use buckets::{Buckets, Pace};

const TAG: &str = "_throttled";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "throttle",
    aliases: &[],
    summary: "Limits how many events pass in a time, for each key.",
    description: DESCRIPTION,
    positional: Positional::list(&["by"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Two events a minute for each client; `throttle client rate=2 per=1m` is the same",
            stage: "throttle rate=2 per=1m by=client",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","client":"a","n":1}
{"@timestamp":"2026-05-01T12:00:01Z","client":"a","n":2}
{"@timestamp":"2026-05-01T12:00:02Z","client":"a","n":3}
{"@timestamp":"2026-05-01T12:00:02Z","client":"b","n":4}
{"@timestamp":"2026-05-01T12:00:30Z","client":"a","n":5}
{"@timestamp":"2026-05-01T12:00:31Z","client":"a","n":6}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","client":"a","n":1}
{"@timestamp":"2026-05-01T12:00:01Z","client":"a","n":2}
{"@timestamp":"2026-05-01T12:00:02Z","client":"b","n":4}
{"@timestamp":"2026-05-01T12:00:30Z","client":"a","n":5}"#,
        },
        Example {
            title: "Tag what is too much; a `drop '_throttled' in tags && level != 'error'` behind it lets errors pass",
            stage: "throttle rate=1 per=10s on_exceed=tag",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","level":"info"}
{"@timestamp":"2026-05-01T12:00:09Z","level":"error"}
{"@timestamp":"2026-05-01T12:00:10Z","level":"info"}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","level":"info"}
{"@timestamp":"2026-05-01T12:00:09Z","level":"error","tags":["_throttled"]}
{"@timestamp":"2026-05-01T12:00:10Z","level":"info"}"#,
        },
        Example {
            title: "One event each half second on average, three at once",
            stage: "throttle host, app rate=2 burst=3",
            input: r#"{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":1}
{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":2}
{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":3}
{"@timestamp":"2026-05-01T12:00:00.499Z","host":"web","app":"x","n":4}
{"@timestamp":"2026-05-01T12:00:00.5Z","host":"web","app":"x","n":5}"#,
            output: r#"{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":1}
{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":2}
{"@timestamp":"2026-05-01T12:00:00Z","host":"web","app":"x","n":3}
{"@timestamp":"2026-05-01T12:00:00.5Z","host":"web","app":"x","n":5}"#,
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
Each key, which is the values of the fields in `by`, has a bucket with room for `burst` events, full at first. An event that passes takes one; one comes back after each `per` / `rate`, until the bucket is full. An event that finds the bucket empty is
dropped, or tagged with `on_exceed=tag`, and takes nothing. So at most `rate` events pass in each `per` on average, and at most `burst` more at once: in any stretch of time, `burst` plus `rate` for each `per`. With `burst=1`, two events
that pass are at least `per` / `rate` apart. That time is rounded down to whole nanoseconds, which lets at most 0.1 % more pass.

**Without `by`**, there is one limit for all events. To leave events out of the limit, use `if`: with `throttle client rate=100 if=\"level != 'error'\"`, errors pass and take nothing. Events that failed in an earlier processor are limited
like all others.

**What is too much** is dropped and counted as dropped. With `on_exceed=tag`, it passes with the tag `_throttled` (or `tag`), for a later `where` or `drop` or the `if` of an output. This is not a failure: later processors still run. The counter `events_over_limit` has the
number of such events, whether dropped or tagged.

**Values** are the same if they are written the same as JSON: `1` and `\"1\"` differ, and so do `1` and `1.0`. A time is the text that it is written as. A field that is absent and one that is null differ too. All events in which all of the
fields are absent or null have one limit together; the counter `events_without_key` has their number.

**Times** are those in the field `time`: by default `@timestamp`, so that reading a file again gives the same result. If an event has no such field, or the text in it is not an RFC 3339 time of the years 1678 to 2261, it is the time at which the event was received.
`time=@metadata.timestamp` always uses the latter, and so limits how fast events pass through Millpond whatever time they have; all events that were read together have the same one, so `burst` should not be smaller than what comes at once. The clock plays no role while events
are processed.

Events need not come in order of time. For each key, the latest time counts: an event that is earlier takes from the bucket as it is, and fills nothing. If it is earlier by more than `per`, and by more than one minute, its time is the one that counts from then on, also
without filling anything. One event with a wrong time, far ahead or far back, therefore lets at most `burst` further events of its key pass, and does not stop those that follow; a time that is ahead by less than `per` or a minute keeps the bucket from
filling until then. Where events of one key come by turns from sources whose times are further apart than that, such as an old file beside a live one, every turn can fill the bucket: add a field that tells the sources apart,
or use `time=@metadata.timestamp`.

**Memory.** A key takes up to 54 bytes, however long its values are: 54 MB with 1,000,000 keys. The memory is taken as keys come, and is not part of `max_memory_bytes`; while the table grows, it can be 60 bytes. When there are `max_keys`, a new one
takes the place of one of the next eight in the table: the first whose bucket is full again at the time of the event (and of the event before it), which changes nothing as long as times are in order; or else the one that is closest to
being full. The latter are counted as `keys_forgotten`: their next event finds a full bucket. Below `max_keys`, nothing is forgotten.

Of the values, a hash of 128 bits is remembered (SipHash with a key that is chosen at random when nothing is remembered yet). With 1,000,000 keys, two of them share a limit by mistake with a probability of less than 1 in 10^26.

**Order.** Events are counted in the order of the input, with the same result for any number of workers. What is remembered lasts over restarts, crashes and reloads where the pipeline has a disk queue (page
`queue`, \"What processors remember\"), and until the settings of `throttle` change. Without one, and below an output, every bucket is full after a restart or a reload that changes the pipeline.
Events that an input sends again after a crash are events like all others, and take their part again.
";

/// Settings of `throttle`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields whose values have a limit of their own. Default: one limit for all events.
    by: Option<Vec<String>>,
    /// How many events of a key pass in each `per`; at most 1M a second.
    rate: Positive<Count>,
    /// The time that `rate` refers to, from 1ms to 365d.
    #[serde(default = "default_per")]
    per: Positive<Period>,
    /// How many events of a key pass at once after a pause. Default: `rate`.
    burst: Option<Positive<Count>>,
    /// What happens to events that exceed the limit.
    #[serde(default)]
    on_exceed: OnExceed,
    /// The field with the time of an event; `@metadata.timestamp` is the time at which it was received.
    #[serde(default = "default_time")]
    time: String,
    /// How many keys are remembered, from 1 to 1G.
    #[serde(default = "default_max_keys")]
    max_keys: Count,
}

/// What happens to events that exceed the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnExceed {
    /// They are dropped.
    #[default]
    Drop,
    /// They are tagged and pass.
    Tag,
}

fn default_per() -> Positive<Period> {
    Positive::<Period>::from_secs(1)
}

/// The shortest time after which one more event may pass, in nanoseconds: rounding it to whole ones makes a difference of 0.1 % at most.
const INTERVAL_MIN: u64 = 1_000;

/// The longest `per`.
const PER_MAX: Period = Period::from_secs(365 * 86_400);

/// The longest time in which a bucket becomes full, in nanoseconds: 100 years.
const FILL_MAX: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// By how much an event may be earlier than the latest one where `per` is shorter, in nanoseconds.
const LATE_MIN: u64 = 60 * 1_000_000_000;

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words_in(node, "by", is_setting, &[])?;
    if node.get("fields").is_some() {
        let error = node
            .nearest("fields")
            .error("`fields` is not a setting of `throttle`");
        return Err(error.note("it is called `by`: throttle by=client rate=100 per=1s"));
    }
    let config: Config = parse(node)?;
    let pace = pace(node, &config)?;
    if config.on_exceed == OnExceed::Drop && context.tag.is_some() {
        return Err(node
            .error("`tag` has no effect, because events that exceed the limit are dropped")
            .note("to let them pass with the tag, add on_exceed=tag"));
    }
    let empty = "name at least one field, or leave `by` out to limit all events together";
    let by = config
        .by
        .map(|by| component::fields(node, "by", &by, empty))
        .transpose()?;
    let max_keys = max_keys(node, config.max_keys)?;
    let tag = (config.on_exceed == OnExceed::Tag).then(|| context.tag_or(TAG));
    Ok(Box::new(Throttle {
        buckets: Buckets::new(max_keys, pace),
        time: field(node, "time", &config.time)?,
        by,
        tag,
        without_key: 0,
        over_limit: 0,
        text: Vec::new(),
        keys: Vec::new(),
        reason: SPEC.name.into(),
    }))
}

fn pace(node: &Node, config: &Config) -> Result<Pace, ConfigError> {
    let (rate, per) = (config.rate.0, *config.per);
    if per < Period::from_millis(1) || per > PER_MAX {
        let message = "`per` must be from 1ms to 365d";
        return Err(node.nearest("per").error(message));
    }
    let nanos = per.as_nanos() as u64;
    let interval = nanos / rate;
    if interval < INTERVAL_MIN {
        let most = Count(nanos / INTERVAL_MIN);
        return Err(node
            .nearest("rate")
            .error(format!("`rate` must be at most {most} with per={per}")));
    }
    let burst = config.burst.unwrap_or(config.rate).0;
    let fill = burst.saturating_mul(interval);
    if fill > FILL_MAX {
        return Err(node.nearest("burst").error(format!(
            "with this rate, `burst` must be at most {}, which take 100 years to come back",
            Count(FILL_MAX / interval)
        )));
    }
    Ok(Pace {
        interval,
        fill,
        late: nanos.max(LATE_MIN),
    })
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "rate" | "burst" | "max_keys" => value.parse::<Count>().is_ok(),
        "per" => value.parse::<Period>().is_ok(),
        "on_exceed" => matches!(value, "drop" | "tag"),
        _ => false,
    }
}

#[derive(Clone)]
struct Throttle {
    /// The fields of the key; none for one limit for all events.
    by: Option<Vec<FieldPath>>,
    time: FieldPath,
    buckets: Buckets,
    /// The tag of events that exceed the limit; none where they are dropped.
    tag: Option<Arc<str>>,
    /// Events without any of the fields, since the counter was asked for.
    without_key: u64,
    /// Events that exceeded the limit, likewise.
    over_limit: u64,
    /// The values of one event, one after the other. Kept for its memory, as is the next.
    text: Vec<u8>,
    /// The rows of a batch, with their keys.
    keys: Vec<(usize, Fingerprint)>,
    reason: Arc<str>,
}

impl Processor for Throttle {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        self.keys.clear();
        match &self.by {
            Some(by) => {
                let columns = batch.columns(by.iter().chain([&self.time]));
                let of_key = by.len();
                self.take_keys(&columns[..of_key], rows);
            }
            None => {
                let key = self.buckets.fingerprint(&[]);
                self.keys.extend(rows.iter().map(|row| (row, key)));
            }
        }
        let times = EventTimes::in_field(batch, &self.time);
        let mut over = Bitmap::none(batch.len());
        for keys in self.keys.chunks(PREPARED_KEYS) {
            self.buckets.prepare(keys);
            for (row, key) in keys {
                if !self.buckets.lets_through(*key, times.nanos(*row)) {
                    over.insert(*row);
                }
            }
        }
        self.over_limit += over.count() as u64;
        match &self.tag {
            Some(tag) => batch.add_tag(&over, tag),
            None => batch.drop_rows(&over, &self.reason),
        }
        Failures::none()
    }

    fn remembers(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        self.buckets.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.buckets.restore(saved)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        reads(self.by.as_deref(), Some(&self.time))
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("events_over_limit", std::mem::take(&mut self.over_limit)),
            ("events_without_key", std::mem::take(&mut self.without_key)),
            ("keys_forgotten", self.buckets.take_forgotten()),
        ]
    }
}

impl Throttle {
    /// Makes the keys of rows. Those without any value have the same one.
    fn take_keys(&mut self, columns: &[Arc<Column>], rows: &Bitmap) {
        for row in rows.iter() {
            if !write_values(columns, row, &mut self.text) {
                self.text.clear();
                self.without_key += 1;
            }
            self.keys.push((row, self.buckets.fingerprint(&self.text)));
        }
    }
}
