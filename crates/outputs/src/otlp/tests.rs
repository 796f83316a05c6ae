//! The output as a whole: what it renders, and what it makes of answers. A receiver is simulated by `codec::otlp`.

use batch::{Cell, Column, ColumnBuilder, Edit, FieldPath, JsonWriter};
use codec::otlp::Documents;
use testkit::http::{Answer as ServerAnswer, HttpServer};

use super::*;
use crate::testing::{build_sender, documents, encode, lines};

/// The output and its requests for what was encoded, each with its destination.
fn requests(settings: &str, batch: &Batch) -> Vec<(String, Vec<u8>)> {
    let node = config::parse_yaml(&config::Source::new(
        "test.yaml",
        format!("{{url: 'http://localhost:4318', compression: none, {settings}}}"),
    ));
    let node = node.expect("YAML");
    let otlp = Otlp::new(Settings::read(&node).expect("settings"), &node);
    let encoded = encode(&otlp, batch);
    assert_eq!(encoded.ends.len(), batch.alive().count());
    assert_eq!(encoded.rows, batch.alive().count());
    let ends = encoded.parts.iter().skip(1).map(|part| part.bytes.start);
    let ends = ends.chain([encoded.bytes.len()]);
    let parts = encoded.parts.iter().zip(ends);
    let request = |(part, end): (&component::DestinationPart, usize)| {
        let body = otlp.body(&Request {
            id: 0,
            destination: part.destination.clone(),
            body: Bytes::copy_from_slice(&encoded.bytes[part.bytes.start..end]),
            rows: 1,
            attempt: 0,
        });
        (part.destination.to_string(), body.expect("a body").concat())
    };
    parts.map(request).collect()
}

/// The documents that a receiver makes of requests.
fn received(requests: &[(String, Vec<u8>)]) -> Vec<String> {
    let mut received = Vec::new();
    for (_, request) in requests {
        let read = Documents::new(100).read(request, |document| {
            assert!(document.id.is_some(), "every event has an id");
            received.push(String::from_utf8(document.text.to_vec()).expect("UTF-8"));
        });
        read.expect("a request");
    }
    received
}

/// What a receiver makes of an event.
fn arrived(settings: &str, event: &str) -> String {
    let requests = requests(settings, &documents(&[event]));
    received(&requests).pop().expect("an event")
}

/// A JSON object, however its members are ordered; without the time that an event without one gets.
fn same(text: &str) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    if let Some(object) = value.as_object_mut()
        && object.get("@timestamp") == Some(&"1970-01-01T00:00:00.000Z".into())
    {
        object.remove("@timestamp");
    }
    value
}

#[test]
fn events_come_back_as_they_were() {
    for event in [
        "{}",
        r#"{"@timestamp":"2015-05-17T10:05:03.000Z","message":"a \"line\"\nand ü","a":1,"b":{"c":[1,{"d":null}],"e":{}}}"#,
        r#"{"@timestamp":"2015-05-17T10:05:03.123456789Z"}"#,
        r#"{"@timestamp":"yesterday"}"#,
        r#"{"@timestamp":"1969-12-31T23:59:59.000Z"}"#,
        r#"{"@timestamp":17}"#,
        r#"{"message":17,"body":"text"}"#,
        r#"{"message":null,"body":null}"#,
        r#"{"message":"","body":{"a":1}}"#,
        r#"{"body":{"a":1}}"#,
        r#"{"body":[]}"#,
        r#"{"log.level":"error"}"#,
        r#"{"log.level":"error","severity_number":17}"#,
        r#"{"log.level":"error","severity_number":3}"#,
        r#"{"severity_number":25}"#,
        r#"{"severity_number":24}"#,
        r#"{"log":{"level":"error","logger":"x"}}"#,
        r#"{"log":"text"}"#,
        r#"{"log.level":5}"#,
        r#"{"trace.id":"0af7651916cd43dd8448eb211c80319c","span.id":"b7ad6b7169203331","trace_flags":1}"#,
        r#"{"trace":{"id":"0af7651916cd43dd8448eb211c80319c"},"span":{"id":"b7ad6b7169203331","x":1}}"#,
        r#"{"trace.id":"00000000000000000000000000000000","span.id":"b7ad","trace_flags":0}"#,
        r#"{"event_name":"login","dropped_attributes_count":2}"#,
        r#"{"event_name":"","dropped_attributes_count":-2}"#,
        r#"{"attributes":{"a":1},"a":2}"#,
        r#"{"message":"x","attributes":{"message":1,"attributes":2}}"#,
        r#"{"resource":{"attributes":{"service.name":"web","n":1}},"scope":{"name":"lib","version":"1","attributes":{"a":{}}}}"#,
        r#"{"resource":{"attributes":{"a":1},"schema_url":"http://x","dropped_attributes_count":1}}"#,
        r#"{"resource":"text","scope":{"other":1}}"#,
        r#"{"scope":{"schema_url":"http://x"}}"#,
        r#"{"a\"b":"c\\d","http.request.method":"GET","http":{"request":1}}"#,
        r#"{"n":[9223372036854775807,-1,1.5,1e300,true,false]}"#,
    ] {
        assert_eq!(same(&arrived("", event)), same(event), "{event}");
    }
}

/// Lines of text are written from their columns, documents from their JSON.
#[test]
fn fields_of_lines_become_what_those_of_documents_become() {
    const ROWS: usize = 70;
    let texts = vec!["a \"line\"\n"; ROWS];
    let mut batch = lines(&texts);
    let long = format!(r#"{{"x":"{}"}}"#, "y".repeat(300));
    let mut shared = ColumnBuilder::new(ROWS);
    let object = shared.append(|out| out.extend_from_slice(br#"{"n":1.5,"t":"\u00fc","l":[{}]}"#));
    let mut mixed = ColumnBuilder::new(ROWS);
    for row in 0..ROWS {
        shared.set(row, Cell::Json(object));
        let own = mixed.append(|out| out.extend_from_slice(long.as_bytes()));
        match row % 8 {
            0 => mixed.set(row, Cell::Json(own)),
            1 => mixed.set(row, Cell::Null),
            2 => mixed.set(row, Cell::Int(-3)),
            3 => mixed.set(row, Cell::UInt(u64::MAX)),
            4 => mixed.set(row, Cell::Float(0.25)),
            5 => mixed.set(row, Cell::Bool(true)),
            6 => mixed.set(row, Cell::Time(1)),
            _ => mixed.set_text(row, "z".repeat(200 * row).as_bytes()),
        }
    }
    let mut edit = Edit::new();
    for (path, column) in [
        ("mixed", mixed.finish()),
        ("geo.shared", shared.finish()),
        ("geo.city", Column::constant_text(b"K\"ln", ROWS)),
        ("deep.a.b.c", Column::constant(Cell::Int(1), ROWS)),
        ("log.level", Column::constant_text(b"warn", ROWS)),
        ("attributes.body", Column::constant(Cell::Bool(false), ROWS)),
        ("we.ird", Column::constant(Cell::Null, ROWS)),
    ] {
        edit.set(FieldPath::parse(path).expect("a path"), column);
    }
    batch.apply(edit);
    let writer = JsonWriter::new(&batch);
    let event = |row| {
        let mut event = Vec::new();
        writer.write(row, &mut event);
        String::from_utf8(event).expect("JSON")
    };
    let events: Vec<String> = (0..ROWS).map(event).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    for settings in ["", "objects: flatten", "body: event"] {
        let from_columns = received(&requests(settings, &batch));
        let from_documents = received(&requests(settings, &documents(&events)));
        assert_eq!(from_columns.len(), ROWS);
        for (one, other) in from_columns.iter().zip(&from_documents) {
            assert_eq!(same(one), same(other), "{settings}");
        }
    }
}

#[test]
fn other_names_are_copied() {
    for (event, expected) in [
        (
            r#"{"level":"warn"}"#,
            r#"{"level":"warn","log.level":"warn"}"#,
        ),
        (
            r#"{"trace_id":"0AF7651916cd43dd8448eb211c80319c"}"#,
            r#"{"trace_id":"0AF7651916cd43dd8448eb211c80319c","trace.id":"0af7651916cd43dd8448eb211c80319c"}"#,
        ),
    ] {
        assert_eq!(same(&arrived("", event)), same(expected));
    }
    let event = r#"{"log.level":"warn","x":{"sev":"error"}}"#;
    assert_eq!(
        same(&arrived("severity: [x.sev, log.level]", event)),
        // The level of the event gives way to the one that counts, and stays.
        same(r#"{"log.level":"error","x":{"sev":"error"},"attributes":{"log.level":"warn"}}"#)
    );
}

#[test]
fn bodies_and_attributes_have_other_forms() {
    let event = r#"{"message":"x","http":{"request":{"method":"GET"},"e":{}},"l":[{"a":1}]}"#;
    assert_eq!(
        same(&arrived("objects: flatten", event)),
        same(r#"{"message":"x","http.request.method":"GET","http.e":{},"l":[{"a":1}]}"#)
    );
    assert_eq!(
        same(&arrived("body: event", event)),
        same(&format!("{{\"body\":{event}}}"))
    );
}

#[test]
fn events_share_a_resource_or_have_their_own() {
    let batch = documents(&[
        r#"{"n":1}"#,
        r#"{"n":2,"resource":{"attributes":{"a":1}}}"#,
        r#"{"n":3}"#,
        r#"{"n":4,"scope":{"name":"s"}}"#,
    ]);
    let settings = "resource: {service.name: web}, scope: {name: lib, version: '2'}";
    let requests = requests(settings, &batch);
    let destinations: Vec<&str> = requests.iter().map(|(name, _)| &**name).collect();
    assert_eq!(destinations, [r#"{"service.name":"web"}"#, "alone"]);
    let scope = r#""scope":{"name":"lib","version":"2"}"#;
    let web = r#""resource":{"attributes":{"service.name":"web"}}"#;
    let expected = [
        format!("{{\"n\":1,{web},{scope}}}"),
        format!("{{\"n\":3,{web},{scope}}}"),
        format!("{{\"n\":2,\"resource\":{{\"attributes\":{{\"a\":1}}}},{scope}}}"),
        format!("{{\"n\":4,{web},\"scope\":{{\"name\":\"s\"}}}}"),
    ];
    let received = received(&requests);
    assert_eq!(received.len(), 4);
    for (received, expected) in received.iter().zip(expected) {
        assert_eq!(same(received), same(&expected));
    }
}

#[test]
fn a_resource_may_be_made_of_fields() {
    let batch = documents(&[r#"{"h":"a"}"#, r#"{"h":"b"}"#, r#"{"h":"a"}"#, "{}"]);
    let requests = requests("resource: {host.name: '%{h}'}", &batch);
    let destinations: Vec<&str> = requests.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        destinations,
        [r#"{"host.name":"a"}"#, r#"{"host.name":"b"}"#, ""]
    );
}

#[test]
fn lines_of_text_have_an_id_and_times() {
    let requests = requests("", &lines(&["one", "two"]));
    let mut events = Vec::new();
    let read = Documents::new(100).read(&requests[0].1, |document| {
        let id = String::from_utf8_lossy(document.id.expect("an id")).into_owned();
        events.push((same(std::str::from_utf8(document.text).expect("UTF-8")), id));
    });
    read.expect("a request");
    assert_eq!(events[0].0["message"], "one");
    let id = "00000000000000000000000000000001-3-6";
    assert_eq!(events[1].1, id);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (settings, expected) in [
        ("url: 'collector:4318'", "expected an http or https URL"),
        ("url: 'http://x:4317'", "port 4317 is that of gRPC"),
        (
            "{url: 'http://x', severity: ['a..b']}",
            "`a..b` is not a field name",
        ),
        ("{url: 'http://x', compression: zstd}", "zstd"),
        (
            "{url: 'http://x', headers: {content-type: x}}",
            "cannot be set",
        ),
        (
            "{url: 'http://x', compression_level: 10}",
            "between 0 and 9",
        ),
        ("{url: 'http://x', timezone: Mars/X}", "is not a time zone"),
        ("{}", "url"),
    ] {
        let Err(error) = build_sender(&SPEC, settings) else {
            panic!("{settings} is accepted");
        };
        assert!(error.to_string().contains(expected), "{settings}: {error}");
    }
}

/// What becomes of a request with so many rows that is answered with this body.
fn sent(
    answer: &codec::otlp::Status,
    rejected: u64,
    rows: usize,
) -> (Result<Sent, SendError>, Arc<dyn Sender>) {
    let reply = match answer.code {
        0 => {
            let answer = profiler::otlp::Answer {
                rejected,
                message: answer.message.clone(),
            };
            ServerAnswer::new(200)
                .header("content-type", "application/x-protobuf")
                .body(profiler::otlp::response(&answer))
        }
        _ => ServerAnswer::new(400).body(answer.write()),
    };
    let server = HttpServer::start(move |_, _| reply.clone());
    let output = build_sender(&SPEC, &format!("url: '{}'", server.url())).expect("settings");
    let request = Request {
        id: 0,
        destination: "".into(),
        body: crate::testing::gzip(b"").into(),
        rows,
        attempt: 0,
    };
    let sent = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            output.open().await.expect("it opens");
            output.send(&request).await
        });
    (sent, output)
}

#[test]
fn what_a_server_rejects_is_counted_or_refused() {
    let status = |code, message: &str| codec::otlp::Status {
        code,
        message: message.to_owned(),
        retry_delay: None,
    };
    let (result, output) = sent(&status(0, "too old"), 2, 3);
    assert_eq!(result, Ok(Sent::default()));
    assert_eq!(output.take_counters(), [("rejected_by_server", 2)]);
    let warning = output.take_warnings().pop().expect("a warning");
    assert!(format!("{warning:?}").contains("rejected 2 of 3 events"));
    assert!(output.take_counters().is_empty() && output.take_warnings().is_empty());
    let (result, output) = sent(&status(0, "too old"), 1, 1);
    assert!(matches!(result, Err(SendError::Refused(_))), "{result:?}");
    assert!(output.take_counters().is_empty());
    let (result, _) = sent(&status(3, "bad"), 0, 1);
    assert!(matches!(result, Err(SendError::Unfit(_))), "{result:?}");
}

#[test]
fn a_success_of_somebody_else_is_none() {
    let answer = |kind: &'static str, body: &'static [u8]| {
        let (head, ()) = http::Response::builder()
            .header("content-type", kind)
            .body(())
            .expect("a response")
            .into_parts();
        Taken::of_http("http://h", &head, body)
    };
    for (kind, body) in [
        ("application/x-protobuf", &b""[..]),
        ("application/x-protobuf", b"\x0a\x00"),
        ("application/json", b"{}"),
        ("text/plain", b"OK"),
    ] {
        assert!(answer(kind, body).is_ok(), "{kind}");
    }
    for (kind, body) in [
        ("text/html", &b"<html>Sign in</html>"[..]),
        ("application/x-protobuf", b"\x0a\x05"),
    ] {
        let error = answer(kind, body).expect_err(kind);
        assert!(matches!(error, SendError::Retry(_)), "{kind}: {error:?}");
    }
}
