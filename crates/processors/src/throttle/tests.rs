//! Tests of `throttle`.

use super::*;
use crate::testing::{
    batch_of, build, build_yaml, check_errors, lines_of, process, process_rows, text_batch,
};

/// Which events of a stage pass, all in one batch; each in a batch of its own, and with what is remembered saved and restored before each, it has
/// to be the same.
fn passing(stage: &str, events: &[&str]) -> Vec<usize> {
    let mut together = build(&SPEC, stage).expect(stage);
    let mut batch = batch_of(events.iter().copied());
    process(together.as_mut(), &mut batch);
    let passed: Vec<usize> = batch.alive().iter().collect();
    let mut apart = build(&SPEC, stage).expect(stage).fork();
    let mut again: Option<Vec<u8>> = None;
    for (row, event) in events.iter().enumerate() {
        let mut batch = batch_of([*event]);
        process(apart.as_mut(), &mut batch);
        let expected = passed.contains(&row);
        assert_eq!(!batch.alive().is_empty(), expected, "{stage}: {row} alone");
        let mut restored = build(&SPEC, stage).expect(stage);
        if let Some(saved) = &again {
            restored.restore(saved).expect("it was saved");
        }
        let mut batch = batch_of([*event]);
        process(restored.as_mut(), &mut batch);
        assert_eq!(!batch.alive().is_empty(), expected, "{stage}: {row} again");
        again = Some(restored.save());
    }
    passed
}

#[test]
fn each_key_has_its_own_limit() {
    let events = [
        r#"{"a":1}"#,
        r#"{"a":"1"}"#,
        r#"{"a":1.0}"#,
        r#"{"a":true}"#,
        r#"{"a":""}"#,
        r#"{"a":null,"b":1}"#,
        r#"{"b":1}"#,
        r#"{"a":"b","b":""}"#,
        r#"{"a":"","b":"b"}"#,
        // This one has no key.
        "{}",
    ];
    let twice: Vec<&str> = events.iter().flat_map(|event| [*event, *event]).collect();
    let first: Vec<usize> = (0..events.len()).map(|event| 2 * event).collect();
    assert_eq!(passing("throttle a, b rate=1", &twice), first);
    assert_eq!(passing("throttle rate=3", &twice), [0, 1, 2]);
}

#[test]
fn events_without_any_of_the_fields_have_one_limit_together() {
    let mut throttle = build(&SPEC, "throttle a, b.c rate=2").expect("it builds");
    let without = r#"{"a":null,"b":{"d":1}}"#;
    let mut batch = batch_of([without, "{}", r#"{"b":{"c":1}}"#, "{}", without]);
    process(throttle.as_mut(), &mut batch);
    assert_eq!(batch.alive().iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(&*batch.drops()[0].reason, "throttle");
    let counters = [
        ("events_over_limit", 2),
        ("events_without_key", 4),
        ("keys_forgotten", 0),
    ];
    assert_eq!(throttle.take_counters(), counters);
    assert!(
        throttle
            .take_counters()
            .iter()
            .all(|(_, count)| *count == 0)
    );
}

fn at(time: &str) -> String {
    format!(r#"{{"@timestamp":"2026-05-01T{time}","k":1}}"#)
}

#[test]
fn the_limit_goes_by_the_times_of_events() {
    for (settings, times, expected) in [
        // Three at once, and then one every 20 seconds.
        (
            "rate=3 per=1m",
            &[
                "00:00:00Z",
                "00:00:00Z",
                "00:00:01Z",
                "00:00:19.999999999Z",
                "00:00:20Z",
                "00:00:21Z",
            ][..],
            &[0, 1, 2, 4][..],
        ),
        // It fills up to the burst and no further.
        (
            "rate=1 burst=2",
            &[
                "00:00:00Z",
                "01:00:00Z",
                "01:00:00Z",
                "01:00:00Z",
                "01:00:01Z",
            ],
            &[0, 1, 2, 4],
        ),
        // A late event takes its part and fills nothing.
        (
            "rate=1 burst=2",
            &[
                "00:00:30Z",
                "00:00:00Z",
                "00:00:29Z",
                "00:00:30.5Z",
                "00:00:31Z",
            ],
            &[0, 1, 4],
        ),
        // A time far ahead fills the bucket once, and holds until the next event.
        (
            "rate=1",
            &[
                "00:00:00Z",
                "23:00:00Z",
                "00:00:00.5Z",
                "00:00:01Z",
                "00:00:01.5Z",
                "00:00:02Z",
            ],
            &[0, 1, 4],
        ),
        // One far back fills nothing of itself, but what follows is later than it.
        (
            "rate=1",
            &[
                "12:00:00Z",
                "00:00:00Z",
                "12:00:00.5Z",
                "12:00:00.9Z",
                "12:00:01.5Z",
            ],
            &[0, 2, 4],
        ),
        // Zones are read; what is no time is the time of receipt, which is 1970 here.
        ("rate=1", &["00:00:00Z", "02:00:00.9+02:00"], &[0]),
        ("rate=1", &["midnight", "noon"], &[0]),
        (
            "rate=1 time=@metadata.timestamp",
            &["00:00:00Z", "00:20:00Z"],
            &[0],
        ),
        (
            "rate=1 per=365d burst=100",
            &["00:00:00Z"; 101],
            &ALL_BUT_ONE,
        ),
        // An interval that is no whole number of nanoseconds.
        (
            "rate=3",
            &[
                "00:00:00Z",
                "00:00:00Z",
                "00:00:00Z",
                "00:00:01Z",
                "00:00:01Z",
                "00:00:01Z",
                "00:00:01Z",
            ],
            &[0, 1, 2, 3, 4, 5],
        ),
    ] {
        let events: Vec<String> = times.iter().map(|time| at(time)).collect();
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let stage = format!("throttle k {settings}");
        assert_eq!(passing(&stage, &events), expected, "{settings} {times:?}");
    }
}

const ALL_BUT_ONE: [usize; 100] = {
    let mut rows = [0; 100];
    let mut row = 0;
    while row < 100 {
        rows[row] = row;
        row += 1;
    }
    rows
};

#[test]
fn events_over_the_limit_can_be_tagged_instead() {
    for (settings, tags) in [
        ("", r#","tags":["_throttled"]"#),
        ("tag=much", r#","tags":["much"]"#),
        ("tag=''", ""),
    ] {
        let stage = format!("throttle rate=1 on_exceed=tag {settings}");
        let mut throttle = build(&SPEC, &stage).expect("it builds");
        let mut batch = text_batch(["one", "two"]);
        process(throttle.as_mut(), &mut batch);
        let second = format!(r#"{{"message":"two"{tags}}}"#);
        assert_eq!(lines_of(&batch), [r#"{"message":"one"}"#, &second]);
        assert_eq!(throttle.take_counters()[0], ("events_over_limit", 1));
    }
}

#[test]
fn other_rows_are_neither_dropped_nor_counted() {
    let mut throttle = build(&SPEC, "throttle a rate=2").expect("it builds");
    let mut batch = batch_of([r#"{"a":1}"#; 6]);
    let odd = Bitmap::from_fn(6, |row| row % 2 == 1);
    process_rows(throttle.as_mut(), &mut batch, &odd);
    assert_eq!(batch.alive().iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn fields_that_no_event_had_are_told_of() {
    let names = |stage: &str| {
        let throttle = build(&SPEC, stage).expect(stage);
        let reads = throttle.reads().into_iter();
        let reads = reads.map(|read| (read.path().to_string(), read.is_optional()));
        reads.collect::<Vec<_>>()
    };
    let time = |name: &str, is_optional| (name.to_owned(), is_optional);
    assert_eq!(names("throttle rate=1"), [time("@timestamp", true)]);
    let fields = [time("a.b", false), time("seen", false)];
    assert_eq!(names("throttle a.b rate=1 time=seen"), fields);
}

#[test]
fn bad_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("throttle client", "rate"),
            ("throttle a..b rate=1", "`a..b` is not a field name"),
            ("throttle by=[] rate=1", "name at least one field"),
            ("throttle fields=a rate=1", "`fields` is not a setting"),
            ("throttle a rate=0", "at least 1 is expected"),
            ("throttle a rate=5 burst=0", "at least 1 is expected"),
            ("throttle a rate=5 per=0s", "a duration greater than 0"),
            ("throttle a rate=5 per=10", "`10` has no unit"),
            (
                "throttle a rate=5 per=10us",
                "`per` must be from 1ms to 365d",
            ),
            (
                "throttle a rate=5 per=366d",
                "`per` must be from 1ms to 365d",
            ),
            ("throttle a rate=1001k", "must be at most 1M with per=1s"),
            ("throttle a rate=1 per=1d burst=1M", "at most 36500"),
            ("throttle a rate=5 max_keys=0", "must be from 1 to 1G"),
            ("throttle a rate=5 max_keys=1001M", "must be from 1 to 1G"),
            (
                "throttle a rate=5 on_exceed=keep",
                "`keep` is not accepted here",
            ),
            ("throttle a rate=5 tag=much", "`tag` has no effect"),
            ("throttle a rate 5", "`rate` is a setting"),
            ("throttle a, b rate=5 per 1s", "`per` is a setting"),
            ("throttle a rate=5 key=b", "key"),
        ],
    );
    assert!(build(&SPEC, "throttle `rate` 5 rate=5").is_ok());
    assert!(build(&SPEC, "throttle a rate=1M burst=10M").is_ok());
    assert!(
        build_yaml(
            &SPEC,
            "{ by: [a], rate: 1k, per: 1h30m, burst: 5, max_keys: 10k }"
        )
        .is_ok()
    );
    assert!(build_yaml(&SPEC, "{ rate: 100 }").is_ok());
}
