//! The one-line form into the tree that its YAML spelling would give.
//!
//! ```text
//! file access.log* | grok "%{COMBINEDAPACHELOG}" | where status >= 500 || !has(ua) | stdout codec=json
//! ```
//! Stages stand between `|`: the input first, the output last, processors between. A stage is a component's name and
//! its settings, split by whitespace (newlines too):
//! - `name=value` gives a setting. The name is of `a-z`, `0-9`, `_` and begins with a letter or `_`. `name.key=value`
//!   gives an entry of a setting that is a map. The key is all that stands between the first dot and the `=`, its own
//!   dots and capitals kept: `fields.host.name=h` is `fields: {"host.name": h}`. Where the component says so
//!   ([`Positional::nested`]), a key is a map again: `auth.basic.user=u`. Other maps in such maps need YAML.
//!   `name=[a, b]` gives a list, and so does giving the name again.
//! - Everything else is given by position, as the component's [`Positional`] says. A text with `=` whose beginning is no
//!   such name (`http://x?y=z`), or that has `==`, counts as this. It is text, `null` and `[a, b]` too, unless the
//!   component says that its values have types.
//! - Values quote as in a shell: `'...'` holds anything, `"..."` takes `\"` and `\\` as escapes and every other
//!   backslash as it is, adjacent pieces join. What is quoted is text; a `name=` alone gives the empty text, and
//!   `name=null` nothing, as in YAML.
//! - A component that takes one expression gets the rest of its stage as it stands, trimmed. Quotes in it, with the
//!   expression language's own escapes, only keep a `|` from ending the stage.
//! - `||` never ends a stage; outside of an expression it must be quoted when it stands alone.

mod lexer;
mod stage;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::source::{Source, Span};
use lexer::Cursor;
use stage::Stage;

/// Which part of a pipeline a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StageRole {
    /// The first stage.
    Input,
    /// A stage in the middle.
    Processor,
    /// The last stage.
    Output,
}

impl StageRole {
    /// The word for it, with its article.
    pub fn with_article(self) -> &'static str {
        match self {
            Self::Input => "an input",
            Self::Processor => "a processor",
            Self::Output => "an output",
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Processor => "processor",
            Self::Output => "output",
        }
    }
}

/// Which settings of a component may be given by position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Positional {
    /// The settings' names in order.
    pub fields: &'static [&'static str],
    /// The last field takes all that is left, as a list.
    pub rest_as_list: bool,
    /// The component takes one expression, the rest of its stage as it stands, as its first field.
    pub expression: bool,
    /// Values by position read as those after a name do: `null` is nothing, `[a, b]` a list. Without it they are text,
    /// for patterns such as `[a-z]`.
    pub typed: bool,
    /// Maps in maps, such as `auth.basic`, whose entries are given as `auth.basic.user=u`.
    pub nested: &'static [&'static str],
}

impl Positional {
    /// Nothing by position.
    pub const NONE: Self = Self::fields(&[]);

    /// One value for each field.
    pub const fn fields(fields: &'static [&'static str]) -> Self {
        Self {
            fields,
            rest_as_list: false,
            expression: false,
            typed: false,
            nested: &[],
        }
    }

    /// One value for each field but the last, which takes all that is left as a list.
    pub const fn with_rest(fields: &'static [&'static str]) -> Self {
        Self {
            fields,
            rest_as_list: true,
            expression: false,
            typed: false,
            nested: &[],
        }
    }

    /// The same, where these are maps in maps.
    pub const fn nested(self, nested: &'static [&'static str]) -> Self {
        Self { nested, ..self }
    }

    /// The same, where values by position read as those after a name do.
    pub const fn typed(self) -> Self {
        Self {
            typed: true,
            ..self
        }
    }

    /// One expression, as the field (a slice of one).
    pub const fn expression(field: &'static [&'static str]) -> Self {
        Self {
            fields: field,
            rest_as_list: false,
            expression: true,
            typed: false,
            nested: &[],
        }
    }
}

/// The components that exist, as far as the one-line form must know them.
pub trait Catalogue {
    /// How a component takes settings by position; none when there is no such component in this role.
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional>;
    /// The names of all components of a role, for error messages.
    fn names(&self, role: StageRole) -> Vec<&str>;
}

/// The name that the pipeline of a one-liner has in the tree.
const PIPELINE: &str = "main";

/// Parses a one-line pipeline into `{pipelines: {main: {input: {..}, processors: [{..}], outputs: [{..}]}}}`.
pub fn parse_oneline(source: &Arc<Source>, catalogue: &dyn Catalogue) -> Result<Node, ConfigError> {
    let mut cursor = Cursor::new(source);
    let mut stages = Vec::new();
    loop {
        let is_first = stages.is_empty();
        stages.push(Stage::parse(&mut cursor, is_first, catalogue)?);
        if !cursor.next_stage() {
            break;
        }
    }
    if let [only] = stages.as_slice() {
        return Err(too_short(source, only, catalogue));
    }
    let last = stages.len() - 1;
    let mut nodes = Vec::with_capacity(stages.len());
    for (index, stage) in stages.into_iter().enumerate() {
        let role = match index {
            0 => StageRole::Input,
            index if index == last => StageRole::Output,
            _ => StageRole::Processor,
        };
        nodes.push(stage.into_node(role, catalogue)?);
    }
    Ok(tree(source, nodes))
}

fn too_short(source: &Arc<Source>, only: &Stage, catalogue: &dyn Catalogue) -> ConfigError {
    let unknown = only.role_error(StageRole::Input, catalogue);
    unknown.unwrap_or_else(|| {
        let end = source.text.trim_end().len();
        ConfigError::in_source(
            source,
            Span::empty(end),
            "a pipeline needs an input and an output",
        )
        .note("stages are split by `|`, as in: file access.log | stdout")
    })
}

/// Puts the stages, at least two, where YAML has them.
fn tree(source: &Arc<Source>, mut stages: Vec<Node>) -> Node {
    let whole = Span::new(0, source.text.len());
    let span_of = |nodes: &[Node]| nodes.iter().map(|node| node.span).reduce(Span::join);
    let key = |name: &str, span| Node::scalar(source, span, name, false);
    let outputs = stages.split_off(stages.len() - 1);
    let processors = stages.split_off(1);
    let mut entries = Vec::new();
    if let Some(input) = stages.pop() {
        entries.push((key("input", input.span), input));
    }
    for (name, nodes) in [("processors", processors), ("outputs", outputs)] {
        if let Some(span) = span_of(&nodes) {
            entries.push((key(name, span), Node::list(source, span, nodes)));
        }
    }
    let pipeline = Node::map(source, whole, entries);
    let pipelines = Node::map(source, whole, vec![(key(PIPELINE, whole), pipeline)]);
    let root = vec![(key("pipelines", whole), pipelines)];
    Node::new(source, whole, NodeKind::Map(root)).rooted()
}
