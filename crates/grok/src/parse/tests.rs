//! The dialect, table by table, run through PCRE2 so that the meaning is tested and not the tree.

use crate::{GrokError, Library, Options, Outcome, Pattern, PatternSet};

fn library() -> Library {
    Library::new(PatternSet::Legacy)
}

fn spans(source: &str, text: &str) -> Option<Vec<Option<String>>> {
    let pattern = Pattern::compile(&library(), source, &Options::default())
        .unwrap_or_else(|e| panic!("{source}: {e}"));
    let mut scratch = pattern.new_scratch();
    match pattern.matches(text.as_bytes(), &mut scratch) {
        Outcome::Match => {
            let own = |span: &crate::Span| {
                span.of(text.as_bytes())
                    .map(|b| String::from_utf8(b.to_vec()).unwrap())
            };
            Some(scratch.spans().iter().map(own).collect())
        }
        Outcome::NoMatch => None,
        Outcome::LimitReached => panic!("{source} on {text:?}: limit"),
    }
}

#[test]
fn the_dialect_is_that_of_oniguruma() {
    // Pattern, text, what its first capture takes; None for no match.
    let table: &[(&str, &str, Option<&str>)] = &[
        (r"(?<x>^b$)", "a\nb\nc", Some("b")),
        (r"(?<x>a.b)", "a\nb", Some("a\nb")),
        (r"(?m)(?<x>a.b)", "a\nb", Some("a\nb")),
        (r"(?-m)(?<x>a.b)", "a\nb", None),
        (r"(?-m)(?m:a.)(?<x>.)", "a\nb", Some("b")),
        (r"(?-mix:a.)(?<x>.)", "a\nbA-b", None),
        (r"(?<x>(?>[a-z]+)+\d)", "ab1", Some("ab1")),
        (r"(?<x>([a-z]+)+b*)", "abb", Some("abb")),
        (r"(?<x>([a-z]*)+b)c", "abbc", Some("abb")),
        (r"(?<x>([a-z]+)?b)c", "bc", Some("b")),
        (r"(?<x>\h+)", "xyz09aFg", Some("09aF")),
        (r"(?<x>\H+)", "09aFxyz", Some("xyz")),
        (r"(?<x>a++)b", "aaab", Some("aaa")),
        (r"(?<x>a*+a)", "aaa", None),
        (r"(?<x>(?>a|ab)c)", "abc", None),
        (r"(?<=\[)(?<x>\w+)(?=\])", "a [bc] d", Some("bc")),
        (r"(?<!a)(?<x>b)", "ab b", Some("b")),
        (r"(?<x>a.?*c)", "abbbc", Some("abbbc")),
        (r"(?<x>a{2}+)b", "aaaab", Some("aaaa")),
        (r"(?<x>a{2}?)$", "aa", Some("aa")),
        (r"(?<x>a{,2})b", "aaab", Some("aa")),
        (r"(?<x>a{x})", "a{x}", Some("a{x}")),
        (r"(?<x>[[:alpha:]_&&[^b]]+)", "b_ab", Some("_a")),
        (r"(?<x>[[[:alnum:]]_%]+)", "-a_9%-", Some("a_9%")),
        (r"(?<x>[]a]+)", "x]a]", Some("]a]")),
        (r"(?<x>[a\-z]+)", "b-a-z", Some("-a-z")),
        (r"(?<x>[\d\s]+)", "a1 2b", Some("1 2")),
        (r"(?<x>[^\W_]+)", "__ab__", Some("ab")),
        (r"a(?i)b|(?<x>C)", "ac", Some("c")),
        (r"(?i)K(?<x>ä)", "kÄ", Some("Ä")),
        (
            r"(?x) (?<x> a # comment
             b ) ",
            "ab",
            Some("ab"),
        ),
        (r"a(?#comment)(?<x>b)", "ab", Some("b")),
        (r"(?<x>a)\k<x>b", "aab", Some("a")),
        (r"(?<x>\x41\x{e4}\u00e4\t\101)", "Aää\tA", None),
        (r"(?<x>\x41\x{e4}\u00e4\t\0)", "Aää\t\0", Some("Aää\t\0")),
        (r"(?<x>\w+)", "ßa", Some("a")),
        (r"(?<x>\d+)", "٣4", Some("4")),
        (r"(?<x>\ba)", "ßa a", Some("a")),
        (r"(?<x>\p{L}+)", "1äß2", Some("äß")),
        (r"(?<x>a\Z)", "a\n", Some("a")),
        (r"(?<x>a\z)", "a\n", None),
        (r"(?'x'a)", "a", Some("a")),
    ];
    for (source, text, expected) in table {
        let got = if source.contains(r"\101") {
            None
        } else {
            spans(source, text)
        };
        assert_eq!(
            got.map(|all| all[0].clone().unwrap()),
            expected.map(str::to_owned),
            "{source} on {text:?}"
        );
    }
}

#[test]
fn broken_patterns_are_refused_where_they_break() {
    let table: &[(&str, usize, &str)] = &[
        ("ab(c", 2, "never closed"),
        ("ab)c", 2, "never opened"),
        ("ab[c", 2, "never closed"),
        ("a|*", 2, "could be repeated"),
        ("a{3,2}", 1, "larger"),
        ("a{70000}", 1, "counts up to"),
        ("a\\", 1, "backslash"),
        ("[z-a]", 1, "upside down"),
        ("%{WORD", 0, "never closed"),
        ("x%{WO,RD}", 3, "not a pattern name"),
        ("x%{ WORD}", 3, "not a pattern name"),
        ("x%{WORD :a}", 7, "no blank may stand before"),
        ("x%{WORD:a =b}", 9, "no blank may stand before"),
        ("x%{WORD a", 1, "never closed"),
        ("x%{WORD=a{2}", 1, "never closed"),
        ("x%{WORD=}", 8, "definition of WORD is empty"),
        ("x%{A:a=b(c}", 8, "never closed"),
        ("%{WORD:a:b}", 9, "unknown type"),
        ("%{WORD:[a}", 7, "no field name"),
        ("%{WORD:a..b}", 7, "no field name"),
        ("(?<>a)", 3, "no field name"),
        ("(a)\\1", 3, "numbered"),
        ("a(?~b)", 1, "absence"),
        ("a\\g<x>", 1, "calls"),
        ("\\k<x>", 0, "no group before"),
        ("[[:nope:]]", 1, "no class"),
        ("\\x{110000}", 0, "no code point"),
    ];
    for (source, offset, part) in table {
        match Pattern::compile(&library(), source, &Options::default()) {
            Err(GrokError::Syntax { place, message }) => {
                assert_eq!(
                    (place.offset, place.definition),
                    (*offset, None),
                    "{source}: {message}"
                );
                assert!(message.contains(part), "{source}: {message}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn flags_hold_in_definitions() {
    let table: &[(&str, &str, Option<&str>)] = &[
        ("%{GREEDYDATA:x}", "a\nb", Some("a\nb")),
        ("(?m)%{GREEDYDATA:x}", "a\nb", Some("a\nb")),
        ("(?m)%{WORD}%{GREEDYDATA:x}$", "a\nb", Some("\nb")),
        ("(?-m)%{GREEDYDATA:x}", "a\nb", Some("a")),
        ("(?-m:%{GREEDYDATA:x})%{GREEDYDATA}b", "a\nb", Some("a")),
        ("(?-m)%{QS:x}", "\"a\\\nb\" \"c\"", Some("\" \"")),
        ("%{QS:x}", "\"a\\\nb\" \"c\"", Some("\"a\\\nb\"")),
        ("(?i)%{CISCO_ACTION:x}", "dENY", Some("dENY")),
        ("(?i:%{CISCO_ACTION:x}) b", "dENY b", Some("dENY")),
        ("(?i:%{CISCO_ACTION:x}) b", "dENY B", None),
        ("%{CISCO_ACTION:x}", "dENY", None),
        ("(?mi)%{A:x=b.c}", "B\nC", Some("B\nC")),
        ("(?mi)(?-mix:%{A:x=b.c})", "B\nC", None),
        ("(?mi)(?-mix:%{A:x=b.c})", "b-c", Some("b-c")),
        ("(?x) %{A:x=a b}", "ab", Some("ab")),
        ("%{A:x=a b}", "a b", Some("a b")),
        // A definition's own flags end with it.
        ("%{A=(?i)a}(?<x>b)", "AB Ab", Some("b")),
        ("%{A=(?i)a}(?<x>b)", "AB", None),
    ];
    for (source, text, expected) in table {
        let first = spans(source, text).map(|all| all[0].clone().expect("the capture took part"));
        assert_eq!(first.as_deref(), *expected, "{source} on {text:?}");
    }
}

#[test]
fn references_take_definitions_and_remarks() {
    let table: &[(&str, &str, Option<&str>)] = &[
        ("%{WORD:x a remark: = (}", "ab", Some("ab")),
        ("%{WORD }-%{WORD:x }", "a-b", Some("b")),
        ("%{INT:x:int a number}", "12", Some("12")),
        ("%{WORD at first} %{WORD:x\tthen}", "a b", Some("b")),
        (r"%{D:x=\d{3}}-%{D}", "12-34 123-456", Some("123")),
        (r"%{D:x:int=\d{3}}", "12345", Some("123")),
        (r"%{D=\d{3}}%{D:x}", "123456", Some("456")),
        (r"%{B:x=a\}b}", "a}b", Some("a}b")),
        ("%{B:x=%{INT}px|%{WORD:y}}", "12px", Some("12px")),
        // It replaces what the library has, also in definitions that come later.
        ("%{WORD=[0-9]}%{WORD:x}", "ab12", Some("2")),
        (
            "%{YEAR=y}(?<x>%{DATE_US})",
            "y01/02/2026 y01/02/y",
            Some("01/02/y"),
        ),
    ];
    for (source, text, expected) in table {
        let first = spans(source, text).map(|all| all[0].clone().expect("the capture took part"));
        assert_eq!(first.as_deref(), *expected, "{source} on {text:?}");
    }
    // It holds for its own pattern, and from its place on.
    let library = library();
    for source in ["%{D}", "%{D}%{D=a}"] {
        let error = Pattern::compile(&library, source, &Options::default());
        assert!(
            matches!(error, Err(GrokError::UnknownPattern { .. })),
            "{source}"
        );
    }
    let error = Pattern::compile(&library, "%{D=a%{D}}", &Options::default());
    assert!(matches!(error, Err(GrokError::Recursion { .. })));
}

#[test]
fn errors_in_definitions_name_the_definition() {
    let mut library = library();
    library.add("BROKEN", "ab(c").unwrap();
    library.add("OUTER", "x %{BROKEN}").unwrap();
    library.add("LOST", "x %{NUMBR}").unwrap();
    library.add("A", "a%{B}").unwrap();
    library.add("B", "b|%{C}").unwrap();
    library.add("C", "%{A}").unwrap();
    let error = |source: &str| Pattern::compile(&library, source, &Options::default()).unwrap_err();

    let place = error("%{OUTER}").place().cloned().unwrap();
    assert_eq!(
        (place.definition.as_deref(), place.offset),
        (Some("BROKEN"), 2)
    );

    let lost = error("ab %{LOST}");
    assert_eq!(
        lost.to_string(),
        "definition LOST, byte 2: unknown pattern NUMBR; did you mean NUMBER?"
    );

    let GrokError::Recursion { place, cycle } = error("%{B}") else {
        panic!("no recursion found")
    };
    assert_eq!(cycle, ["B", "C", "A", "B"]);
    assert_eq!((place.definition.as_deref(), place.offset), (Some("A"), 1));
}

#[test]
fn expansion_is_bounded() {
    let mut library = Library::empty();
    library.add("L0", "abcdefghij").unwrap();
    for level in 1..12 {
        let inner = format!("%{{L{}}}", level - 1).repeat(10);
        library.add(&format!("L{level}"), &inner).unwrap();
    }
    let error = Pattern::compile(&library, "%{L11}", &Options::default()).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
    let deep = "(".repeat(5_000);
    let error = Pattern::compile(&library, &deep, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("deeper"), "{error}");
}
