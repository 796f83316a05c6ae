//! Batches for tests.

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, Span, Stream, json};
use bytes::Bytes;

/// When every test batch was received: 2024-03-01T00:00:00Z.
pub const RECEIVED: i64 = 1_709_251_200_000_000_000;

/// A batch of JSON documents.
pub fn batch(documents: &[impl AsRef<str>]) -> Batch {
    let host = Arc::new(HostInfo {
        name: "test".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, RECEIVED, false);
    builder.stream(&Arc::new(Stream { id: 1, path: None }));
    for (row, document) in documents.iter().enumerate() {
        let mut text = document.as_ref().as_bytes().to_vec();
        let scan = json::validate_object(&text).expect("a JSON object");
        if scan.rewrite {
            let mut normal = Vec::new();
            json::normalise(&text, &mut normal);
            text = normal;
        }
        let len = text.len() as u32;
        if scan.dotted_keys {
            builder.dotted_keys();
        }
        let buffer = builder.buffer(Bytes::from(text));
        let span = Span {
            buffer,
            start: 0,
            len,
        };
        builder.push(span, row as u64, row as u64 + 1);
    }
    builder.finish()
}
