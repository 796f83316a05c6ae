use super::*;
use crate::testing::{batch_of, build, check_errors, lines_of, process};

fn ended(processor: &mut dyn Processor) -> Vec<String> {
    processor.end(&batch_of([]));
    processor.take_derived().iter().flat_map(lines_of).collect()
}

#[test]
fn equal_events_stay_as_they_came_and_ids_stay() {
    let mut processor = build(&SPEC, "sort a.k asc, b desc").expect("right");
    let lines = [
        r#"{"a":{"k":2},"b":1,"n":0}"#,
        r#"{"a":{"k":1},"b":1,"n":1}"#,
        r#"{"a":{"k":1},"b":2,"n":2}"#,
        r#"{"b":2,"n":3}"#,
        r#"{"a":{"k":1},"n":4}"#,
        r#"{"a":{"k":2},"b":1,"n":5}"#,
        r#"{"a":{"k":true},"n":6}"#,
        r#"{"a":{"k":"1"},"x.y":{"z":1},"n":7}"#,
    ];
    let mut batch = batch_of(lines);
    process(processor.as_mut(), &mut batch);
    assert!(batch.alive().is_empty());
    processor.end(&batch_of([]));
    let derived = processor.take_derived();
    let order = [6, 2, 1, 4, 0, 5, 7, 3];
    assert_eq!(lines_of(&derived[0]), order.map(|n| lines[n].to_owned()));
    let ids = |batch: &Batch, row: usize| batch.origin().shown_id(row);
    for (row, n) in order.into_iter().enumerate() {
        assert_eq!(ids(&derived[0], row), ids(&batch, n));
    }
}

#[test]
fn what_was_saved_goes_on_and_memory_is_bounded() {
    let mut number = crate::testing::numbers(1);
    let lines: Vec<String> = (0..9_000)
        .map(|_| format!("{{\"n\":{}}}", number(1_000_000)))
        .collect();
    let mut expected = lines.clone();
    expected.sort_by_key(|line| line[5..line.len() - 1].parse::<u64>().expect("a number"));
    let mut processor = build(&SPEC, "sort n").expect("right");
    for lines in lines.chunks(2_500) {
        process(
            processor.as_mut(),
            &mut batch_of(lines.iter().map(String::as_str)),
        );
        let saved = processor.save();
        processor = build(&SPEC, "sort n").expect("right");
        processor.restore(&saved).expect("it is right");
        assert!(processor.restore(&saved[..saved.len() - 1]).is_err());
    }
    assert_eq!(ended(processor.as_mut()), expected);
    let mut small = build(&SPEC, "sort n max_bytes=64KiB").expect("right");
    for lines in lines.chunks(100) {
        process(
            small.as_mut(),
            &mut batch_of(lines.iter().map(String::as_str)),
        );
    }
    assert!(small.take_counters()[0].1 > 5);
    assert_eq!(small.take_warnings().len(), 1);
    let early: usize = small.take_derived().iter().map(Batch::len).sum();
    assert_eq!(early + ended(small.as_mut()).len(), 9_000);
}

#[test]
fn slips_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("sort 'a b'", "is not a field name"),
            ("sort -a", "`-a` is not a value of `sort`"),
        ],
    );
}

#[test]
fn events_that_failed_stay_so_also_when_they_are_saved() {
    let mut processor = build(&SPEC, "sort n").expect("right");
    let mut batch = batch_of([r#"{"n":2}"#, r#"{"n":1,"tags":["_x"]}"#, r#"{"n":0}"#]);
    batch.seal(&Bitmap::from_fn(3, |row| row == 1));
    process(processor.as_mut(), &mut batch);
    let saved = processor.save();
    let mut later = build(&SPEC, "sort n").expect("right");
    later.restore(&saved).expect("it is right");
    for mut processor in [processor, later] {
        processor.end(&batch_of([]));
        let derived = processor.take_derived();
        let sealed: Vec<usize> = derived[0].sealed().iter().collect();
        assert_eq!(sealed, [1]);
    }
}

#[test]
fn events_are_sorted_by_time_and_by_metadata_also_when_they_are_saved() {
    let lines = [
        r#"{"@timestamp":"2026-05-01T12:00:00.5Z","t":"2026-05-01T12:00:00.5Z","n":0}"#,
        r#"{"@timestamp":"2026-05-01T12:00:00Z","t":"2026-05-01T12:00:00Z","n":1}"#,
        r#"{"@timestamp":"2026-05-01T14:00:00+02:00","t":"2026-05-01T14:00:00+02:00","n":2}"#,
        r#"{"@timestamp":"yesterday","n":3}"#,
        r#"{"n":4}"#,
        r#"{"@timestamp":7,"n":5}"#,
    ];
    for (stage, order) in [
        ("sort @timestamp", [5, 1, 2, 0, 3, 4]),
        ("sort @timestamp desc", [3, 0, 1, 2, 5, 4]),
        ("sort t", [0, 1, 2, 3, 4, 5]),
        ("sort @metadata.n desc", [5, 4, 3, 2, 1, 0]),
        ("sort @metadata.timestamp, n desc", [5, 4, 3, 2, 1, 0]),
    ] {
        let mut processor = build(&SPEC, stage).expect("right");
        let mut batch = batch_of(lines);
        let numbers = batch.column(&FieldPath::from_keys(["n"]));
        batch.set_metadata("n", Column::clone(&numbers));
        process(processor.as_mut(), &mut batch);
        let saved = processor.save();
        let mut later = build(&SPEC, stage).expect("right");
        later.restore(&saved).expect("it is right");
        for mut processor in [processor, later] {
            let expected = order.map(|n| lines[n].to_owned());
            assert_eq!(ended(processor.as_mut()), expected, "{stage}");
        }
    }
}
