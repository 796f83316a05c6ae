//! Every definition of both libraries on log lines: none is given up, none takes many steps.
//!
//! The bound counts steps, so it holds on every machine. `MILLPOND_SAMPLE=FILE` adds the first 1,000 lines of a file
//! of one's own.

use grok::{Library, Options, Outcome, Pattern, PatternSet};

/// Steps that a thorough search of a line may take: so many for every byte of it.
const STEPS_PER_BYTE: u64 = 100;

const LINES: &str = include_str!("lines.txt");

/// What generated lines consist of.
const WORDS: &[&str] = &[
    "the",
    "session",
    "opened",
    "for",
    "root",
    "connection",
    "timeout",
    "Caused",
    "by:",
    "GET",
    "/index.html?a=b&c=%20",
    "HTTP/1.1",
    "http://example.com/a",
    "ftp",
    "id=42",
    "key=value",
    "2026-05-17T10:05:03Z",
    "17/May/2026:10:05:03 +0000",
    "May 17 10:05:03",
    "[main]",
    "INFO",
    "ERROR:",
    "--",
    ":",
    "::",
    "\"",
    "'",
    "(",
    ")",
    "{",
    "}",
    ",",
    ";",
    "=",
    "/",
    "\\",
    r"C:\Windows\x",
    "/usr/lib/x-1.2.so",
    "alice@mail.example.org",
    "ip-10-77-20-248.eu-west-1.compute.internal",
    "192.0.2.7",
    "192.0.2.7:8080",
    "2001:db8::17",
    "fe80::1%eth0",
    "00:16:3e:00:00:01",
    "urn:isbn:0451450523",
    "3d813cbb-47fb-32ba-91df-831e1593ac29",
    "1.5e3",
    "0xDEADbeef",
    "404",
    "-",
    "T",
    "F",
    "org.example.App.main(App.java:42)",
    "Übermut",
    "größe",
    "日本",
    "😀",
    "état",
];

const SEPARATORS: &[&str] = &[" ", " ", " ", "\t", ", ", "; ", ""];

/// What patterns with repetitions are sensitive to, again and again.
const UNITS: &[&str] = &[
    "a", "1", "/", " ", "a.", "\"", "a:", "a-", "1.", "::", "x=y ", "a/", r"\", "..", "a b ", "- ",
    "\t", "-\t", "a,", "ä", "äa", "a ä ", "\"a", "%20", "&a=b", "T\t", "1\t", "a1.b2-",
];

/// A small generator of pseudo-random numbers (xorshift), so that a failing line comes again.
struct Dice(u64);

impl Dice {
    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn lines() -> Vec<String> {
    let mut all: Vec<String> = LINES.lines().map(str::to_owned).collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..500 {
        let separator = dice.pick(SEPARATORS);
        let words: Vec<&str> = (0..1 + dice.below(40)).map(|_| dice.pick(WORDS)).collect();
        all.push(words.join(separator));
    }
    for unit in UNITS {
        for bytes in [20, 64, 300] {
            let run: String = unit.repeat(bytes / unit.len() + 1);
            all.extend([
                format!("{run}!"),
                format!("{run}é"),
                format!("x {run} http://example.com/a?b=c"),
                format!("2026-05-17T10:05:03Z {run}"),
                format!("May 17 10:05:03 web-1 app[3]: {run}"),
                format!("192.0.2.7 - - [17/May/2026:10:05:03 +0000] \"{run}"),
            ]);
        }
    }
    if let Ok(path) = std::env::var("MILLPOND_SAMPLE") {
        let text = std::fs::read_to_string(path).expect("the sample can be read");
        all.extend(text.lines().take(1_000).map(str::to_owned));
    }
    all
}

/// Panics when the pattern takes too many steps for the line, or finds something else than PCRE2.
fn check(name: &str, pattern: &Pattern, line: &str) {
    let (mut own, mut other) = (pattern.new_scratch(), pattern.new_scratch());
    let text = line.as_bytes();
    let Some((outcome, steps)) = pattern.matches_thoroughly(text, &mut own) else {
        panic!("{name} gives up on {line:?}");
    };
    let most = STEPS_PER_BYTE * (text.len() as u64 + 10);
    assert!(steps <= most, "{name} takes {steps} steps on {line:?}");
    let found = pattern.matches(text, &mut other);
    assert_eq!(found, outcome, "{name} on {line:?}");
    if outcome == Outcome::Match {
        assert_eq!(own.spans(), other.spans(), "{name} on {line:?}");
    }
}

/// PCRE2 reaches its limit on a few of these lines; on the others it has to agree.
fn check_with_pcre2(name: &str, pattern: &Pattern, line: &str) {
    let (mut own, mut other) = (pattern.new_scratch(), pattern.new_scratch());
    let text = line.as_bytes();
    let expected = pattern.matches_with_pcre2(text, &mut other);
    if expected == Outcome::LimitReached {
        return;
    }
    assert_eq!(
        pattern.matches(text, &mut own),
        expected,
        "{name} on {line:?}"
    );
    if expected == Outcome::Match {
        assert_eq!(own.spans(), other.spans(), "{name} on {line:?}");
    }
}

fn on_every_line(set: PatternSet) {
    let lines = lines();
    assert!(lines.len() > 1_000);
    let library = Library::new(set);
    for name in library.names() {
        // Most steps are counted, and the engines compared, with what an embedding pattern adds.
        for source in [
            format!("%{{{name}}}"),
            format!("^%{{{name}}} %{{URI:uri}}$"),
        ] {
            let pattern = Pattern::compile(&library, &source, &Options::default())
                .expect("library patterns compile");
            assert!(pattern.is_specialised(), "{source}");
            for line in &lines {
                check(&source, &pattern, line);
            }
            for line in lines.iter().step_by(7) {
                check_with_pcre2(&source, &pattern, line);
            }
        }
    }
}

#[test]
fn no_legacy_definition_takes_many_steps() {
    on_every_line(PatternSet::Legacy);
}

#[test]
fn no_ecs_definition_takes_many_steps() {
    on_every_line(PatternSet::EcsV1);
}
