//! Checks the examples that components document.
//!
//! An [`Example`]'s stage is read as part of a one-line pipeline and built as the engine would, common settings taken
//! away. A processor's example is then run over the events that go in, and what leaves is compared byte for byte with
//! the events it shows. Stages that need a file find these: `GeoLite2-City.mmdb` and `GeoLite2-ASN.mmdb`, made by
//! [`crate::mmdb`].

use std::path::Path;
use std::sync::Arc;

use batch::{Batch, BatchBuilder, Bitmap, Encoding, HostInfo, JsonWriter, Span, Stream};
use bytes::Bytes;
use component::{Build, BuildContext, Effects, Example, Processor, Spec};
use config::{Catalogue, ConfigError, Node, Positional, Source, StageRole, parse_oneline};
use expr::Expr;
use serde_json::{Map, Value, json};

use crate::mmdb::write_database;

/// The fields that an event of text has of itself, compared only where an example shows them.
const BASE_FIELDS: [&str; 3] = ["@timestamp", "host", "log"];

/// Builds the stage of every example of every component among `specs`, but for those that this build is without (`absent`). Files that
/// a stage names need not exist.
///
/// # Panics
/// When a component has no example, or a stage is not accepted, naming component and example.
pub fn check_stages(specs: &[Spec], absent: &[&str]) {
    for spec in specs {
        assert!(!spec.examples.is_empty(), "{} has no example", spec.name);
        if absent.contains(&spec.name) {
            continue;
        }
        for example in spec.examples {
            let stage = Stage::parse(spec, specs, example.stage);
            let built = stage.and_then(|stage| match spec.build {
                Build::Input(build) => build(&stage.own, &stage.context).map(drop),
                Build::Processor { build, .. } => build(&stage.own, &stage.context).map(drop),
                Build::Writer { build, .. } => build(&stage.own, &stage.context).map(drop),
                Build::Sender(build) => build(&stage.own, &stage.context).map(drop),
                Build::Feeder(build) => build(&stage.own, &stage.context).map(drop),
                Build::Fed(build) => build(&stage.own, &stage.context),
            });
            built.unwrap_or_else(|error| panic!("{}, {}: {error}", spec.name, example.title));
        }
    }
}

/// Runs every example of every processor among `specs`.
///
/// # Panics
/// When an example does not give what it says, naming processor and example.
pub fn run_processor_examples(specs: &[Spec]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = write_files(folder.path());
    for spec in specs {
        let Build::Processor {
            sees_sealed, build, ..
        } = spec.build
        else {
            continue;
        };
        assert!(!spec.examples.is_empty(), "{} has no example", spec.name);
        for example in spec.examples {
            let text = files
                .iter()
                .fold(example.stage.to_owned(), |text, (name, path)| {
                    text.replace(name, path)
                });
            let found = Stage::parse(spec, specs, &text).and_then(|stage| {
                let mut processor = build(&stage.own, &stage.context)?;
                Ok(run(&stage, processor.as_mut(), sees_sealed, example))
            });
            let found =
                found.unwrap_or_else(|error| panic!("{}, {}: {error}", spec.name, example.title));
            assert_eq!(
                found, example.output,
                "{}, {}: {}",
                spec.name, example.title, example.stage
            );
        }
    }
}

/// The files that examples name, with their paths.
fn write_files(folder: &Path) -> Vec<(&'static str, String)> {
    let london = json!({
        "city": { "names": { "en": "London" } },
        "continent": { "code": "EU", "names": { "en": "Europe" } },
        "country": { "iso_code": "GB", "names": { "en": "United Kingdom" } },
        "location": { "latitude": 51.5142, "longitude": -0.0931, "time_zone": "Europe/London" },
        "subdivisions": [{ "iso_code": "ENG", "names": { "en": "England" } }],
    });
    let network = json!({ "autonomous_system_number": 64500, "autonomous_system_organization": "Example Networks" });
    let text = |text: &str| text.as_bytes().to_vec();
    let files = [
        (
            "hosts.csv",
            text("ip,name,owner\n10.0.0.1,web-1,shop\n10.0.0.2,db-1,\n"),
        ),
        (
            "networks.csv",
            text("network,site\n10.0.0.0/8,office\n10.1.0.0/16,lab\n2001:db8::/32,cloud\n"),
        ),
        (
            "classes.ndjson",
            text(concat!(
                r#"{"low":200,"high":399,"class":"ok","alert":false}"#,
                "\n",
                r#"{"low":500,"high":599,"class":"broken","alert":true}"#,
                "\n",
            )),
        ),
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

/// A stage of a one-line pipeline, ready to be built.
struct Stage {
    settings: Node,
    /// The settings without those that the engine takes for itself.
    own: Node,
    context: BuildContext,
}

impl Stage {
    fn parse(spec: &Spec, specs: &[Spec], stage: &str) -> Result<Self, ConfigError> {
        let (line, place) = match spec.kind() {
            StageRole::Input => (format!("{stage} | end"), "pipelines.main.input"),
            StageRole::Processor => (
                format!("start | {stage} | end"),
                "pipelines.main.processors[0]",
            ),
            StageRole::Output => (format!("start | {stage}"), "pipelines.main.outputs[0]"),
        };
        let catalogue = Around {
            role: spec.kind(),
            specs,
        };
        let tree = parse_oneline(&Source::command_line(line), &catalogue)?;
        let (name, settings) = tree.nearest(place).component(spec.kind().with_article())?;
        assert_eq!(name.as_str(), Some(spec.name), "the stage is of another");
        let settings = settings.into_owned();
        let (_, own) = settings.divide(&spec.build.common_settings());
        let tag = settings.get("tag").and_then(Node::as_str).map(Into::into);
        let context = BuildContext {
            host: host(),
            tag,
            finite: true,
            effects: Effects::All,
        };
        let stage = Self {
            settings,
            own,
            context,
        };
        stage.condition()?;
        Ok(stage)
    }

    /// The expression in the setting `if`.
    fn condition(&self) -> Result<Option<Expr>, ConfigError> {
        let Some(text) = self.common("if") else {
            return Ok(None);
        };
        let condition = Expr::parse(text);
        condition
            .map(Some)
            .map_err(|error| self.settings.nearest("if").error(error.to_string()))
    }

    fn common(&self, name: &str) -> Option<&str> {
        self.settings.get(name).and_then(Node::as_str)
    }
}

/// The events that leave, a line each.
fn run(
    stage: &Stage,
    processor: &mut dyn Processor,
    sees_sealed: bool,
    example: &Example,
) -> String {
    let mut batch = batch_of(example.input);
    let mut rows = batch.alive().clone();
    if !sees_sealed {
        rows.and_not(batch.sealed());
    }
    let condition = stage.condition().expect("it was read before");
    if let Some(condition) = condition {
        rows = condition.filter(&batch, &rows).holds;
    }
    let failures = processor.process(&mut batch, &rows);
    let mut derived = processor.take_derived();
    processor.end(&batch_of(""));
    derived.extend(processor.take_derived());
    match stage.common("on_failure") {
        Some("drop") => {
            let failed = Bitmap::from_fn(batch.len(), |row| {
                failures.rows().iter().any(|failure| failure.row == row)
            });
            batch.drop_rows(&failed, &"failed".into());
        }
        on_failure => batch.mark_failed(&failures, on_failure != Some("continue")),
    }
    let of_batch = events_of(&batch, example);
    let of_derived = derived.iter().flat_map(|batch| {
        let writer = JsonWriter::new(batch);
        let rows: Vec<usize> = batch.alive().iter().collect();
        rows.into_iter().map(move |row| {
            let mut out = Vec::new();
            writer.write(row, &mut out);
            String::from_utf8(out).expect("the writer gives UTF-8")
        })
    });
    let all = std::iter::once(of_batch).chain(of_derived);
    let all: Vec<String> = all.filter(|text| !text.is_empty()).collect();
    all.join("\n")
}

fn events_of(batch: &Batch, example: &Example) -> String {
    let is_text: Vec<bool> = example
        .input
        .lines()
        .map(|line| !line.starts_with('{'))
        .collect();
    let writer = JsonWriter::new(batch);
    let mut expected = example.output.lines();
    let mut event = |row: usize| {
        let mut out = Vec::new();
        writer.write(row, &mut out);
        let text = String::from_utf8(out).expect("the writer gives UTF-8");
        let expected = expected.next().unwrap_or_default();
        if is_text[row] {
            without_base_fields(&text, expected)
        } else {
            text
        }
    };
    let lines: Vec<String> = batch.alive().iter().map(&mut event).collect();
    lines.join("\n")
}

/// The event without the fields that it has of itself and that the expected event does not show.
fn without_base_fields(event: &str, expected: &str) -> String {
    let mut fields: Map<String, Value> =
        serde_json::from_str(event).expect("the writer gives an object");
    let shown: Value = serde_json::from_str(expected).unwrap_or_default();
    fields.retain(|name, _| !BASE_FIELDS.contains(&name.as_str()) || shown.get(name).is_some());
    Value::Object(fields).to_string()
}

/// A batch of the example's events: JSON where a line starts with `{`, text elsewhere.
fn batch_of(input: &str) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
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

/// The components of one kind, with a start and an end that take no settings.
struct Around<'s> {
    role: StageRole,
    specs: &'s [Spec],
}

impl Catalogue for Around<'_> {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        if role == self.role {
            let spec = self.specs.iter().find(|spec| spec.name == name);
            return spec.map(|spec| spec.positional);
        }
        match (role, name) {
            (StageRole::Input, "start") | (StageRole::Output, "end") => Some(Positional::NONE),
            _ => None,
        }
    }

    fn names(&self, role: StageRole) -> Vec<&str> {
        let specs = self.specs.iter().filter(|spec| spec.kind() == role);
        specs.map(|spec| spec.name).collect()
    }
}
