//! The processors that give events at the end of a run: `reduce`, `sort`, `tail` and `top`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::posting::free_port;
use crate::program::{Folder, millpond, run};
use crate::remembering::{Growing, KILLS, Lines, number_of};

/// Lines with a key, some of which are frequent.
#[derive(Default)]
struct Keyed {
    counts: BTreeMap<u64, u64>,
    count: u64,
}

impl Lines for Keyed {
    fn next(&mut self, rng: &mut fastrand::Rng, number: u64) -> String {
        let key = rng.u64(..40) * rng.u64(..40);
        *self.counts.entry(key).or_default() += 1;
        self.count = number + 1;
        format!("{{\"n\":{number},\"k\":{key}}}\n")
    }
}

/// Checks what the outputs have after 30 kills, with one output and with a second one that was away.
fn after_kills(processors: &'static str, check: impl Fn(&[Value], &Keyed)) {
    for outputs in [&["one"][..], &["one", "away/two"]] {
        let mut growing = Growing::new(processors, Keyed::default());
        growing.kill_again_and_again(KILLS, outputs);
        for output in outputs {
            check(&growing.events(output), &growing.lines);
        }
    }
}

#[test]
fn all_events_are_sorted_after_kills() {
    after_kills("sort: { fields: [k desc, n] }", |events, lines| {
        let key = |event: &Value| {
            let key = event["k"].as_u64().expect("a number");
            (u64::MAX - key, number_of(event))
        };
        assert_eq!(events.len() as u64, lines.count);
        assert!(events.is_sorted_by(|one, next| key(one) < key(next)));
    });
}

#[test]
fn the_last_events_are_right_after_kills() {
    after_kills("tail: { count: 5k }", |events, lines| {
        let numbers = events.iter().map(number_of);
        assert!(numbers.eq(lines.count - 5_000..lines.count));
    });
}

#[test]
fn the_most_frequent_values_are_right_after_kills() {
    after_kills("top: { fields: [k], limit: 5 }", |events, lines| {
        let number = |event: &Value, name: &str| event[name].as_u64().expect("a number");
        let mut expected: Vec<u64> = lines.counts.values().copied().collect();
        expected.sort_unstable_by(|one, other| other.cmp(one));
        let counts = events.iter().map(|event| number(event, "count"));
        assert!(counts.eq(expected.into_iter().take(5)));
        for event in events {
            assert_eq!(number(event, "count"), lines.counts[&number(event, "k")]);
        }
    });
}

#[test]
fn every_event_is_joined_once_after_kills() {
    let stage = "reduce: { fields: [k], collect: [n], timeout: 100d }";
    after_kills(stage, |events, lines| {
        assert_eq!(events.len(), lines.counts.len());
        let mut all = Vec::new();
        for event in events {
            let numbers = event["n"].as_array().expect("a list");
            let numbers: Vec<u64> = numbers.iter().filter_map(Value::as_u64).collect();
            let key = event["k"].as_u64().expect("a number");
            assert_eq!(numbers.len() as u64, lines.counts[&key]);
            assert!(numbers.is_sorted());
            all.extend(numbers);
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..lines.count));
    });
}

#[test]
fn one_may_follow_the_other() {
    let folder = Folder::new();
    let lines: String = (0..10_000)
        .map(|n| format!("{{\"n\":{n},\"k\":{}}}\n", n % 7 * (n % 3)))
        .collect();
    let log = folder.write("a.ndjson", lines);
    let ended = run(&format!(
        "file {log} | tail 5000 | summarize count(), max(n) by=[k] | sort count desc, k | head 2 | stdout"
    ));
    let expected =
        "{\"k\":0,\"count\":2143,\"n_max\":9999}\n{\"k\":4,\"count\":477,\"n_max\":9998}\n";
    assert_eq!(ended.expect(0).out, expected);
    let ended = run(&format!("file {log} | top k limit=1 | stdout"));
    assert!(ended.expect(0).out.starts_with("{\"k\":0,\"count\":"));
    let ended = run(&format!("file {log} | sort n desc | tail 2 | stdout"));
    assert_eq!(
        ended.expect(0).out,
        "{\"n\":1,\"k\":1}\n{\"n\":0,\"k\":0}\n"
    );
}

#[test]
fn what_an_output_does_not_take_at_the_end_is_not_delivered() {
    let folder = Folder::new();
    let log = folder.write("a.ndjson", "{\"n\":2}\n{\"n\":1}\n{\"n\":3}\n");
    let stages = [
        ("sort n", 3),
        ("tail 2", 2),
        ("summarize count()", 1),
        ("sort n, where n > 1", 2),
        // Without anything that holds events, files count what was not delivered.
        ("where n > 0", 3),
    ];
    for (stage, events) in stages {
        let text = format!(
            "api: false
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'], follow: false }} }}
    processors: [{stage}]
    output: http http://127.0.0.1:{port}/
    retry: {{ initial: 20ms, give_up_after: 100ms }}
",
            port = free_port()
        );
        let ended = millpond(&["run", &folder.write("a.yaml", text)]).expect(1);
        let said = match events {
            1 => "1 event was read but not delivered".to_owned(),
            _ => format!("{events} events were read but not delivered"),
        };
        assert!(ended.err.contains(&said), "{stage}: {}", ended.err);
    }
}

#[test]
fn events_that_failed_stay_so_when_they_are_sorted() {
    let folder = Folder::new();
    let lines =
        "{\"n\":2,\"message\":\"{\\\"a\\\":1}\"}\n{\"n\":1,\"message\":\"not json\"}\n".to_owned();
    let log = folder.write("a.ndjson", lines);
    let ended = run(&format!("file {log} | json | sort n | set x = 1 | stdout"));
    let out = ended.expect(0).out;
    let events: Vec<&str> = out.lines().collect();
    assert_eq!(events.len(), 2);
    assert!(events[0].contains("not json") && !events[0].contains("\"x\""));
    assert!(events[1].contains("\"x\":1"));
}
