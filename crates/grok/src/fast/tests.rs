//! Both engines on the same texts: the library's definitions on strings made from themselves, and random
//! patterns on random texts.

use proptest::prelude::*;

use crate::ast::{Assertion, Node};
use crate::class::Wide;
use crate::parse::parse;
use crate::pcre::{Fallback, FallbackScratch};
use crate::{Library, Options, Outcome, Pattern, PatternSet, Scratch, Span};

/// A small generator of pseudo-random numbers (xorshift), so that a failing case can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }
}

/// Appends a string that the node matches, or nearly does.
fn derive(node: &Node, dice: &mut Dice, out: &mut String) {
    if out.len() > 2_000 {
        return;
    }
    match node {
        Node::Empty | Node::Look { .. } | Node::Backref(_) | Node::Foreign(_) => {}
        Node::Char(c) => out.push(*c),
        Node::Class(class) => {
            let ascii = class.ascii.unwrap_or(0);
            let plain = |b: u8| ascii >> b & 1 == 1 && (b >= b' ' || b == b'\n');
            let members: Vec<u8> = (0..128).filter(|&b| plain(b)).collect();
            match members.as_slice() {
                _ if class.wide != Wide::None && dice.one_in(12) => {
                    out.push(['ä', '€', '😀', '\u{a0}'][dice.below(4)]);
                }
                [] => out.push('\t'),
                members => out.push(char::from(members[dice.below(members.len())])),
            }
        }
        Node::Concat(all) => all.iter().for_each(|child| derive(child, dice, out)),
        Node::Alt(all) => derive(&all[dice.below(all.len())], dice, out),
        Node::Repeat { node, min, max, .. } => {
            let most = max.unwrap_or(min + 6).min(min + 6);
            let count = *min as usize + dice.below((most - min) as usize + 1);
            (0..count).for_each(|_| derive(node, dice, out));
        }
        Node::Capture(_, node) | Node::Atomic(node) | Node::Named(_, node) => {
            derive(node, dice, out);
        }
        Node::Assert(Assertion::LineStart) if !out.is_empty() && dice.one_in(2) => out.push('\n'),
        Node::Assert(_) => {}
    }
}

const NOISE: &[&str] = &[
    " ", "-", ":", "/", ".", "\"", "\\", "\n", "[", "]", "1", "12", "255", "2015", "a", "Z", "_",
    "::", "ä", "€", "\t", "'", "=",
];

fn mutate(text: &mut String, dice: &mut Dice) {
    for _ in 0..dice.below(4) {
        let cuts: Vec<usize> = text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .collect();
        let at = cuts[dice.below(cuts.len())];
        let to = cuts[dice.below(cuts.len())];
        match dice.below(5) {
            0 => text.insert_str(at, NOISE[dice.below(NOISE.len())]),
            1 if at < to && to - at < 5 => text.replace_range(at..to, ""),
            2 if at < text.len() => {
                let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
                text.replace_range(at..end, NOISE[dice.below(NOISE.len())]);
            }
            3 => text.truncate(at),
            _ => text.insert_str(0, NOISE[dice.below(NOISE.len())]),
        }
    }
}

/// Runs both engines; gives whether the specialised one decided.
fn compare(
    name: &str,
    pattern: &Pattern,
    text: &str,
    fast: &mut Scratch,
    slow: &mut Scratch,
) -> bool {
    // What an earlier text left in the spans must not show.
    fast.spans.fill(Span { start: 7, end: 7 });
    let expected = pattern.matches_with_pcre2(text.as_bytes(), slow);
    let check = |outcome: Outcome, fast: &Scratch, search: &str| {
        if expected == Outcome::LimitReached {
            return;
        }
        let place = || format!("{name} on {text:?}, {search}\n{}", pattern.explain());
        assert_eq!(outcome, expected, "{}", place());
        if outcome == Outcome::Match {
            assert_eq!(fast.spans(), slow.spans(), "{}", place());
        }
    };
    let quick = pattern.matches_specialised(text.as_bytes(), fast);
    if let Some(outcome) = quick {
        check(outcome, fast, "quick");
    }
    fast.spans.fill(Span { start: 7, end: 7 });
    match pattern.matches_thoroughly(text.as_bytes(), fast) {
        Some((outcome, _)) => check(outcome, fast, "thorough"),
        None => panic!("{name} on {text:?}: too many steps\n{}", pattern.explain()),
    }
    quick.is_some()
}

fn sweep(set: PatternSet, texts_each: usize) {
    let library = Library::new(set);
    let (mut specialised, mut all, mut decided, mut texts) = (0, 0, 0, 0);
    for (index, name) in library.names().enumerate() {
        let source = format!("%{{{name}}}");
        let options = Options {
            named_captures_only: index % 3 != 0,
            ..Options::default()
        };
        let (node, _) = parse(&library, &source, &options).unwrap();
        let pattern = Pattern::compile(&library, &source, &options).unwrap();
        all += 1;
        if !pattern.is_specialised() {
            eprintln!(
                "{set:?} {name}: {}",
                pattern.explain().lines().next().unwrap()
            );
            continue;
        }
        specialised += 1;
        let (mut fast, mut slow) = (pattern.new_scratch(), pattern.new_scratch());
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (index as u64) << 20);
        for _ in 0..texts_each {
            let mut text = String::new();
            if dice.one_in(10) {
                (0..dice.below(30)).for_each(|_| text.push_str(NOISE[dice.below(NOISE.len())]));
            } else {
                derive(&node, &mut dice, &mut text);
            }
            mutate(&mut text, &mut dice);
            texts += 1;
            decided += usize::from(compare(name, &pattern, &text, &mut fast, &mut slow));
        }
    }
    eprintln!("{set:?}: {specialised} of {all} specialised, {decided} of {texts} texts decided");
    assert!(
        specialised * 100 >= all * 95,
        "{specialised} of {all} definitions are specialised"
    );
    assert!(
        decided * 100 >= texts * 60,
        "{decided} of {texts} texts were decided"
    );
}

/// The count is the same on every machine, so these texts are given up whatever the time they take.
#[test]
fn what_failed_paths_looked_at_is_counted() {
    let run = "a".repeat(64 << 10);
    let unclosed = format!("{}\"{}", "a".repeat(1_000), "b".repeat(64 << 10));
    for (source, text) in [
        ("%{PATH:p}", run.as_str()),
        ("(?:[a-z]+:)?(?<z>[0-9])", &run),
        ("(?>[a-z]+)[:;](?<z>[0-9])", &run),
        ("(?=[a-z]*)(?<z>b|ab)", &run),
        ("(?![a-z]+)a(?<z>b|c)", &run),
        ("a*%{QS:q}", &unclosed),
    ] {
        let pattern = Pattern::compile(
            &Library::new(PatternSet::Legacy),
            source,
            &Options::default(),
        );
        let pattern = pattern.expect("the pattern compiles");
        let mut scratch = pattern.new_scratch();
        assert!(pattern.is_specialised(), "{source}");
        let outcome = pattern.matches_specialised(text.as_bytes(), &mut scratch);
        assert_eq!(outcome, None, "{source}");
    }
}

fn texts_each() -> usize {
    std::env::var("MILLPOND_GROK_TEXTS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200)
}

#[test]
fn both_engines_agree_on_the_legacy_library() {
    sweep(PatternSet::Legacy, texts_each());
}

#[test]
fn both_engines_agree_on_the_ecs_library() {
    sweep(PatternSet::EcsV1, texts_each());
}

/// Random patterns over a small alphabet, so that random texts often match.
fn patterns() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "1", " ", "ab", "ä", r"\n", "-"]).prop_map(str::to_owned),
        6 => prop::sample::select(vec![
            ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", r"\S", "[^ ]", "[a-b1]", "[ä]", "[[:alpha:]]", r"[\d-]",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", "(?<=a)", "(?<!b)", "(?<![a-b])", "(?<= a)", "(?=a)", "(?![ab])", "(?!ab)",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "%{IPV4}", "%{NUMBER}", "%{QS}", "%{WORD}", "%{DATA}", "%{GREEDYDATA}", "%{INT}", "%{HTTPDATE}",
        ]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            4 => several.clone().prop_map(|all| all.concat()),
            3 => several.prop_map(|all| format!("(?:{})", all.join("|"))),
            2 => inner.clone().prop_map(|one| format!("(?<x>{one})")),
            1 => inner.clone().prop_map(|one| format!("(?>{one})")),
            1 => (inner.clone(), prop::sample::select(vec!["=", "!"])).prop_map(|(one, kind)| format!("(?{kind}{one})")),
            4 => (inner, prop::sample::select(vec![
                "*", "+", "?", "*?", "+?", "??", "*+", "{2}", "{1,3}", "{0,2}?", "{2,}", "?+",
            ])).prop_map(|(one, quantifier)| format!("(?:{one}){quantifier}")),
        ]
    })
}

fn texts() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b",
        "1",
        " ",
        "ab",
        "aab",
        "ä",
        "\n",
        "-",
        "1.2.3.4",
        "\"a\\\"b\"",
        "12",
        "\"",
        "17/May/2015:10:05:03 +0000",
        "€",
        ".5",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn both_engines_agree_on_random_patterns(source in patterns(), texts in prop::collection::vec(texts(), 8)) {
        let library = Library::new(PatternSet::Legacy);
        let options = Options::default();
        let Ok(pattern) = Pattern::compile(&library, &source, &options) else { return Ok(()) };
        if !pattern.is_specialised() {
            return Ok(());
        }
        let (mut fast, mut slow) = (pattern.new_scratch(), pattern.new_scratch());
        for text in &texts {
            compare(&source, &pattern, text, &mut fast, &mut slow);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// The form in which PCRE2 searches longer texts means the same as the plain one.
    #[test]
    fn both_forms_for_pcre2_agree(
        source in patterns(),
        texts in prop::collection::vec((texts(), 0..100_usize, texts()), 8),
    ) {
        let library = Library::new(PatternSet::Legacy);
        let Ok((node, captures)) = parse(&library, &source, &Options::default()) else { return Ok(()) };
        let fallback = Fallback::new(&node, 1_000_000).expect("the pattern compiles");
        let mut scratch = FallbackScratch::default();
        let mut spans = [vec![Span::NONE; captures.len()], vec![Span::NONE; captures.len()]];
        for (head, run, tail) in &texts {
            let text = format!("{head}{}{tail}", "a".repeat(*run));
            let mut outcomes = [0, 1].into_iter().zip(&mut spans).map(|(tier, spans)| {
                fallback.run_in(tier, text.as_bytes(), &mut scratch, spans)
            });
            let (plain, counted) = (outcomes.next().unwrap(), outcomes.next().unwrap());
            drop(outcomes);
            if plain == Outcome::LimitReached || counted == Outcome::LimitReached {
                continue;
            }
            prop_assert_eq!(plain, counted, "{} on {:?}", source, text);
            if plain == Outcome::Match {
                prop_assert_eq!(&spans[0], &spans[1], "{} on {:?}", source, text);
            }
        }
    }
}
