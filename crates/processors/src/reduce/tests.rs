use super::*;
use crate::testing::{batch_of, build, build_yaml, check_errors, lines_of, process};

fn given(processor: &mut dyn Processor, lines: &[String]) -> Vec<String> {
    let mut batch = batch_of(lines.iter().map(String::as_str));
    process(processor, &mut batch);
    let mut told = lines_of(&batch);
    told.extend(processor.take_derived().iter().flat_map(lines_of));
    told
}

fn ended(processor: &mut dyn Processor) -> Vec<String> {
    processor.end(&batch_of([]));
    processor.take_derived().iter().flat_map(lines_of).collect()
}

#[test]
fn groups_end_by_events_by_time_and_for_room() {
    let settings = "{ fields: [k], collect: [m], start: \"m == 'a'\", end: \"m == 'z'\", timeout: 10s, max_keys: 2, max_events: 3, time: t }";
    let mut processor = build_yaml(&SPEC, settings).expect("right");
    let mut given = |key: &str, message: &str, second: u64| {
        let line = format!(
            "{{\"t\":\"1969-05-01T12:00:{second:02}Z\",\"k\":\"{key}\",\"m\":\"{message}\"}}"
        );
        let told = given(processor.as_mut(), &[line]);
        let short = |line: String| -> serde_json::Value {
            let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            serde_json::json!([event["k"], event["m"], event["tags"]])
        };
        told.into_iter()
            .map(short)
            .map(|it| it.to_string())
            .collect::<Vec<_>>()
    };
    assert!(given("x", "a", 0).is_empty());
    assert!(given("x", "b", 1).is_empty());
    assert_eq!(given("x", "z", 2), [r#"["x",["a","b","z"],null]"#]);
    assert!(given("x", "b", 3).is_empty());
    assert_eq!(given("x", "a", 4), [r#"["x",["b"],null]"#]);
    assert!(given("y", "b", 5).is_empty());
    assert_eq!(given("v", "b", 6), [r#"["x",["a"],null]"#]);
    assert!(given("v", "c", 7).is_empty());
    assert_eq!(given("v", "d", 8), [r#"["v",["b","c","d"],null]"#]);
    assert!(given("w", "b", 16).is_empty());
    assert_eq!(given("w", "c", 17), [r#"["y",["b"],["_reducetimeout"]]"#]);
    let counters = processor.take_counters();
    assert_eq!(
        counters[1..],
        [("groups_timed_out", 1), ("groups_ended_for_room", 2)]
    );
}

#[test]
fn what_was_saved_goes_on_whatever_the_batches() {
    let stage = "reduce k collect=[n] last=[s] timeout=1h time=@metadata.timestamp";
    let mut number = crate::testing::numbers(4);
    let lines: Vec<String> = (0..2_000)
        .map(|n| {
            let (key, text) = (number(300), number(9));
            format!("{{\"k\":{key},\"n\":{n},\"s\":\"\\\"{text}\"}}")
        })
        .collect();
    let mut whole = build(&SPEC, stage).expect("right");
    assert!(given(whole.as_mut(), &lines).is_empty());
    let expected = ended(whole.as_mut());
    let mut parts = build(&SPEC, stage).expect("right");
    for lines in lines.chunks(170) {
        assert!(given(parts.as_mut(), lines).is_empty());
        let saved = parts.save();
        parts = build(&SPEC, stage).expect("right");
        parts.restore(&saved).expect("it is right");
        assert!(parts.restore(&saved[..saved.len() - 3]).is_err());
    }
    assert_eq!(ended(parts.as_mut()), expected);
    assert_eq!(expected.len(), 300);
}

#[test]
fn events_without_a_key_pass_and_the_first_event_gives_its_id() {
    let mut processor = build(&SPEC, "reduce k last=[a.b]").expect("right");
    let lines = [
        r#"{"x":1}"#,
        r#"{"k":1,"a":{"b":1}}"#,
        r#"{"k":1,"a":{"b":[2,"y"]}}"#,
    ];
    let mut batch = batch_of(lines);
    process(processor.as_mut(), &mut batch);
    assert_eq!(lines_of(&batch), [lines[0]]);
    processor.end(&batch_of([]));
    let derived = processor.take_derived();
    assert_eq!(
        lines_of(&derived[0]),
        [r#"{"k":1,"a":{"b":[2,"y"]},"reduced":{"events":2,"duration_ms":0.0}}"#]
    );
    assert_eq!(derived[0].origin().shown_id(0), batch.origin().shown_id(1));
}

#[test]
fn slips_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("reduce k collect=[k]", "`k` is written twice"),
            ("reduce k collect=[a] last=[a.b]", "`a.b` is written twice"),
            ("reduce k collect=[reduced.x]", "is written twice"),
            ("reduce k target=k", "`k` is written twice"),
            ("reduce k target=k.x", "`k.x` is written twice"),
            ("reduce k.x target=k", "`k` is written twice"),
            ("reduce k max_bytes=2GiB", "must be at most 1GiB"),
            ("reduce k end='a =='", "expected a value"),
        ],
    );
}

/// Events of some keys: most in order of time, some late or far ahead, and some of a file that is older.
fn disordered(events: u64, keys: u64) -> Vec<String> {
    let mut number = crate::testing::numbers(7);
    let line = |n: u64| {
        let second = match number(40) {
            0 => number(86_400),
            1..5 => n.saturating_sub(number(30)),
            _ => n,
        };
        let month = if (events / 2..events * 2 / 3).contains(&n) {
            3
        } else {
            5
        };
        let day = if number(200) == 0 { 9 } else { 1 };
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let time = format!("1969-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
        format!("{{\"t\":\"{time}\",\"k\":{},\"n\":{n}}}", number(keys))
    };
    (0..events).map(line).collect()
}

#[test]
fn results_depend_on_the_sequence_of_events_alone() {
    let lines = disordered(3_000, 60);
    for settings in [
        "",
        "max_keys=7",
        "max_events=4 end='n % 50 == 3'",
        "start='n % 20 == 7'",
    ] {
        let stage = format!("reduce k collect=[n] time=t timeout=20s {settings}");
        let mut whole = build(&SPEC, &stage).expect("right");
        let mut expected = given(whole.as_mut(), &lines);
        expected.extend(ended(whole.as_mut()));
        let counters = whole.take_counters();
        assert!(expected.len() > 200, "{stage} gives {}", expected.len());
        for (size, is_saved) in [(1, false), (1, true), (7, true), (500, false)] {
            let mut processor = build(&SPEC, &stage).expect("right");
            let mut told = Vec::new();
            let mut counted = vec![0; counters.len()];
            for lines in lines.chunks(size) {
                told.extend(given(processor.as_mut(), lines));
                for (sum, (_, count)) in counted.iter_mut().zip(processor.take_counters()) {
                    *sum += count;
                }
                if is_saved {
                    let saved = processor.save();
                    processor = build(&SPEC, &stage).expect("right");
                    processor.restore(&saved).expect("it is right");
                }
            }
            told.extend(ended(processor.as_mut()));
            assert_eq!(told, expected, "{stage}, {size} at once");
            let expected: Vec<u64> = counters.iter().map(|(_, count)| *count).collect();
            assert_eq!(counted, expected, "{stage}, {size} at once");
        }
    }
}

/// An event of a key, so many seconds after a time.
fn at(key: u64, second: u64) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!("{{\"t\":\"1969-05-01T12:{minute:02}:{second:02}Z\",\"k\":{key},\"n\":1}}")
}

#[test]
fn a_pause_ends_a_group_although_its_key_goes_on() {
    let mut processor = build(&SPEC, "reduce k time=t timeout=1m").expect("right");
    let lines = [at(1, 0), at(1, 60), at(1, 121), at(1, 10)];
    let told = given(processor.as_mut(), &lines);
    let short = |text: &str| {
        text.replace("{\"t\":\"1969-05-01T12:", "")
            .replace("\",\"k\":1,\"n\":1", "")
    };
    let told: Vec<String> = told.iter().map(|line| short(line)).collect();
    assert_eq!(
        told,
        [
            "00:00Z,\"reduced\":{\"events\":2,\"duration_ms\":60000.0}}",
            "02:01Z,\"reduced\":{\"events\":1,\"duration_ms\":0.0}}"
        ]
    );
    assert_eq!(processor.take_counters()[1], ("groups_timed_out", 2));
}

#[test]
fn a_wrong_time_ends_no_group_of_another_key() {
    let mut lines: Vec<String> = (0..2_000).map(|n| at(n % 11, n / 10)).collect();
    let wild = "{\"t\":\"1969-12-01T12:00:00Z\",\"k\":99,\"n\":1}";
    lines.insert(700, wild.to_owned());
    let mut processor = build(&SPEC, "reduce k time=t timeout=1m").expect("right");
    assert!(given(processor.as_mut(), &lines).is_empty());
    assert_eq!(ended(processor.as_mut()).len(), 12);
    // All of a file that is newer comes before.
    let newer: Vec<String> = lines
        .iter()
        .map(|line| line.replace("-05-", "-06-"))
        .collect();
    let mut processor = build(&SPEC, "reduce k time=t timeout=1m").expect("right");
    assert!(given(processor.as_mut(), &newer).is_empty());
    assert_eq!(given(processor.as_mut(), &lines).len(), 11);
    assert_eq!(ended(processor.as_mut()).len(), 12);
}

#[test]
fn results_are_given_in_batches_of_some_rows_and_bytes() {
    let rows = |count: usize, text: &str| {
        let lines: Vec<String> = (0..count)
            .map(|n| format!("{{\"k\":{n},\"m\":\"{text}\"}}"))
            .collect();
        let mut processor = build(&SPEC, "reduce k collect=[m]").expect("right");
        assert!(given(processor.as_mut(), &lines).is_empty());
        processor.end(&batch_of([]));
        let derived = processor.take_derived();
        derived.iter().map(Batch::len).collect::<Vec<_>>()
    };
    assert_eq!(rows(10_000, ""), [4096, 4096, 1808]);
    let text = "x".repeat(3 << 20);
    assert_eq!(rows(7, &text), [3, 3, 1]);
}

#[test]
fn a_group_takes_so_many_bytes_at_most() {
    let mut processor = build(&SPEC, "reduce k collect=[m] max_bytes=1KiB").expect("right");
    let line = |n: u64| format!("{{\"k\":1,\"m\":\"{n:0200}\"}}");
    let lines: Vec<String> = (0..10).map(line).collect();
    let told = given(processor.as_mut(), &lines);
    let counts = told.iter().map(|line| line.matches("000000").count() > 0);
    assert_eq!(counts.count(), 2);
    assert_eq!(processor.take_counters()[2], ("groups_ended_for_room", 2));
    let left = ended(processor.as_mut());
    let events = |line: &String| line.contains("\"events\":4");
    assert!(told.iter().all(events));
    assert!(left[0].contains("\"events\":2"));
}

#[test]
fn results_replace_what_is_in_their_way() {
    let stage = "reduce k collect=[a.b, c.d.e] last=[c.f] target=s.t";
    let mut processor = build(&SPEC, stage).expect("right");
    let lines = [
        r#"{"k":1,"a":5,"c":{"d":"x","g":1},"s":null}"#,
        r#"{"k":1,"a":{"b":2},"c":{"d":{"e":3},"f":4}}"#,
        r#"{"k":2,"a":5,"c":[]}"#,
    ];
    let lines = lines.map(str::to_owned);
    assert!(given(processor.as_mut(), &lines).is_empty());
    assert_eq!(
        ended(processor.as_mut()),
        [
            r#"{"k":1,"a":{"b":[2]},"c":{"d":{"e":[3]},"g":1,"f":4},"s":{"t":{"events":2,"duration_ms":0.0}}}"#,
            r#"{"k":2,"a":5,"c":[],"s":{"t":{"events":1,"duration_ms":0.0}}}"#
        ]
    );
}

#[test]
fn conditions_that_fail_are_counted_and_told() {
    let mut processor =
        build(&SPEC, "reduce k end='n + 1 == 3' start='m + 1 == 3'").expect("right");
    let lines = [r#"{"k":1,"n":"x"}"#, r#"{"k":1,"n":{},"m":2}"#].map(str::to_owned);
    let told = given(processor.as_mut(), &lines);
    assert_eq!(told.len(), 1);
    let counters = processor.take_counters();
    assert!(matches!(
        counters.last(),
        Some(("expression_errors", 2 | 3))
    ));
    let warnings = processor.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0]
            .text
            .starts_with("the condition `end` failed for event ")
    );
    let names = |processor: &dyn Processor| -> Vec<String> {
        let reads = processor.reads();
        reads.iter().map(|read| read.path().to_string()).collect()
    };
    assert!(names(processor.as_ref()).contains(&"@timestamp".to_owned()));
}
