//! Log records as documents.

use super::*;
use crate::otlp::any::{from_json, write_member};
use crate::otlp::wire::{bytes_tag, fixed32_tag, fixed64_tag, varint_tag, write_bytes};

/// A request with one record of these bytes.
fn request(record: &[u8]) -> Vec<u8> {
    let (mut scope, mut logs, mut request) = (Vec::new(), Vec::new(), Vec::new());
    write_bytes(&mut scope, bytes_tag(2), record);
    write_bytes(&mut logs, bytes_tag(2), &scope);
    write_bytes(&mut request, bytes_tag(1), &logs);
    request
}

/// The document and the id of a record.
fn read(record: &[u8]) -> (String, Option<String>) {
    let mut all = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let read = Documents::new(10).read(&request(record), |document| {
        let scan = text::validate_object(document.text).expect("a document");
        assert!(!scan.rewrite, "it is in normal form");
        all.push((text(document.text), document.id.map(text)));
    });
    read.expect("a request");
    all.pop().expect("a record")
}

fn attributes(members: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in members {
        write_member(&mut out, bytes_tag(6), key.as_bytes(), value.as_bytes());
    }
    out
}

fn body(value: &str) -> Vec<u8> {
    let (mut any, mut out) = (Vec::new(), Vec::new());
    from_json(value.as_bytes(), &mut any);
    write_bytes(&mut out, bytes_tag(5), &any);
    out
}

fn fixed64(number: u8, value: u64) -> Vec<u8> {
    [&[fixed64_tag(number)][..], &value.to_le_bytes()].concat()
}

#[test]
fn fields_have_their_names() {
    let mut all = [
        fixed64(1, 1_431_857_103_000_000_001),
        vec![varint_tag(2), 17],
        body("\"a text\""),
        attributes(&[("a.b", "1"), ("log.record.uid", "\"an id\"")]),
        vec![varint_tag(7), 3],
        vec![fixed32_tag(8), 1, 0, 0, 0],
    ]
    .concat();
    write_bytes(&mut all, bytes_tag(3), b"ERR");
    write_bytes(&mut all, bytes_tag(9), &[0xAB; 16]);
    write_bytes(&mut all, bytes_tag(10), &[0; 8]);
    write_bytes(&mut all, bytes_tag(12), b"login");
    let (document, id) = read(&all);
    assert_eq!(
        document,
        r#"{"@timestamp":"2015-05-17T10:05:03.000000001Z","message":"a text","a.b":1,"log.level":"ERR","trace_flags":1,"dropped_attributes_count":3,"trace.id":"abababababababababababababababab","event_name":"login"}"#
    );
    assert_eq!(id.as_deref(), Some("an id"));
}

#[test]
fn a_record_may_have_nothing() {
    assert_eq!(read(b"").0, "{}");
    assert_eq!(read(&body("null")).0, "{}");
    assert_eq!(read(&body(r#"{"a":[1]}"#)).0, r#"{"body":{"a":[1]}}"#);
    let observed = fixed64(11, 1_431_857_103_000_000_000);
    assert_eq!(
        read(&observed).0,
        r#"{"@timestamp":"2015-05-17T10:05:03.000Z"}"#
    );
    // A number that does not follow from the text.
    let severity = vec![varint_tag(2), 9];
    assert_eq!(read(&severity).0, r#"{"severity_number":9}"#);
}

#[test]
fn attributes_with_names_that_are_taken_stay() {
    let record = [
        attributes(&[
            ("message", "1"),
            ("body", "2"),
            ("attributes", "3"),
            ("x", "4"),
        ]),
        body("\"text\""),
    ]
    .concat();
    assert_eq!(
        read(&record).0,
        r#"{"message":"text","body":2,"x":4,"attributes":{"message":1,"attributes":3}}"#
    );
    let own = attributes(&[("@timestamp", "\"yesterday\""), ("attributes", "{\"a\":1}")]);
    assert_eq!(
        read(&[own, fixed64(11, 5)].concat()).0,
        r#"{"@timestamp":"yesterday","attributes":{"a":1}}"#
    );
}

#[test]
fn what_an_attribute_spells_out_is_not_repeated() {
    let mut record = attributes(&[("log", r#"{"level":"warn","logger":"x"}"#)]);
    write_bytes(&mut record, bytes_tag(3), b"warn");
    record.extend([varint_tag(2), 13]);
    assert_eq!(read(&record).0, r#"{"log":{"level":"warn","logger":"x"}}"#);
    write_bytes(&mut record, bytes_tag(3), b"WARNING");
    assert_eq!(
        read(&record).0,
        r#"{"log":{"level":"warn","logger":"x"},"log.level":"WARNING"}"#
    );
    let mut trace = attributes(&[("trace", r#"{"id":"0A0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}"#)]);
    write_bytes(&mut trace, bytes_tag(9), &[10; 16]);
    assert_eq!(
        read(&trace).0,
        r#"{"trace":{"id":"0A0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"}}"#
    );
}

#[test]
fn of_a_key_the_last_value_counts_and_texts_are_mended() {
    let mut record = attributes(&[("a", "1"), ("b", "2"), ("a", "3")]);
    assert_eq!(read(&record).0, r#"{"a":3,"b":2}"#);
    record.clear();
    write_bytes(&mut record, bytes_tag(5), b"\x0A\x03x\xFFy");
    assert_eq!(read(&record).0, "{\"message\":\"x\u{fffd}y\"}");
    // An id that is none stays an attribute.
    let long = format!("\"{}\"", "x".repeat(513));
    let (document, id) = read(&attributes(&[("log.record.uid", &long)]));
    assert_eq!(document, format!("{{\"log.record.uid\":{long}}}"));
    assert_eq!(id, None);
}

#[test]
fn resource_and_scope_stand_in_every_document() {
    let (mut resource, mut scope) = (Vec::new(), Vec::new());
    write_member(&mut resource, bytes_tag(1), b"service.name", b"\"web\"");
    write_bytes(&mut scope, bytes_tag(1), b"lib");
    let (mut scope_logs, mut logs, mut request) = (Vec::new(), Vec::new(), Vec::new());
    write_bytes(
        &mut scope_logs,
        bytes_tag(2),
        &attributes(&[("scope", "1")]),
    );
    write_bytes(&mut scope_logs, bytes_tag(2), b"");
    write_bytes(&mut scope_logs, bytes_tag(1), &scope);
    write_bytes(&mut logs, bytes_tag(2), &scope_logs);
    write_bytes(&mut logs, bytes_tag(1), &resource);
    write_bytes(&mut logs, bytes_tag(3), b"http://schema");
    write_bytes(&mut request, bytes_tag(1), &logs);
    let mut documents = Vec::new();
    let read = Documents::new(10).read(&request, |document| {
        documents.push(String::from_utf8_lossy(document.text).into_owned());
    });
    read.expect("a request");
    let context = r#""resource":{"attributes":{"service.name":"web"},"schema_url":"http://schema"},"scope":{"name":"lib"}}"#;
    assert_eq!(
        documents,
        [
            format!(r#"{{"attributes":{{"scope":1}},{context}"#),
            format!("{{{context}")
        ]
    );
}

#[test]
fn malformed_and_deep_requests_are_refused() {
    let mut documents = Documents::new(3);
    let mut refused = |request: &[u8]| documents.read(request, |_| {}).err();
    assert_eq!(refused(&[0x0A, 9]), Some(WireError::Truncated));
    assert_eq!(refused(&[0x08, 9]), Some(WireError::WrongType(1)));
    assert_eq!(
        refused(&request(&[varint_tag(1), 1])),
        Some(WireError::WrongType(1))
    );
    assert_eq!(refused(&request(&body("[[[]]]"))), None);
    assert_eq!(
        refused(&request(&body("[[[[]]]]"))),
        Some(WireError::TooDeep)
    );
}
