//! What the tests of this crate share.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream};
use component::{Build, BuildContext, Effects, Encoded, Output, Sender, Spec, Writer};
use config::{ConfigError, Source, parse_yaml};

/// The output that these settings build.
pub fn build(spec: &Spec, yaml: &str) -> Result<Arc<dyn Writer>, ConfigError> {
    let node = parse_yaml(&Source::new("test.yaml", yaml)).expect("the test's YAML is fine");
    let Build::Writer { build, .. } = spec.build else {
        panic!("{} is no writer", spec.name)
    };
    build(&node, &context())
}

/// The output that sends requests which these settings build.
pub fn build_sender(spec: &Spec, yaml: &str) -> Result<Arc<dyn Sender>, ConfigError> {
    let node = parse_yaml(&Source::new("test.yaml", yaml)).expect("the test's YAML is fine");
    let Build::Sender(build) = spec.build else {
        panic!("{} sends no requests", spec.name)
    };
    build(&node, &context())
}

/// A context without anything special in it.
pub fn context() -> BuildContext {
    BuildContext {
        host: host(),
        tag: None,
        finite: true,
        effects: Effects::All,
    }
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "test-host".into(),
    })
}

/// A batch of lines of text, received at the epoch.
pub fn lines(lines: &[&str]) -> Batch {
    rows(Encoding::Text, lines)
}

/// A batch of JSON documents, received at the epoch.
pub fn documents(documents: &[&str]) -> Batch {
    rows(Encoding::Json, documents)
}

fn rows(encoding: Encoding, rows: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(encoding, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    if rows.iter().any(|row| row.contains('.')) {
        builder.dotted_keys();
    }
    let buffer = builder.buffer(rows.concat().into());
    let mut start = 0;
    for row in rows {
        let len = row.len() as u32;
        builder.push(
            Span { buffer, start, len },
            u64::from(start),
            u64::from(start + len),
        );
        start += len;
    }
    builder.finish()
}

/// What an output makes of all rows of a batch.
pub fn encode(output: &dyn Output, batch: &Batch) -> Encoded {
    let mut encoded = Encoded::default();
    output.encode(batch, batch.alive(), &mut encoded);
    encoded
}

/// Runs a future to its end.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// The bytes as a gzip file.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, content).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}
