//! A configuration with a file in the place of its inputs, for runs that try it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::bail;
use component::{AnyOutput, Spec, Writer};
use config::{Node, NodeKind, StageRole};
use pipeline::graph::OutputNode;
use pipeline::settings::SendingSettings;

use crate::REGISTRY;

/// How much of a file shows whether it holds JSON.
const FIRST_BYTES: usize = 256;

/// Settings of inputs that say which files are read and when, not how.
const NOT_ABOUT_CONTENT: &[&str] = &[
    "name",
    "paths",
    "exclude",
    "follow",
    "start_at",
    "ignore_older",
    "follow_links",
    "watch",
    "scan_interval",
    "max_open_files",
    "close",
    "delete_after",
    "fingerprint_bytes",
    "forget_after",
];

/// How a file begins, which is asked only where that says how it is to be read.
pub type Beginning<'a> = &'a dyn Fn() -> anyhow::Result<Vec<u8>>;

/// How a file begins.
pub fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut first = vec![0; FIRST_BYTES];
    let length = file.read_at(&mut first, 0)?;
    first.truncate(length);
    Ok(first)
}

/// Puts the file in the place of every pipeline's inputs, but not where other pipelines feed it.
///
/// # Errors
/// There are no pipelines, an input is no component, or the file cannot be read.
pub fn read_instead(root: &mut Node, file: &str, beginning: Beginning<'_>) -> anyhow::Result<()> {
    let NodeKind::Map(top) = &mut root.kind else {
        bail!("the configuration holds no pipelines");
    };
    let pipelines = top
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some("pipelines"));
    let Some(NodeKind::Map(pipelines)) = pipelines.map(|(_, node)| &mut node.kind) else {
        bail!("the configuration holds no pipelines");
    };
    for (_, pipeline) in pipelines {
        let (source, span) = (pipeline.source().clone(), pipeline.span);
        let scalar = |text: &str| Node::scalar(&source, span, text, true);
        let Some(first) = first_input(pipeline) else {
            continue;
        };
        let (name, _) = first.component("an input")?;
        if REGISTRY
            .resolve(StageRole::Input, name)
            .is_ok_and(Spec::is_link)
        {
            continue;
        }
        let settings = file_settings(content_settings(first, beginning)?, first, file);
        let input = Node::map(&source, span, vec![(scalar("file"), settings)]);
        let NodeKind::Map(entries) = &mut pipeline.kind else {
            continue;
        };
        entries.retain(|(key, _)| !matches!(key.as_str(), Some("input" | "inputs")));
        entries.push((scalar("input"), input));
    }
    Ok(())
}

/// The first input of a pipeline.
pub fn first_input(pipeline: &Node) -> Option<&Node> {
    let inputs = pipeline.get("input").or(pipeline.get("inputs"));
    inputs.and_then(|inputs| inputs.items().first())
}

/// The settings of the input `file` that reads this file, and content as these settings say, in the place of `input`.
pub fn file_settings(mut content: Vec<(Node, Node)>, input: &Node, file: &str) -> Node {
    let (source, span) = (input.source(), input.span);
    let scalar = |text: &str| Node::scalar(source, span, text, true);
    content.push((scalar("paths"), scalar(file)));
    Node::map(source, span, content)
}

/// How the content of a file is to be read: as the input says, where it reads files or standard input; otherwise as JSON where it
/// begins like an object or an array of objects, and as text where it does not.
///
/// # Errors
/// It is no component, or the file cannot be read.
pub fn content_settings(
    input: &Node,
    beginning: Beginning<'_>,
) -> anyhow::Result<Vec<(Node, Node)>> {
    let (name, settings) = input.component("an input")?;
    if let Some("file" | "stdin") = name.as_str() {
        let entries = settings.as_map().unwrap_or_default().iter();
        let is_kept = |key: &Node| !NOT_ABOUT_CONTENT.contains(&key.as_str().unwrap_or_default());
        return Ok(entries.filter(|(key, _)| is_kept(key)).cloned().collect());
    }
    let first = beginning()?;
    let first = first.trim_ascii_start();
    let first = first.strip_prefix(b"[").unwrap_or(first);
    let codec = match first.trim_ascii_start().first() {
        Some(b'{') => "json",
        _ => "text",
    };
    let scalar = |text: &str| Node::scalar(input.source(), input.span, text, true);
    Ok(vec![(scalar("codec"), scalar(codec))])
}

/// An output that shows what the others get.
pub fn watcher(name: &str, writer: Arc<dyn Writer>, ordered: bool) -> OutputNode {
    OutputNode {
        name: name.to_owned(),
        component: AnyOutput::Writer(writer),
        ordered,
        sending: SendingSettings::default(),
        condition: None,
        otherwise: Vec::new(),
        stages: Vec::new(),
    }
}
