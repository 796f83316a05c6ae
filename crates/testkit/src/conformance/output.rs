//! What every output must do:
//!
//! - It renders exactly the rows that it is given, in their order, and the same rows to the same bytes. Each is rendered or
//!   refused. A sender says where each of them ends.
//! - What it writes or sends arrives. Requests may be sent side by side, and the call of one may be given up at any time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Batch, BatchBuilder, Bitmap, Encoding, Span, Stream};
use bytes::Bytes;
use component::{AnyOutput, Build, Encoded, Output, Request, Rows, Sender, Spec, Writer};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Workspace, context, pair, settings};

/// How many events have arrived.
pub type Arrived = Box<dyn Fn() -> usize>;

/// How an output is tried.
pub struct OutputCase {
    /// The component.
    pub name: &'static str,
    /// Its settings, in YAML.
    pub settings: fn(&Workspace) -> String,
    /// Starts what is written to. Where nobody can count what arrives, nothing is written.
    pub remote: Option<fn(&Workspace) -> Arrived>,
}

/// How long anything may take.
const SOON: Duration = Duration::from_secs(10);

/// Checks every output, but for those that this build is without (`absent`).
///
/// # Panics
/// One does not conform, or has no case.
pub fn check(specs: &'static [Spec], cases: &'static [OutputCase], absent: &[&str]) {
    let runtime = Runtime::new().expect("a runtime");
    for (spec, case) in pair(specs, cases, absent, |case| case.name) {
        let place = Workspace::new();
        let arrived = case.remote.map(|remote| remote(&place));
        let node = settings(&(case.settings)(&place));
        let built = match spec.build {
            Build::Writer { build, .. } => build(&node, &context(true)).map(AnyOutput::Writer),
            Build::Sender(build) => build(&node, &context(true)).map(AnyOutput::Sender),
            _ => panic!("{} is no output", spec.name),
        };
        let built = built.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let opened = runtime.block_on(built.output().open());
        opened.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let is_sender = matches!(built, AnyOutput::Sender(_));
        for batch in [lines(0), lines(1), lines(100), documents(100)] {
            renders(case.name, &*built.output(), &batch, is_sender);
        }
        match built {
            AnyOutput::Writer(writer) => writes(&runtime, case.name, &*writer, arrived.as_ref()),
            AnyOutput::Sender(sender) => sends(&runtime, case.name, &sender, arrived.as_ref()),
            AnyOutput::Feeder(_) => {}
        }
    }
}

fn renders(name: &str, output: &dyn Output, batch: &Batch, is_sender: bool) {
    let len = batch.len();
    for rows in [
        Bitmap::none(len),
        Bitmap::from_fn(len, |row| row % 3 == 1),
        Bitmap::from_fn(len, |_| true),
    ] {
        let render = || {
            let mut encoded = Encoded::default();
            output.encode(batch, &rows, &mut encoded);
            encoded
        };
        let (encoded, again) = (render(), render());
        assert_eq!(
            encoded.bytes, again.bytes,
            "{name}: the same rows, the same bytes"
        );
        let refused: Vec<usize> = encoded.refused.iter().map(|answer| answer.row).collect();
        assert_eq!(
            encoded.rows + refused.len(),
            rows.count(),
            "{name}: each row counts once"
        );
        if !is_sender {
            continue;
        }
        let rendered: Vec<usize> = encoded.ends.iter().map(|end| end.row as usize).collect();
        let mut both = [rendered, refused].concat();
        both.sort_unstable();
        assert!(
            both.into_iter().eq(rows.iter()),
            "{name}: those rows and no others"
        );
        let ends: Vec<usize> = encoded.ends.iter().map(|end| end.end).collect();
        assert!(ends.is_sorted(), "{name}: rows lie one after the other");
        let last = ends.last().copied().unwrap_or(0);
        assert_eq!(
            last,
            encoded.bytes.len(),
            "{name}: the last row ends where the bytes end"
        );
        let begins = encoded.parts.iter().map(|part| part.bytes.start);
        assert!(begins.is_sorted(), "{name}: parts lie one after the other");
    }
}

fn writes(runtime: &Runtime, name: &str, writer: &dyn Writer, arrived: Option<&Arrived>) {
    let rows = if arrived.is_some() { 100 } else { 0 };
    let mut written = 0;
    for batch in [lines(rows), documents(rows), lines(rows)] {
        let mut encoded = Encoded::default();
        writer.encode(&batch, batch.alive(), &mut encoded);
        let outcome = runtime.block_on(writer.write(&encoded));
        let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        written += encoded.rows - outcome.refused.len();
    }
    for end in [
        runtime.block_on(writer.flush()),
        runtime.block_on(writer.close()),
    ] {
        end.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    if let Some(arrived) = arrived {
        assert_eq!(arrived(), written, "{name}: what was written has arrived");
    }
}

fn sends(runtime: &Runtime, name: &str, sender: &Arc<dyn Sender>, arrived: Option<&Arrived>) {
    let requests = sender.requests();
    let mut bodies = Vec::new();
    for batch in [lines(100), documents(100)] {
        let mut encoded = Encoded::default();
        sender.encode(&batch, batch.alive(), &mut encoded);
        let destination = encoded.parts.first().map(|part| part.destination.clone());
        // One row a request fits every output.
        let mut start = 0;
        for end in &encoded.ends {
            let row = &encoded.bytes[start..end.end];
            let framing = requests.framing;
            let destination = destination.clone().unwrap_or_else(|| "".into());
            let mut text = [framing.before, row, framing.after].concat();
            let packed = sender.pack(&mut Rows {
                destination: &destination,
                text: &mut text,
                ends: &[framing.before.len() + row.len()],
            });
            let packed = packed.unwrap_or_else(|error| panic!("{name}: {error}"));
            bodies.push(Request {
                id: bodies.len() as u128,
                destination,
                body: packed.unwrap_or_else(|| Bytes::from(text)),
                rows: 1,
                attempt: 0,
            });
            start = end.end;
        }
    }
    // Given up after a moment, wherever that is.
    for (micros, request) in bodies.iter().take(20).enumerate() {
        let patience = Duration::from_micros(micros as u64 * 50);
        let _ = runtime.block_on(async { timeout(patience, sender.send(request)).await });
    }
    let given_up = arrived.map_or(0, |arrived| arrived());
    let sending: Vec<_> = bodies
        .into_iter()
        .map(|request| {
            let sender = sender.clone();
            runtime.spawn(async move { sender.send(&request).await })
        })
        .collect();
    let count = sending.len();
    for sent in sending {
        let sent = runtime.block_on(async { timeout(SOON, sent).await });
        let sent = sent.unwrap_or_else(|_| panic!("{name}: a request does not end"));
        let sent = sent.expect("it does not panic");
        let sent = sent.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            sent.retry.is_empty() && sent.refused.is_empty(),
            "{name}: {sent:?}"
        );
    }
    let Some(arrived) = arrived else { return };
    let begin = Instant::now();
    while arrived() < count + given_up {
        assert!(
            begin.elapsed() < SOON,
            "{name}: {} of {count} arrived",
            arrived()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lines(count: usize) -> Batch {
    let rows: Vec<String> = (0..count).map(|row| format!("line {row}")).collect();
    batch(Encoding::Text, &rows)
}

fn documents(count: usize) -> Batch {
    let rows = (0..count).map(|row| format!(r#"{{"message":"line {row}","n":{row}}}"#));
    batch(Encoding::Json, &rows.collect::<Vec<_>>())
}

fn batch(encoding: Encoding, rows: &[String]) -> Batch {
    let mut builder = BatchBuilder::new(encoding, &context(true).host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let buffer = builder.buffer(rows.concat().into());
    let mut start = 0;
    for row in rows {
        let len = row.len() as u32;
        let end = start + len;
        builder.push(Span { buffer, start, len }, start.into(), end.into());
        start = end;
    }
    builder.finish()
}
