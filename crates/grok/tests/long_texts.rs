//! Long texts of one character, on which searches like to become quadratic.

use std::time::{Duration, Instant};

use grok::{Library, Options, Pattern, PatternSet};

/// What the texts repeat.
const UNITS: [&str; 7] = ["a", "1", "/", " ", "a.", "\"", "a:"];

fn compile(library: &Library, source: &str) -> Pattern {
    Pattern::compile(library, source, &Options::default()).expect("the pattern compiles")
}

fn text(unit: &str, bytes: usize) -> Vec<u8> {
    unit.bytes().cycle().take(bytes).collect()
}

#[test]
fn a_mebibyte_ends_in_bounded_time() {
    let library = Library::new(PatternSet::Legacy);
    for source in [
        "%{PATH:p}",
        "%{PATH:p}!",
        "%{URI:u}",
        "%{QS:q}!",
        "(?:[a-z]+:)?(?<z>[0-9])",
        r"(?:[a-z]+:)*(?<z>=)",
        r"\w+(?<z>=)",
        r"(?>[a-z]+)(?<z>=)",
        r"(?=[a-z]*)(?<z>=|a=)",
        r"(?<x>\w+?)=\k<x>",
        r"(?<x>\w)\k<x>*!",
        r"\R|\w*\w*(?<z>!)",
    ] {
        let pattern = compile(&library, source);
        let mut scratch = pattern.new_scratch();
        for unit in UNITS {
            let text = text(unit, 1 << 20);
            let begun = Instant::now();
            let outcome = pattern.matches(&text, &mut scratch);
            let took = begun.elapsed();
            assert!(
                took < Duration::from_secs(2),
                "{source} on {unit:?}: {outcome:?} in {took:?}"
            );
        }
    }
}

/// A search that looks at every byte again from every start would take some 3 s for one text.
#[test]
fn every_definition_ends_on_long_texts() {
    let texts = UNITS.map(|unit| text(unit, 256 << 10));
    let begun = Instant::now();
    for set in [PatternSet::Legacy, PatternSet::EcsV1] {
        let library = Library::new(set);
        for name in library.names() {
            let pattern = compile(&library, &format!("%{{{name}}}"));
            let mut scratch = pattern.new_scratch();
            for (text, unit) in texts.iter().zip(UNITS) {
                let start = Instant::now();
                let outcome = pattern.matches(text, &mut scratch);
                let took = start.elapsed();
                assert!(
                    took < Duration::from_secs(1),
                    "{set:?} {name} on {unit:?}: {outcome:?} in {took:?}"
                );
            }
        }
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}
