//! The specialised matcher and PCRE2 on log lines, with every definition of both libraries.
//!
//! `MILLPOND_SAMPLE=FILE` adds the lines of a file of one's own, for the Apache patterns.

use grok::{Library, Options, Outcome, Pattern, PatternSet};

const LINES: &str = include_str!("lines.txt");

/// Panics when the engines disagree; gives how many texts the specialised matcher decided.
fn compare<'t>(name: &str, pattern: &Pattern, texts: impl Iterator<Item = &'t str>) -> usize {
    let (mut fast, mut slow) = (pattern.new_scratch(), pattern.new_scratch());
    let mut decided = 0;
    for text in texts {
        let Some(outcome) = pattern.matches_specialised(text.as_bytes(), &mut fast) else {
            continue;
        };
        decided += 1;
        let expected = pattern.matches_with_pcre2(text.as_bytes(), &mut slow);
        if expected == Outcome::LimitReached {
            continue;
        }
        assert_eq!(outcome, expected, "{name} on {text:?}");
        if outcome == Outcome::Match {
            assert_eq!(fast.spans(), slow.spans(), "{name} on {text:?}");
        }
    }
    decided
}

#[test]
fn on_lines_of_many_kinds() {
    let mut texts: Vec<&str> = LINES.lines().collect();
    texts.push(LINES);
    let (mut decided, mut all) = (0, 0);
    for set in [PatternSet::Legacy, PatternSet::EcsV1] {
        let library = Library::new(set);
        for name in library.names() {
            let pattern = Pattern::compile(&library, &format!("%{{{name}}}"), &Options::default())
                .expect("library patterns compile");
            decided += compare(name, &pattern, texts.iter().copied());
            all += texts.len();
        }
    }
    assert!(decided * 10 >= all * 8, "{decided} of {all} decided");
}

#[test]
fn on_a_sample_of_ones_own() {
    let Ok(path) = std::env::var("MILLPOND_SAMPLE") else {
        return;
    };
    let text = std::fs::read_to_string(&path).expect("the sample can be read");
    for set in [PatternSet::Legacy, PatternSet::EcsV1] {
        let library = Library::new(set);
        for source in [
            "%{COMBINEDAPACHELOG}",
            "%{COMMONAPACHELOG}",
            "^%{IPORHOST:client}.*%{QS:agent}$",
            "%{HTTPDATE:when}",
            "%{URIPATHPARAM:path} HTTP",
            "%{GREEDYDATA:head} %{NUMBER:last}",
        ] {
            let pattern = Pattern::compile(&library, source, &Options::default())
                .expect("the pattern compiles");
            let lines = text.lines().count();
            let decided = compare(source, &pattern, text.lines());
            assert!(
                decided * 100 >= lines * 95,
                "{source}: {decided} of {lines} decided"
            );
        }
    }
}
