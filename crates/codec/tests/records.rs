//! Records of lines are those of a simple model, however they were read, with stops and resumes anywhere.

#[path = "reading/model.rs"]
mod model;
mod reading;

use std::sync::Arc;

use batch::Encoding;
use codec::{ContainerFormat, LineEnding, Match, Multiline, MultilineConfig, Settings};
use proptest::prelude::*;
use reading::{Event, Plan, read};
use regex::bytes::RegexSet;

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
            flushes: Vec::new(),
            stops,
            stop_at_flush: false,
        })
}

fn multilines() -> impl Strategy<Value = Option<MultilineConfig>> {
    let pattern = |pattern: &str, negate, matching| MultilineConfig {
        pattern: Some(pattern.to_owned()),
        negate,
        matching: Some(matching),
        ..MultilineConfig::default()
    };
    let between = |start: &str, end: Option<&str>| MultilineConfig {
        start: Some(start.to_owned()),
        end: end.map(str::to_owned),
        ..MultilineConfig::default()
    };
    let config = prop_oneof![
        Just(pattern("^[ a-f]", false, Match::After)),
        Just(pattern("^[A-Z]", true, Match::After)),
        Just(pattern("[a-m ]$", false, Match::Before)),
        Just(pattern("[n-z]$", true, Match::Before)),
        Just(between("^[A-Z]", None)),
        Just(between("^[A-Z]", Some("[a-k]$"))),
        Just(between("^[A-Z]", Some("^[A-Z]"))),
    ];
    let max_lines = prop_oneof![1usize..4, Just(500)];
    proptest::option::of(
        (config, max_lines).prop_map(|(config, max_lines)| MultilineConfig {
            max_lines,
            ..config
        }),
    )
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[A-Za-z ]{0,12}",
        1 => "[A-Z][a-z]{0,40}",
        1 => " [a-zé€😀\\\\]{0,20}",
        1 => Just(String::new()),
    ]
}

/// Lines with and without carriage returns, invalid bytes, byte order marks, and an end that may lack its terminator.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => (texts(), Just("\n")).prop_map(|(text, end)| (text + end).into_bytes()),
        2 => texts().prop_map(|text| (text + "\r\n").into_bytes()),
        1 => texts().prop_map(String::into_bytes),
        1 => Just(b"\r".to_vec()),
        1 => Just(b"\0".to_vec()),
        1 => Just(vec![0xC3]),
        1 => Just(vec![0x80, 0xFF, b'\n']),
    ];
    (any::<bool>(), proptest::collection::vec(piece, 0..40)).prop_map(|(mark, pieces)| {
        let mark: &[u8] = if mark { b"\xEF\xBB\xBF" } else { b"" };
        [mark, &pieces.concat()].concat()
    })
}

fn container_contents() -> impl Strategy<Value = Vec<u8>> {
    let line = (any::<bool>(), 0u32..5, texts(), any::<bool>(), 0u32..1000).prop_map(
        |(is_stderr, kind, text, returns, nanos)| {
            let stream = if is_stderr { "stderr" } else { "stdout" };
            let time = format!("2026-10-06T00:17:09.669{nanos:03}201Z");
            let text = if returns { text + "\r" } else { text };
            match kind {
                0 => text + "\n",
                1 => format!("{time} {stream} P {text}\n"),
                2 => format!("{time} {stream} F {text}\n"),
                3 => format!(
                    "{{\"log\":{},\"stream\":\"{stream}\",\"time\":\"{time}\"}}\n",
                    serde_json::Value::from(text)
                ),
                _ => format!(
                    "{{\"log\":{},\"stream\":\"{stream}\",\"time\":\"{time}\"}}\n",
                    serde_json::Value::from(text + "\n")
                ),
            }
        },
    );
    (proptest::collection::vec(line, 0..40), 0usize..30).prop_map(|(lines, cut)| {
        let content = lines.concat().into_bytes();
        let len = content.len().saturating_sub(cut.saturating_sub(15));
        content[..len].to_vec()
    })
}

fn text_settings(record_max: usize, multiline: Option<&MultilineConfig>) -> Settings {
    Settings {
        multiline: multiline.map(|config| Arc::new(Multiline::new(config).expect("valid"))),
        ..Settings::new(Encoding::Text, record_max)
    }
}

fn limits() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 1usize..40, 2 => Just(1000)]
}

fn filters() -> impl Strategy<Value = (Option<RegexSet>, Option<RegexSet>)> {
    let set = |patterns: [&str; 2]| {
        let sets = [None, Some(RegexSet::empty()), RegexSet::new(patterns).ok()];
        proptest::sample::select(sets.to_vec())
    };
    (set(["[a-m]", "^$"]), set(["^A", "x"]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn records_of_lines(
        content in contents(),
        config in multilines(),
        record_max in limits(),
        ending in proptest::sample::select(vec![LineEnding::Lf, LineEnding::Lf, LineEnding::Cr, LineEnding::Nul]),
        (include_lines, exclude_lines) in filters(),
        plan in plans(),
    ) {
        let settings = Settings {
            line_ending: ending,
            include_lines,
            exclude_lines,
            ..text_settings(record_max, config.as_ref())
        };
        let expected = model::events(&content, &settings, config.as_ref());
        prop_assert_eq!(read(&content, &settings, &plan), expected, "{}", content.escape_ascii());
    }

    #[test]
    fn records_of_containers(
        content in container_contents(),
        config in multilines(),
        record_max in limits(),
        plan in plans(),
    ) {
        let settings = Settings {
            container: Some(ContainerFormat::Auto),
            ..text_settings(record_max, config.as_ref())
        };
        let expected = model::events(&content, &settings, config.as_ref());
        prop_assert_eq!(read(&content, &settings, &plan), expected, "{}", content.escape_ascii());
    }

    #[test]
    fn lines_in_other_charsets(
        text in proptest::collection::vec((texts(), proptest::sample::select(vec!["\n", "\r\n", "\u{0a0a}\n", "\u{a}\u{d}\u{a00}"])), 0..30),
        label in proptest::sample::select(vec!["utf-16", "utf-16be", "latin1", "shift_jis", "gb18030"]),
        mark in any::<bool>(),
        odd in any::<bool>(),
        config in multilines(),
        record_max in limits(),
        plan in plans(),
    ) {
        let text: String = text.into_iter().map(|(text, end)| text + end).collect();
        let charset = codec::charset(label).expect("a label");
        let mut content = encode(&text, label, mark);
        if odd {
            content.pop();
        }
        let settings = Settings { charset: Some(charset), ..text_settings(record_max, config.as_ref()) };
        let mut expected = model::events(&content, &settings, config.as_ref());
        let seen = read(&content, &settings, &plan);
        prop_assert_eq!(&seen, &expected);
        // The mark decides, whatever is set, also after a stop.
        if mark && label == "utf-16" {
            let other = Settings { charset: codec::charset("utf-16be"), ..settings };
            expected.retain(|event| event.start > 0);
            let seen: Vec<Event> = read(&content, &other, &plan).into_iter().filter(|event| event.start > 0).collect();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn flushed_records_do_not_depend_on_stops(
        is_container in any::<bool>(),
        lines in contents(),
        container in container_contents(),
        config in multilines(),
        record_max in limits(),
        plan in plans(),
        flushes in proptest::collection::vec(0u64..800, 1..5),
    ) {
        let content = if is_container { container } else { lines };
        let settings = Settings {
            container: is_container.then_some(ContainerFormat::Auto),
            ..text_settings(record_max, config.as_ref())
        };
        let mut flushes = flushes;
        flushes.sort_unstable();
        let whole = Plan { flushes: flushes.clone(), stops: Vec::new(), ..plan.clone() };
        let stopped = Plan { stop_at_flush: true, ..whole.clone() };
        prop_assert_eq!(read(&content, &settings, &whole), read(&content, &settings, &stopped));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn long_lines_and_records(
        lines in proptest::collection::vec((0usize..200_000, any::<bool>(), 0u32..4), 1..6),
        is_container in any::<bool>(),
        config in multilines(),
        record_max in prop_oneof![1usize..100_000, Just(1 << 20)],
        reads in proptest::collection::vec(1usize..70_000, 1..5),
        stops in proptest::collection::vec(1usize..3, 0..4),
    ) {
        let mut content = Vec::new();
        for (length, crlf, kind) in lines {
            let tag = if kind < 2 { "P" } else { "F" };
            if is_container {
                content.extend_from_slice(format!("2026-10-06T00:17:09.669669201Z stdout {tag} ").as_bytes());
            }
            content.extend_from_slice(if kind == 1 { b"S" } else { b"" });
            content.extend((0..length).map(|at| b'a' + (at % 26) as u8));
            content.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
        }
        let settings = Settings {
            container: is_container.then_some(ContainerFormat::Cri),
            ..text_settings(record_max, config.as_ref())
        };
        let plan = Plan { buffer: 1000, reads, take_every: 2, release_every: 7, stops, ..Plan::simple() };
        let expected = model::events(&content, &settings, config.as_ref());
        prop_assert!(read(&content, &settings, &plan) == expected);
    }
}

fn encode(text: &str, label: &str, mark: bool) -> Vec<u8> {
    let marked = if mark {
        format!("\u{FEFF}{text}")
    } else {
        text.to_owned()
    };
    match label {
        "utf-16" => marked.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "utf-16be" => marked.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        _ => codec::charset(label)
            .expect("a label")
            .encode(text)
            .0
            .into_owned(),
    }
}
