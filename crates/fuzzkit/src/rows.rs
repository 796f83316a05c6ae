//! What must hold for the rows of any batch.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, JsonWriter, MsgPackWriter, Span, Stream};
use batch::{json, msgpack};
use bytes::Bytes;

pub(crate) fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo { name: "h".into() })
}

/// The rows as JSON. Every way to write them must give a document, and a batch that was stored the same ones.
pub(crate) fn checked(batch: &Batch) -> Vec<String> {
    let rows = written(batch);
    let frozen = batch.freeze();
    let payload = [&frozen.head[..], &frozen.documents.concat()].concat();
    let thawed = Batch::thaw(Bytes::from(payload));
    let thawed = thawed.expect("a batch that was stored can be read");
    assert_eq!(written(&thawed), rows, "a stored batch is what it was");
    rows
}

fn written(batch: &Batch) -> Vec<String> {
    let (writer, packed) = (JsonWriter::new(batch), MsgPackWriter::new(batch));
    let row = |row| {
        let (mut text, mut document) = (Vec::new(), Vec::new());
        writer.write(row, &mut text);
        packed.write(row, &mut document);
        let text = String::from_utf8(text).expect("JSON is UTF-8");
        let checked = json::validate_object(text.as_bytes());
        assert!(checked.is_ok(), "{checked:?}: {text}");
        assert!(!text.contains('\n'), "a line each: {text}");
        let checked = msgpack::validate_map(&document);
        assert!(checked.is_ok(), "{checked:?}: {document:x?}");
        text
    };
    batch.alive().iter().map(row).collect()
}

/// A batch with an event for each line: a document where it is a JSON object in normal form, otherwise text.
pub(crate) fn batch_of(text: &str) -> Batch {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for (number, line) in (0..).zip(text.lines()) {
        let bytes = Bytes::copy_from_slice(line.as_bytes());
        let span = Span {
            buffer: builder.buffer(bytes),
            start: 0,
            len: line.len() as u32,
        };
        match json::validate_object(line.as_bytes()) {
            Ok(scan) if !scan.rewrite && line.starts_with('{') && line.ends_with('}') => {
                if scan.dotted_keys {
                    builder.dotted_keys();
                }
                builder.push(span, number, number + 1);
            }
            _ => builder.push_text(span, number, number + 1),
        }
    }
    builder.finish()
}
