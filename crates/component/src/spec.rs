//! How a component describes itself.
//!
//! One static [`Spec`] a component is the source of its reference page, its part of the JSON Schema, the command line's
//! positional settings and its constructor. Settings are one `Config` struct that derives `Deserialize` and
//! `JsonSchema` with `deny_unknown_fields`; their descriptions are its doc comments.

use std::sync::Arc;

use batch::{FieldPath, HostInfo, PathError};
use config::{ConfigError, Node, Positional, StageRole};
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::input::Input;
use crate::output::{Feeder, Sender, Writer};
use crate::processor::{Order, Processor};

/// A component's description and constructor.
#[derive(Debug)]
pub struct Spec {
    /// The name in configurations.
    pub name: &'static str,
    /// Other names for it in configurations.
    pub aliases: &'static [&'static str],
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// What a user should know beside the settings, in Markdown: limits, rules, failure tags, facts with their source.
    pub description: &'static str,
    /// Which settings a one-line pipeline may give by position.
    pub positional: Positional,
    /// Settings whose default is another one in a one-line pipeline, which ends with its inputs, each with that value.
    pub one_line: &'static [(&'static str, &'static str)],
    /// Examples; each runs as a test.
    pub examples: &'static [Example],
    /// The settings.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// The constructor.
    pub build: Build,
}

/// An example of a component, run as a test.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// What it shows.
    pub title: &'static str,
    /// The stage as a one-line pipeline spells it.
    pub stage: &'static str,
    /// For a processor: the events it gets, a line each. A line that starts with `{` is a JSON event, another one a line
    /// of text, of which only `message` is shown.
    pub input: &'static str,
    /// For a processor: the events that leave, as JSON lines.
    pub output: &'static str,
}

/// Makes a component of its settings.
pub type Constructor<T> = fn(&Node, &BuildContext) -> Result<T, ConfigError>;

/// What kind of component it is, with its constructor.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// An input.
    Input(Constructor<Box<dyn Input>>),
    /// A processor.
    Processor {
        /// Whether it needs the batches in sequence.
        order: Order,
        /// Whether it gets sealed rows too: filters do, and `redact`; other processors that write do not.
        sees_sealed: bool,
        /// The constructor.
        build: Constructor<Box<dyn Processor>>,
    },
    /// An output that writes in one place.
    Writer {
        /// Whether it needs the batches in sequence.
        ordered: bool,
        /// The constructor.
        build: Constructor<Arc<dyn Writer>>,
    },
    /// An output that sends requests. It takes the settings that all of them have: when a request is complete, and how many
    /// are in flight.
    Sender(Constructor<Arc<dyn Sender>>),
    /// An output that feeds another pipeline.
    Feeder(Constructor<Arc<Feeder>>),
    /// The input of a pipeline that others feed.
    Fed(Constructor<()>),
}

impl Spec {
    /// Its name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// What kind of component it is.
    pub fn kind(&self) -> StageRole {
        match self.build {
            Build::Input(_) | Build::Fed(_) => StageRole::Input,
            Build::Processor { .. } => StageRole::Processor,
            Build::Writer { .. } | Build::Sender(_) | Build::Feeder(_) => StageRole::Output,
        }
    }

    /// Whether the engine does its work, because it is one end of a link between two pipelines.
    pub fn is_link(&self) -> bool {
        matches!(self.build, Build::Feeder(_) | Build::Fed(_))
    }
}

/// What a constructor gets beside the component's own settings.
#[derive(Debug, Clone)]
pub struct BuildContext {
    /// Facts of this machine.
    pub host: Arc<HostInfo>,
    /// The `tag` setting: replaces the component's own tag for failures and misses.
    pub tag: Option<Arc<str>>,
    /// Whether the pipeline runs until its inputs end, as one-line pipelines do.
    pub finite: bool,
    /// What the run may change outside the process.
    pub effects: Effects,
}

/// What a run may change outside the process. A component whose constructor or `open` would go beyond that, or whose source
/// loses events once they are acknowledged, does without it or refuses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Effects {
    /// Everything that the configuration says: positions, queues, what outputs write, files that are deleted once they are read.
    #[default]
    All,
    /// Only what outputs write, as for `millpond bench --real-outputs`. Files are read once, from their beginning.
    Outputs,
    /// Nothing, as for `millpond bench`: what outputs render is thrown away. Files are read once, from their beginning.
    Nothing,
}

impl BuildContext {
    /// The tag to use: the user's, or else `default`.
    pub fn tag_or(&self, default: &str) -> Arc<str> {
        self.tag.clone().unwrap_or_else(|| default.into())
    }
}

/// A schema with the settings of another one added that it does not have itself.
pub fn beside(mut own: Schema, mut other: Schema) -> Schema {
    let properties = |schema: &mut Schema| schema.get_mut("properties").map(Value::take);
    let (settings, others) = (properties(&mut own), properties(&mut other));
    if let (settings, Some(Value::Object(others))) = (settings, others) {
        let mut settings = match settings {
            Some(Value::Object(settings)) => settings,
            _ => serde_json::Map::new(),
        };
        for (name, setting) in others {
            settings.entry(name).or_insert(setting);
        }
        own.insert("properties".to_owned(), settings.into());
    }
    own
}

/// The component's settings from its node; a node without a value gives the defaults.
///
/// # Errors
/// An unknown setting, a missing one, or a value of the wrong kind, with its place.
pub fn parse<T: serde::de::DeserializeOwned>(node: &Node) -> Result<T, ConfigError> {
    node.deserialize()
}

/// The field path in `text`, which stands in the setting `name` of `node`.
///
/// # Errors
/// A text that is no field name, with its place.
pub fn field(node: &Node, name: &str, text: &str) -> Result<FieldPath, ConfigError> {
    field_at(node.nearest(name), text)
}

/// The field path in `text`, which stands at `node`. Special characters in it need backticks, so that a list of names in one
/// text, a wildcard or a slip is not taken for the name of a field that no event has.
///
/// # Errors
/// A text that is no field name, with its place.
pub fn field_at(node: &Node, text: &str) -> Result<FieldPath, ConfigError> {
    FieldPath::parse_listed(text).map_err(|error| {
        let refused = node.error(format!("`{text}` is not a field name: {error}"));
        match error {
            PathError::Special('*') => refused.note(
                "wildcards are not supported; name the fields, or the object that holds them: remove kubernetes",
            ),
            PathError::Special(',' | ' ' | ';') if !text.contains('`') => refused.note(format!(
                "a name is one field; several are a list where a setting takes more than one: [a, b]; as one name it is written `{text}`"
            )),
            PathError::Special(_) if !text.contains('`') => {
                refused.note(format!("if a field is called so, write `{text}`"))
            }
            _ => refused,
        }
    })
}

/// The field paths in `texts`, which are the list in the setting `name` of `node`.
///
/// # Errors
/// There is none, with `empty` as the reason, or a text is no field name; with its place.
pub fn fields(
    node: &Node,
    name: &str,
    texts: &[String],
    empty: &str,
) -> Result<Vec<FieldPath>, ConfigError> {
    if texts.is_empty() {
        return Err(node.nearest(name).error(empty));
    }
    let path = |(index, text): (usize, &String)| field(node, &format!("{name}[{index}]"), text);
    texts.iter().enumerate().map(path).collect()
}
