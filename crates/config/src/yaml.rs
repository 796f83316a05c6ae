//! YAML into a tree.
//!
//! One document of the YAML 1.2 core schema. Anchors, aliases and merge keys (`<<`) are resolved; a key that is given
//! twice, a key that is not a scalar, tags other than `!!str`, and further documents are refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::scalar;
use crate::source::{Source, Span};
use crate::{DEPTH_MAX, NODES_MAX};

/// Parses a YAML text. An empty one gives null.
pub fn parse_yaml(source: &Arc<Source>) -> Result<Node, ConfigError> {
    let mut builder = Builder {
        source,
        offsets: Offsets::new(&source.text),
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
        documents: 0,
    };
    for event in Parser::new_from_str(&source.text) {
        let (event, span) = event.map_err(|error| builder.syntax_error(&error))?;
        let span = builder.offsets.span(span);
        builder.event(event, span)?;
    }
    let root = builder.root;
    Ok(root
        .unwrap_or_else(|| Node::new(source, Span::empty(0), NodeKind::Null))
        .rooted())
}

struct Builder<'s> {
    source: &'s Arc<Source>,
    offsets: Offsets,
    open: Vec<Open>,
    /// Finished nodes by the parser's anchor number; a number without a node is still open.
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
    documents: usize,
}

/// A list or map whose end has not come yet.
struct Open {
    span: Span,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<(Node, Node)>,
        key: Option<Node>,
        /// The names so far.
        names: HashSet<String>,
    },
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), ConfigError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.document(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain || self.check_tag(tag.as_deref(), span)?;
                let node = self.scalar(text.into_owned(), quoted, span);
                self.add(node, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), span)?;
                self.open(span, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), span)?;
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                    names: HashSet::new(),
                };
                self.open(span, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
        }
    }

    fn document(&mut self, span: Span) -> Result<(), ConfigError> {
        self.documents += 1;
        if self.documents == 1 {
            return Ok(());
        }
        Err(self.error(
            span,
            "a configuration must be a single document; a second one starts here",
        ))
    }

    /// True when the tag says that the scalar is a string.
    fn check_tag(&self, tag: Option<&Tag>, span: Span) -> Result<bool, ConfigError> {
        match tag {
            None => Ok(false),
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Ok(true),
            Some(_) => Err(self
                .error(span, "tags are not supported")
                .note("`!` at the start of a value is a YAML tag; put a value that starts with `!` in quotes")),
        }
    }

    fn scalar(&self, text: String, quoted: bool, span: Span) -> Node {
        let is_key = matches!(
            self.open.last().map(|open| &open.content),
            Some(Content::Map { key: None, .. })
        );
        if !quoted && !is_key && scalar::is_null(&text) {
            return Node::new(self.source, span, NodeKind::Null);
        }
        Node::scalar(self.source, span, text, quoted)
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), ConfigError> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(self.error(
                span,
                "an alias cannot be used inside the value that it refers to",
            ));
        };
        self.nodes += count(&node);
        if depth(&node) + self.open.len() > DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        self.add(node, 0)
    }

    fn open(&mut self, span: Span, anchor: usize, content: Content) -> Result<(), ConfigError> {
        if self.open.len() >= DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        // The event of an anchored value starts at the anchor.
        let raw = self.source.slice(span);
        let start = span.start + raw.rfind(['[', '{']).unwrap_or(0);
        let span = Span::new(start, span.end);
        self.open.push(Open {
            span,
            anchor,
            content,
        });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), ConfigError> {
        let Some(Open {
            span,
            anchor,
            content,
        }) = self.open.pop()
        else {
            return Err(self.error(end, "unbalanced end of a list or map"));
        };
        let last = match &content {
            Content::List(items) => items.last().map(|item| item.span),
            Content::Map { entries, .. } => {
                entries.last().map(|(key, value)| key.span.join(value.span))
            }
        };
        // Values that came by an alias may stand anywhere else in the file.
        let last = last
            .filter(|last| last.start >= span.start)
            .map_or(span.end, |last| last.end);
        // A block ends where something less indented begins, maybe many lines later; a flow ends at its bracket.
        let span = Span::new(span.start, if end.end > end.start { end.end } else { last });
        let node = match content {
            Content::List(items) => Node::list(self.source, span, items),
            Content::Map { entries, .. } => Node::map(self.source, span, self.merge(entries)?),
        };
        self.add(node, anchor)
    }

    /// Puts a finished node where it belongs.
    fn add(&mut self, node: Node, anchor: usize) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.error(
                node.span,
                format!("more than {NODES_MAX} values; are there nested aliases?"),
            ));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map {
                entries,
                key,
                names,
            }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => *key = Some(check_key(node, entries, names)?),
            },
        }
        Ok(())
    }

    /// Replaces a `<<` key by those entries of the map (or maps) it names that are not given beside it.
    fn merge(&self, mut entries: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, ConfigError> {
        let is_merge = |key: &Node| matches!(&key.kind, NodeKind::Scalar { text, quoted: false } if text == "<<");
        let Some(at) = entries.iter().position(|(key, _)| is_merge(key)) else {
            return Ok(entries);
        };
        let (key, merged) = entries.remove(at);
        for map in merged.items() {
            let Some(new) = map.as_map() else {
                return Err(self.error(
                    key.span,
                    "`<<` requires a map or a list of maps, as aliases",
                ));
            };
            for (key, value) in new {
                if !entries
                    .iter()
                    .any(|(known, _)| known.as_str() == key.as_str())
                {
                    entries.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(entries)
    }

    fn too_deep(&self, span: Span) -> ConfigError {
        self.error(span, format!("nested more than {DEPTH_MAX} levels deep"))
    }

    fn error(&self, span: Span, message: impl Into<String>) -> ConfigError {
        ConfigError::in_source(self.source, span, message)
    }

    fn syntax_error(&self, error: &ScanError) -> ConfigError {
        let at = self.offsets.byte(error.marker());
        let found = self.source.text[at..].chars().next();
        let error = self.error(Span::empty(at), format!("not valid YAML: {}", error.info()));
        let is_about = |part: &str| error.message().contains(part);
        if is_about("unknown escape character") {
            return error.note(
                "in double quotes a backslash begins an escape; put the value in single quotes, where it stands for itself",
            );
        }
        if is_about("trailing content after") {
            return error.note(
                "a value ends with its closing quote: put all of it in single quotes, also where it has commas inside `{ }`",
            );
        }
        match (found, advice(found)) {
            (Some(found), Some(advice)) => error.note(advice.replace("{}", &found.to_string())),
            _ => error,
        }
    }
}

fn advice(found: Option<char>) -> Option<&'static str> {
    match found? {
        '%' | '@' | '`' | '*' | '&' | '!' | '|' | '>' => {
            Some("put a value that starts with `{}` in quotes")
        }
        ':' => Some("put a value that contains `{} ` in quotes"),
        '\t' => Some("YAML is indented with spaces, not with tabs"),
        _ => None,
    }
}

fn check_key(
    key: Node,
    entries: &[(Node, Node)],
    names: &mut HashSet<String>,
) -> Result<Node, ConfigError> {
    let Some(name) = key.as_str() else {
        return Err(key
            .error("a key must be a single value")
            .note("put a value that starts with `{` or `[` in quotes"));
    };
    // The rest of a value such as `f(a, b)`, which ends at the comma inside `{ }`.
    let behind = key.source().text.get(key.span.end..).unwrap_or_default();
    let has_value = behind.trim_start().starts_with(':');
    if !has_value && name.ends_with(')') && name.matches(')').count() > name.matches('(').count() {
        return Err(key
            .error(format!("`{name}` is not a key"))
            .note("put a value that has commas inside `{ }` in quotes"));
    }
    if names.insert(name.to_owned()) {
        return Ok(key);
    }
    let error = key.error(format!("`{name}` is given twice"));
    let first = entries
        .iter()
        .find(|(known, _)| known.as_str() == Some(name));
    Err(match first {
        Some((first, _)) => {
            let (line, column) = key.source().locate(first.span.start);
            error.note(format!(
                "the first occurrence is at line {line}, column {column}"
            ))
        }
        None => error,
    })
}

fn count(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Null | NodeKind::Scalar { .. } => 1,
        NodeKind::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        NodeKind::Map(entries) => {
            1 + entries
                .iter()
                .map(|(_, value)| 1 + count(value))
                .sum::<usize>()
        }
    }
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Null | NodeKind::Scalar { .. } => 0,
        NodeKind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        NodeKind::Map(entries) => {
            1 + entries
                .iter()
                .map(|(_, value)| depth(value))
                .max()
                .unwrap_or(0)
        }
    }
}

/// Turns the parser's character positions into byte offsets.
struct Offsets {
    /// The byte offset of every character; empty when all are ASCII.
    of_chars: Vec<usize>,
    len: usize,
}

impl Offsets {
    fn new(text: &str) -> Self {
        let of_chars = if text.is_ascii() {
            Vec::new()
        } else {
            text.char_indices().map(|(offset, _)| offset).collect()
        };
        Self {
            of_chars,
            len: text.len(),
        }
    }

    fn byte(&self, marker: &Marker) -> usize {
        if self.of_chars.is_empty() {
            return marker.index().min(self.len);
        }
        self.of_chars
            .get(marker.index())
            .copied()
            .unwrap_or(self.len)
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let start = self.byte(&span.start);
        Span::new(start, self.byte(&span.end).max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Node, ConfigError> {
        parse_yaml(&Source::new("t.yaml", text))
    }

    #[test]
    fn reads_values() {
        for (text, expected) in [
            ("", "null"),
            ("a:\nb: ~\nc: ''\n", r#"{a: null, b: null, c: ""}"#),
            ("a: [1, 'é', \"\\t\"]", r#"{a: [1, "é", "\t"]}"#),
            (
                "\u{feff}ü: x\r\ny: |\r\n  one\r\n  two\r\n",
                r#"{ü: x, y: "one\ntwo\n"}"#,
            ),
            ("null: 1\n'2': b", r#"{null: 1, "2": b}"#),
            ("a: !!str 12", r#"{a: "12"}"#),
            ("a: &x [1]\nb: *x", "{a: [1], b: [1]}"),
            (
                "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}",
                "{a: {k: 1, l: 2}, b: {l: 3, k: 1}}",
            ),
            ("'<<': 1", r#"{"<<": 1}"#),
            ("if: \"a == 'b: c'\" # comment", r#"{if: "a == 'b: c'"}"#),
        ] {
            assert_eq!(
                format!("{:?}", parse(text).expect(text)),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn spans_are_byte_offsets() {
        let text = "é: ü\nlist:\n  - {k: \"vé\", l: [1, 2]}\n  - x\n\n# end\nz: &a [q]\n";
        let root = parse(text).expect("valid");
        for (path, expected) in [
            ("é", "ü"),
            ("list[0]", "{k: \"vé\", l: [1, 2]}"),
            ("list[0].k", "\"vé\""),
            ("list[0].l", "[1, 2]"),
            ("list", "- {k: \"vé\", l: [1, 2]}\n  - x"),
            ("z", "[q]"),
        ] {
            let node = root.nearest(path);
            assert_eq!(node.source().slice(node.span), expected, "{path}");
        }
    }

    #[test]
    fn refuses_with_place_and_reason() {
        let deep = "[".repeat(DEPTH_MAX + 1);
        for (text, place, part) in [
            ("a: 1\nb: 2\na: 3\n", (3, 1), "`a` is given twice"),
            (
                "a: 1\na: 3\n",
                (2, 1),
                "the first occurrence is at line 1, column 1",
            ),
            ("--- {}\n--- {}\n", (2, 1), "single document"),
            ("é: ü\na: %{X}\n", (2, 4), "starts with `%` in quotes"),
            ("a: !has(x)\n", (1, 4), "starts with `!`"),
            ("a: b: c\n", (1, 5), "contains `: ` in quotes"),
            ("a: \"\\d+\"\n", (1, 4), "single quotes"),
            ("a: \"b\" == \"c\"\n", (1, 8), "single quotes"),
            ("a: { b: f(c, d) }\n", (1, 14), "`d)` is not a key"),
            ("a: { b: f(c, \"d\") }\n", (1, 17), "commas inside `{ }`"),
            ("a:\n\t- b\n", (2, 2), "not valid YAML: tabs"),
            ("{a: 1}: b\n", (1, 1), "a key must be a single value"),
            ("a: *x\n", (1, 4), "unknown anchor"),
            ("a: &x [*x]\n", (1, 8), "inside the value that it refers to"),
            ("<<: 1\n", (1, 1), "`<<` requires a map"),
            (deep.as_str(), (1, DEPTH_MAX + 1), "nested more than"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(
                (error.line(), error.column()),
                (Some(place.0), Some(place.1)),
                "{error}"
            );
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn keys_may_end_with_brackets() {
        for text in ["\")\": 1\n", "a): 1\n", "{ \"f)\" : 1, b): 2 }\n"] {
            parse(text).expect(text);
        }
    }

    #[test]
    fn nested_aliases_do_not_explode() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{alias}]\n");
        }
        let error = parse(&text).expect_err("too many");
        assert!(error.message().contains("more than"), "{error}");
    }
}
