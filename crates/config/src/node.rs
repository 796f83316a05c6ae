//! The tree: nodes with their place in the text and their path.
//!
//! Two nodes are equal when they mean the same: places and paths do not count, nor do quotes around a text that
//! would be text without them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::error::{ConfigError, ErrorLocation};
use crate::path::Path;
use crate::scalar::{self, Resolved};
use crate::source::{Source, Span};

/// A value of the configuration with the place it came from.
#[derive(Clone)]
pub struct Node {
    /// Where the value stands in its source.
    pub span: Span,
    /// The value.
    pub kind: NodeKind,
    source: Arc<Source>,
    path: Path,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Nothing: `key:` without a value, `~` or `null`.
    Null,
    /// A text. Unquoted, it may also be read as a number or a truth value.
    Scalar {
        /// The text with quotes and escapes resolved.
        text: String,
        /// True when the source says that this is text, whatever it looks like.
        quoted: bool,
    },
    /// Values in order.
    List(Vec<Node>),
    /// Keys, which are always scalars, with their values, in the order of the source. No key comes twice.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// A node at the root of a tree; [`Node::rooted`] gives the nodes below it their paths.
    pub fn new(source: &Arc<Source>, span: Span, kind: NodeKind) -> Self {
        let source = Arc::clone(source);
        let path = Path::default();
        Self {
            span,
            kind,
            source,
            path,
        }
    }

    /// A scalar node.
    pub fn scalar(source: &Arc<Source>, span: Span, text: impl Into<String>, quoted: bool) -> Self {
        let text = text.into();
        Self::new(source, span, NodeKind::Scalar { text, quoted })
    }

    /// A list node.
    pub fn list(source: &Arc<Source>, span: Span, items: Vec<Node>) -> Self {
        Self::new(source, span, NodeKind::List(items))
    }

    /// A map node. The keys must be scalars and differ from each other.
    pub fn map(source: &Arc<Source>, span: Span, entries: Vec<(Node, Node)>) -> Self {
        Self::new(source, span, NodeKind::Map(entries))
    }

    /// Makes this node the root: it and everything below it get their paths from here.
    pub fn rooted(mut self) -> Self {
        self.set_paths(Path::default());
        self
    }

    fn set_paths(&mut self, path: Path) {
        match &mut self.kind {
            NodeKind::Null | NodeKind::Scalar { .. } => {}
            NodeKind::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.set_paths(path.item(index));
                }
            }
            NodeKind::Map(entries) => {
                for (key, value) in entries {
                    let below = path.key(key.as_str().unwrap_or_default());
                    key.set_paths(below.clone());
                    value.set_paths(below);
                }
            }
        }
        self.path = path;
    }

    /// The text that this node was read from.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Where the node stands in the tree; the path of a key is that of its value.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True when nothing is there.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    /// The text of a scalar.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The items of a list; a scalar or a map is a list of one, null a list of none.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            NodeKind::Null => &[],
            NodeKind::Scalar { .. } | NodeKind::Map(_) => std::slice::from_ref(self),
        }
    }

    /// The entries of a map.
    pub fn as_map(&self) -> Option<&[(Node, Node)]> {
        match &self.kind {
            NodeKind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a key, when this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, value)| value)
    }

    /// A key with its value, when this is a map that has it.
    pub fn entry(&self, key: &str) -> Option<(&Node, &Node)> {
        let entries = self.as_map()?.iter();
        let mut matching = entries.filter(|(name, _)| name.as_str() == Some(key));
        matching.next().map(|(name, value)| (name, value))
    }

    /// The node at a path below this one, such as `patterns.message[0]`, or the last one on the way that exists: the
    /// best place for an error about a setting that may have been left out.
    pub fn nearest(&self, path: &str) -> &Node {
        let mut node = self;
        for step in path.split(['.', '[']) {
            let below = match step.strip_suffix(']') {
                Some(index) => index
                    .parse()
                    .ok()
                    .and_then(|index: usize| node.items().get(index)),
                None => node.get(step),
            };
            match below {
                Some(below) => node = below,
                None => break,
            }
        }
        node
    }

    /// Divides a map: the entries with these keys, where there are any, and the rest. Both keep place and path.
    pub fn divide(&self, keys: &[&str]) -> (Option<Node>, Node) {
        let Some(entries) = self.as_map() else {
            return (None, self.clone());
        };
        let is_wanted = |key: &Node| key.as_str().is_some_and(|key| keys.contains(&key));
        let (wanted, rest): (Vec<_>, Vec<_>) =
            entries.iter().cloned().partition(|(key, _)| is_wanted(key));
        let with = |entries| {
            let mut part = self.clone();
            part.kind = NodeKind::Map(entries);
            part
        };
        match wanted.is_empty() {
            true => (None, self.clone()),
            false => (Some(with(wanted)), with(rest)),
        }
    }

    /// Reads `name: {settings}` or a bare `name`: how a component stands in the configuration. `what` is the word for
    /// it in errors, such as `a processor`. The settings of a bare name are null, at the place of the name.
    pub fn component(&self, what: &str) -> Result<(&Node, Cow<'_, Node>), ConfigError> {
        match &self.kind {
            NodeKind::Scalar { text, .. } => {
                let mut settings = Node::new(&self.source, self.span, NodeKind::Null);
                settings.path = self.path.key(text);
                Ok((self, Cow::Owned(settings)))
            }
            NodeKind::Map(entries) => match entries.as_slice() {
                [(name, settings)] => Ok((name, Cow::Borrowed(settings))),
                [] => Err(self.error(format!("{what} is missing here"))),
                [(first, _), (second, _), ..] => Err(self.second_name(what, first, second)),
            },
            _ => Err(self.error(format!(
                "expected {what}: its name, then its settings below it"
            ))),
        }
    }

    /// The error for a map with two keys where one component is expected.
    fn second_name(&self, what: &str, first: &Self, second: &Self) -> ConfigError {
        let name = |node: &Self| node.as_str().unwrap_or_default().to_owned();
        let (first_name, second_name) = (name(first), name(second));
        let path = self.path.to_string();
        match path.rsplit('.').next() {
            Some(list @ ("inputs" | "outputs" | "processors")) => self
                .error(format!("`{list}` is a list, and each component in it starts with its own `-`"))
                .note(format!("write `- {first_name}: …` and `- {second_name}: …` on lines of their own")),
            _ if COMMON_SETTINGS.contains(&&*second_name) => second
                .error(format!(
                    "`{second_name}` is a setting of `{first_name}` and must be indented below it"
                ))
                .note(format!(
                    "write `{first_name}: {{ {second_name}: …, … }}`, where every setting has its name (`millpond docs {first_name}`)"
                )),
            _ => second
                .error(format!("{what} has only one name; `{second_name}` is a second one"))
                .note("indent settings one level below the name; each further component starts with its own `-`"),
        }
    }

    /// An error at this node.
    pub fn error(&self, message: impl Into<String>) -> ConfigError {
        let value = self.as_str().map(str::to_owned);
        let place = ErrorLocation::new(self.source(), self.span, self.path().clone(), value);
        ConfigError::at(place, message)
    }

    /// A short word for what the node holds, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Scalar { .. } => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }
}

/// What a scalar is for somebody who asks for nothing in particular.
pub(crate) fn resolve(text: &str, quoted: bool) -> Resolved {
    if quoted {
        Resolved::Text
    } else {
        scalar::resolve(text)
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (NodeKind::Null, NodeKind::Null) => true,
            (NodeKind::List(a), NodeKind::List(b)) => a == b,
            (NodeKind::Map(a), NodeKind::Map(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b)
                        .all(|((key, value), (other_key, other_value))| {
                            key.as_str() == other_key.as_str() && value == other_value
                        })
            }
            (
                NodeKind::Scalar { text, quoted },
                NodeKind::Scalar {
                    text: other_text,
                    quoted: other_quoted,
                },
            ) => {
                let is_text = |quoted: bool| resolve(text, quoted) == Resolved::Text;
                text == other_text && is_text(*quoted) == is_text(*other_quoted)
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Node {
    /// The value alone: places and the whole source would bury it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            NodeKind::Null => f.write_str("null"),
            NodeKind::Scalar { text, quoted: true } => write!(f, "{text:?}"),
            NodeKind::Scalar {
                text,
                quoted: false,
            } => f.write_str(text),
            NodeKind::List(items) => f.debug_list().entries(items).finish(),
            NodeKind::Map(entries) => f
                .debug_map()
                .entries(entries.iter().map(|(k, v)| (k, v)))
                .finish(),
        }
    }
}

/// Settings that components of all kinds have.
const COMMON_SETTINGS: &[&str] = &["name", "if", "on_failure", "tag", "processors"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_yaml;

    fn parse(text: &str) -> Node {
        parse_yaml(&Source::new("t.yaml", text)).expect(text)
    }

    #[test]
    fn paths_name_the_way() {
        let root = parse("a:\n  - b: {c: [x, y]}\n");
        let node = root.nearest("a[0].b.c[1]");
        assert_eq!(node.as_str(), Some("y"));
        assert_eq!(node.path().to_string(), "a[0].b.c[1]");
        assert_eq!(node.path().last_key(), Some("c"));
        assert_eq!(root.nearest("a[0].nope.x").path().to_string(), "a[0]");
    }

    #[test]
    fn divided_settings_keep_their_places() {
        let root = parse("{a: 1, b: {x: 2}, c: 3}");
        let (taken, rest) = root.divide(&["b", "d"]);
        let taken = taken.expect("there is one");
        assert_eq!(taken, parse("b: {x: 2}"));
        assert_eq!(taken.nearest("b.x").path().to_string(), "b.x");
        assert_eq!(rest, parse("{a: 1, c: 3}"));
        let (taken, rest) = root.divide(&["d"]);
        assert!(taken.is_none() && rest == root);
        let (taken, rest) = parse("[a]").divide(&["a"]);
        assert!(taken.is_none() && rest == parse("[a]"));
    }

    #[test]
    fn equality_is_of_meaning() {
        for (a, b, equal) in [
            ("x: 1", "{x: 1}", true),
            ("x: 1", "x: '1'", false),
            ("x: one", "x: 'one'", true),
            ("x: null", "x: 'null'", false),
            ("x: [1]", "x: 1", false),
            ("x: 1\ny: 2", "y: 2\nx: 1", false),
        ] {
            assert_eq!(parse(a) == parse(b), equal, "{a} {b}");
        }
    }

    #[test]
    fn a_component_is_a_name_with_settings() {
        let root = parse("- grok: {pattern: x}\n- stdout\n- {a: 1, b: 2}\n- [x]\n");
        let items = root.items();
        let (name, settings) = items[0].component("a processor").expect("a component");
        assert_eq!(
            (
                name.as_str(),
                settings.get("pattern").and_then(Node::as_str)
            ),
            (Some("grok"), Some("x"))
        );
        let (name, settings) = items[1].component("an output").expect("a component");
        assert_eq!((name.as_str(), settings.is_null()), (Some("stdout"), true));
        assert_eq!(settings.path().to_string(), "[1].stdout");
        let error = items[2].component("an output").expect_err("two names");
        assert_eq!(
            error.message(),
            "an output has only one name; `b` is a second one"
        );
        assert!(items[3].component("an output").is_err());
        let root = parse("processors: [{where: n == 2, name: w}]\noutputs: {stdout: {}, file: {}}");
        for (node, said) in [
            (
                &root.nearest("processors").items()[0],
                "`name` is a setting of `where` and must be indented below it",
            ),
            (
                root.nearest("outputs"),
                "`outputs` is a list, and each component in it starts with its own `-`",
            ),
        ] {
            let error = node.component("a component").expect_err("two names");
            assert_eq!(error.message(), said);
        }
    }
}
