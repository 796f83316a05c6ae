//! `sample`: keeps a part of the events.
//!
//! No generator of random numbers: a hash of the event's id, or of a field, decides. So the same event meets the same
//! fate in every run, on every worker and when a batch is processed again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use batch::fnv::fnv64;
use batch::{Batch, Bitmap, Failures, FieldPath, FieldRead, Value};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::names::field;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "sample",
    aliases: &[],
    summary: "Keeps a share of the events, the same ones whenever a file is read.",
    description: "The share is given as `ratio` (`0.1`, `10%`) or as `one_in` (`100` keeps one event in a hundred on \
                  average). Whether an event is kept depends on its id, so that reading a file twice keeps the same \
                  events; what comes on standard input or over a network without an id of the sender has other ids in every run. With `key`, it depends on the value of that field: either all events of a trace or user are kept, or none. Events without the field are then decided by their id; a name that no event had is reported at the \
                  end of the run.\n\n\
                  Two `sample` stages of a pipeline decide independently of each other: two `sample 50%` keep a quarter. \
                  With the same `seed` they decide alike, so that the second one keeps everything that the first one kept. A pipeline that \
                  feeds another one counts anew there: set `seed` in one of them.",
    positional: Positional::fields(&["ratio"]),
    one_line: &[],
    examples: &[
        Example {
            title: "All events of one user in five",
            stage: "sample 20% key=user",
            input: "{\"user\":\"dan\",\"n\":1}\n{\"user\":\"eve\",\"n\":2}\n{\"user\":\"bob\",\"n\":3}\n{\"user\":\"dan\",\"n\":4}",
            output: "{\"user\":\"dan\",\"n\":1}\n{\"user\":\"dan\",\"n\":4}",
        },
        Example {
            title: "Everything",
            stage: "sample 1",
            input: "{\"a\":1}\n{\"a\":2}",
            output: "{\"a\":1}\n{\"a\":2}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: true,
        build,
    },
};

/// Settings of `sample`. Either `ratio` or `one_in` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The share to keep, from `0` to `1` or in percent, such as `0.1` or `10%`.
    #[serde(default)]
    ratio: Option<Ratio>,
    /// Keeps one event in this many; at least 1.
    #[serde(default)]
    one_in: Option<Count>,
    /// The field whose value decides instead of the event's id: events with the same value are kept or dropped
    /// together.
    #[serde(default)]
    key: Option<String>,
    /// Stages with the same seed and key decide alike. Default: every `sample` of a pipeline has its own.
    #[serde(default)]
    seed: Option<u64>,
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio(f64);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text, 1.0),
        };
        match number.parse::<f64>() {
            Ok(value) if (0.0..=scale).contains(&value) => Ok(Self(value / scale)),
            _ => Err(format!(
                "`{text}` is not a ratio: write a number from 0 to 1, or a percentage such as 10%"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Ratio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1, or a percentage such as 10%")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ratio, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Ratio {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ratio".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number"], "format": "ratio", "examples": [0.1, "10%"] })
    }
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let limit = match (config.ratio, config.one_in) {
        (Some(Ratio(ratio)), None) => limit_of(ratio),
        (None, Some(Count(0))) => {
            return Err(node.nearest("one_in").error("`one_in` must be at least 1"));
        }
        (None, Some(Count(count))) => Some(u64::MAX / count),
        (Some(_), Some(_)) => {
            return Err(node
                .nearest("one_in")
                .error("give either `ratio` or `one_in`, not both"));
        }
        (None, None) => {
            return Err(
                node.error("how much to keep is missing: give `ratio`, such as 10%, or `one_in`")
            );
        }
    };
    let key = config
        .key
        .as_deref()
        .map(|key| field(node, "key", key))
        .transpose()?;
    Ok(Box::new(Sample {
        limit,
        key,
        seed: config.seed.unwrap_or_default(),
        has_own_seed: config.seed.is_some(),
        reason: SPEC.name.into(),
    }))
}

/// The largest hash to keep; none when nothing is kept.
fn limit_of(ratio: f64) -> Option<u64> {
    // 2^64 as a float is exact, and casts to integers saturate.
    let below = (ratio * 2f64.powi(64)) as u64;
    if ratio >= 1.0 {
        Some(u64::MAX)
    } else {
        below.checked_sub(1)
    }
}

#[derive(Clone)]
struct Sample {
    limit: Option<u64>,
    key: Option<FieldPath>,
    seed: u64,
    has_own_seed: bool,
    reason: Arc<str>,
}

impl Processor for Sample {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let keys = self.key.as_ref().map(|path| batch.column(path));
        let mut dropped = rows.clone();
        let mut text = Vec::new();
        for row in rows.iter() {
            let hash = match keys.as_ref().map(|keys| keys.value(row)) {
                None | Some(Value::Missing | Value::Null) => batch.origin().hash(row),
                Some(Value::Text(text)) => fnv64(text),
                Some(value) => {
                    text.clear();
                    value.write_text(&mut text);
                    fnv64(&text)
                }
            };
            if self
                .limit
                .is_some_and(|limit| mix(hash ^ self.seed) <= limit)
            {
                dropped.remove(row);
            }
        }
        batch.drop_rows(&dropped, &self.reason);
        Failures::none()
    }

    fn place(&mut self, before: usize) {
        if !self.has_own_seed {
            // The first one decides as with the seed 0.
            self.seed = (before as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let key = self.key.iter().cloned();
        key.map(|key| Arc::new(FieldRead::always(key))).collect()
    }
}

/// Spreads a hash evenly: the finaliser of MurmurHash3.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, process};

    const EVENTS: usize = 20_000;

    /// The rows that a stage keeps of many events with 100 traces.
    fn kept(stage: &str) -> Bitmap {
        let events: Vec<String> = (0..EVENTS)
            .map(|n| format!("{{\"n\":{n},\"trace\":\"t{}\"}}", n % 100))
            .collect();
        let mut batch = batch_of(events.iter().map(String::as_str));
        process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
        batch.alive().clone()
    }

    #[test]
    fn the_part_is_about_right() {
        for (stage, part) in [
            ("sample 0", 0.0),
            ("sample 0.25", 0.25),
            ("sample 50%", 0.5),
            ("sample 1", 1.0),
            ("sample 100%", 1.0),
        ] {
            let found = kept(stage).count() as f64 / EVENTS as f64;
            assert!(
                (found - part).abs() < 0.02 * f64::from(u8::from(part % 1.0 > 0.0)) + 1e-9,
                "{stage} keeps {found}"
            );
        }
        let tenth = kept("sample one_in=10").count();
        assert!((1_700..2_300).contains(&tenth), "{tenth}");
        assert_eq!(kept("sample one_in=1").count(), EVENTS);
    }

    #[test]
    fn decisions_repeat_and_seeds_make_them_differ() {
        assert_eq!(kept("sample 0.5"), kept("sample 0.5"));
        let mut both = kept("sample 0.5");
        both.and(&kept("sample 0.5 seed=7"));
        let part = both.count() as f64 / EVENTS as f64;
        assert!(
            (part - 0.25).abs() < 0.02,
            "independent halves leave {part}"
        );
        let mut tenth = kept("sample 0.1");
        let smaller = tenth.count();
        tenth.and(&kept("sample 0.2"));
        assert_eq!(
            tenth.count(),
            smaller,
            "a larger part holds the smaller one"
        );
    }

    #[test]
    fn stages_are_independent_unless_they_have_the_same_seed() {
        for (stage, part) in [("sample 0.5", 0.25), ("sample 0.5 seed=7", 0.5)] {
            let events = (0..EVENTS).map(|n| format!("{{\"n\":{n}}}"));
            let events: Vec<String> = events.collect();
            let mut batch = batch_of(events.iter().map(String::as_str));
            for place in 0..2 {
                let mut sample = build(&SPEC, stage).expect(stage);
                sample.place(place);
                process(sample.fork().as_mut(), &mut batch);
            }
            let found = batch.alive().count() as f64 / EVENTS as f64;
            assert!((found - part).abs() < 0.02, "two of {stage} keep {found}");
        }
    }

    #[test]
    fn a_key_keeps_or_drops_all_of_its_events() {
        let kept = kept("sample 0.5 key=trace");
        let traces: Vec<usize> = (0..100).filter(|trace| kept.contains(*trace)).collect();
        assert!((30..70).contains(&traces.len()), "{} traces", traces.len());
        for row in 0..EVENTS {
            assert_eq!(kept.contains(row), kept.contains(row % 100), "row {row}");
        }
    }

    #[test]
    fn hashes_never_change() {
        assert_eq!(mix(fnv64(b"a")), 0x82a2_a958_a9be_ce5b);
        let mut numbers = batch_of([r#"{"k":1}"#, r#"{"k":"1"}"#]);
        process(
            build(&SPEC, "sample 0.5 key=k")
                .expect("it builds")
                .as_mut(),
            &mut numbers,
        );
        assert!(
            matches!(numbers.alive().count(), 0 | 2),
            "a number decides like its text"
        );
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("sample", "how much to keep is missing"),
                ("sample 1.5", "`1.5` is not a ratio"),
                ("sample 101%", "not a ratio"),
                ("sample -0.1", "not a ratio"),
                ("sample nan", "not a ratio"),
                ("sample 0.5 one_in=2", "either `ratio` or `one_in`"),
                ("sample one_in=0", "at least 1"),
                ("sample 0.5 key=a..b", "not a field name"),
            ],
        );
    }
}
