//! JSON documents of any layout are those that were written, however the content was read, with stops and resumes anywhere.

mod reading;

use batch::Encoding;
use codec::Settings;
use proptest::prelude::*;
use reading::{Event, Plan, read};
use serde_json::{Value, json};

fn settings(record_max: usize) -> Settings {
    Settings::new(Encoding::Json, record_max)
}

fn plans() -> impl Strategy<Value = Plan> {
    (
        1usize..300,
        proptest::collection::vec(1usize..90, 1..5),
        1usize..6,
        1usize..12,
        proptest::collection::vec(1usize..4, 0..6),
    )
        .prop_map(|(buffer, reads, take_every, release_every, stops)| Plan {
            buffer,
            reads,
            take_every,
            release_every,
            stops,
            ..Plan::simple()
        })
}

/// The texts and tags of the events.
fn texts(content: &str, record_max: usize) -> Vec<(String, String)> {
    let events = read(content.as_bytes(), &settings(record_max), &Plan::simple());
    let of = |event: Event| (event.text, event.tags);
    events.into_iter().map(of).collect()
}

#[derive(Debug, Clone, Copy)]
enum Style {
    Array,
    PrettyArray,
    Pretty,
    Adjacent,
    Lines,
    ArrayOfLines,
}

fn written(documents: &[Value], style: Style) -> String {
    let all = Value::Array(documents.to_vec());
    let each = |pretty: bool, between: &str| {
        let text = |document: &Value| match pretty {
            true => serde_json::to_string_pretty(document).expect("JSON"),
            false => document.to_string(),
        };
        documents.iter().map(text).collect::<Vec<_>>().join(between)
    };
    match style {
        Style::Array => all.to_string(),
        Style::PrettyArray => serde_json::to_string_pretty(&all).expect("JSON") + "\n",
        Style::Pretty => each(true, "\r\n"),
        Style::Adjacent => each(false, ""),
        Style::Lines => each(false, "\n"),
        Style::ArrayOfLines => format!("[\n{}\n]\n", each(false, ",\n")),
    }
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    let text = "[a-c{}\\[\\],:\"\\\\\n é]{0,6}";
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        Just(json!(1.5e300)),
        Just(json!(true)),
    ];
    let value = leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(text, inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let document = proptest::collection::btree_map(text, value, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()));
    proptest::collection::vec(document, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn documents_are_those_that_were_written(
        documents in documents(),
        style in proptest::sample::select(vec![
            Style::Array, Style::PrettyArray, Style::Pretty, Style::Adjacent, Style::Lines, Style::ArrayOfLines,
        ]),
        plan in plans(),
    ) {
        // The first line tells that the documents are not one per line.
        let is_telling = !documents.first().is_some_and(|first| *first == json!({}));
        prop_assume!(is_telling || !matches!(style, Style::Pretty));
        let content = written(&documents, style);
        let events = read(content.as_bytes(), &settings(100_000), &plan);
        let seen: Vec<Value> = events.iter().map(|event| serde_json::from_str(&event.text).expect("JSON")).collect();
        prop_assert_eq!(seen, documents, "{}", content);
        for event in &events {
            prop_assert!(!event.text.contains(['\n', '\r']), "{:?}", event);
            let source = &content[event.start as usize..event.end as usize];
            prop_assert!(source.starts_with('{'), "{}", source);
        }
    }

    #[test]
    fn anything_at_all_does_not_depend_on_stops(
        start in proptest::sample::select(vec!["[{", "{\n", "{\"a\":1},", "\u{feff}[\n {", " { \"a\":\n", "{\"a\":1}\n"]),
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\", "\n", "\n", " ", "  ", "1", "nul", "é", "{\"a\":1}", "{\n  \"b\": 2\n}", "\r",
        ]), 0..60),
        record_max in prop_oneof![Just(20usize), Just(1000)],
        plan in plans(),
    ) {
        let content = start.to_owned() + &pieces.concat();
        let whole = read(content.as_bytes(), &settings(record_max), &Plan::simple());
        prop_assert_eq!(read(content.as_bytes(), &settings(record_max), &plan), whole, "{}", content.escape_debug());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn long_documents_are_cut_and_the_others_are_whole(
        lengths in proptest::collection::vec(0usize..200_000, 1..6),
        style in proptest::sample::select(vec![Style::Array, Style::PrettyArray, Style::Pretty]),
        record_max in 1000usize..100_000,
        reads in proptest::collection::vec(1usize..70_000, 1..5),
        stops in proptest::collection::vec(1usize..3, 0..4),
    ) {
        let documents: Vec<Value> = lengths.iter().map(|length| json!({"a": "x".repeat(*length)})).collect();
        let content = written(&documents, style);
        let plan = Plan { buffer: 1000, reads, take_every: 2, release_every: 7, stops, ..Plan::simple() };
        let events = read(content.as_bytes(), &settings(record_max), &plan);
        prop_assert_eq!(events.len(), documents.len());
        for (event, document) in events.iter().zip(&documents) {
            let source = &content[event.start as usize..event.end as usize];
            prop_assert_eq!(&serde_json::from_str::<Value>(source).expect("the whole document"), document);
            if source.len() > record_max {
                prop_assert_eq!(&event.tags, "_jsonparsefailure,_truncated");
                prop_assert_eq!(&event.text, &source[..record_max]);
            } else {
                prop_assert_eq!(&event.tags, "");
                prop_assert_eq!(&serde_json::from_str::<Value>(&event.text).expect("JSON"), document);
            }
        }
    }
}

const BROKEN: &str = "_jsonparsefailure";

#[test]
fn a_broken_document_takes_no_other_with_it() {
    for (content, expected) in [
        // The braces of documents that programs write say where the broken one ends.
        (
            "[\n  {\n    \"a\": 1\n  },\n  {\n    \"a\": ,\n    \"b\": [\n      {\"c\": 1}\n    ]\n  },\n  {\"a\": 3}\n]\n",
            vec![
                ("{     \"a\": 1   }", ""),
                (
                    "{\n    \"a\": ,\n    \"b\": [\n      {\"c\": 1}\n    ]\n  }",
                    BROKEN,
                ),
                ("{\"a\": 3}", ""),
            ],
        ),
        // A document that a crash cut off, and a string that a line end breaks.
        (
            "{\n\"a\": 1,\n{\n\"a\": 2}\n{\"a\":\"x\n{\"a\":3}",
            vec![
                ("{\n\"a\": 1,", BROKEN),
                ("{ \"a\": 2}", ""),
                ("{\"a\":\"x", BROKEN),
                ("{\"a\":3}", ""),
            ],
        ),
        // What is no document.
        (
            "[{\"a\":1}, 17, \"x\",\n{\"a\":2}]",
            vec![("{\"a\":1}", ""), ("17, \"x\",", BROKEN), ("{\"a\":2}", "")],
        ),
        // A bracket belongs to the text behind it, and to no document.
        (
            "{\"a\":1}{\"a\":2}\n[1]\n[ [\"x\", {}]\n[\n17]\n[ {\"a\":3} ]\n[",
            vec![
                ("{\"a\":1}", ""),
                ("{\"a\":2}", ""),
                ("[1]", BROKEN),
                ("[ [\"x\", {}]", BROKEN),
                ("17]", BROKEN),
                ("{\"a\":3}", ""),
            ],
        ),
        // The structure is right, and a number is not.
        (
            "[{\"a\":01},{\"a\":2}]",
            vec![("{\"a\":01}", BROKEN), ("{\"a\":2}", "")],
        ),
        // The end is missing.
        (
            "[{\"a\":1},\n{\"a\":",
            vec![("{\"a\":1}", ""), ("{\"a\":", BROKEN)],
        ),
        ("[{\"a\":1},\n", vec![("{\"a\":1}", "")]),
        // One document per line stays that.
        (
            "{\"a\":1}\n{\n\"a\":2}\n",
            vec![("{\"a\":1}", ""), ("{", BROKEN), ("\"a\":2}", BROKEN)],
        ),
        ("[1,2]\n", vec![("[1,2]", BROKEN)]),
        ("[]\n", vec![]),
    ] {
        let expected: Vec<(String, String)> = expected
            .into_iter()
            .map(|(text, tags)| (text.to_owned(), tags.to_owned()))
            .collect();
        assert_eq!(texts(content, 1000), expected, "{content}");
    }
}

#[test]
fn keys_are_put_in_order() {
    let twice = texts("{\n\"a\": 1,\r\n\"a\": 2\n}", 1000);
    assert_eq!(twice, [("{\"a\":2}".to_owned(), String::new())]);
    let deep = format!(
        "[{{\"a\":{}1{}}},\n{{}}]",
        "[".repeat(1100),
        "]".repeat(1100)
    );
    let events = texts(&deep, 10_000);
    assert_eq!(events[0].1, BROKEN);
    assert_eq!(events[1].0, "{}");
}
