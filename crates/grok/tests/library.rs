//! The embedded pattern sets as a user meets them.

use grok::{CaptureType, Library, Options, Outcome, Pattern, PatternSet};

fn compile(set: PatternSet, source: &str) -> Pattern {
    Pattern::compile(&Library::new(set), source, &Options::default()).expect("the pattern compiles")
}

fn paths(pattern: &Pattern) -> Vec<String> {
    pattern
        .captures()
        .iter()
        .map(|capture| capture.path.join("."))
        .collect()
}

#[test]
fn every_definition_of_both_sets_compiles() {
    for set in [PatternSet::Legacy, PatternSet::EcsV1] {
        let library = Library::new(set);
        for name in library.names() {
            for named_captures_only in [true, false] {
                let options = Options {
                    named_captures_only,
                    ..Options::default()
                };
                let compiled = Pattern::compile(&library, &format!("%{{{name}}}"), &options);
                compiled.unwrap_or_else(|error| panic!("{set:?} {name}: {error}"));
            }
        }
    }
}

#[test]
fn the_apache_pattern_has_its_captures_in_order() {
    let pattern = compile(PatternSet::Legacy, "%{COMBINEDAPACHELOG}");
    let expected = "clientip ident auth timestamp verb request httpversion rawrequest response bytes referrer agent";
    assert_eq!(paths(&pattern).join(" "), expected);

    let pattern = compile(PatternSet::EcsV1, "%{COMBINEDAPACHELOG}");
    let typed: Vec<(String, CaptureType)> = paths(&pattern)
        .into_iter()
        .zip(pattern.captures().iter().map(|capture| capture.kind))
        .collect();
    for (path, kind) in [
        ("source.address", CaptureType::Text),
        ("user.name", CaptureType::Text),
        ("http.request.method", CaptureType::Text),
        ("url.original", CaptureType::Text),
        ("http.version", CaptureType::Text),
        ("http.response.status_code", CaptureType::Int),
        ("http.response.body.bytes", CaptureType::Int),
        ("http.request.referrer", CaptureType::Text),
        ("user_agent.original", CaptureType::Text),
    ] {
        assert!(
            typed.contains(&(path.to_owned(), kind)),
            "{path}: {typed:?}"
        );
    }
}

#[test]
fn names_types_and_duplicates() {
    let mut library = Library::new(PatternSet::Legacy);
    library
        .add("PAIR", "%{WORD:key}=%{NUMBER:[value][number]:float}")
        .unwrap();
    let pattern = Pattern::compile(
        &library,
        r"%{PAIR} %{PAIR} (?<a.b>x)%{INT:n:int}",
        &Options::default(),
    )
    .unwrap();
    assert_eq!(
        paths(&pattern),
        ["key", "value.number", "key", "value.number", "a.b", "n"]
    );
    let kinds: Vec<CaptureType> = pattern
        .captures()
        .iter()
        .map(|capture| capture.kind)
        .collect();
    use CaptureType::{Float, Int, Text};
    assert_eq!(kinds, [Text, Float, Text, Float, Text, Int]);

    let text = b"say a=1.5 b=2 x-7 now";
    let mut scratch = pattern.new_scratch();
    assert_eq!(pattern.matches(text, &mut scratch), Outcome::Match);
    let found: Vec<&[u8]> = scratch
        .spans()
        .iter()
        .map(|span| span.of(text).unwrap())
        .collect();
    assert_eq!(found, [&b"a"[..], b"1.5", b"b", b"2", b"x", b"-7"]);
}

#[test]
fn types_have_the_names_of_other_systems_and_no_others() {
    use CaptureType::{Float, Int, Text};
    let library = Library::new(PatternSet::Legacy);
    for (name, kind) in [
        ("int", Int),
        ("integer", Int),
        ("long", Int),
        ("float", Float),
        ("double", Float),
        ("string", Text),
    ] {
        let pattern = compile(PatternSet::Legacy, &format!("%{{WORD:x:{name}}}"));
        assert_eq!(pattern.captures()[0].kind, kind, "{name}");
    }
    for name in ["", "bool", "Int", "int:float"] {
        let source = format!("%{{WORD:x:{name}}}");
        let error = Pattern::compile(&library, &source, &Options::default())
            .expect_err("the type is not known");
        assert_eq!(error.place().map(|place| place.offset), Some(9), "{error}");
        assert!(
            error.to_string().contains("accepted are int, float"),
            "{error}"
        );
    }
}

#[test]
fn unnamed_references_capture_when_asked_to() {
    let library = Library::new(PatternSet::Legacy);
    let options = Options {
        named_captures_only: false,
        ..Options::default()
    };
    let pattern = Pattern::compile(&library, "%{URIPATHPARAM} (x)", &options).unwrap();
    assert_eq!(paths(&pattern), ["URIPATHPARAM", "URIPATH", "URIPARAM"]);
    let mut scratch = pattern.new_scratch();
    assert_eq!(pattern.matches(b"/a/b x", &mut scratch), Outcome::Match);
    assert_eq!(scratch.spans()[1].of(b"/a/b x"), Some(&b"/a/b"[..]));
    assert!(scratch.spans()[2].is_none());
}

#[test]
fn exploding_patterns_stop_at_the_limit() {
    let library = Library::new(PatternSet::Legacy);
    let long = "a".repeat(200_000) + "!";
    let equals = "a".repeat(200_000) + "=a";
    let words = "word ".repeat(20_000) + "!";
    for (source, text) in [
        ("(a+)+$", &long),
        ("a*a*a*a*=b?$", &equals),
        ("(a*)(a*)(a*)=[^a]", &equals),
        ("(?<x>(a|a)*b)", &long),
        (r"(\w+\s*)+=", &words),
        (".*.*.*=x", &long),
        (r"(x+x+)+y|(a|aa)+$", &long),
        (
            r"%{GREEDYDATA}%{GREEDYDATA}%{GREEDYDATA}%{GREEDYDATA}=%{WORD:x}",
            &words,
        ),
    ] {
        let pattern = Pattern::compile(&library, source, &Options::default()).unwrap();
        let mut scratch = pattern.new_scratch();
        for text in [&text[text.len() - 40..], &text[text.len() - 3_000..], text] {
            let begun = std::time::Instant::now();
            let outcome = pattern.matches(text.as_bytes(), &mut scratch);
            let took = begun.elapsed();
            eprintln!("{source} on {} bytes: {outcome:?} in {took:?}", text.len());
            assert_ne!(outcome, Outcome::Match, "{source}");
            assert!(
                took.as_millis() < 1_000,
                "{source} on {} bytes took {took:?}",
                text.len()
            );
        }
    }
}
