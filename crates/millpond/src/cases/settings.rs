//! What a test file says.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use component::field_at;
use config::{ConfigError, MapReader, Node, NodeKind, Source, parse_yaml};
use jiff::Timestamp;
use serde_json::Value;

use crate::load::{Loaded, load, of_line};

/// When events count as received where a test does not say, so that it gives the same result every day: 2026-01-01T00:00:00Z.
const RECEIVED: i64 = 1_767_225_600_000_000_000;

/// What an item of `expect` calls an event that a processor dropped.
pub const DROPPED: &str = "dropped";

/// What an item of `expect` calls an event that became a dead letter.
pub const DEAD_LETTER: &str = "dead_letter";

/// A file of tests.
pub struct TestFile {
    /// Its path, as it was given.
    pub name: String,
    /// Its tests, in order.
    pub cases: Vec<TestCase>,
}

/// A test: events that go in, and what is to come of them.
pub struct TestCase {
    /// What it is called.
    pub name: String,
    /// The line on which it begins.
    pub line: usize,
    /// What is tested.
    pub subject: Subject,
    /// What goes in.
    pub given: Given,
    /// What is to come out.
    pub expected: Expected,
}

/// The pipeline that a test is about, and how it is run.
#[derive(Clone)]
pub struct Subject {
    /// Its configuration.
    pub loaded: Loaded,
    /// Where the test file names the configuration.
    pub config: Node,
    /// The pipeline, where the test names it.
    pub pipeline: Option<Node>,
    /// The output whose events are compared; none for those that leave the pipeline's processors.
    pub output: Option<Node>,
    /// When events count as received, in nanoseconds since 1970.
    pub received: i64,
}

/// What goes in.
pub struct Given {
    /// How it is written.
    pub content: Content,
    /// What the events call the file that they come from, where the test says so.
    pub path: Option<String>,
}

/// How events that go in are written.
pub enum Content {
    /// Lines.
    Texts(Vec<u8>),
    /// JSON documents, a line each.
    Documents(Vec<u8>),
    /// A file: its path as the test has it, and the one that is opened.
    Fixture(String, PathBuf),
}

/// What is to come out.
#[derive(Clone, Default)]
pub struct Expected {
    /// The events, or what becomes of each event.
    pub outcomes: Option<Vec<Wanted>>,
    /// Whether events have the expected fields alone.
    pub exact: bool,
    /// Fields that are not compared.
    pub ignored: Vec<String>,
    /// How many events come out.
    pub count: Option<u64>,
    /// How many are dropped.
    pub dropped: Option<u64>,
    /// How many become dead letters.
    pub dead_letters: Option<u64>,
}

/// What is to become of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// It comes out with these fields.
    Event(Value),
    /// It is dropped, by this processor or by any.
    Dropped(Option<String>),
    /// It becomes a dead letter, of this processor or of any.
    DeadLetter(Option<String>),
}

impl TestFile {
    /// Reads a test file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong, at its place.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let text = String::from_utf8(text)
            .map_err(|_| anyhow!("{name} is not a test file: it is not valid UTF-8"))?;
        let root = parse_yaml(&Source::new(name.clone(), text))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut reader = root.map_reader("a test file")?;
        let config = reader.take("config").filter(|node| !node.is_null());
        let config = config.ok_or_else(|| {
            root.error(
                "a test file needs `config`: the configuration under test, as a path relative to this file or as a one-line pipeline",
            )
        })?;
        let mut subject = Subject {
            loaded: configuration(config, folder)?,
            config: config.clone(),
            pipeline: None,
            output: None,
            received: RECEIVED,
        };
        let mut expected = Expected::default();
        take_common(&mut reader, &mut subject, &mut expected)?;
        let tests = reader.take("tests");
        reader.finish()?;
        let tests = match tests.map(|tests| &tests.kind) {
            Some(NodeKind::List(tests)) => tests,
            _ => {
                let error = tests
                    .unwrap_or(&root)
                    .error("a test file needs `tests`, a list");
                return Err(error.note("for example: tests: [{ name: …, events: [a line], expect: [{ message: a line }] }]").into());
            }
        };
        let cases = tests
            .iter()
            .map(|node| TestCase::of(node, &subject, &expected, folder));
        Ok(Self {
            name,
            cases: cases.collect::<Result<_, _>>()?,
        })
    }
}

/// The configuration at a path relative to the folder, or the one-line pipeline.
fn configuration(node: &Node, folder: &Path) -> anyhow::Result<Loaded> {
    let Some(text) = node.as_str() else {
        return Err(node
            .error("`config` is a path relative to this file, or a one-line pipeline")
            .into());
    };
    let path = folder.join(text);
    let is_file = text.ends_with(".yaml") || text.ends_with(".yml");
    if text.contains('|') || !is_file && !path.exists() {
        return Ok(of_line(node)?);
    }
    // What is wrong inside has its own place; what is not there has none but this.
    std::fs::metadata(&path).map_err(|error| {
        let shown = path.display();
        node.error(format!("cannot read {shown}: {error}"))
    })?;
    load(&[path.display().to_string()])
}

/// Takes the settings that a file and each of its tests may have.
fn take_common<'n>(
    reader: &mut MapReader<'n>,
    subject: &mut Subject,
    expected: &mut Expected,
) -> Result<(), ConfigError> {
    for (key, place) in [
        ("pipeline", &mut subject.pipeline),
        ("output", &mut subject.output),
    ] {
        if let Some(node) = reader.take(key).filter(|node| !node.is_null()) {
            let _: String = node.deserialize()?;
            *place = Some(node.clone());
        }
    }
    if let Some(node) = reader.take("time").filter(|node| !node.is_null()) {
        subject.received = time(node)?;
    }
    if let Some(exact) = reader.parse("exact")? {
        expected.exact = exact;
    }
    for node in reader.take("ignore").map_or(&[][..], Node::items) {
        let text: String = node.deserialize()?;
        let path = field_at(node, &text)?;
        expected.ignored.push(path.keys().join("."));
    }
    Ok(())
}

fn time(node: &Node) -> Result<i64, ConfigError> {
    let time = node
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let time = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    time.ok_or_else(|| node.error("`time` is a time such as 2026-01-31T12:00:00Z"))
}

impl TestCase {
    /// Whether it tests the same part of the same file's configuration.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        let (one, other) = (&self.subject, &other.subject);
        (&one.pipeline, &one.output) == (&other.pipeline, &other.output)
    }

    fn of(
        node: &Node,
        subject: &Subject,
        expected: &Expected,
        folder: &Path,
    ) -> Result<Self, ConfigError> {
        let mut reader = node.map_reader("a test")?;
        let (mut subject, mut expected) = (subject.clone(), expected.clone());
        let name: Option<String> = reader.parse("name")?;
        take_common(&mut reader, &mut subject, &mut expected)?;
        let (events, file) = (reader.take("events"), reader.take("file"));
        let path = reader.parse("path")?;
        let outcomes = reader.take("expect");
        expected.count = reader.parse("count")?;
        expected.dropped = reader.parse("dropped")?;
        expected.dead_letters = reader.parse("dead_letters")?;
        reader.finish()?;
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(node.error("a test needs a `name`"));
        };
        let content = match (events, file) {
            (Some(events), None) => events_of(events)?,
            (None, Some(file)) => fixture(file, folder)?,
            (Some(_), Some(file)) => {
                return Err(file.error("a test has `events` or a `file`, not both"));
            }
            (None, None) => {
                return Err(node.error(format!("`{name}` needs `events`, or a `file` with them")));
            }
        };
        expected.outcomes = outcomes.map(wanted).transpose()?;
        let counts = [expected.count, expected.dropped, expected.dead_letters];
        if expected.outcomes.is_none() && counts.iter().all(Option::is_none) {
            let error = node.error(format!("`{name}` expects nothing: it needs `expect`"));
            return Err(error.note(
                "`expect: []` where no event comes out; `count`, `dropped` and `dead_letters` count events",
            ));
        }
        let (line, _) = node.source().locate(node.span.start);
        Ok(Self {
            name,
            line,
            subject,
            given: Given { content, path },
            expected,
        })
    }
}

/// The events in a list: texts, or maps of fields.
fn events_of(node: &Node) -> Result<Content, ConfigError> {
    let items = node.items();
    let is_map = |node: &Node| matches!(node.kind, NodeKind::Map(_));
    let are_maps = items.first().is_some_and(is_map);
    let mut content = Vec::new();
    for item in items {
        if is_map(item) != are_maps {
            let words = "`events` are all texts, or all maps of fields";
            return Err(item.error(words));
        }
        if are_maps {
            let document: Value = item.deserialize()?;
            content.extend(document.to_string().bytes());
        } else {
            let text: String = item
                .deserialize()
                .map_err(|_| item.error("an event is a text, or a map of fields"))?;
            content.extend(text.strip_suffix('\n').unwrap_or(&text).bytes());
        }
        content.push(b'\n');
    }
    Ok(match are_maps {
        true => Content::Documents(content),
        false => Content::Texts(content),
    })
}

fn fixture(node: &Node, folder: &Path) -> Result<Content, ConfigError> {
    let name: String = node.deserialize()?;
    let path = folder.join(&name);
    let shown = path.display();
    let opened = File::open(&path).and_then(|file| file.metadata());
    let opened = opened.map_err(|error| node.error(format!("cannot read {shown}: {error}")))?;
    if !opened.is_file() {
        return Err(node.error(format!("{shown} is not a file")));
    }
    Ok(Content::Fixture(name, path))
}

/// What is to become of events.
fn wanted(node: &Node) -> Result<Vec<Wanted>, ConfigError> {
    if !matches!(node.kind, NodeKind::List(_)) {
        let error = node.error("`expect` is a list: an item for each event that comes out");
        return Err(error.note("`expect: []` where none does"));
    }
    node.items().iter().map(wanted_event).collect()
}

fn wanted_event(node: &Node) -> Result<Wanted, ConfigError> {
    let fate = |name: &str, by: Option<String>| match name {
        DROPPED => Some(Wanted::Dropped(by)),
        DEAD_LETTER => Some(Wanted::DeadLetter(by)),
        _ => None,
    };
    match &node.kind {
        NodeKind::Map(entries) => {
            if let [(key, by)] = entries.as_slice()
                && let (Some(name), Some(by)) = (key.as_str(), by.as_str())
                && let Some(fate) = fate(name, Some(by.to_owned()))
            {
                return Ok(fate);
            }
            Ok(Wanted::Event(node.deserialize()?))
        }
        NodeKind::Scalar { text, .. } => fate(text, None).ok_or_else(|| {
            let error = node.error("an event is expected as a map of fields");
            error.accepted([DROPPED, DEAD_LETTER]).closest_to(text)
        }),
        _ => Err(node.error("an event is expected as a map of fields")),
    }
}
