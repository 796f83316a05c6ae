//! Tests of `dedupe`.

use batch::{Cell, ColumnBuilder, Edit, FieldPath};

use super::*;
use crate::testing::{
    batch_of, build, build_yaml, check, check_errors, lines_of, process, process_rows, text_batch,
};

/// Which events of a stage pass, all in one batch, and each in a batch of its own.
fn passing(stage: &str, events: &[&str]) -> Vec<usize> {
    let mut together = build(&SPEC, stage).expect(stage);
    let mut batch = batch_of(events.iter().copied());
    process(together.as_mut(), &mut batch);
    let passed: Vec<usize> = batch.alive().iter().collect();
    let mut apart = build(&SPEC, stage).expect(stage).fork();
    let mut passes = |event: &&str| {
        let mut batch = batch_of([*event]);
        process(apart.as_mut(), &mut batch);
        !batch.alive().is_empty()
    };
    let each: Vec<usize> = (0..events.len())
        .filter(|row| passes(&events[*row]))
        .collect();
    assert_eq!(passed, each, "{stage}: in one batch and in several");
    passed
}

#[test]
fn different_values_are_kept_apart() {
    let events = [
        r#"{"a":1}"#,
        r#"{"a":"1"}"#,
        r#"{"a":1.0}"#,
        r#"{"a":true}"#,
        r#"{"a":"true"}"#,
        r#"{"a":[1]}"#,
        r#"{"a":"[1]"}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":""}"#,
        r#"{"a":"\"1\""}"#,
        r#"{"a":"null"}"#,
        r#"{"a":null,"b":1}"#,
        r#"{"b":1}"#,
        r#"{"a":"b","b":""}"#,
        r#"{"a":"","b":"b"}"#,
        r#"{"a":"xy","b":"z"}"#,
        r#"{"a":"x","b":"yz"}"#,
        // Alike, but for the lengths.
        r#"{"a":"x\u0000\u0000\u0000\u0000\"y"}"#,
        r#"{"a":"x","b":"y\u0000\u0000\u0000\u0000"}"#,
    ];
    assert_eq!(
        passing("dedupe a, b", &events),
        (0..events.len()).collect::<Vec<_>>()
    );
    for event in events {
        assert_eq!(passing("dedupe a, b", &[event, event]), [0], "{event}");
    }
    // By one field, with a text that is what is hashed of another value.
    let mut events = events[..11].to_vec();
    events.push(r#"{"a":"\u0001\u0000\u0000\u00001"}"#);
    assert_eq!(
        passing("dedupe a", &events),
        (0..events.len()).collect::<Vec<_>>()
    );
}

#[test]
fn what_is_written_the_same_is_the_same() {
    let mut dedupe = build(&SPEC, "dedupe a").expect("it builds");
    let events = [r#"{"a":7}"#, r#"{"a":"1970-01-01T00:00:00.000Z"}"#];
    process(dedupe.as_mut(), &mut batch_of(events));
    let mut batch = batch_of(["{}", "{}", "{}"]);
    let mut column = ColumnBuilder::new(3);
    column.set(0, Cell::Int(7));
    column.set(1, Cell::Time(0));
    column.set(2, Cell::Float(7.5));
    let mut edit = Edit::new();
    edit.set(FieldPath::from_keys(["a"]), column.finish());
    assert!(batch.apply(edit).is_empty());
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(lines_of(&batch), [r#"{"a":7.5}"#]);
    assert_eq!(
        passing("dedupe a", &[r#"{"a":"\u00e4\n"}"#, "{\"a\":\"ä\\n\"}"]),
        [0]
    );
}

#[test]
fn an_event_without_any_of_the_fields_passes() {
    let mut dedupe = build(&SPEC, "dedupe a, b.c").expect("it builds");
    let without = r#"{"a":null,"b":{"d":1}}"#;
    let mut batch = batch_of([without, without, "{}", r#"{"b":{"c":1}}"#, without]);
    process(dedupe.as_mut(), &mut batch);
    assert!(batch.alive().is_full());
    let counters = [("events_without_key", 4), ("keys_forgotten", 0)];
    assert_eq!(dedupe.take_counters(), counters);
    assert_eq!(dedupe.take_counters()[0].1, 0);
}

fn at(time: &str) -> String {
    format!(r#"{{"@timestamp":"2026-05-01T{time}","k":1}}"#)
}

#[test]
fn the_window_begins_with_the_event_that_passed_and_has_no_direction() {
    for (times, expected) in [
        // One passes every ten seconds.
        (
            &["00:00:00Z", "00:00:09.999999999Z", "00:00:10Z", "00:00:19Z"][..],
            &[0, 2][..],
        ),
        (&["00:00:10Z", "00:00:01Z", "00:00:00Z"], &[0, 2]),
        // A time far ahead holds until the next event.
        (
            &["00:00:00Z", "23:00:00Z", "00:00:01Z", "00:00:02Z"],
            &[0, 1, 2],
        ),
        // Zones are read; what is no time is the time of receipt, which is 1970 here.
        (&["00:00:00Z", "02:00:05+02:00"], &[0]),
        (&["00:00:00Z", "midnight", "noon"], &[0, 1]),
    ] {
        let events: Vec<String> = times.iter().map(|time| at(time)).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(
            passing("dedupe k within=10s", &events),
            expected,
            "{times:?}"
        );
    }
    let events = [at("00:00:00Z"), at("00:20:00Z")];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let by_receipt = "dedupe k within=10m time=@metadata.timestamp";
    assert_eq!(passing(by_receipt, &events), [0]);
    assert_eq!(passing("dedupe k within=182500d", &events), [0]);
}

#[test]
fn other_rows_are_neither_dropped_nor_remembered() {
    let mut dedupe = build(&SPEC, "dedupe a").expect("it builds");
    let mut batch = batch_of([r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":1}"#, r#"{"a":2}"#]);
    let odd = Bitmap::from_fn(4, |row| row % 2 == 1);
    process_rows(dedupe.as_mut(), &mut batch, &odd);
    assert!(batch.alive().is_full());
    let mut batch = batch_of([r#"{"a":2}"#, r#"{"a":3}"#]);
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(lines_of(&batch), [r#"{"a":3}"#]);
    assert_eq!(&*batch.drops()[0].reason, "dedupe");
}

#[test]
fn whole_events_are_compared_as_they_are_now() {
    check(
        &SPEC,
        &[(
            "dedupe",
            "{\"a\":1,\"b\":2}\n{\"a\":1}\n{\"a\":1,\"b\":2}\n{\"b\":2,\"a\":1}",
            "{\"a\":1,\"b\":2}\n{\"a\":1}\n{\"b\":2,\"a\":1}",
        )],
    );
    let mut dedupe = build(&SPEC, "dedupe").expect("it builds");
    let mut batch = batch_of([r#"{"a":1,"b":1}"#, r#"{"a":1,"b":2}"#, r#"{"a":2,"b":2}"#]);
    let mut edit = Edit::new();
    edit.remove(FieldPath::from_keys(["b"]), &Bitmap::all(3));
    assert!(batch.apply(edit).is_empty());
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(lines_of(&batch), [r#"{"a":1}"#, r#"{"a":2}"#]);
    // Documents that were given up for some of their fields: all of these count.
    let mut batch = batch_of([
        r#"{"@timestamp":"2026-05-01T00:00:00Z","a":3,"b":1}"#,
        r#"{"@timestamp":"2026-05-01T00:00:01Z","a":3,"b":2}"#,
        r#"{"@timestamp":"2026-05-01T00:00:01Z","a":3,"b":3}"#,
    ]);
    let kept = ["@timestamp", "a"].map(|name| FieldPath::from_keys([name]));
    batch.keep(&kept, &Bitmap::all(3));
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(batch.alive().iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn lines_are_compared_with_what_processors_made_of_them() {
    let mut dedupe = build(&SPEC, "dedupe").expect("it builds");
    let mut batch = text_batch(["one", "two", "one"]);
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(batch.alive().count(), 2);
    let mut batch = text_batch(["one", "one"]);
    let mut column = ColumnBuilder::new(2);
    column.set(1, Cell::Int(1));
    let mut edit = Edit::new();
    edit.set(FieldPath::from_keys(["n"]), column.finish());
    assert!(batch.apply(edit).is_empty());
    process(dedupe.as_mut(), &mut batch);
    assert_eq!(lines_of(&batch), [r#"{"message":"one","n":1}"#]);
}

#[test]
fn fields_that_no_event_had_are_told_of() {
    let names = |stage: &str| {
        let dedupe = build(&SPEC, stage).expect(stage);
        let reads = dedupe.reads().into_iter();
        let reads = reads.map(|read| (read.path().to_string(), read.is_optional()));
        reads.collect::<Vec<_>>()
    };
    let fields = [("a".to_owned(), false), ("b.c".to_owned(), false)];
    assert_eq!(names("dedupe a, b.c"), fields);
    assert_eq!(names("dedupe within=1s"), [(TIME.to_owned(), true)]);
    assert_eq!(
        names("dedupe within=1s time=seen"),
        [("seen".to_owned(), false)]
    );
    assert!(names("dedupe").is_empty());
}

#[test]
fn bad_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("dedupe a..b", "`a..b` is not a field name"),
            ("dedupe fields=[]", "name at least one field"),
            ("dedupe a within=0s", "a duration greater than 0"),
            ("dedupe a within=10", "`10` has no unit"),
            ("dedupe a max_keys=0", "must be from 1 to 1G"),
            ("dedupe a max_keys=1001M", "must be from 1 to 1G"),
            ("dedupe a time=seen", "no effect without `within`"),
            ("dedupe a, b within 10m", "`within` is a setting"),
            ("dedupe a max_keys 5", "`max_keys` is a setting"),
            ("dedupe a keys=5", "keys"),
        ],
    );
    assert!(build(&SPEC, "dedupe `within` 10m").is_ok());
    assert!(build_yaml(&SPEC, "{ fields: [a], within: 1h30m, max_keys: 10k }").is_ok());
    assert!(build_yaml(&SPEC, "{}").is_ok());
}
