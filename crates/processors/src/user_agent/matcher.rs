//! Finding the first of many rules that matches a text.
//!
//! Compiling all rules takes longer than a short run itself. So each rule is parsed only, to learn which literals every
//! text that it matches must hold; one automaton looks for all of them at once, and only rules whose literals are
//! all there are compiled, once, and tried in order. The crate `ua-parser` compiles all of them first: one agent costs 0.13 s of CPU time and
//! 30 MiB, here 0.02 s and 16 MiB; 20,000 different ones cost the same in both (`bench/libraries/run agents`). Tests hold the results
//! against it.
//!
//! Expressions work on bytes: letters, digits and case are those of ASCII, as in the reference implementation. Repetitions
//! such as `.{0,200}` are widened to any number: they guard other engines against long searches, and here they would only make
//! the automata large.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::captures::Captures;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Repetition};

use super::rules::{PARTS, Rule};

/// Shorter literals would be everywhere.
const LITERAL_LENGTH_MIN: usize = 2;

/// A repetition of up to so many times or more is widened.
const REPETITIONS_MAX: u32 = 50;

/// A list of rules, ready to be searched.
#[derive(Debug)]
pub(super) struct Matcher {
    rules: Vec<Lazy>,
    literals: AhoCorasick,
    /// For each literal, the rules that need it, and which bit of [`Lazy::needs`] it fulfils.
    needed_by: Vec<Vec<(u16, u8)>>,
}

#[derive(Debug)]
struct Lazy {
    rule: Rule,
    /// One bit for each set of literals of which the text must hold one.
    needs: u32,
    regex: OnceLock<Option<Regex>>,
}

impl Matcher {
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut literals = Literals::default();
        let lazy = |(index, rule): (usize, Rule)| {
            let sets = parse(&rule.regex, false)
                .map(|hir| required(&hir))
                .unwrap_or_default();
            let sets = sets
                .into_iter()
                .filter(|set| set.iter().all(|one| one.len() >= LITERAL_LENGTH_MIN))
                .take(32);
            let mut needs = 0;
            for (bit, set) in sets.enumerate() {
                needs |= 1 << bit;
                set.into_iter()
                    .for_each(|literal| literals.add(literal, (index as u16, bit as u8)));
            }
            Lazy {
                rule,
                needs,
                regex: OnceLock::new(),
            }
        };
        let rules = rules.into_iter().enumerate().map(lazy).collect();
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(&literals.texts);
        let literals_found = automaton.expect("rules have far less than 4 GiB of literals");
        Self {
            rules,
            literals: literals_found,
            needed_by: literals.needed_by,
        }
    }

    /// The rules that cannot be compiled.
    pub fn broken(rules: &[Rule]) -> impl Iterator<Item = &Rule> {
        rules.iter().filter(|rule| compile(rule).is_none())
    }

    /// The parts that the first matching rule makes of a text; all empty when none matches.
    pub fn parts(&self, text: &[u8]) -> Option<[Vec<u8>; PARTS]> {
        let mut found = vec![0u32; self.rules.len()];
        for literal in self.literals.find_overlapping_iter(text) {
            for &(rule, bit) in &self.needed_by[literal.pattern().as_usize()] {
                found[usize::from(rule)] |= 1 << bit;
            }
        }
        let candidates = self
            .rules
            .iter()
            .zip(found)
            .filter(|(rule, found)| rule.needs == *found);
        candidates.filter_map(|(rule, _)| rule.parts(text)).next()
    }
}

impl Lazy {
    fn parts(&self, text: &[u8]) -> Option<[Vec<u8>; PARTS]> {
        let regex = self.regex.get_or_init(|| compile(&self.rule)).as_ref()?;
        let mut captures = regex.create_captures();
        regex.captures(text, &mut captures);
        if !captures.is_match() {
            return None;
        }
        Some(std::array::from_fn(|part| {
            match &self.rule.replacements[part] {
                Some(replacement) => expand(replacement, text, &captures),
                None => group(text, &captures, part + 1).to_vec(),
            }
        }))
    }
}

/// The text of a group; nothing where it took no part in the match.
fn group<'t>(text: &'t [u8], captures: &Captures, index: usize) -> &'t [u8] {
    captures
        .get_group(index)
        .map_or(b"", |span| &text[span.range()])
}

/// Replaces `$1` to `$9` by groups and takes away white space around the result.
fn expand(replacement: &str, text: &[u8], captures: &Captures) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pieces = replacement.split('$');
    out.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        match piece.as_bytes() {
            [digit @ b'1'..=b'9', rest @ ..] => {
                out.extend_from_slice(group(text, captures, usize::from(digit - b'0')));
                out.extend_from_slice(rest);
            }
            other => {
                out.push(b'$');
                out.extend_from_slice(other);
            }
        }
    }
    out.trim_ascii().to_vec()
}

/// Automata that are complete before the first search would cost more than they save: user agents are short. One that is built while it
/// runs pays: without it 20,000 different agents take 0.42 s of CPU time, with it 0.25 s, and the first ones as long as before.
fn compile(rule: &Rule) -> Option<Regex> {
    let hir = widened(parse(&rule.regex, rule.ignores_case)?);
    let config = Config::new().utf8_empty(false).dfa(false).onepass(false);
    Regex::builder().configure(config).build_from_hir(&hir).ok()
}

fn parse(regex: &str, ignores_case: bool) -> Option<Hir> {
    ParserBuilder::new()
        .unicode(false)
        .utf8(false)
        .case_insensitive(ignores_case)
        .build()
        .parse(regex)
        .ok()
}

/// The expression without upper bounds of large repetitions.
fn widened(hir: Hir) -> Hir {
    match hir.into_kind() {
        HirKind::Repetition(repetition) => {
            let max = repetition.max.filter(|max| *max < REPETITIONS_MAX);
            Hir::repetition(Repetition {
                max,
                sub: Box::new(widened(*repetition.sub)),
                ..repetition
            })
        }
        HirKind::Capture(mut capture) => {
            capture.sub = Box::new(widened(*capture.sub));
            Hir::capture(capture)
        }
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(widened).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.into_iter().map(widened).collect()),
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(look),
    }
}

/// Literals of which a text that the expression matches must hold one.
type Set = Vec<Box<[u8]>>;

/// The sets of literals of which a matching text must hold one each.
fn required(hir: &Hir) -> Vec<Set> {
    match hir.kind() {
        HirKind::Literal(literal) => vec![vec![literal.0.clone()]],
        HirKind::Capture(capture) => required(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(required).collect(),
        HirKind::Alternation(parts) => {
            let mut any = Vec::new();
            for part in parts {
                // The set whose shortest literal is longest says most.
                let sets = required(part).into_iter();
                let Some(best) = sets.max_by_key(|set| set.iter().map(|one| one.len()).min())
                else {
                    return Vec::new();
                };
                any.extend(best);
            }
            vec![any]
        }
        _ => Vec::new(),
    }
}

/// The literals of all rules, each once.
#[derive(Default)]
struct Literals {
    numbers: std::collections::HashMap<Box<[u8]>, usize>,
    texts: Vec<Box<[u8]>>,
    needed_by: Vec<Vec<(u16, u8)>>,
}

impl Literals {
    fn add(&mut self, literal: Box<[u8]>, need: (u16, u8)) {
        let number = *self
            .numbers
            .entry(literal.to_ascii_lowercase().into())
            .or_insert_with(|| {
                self.texts.push(literal);
                self.needed_by.push(Vec::new());
                self.texts.len() - 1
            });
        self.needed_by[number].push(need);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;

    #[test]
    fn every_embedded_rule_compiles() {
        let rules = Rules::embedded();
        for rule in [rules.browsers, rules.systems, rules.devices].concat() {
            assert!(compile(&rule).is_some(), "{}", rule.regex);
        }
    }

    #[test]
    fn rules_name_the_literals_they_need() {
        let sets = |regex: &str| {
            let text = |one: Box<[u8]>| String::from_utf8(one.into()).unwrap();
            let sets = required(&parse(regex, false).unwrap());
            sets.into_iter()
                .map(|set| set.into_iter().map(text).collect::<Vec<_>>().join("|"))
                .collect::<Vec<_>>()
        };
        for (regex, expected) in [
            ("abc", vec!["abc"]),
            ("abc(def|gh)?[x-z]jk+", vec!["abc", "j", "k"]),
            ("(?:one \\d two|three)", vec!["one |three"]),
            ("(?:ab|.)", vec![]),
            ("^$", vec![]),
        ] {
            let mut found = sets(regex);
            // The longest one of an alternative's sets stands for it; of equals, any.
            found
                .iter_mut()
                .for_each(|set| *set = set.replace(" two|", "one |"));
            assert_eq!(found, expected, "{regex}");
        }
    }

    #[test]
    fn the_first_matching_rule_wins() {
        let rule = |regex: &'static str, name: Option<&'static str>| Rule {
            regex: regex.into(),
            replacements: [name.map(Into::into), None, None, None, None],
            ..Rule::default()
        };
        let matcher = Matcher::new(vec![
            rule("Foo/(\\d+)\\.x", None),
            rule("(Bar|Baz)/(\\d+)", Some("$1 of $2 ")),
            Rule {
                ignores_case: true,
                ..rule("baz", Some("$9"))
            },
            rule(".{0,200}-(.{1,100})", None),
        ]);
        let parts = |text: &str| {
            let parts = matcher.parts(text.as_bytes())?;
            Some(parts.map(|part| String::from_utf8(part).unwrap()).join(","))
        };
        for (text, expected) in [
            ("Bar/1", Some("Bar of 1,1,,,")),
            ("Foo/2.y Baz/3", Some("Baz of 3,3,,,")),
            ("Foo/2.x Baz/3", Some("2,,,,")),
            ("BAZ", Some(",,,,")),
            ("bar/1", None),
            ("a-é", Some("é,,,,")),
        ] {
            assert_eq!(parts(text).as_deref(), expected, "{text}");
        }
    }
}
