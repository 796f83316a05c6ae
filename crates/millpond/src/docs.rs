//! `millpond docs`: the reference, from the components themselves.
//!
//! Every page is made of what the program works with: summaries and rules from the specs, settings from the structs that
//! read them, examples that run as tests. The pages under `docs/reference` are this command's output.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use component::{Build, Example, Spec};
use config::{Positional, Shape, StageRole, closest};
use grok::{Library, PatternSet};
use pipeline::settings::{
    DiskSettings, KafkaQueue, MemoryQueueSettings, ProcessSettings, RetrySettings,
};
use serde_json::{Value, json};

use crate::api::settings::ApiSettings;
use crate::profile::settings::ProfileSettings;
use crate::profile::tariff::RateSettings;
use crate::suite::settings::{DocumentedScenario, Tolerance};
use crate::{REGISTRY, console, schema};

const ROLES: [StageRole; 3] = [StageRole::Input, StageRole::Processor, StageRole::Output];

/// What the exit codes and the lines on standard error mean.
const EXIT_CODES: &str = include_str!("exit_codes.md");

/// A page: its name, its one-line summary and its text.
struct Page {
    name: String,
    summary: String,
    text: String,
}

/// Prints the pages, or one, or writes them into a directory.
pub fn docs(topic: Option<&str>, out: Option<&Path>) -> anyhow::Result<ExitCode> {
    let pages = pages();
    match (topic, out) {
        (None, Some(dir)) => write_pages(dir, &pages)?,
        (Some(_), Some(_)) => bail!("--out writes all pages; do not give a topic"),
        (None, None) => console::print(index(&pages, |page| page.name.clone()).as_bytes())?,
        (Some(topic), None) => {
            let named: Vec<&Page> = pages.iter().filter(|page| page.matches(topic)).collect();
            if named.is_empty() {
                let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
                let short = ROLES
                    .iter()
                    .flat_map(|role| REGISTRY.of(*role))
                    .map(|spec| spec.name);
                let hint = hint(topic, short.chain(names.iter().copied()));
                bail!(
                    "there is no page named `{topic}`{hint}\naccepted: {}",
                    names.join(", ")
                );
            }
            let texts: Vec<&str> = named.iter().map(|page| page.text.as_str()).collect();
            console::print(texts.join("\n").as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where to read on when there is no page of that name.
fn hint<'n>(topic: &str, names: impl Iterator<Item = &'n str>) -> String {
    let functions = || {
        expr::FUNCTION_GROUPS
            .iter()
            .flat_map(|group| group.functions)
    };
    let name = topic.trim_end_matches("()");
    if functions().any(|function| is_called(function.signature, name)) {
        return format!("; `{name}` is a function: millpond docs functions");
    }
    closest(topic, names).map_or(String::new(), |word| format!("; did you mean `{word}`?"))
}

/// Whether a signature, such as `text.contains(part)` or `math.abs(x)`, is that of the function `name`.
fn is_called(signature: &str, name: &str) -> bool {
    let (called, _) = signature.split_once('(').unwrap_or((signature, ""));
    called == name || called.rsplit('.').next() == Some(name)
}

impl Page {
    /// Whether `topic` names the page, with or without its kind: `file` names both the input and the output.
    fn matches(&self, topic: &str) -> bool {
        self.name == topic
            || self.name.rsplit('-').next() == Some(topic)
            || self
                .name
                .split_once('-')
                .is_some_and(|(_, name)| name == topic)
    }
}

fn pages() -> Vec<Page> {
    let general = general_pages()
        .into_iter()
        .map(|(name, summary, text)| Page {
            name: name.into(),
            summary: summary.into(),
            text,
        });
    let components = ROLES
        .into_iter()
        .flat_map(|role| REGISTRY.of(role))
        .map(component_page);
    general.chain(components).collect()
}

/// Name, summary and text of the pages that are not about one component.
fn general_pages() -> Vec<(&'static str, &'static str, String)> {
    let mut pages = configuration_pages();
    pages.extend(tool_pages());
    pages.extend(language_pages());
    pages
}

/// What a configuration says, and what becomes of events.
fn configuration_pages() -> Vec<(&'static str, &'static str, String)> {
    vec![
        (
            "pipeline",
            "notation, process and pipeline settings, logging and counters",
            pipeline_page(),
        ),
        (
            "notation",
            "every stage in one line and in YAML",
            include_str!("notation.md").to_owned(),
        ),
        (
            "recipes",
            "pipelines for everyday work, with what goes in and what comes out",
            include_str!("recipes.md").to_owned(),
        ),
        (
            "codecs",
            "how outputs write events: JSON, logfmt, lines for people, CSV, templates, text, MessagePack",
            include_str!("codecs.md").to_owned(),
        ),
        (
            "queue",
            "buffering events between inputs and outputs, in memory and on disk",
            queue_page(),
        ),
        (
            "shipping",
            "agents and aggregators, and what a repeated event looks like at each destination",
            include_str!("shipping.md").to_owned(),
        ),
        (
            "dead-letters",
            "events that outputs rejected or processors could not handle, and how to deliver them later",
            include_str!("dead_letters.md").to_owned(),
        ),
    ]
}

/// Commands, and what they measure.
fn tool_pages() -> Vec<(&'static str, &'static str, String)> {
    vec![
        (
            "api",
            "the HTTP API: health, metrics, statistics, also in the forms of Prometheus, OpenMetrics and Logstash",
            api_page(),
        ),
        (
            "top",
            "`millpond top`: what a running process does, what limits it, and what it costs",
            include_str!("top.md").to_owned(),
        ),
        (
            "tap",
            "`millpond tap`: live events of a running pipeline, and what an operator makes of them",
            include_str!("tap.md").to_owned(),
        ),
        (
            "queue-tools",
            "`millpond queue`: inspecting disk queues",
            include_str!("queue_tools.md").to_owned(),
        ),
        (
            "bench",
            "`millpond bench`: what a pipeline costs, and what limits it",
            include_str!("bench.md").to_owned(),
        ),
        (
            "bench-suite",
            "`millpond bench suite`: scenarios measured in turn, also other programs, against a baseline",
            suite_page(),
        ),
        (
            "test",
            "`millpond test`: events that go in, and what is to come of them",
            include_str!("test.md").to_owned(),
        ),
        (
            "profile",
            "`millpond profile`: where processor time goes, by function, and what it costs",
            profile_page(),
        ),
        (
            "profile-kinds",
            "the kinds of work that `millpond profile` recognises, what to look at, and the source of each rule",
            kinds_page(),
        ),
    ]
}

/// What expressions and patterns may say, and what a run says at its end.
fn language_pages() -> Vec<(&'static str, &'static str, String)> {
    vec![
        (
            "expressions",
            "the expression language of `if`, `where` and `set`",
            include_str!("expressions.md").to_owned(),
        ),
        (
            "functions",
            "functions in expressions, each with an example",
            functions_page(),
        ),
        (
            "grok-patterns",
            "the definitions that patterns of `grok` can use",
            grok_page(),
        ),
        (
            "install",
            "packages, systemd, Kubernetes, containers, manual pages, completions",
            include_str!("install.md").to_owned(),
        ),
        (
            "exit-codes",
            "exit codes and standard error",
            EXIT_CODES.to_owned(),
        ),
    ]
}

fn write_pages(dir: &Path, pages: &[Page]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let write = |name: &str, text: &str| {
        let path = dir.join(format!("{name}.md"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    for page in pages {
        write(&page.name, &page.text)?;
    }
    let index = index(pages, |page| format!("[{0}]({0}.md)", page.name));
    write(
        "README",
        &format!("# Reference\n\nGenerated by `millpond docs --out docs/reference`.\n\n{index}"),
    )
}

fn index(pages: &[Page], link: impl Fn(&Page) -> String) -> String {
    let mut text = String::from("| page | contents |\n| --- | --- |\n");
    for page in pages {
        let _ = writeln!(text, "| {} | {} |", link(page), cell(&page.summary));
    }
    text
}

/// What the page of every processor that writes says.
const EVENTS_THAT_FAIL: &str = "\
An event that this processor cannot handle keeps the values it had before, is tagged, and skips all later processors that write, except `redact`: it is \
published in its last good form. With `on_failure: continue` it goes through them, as with Logstash; `drop` and `dead_letter` take it out. \
A pipeline's `on_failure` holds for all of its processors (page `pipeline`, \"When a processor cannot handle an event\").
";

fn component_page(spec: &Spec) -> Page {
    let word = spec.kind().word();
    let mut text = format!(
        "# `{}` ({word})\n\n{}\n\n```\n{}\n```\n\n",
        spec.name,
        spec.summary,
        usage(spec)
    );
    if !spec.aliases.is_empty() {
        let names: Vec<String> = spec
            .aliases
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = write!(text, "Also called {}.\n\n", names.join(", "));
    }
    let own = schema_of(spec);
    let common = schema::common(spec);
    let common_names: Vec<&String> = common["properties"]
        .as_object()
        .map(|map| map.keys().collect())
        .unwrap_or_default();
    let _ = write!(
        text,
        "## Settings\n\n{}",
        settings_table(&own, |name| !common_names
            .iter()
            .any(|common| *common == name))
    );
    let _ = write!(
        text,
        "\nSettings that every {word}{} accepts:\n\n{}",
        if matches!(spec.build, Build::Sender(_)) {
            " that sends requests"
        } else {
            ""
        },
        settings_table(&common, |_| true)
    );
    if let Build::Processor {
        sees_sealed: false, ..
    } = spec.build
    {
        let _ = write!(text, "\n## Events that fail\n\n{EVENTS_THAT_FAIL}");
    }
    if !spec.description.trim().is_empty() {
        let _ = write!(text, "\n## Rules\n\n{}\n", spec.description.trim());
    }
    if !spec.examples.is_empty() {
        text.push_str("\n## Examples\n");
        spec.examples
            .iter()
            .for_each(|example| write_example(&mut text, example));
    }
    Page {
        name: format!("{word}-{}", spec.name),
        summary: spec.summary.to_owned(),
        text,
    }
}

fn schema_of(spec: &Spec) -> Value {
    schema::component(spec)
}

/// The form that the component has in a one-line pipeline, with its required settings. What may be left out is in brackets.
fn usage(spec: &Spec) -> String {
    let Positional { fields, shape, .. } = spec.positional;
    let whole = match shape {
        Shape::Expression => "EXPRESSION",
        Shape::Assignments => "NAME = EXPRESSION, …",
        Shape::Renames => "NAME -> NEW_NAME, …",
        Shape::Names => "NAME, …",
        Shape::Values | Shape::Rest | Shape::List => "",
    };
    if !whole.is_empty() {
        return format!("{} {whole}", spec.name);
    }
    let schema = schema_of(spec);
    let mut words = vec![spec.name.to_owned()];
    for (index, field) in fields.iter().enumerate() {
        let is_rest = matches!(shape, Shape::Rest | Shape::List) && index + 1 == fields.len();
        let more = if is_rest { "…" } else { "" };
        let word = format!("{}{more}", field.to_uppercase());
        words.push(match required(&schema).any(|name| name == *field) {
            true => word,
            false => format!("[{word}]"),
        });
    }
    let named = required(&schema).filter(|name| !fields.contains(name));
    words.extend(named.map(|name| format!("{name}={}", name.to_uppercase())));
    words.push("[setting=value …]".to_owned());
    words.join(" ")
}

/// The names of the settings that have to be given.
fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema["required"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str)
}

fn write_example(text: &mut String, example: &Example) {
    let _ = write!(
        text,
        "\n{}:\n\n```\n{}\n```\n",
        example.title, example.stage
    );
    if !example.input.is_empty() {
        let _ = write!(text, "\nturns\n\n```\n{}\n```\n", example.input);
        if example.output.is_empty() {
            text.push_str("\ninto nothing.\n");
        } else {
            let _ = write!(text, "\ninto\n\n```\n{}\n```\n", example.output);
        }
    }
}

fn pipeline_page() -> String {
    let mut text = String::from(include_str!("pipeline.md"));
    write_section(
        &mut text,
        "Settings of the process",
        &schema::settings::<ProcessSettings>(),
    );
    write_section(
        &mut text,
        "Settings of `retry`",
        &schema::settings::<RetrySettings>(),
    );
    text
}

fn queue_page() -> String {
    let mut text = String::from(include_str!("queue.md"));
    let mut memory = schema::settings::<MemoryQueueSettings>();
    // What is below `overflow.disk` has a table of its own.
    let overflow = &mut memory["properties"]["overflow"];
    overflow["anyOf"] = json!([{ "enum": ["none", "disk"] }, { "type": "object" }]);
    write_section(&mut text, "Settings of `queue: memory`", &memory);
    write_section(
        &mut text,
        "Settings of `queue: disk` and `overflow: disk`",
        &schema::settings::<DiskSettings>(),
    );
    write_section(
        &mut text,
        "Settings of `queue: kafka`",
        &schema::settings::<KafkaQueue>(),
    );
    text
}

fn suite_page() -> String {
    let mut text = String::from(include_str!("bench_suite.md"));
    let tolerance = schema::settings::<Tolerance>();
    write_section(&mut text, "Settings of `tolerance`", &tolerance);
    let scenario = schema::settings::<DocumentedScenario>();
    write_section(&mut text, "Settings of each scenario", &scenario);
    text
}

fn api_page() -> String {
    let mut text = String::from(include_str!("api.md"));
    let settings = schema::settings::<ApiSettings>();
    write_section(&mut text, "Settings of `api`", &settings);
    text
}

fn profile_page() -> String {
    let mut text = String::from(include_str!("profile.md"));
    let settings = schema::settings::<ProfileSettings>();
    write_section(&mut text, "Settings of `profile`", &settings);
    let rates = schema::settings::<RateSettings>();
    write_section(&mut text, "Settings of each host in `rates.hosts`", &rates);
    text
}

/// A section with a table of settings.
fn write_section(text: &mut String, title: &str, schema: &Value) {
    let _ = write!(text, "\n## {title}\n\n{}", settings_table(schema, |_| true));
}

/// The rules by which profiles say what to look at.
fn kinds_page() -> String {
    let mut text = String::from(include_str!("profile_kinds.md"));
    for rule in profiler::advice::rules() {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\nSource: <{}>\n",
            rule.title, rule.advice, rule.source_url
        );
        for (what, names) in [("Functions", rule.patterns), ("Binaries", rule.binaries)] {
            if !names.is_empty() {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let _ = write!(text, "\n{what}: {}\n", names.join(", "));
            }
        }
    }
    text
}

fn functions_page() -> String {
    let mut text = String::from(include_str!("functions.md"));
    let _ = writeln!(text, "\n```json\n{}\n```", expr::EXAMPLE_DOCUMENT);
    for group in expr::FUNCTION_GROUPS {
        let _ = writeln!(text, "\n## {}\n", group.title);
        text.push_str("| function | result | example |\n| --- | --- | --- |\n");
        for function in group.functions {
            let _ = writeln!(
                text,
                "| `{}` | {} | `{}` |",
                cell(function.signature),
                cell(function.summary),
                cell(function.example)
            );
        }
    }
    text
}

/// The definitions of both sets.
fn grok_page() -> String {
    let mut text = String::from(include_str!("grok_patterns.md"));
    let ecs = Library::new(PatternSet::EcsV1);
    let legacy = Library::new(PatternSet::Legacy);
    let table = |text: &mut String, library: &Library, is_shown: &dyn Fn(&str) -> bool| {
        text.push_str("| name | definition |\n| --- | --- |\n");
        for name in library.names().filter(|name| is_shown(name)) {
            let definition = library.get(name).unwrap_or_default().replace('|', "\\|");
            let _ = writeln!(text, "| `{name}` | `` {definition} `` |");
        }
    };
    text.push_str("\n## `legacy`, the default\n\n");
    table(&mut text, &legacy, &|_| true);
    text.push_str("\n## `ecs_v1`, where it differs\n\n");
    table(&mut text, &ecs, &|name| ecs.get(name) != legacy.get(name));
    text
}

/// A table of the settings that a schema describes.
fn settings_table(schema: &Value, shown: impl Fn(&str) -> bool) -> String {
    let mut rows = String::new();
    write_settings(&mut rows, "", schema, &shown);
    if rows.is_empty() {
        return "It has no settings of its own.\n".to_owned();
    }
    format!("| setting | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}")
}

/// A row for each setting of a map that is shown; those within a setting that is a map itself follow it as `outer.inner`.
fn write_settings(text: &mut String, above: &str, schema: &Value, shown: &dyn Fn(&str) -> bool) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, property) in properties.iter().filter(|(name, _)| shown(name)) {
        let description = property["description"].as_str().unwrap_or_default();
        let (meaning, said) = divide_default(description);
        let is_required = required(schema).any(|known| known == name);
        let default = if is_required {
            "required".to_owned()
        } else {
            default_words(property, said)
        };
        let _ = writeln!(
            text,
            "| `{above}{name}` | {} | {} | {} |",
            cell(&type_words(property)),
            cell(&default),
            cell(&meaning),
        );
        let choices = maps_of(property);
        for inner in &choices {
            let mut inner = (*inner).clone();
            if choices.len() > 1 {
                // Of several maps one is chosen: nothing in them is always there.
                inner["required"] = Value::Null;
            }
            write_settings(text, &format!("{above}{name}."), &inner, &|_| true);
        }
    }
}

/// The schemas of the maps with settings of their own that a setting takes.
fn maps_of(schema: &Value) -> Vec<&Value> {
    if schema["properties"].is_object() {
        return vec![schema];
    }
    let choices = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|list| schema[list].as_array())
        .flatten();
    choices.flat_map(maps_of).collect()
}

/// A description without the sentence `Default: …`, and what that sentence says.
fn divide_default(description: &str) -> (String, Option<String>) {
    let text = one_line(description);
    let Some((before, rest)) = text.split_once("Default: ") else {
        return (text, None);
    };
    let (said, after) = rest.split_once(". ").unwrap_or((rest, ""));
    let said = said.strip_suffix('.').unwrap_or(said).to_owned();
    (format!("{before}{after}"), Some(said))
}

/// What a setting is when it is not given: as the schema has it from the code, else as its description says, which is for
/// a default that depends on something.
fn default_words(property: &Value, said: Option<String>) -> String {
    match &property["default"] {
        Value::Null => {}
        Value::Array(items) if items.is_empty() => {}
        Value::Object(members) if members.is_empty() => {}
        // The rows of its settings say what each of them is.
        Value::Object(_) if !maps_of(property).is_empty() => return "-".to_owned(),
        Value::Array(items) => {
            return items
                .iter()
                .map(default_word)
                .collect::<Vec<_>>()
                .join(", ");
        }
        value => return default_word(value),
    }
    said.unwrap_or_else(|| "-".to_owned())
}

fn default_word(value: &Value) -> String {
    match value.as_str() {
        Some(word) if !word.trim().is_empty() => format!("`{word}`"),
        _ => format!("`{value}`"),
    }
}

/// What kind of value a setting takes, in words.
fn type_words(schema: &Value) -> String {
    if let Some(format) = schema["format"]
        .as_str()
        .filter(|format| ["size", "duration", "count"].contains(format))
    {
        return format.to_owned();
    }
    for list in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[list].as_array() {
            let words: Vec<String> = choices
                .iter()
                .filter(|choice| choice["type"] != "null")
                .map(type_words)
                .collect();
            return words.join(" or ");
        }
    }
    if schema["$ref"] == "#/$defs/processor" {
        return "processors".to_owned();
    }
    if let Some(word) = schema.get("const") {
        return format!("`{}`", word.as_str().unwrap_or_default());
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        return words.join(" or ");
    }
    match &schema["type"] {
        Value::String(word) => type_word(word, schema),
        Value::Array(words) => {
            let words = words
                .iter()
                .filter_map(Value::as_str)
                .filter(|word| *word != "null");
            words
                .map(|word| type_word(word, schema))
                .collect::<Vec<_>>()
                .join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn type_word(word: &str, schema: &Value) -> String {
    match word {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => format!("list of {}", type_words(&schema["items"])),
        "object" => "map".to_owned(),
        other => other.to_owned(),
    }
}

/// A text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

/// A text in one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
