//! Records of several lines, container logs, charsets and filters, case by case.

mod reading;

use std::sync::Arc;

use batch::{Budget, Encoding};
use codec::{
    Check, Chunker, ContainerFormat, LineEnding, Match, Multiline, MultilineConfig, Resume,
    Settings, Skip,
};
use proptest::prelude::*;
use reading::{Plan, read};
use regex::bytes::RegexSet;

fn text() -> Settings {
    Settings::new(Encoding::Text, 1000)
}

fn with_multiline(config: &MultilineConfig) -> Settings {
    Settings {
        multiline: Some(Arc::new(Multiline::new(config).expect("valid settings"))),
        ..text()
    }
}

fn pattern(pattern: &str, negate: bool, matching: Match) -> MultilineConfig {
    MultilineConfig {
        pattern: Some(pattern.to_owned()),
        negate,
        matching: Some(matching),
        ..MultilineConfig::default()
    }
}

fn between(start: &str, end: Option<&str>) -> MultilineConfig {
    MultilineConfig {
        start: Some(start.to_owned()),
        end: end.map(str::to_owned),
        ..MultilineConfig::default()
    }
}

/// Text and tags of the events.
fn texts(content: &[u8], settings: &Settings) -> Vec<(String, String)> {
    let events = read(content, settings, &Plan::simple());
    let part = |event: reading::Event| (event.text, event.tags);
    events.into_iter().map(part).collect()
}

fn plain(texts: &[&str]) -> Vec<(String, String)> {
    let pair = |text: &&str| ((*text).to_owned(), String::new());
    texts.iter().map(pair).collect()
}

#[test]
fn lines_that_belong_together() {
    let cases: &[(MultilineConfig, &str, &[&str])] = &[
        (
            pattern(r"^[ \t]+(at|\.{3})\b|^Caused by:", false, Match::After),
            "Exception\n\tat a\r\n\tat b\nCaused by: x\n\tat c\nnext\n",
            &["Exception\n\tat a\n\tat b\nCaused by: x\n\tat c", "next"],
        ),
        (
            pattern(r"^\[", true, Match::After),
            "tail\n[1] a\n  b\n\n[2] c",
            &["tail", "[1] a\n  b\n", "[2] c"],
        ),
        (
            pattern(r"\\$", false, Match::Before),
            "a \\\n b \\\n c\nd\n e \\\n",
            &["a \\\n b \\\n c", "d", " e \\"],
        ),
        (
            pattern(r";$", true, Match::Before),
            "select\nfrom;\nupdate;\n",
            &["select\nfrom;", "update;"],
        ),
        (
            between("^BEGIN", None),
            "x\ny\nBEGIN\na\nBEGIN\n",
            &["x\ny", "BEGIN\na", "BEGIN"],
        ),
        (
            between("^BEGIN", Some("^END")),
            "x\ny\nBEGIN\na\nEND\nz\nBEGIN\nb\nBEGIN\nc\nEND\n",
            &["x", "y", "BEGIN\na\nEND", "z", "BEGIN\nb", "BEGIN\nc\nEND"],
        ),
    ];
    for (config, content, expected) in cases {
        let seen = texts(content.as_bytes(), &with_multiline(config));
        assert_eq!(seen, plain(expected), "{config:?}");
    }
}

#[test]
fn further_lines_are_left_out() {
    let config = MultilineConfig {
        max_lines: 2,
        ..pattern("^ ", false, Match::After)
    };
    let seen = read(
        b"a\n b\n c\n d\ne\n",
        &with_multiline(&config),
        &Plan::simple(),
    );
    let seen: Vec<_> = seen
        .iter()
        .map(|event| {
            (
                event.text.as_str(),
                event.start,
                event.end,
                event.tags.as_str(),
            )
        })
        .collect();
    assert_eq!(seen, [("a\n b", 0, 11, "_truncated"), ("e", 11, 13, "")]);
}

#[test]
fn multiline_settings_that_contradict_each_other() {
    let config = MultilineConfig::default;
    let some = |text: &str| Some(text.to_owned());
    let cases = [
        (config(), "either `pattern` or `start` is required"),
        (
            MultilineConfig {
                end: some("x"),
                ..config()
            },
            "`end` requires `start`",
        ),
        (
            MultilineConfig {
                pattern: some("x"),
                start: some("x"),
                ..config()
            },
            "`start` and `end` cannot be used with",
        ),
        (
            MultilineConfig {
                pattern: some("x"),
                end: some("x"),
                ..config()
            },
            "`start` and `end` cannot be used with",
        ),
        (
            MultilineConfig {
                start: some("x"),
                negate: true,
                ..config()
            },
            "`start` and `end` cannot be used with",
        ),
        (
            MultilineConfig {
                start: some("x"),
                matching: Some(Match::After),
                ..config()
            },
            "`start` and `end` cannot be used with",
        ),
        (
            MultilineConfig {
                pattern: some("x"),
                max_lines: 0,
                ..config()
            },
            "`max_lines` must be at least 1",
        ),
        (
            MultilineConfig {
                pattern: some("("),
                ..config()
            },
            "`pattern`: regex parse error",
        ),
    ];
    for (config, message) in cases {
        let error = Multiline::new(&config)
            .expect_err("it is refused")
            .to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

const CONTAINER: &str = "\
2026-10-06T00:17:09.000000001Z stdout P one
2026-10-06T00:17:09.000000002Z stderr F warning
no line of a container
{\"log\":\"{\\\"a\\\":1}\\n\",\"stream\":\"stderr\",\"time\":\"2026-10-06T00:17:09.5Z\"}
2026-10-06T00:17:09.000000003Z stdout F  line
";

#[test]
fn lines_of_a_container() {
    let settings = Settings {
        container: Some(ContainerFormat::Auto),
        ..text()
    };
    let seen = read(CONTAINER.as_bytes(), &settings, &Plan::simple());
    let seen: Vec<_> = seen
        .iter()
        .map(|event| {
            (
                event.text.as_str(),
                event.stream.as_str(),
                event.time.as_str(),
            )
        })
        .collect();
    let expected = [
        ("warning", "stderr", "2026-10-06T00:17:09.000000002Z"),
        ("no line of a container", "", ""),
        ("{\"a\":1}", "stderr", "2026-10-06T00:17:09.500Z"),
        ("one line", "stdout", "2026-10-06T00:17:09.000000001Z"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn documents_of_a_container() {
    let settings = Settings {
        container: Some(ContainerFormat::Docker),
        ..Settings::new(Encoding::Json, 1000)
    };
    let line = |log: &str| {
        let log = serde_json::Value::from(log);
        format!("{{\"log\":{log},\"stream\":\"stdout\",\"time\":\"2026-10-06T00:17:09.5Z\"}}\n")
    };
    let content = [
        line("{\"a\":"),
        line("1}\n"),
        line("{\"@timestamp\":\"mine\"}\n"),
        line("{\"\\u0040timestamp\":\"mine\"}\n"),
        line(" \n"),
        line("plain\n"),
        "x\n".to_owned(),
    ];
    let time = "\"@timestamp\":\"2026-10-06T00:17:09.500Z\",\"stream\":\"stdout\"";
    let expected = [
        (format!("{{\"a\":1,{time}}}"), ""),
        (
            "{\"@timestamp\":\"mine\",\"stream\":\"stdout\"}".to_owned(),
            "",
        ),
        (
            "{\"@timestamp\":\"mine\",\"stream\":\"stdout\"}".to_owned(),
            "",
        ),
        ("plain".to_owned(), "_jsonparsefailure"),
        ("x".to_owned(), "_containerparsefailure"),
    ];
    let seen = texts(content.concat().as_bytes(), &settings);
    let expected = expected.map(|(text, tags)| (text, tags.to_owned()));
    assert_eq!(seen, expected);
}

#[test]
fn attributes_of_a_container_are_kept() {
    let line = |log: &str, attrs: &str| {
        let log = serde_json::Value::from(log);
        format!(
            "{{\"log\":{log},\"stream\":\"stdout\",{attrs}\"time\":\"2026-10-06T00:17:09.5Z\"}}\n"
        )
    };
    let one = "\"attrs\":{\"tag\":\"a\",\"com.example/x\":\"1\"},";
    let content = [
        line("{\"n\":1}\n", one),
        line("{\"n\":", one),
        line("2}\n", "\"attrs\":{\"tag\":\"b\"},"),
        line("{\"n\":3}\n", "\"attrs\":{\"tag\":\"b\",\"tag\":\"c\"},"),
        line("{\"n\":4}\n", ""),
        line("{\"n\":5}\n", "\"attrs\":\"text\","),
        line("{\"n\":6,\"docker\":1}\n", one),
        line("{\"n\":7,\"docker\":{\"id\":1}}\n", one),
    ]
    .concat();
    let one = serde_json::json!({ "tag": "a", "com.example/x": "1" });
    let expected = [
        serde_json::json!({ "attrs": one }),
        serde_json::json!({ "attrs": one }),
        serde_json::json!({ "attrs": { "tag": "c" } }),
        serde_json::Value::Null,
        serde_json::Value::Null,
        serde_json::json!(1),
        serde_json::json!({ "id": 1, "attrs": one }),
    ];
    let settings = Settings {
        container: Some(ContainerFormat::Docker),
        ..Settings::new(Encoding::Json, 1000)
    };
    // Chunks of any size, which a record that is not whole outlives.
    for (buffer, take_every) in [(1 << 20, 1), (100, 1), (700, 2)] {
        let plan = Plan {
            buffer,
            reads: vec![90],
            take_every,
            ..Plan::simple()
        };
        let events = read(content.as_bytes(), &settings, &plan);
        for (index, (event, expected)) in events.iter().zip(&expected).enumerate() {
            let seen: serde_json::Value = serde_json::from_str(&event.text).expect("JSON");
            assert_eq!(seen["n"], index + 1);
            assert_eq!(&seen["docker"], expected, "{}", event.text);
        }
        assert_eq!(events.len(), expected.len());
    }
}

/// Gives `content` to a chunker in one piece.
fn feed(chunker: &mut Chunker, content: &[u8]) {
    let pool = Budget::new(1 << 20).pool(1 << 20, 4096);
    if let Some(size) = chunker.needs() {
        chunker.give(pool.take_sized(size));
    }
    chunker.space()[..content.len()].copy_from_slice(content);
    chunker.advance(content.len());
}

#[test]
fn a_container_log_resumes_between_its_streams() {
    let settings = Settings {
        container: Some(ContainerFormat::Auto),
        ..text()
    };
    let mut chunker = Chunker::new(&settings);
    let last = CONTAINER.rfind("2026").expect("it is there");
    feed(&mut chunker, &CONTAINER.as_bytes()[..last]);
    let chunk = chunker.take().expect("stderr has whole lines");
    let first = CONTAINER.find('\n').expect("it is there") + 1;
    let expected = Resume {
        offset: 0,
        skip: Some(Skip {
            stdout: 0,
            stderr: last as u64,
            other: last as u64,
        }),
        check: Check::of(b""),
        big_endian: None,
    };
    assert_eq!(
        (&chunk.after, chunk.source_bytes),
        (&expected, (last - first) as u64)
    );
    assert_eq!(chunker.pending(), first as u64);
    assert!(chunker.has_pending_record());

    let mut resumed = Chunker::resume(&settings, &chunk.after, b"");
    feed(&mut resumed, CONTAINER.as_bytes());
    assert_eq!(resumed.skipped(), (last - first) as u64);
    let rest = resumed.finish().expect("the record of stdout");
    assert_eq!(rest.source_bytes, (CONTAINER.len() - (last - first)) as u64);
    assert_eq!(rest.after.offset, CONTAINER.len() as u64);
    assert_eq!((rest.after.skip, resumed.pending()), (None, 0));
}

#[test]
fn a_flush_forgets_no_line_that_was_given_in_an_earlier_run() {
    let settings = Settings {
        container: Some(ContainerFormat::Auto),
        ..text()
    };
    let given = Skip {
        stdout: 0,
        stderr: 300,
        other: 200,
    };
    let resume = Resume {
        skip: Some(given),
        ..Resume::default()
    };
    let mut chunker = Chunker::resume(&settings, &resume, b"");
    let two = CONTAINER.match_indices('\n').nth(1).expect("two lines").0 + 1;
    feed(&mut chunker, &CONTAINER.as_bytes()[..two]);
    let chunk = chunker.flush().expect("the first part");
    let expected = Skip {
        stdout: two as u64,
        ..given
    };
    assert_eq!(
        (chunk.after.offset, chunk.after.skip),
        (two as u64, Some(expected))
    );
}

#[test]
fn a_flush_leaves_the_line_that_has_no_end() {
    let settings = with_multiline(&pattern("^ ", false, Match::After));
    let mut chunker = Chunker::new(&settings);
    feed(&mut chunker, b"a\n b\n c");
    assert!(!chunker.is_ready() && chunker.has_pending_record());
    chunker.release();
    let chunk = chunker.flush().expect("two lines");
    assert_eq!((chunk.start, chunk.end, chunker.pending()), (0, 5, 2));
    assert!(!chunker.has_pending_record() && chunker.flush().is_none());
    feed(&mut chunker, b"d\n e");
    let last = chunker.finish().expect("the rest");
    assert_eq!((last.start, last.end), (5, 11));
    assert!(chunker.finish().is_none());
}

#[test]
fn other_line_endings() {
    let with = |line_ending| Settings {
        line_ending,
        ..text()
    };
    let content = b"a\rb\r\nc\0d";
    let cases: [(LineEnding, &[&str]); 3] = [
        (LineEnding::Lf, &["a\rb", "c\0d"]),
        (LineEnding::Cr, &["a", "b", "\nc\0d"]),
        (LineEnding::Nul, &["a\rb\r\nc", "d"]),
    ];
    for (ending, expected) in cases {
        assert_eq!(texts(content, &with(ending)), plain(expected), "{ending:?}");
    }
}

#[test]
fn charsets() {
    let with = |label: &str| Settings {
        charset: codec::charset(label),
        ..text()
    };
    let big = b"\xFE\xFF\0a\0\r\0\n\x0A\x0A\0b\0\n";
    let cases: [(&str, &[u8], &[&str]); 5] = [
        ("utf-16", big, &["a", "\u{A0A}b"]),
        ("utf-16", b"a\0\n\0\x0A\x00", &["a", ""]),
        ("latin1", b"caf\xE9\nabc\n", &["caf\u{e9}", "abc"]),
        ("shift_jis", b"\x83\x5C\n", &["\u{30bd}"]),
        ("utf-8", b"\xEF\xBB\xBFx\n", &["x"]),
    ];
    for (label, content, expected) in cases {
        assert_eq!(texts(content, &with(label)), plain(expected), "{label}");
    }
    let cut = Settings {
        record_max: 5,
        ..with("utf-16")
    };
    let seen = texts(
        b"a\0b\0c\0d\0\n\0\x3d\xd8\x00\xde\x3d\xd8\x00\xde\n\0",
        &cut,
    );
    let tag = |text: &str| (text.to_owned(), "_truncated".to_owned());
    assert_eq!(seen, [tag("ab"), tag("\u{1F600}")]);
}

#[test]
fn filters_see_whole_records() {
    let set = |pattern: &str| RegexSet::new([pattern]).ok();
    let settings = Settings {
        include_lines: set("ERROR|x$"),
        exclude_lines: set("debug"),
        ..with_multiline(&pattern("^ ", false, Match::After))
    };
    let content = b"ok\nERROR\n debug\nfirst\n x\nERROR here\nERROR {}\n";
    let expected = ["first\n x", "ERROR here", "ERROR {}"];
    assert_eq!(texts(content, &settings), plain(&expected));
}

proptest! {
    #[test]
    fn documents_do_not_depend_on_stops(
        lines in proptest::collection::vec(proptest::sample::select(vec![
            "{\"a\":1}\n", "\n", " \r\n", "{\"b\":\"\u{e9}\"} \n", "no\n", "{\"c\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}\n", "{}",
        ]), 0..30),
        mark in any::<bool>(),
        record_max in prop_oneof![1usize..40, Just(1000)],
        buffer in 1usize..200,
        read_size in 1usize..50,
        take_every in 1usize..4,
        stops in proptest::collection::vec(1usize..3, 0..5),
    ) {
        let content = format!("{}{}", if mark { "\u{FEFF}" } else { "" }, lines.concat());
        let settings = Settings::new(Encoding::Json, record_max);
        let plan = Plan { buffer, reads: vec![read_size], take_every, release_every: 3, stops, ..Plan::simple() };
        let whole = read(content.as_bytes(), &settings, &Plan::simple());
        prop_assert_eq!(read(content.as_bytes(), &settings, &plan), whole);
    }
}
