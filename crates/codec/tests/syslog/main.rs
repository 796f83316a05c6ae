//! Syslog messages: the RFCs' own examples, lines as servers write them, and whatever else a line may hold.

mod lines;
mod properties;

use std::sync::Arc;

use batch::{Batch, BatchBuilder, Encoding, FieldPath, HostInfo, JsonWriter, Span, Stream};
use bytes::Bytes;
use codec::syslog::{Counts, Format, Syslog};
use datetime::Zone;
use jiff::Timestamp;
use serde_json::{Value, json};

/// When the tests' batches are received, unless it matters.
const RECEIVED: &str = "2003-10-12T00:00:00Z";

fn nanos(time: &str) -> i64 {
    let time: Timestamp = time.parse().expect("a time");
    i64::try_from(time.as_nanosecond()).expect("a time of our days")
}

fn batch_of(lines: &[&str], received: i64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Text, &host, received, false);
    builder.stream(&Arc::new(Stream::file(1, "/var/log/syslog")));
    let buffer = builder.buffer(Bytes::from(lines.join("\n")));
    let mut start = 0;
    for line in lines {
        let len = line.len() as u32;
        let span = Span { buffer, start, len };
        builder.push(span, start.into(), (start + len + 1).into());
        start += len + 1;
    }
    builder.finish()
}

fn event(batch: &Batch, row: usize) -> Value {
    let mut out = Vec::new();
    JsonWriter::new(batch).write(row, &mut out);
    serde_json::from_slice(&out).expect("an event is JSON")
}

fn event_of(syslog: &Syslog, line: &str, received: i64) -> (Value, Counts) {
    let mut batch = batch_of(&[line], received);
    let counts = syslog.apply(&mut batch);
    (event(&batch, 0), counts)
}

/// The event of a line, without what every event has.
fn read(format: Format, line: &str) -> Value {
    let (mut event, counts) = event_of(&Syslog::new(format, Zone::UTC), line, nanos(RECEIVED));
    let object = event.as_object_mut().expect("an object");
    let host = object.remove("host").unwrap_or_default();
    let agent = object.remove("agent");
    let log = object.remove("log").unwrap_or_default();
    assert_eq!(log["file"]["path"], "/var/log/syslog", "{line}");
    if let Some(fields) = log.get("syslog") {
        object.insert("syslog".into(), fields.clone());
    }
    match log["syslog"].get("hostname") {
        Some(sender) => assert_eq!((&host["name"], agent), (sender, Some(json!({"name": "h"})))),
        // It is of this machine.
        None => assert_eq!((&host["name"], agent), (&json!("h"), None)),
    }
    assert_eq!(counts.failures, u64::from(object.contains_key("tags")));
    event
}

/// The fields that a priority gives.
fn with_priority(priority: u32, names: [&str; 2], mut fields: Value) -> Value {
    fields["priority"] = priority.into();
    fields["facility"] = json!({"code": priority / 8, "name": names[0]});
    fields["severity"] = json!({"code": priority % 8, "name": names[1]});
    fields
}

#[test]
fn examples_of_rfc_5424() {
    let application = json!({"iut": "3", "eventSource": "Application", "eventID": "1011"});
    let table = [
        (
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{FEFF}'su root' failed for lonvick on /dev/pts/8",
            "2003-10-11T22:14:15.003Z",
            "'su root' failed for lonvick on /dev/pts/8",
            with_priority(
                34,
                ["auth", "Critical"],
                json!({"version": "1", "hostname": "mymachine.example.com", "appname": "su", "msgid": "ID47"}),
            ),
        ),
        (
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
            "2003-08-24T12:14:15.000003Z",
            "%% It's time to make the do-nuts.",
            with_priority(
                165,
                ["local4", "Notice"],
                json!({"version": "1", "hostname": "192.0.2.1", "appname": "myproc", "procid": "8710"}),
            ),
        ),
        (
            "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"1011\"] \u{FEFF}An application event log entry...",
            "2003-10-11T22:14:15.003Z",
            "An application event log entry...",
            with_priority(
                165,
                ["local4", "Notice"],
                json!({"version": "1", "hostname": "mymachine.example.com", "appname": "evntslog", "msgid": "ID47",
                    "structured_data": {"exampleSDID@32473": application}}),
            ),
        ),
        (
            "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut=\"3\" eventSource=\"Application\" eventID=\"1011\"][examplePriority@32473 class=\"high\"]",
            "2003-10-11T22:14:15.003Z",
            "",
            with_priority(
                165,
                ["local4", "Notice"],
                json!({"version": "1", "hostname": "mymachine.example.com", "appname": "evntslog", "msgid": "ID47",
                    "structured_data": {"exampleSDID@32473": application, "examplePriority@32473": {"class": "high"}}}),
            ),
        ),
    ];
    for (line, time, message, fields) in table {
        let expected = json!({"@timestamp": time, "message": message, "syslog": fields});
        for format in [Format::Auto, Format::Rfc5424] {
            assert_eq!(read(format, line), expected, "{line}");
        }
    }
}

#[test]
fn times_of_rfc_5424() {
    for (text, expected) in [
        ("1985-04-12T23:20:50.52Z", "1985-04-12T23:20:50.520Z"),
        ("1985-04-12T19:20:50.52-04:00", "1985-04-12T23:20:50.520Z"),
        (
            "2003-08-24T05:14:15.000003-07:00",
            "2003-08-24T12:14:15.000003Z",
        ),
        // Too many digits for the RFC, as many as servers write.
        (
            "2003-08-24T05:14:15.000000003-07:00",
            "2003-08-24T12:14:15.000000003Z",
        ),
        (
            "2003-08-24T05:14:15.0000000039Z",
            "2003-08-24T05:14:15.000000003Z",
        ),
        ("2003-08-24T05:14:15,5+0530", "2003-08-23T23:44:15.500Z"),
        ("2003-08-24T05:14:15", "2003-08-24T05:14:15.000Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00.000Z"),
        ("2003-08-24 05:14:15.5+0530", "2003-08-23T23:44:15.500Z"),
        ("-", "2003-10-12T00:00:00.000Z"),
    ] {
        let event = read(Format::Rfc5424, &format!("<0>1 {text} - - - - - x"));
        let fields = with_priority(0, ["kern", "Emergency"], json!({"version": "1"}));
        let expected = json!({"@timestamp": expected, "message": "x", "syslog": fields});
        assert_eq!(event, expected, "{text}");
    }
}

#[test]
fn structured_data() {
    for (text, expected, message) in [
        ("[a]", json!({"a": {}}), ""),
        ("[a][b x=\"\"] y", json!({"a": {}, "b": {"x": ""}}), "y"),
        (
            r#"[a@1 q="\"" b="\\" e="a\]b"]"#,
            json!({"a@1": {"q": "\"", "b": "\\", "e": "a]b"}}),
            "",
        ),
        // Before anything else a backslash is itself, also at the end of a value that another escape precedes.
        (
            r#"[a x="C:\temp\new" y="\\\"\n"]"#,
            json!({"a": {"x": r"C:\temp\new", "y": "\\\"\\n"}}),
            "",
        ),
        (r#"[a x="a]b"]"#, json!({"a": {"x": "a]b"}}), ""),
        ("[a x=\"é\t\u{1}\"] ü", json!({"a": {"x": "é\t\u{1}"}}), "ü"),
        // The names of both may hold dots and backslashes; names may repeat.
        (
            r#"[origin.x@1 ip="192.0.2.1" so\ft="s" ip="192.0.2.129" ip="::1"]"#,
            json!({"origin.x@1": {"ip": ["192.0.2.1", "192.0.2.129", "::1"], "so\\ft": "s"}}),
            "",
        ),
        // Elements that repeat, which the RFC forbids.
        (
            r#"[a x="1"][b][a x="2" x="3" y="4"] m"#,
            json!({"a": [{"x": "1"}, {"x": ["2", "3"], "y": "4"}], "b": {}}),
            "m",
        ),
        ("[a][b][a][a]", json!({"a": [{}, {}, {}], "b": {}}), ""),
        ("[a  x=\"1\"  ] z", json!({"a": {"x": "1"}}), "z"),
        // A space ends the structured data.
        (
            "[a@1 iut=\"3\"] [b@1 class=\"high\"]",
            json!({"a@1": {"iut": "3"}}),
            "[b@1 class=\"high\"]",
        ),
    ] {
        let line = format!("<7>1 - - - - - {text}");
        let event = read(Format::Auto, &line);
        assert_eq!(event["syslog"]["structured_data"], expected, "{line}");
        assert_eq!(event["message"], message, "{line}");
    }
}

#[test]
fn many_parameters_and_elements() {
    let params: String = (0..300).map(|n| format!(" k{}=\"{n}\"", n % 200)).collect();
    let elements: String = (0..300).map(|n| format!("[e{n}]")).collect();
    let event = read(
        Format::Auto,
        &format!("<7>1 - - - - - [a{params}]{elements} m"),
    );
    let data = &event["syslog"]["structured_data"];
    assert_eq!(data["a"]["k5"], json!(["5", "205"]));
    assert_eq!(data["a"]["k150"], "150");
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(301));
    let line = format!("<7>1 - - - - - {elements}[e7 x=\"1\"] m");
    let event = read(Format::Auto, &line);
    let data = &event["syslog"]["structured_data"];
    assert_eq!(data["e7"], json!([{}, {"x": "1"}]));
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(300));
    assert_eq!(event["message"], "m");
}

#[test]
fn a_dotted_name_in_structured_data_is_found() {
    let mut batch = batch_of(&["<7>1 - - - - - [a.b@1 c.d=\"x\"]"], 0);
    Syslog::new(Format::Auto, Zone::UTC).apply(&mut batch);
    let path = FieldPath::parse("log.syslog.structured_data['a.b@1'].c.d").expect("a path");
    assert_eq!(batch.column(&path).value(0), batch::Value::Text(b"x"));
}

#[test]
fn devices_count_their_messages() {
    for (line, sequence) in [
        ("<189>29: r1: Mar  1 18:46:11 UTC: %A-3-B: x", json!(29)),
        ("<189>29: 000123: Mar  1 18:46:11: %A-3-B: x", json!(123)),
        (
            "<189>29: sw1: 000123: Mar  1 18:46:11: %A-3-B: x",
            json!(123),
        ),
        ("<189>000029: *Mar  1 18:46:11: %A-3-B: x", json!(29)),
        ("<189>29: r1: 3w4d: %A-3-B: x", json!(29)),
        ("<189>: 2002 Mar  1 18:46:11 UTC: %A-3-B: x", Value::Null),
        ("<13>404: page not found", Value::Null),
    ] {
        let event = read(Format::Auto, line);
        let found = event.get("event").map(|event| &event["sequence"]);
        assert_eq!(found.cloned().unwrap_or_default(), sequence, "{line}");
    }
    // More than a field holds: no count.
    let line = "<189>99999999999999999999: Mar  1 18:46:11 UTC: x";
    assert_eq!(
        read(Format::Auto, line)["message"],
        line.trim_start_matches("<189>")
    );
}

#[test]
fn zones_of_devices() {
    for (zone, expected) in [
        ("UTC", "2003-03-01T18:46:11.000Z"),
        ("GMT", "2003-03-01T18:46:11.000Z"),
        ("CST", "2003-03-02T00:46:11.000Z"),
        ("CEST", "2003-03-01T16:46:11.000Z"),
        ("JST", "2003-03-01T09:46:11.000Z"),
        // Of other names nobody knows which place they mean.
        ("IST", "2003-03-01T16:46:11.000Z"),
    ] {
        let syslog = Syslog::new(Format::Auto, Zone::named("+02:00").expect("a zone"));
        let line = format!("<189>29: Mar  1 18:46:11 {zone}: %LINK-3-UPDOWN: down");
        let (event, _) = event_of(&syslog, &line, nanos(RECEIVED));
        assert_eq!(event["@timestamp"], expected, "{zone}");
    }
}

#[test]
fn priorities_and_versions() {
    for (priority, facility, severity) in [
        (0, "kern", "Emergency"),
        (14, "user", "Informational"),
        (86, "authpriv", "Informational"),
        (131, "local0", "Error"),
        (191, "local7", "Debug"),
    ] {
        let event = read(Format::Auto, &format!("<{priority}>x y"));
        let fields = with_priority(priority, [facility, severity], json!({}));
        assert_eq!(event["syslog"], fields);
    }
    for (format, line, version) in [
        (Format::Auto, "<1>12 - - - - - -", Some("12")),
        (
            Format::Auto,
            "<1>2 2003-10-11T22:14:15Z - - - - - x",
            Some("2"),
        ),
        (Format::Auto, "<1>2 x - - - - -", None),
        (Format::Auto, "<1> 1 - - - - - -", Some("1")),
        (Format::Rfc5424, "<1>123 - - - - - -", Some("123")),
        (Format::Rfc3164, "<1>1 - - - - - -", None),
    ] {
        let event = read(format, line);
        let found = event["syslog"].get("version").and_then(Value::as_str);
        assert_eq!(found, version, "{line}: {event}");
        assert_eq!(event.get("tags"), None, "{line}");
    }
}

#[test]
fn lines_that_are_no_messages() {
    use Format::{Auto, Rfc5424};
    for (format, line, reason) in [
        (Auto, "", "expected a priority or a time at byte 0"),
        (
            Auto,
            "Use the BFG!",
            "expected a priority or a time at byte 0",
        ),
        (
            Auto,
            "1234 Oct 11 22:14:15 x",
            "expected a priority or a time at byte 0",
        ),
        (
            Auto,
            "Oct 32 22:14:15 web x",
            "expected a day of the month at byte 4",
        ),
        (
            Auto,
            "Feb 30 22:14:15 web x",
            "expected a day of the month at byte 4",
        ),
        (
            Auto,
            "2003 Feb 29 22:14:15 web x",
            "expected a day of the month at byte 9",
        ),
        (
            Auto,
            "Oct 11 24:14:15 web x",
            "expected a time of day at byte 7",
        ),
        (
            Auto,
            "Oct 11 22:14:15x",
            "expected a space after the time at byte 15",
        ),
        (
            Auto,
            "Oct 11 22:14:15. x",
            "expected a digit after the decimal point of the seconds at byte 16",
        ),
        (Auto, "2003-13-11T22:14:15Z web x", "no month at byte 5"),
        (
            Auto,
            "2003-02-29T22:14:15Z web x",
            "expected a day of the month at byte 8",
        ),
        (
            Auto,
            "2003/02/28 22:14:15 web x",
            "expected a priority or a time at byte 0",
        ),
        // With a priority too: what cannot be read is no text.
        (
            Auto,
            "<13>Feb 30 22:14:15 web su: x",
            "expected a day of the month at byte 8",
        ),
        (
            Auto,
            "<13>Oct 11 24:14:15 web x",
            "expected a time of day at byte 11",
        ),
        (
            Auto,
            "<13>Oct 11 22:14:15x",
            "expected a space after the time at byte 19",
        ),
        (Auto, "<13>2003-13-11T22:14:15Z web x", "no month at byte 9"),
        (
            Auto,
            "<13>2003-02-29 22:14:15 web x",
            "expected a day of the month at byte 12",
        ),
        (
            Auto,
            "<13>2003/02/28 22:14:15 web x",
            "expected a priority or a time at byte 4",
        ),
        (
            Auto,
            "<13>Sat Oct 11 22:14:15 2003 web x",
            "expected a priority or a time at byte 4",
        ),
        (
            Auto,
            "<13>22:14:15 web x",
            "expected a priority or a time at byte 4",
        ),
        (
            Auto,
            "<189>29: r1: Feb 30 18:46:11 UTC: %LINK-3-UPDOWN: down",
            "expected a day of the month at byte 17",
        ),
        (
            Auto,
            "<189>29: r1: soon: %LINK-3-UPDOWN: down",
            "no time that is known before the message of a device at byte 9",
        ),
        (
            Auto,
            "<13>Foo  1 18:46:11 h a: x",
            "expected a priority or a time at byte 4",
        ),
        (
            Auto,
            "<13>M\u{e4}r  1 18:46:11 h a: x",
            "expected a priority or a time at byte 4",
        ),
        (
            Auto,
            "<13>[2003-02-30 18:46:11] app: x",
            "expected a day of the month at byte 13",
        ),
        (
            Auto,
            "<13>20030230T184611Z h a: x",
            "expected a day of the month at byte 10",
        ),
        (
            Auto,
            "<13>20030228T186611Z h a: x",
            "expected a time of day at byte 13",
        ),
        (
            Auto,
            "<1>1 2003-10-11T22:14Z h a - - - x",
            "expected a time of day at byte 16",
        ),
        (
            Auto,
            "2003-02-28T22:14:15+24:00 x",
            "expected an offset such as `+02:00` at byte 19",
        ),
        (
            Auto,
            "2263-02-28T22:14:15Z web x",
            "a time outside the years 1677 to 2262 at byte 0",
        ),
        (Auto, "<192>x", "the priority is above 191 at byte 1"),
        (
            Auto,
            "<1234>x",
            "expected a number of up to three digits and `>` at byte 1",
        ),
        (
            Auto,
            "<event>x",
            "expected a number of up to three digits and `>` at byte 1",
        ),
        (
            Auto,
            "<>x",
            "expected a number of up to three digits and `>` at byte 1",
        ),
        (
            Auto,
            "<",
            "expected a number of up to three digits and `>` at byte 1",
        ),
        (
            Auto,
            "<1>1 x",
            "expected a time in RFC 3339 format at byte 5",
        ),
        (Auto, "<1>1 -  - - - -", "an empty header field at byte 7"),
        (
            Auto,
            "<1>1 - - - -",
            "the header ends unexpectedly at byte 12",
        ),
        (
            Auto,
            "<1>1 - - - - - x",
            "expected structured data or `-` at byte 15",
        ),
        (
            Auto,
            "<1>1 - - - - - -x",
            "expected a space after the structured data at byte 16",
        ),
        (
            Auto,
            "<1>1 - - - - - [a]x",
            "expected a space after the structured data at byte 18",
        ),
        (
            Auto,
            "<1>1 - - - - - [ a x=\"1\"]",
            "expected a name in the structured data at byte 16",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x]",
            "expected `=` and a quote after the name at byte 19",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x=1]",
            "expected `=` and a quote after the name at byte 19",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x=\"1]",
            "a value without a closing quote at byte 20",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x=\"\\",
            "a value without a closing quote at byte 20",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x=\"1\"",
            "expected a parameter or `]` at byte 23",
        ),
        (
            Auto,
            "<1>1 - - - - - [a x=\"1\"y=\"2\"]",
            "expected a parameter or `]` at byte 23",
        ),
        (
            Rfc5424,
            "Oct 11 22:14:15 web x",
            "expected a priority such as `<34>` at byte 0",
        ),
        (
            Rfc5424,
            "<34>Oct 11 22:14:15 web x",
            "expected a version followed by a space at byte 4",
        ),
        (
            Rfc5424,
            "<34>0 - - - - - -",
            "expected a version followed by a space at byte 4",
        ),
    ] {
        let expected = json!({
            "@timestamp": "2003-10-12T00:00:00.000Z",
            "message": line,
            "tags": ["_syslogparsefailure"],
            "error": {"message": format!("not a syslog message: {reason} of the line")},
        });
        let mut found = read(format, line);
        if let Some(tag) = found.get("tags").filter(|tags| tags.is_string()) {
            found["tags"] = json!([tag]);
        }
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn a_batch_of_both_kinds() {
    let lines = [
        "<13>Oct 11 22:14:15 a b: c",
        "nothing",
        "Oct 11 22:14:16 d e: f",
        "",
    ];
    let mut batch = batch_of(&lines, nanos(RECEIVED));
    let counts = Syslog::new(Format::Auto, Zone::UTC).apply(&mut batch);
    assert_eq!(
        counts,
        Counts {
            failures: 2,
            first_failure: Some(27),
            first_row: Some(1),
        }
    );
    let messages: Vec<Value> = (0..4)
        .map(|row| event(&batch, row)["message"].take())
        .collect();
    assert_eq!(messages, ["c", "nothing", "f", ""]);
    assert_eq!(
        event(&batch, 2)["log"]["syslog"],
        json!({"hostname": "d", "appname": "e"})
    );
    assert_eq!(event(&batch, 1)["log"].get("syslog"), None);
    assert!(batch.sealed().is_empty());
}

#[test]
fn years_that_lines_leave_out() {
    for (received, text, expected) in [
        (
            "2024-01-01T00:00:01Z",
            "Dec 31 23:59:59",
            "2023-12-31T23:59:59.000Z",
        ),
        (
            "2024-01-01T00:00:01Z",
            "Jan  1 00:00:00",
            "2024-01-01T00:00:00.000Z",
        ),
        // The sender's clock goes a little before ours.
        (
            "2023-12-31T23:59:59Z",
            "Jan  1 00:00:03",
            "2024-01-01T00:00:03.000Z",
        ),
        (
            "2023-12-31T00:00:00Z",
            "Jan  1 00:00:00",
            "2024-01-01T00:00:00.000Z",
        ),
        (
            "2023-12-31T00:00:00Z",
            "Jan  1 00:00:01",
            "2023-01-01T00:00:01.000Z",
        ),
        (
            "2024-06-15T12:00:00Z",
            "Jun 16 11:59:59",
            "2024-06-16T11:59:59.000Z",
        ),
        (
            "2024-06-15T12:00:00Z",
            "Jun 17 12:00:00",
            "2023-06-17T12:00:00.000Z",
        ),
        // Not the closest year, but the last one in which the day was.
        (
            "2024-06-15T12:00:00Z",
            "Oct 11 22:14:15",
            "2023-10-11T22:14:15.000Z",
        ),
        (
            "2024-09-15T12:00:00Z",
            "Feb  1 00:00:00",
            "2024-02-01T00:00:00.000Z",
        ),
        (
            "2024-12-31T23:59:59Z",
            "Dec 31 23:59:59",
            "2024-12-31T23:59:59.000Z",
        ),
        (
            "2024-06-15T12:00:00Z",
            "Dec 31 23:59:59",
            "2023-12-31T23:59:59.000Z",
        ),
        (
            "2024-03-01T00:00:00Z",
            "Feb 29 10:00:00",
            "2024-02-29T10:00:00.000Z",
        ),
        (
            "2024-02-28T00:00:00Z",
            "Feb 29 00:00:00",
            "2024-02-29T00:00:00.000Z",
        ),
        (
            "2023-03-01T00:00:00Z",
            "Feb 29 10:00:00",
            "2020-02-29T10:00:00.000Z",
        ),
    ] {
        let syslog = Syslog::new(Format::Auto, Zone::UTC);
        let (event, _) = event_of(&syslog, &format!("{text} web su: x"), nanos(received));
        assert_eq!(event["@timestamp"], expected, "{text} at {received}");
    }
}

#[test]
fn zones_that_lines_leave_out() {
    for (zone, received, text, expected) in [
        (
            "+02:00",
            RECEIVED,
            "Oct 11 22:14:15",
            "2003-10-11T20:14:15.000Z",
        ),
        (
            "-0330",
            RECEIVED,
            "Oct 11 18:14:15",
            "2003-10-11T21:44:15.000Z",
        ),
        (
            "Europe/Berlin",
            RECEIVED,
            "Oct 11 22:14:15",
            "2003-10-11T20:14:15.000Z",
        ),
        (
            "Europe/Berlin",
            RECEIVED,
            "Jan 11 22:14:15",
            "2003-01-11T21:14:15.000Z",
        ),
        (
            "Europe/Berlin",
            RECEIVED,
            "2003-10-11T22:14:15",
            "2003-10-11T20:14:15.000Z",
        ),
        (
            "Europe/Berlin",
            RECEIVED,
            "2003-10-11T22:14:15Z",
            "2003-10-11T22:14:15.000Z",
        ),
        // Put forward, and put back.
        (
            "Europe/Berlin",
            "2024-05-01T00:00:00Z",
            "Mar 31 02:30:00",
            "2024-03-31T01:30:00.000Z",
        ),
        (
            "Europe/Berlin",
            "2024-11-01T00:00:00Z",
            "Oct 27 02:30:00",
            "2024-10-27T00:30:00.000Z",
        ),
        (
            "Europe/Berlin",
            "2024-11-01T00:00:00Z",
            "Oct 27 03:00:00",
            "2024-10-27T02:00:00.000Z",
        ),
        // It is next year already where the line was written.
        (
            "Asia/Tokyo",
            "2023-12-31T16:00:00Z",
            "Jan  1 01:00:00",
            "2023-12-31T16:00:00.000Z",
        ),
        (
            "-10:00",
            "2024-01-01T09:00:00Z",
            "Dec 31 23:00:00",
            "2024-01-01T09:00:00.000Z",
        ),
    ] {
        let syslog = Syslog::new(Format::Auto, Zone::named(zone).expect("a zone"));
        let (event, _) = event_of(&syslog, &format!("{text} web su: x"), nanos(received));
        assert_eq!(event["@timestamp"], expected, "{text} in {zone}");
    }
    for name in [
        "",
        "+2",
        "+24:00",
        "+02:60",
        "+02:00x",
        "+0a:00",
        "Europe/Atlantis",
    ] {
        assert!(Zone::named(name).is_none(), "{name}");
    }
}
