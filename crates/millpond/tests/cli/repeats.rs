//! The processor `dedupe`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::program::{Folder, millpond};
use crate::running::{Service, append};
use serde_json::Value;
use testkit::ports::free_port;

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

/// Kills a pipeline with `dedupe` and a disk queue again and again while a log grows, and looks at what one of its outputs got. `others` are
/// further outputs that it has until the last run.
fn kill_again_and_again(kills: usize, others: &str) {
    let folder = Folder::new();
    let (log, out, data) = (
        folder.path("a.ndjson"),
        folder.path("out.ndjson"),
        folder.path("data"),
    );
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let rng = fastrand::Rng::with_seed(seed);
    let mut lines = Lines {
        rng,
        first: BTreeMap::new(),
        count: 0,
    };
    let configuration = |follow: bool, others: &str| {
        format!(
            "data_dir: '{data}'
api: false
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'], follow: {follow} }}
    queue: {{ disk: {{ max_bytes: 8MiB, segment_bytes: 256KiB, min_free_bytes: 0 }} }}
    processors:
      - dedupe: {{ fields: [k], max_keys: 100k }}
    outputs:
      - file: {{ path: '{out}' }}
{others}"
        )
    };
    let path = folder.write("run.yaml", configuration(true, others));
    for _ in 0..kills {
        let more: String = (0..4_000).map(|_| lines.next()).collect();
        append(&log, &more);
        let service = Service::start(&folder, &["run", &path]);
        std::thread::sleep(Duration::from_millis(lines.rng.u64(50..400)));
        service.kill();
    }
    let path = folder.write("last.yaml", configuration(false, ""));
    let ended = millpond(&["run", &path]).expect(0);
    assert!(!ended.err.contains("remembers nothing"), "{}", ended.err);
    let numbers: BTreeSet<u64> = folder
        .read("out.ndjson")
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["n"]
                .as_u64()
                .expect("a number")
        })
        .collect();
    let expected: BTreeSet<u64> = lines.first.values().copied().collect();
    let (missing, more) = (
        expected.difference(&numbers).count(),
        numbers.difference(&expected).count(),
    );
    assert_eq!((missing, more), (0, 0), "of {} keys", expected.len());
    assert!(
        std::path::Path::new(&data)
            .join("queue/one/snapshot-a")
            .exists()
    );
}

#[test]
fn one_event_of_each_key_passes_after_kills() {
    kill_again_and_again(30, "");
}

#[test]
fn one_event_of_each_key_passes_after_kills_beside_an_output_that_is_away() {
    let away = format!("      - tcp: {{ to: '127.0.0.1:{}' }}\n", free_port());
    kill_again_and_again(10, &away);
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
