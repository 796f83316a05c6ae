//! Times single processors over an Apache log in the combined format: nanoseconds an event, the first pass over the file
//! (cold caches, rules prepared) and the best of the later ones.
//!
//! ```text
//! cargo run --release -p processors --example lookup_speed -- access.log [City.mmdb]
//! ```

#![allow(clippy::print_stdout, reason = "the table is what the example is for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{
    Batch, BatchBuilder, Bitmap, Cell, ColumnBuilder, Edit, Encoding, FieldPath, HostInfo, Span,
    Stream,
};
use bytes::Bytes;
use component::{Build, BuildContext, Effects, Processor, Spec};
use config::{Catalogue, Positional, Source, StageRole, parse_oneline};

const ROWS: usize = 4096;
const PASSES: usize = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of an access log");
    let text = std::fs::read(&path).expect("a readable file");
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    time("grok \"%{COMBINEDAPACHELOG}\"", &lines);
    time("date timestamp \"dd/MMM/yyyy:HH:mm:ss Z\"", &lines);
    time("user_agent agent target=ua", &lines);
    if let Some(database) = arguments.next() {
        time(&format!("geoip clientip database={database}"), &lines);
    }
}

/// The three fields that lookups need, where they stand in a line.
fn fields(line: &str) -> [(&'static str, &str); 3] {
    let address = line.split(' ').next().unwrap_or_default();
    let time = line.split(['[', ']']).nth(1).unwrap_or_default();
    let agent = line.rsplit('"').nth(1).unwrap_or_default();
    [("clientip", address), ("timestamp", time), ("agent", agent)]
}

fn time(stage: &str, lines: &[&str]) {
    let Some(mut processor) = build(stage) else {
        println!("{stage}: there is no such processor");
        return;
    };
    let mut passes = Vec::new();
    for _ in 0..PASSES {
        passes.push(pass(processor.as_mut(), lines, !stage.starts_with("grok")));
    }
    let each = |time: Duration| time.as_nanos() as f64 / lines.len() as f64;
    let best = passes.iter().min().copied().unwrap_or_default();
    println!(
        "{stage}\n    first pass {:.1} ms, then {:.1} ns/event {:?}",
        passes[0].as_secs_f64() * 1e3,
        each(best),
        processor.take_counters()
    );
}

/// The time that one pass over all events takes, the batches made beforehand.
fn pass(processor: &mut dyn Processor, lines: &[&str], with_fields: bool) -> Duration {
    let mut total = Duration::ZERO;
    for lines in lines.chunks(ROWS) {
        let mut batch = lines_batch(lines);
        if with_fields {
            add_fields(&mut batch, lines);
        }
        let rows = Bitmap::all(batch.len());
        let start = Instant::now();
        let failures = processor.process(&mut batch, &rows);
        total += start.elapsed();
        drop(failures);
    }
    total
}

/// A batch of lines.
fn lines_batch(lines: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Text, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    builder.buffer(Bytes::from(lines.concat()));
    let mut start = 0;
    for line in lines {
        let span = Span {
            buffer: 0,
            start,
            len: line.len() as u32,
        };
        start += span.len;
        builder.push(span, u64::from(span.start), u64::from(start));
    }
    builder.finish()
}

/// Adds the three fields that lookups need, as views into the lines, as grok does.
fn add_fields(batch: &mut Batch, lines: &[&str]) {
    let messages = batch.column(&path("message"));
    let mut columns =
        [(); 3].map(|()| ColumnBuilder::over(lines.len(), messages.buffers().clone()));
    for (row, line) in lines.iter().enumerate() {
        let Cell::Text(whole) = messages.cell(row) else {
            continue;
        };
        for (column, (_, text)) in columns.iter_mut().zip(fields(line)) {
            let offset = text.as_ptr() as usize - line.as_ptr() as usize;
            column.set(
                row,
                Cell::Text(Span {
                    start: whole.start + offset as u32,
                    len: text.len() as u32,
                    ..whole
                }),
            );
        }
    }
    let mut edit = Edit::new();
    for (column, (name, _)) in columns.into_iter().zip(fields("")) {
        edit.set(path(name), column.finish());
    }
    batch.apply(edit);
}

fn path(name: &str) -> FieldPath {
    FieldPath::parse(name).expect("a field name")
}

fn build(stage: &str) -> Option<Box<dyn Processor>> {
    let name = stage.split(' ').next().unwrap_or_default();
    let spec = processors::SPECS.iter().find(|spec| spec.name == name)?;
    let source = Source::command_line(format!("in | {stage} | out"));
    let tree = parse_oneline(&source, &Only(spec)).unwrap_or_else(|error| panic!("{error}"));
    let context = BuildContext {
        host: host(),
        tag: None,
        finite: true,
        effects: Effects::All,
    };
    let Build::Processor { build, .. } = spec.build else {
        return None;
    };
    let node = tree.nearest("pipelines.main.processors[0]").nearest(name);
    Some(build(node, &context).unwrap_or_else(|error| panic!("{error}")))
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "host".into(),
    })
}

/// One processor between an input and an output.
struct Only(&'static Spec);

impl Catalogue for Only {
    fn positional(&self, role: StageRole, _: &str) -> Option<Positional> {
        Some(if role == StageRole::Processor {
            self.0.positional
        } else {
            Positional::NONE
        })
    }

    fn names(&self, _: StageRole) -> Vec<&str> {
        vec![self.0.name]
    }
}
