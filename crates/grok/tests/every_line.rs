//! Every definition of both libraries on log lines: none is given up, none takes many steps.
//!
//! `lines.txt` holds lines with something odd in them, `templates.txt` the formats of servers, firewalls, databases and
//! programs, of which 1,000 lines are made with varied values; further ones are made of words and of repetitions.
//! The bound counts steps, so it holds on every machine. `MILLPOND_SAMPLE=FILE` adds the first 1,000 lines of a file
//! of one's own.

use grok::{Library, Options, Outcome, Pattern, PatternSet};

/// Steps that a thorough search of a line may take: so many for every byte of it.
const STEPS_PER_BYTE: u64 = 100;

const LINES: &str = include_str!("lines.txt");

const TEMPLATES: &str = include_str!("templates.txt");

/// How many lines the templates make.
const FORMATTED_LINES: usize = 1_000;

/// What stands in the place of each name in a template.
const VALUES: &[(&str, &[&str])] = &[
    (
        "ip",
        &[
            "192.0.2.7",
            "10.1.255.254",
            "2001:db8::17",
            "::ffff:198.51.100.2",
            "fe80::1%eth0",
            "127.0.0.1",
        ],
    ),
    (
        "host",
        &[
            "web-1",
            "db.example.org",
            "ip-10-77-20-248.eu-west-1.compute.internal",
            "xn--bcher-kva.example",
            "h",
        ],
    ),
    (
        "user",
        &[
            "-",
            "alice",
            "bob@example.org",
            "CORP\\carol",
            "müller",
            "a.b_c-d",
        ],
    ),
    (
        "clf",
        &[
            "17/May/2026:10:05:03 +0000",
            "01/Jan/2026:23:59:60 -0930",
            "31/Dec/2026:00:00:00 +0545",
        ],
    ),
    (
        "ctime",
        &[
            "Sun May 17 10:05:03.123456 2026",
            "Sun May 17 10:05:03 2026",
            "Fri Jan  2 00:00:00 2026",
        ],
    ),
    ("slash", &["2026/05/17 10:05:03", "2026/12/31 23:59:59"]),
    (
        "iso",
        &[
            "2026-05-17T10:05:03",
            "2026-05-17 10:05:03",
            "2026-05-17T10:05:03.123",
            "2026-05-17 10:05:03,123",
        ],
    ),
    (
        "sys",
        &[
            "May 17 10:05:03",
            "Jan  2 00:00:00",
            "Dec 31 2026 23:59:59",
            "2026-05-17T10:05:03.123456+02:00",
        ],
    ),
    (
        "ipt",
        &[
            "May 17 10:05:03 192.0.2.7",
            "May 17 10:05:03 srx-1 192.0.2.7",
        ],
    ),
    ("hap", &["17/May/2026:10:05:03.123"]),
    ("redis", &["17 May 2026 10:05:03.123", "17 May 10:05:03"]),
    ("javam", &["May 17, 2026", "Dec 3, 2026"]),
    ("epoch", &["1779012303", "0", "4102444800"]),
    ("verb", &["GET", "POST", "OPTIONS", "PROPFIND", "get"]),
    (
        "path",
        &[
            "/",
            "/index.html?a=b&c=%20",
            "/a/b/../c;v=1/%E2%82%AC",
            "/wp-login.php",
            "/${jndi:ldap://192.0.2.7/a}",
            "*",
        ],
    ),
    (
        "url",
        &[
            "http://example.com/a",
            "https://alice:secret@example.org:8443/a/b?c=d#e",
            "-",
            "ftp://192.0.2.7/x",
            "/relative",
            "http://[2001:db8::17]:80/",
        ],
    ),
    (
        "agent",
        &[
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "curl/8.5.0",
            "-",
            "Mozilla/5.0 (compatible; bot/1.0; +http://example.org/bot)",
            "() { :; }; /bin/true",
        ],
    ),
    ("status", &["200", "304", "404", "499", "503", "-"]),
    (
        "n",
        &["0", "7", "42", "65535", "1234567", "18446744073709551616"],
    ),
    ("port", &["22", "443", "50022", "65535"]),
    (
        "mac",
        &["00:16:3e:00:00:01", "00-16-3E-00-00-01", "0016.3e00.0001"],
    ),
    (
        "hex",
        &[
            "deadbeef",
            "0f3A",
            "3d813cbb47fb32ba91df831e1593ac29",
            "a1b2c3d4e5f60718293a4b5c6d7e8f9001122334455667788990aabbccddeeff",
        ],
    ),
    (
        "uuid",
        &[
            "3d813cbb-47fb-32ba-91df-831e1593ac29",
            "00000000-0000-0000-0000-000000000000",
        ],
    ),
    (
        "word",
        &[
            "app",
            "orders",
            "INFO",
            "kube-proxy",
            "größe",
            "x_1",
            "Main$Inner",
        ],
    ),
    (
        "file",
        &[
            "/usr/lib/x-1.2.so",
            "/srv/app/main.py",
            "C:\\Program Files\\x\\y.log",
            "./a b.c",
        ],
    ),
    (
        "sentence",
        &[
            "started in 1.5 s",
            "connection to 192.0.2.7:5432 refused (attempt 3/5)",
            "",
            "it's \"quoted\", key=value; [a] {b} <c>",
            "Übermut tut selten gut 日本 😀",
            "a-b-c d_e_f g.h.i 10% -5 +7 1e9",
        ],
    ),
    (
        "token",
        &[
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
            "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a@",
            "::::::::::::::::::::::::::::::::",
            "1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1",
            "../../../../../../../../../../../../etc/passwd",
            "\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"",
            "%41%41%41%41%41%41%41%41%41%41%41%41%41%41%4",
            "-----------------------------------------",
            "a=b&a=b&a=b&a=b&a=b&a=b&a=b&a=b&a=b&a=b",
        ],
    ),
];

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

/// A line of this format.
fn filled(template: &str, dice: &mut Dice) -> String {
    let mut line = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        line.push_str(&rest[..open]);
        rest = &rest[open..];
        let name = rest[1..].split_once('}').map(|(name, _)| name);
        let known = VALUES.iter().find(|(known, _)| Some(*known) == name);
        match known {
            Some((name, values)) => {
                line.push_str(dice.pick(values));
                rest = &rest[name.len() + 2..];
            }
            None => {
                line.push('{');
                rest = &rest[1..];
            }
        }
    }
    line + rest
}

/// 1,000 lines of the formats that programs write.
fn formatted_lines(dice: &mut Dice) -> Vec<String> {
    let templates = TEMPLATES.lines().cycle().take(FORMATTED_LINES);
    templates.map(|template| filled(template, dice)).collect()
}

fn lines() -> Vec<String> {
    let mut all: Vec<String> = LINES.lines().map(str::to_owned).collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    all.extend(formatted_lines(&mut dice));
    for _ in 0..300 {
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
    assert!(lines.len() > FORMATTED_LINES + 500);
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

#[test]
fn formatted_lines_differ_and_many_definitions_match_them() {
    let lines = formatted_lines(&mut Dice(1));
    let distinct: std::collections::BTreeSet<&String> = lines.iter().collect();
    assert!(distinct.len() > 950, "{} differ", distinct.len());
    for (set, name, least) in [
        (PatternSet::Legacy, "COMBINEDAPACHELOG", 10),
        (PatternSet::Legacy, "SYSLOGBASE", 100),
        (PatternSet::Legacy, "NAGIOSLOGLINE", 5),
        (PatternSet::EcsV1, "HAPROXYHTTP", 5),
        (PatternSet::EcsV1, "CISCOTIMESTAMP", 50),
        (PatternSet::EcsV1, "SQUID3", 5),
    ] {
        let library = Library::new(set);
        let pattern = Pattern::compile(&library, &format!("%{{{name}}}"), &Options::default())
            .expect("library patterns compile");
        let mut scratch = pattern.new_scratch();
        let mut matches =
            |line: &String| pattern.matches(line.as_bytes(), &mut scratch) == Outcome::Match;
        let found = lines.iter().filter(|line| matches(line)).count();
        assert!(found >= least, "{name} matches {found}");
    }
}
