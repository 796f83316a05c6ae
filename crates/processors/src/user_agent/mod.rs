//! `user_agent`: the browser, system and device that a user agent string names.
//!
//! The rules of uap-core are part of the program, or in a file that is named ([`rules`]), and prepared when the first
//! string is looked up ([`matcher`]); each distinct string is looked up once and its object remembered
//! ([`crate::object_lookup`]). Instances share the rules and what these made of the strings that are new to them; each
//! has a cache of its own, which is asked without a lock.

mod matcher;
mod rules;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

use batch::{ColumnBuilder, Span, json};
use component::{Build, BuildContext, Example, Order, Processor, Spec};
use config::{ConfigError, Node, Positional};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::object_cache::ObjectCache;
use crate::object_lookup::{ObjectLookup, Source, default_cache_entries};
use matcher::Matcher;
use rules::{Rules, RulesError};

/// The `user_agent` processor.
pub const SPEC: Spec = Spec {
    name: "user_agent",
    aliases: &[],
    summary: "Parses a user agent string into browser, operating system and device.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "target"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A browser",
            stage: "user_agent agent",
            input: r#"{"agent":"Mozilla/5.0 (Windows NT 6.1; WOW64; rv:27.0) Gecko/20100101 Firefox/27.0"}"#,
            output: "{\"agent\":\"Mozilla/5.0 (Windows NT 6.1; WOW64; rv:27.0) Gecko/20100101 Firefox/27.0\",\
                     \"user_agent\":{\"name\":\"Firefox\",\"version\":\"27.0\",\"device\":{\"name\":\"Other\"},\
                     \"os\":{\"name\":\"Windows\",\"version\":\"7\",\"full\":\"Windows 7\"}}}",
        },
        Example {
            title: "A robot, as the legacy grok patterns capture it",
            stage: "user_agent agent target=ua",
            input: r#"{"agent":"\"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\""}"#,
            output: "{\"agent\":\"\\\"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)\\\"\",\
                     \"ua\":{\"name\":\"Googlebot\",\"version\":\"2.1\",\"device\":{\"name\":\"Spider\"},\"os\":{\"name\":\"Other\"}}}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

const DESCRIPTION: &str = "\
Writes `name`, `version`, `device.name`, `os.name`, `os.version` and `os.full` below `target`, by the rules of the
[uap-core](https://github.com/ua-parser/uap-core) project. Fields for which the rules give no value are left out;
an unknown name is `Other`. The field itself stays as it is and is not copied to `original`.

The rules of October 2026 are part of the program (Apache License 2.0). For newer ones, download `regexes.yaml` from the project and
name the file: `regexes: /etc/millpond/regexes.yaml`. It is read once, when the pipeline starts; a rule in it that cannot be used ends the start.
Rules of your own can be added to the file: the first rule that matches wins.

A string in double quotes, as the legacy grok patterns capture it, is looked up without them. A field that is
absent, null or empty changes nothing. It never fails.
";

/// The settings of `user_agent`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field that holds the user agent string.
    field: String,
    /// The object to write into.
    #[serde(default = "default_target")]
    target: String,
    /// The path of a file with other rules, in the form of uap-core's `regexes.yaml`. Default: the rules that are part of the
    /// program.
    #[serde(default)]
    regexes: Option<String>,
    /// How many distinct strings each worker remembers.
    #[serde(default = "default_cache_entries")]
    cache_entries: usize,
}

fn default_target() -> String {
    "user_agent".to_owned()
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = component::parse(node)?;
    let parser = OnceLock::new();
    if let Some(path) = &config.regexes {
        let rules = Rules::from_file(path.as_ref()).and_then(Parser::checked);
        let refuse = |reason: RulesError| {
            node.nearest("regexes")
                .error(format!("cannot use the rules in `{path}`: {reason}"))
        };
        // A new cell: nothing can have been set before.
        drop(parser.set(rules.map_err(refuse)?));
    }
    let settings = (&*config.field, &*config.target, config.cache_entries);
    let agents = Agents {
        parser: Arc::new(parser),
        made: Arc::new(Made::new(config.cache_entries)),
    };
    Ok(Box::new(ObjectLookup::new(
        node, context, settings, agents,
    )?))
}

/// The user agents that the rules describe.
#[derive(Clone)]
struct Agents {
    parser: Arc<OnceLock<Parser>>,
    made: Arc<Made>,
}

impl Source for Agents {
    type Key = Box<[u8]>;

    const VALUE: &'static str = "string";
    const TAG: &'static str = "_user_agent_failure";
    const TAGS_UNKNOWN: bool = false;

    #[inline]
    fn object(
        &mut self,
        text: &[u8],
        cache: &mut ObjectCache<Box<[u8]>>,
        objects: &mut ColumnBuilder,
    ) -> Option<Span> {
        let text = match text {
            [b'"', inner @ .., b'"'] => inner,
            _ => text,
        };
        if text.is_empty() {
            return None;
        }
        let mut hasher = cache.state.build_hasher();
        hasher.write(text);
        let hash = hasher.finish();
        let write = |out: &mut Vec<u8>| {
            let parser = self.parser.get_or_init(|| Parser::new(Rules::embedded()));
            self.made
                .write(text, out, |out| parser.write_object(text, out));
            true
        };
        cache.object(hash, |key| **key == *text, || text.into(), objects, write)
    }
}

/// The objects that the instances made last. Making one takes longer than the whole rest of a pipeline for an event, so
/// each is made once, not once a worker.
#[derive(Debug)]
struct Made {
    objects: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    capacity: usize,
}

impl Made {
    fn new(capacity: usize) -> Self {
        Self {
            objects: Mutex::default(),
            capacity,
        }
    }

    /// Appends the object of a string, made by `make` if no instance has made it lately.
    fn write(&self, text: &[u8], out: &mut Vec<u8>, make: impl FnOnce(&mut Vec<u8>)) {
        let objects = || self.objects.lock();
        if let Some(object) = objects().get(text) {
            return out.extend_from_slice(object);
        }
        let start = out.len();
        make(out);
        let mut objects = objects();
        if objects.len() >= self.capacity {
            objects.clear();
        }
        objects.insert(text.into(), out[start..].into());
    }
}

/// The rules of all three kinds, ready to be used.
#[derive(Debug)]
struct Parser {
    browsers: Matcher,
    systems: Matcher,
    devices: Matcher,
}

impl Parser {
    fn new(rules: Rules) -> Self {
        Self {
            browsers: Matcher::new(rules.browsers),
            systems: Matcher::new(rules.systems),
            devices: Matcher::new(rules.devices),
        }
    }

    /// A parser by rules that somebody else wrote.
    ///
    /// # Errors
    /// The first rule that cannot be used.
    fn checked(rules: Rules) -> Result<Self, RulesError> {
        for list in [&rules.browsers, &rules.systems, &rules.devices] {
            if let Some(rule) = Matcher::broken(list).next() {
                return Err(RulesError::Regex(rule.regex.clone()));
            }
        }
        Ok(Self::new(rules))
    }

    /// Appends the object that describes a user agent.
    fn write_object(&self, text: &[u8], out: &mut Vec<u8>) {
        out.push(b'{');
        Described::by(&self.browsers, text).write_name_and_version(out);
        out.extend_from_slice(b",\"device\":{");
        Described::by(&self.devices, text).write_name(out);
        out.extend_from_slice(b"},\"os\":{");
        let system = Described::by(&self.systems, text);
        system.write_name_and_version(out);
        if system.is_known {
            out.extend_from_slice(b",\"full\":");
            let full = [&*system.name, &*system.version].join(&b' ');
            write_text(full.trim_ascii(), out);
        }
        out.extend_from_slice(b"}}");
    }
}

/// What one kind of rules says about a user agent.
struct Described {
    name: Vec<u8>,
    version: Vec<u8>,
    is_known: bool,
}

impl Described {
    fn by(matcher: &Matcher, text: &[u8]) -> Self {
        let Some([name, version @ ..]) = matcher.parts(text).filter(|[name, ..]| !name.is_empty())
        else {
            return Self {
                name: b"Other".to_vec(),
                version: Vec::new(),
                is_known: false,
            };
        };
        let given = version.iter().take_while(|part| !part.is_empty());
        let version = given.map(Vec::as_slice).collect::<Vec<_>>().join(&b'.');
        Self {
            name,
            version,
            is_known: true,
        }
    }

    fn write_name(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"name\":");
        write_text(&self.name, out);
    }

    fn write_name_and_version(&self, out: &mut Vec<u8>) {
        self.write_name(out);
        if !self.version.is_empty() {
            out.extend_from_slice(b",\"version\":");
            write_text(&self.version, out);
        }
    }
}

/// Appends a text as JSON. A group of bytes may have cut a character: what is left of it is replaced.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    json::write_string(out, String::from_utf8_lossy(text).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
    use proptest::prelude::*;

    #[test]
    fn events_without_a_string_stay_as_they_are() {
        for event in [
            r#"{"a":1}"#,
            r#"{"ua":null}"#,
            r#"{"ua":""}"#,
            r#"{"ua":"\"\""}"#,
        ] {
            check(&SPEC, &[("user_agent ua", event, event)]);
        }
        let object = r#"{"name":"Other","device":{"name":"Other"},"os":{"name":"Other"}}"#;
        for value in [r#""-""#, "7", "true", r#""\"""#, r#"["x"]"#] {
            let (event, result) = (
                format!(r#"{{"a":{value}}}"#),
                format!(r#"{{"a":{value},"b":{{"c":{object}}}}}"#),
            );
            check(&SPEC, &[("user_agent a target=b.c", &event, &result)]);
        }
    }

    #[test]
    fn the_object_joins_what_is_there() {
        check(
            &SPEC,
            &[
                (
                    "user_agent user_agent.original",
                    r#"{"user_agent":{"original":"curl/7.1.2","os":{"kernel":"x"}}}"#,
                    r#"{"user_agent":{"original":"curl/7.1.2","os":{"kernel":"x","name":"Other"},"name":"curl","version":"7.1.2","device":{"name":"Other"}}}"#,
                ),
                (
                    "user_agent a target=b",
                    r#"{"a":"curl/7.1.2","b":1}"#,
                    r#"{"a":"curl/7.1.2","b":1,"tags":["_user_agent_failure"],"error":{"message":"cannot write b: there is a value above it that is not an object"}}"#,
                ),
            ],
        );
    }

    #[test]
    fn broken_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("user_agent", "field"),
                ("user_agent a cache_entries=0", "room for one"),
                ("user_agent a b c", ""),
            ],
        );
    }

    #[test]
    fn a_string_is_looked_up_once() {
        let mut processor = build(&SPEC, "user_agent a").unwrap();
        for expected in [
            [("cache_hits", 1), ("cache_misses", 2)],
            [("cache_hits", 3), ("cache_misses", 0)],
        ] {
            let mut batch = batch_of([
                r#"{"a":"curl/1"}"#,
                r#"{"a":"curl/2"}"#,
                r#"{"a":"\"curl/1\""}"#,
            ]);
            process(processor.as_mut(), &mut batch);
            assert_eq!(processor.take_counters(), expected);
            assert!(lines_of(&batch)[2].contains(r#""name":"curl","version":"1""#));
        }
    }

    #[test]
    fn browsers_of_today_are_known() {
        for (agent, expected) in [
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/109.0.0.0 Safari/537.36 SLBrowser/9.0.6 SLBChan/103",
                r#""name":"Smart Lenovo Browser","version":"9.0.6""#,
            ),
            (
                "Mozilla/5.0 (X11; Linux x86_64; rv:135.0) Gecko/20100101 Camoufox Camoufox 135.0",
                r#""name":"Camoufox","version":"135.0""#,
            ),
            (
                "App/1 CFNetwork/1568.100.1 Darwin/24.1.0",
                r#""full":"iOS 18.1""#,
            ),
        ] {
            let event = serde_json::json!({ "a": agent }).to_string();
            let lines = crate::testing::run(&SPEC, "user_agent a", &event);
            assert!(lines[0].contains(expected), "{}", lines[0]);
        }
    }

    #[test]
    fn rules_come_from_a_file() {
        let file = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            file
        };
        let stage = |file: &tempfile::NamedTempFile| {
            format!("user_agent a regexes={:?}", file.path().to_str().unwrap())
        };
        let own = file(
            "user_agent_parsers:\n  # Ours.\n  - regex: \"(Mill)'s/(\\\\d+)\"\n    family_replacement: $1pond\n\
             os_parsers: []\ndevice_parsers:\n  - regex: 'mill'\n    regex_flag: i\n    device_replacement: Wheel\n    brand_replacement: ~\n",
        );
        let event = r#"{"a":"Mill's/7"}"#;
        let object =
            r#"{"name":"Millpond","version":"7","device":{"name":"Wheel"},"os":{"name":"Other"}}"#;
        let expected = format!(r#"{{"a":"Mill's/7","user_agent":{object}}}"#);
        check(&SPEC, &[(&stage(&own), event, &expected)]);
        for (text, reason) in [
            ("os_parsers: []", "it has no list `user_agent_parsers`"),
            (
                "user_agent_parsers: [{regex: a}, {family_replacement: b}]",
                "rule 1 of `user_agent_parsers` has no `regex`",
            ),
            (
                "user_agent_parsers: [{regex: 'a(?!b)'}]",
                "the expression `a(?!b)` is invalid",
            ),
            ("a: [", "cannot use the rules in"),
        ] {
            check_errors(&SPEC, &[(&stage(&file(text)), reason)]);
        }
        check_errors(
            &SPEC,
            &[("user_agent a regexes=/nonexistent.yaml", "No such file")],
        );
    }

    /// Strings of many kinds, and parts of them in new order.
    const AGENTS: [&str; 16] = [
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Mobile/15E148 Safari/604.1",
        "Mozilla/5.0 (Linux; Android 14; SM-S918B Build/UP1A) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.6099.144 Mobile Safari/537.36",
        "Mozilla/5.0 (Linux; U; Android 4.2.2; de-de; PEDI_PLUS_W Build/JDQ39) AppleWebKit/534.30 (KHTML, like Gecko) Version/4.0 Safari/534.30",
        "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0; SLCC2; .NET CLR 2.0.50727)",
        "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/118.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Safari/537.36 Edg/119.0.2151.97",
        "Opera/9.80 (J2ME/MIDP; Opera Mini/9.80 (S60; SymbOS; Opera Mobi/23.348; U; en) Presto/2.5.25 Version/10.54",
        "curl/7.64.1",
        "Wget/1.21",
        "python-requests/2.31.0",
        "Go-http-client/2.0",
        "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
        "Tiny Tiny RSS/1.11 (http://tt-rss.org/)",
        "Dalvik/2.1.0 (Linux; U; Android 9; Redmi 6A MIUI/V11.0.8)",
    ];

    /// The crate that carries the rule file is the reference: it compiles every rule and tries them its own way.
    fn reference() -> ua_parser::Extractor<'static> {
        let file = config::Source::new("regexes.yaml", include_str!("regexes.yaml"));
        let rules: ua_parser::Regexes<'static> =
            config::parse_yaml(&file).unwrap().deserialize().unwrap();
        ua_parser::Extractor::try_from(rules).unwrap_or_else(|error| panic!("{error}"))
    }

    fn expected(reference: &ua_parser::Extractor<'_>, text: &str) -> String {
        let text = text.to_owned();
        let version = |parts: &[Option<&str>]| {
            parts
                .iter()
                .map_while(|part| *part)
                .collect::<Vec<_>>()
                .join(".")
        };
        let object = |name: &str, version: String| match version.as_str() {
            "" => serde_json::json!({ "name": name }),
            version => serde_json::json!({ "name": name, "version": version }),
        };
        let mut event = match reference.ua.extract(&text) {
            Some(ua) => object(
                &ua.family,
                version(&[ua.major, ua.minor, ua.patch, ua.patch_minor]),
            ),
            None => object("Other", String::new()),
        };
        let device = reference
            .dev
            .extract(&text)
            .map_or("Other".to_owned(), |device| device.device.into_owned());
        event["device"] = serde_json::json!({ "name": device });
        event["os"] = match reference.os.extract(&text) {
            Some(os) => {
                let parts =
                    [&os.major, &os.minor, &os.patch, &os.patch_minor].map(Option::as_deref);
                let mut object = object(&os.os, version(&parts));
                object["full"] = format!("{} {}", os.os, version(&parts)).trim().into();
                object
            }
            None => object("Other", String::new()),
        };
        event.to_string()
    }

    #[test]
    fn all_parts_agree_with_the_reference() {
        let (parser, reference) = (Parser::new(Rules::embedded()), reference());
        let pieces: Vec<&str> = AGENTS
            .iter()
            .flat_map(|agent| agent.split_inclusive([' ', ';']))
            .collect();
        let piece = proptest::sample::select(pieces);
        let mixed = proptest::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat());
        let check = |text: &str| {
            let mut out = Vec::new();
            parser.write_object(text.as_bytes(), &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                expected(&reference, text),
                "{text}"
            );
        };
        AGENTS.iter().for_each(|agent| check(agent));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
        runner
            .run(&mixed, |text| {
                check(&text);
                Ok(())
            })
            .unwrap();
    }
}
