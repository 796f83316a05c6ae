use std::collections::BTreeMap;

use batch::{Batch, BatchBuilder, Encoding, HostInfo};
use component::Processor;

use super::SPEC;
use crate::testing::{batch_of, build, build_yaml, check_errors, lines_of, numbers, process};

fn last() -> Batch {
    let host = std::sync::Arc::new(HostInfo { name: "h".into() });
    BatchBuilder::new(Encoding::Json, &host, 0, false).finish()
}

/// What comes of events in batches of so many, up to the end.
fn results(processor: &mut dyn Processor, lines: &[String], size: usize) -> Vec<String> {
    let mut results = Vec::new();
    for lines in lines.chunks(size) {
        let mut batch = batch_of(lines.iter().map(String::as_str));
        process(processor, &mut batch);
        assert!(batch.alive().is_empty());
        results.extend(processor.take_derived().iter().flat_map(lines_of));
    }
    results
}

fn ended(processor: &mut dyn Processor) -> Vec<String> {
    processor.end(&last());
    processor.take_derived().iter().flat_map(lines_of).collect()
}

fn lines(count: u64) -> Vec<String> {
    let mut number = numbers(7);
    let line = |_| {
        let (key, value) = (number(50), number(1_000));
        format!("{{\"k\":\"key {key}\",\"n\":{value}}}")
    };
    (0..count).map(line).collect()
}

#[test]
fn sums_are_exact_whatever_the_batches() {
    let lines = lines(5_000);
    let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in &lines {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let key = event["k"].as_str().expect("a text").to_owned();
        let group = expected.entry(key).or_default();
        group.0 += 1;
        group.1 += event["n"].as_u64().expect("a number");
    }
    let mut first = None;
    for size in [1, 7, 4096] {
        let mut processor = build(&SPEC, "summarize count(), sum(n) by=[k]").expect("right");
        assert!(results(processor.as_mut(), &lines, size).is_empty());
        let got = ended(processor.as_mut());
        for line in &got {
            let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let group = expected[event["k"].as_str().expect("a text")];
            assert_eq!(
                (event["count"].as_u64(), event["n_sum"].as_u64()),
                (Some(group.0), Some(group.1))
            );
        }
        assert_eq!(got.len(), expected.len());
        assert_eq!(*first.get_or_insert(got.clone()), got);
        assert!(ended(processor.as_mut()).is_empty());
    }
}

#[test]
fn a_window_closes_when_time_has_gone_beyond_it() {
    let settings = "{ functions: ['count()'], every: 1m, lateness: 10s, time: t }";
    let mut processor = build_yaml(&SPEC, settings).expect("right");
    let mut given = |time: &str| {
        let line = format!("{{\"t\":\"1969-05-01T12:{time}Z\"}}");
        results(processor.as_mut(), &[line], 1)
    };
    assert!(given("00:10").is_empty());
    assert!(given("01:09").is_empty());
    // Late, and in time.
    assert!(given("00:59").is_empty());
    assert_eq!(
        given("01:10"),
        [r#"{"@timestamp":"1969-05-01T12:00:00.000Z","count":2}"#]
    );
    assert!(given("00:59").is_empty());
    let counters = processor.take_counters();
    assert_eq!(counters[0], ("events_late", 1));
    // The batch was received in 1970: what is later closes nothing.
    let line = "{\"t\":\"2026-05-01T12:00:00Z\"}".to_owned();
    let closed = results(processor.as_mut(), &[line], 1);
    assert_eq!(closed.len(), 1, "1970 closes the minutes of 1969");
    assert_eq!(
        ended(processor.as_mut()),
        [r#"{"@timestamp":"2026-05-01T12:00:00.000Z","count":1}"#]
    );
}

#[test]
fn keys_beyond_the_limit_are_counted_together() {
    let settings = "{ functions: ['count()', 'sum(n)'], by: [k], max_keys: 2 }";
    let mut processor = build_yaml(&SPEC, settings).expect("right");
    let lines = ["a", "b", "c", "a", "d", "c"].map(|key| format!("{{\"k\":\"{key}\",\"n\":1}}"));
    results(processor.as_mut(), &lines, 4);
    let expected = [
        r#"{"k":"a","count":2,"n_sum":1}"#,
        r#"{"k":"b","count":1,"n_sum":1}"#,
        r#"{"count":3,"n_sum":3,"tags":["_other_keys"]}"#,
    ];
    let expected =
        expected.map(|line| line.replace("\"count\":2,\"n_sum\":1", "\"count\":2,\"n_sum\":2"));
    assert_eq!(processor.take_counters()[1], ("events_of_other_keys", 3));
    assert_eq!(ended(processor.as_mut()), expected);
}

#[test]
fn values_of_all_kinds_are_keys_and_numbers_in_texts_count() {
    let mut processor = build(
        &SPEC,
        "summarize count(), sum(v), min(v), max(v), avg(v), count(v) by=[a.k]",
    )
    .expect("right");
    let lines = [
        r#"{"a":{"k":1},"v":"3"}"#,
        r#"{"a":{"k":"1"},"v":-2.5}"#,
        r#"{"a":{"k":null},"v":18446744073709551615}"#,
        r#"{"a":{"k":[1,"x"]},"v":"x"}"#,
        r#"{"v":true}"#,
        r#"{"a":{"k":1},"v":"1e1"}"#,
        r#"{"a":{"k":true}}"#,
    ]
    .map(str::to_owned);
    results(processor.as_mut(), &lines, 7);
    assert_eq!(
        processor.take_counters()[2].1,
        6,
        "four tasks, two values; x and true"
    );
    let expected = [
        r#"{"a":{"k":1},"count":2,"v_sum":13.0,"v_min":3,"v_max":10.0,"v_avg":6.5,"v_count":2}"#,
        r#"{"a":{"k":"1"},"count":1,"v_sum":-2.5,"v_min":-2.5,"v_max":-2.5,"v_avg":-2.5,"v_count":1}"#,
        r#"{"a":{"k":null},"count":1,"v_sum":18446744073709551615,"v_min":18446744073709551615,"v_max":18446744073709551615,"v_avg":1.8446744073709552e19,"v_count":1}"#,
        r#"{"a":{"k":[1,"x"]},"count":1,"v_sum":0,"v_min":null,"v_max":null,"v_avg":null,"v_count":1}"#,
        r#"{"count":1,"v_sum":0,"v_min":null,"v_max":null,"v_avg":null,"v_count":1}"#,
        r#"{"a":{"k":true},"count":1,"v_sum":0,"v_min":null,"v_max":null,"v_avg":null,"v_count":0}"#,
    ];
    assert_eq!(ended(processor.as_mut()), expected);
}

#[test]
fn what_was_saved_goes_on() {
    let stage = "summarize count(), sum(n), p95(n), distinct(n), max(n) by=[k] max_keys=40";
    let lines = lines(3_000);
    let mut whole = build(&SPEC, stage).expect("right");
    results(whole.as_mut(), &lines, 100);
    let expected = ended(whole.as_mut());
    let mut parts = build(&SPEC, stage).expect("right");
    for lines in lines.chunks(600) {
        results(parts.as_mut(), lines, 100);
        let saved = parts.save();
        parts = build(&SPEC, stage).expect("right");
        parts.restore(&saved).expect("it is right");
        for cut in (0..saved.len()).step_by(97) {
            let mut other = build(&SPEC, stage).expect("right");
            assert!(other.restore(&saved[..cut]).is_err(), "cut to {cut}");
        }
    }
    assert_eq!(ended(parts.as_mut()), expected);
}

#[test]
fn slips_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("summarize count", "`count` is not a function of events"),
            ("summarize total(x)", "is not a function of events"),
            ("summarize p101(x)", "is not a function of events"),
            ("summarize p1e1(x)", "is not a function of events"),
            ("summarize sum()", "`sum` needs a field"),
            ("summarize count(), count()", "two results go to `count`"),
            (
                "summarize count() by=[count]",
                "which is something else already",
            ),
            ("summarize count() lateness=1s", "no effect without `every`"),
            (
                "summarize count() time=t",
                "`time` has no effect without `every`",
            ),
            ("summarize count() every=500d", "from 1ms to 365d"),
            (
                "summarize count() every=1m by=['@timestamp']",
                "beginning of the window",
            ),
        ],
    );
}

#[test]
fn times_at_the_limits_and_many_windows_are_bounded() {
    let settings = "{ functions: ['count()'], every: 1m, lateness: 1m, time: t }";
    let mut processor = build_yaml(&SPEC, settings).expect("right");
    let line = |time: &str| format!("{{\"t\":\"{time}\"}}");
    let times = [
        "1677-09-21T00:12:44Z",
        "2262-04-11T23:47:16Z",
        "1969-01-01T00:00:00Z",
    ];
    let told = results(processor.as_mut(), &times.map(line), 3);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(ended(processor.as_mut()).len(), 1);
    // What is in the future closes nothing, but there is a limit.
    let mut processor = build_yaml(&SPEC, settings).expect("right");
    let lines: Vec<String> = (0..20_000_u64)
        .map(|n| {
            let (day, minute) = (1 + n / 1_440, n % 1_440);
            line(&format!(
                "2026-05-{day:02}T{:02}:{:02}:00Z",
                minute / 60,
                minute % 60
            ))
        })
        .collect();
    let early = results(processor.as_mut(), &lines, 4_000).len();
    assert!(processor.take_warnings().is_empty());
    assert!(results(processor.as_mut(), &lines[9_999..10_001], 2).is_empty());
    assert_eq!(processor.take_counters()[0], ("events_late", 1));
    assert_eq!(processor.take_warnings().len(), 1);
    assert!(processor.take_warnings().is_empty());
    assert_eq!((early, ended(processor.as_mut()).len()), (10_000, 10_000));
}

#[test]
fn large_numbers_are_compared_digit_by_digit() {
    let stage = "summarize max(n), min(n), p0(n), p100(n), p50(x) by=[k]";
    let mut processor = build(&SPEC, stage).expect("right");
    let lines = [
        r#"{"n":9007199254740992,"x":1e-299}"#,
        r#"{"n":9007199254740993,"x":5}"#,
        r#"{"n":9007199254740991,"x":5}"#,
    ];
    results(processor.as_mut(), &lines.map(str::to_owned), 3);
    let expected = r#"{"n_max":9007199254740993,"n_min":9007199254740991,"n_p0":9007199254740991.0,"n_p100":9007199254740992.0,"x_p50":5.0}"#;
    assert_eq!(ended(processor.as_mut()), [expected]);
    assert!(processor.save().len() < 300);
}

#[test]
fn numbers_in_texts_may_have_blanks_and_too_large_sums_are_null() {
    let sums = |events: [&str; 2]| {
        let mut processor = build(&SPEC, "summarize sum(n), avg(n)").expect("right");
        results(processor.as_mut(), &events.map(str::to_owned), 2);
        ended(processor.as_mut())
    };
    let texts = sums([r#"{"n":" 3 "}"#, r#"{"n":2}"#]);
    assert_eq!(texts, [r#"{"n_sum":5,"n_avg":2.5}"#]);
    let large = sums([r#"{"n":1e308}"#, r#"{"n":1e308}"#]);
    assert_eq!(large, [r#"{"n_sum":null,"n_avg":null}"#]);
}

#[test]
fn results_without_windows_have_ids_of_their_events() {
    let ids_of = |lines: &[String], size: usize, saved_at: usize| -> Vec<String> {
        let build = || build_yaml(&SPEC, "{ functions: ['count()'], by: [k] }").expect("right");
        let mut processor = build();
        for (index, lines) in lines.chunks(size).enumerate() {
            if index == saved_at {
                let saved = processor.save();
                processor = build();
                processor.restore(&saved).expect("it was saved");
            }
            let mut batch = batch_of(lines.iter().map(String::as_str));
            process(processor.as_mut(), &mut batch);
        }
        processor.end(&last());
        let derived = processor.take_derived();
        let ids = |batch: &Batch| -> Vec<String> {
            let rows = 0..batch.len();
            rows.map(|row| batch.origin().shown_id(row)).collect()
        };
        derived.iter().flat_map(ids).collect()
    };
    let lines = lines(200);
    let ids = ids_of(&lines, 200, 1);
    assert!(ids.len() > 40, "{ids:?}");
    assert_eq!(ids_of(&lines, 200, 1), ids);
    let parts = ids_of(&lines, 100, 9);
    assert_eq!(
        ids_of(&lines, 100, 1),
        parts,
        "saved and restored in between"
    );
    let fewer = ids_of(&lines[..199], 199, 1);
    assert!(fewer.iter().all(|id| !ids.contains(id)), "{fewer:?}");
}
