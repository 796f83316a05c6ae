//! The sentences of the design that say what an event, its id and sealing are, each as a test.

use std::sync::Arc;

use batch::{
    Batch, BatchBuilder, Bitmap, Budget, Cell, Column, ColumnBuilder, Edit, Encoding, Failures,
    FieldPath, HostInfo, JsonWriter, MsgPackWriter, Source, Span, Stream, Value,
};

const RECEIVED: i64 = 1_431_857_103_000_000_000;

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).expect("a field name")
}

fn host() -> Arc<HostInfo> {
    Arc::new(HostInfo {
        name: "web-1".into(),
    })
}

fn file(path: &str) -> Source {
    Source::File { path: path.into() }
}

fn build(encoding: Encoding, documents: &[&str], source: Source, add_fields: bool) -> Batch {
    let mut builder = BatchBuilder::new(encoding, &host(), RECEIVED, add_fields);
    builder.stream(&Arc::new(Stream::new(0xabc, source)));
    let text = documents.join("\n");
    let buffer = builder.buffer(text.into());
    let mut at = 0;
    for document in documents {
        let len = document.len() as u64;
        builder.push(
            Span {
                buffer,
                start: at as u32,
                len: len as u32,
            },
            at,
            at + len + 1,
        );
        at += len + 1;
    }
    builder.finish()
}

fn text(documents: &[&str]) -> Batch {
    build(Encoding::Text, documents, file("/var/log/x.log"), false)
}

fn json(documents: &[&str]) -> Batch {
    build(Encoding::Json, documents, Source::Unnamed, false)
}

fn written(batch: &Batch, row: usize) -> String {
    let mut out = Vec::new();
    JsonWriter::new(batch).write(row, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn set(batch: &mut Batch, name: &str, rows: &[usize], value: &str) {
    let mut column = ColumnBuilder::new(batch.len());
    rows.iter()
        .for_each(|&row| column.set_text(row, value.as_bytes()));
    let mut edit = Edit::new();
    edit.set(path(name), column.finish());
    assert!(batch.apply(edit).is_empty());
}

fn read(batch: &Batch, name: &str, row: usize) -> String {
    let mut out = Vec::new();
    batch.column(&path(name)).value(row).write_text(&mut out);
    String::from_utf8(out).expect("text is UTF-8")
}

#[test]
fn a_line_of_text_has_message_timestamp_host_and_file() {
    let batch = text(&["one", "two"]);
    let expected = r#"{"@timestamp":"2015-05-17T10:05:03.000Z","message":"two","host":{"name":"web-1"},"log":{"file":{"path":"/var/log/x.log"},"offset":4}}"#;
    assert_eq!(written(&batch, 1), expected);
}

#[test]
fn a_line_that_comes_from_no_file_has_no_file_fields() {
    let batch = build(Encoding::Text, &["one"], Source::Unnamed, false);
    let expected =
        r#"{"@timestamp":"2015-05-17T10:05:03.000Z","message":"one","host":{"name":"web-1"}}"#;
    assert_eq!(written(&batch, 0), expected);
}

#[test]
fn documents_gain_nothing_unless_the_input_says_so() {
    let document = r#"{ "a": 1.10, "host": {"name": "other"} }"#;
    assert_eq!(written(&json(&[document]), 0), document);
    let batch = build(Encoding::Json, &[document], file("/x"), true);
    let expected = r#"{"a":1.10,"host":{"name": "other"},"@timestamp":"2015-05-17T10:05:03.000Z","log":{"file":{"path":"/x"},"offset":0}}"#;
    assert_eq!(written(&batch, 0), expected);
}

#[test]
fn metadata_of_the_sender_is_readable_and_no_part_of_the_event() {
    let text = r#"{"beat":"filebeat","log":{"x":1}}{ "a": 1.10 }{"b":2}"#;
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), RECEIVED, false);
    builder.stream(&Arc::new(Stream::unnamed(0xabc)));
    let buffer = builder.buffer(text.into());
    let span = |start: u32, len: u32| Span { buffer, start, len };
    builder.push(span(46, 7), 7, 8);
    builder.push(span(33, 13), 8, 9);
    builder.metadata_last(span(0, 33));
    builder.push(span(46, 7), 9, 10);
    let size = builder.size();
    let mut batch = builder.finish();
    assert_eq!(batch.size(), size);
    let own = ["", "filebeat", ""];
    for (row, own) in own.into_iter().enumerate() {
        assert_eq!(read(&batch, "@metadata.beat", row), own);
        assert_eq!(
            read(&batch, "@metadata.id", row),
            format!(
                "00000000000000000000000000000abc-{:x}-{:x}",
                row + 7,
                row + 8
            )
        );
    }
    assert_eq!(read(&batch, "@metadata.log.x", 1), "1");
    assert_eq!(written(&batch, 1), r#"{ "a": 1.10 }"#);
    set(&mut batch, "@metadata.index", &[0, 1], "logs");
    assert_eq!(read(&batch, "@metadata.index", 1), "logs");
    assert_eq!(read(&batch, "@metadata.beat", 1), "filebeat");
    assert_eq!(written(&batch, 0), r#"{"b":2}"#);
}

#[test]
fn metadata_of_a_whole_batch_is_readable_whatever_documents_hold() {
    let documents = [
        r#"{"a":1}"#,
        r#"{"@metadata":5,"a.b":2}"#,
        r#"{"@metadata":{"index":"own","x":1}}"#,
    ];
    let mut batch = json(&documents);
    let id = read(&batch, "@metadata.id", 1);
    batch.set_metadata("index", Column::constant_text(b"logs", 3));
    let mut some = ColumnBuilder::new(3);
    let text = some.append(|out| out.extend_from_slice(b"p"));
    some.set(1, Cell::Text(text));
    batch.set_metadata("pipeline", some.finish());
    for (row, document) in documents.into_iter().enumerate() {
        assert_eq!(read(&batch, "@metadata.index", row), "logs");
        let pipeline = if row == 1 { "p" } else { "" };
        assert_eq!(read(&batch, "@metadata.pipeline", row), pipeline);
        assert_eq!(written(&batch, row), document, "nothing of it is written");
    }
    assert_eq!(read(&batch, "@metadata.id", 1), id);
    assert_eq!(read(&batch, "@metadata.x", 2), "1");
}

#[test]
fn facts_and_id_are_readable_under_metadata_and_never_written() {
    let mut batch = json(&[r#"{"a":1}"#]);
    assert_eq!(
        read(&batch, "@metadata.id", 0),
        "00000000000000000000000000000abc-0-8"
    );
    assert_eq!(
        read(&batch, "@metadata.timestamp", 0),
        "2015-05-17T10:05:03.000Z"
    );
    assert_eq!(read(&batch, "@metadata.host.name", 0), "web-1");
    assert_eq!(read(&batch, "@metadata.log.offset", 0), "0");
    set(&mut batch, "@metadata.index", &[0], "logs");
    assert_eq!(read(&batch, "@metadata.index", 0), "logs");
    assert_eq!(written(&batch, 0), r#"{"a":1}"#);
}

#[test]
fn events_say_which_source_they_came_from() {
    let connection = Source::Connection {
        peer: "192.0.2.1:40312".into(),
        listener: "0.0.0.0:514".into(),
    };
    let topic = Source::Topic {
        name: "logs".into(),
        partition: 3,
    };
    let names = [
        "log.file.path",
        "log.source.address",
        "log.source.listener",
        "topic.name",
        "topic.partition",
    ];
    let cases = [
        (
            file("/x"),
            ["/x", "", "", "", ""],
            r#","log":{"file":{"path":"/x"},"offset":0}"#,
        ),
        (
            connection,
            ["", "192.0.2.1:40312", "0.0.0.0:514", "", ""],
            r#","log":{"source":{"address":"192.0.2.1:40312"}}"#,
        ),
        (topic, ["", "", "", "logs", "3"], ""),
        (Source::Generated, [""; 5], ""),
        (Source::Unnamed, [""; 5], ""),
    ];
    for (source, facts, added) in cases {
        let shown = source.to_string();
        let batch = build(Encoding::Text, &["one"], source.clone(), false);
        let read = names.map(|name| read(&batch, &format!("@metadata.{name}"), 0));
        assert_eq!(read, facts, "{shown}");
        let expected = format!(
            r#"{{"@timestamp":"2015-05-17T10:05:03.000Z","message":"one","host":{{"name":"web-1"}}{added}}}"#
        );
        assert_eq!(written(&batch, 0), expected);
        let document = r#"{"log":{"source":{"address":"own"}}}"#;
        let bare = build(Encoding::Json, &[document], source.clone(), false);
        assert_eq!(written(&bare, 0), document, "{shown}");
        let batch = build(Encoding::Json, &[document], source, true);
        assert!(written(&batch, 0).contains(r#""address":"own""#), "{shown}");
    }
}

#[test]
fn the_id_is_stream_start_and_end_whatever_becomes_of_the_event() {
    let mut batch = text(&["one", "two"]);
    let before = read(&batch, "@metadata.id", 1);
    set(&mut batch, "message", &[0, 1], "changed");
    batch.drop_rows(&Bitmap::from_fn(2, |row| row == 0), &"where".into());
    assert_eq!(read(&batch, "@metadata.id", 1), before);
    assert_eq!(before, "00000000000000000000000000000abc-4-8");
}

#[test]
fn a_dotted_name_is_the_nested_field_then_the_literal_key() {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    builder.dotted_keys();
    let documents = [
        r#"{"a":{"b":1},"a.b":2}"#,
        r#"{"a.b":3}"#,
        r#"{"a":{"c":4}}"#,
    ];
    for (row, document) in documents.into_iter().enumerate() {
        let buffer = builder.buffer(document.into());
        builder.push(
            Span {
                buffer,
                start: 0,
                len: document.len() as u32,
            },
            row as u64,
            row as u64 + 1,
        );
    }
    let mut batch = builder.finish();
    assert_eq!(
        [0, 1, 2].map(|row| read(&batch, "a.b", row)),
        ["1", "3", ""]
    );
    set(&mut batch, "a.b", &[0, 1, 2], "x");
    assert_eq!(
        [0, 1, 2].map(|row| written(&batch, row)),
        [
            r#"{"a":{"b":"x"},"a.b":2}"#,
            r#"{"a.b":"x"}"#,
            r#"{"a":{"c":4,"b":"x"}}"#
        ]
    );
}

#[test]
fn writing_below_a_value_that_is_no_object_fails_the_row_and_changes_nothing() {
    let mut batch = json(&[r#"{"a":5}"#, r#"{"b":1}"#]);
    let column = |value: &str| {
        let mut column = ColumnBuilder::new(2);
        (0..2).for_each(|row| column.set_text(row, value.as_bytes()));
        column.finish()
    };
    let mut edit = Edit::new();
    edit.set(
        path("first"),
        column("written before the one that is refused"),
    )
    .set(path("a.b"), column("x"));
    let refused = batch.apply(edit);
    assert_eq!(refused.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0]);
    assert!(refused[0].1.contains("a.b"), "{}", refused[0].1);
    assert_eq!(written(&batch, 0), r#"{"a":5}"#);
    assert!(written(&batch, 1).contains(r#""a":{"b":"x"}"#));
}

#[test]
fn several_fields_are_written_wherever_their_first_name_is_mentioned() {
    for (document, expected) in [
        (r#"{"x":1}"#, r#"{"x":1,"a":{"b":7,"c":{"d":7}}}"#),
        (r#"{"x":"a"}"#, r#"{"x":"a","a":{"b":7,"c":{"d":7}}}"#),
        (r#"{"ab":2}"#, r#"{"ab":2,"a":{"b":7,"c":{"d":7}}}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":{"b":7,"c":{"d":7}}}"#),
        (
            r#"{"a.b":1,"a.c.d":2,"a":{"e":3}}"#,
            r#"{"a.b":7,"a.c.d":7,"a":{"e":3}}"#,
        ),
        (r#"{"a":{"c.d":1}}"#, r#"{"a":{"c.d":7,"b":7}}"#),
        (r#"{"a":1}"#, ""),
        (r#"{"a":{"c":1}}"#, ""),
    ] {
        // Alone, behind another event, and where that has dots in its keys.
        for others in [&[][..], &[r#"{"y":0}"#], &[r#"{"p.q":0}"#]] {
            let documents: Vec<&str> = others.iter().copied().chain([document]).collect();
            for encoding in [Encoding::Json, Encoding::MsgPack] {
                let mut batch = as_scanned(encoding, &documents);
                let mut edit = Edit::new();
                for name in ["a.b", "a.c.d"] {
                    edit.set(path(name), Column::constant(Cell::Int(7), batch.len()));
                }
                let row = batch.len() - 1;
                let is_refused = batch.apply(edit).iter().any(|refused| refused.0 == row);
                assert_eq!(is_refused, expected.is_empty(), "{documents:?}");
                let expected = if is_refused { document } else { expected };
                assert_eq!(written(&batch, row), expected, "{documents:?}");
            }
        }
    }
}

/// A batch that knows whether there are dots in its keys, as inputs make it.
fn as_scanned(encoding: Encoding, documents: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(encoding, &host(), RECEIVED, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    for (row, document) in documents.iter().enumerate() {
        let mut bytes = document.as_bytes().to_vec();
        if batch::json::validate_object(&bytes).is_ok_and(|scan| scan.dotted_keys) {
            builder.dotted_keys();
        }
        if encoding == Encoding::MsgPack {
            bytes.clear();
            batch::msgpack::from_json(document.as_bytes(), &mut bytes);
        }
        let span = Span {
            len: bytes.len() as u32,
            start: 0,
            buffer: builder.buffer(bytes.into()),
        };
        builder.push(span, row as u64, row as u64 + 1);
    }
    builder.finish()
}

#[test]
fn failures_append_to_tags_set_the_message_and_seal() {
    for (document, tags) in [
        (r#"{"a":1}"#, r#"["_failed"]"#),
        (r#"{"tags":"one"}"#, r#"["one","_failed"]"#),
        (r#"{"tags":["one","two"]}"#, r#"["one","two","_failed"]"#),
        (r#"{"tags":["_failed"]}"#, r#"["_failed"]"#),
        (r#"{"tags":null}"#, r#"["_failed"]"#),
    ] {
        let mut batch = json(&[document, document]);
        let mut failures = Failures::none();
        failures.push(0, &"_failed".into(), &"no pattern matched".into());
        batch.mark_failed(&failures, true);
        assert_eq!(read(&batch, "tags", 0), tags, "{document}");
        assert_eq!(read(&batch, "error.message", 0), "no pattern matched");
        assert!(batch.sealed().contains(0) && !batch.sealed().contains(1));
        assert_eq!(written(&batch, 1), document, "the other row is as it came");
    }
}

#[test]
fn an_error_that_is_null_makes_room_for_the_reason() {
    for (document, expected) in [
        (
            r#"{"error":null}"#,
            r#"{"error":{"message":"why"},"tags":["_failed"]}"#,
        ),
        (
            r#"{"error":{"code":1}}"#,
            r#"{"error":{"code":1,"message":"why"},"tags":["_failed"]}"#,
        ),
        (
            r#"{"error":"text"}"#,
            r#"{"error":"text","tags":["_failed"]}"#,
        ),
    ] {
        let mut batch = json(&[r#"{"error":null}"#, document]);
        let mut failures = Failures::none();
        failures.push(1, &"_failed".into(), &"why".into());
        batch.mark_failed(&failures, true);
        assert_eq!(written(&batch, 1), expected);
        assert_eq!(written(&batch, 0), r#"{"error":null}"#);
    }
}

#[test]
fn a_masked_write_leaves_the_other_rows_and_earlier_writes() {
    let mut batch = text(&["one", "two", "three"]);
    set(&mut batch, "x", &[0, 1], "first");
    set(&mut batch, "x", &[1], "second");
    assert_eq!(
        [0, 1, 2].map(|row| read(&batch, "x", row)),
        ["first", "second", ""]
    );
    assert!(!written(&batch, 2).contains("\"x\""));
}

#[test]
fn absent_null_and_a_value_are_three_things() {
    let batch = json(&[r#"{}"#, r#"{"a":null}"#, r#"{"a":""}"#]);
    let column = batch.column(&path("a"));
    assert_eq!(
        [column.value(0), column.value(1), column.value(2)],
        [Value::Missing, Value::Null, Value::Text(b"")]
    );
}

#[test]
fn types_may_differ_from_row_to_row_and_numbers_keep_every_digit() {
    let batch = json(&[
        r#"{"a":1}"#,
        r#"{"a":"1"}"#,
        r#"{"a":123456789012345678901234567890.10}"#,
        r#"{"a":[1, 2]}"#,
        r#"{"a":true}"#,
    ]);
    let column = batch.column(&path("a"));
    assert_eq!(column.value(0), Value::Number(b"1"));
    assert_eq!(column.value(1), Value::Text(b"1"));
    assert_eq!(
        column.value(2),
        Value::Number(b"123456789012345678901234567890.10")
    );
    assert_eq!(column.value(3), Value::Json(b"[1, 2]"));
    assert_eq!(column.value(4), Value::Bool(true));
}

#[test]
fn values_that_are_the_same_for_all_rows_are_one_cell() {
    let batch = text(&["one", "two"]);
    for name in ["host.name", "log.file.path", "@timestamp"] {
        assert!(batch.column(&path(name)).as_constant().is_some(), "{name}");
    }
}

#[test]
fn rows_of_several_files_keep_their_own_path_and_offset() {
    let mut builder = BatchBuilder::new(Encoding::Text, &host(), 0, false);
    let buffer = builder.buffer("abcd".into());
    for (id, file) in [(1, "one.log"), (2, "two.log")] {
        builder.stream(&Arc::new(Stream::file(id, file)));
        builder.push(
            Span {
                buffer,
                start: 0,
                len: 1,
            },
            id as u64 * 10,
            id as u64 * 10 + 1,
        );
    }
    let batch = builder.finish();
    assert_eq!(
        [0, 1].map(|row| read(&batch, "log.file.path", row)),
        ["one.log", "two.log"]
    );
    assert_eq!(
        [0, 1].map(|row| read(&batch, "log.offset", row)),
        ["10", "20"]
    );
}

#[test]
fn a_written_column_that_is_read_again_is_the_same_column() {
    let mut batch = text(&["one two"]);
    let message = batch.column(&path("message"));
    let mut word = ColumnBuilder::over(1, message.buffers().clone());
    let Cell::Text(span) = message.cell(0) else {
        panic!("messages are text")
    };
    word.set(0, Cell::Text(Span { len: 3, ..span }));
    let mut edit = Edit::new();
    edit.set(path("word"), word.finish());
    batch.apply(edit);
    let read = batch.column(&path("word"));
    assert_eq!(read.value(0), Value::Text(b"one"));
    assert!(
        Arc::ptr_eq(read.buffers(), message.buffers()),
        "a capture is a view, not a copy"
    );
}

#[test]
fn a_write_is_seen_by_later_reads_of_the_same_above_and_below() {
    let mut batch = json(&[r#"{"a":{"b":1}}"#]);
    assert_eq!(
        [read(&batch, "a", 0), read(&batch, "a.b", 0)],
        [r#"{"b":1}"#, "1"]
    );
    set(&mut batch, "a.b", &[0], "x");
    assert_eq!(
        [read(&batch, "a", 0), read(&batch, "a.b", 0)],
        [r#"{"b":"x"}"#, "x"]
    );
    let mut edit = Edit::new();
    edit.set(path("a"), Column::constant(Cell::Int(7), 1));
    batch.apply(edit);
    assert_eq!([read(&batch, "a", 0), read(&batch, "a.b", 0)], ["7", ""]);
}

#[test]
fn dropped_rows_are_counted_once_by_reason() {
    let mut batch = text(&["one", "two", "three"]);
    batch.drop_rows(&Bitmap::from_fn(3, |row| row < 2), &"where".into());
    batch.drop_rows(&Bitmap::all(3), &"head".into());
    let counts: Vec<_> = batch
        .drops()
        .iter()
        .map(|drops| (&*drops.reason, drops.rows.count()))
        .collect();
    assert_eq!(counts, [("where", 2), ("head", 1)]);
    assert!(batch.alive().is_empty());
}

#[test]
fn what_could_not_be_read_as_a_document_is_text_with_a_tag() {
    let mut builder = BatchBuilder::new(Encoding::Json, &host(), RECEIVED, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let buffer = builder.buffer(r#"{"a":1}oops"#.into());
    builder.push(
        Span {
            buffer,
            start: 0,
            len: 7,
        },
        0,
        7,
    );
    builder.push_text(
        Span {
            buffer,
            start: 7,
            len: 4,
        },
        7,
        11,
    );
    builder.tag_last(&"_jsonparsefailure".into(), Some("expected a value".into()));
    let batch = builder.finish();
    assert_eq!(written(&batch, 0), r#"{"a":1}"#);
    let broken = written(&batch, 1);
    for part in [
        r#""message":"oops""#,
        r#""tags":["_jsonparsefailure"]"#,
        r#""error":{"message":"expected a value"}"#,
    ] {
        assert!(broken.contains(part), "{broken}");
    }
    assert!(
        batch.sealed().is_empty(),
        "later processors may still make something of it"
    );
}

#[test]
fn a_shared_buffer_is_charged_once_and_until_its_last_column_is_gone() {
    let budget = Budget::new(1 << 20);
    let pool = budget.pool(0, 4096);
    let mut buffer = pool.take();
    buffer[..3].copy_from_slice(b"one");
    let mut builder = BatchBuilder::new(Encoding::Text, &host(), 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    let buffer = builder.buffer(buffer.freeze(3));
    builder.push(
        Span {
            buffer,
            start: 0,
            len: 3,
        },
        0,
        3,
    );
    let batch = builder.finish();
    let column = batch.column(&path("message"));
    assert_eq!(budget.used(), 4096);
    drop(batch);
    assert_eq!(budget.used(), 4096, "a column still points into the buffer");
    drop(column);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_merged_object_replaces_a_field_whose_name_needs_escapes() {
    let mut batch = json(&["{}"]);
    let mut edit = Edit::new();
    let odd = FieldPath::from_keys(["a\"b"]);
    edit.set(odd.clone(), Column::constant(Cell::Int(1), 1));
    edit.merge(None, Column::constant_json(br#"{"a\"b":2}"#, 1), false);
    assert!(batch.apply(edit).is_empty());
    assert_eq!(written(&batch, 0), r#"{"a\"b":2}"#);
    assert_eq!(batch.column(&odd).value(0), Value::Number(b"2"));
}

#[test]
fn strings_of_messagepack_keep_bytes_that_are_no_text() {
    let document = b"\x82\xA3log\xA3a\xFFb\xA1n\xCD\x00\x05";
    let mut builder = BatchBuilder::new(Encoding::MsgPack, &host(), RECEIVED, false);
    builder.stream(&Arc::new(Stream::unnamed(0xabc)));
    let buffer = builder.buffer(document.to_vec().into());
    let span = Span {
        buffer,
        start: 0,
        len: document.len() as u32,
    };
    builder.push(span, 0, 1);
    let mut batch = builder.finish();
    let packed = |batch: &Batch| {
        let mut out = Vec::new();
        MsgPackWriter::new(batch).write(0, &mut out);
        out
    };
    assert_eq!(packed(&batch), document);
    assert_eq!(read(&batch, "log", 0), "a\u{fffd}b");
    assert_eq!(written(&batch, 0), "{\"log\":\"a\u{fffd}b\",\"n\":5}");
    set(&mut batch, "x", &[0], "y");
    let expected = b"\x83\xA3log\xA3a\xFFb\xA1n\xCD\x00\x05\xA1x\xA1y";
    assert_eq!(packed(&batch), expected, "other members stay as they came");
}
