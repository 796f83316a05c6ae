use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{ConfigError, Count, Node, Period, Size, Source, parse_yaml};

fn parse(text: &str) -> Node {
    parse_yaml(&Source::new("t.yaml", text)).expect(text)
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Settings {
    pattern: OneOrMap,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    ratio: f64,
    #[serde(default)]
    follow: bool,
    on_failure: Option<OnFailure>,
    #[serde(default)]
    queue: Queue,
    #[serde(default)]
    names: BTreeMap<String, i8>,
    max: Option<Size>,
    every: Option<Period>,
    head: Option<Count>,
    pair: Option<(u8, String)>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum OneOrMap {
    One(String),
    Many(BTreeMap<String, String>),
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    Publish,
    Drop,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Queue {
    Memory(Limits),
    Disk { path: String },
}

impl Default for Queue {
    fn default() -> Self {
        Self::Memory(Limits::default())
    }
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Limits {
    max_events: u32,
}

fn read(text: &str) -> Result<Settings, ConfigError> {
    parse(&format!("pattern: p\n{text}")).deserialize()
}

#[test]
fn what_is_asked_for_decides() {
    let settings = read(
        "paths: a.log\nport: '0x50'\nratio: 2\nfollow: \"true\"\non_failure: drop\nqueue: {disk: {path: 12}}\n\
         names: {1: -3, b: 4}\nmax: 1.5KiB\nevery: 1m30s\nhead: 10k\npair: [1, true]\n",
    )
    .expect("valid");
    assert_eq!(settings.paths, ["a.log"]);
    assert_eq!(
        (settings.port, settings.ratio, settings.follow),
        (80, 2.0, true)
    );
    assert_eq!(settings.on_failure, Some(OnFailure::Drop));
    assert_eq!(settings.queue, Queue::Disk { path: "12".into() });
    assert_eq!(
        settings.names,
        BTreeMap::from([("1".into(), -3), ("b".into(), 4)])
    );
    assert_eq!(
        (settings.max, settings.head),
        (Some(Size(1536)), Some(Count(10_000)))
    );
    assert_eq!(settings.every, Some(Period::from_secs(90)));
    assert_eq!(settings.pair, Some((1, "true".into())));
}

#[test]
fn nothing_and_names_alone_read_as_defaults() {
    let settings = read("queue: memory\non_failure:\nmax: null\n").expect("valid");
    assert_eq!(settings, read("").expect("valid"));
    assert_eq!(
        parse("").deserialize::<Limits>().expect("valid"),
        Limits::default()
    );
    assert_eq!(
        read("queue: {memory: {max_events: 3}}")
            .expect("valid")
            .queue,
        Queue::Memory(Limits { max_events: 3 })
    );
}

#[test]
fn untyped_values_follow_the_core_schema() {
    let text = "[1, '1', -1, 0.5, true, yes, ~, 1e2, 99999999999999999999, {a: [b]}]";
    let value: serde_json::Value = parse(text).deserialize().expect("valid");
    let expected = r#"[1,"1",-1,0.5,true,"yes",null,100.0,"99999999999999999999",{"a":["b"]}]"#;
    assert_eq!(value.to_string(), expected);
    assert_eq!(
        parse("pattern: {a: b}")
            .deserialize::<Settings>()
            .expect("valid")
            .pattern,
        OneOrMap::Many(BTreeMap::from([("a".into(), "b".into())]))
    );
}

const REFUSED: &[(&str, (usize, usize), &str, &str)] = &[
    ("patern: x", (2, 1), "patern", "unknown setting `patern`"),
    ("patern: x", (2, 1), "patern", "did you mean `pattern`?"),
    (
        "port: x",
        (2, 7),
        "port",
        "expected a whole number, found `x`",
    ),
    (
        "port: 65536",
        (2, 7),
        "port",
        "`65536` is out of range: from 0 to 65535",
    ),
    ("port: -1", (2, 7), "port", "out of range"),
    (
        "port: [1]",
        (2, 7),
        "port",
        "expected a whole number, found a list",
    ),
    (
        "port: 1.5",
        (2, 7),
        "port",
        "expected a whole number, found `1.5`",
    ),
    (
        "ratio: inf",
        (2, 8),
        "ratio",
        "expected a number, found `inf`",
    ),
    ("follow: yes", (2, 9), "follow", "did you mean `true`?"),
    (
        "paths: [a, {b: c}]",
        (2, 12),
        "paths[1]",
        "expected text, found a map",
    ),
    ("paths:", (2, 6), "paths", "expected a list, found nothing"),
    (
        "on_failure: dorp",
        (2, 13),
        "on_failure",
        "did you mean `drop`?",
    ),
    (
        "on_failure: dorp",
        (2, 13),
        "on_failure",
        "accepted: publish, drop",
    ),
    (
        "on_failure: {drop: 1}",
        (2, 20),
        "on_failure.drop",
        "`drop` accepts no settings",
    ),
    (
        "queue: {memory: {max: 3}}",
        (2, 18),
        "queue.memory.max",
        "unknown setting `max` for memory",
    ),
    (
        "queue: {disk: {}}",
        (2, 15),
        "queue.disk",
        "the setting `path` is missing for disk",
    ),
    (
        "queue: disk",
        (2, 8),
        "queue",
        "the setting `path` is missing",
    ),
    (
        "queue: {disc: {}}",
        (2, 9),
        "queue.disc",
        "did you mean `disk`?",
    ),
    (
        "queue: {disk: {}, memory: {}}",
        (2, 8),
        "queue",
        "exactly one of memory, disk",
    ),
    (
        "queue: [a]",
        (2, 8),
        "queue",
        "expected one of memory, disk, found a list",
    ),
    (
        "names: {a: 200}",
        (2, 12),
        "names.a",
        "out of range: from -128 to 127",
    ),
    (
        "names: x",
        (2, 8),
        "names",
        "expected a map of settings, found a single value",
    ),
    ("max: 3 apples", (2, 6), "max", "`3 apples` is not a size"),
    ("max: -1", (2, 6), "max", "`-1` is not a size"),
    ("every: 5", (2, 8), "every", "`5` has no unit"),
    (
        "pair: [1, b, c]",
        (2, 14),
        "pair[2]",
        "expected 2 values, found 3",
    ),
    ("pair: [1]", (2, 7), "pair", "found 1 values"),
];

#[test]
fn errors_stand_at_the_innermost_value() {
    for &(text, place, path, part) in REFUSED {
        let error = read(text).expect_err(text);
        assert_eq!(
            (error.line(), error.column()),
            (Some(place.0), Some(place.1)),
            "{error}"
        );
        assert_eq!(error.path(), path, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = parse("a: 1")
        .nearest("a")
        .deserialize::<Settings>()
        .expect_err("a scalar");
    assert_eq!(
        error.message(),
        "expected a map of settings, found a single value"
    );
    let error = parse("pattern: [x]")
        .deserialize::<Settings>()
        .expect_err("untagged");
    assert_eq!(
        (error.path().as_str(), error.column()),
        ("pattern", Some(10))
    );
}

#[test]
fn settings_that_were_taken_out_are_accepted_too() {
    let root = parse("grok: {max_events: 4, if: [x], tag: y}");
    let (_, own) = root.nearest("grok").divide(&["if", "tag"]);
    assert_eq!(own.deserialize::<Limits>().expect("valid").max_events, 4);
    assert_eq!(crate::setting_names::<Limits>(), ["max_events"]);
    assert!(crate::setting_names::<Option<String>>().is_empty());
    let (_, own) = root.nearest("grok").divide(&["if"]);
    let error = own.deserialize::<Limits>().expect_err("tag");
    let error = error.accepted_beside(&own, &["if"]);
    assert_eq!(error.accepted_words(), ["max_events", "if"]);
    assert_eq!(error.unknown_setting(), Some("tag"));
    assert_eq!(error.message(), "unknown setting `tag` for grok");
    assert_eq!(error.path(), "grok.tag");
}

#[test]
fn a_flattened_struct_still_names_the_key() {
    #[derive(Debug, Deserialize)]
    struct Outer {
        name: String,
        #[serde(flatten)]
        limits: Limits,
    }
    let outer: Outer = parse("name: a\nmax_events: 7")
        .deserialize()
        .expect("valid");
    assert_eq!((outer.name.as_str(), outer.limits.max_events), ("a", 7));
    let error = parse("o: {name: a, max_events: x}")
        .nearest("o")
        .deserialize::<Outer>()
        .expect_err("text");
    assert_eq!(error.path(), "o");
}
