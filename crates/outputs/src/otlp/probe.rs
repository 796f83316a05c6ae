//! Requests from memory, for the crate `fuzzkit`.

use std::sync::Arc;

use batch::{BatchBuilder, Encoding, HostInfo, Span, Stream};
use codec::otlp::wire::{Open, bytes_tag};

use super::origin::Origins;
use super::record::{Mapping, RecordWriter, Wanted};

/// The request with an event, a valid JSON object, as the output makes it with its default settings.
pub fn otlp(event: &[u8]) -> Vec<u8> {
    let wanted = |names: &[&str]| {
        let paths = names
            .iter()
            .filter_map(|name| batch::FieldPath::parse(name).ok());
        paths.map(|path| Wanted::new(&path)).collect()
    };
    let mapping = Mapping {
        severity: wanted(&["log.level", "level", "severity"]),
        trace: wanted(&["trace.id", "trace_id"]),
        span: wanted(&["span.id", "span_id"]),
        is_whole: false,
        flattens: false,
        origins: Origins::default(),
    };
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    builder.dotted_keys();
    let buffer = builder.buffer(event.to_vec().into());
    let (start, len) = (0, event.len() as u32);
    builder.push(Span { buffer, start, len }, 0, 1);
    let batch = builder.finish();
    let mut writer = RecordWriter::new(&mapping, &batch);
    let mut request = Vec::new();
    writer.load(0);
    if writer.has_origin() {
        writer.write_alone("", &mut request);
        return request;
    }
    let logs = Open::begin(&mut request, bytes_tag(1), 1);
    let scope_logs = Open::begin(&mut request, bytes_tag(2), 1);
    writer.write(&mut request);
    scope_logs.end(&mut request);
    logs.end(&mut request);
    request
}
