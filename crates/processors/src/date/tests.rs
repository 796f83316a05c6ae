//! The processor over batches; parts of it are tested beside their code.

use super::*;
use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
use proptest::prelude::*;

#[test]
fn events_get_their_time() {
    const ZONE: &str = "timezone=UTC target=t";
    let stage = |formats: &str| format!("date f {formats} {ZONE}");
    let table = [
        (
            "ISO8601",
            r#"{"f":"2015-05-17T10:05:03Z"}"#,
            r#"{"f":"2015-05-17T10:05:03Z","t":"2015-05-17T10:05:03.000Z"}"#,
        ),
        (
            "UNIX",
            r#"{"f":1431857103.5}"#,
            r#"{"f":1431857103.5,"t":"2015-05-17T10:05:03.500Z"}"#,
        ),
        (
            "UNIX_MS",
            r#"{"f":"1431857103001"}"#,
            r#"{"f":"1431857103001","t":"2015-05-17T10:05:03.001Z"}"#,
        ),
        // Absent and null change nothing.
        ("UNIX", r#"{"g":1}"#, r#"{"g":1}"#),
        ("UNIX", r#"{"f":null}"#, r#"{"f":null}"#),
        // The first value of a list.
        (
            "yyyy ISO8601",
            r#"{"f":["2015-05-17",1]}"#,
            r#"{"f":["2015-05-17",1],"t":"2015-05-17T00:00:00.000Z"}"#,
        ),
        (
            "UNIX",
            r#"{"f":[7]}"#,
            r#"{"f":[7],"t":"1970-01-01T00:00:07.000Z"}"#,
        ),
        // The first format that reads the text wins.
        (
            "UNIX UNIX_MS",
            r#"{"f":1}"#,
            r#"{"f":1,"t":"1970-01-01T00:00:01.000Z"}"#,
        ),
        (
            "UNIX_MS UNIX",
            r#"{"f":1}"#,
            r#"{"f":1,"t":"1970-01-01T00:00:00.001Z"}"#,
        ),
    ];
    for (formats, input, output) in table {
        check(&SPEC, &[(&stage(formats), input, output)]);
    }
}

/// The time that a format gives, or nothing.
fn time(format: &str, text: &str, received: &str) -> Option<String> {
    let zone = Zone::UTC;
    let nanos = |text: &str| {
        let around = Surroundings {
            zone: Some(&zone),
            received: 0,
        };
        Format::compile("ISO8601", None)
            .unwrap()
            .read(text.as_bytes(), &around)
            .unwrap()
            .nanos
    };
    let around = Surroundings {
        zone: Some(&zone),
        received: nanos(received),
    };
    let moment = Format::compile(format, None)
        .unwrap()
        .read(text.as_bytes(), &around)
        .ok()?;
    let mut out = Vec::new();
    datetime::rfc3339::write_rfc3339(&mut out, moment.nanos);
    Some(String::from_utf8(out).unwrap())
}

/// Format, text, and the time that it gives.
const READ: &[(&str, &str, &str)] = &[
    (
        "dd/MMM/yyyy:HH:mm:ss Z",
        "17/May/2015:10:05:03 -0230",
        "2015-05-17T12:35:03.000Z",
    ),
    ("d/M/yyyy", "7/5/2015", "2015-05-07T00:00:00.000Z"),
    ("dd/MM/yyyy", "7/5/2015", "2015-05-07T00:00:00.000Z"),
    (
        "MMMM dd yyyy",
        "DECEMBER 01 2015",
        "2015-12-01T00:00:00.000Z",
    ),
    ("MMMM dd yyyy", "dec 01 2015", "2015-12-01T00:00:00.000Z"),
    (
        "EEE, dd MMM yyyy HH:mm:ss ZZ",
        "Sun, 17 May 2015 10:05:03 +00:00",
        "2015-05-17T10:05:03.000Z",
    ),
    (
        "EEEE dd.MM.yyyy",
        "Sunday 17.05.2015",
        "2015-05-17T00:00:00.000Z",
    ),
    (
        "yyyy-MM-dd'T'HH:mm:ssZ",
        "2015-05-17t10:05:03z",
        "2015-05-17T10:05:03.000Z",
    ),
    (
        "yyyyMMddHHmmssSSS",
        "20150517100503042",
        "2015-05-17T10:05:03.042Z",
    ),
    (
        "yyyy-MM-dd HH:mm:ss.SSSSSSSSS",
        "2015-05-17 10:05:03.123456789",
        "2015-05-17T10:05:03.123456789Z",
    ),
    (
        "yyyy-MM-dd HH:mm:ss.SSS",
        "2015-05-17 10:05:03.5",
        "2015-05-17T10:05:03.500Z",
    ),
    (
        "yyyy HH:mm:ss ZZZ",
        "2015 10:05:03 Europe/Berlin",
        "2015-01-01T09:05:03.000Z",
    ),
    (
        "yyyy HH:mm:ss ZZZ",
        "2015 10:05:03 +02:00",
        "2015-01-01T08:05:03.000Z",
    ),
    ("yyyy-DDD", "2016-366", "2016-12-31T00:00:00.000Z"),
    ("xxxx'W'ww-e", "2009W53-5", "2010-01-01T00:00:00.000Z"),
    (
        "yyyy-MM-dd hh:mm a",
        "2015-05-17 12:30 AM",
        "2015-05-17T00:30:00.000Z",
    ),
    (
        "yyyy-MM-dd hh:mm a",
        "2015-05-17 12:30 pm",
        "2015-05-17T12:30:00.000Z",
    ),
    ("a KK:mm yyyy", "PM 11:30 2015", "2015-01-01T23:30:00.000Z"),
    ("yyyy kk", "2015 24", "2015-01-01T00:00:00.000Z"),
    ("yyyy G", "2015 AD", "2015-01-01T00:00:00.000Z"),
    ("yyyy HH:mm:ss", "2015 23:59:60", "2015-01-02T00:00:00.000Z"),
    ("yyyy-MM-dd", "2262-04-11", "2262-04-11T00:00:00.000Z"),
    ("yyyy-MM-dd", "1677-09-22", "1677-09-22T00:00:00.000Z"),
];

/// Format, and a text that does not fit.
const NOT_READ: &[(&str, &str)] = &[
    ("yyyy-MM-dd", "2262-04-12"),
    ("yyyy-MM-dd", "1677-09-21"),
    ("yyyy G", "2015 BC"),
    ("yyyy-MM-dd", "2015-02-29"),
    ("yyyy-MM-dd", "2015-00-10"),
    ("yyyy-MM-dd", "2015-05-17 "),
    ("yyyy-MM-dd", " 2015-05-17"),
    ("yyyy-DDD", "2015-366"),
    ("HH:mm", "24:00"),
    ("yyyy", ""),
    ("yyyy ZZZ", "2015 Nowhere"),
    ("yyyy", "99999999999999999999"),
];

#[test]
fn formats_of_letters() {
    for (format, text, expected) in READ {
        assert_eq!(
            time(format, text, "2020-06-01").as_deref(),
            Some(*expected),
            "{format} on {text}"
        );
    }
    for (format, text) in NOT_READ {
        assert_eq!(time(format, text, "2020-06-01"), None, "{format} on {text}");
    }
}

#[test]
fn years_that_the_text_leaves_out() {
    for (format, text, received, expected) in [
        (
            "MMM dd HH:mm:ss",
            "Jun 01 10:00:00",
            "2020-06-01",
            Some("2020-06-01T10:00:00.000Z"),
        ),
        (
            "MMM dd HH:mm:ss",
            "Dec 31 23:59:59",
            "2020-01-01",
            Some("2019-12-31T23:59:59.000Z"),
        ),
        (
            "MMM dd HH:mm:ss",
            "Jan 01 00:00:00",
            "2020-12-31",
            Some("2021-01-01T00:00:00.000Z"),
        ),
        (
            "MMM dd HH:mm:ss",
            "Dec 31 23:59:59",
            "2020-02-01",
            Some("2020-12-31T23:59:59.000Z"),
        ),
        ("MMM dd HH:mm:ss", "Feb 29 10:00:00", "2021-03-01", None),
        (
            "HH:mm:ss",
            "10:00:00",
            "2020-06-01",
            Some("2020-01-01T10:00:00.000Z"),
        ),
        (
            "yy-MM-dd",
            "15-05-17",
            "2020-06-01",
            Some("2015-05-17T00:00:00.000Z"),
        ),
        (
            "yy-MM-dd",
            "39-05-17",
            "2020-06-01",
            Some("2039-05-17T00:00:00.000Z"),
        ),
        (
            "yy-MM-dd",
            "40-05-17",
            "2020-06-01",
            Some("1940-05-17T00:00:00.000Z"),
        ),
    ] {
        assert_eq!(
            time(format, text, received).as_deref(),
            expected,
            "{format} on {text} in {received}"
        );
    }
}

#[test]
fn names_of_other_languages() {
    for (locale, format, text, expected) in [
        ("de", "d. MMMM yyyy", "3. März 2024", "2024-03-03"),
        ("de", "EEE, d. MMM yyyy", "So, 3. Okt 2024", "2024-10-03"),
        ("de-AT", "d. MMM yyyy", "3. okt. 2024", "2024-10-03"),
        ("de", "dd.MMM.yyyy", "03.Dez.2024", "2024-12-03"),
        ("de", "dd.MMM.yyyy", "03.Mai.2024", "2024-05-03"),
        ("fr", "dd MMM yyyy", "03 févr. 2024", "2024-02-03"),
        ("fr_FR", "dd MMM yyyy", "03 AOÛT 2024", "2024-08-03"),
        (
            "es",
            "EEEE d 'de' MMMM 'de' yyyy",
            "martes 3 de marzo de 2024",
            "2024-03-03",
        ),
        ("ru", "d MMMM yyyy", "3 мая 2024", "2024-05-03"),
        ("ja", "yyyy'年'MMMd'日'", "2024年12月3日", "2024-12-03"),
        ("en", "d MMM yyyy", "3 Oct 2024", "2024-10-03"),
        // Other things than names are the same everywhere.
        ("de", "ISO8601", "2024-10-03", "2024-10-03"),
    ] {
        let event = serde_json::json!({ "f": text }).to_string();
        let stage = format!("date f {format:?} locale={locale} timezone=UTC target=t");
        let lines = crate::testing::run(&SPEC, &stage, &event);
        let expected = format!(r#""t":"{expected}T00:00:00.000Z"}}"#);
        assert!(lines[0].ends_with(&expected), "{locale}: {}", lines[0]);
    }
    for (locale, text) in [("de", "3 Oct 2024"), ("fr", "3 Okt 2024")] {
        let event = serde_json::json!({ "f": text }).to_string();
        let stage = format!("date f 'd MMM yyyy' locale={locale}");
        let lines = crate::testing::run(&SPEC, &stage, &event);
        assert!(lines[0].contains("_dateparsefailure"), "{}", lines[0]);
    }
}

#[test]
fn the_zone_may_come_from_the_event() {
    let input = [
        r#"{"f":"2024-07-01 12:00:00","tz":"Europe/Berlin"}"#,
        r#"{"f":"2024-07-01 12:00:01","tz":"+05:30"}"#,
        r#"{"f":"2024-07-01 12:00:02","tz":"Europe/Berlin"}"#,
        r#"{"f":"2024-07-01 12:00:03"}"#,
        r#"{"f":"2024-07-01 12:00:04Z"}"#,
    ];
    let mut processor = build(&SPEC, "date f ISO8601 timezone=%{[tz]}").unwrap();
    let mut batch = batch_of(input);
    let failures = process(processor.as_mut(), &mut batch);
    let times = batch.column(&FieldPath::parse("@timestamp").unwrap());
    let found: Vec<Value<'_>> = (0..5).map(|row| times.value(row)).collect();
    let second = |n: i64| Value::Time(n * 1_000_000_000);
    assert_eq!(
        found,
        [
            second(1_719_828_000),
            second(1_719_815_401),
            second(1_719_828_002),
            Value::Missing,
            second(1_719_835_204)
        ]
    );
    assert_eq!(
        &*failures.rows()[0].reason,
        "date: the field tz does not hold a time zone for `2024-07-01 12:00:03`"
    );
}

#[test]
fn a_failed_event_keeps_its_time_and_gets_the_tag() {
    let mut processor = build(&SPEC, "date f yyyy target=g.t").unwrap();
    let mut batch = batch_of([
        r#"{"f":"x","g":{"t":1}}"#,
        r#"{"f":"2015","g":1}"#,
        r#"{"f":"9999","g":{}}"#,
    ]);
    process(processor.as_mut(), &mut batch);
    assert_eq!(
        lines_of(&batch),
        [
            r#"{"f":"x","g":{"t":1},"tags":["_dateparsefailure"],"error":{"message":"date: `x` is not in the format yyyy"}}"#,
            r#"{"f":"2015","g":1,"tags":["_dateparsefailure"],"error":{"message":"cannot write g.t: there is a value above it that is not an object"}}"#,
            r#"{"f":"9999","g":{},"tags":["_dateparsefailure"],"error":{"message":"date: `9999` is outside of 1677-09-21 to 2262-04-11"}}"#,
        ]
    );
}

#[test]
fn broken_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("date", "field"),
            ("date f", "formats"),
            ("date f formats=[]", "at least one format"),
            (
                "date f yyyy-MM-ddTHH",
                "`T` is not a letter of time formats",
            ),
            ("date f 'yyyy z'", "names of zones"),
            ("date f yyyy timezone=Europe/Berlim", "is not a time zone"),
            ("date [f yyyy", "is not a field name"),
            ("date f yyyy locale=xx", "`xx` is not a known locale"),
        ],
    );
    let Err(error) = build(&SPEC, "date f UNIX 'yyyy-MM-ddTHH'") else {
        panic!("accepted")
    };
    assert!(
        error
            .to_string()
            .lines()
            .any(|line| line.trim_end().ends_with('^')),
        "{error}"
    );
    let Err(error) = build(&SPEC, "date f yyyy timezone=Europe/Berlim") else {
        panic!("accepted")
    };
    assert_eq!(error.suggestion(), Some("Europe/Berlin"));
}

proptest! {
    /// What is written by the batch is read back, to the nanosecond.
    #[test]
    fn written_times_are_read_back(nanos in any::<i64>()) {
        let mut text = Vec::new();
        datetime::rfc3339::write_rfc3339(&mut text, nanos);
        let around = Surroundings { zone: None, received: 0 };
        let read = Format::compile("ISO8601", None).unwrap().read(&text, &around);
        prop_assert_eq!(read.map(|moment| moment.nanos), Ok(nanos));
    }

    /// No text makes a format panic, and processors with warm and cold caches agree.
    #[test]
    fn caches_change_nothing(texts in proptest::collection::vec("(1[0-9]|[0-9])/(May|Jun)/2015:1[01]:0[0-3]:[0-6][0-9] \\+0[0-2]00|\\PC{0,30}", 1..20)) {
        let stage = "date f yyyy 'dd/MMM/yyyy:HH:mm:ss Z' ISO8601 timezone=UTC";
        let documents: Vec<String> = texts.iter().map(|text| serde_json::json!({ "f": text }).to_string()).collect();
        let mut warm = build(&SPEC, stage).unwrap();
        let mut together = batch_of(documents.iter().map(String::as_str));
        process(warm.as_mut(), &mut together);
        let mut alone = Vec::new();
        for document in &documents {
            let mut cold = build(&SPEC, stage).unwrap();
            let mut batch = batch_of([document.as_str()]);
            process(cold.as_mut(), &mut batch);
            alone.extend(lines_of(&batch));
        }
        prop_assert_eq!(lines_of(&together), alone);
    }
}
