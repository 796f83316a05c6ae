use batch::msgpack::{elements, from_json, to_json};
use component::Encoded;

use super::*;
use crate::testing;

fn rendered(yaml: &str, batch: &Batch) -> Encoded {
    let output = testing::build_sender(&SPEC, yaml).expect("settings");
    testing::encode(&*output, batch)
}

/// The entries of chunks, as JSON; event times are shown in hexadecimal.
fn entries(encoded: &Encoded) -> Vec<String> {
    let starts = std::iter::once(0).chain(encoded.ends.iter().map(|row| row.end));
    let rows = starts.zip(&encoded.ends);
    rows.map(|(start, row)| {
        let mut text = Vec::new();
        to_json(&encoded.bytes[start..row.end], &mut text);
        String::from_utf8(text).expect("text")
    })
    .collect()
}

fn tags(encoded: &Encoded) -> Vec<&str> {
    let parts = encoded.parts.iter();
    parts.map(|part| &*part.destination).collect()
}

#[test]
fn events_become_entries_with_their_time() {
    let batch = testing::documents(&[
        r#"{"a":1,"@timestamp":"1970-01-01T00:00:01.000000005Z"}"#,
        r#"{"@timestamp":"1969-12-31T23:59:59Z"}"#,
        r#"{"b":"x"}"#,
    ]);
    let encoded = rendered("hosts: h", &batch);
    assert_eq!(tags(&encoded), ["millpond"]);
    let first = &encoded.bytes[..encoded.ends[0].end];
    assert_eq!(&first[..11], [0x92, 0xD7, 0, 0, 0, 0, 1, 0, 0, 0, 5]);
    let mut record = Vec::new();
    from_json(
        br#"{"a":1,"@timestamp":"1970-01-01T00:00:01.000000005Z"}"#,
        &mut record,
    );
    assert_eq!(first[11..], record);
    let shown = entries(&encoded);
    assert!(shown[1].starts_with("[-1,{"), "{}", shown[1]);
    assert!(shown[2].ends_with(r#"{"b":"x"}]"#), "{}", shown[2]);
}

#[test]
fn entries_carry_ids_where_that_is_wanted() {
    let batch = testing::documents(&[r#"{"a":1}"#]);
    let encoded = rendered("{hosts: h, event_ids: true}", &batch);
    let id = batch.origin().shown_id(0);
    let expected = format!(r#",{{"_id":"{id}"}}],{{"a":1}}]"#);
    let shown = &entries(&encoded)[0];
    assert!(
        shown.starts_with("[[") && shown.ends_with(&expected),
        "{shown}"
    );
}

#[test]
fn tags_are_kept_or_made_by_the_template() {
    let batch = testing::documents(&[
        r#"{"fluent":{"tag":"a"},"s":"x"}"#,
        r#"{"fluent":{"tag":""}}"#,
        r#"{"fluent":{"tag":"a"},"s":"x"}"#,
    ]);
    for (yaml, expected) in [
        ("hosts: h", &["a", "millpond"][..]),
        ("{hosts: h, tag: 'app.%{s}'}", &["app.x", "app.-"]),
        ("{hosts: h, tag: app}", &["app"]),
    ] {
        let encoded = rendered(yaml, &batch);
        assert_eq!(tags(&encoded), expected, "{yaml}");
        assert_eq!((encoded.rows, encoded.ends.len()), (3, 3), "{yaml}");
    }
}

fn chunks(compression: Option<&'static str>) -> Chunks {
    Chunks {
        compression,
        credentials: None,
    }
}

#[test]
fn a_request_is_a_message_with_its_chunk() {
    let request = Request {
        id: 0xAB,
        destination: "app".into(),
        body: Bytes::from_static(b"body"),
        rows: 7,
        attempt: 0,
    };
    let message = chunks(Some("gzip")).message(&request).concat();
    let parts: Vec<_> = elements(&message).collect();
    assert_eq!(read(&message, parts[0].start).0, Value::Str(&b"app"[..]));
    assert_eq!(read(&message, parts[1].start).0, Value::Bin(&b"body"[..]));
    let mut options = Vec::new();
    to_json(&message[parts[2].clone()], &mut options);
    assert_eq!(
        String::from_utf8(options).expect("text"),
        r#"{"size":7,"chunk":"000000000000000000000000000000ab","compressed":"gzip"}"#
    );
}

#[test]
fn acknowledgements_are_read() {
    let mut ack = Vec::new();
    let text = format!(r#"{{"ack":"{}"}}"#, chunk_id(7));
    from_json(text.as_bytes(), &mut ack);
    for end in 0..ack.len() {
        assert_eq!(chunks(None).answer(&ack[..end]), Ok(None));
    }
    let len = ack.len();
    ack.push(0xC0);
    let answer = chunks(None).answer(&ack);
    assert_eq!(answer, Ok(Some((Answer::Request(7), len))));
    for wrong in [
        &[0xC0][..],
        b"HTTP",
        &[0xC1],
        &[0x81, 0xA3, b'a', b'c', b'k', 7],
    ] {
        assert!(chunks(None).answer(wrong).is_err(), "{wrong:?}");
    }
    let mut helo = Vec::new();
    from_json(
        br#"["HELO",{"nonce":"n","auth":"","keepalive":true}]"#,
        &mut helo,
    );
    let error = chunks(None).answer(&helo).expect_err("no acknowledgement");
    assert!(error.contains("set `shared_key`"), "{error}");
}

#[test]
fn settings_that_cannot_work_are_refused_at_their_place() {
    for (yaml, part) in [
        ("{}", "`hosts` is missing"),
        ("{hosts: h, username: u}", "requires a `shared_key`"),
        (
            "{hosts: h, shared_key: k, username: u}",
            "require each other",
        ),
        (
            "{hosts: h, compression_level: 3}",
            "requires a `compression`",
        ),
        ("{hosts: h, tag: '%{a'}", "is not closed"),
        ("{hosts: h, timezone: Mars/X}", "is not a time zone"),
        (
            "{hosts: h, shared_key: 'file:/does/not/exist'}",
            "/does/not/exist",
        ),
    ] {
        let error = match testing::build_sender(&SPEC, yaml) {
            Ok(output) => testing::wait(output.open()).expect_err(yaml),
            Err(error) => error,
        };
        assert!(error.to_string().contains(part), "{yaml}: {error}");
    }
}
