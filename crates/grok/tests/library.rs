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

/// The named captures of a search with the default limit, as `name=text`; those that take no part are left out.
fn found(set: PatternSet, source: &str, text: &str) -> Option<Vec<String>> {
    let pattern = compile(set, source);
    let mut scratch = pattern.new_scratch();
    match pattern.matches(text.as_bytes(), &mut scratch) {
        Outcome::Match => {}
        Outcome::NoMatch => return None,
        Outcome::LimitReached => panic!("{source} on {text:?} is given up"),
    }
    let texts = scratch.spans().iter().map(|span| span.of(text.as_bytes()));
    let all = paths(&pattern).into_iter().zip(texts);
    let named = |(path, text): (String, Option<&[u8]>)| {
        Some(format!("{path}={}", String::from_utf8_lossy(text?)))
    };
    Some(all.filter_map(named).collect())
}

#[test]
fn long_words_before_an_address_are_no_trouble() {
    let url = "http://example.com/a";
    for before in [
        "host ip-10-77-20-248.eu-west-1.compute.internal got ",
        "abcdefghijklmnopqrstuvwxyz ",
        "größe abcdefghijklmnopqrstuvwxyzäabcdefghijklmnopqrstuvwxyz ",
        &"abcdefghij".repeat(100),
    ] {
        let line = format!("{before} {url}");
        for set in [PatternSet::Legacy, PatternSet::EcsV1] {
            let uri = found(set, "%{URI:x}", &line).expect("there is an address");
            assert_eq!(uri[0], format!("x={url}"), "{line}");
            for source in ["%{ELB_URI}", "%{ELB_REQUEST_LINE}", "^%{URI}$"] {
                found(set, source, &line);
            }
        }
        for source in ["%{HAPROXYURI}", "%{HAPROXYHTTPREQUESTLINE}"] {
            found(PatternSet::EcsV1, source, &line);
        }
        let request = format!("GET {url}?{before} HTTP/1.1");
        found(PatternSet::Legacy, "^%{ELB_REQUEST_LINE}$", &request);
    }
}

const BRO_HTTP: &str = "1779012303.633017\tCOpk6E3vkURP8QQNKl\t192.0.2.35\t55281\t198.51.100.146\t80\t4\tPOST\twww.example.org\t\
    /deals/v2?nocache=1779012303326\thttp://www.example.org/\tMozilla/5.0 (Windows NT 6.1; WOW64) Gecko/20100101\t223\t1859\t\
    200\tOK\t-\t-\t-\t(empty)\talice\t-\t-\tFrLEcY3AUPKdcYGf29\ttext/plain\tFOJpbGzIMh9syPxH8\ttext/plain";
const BRO_DNS: &str = "1779012303.761790\tUWkUyAuUGXf\t192.0.2.10\t53209\t198.51.100.36\t53\tudp\t41477\texample.org\t1\t\
    C_INTERNET\t48\tDNSKEY\t0\tNOERROR\tF\tF\tT\tF\t1\t-\t-\tF";
const BRO_FILES: &str = "1779012303.455618\tFMkioa222mEuM2RuQ9\t192.0.2.35\t198.51.100.146\tC3J4kYDIAS8YYJ7z6\tHTTP\t0\tMD5,SHA1\t\
    image/png\t-\t0.141\tF\tF\t4321\t4321\t0\t0\tF\t-\t0cc175b9c0f1b6a831c399e269772661\t-\t-\t-";

/// The fields of a Bro log are captured in the order of their columns, so each has to hold its column.
#[test]
fn lines_of_bro_are_taken_apart_by_their_columns() {
    for (name, line) in [
        ("BRO_HTTP", BRO_HTTP),
        ("BRO_DNS", BRO_DNS),
        ("BRO_FILES", BRO_FILES),
    ] {
        let fields =
            found(PatternSet::Legacy, &format!("^%{{{name}}}$"), line).expect("the line matches");
        let values: Vec<&str> = fields
            .iter()
            .filter_map(|field| field.split_once('='))
            .map(|(_, text)| text)
            .collect();
        assert_eq!(values, line.split('\t').collect::<Vec<_>>(), "{name}");
        // Lines of a later format, cut lines and lines with other letters are found out, not given up.
        for other in [
            line.replacen('\t', "\t-\t", 1),
            line[..line.len() - 9].to_owned(),
            line.replace('a', "ä"),
        ] {
            for set in [PatternSet::Legacy, PatternSet::EcsV1] {
                found(set, &format!("^%{{{name}}}$"), &other);
                found(set, &format!("%{{{name}}}"), &format!("{other}\t{other}"));
            }
        }
    }
}

#[test]
fn a_higher_limit_finds_more() {
    let library = Library::new(PatternSet::Legacy);
    for (source, text, low, high) in [
        // Searched for by the specialised matcher, and by PCRE2.
        (
            "(?:a|aa)+(?:a|aa)+(?:a|aa)+(?:a|aa)+(?<x>b)$",
            "a".repeat(3_000) + "b!",
            10,
            1_000_000,
        ),
        (
            r"^(?:a|aa)+(?<x>b)\k<x>$",
            "a".repeat(22) + "b",
            1_000,
            1_000_000,
        ),
    ] {
        for (match_limit, expected) in [(low, Outcome::LimitReached), (high, Outcome::NoMatch)] {
            let options = Options {
                match_limit,
                ..Options::default()
            };
            let pattern =
                Pattern::compile(&library, source, &options).expect("the pattern compiles");
            let mut scratch = pattern.new_scratch();
            assert_eq!(
                pattern.matches(text.as_bytes(), &mut scratch),
                expected,
                "{source} up to {match_limit}"
            );
        }
    }
}

#[test]
fn definitions_for_traces_take_all_lines() {
    let trace =
        "java.lang.IllegalStateException: no\n\tat org.example.App.main(App.java:42)\nCaused by: x";
    for (set, source, head, field) in [
        (
            PatternSet::Legacy,
            "%{CATALINALOG}",
            "Jan 9, 2014 7:13:13 AM org.example.App",
            "logmessage",
        ),
        (
            PatternSet::EcsV1,
            "%{CATALINALOG}",
            "Jan 9, 2014 7:13:13 AM org.example.App",
            "message",
        ),
        (
            PatternSet::Legacy,
            "%{TOMCATLOG}",
            "2014-01-09 20:03:28,269 -0800 | ERROR | org.example.App -",
            "logmessage",
        ),
        (
            PatternSet::EcsV1,
            "%{TOMCATLOG}",
            "2014-01-09 20:03:28,269 -0800 | ERROR | org.example.App -",
            "message",
        ),
        (
            PatternSet::Legacy,
            "%{HTTPD_ERRORLOG}",
            "[Mon Aug 31 09:30:48 2015] [error]",
            "message",
        ),
        (
            PatternSet::Legacy,
            "(?m)^%{TIMESTAMP_ISO8601:at} %{LOGLEVEL:level} %{GREEDYDATA:m}",
            "2026-05-17 10:05:03 ERROR",
            "m",
        ),
    ] {
        let fields = found(set, source, &format!("{head} {trace}"))
            .unwrap_or_else(|| panic!("{source} does not match"));
        let last = fields
            .iter()
            .rfind(|name| name.starts_with(&format!("{field}=")));
        assert_eq!(last, Some(&format!("{field}={trace}")), "{set:?} {source}");
    }
}

#[test]
fn sfw2_takes_an_output_interface() {
    for (out, fields) in [("", ""), ("eth1", "nf_out_interface=eth1 ")] {
        let line = format!(
            "Jan 15 11:21:13 web-1 kernel: SFW2-INext-ACC IN=eth0 OUT={out} MAC= SRC=2001:db8::1 DST=2001:db8::2 LEN=527 TC=0 \
             HOPLIMIT=255 FLOWLBL=804001 PROTO=UDP SPT=5353 DPT=5354 LEN=487"
        );
        let expected = format!(
            "timestamp=Jan 15 11:21:13 nf_action=ACC nf_in_interface=eth0 {fields}nf_src_ip=2001:db8::1 nf_dst_ip=2001:db8::2 \
             nf_protocol=UDP nf_src_port=5353 nf_dst_port=5354"
        );
        let found = found(PatternSet::Legacy, "%{SFW2}", &line).map(|all| all.join(" "));
        assert_eq!(found.as_deref(), Some(expected.as_str()));
    }
}
