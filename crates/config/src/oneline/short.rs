//! Short forms in YAML: what one line says there as well.
//!
//! ```yaml
//! pipelines:
//!   all: file a.log | where n == 2 | stdout     # a whole pipeline
//!   some:
//!     input: file a.log                         # a stage
//!     processors:
//!       - where n == 2
//!       - where: n == 2                         # what stands after the component's name
//!       - head: 3
//!       - remove: [a, b]
//!     output: stdout
//! ```
//! Processors below an output take the same forms as those of a pipeline. Without an input a pipeline reads standard input,
//! without an output it writes to standard output.
//!
//! Behind a component's name stands one value. A text that one line would read as several is refused unless quotes say
//! that it is one; what takes its whole stage (an expression, assignments, names) is read as in one line.
//!
//! They become what their long forms would have given, before anything else reads the tree. Where a text stands in the file as
//! it is, without escapes and line breaks, errors point into it; else at the whole of it.

use std::sync::Arc;

use super::lexer::{Cursor, Word};
use super::stage::Stage;
use super::{Catalogue, Positional, Shape, StageRole, parse_pipeline};
use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::source::{Source, Span};

/// The settings of a pipeline that hold components.
const PLACES: [(&str, StageRole); 5] = [
    ("input", StageRole::Input),
    ("inputs", StageRole::Input),
    ("processors", StageRole::Processor),
    ("output", StageRole::Output),
    ("outputs", StageRole::Output),
];

/// Replaces short forms by long ones.
///
/// # Errors
/// A short form that cannot be read, with its place.
pub fn expand_short_forms(root: Node, catalogue: &dyn Catalogue) -> Result<Node, ConfigError> {
    let mut root = root;
    if let Some(pipelines) = entry(&mut root, "pipelines")
        && let NodeKind::Map(entries) = &mut pipelines.kind
    {
        for (_, pipeline) in entries {
            expand_pipeline(pipeline, catalogue)?;
        }
    }
    Ok(root.rooted())
}

fn entry<'n>(node: &'n mut Node, name: &str) -> Option<&'n mut Node> {
    let NodeKind::Map(entries) = &mut node.kind else {
        return None;
    };
    let mut entries = entries.iter_mut();
    let found = entries.find(|(key, _)| key.as_str() == Some(name));
    found.map(|(_, value)| value)
}

fn expand_pipeline(pipeline: &mut Node, catalogue: &dyn Catalogue) -> Result<(), ConfigError> {
    if let Some(text) = pipeline.as_str() {
        let (source, span) = place(pipeline, text);
        *pipeline = parse_pipeline(Cursor::within(&source, span), catalogue)?;
        return Ok(());
    }
    add_ends(pipeline);
    for (name, role) in PLACES {
        if let Some(components) = entry(pipeline, name) {
            expand_components(components, role, catalogue)?;
        }
    }
    Ok(())
}

/// Adds standard input and standard output where a pipeline names no input and no output.
fn add_ends(pipeline: &mut Node) {
    let (source, span) = (pipeline.source().clone(), pipeline.span);
    let NodeKind::Map(entries) = &mut pipeline.kind else {
        return;
    };
    if entries.is_empty() {
        return;
    }
    for (one, many, default) in [
        ("input", "inputs", super::INPUT),
        ("output", "outputs", super::OUTPUT),
    ] {
        let is_given =
            |(key, _): &(Node, Node)| key.as_str().is_some_and(|key| key == one || key == many);
        if !entries.iter().any(is_given) {
            let scalar = |text| Node::scalar(&source, span, text, false);
            entries.push((scalar(one), scalar(default)));
        }
    }
}

fn expand_components(
    components: &mut Node,
    role: StageRole,
    catalogue: &dyn Catalogue,
) -> Result<(), ConfigError> {
    match &mut components.kind {
        NodeKind::List(items) => {
            for item in items {
                expand_component(item, role, catalogue)?;
            }
            Ok(())
        }
        _ => expand_component(components, role, catalogue),
    }
}

fn expand_component(
    node: &mut Node,
    role: StageRole,
    catalogue: &dyn Catalogue,
) -> Result<(), ConfigError> {
    match &node.kind {
        NodeKind::Scalar { text, .. } if text.trim().contains(char::is_whitespace) => {
            let (source, span) = place(node, text);
            let mut cursor = Cursor::within(&source, span);
            cursor.skip_space();
            let name = cursor.name();
            let Positional { shape, .. } =
                catalogue.positional(role, &name.text).unwrap_or_default();
            let stage = Stage::of_settings(cursor, name, shape)?;
            *node = stage.into_node(role, catalogue)?;
        }
        NodeKind::Map(entries) => {
            let [(name, settings)] = entries.as_slice() else {
                return Ok(());
            };
            let known = name
                .as_str()
                .and_then(|name| catalogue.positional(role, name));
            let Some(positional) = known else {
                return Ok(());
            };
            if let Some(long) = expand_settings(name, settings, role, positional, catalogue)? {
                node.kind = NodeKind::Map(vec![(name.clone(), long)]);
            }
            expand_below(node, role, catalogue)?;
        }
        _ => {}
    }
    Ok(())
}

/// Expands the processors below an output.
fn expand_below(
    output: &mut Node,
    role: StageRole,
    catalogue: &dyn Catalogue,
) -> Result<(), ConfigError> {
    let (StageRole::Output, NodeKind::Map(entries)) = (role, &mut output.kind) else {
        return Ok(());
    };
    for (_, settings) in entries {
        if let Some(processors) = entry(settings, "processors") {
            expand_components(processors, StageRole::Processor, catalogue)?;
        }
    }
    Ok(())
}

/// The long form of a component's settings, where they are in a short one.
fn expand_settings(
    name: &Node,
    settings: &Node,
    role: StageRole,
    positional: Positional,
    catalogue: &dyn Catalogue,
) -> Result<Option<Node>, ConfigError> {
    let Some(&field) = positional.fields.first() else {
        return Ok(None);
    };
    let source = settings.source();
    let as_field = |value: Node| {
        let key = Node::scalar(source, settings.span, field, false);
        Node::map(source, settings.span, vec![(key, value)])
    };
    Ok(match (&settings.kind, positional.shape) {
        (NodeKind::List(_), _) => Some(as_field(settings.clone())),
        (NodeKind::Scalar { text, .. }, Shape::Assignments | Shape::Renames | Shape::Names) => {
            let (source, span) = place(settings, text);
            let word = Word {
                span: name.span,
                text: name.as_str().unwrap_or_default().to_owned(),
                quoted: false,
            };
            let stage = Stage::of_settings(Cursor::within(&source, span), word, positional.shape)?;
            let long = stage.into_node(role, catalogue)?;
            long.component("a component")
                .ok()
                .map(|(_, settings)| settings.into_owned())
        }
        (NodeKind::Scalar { text, quoted }, _) => {
            one_value(name, settings, text, *quoted, positional)?;
            Some(as_field(settings.clone()))
        }
        _ => None,
    })
}

/// Refuses a text behind a component's name that one line would read as several values or settings: in YAML it is one value.
/// Quotes say that this is meant, but for paths and addresses, which nobody writes so.
fn one_value(
    name: &Node,
    settings: &Node,
    text: &str,
    quoted: bool,
    Positional { shape, fields, .. }: Positional,
) -> Result<(), ConfigError> {
    let component = name.as_str().unwrap_or_default();
    let text = text.trim();
    let has_setting = || text.split_whitespace().skip(1).any(begins_setting);
    let is_slip = match shape {
        // What takes the rest as another setting has no use for the first one alone.
        Shape::Rest if fields.len() > 1 => text.contains(char::is_whitespace),
        Shape::Values | Shape::Rest if quoted => false,
        Shape::Values | Shape::Rest => text.contains(char::is_whitespace),
        Shape::List if quoted => text.contains(", ") || has_setting(),
        Shape::List => text.contains(char::is_whitespace),
        _ => false,
    };
    if !is_slip {
        return Ok(());
    }
    let message =
        format!("what stands behind `{component}:` is one value, but this reads like several");
    let error = settings.error(message).note(format!(
        "write it as a stage, without the colon, or its settings as a map: {component}: {{ … }}"
    ));
    let example = match text.contains(['"', '\'', ':', '#']) {
        false => format!("for example: {component} {text}"),
        true => format!("for example, in quotes as a whole: '{component} …'"),
    };
    let one = match shape {
        Shape::List => "a list, [\"…\"], takes each value as it stands",
        _ => "put the value in quotes if it is one",
    };
    Err(error.note(example).note(one))
}

/// Whether a word is `name=value`.
fn begins_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        !value.starts_with('=')
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.'))
    })
}

/// Where the text of a scalar is read from: its own source where it stands there as it is, or else the text itself.
fn place(node: &Node, text: &str) -> (Arc<Source>, Span) {
    let written = &node.source().text[node.span.start..node.span.end];
    match written.find(text) {
        Some(at) => {
            let start = node.span.start + at;
            (node.source().clone(), Span::new(start, start + text.len()))
        }
        None => {
            let source = Source::new(format!("{}: {}", node.source().name, node.path()), text);
            let span = Span::new(0, text.len());
            (source, span)
        }
    }
}
