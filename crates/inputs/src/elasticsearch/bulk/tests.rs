use std::sync::Arc;

use batch::json::DEPTH_MAX;
use batch::{Batch, BatchBuilder, Encoding, FieldPath, HostInfo, JsonWriter, Value};

use super::*;
use crate::elasticsearch::filter::Filter;
use crate::elasticsearch::reply::Draft;
use crate::elasticsearch::target;

/// What holds for the requests of these tests.
fn defaults() -> Defaults {
    Defaults {
        index: Some("logs".into()),
        ..Defaults::default()
    }
}

fn items(count: usize) -> Items {
    let limits = Limits {
        items: count,
        depth: DEPTH_MAX,
    };
    Items::new(limits)
}

/// Reads a body in pages of so many lines; gives how much memory that took beside them.
fn feed(
    items: &mut Items,
    body: &[u8],
    defaults: Defaults,
    lines: usize,
) -> Result<usize, Failure> {
    items.begin(defaults);
    let mut pages = vec![Vec::new()];
    for (number, line) in body.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if number > 0 && number.is_multiple_of(lines) {
            pages.push(Vec::new());
        }
        pages.last_mut().expect("a page").extend_from_slice(line);
    }
    let mut owed = 0;
    for page in pages {
        items.page(page.into());
        while let Some(bytes) = items.go_on() {
            assert!(bytes > 0);
            owed += bytes;
        }
    }
    items.end().map(|()| owed)
}

/// A batch of what is taken.
fn batch(items: &Items) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    let stream = Arc::new(Stream::unnamed(0xabc));
    let (end, runs) = items.push(0, (&stream, 0x10), &mut builder);
    assert_eq!(end, items.len());
    let rows = builder.len();
    assert_eq!(runs.iter().map(|(rows, _)| rows).sum::<usize>(), rows);
    let mut batch = builder.finish();
    target::lay(&mut batch, &[(0..rows, runs)]);
    batch
}

/// The document of each row, then id, index, type, pipeline and routing.
fn rows(batch: &Batch) -> Vec<String> {
    let names = ["id", "index", "op_type", "pipeline", "routing"];
    let columns = names.map(|name| batch.column(&FieldPath::from_keys(["@metadata", name])));
    let writer = JsonWriter::new(batch);
    let row = |row| {
        let mut text = Vec::new();
        writer.write(row, &mut text);
        for column in &columns {
            text.push(b' ');
            if let Value::Text(value) = column.value(row) {
                text.extend_from_slice(value);
            }
        }
        String::from_utf8(text).expect("UTF-8")
    };
    (0..batch.len()).map(row).collect()
}

fn reply(items: &Items, filter: &str) -> String {
    let mut draft = Draft::default();
    let stream = Stream::unnamed(0xabc);
    draft.bulk(items, (&stream, 0x10), &Filter::parse(filter), |_| {});
    String::from_utf8(draft.body).expect("UTF-8")
}

/// What is read of a body, in pages of one line, of two, and in one.
fn read(body: &str) -> [Items; 3] {
    [1, 2, usize::MAX].map(|lines| {
        let mut items = items(10);
        // What was read before must not matter.
        let before =
            "{\"index\":{\"_id\":\"\\u0041\"}}\n{\"a\":1,\"a\":2,\"x.y\":1}\n{\"delete\":{}}\n";
        feed(&mut items, before.as_bytes(), defaults(), lines).expect("fine");
        feed(&mut items, body.as_bytes(), defaults(), lines).expect("fine");
        items
    })
}

const PLACE: &str = "00000000000000000000000000000abc";

#[test]
fn documents_stay_as_they_came_and_actions_become_metadata() {
    let read = read(concat!(
        "{\"create\":{}}\n{\"n\":1.0}\n",
        "{\"create\":{}}\r\n {\"n\" : 2} \r\n",
        "\n",
        "{\"index\":{\"_index\":\"other\",\"_id\":\"x\",\"pipeline\":\"p\",\"routing\":\"r\"}}\n{\"n\":3,\"a.b\":1}\n",
        "{\"index\":{\"_index\":\"other\",\"_id\":\"\\u0041\\n\",\"op_type\":\"create\"}}\n{\"n\":0,\"n\":4}\n",
        "{\"index\":{\"_id\":17,\"_index\":null,\"_type\":\"_doc\",\"version\":3}}\n{\"n\":\r5}\n",
        "{\"update\":{\"_id\":\"u\"}}\n{\"doc\": {\"n\":6} ,\"doc_as_upsert\":true}\n",
        "{\"index\":{}}\n{\"@metadata\":5,\"n\":7}\n",
    ));
    let expected = [
        format!("{{\"n\":1.0}} {PLACE}-10-11 logs create  "),
        format!("{{\"n\" : 2}} {PLACE}-11-12 logs create  "),
        "{\"n\":3,\"a.b\":1} x other index p r".into(),
        "{\"n\":4} A\n other create  ".into(),
        "{\"n\": 5} 17 logs index  ".into(),
        "{\"n\":6} u logs index  ".into(),
        format!("{{\"@metadata\":5,\"n\":7}} {PLACE}-16-17 logs index  "),
    ];
    for items in read {
        assert_eq!(rows(&batch(&items)), expected);
        assert!(items.errors().is_empty());
    }
}

#[test]
fn a_batch_with_one_target_has_one_cell_of_it() {
    for items in read("{\"create\":{}}\n{}\n{\"create\":{}}\n{}\n") {
        let batch = batch(&items);
        let index = batch.column(&FieldPath::from_keys(["@metadata", "index"]));
        assert!(matches!(index.value(1), Value::Text(b"logs")));
        assert_eq!(batch.len(), 2);
    }
}

#[test]
fn documents_are_refused_one_by_one() {
    let long = "x".repeat(513);
    let with_long = format!("{{\"index\":{{\"_id\":\"{long}\"}}}}\n{{}}\n");
    for (bad, status, kind, part) in [
        (
            "{\"index\":{}}\n{\"a\":}\n",
            400,
            BROKEN,
            "unexpected character at byte 5",
        ),
        ("{\"index\":{}}\n\n", 400, BROKEN, "not a JSON object"),
        ("{\"index\":{}}\n[{}]\n", 400, BROKEN, "not a JSON object"),
        (
            "{\"index\":{}}\n{} {}\n",
            400,
            BROKEN,
            "unexpected characters after",
        ),
        (
            "{\"create\":{\"_id\":\"\"}}\n{}\n",
            400,
            ILLEGAL,
            "must not be empty",
        ),
        (
            &with_long,
            400,
            ILLEGAL,
            "no longer than 512 bytes but was: 513",
        ),
        (
            "{\"delete\":{\"_id\":\"1\"}}\n",
            400,
            ILLEGAL,
            "delete is not accepted",
        ),
        (
            "{\"update\":{}}\n{\"doc\":{},\"doc_as_upsert\":true}\n",
            400,
            "action_request_validation_exception",
            "id is missing",
        ),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n",
            404,
            "document_missing_exception",
            "doc_as_upsert",
        ),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{},\"doc_as_upsert\":false}\n",
            404,
            "document_missing_exception",
            "doc_as_upsert",
        ),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":1,\"doc_as_upsert\":true}\n",
            404,
            "document_missing_exception",
            "doc_as_upsert",
        ),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"script\":{},\"upsert\":{}}\n",
            404,
            "document_missing_exception",
            "doc_as_upsert",
        ),
    ] {
        let good = "{\"index\":{}}\n{\"good\":1}\n";
        for items in read(&format!("{good}{bad}{good}")) {
            check_refused(&items, bad, (status, kind, part));
        }
    }
}

fn check_refused(items: &Items, bad: &str, (status, kind, part): (u16, &str, &str)) {
    let [error] = items.errors() else {
        panic!("{bad}: {:?}", items.errors());
    };
    assert_eq!((error.status.as_u16(), error.kind), (status, kind), "{bad}");
    assert!(error.reason.contains(part), "{bad}: {}", error.reason);
    let reply: serde_json::Value =
        serde_json::from_str(&reply(items, "errors,items")).expect("JSON");
    assert_eq!(reply["errors"], true);
    let failed = reply["items"][1].as_object().expect("an item");
    let (verb, failed) = failed.iter().next().expect("an action");
    assert!(bad.contains(verb.as_str()));
    assert_eq!(
        (&failed["status"], &failed["error"]["type"]),
        (&status.into(), &kind.into())
    );
    assert_eq!(reply["items"][2]["index"]["status"], 201);
    assert_eq!(batch(items).len(), 2, "{bad}");
}

#[test]
fn what_is_not_utf8_is_refused_alone() {
    let body = Bytes::from_static(
        b"{\"index\":{}}\n{\"a\":\"\xff\"}\n{\"index\":{}}\n{\"a\":\"\xc3\xa9\"}\n",
    );
    let mut items = items(10);
    feed(&mut items, &body, defaults(), 1).expect("fine");
    assert!(items.errors()[0].reason.contains("not UTF-8"));
    assert_eq!(batch(&items).len(), 1);
    let bad = b"{\"index\":{\"_id\":\"\xff\"}}\n{}\n";
    let failure = feed(&mut items, bad, defaults(), 1).expect_err("an action must be readable");
    assert!(failure.reason.contains("not UTF-8"), "{}", failure.reason);
}

#[test]
fn malformed_requests_are_refused_as_a_whole() {
    let good = "{\"index\":{}}\n{}\n";
    let long = format!(
        "{{\"index\":{{\"_index\":\"{}\"}}}}\n{{}}\n",
        "x".repeat(513)
    );
    let longer = format!(
        "{{\"index\":{{\"routing\":\"{}\"}}}}\n{{}}\n",
        "x".repeat(5000)
    );
    for (bad, status, part) in [
        (&*long, 400, "index, pipeline and routing may have"),
        (&longer, 400, "may have 512 bytes"),
        ("", 400, "request body is required"),
        (" \n\n", 400, "request body is required"),
        ("{\"index\":{}}\n{}", 400, "terminated by a newline"),
        (
            "{\"index\":{}}\n",
            400,
            "line [1], expected a document on the next line",
        ),
        (
            "{\"index\":{}}\n{}\nx\n{}\n",
            400,
            "line [3], not a JSON object",
        ),
        (
            "{\"index\":{\n{}\n",
            400,
            "line [1], unexpected end of JSON",
        ),
        ("[]\n{}\n", 400, "line [1], not a JSON object"),
        ("{}\n{}\n", 400, "line [1], expected one action"),
        (
            "{\"index\":{},\"create\":{}}\n{}\n",
            400,
            "expected one action",
        ),
        ("{\"index\":[]}\n{}\n", 400, "expected START_OBJECT"),
        ("{\"upsert\":{}}\n{}\n", 400, "but found [upsert]"),
        (
            "{\"index\":{\"foo\":1}}\n{}\n",
            400,
            "unknown parameter [foo]",
        ),
        (
            "{\"index\":{\"_index\":\"\"}}\n{}\n",
            400,
            "index is missing on line [1]",
        ),
        (
            "{\"index\":{\"_index\":\"a\\u0001\"}}\n{}\n",
            400,
            "it contains control characters",
        ),
        (&good.repeat(11), 413, "more than 10 actions"),
    ] {
        for lines in [1, 2, usize::MAX] {
            let mut items = items(10);
            let failure = feed(&mut items, bad.as_bytes(), defaults(), lines).expect_err(bad);
            assert_eq!(failure.status.as_u16(), status, "{bad}");
            assert!(failure.reason.contains(part), "{bad}: {}", failure.reason);
            assert_eq!(items.len(), 0, "{bad}");
        }
    }
    let failure = feed(&mut items(10), good.as_bytes(), Defaults::default(), 1);
    let failure = failure.expect_err("no index");
    assert!(
        failure.reason.contains("index is missing"),
        "{}",
        failure.reason
    );
}

#[test]
fn a_single_document_may_have_any_number_of_lines() {
    let mut items = items(10);
    let document = |verb, id: Option<&str>| Defaults {
        document: Some((verb, id.map(str::to_owned))),
        ..defaults()
    };
    let body = b"{\n  \"a\": 1\n}\n";
    let with_id = document(Verb::Create, Some("an id"));
    feed(&mut items, body, with_id, usize::MAX).expect("fine");
    assert_eq!(rows(&batch(&items)), ["{   \"a\": 1 } an id logs create  "]);
    let failure = feed(&mut items, b"", document(Verb::Index, None), 1);
    assert!(failure.expect_err("no body").reason.contains("required"));
}

#[test]
fn replies_hold_what_is_asked_for() {
    let [items, ..] = read(concat!(
        "{\"create\":{\"_id\":\"a\\\"b\"}}\n{}\n",
        "{\"index\":{}}\n{\n",
    ));
    let whole = reply(&items, "");
    assert_eq!(
        whole,
        format!(
            "{{\"errors\":true,\"took\":          ,\"items\":[{{\"create\":{{\"_index\":\"logs\",\"_id\":\"a\\\"b\",\"_version\":1,\"result\":\"created\",\"status\":201}}}},\
             {{\"index\":{{\"_index\":\"logs\",\"_id\":\"{PLACE}-11-12\",\"status\":400,\"error\":{{\"type\":\"mapper_parsing_exception\",\"reason\":\"failed to parse: invalid JSON: unexpected end of JSON at byte 1\"}}}}}}]}}"
        )
    );
    let error = "{\"type\":\"mapper_parsing_exception\",\"reason\":\"failed to parse: invalid JSON: unexpected end of JSON at byte 1\"}";
    for (filter, expected) in [
        (
            "errors,items.*.error,items.*.status",
            format!(
                "{{\"errors\":true,\"items\":[{{\"create\":{{\"status\":201}}}},{{\"index\":{{\"status\":400,\"error\":{error}}}}}]}}"
            ),
        ),
        (
            "errors,items.*.error",
            format!("{{\"errors\":true,\"items\":[{{\"index\":{{\"error\":{error}}}}}]}}"),
        ),
        (
            "items.*.error.type",
            "{\"items\":[{\"index\":{\"error\":{\"type\":\"mapper_parsing_exception\"}}}]}".into(),
        ),
        ("errors", "{\"errors\":true}".into()),
        ("took", "{\"took\":          }".into()),
        ("nothing", "{}".into()),
    ] {
        assert_eq!(reply(&items, filter), expected, "{filter}");
    }
    let [.., items] = read("{\"create\":{}}\n{}\n");
    assert_eq!(reply(&items, "errors,items.*.error"), "{\"errors\":false}");
}

/// More actions than a batch takes come out in order, those of several targets included.
#[test]
fn many_documents_are_cut_into_batches() {
    let count = 2 * BATCH_EVENTS_MAX + 5;
    let text: String = (0..count)
        .map(|n| match n % 3 {
            0 => format!("{{\"create\":{{}}}}\n{{\"n\":{n}}}\n"),
            1 => format!("{{\"create\":{{\"_index\":\"x\"}}}}\n{{\"n\":0,\"n\":{n}}}\n"),
            _ => "{\"create\":{}}\n{\n".to_owned(),
        })
        .collect();
    let mut items = items(count);
    feed(&mut items, text.as_bytes(), defaults(), 501).expect("fine");
    let host = Arc::new(HostInfo { name: "h".into() });
    let stream = Arc::new(Stream::unnamed(1));
    let (mut from, mut found) = (0, Vec::new());
    while from < items.len() {
        let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
        let runs;
        (from, runs) = items.push(from, (&stream, 0), &mut builder);
        let rows = builder.len();
        let mut batch = builder.finish();
        target::lay(&mut batch, &[(0..rows, runs)]);
        let index = batch.column(&FieldPath::from_keys(["@metadata", "index"]));
        for row in 0..rows {
            let n = batch.origin().start(row);
            let mut text = Vec::new();
            JsonWriter::new(&batch).write(row, &mut text);
            assert_eq!(text, format!("{{\"n\":{n}}}").into_bytes());
            let expected: &[u8] = if n.is_multiple_of(3) { b"logs" } else { b"x" };
            assert_eq!(index.value(row), Value::Text(expected));
            found.push(n);
        }
    }
    let expected: Vec<u64> = (0..count as u64).filter(|n| n % 3 != 2).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_long_reply_is_charged_while_it_is_written() {
    let body = "{\"index\":{}}\n{}\n".repeat(20_000);
    let mut items = items(20_000);
    feed(&mut items, body.as_bytes(), defaults(), 100).expect("fine");
    let (mut draft, mut charged) = (Draft::default(), 0);
    let (stream, filter) = (Stream::unnamed(0xabc), Filter::default());
    let grow = |more| charged += more;
    draft.bulk(&items, (&stream, 0), &filter, grow);
    let len = draft.body.len();
    assert!(len > 1 << 20, "{len}");
    assert!(
        (len - (512 << 10)..=len).contains(&charged),
        "{charged} of {len}"
    );
}

/// What is kept of a request beside its pages is charged: the list, errors, targets and what is rewritten.
#[test]
fn lists_are_charged_as_they_grow() {
    type Line = fn(usize) -> String;
    let bodies: [(&str, Line, usize); 4] = [
        ("items", |_| "{\"index\":{}}\n{}\n".into(), 30),
        ("errors", |_| "{\"index\":{}}\n\n".into(), 100),
        (
            "targets",
            |n| format!("{{\"index\":{{\"_index\":\"{n}\"}}}}\n{{}}\n"),
            80,
        ),
        (
            "rewritten",
            |_| "{\"index\":{}}\n{\"a\":0,\"a\":1}\n".into(),
            37,
        ),
    ];
    for (what, line, least) in bodies {
        let count = 10_000;
        let body: String = (0..count).map(line).collect();
        for lines in [100, usize::MAX] {
            let owed = feed(&mut items(count), body.as_bytes(), defaults(), lines).expect("fine");
            assert!(owed >= count * least, "{what}: {owed}");
        }
    }
}
