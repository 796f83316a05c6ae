//! The rules of grok over batches; the engine is tested in its own crate.

use super::*;
use crate::testing::{
    batch_of, build, build_yaml, check, check_errors, lines_of, process, text_batch,
};

/// The event that comes out, with its failure as its tag alone.
fn run(settings: &str, event: &str) -> String {
    let mut processor = build_yaml(&SPEC, settings).unwrap_or_else(|error| panic!("{error}"));
    let mut batch = batch_of([event]);
    let failures = process(processor.as_mut(), &mut batch);
    match failures.rows() {
        [] => lines_of(&batch).remove(0),
        [failure] => failure.tag.to_string(),
        many => panic!("{many:?}"),
    }
}

fn check_table(table: &[(&str, &str, &str)]) {
    for (settings, event, expected) in table {
        assert_eq!(run(settings, event), *expected, "{settings} on {event}");
    }
}

#[test]
fn patterns_are_tried_in_order() {
    check_table(&[
        (
            r#"{pattern: ["%{INT:a}", "%{WORD:b}"]}"#,
            r#"{"message":"x 1"}"#,
            r#"{"message":"x 1","a":"1"}"#,
        ),
        (
            r#"{pattern: ["%{INT:a}", "%{WORD:b}"]}"#,
            r#"{"message":"x"}"#,
            r#"{"message":"x","b":"x"}"#,
        ),
        (
            r#"{pattern: "^%{WORD:b}$"}"#,
            r#"{"message":"- -"}"#,
            "_grokparsefailure",
        ),
        // The first match ends the search in later fields as well.
        (
            r#"{match: {y: "%{INT:a}", x: ["%{WORD:b}"]}}"#,
            r#"{"x":"w","y":"1"}"#,
            r#"{"x":"w","y":"1","a":"1"}"#,
        ),
        (
            r#"{match: {y: "%{INT:a}", x: ["%{WORD:b}"]}}"#,
            r#"{"x":"w","y":"-"}"#,
            r#"{"x":"w","y":"-","b":"w"}"#,
        ),
        (
            r#"{match: {y: "%{INT:a}", x: "%{WORD:b}"}, break_on_match: false}"#,
            r#"{"x":"w","y":"1"}"#,
            r#"{"x":"w","y":"1","a":"1","b":"w"}"#,
        ),
        (
            r#"{match: {y: "%{INT:a}", x: "%{WORD:b}"}, break_on_match: false}"#,
            r#"{"x":"w","y":"-"}"#,
            r#"{"x":"w","y":"-","b":"w"}"#,
        ),
        (
            r#"{pattern: ["%{INT:a}", "%{WORD:b}", "%{WORD:a}"], break_on_match: false}"#,
            r#"{"message":"x 1"}"#,
            r#"{"message":"x 1","a":["1","x"],"b":"x"}"#,
        ),
    ]);
}

#[test]
fn events_without_the_text_fail() {
    let settings = r#"{pattern: "%{WORD:a}", field: x.y}"#;
    for event in [
        r#"{"b":1}"#,
        r#"{"x":{"y":null}}"#,
        r#"{"x":1}"#,
        r#"{"x":{"y":[]}}"#,
        r#"{"x":{"y":"-"}}"#,
        r#"{"x":{"y":[null,"-"]}}"#,
    ] {
        assert_eq!(run(settings, event), "_grokparsefailure", "{event}");
    }
}

#[test]
fn values_of_other_types_are_matched_as_text() {
    let table = [
        (r#"12.50"#, r#""12.50""#),
        ("true", r#""true""#),
        (r#"["-","b c"]"#, r#""b""#),
        (r#"["\u00e9\t",7,null,"x"]"#, r#"["7","x"]"#),
        (r#"{"k":"v"}"#, r#""k""#),
        (r#""a\"b""#, r#""a""#),
    ];
    for (value, expected) in table {
        let event = format!(r#"{{"message":{value}}}"#);
        let expected = format!(r#"{{"message":{value},"a":{expected}}}"#);
        assert_eq!(run(r#"{pattern: "(?<a>[a-z0-9.]+)"}"#, &event), expected);
    }
}

/// The first pattern that matches ends the search in its element only.
#[test]
fn every_element_of_a_list_is_tried() {
    let event = r#"{"message":["x 1","-","2 y"]}"#;
    for (more, expected) in [
        ("", r#""a":[1,2]"#),
        (", break_on_match: false", r#""a":[1,2],"b":["x","y"]"#),
        (", overwrite: a", r#""a":2"#),
    ] {
        let settings = format!(r#"{{pattern: ["%{{INT:a:int}}", "(?<b>[a-z])"]{more}}}"#);
        let expected = format!(r#"{{"message":["x 1","-","2 y"],{expected}}}"#);
        assert_eq!(run(&settings, event), expected, "{settings}");
    }
    check_table(&[(
        r#"{match: {message: ["%{INT:a}", "%{WORD:b}"], z: "%{WORD:c}"}}"#,
        r#"{"message":["x","1"],"z":"w"}"#,
        r#"{"message":["x","1"],"z":"w","a":"1","b":"x"}"#,
    )]);
}

/// The published idiom for stack traces: the message keeps all lines, also when it is replaced.
#[test]
fn stack_traces_stay_whole() {
    let trace = r"java.lang.Error: no\n\tat org.example.App.main(App.java:42)\nCaused by: x";
    let event = format!(r#"{{"message":"2026-05-17 10:05:03 ERROR {trace}"}}"#);
    for flags in ["", "(?m)", "(?mi)", "(?m)^"] {
        let pattern =
            format!("{flags}%{{TIMESTAMP_ISO8601:at}} %{{LOGLEVEL:level}} %{{GREEDYDATA:message}}");
        let settings = format!("{{pattern: '{pattern}', overwrite: message}}");
        let expected =
            format!(r#"{{"message":"{trace}","at":"2026-05-17 10:05:03","level":"ERROR"}}"#);
        assert_eq!(run(&settings, &event), expected, "{flags}");
    }
    let first_line = r#"{pattern: '(?-m)ERROR %{GREEDYDATA:message}', overwrite: message}"#;
    assert_eq!(
        run(first_line, &event),
        r#"{"message":"java.lang.Error: no"}"#
    );
}

#[test]
fn definitions_and_remarks_stand_in_the_pattern() {
    check_table(&[
        (
            r#"{pattern: '%{ID:id=[A-Z]{2}\d+} %{ID:other} %{NUMBER:took:float in s}'}"#,
            r#"{"message":"AB12 CD3 1.5"}"#,
            r#"{"message":"AB12 CD3 1.5","id":"AB12","other":"CD3","took":1.5}"#,
        ),
        (
            r#"{pattern: '(?i)%{LEVEL:level=warn|error} '}"#,
            r#"{"message":"WARN x"}"#,
            r#"{"message":"WARN x","level":"WARN"}"#,
        ),
    ]);
}

#[test]
fn what_meets_in_one_field() {
    let two = r#"{pattern: "%{WORD:a} %{WORD:a}"}"#;
    let over = r#"{pattern: "%{WORD:a} %{WORD:a}", overwrite: a}"#;
    let own = r#"{pattern: "%{WORD} %{GREEDYDATA:message}"}"#;
    check_table(&[
        (
            two,
            r#"{"message":"x y"}"#,
            r#"{"message":"x y","a":["x","y"]}"#,
        ),
        (
            two,
            r#"{"message":"x y","a":null}"#,
            r#"{"message":"x y","a":["x","y"]}"#,
        ),
        (
            two,
            r#"{"message":"x y","a":"w"}"#,
            r#"{"message":"x y","a":["w","x","y"]}"#,
        ),
        (
            two,
            r#"{"message":"x y","a":[]}"#,
            r#"{"message":"x y","a":["x","y"]}"#,
        ),
        (
            two,
            r#"{"message":"x y","a":[1,{}]}"#,
            r#"{"message":"x y","a":[1,{},"x","y"]}"#,
        ),
        (
            two,
            r#"{"message":"x y","a":{"b":1}}"#,
            r#"{"message":"x y","a":{"b":1}}"#,
        ),
        (over, r#"{"message":"x y"}"#, r#"{"message":"x y","a":"y"}"#),
        (
            over,
            r#"{"message":"x y","a":{"b":1}}"#,
            r#"{"message":"x y","a":"y"}"#,
        ),
        (
            own,
            r#"{"message":"x y z"}"#,
            r#"{"message":["x y z","y z"]}"#,
        ),
        (
            r#"{pattern: "%{WORD} %{GREEDYDATA:message}", overwrite: [message]}"#,
            r#"{"message":"x y z"}"#,
            r#"{"message":"y z"}"#,
        ),
    ]);
}

#[test]
fn alternatives_and_nested_fields() {
    check_table(&[
        // An alternative that took no part does not count.
        (
            r#"{pattern: "(?:%{INT:a}|%{WORD:a})"}"#,
            r#"{"message":"w"}"#,
            r#"{"message":"w","a":"w"}"#,
        ),
        (
            r#"{pattern: "%{WORD:a.b} %{WORD:[a][c]}"}"#,
            r#"{"message":"x y","a":{"d":1}}"#,
            r#"{"message":"x y","a":{"d":1,"b":"x","c":"y"}}"#,
        ),
        (
            r#"{pattern: "%{WORD:a.b}"}"#,
            r#"{"message":"x","a":1}"#,
            "_grokparsefailure",
        ),
        (
            r#"{pattern: "%{WORD:a}", target: t.u}"#,
            r#"{"message":"x"}"#,
            r#"{"message":"x","t":{"u":{"a":"x"}}}"#,
        ),
        (
            r#"{pattern: "%{WORD:a}", target: t, overwrite: t.a}"#,
            r#"{"message":"x","t":{"a":1}}"#,
            r#"{"message":"x","t":{"a":"x"}}"#,
        ),
    ]);
}

#[test]
fn empty_captures_and_unnamed_ones() {
    let pattern = r#"pattern: "^%{DATA:a}:(?:(?<b>x)|y)(?<c>z*)$""#;
    check_table(&[
        (
            &format!("{{{pattern}}}"),
            r#"{"message":":y"}"#,
            r#"{"message":":y"}"#,
        ),
        (
            &format!("{{{pattern}, keep_empty_captures: true}}"),
            r#"{"message":":y"}"#,
            r#"{"message":":y","a":"","b":null,"c":""}"#,
        ),
        (
            r#"{pattern: "%{INT} %{WORD:w}", named_captures_only: false}"#,
            r#"{"message":"1 x"}"#,
            r#"{"message":"1 x","INT":"1","w":"x"}"#,
        ),
    ]);
}

#[test]
fn types_make_numbers() {
    for (kind, text, expected) in [
        ("int", "12", "12"),
        ("int", "-12", "-12"),
        ("int", "+7", "7"),
        ("int", "1.9", "1"),
        ("int", "18446744073709551615", "18446744073709551615"),
        ("int", "99999999999999999999", r#""99999999999999999999""#),
        ("int", "-", r#""-""#),
        ("int", "x1", r#""x1""#),
        ("int", "12ms", "12"),
        ("float", "1.5", "1.5"),
        ("float", "12.5ms", "12.5"),
        ("float", "-.5%", "-0.5"),
        ("float", "+2.s", "2.0"),
        ("float", "1e3x", "1000.0"),
        ("float", "1.25E-1;", "0.125"),
        ("float", "3e", "3.0"),
        ("float", "3e+x", "3.0"),
        ("float", "1.2.3", "1.2"),
        ("float", ".", r#"".""#),
        ("float", "-.e5", r#""-.e5""#),
        ("float", "x1.5", r#""x1.5""#),
        ("float", "2", "2.0"),
        ("float", "1e3", "1000.0"),
        ("float", "1.5s", "1.5"),
        ("float", "inf", r#""inf""#),
        ("float", "nan", r#""nan""#),
        ("float", "1e999", r#""1e999""#),
    ] {
        let expected = format!(r#"{{"message":"{text}","n":{expected}}}"#);
        let event = format!(r#"{{"message":"{text}"}}"#);
        for more in ["", ", break_on_match: false"] {
            assert_eq!(
                run(
                    &format!(r#"{{pattern: "%{{NOTSPACE:n:{kind}}}"{more}}}"#),
                    &event
                ),
                expected
            );
        }
    }
}

#[test]
fn a_search_without_end_is_given_up() {
    let settings = r#"{pattern: '^(?:a|aa)+(?<x>b)\k<x>$', match_limit: 1000}"#;
    let event = format!(r#"{{"message":"{}b!"}}"#, "a".repeat(22));
    let list = format!(r#"{{"message":["-","{}b!"]}}"#, "a".repeat(22));
    for more in ["", ", break_on_match: false"] {
        let settings = settings.replace(", match", &format!("{more}, match"));
        assert_eq!(run(&settings, &event), "_groktimeout");
        assert_eq!(run(&settings, &list), "_groktimeout");
        // A higher limit helps.
        let settings = settings.replace("1000}", "5000000}");
        assert_eq!(run(&settings, &event), "_grokparsefailure");
    }
}

/// The short way and the way by all rules give the same events.
#[test]
fn both_ways_agree() {
    let lines = [
        r#"192.0.2.7 - bob [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 123 "-" "curl/7""#,
        r#"::1 - - [17/May/2015:10:05:03 +0000] "GET /" 404 - "http://x/" "Mozilla (\"x\")""#,
        r#"host.example - - [17/May/2015:10:05:03 +0000] "\x16\x03" 400 0 "" """#,
        "nothing of the kind",
        "",
        "é 1 ü",
    ];
    for pattern in [
        "%{COMBINEDAPACHELOG}",
        "(?<a>\\w+) %{INT:n:int}",
        "%{DATA:x}(?: %{NUMBER:f:float})?(?<e>)$",
    ] {
        let stage = format!("grok '{pattern}'");
        let mut plain = text_batch(lines);
        process(build(&SPEC, &stage).unwrap().as_mut(), &mut plain);
        let mut general = text_batch(lines);
        process(
            build(&SPEC, &format!("{stage} break_on_match=false"))
                .unwrap()
                .as_mut(),
            &mut general,
        );
        assert_eq!(lines_of(&plain), lines_of(&general), "{pattern}");
    }
}

#[test]
fn captures_are_views_into_the_line() {
    let mut batch = text_batch(["one two", "three four"]);
    process(
        build(&SPEC, "grok '%{WORD:a} %{WORD:b}'").unwrap().as_mut(),
        &mut batch,
    );
    let message = batch.column(&FieldPath::parse("message").unwrap());
    for name in ["a", "b"] {
        let column = batch.column(&FieldPath::parse(name).unwrap());
        assert_eq!(column.buffers().len(), message.buffers().len());
        assert_eq!(column.buffers()[0].as_ptr(), message.buffers()[0].as_ptr());
    }
}

#[test]
fn definitions_come_from_settings_and_files() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# mine\nFRUIT apple|pear\nNUT hazel\n").unwrap();
    let path = file.path().to_str().unwrap();
    let settings = format!(
        r#"{{pattern: "%{{FRUIT:f}} %{{NUT:n}}", patterns_files: {path:?}, definitions: {{NUT: "wal"}}}}"#
    );
    assert_eq!(
        run(&settings, r#"{"message":"pear wal"}"#),
        r#"{"message":"pear wal","f":"pear","n":"wal"}"#
    );
    std::fs::write(file.path(), "FRUIT apple\n\nBAD").unwrap();
    let Err(error) = build_yaml(&SPEC, &settings) else {
        panic!("accepted")
    };
    assert!(
        error.message().contains("line 3") && error.value() == Some(path),
        "{error}"
    );
}

#[test]
fn broken_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("grok", "needs a pattern"),
            ("grok '(a'", ""),
            ("grok a field='[x'", "not a field name"),
            ("grok a match.x=b", "either"),
            ("grok match.x=b field=y", "`field` goes with"),
            ("grok match.x=[]", "no pattern"),
            ("grok a pattern_set=ecs", "ecs"),
            ("grok a overwrite='[x'", "not a field name"),
            ("grok a patterns_files=/nowhere/p", "/nowhere/p"),
            (
                "grok '%{a}' definitions.a='%{b}' definitions.b='%{a}'",
                "circle",
            ),
            ("grok a definitions.a=", "empty"),
            ("grok a patern=b", "patern"),
        ],
    );
}

#[test]
fn errors_point_into_the_pattern_or_the_definition() {
    for (settings, value, part, suggestion) in [
        (
            r#"{pattern: ["o+k", "x %{NUMBR:n}"]}"#,
            "x %{NUMBR:n}",
            "no definition `NUMBR`",
            Some("NUMBER"),
        ),
        (r#"{match: {m: "ab(c"}}"#, "ab(c", "", None),
        (
            r#"{pattern: "%{MINE:x}", definitions: {MINE: "ab[c"}}"#,
            "ab[c",
            "",
            None,
        ),
    ] {
        let Err(error) = build_yaml(&SPEC, settings) else {
            panic!("{settings} is accepted")
        };
        assert_eq!(error.value(), Some(value), "{error}");
        assert!(error.message().contains(part), "{error}");
        assert_eq!(error.suggestion(), suggestion);
        assert!(error.to_string().contains('^'), "{error}");
    }
}

#[test]
fn rows_it_is_not_given_stay() {
    check(
        &SPEC,
        &[(
            "grok '%{WORD:a}'",
            r#"{"message":"x","z":1.50}"#,
            r#"{"message":"x","z":1.50,"a":"x"}"#,
        )],
    );
    let mut processor = build(&SPEC, "grok '%{WORD:a}'").unwrap();
    let mut batch = batch_of([r#"{"message":"x"}"#, r#"{"message":"y"}"#]);
    let rows = Bitmap::from_fn(2, |row| row == 1);
    crate::testing::process_rows(processor.as_mut(), &mut batch, &rows);
    assert_eq!(
        lines_of(&batch),
        [r#"{"message":"x"}"#, r#"{"message":"y","a":"y"}"#]
    );
}
