//! What users write, and the events it is applied to. The first line is the expression, pattern or format, each other one an
//! event.

use std::sync::OnceLock;

use batch::{Bitmap, Value};
use component::{Build, BuildContext, Effects, Processor};
use config::{Catalogue, Node, Positional, Shape, Source, Span, StageRole};
use config::{expand_short_forms, parse_oneline, parse_yaml, to_yaml};
use expr::{Absent, Expr, Template};
use grok::{Library, Options, Outcome, Pattern, PatternSet};

use crate::rows::{batch_of, checked, host};

/// The first line and the others, where all are text and not many.
fn lines(bytes: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.split_once('\n').unwrap_or((text, "")))
}

/// An expression: it gives the same value for an event whatever others are in the batch.
pub(crate) fn expression(bytes: &[u8]) {
    let Some((text, events)) = lines(bytes) else {
        return;
    };
    let condition = Expr::parse_condition(text);
    let Ok(expression) = Expr::parse(text) else {
        assert!(condition.is_err(), "a condition is an expression");
        return;
    };
    let batch = batch_of(events);
    let rows = batch.alive().clone();
    let all = expression.evaluate(&batch, &rows);
    let shown = |value: Value<'_>| {
        let mut text = Vec::new();
        value.write_text(&mut text);
        String::from_utf8(text).expect("values are UTF-8")
    };
    for row in 0..batch.len() {
        let only = Bitmap::from_fn(batch.len(), |other| other == row);
        let alone = expression.evaluate(&batch, &only);
        let values = (all.column.value(row), alone.column.value(row));
        assert_eq!(shown(values.0), shown(values.1), "{text}");
    }
    if let Ok(condition) = condition {
        let filtered = condition.filter(&batch, &rows);
        let is_true = |row| matches!(all.column.value(row), Value::Bool(true));
        let expected = Bitmap::from_fn(batch.len(), is_true);
        assert_eq!(filtered.holds, expected, "{text}");
    }
}

/// A text with fields in it.
pub(crate) fn template(bytes: &[u8]) {
    let Some((text, events)) = lines(bytes) else {
        return;
    };
    let Ok(template) = Template::parse(text) else {
        return;
    };
    let batch = batch_of(events);
    let mut bound = template.bind(&batch, Absent::AsWritten);
    for row in 0..batch.len() {
        let mut out = Vec::new();
        bound.write(row, &mut out);
        std::str::from_utf8(&out).expect("texts are UTF-8");
    }
}

/// A grok pattern: the specialised matcher finds what PCRE2 finds, where both know.
pub(crate) fn grok(bytes: &[u8]) {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let Some((source, texts)) = lines(bytes) else {
        return;
    };
    let library = LIBRARY.get_or_init(|| Library::new(PatternSet::Legacy));
    let options = Options {
        match_limit: 10_000,
        ..Options::default()
    };
    let Ok(pattern) = Pattern::compile(library, source, &options) else {
        return;
    };
    let mut scratch = pattern.new_scratch();
    for text in texts.lines().take(20) {
        pattern.matches(text.as_bytes(), &mut scratch);
        let Some(found) = pattern.matches_specialised(text.as_bytes(), &mut scratch) else {
            continue;
        };
        let spans = scratch.spans().to_vec();
        match pattern.matches_with_pcre2(text.as_bytes(), &mut scratch) {
            Outcome::LimitReached => {}
            Outcome::NoMatch => assert_eq!(found, Outcome::NoMatch, "{source}: {text}"),
            Outcome::Match => {
                assert_eq!(found, Outcome::Match, "{source}: {text}");
                assert_eq!(spans, scratch.spans(), "{source}: {text}");
            }
        }
    }
}

pub(crate) fn date(bytes: &[u8]) {
    let Some((format, events)) = lines(bytes) else {
        return;
    };
    let formats = format.split('\u{1}').map(scalar).collect();
    let settings = vec![
        ("field", scalar("message")),
        ("formats", Node::list(&nowhere(), Span::default(), formats)),
        ("timezone", scalar("Europe/Berlin")),
    ];
    process("date", settings, events);
}

pub(crate) fn dissect(bytes: &[u8]) {
    if let Some((pattern, events)) = lines(bytes) {
        process("dissect", vec![("pattern", scalar(pattern))], events);
    }
}

/// Pairs, with settings `name=value` between tabs in the first line.
pub(crate) fn kv(bytes: &[u8]) {
    let Some((settings, events)) = lines(bytes) else {
        return;
    };
    let known = [
        "field_split",
        "field_split_pattern",
        "value_split",
        "value_split_pattern",
        "trim_key",
        "trim_value",
        "remove_char_key",
        "transform_key",
        "prefix",
        "whitespace",
        "recursive",
        "include_brackets",
        "allow_duplicate_values",
        "allow_empty_values",
    ];
    let mut given: Vec<(&str, Node)> = Vec::new();
    for (name, value) in settings.split('\t').filter_map(|text| text.split_once('=')) {
        if let Some(name) = known.iter().find(|known| **known == name)
            && given.iter().all(|(other, _)| other != name)
        {
            let value = Node::scalar(&nowhere(), Span::default(), value, false);
            given.push((name, value));
        }
    }
    process("kv", given, events);
}

/// Runs a processor over events, if it takes the settings.
fn process(name: &str, settings: Vec<(&str, Node)>, events: &str) {
    let Some(mut processor) = built(name, settings) else {
        return;
    };
    let mut batch = batch_of(events);
    checked(&batch);
    let rows = batch.alive().clone();
    let failures = processor.process(&mut batch, &rows);
    batch.mark_failed(&failures, true);
    checked(&batch);
}

fn built(name: &str, settings: Vec<(&str, Node)>) -> Option<Box<dyn Processor>> {
    let spec = processors::SPECS.iter().find(|spec| spec.name == name);
    let Build::Processor { build, .. } = spec.expect("a processor").build else {
        panic!("{name} is no processor")
    };
    let entry = |(name, value)| (scalar(name), value);
    let entries = settings.into_iter().map(entry).collect();
    let node = Node::map(&nowhere(), Span::default(), entries).rooted();
    let context = BuildContext {
        host: host(),
        tag: None,
        finite: true,
        effects: Effects::All,
    };
    build(&node, &context)
        .inspect_err(|error| drop(error.to_string()))
        .ok()
}

fn nowhere() -> std::sync::Arc<Source> {
    static NOWHERE: OnceLock<std::sync::Arc<Source>> = OnceLock::new();
    NOWHERE.get_or_init(|| Source::new("fuzz", "")).clone()
}

fn scalar(text: &str) -> Node {
    Node::scalar(&nowhere(), Span::default(), text, true)
}

/// Components with every shape of settings.
struct AnyComponent;

impl Catalogue for AnyComponent {
    fn positional(&self, _: StageRole, name: &str) -> Option<Positional> {
        match name {
            "where" => Some(Positional::whole(&["condition"], Shape::Expression)),
            "set" => Some(Positional::whole(&["fields"], Shape::Assignments)),
            "rename" => Some(Positional::whole(&["fields"], Shape::Renames)),
            "remove" => Some(Positional::whole(&["fields"], Shape::Names)),
            "a" | "b" | "c" => Some(Positional::with_rest(&["Values"])),
            _ => None,
        }
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        vec!["a", "b", "c", "where", "set", "rename", "remove"]
    }
}

/// A pipeline on one line: as YAML it is the same.
pub(crate) fn oneline(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parse_oneline(&Source::command_line(text), &AnyComponent) {
        Ok(tree) => reads_back(&tree),
        Err(error) => drop(error.to_string()),
    }
}

/// A configuration in YAML: written again, it is the same.
pub(crate) fn yaml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parse_yaml(&Source::new("t.yaml", text)) {
        Ok(tree) => {
            reads_back(&tree);
            if let Err(error) = expand_short_forms(tree, &AnyComponent) {
                drop(error.to_string());
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

fn reads_back(tree: &Node) {
    let written = to_yaml(tree);
    let read = parse_yaml(&Source::new("t.yaml", written.clone()));
    let read = read.unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert!(read == *tree, "{written}");
}
