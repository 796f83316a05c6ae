//! Runs the examples that processors document.
//!
//! A processor's [`Example`] is a stage of a one-line pipeline, the events that go in and those that come out. The
//! runner builds the stage as the engine would, common settings included, and compares events as JSON values. Stages that
//! need a file find these: `GeoLite2-City.mmdb` and `GeoLite2-ASN.mmdb`, made by [`crate::mmdb`].

use std::path::Path;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Bitmap, Encoding, HostInfo, JsonWriter, Span, Stream};
use bytes::Bytes;
use component::{Build, BuildContext, Example, Spec};
use config::{Catalogue, Node, NodeKind, Positional, Source, StageRole, parse_oneline};
use expr::Expr;
use serde_json::{Value, json};

use crate::mmdb::write_database;

/// The fields that an event of text has of itself, compared only where an example shows them.
const BASE_FIELDS: [&str; 3] = ["@timestamp", "host", "log"];

/// Runs every example of every processor among `specs`.
///
/// # Panics
/// When an example does not give what it says, naming processor and example.
pub fn run_processor_examples(specs: &[Spec]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = write_files(folder.path());
    for spec in specs
        .iter()
        .filter(|spec| spec.kind() == StageRole::Processor)
    {
        for example in spec.examples {
            let found = run(spec, specs, example, &files);
            let expected: Vec<Value> = example
                .output
                .lines()
                .map(|line| parse(line, example.title))
                .collect();
            assert_eq!(
                found.len(),
                expected.len(),
                "{}, {}: {} events leave, not {}",
                spec.name,
                example.title,
                found.len(),
                expected.len()
            );
            for ((mut event, is_text), expected) in found.into_iter().zip(expected) {
                if is_text {
                    hide_base_fields(&mut event, &expected);
                }
                assert_eq!(
                    event, expected,
                    "{}, {}: {}",
                    spec.name, example.title, example.stage
                );
            }
        }
    }
}

fn parse(line: &str, title: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{title}: {error}: {line}"))
}

fn hide_base_fields(event: &mut Value, expected: &Value) {
    let Some(fields) = event.as_object_mut() else {
        return;
    };
    fields.retain(|name, _| !BASE_FIELDS.contains(&name.as_str()) || expected.get(name).is_some());
}

/// The files that examples name, with their paths.
fn write_files(folder: &Path) -> Vec<(&'static str, String)> {
    let london = json!({
        "city": { "names": { "en": "London" } },
        "continent": { "code": "EU" },
        "country": { "iso_code": "GB", "names": { "en": "United Kingdom" } },
        "location": { "latitude": 51.5142, "longitude": -0.0931, "time_zone": "Europe/London" },
        "subdivisions": [{ "iso_code": "ENG", "names": { "en": "England" } }],
    });
    let network = json!({ "autonomous_system_number": 64500, "autonomous_system_organization": "Example Networks" });
    let files = [
        (
            "GeoLite2-City.mmdb",
            write_database("GeoLite2-City", &[("81.2.69.0/24", london)]),
        ),
        (
            "GeoLite2-ASN.mmdb",
            write_database("GeoLite2-ASN", &[("81.2.69.0/24", network)]),
        ),
    ];
    let write = |(name, bytes): (&'static str, Vec<u8>)| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("a writable temporary folder");
        (name, path.display().to_string())
    };
    files.into_iter().map(write).collect()
}

/// The events that leave, and whether each came as text.
fn run(
    spec: &Spec,
    specs: &[Spec],
    example: &Example,
    files: &[(&str, String)],
) -> Vec<(Value, bool)> {
    let stage = files
        .iter()
        .fold(example.stage.to_owned(), |stage, (name, path)| {
            stage.replace(name, path)
        });
    let source = Source::command_line(format!("stdin | {stage} | stdout"));
    let tree = parse_oneline(&source, &Stages(specs))
        .unwrap_or_else(|error| panic!("{}: {error}", example.title));
    let settings = tree
        .nearest("pipelines.main.processors[0]")
        .nearest(spec.name);
    let Build::Processor {
        sees_sealed, build, ..
    } = spec.build
    else {
        return Vec::new();
    };
    let common = |name: &str| settings.get(name).and_then(Node::as_str);
    let context = BuildContext {
        host: host(),
        tag: common("tag").map(Into::into),
        finite: true,
    };
    let built = build(&without_common_settings(settings), &context);
    let mut processor = built.unwrap_or_else(|error| panic!("{}: {error}", example.title));
    let mut batch = batch_of(example.input);
    let mut rows = batch.alive().clone();
    if !sees_sealed {
        rows.and_not(batch.sealed());
    }
    if let Some(condition) = common("if") {
        let condition =
            Expr::parse(condition).unwrap_or_else(|error| panic!("{}: {error}", example.title));
        rows = condition.filter(&batch, &rows).holds;
    }
    let failures = processor.process(&mut batch, &rows);
    if common("on_failure") == Some("drop") {
        let failed = Bitmap::from_fn(batch.len(), |row| {
            failures.rows().iter().any(|failure| failure.row == row)
        });
        batch.drop_rows(&failed, &"failed".into());
    } else {
        batch.mark_failed(&failures, true);
    }
    events_of(&batch, example.input)
}

/// The settings without those that the engine takes for itself.
fn without_common_settings(settings: &Node) -> Node {
    let mut own = settings.clone();
    if let NodeKind::Map(entries) = &mut own.kind {
        entries.retain(|(name, _)| !matches!(name.as_str(), Some("if" | "on_failure" | "tag")));
    }
    own
}

fn events_of(batch: &Batch, input: &str) -> Vec<(Value, bool)> {
    let is_text: Vec<bool> = input.lines().map(|line| !line.starts_with('{')).collect();
    let writer = JsonWriter::new(batch);
    let event = |row: usize| {
        let mut out = Vec::new();
        writer.write(row, &mut out);
        (
            serde_json::from_slice(&out).expect("the writer gives JSON"),
            is_text[row],
        )
    };
    batch.alive().iter().map(event).collect()
}

/// A batch of the example's events: JSON where a line starts with `{`, text elsewhere.
fn batch_of(input: &str) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), 0, false);
    builder.stream(&Arc::new(Stream { id: 1, path: None }));
    let mut offset = 0;
    for line in input.lines() {
        if line.starts_with('{') {
            let scan = batch::json::validate_object(line.as_bytes())
                .unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(
                !scan.rewrite,
                "an example has no duplicate and no escaped keys: {line}"
            );
            if scan.dotted_keys {
                builder.dotted_keys();
            }
        }
        let len = line.len() as u32;
        let end = offset + u64::from(len) + 1;
        let span = Span {
            buffer: builder.buffer(Bytes::copy_from_slice(line.as_bytes())),
            start: 0,
            len,
        };
        if line.starts_with('{') {
            builder.push(span, offset, end);
        } else {
            builder.push_text(span, offset, end);
        }
        offset = end;
    }
    builder.finish()
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "host".into(),
    })
}

/// The processors, between an input and an output that read nothing.
struct Stages<'s>(&'s [Spec]);

impl Catalogue for Stages<'_> {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        match role {
            StageRole::Processor => self
                .0
                .iter()
                .find(|spec| spec.name == name)
                .map(|spec| spec.positional),
            StageRole::Input | StageRole::Output => Some(Positional::NONE),
        }
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        self.0.iter().map(|spec| spec.name).collect()
    }
}
