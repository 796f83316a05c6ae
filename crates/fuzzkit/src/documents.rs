//! Documents, and bodies that hold several.

use std::sync::Arc;

use batch::msgpack::Extent;
use batch::{BatchBuilder, Encoding, JsonWriter, MsgPackWriter, Span, Stream, json, msgpack};
use bytes::Bytes;
use codec::{BodyFormat, Documents};
use serde::de::IgnoredAny;

use crate::choice;
use crate::rows::{checked, host};

/// Deeper documents are not read by the readers that results are compared with.
const DEPTH_MAX: usize = 100;

/// A JSON document: accepted where it is one, and written as it came.
pub(crate) fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let scan = json::validate_object(bytes);
    let is_deep = bytes.iter().filter(|byte| b"{[".contains(byte)).count() > DEPTH_MAX;
    if !is_deep {
        let is_object = text.trim_ascii_start().starts_with('{');
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        assert_eq!(scan.is_ok(), is_object && is_json, "{scan:?}: {text}");
    }
    let Ok(scan) = scan else {
        return;
    };
    let document = text.trim_ascii().as_bytes();
    let mut normal = document.to_vec();
    if scan.rewrite {
        normal.clear();
        json::normalise(document, &mut normal);
        let again = json::validate_object(&normal).expect("a document is written");
        // The value that had such a key may be one that does not count.
        assert!(scan.dotted_keys || !again.dotted_keys);
        // Keys with escapes that stay, such as control characters, are looked at again.
        let mut twice = Vec::new();
        json::normalise(&normal, &mut twice);
        assert_eq!(twice, normal, "in normal form");
    }
    if let (false, Ok(before)) = (is_deep, serde_json::from_str::<serde_json::Value>(text)) {
        let after: serde_json::Value = serde_json::from_slice(&normal).expect("it was read before");
        assert_eq!(after, before, "the same values");
    }
    let batch = one(Encoding::Json, &normal, scan.dotted_keys);
    let mut written = Vec::new();
    JsonWriter::new(&batch).write(0, &mut written);
    assert_eq!(written, normal, "byte for byte");
    if !normal.contains(&b'\n') {
        checked(&batch);
    }
    // Whatever a document holds can be found, and packed.
    for member in json::members(&normal) {
        let mut key = Vec::new();
        json::unescape(member.key, &mut key);
        json::find(&normal, member.key).expect("it was listed");
    }
    let mut packed = Vec::new();
    msgpack::from_json(&normal, &mut packed);
    msgpack::validate_map(&packed).expect("a document is packed");
}

/// A MessagePack document: its end is found however it comes, and it is written as it came.
pub(crate) fn msgpack(bytes: &[u8]) {
    let whole = Extent::default().advance(bytes);
    let mut extent = Extent::default();
    let pieces = (0..=bytes.len()).find_map(|end| match extent.advance(&bytes[..end]) {
        Ok(None) => None,
        found => Some(found),
    });
    match (&whole, pieces) {
        (Ok(None), None) => {}
        (Ok(Some(_)) | Err(_), Some(found)) => assert_eq!(whole, found),
        (_, found) => panic!("{whole:?} at once and {found:?} in pieces"),
    }
    assert_eq!(whole.ok().flatten(), msgpack::value_len(bytes, 0).ok());
    let Ok((scan, end)) = msgpack::validate_map_at(bytes, 0) else {
        return;
    };
    assert_eq!(whole, Ok(Some(end)), "a map that is good is whole");
    let document = &bytes[..end];
    let mut normal = document.to_vec();
    if scan.rewrite {
        normal.clear();
        msgpack::normalise(document, &mut normal);
        let again = msgpack::validate_map(&normal).expect("a document is written");
        assert!(!again.rewrite, "in normal form");
    }
    let batch = one(Encoding::MsgPack, &normal, scan.dotted_keys);
    let mut written = Vec::new();
    MsgPackWriter::new(&batch).write(0, &mut written);
    assert_eq!(written, normal, "byte for byte");
    checked(&batch);
}

/// A batch of one document.
fn one(encoding: Encoding, document: &[u8], has_dots: bool) -> batch::Batch {
    let mut builder = BatchBuilder::new(encoding, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    if has_dots {
        builder.dotted_keys();
    }
    let span = Span {
        buffer: builder.buffer(Bytes::copy_from_slice(document)),
        start: 0,
        len: document.len() as u32,
    };
    builder.push(span, 0, 1);
    builder.finish()
}

/// The body of a request: taken as a whole or not at all.
pub(crate) fn body(bytes: &[u8]) {
    let Some((choice, bytes)) = choice(bytes) else {
        return;
    };
    let formats = [BodyFormat::Json, BodyFormat::Ndjson, BodyFormat::Lines];
    let format = formats[choice % 3];
    let message = Bytes::copy_from_slice(bytes);
    let mut documents = Documents::default();
    let read = documents.read(&message, format);
    assert!(read.is_ok() || documents.is_empty(), "all or nothing");
    let (mut from, mut rows) = (0, 0);
    while from < documents.len() {
        let mut builder = BatchBuilder::new(format.encoding(), &host(), 0, choice >= 128);
        builder.stream(&Arc::new(Stream::unnamed(1)));
        let next = documents.push(&message, from, 0, &mut builder);
        assert!(next > from, "some are taken");
        from = next;
        rows += checked(&builder.finish()).len();
    }
    assert_eq!(rows, documents.len());
}
