//! The processor `dedupe`.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::{Folder, millpond};
use crate::remembering::{Growing, KILLS, Lines, number_of, run_with_any_workers};
use crate::running::Service;

/// Lines with a number and a key, of which a later one often repeats an earlier one.
#[derive(Default)]
struct Repeats {
    /// The number of the first line with each key.
    first: BTreeMap<u64, u64>,
}

impl Lines for Repeats {
    fn next(&mut self, rng: &mut fastrand::Rng, number: u64) -> String {
        let key = rng.u64(..20_000);
        self.first.entry(key).or_insert(number);
        format!("{{\"n\":{number},\"k\":\"key {key}\"}}\n")
    }
}

fn growing() -> Growing<Repeats> {
    Growing::new(
        "dedupe: { fields: [k], max_keys: 100k }",
        Repeats::default(),
    )
}

/// The numbers of the lines that an output has.
fn numbers(growing: &Growing<Repeats>, output: &str) -> Vec<u64> {
    growing.events(output).iter().map(number_of).collect()
}

/// An output has the first line of each key and no other one. How often it has one again.
fn check(growing: &Growing<Repeats>, output: &str) -> usize {
    let numbers = numbers(growing, output);
    let got: BTreeSet<u64> = numbers.iter().copied().collect();
    let expected: BTreeSet<u64> = growing.lines.first.values().copied().collect();
    let missing = expected.difference(&got).count();
    let more = got.difference(&expected).count();
    assert_eq!(
        (missing, more),
        (0, 0),
        "{output}: missing and too many of {}",
        expected.len()
    );
    numbers.len() - got.len()
}

fn kill_and_check(outputs: &[&str]) {
    let mut growing = growing();
    growing.kill_again_and_again(KILLS, outputs);
    for output in outputs {
        check(&growing, output);
    }
}

#[test]
fn one_event_of_each_key_passes_after_kills() {
    kill_and_check(&["one"]);
}

#[test]
fn one_event_of_each_key_passes_after_kills_also_to_an_output_that_was_away() {
    kill_and_check(&["one", "away/two"]);
}

#[test]
fn an_output_that_is_away_delays_no_other_and_gets_the_same() {
    let mut growing = growing();
    let path = growing.configuration(true, &["one", "away/two"]);
    let mut service = Service::start(&growing.folder, &["run", &path]);
    for _ in 0..10 {
        growing.grow(8_000);
        let keys = growing.lines.first.len();
        service.until("one has them", || numbers(&growing, "one").len() == keys);
    }
    growing.come_back();
    let keys = growing.lines.first.len();
    service.until("two has them", || {
        numbers(&growing, "away/two").len() == keys
    });
    // Together again.
    growing.grow(8_000);
    let keys = growing.lines.first.len();
    for output in ["one", "away/two"] {
        service.until("it has them", || numbers(&growing, output).len() == keys);
        assert_eq!(check(&growing, output), 0, "{output}");
    }
    service.stop();
}

#[test]
fn repeats_are_the_same_whatever_the_workers() {
    let folder = Folder::new();
    // Many batches. Keys come again soon or long after, and some events are late.
    let mut state = 1_u64;
    let mut line = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (key, second) = ((state >> 33) % 3_001, n / 50 + n % 7);
        let (minute, second) = (second / 60 % 60, second % 60);
        format!(
            "{{\"@timestamp\":\"2026-05-01T12:{minute:02}:{second:02}Z\",\"n\":{n},\"k\":{key}}}\n"
        )
    };
    let lines: String = (0..60_000).map(&mut line).collect();
    let log = folder.write("a.ndjson", lines);
    let (out, counters) =
        run_with_any_workers(&log, "dedupe: { fields: [k], within: 5m, max_keys: 2k }");
    let passed = out.lines().count();
    assert!((3_001..30_000).contains(&passed), "{passed} passed");
    assert!(counters["keys_forgotten"] > 0, "{counters:?}");
}

#[test]
fn other_names_and_slips_lead_to_it() {
    for (stage, part) in [
        ("deduplicate user", "did you mean `dedupe`?"),
        ("uniq", "did you mean `dedupe`?"),
        ("dedupe user within 10m", "write within=10m"),
        ("dedupe user time=at", "within=10m"),
        ("dedupe user max_keys=2G", "from 1 to 1G"),
    ] {
        let wrong = millpond(&["check", &format!("stdin | {stage} | stdout")]).expect(2);
        assert!(wrong.err.contains(part), "{stage}: {}", wrong.err);
    }
}
