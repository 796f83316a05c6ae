//! The processor `dedupe`.

use crate::program::{Folder, millpond};

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
