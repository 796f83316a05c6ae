//! Batches for tests.
#![allow(dead_code, reason = "not every test binary builds every kind of batch")]

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Bitmap, Cell, Encoding, HostInfo, Span, Stream, json, msgpack};
use bytes::Bytes;
use expr::Expr;

/// When every test batch was received: 2024-03-01T00:00:00Z.
pub const RECEIVED: i64 = 1_709_251_200_000_000_000;

/// A batch of JSON documents.
pub fn batch(documents: &[impl AsRef<str>]) -> Batch {
    build(Encoding::Json, documents, |text| text)
}

/// A batch of MessagePack documents, given as JSON.
pub fn messagepack_batch(documents: &[impl AsRef<str>]) -> Batch {
    build(Encoding::MsgPack, documents, |text| {
        let mut bytes = Vec::new();
        msgpack::from_json(&text, &mut bytes);
        bytes
    })
}

fn build(
    encoding: Encoding,
    documents: &[impl AsRef<str>],
    encode: impl Fn(Vec<u8>) -> Vec<u8>,
) -> Batch {
    let host = Arc::new(HostInfo {
        name: "test".into(),
    });
    let mut builder = BatchBuilder::new(encoding, &host, RECEIVED, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for (row, document) in documents.iter().enumerate() {
        let mut text = document.as_ref().as_bytes().to_vec();
        let scan = json::validate_object(&text).expect("a JSON object");
        if scan.rewrite {
            let mut normal = Vec::new();
            json::normalise(&text, &mut normal);
            text = normal;
        }
        if scan.dotted_keys {
            builder.dotted_keys();
        }
        let bytes = encode(text);
        let len = bytes.len() as u32;
        let buffer = builder.buffer(Bytes::from(bytes));
        builder.push(
            Span {
                buffer,
                start: 0,
                len,
            },
            row as u64,
            row as u64 + 1,
        );
    }
    builder.finish()
}

/// The value as JSON, `absent`, or `error: …`; and for truth values the same question as a filter.
pub fn value(document: &str, text: &str) -> String {
    let batch = batch(&[document]);
    let expr =
        Expr::parse(text).unwrap_or_else(|error| panic!("{text}: {error} at {:?}", error.at));
    let rows = Bitmap::all(1);
    let filtered = expr.filter(&batch, &rows);
    let evaluated = expr.evaluate(&batch, &rows);
    if let [(0, message)] = &evaluated.errors[..] {
        assert_eq!(evaluated.column.cell(0), Cell::Keep, "{text}");
        assert_eq!(
            filtered.first_error,
            Some((0, message.to_string())),
            "{text}"
        );
        assert_eq!((filtered.errors, filtered.holds.count()), (1, 0), "{text}");
        return format!("error: {message}");
    }
    let value = evaluated.column.value(0);
    let holds = value == batch::Value::Bool(true);
    assert_eq!(filtered.holds.contains(0), holds, "{text} as a filter");
    if value.is_missing() {
        return "absent".to_owned();
    }
    let mut out = Vec::new();
    value.write_json(&mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Checks expressions and their values for one document.
pub fn check(document: &str, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(value(document, text), *expected, "{text} for {document}");
    }
}
