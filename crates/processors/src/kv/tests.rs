//! The processor over batches; parts of it are tested beside their code.

use super::*;
use crate::testing::{batch_of, build, build_yaml, check_errors, lines_of, process, text_batch};
use proptest::prelude::*;
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
fn every_setting_does_what_it_says() {
    for (settings, text, expected) in [
        ("", "a=1 b=2", r#"{"a":"1","b":"2"}"#),
        ("", "a=1 a=2 b=3 a=1", r#"{"a":["1","2","1"],"b":"3"}"#),
        (
            "allow_duplicate_values=false",
            "a=1 a=2 a=1 b=1 b=1",
            r#"{"a":["1","2"],"b":"1"}"#,
        ),
        ("", "a= b=\"\" c=1", r#"{"c":"1"}"#),
        (
            "allow_empty_values=true whitespace=strict",
            "a= b=\"\" c=1",
            r#"{"a":"","b":"","c":"1"}"#,
        ),
        ("target=t", "a=1", r#"{"t":{"a":"1"}}"#),
        ("target=t.u", "a=1", r#"{"t":{"u":{"a":"1"}}}"#),
        ("prefix=p_", "a=1", r#"{"p_a":"1"}"#),
        ("include_keys=[a, c]", "a=1 b=2 c=3", r#"{"a":"1","c":"3"}"#),
        ("exclude_keys=[a, c]", "a=1 b=2 c=3", r#"{"b":"2"}"#),
        (
            "trim_key=\"<>\" trim_value=\",.\"",
            "<a>=1, b=.2.,",
            r#"{"a":"1","b":"2"}"#,
        ),
        ("trim_value=é", "a=éxé", r#"{"a":"x"}"#),
        (
            "remove_char_key=\"_\" remove_char_value=\"-\"",
            "a_b=1-2-3",
            r#"{"ab":"123"}"#,
        ),
        (
            "transform_key=lowercase transform_value=uppercase",
            "Ab=cÉ aB=d",
            r#"{"ab":["CÉ","D"]}"#,
        ),
        (
            "default_keys.a=7 default_keys.z='7'",
            "a=1",
            r#"{"a":"1","z":"7"}"#,
        ),
        ("default_keys.a=7", "none", r#"{"a":7}"#),
        (
            "include_brackets=false",
            "a=(1 b=2)",
            r#"{"a":"(1","b":"2)"}"#,
        ),
        (
            "field_split=, value_split=:",
            "a:1,b:x y",
            r#"{"a":"1","b":"x y"}"#,
        ),
        ("", "a.b=1", r#"{"a.b":"1"}"#),
        ("", "nothing", "{}"),
        (
            "field_split_pattern=':+'",
            "k1=v1:k2=v2::k3=v3",
            r#"{"k1":"v1","k2":"v2","k3":"v3"}"#,
        ),
        (
            "value_split_pattern='->' field_split=;",
            "a->1=2;b -> 3",
            r#"{"a":"1=2","b":"3"}"#,
        ),
        (
            "value_split_pattern='=' whitespace=strict",
            "a= b=1 c = 2",
            r#"{"b":"1"}"#,
        ),
        (
            "recursive=true",
            "a=(b=1 c=2) d=3",
            r#"{"a":{"b":"1","c":"2"},"d":"3"}"#,
        ),
        ("recursive=true", "a=b=1 a=2", r#"{"a":[{"b":"1"},"2"]}"#),
        (
            "recursive=true",
            r#"a="b=(c=1 c=2) b=x d=''" e=[f]"#,
            r#"{"a":{"b":[{"c":["1","2"]},"x"]},"e":"f"}"#,
        ),
        (
            "recursive=true prefix=p_ exclude_keys=[x, X] transform_value=uppercase allow_duplicate_values=false",
            "a=(b=c b=c x=1) x=2",
            r#"{"p_a":{"p_B":"C"}}"#,
        ),
        (
            "recursive=true exclude_keys=[b]",
            "a=(b=1)",
            r#"{"a":"b=1"}"#,
        ),
        (
            "recursive=true",
            "1=2=3=4=5=6=7=8=9=10=11",
            r#"{"1":{"2":{"3":{"4":{"5":{"6":{"7":{"8":{"9":"10=11"}}}}}}}}}"#,
        ),
    ] {
        assert_eq!(
            fields(&format!("kv text {settings}"), text),
            expected,
            "{settings} on {text}"
        );
    }
}

#[test]
fn default_keys_and_settings_in_yaml() {
    let mut kv = build_yaml(
        &SPEC,
        "{field: text, default_keys: {n: null, list: [1, x]}, whitespace: strict}",
    )
    .expect("it builds");
    let mut batch = batch_of([r#"{"text":"a=1"}"#, r#"{"other":1}"#]);
    process(kv.as_mut(), &mut batch);
    let (with, without) = (
        r#"{"text":"a=1","a":"1","list":[1,"x"],"n":null}"#,
        r#"{"other":1}"#,
    );
    assert_eq!(lines_of(&batch), [with, without]);
}

#[test]
fn dotted_keys_are_found_by_their_name() {
    for stage in ["kv text", "kv text target=t"] {
        let mut batch = batch_of([r#"{"text":"a.b=1"}"#]);
        process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
        let path = if stage == "kv text" { "a.b" } else { "t.a.b" };
        let column = batch.column(&FieldPath::parse(path).expect(path));
        assert_eq!(column.value(0), batch::Value::Text(b"1"), "{stage}");
    }
}

#[test]
fn dotted_keys_in_nested_pairs_are_found_by_their_name() {
    let mut batch = batch_of([r#"{"text":"t=(a.b=1)"}"#]);
    let mut kv = build(&SPEC, "kv text recursive=true").expect("it builds");
    process(kv.as_mut(), &mut batch);
    let column = batch.column(&FieldPath::parse("t.a.b").expect("a path"));
    assert_eq!(column.value(0), batch::Value::Text(b"1"));
}

#[test]
fn nested_pairs_beyond_the_columns() {
    let line: String = (0..300).map(|n| format!("k{n}=(x={n}) ")).collect();
    let mut batch = text_batch([line.as_str(), line.as_str()]);
    let mut kv = build(&SPEC, "kv recursive=true target=t").expect("it builds");
    process(kv.as_mut(), &mut batch);
    for line in lines_of(&batch) {
        let found: Value = serde_json::from_str(&line).expect("JSON");
        for n in [0, 127, 128, 299] {
            assert_eq!(found["t"][format!("k{n}")], json!({"x": n.to_string()}));
        }
    }
}

#[test]
fn a_value_in_the_way_of_the_target_fails_the_event() {
    let lines = crate::testing::run(
        &SPEC,
        "kv text target=t",
        "{\"t\":1,\"text\":\"a=1\"}\n{\"text\":\"a=1\"}",
    );
    assert!(
        lines[0].starts_with(r#"{"t":1,"text":"a=1","tags":["_kvparsefailure"]"#),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1], r#"{"text":"a=1","t":{"a":"1"}}"#);
}

#[test]
fn any_number_of_keys() {
    let lines: Vec<String> = (0..300)
        .map(|n| format!("k{n}=1 x=2 k{n}=3 K{n}=4"))
        .collect();
    for target in ["", "target=t"] {
        let mut batch = text_batch(lines.iter().map(String::as_str));
        let stage = format!("kv transform_key=lowercase {target}");
        process(
            build(&SPEC, &stage).expect("it builds").as_mut(),
            &mut batch,
        );
        for (n, line) in lines_of(&batch).iter().enumerate() {
            let found: Value = serde_json::from_str(line).expect("JSON");
            let object = if target.is_empty() {
                &found
            } else {
                &found["t"]
            };
            assert_eq!(object[format!("k{n}")], json!(["1", "3", "4"]), "{line}");
            assert_eq!(object["x"], json!("2"));
        }
    }
}

#[test]
fn bad_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("kv a..b", "`a..b` is not a field name"),
            (
                "kv field_split=''",
                "`field_split` must be one or more ASCII characters",
            ),
            (
                "kv value_split=→",
                "`value_split` must be one or more ASCII characters",
            ),
            ("kv field_split=,= ", "`=` cannot split both"),
            ("kv whitespace=maybe", "`maybe` is not accepted here"),
            ("kv transform_key=camel", "`camel` is not accepted here"),
            (
                "kv field_split_pattern=':*'",
                "`:*` matches an empty text, which splits nothing",
            ),
            (
                "kv value_split_pattern='='  field_split_pattern='(?=x)'",
                "`(?=x)` is not a supported regular expression",
            ),
            (
                "kv value_split_pattern='('",
                "`(` is not a supported regular expression",
            ),
            ("kv recursive=deep", "expected true or false"),
        ],
    );
}

proptest! {
    /// Against a map of key to values.
    #[test]
    fn as_with_a_plain_map(rows in prop::collection::vec(prop::collection::vec(("[a-c]", "[a-z]{1,3}"), 0..6), 1..6)) {
        let texts: Vec<String> = rows.iter().map(|pairs| {
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        }).collect();
        let mut batch = text_batch(texts.iter().map(String::as_str));
        process(build(&SPEC, "kv target=t").unwrap().as_mut(), &mut batch);
        for (line, pairs) in lines_of(&batch).iter().zip(&rows) {
            let mut model: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            pairs.iter().for_each(|(key, value)| model.entry(key).or_default().push(value));
            let model: Map<String, Value> = model.into_iter().map(|(key, values)| {
                (key.to_owned(), if let [only] = values.as_slice() { json!(only) } else { json!(values) })
            }).collect();
            let found: Value = serde_json::from_str(line).unwrap();
            let expected = if model.is_empty() { Value::Null } else { Value::Object(model) };
            prop_assert_eq!(&found["t"], &expected);
        }
    }
}
