//! The settings of `grok`, and the processor that they describe.

use std::collections::BTreeMap;

use batch::FieldPath;
use component::{BuildContext, Processor};
use config::{ConfigError, Node};
use grok::{GrokError, Library, Options, Pattern, PatternSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::general::Row;
use super::{Compiled, Field, Grok, Source};

/// The settings of `grok`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The patterns to try on `field`, in this order.
    #[serde(default)]
    pattern: Vec<String>,
    /// The field that holds the text. Default: `message`.
    field: Option<String>,
    /// Several fields, each with the patterns to try on it, in order; instead of `pattern` and `field`.
    #[serde(default, rename = "match")]
    fields: BTreeMap<String, Vec<String>>,
    /// Which definitions `%{NAME}` may refer to.
    #[serde(default)]
    pattern_set: Set,
    /// Further definitions, by name. They replace those of the same name.
    #[serde(default)]
    definitions: BTreeMap<String, String>,
    /// Files of further definitions: a name, white space and an expression on each line.
    #[serde(default, deserialize_with = "config::paths")]
    patterns_files: Vec<String>,
    /// Whether the first match ends the search.
    #[serde(default = "yes")]
    break_on_match: bool,
    /// Fields whose value is replaced by a capture, rather than joined with it in a list.
    #[serde(default)]
    overwrite: Vec<String>,
    /// Whether `%{NAME}` without a field name captures nothing. If false, it captures into a field called `NAME`.
    #[serde(default = "yes")]
    named_captures_only: bool,
    /// Whether empty captures are kept, as empty strings or null.
    #[serde(default)]
    keep_empty_captures: bool,
    /// The object to write all captures into. Default: the event itself.
    target: Option<String>,
    /// The maximum number of steps of a search, in addition to some per byte of the text.
    #[schemars(default = "match_limit_default")]
    match_limit: Option<u32>,
}

fn match_limit_default() -> u32 {
    Options::default().match_limit
}

/// The sets of definitions that are part of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Set {
    /// Flat names: `clientip`, `verb`.
    #[default]
    Legacy,
    /// The names of the Elastic Common Schema: `source.address`, `http.request.method`.
    EcsV1,
}

fn yes() -> bool {
    true
}

/// The constructor of `grok`.
pub(super) fn build(
    node: &Node,
    context: &BuildContext,
) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = component::parse(node)?;
    let mut builder = Builder {
        node,
        library: library(node, &config)?,
        options: Options {
            named_captures_only: config.named_captures_only,
            match_limit: config.match_limit.unwrap_or_else(match_limit_default),
        },
        target: crate::names::target(node, config.target.as_deref())?,
        overwrite: paths(node, "overwrite", &config.overwrite)?,
        fields: Vec::new(),
    };
    let sources = builder.sources(&config)?;
    Ok(Box::new(Grok {
        sources,
        fields: builder.fields,
        break_on_match: config.break_on_match,
        keep_empty: config.keep_empty_captures,
        tag: context.tag_or("_grokparsefailure"),
        timeout_tag: "_groktimeout".into(),
        no_match: "grok: no pattern matches".into(),
        timeout: "grok: the search was stopped at match_limit".into(),
        row: Row::default(),
    }))
}

fn paths(node: &Node, setting: &str, texts: &[String]) -> Result<Vec<FieldPath>, ConfigError> {
    let path = |(index, text): (usize, &String)| {
        crate::names::field(node, &format!("{setting}[{index}]"), text)
    };
    texts.iter().enumerate().map(path).collect()
}

fn library(node: &Node, config: &Config) -> Result<Library, ConfigError> {
    let mut library = Library::new(match config.pattern_set {
        Set::Legacy => PatternSet::Legacy,
        Set::EcsV1 => PatternSet::EcsV1,
    });
    for (index, path) in config.patterns_files.iter().enumerate() {
        let refuse = |reason: String| {
            node.nearest(&format!("patterns_files[{index}]"))
                .error(format!("cannot use the pattern file `{path}`: {reason}"))
        };
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        library
            .add_lines(&text)
            .map_err(|error| refuse(error.to_string()))?;
    }
    for (name, definition) in &config.definitions {
        let refuse = |error: GrokError| {
            node.nearest(&format!("definitions.{name}"))
                .error(error.to_string())
        };
        library.add(name, definition).map_err(refuse)?;
    }
    Ok(library)
}

/// Compiles patterns and gives their fields numbers.
struct Builder<'n> {
    node: &'n Node,
    library: Library,
    options: Options,
    target: Option<FieldPath>,
    overwrite: Vec<FieldPath>,
    fields: Vec<Field>,
}

impl Builder<'_> {
    fn sources(&mut self, config: &Config) -> Result<Vec<Source>, ConfigError> {
        let node = self.node;
        match (config.pattern.is_empty(), config.fields.is_empty()) {
            (true, true) => Err(node
                .error("`grok` needs a pattern")
                .accepted(["pattern", "match"])),
            (false, false) => Err(node
                .nearest("match")
                .error("give either `pattern` or `match`, not both")),
            (false, true) => {
                let field = config.field.as_deref().unwrap_or("message");
                Ok(vec![self.source(
                    node.nearest("field"),
                    field,
                    node.nearest("pattern"),
                )?])
            }
            (true, false) if config.field.is_some() => Err(node
                .nearest("field")
                .error("`field` goes with `pattern`; `match` names its fields itself")),
            (true, false) => {
                // The node keeps the order of the fields.
                let fields = node
                    .get("match")
                    .and_then(Node::as_map)
                    .unwrap_or_default()
                    .iter();
                fields
                    .map(|(name, patterns)| {
                        self.source(name, name.as_str().unwrap_or_default(), patterns)
                    })
                    .collect()
            }
        }
    }

    /// The patterns of one field. `at` is where its name stands.
    fn source(&mut self, at: &Node, field: &str, patterns: &Node) -> Result<Source, ConfigError> {
        let field = crate::names::path(at, field)?;
        if patterns.items().is_empty() {
            return Err(patterns.error(format!("the field {field} has no pattern")));
        }
        let patterns = patterns
            .items()
            .iter()
            .enumerate()
            .map(|(index, pattern)| self.compile(pattern, index))
            .collect::<Result<_, _>>()?;
        Ok(Source { field, patterns })
    }

    fn compile(&mut self, at: &Node, index: usize) -> Result<Compiled, ConfigError> {
        let text = at.as_str().unwrap_or_default();
        self.check_pattern(at, text, index)?;
        let pattern = Pattern::compile(&self.library, text, &self.options)
            .map_err(|error| self.refused(at, &error))?;
        let captures: Vec<_> = pattern
            .captures()
            .iter()
            .map(|capture| (self.field(&capture.path), capture.kind))
            .collect();
        let is_own =
            |index: usize| captures.iter().filter(|(field, _)| *field == index).count() == 1;
        Ok(Compiled {
            scratch: pattern.new_scratch(),
            is_plain: captures.iter().all(|(field, _)| is_own(*field)),
            captures,
            pattern,
        })
    }

    /// Refuses what matches as a regular expression and is not meant as one: nothing, the name of a definition, and behind another
    /// pattern a bare name.
    fn check_pattern(&self, at: &Node, text: &str, index: usize) -> Result<(), ConfigError> {
        if text.is_empty() {
            return Err(at.error("this pattern is empty and matches every text"));
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '-');
        let is_definition = self.library.get(text).is_some();
        let is_field = index > 0 && text.contains(char::is_alphanumeric);
        if !text.chars().all(is_name) || !(is_definition || is_field) {
            return Ok(());
        }
        let error = at.error(format!(
            "`{text}` is not a pattern: it captures nothing and matches only itself"
        ));
        Err(match is_definition {
            true => error.note(format!("a definition is referred to as %{{{text}}}")),
            false => error.note(format!(
                "to match another field write field={text}; to keep the events with this text, `where message.contains(\"{text}\")`"
            )),
        })
    }

    /// The number of a captured field.
    fn field(&mut self, keys: &[String]) -> usize {
        let path = crate::names::below(self.target.as_ref(), keys.iter().map(String::as_str));
        self.fields
            .iter()
            .position(|field| field.path == path)
            .unwrap_or_else(|| {
                let overwrites = self.overwrite.contains(&path);
                self.fields.push(Field { path, overwrites });
                self.fields.len() - 1
            })
    }

    /// The error with its place: in the pattern, or in a definition of the configuration.
    fn refused(&self, pattern: &Node, error: &GrokError) -> ConfigError {
        let mut at = pattern;
        let mut offset = None;
        let mut within = String::new();
        if let Some(place) = error.place() {
            offset = Some(place.offset);
            if let Some(name) = &place.definition {
                match self.node.get("definitions").and_then(|all| all.get(name)) {
                    Some(definition) => at = definition,
                    None => {
                        offset = None;
                        within = format!(" (in the definition {name}, byte {})", place.offset);
                    }
                }
            }
        }
        let refused = at.error(format!("{}{within}", message(error)));
        let refused = match offset {
            Some(offset) => refused.pointing_at(offset),
            None => refused,
        };
        match error {
            GrokError::UnknownPattern { name, closest, .. } => {
                let refused = match closest.first() {
                    _ if name.starts_with("NGINX") => refused
                        .suggest("COMBINEDAPACHELOG")
                        .note("nginx writes access logs in Apache's combined format by default"),
                    Some(closest) => refused.suggest(closest),
                    None => refused,
                };
                refused.note("`millpond docs grok-patterns` lists all definitions")
            }
            _ => refused,
        }
    }
}

/// What is wrong, without its place.
fn message(error: &GrokError) -> String {
    match error {
        GrokError::Syntax { message, .. } => message.clone(),
        GrokError::UnknownPattern { name, .. } => format!("there is no definition `{name}`"),
        GrokError::Recursion { cycle, .. } => format!(
            "definitions refer to each other in a circle: {}",
            cycle.join(" -> ")
        ),
        GrokError::Definition { .. } | GrokError::Engine { .. } => error.to_string(),
    }
}
