//! Runs one processor over a few events, for unit tests.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Bitmap, Encoding, Failures, HostInfo, JsonWriter, Span, Stream};
use bytes::Bytes;
use component::{Build, BuildContext, Effects, Processor, Spec};
use config::{Catalogue, ConfigError, Node, Positional, Source, StageRole, parse_oneline};

/// The fields that events of text have of themselves, and that tests do not show.
const BASE_FIELDS: [&str; 3] = ["@timestamp", "host", "log"];

/// A catalogue of one processor between an input and an output.
struct Only(&'static Spec);

impl Catalogue for Only {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        match (role, name) {
            (StageRole::Processor, name) if name == self.0.name => Some(self.0.positional),
            (StageRole::Input, "in") | (StageRole::Output, "out") => Some(Positional::NONE),
            _ => None,
        }
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        vec![self.0.name]
    }
}

/// Builds the processor that a stage of a one-line pipeline describes.
pub fn build(spec: &'static Spec, stage: &str) -> Result<Box<dyn Processor>, ConfigError> {
    let source = Source::command_line(format!("in | {stage} | out"));
    let tree = parse_oneline(&source, &Only(spec))?;
    let node = tree.nearest("pipelines.main.processors[0]");
    construct(spec, node.nearest(spec.name))
}

/// Builds the processor from its settings in YAML.
#[allow(dead_code, reason = "used by some components")]
pub fn build_yaml(spec: &'static Spec, settings: &str) -> Result<Box<dyn Processor>, ConfigError> {
    construct(
        spec,
        &config::parse_yaml(&Source::new("test.yaml", settings))?,
    )
}

/// Builds the processor as the engine does, which takes `tag` for itself. The engine's other settings, such as `if`, are refused
/// here: nothing in these tests would act on them.
fn construct(spec: &Spec, node: &Node) -> Result<Box<dyn Processor>, ConfigError> {
    let (_, own) = node.divide(&["tag"]);
    let tag = node.get("tag").and_then(Node::as_str).map(Into::into);
    let context = BuildContext {
        host: host(),
        tag,
        finite: true,
        effects: Effects::All,
    };
    match spec.build {
        Build::Processor { build, .. } => build(&own, &context),
        _ => panic!("{} is no processor", spec.name),
    }
}

/// The message of the error that a stage must cause.
pub fn build_error(spec: &'static Spec, stage: &str) -> String {
    match build(spec, stage) {
        Ok(_) => panic!("{stage} is accepted"),
        Err(error) => error.message().to_owned(),
    }
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo { name: "h".into() })
}

/// A batch of JSON events, and of text where a line does not begin with `{`.
pub fn batch_of<'l>(lines: impl IntoIterator<Item = &'l str>) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let mut offset = 0;
    for line in lines {
        let buffer = builder.buffer(Bytes::copy_from_slice(line.as_bytes()));
        let span = Span {
            buffer,
            start: 0,
            len: line.len() as u32,
        };
        let end = offset + line.len() as u64 + 1;
        if line.starts_with('{') {
            let scan = batch::json::validate_object(line.as_bytes()).expect(line);
            assert!(
                !scan.rewrite,
                "write the test's documents in normal form: {line}"
            );
            if scan.dotted_keys {
                builder.dotted_keys();
            }
            builder.push(span, offset, end);
        } else {
            builder.push_text(span, offset, end);
        }
        offset = end;
    }
    builder.finish()
}

/// A batch of lines of text, all in one buffer as an input would have read them.
pub fn text_batch<'l>(lines: impl IntoIterator<Item = &'l str>) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Text, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let mut text = Vec::new();
    let mut spans = Vec::new();
    for line in lines {
        spans.push(Span {
            buffer: 0,
            start: text.len() as u32,
            len: line.len() as u32,
        });
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    builder.buffer(Bytes::from(text));
    for span in spans {
        builder.push(
            span,
            u64::from(span.start),
            u64::from(span.start + span.len + 1),
        );
    }
    builder.finish()
}

/// The rows that are left, as JSON without what text events have of themselves.
pub fn lines_of(batch: &Batch) -> Vec<String> {
    let writer = JsonWriter::new(batch);
    let rows = batch.alive().iter();
    let line = |row| {
        let mut out = Vec::new();
        writer.write(row, &mut out);
        let text = String::from_utf8(out).expect("the writer gives UTF-8");
        let mut event: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).expect("the writer gives an object");
        if BASE_FIELDS[..2]
            .iter()
            .any(|name| !event.contains_key(*name))
        {
            return text;
        }
        BASE_FIELDS
            .iter()
            .for_each(|name| drop(event.shift_remove(*name)));
        serde_json::Value::Object(event).to_string()
    };
    rows.map(line).collect()
}

/// Lets a processor handle every row as the engine would, failures marked but not sealed.
pub fn process(processor: &mut dyn Processor, batch: &mut Batch) -> Failures {
    let rows = batch.alive().clone();
    process_rows(processor, batch, &rows)
}

/// As [`process`], for some rows.
pub fn process_rows(processor: &mut dyn Processor, batch: &mut Batch, rows: &Bitmap) -> Failures {
    let failures = processor.process(batch, rows);
    batch.mark_failed(&failures, false);
    failures
}

/// What becomes of events, a line each, in one batch; failures carry their tag and `error.message`.
pub fn run(spec: &'static Spec, stage: &str, input: &str) -> Vec<String> {
    let mut processor = build(spec, stage).unwrap_or_else(|error| panic!("{error}"));
    let mut batch = batch_of(input.lines());
    process(processor.as_mut(), &mut batch);
    lines_of(&batch)
}

/// Runs a table of `(stage, event, result)`.
pub fn check(spec: &'static Spec, table: &[(&str, &str, &str)]) {
    for (stage, input, output) in table {
        assert_eq!(
            run(spec, stage, input).join("\n"),
            *output,
            "{stage} on {input}"
        );
    }
}

/// Runs a table of `(stage, part of the error's message)`.
pub fn check_errors(spec: &'static Spec, table: &[(&str, &str)]) {
    for (stage, expected) in table {
        let message = build_error(spec, stage);
        assert!(
            message.contains(expected),
            "{stage} is refused with: {message}"
        );
    }
}

/// Numbers without an order to the eye, the same in every run.
pub fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    }
}
