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
//!   component says that its values have types. Where it takes a list of paths or addresses, commas separate them as blanks
//!   do, outside of quotes, brackets and braces: `file a.log, b.log {c,d}.log`.
//! - Values quote as in a shell: `'...'` holds anything, `"..."` takes `\"` and `\\` as escapes and every other
//!   backslash as it is, adjacent pieces join. What is quoted is text; a `name=` alone gives the empty text, and
//!   `name=null` nothing, as in YAML.
//! - A component that takes an expression gets the rest of its stage as it stands, trimmed. Quotes in it, with the
//!   expression language's own escapes, only keep a `|` from ending the stage. Likewise with assignments
//!   (`set a = b + 1, c = "x"`), new names (`rename a -> b, c -> d`) and names (`remove a, b c`), which commas separate, names
//!   blanks as well. None of these takes `name=value` settings: those are for YAML.
//! - `||` never ends a stage; outside of an expression it must be quoted when it stands alone.
//!
//! A pipeline whose first stage is no input reads standard input, and one whose last stage is no output writes to standard
//! output.

mod lexer;
mod short;
mod slips;
mod stage;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::source::{Source, Span};
use lexer::Cursor;
use stage::Stage;

pub use short::expand_short_forms;

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

/// What a component takes in a stage without the names of its settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Positional {
    /// The settings' names in order.
    pub fields: &'static [&'static str],
    /// How values are written.
    pub shape: Shape,
    /// Maps in maps, such as `auth.basic`, whose entries are given as `auth.basic.user=u`.
    pub nested: &'static [&'static str],
}

/// How a component's values are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// One for each field.
    #[default]
    Values,
    /// One for each field but the last, which takes all that is left as a list.
    Rest,
    /// The same, where commas separate values as blanks do, outside of brackets, braces and quotes.
    List,
    /// An expression: the rest of the stage as it stands.
    Expression,
    /// `name = expression, …`: a map from names to expressions.
    Assignments,
    /// `name -> new name, …`: a map from names to names.
    Renames,
    /// Names, split by commas and blanks: a list.
    Names,
}

impl Positional {
    /// Nothing by position.
    pub const NONE: Self = Self::fields(&[]);

    /// One value for each field.
    pub const fn fields(fields: &'static [&'static str]) -> Self {
        Self {
            fields,
            shape: Shape::Values,
            nested: &[],
        }
    }

    /// One value for each field but the last, which takes all that is left as a list.
    pub const fn with_rest(fields: &'static [&'static str]) -> Self {
        Self {
            fields,
            shape: Shape::Rest,
            nested: &[],
        }
    }

    /// All values as a list, which commas separate as blanks do.
    pub const fn list(fields: &'static [&'static str]) -> Self {
        Self {
            fields,
            shape: Shape::List,
            nested: &[],
        }
    }

    /// The same, where these are maps in maps.
    pub const fn nested(self, nested: &'static [&'static str]) -> Self {
        Self { nested, ..self }
    }

    /// The whole stage in one shape, as the field (a slice of one).
    pub const fn whole(field: &'static [&'static str], shape: Shape) -> Self {
        Self {
            fields: field,
            shape,
            nested: &[],
        }
    }
}

impl Shape {
    /// Whether the whole stage is written in it, so that there is no room for settings.
    pub(crate) fn is_whole(self) -> bool {
        !matches!(self, Self::Values | Self::Rest | Self::List)
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

/// The input of a pipeline that names none.
const INPUT: &str = "stdin";

/// The output of a pipeline that names none.
const OUTPUT: &str = "stdout";

/// Parses a one-line pipeline into `{pipelines: {main: {input: {..}, processors: [{..}], outputs: [{..}]}}}`.
pub fn parse_oneline(source: &Arc<Source>, catalogue: &dyn Catalogue) -> Result<Node, ConfigError> {
    let whole = Span::new(0, source.text.len());
    let pipeline = parse_pipeline(Cursor::new(source), catalogue)?;
    let key = |name: &str| Node::scalar(source, whole, name, false);
    let pipelines = Node::map(source, whole, vec![(key(PIPELINE), pipeline)]);
    let root = vec![(key("pipelines"), pipelines)];
    Ok(Node::new(source, whole, NodeKind::Map(root)).rooted())
}

/// Parses what one pipeline holds.
fn parse_pipeline(mut cursor: Cursor<'_>, catalogue: &dyn Catalogue) -> Result<Node, ConfigError> {
    let begin = cursor.place();
    let mut stages = Vec::new();
    loop {
        let is_first = stages.is_empty();
        stages.push(Stage::parse(&mut cursor, is_first, catalogue)?);
        if !cursor.next_stage() {
            break;
        }
    }
    let end = cursor.place();
    let is_one = |stage: Option<&Stage>, role| {
        stage.is_some_and(|stage| stage.role_error(role, catalogue).is_none())
    };
    let (first, last) = (stages.first(), stages.last());
    let is_input = is_one(first, StageRole::Input);
    let is_processor = is_one(first, StageRole::Processor);
    // What is nothing of all that is an error of the role that its place gives it.
    let has_input = is_input || !(is_processor || is_one(first, StageRole::Output));
    let has_output = match stages.len() {
        1 => !has_input && !is_processor,
        _ => is_one(last, StageRole::Output) || !is_one(last, StageRole::Processor),
    };
    if !has_input {
        stages.insert(0, Stage::bare(cursor.source, begin, INPUT));
    }
    if !has_output {
        stages.push(Stage::bare(cursor.source, end, OUTPUT));
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
    Ok(tree(cursor.source, Span::new(begin, end), nodes))
}

/// Puts the stages, at least two, where YAML has them.
fn tree(source: &Arc<Source>, whole: Span, mut stages: Vec<Node>) -> Node {
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
    Node::map(source, whole, entries)
}
