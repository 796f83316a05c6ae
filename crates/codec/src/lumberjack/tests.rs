use std::sync::Arc;

use batch::{BatchBuilder, Encoding, FieldPath, HostInfo, JsonWriter, Stream};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    frame_bytes_max: 1000,
    window_events_max: 100,
};

fn window(version: u8, events: u32) -> Vec<u8> {
    [&[version, b'W'][..], &events.to_be_bytes()].concat()
}

fn long(kind: &[u8; 2], numbers: &[u32], content: &[u8]) -> Vec<u8> {
    let mut frame = kind.to_vec();
    for number in numbers {
        frame.extend(number.to_be_bytes());
    }
    frame.extend((content.len() as u32).to_be_bytes());
    frame.extend(content);
    frame
}

fn pairs(sequence: u32, texts: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut frame = b"1D".to_vec();
    frame.extend(sequence.to_be_bytes());
    frame.extend((texts.len() as u32).to_be_bytes());
    for text in texts.iter().flat_map(|(key, value)| [key, value]) {
        frame.extend((text.len() as u32).to_be_bytes());
        frame.extend(*text);
    }
    frame
}

/// Every kind of frame.
fn frames() -> Vec<(Vec<u8>, Frame)> {
    vec![
        (
            window(b'1', 7),
            Frame::Window {
                version: b'1',
                events: 7,
            },
        ),
        (
            window(b'2', 0),
            Frame::Window {
                version: b'2',
                events: 0,
            },
        ),
        (
            long(b"2J", &[3], b"{\"a\":1}"),
            Frame::Json {
                sequence: 3,
                document: 10..17,
            },
        ),
        (
            pairs(4, &[(b"k", b"value"), (b"", b"")]),
            Frame::Pairs {
                sequence: 4,
                count: 2,
                pairs: 10..32,
            },
        ),
        (
            pairs(5, &[]),
            Frame::Pairs {
                sequence: 5,
                count: 0,
                pairs: 10..10,
            },
        ),
        (long(b"2C", &[], b"zlib"), Frame::Compressed(6..10)),
        (long(b"1C", &[], b""), Frame::Compressed(6..6)),
    ]
}

#[test]
fn frames_are_read_from_any_number_of_bytes() {
    for (bytes, expected) in frames() {
        let more = [&bytes[..], b"2J"].concat();
        let parsed = Frame::parse(&more, LIMITS);
        assert_eq!(parsed, Ok(Some((expected, bytes.len()))));
        for len in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..len], LIMITS), Ok(None));
        }
        let (mut scanner, mut there) = (Scanner::default(), 0);
        loop {
            match scanner.extent(&bytes[..there], LIMITS) {
                Ok(Extent::Whole(end)) => break assert_eq!(end, bytes.len()),
                Ok(Extent::AtLeast(more)) => {
                    assert!(more > there && more <= bytes.len());
                    there = more;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn what_is_no_frame_is_refused_with_the_reason() {
    let huge = u32::MAX.to_be_bytes();
    for (bytes, reason) in [
        (
            &b"3"[..],
            "a frame begins with its version, 1 or 2, and here stands `3`",
        ),
        (b"\0\0", "here stands the byte 0x00"),
        (
            b"\x16\x03\x01",
            "the client speaks TLS, which is not enabled here",
        ),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"2X", "unknown frame type `X`"),
        (b"2A\0\0\0\x01", "unknown frame type `A`"),
        (b"2\xff", "unknown frame type the byte 0xff"),
        (
            &window(b'2', 101),
            "a window has 101 events, and at most 100",
        ),
        (
            &long(b"2J", &[1], &[b' '; 1001]),
            "a frame has 1001 bytes or more",
        ),
        (&[b"2C", &huge[..]].concat(), "a frame has 4294967295 bytes"),
        (
            &[b"1D\0\0\0\x01", &huge[..]].concat(),
            "and at most 1000 are accepted",
        ),
        (
            &[b"1D\0\0\0\x01\0\0\0\x01", &huge[..]].concat(),
            "and at most 1000 are accepted",
        ),
        (
            &pairs(1, &[(&[b'k'; 600], &[b'v'; 600])]),
            "and at most 1000 are accepted",
        ),
    ] {
        let error = Frame::parse(bytes, LIMITS).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_window_takes_the_events_that_it_announced_in_order() {
    let mut state = Window::default();
    let refused = |state: &mut Window, sequence, reason: &str| {
        let error = state.event(sequence).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused(&mut state, 1, "belongs to no window");
    assert_eq!(state.begin(b'2', 2), 0);
    assert_eq!((state.last(), state.is_complete()), (0, false));
    assert_eq!(state.event(1), Ok(()));
    refused(&mut state, 1, "sequence 1 and the one before 1");
    refused(&mut state, 3, "sequence 3 and the one before 1");
    assert_eq!(state.event(2), Ok(()));
    assert_eq!((state.last(), state.is_complete()), (2, true));
    refused(&mut state, 3, "belongs to no window");
    assert_eq!(state.begin(b'1', 3), 0);
    assert_eq!(state.event(u32::MAX), Ok(()));
    assert_eq!(state.event(0), Ok(()));
    assert_eq!(state.begin(b'2', 1), 1, "one did not come");
    assert_eq!(state.version(), b'2');
}

/// The events of documents: each as written, with its metadata and its id.
fn read(fill: impl FnOnce(&mut Events, &mut Vec<u8>)) -> Vec<[String; 3]> {
    let (mut events, mut buffer) = (Events::default(), Vec::new());
    fill(&mut events, &mut buffer);
    let buffers = events.freeze(Bytes::from(buffer), |side| Bytes::copy_from_slice(side));
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let (next, _) = events.push(&buffers, 0..events.len(), 5, &mut builder);
    assert_eq!(next, events.len());
    let batch = builder.finish();
    let metadata = batch.column(&FieldPath::from_keys(["@metadata"]));
    let row = |row| {
        let (mut document, mut beside, mut id) = (Vec::new(), Vec::new(), Vec::new());
        JsonWriter::new(&batch).write(row, &mut document);
        metadata.value(row).write_text(&mut beside);
        batch.origin().write_id(row, &mut id);
        [document, beside, id].map(|text| String::from_utf8(text).expect("UTF-8"))
    };
    (0..batch.len()).map(row).collect()
}

#[test]
fn documents_stay_as_they_came() {
    for (document, expected, metadata, id) in [
        (
            r#"{"a":1.0, "u":"\u00e9"}"#,
            r#"{"a":1.0, "u":"\u00e9"}"#,
            "",
            None,
        ),
        (" {\"a\":\r\n1}\n", "{\"a\":  1}", "", None),
        (
            r#"{"@timestamp":"t","@metadata":{"beat":"filebeat","_id":"x-1"},"message":"m"}"#,
            r#"{"@timestamp":"t","message":"m"}"#,
            r#"{"beat":"filebeat","_id":"x-1"}"#,
            Some("x-1"),
        ),
        (
            r#"{"@metadata":{"_id":"a\"\u00e9"}}"#,
            "{}",
            r#"{"_id":"a\"\u00e9"}"#,
            Some("a\"é"),
        ),
        (
            r#"{"a":1,"a":2,"@metadata":{"_id":"y"}}"#,
            r#"{"a":2}"#,
            r#"{"_id":"y"}"#,
            Some("y"),
        ),
        (r#"{"@metadata":{"_id":7}}"#, "{}", r#"{"_id":7}"#, None),
        (r#"{"@metadata":{"_id":""}}"#, "{}", r#"{"_id":""}"#, None),
        (r#"{"@metadata":7}"#, r#"{"@metadata":7}"#, "7", None),
    ] {
        let events = read(|events, buffer| {
            buffer.extend(b"head");
            buffer.extend(document.as_bytes());
            let range = 4..buffer.len();
            events.json(buffer, range, 1, |_| {}).expect(document);
        });
        let id = id.unwrap_or("00000000000000000000000000000001-5-6");
        assert_eq!(events, [[expected, metadata, id]], "{document}");
    }
}

#[test]
fn pairs_become_documents() {
    for (texts, expected) in [
        (&[][..], "{}"),
        (
            &[
                (&b"line"[..], &b"a \"quoted\"\nline"[..]),
                (b"host.name", b"h"),
            ],
            r#"{"line":"a \"quoted\"\nline","host.name":"h"}"#,
        ),
        (&[(b"a", b"1"), (b"a", b"2")], r#"{"a":"2"}"#),
        (&[(b"a", b"\xff")], "{\"a\":\"\u{fffd}\"}"),
    ] {
        let events = read(|events, buffer| {
            *buffer = pairs(1, texts);
            let parsed = Frame::parse(buffer, LIMITS).expect("a frame");
            let Some((Frame::Pairs { count, pairs, .. }, _)) = parsed else {
                panic!("{parsed:?}");
            };
            events.pairs(buffer, pairs, count, |_| {});
        });
        assert_eq!(events[0][0], expected);
    }
}

#[test]
fn memory_is_reserved_before_documents_are_rewritten() {
    let host = Arc::new(HostInfo { name: "h".into() });
    let keep = |side: &mut Vec<u8>| Bytes::from(std::mem::take(side));
    let (mut events, mut expected) = (Events::default(), Vec::new());
    let mut buffer = br#"{"b":1,"b":2}"#.to_vec();
    for (key, value) in [
        (&b"line"[..], b"\x01\n\"".repeat(1000)),
        (b"invalid", b"\xff\xfe a \xe2\x82".repeat(1000)),
        (b"empty", Vec::new()),
    ] {
        for texts in [&[(key, &value[..])][..], &[(key, b"1"), (key, &value)]] {
            let frame = pairs(1, texts);
            let count = texts.len() as u32;
            let mut reserved = 0;
            events.pairs(&frame, HEAD_BYTES..frame.len(), count, |bytes| {
                reserved = bytes;
            });
            let len = events.rewritten_len();
            assert!(len <= reserved, "{len} of {reserved}");
            assert!(count > 1 || len + 3 >= reserved, "{len} of {reserved}");
            events.seal(keep);
            assert_eq!(events.rewritten_len(), 0);
            let text = String::from_utf8_lossy(&value);
            let key = String::from_utf8_lossy(key);
            expected.push(serde_json::json!({ key: text }).to_string());
        }
    }
    let range = 0..buffer.len();
    let mut reserved = 0;
    let taken = events.json(&mut buffer, range, 1, |bytes| reserved = bytes);
    assert_eq!((taken, reserved), (Ok(()), buffer.len()));
    expected.push(r#"{"b":2}"#.to_owned());
    // Each lies in a part of its own.
    let buffers = events.freeze(buffer.into(), keep);
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    events.push(&buffers, 0..events.len(), 0, &mut builder);
    let batch = builder.finish();
    let row = |row| {
        let mut document = Vec::new();
        JsonWriter::new(&batch).write(row, &mut document);
        String::from_utf8(document).expect("UTF-8")
    };
    assert_eq!((0..batch.len()).map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn documents_that_are_none_are_refused_with_their_sequence() {
    for (document, reason) in [
        (&b"{\"a\":}"[..], "the event with sequence 9: invalid JSON"),
        (b"[1]", "not a JSON object"),
        (b"", "invalid JSON"),
        (b"{\"a\":\"\xff\"}", "not UTF-8"),
        (b"{} {}", "invalid JSON"),
    ] {
        let (mut events, mut buffer) = (Events::default(), document.to_vec());
        let range = 0..buffer.len();
        let error = events
            .json(&mut buffer, range, 9, |_| {})
            .expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
        assert!(events.is_empty());
    }
}

#[test]
fn an_id_that_cannot_be_one_is_counted() {
    let mut events = Events::default();
    let mut buffer = format!(r#"{{"@metadata":{{"_id":"{}"}}}}"#, "x".repeat(513)).into_bytes();
    let range = 0..buffer.len();
    events
        .json(&mut buffer, range, 1, |_| {})
        .expect("a document");
    let buffers = events.freeze(buffer.into(), |side| Bytes::copy_from_slice(side));
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    assert_eq!(events.push(&buffers, 0..1, 0, &mut builder), (1, 1));
}

proptest! {
    /// Whatever comes, the scanner ends, asks for no more than the limit, and agrees with the parser.
    #[test]
    fn any_bytes_are_scanned(
        start in prop::sample::select(vec!["", "1W", "2J", "1D", "2C", "1D\0\0\0\u{1}\0\0\0\u{2}"]),
        rest in prop::collection::vec(prop_oneof![4 => 0_u8..3, 1 => any::<u8>()], 0..80),
    ) {
        let bytes = [start.as_bytes(), &rest].concat();
        let (mut scanner, mut there) = (Scanner::default(), 0);
        let extent = loop {
            match scanner.extent(&bytes[..there], LIMITS) {
                Ok(Extent::AtLeast(more)) if more <= bytes.len() => {
                    prop_assert!(more > there);
                    there = more;
                }
                Ok(Extent::AtLeast(_)) => break scanner.extent(&bytes, LIMITS),
                other => break other,
            }
        };
        match (extent, Frame::parse(&bytes, LIMITS)) {
            (Ok(Extent::Whole(end)), Ok(Some((_, parsed)))) => prop_assert_eq!(end, parsed),
            (Ok(Extent::Whole(end)), Ok(None)) => prop_assert!(end > bytes.len()),
            (Ok(Extent::AtLeast(more)), Ok(None)) => {
                prop_assert!(more <= HEAD_BYTES + LIMITS.frame_bytes_max);
            }
            (Ok(_), Err(FrameError::TooLarge(_))) => prop_assert_eq!(bytes[1], b'W'),
            (Err(_), Err(_)) => {}
            (extent, parsed) => prop_assert!(false, "{extent:?} {parsed:?}"),
        }
    }

    /// Whatever is taken as a document is written as valid JSON.
    #[test]
    fn any_document_is_refused_or_written(
        document in "[ \\n]?\\{(\"(@metadata|a|_id)\" ?: ?(\\{(\"_id\":\"[a\\\\n]{0,3}\")?\\}|1|\"x\") ?,? ?){0,4}\\}",
    ) {
        let (mut events, mut buffer) = (Events::default(), document.clone().into_bytes());
        let range = 0..buffer.len();
        if events.json(&mut buffer, range, 1, |_| {}).is_ok() {
            let rows = read(|events, buffer| {
                *buffer = document.clone().into_bytes();
                let range = 0..buffer.len();
                events.json(buffer, range, 1, |_| {}).expect("as before");
            });
            prop_assert!(batch::json::validate_object(rows[0][0].as_bytes()).is_ok());
        }
    }
}
