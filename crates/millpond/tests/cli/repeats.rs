//! The processor `dedupe`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::program::{Folder, millpond};
use crate::running::{Service, append};
use serde_json::Value;

/// Lines with a number and a key, of which a later one often repeats an earlier one.
struct Lines {
    rng: fastrand::Rng,
    /// The number of the first line with each key.
    first: BTreeMap<u64, u64>,
    count: u64,
}

impl Lines {
    fn next(&mut self) -> String {
        let (key, number) = (self.rng.u64(..20_000), self.count);
        self.count += 1;
        self.first.entry(key).or_insert(number);
        format!("{{\"n\":{number},\"k\":\"key {key}\"}}\n")
    }
}

/// A log that grows, and a pipeline with `dedupe` and a small disk queue that reads it into `one.ndjson` and `away/two.ndjson`. The second one
/// cannot be written before a file is gone that stands in the place of its folder.
struct Growing {
    folder: Folder,
    lines: Lines,
}

impl Growing {
    fn new() -> Self {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let lines = Lines {
            rng: fastrand::Rng::with_seed(seed),
            first: BTreeMap::new(),
            count: 0,
        };
        let folder = Folder::new();
        folder.write("away", "a file in the place of a folder");
        Self { folder, lines }
    }

    fn grow(&mut self, lines: usize) {
        let more: String = (0..lines).map(|_| self.lines.next()).collect();
        append(&self.folder.path("a.ndjson"), &more);
    }

    fn configuration(&self, follow: bool, outputs: &[&str]) -> String {
        let place = self.folder.path("");
        let outputs: String = outputs
            .iter()
            .map(|out| {
                let name = out.rsplit('/').next().unwrap_or_default();
                format!("      - file: {{ name: {name}, path: '{place}/{out}.ndjson' }}\n")
            })
            .collect();
        let text = format!(
            "data_dir: '{place}/data'
api: false
pipelines:
  one:
    input:
      file: {{ paths: ['{place}/a.ndjson'], follow: {follow} }}
    queue: {{ disk: {{ max_bytes: 16MiB, segment_bytes: 256KiB, cache_bytes: 256KiB, min_free_bytes: 0 }} }}
    processors:
      - dedupe: {{ fields: [k], max_keys: 100k }}
    retry: {{ initial: 20ms, max: 100ms }}
    outputs:
{outputs}"
        );
        self.folder.write(&format!("follow-{follow}.yaml"), text)
    }

    fn come_back(&self) {
        std::fs::remove_file(self.folder.path("away")).expect("it is there");
    }

    /// The numbers of the lines that an output has.
    fn numbers(&self, output: &str) -> Vec<u64> {
        let number = |line: &str| {
            let event: Value = serde_json::from_str(line).ok()?;
            event["n"].as_u64()
        };
        let text = std::fs::read_to_string(self.folder.path(&format!("{output}.ndjson")));
        text.unwrap_or_default()
            .lines()
            .filter_map(number)
            .collect()
    }

    /// An output has the first line of each key and no other one. How often it has one again.
    fn check(&self, output: &str) -> usize {
        let numbers = self.numbers(output);
        let got: BTreeSet<u64> = numbers.iter().copied().collect();
        let expected: BTreeSet<u64> = self.lines.first.values().copied().collect();
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
}

/// Kills the pipeline again and again while the log grows.
fn kill_again_and_again(kills: usize, outputs: &[&str]) {
    let mut growing = Growing::new();
    let path = growing.configuration(true, outputs);
    for _ in 0..kills {
        growing.grow(4_000);
        let service = Service::start(&growing.folder, &["run", &path]);
        std::thread::sleep(Duration::from_millis(growing.lines.rng.u64(50..400)));
        service.kill();
    }
    growing.come_back();
    let ended = millpond(&["run", &growing.configuration(false, outputs)]).expect(0);
    assert!(!ended.err.contains("remembers nothing"), "{}", ended.err);
    for output in outputs {
        growing.check(output);
    }
    let kept = growing.folder.path("data/queue/one/snapshot-a");
    assert!(std::path::Path::new(&kept).exists());
}

#[test]
fn one_event_of_each_key_passes_after_kills() {
    kill_again_and_again(30, &["one"]);
}

#[test]
fn one_event_of_each_key_passes_after_kills_also_to_an_output_that_was_away() {
    kill_again_and_again(12, &["one", "away/two"]);
}

#[test]
fn an_output_that_is_away_delays_no_other_and_gets_the_same() {
    let mut growing = Growing::new();
    let path = growing.configuration(true, &["one", "away/two"]);
    let mut service = Service::start(&growing.folder, &["run", &path]);
    for _ in 0..10 {
        growing.grow(8_000);
        let keys = growing.lines.first.len();
        service.until("one has them", || growing.numbers("one").len() == keys);
    }
    growing.come_back();
    let keys = growing.lines.first.len();
    service.until("two has them", || growing.numbers("away/two").len() == keys);
    // Together again.
    growing.grow(8_000);
    let keys = growing.lines.first.len();
    for output in ["one", "away/two"] {
        service.until("it has them", || growing.numbers(output).len() == keys);
        assert_eq!(growing.check(output), 0, "{output}");
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
    let mut outs = Vec::new();
    for workers in [1, 2, 7] {
        let path = folder.write(
            "dedupe.yaml",
            format!(
                "workers: {workers}\npipelines:\n  one:\n    input:\n      file: {{ paths: ['{log}'], follow: false }}\n    processors:\n      - dedupe: {{ fields: [k], within: 5m, max_keys: 2k }}\n    outputs: [stdout]\n"
            ),
        );
        let ended = millpond(&["run", &path, "--metrics"]).expect(0);
        let row = ended.err.lines().find(|line| line.starts_with("dedupe"));
        let counted = row.and_then(|row| row.split_once("keys_forgotten "));
        let (_, counted) = counted.expect("keys were forgotten");
        outs.push((ended.out, counted.to_owned()));
    }
    let passed = outs[0].0.lines().count();
    assert!((3_001..30_000).contains(&passed), "{passed} passed");
    let forgotten = outs[0].1.trim_end_matches(')').replace(',', "");
    assert!(
        forgotten.parse().is_ok_and(|keys: u64| keys > 0),
        "{forgotten}"
    );
    assert!(outs.iter().all(|out| *out == outs[0]));
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
