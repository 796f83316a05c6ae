//! The JSON primitives against serde_json as the model, on random documents and on mutations of them.

use batch::json::{self, JsonErrorKind, Kind, Scan};
use proptest::prelude::*;
use serde_json::Value;

/// A document as it is written: scalars and keys are raw JSON text, so that its escapes and duplicates are known.
#[derive(Clone, Debug)]
enum Tree {
    Scalar(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// The document as text; the bits of `space` choose the whitespace in it.
    fn text(&self, mut space: u64) -> String {
        let mut out = String::new();
        self.render(&mut out, &mut |out| {
            space = space.rotate_right(5);
            if space & 3 == 3 {
                out.push_str([" ", "\n", "\t ", "\r\n"][(space >> 8 & 3) as usize]);
            }
        });
        out
    }

    fn render(&self, out: &mut String, gap: &mut impl FnMut(&mut String)) {
        gap(out);
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    element.render(out, gap);
                }
                gap(out);
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    out.push_str(&format!("\"{key}\""));
                    gap(out);
                    out.push(':');
                    value.render(out, gap);
                }
                out.push('}');
            }
        }
    }

    fn scan(&self) -> Scan {
        let mut scan = Scan::default();
        let mut add = |inner: Scan| {
            scan.rewrite |= inner.rewrite;
            scan.dotted_keys |= inner.dotted_keys;
        };
        match self {
            Self::Scalar(_) => {}
            Self::Array(elements) => elements.iter().for_each(|element| add(element.scan())),
            Self::Object(members) => {
                for (i, (key, value)) in members.iter().enumerate() {
                    let duplicate = members[..i].iter().any(|(earlier, _)| earlier == key);
                    let text: String = serde_json::from_str(&format!("\"{key}\""))
                        .expect("a generated key is valid");
                    add(Scan {
                        rewrite: duplicate || key.contains('\\'),
                        dotted_keys: text.contains('.'),
                    });
                    add(value.scan());
                }
            }
        }
        scan
    }
}

fn string_body() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        6 => "[a-z ]{1,9}",
        1 => "[{}\\[\\]:,é世\u{7f}😀]{1,4}",
        1 => proptest::sample::select(vec![
            r#"\""#, r"\\", r"\n", r"\/", r"\u0041", r"\u002e", r"\ud83d\ude00", r"\u001F",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(pieces, 0..6).prop_map(|pieces| pieces.concat())
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[ab]{0,2}",
        4 => "[a-z_]{3,40}",
        1 => "[a.]{1,18}",
        1 => string_body(),
    ]
}

fn scalar() -> impl Strategy<Value = Tree> {
    let number = "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?";
    prop_oneof![
        number.prop_map(Tree::Scalar),
        proptest::sample::select(vec!["true", "false", "null"])
            .prop_map(|word| Tree::Scalar(word.to_owned())),
        string_body().prop_map(|body| Tree::Scalar(format!("\"{body}\""))),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    scalar().prop_recursive(5, 80, 10, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Tree::Array),
            prop::collection::vec((key(), inner), 0..10).prop_map(Tree::Object),
        ]
    })
}

/// A mutation: at a place of the text, how many bytes go and what comes instead.
fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, Vec<u8>)>> {
    let bytes = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(
            proptest::sample::select(
                br#"{}[]",:\/.-+eE0129tfnu 
"#
                .to_vec()
            ),
            1..3
        ),
        prop::collection::vec(any::<u8>(), 1..2),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, bytes), 1..4)
}

/// serde_json refuses lone surrogates, which this crate keeps; such a text has no model.
fn has_surrogate(text: &str) -> bool {
    text.to_ascii_lowercase().contains("\\ud")
}

fn escaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    json::write_string_body(&mut out, text.as_bytes());
    out
}

fn parse(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("only valid texts are parsed")
}

/// Walks a normalised text along its value.
fn check_walkers(text: &[u8], value: &Value) {
    match value {
        Value::Object(map) => {
            assert_eq!(json::kind(text), Kind::Object);
            let members: Vec<_> = json::members(text).collect();
            assert_eq!(members.len(), map.len());
            for (member, (key, value)) in members.iter().zip(map) {
                assert_eq!(member.key, escaped(key));
                assert_eq!(text[member.start], b'"');
                assert_eq!(json::find(text, member.key), Some(member.value.clone()));
                assert_eq!(json::skip_value(text, member.value.start), member.value.end);
                check_walkers(&text[member.value.clone()], value);
            }
            assert_eq!(json::find(text, b"no such key"), None);
        }
        Value::Array(values) => {
            assert_eq!(json::kind(text), Kind::Array);
            let elements: Vec<_> = json::elements(text).collect();
            assert_eq!(elements.len(), values.len());
            for (element, value) in elements.iter().zip(values) {
                assert_eq!(json::skip_value(text, element.start), element.end);
                check_walkers(&text[element.clone()], value);
            }
        }
        Value::String(expected) => {
            assert_eq!(json::kind(text), Kind::String);
            let body = &text[1..text.len() - 1];
            assert_eq!(json::has_escape(body), body.contains(&b'\\'));
            let mut out = Vec::new();
            json::unescape(body, &mut out);
            assert_eq!(out, expected.as_bytes());
        }
        scalar => assert_eq!(parse(text), *scalar),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn documents_scan_normalise_and_walk_as_in_the_model(tree in tree(), space in any::<u64>()) {
        let text = tree.text(space);
        prop_assert_eq!(json::validate(text.as_bytes()), Ok(tree.scan()), "{}", text);
        let model = parse(text.as_bytes());
        let mut normal = Vec::new();
        json::normalise(text.as_bytes(), &mut normal);
        // As text, because equality of objects does not look at their order.
        prop_assert_eq!(parse(&normal).to_string(), model.to_string());
        let mut again = Vec::new();
        json::normalise(&normal, &mut again);
        prop_assert_eq!(&again, &normal, "normal form is not stable");
        check_walkers(&normal, &model);
        if !tree.scan().rewrite {
            let start = text.len() - text.trim_start().len();
            check_walkers(&text.as_bytes()[start..json::skip_value(text.as_bytes(), start)], &model);
        }
    }

    #[test]
    fn mutations_are_judged_as_by_the_model(tree in tree(), space in any::<u64>(), mutations in mutations()) {
        let mut bytes = tree.text(space).into_bytes();
        for (at, remove, insert) in mutations {
            let at = at.index(bytes.len() + 1);
            let end = (at + remove).min(bytes.len());
            bytes.splice(at..end, insert);
        }
        let ours = json::validate(&bytes);
        if let Ok(text) = std::str::from_utf8(&bytes)
            && !has_surrogate(text)
        {
            let model: Result<Value, _> = serde_json::from_str(text);
            prop_assert_eq!(ours.is_ok(), model.is_ok(), "{}: {:?}, {:?}", text, ours, model.err());
            let object = model.is_ok_and(|value| value.is_object());
            prop_assert_eq!(json::validate_object(&bytes).is_ok(), object);
        }
    }

    #[test]
    fn nothing_panics_on_arbitrary_bytes(bytes in prop::collection::vec(
        prop_oneof![any::<u8>(), proptest::sample::select(br#"{}[]",:\u0"#.to_vec())], 0..200,
    )) {
        if let Err(error) = json::validate_object(&bytes) {
            prop_assert!(error.offset <= bytes.len());
        }
        let _ = json::validate(&bytes);
        let mut out = Vec::new();
        json::normalise(&bytes, &mut out);
        json::unescape(&bytes, &mut out);
        prop_assert!(json::skip_value(&bytes, 0) <= bytes.len());
        prop_assert!(json::members(&bytes).count() <= bytes.len());
        prop_assert!(json::elements(&bytes).count() <= bytes.len());
        json::find(&bytes, b"a");
        json::find(&bytes, b"");
    }

    #[test]
    fn strings_are_written_as_by_the_model(text in prop_oneof![any::<String>(), "[a-z\"\\\\\n\u{0}-\u{1f}é]{0,60}"]) {
        let mut out = Vec::new();
        json::write_string(&mut out, text.as_bytes());
        prop_assert_eq!(&out, &serde_json::to_vec(&text).unwrap());
        let mut back = Vec::new();
        json::unescape(&out[1..out.len() - 1], &mut back);
        prop_assert_eq!(back, text.as_bytes());
    }

    #[test]
    fn numbers_are_written_so_that_they_read_back(signed in any::<i64>(), unsigned in any::<u64>(), float in any::<f64>()) {
        let mut out = Vec::new();
        json::write_i64(&mut out, signed);
        out.push(b' ');
        json::write_u64(&mut out, unsigned);
        prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{signed} {unsigned}"));
        let mut out = Vec::new();
        json::write_f64(&mut out, float);
        if float.is_finite() {
            prop_assert!(json::validate(&out).is_ok());
            prop_assert_eq!(std::str::from_utf8(&out).unwrap().parse::<f64>().unwrap().to_bits(), float.to_bits());
        } else {
            prop_assert_eq!(out, b"null");
        }
    }
}

#[test]
fn floats_keep_their_point() {
    for (value, text) in [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e15, "1000000000000000.0"),
        (1e-7, "1e-7"),
        (f64::NAN, "null"),
    ] {
        let mut out = Vec::new();
        json::write_f64(&mut out, value);
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

#[test]
fn accepted_and_refused_texts() {
    let accepted = [
        "{}",
        " {}\n",
        "[]",
        "[[]]",
        "0",
        "-0",
        "-0.0",
        "1e5",
        "1E+5",
        "1e-05",
        "0e0",
        "123456789012345678901234567890.5e10",
        "\"\"",
        "\"\u{7f}\"",
        "\"\u{2028}\"",
        r#""\/\b\f\n\r\t\"\\""#,
        r#""\u0000\uFFFF\uDBFF\uDFFF""#,
        r#""\ud800""#,
        r#""\udc00\ud800x""#,
        "true",
        "false",
        "null",
        " [ 1 , { \"a\" : null } ] ",
        "{\"\":0}",
        "{\"a\":{\"a\":1}}",
        "1234567890123456",
        "12345678901234567",
        "\"0123456789abcde\"",
        "\"0123456789abcdef\"",
    ];
    for text in accepted {
        assert!(json::validate(text.as_bytes()).is_ok(), "{text}");
    }
    use JsonErrorKind::*;
    let refused = [
        ("", 0, UnexpectedEnd),
        (" ", 1, UnexpectedEnd),
        ("{", 1, UnexpectedEnd),
        ("[", 1, UnexpectedEnd),
        ("[1", 2, UnexpectedEnd),
        ("[1,", 3, UnexpectedEnd),
        ("[1,]", 3, UnexpectedByte),
        ("[,1]", 1, UnexpectedByte),
        ("[1 2]", 3, UnexpectedByte),
        ("[1}", 2, UnexpectedByte),
        ("{\"a\":1]", 6, UnexpectedByte),
        ("{\"a\"}", 4, UnexpectedByte),
        ("{\"a\" 1}", 5, UnexpectedByte),
        ("{\"a\":}", 5, UnexpectedByte),
        ("{\"a\":1,}", 7, UnexpectedByte),
        ("{,}", 1, UnexpectedByte),
        ("{a:1}", 1, UnexpectedByte),
        ("{1:1}", 1, UnexpectedByte),
        ("{'a':1}", 1, UnexpectedByte),
        ("{\"a\"", 4, UnexpectedEnd),
        ("{\"a", 3, UnexpectedEnd),
        ("01", 0, InvalidNumber),
        ("-", 0, InvalidNumber),
        ("-01", 0, InvalidNumber),
        ("1.", 0, InvalidNumber),
        ("1.e1", 0, InvalidNumber),
        ("1e", 0, InvalidNumber),
        ("1e+", 0, InvalidNumber),
        (".5", 0, UnexpectedByte),
        ("+1", 0, UnexpectedByte),
        ("0x1", 1, TrailingBytes),
        ("1_000", 1, TrailingBytes),
        ("NaN", 0, UnexpectedByte),
        ("Infinity", 0, UnexpectedByte),
        ("-Infinity", 0, InvalidNumber),
        ("nul", 3, UnexpectedEnd),
        ("nulL", 3, UnexpectedByte),
        ("trueX", 4, TrailingBytes),
        ("True", 0, UnexpectedByte),
        ("\"", 1, UnexpectedEnd),
        ("\"a", 2, UnexpectedEnd),
        ("\"\\", 2, UnexpectedEnd),
        (r#""\x""#, 1, InvalidEscape),
        (r#""\u12""#, 1, InvalidEscape),
        (r#""\u12G4""#, 1, InvalidEscape),
        (r#""\uD800\u""#, 7, InvalidEscape),
        ("\"a\nb\"", 2, ControlCharacter),
        ("\"\u{0}\"", 1, ControlCharacter),
        ("{\"a\tb\":1}", 3, ControlCharacter),
        ("{}x", 2, TrailingBytes),
        ("{} {}", 3, TrailingBytes),
        ("[]]", 2, TrailingBytes),
        ("\u{feff}{}", 0, UnexpectedByte),
        ("\u{a0}1", 0, UnexpectedByte),
        ("\u{c}1", 0, UnexpectedByte),
        ("// c\n1", 0, UnexpectedByte),
        ("\"a\"\u{0}", 3, TrailingBytes),
        ("1\u{0}", 1, TrailingBytes),
        ("\u{0}", 0, UnexpectedByte),
        ("[\"0123456789abcdefghijklmnopqrstuvwxyz", 38, UnexpectedEnd),
    ];
    for (text, offset, kind) in refused {
        let error = json::validate(text.as_bytes()).unwrap_err();
        assert_eq!((error.offset, error.kind), (offset, kind), "{text:?}");
    }
    for text in ["[]", "1", "", " ", "\"{}\"", "null"] {
        assert_eq!(
            json::validate_object(text.as_bytes()).unwrap_err().kind,
            NotAnObject,
            "{text:?}"
        );
    }
}

#[test]
fn lone_surrogates_read_as_replacement_characters() {
    let cases = [
        (r"\ud800", "\u{fffd}"),
        (r"\udc00x", "\u{fffd}x"),
        (r"\ud800\ud83d\ude00", "\u{fffd}😀"),
        (r"\ud800\n", "\u{fffd}\n"),
        (r"\ud800\u0041", "\u{fffd}A"),
    ];
    for (body, text) in cases {
        let mut out = Vec::new();
        json::unescape(body.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), text, "{body}");
    }
}

#[test]
fn normal_form_of_examples() {
    let cases = [
        (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
        (r#"{"a":1,"\u0061":1.50e+3}"#, r#"{"a":1.50e+3}"#),
        (
            r#"{"a":{"x":1,"x":2,"y":[{"z":0,"z":1}]},"b":"\u0041"}"#,
            r#"{"a":{"x":2,"y":[{"z":1}]},"b":"\u0041"}"#,
        ),
        (r#"{"\"\\\u000a\/":1}"#, r#"{"\"\\\n/":1}"#),
        (" [ 1 , [ ] , { } ] ", "[1,[],{}]"),
    ];
    for (text, expected) in cases {
        let mut out = b"kept ".to_vec();
        json::normalise(text.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("kept {expected}"));
    }
}

#[test]
fn duplicates_are_found_in_objects_of_any_size() {
    for count in [1, 7, 8, 9, 100, 119, 120, 121, 5000] {
        let members: Vec<String> = (0..count)
            .map(|i| format!("\"some_common_prefix_{i}_and_suffix\":{i}"))
            .collect();
        let unique = format!("{{\"deep\":{{{0}}},{0}}}", members.join(","));
        assert_eq!(
            json::validate_object(unique.as_bytes()),
            Ok(Scan::default()),
            "{count} keys"
        );
        let twice = format!("{{{},{}}}", members.join(","), members[count / 2]);
        assert!(
            json::validate_object(twice.as_bytes()).unwrap().rewrite,
            "{count} keys"
        );
    }
}

#[test]
fn nesting_is_bounded_without_recursion() {
    let nested =
        |open: &str, close: &str, depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"a\":0,\"b\":[", "]}")] {
        let deep = nested(
            open,
            close,
            1000 / open.chars().filter(|c| "[{".contains(*c)).count(),
        );
        assert_eq!(json::validate(deep.as_bytes()), Ok(Scan::default()));
        let mut normal = Vec::new();
        json::normalise(deep.as_bytes(), &mut normal);
        assert_eq!(normal, deep.as_bytes());
        assert_eq!(json::skip_value(deep.as_bytes(), 0), deep.len());
        let bottomless = nested(open, close, 100_000);
        assert_eq!(
            json::validate(bottomless.as_bytes()).unwrap_err().kind,
            JsonErrorKind::TooDeep(json::DEPTH_MAX)
        );
        assert_eq!(
            json::validate(open.repeat(100_000).as_bytes())
                .unwrap_err()
                .kind,
            JsonErrorKind::TooDeep(json::DEPTH_MAX)
        );
        assert_eq!(json::skip_value(bottomless.as_bytes(), 0), bottomless.len());
    }
    assert!(json::validate(nested("[", "]", json::DEPTH_MAX).as_bytes()).is_ok());
    assert!(json::validate(nested("[", "]", json::DEPTH_MAX + 1).as_bytes()).is_err());
}

#[test]
fn a_smaller_depth_may_be_asked_for() {
    let text = br#"{"a":[{"b":1}],"c":{}}"#;
    let within = |depth_max| json::validate_object_within(text, depth_max);
    assert_eq!(within(3), json::validate_object(text));
    let error = within(2).expect_err("too deep");
    assert_eq!((error.offset, error.kind), (6, JsonErrorKind::TooDeep(2)));
    assert!(within(0).is_err());
    assert!(within(usize::MAX).is_ok());
}
