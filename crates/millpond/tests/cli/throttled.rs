//! The processor `throttle`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::program::{Folder, millpond, run};
use crate::remembering::{Growing, KILLS, LINES_EACH, Lines, number_of, run_with_any_workers};

/// The limit of `rate: 2, per: 1s, burst: 5` by definition: what is left to each key, in thousandths of an event, and since when.
#[derive(Default)]
struct Definition(BTreeMap<u64, (u64, u64)>);

impl Definition {
    /// Whether an event passes, at a time in milliseconds.
    fn lets_through(&mut self, key: u64, time: u64) -> bool {
        let (clock, left) = self.0.entry(key).or_insert((time, 5_000));
        if time > *clock {
            // Two events in a thousand milliseconds.
            *left = (*left + 2 * (time - *clock)).min(5_000);
            *clock = time;
        } else if *clock - time > 60_000 {
            *clock = time;
        }
        let passes = *left >= 1_000;
        if passes {
            *left -= 1_000;
        }
        passes
    }
}

const DAY: u64 = 86_400_000;

/// A time in milliseconds since the first of May.
fn written(time: u64) -> String {
    let (day, time) = (1 + time / DAY, time % DAY);
    let (hour, minute) = (time / 3_600_000, time / 60_000 % 60);
    let (second, milli) = (time / 1_000 % 60, time % 1_000);
    format!("2026-05-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Of each of 200 keys five events a second, some of which are late, and a few of which have a wrong time.
struct Timed;

impl Lines for Timed {
    fn next(&mut self, rng: &mut fastrand::Rng, number: u64) -> String {
        let key = rng.u64(..200);
        let right = 10 * DAY + number;
        let time = match rng.u64(..500) {
            0 => right + 3 * DAY,
            1 => right - 3 * DAY,
            2..100 => right - rng.u64(..30_000),
            _ => right,
        };
        let at = written(time);
        format!("{{\"@timestamp\":\"{at}\",\"time\":{time},\"n\":{number},\"k\":{key}}}\n")
    }
}

/// What an output got was tagged as the definition says.
fn check(got: &[Value]) {
    let mut definition = Definition::default();
    let (mut passed, mut wrong) = (0, 0);
    let mut seen = BTreeMap::new();
    for event in got {
        // What the output wrote twice is the same. Had the queue stored it twice, it would have been received at another time.
        if let Some(first) = seen.insert(number_of(event), event) {
            assert_eq!(first, event);
            continue;
        }
        let value = |name: &str| event[name].as_u64().expect("a number");
        let passes = definition.lets_through(value("k"), value("time"));
        passed += usize::from(passes);
        wrong += usize::from(passes != event["tags"].is_null());
    }
    assert_eq!(wrong, 0, "of {} events, of which {passed} pass", seen.len());
    let both = passed > 30_000 && passed < seen.len() / 4 * 3;
    assert!(both, "{passed} of {} pass", seen.len());
    assert!(seen.into_keys().eq(0..LINES_EACH * KILLS));
}

#[test]
fn the_limit_holds_over_kills_also_for_an_output_that_was_away() {
    for outputs in [&["one"][..], &["one", "away/two"]] {
        let mut growing = Growing::new(
            "set: { fields: { received: '@metadata.timestamp' } }
      - throttle: { by: [k], rate: 2, per: 1s, burst: 5, on_exceed: tag }",
            Timed,
        );
        growing.kill_again_and_again(KILLS, outputs);
        for output in outputs {
            check(&growing.events(output));
        }
    }
}

#[test]
fn limits_are_the_same_whatever_the_workers() {
    let folder = Folder::new();
    let mut rng = fastrand::Rng::with_seed(5);
    let lines: String = (0..60_000)
        .map(|n| {
            let time = written(DAY + n * 20 - rng.u64(..5_000));
            let key = rng.u64(..301);
            format!("{{\"@timestamp\":\"{time}\",\"n\":{n},\"k\":{key}}}\n")
        })
        .collect();
    let log = folder.write("a.ndjson", lines);
    let (out, counters) = run_with_any_workers(
        &log,
        "throttle: { by: [k], rate: 4, per: 1m, max_keys: 200 }",
    );
    let passed = out.lines().count() as u64;
    assert!((20_000..50_000).contains(&passed), "{passed} passed");
    assert_eq!(counters["events_over_limit"], 60_000 - passed);
    assert!(counters["keys_forgotten"] > 0, "{counters:?}");
}

#[test]
fn later_stages_decide_about_what_is_tagged_and_errors_are_left_out() {
    let folder = Folder::new();
    let line = |level: &str| {
        format!("{{\"@timestamp\":\"2026-05-01T00:00:00Z\",\"level\":\"{level}\"}}\n")
    };
    let log = folder.write(
        "a.ndjson",
        ["info", "info", "error", "info", "error"]
            .map(line)
            .concat(),
    );
    for (stages, expected) in [
        ("throttle rate=1 if='level != \"error\"'", 3),
        (
            "throttle rate=1 on_exceed=tag | drop '_throttled' in tags && level != 'error'",
            3,
        ),
        (
            "throttle rate=1 on_exceed=tag tag=much | where 'much' in tags",
            4,
        ),
        ("throttle level rate=1", 2),
        ("throttle rate=1 per=1s by=level", 2),
    ] {
        let ended = run(&format!("file {log} | {stages} | stdout")).expect(0);
        assert_eq!(
            ended.out.lines().count(),
            expected,
            "{stages}: {}",
            ended.out
        );
    }
}

#[test]
fn other_names_and_slips_lead_to_it() {
    for (stage, part) in [
        ("rate_limit user rate=5", "did you mean `throttle`?"),
        ("throttle user", "rate"),
        ("throttle user rate 5", "write rate=5"),
        ("throttle user rate=5 tag=much", "add on_exceed=tag"),
        ("throttle rate=5M", "at most 1M with per=1s"),
        ("throttle user rate=5 max_keys=2G", "from 1 to 1G"),
        ("throttle user rate=1 per=1d burst=1M", "at most 36500"),
    ] {
        let wrong = millpond(&["check", &format!("stdin | {stage} | stdout")]).expect(2);
        assert!(wrong.err.contains(part), "{stage}: {}", wrong.err);
    }
}
