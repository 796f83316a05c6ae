//! The processor over batches; parts of it are tested beside their code.

use super::*;
use crate::testing::{build, build_error, check_errors, lines_of, process, text_batch};
use serde_json::{Map, Value, json};

/// What becomes of the text `text` besides it.
fn fields(stage: &str, text: &str) -> String {
    let event = json!({ "text": text }).to_string();
    let lines = crate::testing::run(&SPEC, stage, &event);
    let mut found: Map<String, Value> = serde_json::from_str(&lines[0]).expect("an object");
    assert_eq!(
        found.shift_remove("text"),
        Some(text.into()),
        "the text stays"
    );
    Value::Object(found).to_string()
}

#[test]
fn every_kind_of_key() {
    for (settings, text, expected) in [
        ("'%{a} %{b}'", "1 2", r#"{"a":"1","b":"2"}"#),
        ("'%{a} %{} %{?c} %{b}'", "1 2 3 4", r#"{"a":"1","b":"4"}"#),
        ("'%{a},%{b}'", ",", r#"{"a":"","b":""}"#),
        (
            "'%{+a/2} %{+a/1} %{+a/4} %{+a/3}'",
            "1 2 3 go",
            r#"{"a":"2 1 go 3"}"#,
        ),
        ("'%{a}-%{+a}/%{+a}'", "1-2/3", r#"{"a":"1-2/3"}"#),
        ("'%{b}-%{a}-%{+b}'", "1-2-3", r#"{"b":"1-3","a":"2"}"#),
        ("'%{[a][b]} %{a.c}'", "1 2", r#"{"a":{"b":"1","c":"2"}}"#),
        ("'%{*k}: %{&k}'", "x.y: 2", r#"{"x.y":"2"}"#),
        ("'%{k}: %{&k}'", "x: 2", r#"{"k":"x","x":"2"}"#),
        (
            "'%{?k}: %{&k};%{?l}: %{&l}'",
            "x: 1;y: 2",
            r#"{"x":"1","y":"2"}"#,
        ),
        ("'%{*k}: %{&k}'", ": 2", "{}"),
        (
            "'%{a} %{b}' target=t.u",
            "1 2",
            r#"{"t":{"u":{"a":"1","b":"2"}}}"#,
        ),
        ("'%{*k}=%{&k}' target=t", "x=2", r#"{"t":{"x":"2"}}"#),
        (
            "'%{a},%{b}' trim_values=all",
            " 1 , 2",
            r#"{"a":"1","b":"2"}"#,
        ),
        (
            "'%{a},%{b}' trim_values=left trim_chars=._",
            "._1_,2.",
            r#"{"a":"1_","b":"2."}"#,
        ),
        (
            "'%{a},%{b}' trim_values=right",
            " 1 , 2 ",
            r#"{"a":" 1","b":" 2"}"#,
        ),
    ] {
        assert_eq!(
            fields(&format!("dissect {settings} field=text"), text),
            expected,
            "{settings} on {text}"
        );
    }
}

#[test]
fn conversions() {
    for (kind, text, expected) in [
        ("int", "42", "42"),
        ("int", "-007", "-7"),
        ("integer", "+7", "7"),
        ("long", "18446744073709551615", "18446744073709551615"),
        ("float", "1.50", "1.50"),
        (
            "double",
            "12345678901234567890.12345678901234567890",
            "12345678901234567890.12345678901234567890",
        ),
        ("float", "+1.", "1.0"),
        ("bool", "TRUE", "true"),
        ("boolean", "false", "false"),
    ] {
        let mut batch = text_batch([text]);
        process(
            build(&SPEC, &format!("dissect '%{{a|{kind}}}'"))
                .expect(kind)
                .as_mut(),
            &mut batch,
        );
        let mut found = Vec::new();
        batch
            .column(&FieldPath::from_keys(["a"]))
            .value(0)
            .write_json(&mut found);
        assert_eq!(
            String::from_utf8_lossy(&found),
            expected,
            "{text} as {kind}"
        );
    }
}

#[test]
fn what_cannot_be_converted_fails_and_sets_nothing() {
    for (pattern, text, reason) in [
        (
            "%{a} %{b|int}",
            "1 x",
            "message: `x`, captured as b, is not a whole number",
        ),
        (
            "%{a} %{b|int}",
            "1 1.0",
            "message: `1.0`, captured as b, is not a whole number",
        ),
        (
            "%{a} %{b|int}",
            "1 18446744073709551616",
            "message: `18446744073709551616`, captured as b, is too large for a whole number of 64 bits",
        ),
        (
            "%{a} %{b|float}",
            "1 inf",
            "message: `inf`, captured as b, is not a number",
        ),
        (
            "%{a} %{b|bool}",
            "1 yes",
            "message: `yes`, captured as b, is not true or false",
        ),
        (
            "%{a} %{b|int} %{+b}",
            "1 2 3",
            "message: `2 3`, captured as b, is not a whole number",
        ),
    ] {
        let mut batch = text_batch(["1 2", text]);
        let failures = process(
            build(&SPEC, &format!("dissect '{pattern}'"))
                .expect(pattern)
                .as_mut(),
            &mut batch,
        );
        assert_eq!(&*failures.rows().last().expect("a failure").reason, reason);
        assert!(
            batch
                .column(&FieldPath::from_keys(["a"]))
                .value(1)
                .is_missing(),
            "{pattern}"
        );
    }
}

#[test]
fn fields_that_the_pattern_does_not_name_are_converted() {
    for (settings, event, expected) in [
        (
            "'%{?k}=%{&k}' convert_datatype.took=int",
            r#"{"text":"took=17"}"#,
            r#"{"text":"took=17","took":17}"#,
        ),
        (
            "'%{*k}=%{&k}' convert_datatype.took=float target=t",
            r#"{"text":"took=1.50"}"#,
            r#"{"text":"took=1.50","t":{"took":1.50}}"#,
        ),
        (
            "'%{?k}=%{&k}' convert_datatype.ok=bool convert_datatype.n=int",
            r#"{"text":"ok=TRUE","n":"+7"}"#,
            r#"{"text":"ok=TRUE","n":7,"ok":true}"#,
        ),
        // What the text names wins over what is there.
        (
            "'%{?k}=%{&k}' convert_datatype.n=int",
            r#"{"text":"n=2","n":"x"}"#,
            r#"{"text":"n=2","n":2}"#,
        ),
        (
            "'%{?k}=%{&k};%{?l}=%{&l}' convert_datatype.n=int",
            r#"{"text":"n=2;n=3"}"#,
            r#"{"text":"n=2;n=3","n":[2,3]}"#,
        ),
        (
            "'%{a}' convert_datatype.b=int convert_datatype.c.d=float convert_datatype.e=int convert_datatype.f=bool",
            r#"{"text":"x","b":"12","c":{"d":"+1.5"},"e":null}"#,
            r#"{"text":"x","b":12,"c":{"d":1.5},"e":null,"a":"x"}"#,
        ),
        (
            "'%{a}' convert_datatype.b=int convert_datatype.c=float target=t",
            r#"{"text":"x","t":{"b":"12","c":1.50},"b":"x"}"#,
            r#"{"text":"x","t":{"b":12,"c":1.50,"a":"x"},"b":"x"}"#,
        ),
        // Where the text does not fit or is absent, nothing is converted.
        (
            "'%{a}' convert_datatype.b=int",
            r#"{"b":"12"}"#,
            r#"{"b":"12"}"#,
        ),
    ] {
        let stage = format!("dissect {settings} field=text");
        assert_eq!(
            crate::testing::run(&SPEC, &stage, event),
            [expected],
            "{settings}"
        );
    }
    for (settings, event, reason) in [
        (
            "'%{a} %{?k}=%{&k}' convert_datatype.n=int",
            r#"{"text":"1 n=x"}"#,
            "text: `x`, the value of n, is not a whole number",
        ),
        (
            "'%{a} %{b|int}' convert_datatype.n=int",
            r#"{"text":"1 2","n":"12.5"}"#,
            "text: `12.5`, the value of n, is not a whole number",
        ),
        (
            "'%{?k}=%{&k} %{b|int}' convert_datatype.n=int",
            r#"{"text":"n=1 x"}"#,
            "text: `x`, captured as b, is not a whole number",
        ),
    ] {
        let stage = format!("dissect {settings} field=text");
        let mut batch = crate::testing::batch_of([event, event]);
        let failures = process(build(&SPEC, &stage).expect(settings).as_mut(), &mut batch);
        assert_eq!(&*failures.rows()[1].reason, reason, "{settings}");
        let (before, _) = event.rsplit_once('}').expect("an object");
        for line in lines_of(&batch) {
            let start = format!("{before},\"tags\":");
            assert!(line.starts_with(&start), "nothing is set: {line}");
        }
    }
}

#[test]
fn the_source_can_be_replaced_and_absent_fields_are_passed_over() {
    let lines = crate::testing::run(
        &SPEC,
        "dissect '%{text} %{n}' text",
        "{\"text\":\"a 1\"}\n{\"text\":null}\n{}\n{\"text\":12.5}",
    );
    assert_eq!(
        lines[..3],
        [r#"{"text":"a","n":"1"}"#, r#"{"text":null}"#, "{}"]
    );
    assert!(
        lines[3].contains("_dissectfailure"),
        "a number is read as its text: {}",
        lines[3]
    );
}

#[test]
fn a_value_in_the_way_fails_the_event() {
    let lines = crate::testing::run(
        &SPEC,
        "dissect '%{a.b} %{c}' text",
        r#"{"text":"1 2","a":5}"#,
    );
    assert!(
        lines[0].starts_with(r#"{"text":"1 2","a":5,"tags":["_dissectfailure"]"#),
        "{}",
        lines[0]
    );
}

#[test]
fn captures_are_views_of_the_text() {
    let mut batch = text_batch(["1 2", "3 4"]);
    let text = batch.column(&FieldPath::from_keys(["message"]));
    process(
        build(&SPEC, "dissect '%{a} %{b}'")
            .expect("it builds")
            .as_mut(),
        &mut batch,
    );
    let column = batch.column(&FieldPath::from_keys(["b"]));
    assert_eq!(column.value(1), batch::Value::Text(b"4"));
    assert_eq!(column.buffers()[0].as_ptr(), text.buffers()[0].as_ptr());
    assert_eq!(lines_of(&batch)[0], r#"{"message":"1 2","a":"1","b":"2"}"#);
}

#[test]
fn bad_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("dissect", "pattern"),
            (
                "dissect '%{a}%{b}'",
                "two keys need a delimiter between them",
            ),
            ("dissect '%{a}' b..c", "`b..c` is not a field name"),
            ("dissect '%{a|ip}'", "there is no type `ip`"),
            (
                "dissect '%{a}' convert_datatype.a.b=int",
                "a.b cannot be converted beside a",
            ),
            (
                "dissect '%{a}' convert_datatype.a=ip",
                "`ip` is not accepted here",
            ),
            ("dissect '%{a}' trim_chars=é", "`trim_chars` must be ASCII"),
            ("dissect '%{a}' tag_on_failure=x", "tag_on_failure"),
        ],
    );
    let error = build(&SPEC, "dissect '%{a} %{+}'")
        .err()
        .expect("a refusal");
    assert_eq!(
        error.column(),
        Some("in | dissect '%{a} ".len() + 1),
        "{error}"
    );
    assert!(build_error(&SPEC, "dissect '%{a}' target=''").contains("not a field name"));
}
